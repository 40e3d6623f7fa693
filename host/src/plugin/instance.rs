//! One running connector: a store, the thread that drives it, and the one function that every call goes through.
//!
//! An instance belongs to the thread that calls it. Each call runs on a small runtime of the instance's own, so that
//! it can be ended at any moment, whether the guest computes (the epoch makes it yield every 10 ms) or waits in a
//! host function. After a trap, a broken rule, a hang or an interruption the guest's state is not to be trusted: the
//! instance is over, and further calls say so without reaching the guest.

use std::time::Duration;

use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use wasmtime::component::{InstancePre, ResourceAny};
use wasmtime::{Store, UpdateDeadline};
use wasmtime_wasi::WasiCtxBuilder;

use super::bindings::setu::connector::types;
use super::capture::Capture;
use super::convert::{self, Broken};
use super::denials::Denials;
use super::fault;
use super::files;
use super::grants::Grants;
use super::limits::{Limiter, Limits};
use super::log::GuestLog;
use super::lookup;
use super::network::{Network, Subject};
use super::progress::Progress;
use super::secrets::Secrets;
use super::share::Share;
use super::state::State;
use super::text::printable;
use crate::connector::{Error, ErrorKind, Result, Role};
use crate::policy::Tls;

/// How long a guest may take to tidy up behind what was cancelled.
const TIDYING: Duration = Duration::from_secs(2);

/// How much of an error's whole text is logged.
const MAX_LOGGED_BYTES: usize = 16 << 10;

/// What an instance is made for.
pub(super) struct Purpose {
    /// "postgres 0.1.0".
    pub(super) connector: String,
    pub(super) role: Role,
    pub(super) run: String,
    pub(super) stream: Option<String>,
    pub(super) cancel: CancellationToken,
    pub(super) denials: Denials,
    pub(super) limits: Limits,
    pub(super) grants: Grants,
    /// What the configuration holds that no message may show.
    pub(super) secrets: Secrets,
    pub(super) tls: Tls,
}

/// A connector's instance and everything that its calls need.
pub(super) struct Instance {
    /// Always there; an option only because dropping it takes it by value.
    runtime: Option<Runtime>,
    store: Store<State>,
    place: String,
    limits: Limits,
    cancel: CancellationToken,
    progress: Progress,
    network: Network,
    stderr: Capture,
    secrets: Secrets,
    /// What ended it.
    over: Option<Error>,
}

impl Instance {
    /// Instantiates a component under the purpose's grants and limits.
    pub(super) fn start(
        component: &InstancePre<State>,
        purpose: Purpose,
    ) -> Result<(Instance, wasmtime::component::Instance)> {
        let place = match &purpose.stream {
            Some(stream) => format!("connector {}, stream {stream}", purpose.connector),
            None => format!("connector {}", purpose.connector),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| {
                Error::new(
                    ErrorKind::Internal,
                    format!("no runtime for a connector: {error}"),
                )
                .at(&place)
            })?;
        let stderr = Capture::new(purpose.secrets.longest());
        let subject = Subject {
            role: purpose.role,
            connector: purpose.connector.clone(),
            run: purpose.run.clone(),
            stream: purpose.stream.clone().unwrap_or_default(),
            denials: purpose.denials,
            secrets: purpose.secrets.clone(),
        };
        let network = Network::new(subject, purpose.grants.network.clone(), purpose.tls);
        let progress = Progress::new();
        let mut wasi = wasi(&purpose.grants, &network, &stderr);
        // Only a stream's copy may leave something behind.
        let files = files::open(&purpose.grants.paths, purpose.stream.is_some());
        let files = files.map_err(|error| error.at(&place))?;
        let mut table = wasmtime::component::ResourceTable::new();
        table.set_max_capacity(purpose.limits.handles);
        let state = State {
            wasi: wasi.build(),
            table,
            limiter: Limiter::new(&purpose.limits),
            log: GuestLog::new(
                purpose.connector,
                purpose.run,
                purpose.stream,
                purpose.secrets.clone(),
                &purpose.limits,
            ),
            network: network.clone(),
            files,
            progress: progress.clone(),
            share: Share::new(purpose.limits.cpu),
        };
        let mut store = Store::new(component.engine(), state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(purpose.limits.host_memory);
        // The deadline starts in the past: without this the first instruction would trap.
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut guest| {
            Ok(match guest.data_mut().share.pause() {
                None => UpdateDeadline::Yield(1),
                Some(pause) => UpdateDeadline::YieldCustom(1, Box::pin(tokio::time::sleep(pause))),
            })
        });
        let mut instance = Instance {
            runtime: Some(runtime),
            store,
            place,
            limits: purpose.limits,
            cancel: purpose.cancel,
            progress,
            network,
            stderr,
            secrets: purpose.secrets,
            over: None,
        };
        let guest = instance.call("start", async |store| component.instantiate_async(store).await)?;
        Ok((instance, guest))
    }

