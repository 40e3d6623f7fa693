//! A read under way: a COPY in one snapshot, taken batch by batch.

use setu_sdk::{BatchBuilder, BatchLimit, Chunk, Error, Reader, Result, Schema};

use super::position::Position;
use crate::copy_out::{CopyOut, Grid};
use crate::decode::{self, Decoder};
use crate::types::Travel;

/// How a read column gets into a batch.
pub(crate) struct ReadColumn {
    pub(crate) name: String,
    pub(crate) decoder: Decoder,
}

/// The key columns of a read that returns positions.
pub(crate) struct KeyColumns {
    /// For each key column its place among the columns read, and how it travels.
    pub(crate) places: Vec<(usize, Travel)>,
    /// With the values of the row read last.
    pub(crate) position: Position,
}

/// Rows from a COPY.
pub struct PostgresReader {
    pub(crate) schema: Schema,
    pub(crate) copy: Option<CopyOut>,
    /// Those of the schema; key columns that only positions need follow in the COPY.
    pub(crate) columns: Vec<ReadColumn>,
    pub(crate) key: Option<KeyColumns>,
    pub(crate) builder: BatchBuilder,
    pub(crate) grid: Grid,
    /// In the staged form.
    pub(crate) until: Option<String>,
}

impl std::fmt::Debug for PostgresReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresReader")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

impl Reader for PostgresReader {
    fn schema(&self) -> Schema {
        self.schema.clone()
    }

    fn next(&mut self, limit: BatchLimit) -> Result<Option<Chunk>> {
        let (max_rows, max_bytes) = (
            limit.rows.max(1) as usize,
            usize::try_from(limit.bytes).unwrap_or(usize::MAX),
        );
        let Some(copy) = &mut self.copy else {
            return Ok(None);
        };
        let (mut rows, mut bytes) = (0, 0);
        let mut has_position = false;
        while rows < max_rows && (rows == 0 || bytes < max_bytes) {
            let (more_rows, more_bytes) =
                copy.rows(max_rows - rows, (max_bytes - bytes).max(1), &mut self.grid)?;
            if more_rows == 0 {
                self.copy.take().map(end_transaction).transpose()?;
                break;
            }
            let received = copy.bytes();
            for (at, column) in self.columns.iter().enumerate() {
                let builder = self.builder.column(at);
                column
                    .decoder
                    .decode(&self.grid, at, received, &column.name, builder)?;
            }
            if self.columns.is_empty() {
                (0..more_rows).for_each(|_| self.builder.push_bare_row());
            }
            has_position = self
                .key
                .as_mut()
                .is_some_and(|key| key.move_to_last(&self.grid, received));
            rows += more_rows;
            bytes += more_bytes;
        }
        let position = match &self.key {
            Some(key) if has_position && rows > 0 => Some(key.position.encode()?),
            _ => None,
        };
        // A key of enormous texts makes a position that the contract does not allow; it may be left out.
        let position = position.filter(|position| position.len() <= 65_536);
        Ok(self.builder.take_chunk(position))
    }

    fn high_water_mark(&self) -> Option<String> {
        self.until.clone()
    }
}

fn end_transaction(copy: CopyOut) -> Result<()> {
    let mut client = copy.into_client();
    client
        .execute("COMMIT")
        .map_err(|error: Error| error.context("ending the read"))?;
    client.close();
    Ok(())
}

impl KeyColumns {
    /// Takes the key of the grid's last row. False: it has no text to resume by.
    fn move_to_last(&mut self, grid: &Grid, bytes: &[u8]) -> bool {
        let text = |&(at, travel): &(usize, Travel)| decode::key_text(travel, grid.last(at, bytes)?);
        let Some(after) = self.places.iter().map(text).collect::<Option<Vec<String>>>() else {
            return false;
        };
        self.position.after = after;
        true
    }
}
