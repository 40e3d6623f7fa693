//! The log-in dialogue: cleartext, MD5 and SCRAM-SHA-256, whichever the server asks for.

use fallible_iterator::FallibleIterator;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::Message;
use postgres_protocol::message::frontend;
use setu_sdk::{Error, Result};

use crate::failure;
use crate::wire::Wire;

/// Who logs in.
pub(crate) struct Credentials<'a> {
    pub(crate) user: &'a str,
    pub(crate) password: Option<&'a str>,
}

/// Answers the server until it lets us in.
///
/// # Errors
/// `auth` where the credentials are refused or missing, `unsupported` for another method.
pub(crate) fn log_in(wire: &mut Wire, credentials: &Credentials<'_>) -> Result<()> {
    let password = || {
        credentials.password.ok_or_else(|| {
            Error::auth(format!(
                "the server asks for the password of `{}`, and none is configured; set `password`",
                credentials.user
            ))
        })
    };
    let mut scram: Option<ScramSha256> = None;
    loop {
        let message = wire.message()?;
        match message {
            Message::AuthenticationOk => return Ok(()),
            Message::AuthenticationCleartextPassword => send_password(wire, password()?.as_bytes())?,
            Message::AuthenticationMd5Password(body) => {
                let hash = md5_hash(credentials.user.as_bytes(), password()?.as_bytes(), body.salt());
                send_password(wire, hash.as_bytes())?;
            }
            Message::AuthenticationSasl(body) => {
                let mut offered = body.mechanisms();
                if !offered
                    .any(|name| Ok(name == SCRAM_SHA_256))
                    .map_err(failure::protocol)?
                {
                    return Err(unsupported("a SASL method other than SCRAM-SHA-256"));
                }
                let start = ScramSha256::new(password()?.as_bytes(), ChannelBinding::unsupported());
                frontend::sasl_initial_response(SCRAM_SHA_256, start.message(), wire.out())
                    .map_err(failure::protocol)?;
                wire.send()?;
                scram = Some(start);
            }
            Message::AuthenticationSaslContinue(body) => {
                let exchange = scram
                    .as_mut()
                    .ok_or_else(|| failure::protocol("SASL goes on before it began"))?;
                exchange.update(body.data()).map_err(scram_failed)?;
                frontend::sasl_response(exchange.message(), wire.out()).map_err(failure::protocol)?;
                wire.send()?;
            }
            Message::AuthenticationSaslFinal(body) => {
                let exchange = scram
                    .as_mut()
                    .ok_or_else(|| failure::protocol("SASL ends before it began"))?;
                exchange.finish(body.data()).map_err(scram_failed)?;
            }
            Message::AuthenticationGss | Message::AuthenticationSspi | Message::AuthenticationKerberosV5 => {
                return Err(unsupported("Kerberos"));
            }
            Message::ErrorResponse(body) => return Err(failure::from_server(body.fields())),
            _ => return Err(failure::protocol("an unexpected message during log-in")),
        }
    }
}

fn send_password(wire: &mut Wire, password: &[u8]) -> Result<()> {
    frontend::password_message(password, wire.out())
        .map_err(|_| Error::config("`password` holds a NUL character, which no server accepts"))?;
    wire.send()
}

/// The server could not prove that it knows the password, or sent nonsense.
fn scram_failed(error: std::io::Error) -> Error {
    Error::auth(format!("the server failed its part of SCRAM-SHA-256: {error}"))
}

fn unsupported(method: &str) -> Error {
    Error::unsupported(format!(
        "the server asks for {method}; in its pg_hba.conf allow scram-sha-256, md5 or password for this user"
    ))
}
