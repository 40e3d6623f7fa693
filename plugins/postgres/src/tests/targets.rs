//! What a load finds at its target: hung-on objects, partitions, other types, odd names, nothing at all.

use serde_json::json;
use setu_sdk::{
    Batch, BatchBuilder, DataType, Destination, ErrorKind, Field, Schema, StreamInfo, StreamName, WriteMode,
    Writer,
};

use super::copy::{destination, load, source, stream};
use super::server::Server;
use super::write::{batch, info, run_until, table};

pub(super) fn overwrite(server: &Server, id: &str) -> setu_sdk::Result<()> {
    let mut writer =
        destination(&server.url(), "public").begin(load(id, 1, &info(), WriteMode::Overwrite))?;
    writer.write(batch(&[(1, "new")]))?;
    writer.commit(1)?;
    writer.finish().map(drop)
}

#[test]
fn an_overwrite_that_would_break_references_is_refused_before_it_writes() {
    let server = Server::start();
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old'); \
         CREATE TABLE child (t int CONSTRAINT to_t REFERENCES t ON DELETE CASCADE); INSERT INTO child VALUES (1)",
    );
    let error = overwrite(&server, "a").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.message().contains("to_t") && error.message().contains("upsert"),
        "{error}"
    );
    assert_eq!(
        (table(&server), server.value("SELECT count(*) FROM child")),
        ("1old".to_owned(), "1".to_owned())
    );
}

#[test]
fn an_overwrite_takes_new_columns_where_nothing_hangs_on_the_old_table() {
    let server = Server::start();
    server.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (9)");
    overwrite(&server, "a").unwrap();
    assert_eq!(table(&server), "1new");
    assert_eq!(
        server.value("SELECT conname FROM pg_constraint WHERE conrelid = 't'::regclass"),
        "t_pkey"
    );

    server.execute("DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW seen AS SELECT id FROM t");
    let error = overwrite(&server, "b").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.message().contains("`v` is missing") && error.message().contains("seen"),
        "{error}"
    );

    server.execute("DROP TABLE t CASCADE; CREATE TABLE t (id int8, v varchar(40) NOT NULL)");
    overwrite(&server, "c").unwrap();
    let types = "SELECT string_agg(format_type(atttypid, atttypmod) || attnotnull, ' ' ORDER BY attnum) FROM pg_attribute \
        WHERE attrelid = 't'::regclass AND attnum > 0";
    assert_eq!(
        server.value(types),
        "biginttrue character varying(40)true",
        "types that fit are kept"
    );
}

#[test]
fn a_partitioned_target_is_filled_in_every_mode() {
    let server = Server::start();
    for mode in [WriteMode::Append, WriteMode::Overwrite, WriteMode::Upsert] {
        server.execute(
            "DROP TABLE IF EXISTS t, _setu_loads; CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); \
             CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (3); CREATE TABLE t2 PARTITION OF t DEFAULT",
        );
        assert_eq!(run_until(&server, 1, mode, 100), Some(5));
        assert_eq!(
            (table(&server), server.value("SELECT count(*) FROM t1")),
            ("1a 2b 3c 4d 5e".into(), "2".into())
        );
    }
}

