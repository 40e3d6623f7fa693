//! Small objects that are read and replaced whole, in stores with and without conditional puts.

use std::io::Read;

use super::{Blob, BlobError, Body, Condition, Key, Version};

/// What is known of an object that may be replaced.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// The store has no conditional puts: whatever is there is replaced.
    Anything,
    /// There was none.
    Nothing,
    /// The object of this version.
    Version(Version),
}

impl Seen {
    /// Whether the store refuses to replace anything else.
    pub(crate) fn guards(&self) -> bool {
        !matches!(self, Seen::Anything)
    }

    /// What is known of an object that nobody has looked at and that should not be there.
    pub(crate) fn nothing(blob: &dyn Blob) -> Result<Seen, BlobError> {
        Ok(match blob.conditional()? {
            true => Seen::Nothing,
            false => Seen::Anything,
        })
    }
}

/// Reads an object whole; none where there is none.
pub(crate) fn read(blob: &dyn Blob, key: &Key) -> Result<Option<Vec<u8>>, BlobError> {
    let mut bytes = Vec::new();
    let read = match blob.get(key) {
        Ok(mut object) => object.read_to_end(&mut bytes),
        Err(BlobError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error),
    };
    match read {
        Ok(_) => Ok(Some(bytes)),
        Err(source) => Err(BlobError::Io {
            operation: "get",
            key: key.to_string(),
            store: blob.describe(),
            source,
        }),
    }
}

/// Reads an object that may be replaced afterwards.
pub(crate) fn look(blob: &dyn Blob, key: &Key) -> Result<(Option<Vec<u8>>, Seen), BlobError> {
    if !blob.conditional()? {
        return Ok((read(blob, key)?, Seen::Anything));
    }
    match blob.get_versioned(key) {
        Ok((bytes, version)) => Ok((Some(bytes), Seen::Version(version))),
        Err(BlobError::NotFound { .. }) => Ok((None, Seen::Nothing)),
        Err(error) => Err(error),
    }
}

/// Replaces an object, which is then the one that was seen.
///
/// # Errors
/// [`BlobError::Conflict`] where it is another one by now, and not one of these very bytes. A store without conditional
/// puts cannot tell.
pub(crate) fn replace(blob: &dyn Blob, key: &Key, bytes: &[u8], seen: &mut Seen) -> Result<(), BlobError> {
    let condition = match seen {
        Seen::Anything => return blob.put(key, Body::Bytes(bytes)),
        Seen::Nothing => Condition::Absent,
        Seen::Version(version) => Condition::Unchanged(version),
    };
    *seen = match blob.put_if(key, bytes, condition) {
        Ok(version) => Seen::Version(version),
        // An earlier try of the same put may have succeeded and its answer been lost.
        Err(error @ BlobError::Conflict { .. }) => match look(blob, key)? {
            (Some(stored), seen) if stored == bytes => seen,
            _ => return Err(error),
        },
        Err(error) => return Err(error),
    };
    Ok(())
}
