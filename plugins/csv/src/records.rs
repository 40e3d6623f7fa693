//! Splits bytes into records and fields.
//!
//! A record ends with LF or CR LF, or with the file. A field that begins with the quote ends with the next single one;
//! what follows must be a delimiter or the record's end. A quote inside a field that does not begin with one is an
//! ordinary character; a CR in such a field is an error, since it is the end of a record to other programs. What the
//! fields mean is not decided here.

use std::io::{self, Read};

use setu_sdk::{Error, Result};

use crate::dialect::Dialect;

/// The host's streams give at most 64 KiB at a time; some of them fit, and stay in the processor's cache.
const BUFFER_BYTES: usize = 256 << 10;
/// A record longer than this is taken for an unclosed quote; it is also the most memory that reading takes.
const MAX_RECORD_BYTES: usize = 64 << 20;

const BARE_CARRIAGE_RETURN: &str = "a carriage return without a line feed, outside of quotes; if the file's lines end \
                                    like this, convert it first (`tr '\\r' '\\n'`), and if it belongs to the value, put \
                                    the value in quotes";

/// Where a field lies in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Without the quotes.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) quoted: bool,
    /// Quotes in it stand twice.
    pub(crate) doubled: bool,
}

/// One record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    bytes: &'a [u8],
    pub(crate) fields: &'a [Field],
    /// Of its first byte, in the (decompressed) file.
    pub(crate) offset: u64,
    /// Of its first byte, counted from 1.
    pub(crate) line: u64,
}

impl<'a> Record<'a> {
    /// A field's bytes as they stand in the file, without the quotes around it. They are valid UTF-8.
    #[inline]
    pub(crate) fn raw(&self, field: Field) -> &'a [u8] {
        &self.bytes[field.start..field.end]
    }

    /// Appends a field's value.
    pub(crate) fn append_value(&self, field: Field, quote: u8, out: &mut Vec<u8>) {
        let mut rest = self.raw(field);
        if field.doubled {
            while let Some(at) = memchr::memchr(quote, rest) {
                out.extend_from_slice(&rest[..=at]);
                // The second of the two.
                rest = rest.get(at + 2..).unwrap_or_default();
            }
        }
        out.extend_from_slice(rest);
    }

    /// Every value, as text.
    pub(crate) fn values(&self, quote: u8) -> Vec<String> {
        let value = |field: &Field| {
            let mut value = Vec::new();
            self.append_value(*field, quote, &mut value);
            String::from_utf8_lossy(&value).into_owned()
        };
        self.fields.iter().map(value).collect()
    }

    /// The line and the file's byte at which a field's content begins.
    pub(crate) fn place(&self, field: Field) -> (u64, u64) {
        let breaks = memchr::memchr_iter(b'\n', &self.bytes[..field.start]).count();
        (self.line + breaks as u64, self.offset + field.start as u64)
    }

    /// Whether the record is an empty line.
    pub(crate) fn is_blank(&self) -> bool {
        matches!(self.fields, [field] if !field.quoted && field.start == field.end)
    }
}

/// The records of an input, one after the other, without an allocation for each.
#[derive(Debug)]
pub(crate) struct Records<R> {
    input: R,
    /// For messages.
    file: String,
    delimiter: u8,
    quote: u8,
    buffer: Vec<u8>,
    /// Where the next record begins, and where what was read ends.
    start: usize,
    end: usize,
    /// Up to here the buffer is valid UTF-8.
    valid: usize,
    /// The byte at `valid` is wrong, rather than not yet complete.
    invalid: bool,
    /// A CR was read: records must be searched for those that stand alone.
    has_carriage_return: bool,
    eof: bool,
    /// The file's offset of the buffer's first byte.
    base: u64,
    line: u64,
    fields: Vec<Field>,
}

/// What a look at the buffer found.
#[derive(Debug, PartialEq, Eq)]
enum Scan {
    /// The record with its end takes `len` bytes and holds `breaks` line feeds.
    Complete {
        len: usize,
        breaks: u64,
    },
    Incomplete,
    /// The quote at this place never closes.
    Unclosed(usize),
    /// A closing quote is followed by neither delimiter nor line break, at this place.
    AfterQuote(usize),
}

impl<R: Read> Records<R> {
    /// Reads from `input`, whose first byte has this offset and line in the file. A byte order mark is skipped at
    /// offset 0.
    ///
    /// # Errors
    /// `data` at offset 0 for what is no text in UTF-8 by its first bytes.
    pub(crate) fn new(input: R, file: &str, dialect: &Dialect, offset: u64, line: u64) -> Result<Self> {
        let mut records = Records {
            input,
            file: file.to_owned(),
            delimiter: dialect.delimiter,
            quote: dialect.quote,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
            valid: 0,
            invalid: false,
            has_carriage_return: false,
            eof: false,
            base: offset,
            line,
            fields: Vec::new(),
        };
        if offset == 0 {
            records.check_start()?;
        }
        Ok(records)
    }

