//! What must hold of any bytes whatever: one function a fuzz target, which panics where its property does not hold.
//!
//! `cargo xtask fuzz` looks for such bytes. The tests replay the seeds in `host/fuzz/seeds`, which is where bytes that
//! were found once belong. Not here: the property of the CSV source's reader (`plugins/csv/src/fuzzing.rs`), and what
//! guards the whole against a hostile guest (`tests/tests/plugin_host.rs`).

use std::io::{self, Read};
use std::iter::repeat_with;
use std::path::Path;

use arrow_array::{Array, RecordBatch};

use crate::address::{Endpoint, Host, NetworkGrant, endpoints, mask, passwords};
use crate::blob::{self, Blob, Body, Memory};
use crate::pipeline::{Job, PipelineFile};
use crate::plugin::lift_and_lower;
use crate::record::{DataType, Field, Schema, StreamName};
use crate::staging::{Manifest, RunLayout, codec, cursor::CursorValue, staged_streams};

/// A batch as a guest returned it: refused, or sound and able to go on.
pub fn batch(data: &[u8]) {
    let mut bytes = Bytes(data);
    let schema = schema(&mut bytes);
    let Some(batch) = lift_and_lower(&schema, &mut bytes) else {
        return;
    };
    assert_sound(&batch);
    let mut lines = Vec::new();
    codec::encode(&schema, &batch, &mut lines).expect("an accepted batch can be staged");
    let read = codec::decode(&schema, &lines[..], 1).expect("what was staged reads back");
    let mut again = Vec::new();
    codec::encode(&schema, &read, &mut again).expect("what was read can be staged");
    // As lines, not as arrays: a NaN's payload does not travel.
    assert_eq!(lines, again);
}

/// A staged part: refused, or a sound batch that is written and reads back as itself.
pub fn codec(data: &[u8]) {
    let mut bytes = Bytes(data);
    let schema = schema(&mut bytes);
    let step = 1 + usize::from(bytes.byte());
    let lines = bytes.0;
    let read = codec::decode(&schema, lines, 1);
    assert_eq!(
        codec::decode(&schema, Trickle(lines, step), step as u64),
        read,
        "in pieces of {step} bytes"
    );
    let Ok(batch) = read else { return };
    assert_sound(&batch);
    let mut written = Vec::new();
    codec::encode(&schema, &batch, &mut written).expect("what was read can be written");
    assert_eq!(codec::decode(&schema, &written[..], 1), Ok(batch));
}

/// A manifest: refused, or written so that it reads back as itself.
pub fn manifest(json: &[u8]) {
    let layout = RunLayout::new("default", "golden", "2024-05-01").expect("three ids");
    let blob = Memory::new();
    let key = layout.manifest(&StreamName::bare("any"));
    blob.put(&key, Body::Bytes(json)).expect("memory takes all");
    let Ok(manifests) = staged_streams(&blob, &layout) else {
        return;
    };
    for manifest in manifests {
        let written = manifest.to_json();
        let read =
            Manifest::from_json(&written, &layout, &manifest.stream).expect("what was read can be written");
        let same_cursor = match (manifest.cursor(), read.cursor()) {
            (Some(one), Some(other)) => one == other || same_value(&manifest, &one, &other),
            (one, other) => one == other,
        };
        assert!(same_cursor, "{:?} and {:?}", manifest.cursor(), read.cursor());
        // A mark that the parts say as well is not written, nor is it said that an attempt is the first.
        let expected = Manifest {
            high_water_mark: read.high_water_mark.clone(),
            attempt: manifest.attempt.max(1),
            ..manifest
        };
        assert_eq!(read, expected);
        assert_eq!(read.to_json(), written);
    }
}

/// Whether two texts are one value of the manifest's cursor, such as 1.0 and 1.00.
fn same_value(manifest: &Manifest, one: &str, other: &str) -> bool {
    let field = manifest
        .cursor_field
        .as_deref()
        .and_then(|name| manifest.schema.index_of(name));
    let data_type = field.map(|index| manifest.schema.fields[index].data_type);
    data_type.is_some_and(|data_type| {
        let value = |text| CursorValue::from_text(data_type, text).expect("a checked cursor value");
        value(one) == value(other)
    })
}

/// A pipeline file: mistakes, each at a place in it, or a job that an agent would read as it was written.
pub fn pipeline(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let file = PipelineFile::parse(
        "p.yaml",
        Path::new("/base"),
        text,
        &|_| Ok(None),
        &blob::Spec::default(),
    );
    match file.finish() {
        Ok(job) => {
            let json = |job: &Job| serde_json::to_string(job).expect("a job is JSON");
            let written = json(&job);
            let read: Job = serde_json::from_str(&written).expect("a job reads back");
            assert_eq!(json(&read), written);
        }
        Err(mistakes) => {
            assert!(!mistakes.list.is_empty());
            // For YAML a CR ends a line as well, and the end of the file is the start of another.
            let text = text.replace("\r\n", "\n").replace('\r', "\n") + "\n";
            let lines: Vec<&str> = text.split('\n').collect();
            for mistake in &mistakes.list {
                let (line, column) = (mistake.place.line, mistake.place.column);
                let length = line
                    .checked_sub(1)
                    .and_then(|line| lines.get(line))
                    .map(|line| line.chars().count());
                let within = length.is_some_and(|length| (1..=length + 1).contains(&column));
                assert!(within, "{mistakes}");
            }
        }
    }
}

