//! WebAssembly components as connectors. (Skeleton: the public surface that the runner builds on.)

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::connector::{Destination, Error, Result, Role, Source};
use crate::pipeline::ConnectorSpec;

/// The engine and the compiled-code cache: made once in a process.
pub struct Plugins {
    _private: (),
}

/// How [`Plugins`] is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where compiled code is kept; none: the user's cache folder.
    pub cache: Option<PathBuf>,
}

/// A compiled, inspected connector. Cheap to clone through its `Arc`; instances are made by `open_*`.
pub struct Plugin {
    _private: (),
}

/// What a connector says of itself, checked.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// One sentence.
    pub summary: String,
    /// The JSON Schema of its configuration as a source; none: it is no source.
    pub source_config_schema: Option<serde_json::Value>,
    /// The JSON Schema of its configuration as a destination; none: it is no destination.
    pub destination_config_schema: Option<serde_json::Value>,
}

/// A mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMistake {
    /// JSON pointer of the value within the configuration, such as `/url`; of the object that lacks a property.
    pub pointer: String,
    /// What is wrong and what would be right. Never shows the value of a secret.
    pub message: String,
}

/// What an instance is opened for.
#[derive(Clone)]
pub struct OpenContext {
    /// The run's id, for log lines.
    pub run: String,
    /// The stream's qualified name, for log lines and errors; none for `check` and `discover`.
    pub stream: Option<String>,
    /// Ends every call with `ErrorKind::Interrupted`.
    pub cancel: CancellationToken,
}

/// One thing that a connector may reach, for people: what it is and why it is granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EffectiveGrant {
    /// `network`, `read`, `write` or `env`.
    pub kind: &'static str,
    /// `db.internal:5432`, an absolute path, a variable's name.
    pub target: String,
    /// `config.url` or `grant`.
    pub origin: String,
}

impl Plugins {
    /// Sets the engine up.
    pub fn new(_options: Options) -> Result<Plugins> {
        unimplemented!()
    }

    /// Compiles a component (or takes it from the cache), calls `describe` without any grant and checks the answer.
    /// `origin` names it in messages: `bundled csv`, a path.
    pub fn load(&self, _origin: &str, _bytes: &[u8]) -> Result<Arc<Plugin>> {
        unimplemented!()
    }
}

impl Plugin {
    /// What it says of itself.
    pub fn description(&self) -> &Description {
        unimplemented!()
    }
    /// Whether it exports `source`.
    pub fn is_source(&self) -> bool {
        unimplemented!()
    }
    /// Whether it exports `destination`.
    pub fn is_destination(&self) -> bool {
        unimplemented!()
    }
    /// Every mistake in a configuration, by the connector's schema for this role.
    pub fn check_config(&self, _role: Role, _config: &serde_json::Value) -> Vec<ConfigMistake> {
        unimplemented!()
    }
    /// A copy of a configuration with secrets replaced by `***`, for printing.
    pub fn redact(&self, _role: Role, _config: &serde_json::Value) -> serde_json::Value {
        unimplemented!()
    }
    /// What the connector would be able to reach in this role.
    pub fn grants(&self, _role: Role, _spec: &ConnectorSpec) -> Result<Vec<EffectiveGrant>> {
        unimplemented!()
    }
    /// Makes an instance and opens it as a source.
    pub fn open_source(&self, _spec: &ConnectorSpec, _context: &OpenContext) -> Result<Box<dyn Source>> {
        unimplemented!()
    }
    /// Makes an instance and opens it as a destination.
    pub fn open_destination(
        &self,
        _spec: &ConnectorSpec,
        _context: &OpenContext,
    ) -> Result<Box<dyn Destination>> {
        unimplemented!()
    }
}

#[expect(unused, reason = "skeleton")]
fn skeleton(_: &Path) -> Error {
    unimplemented!()
}
