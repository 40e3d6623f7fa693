//! `_run.json`: what is remembered of a run before it starts and while it goes on.
//!
//! It is what a later attempt, and the load half on another machine, knows of the run besides the manifests: which
//! streams it has and what was decided about each. Both halves update it, so an update reads it anew.

use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::lease::Side;
use super::state::Reached;
use crate::blob::{Blob, BlobError, Body, Key, ObjectInfo, object, object::Seen};
use crate::connector::{CursorWindow, Error, ErrorKind, Result, WriteMode};
use crate::pipeline::ReadMode;
use crate::staging::{Fence, RunLayout};

/// The only version of `_run.json` so far.
const FORMAT_VERSION: u32 = 1;

/// A run, as `_run.json` holds it. Unknown fields are ignored on reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// 1.
    pub format_version: u32,
    /// Where the pipeline belongs.
    pub workspace: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// The run's id.
    pub run: String,
    /// A digest of the connectors and their configuration without secrets: a run is only continued with the same.
    pub config: String,
    /// RFC 3339.
    pub created_at: String,
    /// `running` until every stream is done.
    pub status: RunStatus,
    /// How often each half was started.
    pub attempts: Attempts,
    /// In the pipeline's order.
    pub streams: Vec<StreamRecord>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunStatus {
    /// Some stream has not come to an end: the same command goes on with it.
    Running,
    /// Every stream is done.
    Done,
    /// Every stream has come to an end, some of them at an error that trying again would only meet again. The next
    /// run starts anew, so that one bad stream does not keep the others from moving; `--run` goes on all the same.
    Failed,
    /// Somebody said so: nothing goes on with it, and no other run waits for it.
    #[serde(rename = "given-up")]
    GivenUp,
}

/// How often each half of a run was started. A direct copy counts as a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attempts {
    /// Extract.
    pub extract: u64,
    /// Load.
    pub load: u64,
}

impl Attempts {
    pub(super) fn of(self, side: Side) -> u64 {
        match side {
            Side::Extract => self.extract,
            Side::Load => self.load,
        }
    }

    pub(super) fn set(&mut self, side: Side, attempt: u64) {
        match side {
            Side::Extract => self.extract = attempt,
            Side::Load => self.load = attempt,
        }
    }
}

/// One stream of a run: what was decided about it, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamRecord {
    /// Its qualified name.
    pub stream: String,
    /// Direct or staged; none while that is undecided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<CopyMode>,
    /// All rows or the new ones.
    pub read: ReadMode,
    /// What happens to rows that the destination has.
    pub write: WriteMode,
    /// The cursor field of an incremental stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Where the window starts: the state when the run began with the stream, so that every attempt reads the same
    /// window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Whether rows that equal `since` belong to the window.
    #[serde(default)]
    pub since_inclusive: bool,
    /// How far the stream had been loaded when its window was taken, whatever the cursor field was then: once that has
    /// changed, another run has loaded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Reached>,
    /// Rows may have come to the destination. Noted before any do, so that what the destination remembers of an earlier
    /// run with the same id is known for that.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub load_begun: bool,
    /// The high-water mark of what a direct copy is about to commit: where the state moves after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_water_mark: Option<String>,
    /// How far it is.
    pub status: StreamStatus,
    /// Rows copied, once that is known.
    #[serde(default)]
    pub rows: u64,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// How a stream of a run is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyMode {
    /// Source to destination.
    Direct,
    /// Through the blob store.
    Staged,
}

/// How far a stream of a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamStatus {
    /// Not at its destination, and the last attempt, if any, was cut off.
    Pending,
    /// All of it is staged.
    Extracted,
    /// All of it is at its destination.
    Done,
    /// The last attempt stopped at an error that trying again, unchanged, would only meet again.
    Failed,
}

