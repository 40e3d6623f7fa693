//! How far a load has come: a small file beside the target, replaced as a whole.
//!
//! It names the load, the attempt that writes, the last mark and how many bytes of the unfinished file belong to it. An
//! attempt writes into an unfinished file of its own; the record decides whose counts.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use setu_sdk::{Error, Result, StreamName};

use crate::files::file_name;
use crate::input::modified;
use crate::position::fnv1a;

/// The record of the newest load of a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Progress {
    /// The target's stream.
    pub(crate) stream: String,
    pub(crate) load_id: String,
    pub(crate) attempt: u64,
    /// The last mark that was committed; 0: none.
    pub(crate) mark: u64,
    /// The unfinished file's length at that mark.
    pub(crate) bytes: u64,
    /// Written by this load up to that mark.
    pub(crate) rows: u64,
    /// The file that an append goes on with; none: it replaces what is there.
    pub(crate) base: Option<Base>,
    pub(crate) stage: Stage,
}

/// A file as it was, as far as one can tell without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Base {
    pub(crate) length: u64,
    /// In nanoseconds since 1970.
    pub(crate) modified: u64,
}

impl Base {
    pub(crate) fn new(metadata: &Metadata) -> Self {
        Base {
            length: metadata.len(),
            modified: modified(metadata),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Stage {
    Loading,
    /// Complete; the unfinished file is about to get the target's name, or has got it.
    Publishing,
    Finished,
}

/// What an attempt does first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    Start,
    /// Go on behind this, with the rows of the attempt that it names.
    Resume(Progress),
    /// Nothing is left to do.
    Finished(Progress),
}

/// Decides how an attempt goes on. `unfinished` is the length of the unfinished file that the record speaks of, if
/// there is one.
///
/// # Errors
/// `conflict` where a later attempt of the same load is recorded.
pub(crate) fn plan(
    recorded: Option<Progress>,
    load_id: &str,
    attempt: u64,
    unfinished: Option<u64>,
) -> Result<Plan> {
    let Some(progress) = recorded.filter(|progress| progress.load_id == load_id) else {
        return Ok(Plan::Start);
    };
    if progress.attempt > attempt {
        return Err(taken_over(attempt, &progress));
    }
    Ok(match (progress.stage, unfinished) {
        // The last thing that happened to a file that is gone while it is published is that it got its name.
        (Stage::Finished, _) | (Stage::Publishing, None) => Plan::Finished(progress),
        (_, Some(length)) if length >= progress.bytes => Plan::Resume(progress),
        // What was committed is lost, so nothing is.
        _ => Plan::Start,
    })
}

fn taken_over(attempt: u64, by: &Progress) -> Error {
    Error::conflict(format!(
        "attempt {attempt} of this load was overtaken by attempt {} and stops",
        by.attempt
    ))
}

/// The names beside one target.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    folder: PathBuf,
    file_name: String,
    stream: String,
}

impl Paths {
    pub(crate) fn new(folder: &str, stream: &StreamName) -> Result<Self> {
        Ok(Paths {
            folder: folder.into(),
            file_name: file_name(stream)?,
            stream: stream.to_string(),
        })
    }

    pub(crate) fn target(&self) -> PathBuf {
        self.folder.join(&self.file_name)
    }

    /// Where an attempt writes. Hidden, so that nobody takes it for a finished file.
    pub(crate) fn unfinished(&self, load_id: &str, attempt: u64) -> PathBuf {
        let load = fnv1a(load_id.as_bytes());
        self.folder
            .join(format!("{}{load:016x}-{attempt}", self.unfinished_prefix()))
    }

    fn unfinished_prefix(&self) -> String {
        format!(".{}.setu-part-", self.file_name)
    }

    fn record(&self) -> PathBuf {
        self.folder.join(format!(".{}.setu-load.json", self.file_name))
    }

    /// Reads the record.
    ///
    /// # Errors
    /// `config` where it is that of another stream, on a file system to which the names of both are one.
    pub(crate) fn load(&self) -> Result<Option<Progress>> {
        let path = self.record();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(at(&path, error)),
        };
        let progress: Progress = serde_json::from_slice(&bytes).map_err(|error| {
            Error::data(format!(
                "{}: not a record of a load ({error}); delete it to start the load over",
                path.display()
            ))
        })?;
        if progress.stream != self.stream {
            return Err(Error::config(format!(
                "{} cannot be the file of stream `{}`: stream `{}` is written to that file, since the file system takes \
                 both names for one; write one of them to another folder, or delete {} if it is not written any more",
                self.target().display(),
                self.stream,
                progress.stream,
                path.display()
            )));
        }
        Ok(Some(progress))
    }

