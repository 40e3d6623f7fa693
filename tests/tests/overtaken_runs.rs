//! Runs of one pipeline that overlap: what another run has loaded further is neither loaded again nor gone back to.

use setu_tests::{Database, Setu, kill};

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

#[test]
fn a_run_that_has_read_nothing_begins_again_where_the_stream_is_by_then() {
    let (source, target) = (source(), Database::new());
    let setu = pipeline(&source, &target, LOG);
    let more = "INSERT INTO log SELECT max(n) + 1, 'more' FROM log";
    for mode in ["direct", "staged"] {
        source.execute(more);
        let crash = match mode {
            "direct" => "before-put-state",
            _ => "before-put-part",
        };
        let run = format!("run pipeline.yaml --run {mode} --mode {mode}");
        let died = setu.line_with(&run, &[("SETU_CRASH_AT", crash)]);
        assert_eq!(died.status, None, "{died}");
        setu.succeed(&format!("run pipeline.yaml --run before-{mode}"));
        source.execute(more);
        if mode == "staged" {
            setu.succeed(&run);
        } else {
            // Its rows may be at the destination, as far as anybody can tell.
            setu.line(&run)
                .assert_status(1)
                .assert_clear_failure(&["it cannot be gone on with, so start a new run"]);
            setu.succeed("run pipeline.yaml");
        }
        assert_eq!(target.rows(ALL), source.rows(ALL), "{mode}");
    }
}

#[test]
fn a_stream_whose_cursor_is_another_one_now_is_not_appended_again() {
    let (source, target) = (source(), Database::new());
    source.execute("ALTER TABLE log ADD m bigint; UPDATE log SET m = n");
    let setu = pipeline(&source, &target, LOG);
    setu.succeed("extract pipeline.yaml --run A");
    let by_m = setu.read("pipeline.yaml").replace("cursor: n", "cursor: m");
    setu.write("by_m.yaml", &by_m);
    setu.succeed("run by_m.yaml --run B");
    setu.line("load pipeline.yaml --run A")
        .assert_status(1)
        .assert_clear_failure(&["public.log", "run `B`", "start a new run"]);
    let way_out = ["public.log", "keep `cursor: m`", "state/public_log.json"];
    setu.line("run pipeline.yaml")
        .assert_status(1)
        .assert_clear_failure(&way_out);
    let planned = setu.line("plan pipeline.yaml");
    planned.assert_status(2);
    assert!(
        way_out.iter().all(|word| planned.stderr.contains(word)),
        "{planned}"
    );
    assert_eq!(target.rows("SELECT * FROM log ORDER BY n"), source.rows(ALL));
}

#[test]
fn a_cursor_without_values_does_not_append_the_same_rows_in_every_run() {
    let (source, target) = (source(), Database::new());
    source.execute("UPDATE log SET n = NULL");
    let setu = pipeline(&source, &target, LOG);
    for mode in ["direct", "staged"] {
        setu.line(&format!("run pipeline.yaml --mode {mode}"))
            .assert_status(1)
            .assert_clear_failure(&["public.log", "cursor `n`", "write: upsert"]);
    }
    assert_eq!(target.rows("SELECT count(*) FROM log"), [[Some("0".to_owned())]]);
    source.execute("INSERT INTO log VALUES (1, 'filled')");
    setu.succeed("run pipeline.yaml");
    setu.succeed("run pipeline.yaml");
    let sorted = "SELECT * FROM log ORDER BY n, t";
    assert_eq!(target.rows(sorted), source.rows(sorted));
}

#[test]
fn texts_move_in_the_order_of_their_column() {
    let (source, target) = (source(), Database::new());
    source.execute(
        "CREATE TABLE named (name text COLLATE \"en-x-icu\");
         INSERT INTO named VALUES ('a')",
    );
    let setu = pipeline(
        &source,
        &target,
        "  - { name: public.named, mode: incremental, cursor: name, write: append }\n",
    );
    let rows = "SELECT name FROM named ORDER BY name COLLATE \"C\"";
    // B is behind a there, and before it by its bytes.
    for more in [
        "",
        "INSERT INTO named VALUES ('B')",
        "INSERT INTO named VALUES ('c'), ('D')",
    ] {
        source.execute(more);
        for mode in ["direct", "staged"] {
            setu.succeed(&format!("run pipeline.yaml --mode {mode}"));
            assert_eq!(target.rows(rows), source.rows(rows), "{more} {mode}");
        }
    }
}

