//! What a store holds beside the guest: everything that a host function may touch, and nothing else.

use wasmtime::component::ResourceTable;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use super::files::GrantedFiles;
use super::limits::Limiter;
use super::log::GuestLog;
use super::network::Network;
use super::progress::Progress;
use super::share::Share;

/// The data of one instance's store.
pub(super) struct State {
    pub(super) wasi: WasiCtx,
    pub(super) table: ResourceTable,
    pub(super) limiter: Limiter,
    pub(super) log: GuestLog,
    pub(super) network: Network,
    pub(super) files: GrantedFiles,
    pub(super) progress: Progress,
    pub(super) share: Share,
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}
