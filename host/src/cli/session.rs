//! What the verbs that use connectors have in common: the plugin engine, the job with its connectors, and Ctrl-C.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::args::JobArguments;
use super::failure::{Failure, INTERRUPTED};
use super::logging::Console;
use crate::blob;
use crate::connector::{Role, registry::Registry};
use crate::pipeline::{ConnectorSpec, Job, LOCK_FILE, LimitSpec, Lock, Pin, PipelineFile, default_staging};
use crate::plugin::{self, Denials, OpenContext, Plugin, Plugins};
use crate::policy::Policy;

/// The engine, the connectors and the user's patience.
pub(super) struct Session {
    pub(super) plugins: Arc<Plugins>,
    /// Set by the first Ctrl-C.
    pub(super) cancel: CancellationToken,
    pub(super) policy: Option<Arc<Policy>>,
    registry: Registry,
    console: Console,
}

/// A connector that was found and loaded.
pub(super) struct Found {
    pub(super) plugin: Arc<Plugin>,
    /// Its file; none: it is part of this program.
    pub(super) file: Option<PathBuf>,
}

/// Which code a connector must have.
enum Pinned<'a> {
    /// What the lock beside the pipeline file says.
    Lock(&'a Lock, &'a Path),
    /// What the job says.
    Job(&'a Job),
    /// Any.
    Free,
}

/// A job and the connectors of those sides that a verb uses.
pub(super) struct Loaded {
    pub(super) job: Job,
    source: Option<Arc<Plugin>>,
    destination: Option<Arc<Plugin>>,
}

impl Session {
    /// Sets the engine up, under a policy where one is given, and listens for Ctrl-C: the first one cancels, the
    /// second one ends the process.
    pub(super) fn start(console: &Console, policy: Option<&Path>) -> Result<Session, Failure> {
        let policy = policy.map(read_policy).transpose()?.map(Arc::new);
        let mut plugins = Plugins::new(plugin::Options::default())?;
        if let Some(policy) = &policy {
            plugins = plugins.under(policy.clone());
        }
        let plugins = Arc::new(plugins);
        let session_console = console.clone();
        let cancel = CancellationToken::new();
        let (token, console) = (cancel.clone(), console.clone());
        let listening = ctrlc::set_handler(move || {
            if token.is_cancelled() {
                std::process::exit(INTERRUPTED.into());
            }
            token.cancel();
            console.line("stopping; press Ctrl-C again to stop at once");
        });
        listening.map_err(|error| Failure::failed(format!("cannot listen for Ctrl-C: {error}")))?;
        Ok(Session {
            plugins,
            cancel,
            policy,
            registry: Registry::from_env(),
            console: session_console,
        })
    }

    /// Reads a pipeline or a job, and loads and asks the connectors of these sides, so that every mistake is known
    /// before anything happens.
    pub(super) fn load(&self, arguments: &JobArguments, roles: &[Role]) -> Result<Loaded, Failure> {
        match (&arguments.file.pipeline, &arguments.file.job) {
            (Some(path), _) => self.load_pipeline(path, roles),
            (None, Some(path)) => self.load_job(path, roles),
            (None, None) => Err(Failure::wrong("neither a pipeline file nor a job was given")),
        }
    }

    fn load_pipeline(&self, path: &Path, roles: &[Role]) -> Result<Loaded, Failure> {
        let mut file = read_pipeline(path, &|name| self.variable(name))?;
        let folder = file.folder().to_owned();
        let lock = Lock::read(&folder).map_err(Failure::wrong)?;
        let mut plugins = Vec::new();
        let mut pins = Vec::new();
        for &role in roles {
            let Some(spec) = file.side(role).cloned() else {
                continue;
            };
            match self.plugin(role, &spec, &Pinned::Lock(&lock, path)) {
                Ok(found) => {
                    for (pointer, message) in mistakes_of(&found.plugin, role, &spec) {
                        match pointer.strip_prefix("/config").filter(|_| message.is_config) {
                            Some(pointer) => file.config_mistake(role, pointer, message.text),
                            None => file.side_mistake(role, &pointer, message.text),
                        }
                    }
                    pins.extend(pin(&spec.connector, &found));
                    plugins.push((role, found.plugin));
                }
                Err(message) => file.connector_mistake(role, message),
            }
        }
        let mut job = file.finish()?;
        let digests = pins.iter().map(|pin| (pin.connector.clone(), pin.digest.clone()));
        job.plugins = digests.collect();
        self.check_staging(&job, &folder)?;
        pins.retain(|pin| lock.pin(&pin.connector).is_none());
        self.pin(&folder, pins);
        Ok(Loaded::new(job, plugins))
    }

    /// A variable of the environment, as far as the policy lets pipelines have it.
    pub(super) fn variable(&self, name: &str) -> Result<Option<OsString>, String> {
        match self
            .policy
            .as_ref()
            .and_then(|policy| policy.forbids_variable(name))
        {
            Some(refusal) => Err(refusal),
            None => Ok(std::env::var_os(name)),
        }
    }

