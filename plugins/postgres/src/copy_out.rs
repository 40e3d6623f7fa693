//! The rows of `COPY … TO STDOUT (FORMAT binary)`, found in the receive buffer and left there: a grid says where each
//! cell lies, and decoders read them column by column.
//!
//! The format is that of the documentation of COPY, "Binary Format": a header, then for each row a count of fields and
//! for each field a length (-1: null) and its bytes, then a trailer. Postgres sends each row in a message of its own,
//! but the protocol does not promise it.

use setu_sdk::{Error, Result};

use crate::client::Client;
use crate::failure;
use crate::wire::{HEADER_BYTES, frame_header};

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";

/// Where a cell's bytes begin, and how many there are; -1: null.
#[derive(Clone, Copy, Debug)]
struct Cell {
    at: u32,
    len: i32,
}

/// Where the cells of some rows lie, row by row.
#[derive(Debug, Default)]
pub(crate) struct Grid {
    cells: Vec<Cell>,
    rows: usize,
    columns: usize,
}

impl Grid {
    /// One column's cells, in the order of the rows; none for null.
    pub(crate) fn column<'a>(
        &'a self,
        at: usize,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = Option<&'a [u8]>> + 'a {
        let cells = self
            .cells
            .iter()
            .skip(at)
            .step_by(self.columns.max(1))
            .take(self.rows);
        cells.map(move |cell| slice(cell, bytes))
    }

    /// A cell of the last row.
    pub(crate) fn last<'a>(&self, column: usize, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let cell = self
            .cells
            .get((self.rows.checked_sub(1)?) * self.columns + column)?;
        slice(cell, bytes)
    }

    fn clear(&mut self, columns: usize) {
        self.cells.clear();
        self.rows = 0;
        self.columns = columns;
    }
}

fn slice<'a>(cell: &Cell, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(cell.len).ok()?;
    bytes.get(cell.at as usize..cell.at as usize + len)
}

/// A COPY under way.
pub(crate) struct CopyOut {
    client: Client,
    columns: usize,
    part: Part,
    /// Bytes of the current message's payload that are not yet consumed.
    frame_left: usize,
    /// Received bytes that the last grid covers.
    covered: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    Rows,
    Trailer,
    Done,
}

/// What stands at some place in the stream.
enum Found {
    /// This many bytes of the current part.
    Whole(usize),
    /// The end of all rows, in as many bytes.
    Trailer(usize),
    /// More bytes are needed to tell.
    Partial,
}

impl CopyOut {
    /// Starts the statement, whose rows have this many columns.
    pub(crate) fn start(mut client: Client, sql: &str, columns: usize) -> Result<Self> {
        client.copy_out(sql)?;
        Ok(CopyOut {
            client,
            columns,
            part: Part::Header,
            frame_left: 0,
            covered: 0,
        })
    }

    /// Finds the next rows, at most `max_rows` and about `max_bytes`, and waits for at least one. Returns how many
    /// rows and bytes of values there are; no row: the end, and the session is ready for the next statement.
    pub(crate) fn rows(
        &mut self,
        max_rows: usize,
        max_bytes: usize,
        grid: &mut Grid,
    ) -> Result<(usize, usize)> {
        self.client.wire().consume(self.covered);
        self.covered = 0;
        grid.clear(self.columns);
        let mut size = 0;
        while self.part != Part::Done && grid.rows < max_rows && size < max_bytes {
            let advanced = if self.frame_left == 0 {
                self.enter_frame(grid.rows > 0)?
            } else {
                self.step(grid, &mut size)?
            };
            if !advanced {
                if grid.rows > 0 {
                    break;
                }
                self.client.wire().consume(self.covered);
                self.covered = 0;
                self.client.wire().receive()?;
            }
        }
        Ok((grid.rows, size))
    }

    /// The bytes that the last grid points into.
    pub(crate) fn bytes(&mut self) -> &[u8] {
        self.client.wire().received()
    }

    /// The session, after the last row.
    pub(crate) fn into_client(self) -> Client {
        self.client
    }

