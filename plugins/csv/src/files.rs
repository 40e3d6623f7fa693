//! Which files a path names and the streams that they are, and which file a stream becomes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{fs, io};

use setu_sdk::{Error, Result, StreamName};

/// The endings of files that are read from a folder, each perhaps followed by `.gz`.
const ENDINGS: [&str; 3] = [".csv", ".tsv", ".txt"];

/// The longest file name that is made, so that the hidden names beside it fit a file system's 255 bytes as well.
const MAX_NAME_BYTES: usize = 180;

/// The stream of files whose names are not UTF-8.
const UNNAMED: &str = "(a file name that is not UTF-8)";

/// One file, which is one stream.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CsvFile {
    pub(crate) path: PathBuf,
    /// The stream's name.
    pub(crate) stream: String,
    pub(crate) gzip: bool,
    /// Why it cannot be read, where that shows without opening it.
    pub(crate) defect: Option<Error>,
}

impl CsvFile {
    fn new(path: &Path) -> Self {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = &*name;
        let (stem, gzip) = match strip_ending(name, ".gz") {
            Some(stem) => (stem, true),
            None => (name, false),
        };
        let stream = ENDINGS
            .iter()
            .find_map(|ending| strip_ending(stem, ending))
            .unwrap_or(stem);
        CsvFile {
            path: path.to_owned(),
            stream: stream.to_owned(),
            gzip,
            defect: None,
        }
    }

    /// For messages and for what depends on the ending.
    pub(crate) fn display(&self) -> String {
        self.path.display().to_string()
    }
}

/// The files at a path, which is a file or a folder, by stream name.
///
/// What looks like a CSV file in a folder and cannot be read is a file with a defect: it must not be lost, nor keep the
/// others from being read.
pub(crate) fn list(path: &str) -> Result<Vec<CsvFile>> {
    let root = Path::new(path);
    let context = |error: io::Error| Error::from(error).context(path);
    if !fs::metadata(root).map_err(context)?.is_dir() {
        return Ok(vec![CsvFile::new(root)]);
    }
    let names = names(root).map_err(context)?;
    let unnamed = names.iter().filter(|name| name.is_none()).count();
    let mut streams = BTreeMap::<String, CsvFile>::new();
    for name in names.iter().flatten().filter(|name| is_csv(name)) {
        let mut file = CsvFile::new(&root.join(name));
        match fs::metadata(&file.path) {
            Ok(found) if found.is_dir() => continue,
            Ok(found) => file.defect = (!found.is_file()).then(|| not_a_file(&file)),
            Err(error) => file.defect = Some(out_of_reach(&file, error)),
        }
        if let Some(other) = streams.get(&file.stream) {
            file.defect = Some(same_stream(other, &file));
        }
        streams.insert(file.stream.clone(), file);
    }
    if unnamed > 0 {
        streams.insert(UNNAMED.to_owned(), without_names(root, unnamed));
    }
    Ok(streams.into_values().collect())
}

fn not_a_file(file: &CsvFile) -> Error {
    Error::data(format!("{} is neither a file nor a folder", file.display()))
}

/// Why nothing can be learnt of a file that its folder names.
fn out_of_reach(file: &CsvFile, error: io::Error) -> Error {
    let name = file.display();
    let is_link = fs::symlink_metadata(&file.path).is_ok_and(|found| found.is_symlink());
    match error.kind() {
        io::ErrorKind::NotFound if is_link => {
            Error::not_found(format!("{name} is a symbolic link that leads nowhere"))
        }
        // The sandbox follows links within a granted folder only.
        io::ErrorKind::PermissionDenied if is_link => Error::denied(format!(
            "{name} is a symbolic link that leads out of the folder, where this connector may not read; put the file \
             itself there, or name the link's target in `path`"
        )),
        _ => Error::from(error).context(name),
    }
}

fn same_stream(a: &CsvFile, b: &CsvFile) -> Error {
    let (stream, a, b) = (&a.stream, a.display(), b.display());
    Error::config(format!(
        "{} and {} both give the stream `{stream}`; rename one of them, or name a single file in `path`",
        (&a).min(&b),
        (&a).max(&b),
    ))
}

/// One stream for all files whose names are not UTF-8: in the sandbox nothing more can be known of them.
fn without_names(folder: &Path, count: usize) -> CsvFile {
    let what = match count {
        1 => "1 name in this folder is".to_owned(),
        more => format!("{more} names in this folder are"),
    };
    let message = format!(
        "{}: {what} not UTF-8, so that it cannot be told which file that is, nor can it be opened; rename it, or move \
         it elsewhere",
        folder.display()
    );
    CsvFile {
        path: folder.to_owned(),
        stream: UNNAMED.to_owned(),
        gzip: false,
        defect: Some(Error::data(message)),
    }
}

/// The names in a folder; none for one that is not UTF-8.
#[cfg(not(target_os = "wasi"))]
fn names(folder: &Path) -> io::Result<Vec<Option<String>>> {
    let name = |entry: io::Result<fs::DirEntry>| Ok(entry?.file_name().into_string().ok());
    fs::read_dir(folder)?.map(name).collect()
}

/// The names in a folder; none for one that is not UTF-8, which WASI does not tell. Asks WASI itself, because the
/// standard library's iterator ends at the first such name.
#[cfg(target_os = "wasi")]
fn names(folder: &Path) -> io::Result<Vec<Option<String>>> {
    use wasip2::filesystem::preopens::get_directories;
    use wasip2::filesystem::types::{DescriptorFlags, ErrorCode, OpenFlags, PathFlags};

    let error = |code: ErrorCode| io::Error::other(code.message());
    let preopens = get_directories();
    let below = preopens.iter().filter_map(|(preopen, path)| {
        let rest = folder.strip_prefix(path).ok()?.to_str()?;
        Some((preopen, if rest.is_empty() { "." } else { rest }))
    });
    let (preopen, rest) = below
        .min_by_key(|(_, rest)| rest.len())
        .ok_or(io::ErrorKind::PermissionDenied)?;
    let opened = preopen
        .open_at(
            PathFlags::SYMLINK_FOLLOW,
            rest,
            OpenFlags::DIRECTORY,
            DescriptorFlags::READ,
        )
        .map_err(error)?;
    let entries = opened.read_directory().map_err(error)?;
    let mut names = Vec::new();
    loop {
        match entries.read_directory_entry() {
            Ok(Some(entry)) => names.push(Some(entry.name)),
            Ok(None) => return Ok(names),
            Err(ErrorCode::IllegalByteSequence) => names.push(None),
            Err(code) => return Err(error(code)),
        }
    }
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

    fn streams(folder: &tempfile::TempDir) -> Vec<(String, bool)> {
        let files = list(folder.path().to_str().unwrap()).unwrap();
        files.into_iter().map(|file| (file.stream, file.gzip)).collect()
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
            streams(&folder),
            expected.map(|(name, gzip)| (name.to_owned(), gzip))
        );
    }

    #[test]
    fn two_files_of_one_name_are_one_stream_with_an_error_that_names_both() {
        let folder = folder(&["a.csv", "a.tsv.gz", "b.csv"]);
        let files = list(folder.path().to_str().unwrap()).unwrap();
        let defects: Vec<Option<&str>> = files
            .iter()
            .map(|file| file.defect.as_ref().map(Error::message))
            .collect();
        let [Some(message), None] = defects[..] else {
            panic!("{defects:?}");
        };
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
