//! A pipeline's state: for each incremental stream, how far it has been loaded, and which run is at it.
//!
//! The cursor moves only after a load has finished, and never backwards.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

use super::record::{StreamRecord, StreamStatus};
use crate::blob::object::{self, Seen};
use crate::blob::{Blob, BlobError, Key};
use crate::connector::{Error, ErrorKind, Result, WriteMode};
use crate::record::{DataType, StreamName};
use crate::staging::RunLayout;
use crate::staging::cursor::CursorValue;

/// What `state/<slug>.json` holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", try_from = "Stored", into = "Stored")]
pub struct State {
    /// The stream's qualified name.
    pub stream: String,
    /// How far it has been loaded; none before the first load has finished.
    pub reached: Option<Reached>,
    /// The run that has rows of the stream at the destination, or is about to, and has not finished its load.
    pub loading: Option<String>,
    /// RFC 3339.
    pub updated_at: String,
}

/// How far a stream has been loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reached {
    /// The field that the value is of.
    pub cursor_field: String,
    /// The high-water mark, in staged text form.
    pub cursor: String,
    /// The run that moved it here.
    pub run: String,
}

/// A state as it is stored.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    stream: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor_field: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loading: Option<String>,
    updated_at: String,
}

impl TryFrom<Stored> for State {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<Self, Self::Error> {
        let reached = match (stored.cursor_field, stored.cursor, stored.run) {
            (Some(cursor_field), Some(cursor), Some(run)) => Some(Reached {
                cursor_field,
                cursor,
                run,
            }),
            (None, None, None) => None,
            _ => return Err("of `cursorField`, `cursor` and `run` it has some and not all"),
        };
        Ok(State {
            stream: stored.stream,
            reached,
            loading: stored.loading,
            updated_at: stored.updated_at,
        })
    }
}

impl From<State> for Stored {
    fn from(state: State) -> Stored {
        let (cursor_field, cursor, run) = match state.reached {
            Some(reached) => (
                Some(reached.cursor_field),
                Some(reached.cursor),
                Some(reached.run),
            ),
            None => (None, None, None),
        };
        Stored {
            stream: state.stream,
            cursor_field,
            cursor,
            run,
            loading: state.loading,
            updated_at: state.updated_at,
        }
    }
}

impl State {
    /// How far the stream has been loaded by values of this field. What another field has come to says nothing of it.
    pub fn reached_by(&self, cursor_field: &str) -> Option<&Reached> {
        self.reached
            .as_ref()
            .filter(|reached| reached.cursor_field == cursor_field)
    }
}

/// Reads a stream's state; none before its first incremental load.
pub fn read_state(blob: &dyn Blob, layout: &RunLayout, stream: &StreamName) -> Result<Option<State>> {
    let key = layout.state(stream);
    let bytes = object::read(blob, &key)?;
    bytes.map(|bytes| parse(layout, &key, stream, &bytes)).transpose()
}

fn parse(layout: &RunLayout, key: &Key, stream: &StreamName, bytes: &[u8]) -> Result<State> {
    let unusable = |reason: &dyn Display| {
        let message = format!(
            "the state `{key}` cannot be read: {reason}; mend it, or remove it: a stream without one is read from its start"
        );
        Error::new(ErrorKind::Staging, message)
    };
    let state: State = serde_json::from_slice(bytes).map_err(|error| unusable(&error))?;
    if let Some(run) = &state.loading {
        RunLayout::new(layout.workspace(), layout.pipeline(), run).map_err(|error| unusable(&error))?;
    }
    if state.stream != stream.to_string() {
        let message = format!(
            "the state `{key}` is that of stream {}, not of {stream}",
            state.stream
        );
        return Err(Error::new(ErrorKind::Staging, message));
    }
    Ok(state)
}

