//! The platform team's policy: what goes beyond it is refused before anything happens, with everything that is wrong.

use setu_tests::server::TLS_USER;
use setu_tests::{Database, Setu};

fn people() -> Setu {
    let setu = Setu::with_pipeline(
        "pipeline: people\n\
         source:\n  connector: csv\n  config: { path: data }\n\
         destination:\n  connector: csv\n  config: { path: out }\n  \
           grant: { network: [\"example.com:443\"], env: [TZ] }\n  \
           limits: { memoryMib: 300 }\n\
         streams: [\"*\"]\n",
    );
    setu.write("data/people.csv", "id,name\n1,Ada\n");
    setu
}

const VERBS: [&str; 7] = [
    "run pipeline.yaml",
    "extract pipeline.yaml --run r",
    "load pipeline.yaml --run r",
    "plan pipeline.yaml --job-out job.json",
    "check pipeline.yaml",
    "discover pipeline.yaml",
    "preview pipeline.yaml",
];

#[test]
fn everything_beyond_the_policy_is_told_at_once_and_nothing_happens() {
    let setu = people();
    setu.write(
        "policy.yaml",
        "default: { read: [elsewhere], write: [out], network: [], env: [], limits: { memoryMib: 200 } }\n",
    );
    let [source, destination] = [
        vec![
            "pipeline.yaml:4:13: `source.config.path` asks for read",
            "data, and the policy policy.yaml",
        ],
        vec![
            "pipeline.yaml:8:22: `destination.grant.network` asks for network example.com:443",
            "pipeline.yaml:8:48: `destination.grant.env` asks for env TZ",
            "pipeline.yaml:9:13: `destination.limits.memoryMib` is 300",
            "at most 200",
        ],
    ];
    for verb in VERBS {
        let outcome = setu.line(&format!("{verb} --policy policy.yaml"));
        let mut expected = Vec::new();
        if !verb.starts_with("load") {
            expected.extend(&source);
        }
        if ["run", "load", "plan", "check"]
            .iter()
            .any(|v| verb.starts_with(v))
        {
            expected.extend(&destination);
        }
        outcome.assert_status(2).assert_clear_failure(&expected);
        for made in ["out", ".setu", "job.json"] {
            assert!(!setu.path(made).exists(), "{verb} makes {made}");
        }
    }
}

#[test]
fn a_pipeline_within_the_policy_runs_and_plan_shows_what_is_capped() {
    let mut setu = people();
    setu.write(
        "policy.yaml",
        "default: { network: [] }\n\
         connectors:\n\
         - { connector: csv, network: [\"*.com:*\"], limits: { memoryMib: 400, callTimeoutSeconds: 60 } }\n",
    );
    setu.set("SETU_POLICY", "policy.yaml");
    setu.succeed("run pipeline.yaml");
    assert_eq!(setu.read("out/people.csv"), "id,name\n1,Ada\n");
    let outcome = setu.succeed("plan pipeline.yaml");
    for line in [
        "policy       policy.yaml",
        "limits: memoryMib 400, callTimeoutSeconds 60, else the defaults",
        "limits: memoryMib 300, callTimeoutSeconds 60, else the defaults",
        "network: only *.com:*",
        "memoryMib: at most 400",
    ] {
        assert!(outcome.stdout.contains(line), "no `{line}` in\n{outcome}");
    }
    // The command line says another one.
    setu.write("strict.yaml", "default: { network: [] }\n");
    let outcome = setu.line("run pipeline.yaml --policy strict.yaml");
    outcome.assert_status(2).assert_clear_failure(&["strict.yaml"]);
}

