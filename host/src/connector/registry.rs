//! Where connectors are found: inside this program, in the folders of `SETU_PLUGIN_PATH`, or at a path.
//!
//! Not here: compiling them and checking that they are connectors at all (`plugin`).

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Error, ErrorKind, Result};
use crate::nearest;

/// The variable that names the folders of further connectors, separated as in `PATH`.
pub const PATH_VARIABLE: &str = "SETU_PLUGIN_PATH";

/// The connectors that are part of this program.
const BUNDLED: [(&str, &[u8]); 2] = [
    (
        "csv",
        include_bytes!(concat!(env!("OUT_DIR"), "/setu_plugin_csv.wasm")),
    ),
    (
        "postgres",
        include_bytes!(concat!(env!("OUT_DIR"), "/setu_plugin_postgres.wasm")),
    ),
];

/// A connector's code.
#[derive(Clone, PartialEq, Eq)]
pub struct Component {
    /// `bundled csv`, or the path of a file: for messages.
    pub origin: String,
    /// A WebAssembly component, unless someone gave it the wrong name.
    pub bytes: Cow<'static, [u8]>,
    /// Where it was read; none: it is part of this program.
    pub file: Option<PathBuf>,
}

impl Component {
    /// What identifies the code: `sha256:…`.
    pub fn digest(&self) -> String {
        digest(&self.bytes)
    }
}

/// A connector that can be named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What a pipeline calls it.
    pub name: String,
    /// Its file; none: it is part of this program.
    pub file: Option<PathBuf>,
}

/// Finds connectors by name.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    folders: Vec<PathBuf>,
}

impl Registry {
    /// With these folders, searched in order for names that are not bundled.
    pub fn new(folders: Vec<PathBuf>) -> Registry {
        Registry { folders }
    }

    /// With the folders of `SETU_PLUGIN_PATH`.
    pub fn from_env() -> Registry {
        let value = std::env::var_os(PATH_VARIABLE).unwrap_or_default();
        Registry::new(
            std::env::split_paths(&value)
                .filter(|folder| !folder.as_os_str().is_empty())
                .collect(),
        )
    }

    /// The code of a connector: of a bundled one, of `<name>.wasm` in one of the folders, or of the file at a path
    /// (see [`is_path`]). A bundled name cannot be taken over by a file in a folder.
    pub fn resolve(&self, connector: &str) -> Result<Component> {
        if is_path(connector) {
            return read(Path::new(connector));
        }
        if let Some((name, bytes)) = BUNDLED.iter().find(|(name, _)| *name == connector) {
            return Ok(Component {
                origin: format!("bundled {name}"),
                bytes: Cow::Borrowed(bytes),
                file: None,
            });
        }
        let file = format!("{connector}.wasm");
        match self
            .folders
            .iter()
            .map(|folder| folder.join(&file))
            .find(|path| path.is_file())
        {
            Some(path) => read(&path),
            None => Err(Error::new(ErrorKind::Config, self.missing(connector))),
        }
    }

    /// Every connector that can be named, the bundled ones first. A folder that cannot be read adds nothing.
    pub fn list(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = BUNDLED
            .iter()
            .map(|(name, _)| Entry {
                name: (*name).to_owned(),
                file: None,
            })
            .collect();
        for folder in &self.folders {
            let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut files: Vec<PathBuf> = files
                .map(|file| file.path())
                .filter(|path| path.is_file())
                .collect();
            files.sort();
            for file in files {
                let name = file
                    .file_name()
                    .and_then(|name| name.to_str())
                    .and_then(|name| name.strip_suffix(".wasm"));
                let Some(name) = name.map(str::to_owned) else {
                    continue;
                };
                if !entries.iter().any(|entry| entry.name == name) {
                    entries.push(Entry {
                        name,
                        file: Some(file),
                    });
                }
            }
        }
        entries
    }

    fn missing(&self, connector: &str) -> String {
        let entries = self.list();
        let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let hint = nearest::nearest(connector, names.iter().copied())
            .map(|near| format!("; did you mean `{near}`?"))
            .unwrap_or_default();
        let searched = if self.folders.is_empty() {
            format!("{PATH_VARIABLE} is not set")
        } else {
            let folders: Vec<String> = self
                .folders
                .iter()
                .map(|folder| folder.display().to_string())
                .collect();
            format!("{PATH_VARIABLE} was searched: {}", folders.join(", "))
        };
        let bundled = nearest::list(&BUNDLED.map(|(name, _)| name));
        format!(
            "no connector is named `{connector}`{hint} (bundled are {bundled}; {searched}; a path must contain a `/`)"
        )
    }
}

