//! Turns the records of a file into batches.

use std::fmt;

use setu_sdk::{
    BatchBuilder, BatchLimit, Chunk, ColumnBuilder, DataType, Error, Reader, Result, Schema, text,
};

use crate::cursor::Window;
use crate::dialect::Dialect;
use crate::input::Input;
use crate::position::{Identity, Position};
use crate::records::{Field, Record, Records, error_at};
use crate::schema::is_row;

/// A file under way.
#[derive(Debug)]
pub struct CsvReader {
    /// For messages.
    pub(crate) file: String,
    pub(crate) identity: Identity,
    pub(crate) records: Records<Input>,
    pub(crate) dialect: Dialect,
    /// How many columns the file has.
    pub(crate) width: usize,
    /// Which of them are read, in which order.
    pub(crate) columns: Vec<usize>,
    /// Of these.
    pub(crate) schema: Schema,
    pub(crate) builder: BatchBuilder,
    pub(crate) window: Option<Window>,
    pub(crate) high_water_mark: Option<String>,
    pub(crate) scratch: Vec<u8>,
}

impl Reader for CsvReader {
    fn schema(&self) -> Schema {
        self.schema.clone()
    }

    fn next(&mut self, limit: BatchLimit) -> Result<Option<Chunk>> {
        while !self.builder.is_full(limit) {
            let Some(record) = self.records.next()? else {
                break;
            };
            if !is_row(&record, self.width, &self.file)? {
                continue;
            }
            if let Some(window) = &self.window
                && !window.admits(&record, &self.dialect, &self.file, None)?
            {
                continue;
            }
            for (to, &at) in self.columns.iter().enumerate() {
                let (column, field) = (self.builder.column(to), record.fields[at]);
                let nullable = self.schema.fields[to].nullable;
                push(&record, field, &self.dialect, column, nullable, &mut self.scratch).map_err(
                    |problem| value_error(&self.file, &record, field, &self.schema.fields[to], &problem),
                )?;
            }
            self.builder.push_bare_row();
        }
        let position = Position {
            file: self.identity,
            offset: self.records.offset(),
            line: self.records.line(),
        };
        Ok(self.builder.take_chunk(Some(position.encode())))
    }

    fn high_water_mark(&self) -> Option<String> {
        self.high_water_mark.clone()
    }
}

/// Why a field is no value of its column.
enum Problem {
    Mismatch(text::Mismatch),
    Null,
}

/// Pushes a field's value.
#[inline]
fn push(
    record: &Record<'_>,
    field: Field,
    dialect: &Dialect,
    column: &mut ColumnBuilder,
    nullable: bool,
    scratch: &mut Vec<u8>,
) -> Result<(), Problem> {
    let raw = record.raw(field);
    let data_type = column.data_type();
    // An empty field of a type without empty values is NULL even in quotes: many programs quote every field.
    let may_be_null =
        !field.quoted || raw.is_empty() && !matches!(data_type, DataType::Text | DataType::Bytes);
    if may_be_null && dialect.is_null_text(raw) {
        if !nullable {
            return Err(Problem::Null);
        }
        column.push_null();
        return Ok(());
    }
    if data_type == DataType::Text {
        // Known to be UTF-8, so it needs no further check.
        if field.doubled {
            column.push_with(|out| record.append_value(field, dialect.quote, out));
        } else {
            column.push_text(raw);
        }
        return Ok(());
    }
    let mut value = raw;
    if field.doubled {
        scratch.clear();
        record.append_value(field, dialect.quote, scratch);
        value = scratch;
    }
    text::parse(value, column).map_err(Problem::Mismatch)
}

#[cold]
fn value_error(
    file: &str,
    record: &Record<'_>,
    field: Field,
    column: &setu_sdk::Field,
    problem: &Problem,
) -> Error {
    const SHOWN_CHARS: usize = 60;
    let value = String::from_utf8_lossy(record.raw(field));
    let mut shown: String = value.chars().take(SHOWN_CHARS).collect();
    if shown.len() < value.len() {
        shown.push('…');
    }
    let what: &dyn fmt::Display = match problem {
        Problem::Mismatch(mismatch) => &format!("{shown:?} {mismatch} ({})", column.data_type),
        Problem::Null => &"NULL in a column of the primary key",
    };
    let (line, byte) = record.place(field);
    error_at(file, line, byte, &format!("column `{}`: {what}", column.name))
}
