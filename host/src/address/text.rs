//! Which hosts and ports a text names: a URL, `host:port`, or a `key=value` connection string.
//!
//! Connectors read such texts with libraries of their own. Where a text could be read in two ways, both readings name
//! no more than what is returned here, or the connector is denied the rest.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use super::host::Host;

/// One thing that a connection can be made to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Endpoint {
    pub(crate) host: Host,
    pub(crate) port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            ref host => write!(f, "{host}:{}", self.port),
        }
    }
}

/// Every endpoint that the text names; an error says what is wrong with it, without repeating it.
pub(crate) fn endpoints(text: &str, default_port: Option<u16>) -> Result<Vec<Endpoint>, String> {
    let text = text.trim();
    if let Some((scheme, rest)) = text.split_once("://") {
        url(&scheme.to_lowercase(), rest, default_port)
    } else if text.contains('=') {
        let pairs =
            key_values(text).ok_or("its quotes do not close, or it is not made of key=value pairs")?;
        from_pairs(&pairs, default_port)
    } else {
        host_list(text, default_port, None)
    }
}

/// The text with a password in it replaced: that of a URL's user, or the value of `password` and the like.
pub(crate) fn mask(text: &str) -> String {
    if !is_pairs(text) {
        return mask_url(text);
    }
    let Some(pairs) = key_values(text) else {
        return "***".to_owned();
    };
    if !pairs.iter().any(|(key, _)| is_secret(key)) {
        return mask_url(text);
    }
    let shown = |(key, value): &(String, String)| match is_secret(key) {
        true => format!("{key}=***"),
        false => format!("{key}={value}"),
    };
    mask_url(&pairs.iter().map(shown).collect::<Vec<_>>().join(" "))
}

fn mask_url(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut end = 0;
    for hidden in hidden(text) {
        // Readings overlap: what any of them takes for a part of a password is one.
        if hidden.start > end || masked.is_empty() {
            masked.push_str(&text[end..hidden.start]);
            masked.push_str("***");
        }
        end = end.max(hidden.end);
    }
    masked + &text[end..]
}

/// The passwords in a text, as they are written there and as they are meant: that of a URL's user, and the values of
/// `password` and the like.
pub(crate) fn passwords(text: &str) -> Vec<String> {
    let text = text.trim();
    let mut found: Vec<_> = hidden(text)
        .into_iter()
        .map(|hidden| text[hidden].to_owned())
        .collect();
    found.extend(found.clone().iter().map(|password| percent_decode(password)));
    if is_pairs(text) {
        let pairs = key_values(text).unwrap_or_default().into_iter();
        found.extend(pairs.filter(|(key, _)| is_secret(key)).map(|(_, value)| value));
    }
    found
}

/// Whether a text is one of `key=value` pairs rather than a URL, or a list of hosts.
fn is_pairs(text: &str) -> bool {
    !text.contains("://") && text.contains('=')
}

/// Where a URL's password may stand, and the values of secret parameters, in the order in which they begin. Libraries
/// differ in where the parts of a URL end, so there is one range for each reading.
fn hidden(text: &str) -> Vec<Range<usize>> {
    let scheme_end = text.find("://").map(|at| at + 3);
    let start = scheme_end.unwrap_or(0);
    let rest = &text[start..];
    let mut found = Vec::new();
    // An unescaped slash in a password ends the authority for some readers and not for others.
    for end in [rest.find(['/', '?', '#']).unwrap_or(rest.len()), rest.len()] {
        let user = rest[..end].rfind('@').map_or("", |at| &rest[..at]);
        found.extend(user.find(':').map(|colon| colon + 1..user.len()));
    }
    let begins = rest.match_indices(['?', '&']).map(|(at, _)| at + 1);
    for key in begins.chain(scheme_end.map(|_| 0)) {
        let part = &rest[key..];
        let part = &part[..part.find(['?', '&']).unwrap_or(part.len())];
        let Some(equals) = part.find('=').filter(|equals| is_secret(&part[..*equals])) else {
            continue;
        };
        let value = key + equals + 1;
        for ends in [&['&'][..], &['&', '#'], &['&', '?']] {
            let end = rest[value..].find(ends).map_or(rest.len(), |at| value + at);
            found.push(value..end);
        }
    }
    let mut found: Vec<_> = found
        .into_iter()
        .filter(|hidden| !hidden.is_empty())
        .map(|hidden| start + hidden.start..start + hidden.end)
        .collect();
    found.sort_by_key(|hidden| (hidden.start, hidden.end));
    found.dedup();
    found
}

fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    ["pass", "secret", "token", "key"]
        .iter()
        .any(|word| key.contains(word))
}

fn url(scheme: &str, rest: &str, default_port: Option<u16>) -> Result<Vec<Endpoint>, String> {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    // A password may hold an unescaped `@`; a host may not.
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let default_port = match scheme {
        // No library takes another port for these, whatever a schema says.
        "http" => Some(80),
        "https" => Some(443),
        "postgres" | "postgresql" => default_port.or(Some(5432)),
        "mysql" => default_port.or(Some(3306)),
        _ => default_port,
    };
    let query = rest.split_once('?').map_or("", |(_, query)| query);
    let query = query.split('#').next().unwrap_or_default();
    let parameter = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(key, _)| *key == name)
            .map(|(_, value)| percent_decode(value))
    };
    // Postgres takes the host from the query as well.
    if scheme.starts_with("postgres") && (parameter("host").is_some() || parameter("hostaddr").is_some()) {
        let pairs: Vec<_> = ["host", "hostaddr", "port"]
            .iter()
            .filter_map(|key| Some(((*key).to_owned(), parameter(key)?)))
            .collect();
        return from_pairs(&pairs, default_port);
    }
    let no_host = scheme.starts_with("postgres").then_some("localhost");
    host_list(&percent_decode(hosts), default_port, no_host)
}

/// `host[:port]` separated by commas; `no_host` is what an empty host stands for, where it stands for anything.
fn host_list(text: &str, default_port: Option<u16>, no_host: Option<&str>) -> Result<Vec<Endpoint>, String> {
    let mut endpoints = Vec::new();
    for part in text.split(',') {
        let part = part.trim();
        if part.starts_with('/') {
            continue; // A local socket: nothing that a grant could open.
        }
        let (host, port) = split_port(part)?;
        let host = match host {
            "" => no_host.ok_or("it names no host")?,
            host => host,
        };
        endpoints.push(endpoint(host, port.or(default_port))?);
    }
    Ok(endpoints)
}

pub(super) fn split_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let after_bracket = text.rfind(']').map_or(0, |at| at + 1);
    let bare_v6 = after_bracket == 0 && text.parse::<Ipv6Addr>().is_ok();
    match text[after_bracket..].rfind(':') {
        Some(colon) if !bare_v6 => {
            let (host, port) = text.split_at(after_bracket + colon);
            Ok((host, parse_port(&port[1..])?))
        }
        _ => Ok((text, None)),
    }
}

fn parse_port(text: &str) -> Result<Option<u16>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.parse() {
        Ok(port) if port > 0 => Ok(Some(port)),
        _ => Err("its port is not a number from 1 to 65535".to_owned()),
    }
}

fn endpoint(host: &str, port: Option<u16>) -> Result<Endpoint, String> {
    let host = Host::parse(host).ok_or("it holds something that is neither a host name nor an address")?;
    let port = port.ok_or_else(|| format!("it names no port for {host}: write {host}:PORT"))?;
    Ok(Endpoint { host, port })
}

/// Keys by which a text without `host` is known as one that libpq connects to this machine with.
const LIBPQ_KEYS: [&str; 4] = ["dbname", "user", "password", "port"];

/// The hosts of a connection string; each list pairs with the list of ports.
fn from_pairs(pairs: &[(String, String)], default_port: Option<u16>) -> Result<Vec<Endpoint>, String> {
    let value = |name: &str| {
        let mut found = pairs.iter().filter(|(key, _)| key == name);
        found.next_back().map(|(_, value)| value.as_str())
    };
    let ports: Vec<_> = value("port")
        .unwrap_or_default()
        .split(',')
        .map(|port| parse_port(port.trim()))
        .collect::<Result<_, _>>()?;
    let mut endpoints = Vec::new();
    let lists = [value("host"), value("hostaddr")];
    let lists = match lists {
        // As libpq has it; a text of other pairs is no connection string.
        [None, None] if pairs.iter().any(|(key, _)| LIBPQ_KEYS.contains(&key.as_str())) => {
            [Some("localhost"), None]
        }
        [None, None] => return Err("it names no host".to_owned()),
        lists => lists,
    };
    for list in lists.into_iter().flatten() {
        for (index, host) in list.split(',').enumerate() {
            let host = host.trim();
            if host.starts_with('/') {
                continue;
            }
            let host = if host.is_empty() { "localhost" } else { host };
            let port = if ports.len() == 1 {
                ports[0]
            } else {
                ports.get(index).copied().flatten()
            };
            endpoints.push(endpoint(host, port.or(default_port))?);
        }
    }
    Ok(endpoints)
}

