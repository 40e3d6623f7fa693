//! A logged-in session: statements and their rows, and the beginnings and ends of COPY.
//!
//! Statements with values go through the extended protocol with text values, which the session's pinned settings make
//! canonical; statements without go through the simple one, several at a time.

use fallible_iterator::FallibleIterator;
use postgres_protocol::IsNull;
use postgres_protocol::message::backend::{DataRowBody, Message};
use postgres_protocol::message::frontend;
use setu_sdk::{Error, Result};

use crate::failure;
use crate::wire::Wire;

/// A session. After an error of the connection it is of no use; after an error of the server it is, outside of a COPY.
pub(crate) struct Client {
    wire: Wire,
}

/// A row of texts.
#[derive(Debug)]
pub(crate) struct Row(Vec<Option<String>>);

impl Row {
    /// The text at this place; an error where it is null or missing, which the statement should have ruled out.
    pub(crate) fn text(&self, at: usize) -> Result<&str> {
        self.opt(at)
            .ok_or_else(|| Error::internal(format!("value {at} of a row of the catalogue is missing")))
    }

    /// The text at this place, none for null.
    pub(crate) fn opt(&self, at: usize) -> Option<&str> {
        self.0.get(at)?.as_deref()
    }

    /// A number at this place.
    pub(crate) fn number<T: std::str::FromStr>(&self, at: usize) -> Result<T> {
        let text = self.text(at)?;
        text.parse().map_err(|_| {
            Error::internal(format!(
                "value {at} of a row of the catalogue is no number: {text}"
            ))
        })
    }

    /// All texts.
    #[cfg(test)]
    pub(crate) fn texts(&self) -> Vec<Option<String>> {
        self.0.clone()
    }

    /// A boolean at this place.
    pub(crate) fn flag(&self, at: usize) -> Result<bool> {
        Ok(self.text(at)? == "t")
    }
}

impl Client {
    /// Wraps a connection that has logged in.
    pub(crate) fn new(wire: Wire) -> Self {
        Client { wire }
    }

    /// The connection, in the midst of a COPY.
    pub(crate) fn wire(&mut self) -> &mut Wire {
        &mut self.wire
    }

    /// Runs statements without values, one transaction unless they say otherwise. Rows are dropped.
    pub(crate) fn execute(&mut self, sql: &str) -> Result<()> {
        frontend::query(sql, self.wire.out()).map_err(nul_in_statement)?;
        self.wire.send()?;
        self.finish_statement().map(drop)
    }

    /// Runs one statement with text values `$1`, `$2`, … and returns its rows.
    pub(crate) fn query(&mut self, sql: &str, values: &[Option<&str>]) -> Result<Vec<Row>> {
        self.run(sql, values).map(|(rows, _)| rows)
    }

    /// The same where exactly one row must come.
    pub(crate) fn query_one(&mut self, sql: &str, values: &[Option<&str>]) -> Result<Row> {
        let rows = self.query(sql, values)?;
        rows.into_iter()
            .next()
            .ok_or_else(|| Error::internal("a statement of this connector returned no row"))
    }

    /// Runs one statement and returns how many rows it changed.
    pub(crate) fn update(&mut self, sql: &str, values: &[Option<&str>]) -> Result<u64> {
        self.run(sql, values).map(|(_, changed)| changed)
    }

    fn run(&mut self, sql: &str, values: &[Option<&str>]) -> Result<(Vec<Row>, u64)> {
        let out = self.wire.out();
        frontend::parse("", sql, [], out).map_err(nul_in_statement)?;
        let put = |value: &Option<&str>, out: &mut bytes::BytesMut| {
            Ok(match value {
                Some(text) => {
                    out.extend_from_slice(text.as_bytes());
                    IsNull::No
                }
                None => IsNull::Yes,
            })
        };
        frontend::bind("", "", [], values, put, [], out)
            .map_err(|_| Error::internal("the values of a statement are too long"))?;
        frontend::execute("", 0, out).map_err(nul_in_statement)?;
        frontend::sync(out);
        self.wire.send()?;
        self.finish_statement()
    }

    /// Reads what a statement brings up to the server's readiness for the next: rows and the last count of changes.
    fn finish_statement(&mut self) -> Result<(Vec<Row>, u64)> {
        let (mut rows, mut changed, mut failed) = (Vec::new(), 0, None);
        loop {
            match self.wire.message()? {
                Message::DataRow(body) => rows.push(read_row(&body)?),
                Message::CommandComplete(body) => {
                    let tag = body.tag().map_err(failure::protocol)?;
                    changed = tag.rsplit(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0);
                }
                Message::ErrorResponse(body) => {
                    let error = failure::from_server(body.fields());
                    failed.get_or_insert(error);
                }
                Message::ReadyForQuery(_) => return failed.map_or(Ok((rows, changed)), Err),
                _ => {}
            }
            // After an error that ends the session no readiness follows.
            if let Some(error) = failed.take_if(|error| error.is_retryable() && ends_session(error)) {
                return Err(error);
            }
        }
    }

    /// Starts `COPY … TO STDOUT`; its frames are then on the wire.
    pub(crate) fn copy_out(&mut self, sql: &str) -> Result<()> {
        self.start_copy(sql, |message| matches!(message, Message::CopyOutResponse(_)))
    }

    /// Starts `COPY … FROM STDIN`.
    pub(crate) fn copy_in(&mut self, sql: &str) -> Result<()> {
        self.start_copy(sql, |message| matches!(message, Message::CopyInResponse(_)))
    }

    fn start_copy(&mut self, sql: &str, started: impl Fn(&Message) -> bool) -> Result<()> {
        frontend::query(sql, self.wire.out()).map_err(nul_in_statement)?;
        self.wire.send()?;
        match self.wire.message()? {
            message if started(&message) => Ok(()),
            Message::ErrorResponse(body) => {
                let error = failure::from_server(body.fields());
                self.finish_statement().ok();
                Err(error)
            }
            _ => Err(failure::protocol("COPY was not answered as such")),
        }
    }

    /// Ends `COPY … FROM STDIN` and waits for the server's verdict: how many rows it wrote.
    pub(crate) fn end_copy_in(&mut self) -> Result<u64> {
        frontend::copy_done(self.wire.out());
        self.wire.send()?;
        self.finish_statement().map(|(_, written)| written)
    }

    /// After the last frame of `COPY … TO STDOUT`: waits until the server is ready again.
    pub(crate) fn end_copy_out(&mut self) -> Result<()> {
        self.finish_statement().map(drop)
    }

    /// What the server said before it closed the connection or refused the rows, in place of `error`, which only says
    /// that writing failed.
    pub(crate) fn cause_of(&mut self, error: Error) -> Error {
        match self.finish_statement() {
            Err(cause) if cause.code().is_some() => cause,
            _ => error,
        }
    }

    /// Says good-bye. The server notices a connection that is merely dropped as well, only later.
    pub(crate) fn close(mut self) {
        frontend::terminate(self.wire.out());
        self.wire.send().ok();
    }
}

fn ends_session(error: &Error) -> bool {
    error.code().is_some_and(|code| code.starts_with("57P"))
}

fn nul_in_statement(_: std::io::Error) -> Error {
    Error::data("a name or a value holds a NUL character, which Postgres cannot store")
}

fn read_row(body: &DataRowBody) -> Result<Row> {
    let mut row = Vec::new();
    let mut ranges = body.ranges();
    while let Some(range) = ranges.next().map_err(failure::protocol)? {
        let text = range.map(|range| String::from_utf8_lossy(&body.buffer()[range]).into_owned());
        row.push(text);
    }
    Ok(Row(row))
}