impl StreamRecord {
    /// The cursor window that the run reads of this stream; none for a full read.
    pub fn window(&self) -> Option<CursorWindow> {
        let field = self
            .cursor
            .clone()
            .filter(|_| self.read == ReadMode::Incremental)?;
        Some(CursorWindow {
            field,
            since: self.since.clone(),
            since_inclusive: self.since_inclusive,
        })
    }

    /// Notes that an attempt stopped before its end. `passing`: trying again, unchanged, may help.
    pub(super) fn stopped(&mut self, passing: bool, error: Option<&str>) {
        // What is staged or loaded stays so, whatever happened afterwards.
        if !passing && self.status != StreamStatus::Done {
            self.status = StreamStatus::Failed;
        }
        self.error = error.map(str::to_owned);
    }

    /// Notes that a new attempt begins.
    pub(super) fn begun(&mut self) {
        if self.status == StreamStatus::Failed {
            self.status = StreamStatus::Pending;
        }
    }
}

/// How far a run is, given its streams.
fn run_status(streams: &[StreamRecord]) -> RunStatus {
    let all = |ended: fn(StreamStatus) -> bool| streams.iter().all(|stream| ended(stream.status));
    if all(|status| status == StreamStatus::Done) {
        RunStatus::Done
    } else if all(|status| matches!(status, StreamStatus::Done | StreamStatus::Failed)) {
        RunStatus::Failed
    } else {
        RunStatus::Running
    }
}

impl RunRecord {
    /// A run that has not started.
    pub(super) fn new(layout: &RunLayout, config: String, streams: Vec<StreamRecord>) -> Self {
        RunRecord {
            format_version: FORMAT_VERSION,
            workspace: layout.workspace().to_owned(),
            pipeline: layout.pipeline().to_owned(),
            run: layout.run().to_owned(),
            config,
            created_at: super::now(),
            status: RunStatus::Running,
            attempts: Attempts::default(),
            streams,
        }
    }

    /// The record of one stream.
    pub fn stream(&self, qualified_name: &str) -> Option<&StreamRecord> {
        self.streams.iter().find(|record| record.stream == qualified_name)
    }

    /// Why a new invocation must not go on with this unfinished run; none: it may.
    pub(super) fn differs(
        &self,
        config: &str,
        streams: &[StreamRecord],
        mode: Option<CopyMode>,
    ) -> Option<&'static str> {
        let settings = |record: &StreamRecord| {
            let StreamRecord {
                stream,
                read,
                write,
                cursor,
                ..
            } = record.clone();
            (stream, read, write, cursor)
        };
        if self.config != config {
            return Some("a connector or its configuration has changed");
        }
        if !self.streams.iter().map(settings).eq(streams.iter().map(settings)) {
            return Some("the streams or their settings have changed");
        }
        let other = |begun: CopyMode| mode.is_some_and(|mode| mode != begun);
        if self.streams.iter().filter_map(|stream| stream.mode).any(other) {
            return Some("it was begun in another mode");
        }
        None
    }
}

/// Reads a run's record; none where the run was never started.
pub fn read_record(blob: &dyn Blob, key: &Key) -> Result<Option<RunRecord>> {
    object::read(blob, key)?
        .map(|bytes| parse(key, &bytes))
        .transpose()
}

fn parse(key: &Key, bytes: &[u8]) -> Result<RunRecord> {
    let record: RunRecord = serde_json::from_slice(bytes).map_err(|error| unreadable(key, &error))?;
    if record.format_version > FORMAT_VERSION {
        let version = record.format_version;
        let message = format!(
            "`{key}` has format version {version}, and this Setu reads up to {FORMAT_VERSION}: use a newer one"
        );
        return Err(Error::new(ErrorKind::Staging, message));
    }
    Ok(record)
}

fn unreadable(key: &Key, error: &dyn std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Staging,
        format!("the run record `{key}` cannot be read: {error}"),
    )
}

