//! `setu preview`: the first rows of streams, read from the source. Nothing is written anywhere.

use std::io::Write;

use serde_json::Value;

use super::args::PreviewArguments;
use super::failure::Failure;
use super::logging::Console;
use super::output::Output;
use super::rows::{rows, shown, write_object};
use super::session::{Loaded, Session};
use super::text::{Align, Table, cell};
use crate::connector::{BatchLimit, ReadRequest, Role};
use crate::pipeline::{StreamSpec, select};
use crate::record::{DataType, Schema, StreamInfo};

/// The widest column of a table.
const MAX_WIDTH: usize = 40;

/// Shows the first rows of the named streams, or else of all that the pipeline moves.
pub(super) fn preview(arguments: &PreviewArguments, console: &Console) -> Result<(), Failure> {
    let session = Session::start(console, arguments.job.policy.as_deref())?;
    let loaded = session.load(&arguments.job, &[Role::Source])?;
    let plugin = loaded.plugin(Role::Source)?;
    let discovered = plugin
        .open_source(loaded.spec(Role::Source), &session.context(None))?
        .discover()?;
    let streams = wanted(&loaded, &arguments.streams, &discovered)?;
    let mut output = Output::new();
    for (index, stream) in streams.iter().enumerate() {
        let (schema, rows) = first_rows(&session, &loaded, stream, arguments.rows)?;
        if arguments.json {
            for row in &rows {
                write_object(&mut output, &schema, row)?;
            }
        } else {
            let newline = if index == 0 { "" } else { "\n" };
            write!(
                output,
                "{newline}{}\n{}",
                cell(&stream.name.to_string(), 200),
                table(&schema, &rows)
            )?;
        }
        // What was read is shown, also where the next stream fails.
        output.flush()?;
    }
    output.done()
}

/// The streams to show.
fn wanted(loaded: &Loaded, named: &[String], discovered: &[StreamInfo]) -> Result<Vec<StreamInfo>, Failure> {
    let named: Vec<StreamSpec> = named
        .iter()
        .map(|name| StreamSpec {
            name: name.clone(),
            ..StreamSpec::default()
        })
        .collect();
    let entries = if named.is_empty() {
        &loaded.job.streams
    } else {
        &named
    };
    let selected =
        select(entries, discovered).map_err(|error| Failure::from(crate::connector::Error::from(error)))?;
    Ok(selected.into_iter().map(|selected| selected.stream).collect())
}

/// At most this many rows of a stream.
fn first_rows(
    session: &Session,
    loaded: &Loaded,
    stream: &StreamInfo,
    most: u32,
) -> Result<(Schema, Vec<Vec<Value>>), Failure> {
    let context = session.context(Some(stream.name.to_string()));
    let plugin = loaded.plugin(Role::Source)?;
    let mut source = plugin.open_source(loaded.spec(Role::Source), &context)?;
    let mut reader = source.read(&ReadRequest::all(stream.name.clone()))?;
    let schema = reader.schema().clone();
    let mut read = Vec::new();
    while let left @ 1.. = most.saturating_sub(u32::try_from(read.len()).unwrap_or(u32::MAX)) {
        let limit = BatchLimit {
            rows: left,
            ..BatchLimit::default()
        };
        let Some(chunk) = reader.next(limit)? else { break };
        read.extend(rows(&schema, &chunk.batch)?);
    }
    Ok((schema, read))
}

/// Rows in aligned columns, numbers to the right.
fn table(schema: &Schema, rows: &[Vec<Value>]) -> String {
    let names: Vec<String> = schema
        .fields
        .iter()
        .map(|field| cell(&field.name, MAX_WIDTH))
        .collect();
    let columns: Vec<(&str, Align)> = names
        .iter()
        .zip(&schema.fields)
        .map(|(name, field)| {
            (
                name.as_str(),
                if is_number(field.data_type) {
                    Align::Right
                } else {
                    Align::Left
                },
            )
        })
        .collect();
    let mut table = Table::new(&columns);
    for row in rows {
        table.row(row.iter().map(|value| cell(&shown(value), MAX_WIDTH)).collect());
    }
    table.to_string()
}

fn is_number(data_type: DataType) -> bool {
    matches!(
        data_type,
        DataType::Int16
            | DataType::Int32
            | DataType::Int64
            | DataType::Float32
            | DataType::Float64
            | DataType::Decimal { .. }
            | DataType::Numeric
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::record::Field;

    #[test]
    fn numbers_stand_to_the_right_and_wide_values_are_cut() {
        let field = |name: &str, data_type| Field {
            name: name.into(),
            data_type,
            nullable: true,
            native_type: None,
        };
        let schema = Schema {
            fields: vec![field("id", DataType::Int64), field("note", DataType::Text)],
            primary_key: Vec::new(),
        };
        let rows = [
            vec![json!(7), json!("x".repeat(50))],
            vec![json!(1000), json!(null)],
        ];
        let wide = "x".repeat(39);
        assert_eq!(
            table(&schema, &rows),
            format!("  id  note\n   7  {wide}…\n1000  null\n")
        );
    }
}