/// A text that names hosts: whatever it gives is in normal form, and is what it grants; what is shown of it has no
/// password.
pub fn grant(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Some(host) = Host::parse(text) {
        assert_eq!(Host::parse(&host.to_string()), Some(host));
    }
    for port in [None, Some(5432)] {
        for endpoint in endpoints(text, port).unwrap_or_default() {
            assert_eq!(endpoints(&endpoint.to_string(), None), Ok(vec![endpoint.clone()]));
            let Endpoint { host, port } = endpoint.clone();
            assert!(NetworkGrant::from(endpoint).covers(&host, port));
        }
    }
    let granted = NetworkGrant::parse_all(text).unwrap_or_default();
    for grant in &granted {
        assert_eq!(
            NetworkGrant::parse_all(&grant.to_string()),
            Ok(vec![grant.clone()])
        );
    }
    let ceiling = NetworkGrant::parse_ceiling(text).ok();
    for grant in granted.into_iter().chain(ceiling) {
        assert!(grant.includes(&grant), "{grant}");
        assert_eq!(NetworkGrant::parse_ceiling(&grant.to_string()), Ok(grant));
    }
    let shown = mask(text);
    for password in passwords(text) {
        // A short one may well stand elsewhere in a message, and what looks like masked text may be just that.
        let stands_once = text.matches(&password).count() == 1;
        let is_telling = password.len() > 8 && stands_once && !password.contains("***");
        assert!(!is_telling || !shown.contains(&password), "{shown}");
    }
}

/// Arrow's own full check agrees.
fn assert_sound(batch: &RecordBatch) {
    for column in batch.columns() {
        column.to_data().validate_full().expect("a sound column");
    }
}

const TYPES: [DataType; 15] = [
    DataType::Boolean,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Float32,
    DataType::Float64,
    DataType::Numeric,
    DataType::Text,
    DataType::Json,
    DataType::Bytes,
    DataType::Uuid,
    DataType::Date,
    DataType::Time,
    DataType::Timestamp,
    DataType::TimestampTz,
];

/// A schema of at most 16 columns: a byte that counts them, and for each its type and whether it is nullable.
fn schema(bytes: &mut Bytes<'_>) -> Schema {
    let columns = bytes.byte() % 17;
    let mut field = |index| {
        let kind = bytes.byte();
        let data_type = TYPES.get(usize::from(kind % 16)).copied().unwrap_or_else(|| {
            let precision = 1 + bytes.byte() % 38;
            let scale = bytes.byte() % (precision + 1);
            DataType::Decimal { precision, scale }
        });
        Field {
            name: format!("c{index}"),
            data_type,
            nullable: kind & 16 != 0,
            native_type: None,
        }
    };
    Schema {
        fields: (0..columns).map(&mut field).collect(),
        primary_key: Vec::new(),
    }
}

/// The bytes of an input, spent from the first to the last; after them come zeros.
pub(crate) struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let [byte] = self.padded(1);
        byte
    }

    /// As many bytes as `spent`, and zeros up to the array's length.
    fn padded<const N: usize>(&mut self, spent: usize) -> [u8; N] {
        let (taken, rest) = self.0.split_at(spent.min(self.0.len()));
        self.0 = rest;
        let mut array = [0; N];
        array[..taken.len()].copy_from_slice(taken);
        array
    }

    /// So many numbers; narrow ones are made of a byte each.
    pub(crate) fn numbers<T, const N: usize>(
        &mut self,
        count: usize,
        narrow: bool,
        from_le_bytes: fn([u8; N]) -> T,
    ) -> Vec<T> {
        let spent = if narrow { 1 } else { N };
        repeat_with(|| from_le_bytes(self.padded(spent)))
            .take(count)
            .collect()
    }
}

/// Gives a few bytes at a time, to meet every boundary.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let step = self.1.min(into.len());
        self.0.read(&mut into[..step])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_seed_holds() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds");
        type Property = fn(&[u8]);
        let targets: [(&str, Property); 5] = [
            ("batch", batch),
            ("codec", codec),
            ("manifest", manifest),
            ("pipeline", pipeline),
            ("grant", grant),
        ];
        for (target, property) in targets {
            for entry in std::fs::read_dir(seeds.join(target)).unwrap() {
                let path = entry.unwrap().path();
                println!("{}", path.display());
                property(&std::fs::read(&path).unwrap());
            }
        }
    }
}
