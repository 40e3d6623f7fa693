//! Rows, honest ones and ones that break a rule each.

use crate::bindings::exports::setu::connector::source::Chunk;
use crate::bindings::setu::connector::types::{
    Batch, Column, DataType, DecimalType, Field, Schema, Spans, Values,
};
use crate::{Misdeed, Named};

/// How many rows a stream has, and one of its batches.
pub(crate) const TOTAL: u64 = 1_000;
pub(crate) const BATCH: u32 = 100;
/// So many rows are honest.
pub(crate) const SPOILED_FROM: u64 = 300;

/// At most 9,999.99.
const PRICE: DataType = DataType::Decimal(DecimalType {
    precision: 6,
    scale: 2,
});

pub(crate) const ALL: &[Named] = &[
    ("more-rows-than-asked", Misdeed::Spoil(more_rows_than_asked)),
    ("no-rows-for-ever", Misdeed::Spoil(no_rows)),
    ("too-few-values", Misdeed::Spoil(too_few_values)),
    ("offsets-out-of-order", Misdeed::Spoil(offsets_out_of_order)),
    ("offset-beyond-data", Misdeed::Spoil(offset_beyond_data)),
    ("short-validity", Misdeed::Spoil(short_validity)),
    ("invalid-utf8", Misdeed::Spoil(invalid_utf8)),
    ("other-type-later", Misdeed::Spoil(other_type)),
    ("fewer-columns-later", Misdeed::Spoil(fewer_columns)),
    ("more-columns-later", Misdeed::Spoil(more_columns)),
    ("null-where-none-may-be", Misdeed::Spoil(null_where_none_may_be)),
    (
        "decimal-beyond-precision",
        Misdeed::Spoil(decimal_beyond_precision),
    ),
    ("position-unannounced", Misdeed::Spoil(position_unannounced)),
    ("giant-position", Misdeed::Spoil(giant_position)),
];

pub(crate) fn schema() -> Schema {
    Schema {
        fields: vec![
            field("id", DataType::Int64, false),
            field("name", DataType::Text, true),
            field("price", PRICE, true),
        ],
        primary_key: vec!["id".to_owned()],
    }
}

fn field(name: &str, data_type: DataType, nullable: bool) -> Field {
    Field {
        name: name.to_owned(),
        data_type,
        nullable,
        native_type: None,
    }
}

/// So many rows from one on: 7, "row 7", 0.07.
pub(crate) fn honest(first: u64, rows: u32) -> Batch {
    let ids = first..first + u64::from(rows);
    let columns = [
        Values::Int64(ids.clone().map(|id| id as i64).collect()),
        Values::Spans(spans(ids.clone().map(|id| format!("row {id}")))),
        Values::Int128(ids.flat_map(|id| [id, 0]).collect()),
    ];
    let columns = columns.map(|values| Column {
        validity: None,
        values,
    });
    Batch {
        rows,
        columns: columns.into(),
    }
}

fn spans(texts: impl Iterator<Item = String>) -> Spans {
    let mut spans = Spans {
        offsets: vec![0],
        data: vec![],
    };
    for text in texts {
        spans.data.extend(text.as_bytes());
        spans.offsets.push(spans.data.len() as i32);
    }
    spans
}

/// The spans of the names.
pub(crate) fn names(batch: &mut Batch) -> &mut Spans {
    match &mut batch.columns[1].values {
        Values::Spans(spans) => spans,
        _ => unreachable!("names are text"),
    }
}

fn more_rows_than_asked(chunk: &mut Chunk, asked: u32) {
    chunk.batch = honest(SPOILED_FROM, asked + 1);
}

fn no_rows(chunk: &mut Chunk, _: u32) {
    chunk.batch = honest(SPOILED_FROM, 0);
}

fn too_few_values(chunk: &mut Chunk, _: u32) {
    chunk.batch.columns[0].values = Values::Int64(vec![1]);
}

fn offsets_out_of_order(chunk: &mut Chunk, _: u32) {
    names(&mut chunk.batch).offsets.swap(7, 8);
}

fn offset_beyond_data(chunk: &mut Chunk, _: u32) {
    names(&mut chunk.batch).offsets[BATCH as usize] = i32::MAX;
}

fn short_validity(chunk: &mut Chunk, _: u32) {
    chunk.batch.columns[1].validity = Some(vec![0xff; 12]);
}

fn invalid_utf8(chunk: &mut Chunk, _: u32) {
    names(&mut chunk.batch).data[0] = 0xff;
}

fn other_type(chunk: &mut Chunk, _: u32) {
    chunk.batch.columns[1].values = Values::Int64(vec![1; BATCH as usize]);
}

fn fewer_columns(chunk: &mut Chunk, _: u32) {
    chunk.batch.columns.pop();
}

fn more_columns(chunk: &mut Chunk, _: u32) {
    let again = chunk.batch.columns[0].clone();
    chunk.batch.columns.push(again);
}

/// Row 4 of the batch.
fn null_where_none_may_be(chunk: &mut Chunk, _: u32) {
    let mut validity = vec![0xff; 13];
    validity[0] = !(1 << 4);
    chunk.batch.columns[0].validity = Some(validity);
}

/// 10,000.00 in row 5 of the batch.
fn decimal_beyond_precision(chunk: &mut Chunk, _: u32) {
    let Values::Int128(words) = &mut chunk.batch.columns[2].values else {
        unreachable!("prices are decimals");
    };
    words[2 * 5] = 1_000_000;
}

fn position_unannounced(chunk: &mut Chunk, _: u32) {
    chunk.position = Some(vec![1]);
}

fn giant_position(chunk: &mut Chunk, _: u32) {
    chunk.position = Some(vec![0; 100 << 20]);
}
