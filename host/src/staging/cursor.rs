//! Values of a cursor column: how they compare, and their staged form.
//!
//! They compare by type, never as text: 9 < 10, timestamps by instant, `-infinity` before and `infinity` behind every
//! date; `NaN` lies behind all other numbers, as in Postgres, and -0 equals 0; text by its bytes, false before true.
//! A source may order its text otherwise (a collation); its own high-water mark then goes before what is found here.
//!
//! The sink uses this for the bounds of parts, the runner for the state of direct copies: both get the same marks.

use std::cmp::Ordering;
use std::fmt;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use serde_json::Value;

use super::codec::{self, CodecError, Number};
use crate::record::{DataType, Field, Schema};

/// A value of a cursor column, not null.
#[derive(Clone, Debug)]
pub struct CursorValue {
    data_type: DataType,
    /// The staged form.
    json: Value,
    order: Order,
}

/// What a value is compared by.
#[derive(Clone, Debug)]
enum Order {
    /// Booleans, integers, dates and times. Infinite dates are the limits of the integers.
    Integer(i64),
    Float(f64),
    /// Unscaled; the scale is the type's.
    Decimal(i128),
    Numeric(String),
    Bytes(Vec<u8>),
}

impl CursorValue {
    /// From the text form that cursor windows and state files have, see [`CursorValue`]'s `Display`.
    pub fn from_text(data_type: DataType, text: &str) -> Result<Self, CodecError> {
        let json = match data_type {
            DataType::Boolean | DataType::Int16 | DataType::Int32 | DataType::Int64 => {
                serde_json::from_str(text).ok()
            }
            // "NaN" and the infinities are strings.
            DataType::Float32 | DataType::Float64 => serde_json::from_str::<serde_json::Number>(text)
                .ok()
                .map(Value::Number),
            _ => None,
        };
        Self::from_json(data_type, &json.unwrap_or_else(|| text.into()))
    }

    /// From the form that it has in parts and manifests. Null is no cursor value.
    pub fn from_json(data_type: DataType, json: &Value) -> Result<Self, CodecError> {
        let field = field(data_type);
        let array = codec::parse_value(&field, json)?;
        Self::at(&field, array.as_ref(), 0)
    }

    /// The value of one row of a column; it must not be null.
    fn at(field: &Field, array: &dyn Array, row: usize) -> Result<Self, CodecError> {
        Ok(CursorValue {
            data_type: field.data_type,
            json: codec::write_value(field, array, row)?,
            order: Order::at(field.data_type, array, row)
                .ok_or_else(|| CodecError::new("the batch does not hold the type that its schema says"))?,
        })
    }

    /// The type that it is a value of.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The form that it has in parts and manifests.
    pub fn to_json(&self) -> Value {
        self.json.clone()
    }
}

/// The text form that cursor windows and state files have: the staged form, a string's content without quotes.
impl fmt::Display for CursorValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.json {
            Value::String(text) => f.write_str(text),
            other => other.fmt(f),
        }
    }
}

/// Equal values need not look the same: numerics 1.0 and 1.00.
impl PartialEq for CursorValue {
    fn eq(&self, other: &Self) -> bool {
        self.partial_cmp(other) == Some(Ordering::Equal)
    }
}

/// Values of different types do not compare.
impl PartialOrd for CursorValue {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        (self.data_type == other.data_type).then(|| self.order.compare(&other.order))?
    }
}

impl Order {
    /// What the value of one row is compared by; none where the array is not of this type.
    fn at(data_type: DataType, array: &dyn Array, row: usize) -> Option<Order> {
        Some(match data_type {
            DataType::Boolean => Order::Integer(array.as_boolean_opt()?.value(row).into()),
            DataType::Int16 => Order::Integer(array.as_primitive_opt::<Int16Type>()?.value(row).into()),
            DataType::Int32 => Order::Integer(array.as_primitive_opt::<Int32Type>()?.value(row).into()),
            DataType::Date => Order::Integer(array.as_primitive_opt::<Date32Type>()?.value(row).into()),
            DataType::Int64 => Order::Integer(array.as_primitive_opt::<Int64Type>()?.value(row)),
            DataType::Time => Order::Integer(array.as_primitive_opt::<Time64MicrosecondType>()?.value(row)),
            DataType::Timestamp | DataType::TimestampTz => {
                Order::Integer(array.as_primitive_opt::<TimestampMicrosecondType>()?.value(row))
            }
            DataType::Float32 => Order::Float(array.as_primitive_opt::<Float32Type>()?.value(row).into()),
            DataType::Float64 => Order::Float(array.as_primitive_opt::<Float64Type>()?.value(row)),
            DataType::Decimal { .. } => {
                Order::Decimal(array.as_primitive_opt::<Decimal128Type>()?.value(row))
            }
            DataType::Numeric => Order::Numeric(array.as_string_opt::<i32>()?.value(row).to_owned()),
            DataType::Text | DataType::Json => Order::Bytes(array.as_string_opt::<i32>()?.value(row).into()),
            DataType::Bytes => Order::Bytes(array.as_binary_opt::<i32>()?.value(row).into()),
            DataType::Uuid => Order::Bytes(array.as_fixed_size_binary_opt()?.value(row).into()),
        })
    }

