//! Where things are: every key, computed from (workspace, pipeline, run, qualified name) alone. (Skeleton.)

use crate::blob::Key;
use crate::record::StreamName;

/// An id that is not `[A-Za-z0-9][A-Za-z0-9_.-]{0,127}`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{what} `{id}` must start with a letter or digit and hold only letters, digits, `_`, `.` and `-`, 128 characters at most"
)]
pub struct IdError {
    /// "workspace", "pipeline" or "run".
    pub what: &'static str,
    /// The text given.
    pub id: String,
}

/// Checks an id of a workspace, a pipeline or a run; `what` says which.
pub fn check_id(what: &'static str, id: &str) -> Result<(), IdError> {
    let valid = id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id.len() <= 128
        && id
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
    if valid {
        Ok(())
    } else {
        Err(IdError {
            what,
            id: id.to_owned(),
        })
    }
}

/// The keys of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLayout {
    _private: (),
}

impl RunLayout {
    /// Checks the three ids.
    pub fn new(_workspace: &str, _pipeline: &str, _run: &str) -> Result<Self, IdError> {
        unimplemented!()
    }
    /// The prefix of all runs of the pipeline: `ws/<workspace>/pl/<pipeline>/run/`.
    pub fn runs_prefix(&self) -> String {
        unimplemented!()
    }
    /// `…/run/<run>/_run.json`
    pub fn run_record(&self) -> Key {
        unimplemented!()
    }
    /// `…/stream/<slug>/_manifest.json`
    pub fn manifest(&self, _stream: &StreamName) -> Key {
        unimplemented!()
    }
    /// `…/stream/<slug>/part-000000.jsonl.gz`
    pub fn part(&self, _stream: &StreamName, _index: usize) -> Key {
        unimplemented!()
    }
    /// `…/state/<slug>.json`, of the pipeline, not of the run
    pub fn state(&self, _stream: &StreamName) -> Key {
        unimplemented!()
    }
}

/// A stream's folder name.
pub fn slug(_qualified_name: &str) -> String {
    unimplemented!()
}
