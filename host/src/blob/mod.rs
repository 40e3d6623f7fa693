//! A keyed object store with exactly four operations, and the backends behind it.
//!
//! Keys are `/`-separated and checked once, for all backends, by [`Key`]. Calls block; a backend may be used by many
//! threads at once. Not here: what the keys mean (`staging::layout`).

use std::io::Read;
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// A checked key: relative, no empty, `.` or `..` segment, no NUL, no backslash, at most 1,024 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    /// Checks a key.
    pub fn new(key: impl Into<String>) -> Result<Key, BlobError> {
        Ok(Key(key.into()))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

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
        source: std::io::Error,
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
    /// All that the reader yields; the size where it is known.
    Reader(&'a mut (dyn Read + Send), Option<u64>),
}

/// A keyed object store.
pub trait Blob: Send + Sync {
    /// Stores an object whole, replacing one of the same key. A reader sees the old one or the new one.
    fn put(&self, key: &Key, body: Body<'_>) -> Result<(), BlobError>;
    /// Opens an object for reading; [`BlobError::NotFound`] where there is none.
    fn get(&self, key: &Key) -> Result<Box<dyn Read + Send>, BlobError>;
    /// The objects whose key starts with `prefix` (any text, not only whole segments; empty: all), ordered by key.
    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, BlobError>;
    /// Removes an object; one that does not exist is not an error.
    fn delete(&self, key: &Key) -> Result<(), BlobError>;
    /// The store in a few words for messages, without secrets: `fs:/data/blob`, `s3://bucket at https://…`.
    fn describe(&self) -> String;
}

/// The serialised configuration of a blob store, as a control plane hands it to an agent.
///
/// JSON keys: `backend` (`fs` or `s3`), `fsRoot`, `endpoint`, `region`, `bucket`, `accessKey`, `secretKey`,
/// `forcePathStyle`, each left out when empty.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Spec {
    /// `fs` or `s3`; empty: nothing is configured.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub backend: String,
    /// The root folder of `fs`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fs_root: String,
    /// The URL of an S3 server; empty: AWS.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint: String,
    /// The S3 region.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// The S3 bucket.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bucket: String,
    /// The S3 access key id; empty: the default credential chain.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub access_key: String,
    /// The S3 secret key. Never printed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secret_key: String,
    /// Whether the bucket stands in the path of a URL rather than in its host name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub force_path_style: bool,
}

/// Opens the store that a specification describes.
pub fn from_spec(_spec: &Spec) -> Result<Arc<dyn Blob>, BlobError> {
    Err(BlobError::Config("not built yet".into()))
}
