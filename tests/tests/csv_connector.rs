//! The bundled CSV connector as it runs: in the sandbox, on real files. What it makes of bytes is tested beside its
//! code; here is what only the sandbox can break: folders, renames, syncing, truncating, positions across instances.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use setu::connector::registry::Registry;
use setu::connector::{
    BatchLimit, Chunk, Destination, ErrorKind, LoadRequest, ReadRequest, Role, Source, WriteMode,
};
use setu::pipeline::{ConnectorSpec, GrantSpec, LimitSpec};
use setu::plugin::{OpenContext, Options, Plugin, Plugins};
use setu::record::{StreamInfo, StreamName};
use tokio_util::sync::CancellationToken;

/// Compiled once for all tests of this process.
static CSV: LazyLock<Arc<Plugin>> = LazyLock::new(|| {
    let component = Registry::default().resolve("csv").expect("csv is bundled");
    let cache = std::env::temp_dir().join("setu-tests-plugin-cache");
    let plugins = Plugins::new(Options { cache: Some(cache) }).expect("an engine");
    plugins
        .load(&component.origin, &component.bytes)
        .expect("the bundled connector loads")
});

fn spec(path: &Path, mut config: Value) -> ConnectorSpec {
    config["path"] = path.to_str().expect("a UTF-8 path").into();
    ConnectorSpec {
        connector: "csv".into(),
        config,
        base: path.to_owned(),
        grant: GrantSpec::default(),
        limits: LimitSpec::default(),
    }
}

fn context() -> OpenContext {
    OpenContext {
        run: "run-1".into(),
        stream: Some("orders".into()),
        cancel: CancellationToken::new(),
    }
}

fn source(path: &Path, config: Value) -> Box<dyn Source> {
    CSV.open_source(&spec(path, config), &context())
        .expect("a source")
}

fn destination(path: &Path) -> Box<dyn Destination> {
    CSV.open_destination(&spec(path, json!({})), &context())
        .expect("a destination")
}

fn orders() -> ReadRequest {
    ReadRequest::all(StreamName::bare("orders"))
}

fn load(source: &mut dyn Source, attempt: u64, mode: WriteMode) -> LoadRequest {
    let target: StreamInfo = source.discover().expect("streams").remove(0);
    LoadRequest {
        load_id: "load-1".into(),
        attempt,
        target,
        mode,
    }
}

fn chunks(source: &mut dyn Source, request: &ReadRequest) -> Vec<Chunk> {
    let mut reader = source.read(request).expect("a reader");
    let limit = BatchLimit {
        rows: 100,
        bytes: 1 << 20,
    };
    let mut all = Vec::new();
    while let Some(chunk) = reader.next(limit).expect("rows") {
        all.push(chunk);
    }
    all
}

const TYPES: &str = r#"{"id": "int64", "amount": "decimal(10,2)", "at": "timestamp_tz"}"#;

fn config() -> Value {
    json!({ "columns": serde_json::from_str::<Value>(TYPES).expect("JSON") })
}

/// As the destination writes it, so that a copy must equal it.
fn text(rows: std::ops::Range<usize>) -> String {
    let row = |n: usize| {
        let note = ["", "\"\"", "\"a \"\"b\"\"\nc\"", "日本"][n % 4];
        format!("{n},{n}.50,2024-01-01T00:00:00.{n:06}Z,{note}\n")
    };
    rows.map(row).collect()
}

fn whole(rows: std::ops::Range<usize>) -> String {
    format!("id,amount,at,note\n{}", text(rows))
}

#[test]
fn a_copy_equals_its_source_compressed_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let expected = whole(0..1000);
    let plain = folder.path().join("orders.csv");
    fs::write(&plain, &expected).unwrap();
    let compressed = folder.path().join("orders.csv.gz");
    let mut gzip = flate2::write::GzEncoder::new(
        fs::File::create(&compressed).unwrap(),
        flate2::Compression::fast(),
    );
    gzip.write_all(expected.as_bytes()).unwrap();
    gzip.finish().unwrap();

    for from in [plain, compressed] {
        // The destination's folder does not exist yet.
        let to = folder.path().join("made").join(from.extension().unwrap());
        let mut source = source(&from, config());
        source.check().unwrap();
        assert_eq!(source.count(&orders(), 50_000).unwrap(), Some(1000));
        let mut destination = destination(&to);
        destination.check().unwrap();
        let load = load(&mut *source, 1, WriteMode::Overwrite);
        let mut writer = destination.begin(&load).unwrap();
        for chunk in chunks(&mut *source, &orders()) {
            writer.write(chunk).unwrap();
        }
        writer.commit(1).unwrap();
        assert!(!to.join("orders.csv").exists(), "nothing appears before finish");
        assert_eq!(writer.finish(None).unwrap().rows_written, 1000);
        assert_eq!(fs::read_to_string(to.join("orders.csv")).unwrap(), expected);
    }
}

#[test]
fn both_halves_go_on_where_others_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("orders.csv"), folder.path().join("out"));
    fs::write(&from, whole(0..1000)).unwrap();
    fs::create_dir(&to).unwrap();
    fs::write(to.join("orders.csv"), whole(7000..7001)).unwrap();

    let first = {
        let mut source = source(&from, config());
        let all = chunks(&mut *source, &orders());
        let mut destination = destination(&to);
        let load = load(&mut *source, 1, WriteMode::Append);
        let mut writer = destination.begin(&load).unwrap();
        writer.write(all[0].clone()).unwrap();
        writer.commit(1).unwrap();
        // Never committed: the instance ends here.
        writer.write(all[1].clone()).unwrap();
        all[0].clone()
    };

    let mut source = source(&from, config());
    let mut destination = destination(&to);
    let load = load(&mut *source, 2, WriteMode::Append);
    let mut writer = destination.begin(&load).unwrap();
    assert_eq!(writer.committed().unwrap(), 1);
    let resumed = ReadRequest {
        resume_after: first.position,
        ..orders()
    };
    for chunk in chunks(&mut *source, &resumed) {
        writer.write(chunk).unwrap();
    }
    writer.commit(2).unwrap();
    assert_eq!(writer.finish(None).unwrap().rows_written, 1000);
    let expected = whole(7000..7001) + &text(0..1000);
    assert_eq!(fs::read_to_string(to.join("orders.csv")).unwrap(), expected);
}

#[test]
fn an_error_in_a_file_names_the_place() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("orders.csv");
    fs::write(&from, "id,note\n1,a\nx,b\n").unwrap();
    let mut source = source(&from, json!({"columns": {"id": "int64"}}));
    let mut reader = source.read(&orders()).unwrap();
    let error = reader.next(BatchLimit::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    let expected = "orders.csv, line 3, byte 12: column `id`: \"x\" is not a whole number (int64)";
    assert!(error.message().contains(expected), "{error}");
}

#[test]
fn a_source_may_read_its_path_and_a_destination_write_it() {
    let folder = tempfile::tempdir().unwrap();
    let spec = spec(folder.path(), json!({}));
    for (role, kind) in [(Role::Source, "read"), (Role::Destination, "write")] {
        let kinds: Vec<&str> = CSV
            .grants(role, &spec)
            .unwrap()
            .iter()
            .map(|grant| grant.kind)
            .collect();
        assert_eq!(kinds, [kind], "{role}");
    }
    let mistakes = CSV.check_config(
        Role::Source,
        &json!({"path": "x", "columns": {"id": "int8"}, "headr": true}),
    );
    assert_eq!(mistakes.len(), 2, "{mistakes:?}");
}