    /// The offset at which the next record begins.
    pub(crate) fn offset(&self) -> u64 {
        self.base + self.start as u64
    }

    /// The line on which the next record begins.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The next record, or none at the end.
    ///
    /// # Errors
    /// `data`, with file, line and byte, for an unclosed quote, text after a closing quote, a CR that stands alone,
    /// bytes that are not UTF-8 and a record that is too long.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Record<'_>>> {
        loop {
            let window = &self.buffer[self.start..self.end];
            if window.is_empty() && self.eof {
                return Ok(None);
            }
            match scan(window, self.delimiter, self.quote, self.eof, &mut self.fields) {
                Scan::Complete { len, breaks } => return self.take(len, breaks).map(Some),
                Scan::Incomplete => self.fill()?,
                Scan::Unclosed(at) => return Err(self.error(at, "this quote is never closed")),
                Scan::AfterQuote(at) if window[at] == b'\r' => {
                    return Err(self.error(at, BARE_CARRIAGE_RETURN));
                }
                Scan::AfterQuote(at) => {
                    return Err(self.error(
                        at,
                        "a closing quote must be followed by a delimiter or the end of the line; \
                         a quote inside a quoted field is written twice",
                    ));
                }
            }
        }
    }

    #[inline]
    fn take(&mut self, len: usize, breaks: u64) -> Result<Record<'_>> {
        let (start, end) = (self.start, self.start + len);
        if end > self.valid {
            return Err(self.error(
                self.valid - start,
                "this is not UTF-8; convert the file to UTF-8 first",
            ));
        }
        if self.has_carriage_return
            && let Some(at) = bare_carriage_return(&self.buffer[start..end], &self.fields)
        {
            return Err(self.error(at, BARE_CARRIAGE_RETURN));
        }
        let (offset, line) = (self.offset(), self.line);
        self.start = end;
        self.line += breaks;
        Ok(Record {
            bytes: &self.buffer[start..end],
            fields: &self.fields,
            offset,
            line,
        })
    }

    /// Reads more behind what there is, making room first: at least as much again, because the record is then looked
    /// at from its start.
    fn fill(&mut self) -> Result<()> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.base += self.start as u64;
            self.end -= self.start;
            self.valid -= self.start;
            self.start = 0;
        }
        if self.end == self.buffer.len() {
            if self.buffer.len() >= MAX_RECORD_BYTES {
                let limit = MAX_RECORD_BYTES >> 20;
                return Err(self.error(
                    0,
                    &format!(
                        "this record is longer than {limit} MiB; is a quote unclosed, or do lines end without a line \
                         feed?"
                    ),
                ));
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let enough = (2 * self.end).clamp(1, self.buffer.len());
        while self.end < enough && !self.eof {
            let read = read_some(&mut self.input, &mut self.buffer[self.end..])
                .map_err(|error| Error::from(error).context(format!("{}: cannot read", self.file)))?;
            let new = &self.buffer[self.end..self.end + read];
            self.has_carriage_return = self.has_carriage_return || memchr::memchr(b'\r', new).is_some();
            self.end += read;
            self.eof = read == 0;
        }
        self.validate();
        Ok(())
    }

    /// Checks what was read: once, in large pieces, rather than field by field. Delimiters and quotes are ASCII, so
    /// that a field of valid text is valid.
    fn validate(&mut self) {
        if self.invalid {
            return;
        }
        match std::str::from_utf8(&self.buffer[self.valid..self.end]) {
            Ok(_) => self.valid = self.end,
            Err(error) => {
                self.valid += error.valid_up_to();
                self.invalid = error.error_len().is_some();
            }
        }
    }

    /// Skips a byte order mark, and refuses by its first bytes what people mistake for CSV.
    fn check_start(&mut self) -> Result<()> {
        while self.end < 4 && !self.eof {
            self.fill()?;
        }
        let what = match &self.buffer[..self.end] {
            [0xef, 0xbb, 0xbf, ..] => {
                self.start = 3;
                return Ok(());
            }
            // With a byte order mark; without one, as far as a text begins with ASCII.
            [0xff, 0xfe, ..]
            | [0xfe, 0xff, ..]
            | [0, 1..=255, 0, 1..=255, ..]
            | [1..=255, 0, 1..=255, 0, ..] => "this file is UTF-16; convert it to UTF-8 first",
            [0x1f, 0x8b, ..] => "this is gzip data; decompress the file, or let its name end in `.gz`",
            [b'P', b'K', 3, 4, ..] => {
                "this is a ZIP archive or an Excel workbook; extract the file, or save it as CSV in UTF-8"
            }
            _ => return Ok(()),
        };
        Err(self.error(0, what))
    }

    /// An error at a place of the record under way.
    fn error(&self, at: usize, what: &str) -> Error {
        let before = &self.buffer[self.start..self.start + at];
        let line = self.line + memchr::memchr_iter(b'\n', before).count() as u64;
        error_at(&self.file, line, self.offset() + at as u64, what)
    }
}

