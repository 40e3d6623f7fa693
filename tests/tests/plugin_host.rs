//! The sandbox as its users meet it: honest guests work, and each misdeed comes back as its own clear error while
//! the host goes on.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use setu::connector::{
    BatchLimit, Chunk, Error, ErrorKind, LoadRequest, ReadRequest, Result, Role, Source, WriteMode,
};
use setu::pipeline::{ConnectorSpec, GrantSpec, Limit, LimitSpec};
use setu::plugin::{Denials, OpenContext, Options, Plugin, Plugins};
use setu::policy::Policy;
use setu::record::StreamName;
use tokio_util::sync::CancellationToken;

static PROBE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/setu_guest_probe.wasm"));

/// Compiled once for all tests of this process.
static PLUGIN: LazyLock<Arc<Plugin>> = LazyLock::new(|| {
    let cache = std::env::temp_dir().join("setu-tests-plugin-cache");
    let plugins = Plugins::new(Options { cache: Some(cache) }).expect("an engine");
    plugins
        .load("probe", PROBE, &LimitSpec::default())
        .expect("the probe loads")
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
        denials: Denials::default(),
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

#[test]
fn reading_goes_on_after_a_position() {
    let mut source = source(&spec(json!({"behaviour": "rows"}))).unwrap();
    let limit = BatchLimit {
        rows: 4,
        bytes: 1 << 20,
    };
    let chunks = read_all(&mut *source, limit).unwrap();
    let rows: Vec<_> = chunks.iter().map(|chunk| chunk.batch.num_rows()).collect();
    assert_eq!(rows, [4, 4, 2]);

    let request = ReadRequest {
        resume_after: chunks[0].position.clone(),
        ..ReadRequest::all(StreamName::bare("t"))
    };
    let mut reader = source.read(&request).unwrap();
    assert_eq!(reader.next(limit).unwrap().unwrap().batch, chunks[1].batch);
}

#[test]
fn a_large_batch_reaches_the_guest_in_pieces() {
    let mut source = source(&spec(json!({"behaviour": "rows", "rows": 20_000}))).unwrap();
    let limit = BatchLimit {
        rows: 50_000,
        bytes: 64 << 20,
    };
    let chunk = read_all(&mut *source, limit).unwrap().remove(0);
    assert_eq!(chunk.batch.num_rows(), 20_000);
    let told = PLUGIN.open_destination(&spec(json!({"behaviour": "tell sizes"})), &context());
    let mut destination = told.unwrap();
    let load = load();
    let mut writer = destination.begin(&load).unwrap();
    writer.write(chunk).unwrap();
    let sizes = writer.finish(None).unwrap_err();
    assert_says(&sizes, ErrorKind::Unsupported, &["[8192, 8192, 3616]"]);
}

#[test]
fn an_error_of_the_connector_keeps_its_kind_code_and_place() {
    let error = read_error(json!({"behaviour": "error"}));
    let place = "connector probe 1.2.3, stream t, call source.reader.next: ";
    assert_says(
        &error,
        ErrorKind::Auth,
        &[place, "the password is wrong", "[28P01]"],
    );
    assert!(error.is_retryable());
}

#[test]
fn a_panic_is_told_with_its_message() {
    let error = read_error(json!({"behaviour": "panic"}));
    assert_says(
        &error,
        ErrorKind::Panic,
        &[
            "call source.reader.next",
            "row 0 is not to my taste",
            "batches.rs",
        ],
    );

    let mut destination = PLUGIN
        .open_destination(&spec(json!({"behaviour": "panic in write"})), &context())
        .unwrap();
    let load = load();
    let mut source = source(&spec(json!({"behaviour": "rows"}))).unwrap();
    let chunk = read_all(&mut *source, BatchLimit::default()).unwrap().remove(0);
    let mut writer = destination.begin(&load).unwrap();
    let error = writer.write(chunk).unwrap_err();
    assert_says(
        &error,
        ErrorKind::Panic,
        &["call destination.writer.write", "the writer gives up"],
    );
    // The instance is over: later calls say so and do not reach it.
    let error = writer.commit(1).unwrap_err();
    assert_says(
        &error,
        ErrorKind::Panic,
        &[
            "call destination.writer.commit",
            "not called",
            "the writer gives up",
        ],
    );
}

#[test]
fn a_trap_is_told_apart_from_a_panic() {
    for (behaviour, parts) in [
        ("abort", &["call source.connection.check", "aborted"][..]),
        ("exit", &["it ended itself with exit status"]),
        ("recurse", &["endless recursion"]),
    ] {
        assert_says(
            &check(&spec(json!({"behaviour": behaviour}))),
            ErrorKind::Trap,
            parts,
        );
    }
    let error = check(&spec(json!({"behaviour": "index", "rows": 7})));
    assert_says(&error, ErrorKind::Panic, &["index out of bounds"]);
    assert_eq!(honest_rows(), 10);
}

#[test]
fn a_hang_ends_at_the_call_timeout() {
    for behaviour in ["loop", "sleep"] {
        let mut spec = spec(json!({"behaviour": behaviour}));
        spec.limits.set(Limit::CallTimeoutSeconds, 1);
        let start = Instant::now();
        let error = check(&spec);
        assert_says(
            &error,
            ErrorKind::Timeout,
            &["no progress for 1 seconds", "callTimeoutSeconds"],
        );
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }
    assert_eq!(honest_rows(), 10);
}

#[test]
fn an_instance_ends_when_its_time_is_over() {
    let mut spec = spec(json!({"behaviour": "loop"}));
    spec.limits.set(Limit::TotalTimeoutSeconds, 1);
    assert_says(
        &check(&spec),
        ErrorKind::Timeout,
        &["it has run for 1 seconds", "totalTimeoutSeconds"],
    );
}

#[test]
fn an_instance_computes_no_more_than_its_share() {
    // What this thread has computed so far, in nanoseconds; instances run on the thread that calls them.
    let computed = || -> u64 {
        let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        text.split(' ').next().unwrap().parse().unwrap()
    };
    let mut spec = spec(json!({"behaviour": "loop"}));
    spec.limits.set(Limit::CpuPercent, 10);
    spec.limits.set(Limit::CallTimeoutSeconds, 3);
    let mut source = source(&spec).unwrap();
    let before = computed();
    assert_says(&source.check().unwrap_err(), ErrorKind::Timeout, &["3 seconds"]);
    let used = Duration::from_nanos(computed() - before);
    assert!(used < Duration::from_secs(1), "{used:?} of 3 s");
}

#[test]
fn a_server_that_does_not_answer_is_named_as_the_reason() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = silent.local_addr().unwrap().to_string();
    let mut spec = spec(json!({"behaviour": "net", "target": target}));
    spec.limits.set(Limit::CallTimeoutSeconds, 1);
    assert_says(
        &check(&spec),
        ErrorKind::Timeout,
        &["no answer from the server for 1 seconds"],
    );
}

#[test]
fn an_interruption_ends_a_call_under_way() {
    for behaviour in ["loop", "sleep"] {
        let context = context();
        let cancel = context.cancel.clone();
        let mut source = PLUGIN
            .open_source(&spec(json!({"behaviour": behaviour})), &context)
            .unwrap();
        let error = std::thread::scope(|scope| {
            let call = scope.spawn(|| source.check().unwrap_err());
            cancel.cancel();
            call.join().unwrap()
        });
        assert_says(&error, ErrorKind::Interrupted, &["call source.connection.check"]);
    }
}

#[test]
fn more_memory_than_the_limit_is_refused_by_name() {
    let mut spec = spec(json!({"behaviour": "memory"}));
    spec.limits.set(Limit::MemoryMib, 64);
    assert_says(&check(&spec), ErrorKind::Limit, &["64 MiB", "memoryMib"]);
    assert_eq!(honest_rows(), 10);
}

#[test]
fn a_value_that_would_fill_the_host_is_refused_by_name() {
    let mut spec = spec(json!({"behaviour": "a huge list"}));
    spec.limits.set(Limit::MemoryMib, 2_048);
    let outcome = source(&spec).and_then(|mut source| read_all(&mut *source, BatchLimit::default()));
    assert_says(
        &outcome.unwrap_err(),
        ErrorKind::Limit,
        &["256 MiB", "hostMemoryMib"],
    );
    // The same list passes the boundary where the limit allows it, and then breaks the contract.
    spec.limits.set(Limit::HostMemoryMib, 512);
    let outcome = source(&spec).and_then(|mut source| read_all(&mut *source, BatchLimit::default()));
    assert_says(
        &outcome.unwrap_err(),
        ErrorKind::BrokenContract,
        &["its values are `bits`"],
    );
    assert_eq!(honest_rows(), 10);
}

#[test]
fn too_many_open_files_end_the_instance() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.csv");
    fs::write(&path, "a").unwrap();
    for path in [path.as_path(), folder.path()] {
        let error = check(&spec(json!({"behaviour": "handles", "path": path})));
        assert_says(&error, ErrorKind::Limit, &["1000 files, sockets and streams"]);
    }
}

