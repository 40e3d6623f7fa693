//! Marks for destinations that have no transactions.
//!
//! Such a destination cannot remember how far a load got together with the rows, so the host does, in an object
//! beside the manifest, after each commit. A crash in between writes the rows of one part twice: at least once,
//! and exact where the write is an upsert.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::blob::{Blob, Body, Key, object};
use crate::connector::{Chunk, Error, ErrorKind, LoadSummary, Result, Writer};

/// What the object holds.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredMark {
    load_id: String,
    mark: u64,
}

/// A writer whose marks are kept in the blob store.
pub(super) struct HostMarks<'a> {
    inner: Box<dyn Writer + 'a>,
    blob: Arc<dyn Blob>,
    key: Key,
    load_id: String,
}

impl<'a> HostMarks<'a> {
    pub(super) fn new(inner: Box<dyn Writer + 'a>, blob: Arc<dyn Blob>, key: Key, load_id: &str) -> Self {
        HostMarks {
            inner,
            blob,
            key,
            load_id: load_id.to_owned(),
        }
    }

    fn unreadable(&self, error: &dyn std::fmt::Display) -> Error {
        Error::new(
            ErrorKind::Staging,
            format!("the load's mark `{}` cannot be read: {error}", self.key),
        )
    }
}

impl Writer for HostMarks<'_> {
    fn committed(&mut self) -> Result<u64> {
        let Some(bytes) = object::read(&*self.blob, &self.key)? else {
            return Ok(0);
        };
        let stored: StoredMark = serde_json::from_slice(&bytes).map_err(|error| self.unreadable(&error))?;
        Ok(if stored.load_id == self.load_id {
            stored.mark
        } else {
            0
        })
    }

    fn write(&mut self, chunk: Chunk) -> Result<()> {
        self.inner.write(chunk)
    }

    fn commit(&mut self, mark: u64) -> Result<()> {
        self.inner.commit(mark)?;
        let stored = StoredMark {
            load_id: self.load_id.clone(),
            mark,
        };
        let json = serde_json::to_vec(&stored).map_err(|error| self.unreadable(&error))?;
        Ok(self.blob.put(&self.key, Body::Bytes(&json))?)
    }

    fn finish(&mut self, high_water_mark: Option<String>) -> Result<LoadSummary> {
        self.inner.finish(high_water_mark)
    }
}
