//! From a guest: every rule of the contract is checked before Arrow sees a buffer, because its constructors panic on
//! what breaks them.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, PrimitiveArray, RecordBatch,
    RecordBatchOptions, StringArray,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::SchemaRef;

use super::super::bindings::setu::connector::types::{BatchResult, ColumnResult, SpansResult, ValuesResult};
use crate::record::{DataType, Field, Schema};

/// The last microsecond of a day, 24:00:00.
const DAY: i64 = 86_400_000_000;

/// Wraps a guest's batch, or says which rule of the contract it breaks. `arrow` is the schema's Arrow form.
pub(in super::super) fn lift(
    batch: BatchResult,
    schema: &Schema,
    arrow: &SchemaRef,
    max_rows: u32,
) -> Result<RecordBatch, String> {
    let rows = batch.rows;
    if rows == 0 {
        return Err("a batch of no rows; the end is said with none".to_owned());
    }
    if rows > max_rows {
        return Err(format!(
            "a batch of {rows} rows where at most {max_rows} were asked for"
        ));
    }
    if batch.columns.len() != schema.fields.len() {
        return Err(format!(
            "a batch of {} columns where the schema has {}",
            batch.columns.len(),
            schema.fields.len()
        ));
    }
    let rows = rows as usize;
    let columns = batch
        .columns
        .into_iter()
        .zip(&schema.fields)
        .map(|(column, field)| {
            lift_column(column, field, rows).map_err(|rule| format!("column `{}`: {rule}", field.name))
        })
        .collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(arrow.clone(), columns, &options).map_err(|error| error.to_string())
}

fn lift_column(column: ColumnResult, field: &Field, rows: usize) -> Result<ArrayRef, String> {
    let nulls = nulls(column.validity, rows)?;
    if let Some(nulls) = nulls.as_ref().filter(|_| !field.nullable) {
        let row = nulls.iter().position(|present| !present).unwrap_or_default();
        return Err(format!("row {row} is null, but the column is not nullable"));
    }
    match (field.data_type, column.values) {
        (DataType::Boolean, ValuesResult::Bits(bits)) => booleans(bits, nulls, rows),
        (DataType::Int16, ValuesResult::Int16(values)) => plain::<Int16Type>(values, nulls, rows),
        (DataType::Int32, ValuesResult::Int32(values)) => plain::<Int32Type>(values, nulls, rows),
        (DataType::Int64, ValuesResult::Int64(values)) => plain::<Int64Type>(values, nulls, rows),
        (DataType::Float32, ValuesResult::Float32(values)) => plain::<Float32Type>(values, nulls, rows),
        (DataType::Float64, ValuesResult::Float64(values)) => plain::<Float64Type>(values, nulls, rows),
        (DataType::Date, ValuesResult::Int32(values)) => plain::<Date32Type>(values, nulls, rows),
        (DataType::Time, ValuesResult::Int64(values)) => times(values, nulls, rows),
        (DataType::Timestamp, ValuesResult::Int64(values)) => {
            plain::<TimestampMicrosecondType>(values, nulls, rows)
        }
        (DataType::TimestampTz, ValuesResult::Int64(values)) => {
            exactly("values", values.len(), rows)?;
            let values = PrimitiveArray::<TimestampMicrosecondType>::new(values.into(), nulls);
            Ok(Arc::new(values.with_timezone("UTC")))
        }
        (DataType::Decimal { precision, scale }, ValuesResult::Int128(words)) => {
            decimals(words, nulls, rows, precision, scale)
        }
        (DataType::Uuid, ValuesResult::Fixed16(bytes)) => uuids(bytes, nulls, rows),
        (DataType::Bytes, ValuesResult::Spans(spans)) => bytes(spans, nulls, rows),
        (DataType::Text | DataType::Json, ValuesResult::Spans(spans)) => {
            Ok(Arc::new(strings(spans, nulls, rows)?))
        }
        (DataType::Numeric, ValuesResult::Spans(spans)) => numerics(spans, nulls, rows),
        (data_type, values) => Err(format!(
            "its type is {data_type}, but its values are `{}`",
            case_name(&values)
        )),
    }
}

