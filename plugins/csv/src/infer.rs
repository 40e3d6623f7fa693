//! Finds the type that fits all values of a column and loses nothing of their text.
//!
//! A value may be stored as a type only if writing it gives the very same text: `007`, `+1`, `1.50` beside `1.5` and
//! `1e3` stay text. Dates and timestamps may be spelled with a space for the `T` and with fewer decimals, which changes
//! the spelling but no value.

use setu_sdk::{DataType, text};

/// What is still possible for one column, after the values seen so far.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// In the order of preference. Decimal stands for any scale.
    candidates: Vec<Candidate>,
    /// The number of decimals of the values, if it is the same for all.
    scale: Option<u8>,
    any: bool,
    scratch: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Candidate {
    Boolean,
    Int64,
    Decimal,
    Float64,
    Date,
    Timestamp,
    TimestampTz,
}

impl Default for Column {
    fn default() -> Self {
        use Candidate::*;
        Column {
            candidates: vec![Boolean, Int64, Decimal, Float64, Date, Timestamp, TimestampTz],
            scale: None,
            any: false,
            scratch: Vec::new(),
        }
    }
}

impl Column {
    /// Looks at a value that is not NULL.
    pub(crate) fn see(&mut self, value: &[u8]) {
        self.any = true;
        let (scale, scratch) = (&mut self.scale, &mut self.scratch);
        self.candidates
            .retain(|candidate| candidate.fits(value, scale, scratch));
    }

    /// The type; text where nothing else fits, or nothing was seen.
    pub(crate) fn data_type(&self) -> DataType {
        let first = self.candidates.first().filter(|_| self.any);
        match first {
            None => DataType::Text,
            Some(Candidate::Boolean) => DataType::Boolean,
            Some(Candidate::Int64) => DataType::Int64,
            // As wide as it gets: the next file's values may be longer.
            Some(Candidate::Decimal) => DataType::decimal(38, self.scale.unwrap_or(0)),
            Some(Candidate::Float64) => DataType::Float64,
            Some(Candidate::Date) => DataType::Date,
            Some(Candidate::Timestamp) => DataType::Timestamp,
            Some(Candidate::TimestampTz) => DataType::TimestampTz,
        }
    }
}

impl Candidate {
    fn fits(self, value: &[u8], scale: &mut Option<u8>, scratch: &mut Vec<u8>) -> bool {
        scratch.clear();
        match self {
            Candidate::Boolean => matches!(value, b"true" | b"false"),
            Candidate::Int64 => text::parse_i64(value).is_ok_and(|number| {
                text::write_i64(scratch, number);
                scratch == value
            }),
            Candidate::Decimal => {
                let Some(decimals) = decimals(value).filter(|n| *scale.get_or_insert(*n) == *n) else {
                    return false;
                };
                text::parse_decimal(value, 38, decimals).is_ok_and(|unscaled| {
                    text::write_decimal(scratch, unscaled, decimals);
                    scratch == value
                })
            }
            Candidate::Float64 => text::parse_float(value).is_ok_and(|number: f64| {
                text::write_f64(scratch, number);
                number.is_finite() && scratch == value
            }),
            Candidate::Date => begins_with_digit(value) && text::parse_date(value).is_ok(),
            Candidate::Timestamp => is_clock_time(value) && text::parse_timestamp(value).is_ok(),
            // Other offsets than UTC would be lost.
            Candidate::TimestampTz => {
                value.ends_with(b"Z") && is_clock_time(value) && text::parse_timestamp_tz(value).is_ok()
            }
        }
    }
}

/// How many digits stand behind the point; none without a point, or for more than a decimal holds.
fn decimals(value: &[u8]) -> Option<u8> {
    let point = value.iter().position(|&byte| byte == b'.')?;
    u8::try_from(value.len() - point - 1)
        .ok()
        .filter(|n| (1..=38).contains(n))
}

/// Words such as `infinity` are dates only by declaration.
fn begins_with_digit(value: &[u8]) -> bool {
    value.first().is_some_and(u8::is_ascii_digit)
}

/// Whether a timestamp's hour is one that a timestamp keeps: 24:00:00 would become the next day's 00:00:00.
fn is_clock_time(value: &[u8]) -> bool {
    begins_with_digit(value) && value.get(11..13) != Some(b"24")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_fits_all_values_and_keeps_their_text() {
        let cases: &[(&[&str], &str)] = &[
            (&[], "text"),
            (&["true", "false"], "boolean"),
            (&["True"], "text"),
            (&["true", "1"], "text"),
            (&["0", "1"], "int64"),
            (&["-9223372036854775808", "9223372036854775807"], "int64"),
            (&["9223372036854775808"], "text"),
            (&["1", "007"], "text"),
            (&["+1"], "text"),
            (&["-0"], "text"),
            (&["1 "], "text"),
            (&["1", ""], "text"),
            (&["1.50", "-0.25"], "decimal(38,2)"),
            (&["-0.00"], "text"),
            (&["01.50"], "text"),
            (&[".50"], "text"),
            (&["1."], "text"),
            (&["1.5", "2.25"], "float64"),
            (&["1.5", "2"], "text"),
            (&["1.5", "1.50"], "text"),
            (&["0.1", "5e-324"], "float64"),
            (&["1e3"], "text"),
            (&["NaN"], "text"),
            (
                &["0.123456789012345678", "12.000000000000000000"],
                "decimal(38,18)",
            ),
            (&["2024-02-29"], "date"),
            (&["2023-02-29"], "text"),
            (&["2024-01-01", "infinity"], "text"),
            (&["infinity"], "text"),
            (&["2024-01-01T00:00:00", "2024-01-01 00:00:00.5"], "timestamp"),
            (&["2024-01-01 24:00:00"], "text"),
            (&["2024-01-01", "2024-01-01 00:00:00"], "text"),
            (&["2024-01-01T00:00:00Z"], "timestamp_tz"),
            (&["2024-01-01T00:00:00+02:00"], "text"),
            (&["2024-01-01T00:00:00.1234567"], "text"),
        ];
        for (values, expected) in cases {
            let mut column = Column::default();
            values.iter().for_each(|value| column.see(value.as_bytes()));
            assert_eq!(column.data_type().to_string(), *expected, "{values:?}");
        }
    }
}
