//! Discovery, and reads that are cut off and resumed, projected, counted and windowed.

use serde_json::json;
use setu_sdk::{
    Batch, BatchLimit, Chunk, CursorWindow, DataType, ErrorKind, ReadRequest, Reader, Source, StreamInfo,
};

use super::copy::{LIMIT, read_all, read_request, source, stream};
use super::server::Server;
use crate::PostgresSource;

#[test]
fn everything_that_can_be_read_is_discovered_once() {
    let server = Server::start();
    server.execute(
        "CREATE SCHEMA \"a.b\"; \
         CREATE TABLE \"a.b\".\"Odd \"\"name\"\". ü\" (\"k 2\" text, \"K\"\"1\" int, v int, PRIMARY KEY (\"K\"\"1\", \"k 2\")); \
         CREATE TABLE parts (id int, day date, PRIMARY KEY (day, id)) PARTITION BY RANGE (day); \
         CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2024-01-01') TO ('2025-01-01'); \
         CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (extra text) INHERITS (parent); \
         CREATE VIEW v AS SELECT 1 AS one, NULL::text AS t; CREATE MATERIALIZED VIEW mv AS SELECT 2 AS two; \
         CREATE TABLE empty (); CREATE TABLE floats (f float8 PRIMARY KEY); CREATE TABLE _setu_loads (x int); \
         INSERT INTO parts SELECT i, '2024-06-01' FROM generate_series(1, 500) i; \
         INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2, 'x'); ANALYZE",
    );
    let mut source = source(json!({ "url": server.url() }));
    let streams = source.discover().unwrap();
    let facts: Vec<(String, &str, Vec<&str>, bool)> = streams
        .iter()
        .map(|stream| {
            let key = stream.schema.primary_key.iter().map(String::as_str).collect();
            (
                stream.name.to_string(),
                stream.kind.as_str(),
                key,
                stream.resumable,
            )
        })
        .collect();
    let expected = [
        (
            "\"a.b\".\"Odd \"\"name\"\". ü\"",
            "table",
            vec!["K\"1", "k 2"],
            true,
        ),
        ("public.child", "table", vec![], false),
        ("public.empty", "table", vec![], false),
        ("public.floats", "table", vec!["f"], false),
        ("public.mv", "materialized view", vec![], false),
        ("public.parent", "table", vec!["id"], true),
        ("public.parts", "partitioned table", vec!["day", "id"], true),
        ("public.v", "view", vec![], false),
    ];
    assert_eq!(
        facts,
        expected.map(|(name, kind, key, resumable)| (name.to_owned(), kind, key, resumable))
    );
    let parts = &streams[6];
    assert_eq!(parts.estimated_rows, Some(500));
    assert_eq!(parts.cursors, ["id", "day"]);
    // The rows of a child are its own stream's.
    assert_eq!(rows_of(&mut source, &streams[5]), 1);
    assert_eq!(rows_of(&mut source, &streams[6]), 500);

    let mut some = super::copy::source(json!({ "url": server.url(), "schemas": ["a.b"] }));
    assert_eq!(some.discover().unwrap().len(), 1);
}

fn rows_of(source: &mut PostgresSource, info: &StreamInfo) -> u64 {
    read_all(source, read_request(info), LIMIT)
        .iter()
        .map(|chunk| u64::from(chunk.batch.rows))
        .sum()
}

#[test]
fn tables_without_columns_and_with_1600_are_read() {
    let server = Server::start();
    let columns: Vec<String> = (0..1600).map(|at| format!("c{at} int2")).collect();
    server.execute(&format!("CREATE TABLE wide ({})", columns.join(", ")));
    server.execute("INSERT INTO wide (c0, c1599) VALUES (1, 2), (3, 4)");
    server.execute("CREATE TABLE none (); INSERT INTO none DEFAULT VALUES; INSERT INTO none DEFAULT VALUES");
    let mut source = source(json!({ "url": server.url() }));
    let wide = stream(&mut source, "public", "wide");
    let chunks = read_all(&mut source, read_request(&wide), LIMIT);
    assert_eq!((chunks[0].batch.rows, chunks[0].batch.columns.len()), (2, 1600));
    assert_eq!(chunks[0].batch.column(1599).i16(1), 4);
    let none = stream(&mut source, "public", "none");
    assert_eq!(rows_of(&mut source, &none), 2);
}

