//! What people gave to a target is still there after an overwrite, or the overwrite is refused before it writes.

use setu_sdk::{DataType, Destination, ErrorKind, Field, WriteMode, Writer};

use super::copy::{destination, load};
use super::server::Server;
use super::targets::overwrite;
use super::write::{batch, info, leftovers, table};

/// What is done to the table `t`, and a query that gives `new` where it is still done to the table with the new row.
const GIVEN: &[(&str, &str)] = &[
    ("CREATE VIEW seen AS SELECT v FROM t", "SELECT v FROM seen"),
    (
        "GRANT SELECT ON t TO PUBLIC",
        "SELECT 'new' WHERE has_table_privilege('pg_monitor', 't', 'SELECT')",
    ),
    (
        "GRANT SELECT (v) ON t TO PUBLIC",
        "SELECT 'new' WHERE has_column_privilege('pg_monitor', 't', 'v', 'SELECT')",
    ),
    (
        "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC",
        "SELECT 'new' WHERE NOT has_table_privilege('pg_monitor', 't', 'SELECT')",
    ),
    (
        "COMMENT ON COLUMN t.v IS 'new'",
        "SELECT col_description('t'::regclass, 2)",
    ),
    (
        "COMMENT ON CONSTRAINT t_pkey ON t IS 'new'",
        "SELECT obj_description(oid, 'pg_constraint') FROM pg_constraint WHERE conrelid = 't'::regclass",
    ),
    (
        "COMMENT ON INDEX t_pkey IS 'new'",
        "SELECT obj_description('t_pkey'::regclass, 'pg_class')",
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
        "CREATE DOMAIN filled AS text DEFAULT 'new'; ALTER TABLE t ADD extra filled NOT NULL",
        "SELECT extra FROM t, pg_attribute WHERE attrelid = 't'::regclass AND attname = 'extra' AND attnotnull",
    ),
    (
        "ALTER TABLE t ALTER v SET NOT NULL",
        "SELECT 'new' FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'v' AND attnotnull",
    ),
    (
        "ALTER TABLE t ALTER v TYPE text COLLATE \"POSIX\"",
        "SELECT 'new' FROM pg_attribute WHERE attrelid = 't'::regclass AND attcollation = '\"POSIX\"'::regcollation",
    ),
    (
        "ALTER TABLE t ALTER v SET STORAGE EXTERNAL",
        "SELECT 'new' FROM pg_attribute WHERE attrelid = 't'::regclass AND attstorage = 'e'",
    ),
    (
        "ALTER TABLE t ALTER v SET COMPRESSION pglz",
        "SELECT 'new' FROM pg_attribute WHERE attrelid = 't'::regclass AND attcompression = 'p'",
    ),
    (
        "ALTER TABLE t ALTER v SET STATISTICS 500",
        "SELECT 'new' FROM pg_attribute WHERE attrelid = 't'::regclass AND attstattarget = 500",
    ),
    (
        "ALTER TABLE t ADD n int GENERATED ALWAYS AS IDENTITY",
        "SELECT 'new' FROM t WHERE n > 0",
    ),
    (
        "ALTER TABLE t ALTER id ADD GENERATED ALWAYS AS IDENTITY",
        "SELECT 'new' FROM pg_attribute WHERE attrelid = 't'::regclass AND attidentity = 'a'",
    ),
    (
        "CREATE SEQUENCE s OWNED BY t.id",
        "SELECT 'new' WHERE to_regclass('s') IS NOT NULL",
    ),
    (
        "ALTER TABLE t ADD w text GENERATED ALWAYS AS (v) STORED",
        "SELECT w FROM t",
    ),
    (
        "ALTER TABLE t ADD w text GENERATED ALWAYS AS ('new') STORED",
        "SELECT w FROM t",
    ),
    (
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id) DEFERRABLE INITIALLY DEFERRED",
        "SELECT 'new' FROM pg_constraint WHERE conrelid = 't'::regclass AND condeferred",
    ),
    (
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id) INCLUDE (v)",
        "SELECT 'new' FROM pg_index WHERE indrelid = 't'::regclass AND indnatts = 2",
    ),
    (
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id) WITH (fillfactor = 50)",
        "SELECT 'new' FROM pg_class WHERE oid = 't_pkey'::regclass AND reloptions IS NOT NULL",
    ),
    (
        "ALTER TABLE t CLUSTER ON t_pkey",
        "SELECT 'new' FROM pg_index WHERE indrelid = 't'::regclass AND indisclustered",
    ),
    (
        "ALTER TABLE t RENAME CONSTRAINT t_pkey TO my_key",
        "SELECT 'new' FROM pg_constraint WHERE conname = 'my_key' AND conrelid = 't'::regclass",
    ),
    (
        "CREATE TABLE other (id int PRIMARY KEY); INSERT INTO other VALUES (1); ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES other NOT VALID",
        "SELECT 'new' FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'f'",
    ),
    (
        "ALTER TABLE t ADD parent int REFERENCES t",
        "SELECT 'new' FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'f'",
    ),
    (
        "ALTER TABLE t ADD CHECK (id > -5)",
        "SELECT 'new' FROM pg_constraint WHERE conrelid = 't'::regclass AND contype = 'c'",
    ),
    (
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER g BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
        "SELECT 'new' FROM pg_trigger WHERE tgname = 'g'",
    ),
    (
        "CREATE TABLE log (v text); CREATE RULE r AS ON INSERT TO t DO ALSO INSERT INTO log VALUES (NEW.v)",
        "SELECT v FROM log, pg_rewrite WHERE ev_class = 't'::regclass",
    ),
    (
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON t USING (true)",
        "SELECT 'new' FROM pg_policy",
    ),
    (
        "ALTER TABLE t FORCE ROW LEVEL SECURITY",
        "SELECT 'new' FROM pg_class WHERE oid = 't'::regclass AND relforcerowsecurity",
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
        "ALTER TABLE t SET (toast.autovacuum_enabled = off)",
        "SELECT 'new' FROM pg_class t JOIN pg_class o ON o.oid = t.reltoastrelid \
         WHERE t.oid = 't'::regclass AND o.reloptions IS NOT NULL",
    ),
    (
        "ALTER TABLE t SET UNLOGGED",
        "SELECT 'new' FROM pg_class WHERE oid = 't'::regclass AND relpersistence = 'u'",
    ),
    (
        "CREATE ACCESS METHOD pile TYPE TABLE HANDLER heap_tableam_handler; DROP TABLE t; \
         CREATE TABLE t (id int PRIMARY KEY, v text) USING pile",
        "SELECT 'new' FROM pg_class JOIN pg_am ON pg_am.oid = relam WHERE pg_class.oid = 't'::regclass AND amname = 'pile'",
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
        "CREATE TABLE holder (ts t[])",
        "SELECT 'new' FROM pg_attribute WHERE attrelid = 'holder'::regclass AND atttypid = 't[]'::regtype",
    ),
    (
        "CREATE TABLE above (v text); ALTER TABLE t INHERIT above",
        "SELECT v FROM above",
    ),
    (
        "ALTER EXTENSION plpgsql ADD TABLE t",
        "SELECT 'new' FROM pg_depend WHERE objid = 't'::regclass AND deptype = 'e'",
    ),
];

