//! Messages over a connection: one receive buffer that frames are parsed in place from, one send buffer.
//!
//! It knows where a message begins and ends, and nothing of what the messages mean for a session.

use std::io::{Read, Write};

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use setu_sdk::net::Stream;
use setu_sdk::{Error, Result};

use crate::failure;

/// Room for one read. The host hands over at most this much at a time.
const READ_BYTES: usize = 256 << 10;

/// A frame longer than this is nonsense: no Postgres message reaches 2 GiB, and all but COPY data stay far below.
const MAX_FRAME_BYTES: usize = 0x7fff_ffff;

/// A tag and a length, which counts itself.
pub(crate) const HEADER_BYTES: usize = 5;

/// A connection that speaks in messages.
pub(crate) struct Wire {
    stream: Stream,
    buffer: Vec<u8>,
    /// What was received and not yet consumed is `buffer[start..end]`.
    start: usize,
    end: usize,
    out: BytesMut,
    server_version: Option<String>,
}

impl Wire {
    pub(crate) fn new(stream: Stream) -> Self {
        Wire {
            stream,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            out: BytesMut::new(),
            server_version: None,
        }
    }

    /// Where messages for the server gather until [`send`](Self::send).
    pub(crate) fn out(&mut self) -> &mut BytesMut {
        &mut self.out
    }

    /// Sends what has gathered.
    pub(crate) fn send(&mut self) -> Result<()> {
        let sent = self.stream.write_all(&self.out);
        self.out.clear();
        sent.map_err(lost)
    }

    /// Sends these bytes as they are, after what has gathered.
    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        if !self.out.is_empty() {
            self.send()?;
        }
        self.stream.write_all(bytes).map_err(lost)
    }

    /// As the server told it at log-in.
    pub(crate) fn server_version(&self) -> Option<&str> {
        self.server_version.as_deref()
    }

    /// What was received and not yet consumed.
    pub(crate) fn received(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The same, for moving bytes about in place.
    pub(crate) fn received_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.end]
    }

    /// Forgets the first `n` received bytes.
    pub(crate) fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.end);
    }

    /// Waits for at least one byte more.
    ///
    /// # Errors
    /// `unreachable` where the server has closed the connection.
    pub(crate) fn receive(&mut self) -> Result<()> {
        if self.start > 0 && self.buffer.len() - self.end < READ_BYTES {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < READ_BYTES {
            let grown = (self.end + READ_BYTES).max(self.end * 2);
            self.buffer.resize(grown, 0);
        }
        let n = self.stream.read(&mut self.buffer[self.end..]).map_err(lost)?;
        if n == 0 {
            return Err(Error::unreachable("the server closed the connection").retryable());
        }
        self.end += n;
        Ok(())
    }

    /// The tag and whole length of the next frame, once its header is there.
    pub(crate) fn frame(&mut self) -> Result<(u8, usize)> {
        while self.received().len() < HEADER_BYTES {
            self.receive()?;
        }
        frame_header(self.received()).ok_or_else(|| failure::protocol("a message of impossible length"))
    }

    /// The next message, of any kind but the ones that may come at any time.
    pub(crate) fn message(&mut self) -> Result<Message> {
        loop {
            if let Some(message) = self.message_if_due()? {
                return Ok(message);
            }
        }
    }

    /// The next message; none where it is one of those that may come at any time and need no answer.
    pub(crate) fn message_if_due(&mut self) -> Result<Option<Message>> {
        let (_, length) = self.frame()?;
        while self.received().len() < length {
            self.receive()?;
        }
        let mut frame = BytesMut::from(&self.received()[..length]);
        self.consume(length);
        let message = Message::parse(&mut frame)
            .map_err(failure::protocol)?
            .ok_or_else(|| failure::protocol("a message that ends early"))?;
        if let Message::ParameterStatus(parameter) = &message
            && parameter.name().is_ok_and(|name| name == "server_version")
        {
            self.server_version = parameter.value().ok().map(str::to_owned);
        }
        let unasked = matches!(
            message,
            Message::NoticeResponse(_) | Message::ParameterStatus(_) | Message::NotificationResponse(_)
        );
        Ok((!unasked).then_some(message))
    }

    /// Asks for TLS before anything else is said: whether the server agreed.
    pub(crate) fn request_tls(&mut self) -> Result<bool> {
        postgres_protocol::message::frontend::ssl_request(&mut self.out);
        self.send()?;
        // More than one byte means that somebody put plain text in front of the encrypted part.
        let mut answer = [0; 2];
        match (self.stream.read(&mut answer).map_err(lost)?, answer[0]) {
            (1, b'S') => Ok(true),
            (1, b'N') => Ok(false),
            (0, _) => {
                Err(Error::unreachable("the server closed the connection when asked for TLS").retryable())
            }
            (_, b'E') => Err(Error::unreachable(
                "the server refused the connection before log-in",
            )),
            _ => Err(failure::protocol(
                "an answer to the request for TLS that is neither yes nor no",
            )),
        }
    }

    /// Goes on in TLS.
    pub(crate) fn start_tls(&mut self, options: setu_sdk::net::TlsOptions) -> Result<()> {
        self.stream.start_tls(options)
    }
}

/// The tag and whole length of the frame that begins here; none for a length that cannot be.
pub(crate) fn frame_header(bytes: &[u8]) -> Option<(u8, usize)> {
    let (&[tag, a, b, c, d], _) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    (4..MAX_FRAME_BYTES)
        .contains(&length)
        .then_some((tag, length + 1))
}

/// An error of the connection itself.
fn lost(error: std::io::Error) -> Error {
    Error::from(error).context("the connection to the server broke")
}
