//! Rows for people and programs, from batches: JSON objects, CSV, cells of a table.
//!
//! Values are written as they are staged; there is no second way to spell a timestamp.

use std::borrow::Cow;
use std::io::Write;

use arrow_array::RecordBatch;
use serde_json::Value;

use super::failure::Failure;
use crate::printable;
use crate::record::Schema;
use crate::staging::codec;

/// The values of a batch's rows, in schema order, in their staged form.
pub(super) fn rows(schema: &Schema, batch: &RecordBatch) -> Result<Vec<Vec<Value>>, Failure> {
    let mut lines = Vec::new();
    let failed = |error: &dyn std::fmt::Display| Failure::failed(format!("a row cannot be shown: {error}"));
    codec::encode(schema, batch, &mut lines).map_err(|error| failed(&error))?;
    serde_json::Deserializer::from_slice(&lines)
        .into_iter()
        .map(|row| row.map_err(|error| failed(&error)))
        .collect()
}

/// Writes a row as a JSON object on a line of its own, its fields in schema order.
pub(super) fn write_object(out: &mut impl Write, schema: &Schema, row: &[Value]) -> Result<(), Failure> {
    for (index, (field, value)) in schema.fields.iter().zip(row).enumerate() {
        let open = if index == 0 { "{" } else { "," };
        let member = format!("{}:{value}", Value::from(field.name.as_str()));
        write!(out, "{open}{}", printable::json(&member))?;
    }
    let close = if row.is_empty() { "{}" } else { "}" };
    Ok(writeln!(out, "{close}")?)
}

/// Who a CSV file is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reader {
    /// Every byte as it is.
    Program,
    /// What would steer the terminal is escaped.
    Person,
}

/// Writes the names of the fields as a line of CSV.
pub(super) fn write_csv_header(out: &mut impl Write, schema: &Schema, reader: Reader) -> Result<(), Failure> {
    let names: Vec<Value> = schema
        .fields
        .iter()
        .map(|field| field.name.as_str().into())
        .collect();
    write_csv(out, &names, reader)
}

/// Writes a row as a line of CSV, quoted as RFC 4180 says. A null is empty, an empty text is `""`.
pub(super) fn write_csv(out: &mut impl Write, row: &[Value], reader: Reader) -> Result<(), Failure> {
    for (index, value) in row.iter().enumerate() {
        if index > 0 {
            out.write_all(b",")?;
        }
        match value {
            Value::Null => {}
            Value::String(text) => {
                let text = match reader {
                    Reader::Program => Cow::from(text),
                    Reader::Person => printable::line(text),
                };
                if text.is_empty() || text.contains([',', '"', '\n', '\r']) {
                    write!(out, "\"{}\"", text.replace('"', "\"\""))?;
                } else {
                    out.write_all(text.as_bytes())?;
                }
            }
            other => write!(out, "{other}")?,
        }
    }
    Ok(out.write_all(b"\n")?)
}

/// A value for a table's cell.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::{DataType, Field};

    fn schema() -> Schema {
        let field = |name: &str| Field {
            name: name.into(),
            data_type: DataType::Text,
            nullable: true,
            native_type: None,
        };
        Schema {
            fields: vec![field("z"), field("a \"b\"")],
            primary_key: Vec::new(),
        }
    }

    fn text(write: impl FnOnce(&mut Vec<u8>) -> Result<(), Failure>) -> String {
        let mut out = Vec::new();
        write(&mut out).expect("written");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn an_object_keeps_the_order_of_the_fields() {
        let row = [json!("x\n"), json!(1.5)];
        let object = text(|out| write_object(out, &schema(), &row));
        assert_eq!(object, "{\"z\":\"x\\n\",\"a \\\"b\\\"\":1.5}\n");
        assert_eq!(text(|out| write_object(out, &Schema::default(), &[])), "{}\n");
    }

    #[test]
    fn csv_tells_null_from_the_empty_text_and_quotes_what_must_be() {
        assert_eq!(
            text(|out| write_csv_header(out, &schema(), Reader::Program)),
            "z,\"a \"\"b\"\"\"\n"
        );
        let row = [
            json!(null),
            json!(""),
            json!("a,b"),
            json!("l\nm"),
            json!(true),
            json!(7),
            json!("x"),
        ];
        assert_eq!(
            text(|out| write_csv(out, &row, Reader::Program)),
            ",\"\",\"a,b\",\"l\nm\",true,7,x\n"
        );
    }

    #[test]
    fn rows_steer_no_terminal() {
        let row = [json!("\u{1b}]0;owned\u{7}\u{9b}2J"), json!("a,\nb")];
        assert_eq!(
            text(|out| write_csv(out, &row, Reader::Person)),
            "\\u{1b}]0;owned\\u{7}\\u{9b}2J,\"a,\\nb\"\n"
        );
        assert_eq!(
            text(|out| write_csv(out, &row, Reader::Program)),
            "\u{1b}]0;owned\u{7}\u{9b}2J,\"a,\nb\"\n"
        );
        let object = text(|out| write_object(out, &schema(), &row));
        assert_eq!(
            object,
            "{\"z\":\"\\u001b]0;owned\\u0007\\u009b2J\",\"a \\\"b\\\"\":\"a,\\nb\"}\n"
        );
    }
}
