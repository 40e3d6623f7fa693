//! One value of a column as JSON and back, for cursors: they look in a manifest just as they do in a part.

use arrow_array::{Array, ArrayRef};
use serde_json::Value;

use super::json::Token;
use super::{CodecError, decode, encode};
use crate::record::Field;

/// One value in its staged form.
pub(in crate::staging) fn write_value(
    field: &Field,
    array: &dyn Array,
    row: usize,
) -> Result<Value, CodecError> {
    let mut json = Vec::new();
    encode::Column::new(field, array)?
        .write(row, &mut json)
        .map_err(|reason| CodecError::new(reason).in_column(&field.name))?;
    serde_json::from_slice(&json).map_err(|e| CodecError::new(e.to_string()).in_column(&field.name))
}

/// An array of the one value that has this staged form.
pub(in crate::staging) fn parse_value(field: &Field, value: &Value) -> Result<ArrayRef, CodecError> {
    let number;
    let token = match value {
        Value::Null => Token::Null,
        Value::Bool(value) => Token::Boolean(*value),
        Value::String(text) => Token::String(text),
        Value::Number(value) => {
            number = value.to_string();
            Token::Number(&number)
        }
        Value::Array(_) | Value::Object(_) => {
            return Err(CodecError::new("a value must not be an array or an object").in_column(&field.name));
        }
    };
    let mut column = decode::Column::new(field, 1);
    column
        .push(token)
        .map_err(|reason| CodecError::new(reason).in_column(&field.name))?;
    column
        .finish()
        .map_err(|e| CodecError::new(e.to_string()).in_column(&field.name))
}
