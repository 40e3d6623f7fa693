//! A destination's writer, watched: it waits for its run's turn, stops once the load was taken over by another process,
//! and what it claims is held against what it was given.

use std::sync::Arc;

use super::turn::Turn;
use crate::connector::{Chunk, Error, ErrorKind, LoadSummary, PartBudget, Result, Writer};
use crate::staging::Fence;

/// Asks a fence before each commit and before the end. A transactional destination knows the attempts of a load as well,
/// and refuses the older one in the transaction itself; this is what others have, and the clearer message for all.
pub(super) struct GuardedWriter<'a> {
    inner: Box<dyn Writer + 'a>,
    fence: Arc<dyn Fence>,
    /// Where other runs load the stream as well.
    turn: Option<Turn>,
    has_turn: bool,
    claims: Claims,
    /// Given to the load so far, earlier attempts included.
    rows: u64,
    /// Some of them may have come to stay.
    durable: bool,
}

/// What can be known of a load without believing its destination.
pub(super) struct Claims {
    /// "connector csv 0.1.0, stream orders"
    pub(super) place: String,
    pub(super) run: String,
    /// How many marks the whole load has.
    pub(super) marks: u64,
    /// An earlier attempt of the run may have committed rows.
    pub(super) has_begun: bool,
    /// The destination remembers marks and rows over all attempts.
    pub(super) transactional: bool,
}

impl<'a> GuardedWriter<'a> {
    pub(super) fn new(
        inner: Box<dyn Writer + 'a>,
        fence: Arc<dyn Fence>,
        turn: Option<Turn>,
        claims: Claims,
    ) -> Self {
        GuardedWriter {
            inner,
            fence,
            turn,
            has_turn: false,
            claims,
            rows: 0,
            durable: false,
        }
    }

    /// Earlier attempts have committed so many rows.
    pub(super) fn goes_on_after(&mut self, rows: u64) {
        self.rows = rows;
        self.durable = rows > 0;
    }

    /// Before rows may come to stay. A load without rows leaves the stream to others.
    fn take_turn(&mut self) -> Result<()> {
        if let Some(turn) = self.turn.as_ref().filter(|_| self.rows > 0 && !self.has_turn) {
            turn.take(&*self.fence)?;
            self.has_turn = true;
        }
        Ok(())
    }

    /// Makes what was given durable, if this run may.
    fn durably<T>(&mut self, step: impl FnOnce(&mut dyn Writer) -> Result<T>) -> Result<T> {
        self.take_turn()?;
        self.fence.check()?;
        let done = step(&mut *self.inner);
        match &done {
            Ok(_) => self.durable = true,
            Err(error) => self.refused(error),
        }
        done
    }

    /// A load that was refused as a whole has left nothing, so that no other run need wait for it.
    fn refused(&mut self, error: &Error) {
        use ErrorKind::{Config, Data, Denied, NotFound, Unsupported};
        let outright = matches!(error.kind(), Config | Data | Denied | NotFound | Unsupported);
        if self.durable || !outright || !self.claims.transactional || self.fence.check().is_err() {
            return;
        }
        if let Some(turn) = self.turn.as_ref().filter(|_| self.has_turn) {
            match turn.give_back() {
                Ok(()) => self.has_turn = false,
                // It says what to do once another run wants to load.
                Err(error) => {
                    tracing::warn!("{}: the turn could not be given back: {error}", self.claims.place)
                }
            }
        }
    }
}

impl Claims {
    fn check_mark(&self, mark: u64) -> Result<()> {
        let Claims { run, marks, .. } = self;
        if mark > 0 && !self.has_begun && self.transactional {
            let message = format!(
                "mark {mark} is committed, it says, and this run has committed nothing yet: either run `{run}` was used \
                 before and removed since, so take another id, or the connector broke the contract"
            );
            return Err(Error::new(ErrorKind::RunOver, message).at(self.call("committed")));
        }
        if mark > *marks {
            return Err(self.broken(
                "committed",
                format!("mark {mark} is committed, it says, and the load has {marks} of them"),
            ));
        }
        Ok(())
    }

