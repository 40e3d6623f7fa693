//! The contract's `log`: a guest's lines become the host's log events, within a budget.

use super::bindings::setu::connector::log::{Host, Level};
use super::limits::Limits;
use super::secrets::Secrets;
use super::state::State;
use super::text::printable;

const MAX_LINE_BYTES: usize = 8 << 10;

/// The log of one instance.
#[derive(Debug)]
pub(super) struct GuestLog {
    connector: String,
    run: String,
    stream: String,
    secrets: Secrets,
    budget: Budget,
}

/// How many lines and bytes may still pass, and how many lines did not.
#[derive(Debug)]
struct Budget {
    lines: u64,
    bytes: u64,
    dropped: u64,
}

impl Budget {
    fn admit(&mut self, bytes: usize) -> bool {
        let admitted = self.lines > 0 && self.bytes >= bytes as u64;
        if admitted {
            self.lines -= 1;
            self.bytes -= bytes as u64;
        } else {
            // The first line that is too much ends the log: later, shorter ones would make a riddle of it.
            self.lines = 0;
            self.dropped += 1;
        }
        admitted
    }
}

impl GuestLog {
    pub(super) fn new(
        connector: String,
        run: String,
        stream: Option<String>,
        secrets: Secrets,
        limits: &Limits,
    ) -> Self {
        GuestLog {
            connector,
            run,
            stream: stream.unwrap_or_default(),
            secrets,
            budget: Budget {
                lines: limits.log_lines,
                bytes: limits.log_bytes,
                dropped: 0,
            },
        }
    }

    fn write(&mut self, level: Level, message: &str, fields: &[(String, String)]) {
        // Secrets go first: half of one, cut off at the end of a line, would not be found.
        let fit = |text: &str, most| printable(&self.secrets.scrub(text), most);
        let mut line = fit(message, MAX_LINE_BYTES);
        for (name, value) in fields {
            if line.len() >= MAX_LINE_BYTES {
                break;
            }
            let (name, value) = (fit(name, 256), fit(value, MAX_LINE_BYTES - line.len()));
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
                "{dropped} log lines were dropped, beyond the connector's limits; raise `limits: {{ logLines, logMib }}` \
                 beside the connector in the pipeline file if they are right"
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
        let budget = |lines, bytes| Budget {
            lines,
            bytes,
            dropped: 0,
        };
        let mut few = budget(3, 100);
        let admitted = (0..8).filter(|_| few.admit(10)).count();
        assert_eq!((admitted, few.dropped), (3, 5));

        let mut short = budget(100, 25);
        let admitted = [10, 10, 10, 1].map(|bytes| short.admit(bytes));
        assert_eq!((admitted, short.dropped), ([true, true, false, false], 2));
    }
}
