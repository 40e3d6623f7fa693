//! When a call was last seen to get on.
//!
//! A call may take as long as it likes while rows or bytes flow; what ends it is a stretch of time in which nothing
//! does. The clock starts with the call and starts again whenever a server's bytes arrive or leave through `net`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::limits::Limits;

/// Shared by a call's watch and the host functions that the call waits in.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    origin: Instant,
    /// Microseconds after `origin` at which something last got on.
    last: AtomicU64,
    /// The call waits for a server.
    waiting: AtomicBool,
}

/// What a call was doing when its time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stalled {
    /// Computing, sleeping, or waiting for something that the host cannot name.
    Busy,
    /// Waiting for a server's bytes.
    Waiting,
    /// Anything: the instance has had all the time that it may have.
    Spent,
}

impl Progress {
    pub(super) fn new() -> Self {
        Progress(Arc::new(Shared {
            origin: Instant::now(),
            last: AtomicU64::new(0),
            waiting: AtomicBool::new(false),
        }))
    }

    /// Something got on; the call does not wait for a server now.
    pub(super) fn mark(&self) {
        let now = self.0.origin.elapsed().as_micros() as u64;
        self.0.last.store(now, Ordering::Relaxed);
        self.0.waiting.store(false, Ordering::Relaxed);
    }

    /// Awaits something that depends on a server.
    pub(super) async fn waiting<T>(&self, answer: impl Future<Output = T>) -> T {
        self.0.waiting.store(true, Ordering::Relaxed);
        let answer = answer.await;
        self.mark();
        answer
    }

    /// How long the call may still go on as it does now, and what ends it then.
    fn left(&self, limits: &Limits) -> (Duration, Stalled) {
        let age = self.0.origin.elapsed();
        let since = age.saturating_sub(Duration::from_micros(self.0.last.load(Ordering::Relaxed)));
        let stalled = match self.0.waiting.load(Ordering::Relaxed) {
            true => (limits.answer.saturating_sub(since), Stalled::Waiting),
            false => (limits.call.saturating_sub(since), Stalled::Busy),
        };
        let spent = (limits.total.saturating_sub(age), Stalled::Spent);
        if spent.0 < stalled.0 { spent } else { stalled }
    }

    /// Returns when the call has made no progress for as long as it may, or the instance has run for as long as it may.
    pub(super) async fn stalled(&self, limits: &Limits) -> Stalled {
        loop {
            let (left, doing) = self.left(limits);
            if left.is_zero() {
                return doing;
            }
            tokio::time::sleep(left).await;
        }
    }
}