/// Another program has staged it: of the run there are only manifests and parts.
fn leave_manifests_only(setu: &Setu, run: &str) {
    for name in ["_run.json", "_extract.json"] {
        let path = setu.path(format!("blob/ws/default/pl/p/run/{run}/{name}"));
        std::fs::remove_file(&path).expect("it is there");
    }
}

#[test]
fn what_another_program_has_staged_is_not_loaded_once_a_run_has_loaded_it() {
    for (stream, all) in [(LOG, ALL), (ITEM, "SELECT * FROM item ORDER BY id")] {
        let (source, target) = (source(), Database::new());
        let setu = pipeline(&source, &target, stream);
        for run in ["A", "B", "C"] {
            setu.succeed(&format!("extract pipeline.yaml --run {run}"));
        }
        leave_manifests_only(&setu, "A");
        leave_manifests_only(&setu, "B");
        setu.succeed("load pipeline.yaml --run A");
        assert_eq!(target.rows(all), source.rows(all), "{stream}");
        source.execute("INSERT INTO log VALUES (3, 'c'); UPDATE item SET at = at + 10, t = 'new'");
        setu.succeed("run pipeline.yaml --run D");
        for run in ["B", "C"] {
            setu.line(&format!("load pipeline.yaml --run {run}"))
                .assert_status(1)
                .assert_clear_failure(&["public.", "run `D`"]);
            assert_eq!(target.rows(all), source.rows(all), "{stream} {run}");
        }
        // What comes after that is loaded.
        source.execute("INSERT INTO log VALUES (4, 'd'); UPDATE item SET at = at + 10, t = 'newer'");
        setu.succeed("extract pipeline.yaml --run E");
        leave_manifests_only(&setu, "E");
        setu.succeed("load pipeline.yaml --run E");
        assert_eq!(target.rows(all), source.rows(all), "{stream}");
    }
}

#[test]
fn a_removed_runs_id_is_not_taken_for_that_run_in_any_attempt() {
    for (stream, write) in [
        ("public.log", "append"),
        ("public.log", "overwrite"),
        ("public.item", "upsert"),
    ] {
        let (source, target) = (source(), Database::new());
        let settings = format!("  - {{ name: {stream}, mode: full, write: {write} }}\n");
        let setu = pipeline(&source, &target, &settings);
        setu.succeed("run pipeline.yaml --run A --mode staged");
        let table = stream.strip_prefix("public.").expect("a schema");
        let all = format!("SELECT * FROM {table} ORDER BY 1");
        let before = target.rows(&all);
        setu.succeed("gc pipeline.yaml --older-than 0s");
        source.execute("UPDATE log SET t = 'new'; UPDATE item SET t = 'new'");
        for mode in ["staged", "staged", "direct"] {
            let died = format!("run pipeline.yaml --run A --mode {mode}");
            if mode == "staged" {
                setu.line_with(&died, &[("SETU_CRASH_AT", "before-put-part")]);
            }
            let line = match mode {
                "staged" => died,
                _ => "run pipeline.yaml --run A".to_owned(),
            };
            setu.line(&line)
                .assert_status(1)
                .assert_clear_failure(&[stream, "used before and removed since", "take another id"])
                .assert_clear_failure(&["it cannot be gone on with, so start a new run"]);
            assert_eq!(target.rows(&all), before, "{write}");
        }
        setu.succeed("run pipeline.yaml --run B");
        if write != "append" {
            assert_eq!(target.rows(&all), source.rows(&all), "{write}");
        }
    }
}

