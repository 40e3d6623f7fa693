//! Who is at work on a half of a run, so that two processes never are.
//!
//! Each half of a run has a lease, an object under the run's prefix that names the process at work and the time of its
//! last sign of life. Whoever starts the half takes the lease first; it refuses while another process holds it and
//! lives. A process may be taken for dead and not be: so everything that it makes durable is checked against the lease
//! before (the [`Fence`]), and where the store can, is written under a condition that its successor's writes break.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::process::Process;
use super::record::Attempts;
use crate::blob::object::{self, Seen};
use crate::blob::{Blob, BlobError, Key};
use crate::connector::{Error, ErrorKind, Result};
use crate::staging::{Fence, RunLayout};

/// How often a holder gives a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(10);
/// How long a holder on another host may be silent before it counts as dead.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a taker waits before it looks whether another took the lease at the same moment, in a store that cannot
/// settle that by itself.
pub(super) const SETTLE: Duration = Duration::from_millis(500);

/// A half of a run, as far as leases go. A direct copy takes both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Side {
    /// Source to blob store.
    Extract,
    /// Blob store to destination.
    Load,
}

impl Side {
    /// The key of its lease.
    fn key(self, layout: &RunLayout) -> Key {
        match self {
            Side::Extract => layout.lease("extract"),
            Side::Load => layout.lease("load"),
        }
    }

    fn participle(self) -> &'static str {
        match self {
            Side::Extract => "extracted",
            Side::Load => "loaded",
        }
    }
}

/// What a lease's object holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseRecord {
    /// How often the half was started, this time included.
    pub attempt: u64,
    /// Tells this holding from every other.
    token: String,
    /// The process at work.
    pub process: Process,
    /// RFC 3339: when it took the lease.
    pub since: String,
    /// RFC 3339: its last sign of life.
    pub seen: String,
    /// It ended in order: nobody is at work.
    pub released: bool,
}

impl LeaseRecord {
    /// Whether the holder is at work, as far as that can be told from here and now.
    fn lives(&self) -> bool {
        self.lives_at(&Process::current(), SystemTime::now().into())
    }

    fn lives_at(&self, here: &Process, now: DateTime<Utc>) -> bool {
        if self.released {
            return false;
        }
        self.process.lives_beside(here).unwrap_or_else(|| {
            let seen = DateTime::parse_from_rfc3339(&self.seen).ok();
            let silence = seen.and_then(|seen| (now - seen.to_utc()).to_std().ok());
            // A sign from the future is that of a clock that goes ahead; one that cannot be read is none.
            seen.is_some() && silence.is_none_or(|silence| silence < SILENCE)
        })
    }
}

/// The process that is at work on a run, if any: its lease.
pub fn at_work(blob: &dyn Blob, layout: &RunLayout) -> Result<Option<LeaseRecord>> {
    match holder(blob, layout, Side::Extract)? {
        Some(lease) => Ok(Some(lease)),
        None => holder(blob, layout, Side::Load),
    }
}

/// The process that is at work on a half of a run, if any: its lease.
pub(super) fn holder(blob: &dyn Blob, layout: &RunLayout, side: Side) -> Result<Option<LeaseRecord>> {
    let (lease, _) = find(blob, &side.key(layout))?;
    Ok(lease.filter(LeaseRecord::lives))
}

/// How it ended to shut a process out.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ShutOut {
    /// It counts as a further attempt, and this is its number.
    Done(u64),
    /// This process is at work: nothing has happened.
    AtWork(LeaseRecord),
}

/// Sees that a dead process which held a half of a run can make nothing durable any more, should it not be dead.
/// `after`: attempts that are known otherwise.
pub(super) fn shut_out(blob: &dyn Blob, layout: &RunLayout, side: Side, after: u64) -> Result<ShutOut> {
    let key = side.key(layout);
    loop {
        let (found, mut seen) = find(blob, &key)?;
        let attempts = match found {
            Some(holder) if holder.lives() => return Ok(ShutOut::AtWork(holder)),
            Some(holder) => holder.attempt,
            None => 0, // a holder whose lease has vanished stops by itself
        };
        let now = super::now();
        let attempt = attempts.max(after) + 1;
        let record = LeaseRecord {
            attempt,
            token: token(),
            process: Process::current(),
            since: now.clone(),
            seen: now,
            released: true,
        };
        if put(blob, &key, &record, &mut seen)? {
            return Ok(ShutOut::Done(attempt));
        }
    }
}

/// Tells one holding from every other.
fn token() -> String {
    format!("{:032x}", fastrand::u128(..))
}

fn parse(key: &Key, bytes: &[u8]) -> Result<LeaseRecord> {
    serde_json::from_slice(bytes).map_err(|error| unreadable(key, &error))
}