/// Parses `key = value` pairs as libpq does: blanks around `=` allowed, values in single quotes, backslash escapes.
fn key_values(text: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Some(pairs);
        }
        let mut key = String::new();
        while let Some(char) = chars.next_if(|c| *c != '=' && !c.is_whitespace()) {
            key.push(char);
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if key.is_empty() || chars.next() != Some('=') {
            return None;
        }
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let quoted = chars.next_if_eq(&'\'').is_some();
        let mut value = String::new();
        loop {
            match chars.next() {
                None if quoted => return None,
                None => break,
                Some('\\') => value.push(chars.next()?),
                Some('\'') if quoted => break,
                Some(char) if !quoted && char.is_whitespace() => break,
                Some(char) => value.push(char),
            }
        }
        pairs.push((key, value));
    }
}

/// The text with its `%XX` replaced by the bytes that they stand for.
pub(crate) fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let hex = |digit: &u8| char::from(*digit).to_digit(16);
        let escaped = match (byte, after) {
            (b'%', [high, low, ..]) => hex(high).zip(hex(low)).map(|(high, low)| (high * 16 + low) as u8),
            _ => None,
        };
        bytes.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_names_its_endpoints() {
        let cases: &[(&str, Option<u16>, &[&str])] = &[
            ("postgres://u:p@db.internal:5433/x", None, &["db.internal:5433"]),
            ("postgres://u:p@DB.Internal./x", None, &["db.internal:5432"]),
            (
                "postgresql://u:p%40x@h1:1,h2:2/db?sslmode=require",
                None,
                &["h1:1", "h2:2"],
            ),
            ("postgres://u:p@ss@h/x", None, &["h:5432"]),
            ("postgres://[::1]:5433/x", None, &["[::1]:5433"]),
            ("postgres://[2001:DB8::1]/x", None, &["[2001:db8::1]:5432"]),
            ("postgres:///x", None, &["localhost:5432"]),
            ("postgres:///x?host=a,b&port=1,2", None, &["a:1", "b:2"]),
            ("postgres://%2Fvar%2Frun/x", None, &[]),
            ("postgres://h", Some(7), &["h:7"]),
            (
                "https://api.example.com/v1?host=other",
                None,
                &["api.example.com:443"],
            ),
            ("HTTP://x", None, &["x:80"]),
            ("https://x", Some(5432), &["x:443"]),
            ("https://x:1", Some(5432), &["x:1"]),
            ("ftp://x", Some(21), &["x:21"]),
            ("https:///etc", None, &["!"]),
            ("file:///etc", Some(1), &["!"]),
            ("", Some(1), &["!"]),
            (":1", None, &["!"]),
            ("a,,b", Some(1), &["!"]),
            ("a=b", Some(1), &["!"]),
            ("port=7", None, &["localhost:7"]),
            ("db:5432", None, &["db:5432"]),
            ("db", Some(5432), &["db:5432"]),
            ("h1:1, h2", Some(2), &["h1:1", "h2:2"]),
            ("::1", Some(9), &["[::1]:9"]),
            ("[::1]:9", None, &["[::1]:9"]),
            ("::ffff:10.0.0.1", Some(9), &["10.0.0.1:9"]),
            ("[::ffff:10.0.0.1]:9", None, &["10.0.0.1:9"]),
            ("host=db port=5433 user=me", None, &["db:5433"]),
            ("host = 'my db' port=1", None, &["!"]),
            ("postgres://0x7f.1/x", None, &["127.0.0.1:5432"]),
            (
                "postgres://b%C3%BCcher.example/x",
                None,
                &["xn--bcher-kva.example:5432"],
            ),
            ("postgres://*.internal/x", None, &["!"]),
            ("10.0.0.0/8:1", Some(1), &["!"]),
            (
                "host='db' password='it\\'s host=evil' port = '7'",
                None,
                &["db:7"],
            ),
            ("host=a,b port=1,2", None, &["a:1", "b:2"]),
            ("host=a,b port=1", None, &["a:1", "b:1"]),
            (
                "host=db hostaddr=10.0.0.1",
                Some(5432),
                &["db:5432", "10.0.0.1:5432"],
            ),
            ("dbname=x", Some(5432), &["localhost:5432"]),
            ("host=/var/run/postgresql", Some(5432), &[]),
            ("host='open", Some(1), &["!"]),
            ("db:http", None, &["!"]),
            ("db:0", None, &["!"]),
            ("db:65536", None, &["!"]),
            ("db", None, &["!"]),
            ("a b:1", None, &["!"]),
            ("redis://h", None, &["!"]),
        ];
        for (text, default_port, expected) in cases {
            let found = match endpoints(text, *default_port) {
                Ok(found) => found.iter().map(Endpoint::to_string).collect(),
                Err(_) => vec!["!".to_owned()],
            };
            assert_eq!(&found, expected, "{text}");
        }
    }

    #[test]
    fn a_password_is_masked_wherever_it_stands() {
        for (text, masked) in [
            ("postgres://u:p@h/x", "postgres://u:***@h/x"),
            ("postgres://u:p@ss@h/x", "postgres://u:***@h/x"),
            ("postgres://u@h/x", "postgres://u@h/x"),
            ("postgres://u:a/b@h/x", "postgres://u:***@h/x"),
            ("postgres://u:a?b#c@h/x", "postgres://u:***@h/x"),
            ("https://h/?token=a@b:c@d&x=1", "https://h/?token=***&x=1"),
            ("https://h/?token=abc&a=1", "https://h/?token=***&a=1"),
            // A parameter that an `@` in it makes a part of the user, and what follows the `@`.
            ("x://host:1/l?token=ab@cdefghij", "x://host:***"),
            ("x://host:1/l?token=ab@cdef&x=1", "x://host:***&x=1"),
            ("x://host:1/l?token=a@b&x=c@d&key=e", "x://host:***@d&key=***"),
            ("x://host/?token=ab@c@d", "x://host/?token=***"),
            ("x://host/?token=a?b#c&x=1", "x://host/?token=***&x=1"),
            ("x://u:a?token=b@h/x", "x://u:***"),
            ("x://u:a?b&c@h/x?y=1", "x://u:***@h/x?y=1"),
            ("x://h/?token=&x=1", "x://h/?token=&x=1"),
            // Without a scheme, so that it is a mistake, and shown as one.
            ("u:geheim@h:1", "u:***@h:1"),
            ("u:geheim@h:1/x?sslmode=disable", "u:***@h:1/x?sslmode=disable"),
            ("host=h password=geheim", "host=h password=***"),
            ("host=h password='ge heim' user=u", "host=h password=*** user=u"),
            ("password='open", "***"),
            ("h:1", "h:1"),
        ] {
            assert_eq!(mask(text), masked, "{text}");
        }
    }

    #[test]
    fn passwords_are_found_as_written_and_as_meant() {
        for (text, expected) in [
            ("postgres://u:p%40ss@h/x", &["p%40ss", "p@ss"][..]),
            ("postgres://u:p@ss@h/x", &["p@ss"]),
            ("postgres://u:a/b@h/x", &["a/b"]),
            ("postgres://u@h/x?password=a%20b&x=1", &["a%20b", "a b"]),
            ("https://h/?access_token=abc", &["abc"]),
            ("https://h/?token=a?b#c&x=1", &["a?b#c", "a?b", "a"]),
            ("x://host:1/l?token=ab@cd", &["1/l?token=ab", "ab@cd"]),
            ("u:geheim@h:1", &["geheim"]),
            ("host=h password='it\\'s' user=u", &["it's"]),
            ("h:1", &[]),
            ("postgres://h/x", &[]),
        ] {
            let found = passwords(text);
            for expected in expected {
                assert!(found.iter().any(|found| found == expected), "{text}: {found:?}");
            }
            assert_eq!(found.is_empty(), expected.is_empty(), "{text}: {found:?}");
        }
    }

    #[test]
    fn only_two_hexadecimal_digits_are_an_escape() {
        for (text, decoded) in [
            ("%41%2f%C3%A9", "A/é"),
            ("%2541", "%41"),
            ("%+1%-1% 1%1", "%+1%-1% 1%1"),
            ("%", "%"),
            ("%FF", "\u{fffd}"),
        ] {
            assert_eq!(percent_decode(text), decoded, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in ".*", port in proptest::option::of(any::<u16>())) {
            let _ = endpoints(&text, port);
            let _ = mask(&text);
            let _ = passwords(&text);
        }

        #[test]
        fn an_endpoint_reads_back_from_its_text(
            host in "[a-z][a-z0-9-]{0,20}[a-z](\\.[a-z]{1,5}){0,3}",
            port in 1u16..,
        ) {
            prop_assume!(Host::parse(&host).is_some());
            let endpoint = Endpoint { host: Host::parse(&host).unwrap(), port };
            prop_assert_eq!(endpoints(&endpoint.to_string(), None), Ok(vec![endpoint]));
        }
    }
}
