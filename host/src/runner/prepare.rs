//! Before the first row: which run this is, and which streams it has.

use std::collections::HashMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::lease::{Leases, Side};
use super::record::{CopyMode, RunRecord, RunStatus, SharedRecord, StreamRecord, StreamStatus, unfinished};
use super::state::{Reached, is_current, read_state};
use super::stream::RunContext;
use super::{Environment, Event, Half, Mode, Options};
use crate::connector::{Error, ErrorKind, Result, Role, WriteMode};
use crate::pipeline::{ConnectorSpec, Job, Selected, select};
use crate::plugin::{Denials, OpenContext, Plugin};
use crate::record::{StreamInfo, StreamName};
use crate::staging::{Manifest, RunLayout, slug, staged_streams};

/// A run that is ready to go.
pub(super) struct Prepared<'a> {
    /// Held as long as the run is under way.
    pub(super) leases: Leases,
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
    /// What the sandbox refused either end, in every attempt.
    pub(super) denials: Denials,
}

/// Finds or makes the run, and writes its record, so that it is remembered before it starts.
pub(super) fn prepare<'a>(
    job: &'a Job,
    options: &'a Options,
    environment: &'a Environment,
) -> Result<Prepared<'a>> {
    let sides: &[Side] = match options.half {
        Half::Both => &[Side::Extract, Side::Load],
        Half::Extract => &[Side::Extract],
        Half::Load { .. } => &[Side::Load],
    };
    let found = match options.half {
        Half::Both | Half::Extract => find_or_make(job, options, environment)?,
        Half::Load { .. } => await_staged(job, options, environment)?,
    };
    let Found {
        record,
        layout,
        is_new,
        ..
    } = found;
    let leases = Leases::take(
        &environment.blob,
        &layout,
        sides,
        options.take_over,
        record.attempts,
    )?;
    let fence = leases.fence();
    let shared = SharedRecord::new(environment.blob.clone(), &layout, fence.clone());
    // Another process may have made the run of this name while this one had not yet the leases.
    let resumed = !is_new || shared.read()?.is_some();
    if !resumed {
        shared.create(&record)?;
    }
    let record = shared.update(|record| {
        for (side, attempt) in leases.attempts() {
            record.attempts.set(side, attempt);
        }
        let wanted = |stream: &&mut StreamRecord| options.wants(&stream.stream);
        record
            .streams
            .iter_mut()
            .filter(wanted)
            .for_each(StreamRecord::begun);
    })?;
    if record.status == RunStatus::GivenUp {
        let message = format!(
            "run `{}` was given up, and nothing goes on with it: start a new run",
            layout.run()
        );
        return Err(Error::new(ErrorKind::Conflict, message));
    }
    let streams = wanted(&record, options, found.discovered)?;
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
        fence,
    };
    Ok(Prepared {
        leases,
        context,
        record,
        streams,
    })
}

/// A run, of which nothing has been written if it is new.
struct Found {
    layout: RunLayout,
    record: RunRecord,
    /// What the source says of its streams; nothing where only the load half runs.
    discovered: Vec<StreamInfo>,
    is_new: bool,
}