#[test]
fn a_flood_on_stderr_and_in_the_log_is_survived() {
    assert_says(
        &check(&spec(json!({"behaviour": "stderr"}))),
        ErrorKind::Panic,
        &["after the flood"],
    );
    assert_says(
        &check(&spec(json!({"behaviour": "log"}))),
        ErrorKind::Unsupported,
        &["logged"],
    );
}

#[test]
fn each_malformed_batch_is_a_broken_contract_with_its_rule() {
    for (behaviour, rule) in [
        ("no rows", "a batch of no rows"),
        ("too many rows", "at most 8192"),
        ("too few values", "column `id`: 1 values"),
        ("a column of another type", "column `id`: its type is int64"),
        ("a null where none may be", "column `id`: row 0 is null"),
        ("short validity", "column `name`: 0 bytes of validity"),
        ("decreasing offsets", "column `name`: the offsets decrease"),
        ("a negative offset", "column `name`: the first offset is -1"),
        ("an offset beyond the data", "column `name`: the last offset"),
        ("too few offsets", "column `name`: 0 offsets"),
        ("text that is not UTF-8", "column `name`: row 0 is not UTF-8"),
        (
            "an offset within a character",
            "column `name`: row 0 is not UTF-8",
        ),
        ("a decimal of too many digits", "column `price`: row 0"),
        ("a time beyond the day", "column `at`: row 0"),
        ("short bits", "column `flag`: 0 bytes"),
        ("a numeric that is no number", "column `amount`: row 0"),
        ("a missing column", "5 columns where the schema has 6"),
        ("a huge position", "a position of 65537 bytes"),
    ] {
        let error = read_error(json!({"behaviour": behaviour}));
        assert_says(
            &error,
            ErrorKind::BrokenContract,
            &["call source.reader.next", "broke the contract", rule],
        );
    }
}

