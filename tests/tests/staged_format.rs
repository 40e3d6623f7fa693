//! What lies in the blob store, seen by a program that knows nothing of Setu: keys, manifest, gzip, JSON lines.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use setu_tests::{Database, Setu, StagedStream, staged_keys};

/// A pipeline from a database into CSV files, staged in `blob` beside the pipeline file.
fn pipeline(database: &Database) -> Setu {
    Setu::with_pipeline(&format!(
        "pipeline: shop\n\
         source:\n  connector: postgres\n  config:\n    url: \"{}\"\n\
         destination:\n  connector: csv\n  config:\n    path: out\n\
         streams:\n  - name: \"public.*\"\n\
         staging:\n  backend: fs\n  fsRoot: blob\n",
        database.url()
    ))
}

fn stream(setu: &Setu, run: &str, slug: &str) -> StagedStream {
    StagedStream::new(setu.path("blob"), "shop", run, slug)
}

#[test]
fn keys_manifest_and_parts_are_as_documented() {
    let database = Database::new();
    database.execute(
        r#"CREATE TABLE user_accounts (
             id bigint PRIMARY KEY, ok boolean NOT NULL, f float8, n numeric(6,2), any_n numeric, t text, b bytea,
             u uuid, j json, d date, tm time, ts timestamp, tz timestamptz, tags text[]);
           INSERT INTO user_accounts VALUES
             (1, true, 0.1, 1.5, 1e30, 'ä', '\x00ff', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{"k":  1}', '2024-02-29',
              '24:00', '2024-02-29 01:02:03.5', '2024-02-29 01:02:03+01', '{a,NULL}'),
             (2, false, '-0', NULL, 'NaN', '', '', NULL, NULL, '-infinity', NULL, 'infinity', '0044-03-15 12:00:00+00 BC',
              NULL);"#,
    );
    let setu = pipeline(&database);
    setu.succeed("run pipeline.yaml --mode staged --run r1");
    let folder = "ws/default/pl/shop/run/r1";
    assert_eq!(
        staged_keys(&setu.path("blob")),
        [
            format!("{folder}/_extract.json"),
            format!("{folder}/_load.json"),
            format!("{folder}/_run.json"),
            format!("{folder}/stream/public_user_accounts/_manifest.json"),
            format!("{folder}/stream/public_user_accounts/part-000000.jsonl.gz"),
        ]
    );

    let staged = stream(&setu, "r1", "public_user_accounts");
    let manifest = staged.manifest();
    let names: BTreeSet<&str> = manifest
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect();
    for name in [
        "formatVersion",
        "stream",
        "namespace",
        "streamType",
        "schema",
        "primaryKey",
        "status",
        "parts",
        "rowsTotal",
        "createdAt",
        "completedAt",
    ] {
        assert!(names.contains(name), "no `{name}` in {manifest}");
    }
    assert_eq!(manifest["formatVersion"], 1);
    assert_eq!(manifest["stream"], "user_accounts");
    assert_eq!(manifest["namespace"], "public");
    assert_eq!(manifest["primaryKey"], json!(["id"]));
    assert_eq!(manifest["status"], "complete");
    assert_eq!(manifest["rowsTotal"], 2);
    let part = &manifest["parts"][0];
    assert_eq!(part["key"], staged.key("part-000000.jsonl.gz"));
    assert_eq!(part["rows"], 2);
    let size = std::fs::metadata(setu.path("blob").join(staged.key("part-000000.jsonl.gz")));
    assert_eq!(part["bytes"], size.expect("the part").len());

    assert_eq!(
        staged.part(0),
        [
            vec![
                json!(1),
                json!(true),
                json!(0.1),
                json!("1.50"),
                json!("1000000000000000000000000000000"),
                json!("ä"),
                json!("AP8="),
                json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
                json!("{\"k\":  1}"),
                json!("2024-02-29"),
                json!("24:00:00.000000"),
                json!("2024-02-29T01:02:03.500000"),
                json!("2024-02-29T00:02:03.000000Z"),
                json!("{a,NULL}"),
            ],
            vec![
                json!(2),
                json!(false),
                json!(-0.0),
                Value::Null,
                json!("NaN"),
                json!(""),
                json!(""),
                Value::Null,
                Value::Null,
                json!("-infinity"),
                Value::Null,
                json!("infinity"),
                json!("-0043-03-15T12:00:00.000000Z"),
                Value::Null,
            ],
        ]
    );
    let text = staged.part_text(0);
    assert!(
        text.ends_with("]\n") && text.lines().count() == 2,
        "one line a row, each ended: {text}"
    );
    assert!(text.contains(",-0.0,"), "the sign of zero is kept: {text}");
}

