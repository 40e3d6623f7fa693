//! What a network grant names: a host, all hosts below a name, or a network of addresses; and a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::host::{Host, is_special};
use super::text::{Endpoint, endpoints, split_port};

/// Hosts and a port that may be connected to, or, in a policy, that may be granted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NetworkGrant {
    pub(crate) hosts: Hosts,
    /// None: any port. Only a policy can say that.
    pub(crate) port: Option<u16>,
}

/// The hosts of a grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Hosts {
    One(Host),
    /// Every name that ends in a dot and this name, and not the name itself.
    Below(String),
    Network(Network),
}

/// The addresses whose first `prefix` bits are those of `address`, whose other bits are 0. IPv4 is never written as
/// IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Network {
    address: IpAddr,
    prefix: u8,
}

impl From<Endpoint> for NetworkGrant {
    fn from(endpoint: Endpoint) -> Self {
        NetworkGrant {
            hosts: Hosts::One(endpoint.host),
            port: Some(endpoint.port),
        }
    }
}

impl NetworkGrant {
    /// What one entry of `grant.network` names: `*.suffix:port`, `10.0.0.0/8:port`, or whatever names endpoints. An
    /// error says what is wrong without repeating the text.
    pub(crate) fn parse_all(text: &str) -> Result<Vec<NetworkGrant>, String> {
        let text = text.trim();
        match wide(text)? {
            Some((hosts, port)) => {
                let port = port.parse().ok().filter(|port| *port > 0).ok_or(NO_PORT)?;
                let port = Some(port);
                Ok(vec![NetworkGrant { hosts, port }])
            }
            None => Ok(endpoints(text, None)?.into_iter().map(Self::from).collect()),
        }
    }

    /// What one entry of a policy names: as `parse_all`, with one host, and `*` for any port.
    pub(crate) fn parse_ceiling(text: &str) -> Result<NetworkGrant, String> {
        let text = text.trim();
        let Some(anywhere) = text.strip_suffix(":*") else {
            let [grant] = <[_; 1]>::try_from(Self::parse_all(text)?)
                .map_err(|_| "it must name one host: write one entry for each")?;
            return Ok(grant);
        };
        let hosts = match wide(&format!("{anywhere}:1"))? {
            Some((hosts, _)) => hosts,
            None => Hosts::One(Host::parse(anywhere).ok_or("it names no host before `:*`")?),
        };
        Ok(NetworkGrant { hosts, port: None })
    }

    /// Whether a connection to this host and port is granted.
    pub(crate) fn covers(&self, host: &Host, port: u16) -> bool {
        self.port.is_none_or(|own| own == port) && self.hosts.cover(host)
    }

    /// Whether everything that the other grants is granted by this one.
    pub(crate) fn includes(&self, other: &NetworkGrant) -> bool {
        let ports = self.port.is_none() || self.port == other.port;
        ports
            && match (&self.hosts, &other.hosts) {
                (hosts, Hosts::One(host)) => hosts.cover(host),
                (Hosts::Below(suffix), Hosts::Below(other)) => suffix == other || is_below(other, suffix),
                (Hosts::Network(network), Hosts::Network(other)) => network.includes(other),
                _ => false,
            }
    }
}

impl Hosts {
    /// An address of the machine's surroundings is covered by itself alone, whatever network holds it.
    pub(crate) fn cover(&self, host: &Host) -> bool {
        match (self, host) {
            (Hosts::One(own), host) => own == host,
            (Hosts::Below(suffix), Host::Name(name)) => is_below(name, suffix),
            (Hosts::Network(network), Host::Ip(ip)) => !is_special(*ip) && network.contains(*ip),
            _ => false,
        }
    }
}

fn is_below(name: &str, suffix: &str) -> bool {
    let rest = name.strip_suffix(suffix).and_then(|rest| rest.strip_suffix('.'));
    rest.is_some_and(|rest| !rest.is_empty())
}

const NO_PORT: &str = "it names no port from 1 to 65535 after its hosts";

