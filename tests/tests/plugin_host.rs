//! The sandbox as its users meet it: honest guests work, and each misdeed comes back as its own clear error while
//! the host goes on.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use setu::connector::{
    BatchLimit, Chunk, Error, ErrorKind, LoadRequest, ReadRequest, Result, Role, Source, WriteMode,
};
use setu::pipeline::{ConnectorSpec, GrantSpec, LimitSpec};
use setu::plugin::{OpenContext, Options, Plugin, Plugins};
use setu::record::StreamName;
use tokio_util::sync::CancellationToken;

static PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/setu_guest_probe.wasm"));

/// Compiled once for all tests of this process.
static PLUGIN: LazyLock<Arc<Plugin>> = LazyLock::new(|| {
    let cache = std::env::temp_dir().join("setu-tests-plugin-cache");
    let plugins = Plugins::new(Options { cache: Some(cache) }).expect("an engine");
    plugins.load("probe", PROBE).expect("the probe loads")
});

fn spec(config: Value) -> ConnectorSpec {
    ConnectorSpec {
        connector: "probe".into(),
        config,
        base: std::env::temp_dir(),
        grant: GrantSpec::default(),
        limits: LimitSpec::default(),
    }
}

fn context() -> OpenContext {
    OpenContext {
        run: "run-1".into(),
        stream: Some("t".into()),
        cancel: CancellationToken::new(),
    }
}

fn source(spec: &ConnectorSpec) -> Result<Box<dyn Source>> {
    PLUGIN.open_source(spec, &context())
}

/// The error of `check` under this configuration.
fn check(spec: &ConnectorSpec) -> Error {
    let outcome = source(spec).and_then(|mut source| source.check());
    outcome.expect_err("a probe tells what it saw as an error")
}

fn read_all(source: &mut dyn Source, limit: BatchLimit) -> Result<Vec<Chunk>> {
    let mut reader = source.read(&ReadRequest::all(StreamName::bare("t")))?;
    let mut chunks = Vec::new();
    while let Some(chunk) = reader.next(limit)? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

/// The error of reading under this configuration, after which a fresh instance must work.
fn read_error(config: Value) -> Error {
    let error = source(&spec(config))
        .and_then(|mut source| read_all(&mut *source, BatchLimit::default()))
        .expect_err("the probe misbehaves");
    assert_eq!(honest_rows(), 10);
    error
}

fn honest_rows() -> usize {
    let mut source = source(&spec(json!({"behaviour": "rows"}))).expect("a fresh instance");
    let chunks = read_all(&mut *source, BatchLimit::default()).expect("honest rows");
    chunks.iter().map(|chunk| chunk.batch.num_rows()).sum()
}

fn load() -> LoadRequest {
    let mut source = source(&spec(json!({"behaviour": "rows"}))).expect("a source");
    let target = source.discover().expect("streams").remove(0);
    LoadRequest {
        load_id: "load-1".into(),
        attempt: 1,
        target,
        mode: WriteMode::Append,
    }
}

fn assert_says(error: &Error, kind: ErrorKind, parts: &[&str]) {
    let text = error.to_string();
    assert_eq!(error.kind(), kind, "{text}");
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in: {text}");
    }
}

#[test]
fn honest_rows_travel_from_a_source_to_a_destination() {
    let rows = 100_000;
    let mut source = source(&spec(json!({"behaviour": "rows", "rows": rows}))).unwrap();
    let streams = source.discover().unwrap();
    assert_eq!(streams[0].name, StreamName::bare("t"));
    assert_eq!(
        source
            .count(&ReadRequest::all(StreamName::bare("t")), 500)
            .unwrap(),
        Some(500)
    );

    let mut destination = PLUGIN
        .open_destination(&spec(json!({"behaviour": "check rows"})), &context())
        .unwrap();
    assert!(!destination.capabilities().unwrap().transactional);
    let load = load();
    let mut writer = destination.begin(&load).unwrap();
    assert_eq!(writer.committed().unwrap(), 0);
    let limit = BatchLimit {
        rows: 8_192,
        bytes: 1 << 20,
    };
    let mut reader = source.read(&ReadRequest::all(StreamName::bare("t"))).unwrap();
    while let Some(chunk) = reader.next(limit).unwrap() {
        writer.write(chunk).unwrap();
    }
    writer.commit(7).unwrap();
    assert_eq!(writer.committed().unwrap(), 7);
    let mark = reader.high_water_mark().unwrap();
    assert_eq!(mark.as_deref(), Some("100000"));
    assert_eq!(writer.finish(mark).unwrap().rows_written, rows);
}
