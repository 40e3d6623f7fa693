//! Runs: what is copied, in which order, and what is remembered of it. (Skeleton: what the command line builds on.)

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::blob::Blob;
use crate::connector::Result;
use crate::pipeline::Job;
use crate::plugin::Plugins;

/// Which halves one invocation carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Extract and load, direct or staged.
    Both,
    /// Source to blob store.
    Extract,
    /// Blob store to destination; `wait`: each stream as it becomes complete.
    Load {
        /// Wait for streams that are still extracting.
        wait: bool,
    },
}

/// Whether rows go through the blob store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Direct up to a number of rows, staged beyond.
    #[default]
    Auto,
    /// Source to destination.
    Direct,
    /// Through the blob store.
    Staged,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which halves.
    pub half: Half,
    /// The run's id; none: the pipeline's newest unfinished run, or a new one.
    pub run: Option<String>,
    /// Direct or staged.
    pub mode: Mode,
    /// Only streams of these qualified names; empty: all.
    pub only: Vec<String>,
    /// In mode `auto`, the most rows that go direct.
    pub direct_max_rows: u64,
    /// How many streams are copied at the same time.
    pub parallel: usize,
}

/// What a run needs from the process that it runs in.
pub struct Environment {
    /// The plugin engine.
    pub plugins: Arc<Plugins>,
    /// The blob store.
    pub blob: Arc<dyn Blob>,
    /// Set when the user interrupts.
    pub cancel: CancellationToken,
    /// Told of everything that happens, from many threads.
    pub observer: Arc<dyn Observer>,
}

/// Is told what happens in a run, for people to see.
pub trait Observer: Send + Sync {
    /// Something happened. Must not block for long.
    fn event(&self, event: Event<'_>);
}

/// What an [`Observer`] is told.
#[derive(Clone, Debug)]
pub enum Event<'a> {
    /// The run's id is known, and whether it goes on with an earlier attempt.
    RunStarted {
        /// Its id.
        run: &'a str,
        /// An unfinished run is continued.
        resumed: bool,
        /// The qualified names of its streams.
        streams: &'a [String],
    },
    /// A stream starts one phase of its copy.
    StreamStarted {
        /// Its qualified name.
        stream: &'a str,
        /// What happens now.
        phase: Phase,
        /// Roughly how many rows are to come.
        estimated_rows: Option<u64>,
        /// Rows that an earlier attempt had copied already.
        rows_done: u64,
    },
    /// More rows of a stream have arrived.
    Progress {
        /// Its qualified name.
        stream: &'a str,
        /// How many more.
        rows: u64,
        /// Bytes of column data.
        bytes: u64,
    },
    /// A stream is done or has failed.
    StreamFinished {
        /// How it ended.
        report: &'a StreamReport,
    },
    /// Something that a person should know.
    Note {
        /// One line.
        message: &'a str,
    },
}

/// What happens to a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Source to blob store.
    Extract,
    /// Blob store to destination.
    Load,
    /// Source to destination.
    Direct,
}

/// How a run went: what `--report` writes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Its id.
    pub run: String,
    /// `direct`, `staged`, or `mixed` where streams differ.
    pub mode: String,
    /// In the pipeline's order.
    pub streams: Vec<StreamReport>,
    /// From start to end.
    pub elapsed_ms: u64,
}

/// How one stream went.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamReport {
    /// Its qualified name.
    pub stream: String,
    /// Done or failed.
    pub status: Status,
    /// Rows of the stream in this run, those of earlier attempts included.
    pub rows: u64,
    /// Bytes of column data that this process copied.
    pub bytes: u64,
    /// Parts of the stream; 0 for a direct copy.
    pub parts: u64,
    /// Parts that an earlier attempt had done already.
    pub parts_skipped: u64,
    /// The high-water mark of an incremental stream.
    pub cursor: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

/// Whether a stream is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All of it.
    #[default]
    Done,
    /// It stopped at an error.
    Failed,
    /// The user stopped it; the same command goes on.
    Interrupted,
}

/// Carries a run out. An error is one that concerns the run as a whole, before any stream was touched; the errors of
/// streams are in the report.
pub fn run(_job: &Job, _options: &Options, _environment: &Environment) -> Result<Report> {
    unimplemented!()
}
