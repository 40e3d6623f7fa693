//! A pipeline's state: for each incremental stream, how far it has been loaded.
//!
//! It moves only after a load has finished, and never backwards.

use std::io::Read;

use serde::{Deserialize, Serialize};

use crate::blob::{Blob, BlobError, Body};
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
    let unreadable = |error: &dyn std::fmt::Display| {
        Error::new(
            ErrorKind::Staging,
            format!("the state `{key}` cannot be read: {error}"),
        )
    };
    let mut bytes = Vec::new();
    match blob.get(&key) {
        Ok(mut object) => object
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(&error))?,
        Err(BlobError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let state: State = serde_json::from_slice(&bytes).map_err(|error| unreadable(&error))?;
    if state.stream != stream.to_string() {
        let message = format!(
            "the state `{key}` is that of stream {}, not of {stream}",
            state.stream
        );
        return Err(Error::new(ErrorKind::Staging, message));
    }
    Ok(Some(state))
}

/// Moves a stream's state to `cursor`, a value of the field's type in staged text form, unless it is there already
/// or further.
pub fn move_state(
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
    let current = read_state(blob, layout, stream)?.filter(|state| state.cursor_field == cursor_field);
    if let Some(current) = current
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
    Ok(blob.put(&layout.state(stream), Body::Bytes(&json))?)
}
