//! Compiled code on disk: compiling is the only slow part of starting a connector.
//!
//! An entry is named after what it was compiled from and for: the component's digest and everything about the engine
//! that shapes code. Loading one runs native code from a file, so only a folder that nobody else can write to is
//! used; any doubt about it means compiling in memory, never a failure.
//!
//! `unsafe` stands here once: wasmtime cannot check that a file holds what its compiler wrote. It is sound because
//! the file lies in a folder that belongs to this user and that no one else can write to (checked on opening the
//! cache), because only this module writes there, whole files only, and because whoever can write to it can already
//! run code as this user.

use std::fs;
use std::hash::{Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};
use wasmtime::Engine;
use wasmtime::component::Component;

use super::bounded::within;

/// The digest at the end of each entry: it finds damage, which native code would not survive.
const DIGEST_BYTES: usize = 32;

/// A folder of compiled components, if there is one that can be trusted.
pub(super) struct Cache {
    folder: Option<PathBuf>,
}

impl Cache {
    /// In this folder, or in the user's cache folder.
    pub(super) fn new(folder: Option<PathBuf>) -> Cache {
        let Some(folder) = folder.or_else(default_folder) else {
            return Cache { folder: None };
        };
        match prepare(&folder) {
            Ok(()) => Cache { folder: Some(folder) },
            Err(reason) => {
                tracing::warn!(
                    "compiled connectors are not kept in {}: {reason}",
                    folder.display()
                );
                Cache { folder: None }
            }
        }
    }

    /// The folder, as it is without links.
    pub(super) fn folder(&self) -> Option<PathBuf> {
        self.folder.as_ref()?.canonicalize().ok()
    }

    /// The component that these bytes are, from the cache or freshly compiled; none where compiling takes too long.
    pub(super) fn component(
        &self,
        engine: &Engine,
        bytes: &[u8],
        timeout: Duration,
    ) -> wasmtime::Result<Option<Component>> {
        let Some(folder) = &self.folder else {
            return compile(engine, bytes, timeout);
        };
        let entry = folder.join(format!("{}.cwasm", key(engine, bytes)));
        if let Some(component) = load(engine, &entry) {
            return Ok(Some(component));
        }
        let component = compile(engine, bytes, timeout)?;
        if let Some(Err(error)) = component.as_ref().map(|component| store(component, &entry)) {
            tracing::debug!("{} is not kept: {error}", entry.display());
        }
        Ok(component)
    }
}

fn compile(engine: &Engine, bytes: &[u8], timeout: Duration) -> wasmtime::Result<Option<Component>> {
    let (engine, bytes) = (engine.clone(), bytes.to_vec());
    within(timeout, move || Component::new(&engine, bytes)).transpose()
}

/// `$SETU_CACHE_DIR`, else `setu` in `$XDG_CACHE_HOME` or `~/.cache`.
fn default_folder() -> Option<PathBuf> {
    let variable = |name: &str| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    variable("SETU_CACHE_DIR")
        .or_else(|| Some(variable("XDG_CACHE_HOME")?.join("setu")))
        .or_else(|| Some(variable("HOME")?.join(".cache").join("setu")))
}

/// Makes the folder, for this user alone, or checks that it is such a folder.
#[cfg(unix)]
fn prepare(folder: &Path) -> Result<(), String> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};

    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
    made.map_err(|error| error.to_string())?;
    let found = fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    if !found.is_dir() {
        return Err("it is not a folder".to_owned());
    }
    let probe = tempfile_owner(folder)?;
    if found.uid() != probe {
        return Err("it belongs to another user".to_owned());
    }
    if found.mode() & 0o022 != 0 {
        return Err(format!(
            "others can write to it (mode {:o}); `chmod 700 {}` makes it usable",
            found.mode() & 0o777,
            folder.display()
        ));
    }
    // Whoever can rename a folder above it can put another one in its place. A sticky folder, such as /tmp, lets only
    // the owner do so.
    let real = folder.canonicalize().map_err(|error| error.to_string())?;
    for above in real.ancestors().skip(1) {
        let found = fs::metadata(above).map_err(|error| error.to_string())?;
        let open = found.mode() & 0o022 != 0 && found.mode() & 0o1000 == 0;
        if open || found.uid() != 0 && found.uid() != probe {
            return Err(format!("others can rename what lies in {}", above.display()));
        }
    }
    Ok(())
}

