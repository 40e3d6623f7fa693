//! From columns to rows in the binary format: for each column one encoder, chosen once, that fits the type the rows
//! are copied into.

use setu_sdk::{Batch, ColumnView, DataType, Error, Result};

use crate::copy_in::CopyIn;
use crate::datetime;
use crate::numeric::{self, Unfit};
use crate::types::Base;

/// How a column's values are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoder {
    Bool,
    /// Between integers of any two sizes, given in bytes; one that does not fit is refused.
    Int {
        from: u8,
        to: u8,
    },
    /// An integer of this many bytes as numeric.
    IntNumeric {
        from: u8,
    },
    Float4,
    Float4AsFloat8,
    Float8,
    Decimal {
        scale: u8,
    },
    /// Canonical text as numeric. `max_scale`: more decimals than these are refused.
    Numeric {
        max_scale: Option<i32>,
    },
    /// UTF-8 as it is, without NUL.
    Text,
    Bytes,
    /// A version byte and text.
    Jsonb,
    Uuid,
    Date,
    /// `unit`: microseconds that a value must be a whole number of, lest the column rounds it.
    Time {
        unit: i64,
    },
    Timestamp {
        unit: i64,
    },
}

/// A column of a batch, with what its encoder needs of it at hand.
struct Feed<'a> {
    encoder: Encoder,
    view: ColumnView<'a>,
    nullable: bool,
}

/// Appends the rows of a batch. `names`: of the columns, for messages.
///
/// # Errors
/// `data`, naming the column, for a value that its target cannot hold; those of the connection.
pub(crate) fn write_batch(
    batch: &Batch,
    encoders: &[Encoder],
    names: &[String],
    copy: &mut CopyIn,
    client: &mut crate::client::Client,
) -> Result<()> {
    let feeds: Vec<Feed<'_>> = batch
        .views()
        .into_iter()
        .zip(encoders)
        .map(|(view, &encoder)| Feed {
            encoder,
            view,
            nullable: view.may_have_nulls(),
        })
        .collect();
    let count = (feeds.len() as i16).to_be_bytes();
    let mut groups = Vec::new();
    for row in 0..batch.rows as usize {
        let out = copy.buffer();
        out.extend_from_slice(&count);
        for (at, feed) in feeds.iter().enumerate() {
            feed.write(row, &mut groups, out).map_err(|unfit| {
                let name = names.get(at).map_or("?", String::as_str);
                Error::data(format!("column `{name}`: {} {}", feed.show(row), unfit.0))
            })?;
        }
        copy.row_done(client)?;
    }
    Ok(())
}

const NULL: [u8; 4] = (-1_i32).to_be_bytes();
const OUT_OF_RANGE: Unfit = Unfit("is out of range for the target column");
const ROUNDED: Unfit =
    Unfit("is more precise than the target column, which would round it; widen the column");

impl Feed<'_> {
    #[inline]
    fn write(&self, row: usize, groups: &mut Vec<u16>, out: &mut Vec<u8>) -> Result<(), Unfit> {
        if self.nullable && self.view.is_null(row) {
            out.extend_from_slice(&NULL);
            return Ok(());
        }
        let view = &self.view;
        match self.encoder {
            Encoder::Bool => fixed(out, [u8::from(view.bool(row))]),
            Encoder::Int { from, to } => return write_int(self.int(row, from), to, out),
            Encoder::IntNumeric { from } => {
                sized(out, |out| {
                    numeric::from_i128(i128::from(self.int(row, from)), 0, out);
                    Ok(())
                })?;
            }
            Encoder::Float4 => fixed(out, view.f32(row).to_be_bytes()),
            Encoder::Float4AsFloat8 => fixed(out, f64::from(view.f32(row)).to_be_bytes()),
            Encoder::Float8 => fixed(out, view.f64(row).to_be_bytes()),
            Encoder::Decimal { scale } => {
                sized(out, |out| {
                    numeric::from_i128(view.i128(row), scale, out);
                    Ok(())
                })?;
            }
            Encoder::Numeric { max_scale } => {
                sized(out, |out| {
                    numeric::from_text(view.bytes(row), max_scale, groups, out)
                })?;
            }
            Encoder::Text => {
                let text = view.bytes(row);
                if text.contains(&0) {
                    return Err(Unfit(
                        "holds a NUL character, which Postgres cannot store in text",
                    ));
                }
                spanned(out, &[], text)?;
            }
            Encoder::Jsonb => spanned(out, &[1], view.bytes(row))?,
            Encoder::Bytes => spanned(out, &[], view.bytes(row))?,
            Encoder::Uuid => fixed(out, *view.uuid(row)),
            Encoder::Date => {
                let days = datetime::date_to_postgres(view.i32(row)).ok_or(OUT_OF_RANGE)?;
                fixed(out, days.to_be_bytes());
            }
            Encoder::Time { unit } => fixed(out, whole(view.i64(row), unit)?.to_be_bytes()),
            Encoder::Timestamp { unit } => {
                let micros = whole(view.i64(row), unit)?;
                fixed(
                    out,
                    datetime::timestamp_to_postgres(micros)
                        .ok_or(OUT_OF_RANGE)?
                        .to_be_bytes(),
                );
            }
        }
        Ok(())
    }

    #[inline]
    fn int(&self, row: usize, bytes: u8) -> i64 {
        match bytes {
            2 => i64::from(self.view.i16(row)),
            4 => i64::from(self.view.i32(row)),
            _ => self.view.i64(row),
        }
    }

    /// A value for a message; none of a kind whose text could be long or secret.
    fn show(&self, row: usize) -> String {
        match self.encoder {
            Encoder::Int { from, .. } | Encoder::IntNumeric { from } => self.int(row, from).to_string(),
            Encoder::Decimal { scale } => numeric::decimal_text(self.view.i128(row), scale),
            _ => "a value".to_owned(),
        }
    }
}