    fn compare(&self, other: &Self) -> Option<Ordering> {
        Some(match (self, other) {
            (Order::Integer(a), Order::Integer(b)) => a.cmp(b),
            (Order::Decimal(a), Order::Decimal(b)) => a.cmp(b),
            (Order::Float(a), Order::Float(b)) => compare_floats(*a, *b),
            (Order::Numeric(a), Order::Numeric(b)) => compare_numerics(a, b),
            (Order::Bytes(a), Order::Bytes(b)) => a.cmp(b),
            _ => return None,
        })
    }
}

/// NaN equals itself and is the greatest.
fn compare_floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// By value, whatever the number of digits.
fn compare_numerics(a: &str, b: &str) -> Ordering {
    let rank = |text: &str| match text {
        "-Infinity" => 0,
        "Infinity" => 2,
        "NaN" => 3,
        _ => 1,
    };
    let ranks = rank(a).cmp(&rank(b));
    let (Some(a), Some(b)) = (Number::parse(a), Number::parse(b)) else {
        return ranks;
    };
    match (a.negative, b.negative) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => a.compare_magnitude(&b),
        (true, true) => b.compare_magnitude(&a),
    }
}

/// The least and the greatest value of a column over the batches observed so far.
#[derive(Clone, Debug)]
pub struct Bounds {
    index: usize,
    field: Field,
    min: Option<CursorValue>,
    max: Option<CursorValue>,
}

impl Bounds {
    /// For a column of batches of this schema; none where it has no such column.
    pub fn new(schema: &Schema, column: &str) -> Option<Self> {
        let index = schema.index_of(column)?;
        Some(Bounds {
            index,
            field: schema.fields.get(index)?.clone(),
            min: None,
            max: None,
        })
    }

    /// The least value that is not null.
    pub fn min(&self) -> Option<&CursorValue> {
        self.min.as_ref()
    }

    /// The greatest value that is not null.
    pub fn max(&self) -> Option<&CursorValue> {
        self.max.as_ref()
    }

    /// Forgets what was observed.
    pub fn reset(&mut self) {
        (self.min, self.max) = (None, None);
    }

    /// Takes the column's values into account; nulls count for nothing.
    pub fn observe(&mut self, batch: &RecordBatch) -> Result<(), CodecError> {
        let array = batch.columns().get(self.index).ok_or_else(|| {
            CodecError::new("the batch lacks the cursor column").in_column(&self.field.name)
        })?;
        let Some((min, max)) = extremes(self.field.data_type, array.as_ref()) else {
            return Ok(());
        };
        let min = CursorValue::at(&self.field, array.as_ref(), min)?;
        let max = CursorValue::at(&self.field, array.as_ref(), max)?;
        if self.min.as_ref().is_none_or(|known| min < *known) {
            self.min = Some(min);
        }
        if self.max.as_ref().is_none_or(|known| max > *known) {
            self.max = Some(max);
        }
        Ok(())
    }
}

