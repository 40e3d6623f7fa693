//! The sink and the source together, over a store in memory.

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};

use super::*;
use crate::blob::BlobError;
use crate::blob::{Body, Key, Memory, ObjectInfo};
use crate::connector::{
    BatchLimit, Chunk, CursorWindow, Destination, LoadRequest, ReadRequest, Source, WriteMode,
};
use crate::record::{DataType, Field, Schema, StreamInfo};

fn field(name: &str, data_type: DataType) -> Field {
    Field {
        name: name.into(),
        data_type,
        nullable: name != "id",
        native_type: None,
    }
}

fn orders() -> StreamName {
    StreamName::new("public", "orders")
}

fn schema() -> Schema {
    Schema {
        fields: vec![field("id", DataType::Int64), field("note", DataType::Text)],
        primary_key: vec!["id".into()],
    }
}

fn layout() -> RunLayout {
    RunLayout::new("w", "p", "r").unwrap()
}

fn load_of(schema: Schema) -> LoadRequest {
    LoadRequest {
        load_id: "r/public.orders".into(),
        attempt: 1,
        target: StreamInfo {
            name: orders(),
            kind: "table".into(),
            schema,
            estimated_rows: None,
            cursors: vec!["id".into()],
            resumable: true,
        },
        mode: WriteMode::Overwrite,
    }
}

fn batch(from: i64, rows: i64) -> RecordBatch {
    let ids = Int64Array::from_iter_values(from..from + rows);
    let notes = StringArray::from_iter((from..from + rows).map(|i| (i % 3 > 0).then(|| format!("n\"{i}\n"))));
    let columns: Vec<ArrayRef> = vec![Arc::new(ids), Arc::new(notes)];
    RecordBatch::try_new(schema().to_arrow(), columns).unwrap()
}

fn chunk(from: i64, rows: i64) -> Chunk {
    Chunk {
        batch: batch(from, rows),
        position: Some((from + rows).to_be_bytes().to_vec()),
    }
}

/// Stages the rows from one number to another in batches of 10,000 and finishes.
fn stage(blob: &Arc<dyn Blob>, resume: Resume, rows: std::ops::Range<i64>) -> Result<u64> {
    let mut sink = BlobSink::new(Arc::clone(blob), layout(), orders(), resume, Some("id".into()));
    let mut writer = sink.begin(&load_of(schema()))?;
    for from in rows.clone().step_by(10_000) {
        writer.write(chunk(from, (rows.end - from).min(10_000)))?;
    }
    Ok(writer.finish(None)?.rows_written)
}

fn open(blob: &Arc<dyn Blob>) -> Result<Box<dyn Source>> {
    BlobSource::open(Arc::clone(blob), layout(), orders())
}

/// The batches that a source returns, and the position after each.
fn read_all(source: &mut dyn Source, request: &ReadRequest) -> Result<Vec<(RecordBatch, Vec<u8>)>> {
    let mut reader = source.read(request)?;
    let mut batches = Vec::new();
    while let Some(chunk) = reader.next(BatchLimit { rows: 1, bytes: 1 })? {
        batches.push((chunk.batch, chunk.position.unwrap()));
    }
    Ok(batches)
}

fn manifest(blob: &Arc<dyn Blob>) -> Option<Manifest> {
    read_manifest(blob.as_ref(), &layout(), &orders()).unwrap()
}

fn keys(blob: &dyn Blob) -> Vec<String> {
    blob.list("")
        .unwrap()
        .into_iter()
        .map(|o| o.key.to_string())
        .collect()
}

fn memory() -> (Arc<Memory>, Arc<dyn Blob>) {
    let memory = Arc::new(Memory::new());
    (Arc::clone(&memory), memory)
}

