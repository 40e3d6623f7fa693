//! A store in a folder of the file system.
//!
//! The root is opened once; every key is resolved beneath that handle, so that neither a key nor a symbolic link
//! under the root leads outside. A put writes a temporary file in the object's own folder, syncs it, renames it over
//! the object and syncs the folder: readers and crashes see the old object or the new one.
//!
//! Temporary names hold a backslash, which no key does: they cannot collide with an object and are never listed.
//! A conditional put is one step among all conditional puts on this host: they take turns, by a lock (`flock`) on one
//! file in the root, which the kernel releases when a process dies. Creating an object is one step among plain puts as
//! well, in other hosts' too, because the file system itself refuses a second link of the same name. A plain put or
//! delete takes no turn, so it may fall between the comparison of a replacement and its rename: an object that is
//! replaced under conditions is to be replaced in no other way. Versions are hashes of what an object holds.
//!
//! What the file system cannot do is said when it is asked for: an object named like a folder of other objects, or a
//! segment of more than 255 bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions};
use sha2::{Digest, Sha256};

use super::{Blob, BlobError, Body, Condition, Key, ObjectInfo, Version, check_size};

/// How often a put starts over when the folder that it made is removed under it by a concurrent delete.
const PUT_ATTEMPTS: usize = 16;

/// The file in the root that conditional puts lock. Like a temporary's, its name is no key's.
const LOCK_FILE: &str = ".lock\\put-if";

/// A store in a folder.
#[derive(Debug)]
pub struct Fs {
    root: Dir,
    path: PathBuf,
}

impl Fs {
    /// Opens a folder as a store and creates it, with its parents, when it is missing.
    pub fn open(root: impl AsRef<Path>) -> Result<Fs, BlobError> {
        let path = root.as_ref();
        let error = |what: &str, e: io::Error| {
            BlobError::Config(format!(
                "cannot {what} the folder `{}` (fsRoot): {e}",
                path.display()
            ))
        };
        std::fs::create_dir_all(path).map_err(|e| error("create", e))?;
        let root = Dir::open_ambient_dir(path, ambient_authority()).map_err(|e| error("open", e))?;
        Ok(Fs {
            root,
            path: path.to_owned(),
        })
    }

    fn io(&self, operation: &'static str, key: &str, source: io::Error) -> BlobError {
        BlobError::Io {
            operation,
            key: key.to_owned(),
            store: self.describe(),
            source,
        }
    }

    /// Opens an object; none where there is no regular file of that name.
    fn open_object(&self, key: &Key) -> io::Result<Option<File>> {
        // Asked before opening: a pipe would block, and a folder would fail only at the first read.
        let opened = match self.root.metadata(key.as_str()) {
            Ok(metadata) if metadata.is_file() => self.root.open(key.as_str()),
            Ok(_) => return Ok(None),
            Err(e) => Err(e),
        };
        match opened {
            Ok(file) => Ok(Some(file)),
            Err(e) if is_absence(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Opens the folder that a put writes to, creating what is missing and making the creation durable.
    fn open_or_create_folder(&self, path: &str) -> io::Result<Dir> {
        if path.is_empty() {
            return self.root.try_clone();
        }
        match self.root.open_dir(path) {
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            opened => return opened,
        }
        let mut folder = self.root.try_clone()?;
        for segment in path.split('/') {
            let created = match folder.create_dir(segment) {
                Ok(()) => true,
                Err(e) if e.kind() == ErrorKind::AlreadyExists => false,
                Err(e) => return Err(e),
            };
            let child = folder.open_dir(segment)?;
            if created {
                sync_folder(&folder)?;
            }
            folder = child;
        }
        Ok(folder)
    }

    fn put_under(&self, key: &Key, body: &mut Body<'_>, condition: Option<Condition<'_>>) -> io::Result<Put> {
        for _ in 0..PUT_ATTEMPTS {
            if let Step::Done(put) = self.put_once(key, body, condition)? {
                return Ok(put);
            }
        }
        Err(io::Error::other(
            "the folder is removed by someone else again and again",
        ))
    }

    fn put_once(&self, key: &Key, body: &mut Body<'_>, condition: Option<Condition<'_>>) -> io::Result<Step> {
        let (path, name) = split_key(key.as_str());
        let folder = match self.open_or_create_folder(path) {
            Ok(folder) => folder,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Step::FolderVanished),
            Err(e) => return Err(explain(e)),
        };
        let temporary = format!(".tmp\\{:016x}", fastrand::u64(..));
        let mut options = OpenOptions::new();
        let mut file = match folder.open_with(&temporary, options.write(true).create_new(true)) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Step::FolderVanished),
            Err(e) => return Err(e),
        };
        let put = write_body(&mut file, body)
            .and_then(|()| file.sync_all())
            .and_then(|()| self.place(&folder, &temporary, name, key, condition));
        if !matches!(put, Ok(Put::Stored)) || matches!(condition, Some(Condition::Absent)) {
            // What failed, failed already, and a temporary that stays behind is harmless.
            let _ = folder.remove_file(&temporary);
        }
        if let Put::Stored = put? {
            sync_folder(&folder)?;
            return Ok(Step::Done(Put::Stored));
        }
        Ok(Step::Done(Put::Conflict))
    }

