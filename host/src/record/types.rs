//! The logical types, as they stand in `wit/setu.wit` and, as text, in manifests.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::StreamName;

/// The type of a column. What each one holds is said in `wit/setu.wit`, and how it is staged in
/// `docs/staged-format.md`.
///
/// Its text form, used in manifests, is the name in lower case with underscores: `int32`, `timestamp_tz`,
/// `decimal(12,2)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
#[expect(missing_docs, reason = "each name says it; the contract has the details")]
pub enum DataType {
    Boolean,
    Int16,
    Int32,
    Int64,
    Float32,
    Float64,
    /// `precision` is 1 to 38 digits in all, `scale`, 0 to `precision`, of them after the point.
    Decimal {
        precision: u8,
        scale: u8,
    },
    Numeric,
    Text,
    Bytes,
    Uuid,
    Json,
    Date,
    Time,
    Timestamp,
    TimestampTz,
}

impl DataType {
    /// The simple types, whose text form is a single word.
    const WORDS: [(DataType, &'static str); 15] = [
        (DataType::Boolean, "boolean"),
        (DataType::Int16, "int16"),
        (DataType::Int32, "int32"),
        (DataType::Int64, "int64"),
        (DataType::Float32, "float32"),
        (DataType::Float64, "float64"),
        (DataType::Numeric, "numeric"),
        (DataType::Text, "text"),
        (DataType::Bytes, "bytes"),
        (DataType::Uuid, "uuid"),
        (DataType::Json, "json"),
        (DataType::Date, "date"),
        (DataType::Time, "time"),
        (DataType::Timestamp, "timestamp"),
        (DataType::TimestampTz, "timestamp_tz"),
    ];
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Decimal { precision, scale } => write!(f, "decimal({precision},{scale})"),
            simple => {
                let word = Self::WORDS
                    .iter()
                    .find(|(t, _)| t == simple)
                    .map_or("", |(_, w)| w);
                f.write_str(word)
            }
        }
    }
}

/// A text that names no data type.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a data type; known are boolean, int16, int32, int64, float32, float64, decimal(p,s) with 1 ≤ p ≤ 38 and s ≤ p, numeric, text, bytes, uuid, json, date, time, timestamp and timestamp_tz"
)]
pub struct ParseDataTypeError(pub String);

impl FromStr for DataType {
    type Err = ParseDataTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((simple, _)) = Self::WORDS.iter().find(|(_, word)| *word == text) {
            return Ok(*simple);
        }
        let decimal = || {
            let (precision, scale) = text
                .strip_prefix("decimal(")?
                .strip_suffix(')')?
                .split_once(',')?;
            let precision = precision.trim().parse().ok().filter(|p| (1..=38).contains(p))?;
            let scale = scale.trim().parse().ok().filter(|s| *s <= precision)?;
            Some(DataType::Decimal { precision, scale })
        };
        decimal().ok_or_else(|| ParseDataTypeError(text.to_owned()))
    }
}

impl From<DataType> for String {
    fn from(data_type: DataType) -> String {
        data_type.to_string()
    }
}

impl TryFrom<String> for DataType {
    type Error = ParseDataTypeError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// One column of a schema. In JSON: `{"name", "type", "nullable", "nativeType"}`, the last left out when none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Field {
    /// Not empty, unique in its schema.
    pub name: String,
    /// What the column's values are.
    #[serde(rename = "type")]
    pub data_type: DataType,
    /// Whether the column may hold nulls.
    pub nullable: bool,
    /// The source's own spelling of the type, such as `int4[]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native_type: Option<String>,
}

/// The columns of a stream, in order, and its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// In column order.
    pub fields: Vec<Field>,
    /// Names of fields in key order; empty: no key.
    pub primary_key: Vec<String>,
}

