//! What the author of a source implements, and the adapter that exports it.

use std::cell::RefCell;

use crate::bindings::base::setu::connector::types as wire;
use crate::bindings::source::exports::setu::connector::source as exports;
use crate::error::Result;
use crate::types::{BatchLimit, Chunk, ReadRequest, Schema, StreamInfo};
use crate::{Config, parse_config};

/// A connector that rows are read from.
///
/// The host makes one value for each stream that it reads, and calls it from one thread. Calls block.
pub trait Source: Sized + 'static {
    /// The configuration; its JSON Schema is what the host checks a pipeline against.
    type Config: Config;
    /// A read under way. It outlives the call that made it: share what both need (`Rc<RefCell<…>>`).
    type Reader: Reader;

    /// Takes the configuration. Should not touch the network yet.
    fn open(config: Self::Config) -> Result<Self>;

    /// Reaches the system and logs in: nothing, or a message that tells a person what to change.
    fn check(&mut self) -> Result<()>;

    /// Every stream that can be read. Names must be unique.
    fn discover(&mut self) -> Result<Vec<StreamInfo>>;

    /// How many rows `read` would return, counted no further than `limit`; `None`: cannot tell cheaply.
    fn count(&mut self, request: &ReadRequest, limit: u64) -> Result<Option<u64>> {
        let _ = (request, limit);
        Ok(None)
    }

    /// At most `n` disjoint ranges that together are the whole read. The default is one range, which is empty bytes.
    fn split(&mut self, request: &ReadRequest, n: u32) -> Result<Vec<Vec<u8>>> {
        let _ = (request, n);
        Ok(vec![Vec::new()])
    }

    /// Starts reading: from the start, or after `request.resume_after`.
    ///
    /// # Errors
    /// `conflict` where the source can no longer go on after the position; the host then starts over.
    fn read(&mut self, request: ReadRequest) -> Result<Self::Reader>;
}

/// A read under way. Dropped before its end, it lets go of what it holds.
pub trait Reader: 'static {
    /// The schema of the batches, the same for the reader's whole life.
    fn schema(&self) -> Schema;

    /// The next rows, or `None` at the end: at least one row, at most `limit.rows`, about `limit.bytes` bytes.
    fn next(&mut self, limit: BatchLimit) -> Result<Option<Chunk>>;

    /// The upper bound of the cursor window, as text in the staged form of the field's type
    /// (see [`text`](crate::text)); `None`: no window was asked for, or it holds no row.
    fn high_water_mark(&self) -> Option<String> {
        None
    }
}

/// Exports a [`Source`]: the contract's methods take `&self`.
#[doc(hidden)]
#[derive(Debug)]
pub struct SourceConnection<S>(RefCell<S>);

/// Exports a [`Reader`].
#[doc(hidden)]
#[derive(Debug)]
pub struct SourceReader<R>(RefCell<R>);

impl<S: Source> exports::GuestConnection for SourceConnection<S> {
    fn open(config: String) -> Result<exports::Connection, wire::Error> {
        let source = S::open(parse_config(&config)?)?;
        Ok(exports::Connection::new(SourceConnection(RefCell::new(source))))
    }

    fn check(&self) -> Result<(), wire::Error> {
        Ok(self.0.borrow_mut().check()?)
    }

    fn discover(&self) -> Result<Vec<StreamInfo>, wire::Error> {
        Ok(self.0.borrow_mut().discover()?)
    }

    fn count(&self, request: ReadRequest, limit: u64) -> Result<Option<u64>, wire::Error> {
        Ok(self.0.borrow_mut().count(&request, limit)?)
    }

    fn split(&self, request: ReadRequest, n: u32) -> Result<Vec<Vec<u8>>, wire::Error> {
        Ok(self.0.borrow_mut().split(&request, n)?)
    }

    fn read(&self, request: ReadRequest) -> Result<exports::Reader, wire::Error> {
        let reader = self.0.borrow_mut().read(request)?;
        Ok(exports::Reader::new(SourceReader(RefCell::new(reader))))
    }
}

impl<R: Reader> exports::GuestReader for SourceReader<R> {
    fn schema(&self) -> Schema {
        self.0.borrow().schema()
    }

    fn next(&self, limit: BatchLimit) -> Result<Option<Chunk>, wire::Error> {
        Ok(self.0.borrow_mut().next(limit)?)
    }

    fn high_water_mark(&self) -> Option<String> {
        self.0.borrow().high_water_mark()
    }
}
