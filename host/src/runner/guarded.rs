//! A destination's writer, watched: it stops once the load was taken over by another process, and what it claims is held
//! against what it was given.

use std::sync::Arc;

use crate::connector::{Chunk, Error, ErrorKind, LoadSummary, PartBudget, Result, Writer};
use crate::staging::Fence;

/// Asks a fence before each commit and before the end. A transactional destination knows the attempts of a load as well,
/// and refuses the older one in the transaction itself; this is what others have, and the clearer message for all.
pub(super) struct GuardedWriter<'a> {
    inner: Box<dyn Writer + 'a>,
    fence: Arc<dyn Fence>,
    claims: Claims,
    /// Given to the load so far, earlier attempts included.
    rows: u64,
}

/// What can be known of a load without believing its destination.
pub(super) struct Claims {
    /// "connector csv 0.1.0, stream orders"
    pub(super) place: String,
    pub(super) run: String,
    /// How many marks the whole load has.
    pub(super) marks: u64,
    pub(super) is_first_attempt: bool,
    /// The destination remembers marks and rows over all attempts.
    pub(super) transactional: bool,
}

impl<'a> GuardedWriter<'a> {
    pub(super) fn new(inner: Box<dyn Writer + 'a>, fence: Arc<dyn Fence>, claims: Claims) -> Self {
        GuardedWriter {
            inner,
            fence,
            claims,
            rows: 0,
        }
    }

    /// Earlier attempts have committed so many rows.
    pub(super) fn goes_on_after(&mut self, rows: u64) {
        self.rows = rows;
    }
}

impl Claims {
    fn check_mark(&self, mark: u64) -> Result<()> {
        let Claims { run, marks, .. } = self;
        if mark > *marks {
            return Err(self.broken(
                "committed",
                format!("mark {mark} is committed, it says, and the load has {marks} of them"),
            ));
        }
        if mark > 0 && self.is_first_attempt && self.transactional {
            let message = format!(
                "mark {mark} is committed, it says, and this is the load's first attempt: either run `{run}` was used \
                 before and removed since, so take another id, or the connector broke the contract"
            );
            return Err(Error::new(ErrorKind::Conflict, message).at(self.call("committed")));
        }
        Ok(())
    }

    fn check_rows(&self, said: u64, given: u64) -> Result<()> {
        // What remembers nothing counts the rows of its last attempt.
        if said == given || !self.transactional && !self.is_first_attempt {
            return Ok(());
        }
        Err(self.broken(
            "finish",
            format!("it says that it wrote {said} rows, and it was given {given}"),
        ))
    }

    fn broken(&self, call: &str, what: String) -> Error {
        let message = format!("the connector broke the contract: {what}");
        Error::new(ErrorKind::BrokenContract, message).at(self.call(call))
    }

    fn call(&self, call: &str) -> String {
        format!("{}, call destination.writer.{call}", self.place)
    }
}

impl Writer for GuardedWriter<'_> {
    fn committed(&mut self) -> Result<u64> {
        let mark = self.inner.committed()?;
        self.claims.check_mark(mark)?;
        Ok(mark)
    }

    fn write(&mut self, chunk: Chunk) -> Result<()> {
        self.rows += chunk.batch.num_rows() as u64;
        self.inner.write(chunk)
    }

    fn commit(&mut self, mark: u64) -> Result<()> {
        self.fence.check()?;
        self.inner.commit(mark)
    }

    fn finish(&mut self, high_water_mark: Option<String>) -> Result<LoadSummary> {
        self.fence.check()?;
        let summary = self.inner.finish(high_water_mark)?;
        self.claims.check_rows(summary.rows_written, self.rows)?;
        Ok(summary)
    }

    fn part_budget(&self) -> Option<Arc<PartBudget>> {
        self.inner.part_budget()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::staging::Unfenced;

    fn claims(is_first_attempt: bool, transactional: bool) -> Claims {
        Claims {
            place: "connector c 1.0.0, stream s".into(),
            run: "r".into(),
            marks: 3,
            is_first_attempt,
            transactional,
        }
    }

    /// A destination that notes what it is asked to do.
    struct Noted<'a>(&'a Mutex<Vec<&'static str>>);

    impl Writer for Noted<'_> {
        fn committed(&mut self) -> Result<u64> {
            Ok(0)
        }

        fn write(&mut self, _: Chunk) -> Result<()> {
            Ok(())
        }

        fn commit(&mut self, _: u64) -> Result<()> {
            self.0.lock().expect("whole").push("commit");
            Ok(())
        }

        fn finish(&mut self, _: Option<String>) -> Result<LoadSummary> {
            self.0.lock().expect("whole").push("finish");
            Ok(LoadSummary { rows_written: 0 })
        }
    }

    struct Closed;

    impl Fence for Closed {
        fn check(&self) -> Result<()> {
            Err(Error::new(ErrorKind::Conflict, "overtaken"))
        }
    }

    #[test]
    fn a_load_that_was_taken_over_commits_nothing_and_does_not_end() {
        let fences: [(Arc<dyn Fence>, &[&str]); 2] = [
            (Arc::new(Unfenced), &["commit", "finish"]),
            (Arc::new(Closed), &[]),
        ];
        for (fence, expected) in fences {
            let done = Mutex::default();
            let mut writer = GuardedWriter::new(Box::new(Noted(&done)), fence, claims(true, true));
            let (commit, finish) = (writer.commit(1), writer.finish(None));
            assert_eq!(commit.is_ok(), finish.is_ok());
            drop(writer);
            assert_eq!(*done.lock().expect("whole"), expected);
        }
    }

    #[test]
    fn a_mark_that_was_never_asked_for_is_not_believed() {
        for (first, transactional, mark, expected) in [
            (true, true, 0, None),
            (false, true, 3, None),
            (false, true, 4, Some(ErrorKind::BrokenContract)),
            (true, true, 1, Some(ErrorKind::Conflict)),
            // Its marks are the host's own.
            (true, false, 1, None),
        ] {
            let found = claims(first, transactional).check_mark(mark);
            assert_eq!(
                found.err().map(|error| error.kind()),
                expected,
                "{first} {transactional} {mark}"
            );
        }
    }

    #[test]
    fn a_number_of_rows_is_held_against_what_was_given() {
        for (first, transactional, said, believed) in [
            (true, true, 10, true),
            (true, true, 9, false),
            (false, true, 11, false),
            (true, false, 9, false),
            (false, false, 4, true),
        ] {
            let found = claims(first, transactional).check_rows(said, 10);
            assert_eq!(found.is_ok(), believed, "{first} {transactional} {said}");
        }
    }
}
