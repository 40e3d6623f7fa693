//! The bytes of a file, decompressed, as they were when it was opened.

use std::fs::{File, Metadata};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::time::UNIX_EPOCH;

use flate2::read::MultiGzDecoder;
use setu_sdk::{Error, Result};

use crate::files::CsvFile;
use crate::position::Identity;

/// What the host gives at a time.
const READ_BYTES: usize = 64 << 10;

/// How much of a file's start goes into its identity.
const HEAD_BYTES: u64 = 4096;

/// What gzip data begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// An open file. Bytes that are appended to it later are not read.
#[derive(Debug)]
pub(crate) enum Input {
    Plain(io::Take<File>),
    Gzip(Box<MultiGzDecoder<BufReader<io::Take<File>>>>),
}

impl Input {
    /// Opens a file and tells which it is.
    ///
    /// # Errors
    /// The file's own defect; `data` for a file that is named like gzip data and is none.
    pub(crate) fn open(file: &CsvFile) -> Result<(Input, Identity)> {
        Self::open_up_to(file, u64::MAX)
    }

    /// The same with at most the first `most` bytes, as stored: what the file was when it was this long.
    pub(crate) fn open_up_to(file: &CsvFile, most: u64) -> Result<(Input, Identity)> {
        if let Some(defect) = &file.defect {
            return Err(defect.clone());
        }
        let open = || {
            let mut source = File::open(&file.path)?;
            let metadata = source.metadata()?;
            let mut head = Vec::new();
            (&mut source).take(HEAD_BYTES).read_to_end(&mut head)?;
            source.seek(SeekFrom::Start(0))?;
            Ok((source, metadata, head))
        };
        let opened = open().map_err(|error: io::Error| Error::from(error).context(file.display()));
        let (source, metadata, head) = opened?;
        let identity = Identity::new(metadata.len(), modified(&metadata), &head);
        let source = source.take(metadata.len().min(most));
        // Nothing at all is an empty file, compressed or not.
        if !file.gzip || head.is_empty() {
            return Ok((Input::Plain(source), identity));
        }
        if !head.starts_with(&GZIP) {
            return Err(Error::data(format!(
                "{} is not gzip data, although its name ends in `.gz`; if it was never compressed, take that ending away",
                file.display()
            )));
        }
        let decoder = MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, source));
        Ok((Input::Gzip(Box::new(decoder)), identity))
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

/// When a file was last written, in nanoseconds since 1970; 0 where the system does not tell.
pub(crate) fn modified(metadata: &Metadata) -> u64 {
    let since = metadata
        .modified()
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    since
        .and_then(|since| since.as_nanos().try_into().ok())
        .unwrap_or(0)
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
