//! Destinations: those that fail, that count wrong, that are slow.

use std::time::{Duration, Instant};

use super::*;

#[test]
fn a_destination_that_fails_ends_its_stream_with_the_call() {
    for (misdeed, told) in [
        ("fail-in-begin", "connection.begin: the cage is taken"),
        ("panic-in-write", "writer.write: it panicked: the bear is awake"),
        ("loop-in-write", "writer.write: no progress for 1 seconds"),
        ("fail-in-commit", "writer.commit: the food is off"),
        ("abort-in-commit", "writer.commit: it aborted (unreachable code)"),
        ("never-finish", "writer.finish: no progress for 1 seconds"),
    ] {
        for mode in BOTH_MODES {
            let setu = destination(misdeed);
            let visit = Visit::new(&setu, misdeed, &format!("--mode {mode}"));
            visit.assert_ended(&[&format!("call destination.{told}")]);
            assert_eq!(visit.written(misdeed), None, "{misdeed} {mode}");
        }
    }
}

/// The host knows how many rows and commits there were. It must not call a stream done that arrived otherwise.
#[test]
fn a_destination_that_counts_wrong_is_not_believed() {
    for (misdeed, call, claim) in [
        ("commits-beyond-all", "writer.committed", "1000000"),
        ("commits-before-asked", "writer.committed", "mark"),
        ("count-too-few", "writer.finish", "999"),
        ("count-too-many", "writer.finish", "18446744073709551615"),
    ] {
        for mode in BOTH_MODES {
            let setu = destination(misdeed);
            let visit = Visit::new(&setu, misdeed, &format!("--mode {mode}"));
            let call = format!("call destination.{call}: ");
            visit.assert_ended(&[&call, "the connector broke the contract", claim]);
        }
    }
}

#[test]
fn a_destination_that_is_slow_or_breaks_once_is_waited_for() {
    for mode in BOTH_MODES {
        for misdeed in ["slow", "break-once"] {
            let setu = destination(misdeed);
            let start = Instant::now();
            let visit = Visit::new(&setu, misdeed, &format!("--mode {mode}"));
            visit.outcome.assert_status(0);
            visit.assert_done(misdeed);
            visit.assert_done("honest");
            visit.assert_left_alone();
            let slow = start.elapsed() > Duration::from_millis(1200);
            let retries = visit
                .outcome
                .stderr
                .matches("the door fell shut; again in 0.5 s (retry 1 of 5)");
            match misdeed {
                "slow" => assert!(slow, "longer in all than one call may take"),
                _ => assert_eq!(retries.count(), 1, "{}", visit.outcome),
            }
        }
    }
}
