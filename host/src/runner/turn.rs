//! Whose turn it is to load an incremental stream.
//!
//! Each run has leases of its own, but the rows that an incremental stream adds to its destination are those of all
//! runs: where one has loaded a part of its window and another begins with the same window, rows come twice. So a run
//! notes in the stream's state that it is at it before its first rows are durable, and until its load has finished no
//! other run loads the stream, unless that does no harm or somebody who knows gives the first one up.

use std::sync::Arc;

use super::lease::{LeaseRecord, SETTLE, ShutOut, Side, holder, shut_out};
use super::record::{RunRecord, RunStatus, StreamRecord, read_record};
use super::state::{State, change_state, is_current, read_state};
use crate::blob::Blob;
use crate::connector::{Error, ErrorKind, Result, WriteMode};
use crate::record::StreamName;
use crate::staging::{Fence, RunLayout};

/// The turn of one run at one incremental stream.
pub(super) struct Turn {
    pub(super) blob: Arc<dyn Blob>,
    pub(super) layout: RunLayout,
    pub(super) stream: StreamName,
    /// What the run has recorded of the stream.
    pub(super) record: StreamRecord,
    /// The dead run that this one goes over, once it was shut out.
    pub(super) over: Option<String>,
}

/// A run that nobody loads any more, and that has not finished its load of a stream.
pub(super) struct Dead {
    pub(super) layout: RunLayout,
    /// None where only its name is left, in the state.
    pub(super) record: Option<RunRecord>,
}

impl Turn {
    /// Refuses where the run could not load the stream now; nothing is changed. Answers the dead run that must be
    /// [shut out](Turn::shut_out) before it can.
    pub(super) fn check(&self) -> Result<Option<Dead>> {
        let state = read_state(&*self.blob, &self.layout, &self.stream)?;
        self.admit(state.as_ref())
    }

    /// Sees that no process of a dead run writes anything of the stream into the blob store any more; its destination must
    /// hear of it as well. Answers the number of the attempt that this counts as.
    pub(super) fn shut_out(&mut self, dead: &Dead) -> Result<u64> {
        let known = dead
            .record
            .as_ref()
            .map_or(0, |record| record.attempts.of(Side::Load));
        let run = dead.layout.run();
        match shut_out(&*self.blob, &dead.layout, Side::Load, known)? {
            ShutOut::AtWork(holder) => Err(self.taken_by(run, &holder)),
            ShutOut::Done(attempt) => {
                self.over = Some(run.to_owned());
                Ok(attempt)
            }
        }
    }

    /// Notes that the run is at the stream, from before its first durable row on. Every attempt says so anew, so that one
    /// which comes back from the dead and one that goes over it do not miss each other; `fence`: unless the run was taken
    /// over by another process.
    pub(super) fn take(&self, fence: &dyn Fence) -> Result<()> {
        let written = change_state(&*self.blob, &self.layout, &self.stream, |current| {
            self.admit_over(current)?;
            fence.check()?;
            Ok(Some(self.state(current, Some(self.layout.run()))))
        })?;
        if written.is_some_and(|seen| !seen.guards()) {
            // Another may have written at the same moment.
            std::thread::sleep(SETTLE);
            self.admit_over(read_state(&*self.blob, &self.layout, &self.stream)?.as_ref())?;
        }
        Ok(())
    }

    /// Notes that the run is not at the stream any more: it has left nothing at the destination.
    pub(super) fn give_back(&self) -> Result<()> {
        change_state(&*self.blob, &self.layout, &self.stream, |current| {
            let own = current.filter(|state| state.loading.as_deref() == Some(self.layout.run()));
            Ok(own.map(|state| self.state(Some(state), None)))
        })?;
        Ok(())
    }

    fn state(&self, current: Option<&State>, loading: Option<&str>) -> State {
        State {
            stream: self.stream.to_string(),
            reached: current.and_then(|state| state.reached.clone()),
            loading: loading.map(str::to_owned),
            updated_at: super::now(),
        }
    }

    /// As [`admit`](Turn::admit), where a dead run has been shut out if there was one.
    fn admit_over(&self, state: Option<&State>) -> Result<()> {
        match self.admit(state)? {
            Some(dead) if self.over.as_deref() != Some(dead.layout.run()) => {
                let message = format!(
                    "run `{}` has begun to load stream {} meanwhile: try again",
                    dead.layout.run(),
                    self.stream
                );
                Err(Error::new(ErrorKind::Conflict, message).with_retryable(true))
            }
            _ => Ok(()),
        }
    }