#[test]
fn schemas_streams_and_counts_are_held_to_the_contract() {
    for (behaviour, rule) in [
        ("two fields of one name", "two fields are named `id`"),
        ("a name of a megabyte", "a field's name of 1048576 bytes"),
        ("20,000 columns", "a schema of 20000 columns"),
        ("a decimal of 40 digits", "decimal(40,2)"),
        ("a key that is no field", "the primary key names `nothing`"),
    ] {
        let error = read_error(json!({"behaviour": behaviour}));
        assert_says(
            &error,
            ErrorKind::BrokenContract,
            &["call source.reader.schema", rule],
        );
    }
    for (behaviour, rule) in [
        ("two streams of one name", "two streams are named `t`"),
        ("a stream without a name", "an empty name"),
    ] {
        let mut source = source(&spec(json!({"behaviour": behaviour}))).unwrap();
        let error = source.discover().unwrap_err();
        assert_says(
            &error,
            ErrorKind::BrokenContract,
            &["call source.connection.discover", rule],
        );
    }
    let mut counting = source(&spec(json!({"behaviour": "count too far"}))).unwrap();
    let error = counting
        .count(&ReadRequest::all(StreamName::bare("t")), 5)
        .unwrap_err();
    assert_says(&error, ErrorKind::BrokenContract, &["a count of 6"]);

    let mut modeless = PLUGIN
        .open_destination(&spec(json!({"behaviour": "no write modes"})), &context())
        .unwrap();
    assert_says(
        &modeless.capabilities().unwrap_err(),
        ErrorKind::BrokenContract,
        &["no write mode"],
    );

    let config = json!({"behaviour": "a position from a stream that is not resumable"});
    let mut source = source(&spec(config)).unwrap();
    source.discover().unwrap();
    let error = read_all(&mut *source, BatchLimit::default()).unwrap_err();
    assert_says(
        &error,
        ErrorKind::BrokenContract,
        &["does not say that it is resumable"],
    );
}

/// `granted.csv` beside `secret.txt` and links that lead out, in a folder within another one.
fn files() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::write(folder.path().join("outside.txt"), "outside").unwrap();
    fs::write(inner.join("granted.csv"), "granted").unwrap();
    fs::write(inner.join("secret.txt"), "secret").unwrap();
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("../outside.txt", inner.join("link")).unwrap();
        std::os::unix::fs::symlink(folder.path(), inner.join("linked-folder")).unwrap();
    }
    folder
}

