//! A pipeline's state: for each incremental stream, how far it has been loaded.
//!
//! It moves only after a load has finished, and never backwards.

use serde::{Deserialize, Serialize};

use super::record::{StreamRecord, StreamStatus};
use crate::blob::{Blob, BlobError, Key, object};
use crate::connector::{Error, ErrorKind, Result};
use crate::record::{DataType, StreamName};
use crate::staging::RunLayout;
use crate::staging::cursor::CursorValue;

/// What `state/<slug>.json` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The stream's qualified name.
    pub stream: String,
    /// The field that the value is of.
    pub cursor_field: String,
    /// The high-water mark, in staged text form.
    pub cursor: String,
    /// The run that moved it here.
    pub run: String,
    /// RFC 3339.
    pub updated_at: String,
}

/// Reads a stream's state; none before its first incremental load.
pub fn read_state(blob: &dyn Blob, layout: &RunLayout, stream: &StreamName) -> Result<Option<State>> {
    let key = layout.state(stream);
    let bytes = object::read(blob, &key)?;
    bytes.map(|bytes| parse(&key, stream, &bytes)).transpose()
}

fn parse(key: &Key, stream: &StreamName, bytes: &[u8]) -> Result<State> {
    let state: State = serde_json::from_slice(bytes).map_err(|error| {
        let message = format!("the state `{key}` cannot be read: {error}");
        Error::new(ErrorKind::Staging, message)
    })?;
    if state.stream != stream.to_string() {
        let message = format!(
            "the state `{key}` is that of stream {}, not of {stream}",
            state.stream
        );
        return Err(Error::new(ErrorKind::Staging, message));
    }
    Ok(state)
}

/// Whether a stream of a run may still be loaded: the state is where the run's window starts, or this very run has
/// moved it. Otherwise another run has loaded the stream since; loading this one as well would write rows twice, or
/// put old versions of rows over newer ones.
pub(super) fn is_current(record: &StreamRecord, run: &str, state: Option<&State>) -> bool {
    let begun = record.mode.is_some() && record.status != StreamStatus::Done;
    let Some(window) = record.window().filter(|_| begun) else {
        return true;
    };
    match state.filter(|state| state.cursor_field == window.field) {
        Some(state) => state.run == run || Some(&state.cursor) == window.since.as_ref(),
        None => window.since.is_none(),
    }
}