    fn check_rows(&self, said: u64, given: u64) -> Result<()> {
        // What remembers nothing counts the rows of its last attempt.
        if said == given || !self.transactional && self.has_begun {
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
        if !self.claims.transactional {
            self.take_turn()?;
        }
        self.inner.write(chunk)
    }

    fn commit(&mut self, mark: u64) -> Result<()> {
        self.durably(|inner| inner.commit(mark))
    }

    fn finish(&mut self, high_water_mark: Option<String>) -> Result<LoadSummary> {
        let summary = self.durably(|inner| inner.finish(high_water_mark))?;
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

    use arrow_array::{Int64Array, RecordBatch};
    use arrow_schema::{DataType, Field, Schema};

    use super::super::turn::tests::{loading, turn};
    use super::*;
    use crate::blob::{Blob, Memory};
    use crate::connector::WriteMode;
    use crate::staging::Unfenced;

    fn claims(has_begun: bool, transactional: bool) -> Claims {
        Claims {
            place: "connector c 1.0.0, stream s".into(),
            run: "r".into(),
            marks: 3,
            has_begun,
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
            let mut writer = GuardedWriter::new(Box::new(Noted(&done)), fence, None, claims(false, true));
            let (commit, finish) = (writer.commit(1), writer.finish(None));
            assert_eq!(commit.is_ok(), finish.is_ok());
            drop(writer);
            assert_eq!(*done.lock().expect("whole"), expected);
        }
    }

    /// A destination whose commits fail in some way, if in any.
    struct Failing(Option<ErrorKind>);

    impl Writer for Failing {
        fn committed(&mut self) -> Result<u64> {
            Ok(0)
        }

        fn write(&mut self, _: Chunk) -> Result<()> {
            Ok(())
        }

        fn commit(&mut self, _: u64) -> Result<()> {
            self.0.map_or(Ok(()), |kind| Err(Error::new(kind, "refused")))
        }

        fn finish(&mut self, _: Option<String>) -> Result<LoadSummary> {
            Ok(LoadSummary { rows_written: 2 })
        }
    }

    fn two_rows() -> Chunk {
        let field = Field::new("id", DataType::Int64, false);
        let ids = Int64Array::from(vec![1, 2]);
        let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![Arc::new(ids)]);
        Chunk {
            batch: batch.expect("a batch"),
            position: None,
        }
    }

    #[test]
    fn a_load_takes_its_turn_before_rows_may_stay_and_gives_it_back_if_none_did() {
        use ErrorKind::{Conflict, Data, Unreachable};
        for (transactional, fails, rows_before, rows, written, committed) in [
            (true, None, 0, true, None, Some("a")),
            // What needs no commit to stay.
            (false, None, 0, true, Some("a"), Some("a")),
            (true, None, 0, false, None, None),
            (true, None, 5, false, None, Some("a")),
            (true, Some(Data), 0, true, None, None),
            (true, Some(Data), 5, true, None, Some("a")),
            (false, Some(Data), 0, true, Some("a"), Some("a")),
            // It may have been committed, and the answer lost.
            (true, Some(Unreachable), 0, true, None, Some("a")),
            // An attempt that is taken for dead may have.
            (true, Some(Conflict), 0, true, None, Some("a")),
        ] {
            let case = format!("{transactional} {fails:?} {rows_before} {rows}");
            let blob: Arc<dyn Blob> = Arc::new(Memory::default());
            let turn = turn(&blob, "a", WriteMode::Append);
            let mut writer = GuardedWriter::new(
                Box::new(Failing(fails)),
                Arc::new(Unfenced),
                Some(turn),
                claims(false, transactional),
            );
            writer.goes_on_after(rows_before);
            if rows {
                writer.write(two_rows()).expect("it is written");
            }
            assert_eq!(loading(&blob).as_deref(), written, "{case}");
            assert_eq!(writer.commit(1).is_ok(), fails.is_none(), "{case}");
            assert_eq!(loading(&blob).as_deref(), committed, "{case}");
        }
    }

    #[test]
    fn nothing_is_committed_while_another_run_has_its_turn() {
        for transactional in [true, false] {
            let blob: Arc<dyn Blob> = Arc::new(Memory::default());
            turn(&blob, "other", WriteMode::Append)
                .take(&Unfenced)
                .expect("nobody is at it");
            let done = Mutex::default();
            let mut writer = GuardedWriter::new(
                Box::new(Noted(&done)),
                Arc::new(Unfenced),
                Some(turn(&blob, "a", WriteMode::Append)),
                claims(false, transactional),
            );
            assert_eq!(writer.write(two_rows()).is_ok(), transactional);
            assert!(writer.commit(1).is_err() && writer.finish(None).is_err());
            drop(writer);
            assert!(done.lock().expect("whole").is_empty());
        }
    }

    #[test]
    fn a_mark_that_was_never_asked_for_is_not_believed() {
        for (begun, transactional, mark, expected) in [
            (false, true, 0, None),
            (true, true, 3, None),
            (true, true, 4, Some(ErrorKind::BrokenContract)),
            // Of an earlier run with this id.
            (false, true, 1, Some(ErrorKind::RunOver)),
            (false, true, 4, Some(ErrorKind::RunOver)),
            // Its marks are the host's own.
            (false, false, 1, None),
        ] {
            let found = claims(begun, transactional).check_mark(mark);
            assert_eq!(
                found.err().map(|error| error.kind()),
                expected,
                "{begun} {transactional} {mark}"
            );
        }
    }

    #[test]
    fn a_number_of_rows_is_held_against_what_was_given() {
        for (begun, transactional, said, believed) in [
            (false, true, 10, true),
            (false, true, 9, false),
            (true, true, 11, false),
            (false, false, 9, false),
            (true, false, 4, true),
        ] {
            let found = claims(begun, transactional).check_rows(said, 10);
            assert_eq!(found.is_ok(), believed, "{begun} {transactional} {said}");
        }
    }
}
