//! Sources: what they return, how they end, what they use up, and positions that are worth nothing.

use setu_tests::{Outcome, csv_rows, staged_keys};

use super::*;

/// Each of these ends its stream in this call, in both modes, with these words and without a row in the destination.
#[track_caller]
fn each_ends(call: &str, cases: &[(&str, &[&str])], limits: &str) {
    for (misdeed, words) in cases {
        for mode in BOTH_MODES {
            let setu = source(misdeed, "", limits);
            let visit = Visit::new(&setu, misdeed, &format!("--mode {mode}"));
            visit.assert_ended(&[&[&*format!("call source.{call}: ")], *words].concat());
            assert_eq!(visit.written(misdeed), None, "{misdeed} {mode}");
        }
    }
}

#[test]
fn spoilt_rows_end_their_stream_with_the_rule() {
    for (misdeed, rule) in [
        ("more-rows-than-asked", "a batch of 8193 rows where at most 8192"),
        ("no-rows-for-ever", "a batch of no rows"),
        (
            "too-few-values",
            "column `id`: 1 values where the batch needs 100",
        ),
        ("offsets-out-of-order", "`name`: the offsets decrease after row 7"),
        ("offset-beyond-data", "`name`: the last offset is 2147483647"),
        ("short-validity", "`name`: 12 bytes of validity bits"),
        ("invalid-utf8", "column `name`: row 0 is not UTF-8"),
        (
            "other-type-later",
            "`name`: its type is text, but its values are `int64`",
        ),
        (
            "fewer-columns-later",
            "a batch of 2 columns where the schema has 3",
        ),
        (
            "more-columns-later",
            "a batch of 4 columns where the schema has 3",
        ),
        ("null-where-none-may-be", "column `id`: row 4 is null"),
        (
            "decimal-beyond-precision",
            "`price`: row 5 holds a number of more than 6",
        ),
        ("giant-position", "a position of 104857600 bytes; at most 65536"),
        ("aliased-rows", "`name`: the offsets decrease after row 1"),
    ] {
        let words = ["broke the contract", rule];
        each_ends("reader.next", &[(misdeed, &words)], "");
    }
}

#[test]
fn a_position_of_a_stream_that_has_none_ends_it() {
    let rule = "does not say that it is resumable";
    each_ends("reader.next", &[("position-unannounced", &[rule])], "");
}

/// Much of it would be gigabytes for the host: the same MiB, a thousand times.
#[test]
fn memory_that_is_not_what_it_is_said_to_be_ends_its_stream() {
    let too_much = ["256 MiB of the host's memory", "hostMemoryMib"];
    each_ends(
        "reader.schema",
        &[
            ("aliased-keys", &too_much),
            ("aliased-names", &too_much),
            ("text-beyond-memory", &["cannot be read", "out of bounds"]),
            ("name-not-utf8", &["cannot be read", "utf-8"]),
        ],
        "",
    );
    each_ends(
        "reader.next",
        &[
            ("aliased-columns", &too_much),
            ("giant-list", &too_much),
            ("list-beyond-memory", &["cannot be read", "out of bounds"]),
            ("unaligned-list", &["cannot be read", "not aligned"]),
        ],
        "",
    );
    each_ends(
        "connection.read",
        &[("forged-reader", &["cannot be read", "handle index 12345"])],
        "",
    );
}

/// A listing concerns every stream, so nothing is moved at all.
#[test]
fn a_spoilt_listing_ends_the_command_before_anything_happens() {
    for (listing, words) in [
        (
            "aliased-keys",
            &["256 MiB of the host's memory", "hostMemoryMib"][..],
        ),
        (
            "two-of-one-name",
            &["two streams are named `more-rows-than-asked`"],
        ),
        ("panic", &["it panicked: nobody knows what lives here"]),
    ] {
        let setu = source("panic", &format!("listing: {listing}"), "");
        for verb in ["run", "discover"] {
            let outcome = setu.line(&format!("{verb} pipeline.yaml"));
            outcome.assert_clear_failure(words).assert_status(1);
            let place = "error: connector zoo 1.0.0, call source.connection.discover: ";
            assert!(only_error(&outcome).starts_with(place), "{outcome}");
            outcome.assert_hides(&["AFTER ITS END"]);
        }
        assert!(!setu.path("out").exists());
        assert_eq!(staged_keys(&setu.path(".setu/blob")), [] as [&str; 0]);
    }
}

#[test]
fn a_crash_ends_its_stream_for_what_it_is() {
    let cases: [(&str, &[&str]); 5] = [
        ("panic", &["it panicked: the lion is loose", "resources.rs"]),
        ("abort", &["it aborted (unreachable code)"]),
        ("unreachable", &["it aborted (unreachable code)"]),
        ("exit", &["it ended itself with exit status 0"]),
        ("recurse", &["endless recursion"]),
    ];
    each_ends("reader.next", &cases, "");
}

