//! Who may be connected to: the network grants of one instance, and the addresses that granted names turned out to
//! have.
//!
//! Both ways out of the sandbox ask here, the contract's `net` and WASI's sockets. A host is put into its normal form
//! and compared with the grants before it is resolved, and what is resolved is the normal form. An address may be
//! connected to if it is granted itself, or if a granted name resolved to it, on a port that is granted for that
//! name. Addresses that belong to the machine's own surroundings (link-local, cloud metadata) are refused even where
//! a granted name resolves to them or a granted network holds them.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::denials::Denials;
use super::secrets::Secrets;
use crate::address::{Endpoint, Host, NetworkGrant, is_special};
use crate::connector::Role;
use crate::policy::Tls;

/// The most refusals that are remembered within one call.
const MAX_REFUSALS: usize = 4;
/// The most names, and addresses of names, that one instance gets to know. A grant on all hosts below a name would
/// otherwise let it fill the host's memory.
pub(super) const MAX_NAMES: usize = 1_000;
const MAX_PINNED: usize = 10_000;

/// Whose network it is, for messages and the log.
#[derive(Clone, Debug)]
pub(super) struct Subject {
    pub(super) role: Role,
    /// "postgres 0.1.0".
    pub(super) connector: String,
    pub(super) run: String,
    pub(super) stream: String,
    pub(super) denials: Denials,
    pub(super) secrets: Secrets,
}

/// The network as one instance sees it. Clones share their state.
#[derive(Clone, Debug)]
pub(super) struct Network(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    subject: Subject,
    grants: BTreeSet<NetworkGrant>,
    tls: Tls,
    state: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// What each name resolved to, for `net`.
    addresses: HashMap<String, Vec<IpAddr>>,
    /// The names that were looked up, whatever came of it.
    names: HashSet<String>,
    /// What WASI's sockets may connect to, because a lookup gave the address.
    pinned: HashSet<SocketAddr>,
    /// What was refused since the last call of `take_refusals`.
    refusals: Vec<String>,
}

