//! Runs of one pipeline that overlap: what another run has loaded further is neither loaded again nor gone back to.

use setu_tests::{Database, Setu};

fn pipeline(source: &Database, target: &Database, streams: &str) -> Setu {
    Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         destination: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         streams:\n{streams}\
         staging: {{ backend: fs, fsRoot: blob }}\n",
        source.url(),
        target.url()
    ))
}

fn source() -> Database {
    let source = Database::new();
    source.execute(
        "CREATE TABLE log (n bigint, t text);
         INSERT INTO log VALUES (1, 'a'), (2, 'b');
         CREATE TABLE item (id int PRIMARY KEY, at bigint, t text);
         INSERT INTO item VALUES (1, 1, 'old'), (2, 2, 'old');",
    );
    source
}

const LOG: &str = "  - { name: public.log, mode: incremental, cursor: n }\n";
const ITEM: &str = "  - { name: public.item, mode: incremental, cursor: at }\n";
const ALL: &str = "SELECT * FROM log ORDER BY n";

#[test]
fn an_append_that_another_run_has_overtaken_is_not_loaded() {
    let (source, target) = (source(), Database::new());
    let setu = pipeline(&source, &target, LOG);
    setu.succeed("extract pipeline.yaml --run A");
    setu.succeed("run pipeline.yaml --run B");
    // Nor does its window become another one by beginning again.
    for verb in ["load", "run", "extract", "load"] {
        let refused = setu.line(&format!("{verb} pipeline.yaml --run A"));
        if verb != "extract" {
            refused
                .assert_status(1)
                .assert_clear_failure(&["public.log", "run `B`", "start a new run"]);
        }
        assert_eq!(target.rows(ALL), source.rows(ALL), "{verb}");
    }
    // Nor does a run that is not named go on with it.
    setu.succeed("run pipeline.yaml");
    assert_eq!(target.rows(ALL), source.rows(ALL));
}

#[test]
fn an_upsert_that_another_run_has_overtaken_does_not_bring_old_versions_back() {
    let (source, target) = (source(), Database::new());
    let setu = pipeline(&source, &target, ITEM);
    setu.succeed("extract pipeline.yaml --run A");
    source.execute("UPDATE item SET at = at + 10, t = 'new'");
    setu.succeed("run pipeline.yaml --run B");
    setu.line("load pipeline.yaml --run A").assert_status(1);
    let all = "SELECT * FROM item ORDER BY id";
    assert_eq!(target.rows(all), source.rows(all));
}

#[test]
fn an_unfinished_run_that_is_older_than_a_finished_one_is_not_gone_back_to() {
    let (source, target) = (source(), Database::new());
    let setu = pipeline(&source, &target, "  - public.log\n");
    setu.succeed("extract pipeline.yaml --run A");
    source.execute("INSERT INTO log VALUES (3, 'c')");
    setu.succeed("run pipeline.yaml --run B");
    setu.succeed("run pipeline.yaml");
    assert_eq!(target.rows(ALL), source.rows(ALL));
}

#[test]
fn the_window_of_a_stream_is_taken_when_its_run_begins_with_it() {
    let (source, target) = (source(), Database::new());
    let setu = pipeline(&source, &target, &format!("{LOG}{ITEM}"));
    setu.succeed("run pipeline.yaml --run A --stream public.item");
    setu.succeed("run pipeline.yaml --run B");
    // What A has not begun with starts where B ended.
    setu.succeed("run pipeline.yaml --run A");
    assert_eq!(target.rows(ALL), source.rows(ALL));
}

#[test]
fn a_stream_that_cannot_be_copied_does_not_keep_the_others_from_moving() {
    let (source, target) = (source(), Database::new());
    // Text that the existing column cannot hold: trying again meets the same error.
    target.execute("CREATE TABLE item (id int PRIMARY KEY, at bigint, t varchar(1))");
    let setu = pipeline(&source, &target, "  - public.log\n  - public.item\n");
    setu.line("run pipeline.yaml").assert_status(1);
    source.execute("INSERT INTO log VALUES (3, 'c')");
    setu.line("run pipeline.yaml").assert_status(1);
    assert_eq!(target.rows(ALL), source.rows(ALL));
}

/// Loads one run in a process that dies after its first commit.
fn load_half(setu: &Setu, run: &str) {
    let died = setu.line_with(
        &format!("load pipeline.yaml --run {run}"),
        &[("SETU_CRASH_AT", "after-commit")],
    );
    assert_eq!(died.status, None, "{died}");
}

#[test]
fn a_half_appended_run_is_not_doubled_by_another() {
    let (source, target) = (source(), Database::new());
    let setu = pipeline(&source, &target, LOG);
    setu.succeed("extract pipeline.yaml --run A");
    load_half(&setu, "A");
    assert_eq!(target.rows(ALL), source.rows(ALL));
    for line in [
        "run pipeline.yaml --run B",
        "run pipeline.yaml --run C --mode direct",
    ] {
        setu.line(line)
            .assert_status(1)
            .assert_clear_failure(&["public.log", "--run A", "--give-up A"]);
        assert_eq!(target.rows(ALL), source.rows(ALL), "{line}");
    }
    // Once it has come to its end, the others begin where it ended.
    setu.succeed("load pipeline.yaml --run A");
    source.execute("INSERT INTO log VALUES (3, 'c')");
    setu.succeed("run pipeline.yaml --run D");
    assert_eq!(target.rows(ALL), source.rows(ALL));
}

#[test]
fn a_half_appended_run_that_is_given_up_keeps_nobody_waiting() {
    let (source, target) = (source(), Database::new());
    let setu = pipeline(&source, &target, LOG);
    setu.succeed("extract pipeline.yaml --run A");
    load_half(&setu, "A");
    setu.line("run pipeline.yaml --run A --give-up A")
        .assert_status(2)
        .assert_clear_failure(&["--give-up", "run A"]);
    target.execute("DELETE FROM log");
    // Without a name, too, it is another run that is made.
    setu.succeed("run pipeline.yaml --give-up A");
    assert_eq!(target.rows(ALL), source.rows(ALL));
    setu.line("load pipeline.yaml --run A").assert_status(1);
    assert_eq!(target.rows(ALL), source.rows(ALL));
}

#[test]
fn a_half_upserted_run_is_gone_over() {
    let (source, target) = (source(), Database::new());
    let setu = pipeline(&source, &target, ITEM);
    setu.succeed("extract pipeline.yaml --run A");
    load_half(&setu, "A");
    source.execute("UPDATE item SET at = at + 10, t = 'new'");
    setu.succeed("run pipeline.yaml --run B");
    setu.line("load pipeline.yaml --run A").assert_status(1);
    let all = "SELECT * FROM item ORDER BY id";
    assert_eq!(target.rows(all), source.rows(all));
}

#[test]
fn an_append_that_the_destination_refuses_as_a_whole_keeps_nobody_waiting() {
    let (source, target) = (source(), Database::new());
    target.execute("CREATE TABLE log (n bigint CHECK (n < 2), t text)");
    let setu = pipeline(&source, &target, LOG);
    for mode in ["direct", "staged"] {
        setu.line(&format!("run pipeline.yaml --run {mode} --mode {mode}"))
            .assert_status(1);
    }
    target.execute("ALTER TABLE log DROP CONSTRAINT log_n_check");
    setu.succeed("run pipeline.yaml --run other");
    assert_eq!(target.rows(ALL), source.rows(ALL));
}
