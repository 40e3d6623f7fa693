//! One host, in normal form.
//!
//! The rules are those of the WHATWG URL standard (host parsing, <https://url.spec.whatwg.org/#host-parsing>), which
//! browsers and most HTTP libraries follow: names are mapped to ASCII by UTS #46, and a name whose last label is a
//! number is an IPv4 address in one of its old spellings (`0x7f.1`, `2130706433`) or nothing. The C library resolves
//! these spellings too, so a host that took them for names would connect to addresses that nobody granted.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use idna::AsciiDenyList;

/// What the standard forbids in a host, and what separates hosts from other things in connection strings and grants.
const FORBIDDEN: AsciiDenyList = AsciiDenyList::new(true, "%#/:<>?@[\\]^|,='\"*");

/// A host in normal form: a name in lower-case ASCII without the root's dot, or an address (IPv4 also where it was
/// written as IPv6).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Host {
    Name(String),
    Ip(IpAddr),
}

impl Host {
    /// None where the text cannot be a host.
    pub(crate) fn parse(text: &str) -> Option<Host> {
        let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(ip) = inner.unwrap_or(text).parse::<Ipv6Addr>() {
            return Some(Host::ip(ip.into()));
        }
        let ascii = idna::domain_to_ascii_cow(text.as_bytes(), FORBIDDEN).ok()?;
        let name = ascii.strip_suffix('.').unwrap_or(&ascii);
        let lengths_fit = name.len() <= 253 && name.split('.').all(|label| (1..=63).contains(&label.len()));
        if !lengths_fit {
            return None;
        }
        match ends_in_a_number(name) {
            true => ipv4(name).map(|ip| Host::ip(ip.into())),
            false => Some(Host::Name(name.to_owned())),
        }
    }

    pub(crate) fn ip(ip: IpAddr) -> Host {
        Host::Ip(ip.to_canonical())
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Ip(ip) => ip.fmt(f),
        }
    }
}

/// Whether a name must be read as an IPv4 address: its last label is a number.
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    last.bytes().all(|byte| byte.is_ascii_digit()) || ipv4_number(last).is_some()
}

/// One to four numbers in decimal, octal (`0…`) or hexadecimal (`0x…`); the last one fills what is left.
fn ipv4(name: &str) -> Option<Ipv4Addr> {
    let numbers = name.split('.').map(ipv4_number).collect::<Option<Vec<u64>>>()?;
    let (last, first) = numbers.split_last()?;
    if first.len() > 3 || first.iter().any(|number| *number > 255) || *last >= 1 << (8 * (4 - first.len())) {
        return None;
    }
    let shifted = first
        .iter()
        .enumerate()
        .map(|(index, number)| number << (8 * (3 - index)));
    let address = last + shifted.sum::<u64>();
    u32::try_from(address).ok().map(Ipv4Addr::from_bits)
}

/// None where the text is no number, or one beyond every address.
fn ipv4_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    if text.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return None;
    }
    match digits {
        // `0x` alone is a zero, says the standard.
        "" => Some(0),
        digits => u64::from_str_radix(digits, radix).ok(),
    }
}

/// Whether an address belongs to the machine's own surroundings, where no name and no network that is granted as a
/// whole should lead: those of the link, those under which clouds serve credentials, "this host", and those that
/// are for many.
pub(crate) fn is_special(ip: IpAddr) -> bool {
    const METADATA_V4: [[u8; 4]; 4] = [
        [100, 100, 100, 200], // Alibaba Cloud
        [168, 63, 129, 16],   // Azure
        [192, 0, 0, 192],     // Oracle Cloud
        [0, 0, 0, 0],         // "this host"
    ];
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            ip.is_link_local() || ip.is_broadcast() || ip.is_multicast() || METADATA_V4.contains(&ip.octets())
        }
        IpAddr::V6(ip) => {
            let metadata = match ip.segments() {
                [0xfd00, 0xec2, ..] => true,                        // AWS
                [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => true,       // Google Cloud
                [0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe] => true, // Oracle Cloud
                [0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42] => true,        // Scaleway
                [0xfd00, 0xa9fe, 0xa9fe, 0, 0, 0, 0, 1] => true,    // Linode
                [0xfd00, 0x100, 0, 0, 0, 0, 0x100, 0x200] => true,  // Alibaba Cloud
                _ => false,
            };
            metadata
                || ip.is_unicast_link_local()
                || ip.is_multicast()
                || ip.is_unspecified()
                || embedded_ipv4(ip).into_iter().any(|ip| is_special(ip.into()))
        }
    }
}

