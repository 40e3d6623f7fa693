//! WASI's sockets under the grants: `wasi:sockets/ip-name-lookup`, shadowed, and the check of each address.
//!
//! A lookup of a name that no grant covers fails; what a granted name resolves to is pinned, and only pinned or
//! literally granted addresses can be connected to. UDP, listening and binding to a chosen address never work.
//!
//! The system's lookup occupies a thread until it ends, whoever still wants to know. So an instance waits for each one
//! and has none other under way meanwhile.

use std::net::IpAddr;
use std::vec;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource, ResourceType};
use wasmtime_wasi::p2::bindings::sockets::network::{ErrorCode, IpAddress, Network as NetworkHandle};
use wasmtime_wasi::p2::{Pollable, subscribe};
use wasmtime_wasi::sockets::SocketAddrUse;
use wasmtime_wasi::{WasiCtxBuilder, async_trait};

use super::network::Network;
use super::progress::Progress;
use super::state::State;
use crate::address::Host;

/// The interface that is shadowed, as wasmtime-wasi registers it. Its own lookups are never allowed.
const LOOKUP: &str = "wasi:sockets/ip-name-lookup@0.2.12";

/// Lets std's sockets work as far as the grants go.
pub(super) fn allow(wasi: &mut WasiCtxBuilder, network: &Network) {
    if network.is_empty() {
        return;
    }
    let network = network.clone();
    wasi.allow_tcp(true).socket_addr_check(move |address, purpose| {
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

/// A `resolve-address-stream`: what a name resolved to, as far as it may be connected to.
struct Addresses(vec::IntoIter<IpAddr>);

#[async_trait]
impl Pollable for Addresses {
    async fn ready(&mut self) {}
}

/// Puts the checked lookup in the place of WASI's own.
pub(super) fn shadow(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    let mut lookup = linker.instance(LOOKUP)?;
    let addresses = ResourceType::host::<Addresses>();
    lookup.resource("resolve-address-stream", addresses, |mut store, rep| {
        store
            .data_mut()
            .table
            .delete(Resource::<Addresses>::new_own(rep))?;
        Ok(())
    })?;
    lookup.func_wrap_async(
        "resolve-addresses",
        |mut store: StoreContextMut<'_, State>, (handle, name): (Resource<NetworkHandle>, String)| {
            Box::new(async move {
                let State {
                    table,
                    network,
                    progress,
                    ..
                } = store.data_mut();
                table.get(&handle)?;
                let (network, progress) = (network.clone(), progress.clone());
                Ok((match resolve(&network, &progress, &name).await {
                    Ok(found) => Ok(store.data_mut().table.push(Addresses(found.into_iter()))?),
                    Err(code) => Err(code),
                },))
            })
        },
    )?;
    lookup.func_wrap(
        "[method]resolve-address-stream.resolve-next-address",
        |mut store: StoreContextMut<'_, State>, (addresses,): (Resource<Addresses>,)| {
            let addresses = store.data_mut().table.get_mut(&addresses)?;
            let next = addresses.0.next().map(IpAddress::from);
            Ok((Ok::<_, ErrorCode>(next),))
        },
    )?;
    lookup.func_wrap(
        "[method]resolve-address-stream.subscribe",
        |mut store: StoreContextMut<'_, State>, (addresses,): (Resource<Addresses>,)| {
            Ok((subscribe(&mut store.data_mut().table, addresses)?,))
        },
    )
}

/// What a granted name resolves to, pinned.
async fn resolve(network: &Network, progress: &Progress, name: &str) -> Result<Vec<IpAddr>, ErrorCode> {
    let Some(host) = network.may_resolve(name) else {
        return Err(ErrorCode::AccessDenied);
    };
    let mut found = match &host {
        Host::Ip(ip) => vec![*ip],
        // What was compared is what is resolved, whatever spelling the guest used.
        Host::Name(name) => {
            let found = progress.waiting(look_up(name)).await;
            found.map_err(|_| ErrorCode::NameUnresolvable)?
        }
    };
    found.retain(|ip| network.pin(&host, *ip));
    Ok(found)
}

/// Asks the system for a name's addresses.
pub(super) async fn look_up(name: &str) -> std::io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((name, 0)).await?;
    Ok(found.map(|address| address.ip().to_canonical()).collect())
}
