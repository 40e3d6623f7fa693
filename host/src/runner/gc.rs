//! Retention: what may be removed from a pipeline's blob prefix, and its removal.
//!
//! A run that some process is at work on is never touched, and neither is anything younger than the period asked for.
//! Interrupted, a collection goes on where it was when it is called again; called twice, it finds nothing the second
//! time. State is not part of any run and stays.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use super::lease::{Leases, Side, at_work};
use super::record::{RunRecord, RunStatus, read_record};
use super::state::read_state;
use crate::blob::{Blob, Key, ObjectInfo};
use crate::connector::{ErrorKind, Result};
use crate::record::StreamName;
use crate::staging::{RunLayout, read_manifest};

/// What is kept.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Only what has not been written to for so long is removed.
    pub older_than: Duration,
    /// So many of the newest runs are kept, whatever their age.
    pub keep_last: usize,
    /// Also remove runs that have not come to an end, or that a stream waits for, and with them rows that were never loaded.
    pub unfinished: bool,
    /// Remove nothing, only say what would be removed.
    pub dry_run: bool,
}

/// What is removed of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collected {
    /// The run's id.
    pub run: String,
    /// All of it, or only objects that no manifest names.
    pub whole: bool,
    /// How many objects.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Removes what the retention does not keep of the pipeline that `any_run` belongs to, and returns it by run.
pub fn collect(blob: &Arc<dyn Blob>, any_run: &RunLayout, retention: &Retention) -> Result<Vec<Collected>> {
    let prefix = any_run.runs_prefix();
    let mut runs: BTreeMap<String, Vec<ObjectInfo>> = BTreeMap::new();
    for object in blob.list(&prefix)? {
        let id = object.key.as_str()[prefix.len()..]
            .split('/')
            .next()
            .map(str::to_owned);
        runs.entry(id.unwrap_or_default()).or_default().push(object);
    }
    let mut found = Vec::new();
    for (id, objects) in runs {
        // What is not a run's is nobody's business here.
        let Ok(layout) = RunLayout::new(any_run.workspace(), any_run.pipeline(), &id) else {
            continue;
        };
        let record = read_record(&**blob, &layout.run_record())?;
        found.push((layout, record, objects));
    }
    let newest = newest(&found, retention.keep_last);
    let mut collected = Vec::new();
    for run in &found {
        let (layout, record, objects) = run;
        let whole = !newest.contains(layout.run())
            && is_old(objects, retention.older_than, SystemTime::now())
            && (retention.unfinished
                || has_ended(record.as_ref(), objects) && !is_waited_for(&**blob, layout, record.as_ref())?);
        collected.extend(collect_run(blob, run, whole, retention)?);
    }
    Ok(collected)
}

/// A run as it was found: its place, its record and its objects.
type Found = (RunLayout, Option<RunRecord>, Vec<ObjectInfo>);

/// The ids of the newest runs.
fn newest(runs: &[Found], count: usize) -> HashSet<&str> {
    let mut by_age: Vec<(&str, &str)> = runs
        .iter()
        .filter_map(|(layout, record, _)| Some((record.as_ref()?.created_at.as_str(), layout.run())))
        .collect();
    by_age.sort_unstable_by(|a, b| b.cmp(a));
    by_age.into_iter().take(count).map(|(_, run)| run).collect()
}

/// Whether nothing of a run waits to be loaded. Without a record that is so unless a manifest lies there: the rest of a
/// run whose removal was interrupted has none.
fn has_ended(record: Option<&RunRecord>, objects: &[ObjectInfo]) -> bool {
    match record {
        Some(record) => record.status != RunStatus::Running,
        None => !objects
            .iter()
            .any(|object| object.key.as_str().ends_with("/_manifest.json")),
    }
}

