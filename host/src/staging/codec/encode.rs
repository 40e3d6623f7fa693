//! Batches to JSON Lines.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, BinaryArray, BooleanArray, FixedSizeBinaryArray, RecordBatch, StringArray};
use arrow_buffer::NullBuffer;

use super::{CodecError, scalar, temporal};
use crate::record::{DataType, Field, Schema};

/// 24:00:00 in microseconds.
const END_OF_DAY: i64 = 86_400_000_000;

/// Writes rows of one batch.
pub struct Encoder<'a> {
    columns: Vec<Column<'a>>,
    rows: usize,
}

/// Appends all rows of a batch to `out`.
pub fn encode(schema: &Schema, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<(), CodecError> {
    let encoder = Encoder::new(schema, batch)?;
    encoder.write(0..batch.num_rows(), out)
}

impl<'a> Encoder<'a> {
    /// Fails where the batch does not have the schema's columns.
    pub fn new(schema: &'a Schema, batch: &'a RecordBatch) -> Result<Self, CodecError> {
        if schema.fields.len() != batch.num_columns() {
            return Err(CodecError::new(format!(
                "the batch has {} columns, its schema {}",
                batch.num_columns(),
                schema.fields.len()
            )));
        }
        let columns = schema
            .fields
            .iter()
            .zip(batch.columns())
            .map(|(field, array)| Column::new(field, array.as_ref()))
            .collect::<Result<_, _>>()?;
        Ok(Encoder {
            columns,
            rows: batch.num_rows(),
        })
    }

    /// Appends these rows, each a line with its newline. After an error `out` holds a part of them.
    pub fn write(&self, rows: Range<usize>, out: &mut Vec<u8>) -> Result<(), CodecError> {
        for row in rows.start..rows.end.min(self.rows) {
            out.push(b'[');
            for (index, column) in self.columns.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                column.write(row, out).map_err(|reason| {
                    CodecError::new(reason)
                        .in_column(&column.field.name)
                        .on_line(row as u64 + 1)
                })?;
            }
            out.extend_from_slice(b"]\n");
        }
        Ok(())
    }
}

/// A column of the batch that is written.
pub(super) struct Column<'a> {
    field: &'a Field,
    nulls: Option<&'a NullBuffer>,
    values: Values<'a>,
}

