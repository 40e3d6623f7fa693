//! The golden files of the format, in `host/golden/staged`: a run with one stream, which has a column of every type.
//! Other programs may test themselves against them, so a change of them is a change of the format.
//!
//! `SETU_UPDATE_GOLDEN=1` in the environment of the test writes them anew.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::codec::tests::{Row, table};
use super::{BlobSink, BlobSource, Manifest, Resume, RunLayout, read_manifest};
use crate::blob::{Blob, Fs, Memory};
use crate::connector::{BatchLimit, Chunk, Destination, LoadRequest, ReadRequest, WriteMode};
use crate::record::{Schema, StreamInfo, StreamName};
use arrow_array::RecordBatch;

/// The part as text, beside the compressed one, so that it can be read in a review.
const LINES: &str = "part-000000.jsonl";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/staged")
}

fn layout() -> RunLayout {
    RunLayout::new("default", "golden", "2024-05-01").unwrap()
}

fn stream() -> StreamName {
    StreamName::new("public", "every_type")
}

fn rows() -> Vec<Row> {
    let text = |text: &str| Some(text.to_owned());
    let uuid = *b"\x12\x3e\x45\x67\xe8\x9b\x12\xd3\xa4\x56\x42\x66\x14\x17\x40\x00";
    let day = 19_844; // 2024-05-01
    let instant = day * 86_400_000_000 + 36_000_123_456;
    let (f32_bits, f64_bits) = (|v: f32| Some(v.to_bits()), |v: f64| Some(v.to_bits()));
    let decimal = 10_i128.pow(30) - 1;
    vec![
        (
            (
                Some(true),
                Some(1),
                Some(-2),
                Some(1),
                f32_bits(0.1),
                f64_bits(0.1),
            ),
            (
                Some(125_000_000),
                text("-12.50"),
                text("{\"a\": [1,  \"ä\"]}"),
                Some(b"bytes".to_vec()),
                Some(uuid),
            ),
            (
                Some(day as i32),
                Some(36_000_123_456),
                Some(instant),
                Some(instant),
            ),
        ),
        (
            (
                Some(false),
                Some(i16::MIN),
                Some(i32::MIN),
                Some(i64::MIN),
                f32_bits(f32::MIN),
                f64_bits(f64::MIN),
            ),
            (
                Some(-decimal),
                text("-Infinity"),
                text(""),
                Some(Vec::new()),
                Some([0; 16]),
            ),
            (Some(i32::MIN), Some(0), Some(i64::MIN), Some(i64::MIN)),
        ),
        (
            (
                Some(true),
                Some(i16::MAX),
                Some(i32::MAX),
                Some(i64::MAX),
                f32_bits(f32::MAX),
                f64_bits(f64::MAX),
            ),
            (
                Some(decimal),
                text("Infinity"),
                text("\" \\ / \u{8} \u{c} \n \r \t \u{0} \u{1f} \u{7f} 日 🦀"),
                Some(vec![0, 127, 128, 255]),
                Some([255; 16]),
            ),
            (
                Some(i32::MAX),
                Some(86_400_000_000),
                Some(i64::MAX),
                Some(i64::MAX),
            ),
        ),
        (
            (
                Some(false),
                Some(0),
                Some(0),
                Some(9),
                f32_bits(f32::NAN),
                f64_bits(f64::NAN),
            ),
            (
                Some(0),
                text("NaN"),
                text("null"),
                Some(vec![251, 255]),
                Some(uuid),
            ),
            (
                Some(i32::MIN + 1),
                Some(1),
                Some(i64::MIN + 1),
                Some(i64::MIN + 1),
            ),
        ),
        (
            (
                Some(true),
                Some(-1),
                Some(10_000),
                Some(10),
                f32_bits(-0.0),
                f64_bits(-0.0),
            ),
            (
                Some(-1),
                text("123456789012345678901234567890123456789012345678901234567890.5"),
                text("[]"),
                Some(vec![0]),
                Some(uuid),
            ),
            (
                Some(i32::MAX - 1),
                Some(86_399_999_999),
                Some(i64::MAX - 1),
                Some(i64::MAX - 1),
            ),
        ),
        (
            (
                Some(false),
                Some(7),
                Some(7),
                Some(11),
                f32_bits(f32::INFINITY),
                f64_bits(f64::NEG_INFINITY),
            ),
            (
                Some(70),
                text("0.000000000000000000000000000000000000000000001"),
                text("7"),
                Some(vec![7]),
                Some(uuid),
            ),
            // 31 December of the year 1 BC, and a microsecond before the epoch.
            (
                Some(-719_529),
                Some(1_000_000),
                Some(-1),
                Some(-62_167_219_200_000_001),
            ),
        ),
        (
            (
                Some(true),
                Some(8),
                Some(8),
                Some(12),
                f32_bits(f32::from_bits(1)),
                f64_bits(f64::from_bits(1)),
            ),
            (Some(80), text("1000000000"), text("8"), Some(vec![8]), Some(uuid)),
            (Some(2_932_897), Some(2), Some(253_402_300_800_000_000), Some(0)),
        ),
        (
            (None, None, None, None, None, None),
            (None, None, None, None, None),
            (None, None, None, None),
        ),
    ]
}