/// Finds a connector as the environment of this process says.
pub fn resolve(connector: &str) -> Result<Component> {
    Registry::from_env().resolve(connector)
}

/// Whether these bytes are the code of a connector that is part of this program, wherever they come from.
pub fn is_bundled(bytes: &[u8]) -> bool {
    BUNDLED.iter().any(|(_, bundled)| *bundled == bytes)
}

/// Larger files are not even read.
const MAX_FILE_BYTES: u64 = 512 << 20;

/// What identifies a component's code: `sha256:` and 64 hexadecimal digits.
pub fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Whether a connector is given by path rather than by name: it contains a `/` or ends in `.wasm`.
pub fn is_path(connector: &str) -> bool {
    connector.contains('/') || connector.ends_with(".wasm")
}

fn read(path: &Path) -> Result<Component> {
    let error = |reason: String| {
        let message = format!("the connector {} cannot be read: {reason}", path.display());
        Error::new(ErrorKind::Config, message)
    };
    let found = std::fs::metadata(path).map_err(|source| error(source.to_string()))?;
    if found.is_dir() {
        return Err(error("it is a folder; give the path of a `.wasm` file".into()));
    }
    if !found.is_file() {
        return Err(error("it is not a file".into()));
    }
    // The limit proper is asked for what was read; nothing of this size could meet it.
    if found.len() > MAX_FILE_BYTES {
        return Err(error(format!("it has {} MiB", found.len() >> 20)));
    }
    let bytes = std::fs::read(path).map_err(|source| error(source.to_string()))?;
    Ok(Component {
        origin: path.display().to_string(),
        bytes: bytes.into(),
        file: Some(path.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(result: Result<Component>) -> String {
        match result {
            Ok(component) => panic!("found {}", component.origin),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Config);
                error.to_string()
            }
        }
    }

    #[test]
    fn bundled_connectors_are_components_inside_the_program() {
        for name in ["csv", "postgres"] {
            let component = Registry::default().resolve(name).expect("bundled");
            assert_eq!(component.origin, format!("bundled {name}"));
            assert!(component.bytes.starts_with(b"\0asm"), "{name}");
        }
    }

    #[test]
    fn a_name_is_searched_in_the_folders_in_order_but_never_instead_of_a_bundled_one() {
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        for (folder, content) in folders.iter().zip(["first", "second"]) {
            std::fs::write(folder.path().join("own.wasm"), content).unwrap();
        }
        std::fs::write(folders[0].path().join("csv.wasm"), "not the bundled one").unwrap();
        std::fs::write(folders[1].path().join("other.wasm"), "other").unwrap();
        let registry = Registry::new(folders.iter().map(|folder| folder.path().to_owned()).collect());
        assert_eq!(*registry.resolve("own").unwrap().bytes, *b"first");
        assert_eq!(*registry.resolve("other").unwrap().bytes, *b"other");
        assert_eq!(registry.resolve("csv").unwrap().origin, "bundled csv");
        let names: Vec<String> = registry.list().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["csv", "postgres", "own", "other"]);
    }

    #[test]
    fn a_path_is_read_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.wasm");
        std::fs::write(&path, "code").unwrap();
        let path = path.to_str().unwrap();
        assert_eq!(Registry::default().resolve(path).unwrap().origin, path);
        let gone = message(Registry::default().resolve("./none.wasm"));
        assert!(
            gone.starts_with("the connector ./none.wasm cannot be read: No such file"),
            "{gone}"
        );
        let directory = message(Registry::default().resolve(&format!("{}/", folder.path().display())));
        assert!(directory.contains("it is a folder"), "{directory}");
    }

    #[test]
    fn a_missing_name_says_what_there_is() {
        assert_eq!(
            message(Registry::default().resolve("postgre")),
            "no connector is named `postgre`; did you mean `postgres`? (bundled are `csv` and `postgres`; \
             SETU_PLUGIN_PATH is not set; a path must contain a `/`)"
        );
        assert_eq!(
            message(Registry::new(vec!["/no/where".into()]).resolve("mysql")),
            "no connector is named `mysql` (bundled are `csv` and `postgres`; \
             SETU_PLUGIN_PATH was searched: /no/where; a path must contain a `/`)"
        );
    }
}
