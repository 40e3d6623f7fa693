//! The blob sink: a destination that stages one stream.
//!
//! Three threads work behind a writer, joined by queues that hold little, so that reading, encoding and storing
//! overlap while memory stays flat: one encodes, compresses and cuts into parts (`pack`), one stores the parts and
//! one rewrites the manifest (`land`). An error of any of them is returned by the next call of the writer. Dropped
//! before it is finished, a writer discards the open part; parts that were closed still land and are named, so that
//! a resumed extract goes on from there.

mod land;
mod pack;

use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use chrono::{SecondsFormat, Utc};

use self::land::Landing;
use self::pack::Packer;
use super::fence::{Fenced, Owned};
use super::{Fence, Manifest, ManifestStatus, PART_ROWS, Resume, RunLayout, Unfenced, parse_manifest};
use crate::blob::Blob;
use crate::connector::{
    Capabilities, Chunk, Destination, Error, ErrorKind, LoadRequest, LoadSummary, PartBudget, Result,
    WriteMode, Writer,
};
use crate::record::{Schema, StreamInfo, StreamName};

/// How many batches wait to be encoded.
const QUEUED_BATCHES: usize = 2;
/// How many closed parts wait to be stored, besides the one that is being stored.
const QUEUED_PARTS: usize = 1;

/// A destination that stages one stream.
///
/// What a load does with existing rows is not its matter: it accepts every write mode and stages the rows alike.
pub struct BlobSink {
    blob: Arc<dyn Blob>,
    layout: RunLayout,
    stream: StreamName,
    resume: Resume,
    cursor: Option<String>,
    fence: Arc<dyn Fence>,
}

impl BlobSink {
    /// `resume` is what [`resume()`](super::resume()) said, or `Fresh` where the source could not go on from its
    /// position; `cursor` is the cursor field of an incremental stream.
    pub fn new(
        blob: Arc<dyn Blob>,
        layout: RunLayout,
        stream: StreamName,
        resume: Resume,
        cursor: Option<String>,
    ) -> Self {
        BlobSink {
            blob,
            layout,
            stream,
            resume,
            cursor,
            fence: Arc::new(Unfenced),
        }
    }

    /// With a fence that is asked before each write.
    pub fn fenced(mut self, fence: Arc<dyn Fence>) -> Self {
        self.fence = fence;
        self
    }
}

impl Destination for BlobSink {
    fn check(&mut self) -> Result<()> {
        self.blob.list(self.layout.manifest(&self.stream).as_str())?;
        Ok(())
    }

    fn capabilities(&mut self) -> Result<Capabilities> {
        Ok(Capabilities {
            write_modes: vec![WriteMode::Append, WriteMode::Overwrite, WriteMode::Upsert],
            transactional: true,
        })
    }

    fn begin(&mut self, load: &LoadRequest) -> Result<Box<dyn Writer + '_>> {
        let objects = Fenced::new(Arc::clone(&self.blob), Arc::clone(&self.fence))?;
        let (object, json) = objects.own(self.layout.manifest(&self.stream))?;
        let recorded = json
            .map(|json| parse_manifest(&json, &self.layout, &self.stream))
            .transpose()?;
        let mut manifest = start(
            recorded,
            &self.resume,
            &load.target,
            self.cursor.as_deref(),
            &self.stream,
        )?;
        if manifest.status == ManifestStatus::Complete {
            return Ok(Box::new(SinkWriter::complete(self, objects, &manifest)));
        }
        manifest.attempt = load.attempt;
        let mut own = OwnManifest { manifest, object };
        // Written before any part: parts of an attempt that is given up are never named again, a load that looks sees a
        // stream that is still extracting, and an attempt that is overtaken finds the manifest changed.
        own.put(&objects)?;
        Ok(Box::new(SinkWriter::start(self, objects, own)?))
    }
}

