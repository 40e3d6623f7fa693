//! The pipeline file and the job that it becomes.
//!
//! A [`Job`] is all that either half needs to know: it is what the runner works from, and what
//! `setu plan --job-out` writes for an agent. The YAML file, its `${VAR}`s, its defaults and its mistakes are dealt
//! with here and nowhere else.

pub(crate) mod decode;
mod file;
mod job_file;
mod limits;
mod lock;
mod select;
mod variables;
pub(crate) mod yaml;

pub use file::{DEFAULT_BLOB_ROOT, Mistakes, PipelineFile, default_staging};
pub use limits::{Limit, LimitSpec};
pub use lock::{LOCK_FILE, Lock, Pin};
pub use select::{SelectError, Selected, select};
pub use variables::Lookup;
pub(crate) use variables::is_name;
pub use yaml::{Mistake, Place};

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::blob;
use crate::connector::WriteMode;

/// One pipeline, with every default filled in, every variable replaced and every path absolute.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Where the pipeline belongs; `default` unless the file says otherwise.
    pub workspace: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// Where rows come from.
    pub source: ConnectorSpec,
    /// Where rows go.
    pub destination: ConnectorSpec,
    /// What is moved, in the order of the file: the first entry that matches a stream decides about it.
    pub streams: Vec<StreamSpec>,
    /// Where rows are staged.
    pub staging: blob::Spec,
    /// In a job that was written for an agent, the digest of each connector that is not part of Setu, by what the
    /// sides call it: the agent takes this code and no other.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub plugins: BTreeMap<String, String>,
}

/// One side of a pipeline.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConnectorSpec {
    /// A bundled name, a name found in `SETU_PLUGIN_PATH`, or the absolute path of a `.wasm` file.
    pub connector: String,
    /// The connector's configuration, a JSON object. May hold secrets.
    pub config: serde_json::Value,
    /// The folder that relative paths in `config` are relative to: that of the pipeline file.
    pub base: PathBuf,
    /// Grants beyond those that the configuration implies.
    #[serde(default)]
    pub grant: GrantSpec,
    /// Limits that differ from the defaults.
    #[serde(default)]
    pub limits: LimitSpec,
}

/// Grants as a pipeline file spells them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct GrantSpec {
    /// `host:port`, `*.name:port`, `10.0.0.0/8:port`.
    pub network: Vec<String>,
    /// Files and folders that may be read.
    pub read: Vec<String>,
    /// Files and folders that may be read and written.
    pub write: Vec<String>,
    /// Names of environment variables.
    pub env: Vec<String>,
}

/// What is done with the streams that a name or pattern matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamSpec {
    /// A qualified name, or a glob over qualified names.
    pub name: String,
    /// All rows, or those that are new since the last run.
    pub mode: ReadMode,
    /// The cursor field of an incremental stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// What happens to existing rows; none: overwrite for `full`, upsert for `incremental` with a primary key and
    /// append without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write: Option<WriteMode>,
    /// Where the entry stands, `orders.yaml:12:5`, for messages; none in a job that was read from JSON.
    #[serde(skip)]
    pub place: Option<String>,
}

/// Which rows of a stream are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReadMode {
    /// All of them.
    #[default]
    Full,
    /// Those beyond the last run's high-water mark.
    Incremental,
}

impl fmt::Display for ReadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReadMode::Full => "full",
            ReadMode::Incremental => "incremental",
        })
    }
}

// A configuration and a blob store's keys may be secrets; neither is shown.
impl fmt::Debug for ConnectorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectorSpec")
            .field("connector", &self.connector)
            .field("base", &self.base)
            .field("grant", &self.grant)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("workspace", &self.workspace)
            .field("pipeline", &self.pipeline)
            .field("source", &self.source)
            .field("destination", &self.destination)
            .field("streams", &self.streams)
            .finish_non_exhaustive()
    }
}
