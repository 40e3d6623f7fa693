//! Every type, with its extremes, arrives as it was.

use serde_json::json;
use setu_sdk::{DataType, Reader, Source, WriteMode};

use super::copy::{copy, destination, source, stream};
use super::server::Server;

/// A column of each kind of type with the values that are hardest for it.
const EVERY_TYPE: &str = r#"
CREATE EXTENSION hstore; CREATE EXTENSION citext;
CREATE SCHEMA "Odd ""schema"".";
CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'ça va');
CREATE TYPE "Odd ""schema"".".pair AS (a int, b text);
CREATE DOMAIN posint AS int CHECK (VALUE > 0);
CREATE DOMAIN posint2 AS posint;
CREATE DOMAIN money2 AS numeric(10,2);
CREATE DOMAIN tags AS text[];
CREATE TABLE every_type (
  id int8 PRIMARY KEY, "Bool?" bool, i2 int2, i4 int4, f4 float4, f8 float8, n numeric, n102 numeric(10,2), n38 numeric(38,10),
  n50 numeric(50,5), n_neg numeric(5,-2), n_big numeric(3,5), t text, vc varchar(10), c5 char(5), ch "char", nm name, b bytea, u uuid,
  j json, jb jsonb, d date, tm time, tm3 time(3), ts timestamp, ts0 timestamp(0), tz timestamptz, ttz timetz, iv interval,
  iv_y interval year to month, arr int4[], arr2 text[], tsa timestamptz[], f8a float8[], m mood, ma mood[],
  pr "Odd ""schema"".".pair, r int4range, tr tstzrange, mr nummultirange, ip inet, cd cidr, mac macaddr, bt bit(3), vb varbit, mny money, x xml,
  h hstore, ci citext, pt point, pl polygon, lsn pg_lsn, tsv tsvector, tsq tsquery, reg regclass, o oid, jp jsonpath,
  dom posint, dom2 posint2, dom3 money2, dom4 tags);
INSERT INTO every_type (id) VALUES (0);
INSERT INTO every_type VALUES (-9223372036854775808, true, -32768, -2147483648, '-0', '-0', '-0.00', -99999999.99, -9999999999999999999999999999.9999999999,
  'NaN', 12300, 0.00999, '', '', '', '', '', '', '00000000-0000-0000-0000-000000000000',
  ' {"b" : 1, "a": 1.0, "a":2}', '{"b":1,"a":1.10}', '-infinity', '00:00', '00:00:00.001', '-infinity', '-infinity', '-infinity', '00:00+15:59', '-178000000 years',
  '-1 year', '{}', '{}', '{}', '{}', 'sad', '{}', '(,)', 'empty', '(,)', '{}', '0.0.0.0/0', '::/0', '00:00:00:00:00:00', B'000', B'', '-92233720368547758.08', '',
  '', '', '(-0,NaN)', '((0,0))', '0/0', '', '', 'pg_class', 0, '$', 1, 1, -1.5, '{}');
INSERT INTO every_type VALUES (9223372036854775807, false, 32767, 2147483647, 'Infinity', '-Infinity', 'Infinity', 99999999.99, 9999999999999999999999999999.9999999999,
  1234567890123456789012345678901234567890.12345, -99900, 0, E'tab\t nl\n quote" \\ \U0001F600 \u0301', 'çççççççççç', 'a b', 'x', 'Näme "x"', '\x00ff5c2c', 'ffffffff-ffff-ffff-ffff-ffffffffffff',
  '[1e400, "\u0000x", -0]', '{"k": [1, 2.50, null, "é"]}', 'infinity', '24:00', '23:59:59.999', 'infinity', 'infinity', 'infinity', '23:59:59.999999-15:59', '1 mon -1 days +02:03:04.000005',
  '178000000 years', '{{1,2},{3,NULL}}', '{"a,b","q\"",NULL,""}', '{"2024-02-29 12:00:00.123456+02",infinity}', '{NaN,-Infinity,0.1,1e-320}', 'ça va', '{"it''s ok",sad}', '(7,"x ""y"", z")', '[1,10)', '["2024-01-01 00:00+00",)',
  '{[1,2),(3,)}', '10.1.2.3', '2001:db8::/32', 'ff:ff:ff:ff:ff:ff', B'101', B'1011', '92233720368547758.07', '<a>é</a>',
  'a=>"1 2", "b c"=>NULL', 'CaSe', '(1.5,-2e10)', '((0,0),(1,1),(2,0.1))', 'FFFFFFFF/FFFFFFFF', 'a:1 b:2A', 'a & (b | !c)', 'every_type', 4294967295, '$.a[*] ? (@ > 1)', 2147483647, 7, 12345678.91, '{x,NULL}');
