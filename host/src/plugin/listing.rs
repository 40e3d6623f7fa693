//! Directory listings, read from the system as the guest asks for them.
//!
//! WASI's own implementation reads a directory as a whole, into memory that no limit counts: a guest could fill a folder
//! that it may write to, and list it over and over. Here a listing holds one buffer, however many entries there are, and
//! counts as one open handle.

use std::fs::File;
use std::io;

use rustix::fs::{AtFlags, Dir, FileType, statat};
use wasmtime::StoreContextMut;
use wasmtime::component::{LinkerInstance, Resource, ResourceType};
use wasmtime_wasi::filesystem::Descriptor;
use wasmtime_wasi::p2::FsError;
use wasmtime_wasi::p2::bindings::filesystem::types::{DescriptorType, DirectoryEntry, ErrorCode};

use super::files::answer;
use super::state::State;

/// A `directory-entry-stream`.
struct Listing(Dir);

/// Puts these listings in the place of WASI's own.
pub(super) fn shadow(types: &mut LinkerInstance<'_, State>) -> wasmtime::Result<()> {
    let listing = ResourceType::host::<Listing>();
    types.resource("directory-entry-stream", listing, |mut store, rep| {
        store.data_mut().table.delete(Resource::<Listing>::new_own(rep))?;
        Ok(())
    })?;
    types.func_wrap(
        "[method]descriptor.read-directory",
        |mut store: StoreContextMut<'_, State>, (folder,): (Resource<Descriptor>,)| {
            Ok((answer(open(store.data_mut(), &folder))?,))
        },
    )?;
    types.func_wrap(
        "[method]directory-entry-stream.read-directory-entry",
        |mut store: StoreContextMut<'_, State>, (listing,): (Resource<Listing>,)| {
            let listing = store.data_mut().table.get_mut(&listing)?;
            Ok((answer(listing.next())?,))
        },
    )
}

fn open(state: &mut State, folder: &Resource<Descriptor>) -> Result<Resource<Listing>, FsError> {
    let Descriptor::Dir(folder) = state.table.get(folder)? else {
        return Err(ErrorCode::NotDirectory.into());
    };
    let listing = Listing::open(&folder.dir)?;
    Ok(state.table.push(listing)?)
}

impl Listing {
    fn open(folder: &File) -> io::Result<Listing> {
        Ok(Listing(Dir::read_from(folder)?))
    }

    fn next(&mut self) -> Result<Option<DirectoryEntry>, FsError> {
        while let Some(entry) = self.0.read() {
            let entry = entry.map_err(io::Error::from)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let file_type = match entry.file_type() {
                // Some file systems do not say it here.
                FileType::Unknown => {
                    let folder = self.0.fd().map_err(io::Error::from)?;
                    let found = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io::Error::from)?;
                    FileType::from_raw_mode(found.st_mode)
                }
                known => known,
            };
            let name = name.to_str().map_err(|_| ErrorCode::IllegalByteSequence)?;
            return Ok(Some(DirectoryEntry {
                type_: descriptor_type(file_type),
                name: name.to_owned(),
            }));
        }
        Ok(None)
    }
}

fn descriptor_type(file_type: FileType) -> DescriptorType {
    match file_type {
        FileType::RegularFile => DescriptorType::RegularFile,
        FileType::Directory => DescriptorType::Directory,
        FileType::Symlink => DescriptorType::SymbolicLink,
        FileType::CharacterDevice => DescriptorType::CharacterDevice,
        FileType::BlockDevice => DescriptorType::BlockDevice,
        FileType::Fifo => DescriptorType::Fifo,
        FileType::Socket => DescriptorType::Socket,
        FileType::Unknown => DescriptorType::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn read(listing: &mut Listing) -> Vec<String> {
        let entries = std::iter::from_fn(|| listing.next().ok().flatten());
        let mut entries: Vec<_> = entries
            .map(|entry| format!("{} {:?}", entry.name, entry.type_))
            .collect();
        entries.sort();
        entries
    }

    #[test]
    fn a_listing_says_names_and_types() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.csv"), "a").unwrap();
        fs::create_dir(folder.path().join("below")).unwrap();
        std::os::unix::fs::symlink("a.csv", folder.path().join("link")).unwrap();
        let mut listing = Listing::open(&File::open(folder.path()).unwrap()).unwrap();
        let expected = [
            "a.csv DescriptorType::RegularFile",
            "below DescriptorType::Directory",
            "link DescriptorType::SymbolicLink",
        ];
        assert_eq!(read(&mut listing), expected);
        assert_eq!(read(&mut listing), [] as [&str; 0]);
    }

    #[test]
    fn a_listing_is_read_as_it_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let file = |n| folder.path().join(format!("{n:0>250}"));
        (0..2_000).for_each(|n| fs::write(file(n), "").unwrap());
        let mut listing = Listing::open(&File::open(folder.path()).unwrap()).unwrap();
        assert!(listing.next().unwrap().is_some());
        (0..2_000).for_each(|n| fs::remove_file(file(n)).unwrap());
        let left = read(&mut listing).len();
        assert!(left < 1_000, "{left} of 2,000 entries were held");
    }
}
