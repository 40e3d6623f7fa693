//! Positions that a source gives and cannot resume at.
//!
//! These streams have rows for two parts, and break towards the end of the second one until they are mended: by then the
//! first one is staged, however many batches are still on their way.

use crate::bindings::exports::setu::connector::source::Chunk;
use crate::bindings::setu::connector::types::{Error, ErrorKind};
use crate::{Misdeed, Named, error, rows};

pub(crate) const ALL: &[Named] = &[
    ("forgets-and-says-so", Misdeed::Forget(Forget::Openly)),
    ("forgets-and-fails", Misdeed::Forget(Forget::Rudely)),
    ("forgets-and-pretends", Misdeed::Forget(Forget::Silently)),
];

const TOTAL: u64 = 90_000;
const BREAKS_AT: u64 = 80_000;
const BATCH: u32 = 1_000;

/// What a source does with a position that it does not know any more.
#[derive(Clone, Copy)]
pub(crate) enum Forget {
    /// What the contract demands.
    Openly,
    /// It calls it something else.
    Rudely,
    /// It reads other rows than those that were not yet returned.
    Silently,
}

impl Forget {
    /// How many rows it believes to have sent.
    pub(crate) fn resume(self) -> Result<u64, Error> {
        match self {
            Forget::Openly => Err(error(ErrorKind::Conflict, "the log was cut")),
            Forget::Rudely => Err(error(ErrorKind::Data, "what is this position?")),
            Forget::Silently => Ok(0),
        }
    }
}

pub(crate) fn next(sent: u64, asked: u32, mended: bool) -> Result<Option<Chunk>, Error> {
    if sent >= BREAKS_AT && !mended {
        return Err(error(ErrorKind::Unreachable, "the stream broke"));
    }
    let rows = (TOTAL - sent).min(BATCH.min(asked).into()) as u32;
    let end = sent + u64::from(rows);
    Ok((rows > 0).then(|| Chunk {
        batch: rows::honest(sent, rows),
        position: Some(end.to_le_bytes().to_vec()),
    }))
}
