//! From a configuration to a session: hosts in turn, TLS as `sslmode` says, log-in; and the transactions in which every
//! text that the server sends is canonical.

use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use setu_sdk::net::{Stream, TlsOptions, Verification};
use setu_sdk::{Error, ErrorKind, Result};

use crate::auth::{self, Credentials};
use crate::client::Client;
use crate::conninfo::{ConnInfo, SslMode};
use crate::failure;
use crate::hash::hash;
use crate::wire::Wire;

/// Pins what changes how values read as text, and lifts limits that are meant for people at a prompt. Only for the
/// transaction: behind a pooler the session is not ours, and the next user of it must find it as it was.
const PINNED: &str = "SET LOCAL client_encoding = 'UTF8'; SET LOCAL DateStyle = 'ISO, MDY'; \
    SET LOCAL IntervalStyle = 'postgres'; SET LOCAL TimeZone = 'UTC'; SET LOCAL extra_float_digits = 3; \
    SET LOCAL bytea_output = 'hex'; SET LOCAL xmloption = 'content'; SET LOCAL statement_timeout = 0; \
    SET LOCAL idle_in_transaction_session_timeout = 0";

/// Begins a transaction that reads from one snapshot. With `search_path` at the system's own schema every other name is
/// spelled with its schema, so that a type's name means the same to whoever reads it.
pub(crate) fn begin_reading(client: &mut Client) -> Result<()> {
    client.execute(&format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; {PINNED}; SET LOCAL search_path = pg_catalog"
    ))
}

/// Begins a transaction that writes. Triggers of the target run with the user's own search path, as in any other
/// session; this crate spells every name with its schema.
pub(crate) fn begin_writing(client: &mut Client) -> Result<()> {
    client.execute(&format!("BEGIN; {PINNED}; SET LOCAL lock_timeout = 0"))
}

/// Waits for others that make the same thing, until the end of the transaction.
pub(crate) fn take_turns(client: &mut Client, what: &str) -> Result<()> {
    let lock = (hash(what) as i64).to_string();
    client.query("SELECT pg_advisory_xact_lock($1::int8)", &[Some(&lock)])?;
    Ok(())
}

/// Everything that a connection needs to know.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) info: ConnInfo,
    pub(crate) sslmode: SslMode,
    /// Trusted roots in PEM; none: the host's.
    pub(crate) ca_pem: Option<String>,
}

impl Endpoint {
    /// A ready session with the first host that lets us in.
    ///
    /// # Errors
    /// That of the last host, naming it; with several hosts, those of all.
    pub(crate) fn connect(&self) -> Result<Client> {
        let mut errors: Vec<Error> = Vec::new();
        for (host, port) in &self.info.hosts {
            match self.connect_to(host, *port) {
                Ok(client) => return Ok(client),
                Err(error) => errors.push(at_host(error, host, *port)),
            }
        }
        let last = errors.pop().ok_or_else(|| Error::config("`url` names no host"))?;
        let others: Vec<&str> = errors.iter().map(Error::message).collect();
        Err(if others.is_empty() {
            last
        } else {
            last.context(others.join("; "))
        })
    }

    fn connect_to(&self, host: &str, port: u16) -> Result<Client> {
        let mut wire = Wire::new(Stream::connect(host, port).map_err(not_reached)?);
        if self.sslmode != SslMode::Disable {
            if wire.request_tls().map_err(not_reached)? {
                wire.start_tls(TlsOptions {
                    server_name: host.to_owned(),
                    verification: verification(self.sslmode, self.ca_pem.is_some()),
                    ca_pem: self.ca_pem.clone(),
                })
                .map_err(tls_failed)?;
            } else if !matches!(self.sslmode, SslMode::Allow | SslMode::Prefer) {
                return Err(Error::config(
                    "the server does not offer TLS, which `sslmode` demands; turn it on there, or set `sslmode: disable`",
                ));
            }
        }
        self.log_in(wire).map_err(not_reached)
    }

    fn log_in(&self, mut wire: Wire) -> Result<Client> {
        let user = self.user()?;
        let mut parameters = vec![
            ("user", user),
            ("database", self.info.database.as_deref().unwrap_or(user)),
            (
                "application_name",
                self.info.application_name.as_deref().unwrap_or("setu"),
            ),
            ("client_encoding", "UTF8"),
        ];
        parameters.extend(self.info.options.as_deref().map(|options| ("options", options)));
        frontend::startup_message(parameters, wire.out())
            .map_err(|_| Error::config("`url` holds a NUL character, which no server accepts"))?;
        wire.send()?;
        let password = self.info.password.as_deref();
        auth::log_in(&mut wire, &Credentials { user, password })?;
        loop {
            match wire.message()? {
                Message::ReadyForQuery(_) => break,
                Message::ErrorResponse(body) => return Err(failure::from_server(body.fields())),
                _ => {}
            }
        }
        if let Some(version) = wire.server_version() {
            check_version(version)?;
        }
        Ok(Client::new(wire))
    }

