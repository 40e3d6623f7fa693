//! What the author of a destination implements, and the adapter that exports it.

use std::cell::RefCell;

use crate::bindings::base::setu::connector::types as wire;
use crate::bindings::destination::exports::setu::connector::destination as exports;
use crate::error::Result;
use crate::types::{Batch, Capabilities, LoadRequest, Summary};
use crate::{Config, parse_config};

/// A connector that rows are written to.
///
/// The host makes one value for each stream that it writes, and calls it from one thread. Calls block.
pub trait Destination: Sized + 'static {
    /// The configuration; its JSON Schema is what the host checks a pipeline against.
    type Config: Config;
    /// A load under way. It outlives the call that made it: share what both need (`Rc<RefCell<…>>`).
    type Writer: Writer;

    /// Takes the configuration. Should not touch the network yet.
    fn open(config: Self::Config) -> Result<Self>;

    /// Reaches the system and logs in; changes nothing.
    fn check(&mut self) -> Result<()>;

    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// Starts a load or goes on with it. Creates what is missing.
    ///
    /// # Errors
    /// `conflict` where a higher attempt of the same load is recorded.
    fn begin(&mut self, load: LoadRequest) -> Result<Self::Writer>;
}

/// A load under way. Dropped before `finish`, everything since the last commit must be rolled back.
pub trait Writer: 'static {
    /// The last mark that an attempt of this load committed; 0: none.
    fn committed(&self) -> u64;

    /// Takes the rows; they may become durable only with the next `commit`.
    fn write(&mut self, batch: Batch) -> Result<()>;

    /// Makes all that was written durable, in one transaction with the mark, which grows with every call.
    fn commit(&mut self, mark: u64) -> Result<()>;

    /// Publishes the load. May be called again, also by a later attempt of a load that had finished, which must then
    /// change nothing.
    fn finish(&mut self) -> Result<Summary>;
}

/// Exports a [`Destination`]: the contract's methods take `&self`.
#[doc(hidden)]
#[derive(Debug)]
pub struct DestinationConnection<D>(RefCell<D>);

/// Exports a [`Writer`].
#[doc(hidden)]
#[derive(Debug)]
pub struct DestinationWriter<W>(RefCell<W>);

impl<D: Destination> exports::GuestConnection for DestinationConnection<D> {
    fn open(config: String) -> Result<exports::Connection, wire::Error> {
        let destination = D::open(parse_config(&config)?)?;
        Ok(exports::Connection::new(DestinationConnection(RefCell::new(
            destination,
        ))))
    }

    fn check(&self) -> Result<(), wire::Error> {
        Ok(self.0.borrow_mut().check()?)
    }

    fn capabilities(&self) -> Capabilities {
        self.0.borrow().capabilities()
    }

    fn begin(&self, load: LoadRequest) -> Result<exports::Writer, wire::Error> {
        let writer = self.0.borrow_mut().begin(load)?;
        Ok(exports::Writer::new(DestinationWriter(RefCell::new(writer))))
    }
}

impl<W: Writer> exports::GuestWriter for DestinationWriter<W> {
    fn committed(&self) -> u64 {
        self.0.borrow().committed()
    }

    fn write(&self, batch: Batch) -> Result<(), wire::Error> {
        Ok(self.0.borrow_mut().write(batch)?)
    }

    fn commit(&self, mark: u64) -> Result<(), wire::Error> {
        Ok(self.0.borrow_mut().commit(mark)?)
    }

    fn finish(&self) -> Result<Summary, wire::Error> {
        Ok(self.0.borrow_mut().finish()?)
    }
}