    /// Refuses a blob store that is not the environment's, or the default one in the folder of the file that was given,
    /// where the policy leaves it to that.
    fn check_staging(&self, job: &Job, folder: &Path) -> Result<(), Failure> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let environment = blob_from_env()?;
        let allowed = match environment.is_empty() {
            true => job.staging == default_staging(folder),
            false => job.staging == environment,
        };
        match policy.forbids_staging(allowed) {
            Some(refusal) => Err(Failure::wrong(refusal)),
            None => Ok(()),
        }
    }

    /// Pins connectors that are used for the first time. That the folder cannot be written to is no reason not to
    /// run: it may be one of a container that holds nothing but the pipeline.
    fn pin(&self, folder: &Path, pins: Vec<Pin>) {
        if pins.is_empty() {
            return;
        }
        match Lock::add(folder, pins, false) {
            Ok(added) => {
                for pin in added {
                    self.console
                        .line(&format!("{LOCK_FILE}: pinned {}", pinned(&pin)));
                }
            }
            Err(message) => tracing::warn!("connectors are not pinned: {message}"),
        }
    }

    /// Pins the connectors of a pipeline as they are now, and returns what that changed.
    pub(super) fn pin_anew(&self, path: &Path) -> Result<Vec<Pin>, Failure> {
        // A secret that is not at hand does not matter here.
        let lookup = |name: &str| Ok(self.variable(name)?.or_else(|| Some("unset".into())));
        let file = read_pipeline(path, &lookup)?;
        let folder = file.folder().to_owned();
        let job = file.finish()?;
        let mut pins = Vec::new();
        for spec in [&job.source, &job.destination] {
            let found = self
                .find(&spec.connector, &Pinned::Free, &spec.limits)
                .map_err(Failure::wrong)?;
            pins.extend(pin(&spec.connector, &found));
        }
        Lock::add(&folder, pins, true).map_err(Failure::failed)
    }

    fn load_job(&self, path: &Path, roles: &[Role]) -> Result<Loaded, Failure> {
        let job = Job::read_file(path).map_err(Failure::wrong)?;
        // A job says of itself which folder it is of.
        let place = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        self.check_staging(&job, place.parent().unwrap_or(&place))?;
        let file = path.display();
        let mut plugins = Vec::new();
        let mut mistakes = Vec::new();
        for &role in roles {
            let spec = side(&job, role);
            match self.plugin(role, spec, &Pinned::Job(&job)) {
                Ok(found) => {
                    let told = mistakes_of(&found.plugin, role, spec).into_iter();
                    mistakes.extend(told.map(|(pointer, message)| {
                        let property = pointer.replace('/', ".");
                        Failure::wrong(match message.is_config {
                            true => format!("{file}: `{role}{property}`: {}", message.text),
                            false => format!("{file}: {}", message.text),
                        })
                    }));
                    plugins.push((role, found.plugin));
                }
                Err(message) => mistakes.push(Failure::wrong(format!("{file}: {message}"))),
            }
        }
        Failure::all(mistakes)?;
        Ok(Loaded::new(job, plugins))
    }

    /// The connector of one side, which must be able to play its part.
    fn plugin(&self, role: Role, spec: &ConnectorSpec, pinned: &Pinned<'_>) -> Result<Found, String> {
        let found = self.find(&spec.connector, pinned, &spec.limits)?;
        let able = match role {
            Role::Source => found.plugin.is_source(),
            Role::Destination => found.plugin.is_destination(),
        };
        if able {
            return Ok(found);
        }
        Err(format!(
            "connector `{}` cannot be used as a {role}",
            spec.connector
        ))
    }

    /// A connector by its name or path, whatever it is pinned to.
    pub(super) fn named_plugin(&self, connector: &str) -> Result<Found, String> {
        self.find(connector, &Pinned::Free, &LimitSpec::default())
    }

    /// A connector by its name or path. Code that it must not have is neither compiled nor run.
    fn find(&self, connector: &str, pinned: &Pinned<'_>, limits: &LimitSpec) -> Result<Found, String> {
        let component = self
            .registry
            .resolve(connector)
            .map_err(|error| error.to_string())?;
        if component.file.is_some() {
            pinned.check(connector, &component.digest())?;
        }
        let plugin = self.plugins.load(&component.origin, &component.bytes, limits);
        Ok(Found {
            plugin: plugin.map_err(|error| error.to_string())?,
            file: component.file,
        })
    }

    /// What a connector is opened for outside a run.
    pub(super) fn context(&self, stream: Option<String>) -> OpenContext {
        OpenContext {
            run: String::new(),
            stream,
            cancel: self.cancel.clone(),
            denials: Denials::default(),
        }
    }
}

