//! What no safe code would hand over: memory that is not there, the same memory many times, and text that is none.
//!
//! None of the `unsafe` here is sound, which is the point. It harms at most this component's own memory, and the host
//! must end the instance before anything is freed.

use crate::bindings::exports::setu::connector::source::{Chunk, Reader};
use crate::bindings::setu::connector::types::{Column, Field, Schema, StreamInfo, Values};
use crate::{Misdeed, Named, end, rows};

pub(crate) const ALL: &[Named] = &[
    ("aliased-keys", Misdeed::SpoilSchema(aliased_keys)),
    ("aliased-names", Misdeed::SpoilSchema(aliased_names)),
    ("aliased-columns", Misdeed::Spoil(aliased_columns)),
    ("aliased-rows", Misdeed::Spoil(aliased_rows)),
    ("text-beyond-memory", Misdeed::SpoilSchema(text_beyond_memory)),
    ("list-beyond-memory", Misdeed::Spoil(list_beyond_memory)),
    ("name-not-utf8", Misdeed::SpoilSchema(name_not_utf8)),
    ("unaligned-list", Misdeed::Spoil(unaligned_list)),
    ("forged-reader", Misdeed::SpoilReader(forged_reader)),
];

/// Bytes wherever they are said to be. They lie exactly so in what the host reads: a list is its address and length.
fn bytes_at(address: usize, length: usize) -> Vec<u8> {
    // SAFETY: none, see the module's header.
    unsafe { Vec::from_raw_parts(address as *mut u8, length, length) }
}

fn text(bytes: Vec<u8>) -> String {
    // SAFETY: none, see the module's header.
    unsafe { String::from_utf8_unchecked(bytes) }
}

/// So many texts of one MiB that all lie in the same place.
fn aliased_texts(count: usize) -> Vec<String> {
    let shared = vec![b'k'; 1 << 20].leak();
    let address = shared.as_ptr() as usize;
    (0..count)
        .map(|_| text(bytes_at(address, shared.len())))
        .collect()
}

fn aliased_keys(schema: &mut Schema) {
    schema.primary_key = aliased_texts(4_000);
}

fn aliased_names(schema: &mut Schema) {
    let field = |name| Field {
        name,
        ..schema.fields[1].clone()
    };
    schema.fields = aliased_texts(4_000).into_iter().map(field).collect();
}

fn aliased_columns(chunk: &mut Chunk, _: u32) {
    let shared = vec![0_u8; 64 << 20].leak();
    let address = shared.as_ptr() as usize;
    let column = |_| Column {
        validity: None,
        values: Values::Bits(bytes_at(address, shared.len())),
    };
    chunk.batch.columns = (0..1_000).map(column).collect();
}

/// Every row is all of the data: the offsets run back and forth.
fn aliased_rows(chunk: &mut Chunk, _: u32) {
    let spans = rows::names(&mut chunk.batch);
    spans.data = vec![b'x'; 1 << 20];
    let end = spans.data.len() as i32;
    let rows = spans.offsets.len();
    spans.offsets = [0, end].into_iter().cycle().take(rows).collect();
}

/// Almost four GiB from the start.
const NOWHERE: usize = 0xffff_0000;

fn text_beyond_memory(schema: &mut Schema) {
    schema.primary_key = vec![text(bytes_at(NOWHERE, 0x8000))];
}

fn list_beyond_memory(chunk: &mut Chunk, _: u32) {
    chunk.batch.columns[1].values = Values::Bits(bytes_at(NOWHERE, 0x8000));
}

fn name_not_utf8(schema: &mut Schema) {
    schema.fields[1].name = text(vec![b'n', 0xff]);
}

fn unaligned_list(chunk: &mut Chunk, _: u32) {
    let ids = vec![0_i64; rows::BATCH as usize + 1].leak();
    let address = ids.as_ptr() as usize + 1;
    // SAFETY: none, see the module's header.
    let ids = unsafe { Vec::from_raw_parts(address as *mut i64, rows::BATCH as usize, rows::BATCH as usize) };
    chunk.batch.columns[0].values = Values::Int64(ids);
}

fn forged_reader() -> Reader {
    // SAFETY: none, see the module's header.
    unsafe { Reader::from_handle(12_345) }
}

/// Spoils what `discover` lists, which concerns every stream of the source.
pub(crate) fn spoil_listing(how: &str, streams: &mut Vec<StreamInfo>) {
    if how.is_empty() {
        return;
    }
    end();
    match how {
        "aliased-keys" => aliased_keys(&mut streams[0].schema),
        "two-of-one-name" => streams.push(streams[0].clone()),
        "panic" => panic!("nobody knows what lives here"),
        "forged-line" => panic!("nobody knows\nerror: all is well"),
        other => panic!("no listing `{other}`"),
    }
}
