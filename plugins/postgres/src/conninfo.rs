//! Reads Postgres connection strings: URLs and libpq's `key=value` form. Pure text to [`ConnInfo`]; what a setting
//! means for a session is `session`'s business.
//!
//! No message ever repeats the string, which holds the password.

use std::fmt;
use std::str::FromStr;

use setu_sdk::{Error, Result};

/// The port of a host that names none.
pub(crate) const DEFAULT_PORT: u16 = 5432;

/// A connection string, taken apart.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct ConnInfo {
    /// Tried in order; at least one.
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<String>,
    pub(crate) sslmode: Option<SslMode>,
    pub(crate) application_name: Option<String>,
    /// libpq's `options`: command line options of the server's session.
    pub(crate) options: Option<String>,
}

impl fmt::Debug for ConnInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnInfo")
            .field("hosts", &self.hosts)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("database", &self.database)
            .field("sslmode", &self.sslmode)
            .finish_non_exhaustive()
    }
}

/// Whether and how a connection is encrypted: libpq's modes, with libpq's meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, setu_sdk::schemars::JsonSchema)]
#[schemars(crate = "setu_sdk::schemars")]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SslMode {
    /// Never TLS.
    Disable,
    /// Taken as `prefer`, which is never less safe.
    Allow,
    /// TLS where the server offers it, without proof of who the server is.
    Prefer,
    /// TLS, without proof of who the server is (with a CA: as `verify-ca`).
    Require,
    /// TLS with a certificate of a trusted CA.
    VerifyCa,
    /// TLS with a certificate of a trusted CA, issued for the host that was asked for.
    VerifyFull,
}

impl FromStr for SslMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "disable" => SslMode::Disable,
            "allow" => SslMode::Allow,
            "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            _ => {
                return Err(Error::config(format!(
                    "`url`: sslmode `{text}` is unknown; known are disable, allow, prefer, require, verify-ca and \
                     verify-full"
                )));
            }
        })
    }
}

impl ConnInfo {
    /// Reads a URL or a `key=value` string.
    ///
    /// # Errors
    /// `config`, with what is wrong and what was expected.
    pub(crate) fn parse(text: &str) -> Result<ConnInfo> {
        let text = text.trim();
        let settings = match text.split_once("://") {
            Some(("postgres" | "postgresql", rest)) => url_settings(rest)?,
            Some((scheme, _))
                if scheme
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) =>
            {
                return Err(Error::config(format!(
                    "`url` begins with `{scheme}://`; a Postgres URL begins with `postgres://`"
                )));
            }
            _ if text.contains('=') => keyword_settings(text)?,
            _ => {
                return Err(Error::config(
                    "`url` is neither a URL (postgres://user:password@host:5432/database) nor a list of settings \
                     (host=… user=… dbname=…)",
                ));
            }
        };
        settings.into_info()
    }
}

/// Settings under libpq's names, hosts and ports still as they were written.
#[derive(Default)]
struct Settings {
    hosts: Vec<String>,
    ports: Vec<String>,
    info: ConnInfo,
}

impl Settings {
    fn set(&mut self, key: &str, value: String) -> Result<()> {
        let filled = || (!value.is_empty()).then(|| value.clone());
        match key {
            "host" | "hostaddr" => self.hosts = value.split(',').map(str::to_owned).collect(),
            "port" => self.ports = value.split(',').map(str::to_owned).collect(),
            "user" => self.info.user = filled(),
            "password" => self.info.password = filled(),
            "dbname" => self.info.database = filled(),
            "sslmode" => self.info.sslmode = Some(value.parse()?),
            "application_name" | "fallback_application_name" => self.info.application_name = filled(),
            "options" => self.info.options = filled(),
            "sslrootcert" if value == "system" => {}
            "sslrootcert" => {
                return Err(Error::config(
                    "`url`: `sslrootcert` names a file, which must stand where it can be granted: set the property \
                     `sslrootcert` (or `ca_pem`) beside `url`",
                ));
            }
            "channel_binding" | "gssencmode" if value == "require" => {
                return Err(Error::unsupported(format!(
                    "`url`: {key}=require is not supported; leave `{key}` out"
                )));
            }
            "sslcert" | "sslkey" | "service" | "passfile" | "krbsrvname" | "require_auth" => {
                return Err(Error::unsupported(format!(
                    "`url`: `{key}` is not supported; leave it out"
                )));
            }
            "target_session_attrs" if value != "any" => {
                return Err(Error::unsupported(
                    "`url`: target_session_attrs is not supported; name the host that is meant",
                ));
            }
            // They tune libpq's own sockets or ask for what is done anyway.
            "channel_binding"
            | "gssencmode"
            | "target_session_attrs"
            | "connect_timeout"
            | "keepalives"
            | "keepalives_idle"
            | "keepalives_interval"
            | "keepalives_count"
            | "tcp_user_timeout"
            | "client_encoding"
            | "sslcompression"
            | "sslsni"
            | "sslnegotiation"
            | "ssl_min_protocol_version"
            | "load_balance_hosts" => {}
            _ => {
                return Err(Error::config(format!(
                    "`url`: the setting `{key}` is unknown; known are host, port, user, password, dbname, sslmode, \
                     application_name and options"
                )));
            }
        }
        Ok(())
    }

