//! `setu runs`: which runs there are.

use std::io::Write;

use super::args::RunsArguments;
use super::failure::Failure;
use super::output::Output;
use super::store::Store;
use super::text::{Align, Table, count};
use crate::runner::{RunRecord, RunStatus, StreamStatus};

/// Lists runs, the newest first.
pub(super) fn runs(arguments: &RunsArguments) -> Result<(), Failure> {
    let runs = Store::open(&arguments.store)?.runs()?;
    let mut output = Output::new();
    match arguments.json {
        true => output.json(&runs)?,
        false => write!(output, "{}", table(&runs))?,
    }
    output.done()
}

fn table(runs: &[RunRecord]) -> Table {
    let mut table = Table::new(&[
        ("RUN", Align::Left),
        ("PIPELINE", Align::Left),
        ("CREATED", Align::Left),
        ("STATUS", Align::Left),
        ("STREAMS", Align::Right),
        ("DONE", Align::Right),
        ("ROWS", Align::Right),
    ]);
    for run in runs {
        let done = run
            .streams
            .iter()
            .filter(|stream| stream.status == StreamStatus::Done)
            .count();
        table.row(vec![
            run.run.clone(),
            run.pipeline.clone(),
            run.created_at.clone(),
            run_status(run.status).to_owned(),
            run.streams.len().to_string(),
            done.to_string(),
            count(run.streams.iter().map(|stream| stream.rows).sum()),
        ]);
    }
    table
}

/// A run's status as a word. Whether a process is at work on an unfinished one cannot be told from its record.
pub(super) fn run_status(status: RunStatus) -> &'static str {
    match status {
        RunStatus::Running => "unfinished",
        RunStatus::Done => "done",
        RunStatus::Failed => "failed",
    }
}
