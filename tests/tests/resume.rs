//! A process that is killed in its middle, and the same command again: the result is as if nothing had happened.

use setu_tests::many::{self, DIGEST, ROWS};
use setu_tests::{Database, Outcome, Proxy, kill, staged_keys, wait_until};

#[test]
fn an_extract_that_was_killed_goes_on_after_its_last_named_part() {
    let source = many::source();
    let target = Database::new();
    let proxy = Proxy::new(source.port());
    let setu = many::pipeline(&source.url_through(&proxy), &target.url(), "overwrite");
    let staged = many::staged(&setu);

    let extract = many::stalling_extract(&setu, "extract pipeline.yaml --run r1", &proxy, 2);
    kill(extract);
    let first = staged.manifest();
    let kept = first["parts"].as_array().expect("parts").len();
    assert_eq!(first["status"], "extracting");
    let early = |index: usize| {
        let path = setu
            .path("blob")
            .join(staged.key(&format!("part-{index:06}.jsonl.gz")));
        std::fs::metadata(path)
            .and_then(|part| part.modified())
            .expect("a part")
    };
    let before: Vec<_> = (0..kept).map(early).collect();

    proxy.open();
    let report = setu.report("extract pipeline.yaml --run r1");
    assert_eq!(report["streams"][0]["rows"], ROWS, "{report}");
    assert_eq!(report["streams"][0]["partsSkipped"], kept, "{report}");
    let after: Vec<_> = (0..kept).map(early).collect();
    assert_eq!(before, after, "named parts are not written again");
    let ids: Vec<i64> = staged.rows().iter().filter_map(|row| row[0].as_i64()).collect();
    assert!(ids.iter().copied().eq(1..=ROWS as i64), "each row once, in order");
    setu.succeed("load pipeline.yaml --run r1");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

#[test]
fn an_extract_that_cannot_be_resumed_starts_over() {
    let source = Database::new();
    // A view has no key that an order could come from.
    source.execute(&format!(
        "CREATE VIEW many AS SELECT i AS id, md5(i::text) AS h FROM generate_series(1, {ROWS}) i"
    ));
    let target = Database::new();
    let proxy = Proxy::new(source.port());
    let setu = many::pipeline(&source.url_through(&proxy), &target.url(), "overwrite");
    let extract = many::stalling_extract(&setu, "extract pipeline.yaml --run r1", &proxy, 1);
    kill(extract);

    proxy.open();
    setu.succeed("run pipeline.yaml --mode staged --run r1");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

#[test]
fn an_extract_of_a_table_that_was_emptied_and_filled_anew_starts_over() {
    let source = many::source();
    let target = Database::new();
    let proxy = Proxy::new(source.port());
    let setu = many::pipeline(&source.url_through(&proxy), &target.url(), "overwrite");
    let extract = many::stalling_extract(&setu, "extract pipeline.yaml --run r1", &proxy, 1);
    kill(extract);

    // The server notices that the reader is gone when it writes on, and lets go of the table.
    proxy.open();
    source.execute(&format!(
        "TRUNCATE many; INSERT INTO many SELECT i, 'anew' FROM generate_series(1, {ROWS}) i"
    ));
    let report = setu.report("run pipeline.yaml --mode staged --run r1");
    assert_eq!(report["streams"][0]["partsSkipped"], 0, "{report}");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

/// Kills a load once some of its rows are durable, then loads again.
fn kill_a_load(write: &str, committed: impl Fn(&Database) -> bool) {
    let source = many::source();
    let target = Database::new();
    let proxy = Proxy::new(target.port());
    let setu = many::pipeline(&source.url(), &target.url_through(&proxy), write);
    setu.succeed("extract pipeline.yaml --run r1");

    let load = many::stalling_load(&setu, "load pipeline.yaml --run r1", &proxy);
    wait_until("a commit is made", || committed(&target));
    kill(load);

    proxy.open();
    let report = setu.report("load pipeline.yaml --run r1");
    assert!(
        report["streams"][0]["partsSkipped"].as_u64() >= Some(1),
        "committed parts are not written again: {report}"
    );
    assert_eq!(report["streams"][0]["rows"], ROWS, "{report}");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST), "{write}");
}

#[test]
fn an_append_that_was_killed_writes_no_row_twice() {
    kill_a_load("append", |target| {
        target.value("SELECT to_regclass('public.many')").is_some()
            && target.value("SELECT count(*) FROM many").as_deref() != Some("0")
    });
}

#[test]
fn an_upsert_that_was_killed_writes_every_row() {
    kill_a_load("upsert", |target| {
        target.value("SELECT to_regclass('public.many')").is_some()
            && target.value("SELECT count(*) FROM many").as_deref() != Some("0")
    });
}

#[test]
fn an_overwrite_that_was_killed_leaves_the_old_table_until_it_is_complete() {
    let source = many::source();
    let target = Database::new();
    target.execute("CREATE TABLE many (id int PRIMARY KEY, h text); INSERT INTO many VALUES (-1, 'old')");
    let proxy = Proxy::new(target.port());
    let setu = many::pipeline(&source.url(), &target.url_through(&proxy), "overwrite");
    setu.succeed("extract pipeline.yaml --run r1");
    let load = many::stalling_load(&setu, "load pipeline.yaml --run r1", &proxy);
    assert_eq!(
        target.value("SELECT h FROM many").as_deref(),
        Some("old"),
        "readers see the old table"
    );
    kill(load);
    assert_eq!(target.value("SELECT h FROM many").as_deref(), Some("old"));

    proxy.open();
    setu.succeed("load pipeline.yaml --run r1");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

#[test]
fn a_direct_append_that_was_killed_leaves_nothing_behind() {
    let source = many::source();
    let target = Database::new();
    let proxy = Proxy::new(target.port());
    let setu = many::pipeline(&source.url(), &target.url_through(&proxy), "append");
    let run = many::stalling_load(&setu, "run pipeline.yaml --mode direct --run r1", &proxy);
    kill(run);

    proxy.open();
    setu.succeed("run pipeline.yaml --mode direct --run r1");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

#[test]
fn a_finished_run_that_is_started_again_writes_nothing() {
    let source = Database::new();
    source.execute(
        "CREATE TABLE many (id int PRIMARY KEY, h text); INSERT INTO many VALUES (1, 'a'), (2, 'b')",
    );
    for mode in ["direct", "staged"] {
        let target = Database::new();
        let setu = many::pipeline(&source.url(), &target.url(), "append");
        let command = format!("run pipeline.yaml --mode {mode} --run r1");
        setu.succeed(&command);
        let staged = staged_keys(&setu.path("blob"));
        // A row that arrives later belongs to another run.
        source.execute("INSERT INTO many VALUES (3, 'c') ON CONFLICT DO NOTHING");
        setu.succeed(&command);
        assert_eq!(
            target.value("SELECT count(*) FROM many").as_deref(),
            Some("2"),
            "{mode}"
        );
        assert_eq!(staged_keys(&setu.path("blob")), staged, "{mode}");
        source.execute("DELETE FROM many WHERE id = 3");
    }
}

#[test]
fn a_run_without_an_id_goes_on_with_the_newest_unfinished_one() {
    let source = many::source();
    let target = Database::new();
    let proxy = Proxy::new(target.port());
    let setu = many::pipeline(&source.url(), &target.url_through(&proxy), "append");
    let run = many::stalling_load(&setu, "run pipeline.yaml --mode staged", &proxy);
    kill(run);
    proxy.open();
    setu.succeed("run pipeline.yaml --mode staged");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
    let runs = staged_keys(&setu.path("blob"))
        .iter()
        .filter(|key| key.ends_with("_run.json"))
        .count();
    assert_eq!(runs, 1, "one run, two attempts");

    // Finished now: the next command is another run, and the key of the rows of the first stands in its way.
    let again = setu.line("run pipeline.yaml --mode staged");
    again
        .assert_status(1)
        .assert_clear_failure(&["public.many", "duplicate key"]);
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

#[test]
fn a_stream_that_is_still_extracting_is_not_loaded() {
    let source = many::source();
    let target = Database::new();
    let proxy = Proxy::new(source.port());
    let setu = many::pipeline(&source.url_through(&proxy), &target.url(), "append");
    let extract = many::stalling_extract(&setu, "extract pipeline.yaml --run r1", &proxy, 1);
    let outcome = setu.line("load pipeline.yaml --run r1");
    outcome
        .assert_status(1)
        .assert_clear_failure(&["public.many", "extract", "--wait"]);
    assert_eq!(
        target.value("SELECT to_regclass('public.many')"),
        None,
        "nothing is written"
    );

    let mut load = setu.spawn("load pipeline.yaml --run r1 --wait");
    proxy.open();
    Outcome::of(extract).assert_status(0);
    assert!(
        load.wait().expect("it ends").success(),
        "--wait loads what has become complete"
    );
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}

#[test]
fn an_interrupt_exits_with_130_and_the_same_command_goes_on() {
    let source = many::source();
    let target = Database::new();
    let proxy = Proxy::new(source.port());
    let setu = many::pipeline(&source.url_through(&proxy), &target.url(), "append");
    let run = many::stalling_extract(&setu, "run pipeline.yaml --mode staged --run r1", &proxy, 1);
    let interrupt = std::process::Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    assert!(interrupt.expect("kill").success());
    Outcome::of(run).assert_status(130);

    proxy.open();
    setu.succeed("run pipeline.yaml --mode staged --run r1");
    assert_eq!(target.rows(DIGEST), source.rows(DIGEST));
}
