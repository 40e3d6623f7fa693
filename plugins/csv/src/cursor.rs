//! Cursor windows: which rows lie in one, and where it ends.

use setu_sdk::{CursorWindow, DataType, Error, Result, Schema, text};

use crate::dialect::Dialect;
use crate::records::{Record, error_at};

/// Whether values of a type have an order that can serve as a cursor. Text has none that people mean: `9` comes after
/// `10`.
pub(crate) fn is_cursor_type(data_type: DataType) -> bool {
    use DataType::*;
    matches!(
        data_type,
        Int16 | Int32 | Int64 | Float32 | Float64 | Decimal(_) | Date | Time | Timestamp | TimestampTz
    )
}

/// A value's place in the order of its type.
fn rank(data_type: DataType, value: &[u8]) -> Result<i128, text::Mismatch> {
    Ok(match data_type {
        DataType::Decimal(decimal) => text::parse_decimal(value, decimal.precision, decimal.scale)?,
        DataType::Float32 | DataType::Float64 => float_rank(text::parse_float(value)?),
        DataType::Date => text::parse_date(value)?.into(),
        DataType::Time => text::parse_time(value)?.into(),
        DataType::Timestamp => text::parse_timestamp(value)?.into(),
        DataType::TimestampTz => text::parse_timestamp_tz(value)?.into(),
        _ => text::parse_i64(value)?.into(),
    })
}

/// Floats ordered, -0 equal to 0, NaN last.
fn float_rank(value: f64) -> i128 {
    let value = if value.is_nan() { f64::NAN } else { value + 0.0 };
    let bits = value.to_bits().cast_signed();
    // The bits of negative numbers grow the other way.
    (if bits < 0 { bits ^ i64::MAX } else { bits }).into()
}

/// A window, ready to be asked for each row.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    /// The cursor's place in the file's schema.
    at: usize,
    name: String,
    data_type: DataType,
    /// The lowest rank in the window; none: every row is in it.
    from: Option<i128>,
}

/// What a window holds in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    pub(crate) rows: u64,
    /// The highest cursor value of these rows.
    highest: Option<(i128, Vec<u8>)>,
}

impl Window {
    pub(crate) fn new(request: &CursorWindow, schema: &Schema) -> Result<Self> {
        let name = &request.field;
        let at = schema
            .index_of(name)
            .ok_or_else(|| Error::config(format!("the cursor `{name}` is not a column")))?;
        let data_type = schema.fields[at].data_type;
        if !is_cursor_type(data_type) {
            return Err(Error::unsupported(format!(
                "the cursor `{name}` is of type {data_type}, which has no order that fits; declare its type, such as \
                 int64 or timestamp, under `columns` in the source's config"
            )));
        }
        let from = |since: &String| {
            let rank = rank(data_type, since.as_bytes());
            let rank = rank.map_err(|why| {
                Error::config(format!("the last value of the cursor `{name}`, {since:?}, {why}"))
            })?;
            Ok::<_, Error>(if request.since_inclusive { rank } else { rank + 1 })
        };
        Ok(Window {
            at,
            name: name.clone(),
            data_type,
            from: request.since.as_ref().map(from).transpose()?,
        })
    }

    /// Whether a row lies in the window, and counts it.
    pub(crate) fn admits(
        &self,
        record: &Record<'_>,
        dialect: &Dialect,
        file: &str,
        survey: Option<&mut Survey>,
    ) -> Result<bool> {
        let field = record.fields[self.at];
        let mut unescaped = Vec::new();
        let mut value = record.raw(field);
        if field.doubled {
            record.append_value(field, dialect.quote, &mut unescaped);
            value = &unescaped;
        }
        let is_null = dialect.is_null_text(value) && (!field.quoted || value.is_empty());
        let rank = if is_null {
            None
        } else {
            let rank = rank(self.data_type, value).map_err(|why| {
                let shown = String::from_utf8_lossy(value);
                let (line, byte) = record.place(field);
                error_at(
                    file,
                    line,
                    byte,
                    &format!("column `{}`: {shown:?} {why}", self.name),
                )
            })?;
            Some(rank)
        };
        let admitted = self.from.is_none_or(|from| rank.is_some_and(|rank| rank >= from));
        if admitted && let Some(survey) = survey {
            survey.rows += 1;
            if let Some(rank) = rank
                && survey.highest.as_ref().is_none_or(|(highest, _)| rank > *highest)
            {
                survey.highest = Some((rank, value.to_vec()));
            }
        }
        Ok(admitted)
    }

    /// The highest value of a survey in its staged form.
    pub(crate) fn high_water_mark(&self, survey: &Survey) -> Option<String> {
        let (_, value) = survey.highest.as_ref()?;
        text::canonical(self.data_type, value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_ordered_by_type() {
        let ascending: &[(DataType, &[&str])] = &[
            (DataType::Int64, &["-10", "-9", "9", "10"]),
            (DataType::decimal(10, 2), &["-0.01", "0", "9.99", "10"]),
            (
                DataType::Float64,
                &[
                    "-Infinity",
                    "-2.5",
                    "-1e-9",
                    "0",
                    "1e-9",
                    "9",
                    "10",
                    "Infinity",
                    "NaN",
                ],
            ),
            (
                DataType::Date,
                &["-infinity", "-0001-01-01", "2024-01-31", "2024-02-01", "infinity"],
            ),
            (
                DataType::TimestampTz,
                &[
                    "2024-01-01T02:00:00+03",
                    "2024-01-01T00:00:00Z",
                    "2024-01-01T00:00:00.000001Z",
                ],
            ),
        ];
        for (data_type, values) in ascending {
            let ranks: Vec<i128> = values
                .iter()
                .map(|v| rank(*data_type, v.as_bytes()).unwrap())
                .collect();
            assert!(ranks.is_sorted_by(|a, b| a < b), "{data_type}: {ranks:?}");
        }
        assert_eq!(float_rank(-0.0), float_rank(0.0));
    }
}
