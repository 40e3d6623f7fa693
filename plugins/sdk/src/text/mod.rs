//! Values as text in their staged form: what cursors and high-water marks travel in, and what files hold.
//!
//! | type | form |
//! |---|---|
//! | boolean | `true`, `false` |
//! | int16, int32, int64 | decimal digits |
//! | float32, float64 | the shortest number that reads back equal, `-0.0` kept; `NaN`, `Infinity`, `-Infinity` |
//! | decimal(p,s) | exactly s decimals |
//! | numeric, text, json | as it is |
//! | bytes | base64 with padding |
//! | uuid | hyphenated, lower case |
//! | date | `YYYY-MM-DD`; `infinity`, `-infinity`; a year beyond 0000–9999 has a sign and at least four digits |
//! | time | `HH:MM:SS.ffffff`, up to 24:00:00 |
//! | timestamp | `YYYY-MM-DDTHH:MM:SS.ffffff`, otherwise like a date |
//! | timestamp_tz | the same in UTC with `Z` |
//!
//! [`write()`] writes exactly that. [`parse`] reads that and the usual variations of it (a space for the `T`, fewer
//! decimals, other UTC offsets), and nothing that would lose a digit.

mod number;
mod temporal;

use std::fmt;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::batch::{ColumnBuilder, ColumnView};
use crate::types::DataType;

pub use number::{parse_decimal, parse_float, parse_i64, write_decimal, write_f32, write_f64, write_i64};
pub use temporal::{
    parse_date, parse_time, parse_timestamp, parse_timestamp_tz, write_date, write_time, write_timestamp,
    write_timestamp_tz,
};

/// Why a text is no value of its type, for a person: "is not a whole number".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch(&'static str);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Mismatch {}

/// Appends a value, which must not be null, in its staged form. `column` must hold values of this type.
pub fn write(out: &mut Vec<u8>, data_type: DataType, column: ColumnView<'_>, row: usize) {
    match data_type {
        DataType::Boolean => out.extend_from_slice(if column.bool(row) { b"true" } else { b"false" }),
        DataType::Int16 => write_i64(out, column.i16(row).into()),
        DataType::Int32 => write_i64(out, column.i32(row).into()),
        DataType::Int64 => write_i64(out, column.i64(row)),
        DataType::Float32 => write_f32(out, column.f32(row)),
        DataType::Float64 => write_f64(out, column.f64(row)),
        DataType::Decimal(decimal) => write_decimal(out, column.i128(row), decimal.scale),
        DataType::Numeric | DataType::Text | DataType::Json => out.extend_from_slice(column.bytes(row)),
        DataType::Bytes => write_base64(out, column.bytes(row)),
        DataType::Uuid => write_uuid(out, column.uuid(row)),
        DataType::Date => write_date(out, column.i32(row)),
        DataType::Time => write_time(out, column.i64(row)),
        DataType::Timestamp => write_timestamp(out, column.i64(row)),
        DataType::TimestampTz => write_timestamp_tz(out, column.i64(row)),
    }
}

/// Reads a value and pushes it into a column of its type. Nothing is pushed where it is none.
pub fn parse(text: &[u8], column: &mut ColumnBuilder) -> Result<(), Mismatch> {
    match column.data_type() {
        DataType::Text => column.push_bytes(utf8(text)?),
        DataType::Boolean => column.push_bool(parse_bool(text)?),
        DataType::Int16 => column.push_i16(narrow(number::parse_i64(text)?)?),
        DataType::Int32 => column.push_i32(narrow(number::parse_i64(text)?)?),
        DataType::Int64 => column.push_i64(number::parse_i64(text)?),
        DataType::Float32 => column.push_f32(number::parse_float(text)?),
        DataType::Float64 => column.push_f64(number::parse_float(text)?),
        DataType::Decimal(d) => column.push_i128(parse_decimal(text, d.precision, d.scale)?),
        DataType::Numeric => {
            let number = number::Parts::read(text)?;
            column.push_with(|out| number.write_canonical(out));
        }
        DataType::Json => {
            serde_json::from_slice::<serde::de::IgnoredAny>(text)
                .map_err(|_| Mismatch("is not a JSON document"))?;
            column.push_bytes(text);
        }
        DataType::Bytes => {
            let bytes = BASE64_STANDARD
                .decode(text)
                .map_err(|_| Mismatch("is not base64 with padding"))?;
            column.push_bytes(&bytes);
        }
        DataType::Uuid => column.push_uuid(&parse_uuid(text).ok_or(Mismatch("is not a hyphenated UUID"))?),
        DataType::Date => column.push_i32(parse_date(text)?),
        DataType::Time => column.push_i64(parse_time(text)?),
        DataType::Timestamp => column.push_i64(parse_timestamp(text)?),
        DataType::TimestampTz => column.push_i64(parse_timestamp_tz(text)?),
    }
    Ok(())
}

/// The staged form of a value that is written in another way.
pub fn canonical(data_type: DataType, text: &[u8]) -> Result<String, Mismatch> {
    let mut column = ColumnBuilder::new(data_type);
    parse(text, &mut column)?;
    let mut out = Vec::new();
    write(&mut out, data_type, column.finish().view(), 0);
    String::from_utf8(out).map_err(|_| Mismatch("is not UTF-8"))
}

fn utf8(text: &[u8]) -> Result<&[u8], Mismatch> {
    std::str::from_utf8(text).map_err(|_| Mismatch("is not UTF-8"))?;
    Ok(text)
}

fn narrow<T: TryFrom<i64>>(value: i64) -> Result<T, Mismatch> {
    T::try_from(value).map_err(|_| number::OUT_OF_RANGE)
}

fn parse_bool(text: &[u8]) -> Result<bool, Mismatch> {
    let is_one_of = |words: &[&str]| {
        words
            .iter()
            .any(|word| text.eq_ignore_ascii_case(word.as_bytes()))
    };
    if is_one_of(&["true", "t", "1"]) {
        Ok(true)
    } else if is_one_of(&["false", "f", "0"]) {
        Ok(false)
    } else {
        Err(Mismatch("is neither true nor false"))
    }
}

/// Appends bytes in base64 with padding.
pub fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    let encoded =
        base64::encoded_len(bytes.len(), true).expect("a value of less than 2 GiB has a base64 length");
    out.resize(start + encoded, 0);
    BASE64_STANDARD
        .encode_slice(bytes, &mut out[start..])
        .expect("the buffer has the encoded length");
}

/// Where the hyphens of a UUID stand, in bytes of the value before them.
const UUID_HYPHENS: [usize; 4] = [4, 6, 8, 10];

/// Appends a UUID, hyphenated, in lower case.
pub fn write_uuid(out: &mut Vec<u8>, uuid: &[u8; 16]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (at, byte) in uuid.iter().enumerate() {
        if UUID_HYPHENS.contains(&at) {
            out.push(b'-');
        }
        out.extend([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
}

/// Reads a hyphenated UUID, in either case.
pub fn parse_uuid(text: &[u8]) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    let mut rest = text;
    for (at, byte) in uuid.iter_mut().enumerate() {
        if UUID_HYPHENS.contains(&at) {
            rest = rest.strip_prefix(b"-")?;
        }
        let (pair, after) = rest.split_first_chunk::<2>()?;
        let digit = |digit: u8| char::from(digit).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
        rest = after;
    }
    rest.is_empty().then_some(uuid)
}

#[cfg(test)]
mod tests;