INSERT INTO every_type (id, f4, f8, n, d, tm, ts, tz, iv) VALUES
  (1, 'NaN', 'NaN', '-Infinity', '4713-01-01 BC', '12:34:56.789012', '4713-01-01 00:00:00 BC', '4713-01-02 00:00:00 BC', '-0.000001 sec'),
  (2, 1.17549435e-38, 5e-324, 1e-16000, '5874897-12-31', '23:59:59.999999', '294246-12-31 23:59:59.999999', '294246-12-31 23:59:59.999999+00', '1 year'),
  (3, 3.4028235e38, 1.7976931348623157e308, 1e1000, '0001-12-31 BC', NULL, '0044-03-15 12:00 BC', '1969-12-31 23:59:59.999999+00', NULL),
  (4, 0.1, 0.1, 0.1, '0001-01-01', NULL, '2000-01-01', '1999-12-31 23:59:59.999999+00', NULL),
  (5, NULL, NULL, 123456789012345678901234567890.000, '10000-01-01', NULL, '10000-01-01 00:00:00.000001', NULL, NULL);
"#;

#[test]
fn every_type_arrives_with_its_extremes_and_its_own_type() {
    let (from, to) = (Server::start(), Server::start());
    from.execute(EVERY_TYPE);
    // What a database is set to must not change what its values are.
    let odd = "ALTER DATABASE postgres SET TimeZone = 'Asia/Kolkata'; ALTER DATABASE postgres SET DateStyle = 'SQL, DMY'; \
        ALTER DATABASE postgres SET IntervalStyle = 'sql_standard'; ALTER DATABASE postgres SET extra_float_digits = -15; \
        ALTER DATABASE postgres SET bytea_output = 'escape'; ALTER DATABASE postgres SET standard_conforming_strings = off";
    from.execute(odd);
    to.execute(odd);
    to.execute(
        "CREATE SCHEMA ext; CREATE EXTENSION hstore; CREATE EXTENSION citext SCHEMA ext; \
        CREATE SCHEMA \"Odd \"\"schema\"\".\"; CREATE TYPE \"Odd \"\"schema\"\".\".pair AS (a int, b text); \
        CREATE SCHEMA landing; CREATE TYPE landing.mood AS ENUM ('sad', 'it''s ok', 'ça va'); \
        CREATE DOMAIN posint AS int; CREATE DOMAIN posint2 AS posint; CREATE DOMAIN money2 AS numeric(10,2); \
        CREATE DOMAIN tags AS text[]; CREATE TABLE every_type (); \
        ALTER DATABASE postgres SET search_path = public, ext",
    );
    let mut source = source(json!({ "url": from.url() }));
    let info = stream(&mut source, "public", "every_type");
    for mode in [WriteMode::Append, WriteMode::Overwrite, WriteMode::Upsert] {
        let schema = format!("landing{}", if mode == WriteMode::Append { "" } else { "2" });
        let rows = copy(
            &mut source,
            &info,
            &mut destination(&to.url(), &schema),
            &format!("{mode:?}"),
            mode,
        );
        assert_eq!(rows, 8);
        // regclass prints by the search path, so both sides are asked with the same.
        let names: Vec<String> = info
            .schema
            .fields
            .iter()
            .map(|field| field.name.clone())
            .collect();
        for name in &names {
            let column = crate::sql::ident(name);
            let sql = |table: &str| format!("SELECT t.id, t.{column}::text FROM {table} t ORDER BY t.id");
            let cast = to.rows(&sql(&format!("{schema}.every_type")));
            assert_eq!(cast, from.rows(&sql("public.every_type")), "{name} with {mode:?}");
        }
        // json(b), float bits and padding show in the binary form only.
        for name in ["f4", "f8", "c5", "j", "jb", "n", "n102", "ts", "tz", "d"] {
            let send = match name {
                "f4" => "float4send",
                "f8" => "float8send",
                "c5" => "bpcharsend",
                "j" => "json_send",
                "jb" => "jsonb_send",
                "ts" => "timestamp_send",
                "tz" => "timestamptz_send",
                "d" => "date_send",
                _ => "numeric_send",
            };
            let sql = |table: &str| format!("SELECT {send}({name}) FROM {table} ORDER BY id");
            assert_eq!(
                to.rows(&sql(&format!("{schema}.every_type"))),
                from.rows(&sql("public.every_type")),
                "{name}"
            );
        }
    }
    let types = "SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull FROM pg_attribute a \
        JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace \
        WHERE c.relname = 'every_type' AND n.nspname = $s$SCHEMA$s$ AND a.attnum > 0 ORDER BY a.attnum";
    let expected = from.canonical_rows(&types.replace("SCHEMA", "public"));
    let mut got = to.canonical_rows(&types.replace("SCHEMA", "landing"));
    for row in &mut got {
        row[1] = row[1].as_ref().map(|name| {
            name.replace("landing.mood", "public.mood")
                .replace("ext.citext", "public.citext")
        });
    }
    assert_eq!(got, expected);
}

