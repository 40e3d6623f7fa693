//! Staged runs for the verbs that look into them: which blob store, which pipeline, which run.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::args::StoreArguments;
use super::failure::Failure;
use super::session::{blob_from_env, read_pipeline};
use crate::blob::{self, Blob, ObjectInfo, Spec};
use crate::pipeline::{DEFAULT_BLOB_ROOT, Job};
use crate::runner::{LeaseRecord, RunRecord, RunStatus, at_work, records_among};
use crate::staging::RunLayout;

/// A blob store that runs are looked for in.
pub(super) struct Store {
    pub(super) blob: Arc<dyn Blob>,
    /// Of every run, that of one pipeline: its workspace and name.
    pipeline: Option<(String, String)>,
}

impl Store {
    /// Opens the store that the arguments, the environment or the current folder name, which must exist.
    pub(super) fn open(arguments: &StoreArguments) -> Result<Store, Failure> {
        let (spec, pipeline) = place(arguments)?;
        match open_existing(&spec)? {
            Some(blob) => Ok(Store { blob, pipeline }),
            None => Err(Failure::failed(format!(
                "nothing has been staged yet in {}",
                described(&spec)
            ))),
        }
    }

    /// The same; none where it does not exist.
    pub(super) fn find(arguments: &StoreArguments) -> Result<Option<Store>, Failure> {
        let (spec, pipeline) = place(arguments)?;
        Ok(open_existing(&spec)?.map(|blob| Store { blob, pipeline }))
    }

    /// The objects of all runs.
    pub(super) fn objects(&self) -> Result<Vec<ObjectInfo>, Failure> {
        let prefix = match self.pipeline {
            Some(_) => self.any_run()?.runs_prefix(),
            None => "ws/".to_owned(),
        };
        Ok(self.blob.list(&prefix)?)
    }

    /// All runs, the newest first.
    pub(super) fn runs(&self) -> Result<Vec<RunRecord>, Failure> {
        self.runs_among(&self.objects()?)
    }

    /// The runs that these objects belong to, the newest first.
    pub(super) fn runs_among(&self, objects: &[ObjectInfo]) -> Result<Vec<RunRecord>, Failure> {
        Ok(records_among(&*self.blob, objects)?)
    }

    /// The process that is at work on a run, if any.
    pub(super) fn at_work(
        &self,
        record: &RunRecord,
        layout: &RunLayout,
    ) -> Result<Option<LeaseRecord>, Failure> {
        match record.status {
            RunStatus::Done => Ok(None),
            RunStatus::Running | RunStatus::Failed | RunStatus::GivenUp => Ok(at_work(&*self.blob, layout)?),
        }
    }

    /// The place of any run of the pipeline that was named.
    pub(super) fn any_run(&self) -> Result<RunLayout, Failure> {
        match &self.pipeline {
            Some((workspace, pipeline)) => layout(workspace, pipeline, "any"),
            None => Err(Failure::wrong("no pipeline was named")),
        }
    }

    /// The run of this id, or the newest one, with its place in the store.
    pub(super) fn run(&self, id: Option<&str>) -> Result<(RunRecord, RunLayout), Failure> {
        let record = choose(self.runs()?, id, &self.blob.describe())?;
        let layout = layout_of(&record)?;
        Ok((record, layout))
    }
}

/// How a store is opened, and the pipeline whose runs are meant.
type Place = (Spec, Option<(String, String)>);

/// The store that the arguments, the environment or the current folder name.
fn place(arguments: &StoreArguments) -> Result<Place, Failure> {
    Ok(match (&arguments.pipeline, &arguments.job) {
        (Some(path), _) => of_job(pipeline_job(path)?),
        (None, Some(path)) => of_job(Job::read_file(path).map_err(Failure::wrong)?),
        (None, None) => (nearby()?, None),
    })
}

/// The bytes of each run's objects, by the run's prefix.
pub(super) fn sizes(objects: &[ObjectInfo]) -> HashMap<String, u64> {
    let mut sizes = HashMap::new();
    for object in objects {
        // ws/<workspace>/pl/<pipeline>/run/<run>/…
        let key = object.key.as_str();
        if let Some((end, _)) = key.match_indices('/').nth(5) {
            *sizes.entry(key[..=end].to_owned()).or_default() += object.size;
        }
    }
    sizes
}

