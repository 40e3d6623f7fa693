//! Loads in every mode, cut off between any two calls, taken over, and published beside what hangs on the target.

use serde_json::json;
use setu_sdk::{
    Batch, BatchBuilder, DataType, Destination, ErrorKind, Field, Reader, Schema, Source, StreamInfo,
    StreamName, WriteMode, Writer,
};

use super::copy::{destination, load, source, stream};
use super::server::Server;

/// `t(id, v)` with a key.
fn info() -> StreamInfo {
    let fields = [
        Field::new("id", DataType::Int32).not_null(),
        Field::new("v", DataType::Text),
    ];
    StreamInfo::new(
        StreamName::new("public", "t"),
        "table",
        Schema::new(fields).with_primary_key(["id"]),
    )
}

fn batch(rows: &[(i32, &str)]) -> Batch {
    let mut builder = BatchBuilder::new(&info().schema);
    for (id, v) in rows {
        builder.column(0).push_i32(*id);
        builder.column(1).push_str(v);
    }
    builder.finish()
}

fn parts() -> Vec<Batch> {
    vec![
        batch(&[(1, "a"), (2, "b")]),
        batch(&[(3, "c")]),
        batch(&[(4, "d"), (5, "e")]),
    ]
}

fn table(server: &Server) -> String {
    server.value("SELECT coalesce(string_agg(id || v, ' ' ORDER BY id, v), '') FROM t")
}

/// What kills a writer: after how many calls it stops being called.
fn run_until(server: &Server, attempt: u64, mode: WriteMode, calls: usize) -> Option<u64> {
    let mut left = calls;
    let mut step = move || {
        left = left.checked_sub(1)?;
        Some(())
    };
    step()?;
    let mut writer = destination(&server.url(), "public")
        .begin(load("l", attempt, &info(), mode))
        .unwrap();
    let done = writer.committed() as usize;
    for (at, part) in parts().into_iter().enumerate().skip(done) {
        step()?;
        writer.write(part).unwrap();
        step()?;
        writer.commit(at as u64 + 1).unwrap();
    }
    step()?;
    Some(writer.finish().unwrap().rows_written)
}

#[test]
fn a_load_that_dies_between_any_two_calls_ends_as_if_nothing_had_happened() {
    let server = Server::start();
    for mode in [WriteMode::Append, WriteMode::Overwrite, WriteMode::Upsert] {
        for calls in 0..9 {
            server.execute(
                "DROP TABLE IF EXISTS t, _setu_loads; CREATE TABLE t (id int PRIMARY KEY, v text); \
                 INSERT INTO t VALUES (0, 'old')",
            );
            let first = run_until(&server, 1, mode, calls);
            assert_eq!(first.is_some(), calls == 8);
            if mode == WriteMode::Overwrite && calls < 8 {
                assert_eq!(table(&server), "0old", "{calls} calls into an overwrite");
            }
            assert_eq!(
                run_until(&server, 2, mode, 100),
                Some(5),
                "{mode:?} after {calls} calls"
            );
            let expected = if mode == WriteMode::Overwrite {
                "1a 2b 3c 4d 5e"
            } else {
                "0old 1a 2b 3c 4d 5e"
            };
            assert_eq!(table(&server), expected, "{mode:?} after {calls} calls");
            // Finished is finished, for later attempts as well.
            assert_eq!(run_until(&server, 3, mode, 100), Some(5));
            assert_eq!(table(&server), expected);
            assert_eq!(leftovers(&server), 0);
        }
    }
}

fn leftovers(server: &Server) -> u32 {
    server
        .value("SELECT count(*) FROM pg_class WHERE relname LIKE '\\_setu\\_new%'")
        .parse()
        .unwrap()
}

