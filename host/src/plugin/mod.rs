//! WebAssembly components as connectors: the sandbox, its grants and its limits.
//!
//! A component is untrusted. It gets no file, address or variable that a grant does not name, no more memory and
//! time than its limits say, and nothing that it returns is used before it was checked. What goes wrong in one
//! instance ends that instance with an error that says what happened; the process and other instances go on.
//!
//! Wasmtime stays inside: the rest of the program sees [`Plugins`], [`Plugin`] and the
//! [`Source`] and [`Destination`] that `open_*` return. Not here: where connectors are found (`connector`), what a
//! pipeline file looks like (`pipeline`), the copying (`runner`).

mod batch;
mod bindings;
mod bounded;
mod cache;
mod capture;
mod convert;
mod denials;
mod describe;
mod destination;
mod engine;
mod fault;
mod files;
mod grants;
mod inspect;
mod instance;
mod limits;
mod listing;
mod log;
mod lookup;
mod marks;
mod measure;
mod net;
mod network;
mod progress;
mod secrets;
mod share;
mod source;
mod state;
mod text;
mod tls;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wasmtime::Engine;
use wasmtime::component::{InstancePre, Linker};

use crate::connector::{Destination, Error, ErrorKind, Result, Role, Source, registry};
use crate::pipeline::{ConnectorSpec, Limit, LimitSpec};
use crate::policy::{Excess, Identity, Policy, Tls};
use bindings::exports::setu::connector as contract;
use bounded::within;
use cache::Cache;
use describe::ConfigSchema;
use grants::{Grants, Resolved};
use instance::{Instance, Purpose};
use limits::Limits;
use secrets::Secrets;
use state::State;

#[cfg(any(test, fuzzing))]
pub(crate) use batch::fuzzing::lift_and_lower;
pub use denials::Denials;

/// The engine and the compiled-code cache: made once in a process.
pub struct Plugins {
    engine: Engine,
    linker: Linker<State>,
    cache: Cache,
    policy: Option<Arc<Policy>>,
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
    code: Code,
    policy: Option<Arc<Policy>>,
    /// Where compiled code lies, which no connector may write to.
    cache: Option<PathBuf>,
    source: Option<Half<contract::source::GuestIndices>>,
    destination: Option<Half<contract::destination::GuestIndices>>,
}

/// One role of a connector.
struct Half<I> {
    exports: I,
    config: ConfigSchema,
}

/// The code of a connector, from the outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// Its size in bytes.
    pub size: usize,
    /// It is part of this program.
    pub bundled: bool,
    /// The version of the connector contract that it is made for.
    pub contract: &'static str,
    /// The interfaces that it imports.
    pub imports: Vec<String>,
    /// The interfaces that it exports.
    pub exports: Vec<String>,
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
    /// Where refusals are counted.
    pub denials: Denials,
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
            policy: None,
        })
    }

    /// Puts every connector that is loaded from now on under a policy.
    pub fn under(mut self, policy: Arc<Policy>) -> Plugins {
        self.policy = Some(policy);
        self
    }

    /// Compiles a component (or takes it from the cache), calls `describe` without any grant and checks the answer.
    /// `origin` names it in messages: `bundled csv`, a path.
    ///
    /// A policy is asked before anything of the component is compiled or run. Of the limits, those of its size and of
    /// the time to compile it hold here, and for `describe` what the policy allows.
    pub fn load(&self, origin: &str, bytes: &[u8], limits: &LimitSpec) -> Result<Arc<Plugin>> {
        let (digest, bundled) = (registry::digest(bytes), registry::is_bundled(bytes));
        if let Some(policy) = &self.policy
            && let Some(refusal) = policy.forbids(&digest, bundled)
        {
            return Err(Error::new(ErrorKind::Denied, refusal).at(format!("connector {origin}")));
        }
        let ceiling = limit_ceiling(self.policy.as_deref(), &Identity::unnamed(&digest, bundled));
        let limit = |limit| limits::effective(limit, limits, &ceiling);
        inspect::check_bytes(origin, bytes, limit(Limit::ComponentMib))?;
        let refused = |error: wasmtime::Error| {
            inspect::refused(
                origin,
                &format!("cannot be used: {}", text::printable(&format!("{error:#}"), 2048)),
            )
        };
        let seconds = limit(Limit::CompileTimeoutSeconds);
        let compiled = self
            .cache
            .component(&self.engine, bytes, Duration::from_secs(seconds));
        let component = compiled.map_err(refused)?.ok_or_else(|| {
            inspect::refused(
                origin,
                &format!(
                    "takes more than {seconds} seconds to compile, its limit; {}",
                    inspect::raise(Limit::CompileTimeoutSeconds)
                ),
            )
        })?;
        let names = inspect::check_names(origin, &self.engine, &component)?;
        let component = self.linker.instantiate_pre(&component).map_err(refused)?;

        let described = describe_guest(origin, &component, &ceiling)
            .map_err(|error| error.at(format!("connector {origin}")))?;
        let checked = describe::check(described, names.halves)
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
            code: Code {
                digest,
                size: bytes.len(),
                bundled,
                contract: inspect::CONTRACT,
                imports: names.imports,
                exports: names.exports,
            },
            policy: self.policy.clone(),
            cache: self.cache.folder(),
            source: source.transpose().map_err(refused)?,
            destination: destination.transpose().map_err(refused)?,
            component,
        }))
    }
}