#[test]
fn a_damaged_state_ends_its_own_stream_and_names_the_way_out() {
    let (source, target) = (source(), Database::new());
    let setu = pipeline(&source, &target, &format!("{LOG}{ITEM}"));
    setu.succeed("run pipeline.yaml");
    source.execute("INSERT INTO log VALUES (3, 'c'); INSERT INTO item VALUES (3, 3, 'c')");
    // An unfinished run, which is asked whether it is current before any stream begins.
    let died = setu.line_with(
        "run pipeline.yaml --run Z --stream public.item",
        &[("SETU_CRASH_AT", "before-commit")],
    );
    assert_eq!(died.status, None, "{died}");
    let state = "blob/ws/default/pl/p/state/public_log.json";
    let whole = setu.read(state);
    for damaged in ["{", &whole.replace("\"2\"", "\"two\"")] {
        setu.write(state, damaged);
        setu.line("run pipeline.yaml")
            .assert_status(1)
            .assert_clear_failure(&["public.log", "state/public_log.json", "remove it"]);
        let items = "SELECT * FROM item ORDER BY id";
        assert_eq!(target.rows(items), source.rows(items), "{damaged}");
    }
    setu.write(state, &whole);
    setu.succeed("run pipeline.yaml");
    assert_eq!(target.rows(ALL), source.rows(ALL));
}

#[test]
fn runs_that_start_at_once_into_a_table_that_is_missing_do_not_meet_in_making_it() {
    for _ in 0..3 {
        let (source, target) = (source(), Database::new());
        let setu = pipeline(&source, &target, ITEM);
        let all = "SELECT * FROM item ORDER BY id";
        std::thread::scope(|scope| {
            for run in 0..4 {
                let (setu, line) = (&setu, format!("run pipeline.yaml --run r{run}"));
                scope.spawn(move || {
                    let ended = setu.line(&line);
                    assert!(
                        !ended.stderr.contains("already exists") && !ended.stderr.contains("pg_type"),
                        "{ended}"
                    );
                });
            }
        });
        setu.succeed("run pipeline.yaml --run last");
        assert_eq!(target.rows(all), source.rows(all));
    }
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
            .assert_clear_failure(&["public.log", "--run A", "setu give-up"]);
        assert_eq!(target.rows(ALL), source.rows(ALL), "{line}");
    }
    let planned = setu.succeed("plan pipeline.yaml").stdout;
    assert!(
        planned.contains("run A has begun to load stream public.log"),
        "{planned}"
    );
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
    setu.line("give-up pipeline.yaml --run B")
        .assert_status(1)
        .assert_clear_failure(&["no run `B` to give up", "setu runs"]);
    let left = |run: &str| {
        let printed = setu
            .succeed(&format!("give-up pipeline.yaml --run {run} --json"))
            .stdout;
        serde_json::from_str::<serde_json::Value>(&printed).expect("JSON")
    };
    let two_rows = serde_json::json!([{ "stream": "public.log", "rows": 2 }]);
    assert_eq!(left("A"), two_rows);
    assert_eq!(left("A"), two_rows, "again");
    target.execute("DELETE FROM log");
    assert!(
        setu.succeed("runs --pipeline pipeline.yaml")
            .stdout
            .contains("given up")
    );
    for verb in ["load", "run", "extract"] {
        setu.line(&format!("{verb} pipeline.yaml --run A"))
            .assert_status(1)
            .assert_clear_failure(&["run `A` was given up", "start a new run"]);
    }
    // Not removed while a stream waits for it.
    setu.succeed("gc pipeline.yaml --older-than 0s");
    // Without a name, too, it is another run that is made.
    setu.succeed("run pipeline.yaml");
    assert_eq!(target.rows(ALL), source.rows(ALL));
    setu.line("load pipeline.yaml --run A").assert_status(1);
    assert_eq!(target.rows(ALL), source.rows(ALL));
    // Whether anything waits for it or not.
    assert_eq!(left("A"), serde_json::json!([]));
    setu.succeed("gc pipeline.yaml --older-than 0s");
    setu.line("give-up pipeline.yaml --run A")
        .assert_status(1)
        .assert_clear_failure(&["no run `A` to give up"]);
    setu.succeed("run pipeline.yaml --run done");
    setu.line("give-up pipeline.yaml --run done")
        .assert_status(1)
        .assert_clear_failure(&["run `done` has come to its end"]);
}

