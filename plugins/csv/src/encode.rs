//! Writes rows as CSV that the source of this crate reads back equal.

use setu_sdk::{Batch, ColumnView, DataType, Schema, text};

use crate::dialect::Dialect;

/// Encodes the batches of one schema.
#[derive(Debug)]
pub(crate) struct Encoder {
    dialect: Dialect,
    types: Vec<DataType>,
    /// What NULL is written as.
    null: Vec<u8>,
    /// Which bytes a field cannot hold without quotes.
    special: [bool; 256],
    scratch: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(dialect: Dialect, schema: &Schema) -> Self {
        let mut special = [false; 256];
        for byte in [dialect.delimiter, dialect.quote, b'\r', b'\n'] {
            special[usize::from(byte)] = true;
        }
        Encoder {
            types: schema.fields.iter().map(|field| field.data_type).collect(),
            null: dialect.nulls().first().cloned().unwrap_or_default(),
            dialect,
            special,
            scratch: Vec::new(),
        }
    }

    /// Appends the header line.
    pub(crate) fn header(&self, schema: &Schema, out: &mut Vec<u8>) {
        for (at, field) in schema.fields.iter().enumerate() {
            if at > 0 {
                out.push(self.dialect.delimiter);
            }
            self.field(field.name.as_bytes(), out);
        }
        out.push(b'\n');
    }

    /// Appends a line for each row.
    pub(crate) fn rows(&mut self, batch: &Batch, out: &mut Vec<u8>) {
        let columns = batch.views();
        for row in 0..batch.rows as usize {
            for (at, column) in columns.iter().enumerate() {
                if at > 0 {
                    out.push(self.dialect.delimiter);
                }
                self.value(self.types[at], *column, row, out);
            }
            out.push(b'\n');
        }
    }

    fn value(&mut self, data_type: DataType, column: ColumnView<'_>, row: usize, out: &mut Vec<u8>) {
        if column.is_null(row) {
            out.extend_from_slice(&self.null);
            return;
        }
        match data_type {
            DataType::Text | DataType::Numeric | DataType::Json => self.field(column.bytes(row), out),
            _ => {
                let mut scratch = std::mem::take(&mut self.scratch);
                scratch.clear();
                text::write(&mut scratch, data_type, column, row);
                self.field(&scratch, out);
                self.scratch = scratch;
            }
        }
    }

    /// Appends a field, in quotes where it would be read as something else without.
    fn field(&self, value: &[u8], out: &mut Vec<u8>) {
        /// A byte order mark, and what a ZIP archive begins with: a file of CSV is read otherwise, or not at all, where it
        /// begins like this.
        const STARTS: [&[u8]; 2] = ["\u{feff}".as_bytes(), b"PK\x03\x04"];
        let is_special = |byte: &u8| self.special[usize::from(*byte)];
        let needs_quotes = self.dialect.is_null_text(value)
            || value.iter().any(is_special)
            || STARTS.iter().any(|start| value.starts_with(start));
        if !needs_quotes {
            out.extend_from_slice(value);
            return;
        }
        let quote = self.dialect.quote;
        out.push(quote);
        let mut rest = value;
        while let Some(at) = memchr::memchr(quote, rest) {
            out.extend_from_slice(&rest[..=at]);
            out.push(quote);
            rest = &rest[at + 1..];
        }
        out.extend_from_slice(rest);
        out.push(quote);
    }
}

#[cfg(test)]
mod tests {
    use setu_sdk::{BatchBuilder, Field};

    use super::*;

    #[test]
    fn quotes_stand_where_they_must_and_nowhere_else() {
        let dialect = Dialect::new(",", "\"", true, &[String::new(), "NULL".to_owned()]).unwrap();
        let schema = Schema::new(["x", "a,b"].map(|name| Field::new(name, DataType::Text)));
        let mut encoder = Encoder::new(dialect, &schema);
        let mut builder = BatchBuilder::new(&schema);
        for value in [
            None,
            Some(""),
            Some("NULL"),
            Some("null"),
            Some(" a "),
            Some("a\"b"),
            Some("a\rb"),
            Some("\u{feff}a"),
            Some("PK\u{3}\u{4}"),
        ] {
            match value {
                Some(value) => builder.column(0).push_str(value),
                None => builder.column(0).push_null(),
            }
            builder.column(1).push_str("é");
        }
        let mut out = Vec::new();
        encoder.header(&schema, &mut out);
        encoder.rows(&builder.finish(), &mut out);
        let expected = "x,\"a,b\"\n,é\n\"\",é\n\"NULL\",é\nnull,é\n a ,é\n\"a\"\"b\",é\n\"a\rb\",é\n\"\u{feff}a\",é\n\
                        \"PK\u{3}\u{4}\",é\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