fn case_name(values: &ValuesResult) -> &'static str {
    match values {
        ValuesResult::Bits(_) => "bits",
        ValuesResult::Int16(_) => "int16",
        ValuesResult::Int32(_) => "int32",
        ValuesResult::Int64(_) => "int64",
        ValuesResult::Float32(_) => "float32",
        ValuesResult::Float64(_) => "float64",
        ValuesResult::Int128(_) => "int128",
        ValuesResult::Fixed16(_) => "fixed16",
        ValuesResult::Spans(_) => "spans",
    }
}

fn exactly(what: &str, found: usize, expected: usize) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found} {what} where the batch needs {expected}")),
    }
}

/// None where every row is present, also when the guest sent bits that say so.
fn nulls(validity: Option<Vec<u8>>, rows: usize) -> Result<Option<NullBuffer>, String> {
    let Some(bits) = validity else { return Ok(None) };
    let nulls = NullBuffer::new(bit_buffer("validity", bits, rows)?);
    Ok((nulls.null_count() > 0).then_some(nulls))
}

fn bit_buffer(what: &str, bits: Vec<u8>, rows: usize) -> Result<BooleanBuffer, String> {
    let needed = rows.div_ceil(8);
    if bits.len() < needed {
        return Err(format!(
            "{} bytes of {what} bits where {rows} rows need {needed}",
            bits.len()
        ));
    }
    Ok(BooleanBuffer::new(Buffer::from_vec(bits), 0, rows))
}

fn booleans(bits: Vec<u8>, nulls: Option<NullBuffer>, rows: usize) -> Result<ArrayRef, String> {
    Ok(Arc::new(BooleanArray::new(
        bit_buffer("value", bits, rows)?,
        nulls,
    )))
}

fn plain<T: ArrowPrimitiveType>(
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
    rows: usize,
) -> Result<ArrayRef, String>
where
    T::Native: ArrowNativeType,
{
    exactly("values", values.len(), rows)?;
    Ok(Arc::new(PrimitiveArray::<T>::new(values.into(), nulls)))
}

/// The first row whose value breaks a rule; what lies under a null may be anything.
fn first_bad<T: Copy>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    is_good: impl Fn(T) -> bool,
) -> Option<usize> {
    // Without a branch in it the compiler checks many values at once; rows are looked at only when one is bad.
    if values.iter().fold(true, |good, value| good & is_good(*value)) {
        return None;
    }
    let is_present = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    (0..values.len()).find(|row| !is_good(values[*row]) && is_present(*row))
}

fn times(values: Vec<i64>, nulls: Option<NullBuffer>, rows: usize) -> Result<ArrayRef, String> {
    exactly("values", values.len(), rows)?;
    if let Some(row) = first_bad(&values, nulls.as_ref(), |value| (0..=DAY).contains(&value)) {
        return Err(format!(
            "row {row} holds {} µs since midnight; a time lies between 0 and {DAY}",
            values[row]
        ));
    }
    Ok(Arc::new(PrimitiveArray::<Time64MicrosecondType>::new(
        values.into(),
        nulls,
    )))
}

fn decimals(
    words: Vec<u64>,
    nulls: Option<NullBuffer>,
    rows: usize,
    precision: u8,
    scale: u8,
) -> Result<ArrayRef, String> {
    exactly("words", words.len(), rows * 2)?;
    let mut buffer = Buffer::from_vec(words);
    if buffer.as_ptr().align_offset(align_of::<i128>()) != 0 {
        // Allocators align most blocks far enough; where this one is not, Arrow's own buffer is.
        buffer = Buffer::from_slice_ref(buffer.as_slice());
    }
    let values = ScalarBuffer::<i128>::new(buffer, 0, rows);
    let bound = 10_u128.pow(precision.into());
    if let Some(row) = first_bad(&values, nulls.as_ref(), |value: i128| {
        value.unsigned_abs() < bound
    }) {
        return Err(format!(
            "row {row} holds a number of more than {precision} digits"
        ));
    }
    PrimitiveArray::<Decimal128Type>::new(values, nulls)
        .with_precision_and_scale(precision, scale as i8)
        .map(|array| Arc::new(array) as ArrayRef)
        .map_err(|error| error.to_string())
}

