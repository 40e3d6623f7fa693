//! A keyed object store with exactly four operations, and the backends behind it.
//!
//! Keys are `/`-separated and checked once, for all backends, by [`Key`]. Calls block; a backend may be used by many
//! threads at once. [`from_spec`] opens the store that a [`Spec`] describes; [`Fs`] and [`Memory`] can also be made
//! directly. Every backend passes one conformance suite, written against the trait.
//!
//! Not here: what the keys mean (`staging::layout`).

#[cfg(test)]
mod conformance;
mod fs;
mod key;
mod memory;
mod spec;

pub use fs::Fs;
pub use key::{Key, MAX_KEY_BYTES};
pub use memory::Memory;
pub use spec::Spec;

use std::io::{self, Read};
use std::sync::Arc;
use std::time::SystemTime;

/// Why a blob operation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlobError {
    /// No object has this key.
    #[error("no object `{key}` in {store}")]
    NotFound {
        /// The key asked for.
        key: String,
        /// The store, as [`Blob::describe`] says it.
        store: String,
    },
    /// The key breaks a rule.
    #[error("`{key}` is not a valid key: {reason}")]
    InvalidKey {
        /// The text given.
        key: String,
        /// The rule that it breaks.
        reason: &'static str,
    },
    /// The store's settings are wrong or incomplete.
    #[error("blob store: {0}")]
    Config(String),
    /// The store failed.
    #[error("cannot {operation} `{key}` in {store}")]
    Io {
        /// "put", "get", "list" or "delete".
        operation: &'static str,
        /// The key or prefix.
        key: String,
        /// The store, as [`Blob::describe`] says it.
        store: String,
        /// What the system said.
        source: io::Error,
    },
}

/// What [`Blob::list`] tells of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its key.
    pub key: Key,
    /// Its size in bytes.
    pub size: u64,
    /// When it was last written.
    pub modified: SystemTime,
}

/// What [`Blob::put`] stores.
pub enum Body<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// All that the reader yields; its size where that is known, which it must then have.
    Reader(&'a mut (dyn Read + Send), Option<u64>),
}

/// A keyed object store.
pub trait Blob: Send + Sync {
    /// Stores an object whole, replacing one of the same key. A reader sees the old one or the new one, and after a
    /// failed put the old one.
    fn put(&self, key: &Key, body: Body<'_>) -> Result<(), BlobError>;
    /// Opens an object for reading; [`BlobError::NotFound`] where there is none.
    fn get(&self, key: &Key) -> Result<Box<dyn Read + Send>, BlobError>;
    /// The objects whose key starts with `prefix` (any text, not only whole segments; empty: all), ordered by the
    /// bytes of the key.
    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, BlobError>;
    /// Removes an object; one that does not exist is not an error.
    fn delete(&self, key: &Key) -> Result<(), BlobError>;
    /// The store in a few words for messages, without secrets: `fs:/data/blob`, `s3://bucket at https://…`.
    fn describe(&self) -> String;
}

/// Opens the store that a specification describes. A missing `fsRoot` folder is created; a relative one counts from
/// the process's working folder, so a caller that means another folder makes it absolute first.
pub fn from_spec(spec: &Spec) -> Result<Arc<dyn Blob>, BlobError> {
    spec.validate()?;
    match spec.backend.as_str() {
        "fs" => Ok(Arc::new(Fs::open(&spec.fs_root)?)),
        backend => Err(BlobError::Config(format!(
            "backend `{backend}`: this build has no S3 backend yet; use `fs`"
        ))),
    }
}

/// Opens the store that the `SETU_BLOB_*` environment variables describe; an error where none is set.
pub fn from_env() -> Result<Arc<dyn Blob>, BlobError> {
    from_spec(&Spec::from_env()?)
}

/// An error of the reader that feeds a put, when it does not have the size that was announced.
fn check_size(announced: Option<u64>, actual: u64) -> io::Result<()> {
    match announced {
        Some(size) if size != actual => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the body has {actual} bytes, but {size} were announced"),
        )),
        _ => Ok(()),
    }
}