impl Network {
    pub(super) fn new(subject: Subject, grants: BTreeSet<NetworkGrant>, tls: Tls) -> Self {
        Network(Arc::new(Shared {
            subject,
            grants,
            tls,
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
        let granted = parsed.as_ref().filter(|host| self.grants(host, port));
        match (granted, parsed.as_ref()) {
            (Some(host), _) => Ok(host.clone()),
            (None, Some(host)) => Err(self.refuse_endpoint(
                &Endpoint {
                    host: host.clone(),
                    port,
                }
                .to_string(),
            )),
            (None, None) => Err(self.refuse(format!(
                "the sandbox refused `{}`, which is neither a host name nor an address",
                super::text::printable(host, 256)
            ))),
        }
    }

    /// The name in normal form, if a grant covers it on any port.
    pub(super) fn may_resolve(&self, name: &str) -> Option<Host> {
        let parsed = Host::parse(name);
        let covers = |host: &Host| self.0.grants.iter().any(|grant| grant.hosts.cover(host));
        let Some(host) = parsed.clone().filter(covers) else {
            let shown = parsed.map_or_else(|| super::text::printable(name, 256), |host| host.to_string());
            self.refuse_endpoint(&format!("{shown}:PORT"));
            return None;
        };
        match &host {
            Host::Name(name) => self.count_name(name).ok().map(|()| host),
            Host::Ip(_) => Some(host),
        }
    }

    /// Counts a name that is about to be looked up; an error says that it is one too many.
    pub(super) fn count_name(&self, name: &str) -> Result<(), String> {
        let mut state = self.lock();
        if state.names.contains(name) {
            return Ok(());
        }
        if state.names.len() < MAX_NAMES {
            state.names.insert(name.to_owned());
            return Ok(());
        }
        drop(state);
        Err(self.refuse(format!(
            "the sandbox refused a name: one instance may look up {MAX_NAMES}"
        )))
    }

    /// Whether an address that a name resolved to may be used on this port: not if it is special, unless it is
    /// granted literally.
    pub(super) fn admits(&self, ip: IpAddr, port: u16) -> bool {
        !is_special(ip) || self.grants(&Host::ip(ip), port)
    }

    /// Remembers that a granted name has this address; whether that opens any port.
    pub(super) fn pin(&self, name: &Host, ip: IpAddr) -> bool {
        let granted = self.0.grants.iter().filter(|grant| grant.hosts.cover(name));
        let addresses = granted
            .filter_map(|grant| grant.port)
            .filter(|port| self.admits(ip, *port))
            .map(|port| SocketAddr::new(ip.to_canonical(), port));
        let addresses: Vec<_> = addresses.collect();
        let mut state = self.lock();
        let room = state.pinned.len() + addresses.len() <= MAX_PINNED;
        let opens = room && !addresses.is_empty();
        if opens {
            state.pinned.extend(addresses);
        }
        opens
    }

    /// Whether a socket of WASI's may connect to the address.
    pub(super) fn may_connect(&self, address: SocketAddr) -> bool {
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        let allowed =
            self.grants(&Host::ip(address.ip()), address.port()) || self.lock().pinned.contains(&address);
        if !allowed {
            self.refuse_endpoint(&address.to_string());
            return false;
        }
        let unseen =
            format!("a socket of WASI's to {address}: what passes through one is not seen by the host");
        self.demand_tls(false, &unseen).is_ok()
    }

    /// What it takes to speak without TLS, where a policy demands it. `satisfied`: it is TLS. An error says that and
    /// why it was refused.
    pub(super) fn demand_tls(&self, satisfied: bool, what: &str) -> Result<(), String> {
        match &self.0.tls {
            _ if satisfied => Ok(()),
            Tls::Any => Ok(()),
            Tls::Required { policy } => Err(self.refuse(format!(
                "the policy {policy} requires TLS with a verified certificate, and refused {what}. Let the connector \
                 verify the server's certificate and name (of postgres: `sslmode: verify-full`), or have the policy \
                 changed"
            ))),
            Tls::Audited { policy } => {
                let Subject {
                    connector,
                    stream,
                    run,
                    denials,
                    ..
                } = &self.0.subject;
                if denials.note_allowed(what) {
                    tracing::warn!(
                        target: "setu::policy", connector, stream, run,
                        "the policy {policy} (audit) would deny {what}: it requires TLS with a verified certificate"
                    );
                }
                Ok(())
            }
        }
    }

    /// Whether a policy asks about TLS at all.
    pub(super) fn demands_tls(&self) -> bool {
        !matches!(self.0.tls, Tls::Any)
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

    /// Whether a grant covers the host and the port.
    pub(super) fn grants(&self, host: &Host, port: u16) -> bool {
        self.0.grants.iter().any(|grant| grant.covers(host, port))
    }

    /// Notes that no grant covers an endpoint, and says what would.
    pub(super) fn refuse_endpoint(&self, endpoint: &str) -> String {
        let role = self.0.subject.role;
        self.refuse(format!(
            "the sandbox refused {endpoint}: no grant covers it. To allow it, add `grant: {{ network: \
             [\"{endpoint}\"] }}` under `{role}:` in the pipeline file"
        ))
    }

    /// Notes that a socket was to be used for something that is never allowed.
    pub(super) fn refuse_purpose(&self) {
        self.refuse(
            "the sandbox refused a socket: connectors open TCP connections, and neither listen nor use UDP"
                .to_owned(),
        );
    }

    /// Counts a refusal and tells it, in the log where it is the first of its kind, and with the error of the call.
    fn refuse(&self, message: String) -> String {
        // A connector that takes a secret apart in the wrong place asks for a part of it as a host.
        let message = self.0.subject.secrets.scrub(&message);
        let Subject {
            connector,
            stream,
            run,
            denials,
            ..
        } = &self.0.subject;
        if denials.note(&message) {
            tracing::warn!(target: "setu::sandbox", connector, stream, run, "{message}");
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn network(grants: &[&str]) -> Network {
        under(grants, Tls::Any)
    }

    fn under(grants: &[&str], tls: Tls) -> Network {
        let grants = grants
            .iter()
            .flat_map(|g| NetworkGrant::parse_all(g).unwrap())
            .collect();
        let subject = Subject {
            role: Role::Source,
            connector: "x 1.0.0".into(),
            run: "r".into(),
            stream: "s".into(),
            denials: Denials::default(),
            secrets: Secrets::default(),
        };
        Network::new(subject, grants, tls)
    }

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_host_is_reached_only_under_a_grant() {
        let network = network(&[
            "db.internal:5432",
            "10.0.0.1:80",
            "[::1]:1",
            "*.example:7",
            "172.16.0.0/12:7",
        ]);
        for (host, port, allowed) in [
            ("db.internal", 5432, true),
            ("DB.Internal.", 5432, true),
            ("db.internal", 5433, false),
            ("evil.db.internal", 5432, false),
            ("10.0.0.1", 80, true),
            ("0x0a.1", 80, true),
            ("::ffff:10.0.0.1", 80, true),
            ("[::1]", 1, true),
            ("::1", 1, true),
            ("a.example", 7, true),
            ("example", 7, false),
            ("172.31.0.1", 7, true),
            ("172.32.0.1", 7, false),
            ("localhost", 1, false),
            ("", 1, false),
            ("db.internal\n", 5432, false),
        ] {
            assert_eq!(network.check(host, port).is_ok(), allowed, "{host}:{port}");
        }
    }

    #[test]
    fn a_refusal_says_the_line_to_add_and_is_counted() {
        let network = network(&[]);
        let message = network.check("DB.internal.", 5432).unwrap_err();
        assert!(
            message.contains("`grant: { network: [\"db.internal:5432\"] }` under `source:`"),
            "{message}"
        );
        assert_eq!(network.check("db.internal", 5432), Err(message.clone()));
        assert_eq!(network.take_refusals(), [message]);
        assert_eq!(network.take_refusals(), [] as [String; 0]);
        assert_eq!(network.0.subject.denials.count(), 2);
    }

    #[test]
    fn a_socket_reaches_what_a_granted_name_resolved_to() {
        let network = network(&["db:5432", "*.example:7"]);
        let pin = |name: &str, ip: [u8; 4]| network.pin(&Host::parse(name).unwrap(), ip.into());
        assert!(!network.may_connect(address("10.0.0.9:5432")));
        assert!(pin("db", [10, 0, 0, 9]));
        assert!(network.may_connect(address("10.0.0.9:5432")));
        assert!(network.may_connect(address("[::ffff:10.0.0.9]:5432")));
        assert!(!network.may_connect(address("10.0.0.9:5433")));
        assert!(!pin("other", [10, 0, 0, 10]));
        assert!(!network.may_connect(address("10.0.0.10:5432")));
        assert!(pin("a.example", [10, 0, 0, 11]));
        assert!(network.may_connect(address("10.0.0.11:7")));
        assert!(!network.may_connect(address("10.0.0.11:5432")));
    }

    #[test]
    fn the_surroundings_of_the_machine_are_admitted_only_literally_and_on_their_port() {
        let network = network(&["db:80", "169.254.1.1:81", "169.254.0.0/16:80"]);
        for (ip, port, admitted) in [
            ("169.254.169.254", 80, false),
            ("169.254.1.1", 81, true),
            ("169.254.1.1", 80, false),
            ("10.0.0.1", 80, true),
        ] {
            assert_eq!(network.admits(ip.parse().unwrap(), port), admitted, "{ip}:{port}");
        }
        let db = Host::Name("db".into());
        assert!(!network.pin(&db, [169, 254, 169, 254].into()));
        assert!(!network.may_connect(address("169.254.169.254:80")));
        assert!(!network.may_connect(address("169.254.1.1:80")));
        assert!(network.may_connect(address("169.254.1.1:81")));
    }

    #[test]
    fn an_instance_cannot_look_names_up_without_end() {
        let network = network(&["*.example:1"]);
        for n in 0..MAX_NAMES {
            // By either way out.
            match n % 2 {
                0 => assert!(network.may_resolve(&format!("n{n}.example")).is_some()),
                _ => assert_eq!(network.count_name(&format!("n{n}.example")), Ok(())),
            }
        }
        assert!(network.may_resolve("n1.example").is_some());
        assert_eq!(network.count_name("n0.example"), Ok(()));
        assert!(network.may_resolve("one-more.example").is_none());
        assert!(network.count_name("one-more.example").is_err());
        assert!(network.take_refusals()[0].contains("one instance may look up 1000"));
    }

    #[test]
    fn where_a_policy_requires_tls_no_socket_of_wasis_connects() {
        let policy = "p.yaml".to_owned();
        let required = under(
            &["10.0.0.1:1"],
            Tls::Required {
                policy: policy.clone(),
            },
        );
        assert!(!required.may_connect(address("10.0.0.1:1")));
        assert!(required.take_refusals()[0].contains("p.yaml requires TLS"));
        assert_eq!(required.demand_tls(true, "it"), Ok(()));
        let audited = under(&["10.0.0.1:1"], Tls::Audited { policy });
        assert!(audited.may_connect(address("10.0.0.1:1")));
        assert_eq!(audited.0.subject.denials.count(), 0);
    }
}
