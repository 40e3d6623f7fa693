//! WebAssembly components as connectors: the sandbox, its grants and its limits.
//!
//! A component is untrusted. It gets no file, address or variable that a grant does not name, no more memory and
//! time than its limits say, and nothing that it returns is used before it was checked. What goes wrong in one
//! instance ends that instance with an error that says what happened; the process and other instances go on.
//!
//! Wasmtime stays inside: the rest of the program sees [`Plugins`], [`Plugin`] and the
//! [`Source`] and [`Destination`] that `open_*` return. Not here: where connectors are found (`connector`), what a
//! pipeline file looks like (`pipeline`), the copying (`runner`).

mod address;
mod batch;
mod bindings;
mod cache;
mod capture;
mod convert;
mod describe;
mod destination;
mod engine;
mod fault;
mod files;
mod grants;
mod inspect;
mod instance;
mod limits;
mod log;
mod lookup;
mod marks;
mod net;
mod network;
mod progress;
mod source;
mod state;
mod text;
mod tls;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wasmtime::Engine;
use wasmtime::component::{InstancePre, Linker};

use crate::connector::{Destination, Error, ErrorKind, Result, Role, Source};
use crate::pipeline::ConnectorSpec;
use bindings::exports::setu::connector as contract;
use cache::Cache;
use describe::ConfigSchema;
use grants::{Grants, Resolved};
use instance::{Instance, Purpose};
use limits::Limits;
use state::State;

/// The engine and the compiled-code cache: made once in a process.
pub struct Plugins {
    engine: Engine,
    linker: Linker<State>,
    cache: Cache,
}

/// How [`Plugins`] is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where compiled code is kept; none: `$SETU_CACHE_DIR`, else the user's cache folder. A folder that others can
    /// write to is not used.
    pub cache: Option<PathBuf>,
}

/// A compiled, inspected connector. Cheap to clone through its `Arc`; instances are made by `open_*`.
pub struct Plugin {
    component: InstancePre<State>,
    description: Description,
    source: Option<Half<contract::source::GuestIndices>>,
    destination: Option<Half<contract::destination::GuestIndices>>,
}

/// One role of a connector.
struct Half<I> {
    exports: I,
    config: ConfigSchema,
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
    /// JSON pointer of the value within the configuration, such as `/url`; of a missing property, where it would stand.
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
    /// Where it was granted: `config.url`, `grant.network`.
    pub origin: String,
}

impl Plugins {
    /// Sets the engine up.
    pub fn new(options: Options) -> Result<Plugins> {
        let made = engine::engine().and_then(|engine| Ok((engine::linker(&engine)?, engine)));
        let (linker, engine) = made.map_err(|error| {
            Error::new(
                ErrorKind::Internal,
                format!("the WebAssembly engine cannot be set up: {error:#}"),
            )
        })?;
        Ok(Plugins {
            engine,
            linker,
            cache: Cache::new(options.cache),
        })
    }

    /// Compiles a component (or takes it from the cache), calls `describe` without any grant and checks the answer.
    /// `origin` names it in messages: `bundled csv`, a path.
    pub fn load(&self, origin: &str, bytes: &[u8]) -> Result<Arc<Plugin>> {
        inspect::check_bytes(origin, bytes)?;
        let refused = |error: wasmtime::Error| {
            inspect::refused(
                origin,
                &format!("cannot be used: {}", text::printable(&format!("{error:#}"), 2048)),
            )
        };
        let component = self.cache.component(&self.engine, bytes).map_err(refused)?;
        let halves = inspect::check_names(origin, &self.engine, &component)?;
        let component = self.linker.instantiate_pre(&component).map_err(refused)?;

        let described =
            describe_guest(origin, &component).map_err(|error| error.at(format!("connector {origin}")))?;
        let checked = describe::check(described, halves)
            .map_err(|rule| inspect::refused(origin, &format!("broke the contract in `describe`: {rule}")))?;
        let source = checked.source.map(|config| {
            let exports = contract::source::GuestIndices::new(&component)?;
            Ok(Half { exports, config })
        });
        let destination = checked.destination.map(|config| {
            let exports = contract::destination::GuestIndices::new(&component)?;
            Ok(Half { exports, config })
        });
        Ok(Arc::new(Plugin {
            description: checked.description,
            source: source.transpose().map_err(refused)?,
            destination: destination.transpose().map_err(refused)?,
            component,
        }))
    }
}

/// Calls `describe` in an instance of its own that can reach nothing.
fn describe_guest(origin: &str, component: &InstancePre<State>) -> Result<contract::connector::Description> {
    let purpose = Purpose {
        connector: origin.to_owned(),
        role: Role::Source,
        run: String::new(),
        stream: None,
        cancel: CancellationToken::new(),
        limits: Limits::for_describe(),
        grants: Grants::default(),
    };
    let (mut instance, guest) = Instance::start(component, purpose)?;
    instance.call("connector.describe", async |store| {
        let exports = contract::connector::GuestIndices::new(component)?;
        let connector = exports.load(&mut *store, &guest)?;
        connector.call_describe(store).await
    })
}

