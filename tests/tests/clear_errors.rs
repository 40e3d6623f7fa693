//! What people see when something is wrong: one message that names the thing and the way out, an exit status, and
//! nothing of the program's inside or of anyone's secrets.

use setu_tests::server::{MD5_USER, PASSWORD, SCRAM_USER, Server};
use setu_tests::{Database, Setu};

/// From a table of a database into CSV files.
fn from_postgres(url: &str, stream: &str) -> String {
    format!(
        "pipeline: p\n\
         source:\n  connector: postgres\n  config:\n    url: \"{url}\"\n\
         destination:\n  connector: csv\n  config:\n    path: out\n\
         streams:\n  - name: \"{stream}\"\n"
    )
}

/// From a CSV file or folder into CSV files.
fn from_csv(path: &str, stream: &str) -> String {
    format!(
        "pipeline: p\n\
         source:\n  connector: csv\n  config:\n    path: \"{path}\"\n\
         destination:\n  connector: csv\n  config:\n    path: out\n\
         streams:\n  - name: \"{stream}\"\n"
    )
}

#[test]
fn a_wrong_password_names_the_user_and_hides_the_password() {
    let database = Database::new();
    for user in [SCRAM_USER, MD5_USER] {
        let wrong = "hunter2-is-wrong";
        let url = database.url_for(&format!("{user}:{wrong}"), "127.0.0.1", database.port());
        let setu = Setu::with_pipeline(&from_postgres(&url, "public.t"));
        for verb in ["check", "run", "discover"] {
            let outcome = setu.line(&format!("{verb} pipeline.yaml"));
            outcome
                .assert_clear_failure(&[user, "check the user and the password", "`url`"])
                .assert_hides(&[wrong]);
        }
    }
}

#[test]
fn a_missing_password_is_said_to_be_missing() {
    let database = Database::new();
    let url = database.url_for(SCRAM_USER, "127.0.0.1", database.port());
    let setu = Setu::with_pipeline(&from_postgres(&url, "public.t"));
    setu.line("check pipeline.yaml")
        .assert_clear_failure(&[SCRAM_USER, "password"]);
}

#[test]
fn an_unknown_host_is_named() {
    let setu = Setu::with_pipeline(&from_postgres(
        "postgres://u:sesame@no-such-host.invalid/db",
        "public.t",
    ));
    for verb in ["check", "run"] {
        let outcome = setu.line(&format!("{verb} pipeline.yaml"));
        outcome
            .assert_clear_failure(&["no-such-host.invalid:5432", "check the host", "`url`"])
            .assert_hides(&["sesame"]);
    }
}

#[test]
fn a_port_that_nobody_listens_on_is_named() {
    let port = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        listener.local_addr().expect("its address").port()
    };
    let url = format!("postgres://u:sesame@127.0.0.1:{port}/db");
    let setu = Setu::with_pipeline(&from_postgres(&url, "public.t"));
    let outcome = setu.line("run pipeline.yaml");
    outcome
        .assert_clear_failure(&[&format!("127.0.0.1:{port}"), "check the host", "`url`"])
        .assert_hides(&["sesame"]);
}

#[test]
fn a_missing_database_is_named() {
    let database = Database::new();
    let url = format!("postgres://postgres@127.0.0.1:{}/no_such_db", database.port());
    let setu = Setu::with_pipeline(&from_postgres(&url, "public.t"));
    setu.line("check pipeline.yaml")
        .assert_clear_failure(&["no_such_db", "`url`"]);
}

#[test]
fn a_missing_table_is_named_beside_those_that_exist() {
    let database = Database::new();
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)");
    let setu = Setu::with_pipeline(&from_postgres(&database.url(), "public.ordres"));
    let outcome = setu.line("run pipeline.yaml");
    outcome.assert_clear_failure(&["public.ordres", "public.orders"]);
    assert!(!setu.path("out").exists(), "nothing is written");
}

#[test]
fn a_pattern_that_matches_nothing_is_an_error() {
    let database = Database::new();
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)");
    let setu = Setu::with_pipeline(&from_postgres(&database.url(), "sales.*"));
    setu.line("run pipeline.yaml").assert_clear_failure(&["sales.*"]);
}

