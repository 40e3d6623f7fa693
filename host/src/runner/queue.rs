//! What waits between reading and writing: a few batches, and not more of them than memory should hold.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use arrow_array::{Array, RecordBatch};

use crate::connector::Chunk;

/// How many batches may wait. Deeper queues only cost cache and page faults.
const MAX_CHUNKS: usize = 3;
/// How many bytes may wait, a single batch excepted.
const MAX_BYTES: u64 = 64 << 20;

/// A chunk and the bytes of its columns.
pub(super) struct Weighed {
    pub(super) chunk: Chunk,
    pub(super) bytes: u64,
}

/// The end that reading fills. Dropped, it ends the queue behind what waits.
pub(super) struct Sender(Arc<Shared>);

/// The end that writing empties. Dropped, it makes sending fail.
pub(super) struct Receiver(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Weighed>,
    bytes: u64,
    /// One of the ends is gone.
    over: bool,
}

pub(super) fn queue() -> (Sender, Receiver) {
    let shared = Arc::new(Shared {
        state: Mutex::default(),
        changed: Condvar::new(),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl Sender {
    /// Waits until there is room. False: the other end is gone.
    pub(super) fn send(&self, chunk: Chunk) -> bool {
        let bytes = data_bytes(&chunk.batch);
        let mut state = self.0.wait_while(|state| {
            let full = state.waiting.len() >= MAX_CHUNKS || state.bytes + bytes > MAX_BYTES;
            !state.over && full && !state.waiting.is_empty()
        });
        if state.over {
            return false;
        }
        state.bytes += bytes;
        state.waiting.push_back(Weighed { chunk, bytes });
        self.0.changed.notify_all();
        true
    }
}

impl Iterator for Receiver {
    type Item = Weighed;

    fn next(&mut self) -> Option<Weighed> {
        let mut state = self.0.wait_while(|state| state.waiting.is_empty() && !state.over);
        let weighed = state.waiting.pop_front()?;
        state.bytes -= weighed.bytes;
        self.0.changed.notify_all();
        Some(weighed)
    }
}

impl Shared {
    fn wait_while(&self, condition: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.changed
            .wait_while(state, |state| condition(state))
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        self.changed.notify_all();
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// The size of a batch's columns, without what surrounds a slice.
fn data_bytes(batch: &RecordBatch) -> u64 {
    let sizes = batch
        .columns()
        .iter()
        .map(|column| column.to_data().get_slice_memory_size().unwrap_or(0));
    sizes.sum::<usize>() as u64
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use arrow_array::Int64Array;

    use super::*;
    use crate::record::{DataType, Field, Schema};

    fn chunk(rows: usize) -> Chunk {
        let field = Field {
            name: "n".into(),
            data_type: DataType::Int64,
            nullable: false,
            native_type: None,
        };
        let schema = Schema {
            fields: vec![field],
            primary_key: Vec::new(),
        };
        let column = Int64Array::from(vec![7; rows]);
        let batch = RecordBatch::try_new(schema.to_arrow(), vec![Arc::new(column)]).expect("a batch");
        Chunk {
            batch,
            position: None,
        }
    }

    /// How many chunks of this size are taken before anybody receives one.
    fn taken(rows: usize) -> usize {
        let (sender, receiver) = queue();
        let sent = AtomicUsize::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                while sender.send(chunk(rows)) {
                    sent.fetch_add(1, Ordering::SeqCst);
                }
            });
            // Full when nothing has been sent for a while.
            let mut before = usize::MAX;
            while before != sent.load(Ordering::SeqCst) {
                before = sent.load(Ordering::SeqCst);
                thread::sleep(std::time::Duration::from_millis(300));
            }
            drop(receiver);
        });
        sent.into_inner()
    }

    #[test]
    fn few_batches_wait_and_large_ones_alone() {
        assert_eq!(taken(10), 3);
        // 40 MB and 80 MB.
        assert_eq!(taken(5_000_000), 1);
        assert_eq!(taken(10_000_000), 1);
    }

    #[test]
    fn what_was_sent_arrives_in_order_and_then_ends() {
        let (sender, receiver) = queue();
        let received = thread::scope(|scope| {
            scope.spawn(move || {
                for rows in 1..=20 {
                    assert!(sender.send(chunk(rows)));
                }
            });
            receiver
                .map(|weighed| (weighed.chunk.batch.num_rows(), weighed.bytes))
                .collect::<Vec<_>>()
        });
        let expected: Vec<_> = (1..=20).map(|rows| (rows, rows as u64 * 8)).collect();
        assert_eq!(received, expected);
    }
}
