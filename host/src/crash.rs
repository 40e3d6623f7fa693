//! Deaths on demand: how tests find out what survives them.
//!
//! `SETU_CRASH_AT=POINT[:N]` makes the process die at the N-th passing of a point (1 unless given), without flushing,
//! dropping or telling anything, as after SIGKILL or a loss of power. Points lie before and after each step that makes
//! something durable:
//!
//! | point | step |
//! |---|---|
//! | `before-put-X`, `after-put-X` | a put to the blob store, where X is `part`, `manifest`, `run`, `state`, `lease` or `mark` |
//! | `before-commit`, `after-commit` | a destination's commit |
//! | `before-finish`, `after-finish` | a destination's finish |
//!
//! Without the variable there are no points, and nothing here is in the way.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::blob::{Blob, BlobError, Body, Condition, Key, ObjectInfo, Version};
use crate::connector::{Chunk, LoadSummary, PartBudget, Result, Writer};

const VARIABLE: &str = "SETU_CRASH_AT";

/// Where to die.
struct Plan {
    point: String,
    /// At which passing.
    at: u64,
    passed: AtomicU64,
}

impl Plan {
    fn parse(text: &str) -> Plan {
        let (point, at) = text.split_once(':').unwrap_or((text, "1"));
        Plan {
            point: point.to_owned(),
            // A plan that makes no sense is a defect of the test, which must not pass for it.
            at: at
                .parse()
                .unwrap_or_else(|_| panic!("{VARIABLE}={text}: not POINT:N")),
            passed: AtomicU64::new(0),
        }
    }

    /// Whether this passing of a point is the one.
    fn is_due(&self, point: &str) -> bool {
        self.point == point && self.passed.fetch_add(1, Ordering::SeqCst) + 1 == self.at
    }
}

fn plan() -> Option<&'static Plan> {
    static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
    PLAN.get_or_init(|| std::env::var(VARIABLE).ok().map(|text| Plan::parse(&text)))
        .as_ref()
}

fn pass(point: &str) {
    if plan().is_some_and(|plan| plan.is_due(point)) {
        std::process::abort();
    }
}

/// A blob store with points around its puts, if the environment asks for a death.
pub(crate) fn blob(blob: Arc<dyn Blob>) -> Arc<dyn Blob> {
    match plan() {
        Some(_) => Arc::new(DeadlyBlob(blob)),
        None => blob,
    }
}

/// A writer with points around what it makes durable, if the environment asks for a death.
pub(crate) fn writer<'a>(writer: Box<dyn Writer + 'a>) -> Box<dyn Writer + 'a> {
    match plan() {
        Some(_) => Box::new(DeadlyWriter(writer)),
        None => writer,
    }
}

/// What is put under a key of the staged layout.
fn kind(key: &Key) -> &'static str {
    let key = key.as_str();
    let name = key.rsplit('/').next().unwrap_or(key);
    match name {
        "_manifest.json" => "manifest",
        "_run.json" => "run",
        "_load.json" if key.contains("/stream/") => "mark",
        "_load.json" | "_extract.json" => "lease",
        _ if key.contains("/state/") => "state",
        _ => "part",
    }
}

struct DeadlyBlob(Arc<dyn Blob>);

impl DeadlyBlob {
    fn around<T>(&self, key: &Key, put: impl FnOnce() -> Result<T, BlobError>) -> Result<T, BlobError> {
        pass(&format!("before-put-{}", kind(key)));
        let done = put()?;
        pass(&format!("after-put-{}", kind(key)));
        Ok(done)
    }
}

impl Blob for DeadlyBlob {
    fn put(&self, key: &Key, body: Body<'_>) -> Result<(), BlobError> {
        self.around(key, || self.0.put(key, body))
    }

    fn get(&self, key: &Key) -> Result<Box<dyn Read + Send>, BlobError> {
        self.0.get(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, BlobError> {
        self.0.list(prefix)
    }

    fn delete(&self, key: &Key) -> Result<(), BlobError> {
        self.0.delete(key)
    }

    fn delete_all(&self, keys: &[Key]) -> Result<(), BlobError> {
        self.0.delete_all(keys)
    }

    fn conditional(&self) -> Result<bool, BlobError> {
        self.0.conditional()
    }

    fn get_versioned(&self, key: &Key) -> Result<(Vec<u8>, Version), BlobError> {
        self.0.get_versioned(key)
    }

    fn put_if(&self, key: &Key, bytes: &[u8], condition: Condition<'_>) -> Result<Version, BlobError> {
        self.around(key, || self.0.put_if(key, bytes, condition))
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

struct DeadlyWriter<'a>(Box<dyn Writer + 'a>);

impl Writer for DeadlyWriter<'_> {
    fn committed(&mut self) -> Result<u64> {
        self.0.committed()
    }

    fn write(&mut self, chunk: Chunk) -> Result<()> {
        self.0.write(chunk)
    }

    fn commit(&mut self, mark: u64) -> Result<()> {
        pass("before-commit");
        self.0.commit(mark)?;
        pass("after-commit");
        Ok(())
    }

    fn finish(&mut self, high_water_mark: Option<String>) -> Result<LoadSummary> {
        pass("before-finish");
        let summary = self.0.finish(high_water_mark)?;
        pass("after-finish");
        Ok(summary)
    }

    fn part_budget(&self) -> Option<Arc<PartBudget>> {
        self.0.part_budget()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_due_once_at_its_point() {
        let plan = Plan::parse("before-commit:2");
        let passings = ["before-commit", "after-commit", "before-commit", "before-commit"];
        assert_eq!(
            passings.map(|point| plan.is_due(point)),
            [false, false, true, false]
        );
        assert!(Plan::parse("after-finish").is_due("after-finish"));
    }

    #[test]
    fn every_object_of_the_layout_has_its_kind() {
        let layout = crate::staging::RunLayout::new("w", "p", "r").expect("a layout");
        let stream = crate::record::StreamName::new("public", "load");
        for (key, expected) in [
            (layout.run_record(), "run"),
            (layout.lease("load"), "lease"),
            (layout.lease("extract"), "lease"),
            (layout.manifest(&stream), "manifest"),
            (layout.part(&stream, 0), "part"),
            (layout.load_mark(&stream), "mark"),
            (layout.state(&stream), "state"),
        ] {
            assert_eq!(kind(&key), expected, "{key}");
        }
    }
}
