//! What keeps two attempts at one stream apart.
//!
//! A process that was taken for dead may go on writing. Each write of it is checked first, against what the runner knows
//! of a successor. Between that check and the write there is a gap; a store with conditional puts closes it, as a write
//! then also depends on what this attempt saw or wrote last under the key.

use std::sync::Arc;

use crate::blob::{Blob, BlobError, Body, Condition, Key, Version};
use crate::connector::{Error, ErrorKind, Result};

/// Asked before everything that one attempt makes durable.
pub trait Fence: Send + Sync {
    /// An error of kind [`ErrorKind::Conflict`], which says who has taken over, once this attempt must write no more.
    fn check(&self) -> Result<()>;
}

/// No other attempt is possible.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unfenced;

impl Fence for Unfenced {
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// The objects of one stream, as one attempt writes them.
#[derive(Clone)]
pub(super) struct Fenced {
    blob: Arc<dyn Blob>,
    fence: Arc<dyn Fence>,
    conditional: bool,
}

/// An object that this attempt replaces again and again: what it was when the attempt saw or wrote it last.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    key: Key,
    /// None: there was no object, or the store cannot tell.
    version: Option<Version>,
}

impl Fenced {
    pub(super) fn new(blob: Arc<dyn Blob>, fence: Arc<dyn Fence>) -> Result<Self> {
        let conditional = blob.conditional()?;
        Ok(Fenced {
            blob,
            fence,
            conditional,
        })
    }

    /// Reads an object that this attempt goes on to own, and what it holds.
    pub(super) fn own(&self, key: Key) -> Result<(Owned, Option<Vec<u8>>)> {
        let found = if self.conditional {
            self.blob
                .get_versioned(&key)
                .map(|(bytes, version)| (bytes, Some(version)))
        } else {
            self.blob.get(&key).and_then(|mut object| {
                let mut bytes = Vec::new();
                let read = object.read_to_end(&mut bytes);
                read.map_err(|source| BlobError::Io {
                    operation: "get",
                    key: key.to_string(),
                    store: self.blob.describe(),
                    source,
                })?;
                Ok((bytes, None))
            })
        };
        match found {
            Ok((bytes, version)) => Ok((Owned { key, version }, Some(bytes))),
            Err(BlobError::NotFound { .. }) => Ok((Owned { key, version: None }, None)),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces an object that this attempt owns.
    pub(super) fn replace(&self, owned: &mut Owned, bytes: &[u8]) -> Result<()> {
        self.fence.check()?;
        if !self.conditional {
            return Ok(self.blob.put(&owned.key, Body::Bytes(bytes))?);
        }
        let condition = owned
            .version
            .as_ref()
            .map_or(Condition::Absent, Condition::Unchanged);
        owned.version = Some(match self.blob.put_if(&owned.key, bytes, condition) {
            Ok(version) => version,
            Err(error) => self.stored_after_all(&owned.key, bytes, error)?,
        });
        Ok(())
    }

    /// Stores an object that only this attempt should write; what lies there already is the rest of an earlier one.
    pub(super) fn create(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.fence.check()?;
        if !self.conditional {
            return Ok(self.blob.put(key, Body::Bytes(bytes))?);
        }
        match self.blob.put_if(key, bytes, Condition::Absent) {
            Ok(_) => return Ok(()),
            Err(BlobError::Conflict { .. }) => {}
            Err(error) => return self.stored_after_all(key, bytes, error).map(|_| ()),
        }
        let (mut owned, stored) = self.own(key.clone())?;
        if stored.as_deref() == Some(bytes) {
            return Ok(());
        }
        // Whoever wrote it has been overtaken by this attempt, or has overtaken it: the check tells.
        self.replace(&mut owned, bytes)
    }

    /// The version of what was put, where the put succeeded and its answer was lost; otherwise its error.
    fn stored_after_all(&self, key: &Key, bytes: &[u8], error: BlobError) -> Result<Version> {
        match self.blob.get_versioned(key) {
            Ok((stored, version)) if stored == bytes => Ok(version),
            _ if matches!(error, BlobError::Conflict { .. }) => {
                self.fence.check()?;
                let message = format!("{error}: another process works on the same run, so this one stops");
                Err(Error::new(ErrorKind::Conflict, message))
            }
            _ => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::blob::Memory;

    #[derive(Default)]
    struct Switch(AtomicBool);

    impl Fence for Switch {
        fn check(&self) -> Result<()> {
            match self.0.load(Ordering::Relaxed) {
                true => Err(Error::new(ErrorKind::Conflict, "overtaken")),
                false => Ok(()),
            }
        }
    }

    fn key() -> Key {
        Key::new("a/b").expect("a key")
    }

    #[test]
    fn what_another_wrote_meanwhile_is_not_replaced() {
        let blob: Arc<dyn Blob> = Arc::new(Memory::default());
        let fenced = Fenced::new(blob.clone(), Arc::new(Unfenced)).expect("a fence");
        let (mut zombie, nothing) = fenced.own(key()).expect("nothing");
        assert_eq!(nothing, None);
        fenced.replace(&mut zombie, b"1").expect("the first write");
        let (mut successor, found) = fenced.own(key()).expect("an object");
        assert_eq!(found.as_deref(), Some(&b"1"[..]));
        fenced
            .replace(&mut successor, b"2")
            .expect("it is the successor's");
        let error = fenced.replace(&mut zombie, b"3").expect_err("it was overtaken");
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.message().contains("`a/b`"), "{error}");
        fenced
            .replace(&mut successor, b"4")
            .expect("it is still the successor's");
        assert_eq!(
            fenced.own(key()).expect("an object").1.as_deref(),
            Some(&b"4"[..])
        );
    }

    #[test]
    fn nothing_is_written_once_the_fence_is_closed() {
        let blob: Arc<dyn Blob> = Arc::new(Memory::default());
        let switch = Arc::new(Switch::default());
        let fenced = Fenced::new(blob.clone(), switch.clone()).expect("a fence");
        fenced.create(&key(), b"1").expect("it is open");
        switch.0.store(true, Ordering::Relaxed);
        assert!(fenced.create(&key(), b"2").is_err());
        assert!(
            fenced
                .replace(&mut fenced.own(key()).expect("an object").0, b"2")
                .is_err()
        );
        assert_eq!(
            fenced.own(key()).expect("an object").1.as_deref(),
            Some(&b"1"[..])
        );
    }

    #[test]
    fn the_rest_of_an_earlier_attempt_is_replaced() {
        let blob: Arc<dyn Blob> = Arc::new(Memory::default());
        let fenced = Fenced::new(blob.clone(), Arc::new(Unfenced)).expect("a fence");
        blob.put(&key(), Body::Bytes(b"garbage")).expect("a put");
        fenced.create(&key(), b"part").expect("it is replaced");
        assert_eq!(
            fenced.own(key()).expect("an object").1.as_deref(),
            Some(&b"part"[..])
        );
        fenced.create(&key(), b"part").expect("it is there already");
    }
}
