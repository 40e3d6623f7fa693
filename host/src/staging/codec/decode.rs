//! JSON Lines to one batch.

use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use super::json::{Scanner, Token};
use super::{CodecError, MAX_ROW_BYTES, scalar, temporal};
use crate::record::{DataType, Field, Schema};
use crate::staging::{PART_BYTES, PART_ROWS};

/// How much is read at once. Small enough to stay in a processor's cache.
const READ_BYTES: usize = 128 << 10;

/// Why a value cannot be read.
type Reason = String;

/// Makes one batch of lines.
pub struct Decoder<'a> {
    schema: &'a Schema,
    columns: Vec<Column<'a>>,
    rows: u64,
    /// The content of a string with escapes.
    scratch: String,
}

/// Reads a whole part, uncompressed, of about `rows` rows. What it takes is bounded by the format: at most
/// [`PART_ROWS`] rows and [`PART_BYTES`] bytes, a single row of up to [`MAX_ROW_BYTES`] excepted.
pub fn decode(schema: &Schema, reader: impl Read, rows: u64) -> Result<RecordBatch, CodecError> {
    let mut decoder = Decoder::new(schema, rows);
    let mut lines = Lines::new(reader);
    while let Some(line) = lines.next().map_err(|e| e.on_line(decoder.rows + 1))? {
        decoder.line(line)?;
        if lines.returned > PART_BYTES && decoder.rows > 1 {
            let reason = format!("a part of several rows must not be larger than {PART_BYTES} bytes");
            return Err(CodecError::new(reason).on_line(decoder.rows));
        }
    }
    decoder.finish()
}

impl<'a> Decoder<'a> {
    /// For about this many rows.
    pub fn new(schema: &'a Schema, rows: u64) -> Self {
        // Only a hint, from a manifest that anyone may have written.
        let capacity = rows.min(PART_ROWS) as usize;
        let column = |field| Column::new(field, capacity);
        Decoder {
            schema,
            columns: schema.fields.iter().map(column).collect(),
            rows: 0,
            scratch: String::new(),
        }
    }

    /// Takes one line, with or without its newline. After an error the decoder is of no more use.
    pub fn line(&mut self, line: &[u8]) -> Result<(), CodecError> {
        let number = self.rows + 1;
        if number > PART_ROWS {
            return Err(
                CodecError::new(format!("a part must not have more than {PART_ROWS} rows")).on_line(number),
            );
        }
        self.row(line).map_err(|e| e.on_line(number))?;
        self.rows = number;
        Ok(())
    }

    fn row(&mut self, line: &[u8]) -> Result<(), CodecError> {
        let text = std::str::from_utf8(line).map_err(|_| CodecError::new("the line is not UTF-8"))?;
        let mut scanner = Scanner::new(text);
        if !scanner.take(b'[') {
            return Err(CodecError::new("a row must be a JSON array"));
        }
        let expected = self.columns.len();
        for (index, column) in self.columns.iter_mut().enumerate() {
            if index > 0 && !scanner.take(b',') {
                return Err(self.after(&mut scanner, index));
            }
            let pushed = match scanner.scalar(&mut self.scratch) {
                Ok(token) => column.push(token),
                Err(_) if scanner.take(b']') => Err(short_row(index, expected)),
                Err(reason) => Err(reason.to_owned()),
            };
            pushed.map_err(|reason| CodecError::new(reason).in_column(&column.field.name))?;
        }
        if !scanner.take(b']') {
            return Err(self.after(&mut scanner, expected));
        }
        if !scanner.at_end() {
            return Err(CodecError::new("something follows the row's array"));
        }
        Ok(())
    }

    /// Why the row does not go on as it should after this many values.
    fn after(&self, scanner: &mut Scanner<'_>, values: usize) -> CodecError {
        let expected = self.columns.len();
        if values < expected && scanner.take(b']') {
            CodecError::new(short_row(values, expected))
        } else if values == expected && scanner.take(b',') {
            CodecError::new(format!("the row has more than {expected} values"))
        } else if scanner.at_end() {
            CodecError::new("the line ends within the row")
        } else {
            CodecError::new(format!("this is not JSON after {values} values"))
        }
    }

