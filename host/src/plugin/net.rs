//! The contract's `net`: connections that the host makes, under the grants, with TLS outside the sandbox.
//!
//! Which host may be reached is `network`'s decision, what a certificate must prove is `tls`'s. Every wait for the
//! server is told to `progress`, so that a slow answer is not mistaken for a connector that hangs, and so is what came of
//! it.
//!
//! Where a policy requires TLS, nothing passes before it but a request for TLS that is known here byte for byte, and
//! its answer: a guest's own protocol is not understood, so nothing else could be told from data.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use wasmtime::component::Resource;

use super::bindings::setu::connector::net::{self, TlsOptions, Verification};
use super::bindings::setu::connector::types::{self, Error, ErrorKind};
use super::lookup::look_up;
use super::network::Network;
use super::state::State;
use super::tls;
use crate::address::{Endpoint, Host};

/// How long one address may take to accept a connection, and a TLS handshake to finish.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// What one read asks the socket for at most: more is never there at once, and the buffer is allocated each time.
const MAX_READ: usize = 256 << 10;
/// Postgres's `SSLRequest`, which the server answers with one byte.
const POSTGRES_TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// A connection that a guest holds. Public because the generated bindings name it; it is not reachable from outside.
#[expect(unreachable_pub, reason = "re-exported by the generated bindings")]
pub struct NetConnection {
    endpoint: Endpoint,
    transport: Transport,
    clear: Clear,
    network: Network,
}

/// What may pass in clear text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clear {
    /// No policy asks for TLS.
    Everything,
    /// A known request for TLS.
    Request,
    /// The one byte that answers it.
    Answer,
    Nothing,
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
                progress.mark();
                let connection = NetConnection {
                    endpoint,
                    transport: Transport::Plain(stream),
                    clear: match self.network.demands_tls() {
                        true => Clear::Request,
                        false => Clear::Everything,
                    },
                    network: self.network.clone(),
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
        let started = progress.waiting(connection.start_tls(options)).await;
        if started.is_ok() {
            progress.mark();
        }
        Ok(started)
    }

    async fn read(
        &mut self,
        connection: Resource<NetConnection>,
        max: u32,
    ) -> wasmtime::Result<Result<Vec<u8>, Error>> {
        let progress = self.progress.clone();
        let connection = self.table.get_mut(&connection)?;
        let read = progress.waiting(connection.read(max)).await;
        if read.as_ref().is_ok_and(|bytes| !bytes.is_empty()) {
            progress.mark();
        }
        Ok(read)
    }

    async fn write(
        &mut self,
        connection: Resource<NetConnection>,
        bytes: Vec<u8>,
    ) -> wasmtime::Result<Result<(), Error>> {
        let progress = self.progress.clone();
        let connection = self.table.get_mut(&connection)?;
        let written = progress.waiting(connection.write(&bytes)).await;
        if written.is_ok() && !bytes.is_empty() {
            progress.mark();
        }
        Ok(written)
    }

    async fn drop(&mut self, connection: Resource<NetConnection>) -> wasmtime::Result<()> {
        self.table.delete(connection)?;
        Ok(())
    }
}