/// Where the window of a new run starts; none: at the stream's start. A state of another cursor field says nothing of
/// that.
///
/// # Errors
/// `config` where all rows would be appended once more because the cursor field is another one now.
pub fn window_start(
    layout: &RunLayout,
    stream: &StreamName,
    state: Option<&State>,
    field: &str,
    write: WriteMode,
) -> Result<Option<String>> {
    let reached = state.and_then(|state| state.reached.as_ref());
    match reached.filter(|_| write == WriteMode::Append) {
        Some(reached) if reached.cursor_field != field => {
            let before = &reached.cursor_field;
            let message = format!(
                "stream {stream} has been loaded by its cursor `{before}`, and by `{field}` all of its rows would be \
                 appended once more: keep `cursor: {before}`, or empty the target and remove the state `{}`",
                layout.state(stream)
            );
            Err(Error::new(ErrorKind::Config, message))
        }
        _ => {
            let reached = state.and_then(|state| state.reached_by(field));
            Ok(reached.map(|reached| reached.cursor.clone()))
        }
    }
}

/// Whether a stream of a run may still be loaded: the state is where it was when the run began with the stream, or this
/// very run has moved it. Otherwise another run has loaded the stream since; loading this one as well would write rows
/// twice, or put old versions of rows over newer ones.
pub(super) fn is_current(record: &StreamRecord, run: &str, state: Option<&State>) -> bool {
    let begun = record.mode.is_some() && record.status != StreamStatus::Done;
    if record.window().is_none() || !begun {
        return true;
    }
    let reached = state.and_then(|state| state.reached.as_ref());
    reached == record.after.as_ref() || reached.is_some_and(|reached| reached.run == run)
}

