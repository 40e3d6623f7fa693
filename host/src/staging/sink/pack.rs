//! Batches to compressed parts.

use std::io::Write;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use arrow_array::RecordBatch;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::Message;
use crate::connector::{Chunk, Error, ErrorKind, PartBudget, Position, Result};
use crate::record::Schema;
use crate::staging::codec::{self, CodecError, MAX_ROW_BYTES};
use crate::staging::cursor::Bounds;
use crate::staging::{PART_BYTES, PART_ROWS};

/// gzip's fastest level. Staged data are written once and read once, so time counts for more than size.
const LEVEL: Compression = Compression::new(1);

/// The encoding buffer is given back when one batch made it larger than this.
const KEPT_BUFFER_BYTES: usize = 16 << 20;

/// A closed part.
pub(super) struct PackedPart {
    pub(super) gzip: Vec<u8>,
    pub(super) rows: u64,
    pub(super) min_cursor: Option<Value>,
    pub(super) max_cursor: Option<Value>,
    pub(super) position: Option<Position>,
}

/// Cuts a stream of batches into parts.
///
/// A part ends where a batch ends. Only a batch that alone is more than a part is cut within; the parts that end
/// there have no position.
pub(super) struct Packer {
    schema: Schema,
    bounds: Option<Bounds>,
    budget: Arc<PartBudget>,
    /// The number of the next batch.
    sequence: u64,
    /// The batch at hand as JSON Lines.
    encoded: Vec<u8>,
    open: Open,
}

/// The part that is being filled.
struct Open {
    gzip: GzEncoder<Vec<u8>>,
    rows: u64,
    /// Uncompressed.
    bytes: u64,
    position: Option<Position>,
}

impl Open {
    fn new(capacity: usize) -> Self {
        Open {
            gzip: GzEncoder::new(Vec::with_capacity(capacity), LEVEL),
            rows: 0,
            bytes: 0,
            position: None,
        }
    }
}

/// Takes closed parts; an error means that nobody does any more.
type Emit<'a> = dyn FnMut(PackedPart) -> Result<(), Stopped> + 'a;

/// The thread that stores parts has stopped; it has said why.
pub(super) struct Stopped;

/// Why packing ends early.
enum Interruption {
    Stopped,
    Failed(Error),
}

impl From<Stopped> for Interruption {
    fn from(_: Stopped) -> Self {
        Interruption::Stopped
    }
}

impl From<CodecError> for Interruption {
    fn from(error: CodecError) -> Self {
        // A line here is a row of the batch; that number tells a person nothing.
        let error = CodecError { line: None, ..error };
        Interruption::Failed(Error::new(
            ErrorKind::Data,
            format!("cannot stage a row: {error}"),
        ))
    }
}

impl Packer {
    /// For batches of this schema; with a cursor field, parts get its bounds.
    pub(super) fn new(schema: Schema, cursor_field: Option<&str>, budget: Arc<PartBudget>) -> Self {
        Packer {
            bounds: cursor_field.and_then(|field| Bounds::new(&schema, field)),
            schema,
            budget,
            sequence: 0,
            encoded: Vec::new(),
            open: Open::new(0),
        }
    }