    /// Whether the run may load the stream; answers the dead run that it goes over, if there is one.
    fn admit(&self, state: Option<&State>) -> Result<Option<Dead>> {
        let own = self.layout.run();
        if !is_current(&self.record, own, state) {
            return Err(self.overtaken(state));
        }
        let Some(other) = state
            .and_then(|state| state.loading.as_deref())
            .filter(|run| *run != own)
        else {
            return Ok(None);
        };
        let layout = RunLayout::new(self.layout.workspace(), self.layout.pipeline(), other);
        let layout = layout.map_err(|error| Error::new(ErrorKind::Staging, error.to_string()))?;
        if let Some(holder) = holder(&*self.blob, &layout, Side::Load)? {
            return Err(self.taken_by(other, &holder));
        }
        let record = read_record(&*self.blob, &layout.run_record())?;
        let status = record.as_ref().map(|record| record.status);
        // Rows that are upserted once more, of a window that begins where that of the other run does, replace themselves.
        if self.record.write != WriteMode::Append || status == Some(RunStatus::GivenUp) {
            return Ok(Some(Dead { layout, record }));
        }
        let go_on = match record {
            Some(_) => format!("go on with it (`--run {other}`), or give it up"),
            None => "nothing else is left of it, so give it up".to_owned(),
        };
        let message = format!(
            "run `{other}` has begun to load rows of stream {} and has not come to its end, and to load another run now \
             could double them: {go_on} with `setu give-up`, which leaves the rows that it has loaded",
            self.stream
        );
        Err(Error::new(ErrorKind::Conflict, message))
    }

    fn taken_by(&self, run: &str, holder: &LeaseRecord) -> Error {
        let (process, seen) = (&holder.process, &holder.seen);
        let message = format!(
            "stream {} is being loaded by run `{run}`, by {process} (last sign of life: {seen}): wait for it to end, or \
             stop it",
            self.stream
        );
        Error::new(ErrorKind::Conflict, message)
    }