    /// Gives a whole temporary file the object's name, if the condition holds.
    fn place(
        &self,
        folder: &Dir,
        temporary: &str,
        name: &str,
        key: &Key,
        condition: Option<Condition<'_>>,
    ) -> io::Result<Put> {
        let Some(condition) = condition else {
            folder.rename(temporary, folder, name).map_err(explain)?;
            return Ok(Put::Stored);
        };
        let _turn = self.lock()?;
        match condition {
            Condition::Absent => match folder.hard_link(temporary, folder, name) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => match folder.metadata(name) {
                    Ok(metadata) if metadata.is_dir() => Err(explain(ErrorKind::IsADirectory.into())),
                    _ => Ok(Put::Conflict),
                },
                linked => linked.map(|()| Put::Stored),
            },
            Condition::Unchanged(version) => {
                let Some(mut found) = self.open_object(key)? else {
                    return Ok(Put::Conflict);
                };
                let mut bytes = Vec::new();
                found.read_to_end(&mut bytes)?;
                if version_of(&bytes) != *version {
                    return Ok(Put::Conflict);
                }
                folder.rename(temporary, folder, name).map_err(explain)?;
                Ok(Put::Stored)
            }
        }
    }

    /// Waits for this conditional put's turn, which lasts until the file is closed.
    fn lock(&self) -> io::Result<std::fs::File> {
        let mut options = OpenOptions::new();
        let file = self
            .root
            .open_with(LOCK_FILE, options.write(true).create(true))?
            .into_std();
        file.lock()?;
        Ok(file)
    }

    /// Removes the folders above a deleted object that hold nothing any more, so that an object may take their name.
    fn remove_empty_folders(&self, key: &Key) {
        let mut path = key.as_str();
        while let Some((folder, _)) = path.rsplit_once('/') {
            // Fails where the folder is not empty, which is when to stop.
            if self.root.remove_dir(folder).is_err() {
                break;
            }
            path = folder;
        }
    }

    /// Adds the objects of a folder, given by its path with a trailing `/` or empty, to `found`.
    fn walk(&self, folder: &Dir, path: &str, prefix: &str, found: &mut Vec<ObjectInfo>) -> io::Result<()> {
        for entry in folder.entries()? {
            let entry = entry?;
            // A name that is not UTF-8 is no part of a key.
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let key = format!("{path}{name}");
            if !key.starts_with(prefix) && !prefix.starts_with(&key) {
                continue;
            }
            match self.visit(folder, &name, key, prefix, found) {
                // It was removed meanwhile.
                Err(e) if is_absence(&e) => {}
                visited => visited?,
            }
        }
        Ok(())
    }

    fn visit(
        &self,
        folder: &Dir,
        name: &str,
        key: String,
        prefix: &str,
        found: &mut Vec<ObjectInfo>,
    ) -> io::Result<()> {
        // Links are not followed: a link to a folder could make a circle, and nothing here writes any.
        let metadata = folder.symlink_metadata(name)?;
        if metadata.is_dir() {
            self.walk(&folder.open_dir(name)?, &format!("{key}/"), prefix, found)?;
        } else if metadata.is_file()
            && key.starts_with(prefix)
            // A temporary, or another file that no key names.
            && let Ok(key) = Key::new(key)
        {
            found.push(ObjectInfo {
                key,
                size: metadata.len(),
                modified: metadata.modified()?.into_std(),
            });
        }
        Ok(())
    }
}