/// The runs of a pipeline that have a record, the newest first.
pub fn list_records(blob: &dyn Blob, layout: &RunLayout) -> Result<Vec<RunRecord>> {
    records_among(blob, &blob.list(&layout.runs_prefix())?)
}

/// The runs whose record is among these objects, the newest first.
pub fn records_among(blob: &dyn Blob, objects: &[ObjectInfo]) -> Result<Vec<RunRecord>> {
    let keys = objects
        .iter()
        .map(|object| &object.key)
        .filter(|key| key.as_str().ends_with("/_run.json"));
    let records = keys
        .map(|key| read_record(blob, key))
        .collect::<Result<Vec<_>>>()?;
    let mut records: Vec<_> = records.into_iter().flatten().collect();
    records.sort_by(|a, b| (&b.created_at, &b.run).cmp(&(&a.created_at, &a.run)));
    Ok(records)
}

/// The pipeline's newest run, if it is unfinished. An older one is not gone back to: a newer run has moved what it
/// would move.
pub fn unfinished(blob: &dyn Blob, layout: &RunLayout) -> Result<Option<RunRecord>> {
    let newest = list_records(blob, layout)?.into_iter().next();
    Ok(newest.filter(|record| record.status == RunStatus::Running))
}

/// How often a change is tried that others come before.
const TRIES: usize = 20;

/// The record of a run under way, updated by many threads and, a half each, by two processes.
pub(super) struct SharedRecord {
    blob: Arc<dyn Blob>,
    key: Key,
    fence: Arc<dyn Fence>,
    /// What this process wrote last, where the store can tell whether it is still that. Held from reading to writing.
    last: Mutex<Option<(RunRecord, Seen)>>,
}

impl SharedRecord {
    pub(super) fn new(blob: Arc<dyn Blob>, layout: &RunLayout, fence: Arc<dyn Fence>) -> Self {
        SharedRecord {
            blob,
            key: layout.run_record(),
            fence,
            last: Mutex::default(),
        }
    }

    /// Reads it; none where the run was never started.
    pub(super) fn read(&self) -> Result<Option<RunRecord>> {
        read_record(&*self.blob, &self.key)
    }

    /// Writes it for the first time.
    pub(super) fn create(&self, record: &RunRecord) -> Result<()> {
        Ok(self.blob.put(&self.key, Body::Bytes(&self.json(record)?))?)
    }