/// A schema that breaks the contract.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SchemaError {
    /// A field without a name.
    #[error("field {0} (counted from 0) has an empty name")]
    EmptyName(usize),
    /// Two fields of one name.
    #[error("two fields are named `{0}`")]
    DuplicateName(String),
    /// Precision or scale out of range.
    #[error("field `{0}` is a decimal({1},{2}): precision must be 1 to 38 and scale at most the precision")]
    Decimal(String, u8, u8),
    /// A primary key column that is no field, or stands twice.
    #[error("the primary key names `{0}`, which is not a field or stands in the key twice")]
    PrimaryKey(String),
}

impl Schema {
    /// The position of the field of this name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// Checks what `wit/setu.wit` demands of a schema.
    pub fn validate(&self) -> Result<(), SchemaError> {
        let mut names = HashSet::new();
        for (index, field) in self.fields.iter().enumerate() {
            if field.name.is_empty() {
                return Err(SchemaError::EmptyName(index));
            }
            if !names.insert(field.name.as_str()) {
                return Err(SchemaError::DuplicateName(field.name.clone()));
            }
            if let DataType::Decimal { precision, scale } = field.data_type
                && (!(1..=38).contains(&precision) || scale > precision)
            {
                return Err(SchemaError::Decimal(field.name.clone(), precision, scale));
            }
        }
        for key in &self.primary_key {
            // Removing makes a column that stands in the key twice an error as well.
            if !names.remove(key.as_str()) {
                return Err(SchemaError::PrimaryKey(key.clone()));
            }
        }
        Ok(())
    }
}

/// What is known of a stream before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Unique among a source's streams.
    pub name: StreamName,
    /// "table", "view", "file", …: for people.
    pub kind: String,
    /// Columns and key.
    pub schema: Schema,
    /// Roughly how many rows there are; for progress only.
    pub estimated_rows: Option<u64>,
    /// Fields that can serve as a cursor.
    pub cursors: Vec<String>,
    /// Whether reading can go on from a position.
    pub resumable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, data_type: DataType) -> Field {
        Field {
            name: name.into(),
            data_type,
            nullable: true,
            native_type: None,
        }
    }

    #[test]
    fn a_data_type_reads_back_from_its_text() {
        let decimal = DataType::Decimal {
            precision: 12,
            scale: 2,
        };
        for data_type in DataType::WORDS.map(|(t, _)| t).into_iter().chain([decimal]) {
            assert_eq!(data_type.to_string().parse(), Ok(data_type), "{data_type}");
        }
        assert_eq!(decimal.to_string(), "decimal(12,2)");
        for wrong in [
            "",
            "int8",
            "decimal",
            "decimal(0,0)",
            "decimal(39,1)",
            "decimal(3,4)",
            "decimal(3)",
        ] {
            assert_eq!(wrong.parse::<DataType>(), Err(ParseDataTypeError(wrong.into())));
        }
    }

    #[test]
    fn a_schema_that_breaks_a_rule_is_refused_by_name() {
        let schema = |fields: &[Field], key: &[&str]| Schema {
            fields: fields.to_vec(),
            primary_key: key.iter().map(|k| (*k).to_owned()).collect(),
        };
        let (a, b) = (field("a", DataType::Int32), field("b", DataType::Text));
        let wide = field(
            "d",
            DataType::Decimal {
                precision: 39,
                scale: 0,
            },
        );
        let cases = [
            (schema(&[a.clone(), b.clone()], &["b", "a"]), Ok(())),
            (schema(&[], &[]), Ok(())),
            (
                schema(&[field("", DataType::Date)], &[]),
                Err(SchemaError::EmptyName(0)),
            ),
            (
                schema(&[a.clone(), a.clone()], &[]),
                Err(SchemaError::DuplicateName("a".into())),
            ),
            (schema(&[wide], &[]), Err(SchemaError::Decimal("d".into(), 39, 0))),
            (
                schema(std::slice::from_ref(&a), &["c"]),
                Err(SchemaError::PrimaryKey("c".into())),
            ),
            (
                schema(&[a, b], &["a", "a"]),
                Err(SchemaError::PrimaryKey("a".into())),
            ),
        ];
        for (schema, expected) in cases {
            assert_eq!(schema.validate(), expected, "{schema:?}");
        }
    }
}
