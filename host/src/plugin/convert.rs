//! The contract's records as the host's types, and back, checked on the way in.
//!
//! This is the edge at which a version of the contract ends: nothing beyond it knows the generated types, except
//! `batch` for rows.

use super::bindings::exports::setu::connector::{destination, source};
use super::bindings::setu::connector::types;
use super::text::printable;
use crate::connector::{BatchLimit, Capabilities, Error, ErrorKind, LoadRequest, ReadRequest, WriteMode};
use crate::record::{DataType, Field, Schema, StreamInfo, StreamName};

/// More columns, streams, or bytes in a name than any system has.
const MAX_COLUMNS: usize = 10_000;
const MAX_STREAMS: usize = 1_000_000;
const MAX_NAME_BYTES: usize = 1_024;
/// The longest error message that is shown.
const MAX_MESSAGE_BYTES: usize = 8 << 10;

/// A rule of the contract that a guest broke, in words.
pub(super) type Broken = String;

pub(super) fn error(error: types::Error) -> Error {
    use types::ErrorKind as Wit;
    let kind = match error.kind {
        Wit::Config => ErrorKind::Config,
        Wit::Auth => ErrorKind::Auth,
        Wit::Unreachable => ErrorKind::Unreachable,
        Wit::Denied => ErrorKind::Denied,
        Wit::NotFound => ErrorKind::NotFound,
        Wit::Data => ErrorKind::Data,
        Wit::Conflict => ErrorKind::Conflict,
        Wit::Unsupported => ErrorKind::Unsupported,
        Wit::Internal => ErrorKind::Internal,
    };
    let code = error.code.map(|code| printable(&code, 64));
    Error::new(kind, printable(&error.message, MAX_MESSAGE_BYTES))
        .with_code(code)
        .with_retryable(error.retryable)
}

pub(super) fn schema(schema: types::SchemaResult) -> Result<Schema, Broken> {
    if schema.fields.len() > MAX_COLUMNS {
        return Err(format!(
            "a schema of {} columns; at most {MAX_COLUMNS}",
            schema.fields.len()
        ));
    }
    let fields = schema.fields.into_iter().map(field).collect::<Result<_, _>>()?;
    let schema = Schema {
        fields,
        primary_key: schema.primary_key,
    };
    schema.validate().map_err(|error| error.to_string())?;
    Ok(schema)
}

fn field(field: types::FieldResult) -> Result<Field, Broken> {
    name("a field's name", &field.name)?;
    name("a native type", field.native_type.as_deref().unwrap_or_default())?;
    Ok(Field {
        name: field.name,
        data_type: data_type(field.data_type),
        nullable: field.nullable,
        native_type: field.native_type,
    })
}

fn name(what: &str, name: &str) -> Result<(), Broken> {
    match name.len() {
        0..=MAX_NAME_BYTES => Ok(()),
        length => Err(format!("{what} of {length} bytes; at most {MAX_NAME_BYTES}")),
    }
}

fn data_type(data_type: types::DataType) -> DataType {
    use types::DataType as Wit;
    match data_type {
        Wit::Boolean => DataType::Boolean,
        Wit::Int16 => DataType::Int16,
        Wit::Int32 => DataType::Int32,
        Wit::Int64 => DataType::Int64,
        Wit::Float32 => DataType::Float32,
        Wit::Float64 => DataType::Float64,
        Wit::Decimal(types::DecimalType { precision, scale }) => DataType::Decimal { precision, scale },
        Wit::Numeric => DataType::Numeric,
        Wit::Text => DataType::Text,
        Wit::Bytes => DataType::Bytes,
        Wit::Uuid => DataType::Uuid,
        Wit::Json => DataType::Json,
        Wit::Date => DataType::Date,
        Wit::Time => DataType::Time,
        Wit::Timestamp => DataType::Timestamp,
        Wit::TimestampTz => DataType::TimestampTz,
    }
}

fn wit_data_type(data_type: DataType) -> types::DataType {
    use types::DataType as Wit;
    match data_type {
        DataType::Boolean => Wit::Boolean,
        DataType::Int16 => Wit::Int16,
        DataType::Int32 => Wit::Int32,
        DataType::Int64 => Wit::Int64,
        DataType::Float32 => Wit::Float32,
        DataType::Float64 => Wit::Float64,
        DataType::Decimal { precision, scale } => Wit::Decimal(types::DecimalType { precision, scale }),
        DataType::Numeric => Wit::Numeric,
        DataType::Text => Wit::Text,
        DataType::Bytes => Wit::Bytes,
        DataType::Uuid => Wit::Uuid,
        DataType::Json => Wit::Json,
        DataType::Date => Wit::Date,
        DataType::Time => Wit::Time,
        DataType::Timestamp => Wit::Timestamp,
        DataType::TimestampTz => Wit::TimestampTz,
    }
}

/// Every stream that a source has, each name once.
pub(super) fn streams(found: Vec<types::StreamInfoResult>) -> Result<Vec<StreamInfo>, Broken> {
    if found.len() > MAX_STREAMS {
        return Err(format!("{} streams; at most {MAX_STREAMS}", found.len()));
    }
    let mut names = std::collections::HashSet::new();
    let mut streams = Vec::with_capacity(found.len());
    for stream in found {
        let stream = stream_info(stream)?;
        if !names.insert(stream.name.clone()) {
            return Err(format!("two streams are named `{}`", stream.name));
        }
        streams.push(stream);
    }
    Ok(streams)
}

