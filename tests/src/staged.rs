//! Staged objects on disk, read with nothing but gzip and JSON: the way another program would read them.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use serde_json::Value;

/// One staged stream of an `fs` blob store.
#[derive(Debug)]
pub struct StagedStream {
    root: PathBuf,
    folder: String,
}

impl StagedStream {
    /// The stream whose objects lie at `ws/<workspace>/pl/<pipeline>/run/<run>/stream/<slug>/` below the root.
    pub fn new(root: impl Into<PathBuf>, pipeline: &str, run: &str, slug: &str) -> Self {
        Self {
            root: root.into(),
            folder: format!("ws/default/pl/{pipeline}/run/{run}/stream/{slug}"),
        }
    }

    /// The key of one of its objects.
    pub fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    /// The manifest, if there is one.
    pub fn try_manifest(&self) -> Option<Value> {
        let text = fs::read(self.root.join(self.key("_manifest.json"))).ok()?;
        Some(
            serde_json::from_slice(&text).unwrap_or_else(|error| panic!("the manifest is not JSON: {error}")),
        )
    }

    /// The manifest.
    #[track_caller]
    pub fn manifest(&self) -> Value {
        match self.try_manifest() {
            Some(manifest) => manifest,
            None => panic!("no {}", self.key("_manifest.json")),
        }
    }

    /// How many parts the manifest names; 0 without one.
    pub fn named_parts(&self) -> usize {
        let manifest = self.try_manifest();
        manifest
            .and_then(|manifest| manifest["parts"].as_array().map(Vec::len))
            .unwrap_or(0)
    }

    /// The uncompressed text of a part.
    #[track_caller]
    pub fn part_text(&self, index: usize) -> String {
        let path = self.root.join(self.key(&format!("part-{index:06}.jsonl.gz")));
        let file = fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let mut text = String::new();
        let read = MultiGzDecoder::new(file).read_to_string(&mut text);
        read.unwrap_or_else(|error| panic!("{} is not gzip of UTF-8: {error}", path.display()));
        text
    }

    /// The rows of a part, each a JSON array.
    #[track_caller]
    pub fn part(&self, index: usize) -> Vec<Vec<Value>> {
        let text = self.part_text(index);
        let rows = text.lines().map(|line| match serde_json::from_str(line) {
            Ok(Value::Array(values)) => values,
            other => panic!("part {index}: `{line}` is not a JSON array: {other:?}"),
        });
        rows.collect()
    }

    /// The rows of every part that the manifest names.
    #[track_caller]
    pub fn rows(&self) -> Vec<Vec<Value>> {
        (0..self.named_parts())
            .flat_map(|index| self.part(index))
            .collect()
    }
}

/// The keys of all objects below an `fs` blob root, sorted.
pub fn staged_keys(root: &Path) -> Vec<String> {
    let mut keys = Vec::new();
    collect(root, root, &mut keys);
    keys.sort();
    keys
}

fn collect(root: &Path, folder: &Path, keys: &mut Vec<String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, keys);
        } else if let Ok(key) = path.strip_prefix(root) {
            let key = key.to_string_lossy();
            // No key has a backslash: the store's own files have one.
            if !key.contains('\\') {
                keys.push(key.into_owned());
            }
        }
    }
}