#[test]
fn a_file_has_nothing_of_a_run_that_is_given_up() {
    let source = source();
    let setu = Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         destination: {{ connector: csv, config: {{ path: out }} }}\n\
         streams:\n{LOG}\
         staging: {{ backend: fs, fsRoot: blob }}\n",
        source.url()
    ));
    let file = "out/public.log.csv";
    setu.succeed("run pipeline.yaml --run first");
    let first = setu.read(file);
    source.execute("INSERT INTO log VALUES (3, 'c')");
    setu.succeed("extract pipeline.yaml --run A");
    load_half(&setu, "A");
    setu.line("run pipeline.yaml")
        .assert_status(1)
        .assert_clear_failure(&["public.log", "setu give-up"]);
    let said = setu.succeed("give-up pipeline.yaml --run A");
    assert!(
        said.stdout
            .lines()
            .any(|line| line.split_whitespace().eq(["public.log", "1"])),
        "{said}"
    );
    assert_eq!(setu.read(file), first);
    setu.succeed("run pipeline.yaml");
    let rows: Vec<_> = setu.read(file).lines().skip(1).map(str::to_owned).collect();
    assert_eq!(rows, ["1,a", "2,b", "3,c"]);
}

#[test]
fn a_half_appended_run_of_which_nothing_is_left_is_given_up_by_its_name() {
    let (source, target) = (source(), Database::new());
    let setu = pipeline(&source, &target, LOG);
    setu.succeed("extract pipeline.yaml --run A");
    load_half(&setu, "A");
    setu.succeed("gc pipeline.yaml --older-than 0s --unfinished");
    setu.line("run pipeline.yaml")
        .assert_status(1)
        .assert_clear_failure(&["public.log", "nothing else is left of it", "setu give-up"]);
    let said = setu.succeed("give-up pipeline.yaml --run A");
    assert!(said.stdout.contains("public.log"), "{said}");
    target.execute("DELETE FROM log");
    setu.succeed("run pipeline.yaml");
    assert_eq!(target.rows(ALL), source.rows(ALL));
}

#[test]
fn a_commit_under_way_is_ended_or_awaited_before_another_run_loads() {
    let (source, target) = (source(), Database::new());
    target.execute(
        "CREATE TABLE log (n bigint, t text);
         CREATE TABLE pace (seconds int);
         INSERT INTO pace VALUES (5);
         CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN PERFORM pg_sleep(seconds) FROM pace; RETURN NULL; END $$;
         CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON log DEFERRABLE INITIALLY DEFERRED
           FOR EACH ROW WHEN (NEW.n = 1) EXECUTE FUNCTION wait()",
    );
    let setu = pipeline(&source, &target, LOG);
    let loading = setu.spawn("run pipeline.yaml --run A");
    let committing = "SELECT count(*) FROM pg_stat_activity \
                      WHERE datname = current_database() AND wait_event = 'PgSleep'";
    while target.rows(committing) == [[Some("0".to_owned())]] {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    setu.line("give-up pipeline.yaml --run A")
        .assert_status(1)
        .assert_clear_failure(&["run `A` cannot be given up", &format!("process {}", loading.id())]);
    kill(loading);
    target.execute("UPDATE pace SET seconds = 0");
    let said = setu.succeed("give-up pipeline.yaml --run A --json");
    assert_eq!(
        said.stdout.split_whitespace().collect::<String>(),
        r#"[{"stream":"public.log","rows":0}]"#
    );
    // Whatever became of it has become of it by then.
    assert_eq!(target.rows("SELECT count(*) FROM log"), [[Some("0".to_owned())]]);
    setu.succeed("run pipeline.yaml --run B");
    let others = "SELECT count(*) FROM pg_stat_activity \
                  WHERE datname = current_database() AND pid <> pg_backend_pid()";
    while target.rows(others) != [[Some("0".to_owned())]] {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
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
    // A process that still loaded A would be refused by the destination, too.
    let attempts = target.rows("SELECT attempt FROM _setu_loads ORDER BY load_id");
    assert_eq!(attempts, [[Some("2".to_owned())], [Some("1".to_owned())]]);
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
