//! Puts under a condition, and whether the store keeps to conditions.

use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;

use super::S3;
use super::failure::Failure;
use crate::blob::{Condition, Key, Version};

/// Under this name each conditional put leaves a token of its own with the object. An attempt whose answer was lost
/// is made again, and then fails on its own success: the token tells that from somebody else's.
const TOKEN: &str = "setu-put";

/// What an object that exists nowhere would have for an ETag.
const NO_ETAG: &str = "\"00000000000000000000000000000000\"";

/// What became of a conditional put.
pub(super) enum Outcome {
    Stored(Version),
    Conflict,
}

/// Stores an object if the condition holds.
pub(super) fn put_if(s3: &S3, key: &str, bytes: &[u8], condition: Condition<'_>) -> Result<Outcome, Failure> {
    let token = format!("{:032x}", fastrand::u128(..));
    let request = s3.client.put_object().bucket(&s3.bucket).key(key);
    let request = request.metadata(TOKEN, &token);
    let request = request.body(ByteStream::from(Bytes::copy_from_slice(bytes)));
    let (request, absence_conflicts) = match condition {
        Condition::Absent => (request.if_none_match("*"), false),
        Condition::Unchanged(version) => (request.if_match(version.as_str()), true),
    };
    let stored = s3.ask(request.send());
    match stored {
        Ok(stored) => version(stored.e_tag).map(Outcome::Stored),
        Err(failure) if failure.is_conflict() || (absence_conflicts && failure.is_absence()) => {
            own_put(s3, key, &token)
        }
        Err(failure) => Err(failure),
    }
}

/// Looks whether the object is the one that this put stored.
fn own_put(s3: &S3, key: &str, token: &str) -> Result<Outcome, Failure> {
    let request = s3.client.head_object().bucket(&s3.bucket).key(key);
    let found = s3.ask(request.send());
    match found {
        Ok(found) => {
            let stored = found.metadata().and_then(|metadata| metadata.get(TOKEN));
            match stored.is_some_and(|stored| stored == token) {
                true => version(found.e_tag).map(Outcome::Stored),
                false => Ok(Outcome::Conflict),
            }
        }
        // Deleted since.
        Err(failure) if failure.is_absence() => Ok(Outcome::Conflict),
        Err(failure) => Err(failure),
    }
}

/// The version that an ETag stands for.
pub(super) fn version(etag: Option<String>) -> Result<Version, Failure> {
    let etag = etag.filter(|etag| !etag.is_empty());
    etag.map(Version::new)
        .ok_or_else(|| Failure::new("the server gives the object no ETag"))
}

/// Finds out whether the store keeps to conditions: some take a conditional put and ignore the condition. Both kinds
/// of condition are tried on an object that nobody else knows.
pub(super) fn probe(s3: &S3) -> Result<bool, Failure> {
    let key = format!("_setu/probe-{:032x}", fastrand::u128(..));
    let kept = probe_on(s3, &key);
    if let Ok(key) = Key::new(key)
        && let Err(error) = s3.delete_object(&key)
    {
        tracing::debug!(%key, "a probe stays behind: {}", error.into_io());
    }
    match kept {
        Ok(kept) => Ok(kept),
        Err(failure) if failure.refuses_conditions() => {
            tracing::debug!("no conditional puts: {}", failure.into_io());
            Ok(false)
        }
        Err(failure) => Err(failure),
    }
}

fn probe_on(s3: &S3, key: &str) -> Result<bool, Failure> {
    let Outcome::Stored(first) = put_if(s3, key, b"1", Condition::Absent)? else {
        return Ok(false);
    };
    let other = Version::new(NO_ETAG);
    for condition in [Condition::Absent, Condition::Unchanged(&other)] {
        if let Outcome::Stored(_) = put_if(s3, key, b"2", condition)? {
            return Ok(false);
        }
    }
    let replaced = put_if(s3, key, b"3", Condition::Unchanged(&first))?;
    Ok(matches!(replaced, Outcome::Stored(_)))
}
