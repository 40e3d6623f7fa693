//! Incremental streams: a run moves what is new since the last one, loses nothing, doubles nothing.

use serde_json::Value;
use setu_tests::{Database, Setu, staged_keys};

fn pipeline(source: &Database, target: &Database, stream: &str) -> Setu {
    Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         destination: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         streams:\n{stream}\
         staging: {{ backend: fs, fsRoot: blob }}\n",
        source.url(),
        target.url()
    ))
}

const BY_TIME: &str = "  - name: public.events\n    mode: incremental\n    cursor: at\n";

fn events() -> Database {
    let source = Database::new();
    source.execute(
        "CREATE TABLE events (id int PRIMARY KEY, at timestamptz, note text);
         INSERT INTO events VALUES
           (1, '2024-01-01 00:00:00+00', 'a'), (2, '2024-01-02 00:00:00+00', 'b'),
           (3, '2024-01-02 00:00:00+00', 'c'), (4, NULL, 'no cursor');",
    );
    source
}

fn rows_of(report: &Value) -> Option<u64> {
    report["streams"][0]["rows"].as_u64()
}

#[test]
fn a_second_run_moves_only_what_is_new_and_ties_are_not_lost() {
    for mode in ["direct", "staged"] {
        let source = events();
        let target = Database::new();
        let setu = pipeline(&source, &target, BY_TIME);
        let run = format!("run pipeline.yaml --mode {mode}");
        let first = setu.report(&run);
        assert_eq!(rows_of(&first), Some(4), "{mode}: {first}");
        let cursor = first["streams"][0]["cursor"].as_str().expect("a cursor");
        assert!(cursor.starts_with("2024-01-02T00:00:00"), "{mode}: {first}");

        // One row ties with the high-water mark, one is newer, one has changed, one that is old stays where it is.
        source.execute(
            "INSERT INTO events VALUES (5, '2024-01-02 00:00:00+00', 'tie'), (6, '2024-01-03 00:00:00+00', 'new');
             UPDATE events SET note = 'changed', at = '2024-01-04 00:00:00+00' WHERE id = 1;",
        );
        let second = setu.report(&run);
        // Inclusive from below: 2 and 3 come again and replace themselves.
        assert_eq!(rows_of(&second), Some(5), "{mode}: {second}");
        let all = "SELECT * FROM events ORDER BY id";
        assert_eq!(target.rows(all), source.rows(all), "{mode}");

        let third = setu.report(&run);
        assert_eq!(
            rows_of(&third),
            Some(1),
            "{mode}: only the row at the mark: {third}"
        );
        assert_eq!(target.rows(all), source.rows(all), "{mode}");
    }
}

#[test]
fn a_stream_without_a_key_is_appended_and_nothing_is_doubled() {
    let source = Database::new();
    source
        .execute("CREATE TABLE log (n bigint, t text); INSERT INTO log VALUES (1, 'a'), (9, 'b'), (10, 'c')");
    let target = Database::new();
    let stream = "  - name: public.log\n    mode: incremental\n    cursor: n\n";
    let setu = pipeline(&source, &target, stream);
    assert_eq!(rows_of(&setu.report("run pipeline.yaml")), Some(3));
    source.execute("INSERT INTO log VALUES (11, 'd')");
    // 10 is beyond 9 as a number, not as text.
    assert_eq!(rows_of(&setu.report("run pipeline.yaml")), Some(1));
    assert_eq!(rows_of(&setu.report("run pipeline.yaml")), Some(0));
    let all = "SELECT * FROM log ORDER BY n";
    assert_eq!(target.rows(all), source.rows(all));
}

#[test]
fn the_mark_moves_only_after_the_load() {
    let source = events();
    let target = Database::new();
    let setu = pipeline(&source, &target, BY_TIME);
    let state = |setu: &Setu| {
        staged_keys(&setu.path("blob"))
            .into_iter()
            .filter(|key| key.contains("/state/"))
            .collect::<Vec<_>>()
    };
    setu.succeed("extract pipeline.yaml --run r1");
    assert_eq!(state(&setu), [""; 0], "an extract moves no state");
    setu.succeed("load pipeline.yaml --run r1");
    assert_eq!(state(&setu), ["ws/default/pl/p/state/public_events.json"]);

    // A load that fails leaves the mark where it was, so that the next run brings the same rows.
    source.execute("INSERT INTO events VALUES (7, '2024-02-01 00:00:00+00', 'late')");
    target.execute("ALTER TABLE events ADD CONSTRAINT no CHECK (note <> 'late')");
    let mark = || {
        let state = setu.read("blob/ws/default/pl/p/state/public_events.json");
        let mut state: Value = serde_json::from_str(&state).expect("JSON");
        // A run that takes its turn at loading writes the state, and so does one that gives it back.
        state["updatedAt"].take();
        state
    };
    let before = mark();
    let failed = setu.line("run pipeline.yaml --run r2");
    failed.assert_status(1);
    assert_eq!(mark(), before);
    target.execute("ALTER TABLE events DROP CONSTRAINT no");
    setu.succeed("run pipeline.yaml --run r2");
    let all = "SELECT * FROM events ORDER BY id";
    assert_eq!(target.rows(all), source.rows(all));
}

#[test]
fn an_empty_window_moves_nothing_and_keeps_the_mark() {
    let source = Database::new();
    source.execute(
        "CREATE TABLE events (id int PRIMARY KEY, at date); INSERT INTO events VALUES (1, '2024-01-01')",
    );
    let target = Database::new();
    let setu = pipeline(&source, &target, BY_TIME);
    setu.succeed("run pipeline.yaml");
    source.execute("DELETE FROM events");
    assert_eq!(rows_of(&setu.report("run pipeline.yaml")), Some(0));
    source.execute("INSERT INTO events VALUES (2, '2023-12-31'), (3, '2024-01-02')");
    assert_eq!(
        rows_of(&setu.report("run pipeline.yaml")),
        Some(1),
        "the mark is still 2024-01-01"
    );
    let kept = target.rows("SELECT id FROM events ORDER BY id");
    assert_eq!(kept, [[Some("1".to_owned())], [Some("3".to_owned())]]);
}

#[test]
fn a_cursor_that_is_no_column_is_an_error_that_names_those_that_are() {
    let source = events();
    let target = Database::new();
    let stream = "  - name: public.events\n    mode: incremental\n    cursor: updated\n";
    let setu = pipeline(&source, &target, stream);
    setu.line("run pipeline.yaml")
        .assert_clear_failure(&["public.events", "updated", "at"]);
}
