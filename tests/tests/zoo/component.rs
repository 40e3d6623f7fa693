//! Components that are no connectors, and connectors that lie about themselves.

use std::time::{Duration, Instant};

use super::*;

/// The zoo with another lie in `describe`.
fn liar(lie: &str) -> Vec<u8> {
    const TRUTH: &[u8] = b"the zoo tells the truth         ";
    let found: Vec<_> = (0..ZOO.len())
        .filter(|at| ZOO[*at..].starts_with(TRUTH))
        .collect();
    let [at] = found[..] else {
        panic!("one lie, not {found:?}");
    };
    let mut zoo = ZOO.to_vec();
    zoo[at..at + TRUTH.len()].copy_from_slice(format!("{lie:32}").as_bytes());
    zoo
}

/// A connector that is refused for what it is: at once, in one line, and before anything happens.
#[track_caller]
fn assert_refused(what: &str, component: &[u8], words: &[&str]) -> Outcome {
    let mut setu = source("panic", "", "");
    setu.write("zoo.wasm", component);
    // Not kept among what other runs use.
    setu.set("SETU_CACHE_DIR", &setu.path("cache").to_string_lossy());
    let outcome = within_a_minute(what, &setu, "run pipeline.yaml");
    outcome.assert_status(2).assert_clear_failure(words);
    let told = only_error(&outcome);
    assert!(told.starts_with("error: pipeline.yaml:3:14: "), "{what}: {told}");
    for word in words.iter().chain(&["zoo.wasm"]) {
        assert!(told.contains(word), "{what}: `{word}` is not in {told}");
    }
    outcome.assert_hides(&["\u{1b}", "defect of Setu"]);
    for made in ["out", ".setu", "setu.lock"] {
        assert!(!setu.path(made).exists(), "{what}: {made} was made");
    }
    outcome
}

#[track_caller]
fn within_a_minute(what: &str, setu: &Setu, arguments: &str) -> Outcome {
    let mut child = setu.spawn_heard(arguments);
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("it can be asked").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("it runs");
            panic!("{what}: no end of\n{}", Outcome::of(child));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Outcome::of(child)
}

#[test]
fn a_connector_that_lies_about_itself_is_refused() {
    for (lie, rule) in [
        (
            "control characters",
            "`zoo\\u{1b}[2J` is not made of 1 to 64 lower",
        ),
        ("long name", "z…` is not made of 1 to 64 lower case letters"),
        ("no version", "is not a semantic version"),
        ("no schema", "but describes no source configuration"),
        ("no json", "source configuration is not JSON"),
        ("no json schema", "configuration is not a JSON Schema (2020-12)"),
        ("long schema", "has 2097171 bytes; at most 1048576"),
        ("deep schema", "is not JSON: recursion limit exceeded"),
        ("foreign schema", "refers to `http://169.254.169.254/schema`"),
        ("panic", "it panicked: it has no name"),
    ] {
        assert_refused(lie, &liar(lie), &["describe", rule]);
    }
}

/// What a connector says is told on one line, and cannot seem to be another message.
#[test]
fn nobody_forges_a_line() {
    let words = ["describe", "is not a semantic version", "all is well"];
    assert_refused("forged line", &liar("forged line"), &words);
    let setu = source("panic", "listing: forged-line", "");
    let outcome = setu.line("discover pipeline.yaml");
    outcome.assert_clear_failure(&["nobody knows", "all is well"]);
    only_error(&outcome);
}

/// The configuration is checked by the host, where no limit of the connector's holds.
#[test]
fn a_schema_that_would_take_for_ever_is_refused() {
    for (lie, rule) in [
        ("explosion", "multiplies by its references"),
        ("explosion in disguise", "multiplies by its references"),
        ("endless chain", "is more than 500 levels deep"),
        ("endless chain of anchors", "refers to `#a0`"),
        ("many patterns", "bytes of regular expressions"),
    ] {
        assert_refused(lie, &liar(lie), &["source configuration", rule]);
    }
}

/// `describe` has limits of its own, which no setting changes.
#[test]
fn a_description_that_fills_the_host_is_refused_without_advice_that_would_not_help() {
    let words = ["connector.describe", "16 MiB of the host's memory"];
    let outcome = assert_refused("long summary", &liar("long summary"), &words);
    outcome.assert_hides(&["hostMemoryMib"]);
}

fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(content.len()), content].concat()
}

const MODULE: &[u8] = b"\0asm\x01\0\0\0";
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// A core module of so many functions, which all do nothing.
fn module(functions: usize) -> Vec<u8> {
    let count = leb(functions);
    let types = section(1, &[1, 0x60, 0, 0]);
    let declared = section(3, &[&*count, &vec![0; functions]].concat());
    // Two bytes: no locals, and the end.
    let bodies = section(10, &[count, [2, 0, 0x0b].repeat(functions)].concat());
    [MODULE, &types, &declared, &bodies].concat()
}

/// The zoo, and within it such a module, which is compiled and never used.
fn zoo_of(functions: usize) -> Vec<u8> {
    [ZOO, &section(1, &module(functions))].concat()
}

/// A component of this size that consists of a custom section.
fn giant(size: usize) -> Vec<u8> {
    let content = size - COMPONENT.len() - 1 - leb(size).len();
    let giant = [COMPONENT, &section(0, &vec![0; content])].concat();
    assert_eq!(giant.len(), size);
    giant
}

/// The zoo as a later version of the contract would have it.
fn newer() -> Vec<u8> {
    let mut zoo = ZOO.to_vec();
    for at in 0..zoo.len() - 6 {
        if zoo[at..].starts_with(b"@0.1.0") {
            zoo[at..at + 6].copy_from_slice(b"@0.2.0");
        }
    }
    zoo
}

#[test]
fn what_is_no_connector_is_refused_for_what_it_is() {
    let garbage = |n: u32| (n.wrapping_mul(2_654_435_761) >> 24) as u8;
    let garbage: Vec<u8> = (0..10_000).map(garbage).collect();
    let within = [COMPONENT, &garbage].concat();
    for (what, component, told) in [
        ("garbage", garbage, "is not a WebAssembly component"),
        ("garbage within", within, "cannot be used"),
        ("half a zoo", ZOO[..ZOO.len() / 2].to_vec(), "cannot be used"),
        ("a core module", module(10), "is a core WebAssembly module"),
        (
            "nothing within",
            COMPONENT.to_vec(),
            "a component, but no connector",
        ),
        ("a newer contract", newer(), "is made for version 0.2.0"),
        (
            "100 MiB",
            giant(100 << 20),
            "has 100 MiB, and its limit is 64 MiB",
        ),
        (
            "1,000,001 functions",
            zoo_of(1_000_001),
            "exceeds limit of 1000000",
        ),
    ] {
        assert_refused(what, &component, &[told]);
    }
}

/// References in a circle demand nothing, and much code is no crime.
#[test]
fn an_odd_connector_is_a_connector() {
    for component in [liar("circle"), zoo_of(100_000)] {
        let mut setu = source("abort", "", "");
        setu.write("zoo.wasm", component);
        setu.set("SETU_CACHE_DIR", &setu.path("cache").to_string_lossy());
        Visit::new(&setu, "abort", "--mode staged").assert_ended(&["it aborted (unreachable code)"]);
    }
}