/// The rows of the least and the greatest value; none where all are null.
fn extremes(data_type: DataType, array: &dyn Array) -> Option<(usize, usize)> {
    use DataType::*;
    let rows = Rows(array);
    match data_type {
        Boolean => rows.by(array.as_boolean_opt()?, |a, i| a.value(i), |a, b| a.cmp(b)),
        Int16 => rows.by(
            array.as_primitive_opt::<Int16Type>()?.values(),
            |a, i| a[i],
            |a, b| a.cmp(b),
        ),
        Int32 => rows.by(
            array.as_primitive_opt::<Int32Type>()?.values(),
            |a, i| a[i],
            |a, b| a.cmp(b),
        ),
        Date => rows.by(
            array.as_primitive_opt::<Date32Type>()?.values(),
            |a, i| a[i],
            |a, b| a.cmp(b),
        ),
        Int64 => rows.by(
            array.as_primitive_opt::<Int64Type>()?.values(),
            |a, i| a[i],
            |a, b| a.cmp(b),
        ),
        Time => rows.by(
            array.as_primitive_opt::<Time64MicrosecondType>()?.values(),
            |a, i| a[i],
            |a, b| a.cmp(b),
        ),
        Timestamp | TimestampTz => rows.by(
            array.as_primitive_opt::<TimestampMicrosecondType>()?.values(),
            |a, i| a[i],
            |a, b| a.cmp(b),
        ),
        Decimal { .. } => rows.by(
            array.as_primitive_opt::<Decimal128Type>()?.values(),
            |a, i| a[i],
            |a, b| a.cmp(b),
        ),
        Float32 => rows.by(
            array.as_primitive_opt::<Float32Type>()?.values(),
            |a, i| a[i],
            |a, b| compare_floats((*a).into(), (*b).into()),
        ),
        Float64 => rows.by(
            array.as_primitive_opt::<Float64Type>()?.values(),
            |a, i| a[i],
            |a, b| compare_floats(*a, *b),
        ),
        Numeric => rows.by(
            array.as_string_opt::<i32>()?,
            |a, i| a.value(i),
            |a, b| compare_numerics(a, b),
        ),
        Text | Json => rows.by(array.as_string_opt::<i32>()?, |a, i| a.value(i), |a, b| a.cmp(b)),
        Bytes => rows.by(array.as_binary_opt::<i32>()?, |a, i| a.value(i), |a, b| a.cmp(b)),
        Uuid => rows.by(
            array.as_fixed_size_binary_opt()?,
            |a, i| a.value(i),
            |a, b| a.cmp(b),
        ),
    }
}

struct Rows<'a>(&'a dyn Array);

impl Rows<'_> {
    /// The first rows with the least and the greatest value, as `value` reads and `compare` orders them.
    fn by<'v, A: ?Sized, T>(
        &self,
        values: &'v A,
        value: impl Fn(&'v A, usize) -> T,
        compare: impl Fn(&T, &T) -> Ordering,
    ) -> Option<(usize, usize)> {
        let mut rows = (0..self.0.len()).filter(|row| self.0.is_valid(*row));
        let first = rows.next()?;
        let mut min = (first, value(values, first));
        let mut max = (first, value(values, first));
        for row in rows {
            let value = value(values, row);
            if compare(&value, &min.1) == Ordering::Less {
                min = (row, value);
            } else if compare(&value, &max.1) == Ordering::Greater {
                max = (row, value);
            }
        }
        Some((min.0, max.0))
    }
}