impl NetConnection {
    async fn start_tls(&mut self, options: TlsOptions) -> Result<(), Error> {
        let endpoint = self.endpoint.clone();
        self.demand_proof(&options)?;
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

    /// Where a policy requires TLS: the certificate must be verified, for the host that was connected to or for
    /// another one that is granted on this port (a name whose address was connected to).
    fn demand_proof(&self, options: &TlsOptions) -> Result<(), Error> {
        let name = Host::parse(&options.server_name);
        let named = name
            .is_some_and(|name| name == self.endpoint.host || self.network.grants(&name, self.endpoint.port));
        let proven = options.verification == Verification::Full && named;
        let what = format!(
            "TLS with {} that does not prove the server to be {}",
            self.endpoint, self.endpoint.host
        );
        let demanded = self.network.demand_tls(proven, &what);
        demanded.map_err(|refusal| error(ErrorKind::Denied, refusal))
    }

    /// Whether bytes may pass in clear text, and in which state that leaves the connection.
    fn demand_clear(&mut self, passes: impl FnOnce(Clear) -> Option<Clear>) -> Result<(), Error> {
        if !matches!(self.transport, Transport::Plain(_)) || self.clear == Clear::Everything {
            return Ok(());
        }
        let passed = passes(self.clear);
        let what = format!("clear text on the connection to {}", self.endpoint);
        let demanded = self.network.demand_tls(passed.is_some(), &what);
        demanded.map_err(|refusal| error(ErrorKind::Denied, refusal))?;
        self.clear = passed.unwrap_or(Clear::Everything);
        Ok(())
    }

    async fn read(&mut self, max: u32) -> Result<Vec<u8>, Error> {
        if max == 0 {
            return Err(error(ErrorKind::Internal, "read of at most 0 bytes".to_owned()));
        }
        self.demand_clear(|clear| (clear == Clear::Answer).then_some(Clear::Nothing))?;
        let max = match (&self.transport, self.clear) {
            (Transport::Plain(_), Clear::Nothing) => 1,
            _ => max,
        };
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
        self.demand_clear(|clear| {
            (clear == Clear::Request && bytes == POSTGRES_TLS_REQUEST).then_some(Clear::Answer)
        })?;
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
    let counted = network.count_name(name);
    counted.map_err(|refusal| error(ErrorKind::Denied, refusal))?;
    let found = look_up(name).await.map_err(|cause| {
        error(
            ErrorKind::Unreachable,
            format!("cannot reach {endpoint}: the name `{name}` does not resolve: {cause}"),
        )
    })?;
    let (admitted, special): (Vec<_>, Vec<_>) = found
        .into_iter()
        .partition(|ip| network.admits(*ip, endpoint.port));
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::denials::Denials;
    use super::super::network::{MAX_NAMES, Subject};
    use super::super::secrets::Secrets;
    use super::super::tls::tests::server;
    use super::*;
    use crate::address::NetworkGrant;
    use crate::connector::Role;
    use crate::policy::Tls;
    use tokio::net::TcpListener;

    fn network(tls: Tls) -> Network {
        let subject = Subject {
            role: Role::Source,
            connector: "x 1.0.0".into(),
            run: String::new(),
            stream: String::new(),
            denials: Denials::default(),
            secrets: Secrets::default(),
        };
        let grants: BTreeSet<_> = NetworkGrant::parse_all("127.0.0.1:1,db.example:1")
            .unwrap()
            .into_iter()
            .collect();
        Network::new(subject, grants, tls)
    }

    fn required() -> Tls {
        Tls::Required {
            policy: "p.yaml".into(),
        }
    }

    /// Both ends of a connection to the granted address.
    async fn connection(tls: Tls) -> (NetConnection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (peer, _) = listener.accept().await.unwrap();
        let connection = NetConnection {
            endpoint: Endpoint {
                host: Host::parse("127.0.0.1").unwrap(),
                port: 1,
            },
            transport: Transport::Plain(stream),
            clear: match tls {
                Tls::Any => Clear::Everything,
                _ => Clear::Request,
            },
            network: network(tls),
        };
        (connection, peer)
    }

    fn run<T>(test: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build().unwrap().block_on(test)
    }

    #[test]
    fn a_name_that_does_not_resolve_counts_like_any_other() {
        run(async {
            let network = network(Tls::Any);
            let mut kinds = Vec::new();
            for n in 0..MAX_NAMES - 1 {
                assert_eq!(network.count_name(&format!("n{n}.example")), Ok(()));
            }
            for name in ["a.invalid", "b.invalid"] {
                let endpoint = Endpoint {
                    host: Host::parse(name).unwrap(),
                    port: 1,
                };
                kinds.push(addresses(&network, &endpoint).await.unwrap_err().kind);
            }
            assert_eq!(kinds, [ErrorKind::Unreachable, ErrorKind::Denied]);
        });
    }

    #[track_caller]
    fn assert_denied<T>(result: Result<T, Error>) {
        let error = result.err().expect("it is denied");
        assert_eq!(error.kind, ErrorKind::Denied, "{}", error.message);
        assert!(error.message.contains("p.yaml requires TLS"), "{}", error.message);
    }

    #[test]
    fn without_tls_nothing_passes_but_the_request_for_it_and_one_byte() {
        run(async {
            let (mut connection, mut peer) = connection(required()).await;
            assert_denied(connection.write(b"data").await);
            assert_denied(connection.read(1).await);
            let mut longer = POSTGRES_TLS_REQUEST.to_vec();
            longer.push(b'x');
            assert_denied(connection.write(&longer).await);
            connection.write(&POSTGRES_TLS_REQUEST).await.unwrap();
            assert_denied(connection.write(&POSTGRES_TLS_REQUEST).await);
            peer.write_all(b"Nmore").await.unwrap();
            assert_eq!(connection.read(16).await.unwrap(), b"N");
            assert_denied(connection.read(16).await);
            assert_denied(connection.write(b"data").await);
            drop(connection);
            let mut heard = Vec::new();
            // Unread bytes reset the connection, after what was sent.
            let _ = peer.read_to_end(&mut heard).await;
            assert_eq!(heard, POSTGRES_TLS_REQUEST);
        });
    }

    #[test]
    fn where_no_policy_asks_clear_text_passes() {
        let audited = Tls::Audited {
            policy: "p.yaml".into(),
        };
        for tls in [Tls::Any, audited] {
            run(async {
                let (mut connection, mut peer) = connection(tls).await;
                connection.write(b"ping").await.unwrap();
                peer.write_all(b"pong").await.unwrap();
                assert_eq!(connection.read(16).await.unwrap(), b"pong");
            });
        }
    }

    #[test]
    fn the_certificate_must_prove_the_host_that_was_granted() {
        let (authority, config) = server();
        for (name, verification, accepted) in [
            ("db.example", Verification::Full, true),
            ("DB.Example", Verification::Full, true),
            ("db.example", Verification::CertificateOnly, false),
            ("db.example", Verification::None, false),
            // A name that nobody granted, for which a certificate may well be had.
            ("evil.example", Verification::Full, false),
        ] {
            run(async {
                let (mut connection, peer) = connection(required()).await;
                let acceptor = tokio_rustls::TlsAcceptor::from(config.clone());
                let serve = tokio::spawn(async move {
                    let mut stream = acceptor.accept(peer).await?;
                    let mut ping = [0; 4];
                    stream.read_exact(&mut ping).await?;
                    Ok::<_, std::io::Error>(ping)
                });
                let options = TlsOptions {
                    server_name: name.to_owned(),
                    verification,
                    ca_pem: Some(authority.clone()),
                };
                let started = connection.start_tls(options).await;
                if accepted {
                    started.map_err(|error| error.message).unwrap();
                    connection.write(b"ping").await.unwrap();
                    assert_eq!(&serve.await.unwrap().unwrap(), b"ping");
                } else {
                    assert_denied(started);
                }
            });
        }
    }
}
