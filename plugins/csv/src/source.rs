//! The source: a file or a folder of files.

use std::collections::HashMap;

use setu_sdk::{BatchBuilder, Error, ReadRequest, Result, Source, StreamInfo, StreamName};

use crate::config::SourceConfig;
use crate::cursor::{Survey, Window, is_cursor_type};
use crate::files::{self, CsvFile};
use crate::input::Input;
use crate::position::{Identity, Position};
use crate::reader::CsvReader;
use crate::records::Records;
use crate::schema::{Described, describe, is_row, skip_header};

/// Reads CSV files.
#[derive(Debug)]
pub struct CsvSource {
    config: SourceConfig,
    /// By stream name: inferring types reads the whole file, so it is done once.
    described: HashMap<String, Described>,
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
        for file in files::list(&self.config.path)? {
            Input::open(&file)?;
        }
        Ok(())
    }

    fn discover(&mut self) -> Result<Vec<StreamInfo>> {
        let files = files::list(&self.config.path)?;
        let only = files.len() == 1;
        files.iter().map(|file| self.stream_info(file, only)).collect()
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
        if described.schema.fields.is_empty() {
            return Err(Error::data(format!(
                "{} is empty: it has no columns",
                file.display()
            )));
        }
        let columns = described.schema.select(request.columns.as_deref())?;
        let schema = described.schema.project(&columns);
        let window = window(&request, &described)?;
        let high_water_mark = match &window {
            // The whole window's, also where reading goes on in the middle: so it takes a pass of its own.
            Some(window) => {
                let (mut records, _) = open_at(&file, &described, None)?;
                let survey = survey(&mut records, &file, &described, Some(window), u64::MAX)?;
                window.high_water_mark(&survey)
            }
            None => None,
        };
        let (records, identity) = open_at(&file, &described, request.resume_after.as_deref())?;
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
    fn stream_info(&mut self, file: &CsvFile, only: bool) -> Result<StreamInfo> {
        let described = self.describe(file, only)?;
        let cursors = described
            .schema
            .fields
            .iter()
            .filter(|field| is_cursor_type(field.data_type));
        Ok(StreamInfo {
            estimated_rows: described.estimated_rows,
            cursors: cursors.map(|field| field.name.clone()).collect(),
            resumable: true,
            ..StreamInfo::new(StreamName::bare(&file.stream), "file", described.schema)
        })
    }

    fn describe(&mut self, file: &CsvFile, only: bool) -> Result<Described> {
        if let Some(described) = self.described.get(&file.stream) {
            return Ok(described.clone());
        }
        let described = describe(file, &self.config, only)?;
        self.described.insert(file.stream.clone(), described.clone());
        Ok(described)
    }

    fn find(&mut self, name: &StreamName) -> Result<(CsvFile, Described)> {
        let files = files::list(&self.config.path)?;
        let only = files.len() == 1;
        let is_it = |file: &&CsvFile| name.namespace.is_none() && file.stream == name.name;
        let Some(file) = files.iter().find(is_it) else {
            let known: Vec<&str> = files.iter().map(|file| file.stream.as_str()).collect();
            return Err(Error::not_found(format!(
                "there is no stream `{name}` at {}; its streams are: {}",
                self.config.path,
                known.join(", ")
            )));
        };
        let described = self.describe(file, only)?;
        Ok((file.clone(), described))
    }
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
        let mut records = Records::new(input, &name, &described.dialect, 0, 1)?;
        skip_header(&mut records, &described.dialect)?;
        return Ok((records, identity));
    };
    let position = Position::decode(position)
        .ok_or_else(|| Error::conflict(format!("{name}: the position is not one of this connector's")))?;
    let changed = || {
        Error::conflict(format!(
            "{name} was changed since it was read up to byte {}",
            position.offset
        ))
    };
    if position.file != identity || !input.skip_to(position.offset)? {
        return Err(changed());
    }
    let records = Records::new(input, &name, &described.dialect, position.offset, position.line)?;
    Ok((records, identity))
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