    fn overtaken(&self, state: Option<&State>) -> Error {
        let by = state.and_then(|state| state.reached.as_ref());
        let by = by.map_or_else(String::new, |reached| format!(" by run `{}`", reached.run));
        let message = format!(
            "stream {} has been loaded further{by} since run `{}` began with it, and loading this run as well would \
             double rows or bring old versions back: start a new run",
            self.stream,
            self.layout.run()
        );
        Error::new(ErrorKind::RunOver, message)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::lease::Leases;
    use super::super::process::Process;
    use super::super::record::{CopyMode, SharedRecord, StreamStatus};
    use super::super::state::{Reached, move_state};
    use super::*;
    use crate::blob::{Body, Memory, Plain};
    use crate::pipeline::ReadMode;
    use crate::record::DataType;
    use crate::staging::Unfenced;

    /// The turn of a run at stream `s`, whose window is open below.
    pub(in super::super) fn turn(blob: &Arc<dyn Blob>, run: &str, write: WriteMode) -> Turn {
        Turn {
            blob: blob.clone(),
            layout: RunLayout::new("w", "p", run).expect("a layout"),
            stream: "s".parse().expect("a name"),
            record: StreamRecord {
                stream: "s".into(),
                mode: Some(CopyMode::Staged),
                read: ReadMode::Incremental,
                write,
                cursor: Some("at".into()),
                since: None,
                since_inclusive: write == WriteMode::Upsert,
                after: None,
                load_begun: false,
                high_water_mark: None,
                status: StreamStatus::Extracted,
                rows: 0,
                error: None,
            },
            over: None,
        }
    }

    /// The run that is at stream `s`.
    pub(in super::super) fn loading(blob: &Arc<dyn Blob>) -> Option<String> {
        let turn = turn(blob, "any", WriteMode::Append);
        let state = read_state(&**blob, &turn.layout, &turn.stream).expect("it is read");
        state.and_then(|state| state.loading)
    }

    /// Of both makes.
    fn stores() -> [Arc<dyn Blob>; 2] {
        [Arc::new(Memory::new()), Arc::new(Plain::default())]
    }

    /// A process loads the run.
    fn at_work(blob: &Arc<dyn Blob>, run: &str) -> Leases {
        let layout = RunLayout::new("w", "p", run).expect("a layout");
        Leases::take_all(blob, &layout, &[Side::Load]).expect("they are free")
    }

    fn take(turn: &Turn) -> Result<()> {
        turn.take(&Unfenced)
    }

    fn refusal<T>(refused: Result<T>) -> Error {
        refused.err().expect("another run is at it")
    }

    /// It has begun, and may have been given up.
    fn has_record(blob: &Arc<dyn Blob>, run: &str, status: RunStatus) {
        let turn = turn(blob, run, WriteMode::Append);
        let mut record = RunRecord::new(&turn.layout, String::new(), vec![turn.record.clone()]);
        record.status = status;
        let shared = SharedRecord::new(blob.clone(), &turn.layout, Arc::new(Unfenced));
        shared.create(&record).expect("a record");
    }

    #[test]
    fn while_a_run_is_at_a_stream_no_other_loads_it_in_any_mode() {
        for blob in stores() {
            for write in [WriteMode::Append, WriteMode::Upsert] {
                let first = at_work(&blob, "a");
                take(&turn(&blob, "a", write)).expect("nobody is at it");
                // Its own further attempts are.
                take(&turn(&blob, "a", write)).expect("it is its own");
                has_record(&blob, "a", RunStatus::GivenUp);
                let other = turn(&blob, "b", write);
                for error in [refusal(other.check()), refusal(take(&other))] {
                    assert_eq!(error.kind(), ErrorKind::Conflict);
                    let (message, process) = (error.message(), Process::current().to_string());
                    assert!(
                        message.contains("being loaded by run `a`") && message.contains(&process),
                        "{message}"
                    );
                }
                assert_eq!(loading(&blob).as_deref(), Some("a"));
                assert!(first.fence().check().is_ok());
                turn(&blob, "a", write).give_back().expect("it is given back");
                assert_eq!(loading(&blob), None);
            }
        }
    }

    #[test]
    fn a_half_appended_run_is_finished_or_given_up_by_name() {
        for blob in stores() {
            take(&turn(&blob, "a", WriteMode::Append)).expect("nobody is at it");
            let mut other = turn(&blob, "b", WriteMode::Append);
            for (status, expected) in [
                (None, "nothing else is left of it"),
                (Some(RunStatus::Running), "go on with it (`--run a`)"),
                (Some(RunStatus::Failed), "go on with it (`--run a`)"),
            ] {
                status
                    .into_iter()
                    .for_each(|status| has_record(&blob, "a", status));
                for error in [refusal(other.check()), refusal(take(&other))] {
                    assert_eq!(error.kind(), ErrorKind::Conflict);
                    let message = error.message();
                    assert!(
                        message.contains(expected) && message.contains("`setu give-up`"),
                        "{message}"
                    );
                }
            }
            assert_eq!(loading(&blob).as_deref(), Some("a"));
            has_record(&blob, "a", RunStatus::GivenUp);
            let dead = other
                .check()
                .expect("a is given up")
                .expect("it is to be shut out");
            assert!(refusal(take(&other)).is_retryable());
            other.shut_out(&dead).expect("it is dead");
            take(&other).expect("a is shut out");
            // Now it is the other way round.
            assert!(
                refusal(take(&turn(&blob, "a", WriteMode::Append)))
                    .message()
                    .contains("run `b` has begun")
            );
            // What is not its own it does not give back.
            turn(&blob, "a", WriteMode::Append)
                .give_back()
                .expect("nothing happens");
            assert_eq!(loading(&blob).as_deref(), Some("b"));
        }
    }

    #[test]
    fn an_upsert_goes_over_a_dead_run_and_shuts_it_out() {
        for blob in stores() {
            let frozen = at_work(&blob, "a");
            take(&turn(&blob, "a", WriteMode::Upsert)).expect("nobody is at it");
            // Seen from here, its process has gone silent elsewhere.
            let key = turn(&blob, "a", WriteMode::Upsert).layout.lease("load");
            let mut lease = Vec::new();
            std::io::Read::read_to_end(&mut blob.get(&key).expect("a lease"), &mut lease).expect("bytes");
            let mut lease: serde_json::Value = serde_json::from_slice(&lease).expect("JSON");
            lease["process"] = serde_json::to_value(Process::elsewhere()).expect("JSON");
            lease["seen"] = "2024-05-01T10:00:00Z".into();
            blob.put(&key, Body::Bytes(lease.to_string().as_bytes()))
                .expect("a put");
            let mut other = turn(&blob, "b", WriteMode::Upsert);
            let dead = other.check().expect("a is dead").expect("it is to be shut out");
            assert_eq!(other.shut_out(&dead).expect("a is dead"), 2);
            take(&other).expect("a is shut out");
            assert_eq!(loading(&blob).as_deref(), Some("b"));
            assert!(frozen.fence().check().is_err());
        }
    }

    #[test]
    fn a_process_that_has_lost_its_run_takes_no_turn() {
        struct Lost;
        impl Fence for Lost {
            fn check(&self) -> Result<()> {
                Err(Error::new(ErrorKind::Conflict, "taken over"))
            }
        }
        for blob in stores() {
            assert!(turn(&blob, "a", WriteMode::Append).take(&Lost).is_err());
            assert_eq!(loading(&blob), None);
        }
    }

    #[test]
    fn a_run_whose_window_was_loaded_meanwhile_gets_no_turn() {
        for blob in stores() {
            let (first, second) = (
                turn(&blob, "a", WriteMode::Upsert),
                turn(&blob, "b", WriteMode::Upsert),
            );
            assert!(second.check().is_ok());
            take(&first).expect("nobody is at it");
            let field = ("at", DataType::Int64);
            move_state(&*blob, &first.layout, &first.stream, field, Some("9")).expect("it is moved");
            assert_eq!(loading(&blob), None);
            let error = refusal(take(&second));
            assert_eq!(error.kind(), ErrorKind::RunOver);
            let message = error.message();
            assert!(
                message.contains("further by run `a`") && message.contains("start a new run"),
                "{message}"
            );
            let state = read_state(&*blob, &first.layout, &first.stream).expect("it is read");
            let reached = state.and_then(|state| state.reached);
            assert_eq!(
                reached,
                Some(Reached {
                    cursor_field: "at".into(),
                    cursor: "9".into(),
                    run: "a".into()
                })
            );
        }
    }
}
