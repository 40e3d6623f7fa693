//! Third-party connectors are what they were when they were first used, and tell neither secrets nor lies about what
//! they were denied.

use setu_tests::Setu;

static PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/setu_guest_probe.wasm"));

/// Another component that does the same: with a custom section, `\0` its type, 2 its size, 1 the size of its name.
fn changed() -> Vec<u8> {
    [PROBE, &[0, 2, 1, b'x']].concat()
}

fn pipeline(config: &str) -> Setu {
    let setu = Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source: {{ connector: ./plugins/probe.wasm, config: {config} }}\n\
         destination: {{ connector: csv, config: {{ path: out }} }}\n\
         streams: [t]\n"
    ));
    setu.write("plugins/probe.wasm", PROBE);
    setu
}

#[test]
fn a_connector_is_pinned_on_first_use_and_refused_once_it_has_changed() {
    let setu = pipeline("{ behaviour: rows }");
    let outcome = setu.succeed("discover pipeline.yaml");
    assert!(
        outcome
            .stderr
            .contains("setu.lock: pinned ./plugins/probe.wasm, which is probe 1.2.3"),
        "{outcome}"
    );
    let lock = setu.read("setu.lock");
    for word in ["./plugins/probe.wasm", "probe", "1.2.3", "sha256:"] {
        assert!(lock.contains(word), "no `{word}` in {lock}");
    }
    assert!(!lock.contains("csv"), "bundled connectors are not pinned: {lock}");
    setu.succeed("run pipeline.yaml");
    assert_eq!(setu.read("setu.lock"), lock);

    setu.write("plugins/probe.wasm", changed());
    for verb in ["run", "check", "plan", "discover", "preview"] {
        let outcome = setu.line(&format!("{verb} pipeline.yaml"));
        outcome.assert_status(2).assert_clear_failure(&[
            "pipeline.yaml:2:22",
            "./plugins/probe.wasm is not the one that",
            "probe 1.2.3",
            "setu plugin lock pipeline.yaml",
        ]);
    }
    assert_eq!(setu.read("setu.lock"), lock, "refusing does not pin");
    let outcome = setu.succeed("plugin lock pipeline.yaml");
    assert!(
        outcome.stdout.contains("pinned ./plugins/probe.wasm"),
        "{outcome}"
    );
    setu.succeed("run pipeline.yaml");
    let outcome = setu.succeed("plugin lock pipeline.yaml");
    assert!(outcome.stdout.contains("up to date"), "{outcome}");
}

#[test]
fn a_connector_found_by_name_is_pinned_too() {
    let mut setu = pipeline("{ behaviour: rows }");
    let yaml = setu
        .read("pipeline.yaml")
        .replace("./plugins/probe.wasm", "probe");
    setu.write("pipeline.yaml", yaml);
    setu.set("SETU_PLUGIN_PATH", &setu.path("plugins").display().to_string());
    setu.succeed("discover pipeline.yaml");
    assert!(setu.read("setu.lock").contains("\"connector\": \"probe\""));
    setu.write("plugins/probe.wasm", changed());
    let outcome = setu.line("discover pipeline.yaml");
    outcome
        .assert_status(2)
        .assert_clear_failure(&["probe is not the one that"]);
}

#[test]
fn a_job_carries_the_digest_of_its_connector() {
    let setu = pipeline("{ behaviour: rows }");
    setu.succeed("plan pipeline.yaml --job-out job.json");
    assert!(setu.read("job.json").contains("sha256:"));
    setu.succeed("extract --job job.json --run r");
    setu.write("plugins/probe.wasm", changed());
    let outcome = setu.line("extract --job job.json --run r2");
    outcome.assert_status(2).assert_clear_failure(&[
        "job.json",
        "is not the one that the job was made with",
        "--job-out",
    ]);
    // Nor is a job believed that has lost them.
    let mut job: serde_json::Value = serde_json::from_str(&setu.read("job.json")).expect("JSON");
    job["plugins"] = serde_json::json!({});
    setu.write("job.json", job.to_string());
    let outcome = setu.line("extract --job job.json --run r3");
    outcome
        .assert_status(2)
        .assert_clear_failure(&["job.json", "does not say under `plugins`"]);
}

#[test]
fn inspect_shows_code_description_and_what_a_pipeline_grants() {
    let setu = pipeline("{ behaviour: rows, target: \"DB.Internal.:5432\", path: data }");
    let outcome = setu.succeed("plugin inspect plugins/probe.wasm --pipeline pipeline.yaml");
    for word in [
        "probe 1.2.3: source and destination",
        "sha256:",
        " bytes",
        "setu:connector@0.1.0",
        "setu:connector/net@0.1.0",
        "setu:connector/source@0.1.0",
        "as the source of pipeline.yaml it may reach only",
        "db.internal:5432",
        "by source.config.target",
        "\"behaviour\"",
    ] {
        assert!(outcome.stdout.contains(word), "no `{word}` in\n{outcome}");
    }
    assert!(!setu.path("setu.lock").exists(), "looking does not pin");
    let outcome = setu.succeed("plugin inspect csv");
    assert!(outcome.stdout.contains("bundled"), "{outcome}");
    let outcome = setu.line("plugin inspect postgres --pipeline pipeline.yaml");
    outcome
        .assert_status(2)
        .assert_clear_failure(&["neither the source nor the destination"]);
}

#[test]
fn denials_are_told_once_with_the_line_to_add_and_counted() {
    let setu = pipeline("{ behaviour: knock, ungranted: \"DB.internal:5432\" }");
    for mode in ["direct", "staged"] {
        let outcome = setu.succeed(&format!("run pipeline.yaml --mode {mode} --report -"));
        assert_eq!(outcome.json()["streams"][0]["denials"], 2, "{outcome}");
        let line = "add `grant: { network: [\"db.internal:5432\"] }` under `source:`";
        assert_eq!(outcome.stderr.matches(line).count(), 1, "{outcome}");
        for word in ["probe 1.2.3", "stream=\"t\""] {
            assert!(outcome.stderr.contains(word), "no `{word}` in\n{outcome}");
        }
    }
}

#[test]
fn a_connectors_log_does_not_show_its_secrets() {
    for behaviour in ["log secret", "tell", "panic secret"] {
        let mut setu = pipeline(&format!(
            "{{ behaviour: {behaviour}, password: \"${{PASSWORD}}\" }}"
        ));
        setu.set("PASSWORD", "correct horse");
        for arguments in ["-v", "-vvv", "--log-format json"] {
            let outcome = setu.line(&format!("check pipeline.yaml {arguments}"));
            assert_eq!(
                outcome.status,
                Some(1 + i32::from(behaviour != "panic secret")),
                "{outcome}"
            );
            assert!(outcome.stderr.contains("***"), "{outcome}");
            outcome.assert_hides(&["correct horse", "correct%20horse"]);
        }
    }
}