fn uuids(bytes: Vec<u8>, nulls: Option<NullBuffer>, rows: usize) -> Result<ArrayRef, String> {
    exactly("bytes", bytes.len(), rows * 16)?;
    FixedSizeBinaryArray::try_new(16, Buffer::from_vec(bytes), nulls)
        .map(|array| Arc::new(array) as ArrayRef)
        .map_err(|error| error.to_string())
}

/// Offsets and data that belong together: one more offset than rows, not negative, not decreasing, within the data.
/// Bytes that no row covers may be anything, so they are cut off.
fn spanned(spans: SpansResult, rows: usize) -> Result<(OffsetBuffer<i32>, Buffer), String> {
    let SpansResult { mut offsets, data } = spans;
    exactly("offsets", offsets.len(), rows + 1)?;
    let ascending = offsets
        .windows(2)
        .fold(true, |good, pair| good & (pair[0] <= pair[1]));
    if !ascending {
        let row = offsets.windows(2).position(|pair| pair[0] > pair[1]);
        return Err(format!(
            "the offsets decrease after row {}",
            row.unwrap_or_default()
        ));
    }
    let (first, last) = (offsets[0], offsets[rows]);
    if first < 0 {
        return Err(format!("the first offset is {first}"));
    }
    if last as usize > data.len() {
        return Err(format!(
            "the last offset is {last}, but there are {} bytes",
            data.len()
        ));
    }
    if first > 0 {
        offsets.iter_mut().for_each(|offset| *offset -= first);
    }
    let data = Buffer::from_vec(data).slice_with_length(first as usize, (last - first) as usize);
    Ok((OffsetBuffer::new(offsets.into()), data))
}

fn bytes(spans: SpansResult, nulls: Option<NullBuffer>, rows: usize) -> Result<ArrayRef, String> {
    let (offsets, data) = spanned(spans, rows)?;
    BinaryArray::try_new(offsets, data, nulls)
        .map(|array| Arc::new(array) as ArrayRef)
        .map_err(|error| error.to_string())
}

fn strings(spans: SpansResult, nulls: Option<NullBuffer>, rows: usize) -> Result<StringArray, String> {
    let (offsets, data) = spanned(spans, rows)?;
    StringArray::try_new(offsets.clone(), data.clone(), nulls).map_err(|_| {
        let is_bad = |span: &[i32]| std::str::from_utf8(&data[span[0] as usize..span[1] as usize]).is_err();
        let row = offsets.windows(2).position(is_bad).unwrap_or_default();
        format!("row {row} is not UTF-8")
    })
}

fn numerics(spans: SpansResult, nulls: Option<NullBuffer>, rows: usize) -> Result<ArrayRef, String> {
    let strings = strings(spans, nulls, rows)?;
    let bad = (0..rows).find(|row| strings.is_valid(*row) && !is_numeric(strings.value(*row).as_bytes()));
    match bad {
        Some(row) => Err(format!("row {row} is not a decimal number in canonical text")),
        None => Ok(Arc::new(strings)),
    }
}

/// `-12.50` and the like, `NaN`, `Infinity`, `-Infinity`.
fn is_numeric(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let mut parts = digits.splitn(2, |byte| *byte == b'.');
    let is_digits = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    let whole = parts.next().unwrap_or_default();
    let fraction = parts.next();
    let canonical =
        is_digits(whole) && (whole.len() == 1 || whole[0] != b'0') && fraction.is_none_or(is_digits);
    canonical || matches!(text, b"NaN" | b"Infinity" | b"-Infinity")
}