    /// The store, to look exports up in.
    pub(super) fn store(&mut self) -> &mut Store<State> {
        &mut self.store
    }

    /// Runs one call of the guest. `name` is the contract's, such as `reader.next`.
    pub(super) fn call<R>(
        &mut self,
        name: &str,
        call: impl AsyncFnOnce(&mut Store<State>) -> wasmtime::Result<R>,
    ) -> Result<R> {
        if let Some(over) = &self.over {
            let message = format!("not called: the connector had ended before ({})", over.message());
            return Err(Error::new(over.kind(), message).at(self.place_of(name)));
        }
        let Instance {
            runtime: Some(runtime),
            store,
            limits,
            cancel,
            progress,
            ..
        } = self
        else {
            return Err(Error::new(ErrorKind::Internal, "the connector is being dropped"));
        };
        progress.mark();
        store.data_mut().share.begin();
        let outcome = runtime.block_on(async {
            tokio::select! {
                biased;
                result = call(store) => Ok(result),
                () = cancel.cancelled() => Err(Error::new(ErrorKind::Interrupted, "interrupted")),
                stalled = progress.stalled(limits) => Err(fault::stalled(stalled, limits)),
            }
        });
        self.store.data_mut().share.end();
        match outcome {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => {
                // Its lines hold names out of the component.
                let whole = printable(&self.secrets.scrub(&format!("{error:?}")), MAX_LOGGED_BYTES);
                tracing::debug!("{} failed: {whole}", self.place_of(name));
                let error = fault::classify(&error, &self.stderr.take(&self.secrets), &self.limits);
                Err(self.end(name, error))
            }
            Err(error) => Err(self.end(name, error)),
        }
    }

    /// Runs a call whose answer may be the contract's own error; that one does not end the instance.
    pub(super) fn ask<R>(
        &mut self,
        name: &str,
        call: impl AsyncFnOnce(&mut Store<State>) -> wasmtime::Result<Result<R, types::Error>>,
    ) -> Result<R> {
        match self.call(name, call)? {
            Ok(value) => {
                // Refused on the way to a good answer: the connector tried something else and was content.
                self.network.take_refusals();
                Ok(value)
            }
            Err(error) => {
                // Before it is cut to its greatest length: half of a secret would not be found.
                let error = types::Error {
                    message: self.secrets.scrub(&error.message),
                    code: error.code.map(|code| self.secrets.scrub(&code)),
                    ..error
                };
                Err(self.explain(convert::error(error)).at(self.place_of(name)))
            }
        }
    }

    /// Ends the instance because an answer breaks a rule of the contract.
    pub(super) fn broken(&mut self, name: &str, rule: Broken) -> Error {
        let message = format!("the connector broke the contract: {}", printable(&rule, 4096));
        self.end(name, Error::new(ErrorKind::BrokenContract, message))
    }

    /// Gives back a resource of the guest's. What goes wrong is met again by the next call, or by nobody.
    pub(super) fn drop_resource(&mut self, name: &str, resource: ResourceAny) {
        if self.over.is_some() {
            return;
        }
        if self.cancel.is_cancelled() {
            // The other end has failed, or the user waits: what the guest has to tidy up, it tidies up now.
            self.cancel = CancellationToken::new();
            self.limits.call = self.limits.call.min(TIDYING);
            self.limits.answer = self.limits.answer.min(TIDYING);
        }
        if let Err(error) = self.call(name, async |store| resource.resource_drop_async(store).await) {
            tracing::debug!("{error}");
        }
    }

    fn end(&mut self, name: &str, error: Error) -> Error {
        let error = self.explain(error).at(self.place_of(name));
        self.over = Some(error.clone());
        error
    }

    /// Takes secrets out of what a connector said, and adds what the sandbox refused during the call, unless the
    /// message tells it: what a connector's library makes of a refusal seldom says what to do.
    fn explain(&mut self, error: Error) -> Error {
        let error = error.map_text(|text| self.secrets.scrub(text));
        let refusals = self.network.take_refusals();
        let untold: Vec<_> = refusals
            .into_iter()
            .filter(|refusal| !error.message().contains(refusal.as_str()))
            .collect();
        if untold.is_empty() {
            return error;
        }
        Error::new(
            error.kind(),
            format!("{} ({})", error.message(), untold.join("; ")),
        )
        .with_code(error.code().map(str::to_owned))
        .with_retryable(error.is_retryable())
    }

    fn place_of(&self, name: &str) -> String {
        format!("{}, call {name}", self.place)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // A name lookup that still runs must not hold the thread up.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// WASI with nothing but the grants: no arguments, no standard input, standard output nowhere.
fn wasi(grants: &Grants, network: &Network, stderr: &Capture) -> WasiCtxBuilder {
    let mut wasi = WasiCtxBuilder::new();
    wasi.stderr(stderr.clone());
    for name in &grants.env {
        if let Ok(value) = std::env::var(name) {
            wasi.env(name, value);
        }
    }
    lookup::allow(&mut wasi, network);
    wasi
}
