//! Extract and load in two processes that share nothing but the blob root, a direct run and a staged run: all three
//! must leave the very same rows behind, and those of the source.

use std::path::Path;

use setu_tests::{Database, Setu, csv_rows};
use tempfile::TempDir;

type Rows = Vec<Vec<Option<String>>>;

/// How rows get from one end to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Staged,
    /// `extract` and `load`, each in a folder of its own.
    TwoProcesses,
}

const WAYS: [Way; 3] = [Way::Direct, Way::Staged, Way::TwoProcesses];

/// Moves `streams` from one end to the other. Both ends are YAML of what stands below `source:` and `destination:`,
/// with absolute paths.
#[track_caller]
fn move_rows(way: Way, source: &str, destination: &str, streams: &str) {
    let blob = TempDir::new().expect("a folder");
    let yaml = format!(
        "pipeline: p\nsource: {source}\ndestination: {destination}\n\
         streams:\n  - name: \"{streams}\"\n\
         staging:\n  backend: fs\n  fsRoot: {}\n",
        blob.path().display()
    );
    let setu = Setu::with_pipeline(&yaml);
    match way {
        Way::Direct => {
            setu.succeed("run pipeline.yaml --mode direct");
        }
        Way::Staged => {
            setu.succeed("run pipeline.yaml --mode staged");
        }
        Way::TwoProcesses => {
            setu.succeed("extract pipeline.yaml --run r1");
            let elsewhere = Setu::with_pipeline(&yaml);
            drop(setu);
            elsewhere.succeed("load pipeline.yaml --run r1");
        }
    }
}

fn csv(path: &Path) -> String {
    format!("{{ connector: csv, config: {{ path: \"{}\" }} }}", path.display())
}

fn postgres(database: &Database) -> String {
    format!(
        "{{ connector: postgres, config: {{ url: \"{}\" }} }}",
        database.url()
    )
}

/// The rows of a CSV file that a run wrote, its header first.
#[track_caller]
fn written(folder: &Path, file: &str) -> Rows {
    let path = folder.join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    csv_rows(&text)
}

/// A file with everything that CSV can express.
const ODD_CSV: &str = "id,\"a \"\"quoted\"\" name\",note,größe\n\
                       1,plain,\"two\nlines\",007\n\
                       2,,\"\",\"1,5\"\n\
                       3,\"say \"\"hi\"\"\",  spaces kept  ,\u{1F980} ünï\n\
                       4,\\N,NULL,\"\r\n\"\n";

#[test]
fn csv_to_csv() {
    let source = TempDir::new().expect("a folder");
    std::fs::write(source.path().join("odd.csv"), ODD_CSV).expect("a file");
    std::fs::write(source.path().join("other.csv"), "x\n1\n").expect("a file");
    for way in WAYS {
        let target = TempDir::new().expect("a folder");
        move_rows(way, &csv(source.path()), &csv(target.path()), "*");
        assert_eq!(written(target.path(), "odd.csv"), csv_rows(ODD_CSV), "{way:?}");
        assert_eq!(written(target.path(), "other.csv"), csv_rows("x\n1\n"), "{way:?}");
    }
}

#[test]
fn csv_to_postgres() {
    let source = TempDir::new().expect("a folder");
    std::fs::write(source.path().join("odd.csv"), ODD_CSV).expect("a file");
    let mut expected = csv_rows(ODD_CSV);
    let header = expected.remove(0);
    for way in WAYS {
        let target = Database::new();
        move_rows(way, &csv(source.path()), &postgres(&target), "odd");
        assert_eq!(target.rows("SELECT * FROM odd ORDER BY id"), expected, "{way:?}");
        let names = target.rows(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'odd'
             ORDER BY ordinal_position",
        );
        let named: Rows = header
            .iter()
            .map(|name| vec![name.clone(), Some("text".to_owned())])
            .collect();
        assert_eq!(names, named, "{way:?}");
    }
}