#[test]
fn a_user_sees_only_what_may_be_read() {
    let server = Server::start();
    server.execute(
        "CREATE TABLE open (id int); CREATE TABLE closed (id int); CREATE TABLE half (id int PRIMARY KEY, secret text); \
         INSERT INTO half VALUES (1, 'x'); CREATE USER reader; GRANT SELECT ON open TO reader; \
         GRANT SELECT (id) ON half TO reader",
    );
    let mut source = source(json!({ "url": server.url().replace("postgres@", "reader@") }));
    let streams = source.discover().unwrap();
    let names: Vec<String> = streams.iter().map(|stream| stream.name.to_string()).collect();
    assert_eq!(names, ["public.half", "public.open"]);
    assert_eq!(streams[0].schema.fields.len(), 1);
    assert_eq!(rows_of(&mut source, &streams[0]), 1);
}

/// Keys that are hard to compare: several columns, text, an enum, dates before Christ, infinities.
const KEYED: &str = "CREATE TYPE mood AS ENUM ('zebra', 'ant'); \
    CREATE TABLE keyed (m mood, t varchar(20), d date, z timestamptz, n numeric, u uuid, b bytea, f bool, v int, \
      PRIMARY KEY (m, t, d, z, n, u, b, f)); \
    INSERT INTO keyed SELECT (ARRAY['zebra', 'ant'])[1 + i % 2]::mood, (ARRAY['', 'a', 'B', 'é', 'it''s \\x'])[1 + i % 5], \
      (ARRAY['-infinity', '0044-03-15 BC', '2024-02-29', 'infinity'])[1 + i % 4]::date, \
      (ARRAY['-infinity', '4713-02-01 00:00 BC', '2024-02-29 01:02:03.000004', 'infinity'])[1 + i / 4 % 4]::timestamptz, \
      (ARRAY['-Infinity', '-1.50', '1e30', 'NaN'])[1 + i / 16 % 4]::numeric, \
      md5((i / 64)::text)::uuid, decode(md5((i / 128)::text), 'hex'), i / 3 % 2 = 0, i FROM generate_series(0, 999) i \
    ON CONFLICT DO NOTHING";