    fn into_info(mut self) -> Result<ConnInfo> {
        if self.hosts.iter().all(String::is_empty) {
            return Err(Error::config(
                "`url` names no host: write postgres://user@host/database or host=…",
            ));
        }
        if self.ports.len() > 1 && self.ports.len() != self.hosts.len() {
            return Err(Error::config(format!(
                "`url` names {} hosts and {} ports; give one port for all or one for each",
                self.hosts.len(),
                self.ports.len()
            )));
        }
        for (at, host) in self.hosts.iter().enumerate() {
            if host.starts_with('/') || host.starts_with('@') {
                return Err(Error::unsupported(
                    "`url` names a Unix socket, which a connector cannot reach; use the server's TCP address",
                ));
            }
            if host.is_empty() {
                return Err(Error::config("`url` has an empty name in its list of hosts"));
            }
            let port = self
                .ports
                .get(at)
                .or_else(|| self.ports.first())
                .map(String::as_str);
            self.info
                .hosts
                .push((host.clone(), parse_port(port.unwrap_or_default())?));
        }
        Ok(self.info)
    }
}

fn parse_port(text: &str) -> Result<u16> {
    if text.is_empty() {
        return Ok(DEFAULT_PORT);
    }
    match text.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(Error::config("`url`: a port is a number from 1 to 65535")),
    }
}

/// What follows `postgres://`.
fn url_settings(rest: &str) -> Result<Settings> {
    let mut settings = Settings::default();
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(authority_end);
    // The last `@`: a password with an unescaped one is read as it was meant.
    let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = user_info.split_once(':').unwrap_or((user_info, ""));
    settings.set("user", percent_decode(user)?)?;
    settings.set("password", percent_decode(password)?)?;
    for host in hosts.split(',') {
        let (name, port) = split_port(host)?;
        settings.hosts.push(percent_decode(name)?);
        settings.ports.push(port.to_owned());
    }

    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    settings.set("dbname", percent_decode(path.trim_start_matches('/'))?)?;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode(value)?;
        match (key, value.as_str()) {
            // JDBC's spelling, which libpq takes as well.
            ("ssl", "true") => settings.set("sslmode", "require".to_owned())?,
            _ => settings.set(key, value)?,
        }
    }
    Ok(settings)
}

/// `host`, `host:port`, `[::1]` or `[::1]:port`; the port is empty where none is named.
fn split_port(host: &str) -> Result<(&str, &str)> {
    if let Some(rest) = host.strip_prefix('[') {
        let (address, port) = rest
            .split_once(']')
            .ok_or_else(|| Error::config("`url`: an IPv6 address lacks its closing `]`"))?;
        return Ok((address, port.strip_prefix(':').unwrap_or(port)));
    }
    Ok(host.split_once(':').unwrap_or((host, "")))
}

fn percent_decode(text: &str) -> Result<String> {
    let wrong = || {
        Error::config(
            "`url`: a `%` must be followed by two hexadecimal digits of UTF-8 (a `%` itself is `%25`)",
        )
    };
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || bytes.next().and_then(|b| char::from(b).to_digit(16));
        let (high, low) = (digit().ok_or_else(wrong)?, digit().ok_or_else(wrong)?);
        decoded.push((high << 4 | low) as u8);
    }
    String::from_utf8(decoded).map_err(|_| wrong())
}

/// libpq's `key = value` list: values with spaces stand in single quotes; a backslash escapes the next character.
fn keyword_settings(text: &str) -> Result<Settings> {
    let mut settings = Settings::default();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (key, after) = rest
            .split_once('=')
            .ok_or_else(|| Error::config("`url`: a setting lacks its `=`; write key=value"))?;
        let (value, after) = keyword_value(after.trim_start())?;
        settings.set(key.trim(), value)?;
        rest = after.trim_start();
    }
    Ok(settings)
}

/// One value and what follows it.
fn keyword_value(text: &str) -> Result<(String, &str)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        return Err(Error::config("`url`: a quoted value lacks its closing quote"));
    }
    Ok((value, ""))
}

