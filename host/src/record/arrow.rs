//! Logical types in Arrow's.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{SchemaRef, TimeUnit};

use super::{DataType, Field, Schema};

impl DataType {
    /// The Arrow type that values of this type have in a batch.
    pub fn to_arrow(self) -> arrow_schema::DataType {
        use arrow_schema::DataType as Arrow;
        match self {
            DataType::Boolean => Arrow::Boolean,
            DataType::Int16 => Arrow::Int16,
            DataType::Int32 => Arrow::Int32,
            DataType::Int64 => Arrow::Int64,
            DataType::Float32 => Arrow::Float32,
            DataType::Float64 => Arrow::Float64,
            DataType::Decimal { precision, scale } => Arrow::Decimal128(precision, scale as i8),
            DataType::Numeric | DataType::Text | DataType::Json => Arrow::Utf8,
            DataType::Bytes => Arrow::Binary,
            DataType::Uuid => Arrow::FixedSizeBinary(16),
            DataType::Date => Arrow::Date32,
            DataType::Time => Arrow::Time64(TimeUnit::Microsecond),
            DataType::Timestamp => Arrow::Timestamp(TimeUnit::Microsecond, None),
            DataType::TimestampTz => Arrow::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        }
    }

    /// The Arrow extension type that tells apart the logical types that share an Arrow type.
    fn extension_name(self) -> Option<&'static str> {
        match self {
            DataType::Numeric => Some("setu.numeric"),
            DataType::Uuid => Some("arrow.uuid"),
            DataType::Json => Some("arrow.json"),
            _ => None,
        }
    }
}

impl Field {
    /// The Arrow field: name, type, nullability, and the extension type where there is one.
    pub fn to_arrow(&self) -> arrow_schema::Field {
        let mut metadata = HashMap::new();
        if let Some(extension) = self.data_type.extension_name() {
            metadata.insert(EXTENSION_TYPE_NAME_KEY.to_owned(), extension.to_owned());
            metadata.insert(EXTENSION_TYPE_METADATA_KEY.to_owned(), String::new());
        }
        arrow_schema::Field::new(&self.name, self.data_type.to_arrow(), self.nullable).with_metadata(metadata)
    }
}

impl Schema {
    /// The Arrow schema of this stream's batches.
    pub fn to_arrow(&self) -> SchemaRef {
        Arc::new(arrow_schema::Schema::new(
            self.fields.iter().map(Field::to_arrow).collect::<Vec<_>>(),
        ))
    }
}