/// Picks a run out of all, the newest first.
fn choose(runs: Vec<RunRecord>, id: Option<&str>, store: &str) -> Result<RunRecord, Failure> {
    let Some(id) = id else {
        let newest = runs.into_iter().next();
        return newest.ok_or_else(|| Failure::failed(format!("there is no run in {store}")));
    };
    let known: Vec<String> = runs.iter().take(5).map(|run| format!("`{}`", run.run)).collect();
    let mut found: Vec<RunRecord> = runs.into_iter().filter(|run| run.run == id).collect();
    match (found.pop(), found.first()) {
        (Some(run), None) => Ok(run),
        (Some(last), Some(first)) => Err(Failure::wrong(format!(
            "run `{id}` is one of pipeline `{}` and of `{}`: name the pipeline with --pipeline FILE",
            first.pipeline, last.pipeline
        ))),
        (None, _) => {
            let hint = match known.is_empty() {
                true => "it holds no run at all".to_owned(),
                false => format!("the newest runs are {}", known.join(", ")),
            };
            Err(Failure::failed(format!(
                "there is no run `{id}` in {store}; {hint}"
            )))
        }
    }
}

/// Where a run is.
pub(super) fn layout_of(record: &RunRecord) -> Result<RunLayout, Failure> {
    layout(&record.workspace, &record.pipeline, &record.run)
}

fn layout(workspace: &str, pipeline: &str, run: &str) -> Result<RunLayout, Failure> {
    RunLayout::new(workspace, pipeline, run).map_err(|error| Failure::wrong(error.to_string()))
}

fn of_job(job: Job) -> Place {
    (job.staging, Some((job.workspace, job.pipeline)))
}

/// A pipeline file's job, as far as looking at its runs needs it: the variables of its connectors may be missing.
fn pipeline_job(path: &Path) -> Result<Job, Failure> {
    let lookup = |name: &str| Ok(std::env::var_os(name).or_else(|| Some("unset".into())));
    Ok(read_pipeline(path, &lookup)?.finish()?)
}

/// The store that the environment names, or the one in the current folder.
fn nearby() -> Result<Spec, Failure> {
    let spec = blob_from_env()?;
    if !spec.is_empty() {
        return Ok(spec);
    }
    if Path::new(DEFAULT_BLOB_ROOT).is_dir() {
        return Ok(Spec {
            backend: "fs".into(),
            fs_root: DEFAULT_BLOB_ROOT.into(),
            ..Spec::default()
        });
    }
    Err(Failure::wrong(format!(
        "there is no {DEFAULT_BLOB_ROOT} in this folder: name the pipeline with --pipeline FILE, or the blob store with SETU_BLOB_*"
    )))
}

/// Opens a store without creating it: none where it is a folder that does not exist.
pub(super) fn open_existing(spec: &Spec) -> Result<Option<Arc<dyn Blob>>, Failure> {
    if spec.backend == "fs" && !Path::new(&spec.fs_root).exists() {
        return Ok(None);
    }
    Ok(Some(blob::from_spec(spec)?))
}

/// A store in a few words, without its secrets.
pub(super) fn described(spec: &Spec) -> String {
    match spec.backend.as_str() {
        "fs" => format!("fs:{}", spec.fs_root),
        backend => format!("{backend}://{}", spec.bucket),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(pipeline: &str, run: &str) -> RunRecord {
        let json = serde_json::json!({
            "formatVersion": 1, "workspace": "default", "pipeline": pipeline, "run": run, "config": "",
            "createdAt": "2024-01-01T00:00:00.000Z", "status": "done", "attempts": {}, "streams": [],
        });
        serde_json::from_value(json).expect("a record")
    }

    #[test]
    fn a_run_is_found_by_its_id_or_the_newest_taken() {
        let runs = || {
            vec![
                record("p", "c"),
                record("q", "b"),
                record("p", "b"),
                record("p", "a"),
            ]
        };
        let chosen = |id| choose(runs(), id, "fs:/x").map(|run| run.run);
        assert_eq!(chosen(None), Ok("c".into()));
        assert_eq!(chosen(Some("a")), Ok("a".into()));
        for (id, expected) in [
            (
                Some("b"),
                "run `b` is one of pipeline `q` and of `p`: name the pipeline with --pipeline FILE",
            ),
            (
                Some("z"),
                "there is no run `z` in fs:/x; the newest runs are `c`, `b`, `b`, `a`",
            ),
        ] {
            assert_eq!(
                chosen(id).map_err(|failure| failure.messages().to_vec()),
                Err(vec![expected.to_owned()])
            );
        }
        let none = choose(Vec::new(), Some("z"), "fs:/x").map(|run| run.run);
        assert_eq!(
            none.expect_err("none").messages(),
            ["there is no run `z` in fs:/x; it holds no run at all"]
        );
    }

    #[test]
    fn a_store_is_described_without_its_keys() {
        let spec = Spec {
            backend: "s3".into(),
            bucket: "b".into(),
            access_key: "AKIA".into(),
            secret_key: "hunter2".into(),
            ..Spec::default()
        };
        assert_eq!(described(&spec), "s3://b");
    }
}
