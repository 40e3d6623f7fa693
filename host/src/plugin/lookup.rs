//! WASI's sockets under the grants: `wasi:sockets/ip-name-lookup`, shadowed, and the check of each address.
//!
//! A lookup of a name that no grant covers fails; what a granted name resolves to is pinned, and only pinned or
//! literally granted addresses can be connected to. UDP, listening and binding to a chosen address never work.

use std::collections::HashMap;
use std::net::IpAddr;

use wasmtime::component::{HasData, Linker, Resource};
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup as wasi;
use wasmtime_wasi::p2::bindings::sockets::network::{self, ErrorCode, IpAddress};
use wasmtime_wasi::p2::{DynPollable, IoError, SocketError};
use wasmtime_wasi::sockets::{SocketAddrUse, WasiSocketsCtxView};

use super::network::Network;
use super::state::State;
use crate::address::Host;

/// Lets std's sockets work as far as the grants go.
pub(super) fn allow(wasi: &mut WasiCtxBuilder, network: &Network) {
    if network.is_empty() {
        return;
    }
    let network = network.clone();
    wasi.allow_tcp(true)
        .allow_ip_name_lookup(true)
        .socket_addr_check(move |address, purpose| {
            let allowed = match purpose {
                SocketAddrUse::TcpConnect => network.may_connect(address),
                // Each connect is preceded by a bind to any address and port.
                SocketAddrUse::TcpBind if address.ip().is_unspecified() && address.port() == 0 => true,
                _ => {
                    network.refuse_purpose();
                    false
                }
            };
            Box::pin(async move { allowed })
        });
}

/// Puts the checked lookup in the place of WASI's own.
pub(super) fn shadow(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasi::add_to_linker::<State, Checked>(linker, |state| CheckedView {
        network: state.network.clone(),
        names: &mut state.lookups.0,
        inner: WasiSocketsCtxView {
            ctx: state.wasi.sockets(),
            table: &mut state.table,
        },
    })
}

/// The names of the lookups under way, by the handle of their stream.
#[derive(Debug, Default)]
pub(super) struct Lookups(HashMap<u32, Host>);

struct Checked;

struct CheckedView<'a> {
    network: Network,
    names: &'a mut HashMap<u32, Host>,
    inner: WasiSocketsCtxView<'a>,
}

impl HasData for Checked {
    type Data<'a> = CheckedView<'a>;
}

impl wasi::Host for CheckedView<'_> {
    fn resolve_addresses(
        &mut self,
        network: Resource<network::Network>,
        name: String,
    ) -> Result<Resource<wasi::ResolveAddressStream>, SocketError> {
        let Some(name) = self.network.may_resolve(&name) else {
            return Err(ErrorCode::AccessDenied.into());
        };
        // What was compared is what is resolved, whatever spelling the guest used.
        let stream = wasi::Host::resolve_addresses(&mut self.inner, network, name.to_string())?;
        self.names.insert(stream.rep(), name);
        Ok(stream)
    }
}

impl wasi::HostResolveAddressStream for CheckedView<'_> {
    fn resolve_next_address(
        &mut self,
        stream: Resource<wasi::ResolveAddressStream>,
    ) -> Result<Option<IpAddress>, SocketError> {
        let rep = stream.rep();
        loop {
            let stream = Resource::new_borrow(rep);
            let Some(address) =
                wasi::HostResolveAddressStream::resolve_next_address(&mut self.inner, stream)?
            else {
                return Ok(None);
            };
            let ip = std_ip(address);
            if let Some(name) = self.names.get(&rep)
                && self.network.pin(name, ip)
            {
                return Ok(Some(address));
            }
        }
    }

    fn subscribe(
        &mut self,
        stream: Resource<wasi::ResolveAddressStream>,
    ) -> wasmtime::Result<Resource<DynPollable>> {
        wasi::HostResolveAddressStream::subscribe(&mut self.inner, stream)
    }

    fn drop(&mut self, stream: Resource<wasi::ResolveAddressStream>) -> wasmtime::Result<()> {
        self.names.remove(&stream.rep());
        wasi::HostResolveAddressStream::drop(&mut self.inner, stream)
    }
}

// The generated linker function asks for these beside the lookup; they pass through.
impl network::Host for CheckedView<'_> {
    fn convert_error_code(&mut self, error: SocketError) -> wasmtime::Result<ErrorCode> {
        error.downcast()
    }

    fn network_error_code(&mut self, error: Resource<IoError>) -> wasmtime::Result<Option<ErrorCode>> {
        network::Host::network_error_code(&mut self.inner, error)
    }
}

impl network::HostNetwork for CheckedView<'_> {
    fn drop(&mut self, network: Resource<network::Network>) -> wasmtime::Result<()> {
        network::HostNetwork::drop(&mut self.inner, network)
    }
}

fn std_ip(address: IpAddress) -> IpAddr {
    match address {
        IpAddress::Ipv4((a, b, c, d)) => [a, b, c, d].into(),
        IpAddress::Ipv6((a, b, c, d, e, f, g, h)) => [a, b, c, d, e, f, g, h].into(),
    }
}