impl Plugin {
    /// What it says of itself.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Whether it exports `source`.
    pub fn is_source(&self) -> bool {
        self.source.is_some()
    }

    /// Whether it exports `destination`.
    pub fn is_destination(&self) -> bool {
        self.destination.is_some()
    }

    /// Every mistake in a configuration, by the connector's schema for this role.
    pub fn check_config(&self, role: Role, config: &Value) -> Vec<ConfigMistake> {
        match self.config(role) {
            Ok(schema) => schema.mistakes(config),
            Err(error) => vec![ConfigMistake {
                pointer: String::new(),
                message: error.message().to_owned(),
            }],
        }
    }

    /// A copy of a configuration with secrets replaced by `***`, for printing.
    pub fn redact(&self, role: Role, config: &Value) -> Value {
        match self.config(role) {
            Ok(schema) => schema.redact(config),
            Err(_) => Value::String("***".to_owned()),
        }
    }

    /// What the connector would be able to reach in this role.
    pub fn grants(&self, role: Role, spec: &ConnectorSpec) -> Result<Vec<EffectiveGrant>> {
        Ok(self.resolve(role, spec)?.effective)
    }

    /// Makes an instance and opens it as a source.
    pub fn open_source(&self, spec: &ConnectorSpec, context: &OpenContext) -> Result<Box<dyn Source>> {
        let role = Role::Source;
        let half = self.source.as_ref().ok_or_else(|| self.is_no(role))?;
        let (mut instance, guest, config) = self.start(role, spec, context)?;
        let loaded = half.exports.load(instance.store(), &guest);
        let guest = loaded.map_err(|error| self.unusable(&error))?;
        Ok(Box::new(source::PluginSource::open(instance, guest, &config)?))
    }

    /// Makes an instance and opens it as a destination.
    pub fn open_destination(
        &self,
        spec: &ConnectorSpec,
        context: &OpenContext,
    ) -> Result<Box<dyn Destination>> {
        let role = Role::Destination;
        let half = self.destination.as_ref().ok_or_else(|| self.is_no(role))?;
        let (mut instance, guest, config) = self.start(role, spec, context)?;
        let loaded = half.exports.load(instance.store(), &guest);
        let guest = loaded.map_err(|error| self.unusable(&error))?;
        Ok(Box::new(destination::PluginDestination::open(
            instance, guest, &config,
        )?))
    }

    /// An instance under the pipeline's grants and limits, and the configuration for its `open`.
    fn start(
        &self,
        role: Role,
        spec: &ConnectorSpec,
        context: &OpenContext,
    ) -> Result<(Instance, wasmtime::component::Instance, String)> {
        let mistakes = self.check_config(role, &spec.config);
        if !mistakes.is_empty() {
            let told: Vec<_> = mistakes
                .iter()
                .map(|mistake| format!("config{}: {}", mistake.pointer, mistake.message))
                .collect();
            let message = format!("the configuration of the {role} is wrong: {}", told.join("; "));
            return Err(Error::new(ErrorKind::Config, message).at(self.place()));
        }
        let Resolved { grants, config, .. } = self.resolve(role, spec)?;
        let purpose = Purpose {
            connector: self.title(),
            role,
            run: context.run.clone(),
            stream: context.stream.clone(),
            cancel: context.cancel.clone(),
            limits: Limits::new(&spec.limits),
            grants,
        };
        let (instance, guest) = Instance::start(&self.component, purpose)?;
        Ok((instance, guest, config.to_string()))
    }

    fn config(&self, role: Role) -> Result<&ConfigSchema> {
        let config = match role {
            Role::Source => self.source.as_ref().map(|half| &half.config),
            Role::Destination => self.destination.as_ref().map(|half| &half.config),
        };
        config.ok_or_else(|| self.is_no(role))
    }

    fn resolve(&self, role: Role, spec: &ConnectorSpec) -> Result<Resolved> {
        grants::resolve(role, &self.config(role)?.schema, spec).map_err(|error| error.at(self.place()))
    }

    fn is_no(&self, role: Role) -> Error {
        Error::new(ErrorKind::Unsupported, format!("it is no {role}")).at(self.place())
    }

    fn unusable(&self, error: &wasmtime::Error) -> Error {
        Error::new(ErrorKind::Config, format!("it cannot be used: {error:#}")).at(self.place())
    }

    fn place(&self) -> String {
        format!("connector {}", self.title())
    }

    fn title(&self) -> String {
        format!("{} {}", self.description.name, self.description.version)
    }
}