fn snapshot(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            found.push((path.display().to_string(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

#[test]
fn a_granted_file_is_reached_and_its_neighbours_are_not() {
    let folder = files();
    let inner = folder.path().join("inner");
    let granted = inner.join("granted.csv");
    let error = check(&spec(json!({"behaviour": "read file", "path": granted})));
    assert_says(&error, ErrorKind::Unsupported, &["ok \"granted\""]);

    let before = snapshot(&inner);
    let inner = inner.display();
    let tries = [
        format!("{inner}/secret.txt"),
        format!("{inner}/./secret.txt"),
        format!("{inner}/../outside.txt"),
        format!("{inner}/granted.csv/../secret.txt"),
        format!("{inner}/link"),
        format!("{inner}/linked-folder/outside.txt"),
        format!("{inner}/new.txt"),
        format!("{inner}/sub"),
        format!("{inner}/.."),
        format!("{}/outside.txt", folder.path().display()),
        "/etc/passwd".to_owned(),
        "/".to_owned(),
    ];
    let error = check(&spec(
        json!({"behaviour": "try", "path": granted, "tries": tries}),
    ));
    assert_says(&error, ErrorKind::Unsupported, &["check: []"]);
    let error = check(&spec(
        json!({"behaviour": "try", "path": granted, "tries": [granted, inner.to_string()]}),
    ));
    // The folder itself exists and is empty; the file can be read and nothing else.
    let expected = format!(
        "[\"read {0}\", \"stat {0}\", \"lstat {0}\", \"stat {inner}\", \"lstat {inner}\"]",
        granted.display()
    );
    assert_says(&error, ErrorKind::Unsupported, &[&expected]);
    assert_eq!(snapshot(&folder.path().join("inner")), before);
}

#[test]
fn a_granted_folder_is_read_within_its_bounds() {
    let folder = files();
    let inner = folder.path().join("inner");
    let error = check(&spec(json!({"behaviour": "list", "path": inner})));
    assert_says(
        &error,
        ErrorKind::Unsupported,
        &["\"granted.csv\"", "\"secret.txt\""],
    );

    let before = snapshot(&inner);
    let tries = ["../outside.txt", "link", "linked-folder/outside.txt"]
        .map(|path| format!("{}/{path}", inner.display()));
    let error = check(&spec(json!({"behaviour": "try", "path": inner, "tries": tries})));
    let saw = error.message().to_owned();
    assert!(
        !saw.contains("read ") && !saw.contains("\"stat ") && !saw.contains("append"),
        "{saw}"
    );
    let error = check(&spec(
        json!({"behaviour": "try", "path": inner, "tries": [inner.join("new"), inner.join("granted.csv")]}),
    ));
    let saw = error.message();
    for changed in ["create", "append", "write", "mkdir", "rename", "link ", "remove"] {
        assert!(!saw.contains(changed), "{saw}");
    }
    assert_eq!(snapshot(&inner), before);
}

#[test]
fn a_folder_to_write_to_is_made_when_it_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a/b");
    let spec = spec(json!({"behaviour": "write out", "out": out}));
    assert_eq!(PLUGIN.grants(Role::Source, &spec).unwrap()[0].kind, "write");
    assert!(!out.exists(), "planning makes nothing");
    assert_says(&check(&spec), ErrorKind::Unsupported, &["ok ()"]);
    assert_eq!(fs::read_to_string(out.join("new.txt")).unwrap(), "new");
}

#[test]
fn no_grant_lets_a_connector_make_links_or_write_code() {
    let folder = tempfile::tempdir().unwrap();
    let code = folder.path().join("there.wasm");
    fs::write(&code, "code").unwrap();
    std::os::unix::fs::symlink("there.wasm", folder.path().join("link.csv")).unwrap();
    let error = check(&spec(
        json!({"behaviour": "forbidden writes", "out": folder.path()}),
    ));
    assert_says(&error, ErrorKind::Unsupported, &[r#"["file", "rename"]"#]);
    assert_eq!(fs::read_to_string(&code).unwrap(), "code");
    fs::remove_file(folder.path().join("link.csv")).unwrap();
    let mut left: Vec<_> = snapshot(folder.path())
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    left.sort();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left.iter().any(|name| name.ends_with("d.csv")), "{left:?}");
}

#[test]
fn a_pipe_in_a_granted_folder_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let error = check(&spec(
        json!({"behaviour": "try", "path": folder.path(), "tries": [pipe]}),
    ));
    let saw = error.message();
    assert!(saw.contains("\"stat ") && !saw.contains("read "), "{saw}");
}

#[test]
fn a_granted_file_is_written_only_under_a_write_grant() {
    let folder = files();
    let granted = folder.path().join("inner/granted.csv");
    let mut spec = spec(json!({"behaviour": "write file", "path": granted}));
    assert_says(&check(&spec), ErrorKind::Unsupported, &["err PermissionDenied"]);
    assert_eq!(fs::read_to_string(&granted).unwrap(), "granted");
    spec.grant.write = vec![granted.display().to_string()];
    assert_says(&check(&spec), ErrorKind::Unsupported, &["ok ()"]);
    assert_eq!(fs::read_to_string(&granted).unwrap(), "overwritten");
}

#[test]
fn a_missing_file_is_named_with_its_property() {
    let error = check(&spec(json!({"behaviour": "read file", "path": "/no/such/file"})));
    assert_says(&error, ErrorKind::NotFound, &["config.path", "/no/such/file"]);
}

/// Answers each connection with `pong` and closes it.
fn server() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let accepting = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        for stream in accepting.incoming() {
            let mut stream = stream.unwrap();
            let mut ping = [0; 4];
            if stream.read_exact(&mut ping).is_ok() {
                stream.write_all(b"pong").unwrap();
            }
        }
    });
    (listener, address)
}

