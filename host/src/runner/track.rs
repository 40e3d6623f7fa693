//! Keeps an eye on the cursor of a direct copy, so that the state moves just as after a staged one.

use std::sync::{Arc, Mutex, PoisonError};

use super::record::{SharedRecord, StreamRecord};
use crate::connector::{BatchLimit, Chunk, Error, ErrorKind, LoadSummary, Reader, Result, WriteMode, Writer};
use crate::record::{DataType, Schema};
use crate::staging::cursor::{Bounds, CursorValue};

/// The high-water mark of a copy, known once its reader is at the end.
pub(super) type HighWaterMark = Arc<Mutex<Option<String>>>;

/// What was noted.
pub(super) fn noted(mark: &HighWaterMark) -> Option<String> {
    mark.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Rows that are appended must move the state, or the next run would append them again.
pub(super) fn check_mark(record: &StreamRecord, rows: u64, mark: Option<&str>) -> Result<()> {
    let window = record.window().filter(|_| record.write == WriteMode::Append);
    let Some(window) = window.filter(|_| rows > 0 && mark.is_none()) else {
        return Ok(());
    };
    let message = format!(
        "no row of stream {} has a value in its cursor `{}`, so that every run would append them again: choose a cursor \
         that is filled, or set `mode: full` or `write: upsert`",
        record.stream, window.field
    );
    Err(Error::new(ErrorKind::Data, message))
}

/// A reader whose high-water mark is a value of the cursor field, or is refused: the state of later runs depends on it.
pub(super) struct MarkedReader<'a> {
    inner: Box<dyn Reader + 'a>,
    field: Option<DataType>,
    /// "connector csv 0.1.0, stream orders"
    place: String,
}

impl<'a> MarkedReader<'a> {
    /// `field` is the cursor field of an incremental stream.
    pub(super) fn new(inner: Box<dyn Reader + 'a>, field: Option<&str>, place: String) -> Self {
        let schema = inner.schema();
        let field = field.and_then(|field| Some(schema.fields[schema.index_of(field)?].data_type));
        MarkedReader { inner, field, place }
    }
}

impl Reader for MarkedReader<'_> {
    fn schema(&self) -> &Schema {
        self.inner.schema()
    }

    fn next(&mut self, limit: BatchLimit) -> Result<Option<Chunk>> {
        self.inner.next(limit)
    }

    fn high_water_mark(&mut self) -> Result<Option<String>> {
        let mark = self.inner.high_water_mark()?;
        if let (Some(field), Some(mark)) = (self.field, &mark)
            && CursorValue::from_text(field, mark).is_err()
        {
            let message = format!(
                "the connector broke the contract: its high-water mark is not a value of the type {field} of the cursor \
                 field"
            );
            let place = format!("{}, call source.reader.high-water-mark", self.place);
            return Err(Error::new(ErrorKind::BrokenContract, message).at(place));
        }
        Ok(mark)
    }
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
    pub(super) stream: &'a StreamRecord,
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
        check_mark(self.stream, self.rows, high_water_mark.as_deref())?;
        self.record.update_stream(&self.stream.stream, |record| {
            record.high_water_mark.clone_from(&high_water_mark);
            record.rows = self.rows;
            record.load_begun = true;
        })?;
        self.inner.commit(mark)
    }

    fn finish(&mut self, high_water_mark: Option<String>) -> Result<LoadSummary> {
        self.inner.finish(high_water_mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Field;

    struct Marks(Schema, &'static str);

    impl Reader for Marks {
        fn schema(&self) -> &Schema {
            &self.0
        }

        fn next(&mut self, _: BatchLimit) -> Result<Option<Chunk>> {
            Ok(None)
        }

        fn high_water_mark(&mut self) -> Result<Option<String>> {
            Ok(Some(self.1.to_owned()))
        }
    }

    #[test]
    fn a_high_water_mark_is_a_value_of_the_cursor_field() {
        let field = Field {
            name: "id".into(),
            data_type: DataType::Int64,
            nullable: false,
            native_type: None,
        };
        let schema = Schema {
            fields: vec![field],
            primary_key: Vec::new(),
        };
        let mark = |field, mark| {
            let reader = Box::new(Marks(schema.clone(), mark));
            MarkedReader::new(reader, field, "connector c 1.0.0, stream s".into()).high_water_mark()
        };
        assert_eq!(mark(Some("id"), "7"), Ok(Some("7".into())));
        // Without a window nobody asks what it is.
        assert_eq!(mark(None, "x"), Ok(Some("x".into())));
        let error = mark(Some("id"), "hunter2").expect_err("it is no number");
        assert_eq!(error.kind(), ErrorKind::BrokenContract);
        let text = error.to_string();
        assert!(
            text.contains("call source.reader.high-water-mark") && !text.contains("hunter2"),
            "{text}"
        );
    }

    #[test]
    fn appended_rows_without_a_cursor_value_are_refused() {
        use crate::pipeline::ReadMode::{self, Full, Incremental};
        use WriteMode::{Append, Upsert};
        let record = |read: ReadMode, write: WriteMode| -> StreamRecord {
            let json = serde_json::json!({
                "stream": "s", "read": read, "write": write, "cursor": "at", "status": "pending",
            });
            serde_json::from_value(json).expect("a record")
        };
        for (read, write, rows, mark, is_fine) in [
            (Incremental, Append, 2, None, false),
            (Incremental, Append, 2, Some("9"), true),
            (Incremental, Append, 0, None, true),
            (Incremental, Upsert, 2, None, true),
            (Full, Append, 2, None, true),
        ] {
            let checked = check_mark(&record(read, write), rows, mark);
            assert_eq!(checked.is_ok(), is_fine, "{read:?} {write:?} {rows} {mark:?}");
            if let Err(error) = checked {
                assert!(
                    error
                        .message()
                        .contains("stream s has a value in its cursor `at`"),
                    "{error}"
                );
            }
        }
    }
}
