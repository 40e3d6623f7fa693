//! The destination: one file a stream, which appears whole or not at all.
//!
//! Rows go into a hidden file beside the target, which takes the target's name at `finish`. A commit syncs it and
//! records its length (see [`crate::progress`]); a later attempt copies the rows up to there into a file of its own, so
//! that an earlier one that still runs cannot write into it.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use setu_sdk::{
    Batch, Capabilities, Destination, Error, LoadRequest, Result, Schema, Summary, WriteMode, Writer,
};

use crate::config::DestinationConfig;
use crate::dialect::Dialect;
use crate::encode::Encoder;
use crate::progress::{Base, Paths, Plan, Progress, Stage, at, plan};
use crate::records::Records;
use crate::schema::counted;

/// Rows gather until there is this much.
const BUFFER_BYTES: usize = 256 << 10;

/// Writes CSV files.
#[derive(Debug)]
pub struct CsvDestination {
    folder: String,
    dialect: Dialect,
}

impl Destination for CsvDestination {
    type Config = DestinationConfig;
    type Writer = CsvWriter;

    fn open(config: DestinationConfig) -> Result<Self> {
        Ok(CsvDestination {
            dialect: config.dialect()?,
            folder: config.path,
        })
    }

    fn check(&mut self) -> Result<()> {
        // The first load creates what is missing.
        self.folder_exists().map(drop)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write_modes: vec![WriteMode::Append, WriteMode::Overwrite],
            transactional: true,
        }
    }

    fn begin(&mut self, load: LoadRequest) -> Result<CsvWriter> {
        if load.mode == WriteMode::Upsert {
            return Err(Error::unsupported(
                "a CSV file has no keys to upsert by; use `append` or `overwrite`",
            ));
        }
        if load.target.schema.fields.is_empty() {
            return Err(Error::unsupported(format!(
                "{} has no columns, which a CSV file cannot hold",
                load.target.name
            )));
        }
        let paths = Paths::new(&self.folder, &load.target.name)?;
        if !self.folder_exists()? {
            fs::create_dir_all(&self.folder).map_err(|error| at(Path::new(&self.folder), error))?;
        }
        let recorded = paths.load()?;
        let unfinished = recorded.as_ref().and_then(|progress| {
            let path = paths.unfinished(&progress.load_id, progress.attempt);
            Some(fs::metadata(path).ok()?.len())
        });
        match plan(recorded, &load.load_id, load.attempt, unfinished)? {
            Plan::Start => CsvWriter::start(paths, &load, &self.dialect),
            Plan::Resume(from) => CsvWriter::resume(paths, &load, &self.dialect, from),
            Plan::Finished(progress) => CsvWriter::finished(paths, &load, &self.dialect, progress),
        }
    }
}

