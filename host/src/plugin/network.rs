//! Who may be connected to: the network grants of one instance, and the addresses that granted names turned out to
//! have.
//!
//! Both ways out of the sandbox ask here, the contract's `net` and WASI's sockets. A name is compared with the
//! grants before it is resolved. An address may be connected to if it is granted itself, or if a granted name
//! resolved to it, on a port that is granted for that name. Addresses that belong to the machine's own surroundings
//! (link-local, cloud metadata) are refused even where a granted name resolves to them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::address::{Endpoint, Host};
use crate::connector::Role;

/// The most refusals that are remembered within one call.
const MAX_REFUSALS: usize = 4;

/// The network as one instance sees it. Clones share their state.
#[derive(Clone, Debug)]
pub(super) struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    role: Role,
    grants: BTreeSet<Endpoint>,
    state: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// What each name resolved to, for `net`.
    addresses: HashMap<String, Vec<IpAddr>>,
    /// What WASI's sockets may connect to, because a lookup gave the address.
    pinned: HashSet<SocketAddr>,
    /// What was refused since the last call of `take_refusals`.
    refusals: Vec<String>,
}

impl Network {
    pub(super) fn new(role: Role, grants: BTreeSet<Endpoint>) -> Self {
        Network(Arc::new(Shared {
            role,
            grants,
            state: Mutex::default(),
        }))
    }

    /// Whether anything at all is granted.
    pub(super) fn is_empty(&self) -> bool {
        self.0.grants.is_empty()
    }

    /// The host in normal form, if a grant covers it and the port; otherwise what to add.
    pub(super) fn check(&self, host: &str, port: u16) -> Result<Host, String> {
        let parsed = Host::parse(host);
        let granted = parsed.filter(|host| self.grants(host, port));
        granted.ok_or_else(|| {
            let shown = match Host::parse(host) {
                Some(host) => Endpoint { host, port }.to_string(),
                None => format!("{}:{port}", super::text::printable(host, 256)),
            };
            self.refuse(&shown)
        })
    }

    /// Whether a grant covers the name, on any port.
    pub(super) fn may_resolve(&self, name: &str) -> bool {
        let host = Host::parse(name);
        let granted = host.is_some_and(|host| self.0.grants.iter().any(|grant| grant.host == host));
        if !granted {
            self.refuse(&format!("{}:PORT", super::text::printable(name, 256)));
        }
        granted
    }

    /// Whether an address that a name resolved to may be used: not if it is special, unless granted literally.
    pub(super) fn admits(&self, ip: IpAddr) -> bool {
        let host = Host::ip(ip);
        !is_special(ip) || self.0.grants.iter().any(|grant| grant.host == host)
    }

    /// Remembers that a granted name has this address.
    pub(super) fn pin(&self, name: &str, ip: IpAddr) {
        let Some(host) = Host::parse(name) else { return };
        let ports = self.0.grants.iter().filter(|grant| grant.host == host);
        let addresses = ports.map(|grant| SocketAddr::new(ip.to_canonical(), grant.port));
        self.lock().pinned.extend(addresses);
    }

    /// Whether a socket may connect to the address.
    pub(super) fn may_connect(&self, address: SocketAddr) -> bool {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let allowed =
            self.grants(&Host::ip(address.ip()), address.port()) || self.lock().pinned.contains(&address);
        if !allowed {
            self.refuse(&address.to_string());
        }
        allowed
    }

    /// What a name resolved to before, in this instance.
    pub(super) fn resolved(&self, name: &str) -> Option<Vec<IpAddr>> {
        self.lock().addresses.get(name).cloned()
    }

    /// Keeps what a name resolved to.
    pub(super) fn keep(&self, name: &str, addresses: &[IpAddr]) {
        self.lock().addresses.insert(name.to_owned(), addresses.to_vec());
    }

