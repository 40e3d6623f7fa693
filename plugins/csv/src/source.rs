//! The source: a file or a folder of files.

use std::collections::HashMap;

use setu_sdk::{
    BatchBuilder, Error, ErrorKind, ReadRequest, Result, Schema, Source, StreamInfo, StreamName, log,
};

use crate::config::SourceConfig;
use crate::cursor::{Survey, Window, is_cursor_type};
use crate::files::{self, CsvFile};
use crate::input::Input;
use crate::position::{Identity, Position};
use crate::reader::CsvReader;
use crate::records::Records;
use crate::schema::{Described, declared, describe, is_row, skip_header};

/// Reads CSV files.
#[derive(Debug)]
pub struct CsvSource {
    config: SourceConfig,
    /// By stream name: inferring types reads the whole file, so it is done once.
    described: HashMap<String, Result<Described>>,
}

impl Source for CsvSource {
    type Config = SourceConfig;
    type Reader = CsvReader;

    fn open(config: SourceConfig) -> Result<Self> {
        // Finds mistakes that a JSON Schema cannot say.
        config.dialect("any.csv")?;
        Ok(CsvSource {
            config,
            described: HashMap::new(),
        })
    }

    fn check(&mut self) -> Result<()> {
        let files = files::list(&self.config.path)?;
        let only = files.len() == 1;
        for file in &files {
            match Input::open(file) {
                Err(error) if only => return Err(error),
                Err(error) => warn_of(file, &error),
                Ok(_) => {}
            }
        }
        Ok(())
    }

    /// A file that cannot be read is a stream as well, so that a pipeline that moves it fails, rather than forget it.
    fn discover(&mut self) -> Result<Vec<StreamInfo>> {
        let files = files::list(&self.config.path)?;
        let only = files.len() == 1;
        let mut streams = Vec::with_capacity(files.len());
        for file in &files {
            streams.push(match self.describe(file, only) {
                Ok(described) => stream_info(file, "file", described.schema, described.estimated_rows),
                // The config was made for this file, and is what must be changed.
                Err(error) if only && error.kind() == ErrorKind::Config => return Err(error),
                Err(error) => {
                    warn_of(file, &error);
                    stream_info(file, "unreadable file", declared(&self.config), None)
                }
            });
        }
        Ok(streams)
    }

    fn count(&mut self, request: &ReadRequest, limit: u64) -> Result<Option<u64>> {
        let (file, described) = self.find(&request.name)?;
        let window = window(request, &described)?;
        let (mut records, _) = open_at(&file, &described, request.resume_after.as_deref())?;
        let survey = survey(&mut records, &file, &described, window.as_ref(), limit)?;
        Ok(Some(survey.rows.min(limit)))
    }

    fn read(&mut self, request: ReadRequest) -> Result<CsvReader> {
        let (file, described) = self.find(&request.name)?;
        let columns = described.schema.select(request.columns.as_deref())?;
        let schema = described.schema.project(&columns);
        let window = window(&request, &described)?;
        let (records, identity) = open_at(&file, &described, request.resume_after.as_deref())?;
        let high_water_mark = match &window {
            // The whole window's, also where reading goes on in the middle: so it takes a pass of its own, over the
            // file as it was when it was opened for its rows.
            Some(window) => {
                let (input, _) = Input::open_up_to(&file, identity.length())?;
                let mut records = from_start(input, &file, &described)?;
                let survey = survey(&mut records, &file, &described, Some(window), u64::MAX)?;
                window.high_water_mark(&survey)
            }
            None => None,
        };
        Ok(CsvReader {
            file: file.display(),
            identity,
            records,
            width: described.schema.fields.len(),
            dialect: described.dialect,
            builder: BatchBuilder::new(&schema),
            schema,
            columns,
            window,
            high_water_mark,
            scratch: Vec::new(),
        })
    }
}

impl CsvSource {
    fn describe(&mut self, file: &CsvFile, only: bool) -> Result<Described> {
        let (described, config) = (&mut self.described, &self.config);
        let described = described.entry(file.stream.clone());
        described.or_insert_with(|| describe(file, config, only)).clone()
    }

    fn find(&mut self, name: &StreamName) -> Result<(CsvFile, Described)> {
        let files = files::list(&self.config.path)?;
        let only = files.len() == 1;
        let is_it = |file: &&CsvFile| name.namespace.is_none() && file.stream == name.name;
        let Some(file) = files.iter().find(is_it) else {
            let known: Vec<&str> = files.iter().map(|file| file.stream.as_str()).collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            return Err(Error::not_found(format!(
                "there is no stream `{name}` at {}; its streams are: {known}",
                self.config.path
            )));
        };
        let described = self.describe(file, only)?;
        Ok((file.clone(), described))
    }
}

fn stream_info(file: &CsvFile, kind: &str, schema: Schema, estimated_rows: Option<u64>) -> StreamInfo {
    let cursors = schema
        .fields
        .iter()
        .filter(|field| is_cursor_type(field.data_type));
    StreamInfo {
        estimated_rows,
        cursors: cursors.map(|field| field.name.clone()).collect(),
        resumable: true,
        ..StreamInfo::new(StreamName::bare(&file.stream), kind, schema)
    }
}

fn warn_of(file: &CsvFile, error: &Error) {
    log::warn!("stream `{}` cannot be read: {error}", file.stream);
}

fn window(request: &ReadRequest, described: &Described) -> Result<Option<Window>> {
    let window = |cursor| Window::new(cursor, &described.schema);
    request.cursor.as_ref().map(window).transpose()
}

/// Opens a file at its first row, or after a position.
fn open_at(
    file: &CsvFile,
    described: &Described,
    position: Option<&[u8]>,
) -> Result<(Records<Input>, Identity)> {
    let name = file.display();
    let (mut input, identity) = Input::open(file)?;
    let Some(position) = position else {
        return Ok((from_start(input, file, described)?, identity));
    };
    let position = Position::decode(position)
        .ok_or_else(|| Error::conflict(format!("{name}: the position is not one of this connector's")))?;
    let changed = || {
        Error::conflict(format!(
            "{name} was changed since it was read up to byte {}",
            position.offset
        ))
    };
    if position.file != identity {
        return Err(changed());
    }
    let reached = input.skip_to(position.offset);
    if !reached.map_err(|error| Error::from(error).context(&name))? {
        return Err(changed());
    }
    let records = Records::new(input, &name, &described.dialect, position.offset, position.line)?;
    Ok((records, identity))
}

/// The rows of a file, from the first on.
fn from_start(input: Input, file: &CsvFile, described: &Described) -> Result<Records<Input>> {
    let name = file.display();
    let mut records = Records::new(input, &name, &described.dialect, 0, 1)?;
    let columns = described.schema.fields.iter().map(|field| &field.name);
    skip_header(&mut records, &described.dialect, columns, &name)?;
    Ok(records)
}

/// Counts the rows of a window, or of the file, up to a limit.
fn survey(
    records: &mut Records<Input>,
    file: &CsvFile,
    described: &Described,
    window: Option<&Window>,
    limit: u64,
) -> Result<Survey> {
    let (name, columns) = (file.display(), described.schema.fields.len());
    let mut survey = Survey::default();
    while survey.rows < limit
        && let Some(record) = records.next()?
    {
        if !is_row(&record, columns, &name)? {
            continue;
        }
        match window {
            Some(window) => {
                window.admits(&record, &described.dialect, &name, Some(&mut survey))?;
            }
            None => survey.rows += 1,
        }
    }
    Ok(survey)
}

#[cfg(test)]
mod tests;