    /// Packs what comes until a flush, which closes the last part, or until the sender is gone, which does not.
    pub(super) fn run(mut self, messages: &Receiver<Message>, parts: &SyncSender<PackedPart>) -> Result<()> {
        let mut emit = |part| parts.send(part).map_err(|_| Stopped);
        for message in messages {
            let (done, is_last) = match message {
                Message::Chunk(chunk) => (self.add(chunk, &mut emit), false),
                Message::Flush => (self.close(&mut emit), true),
            };
            match done {
                Err(Interruption::Failed(error)) => return Err(error),
                Err(Interruption::Stopped) => break,
                Ok(()) if is_last => break,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn add(&mut self, chunk: Chunk, emit: &mut Emit<'_>) -> Result<(), Interruption> {
        let sequence = self.sequence;
        self.sequence += 1;
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        codec::encode(&self.schema, &chunk.batch, &mut encoded)?;
        let rows = chunk.batch.num_rows() as u64;
        if self.open.rows > 0 && !self.has_room(rows, encoded.len()) {
            self.close(emit)?;
            self.budget.cut_before(sequence);
        }
        if self.has_room(rows, encoded.len()) {
            self.append(&chunk.batch, &encoded)?;
        } else {
            self.append_in_pieces(&chunk.batch, &encoded, emit)?;
        }
        self.open.position = chunk.position;
        if encoded.capacity() <= KEPT_BUFFER_BYTES {
            self.encoded = encoded;
        }
        if self.open.rows >= PART_ROWS || self.open.bytes >= PART_BYTES {
            self.close(emit)?;
        }
        Ok(())
    }

    /// Whether so much more still fits into the open part.
    fn has_room(&self, rows: u64, bytes: usize) -> bool {
        self.open.rows + rows <= PART_ROWS && self.open.bytes + bytes as u64 <= PART_BYTES
    }

    fn append(&mut self, batch: &RecordBatch, lines: &[u8]) -> Result<(), Interruption> {
        if let Some(bounds) = &mut self.bounds {
            bounds.observe(batch)?;
        }
        self.open.rows += batch.num_rows() as u64;
        self.open.bytes += lines.len() as u64;
        self.open.gzip.write_all(lines).map_err(compression)
    }

    /// Appends a batch that is more than a part: as many rows at once as there is room for, at least one.
    fn append_in_pieces(
        &mut self,
        batch: &RecordBatch,
        lines: &[u8],
        emit: &mut Emit<'_>,
    ) -> Result<(), Interruption> {
        let (mut first_row, mut start) = (0, 0);
        let (mut row, mut end) = (0, 0);
        for newline in memchr::memchr_iter(b'\n', lines) {
            let line_start = end;
            if (newline + 1 - line_start) as u64 > MAX_ROW_BYTES {
                return Err(CodecError::new(format!("it is larger than {MAX_ROW_BYTES} bytes")).into());
            }
            if row > first_row && !self.has_room((row + 1 - first_row) as u64, newline + 1 - start) {
                self.append(
                    &batch.slice(first_row, row - first_row),
                    &lines[start..line_start],
                )?;
                self.close(emit)?;
                (first_row, start) = (row, line_start);
            }
            (row, end) = (row + 1, newline + 1);
        }
        self.append(&batch.slice(first_row, row - first_row), &lines[start..end])
    }

    fn close(&mut self, emit: &mut Emit<'_>) -> Result<(), Interruption> {
        if self.open.rows == 0 {
            return Ok(());
        }
        // The next part will be about as large as this one.
        let capacity = self.open.gzip.get_ref().len();
        let open = std::mem::replace(&mut self.open, Open::new(capacity));
        let mut part = PackedPart {
            gzip: open.gzip.finish().map_err(compression)?,
            rows: open.rows,
            min_cursor: None,
            max_cursor: None,
            position: open.position,
        };
        if let Some(bounds) = &mut self.bounds {
            part.min_cursor = bounds.min().map(|value| value.to_json());
            part.max_cursor = bounds.max().map(|value| value.to_json());
            bounds.reset();
        }
        Ok(emit(part)?)
    }
}

fn compression(error: std::io::Error) -> Interruption {
    Interruption::Failed(Error::new(
        ErrorKind::Internal,
        format!("cannot compress a part: {error}"),
    ))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, StringArray};

    use super::*;
    use crate::connector::BatchLimit;
    use crate::record::{DataType, Field};

    fn schema() -> Schema {
        let field = |name: &str, data_type| Field {
            name: name.into(),
            data_type,
            nullable: false,
            native_type: None,
        };
        Schema {
            fields: vec![field("n", DataType::Int64), field("t", DataType::Text)],
            primary_key: Vec::new(),
        }
    }

    /// Rows of two columns; each row takes `width + 11` bytes as a line, as long as `n` has five digits.
    fn chunk(from: i64, rows: i64, width: usize, position: Option<u8>) -> Chunk {
        let text = "x".repeat(width);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from_iter_values(from..from + rows)),
            Arc::new(StringArray::from_iter_values((0..rows).map(|_| &text))),
        ];
        Chunk {
            batch: RecordBatch::try_new(schema().to_arrow(), columns).unwrap(),
            position: position.map(|p| vec![p]),
        }
    }

    /// What the parts hold: rows, bytes uncompressed, least and greatest `n`, position.
    type Cut = (u64, usize, i64, i64, Option<u8>);

    fn pack(budget: &Arc<PartBudget>, chunks: impl IntoIterator<Item = Chunk>) -> Vec<Cut> {
        let mut packer = Packer::new(schema(), Some("n"), Arc::clone(budget));
        let mut parts = Vec::new();
        let mut emit = |part: PackedPart| {
            let mut lines = Vec::new();
            std::io::copy(&mut flate2::read::GzDecoder::new(&part.gzip[..]), &mut lines).unwrap();
            assert_eq!(memchr::memchr_iter(b'\n', &lines).count() as u64, part.rows);
            let bound = |value: Option<Value>| value.unwrap().as_i64().unwrap();
            let position = part.position.map(|p| p[0]);
            let bounds = (bound(part.min_cursor), bound(part.max_cursor));
            parts.push((part.rows, lines.len(), bounds.0, bounds.1, position));
            Ok(())
        };
        for chunk in chunks {
            assert!(packer.add(chunk, &mut emit).is_ok());
        }
        assert!(packer.close(&mut emit).is_ok());
        parts
    }

