//! A zoo of connectors that do what they must not, for tests with the real command.
//!
//! The source has one stream for each misdeed, named after it, and the stream `honest`. A stream of the source begins
//! with three honest batches and misbehaves instead of the fourth; one of the destination misbehaves where its table has
//! the misdeed's name. What an instance saw comes back as the message of an error of the kind `unsupported`.
//!
//! `rows`, `resources`, `reach`, `raw` and `positions` hold the source's misdeeds, `writer` those of the destination, and
//! `lies` those of `describe`.

// A native build, which only lints want, exports nothing: the names of a component's exports are none for a linker.
#![cfg_attr(not(target_family = "wasm"), allow(dead_code))]

#[allow(missing_docs)]
mod bindings {
    wit_bindgen::generate!({ world: "plugin", path: "../../../wit" });
}
mod lies;
mod positions;
mod raw;
mod reach;
mod resources;
mod rows;
mod writer;

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use bindings::exports::setu::connector::{connector, source};
use bindings::setu::connector::log;
use bindings::setu::connector::types::{Error, ErrorKind, Schema, StreamInfo, StreamName};
use serde_json::Value;

struct Zoo;

#[cfg(target_family = "wasm")]
bindings::export!(Zoo with_types_in bindings);

/// How a stream misbehaves.
#[derive(Clone, Copy)]
enum Misdeed {
    /// It spoils a chunk, for which so many rows were asked.
    Spoil(fn(&mut source::Chunk, u32)),
    /// It spoils the schema.
    SpoilSchema(fn(&mut Schema)),
    /// It hands over another reader than its own.
    SpoilReader(fn() -> source::Reader),
    /// It does something that ends its instance.
    End(fn(&Config)),
    /// It does something, and goes on as if nothing had happened.
    Do(fn(&Config)),
    /// It tries something, and tells what it saw.
    Tell(fn(&Config) -> String),
    /// It forgets its positions in this way.
    Forget(positions::Forget),
}

type Named = (&'static str, Misdeed);

const HONEST: &str = "honest";

fn misdeeds() -> impl Iterator<Item = &'static Named> {
    [rows::ALL, resources::ALL, reach::ALL, raw::ALL, positions::ALL]
        .into_iter()
        .flatten()
}

/// The configuration of either side.
#[derive(Clone)]
struct Config(Value);

impl Config {
    fn parse(text: &str) -> Result<Config, Error> {
        let parsed = serde_json::from_str(text);
        parsed
            .map(Config)
            .map_err(|cause| error(ErrorKind::Config, &cause.to_string()))
    }

    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().unwrap_or_default()
    }

    /// What broke a stream of `positions` has been mended.
    fn is_mended(&self) -> bool {
        self.0["mended"] == true
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

/// This instance has done, or is about to do, what it must not survive.
static OVER: AtomicBool = AtomicBool::new(false);

fn end() {
    OVER.store(true, Ordering::Relaxed);
}

/// Each call from the host begins with this: an instance that is over must not be called, not even to drop a resource.
fn called() {
    if OVER.load(Ordering::Relaxed) {
        log::log(log::Level::Error, "CALLED AFTER ITS END", &[]);
    }
}

/// Notes that a connection is opened, which happens once in the life of an instance.
fn opened() {
    static OPENED: AtomicBool = AtomicBool::new(false);
    called();
    if OPENED.swap(true, Ordering::Relaxed) {
        log::log(log::Level::Error, "OPENED TWICE", &[]);
    }
}

/// Either side's connection.
struct Connection(Config);

impl Drop for Connection {
    fn drop(&mut self) {
        called();
    }
}

struct Reader {
    config: Config,
    misdeed: Option<Misdeed>,
    sent: Cell<u64>,
    /// After none and after an error there must be no further call.
    ended: Cell<bool>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        called();
    }
}

impl connector::Guest for Zoo {
    fn describe() -> connector::Description {
        lies::describe()
    }
}

impl source::Guest for Zoo {
    type Connection = Connection;
    type Reader = Reader;
}

impl source::GuestConnection for Connection {
    fn open(config: String) -> Result<source::Connection, Error> {
        opened();
        Config::parse(&config).map(|config| source::Connection::new(Connection(config)))
    }

