//! Secrets reach the systems that they are for and nothing else: no output, no log, no report, no staged object.

use std::io::Read;

use setu::blob;
use setu_tests::server::{PASSWORD, SCRAM_USER};
use setu_tests::{Bucket, Database, Setu};

/// As a URL must spell it.
const ESCAPED: &str = "correct%20horse%3A%20battery%2Fstaple%40%25";

#[test]
fn a_run_leaves_no_secret_anywhere() {
    let (source, target) = (Database::new(), Database::new());
    source.execute(
        "CREATE TABLE people (id int PRIMARY KEY, name text); INSERT INTO people VALUES (1, 'Ada'), (2, 'Emmy');
         CREATE TABLE broken (id int PRIMARY KEY, name text); INSERT INTO broken VALUES (1, 'a long name');",
    );
    // One stream fails, so that its error is recorded as well.
    target.execute("CREATE TABLE broken (id int PRIMARY KEY, name varchar(3))");
    let bucket = Bucket::new();
    let login = format!("{SCRAM_USER}:{ESCAPED}");
    let url = |database: &Database| database.url_for(&login, "127.0.0.1", database.port());
    let setu = Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         destination: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         streams: [{{ name: public.people, write: upsert }}, {{ name: public.broken, write: upsert }}]\n\
         staging: {}\n",
        url(&source),
        url(&target),
        bucket.yaml()
    ));
    let keys = bucket.spec();
    let secrets = [PASSWORD, ESCAPED, "battery", &keys.secret_key, &keys.access_key];

    let run =
        setu.line("run pipeline.yaml --mode staged --run r1 --report report.json -vvv --log-format json");
    run.assert_status(1).assert_hides(&secrets);
    assert_eq!(
        target.value("SELECT count(*) FROM people").as_deref(),
        Some("2"),
        "{run}"
    );
    for arguments in [
        "plan pipeline.yaml",
        "runs --pipeline pipeline.yaml --json",
        "show r1 --pipeline pipeline.yaml",
    ] {
        setu.line(arguments).assert_hides(&secrets);
    }
    let report = setu.read("report.json");
    assert!(report.contains("public.broken"), "{report}");
    let mut places = vec![("report.json".to_owned(), report.into_bytes())];
    let store = blob::from_spec(&keys).expect("the store");
    for object in store.list("").expect("a list") {
        let mut bytes = Vec::new();
        let mut reader = store.get(&object.key).expect("an object");
        reader.read_to_end(&mut bytes).expect("an object");
        places.push((object.key.to_string(), bytes));
    }
    assert!(
        places.iter().any(|(key, _)| key.ends_with("_run.json")),
        "{places:?}"
    );
    for (place, bytes) in &places {
        let text = String::from_utf8_lossy(bytes);
        for secret in secrets {
            assert!(!text.contains(secret), "`{secret}` stands in {place}: {text}");
        }
    }
}
