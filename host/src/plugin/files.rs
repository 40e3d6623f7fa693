//! Files under the grants: what is preopened, and how a grant on a single file keeps its neighbours out.
//!
//! A granted folder is preopened under its absolute path with the least rights; WASI keeps paths and symlinks
//! within it. WASI cannot preopen a file, and preopening its folder would open its neighbours. So the folder that a
//! guest sees around granted files is another one, empty and already deleted, in which nothing can be found or made;
//! the three operations that lead from a folder to a file are answered here for the granted names, with the granted
//! file itself, and handed on for everything else. Should WASI grow a further operation, it meets the empty folder.
//!
//! Some things no grant allows: to make a link, which another grant may be followed through later; to open what is
//! neither a file nor a folder, where the host would wait for somebody else; and to write what is run or decides what
//! is run, also where a link in a granted folder leads to it.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};
use wasmtime_wasi::filesystem::{Descriptor, Dir, File as GuestFile, WasiFilesystemView};
use wasmtime_wasi::p2::FsError;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorStat, DescriptorType, ErrorCode, HostDescriptor, MetadataHashValue, OpenFlags,
    PathFlags,
};
use wasmtime_wasi::{FsPerms, OpenMode};

use super::grants::PathGrant;
use super::listing;
use super::state::State;
use crate::connector::{Error, ErrorKind, Result};
use crate::pipeline::LOCK_FILE;
use crate::place;

/// The interfaces whose functions are shadowed, as wasmtime-wasi registers them. Were the version wrong, a guest
/// would find granted files missing: the failure is closed.
const TYPES: &str = "wasi:filesystem/types@0.2.12";
const PREOPENS: &str = "wasi:filesystem/preopens@0.2.12";

/// What one instance sees of the file system.
#[derive(Default)]
pub(super) struct GrantedFiles(Vec<Preopen>);

/// A folder that the guest has a handle of from the start.
struct Preopen {
    /// What it is called in the guest.
    name: String,
    /// Handles of it share its file, by which they are known.
    dir: Dir,
    /// The granted files that it seems to hold; none in a real folder.
    files: BTreeMap<String, GrantedFile>,
}

/// Opened when it was granted, so that nothing can be put in its place afterwards.
#[derive(Clone, Debug)]
struct GrantedFile {
    file: Arc<File>,
    perms: FsPerms,
}

/// What is to be preopened, decided before anything is.
#[derive(Debug, Default, PartialEq, Eq)]
struct Layout {
    /// Folder and whether it is writable.
    folders: BTreeMap<PathBuf, bool>,
    /// Folder, then file name and whether it is writable.
    files: BTreeMap<PathBuf, BTreeMap<String, bool>>,
}

/// Opens what the grants name. A granted file or folder must exist, except one that may be written: that becomes a
/// folder if `make` says so, and otherwise seems to be one that is empty.
pub(super) fn open(grants: &BTreeMap<PathBuf, PathGrant>, make: bool) -> Result<GrantedFiles> {
    let mut found = BTreeMap::new();
    for (path, grant) in grants {
        found.insert(path.as_path(), find(grant, make)?);
    }
    let layout = lay_out(grants, |path| matches!(found.get(path), Some(Found::File(_))))?;

    let mut preopens = Vec::new();
    for (path, writable) in &layout.folders {
        preopens.push(match found.get(path.as_path()) {
            Some(Found::Folder(real)) => {
                let folder = place::open_folder(real).map_err(|error| cannot_open(path, &error))?;
                Preopen::new(path, folder, perms(*writable))
            }
            _ => Preopen::new(path, nothing()?, FsPerms::ReadOnly),
        });
    }
    for (folder, files) in layout.files {
        let mut preopen = Preopen::new(&folder, nothing()?, FsPerms::ReadOnly);
        for (name, writable) in files {
            let path = folder.join(&name);
            if let Some(Found::File(real)) = found.get(path.as_path()) {
                // However the guest opens it, and whatever name a link gives it.
                let writable = writable && !is_code(&name) && !is_code(&real.to_string_lossy());
                let file = place::open_file(real, writable).map_err(|error| cannot_open(&path, &error))?;
                let (file, perms) = (Arc::new(file), perms(writable));
                preopen.files.insert(name, GrantedFile { file, perms });
            }
        }
        preopens.push(preopen);
    }
    Ok(GrantedFiles(preopens))
}