#[test]
fn a_type_that_the_target_does_not_have_becomes_text() {
    let server = Server::start();
    server.execute(
        "CREATE SCHEMA a; CREATE TYPE a.mood AS ENUM ('sad', 'glad'); CREATE TABLE a.t (id int PRIMARY KEY, m a.mood); \
         INSERT INTO a.t VALUES (1, 'glad'), (2, NULL)",
    );
    let other = Server::start();
    let mut source = source(json!({ "url": server.url() }));
    let info = stream(&mut source, "a", "t");
    assert_eq!(info.schema.fields[1].data_type, DataType::Text);
    assert_eq!(info.schema.fields[1].native_type.as_deref(), Some("a.mood"));
    copy(
        &mut source,
        &info,
        &mut destination(&other.url(), "b"),
        "l",
        WriteMode::Overwrite,
    );
    assert_eq!(
        other.value("SELECT pg_typeof(m)::text || m FROM b.t WHERE id = 1"),
        "textglad"
    );
}

#[test]
fn a_nan_in_a_decimal_column_is_refused_by_name_and_read_with_as_text() {
    let server = Server::start();
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, amount numeric(10,2)); INSERT INTO t VALUES (1, 'NaN')",
    );
    let mut strict = source(json!({ "url": server.url() }));
    let info = stream(&mut strict, "public", "t");
    assert_eq!(info.schema.fields[1].data_type, DataType::decimal(10, 2));
    let mut reader = strict.read(super::copy::read_request(&info)).unwrap();
    let error = reader.next(super::copy::LIMIT).unwrap_err();
    assert_eq!(error.kind(), setu_sdk::ErrorKind::Data);
    assert!(
        error.message().contains("`amount` is NaN") && error.message().contains("as_text"),
        "{error}"
    );

    let mut wide = source(json!({ "url": server.url(), "as_text": ["numeric"] }));
    let info = stream(&mut wide, "public", "t");
    copy(
        &mut wide,
        &info,
        &mut destination(&server.url(), "b"),
        "l",
        WriteMode::Append,
    );
    assert_eq!(server.value("SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = 'b.t'::regclass AND attname = 'amount'"), "numeric(10,2)");
    assert_eq!(server.value("SELECT amount FROM b.t"), "NaN");
}

#[test]
fn a_timestamp_beyond_64_bits_is_refused_by_name_and_read_with_as_text() {
    let server = Server::start();
    server.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamp); INSERT INTO t VALUES (1, '294276-12-31 23:59:59.999999')");
    let mut strict = source(json!({ "url": server.url() }));
    let info = stream(&mut strict, "public", "t");
    let mut reader = strict.read(super::copy::read_request(&info)).unwrap();
    let error = reader.next(super::copy::LIMIT).unwrap_err();
    assert_eq!(error.kind(), setu_sdk::ErrorKind::Data);
    assert!(
        error.message().contains("`at`") && error.message().contains("as_text"),
        "{error}"
    );
    let mut wide = source(json!({ "url": server.url(), "as_text": ["timestamp"] }));
    let info = stream(&mut wide, "public", "t");
    copy(
        &mut wide,
        &info,
        &mut destination(&server.url(), "b"),
        "l",
        WriteMode::Append,
    );
    assert_eq!(
        server.value("SELECT count(*) FROM b.t JOIN t USING (id, at)"),
        "1"
    );
}
