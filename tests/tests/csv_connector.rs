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
use setu::plugin::{Denials, OpenContext, Options, Plugin, Plugins};
use setu::record::{StreamInfo, StreamName};
use setu_tests::Setu;
use tokio_util::sync::CancellationToken;

/// Compiled once for all tests of this process.
static CSV: LazyLock<Arc<Plugin>> = LazyLock::new(|| {
    let component = Registry::default().resolve("csv").expect("csv is bundled");
    let cache = std::env::temp_dir().join("setu-tests-plugin-cache");
    let plugins = Plugins::new(Options { cache: Some(cache) }).expect("an engine");
    plugins
        .load(&component.origin, &component.bytes, &LimitSpec::default())
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
        denials: Denials::default(),
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

/// What the sandbox lets the connector see of links and names is not what a native build sees.
#[cfg(unix)]
#[test]
fn one_file_that_cannot_be_read_does_not_stop_the_others_of_its_folder() {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    let setu = Setu::with_pipeline(
        "pipeline: p\n\
         source: { connector: csv, config: { path: in } }\n\
         destination: { connector: csv, config: { path: out } }\n\
         streams: [{ name: \"*\" }]\n",
    );
    let good = "id,note\n1,a\n";
    for name in ["in/a.csv", "in/z.csv", "elsewhere/far.csv"] {
        setu.write(name, good);
    }
    setu.write("in/latin.csv", b"id,gr\xf6sse\n1,2\n");
    setu.write("in/mac.csv", "id,note\r1,a\r");
    setu.write("in/unpacked.csv.gz", good);
    setu.write("in/windows.csv", b"\xff\xfei\0d\0\n\0");
    setu.write("in/packed.csv", b"\x1f\x8b\x08\0\0\0\0\0");
    fs::write(
        setu.path("in").join(std::ffi::OsStr::from_bytes(b"m\xfcll.csv")),
        good,
    )
    .unwrap();
    symlink("a.csv", setu.path("in/near.csv")).unwrap();
    symlink("nowhere.csv", setu.path("in/dangling.csv")).unwrap();
    symlink("../elsewhere/far.csv", setu.path("in/outside.csv")).unwrap();
    symlink(setu.path("elsewhere/far.csv"), setu.path("in/absolute.csv")).unwrap();
    symlink("loop.csv", setu.path("in/loop.csv")).unwrap();
    setu.write("in/locked.csv", good);
    fs::set_permissions(setu.path("in/locked.csv"), fs::Permissions::from_mode(0o000)).unwrap();

    let outside = "is a symbolic link that leads out of the folder";
    let mut expected = vec![
        (
            "(a file name that is not UTF-8)",
            "1 name in this folder is not UTF-8",
        ),
        ("absolute", outside),
        ("dangling", "dangling.csv is a symbolic link that leads nowhere"),
        ("latin", "latin.csv, line 1, byte 5: this is not UTF-8"),
        ("loop", "loop.csv"),
        ("mac", "mac.csv, line 1, byte 7: a carriage return"),
        ("outside", outside),
        ("packed", "packed.csv, line 1, byte 0: this is gzip data"),
        ("unpacked", "unpacked.csv.gz is not gzip data"),
        ("windows", "windows.csv, line 1, byte 0: this file is UTF-16"),
    ];
    // Root may read what is locked.
    let locked = fs::File::open(setu.path("in/locked.csv")).is_err();
    if locked {
        expected.push(("locked", "locked.csv: permission denied"));
    }
    setu.succeed("check pipeline.yaml");
    let outcome = setu.line("run pipeline.yaml --report -");
    outcome.assert_status(1);
    let report = outcome.json();
    let streams = report["streams"].as_array().unwrap();
    for (name, message) in &expected {
        let stream = streams.iter().find(|stream| stream["stream"] == *name);
        let stream = stream.unwrap_or_else(|| panic!("no stream {name} in {report:#}"));
        let error = stream["error"].as_str().unwrap_or_default();
        assert_eq!(stream["status"], "failed", "{name}");
        assert!(error.contains(message), "{name}: {error}");
        assert!(!error.contains("os error"), "{name}: {error}");
    }
    for name in ["a", "near", "z"] {
        assert_eq!(setu.read(&format!("out/{name}.csv")), good);
    }
    let good = if locked { 3 } else { 4 };
    assert_eq!(streams.len(), expected.len() + good, "{report:#}");
    assert!(!outcome.text().contains("os error"), "{outcome}");
}

#[cfg(unix)]
#[test]
fn a_destination_says_in_words_why_it_cannot_write() {
    let setu = Setu::with_pipeline(
        "pipeline: p\n\
         source: { connector: csv, config: { path: in } }\n\
         destination: { connector: csv, config: { path: out } }\n\
         streams: [{ name: a }]\n",
    );
    setu.write("in/a.csv", "id\n1\n");
    setu.write("out", "a file");
    for command in ["check pipeline.yaml", "run pipeline.yaml"] {
        let outcome = setu.line(command);
        outcome.assert_clear_failure(&["out is a file; `path` must be a folder"]);
        assert!(!outcome.text().contains("os error"), "{outcome}");
    }
    fs::remove_file(setu.path("out")).unwrap();
    // In the place of the file is a folder.
    setu.write("out/a.csv/x", "");
    let outcome = setu.line("run pipeline.yaml");
    outcome.assert_clear_failure(&["out/a.csv"]);
    assert!(!outcome.text().contains("os error"), "{outcome}");
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