/// Every type that Postgres itself brings, each with its extremes, an ordinary value and NULL.
const EVERY_TYPE: &str = r#"
    CREATE EXTENSION IF NOT EXISTS citext;
    CREATE SCHEMA "Odd ""Schema""; -- x";
    CREATE TYPE mood AS ENUM ('sad', 'it''s "ok"', 'happy');
    CREATE TYPE pair AS (a int, b text);
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TABLE "Odd ""Schema""; -- x"."Täble 1.2/3" (
        "Id" bigint PRIMARY KEY,
        "select" boolean, i2 smallint, i4 integer, "i8.%s" bigint, f4 real, f8 double precision,
        n numeric, n12_4 numeric(12,4), n38_0 numeric(38,0), n1000 numeric(1000,500),
        t text, v varchar(20), c char(5), "c1" "char", nm name, ci citext,
        b bytea, u uuid, j json, jb jsonb, x xml,
        d date, tm time, tm3 time(3), tz timetz, ts timestamp, ts0 timestamp(0), tsz timestamptz, iv interval,
        ip inet, net cidr, mac macaddr, mac8 macaddr8, bits bit(5), vbits varbit,
        m money, o oid, lsn pg_lsn, tsv tsvector, tsq tsquery,
        p point, l line, ls lseg, bx box, pa path, pg polygon, ci2 circle,
        r4 int4range, rn numrange, rts tsrange, rtz tstzrange, rd daterange, mr int8multirange,
        a4 int4[], at text[], an numeric(10,2)[], a2 int[][], ab boolean[], ats timestamptz[]
    );
    INSERT INTO "Odd ""Schema""; -- x"."Täble 1.2/3" VALUES (
        1, true, 1, 2, 3, 1.5, 2.5, 12345678901234567890.12345, 1.5, 7, 1.25,
        'tab	newline
 quote " backslash \ ü 🦀', 'v', 'c', 'x', 'name', 'CiText',
        '\x00ff10', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{"b": 1,  "a":[ ]}', '{"b":1,"a":[1,2]}', '<a>1</a>',
        '2024-02-29', '12:34:56.789012', '12:34:56.789', '12:34:56.5+05:30', '2024-02-29 12:34:56.789012',
        '2024-02-29 12:34:56', '2024-02-29 12:34:56.789012+02', '1 year 2 mons 3 days 04:05:06.7',
        '192.168.0.1/24', '10.0.0.0/8', '08:00:2b:01:02:03', '08:00:2b:01:02:03:04:05', B'10101', B'1',
        '12.34', 42, '16/B374D848', 'a fat cat', 'fat & cat',
        '(1,2)', '{1,2,3}', '[(0,0),(1,1)]', '(1,1),(0,0)', '[(0,0),(1,1)]', '((0,0),(1,1),(1,0))', '<(0,0),1>',
        '[1,10)', '(1.5,)', '[2024-01-01,2024-02-01)', '[2024-01-01,)', '[2024-01-01,2024-02-01)', '{[1,3),[5,7)}',
        '{1,NULL,3}', '{a,"b,c","",NULL,"NULL"}', '{1.50}', '{{1,2},{3,4}}', '{t,f}', '{2024-01-01 00:00:00+00}'
    ), (
        2, false, -32768, -2147483648, -9223372036854775808, '-Infinity', 'NaN',
        'NaN', -99999999.9999, -99999999999999999999999999999999999999, -0.0001,
        '', '', '', '', '', '', '', '00000000-0000-0000-0000-000000000000', 'null', 'null', '<b/>',
        '-infinity', '00:00:00', '00:00:00', '00:00:00+15:59', '-infinity', '4713-01-01 00:00:00 BC', '-infinity',
        '-178000000 years', '::/0', '::/0', '00:00:00:00:00:00', 'ff:ff:ff:ff:ff:ff:ff:ff', B'00000', B'',
        '-92233720368547758.08', 0, '0/0', '', '',
        '(-Infinity,NaN)', '{-1,0,0}', '[(-1,-1),(0,0)]', '(0,0),(-1,-1)', '((0,0))', '((0,0))', '<(1,1),0>',
        'empty', '(,)', 'empty', '(,)', 'empty', '{}', '{}', '{}', '{}', '{}', '{}', '{}'
    ), (
        3, NULL, 32767, 2147483647, 9223372036854775807, 3.4028235e38, 1.7976931348623157e308,
        'Infinity', 99999999.9999, 99999999999999999999999999999999999999, 1e400,
        repeat('wide ', 50000), repeat('v', 20), 'ccccc', 'z', repeat('n', 63), 'ÄÖ',
        decode(repeat('00', 100000), 'hex'), 'ffffffff-ffff-ffff-ffff-ffffffffffff', '"\u00e4"', '"\u00e4"', '<c/>',
        'infinity', '24:00:00', '24:00:00', '24:00:00-15:59', 'infinity', '294246-12-31 23:59:59', 'infinity',
        '178000000 years', '255.255.255.255', '255.255.255.255/32', 'ff:ff:ff:ff:ff:ff', '00:00:00:00:00:00:00:00',
        B'11111', B'111111111111', '92233720368547758.07', 4294967295, 'FFFFFFFF/FFFFFFFF', $$'a':1A 'b':2$$, '!a | b',
        '(1e300,-1e-300)', '{0,1,0}', '[(1,2),(3,4)]', '(3,4),(1,2)', '((0,0),(1,1))', '((0,0),(2,2))', '<(0,0),1e10>',
        '(,5)', '[1.0,2.00]', '(,)', '(,2024-01-01)', '(,)', '{(,5),[10,)}',
        '[0:1]={7,8}', '{"\\","\""}', '{NaN,-1.00}', '{{{1}},{{2}}}', '{NULL}', '{infinity,-infinity}'
    ), (
        4, NULL, 0, 0, 0, '-0', '-0', 0.000, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        '0001-01-01', '23:59:59.999999', '23:59:59.999', '23:59:59.999999-00', '0001-01-01 00:00:00',
        '0044-03-15 12:00:00 BC', '4714-11-24 00:00:00+00 BC', '-1 mons +1 day -00:00:00.000001',
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    );
    INSERT INTO "Odd ""Schema""; -- x"."Täble 1.2/3" ("Id") VALUES (5);