#[test]
fn an_earlier_attempt_stops_at_its_next_commit() {
    let server = Server::start();
    for mode in [WriteMode::Append, WriteMode::Overwrite, WriteMode::Upsert] {
        server.execute("DROP TABLE IF EXISTS t, _setu_loads");
        let mut to = destination(&server.url(), "public");
        let mut zombie = to.begin(load("l", 1, &info(), mode)).unwrap();
        zombie.write(batch(&[(1, "zombie")])).unwrap();
        let mut next = to.begin(load("l", 2, &info(), mode)).unwrap();
        let error = zombie.commit(1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{mode:?}: {error}");
        assert!(error.message().contains("later attempt"), "{error}");
        for (at, part) in parts().into_iter().enumerate() {
            next.write(part).unwrap();
            next.commit(at as u64 + 1).unwrap();
        }
        next.finish().unwrap();
        assert_eq!(table(&server), "1a 2b 3c 4d 5e", "{mode:?}");
        let error = to.begin(load("l", 1, &info(), mode)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert!(error.message().contains("later attempt"), "{error}");
    }
}

/// Where the earlier session may not be ended (here: another user's), its commit is refused by its attempt alone.
#[test]
fn an_earlier_attempt_that_still_lives_is_fenced_by_its_number() {
    let server = Server::start();
    server.execute("CREATE USER other SUPERUSER");
    let mut zombie = destination(&server.url(), "public")
        .begin(load("l", 1, &info(), WriteMode::Append))
        .unwrap();
    let other = server.url().replace("postgres@", "other@");
    let mut next = destination(&other, "public")
        .begin(load("l", 2, &info(), WriteMode::Append))
        .unwrap();
    zombie.write(batch(&[(1, "zombie")])).unwrap();
    let error = zombie.commit(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.message().contains("later attempt"), "{error}");
    drop(zombie);
    next.write(batch(&[(1, "next")])).unwrap();
    next.commit(1).unwrap();
    assert_eq!(table(&server), "1next");
}

#[test]
fn the_shadow_of_another_load_is_never_swapped_in() {
    let server = Server::start();
    let mut to = destination(&server.url(), "public");
    let mut first = to.begin(load("first", 1, &info(), WriteMode::Overwrite)).unwrap();
    first.write(batch(&[(1, "first")])).unwrap();
    first.commit(1).unwrap();
    let mut second = to
        .begin(load("second", 1, &info(), WriteMode::Overwrite))
        .unwrap();
    assert_eq!(second.committed(), 0);
    let error = first.write(batch(&[(2, "first")])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    second.write(batch(&[(3, "second")])).unwrap();
    second.commit(1).unwrap();
    second.finish().unwrap();
    assert_eq!(table(&server), "3second");
    // The first one comes again: its shadow is gone, so it starts over.
    let mut first = to.begin(load("first", 2, &info(), WriteMode::Overwrite)).unwrap();
    assert_eq!(first.committed(), 0);
    first.finish().unwrap();
    assert_eq!((table(&server), leftovers(&server)), (String::new(), 0));
}

#[test]
fn of_rows_with_one_key_the_last_one_stays() {
    let server = Server::start();
    server.execute("CREATE TABLE t (v text, id int, kept text DEFAULT 'mine', UNIQUE (id)); INSERT INTO t VALUES ('x', 1)");
    let mut writer = destination(&server.url(), "public")
        .begin(load("l", 1, &info(), WriteMode::Upsert))
        .unwrap();
    writer.write(batch(&[(1, "a"), (2, "b"), (1, "c")])).unwrap();
    writer.write(batch(&[(2, "d"), (3, "e")])).unwrap();
    writer.commit(1).unwrap();
    writer.write(batch(&[(3, "f")])).unwrap();
    writer.commit(2).unwrap();
    assert_eq!(writer.finish().unwrap().rows_written, 6);
    assert_eq!(table(&server), "1c 2d 3f");
    assert_eq!(
        server.value("SELECT string_agg(DISTINCT kept, ',') FROM t"),
        "mine"
    );
}

#[test]
fn an_upsert_without_a_way_to_tell_rows_apart_is_refused() {
    let server = Server::start();
    let mut to = destination(&server.url(), "public");
    let mut keyless = info();
    keyless.schema.primary_key.clear();
    let error = to.begin(load("a", 1, &keyless, WriteMode::Upsert)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(
        error.message().contains("public.t has no primary key") || error.message().contains("primary key"),
        "{error}"
    );
    assert_eq!(server.value("SELECT to_regclass('public.t')"), "null");
    server.execute("CREATE TABLE t (id int, v text); CREATE UNIQUE INDEX partial ON t (id) WHERE id > 0; CREATE UNIQUE INDEX more ON t (id, v)");
    let error = to.begin(load("b", 1, &info(), WriteMode::Upsert)).unwrap_err();
    assert!(
        error
            .message()
            .contains("CREATE UNIQUE INDEX ON \"public\".\"t\" (\"id\")"),
        "{error}"
    );
}

fn overwrite(server: &Server, id: &str) -> setu_sdk::Result<()> {
    let mut writer =
        destination(&server.url(), "public").begin(load(id, 1, &info(), WriteMode::Overwrite))?;
    writer.write(batch(&[(1, "new")]))?;
    writer.commit(1)?;
    writer.finish().map(drop)
}

#[test]
fn what_hangs_on_the_target_survives_an_overwrite() {
    let server = Server::start();
    let cases = [
        ("CREATE VIEW seen AS SELECT v FROM t", "SELECT v FROM seen"),
        (
            "GRANT SELECT ON t TO PUBLIC",
            "SELECT 'new' WHERE has_table_privilege('pg_monitor', 't', 'SELECT')",
        ),
        (
            "COMMENT ON COLUMN t.v IS 'new'",
            "SELECT col_description('t'::regclass, 2)",
        ),
        (
            "CREATE INDEX by_v ON t (v)",
            "SELECT 'new' WHERE to_regclass('by_v') IS NOT NULL",
        ),
        (
            "ALTER TABLE t ADD extra text NOT NULL DEFAULT 'new'",
            "SELECT extra FROM t",
        ),
        (
            "ALTER TABLE t ADD n int GENERATED ALWAYS AS IDENTITY",
            "SELECT 'new' FROM t WHERE n > 0",
        ),
        (
            "ALTER TABLE t ADD w text GENERATED ALWAYS AS (v) STORED",
            "SELECT w FROM t",
        ),
        (
            "CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other VALUES (1); ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES other NOT VALID",
            "SELECT 'new' FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'f'",
        ),
        (
            "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
            "SELECT 'new' FROM pg_trigger WHERE tgname = 'g'",
        ),
        (
            "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (true)",
            "SELECT 'new' FROM pg_policy",
        ),
        (
            "ALTER TABLE t ADD CHECK (id > -5)",
            "SELECT 'new' FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'c'",
        ),
        (
            "CREATE PUBLICATION p FOR TABLE t",
            "SELECT 'new' FROM pg_publication_tables",
        ),
        (
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "SELECT 'new' FROM pg_class WHERE oid = 't'::regclass AND relreplident = 'f'",
        ),
        (
            "ALTER TABLE t SET (fillfactor = 50)",
            "SELECT 'new' FROM pg_class WHERE oid = 't'::regclass AND reloptions IS NOT NULL",
        ),
        (
            "CREATE USER keeper; ALTER TABLE t OWNER TO keeper",
            "SELECT 'new' FROM pg_class WHERE oid = 't'::regclass AND relowner = 'keeper'::regrole",
        ),
        (
            "CREATE STATISTICS st ON id, v FROM t",
            "SELECT 'new' FROM pg_statistic_ext",
        ),
        (
            "ALTER TABLE t RENAME CONSTRAINT t_pkey TO my_key",
            "SELECT 'new' FROM pg_constraint WHERE conname = 'my_key' AND conrelid = 't'::regclass",
        ),
    ];
    for (at, (hang, look)) in cases.into_iter().enumerate() {
        server.execute(
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE TABLE t (id int PRIMARY KEY, v text); \
             INSERT INTO t VALUES (9, 'old')",
        );
        server.execute(hang);
        overwrite(&server, &at.to_string()).unwrap_or_else(|error| panic!("{hang}: {error}"));
        assert_eq!(table(&server), "1new", "{hang}");
        let seen: Vec<String> = server.rows(look).into_iter().flatten().flatten().collect();
        assert_eq!(seen, ["new"], "{hang}");
        assert_eq!(leftovers(&server), 0, "{hang}");
        server.execute("DROP PUBLICATION IF EXISTS p");
    }
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
    ];
    for (id, batch, part) in cases {
        let error = write(id, batch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        assert!(error.message().contains(part), "{error}");
    }
    server.execute("ALTER TABLE w ALTER s TYPE varchar(5)");
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
    let mut fields: Vec<Field> = (0..1590)
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
        builder.columns().iter_mut().for_each(|column| column.push_null());
        let mut batch = builder.finish();
        batch.columns[1590] = {
            let mut text = setu_sdk::ColumnBuilder::new(DataType::Text);
            text.push_str(id);
            let mut one = BatchBuilder::new(&Schema::new([Field::new("x", DataType::Text)]));
            one.column(0).push_str(id);
            one.finish().columns.remove(0)
        };
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

#[test]
fn a_session_that_the_server_ends_is_a_failure_that_may_be_tried_again() {
    let server = Server::start();
    server.execute(
        "CREATE TABLE big AS SELECT i AS id, repeat('x', 1000) AS v FROM generate_series(1, 50000) i",
    );
    let end_sessions = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'setu%' \
                        AND pid <> pg_backend_pid()";
    let mut from = source(json!({ "url": server.url() }));
    let big = stream(&mut from, "public", "big");
    let mut reader = from.read(super::copy::read_request(&big)).unwrap();
    reader.next(super::copy::LIMIT).unwrap();
    let mut writer = destination(&server.url(), "public")
        .begin(load("l", 1, &info(), WriteMode::Append))
        .unwrap();
    writer.write(batch(&[(1, "a")])).unwrap();
    server.execute(end_sessions);
    let read_error = loop {
        match reader.next(super::copy::LIMIT) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a read that was cut off came to its end"),
            Err(error) => break error,
        }
    };
    let write_error = writer.commit(1).unwrap_err();
    for error in [read_error, write_error] {
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.is_retryable(), "{error}");
    }
    assert_eq!(run_until(&server, 2, WriteMode::Append, 100), Some(5));
    assert_eq!(table(&server), "1a 2b 3c 4d 5e");
}