#[test]
fn what_is_staged_is_read_back_part_by_part() {
    let (_, blob) = memory();
    assert_eq!(stage(&blob, Resume::Fresh, 0..120_000).unwrap(), 120_000);
    let prefix = "ws/w/pl/p/run/r/stream/public_orders";
    assert_eq!(
        keys(blob.as_ref()),
        [
            "_manifest.json",
            "part-000000.jsonl.gz",
            "part-000001.jsonl.gz",
            "part-000002.jsonl.gz"
        ]
        .map(|name| format!("{prefix}/{name}"))
    );
    let manifest = manifest(&blob).unwrap();
    assert_eq!(manifest.status, ManifestStatus::Complete);
    assert_eq!(manifest.cursor().as_deref(), Some("119999"));
    assert_eq!(
        manifest.parts.iter().map(|p| p.rows).collect::<Vec<_>>(),
        [50_000, 50_000, 20_000]
    );
    assert_eq!(
        manifest.parts[1].position,
        Some(100_000_i64.to_be_bytes().to_vec())
    );
    assert_eq!(manifest.parts[1].min_cursor, Some(50_000.into()));

    let mut source = open(&blob).unwrap();
    let info = source.discover().unwrap().remove(0);
    assert_eq!((info.name.clone(), info.kind.as_str()), (orders(), "table"));
    assert_eq!(
        (info.schema, info.estimated_rows, info.resumable),
        (schema(), Some(120_000), true)
    );
    let mut request = ReadRequest::all(orders());
    assert_eq!(source.count(&request, 70_000).unwrap(), Some(70_000));
    let batches = read_all(source.as_mut(), &request).unwrap();
    let expected = [(0, 50_000), (50_000, 50_000), (100_000, 20_000)].map(|(from, rows)| batch(from, rows));
    assert!(batches.iter().map(|(batch, _)| batch).eq(&expected));
    assert_eq!(
        source
            .read(&request)
            .unwrap()
            .high_water_mark()
            .unwrap()
            .as_deref(),
        Some("119999")
    );

    // From each position on, the rows are those that were not yet returned.
    for (index, (_, position)) in batches.iter().enumerate() {
        assert_eq!(*position, (index as u64 + 1).to_be_bytes());
        request.resume_after = Some(position.clone());
        let rest = read_all(source.as_mut(), &request).unwrap();
        assert_eq!(rest, batches[index + 1..]);
        let rows = rest.iter().map(|(batch, _)| batch.num_rows() as u64).sum();
        assert_eq!(source.count(&request, u64::MAX).unwrap(), Some(rows));
    }
}

