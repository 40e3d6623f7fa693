//! Keeps a reader's batches in step with a writer's parts.

use std::collections::VecDeque;
use std::sync::Mutex;

use super::BatchLimit;

/// How far a part is filled, shared by the thread that reads batches and the one that packs them into parts.
///
/// The reader runs some batches ahead of the writer. It asks [`next_limit`](Self::next_limit) before each batch, so
/// that a part of the full number of rows ends exactly where a batch ends. Only the writer knows how many bytes a
/// batch takes; when it must close a part early it says so with [`cut_before`](Self::cut_before), and the reader
/// counts on from there.
#[derive(Debug)]
pub struct PartBudget {
    max_rows: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Rows read for the part that the reader is filling.
    rows: u64,
    /// The batches of that part: sequence number and rows.
    batches: VecDeque<(u64, u64)>,
    /// The sequence number of the next batch.
    next: u64,
}

impl PartBudget {
    /// For parts of at most this many rows (at least 1).
    pub fn new(max_rows: u64) -> Self {
        PartBudget {
            max_rows: max_rows.max(1),
            state: Mutex::default(),
        }
    }

    /// The limit for the next batch: what the copy loop would like, but not beyond the part's end.
    pub fn next_limit(&self, wanted: BatchLimit) -> BatchLimit {
        let left = self.max_rows - self.lock().rows;
        BatchLimit {
            rows: wanted.rows.min(u32::try_from(left).unwrap_or(u32::MAX)),
            ..wanted
        }
    }

    /// A batch of this many rows was read; called once for each batch, in order.
    pub fn took(&self, rows: u64) {
        let mut state = self.lock();
        let sequence = state.next;
        state.next += 1;
        state.rows += rows;
        state.batches.push_back((sequence, rows));
        if state.rows >= self.max_rows {
            state.rows = 0;
            state.batches.clear();
        }
    }

    /// The writer closed a part before the batch with this number (counted from 0).
    pub fn cut_before(&self, sequence: u64) {
        let mut state = self.lock();
        // The reader may have finished that part long ago; then its count is right already, or will be after
        // the part that it is filling now.
        while let Some(&(first, rows)) = state.batches.front()
            && first < sequence
        {
            state.batches.pop_front();
            state.rows -= rows;
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A poisoned lock only means that another thread panicked; the counters are whole between statements.
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: BatchLimit = BatchLimit {
        rows: 8192,
        bytes: 1 << 20,
    };

    #[test]
    fn batches_end_where_a_full_part_ends() {
        let budget = PartBudget::new(50_000);
        let mut rows = Vec::new();
        for _ in 0..14 {
            let limit = budget.next_limit(WANTED).rows;
            budget.took(limit.into());
            rows.push(limit);
        }
        assert_eq!(rows[..7], [8192, 8192, 8192, 8192, 8192, 8192, 848]);
        assert_eq!(rows[7..], rows[..7]);
    }

    #[test]
    fn a_part_closed_early_starts_the_count_anew() {
        let budget = PartBudget::new(20_000);
        budget.took(8192);
        budget.took(8192);
        assert_eq!(budget.next_limit(WANTED).rows, 3616);
        budget.cut_before(1);
        assert_eq!(budget.next_limit(WANTED).rows, 8192);
        budget.took(8192);
        assert_eq!(budget.next_limit(WANTED).rows, 3616);
    }
}