fn unreadable(key: &Key, error: &dyn std::fmt::Display) -> Error {
    let message = format!("the lease `{key}` cannot be read: {error}; delete it if no process is at work");
    Error::new(ErrorKind::Staging, message)
}

/// The leases of an invocation: of one half, or of both.
pub(super) struct Leases(Vec<Lease>);

impl Leases {
    /// Takes them all or none. `take_over`: also from a process that lives. `known` are attempts that count as well.
    pub(super) fn take(
        blob: &Arc<dyn Blob>,
        layout: &RunLayout,
        sides: &[Side],
        take_over: bool,
        known: Attempts,
    ) -> Result<Leases> {
        let one = |&side: &Side| Lease::take(blob, layout, side, take_over, known.of(side));
        sides.iter().map(one).collect::<Result<_>>().map(Leases)
    }

    /// Takes them where nobody is at work.
    pub(super) fn take_all(blob: &Arc<dyn Blob>, layout: &RunLayout, sides: &[Side]) -> Result<Leases> {
        Leases::take(blob, layout, sides, false, Attempts::default())
    }

    /// The attempt of each half that is held.
    pub(super) fn attempts(&self) -> impl Iterator<Item = (Side, u64)> {
        self.0.iter().map(|lease| (lease.held.side, lease.attempt()))
    }

    /// Counts a further attempt of this process in each half that is held.
    pub(super) fn count_attempt(&self) -> Result<()> {
        self.0.iter().try_for_each(|lease| lease.held.count_attempt())
    }

    /// Asks all of them.
    pub(super) fn fence(&self) -> Arc<dyn Fence> {
        Arc::new(All(self.0.iter().map(Lease::fence).collect()))
    }
}

struct All(Vec<Arc<dyn Fence>>);

impl Fence for All {
    fn check(&self) -> Result<()> {
        self.0.iter().try_for_each(|fence| fence.check())
    }
}

/// A lease that this process holds. Dropped, it is given back.
struct Lease {
    held: Arc<Held>,
    heartbeat: Option<JoinHandle<()>>,
}

/// What the holder and its heartbeat share.
struct Held {
    blob: Arc<dyn Blob>,
    key: Key,
    side: Side,
    run: String,
    state: Mutex<State>,
    /// Held while the lease is stored anew.
    writing: Mutex<()>,
    /// Wakes the heartbeat when the lease is given back.
    changed: Condvar,
}

struct State {
    record: LeaseRecord,
    /// The lease as it was stored or seen last.
    seen: Seen,
    /// Who has taken the lease away from this process.
    lost_to: Option<LeaseRecord>,
    over: bool,
}

impl Lease {
    /// Takes the lease of a half. `take_over`: also from a process that lives. `after`: attempts that are known
    /// otherwise.
    fn take(
        blob: &Arc<dyn Blob>,
        layout: &RunLayout,
        side: Side,
        take_over: bool,
        after: u64,
    ) -> Result<Lease> {
        let key = side.key(layout);
        loop {
            let (found, mut seen) = find(&**blob, &key)?;
            if let Some(holder) = &found
                && !take_over
                && holder.lives()
            {
                return Err(held_by(layout.run(), side, holder));
            }
            let now = super::now();
            let attempts = found.map_or(0, |holder| holder.attempt);
            let record = LeaseRecord {
                attempt: attempts.max(after) + 1,
                token: token(),
                process: Process::current(),
                since: now.clone(),
                seen: now,
                released: false,
            };
            if !put(&**blob, &key, &record, &mut seen)? {
                continue; // somebody else was faster: look again
            }
            let settled = seen.guards();
            let held = Arc::new(Held {
                blob: blob.clone(),
                key,
                side,
                run: layout.run().to_owned(),
                state: Mutex::new(State {
                    record,
                    seen,
                    lost_to: None,
                    over: false,
                }),
                writing: Mutex::new(()),
                changed: Condvar::new(),
            });
            if !settled {
                std::thread::sleep(SETTLE);
                held.look()?;
            }
            let beating = held.clone();
            let heartbeat = std::thread::Builder::new()
                .name("setu-heartbeat".into())
                .spawn(move || beating.beat())
                .map_err(|error| {
                    Error::new(ErrorKind::Internal, format!("cannot start a thread: {error}"))
                })?;
            return Ok(Lease {
                held,
                heartbeat: Some(heartbeat),
            });
        }
    }

    /// How often the half was started, this time included.
    fn attempt(&self) -> u64 {
        self.held.lock().record.attempt
    }