/// Values by logical type.
enum Values<'a> {
    Boolean(&'a BooleanArray),
    Int16(&'a [i16]),
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Float32(&'a [f32]),
    Float64(&'a [f64]),
    Decimal(&'a [i128], u8, u8),
    Numeric(&'a StringArray),
    Text(&'a StringArray),
    Bytes(&'a BinaryArray),
    Uuid(&'a FixedSizeBinaryArray),
    Date(&'a [i32]),
    Time(&'a [i64]),
    Timestamp(&'a [i64]),
    TimestampTz(&'a [i64]),
}

impl<'a> Column<'a> {
    pub(super) fn new(field: &'a Field, array: &'a dyn Array) -> Result<Self, CodecError> {
        let values = Values::new(field.data_type, array).ok_or_else(|| {
            CodecError::new(format!(
                "the batch holds {}, but the schema says {}",
                array.data_type(),
                field.data_type
            ))
            .in_column(&field.name)
        })?;
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0);
        if nulls.is_some() && !field.nullable {
            return Err(CodecError::new("a column that is not nullable holds a null").in_column(&field.name));
        }
        Ok(Column { field, nulls, values })
    }

    /// Appends one value as JSON; the error says what is wrong with it.
    pub(super) fn write(&self, row: usize, out: &mut Vec<u8>) -> Result<(), &'static str> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            out.extend_from_slice(b"null");
            return Ok(());
        }
        match &self.values {
            Values::Boolean(array) => {
                let word: &[u8] = if array.value(row) { b"true" } else { b"false" };
                out.extend_from_slice(word);
            }
            Values::Int16(values) => scalar::write_integer(values[row], out),
            Values::Int32(values) => scalar::write_integer(values[row], out),
            Values::Int64(values) => scalar::write_integer(values[row], out),
            Values::Float32(values) => scalar::write_float(values[row], out),
            Values::Float64(values) => scalar::write_float(values[row], out),
            Values::Text(array) => scalar::write_string(array.value(row), out),
            Values::Numeric(array) => {
                let text = array.value(row);
                if !scalar::is_numeric(text) {
                    return Err("a value is not decimal text, NaN, Infinity or -Infinity");
                }
                scalar::write_string(text, out);
            }
            quoted => {
                out.push(b'"');
                quoted.write_quoted(row, out)?;
                out.push(b'"');
            }
        }
        Ok(())
    }
}

impl<'a> Values<'a> {
    /// The array's values; none where its Arrow type is not that of the logical type.
    fn new(data_type: DataType, array: &'a dyn Array) -> Option<Self> {
        if *array.data_type() != data_type.to_arrow() {
            return None;
        }
        Some(match data_type {
            DataType::Boolean => Values::Boolean(array.as_boolean_opt()?),
            DataType::Int16 => Values::Int16(array.as_primitive_opt::<Int16Type>()?.values()),
            DataType::Int32 => Values::Int32(array.as_primitive_opt::<Int32Type>()?.values()),
            DataType::Int64 => Values::Int64(array.as_primitive_opt::<Int64Type>()?.values()),
            DataType::Float32 => Values::Float32(array.as_primitive_opt::<Float32Type>()?.values()),
            DataType::Float64 => Values::Float64(array.as_primitive_opt::<Float64Type>()?.values()),
            DataType::Decimal { precision, scale } => Values::Decimal(
                array.as_primitive_opt::<Decimal128Type>()?.values(),
                precision,
                scale,
            ),
            DataType::Numeric => Values::Numeric(array.as_string_opt()?),
            DataType::Text | DataType::Json => Values::Text(array.as_string_opt()?),
            DataType::Bytes => Values::Bytes(array.as_binary_opt()?),
            DataType::Uuid => Values::Uuid(array.as_fixed_size_binary_opt()?),
            DataType::Date => Values::Date(array.as_primitive_opt::<Date32Type>()?.values()),
            DataType::Time => Values::Time(array.as_primitive_opt::<Time64MicrosecondType>()?.values()),
            DataType::Timestamp => {
                Values::Timestamp(array.as_primitive_opt::<TimestampMicrosecondType>()?.values())
            }
            DataType::TimestampTz => {
                Values::TimestampTz(array.as_primitive_opt::<TimestampMicrosecondType>()?.values())
            }
        })
    }

    /// Appends a value that needs quotes but no escapes.
    fn write_quoted(&self, row: usize, out: &mut Vec<u8>) -> Result<(), &'static str> {
        match self {
            Values::Decimal(values, precision, scale) => {
                if !scalar::fits_precision(values[row], *precision) {
                    return Err("a decimal has more digits than its precision");
                }
                scalar::write_decimal(values[row], *scale, out);
            }
            Values::Bytes(array) => scalar::write_base64(array.value(row), out),
            Values::Uuid(array) => {
                let bytes = array
                    .value(row)
                    .try_into()
                    .map_err(|_| "a UUID is not 16 bytes long")?;
                scalar::write_uuid(bytes, out);
            }
            Values::Date(values) => temporal::write_date(values[row], out),
            Values::Time(values) => {
                if !(0..=END_OF_DAY).contains(&values[row]) {
                    return Err("a time is not between 00:00:00 and 24:00:00");
                }
                temporal::write_time(values[row], out);
            }
            Values::Timestamp(values) => temporal::write_timestamp(values[row], "", out),
            Values::TimestampTz(values) => temporal::write_timestamp(values[row], "Z", out),
            _ => {}
        }
        Ok(())
    }
}
