//! When a call was last seen to get on.
//!
//! A call may take as long as it likes while rows or bytes flow; what ends it is a stretch of time in which nothing
//! does. The clock starts with the call and starts again whenever a connection is made, or a server's bytes arrive or
//! leave, through `net`. While the call waits for a server another clock runs, which has more time, and what it waited
//! for in vain does not start either of them again: who tries the same thing for ever gets nowhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::limits::Limits;

/// How often it is looked whether a call still does what it did.
const LOOK: Duration = Duration::from_secs(1);

/// Shared by a call's watch and the host functions that the call waits in.
#[derive(Clone, Debug)]
pub(super) struct Progress(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    origin: Instant,
    /// Microseconds after `origin` at which something last got on.
    last: AtomicU64,
    /// Microseconds that the call has waited for servers since then, without the wait under way.
    waited: AtomicU64,
    /// The call waits for a server, since so many microseconds after `origin`; `NOT` otherwise.
    waiting: AtomicU64,
}

const NOT: u64 = u64::MAX;

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
            waited: AtomicU64::new(0),
            waiting: AtomicU64::new(NOT),
        }))
    }

    /// Something got on; the call does not wait for a server now.
    pub(super) fn mark(&self) {
        self.0.last.store(self.now(), Ordering::Relaxed);
        self.0.waited.store(0, Ordering::Relaxed);
        self.0.waiting.store(NOT, Ordering::Relaxed);
    }

    /// Awaits something that depends on a server. Whether anything got on by it, the caller has to say (`mark`).
    pub(super) async fn waiting<T>(&self, answer: impl Future<Output = T>) -> T {
        let start = self.now();
        self.0.waiting.store(start, Ordering::Relaxed);
        let answer = answer.await;
        self.0.waiting.store(NOT, Ordering::Relaxed);
        self.0.waited.fetch_add(self.now() - start, Ordering::Relaxed);
        answer
    }

    fn now(&self) -> u64 {
        self.0.origin.elapsed().as_micros() as u64
    }

    /// How long the call may still go on as it does now, and what ends it then.
    fn left(&self, limits: &Limits) -> (Duration, Stalled) {
        let now = self.now();
        let [last, waited, waiting] =
            [&self.0.last, &self.0.waited, &self.0.waiting].map(|time| time.load(Ordering::Relaxed));
        let since = now.saturating_sub(last);
        let left = |limit: Duration, spent: u64| limit.saturating_sub(Duration::from_micros(spent));
        let unanswered = (left(limits.answer, since), Stalled::Waiting);
        let busy = (left(limits.call, since.saturating_sub(waited)), Stalled::Busy);
        let spent = (left(limits.total, now), Stalled::Spent);
        let ends = match waiting {
            NOT => [busy, unanswered, spent],
            _ => [unanswered, unanswered, spent],
        };
        // The first one of those that come at the same time.
        ends.into_iter().min_by_key(|(left, _)| *left).unwrap_or(spent)
    }

    /// Returns when the call has made no progress for as long as it may, or the instance has run for as long as it may.
    pub(super) async fn stalled(&self, limits: &Limits) -> Stalled {
        loop {
            let (left, doing) = self.left(limits);
            if left.is_zero() {
                return doing;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::LimitSpec;

    fn limits(call: u64, answer: u64) -> Limits {
        Limits {
            call: Duration::from_millis(call),
            answer: Duration::from_millis(answer),
            ..Limits::new(&LimitSpec::default(), &LimitSpec::default())
        }
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(test)
    }

    #[test]
    fn what_fails_at_once_is_no_progress_however_often() {
        run(async {
            let progress = Progress::new();
            let limits = limits(100, 60_000);
            let start = Instant::now();
            while !progress.left(&limits).0.is_zero() {
                progress.waiting(async {}).await;
                assert!(start.elapsed() < Duration::from_secs(10));
            }
            assert_eq!(progress.left(&limits).1, Stalled::Busy);
            progress.mark();
            assert!(!progress.left(&limits).0.is_zero());
        });
    }

    #[test]
    fn time_that_is_waited_for_a_server_is_no_time_that_is_computed() {
        run(async {
            let progress = Progress::new();
            let server = || tokio::time::sleep(Duration::from_millis(300));
            progress.waiting(server()).await;
            assert!(!progress.left(&limits(200, 60_000)).0.is_zero());
            assert_eq!(
                progress.left(&limits(60_000, 200)),
                (Duration::ZERO, Stalled::Waiting)
            );
        });
    }

    /// A wait that ends well may be followed by a loop without end.
    #[test]
    fn a_wait_that_is_over_does_not_put_the_end_off() {
        run(async {
            let progress = Progress::new();
            let (limits, start) = (limits(100, 60_000), Instant::now());
            progress.0.waiting.store(0, Ordering::Relaxed);
            let ends = progress.stalled(&limits);
            let (stalled, ()) = tokio::join!(ends, async { progress.mark() });
            assert_eq!(stalled, Stalled::Busy);
            assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        });
    }
}
