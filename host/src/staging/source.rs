//! The blob source: a source of one staged stream, one batch a part.
//!
//! While one part is loaded, a thread reads, checks and decodes the next: at most two parts are in memory. A part that
//! is missing, cut short, damaged or not what the manifest says is an error that names it.

use std::collections::HashMap;
use std::io::{self, BufReader, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use flate2::bufread::MultiGzDecoder;

use super::{Manifest, ManifestStatus, Part, RunLayout, codec, read_manifest};
use crate::blob::{Blob, BlobError, Key};
use crate::connector::{BatchLimit, Chunk, Error, ErrorKind, Position, ReadRequest, Reader, Result, Source};
use crate::record::{Schema, StreamInfo, StreamName};

/// How much of an object is read at once.
const READ_BYTES: usize = 64 << 10;

/// A source of one staged stream.
///
/// A position is the number of parts that were returned, as eight bytes, most significant first; so is a load's
/// mark. A batch is always a whole part, whatever the limit asked for: a load commits part by part.
pub struct BlobSource {
    blob: Arc<dyn Blob>,
    stream: StreamName,
    manifest: Arc<Manifest>,
}

impl BlobSource {
    /// Fails with `NotFound` where the stream has no manifest and with `Conflict` where it is still extracting.
    pub fn open(blob: Arc<dyn Blob>, layout: RunLayout, stream: StreamName) -> Result<Box<dyn Source>> {
        let Some(manifest) = read_manifest(blob.as_ref(), &layout, &stream)? else {
            let message = format!(
                "{stream} is not staged in run {} ({} has no `{}`): extract it first, or wait for it with `--wait`",
                layout.run(),
                blob.describe(),
                layout.manifest(&stream)
            );
            return Err(Error::new(ErrorKind::NotFound, message).with_retryable(true));
        };
        if manifest.status != ManifestStatus::Complete {
            let message = format!(
                "{stream} is still extracting in run {}: load it when that is complete, or with `--wait`",
                layout.run()
            );
            return Err(Error::new(ErrorKind::Conflict, message).with_retryable(true));
        }
        Ok(Box::new(BlobSource {
            blob,
            stream,
            manifest: Arc::new(manifest),
        }))
    }

    /// The index of the first part that a request wants.
    fn first_part(&self, request: &ReadRequest) -> Result<usize> {
        let unsupported = |what: &str| {
            let message = format!("a staged stream is read whole: it has no {what}");
            Error::new(ErrorKind::Unsupported, message)
        };
        if request.name != self.stream {
            let message = format!("this source holds {}, not {}", self.stream, request.name);
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        if request.cursor.is_some() {
            return Err(unsupported("cursor window"));
        }
        if request.range.is_some() {
            return Err(unsupported("ranges"));
        }
        let parts = self.manifest.parts.len();
        let Some(position) = &request.resume_after else {
            return Ok(0);
        };
        let count = <[u8; 8]>::try_from(position.as_slice()).map(u64::from_be_bytes);
        match count.map(usize::try_from) {
            Ok(Ok(count)) if count <= parts => Ok(count),
            _ => Err(Error::new(
                ErrorKind::Conflict,
                format!(
                    "cannot resume {}, which has {parts} staged parts, after position {position:?}",
                    self.stream
                ),
            )),
        }
    }
}

/// The position after so many parts.
fn position(parts: usize) -> Position {
    (parts as u64).to_be_bytes().to_vec()
}

impl Source for BlobSource {
    /// Whether every part that the manifest names is there and has its size: what is missing is then found before the
    /// first row is moved.
    fn check(&mut self) -> Result<()> {
        let Some(first) = self.manifest.parts.first() else {
            return Ok(());
        };
        let folder = first.key.rfind('/').map_or("", |end| &first.key[..=end]);
        let sizes: HashMap<String, u64> = self
            .blob
            .list(folder)?
            .into_iter()
            .map(|object| (object.key.to_string(), object.size))
            .collect();
        for part in &self.manifest.parts {
            match sizes.get(&part.key) {
                None => return Err(missing(&self.stream, part, &self.blob.describe())),
                Some(&size) if size != part.bytes => return Err(wrong_size(&self.stream, part, size)),
                Some(_) => {}
            }
        }
        Ok(())
    }

    fn discover(&mut self) -> Result<Vec<StreamInfo>> {
        Ok(vec![self.manifest.info()])
    }

    fn count(&mut self, request: &ReadRequest, limit: u64) -> Result<Option<u64>> {
        let first = self.first_part(request)?;
        let rows: u64 = self.manifest.parts.iter().skip(first).map(|part| part.rows).sum();
        Ok(Some(rows.min(limit)))
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Box<dyn Reader + '_>> {
        let first = self.first_part(request)?;
        let projection = request
            .columns
            .as_deref()
            .map(|columns| project(&self.manifest.schema, columns, &self.stream))
            .transpose()?;
        let (schema, indices) = match projection {
            Some((schema, indices)) => (schema, Some(indices)),
            None => (self.manifest.schema.clone(), None),
        };
        let (blob, stream, manifest) = (
            Arc::clone(&self.blob),
            self.stream.clone(),
            Arc::clone(&self.manifest),
        );
        // No buffer: one decoded part waits in the thread's hands while the one before is loaded.
        let (sender, parts) = sync_channel(0);
        let thread = std::thread::Builder::new()
            .name("setu-prefetch".into())
            .spawn(move || {
                for (index, part) in manifest.parts.iter().enumerate().skip(first) {
                    let batch = read_part(blob.as_ref(), &stream, &manifest.schema, part);
                    let batch = batch.and_then(|batch| match &indices {
                        Some(indices) => batch
                            .project(indices)
                            .map_err(|e| damaged(&stream, part, &e.to_string())),
                        None => Ok(batch),
                    });
                    let failed = batch.is_err();
                    let chunk = batch.map(|batch| Chunk {
                        batch,
                        position: Some(position(index + 1)),
                    });
                    if sender.send(chunk).is_err() || failed {
                        return;
                    }
                }
            })
            .map_err(|e| Error::new(ErrorKind::Internal, format!("cannot start a thread: {e}")))?;
        Ok(Box::new(StagedReader {
            schema,
            high_water_mark: self.manifest.cursor(),
            parts: Some(parts),
            thread: Some(thread),
        }))
    }
}

/// The schema of some columns, and where they are. The primary key stays if all of it does.
fn project(schema: &Schema, columns: &[String], stream: &StreamName) -> Result<(Schema, Vec<usize>)> {
    let find = |name: &String| {
        schema.index_of(name).ok_or_else(|| {
            let message = format!("{stream} has no column `{name}`");
            Error::new(ErrorKind::NotFound, message)
        })
    };
    let indices = columns.iter().map(find).collect::<Result<Vec<_>>>()?;
    let fields = indices
        .iter()
        .filter_map(|index| schema.fields.get(*index).cloned())
        .collect();
    let keeps_key = schema.primary_key.iter().all(|key| columns.contains(key));
    let primary_key = if keeps_key {
        schema.primary_key.clone()
    } else {
        Vec::new()
    };
    Ok((Schema { fields, primary_key }, indices))
}

struct StagedReader {
    schema: Schema,
    high_water_mark: Option<String>,
    /// None only in `drop`.
    parts: Option<Receiver<Result<Chunk>>>,
    thread: Option<JoinHandle<()>>,
}

impl Reader for StagedReader {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    /// A whole part, whatever the limit.
    fn next(&mut self, _limit: BatchLimit) -> Result<Option<Chunk>> {
        if let Some(Ok(chunk)) = self.parts.as_ref().map(Receiver::recv) {
            return chunk.map(Some);
        }
        // The thread is done; a panic is not an end.
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(Error::new(
                ErrorKind::Internal,
                "the thread that reads staged parts panicked",
            )),
            _ => Ok(None),
        }
    }

    fn high_water_mark(&mut self) -> Result<Option<String>> {
        Ok(self.high_water_mark.clone())
    }
}

impl Drop for StagedReader {
    fn drop(&mut self) {
        // The thread, if it waits to hand a part over, then learns that nobody takes it.
        self.parts = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads one part and checks it against the manifest.
fn read_part(blob: &dyn Blob, stream: &StreamName, schema: &Schema, part: &Part) -> Result<RecordBatch> {
    let key = Key::new(&*part.key)?;
    let object = match blob.get(&key) {
        Ok(object) => object,
        Err(BlobError::NotFound { store, .. }) => {
            return Err(missing(stream, part, &store));
        }
        Err(e) => return Err(e.into()),
    };
    let mut object = Observed {
        object,
        bytes: 0,
        failure: None,
    };
    let lines = MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, &mut object));
    let batch = codec::decode(schema, lines, part.rows);
    if let Some(failure) = object.failure {
        let message = format!("cannot read `{key}` in {}: {failure}", blob.describe());
        return Err(Error::new(ErrorKind::Blob, message).with_retryable(true));
    }
    let batch = batch.map_err(|e| damaged(stream, part, &e.to_string()))?;
    if object.bytes != part.bytes {
        return Err(wrong_size(stream, part, object.bytes));
    }
    if batch.num_rows() as u64 != part.rows {
        let reason = format!(
            "it has {} rows, but the manifest says {}",
            batch.num_rows(),
            part.rows
        );
        return Err(damaged(stream, part, &reason));
    }
    Ok(batch)
}

fn missing(stream: &StreamName, part: &Part, store: &str) -> Error {
    let message = format!(
        "`{}`, which the manifest of {stream} names, is missing in {store}: start a new run",
        part.key
    );
    Error::new(ErrorKind::Staging, message)
}

fn wrong_size(stream: &StreamName, part: &Part, bytes: u64) -> Error {
    let reason = format!("it has {bytes} bytes, but the manifest says {}", part.bytes);
    damaged(stream, part, &reason)
}

fn damaged(stream: &StreamName, part: &Part, reason: &str) -> Error {
    let message = format!("`{}` of {stream} is damaged: {reason}; start a new run", part.key);
    Error::new(ErrorKind::Staging, message)
}

/// An object that is read: how much of it, and whether the store failed, which is not to be taken for damage.
struct Observed {
    object: Box<dyn Read + Send>,
    bytes: u64,
    failure: Option<String>,
}

impl Read for Observed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.object.read(buffer) {
            Ok(read) => {
                self.bytes += read as u64;
                Ok(read)
            }
            Err(e) => {
                if e.kind() != io::ErrorKind::Interrupted {
                    self.failure = Some(e.to_string());
                }
                Err(e)
            }
        }
    }
}