impl CsvDestination {
    /// Whether the folder is there.
    ///
    /// # Errors
    /// `config` where something else is.
    fn folder_exists(&self) -> Result<bool> {
        match fs::metadata(&self.folder) {
            Ok(metadata) if metadata.is_dir() => Ok(true),
            Ok(_) => Err(Error::config(format!(
                "{} is a file; `path` must be a folder",
                self.folder
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(at(Path::new(&self.folder), error)),
        }
    }
}

/// A load under way.
#[derive(Debug)]
pub struct CsvWriter {
    paths: Paths,
    /// None when the load is finished.
    file: Option<File>,
    encoder: Encoder,
    buffer: Vec<u8>,
    /// What is recorded.
    progress: Progress,
    /// What has been written since: the file's length and the load's rows.
    bytes: u64,
    rows: u64,
}

impl CsvWriter {
    /// Starts the load over, with what an append keeps and the header.
    fn start(paths: Paths, load: &LoadRequest, dialect: &Dialect) -> Result<Self> {
        let schema = &load.target.schema;
        let existing = match load.mode {
            WriteMode::Append => existing(&paths.target(), schema, dialect)?,
            _ => None,
        };
        let base = existing.as_ref().map(|existing| existing.base);
        let path = paths.unfinished(&load.load_id, load.attempt);
        let file = File::create(&path).map_err(|error| at(&path, error))?;
        let progress = Progress {
            stream: load.target.name.to_string(),
            load_id: load.load_id.clone(),
            attempt: load.attempt,
            mark: 0,
            bytes: 0,
            rows: 0,
            base: (load.mode == WriteMode::Append).then_some(base.unwrap_or_default()),
            stage: Stage::Loading,
        };
        let mut writer = Self::new(paths, load, dialect, Some(file), progress);
        if let Some(base) = base {
            writer.copy(&writer.paths.target(), base.length)?;
        }
        match existing {
            Some(Existing {
                base,
                has_records: true,
            }) => writer.end_line(base.length)?,
            _ if dialect.header => writer.encoder.header(schema, &mut writer.buffer),
            _ => {}
        }
        writer.record(0)?;
        writer.paths.remove_others(&path)?;
        Ok(writer)
    }

    /// Goes on behind what an earlier attempt committed.
    fn resume(paths: Paths, load: &LoadRequest, dialect: &Dialect, from: Progress) -> Result<Self> {
        let path = paths.unfinished(&load.load_id, load.attempt);
        let old = paths.unfinished(&from.load_id, from.attempt);
        let mark = from.mark;
        let progress = Progress {
            attempt: load.attempt,
            stage: Stage::Loading,
            ..from
        };
        let length = progress.bytes;
        let reopen = || {
            if path != old {
                return File::create(&path);
            }
            let mut file = File::options().write(true).open(&path)?;
            file.set_len(length)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = reopen().map_err(|error| at(&path, error))?;
        let mut writer = Self::new(paths, load, dialect, Some(file), progress);
        writer.rows = writer.progress.rows;
        if path == old {
            writer.bytes = length;
        } else {
            writer.copy(&old, length)?;
        }
        writer.record(mark)?;
        writer.paths.remove_others(&path)?;
        Ok(writer)
    }

    /// A load that needs nothing more.
    fn finished(paths: Paths, load: &LoadRequest, dialect: &Dialect, progress: Progress) -> Result<Self> {
        let progress = Progress {
            attempt: load.attempt,
            stage: Stage::Finished,
            ..progress
        };
        paths.store(&progress)?;
        let mut writer = Self::new(paths, load, dialect, None, progress);
        writer.rows = writer.progress.rows;
        Ok(writer)
    }

    fn new(
        paths: Paths,
        load: &LoadRequest,
        dialect: &Dialect,
        file: Option<File>,
        progress: Progress,
    ) -> Self {
        CsvWriter {
            paths,
            file,
            encoder: Encoder::new(dialect.clone(), &load.target.schema),
            buffer: Vec::new(),
            progress,
            bytes: 0,
            rows: 0,
        }
    }

    fn file(&mut self) -> Result<&mut File> {
        self.file
            .as_mut()
            .ok_or_else(|| Error::conflict("this load is finished; nothing can be added to it"))
    }

    /// Copies the first `length` bytes of another file.
    fn copy(&mut self, from: &Path, length: u64) -> Result<()> {
        let source = File::open(from).map_err(|error| at(from, error))?;
        let copied = io::copy(&mut source.take(length), self.file()?).map_err(|error| at(from, error))?;
        if copied < length {
            return Err(Error::conflict(format!(
                "{} became shorter while it was copied",
                from.display()
            )));
        }
        self.bytes += copied;
        Ok(())
    }

    /// Ends the last line of what was copied, if it has no end.
    fn end_line(&mut self, length: u64) -> Result<()> {
        let target = self.paths.target();
        let last = || {
            let Some(before) = length.checked_sub(1) else {
                return Ok(b'\n');
            };
            let mut file = File::open(&target)?;
            let mut last = [0];
            file.seek(SeekFrom::Start(before))?;
            file.read_exact(&mut last)?;
            Ok(last[0])
        };
        if last().map_err(|error| at(&target, error))? != b'\n' {
            self.buffer.push(b'\n');
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut self.buffer);
        let written = self.file()?.write_all(&buffer);
        written.map_err(|error| Error::from(error).context(self.paths.target().display()))?;
        self.bytes += buffer.len() as u64;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    /// Makes everything durable and records it under a mark.
    fn record(&mut self, mark: u64) -> Result<()> {
        self.flush()?;
        let synced = self.file()?.sync_all();
        synced.map_err(|error| at(&self.paths.target(), error))?;
        self.progress.mark = mark;
        self.progress.bytes = self.bytes;
        self.progress.rows = self.rows;
        self.paths.store(&self.progress)
    }

    /// Makes sure that an append does not undo what others did to the file meanwhile.
    fn check_base(&self) -> Result<()> {
        let Some(base) = self.progress.base else {
            return Ok(());
        };
        let target = self.paths.target();
        let found = match fs::metadata(&target) {
            Ok(metadata) => Base::new(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Base::default(),
            Err(error) => return Err(at(&target, error)),
        };
        if found == base {
            return Ok(());
        }
        // An earlier attempt may have published the very same rows a moment ago.
        let unfinished = self
            .paths
            .unfinished(&self.progress.load_id, self.progress.attempt);
        if found.length == self.progress.bytes
            && same_bytes(&unfinished, &target).map_err(|error| at(&target, error))?
        {
            return Ok(());
        }
        Err(Error::conflict(format!(
            "{} was changed by someone else while rows were appended to it; run the load again under a new run",
            target.display()
        )))
    }

    fn publish(&mut self) -> Result<()> {
        self.paths.fence(&self.progress)?;
        let tried_before = self.progress.stage == Stage::Publishing;
        self.progress.stage = Stage::Publishing;
        self.record(self.progress.mark)?;
        self.check_base()?;
        let unfinished = self
            .paths
            .unfinished(&self.progress.load_id, self.progress.attempt);
        let target = self.paths.target();
        match fs::rename(&unfinished, &target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A later attempt has removed it, or the call before this one got as far as this.
                self.paths.fence(&self.progress)?;
                if !tried_before {
                    return Err(at(&unfinished, error));
                }
            }
            result => result.map_err(|error| at(&target, error))?,
        }
        self.file = None;
        self.paths.sync_folder()?;
        self.progress.stage = Stage::Finished;
        self.paths.store(&self.progress)
    }
}

impl Writer for CsvWriter {
    fn committed(&self) -> u64 {
        self.progress.mark
    }

    fn write(&mut self, batch: Batch) -> Result<()> {
        self.file()?;
        self.encoder.rows(&batch, &mut self.buffer);
        self.rows += u64::from(batch.rows);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn commit(&mut self, mark: u64) -> Result<()> {
        self.paths.fence(&self.progress)?;
        self.record(mark)
    }

    fn finish(&mut self) -> Result<Summary> {
        if self.progress.stage != Stage::Finished {
            self.publish()?;
        }
        Ok(Summary {
            rows_written: self.progress.rows,
        })
    }
}

/// Whether two files hold the same.
fn same_bytes(a: &Path, b: &Path) -> io::Result<bool> {
    let open = |path| Ok::<_, io::Error>(BufReader::with_capacity(64 << 10, File::open(path)?));
    let (mut a, mut b) = (open(a)?, open(b)?);
    loop {
        let (x, y) = (a.fill_buf()?, b.fill_buf()?);
        let n = x.len().min(y.len());
        if n == 0 || x[..n] != y[..n] {
            return Ok(x.is_empty() && y.is_empty());
        }
        a.consume(n);
        b.consume(n);
    }
}

/// The file that an append goes on with.
struct Existing {
    base: Base,
    /// There is a header, or a row.
    has_records: bool,
}

/// Looks at the file that an append goes on with, whose columns must be the stream's.
fn existing(target: &Path, schema: &Schema, dialect: &Dialect) -> Result<Option<Existing>> {
    let file = match File::open(target) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(at(target, error)),
    };
    let base = Base::new(&file.metadata().map_err(|error| at(target, error))?);
    let name = target.display().to_string();
    let mut records = Records::new(file, &name, dialect, 0, 1)?;
    let Some(first) = records.next()? else {
        let has_records = false;
        return Ok(Some(Existing { base, has_records }));
    };
    let found = first.values(dialect.quote);
    let own = schema.fields.iter().map(|field| field.name.as_str());
    if dialect.header && !own.clone().eq(found.iter().map(String::as_str)) {
        let own: Vec<&str> = own.collect();
        return Err(Error::data(format!(
            "{name} has the columns {}, the stream has {}: rows cannot be appended",
            found.join(", "),
            own.join(", ")
        )));
    }
    if found.len() != schema.fields.len() {
        let (theirs, ours) = (counted(found.len(), "column"), schema.fields.len());
        return Err(Error::data(format!(
            "{name} has {theirs}, the stream has {ours}: rows cannot be appended"
        )));
    }
    let has_records = true;
    Ok(Some(Existing { base, has_records }))
}

#[cfg(test)]
mod tests;