impl Pinned<'_> {
    /// Refuses code that is not what is pinned.
    fn check(&self, connector: &str, digest: &str) -> Result<(), String> {
        let refusal = match self {
            Pinned::Free => None,
            Pinned::Lock(lock, pipeline) => lock.refuses(connector, digest, pipeline),
            Pinned::Job(job) => match job.plugins.get(connector) {
                Some(known) if known == digest => None,
                Some(known) => Some(format!(
                    "connector {connector} is not the one that the job was made with: it was {known} and is \
                     {digest}. Bring that one here, or make the job anew with `setu plan --job-out`"
                )),
                None => Some(format!(
                    "the job does not say under `plugins` which code connector {connector} has: make it anew with \
                     `setu plan --job-out`"
                )),
            },
        };
        refusal.map_or(Ok(()), Err)
    }
}

/// What is wrong with one side.
struct SideMistake {
    /// The configuration is wrong, rather than more than a policy allows.
    is_config: bool,
    text: String,
}

/// Every mistake in a side's configuration, by its pointer within the side; where there is none, everything that goes
/// beyond the policy.
fn mistakes_of(plugin: &Plugin, role: Role, spec: &ConnectorSpec) -> Vec<(String, SideMistake)> {
    let mistakes = plugin.check_config(role, &spec.config).into_iter();
    let mistakes: Vec<_> = mistakes
        .map(|mistake| {
            let text = mistake.message;
            let is_config = true;
            (
                format!("/config{}", mistake.pointer),
                SideMistake { is_config, text },
            )
        })
        .collect();
    if !mistakes.is_empty() {
        return mistakes;
    }
    // A grant that cannot be read is told, with its place, when the connector is opened.
    let excesses = plugin.excesses(role, spec).unwrap_or_default().into_iter();
    let excesses = excesses.map(|excess| {
        let text = excess.message;
        let is_config = false;
        (excess.pointer, SideMistake { is_config, text })
    });
    excesses.collect()
}

/// What is pinned of a connector; nothing of one that is part of this program.
fn pin(connector: &str, found: &Found) -> Option<Pin> {
    found.file.as_ref()?;
    let description = found.plugin.description();
    Some(Pin {
        connector: connector.to_owned(),
        name: description.name.clone(),
        version: description.version.clone(),
        digest: found.plugin.code().digest.clone(),
    })
}

/// `./mine.wasm, which is mine 1.0.0 (sha256:…)`
pub(super) fn pinned(pin: &Pin) -> String {
    let Pin {
        connector,
        name,
        version,
        digest,
    } = pin;
    format!("{connector}, which is {name} {version} ({digest})")
}

fn read_policy(path: &Path) -> Result<Policy, Failure> {
    let read = Policy::read(path);
    let read = read.map_err(|error| {
        Failure::wrong(format!(
            "the policy {} cannot be read: {error}; nothing runs without it while --policy or SETU_POLICY names it",
            path.display()
        ))
    });
    Ok(read??)
}

impl Loaded {
    fn new(job: Job, plugins: Vec<(Role, Arc<Plugin>)>) -> Loaded {
        let find = |role| {
            let found = plugins.iter().find(|(of, _)| *of == role);
            found.map(|(_, plugin)| plugin.clone())
        };
        Loaded {
            job,
            source: find(Role::Source),
            destination: find(Role::Destination),
        }
    }

    /// A side's connector, if the verb loaded it.
    pub(super) fn plugin(&self, role: Role) -> Result<&Arc<Plugin>, Failure> {
        let plugin = match role {
            Role::Source => &self.source,
            Role::Destination => &self.destination,
        };
        plugin
            .as_ref()
            .ok_or_else(|| Failure::failed(format!("the {role}'s connector was not loaded")))
    }

    /// A side's connector and configuration.
    pub(super) fn spec(&self, role: Role) -> &ConnectorSpec {
        side(&self.job, role)
    }
}

fn side(job: &Job, role: Role) -> &ConnectorSpec {
    match role {
        Role::Source => &job.source,
        Role::Destination => &job.destination,
    }
}

/// `postgres 0.1.0`
pub(super) fn title(plugin: &Plugin) -> String {
    let description = plugin.description();
    format!("{} {}", description.name, description.version)
}

/// Reads a pipeline file with the environment's blob store as its default.
pub(super) fn read_pipeline(
    path: &Path,
    lookup: crate::pipeline::Lookup<'_>,
) -> Result<PipelineFile, Failure> {
    let default = blob_from_env()?;
    let file = PipelineFile::read(path, lookup, &default);
    file.map_err(|error| Failure::wrong(format!("{} cannot be read: {error}", path.display())))
}

/// What `SETU_BLOB_*` say. A relative folder is relative to the current one: there is no file that it stands in.
pub(super) fn blob_from_env() -> Result<blob::Spec, Failure> {
    let mut spec = blob::Spec::from_env()?;
    if !spec.fs_root.is_empty() {
        let absolute = std::path::absolute(&spec.fs_root);
        let absolute = absolute.map_err(|error| Failure::wrong(format!("SETU_BLOB_FS_ROOT: {error}")))?;
        spec.fs_root = absolute.display().to_string();
    }
    Ok(spec)
}