#[test]
fn a_table_of_other_types_is_filled_without_loss_or_refused_by_column() {
    let server = Server::start();
    let schema = Schema::new([
        Field::new("n", DataType::Int64),
        Field::new("s", DataType::Text),
        Field::new("ts", DataType::Timestamp),
    ]);
    let info = StreamInfo::new(StreamName::new("public", "w"), "file", schema);
    let rows = |n: i64, s: &str, ts: i64| {
        let mut builder = BatchBuilder::new(&info.schema);
        builder.column(0).push_i64(n);
        builder.column(1).push_str(s);
        builder.column(2).push_i64(ts);
        builder.finish()
    };
    let write = |id: &str, batch: Batch| -> setu_sdk::Result<()> {
        let mut writer = destination(&server.url(), "public").begin(load(id, 1, &info, WriteMode::Append))?;
        writer.write(batch)?;
        writer.commit(1)
    };
    server.execute("CREATE TABLE w (n int2, s numeric(6,2), ts timestamp(3), more text)");
    write("a", rows(7, "12.5", 1_000_000)).unwrap();
    assert_eq!(
        server.value("SELECT n || ' ' || s || ' ' || ts FROM w"),
        "7 12.50 1970-01-01 00:00:01"
    );
    let cases = [
        ("b", rows(40_000, "1", 0), "`n`"),
        ("c", rows(1, "twelve", 0), "twelve"),
        ("d", rows(1, "123456", 0), "overflow"),
        ("e", rows(1, "1", 1), "`ts`"),
        ("r", rows(1, "1.005", 0), "`s`"),
    ];
    for (id, batch, part) in cases {
        let error = write(id, batch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        assert!(error.message().contains(part), "{error}");
    }
    // The cast to this type cuts off without a word.
    server.execute("ALTER TABLE w ALTER s TYPE \"char\" USING 'x'");
    write("k", rows(1, "y", 0)).unwrap();
    assert!(
        write("m", rows(1, "yes", 0))
            .unwrap_err()
            .message()
            .contains("`s`")
    );
    server.execute("DELETE FROM w WHERE s = 'y'; ALTER TABLE w ALTER s TYPE varchar(5)");
    assert_eq!(
        write("f", rows(1, "sixteen", 0)).unwrap_err().code(),
        Some("22001")
    );
    let error = write("g", rows(1, "a\0b", 0)).unwrap_err();
    assert!(
        error.message().contains("`s`") && error.message().contains("NUL"),
        "{error}"
    );
    assert_eq!(server.value("SELECT count(*) FROM w"), "1");

    server.execute("ALTER TABLE w ALTER n TYPE real, DROP ts, ADD required int NOT NULL DEFAULT 0; ALTER TABLE w ALTER required DROP DEFAULT");
    let error = write("h", rows(1, "1", 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    for part in [
        "public.w",
        "`n` is real",
        "`ts` is missing",
        "`required` is NOT NULL",
    ] {
        assert!(error.message().contains(part), "{part}: {error}");
    }
}

#[test]
fn any_name_and_any_width_is_created() {
    let server = Server::start();
    let name = "T \"x\".ü'; DROP TABLE t; --";
    let mut fields: Vec<Field> = (0..1598)
        .map(|at| Field::new(format!("c {at}\""), DataType::Int16))
        .collect();
    fields.push(Field::new("ctid2", DataType::Text).not_null());
    fields.push(Field::new("SELECT", DataType::Text));
    let schema = Schema::new(fields).with_primary_key(["ctid2"]);
    let info = StreamInfo::new(StreamName::new("My \"schema\"", name), "table", schema);
    let config = json!({ "url": server.url() });
    let mut to = crate::PostgresDestination::open(serde_json::from_value(config).unwrap()).unwrap();
    for (id, mode) in [
        ("a", WriteMode::Append),
        ("o", WriteMode::Overwrite),
        ("u", WriteMode::Upsert),
    ] {
        let mut builder = BatchBuilder::new(&info.schema);
        for (at, column) in builder.columns().iter_mut().enumerate() {
            if at == 1598 {
                column.push_str(id);
            } else {
                column.push_null();
            }
        }
        let batch = builder.finish();
        let mut writer = to.begin(load(id, 1, &info, mode)).unwrap();
        writer.write(batch).unwrap();
        writer.commit(1).unwrap();
        writer.finish().unwrap();
    }
    let mut back = source(json!({ "url": server.url() }));
    let found = stream(&mut back, "My \"schema\"", name);
    assert_eq!(found.schema, info.schema);
    let ids = format!(
        "SELECT string_agg(ctid2, ' ' ORDER BY 1) FROM \"My \"\"schema\"\"\".{}",
        crate::sql::ident(name)
    );
    assert_eq!(server.value(&ids), "o u");

    let mut long = info.clone();
    long.name.name = "ü".repeat(32);
    let error = to.begin(load("long", 1, &long, WriteMode::Append)).unwrap_err();
    assert!(error.message().contains("64 bytes"), "{error}");
}

/// Names of 63 bytes, which leave no room for what is usually put behind them.
#[test]
fn names_as_long_as_they_can_be_are_kept_whole() {
    let server = Server::start();
    let long = |start: &str| format!("{start}{}", "ü".repeat((63 - start.len()) / 2));
    let (schema, name, key) = (long("S\"'"), long("T\\\""), long("k\"\""));
    let fields = [Field::new(&*key, DataType::Int32).not_null()];
    let schema_of_stream = Schema::new(fields).with_primary_key([&*key]);
    let info = StreamInfo::new(StreamName::new(&*schema, &*name), "table", schema_of_stream);
    let mut to = destination(&server.url(), &schema);
    for (at, mode) in [
        WriteMode::Overwrite,
        WriteMode::Overwrite,
        WriteMode::Upsert,
        WriteMode::Append,
    ]
    .into_iter()
    .enumerate()
    {
        let mut builder = BatchBuilder::new(&info.schema);
        builder.column(0).push_i32(at as i32);
        let mut writer = to.begin(load(&at.to_string(), 1, &info, mode)).unwrap();
        writer.write(builder.finish()).unwrap();
        writer.commit(1).unwrap();
        writer.finish().unwrap();
    }
    let mut back = source(json!({ "url": server.url() }));
    assert_eq!(stream(&mut back, &schema, &name).schema, info.schema);
    let sql = format!(
        "SELECT string_agg({}::text, ' ' ORDER BY 1) FROM {}",
        crate::sql::ident(&key),
        crate::sql::Table::new(&*schema, &*name).sql()
    );
    assert_eq!(server.value(&sql), "1 2 3");
    // The key is named as Postgres names it.
    let keys = server.value(
        "SELECT string_agg(conname, ' ') FROM pg_constraint WHERE conrelid <> 0 AND conname LIKE 'T%'",
    );
    assert_eq!(keys, format!("{}_pkey", &name[..57]));
    assert_eq!(super::write::leftovers(&server), 0);
}

#[test]
fn rows_without_columns_are_counted_in_every_mode() {
    let server = Server::start();
    server.execute("CREATE TABLE bare (); INSERT INTO bare SELECT FROM generate_series(1, 3)");
    let mut from = source(json!({ "url": server.url() }));
    let info = stream(&mut from, "public", "bare");
    server.execute(
        "CREATE SCHEMA filled; CREATE TABLE filled.bare (a int DEFAULT 7, b text); \
         CREATE SCHEMA keyed; CREATE TABLE keyed.bare (a serial PRIMARY KEY)",
    );
    for schema in ["new", "filled", "keyed"] {
        for (mode, rows) in [
            (WriteMode::Append, "3"),
            (WriteMode::Append, "6"),
            (WriteMode::Overwrite, "3"),
        ] {
            let mut to = destination(&server.url(), schema);
            let id = format!("{schema}{rows}{mode:?}");
            super::copy::copy(&mut from, &info, &mut to, &id, mode);
            assert_eq!(
                server.value(&format!("SELECT count(*) FROM {schema}.bare")),
                rows,
                "{id}"
            );
        }
    }
    assert_eq!(
        server.value("SELECT string_agg(a::text, ' ') FROM filled.bare"),
        "7 7 7"
    );
}

#[test]
fn a_load_of_no_rows_empties_an_overwritten_table_and_creates_a_missing_one() {
    let server = Server::start();
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (9, 'old')");
    let mut to = destination(&server.url(), "public");
    for (id, name, mode) in [
        ("a", "t", WriteMode::Overwrite),
        ("b", "u", WriteMode::Append),
        ("c", "w", WriteMode::Overwrite),
    ] {
        let mut info = info();
        info.name.name = name.to_owned();
        let mut writer = to.begin(load(id, 1, &info, mode)).unwrap();
        writer.commit(1).unwrap();
        assert_eq!(writer.finish().unwrap().rows_written, 0);
        assert_eq!(server.value(&format!("SELECT count(*) FROM {name}")), "0");
    }
}