    /// What everything durable is checked against.
    fn fence(&self) -> Arc<dyn Fence> {
        self.held.clone()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.held.lock().over = true;
        self.held.changed.notify_all();
        if let Some(heartbeat) = self.heartbeat.take() {
            let _ = heartbeat.join();
        }
        // Nothing depends on it: a lease that is not given back is that of a dead process.
        let _ = self.held.sign(true);
    }
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn beat(&self) {
        let mut state = self.lock();
        loop {
            // It may be over before this thread begins to wait, and nobody wakes it then.
            let (guard, waited) = self
                .changed
                .wait_timeout_while(state, HEARTBEAT, |state| !state.over && state.lost_to.is_none())
                .unwrap_or_else(PoisonError::into_inner);
            if guard.over || guard.lost_to.is_some() {
                return;
            }
            drop(guard);
            if waited.timed_out()
                && let Err(error) = self.sign(false)
            {
                tracing::warn!("run {}: no sign of life could be given: {error}", self.run);
            }
            state = self.lock();
        }
    }

    /// Gives a sign of life, the last one where the lease is given back.
    fn sign(&self, released: bool) -> Result<()> {
        self.rewrite(|record| record.released = released)
    }

    fn count_attempt(&self) -> Result<()> {
        self.rewrite(|record| record.attempt += 1)
    }

    /// Changes what is stored of the lease, which is a sign of life as well. Does nothing once it is lost.
    fn rewrite(&self, change: impl Fn(&mut LeaseRecord)) -> Result<()> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut record, mut seen) = {
            let state = self.lock();
            if state.lost_to.is_some() {
                return Ok(());
            }
            (state.record.clone(), state.seen.clone())
        };
        change(&mut record);
        record.seen = super::now();
        if !seen.guards() {
            self.look()?;
        }
        if !put(&*self.blob, &self.key, &record, &mut seen)? {
            return self.look();
        }
        let mut state = self.lock();
        (state.record, state.seen) = (record, seen);
        Ok(())
    }

    /// Looks whether the lease is still this process's.
    fn look(&self) -> Result<()> {
        let (found, seen) = find(&*self.blob, &self.key)?;
        let found = found.ok_or_else(|| gone(&self.key))?;
        let mut state = self.lock();
        if found.token == state.record.token {
            state.seen = seen;
            return Ok(());
        }
        let error = overtaken(&self.run, self.side, &found);
        state.lost_to = Some(found);
        Err(error)
    }
}

impl Fence for Held {
    fn check(&self) -> Result<()> {
        {
            let state = self.lock();
            if let Some(by) = &state.lost_to {
                return Err(overtaken(&self.run, self.side, by));
            }
        }
        self.look()
    }
}

/// A lease as it is stored.
fn find(blob: &dyn Blob, key: &Key) -> Result<(Option<LeaseRecord>, Seen)> {
    let (bytes, seen) = object::look(blob, key)?;
    let lease = bytes.map(|bytes| parse(key, &bytes)).transpose()?;
    Ok((lease, seen))
}

