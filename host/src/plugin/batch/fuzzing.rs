//! A batch that a guest might have returned, made of any bytes, and what must hold of it. See `crate::fuzzing`.

use arrow_array::RecordBatch;

use super::super::bindings::setu::connector::types::{
    BatchParam, BatchResult, ColumnParam, ColumnResult, SpansParam, SpansResult, ValuesParam, ValuesResult,
};
use super::{Lowered, lift, pieces};
use crate::fuzzing::Bytes;
use crate::record::{DataType, Schema};

/// What is asked for; batches of up to 63 rows are made.
const MAX_ROWS: u32 = 60;

/// Makes a batch and lifts it. One that is accepted comes back from a guest as it was, whole, cut and in pieces.
pub(crate) fn lift_and_lower(schema: &Schema, bytes: &mut Bytes<'_>) -> Option<RecordBatch> {
    let rows = bytes.byte() % 64;
    let mut columns: Vec<_> = schema
        .fields
        .iter()
        .map(|field| column(field.data_type, rows.into(), bytes))
        .collect();
    if bytes.byte() == 1 {
        columns.pop();
    }
    let guest = BatchResult {
        rows: rows.into(),
        columns,
    };
    let batch = lift(guest, schema, &schema.to_arrow(), MAX_ROWS).ok()?;
    assert_eq!(round_trip(&batch, schema), batch);
    let start = usize::from(bytes.byte()) % batch.num_rows();
    let tail = batch.slice(start, batch.num_rows() - start);
    assert_eq!(round_trip(&tail, schema), tail);
    let mut start = 0;
    for piece in pieces(&batch) {
        assert_eq!(piece, batch.slice(start, piece.num_rows()));
        start += piece.num_rows();
    }
    assert_eq!(start, batch.num_rows());
    Some(batch)
}

/// A batch as a guest would get it and give it back.
pub(super) fn round_trip(batch: &RecordBatch, schema: &Schema) -> RecordBatch {
    let lowered = Lowered::new(batch).unwrap();
    let columns = lowered.columns();
    let arrived = arrived(&lowered.batch(&columns));
    if let Some(ValuesResult::Spans(spans)) = arrived.columns.first().map(|column| &column.values) {
        assert_eq!(
            (spans.offsets[0], spans.offsets.last().map(|last| *last as usize)),
            (0, Some(spans.data.len())),
            "only the bytes of these rows cross"
        );
    }
    lift(arrived, schema, &schema.to_arrow(), u32::MAX).unwrap()
}

/// What a guest would hold after the call: copies of what was lent.
fn arrived(batch: &BatchParam<'_>) -> BatchResult {
    let column = |column: &ColumnParam<'_>| ColumnResult {
        validity: column.validity.map(<[u8]>::to_vec),
        values: match &column.values {
            ValuesParam::Bits(values) => ValuesResult::Bits(values.to_vec()),
            ValuesParam::Int16(values) => ValuesResult::Int16(values.to_vec()),
            ValuesParam::Int32(values) => ValuesResult::Int32(values.to_vec()),
            ValuesParam::Int64(values) => ValuesResult::Int64(values.to_vec()),
            ValuesParam::Float32(values) => ValuesResult::Float32(values.to_vec()),
            ValuesParam::Float64(values) => ValuesResult::Float64(values.to_vec()),
            ValuesParam::Int128(values) => ValuesResult::Int128(values.to_vec()),
            ValuesParam::Fixed16(values) => ValuesResult::Fixed16(values.to_vec()),
            ValuesParam::Spans(SpansParam { offsets, data }) => ValuesResult::Spans(SpansResult {
                offsets: offsets.to_vec(),
                data: data.to_vec(),
            }),
        },
    };
    BatchResult {
        rows: batch.rows,
        columns: batch.columns.iter().map(column).collect(),
    }
}

/// What may be wrong with a column, a bit each.
mod flaw {
    /// There are validity bits, which is no flaw yet.
    pub(super) const NULLS: u8 = 1;
    pub(super) const SHORT_NULLS: u8 = 2;
    pub(super) const OTHER_KIND: u8 = 4;
    pub(super) const OTHER_LENGTH: u8 = 8;
    pub(super) const WILD_OFFSETS: u8 = 16;
    pub(super) const OTHER_DATA: u8 = 32;
    /// Not a flaw: large numbers, of which most types allow few.
    pub(super) const WIDE: u8 = 64;
}

/// A column as its type has it, except for what the first byte makes wrong.
fn column(data_type: DataType, rows: usize, bytes: &mut Bytes<'_>) -> ColumnResult {
    let flaws = bytes.byte();
    let has = |flaw: u8| flaws & flaw != 0;
    let kind = match has(flaw::OTHER_KIND) {
        true => bytes.byte() % 9,
        false => kind(data_type),
    };
    let length = match has(flaw::OTHER_LENGTH) {
        true => bytes.byte().into(),
        false => rows,
    };
    let validity = has(flaw::NULLS).then(|| {
        let needed = rows.div_ceil(8);
        let length = if has(flaw::SHORT_NULLS) {
            needed.saturating_sub(1)
        } else {
            needed
        };
        bytes.numbers(length, false, u8::from_le_bytes)
    });
    let narrow = !has(flaw::WIDE);
    let values = match kind {
        0 => ValuesResult::Bits(bytes.numbers(length.div_ceil(8), false, u8::from_le_bytes)),
        1 => ValuesResult::Int16(bytes.numbers(length, narrow, i16::from_le_bytes)),
        2 => ValuesResult::Int32(bytes.numbers(length, narrow, i32::from_le_bytes)),
        3 => ValuesResult::Int64(bytes.numbers(length, narrow, i64::from_le_bytes)),
        4 => ValuesResult::Float32(bytes.numbers(length, narrow, f32::from_le_bytes)),
        5 => ValuesResult::Float64(bytes.numbers(length, narrow, f64::from_le_bytes)),
        6 => ValuesResult::Int128(bytes.numbers(length * 2, narrow, u64::from_le_bytes)),
        7 => ValuesResult::Fixed16(bytes.numbers(length * 16, false, u8::from_le_bytes)),
        _ => {
            let offsets = match has(flaw::WILD_OFFSETS) {
                true => bytes.numbers(length + 1, narrow, i32::from_le_bytes),
                false => {
                    let widths = bytes.numbers(length + 1, false, u8::from_le_bytes).into_iter();
                    widths
                        .scan(0, |end, width| {
                            *end += i32::from(width);
                            Some(*end)
                        })
                        .collect()
                }
            };
            let end = offsets.last().copied().unwrap_or_default();
            let size = match has(flaw::OTHER_DATA) {
                true => bytes.byte().into(),
                false => usize::try_from(end).unwrap_or_default().min(1 << 16),
            };
            let data = bytes.numbers(size, false, u8::from_le_bytes);
            ValuesResult::Spans(SpansResult { offsets, data })
        }
    };
    ColumnResult { validity, values }
}

/// Which case of the contract's `values` a type has, counted from 0.
fn kind(data_type: DataType) -> u8 {
    match data_type {
        DataType::Boolean => 0,
        DataType::Int16 => 1,
        DataType::Int32 | DataType::Date => 2,
        DataType::Int64 | DataType::Time | DataType::Timestamp | DataType::TimestampTz => 3,
        DataType::Float32 => 4,
        DataType::Float64 => 5,
        DataType::Decimal { .. } => 6,
        DataType::Uuid => 7,
        DataType::Numeric | DataType::Text | DataType::Json | DataType::Bytes => 8,
    }
}
