//! `setu.lock`: the code of third-party connectors that the pipelines of a folder were first used with.
//!
//! A file of that name stands beside the pipeline files, is written by this program, and belongs into version control
//! with them. Connectors that are part of this program are not in it. What a changed connector may do is still
//! limited by its grants; the lock makes sure that somebody knows that it changed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The file's name.
pub const LOCK_FILE: &str = "setu.lock";
const FORMAT_VERSION: u32 = 1;

/// The lock of one folder of pipelines.
#[derive(Clone, Debug)]
pub struct Lock {
    folder: PathBuf,
    pins: Vec<Pin>,
}

/// The code of one connector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// As pipelines name it: a name, or a path, relative to the folder where it lies within.
    pub connector: String,
    /// What it says of itself.
    pub name: String,
    /// Its own version.
    pub version: String,
    /// `sha256:…`
    pub digest: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    format_version: u32,
    plugins: Vec<Pin>,
}

impl Lock {
    /// Reads the lock of a folder; where there is none, nothing is pinned. An error says what is wrong with the file.
    pub fn read(folder: &Path) -> Result<Lock, String> {
        let path = folder.join(LOCK_FILE);
        let wrong = |reason: &dyn std::fmt::Display| {
            format!(
                "{} cannot be read: {reason}. Restore it, or remove it to pin connectors anew",
                path.display()
            )
        };
        let pins = match fs::read(&path) {
            Ok(bytes) => {
                let content: Content = serde_json::from_slice(&bytes).map_err(|error| wrong(&error))?;
                if content.format_version > FORMAT_VERSION {
                    let version = content.format_version;
                    return Err(wrong(&format!("its format version {version} needs a newer Setu")));
                }
                content.plugins
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(wrong(&error)),
        };
        Ok(Lock {
            folder: folder.to_owned(),
            pins,
        })
    }

    /// What a connector is pinned to; `connector` is a name or an absolute path.
    pub fn pin(&self, connector: &str) -> Option<&Pin> {
        let key = self.key(connector);
        self.pins.iter().find(|pin| pin.connector == key)
    }

    /// Why code must not be used; none: it is what is pinned, or nothing is.
    pub fn refuses(&self, connector: &str, digest: &str, pipeline: &Path) -> Option<String> {
        let pin = self.pin(connector).filter(|pin| pin.digest != digest)?;
        Some(format!(
            "connector {} is not the one that {} pins: it was {} {} ({}) and is now {digest}. If the change is \
             meant, `setu plugin lock {}` pins the new one",
            pin.connector,
            self.folder.join(LOCK_FILE).display(),
            pin.name,
            pin.version,
            pin.digest,
            pipeline.display()
        ))
    }

    /// Pins connectors (each with its name or absolute path); those that are pinned already stay, unless `replace`
    /// says otherwise. Returns what was added or changed, and writes the file if that is anything.
    pub fn add(folder: &Path, pins: Vec<Pin>, replace: bool) -> Result<Vec<Pin>, String> {
        // Two commands may do this at once; each must see what the other has pinned.
        let guard = File::open(folder).and_then(|guard| guard.lock().map(|()| guard));
        let guard = guard.map_err(|error| format!("{} cannot be locked: {error}", folder.display()))?;
        let mut lock = Lock::read(folder)?;
        let mut changed = Vec::new();
        for mut pin in pins {
            pin.connector = lock.key(&pin.connector);
            match lock
                .pins
                .iter_mut()
                .find(|known| known.connector == pin.connector)
            {
                Some(known) if !replace || *known == pin => continue,
                Some(known) => *known = pin.clone(),
                None => lock.pins.push(pin.clone()),
            }
            changed.push(pin);
        }
        if !changed.is_empty() {
            lock.pins.sort_by(|a, b| a.connector.cmp(&b.connector));
            let path = folder.join(LOCK_FILE);
            let written = lock.write(&path);
            written.map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
        }
        drop(guard);
        Ok(changed)
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let content = Content {
            format_version: FORMAT_VERSION,
            plugins: self.pins.clone(),
        };
        let mut json = serde_json::to_vec_pretty(&content)?;
        json.push(b'\n');
        let temporary = path.with_file_name(format!(".{LOCK_FILE}.{}.tmp", std::process::id()));
        let written = File::create(&temporary)
            .and_then(|mut file| file.write_all(&json).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The first error is the one worth telling.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// What stands in the file for a connector.
    fn key(&self, connector: &str) -> String {
        let path = Path::new(connector);
        if !path.is_absolute() {
            return connector.to_owned();
        }
        // However it is spelt, and whatever link leads there: one file has one pin.
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let (path, folder) = (real(path), real(&self.folder));
        match path.strip_prefix(&folder) {
            Ok(relative) => format!("./{}", relative.display()),
            Err(_) => path.display().to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pin(connector: &str, digest: &str) -> Pin {
        Pin {
            connector: connector.into(),
            name: "mine".into(),
            version: "1.0.0".into(),
            digest: digest.into(),
        }
    }

    #[test]
    fn one_file_has_one_pin_however_it_is_spelt() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        fs::create_dir(folder.join("sub")).expect("a folder");
        fs::write(folder.join("mine.wasm"), "").expect("a file");
        std::os::unix::fs::symlink("mine.wasm", folder.join("link.wasm")).expect("a link");
        let at = |path: &str| folder.join(path).display().to_string();
        Lock::add(folder, vec![pin(&at("mine.wasm"), "sha256:a")], false).expect("written");
        let lock = Lock::read(folder).expect("it reads back");
        for path in ["mine.wasm", "././mine.wasm", "sub/../mine.wasm", "link.wasm"] {
            assert!(lock.pin(&at(path)).is_some(), "{path}");
        }
    }

    #[test]
    fn the_first_use_pins_and_only_a_command_pins_anew() {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        let path = folder.join("plugins/mine.wasm").display().to_string();
        let added = Lock::add(
            folder,
            vec![pin(&path, "sha256:a"), pin("named", "sha256:b")],
            false,
        );
        assert_eq!(added.expect("written").len(), 2);
        let text = fs::read_to_string(folder.join(LOCK_FILE)).expect("it is there");
        assert!(
            text.contains("\"./plugins/mine.wasm\"") && text.contains("\"named\""),
            "{text}"
        );

        let lock = Lock::read(folder).expect("it reads back");
        let pipeline = Path::new("p.yaml");
        assert_eq!(lock.refuses(&path, "sha256:a", pipeline), None);
        assert_eq!(lock.refuses("other", "sha256:z", pipeline), None);
        let refused = lock.refuses(&path, "sha256:c", pipeline).expect("it has changed");
        for part in [
            "./plugins/mine.wasm",
            "mine 1.0.0",
            "sha256:a",
            "sha256:c",
            "setu plugin lock p.yaml",
        ] {
            assert!(refused.contains(part), "{refused}");
        }

        assert_eq!(Lock::add(folder, vec![pin(&path, "sha256:c")], false), Ok(vec![]));
        assert!(
            Lock::read(folder)
                .expect("it reads")
                .refuses(&path, "sha256:c", pipeline)
                .is_some()
        );
        assert_eq!(
            Lock::add(folder, vec![pin(&path, "sha256:c")], true).map(|pins| pins.len()),
            Ok(1)
        );
        let lock = Lock::read(folder).expect("it reads");
        assert_eq!(lock.refuses(&path, "sha256:c", pipeline), None);
        assert_eq!(lock.pin("named").map(|pin| pin.digest.as_str()), Some("sha256:b"));
        let files = fs::read_dir(folder).expect("a folder").count();
        assert_eq!(files, 1, "no temporary file is left");
    }

    #[test]
    fn a_damaged_lock_pins_nothing_away() {
        let folder = tempfile::tempdir().expect("a folder");
        for (text, expected) in [
            ("", "setu.lock cannot be read"),
            ("{\"formatVersion\": 9, \"plugins\": []}", "needs a newer Setu"),
        ] {
            fs::write(folder.path().join(LOCK_FILE), text).expect("written");
            let error = Lock::read(folder.path()).expect_err("it is damaged");
            assert!(error.contains(expected), "{error}");
            assert!(Lock::add(folder.path(), vec![pin("a", "sha256:a")], true).is_err());
        }
    }
}