#[test]
fn a_stream_without_rows_is_complete_without_parts() {
    let (_, blob) = memory();
    assert_eq!(stage(&blob, Resume::Fresh, 0..0).unwrap(), 0);
    let manifest = manifest(&blob).unwrap();
    assert_eq!(
        (manifest.status, manifest.parts.len(), manifest.cursor()),
        (ManifestStatus::Complete, 0, None)
    );
    assert!(
        read_all(open(&blob).unwrap().as_mut(), &ReadRequest::all(orders()))
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_dropped_writer_leaves_closed_parts_to_resume_from_and_no_complete_stream() {
    let (_, blob) = memory();
    let mut sink = BlobSink::new(
        Arc::clone(&blob),
        layout(),
        orders(),
        Resume::Fresh,
        Some("id".into()),
    );
    let mut writer = sink.begin(&load_of(schema())).unwrap();
    assert_eq!(writer.committed().unwrap(), 0);
    for from in (0..70_000).step_by(10_000) {
        writer.write(chunk(from, 10_000)).unwrap();
    }
    drop(writer);
    let interrupted = manifest(&blob).unwrap();
    assert_eq!(
        (interrupted.status, interrupted.parts.len()),
        (ManifestStatus::Extracting, 1)
    );
    let error = open(&blob).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(
        error
            .message()
            .contains("public.orders is still extracting in run r"),
        "{error}"
    );

    let resume = resume(Some(&interrupted), true);
    let position = 50_000_i64.to_be_bytes().to_vec();
    assert_eq!(resume, Resume::After { position, parts: 1 });
    let (_, undisturbed) = memory();
    stage(&blob, resume, 50_000..120_000).unwrap();
    stage(&undisturbed, Resume::Fresh, 0..120_000).unwrap();
    let (ours, theirs) = (manifest(&blob).unwrap(), manifest(&undisturbed).unwrap());
    assert_eq!(ours.parts, theirs.parts);
    assert_eq!(
        (ours.rows_total, ours.cursor()),
        (theirs.rows_total, theirs.cursor())
    );
    assert_eq!(ours.created_at, interrupted.created_at);
    let request = ReadRequest::all(orders());
    assert_eq!(
        read_all(open(&blob).unwrap().as_mut(), &request).unwrap(),
        read_all(open(&undisturbed).unwrap().as_mut(), &request).unwrap()
    );
}

#[test]
fn a_fresh_start_never_names_stale_parts() {
    let (_, blob) = memory();
    stage(&blob, Resume::Fresh, 0..120_000).unwrap();
    let mut sink = BlobSink::new(Arc::clone(&blob), layout(), orders(), Resume::Fresh, None);
    let writer = sink.begin(&load_of(schema())).unwrap();
    let started = manifest(&blob).unwrap();
    assert_eq!(
        (started.status, started.parts.len()),
        (ManifestStatus::Extracting, 0)
    );
    assert_eq!(
        started.cursor_field.as_deref(),
        Some("id"),
        "stays where none is given"
    );
    drop(writer);
    assert_eq!(keys(blob.as_ref()).len(), 4, "nothing is deleted");
    stage(&blob, Resume::Fresh, 0..10).unwrap();
    assert_eq!(manifest(&blob).unwrap().rows_total, 10);
    assert_eq!(
        read_all(open(&blob).unwrap().as_mut(), &ReadRequest::all(orders()))
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn a_recorded_primary_key_stays_and_an_explicit_cursor_wins() {
    let (_, blob) = memory();
    stage(&blob, Resume::Fresh, 0..10).unwrap();
    let begin = |schema: Schema, cursor: Option<&str>| {
        let cursor = cursor.map(str::to_owned);
        let mut sink = BlobSink::new(Arc::clone(&blob), layout(), orders(), Resume::Fresh, cursor);
        sink.begin(&load_of(schema)).map(|_| ())?;
        let manifest = manifest(&blob).unwrap();
        Ok::<_, Error>((manifest.schema.primary_key, manifest.cursor_field))
    };
    let rekeyed = |key: &str| Schema {
        primary_key: vec![key.into()],
        ..schema()
    };
    let key = |name: &str| vec![name.to_owned()];
    assert_eq!(begin(rekeyed("note"), None), Ok((key("id"), Some("id".into()))));
    assert_eq!(
        begin(rekeyed("note"), Some("note")),
        Ok((key("id"), Some("note".into())))
    );
    // A key whose column is gone makes no sense any more.
    let without_id = Schema {
        fields: vec![field("note", DataType::Text)],
        primary_key: key("note"),
    };
    assert_eq!(begin(without_id, None), Ok((key("note"), Some("note".into()))));
    let error = begin(schema(), Some("absent")).unwrap_err();
    assert!(
        error
            .message()
            .contains("`absent` is not a column of public.orders"),
        "{error}"
    );
}

impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

#[test]
fn a_resume_that_does_not_fit_what_is_staged_is_refused() {
    let (_, blob) = memory();
    let begin = |schema: Schema, resume: Resume| {
        let mut sink = BlobSink::new(Arc::clone(&blob), layout(), orders(), resume, Some("id".into()));
        sink.begin(&load_of(schema))
            .map(|_| ())
            .map_err(|e| e.message().to_owned())
    };
    let after = |parts| Resume::After {
        position: vec![1],
        parts,
    };
    for resume in [after(1), Resume::Complete] {
        assert!(
            begin(schema(), resume)
                .unwrap_err()
                .contains("extract it again from the start")
        );
    }
    stage(&blob, Resume::Fresh, 0..120_000).unwrap();
    let other = Schema {
        fields: vec![field("id", DataType::Int32), field("note", DataType::Text)],
        ..schema()
    };
    assert!(
        begin(other, after(2))
            .unwrap_err()
            .contains("its columns have changed")
    );
    assert!(
        begin(schema(), after(4))
            .unwrap_err()
            .contains("the parts to keep are not named")
    );
    assert_eq!(begin(schema(), after(2)), Ok(()));
    assert_eq!(manifest(&blob).unwrap().parts.len(), 2, "the third is given up");
}

#[test]
fn finish_may_be_called_again_and_a_complete_stream_takes_no_rows() {
    let (_, blob) = memory();
    stage(&blob, Resume::Fresh, 0..10).unwrap();
    let before = manifest(&blob);
    let mut sink = BlobSink::new(
        Arc::clone(&blob),
        layout(),
        orders(),
        Resume::Complete,
        Some("id".into()),
    );
    let mut writer = sink.begin(&load_of(schema())).unwrap();
    assert_eq!(writer.committed().unwrap(), 1);
    for _ in 0..2 {
        assert_eq!(writer.finish(Some("99".into())).unwrap().rows_written, 10);
    }
    assert_eq!(writer.write(chunk(0, 1)).unwrap_err().kind(), ErrorKind::Conflict);
    drop(writer);
    assert_eq!(manifest(&blob), before);
}

#[test]
fn the_sources_own_mark_goes_before_what_the_parts_hold() {
    let (_, blob) = memory();
    let mut sink = BlobSink::new(
        Arc::clone(&blob),
        layout(),
        orders(),
        Resume::Fresh,
        Some("id".into()),
    );
    let mut writer = sink.begin(&load_of(schema())).unwrap();
    writer.write(chunk(0, 10)).unwrap();
    writer.finish(Some("12".into())).unwrap();
    drop(writer);
    assert_eq!(manifest(&blob).unwrap().cursor().as_deref(), Some("12"));
    let mut source = open(&blob).unwrap();
    let mut reader = source.read(&ReadRequest::all(orders())).unwrap();
    assert_eq!(reader.high_water_mark().unwrap().as_deref(), Some("12"));
}

/// A store that asks before it puts, and counts puts of the manifest.
struct Asking<F> {
    inner: Memory,
    before_put: F,
    manifests: AtomicUsize,
    /// Whether a put of the manifest is under way; two at a time are a fault.
    writing: AtomicBool,
}

impl<F: Fn(&Key) -> std::io::Result<()> + Send + Sync + 'static> Asking<F> {
    fn new(before_put: F) -> Arc<Self> {
        Arc::new(Asking {
            inner: Memory::new(),
            before_put,
            manifests: AtomicUsize::new(0),
            writing: AtomicBool::new(false),
        })
    }
}

impl<F: Fn(&Key) -> std::io::Result<()> + Send + Sync> Blob for Asking<F> {
    fn put(&self, key: &Key, body: Body<'_>) -> Result<(), BlobError> {
        let is_manifest = key.as_str().ends_with("_manifest.json");
        if is_manifest {
            assert!(
                !self.writing.swap(true, Ordering::SeqCst),
                "two writes of the manifest in flight"
            );
            self.manifests.fetch_add(1, Ordering::SeqCst);
        }
        let result = match (self.before_put)(key) {
            Ok(()) => self.inner.put(key, body),
            Err(source) => Err(BlobError::Io {
                operation: "put",
                key: key.to_string(),
                store: self.describe(),
                source,
            }),
        };
        if is_manifest {
            self.writing.store(false, Ordering::SeqCst);
        }
        result
    }

    fn get(&self, key: &Key) -> Result<Box<dyn Read + Send>, BlobError> {
        self.inner.get(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, BlobError> {
        self.inner.list(prefix)
    }

    fn delete(&self, key: &Key) -> Result<(), BlobError> {
        self.inner.delete(key)
    }

    fn describe(&self) -> String {
        "asking".into()
    }
}

/// A store whose puts of keys that hold a text fail while there is one, and the place to set it.
fn flaky() -> (Arc<dyn Blob>, Arc<Mutex<Option<&'static str>>>) {
    let failing = Arc::new(Mutex::new(None));
    let blob = Asking::new({
        let failing = Arc::clone(&failing);
        move |key| match *failing.lock().unwrap() {
            Some(text) if key.as_str().contains(text) => Err(std::io::Error::other("disk full")),
            _ => Ok(()),
        }
    });
    (blob, failing)
}

#[test]
fn rows_are_packed_while_a_part_is_stored() {
    // The first part is stored only when the sink has taken the rows of three more.
    let (go, wait) = channel();
    let wait = Mutex::new(wait);
    let blob: Arc<dyn Blob> = Asking::new(move |key| {
        if key.as_str().contains("part-000000") {
            let taken = wait.lock().unwrap().recv_timeout(Duration::from_secs(60));
            return taken.map_err(std::io::Error::other);
        }
        Ok(())
    });
    let mut sink = BlobSink::new(Arc::clone(&blob), layout(), orders(), Resume::Fresh, None);
    let mut writer = sink.begin(&load_of(schema())).unwrap();
    for part in 0..4 {
        writer.write(chunk(part * 50_000, 50_000)).unwrap();
    }
    go.send(()).unwrap();
    assert_eq!(writer.finish(None).unwrap().rows_written, 200_000);
}

#[test]
fn one_write_of_the_manifest_covers_all_that_landed_during_the_one_before() {
    // The manifest that names the first part is written only when the fourth is being stored.
    let (go, wait) = channel();
    let (go, wait) = (Mutex::new(go), Mutex::new(wait));
    let writes = AtomicUsize::new(0);
    let asking = Asking::new(move |key| {
        if key.as_str().contains("part-000003") {
            return go.lock().unwrap().send(()).map_err(std::io::Error::other);
        }
        if key.as_str().contains("_manifest") && writes.fetch_add(1, Ordering::SeqCst) == 1 {
            let stored = wait.lock().unwrap().recv_timeout(Duration::from_secs(60));
            return stored.map_err(std::io::Error::other);
        }
        Ok(())
    });
    let blob: Arc<dyn Blob> = asking.clone();
    stage(&blob, Resume::Fresh, 0..200_000).unwrap();
    assert_eq!(manifest(&blob).unwrap().parts.len(), 4);
    let writes = asking.manifests.load(Ordering::SeqCst);
    // At the beginning, for the first part, for the second and third (and fourth, perhaps later), at the end.
    assert!((4..=5).contains(&writes), "{writes}");
}

#[test]
fn an_error_of_the_store_surfaces_and_completes_nothing() {
    for (failing, kept) in [("part-000001", 1), ("part-000000", 0), ("_manifest", 0)] {
        let (blob, fail) = flaky();
        let mut sink = BlobSink::new(Arc::clone(&blob), layout(), orders(), Resume::Fresh, None);
        let mut writer = sink.begin(&load_of(schema())).unwrap();
        *fail.lock().unwrap() = Some(failing);
        let mut result = Ok(());
        for from in (0..5_000_000).step_by(50_000) {
            result = writer.write(chunk(from, 50_000));
            if result.is_err() {
                break;
            }
        }
        let error = result.expect_err("surfaces long before the end");
        assert_eq!(error.kind(), ErrorKind::Blob);
        assert!(
            error.message().contains(failing) && error.message().contains("disk full"),
            "{error}"
        );
        for _ in 0..2 {
            assert_eq!(writer.finish(None).unwrap_err(), error);
        }
        assert!(writer.write(chunk(0, 1)).is_err());
        drop(writer);
        let manifest = manifest(&blob).unwrap();
        assert_eq!(
            (manifest.status, manifest.parts.len()),
            (ManifestStatus::Extracting, kept),
            "{failing}"
        );
    }
}

#[test]
fn a_finish_that_fails_at_the_last_write_may_be_tried_again() {
    let (blob, fail) = flaky();
    let mut sink = BlobSink::new(Arc::clone(&blob), layout(), orders(), Resume::Fresh, None);
    let mut writer = sink.begin(&load_of(schema())).unwrap();
    *fail.lock().unwrap() = Some("_manifest");
    assert!(writer.finish(None).is_err());
    *fail.lock().unwrap() = None;
    assert_eq!(writer.finish(None).unwrap().rows_written, 0);
    drop(writer);
    assert_eq!(manifest(&blob).unwrap().status, ManifestStatus::Complete);
}

#[test]
fn a_row_that_cannot_be_staged_fails_the_stream_by_name() {
    let (_, blob) = memory();
    let mut sink = BlobSink::new(Arc::clone(&blob), layout(), orders(), Resume::Fresh, None);
    let numeric = Schema {
        fields: vec![field("id", DataType::Int64), field("note", DataType::Numeric)],
        primary_key: Vec::new(),
    };
    let mut writer = sink.begin(&load_of(numeric)).unwrap();
    writer.write(chunk(0, 10)).unwrap();
    let error = writer.finish(None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(
        error.to_string().contains("stream public.orders") && error.to_string().contains("column `note`"),
        "{error}"
    );
}

#[test]
fn many_parts_are_named_in_few_writes() {
    let asking = Asking::new(|_| Ok(()));
    let blob: Arc<dyn Blob> = asking.clone();
    let mut sink = BlobSink::new(Arc::clone(&blob), layout(), orders(), Resume::Fresh, None);
    let mut writer = sink.begin(&load_of(Schema::default())).unwrap();
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(50_000));
    let rows = RecordBatch::try_new_with_options(Schema::default().to_arrow(), Vec::new(), &options).unwrap();
    for _ in 0..1500 {
        let chunk = Chunk {
            batch: rows.clone(),
            position: None,
        };
        writer.write(chunk).unwrap();
    }
    writer.finish(None).unwrap();
    drop(writer);
    let writes = asking.manifests.load(Ordering::SeqCst);
    assert!(writes <= 1000 + 250 + 3, "{writes}");
    assert_eq!(manifest(&blob).unwrap().rows_total, 75_000_000);
}

#[test]
fn a_stream_that_was_not_extracted_says_what_to_do() {
    let (_, blob) = memory();
    let error = open(&blob).map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(
        error.message().contains("public.orders is not staged in run r"),
        "{error}"
    );
    assert!(error.message().contains("extract it first"), "{error}");
}

#[test]
fn what_a_staged_stream_cannot_do_is_refused() {
    let (_, blob) = memory();
    stage(&blob, Resume::Fresh, 0..10).unwrap();
    let mut source = open(&blob).unwrap();
    let mut refused = |change: fn(&mut ReadRequest)| {
        let mut request = ReadRequest::all(orders());
        change(&mut request);
        source.read(&request).map(|_| ()).unwrap_err().kind()
    };
    assert_eq!(
        refused(|r| r.name = StreamName::bare("other")),
        ErrorKind::NotFound
    );
    assert_eq!(refused(|r| r.range = Some(vec![])), ErrorKind::Unsupported);
    assert_eq!(
        refused(|r| r.cursor = Some(CursorWindow {
            field: "id".into(),
            since: None,
            since_inclusive: false
        })),
        ErrorKind::Unsupported
    );
    assert_eq!(
        refused(|r| r.columns = Some(vec!["absent".into()])),
        ErrorKind::NotFound
    );
    assert_eq!(
        refused(|r| r.resume_after = Some(2_u64.to_be_bytes().to_vec())),
        ErrorKind::Conflict
    );
    assert_eq!(refused(|r| r.resume_after = Some(vec![1])), ErrorKind::Conflict);

    let request = ReadRequest {
        columns: Some(vec!["note".into()]),
        ..ReadRequest::all(orders())
    };
    let batches = read_all(source.as_mut(), &request).unwrap();
    assert_eq!(batches[0].0, batch(0, 10).project(&[1]).unwrap());
}

#[test]
fn a_reader_may_be_dropped_before_its_end() {
    let (_, blob) = memory();
    stage(&blob, Resume::Fresh, 0..120_000).unwrap();
    let mut source = open(&blob).unwrap();
    let mut reader = source.read(&ReadRequest::all(orders())).unwrap();
    assert!(reader.next(BatchLimit::default()).unwrap().is_some());
    drop(reader);
    assert_eq!(
        read_all(source.as_mut(), &ReadRequest::all(orders()))
            .unwrap()
            .len(),
        3
    );
}

#[test]
fn a_part_that_is_not_what_the_manifest_says_is_named() {
    let (memory, blob) = memory();
    stage(&blob, Resume::Fresh, 0..60_000).unwrap();
    let key = layout().part(&orders(), 1);
    let mut right = Vec::new();
    memory.get(&key).unwrap().read_to_end(&mut right).unwrap();
    let compressed = |lines: &str| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut gzip, lines.as_bytes()).unwrap();
        gzip.finish().unwrap()
    };
    let flipped = |at: usize| {
        let mut bytes = right.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let cases = [
        ("cut short", right[..right.len() / 2].to_vec()),
        ("cut short in the trailer", right[..right.len() - 1].to_vec()),
        ("empty", Vec::new()),
        ("a flipped bit in the header", flipped(1)),
        ("a flipped bit in the data", flipped(right.len() / 2)),
        ("a flipped bit in the checksum", flipped(right.len() - 6)),
        ("another row count", compressed("[1,null]\n")),
        ("another schema", compressed("[\"x\",null]\n")),
        ("something behind it", [&right[..], b"garbage"].concat()),
        (
            "a second member",
            [&right[..], &compressed("[1,null]\n")].concat(),
        ),
    ];
    for (what, bytes) in cases {
        memory.put(&key, Body::Bytes(&bytes)).unwrap();
        let error = read_all(open(&blob).unwrap().as_mut(), &ReadRequest::all(orders())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Staging, "{what}: {error}");
        assert!(
            error
                .message()
                .contains(&format!("`{key}` of public.orders is damaged")),
            "{what}: {error}"
        );
        // Where the size alone gives it away, that is found before anything is read.
        let checked = open(&blob).unwrap().check();
        assert_eq!(
            checked.is_err(),
            bytes.len() != right.len(),
            "{what}: {checked:?}"
        );
    }
    memory.delete(&key).unwrap();
    assert!(open(&blob).unwrap().check().is_err());
    let error = read_all(open(&blob).unwrap().as_mut(), &ReadRequest::all(orders())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Staging);
    assert!(
        error.message().contains(&format!(
            "`{key}`, which the manifest of public.orders names, is missing"
        )),
        "{error}"
    );
}

#[test]
fn a_part_of_several_gzip_members_is_read_whole() {
    let (memory, blob) = memory();
    stage(&blob, Resume::Fresh, 0..2).unwrap();
    let mut parts = Vec::new();
    for line in ["[0,null]\n[1", ",\"n\\\"1\\n\"]\n"] {
        let mut gzip = flate2::write::GzEncoder::new(&mut parts, flate2::Compression::best());
        std::io::Write::write_all(&mut gzip, line.as_bytes()).unwrap();
    }
    memory
        .put(&layout().part(&orders(), 0), Body::Bytes(&parts))
        .unwrap();
    let mut manifest = manifest(&blob).unwrap();
    manifest.parts[0].bytes = parts.len() as u64;
    memory
        .put(&layout().manifest(&orders()), Body::Bytes(&manifest.to_json()))
        .unwrap();
    let batches = read_all(open(&blob).unwrap().as_mut(), &ReadRequest::all(orders())).unwrap();
    assert_eq!(batches[0].0, batch(0, 2));
}

#[test]
fn the_manifest_of_another_stream_under_the_same_key_is_never_overwritten() {
    let (memory, blob) = memory();
    stage(&blob, Resume::Fresh, 0..2).unwrap();
    let mut other = manifest(&blob).unwrap();
    other.stream = StreamName::bare("other");
    memory
        .put(&layout().manifest(&orders()), Body::Bytes(&other.to_json()))
        .unwrap();
    let error = stage(&blob, Resume::Fresh, 0..2).unwrap_err();
    assert!(
        error
            .message()
            .contains("is of the stream other, not of public.orders"),
        "{error}"
    );
}
