//! Each verb of the command line, on data small enough to compare whole.

use setu_tests::{Database, Setu, csv_rows};

const PEOPLE: &str = "id,name,born\n1,Ada,1815-12-10\n2,Grace,1906-12-09\n3,\"Noether, Emmy\",1882-03-23\n";

fn people() -> Setu {
    let setu = Setu::with_pipeline(
        "pipeline: people\n\
         source:\n  connector: csv\n  config: { path: data, infer: true }\n\
         destination:\n  connector: csv\n  config: { path: out }\n\
         streams:\n  - name: \"*\"\n",
    );
    setu.write("data/people.csv", PEOPLE);
    setu.write("data/places.csv", "place\nLondon\n");
    setu
}

#[test]
fn check_says_that_both_ends_answer() {
    let setu = people();
    setu.succeed("check pipeline.yaml");
    assert!(
        !setu.path("out").exists() && !setu.path(".setu").exists(),
        "check changes nothing"
    );
}

#[test]
fn discover_lists_streams_columns_and_types() {
    let outcome = people().succeed("discover pipeline.yaml");
    for word in ["people", "places", "id", "int64", "name", "text", "born", "date"] {
        assert!(outcome.stdout.contains(word), "no `{word}` in\n{outcome}");
    }
}

#[test]
fn preview_shows_the_first_rows_and_moves_nothing() {
    let setu = people();
    let outcome = setu.succeed("preview pipeline.yaml --stream people");
    for word in ["Ada", "Noether, Emmy", "1906-12-09"] {
        assert!(outcome.stdout.contains(word), "no `{word}` in\n{outcome}");
    }
    assert!(!outcome.stdout.contains("London"), "another stream:\n{outcome}");
    assert!(
        !setu.path("out").exists() && !setu.path(".setu").exists(),
        "preview changes nothing"
    );
}

#[test]
fn plan_shows_streams_and_what_each_connector_may_reach_and_moves_nothing() {
    let setu = people();
    let outcome = setu.succeed("plan pipeline.yaml");
    let data = setu.path("data");
    for word in ["people", "places", "csv", &*data.to_string_lossy()] {
        assert!(outcome.stdout.contains(word), "no `{word}` in\n{outcome}");
    }
    assert!(!setu.path("out").exists(), "plan moves nothing");
}

#[test]
fn a_job_file_is_for_its_owner_only_and_works_elsewhere_without_the_pipeline_file() {
    use std::os::unix::fs::PermissionsExt;
    let setu = people();
    setu.succeed("plan pipeline.yaml --job-out job.json");
    let metadata = std::fs::metadata(setu.path("job.json")).expect("a job file");
    assert_eq!(
        metadata.permissions().mode() & 0o777,
        0o600,
        "it may hold secrets"
    );
    let job = setu.path("job.json");
    let elsewhere = Setu::new();
    elsewhere.succeed(&format!("extract --job {} --run r1", job.display()));
    elsewhere.succeed(&format!("load --job {} --run r1", job.display()));
    assert_eq!(csv_rows(&setu.read("out/people.csv")), csv_rows(PEOPLE));
}

#[test]
fn a_job_holds_the_variables_that_were_set_when_it_was_planned() {
    let database = Database::new();
    database.execute("CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)");
    let mut setu = Setu::with_pipeline(
        "pipeline: p\n\
         source: { connector: postgres, config: { url: \"${SOURCE_URL}\" } }\n\
         destination: { connector: csv, config: { path: \"${OUT:-out}\" } }\n\
         streams: [{ name: public.t }]\n",
    );
    setu.set("SOURCE_URL", &database.url());
    setu.succeed("plan pipeline.yaml --job-out job.json");
    let elsewhere = Setu::new();
    let job = setu.path("job.json");
    elsewhere.succeed(&format!("extract --job {} --run r1", job.display()));
    elsewhere.succeed(&format!("load --job {} --run r1", job.display()));
    assert_eq!(setu.read("out/public.t.csv"), "id\n1\n");
}

#[test]
fn show_cat_and_runs_look_into_a_staged_run() {
    let setu = people();
    setu.succeed("run pipeline.yaml --mode staged --run first");
    let runs = setu.succeed("runs --pipeline pipeline.yaml");
    assert!(runs.stdout.contains("first"), "{runs}");
    let show = setu.succeed("show first --pipeline pipeline.yaml");
    for word in ["people", "places", "3", "1"] {
        assert!(show.stdout.contains(word), "no `{word}` in\n{show}");
    }
    let cat = setu.succeed("cat first people --pipeline pipeline.yaml");
    let rows: Vec<serde_json::Value> = cat
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert_eq!(
        rows,
        [
            serde_json::json!({"id": 1, "name": "Ada", "born": "1815-12-10"}),
            serde_json::json!({"id": 2, "name": "Grace", "born": "1906-12-09"}),
            serde_json::json!({"id": 3, "name": "Noether, Emmy", "born": "1882-03-23"}),
        ]
    );
}

