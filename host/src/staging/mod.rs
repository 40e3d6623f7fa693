//! The staged layout: what extract and load agree on. (Skeleton: the public surface that the runner builds on.)

mod layout;
mod manifest;

pub use layout::{IdError, RunLayout, check_id, slug};
pub use manifest::{Manifest, ManifestStatus, Part};

use std::sync::Arc;

use crate::blob::Blob;
use crate::connector::{Destination, Position, Result, Source};
use crate::record::StreamName;

/// The most rows in a part.
pub const PART_ROWS: u64 = 50_000;
/// The most bytes of uncompressed JSON Lines in a part, one wider row alone excepted.
pub const PART_BYTES: u64 = 64 << 20;

/// How an extract of a stream starts, given its manifest: a pure function of what is staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// From the first row, at part 0.
    Fresh,
    /// After the last named part.
    After {
        /// Where the source goes on.
        position: Position,
        /// How many parts are kept.
        parts: usize,
    },
    /// Every row is staged.
    Complete,
}

/// Decides how an extract starts.
pub fn resume(_manifest: Option<&Manifest>, _resumable: bool) -> Resume {
    unimplemented!()
}

/// The blob sink: a destination that stages one stream.
pub struct BlobSink {
    _private: (),
}

impl BlobSink {
    /// `resume` is what [`resume()`] said, or `Fresh` where the source could not go on from its position;
    /// `cursor` is the cursor field of an incremental stream.
    pub fn new(
        _blob: Arc<dyn Blob>,
        _layout: RunLayout,
        _stream: StreamName,
        _resume: Resume,
        _cursor: Option<String>,
    ) -> Result<Box<dyn Destination>> {
        unimplemented!()
    }
}

/// The blob source: a source of one staged stream, one batch a part. A position is the number of parts that were
/// returned, as eight bytes, most significant first; so is a load's mark.
pub struct BlobSource {
    _private: (),
}

impl BlobSource {
    /// Fails with `NotFound` where the stream has no manifest and with `Conflict` where it is still extracting.
    pub fn open(_blob: Arc<dyn Blob>, _layout: RunLayout, _stream: StreamName) -> Result<Box<dyn Source>> {
        unimplemented!()
    }
}

/// Reads and checks a stream's manifest; none where there is none.
pub fn read_manifest(
    _blob: &dyn Blob,
    _layout: &RunLayout,
    _stream: &StreamName,
) -> Result<Option<Manifest>> {
    unimplemented!()
}
