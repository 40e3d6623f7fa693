//! Work that a connector can make long, though it is the host's own: compiling, and checking with its schema.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The stack of such work, which recurses as deep as a schema and a configuration together: see `measure`. Only what is
/// used of it takes memory.
const STACK_BYTES: usize = 256 << 20;

/// Does the work on a thread of its own, which is left behind when it takes too long: nothing but the end of the process
/// ends it. None: it took too long.
pub(super) fn within<T: Send + 'static>(
    time: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, done) = channel();
    let worker = thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(work());
    });
    let worker = worker.expect("the system has room for a thread");
    match done.recv_timeout(time) {
        Ok(result) => Some(result),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(()) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_too_long_is_left_behind() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let long = || thread::sleep(Duration::from_secs(60));
        assert_eq!(within(Duration::from_millis(10), long), None);
    }
}
