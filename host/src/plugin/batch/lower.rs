//! To a guest: Arrow's buffers are lent to the call, rebased where an array is a slice of a larger one.

use std::borrow::Cow;
use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type,
    Int64Type, Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use arrow_buffer::{BooleanBuffer, OffsetBuffer};
use arrow_schema::{DataType, TimeUnit};

use super::super::bindings::setu::connector::types::{BatchParam, ColumnParam, SpansParam, ValuesParam};

/// What measured fastest across the boundary.
const PIECE_ROWS: usize = 8_192;
const PIECE_BYTES: usize = 1 << 20;

/// A batch whose buffers are ready to be lent.
pub(in super::super) struct Lowered<'a> {
    rows: u32,
    columns: Vec<LoweredColumn<'a>>,
}

struct LoweredColumn<'a> {
    validity: Option<Cow<'a, [u8]>>,
    values: LoweredValues<'a>,
}

enum LoweredValues<'a> {
    Bits(Cow<'a, [u8]>),
    Spans(Cow<'a, [i32]>, &'a [u8]),
    /// Needs nothing of its own.
    Lent(ValuesParam<'a>),
}

impl<'a> Lowered<'a> {
    /// Of at most `u32::MAX` rows; an error says which column has a type that no schema of ours has.
    pub(in super::super) fn new(batch: &'a RecordBatch) -> Result<Self, String> {
        let rows =
            u32::try_from(batch.num_rows()).map_err(|_| "a batch of more than 2^32 rows".to_owned())?;
        let schema = batch.schema_ref();
        let columns = batch.columns().iter().zip(schema.fields());
        let columns = columns
            .map(|(column, field)| {
                lower_column(column.as_ref()).ok_or_else(|| {
                    format!(
                        "column `{}` has the Arrow type {}",
                        field.name(),
                        column.data_type()
                    )
                })
            })
            .collect::<Result<_, _>>()?;
        Ok(Lowered { rows, columns })
    }

    /// The columns in the contract's form, to be kept while [`batch`](Self::batch) is used.
    pub(in super::super) fn columns(&self) -> Vec<ColumnParam<'_>> {
        let columns = self.columns.iter().map(|column| ColumnParam {
            validity: column.validity.as_deref(),
            values: match &column.values {
                LoweredValues::Bits(bits) => ValuesParam::Bits(bits),
                LoweredValues::Spans(offsets, data) => ValuesParam::Spans(SpansParam { offsets, data }),
                LoweredValues::Lent(values) => values.clone(),
            },
        });
        columns.collect()
    }

    /// The batch in the contract's form.
    pub(in super::super) fn batch<'b>(&self, columns: &'b [ColumnParam<'b>]) -> BatchParam<'b> {
        BatchParam {
            rows: self.rows,
            columns,
        }
    }
}

fn lower_column(array: &dyn Array) -> Option<LoweredColumn<'_>> {
    let validity = array
        .nulls()
        .filter(|nulls| nulls.null_count() > 0)
        .map(|nulls| bits(nulls.inner()));
    Some(LoweredColumn {
        validity,
        values: lower_values(array)?,
    })
}

fn lower_values(array: &dyn Array) -> Option<LoweredValues<'_>> {
    fn values<T: ArrowPrimitiveType>(array: &dyn Array) -> &[T::Native] {
        array.as_primitive::<T>().values()
    }
    let lent = match array.data_type() {
        DataType::Boolean => return Some(LoweredValues::Bits(bits(array.as_boolean().values()))),
        DataType::Utf8 => {
            let array = array.as_string::<i32>();
            return Some(spans(array.offsets(), array.value_data()));
        }
        DataType::Binary => {
            let array = array.as_binary::<i32>();
            return Some(spans(array.offsets(), array.value_data()));
        }
        DataType::Int16 => ValuesParam::Int16(values::<Int16Type>(array)),
        DataType::Int32 => ValuesParam::Int32(values::<Int32Type>(array)),
        DataType::Int64 => ValuesParam::Int64(values::<Int64Type>(array)),
        DataType::Float32 => ValuesParam::Float32(values::<Float32Type>(array)),
        DataType::Float64 => ValuesParam::Float64(values::<Float64Type>(array)),
        DataType::Date32 => ValuesParam::Int32(values::<Date32Type>(array)),
        DataType::Time64(TimeUnit::Microsecond) => ValuesParam::Int64(values::<Time64MicrosecondType>(array)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            ValuesParam::Int64(values::<TimestampMicrosecondType>(array))
        }
        DataType::Decimal128(..) => {
            let words = array.as_primitive::<Decimal128Type>().values().inner();
            ValuesParam::Int128(words.typed_data::<u64>())
        }
        DataType::FixedSizeBinary(16) => {
            let array = array.as_fixed_size_binary();
            ValuesParam::Fixed16(array.value_data().get(..array.len() * 16)?)
        }
        _ => return None,
    };
    Some(LoweredValues::Lent(lent))
}

/// Bits from the first on; copied only where the first is not the first of a byte.
fn bits(buffer: &BooleanBuffer) -> Cow<'_, [u8]> {
    let (start, length) = (buffer.offset(), buffer.len());
    if start % 8 == 0 {
        let bytes = start / 8..(start + length).div_ceil(8);
        return Cow::Borrowed(&buffer.values()[bytes]);
    }
    let bytes = buffer.sliced();
    Cow::Owned(bytes.as_slice()[..length.div_ceil(8)].to_vec())
}

/// Offsets from 0 on and only the bytes that they index.
fn spans<'a>(offsets: &'a OffsetBuffer<i32>, data: &'a [u8]) -> LoweredValues<'a> {
    let (first, last) = (offsets[0], offsets[offsets.len() - 1]);
    let data = &data[first as usize..last as usize];
    match first {
        0 => LoweredValues::Spans(Cow::Borrowed(offsets), data),
        first => LoweredValues::Spans(offsets.iter().map(|offset| offset - first).collect(), data),
    }
}

/// Cuts a batch into pieces of at most 8,192 rows and about 1 MiB; a wider row is a piece of its own.
pub(in super::super) fn pieces(batch: &RecordBatch) -> impl Iterator<Item = RecordBatch> + '_ {
    let mut start = 0;
    std::iter::from_fn(move || {
        let rows = batch.num_rows();
        if start >= rows {
            return None;
        }
        let most = (start + PIECE_ROWS).min(rows);
        let fits = |end: usize| bytes(batch, start..end) <= PIECE_BYTES;
        // Bytes grow with rows, so the end can be searched for.
        let (mut low, mut high) = (start + 1, most);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) {
                low = middle
            } else {
                high = middle - 1
            }
        }
        let piece = batch.slice(start, low - start);
        start = low;
        Some(piece)
    })
}

/// How many bytes of values some rows have.
fn bytes(batch: &RecordBatch, rows: Range<usize>) -> usize {
    let column = |array: &dyn Array| {
        let between =
            |offsets: &OffsetBuffer<i32>| (offsets[rows.end] - offsets[rows.start]) as usize + 4 * rows.len();
        match array.data_type() {
            DataType::Utf8 => between(array.as_string::<i32>().offsets()),
            DataType::Binary => between(array.as_binary::<i32>().offsets()),
            DataType::FixedSizeBinary(width) => rows.len() * *width as usize,
            other => rows.len() * other.primitive_width().unwrap_or(1),
        }
    };
    batch.columns().iter().map(|array| column(array.as_ref())).sum()
}
