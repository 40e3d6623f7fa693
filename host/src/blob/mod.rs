//! A keyed object store with exactly four operations, and the backends behind it.
//!
//! Keys are `/`-separated and checked once, for all backends, by [`Key`]. Calls block; a backend may be used by many
//! threads at once. [`from_spec`] opens the store that a [`Spec`] describes; [`Fs`], [`S3`] and [`Memory`] can also be
//! made directly. Every backend passes one suite, written against the trait: [`conformance`].
//!
//! A backend may offer one thing more: puts that happen only under a [`Condition`]. Two writers of one object settle
//! with them who goes first. Ask [`Blob::conditional`] before relying on them.
//!
//! Not here: what the keys mean (`staging::layout`).

pub mod conformance;
mod fs;
mod key;
mod memory;
pub(crate) mod object;
mod s3;
mod spec;

pub use fs::Fs;
pub use key::{Key, MAX_KEY_BYTES};
pub use memory::Memory;
#[cfg(test)]
pub(crate) use memory::Plain;
pub use s3::S3;
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
    /// The condition of a put did not hold, or somebody else put the same key at the same moment. Nothing was stored;
    /// what is there now must be read to know more.
    #[error("`{key}` in {store} was written by someone else meanwhile")]
    Conflict {
        /// The key.
        key: String,
        /// The store, as [`Blob::describe`] says it.
        store: String,
    },
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

/// One state of an object, as the store tells it from others: see [`Blob::put_if`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version(String);

impl Version {
    fn new(version: impl Into<String>) -> Version {
        Version(version.into())
    }

    fn as_str(&self) -> &str {
        &self.0
    }
}

/// What must hold for a put to happen.
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    /// There is no object of this key.
    Absent,
    /// The object is there, and still the one of which this version was told.
    Unchanged(&'a Version),
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
    /// Removes several objects, as [`Blob::delete`] does each. A failure may leave any of them.
    fn delete_all(&self, keys: &[Key]) -> Result<(), BlobError> {
        keys.iter().try_for_each(|key| self.delete(key))
    }

    /// Whether [`Blob::put_if`] can be relied on. A store of which that is not known is asked once, by writing and
    /// deleting an object under `_setu/`.
    fn conditional(&self) -> Result<bool, BlobError> {
        Ok(false)
    }
    /// Reads an object, and the version that [`Condition::Unchanged`] compares it by. For small objects: all of it is
    /// held in memory.
    fn get_versioned(&self, key: &Key) -> Result<(Vec<u8>, Version), BlobError> {
        Err(unconditional(self.describe(), "get", key))
    }
    /// Stores an object whole if the condition holds, in one step: of several such puts of one key at the same time,
    /// at most one finds its condition true. Returns the new version.
    ///
    /// * [`BlobError::Conflict`]: the condition did not hold.
    /// * [`BlobError::Io`]: it is not known whether the object was stored.
    /// * Objects of the very same bytes may have the same version, so what must not be mistaken for its predecessor
    ///   has to differ from it.
    fn put_if(&self, key: &Key, bytes: &[u8], condition: Condition<'_>) -> Result<Version, BlobError> {
        let _ = (bytes, condition);
        Err(unconditional(self.describe(), "put", key))
    }

    /// The store in a few words for messages, without secrets: `fs:/data/blob`, `s3://bucket at https://…`.
    fn describe(&self) -> String;
}

/// Opens the store that a specification describes. A missing `fsRoot` folder is created; a relative one counts from
/// the process's working folder, so a caller that means another folder makes it absolute first.
pub fn from_spec(spec: &Spec) -> Result<Arc<dyn Blob>, BlobError> {
    spec.validate()?;
    match spec.backend.as_str() {
        "fs" => Ok(Arc::new(Fs::open(&spec.fs_root)?)),
        // Validated above: there is no third one.
        _ => Ok(Arc::new(S3::open(spec)?)),
    }
}

/// Opens the store that the `SETU_BLOB_*` environment variables describe; an error where none is set.
pub fn from_env() -> Result<Arc<dyn Blob>, BlobError> {
    from_spec(&Spec::from_env()?)
}

/// What a store says that has no conditional puts.
fn unconditional(store: String, operation: &'static str, key: &Key) -> BlobError {
    BlobError::Io {
        operation,
        key: key.to_string(),
        store,
        source: io::Error::new(io::ErrorKind::Unsupported, "this store has no conditional puts"),
    }
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
