//! The bytes of a file, decompressed, as they were when it was opened.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};

use flate2::read::MultiGzDecoder;
use setu_sdk::{Error, Result};

use crate::files::CsvFile;
use crate::position::Identity;

/// What the host gives at a time.
const READ_BYTES: usize = 64 << 10;

/// How much of a file's start goes into its identity.
const HEAD_BYTES: u64 = 4096;

/// An open file. Bytes that are appended to it later are not read.
#[derive(Debug)]
pub(crate) enum Input {
    Plain(io::Take<File>),
    Gzip(Box<MultiGzDecoder<BufReader<io::Take<File>>>>),
}

impl Input {
    /// Opens a file and tells which it is.
    pub(crate) fn open(file: &CsvFile) -> Result<(Input, Identity)> {
        let open = || {
            let mut source = File::open(&file.path)?;
            let length = source.metadata()?.len();
            let mut head = Vec::new();
            (&mut source).take(HEAD_BYTES).read_to_end(&mut head)?;
            source.seek(SeekFrom::Start(0))?;
            let taken = source.take(length);
            let input = if file.gzip {
                Input::Gzip(Box::new(MultiGzDecoder::new(BufReader::with_capacity(
                    READ_BYTES, taken,
                ))))
            } else {
                Input::Plain(taken)
            };
            Ok((input, Identity::new(length, &head)))
        };
        open().map_err(|error: io::Error| Error::from(error).context(file.display()))
    }

    /// Goes to an offset of the decompressed file; only from its start. Says whether a line or the file ends there, as
    /// one does before every record but the first.
    pub(crate) fn skip_to(&mut self, offset: u64) -> io::Result<bool> {
        let Some(before) = offset.checked_sub(1) else {
            return Ok(true);
        };
        let reached = match self {
            Input::Plain(file) => {
                let length = file.limit();
                file.get_mut().seek(SeekFrom::Start(before))?;
                file.set_limit(length.saturating_sub(before));
                length > before
            }
            Input::Gzip(_) => io::copy(&mut self.by_ref().take(before), &mut io::sink())? == before,
        };
        let mut byte = [0];
        let read = reached && self.read(&mut byte)? == 1;
        Ok(read && (byte == [b'\n'] || self.read(&mut byte)? == 0))
    }
}

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Input::Plain(file) => file.read(into),
            Input::Gzip(decoder) => decoder.read(into).map_err(|error| {
                // Everything that is wrong with compressed data is the file's fault, not the system's.
                match error.kind() {
                    io::ErrorKind::UnexpectedEof => {
                        io::Error::new(io::ErrorKind::InvalidData, "the gzip data ends too early")
                    }
                    _ => error,
                }
            }),
        }
    }
}
