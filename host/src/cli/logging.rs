//! Standard error: log lines, progress and failures, for people or for machines.
//!
//! Log lines are `tracing` events, of connectors mostly. In JSON everything is one: progress and failures too, so
//! that each line is an object of one shape. On a terminal, lines are printed above the progress bars.

use std::io::{IsTerminal, Write};
use std::sync::Arc;

use indicatif::{MultiProgress, ProgressDrawTarget};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt};

use super::args::{LogFormat, LogLevel, LoggingArguments};
use super::failure::Failure;
use super::progress;
use crate::printable;
use crate::runner::Observer;

/// What people or machines are told, and how.
#[derive(Clone)]
pub(super) struct Console {
    format: LogFormat,
    /// There on a terminal.
    bars: Option<MultiProgress>,
}

/// Sets logging up for this process.
pub(super) fn start(arguments: &LoggingArguments) -> Console {
    let format = arguments.log_format;
    let terminal =
        std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
    let bars = format == LogFormat::Text && terminal;
    let console = Console {
        format,
        bars: bars.then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr())),
    };
    let level = level(arguments);
    let filter = Targets::new()
        // Libraries tell of their inner life, which is for their own developers.
        .with_default(level.min(LevelFilter::WARN))
        .with_target("setu", level);
    let writer = console.clone();
    let layer = match format {
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(writer)
            .with_filter(filter)
            .boxed(),
        LogFormat::Text => fmt::layer()
            .without_time()
            .with_target(false)
            .with_ansi(bars && std::env::var_os("NO_COLOR").is_none())
            .with_writer(writer)
            .with_filter(filter)
            .boxed(),
    };
    // It fails only where a subscriber is set already, which then does the work.
    let _ = tracing_subscriber::registry().with(layer).try_init();
    console
}

/// The least grave level that is shown. In JSON, progress is of level info.
fn level(arguments: &LoggingArguments) -> LevelFilter {
    let chosen = arguments.log_level.map(|level| match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    });
    chosen.unwrap_or(match (arguments.verbose, arguments.log_format) {
        (0, LogFormat::Text) => LevelFilter::WARN,
        (0 | 1, _) => LevelFilter::INFO,
        (2, _) => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    })
}

impl Console {
    /// Tells people one line.
    pub(super) fn line(&self, text: &str) {
        match self.format {
            LogFormat::Json => tracing::info!("{text}"),
            LogFormat::Text => self.write_line(text),
        }
    }

    /// Tells why the command fails, one line for each thing that is wrong.
    pub(super) fn failure(&self, failure: &Failure) {
        for message in failure.messages() {
            match self.format {
                LogFormat::Json => tracing::error!("{message}"),
                LogFormat::Text => self.write_line(&format!("error: {message}")),
            }
        }
    }

    /// Shows the progress of a run.
    pub(super) fn observer(&self) -> Arc<dyn Observer> {
        match (self.format, &self.bars) {
            (LogFormat::Json, _) => Arc::new(progress::Events),
            (LogFormat::Text, Some(bars)) => Arc::new(progress::Bars::new(bars.clone(), self.clone())),
            (LogFormat::Text, None) => Arc::new(progress::Lines::new(self.clone())),
        }
    }

    /// What is named in a message may come from anywhere: no name reaches the terminal as a command to it.
    fn write_line(&self, text: &str) {
        self.write(format!("{}\n", printable::line(text)).as_bytes());
    }

    /// Writes whole lines, above the bars where there are any.
    fn write(&self, bytes: &[u8]) {
        // Nothing can be done where standard error is closed.
        let write = || drop(std::io::stderr().lock().write_all(bytes));
        match &self.bars {
            Some(bars) => bars.suspend(write),
            None => write(),
        }
    }
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        match (self.format, std::str::from_utf8(bytes)) {
            (LogFormat::Json, Ok(text)) => Console::write(self, printable::json(text).as_bytes()),
            _ => Console::write(self, bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Console {
    type Writer = Console;

    fn make_writer(&'a self) -> Console {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_is_the_one_asked_for() {
        let arguments = |log_format, log_level, verbose| LoggingArguments {
            log_format,
            log_level,
            verbose,
        };
        for (arguments, expected) in [
            (arguments(LogFormat::Text, None, 0), LevelFilter::WARN),
            (arguments(LogFormat::Json, None, 0), LevelFilter::INFO),
            (arguments(LogFormat::Text, None, 1), LevelFilter::INFO),
            (arguments(LogFormat::Json, None, 1), LevelFilter::INFO),
            (arguments(LogFormat::Text, None, 2), LevelFilter::DEBUG),
            (arguments(LogFormat::Text, None, 9), LevelFilter::TRACE),
            (
                arguments(LogFormat::Json, Some(LogLevel::Error), 0),
                LevelFilter::ERROR,
            ),
        ] {
            assert_eq!(level(&arguments), expected, "{arguments:?}");
        }
    }
}
