//! A guest as a [`Source`]: each call crosses, and what comes back is checked against the contract.

use arrow_schema::SchemaRef;
use wasmtime::component::ResourceAny;

use super::batch;
use super::bindings::exports::setu::connector::source::Guest;
use super::convert;
use super::instance::Instance;
use crate::connector::{
    BatchLimit, Chunk, Error, ErrorKind, MAX_POSITION_BYTES, ReadRequest, Reader, Result, Source,
};
use crate::record::{Schema, StreamInfo};

/// A configured source.
pub(super) struct PluginSource {
    instance: Instance,
    guest: Guest,
    connection: ResourceAny,
    /// What `discover` last returned.
    streams: Vec<StreamInfo>,
}

impl PluginSource {
    /// Hands the guest its configuration.
    pub(super) fn open(mut instance: Instance, guest: Guest, config: &str) -> Result<Self> {
        let connection = instance.ask("source.connection.open", async |store| {
            guest.connection().call_open(store, config).await
        })?;
        Ok(PluginSource {
            instance,
            guest,
            connection,
            streams: Vec::new(),
        })
    }
}

impl Source for PluginSource {
    fn check(&mut self) -> Result<()> {
        let (guest, connection) = (&self.guest, self.connection);
        self.instance.ask("source.connection.check", async |store| {
            guest.connection().call_check(store, connection).await
        })
    }

    fn discover(&mut self) -> Result<Vec<StreamInfo>> {
        let (guest, connection) = (&self.guest, self.connection);
        let name = "source.connection.discover";
        let found = self.instance.ask(name, async |store| {
            guest.connection().call_discover(store, connection).await
        })?;
        self.streams = convert::streams(found).map_err(|rule| self.instance.broken(name, rule))?;
        Ok(self.streams.clone())
    }

    fn count(&mut self, request: &ReadRequest, limit: u64) -> Result<Option<u64>> {
        let (guest, connection) = (&self.guest, self.connection);
        let request = convert::ReadRequestParam::new(request);
        let name = "source.connection.count";
        let count = self.instance.ask(name, async |store| {
            let request = request.get();
            guest
                .connection()
                .call_count(store, connection, request, limit)
                .await
        })?;
        match count {
            Some(count) if count > limit => {
                let rule = format!("a count of {count} where counting was to stop at {limit}");
                Err(self.instance.broken(name, rule))
            }
            count => Ok(count),
        }
    }

    fn read(&mut self, request: &ReadRequest) -> Result<Box<dyn Reader + '_>> {
        let (guest, connection) = (&self.guest, self.connection);
        let param = convert::ReadRequestParam::new(request);
        let reader = self.instance.ask("source.connection.read", async |store| {
            guest.connection().call_read(store, connection, param.get()).await
        })?;
        let name = "source.reader.schema";
        let schema = self.instance.call(name, async |store| {
            guest.reader().call_schema(store, reader).await
        })?;
        let schema = convert::schema(schema)
            .and_then(|schema| asked_for(&schema, request).map(|()| schema))
            .map_err(|rule| self.instance.broken(name, rule))?;
        let stream = self.streams.iter().find(|stream| stream.name == request.name);
        Ok(Box::new(PluginReader {
            arrow: schema.to_arrow(),
            schema,
            resource: reader,
            resumable: request.positions && stream.is_none_or(|stream| stream.resumable),
            ended: false,
            source: self,
        }))
    }
}

/// A reader that was asked for some columns must have exactly these.
fn asked_for(schema: &Schema, request: &ReadRequest) -> Result<(), convert::Broken> {
    let Some(columns) = &request.columns else {
        return Ok(());
    };
    match schema.fields.iter().map(|field| &field.name).eq(columns) {
        true => Ok(()),
        false => Err("the reader's columns are not those that were asked for, in their order".to_owned()),
    }
}

impl Drop for PluginSource {
    fn drop(&mut self) {
        self.instance
            .drop_resource("source.connection.drop", self.connection);
    }
}

/// A read under way.
struct PluginReader<'a> {
    source: &'a mut PluginSource,
    resource: ResourceAny,
    schema: Schema,
    arrow: SchemaRef,
    resumable: bool,
    /// After the end and after an error `next` must not be called again.
    ended: bool,
}

impl Reader for PluginReader<'_> {
    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn next(&mut self, limit: BatchLimit) -> Result<Option<Chunk>> {
        if self.ended {
            return Err(Error::new(
                ErrorKind::Internal,
                "a reader was called after its end",
            ));
        }
        let chunk = self.call_next(limit);
        self.ended = !matches!(chunk, Ok(Some(_)));
        chunk
    }

    fn high_water_mark(&mut self) -> Result<Option<String>> {
        let PluginSource { instance, guest, .. } = &mut *self.source;
        let resource = self.resource;
        let name = "source.reader.high-water-mark";
        let mark = instance.call(name, async |store| {
            guest.reader().call_high_water_mark(store, resource).await
        })?;
        match mark {
            Some(mark) if mark.len() > MAX_POSITION_BYTES => {
                let rule = format!(
                    "a high-water mark of {} bytes; at most {MAX_POSITION_BYTES}",
                    mark.len()
                );
                Err(instance.broken(name, rule))
            }
            mark => Ok(mark),
        }
    }
}

impl PluginReader<'_> {
    fn call_next(&mut self, limit: BatchLimit) -> Result<Option<Chunk>> {
        let PluginSource { instance, guest, .. } = &mut *self.source;
        let resource = self.resource;
        let name = "source.reader.next";
        let chunk = instance.ask(name, async |store| {
            let limit = convert::batch_limit(limit);
            guest.reader().call_next(store, resource, limit).await
        })?;
        let Some(chunk) = chunk else { return Ok(None) };
        let checked = check_position(chunk.position.as_deref(), self.resumable)
            .and_then(|()| batch::lift(chunk.batch, &self.schema, &self.arrow, limit.rows));
        match checked {
            Ok(batch) => Ok(Some(Chunk {
                batch,
                position: chunk.position,
            })),
            Err(rule) => Err(instance.broken(name, rule)),
        }
    }
}

fn check_position(position: Option<&[u8]>, resumable: bool) -> Result<(), convert::Broken> {
    match position {
        Some(position) if position.len() > MAX_POSITION_BYTES => Err(format!(
            "a position of {} bytes; at most {MAX_POSITION_BYTES}",
            position.len()
        )),
        Some(_) if !resumable => {
            Err("a position from a stream that does not say that it is resumable".to_owned())
        }
        _ => Ok(()),
    }
}

impl Drop for PluginReader<'_> {
    fn drop(&mut self) {
        self.source
            .instance
            .drop_resource("source.reader.drop", self.resource);
    }
}
