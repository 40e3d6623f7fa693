//! A store in a bucket of S3, or of a server that speaks S3: MinIO, Garage, R2, B2, Supabase, SeaweedFS.
//!
//! | part | what it is |
//! |---|---|
//! | `client` | the SDK's client: credentials, region, timeouts, retries, checksums |
//! | `engine` | a runtime of its own, so that callers may block |
//! | `upload` | puts: whole, or in pieces that are aborted on failure |
//! | `read` | gets: fetched ahead, gone on with when they break off |
//! | `condition` | conditional puts, and whether the store keeps to them |
//! | `failure` | errors in words |
//!
//! Nothing is asked of the bucket when the store is opened. It must exist; it is neither made nor set up here.

mod client;
mod condition;
mod engine;
mod failure;
mod read;
mod upload;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use aws_sdk_s3::Client;
use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::types::{Delete, ObjectIdentifier};

use self::condition::Outcome;
use self::engine::Engine;
use self::failure::Failure;
use self::read::{Object, ObjectReader};
use super::{Blob, BlobError, Body, Condition, Key, ObjectInfo, Spec, Version};

/// The most keys that S3 deletes at once.
const KEYS_PER_DELETE: usize = 1000;

/// A store in a bucket.
pub struct S3 {
    client: Client,
    engine: Arc<Engine>,
    bucket: String,
    /// For messages.
    place: String,
    conditional: OnceLock<bool>,
}

impl S3 {
    /// Opens the bucket that a specification names. Nothing is sent yet, so that a wrong key shows at the first use.
    pub fn open(spec: &Spec) -> Result<S3, BlobError> {
        let engine = Engine::start()
            .map_err(|error| BlobError::Config(format!("cannot start the S3 client's threads: {error}")))?;
        let (client, region) = engine.wait(client::client(spec.clone()));
        let place = match spec.endpoint.as_str() {
            "" => format!("s3://{} in {region}", spec.bucket),
            endpoint => format!("s3://{} at {endpoint}", spec.bucket),
        };
        Ok(S3 {
            client,
            engine: Arc::new(engine),
            bucket: spec.bucket.clone(),
            place,
            conditional: OnceLock::new(),
        })
    }

    /// Waits for the answer to a request.
    fn ask<T, E>(
        &self,
        request: impl Future<Output = Result<T, SdkError<E, HttpResponse>>> + Send + 'static,
    ) -> Result<T, Failure>
    where
        T: Send + 'static,
        E: ProvideErrorMetadata + Error + 'static,
    {
        self.engine.wait(async { request.await.map_err(Failure::from) })
    }

    fn object(&self, key: &Key) -> Object {
        Object {
            client: self.client.clone(),
            bucket: self.bucket.clone(),
            key: key.to_string(),
        }
    }

    /// Opens an object, and tells the version that is read.
    fn open_object(&self, key: &Key) -> Result<(ObjectReader, Option<String>), BlobError> {
        let object = self.object(key);
        let opened = self.engine.wait(async move { (object.open().await, object) });
        match opened {
            (Ok(opened), object) => {
                let etag = opened.e_tag().map(str::to_owned);
                Ok((ObjectReader::new(&self.engine, object, opened), etag))
            }
            (Err(failure), _) if failure.is_absence() => Err(BlobError::NotFound {
                key: key.to_string(),
                store: self.describe(),
            }),
            (Err(failure), _) => Err(self.failed("get", key, failure)),
        }
    }

    fn list_page(&self, prefix: &str, token: Option<String>) -> Result<Page, Failure> {
        let request = self.client.list_objects_v2().bucket(&self.bucket).prefix(prefix);
        let page = self.ask(request.set_continuation_token(token).send())?;
        let next = match (page.is_truncated(), page.next_continuation_token) {
            (Some(true), None) => return Err(Failure::new("the server does not say where its list goes on")),
            (Some(true), token) => token,
            _ => None,
        };
        let objects = page.contents.unwrap_or_default().into_iter();
        let objects = objects.filter_map(|object| {
            Some(ObjectInfo {
                // Others may keep objects in the bucket that no key of ours names.
                key: Key::new(object.key?).ok()?,
                size: object.size.and_then(|size| u64::try_from(size).ok())?,
                // An object of unknown age must not pass for an old one.
                modified: object
                    .last_modified
                    .and_then(|time| SystemTime::try_from(time).ok())
                    .unwrap_or_else(SystemTime::now),
            })
        });
        Ok(Page {
            objects: objects.collect(),
            next,
        })
    }

    fn delete_object(&self, key: &Key) -> Result<(), Failure> {
        let request = self.client.delete_object().bucket(&self.bucket).key(key.as_str());
        match self.ask(request.send()) {
            Err(failure) if failure.is_absence() => Ok(()),
            deleted => deleted.map(|_| ()),
        }
    }

