//! Positions and the tables that they belong to.

use serde_json::json;
use setu_sdk::{BatchLimit, Destination, ErrorKind, ReadRequest, Reader, Source, WriteMode};

use super::copy::{LIMIT, copy, destination, read_all, read_request, source, stream};
use super::server::Server;

const FEW: BatchLimit = BatchLimit {
    rows: 3,
    bytes: 1 << 20,
};

#[test]
fn a_position_is_refused_on_a_table_that_was_made_anew_or_emptied() {
    let server = Server::start();
    let make = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 10)";
    let partitioned = "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id); \
        CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (5); CREATE TABLE t2 PARTITION OF t DEFAULT; \
        INSERT INTO t SELECT generate_series(1, 10)";
    let again = |make: &str| format!("DROP TABLE t; {make}");
    let cases = [
        (make, "UPDATE t SET id = id", true),
        (make, "INSERT INTO t VALUES (11); ANALYZE t", true),
        (make, "ALTER TABLE t ADD v text", true),
        (
            make,
            "TRUNCATE t; INSERT INTO t SELECT generate_series(1, 10)",
            false,
        ),
        (make, &again(make), false),
        (partitioned, "INSERT INTO t VALUES (11)", true),
        (
            partitioned,
            "TRUNCATE t; INSERT INTO t SELECT generate_series(1, 10)",
            false,
        ),
        (partitioned, "TRUNCATE t1", false),
        (partitioned, "ALTER TABLE t DETACH PARTITION t2", false),
        (partitioned, &again(partitioned), false),
    ];
    for (make, change, resumes) in cases {
        server.execute("DROP TABLE IF EXISTS t, t2");
        server.execute(make);
        let mut from = source(json!({ "url": server.url() }));
        let info = stream(&mut from, "public", "t");
        let mut reader = from.read(read_request(&info)).unwrap();
        let first = reader.next(FEW).unwrap().unwrap();
        drop(reader);
        server.execute(change);
        let request = ReadRequest {
            resume_after: first.position,
            ..read_request(&info)
        };
        assert!(request.resume_after.is_some());
        let counted = from.count(&request, 100);
        match (resumes, from.read(request)) {
            (true, Ok(mut reader)) => {
                assert_eq!(
                    reader.next(LIMIT).unwrap().unwrap().batch.column(0).i32(0),
                    4,
                    "{change}"
                );
                counted.unwrap();
            }
            (false, Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{change}: {error}");
                assert!(error.message().contains("public.t"), "{error}");
                assert_eq!(counted.unwrap_err().kind(), ErrorKind::Conflict);
            }
            (_, other) => panic!("{change}: {other:?}"),
        }
    }
}

/// Two servers that were set up by the same statements may give their tables the same numbers.
#[test]
fn a_position_is_refused_on_another_server() {
    let (server, twin) = (Server::start(), Server::start());
    let mut positions = Vec::new();
    for each in [&server, &twin] {
        each.execute(
            "CREATE USER reader; CREATE TABLE t (id int PRIMARY KEY); GRANT SELECT ON t TO reader; \
             INSERT INTO t SELECT generate_series(1, 10)",
        );
        let mut from = source(json!({ "url": each.url().replace("postgres@", "reader@") }));
        let info = stream(&mut from, "public", "t");
        positions.push(read_all(&mut from, read_request(&info), FEW).remove(0).position);
    }
    for (each, position) in [&server, &twin].into_iter().zip(&positions) {
        let position = String::from_utf8_lossy(position.as_deref().unwrap_or_default()).into_owned();
        let system = each.value("SELECT system_identifier FROM pg_control_system()");
        assert!(position.contains(&system), "{position}");
    }
    let mut from = source(json!({ "url": twin.url() }));
    let info = stream(&mut from, "public", "t");
    for (position, resumes) in positions.into_iter().zip([false, true]) {
        let request = ReadRequest {
            resume_after: position,
            ..read_request(&info)
        };
        assert_eq!(from.read(request).is_ok(), resumes);
    }
}

#[test]
fn views_and_foreign_tables_give_no_position() {
    let server = Server::start();
    server.execute(&format!(
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); CREATE VIEW v AS SELECT * FROM t; \
         CREATE MATERIALIZED VIEW mv AS SELECT * FROM t; CREATE UNIQUE INDEX ON mv (id); CREATE EXTENSION postgres_fdw; \
         CREATE SERVER itself FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '127.0.0.1', port '{}', dbname 'postgres'); \
         CREATE USER MAPPING FOR postgres SERVER itself OPTIONS (user 'postgres'); \
         CREATE FOREIGN TABLE f (id int) SERVER itself OPTIONS (table_name 't')",
        server.port
    ));
    let mut from = source(json!({ "url": server.url() }));
    for name in ["v", "mv", "f"] {
        let info = stream(&mut from, "public", name);
        assert!(!info.resumable, "{name}");
        let chunks = read_all(&mut from, read_request(&info), LIMIT);
        assert_eq!((chunks.len(), chunks[0].batch.rows), (1, 1), "{name}");
        assert!(chunks[0].position.is_none(), "{name}");
        let request = ReadRequest {
            resume_after: Some(b"{}".to_vec()),
            ..read_request(&info)
        };
        assert_eq!(
            from.read(request).unwrap_err().kind(),
            ErrorKind::Conflict,
            "{name}"
        );
    }
}

