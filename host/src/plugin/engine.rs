//! The engine: compiled once configured, shared by every instance of the process.

use std::time::Duration;

use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Config, Engine};

use super::bindings::Plugin;
use super::files;
use super::lookup;
use super::state::State;

/// How often a running guest yields, so that a timeout or an interruption can end it.
const TICK: Duration = Duration::from_millis(10);

/// An engine whose epoch advances until it is dropped.
pub(super) fn engine() -> wasmtime::Result<Engine> {
    let mut config = Config::new();
    // The contract's calls are synchronous; without concurrency a call costs a third.
    config.concurrency_support(false).epoch_interruption(true);
    let engine = Engine::new(&config)?;
    let weak = engine.weak();
    std::thread::Builder::new()
        .name("setu-epoch".to_owned())
        .spawn(move || {
            while let Some(engine) = weak.upgrade() {
                engine.increment_epoch();
                drop(engine);
                std::thread::sleep(TICK);
            }
        })?;
    Ok(engine)
}

/// Everything that a connector may import: WASI 0.2 with the operations that reach outside under the grants, and
/// the contract's own interfaces.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    linker.allow_shadowing(true);
    lookup::shadow(&mut linker)?;
    files::shadow(&mut linker)?;
    linker.allow_shadowing(false);
    Plugin::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    Ok(linker)
}