#[test]
fn a_read_that_is_cut_off_anywhere_goes_on_as_if_nothing_had_happened() {
    let server = Server::start();
    server.execute(KEYED);
    let mut source = source(json!({ "url": server.url() }));
    let info = stream(&mut source, "public", "keyed");
    assert!(info.resumable);
    // Without the key's own columns: positions need them all the same.
    let request = ReadRequest {
        columns: Some(vec!["v".to_owned()]),
        ..read_request(&info)
    };
    let values = |chunks: &[Chunk]| -> Vec<i32> {
        chunks
            .iter()
            .flat_map(|chunk| chunk.batch.column(0).i32s().to_vec())
            .collect()
    };
    let limit = BatchLimit {
        rows: 7,
        bytes: 1 << 20,
    };
    let whole = read_all(&mut source, request.clone(), limit);
    let all = values(&whole);
    assert_eq!(all.len().to_string(), server.value("SELECT count(*) FROM keyed"));
    assert!(all.len() > 300, "{}", all.len());
    let mut seen = 0;
    for (at, chunk) in whole.iter().enumerate() {
        seen += chunk.batch.rows as usize;
        let resumed = ReadRequest {
            resume_after: chunk.position.clone(),
            ..request.clone()
        };
        assert!(resumed.resume_after.is_some(), "chunk {at} has no position");
        let rest = values(&read_all(
            &mut source,
            resumed,
            BatchLimit { rows: 1000, ..limit },
        ));
        assert_eq!(rest, all[seen..], "after chunk {at}");
    }
    let foreign = ReadRequest {
        resume_after: Some(b"{}".to_vec()),
        ..request
    };
    assert_eq!(source.read(foreign).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn batches_keep_to_their_limits_in_rows_and_bytes() {
    let server = Server::start();
    server.execute(
        "CREATE TABLE t AS SELECT i AS id, repeat('x', (i % 7) * 10000) AS t FROM generate_series(1, 1000) i; \
         INSERT INTO t VALUES (0, repeat('y', 3000000))",
    );
    let mut source = source(json!({ "url": server.url() }));
    let info = stream(&mut source, "public", "t");
    let limit = BatchLimit {
        rows: 300,
        bytes: 500_000,
    };
    let chunks = read_all(&mut source, read_request(&info), limit);
    let size = |batch: &Batch| {
        (0..batch.rows as usize)
            .map(|row| batch.column(1).bytes(row).len())
            .sum::<usize>()
    };
    for chunk in &chunks {
        assert!(chunk.batch.rows <= 300);
        // One row may go beyond, however wide it is.
        assert!(
            size(&chunk.batch) < 500_000 + 60_000 || chunk.batch.rows == 1 || size(&chunk.batch) > 3_000_000
        );
    }
    assert!(chunks.len() >= 50, "{}", chunks.len());
    assert_eq!(chunks.iter().map(|chunk| chunk.batch.rows).sum::<u32>(), 1001);
    let sum: usize = chunks.iter().map(|chunk| size(&chunk.batch)).sum();
    assert_eq!(sum.to_string(), server.value("SELECT sum(length(t)) FROM t"));
}

fn windowed(info: &StreamInfo, field: &str, since: Option<&str>, since_inclusive: bool) -> ReadRequest {
    let cursor = CursorWindow {
        field: field.to_owned(),
        since: since.map(str::to_owned),
        since_inclusive,
    };
    ReadRequest {
        cursor: Some(cursor),
        ..read_request(info)
    }
}

/// The ids that a windowed read returns, and its upper bound.
fn ids(source: &mut PostgresSource, request: ReadRequest) -> (Vec<i32>, Option<String>) {
    let mut reader = source.read(request).unwrap();
    let mut ids = Vec::new();
    while let Some(chunk) = reader.next(LIMIT).unwrap() {
        ids.extend_from_slice(chunk.batch.column(0).i32s());
    }
    (ids, reader.high_water_mark())
}

#[test]
fn a_window_holds_the_rows_after_the_last_one_up_to_the_largest_of_its_snapshot() {
    let server = Server::start();
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, at timestamptz, n numeric, d date, s text); INSERT INTO t VALUES \
         (1, '2024-01-01 12:00:00+02', 1.5, '0044-03-15 BC', 'a'), (2, '2024-01-01 10:00:00.5+00', 2, '2024-01-01', 'b'), \
         (3, '2024-01-01 10:00:00.5+00', 10, '2024-01-02', 'b'), (4, NULL, NULL, NULL, NULL)",
    );
    let mut source = source(json!({ "url": server.url() }));
    let info = stream(&mut source, "public", "t");
    assert_eq!(info.cursors, ["id", "at", "n", "d", "s"]);
    let half_past = Some("2024-01-01T10:00:00.500000Z");
    type Case<'a> = (&'a str, Option<&'a str>, bool, &'a [i32], Option<&'a str>);
    let cases: [Case<'_>; 12] = [
        ("at", None, true, &[1, 2, 3, 4], half_past),
        (
            "at",
            Some("2024-01-01T10:00:00.000000Z"),
            false,
            &[2, 3],
            half_past,
        ),
        ("at", half_past, true, &[2, 3], half_past),
        ("at", half_past, false, &[], None),
        ("n", None, false, &[1, 2, 3, 4], Some("10")),
        ("n", Some("1.5"), false, &[2, 3], Some("10")),
        ("n", Some("2"), true, &[2, 3], Some("10")),
        ("d", None, false, &[1, 2, 3, 4], Some("2024-01-02")),
        ("d", Some("-0043-03-15"), false, &[2, 3], Some("2024-01-02")),
        ("d", Some("-0043-03-15"), true, &[1, 2, 3], Some("2024-01-02")),
        ("s", Some("a"), false, &[2, 3], Some("b")),
        ("id", Some("4"), false, &[], None),
    ];
    for (field, since, inclusive, expected, until) in cases {
        let request = windowed(&info, field, since, inclusive);
        let count = source.count(&request, 1000).unwrap();
        assert_eq!(
            count,
            Some(expected.len() as u64),
            "count of {field} since {since:?}"
        );
        let got = ids(&mut source, request);
        assert_eq!(
            got,
            (expected.to_vec(), until.map(str::to_owned)),
            "{field} since {since:?} ({inclusive})"
        );
    }
    assert_eq!(source.count(&read_request(&info), 2).unwrap(), Some(2));
    let error = source.read(windowed(&info, "absent", None, false)).unwrap_err();
    assert!(error.message().contains("`absent`"), "{error}");
}