/// The manifest that an attempt starts with: what is kept of the recorded one, and what the source says now.
fn start(
    recorded: Option<Manifest>,
    resume: &Resume,
    target: &StreamInfo,
    cursor: Option<&str>,
    stream: &StreamName,
) -> Result<Manifest> {
    let conflict = |what: &str| {
        Error::new(
            ErrorKind::Conflict,
            format!("cannot go on with what is staged of {stream}: {what}; extract it again from the start"),
        )
    };
    let cursor = cursor.map(str::to_owned);
    if let Some(cursor) = &cursor
        && target.schema.index_of(cursor).is_none()
    {
        let message = format!("the cursor field `{cursor}` is not a column of {stream}");
        return Err(Error::new(ErrorKind::Config, message));
    }
    let mut manifest = match (resume, recorded) {
        (Resume::Complete, Some(manifest)) if manifest.status == ManifestStatus::Complete => {
            return Ok(manifest);
        }
        (Resume::Complete, _) => return Err(conflict("it is not complete")),
        (Resume::After { parts, .. }, Some(manifest)) if manifest.parts.len() >= *parts => {
            if manifest.schema.fields != target.schema.fields {
                return Err(conflict("its columns have changed"));
            }
            let mut manifest = manifest;
            manifest.parts.truncate(*parts);
            manifest
        }
        (Resume::After { .. }, _) => return Err(conflict("the parts to keep are not named")),
        (Resume::Fresh, recorded) => fresh(recorded, target, stream),
    };
    manifest.rows_total = manifest.parts.iter().map(|part| part.rows).sum();
    manifest.status = ManifestStatus::Extracting;
    manifest.completed_at = None;
    manifest.high_water_mark = None;
    if cursor.is_some() && cursor != manifest.cursor_field {
        if !manifest.parts.is_empty() {
            // Their bounds are those of another column.
            return Err(conflict("its parts were cut under another cursor field"));
        }
        manifest.cursor_field = cursor;
    }
    Ok(manifest)
}

fn fresh(recorded: Option<Manifest>, target: &StreamInfo, stream: &StreamName) -> Manifest {
    let mut schema = target.schema.clone();
    let mut cursor_field = None;
    if let Some(recorded) = recorded {
        // A key that was recorded stays the stream's key for the whole run, as long as it makes sense.
        let key = Schema {
            fields: schema.fields.clone(),
            primary_key: recorded.schema.primary_key,
        };
        if !key.primary_key.is_empty() && key.validate().is_ok() {
            schema = key;
        }
        cursor_field = recorded
            .cursor_field
            .filter(|field| schema.index_of(field).is_some());
    }
    Manifest {
        stream: stream.clone(),
        stream_type: target.kind.clone(),
        schema,
        status: ManifestStatus::Extracting,
        parts: Vec::new(),
        rows_total: 0,
        cursor_field,
        high_water_mark: None,
        created_at: now(),
        completed_at: None,
        attempt: 1,
    }
}

fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// The manifest and its object, as this attempt wrote it last.
struct OwnManifest {
    manifest: Manifest,
    object: Owned,
}

impl OwnManifest {
    fn put(&mut self, objects: &Fenced) -> Result<()> {
        objects.replace(&mut self.object, &self.manifest.to_json())
    }
}

/// The first error of the threads behind a writer.
#[derive(Default)]
struct Failure(Mutex<Option<Error>>);

impl Failure {
    fn set(&self, error: Error) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(error);
    }

    fn check(&self) -> Result<()> {
        match &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }
}

/// What the packing thread is told.
enum Message {
    Chunk(Chunk),
    /// Close the open part; nothing follows.
    Flush,
}

/// The three threads of a stream under way.
struct Threads {
    packer: JoinHandle<()>,
    landing: Landing,
}

enum State {
    Running {
        queue: SyncSender<Message>,
        threads: Threads,
    },
    /// All parts are stored; the complete manifest may not be.
    Landed(Box<OwnManifest>),
    Finished(LoadSummary),
    Failed(Error),
}

struct SinkWriter {
    objects: Fenced,
    layout: RunLayout,
    stream: StreamName,
    kept_parts: u64,
    budget: Arc<PartBudget>,
    failure: Arc<Failure>,
    /// None only within `finish` and after `drop`.
    state: Option<State>,
}

impl SinkWriter {
    fn new(sink: &BlobSink, objects: Fenced, manifest: &Manifest) -> Self {
        SinkWriter {
            objects,
            layout: sink.layout.clone(),
            stream: sink.stream.clone(),
            kept_parts: manifest.parts.len() as u64,
            budget: Arc::new(PartBudget::new(PART_ROWS)),
            failure: Arc::default(),
            state: None,
        }
    }

    /// Of a stream that has all its rows.
    fn complete(sink: &BlobSink, objects: Fenced, manifest: &Manifest) -> Self {
        let mut writer = Self::new(sink, objects, manifest);
        writer.state = Some(State::Finished(summary(manifest)));
        writer
    }