#[cfg(test)]
mod tests {
    use setu_sdk::ErrorKind;

    use super::*;

    fn info(hosts: &[(&str, u16)], user: &str, password: &str, database: &str) -> ConnInfo {
        let filled = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ConnInfo {
            hosts: hosts
                .iter()
                .map(|(host, port)| ((*host).to_owned(), *port))
                .collect(),
            user: filled(user),
            password: filled(password),
            database: filled(database),
            ..ConnInfo::default()
        }
    }

    #[test]
    fn both_forms_of_a_connection_string_are_read() {
        let cases = [
            ("postgres://h", info(&[("h", 5432)], "", "", "")),
            ("postgresql://u@h:6000/db", info(&[("h", 6000)], "u", "", "db")),
            (
                "postgres://us%40er:p%3a%2F%25w@h/d%20b",
                info(&[("h", 5432)], "us@er", "p:/%w", "d b"),
            ),
            (
                "postgres://u:p@ss:w@h/db",
                info(&[("h", 5432)], "u", "p@ss:w", "db"),
            ),
            (
                "postgres://u@a,b:6001,[::1]:6002/db",
                info(&[("a", 5432), ("b", 6001), ("::1", 6002)], "u", "", "db"),
            ),
            (
                "postgres://u@[fe80::1]/db",
                info(&[("fe80::1", 5432)], "u", "", "db"),
            ),
            (
                "postgres:///?host=h&port=6000&user=u&dbname=d",
                info(&[("h", 6000)], "u", "", "d"),
            ),
            ("host=h user=u dbname=d", info(&[("h", 5432)], "u", "", "d")),
            (
                r"host = 'h' port=6000 password='it\'s a \\' user=a\ b",
                info(&[("h", 6000)], "a b", r"it's a \", ""),
            ),
            (
                "host=a,b port=1,2 user=''",
                info(&[("a", 1), ("b", 2)], "", "", ""),
            ),
            ("host=a,b port=7", info(&[("a", 7), ("b", 7)], "", "", "")),
            (
                "host=h connect_timeout=10 target_session_attrs=any",
                info(&[("h", 5432)], "", "", ""),
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(ConnInfo::parse(text), Ok(expected), "{text}");
        }
        let info =
            ConnInfo::parse("postgres://h/d?sslmode=verify-full&application_name=x%20y&options=-c%20a%3Db");
        let info = info.unwrap();
        assert_eq!(info.sslmode, Some(SslMode::VerifyFull));
        assert_eq!(info.application_name.as_deref(), Some("x y"));
        assert_eq!(info.options.as_deref(), Some("-c a=b"));
        assert_eq!(
            ConnInfo::parse("postgres://h?ssl=true").unwrap().sslmode,
            Some(SslMode::Require)
        );
    }

    #[test]
    fn a_wrong_connection_string_is_refused_without_repeating_the_password() {
        let cases = [
            ("", "neither"),
            ("sesame", "neither"),
            ("mysql://u:sesame@h/db", "mysql://"),
            ("postgres://u:sesame@/db", "no host"),
            ("postgres://u:sesame@h:0/db", "port"),
            ("postgres://u:sesame@h:99999/db", "port"),
            ("postgres://u:sesame%4@h/db", "%25"),
            ("postgres://u:sesame%ff@h/db", "UTF-8"),
            ("postgres://u:sesame@h/db?sslmode=on", "verify-full"),
            ("postgres://u:sesame@h/db?colour=red", "`colour`"),
            ("postgres://u:sesame@h/db?sslrootcert=/ca.pem", "property"),
            ("postgres://u:sesame@[::1/db", "]"),
            ("host=h password='sesame", "closing quote"),
            ("host=h password=sesame user", "="),
            ("host=/var/run password=sesame", "TCP"),
            ("password=sesame user=u", "no host"),
            ("host=a,,b password=sesame", "empty"),
            ("host=a,b,c port=1,2 password=sesame", "3 hosts and 2 ports"),
            ("host=h sslcert=x password=sesame", "sslcert"),
        ];
        for (text, part) in cases {
            let error = ConnInfo::parse(text).unwrap_err();
            assert!(
                matches!(error.kind(), ErrorKind::Config | ErrorKind::Unsupported),
                "{text}"
            );
            assert!(error.message().contains(part), "{text}: {error}");
            assert!(
                text == "sesame" || !error.message().contains("sesame"),
                "{text}: {error}"
            );
        }
        let info = ConnInfo::parse("postgres://u:sesame@h/db").unwrap();
        assert!(!format!("{info:?}").contains("sesame"));
    }
}