/// What became of a put.
enum Put {
    Stored,
    Conflict,
}

/// What became of one attempt at a put.
enum Step {
    Done(Put),
    /// A concurrent delete removed the folder while it was empty; nothing of the body was read.
    FolderVanished,
}

impl Blob for Fs {
    fn put(&self, key: &Key, mut body: Body<'_>) -> Result<(), BlobError> {
        let put = self.put_under(key, &mut body, None);
        put.map(|_| ()).map_err(|e| self.io("put", key.as_str(), e))
    }

    fn get(&self, key: &Key) -> Result<Box<dyn Read + Send>, BlobError> {
        match self.open_object(key) {
            Ok(Some(file)) => Ok(Box::new(file)),
            Ok(None) => Err(BlobError::NotFound {
                key: key.to_string(),
                store: self.describe(),
            }),
            Err(e) => Err(self.io("get", key.as_str(), e)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, BlobError> {
        // Only the folder that the prefix names whole is walked.
        let (path, _) = split_key(prefix);
        if !path.is_empty() && Key::new(path).is_err() {
            return Ok(Vec::new()); // no key starts so
        }
        let mut found = Vec::new();
        let walked = if path.is_empty() {
            self.root
                .try_clone()
                .and_then(|folder| self.walk(&folder, "", prefix, &mut found))
        } else {
            self.root
                .open_dir(path)
                .and_then(|folder| self.walk(&folder, &format!("{path}/"), prefix, &mut found))
        };
        match walked {
            Err(e) if !is_absence(&e) => Err(self.io("list", prefix, e)),
            _ => {
                found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
                Ok(found)
            }
        }
    }

    fn delete(&self, key: &Key) -> Result<(), BlobError> {
        match self.root.symlink_metadata(key.as_str()) {
            Ok(metadata) if metadata.is_dir() => return Ok(()), // no object has this key
            Ok(_) => {}
            Err(e) if is_absence(&e) => return Ok(()),
            Err(e) => return Err(self.io("delete", key.as_str(), e)),
        }
        match self.root.remove_file(key.as_str()) {
            Err(e) if !is_absence(&e) => Err(self.io("delete", key.as_str(), e)),
            _ => {
                self.remove_empty_folders(key);
                Ok(())
            }
        }
    }

    fn conditional(&self) -> Result<bool, BlobError> {
        Ok(true)
    }

    fn get_versioned(&self, key: &Key) -> Result<(Vec<u8>, Version), BlobError> {
        let mut bytes = Vec::new();
        let read = self.get(key)?.read_to_end(&mut bytes);
        read.map_err(|e| self.io("get", key.as_str(), e))?;
        let version = version_of(&bytes);
        Ok((bytes, version))
    }

    fn put_if(&self, key: &Key, bytes: &[u8], condition: Condition<'_>) -> Result<Version, BlobError> {
        match self.put_under(key, &mut Body::Bytes(bytes), Some(condition)) {
            Ok(Put::Stored) => Ok(version_of(bytes)),
            Ok(Put::Conflict) => Err(BlobError::Conflict {
                key: key.to_string(),
                store: self.describe(),
            }),
            Err(e) => Err(self.io("put", key.as_str(), e)),
        }
    }

    fn describe(&self) -> String {
        format!("fs:{}", self.path.display())
    }
}

/// Splits a key or prefix into its folder and the rest behind the last `/`.
fn split_key(key: &str) -> (&str, &str) {
    key.rsplit_once('/').unwrap_or(("", key))
}

/// Whether an error says that there is no such object: it, or a folder on the way, is missing or is a file.
fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory
    )
}

/// Says in the words of a store what stands in the way of a put.
fn explain(error: io::Error) -> io::Error {
    let message = match error.kind() {
        ErrorKind::NotADirectory => "an object stands where the key has a folder",
        ErrorKind::IsADirectory | ErrorKind::DirectoryNotEmpty => "the key is a folder of other objects",
        ErrorKind::InvalidFilename => "a segment of the key is longer than the file system allows",
        _ => return error,
    };
    io::Error::new(error.kind(), message)
}

fn version_of(bytes: &[u8]) -> Version {
    let hash = Sha256::digest(bytes);
    Version::new(hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn write_body(file: &mut File, body: &mut Body<'_>) -> io::Result<()> {
    match body {
        Body::Bytes(bytes) => file.write_all(bytes),
        Body::Reader(reader, size) => {
            let written = io::copy(reader, file)?;
            check_size(*size, written)
        }
    }
}

/// Makes the names in a folder durable. The handle that resolves paths may not be one that can be synced, so the
/// folder is opened anew.
fn sync_folder(folder: &Dir) -> io::Result<()> {
    folder.open(".")?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::conformance;

    fn store() -> (tempfile::TempDir, Fs) {
        let folder = tempfile::tempdir().unwrap();
        let fs = Fs::open(folder.path().join("not/yet/there")).unwrap();
        (folder, fs)
    }

    fn key(text: &str) -> Key {
        Key::new(text).unwrap()
    }

    fn names(fs: &Fs, prefix: &str) -> Vec<String> {
        let listed = fs.list(prefix).unwrap();
        listed.into_iter().map(|o| o.key.to_string()).collect()
    }

    #[test]
    fn conforms() {
        conformance::all(&store().1);
    }

    #[test]
    fn temporaries_of_a_crashed_put_are_not_objects() {
        let (_folder, fs) = store();
        fs.put(&key("a/b"), Body::Bytes(b"1")).unwrap();
        std::fs::write(fs.path.join("a/.tmp\\0123456789abcdef"), b"half").unwrap();
        assert_eq!(names(&fs, ""), ["a/b"]);
        assert_eq!(names(&fs, "a/."), [""; 0]);
    }

    #[test]
    fn a_failed_put_leaves_the_old_object_and_no_temporary() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("the line went dead"))
            }
        }
        let (_folder, fs) = store();
        fs.put(&key("a/b"), Body::Bytes(b"old")).unwrap();
        let error = fs.put(&key("a/b"), Body::Reader(&mut Broken, None)).unwrap_err();
        assert!(
            conformance::told(&error).contains("the line went dead"),
            "{error:?}"
        );
        assert_eq!(std::fs::read(fs.path.join("a/b")).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(fs.path.join("a")).unwrap().count(), 1);
    }

    #[test]
    fn what_stands_in_the_way_of_a_put_is_named() {
        let (_folder, fs) = store();
        fs.put(&key("a/b"), Body::Bytes(b"1")).unwrap();
        let long = "x".repeat(300);
        for (target, reason) in [
            ("a", "the key is a folder of other objects"),
            ("a/b/c", "an object stands where the key has a folder"),
            (long.as_str(), "longer than the file system allows"),
        ] {
            let error = conformance::told(&fs.put(&key(target), Body::Bytes(b"2")).unwrap_err());
            assert!(error.contains(reason), "{error}");
            assert!(error.contains(&format!("`{target}` in fs:")), "{error}");
            assert!(error.contains("not/yet/there"), "{error}");
        }
        assert_eq!(names(&fs, ""), ["a/b"]);
    }

    #[test]
    fn a_folder_is_no_object() {
        let (_folder, fs) = store();
        fs.put(&key("a/b"), Body::Bytes(b"1")).unwrap();
        for absent in ["a", "a/b/c"] {
            assert!(
                matches!(fs.get(&key(absent)), Err(BlobError::NotFound { .. })),
                "{absent}"
            );
            fs.delete(&key(absent)).unwrap();
        }
        assert_eq!(names(&fs, ""), ["a/b"]);
        fs.delete(&key("a/b")).unwrap();
        fs.put(&key("a"), Body::Bytes(b"2")).unwrap();
        assert_eq!(names(&fs, ""), ["a"]);
    }

    #[test]
    fn no_link_leads_outside() {
        let (outside, fs) = store();
        std::fs::write(outside.path().join("secret"), b"s").unwrap();
        std::os::unix::fs::symlink(outside.path(), fs.path.join("folder")).unwrap();
        std::os::unix::fs::symlink(outside.path().join("secret"), fs.path.join("file")).unwrap();
        for outside in ["folder/secret", "file"] {
            assert!(fs.get(&key(outside)).is_err(), "{outside}");
        }
        assert!(fs.put(&key("folder/new"), Body::Bytes(b"1")).is_err());
        assert!(fs.delete(&key("folder/secret")).is_err());
        assert!(names(&fs, "").is_empty());
        assert!(fs.list("folder/").is_err());
        // A link that is overwritten or deleted is itself what goes, not what it points to.
        fs.put(&key("file"), Body::Bytes(b"mine")).unwrap();
        fs.delete(&key("folder")).unwrap();
        assert_eq!(names(&fs, ""), ["file"]);
        assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"s");
        assert!(!outside.path().join("new").exists());
    }

    #[test]
    fn conditional_puts_leave_nothing_but_the_object() {
        let (_folder, fs) = store();
        let version = fs.put_if(&key("a/k"), b"1", Condition::Absent).unwrap();
        fs.put_if(&key("a/k"), b"2", Condition::Absent).unwrap_err();
        fs.put_if(&key("a/k"), b"2", Condition::Unchanged(&version))
            .unwrap();
        fs.put_if(&key("a/k"), b"3", Condition::Unchanged(&version))
            .unwrap_err();
        assert_eq!(names(&fs, ""), ["a/k"]);
        assert_eq!(std::fs::read_dir(fs.path.join("a")).unwrap().count(), 1);
        let error = fs.put_if(&key("a"), b"1", Condition::Absent).unwrap_err();
        assert!(
            conformance::told(&error).contains("a folder of other objects"),
            "{error:?}"
        );
    }

    /// Threads share a process's open files; locks must hold between handles all the same.
    #[test]
    fn conditional_puts_through_several_handles_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let start = Fs::open(folder.path()).unwrap();
        start.put(&key("count"), Body::Bytes(b"0")).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let fs = Fs::open(folder.path()).unwrap();
                scope.spawn(move || {
                    let mut left = 25;
                    while left > 0 {
                        let (bytes, version) = fs.get_versioned(&key("count")).unwrap();
                        let count: u32 = String::from_utf8(bytes).unwrap().parse().unwrap();
                        let next = (count + 1).to_string();
                        match fs.put_if(&key("count"), next.as_bytes(), Condition::Unchanged(&version)) {
                            Ok(_) => left -= 1,
                            Err(BlobError::Conflict { .. }) => {}
                            Err(error) => panic!("{error:?}"),
                        }
                    }
                });
            }
        });
        assert_eq!(start.get_versioned(&key("count")).unwrap().0, b"100");
    }

    #[test]
    fn a_root_that_cannot_be_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), b"").unwrap();
        let error = Fs::open(folder.path().join("file")).unwrap_err().to_string();
        assert!(error.contains("fsRoot") && error.contains("file"), "{error}");
    }

    #[test]
    fn puts_and_deletes_in_one_folder_do_not_disturb_each_other() {
        let (_folder, fs) = store();
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let fs = &fs;
                scope.spawn(move || {
                    let key = key(&format!("deep/er/{worker}"));
                    for _ in 0..50 {
                        fs.put(&key, Body::Bytes(b"x")).unwrap();
                        assert!(fs.get(&key).is_ok());
                        fs.delete(&key).unwrap();
                    }
                });
            }
        });
        assert!(names(&fs, "").is_empty());
    }
}
