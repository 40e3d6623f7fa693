//! From cells in binary form to columns: one loop for each type, chosen once for a column.

use setu_sdk::text as staged;
use setu_sdk::{ColumnBuilder, DataType, Error, Result};

use crate::copy_out::Grid;
use crate::datetime;
use crate::numeric::{self, Unfit};
use crate::types::{Base, Travel};

/// How a column's cells are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoder {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Decimal {
        scale: u8,
    },
    Numeric,
    /// UTF-8 as it is. `checked`: the database does not vouch for its encoding.
    Text {
        checked: bool,
    },
    Bytes,
    /// A version byte and text.
    Jsonb,
    Uuid,
    Date,
    Time,
    Timestamp,
}

const MALFORMED: Unfit = Unfit("is not of its type's length");

impl Decoder {
    /// The decoder of a column. `checked`: text is to be checked to be UTF-8.
    pub(crate) fn new(travel: Travel, data_type: DataType, checked: bool) -> Decoder {
        let Travel::Binary(base) = travel else {
            return Decoder::Text { checked };
        };
        match base {
            Base::Bool => Decoder::Bool,
            Base::Int2 => Decoder::Int2,
            Base::Int4 => Decoder::Int4,
            Base::Int8 => Decoder::Int8,
            Base::Float4 => Decoder::Float4,
            Base::Float8 => Decoder::Float8,
            Base::Numeric => match data_type {
                DataType::Decimal(decimal) => Decoder::Decimal { scale: decimal.scale },
                _ => Decoder::Numeric,
            },
            Base::Text | Base::Varchar | Base::Bpchar | Base::Name | Base::Json => Decoder::Text { checked },
            Base::Bytea => Decoder::Bytes,
            Base::Uuid => Decoder::Uuid,
            Base::Jsonb => Decoder::Jsonb,
            Base::Date => Decoder::Date,
            Base::Time => Decoder::Time,
            Base::Timestamp | Base::Timestamptz => Decoder::Timestamp,
        }
    }

    /// Appends one column of the grid.
    ///
    /// # Errors
    /// `data`, naming the column, for a value that the column's type cannot hold.
    pub(crate) fn decode(
        self,
        grid: &Grid,
        at: usize,
        bytes: &[u8],
        name: &str,
        column: &mut ColumnBuilder,
    ) -> Result<()> {
        let cells = grid.column(at, bytes);
        let unfit = |unfit: Unfit| Error::data(format!("a value of column `{name}` {}", unfit.0));
        match self {
            Decoder::Bool => each(cells, column, |cell, column| {
                column.push_bool(fixed::<1>(cell)? != [0]);
                Ok(())
            }),
            Decoder::Int2 => each(cells, column, |cell, column| {
                column.push_i16(i16::from_be_bytes(fixed(cell)?));
                Ok(())
            }),
            Decoder::Int4 => each(cells, column, |cell, column| {
                column.push_i32(i32::from_be_bytes(fixed(cell)?));
                Ok(())
            }),
            Decoder::Int8 | Decoder::Time => each(cells, column, |cell, column| {
                column.push_i64(i64::from_be_bytes(fixed(cell)?));
                Ok(())
            }),
            Decoder::Float4 => each(cells, column, |cell, column| {
                column.push_f32(f32::from_be_bytes(fixed(cell)?));
                Ok(())
            }),
            Decoder::Float8 => each(cells, column, |cell, column| {
                column.push_f64(f64::from_be_bytes(fixed(cell)?));
                Ok(())
            }),
            Decoder::Decimal { scale } => each(cells, column, |cell, column| {
                column.push_i128(numeric::to_i128(cell, scale)?);
                Ok(())
            }),
            Decoder::Numeric => each(cells, column, |cell, column| column.push_with(|text| numeric::to_text(cell, text))),
            Decoder::Text { checked: false } | Decoder::Bytes => each(cells, column, |cell, column| {
                column.push_bytes(cell);
                Ok(())
            }),
            Decoder::Text { checked: true } => each(cells, column, |cell, column| {
                column.push_str(std::str::from_utf8(cell).map_err(|_| {
                    Unfit("is not UTF-8, and the database's encoding is SQL_ASCII, which does not say what it is")
                })?);
                Ok(())
            }),
            Decoder::Jsonb => each(cells, column, |cell, column| match cell {
                [1, text @ ..] => {
                    column.push_bytes(text);
                    Ok(())
                }
                _ => Err(Unfit("is jsonb of a version that is not known")),
            }),
            Decoder::Uuid => each(cells, column, |cell, column| {
                column.push_uuid(&fixed(cell)?);
                Ok(())
            }),
            Decoder::Date => each(cells, column, |cell, column| {
                let days = datetime::date_from_postgres(i32::from_be_bytes(fixed(cell)?));
                column.push_i32(days.ok_or(Unfit("is a date out of range"))?);
                Ok(())
            }),
            Decoder::Timestamp => each(cells, column, |cell, column| {
                let micros = datetime::timestamp_from_postgres(i64::from_be_bytes(fixed(cell)?));
                column.push_i64(micros.ok_or(Unfit(
                    "is later than the year 294246, which 64 bits of microseconds do not reach; add `timestamp` or \
                     `timestamptz` to `as_text` in the source's config",
                ))?);
                Ok(())
            }),
        }
        .map_err(unfit)
    }
}