/// Refuses what is no whole number of units; the infinities are.
#[inline]
fn whole(micros: i64, unit: i64) -> Result<i64, Unfit> {
    if unit > 1 && micros % unit != 0 && micros != i64::MAX && micros != i64::MIN {
        return Err(ROUNDED);
    }
    Ok(micros)
}

#[inline]
fn write_int(value: i64, to: u8, out: &mut Vec<u8>) -> Result<(), Unfit> {
    match to {
        2 => fixed(out, i16::try_from(value).map_err(|_| OUT_OF_RANGE)?.to_be_bytes()),
        4 => fixed(out, i32::try_from(value).map_err(|_| OUT_OF_RANGE)?.to_be_bytes()),
        _ => fixed(out, value.to_be_bytes()),
    }
    Ok(())
}

#[inline]
fn fixed<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N]) {
    out.extend_from_slice(&(N as i32).to_be_bytes());
    out.extend_from_slice(&bytes);
}

#[inline]
fn spanned(out: &mut Vec<u8>, prefix: &[u8], bytes: &[u8]) -> Result<(), Unfit> {
    let length = i32::try_from(prefix.len() + bytes.len()).map_err(|_| OUT_OF_RANGE)?;
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(prefix);
    out.extend_from_slice(bytes);
    Ok(())
}

/// Writes a value whose length is known only afterwards.
#[inline]
fn sized(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), Unfit>) -> Result<(), Unfit> {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out)?;
    let length = i32::try_from(out.len() - start - 4).map_err(|_| OUT_OF_RANGE)?;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

/// The encoder from a logical type straight into a Postgres type of this modifier; none where there is none that keeps
/// every value as it is (or refuses it).
pub(crate) fn direct(data_type: DataType, base: Base, typmod: i32) -> Option<Encoder> {
    use crate::types::numeric_typmod;
    let int_bytes = |base| match base {
        Base::Int2 => Some(2),
        Base::Int4 => Some(4),
        Base::Int8 => Some(8),
        _ => None,
    };
    let from_int = |from: u8| match base {
        Base::Numeric if typmod == -1 => Some(Encoder::IntNumeric { from }),
        base => int_bytes(base).map(|to| Encoder::Int { from, to }),
    };
    // A precision of fewer than six decimals rounds.
    let unit = || match typmod {
        0..=5 => 10_i64.pow(6 - typmod as u32),
        _ => 1,
    };
    match (data_type, base) {
        (DataType::Boolean, Base::Bool) => Some(Encoder::Bool),
        (DataType::Int16, _) => from_int(2),
        (DataType::Int32, _) => from_int(4),
        (DataType::Int64, _) => from_int(8),
        (DataType::Float32, Base::Float4) => Some(Encoder::Float4),
        (DataType::Float32, Base::Float8) => Some(Encoder::Float4AsFloat8),
        (DataType::Float64, Base::Float8) => Some(Encoder::Float8),
        (DataType::Decimal(decimal), Base::Numeric) => {
            let keeps = numeric_typmod(typmod).is_none_or(|(_, scale)| scale >= i32::from(decimal.scale));
            keeps.then_some(Encoder::Decimal { scale: decimal.scale })
        }
        (DataType::Numeric, Base::Numeric) => Some(Encoder::Numeric {
            max_scale: numeric_typmod(typmod).map(|(_, scale)| scale),
        }),
        (DataType::Text, Base::Text | Base::Varchar | Base::Bpchar | Base::Name) => Some(Encoder::Text),
        (DataType::Json, Base::Json | Base::Text | Base::Varchar) => Some(Encoder::Text),
        (DataType::Json, Base::Jsonb) => Some(Encoder::Jsonb),
        (DataType::Numeric, Base::Text | Base::Varchar) => Some(Encoder::Text),
        (DataType::Bytes, Base::Bytea) => Some(Encoder::Bytes),
        (DataType::Uuid, Base::Uuid) => Some(Encoder::Uuid),
        (DataType::Date, Base::Date) => Some(Encoder::Date),
        (DataType::Time, Base::Time) => Some(Encoder::Time { unit: unit() }),
        (DataType::Timestamp, Base::Timestamp) | (DataType::TimestampTz, Base::Timestamptz) => {
            Some(Encoder::Timestamp { unit: unit() })
        }
        _ => None,
    }
}