    /// The batch of all lines taken.
    pub fn finish(self) -> Result<RecordBatch, CodecError> {
        let arrays = self
            .columns
            .into_iter()
            .map(|column| {
                let name = &column.field.name;
                column
                    .finish()
                    .map_err(|e| CodecError::new(e.to_string()).in_column(name))
            })
            .collect::<Result<Vec<_>, _>>()?;
        // The count is given, as without columns there is nothing to take it from.
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows as usize));
        RecordBatch::try_new_with_options(self.schema.to_arrow(), arrays, &options)
            .map_err(|e| CodecError::new(e.to_string()))
    }
}

fn short_row(values: usize, expected: usize) -> Reason {
    format!("the row has {values} values instead of {expected}")
}

/// A column that is read.
pub(super) struct Column<'a> {
    field: &'a Field,
    nulls: NullBufferBuilder,
    values: Values,
}

/// Values by logical type. A null has an arbitrary value.
enum Values {
    Boolean(BooleanBufferBuilder),
    Int16(Vec<i16>),
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float32(Vec<f32>),
    Float64(Vec<f64>),
    Decimal(Vec<i128>, u8, u8),
    Numeric(Spans),
    Text(Spans),
    Bytes(Spans),
    Uuid(Vec<u8>),
    Date(Vec<i32>),
    Time(Vec<i64>),
    Timestamp(Vec<i64>),
    TimestampTz(Vec<i64>),
}

/// Values of varying length.
struct Spans {
    offsets: Vec<i32>,
    data: Vec<u8>,
}

impl Spans {
    fn new(capacity: usize) -> Self {
        let mut offsets = Vec::with_capacity(capacity + 1);
        offsets.push(0);
        Spans {
            offsets,
            data: Vec::new(),
        }
    }

    /// The value ends where the data end now.
    fn end(&mut self) -> Result<(), Reason> {
        let end = i32::try_from(self.data.len()).map_err(|_| "the column is larger than 2 GiB".to_owned())?;
        self.offsets.push(end);
        Ok(())
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), Reason> {
        self.data.extend_from_slice(bytes);
        self.end()
    }

    fn finish(self) -> Result<(OffsetBuffer<i32>, Buffer), ArrowError> {
        // They start at 0 and only grow, as `end` is all that adds one.
        Ok((OffsetBuffer::new(self.offsets.into()), self.data.into()))
    }
}

impl<'a> Column<'a> {
    pub(super) fn new(field: &'a Field, capacity: usize) -> Self {
        let values = match field.data_type {
            DataType::Boolean => Values::Boolean(BooleanBufferBuilder::new(capacity)),
            DataType::Int16 => Values::Int16(Vec::with_capacity(capacity)),
            DataType::Int32 => Values::Int32(Vec::with_capacity(capacity)),
            DataType::Int64 => Values::Int64(Vec::with_capacity(capacity)),
            DataType::Float32 => Values::Float32(Vec::with_capacity(capacity)),
            DataType::Float64 => Values::Float64(Vec::with_capacity(capacity)),
            DataType::Decimal { precision, scale } => {
                Values::Decimal(Vec::with_capacity(capacity), precision, scale)
            }
            DataType::Numeric => Values::Numeric(Spans::new(capacity)),
            DataType::Text | DataType::Json => Values::Text(Spans::new(capacity)),
            DataType::Bytes => Values::Bytes(Spans::new(capacity)),
            DataType::Uuid => Values::Uuid(Vec::with_capacity(capacity * 16)),
            DataType::Date => Values::Date(Vec::with_capacity(capacity)),
            DataType::Time => Values::Time(Vec::with_capacity(capacity)),
            DataType::Timestamp => Values::Timestamp(Vec::with_capacity(capacity)),
            DataType::TimestampTz => Values::TimestampTz(Vec::with_capacity(capacity)),
        };
        Column {
            field,
            nulls: NullBufferBuilder::new(capacity),
            values,
        }
    }