#[test]
fn a_granted_server_is_reached_both_ways_and_by_name() {
    let (_listener, address) = server();
    let by_name = address.replace("127.0.0.1", "localhost");
    for behaviour in ["net", "std"] {
        for target in [&address, &by_name] {
            let error = check(&spec(json!({"behaviour": behaviour, "target": target})));
            assert_says(&error, ErrorKind::Unsupported, &["ok \"pong\""]);
        }
    }
}

#[test]
fn a_denied_connection_names_the_line_to_add() {
    let (_listener, address) = server();
    let by_name = address.replace("127.0.0.1", "localhost");
    let line = |target: &str| format!("`grant: {{ network: [\"{target}\"] }}` under `source:`");
    // Nothing granted, and something else granted.
    for granted in [json!(null), json!("localhost:1")] {
        let mut config = json!({"behaviour": "net ungranted", "ungranted": address});
        if granted.is_string() {
            config["target"] = granted.clone();
        }
        assert_says(
            &check(&spec(config.clone())),
            ErrorKind::Denied,
            &[&line(&address)],
        );
        if granted.is_string() {
            // Drivers in the guest turn a refusal into their own words; the line to add follows all the same.
            config["behaviour"] = json!("std ungranted");
            assert_says(
                &check(&spec(config.clone())),
                ErrorKind::Unsupported,
                &["err ", &line(&address)],
            );
            config["ungranted"] = json!(by_name.replace("localhost", "example.invalid"));
            assert_says(
                &check(&spec(config)),
                ErrorKind::Unsupported,
                &["err ", &line("example.invalid:PORT")],
            );
        }
    }
    let mut config = spec(json!({"behaviour": "net ungranted", "ungranted": by_name}));
    config.grant.network = vec![by_name];
    assert_says(&check(&config), ErrorKind::Unsupported, &["ok \"pong\""]);
}

/// A grant holds for a host however the guest spells it, and for no other.
#[test]
fn no_spelling_of_a_host_gets_around_the_grants() {
    let (_listener, address) = server();
    let port = address.rsplit_once(':').unwrap().1.to_owned();
    let spellings = [
        "0x7f.1",
        "2130706433",
        "0177.0.0.1",
        "127.1",
        "[::ffff:127.0.0.1]",
    ];
    for behaviour in ["net ungranted", "std ungranted"] {
        // WASI knows no IPv4 in IPv6.
        let spellings = spellings
            .iter()
            .filter(|host| behaviour.starts_with("net") || !host.starts_with('['));
        for host in spellings {
            let mut spec = spec(json!({"behaviour": behaviour, "ungranted": format!("{host}:{port}")}));
            spec.grant.network = vec![address.clone()];
            assert_says(&check(&spec), ErrorKind::Unsupported, &["ok \"pong\""]);
            // A name, a name below it and a network that does not hold the address.
            spec.grant.network = ["localhost", "*.localhost", "10.0.0.0/8"]
                .map(|host| format!("{host}:{port}"))
                .into();
            let error = check(&spec);
            let named = error.message().contains("network: [\"127.0.0.1:");
            assert!(named, "{behaviour} {host}: {error}");
        }
    }
}

