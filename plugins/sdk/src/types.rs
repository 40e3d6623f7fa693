//! Names, schemas and requests: the contract's own types, with short ways to make them.

use std::fmt;
use std::str::FromStr;

pub use crate::bindings::base::setu::connector::types::{
    Batch, Column, DataType, DecimalType, Field, Schema, Spans, StreamInfo, StreamName, Values,
};
pub use crate::bindings::destination::exports::setu::connector::destination::{
    Capabilities, LoadRequest, Summary, WriteMode,
};
pub use crate::bindings::source::exports::setu::connector::source::{
    BatchLimit, Chunk, CursorWindow, ReadRequest,
};
use crate::error::Error;

impl Field {
    /// A nullable field whose `data_type` says all.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Field {
            name: name.into(),
            data_type,
            nullable: true,
            native_type: None,
        }
    }

    /// Never null.
    pub fn not_null(mut self) -> Self {
        self.nullable = false;
        self
    }

    /// With the system's own spelling of the type.
    pub fn native(mut self, native_type: impl Into<String>) -> Self {
        self.native_type = Some(native_type.into());
        self
    }
}

impl Schema {
    /// These fields, no primary key.
    pub fn new(fields: impl IntoIterator<Item = Field>) -> Self {
        Schema {
            fields: fields.into_iter().collect(),
            primary_key: Vec::new(),
        }
    }

    /// With these fields as primary key, in key order.
    pub fn with_primary_key(mut self, key: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.primary_key = key.into_iter().map(Into::into).collect();
        self
    }

    /// The position of the field of this name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// The positions of the columns that a request asks for, in its order; all for a request that names none.
    ///
    /// # Errors
    /// `not_found` for a name that is no field.
    pub fn select(&self, columns: Option<&[String]>) -> Result<Vec<usize>, Error> {
        let Some(columns) = columns else {
            return Ok((0..self.fields.len()).collect());
        };
        let find = |name: &String| {
            self.index_of(name)
                .ok_or_else(|| Error::not_found(format!("there is no column `{name}`")))
        };
        columns.iter().map(find).collect()
    }

    /// The schema of these columns alone. The primary key is kept where all of it is among them.
    ///
    /// # Panics
    /// Where a position is not less than the number of fields.
    pub fn project(&self, columns: &[usize]) -> Schema {
        let fields: Vec<Field> = columns.iter().map(|&at| self.fields[at].clone()).collect();
        let kept = |name: &String| fields.iter().any(|field| field.name == *name);
        let primary_key = if self.primary_key.iter().all(kept) {
            self.primary_key.clone()
        } else {
            Vec::new()
        };
        Schema { fields, primary_key }
    }
}

impl StreamName {
    /// A name within a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        StreamName {
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    /// A name without a namespace.
    pub fn bare(name: impl Into<String>) -> Self {
        StreamName {
            namespace: None,
            name: name.into(),
        }
    }
}

impl fmt::Display for StreamName {
    /// The qualified name, `namespace.name`. A part that holds a dot or a double quote stands in double quotes, as in
    /// the pipeline file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |f: &mut fmt::Formatter<'_>, part: &str| {
            if part.contains(['.', '"']) {
                write!(f, "\"{}\"", part.replace('"', "\"\""))
            } else {
                f.write_str(part)
            }
        };
        if let Some(namespace) = &self.namespace {
            part(f, namespace)?;
            f.write_str(".")?;
        }
        part(f, &self.name)
    }
}

impl StreamInfo {
    /// A stream that cannot be resumed and has no cursors; `kind` is a word for people: "table", "file".
    pub fn new(name: StreamName, kind: impl Into<String>, schema: Schema) -> Self {
        StreamInfo {
            name,
            kind: kind.into(),
            schema,
            estimated_rows: None,
            cursors: Vec::new(),
            resumable: false,
        }
    }
}

impl DataType {
    /// `decimal(precision, scale)`.
    pub fn decimal(precision: u8, scale: u8) -> Self {
        DataType::Decimal(DecimalType { precision, scale })
    }

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
    /// As in manifests and configurations: `int64`, `decimal(12,2)`, `timestamp_tz`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DataType::Decimal(decimal) => write!(f, "decimal({},{})", decimal.precision, decimal.scale),
            simple => {
                let word = Self::WORDS.iter().find(|(word, _)| word == simple);
                f.write_str(word.map_or("", |(_, word)| word))
            }
        }
    }
}

impl FromStr for DataType {
    type Err = Error;

    /// Reads what `Display` writes.
    fn from_str(text: &str) -> Result<Self, Error> {
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
            Some(DataType::decimal(precision, scale))
        };
        decimal().ok_or_else(|| {
            Error::config(format!(
                "`{text}` is not a data type; known are boolean, int16, int32, int64, float32, float64, \
                 decimal(p,s) with 1 ≤ p ≤ 38 and s ≤ p, numeric, text, bytes, uuid, json, date, time, timestamp \
                 and timestamp_tz"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_data_type_reads_back_from_its_text() {
        let decimal = DataType::decimal(12, 2);
        for data_type in DataType::WORDS.map(|(word, _)| word).into_iter().chain([decimal]) {
            assert_eq!(data_type.to_string().parse(), Ok(data_type));
        }
        for wrong in [
            "",
            "int8",
            "decimal",
            "decimal(0,0)",
            "decimal(39,1)",
            "decimal(3,4)",
        ] {
            assert!(wrong.parse::<DataType>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_projection_keeps_a_whole_key_only() {
        let schema = Schema::new(["a", "b", "c"].map(|name| Field::new(name, DataType::Text)))
            .with_primary_key(["a", "c"]);
        let columns = ["c".to_owned(), "a".to_owned()];
        let picked = schema.select(Some(&columns)).unwrap();
        assert_eq!(picked, [2, 0]);
        assert_eq!(schema.project(&picked).primary_key, ["a", "c"]);
        assert!(schema.project(&[2]).primary_key.is_empty());
        assert!(schema.select(Some(&["d".to_owned()])).is_err());
    }
}
