//! The blob store in S3, against real servers: what every backend must do, and what only a network can do to one.

use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use setu::blob::{self, Blob, BlobError, Body, Condition, Key, S3, Spec};
use setu_tests::{Bucket, Fault, HttpProxy, Setu};

fn key(text: &str) -> Key {
    Key::new(text).expect("a key")
}

fn open(spec: &Spec) -> S3 {
    S3::open(spec).expect("a store")
}

fn put(store: &S3, name: &str, bytes: &[u8]) {
    store.put(&key(name), Body::Bytes(bytes)).expect("a put");
}

fn get(store: &S3, name: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut reader = store.get(&key(name)).expect("an object");
    reader.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// An error with its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text += &format!(": {inner}");
        cause = inner.source();
    }
    text
}

fn pattern(size: usize) -> Vec<u8> {
    (0..size as u64).map(|i| (i * i % 251) as u8).collect()
}

#[test]
fn seaweedfs_conforms() {
    let bucket = Bucket::new();
    let store = blob::from_spec(&bucket.spec()).expect("a store");
    assert!(store.conditional().expect("an answer"));
    assert!(store.list("").expect("a list").is_empty(), "the probe is deleted");
    blob::conformance::all(store.as_ref());
    assert_eq!(bucket.unfinished_uploads(), 0);
}

#[test]
#[ignore = "needs Garage, which `cargo xtask test --full` compiles"]
fn garage_conforms_but_for_conditions() {
    let bucket = Bucket::without_conditions();
    let store = open(&bucket.spec());
    assert!(!store.conditional().expect("an answer"));
    blob::conformance::all(&store);
}

#[test]
fn settings_that_are_wrong_are_named_and_secrets_are_not() {
    let spec = Bucket::new().spec();
    let there = format!("at {}", spec.endpoint);
    type Change = fn(&mut Spec);
    let cases: [(Change, &[&str]); 3] = [
        (
            |s| s.secret_key = "wrong-secret".into(),
            &["`secretKey`", "HTTP 403"],
        ),
        (|s| s.access_key = "WRONGKEY".into(), &["`accessKey`", "HTTP 403"]),
        (
            |s| s.bucket = "no-such-bucket".into(),
            &["NoSuchBucket", "`bucket`", "s3://no-such-bucket"],
        ),
    ];
    for (change, words) in cases {
        let mut spec = spec.clone();
        change(&mut spec);
        let store = open(&spec);
        let k = key("k");
        let errors: [(_, Option<BlobError>); 6] = [
            ("put", store.put(&k, Body::Bytes(b"1")).err()),
            ("get", store.get(&k).map(|_| ()).err()),
            ("list", store.list("").err()),
            ("delete", store.delete(&k).err()),
            ("delete", store.delete_all(std::slice::from_ref(&k)).err()),
            ("put", store.put_if(&k, b"1", Condition::Absent).err()),
        ];
        for (operation, error) in errors {
            let error = error.unwrap_or_else(|| panic!("{operation} of {spec:?} succeeds"));
            assert!(matches!(error, BlobError::Io { .. }), "{error:?}");
            let text = told(&error);
            for word in [&there[..], operation].iter().chain(words) {
                assert!(text.contains(word), "no `{word}` in: {text}");
            }
            let everything = format!("{text} {error:?} {store:?} {spec:?}");
            for secret in [&spec.secret_key, &spec.access_key] {
                assert!(!everything.contains(secret.as_str()), "{everything}");
            }
        }
    }
}

#[test]
fn an_endpoint_that_nobody_answers_at_is_named_within_seconds() {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("its address").port();
    drop(free);
    let nowhere = [
        format!("http://127.0.0.1:{port}"),
        format!("https://127.0.0.1:{port}/storage/v1/s3"),
        "http://no-such-host.invalid".to_owned(),
    ];
    for endpoint in nowhere {
        let spec = Spec {
            backend: "s3".into(),
            bucket: "b".into(),
            endpoint: endpoint.clone(),
            access_key: "k".into(),
            secret_key: "s".into(),
            force_path_style: true,
            ..Spec::default()
        };
        let store = open(&spec);
        let started = Instant::now();
        let error = store
            .put(&key("k"), Body::Bytes(b"1"))
            .expect_err("nobody is there");
        let text = told(&error);
        assert!(text.contains(&endpoint), "{text}");
        assert!(
            started.elapsed() < Duration::from_secs(20),
            "{:?}",
            started.elapsed()
        );
        eprintln!("{:?}: {text}", started.elapsed());
    }
}

