//! The staged layout: what extract and load agree on. `docs/staged-format.md` says it for other programs.
//!
//! | part | what it is |
//! |---|---|
//! | [`RunLayout`], [`slug`] | where things are |
//! | [`Manifest`], [`read_manifest`] | what is staged of a stream, and how far |
//! | [`codec`] | rows as JSON Lines |
//! | [`cursor`] | the order of cursor values and their staged form |
//! | [`BlobSink`] | a destination that stages one stream |
//! | [`BlobSource`] | a source of one staged stream |
//! | [`resume()`] | how an extract starts, given what is staged |
//! | [`Fence`] | what keeps an attempt that was overtaken from writing |
//!
//! Not here: which streams are staged and when (`runner`), and what a blob store is (`blob`).

pub mod codec;
pub mod cursor;
mod fence;
#[cfg(test)]
mod golden;
mod layout;
mod manifest;
mod resume;
mod sink;
mod source;
#[cfg(test)]
mod tests;

pub use fence::{Fence, Unfenced};
pub use layout::{IdError, RunLayout, check_id, slug};
pub use manifest::{Manifest, ManifestError, ManifestStatus, Part};
pub use resume::{Resume, resume};
pub use sink::BlobSink;
pub use source::BlobSource;

use crate::blob::{Blob, object};
use crate::connector::{Error, ErrorKind, Result};
use crate::record::StreamName;

/// The version of the staged format that is written, and the newest that is read.
pub const FORMAT_VERSION: u64 = 1;
/// The most rows in a part.
pub const PART_ROWS: u64 = 50_000;
/// The most bytes of uncompressed JSON Lines in a part, one wider row alone excepted.
pub const PART_BYTES: u64 = 64 << 20;

/// Reads and checks a stream's manifest; none where there is none.
pub fn read_manifest(blob: &dyn Blob, layout: &RunLayout, stream: &StreamName) -> Result<Option<Manifest>> {
    let json = object::read(blob, &layout.manifest(stream))?;
    json.map(|json| parse_manifest(&json, layout, stream)).transpose()
}

/// The manifests of all streams of a run.
pub fn staged_streams(blob: &dyn Blob, layout: &RunLayout) -> Result<Vec<Manifest>> {
    let mut manifests = Vec::new();
    for found in blob.list(&format!("{}stream/", layout.run_prefix()))? {
        let key = found.key.as_str();
        if !key.ends_with("/_manifest.json") {
            continue;
        }
        let Some(json) = object::read(blob, &found.key)? else {
            continue; // removed since
        };
        let stream = Manifest::stream_of(&json)
            .map_err(|e| Error::new(ErrorKind::Staging, format!("the manifest `{key}` {e}")))?;
        manifests.push(parse_manifest(&json, layout, &stream)?);
    }
    Ok(manifests)
}

fn parse_manifest(json: &[u8], layout: &RunLayout, stream: &StreamName) -> Result<Manifest> {
    Manifest::from_json(json, layout, stream).map_err(|e| Error::new(ErrorKind::Staging, e.to_string()))
}
