//! The bundled CSV connector: reads a file or a folder of files, one stream a file, and writes one file a stream.
//!
//! A dialect (delimiter, quote, header, null strings) is shared by both sides, and what the destination writes the
//! source reads back equal. Encodings other than UTF-8, fixed-width files and spreadsheets are not for this crate.

mod config;
mod cursor;
mod destination;
mod dialect;
mod encode;
mod files;
#[cfg(test)]
mod fuzzing;
mod infer;
mod input;
mod position;
mod progress;
mod reader;
mod records;
mod schema;
mod source;

pub use destination::CsvDestination;
pub use source::CsvSource;

setu_sdk::connector!(CsvSource, CsvDestination);