#[test]
fn a_resumed_window_keeps_the_upper_bound_of_its_first_attempt() {
    let server = Server::start();
    server.execute("CREATE TABLE t (id int PRIMARY KEY, rev int); INSERT INTO t SELECT i, i FROM generate_series(1, 10) i");
    let mut source = source(json!({ "url": server.url() }));
    let info = stream(&mut source, "public", "t");
    let request = windowed(&info, "rev", Some("2"), false);
    let mut reader = source.read(request.clone()).unwrap();
    let first = reader
        .next(BatchLimit {
            rows: 3,
            bytes: 1 << 20,
        })
        .unwrap()
        .unwrap();
    // Both come later than the snapshot.
    server.execute("INSERT INTO t VALUES (11, 11); UPDATE t SET rev = 12 WHERE id = 9");
    let mut own_rest = Vec::new();
    while let Some(chunk) = reader.next(LIMIT).unwrap() {
        own_rest.extend_from_slice(chunk.batch.column(0).i32s());
    }
    assert_eq!(own_rest, [6, 7, 8, 9, 10], "one snapshot");
    let resumed = ReadRequest {
        resume_after: first.position,
        ..request
    };
    // Row 9 lies in the next window now.
    assert_eq!(
        ids(&mut source, resumed),
        (vec![6, 7, 8, 10], Some("10".to_owned()))
    );
}

#[test]
fn a_type_of_the_source_is_told_in_its_own_words() {
    let server = Server::start();
    server.execute("CREATE TABLE t (a int4[], b varchar(3), c timestamp(3), d numeric(7,2), e text)");
    let mut source = source(json!({ "url": server.url() }));
    let info = stream(&mut source, "public", "t");
    let facts: Vec<(DataType, Option<&str>)> = info
        .schema
        .fields
        .iter()
        .map(|field| (field.data_type, field.native_type.as_deref()))
        .collect();
    let expected = [
        (DataType::Text, Some("integer[]")),
        (DataType::Text, Some("character varying(3)")),
        (DataType::Timestamp, Some("timestamp(3) without time zone")),
        (DataType::decimal(7, 2), None),
        (DataType::Text, None),
    ];
    assert_eq!(facts, expected);
}

#[test]
fn what_a_database_is_set_to_does_not_change_how_values_read_as_text() {
    let server = Server::start();
    server.execute(
        "CREATE TABLE t AS SELECT '1 mon -1 days +02:03:04.000005'::interval AS i, \
           ARRAY['2024-03-01 12:00:00.5+02'::timestamptz] AS z, ARRAY[0.1::float8] AS f, ARRAY['\\x00ff'::bytea] AS b, \
           'public.t'::text AS reg; ALTER TABLE t ALTER reg TYPE regclass USING 't'::regclass; \
         ALTER DATABASE postgres SET TimeZone = 'Asia/Kolkata'; ALTER DATABASE postgres SET DateStyle = 'German'; \
         ALTER DATABASE postgres SET IntervalStyle = 'sql_standard'; \
         ALTER DATABASE postgres SET extra_float_digits = -15; ALTER DATABASE postgres SET bytea_output = 'escape'",
    );
    let mut source = source(json!({ "url": server.url() }));
    let info = stream(&mut source, "public", "t");
    let batch = read_all(&mut source, read_request(&info), LIMIT).remove(0).batch;
    let texts: Vec<&str> = batch.views().iter().map(|column| column.str(0)).collect();
    let expected = [
        "1 mon -1 days +02:03:04.000005",
        "{\"2024-03-01 10:00:00.5+00\"}",
        "{0.1}",
        "{\"\\\\x00ff\"}",
        "public.t",
    ];
    assert_eq!(texts, expected);
}