"#;

const EVERY_TYPE_TABLE: &str = r#""Odd ""Schema""; -- x"."Täble 1.2/3""#;

/// The columns of a table: name, full type, nullability; in order.
fn columns(database: &Database, table: &str) -> Rows {
    database.rows(&format!(
        "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
         WHERE attrelid = '{}'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        table.replace('\'', "''")
    ))
}

/// The columns of a primary key, in its order.
fn primary_key(database: &Database, table: &str) -> Rows {
    database.rows(&format!(
        "SELECT a.attname FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY k(n, place)
         JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n
         WHERE i.indrelid = '{}'::regclass AND i.indisprimary ORDER BY k.place",
        table.replace('\'', "''")
    ))
}

#[test]
fn postgres_to_postgres_with_every_type_and_odd_names() {
    let source = Database::new();
    source.execute(EVERY_TYPE);
    // As text and as binary: no difference may hide behind a canonical spelling.
    let rows = format!("SELECT * FROM {EVERY_TYPE_TABLE} ORDER BY \"Id\"");
    let expected = source.rows(&rows);
    assert_eq!(expected.len(), 5);
    for way in WAYS {
        let target = Database::new();
        target.execute("CREATE EXTENSION citext");
        move_rows(way, &postgres(&source), &postgres(&target), "*");
        assert_eq!(
            columns(&target, EVERY_TYPE_TABLE),
            columns(&source, EVERY_TYPE_TABLE),
            "{way:?}"
        );
        assert_eq!(
            primary_key(&target, EVERY_TYPE_TABLE),
            [[Some("Id".to_owned())]],
            "{way:?}"
        );
        let got = target.rows(&rows);
        for (got, expected) in got.iter().zip(&expected) {
            assert_eq!(got, expected, "{way:?}");
        }
        assert_eq!(got.len(), expected.len(), "{way:?}");
    }
}

#[test]
fn postgres_to_postgres_with_types_that_the_target_has_as_well() {
    let types = "CREATE TYPE mood AS ENUM ('sad', 'it''s \"ok\"', 'happy');
                 CREATE TYPE pair AS (a int, b text);
                 CREATE DOMAIN positive AS int CHECK (VALUE > 0);";
    let source = Database::new();
    source.execute(&format!(
        "{types}
         CREATE TABLE own (id int PRIMARY KEY, m mood, ms mood[], p pair, d positive);
         INSERT INTO own VALUES (1, 'sad', '{{sad,happy}}', '(1,\"a,b\")', 7),
                                (2, 'it''s \"ok\"', '{{}}', '(,)', 1), (3, NULL, NULL, NULL, NULL);"
    ));
    for way in WAYS {
        let target = Database::new();
        target.execute(types);
        move_rows(way, &postgres(&source), &postgres(&target), "public.own");
        let rows = "SELECT * FROM own ORDER BY id";
        assert_eq!(target.rows(rows), source.rows(rows), "{way:?}");
        assert_eq!(columns(&target, "own"), columns(&source, "own"), "{way:?}");
    }
}