    /// Replaces the record, durably.
    pub(crate) fn store(&self, progress: &Progress) -> Result<()> {
        let path = self.record();
        // A name of the attempt's own: others may be about to store theirs.
        let mut temporary = self
            .unfinished(&progress.load_id, progress.attempt)
            .into_os_string();
        temporary.push(".json");
        let store = || {
            let mut file = File::create(&temporary)?;
            file.write_all(&serde_json::to_vec(progress)?)?;
            file.sync_all()?;
            drop(file);
            fs::rename(&temporary, &path)
        };
        store().map_err(|error| at(&path, error))?;
        self.sync_folder()
    }

    /// Makes sure that the record still names this load, and no later attempt of it.
    ///
    /// # Errors
    /// `conflict` where another process has taken the target over.
    pub(crate) fn fence(&self, own: &Progress) -> Result<()> {
        match self.load()? {
            Some(progress) if progress.load_id == own.load_id && progress.attempt <= own.attempt => Ok(()),
            Some(progress) if progress.load_id == own.load_id => Err(taken_over(own.attempt, &progress)),
            _ => Err(Error::conflict(format!(
                "another load of {} was started, and this one stops",
                self.target().display()
            ))),
        }
    }

    /// Removes every unfinished file of the target but one.
    pub(crate) fn remove_others(&self, keep: &Path) -> Result<()> {
        let prefix = self.unfinished_prefix();
        for path in self.list()? {
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            if name.starts_with(&prefix) && path != keep {
                match fs::remove_file(&path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(&path, error)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What lies in the folder. Other streams are loaded into it at the same time, and a file of theirs that is renamed
    /// while WASI looks at it makes the whole listing fail; then it is made again.
    fn list(&self) -> Result<Vec<PathBuf>> {
        let mut tries = 0;
        loop {
            let entries = fs::read_dir(&self.folder);
            let paths = entries.and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
            match paths {
                Err(error) if error.kind() == io::ErrorKind::NotFound && tries < 100 => tries += 1,
                paths => return paths.map_err(|error: io::Error| at(&self.folder, error)),
            }
        }
    }

    /// Makes renames in the folder durable, where the system can.
    pub(crate) fn sync_folder(&self) -> Result<()> {
        let sync = File::open(&self.folder).and_then(|folder| folder.sync_all());
        match sync.as_ref().map_err(io::Error::kind) {
            // Not every file system lets a folder be synced.
            Ok(())
            | Err(io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory) => {
                Ok(())
            }
            Err(_) => sync.map_err(|error| at(&self.folder, error)),
        }
    }
}

/// An I/O error with its path.
pub(crate) fn at(path: &Path, error: io::Error) -> Error {
    Error::from(error).context(path.display())
}

#[cfg(test)]
mod tests {
    use setu_sdk::ErrorKind;

    use super::*;

    fn progress(attempt: u64, stage: Stage) -> Progress {
        Progress {
            stream: "t".into(),
            load_id: "l".into(),
            attempt,
            mark: 3,
            bytes: 100,
            rows: 9,
            base: None,
            stage,
        }
    }

    #[test]
    fn an_attempt_goes_on_where_the_record_allows() {
        use Stage::*;
        let resume = |p: &Progress| Plan::Resume(p.clone());
        let finished = |p: &Progress| Plan::Finished(p.clone());
        let start = |_: &Progress| Plan::Start;
        type Expect<'a> = &'a dyn Fn(&Progress) -> Plan;
        let cases: &[(u64, Stage, Option<u64>, Expect<'_>)] = &[
            (1, Loading, Some(100), &resume),
            (2, Loading, Some(250), &resume),
            (2, Loading, Some(99), &start),
            (2, Loading, None, &start),
            (2, Publishing, Some(100), &resume),
            (1, Publishing, None, &finished),
            (2, Finished, None, &finished),
            (2, Finished, Some(100), &finished),
        ];
        for (attempt, stage, unfinished, expected) in cases {
            let recorded = progress(1, *stage);
            let found = plan(Some(recorded.clone()), "l", *attempt, *unfinished).unwrap();
            assert_eq!(
                found,
                expected(&recorded),
                "attempt {attempt}, {stage:?}, {unfinished:?}"
            );
        }
        assert_eq!(plan(None, "l", 1, None).unwrap(), Plan::Start);
        assert_eq!(
            plan(Some(progress(5, Finished)), "other", 1, None).unwrap(),
            Plan::Start
        );
        for stage in [Loading, Publishing, Finished] {
            let error = plan(Some(progress(5, stage)), "l", 4, Some(100)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
        }
    }
}
