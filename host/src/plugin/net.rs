//! The contract's `net`: connections that the host makes, under the grants, with TLS outside the sandbox.
//!
//! Which host may be reached is `network`'s decision, what a certificate must prove is `tls`'s. Every wait for the
//! server is told to `progress`, so that a slow answer is not mistaken for a connector that hangs.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use wasmtime::component::Resource;

use super::address::{Endpoint, Host};
use super::bindings::setu::connector::net::{self, TlsOptions};
use super::bindings::setu::connector::types::{self, Error, ErrorKind};
use super::network::Network;
use super::state::State;
use super::tls;

/// How long one address may take to accept a connection, and a TLS handshake to finish.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// What one read asks the socket for at most: more is never there at once, and the buffer is allocated each time.
const MAX_READ: usize = 256 << 10;

/// A connection that a guest holds. Public because the generated bindings name it; it is not reachable from outside.
#[expect(unreachable_pub, reason = "re-exported by the generated bindings")]
pub struct NetConnection {
    endpoint: Endpoint,
    transport: Transport,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    /// An earlier operation failed.
    Broken,
}

impl types::Host for State {}

impl net::Host for State {}

impl net::HostConnection for State {
    async fn connect(
        &mut self,
        host: String,
        port: u16,
    ) -> wasmtime::Result<Result<Resource<NetConnection>, Error>> {
        let host = match self.network.check(&host, port) {
            Ok(host) => host,
            Err(refusal) => return Ok(Err(error(ErrorKind::Denied, refusal))),
        };
        let endpoint = Endpoint { host, port };
        let (progress, network) = (self.progress.clone(), self.network.clone());
        match progress.waiting(connect(&network, &endpoint)).await {
            Ok(stream) => {
                let connection = NetConnection {
                    endpoint,
                    transport: Transport::Plain(stream),
                };
                Ok(Ok(self.table.push(connection)?))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    async fn start_tls(
        &mut self,
        connection: Resource<NetConnection>,
        options: TlsOptions,
    ) -> wasmtime::Result<Result<(), Error>> {
        let progress = self.progress.clone();
        let connection = self.table.get_mut(&connection)?;
        Ok(progress.waiting(connection.start_tls(options)).await)
    }

    async fn read(
        &mut self,
        connection: Resource<NetConnection>,
        max: u32,
    ) -> wasmtime::Result<Result<Vec<u8>, Error>> {
        let progress = self.progress.clone();
        let connection = self.table.get_mut(&connection)?;
        Ok(progress.waiting(connection.read(max)).await)
    }

    async fn write(
        &mut self,
        connection: Resource<NetConnection>,
        bytes: Vec<u8>,
    ) -> wasmtime::Result<Result<(), Error>> {
        let progress = self.progress.clone();
        let connection = self.table.get_mut(&connection)?;
        Ok(progress.waiting(connection.write(&bytes)).await)
    }

    async fn drop(&mut self, connection: Resource<NetConnection>) -> wasmtime::Result<()> {
        self.table.delete(connection)?;
        Ok(())
    }
}

impl NetConnection {
    async fn start_tls(&mut self, options: TlsOptions) -> Result<(), Error> {
        let endpoint = self.endpoint.clone();
        let Transport::Plain(stream) = std::mem::replace(&mut self.transport, Transport::Broken) else {
            return Err(error(
                ErrorKind::Internal,
                format!("start-tls on the connection to {endpoint}, which is closed or speaks TLS already"),
            ));
        };
        let failed = |kind, reason: String| error(kind, format!("no TLS with {endpoint}: {reason}"));
        let (connector, name) = tls::client(&options).map_err(|reason| failed(ErrorKind::Config, reason))?;
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, connector.connect(name, stream));
        match handshake.await {
            Ok(Ok(stream)) => {
                self.transport = Transport::Tls(Box::new(stream));
                Ok(())
            }
            Ok(Err(cause)) => Err(failed(ErrorKind::Unreachable, tls::explain(&cause, &options))),
            Err(_) => Err(failed(
                ErrorKind::Unreachable,
                "no answer within 30 seconds".to_owned(),
            )),
        }
    }

    async fn read(&mut self, max: u32) -> Result<Vec<u8>, Error> {
        if max == 0 {
            return Err(error(ErrorKind::Internal, "read of at most 0 bytes".to_owned()));
        }
        // `read_buf` fills the vector's spare capacity, which nobody has to zero first.
        let max = (max as usize).min(MAX_READ);
        let mut buffer = Vec::with_capacity(max);
        let mut limited = bytes::BufMut::limit(&mut buffer, max);
        let read = match &mut self.transport {
            Transport::Plain(stream) => stream.read_buf(&mut limited).await,
            Transport::Tls(stream) => stream.read_buf(&mut limited).await,
            Transport::Broken => return Err(self.broken()),
        };
        match read {
            Ok(_) => Ok(buffer),
            // A peer that leaves without TLS's farewell has left all the same; what it said is whole or the
            // protocol above notices.
            Err(cause) if cause.kind() == std::io::ErrorKind::UnexpectedEof => Ok(Vec::new()),
            Err(cause) => Err(self.lost(&cause)),
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = match &mut self.transport {
            Transport::Plain(stream) => stream.write_all(bytes).await,
            Transport::Tls(stream) => match stream.write_all(bytes).await {
                Ok(()) => stream.flush().await,
                failed => failed,
            },
            Transport::Broken => return Err(self.broken()),
        };
        written.map_err(|cause| self.lost(&cause))
    }

    fn lost(&mut self, cause: &std::io::Error) -> Error {
        self.transport = Transport::Broken;
        Error {
            retryable: true,
            ..error(
                ErrorKind::Unreachable,
                format!("the connection to {} was lost: {cause}", self.endpoint),
            )
        }
    }

    fn broken(&self) -> Error {
        error(
            ErrorKind::Unreachable,
            format!(
                "the connection to {} is closed after an earlier error",
                self.endpoint
            ),
        )
    }
}

async fn connect(network: &Network, endpoint: &Endpoint) -> Result<TcpStream, Error> {
    let unreachable = |reason: String| Error {
        retryable: true,
        ..error(
            ErrorKind::Unreachable,
            format!("cannot reach {endpoint}: {reason}"),
        )
    };
    let mut reasons = Vec::new();
    for ip in addresses(network, endpoint).await? {
        let address = SocketAddr::new(ip, endpoint.port);
        let reason = match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // Requests are small and answers are waited for; coalescing only delays them.
                stream
                    .set_nodelay(true)
                    .map_err(|cause| unreachable(cause.to_string()))?;
                return Ok(stream);
            }
            Ok(Err(cause)) => cause.to_string(),
            Err(_) => format!("no answer within {} seconds", CONNECT_TIMEOUT.as_secs()),
        };
        match endpoint.host {
            Host::Name(_) => reasons.push(format!("{address}: {reason}")),
            Host::Ip(_) => reasons.push(reason),
        }
    }
    Err(unreachable(reasons.join("; ")))
}

/// What the host's name stands for: the address itself, or what the name resolved to, once for each instance.
async fn addresses(network: &Network, endpoint: &Endpoint) -> Result<Vec<IpAddr>, Error> {
    let name = match &endpoint.host {
        Host::Ip(ip) => return Ok(vec![*ip]),
        Host::Name(name) => name,
    };
    if let Some(known) = network.resolved(name) {
        return Ok(known);
    }
    let found = match tokio::net::lookup_host((name.as_str(), endpoint.port)).await {
        Ok(found) => found.map(|address| address.ip()).collect::<Vec<_>>(),
        Err(cause) => {
            return Err(error(
                ErrorKind::Unreachable,
                format!("cannot reach {endpoint}: the name `{name}` does not resolve: {cause}"),
            ));
        }
    };
    let (admitted, special): (Vec<_>, Vec<_>) = found.into_iter().partition(|ip| network.admits(*ip));
    if admitted.is_empty() {
        let special: Vec<_> = special.iter().map(IpAddr::to_string).collect();
        let reason = match special.is_empty() {
            true => "the name resolves to no address".to_owned(),
            false => format!(
                "the name resolves to {}, a link-local or cloud metadata address, which must be granted literally",
                special.join(", ")
            ),
        };
        return Err(error(
            ErrorKind::Denied,
            format!("cannot reach {endpoint}: {reason}"),
        ));
    }
    network.keep(name, &admitted);
    Ok(admitted)
}

fn error(kind: ErrorKind, message: String) -> Error {
    Error {
        kind,
        message,
        code: None,
        retryable: false,
    }
}
