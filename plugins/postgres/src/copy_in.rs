//! Rows for `COPY … FROM STDIN (FORMAT binary)`: gathered in one buffer and sent in large messages, without ever waiting
//! for the server before the end.

use setu_sdk::Result;

use crate::client::Client;
use crate::wire::HEADER_BYTES;

/// What a message holds before it is sent; rows are not torn apart, so it may be exceeded by one.
const MESSAGE_BYTES: usize = 256 << 10;

/// The header of the binary format: signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();

/// A COPY under way. Rows are appended to [`buffer`](Self::buffer), each followed by [`row_done`](Self::row_done).
#[derive(Debug)]
pub(crate) struct CopyIn {
    /// A CopyData message whose length is not yet known.
    buffer: Vec<u8>,
}

impl CopyIn {
    /// Starts the statement.
    pub(crate) fn start(client: &mut Client, sql: &str) -> Result<Self> {
        client.copy_in(sql)?;
        let mut copy = CopyIn {
            buffer: Vec::with_capacity(MESSAGE_BYTES + MESSAGE_BYTES / 4),
        };
        copy.begin_message();
        copy.buffer.extend_from_slice(HEADER);
        Ok(copy)
    }

    /// Where rows go.
    #[inline]
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// To be called after each row.
    #[inline]
    pub(crate) fn row_done(&mut self, client: &mut Client) -> Result<()> {
        if self.buffer.len() >= MESSAGE_BYTES {
            self.send(client)
        } else {
            Ok(())
        }
    }

    /// Ends the rows and waits for the server's verdict on all of them: how many it wrote.
    pub(crate) fn finish(mut self, client: &mut Client) -> Result<u64> {
        self.buffer.extend_from_slice(&TRAILER);
        self.send(client)?;
        client.end_copy_in()
    }

    fn begin_message(&mut self) {
        self.buffer.clear();
        self.buffer.extend_from_slice(b"d\0\0\0\0");
    }

    fn send(&mut self, client: &mut Client) -> Result<()> {
        // The length counts itself and not the tag. Postgres itself refuses a row of more than 1 GiB.
        let length = u32::try_from(self.buffer.len() - 1).unwrap_or(u32::MAX);
        self.buffer[1..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
        let sent = client.wire().send_bytes(&self.buffer);
        self.begin_message();
        sent.map_err(|error| client.cause_of(error))
    }
}
