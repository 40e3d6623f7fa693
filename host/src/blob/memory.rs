//! A store in memory, for tests and for trying things out. It is gone with the process.

use std::collections::BTreeMap;
use std::io::{Cursor, Read};
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::{Blob, BlobError, Body, Condition, Key, ObjectInfo, Version, check_size};

/// A store in memory.
#[derive(Debug, Default)]
pub struct Memory {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<Key, Object>,
    /// How many puts there were: each makes a version of its own.
    puts: u64,
}

#[derive(Clone, Debug)]
struct Object {
    bytes: Arc<[u8]>,
    modified: SystemTime,
    put: u64,
}

impl Object {
    fn version(&self) -> Version {
        Version::new(self.put.to_string())
    }
}

impl State {
    fn put(&mut self, key: &Key, bytes: Arc<[u8]>) -> Version {
        self.puts += 1;
        let object = Object {
            bytes,
            modified: SystemTime::now(),
            put: self.puts,
        };
        let version = object.version();
        self.objects.insert(key.clone(), object);
        version
    }
}

impl Memory {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between statements, whatever another thread did.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &Key) -> Result<Object, BlobError> {
        let object = self.lock().objects.get(key).cloned();
        object.ok_or_else(|| BlobError::NotFound {
            key: key.to_string(),
            store: self.describe(),
        })
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
        self.lock().put(key, bytes);
        Ok(())
    }

    fn get(&self, key: &Key) -> Result<Box<dyn Read + Send>, BlobError> {
        Ok(Box::new(Cursor::new(self.find(key)?.bytes)))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, BlobError> {
        let objects = &self.lock().objects;
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
        self.lock().objects.remove(key);
        Ok(())
    }

    fn conditional(&self) -> Result<bool, BlobError> {
        Ok(true)
    }

    fn get_versioned(&self, key: &Key) -> Result<(Vec<u8>, Version), BlobError> {
        let object = self.find(key)?;
        Ok((object.bytes.to_vec(), object.version()))
    }

    fn put_if(&self, key: &Key, bytes: &[u8], condition: Condition<'_>) -> Result<Version, BlobError> {
        let mut state = self.lock();
        let holds = match (condition, state.objects.get(key)) {
            (Condition::Absent, object) => object.is_none(),
            (Condition::Unchanged(version), object) => {
                object.is_some_and(|found| found.version() == *version)
            }
        };
        match holds {
            true => Ok(state.put(key, bytes.into())),
            false => Err(BlobError::Conflict {
                key: key.to_string(),
                store: self.describe(),
            }),
        }
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

/// A store without conditional puts.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Plain(Memory);

#[cfg(test)]
impl Blob for Plain {
    fn put(&self, key: &Key, body: Body<'_>) -> Result<(), BlobError> {
        self.0.put(key, body)
    }

    fn get(&self, key: &Key) -> Result<Box<dyn Read + Send>, BlobError> {
        self.0.get(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<crate::blob::ObjectInfo>, BlobError> {
        self.0.list(prefix)
    }

    fn delete(&self, key: &Key) -> Result<(), BlobError> {
        self.0.delete(key)
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn conforms() {
        crate::blob::conformance::all(&super::Memory::new());
    }
}