/// What a granted path is, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    File(PathBuf),
    Folder(PathBuf),
    /// A writable folder that is not there yet.
    Absent,
}

/// Looks a granted path up; a writable folder that is missing is made if `make` says so.
fn find(grant: &PathGrant, make: bool) -> Result<Found> {
    let PathGrant { place, origin, .. } = grant;
    let wrong = |kind, what: &str| Error::new(kind, format!("`{origin}`: {place} {what}"));
    let Some(real) = place.real() else {
        return Err(wrong(ErrorKind::Config, "leads through a link to nowhere"));
    };
    match place::kind(real) {
        Ok(place::Kind::Folder) => Ok(Found::Folder(real.to_owned())),
        Ok(place::Kind::File) => Ok(Found::File(real.to_owned())),
        Ok(place::Kind::Other) => Err(wrong(ErrorKind::Config, "is neither a file nor a folder")),
        Err(error) if error.kind() == io::ErrorKind::NotFound && grant.writable => {
            if !make {
                return Ok(Found::Absent);
            }
            match place::make_folder(real) {
                Ok(_) => Ok(Found::Folder(real.to_owned())),
                Err(error) => Err(Error::new(
                    ErrorKind::Config,
                    format!("`{origin}`: the folder {place} cannot be made: {error}"),
                )),
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(wrong(ErrorKind::NotFound, "does not exist"))
        }
        Err(error) => Err(wrong(ErrorKind::Config, &format!("cannot be read: {error}"))),
    }
}

/// Sorts granted paths into folders and single files; a file that a granted folder covers needs nothing of its own.
fn lay_out(grants: &BTreeMap<PathBuf, PathGrant>, is_file: impl Fn(&Path) -> bool) -> Result<Layout> {
    let mut layout = Layout::default();
    for (path, grant) in grants.iter().filter(|(path, _)| !is_file(path)) {
        layout.folders.insert(path.clone(), grant.writable);
    }
    for (path, grant) in grants.iter().filter(|(path, _)| is_file(path)) {
        let covering = path.ancestors().skip(1).find_map(|a| layout.folders.get(a));
        match covering {
            Some(&writable) if writable || !grant.writable => continue,
            Some(_) => {
                return Err(Error::new(
                    ErrorKind::Config,
                    format!(
                        "`{}`: {} is to be written, but lies in a folder that is granted for reading only; grant \
                         the folder for writing, or take the grant on it away",
                        grant.origin,
                        path.display()
                    ),
                ));
            }
            None => {}
        }
        let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str()))
        else {
            continue; // A file has both, and its path is UTF-8.
        };
        let files = layout.files.entry(folder.to_owned()).or_default();
        files.insert(name.to_owned(), grant.writable);
    }
    Ok(layout)
}

/// An empty folder that no longer exists.
fn nothing() -> Result<File> {
    let empty = std::env::temp_dir().join(format!(
        "setu-empty-{}-{:016x}",
        std::process::id(),
        fastrand::u64(..)
    ));
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let opened = builder.create(&empty).and_then(|()| {
        let opened = File::open(&empty);
        fs::remove_dir(&empty)?;
        opened
    });
    opened.map_err(|error| cannot_open(&empty, &error))
}

fn cannot_open(path: &Path, error: &io::Error) -> Error {
    let message = format!("the granted path {} cannot be opened: {error}", path.display());
    Error::new(ErrorKind::Config, message)
}

fn perms(writable: bool) -> FsPerms {
    if writable {
        FsPerms::ReadWrite
    } else {
        FsPerms::ReadOnly
    }
}

impl Preopen {
    fn new(path: &Path, folder: File, perms: FsPerms) -> Preopen {
        let mode = match perms {
            FsPerms::ReadOnly => OpenMode::READ,
            FsPerms::ReadWrite => OpenMode::READ | OpenMode::WRITE,
        };
        Preopen {
            name: path.to_string_lossy().into_owned(),
            // File operations block the instance's own thread, which has nothing else to do; handing each one to
            // another thread costs several times as much.
            dir: Dir::new(folder, perms, mode, true),
            files: BTreeMap::new(),
        }
    }
}

impl GrantedFile {
    /// A handle for the guest. Guests read and write at offsets of their own, so handles may share the file, which was
    /// opened with all rights that are granted: that one was asked for to read with is left to WASI's own check.
    fn handle(&self, mode: OpenMode) -> Result<Descriptor, FsError> {
        let file = self.file.try_clone()?;
        let perms = match mode.contains(OpenMode::WRITE) {
            true => self.perms,
            false => FsPerms::ReadOnly,
        };
        Ok(Descriptor::File(GuestFile::new(file, perms, mode, true)))
    }

