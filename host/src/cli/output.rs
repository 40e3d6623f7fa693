//! Standard output: results, and nothing else.

use std::io::{BufWriter, IsTerminal, StdoutLock, Write};

use serde::Serialize;

use super::failure::Failure;
use crate::printable;

/// Buffered standard output. What is written reaches it by [`Output::done`], or when the buffer is full.
pub(super) struct Output(BufWriter<StdoutLock<'static>>);

impl Output {
    pub(super) fn new() -> Output {
        Output(BufWriter::new(std::io::stdout().lock()))
    }

    /// Writes all that is buffered, so that a failure to do so is noticed.
    pub(super) fn done(mut self) -> Result<(), Failure> {
        Ok(self.0.flush()?)
    }

    /// Whether a person looks at it.
    pub(super) fn is_terminal(&self) -> bool {
        self.0.get_ref().is_terminal()
    }

    /// Writes a value as indented JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        Ok(self.0.write_all(json(value)?.as_bytes())?)
    }
}

/// A value as indented JSON, with a newline at its end.
pub(super) fn json(value: &impl Serialize) -> std::io::Result<String> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    Ok(printable::json(&text).into_owned())
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