#[test]
fn a_body_that_breaks_off_is_gone_on_with() {
    let bucket = Bucket::new();
    let bytes = pattern(3_000_000);
    put(&open(&bucket.spec()), "k", &bytes);
    let fault = Fault::CutAnswers {
        after: 1_000_000,
        times: 2,
    };
    let proxy = HttpProxy::new(bucket.port(), fault);
    let store = open(&bucket.spec_through(proxy.port(), ""));
    assert!(get(&store, "k").expect("the object") == bytes);
    assert_eq!(proxy.requests().len(), 3, "{:?}", proxy.requests());
}

#[test]
fn a_body_that_breaks_off_again_and_again_is_an_error_and_never_short() {
    let bucket = Bucket::new();
    put(&open(&bucket.spec()), "k", &pattern(3_000_000));
    let fault = Fault::CutAnswers {
        after: 1000,
        times: usize::MAX,
    };
    let proxy = HttpProxy::new(bucket.port(), fault);
    let store = open(&bucket.spec_through(proxy.port(), ""));
    let error = get(&store, "k").expect_err("the body is never whole");
    assert!(error.to_string().contains("of 3000000 bytes"), "{error}");
    assert_eq!(proxy.requests().len(), 6, "{:?}", proxy.requests());
}

#[test]
fn the_rest_of_a_body_is_never_that_of_another_object() {
    let bucket = Bucket::new();
    let direct = open(&bucket.spec());
    // Larger than what is fetched ahead, so that the reader decides when the answer breaks off.
    put(&direct, "k", &vec![1; 24 << 20]);
    let fault = Fault::CutAnswers {
        after: 20 << 20,
        times: 1,
    };
    let proxy = HttpProxy::new(bucket.port(), fault);
    let store = open(&bucket.spec_through(proxy.port(), ""));
    let mut reader = store.get(&key("k")).expect("an object");
    reader.read_exact(&mut [0; 1000]).expect("its start");
    put(&direct, "k", &vec![2; 24 << 20]);
    let mut rest = Vec::new();
    match reader.read_to_end(&mut rest) {
        Err(error) => assert!(error.to_string().contains("broke off"), "{error}"),
        // The server had sent all of it before it was replaced.
        Ok(_) => assert_eq!(rest.len(), (24 << 20) - 1000),
    }
    assert!(rest.iter().all(|byte| *byte == 1), "two objects were mixed");
}

#[test]
fn a_bare_404_is_a_missing_object_and_a_bare_500_is_not() {
    let bucket = Bucket::new();
    let proxy = HttpProxy::new(bucket.port(), Fault::Answer(404));
    let store = open(&bucket.spec_through(proxy.port(), ""));
    let missing = store.get(&key("k")).map(|_| ());
    assert!(matches!(missing, Err(BlobError::NotFound { .. })), "{missing:?}");
    store.delete(&key("k")).expect("it is not there");
    let error = store.put(&key("k"), Body::Bytes(b"1")).expect_err("a refusal");
    assert!(told(&error).contains("HTTP 404"), "{}", told(&error));

    let proxy = HttpProxy::new(bucket.port(), Fault::Answer(500));
    let store = open(&bucket.spec_through(proxy.port(), ""));
    let error = store.get(&key("k")).map(|_| ()).expect_err("a failure");
    assert!(told(&error).contains("HTTP 500"), "{}", told(&error));
    assert_eq!(proxy.requests().len(), 4, "{:?}", proxy.requests());
}

#[test]
fn a_store_without_conditional_puts_is_known_as_one() {
    let bucket = Bucket::new();
    let proxy = HttpProxy::new(bucket.port(), Fault::Answer(501));
    let store = open(&bucket.spec_through(proxy.port(), ""));
    for _ in 0..2 {
        assert!(!store.conditional().expect("an answer"));
    }
    let puts = proxy
        .requests()
        .iter()
        .filter(|line| line.starts_with("PUT "))
        .count();
    assert_eq!(puts, 1, "asked once: {:?}", proxy.requests());
}

/// The first attempt creates the object and its answer is lost; the second finds it there.
#[test]
fn a_conditional_put_whose_answer_is_lost_still_succeeds() {
    let bucket = Bucket::new();
    let fault = Fault::LoseAnswers {
        to: "PUT /",
        times: 1,
    };
    let proxy = HttpProxy::new(bucket.port(), fault);
    let store = open(&bucket.spec_through(proxy.port(), ""));
    let version = store.put_if(&key("k"), b"mine", Condition::Absent);
    let version = version.expect("it was this put that created the object");
    let puts = proxy
        .requests()
        .iter()
        .filter(|line| line.starts_with("PUT "))
        .count();
    assert_eq!(puts, 2, "{:?}", proxy.requests());
    assert_eq!(
        open(&bucket.spec()).get_versioned(&key("k")).expect("it"),
        (b"mine".to_vec(), version)
    );
}

