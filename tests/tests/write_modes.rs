//! What happens to the rows that the target already has.

use setu_tests::{Database, Setu};

type Rows = Vec<Vec<Option<String>>>;

fn pipeline(source: &Database, target: &Database, write: &str) -> Setu {
    Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         destination: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         streams: [{{ name: public.t, write: {write} }}]\n\
         staging: {{ backend: fs, fsRoot: blob }}\n",
        source.url(),
        target.url()
    ))
}

fn source() -> Database {
    let source = Database::new();
    source
        .execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'new'), (2, 'two')");
    source
}

/// The rows of `t` after a run in each mode into a target that `prepare` has made.
fn results(source: &Database, write: &str, prepare: &str) -> Vec<(&'static str, Database, Rows)> {
    ["direct", "staged"]
        .into_iter()
        .map(|mode| {
            let target = Database::new();
            target.execute(prepare);
            pipeline(source, &target, write).succeed(&format!("run pipeline.yaml --mode {mode}"));
            let rows = target.rows("SELECT id, v FROM t ORDER BY id, v");
            (mode, target, rows)
        })
        .collect()
}

fn rows(values: &[(&str, &str)]) -> Rows {
    let some = |text: &str| Some(text.to_owned());
    values.iter().map(|(id, v)| vec![some(id), some(v)]).collect()
}

#[test]
fn append_keeps_what_is_there() {
    let source = source();
    for (mode, _, got) in results(
        &source,
        "append",
        "CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'old')",
    ) {
        assert_eq!(got, rows(&[("1", "new"), ("1", "old"), ("2", "two")]), "{mode}");
    }
}

#[test]
fn upsert_replaces_rows_of_the_same_key_and_keeps_the_others() {
    let source = source();
    let prepare = "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'old'), (9, 'kept')";
    for (mode, _, got) in results(&source, "upsert", prepare) {
        assert_eq!(got, rows(&[("1", "new"), ("2", "two"), ("9", "kept")]), "{mode}");
    }
}

#[test]
fn overwrite_replaces_everything_and_keeps_what_hangs_on_the_table() {
    let source = source();
    let prepare = "CREATE TABLE t (id int PRIMARY KEY, v text);
                   INSERT INTO t VALUES (1, 'old'), (9, 'gone');
                   CREATE VIEW seen AS SELECT v FROM t; COMMENT ON TABLE t IS 'mine';
                   CREATE INDEX by_v ON t (v); GRANT SELECT ON t TO PUBLIC;";
    for mode in ["direct", "staged"] {
        let target = Database::new();
        target.execute(prepare);
        let outcome =
            pipeline(&source, &target, "overwrite").line(&format!("run pipeline.yaml --mode {mode}"));
        if outcome.status == Some(0) {
            assert_eq!(
                target.rows("SELECT id, v FROM t ORDER BY id"),
                rows(&[("1", "new"), ("2", "two")]),
                "{mode}"
            );
            assert_eq!(
                target.value("SELECT count(*) FROM seen").as_deref(),
                Some("2"),
                "the view sees the new rows"
            );
            assert_eq!(
                target.value("SELECT obj_description('t'::regclass)").as_deref(),
                Some("mine")
            );
            assert!(
                target.value("SELECT to_regclass('by_v')").is_some(),
                "the index is there"
            );
            let granted = "SELECT has_table_privilege('pg_monitor', 't', 'SELECT')";
            assert_eq!(target.value(granted).as_deref(), Some("t"), "the grant is there");
        } else {
            // Refused before anything was written, naming what is in the way.
            outcome.assert_status(1).assert_clear_failure(&["public.t"]);
            assert!(
                outcome.text().contains("seen") || outcome.text().contains("by_v"),
                "{outcome}"
            );
            assert_eq!(
                target.rows("SELECT id, v FROM t ORDER BY id"),
                rows(&[("1", "old"), ("9", "gone")]),
                "{mode}"
            );
        }
    }
}

#[test]
fn a_failed_overwrite_leaves_the_old_table_as_it_was() {
    let source = Database::new();
    source.execute("CREATE VIEW t AS SELECT i AS id, (1 / (3 - i))::text AS v FROM generate_series(1, 5) i");
    for mode in ["direct", "staged"] {
        let target = Database::new();
        target.execute("CREATE TABLE t (id int, v text); INSERT INTO t VALUES (9, 'old')");
        let outcome =
            pipeline(&source, &target, "overwrite").line(&format!("run pipeline.yaml --mode {mode}"));
        outcome
            .assert_status(1)
            .assert_clear_failure(&["public.t", "division by zero"]);
        assert_eq!(
            target.rows("SELECT id, v FROM t"),
            rows(&[("9", "old")]),
            "{mode}"
        );
    }
}

#[test]
fn upsert_without_a_key_is_refused_before_anything_is_written() {
    let source = Database::new();
    source.execute("CREATE TABLE t (id int, v text); INSERT INTO t VALUES (1, 'new')");
    let target = Database::new();
    let outcome = pipeline(&source, &target, "upsert").line("run pipeline.yaml");
    outcome.assert_clear_failure(&["public.t", "primary key"]);
    assert_eq!(target.value("SELECT to_regclass('public.t')"), None);
}

#[test]
fn a_target_that_lacks_a_column_is_refused_by_its_name() {
    let source = source();
    let target = Database::new();
    target.execute("CREATE TABLE t (id int PRIMARY KEY)");
    let outcome = pipeline(&source, &target, "append").line("run pipeline.yaml");
    outcome
        .assert_status(1)
        .assert_clear_failure(&["public.t", "`v`"]);
    assert_eq!(target.value("SELECT count(*) FROM t").as_deref(), Some("0"));
}

#[test]
fn the_schema_of_the_configuration_is_where_tables_land() {
    let source = source();
    let target = Database::new();
    let setu = Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         destination: {{ connector: postgres, config: {{ url: \"{}\", schema: \"Landing Zone\" }} }}\n\
         streams: [{{ name: \"public.*\" }}]\n",
        source.url(),
        target.url()
    ));
    setu.succeed("run pipeline.yaml");
    assert_eq!(
        target.value("SELECT count(*) FROM \"Landing Zone\".t").as_deref(),
        Some("2")
    );
}
