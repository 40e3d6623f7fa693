//! Retention: old runs go, what is under way or waits to be loaded stays, and so does the state.

use setu_tests::{Database, Outcome, Proxy, Setu, many, staged_keys};

fn pipeline(source: &str, target: &Database) -> Setu {
    let stream = "mode: incremental, cursor: id";
    Setu::with_pipeline(&many::yaml(source, &target.url(), stream, many::STAGING))
}

/// The runs of which anything is left.
fn runs(setu: &Setu) -> Vec<String> {
    let mut runs: Vec<String> = staged_keys(&setu.path("blob"))
        .iter()
        .filter_map(|key| key.split("/run/").nth(1)?.split('/').next().map(str::to_owned))
        .collect();
    runs.dedup();
    runs
}

#[test]
fn old_runs_are_removed_and_the_next_run_goes_on_from_the_state() {
    let (source, target) = (many::source_of(100), Database::new());
    let setu = pipeline(&source.url(), &target);
    for run in ["a", "b", "c"] {
        source.execute("INSERT INTO many SELECT max(id) + 1, 'new' FROM many");
        setu.succeed(&format!("run pipeline.yaml --mode staged --run {run}"));
    }
    source.execute("INSERT INTO many SELECT max(id) + 1, 'new' FROM many");
    setu.succeed("extract pipeline.yaml --run waiting");
    let before = staged_keys(&setu.path("blob"));

    setu.succeed("gc pipeline.yaml --older-than 1h");
    assert_eq!(staged_keys(&setu.path("blob")), before, "nothing is that old");
    let dry = setu
        .succeed("gc pipeline.yaml --older-than 0s --dry-run --json")
        .json();
    let named: Vec<_> = dry
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| one["run"].clone())
        .collect();
    assert_eq!(named, ["a", "b", "c"]);
    assert_eq!(
        staged_keys(&setu.path("blob")),
        before,
        "a dry run removes nothing"
    );

    setu.succeed("gc pipeline.yaml --keep-last 2");
    assert_eq!(runs(&setu), ["c", "waiting"]);
    let left = staged_keys(&setu.path("blob"));
    setu.succeed("gc pipeline.yaml --keep-last 2");
    assert_eq!(staged_keys(&setu.path("blob")), left, "once more changes nothing");

    setu.succeed("load pipeline.yaml --run waiting");
    setu.succeed("gc pipeline.yaml --older-than 0s");
    assert_eq!(runs(&setu), [""; 0]);
    source.execute("INSERT INTO many SELECT max(id) + 1, 'new' FROM many");
    let report = setu.report("run pipeline.yaml");
    assert_eq!(report["streams"][0]["rows"], 2, "from the state on: {report}");
    let all = "SELECT * FROM many ORDER BY id";
    assert_eq!(target.rows(all), source.rows(all));
}

#[test]
fn a_run_under_way_is_left_alone_and_comes_through() {
    let (source, target) = (many::source(), Database::new());
    let proxy = Proxy::new(source.port());
    let setu = pipeline(&source.url_through(&proxy), &target);
    let extract = many::stalling_extract(&setu, "extract pipeline.yaml --run r1", &proxy, 1);
    let collected = setu
        .succeed("gc pipeline.yaml --older-than 0s --unfinished --json")
        .json();
    assert_eq!(collected, serde_json::json!([]));
    proxy.open();
    Outcome::of(extract).assert_status(0);
    setu.succeed("load pipeline.yaml --run r1");
    assert_eq!(
        target.value("SELECT count(*) FROM many"),
        Some(many::ROWS.to_string())
    );
}

#[test]
fn a_pipeline_that_never_ran_has_nothing_to_remove() {
    let setu = pipeline("postgres://nobody@127.0.0.1:1/none", &Database::new());
    setu.succeed("gc pipeline.yaml --older-than 7d");
    setu.line("gc pipeline.yaml")
        .assert_status(2)
        .assert_clear_failure(&["--older-than"]);
    setu.line("gc pipeline.yaml --older-than soon")
        .assert_status(2)
        .assert_clear_failure(&["soon", "7d"]);
}
