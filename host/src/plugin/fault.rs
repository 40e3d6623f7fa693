//! What a failed call means: the one place where wasmtime's errors become the host's.
//!
//! A panic, a trap, a limit, a hang and an answer that cannot be read are told apart here. Each message says what
//! happened and, where a person can change something, which setting.

use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::{I32Exit, ResourceTableError};

use super::inspect;
use super::limits::{Exceeded, Limits};
use super::progress::Stalled;
use super::text::printable;
use crate::connector::{Error, ErrorKind};
use crate::pipeline::Limit;

/// The longest panic message that is shown.
const MAX_STDERR_BYTES: usize = 4 << 10;

/// Classifies the error that ended a call. `stderr` is what the guest wrote there during the call.
pub(super) fn classify(error: &wasmtime::Error, stderr: &str, limits: &Limits) -> Error {
    if let Some(exceeded) = error.downcast_ref::<Exceeded>() {
        return exceeded_limit(*exceeded, limits);
    }
    if let Some(ResourceTableError::Full) = error.downcast_ref::<ResourceTableError>() {
        let message = format!(
            "it holds more than {} files, sockets and streams, its limit{}",
            limits.handles,
            way_out(Limit::OpenHandles, limits)
        );
        return Error::new(ErrorKind::Limit, message);
    }
    if is_fuel_exhausted(error) {
        let message = format!(
            "what it handed over in one call would have taken more than {} of the host's memory, its limit{}",
            mib(limits.host_memory),
            way_out(Limit::HostMemoryMib, limits)
        );
        return Error::new(ErrorKind::Limit, message);
    }
    if let Some(exit) = error.downcast_ref::<I32Exit>() {
        return Error::new(
            ErrorKind::Trap,
            format!("it ended itself with exit status {}{}", exit.0, said(stderr)),
        );
    }
    match error.downcast_ref::<Trap>() {
        Some(trap) => trapped(*trap, stderr),
        // No trap, so the guest's code was not at fault in itself, but what it handed over could not be read.
        None => {
            let cause = printable(&error.root_cause().to_string(), MAX_STDERR_BYTES);
            match error.downcast_ref::<WasmBacktrace>() {
                Some(_) => Error::new(
                    ErrorKind::Trap,
                    format!("the call failed: {cause}{}", said(stderr)),
                ),
                None => Error::new(
                    ErrorKind::BrokenContract,
                    format!("what it returned cannot be read: {cause}"),
                ),
            }
        }
    }
}

/// The error of a call whose time is over.
pub(super) fn stalled(stalled: Stalled, limits: &Limits) -> Error {
    let message = match stalled {
        Stalled::Busy => format!(
            "no progress for {} seconds, its limit: the connector computes or sleeps{}",
            limits.call.as_secs(),
            way_out(Limit::CallTimeoutSeconds, limits)
        ),
        Stalled::Waiting => format!(
            "no answer from the server for {} seconds, its limit{}; a server may need long, for instance to sort",
            limits.answer.as_secs(),
            way_out(Limit::CallTimeoutSeconds, limits)
        ),
        Stalled::Spent => format!(
            "it has run for {} seconds, its limit{}",
            limits.total.as_secs(),
            way_out(Limit::TotalTimeoutSeconds, limits)
        ),
    };
    Error::new(ErrorKind::Timeout, message)
}

fn exceeded_limit(exceeded: Exceeded, limits: &Limits) -> Error {
    let message = match exceeded {
        Exceeded::Memory(wanted) => format!(
            "it needs {} of memory, and its limit is {}{}",
            mib(wanted),
            mib(limits.memory),
            way_out(Limit::MemoryMib, limits)
        ),
        Exceeded::Table(elements) => {
            format!("it wants a table of {elements} elements, which is more than any may have")
        }
    };
    Error::new(ErrorKind::Limit, message)
}

/// What a person can do about a limit.
fn way_out(limit: Limit, limits: &Limits) -> String {
    match limits.fixed {
        true => String::new(),
        false => format!("; {}", inspect::raise(limit)),
    }
}

fn mib(bytes: usize) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

/// Wasmtime's error for this is private; a test holds its text fast.
fn is_fuel_exhausted(error: &wasmtime::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.to_string().contains("fuel allocated for hostcalls"))
}

fn trapped(trap: Trap, stderr: &str) -> Error {
    if let Some(message) = panic_message(stderr) {
        return Error::new(ErrorKind::Panic, format!("it panicked: {message}"));
    }
    let what = match trap {
        Trap::UnreachableCodeReached => "it aborted (unreachable code)".to_owned(),
        Trap::StackOverflow => "its call stack overflowed: endless recursion?".to_owned(),
        // Rust keeps its stack in linear memory, below everything else, so recursion runs out of it.
        Trap::MemoryOutOfBounds => {
            "it reached outside its memory; endless recursion looks like this too".to_owned()
        }
        Trap::CannotEnterComponent => "an earlier call has ended it".to_owned(),
        trap => format!("it trapped: {trap}"),
    };
    Error::new(ErrorKind::Trap, format!("{what}{}", said(stderr)))
}

/// The panic message that Rust wrote: `src/lib.rs:10:5: the message`.
fn panic_message(stderr: &str) -> Option<String> {
    let (_, panic) = stderr.rsplit_once("panicked at ")?;
    let panic = panic
        .split_once("\nnote: run with")
        .map_or(panic, |(message, _)| message);
    let mut lines = panic.lines();
    let place = lines.next()?.trim_end_matches(':');
    let message = lines.collect::<Vec<_>>().join("\n");
    let message = match message.trim() {
        "" => place.to_owned(),
        message => format!("{message} (at {place})"),
    };
    Some(printable(&message, MAX_STDERR_BYTES))
}

fn said(stderr: &str) -> String {
    match printable(stderr.trim(), MAX_STDERR_BYTES) {
        said if said.is_empty() => said,
        said => format!("; its last words: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::LimitSpec;

    #[test]
    fn a_panic_is_told_by_what_it_left_on_stderr() {
        let stderr = "chatter\nthread '<unnamed>' (1) panicked at src/lib.rs:10:5:\nno \x1b[1mway\nout\nnote: run with \
                      `RUST_BACKTRACE=1`";
        let error = trapped(Trap::UnreachableCodeReached, stderr);
        assert_eq!(error.kind(), ErrorKind::Panic);
        assert_eq!(
            error.message(),
            "it panicked: no \\u{1b}[1mway\\nout (at src/lib.rs:10:5)"
        );
    }

    #[test]
    fn a_trap_without_a_panic_keeps_the_last_words() {
        let error = trapped(Trap::UnreachableCodeReached, "abort: oh\n");
        assert_eq!(error.kind(), ErrorKind::Trap);
        assert_eq!(
            error.message(),
            "it aborted (unreachable code); its last words: abort: oh"
        );
    }

    #[test]
    fn a_limit_names_itself_its_value_and_the_setting() {
        let limits = Limits::new(&LimitSpec::default(), &LimitSpec::default());
        let error = classify(&Exceeded::Memory(600 << 20).into(), "", &limits);
        assert_eq!(error.kind(), ErrorKind::Limit);
        for part in ["600 MiB", "512 MiB", "memoryMib"] {
            assert!(error.message().contains(part), "{error}");
        }
        let error = stalled(Stalled::Busy, &limits);
        assert_eq!(error.kind(), ErrorKind::Timeout);
        for part in ["300 seconds", "callTimeoutSeconds"] {
            assert!(error.message().contains(part), "{error}");
        }
    }
}