#[test]
fn audit_tells_each_excess_once_and_denies_nothing() {
    let setu = people();
    setu.write(
        "policy.yaml",
        "mode: audit\nplugins: { allow: [] }\ndefault: { network: [], limits: { memoryMib: 100 } }\n",
    );
    let outcome = setu.succeed("run pipeline.yaml --policy policy.yaml");
    assert_eq!(setu.read("out/people.csv"), "id,name\n1,Ada\n");
    for told in [
        "asks for network example.com:443",
        "limits.memoryMib` is 300",
        "plugins.allow",
    ] {
        assert_eq!(
            outcome.stderr.matches(told).count(),
            1,
            "`{told}` once in\n{outcome}"
        );
    }
    assert!(outcome.stderr.contains("audit: would be denied"), "{outcome}");
    let outcome = setu.succeed("plan pipeline.yaml --policy policy.yaml");
    assert!(outcome.stdout.contains("audit: it denies nothing"), "{outcome}");
    assert!(
        outcome.stdout.contains("limits: memoryMib 300"),
        "nothing is capped:\n{outcome}"
    );
}

#[test]
fn only_connectors_that_the_policy_names_are_used() {
    let setu = people();
    setu.write("policy.yaml", "plugins: { allow: [] }\n");
    let outcome = setu.line("run pipeline.yaml --policy policy.yaml");
    outcome.assert_status(2).assert_clear_failure(&[
        "pipeline.yaml:3:14",
        "csv",
        "a bundled connector",
        "sha256:",
        "plugins.allow",
    ]);
    setu.write("policy.yaml", "plugins: { allow: [bundled] }\n");
    setu.succeed("run pipeline.yaml --policy policy.yaml");
}

#[test]
fn code_that_the_policy_does_not_name_is_not_even_asked_for_its_name() {
    let setu = people();
    setu.write("policy.yaml", "plugins: { allow: [] }\n");
    for command in ["plugin inspect csv", "plugin lock pipeline.yaml"] {
        let outcome = setu.line(&format!("{command} --policy policy.yaml"));
        outcome.assert_status(2).assert_clear_failure(&["plugins.allow"]);
    }
}

/// The host itself connects to the blob store and writes there, so a policy can keep pipelines from choosing it.
#[test]
fn the_blob_store_can_be_left_to_the_environment() {
    let mut setu = people();
    setu.write("policy.yaml", "staging: environment\n");
    let run = "run pipeline.yaml --mode staged --policy policy.yaml";
    setu.succeed(run);
    let own = setu.read("pipeline.yaml");
    setu.write(
        "pipeline.yaml",
        format!("{own}staging: {{ backend: fs, fsRoot: elsewhere }}\n"),
    );
    let outcome = setu.line(run);
    outcome
        .assert_status(2)
        .assert_clear_failure(&["policy.yaml leaves the blob store to the environment"]);
    assert!(!setu.path("elsewhere").exists());
    setu.succeed("plan pipeline.yaml --job-out job.json");
    let outcome = setu.line("run --job job.json --policy policy.yaml");
    outcome.assert_status(2).assert_clear_failure(&["blob store"]);
    setu.write("pipeline.yaml", own);
    // A job says of itself where its pipeline was: the default store is the one where the job is.
    setu.succeed("plan pipeline.yaml --job-out job.json");
    setu.succeed("run --job job.json --policy policy.yaml");
    let job = setu.read("job.json");
    let here = setu.path("").display().to_string();
    let here = here.trim_end_matches('/');
    setu.write("job.json", job.replace(here, &format!("{here}/other")));
    let outcome = setu.line("run --job job.json --policy policy.yaml");
    outcome
        .assert_status(2)
        .assert_clear_failure(&["blob store", "SETU_BLOB_*"]);
    assert!(!setu.path("other").exists());
    setu.set("SETU_BLOB_BACKEND", "fs");
    setu.set("SETU_BLOB_FS_ROOT", &setu.path("shared").display().to_string());
    setu.succeed(run);
    assert!(setu.path("shared").exists());
}

