//! The contract's `log`: a guest's lines become the host's log events, within a budget.

use super::bindings::setu::connector::log::{Host, Level};
use super::state::State;
use super::text::printable;

const MAX_LINES: u64 = 10_000;
const MAX_BYTES: u64 = 4 << 20;
const MAX_LINE_BYTES: usize = 8 << 10;

/// The log of one instance.
#[derive(Debug)]
pub(super) struct GuestLog {
    connector: String,
    run: String,
    stream: String,
    budget: Budget,
}

/// How many lines and bytes were let through, and how many lines were not.
#[derive(Debug, Default)]
struct Budget {
    lines: u64,
    bytes: u64,
    dropped: u64,
}

impl Budget {
    fn admit(&mut self, bytes: usize) -> bool {
        let admitted = self.lines < MAX_LINES && self.bytes < MAX_BYTES;
        if admitted {
            self.lines += 1;
            self.bytes += bytes as u64;
        } else {
            self.dropped += 1;
        }
        admitted
    }
}

impl GuestLog {
    pub(super) fn new(connector: String, run: String, stream: Option<String>) -> Self {
        GuestLog {
            connector,
            run,
            stream: stream.unwrap_or_default(),
            budget: Budget::default(),
        }
    }

    fn write(&mut self, level: Level, message: &str, fields: &[(String, String)]) {
        let mut line = printable(message, MAX_LINE_BYTES);
        for (name, value) in fields {
            if line.len() >= MAX_LINE_BYTES {
                break;
            }
            let (name, value) = (
                printable(name, 256),
                printable(value, MAX_LINE_BYTES - line.len()),
            );
            line.push_str(&format!(" {name}={value}"));
        }
        if !self.budget.admit(line.len()) {
            return;
        }
        let GuestLog {
            connector,
            run,
            stream,
            ..
        } = self;
        macro_rules! event {
            ($level:ident) => {
                tracing::$level!(target: "setu::connector", connector, stream, run, "{line}")
            };
        }
        match level {
            Level::Trace => event!(trace),
            Level::Debug => event!(debug),
            Level::Info => event!(info),
            Level::Warn => event!(warn),
            Level::Error => event!(error),
        }
    }
}

impl Drop for GuestLog {
    fn drop(&mut self) {
        let dropped = self.budget.dropped;
        if dropped > 0 {
            tracing::warn!(
                target: "setu::connector", connector = self.connector, stream = self.stream, run = self.run,
                "{dropped} log lines were dropped: a connector may log {MAX_LINES} lines and {MAX_BYTES} bytes"
            );
        }
    }
}

impl Host for State {
    async fn log(
        &mut self,
        level: Level,
        message: String,
        fields: Vec<(String, String)>,
    ) -> wasmtime::Result<()> {
        self.log.write(level, &message, &fields);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_budget_are_dropped_and_counted() {
        let mut budget = Budget::default();
        let admitted = (0..MAX_LINES + 5).filter(|_| budget.admit(10)).count() as u64;
        assert_eq!((admitted, budget.dropped), (MAX_LINES, 5));

        let mut budget = Budget::default();
        assert!(budget.admit(MAX_BYTES as usize));
        assert!(!budget.admit(1));
    }
}