    fn budget() -> Arc<PartBudget> {
        Arc::new(PartBudget::new(PART_ROWS))
    }

    #[test]
    fn a_part_of_small_rows_is_full_when_the_reader_keeps_to_the_budget() {
        let budget = budget();
        let mut chunks = Vec::new();
        let mut from = 10_000;
        while from < 130_000 {
            let limit = budget.next_limit(BatchLimit::default()).rows;
            let rows = i64::from(limit).min(130_000 - from);
            budget.took(rows as u64);
            chunks.push(chunk(from, rows, 0, Some(chunks.len() as u8)));
            from += rows;
        }
        let parts = pack(&budget, chunks);
        let rows: Vec<_> = parts.iter().map(|p| (p.0, p.2, p.3, p.4)).collect();
        assert_eq!(
            rows,
            [
                (50_000, 10_000, 59_999, Some(6)),
                (50_000, 60_000, 109_999, Some(13)),
                (20_000, 110_000, 129_999, Some(16)),
            ]
        );
    }

    #[test]
    fn a_part_ends_before_the_batch_that_it_has_no_room_for() {
        // 20 MB a batch: three fit into 64 MiB, a fourth does not.
        let budget = budget();
        let chunks = (0..7).map(|i| {
            budget.took(20);
            chunk(10_000 + i * 20, 20, 1_000_000, Some(i as u8))
        });
        let parts = pack(&budget, chunks.collect::<Vec<_>>());
        let cuts: Vec<_> = parts.iter().map(|p| (p.0, p.4)).collect();
        assert_eq!(cuts, [(60, Some(2)), (60, Some(5)), (20, Some(6))]);
        assert_eq!(parts[0].1, 60 * 1_000_011);
        assert_eq!(
            budget
                .next_limit(BatchLimit {
                    rows: u32::MAX,
                    bytes: 0
                })
                .rows,
            50_000 - 20,
            "the reader was told of the cuts"
        );
    }

    #[test]
    fn a_batch_larger_than_a_part_is_cut_within() {
        // 100 MB in one batch, cut at 64 MiB; what is left goes on as an open part.
        let parts = pack(
            &budget(),
            [
                chunk(10_000, 100, 1_000_000, Some(1)),
                chunk(10_100, 10, 1_000_000, Some(2)),
            ],
        );
        assert_eq!(
            parts,
            [
                (67, 67 * 1_000_011, 10_000, 10_066, None),
                (43, 43 * 1_000_011, 10_067, 10_109, Some(2)),
            ]
        );
        let parts = pack(
            &budget(),
            [chunk(10_000, 5, 0, Some(0)), chunk(10_005, 80_000, 0, Some(1))],
        );
        let cuts: Vec<_> = parts.iter().map(|p| (p.0, p.2, p.3, p.4)).collect();
        assert_eq!(
            cuts,
            [
                (5, 10_000, 10_004, Some(0)),
                (50_000, 10_005, 60_004, None),
                (30_000, 60_005, 90_004, Some(1)),
            ]
        );
    }

    #[test]
    fn a_row_wider_than_a_part_is_a_part_of_its_own() {
        let wide = PART_BYTES as usize;
        let parts = pack(
            &budget(),
            [chunk(10_000, 2, wide, Some(1)), chunk(10_002, 3, 5, Some(2))],
        );
        assert_eq!(
            parts,
            [
                (1, wide + 11, 10_000, 10_000, None),
                (1, wide + 11, 10_001, 10_001, Some(1)),
                (3, 3 * 16, 10_002, 10_004, Some(2)),
            ]
        );
    }

    #[test]
    fn a_part_of_exactly_the_cap_is_one_part() {
        let width = (PART_BYTES / 64) as usize - 11;
        let parts = pack(
            &budget(),
            [
                chunk(10_000, 64, width, Some(1)),
                chunk(10_064, 65, width, Some(2)),
            ],
        );
        let cuts: Vec<_> = parts.iter().map(|p| (p.0, p.1 as u64, p.4)).collect();
        assert_eq!(
            cuts,
            [
                (64, PART_BYTES, Some(1)),
                (64, PART_BYTES, None),
                (1, PART_BYTES / 64, Some(2)),
            ]
        );
    }

    #[test]
    fn a_chunk_without_a_position_ends_a_part_without_one() {
        let parts = pack(
            &budget(),
            [chunk(10_000, 5, 0, Some(0)), chunk(10_005, 5, 0, None)],
        );
        assert_eq!(parts[0].4, None);
    }
}