    pub(super) fn push(&mut self, token: Token<'_>) -> Result<(), Reason> {
        if token == Token::Null {
            if !self.field.nullable {
                return Err("null in a column that is not nullable".to_owned());
            }
            self.nulls.append_null();
            return self.values.push_null();
        }
        self.nulls.append_non_null();
        match self.values.push(&token) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.refusal(&token)),
            Err(reason) => Err(reason),
        }
    }

    /// What to say of a value that is not one of the column's type.
    fn refusal(&self, token: &Token<'_>) -> Reason {
        const SHOWN: usize = 40;
        let data_type = self.field.data_type;
        match token {
            Token::Number(text) | Token::String(text) => {
                let kind = token.kind();
                let shown: String = text.chars().take(SHOWN).collect();
                let dots = if shown.len() < text.len() { "…" } else { "" };
                format!("{kind}, `{shown}{dots}`, is not a value of the type {data_type}")
            }
            _ => format!("{} is not a value of the type {data_type}", token.kind()),
        }
    }

    pub(super) fn finish(mut self) -> Result<ArrayRef, ArrowError> {
        let nulls = self.nulls.finish();
        let zone = Arc::from("UTC");
        Ok(match self.values {
            Values::Boolean(mut bits) => Arc::new(BooleanArray::new(bits.finish(), nulls)),
            Values::Int16(values) => Arc::new(primitive::<Int16Type>(values, nulls)?),
            Values::Int32(values) => Arc::new(primitive::<Int32Type>(values, nulls)?),
            Values::Int64(values) => Arc::new(primitive::<Int64Type>(values, nulls)?),
            Values::Float32(values) => Arc::new(primitive::<Float32Type>(values, nulls)?),
            Values::Float64(values) => Arc::new(primitive::<Float64Type>(values, nulls)?),
            Values::Decimal(values, precision, scale) => Arc::new(
                primitive::<Decimal128Type>(values, nulls)?
                    .with_precision_and_scale(precision, scale as i8)?,
            ),
            Values::Numeric(spans) | Values::Text(spans) => {
                let (offsets, data) = spans.finish()?;
                Arc::new(StringArray::try_new(offsets, data, nulls)?)
            }
            Values::Bytes(spans) => {
                let (offsets, data) = spans.finish()?;
                Arc::new(BinaryArray::try_new(offsets, data, nulls)?)
            }
            Values::Uuid(bytes) => Arc::new(FixedSizeBinaryArray::try_new(16, bytes.into(), nulls)?),
            Values::Date(values) => Arc::new(primitive::<Date32Type>(values, nulls)?),
            Values::Time(values) => Arc::new(primitive::<Time64MicrosecondType>(values, nulls)?),
            Values::Timestamp(values) => Arc::new(primitive::<TimestampMicrosecondType>(values, nulls)?),
            Values::TimestampTz(values) => {
                Arc::new(primitive::<TimestampMicrosecondType>(values, nulls)?.with_timezone(zone))
            }
        })
    }
}

fn primitive<T: ArrowPrimitiveType>(
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
) -> Result<PrimitiveArray<T>, ArrowError> {
    PrimitiveArray::try_new(ScalarBuffer::from(values), nulls)
}

/// Pushes a value if there is one and says whether there was.
fn push<T>(values: &mut Vec<T>, value: Option<T>) -> bool {
    match value {
        Some(value) => {
            values.push(value);
            true
        }
        None => false,
    }
}

impl Values {
    /// Takes a value that is not null; false where it is not one of the type.
    fn push(&mut self, token: &Token<'_>) -> Result<bool, Reason> {
        Ok(match (self, token) {
            (Values::Boolean(bits), Token::Boolean(value)) => {
                bits.append(*value);
                true
            }
            (Values::Int16(values), Token::Number(text)) => push(
                values,
                scalar::parse_integer(text).and_then(|n| n.try_into().ok()),
            ),
            (Values::Int32(values), Token::Number(text)) => push(
                values,
                scalar::parse_integer(text).and_then(|n| n.try_into().ok()),
            ),
            (Values::Int64(values), Token::Number(text)) => push(values, scalar::parse_integer(text)),
            (Values::Float32(values), Token::Number(text)) => push(values, scalar::parse_float(text)),
            (Values::Float32(values), Token::String(text)) => push(values, scalar::parse_special(text)),
            (Values::Float64(values), Token::Number(text)) => push(values, scalar::parse_float(text)),
            (Values::Float64(values), Token::String(text)) => push(values, scalar::parse_special(text)),
            (values, Token::String(text)) => return values.push_string(text),
            _ => false,
        })
    }

