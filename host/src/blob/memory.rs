//! A store in memory, for tests and for trying things out. It is gone with the process.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::{Blob, BlobError, Body, Key, ObjectInfo, check_size};

/// A store in memory.
#[derive(Debug, Default)]
pub struct Memory {
    objects: Mutex<BTreeMap<Key, Object>>,
}

#[derive(Clone, Debug)]
struct Object {
    bytes: Arc<[u8]>,
    modified: SystemTime,
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Object>> {
        // The map is whole between statements, whatever another thread did.
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Blob for Memory {
    fn put(&self, key: &Key, body: Body<'_>) -> Result<(), BlobError> {
        let bytes = read_all(body).map_err(|source| BlobError::Io {
            operation: "put",
            key: key.to_string(),
            store: self.describe(),
            source,
        })?;
        let modified = SystemTime::now();
        self.lock().insert(key.clone(), Object { bytes, modified });
        Ok(())
    }

    fn get(&self, key: &Key) -> Result<Box<dyn Read + Send>, BlobError> {
        match self.lock().get(key) {
            Some(object) => Ok(Box::new(Cursor::new(Arc::clone(&object.bytes)))),
            None => Err(BlobError::NotFound {
                key: key.to_string(),
                store: self.describe(),
            }),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, BlobError> {
        let objects = self.lock();
        let from = (Bound::Included(prefix), Bound::Unbounded);
        Ok(objects
            .range::<str, _>(from)
            .take_while(|(key, _)| key.as_str().starts_with(prefix))
            .map(|(key, object)| ObjectInfo {
                key: key.clone(),
                size: object.bytes.len() as u64,
                modified: object.modified,
            })
            .collect())
    }

    fn delete(&self, key: &Key) -> Result<(), BlobError> {
        self.lock().remove(key);
        Ok(())
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}

fn read_all(body: Body<'_>) -> std::io::Result<Arc<[u8]>> {
    match body {
        Body::Bytes(bytes) => Ok(bytes.into()),
        Body::Reader(reader, size) => {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes)?;
            check_size(size, bytes.len() as u64)?;
            Ok(bytes.into())
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn conforms() {
        crate::blob::conformance::all(&super::Memory::new());
    }
}