/// Who this process is, learnt from a file that it makes: the standard library does not say it.
#[cfg(unix)]
fn tempfile_owner(folder: &Path) -> Result<u32, String> {
    use std::os::unix::fs::MetadataExt;

    let probe = temporary(&folder.join("probe"));
    let made = fs::File::create_new(&probe).and_then(|file| file.metadata());
    let removed = fs::remove_file(&probe);
    let owner = made.map_err(|error| error.to_string())?.uid();
    removed.map_err(|error| error.to_string())?;
    Ok(owner)
}

/// Ownership cannot be checked here, so nothing is kept.
#[cfg(not(unix))]
fn prepare(_: &Path) -> Result<(), String> {
    Err("its ownership cannot be checked on this system".to_owned())
}

fn key(engine: &Engine, bytes: &[u8]) -> String {
    let mut digest = Digested(Sha256::new());
    engine.precompile_compatibility_hash().hash(&mut digest);
    digest.0.update(env!("CARGO_PKG_VERSION"));
    digest.0.update(Sha256::digest(bytes));
    digest
        .0
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Feeds what is hashed into a digest that is the same in every process.
struct Digested(Sha256);

impl Hasher for Digested {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        0 // Never asked: the digest itself is the result.
    }
}

fn load(engine: &Engine, entry: &Path) -> Option<Component> {
    let code = match read(entry) {
        Ok(Some(code)) => code,
        Ok(None) => {
            tracing::debug!("{} is damaged and compiled anew", entry.display());
            return None;
        }
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::debug!("{} is compiled anew: {error}", entry.display());
            }
            return None;
        }
    };
    // SAFETY: the file was written by `store` from wasmtime's own output into a folder that only this user can
    // write to, and is as it was written; see the module's header.
    match unsafe { Component::deserialize(engine, code) } {
        Ok(component) => Some(component),
        Err(error) => {
            tracing::debug!("{} is compiled anew: {error}", entry.display());
            None
        }
    }
}

/// What an entry holds in front of its digest; none where the digest is not that of it. What is no file of its own (a
/// link, a pipe) is an error.
fn read(entry: &Path) -> io::Result<Option<Vec<u8>>> {
    if !fs::symlink_metadata(entry)?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    let mut bytes = fs::read(entry)?;
    let Some(end) = bytes.len().checked_sub(DIGEST_BYTES) else {
        return Ok(None);
    };
    let digest = bytes.split_off(end);
    let intact = Sha256::digest(&bytes)[..] == digest[..];
    Ok(intact.then_some(bytes))
}

fn store(component: &Component, entry: &Path) -> wasmtime::Result<()> {
    let temporary = temporary(entry);
    let mut bytes = component.serialize()?;
    bytes.extend(Sha256::digest(&bytes));
    fs::write(&temporary, bytes)?;
    let renamed = fs::rename(&temporary, entry);
    if renamed.is_err() {
        fs::remove_file(&temporary).ok();
    }
    Ok(renamed?)
}

fn temporary(entry: &Path) -> PathBuf {
    entry.with_extension(format!("tmp-{}-{:016x}", std::process::id(), fastrand::u64(..)))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_folder_that_others_can_write_to_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("cache");
        assert_eq!(prepare(&folder), Ok(()));
        assert_eq!(fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        for mode in [0o720, 0o702, 0o777] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            assert!(prepare(&folder).unwrap_err().contains("chmod 700"), "{mode:o}");
        }
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(prepare(&folder), Ok(()));
    }

    #[test]
    fn a_folder_that_others_can_put_another_in_place_of_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("above").join("cache");
        assert_eq!(prepare(&folder), Ok(()));
        let above = folder.parent().unwrap();
        for (mode, usable) in [(0o777, false), (0o1777, true), (0o755, true)] {
            fs::set_permissions(above, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(prepare(&folder).is_ok(), usable, "{mode:o}");
        }
    }

    #[test]
    fn compiling_ends_when_its_time_is_over() {
        let engine = super::super::engine::engine().unwrap();
        let bytes = crate::connector::registry::resolve("csv").unwrap().bytes;
        let compiled = |timeout| compile(&engine, &bytes, timeout).unwrap().is_some();
        assert!(!compiled(Duration::from_millis(1)));
        assert!(compiled(Duration::from_secs(600)));
    }

    #[test]
    fn a_link_to_a_folder_is_not_used() {
        let parent = tempfile::tempdir().unwrap();
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(parent.path(), &link).unwrap();
        assert!(prepare(&link).is_err());
    }
}