/// Stores a lease in place of what was seen; no: somebody else has stored one meanwhile.
fn put(blob: &dyn Blob, key: &Key, record: &LeaseRecord, seen: &mut Seen) -> Result<bool> {
    let json = serde_json::to_vec_pretty(record).map_err(|error| unreadable(key, &error))?;
    match object::replace(blob, key, &json, seen) {
        Ok(()) => Ok(true),
        Err(BlobError::Conflict { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn held_by(run: &str, side: Side, holder: &LeaseRecord) -> Error {
    let (side, process, since, seen) = (side.participle(), &holder.process, &holder.since, &holder.seen);
    Error::new(
        ErrorKind::Conflict,
        format!(
            "run `{run}` is being {side} by {process} since {since} (last sign of life: {seen}): wait for it or stop it, \
             or take the run over with `--take-over`"
        ),
    )
}

fn overtaken(run: &str, side: Side, by: &LeaseRecord) -> Error {
    let (side, process, since) = (side.participle(), &by.process, &by.since);
    Error::new(
        ErrorKind::Conflict,
        format!(
            "run `{run}` has been taken over: it is being {side} by {process} since {since}, so this process stops"
        ),
    )
}

fn gone(key: &Key) -> Error {
    Error::new(
        ErrorKind::Conflict,
        format!("the lease `{key}` has vanished: the run was removed while it was under way"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::{Memory, Plain};

    fn layout() -> RunLayout {
        RunLayout::new("default", "p", "r").expect("a layout")
    }

    fn take(blob: &Arc<dyn Blob>, take_over: bool) -> Result<Lease> {
        Lease::take(blob, &layout(), Side::Load, take_over, 0)
    }

    fn record(process: Process, seen: &str, released: bool) -> LeaseRecord {
        LeaseRecord {
            attempt: 1,
            token: "t".into(),
            process,
            since: seen.into(),
            seen: seen.into(),
            released,
        }
    }

    #[test]
    fn a_holder_lives_by_its_process_here_and_by_its_signs_elsewhere() {
        let here = Process::current();
        let elsewhere = Process::elsewhere();
        let dead = Process {
            id: here.id,
            started: Some(1),
            ..here.clone()
        };
        let now = DateTime::parse_from_rfc3339("2024-05-01T10:00:00Z")
            .expect("a time")
            .to_utc();
        for (process, seen, released, expected) in [
            (&here, "2000-01-01T00:00:00Z", false, true),
            (&here, "2024-05-01T10:00:00Z", true, false),
            // Its id was given to another process.
            (&dead, "2024-05-01T10:00:00Z", false, false),
            (&elsewhere, "2024-05-01T09:59:01Z", false, true),
            (&elsewhere, "2024-05-01T09:59:00Z", false, false),
            (&elsewhere, "2024-05-01T10:05:00Z", false, true),
            (&elsewhere, "2024-05-01T09:59:59Z", true, false),
            (&elsewhere, "yesterday", false, false),
        ] {
            assert_eq!(
                record(process.clone(), seen, released).lives_at(&here, now),
                expected,
                "{process} {seen} {released}"
            );
        }
    }

    /// Of both makes.
    fn stores() -> [Arc<dyn Blob>; 2] {
        [Arc::new(Memory::new()), Arc::new(Plain::default())]
    }

    #[test]
    fn of_many_that_take_it_at_once_one_gets_it() {
        for blob in stores() {
            let taken = std::thread::scope(|scope| {
                let takers: Vec<_> = (0..8).map(|_| scope.spawn(|| take(&blob, false))).collect();
                let taken = takers.into_iter().map(|taker| taker.join().expect("no panic"));
                taken.filter_map(Result::ok).collect::<Vec<_>>()
            });
            assert_eq!(taken.len(), 1);
            assert!(taken.iter().all(|lease| lease.fence().check().is_ok()));
        }
    }

    #[test]
    fn a_lease_is_held_by_one_and_free_again_when_it_ends() {
        for blob in stores() {
            let first = take(&blob, false).expect("it is free");
            assert_eq!(first.attempt(), 1);
            let Err(refused) = take(&blob, false) else {
                panic!("it is held")
            };
            assert_eq!(refused.kind(), ErrorKind::Conflict);
            for word in ["run `r` is being loaded by process", "since", "--take-over"] {
                assert!(refused.message().contains(word), "{refused}");
            }
            assert!(first.fence().check().is_ok());
            drop(first);
            assert_eq!(take(&blob, false).expect("it is free again").attempt(), 2);
            // The other half has a lease of its own.
            assert!(Lease::take(&blob, &layout(), Side::Extract, false, 0).is_ok());
        }
    }

    #[test]
    fn whoever_is_taken_over_may_write_no_more() {
        for blob in stores() {
            let first = take(&blob, false).expect("it is free");
            let second = take(&blob, true).expect("it is taken over");
            assert_eq!(second.attempt(), 2);
            let error = first.fence().check().expect_err("it is overtaken");
            assert!(error.message().contains("run `r` has been taken over"), "{error}");
            assert!(second.fence().check().is_ok());
            // What it does not hold any more it does not give back.
            drop(first);
            assert!(second.fence().check().is_ok());
            assert!(take(&blob, false).is_err());
        }
    }

    #[test]
    fn a_dead_holder_is_shut_out_and_a_living_one_is_not() {
        for blob in stores() {
            let shut = || shut_out(&*blob, &layout(), Side::Load, 7).expect("it can be seen");
            assert_eq!(shut(), ShutOut::Done(8));
            let lease = take(&blob, false).expect("it is free");
            let holder = lease.held.lock().record.clone();
            assert_eq!(shut(), ShutOut::AtWork(holder));
            assert!(lease.fence().check().is_ok());
            // It falls silent elsewhere.
            let silent = LeaseRecord {
                process: Process::elsewhere(),
                seen: "2024-05-01T10:00:00Z".into(),
                ..lease.held.lock().record.clone()
            };
            let key = Side::Load.key(&layout());
            let (_, mut seen) = find(&*blob, &key).expect("a lease");
            assert!(put(&*blob, &key, &silent, &mut seen).expect("it is put"));
            assert!(lease.fence().check().is_ok(), "the token is its own");
            assert_eq!(shut(), ShutOut::Done(10));
            assert!(lease.fence().check().is_err());
            // Whoever goes on with the run is let in, as a further attempt.
            assert_eq!(take(&blob, false).expect("it is free").attempt(), 11);
        }
    }

    #[test]
    fn attempts_never_repeat_a_number() {
        let blob: Arc<dyn Blob> = Arc::new(Memory::default());
        let lease = Lease::take(&blob, &layout(), Side::Load, false, 7).expect("it is free");
        assert_eq!(lease.attempt(), 8);
    }
}