#[test]
fn a_missing_csv_file_is_named_with_its_path() {
    let setu = Setu::with_pipeline(&from_csv("data/absent.csv", "absent"));
    for verb in ["check", "run", "discover", "preview"] {
        let outcome = setu.line(&format!("{verb} pipeline.yaml"));
        outcome.assert_clear_failure(&["data/absent.csv"]);
    }
}

#[test]
fn a_malformed_csv_file_is_named_with_the_line() {
    let setu = Setu::with_pipeline(&from_csv("data", "t"));
    setu.write("data/t.csv", "a,b\n1,2\n3,4,5\n");
    setu.line("run pipeline.yaml")
        .assert_clear_failure(&["t.csv", "line 3"]);
}

#[test]
fn a_missing_pipeline_file_is_named() {
    let setu = Setu::new();
    setu.line("run absent.yaml")
        .assert_status(2)
        .assert_clear_failure(&["absent.yaml"]);
}

#[test]
fn a_file_that_is_not_yaml_is_an_error_with_a_place() {
    let setu = Setu::with_pipeline("pipeline: p\nsource: [unclosed\n");
    setu.line("run pipeline.yaml")
        .assert_status(2)
        .assert_clear_failure(&["pipeline.yaml:"]);
}

#[test]
fn unknown_keys_name_their_place_and_the_nearest_key() {
    let yaml = "pipeline: p\n\
                sorce:\n  connector: csv\n\
                source:\n  connector: csv\n  config:\n    path: data\n    delimeter: \";\"\n\
                destination:\n  connector: csv\n  config:\n    path: out\n\
                streams:\n  - name: t\n    wirte: append\n";
    let setu = Setu::with_pipeline(yaml);
    setu.write("data/t.csv", "a\n1\n");
    let outcome = setu.line("run pipeline.yaml");
    outcome.assert_status(2);
    // All at once, each where it stands.
    outcome.assert_clear_failure(&[
        "pipeline.yaml:2:1",
        "sorce",
        "source",
        "pipeline.yaml:15:5",
        "wirte",
        "write",
    ]);
}

#[test]
fn an_unknown_key_of_a_connectors_config_names_its_place() {
    let yaml = "pipeline: p\n\
                source:\n  connector: csv\n  config:\n    path: data\n    delimeter: \";\"\n\
                destination:\n  connector: csv\n  config:\n    path: out\n\
                streams:\n  - name: t\n";
    let setu = Setu::with_pipeline(yaml);
    setu.write("data/t.csv", "a\n1\n");
    let outcome = setu.line("run pipeline.yaml");
    outcome
        .assert_status(2)
        .assert_clear_failure(&["pipeline.yaml:6:5", "delimeter", "delimiter"]);
}

#[test]
fn a_missing_variable_is_named_with_its_place() {
    let setu = Setu::with_pipeline(&from_postgres("${SOURCE_URL}", "public.t"));
    for verb in ["run", "plan", "check"] {
        let outcome = setu.line(&format!("{verb} pipeline.yaml"));
        outcome
            .assert_status(2)
            .assert_clear_failure(&["SOURCE_URL", "pipeline.yaml:5:"]);
    }
}

#[test]
fn an_unknown_connector_is_named_beside_the_bundled_ones() {
    let yaml = from_csv("data", "t").replacen("connector: csv", "connector: cvs", 1);
    let setu = Setu::with_pipeline(&yaml);
    let outcome = setu.line("run pipeline.yaml");
    outcome
        .assert_status(2)
        .assert_clear_failure(&["cvs", "csv", "postgres"]);
}

#[test]
fn a_plugin_file_that_is_not_there_is_named() {
    let yaml = from_csv("data", "t").replacen("connector: csv", "connector: ./absent.wasm", 1);
    let setu = Setu::with_pipeline(&yaml);
    setu.line("run pipeline.yaml")
        .assert_status(2)
        .assert_clear_failure(&["absent.wasm"]);
}

