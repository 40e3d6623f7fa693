//! Whose turn it is to load an incremental stream.
//!
//! Each run has leases of its own, but the rows that an incremental stream adds to its destination are those of all
//! runs: where one has loaded a part of its window and another begins with the same window, rows come twice. So a run
//! notes in the stream's state that it is at it before its first rows are durable, and until its load has finished no
//! other run loads the stream, unless that does no harm or somebody who knows gives the first one up.

use std::sync::Arc;

use super::lease::{LeaseRecord, SETTLE, Side, holder, shut_out};
use super::record::StreamRecord;
use super::state::{State, change_state, is_current, read_state};
use crate::blob::Blob;
use crate::connector::{Error, ErrorKind, Result, WriteMode};
use crate::record::StreamName;
use crate::staging::RunLayout;

/// The turn of one run at one incremental stream.
pub(super) struct Turn {
    pub(super) blob: Arc<dyn Blob>,
    pub(super) layout: RunLayout,
    pub(super) stream: StreamName,
    /// What the run has recorded of the stream.
    pub(super) record: StreamRecord,
    /// A run that is not waited for any more.
    pub(super) give_up: Option<String>,
}

impl Turn {
    /// Refuses where the run could not load the stream now; nothing is changed.
    pub(super) fn check(&self) -> Result<()> {
        let state = read_state(&*self.blob, &self.layout, &self.stream)?;
        self.admit(state.as_ref()).map(|_| ())
    }

    /// Notes that the run is at the stream, from before its first durable row on. Every attempt says so anew, so that one
    /// which comes back from the dead and one that goes over it do not miss each other.
    pub(super) fn take(&self) -> Result<()> {
        let written = change_state(&*self.blob, &self.layout, &self.stream, |current| {
            if let Some(dead) = self.admit(current)?
                && let Some(holder) = shut_out(&*self.blob, &dead, Side::Load)?
            {
                return Err(self.taken_by(dead.run(), &holder));
            }
            Ok(Some(self.state(current, Some(self.layout.run()))))
        })?;
        if written.is_some_and(|seen| !seen.guards()) {
            // Another may have written at the same moment.
            std::thread::sleep(SETTLE);
            self.check()?;
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

    /// Whether the run may load the stream; answers the dead run that it goes over, if there is one.
    fn admit(&self, state: Option<&State>) -> Result<Option<RunLayout>> {
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
        // Rows that are upserted once more, of a window that begins where that of the other run does, replace themselves.
        if self.record.write == WriteMode::Append && self.give_up.as_deref() != Some(other) {
            let message = format!(
                "run `{other}` has begun to append rows of stream {} and has not come to its end, and to load another run \
                 now could double them: go on with it (`--run {other}`), or give it up with `--give-up {other}`, which \
                 leaves the rows that it has appended",
                self.stream
            );
            return Err(Error::new(ErrorKind::Conflict, message));
        }
        Ok(Some(layout))
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
            "stream {} has been loaded further{by} since run `{}` read it, and loading this run as well would double rows \
             or bring old versions back: start a new run",
            self.stream,
            self.layout.run()
        );
        Error::new(ErrorKind::Conflict, message)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::lease::Leases;
    use super::super::process::Process;
    use super::super::record::{CopyMode, StreamStatus};
    use super::super::state::{Reached, move_state};
    use super::*;
    use crate::blob::{Body, Memory, Plain};
    use crate::pipeline::ReadMode;
    use crate::record::DataType;

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
                high_water_mark: None,
                status: StreamStatus::Extracted,
                rows: 0,
                error: None,
            },
            give_up: None,
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

    fn refusal(refused: Result<()>) -> String {
        let error = refused.expect_err("another run is at it");
        assert_eq!(error.kind(), ErrorKind::Conflict);
        error.message().to_owned()
    }

    #[test]
    fn while_a_run_is_at_a_stream_no_other_loads_it_in_any_mode() {
        for blob in stores() {
            for write in [WriteMode::Append, WriteMode::Upsert] {
                let first = at_work(&blob, "a");
                turn(&blob, "a", write).take().expect("nobody is at it");
                // Its own further attempts are.
                turn(&blob, "a", write).take().expect("it is its own");
                let mut other = turn(&blob, "b", write);
                other.give_up = Some("a".into());
                for refused in [other.check(), other.take()] {
                    let message = refusal(refused);
                    let process = Process::current().to_string();
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
            turn(&blob, "a", WriteMode::Append)
                .take()
                .expect("nobody is at it");
            let mut other = turn(&blob, "b", WriteMode::Append);
            for give_up in [None, Some("c")] {
                other.give_up = give_up.map(str::to_owned);
                for refused in [other.check(), other.take()] {
                    let message = refusal(refused);
                    assert!(
                        message.contains("`--run a`") && message.contains("`--give-up a`"),
                        "{message}"
                    );
                }
            }
            assert_eq!(loading(&blob).as_deref(), Some("a"));
            other.give_up = Some("a".into());
            assert!(other.check().is_ok());
            other.take().expect("a is given up");
            // Now it is the other way round.
            assert!(refusal(turn(&blob, "a", WriteMode::Append).take()).contains("--run b"));
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
            turn(&blob, "a", WriteMode::Upsert)
                .take()
                .expect("nobody is at it");
            // Seen from here, its process has gone silent elsewhere.
            let key = turn(&blob, "a", WriteMode::Upsert).layout.lease("load");
            let mut lease = Vec::new();
            std::io::Read::read_to_end(&mut blob.get(&key).expect("a lease"), &mut lease).expect("bytes");
            let mut lease: serde_json::Value = serde_json::from_slice(&lease).expect("JSON");
            lease["process"] = serde_json::to_value(Process::elsewhere()).expect("JSON");
            lease["seen"] = "2024-05-01T10:00:00Z".into();
            blob.put(&key, Body::Bytes(lease.to_string().as_bytes()))
                .expect("a put");
            turn(&blob, "b", WriteMode::Upsert).take().expect("a is dead");
            assert_eq!(loading(&blob).as_deref(), Some("b"));
            assert!(frozen.fence().check().is_err());
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
            first.take().expect("nobody is at it");
            let field = ("at", DataType::Int64);
            move_state(&*blob, &first.layout, &first.stream, field, Some("9")).expect("it is moved");
            assert_eq!(loading(&blob), None);
            let message = refusal(second.take());
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