/// As Supabase has it: the prefix is part of what is signed.
#[test]
fn an_endpoint_may_have_a_path() {
    let bucket = Bucket::new();
    let proxy = HttpProxy::new(bucket.port(), Fault::StripPrefix("/storage/v1/s3"));
    for path in ["/storage/v1/s3", "/storage/v1/s3/"] {
        let store = open(&bucket.spec_through(proxy.port(), path));
        put(&store, "a/k", &pattern(17 << 20));
        assert!(get(&store, "a/k").expect("the object") == pattern(17 << 20));
        assert_eq!(store.list("a/").expect("a list").len(), 1);
        store.delete_all(&[key("a/k")]).expect("a deletion");
        assert!(store.list("").expect("a list").is_empty());
    }
    let requests = proxy.requests();
    let prefixed = |line: &String| line.contains(" /storage/v1/s3/test-");
    assert!(requests.iter().all(prefixed), "{requests:?}");
}

#[test]
fn a_store_is_used_and_dropped_inside_another_runtime() {
    let spec = Bucket::new().spec();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let used = tokio::task::spawn_blocking(move || {
            let store = open(&spec);
            put(&store, "k", b"1");
            let reader = store.get(&key("k")).expect("an object");
            assert_eq!(get(&store, "k").expect("the object"), b"1");
            (store, reader)
        });
        let (store, reader) = used.await.expect("no panic");
        drop(store);
        drop(reader);
    });
}

#[test]
fn a_reader_outlives_its_store() {
    let store = open(&Bucket::new().spec());
    let bytes = pattern(20 << 20);
    put(&store, "k", &bytes);
    let mut reader = store.get(&key("k")).expect("an object");
    drop(store);
    let mut read = Vec::new();
    reader.read_to_end(&mut read).expect("all of it");
    assert!(read == bytes);
}

#[test]
fn credentials_come_from_the_environment_where_none_are_set() {
    let bucket = Bucket::new();
    let keys = bucket.spec();
    let spec = Spec {
        access_key: String::new(),
        secret_key: String::new(),
        region: String::new(),
        ..bucket.spec()
    };
    let mut setu = csv_to_csv(&serde_json::to_string(&spec).expect("JSON"));
    setu.set("HOME", &setu.folder().display().to_string());
    setu.set("AWS_EC2_METADATA_DISABLED", "true");
    let outcome = setu.line("extract pipeline.yaml --run r1");
    outcome.assert_clear_failure(&["credentials", "AWS_ACCESS_KEY_ID"]);

    setu.set("AWS_ACCESS_KEY_ID", &keys.access_key);
    setu.set("AWS_SECRET_ACCESS_KEY", &keys.secret_key);
    setu.succeed("extract pipeline.yaml --run r1");
    assert!(!open(&keys).list("ws/").expect("a list").is_empty());
}

/// A pipeline of CSV into CSV.
fn csv_to_csv(staging: &str) -> Setu {
    let setu = Setu::with_pipeline(&format!(
        "pipeline: p\nsource: {{ connector: csv, config: {{ path: in }} }}\n\
         destination: {{ connector: csv, config: {{ path: out }} }}\nstreams: [{{ name: \"*\" }}]\nstaging: {staging}\n"
    ));
    let rows: String = (0..120_000).map(|i| format!("{i},name {i}\n")).collect();
    setu.write("in/numbers.csv", format!("id,name\n{rows}"));
    setu
}

/// Extract and load meet in the bucket alone.
#[test]
fn both_halves_of_a_run_meet_in_a_bucket() {
    let bucket = Bucket::new();
    let extract = csv_to_csv(&bucket.yaml());
    let report = extract.report("extract pipeline.yaml --run r1");
    assert_eq!(report["streams"][0]["parts"], 3, "{report}");
    let load = csv_to_csv(&bucket.yaml());
    std::fs::remove_dir_all(load.path("in")).expect("a folder");
    load.succeed("load pipeline.yaml --run r1");
    assert_eq!(load.read("out/numbers.csv"), extract.read("in/numbers.csv"));
    let shown = load.succeed("show r1 --pipeline pipeline.yaml --json").json();
    assert!(shown.to_string().contains("numbers"), "{shown}");
    let outcome = extract.succeed("plan pipeline.yaml");
    let keys = bucket.spec();
    outcome.assert_hides(&[&keys.access_key, &keys.secret_key]);
}
