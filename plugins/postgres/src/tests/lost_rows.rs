//! A target with rules and triggers that take rows away: they are an error that names its cause, and never lost.

use serde_json::json;
use setu_sdk::{Destination, ErrorKind, WriteMode, Writer};

use super::copy::{destination, load, source, stream};
use super::server::Server;
use super::targets::overwrite;
use super::write::{batch, info, leftovers, table};

const TABLE: &str = "DROP TABLE IF EXISTS t, _setu_loads CASCADE; CREATE TABLE t (id int PRIMARY KEY, v text); \
    INSERT INTO t VALUES (9, 'old'), (8, 'old')";

/// Drops rows with odd ids.
const PICKY: &str = "CREATE OR REPLACE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS \
    'BEGIN IF NEW.id % 2 = 1 THEN RETURN NULL; END IF; RETURN NEW; END'; \
    CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION picky()";

/// One part of these rows, committed.
fn write(server: &Server, id: &str, mode: WriteMode, rows: &[(i32, &str)]) -> setu_sdk::Result<()> {
    let mut writer = destination(&server.url(), "public").begin(load(id, 1, &info(), mode))?;
    writer.write(batch(rows))?;
    writer.commit(1)?;
    writer.finish().map(drop)
}

#[test]
fn rows_that_a_trigger_drops_are_an_error_in_every_mode() {
    let server = Server::start();
    let targets = [
        format!("{TABLE}; {PICKY}"),
        // Rows pass through a staging table.
        format!("{TABLE}; ALTER TABLE t ALTER v TYPE xml USING v::xml; {PICKY}"),
        "DROP TABLE IF EXISTS t, _setu_loads CASCADE; \
         CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF t DEFAULT; \
         INSERT INTO t VALUES (9, 'old'), (8, 'old'); \
         CREATE TRIGGER g BEFORE INSERT ON part FOR EACH ROW EXECUTE FUNCTION picky()"
            .to_owned(),
    ];
    for target in &targets {
        for mode in [WriteMode::Append, WriteMode::Upsert, WriteMode::Overwrite] {
            server.execute(target);
            let error = write(&server, "a", mode, &[(1, "x"), (2, "x"), (4, "x")]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{mode:?}: {error}");
            for part in ["public.t", "of 3 rows 2", "trigger g", "`schema`"] {
                assert!(error.message().contains(part), "{mode:?}, {part}: {error}");
            }
            let all = "SELECT string_agg(id::text || v::text, ' ' ORDER BY id) FROM t";
            assert_eq!(server.value(all), "8old 9old", "{mode:?}");
            // With rows that the trigger lets pass, all is well.
            write(&server, "b", mode, &[(2, "x"), (4, "x")]).unwrap();
        }
    }
}

#[test]
fn a_commit_that_failed_cannot_be_committed_after_all() {
    let server = Server::start();
    server.execute(&format!("{TABLE}; {PICKY}"));
    let mut to = destination(&server.url(), "public");
    let mut writer = to.begin(load("a", 1, &info(), WriteMode::Append)).unwrap();
    writer.write(batch(&[(1, "x"), (2, "x")])).unwrap();
    writer.commit(1).unwrap_err();
    let _ = writer.commit(1);
    assert_eq!(table(&server), "8old 9old");
}

#[test]
fn a_rule_that_diverts_rows_is_refused_before_anything_is_written() {
    let server = Server::start();
    let rules = [
        "ON INSERT TO t DO INSTEAD NOTHING",
        "ON INSERT TO t WHERE NEW.id % 2 = 1 DO INSTEAD NOTHING",
        "ON INSERT TO t DO INSTEAD INSERT INTO elsewhere VALUES (NEW.id, NEW.v)",
    ];
    for rule in rules {
        let target = format!(
            "{TABLE}; DROP TABLE IF EXISTS elsewhere; CREATE TABLE elsewhere (id int, v text); CREATE RULE r AS {rule}"
        );
        for mode in [WriteMode::Upsert, WriteMode::Overwrite] {
            server.execute(&target);
            let error = destination(&server.url(), "public")
                .begin(load("a", 1, &info(), mode))
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Config, "{rule}, {mode:?}: {error}");
            assert!(
                error.message().contains("public.t") && error.message().contains("rule r"),
                "{error}"
            );
            assert_eq!(
                (table(&server).as_str(), leftovers(&server)),
                ("8old 9old", 0),
                "{rule}"
            );
        }
        // A COPY does not fire rules.
        write(&server, "b", WriteMode::Append, &[(1, "x")]).unwrap();
        assert_eq!(table(&server), "1x 8old 9old", "{rule}");
        // An INSERT from a staging table does.
        server.execute(&format!(
            "DROP RULE r ON t; ALTER TABLE t ALTER id TYPE text; CREATE RULE r AS {}",
            rule.replace("NEW.id", "NEW.id::int")
        ));
        let error = write(&server, "c", WriteMode::Append, &[(3, "x")]).unwrap_err();
        assert!(error.message().contains("rule r"), "{error}");
        server.execute("ALTER TABLE t DISABLE RULE r");
        write(&server, "d", WriteMode::Append, &[(3, "x")]).unwrap();
        overwrite(&server, "e").unwrap();
        assert_eq!(table(&server), "1new", "{rule}");
    }
}