#[test]
fn a_part_holds_exactly_fifty_thousand_rows_where_there_are_enough() {
    let database = Database::new();
    database.execute(
        "CREATE TABLE many (id int PRIMARY KEY, t text);
         INSERT INTO many SELECT i, 'row ' || i FROM generate_series(1, 120000) i;",
    );
    let setu = pipeline(&database);
    setu.succeed("extract pipeline.yaml --run r1");
    let staged = stream(&setu, "r1", "public_many");
    let manifest = staged.manifest();
    let rows: Vec<_> = manifest["parts"]
        .as_array()
        .expect("parts")
        .iter()
        .map(|part| part["rows"].clone())
        .collect();
    assert_eq!(rows, [json!(50_000), json!(50_000), json!(20_000)]);
    assert_eq!(manifest["rowsTotal"], 120_000);
    for (index, expected) in [50_000, 50_000, 20_000].into_iter().enumerate() {
        assert_eq!(staged.part(index).len(), expected, "part {index}");
    }
    let ids: Vec<i64> = staged.rows().iter().filter_map(|row| row[0].as_i64()).collect();
    assert!(ids.iter().copied().eq(1..=120_000), "each row once, in key order");
}

#[test]
fn a_part_holds_at_most_64_mib_of_text_and_comes_close_to_it() {
    const CAP: usize = 64 << 20;
    let database = Database::new();
    // 200 rows of about 1 MiB: four parts by bytes, one by rows.
    database.execute(
        "CREATE TABLE wide (id int PRIMARY KEY, t text);
         INSERT INTO wide SELECT i, repeat(md5(i::text), 32768) FROM generate_series(1, 200) i;",
    );
    let setu = pipeline(&database);
    setu.succeed("extract pipeline.yaml --run r1");
    let staged = stream(&setu, "r1", "public_wide");
    let sizes: Vec<usize> = (0..staged.named_parts())
        .map(|index| staged.part_text(index).len())
        .collect();
    assert!(sizes.iter().all(|size| *size <= CAP), "{sizes:?}");
    let (_, full) = sizes.split_last().expect("parts");
    assert!(
        full.iter().all(|size| *size > CAP / 100 * 95),
        "the cap is reached: {sizes:?}"
    );
    assert_eq!(staged.rows().len(), 200);
}

#[test]
fn two_streams_never_share_a_folder() {
    let database = Database::new();
    database.execute(
        "CREATE TABLE \"a b\" (n int); INSERT INTO \"a b\" VALUES (1);
         CREATE TABLE \"a_b\" (n int); INSERT INTO \"a_b\" VALUES (2);
         CREATE TABLE \"a.b\" (n int); INSERT INTO \"a.b\" VALUES (3);
         CREATE TABLE \"A_B\" (n int); INSERT INTO \"A_B\" VALUES (4);
         CREATE TABLE \"ä\" (n int); INSERT INTO \"ä\" VALUES (5);
         CREATE TABLE \"ö\" (n int); INSERT INTO \"ö\" VALUES (6);",
    );
    let setu = pipeline(&database);
    setu.succeed("extract pipeline.yaml --run r1");
    let folders: BTreeSet<String> = staged_keys(&setu.path("blob"))
        .iter()
        .filter(|key| key.ends_with("_manifest.json"))
        .map(|key| key.to_lowercase())
        .collect();
    assert_eq!(folders.len(), 6, "also where case does not count: {folders:?}");
    assert!(
        folders.iter().any(|key| key.contains("/public_a_b/")),
        "a plain form stays plain: {folders:?}"
    );
}

/// The very tools that the documentation names.
#[test]
fn gzip_and_a_json_parser_read_a_part() {
    let setu = Setu::with_pipeline(
        "pipeline: shop\n\
         source: { connector: csv, config: { path: data } }\n\
         destination: { connector: csv, config: { path: out } }\n\
         streams: [{ name: t }]\n\
         staging: { backend: fs, fsRoot: blob }\n",
    );
    setu.write("data/t.csv", "a,b\n1,\"x\"\"y\"\n,\"\"\n");
    setu.succeed("extract pipeline.yaml --run r1");
    let part = setu
        .path("blob")
        .join(stream(&setu, "r1", "t").key("part-000000.jsonl.gz"));
    let output = std::process::Command::new("gzip")
        .arg("-dc")
        .arg(part)
        .output()
        .expect("gzip");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(text, "[\"1\",\"x\\\"y\"]\n[null,\"\"]\n");
}