    /// What was refused since the last call of this.
    pub(super) fn take_refusals(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().refusals)
    }

    fn grants(&self, host: &Host, port: u16) -> bool {
        let endpoint = Endpoint {
            host: host.clone(),
            port,
        };
        self.0.grants.contains(&endpoint)
    }

    /// Notes a refusal and says what would lift it.
    fn refuse(&self, endpoint: &str) -> String {
        let role = self.0.role;
        let message = format!(
            "the sandbox refused {endpoint}: no grant covers it. To allow it, add `grant: {{ network: \
             [\"{endpoint}\"] }}` under `{role}:` in the pipeline file"
        );
        let mut state = self.lock();
        if state.refusals.len() < MAX_REFUSALS && !state.refusals.contains(&message) {
            state.refusals.push(message.clone());
        }
        message
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Addresses that no name should lead to: those of the link, and those under which clouds serve credentials.
fn is_special(ip: IpAddr) -> bool {
    const METADATA_V4: [[u8; 4]; 4] = [
        [100, 100, 100, 200], // Alibaba Cloud
        [168, 63, 129, 16],   // Azure
        [192, 0, 0, 192],     // Oracle Cloud
        [0, 0, 0, 0],         // "this host"
    ];
    const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254); // AWS
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            ip.is_link_local() || ip.is_broadcast() || ip.is_multicast() || METADATA_V4.contains(&ip.octets())
        }
        IpAddr::V6(ip) => {
            let special =
                ip.is_unicast_link_local() || ip.is_multicast() || ip.is_unspecified() || ip == METADATA_V6;
            // NAT64 reaches IPv4 through an IPv6 address that ends in it.
            let nat64 = ip.segments()[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
            let [.., a, b, c, d] = ip.octets();
            special || (nat64 && is_special(IpAddr::from([a, b, c, d])))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::address::endpoints;
    use super::*;

    fn network(grants: &[&str]) -> Network {
        let grants = grants.iter().flat_map(|g| endpoints(g, None).unwrap()).collect();
        Network::new(Role::Source, grants)
    }

    #[test]
    fn a_host_is_reached_only_under_a_grant() {
        let network = network(&["db.internal:5432", "10.0.0.1:80", "[::1]:1"]);
        for (host, port, allowed) in [
            ("db.internal", 5432, true),
            ("DB.Internal.", 5432, true),
            ("db.internal", 5433, false),
            ("evil.db.internal", 5432, false),
            ("10.0.0.1", 80, true),
            ("::ffff:10.0.0.1", 80, true),
            ("[::1]", 1, true),
            ("::1", 1, true),
            ("localhost", 1, false),
            ("", 1, false),
            ("db.internal\n", 5432, false),
        ] {
            assert_eq!(network.check(host, port).is_ok(), allowed, "{host}:{port}");
        }
    }

    #[test]
    fn a_refusal_says_the_line_to_add() {
        let network = network(&[]);
        let message = network.check("db.internal", 5432).unwrap_err();
        assert!(
            message.contains("`grant: { network: [\"db.internal:5432\"] }` under `source:`"),
            "{message}"
        );
        assert_eq!(network.take_refusals(), [message]);
        assert_eq!(network.take_refusals(), [] as [String; 0]);
    }

    #[test]
    fn a_socket_reaches_what_a_granted_name_resolved_to() {
        let network = network(&["db:5432"]);
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        assert!(!network.may_connect(address("10.0.0.9:5432")));
        network.pin("db", [10, 0, 0, 9].into());
        assert!(network.may_connect(address("10.0.0.9:5432")));
        assert!(network.may_connect(address("[::ffff:10.0.0.9]:5432")));
        assert!(!network.may_connect(address("10.0.0.9:5433")));
        network.pin("other", [10, 0, 0, 10].into());
        assert!(!network.may_connect(address("10.0.0.10:5432")));
    }

    #[test]
    fn the_surroundings_of_the_machine_are_admitted_only_literally() {
        let network = network(&["db:80", "169.254.1.1:80"]);
        for (ip, admitted) in [
            ("169.254.169.254", false),
            ("169.254.1.1", true),
            ("::ffff:169.254.169.254", false),
            ("64:ff9b::a9fe:a9fe", false),
            ("64:ff9b::a00:1", true),
            ("fe80::1", false),
            ("fd00:ec2::254", false),
            ("100.100.100.200", false),
            ("0.0.0.0", false),
            ("10.0.0.1", true),
            ("127.0.0.1", true),
            ("::1", true),
        ] {
            assert_eq!(network.admits(ip.parse().unwrap()), admitted, "{ip}");
        }
    }
}
