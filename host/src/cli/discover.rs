//! `setu discover`: what the source has.

use std::io::Write;

use serde_json::json;

use super::args::DiscoverArguments;
use super::failure::Failure;
use super::logging::Console;
use super::output::Output;
use super::session::Session;
use super::text::{Align, Table, cell, counted};
use crate::connector::Role;
use crate::record::StreamInfo;

/// Lists every stream of the source with its columns, whether the pipeline moves it or not.
pub(super) fn discover(arguments: &DiscoverArguments, console: &Console) -> Result<(), Failure> {
    let session = Session::start(console, arguments.job.policy.as_deref())?;
    let loaded = session.load(&arguments.job, &[Role::Source])?;
    let plugin = loaded.plugin(Role::Source)?;
    let mut source = plugin.open_source(loaded.spec(Role::Source), &session.context(None))?;
    let streams = source.discover()?;
    let mut output = Output::new();
    if arguments.json {
        output.json(&streams.iter().map(stream_json).collect::<Vec<_>>())?;
    } else {
        for (index, stream) in streams.iter().enumerate() {
            let newline = if index == 0 { "" } else { "\n" };
            write!(output, "{newline}{}", described(stream))?;
        }
    }
    output.done()?;
    if streams.is_empty() {
        console.line("the source has no streams");
    }
    Ok(())
}

/// A stream as JSON: stable, for other programs.
fn stream_json(stream: &StreamInfo) -> serde_json::Value {
    json!({
        "stream": stream.name.to_string(),
        "kind": stream.kind,
        "estimatedRows": stream.estimated_rows,
        "primaryKey": stream.schema.primary_key,
        "cursors": stream.cursors,
        "resumable": stream.resumable,
        "schema": stream.schema.fields,
    })
}

/// A stream for people: a line about it, and one for each column.
fn described(stream: &StreamInfo) -> String {
    let mut about = vec![cell(&stream.kind, 40)];
    if let Some(rows) = stream.estimated_rows {
        about.push(format!("about {}", counted(rows, "row")));
    }
    for (what, names) in [("key", &stream.schema.primary_key), ("cursors", &stream.cursors)] {
        if !names.is_empty() {
            about.push(format!("{what}: {}", cell(&names.join(" "), 200)));
        }
    }
    let mut table = Table::new(&[("", Align::Left); 5]);
    for field in &stream.schema.fields {
        table.row(vec![
            // Two spaces and the gap between columns: an indent of four.
            "  ".to_owned(),
            cell(&field.name, 64),
            field.data_type.to_string(),
            cell(field.native_type.as_deref().unwrap_or_default(), 64),
            if field.nullable { "" } else { "not null" }.to_owned(),
        ]);
    }
    let columns = table.to_string();
    // The table's header is empty.
    let columns = columns.split_once('\n').map_or("", |(_, rows)| rows);
    format!(
        "{} ({})\n{columns}",
        cell(&stream.name.to_string(), 200),
        about.join("; ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{DataType, Field, Schema, StreamName};

    fn stream() -> StreamInfo {
        let field = |name: &str, data_type, nullable, native: Option<&str>| Field {
            name: name.into(),
            data_type,
            nullable,
            native_type: native.map(str::to_owned),
        };
        StreamInfo {
            name: StreamName::new("public", "orders"),
            kind: "table".into(),
            schema: Schema {
                fields: vec![
                    field("id", DataType::Int64, false, None),
                    field("tags", DataType::Text, true, Some("text[]")),
                ],
                primary_key: vec!["id".into()],
            },
            estimated_rows: Some(1200),
            cursors: vec!["id".into()],
            resumable: true,
        }
    }

    #[test]
    fn a_stream_is_a_line_and_one_for_each_column() {
        assert_eq!(
            described(&stream()),
            "public.orders (table; about 1,200 rows; key: id; cursors: id)\n\
             \x20   id    int64          not null\n\
             \x20   tags  text   text[]\n"
        );
    }

    #[test]
    fn its_json_is_stable() {
        assert_eq!(
            stream_json(&stream()),
            json!({
                "stream": "public.orders",
                "kind": "table",
                "estimatedRows": 1200,
                "primaryKey": ["id"],
                "cursors": ["id"],
                "resumable": true,
                "schema": [
                    {"name": "id", "type": "int64", "nullable": false},
                    {"name": "tags", "type": "text", "nullable": true, "nativeType": "text[]"},
                ],
            })
        );
    }
}