/// The run to go on with, or a new one.
fn find_or_make(job: &Job, options: &Options, environment: &Environment) -> Result<Found> {
    let context = OpenContext {
        run: String::new(),
        stream: None,
        cancel: environment.cancel.clone(),
        denials: Denials::default(),
    };
    let source = environment.plugin(Role::Source)?;
    let discovered = source.open_source(&job.source, &context)?.discover()?;
    let named = options.run.as_deref();
    let first = layout(job, named.unwrap_or("unnamed"))?;
    if named.is_some()
        && let Some(record) = super::read_record(&*environment.blob, &first.run_record())?
    {
        // A run that was named goes on with the streams that it has; the source may have others by now.
        return Ok(Found {
            layout: first,
            record,
            discovered,
            is_new: false,
        });
    }
    let selected = select(&job.streams, &discovered);
    let selected = selected.map_err(|error| Error::new(ErrorKind::Config, error.to_string()))?;
    have_places_of_their_own(selected.iter().map(|selected| &selected.stream.name))?;
    let streams: Vec<_> = selected.into_iter().map(stream_record).collect();
    let config = digest(job, environment);
    if named.is_none()
        && let Some(newest) = unfinished(&*environment.blob, &first)?
    {
        let layout = layout(job, &newest.run)?;
        let mut differs = newest.differs(&config, &streams, requested(options.mode));
        if differs.is_none() && is_stale(environment, &layout, &newest, &discovered)? {
            differs = Some("another run has loaded its streams further");
        }
        let Some(reason) = differs else {
            return Ok(Found {
                layout,
                record: newest,
                discovered,
                is_new: false,
            });
        };
        let message = format!("the unfinished run {} is left as it is: {reason}", newest.run);
        environment.observer.event(Event::Note { message: &message });
    }
    let layout = match named {
        Some(_) => first,
        None => layout(job, &new_run_id())?,
    };
    Ok(Found {
        record: RunRecord::new(&layout, config, streams),
        layout,
        discovered,
        is_new: true,
    })
}

