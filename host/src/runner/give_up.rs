//! Giving a run up: nothing goes on with it from then on, and no other run waits for it.

use serde::Serialize;

use super::Environment;
use super::lease::{Leases, Side, at_work};
use super::prepare::{layout, stream_record};
use super::record::{RunRecord, RunStatus, SharedRecord, StreamRecord, read_record};
use super::state::read_state;
use super::stream::load_id;
use crate::connector::{Error, ErrorKind, LoadRequest, Result, Role};
use crate::pipeline::{Job, select};
use crate::plugin::{Denials, OpenContext};
use crate::record::{StreamInfo, StreamName};
use crate::staging::{RunLayout, read_manifest};

/// What a run that was given up has done of a stream whose load it had begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftBehind {
    /// The stream's qualified name.
    pub stream: String,
    /// How many of its rows the destination has committed; none where that cannot be told.
    pub rows: Option<u64>,
}

/// Gives a run of a job's pipeline up, and answers what stays of it. Called again, it does so again.
///
/// # Errors
/// `conflict` where a process is at work on the run, or it has come to its end; `not-found` where there is no such run
/// and no stream waits for one.
pub fn give_up(job: &Job, run: &str, environment: &Environment) -> Result<Vec<LeftBehind>> {
    let giving_up = GivingUp {
        job,
        environment,
        layout: layout(job, run)?,
    };
    giving_up.carry_out()
}

struct GivingUp<'a> {
    job: &'a Job,
    environment: &'a Environment,
    layout: RunLayout,
}

impl GivingUp<'_> {
    fn carry_out(&self) -> Result<Vec<LeftBehind>> {
        let (blob, layout) = (&self.environment.blob, &self.layout);
        if let Some(holder) = at_work(&**blob, layout)? {
            let (process, seen) = (&holder.process, &holder.seen);
            return Err(self.refused(&format!(
                "cannot be given up while {process} is at work on it (last sign of life: {seen}): wait for it to end, or \
                 stop it"
            )));
        }
        let found = read_record(&**blob, &layout.run_record())?;
        let is_new = found.is_none();
        let record = match found {
            Some(record) => record,
            None => self.of_its_name()?,
        };
        let leases = Leases::take(blob, layout, &[Side::Extract, Side::Load], false, record.attempts)?;
        let shared = SharedRecord::new(blob.clone(), layout, leases.fence());
        if is_new {
            shared.create(&record)?;
        }
        let record = shared.update(|record| {
            if record.status != RunStatus::Done {
                record.status = RunStatus::GivenUp;
            }
            for (side, attempt) in leases.attempts() {
                record.attempts.set(side, attempt);
            }
        })?;
        if record.status == RunStatus::Done {
            return Err(self.refused("has come to its end, so that there is nothing to give up"));
        }
        let waiting = record
            .streams
            .iter()
            .filter_map(|stream| self.waits(stream).transpose());
        waiting
            .map(|waiting| {
                let (stream, name) = waiting?;
                self.end_load(stream, name, record.attempts.of(Side::Load))
            })
            .collect()
    }

    fn refused(&self, why: &str) -> Error {
        Error::new(ErrorKind::Conflict, format!("run `{}` {why}", self.layout.run()))
    }

    /// The record of a run of which only its name is left, in the states of streams.
    fn of_its_name(&self) -> Result<RunRecord> {
        let selected = select(&self.job.streams, &self.discovered()?);
        let selected = selected.map_err(|error| Error::new(ErrorKind::Config, error.to_string()))?;
        let mut waiting = Vec::new();
        for stream in selected.into_iter().map(stream_record) {
            if self.waits(&stream)?.is_some() {
                waiting.push(stream);
            }
        }
        if waiting.is_empty() {
            let (run, store) = (self.layout.run(), self.environment.blob.describe());
            let message = format!(
                "there is no run `{run}` to give up in {store}, and no stream waits for one; `setu runs` lists those that \
                 are"
            );
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        let mut record = RunRecord::new(&self.layout, String::new(), waiting);
        // More than it can have had: the destination knows how many there were.
        record.attempts.set(Side::Load, u64::from(u32::MAX));
        Ok(record)
    }

    fn discovered(&self) -> Result<Vec<StreamInfo>> {
        let source = self.environment.plugin(Role::Source)?;
        source
            .open_source(&self.job.source, &self.context(None))?
            .discover()
    }

    /// The stream with its name, if it waits for the run.
    fn waits<'s>(&self, stream: &'s StreamRecord) -> Result<Option<(&'s StreamRecord, StreamName)>> {
        if stream.window().is_none() {
            return Ok(None);
        }
        let name = stream.stream.parse::<StreamName>();
        let name = name.map_err(|error| Error::new(ErrorKind::Staging, error.to_string()))?;
        let state = read_state(&*self.environment.blob, &self.layout, &name)?;
        let waits = state.is_some_and(|state| state.loading.as_deref() == Some(self.layout.run()));
        Ok(waits.then_some((stream, name)))
    }

    /// Tells the destination of a further attempt, which ends or awaits a commit that is still under way, and asks it what
    /// has been committed.
    fn end_load(&self, stream: &StreamRecord, name: StreamName, attempt: u64) -> Result<LeftBehind> {
        let manifest = read_manifest(&*self.environment.blob, &self.layout, &name)?;
        let target = match &manifest {
            Some(manifest) => Some(manifest.info()),
            None => self.discovered()?.into_iter().find(|info| info.name == name),
        };
        let left = |rows| {
            Ok(LeftBehind {
                stream: stream.stream.clone(),
                rows,
            })
        };
        let plugin = self.environment.plugin(Role::Destination)?;
        let mut destination = plugin.open_destination(&self.job.destination, &self.context(Some(stream)))?;
        let (true, Some(target)) = (destination.capabilities()?.transactional, target) else {
            return left(None);
        };
        let mark = destination
            .begin(&LoadRequest {
                load_id: load_id(&self.layout, &stream.stream),
                attempt,
                target,
                mode: stream.write,
            })?
            .committed()?;
        let parts = manifest.iter().flat_map(|manifest| &manifest.parts);
        left(match &manifest {
            Some(_) => Some(parts.zip(0..mark).map(|(part, _)| part.rows).sum()),
            None if mark > 0 => Some(stream.rows).filter(|_| stream.load_begun),
            None => Some(0),
        })
    }

    fn context(&self, stream: Option<&StreamRecord>) -> OpenContext {
        OpenContext {
            run: self.layout.run().to_owned(),
            stream: stream.map(|stream| stream.stream.clone()),
            cancel: self.environment.cancel.clone(),
            denials: Denials::default(),
        }
    }
}