#[inline]
fn each<'a>(
    cells: impl Iterator<Item = Option<&'a [u8]>>,
    column: &mut ColumnBuilder,
    mut push: impl FnMut(&'a [u8], &mut ColumnBuilder) -> Result<(), Unfit>,
) -> Result<(), Unfit> {
    for cell in cells {
        match cell {
            Some(cell) => push(cell, column)?,
            None => column.push_null(),
        }
    }
    Ok(())
}

#[inline]
fn fixed<const N: usize>(cell: &[u8]) -> Result<[u8; N], Unfit> {
    cell.try_into().map_err(|_| MALFORMED)
}

/// A key's value as the text of a Postgres literal; none where it has no such text.
pub(crate) fn key_text(travel: Travel, cell: &[u8]) -> Option<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let Travel::Binary(base) = travel else {
        return text(cell);
    };
    let mut out = Vec::new();
    match base {
        Base::Bool => return Some(if cell == [0] { "f" } else { "t" }.to_owned()),
        Base::Int2 => staged::write_i64(&mut out, i64::from(i16::from_be_bytes(fixed(cell).ok()?))),
        Base::Int4 => staged::write_i64(&mut out, i64::from(i32::from_be_bytes(fixed(cell).ok()?))),
        Base::Int8 => staged::write_i64(&mut out, i64::from_be_bytes(fixed(cell).ok()?)),
        Base::Text | Base::Varchar | Base::Bpchar | Base::Name => return text(cell),
        Base::Numeric => numeric::to_text(cell, &mut out).ok()?,
        Base::Bytea => {
            let hex: String = cell.iter().map(|byte| format!("{byte:02x}")).collect();
            return Some(format!("\\x{hex}"));
        }
        Base::Uuid => staged::write_uuid(&mut out, &fixed(cell).ok()?),
        Base::Date => {
            let days = datetime::date_from_postgres(i32::from_be_bytes(fixed(cell).ok()?))?;
            staged::write_date(&mut out, days);
            return Some(datetime::literal(&text(&out)?));
        }
        Base::Timestamp | Base::Timestamptz => {
            let micros = datetime::timestamp_from_postgres(i64::from_be_bytes(fixed(cell).ok()?))?;
            if base == Base::Timestamptz {
                staged::write_timestamp_tz(&mut out, micros);
            } else {
                staged::write_timestamp(&mut out, micros);
            }
            return Some(datetime::literal(&text(&out)?));
        }
        Base::Float4 | Base::Float8 | Base::Json | Base::Jsonb | Base::Time => return None,
    }
    text(&out)
}