    fn user(&self) -> Result<&str> {
        self.info.user.as_deref().ok_or_else(|| {
            Error::config("`url` names no user: write postgres://user@host/database or user=…")
        })
    }
}

/// Names the server that an error is about.
fn at_host(error: Error, host: &str, port: u16) -> Error {
    let place = if host.contains(':') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    match error.kind() {
        _ if error.message().contains(&place) => error,
        ErrorKind::Unreachable if error.code().is_none() => {
            error.context(format!("Postgres at {place} cannot be reached"))
        }
        _ => error.context(format!("Postgres at {place}")),
    }
}

/// What to do about a server that does not answer, or not as a Postgres server does. What a server said of itself has
/// its own way out, and so has what the sandbox refused.
fn not_reached(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unreachable | ErrorKind::Internal if error.code().is_none() => end_with(
            error,
            "check the host and the port in `url`, and that a Postgres server runs there and can be reached from here",
        ),
        _ => error,
    }
}

fn tls_failed(error: Error) -> Error {
    let error = match error.kind() {
        ErrorKind::Denied => return error,
        _ => error.context("TLS failed"),
    };
    end_with(
        error,
        "set `sslrootcert` or `ca_pem` to the CA of the server, or choose a less strict `sslmode`",
    )
}

/// The error with the way out behind its message.
fn end_with(error: Error, way_out: &str) -> Error {
    let ended = Error::new(error.kind(), format!("{}; {way_out}", error.message()));
    let ended = match error.code() {
        Some(code) => ended.with_code(code),
        None => ended,
    };
    if error.is_retryable() {
        ended.retryable()
    } else {
        ended
    }
}

/// The oldest server that has all that this crate asks of a catalogue.
const OLDEST_SERVER: u32 = 12;

/// Refuses a server that is too old for this crate. `version`: as servers spell it, `15.3 (Debian …)` or `17beta1`.
fn check_version(version: &str) -> Result<()> {
    let end = version
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(version.len());
    match version[..end].parse::<u32>() {
        Ok(major) if major < OLDEST_SERVER => Err(Error::unsupported(format!(
            "the server is Postgres {version}, and this connector needs version {OLDEST_SERVER} or newer; upgrade the \
             server, or name another one in `url`"
        ))),
        _ => Ok(()),
    }
}

/// What a certificate must prove. As in libpq, `require` checks it once a CA is given.
fn verification(mode: SslMode, has_ca: bool) -> Verification {
    match mode {
        SslMode::VerifyFull => Verification::Full,
        SslMode::VerifyCa => Verification::CertificateOnly,
        SslMode::Require if has_ca => Verification::CertificateOnly,
        SslMode::Require | SslMode::Prefer | SslMode::Allow | SslMode::Disable => Verification::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sslmode_says_what_a_certificate_must_prove() {
        use SslMode::{Prefer, Require, VerifyCa, VerifyFull};
        let cases = [
            (Prefer, true, Verification::None),
            (Require, false, Verification::None),
            (Require, true, Verification::CertificateOnly),
            (VerifyCa, false, Verification::CertificateOnly),
            (VerifyFull, false, Verification::Full),
        ];
        for (mode, has_ca, expected) in cases {
            assert_eq!(verification(mode, has_ca), expected, "{mode:?} {has_ca}");
        }
    }

    #[test]
    fn a_failure_of_tls_ends_with_the_way_out() {
        let error = tls_failed(Error::unreachable("no certificate"));
        assert!(
            error
                .message()
                .starts_with("TLS failed: no certificate; set `sslrootcert`"),
            "{error}"
        );
    }

    #[test]
    fn only_a_server_that_is_too_old_is_refused() {
        for version in ["11.22 (Debian 11.22-1)", "9.6.24", "11beta1", "8.0.2"] {
            let error = check_version(version).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains(version), "{error}");
        }
        for version in [
            "12.0",
            "15.3 (Debian 15.3-0)",
            "17beta1",
            "18devel",
            "",
            "unknown",
        ] {
            assert_eq!(check_version(version), Ok(()), "{version}");
        }
    }

    #[test]
    fn what_a_server_says_of_itself_has_its_own_way_out() {
        let error = not_reached(Error::unreachable("refused").retryable());
        assert!(error.message().ends_with("can be reached from here"), "{error}");
        assert!(error.is_retryable());
        for error in [
            Error::unreachable("too many clients").with_code("53300"),
            Error::denied("no grant"),
            Error::auth("no"),
        ] {
            assert_eq!(not_reached(error.clone()), error);
        }
    }

    #[test]
    fn an_error_names_its_server_once() {
        let error = at_host(Error::unreachable("refused"), "db", 5432);
        assert_eq!(error.message(), "Postgres at db:5432 cannot be reached: refused");
        assert_eq!(
            at_host(Error::denied("no grant for db:5432"), "db", 5432).message(),
            "no grant for db:5432"
        );
        assert_eq!(
            at_host(Error::auth("no"), "::1", 1).message(),
            "Postgres at [::1]:1: no"
        );
    }
}
