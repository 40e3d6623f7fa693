//! What the copy loop knows of connectors: the host-side [`Source`] and [`Destination`] traits.
//!
//! Two things implement them: `plugin`, for WebAssembly components, and `staging`, whose blob sink is a destination
//! and whose blob source is a source. They mirror `wit/setu.wit`; what that file demands of a connector holds here.
//! All calls block; a connector is used by one thread at a time, and its reader or writer borrows it.

mod error;
mod part_budget;
pub mod registry;

pub use error::{Error, ErrorKind, Result};
pub use part_budget::PartBudget;

use std::sync::Arc;

use arrow_array::RecordBatch;

use crate::record::{Schema, StreamInfo, StreamName};

/// One of the two things that a connector can be; each has a configuration and grants of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Rows are read from it.
    Source,
    /// Rows are written to it.
    Destination,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Role::Source => "source",
            Role::Destination => "destination",
        })
    }
}

/// A connector's opaque token: "everything up to here has been returned". At most [`MAX_POSITION_BYTES`] long.
pub type Position = Vec<u8>;

/// The longest position and the longest range of a split, in bytes.
pub const MAX_POSITION_BYTES: usize = 64 << 10;

/// What to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// A stream that `discover` returned.
    pub name: StreamName,
    /// These columns, in this order; none: all.
    pub columns: Option<Vec<String>>,
    /// Only rows in this window; none: all rows.
    pub cursor: Option<CursorWindow>,
    /// One of the ranges that `split` returned; none: all of it.
    pub range: Option<Vec<u8>>,
    /// Go on after this position. A source that cannot fails with [`ErrorKind::Conflict`].
    pub resume_after: Option<Position>,
    /// Whether chunks may have positions: those of a stream that is not resumable have none.
    pub positions: bool,
}

impl ReadRequest {
    /// All of a stream, from the start.
    pub fn all(name: StreamName) -> Self {
        ReadRequest {
            name,
            columns: None,
            cursor: None,
            range: None,
            resume_after: None,
            positions: true,
        }
    }
}

/// Rows whose cursor lies after `since`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorWindow {
    /// The name of the cursor field.
    pub field: String,
    /// The last high-water mark in its staged text form; none: from the start.
    pub since: Option<String>,
    /// Whether rows that equal `since` are included.
    pub since_inclusive: bool,
}

/// How much one call of [`Reader::next`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimit {
    /// Never more rows than this; at least 1.
    pub rows: u32,
    /// About this many bytes of column data, but at least one row.
    pub bytes: u64,
}

impl Default for BatchLimit {
    /// What measured fastest across the sandbox's boundary.
    fn default() -> Self {
        BatchLimit {
            rows: 8192,
            bytes: 1 << 20,
        }
    }
}

/// Some rows and where they end.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// At least one row, with the reader's schema.
    pub batch: RecordBatch,
    /// Where to go on after these rows, from a source that can.
    pub position: Option<Position>,
}

/// A configured source of one or more streams.
pub trait Source: Send {
    /// Reaches the system and logs in.
    fn check(&mut self) -> Result<()>;
    /// Every stream that can be read.
    fn discover(&mut self) -> Result<Vec<StreamInfo>>;
    /// How many rows `read` would return, counted no further than `limit`; none: cannot tell cheaply.
    fn count(&mut self, request: &ReadRequest, limit: u64) -> Result<Option<u64>>;
    /// Starts reading.
    fn read(&mut self, request: &ReadRequest) -> Result<Box<dyn Reader + '_>>;
}

/// A read under way.
pub trait Reader: Send {
    /// The schema of the batches.
    fn schema(&self) -> &Schema;
    /// The next rows, or none at the end; not to be called again after that or after an error.
    fn next(&mut self, limit: BatchLimit) -> Result<Option<Chunk>>;
    /// The upper bound of the cursor window, in its staged text form; none: no window, or no row in it.
    fn high_water_mark(&mut self) -> Result<Option<String>>;
}

/// What happens to the rows that the target already has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteMode {
    /// They stay.
    Append,
    /// They are replaced, all at once, at the end.
    Overwrite,
    /// Those whose primary key arrives again are replaced.
    Upsert,
}

impl std::fmt::Display for WriteMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WriteMode::Append => "append",
            WriteMode::Overwrite => "overwrite",
            WriteMode::Upsert => "upsert",
        })
    }
}

/// What a destination can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The modes that `begin` accepts.
    pub write_modes: Vec<WriteMode>,
    /// Whether `commit` makes rows and mark durable together.
    pub transactional: bool,
}

/// One load of one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadRequest {
    /// Names the load for ever: the same on every attempt.
    pub load_id: String,
    /// Grows with every attempt.
    pub attempt: u64,
    /// What is written, under the name and schema that it had at the source.
    pub target: StreamInfo,
    /// What happens to existing rows.
    pub mode: WriteMode,
}

/// How a load ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoadSummary {
    /// By this load, over all its attempts.
    pub rows_written: u64,
}

/// A configured destination.
pub trait Destination: Send {
    /// Reaches the system and logs in; changes nothing.
    fn check(&mut self) -> Result<()>;
    /// What it can do.
    fn capabilities(&mut self) -> Result<Capabilities>;
    /// Starts a load or goes on with it.
    fn begin(&mut self, load: &LoadRequest) -> Result<Box<dyn Writer + '_>>;
}

/// A load under way. Dropped before [`Writer::finish`], everything since the last commit is rolled back.
pub trait Writer: Send {
    /// The last mark that an attempt of this load committed; 0: none.
    fn committed(&mut self) -> Result<u64>;
    /// Takes rows; they may become durable only with the next commit.
    fn write(&mut self, chunk: Chunk) -> Result<()>;
    /// Makes all that was written durable, together with the mark.
    fn commit(&mut self, mark: u64) -> Result<()>;
    /// Publishes the load. `high_water_mark` is the reader's.
    fn finish(&mut self, high_water_mark: Option<String>) -> Result<LoadSummary>;
    /// Where this writer's parts end, if it cuts what it writes into parts.
    fn part_budget(&self) -> Option<Arc<PartBudget>> {
        None
    }
}
