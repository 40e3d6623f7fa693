//! The only loop that moves rows.
//!
//! Extract is a copy from a connector's reader into the blob sink's writer, load one from the blob source's reader
//! into a connector's writer, and a direct run one from connector to connector. The loop knows none of them, only the
//! traits. Reading runs on a thread of its own, a few batches ahead of writing, so that both ends work at the same
//! time and memory does not depend on how many rows there are.

use std::panic::resume_unwind;
use std::thread;

use tokio_util::sync::CancellationToken;

use super::queue::{Receiver, Sender, Weighed, queue};
use crate::connector::{BatchLimit, Error, ErrorKind, LoadSummary, PartBudget, Reader, Result, Writer};

/// When what was written is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commits {
    /// Never: the writer keeps account of what is durable by itself, as the blob sink does in its manifest.
    ByWriter,
    /// After every chunk, with marks that count on from this one: how a load commits each staged part.
    EachChunk {
        /// The mark that an earlier attempt committed; reading was started behind it.
        after: u64,
    },
    /// Once, with mark 1, just before `finish`: how a direct copy leaves nothing behind when it dies.
    AtEnd,
}

/// How a copy went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Rows that this copy moved.
    pub rows: u64,
    /// Bytes of column data of those rows.
    pub bytes: u64,
    /// Chunks in which they came: for a load, parts.
    pub chunks: u64,
    /// What the writer said at the end.
    pub summary: LoadSummary,
}

/// What a copy tells and heeds while it runs.
pub struct Control<'a> {
    /// Told the rows and bytes of each batch once it is written.
    pub progress: &'a (dyn Fn(u64, u64) + Sync),
    /// Ends the copy with [`ErrorKind::Interrupted`]. The copy itself sets it when one end fails, so that the other
    /// one, which may be waiting for a slow system, lets go.
    pub cancel: &'a CancellationToken,
}

/// Moves all rows of `reader` into `writer`, commits as asked and finishes.
///
/// The error is that of the end that failed first; nothing is finished then.
pub fn copy(
    reader: &mut dyn Reader,
    writer: &mut dyn Writer,
    commits: Commits,
    control: &Control<'_>,
) -> Result<Copied> {
    let budget = writer.part_budget();
    let (sender, receiver) = queue();
    let (read, written) = thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let read = read_all(reader, budget.as_deref(), sender, control.cancel);
            if read.is_err() {
                control.cancel.cancel();
            }
            read
        });
        let written = write_all(writer, receiver, commits, control);
        if written.is_err() {
            control.cancel.cancel();
        }
        (
            reading.join().unwrap_or_else(|panic| resume_unwind(panic)),
            written,
        )
    });
    let (high_water_mark, mut copied) = first_failure(read, written)?;
    if commits == Commits::AtEnd {
        writer.commit(1)?;
    }
    copied.summary = writer.finish(high_water_mark)?;
    Ok(copied)
}

/// Reads to the end and returns the high-water mark. Stops early, without an error, when the writing end is gone.
fn read_all(
    reader: &mut dyn Reader,
    budget: Option<&PartBudget>,
    queue: Sender,
    cancel: &CancellationToken,
) -> Result<Option<String>> {
    let wanted = BatchLimit::default();
    loop {
        if cancel.is_cancelled() {
            return Err(interrupted());
        }
        let limit = budget.map_or(wanted, |budget| budget.next_limit(wanted));
        let Some(chunk) = reader.next(limit)? else {
            return reader.high_water_mark();
        };
        if let Some(budget) = budget {
            budget.took(chunk.batch.num_rows() as u64);
        }
        if !queue.send(chunk) {
            return Ok(None);
        }
    }
}