    /// Deletes up to [`KEYS_PER_DELETE`] objects at once, and returns those keys that the server did not delete.
    fn delete_objects<'a>(&self, keys: &'a [Key]) -> Result<Vec<&'a Key>, Failure> {
        let ids = keys
            .iter()
            .map(|key| ObjectIdentifier::builder().key(key.as_str()).build());
        let ids: Result<Vec<_>, _> = ids.collect();
        let delete = ids.and_then(|ids| Delete::builder().set_objects(Some(ids)).quiet(true).build());
        let delete = delete.map_err(|error| Failure::new(error.to_string()))?;
        let request = self.client.delete_objects().bucket(&self.bucket).delete(delete);
        let deleted = self.ask(request.send())?;
        let refused = |key: &&Key| {
            let mut errors = deleted.errors().iter();
            errors.any(|error| error.key() == Some(key.as_str()))
        };
        Ok(keys.iter().filter(refused).collect())
    }

    fn failed(&self, operation: &'static str, key: impl fmt::Display, failure: Failure) -> BlobError {
        self.io(operation, key, failure.into_io())
    }

    fn io(&self, operation: &'static str, key: impl fmt::Display, source: io::Error) -> BlobError {
        BlobError::Io {
            operation,
            key: key.to_string(),
            store: self.describe(),
            source,
        }
    }
}

/// One answer to a listing.
struct Page {
    objects: Vec<ObjectInfo>,
    /// Where the next one starts.
    next: Option<String>,
}

impl Blob for S3 {
    fn put(&self, key: &Key, body: Body<'_>) -> Result<(), BlobError> {
        upload::store(self, key, body).map_err(|error| self.io("put", key, error))
    }

    fn get(&self, key: &Key) -> Result<Box<dyn Read + Send>, BlobError> {
        let (reader, _) = self.open_object(key)?;
        Ok(Box::new(reader))
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, BlobError> {
        if !Key::may_start_with(prefix) {
            return Ok(Vec::new());
        }
        let mut objects = Vec::new();
        let mut token = None;
        loop {
            let page = self.list_page(prefix, token);
            let page = page.map_err(|failure| self.failed("list", prefix, failure))?;
            objects.extend(page.objects);
            if page.next.is_none() {
                break;
            }
            token = page.next;
        }
        // Not every server orders its list by the bytes of the keys.
        objects.sort_unstable_by(|a, b| a.key.cmp(&b.key));
        Ok(objects)
    }

    fn delete(&self, key: &Key) -> Result<(), BlobError> {
        let deleted = self.delete_object(key);
        deleted.map_err(|failure| self.failed("delete", key, failure))
    }

    fn delete_all(&self, keys: &[Key]) -> Result<(), BlobError> {
        for keys in keys.chunks(KEYS_PER_DELETE) {
            let left = match self.delete_objects(keys) {
                Ok(left) => left,
                // Some stores have no such request, or want it with a checksum that the SDK does not send.
                Err(failure) if failure.is_answer() => keys.iter().collect(),
                Err(failure) => return Err(self.failed("delete", &keys[0], failure)),
            };
            for key in left {
                self.delete(key)?;
            }
        }
        Ok(())
    }

    fn conditional(&self) -> Result<bool, BlobError> {
        if let Some(known) = self.conditional.get() {
            return Ok(*known);
        }
        let probed = condition::probe(self);
        let probed = probed.map_err(|failure| self.failed("put", "_setu/probe-…", failure))?;
        Ok(*self.conditional.get_or_init(|| probed))
    }

    fn get_versioned(&self, key: &Key) -> Result<(Vec<u8>, Version), BlobError> {
        let (mut reader, etag) = self.open_object(key)?;
        let version = condition::version(etag).map_err(|failure| self.failed("get", key, failure))?;
        let mut bytes = Vec::new();
        let read = reader.read_to_end(&mut bytes);
        read.map_err(|error| self.io("get", key, error))?;
        Ok((bytes, version))
    }

    fn put_if(&self, key: &Key, bytes: &[u8], condition: Condition<'_>) -> Result<Version, BlobError> {
        match condition::put_if(self, key.as_str(), bytes, condition) {
            Ok(Outcome::Stored(version)) => Ok(version),
            Ok(Outcome::Conflict) => Err(BlobError::Conflict {
                key: key.to_string(),
                store: self.describe(),
            }),
            Err(failure) => Err(self.failed("put", key, failure)),
        }
    }

    fn describe(&self) -> String {
        self.place.clone()
    }
}

impl fmt::Debug for S3 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("S3").field(&self.place).finish()
    }
}