    /// Changes what is stored and returns it. The change is made to what is there at that moment, so it may be made more
    /// than once.
    pub(super) fn update(&self, change: impl Fn(&mut RunRecord)) -> Result<RunRecord> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.fence.check()?;
        for _ in 0..TRIES {
            // Looked at again only when somebody else has changed it: it grows with the streams.
            let (stored, mut seen, is_fresh) = match last.take() {
                Some((record, seen)) => (record, seen, false),
                None => {
                    let (bytes, seen) = object::look(&*self.blob, &self.key)?;
                    (parse(&self.key, &bytes.ok_or_else(|| self.gone())?)?, seen, true)
                }
            };
            let mut record = stored.clone();
            change(&mut record);
            if record.status != RunStatus::GivenUp {
                record.status = run_status(&record.streams);
            }
            if record == stored {
                match is_fresh {
                    true => return Ok(record),
                    false => continue,
                }
            }
            match object::replace(&*self.blob, &self.key, &self.json(&record)?, &mut seen) {
                // Written over by the other half? The best that can be done without conditions.
                Ok(()) if !seen.guards() && self.read()?.as_ref() != Some(&record) => {}
                Ok(()) => {
                    *last = seen.guards().then(|| (record.clone(), seen));
                    return Ok(record);
                }
                Err(BlobError::Conflict { .. }) if !is_fresh => continue,
                Err(BlobError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            std::thread::sleep(std::time::Duration::from_millis(fastrand::u64(5..50)));
        }
        let message = format!(
            "the run record `{}` is changed by others again and again",
            self.key
        );
        Err(Error::new(ErrorKind::Blob, message).with_retryable(true))
    }

    fn gone(&self) -> Error {
        let message = format!("the run record `{}` has vanished", self.key);
        Error::new(ErrorKind::Staging, message)
    }

    fn json(&self, record: &RunRecord) -> Result<Vec<u8>> {
        serde_json::to_vec_pretty(record).map_err(|error| unreadable(&self.key, &error))
    }

    /// Changes the record of one stream.
    pub(super) fn update_stream(
        &self,
        qualified_name: &str,
        change: impl Fn(&mut StreamRecord),
    ) -> Result<()> {
        self.update(|record| {
            if let Some(stream) = record
                .streams
                .iter_mut()
                .find(|stream| stream.stream == qualified_name)
            {
                change(stream);
            }
        })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(status: StreamStatus) -> StreamRecord {
        StreamRecord {
            stream: "s".into(),
            mode: None,
            read: ReadMode::Full,
            write: WriteMode::Append,
            cursor: None,
            since: None,
            since_inclusive: false,
            after: None,
            load_begun: false,
            high_water_mark: None,
            status,
            rows: 0,
            error: None,
        }
    }

    #[test]
    fn a_run_ends_with_its_last_stream() {
        use StreamStatus::{Done, Extracted, Failed, Pending};
        let cases = [
            (&[][..], RunStatus::Done),
            (&[Done, Done], RunStatus::Done),
            (&[Done, Failed], RunStatus::Failed),
            (&[Failed], RunStatus::Failed),
            (&[Done, Pending], RunStatus::Running),
            (&[Failed, Extracted], RunStatus::Running),
        ];
        for (streams, expected) in cases {
            let records: Vec<_> = streams.iter().map(|status| record(*status)).collect();
            assert_eq!(run_status(&records), expected, "{streams:?}");
        }
    }

    /// Each half has the record in its memory, and neither writes over what the other one has written.
    #[test]
    fn two_halves_change_one_record() {
        let layout = RunLayout::new("w", "p", "r").unwrap();
        let blobs: [Arc<dyn Blob>; 2] = [
            Arc::new(crate::blob::Memory::new()),
            Arc::new(crate::blob::Plain::default()),
        ];
        for blob in blobs {
            let half = || SharedRecord::new(blob.clone(), &layout, Arc::new(crate::staging::Unfenced));
            let [extract, load] = [half(), half()];
            let streams = ["a", "b"].map(|stream| StreamRecord {
                stream: stream.into(),
                ..record(StreamStatus::Pending)
            });
            extract
                .create(&RunRecord::new(&layout, "c".into(), streams.to_vec()))
                .unwrap();
            for rows in 1..5 {
                extract.update_stream("a", |stream| stream.rows = rows).unwrap();
                load.update_stream("b", |stream| stream.rows = 10 * rows).unwrap();
                // Not what the other half's memory says.
                load.update_stream("a", |stream| stream.rows += 100).unwrap();
                extract.update_stream("a", |stream| stream.rows = rows).unwrap();
                let stored = load.read().unwrap().unwrap();
                let found: Vec<_> = stored.streams.iter().map(|stream| stream.rows).collect();
                assert_eq!(found, [rows, 10 * rows]);
            }
        }
    }

    #[test]
    fn only_an_error_that_would_be_met_again_fails_a_stream() {
        use StreamStatus::{Done, Extracted, Failed, Pending};
        for (before, passing, expected) in [
            (Pending, true, Pending),
            (Extracted, true, Extracted),
            (Pending, false, Failed),
            (Extracted, false, Failed),
            (Done, false, Done),
        ] {
            let mut record = record(before);
            record.stopped(passing, Some("why"));
            assert_eq!(
                (record.status, record.error.as_deref()),
                (expected, Some("why")),
                "{before:?}"
            );
            record.begun();
            assert_ne!(record.status, Failed);
        }
    }
}