/// Moves a stream's state to `cursor`, a value of the field's type in staged text form, unless it is there already
/// or further.
pub(super) fn move_state(
    blob: &dyn Blob,
    layout: &RunLayout,
    stream: &StreamName,
    (cursor_field, data_type): (&str, DataType),
    value: &str,
) -> Result<()> {
    let parsed = |text: &str| {
        CursorValue::from_text(data_type, text)
            .map_err(|error| Error::new(ErrorKind::Staging, format!("the cursor of {stream}: {error}")))
    };
    let key = layout.state(stream);
    loop {
        let (bytes, mut seen) = object::look(blob, &key)?;
        let current = bytes.map(|bytes| parse(&key, stream, &bytes)).transpose()?;
        if let Some(current) = current.filter(|state| state.cursor_field == cursor_field)
            && parsed(&current.cursor)? >= parsed(value)?
        {
            return Ok(());
        }
        let state = State {
            stream: stream.to_string(),
            cursor_field: cursor_field.to_owned(),
            cursor: value.to_owned(),
            run: layout.run().to_owned(),
            updated_at: super::now(),
        };
        let json = serde_json::to_vec_pretty(&state)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("the state of {stream}: {error}")))?;
        match object::replace(blob, &key, &json, &mut seen) {
            // Another run has moved it in between, perhaps further.
            Err(BlobError::Conflict { .. }) => {}
            moved => return Ok(moved?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Mutex;

    use super::super::record::CopyMode;
    use super::*;
    use crate::blob::{Body, Condition, Memory, ObjectInfo, Plain, Version};
    use crate::connector::WriteMode;
    use crate::pipeline::ReadMode;

    fn record(
        read: ReadMode,
        mode: Option<CopyMode>,
        since: Option<&str>,
        status: StreamStatus,
    ) -> StreamRecord {
        StreamRecord {
            stream: "s".into(),
            mode,
            read,
            write: WriteMode::Append,
            cursor: (read == ReadMode::Incremental).then(|| "at".into()),
            since: since.map(str::to_owned),
            since_inclusive: false,
            high_water_mark: None,
            status,
            rows: 0,
            error: None,
        }
    }

    fn state(field: &str, cursor: &str, run: &str) -> State {
        State {
            stream: "s".into(),
            cursor_field: field.into(),
            cursor: cursor.into(),
            run: run.into(),
            updated_at: String::new(),
        }
    }

    fn layout(run: &str) -> RunLayout {
        RunLayout::new("w", "p", run).expect("a layout")
    }

    #[test]
    fn the_state_moves_forwards_alone_and_by_the_order_of_its_field() {
        let stream: StreamName = "s".parse().expect("a name");
        let blobs: [Box<dyn Blob>; 2] = [Box::new(Memory::default()), Box::new(Plain::default())];
        for blob in blobs {
            let moved = |run: &str, field, value| {
                move_state(&*blob, &layout(run), &stream, field, value).expect("it is moved");
                let state = read_state(&*blob, &layout(run), &stream).expect("it is read");
                state.map(|state| (state.cursor, state.run))
            };
            let at = |cursor: &str, run: &str| Some((cursor.to_owned(), run.to_owned()));
            let id = ("id", DataType::Int64);
            assert_eq!(moved("a", id, "9"), at("9", "a"));
            // As texts they are the other way round.
            assert_eq!(moved("b", id, "10"), at("10", "b"));
            assert_eq!(moved("c", id, "9"), at("10", "b"));
            assert_eq!(moved("c", id, "10"), at("10", "b"));
            // What another field has come to says nothing of this one.
            assert_eq!(
                moved("d", ("day", DataType::Date), "2024-01-01"),
                at("2024-01-01", "d")
            );
        }
    }

    /// A store in which another run moves the state right after it was looked at.
    struct Contested {
        inner: Memory,
        rival: Mutex<Option<State>>,
    }

    impl Blob for Contested {
        fn put(&self, key: &Key, body: Body<'_>) -> Result<(), BlobError> {
            self.inner.put(key, body)
        }

        fn get(&self, key: &Key) -> Result<Box<dyn Read + Send>, BlobError> {
            self.inner.get(key)
        }

        fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, BlobError> {
            self.inner.list(prefix)
        }

        fn delete(&self, key: &Key) -> Result<(), BlobError> {
            self.inner.delete(key)
        }

        fn conditional(&self) -> Result<bool, BlobError> {
            Ok(true)
        }

        fn get_versioned(&self, key: &Key) -> Result<(Vec<u8>, Version), BlobError> {
            let found = self.inner.get_versioned(key);
            if let Some(state) = self.rival.lock().expect("whole").take() {
                let json = serde_json::to_vec(&state).expect("JSON");
                self.inner.put(key, Body::Bytes(&json))?;
            }
            found
        }

        fn put_if(&self, key: &Key, bytes: &[u8], condition: Condition<'_>) -> Result<Version, BlobError> {
            self.inner.put_if(key, bytes, condition)
        }

        fn describe(&self) -> String {
            self.inner.describe()
        }
    }

    #[test]
    fn a_run_that_moves_the_state_meanwhile_is_not_set_back() {
        let stream: StreamName = "s".parse().expect("a name");
        for (rival, expected) in [("20", "20"), ("7", "9")] {
            let blob = Contested {
                inner: Memory::default(),
                rival: Mutex::new(Some(state("id", rival, "b"))),
            };
            let id = ("id", DataType::Int64);
            move_state(&blob, &layout("a"), &stream, id, "9").expect("it is moved");
            let state = read_state(&blob, &layout("a"), &stream).expect("it is read");
            assert_eq!(state.map(|state| state.cursor).as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_run_is_stale_once_another_has_loaded_the_stream_further() {
        use ReadMode::{Full, Incremental};
        use StreamStatus::{Done, Extracted};
        let staged = Some(CopyMode::Staged);
        let cases = [
            (record(Incremental, staged, None, Extracted), None, true),
            (
                record(Incremental, staged, Some("5"), Extracted),
                Some(state("at", "5", "A")),
                true,
            ),
            (
                record(Incremental, staged, Some("5"), Extracted),
                Some(state("at", "9", "B")),
                false,
            ),
            (
                record(Incremental, staged, None, Extracted),
                Some(state("at", "9", "B")),
                false,
            ),
            // Its own load moved the state, and the process died before it said so.
            (
                record(Incremental, staged, Some("5"), Extracted),
                Some(state("at", "9", "mine")),
                true,
            ),
            // The state of another field says nothing.
            (
                record(Incremental, staged, None, Extracted),
                Some(state("id", "9", "B")),
                true,
            ),
            (
                record(Incremental, staged, Some("5"), Extracted),
                Some(state("id", "9", "B")),
                false,
            ),
            // Not begun: its window is taken when it begins. Done: nothing is loaded.
            (
                record(Incremental, None, None, StreamStatus::Pending),
                Some(state("at", "9", "B")),
                true,
            ),
            (
                record(Incremental, staged, Some("5"), Done),
                Some(state("at", "9", "B")),
                true,
            ),
            (
                record(Full, staged, None, Extracted),
                Some(state("at", "9", "B")),
                true,
            ),
        ];
        for (record, state, expected) in cases {
            assert_eq!(
                is_current(&record, "mine", state.as_ref()),
                expected,
                "{record:?} {state:?}"
            );
        }
    }
}
