//! Which files a path names and the streams that they are, and which file a stream becomes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use setu_sdk::{Error, Result, StreamName};

/// The endings of files that are read from a folder, each perhaps followed by `.gz`.
const ENDINGS: [&str; 3] = [".csv", ".tsv", ".txt"];

/// The longest file name that is made, so that the hidden names beside it fit a file system's 255 bytes as well.
const MAX_NAME_BYTES: usize = 180;

/// One file, which is one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CsvFile {
    pub(crate) path: PathBuf,
    /// The stream's name.
    pub(crate) stream: String,
    pub(crate) gzip: bool,
}

impl CsvFile {
    fn new(path: &Path) -> Result<Self> {
        let name = path.file_name().and_then(|name| name.to_str());
        let name =
            name.ok_or_else(|| Error::config(format!("{}: the file's name is not UTF-8", path.display())))?;
        let (stem, gzip) = match strip_ending(name, ".gz") {
            Some(stem) => (stem, true),
            None => (name, false),
        };
        let stream = ENDINGS
            .iter()
            .find_map(|ending| strip_ending(stem, ending))
            .unwrap_or(stem);
        Ok(CsvFile {
            path: path.to_owned(),
            stream: stream.to_owned(),
            gzip,
        })
    }

    /// For messages and for what depends on the ending.
    pub(crate) fn display(&self) -> String {
        self.path.display().to_string()
    }
}

/// The files at a path, which is a file or a folder, by stream name.
///
/// # Errors
/// `not_found`; `config` where two files give one stream.
pub(crate) fn list(path: &str) -> Result<Vec<CsvFile>> {
    let root = Path::new(path);
    let context = |error: std::io::Error| Error::from(error).context(path);
    if !fs::metadata(root).map_err(context)?.is_dir() {
        return Ok(vec![CsvFile::new(root)?]);
    }
    let mut streams = BTreeMap::<String, CsvFile>::new();
    for entry in fs::read_dir(root).map_err(context)? {
        let entry = entry.map_err(context)?.path();
        let name = entry
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if !is_csv(name) || !fs::metadata(&entry).is_ok_and(|metadata| metadata.is_file()) {
            continue;
        }
        let file = CsvFile::new(&entry)?;
        if let Some(other) = streams.get(&file.stream) {
            let (a, b) = (other.display(), file.display());
            return Err(Error::config(format!(
                "{} and {} both give the stream `{}`; rename one of them, or name a single file in `path`",
                (&a).min(&b),
                (&a).max(&b),
                file.stream
            )));
        }
        streams.insert(file.stream.clone(), file);
    }
    Ok(streams.into_values().collect())
}

fn is_csv(name: &str) -> bool {
    let stem = strip_ending(name, ".gz").unwrap_or(name);
    !name.starts_with('.') && ENDINGS.iter().any(|ending| strip_ending(stem, ending).is_some())
}

/// Without an ending in any case, unless nothing would be left.
fn strip_ending<'a>(name: &'a str, ending: &str) -> Option<&'a str> {
    let at = name.len().checked_sub(ending.len()).filter(|at| *at > 0)?;
    let (stem, end) = name.split_at_checked(at)?;
    end.eq_ignore_ascii_case(ending).then_some(stem)
}

/// A stream's file name: `namespace.name.csv`, where characters that could mean something to a file system stand as
/// `%` and two hexadecimal digits for each byte. No two streams share one.
pub(crate) fn file_name(stream: &StreamName) -> Result<String> {
    let escape = |part: &str, out: &mut String| {
        for (at, c) in part.char_indices() {
            let inner_space = c == ' ' && at > 0 && at + 1 < part.len();
            if c.is_alphanumeric() || matches!(c, '_' | '-') || inner_space {
                out.push(c);
            } else {
                let mut bytes = [0; 4];
                out.extend(
                    c.encode_utf8(&mut bytes)
                        .bytes()
                        .map(|byte| format!("%{byte:02X}")),
                );
            }
        }
    };
    let mut name = String::new();
    if let Some(namespace) = &stream.namespace {
        escape(namespace, &mut name);
        name.push('.');
    }
    escape(&stream.name, &mut name);
    name.push_str(".csv");
    if name.len() > MAX_NAME_BYTES {
        return Err(Error::unsupported(format!(
            "the file for {stream} would have a name of {} bytes; at most {MAX_NAME_BYTES} are possible",
            name.len()
        )));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use setu_sdk::ErrorKind;

    use super::*;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            fs::write(folder.path().join(name), "a\n").unwrap();
        }
        folder
    }

    fn streams(folder: &tempfile::TempDir) -> Result<Vec<(String, bool)>> {
        let files = list(folder.path().to_str().unwrap())?;
        Ok(files.into_iter().map(|file| (file.stream, file.gzip)).collect())
    }

    #[test]
    fn a_folder_gives_a_stream_for_each_csv_file() {
        let folder = folder(&[
            "b.csv",
            "a.2024.TSV",
            "c.txt.gz",
            ".hidden.csv",
            "notes.md",
            "csv",
            ".csv",
            "d.gz",
        ]);
        fs::create_dir(folder.path().join("e.csv")).unwrap();
        let expected = [("a.2024", false), ("b", false), ("c", true)];
        assert_eq!(
            streams(&folder).unwrap(),
            expected.map(|(name, gzip)| (name.to_owned(), gzip))
        );
    }

    #[test]
    fn two_files_of_one_name_are_an_error_that_names_both() {
        let folder = folder(&["a.csv", "a.tsv.gz"]);
        let message = streams(&folder).unwrap_err().message().to_owned();
        assert!(
            message.contains("a.csv and ") && message.contains("a.tsv.gz both give the stream `a`"),
            "{message}"
        );
    }

    #[test]
    fn a_file_is_read_whatever_its_name() {
        let folder = folder(&["data.psv", "more.csv.gz"]);
        let one = |name: &str| {
            list(folder.path().join(name).to_str().unwrap())
                .unwrap()
                .remove(0)
        };
        assert_eq!(
            (one("data.psv").stream.as_str(), one("data.psv").gzip),
            ("data.psv", false)
        );
        assert_eq!(
            (one("more.csv.gz").stream.as_str(), one("more.csv.gz").gzip),
            ("more", true)
        );
    }

    #[test]
    fn every_stream_has_a_file_name_of_its_own() {
        let cases = [
            (StreamName::bare("orders"), "orders.csv"),
            (StreamName::new("public", "orders"), "public.orders.csv"),
            (StreamName::bare("public.orders"), "public%2Eorders.csv"),
            (StreamName::bare("../x"), "%2E%2E%2Fx.csv"),
            (StreamName::bare("a b%"), "a b%25.csv"),
            (StreamName::bare(" Größe\0"), "%20Größe%00.csv"),
        ];
        for (name, expected) in cases {
            assert_eq!(file_name(&name).unwrap(), expected);
        }
        assert_eq!(
            file_name(&StreamName::bare("x".repeat(177))).unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }
}