/// What `docs/postgres.md` says of rows that change between two attempts.
#[test]
fn each_attempt_reads_its_own_snapshot() {
    let server = Server::start();
    server.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, 'first' FROM generate_series(1, 6) i");
    let mut from = source(json!({ "url": server.url() }));
    let info = stream(&mut from, "public", "t");
    let first = read_all(&mut from, read_request(&info), FEW).remove(0);
    server.execute(
        "INSERT INTO t VALUES (0, 'second'); DELETE FROM t WHERE id IN (1, 5); UPDATE t SET v = 'second'",
    );
    let request = ReadRequest {
        resume_after: first.position,
        ..read_request(&info)
    };
    let rest = read_all(&mut from, request, LIMIT).remove(0).batch;
    let rest: Vec<(i32, &str)> = (0..rest.rows as usize)
        .map(|row| (rest.column(0).i32s()[row], rest.column(1).str(row)))
        .collect();
    assert_eq!(rest, [(4, "second"), (6, "second")]);
}

/// Keys whose values have several spellings, and one that the server makes.
#[test]
fn odd_keys_are_read_on_and_upserted() {
    let server = Server::start();
    let keys = [
        (
            "numeric",
            "'1', '1.50', '-3', 'NaN', '12345678901234567890.123456789'",
            "1.5",
        ),
        ("numeric(6,2)", "'1', '1.5', '-3', '1000'", "1.5"),
        ("char(4)", "'a', 'b ', 'ab', ''", "b"),
        ("varchar(4)", "'a', 'a ', 'ab', ''", "a "),
        ("bytea", "'\\x00', '\\x01', '\\xff'", "\\x01"),
        ("int GENERATED BY DEFAULT AS IDENTITY", "3, 1, 2", "2"),
        ("int GENERATED ALWAYS AS IDENTITY", "3, 1, 2", "2"),
    ];
    for (at, (sql_type, values, one)) in keys.into_iter().enumerate() {
        let values: Vec<String> = values
            .split(", ")
            .map(|value| format!("({value}, 'old')"))
            .collect();
        server.execute(&format!(
            "CREATE TABLE k{at} (k {sql_type} PRIMARY KEY, v text); \
             INSERT INTO k{at} OVERRIDING SYSTEM VALUE VALUES {}",
            values.join(", ")
        ));
        let mut from = source(json!({ "url": server.url() }));
        let info = stream(&mut from, "public", &format!("k{at}"));
        assert!(info.resumable, "{sql_type}");
        let one_row = BatchLimit { rows: 1, ..FEW };
        let whole = read_all(&mut from, read_request(&info), one_row);
        assert_eq!(whole.len(), values.len(), "{sql_type}");
        for (seen, chunk) in whole.iter().enumerate() {
            let request = ReadRequest {
                resume_after: chunk.position.clone(),
                ..read_request(&info)
            };
            let rest = read_all(&mut from, request, one_row);
            assert_eq!(rest.len(), values.len() - seen - 1, "{sql_type} after {seen}");
        }
        let mut to = destination(&server.url(), "landing");
        copy(&mut from, &info, &mut to, &format!("a{at}"), WriteMode::Upsert);
        server.execute(&format!("UPDATE k{at} SET v = 'new' WHERE k = '{one}'"));
        copy(&mut from, &info, &mut to, &format!("b{at}"), WriteMode::Upsert);
        let rows = |schema: &str| server.rows(&format!("SELECT k::text, v FROM {schema}.k{at} ORDER BY k"));
        assert_eq!(rows("landing"), rows("public"), "{sql_type}");
        assert_eq!(
            server.value(&format!("SELECT count(*) FROM landing.k{at} WHERE v = 'new'")),
            "1",
            "{sql_type}"
        );
    }
}

/// A key that is computed can be read by, and is written where the target does not compute it.
#[test]
fn a_generated_key_is_read_and_written_as_a_plain_column() {
    let server = Server::start();
    server.execute(
        "CREATE TABLE t (a int NOT NULL, k int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY); \
         INSERT INTO t SELECT generate_series(1, 5); CREATE SCHEMA same; \
         CREATE TABLE same.t (a int NOT NULL, k int GENERATED ALWAYS AS (a * 2) STORED PRIMARY KEY)",
    );
    let mut from = source(json!({ "url": server.url() }));
    let info = stream(&mut from, "public", "t");
    let first = read_all(&mut from, read_request(&info), FEW).remove(0);
    let request = ReadRequest {
        resume_after: first.position,
        ..read_request(&info)
    };
    assert_eq!(read_all(&mut from, request, LIMIT)[0].batch.rows, 2);
    for mode in [WriteMode::Append, WriteMode::Upsert, WriteMode::Overwrite] {
        let mut to = destination(&server.url(), &format!("landing {mode:?}"));
        copy(&mut from, &info, &mut to, "l", mode);
        let rows = |table: &str| server.rows(&format!("SELECT a, k FROM {table} ORDER BY k"));
        assert_eq!(rows(&format!("\"landing {mode:?}\".t")), rows("t"));
        let error = destination(&server.url(), "same")
            .begin(super::copy::load("l", 1, &info, mode))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains("`k` is generated"), "{error}");
    }
}
