//! Before the first row: which run this is, and which streams it has.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::record::{CopyMode, RunRecord, RunStatus, SharedRecord, StreamRecord, StreamStatus, list_records};
use super::state::read_state;
use super::stream::RunContext;
use super::{Environment, Event, Half, Mode, Options};
use crate::connector::registry::Registry;
use crate::connector::{Error, ErrorKind, Result, Role, WriteMode};
use crate::pipeline::{ConnectorSpec, Job, Selected, select};
use crate::plugin::{OpenContext, Plugin};
use crate::record::StreamInfo;
use crate::staging::RunLayout;

/// A run that is ready to go.
pub(super) struct Prepared<'a> {
    pub(super) context: RunContext<'a>,
    pub(super) record: RunRecord,
    /// The streams that this invocation copies.
    pub(super) streams: Vec<PlannedStream>,
}

/// One of them.
pub(super) struct PlannedStream {
    pub(super) record: StreamRecord,
    /// What the source says of it; none where only the load half runs.
    pub(super) info: Option<StreamInfo>,
}

/// Finds or makes the run, and writes its record, so that it is remembered before it starts.
pub(super) fn prepare<'a>(
    job: &'a Job,
    options: &'a Options,
    environment: &'a Environment,
) -> Result<Prepared<'a>> {
    let (extracts, loads) = match options.half {
        Half::Both => (true, true),
        Half::Extract => (true, false),
        Half::Load { .. } => (false, true),
    };
    let source = extracts
        .then(|| plugin(environment, Role::Source, &job.source))
        .transpose()?;
    let destination = loads
        .then(|| plugin(environment, Role::Destination, &job.destination))
        .transpose()?;
    let (layout, infos, resumed) = match &source {
        Some(source) => find_or_make(job, options, environment, source)?,
        None => {
            let layout = layout(job, options.run.as_deref().unwrap_or_default())?;
            await_staged(options, environment, &layout)?;
            (layout, Vec::new(), true)
        }
    };
    let shared = SharedRecord::new(environment.blob.clone(), &layout);
    let record = shared.update(|record| {
        record.attempts.extract += u64::from(extracts);
        record.attempts.load += u64::from(loads);
    })?;
    let streams = wanted(&record, options, infos)?;
    let names: Vec<_> = streams
        .iter()
        .map(|stream| stream.record.stream.clone())
        .collect();
    environment.observer.event(Event::RunStarted {
        run: layout.run(),
        resumed,
        streams: &names,
    });
    let context = RunContext {
        job,
        options,
        environment,
        layout,
        record: shared,
        source,
        destination,
    };
    Ok(Prepared {
        context,
        record,
        streams,
    })
}

/// The connector of one side, which must be able to play its part.
pub fn plugin(environment: &Environment, role: Role, spec: &ConnectorSpec) -> Result<Arc<Plugin>> {
    let component = Registry::from_env().resolve(&spec.connector)?;
    let plugin = environment.plugins.load(&component.origin, &component.bytes)?;
    let able = match role {
        Role::Source => plugin.is_source(),
        Role::Destination => plugin.is_destination(),
    };
    if able {
        return Ok(plugin);
    }
    let message = format!(
        "connector `{}` ({}) cannot be used as a {role}",
        spec.connector, component.origin
    );
    Err(Error::new(ErrorKind::Config, message))
}

/// The run to go on with, or a new one, whose record is then stored: its layout, what the source says of its streams,
/// and whether it is an old one.
fn find_or_make(
    job: &Job,
    options: &Options,
    environment: &Environment,
    source: &Plugin,
) -> Result<(RunLayout, Vec<StreamInfo>, bool)> {
    let context = OpenContext {
        run: String::new(),
        stream: None,
        cancel: environment.cancel.clone(),
    };
    let discovered = source.open_source(&job.source, &context)?.discover()?;
    let named = options.run.as_deref();
    let first = layout(job, named.unwrap_or("unnamed"))?;
    if named.is_some() && super::read_record(&*environment.blob, &first.run_record())?.is_some() {
        // A run that was named goes on with the streams that it has; the source may have others by now.
        return Ok((first, discovered, true));
    }
    let selected = select(&job.streams, &discovered);
    let selected = selected.map_err(|error| Error::new(ErrorKind::Config, error.to_string()))?;
    let mut streams = Vec::with_capacity(selected.len());
    for selected in selected {
        streams.push(stream_record(environment, &first, selected)?);
    }
    let config = digest(job, environment);
    if named.is_none()
        && let Some(newest) = newest_unfinished(environment, &first)?
        && newest.continues(&config, &streams, requested(options.mode))
    {
        return Ok((layout(job, &newest.run)?, discovered, true));
    }
    let layout = match named {
        Some(_) => first,
        None => layout(job, &new_run_id())?,
    };
    let record = RunRecord::new(&layout, config, streams);
    SharedRecord::new(environment.blob.clone(), &layout).create(&record)?;
    Ok((layout, discovered, false))
}