/// An error at a place of a file.
pub(crate) fn error_at(file: &str, line: u64, byte: u64, what: &str) -> Error {
    Error::data(format!("{file}, line {line}, byte {byte}: {what}"))
}

fn read_some(input: &mut impl Read, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(into) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Where a CR stands in a field without quotes; the one before the record's LF is no part of a field.
fn bare_carriage_return(record: &[u8], fields: &[Field]) -> Option<usize> {
    let first = memchr::memchr(b'\r', record)?;
    if matches!(record[first..], [b'\r'] | [b'\r', b'\n']) {
        return None;
    }
    fields.iter().filter(|field| !field.quoted).find_map(|field| {
        let at = memchr::memchr(b'\r', &record[field.start..field.end])?;
        Some(field.start + at)
    })
}

/// Finds the fields of the record at the start of `bytes`, and its end.
#[inline]
fn scan(bytes: &[u8], delimiter: u8, quote: u8, eof: bool, fields: &mut Vec<Field>) -> Scan {
    fields.clear();
    let mut at = 0;
    let mut breaks = 0;
    loop {
        let (end, quoted) = if bytes.get(at) == Some(&quote) {
            match scan_quoted(bytes, at, quote, eof) {
                Ok(field) => {
                    fields.push(field);
                    breaks += memchr::memchr_iter(b'\n', &bytes[field.start..field.end]).count() as u64;
                    (field.end + 1, true)
                }
                Err(scan) => return scan,
            }
        } else {
            match find_either(bytes, at, delimiter, b'\n') {
                Some(end) => (end, false),
                None if eof => (bytes.len(), false),
                None => return Scan::Incomplete,
            }
        };
        // What stands at `end`: a delimiter, a line break or nothing more.
        let next = bytes.get(end).copied();
        if next == Some(delimiter) {
            if !quoted {
                fields.push(unquoted(at, end));
            }
            at = end + 1;
            continue;
        }
        if quoted {
            return match (next, bytes.get(end + 1)) {
                (Some(b'\n'), _) => Scan::Complete {
                    len: end + 1,
                    breaks: breaks + 1,
                },
                (Some(b'\r'), Some(b'\n')) => Scan::Complete {
                    len: end + 2,
                    breaks: breaks + 1,
                },
                (None, _) | (Some(b'\r'), None) if !eof => Scan::Incomplete,
                (None, _) => Scan::Complete { len: end, breaks },
                (Some(b'\r'), None) => Scan::Complete { len: end + 1, breaks },
                _ => Scan::AfterQuote(end),
            };
        }
        let carriage_return = end > at && bytes[end - 1] == b'\r';
        fields.push(unquoted(at, end - usize::from(carriage_return)));
        return match next {
            Some(_) => Scan::Complete {
                len: end + 1,
                breaks: breaks + 1,
            },
            None => Scan::Complete { len: end, breaks },
        };
    }
}

fn unquoted(start: usize, end: usize) -> Field {
    Field {
        start,
        end,
        quoted: false,
        doubled: false,
    }
}

/// The quoted field whose opening quote stands at `at`.
#[inline]
fn scan_quoted(bytes: &[u8], at: usize, quote: u8, eof: bool) -> Result<Field, Scan> {
    let mut doubled = false;
    let mut from = at + 1;
    loop {
        let Some(found) = memchr::memchr(quote, &bytes[from..]) else {
            return Err(if eof { Scan::Unclosed(at) } else { Scan::Incomplete });
        };
        let end = from + found;
        match bytes.get(end + 1) {
            Some(next) if *next == quote => {
                doubled = true;
                from = end + 2;
            }
            None if !eof => return Err(Scan::Incomplete),
            _ => {
                return Ok(Field {
                    start: at + 1,
                    end,
                    quoted: true,
                    doubled,
                });
            }
        }
    }
}

/// The first place from `at` on that holds one of two bytes.
///
/// Fields are short, a few bytes on average, which is too little for a vectorised search to pay off: eight bytes at a
/// time in an ordinary register.
#[inline]
fn find_either(bytes: &[u8], at: usize, a: u8, b: u8) -> Option<usize> {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let (a8, b8) = (ONES * u64::from(a), ONES * u64::from(b));
    let mut at = at;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_le_bytes(*chunk);
        let (x, y) = (word ^ a8, word ^ b8);
        // A byte's high bit is set where it was zero; borrows can set it falsely, but only above a true one.
        let hits = (x.wrapping_sub(ONES) & !x | y.wrapping_sub(ONES) & !y) & HIGH;
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    let rest = bytes.get(at..)?;
    rest.iter()
        .position(|&byte| byte == a || byte == b)
        .map(|found| at + found)
}

#[cfg(test)]
mod tests;