/// The hosts of a text that names more than single ones, and the text of its port; none: it does not.
fn wide(text: &str) -> Result<Option<(Hosts, &str)>, String> {
    // A URL and a connection string name single hosts, and have slashes and stars of their own.
    if text.contains("://") || text.contains('=') {
        return Ok(None);
    }
    if let Some(rest) = text.strip_prefix('*') {
        let suffix = rest
            .strip_prefix('.')
            .ok_or("a `*` must be followed by a dot and a name")?;
        let (suffix, port) = suffix.rsplit_once(':').ok_or(NO_PORT)?;
        return match Host::parse(suffix) {
            Some(Host::Name(suffix)) => Ok(Some((Hosts::Below(suffix), port))),
            _ => Err("what follows `*.` is no name".to_owned()),
        };
    }
    let Some((address, rest)) = text.split_once('/').filter(|(address, _)| !address.is_empty()) else {
        return Ok(None);
    };
    let (prefix, port) = rest.split_once(':').ok_or(NO_PORT)?;
    let (address, _) = split_port(address)?;
    let network = Network::new(address, prefix)?;
    Ok(Some((Hosts::Network(network), port)))
}

impl Network {
    fn new(address: &str, prefix: &str) -> Result<Network, String> {
        let inner = address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        let parsed = match inner {
            Some(inner) => inner.parse::<Ipv6Addr>().map(IpAddr::from),
            None => address.parse(),
        };
        let address = parsed.map_err(|_| "what stands before `/` is no address")?;
        let digits = !prefix.is_empty() && prefix.bytes().all(|byte| byte.is_ascii_digit());
        let prefix = prefix.parse::<u8>().ok().filter(|_| digits);
        let prefix = prefix.filter(|prefix| *prefix <= width(address));
        let prefix = prefix.ok_or("what stands after `/` is no length of a prefix")?;
        // IPv4 in IPv6, where the network is within IPv4; a larger one holds no IPv4 address in normal form.
        let network = match (address.to_canonical(), address, prefix) {
            (IpAddr::V4(short), IpAddr::V6(_), 96..) => Network {
                address: short.into(),
                prefix: prefix - 96,
            },
            _ => Network { address, prefix },
        };
        match network.masked(network.address) == network.address {
            true => Ok(network),
            false => Err(format!(
                "its address has bits beyond the prefix; the network is {}/{}",
                network.masked(network.address),
                network.prefix
            )),
        }
    }

    fn masked(&self, ip: IpAddr) -> IpAddr {
        let prefix = u32::from(self.prefix);
        match ip {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
                Ipv4Addr::from_bits(ip.to_bits() & mask).into()
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
                Ipv6Addr::from_bits(ip.to_bits() & mask).into()
            }
        }
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.address.is_ipv4() && self.masked(ip) == self.address
    }

    fn includes(&self, other: &Network) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }
}