fn golden_table() -> (Schema, RecordBatch) {
    let (mut schema, batch) = table(&rows());
    for field in &mut schema.fields {
        field.native_type = match field.name.as_str() {
            "text" => Some("citext".into()),
            "json" => Some("jsonb".into()),
            _ => None,
        };
    }
    schema.primary_key = vec!["int32".into()];
    (schema, batch)
}

/// Stages the table and returns what the store then holds: the manifest and the part, uncompressed and as it is.
fn staged(blob: Arc<dyn Blob>) -> (Manifest, Vec<u8>, Vec<u8>) {
    let (schema, batch) = golden_table();
    let load = LoadRequest {
        load_id: "golden".into(),
        attempt: 1,
        target: StreamInfo {
            name: stream(),
            kind: "table".into(),
            schema,
            estimated_rows: None,
            cursors: Vec::new(),
            resumable: true,
        },
        mode: WriteMode::Append,
    };
    let cursor = Some("int64".to_owned());
    let mut sink = BlobSink::new(Arc::clone(&blob), layout(), stream(), Resume::Fresh, cursor);
    let mut writer = sink.begin(&load).unwrap();
    let position = Some(b"after row 8".to_vec());
    writer.write(Chunk { batch, position }).unwrap();
    writer.finish(Some("9223372036854775807".into())).unwrap();
    drop(writer);
    let manifest = read_manifest(blob.as_ref(), &layout(), &stream())
        .unwrap()
        .unwrap();
    let (mut gzip, mut lines) = (Vec::new(), Vec::new());
    blob.get(&layout().part(&stream(), 0))
        .unwrap()
        .read_to_end(&mut gzip)
        .unwrap();
    flate2::bufread::GzDecoder::new(&gzip[..])
        .read_to_end(&mut lines)
        .unwrap();
    (manifest, lines, gzip)
}

fn update() {
    let folder = root().join(layout().stream_prefix(&stream()));
    let (mut manifest, lines, _) = staged(Arc::new(Fs::open(root()).unwrap()));
    manifest.created_at = "2024-05-01T10:00:00.000Z".into();
    manifest.completed_at = Some("2024-05-01T10:00:01.000Z".into());
    std::fs::write(folder.join("_manifest.json"), manifest.to_json()).unwrap();
    std::fs::write(folder.join(LINES), lines).unwrap();
}

#[test]
fn the_golden_files_are_what_is_written_and_what_is_read() {
    if std::env::var_os("SETU_UPDATE_GOLDEN").is_some() {
        update();
    }
    let folder = root().join(layout().stream_prefix(&stream()));
    let golden_manifest = std::fs::read_to_string(folder.join("_manifest.json")).unwrap();
    let golden_lines = std::fs::read_to_string(folder.join(LINES)).unwrap();

    // Written: the same bytes, but for the times and for what gzip makes of the lines.
    let (mut manifest, lines, _) = staged(Arc::new(Memory::new()));
    assert_eq!(String::from_utf8(lines).unwrap(), golden_lines);
    let golden = Manifest::from_json(golden_manifest.as_bytes(), &layout(), &stream()).unwrap();
    manifest.created_at.clone_from(&golden.created_at);
    manifest.completed_at.clone_from(&golden.completed_at);
    manifest.parts[0].bytes = golden.parts[0].bytes;
    assert_eq!(String::from_utf8(manifest.to_json()).unwrap(), golden_manifest);

    // Read: the same rows.
    let (schema, batch) = golden_table();
    let blob = Arc::new(Fs::open(root()).unwrap());
    let mut source = BlobSource::open(blob, layout(), stream()).unwrap();
    let mut reader = source.read(&ReadRequest::all(stream())).unwrap();
    assert_eq!(*reader.schema(), schema);
    let read = reader.next(BatchLimit::default()).unwrap().unwrap().batch;
    // Debug text tells -0 from 0 and takes NaN for NaN.
    assert_eq!(format!("{read:?}"), format!("{batch:?}"));
    assert_eq!(read.num_rows(), rows().len());
    assert!(reader.next(BatchLimit::default()).unwrap().is_none());
}
