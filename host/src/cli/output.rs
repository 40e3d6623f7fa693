//! Standard output: results, and nothing else.

use std::io::{BufWriter, StdoutLock, Write};

use serde::Serialize;

use super::failure::Failure;

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

    /// Writes a value as indented JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        serde_json::to_writer_pretty(&mut self.0, value).map_err(std::io::Error::from)?;
        Ok(writeln!(self.0)?)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
