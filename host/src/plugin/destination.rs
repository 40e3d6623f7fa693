//! A guest as a [`Destination`].

use wasmtime::component::ResourceAny;

use super::batch::{self, Lowered};
use super::bindings::exports::setu::connector::destination::Guest;
use super::convert;
use super::instance::Instance;
use crate::connector::{
    Capabilities, Chunk, Destination, Error, ErrorKind, LoadRequest, LoadSummary, Result, Writer,
};

/// A configured destination.
pub(super) struct PluginDestination {
    instance: Instance,
    guest: Guest,
    connection: ResourceAny,
}

impl PluginDestination {
    /// Hands the guest its configuration.
    pub(super) fn open(mut instance: Instance, guest: Guest, config: &str) -> Result<Self> {
        let connection = instance.ask("destination.connection.open", async |store| {
            guest.connection().call_open(store, config).await
        })?;
        Ok(PluginDestination {
            instance,
            guest,
            connection,
        })
    }
}

impl Destination for PluginDestination {
    fn check(&mut self) -> Result<()> {
        let (guest, connection) = (&self.guest, self.connection);
        self.instance.ask("destination.connection.check", async |store| {
            guest.connection().call_check(store, connection).await
        })
    }

    fn capabilities(&mut self) -> Result<Capabilities> {
        let (guest, connection) = (&self.guest, self.connection);
        let name = "destination.connection.capabilities";
        let capabilities = self.instance.call(name, async |store| {
            guest.connection().call_capabilities(store, connection).await
        })?;
        convert::capabilities(capabilities).map_err(|rule| self.instance.broken(name, rule))
    }

    fn begin(&mut self, load: &LoadRequest) -> Result<Box<dyn Writer + '_>> {
        let (guest, connection) = (&self.guest, self.connection);
        let load = convert::LoadRequestParam::new(load);
        let resource = self.instance.ask("destination.connection.begin", async |store| {
            guest.connection().call_begin(store, connection, load.get()).await
        })?;
        Ok(Box::new(PluginWriter {
            destination: self,
            resource,
        }))
    }
}

impl Drop for PluginDestination {
    fn drop(&mut self) {
        self.instance
            .drop_resource("destination.connection.drop", self.connection);
    }
}

/// A load under way.
struct PluginWriter<'a> {
    destination: &'a mut PluginDestination,
    resource: ResourceAny,
}

impl Writer for PluginWriter<'_> {
    fn committed(&mut self) -> Result<u64> {
        let PluginDestination { instance, guest, .. } = &mut *self.destination;
        let resource = self.resource;
        instance.call("destination.writer.committed", async |store| {
            guest.writer().call_committed(store, resource).await
        })
    }

    fn write(&mut self, chunk: Chunk) -> Result<()> {
        let PluginDestination { instance, guest, .. } = &mut *self.destination;
        let resource = self.resource;
        for piece in batch::pieces(&chunk.batch) {
            let lowered = Lowered::new(&piece).map_err(|what| Error::new(ErrorKind::Internal, what))?;
            let columns = lowered.columns();
            instance.ask("destination.writer.write", async |store| {
                guest
                    .writer()
                    .call_write(store, resource, lowered.batch(&columns))
                    .await
            })?;
        }
        Ok(())
    }

    fn commit(&mut self, mark: u64) -> Result<()> {
        let PluginDestination { instance, guest, .. } = &mut *self.destination;
        let resource = self.resource;
        instance.ask("destination.writer.commit", async |store| {
            guest.writer().call_commit(store, resource, mark).await
        })
    }

    fn finish(&mut self, _high_water_mark: Option<String>) -> Result<LoadSummary> {
        let PluginDestination { instance, guest, .. } = &mut *self.destination;
        let resource = self.resource;
        let summary = instance.ask("destination.writer.finish", async |store| {
            guest.writer().call_finish(store, resource).await
        })?;
        Ok(LoadSummary {
            rows_written: summary.rows_written,
        })
    }
}

impl Drop for PluginWriter<'_> {
    fn drop(&mut self) {
        self.destination
            .instance
            .drop_resource("destination.writer.drop", self.resource);
    }
}
