use std::ffi::OsString;

use serde_json::json;

use super::*;

fn lookup(name: &str) -> Result<Option<OsString>, String> {
    Ok(match name {
        "SOURCE_URL" => Some("postgres://app:hunter2@db/app".into()),
        "SECRET" => Some("hunter2".into()),
        "MEMORY" => Some("512".into()),
        _ => None,
    })
}

fn parse(text: &str) -> PipelineFile {
    PipelineFile::parse(
        "p.yaml",
        Path::new("/home/ada"),
        text,
        &lookup,
        &blob::Spec::default(),
    )
}

fn job(text: &str) -> Job {
    parse(text)
        .finish()
        .unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn mistakes(text: &str) -> Vec<String> {
    match parse(text).finish() {
        Ok(_) => Vec::new(),
        Err(mistakes) => mistakes.to_string().lines().map(str::to_owned).collect(),
    }
}

/// A pipeline that is right but for what is added to it.
fn with(addition: &str) -> String {
    let head = "pipeline: p\nsource: { connector: csv }\ndestination: { connector: csv }\n";
    let streams = if addition.contains("streams:") {
        ""
    } else {
        "streams: [a]\n"
    };
    format!("{head}{streams}{addition}")
}

#[test]
fn the_file_becomes_a_job_with_every_default_filled_in() {
    let job = job("\
pipeline: orders-to-warehouse
source:
  connector: postgres
  config: { url: \"${SOURCE_URL}\", port: 5432 }
  grant: { network: db:5432, read: [./ca.pem], env: [PGTZ] }
  limits: { memoryMib: \"${MEMORY}\", callTimeoutSeconds: 30 }
destination:
  connector: ./plugins/../own.wasm
streams:
  - name: public.orders
    mode: incremental
    cursor: updated_at
    write: append
  - name: \"public.*\"
  - audit.log
");
    assert_eq!(
        serde_json::to_value(&job).expect("a job is JSON"),
        json!({
            "workspace": "default",
            "pipeline": "orders-to-warehouse",
            "source": {
                "connector": "postgres",
                "config": {"url": "postgres://app:hunter2@db/app", "port": 5432},
                "base": "/home/ada",
                "grant": {"network": ["db:5432"], "read": ["./ca.pem"], "write": [], "env": ["PGTZ"]},
                "limits": {"memoryMib": 512, "callTimeoutSeconds": 30},
            },
            "destination": {
                "connector": "/home/ada/plugins/../own.wasm",
                "config": {},
                "base": "/home/ada",
                "grant": {"network": [], "read": [], "write": [], "env": []},
                "limits": {},
            },
            "streams": [
                {"name": "public.orders", "mode": "incremental", "cursor": "updated_at", "write": "append"},
                {"name": "public.*", "mode": "full"},
                {"name": "audit.log", "mode": "full"},
            ],
            "staging": {"backend": "fs", "fsRoot": "/home/ada/.setu/blob"},
        })
    );
    let places: Vec<_> = job.streams.iter().map(|stream| stream.place.as_deref()).collect();
    assert_eq!(
        places,
        [Some("p.yaml:10:5"), Some("p.yaml:14:5"), Some("p.yaml:15:5")]
    );
}

#[test]
fn a_job_reads_back_from_its_json_and_never_shows_its_secrets() {
    let mut job = job(&with(
        "staging: { backend: s3, bucket: b, accessKey: AKIA1, secretKey: \"${SECRET}\" }\n",
    )
    .replace(
        "connector: csv }",
        "connector: csv, config: { password: hunter2 } }",
    ));
    let text = serde_json::to_string(&job).expect("a job is JSON");
    let read: Job = serde_json::from_str(&text).expect("it reads back");
    job.streams.iter_mut().for_each(|stream| stream.place = None);
    assert_eq!(serde_json::to_string(&read).expect("a job is JSON"), text);
    assert_eq!(read.streams, job.streams);
    let shown = format!("{job:?} {job:#?}");
    assert!(!shown.contains("hunter2") && !shown.contains("AKIA1"), "{shown}");
}

#[test]
fn rows_are_staged_where_the_file_says_or_the_environment_or_beside_the_file() {
    let environment = blob::Spec {
        backend: "fs".into(),
        fs_root: "/from/env".into(),
        ..blob::Spec::default()
    };
    let root = |text: &str, default: &blob::Spec| {
        let file = PipelineFile::parse("p.yaml", Path::new("/home/ada"), text, &lookup, default);
        file.finish()
            .unwrap_or_else(|mistakes| panic!("{mistakes}"))
            .staging
            .fs_root
    };
    let written = with("staging: { backend: fs, fsRoot: ../blob }\n");
    assert_eq!(root(&written, &environment), "/home/ada/../blob");
    assert_eq!(
        root(&with("staging: { backend: fs }\n"), &environment),
        "/home/ada/.setu/blob"
    );
    assert_eq!(root(&with(""), &environment), "/from/env");
    assert_eq!(root(&with(""), &blob::Spec::default()), "/home/ada/.setu/blob");

    let s3 = job(&with(
        "staging:\n  backend: s3\n  bucket: b\n  endpoint: https://s3.internal/x\n  region: eu\n  forcePathStyle: true\n",
    ));
    assert_eq!(
        serde_json::to_value(&s3.staging).expect("JSON"),
        json!({"backend": "s3", "bucket": "b", "endpoint": "https://s3.internal/x", "region": "eu", "forcePathStyle": true})
    );
}

#[test]
fn each_mistake_has_its_place_and_its_way_out() {
    for (text, expected) in [
        (
            "",
            "p.yaml:1:1: the file is empty; a pipeline needs `pipeline`, `source`, `destination` and `streams`",
        ),
        (
            "# nothing\n",
            "p.yaml:1:1: the file is empty; a pipeline needs `pipeline`, `source`, `destination` and `streams`",
        ),
        ("- a\n", "p.yaml:1:1: a pipeline must be a map, found a list"),
        (
            "just text\n",
            "p.yaml:1:1: a pipeline must be a map, found a text",
        ),
        (
            &with("sorce: x\n"),
            "p.yaml:5:1: a pipeline has no key `sorce`; did you mean `source`?",
        ),
        (
            &with("transform: x\n"),
            "p.yaml:5:1: a pipeline has no key `transform`; known are `pipeline`, `workspace`, `source`, `destination`, `streams` and `staging`",
        ),
        (
            &with("pipeline: q\n"),
            "p.yaml:5:1: the key `pipeline` stands twice, first on line 1",
        ),
        (
            &with("workspace: a/b\n"),
            "p.yaml:5:12: workspace `a/b` must start with a letter or digit and hold only letters, digits, `_`, `.` and `-`, 128 characters at most",
        ),
        (
            &with("workspace: 7\n"),
            "p.yaml:5:12: `workspace` must be a text (put it in quotes), found a number",
        ),
        (
            &with("").replace("source: { connector: csv }", "source: {}"),
            "p.yaml:2:9: `source` needs the key `connector`",
        ),
        (
            &with("").replace("source: { connector: csv }", "source: csv"),
            "p.yaml:2:9: `source` must be a map, found a text",
        ),
        (
            &with("").replace(
                "source: { connector: csv }",
                "source: { connector: csv, config: [a] }",
            ),
            "p.yaml:2:35: `config` must be a map, found a list",
        ),
        (
            &with("").replace(
                "source: { connector: csv }",
                "source: { connector: csv, config: { a: { b: 1, b: 2 } } }",
            ),
            "p.yaml:2:48: the key `b` stands twice, first on line 2",
        ),
        (
            &with("").replace(
                "source: { connector: csv }",
                "source: { connector: csv, grants: {} }",
            ),
            "p.yaml:2:27: `source` has no key `grants`; did you mean `grant`?",
        ),
        (
            &with("").replace(
                "source: { connector: csv }",
                "source: { connector: csv, grant: { net: [a] } }",
            ),
            "p.yaml:2:36: `grant` has no key `net`; known are `network`, `read`, `write` and `env`",
        ),
        (
            &with("").replace(
                "source: { connector: csv }",
                "source: { connector: csv, grant: { env: [A-B] } }",
            ),
            "p.yaml:2:41: `A-B` in `grant.env` is no variable's name",
        ),
        (
            &with("").replace(
                "source: { connector: csv }",
                "source: { connector: csv, grant: { network: [5432] } }",
            ),
            "p.yaml:2:46: an entry of `grant.network` must be a text (put it in quotes), found a number",
        ),
        (
            &with("").replace(
                "source: { connector: csv }",
                "source: { connector: csv, limits: { memoryMib: 0 } }",
            ),
            "p.yaml:2:48: `limits.memoryMib` must be a whole number of at least 1",
        ),
        (
            &with("").replace(
                "source: { connector: csv }",
                "source: { connector: csv, limits: { memoryMib: much } }",
            ),
            "p.yaml:2:48: `limits.memoryMib` must be a whole number of at least 1, found a text",
        ),
        (
            &with("streams: []\n"),
            "p.yaml:4:10: `streams` is empty; `- \"*\"` stands for all streams of the source",
        ),
        (
            &with("streams: a\n"),
            "p.yaml:4:10: `streams` must be a list, found a text",
        ),
        (
            &with("streams: [7]\n"),
            "p.yaml:4:11: a stream is a name, or a map with `name`; found a number",
        ),
        (
            &with("streams: [{ mode: full }]\n"),
            "p.yaml:4:11: a stream needs the key `name`",
        ),
        (
            &with("streams: [a.b.c]\n"),
            "p.yaml:4:11: `a.b.c` is not a stream name: write `name` or `namespace.name`, and put a part that holds a dot or a quote in double quotes",
        ),
        (
            &with("streams: ['a[']\n"),
            "p.yaml:4:11: `a[` is not a pattern: unclosed character class; missing ']'",
        ),
        (
            &with("streams:\n  - a\n  - a\n"),
            "p.yaml:6:5: `a` stands twice, first on line 5; the first entry decides about it",
        ),
        (
            &with("streams: [{ name: a, mode: incremantal, cursor: x }]\n"),
            "p.yaml:4:28: `incremantal` is no mode; did you mean `incremental`?",
        ),
        (
            &with("streams: [{ name: a, mode: incremental }]\n"),
            "p.yaml:4:11: `mode: incremental` needs a `cursor`: the field whose growth tells which rows are new",
        ),
        (
            &with("streams: [{ name: a, cursor: x }]\n"),
            "p.yaml:4:30: `cursor` goes with `mode: incremental`; in mode `full` all rows are read",
        ),
        (
            &with("streams: [{ name: a, write: replace }]\n"),
            "p.yaml:4:29: `replace` is no write mode; known are `append`, `overwrite` and `upsert`",
        ),
        (
            &with("streams: [{ name: a, mode: incremental, cursor: x, write: overwrite }]\n"),
            "p.yaml:4:59: `write: overwrite` with `mode: incremental` would leave nothing but the newest changes; use `upsert` or `append`",
        ),
        (
            &with("staging: { fsRoot: x }\n"),
            "p.yaml:5:10: `staging` needs the key `backend`",
        ),
        (
            &with("staging: { backend: gcs }\n"),
            "p.yaml:5:21: `gcs` is no backend; known are `fs` and `s3`",
        ),
        (
            &with("staging: { backend: fs, bucket: b }\n"),
            "p.yaml:5:33: `staging.bucket` does not go with `backend: fs`",
        ),
        (
            &with("staging: { backend: s3 }\n"),
            "p.yaml:5:10: `staging` needs the key `bucket`",
        ),
        (
            &with("staging: { backend: s3, bucket: b, forcePathStyle: on }\n"),
            "p.yaml:5:52: `staging.forcePathStyle` must be true or false, found a text",
        ),
        (
            &with("").replace("connector: csv }\ndest", "connector: '${NONE}' }\ndest"),
            "p.yaml:2:22: the variable NONE is not set; set it, or write `${NONE:-default}`",
        ),
        // What came from a variable may be a secret.
        (
            &with("streams: [{ name: a, mode: '${SECRET}' }]\n"),
            "p.yaml:4:28: the variable's value is no mode; known are `full` and `incremental`",
        ),
    ] {
        let found = mistakes(text);
        assert!(
            found.iter().any(|line| line == expected),
            "{text}\n{found:#?}\nlacks {expected}"
        );
        assert!(found.len() == 1 || text.contains("NONE"), "{text}\n{found:#?}");
        assert!(!found.concat().contains("hunter2"), "{found:#?}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once_in_the_order_of_the_file() {
    let mut file = parse(
        "\
pipeline: \"my pipeline\"
source:
  conector: postgres
  config:
    url: ${SORCE_URL}
destination:
  connector: postgres
  config:
    url: ${TARGET_URL}
    schema: 7
    tables:
      - { name: x }
streams:
  - name: public.orders
    mode: incremental
  - nam: public.users
stagin: {}
",
    );
    assert!(file.side(Role::Source).is_none());
    let destination = file.side(Role::Destination).expect("it can be checked");
    assert_eq!(destination.config["schema"], json!(7));
    file.config_mistake(Role::Destination, "/schema", "must be a text, found a number");
    file.config_mistake(Role::Destination, "/tables/0", "has no property `name`");
    // Its variable is missing, which was said.
    file.config_mistake(Role::Destination, "/url", "must not be empty");
    file.config_mistake(Role::Destination, "", "needs `user`");
    file.connector_mistake(Role::Destination, "it is no destination");
    let mistakes = file.finish().err().map(|mistakes| mistakes.to_string());
    assert_eq!(
        mistakes.as_deref(),
        Some("\
p.yaml:1:11: pipeline `my pipeline` must start with a letter or digit and hold only letters, digits, `_`, `.` and `-`, 128 characters at most
p.yaml:3:3: `source` has no key `conector`; did you mean `connector`?
p.yaml:3:3: `source` needs the key `connector`
p.yaml:5:10: the variable SORCE_URL is not set; set it, or write `${SORCE_URL:-default}`
p.yaml:7:14: it is no destination
p.yaml:8:3: `destination.config`: needs `user`
p.yaml:9:10: the variable TARGET_URL is not set; set it, or write `${TARGET_URL:-default}`
p.yaml:10:5: `destination.config.schema`: must be a text, found a number
p.yaml:12:9: `destination.config.tables.0`: has no property `name`
p.yaml:14:5: `mode: incremental` needs a `cursor`: the field whose growth tells which rows are new
p.yaml:16:5: a stream has no key `nam`; did you mean `name`?
p.yaml:16:5: a stream needs the key `name`
p.yaml:17:1: a pipeline has no key `stagin`; did you mean `staging`?")
    );
}

#[test]
fn a_file_that_is_not_text_or_not_there_is_no_panic() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("p.yaml");
    std::fs::write(&path, b"pipeline: p\nsource: \xff\n").expect("written");
    let file = PipelineFile::read(&path, &lookup, &blob::Spec::default()).expect("it can be read");
    let mistakes = file.finish().err().map(|mistakes| mistakes.to_string());
    assert_eq!(
        mistakes,
        Some(format!("{}:2:1: the file is not valid UTF-8", path.display()))
    );
    let none = PipelineFile::read(&folder.path().join("none"), &lookup, &blob::Spec::default());
    assert_eq!(
        none.err().map(|error| error.kind()),
        Some(std::io::ErrorKind::NotFound)
    );
}
