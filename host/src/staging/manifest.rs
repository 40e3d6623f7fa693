//! The manifest of a staged stream. (Skeleton.)

use serde_json::Value;

use crate::connector::Position;
use crate::record::{Schema, StreamName};

/// Whether all of a stream is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestStatus {
    /// Parts may still come.
    Extracting,
    /// All parts are named.
    Complete,
}

/// One staged object.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its blob key.
    pub key: String,
    /// How many rows it holds.
    pub rows: u64,
    /// Its size in the blob store.
    pub bytes: u64,
    /// The least cursor value in it, in staged form.
    pub min_cursor: Option<Value>,
    /// The greatest cursor value in it, in staged form.
    pub max_cursor: Option<Value>,
    /// Where the source can go on after it.
    pub position: Option<Position>,
}

/// All that load needs to know of a staged stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The stream.
    pub stream: StreamName,
    /// "table", "view", "file", …
    pub stream_type: String,
    /// Its columns and key.
    pub schema: Schema,
    /// Whether it is complete.
    pub status: ManifestStatus,
    /// In order.
    pub parts: Vec<Part>,
    /// The sum over the parts.
    pub rows_total: u64,
    /// The cursor field of an incremental stream.
    pub cursor_field: Option<String>,
    /// The upper bound of the incremental window, in staged text form, for the next run's state.
    pub high_water_mark: Option<String>,
    /// RFC 3339.
    pub created_at: String,
    /// RFC 3339.
    pub completed_at: Option<String>,
}