    /// Reads the next message's header. False: it is not there yet, or it is none of COPY's and rows come first.
    fn enter_frame(&mut self, has_rows: bool) -> Result<bool> {
        let bytes = &self.client.wire().received()[self.covered..];
        if bytes.len() < HEADER_BYTES {
            return Ok(false);
        }
        let (tag, length) =
            frame_header(bytes).ok_or_else(|| failure::protocol("a message of impossible length"))?;
        if tag == b'd' {
            self.covered += HEADER_BYTES;
            self.frame_left = length - HEADER_BYTES;
            return Ok(true);
        }
        if has_rows {
            return Ok(false);
        }
        self.client.wire().consume(self.covered);
        self.covered = 0;
        if let Some(message) = self.client.wire().message_if_due()? {
            self.part = Part::Done;
            end_of_copy(message)?;
            self.client.end_copy_out()?;
        }
        Ok(true)
    }

    /// Takes one row (or the header, or the trailer) out of the current message. False: it is not all there.
    fn step(&mut self, grid: &mut Grid, size: &mut usize) -> Result<bool> {
        let received = self.client.wire().received();
        let here = &received[self.covered..];
        let payload = &here[..here.len().min(self.frame_left)];
        let cells_before = grid.cells.len();
        let found = match self.part {
            Part::Header => find_header(payload)?,
            Part::Rows => find_row(payload, self.covered, self.columns, &mut grid.cells)?,
            Part::Trailer | Part::Done => return Err(failure::protocol("COPY data after its end")),
        };
        match found {
            Found::Whole(n) => {
                if self.part == Part::Rows {
                    grid.rows += 1;
                    *size += n;
                }
                self.part = Part::Rows;
                self.covered += n;
                self.frame_left -= n;
                Ok(true)
            }
            Found::Trailer(n) => {
                self.part = Part::Trailer;
                self.covered += n;
                self.frame_left -= n;
                Ok(true)
            }
            Found::Partial => {
                grid.cells.truncate(cells_before);
                let whole_frame_is_here = payload.len() == self.frame_left;
                if whole_frame_is_here {
                    self.join_next_frame()
                } else {
                    Ok(false)
                }
            }
        }
    }

    /// A row goes on in the next message: moves its beginning up to there, over that message's header.
    fn join_next_frame(&mut self) -> Result<bool> {
        let (covered, left) = (self.covered, self.frame_left);
        let next = &self.client.wire().received()[covered + left..];
        if next.len() < HEADER_BYTES {
            return Ok(false);
        }
        let Some((b'd', length)) = frame_header(next) else {
            return Err(failure::protocol("COPY data that breaks off within a row"));
        };
        let bytes = self.client.wire().received_mut();
        bytes.copy_within(covered..covered + left, covered + HEADER_BYTES);
        self.covered += HEADER_BYTES;
        self.frame_left += length - HEADER_BYTES;
        Ok(true)
    }
}

fn end_of_copy(message: postgres_protocol::message::backend::Message) -> Result<()> {
    use postgres_protocol::message::backend::Message;
    match message {
        Message::CopyDone => Ok(()),
        Message::ErrorResponse(body) => Err(failure::from_server(body.fields())),
        _ => Err(failure::protocol("an unexpected message within COPY")),
    }
}

/// The file header: signature, flags, and an extension to be skipped.
fn find_header(payload: &[u8]) -> Result<Found> {
    let Some((fixed, rest)) = payload.split_at_checked(SIGNATURE.len() + 8) else {
        return Ok(Found::Partial);
    };
    if !fixed.starts_with(SIGNATURE) || fixed[SIGNATURE.len()..SIGNATURE.len() + 2] != [0, 0] {
        return Err(failure::protocol("COPY data without the binary format's header"));
    }
    let extension = big_endian(&fixed[SIGNATURE.len() + 4..]) as usize;
    Ok(if rest.len() < extension {
        Found::Partial
    } else {
        Found::Whole(fixed.len() + extension)
    })
}

/// The row at the beginning of `payload`, which lies `base` bytes into the received ones.
fn find_row(payload: &[u8], base: usize, columns: usize, cells: &mut Vec<Cell>) -> Result<Found> {
    let Some((&count, mut rest)) = payload.split_first_chunk::<2>() else {
        return Ok(Found::Partial);
    };
    match i16::from_be_bytes(count) {
        -1 => return Ok(Found::Trailer(2)),
        count if usize::try_from(count) != Ok(columns) => {
            return Err(Error::conflict(format!(
                "a row has {count} columns where {columns} were expected: the table was altered meanwhile"
            )));
        }
        _ => {}
    }
    for _ in 0..columns {
        let Some((len, after)) = rest.split_first_chunk::<4>() else {
            return Ok(Found::Partial);
        };
        let len = i32::from_be_bytes(*len);
        let bytes = usize::try_from(len).unwrap_or(0);
        if after.len() < bytes {
            return Ok(Found::Partial);
        }
        let at = base + payload.len() - after.len();
        let at = u32::try_from(at).map_err(|_| failure::protocol("a row of more than 4 GiB"))?;
        cells.push(Cell { at, len });
        rest = &after[bytes..];
    }
    Ok(Found::Whole(payload.len() - rest.len()))
}

