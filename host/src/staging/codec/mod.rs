//! Rows as JSON Lines: one JSON array per row, in schema order, every value exactly (`docs/staged-format.md`).
//!
//! [`Encoder`] writes rows of a batch, [`Decoder`] makes one batch of lines. Both are typed by column and go through
//! bytes only: no value becomes a tree of JSON. Not here: compression and where parts begin and end (`sink`,
//! `source`).

mod decode;
mod encode;
mod json;
mod scalar;
mod temporal;
mod value;

pub use decode::{Decoder, decode};
pub use encode::{Encoder, encode};
pub(super) use scalar::Number;
pub(super) use value::{parse_value, write_value};

use std::fmt;

/// The most bytes that one row may have as JSON Lines.
pub const MAX_ROW_BYTES: u64 = 1 << 30;

/// Why rows cannot be written or read: the line and column and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecError {
    /// The line of the part, or the row of the batch, counted from 1.
    pub line: Option<u64>,
    /// The column's name.
    pub column: Option<String>,
    /// What is wrong.
    pub reason: String,
}

impl CodecError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        CodecError {
            line: None,
            column: None,
            reason: reason.into(),
        }
    }

    pub(super) fn in_column(mut self, name: &str) -> Self {
        self.column = Some(name.to_owned());
        self
    }

    fn on_line(mut self, line: u64) -> Self {
        self.line = Some(line);
        self
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}, ")?;
        }
        if let Some(column) = &self.column {
            write!(f, "column `{column}`: ")?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for CodecError {}

#[cfg(test)]
pub(super) mod tests;