/// The IPv4 addresses that an IPv6 address may lead to, beside those that `to_canonical` knows: through NAT64, 6to4 and
/// the old "IPv4-compatible" form.
fn embedded_ipv4(ip: Ipv6Addr) -> Vec<Ipv4Addr> {
    let bytes = ip.octets();
    let at = |places: [usize; 4]| Ipv4Addr::from(places.map(|place| bytes[place]));
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![at([12, 13, 14, 15])],
        // A network's own NAT64 (RFC 8215) may have a prefix of 48, 56, 64 or 96 bits in it, and each puts the address
        // elsewhere (RFC 6052, section 2.2). What is read where none lies is mostly zeros, or a few and a byte.
        [0x64, 0xff9b, 1, ..] => {
            let places = [[6, 7, 9, 10], [7, 9, 10, 11], [9, 10, 11, 12], [12, 13, 14, 15]];
            let read = places.into_iter().map(at);
            read.filter(|ip| !ip.is_unspecified() && !ip.is_multicast())
                .collect()
        }
        [0x2002, ..] => vec![at([2, 3, 4, 5])],
        [0, 0, 0, 0, 0, 0, high, _] if high != 0 => vec![at([12, 13, 14, 15])],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every spelling, and the one normal form that it has; none: it is no host.
    #[test]
    fn each_spelling_has_one_normal_form() {
        let cases: &[(&str, Option<&str>)] = &[
            // Case, and the root's dot.
            ("db.internal", Some("db.internal")),
            ("DB.Internal.", Some("db.internal")),
            ("my_db", Some("my_db")),
            ("db..internal", None),
            ("db..", None),
            (".", None),
            (".db", None),
            ("", None),
            // Names beyond ASCII, and look-alikes of ASCII.
            ("bücher.example", Some("xn--bcher-kva.example")),
            ("BÜCHER.example", Some("xn--bcher-kva.example")),
            ("bu\u{308}cher.example", Some("xn--bcher-kva.example")),
            ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
            ("XN--BCHER-KVA.example", Some("xn--bcher-kva.example")),
            ("straße.example", Some("xn--strae-oqa.example")),
            ("ｄｂ．internal", Some("db.internal")),
            ("db\u{3002}internal", Some("db.internal")),
            ("d\u{ad}b.internal", Some("db.internal")),
            ("xn--a", None),
            ("xn--\u{fc}", None),
            // IPv4 as the C library and browsers read it.
            ("10.0.0.1", Some("10.0.0.1")),
            ("10.0.0.1.", Some("10.0.0.1")),
            ("127.1", Some("127.0.0.1")),
            ("127.0.1", Some("127.0.0.1")),
            ("2130706433", Some("127.0.0.1")),
            ("0x7f.1", Some("127.0.0.1")),
            ("0X7F000001", Some("127.0.0.1")),
            ("0177.0.0.1", Some("127.0.0.1")),
            ("0x7f.0.0.0x1", Some("127.0.0.1")),
            ("017700000001", Some("127.0.0.1")),
            ("０ｘ７ｆ．１", Some("127.0.0.1")),
            ("①②⑦.0.0.1", Some("127.0.0.1")),
            ("0", Some("0.0.0.0")),
            ("0x", Some("0.0.0.0")),
            ("256", Some("0.0.1.0")),
            ("4294967295", Some("255.255.255.255")),
            ("4294967296", None),
            ("256.0.0.1", None),
            ("10.0.0.256", None),
            ("10.0.0.0.1", None),
            ("1.2.3.08", None),
            ("db.10", None),
            ("db.0x1f", None),
            ("99999999999999999999999", None),
            ("10.0.0.1a", Some("10.0.0.1a")),
            // IPv6, and IPv4 in it.
            ("::1", Some("::1")),
            ("[::1]", Some("::1")),
            ("[2001:DB8:0:0::1]", Some("2001:db8::1")),
            ("::ffff:10.0.0.1", Some("10.0.0.1")),
            ("[::ffff:a00:1]", Some("10.0.0.1")),
            ("fe80::1%eth0", None),
            ("[10.0.0.1]", None),
            ("[::1", None),
            // What belongs to something else than a host.
            ("a b", None),
            ("db\n", None),
            ("db\0", None),
            ("db%2einternal", None),
            ("user@db", None),
            ("db:5432", None),
            ("db/x", None),
            ("a,b", None),
            ("host=db", None),
            ("*.internal", None),
            ("db\u{ff0f}x", None),
            ("db\u{ff1a}1", None),
            ("\u{ff0a}.internal", None),
        ];
        for (text, expected) in cases {
            let found = Host::parse(text).map(|host| host.to_string());
            assert_eq!(found.as_deref(), *expected, "{text:?}");
        }
        let label = "a".repeat(64);
        assert_eq!(Host::parse(&label), None);
        assert_eq!(Host::parse(&["a"; 128].join(".")), None);
    }

    #[test]
    fn the_surroundings_of_the_machine_are_special() {
        for (ip, special) in [
            ("169.254.169.254", true),
            ("169.254.0.1", true),
            ("::ffff:169.254.169.254", true),
            ("::169.254.169.254", true),
            ("64:ff9b::a9fe:a9fe", true),
            ("64:ff9b::a00:1", false),
            ("2002:a9fe:a9fe::1", true),
            ("fe80::1", true),
            ("febf::1", true),
            ("fd00:ec2::254", true),
            ("fd20:ce::254", true),
            ("fd00:c1::a9fe:a9fe", true),
            ("fd00:c1::1", false),
            ("fd00:42::42", true),
            ("fd00:a9fe:a9fe::1", true),
            ("fd00:100::100:200", true),
            ("fd00::1", false),
            // NAT64 of a network's own: with 96, 64, 56 and 48 bits before the address.
            ("64:ff9b:1::a9fe:a9fe", true),
            ("64:ff9b:1:abcd:a9:fea9:fe00:0", true),
            ("64:ff9b:1:aba9:fe:a9fe::", true),
            ("64:ff9b:1:a9fe:a9:fe00::", true),
            ("64:ff9b:1::a00:1", false),
            ("64:ff9b:1:abcd:a:0:e600:0", false),
            ("64:ff9b:1:abcd:a:0:100:0", false),
            ("100.100.100.200", true),
            ("168.63.129.16", true),
            ("192.0.0.192", true),
            ("0.0.0.0", true),
            ("::", true),
            ("224.0.0.1", true),
            ("ff02::1", true),
            ("255.255.255.255", true),
            ("10.0.0.1", false),
            ("127.0.0.1", false),
            ("::1", false),
        ] {
            assert_eq!(is_special(ip.parse().unwrap()), special, "{ip}");
        }
    }

    proptest! {
        #[test]
        fn a_normal_form_is_its_own_normal_form(text in "\\PC{0,40}|[a-zA-Z0-9.x-]{0,30}") {
            if let Some(host) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(&host.to_string()), Some(host));
            }
        }

        #[test]
        fn every_spelling_of_an_address_is_that_address(bits in any::<u32>()) {
            let ip = Ipv4Addr::from_bits(bits);
            let [a, b, c, d] = ip.octets();
            let rest = bits & 0xff_ffff;
            for text in [
                format!("{bits}"), format!("0x{bits:x}"), format!("0{bits:o}"), format!("{a}.{rest}"),
                format!("0x{a:X}.0{b:o}.{}", bits & 0xffff), format!("0{a:o}.{b}.0x{c:x}.{d}."),
                format!("::ffff:{ip}"), format!("[{}]", ip.to_ipv6_mapped()),
            ] {
                prop_assert_eq!(Host::parse(&text), Some(Host::Ip(ip.into())), "{}", text);
            }
        }
    }
}