fn big_endian(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |sum, &byte| sum << 8 | u32::from(byte))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use setu_sdk::net::Stream;

    use super::*;
    use crate::wire::Wire;

    #[test]
    fn a_row_is_found_only_once_it_is_whole() {
        let row = [0, 2, 0, 0, 0, 1, 7, 255, 255, 255, 255, 9, 9];
        let mut cells = Vec::new();
        for cut in 0..11 {
            assert!(
                matches!(find_row(&row[..cut], 0, 2, &mut cells), Ok(Found::Partial)),
                "{cut}"
            );
            cells.clear();
        }
        assert!(matches!(find_row(&row, 100, 2, &mut cells), Ok(Found::Whole(11))));
        assert_eq!((cells[0].at, cells[0].len, cells[1].len), (106, 1, -1));
        assert!(matches!(
            find_row(&[255, 255], 0, 2, &mut cells),
            Ok(Found::Trailer(2))
        ));
        assert!(find_row(&row, 0, 3, &mut cells).is_err());
    }

    #[test]
    fn a_header_may_have_an_extension() {
        let mut header = SIGNATURE.to_vec();
        header.extend([0, 0, 0, 0, 0, 0, 0, 2, 1, 2]);
        assert!(matches!(find_header(&header), Ok(Found::Whole(21))));
        assert!(matches!(find_header(&header[..20]), Ok(Found::Partial)));
        header[12] = 1;
        assert!(find_header(&header).is_err());
    }

    /// What a server answers to a COPY of one column: these payloads, each in a message of its own.
    fn serve(payloads: Vec<Vec<u8>>) -> CopyOut {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let frame = |tag: u8, payload: &[u8]| {
            let length = (payload.len() as u32 + 4).to_be_bytes();
            [&[tag][..], &length, payload].concat()
        };
        let mut answer = frame(b'H', &[1, 0, 1, 0, 1]);
        for payload in &payloads {
            answer.extend(frame(b'd', payload));
        }
        answer.extend([frame(b'c', b""), frame(b'C', b"COPY 3\0"), frame(b'Z', b"I")].concat());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut query = [0; 6];
            stream.read_exact(&mut query).unwrap();
            // In two pieces, so that the reader has to come back for more.
            let (first, second) = answer.split_at(answer.len() / 2);
            stream.write_all(first).unwrap();
            stream.write_all(second).unwrap();
        });
        let wire = Wire::new(Stream::connect("127.0.0.1", port).unwrap());
        CopyOut::start(Client::new(wire), "", 1).unwrap()
    }

    #[test]
    fn rows_may_be_torn_apart_between_messages_anywhere() {
        let mut data = [SIGNATURE, &[0; 8]].concat();
        for value in [b"one".as_slice(), b"", b"three"] {
            data.extend([0, 1]);
            data.extend((value.len() as u32).to_be_bytes());
            data.extend(value);
        }
        data.extend([255, 255]);
        for cut in 0..=data.len() {
            let (head, tail) = data.split_at(cut);
            let payloads = [
                vec![head.to_vec(), tail.to_vec()],
                data.chunks(cut.max(1)).map(<[u8]>::to_vec).collect(),
            ];
            for payloads in payloads {
                let mut copy = serve(payloads);
                let (mut grid, mut values) = (Grid::default(), Vec::new());
                while copy.rows(2, 1 << 20, &mut grid).unwrap().0 > 0 {
                    let bytes = copy.bytes();
                    values.extend(grid.column(0, bytes).map(|cell| cell.unwrap().to_vec()));
                    assert_eq!(grid.last(0, bytes), values.last().map(Vec::as_slice));
                }
                assert_eq!(
                    values,
                    [b"one".to_vec(), b"".to_vec(), b"three".to_vec()],
                    "cut at {cut}"
                );
            }
        }
    }
}