/// Whether a stream waits for the run to finish its load of it, or to be gone over: its record says which.
fn is_waited_for(blob: &dyn Blob, layout: &RunLayout, record: Option<&RunRecord>) -> Result<bool> {
    let streams = record.into_iter().flat_map(|record| &record.streams);
    for stream in streams.filter(|stream| stream.window().is_some()) {
        let Ok(name) = stream.stream.parse::<StreamName>() else {
            continue;
        };
        let state = read_state(blob, layout, &name)?;
        if state.is_some_and(|state| state.loading.as_deref() == Some(layout.run())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the newest of these objects is that old.
fn is_old(objects: &[ObjectInfo], age: Duration, now: SystemTime) -> bool {
    let newest = objects.iter().map(|object| object.modified).max();
    newest.is_none_or(|newest| now.duration_since(newest).is_ok_and(|since| since >= age))
}

/// Removes a whole run, or those of its parts that no manifest names.
fn collect_run(
    blob: &Arc<dyn Blob>,
    (layout, record, objects): &Found,
    whole: bool,
    retention: &Retention,
) -> Result<Option<Collected>> {
    let doomed = |objects: Vec<ObjectInfo>| match (whole, record) {
        (true, _) => Ok(objects),
        (false, Some(record)) => unnamed(&**blob, layout, record, objects, retention.older_than),
        (false, None) => Ok(Vec::new()),
    };
    let mut objects = doomed(objects.clone())?;
    if objects.is_empty() || at_work(&**blob, layout)?.is_some() {
        return Ok(None);
    }
    if !retention.dry_run {
        // From here on no process starts with the run; what one did since the look above is looked at again.
        let _leases = match Leases::take_all(blob, layout, &[Side::Extract, Side::Load]) {
            Err(error) if error.kind() == ErrorKind::Conflict => return Ok(None),
            leases => leases?,
        };
        objects = doomed(blob.list(&layout.run_prefix())?)?;
        // A load that comes in between must meet a stream that is not staged, and never one that lacks parts; the record
        // and the leases go last, so that an interrupted removal is taken up again.
        objects.sort_by_key(|object| removal_order(&object.key));
        let keys: Vec<Key> = objects.iter().map(|object| object.key.clone()).collect();
        blob.delete_all(&keys)?;
    }
    Ok(Some(Collected {
        run: layout.run().to_owned(),
        whole,
        objects: objects.len() as u64,
        bytes: objects.iter().map(|object| object.size).sum(),
    }))
}

fn removal_order(key: &Key) -> u8 {
    match key.as_str() {
        key if key.ends_with("/_manifest.json") => 0,
        key if key.contains("/stream/") => 1,
        key if key.ends_with("/_run.json") => 2,
        _ => 3,
    }
}

/// The parts of a run's streams that their manifest does not name, and that are old enough.
fn unnamed(
    blob: &dyn Blob,
    layout: &RunLayout,
    record: &RunRecord,
    objects: Vec<ObjectInfo>,
    age: Duration,
) -> Result<Vec<ObjectInfo>> {
    let mut candidates: Vec<ObjectInfo> = objects
        .into_iter()
        .filter(|object| is_part(&object.key) && is_old(std::slice::from_ref(object), age, SystemTime::now()))
        .collect();
    let streams = record
        .streams
        .iter()
        .filter_map(|stream| stream.stream.parse::<StreamName>().ok());
    let mut found = Vec::new();
    for stream in streams {
        let prefix = layout.stream_prefix(&stream);
        let (of_stream, others) = candidates
            .into_iter()
            .partition::<Vec<_>, _>(|object| object.key.as_str().starts_with(&prefix));
        candidates = others;
        if of_stream.is_empty() {
            continue;
        }
        let manifest = read_manifest(blob, layout, &stream)?;
        let named: HashSet<&str> = manifest
            .iter()
            .flat_map(|manifest| &manifest.parts)
            .map(|part| part.key.as_str())
            .collect();
        found.extend(
            of_stream
                .into_iter()
                .filter(|object| !named.contains(object.key.as_str())),
        );
    }
    Ok(found)
}

fn is_part(key: &Key) -> bool {
    let name = key.as_str().rsplit('/').next().unwrap_or_default();
    name.starts_with("part-") && name.ends_with(".jsonl.gz")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::{Body, Memory};

    const DAY: Duration = Duration::from_secs(86_400);

    fn layout(run: &str) -> RunLayout {
        RunLayout::new("default", "p", run).expect("a layout")
    }

    fn put(blob: &Arc<dyn Blob>, key: &str, bytes: &[u8]) {
        let key = Key::new(key).expect("a key");
        blob.put(&key, Body::Bytes(bytes)).expect("a put");
    }

    fn record(blob: &Arc<dyn Blob>, run: &str, created: &str, status: &str) {
        let json = serde_json::json!({
            "formatVersion": 1, "workspace": "default", "pipeline": "p", "run": run, "config": "",
            "createdAt": created, "status": status, "attempts": {},
            "streams": [{ "stream": "s", "read": "full", "write": "append", "status": "extracted" }],
        });
        put(
            blob,
            layout(run).run_record().as_str(),
            json.to_string().as_bytes(),
        );
    }

    fn stage(blob: &Arc<dyn Blob>, run: &str, named: usize, parts: usize) {
        let (layout, stream) = (layout(run), StreamName::bare("s"));
        let parts_json: Vec<_> = (0..named)
            .map(|index| {
                serde_json::json!({ "key": layout.part(&stream, index).as_str(), "rows": 1, "bytes": 4,
                    "minCursor": null, "maxCursor": null, "position": null })
            })
            .collect();
        let manifest = serde_json::json!({
            "formatVersion": 1, "stream": "s", "namespace": null, "streamType": "table",
            "schema": { "fields": [{ "name": "a", "type": "int32", "nullable": true }] }, "primaryKey": [],
            "status": "complete", "parts": parts_json, "rowsTotal": named, "cursorField": null,
            "createdAt": "", "completedAt": null,
        });
        put(
            blob,
            layout.manifest(&stream).as_str(),
            manifest.to_string().as_bytes(),
        );
        for index in 0..parts {
            put(blob, layout.part(&stream, index).as_str(), b"part");
        }
    }

    fn retention(older_than: Duration) -> Retention {
        Retention {
            older_than,
            keep_last: 0,
            unfinished: false,
            dry_run: false,
        }
    }

    fn store() -> Arc<dyn Blob> {
        let blob: Arc<dyn Blob> = Arc::new(Memory::new());
        for (run, created, status) in [
            ("a", "2024-01-01", "done"),
            ("b", "2024-01-02", "failed"),
            ("c", "2024-01-03", "running"),
            ("d", "2024-01-04", "done"),
        ] {
            record(&blob, run, created, status);
            stage(&blob, run, 1, 1);
        }
        put(&blob, "ws/default/pl/p/state/s.json", b"{}");
        put(&blob, "ws/default/pl/other/run/a/_run.json", b"{}");
        blob
    }

    fn left(blob: &Arc<dyn Blob>) -> Vec<String> {
        let objects = blob.list("").expect("a list");
        objects.iter().map(|object| object.key.to_string()).collect()
    }

    fn removed(blob: &Arc<dyn Blob>, retention: Retention) -> Vec<(String, bool, u64)> {
        let collected = collect(blob, &layout("x"), &retention).expect("it is collected");
        collected
            .into_iter()
            .map(|collected| (collected.run, collected.whole, collected.objects))
            .collect()
    }

    fn whole(runs: &[&str], objects: u64) -> Vec<(String, bool, u64)> {
        runs.iter()
            .map(|run| ((*run).to_owned(), true, objects))
            .collect()
    }

    #[test]
    fn ended_runs_go_by_age_and_number() {
        let blob = store();
        let everything = left(&blob);
        assert_eq!(removed(&blob, retention(DAY)), []);
        let dry = Retention {
            dry_run: true,
            ..retention(Duration::ZERO)
        };
        assert_eq!(removed(&blob, dry), whole(&["a", "b", "d"], 3));
        assert_eq!(left(&blob), everything);
        // With the two leases of the removal itself.
        let kept = Retention {
            keep_last: 1,
            ..retention(Duration::ZERO)
        };
        assert_eq!(removed(&blob, kept), whole(&["a", "b"], 5));
        assert_eq!(removed(&blob, kept), []);
        assert_eq!(removed(&blob, retention(Duration::ZERO)), whole(&["d"], 5));
        let unfinished = Retention {
            unfinished: true,
            ..retention(Duration::ZERO)
        };
        assert_eq!(removed(&blob, unfinished), whole(&["c"], 5));
        assert_eq!(
            left(&blob),
            [
                "ws/default/pl/other/run/a/_run.json",
                "ws/default/pl/p/state/s.json"
            ]
        );
    }

    #[test]
    fn a_run_that_a_stream_waits_for_stays() {
        let blob = store();
        let stream = StreamName::bare("s");
        let state = layout("b").state(&stream);
        let incremental = serde_json::json!([{
            "stream": "s", "read": "incremental", "write": "append", "cursor": "n", "status": "failed",
        }]);
        let mut json: serde_json::Value =
            serde_json::to_value(read_record(&*blob, &layout("b").run_record()).expect("it is read"))
                .expect("JSON");
        json["streams"] = incremental;
        put(
            &blob,
            layout("b").run_record().as_str(),
            json.to_string().as_bytes(),
        );
        for (loading, expected) in [("b", &["a", "d"][..]), ("a", &["b"])] {
            let json = format!(r#"{{"stream":"s","loading":"{loading}","updatedAt":""}}"#);
            put(&blob, state.as_str(), json.as_bytes());
            assert_eq!(
                removed(&blob, retention(Duration::ZERO)),
                whole(expected, 5),
                "{loading}"
            );
        }
        // Nobody knows which run waits where the state is damaged.
        let blob = store();
        put(
            &blob,
            layout("b").run_record().as_str(),
            json.to_string().as_bytes(),
        );
        put(&blob, state.as_str(), b"{");
        let error = collect(&blob, &layout("x"), &retention(Duration::ZERO)).expect_err("it is damaged");
        assert!(error.message().contains(state.as_str()), "{error}");
    }

    #[test]
    fn a_run_under_way_is_not_touched() {
        let blob = store();
        let held = Leases::take_all(&blob, &layout("a"), &[Side::Extract]).expect("it is free");
        let all = Retention {
            unfinished: true,
            ..retention(Duration::ZERO)
        };
        assert_eq!(removed(&blob, all), whole(&["b", "c", "d"], 5));
        drop(held);
        assert_eq!(removed(&blob, all), whole(&["a"], 5));
    }

    #[test]
    fn parts_that_no_manifest_names_go_and_named_ones_stay() {
        let blob = store();
        stage(&blob, "c", 2, 4);
        let keep = Retention {
            keep_last: 9,
            ..retention(Duration::ZERO)
        };
        assert_eq!(
            removed(
                &blob,
                Retention {
                    older_than: DAY,
                    ..keep
                }
            ),
            []
        );
        assert_eq!(removed(&blob, keep), [("c".to_owned(), false, 2)]);
        assert_eq!(removed(&blob, keep), []);
        let parts: Vec<_> = left(&blob)
            .into_iter()
            .filter(|key| key.contains("/c/stream/s/part"))
            .collect();
        assert_eq!(parts.len(), 2, "{parts:?}");
    }

    #[test]
    fn an_interrupted_removal_is_taken_up_again() {
        let blob = store();
        let gone = layout("a").manifest(&StreamName::bare("s"));
        blob.delete(&gone).expect("a delete");
        blob.delete(&layout("a").run_record()).expect("a delete");
        let removed = removed(&blob, retention(Duration::ZERO));
        assert!(
            removed.iter().any(|(run, whole, _)| run == "a" && *whole),
            "{removed:?}"
        );
        assert!(
            !left(&blob)
                .iter()
                .any(|key| key.contains("/run/a/") && key.contains("pl/p/"))
        );
    }
}
