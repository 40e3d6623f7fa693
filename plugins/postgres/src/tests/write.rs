//! Loads in every mode, cut off between any two calls, taken over, and published beside what hangs on the target.

use serde_json::json;
use setu_sdk::{
    Batch, BatchBuilder, DataType, Destination, ErrorKind, Field, Reader, Schema, Source, StreamInfo,
    StreamName, WriteMode, Writer,
};

use super::copy::{destination, load, source, stream};
use super::server::Server;

/// `t(id, v)` with a key.
pub(super) fn info() -> StreamInfo {
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

pub(super) fn batch(rows: &[(i32, &str)]) -> Batch {
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

pub(super) fn table(server: &Server) -> String {
    server.value("SELECT coalesce(string_agg(id || v, ' ' ORDER BY id, v), '') FROM t")
}

/// What kills a writer: after how many calls it stops being called.
pub(super) fn run_until(server: &Server, attempt: u64, mode: WriteMode, calls: usize) -> Option<u64> {
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

pub(super) fn leftovers(server: &Server) -> u32 {
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

#[test]
fn streams_that_begin_at_once_share_one_schema() {
    let server = Server::start();
    std::thread::scope(|threads| {
        for at in 0..8 {
            let url = server.url();
            threads.spawn(move || {
                let mut info = info();
                info.name.name = format!("t{at}");
                let mut to = destination(&url, "new schema");
                let mut writer = to
                    .begin(load(&info.name.name, 1, &info, WriteMode::Overwrite))
                    .unwrap();
                writer.write(batch(&[(at, "x")])).unwrap();
                writer.commit(1).unwrap();
                writer.finish().unwrap();
            });
        }
    });
    assert_eq!(
        server.value("SELECT count(*) FROM \"new schema\"._setu_loads WHERE finished AND rows = 1"),
        "8"
    );
}