/// The type that a column of this logical type is created with, and its encoder.
pub(crate) fn natural(data_type: DataType) -> (Base, Encoder) {
    match data_type {
        DataType::Boolean => (Base::Bool, Encoder::Bool),
        DataType::Int16 => (Base::Int2, Encoder::Int { from: 2, to: 2 }),
        DataType::Int32 => (Base::Int4, Encoder::Int { from: 4, to: 4 }),
        DataType::Int64 => (Base::Int8, Encoder::Int { from: 8, to: 8 }),
        DataType::Float32 => (Base::Float4, Encoder::Float4),
        DataType::Float64 => (Base::Float8, Encoder::Float8),
        DataType::Decimal(decimal) => (Base::Numeric, Encoder::Decimal { scale: decimal.scale }),
        DataType::Numeric => (Base::Numeric, Encoder::Numeric { max_scale: None }),
        DataType::Text => (Base::Text, Encoder::Text),
        DataType::Bytes => (Base::Bytea, Encoder::Bytes),
        DataType::Uuid => (Base::Uuid, Encoder::Uuid),
        DataType::Json => (Base::Json, Encoder::Text),
        DataType::Date => (Base::Date, Encoder::Date),
        DataType::Time => (Base::Time, Encoder::Time { unit: 1 }),
        DataType::Timestamp => (Base::Timestamp, Encoder::Timestamp { unit: 1 }),
        DataType::TimestampTz => (Base::Timestamptz, Encoder::Timestamp { unit: 1 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_encoders_that_keep_every_value_or_refuse_it_are_direct() {
        let numeric = |precision: i32, scale: i32| (precision << 16 | scale) + 4;
        let cases = [
            (
                DataType::Int64,
                Base::Int4,
                -1,
                Some(Encoder::Int { from: 8, to: 4 }),
            ),
            (
                DataType::Int16,
                Base::Int8,
                -1,
                Some(Encoder::Int { from: 2, to: 8 }),
            ),
            (
                DataType::Int32,
                Base::Numeric,
                -1,
                Some(Encoder::IntNumeric { from: 4 }),
            ),
            (DataType::Int64, Base::Float8, -1, None),
            (DataType::Float64, Base::Float4, -1, None),
            (
                DataType::decimal(10, 2),
                Base::Numeric,
                numeric(12, 4),
                Some(Encoder::Decimal { scale: 2 }),
            ),
            (DataType::decimal(10, 2), Base::Numeric, numeric(10, 1), None),
            (
                DataType::Numeric,
                Base::Numeric,
                numeric(10, 1),
                Some(Encoder::Numeric { max_scale: Some(1) }),
            ),
            (
                DataType::Timestamp,
                Base::Timestamp,
                3,
                Some(Encoder::Timestamp { unit: 1000 }),
            ),
            (DataType::Timestamp, Base::Timestamptz, -1, None),
            (DataType::Json, Base::Jsonb, -1, Some(Encoder::Jsonb)),
            (DataType::Text, Base::Int4, -1, None),
        ];
        for (data_type, base, typmod, expected) in cases {
            assert_eq!(
                direct(data_type, base, typmod),
                expected,
                "{data_type} into {base:?}({typmod})"
            );
        }
    }

    #[test]
    fn the_natural_encoder_is_the_direct_one() {
        for word in [
            "boolean",
            "int16",
            "int32",
            "int64",
            "float32",
            "float64",
            "decimal(9,2)",
            "numeric",
            "text",
            "bytes",
            "uuid",
            "json",
            "date",
            "time",
            "timestamp",
            "timestamp_tz",
        ] {
            let data_type: DataType = word.parse().unwrap();
            let (base, encoder) = natural(data_type);
            assert_eq!(direct(data_type, base, -1), Some(encoder), "{word}");
        }
    }

    #[test]
    fn a_value_that_does_not_fit_is_refused() {
        let mut out = Vec::new();
        assert_eq!(write_int(32_768, 2, &mut out), Err(OUT_OF_RANGE));
        assert_eq!(write_int(-32_768, 2, &mut out), Ok(()));
        assert_eq!(out, [0, 0, 0, 2, 0x80, 0]);
        assert_eq!(whole(1_500, 1_000), Err(ROUNDED));
        assert_eq!(whole(i64::MAX, 1_000), Ok(i64::MAX));
    }
}