#[test]
fn a_granted_network_and_all_names_below_one_are_reached() {
    let (_listener, address) = server();
    let port = address.rsplit_once(':').unwrap().1.to_owned();
    for (granted, target, reached) in [
        ("127.0.0.0/8", "127.0.0.1", true),
        ("127.0.0.0/8", "localhost", false),
        ("*.localhost", "localhost", false),
        ("*.localhost", "a.localhost", true),
    ] {
        let mut spec = spec(json!({"behaviour": "net ungranted", "ungranted": format!("{target}:{port}")}));
        spec.grant.network = vec![format!("{granted}:{port}")];
        let error = check(&spec);
        let denied = error.kind() == ErrorKind::Denied;
        // Not every system resolves names below localhost; what matters is that it was allowed to try.
        assert_eq!(!denied, reached, "{granted} {target}: {error}");
    }
}

#[test]
fn the_machines_surroundings_are_refused_in_a_granted_network() {
    for (behaviour, target) in [
        ("net ungranted", "169.254.169.254:80"),
        ("net ungranted", "0xa9fea9fe:80"),
        ("net ungranted", "[::ffff:169.254.169.254]:80"),
        ("std ungranted", "169.254.169.254:80"),
        ("std ungranted", "0xa9fea9fe:80"),
    ] {
        let mut spec = spec(json!({"behaviour": behaviour, "ungranted": target}));
        spec.grant.network = vec![
            "0.0.0.0/0:80".into(),
            "[::]/0:80".into(),
            "169.254.0.0/16:80".into(),
        ];
        let error = check(&spec);
        let named = error.message().contains("network: [\"169.254.169.254:");
        assert!(named, "{behaviour} {target}: {error}");
    }
}

#[test]
fn a_connectors_messages_do_not_show_its_secrets() {
    for (behaviour, kind) in [
        ("tell", ErrorKind::Unsupported),
        ("panic secret", ErrorKind::Panic),
    ] {
        let config = json!({"behaviour": behaviour, "password": "ge heim",
                            "target": "postgres://u:hunter2%21@localhost:1/x"});
        let error = check(&spec(config));
        assert_eq!(error.kind(), kind, "{error}");
        let text = format!("{error} {error:?}");
        assert!(
            text.contains("***") && !text.contains("ge heim") && !text.contains("hunter2"),
            "{text}"
        );
    }
}

/// A policy is the ceiling whichever way a connector is opened, not only through the command line.
#[test]
fn a_connector_is_not_opened_beyond_the_policy() {
    let policy = |text: &str| {
        let policy = Policy::parse("policy.yaml", Path::new("/"), text).expect("a policy");
        let cache = std::env::temp_dir().join("setu-tests-plugin-cache");
        Plugins::new(Options { cache: Some(cache) })
            .expect("an engine")
            .under(Arc::new(policy))
    };
    let (_listener, address) = server();
    let granted = spec(json!({"behaviour": "net", "target": address}));
    let open = |plugins: &Plugins| {
        let plugin = plugins.load("probe", PROBE, &LimitSpec::default())?;
        plugin.open_source(&granted, &context())?.check()
    };
    let within = policy("default: { network: ['127.0.0.0/8:*'] }\n");
    assert_says(
        &open(&within).unwrap_err(),
        ErrorKind::Unsupported,
        &["ok \"pong\""],
    );
    let beyond = policy("default: { network: ['db.internal:5432'] }\n");
    assert_says(
        &open(&beyond).unwrap_err(),
        ErrorKind::Denied,
        &["config.target", &address, "only db.internal:5432", "policy.yaml"],
    );
    let unknown = policy("plugins: { allow: [bundled] }\n");
    assert_says(
        &open(&unknown).unwrap_err(),
        ErrorKind::Denied,
        &["plugins.allow", "sha256:"],
    );
}