    fn start(sink: &BlobSink, objects: Fenced, own: OwnManifest) -> Result<Self> {
        let manifest = &own.manifest;
        let mut writer = Self::new(sink, objects, manifest);
        let packer = Packer::new(
            manifest.schema.clone(),
            manifest.cursor_field.as_deref(),
            Arc::clone(&writer.budget),
        );
        let (landing, parts) = Landing::start(
            writer.objects.clone(),
            writer.layout.clone(),
            own,
            Arc::clone(&writer.failure),
        )?;
        let (queue, messages) = sync_channel(QUEUED_BATCHES);
        let failure = Arc::clone(&writer.failure);
        let stream = writer.stream.clone();
        let packer = spawn("setu-pack", move || {
            if let Err(error) = packer.run(&messages, &parts) {
                failure.set(error.at(format!("stream {stream}")));
            }
        })?;
        let threads = Threads { packer, landing };
        writer.state = Some(State::Running { queue, threads });
        Ok(writer)
    }

    /// Waits until everything that was written is stored.
    fn land(&self, queue: &SyncSender<Message>, threads: Threads) -> Result<OwnManifest> {
        // A packer that has failed does not take it; its error is found below.
        let _ = queue.send(Message::Flush);
        let packed = threads.packer.join();
        let manifest = threads.landing.join();
        self.failure.check()?;
        packed.map_err(|_| panicked())?;
        manifest
    }

    fn complete_manifest(&self, own: &mut OwnManifest, high_water_mark: Option<String>) -> Result<()> {
        own.manifest.status = ManifestStatus::Complete;
        own.manifest.high_water_mark = high_water_mark;
        own.manifest.completed_at = Some(now());
        own.put(&self.objects)
    }
}

fn summary(manifest: &Manifest) -> LoadSummary {
    LoadSummary {
        rows_written: manifest.rows_total,
    }
}

fn panicked() -> Error {
    Error::new(ErrorKind::Internal, "a thread of the blob sink panicked")
}

fn spawn<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(work)
        .map_err(|e| Error::new(ErrorKind::Internal, format!("cannot start a thread: {e}")))
}

impl Writer for SinkWriter {
    fn committed(&mut self) -> Result<u64> {
        Ok(self.kept_parts)
    }

    fn write(&mut self, chunk: Chunk) -> Result<()> {
        self.failure.check()?;
        match &self.state {
            Some(State::Running { queue, .. }) => {
                if queue.send(Message::Chunk(chunk)).is_err() {
                    self.failure.check()?;
                    return Err(panicked());
                }
                Ok(())
            }
            Some(State::Failed(error)) => Err(error.clone()),
            _ => Err(Error::new(
                ErrorKind::Conflict,
                format!("all rows of {} are staged already", self.stream),
            )),
        }
    }

    /// Parts become durable as they are closed, so there is nothing to do.
    fn commit(&mut self, _mark: u64) -> Result<()> {
        self.failure.check()
    }

    fn finish(&mut self, high_water_mark: Option<String>) -> Result<LoadSummary> {
        let landed = match self.state.take() {
            Some(State::Running { queue, threads }) => self.land(&queue, threads),
            Some(State::Landed(own)) => Ok(*own),
            Some(State::Finished(summary)) => {
                self.state = Some(State::Finished(summary));
                return Ok(summary);
            }
            Some(State::Failed(error)) => Err(error),
            None => Err(panicked()),
        };
        let mut own = match landed {
            Ok(own) => own,
            Err(error) => {
                self.state = Some(State::Failed(error.clone()));
                return Err(error);
            }
        };
        let completed = self.complete_manifest(&mut own, high_water_mark);
        let summary = summary(&own.manifest);
        self.state = Some(match completed {
            Ok(()) => State::Finished(summary),
            Err(_) => State::Landed(Box::new(own)),
        });
        completed.map(|()| summary)
    }

    fn part_budget(&self) -> Option<Arc<PartBudget>> {
        Some(Arc::clone(&self.budget))
    }
}

impl Drop for SinkWriter {
    fn drop(&mut self) {
        if let Some(State::Running { queue, threads }) = self.state.take() {
            // Without a flush the packer discards the open part; what is closed already still lands.
            drop(queue);
            let _ = threads.packer.join();
            let _ = threads.landing.join();
        }
    }
}