fn newest_unfinished(environment: &Environment, layout: &RunLayout) -> Result<Option<RunRecord>> {
    let records = list_records(&*environment.blob, layout)?;
    Ok(records
        .into_iter()
        .find(|record| record.status == RunStatus::Running))
}

/// What a new run will remember of a stream. Its window starts at the state as it is now.
fn stream_record(environment: &Environment, layout: &RunLayout, selected: Selected) -> Result<StreamRecord> {
    let state = match &selected.cursor {
        Some(field) => read_state(&*environment.blob, layout, &selected.stream.name)?
            // A state of another cursor field says nothing about this one: the stream is read from the start.
            .filter(|state| state.cursor_field == *field),
        None => None,
    };
    Ok(StreamRecord {
        stream: selected.stream.name.to_string(),
        mode: None,
        read: selected.mode,
        write: selected.write,
        cursor: selected.cursor,
        since: state.map(|state| state.cursor),
        // Rows that tie on the cursor may have come after the last run read it; an upsert takes them twice unharmed.
        since_inclusive: selected.write == WriteMode::Upsert,
        high_water_mark: None,
        status: StreamStatus::Pending,
        rows: 0,
        error: None,
    })
}

/// Makes sure that a run whose load half starts was begun; with `--wait`, waits for that.
fn await_staged(options: &Options, environment: &Environment, layout: &RunLayout) -> Result<()> {
    let wait = options.half == Half::Load { wait: true };
    loop {
        if super::read_record(&*environment.blob, &layout.run_record())?.is_some() {
            return Ok(());
        }
        if !wait {
            let (run, store) = (layout.run(), environment.blob.describe());
            let message = format!(
                "run `{run}` has not been extracted into {store}: run `setu extract` with the same `--run` first, or wait for it with `--wait`"
            );
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        if environment.cancel.is_cancelled() {
            return Err(super::copy::interrupted());
        }
        std::thread::sleep(super::stream::WAIT);
    }
}

/// The streams of the run that this invocation is about.
fn wanted(record: &RunRecord, options: &Options, infos: Vec<StreamInfo>) -> Result<Vec<PlannedStream>> {
    for name in &options.only {
        if record.stream(name).is_none() {
            let known: Vec<_> = record
                .streams
                .iter()
                .map(|stream| stream.stream.as_str())
                .collect();
            let message = format!(
                "run `{}` has no stream `{name}`; it has: {}",
                record.run,
                known.join(", ")
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
    }
    let is_wanted = |stream: &&StreamRecord| options.only.is_empty() || options.only.contains(&stream.stream);
    let planned = record
        .streams
        .iter()
        .filter(is_wanted)
        .map(|stream| PlannedStream {
            record: stream.clone(),
            info: infos
                .iter()
                .find(|info| info.name.to_string() == stream.stream)
                .cloned(),
        });
    Ok(planned.collect())
}

fn requested(mode: Mode) -> Option<CopyMode> {
    match mode {
        Mode::Auto => None,
        Mode::Direct => Some(CopyMode::Direct),
        Mode::Staged => Some(CopyMode::Staged),
    }
}

fn layout(job: &Job, run: &str) -> Result<RunLayout> {
    let layout = RunLayout::new(&job.workspace, &job.pipeline, run);
    layout.map_err(|error| Error::new(ErrorKind::Config, error.to_string()))
}

/// `20261201T031502Z-4f9a1c`: sorts by time, and two started in the same second differ.
fn new_run_id() -> String {
    format!(
        "{}-{:06x}",
        chrono::Utc::now().format("%Y%m%dT%H%M%SZ"),
        fastrand::u32(..1 << 24)
    )
}

/// A digest of both connectors and their configuration, without secrets. A side whose connector is not at hand
/// (the other half runs elsewhere) counts by its name only.
fn digest(job: &Job, environment: &Environment) -> String {
    let side = |role, spec: &ConnectorSpec| {
        let config = plugin(environment, role, spec)
            .ok()
            .map(|plugin| plugin.redact(role, &spec.config));
        serde_json::json!({ "connector": spec.connector, "config": config })
    };
    let sides = [
        side(Role::Source, &job.source),
        side(Role::Destination, &job.destination),
    ];
    let digest = Sha256::digest(serde_json::Value::from(sides.to_vec()).to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_valid_and_differ() {
        let (a, b) = (new_run_id(), new_run_id());
        assert!(RunLayout::new("default", "p", &a).is_ok(), "{a}");
        assert_ne!(a, b);
    }
}