/// Also in `describe`, before anybody knows what the connector is called.
#[test]
fn a_policy_caps_what_describe_may_use() {
    let text = "default: { limits: { memoryMib: 1 } }\n";
    let policy = Policy::parse("policy.yaml", Path::new("/"), text).expect("a policy");
    let cache = std::env::temp_dir().join("setu-tests-plugin-cache");
    let plugins = Plugins::new(Options { cache: Some(cache) }).expect("an engine");
    let loaded = plugins
        .under(Arc::new(policy))
        .load("probe", PROBE, &LimitSpec::default());
    let error = loaded.err().expect("it needs more than 1 MiB");
    assert_says(&error, ErrorKind::Limit, &["its limit is 1 MiB"]);
}

#[test]
fn where_tls_is_required_clear_text_ends_at_the_request_for_it() {
    let policy = Policy::parse("policy.yaml", Path::new("/"), "tls: required\n").expect("a policy");
    let cache = std::env::temp_dir().join("setu-tests-plugin-cache");
    let plugins = Plugins::new(Options { cache: Some(cache) }).expect("an engine");
    let plugin = plugins
        .under(Arc::new(policy))
        .load("probe", PROBE, &LimitSpec::default())
        .expect("it loads");
    let check = |behaviour: &str, target: &str| {
        let spec = spec(json!({"behaviour": behaviour, "target": target}));
        let outcome = plugin
            .open_source(&spec, &context())
            .and_then(|mut source| source.check());
        outcome.expect_err("a probe tells what it saw as an error")
    };
    let (_listener, address) = server();
    for behaviour in ["net", "std"] {
        let error = check(behaviour, &address);
        assert!(
            error.message().contains("policy.yaml requires TLS"),
            "{behaviour}: {error}"
        );
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 8];
        stream.read_exact(&mut request).unwrap();
        stream.write_all(b"Nno TLS here").unwrap();
        let mut rest = Vec::new();
        // Closing with unread bytes resets the connection.
        let _ = stream.read_to_end(&mut rest);
        rest
    });
    let error = check("starttls", &address);
    assert_says(
        &error,
        ErrorKind::Unsupported,
        &["[78] Some(", "policy.yaml requires TLS"],
    );
    drop(plugin);
    assert_eq!(
        heard.join().unwrap(),
        b"",
        "nothing follows the request in clear text"
    );
}

#[test]
fn an_unreachable_server_is_named_with_the_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let error = check(&spec(json!({"behaviour": "net", "target": address})));
    assert_says(
        &error,
        ErrorKind::Unreachable,
        &[&format!("cannot reach {address}"), "refused"],
    );
    assert!(error.is_retryable());
    let error = check(&spec(
        json!({"behaviour": "net", "target": "no-such-host.invalid:1"}),
    ));
    assert_says(
        &error,
        ErrorKind::Unreachable,
        &["`no-such-host.invalid` does not resolve"],
    );
}

/// What fails at once is no progress, however often it is tried.
#[test]
fn retrying_for_ever_ends_at_the_call_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    drop(listener);
    let mut spec = spec(json!({"behaviour": "retry", "target": address}));
    spec.limits.set(Limit::CallTimeoutSeconds, 1);
    // So that the test ends.
    spec.limits.set(Limit::TotalTimeoutSeconds, 20);
    assert_says(
        &check(&spec),
        ErrorKind::Timeout,
        &["for 1 seconds", "callTimeoutSeconds"],
    );
}

#[test]
fn neither_udp_nor_listening_ever_works() {
    for behaviour in ["udp", "listen"] {
        let error = check(&spec(json!({"behaviour": behaviour, "target": "127.0.0.1:1"})));
        assert_says(&error, ErrorKind::Unsupported, &["err "]);
    }
}

#[test]
fn only_granted_variables_are_seen() {
    let mut spec = spec(json!({"behaviour": "env"}));
    assert_says(&check(&spec), ErrorKind::Unsupported, &["check: []"]);
    spec.grant.env = vec!["PATH".into(), "SETU_NO_SUCH_VARIABLE".into()];
    let path = format!("[({:?}, {:?})]", "PATH", std::env::var("PATH").unwrap());
    assert_says(&check(&spec), ErrorKind::Unsupported, &[&path]);
    spec.config = json!({"behaviour": "args"});
    assert_says(&check(&spec), ErrorKind::Unsupported, &["check: []"]);
}