#[test]
fn what_uses_too_much_ends_its_stream_and_names_the_limit() {
    let timeout = ["no progress for 1 seconds", "callTimeoutSeconds"];
    let cases: [(&str, &[&str]); 4] = [
        ("loop", &timeout),
        ("sleep", &timeout),
        ("eat-memory", &["its limit is 64 MiB", "memoryMib"]),
        ("open-files", &["more than 1000 files", "openHandles"]),
    ];
    each_ends(
        "reader.next",
        &cases,
        "limits: { callTimeoutSeconds: 1, memoryMib: 64 }",
    );
}

#[test]
fn a_giant_error_is_cut_and_stays_one_line() {
    each_ends("reader.next", &[("giant-error", &["it failed \\u{1b}[2J"])], "");
}

/// Each stream does it in the middle of its rows, and arrives whole all the same.
#[test]
fn a_flood_drowns_nobody() {
    for misdeed in [
        "flood-stdout",
        "flood-stderr",
        "flood-log",
        "giant-log-line",
        "open-and-close-files",
    ] {
        let setu = source(misdeed, "", "");
        let visit = Visit::new(&setu, misdeed, "--mode staged");
        visit.outcome.assert_status(0);
        visit.assert_done(misdeed);
        visit.assert_done("honest");
        visit.assert_left_alone();
        let Outcome { stdout, stderr, .. } = &visit.outcome;
        assert_eq!(stdout, "", "{misdeed}");
        let longest = stderr.lines().map(str::len).max();
        assert!(longest < Some(9_000), "{misdeed}: {longest:?}");
        let logged = stderr.matches("a flood of lines").count();
        assert_eq!(
            logged,
            if misdeed == "flood-log" { 10_000 } else { 0 },
            "{misdeed}"
        );
        let dropped = stderr.contains("40000 log lines were dropped");
        assert_eq!(dropped, misdeed == "flood-log");
    }
}

/// The same command again: the stream is tried anew, in an instance that knows nothing of the first one.
#[test]
fn what_has_ended_is_not_called_again_and_a_further_attempt_starts_afresh() {
    for misdeed in [
        "abort",
        "panic",
        "fewer-columns-later",
        "forged-reader",
        "aliased-keys",
    ] {
        let setu = source(misdeed, "", "");
        let told = |visit: &Visit<'_>| visit.stream(misdeed)["error"].clone();
        let [first, second] = [(); 2].map(|()| Visit::new(&setu, misdeed, "--mode staged --run r"));
        first.assert_ended(&["call source."]);
        second.assert_ended(&["call source."]);
        assert_eq!(told(&first), told(&second));
    }
}

/// A run of 90,000 rows that breaks within the second part, and the same pipeline once it has been mended.
fn broken(misdeed: &str) -> Setu {
    let setu = source(misdeed, "", "");
    Visit::new(&setu, misdeed, "--mode staged --run r").assert_ended(&["the stream broke"]);
    let mended = setu
        .read("pipeline.yaml")
        .replace("folder: data", "folder: data, mended: true");
    setu.write("pipeline.yaml", mended);
    setu
}

fn ids(visit: &Visit<'_>) -> Vec<usize> {
    let written = visit.written(visit.misdeed).unwrap_or_default();
    let rows = csv_rows(&written).into_iter().skip(1);
    rows.filter_map(|row| row[0].as_ref()?.parse().ok()).collect()
}

#[test]
fn a_source_that_says_that_it_cannot_resume_is_read_from_the_start() {
    let setu = broken("forgets-and-says-so");
    let visit = Visit::new(&setu, "forgets-and-says-so", "--mode staged --run r");
    visit.outcome.assert_status(0);
    for word in ["forgets-and-says-so: reading starts over", "the log was cut"] {
        assert!(visit.outcome.stderr.contains(word), "{}", visit.outcome);
    }
    assert!(ids(&visit).into_iter().eq(0..90_000));
    visit.assert_left_alone();
}

#[test]
fn a_source_that_fails_at_its_own_position_fails_until_another_run() {
    let misdeed = "forgets-and-fails";
    let setu = broken(misdeed);
    for _ in 0..2 {
        let visit = Visit::new(&setu, misdeed, "--mode staged --run r");
        visit.assert_ended(&["call source.connection.read", "what is this position?"]);
        assert_eq!(visit.written(misdeed), None);
    }
    let visit = Visit::new(&setu, misdeed, "--mode staged --run another");
    visit.outcome.assert_status(0);
    assert!(ids(&visit).into_iter().eq(0..90_000));
}

/// Nobody but the source knows the right rows: what was staged stays, and what it returns after its position is added.
#[test]
fn a_source_that_resumes_elsewhere_is_believed() {
    let setu = broken("forgets-and-pretends");
    let visit = Visit::new(&setu, "forgets-and-pretends", "--mode staged --run r");
    visit.outcome.assert_status(0);
    assert_eq!(visit.stream("forgets-and-pretends")["rows"], 140_000);
    assert!(ids(&visit).into_iter().eq((0..50_000).chain(0..90_000)));
}
