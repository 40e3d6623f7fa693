//! How much of a processor an instance may compute with.
//!
//! A token bucket: time fills it, at the share that is allowed, and computing empties it. A guest that has emptied it is
//! paused when the epoch next makes it yield, until time has filled it again.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// How long a guest may compute without a pause after it has been idle.
const BURST: Duration = Duration::from_millis(100);

/// An instance's bucket.
#[derive(Debug)]
pub(super) struct Share {
    /// Of one processor, in hundredths; 100 and more: no pauses.
    percent: u32,
    /// Seconds of computing that are left; below 0: used in advance.
    left: f64,
    /// When `left` was brought up to date: by the clock, and by what this thread had computed by then.
    seen: (Instant, Duration),
}

impl Share {
    pub(super) fn new(percent: u32) -> Self {
        Share {
            percent,
            left: BURST.as_secs_f64(),
            seen: (Instant::now(), Duration::ZERO),
        }
    }

    /// A call begins. What this thread computed since the last one was not the guest's.
    pub(super) fn begin(&mut self) {
        if self.percent < 100 {
            let now = (Instant::now(), thread_time());
            self.settle((now.0, self.seen.1));
            self.seen = now;
        }
    }

    /// A call has ended.
    pub(super) fn end(&mut self) {
        if self.percent < 100 {
            self.settle((Instant::now(), thread_time()));
        }
    }

    /// How long a guest that computes must pause now.
    pub(super) fn pause(&mut self) -> Option<Duration> {
        if self.percent >= 100 {
            return None;
        }
        self.end();
        let owed = -self.left * 100.0 / f64::from(self.percent);
        (owed > 0.0).then(|| Duration::from_secs_f64(owed))
    }

    fn settle(&mut self, now: (Instant, Duration)) {
        let passed = now.0.duration_since(self.seen.0).as_secs_f64();
        let computed = now.1.saturating_sub(self.seen.1).as_secs_f64();
        let filled = self.left + passed * f64::from(self.percent) / 100.0;
        self.left = filled.min(BURST.as_secs_f64()) - computed;
        self.seen = now;
    }
}

/// What this thread has computed so far.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(share: &mut Share, start: Instant, passed: u64, computed: u64) -> f64 {
        share.settle((
            start + Duration::from_millis(passed),
            Duration::from_millis(computed),
        ));
        share.left
    }

    #[test]
    fn time_fills_the_bucket_to_its_brim_and_computing_empties_it() {
        let start = Instant::now();
        let mut share = Share {
            percent: 25,
            left: 0.1,
            seen: (start, Duration::ZERO),
        };
        for (passed, computed, left) in [
            (100, 0, 0.1),
            (200, 100, 0.0),
            (300, 200, -0.075),
            (600, 200, 0.0),
            (9_000, 200, 0.1),
        ] {
            let found = at(&mut share, start, passed, computed);
            assert!((found - left).abs() < 1e-9, "{passed}: {found}");
        }
    }

    #[test]
    fn a_whole_processor_is_never_waited_for() {
        let mut share = Share::new(100);
        share.begin();
        assert_eq!(share.pause(), None);
    }
}
