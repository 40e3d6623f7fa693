//! Where a granted path leads.
//!
//! It is found out once, with every link followed. That place is what a policy is asked about, and what is opened,
//! without following anything further: a link that somebody puts in between afterwards is an error, not a way out.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, statat};
use rustix::io::Errno;

/// A path that somebody named, and where it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    path: PathBuf,
    real: Option<PathBuf>,
}

/// What lies at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
    /// A device, a socket, a pipe.
    Other,
}

impl Place {
    /// Follows an absolute path, as far as it exists.
    pub(crate) fn of(path: impl Into<PathBuf>) -> Place {
        let path = path.into();
        Place {
            real: real(&path),
            path,
        }
    }

    /// Without links. None where it leads through a link to nowhere: that may lead anywhere tomorrow.
    pub(crate) fn real(&self) -> Option<&Path> {
        self.real.as_deref()
    }

    /// Whether it is this file or folder, or lies below it.
    pub(crate) fn is_within(&self, folder: &Path) -> bool {
        let folder = real(folder);
        self.real
            .as_deref()
            .zip(folder)
            .is_some_and(|(own, folder)| own.starts_with(folder))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// An absolute path with every symbolic link in it followed, as far as it exists.
fn real(path: &Path) -> Option<PathBuf> {
    for ancestor in path.ancestors() {
        if let Ok(found) = ancestor.canonicalize() {
            let rest = path.strip_prefix(ancestor).ok()?;
            // By components: joining nothing would add a slash.
            return Some(found.components().chain(rest.components()).collect());
        }
        if ancestor.is_symlink() {
            return None;
        }
    }
    Some(path.to_owned())
}

#[cfg(target_os = "linux")]
const HANDLE: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const HANDLE: OFlags = OFlags::RDONLY;

/// Opens a folder, as a handle that others are opened beneath.
pub(crate) fn open_folder(real: &Path) -> io::Result<File> {
    walk(real, false)
}

/// Opens a folder, making it and those above it where they are missing.
pub(crate) fn make_folder(real: &Path) -> io::Result<File> {
    walk(real, true)
}

/// Opens a regular file.
pub(crate) fn open_file(real: &Path, writable: bool) -> io::Result<File> {
    let (parent, name) = split(real)?;
    let access = match writable {
        true => OFlags::RDWR,
        false => OFlags::RDONLY,
    };
    // Without the second flag, a pipe that was put in its place would have us wait for its other end.
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(openat(walk(parent, false)?, name, flags, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no file any more")),
    }
}

/// What lies there.
pub(crate) fn kind(real: &Path) -> io::Result<Kind> {
    let Ok((parent, name)) = split(real) else {
        return Ok(Kind::Folder); // the root
    };
    let found = statat(walk(parent, false)?, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        _ => Kind::Other,
    })
}

fn split(real: &Path) -> io::Result<(&Path, &OsStr)> {
    let parts = real.parent().zip(real.file_name());
    parts.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// From the root down, through folders alone.
fn walk(real: &Path, make: bool) -> io::Result<File> {
    let flags = HANDLE | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut folder = File::from(rustix::fs::open("/", flags, Mode::empty())?);
    for component in real.components() {
        let name = match component {
            Component::RootDir => continue,
            Component::Normal(name) => name,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let open = || openat(&folder, name, flags, Mode::empty());
        let next = match open() {
            Err(Errno::NOENT) if make => match mkdirat(&folder, name, Mode::from_raw_mode(0o777)) {
                // Somebody else may have made it meanwhile.
                Ok(()) | Err(Errno::EXIST) => open(),
                Err(error) => Err(error),
            },
            opened => opened,
        };
        folder = File::from(next?);
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_place_is_opened_and_made_without_following_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("data/inner")).unwrap();
        fs::create_dir(root.join("secret")).unwrap();
        fs::write(root.join("data/a.csv"), "a").unwrap();
        fs::write(root.join("secret/a.csv"), "secret").unwrap();
        symlink("../secret", root.join("data/out")).unwrap();
        symlink("../secret/a.csv", root.join("data/b.csv")).unwrap();

        let read = |path: &str| open_file(&root.join(path), false).and_then(io::read_to_string);
        assert_eq!(read("data/a.csv").unwrap(), "a");
        for path in ["data/out/a.csv", "data/b.csv", "data/inner", "data/none"] {
            assert!(read(path).is_err(), "{path}");
        }
        assert!(open_folder(&root.join("data/inner")).is_ok());
        for path in ["data/out", "data/a.csv", "data/none"] {
            assert!(open_folder(&root.join(path)).is_err(), "{path}");
        }
        make_folder(&root.join("data/new/deep")).unwrap();
        assert!(root.join("data/new/deep").is_dir());
        assert!(make_folder(&root.join("data/out/new")).is_err());
        assert!(!root.join("secret/new").exists());
        for (path, expected) in [
            ("data", Some(Kind::Folder)),
            ("data/a.csv", Some(Kind::File)),
            ("data/b.csv", Some(Kind::Other)),
            ("data/out/a.csv", None),
            ("data/none", None),
        ] {
            assert_eq!(kind(&root.join(path)).ok(), expected, "{path}");
        }
        assert_eq!(kind(Path::new("/")).unwrap(), Kind::Folder);
    }

    /// What was asked about is what is opened, whatever has happened in between.
    #[test]
    fn a_link_that_is_put_in_place_of_a_granted_folder_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("data/in")).unwrap();
        fs::create_dir(root.join("secret")).unwrap();
        let place = Place::of(root.join("data/in"));
        assert!(place.is_within(&root.join("data")));
        fs::remove_dir(root.join("data/in")).unwrap();
        symlink("../secret", root.join("data/in")).unwrap();
        assert!(open_folder(place.real().unwrap()).is_err());
        assert!(make_folder(place.real().unwrap()).is_err());
        assert!(!Place::of(root.join("data/in")).is_within(&root.join("data")));
    }
}
