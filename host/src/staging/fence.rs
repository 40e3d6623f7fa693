//! What keeps two attempts at one stream apart.
//!
//! A process that was taken for dead may go on writing. Each write of it is checked first, against what the runner knows
//! of a successor. Between that check and the write there is a gap; a store with conditional puts closes it, as a write
//! then also depends on what this attempt saw or wrote last under the key.

use std::sync::Arc;

use crate::blob::object::{self, Seen};
use crate::blob::{Blob, BlobError, Key};
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
    /// What is known of an object that only this attempt should write.
    nothing: Seen,
}

/// An object that this attempt replaces again and again: what it was when the attempt saw or wrote it last.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    key: Key,
    seen: Seen,
}

impl Fenced {
    pub(super) fn new(blob: Arc<dyn Blob>, fence: Arc<dyn Fence>) -> Result<Self> {
        let nothing = Seen::nothing(&*blob)?;
        Ok(Fenced { blob, fence, nothing })
    }

    /// Reads an object that this attempt goes on to own, and what it holds.
    pub(super) fn own(&self, key: Key) -> Result<(Owned, Option<Vec<u8>>)> {
        let (bytes, seen) = object::look(&*self.blob, &key)?;
        Ok((Owned { key, seen }, bytes))
    }

    /// Replaces an object that this attempt owns.
    pub(super) fn replace(&self, owned: &mut Owned, bytes: &[u8]) -> Result<()> {
        self.fence.check()?;
        object::replace(&*self.blob, &owned.key, bytes, &mut owned.seen).map_err(|error| self.refused(error))
    }

    /// Stores an object that only this attempt should write; what lies there already is the rest of an earlier one.
    pub(super) fn create(&self, key: &Key, bytes: &[u8]) -> Result<()> {
        self.fence.check()?;
        match object::replace(&*self.blob, key, bytes, &mut self.nothing.clone()) {
            // Whoever wrote it has been overtaken by this attempt, or has overtaken it: the check tells.
            Err(BlobError::Conflict { .. }) => self.replace(&mut self.own(key.clone())?.0, bytes),
            stored => Ok(stored?),
        }
    }

    /// Why an object could not be replaced.
    fn refused(&self, error: BlobError) -> Error {
        if !matches!(error, BlobError::Conflict { .. }) {
            return error.into();
        }
        self.fence.check().err().unwrap_or_else(|| {
            let message = format!("{error}: another process works on the same run, so this one stops");
            Error::new(ErrorKind::Conflict, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::blob::{Body, Memory};

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