/// Writes what comes until the reading end is gone.
fn write_all(
    writer: &mut dyn Writer,
    queue: Receiver,
    commits: Commits,
    control: &Control<'_>,
) -> Result<Copied> {
    let mut copied = Copied::default();
    for Weighed { chunk, bytes } in queue {
        if control.cancel.is_cancelled() {
            return Err(interrupted());
        }
        let rows = chunk.batch.num_rows() as u64;
        writer.write(chunk)?;
        copied.rows += rows;
        copied.bytes += bytes;
        copied.chunks += 1;
        if let Commits::EachChunk { after } = commits {
            writer.commit(after + copied.chunks)?;
        }
        (control.progress)(rows, bytes);
    }
    Ok(copied)
}

/// The results of both ends, or the error that explains the other: an end that was stopped because the other one
/// failed says only that it was interrupted.
fn first_failure<R, W>(read: Result<R>, written: Result<W>) -> Result<(R, W)> {
    match (read, written) {
        (Ok(read), Ok(written)) => Ok((read, written)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Err(read), Err(written)) if read.kind() == ErrorKind::Interrupted => Err(written),
        (Err(read), Err(_)) => Err(read),
    }
}

pub(super) fn interrupted() -> Error {
    Error::new(
        ErrorKind::Interrupted,
        "interrupted; the same command goes on from here",
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;
    use std::time::Duration;

    use arrow_array::{Int64Array, RecordBatch};

    use super::*;
    use crate::connector::Chunk;
    use crate::record::{DataType, Field, Schema};

    /// Yields batches of rows until it has yielded enough, or fails.
    struct Rows {
        schema: Schema,
        left: u64,
        per_batch: u64,
        fails_at_end: bool,
        limits: Vec<u32>,
        cancel: Option<CancellationToken>,
    }

    impl Rows {
        fn new(rows: u64) -> Self {
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
            Rows {
                schema,
                left: rows,
                per_batch: u64::MAX,
                fails_at_end: false,
                limits: Vec::new(),
                cancel: None,
            }
        }
    }

    impl Reader for Rows {
        fn schema(&self) -> &Schema {
            &self.schema
        }

        fn next(&mut self, limit: BatchLimit) -> Result<Option<Chunk>> {
            self.limits.push(limit.rows);
            if self.left == 0 {
                if let Some(cancel) = &self.cancel {
                    while !cancel.is_cancelled() {
                        thread::yield_now();
                    }
                    return Err(interrupted());
                }
                return match self.fails_at_end {
                    true => Err(Error::new(ErrorKind::Data, "row 7 is bad")),
                    false => Ok(None),
                };
            }
            let rows = self.left.min(limit.rows.into()).min(self.per_batch);
            self.left -= rows;
            let column = Int64Array::from_iter_values(0..rows as i64);
            let batch = RecordBatch::try_new(self.schema.to_arrow(), vec![Arc::new(column)]).unwrap();
            Ok(Some(Chunk {
                batch,
                position: None,
            }))
        }

        fn high_water_mark(&mut self) -> Result<Option<String>> {
            Ok(Some("42".into()))
        }
    }

    /// Notes what is called.
    #[derive(Default)]
    struct Notes {
        calls: Vec<String>,
        fails_at_row: Option<u64>,
        rows: u64,
        budget: Option<Arc<PartBudget>>,
    }

    impl Writer for Notes {
        fn committed(&mut self) -> Result<u64> {
            Ok(0)
        }
        fn write(&mut self, chunk: Chunk) -> Result<()> {
            self.rows += chunk.batch.num_rows() as u64;
            self.calls.push(format!("write {}", chunk.batch.num_rows()));
            match self.fails_at_row {
                Some(row) if self.rows >= row => {
                    Err(Error::new(ErrorKind::Unreachable, "the server went away"))
                }
                _ => Ok(()),
            }
        }
        fn commit(&mut self, mark: u64) -> Result<()> {
            self.calls.push(format!("commit {mark}"));
            Ok(())
        }
        fn finish(&mut self, high_water_mark: Option<String>) -> Result<LoadSummary> {
            self.calls
                .push(format!("finish {}", high_water_mark.unwrap_or_default()));
            Ok(LoadSummary {
                rows_written: self.rows,
            })
        }
        fn part_budget(&self) -> Option<Arc<PartBudget>> {
            self.budget.clone()
        }
    }

    fn run(reader: &mut Rows, writer: &mut Notes, commits: Commits) -> Result<Copied> {
        let cancel = CancellationToken::new();
        copy(
            reader,
            writer,
            commits,
            &Control {
                progress: &|_, _| {},
                cancel: &cancel,
            },
        )
    }

    #[test]
    fn a_load_commits_each_part_with_marks_that_count_on() {
        let (mut reader, mut writer) = (
            Rows {
                per_batch: 2,
                ..Rows::new(5)
            },
            Notes::default(),
        );
        let copied = run(&mut reader, &mut writer, Commits::EachChunk { after: 7 }).unwrap();
        let expected = [
            "write 2",
            "commit 8",
            "write 2",
            "commit 9",
            "write 1",
            "commit 10",
            "finish 42",
        ];
        assert_eq!(writer.calls, expected);
        assert_eq!((copied.rows, copied.bytes, copied.chunks), (5, 40, 3));
        assert_eq!(copied.summary.rows_written, 5);
    }

    #[test]
    fn a_direct_copy_commits_once_just_before_it_finishes() {
        let (mut reader, mut writer) = (
            Rows {
                per_batch: 3,
                ..Rows::new(5)
            },
            Notes::default(),
        );
        run(&mut reader, &mut writer, Commits::AtEnd).unwrap();
        assert_eq!(writer.calls, ["write 3", "write 2", "commit 1", "finish 42"]);
    }

    #[test]
    fn a_stream_without_rows_is_finished_all_the_same() {
        let mut writer = Notes::default();
        run(&mut Rows::new(0), &mut writer, Commits::ByWriter).unwrap();
        assert_eq!(writer.calls, ["finish 42"]);
    }

    #[test]
    fn an_error_of_the_reader_leaves_the_load_unfinished() {
        let (mut reader, mut writer) = (
            Rows {
                fails_at_end: true,
                ..Rows::new(4)
            },
            Notes::default(),
        );
        let error = run(&mut reader, &mut writer, Commits::AtEnd).unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Data, "row 7 is bad"));
        assert!(
            writer.calls.iter().all(|call| call.starts_with("write")),
            "{:?}",
            writer.calls
        );
    }

    #[test]
    fn an_error_of_the_writer_stops_a_reader_that_waits() {
        let cancel = CancellationToken::new();
        let mut reader = Rows {
            cancel: Some(cancel.clone()),
            ..Rows::new(4)
        };
        let mut writer = Notes {
            fails_at_row: Some(1),
            ..Notes::default()
        };
        let (sender, done) = mpsc::channel();
        thread::spawn(move || {
            let control = Control {
                progress: &|_, _| {},
                cancel: &cancel,
            };
            let _ = sender.send(copy(&mut reader, &mut writer, Commits::AtEnd, &control));
        });
        let result = done.recv_timeout(Duration::from_secs(30)).expect("the copy ends");
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Unreachable);
    }

    #[test]
    fn an_interrupted_copy_finishes_nothing() {
        let cancel = CancellationToken::new();
        cancel.cancel();
        let mut writer = Notes::default();
        let control = Control {
            progress: &|_, _| {},
            cancel: &cancel,
        };
        let error = copy(&mut Rows::new(5), &mut writer, Commits::AtEnd, &control).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Interrupted);
        assert_eq!(writer.calls, Vec::<String>::new());
    }

    #[test]
    fn batches_end_where_the_writers_parts_end() {
        let mut reader = Rows::new(50_000);
        let mut writer = Notes {
            budget: Some(Arc::new(PartBudget::new(20_000))),
            ..Notes::default()
        };
        run(&mut reader, &mut writer, Commits::ByWriter).unwrap();
        assert_eq!(reader.limits[..6], [8192, 8192, 3616, 8192, 8192, 3616]);
    }
}