    fn check(&self) -> Result<(), Error> {
        called();
        Ok(())
    }

    fn discover(&self) -> Result<Vec<StreamInfo>, Error> {
        called();
        let names = misdeeds().map(|(name, _)| *name);
        let mut streams: Vec<_> = names.chain([HONEST]).map(stream).collect();
        raw::spoil_listing(self.0.text("listing"), &mut streams);
        Ok(streams)
    }

    fn count(&self, _: source::ReadRequest, _: u64) -> Result<Option<u64>, Error> {
        called();
        Ok(None)
    }

    fn split(&self, _: source::ReadRequest, _: u32) -> Result<Vec<Vec<u8>>, Error> {
        called();
        Ok(vec![vec![]])
    }

    fn read(&self, request: source::ReadRequest) -> Result<source::Reader, Error> {
        called();
        let misdeed = find(&request.name.name);
        let sent = match (misdeed, request.resume_after) {
            (Some(Misdeed::SpoilReader(other)), _) => {
                end();
                return Ok(other());
            }
            (Some(Misdeed::Forget(how)), Some(_)) => how.resume()?,
            _ => 0,
        };
        Ok(source::Reader::new(Reader {
            config: self.0.clone(),
            misdeed,
            sent: Cell::new(sent),
            ended: Cell::new(false),
        }))
    }
}

fn find(stream: &str) -> Option<Misdeed> {
    misdeeds()
        .find(|(name, _)| *name == stream)
        .map(|(_, misdeed)| *misdeed)
}

fn stream(name: &str) -> StreamInfo {
    StreamInfo {
        name: StreamName {
            namespace: None,
            name: name.to_owned(),
        },
        kind: "cage".into(),
        schema: rows::schema(),
        estimated_rows: None,
        cursors: vec![],
        resumable: matches!(find(name), Some(Misdeed::Forget(_))),
    }
}

impl source::GuestReader for Reader {
    fn schema(&self) -> Schema {
        called();
        let mut schema = rows::schema();
        if let Some(Misdeed::SpoilSchema(spoil)) = self.misdeed {
            end();
            spoil(&mut schema);
        }
        schema
    }

    fn next(&self, limit: source::BatchLimit) -> Result<Option<source::Chunk>, Error> {
        called();
        if self.ended.get() {
            log::log(log::Level::Error, "READ AFTER ITS END", &[]);
        }
        let chunk = self.next_chunk(limit.rows);
        self.ended.set(!matches!(chunk, Ok(Some(_))));
        chunk
    }

    fn high_water_mark(&self) -> Option<String> {
        called();
        None
    }
}

impl Reader {
    fn next_chunk(&self, asked: u32) -> Result<Option<source::Chunk>, Error> {
        let sent = self.sent.get();
        if let Some(Misdeed::Forget(_)) = self.misdeed {
            let chunk = positions::next(sent, asked, self.config.is_mended())?;
            let rows = chunk.as_ref().map_or(0, |chunk| chunk.batch.rows);
            self.sent.set(sent + u64::from(rows));
            return Ok(chunk);
        }
        let rows = rows::BATCH.min(asked).min((rows::TOTAL - sent) as u32);
        if rows == 0 {
            return Ok(None);
        }
        let mut chunk = source::Chunk {
            batch: rows::honest(sent, rows),
            position: None,
        };
        if sent >= rows::SPOILED_FROM {
            self.misbehave(&mut chunk, asked)?;
        }
        // A batch of no rows comes again and again.
        self.sent.set(sent + u64::from(chunk.batch.rows.min(rows)));
        Ok(Some(chunk))
    }

    fn misbehave(&self, chunk: &mut source::Chunk, asked: u32) -> Result<(), Error> {
        match self.misdeed {
            Some(Misdeed::Spoil(spoil)) => {
                end();
                spoil(chunk, asked);
            }
            Some(Misdeed::End(act)) => {
                end();
                act(&self.config);
            }
            Some(Misdeed::Do(act)) if self.sent.get() == rows::SPOILED_FROM => act(&self.config),
            Some(Misdeed::Tell(act)) => return Err(error(ErrorKind::Unsupported, &act(&self.config))),
            _ => {}
        }
        Ok(())
    }
}