#[test]
fn only_the_chosen_streams_are_moved() {
    let setu = people();
    let report = setu.report("run pipeline.yaml --stream places");
    let streams = report["streams"].as_array().expect("streams");
    assert_eq!(streams.len(), 1, "{report}");
    assert_eq!(streams[0]["stream"], "places");
    assert!(setu.path("out/places.csv").exists());
    assert!(!setu.path("out/people.csv").exists());
    setu.line("run pipeline.yaml --stream nothing")
        .assert_clear_failure(&["nothing", "people", "places"]);
}

#[test]
fn a_report_counts_rows_bytes_and_parts() {
    let setu = people();
    let staged = setu.report("run pipeline.yaml --mode staged --run a");
    assert_eq!(staged["run"], "a");
    assert_eq!(staged["mode"], "staged");
    assert!(staged["elapsedMs"].is_u64(), "{staged}");
    let streams = staged["streams"].as_array().expect("streams");
    let find = |name: &str| {
        let found = streams.iter().find(|stream| stream["stream"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {staged}"))
    };
    let stream = find("people");
    assert_eq!(stream["status"], "done");
    assert_eq!(stream["rows"], 3);
    assert_eq!(stream["parts"], 1);
    assert_eq!(stream["partsSkipped"], 0);
    assert!(stream["bytes"].as_u64() > Some(0), "{staged}");
    assert!(stream["error"].is_null());
    assert_eq!(find("places")["rows"], 1);

    let direct = setu.report("run pipeline.yaml --mode direct --run b");
    assert_eq!(direct["mode"], "direct");
    assert_eq!(direct["streams"][0]["parts"], 0, "{direct}");

    setu.succeed("run pipeline.yaml --run c --report report.json");
    let file: serde_json::Value = serde_json::from_str(&setu.read("report.json")).expect("JSON");
    assert_eq!(file["run"], "c");
}

#[test]
fn small_deltas_go_direct_and_large_ones_are_staged() {
    let mut setu = people();
    let auto = setu.report("run pipeline.yaml --run small");
    assert_eq!(auto["mode"], "direct", "{auto}");
    setu.set("SETU_DIRECT_MAX_ROWS", "2");
    let auto = setu.report("run pipeline.yaml --run large --stream people");
    assert_eq!(auto["mode"], "staged", "{auto}");
    setu.set("SETU_DIRECT_MAX_ROWS", "3");
    let auto = setu.report("run pipeline.yaml --run limit --stream people");
    assert_eq!(auto["mode"], "direct", "as many rows as the limit: {auto}");
}

#[test]
fn piped_output_has_no_control_characters() {
    let setu = people();
    let outcome = setu.succeed("run pipeline.yaml --mode staged");
    assert!(
        !outcome.text().contains('\u{1b}') && !outcome.text().contains('\r'),
        "{outcome:?}"
    );
    assert!(outcome.text().contains("people"), "{outcome}");
}

#[test]
fn logs_for_machines_are_json_lines() {
    let setu = people();
    let outcome = setu.succeed("run pipeline.yaml --log-format json");
    assert!(!outcome.stderr.trim().is_empty(), "{outcome}");
    for line in outcome.stderr.lines() {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(
            parsed.is_ok_and(|value| value.is_object()),
            "not a JSON object: {line}"
        );
    }
}

#[test]
fn the_blob_store_can_come_from_the_environment() {
    let mut setu = people();
    let root = setu.path("elsewhere");
    setu.set("SETU_BLOB_BACKEND", "fs");
    setu.set("SETU_BLOB_FS_ROOT", &root.to_string_lossy());
    setu.succeed("run pipeline.yaml --mode staged --run r1");
    assert!(root.join("ws/default/pl/people/run/r1/_run.json").exists());
    assert!(!setu.path(".setu").exists());
}

#[test]
fn the_default_blob_store_lies_beside_the_pipeline_file() {
    let setu = Setu::new();
    setu.write("deep/pipeline.yaml", "pipeline: p\nsource: { connector: csv, config: { path: data } }\ndestination: { connector: csv, config: { path: out } }\nstreams: [{ name: t }]\n");
    setu.write("deep/data/t.csv", "a\n1\n");
    setu.succeed("run deep/pipeline.yaml --mode staged --run r1");
    assert!(
        setu.path("deep/.setu/blob/ws/default/pl/p/run/r1/_run.json")
            .exists()
    );
    assert_eq!(setu.read("deep/out/t.csv"), "a\n1\n");
}