#[test]
fn a_policy_that_cannot_be_read_lets_nothing_run() {
    let mut setu = people();
    setu.write("policy.yaml", "default: { netwrok: [] }\nmode: on\n");
    let outcome = setu.line("run pipeline.yaml --policy policy.yaml");
    outcome.assert_status(2).assert_clear_failure(&[
        "policy.yaml:1:12: `default` has no key `netwrok`; did you mean `network`?",
        "policy.yaml:2:7",
    ]);
    let outcome = setu.line("run pipeline.yaml --policy none.yaml");
    outcome.assert_status(2).assert_clear_failure(&["none.yaml"]);
    setu.set("SETU_POLICY", "");
    setu.line("run pipeline.yaml").assert_status(2);
    assert!(!setu.path("out").exists());
}

/// The policy holds for a job as well, wherever it was made.
#[test]
fn a_job_is_held_to_the_policy_of_where_it_runs() {
    let setu = people();
    setu.succeed("plan pipeline.yaml --job-out job.json");
    setu.write("policy.yaml", "default: { env: [] }\n");
    let outcome = setu.line("run --job job.json --policy policy.yaml");
    outcome
        .assert_status(2)
        .assert_clear_failure(&["job.json: `destination.grant.env` asks for env TZ"]);
}

#[test]
fn required_tls_is_tls_with_a_verified_name() {
    let database = Database::new();
    let ca = Database::ca();
    let setu = Setu::new();
    setu.write("policy.yaml", "tls: required\n");
    for (mode, works) in [
        ("disable", false),
        ("prefer", false),
        ("require", false),
        ("verify-ca", false),
        ("verify-full", true),
    ] {
        let user = if mode == "disable" { "postgres" } else { TLS_USER };
        let url = database.url_for(user, "localhost", database.port());
        let ca = match mode {
            "verify-ca" | "verify-full" => format!(", sslrootcert: {}", ca.display()),
            _ => String::new(),
        };
        setu.write(
            "pipeline.yaml",
            format!(
                "pipeline: p\n\
                 source: {{ connector: postgres, config: {{ url: \"{url}\", sslmode: {mode}{ca} }} }}\n\
                 destination: {{ connector: csv, config: {{ path: out }} }}\n\
                 streams: [\"*\"]\n"
            ),
        );
        setu.succeed("check pipeline.yaml");
        let outcome = setu.line("check pipeline.yaml --policy policy.yaml");
        match works {
            true => outcome.assert_status(0),
            false => outcome.assert_clear_failure(&["policy.yaml requires TLS", "verify-full"]),
        };
    }
}

#[test]
fn a_pipeline_uses_only_the_variables_that_the_policy_names() {
    let mut setu = Setu::with_pipeline(
        "pipeline: people\n\
         source:\n  connector: csv\n  config: { path: \"${PEOPLE_IN}\" }\n\
         destination:\n  connector: csv\n  config: { path: \"${PEOPLE_OUT:-out}\" }\n\
         streams: [\"${HOME}\", \"*\"]\n",
    );
    setu.write("data/people.csv", "id,name\n1,Ada\n");
    setu.set("PEOPLE_IN", "data");
    setu.write("policy.yaml", "variables: [\"PEOPLE_*\"]\n");
    for verb in VERBS {
        let outcome = setu.line(&format!("{verb} --policy policy.yaml"));
        outcome.assert_status(2).assert_clear_failure(&[
            "pipeline.yaml:8:11: the policy policy.yaml does not let pipelines use the variable HOME",
            "have `HOME` added to `variables`",
        ]);
        for made in ["out", ".setu", "job.json"] {
            assert!(!setu.path(made).exists(), "{verb} makes {made}");
        }
    }
    let text = setu.read("pipeline.yaml").replace("\"${HOME}\", ", "");
    setu.write("pipeline.yaml", &text);
    setu.succeed("run pipeline.yaml --policy policy.yaml");
    assert_eq!(setu.read("out/people.csv"), "id,name\n1,Ada\n");
}