#[test]
fn what_hangs_on_the_target_survives_an_overwrite() {
    let server = Server::start();
    let mut lost = Vec::new();
    for (at, (give, look)) in GIVEN.iter().enumerate() {
        server.execute(
            "DROP SCHEMA public CASCADE; CREATE SCHEMA public; CREATE TABLE t (id int PRIMARY KEY, v text); \
             INSERT INTO t VALUES (9, 'old')",
        );
        server.execute(give);
        if let Err(error) = overwrite(&server, &at.to_string()) {
            lost.push(format!("{give}: {error}"));
        } else {
            let seen: Vec<String> = server.rows(look).into_iter().flatten().flatten().collect();
            let after = (table(&server), seen, leftovers(&server));
            if after != ("1new".to_owned(), vec!["new".to_owned()], 0) {
                lost.push(format!("{give}: {after:?}"));
            }
        }
        server.execute(
            "DROP PUBLICATION IF EXISTS p; ALTER DEFAULT PRIVILEGES REVOKE SELECT ON TABLES FROM PUBLIC; \
             DO $$ BEGIN ALTER EXTENSION plpgsql DROP TABLE public.t; EXCEPTION WHEN OTHERS THEN END $$",
        );
    }
    assert!(lost.is_empty(), "lost:\n{}", lost.join("\n"));
}

/// The rows of a child by inheritance are the child's.
#[test]
fn the_rows_of_inheritance_children_survive_an_overwrite() {
    let server = Server::start();
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (9, 'old'); \
         CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (5, 'child')",
    );
    overwrite(&server, "a").unwrap();
    assert_eq!(table(&server), "1new 5child");
    assert_eq!(
        server.value("SELECT string_agg(id || v, ' ') FROM ONLY t"),
        "1new"
    );
}

#[test]
fn a_table_that_gives_way_to_the_streams_columns_keeps_not_null_and_its_key() {
    let server = Server::start();
    let not_null = "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute \
        WHERE attrelid = 't'::regclass AND attnum > 0 AND attnotnull AND NOT attisdropped";
    server.execute("CREATE TABLE t (v text NOT NULL, gone int)");
    overwrite(&server, "a").unwrap();
    assert_eq!(server.value(not_null), "id v");

    server.execute("DROP TABLE t; CREATE TABLE t (v text CONSTRAINT my_key PRIMARY KEY)");
    let mut keyless = info();
    keyless.schema.primary_key.clear();
    keyless.schema.fields[0] = Field::new("id", DataType::Int32);
    let mut to = destination(&server.url(), "public");
    let mut writer = to.begin(load("b", 1, &keyless, WriteMode::Overwrite)).unwrap();
    writer.write(batch(&[(1, "new")])).unwrap();
    writer.commit(1).unwrap();
    writer.finish().unwrap();
    assert_eq!(
        (table(&server).as_str(), server.value(not_null).as_str()),
        ("1new", "v")
    );
    assert_eq!(
        server.value("SELECT conname FROM pg_constraint WHERE conrelid = 't'::regclass"),
        "my_key"
    );

    // A key that the stream has no column for cannot be kept.
    server.execute("DROP TABLE t; CREATE TABLE t (code int PRIMARY KEY, v text)");
    let error = to
        .begin(load("c", 1, &keyless, WriteMode::Overwrite))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("primary key (code)"), "{error}");
}

