//! The zoo: connectors that do what they must not, each beside an honest stream, with the real command.
//!
//! However a stream misbehaves, the command ends with status 1 and one line that says which connector and call did
//! what, and where a setting or a grant would change it, which. Nothing of the stream reaches the destination, its
//! instance is not called again, and the honest stream arrives whole. What is no connector at all, or lies about
//! itself, is refused with status 2 before anything happens.
//!
//! The animals live in `tests/guests/zoo`; a misdeed's name is that of its stream.

#[path = "zoo/component.rs"]
mod component;
#[path = "zoo/destination.rs"]
mod destination;
#[path = "zoo/reach.rs"]
mod reach;
#[path = "zoo/source.rs"]
mod source;

use std::sync::Once;

use serde_json::Value;
use setu_tests::{Outcome, Setu};

static ZOO: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/setu_guest_zoo.wasm"));

const ROWS: usize = 1_000;
const HEADER: &str = "id,name,price\n";
const BOTH_MODES: [&str; 2] = ["staged", "direct"];

/// A pipeline from the zoo into CSV files, of the misdeed's stream and the honest one. `config` and `more` are added to
/// the source.
fn source(misdeed: &str, config: &str, more: &str) -> Setu {
    let setu = Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source:\n  connector: ./zoo.wasm\n  config: {{ folder: data, {config} }}\n  {more}\n\
         destination: {{ connector: csv, config: {{ path: out }} }}\n\
         streams: [{misdeed}, honest]\n"
    ));
    setu.write("data/granted.txt", "granted");
    with_zoo(setu)
}

/// A pipeline from CSV files into the zoo, whose destination writes files of the same names.
fn destination(misdeed: &str) -> Setu {
    let setu = Setu::with_pipeline(&format!(
        "pipeline: p\n\
         source: {{ connector: csv, config: {{ path: data }} }}\n\
         destination:\n  connector: ./zoo.wasm\n  config: {{ out: out }}\n  limits: {{ callTimeoutSeconds: 1 }}\n\
         streams: [{misdeed}, honest]\n"
    ));
    for name in [misdeed, "honest"] {
        let rows = format!("{HEADER}{}", lines(0..ROWS));
        setu.write(&format!("data/{name}.csv"), rows);
    }
    with_zoo(setu)
}

fn with_zoo(setu: Setu) -> Setu {
    static COMPILED: Once = Once::new();
    setu.write("zoo.wasm", ZOO);
    // Or else every test would compile it at the same time.
    COMPILED.call_once(|| drop(setu.line("plugin inspect ./zoo.wasm")));
    setu
}

/// The zoo's rows, as CSV.
fn lines(ids: std::ops::Range<usize>) -> String {
    ids.map(|id| format!("{id},row {id},{}.{:02}\n", id / 100, id % 100))
        .collect()
}

/// A run, and what came of it.
struct Visit<'a> {
    setu: &'a Setu,
    misdeed: &'a str,
    outcome: Outcome,
    report: Value,
}

impl<'a> Visit<'a> {
    #[track_caller]
    fn new(setu: &'a Setu, misdeed: &'a str, arguments: &str) -> Self {
        let outcome = setu.line(&format!("run pipeline.yaml {arguments} --report report.json"));
        let report = std::fs::read(setu.path("report.json")).ok();
        let report = report.and_then(|report| serde_json::from_slice(&report).ok());
        Visit {
            setu,
            misdeed,
            report: report.unwrap_or_else(|| panic!("no report from\n{outcome}")),
            outcome,
        }
    }

    fn stream(&self, name: &str) -> &Value {
        let streams = self.report["streams"].as_array();
        let found = streams.and_then(|streams| streams.iter().find(|stream| stream["stream"] == name));
        found.unwrap_or_else(|| panic!("no {name} in the report of\n{}", self.outcome))
    }

    /// What the destination has of a stream.
    fn written(&self, stream: &str) -> Option<String> {
        std::fs::read_to_string(self.setu.path(format!("out/{stream}.csv"))).ok()
    }

    /// The stream is done with all of its rows, which are the honest ones, in the destination.
    #[track_caller]
    fn assert_done(&self, stream: &str) {
        let report = self.stream(stream);
        assert_eq!(
            (&report["status"], &report["rows"], &report["error"]),
            (&"done".into(), &ROWS.into(), &Value::Null),
            "{stream}\n{}",
            self.outcome
        );
        let written = self.written(stream).unwrap_or_default();
        let rows = written.strip_prefix(HEADER).unwrap_or(&written);
        assert!(
            rows == lines(0..ROWS),
            "{stream} has {} bytes that differ",
            rows.len()
        );
    }

    /// The misdeed ended its own stream, was told in one line with all of these words, and had no other effect.
    #[track_caller]
    fn assert_ended(&self, words: &[&str]) -> &Self {
        self.outcome.assert_status(1).assert_clear_failure(words);
        self.assert_ended_in_many_lines(words)
    }

    /// The same where log lines may be many.
    #[track_caller]
    fn assert_ended_in_many_lines(&self, words: &[&str]) -> &Self {
        let Visit { misdeed, outcome, .. } = self;
        outcome.assert_status(1);
        let told = only_error(outcome);
        let place = format!("error: connector zoo 1.0.0, stream {misdeed}, call ");
        assert!(told.starts_with(&place), "`{place}` does not begin\n{outcome}");
        let error = self.stream(misdeed)["error"].as_str().unwrap_or_default();
        for word in words {
            assert!(
                told.contains(word) && error.contains(word),
                "`{word}` is not in {error}\n{outcome}"
            );
        }
        assert_eq!(self.stream(misdeed)["status"], "failed", "{outcome}");
        self.assert_done("honest");
        self.assert_left_alone();
        self
    }

    /// No instance was called that must not be, and nothing that a connector says steers the terminal.
    #[track_caller]
    fn assert_left_alone(&self) {
        self.outcome
            .assert_hides(&["AFTER ITS END", "OPENED TWICE", "\u{1b}", "defect of Setu"]);
    }
}

/// The one line that says why the command failed.
#[track_caller]
fn only_error(outcome: &Outcome) -> &str {
    let told: Vec<_> = outcome
        .stderr
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    let [told] = told.as_slice() else {
        panic!("one error, not {}:\n{outcome}", told.len());
    };
    assert!(
        told.len() < 10_000,
        "{} bytes are more than anyone reads",
        told.len()
    );
    told
}