/// Whether another run has loaded a stream of this unfinished one further, so that it must not be loaded any more.
fn is_stale(
    environment: &Environment,
    layout: &RunLayout,
    record: &RunRecord,
    discovered: &[StreamInfo],
) -> Result<bool> {
    let streams: HashMap<&str, &StreamRecord> = record
        .streams
        .iter()
        .map(|stream| (stream.stream.as_str(), stream))
        .collect();
    for info in discovered {
        let stream = streams.get(info.name.to_string().as_str());
        let Some(stream) = stream.filter(|stream| stream.window().is_some()) else {
            continue;
        };
        let state = match read_state(&*environment.blob, layout, &info.name) {
            // It concerns this stream alone, and ends it when its turn comes.
            Err(error) if error.kind() == ErrorKind::Staging => continue,
            state => state?,
        };
        if !is_current(stream, layout.run(), state.as_ref()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Streams are told apart in the blob store by their slugs, of which few bits are a hash: whoever chooses the names can
/// have two of them meet.
fn have_places_of_their_own<'a>(streams: impl Iterator<Item = &'a StreamName>) -> Result<()> {
    let mut places: HashMap<String, &StreamName> = HashMap::new();
    for stream in streams {
        let slug = slug(&stream.to_string());
        if let Some(other) = places.insert(slug.clone(), stream) {
            let message = format!(
                "the streams {other} and {stream} would lie at the same place `{slug}` in the blob store: rename one of \
                 them at the source, or leave it to another pipeline"
            );
            return Err(Error::new(ErrorKind::Config, message));
        }
    }
    Ok(())
}

/// What a new run will remember of a stream. Where its window starts is decided when the run begins with it.
pub(super) fn stream_record(selected: Selected) -> StreamRecord {
    StreamRecord {
        stream: selected.stream.name.to_string(),
        mode: None,
        read: selected.mode,
        write: selected.write,
        cursor: selected.cursor,
        since: None,
        // Rows that tie on the cursor may have come after the last run read it; an upsert takes them twice unharmed.
        since_inclusive: selected.write == WriteMode::Upsert,
        after: None,
        load_begun: false,
        high_water_mark: None,
        status: StreamStatus::Pending,
        rows: 0,
        error: None,
    }
}

/// The run whose load half starts, which must have been begun; with `--wait`, waits for that.
fn await_staged(job: &Job, options: &Options, environment: &Environment) -> Result<Found> {
    let layout = layout(job, options.run.as_deref().unwrap_or_default())?;
    let found = |record, is_new| Found {
        layout: layout.clone(),
        record,
        discovered: Vec::new(),
        is_new,
    };
    loop {
        if let Some(record) = super::read_record(&*environment.blob, &layout.run_record())? {
            return Ok(found(record, false));
        }
        if let Some(record) = adopt(job, environment, &layout)? {
            return Ok(found(record, true));
        }
        if options.half != (Half::Load { wait: true }) {
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

/// The record of a run that another program has staged, of which there are only manifests; none where there are none.
fn adopt(job: &Job, environment: &Environment, layout: &RunLayout) -> Result<Option<RunRecord>> {
    let manifests = staged_streams(&*environment.blob, layout)?;
    if manifests.is_empty() {
        return Ok(None);
    }
    let infos: Vec<_> = manifests.iter().map(Manifest::info).collect();
    let selected = select(&job.streams, &infos);
    let selected = selected.map_err(|error| Error::new(ErrorKind::Config, error.to_string()))?;
    let manifests = manifests.iter().map(|manifest| (&manifest.stream, manifest));
    let manifests: HashMap<_, _> = manifests.collect();
    let mut streams = Vec::new();
    for selected in selected {
        let name = selected.stream.name.clone();
        let mut stream = stream_record(selected);
        if stream.window().is_some() {
            // Where its window starts only that program knows, but not where others have been since.
            let state = read_state(&*environment.blob, layout, &name)?;
            let reached = state.and_then(|state| state.reached);
            if let (Some(reached), Some(manifest)) = (&reached, manifests.get(&name)) {
                follows(manifest, reached, stream.write)?;
            }
            (stream.mode, stream.after) = (Some(CopyMode::Staged), reached);
        }
        streams.push(stream);
    }
    Ok(Some(RunRecord::new(layout, digest(job, environment), streams)))
}

/// Refuses rows of which some have been loaded by another run.
fn follows(manifest: &Manifest, reached: &Reached, write: WriteMode) -> Result<()> {
    let is_loaded = match write {
        WriteMode::Upsert => manifest.ends_before(&reached.cursor_field, &reached.cursor),
        WriteMode::Append | WriteMode::Overwrite => {
            manifest.begins_at_or_before(&reached.cursor_field, &reached.cursor)
        }
    };
    if !is_loaded {
        return Ok(());
    }
    let message = format!(
        "stream {} has been loaded further by run `{}`, and loading these rows as well would double some or bring old \
         versions back: stage what comes after that",
        manifest.stream, reached.run
    );
    Err(Error::new(ErrorKind::RunOver, message))
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
    let named = infos.into_iter().map(|info| (info.name.to_string(), info));
    let mut infos: HashMap<String, StreamInfo> = named.collect();
    let is_wanted = |stream: &&StreamRecord| options.wants(&stream.stream);
    let planned = record
        .streams
        .iter()
        .filter(is_wanted)
        .map(|stream| PlannedStream {
            record: stream.clone(),
            info: infos.remove(&stream.stream),
            denials: Denials::default(),
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

pub(super) fn layout(job: &Job, run: &str) -> Result<RunLayout> {
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
    let side = |role, spec: &ConnectorSpec, plugin: &Option<Arc<Plugin>>| {
        let config = plugin.as_ref().map(|plugin| plugin.redact(role, &spec.config));
        serde_json::json!({ "connector": spec.connector, "config": config })
    };
    let sides = [
        side(Role::Source, &job.source, &environment.source),
        side(Role::Destination, &job.destination, &environment.destination),
    ];
    let digest = Sha256::digest(serde_json::Value::from(sides.to_vec()).to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_streams_with_one_slug_are_refused_by_name() {
        let name = |text: &str| text.parse::<StreamName>().unwrap();
        // Both begin with `x_`, and the first 32 bits of their digests are the same.
        let (a, b, c) = (name("x(!**&"), name("x!$&&*&"), name("x!"));
        assert!(have_places_of_their_own([&a, &c].into_iter()).is_ok());
        let error = have_places_of_their_own([&a, &c, &b].into_iter()).unwrap_err();
        for expected in ["x(!**& and x!$&&*&", "`x_-", "rename one"] {
            assert!(error.message().contains(expected), "{error}");
        }
    }

    #[test]
    fn run_ids_are_valid_and_differ() {
        let (a, b) = (new_run_id(), new_run_id());
        assert!(RunLayout::new("default", "p", &a).is_ok(), "{a}");
        assert_ne!(a, b);
    }
}