#[test]
fn a_wrong_configuration_is_refused_before_the_guest_runs() {
    let config = json!({"behavior": "rows", "password": 5});
    let mistakes = PLUGIN.check_config(Role::Source, &config);
    let told: Vec<_> = mistakes
        .iter()
        .map(|m| format!("{}: {}", m.pointer, m.message))
        .collect();
    assert!(
        told.iter()
            .any(|m| m.contains("/behavior: unknown property `behavior`; did you mean `behaviour`?")),
        "{told:?}"
    );
    assert!(
        told.iter()
            .any(|m| m.contains("/password: must be string, not number")),
        "{told:?}"
    );
    assert_says(
        &check(&spec(config)),
        ErrorKind::Config,
        &["did you mean `behaviour`?", "the property `behaviour` is missing"],
    );
    let redacted = PLUGIN.redact(Role::Source, &json!({"behaviour": "rows", "password": "geheim"}));
    assert_eq!(redacted, json!({"behaviour": "rows", "password": "***"}));
}

#[test]
fn what_is_no_connector_is_refused_for_what_it_is() {
    let plugins = Plugins::new(Options {
        cache: Some(tempfile::tempdir().unwrap().path().join("cache")),
    })
    .unwrap();
    let component = |sections: &[u8]| [b"\0asm\x0d\0\x01\0", sections].concat();
    // An empty instance type, and the import of such an instance by name.
    let import = |name: &str| {
        let mut section = vec![1, 0, name.len() as u8];
        section.extend(name.as_bytes());
        section.extend([5, 0]);
        let mut sections = vec![7, 3, 1, 0x42, 0, 10, section.len() as u8];
        sections.extend(section);
        component(&sections)
    };
    for (bytes, expected) in [
        (b"#!/bin/sh".to_vec(), "is not a WebAssembly component"),
        (
            b"\0asm\x01\0\0\0".to_vec(),
            "is a core WebAssembly module, not a component",
        ),
        (PROBE[..PROBE.len() / 2].to_vec(), "cannot be used"),
        (component(&[]), "it is a component, but no connector"),
        (import("other:thing/x@1.0.0"), "imports `other:thing/x@1.0.0`"),
        (
            import("setu:connector/net@0.9.0"),
            "version 0.9.0 of the connector contract",
        ),
    ] {
        let error = plugins
            .load("./x.wasm", &bytes, &LimitSpec::default())
            .err()
            .expect("no connector");
        assert_says(&error, ErrorKind::Config, &["connector ./x.wasm", expected]);
    }
}

#[test]
fn a_component_that_is_too_large_is_not_compiled() {
    // A custom section of two megabytes.
    let bytes = [
        &b"\0asm\x0d\0\x01\0\0\x80\x80\x80\x01\x01x"[..],
        &[0; (2 << 20) - 2],
    ]
    .concat();
    let mut limits = LimitSpec::default();
    let plugins = Plugins::new(Options {
        cache: Some(tempfile::tempdir().unwrap().path().join("cache")),
    })
    .unwrap();
    let refused = |limits: &LimitSpec| plugins.load("./x.wasm", &bytes, limits).err().unwrap();
    assert_says(&refused(&limits), ErrorKind::Config, &["no connector"]);
    limits.set(Limit::ComponentMib, 1);
    assert_says(
        &refused(&limits),
        ErrorKind::Config,
        &["has 3 MiB, and its limit is 1 MiB", "componentMib"],
    );
}

#[test]
fn compiled_code_is_kept_and_damage_to_it_is_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    let load = || {
        let plugins = Plugins::new(Options {
            cache: Some(cache.clone()),
        })
        .unwrap();
        let start = Instant::now();
        assert_eq!(
            plugins
                .load("probe", PROBE, &LimitSpec::default())
                .unwrap()
                .description()
                .name,
            "probe"
        );
        start.elapsed()
    };
    let entries = || -> Vec<_> {
        fs::read_dir(&cache)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    };
    let compiled = load();
    let entry = entries().remove(0);
    assert_eq!(entries().len(), 1, "{:?}", entries());
    let whole = fs::read(&entry).unwrap();
    let cached = load();
    assert!(
        cached < compiled / 2,
        "{cached:?} from the cache, {compiled:?} compiled"
    );
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&whole[..1000], b"", &flipped] {
        fs::write(&entry, damaged).unwrap();
        load();
        let repaired = fs::read(&entry).unwrap();
        assert_eq!(repaired.len(), whole.len());
        assert_ne!(repaired, damaged);
    }
    // What lies elsewhere is not this folder's, whatever it holds.
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&entry, &elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &entry).unwrap();
    load();
    assert!(fs::symlink_metadata(&entry).unwrap().is_file());
}
