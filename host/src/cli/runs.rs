//! `setu runs`: which runs there are.

use std::io::Write;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;

use super::args::RunsArguments;
use super::failure::Failure;
use super::output::Output;
use super::store::{Store, layout_of, sizes};
use super::text::{Align, Table, count, size};
use crate::runner::{LeaseRecord, RunRecord, RunStatus, StreamStatus};

/// Lists runs, the newest first.
pub(super) fn runs(arguments: &RunsArguments) -> Result<(), Failure> {
    let store = Store::open(&arguments.store)?;
    let objects = store.objects()?;
    let sizes = sizes(&objects);
    let runs = store.runs_among(&objects)?.into_iter().map(|record| {
        let layout = layout_of(&record)?;
        Ok(Line {
            at_work: store.at_work(&record, &layout)?,
            bytes: sizes.get(&layout.run_prefix()).copied().unwrap_or(0),
            record,
        })
    });
    let runs = runs.collect::<Result<Vec<_>, Failure>>()?;
    let mut output = Output::new();
    match arguments.json {
        true => output.json(&runs.iter().map(as_json).collect::<Result<Vec<_>, _>>()?)?,
        false => write!(output, "{}", table(&runs, chrono::Utc::now()))?,
    }
    output.done()
}

/// A run, and what its record does not say.
struct Line {
    record: RunRecord,
    at_work: Option<LeaseRecord>,
    /// Of all its objects.
    bytes: u64,
}

fn as_json(line: &Line) -> Result<serde_json::Value, Failure> {
    let record = serde_json::to_value(&line.record);
    let mut json = record.map_err(|error| Failure::failed(error.to_string()))?;
    json["bytes"] = line.bytes.into();
    json["atWork"] = line.at_work.as_ref().map_or(
        serde_json::Value::Null,
        |lease| json!({ "host": lease.process.host, "process": lease.process.id, "since": lease.since }),
    );
    Ok(json)
}

fn table(runs: &[Line], now: DateTime<Utc>) -> Table {
    let mut table = Table::new(&[
        ("RUN", Align::Left),
        ("PIPELINE", Align::Left),
        ("STATUS", Align::Left),
        ("AGE", Align::Right),
        ("STREAMS", Align::Right),
        ("DONE", Align::Right),
        ("ROWS", Align::Right),
        ("SIZE", Align::Right),
    ]);
    for Line {
        record,
        at_work,
        bytes,
    } in runs
    {
        let done = record
            .streams
            .iter()
            .filter(|stream| stream.status == StreamStatus::Done)
            .count();
        table.row(vec![
            record.run.clone(),
            record.pipeline.clone(),
            run_status(record.status, at_work.as_ref()),
            age(&record.created_at, now),
            record.streams.len().to_string(),
            done.to_string(),
            count(record.streams.iter().map(|stream| stream.rows).sum()),
            size(*bytes),
        ]);
    }
    table
}

/// How long ago a run was made.
fn age(created_at: &str, now: DateTime<Utc>) -> String {
    let created = DateTime::parse_from_rfc3339(created_at).ok();
    let since = created.and_then(|created| (now - created.to_utc()).to_std().ok());
    since.map_or_else(|| "-".to_owned(), age_of)
}

fn age_of(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A run's status in a word or two.
pub(super) fn run_status(status: RunStatus, at_work: Option<&LeaseRecord>) -> String {
    match (status, at_work) {
        (RunStatus::Done, _) => "done".to_owned(),
        (_, Some(lease)) => format!("running ({})", lease.process),
        (RunStatus::Running, None) => "unfinished".to_owned(),
        (RunStatus::Failed, None) => "failed".to_owned(),
        (RunStatus::GivenUp, None) => "given up".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_in_the_unit_that_matters() {
        for (seconds, expected) in [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (7200, "2 h"),
            (172_800, "2 d"),
        ] {
            assert_eq!(age_of(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(age("yesterday", Utc::now()), "-");
    }
}