fn width(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

impl fmt::Display for NetworkGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.hosts {
            Hosts::One(Host::Ip(IpAddr::V6(ip))) => write!(f, "[{ip}]:")?,
            Hosts::One(host) => write!(f, "{host}:")?,
            Hosts::Below(suffix) => write!(f, "*.{suffix}:")?,
            Hosts::Network(Network { address, prefix }) => match address {
                IpAddr::V4(ip) => write!(f, "{ip}/{prefix}:")?,
                IpAddr::V6(ip) => write!(f, "[{ip}]/{prefix}:")?,
            },
        }
        match self.port {
            Some(port) => port.fmt(f),
            None => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &str) -> NetworkGrant {
        NetworkGrant::parse_ceiling(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_grant_is_read_in_every_form() {
        let cases: &[(&str, &[&str])] = &[
            ("db.internal:5432", &["db.internal:5432"]),
            ("h1:1,h2:2", &["h1:1", "h2:2"]),
            ("postgres://db/x?a=*.b", &["db:5432"]),
            ("*.Internal.:5432", &["*.internal:5432"]),
            ("*.bücher.example:1", &["*.xn--bcher-kva.example:1"]),
            ("10.0.0.0/8:5432", &["10.0.0.0/8:5432"]),
            ("0.0.0.0/0:1", &["0.0.0.0/0:1"]),
            ("[2001:DB8::]/32:443", &["[2001:db8::]/32:443"]),
            ("2001:db8::/32:443", &["[2001:db8::]/32:443"]),
            ("[::ffff:10.0.0.0]/104:1", &["10.0.0.0/8:1"]),
            ("[::]/0:1", &["[::]/0:1"]),
            ("/var/run/postgresql", &[]),
            ("*:5432", &["!"]),
            ("*db:5432", &["!"]),
            ("*.:5432", &["!"]),
            ("*.internal", &["!"]),
            ("*.internal:0", &["!"]),
            ("*.internal:*", &["!"]),
            ("*.*.internal:1", &["!"]),
            ("*.10.0.0.1:1", &["!"]),
            ("a.*.internal:1", &["!"]),
            ("10.0.0.1/8:5432", &["!"]),
            ("10.0.0.0/33:5432", &["!"]),
            ("10.0.0.0/+8:5432", &["!"]),
            ("10.0.0.0/:5432", &["!"]),
            ("10.0.0.0/8", &["!"]),
            ("0x0a.0.0.0/8:1", &["!"]),
            ("db/8:1", &["!"]),
            ("10.0.0.0/8:*", &["!"]),
        ];
        for (text, expected) in cases {
            let found = match NetworkGrant::parse_all(text) {
                Ok(found) => found.iter().map(NetworkGrant::to_string).collect(),
                Err(_) => vec!["!".to_owned()],
            };
            assert_eq!(&found, expected, "{text}");
        }
        for (text, expected) in [
            ("db:*", "db:*"),
            ("*.internal:*", "*.internal:*"),
            ("10.0.0.0/8:*", "10.0.0.0/8:*"),
            ("[::1]:*", "[::1]:*"),
            ("2130706433:*", "127.0.0.1:*"),
        ] {
            assert_eq!(one(text).to_string(), expected);
        }
        for text in ["*:*", ":*", "a:1,b:1", "h:1:*"] {
            assert!(NetworkGrant::parse_ceiling(text).is_err(), "{text}");
        }
    }

    /// Who asks for a host in any spelling gets what the grant says and nothing else.
    #[test]
    fn no_spelling_gets_around_a_grant() {
        let cases: &[(&str, &str, bool)] = &[
            ("db.internal:1", "DB.INTERNAL.", true),
            ("db.internal:1", "ｄｂ.internal", true),
            ("db.internal:1", "x.db.internal", false),
            ("db.internal:1", "db.internal.evil.example", false),
            ("bücher.example:1", "xn--bcher-kva.example", true),
            ("xn--bcher-kva.example:1", "BÜCHER.example.", true),
            ("bücher.example:1", "bucher.example", false),
            ("*.internal:1", "db.internal", true),
            ("*.internal:1", "a.b.internal.", true),
            ("*.internal:1", "internal", false),
            ("*.internal:1", "evilinternal", false),
            ("*.internal:1", "db.internal.evil.example", false),
            ("*.bücher.example:1", "a.xn--bcher-kva.example", true),
            ("*.internal:1", "10.0.0.1", false),
            ("10.0.0.1:1", "0x0a.1", true),
            ("10.0.0.1:1", "167772161", true),
            ("10.0.0.1:1", "012.0.0.1", true),
            ("10.0.0.1:1", "::ffff:10.0.0.1", true),
            ("10.0.0.1:1", "[::ffff:a00:1]", true),
            ("10.0.0.1:1", "10.0.0.2", false),
            ("[::ffff:10.0.0.1]:1", "10.0.0.1", true),
            ("10.0.0.0/8:1", "10.255.0.1", true),
            ("10.0.0.0/8:1", "0x0a.1", true),
            ("10.0.0.0/8:1", "::ffff:10.0.0.1", true),
            ("10.0.0.0/8:1", "11.0.0.1", false),
            ("10.0.0.0/8:1", "ten.example", false),
            ("10.0.0.0/8:1", "a00:1::", false),
            ("0.0.0.0/0:1", "8.8.8.8", true),
            ("0.0.0.0/0:1", "::1", false),
            ("[::]/0:1", "2001:db8::1", true),
            ("[::]/0:1", "10.0.0.1", false),
            ("[::ffff:10.0.0.0]/104:1", "10.1.2.3", true),
            // The surroundings of the machine: only literally.
            ("0.0.0.0/0:1", "169.254.169.254", false),
            ("169.254.0.0/16:1", "169.254.169.254", false),
            ("169.254.169.254/32:1", "169.254.169.254", false),
            ("169.254.169.254:1", "169.254.169.254", true),
            ("169.254.169.254:1", "0xa9fea9fe", true),
            ("[::]/0:1", "fd00:ec2::254", false),
            ("[fe80::]/10:1", "fe80::1", false),
            ("[fe80::1]:1", "fe80::1", true),
            ("100.64.0.0/10:1", "100.100.100.200", false),
            ("168.63.0.0/16:1", "168.63.129.16", false),
            ("[64:ff9b::]/96:1", "64:ff9b::a9fe:a9fe", false),
        ];
        for (grant, host, covered) in cases {
            let host = Host::parse(host).unwrap_or_else(|| panic!("{host} is a host"));
            assert_eq!(one(grant).covers(&host, 1), *covered, "{grant} and {host}");
            assert!(!one(grant).covers(&host, 2), "{grant} and another port");
        }
        assert!(one("db:*").covers(&Host::Name("db".into()), 7));
    }

    #[test]
    fn a_ceiling_includes_what_lies_within_it() {
        for (ceiling, grant, included) in [
            ("db:1", "db:1", true),
            ("db:1", "db:2", false),
            ("db:*", "db:2", true),
            ("db:1", "db:*", false),
            ("*.internal:1", "db.internal:1", true),
            ("*.internal:1", "*.internal:1", true),
            ("*.internal:1", "*.a.internal:1", true),
            ("*.a.internal:1", "*.internal:1", false),
            ("*.internal:1", "internal:1", false),
            ("db.internal:1", "*.internal:1", false),
            ("10.0.0.0/8:1", "10.1.0.0/16:1", true),
            ("10.0.0.0/8:1", "10.0.0.0/8:1", true),
            ("10.1.0.0/16:1", "10.0.0.0/8:1", false),
            ("10.0.0.0/8:1", "10.0.0.1:1", true),
            ("10.0.0.1:1", "10.0.0.0/8:1", false),
            ("10.0.0.0/8:1", "db.internal:1", false),
            ("0.0.0.0/0:1", "169.254.169.254:1", false),
            ("169.254.169.254:1", "169.254.169.254:1", true),
            ("[::]/0:1", "10.0.0.0/8:1", false),
        ] {
            assert_eq!(
                one(ceiling).includes(&one(grant)),
                included,
                "{ceiling} and {grant}"
            );
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*") {
            let _ = NetworkGrant::parse_all(&text);
            let _ = NetworkGrant::parse_ceiling(&text);
        }

        #[test]
        fn a_grant_reads_back_from_its_text(bits in any::<u128>(), prefix in 0u8..=128, port in 1u16.., v4: bool) {
            let network = |address: IpAddr, prefix| {
                let network = Network { address, prefix };
                Network { address: network.masked(address), prefix }
            };
            let network = match v4 {
                true => network(Ipv4Addr::from_bits(bits as u32).into(), prefix % 33),
                false => network(Ipv6Addr::from_bits(bits | 1 << 127).into(), prefix.max(1)),
            };
            let grant = NetworkGrant { hosts: Hosts::Network(network), port: Some(port) };
            prop_assert_eq!(NetworkGrant::parse_all(&grant.to_string()), Ok(vec![grant]));
        }
    }
}