#[test]
fn a_plugin_that_is_not_a_component_is_refused_by_name() {
    let yaml = from_csv("data", "t").replacen("connector: csv", "connector: ./fake.wasm", 1);
    let setu = Setu::with_pipeline(&yaml);
    // Text, an empty file, and a WebAssembly module that is no component.
    for content in [&b"#!/bin/sh\necho no\n"[..], b"", b"\0asm\x01\0\0\0"] {
        setu.write("fake.wasm", content);
        let outcome = setu.line("run pipeline.yaml");
        outcome
            .assert_status(2)
            .assert_clear_failure(&["fake.wasm", "cargo build --target wasm32-wasip2"]);
    }
}

#[test]
fn an_unknown_verb_or_option_is_a_usage_error() {
    let setu = Setu::new();
    setu.line("rum").assert_status(2);
    setu.line("run pipeline.yaml --mode sideways")
        .assert_status(2)
        .assert_clear_failure(&["sideways", "direct", "staged"]);
}

#[test]
fn an_invalid_run_id_is_refused() {
    let setu = Setu::with_pipeline(&from_csv("data", "t"));
    setu.write("data/t.csv", "a\n1\n");
    for run in ["../escape", ".hidden", "a/b", "ä"] {
        let outcome = setu.run(["run", "pipeline.yaml", "--run", run]);
        outcome.assert_status(2).assert_clear_failure(&[run]);
    }
}

#[test]
fn showing_a_run_that_does_not_exist_is_an_error() {
    let setu = Setu::with_pipeline(&from_csv("data", "t"));
    setu.write("data/t.csv", "a\n1\n");
    setu.line("show nope --pipeline pipeline.yaml")
        .assert_clear_failure(&["nothing has been staged yet"]);
    setu.succeed("extract pipeline.yaml --run there");
    setu.line("show nope --pipeline pipeline.yaml")
        .assert_clear_failure(&["nope", "there"]);
    setu.line("cat nope t --pipeline pipeline.yaml")
        .assert_clear_failure(&["nope"]);
}

#[test]
fn one_failing_stream_does_not_stop_the_others() {
    let database = Database::new();
    database.execute(
        "CREATE TABLE good (id int PRIMARY KEY); INSERT INTO good VALUES (1), (2);
         CREATE VIEW bad AS SELECT id, 1 / (id - 1) AS boom FROM good;",
    );
    let setu = Setu::with_pipeline(&from_postgres(&database.url(), "public.*"));
    for mode in ["direct", "staged"] {
        let outcome = setu.line(&format!(
            "run pipeline.yaml --mode {mode} --run {mode} --report -"
        ));
        outcome.assert_status(1);
        let report = outcome.json();
        let status = |name: &str| {
            let streams = report["streams"].as_array().expect("streams");
            let stream = streams.iter().find(|stream| stream["stream"] == name);
            stream.unwrap_or_else(|| panic!("no {name} in {report}")).clone()
        };
        assert_eq!(status("public.good")["status"], "done", "{report}");
        assert_eq!(status("public.good")["rows"], 2, "{report}");
        assert_eq!(status("public.bad")["status"], "failed", "{report}");
        let error = status("public.bad")["error"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(error.contains("division by zero"), "{report}");
    }
}

#[test]
fn tls_that_the_server_does_not_offer_is_explained() {
    let server = Server::start(false).expect("a server without TLS");
    let url = format!(
        "postgres://{SCRAM_USER}:wrong@127.0.0.1:{}/postgres?sslmode=require",
        server.port()
    );
    let setu = Setu::with_pipeline(&from_postgres(&url, "public.t"));
    setu.line("check pipeline.yaml")
        .assert_clear_failure(&["TLS", "sslmode"]);
}

/// The password has characters that a URL must escape, so it may leak in two spellings.
#[test]
fn a_failed_run_shows_no_secret_in_any_output() {
    let database = Database::new();
    let escaped = "correct%20horse%3A%20battery%2Fstaple%40%25";
    let url = database.url_for(&format!("{SCRAM_USER}:{escaped}"), "127.0.0.1", database.port());
    let setu = Setu::with_pipeline(&from_postgres(&url, "public.absent"));
    for arguments in [
        "check pipeline.yaml",
        "plan pipeline.yaml",
        "run pipeline.yaml",
        "run pipeline.yaml --report -",
        "discover pipeline.yaml",
    ] {
        setu.line(arguments).assert_hides(&[PASSWORD, escaped, "battery"]);
    }
    setu.succeed("check pipeline.yaml");
}