/// A field to read a single value with.
fn field(data_type: DataType) -> Field {
    Field {
        name: "cursor".into(),
        data_type,
        nullable: false,
        native_type: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(data_type: &str, text: &str) -> CursorValue {
        CursorValue::from_text(data_type.parse().unwrap(), text).unwrap()
    }

    #[test]
    fn values_compare_by_type() {
        // Each line in rising order.
        let lines: [(&str, &[&str]); 16] = [
            ("boolean", &["false", "true"]),
            ("int16", &["-32768", "-1", "9", "10"]),
            ("int32", &["-10", "-9", "9", "10"]),
            (
                "int64",
                &[
                    "-9223372036854775808",
                    "9",
                    "10",
                    "9007199254740992",
                    "9007199254740993",
                ],
            ),
            (
                "float32",
                &["-Infinity", "-1e10", "0.0", "9", "10.5", "Infinity", "NaN"],
            ),
            (
                "float64",
                &[
                    "-Infinity",
                    "-1e300",
                    "-1.5",
                    "0",
                    "5e-324",
                    "9.5",
                    "10",
                    "1e300",
                    "Infinity",
                    "NaN",
                ],
            ),
            ("decimal(12,2)", &["-10.00", "-9.99", "0.00", "9.99", "10.00"]),
            (
                "numeric",
                &[
                    "-Infinity",
                    "-100000000000000000000000000000000000000000",
                    "-9.5",
                    "-9.05",
                    "-0.1",
                    "0",
                    "0.0000001",
                    "0.1",
                    "9",
                    "9.00000000000000000000000000000000000000001",
                    "10",
                    "99",
                    "100",
                    "Infinity",
                    "NaN",
                ],
            ),
            ("text", &["", "10", "9", "A", "a", "aa", "b", "ä", "日"]),
            ("bytes", &["", "AA==", "AAA=", "/w=="]),
            (
                "uuid",
                &[
                    "00000000-0000-0000-0000-00000000000a",
                    "00000000-0000-0000-0000-0000000000B0",
                    "f0000000-0000-0000-0000-000000000000",
                ],
            ),
            ("json", &["{\"a\":1}", "{\"b\":0}"]),
            (
                "date",
                &[
                    "-infinity",
                    "-0044-03-15",
                    "0001-01-01",
                    "2024-02-29",
                    "9999-12-31",
                    "+10000-01-01",
                    "infinity",
                ],
            ),
            ("time", &["00:00:00.000000", "09:00:00", "10:00:00", "24:00:00"]),
            (
                "timestamp",
                &[
                    "-infinity",
                    "1999-12-31T23:59:59.999999",
                    "2000-01-01T00:00:00",
                    "infinity",
                ],
            ),
            (
                "timestamp_tz",
                &[
                    "-infinity",
                    "0099-01-01T00:00:00Z",
                    "2024-01-01T00:00:00.000001Z",
                    "+12024-01-01T00:00:00Z",
                    "infinity",
                ],
            ),
        ];
        for (data_type, texts) in lines {
            for (i, a) in texts.iter().enumerate() {
                for (j, b) in texts.iter().enumerate() {
                    let actual = value(data_type, a).partial_cmp(&value(data_type, b));
                    assert_eq!(actual, Some(i.cmp(&j)), "{data_type}: {a} and {b}");
                }
            }
        }
    }

    #[test]
    fn equal_values_may_look_different() {
        for (data_type, a, b) in [
            ("numeric", "1.0", "1.00"),
            ("numeric", "-0", "0.00"),
            ("numeric", "007", "7"),
            ("float64", "-0.0", "0"),
            ("float64", "NaN", "NaN"),
            ("time", "10:00:00", "10:00:00.000"),
        ] {
            assert_eq!(value(data_type, a), value(data_type, b));
        }
    }

    #[test]
    fn values_of_different_types_do_not_compare() {
        assert_eq!(value("int32", "1").partial_cmp(&value("int64", "1")), None);
        assert_eq!(
            value("decimal(3,1)", "1").partial_cmp(&value("decimal(3,2)", "1")),
            None
        );
    }

    #[test]
    fn text_and_json_are_the_staged_form() {
        for (data_type, text, json) in [
            ("int64", "9007199254740993", "9007199254740993"),
            ("boolean", "true", "true"),
            ("float64", "0.1", "0.1"),
            ("float32", "0.1", "0.1"),
            ("float64", "NaN", "\"NaN\""),
            ("text", "true", "\"true\""),
            ("text", "10", "\"10\""),
            ("numeric", "1.50", "\"1.50\""),
            ("decimal(4,2)", "1.50", "\"1.50\""),
            (
                "timestamp_tz",
                "2024-01-01T00:00:00.000000Z",
                "\"2024-01-01T00:00:00.000000Z\"",
            ),
        ] {
            let from_text = value(data_type, text);
            assert_eq!(from_text.to_json().to_string(), json);
            assert_eq!(from_text.to_string(), text);
            let from_json = CursorValue::from_json(data_type.parse().unwrap(), &from_text.to_json()).unwrap();
            assert_eq!(from_json.to_string(), text);
        }
        for (data_type, text) in [
            ("int16", "40000"),
            ("int64", "x"),
            ("int64", "\"1\""),
            ("boolean", "1"),
            ("date", "2024"),
            ("float64", "inf"),
        ] {
            assert!(
                CursorValue::from_text(data_type.parse().unwrap(), text).is_err(),
                "{data_type} {text}"
            );
        }
        assert!(CursorValue::from_json(DataType::Int64, &Value::Null).is_err());
    }

    #[test]
    fn bounds_span_batches_and_pass_over_nulls() {
        let schema = Schema {
            fields: vec![Field {
                name: "n".into(),
                nullable: true,
                ..field(DataType::Numeric)
            }],
            primary_key: Vec::new(),
        };
        let mut bounds = Bounds::new(&schema, "n").unwrap();
        assert!(Bounds::new(&schema, "other").is_none());
        let lines: [&[u8]; 3] = [
            b"[null]\n[null]",
            b"[\"9\"]\n[null]\n[\"10\"]\n[\"9.5\"]",
            b"[\"-2\"]\n[\"3\"]",
        ];
        let expected = [None, Some(("9", "10")), Some(("-2", "10"))];
        for (lines, expected) in lines.into_iter().zip(expected) {
            bounds
                .observe(&codec::decode(&schema, lines, 4).unwrap())
                .unwrap();
            let text = |value: Option<&CursorValue>| value.map(ToString::to_string);
            let actual = text(bounds.min()).zip(text(bounds.max()));
            assert_eq!(actual.as_ref().map(|(a, b)| (a.as_str(), b.as_str())), expected);
        }
        bounds.reset();
        assert!(bounds.min().is_none() && bounds.max().is_none());
    }
}
