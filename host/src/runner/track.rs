//! Keeps an eye on the cursor of a direct copy, so that the state moves just as after a staged one.

use std::sync::{Arc, Mutex, PoisonError};

use super::record::SharedRecord;
use crate::connector::{BatchLimit, Chunk, Error, ErrorKind, LoadSummary, Reader, Result, Writer};
use crate::record::Schema;
use crate::staging::cursor::Bounds;

/// The high-water mark of a copy, known once its reader is at the end.
pub(super) type HighWaterMark = Arc<Mutex<Option<String>>>;

/// What was noted.
pub(super) fn noted(mark: &HighWaterMark) -> Option<String> {
    mark.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// A reader that notes the high-water mark: its own, or else the greatest cursor value that it returned.
pub(super) struct TrackedReader<'a> {
    inner: Box<dyn Reader + 'a>,
    bounds: Option<Bounds>,
    mark: HighWaterMark,
}

impl<'a> TrackedReader<'a> {
    /// `field` is the cursor field of an incremental stream.
    pub(super) fn new(inner: Box<dyn Reader + 'a>, field: Option<&str>, mark: HighWaterMark) -> Self {
        let bounds = field.and_then(|field| Bounds::new(inner.schema(), field));
        TrackedReader { inner, bounds, mark }
    }
}

impl Reader for TrackedReader<'_> {
    fn schema(&self) -> &Schema {
        self.inner.schema()
    }

    fn next(&mut self, limit: BatchLimit) -> Result<Option<Chunk>> {
        let chunk = self.inner.next(limit)?;
        if let (Some(chunk), Some(bounds)) = (&chunk, &mut self.bounds) {
            let observed = bounds.observe(&chunk.batch);
            observed.map_err(|error| Error::new(ErrorKind::Data, error.to_string()))?;
        }
        Ok(chunk)
    }

    fn high_water_mark(&mut self) -> Result<Option<String>> {
        let mark = match self.inner.high_water_mark()? {
            Some(mark) => Some(mark),
            None => self
                .bounds
                .as_ref()
                .and_then(Bounds::max)
                .map(ToString::to_string),
        };
        self.mark
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&mark);
        Ok(mark)
    }
}

/// A writer that puts the high-water mark and the number of rows into the run's record before they are committed: an
/// attempt after a crash finds the rows committed and moves the state without reading them again.
pub(super) struct RecordedWriter<'a, 'w> {
    pub(super) inner: Box<dyn Writer + 'w>,
    pub(super) record: &'a SharedRecord,
    pub(super) stream: &'a str,
    pub(super) mark: HighWaterMark,
    pub(super) rows: u64,
}

impl Writer for RecordedWriter<'_, '_> {
    fn committed(&mut self) -> Result<u64> {
        self.inner.committed()
    }

    fn write(&mut self, chunk: Chunk) -> Result<()> {
        self.rows += chunk.batch.num_rows() as u64;
        self.inner.write(chunk)
    }

    fn commit(&mut self, mark: u64) -> Result<()> {
        let high_water_mark = noted(&self.mark);
        self.record.update_stream(self.stream, |record| {
            record.high_water_mark.clone_from(&high_water_mark);
            record.rows = self.rows;
        })?;
        self.inner.commit(mark)
    }

    fn finish(&mut self, high_water_mark: Option<String>) -> Result<LoadSummary> {
        self.inner.finish(high_water_mark)
    }
}