#[test]
fn a_rule_that_appears_while_an_overwrite_runs_does_not_empty_the_target() {
    let server = Server::start();
    server.execute(TABLE);
    let mut writer = destination(&server.url(), "public")
        .begin(load("a", 1, &info(), WriteMode::Overwrite))
        .unwrap();
    writer.write(batch(&[(1, "x")])).unwrap();
    writer.commit(1).unwrap();
    server.execute("CREATE RULE r AS ON INSERT TO t DO INSTEAD NOTHING");
    let error = writer.finish().unwrap_err();
    assert!(error.message().contains("rule r"), "{error}");
    assert_eq!(table(&server), "8old 9old");
}

#[test]
fn an_upsert_tells_dropped_rows_from_repeated_and_unchanged_ones() {
    let server = Server::start();
    // Keys that come twice in a part.
    server.execute(&format!("{TABLE}; {PICKY}"));
    write(&server, "a", WriteMode::Upsert, &[(2, "x"), (2, "y"), (8, "z")]).unwrap();
    assert_eq!(table(&server), "2y 8z 9old");
    let error = write(&server, "b", WriteMode::Upsert, &[(2, "x"), (2, "x"), (1, "x")]).unwrap_err();
    assert!(error.message().contains("of 2 rows 1"), "{error}");

    // A row that Postgres' own trigger finds unchanged is there.
    server.execute(&format!(
        "{TABLE}; CREATE TRIGGER z BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()"
    ));
    write(
        &server,
        "c",
        WriteMode::Upsert,
        &[(8, "old"), (9, "new"), (7, "x")],
    )
    .unwrap();
    assert_eq!(table(&server), "7x 8old 9new");

    // A trigger that keeps the old row is another matter.
    server.execute(&format!(
        "{TABLE}; CREATE OR REPLACE FUNCTION stubborn() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
         CREATE TRIGGER stubborn BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION stubborn()"
    ));
    let error = write(&server, "d", WriteMode::Upsert, &[(8, "new"), (7, "x")]).unwrap_err();
    assert!(error.message().contains("trigger stubborn"), "{error}");
    assert_eq!(table(&server), "8old 9old");
}

/// A stream of nothing but a key: rows that exist are left as they are, which is no loss.
#[test]
fn an_upsert_of_keys_alone_counts_the_rows_that_are_there() {
    let server = Server::start();
    server
        .execute("CREATE SCHEMA a; CREATE TABLE a.t AS SELECT i AS id, '' AS v FROM generate_series(1, 5) i");
    server.execute("ALTER TABLE a.t DROP v, ADD PRIMARY KEY (id)");
    let mut from = source(json!({ "url": server.url() }));
    let keys = stream(&mut from, "a", "t");
    server.execute(TABLE);
    server.execute("INSERT INTO t VALUES (2, 'mine')");
    let mut to = destination(&server.url(), "public");
    for id in ["a", "b"] {
        super::copy::copy(&mut from, &keys, &mut to, id, WriteMode::Upsert);
        assert_eq!(server.value("SELECT count(*) FROM t"), "7");
    }
    server.execute(&format!("DELETE FROM t; {PICKY}"));
    let chunk =
        super::copy::read_all(&mut from, super::copy::read_request(&keys), super::copy::LIMIT).remove(0);
    let mut writer = to.begin(load("c", 1, &keys, WriteMode::Upsert)).unwrap();
    writer.write(chunk.batch).unwrap();
    let error = writer.commit(1).unwrap_err();
    assert!(error.message().contains("of 5 rows 2"), "{error}");
}