#[test]
fn postgres_to_postgres_with_tables_of_every_shape() {
    let wide: Vec<String> = (0..1500).map(|i| format!("c{i} int DEFAULT {i}")).collect();
    let source = Database::new();
    source.execute(&format!(
        "CREATE TABLE empty (id int PRIMARY KEY, t text);
         CREATE TABLE no_key (a int, b text);
         INSERT INTO no_key VALUES (1, 'x'), (1, 'x'), (NULL, NULL);
         CREATE TABLE composite (b text, a int, v int, PRIMARY KEY (a, b));
         INSERT INTO composite SELECT chr(64 + i % 20), i, i * i FROM generate_series(1, 2000) i;
         CREATE VIEW seen AS SELECT a, count(*) AS n FROM composite GROUP BY a;
         CREATE TABLE parted (id int, day date) PARTITION BY RANGE (day);
         CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2024-01-01') TO ('2024-02-01');
         CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM ('2024-02-01') TO ('2024-03-01');
         INSERT INTO parted SELECT i, date '2024-01-01' + i FROM generate_series(0, 58) i;
         CREATE TABLE generated (id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED,
                                 n int GENERATED ALWAYS AS IDENTITY);
         INSERT INTO generated (id) SELECT * FROM generate_series(1, 10);
         CREATE TABLE wide (id int PRIMARY KEY, {});
         INSERT INTO wide (id) VALUES (1), (2);
         CREATE TABLE \"select\" (\"from\" int PRIMARY KEY, \"WHERE\" text, \" \" text, \"a\"\"b\" text);
         INSERT INTO \"select\" VALUES (1, 'w', 's', 'q');",
        wide.join(", ")
    ));
    let tables = [
        "empty",
        "no_key",
        "composite",
        "seen",
        "parted",
        "generated",
        "wide",
        "\"select\"",
    ];
    for way in WAYS {
        let target = Database::new();
        move_rows(way, &postgres(&source), &postgres(&target), "public.*");
        for table in tables {
            let rows = format!("SELECT * FROM {table} t ORDER BY t::text");
            assert_eq!(target.rows(&rows), source.rows(&rows), "{table}, {way:?}");
        }
        assert_eq!(
            primary_key(&target, "composite"),
            [[Some("a".to_owned())], [Some("b".to_owned())]],
            "{way:?}"
        );
    }
}

#[test]
fn postgres_to_csv() {
    let source = Database::new();
    source.execute(
        r#"CREATE TABLE things (id int PRIMARY KEY, ok boolean, n numeric(10,2), f float8, t text, b bytea,
                                j jsonb, d date, ts timestamp, tz timestamptz, u uuid, a int[]);
           INSERT INTO things VALUES
             (1, true, 1.50, 0.1, 'x "y", z', '\x00ff', '{"a": 1}', '2024-02-29', '2024-02-29 12:00:00.5',
              '2024-02-29 12:00:00+02', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{1,2}'),
             (2, false, 0, 'NaN', '', '', 'null', 'infinity', '-infinity', 'infinity',
              '00000000-0000-0000-0000-000000000000', '{}'),
             (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);"#,
    );
    let mut results = Vec::new();
    for way in WAYS {
        let target = TempDir::new().expect("a folder");
        move_rows(way, &postgres(&source), &csv(target.path()), "public.things");
        results.push(written(target.path(), "public.things.csv"));
    }
    let some = |texts: &[&str]| -> Vec<Option<String>> {
        texts.iter().map(|text| Some((*text).to_owned())).collect()
    };
    let expected = [
        some(&["id", "ok", "n", "f", "t", "b", "j", "d", "ts", "tz", "u", "a"]),
        some(&[
            "1",
            "true",
            "1.50",
            "0.1",
            "x \"y\", z",
            "AP8=",
            "{\"a\": 1}",
            "2024-02-29",
            "2024-02-29T12:00:00.500000",
            "2024-02-29T10:00:00.000000Z",
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "{1,2}",
        ]),
        some(&[
            "2",
            "false",
            "0.00",
            "NaN",
            "",
            "",
            "null",
            "infinity",
            "-infinity",
            "infinity",
            "00000000-0000-0000-0000-000000000000",
            "{}",
        ]),
        {
            let mut nulls = vec![None; 12];
            nulls[0] = Some("3".to_owned());
            nulls
        },
    ];
    assert_eq!(results[0], expected, "direct");
    assert_eq!(results[1], expected, "staged");
    assert_eq!(results[2], expected, "in two processes");
}

/// A hundred thousand rows cross two part boundaries; a hash says whether all of them arrived, in the source's
/// values.
#[test]
fn many_rows_arrive_complete_every_way() {
    let source = Database::new();
    source.execute(
        "CREATE TABLE many AS SELECT i AS id, md5(i::text) AS h, i * 0.25 AS f, NULLIF(i % 7, 0) AS m
         FROM generate_series(1, 120000) i; ALTER TABLE many ADD PRIMARY KEY (id);",
    );
    let digest = "SELECT count(*), md5(string_agg(t::text, '|' ORDER BY id)) FROM many t";
    for way in WAYS {
        let target = Database::new();
        move_rows(way, &postgres(&source), &postgres(&target), "public.many");
        assert_eq!(target.rows(digest), source.rows(digest), "{way:?}");
    }
}