/// Replaces a stream's state by what `change` makes of the present one, however often others replace it meanwhile;
/// none: it stays as it is. Answers what is known of the object that was written.
pub(super) fn change_state(
    blob: &dyn Blob,
    layout: &RunLayout,
    stream: &StreamName,
    mut change: impl FnMut(Option<&State>) -> Result<Option<State>>,
) -> Result<Option<Seen>> {
    let key = layout.state(stream);
    loop {
        let (bytes, mut seen) = object::look(blob, &key)?;
        let current = bytes
            .map(|bytes| parse(layout, &key, stream, &bytes))
            .transpose()?;
        let Some(state) = change(current.as_ref())? else {
            return Ok(None);
        };
        let json = serde_json::to_vec_pretty(&state)
            .map_err(|error| Error::new(ErrorKind::Internal, format!("the state of {stream}: {error}")))?;
        match object::replace(blob, &key, &json, &mut seen) {
            // Another run has changed it in between.
            Err(BlobError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
            Ok(()) => return Ok(Some(seen)),
        }
    }
}

/// Notes that a run's load of a stream has finished: the run is not at it any more, and the cursor moves to `value`, of
/// the field's type in staged text form, unless it is there already or further, or there is none.
pub(super) fn move_state(
    blob: &dyn Blob,
    layout: &RunLayout,
    stream: &StreamName,
    (cursor_field, data_type): (&str, DataType),
    value: Option<&str>,
) -> Result<()> {
    let parsed = |text: &str| {
        CursorValue::from_text(data_type, text)
            .map_err(|error| Error::new(ErrorKind::Staging, format!("the cursor of {stream}: {error}")))
    };
    let run = layout.run();
    change_state(blob, layout, stream, |current| {
        let before = current.and_then(|state| state.reached.clone());
        let there = current.and_then(|state| state.reached_by(cursor_field));
        let moves = match (there, value) {
            (_, None) => None,
            (None, Some(value)) => Some(value),
            // A source may order texts otherwise, so that what comes after the state may come before it here.
            (Some(there), Some(value)) if data_type == DataType::Text => {
                (there.cursor != value).then_some(value)
            }
            (Some(there), Some(value)) => (parsed(&there.cursor)? < parsed(value)?).then_some(value),
        };
        let loading = current.and_then(|state| state.loading.clone());
        let ends = loading.as_deref() == Some(run);
        if moves.is_none() && !ends {
            return Ok(None);
        }
        let reached = moves.map(|value| Reached {
            cursor_field: cursor_field.to_owned(),
            cursor: value.to_owned(),
            run: run.to_owned(),
        });
        Ok(Some(State {
            stream: stream.to_string(),
            reached: reached.or(before),
            loading: loading.filter(|_| !ends),
            updated_at: super::now(),
        }))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::sync::Mutex;

    use super::super::record::CopyMode;
    use super::*;
    use crate::blob::{Body, Condition, Memory, ObjectInfo, Plain, Version};
    use crate::pipeline::ReadMode;

    fn record(read: ReadMode, mode: Option<CopyMode>, status: StreamStatus) -> StreamRecord {
        StreamRecord {
            stream: "s".into(),
            mode,
            read,
            write: WriteMode::Append,
            cursor: (read == ReadMode::Incremental).then(|| "at".into()),
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

    fn state(field: &str, cursor: &str, run: &str) -> State {
        State {
            stream: "s".into(),
            reached: Some(Reached {
                cursor_field: field.into(),
                cursor: cursor.into(),
                run: run.into(),
            }),
            loading: None,
            updated_at: String::new(),
        }
    }

    /// Where it is, and which run moved it there.
    fn reached(state: Option<State>) -> Option<(String, String)> {
        let reached = state?.reached?;
        Some((reached.cursor, reached.run))
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
                move_state(&*blob, &layout(run), &stream, field, Some(value)).expect("it is moved");
                reached(read_state(&*blob, &layout(run), &stream).expect("it is read"))
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
            move_state(&blob, &layout("a"), &stream, id, Some("9")).expect("it is moved");
            let (cursor, _) =
                reached(read_state(&blob, &layout("a"), &stream).expect("it is read")).expect("a cursor");
            assert_eq!(cursor, expected);
        }
    }

    #[test]
    fn a_load_that_ends_leaves_the_stream_to_others_and_takes_nothing_from_them() {
        let stream: StreamName = "s".parse().expect("a name");
        let id = ("id", DataType::Int64);
        for (loading, value, expected) in [
            // Its own turn ends with or without rows.
            (Some("a"), Some("9"), (Some("9"), None)),
            (Some("a"), None, (Some("5"), None)),
            (Some("a"), Some("4"), (Some("5"), None)),
            (Some("b"), Some("9"), (Some("9"), Some("b"))),
            (Some("b"), None, (Some("5"), Some("b"))),
            (None, Some("9"), (Some("9"), None)),
        ] {
            let blob = Memory::default();
            let before = State {
                loading: loading.map(str::to_owned),
                ..state("id", "5", "z")
            };
            let json = serde_json::to_vec(&before).expect("JSON");
            let layout = layout("a");
            blob.put(&layout.state(&stream), Body::Bytes(&json))
                .expect("a put");
            move_state(&blob, &layout, &stream, id, value).expect("it is moved");
            let state = read_state(&blob, &layout, &stream)
                .expect("it is read")
                .expect("a state");
            let cursor = state.reached.as_ref().map(|reached| reached.cursor.as_str());
            assert_eq!(
                (cursor, state.loading.as_deref()),
                expected,
                "{loading:?} {value:?}"
            );
        }
    }

    #[test]
    fn a_state_reads_back_as_it_was_stored_and_is_whole_or_refused() {
        let first = r#"{"stream":"s","loading":"a","updatedAt":"t"}"#;
        let moved = r#"{"stream":"s","cursorField":"id","cursor":"9","run":"a","updatedAt":"t"}"#;
        for json in [first, moved] {
            let state: State = serde_json::from_str(json).expect("a state");
            assert_eq!(serde_json::to_string(&state).expect("JSON"), json);
        }
        let error = serde_json::from_str::<State>(r#"{"stream":"s","cursor":"9","updatedAt":"t"}"#)
            .expect_err("its field is missing");
        assert!(error.to_string().contains("`cursorField`"), "{error}");
    }

    #[test]
    fn what_is_damaged_in_a_state_is_named_with_the_way_out() {
        let (blob, stream) = (Memory::default(), "s".parse().expect("a name"));
        let layout = layout("a");
        for (json, expected) in [
            ("{", "EOF"),
            (r#"{"stream":"s","loading":"../x","updatedAt":"t"}"#, "`../x`"),
            (r#"{"stream":"s","loading":"","updatedAt":"t"}"#, "run"),
        ] {
            blob.put(&layout.state(&stream), Body::Bytes(json.as_bytes()))
                .expect("a put");
            let error = read_state(&blob, &layout, &stream).expect_err("it is damaged");
            assert_eq!(error.kind(), ErrorKind::Staging);
            let message = error.message();
            assert!(
                message.contains("`ws/w/pl/p/state/s.json`")
                    && message.contains("remove it")
                    && message.contains(expected),
                "{message}"
            );
        }
    }

    #[test]
    fn a_text_moves_in_the_order_of_its_source() {
        let (blob, stream) = (Memory::default(), "s".parse().expect("a name"));
        let name = ("name", DataType::Text);
        // By bytes the second is before the first; in most languages it is behind.
        for (run, value) in [("a", "a"), ("b", "B"), ("c", "c")] {
            move_state(&blob, &layout(run), &stream, name, Some(value)).expect("it is moved");
            let state = read_state(&blob, &layout(run), &stream).expect("it is read");
            assert_eq!(reached(state), Some((value.to_owned(), run.to_owned())));
        }
    }

    #[test]
    fn a_window_starts_at_the_state_of_its_field() {
        use WriteMode::{Append, Upsert};
        let (layout, stream) = (layout("a"), "s".parse().expect("a name"));
        let start = |state: Option<&State>, write| window_start(&layout, &stream, state, "at", write);
        let (here, elsewhere) = (state("at", "5", "z"), state("id", "7", "z"));
        for write in [Append, Upsert] {
            assert_eq!(start(None, write).expect("a window"), None);
            assert_eq!(start(Some(&here), write).expect("a window").as_deref(), Some("5"));
        }
        // From its start: what is there is replaced.
        assert_eq!(start(Some(&elsewhere), Upsert).expect("a window"), None);
        let error = start(Some(&elsewhere), Append).expect_err("rows would be doubled");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(
            error.message().contains("keep `cursor: id`")
                && error.message().contains("`ws/w/pl/p/state/s.json`"),
            "{error}"
        );
    }

    #[test]
    fn a_run_is_stale_once_another_has_loaded_the_stream() {
        use ReadMode::{Full, Incremental};
        use StreamStatus::{Done, Extracted, Pending};
        let staged = Some(CopyMode::Staged);
        let at_5 = state("at", "5", "A");
        for (read, mode, after, status, now, expected) in [
            (Incremental, staged, None, Extracted, None, true),
            (
                Incremental,
                staged,
                Some(&at_5),
                Extracted,
                Some(at_5.clone()),
                true,
            ),
            (
                Incremental,
                staged,
                Some(&at_5),
                Extracted,
                Some(state("at", "9", "B")),
                false,
            ),
            // Of the same name, and run anew.
            (
                Incremental,
                staged,
                Some(&at_5),
                Extracted,
                Some(state("at", "9", "A")),
                false,
            ),
            (
                Incremental,
                staged,
                None,
                Extracted,
                Some(state("at", "9", "B")),
                false,
            ),
            // Its own load moved the state, and the process died before it said so.
            (
                Incremental,
                staged,
                Some(&at_5),
                Extracted,
                Some(state("at", "9", "mine")),
                true,
            ),
            // Another field has been loaded by since.
            (
                Incremental,
                staged,
                None,
                Extracted,
                Some(state("id", "9", "B")),
                false,
            ),
            (
                Incremental,
                staged,
                Some(&at_5),
                Extracted,
                Some(state("id", "9", "B")),
                false,
            ),
            // Not begun: its window is taken when it begins. Done: nothing is loaded.
            (
                Incremental,
                None,
                None,
                Pending,
                Some(state("at", "9", "B")),
                true,
            ),
            (
                Incremental,
                staged,
                Some(&at_5),
                Done,
                Some(state("at", "9", "B")),
                true,
            ),
            (Full, staged, None, Extracted, Some(state("at", "9", "B")), true),
        ] {
            let record = StreamRecord {
                after: after.and_then(|state| state.reached.clone()),
                ..record(read, mode, status)
            };
            assert_eq!(
                is_current(&record, "mine", now.as_ref()),
                expected,
                "{record:?} {now:?}"
            );
        }
    }
}