#[test]
fn a_table_whose_columns_have_settings_of_their_own_does_not_give_way() {
    let server = Server::start();
    let mut to = destination(&server.url(), "public");
    let cases = [
        (
            "CREATE TABLE t (v text COLLATE \"POSIX\")",
            "collation of column v",
        ),
        (
            "CREATE TABLE t (v text); ALTER TABLE t ALTER v SET STORAGE EXTERNAL",
            "storage of column v",
        ),
        ("CREATE TABLE t (v text) PARTITION BY LIST (v)", "partitioning"),
    ];
    for (at, (sql, part)) in cases.into_iter().enumerate() {
        server.execute("DROP TABLE IF EXISTS t");
        server.execute(sql);
        let error = to
            .begin(load(&at.to_string(), 1, &info(), WriteMode::Overwrite))
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config, "{error}");
        assert!(
            error.message().contains(part) && error.message().contains("`id` is missing"),
            "{error}"
        );
    }
}

/// The load does not undo what was done to the target while it ran: it stops, and the next attempt sees to it.
#[test]
fn a_target_that_is_altered_while_a_load_runs_is_not_altered_back() {
    let server = Server::start();
    let changes = [
        (
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "ALTER TABLE t ALTER v TYPE varchar(40)",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "ALTER TABLE t ALTER v SET NOT NULL",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "ALTER TABLE t ADD w int",
        ),
        (
            "SELECT",
            "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE VIEW seen AS SELECT v FROM t",
        ),
    ];
    let columns = "SELECT string_agg(attname || atttypid::regtype || attnotnull, ' ' ORDER BY attnum) \
        FROM pg_attribute WHERE attrelid = 't'::regclass AND attnum > 0";
    for (before, change) in changes {
        server.execute("DROP TABLE IF EXISTS t, _setu_loads CASCADE");
        server.execute(before);
        let mut to = destination(&server.url(), "public");
        let mut writer = to.begin(load("l", 1, &info(), WriteMode::Overwrite)).unwrap();
        writer.write(batch(&[(1, "new")])).unwrap();
        writer.commit(1).unwrap();
        server.execute(change);
        let changed = server.value(columns);
        let error = writer.finish().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{change}: {error}");
        assert!(error.message().contains("public.t"), "{error}");
        drop(writer);

        let mut writer = to.begin(load("l", 2, &info(), WriteMode::Overwrite)).unwrap();
        assert_eq!(writer.committed(), 0, "{change}");
        writer.write(batch(&[(1, "new")])).unwrap();
        writer.commit(1).unwrap();
        writer.finish().unwrap();
        assert_eq!(
            (table(&server), server.value(columns)),
            ("1new".to_owned(), changed)
        );
        assert_eq!(leftovers(&server), 0);
    }
}

#[test]
fn a_table_whose_partitions_are_referred_to_is_refused_before_it_is_overwritten() {
    let server = Server::start();
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id); \
         CREATE TABLE t1 PARTITION OF t DEFAULT; CREATE TABLE child (t int CONSTRAINT to_t1 REFERENCES t1)",
    );
    let mut to = destination(&server.url(), "public");
    let error = to.begin(load("a", 1, &info(), WriteMode::Overwrite)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.message().contains("to_t1"), "{error}");
}

/// The rights that `docs/postgres.md` names are enough.
#[test]
fn an_overwrite_needs_no_superuser() {
    let server = Server::start();
    server.execute(
        "CREATE USER writer; GRANT USAGE, CREATE ON SCHEMA public TO writer; \
         CREATE TABLE other (id int PRIMARY KEY, v text); GRANT SELECT, INSERT, TRUNCATE ON other TO writer",
    );
    let url = server.url().replace("postgres@", "writer@");
    for (id, name) in [("a", "t"), ("b", "t"), ("c", "other")] {
        let mut info = info();
        info.name.name = name.to_owned();
        let mut writer = destination(&url, "public")
            .begin(load(id, 1, &info, WriteMode::Overwrite))
            .unwrap();
        writer.write(batch(&[(1, id)])).unwrap();
        writer.commit(1).unwrap();
        writer.finish().unwrap();
        assert_eq!(server.value(&format!("SELECT v FROM {name}")), id);
    }
    assert_eq!(leftovers(&server), 0);
}
