//! Staged objects that are not what they were: each is named, and nothing of the stream is loaded.

use std::fs;
use std::path::PathBuf;

use setu_tests::{Database, Setu, StagedStream};

struct Staged {
    setu: Setu,
    target: Database,
    stream: StagedStream,
}

/// A stream of two parts that waits to be loaded.
fn staged() -> Staged {
    let (source, target) = (Database::new(), Database::new());
    source.execute(
        "CREATE TABLE many AS SELECT i AS id FROM generate_series(1, 60000) i; CREATE TABLE other (a int);",
    );
    let setu = Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         destination: {{ connector: postgres, config: {{ url: \"{}\" }} }}\n\
         streams: [public.many, public.other]\n\
         staging: {{ backend: fs, fsRoot: blob }}\n",
        source.url(),
        target.url()
    ));
    setu.succeed("extract pipeline.yaml --run r1");
    let stream = StagedStream::new(setu.path("blob"), "p", "r1", "public_many");
    Staged { setu, target, stream }
}

impl Staged {
    fn path(&self, name: &str) -> PathBuf {
        self.setu.path("blob").join(self.stream.key(name))
    }

    fn change_manifest(&self, change: impl Fn(&mut serde_json::Value)) {
        let mut manifest = self.stream.manifest();
        change(&mut manifest);
        fs::write(self.path("_manifest.json"), manifest.to_string()).expect("the manifest");
    }

    /// The load fails with these words, loads nothing of the stream, and everything of the other.
    #[track_caller]
    fn assert_refused(&self, words: &[&str]) {
        self.setu
            .line("load pipeline.yaml --run r1")
            .assert_status(1)
            .assert_clear_failure(words);
        assert_eq!(self.target.value("SELECT to_regclass('public.many')"), None);
        assert_eq!(
            self.target.value("SELECT to_regclass('public.other')").as_deref(),
            Some("other")
        );
    }
}

const PART: &str = "part-000001.jsonl.gz";

#[test]
fn a_part_that_is_missing() {
    let staged = staged();
    fs::remove_file(staged.path(PART)).expect("the part");
    staged.assert_refused(&[
        "public_many/part-000001.jsonl.gz",
        "is missing",
        "start a new run",
    ]);
}

#[test]
fn a_part_that_is_cut_short() {
    let staged = staged();
    let bytes = fs::read(staged.path(PART)).expect("the part");
    fs::write(staged.path(PART), &bytes[..bytes.len() / 2]).expect("the part");
    staged.assert_refused(&["public_many/part-000001.jsonl.gz", "is damaged", "bytes"]);
}

#[test]
fn a_part_with_a_flipped_byte() {
    let staged = staged();
    // In the first part: the second one would be found after the first was loaded, in a transaction of its own.
    let path = staged.path("part-000000.jsonl.gz");
    let mut bytes = fs::read(&path).expect("the part");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).expect("the part");
    staged
        .setu
        .line("load pipeline.yaml --run r1")
        .assert_status(1)
        .assert_clear_failure(&["public_many/part-000000.jsonl.gz", "is damaged"]);
    // An overwrite shows nothing before all of it is there.
    assert_eq!(staged.target.value("SELECT to_regclass('public.many')"), None);
}

#[test]
fn a_manifest_that_counts_rows_that_are_not_there() {
    let staged = staged();
    staged.change_manifest(|manifest| {
        manifest["parts"][0]["rows"] = 49_999.into();
        manifest["rowsTotal"] = 59_999.into();
    });
    staged
        .setu
        .line("load pipeline.yaml --run r1")
        .assert_status(1)
        .assert_clear_failure(&["public_many/part-000000.jsonl.gz", "rows"]);
    assert_eq!(staged.target.value("SELECT to_regclass('public.many')"), None);
}

#[test]
fn a_manifest_of_a_newer_version() {
    let staged = staged();
    staged.change_manifest(|manifest| manifest["formatVersion"] = 2.into());
    staged.assert_refused(&["public_many/_manifest.json", "formatVersion 2", "newer"]);
}

#[test]
fn a_manifest_of_another_stream_under_the_same_slug() {
    let staged = staged();
    staged.change_manifest(|manifest| manifest["stream"] = "lots".into());
    staged.assert_refused(&["public_many/_manifest.json", "public.lots", "public.many"]);
}

#[test]
fn a_manifest_that_is_no_manifest() {
    let staged = staged();
    fs::write(staged.path("_manifest.json"), "{").expect("the manifest");
    staged.assert_refused(&["public_many/_manifest.json", "damaged"]);
}

/// An extractor in another language leaves manifests and parts, and no record of a run.
#[test]
fn a_run_of_which_there_are_only_manifests_is_loaded() {
    let staged = staged();
    let run = staged.setu.path("blob/ws/default/pl/p/run/r1");
    for record in ["_run.json", "_extract.json"] {
        fs::remove_file(run.join(record)).expect(record);
    }
    staged.setu.succeed("load pipeline.yaml --run r1");
    assert_eq!(
        staged.target.value("SELECT count(*) FROM many").as_deref(),
        Some("60000")
    );
    assert_eq!(
        staged.target.value("SELECT count(*) FROM other").as_deref(),
        Some("0")
    );
}
