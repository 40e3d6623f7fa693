//! A job as a file of JSON: what `setu plan --job-out` writes and `--job` reads.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::Job;
use crate::staging::check_id;

impl Job {
    /// Writes the job for its owner only (mode 0600), since it may hold secrets. Replaces a file of this name, and
    /// what others could read before stays as it was until then.
    pub fn write_file(&self, path: &Path) -> io::Result<()> {
        let json = serde_json::to_vec_pretty(self)?;
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        let temporary =
            path.with_file_name(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        let written = file
            .write_all(&json)
            .and_then(|()| file.write_all(b"\n"))
            .and_then(|()| file.sync_all())
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The first error is the one worth telling.
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Reads a job. The error says what is wrong without showing any value.
    pub fn read_file(path: &Path) -> Result<Job, String> {
        let shown = path.display();
        let text = fs::read_to_string(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
        let job: Job = serde_json::from_str(&text).map_err(|error| {
            // Serde's messages quote values of the wrong type; those about fields quote only names.
            let message = error.to_string();
            let fields = ["missing field", "unknown field", "duplicate field"];
            let detail = match fields.iter().any(|start| message.starts_with(start)) {
                true => message,
                false => format!("wrong at line {} column {}", error.line(), error.column()),
            };
            format!("{shown} is not a job that `setu plan --job-out` wrote: {detail}")
        })?;
        check_id("workspace", &job.workspace)
            .and_then(|()| check_id("pipeline", &job.pipeline))
            .map_err(|error| format!("{shown}: {error}"))?;
        Ok(job)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::blob::Spec;
    use crate::pipeline::PipelineFile;

    fn job() -> Job {
        let text = "pipeline: p\nsource: { connector: csv, config: { password: hunter2 } }\n\
                    destination: { connector: csv }\nstreams: [a]\n";
        let file = PipelineFile::parse(
            "p.yaml",
            Path::new("/base"),
            text,
            &|_| Ok(None),
            &Spec::default(),
        );
        file.finish().expect("a job")
    }

    #[test]
    fn a_job_file_is_for_its_owner_only_even_where_a_wider_one_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job.json");
        fs::write(&path, "old").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        job().write_file(&path).expect("written");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = Job::read_file(&path).expect("it reads back");
        assert_eq!(read.source.config["password"], "hunter2");
        let files = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(files, 1, "no temporary file is left");
    }

    #[test]
    fn a_wrong_job_file_is_explained_without_its_values() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("job.json");
        let right = serde_json::to_string(&job()).expect("JSON");
        for (text, expected) in [
            ("", "wrong at line 1 column 0"),
            ("{}", "missing field `workspace`"),
            (
                &right.replace("\"streams\":[", "\"streams\":[\"hunter2\","),
                "wrong at line 1",
            ),
            (
                &right.replace("\"workspace\":\"default\"", "\"workspace\":\"../x\""),
                "workspace `../x` must",
            ),
        ] {
            fs::write(&path, text).expect("written");
            let error = Job::read_file(&path).expect_err("an error");
            assert!(error.contains(expected) && error.contains("job.json"), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
        let error = Job::read_file(Path::new("/none/job.json")).expect_err("an error");
        assert!(
            error.starts_with("/none/job.json cannot be read: No such file"),
            "{error}"
        );
    }
}