    /// What `open-at` does with the file's name.
    fn open_at(&self, how: OpenFlags, flags: DescriptorFlags) -> Result<Descriptor, FsError> {
        if how.contains(OpenFlags::DIRECTORY) {
            return Err(ErrorCode::NotDirectory.into());
        }
        if how.contains(OpenFlags::EXCLUSIVE) {
            return Err(ErrorCode::Exist.into());
        }
        let truncate = how.contains(OpenFlags::TRUNCATE);
        let write = truncate || flags.contains(DescriptorFlags::WRITE);
        if write && self.perms.write_not_permitted() {
            return Err(ErrorCode::NotPermitted.into());
        }
        if truncate {
            self.file.set_len(0)?;
        }
        let mut mode = OpenMode::empty();
        mode.set(OpenMode::WRITE, write);
        mode.set(OpenMode::READ, !write || flags.contains(DescriptorFlags::READ));
        self.handle(mode)
    }
}

/// Puts the operations that know granted files in the place of WASI's own.
pub(super) fn shadow(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker
        .instance(PREOPENS)?
        .func_wrap("get-directories", |mut store, (): ()| {
            Ok((get_directories(store.data_mut())?,))
        })?;
    let mut types = linker.instance(TYPES)?;
    listing::shadow(&mut types)?;
    types.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: StoreContextMut<'_, State>, (folder, follow, path, how, flags)| {
            Box::new(async move {
                let state = store.data_mut();
                let opened = open_at(state, folder, follow, path, how, flags).await;
                Ok((answer(opened)?,))
            })
        },
    )?;
    types.func_wrap(
        "[method]descriptor.symlink-at",
        |_, (_, _, _): (Resource<Descriptor>, String, String)| Ok((Err::<(), _>(ErrorCode::NotPermitted),)),
    )?;
    types.func_wrap(
        "[method]descriptor.link-at",
        |_,
         (_, _, _, _, _): (
            Resource<Descriptor>,
            PathFlags,
            String,
            Resource<Descriptor>,
            String,
        )| { Ok((Err::<(), _>(ErrorCode::NotPermitted),)) },
    )?;
    types.func_wrap_async(
        "[method]descriptor.rename-at",
        |mut store: StoreContextMut<'_, State>, (folder, from, into, to): (_, String, _, String)| {
            Box::new(async move {
                let renamed = match is_code(&from) || is_code(&to) {
                    true => Err(ErrorCode::NotPermitted.into()),
                    false => {
                        let mut files = store.data_mut().filesystem();
                        HostDescriptor::rename_at(&mut files, folder, from, into, to).await
                    }
                };
                Ok((answer(renamed)?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.unlink-file-at",
        |mut store: StoreContextMut<'_, State>, (folder, path): (_, String)| {
            Box::new(async move {
                let removed = match is_code(&path) {
                    true => Err(ErrorCode::NotPermitted.into()),
                    false => {
                        let mut files = store.data_mut().filesystem();
                        HostDescriptor::unlink_file_at(&mut files, folder, path).await
                    }
                };
                Ok((answer(removed)?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.stat-at",
        |mut store: StoreContextMut<'_, State>, (folder, follow, path)| {
            Box::new(async move {
                let stat = stat_at(store.data_mut(), folder, follow, path).await;
                Ok((answer(stat)?,))
            })
        },
    )?;
    types.func_wrap_async(
        "[method]descriptor.metadata-hash-at",
        |mut store: StoreContextMut<'_, State>, (folder, follow, path)| {
            Box::new(async move {
                let hash = metadata_hash_at(store.data_mut(), folder, follow, path).await;
                Ok((answer(hash)?,))
            })
        },
    )
}

/// An error code goes to the guest; a trap ends the call.
pub(super) fn answer<T>(result: Result<T, FsError>) -> wasmtime::Result<Result<T, ErrorCode>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(error) => error.downcast().map(Err),
    }
}

fn get_directories(state: &mut State) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
    let State { files, table, .. } = state;
    let directories = files.0.iter().map(|preopen| {
        let handle = table.push(Descriptor::Dir(preopen.dir.clone()))?;
        Ok((handle, preopen.name.clone()))
    });
    directories.collect()
}

/// The granted file that a name in a folder stands for.
fn granted(state: &State, folder: &Resource<Descriptor>, path: &str) -> Result<Option<GrantedFile>, FsError> {
    let Descriptor::Dir(dir) = state.table.get(folder)? else {
        return Ok(None);
    };
    let mut preopens = state.files.0.iter();
    let preopen = preopens.find(|preopen| Arc::ptr_eq(&preopen.dir.dir, &dir.dir));
    let name = path.trim_start_matches("./");
    Ok(preopen.and_then(|preopen| preopen.files.get(name).cloned()))
}

async fn open_at(
    state: &mut State,
    folder: Resource<Descriptor>,
    follow: PathFlags,
    path: String,
    how: OpenFlags,
    flags: DescriptorFlags,
) -> Result<Resource<Descriptor>, FsError> {
    let writes = how.intersects(OpenFlags::CREATE | OpenFlags::TRUNCATE)
        || flags.intersects(DescriptorFlags::WRITE | DescriptorFlags::MUTATE_DIRECTORY);
    if writes && is_code(&path) {
        return Err(ErrorCode::NotPermitted.into());
    }
    if let Some(file) = granted(state, &folder, &path)? {
        return Ok(state.table.push(file.open_at(how, flags)?)?);
    }
    let mut files = state.filesystem();
    let there = || Resource::new_borrow(folder.rep());
    if writes {
        // It may lead to code, under whatever name.
        let named = HostDescriptor::stat_at(&mut files, there(), PathFlags::empty(), path.clone()).await;
        if named.is_ok_and(|named| named.type_ == DescriptorType::SymbolicLink) {
            return Err(ErrorCode::NotPermitted.into());
        }
    }
    let found = HostDescriptor::stat_at(&mut files, there(), follow, path.clone()).await;
    let is_usable = |kind| {
        matches!(
            kind,
            DescriptorType::RegularFile | DescriptorType::Directory | DescriptorType::SymbolicLink
        )
    };
    if found.is_ok_and(|found| !is_usable(found.type_)) {
        return Err(ErrorCode::NotPermitted.into());
    }
    HostDescriptor::open_at(&mut files, folder, follow, path, how, flags).await
}

/// Whether a name is that of code, or of the file that says which code may be used.
fn is_code(path: &str) -> bool {
    let name = path.rsplit('/').find(|part| !part.is_empty() && *part != ".");
    let name = name.unwrap_or_default().to_lowercase();
    name == LOCK_FILE || name.ends_with(".wasm") || name.ends_with(".cwasm")
}

async fn stat_at(
    state: &mut State,
    folder: Resource<Descriptor>,
    follow: PathFlags,
    path: String,
) -> Result<DescriptorStat, FsError> {
    let Some(file) = granted(state, &folder, &path)? else {
        return HostDescriptor::stat_at(&mut state.filesystem(), folder, follow, path).await;
    };
    let handle = state.table.push(file.handle(OpenMode::READ)?)?;
    let stat = HostDescriptor::stat(&mut state.filesystem(), Resource::new_borrow(handle.rep())).await;
    state.table.delete(handle)?;
    stat
}

async fn metadata_hash_at(
    state: &mut State,
    folder: Resource<Descriptor>,
    follow: PathFlags,
    path: String,
) -> Result<MetadataHashValue, FsError> {
    let Some(file) = granted(state, &folder, &path)? else {
        return HostDescriptor::metadata_hash_at(&mut state.filesystem(), folder, follow, path).await;
    };
    let handle = state.table.push(file.handle(OpenMode::READ)?)?;
    let hash =
        HostDescriptor::metadata_hash(&mut state.filesystem(), Resource::new_borrow(handle.rep())).await;
    state.table.delete(handle)?;
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn grant(path: impl Into<PathBuf>, writable: bool) -> PathGrant {
        PathGrant {
            place: place::Place::of(path),
            writable,
            origin: "config.path".to_owned(),
        }
    }

    fn grants(paths: &[(&str, bool)]) -> BTreeMap<PathBuf, PathGrant> {
        let named = |&(path, writable): &(&str, bool)| (PathBuf::from(path), grant(path, writable));
        paths.iter().map(named).collect()
    }

    fn layout(paths: &[(&str, bool)]) -> Result<Vec<String>> {
        let layout = lay_out(&grants(paths), |path| path.extension().is_some())?;
        let shown = |writable: bool| if writable { "rw" } else { "r" };
        let folders = layout
            .folders
            .iter()
            .map(|(path, writable)| format!("{} {}", path.display(), shown(*writable)));
        let files = layout.files.iter().flat_map(|(folder, files)| {
            files
                .iter()
                .map(move |(name, writable)| format!("{}:{name} {}", folder.display(), shown(*writable)))
        });
        Ok(folders.chain(files).collect())
    }

    #[test]
    fn a_file_is_laid_out_alone_unless_a_folder_covers_it() {
        for (paths, expected) in [
            (&[("/d/a.csv", false)][..], &["/d:a.csv r"][..]),
            (
                &[("/d/a.csv", false), ("/d/b.csv", true)],
                &["/d:a.csv r", "/d:b.csv rw"],
            ),
            (&[("/d", false), ("/d/a.csv", false)], &["/d r"]),
            (&[("/d", true), ("/d/s/a.csv", true)], &["/d rw"]),
            (&[("/d", false), ("/d/out", true)], &["/d r", "/d/out rw"]),
        ] {
            assert_eq!(layout(paths).unwrap(), expected, "{paths:?}");
        }
    }

    #[test]
    fn code_is_known_by_its_name_however_it_is_spelt() {
        for (path, expected) in [
            ("setu.lock", true),
            ("a/Setu.LOCK", true),
            ("x.wasm", true),
            ("./a/x.WASM/", true),
            ("x.wasm/.", true),
            ("x.cwasm", true),
            ("x.wasm.csv", false),
            ("orders.csv", false),
            ("", false),
        ] {
            assert_eq!(is_code(path), expected, "{path}");
        }
    }

    #[test]
    fn a_single_file_is_written_only_where_that_was_asked_for_and_code_never() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["a.csv", "x.wasm", "setu.lock"] {
            fs::write(at(name), "before").unwrap();
        }
        std::os::unix::fs::symlink("x.wasm", at("b.csv")).unwrap();
        let mut grants = BTreeMap::new();
        for name in ["a.csv", "b.csv", "x.wasm", "setu.lock"] {
            grants.insert(at(name), grant(at(name), true));
        }
        let files = open(&grants, false).unwrap().0.remove(0).files;
        let read = DescriptorFlags::READ;
        for (name, flags, expected) in [
            ("a.csv", read, Some(FsPerms::ReadOnly)),
            ("a.csv", DescriptorFlags::empty(), Some(FsPerms::ReadOnly)),
            ("a.csv", read | DescriptorFlags::WRITE, Some(FsPerms::ReadWrite)),
            ("b.csv", read, Some(FsPerms::ReadOnly)),
            ("b.csv", DescriptorFlags::WRITE, None),
            ("x.wasm", read, Some(FsPerms::ReadOnly)),
            ("x.wasm", DescriptorFlags::WRITE, None),
            ("setu.lock", read, Some(FsPerms::ReadOnly)),
        ] {
            let opened = files[name].open_at(OpenFlags::empty(), flags).ok();
            let perms = opened.map(|opened| match opened {
                Descriptor::File(file) => file.perms,
                Descriptor::Dir(_) => panic!("{name} is a folder"),
            });
            assert_eq!(perms, expected, "{name} {flags:?}");
            // The system's own check is behind it.
            let writes = (&*files[name].file).write_all(b"after").is_ok();
            assert_eq!(writes, name == "a.csv", "{name}");
        }
    }

    #[test]
    fn a_writable_file_in_a_readable_folder_is_refused_by_name() {
        let error = layout(&[("/d", false), ("/d/a.csv", true)]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.message().contains("/d/a.csv"), "{error}");
    }

    #[test]
    fn a_missing_path_is_an_error_to_read_and_a_new_folder_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("a/b");
        let find = |writable, make| find(&grant(&missing, writable), make);
        let error = find(false, true).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(
            error.message().contains("config.path") && error.message().contains("a/b"),
            "{error}"
        );
        assert_eq!(find(true, false).unwrap(), Found::Absent);
        assert!(!missing.exists());
        assert!(matches!(find(true, true).unwrap(), Found::Folder(_)));
        assert!(missing.is_dir());
    }

    #[test]
    fn a_link_to_nowhere_grants_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("none", &link).unwrap();
        for writable in [false, true] {
            let error = find(&grant(&link, writable), true).unwrap_err();
            assert!(error.message().contains("a link to nowhere"), "{error}");
        }
        assert!(!folder.path().join("none").exists());
    }
}
