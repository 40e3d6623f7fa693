//! What the verbs that use connectors have in common: the plugin engine, the job with its connectors, and Ctrl-C.

use std::path::Path;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::args::JobArguments;
use super::failure::{Failure, INTERRUPTED};
use super::logging::Console;
use crate::blob;
use crate::connector::{Role, registry::Registry};
use crate::pipeline::{ConnectorSpec, Job, PipelineFile};
use crate::plugin::{self, OpenContext, Plugin, Plugins};

/// The engine, the connectors and the user's patience.
pub(super) struct Session {
    pub(super) plugins: Arc<Plugins>,
    /// Set by the first Ctrl-C.
    pub(super) cancel: CancellationToken,
    registry: Registry,
}

/// A job and the connectors of those sides that a verb uses.
pub(super) struct Loaded {
    pub(super) job: Job,
    source: Option<Arc<Plugin>>,
    destination: Option<Arc<Plugin>>,
}

impl Session {
    /// Sets the engine up, and listens for Ctrl-C: the first one cancels, the second one ends the process.
    pub(super) fn start(console: &Console) -> Result<Session, Failure> {
        let plugins = Arc::new(Plugins::new(plugin::Options::default())?);
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
            registry: Registry::from_env(),
        })
    }

    /// Reads a pipeline or a job, and loads and asks the connectors of these sides, so that every mistake is known
    /// before anything happens.
    pub(super) fn load(&self, arguments: &JobArguments, roles: &[Role]) -> Result<Loaded, Failure> {
        match (&arguments.pipeline, &arguments.job) {
            (Some(path), _) => self.load_pipeline(path, roles),
            (None, Some(path)) => self.load_job(path, roles),
            (None, None) => Err(Failure::wrong("neither a pipeline file nor a job was given")),
        }
    }

    fn load_pipeline(&self, path: &Path, roles: &[Role]) -> Result<Loaded, Failure> {
        let mut file = read_pipeline(path, &|name| std::env::var_os(name))?;
        let mut plugins = Vec::new();
        for &role in roles {
            let Some(spec) = file.side(role) else { continue };
            match self.plugin(role, spec) {
                Ok(plugin) => {
                    for mistake in plugin.check_config(role, &spec.config.clone()) {
                        file.config_mistake(role, &mistake.pointer, mistake.message);
                    }
                    plugins.push((role, plugin));
                }
                Err(message) => file.connector_mistake(role, message),
            }
        }
        Ok(Loaded::new(file.finish()?, plugins))
    }

    fn load_job(&self, path: &Path, roles: &[Role]) -> Result<Loaded, Failure> {
        let job = Job::read_file(path).map_err(Failure::wrong)?;
        let file = path.display();
        let mut plugins = Vec::new();
        let mut mistakes = Vec::new();
        for &role in roles {
            let spec = side(&job, role);
            match self.plugin(role, spec) {
                Ok(plugin) => {
                    mistakes.extend(
                        plugin
                            .check_config(role, &spec.config)
                            .into_iter()
                            .map(|mistake| {
                                let property = mistake.pointer.replace('/', ".");
                                Failure::wrong(format!(
                                    "{file}: `{role}.config{property}`: {}",
                                    mistake.message
                                ))
                            }),
                    );
                    plugins.push((role, plugin));
                }
                Err(message) => mistakes.push(Failure::wrong(format!("{file}: {message}"))),
            }
        }
        Failure::all(mistakes)?;
        Ok(Loaded::new(job, plugins))
    }

    /// The connector of one side, which must be able to play its part.
    fn plugin(&self, role: Role, spec: &ConnectorSpec) -> Result<Arc<Plugin>, String> {
        let plugin = self.named_plugin(&spec.connector)?;
        let able = match role {
            Role::Source => plugin.is_source(),
            Role::Destination => plugin.is_destination(),
        };
        if able {
            return Ok(plugin);
        }
        Err(format!(
            "connector `{}` cannot be used as a {role}",
            spec.connector
        ))
    }

    /// A connector by its name or path.
    pub(super) fn named_plugin(&self, connector: &str) -> Result<Arc<Plugin>, String> {
        let component = self
            .registry
            .resolve(connector)
            .map_err(|error| error.to_string())?;
        let plugin = self.plugins.load(&component.origin, &component.bytes);
        plugin.map_err(|error| error.to_string())
    }

    /// What a connector is opened for outside a run.
    pub(super) fn context(&self, stream: Option<String>) -> OpenContext {
        OpenContext {
            run: String::new(),
            stream,
            cancel: self.cancel.clone(),
        }
    }
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
