//! A connector for tests of the host: its configuration says what it does, honest or not.
//!
//! `behaviour` names the misdeed. `reach` holds those of `check` (files, network, resources), whose findings come back as
//! the message of an error of the kind `unsupported`; `batches` holds those of `next`.

// A native build, which only lints want, exports nothing: the names of a component's exports are none for a linker.
#![cfg_attr(not(target_family = "wasm"), allow(dead_code))]

#[allow(missing_docs)]
mod bindings {
    wit_bindgen::generate!({ world: "plugin", path: "../../../wit" });
}
mod batches;
mod reach;

use std::cell::{Cell, RefCell};

use bindings::exports::setu::connector::{connector, destination, source};
use bindings::setu::connector::types::{DataType, Error, ErrorKind, Field, Schema, StreamInfo, StreamName};
use serde_json::Value;

const SCHEMA: &str = r#"{
  "type": "object",
  "required": ["behaviour"],
  "additionalProperties": false,
  "properties": {
    "behaviour": {"type": "string"},
    "rows": {"type": "integer"},
    "path": {"type": "string", "x-setu-grant": "read"},
    "out": {"type": "string", "x-setu-grant": "write"},
    "target": {"type": "string", "x-setu-grant": "network"},
    "ungranted": {"type": "string"},
    "tries": {"type": "array", "items": {"type": "string"}},
    "ca": {"type": "string"},
    "password": {"type": "string", "x-setu-secret": true}
  }
}"#;

struct Probe;

#[cfg(target_family = "wasm")]
bindings::export!(Probe with_types_in bindings);

/// What the connector is configured to do.
#[derive(Clone)]
struct Config(Value);

impl Config {
    fn parse(text: &str) -> Result<Config, Error> {
        match serde_json::from_str(text) {
            Ok(value) => Ok(Config(value)),
            Err(cause) => Err(error(ErrorKind::Config, &cause.to_string())),
        }
    }

    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    fn behaviour(&self) -> &str {
        self.text("behaviour")
    }

    fn rows(&self) -> u64 {
        self.0["rows"].as_u64().unwrap_or(10)
    }
}

fn error(kind: ErrorKind, message: &str) -> Error {
    Error {
        kind,
        message: message.to_owned(),
        code: None,
        retryable: false,
    }
}

impl connector::Guest for Probe {
    fn describe() -> connector::Description {
        connector::Description {
            name: "probe".into(),
            version: "1.2.3".into(),
            summary: "Does what it is told.".into(),
            source_config_schema: Some(SCHEMA.into()),
            destination_config_schema: Some(SCHEMA.into()),
        }
    }
}

/// Either side's connection.
struct Connection(Config);

struct Reader {
    config: Config,
    sent: Cell<u64>,
}

impl source::Guest for Probe {
    type Connection = Connection;
    type Reader = Reader;
}

impl source::GuestConnection for Connection {
    fn open(config: String) -> Result<source::Connection, Error> {
        Config::parse(&config).map(|config| source::Connection::new(Connection(config)))
    }

    fn check(&self) -> Result<(), Error> {
        reach::act(&self.0)
    }

    fn discover(&self) -> Result<Vec<StreamInfo>, Error> {
        Ok(batches::streams(self.0.behaviour()))
    }

    fn count(&self, _: source::ReadRequest, limit: u64) -> Result<Option<u64>, Error> {
        match self.0.behaviour() {
            "count too far" => Ok(Some(limit + 1)),
            _ => Ok(Some(self.0.rows().min(limit))),
        }
    }

    fn split(&self, _: source::ReadRequest, n: u32) -> Result<Vec<Vec<u8>>, Error> {
        Ok((0..n).map(|i| vec![i as u8]).collect())
    }

    fn read(&self, request: source::ReadRequest) -> Result<source::Reader, Error> {
        if self.0.behaviour() == "knock" {
            reach::knock(&self.0);
        }
        let after = request.resume_after.unwrap_or_default();
        let sent = after.try_into().map_or(0, u64::from_le_bytes);
        let reader = Reader {
            config: self.0.clone(),
            sent: Cell::new(sent),
        };
        Ok(source::Reader::new(reader))
    }
}

impl source::GuestReader for Reader {
    fn schema(&self) -> Schema {
        batches::schema(self.config.behaviour())
    }

    fn next(&self, limit: source::BatchLimit) -> Result<Option<source::Chunk>, Error> {
        let sent = self.sent.get();
        let rows = (self.config.rows() - sent).min(limit.rows.into());
        if rows == 0 {
            return Ok(None);
        }
        self.sent.set(sent + rows);
        batches::next(self.config.behaviour(), sent, rows as u32).map(Some)
    }

    fn high_water_mark(&self) -> Option<String> {
        Some(self.sent.get().to_string())
    }
}

impl destination::Guest for Probe {
    type Connection = Connection;
    type Writer = Writer;
}

struct Writer {
    rows: Cell<u64>,
    mark: Cell<u64>,
    sizes: RefCell<Vec<u32>>,
    behaviour: String,
}

impl destination::GuestConnection for Connection {
    fn open(config: String) -> Result<destination::Connection, Error> {
        Config::parse(&config).map(|config| destination::Connection::new(Connection(config)))
    }

    fn check(&self) -> Result<(), Error> {
        reach::act(&self.0)
    }

    fn capabilities(&self) -> destination::Capabilities {
        let write_modes = match self.0.behaviour() {
            "no write modes" => vec![],
            _ => vec![destination::WriteMode::Append, destination::WriteMode::Overwrite],
        };
        destination::Capabilities {
            write_modes,
            transactional: false,
        }
    }

    fn begin(&self, load: destination::LoadRequest) -> Result<destination::Writer, Error> {
        let fields = load.target.schema.fields.len();
        if fields == 0 {
            return Err(error(ErrorKind::Unsupported, "a table without columns"));
        }
        let writer = Writer {
            rows: Cell::new(0),
            mark: Cell::new(0),
            sizes: RefCell::default(),
            behaviour: self.0.behaviour().to_owned(),
        };
        Ok(destination::Writer::new(writer))
    }
}

impl destination::GuestWriter for Writer {
    fn committed(&self) -> u64 {
        self.mark.get()
    }

    fn write(&self, batch: destination::Batch) -> Result<(), Error> {
        self.sizes.borrow_mut().push(batch.rows);
        let rows = self.rows.get();
        self.rows.set(rows + u64::from(batch.rows));
        match self.behaviour.as_str() {
            // The honest source's values continue where the last batch ended, so a lost or doubled row shows.
            "check rows" => batches::verify(&batch, rows).map_err(|what| error(ErrorKind::Data, &what)),
            "panic in write" => panic!("the writer gives up"),
            _ => Ok(()),
        }
    }

    fn commit(&self, mark: u64) -> Result<(), Error> {
        self.mark.set(mark);
        Ok(())
    }

    fn finish(&self) -> Result<destination::Summary, Error> {
        if self.behaviour == "tell sizes" {
            return Err(error(
                ErrorKind::Unsupported,
                &format!("{:?}", self.sizes.borrow()),
            ));
        }
        Ok(destination::Summary {
            rows_written: self.rows.get(),
        })
    }
}

fn field(name: &str, data_type: DataType, nullable: bool) -> Field {
    Field {
        name: name.to_owned(),
        data_type,
        nullable,
        native_type: None,
    }
}

fn name(name: &str) -> StreamName {
    StreamName {
        namespace: None,
        name: name.to_owned(),
    }
}
