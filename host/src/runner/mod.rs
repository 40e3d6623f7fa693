//! Runs: what is copied, in which order, and what is remembered of it.
//!
//! [`run`] carries out one invocation: it finds or makes the run ([`RunRecord`]), decides about each stream and
//! copies the streams in parallel. The rows themselves are moved by the copy loop, which knows nothing of runs. Not
//! here: how people are told (an [`Observer`] of the command line's), and what a pipeline file looks like.

mod choose;
mod copy;
mod gc;
mod give_up;
mod guarded;
mod lease;
mod marks;
mod prepare;
mod process;
mod queue;
mod record;
mod schedule;
mod state;
mod stream;
mod track;
mod turn;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::blob::Blob;
use crate::connector::{Error, ErrorKind, Result, Role};
use crate::pipeline::Job;
use crate::plugin::Plugin;

pub use copy::{Commits, Control, Copied, copy};
pub use gc::{Collected, Retention, collect};
pub use give_up::{LeftBehind, give_up};
pub use lease::{LeaseRecord, at_work};
pub use process::Process;
pub use record::{
    Attempts, CopyMode, RunRecord, RunStatus, StreamRecord, StreamStatus, list_records, read_record,
    records_among, unfinished,
};
pub use state::{Reached, State, read_state, window_start};

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
    /// Take the run over from a process that is at work on it.
    pub take_over: bool,
}

/// What a run needs from the process that it runs in.
pub struct Environment {
    /// The source's connector; needed unless only the load half runs.
    pub source: Option<Arc<Plugin>>,
    /// The destination's connector; needed unless only the extract half runs.
    pub destination: Option<Arc<Plugin>>,
    /// The blob store.
    pub blob: Arc<dyn Blob>,
    /// Set when the user interrupts.
    pub cancel: CancellationToken,
    /// Told of everything that happens, from many threads.
    pub observer: Arc<dyn Observer>,
}

impl Options {
    /// Whether this invocation is about a stream.
    fn wants(&self, qualified_name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == qualified_name)
    }
}

impl Environment {
    /// The connector of one side.
    fn plugin(&self, role: Role) -> Result<&Plugin> {
        let plugin = match role {
            Role::Source => &self.source,
            Role::Destination => &self.destination,
        };
        plugin.as_deref().ok_or_else(|| {
            let message = format!("the {role}'s connector was not loaded; this is a defect of Setu");
            Error::new(ErrorKind::Internal, message)
        })
    }
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
    /// How often the sandbox refused a connector something in this invocation.
    pub denials: u64,
    /// Why it failed.
    pub error: Option<String>,
    /// No further attempt of this run can help.
    #[serde(skip)]
    pub run_over: bool,
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
pub fn run(job: &Job, options: &Options, environment: &Environment) -> Result<Report> {
    let started = std::time::Instant::now();
    let prepared = prepare::prepare(job, options, environment)?;
    let streams = schedule::carry_out(&prepared)?;
    let modes: Vec<_> = streams.iter().filter_map(|(_, mode)| *mode).collect();
    let mode = match modes.first() {
        Some(first) if modes.iter().any(|mode| mode != first) => "mixed",
        Some(CopyMode::Direct) => "direct",
        _ => "staged",
    };
    Ok(Report {
        run: prepared.context.layout.run().to_owned(),
        mode: mode.to_owned(),
        streams: streams.into_iter().map(|(report, _)| report).collect(),
        elapsed_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// This moment in RFC 3339, UTC, with milliseconds.
fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}