fn stream_info(stream: types::StreamInfoResult) -> Result<StreamInfo, Broken> {
    let types::StreamNameResult { namespace, name: own } = stream.name;
    if own.is_empty() || namespace.as_deref() == Some("") {
        return Err("a stream with an empty name or namespace".to_owned());
    }
    name("a stream's name", &own)?;
    name("a namespace", namespace.as_deref().unwrap_or_default())?;
    name("a stream's kind", &stream.kind)?;
    let stream_name = StreamName { namespace, name: own };
    let within = |rule| format!("stream `{stream_name}`: {rule}");
    let schema = schema(stream.schema).map_err(within)?;
    if let Some(cursor) = stream
        .cursors
        .iter()
        .find(|cursor| schema.index_of(cursor).is_none())
    {
        return Err(within(format!(
            "the cursor `{}` is not a field",
            printable(cursor, MAX_NAME_BYTES)
        )));
    }
    Ok(StreamInfo {
        name: stream_name,
        kind: printable(&stream.kind, MAX_NAME_BYTES),
        schema,
        estimated_rows: stream.estimated_rows,
        cursors: stream.cursors,
        resumable: stream.resumable,
    })
}

/// What is borrowed while a request crosses: lists of lists need their outer level built.
pub(super) struct ReadRequestParam<'a> {
    request: &'a ReadRequest,
    columns: Option<Vec<&'a str>>,
}

impl<'a> ReadRequestParam<'a> {
    pub(super) fn new(request: &'a ReadRequest) -> Self {
        let columns = request.columns.as_deref().map(texts);
        ReadRequestParam { request, columns }
    }

    pub(super) fn get(&self) -> source::ReadRequest<'_> {
        let request = self.request;
        source::ReadRequest {
            name: stream_name(&request.name),
            columns: self.columns.as_deref(),
            cursor: request.cursor.as_ref().map(|window| source::CursorWindow {
                field: &window.field,
                since: window.since.as_deref(),
                since_inclusive: window.since_inclusive,
            }),
            range: request.range.as_deref(),
            resume_after: request.resume_after.as_deref(),
        }
    }
}

/// The same for a load.
pub(super) struct LoadRequestParam<'a> {
    load: &'a LoadRequest,
    fields: Vec<types::FieldParam<'a>>,
    primary_key: Vec<&'a str>,
    cursors: Vec<&'a str>,
}

impl<'a> LoadRequestParam<'a> {
    pub(super) fn new(load: &'a LoadRequest) -> Self {
        let schema = &load.target.schema;
        let field = |field: &'a Field| types::FieldParam {
            name: &field.name,
            data_type: wit_data_type(field.data_type),
            nullable: field.nullable,
            native_type: field.native_type.as_deref(),
        };
        LoadRequestParam {
            load,
            fields: schema.fields.iter().map(field).collect(),
            primary_key: texts(&schema.primary_key),
            cursors: texts(&load.target.cursors),
        }
    }

    pub(super) fn get(&self) -> destination::LoadRequest<'_> {
        let target = &self.load.target;
        destination::LoadRequest {
            load_id: &self.load.load_id,
            attempt: self.load.attempt,
            target: types::StreamInfoParam {
                name: stream_name(&target.name),
                kind: &target.kind,
                schema: types::SchemaParam {
                    fields: &self.fields,
                    primary_key: &self.primary_key,
                },
                estimated_rows: target.estimated_rows,
                cursors: &self.cursors,
                resumable: target.resumable,
            },
            mode: match self.load.mode {
                WriteMode::Append => destination::WriteMode::Append,
                WriteMode::Overwrite => destination::WriteMode::Overwrite,
                WriteMode::Upsert => destination::WriteMode::Upsert,
            },
        }
    }
}

fn texts(list: &[String]) -> Vec<&str> {
    list.iter().map(String::as_str).collect()
}

fn stream_name(name: &StreamName) -> types::StreamNameParam<'_> {
    types::StreamNameParam {
        namespace: name.namespace.as_deref(),
        name: &name.name,
    }
}

pub(super) fn batch_limit(limit: BatchLimit) -> source::BatchLimit {
    source::BatchLimit {
        rows: limit.rows,
        bytes: limit.bytes,
    }
}

pub(super) fn capabilities(capabilities: destination::Capabilities) -> Result<Capabilities, Broken> {
    let mut write_modes = Vec::new();
    for mode in capabilities.write_modes {
        let mode = match mode {
            destination::WriteMode::Append => WriteMode::Append,
            destination::WriteMode::Overwrite => WriteMode::Overwrite,
            destination::WriteMode::Upsert => WriteMode::Upsert,
        };
        if write_modes.contains(&mode) {
            return Err(format!("the write mode `{mode}` is listed twice"));
        }
        write_modes.push(mode);
    }
    if write_modes.is_empty() {
        return Err("no write mode at all".to_owned());
    }
    Ok(Capabilities {
        write_modes,
        transactional: capabilities.transactional,
    })
}