    /// Takes a value whose JSON form is always a string.
    fn push_string(&mut self, text: &str) -> Result<bool, Reason> {
        Ok(match self {
            Values::Text(spans) => {
                spans.push(text.as_bytes())?;
                true
            }
            Values::Numeric(spans) => {
                let right = scalar::is_numeric(text);
                if right {
                    spans.push(text.as_bytes())?;
                }
                right
            }
            Values::Bytes(spans) => {
                let right = scalar::parse_base64(text, &mut spans.data).is_some();
                if right {
                    spans.end()?;
                }
                right
            }
            Values::Uuid(bytes) => match scalar::parse_uuid(text) {
                Some(uuid) => {
                    bytes.extend_from_slice(&uuid);
                    true
                }
                None => false,
            },
            Values::Decimal(values, precision, scale) => {
                push(values, scalar::parse_decimal(text, *precision, *scale))
            }
            Values::Date(values) => push(values, temporal::parse_date(text)),
            Values::Time(values) => push(values, temporal::parse_time(text)),
            Values::Timestamp(values) => push(values, temporal::parse_timestamp(text, false)),
            Values::TimestampTz(values) => push(values, temporal::parse_timestamp(text, true)),
            _ => false,
        })
    }

    fn push_null(&mut self) -> Result<(), Reason> {
        match self {
            Values::Boolean(bits) => bits.append(false),
            Values::Int16(values) => values.push(0),
            Values::Int32(values) | Values::Date(values) => values.push(0),
            Values::Int64(values)
            | Values::Time(values)
            | Values::Timestamp(values)
            | Values::TimestampTz(values) => values.push(0),
            Values::Float32(values) => values.push(0.0),
            Values::Float64(values) => values.push(0.0),
            Values::Decimal(values, ..) => values.push(0),
            Values::Numeric(spans) | Values::Text(spans) | Values::Bytes(spans) => spans.end()?,
            Values::Uuid(bytes) => bytes.extend_from_slice(&[0; 16]),
        }
        Ok(())
    }
}

/// The lines of a part, bounded in size.
struct Lines<R> {
    reader: R,
    buffer: Vec<u8>,
    /// What of the buffer is filled and not yet returned.
    filled: Range<usize>,
    /// How many bytes the lines returned so far have.
    returned: u64,
}

impl<R: Read> Lines<R> {
    fn new(reader: R) -> Self {
        Lines {
            reader,
            buffer: vec![0; READ_BYTES],
            filled: 0..0,
            returned: 0,
        }
    }

    /// The next line, without its newline.
    fn next(&mut self) -> Result<Option<&[u8]>, CodecError> {
        let mut searched = 0;
        let end = loop {
            let unsearched = &self.buffer[self.filled.start + searched..self.filled.end];
            if let Some(found) = memchr::memchr(b'\n', unsearched) {
                break self.filled.start + searched + found;
            }
            searched += unsearched.len();
            if !self.fill()? {
                break self.filled.end;
            }
        };
        let line = self.filled.start..end;
        self.filled.start = self.filled.end.min(end + 1);
        self.returned += line.len() as u64 + 1;
        Ok((!line.is_empty() || self.filled.start > end).then(|| &self.buffer[line]))
    }

    /// Reads more behind what is filled; false at the end.
    fn fill(&mut self) -> Result<bool, CodecError> {
        let length = self.filled.len();
        let limit = if self.returned == 0 {
            MAX_ROW_BYTES
        } else {
            PART_BYTES
        };
        if length as u64 > limit {
            return Err(CodecError::new(format!("a row is larger than {limit} bytes")));
        }
        self.buffer.copy_within(self.filled.clone(), 0);
        self.filled = 0..length;
        if length == self.buffer.len() {
            self.buffer.resize(length * 2, 0);
        }
        loop {
            match self.reader.read(&mut self.buffer[length..]) {
                Ok(read) => {
                    self.filled.end += read;
                    return Ok(read > 0);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(CodecError::new(e.to_string())),
            }
        }
    }
}