/// What a policy caps limits to; one that only audits caps nothing.
fn limit_ceiling(policy: Option<&Policy>, connector: &Identity<'_>) -> LimitSpec {
    let policy = policy.filter(|policy| !policy.is_audit());
    policy
        .map(|policy| policy.ceiling(connector).0.limits.clone())
        .unwrap_or_default()
}

/// Calls `describe` in an instance of its own that can reach nothing.
fn describe_guest(
    origin: &str,
    component: &InstancePre<State>,
    ceiling: &LimitSpec,
) -> Result<contract::connector::Description> {
    let purpose = Purpose {
        connector: origin.to_owned(),
        role: Role::Source,
        run: String::new(),
        stream: None,
        cancel: CancellationToken::new(),
        denials: Denials::default(),
        limits: Limits::for_describe(ceiling),
        grants: Grants::default(),
        secrets: Secrets::default(),
        tls: Tls::Any,
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

    /// Its code, from the outside.
    pub fn code(&self) -> &Code {
        &self.code
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
        Ok(self.resolve(role, spec)?.effective())
    }

    /// The limits that hold, where they differ from the defaults: what the pipeline says, capped by the policy.
    pub fn limits(&self, spec: &ConnectorSpec) -> LimitSpec {
        limits::changed(&spec.limits, &self.limit_ceiling())
    }

    /// Everything that the pipeline asks for in this role beyond the policy. Such a connector is not opened.
    pub fn excesses(&self, role: Role, spec: &ConnectorSpec) -> Result<Vec<Excess>> {
        let resolved = self.resolve(role, spec)?;
        Ok(self.beyond(role, spec, &resolved))
    }

    /// What the policy says of this connector, for people, one line for each thing that it caps.
    pub fn caps(&self) -> Vec<String> {
        let policy = self.policy.as_ref();
        policy
            .map(|policy| policy.caps(&self.identity()))
            .unwrap_or_default()
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
        let resolved = self.resolve(role, spec)?;
        let beyond = self.beyond(role, spec, &resolved);
        if !beyond.is_empty() {
            let told: Vec<_> = beyond.into_iter().map(|excess| excess.message).collect();
            return Err(Error::new(ErrorKind::Denied, told.join("; ")).at(self.place()));
        }
        let Resolved { grants, config, .. } = resolved;
        let secrets = Secrets::of(&self.config(role)?.schema, &spec.config);
        let purpose = Purpose {
            connector: self.title(),
            role,
            run: context.run.clone(),
            stream: context.stream.clone(),
            cancel: context.cancel.clone(),
            denials: context.denials.clone(),
            limits: Limits::new(&spec.limits, &self.limit_ceiling()),
            grants,
            secrets,
            tls: self.policy.as_ref().map_or(Tls::Any, |policy| policy.tls()),
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
        let (schema, own) = (self.config(role)?.schema.clone(), spec.clone());
        let resolved = within(describe::CHECK_TIME, move || grants::resolve(role, &schema, &own));
        resolved
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Config, describe::takes_too_long())))
            .and_then(
                |resolved| match self.cache.as_deref().and_then(|cache| resolved.writes_to(cache)) {
                    Some(refusal) => Err(Error::new(ErrorKind::Denied, refusal)),
                    None => Ok(resolved),
                },
            )
            .map_err(|error| error.at(self.place()))
    }

    fn beyond(&self, role: Role, spec: &ConnectorSpec, resolved: &Resolved) -> Vec<Excess> {
        let policy = self.policy.as_ref();
        let check =
            |policy: &Arc<Policy>| policy.excesses(&self.identity(), role, &resolved.wanted, &spec.limits);
        policy.map(check).unwrap_or_default()
    }

    fn limit_ceiling(&self) -> LimitSpec {
        limit_ceiling(self.policy.as_deref(), &self.identity())
    }

    fn identity(&self) -> Identity<'_> {
        Identity {
            name: &self.description.name,
            digest: &self.code.digest,
            bundled: self.code.bundled,
        }
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

    /// Its name and version, for messages.
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.description.name, self.description.version)
    }
}
