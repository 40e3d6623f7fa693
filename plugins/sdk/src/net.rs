//! TCP connections that the host makes, with TLS done outside the sandbox.
//!
//! [`Stream`] reads through a buffer of its own, so that small reads do not cross the sandbox's boundary; writes cross
//! it one by one, so gather what belongs together. In a native build (unit tests) a stream is a plain TCP connection
//! without TLS.

use std::io::{self, BufRead, Read, Write};

pub use crate::bindings::base::setu::connector::net::{TlsOptions, Verification};
use crate::error::Result;

#[cfg(target_arch = "wasm32")]
use component::Connection;
#[cfg(not(target_arch = "wasm32"))]
use native::Connection;

/// How much one read asks the host for.
const READ_BYTES: u32 = 256 << 10;

/// A connection. Every error ends it.
#[derive(Debug)]
pub struct Stream {
    connection: Connection,
    buffer: Vec<u8>,
    at: usize,
}

impl Stream {
    /// Connects to a host by name or address.
    ///
    /// # Errors
    /// `denied` where no grant covers `host` and `port`; `unreachable`.
    pub fn connect(host: &str, port: u16) -> Result<Stream> {
        Ok(Stream {
            connection: Connection::connect(host, port)?,
            buffer: Vec::new(),
            at: 0,
        })
    }

    /// Goes on in TLS. Must be called at most once, before any byte that belongs to the handshake was read.
    pub fn start_tls(&mut self, options: TlsOptions) -> Result<()> {
        self.connection.start_tls(options)
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let available = self.fill_buf()?;
        let n = available.len().min(into.len());
        into[..n].copy_from_slice(&available[..n]);
        self.consume(n);
        Ok(n)
    }
}

impl BufRead for Stream {
    /// At least one byte, or none when the peer has closed.
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.at == self.buffer.len() {
            self.at = 0;
            self.buffer.clear();
            self.connection.read(READ_BYTES, &mut self.buffer)?;
        }
        Ok(&self.buffer[self.at..])
    }

    fn consume(&mut self, n: usize) {
        self.at = (self.at + n).min(self.buffer.len());
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.connection.write(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(target_arch = "wasm32")]
mod component {
    use super::TlsOptions;
    use crate::bindings::base::setu::connector::net;
    use crate::error::Result;

    #[derive(Debug)]
    pub(super) struct Connection(net::Connection);

    impl Connection {
        pub(super) fn connect(host: &str, port: u16) -> Result<Self> {
            Ok(Connection(net::Connection::connect(host, port)?))
        }

        pub(super) fn start_tls(&mut self, options: TlsOptions) -> Result<()> {
            Ok(self.0.start_tls(&options)?)
        }

        pub(super) fn read(&mut self, max: u32, into: &mut Vec<u8>) -> Result<()> {
            *into = self.0.read(max)?;
            Ok(())
        }

        pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
            Ok(self.0.write(bytes)?)
        }
    }
}

#[cfg(not(target_arch = "wasm32"))]
mod native {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::TlsOptions;
    use crate::error::{Error, Result};

    #[derive(Debug)]
    pub(super) struct Connection(TcpStream);

    impl Connection {
        pub(super) fn connect(host: &str, port: u16) -> Result<Self> {
            let connect = || {
                let stream = TcpStream::connect((host, port))?;
                stream.set_nodelay(true)?;
                Ok(Connection(stream))
            };
            connect().map_err(|error: std::io::Error| Error::from(error).context(format!("{host}:{port}")))
        }

        pub(super) fn start_tls(&mut self, _: TlsOptions) -> Result<()> {
            Err(Error::unsupported(
                "TLS is done by the host; a native build has none",
            ))
        }

        pub(super) fn read(&mut self, max: u32, into: &mut Vec<u8>) -> Result<()> {
            into.resize(max as usize, 0);
            let read = self.0.read(into);
            into.truncate(*read.as_ref().unwrap_or(&0));
            read?;
            Ok(())
        }

        pub(super) fn write(&mut self, bytes: &[u8]) -> Result<()> {
            Ok(self.0.write_all(bytes)?)
        }
    }
}
