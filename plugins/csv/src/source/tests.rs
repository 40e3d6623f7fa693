use std::io::Write;

use setu_sdk::{Batch, BatchLimit, Chunk, CursorWindow, DataType, ErrorKind, Field, Reader, text};

use super::*;

/// A folder of files with a source over it.
struct Lab {
    folder: tempfile::TempDir,
    config: serde_json::Value,
}

impl Lab {
    fn new(files: &[(&str, &[u8])]) -> Self {
        let lab = Lab {
            folder: tempfile::tempdir().unwrap(),
            config: serde_json::json!({}),
        };
        files.iter().for_each(|(name, bytes)| lab.put(name, bytes));
        lab
    }

    fn with(mut self, config: serde_json::Value) -> Self {
        self.config = config;
        self
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        let bytes = if name.ends_with(".gz") {
            gzip(bytes)
        } else {
            bytes.to_vec()
        };
        std::fs::write(self.folder.path().join(name), bytes).unwrap();
    }

    fn modified(&self, name: &str) -> std::time::SystemTime {
        let metadata = std::fs::metadata(self.folder.path().join(name)).unwrap();
        metadata.modified().unwrap()
    }

    fn set_modified(&self, name: &str, to: std::time::SystemTime) {
        let file = std::fs::File::options()
            .append(true)
            .open(self.folder.path().join(name));
        file.unwrap().set_modified(to).unwrap();
    }

    /// Over the folder, or over one file in it.
    fn source(&self, file: &str) -> CsvSource {
        let mut config = self.config.clone();
        config["path"] = self.folder.path().join(file).to_str().unwrap().into();
        CsvSource::open(serde_json::from_value(config).unwrap()).unwrap()
    }

    fn rows(&self, request: ReadRequest) -> Result<Vec<String>> {
        let mut reader = self.source("").read(request)?;
        Ok(drain(&mut reader, 3)?
            .into_iter()
            .flat_map(|(rows, _)| rows)
            .collect())
    }
}

/// Two members, as `cat a.gz b.gz` makes them.
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let (a, b) = bytes.split_at(bytes.len() / 2);
    let mut out = Vec::new();
    for half in [a, b] {
        let mut encoder = flate2::write::GzEncoder::new(&mut out, flate2::Compression::fast());
        encoder.write_all(half).unwrap();
        encoder.finish().unwrap();
    }
    out
}

fn all(name: &str) -> ReadRequest {
    ReadRequest {
        name: StreamName::bare(name),
        columns: None,
        cursor: None,
        range: None,
        resume_after: None,
    }
}

fn show(batch: &Batch, fields: &[Field]) -> Vec<String> {
    let value = |row: usize, at: usize| {
        let column = batch.column(at);
        if column.is_null(row) {
            return "NULL".to_owned();
        }
        let mut out = Vec::new();
        text::write(&mut out, fields[at].data_type, column, row);
        String::from_utf8(out).unwrap()
    };
    let row = |row| {
        (0..fields.len())
            .map(|at| value(row, at))
            .collect::<Vec<_>>()
            .join("|")
    };
    (0..batch.rows as usize).map(row).collect()
}

/// Every chunk's rows and position.
fn drain(reader: &mut CsvReader, rows: u32) -> Result<Vec<(Vec<String>, Vec<u8>)>> {
    let fields = reader.schema().fields;
    let mut all = Vec::new();
    while let Some(Chunk { batch, position }) = reader.next(BatchLimit { rows, bytes: 1 << 20 })? {
        assert!(batch.rows <= rows);
        all.push((show(&batch, &fields), position.unwrap()));
    }
    Ok(all)
}

#[test]
fn fields_become_values_nulls_and_empty_strings() {
    let lab = Lab::new(&[("t.csv", b"a,b\n1,\n\"\",\"x\"\n\nNA,\"NA\"\n")])
        .with(serde_json::json!({"null": ["", "NA"]}));
    assert_eq!(lab.rows(all("t")).unwrap(), ["1|NULL", "|x", "NULL|NA"]);
}

#[test]
fn declared_types_are_read_and_quoted_empty_fields_of_them_are_null() {
    let lab = Lab::new(&[("t.csv", b"i,d,t\n\"007\",1.5,\"\"\n\"\",\"\",x\n")])
        .with(serde_json::json!({"columns": {"i": "int64", "d": "decimal(5,2)"}}));
    assert_eq!(lab.rows(all("t")).unwrap(), ["7|1.50|", "NULL|NULL|x"]);
}

#[test]
fn columns_are_picked_and_ordered_as_asked() {
    let lab = Lab::new(&[("t.csv", b"a,b,c\n1,2,3\n")]);
    let pick = |names: &[&str]| ReadRequest {
        columns: Some(names.iter().map(|name| (*name).to_owned()).collect()),
        ..all("t")
    };
    assert_eq!(lab.rows(pick(&["c", "a"])).unwrap(), ["3|1"]);
    assert_eq!(lab.rows(pick(&["x"])).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn the_schema_comes_from_header_declarations_inference_and_key() {
    let lab = Lab::new(&[(
        "t.csv",
        b"id,n,z,when,w\n1,2,007,2024-01-01,\n2,,008,2024-01-02,\"\"\n",
    )])
    .with(serde_json::json!({"infer": true, "columns": {"id": "int32"}, "primary_key": ["id"]}));
    let info = lab.source("").discover().unwrap().remove(0);
    let types: Vec<String> = info
        .schema
        .fields
        .iter()
        .map(|f| f.data_type.to_string())
        .collect();
    assert_eq!(types, ["int32", "int64", "text", "date", "text"]);
    assert_eq!(info.schema.primary_key, ["id"]);
    assert!(!info.schema.fields[0].nullable && info.schema.fields[1].nullable);
    assert_eq!(info.cursors, ["id", "n", "when"]);
    assert_eq!((info.estimated_rows, info.resumable), (Some(2), true));
    assert_eq!(
        lab.rows(all("t")).unwrap(),
        ["1|2|007|2024-01-01|NULL", "2|NULL|008|2024-01-02|"]
    );
}

#[test]
fn without_a_header_columns_are_numbered() {
    let lab = Lab::new(&[("t.tsv", b"a\tb\nc\td\n")]).with(serde_json::json!({"header": false}));
    let info = lab.source("").discover().unwrap().remove(0);
    let names: Vec<&str> = info.schema.fields.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["column_1", "column_2"]);
    assert_eq!(lab.rows(all("t")).unwrap(), ["a|b", "c|d"]);
}

#[test]
fn an_error_names_file_line_byte_and_what_is_wrong() {
    let cases: &[(&str, &str)] = &[
        (
            "i,s\n1,a\n\nx,b\n",
            "t.csv, line 4, byte 9: column `i`: \"x\" is not a whole number (int64)",
        ),
        (
            "i,s\n1,\"a\nb\"\n2\n",
            "t.csv, line 4, byte 12: this record has 1 field, but the file has 2 columns",
        ),
        ("i,s\n1,2,3\n", "t.csv, line 2, byte 4: this record has 3 fields"),
        (
            "i,s\n,a\n",
            "t.csv, line 2, byte 4: column `i`: NULL in a column of the primary key",
        ),
        (
            "i,s\n1,\"a\n",
            "t.csv, line 2, byte 6: this quote is never closed",
        ),
        (
            "s,i\n\"a\nb\",x\n",
            "t.csv, line 3, byte 10: column `i`: \"x\" is not",
        ),
    ];
    for (bytes, expected) in cases {
        let lab = Lab::new(&[("t.csv", bytes.as_bytes())])
            .with(serde_json::json!({"columns": {"i": "int64"}, "primary_key": ["i"]}));
        let error = lab.rows(all("t")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.message().contains(expected), "{error}");
    }
}

#[test]
fn mistakes_in_the_config_are_named() {
    let lab = Lab::new(&[("t.csv", b"a\n1\n")]);
    for config in [
        serde_json::json!({"columns": {"x": "int64"}}),
        serde_json::json!({"primary_key": ["x"]}),
    ] {
        let lab = Lab {
            config,
            folder: tempfile::tempdir().unwrap(),
        };
        lab.put("t.csv", b"a\n1\n");
        let error = lab.source("t.csv").discover().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(
            error.message().contains("names `x`, which") && error.message().contains("columns are a"),
            "{error}"
        );
    }
    assert_eq!(
        lab.source("missing.csv").check().unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let error = lab.source("").read(all("u")).unwrap_err();
    assert!(error.message().contains("its streams are: t"), "{error}");
}

/// A folder of every kind of file that cannot be read, and two that can.
#[test]
fn a_file_that_cannot_be_read_is_a_stream_that_fails_and_the_others_are_read() {
    let lab = Lab::new(&[("good.csv", b"n,s\n1,a\n"), ("packed.csv.gz", b"n,s\n1,a\n")])
        .with(serde_json::json!({"columns": {"n": "int64"}, "primary_key": ["n"]}));
    let plain = |name: &str, bytes: &[u8]| std::fs::write(lab.folder.path().join(name), bytes).unwrap();
    plain("binary.csv", b"n,\xff\n1,2\n");
    plain("empty.csv", b"");
    plain("mac.csv", b"n,s\r1,a\r");
    plain("misnamed.csv", &gzip(b"n,s\n1,a\n"));
    plain("unpacked.csv.gz", b"n,s\n1,a\n");
    plain("wide.csv", &b"n,".repeat(10_000));
    plain("long.csv", &[b"x".repeat(1_025), b"\n".to_vec()].concat());
    plain("windows.csv", b"\xff\xfen\0,\0s\0");
    plain("twice.csv", b"n\n1\n");
    plain("twice.tsv", b"n\n1\n");
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        plain_at(
            lab.folder
                .path()
                .join(std::ffi::OsStr::from_bytes(b"gr\xf6sse.csv")),
        );
        std::os::unix::fs::symlink("nowhere.csv", lab.folder.path().join("dangling.csv")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(lab.folder.path().join("socket.csv")).unwrap();
    }
    let expected = [
        (
            "(a file name that is not UTF-8)",
            "1 name in this folder is not UTF-8",
        ),
        ("binary", "binary.csv, line 1, byte 2: this is not UTF-8"),
        ("dangling", "dangling.csv is a symbolic link that leads nowhere"),
        ("empty", "empty.csv is empty"),
        (
            "long",
            "long.csv, line 1, byte 0: column 1 has a name of 1025 bytes",
        ),
        ("mac", "mac.csv, line 1, byte 3: a carriage return"),
        ("misnamed", "misnamed.csv, line 1, byte 0: this is gzip data"),
        ("socket", "socket.csv is neither a file nor a folder"),
        ("twice", "twice.tsv both give the stream `twice`"),
        (
            "unpacked",
            "unpacked.csv.gz is not gzip data, although its name ends in `.gz`",
        ),
        ("wide", "wide.csv, line 1, byte 0: this file has 10001 columns"),
        ("windows", "windows.csv, line 1, byte 0: this file is UTF-16"),
    ];
    lab.source("").check().unwrap();
    let streams = lab.source("").discover().unwrap();
    let unreadable: Vec<&str> = streams
        .iter()
        .filter(|stream| stream.kind == "unreadable file")
        .map(|stream| stream.name.name.as_str())
        .collect();
    assert_eq!(unreadable, expected.map(|(name, _)| name));
    // Of such a file nothing is known but what the config says, which lets it be chosen, and then fail.
    assert_eq!(
        (&*streams[1].cursors, &*streams[1].schema.primary_key),
        (&["n".to_owned()][..], &["n".to_owned()][..])
    );
    for (name, message) in expected {
        let error = lab.rows(all(name)).unwrap_err();
        assert!(error.message().contains(message), "{name}: {error}");
        assert_eq!(lab.source("").count(&all(name), 10).unwrap_err(), error);
    }
    for name in ["good", "packed"] {
        assert_eq!(lab.rows(all(name)).unwrap(), ["1|a"], "{name}");
    }
}

#[cfg(unix)]
fn plain_at(path: std::path::PathBuf) {
    std::fs::write(path, b"n\n1\n").unwrap();
}

#[test]
fn an_empty_file_is_a_stream_that_cannot_be_read_and_does_not_hide_the_others() {
    let lab = Lab::new(&[("a.csv", b""), ("b.csv", b"x\n")]);
    assert_eq!(lab.source("").discover().unwrap().len(), 2);
    assert_eq!(lab.rows(all("a")).unwrap_err().kind(), ErrorKind::Data);
    assert_eq!(lab.rows(all("b")).unwrap(), Vec::<String>::new());
}

/// Rows with everything that makes boundaries hard.
fn tricky() -> String {
    let row = |n: usize| match n % 5 {
        0 => format!("{n},\"a\n\"\"b\"\"\r\n\"\r\n"),
        1 => format!("{n},\n"),
        2 => format!("\n{n},\"\"\n"),
        3 => format!("\"{n}\",日本\r\n"),
        _ => format!("{n},{}\n", "x".repeat(n)),
    };
    (0..60)
        .map(row)
        .fold("\u{feff}n,s\n".to_owned(), |all, row| all + &row)
}

#[test]
fn a_read_resumed_after_any_row_equals_an_undisturbed_one() {
    for (name, text) in [
        ("t.csv", tricky()),
        ("t.csv.gz", tricky()),
        ("t.csv", tricky().trim_end().to_owned()),
    ] {
        let lab = Lab::new(&[(name, text.as_bytes())]).with(serde_json::json!({"columns": {"n": "int32"}}));
        let mut undisturbed = lab.source("").read(all("t")).unwrap();
        let chunks = drain(&mut undisturbed, 1).unwrap();
        assert_eq!(chunks.len(), 60);
        let rows: Vec<&String> = chunks.iter().flat_map(|(rows, _)| rows).collect();
        for (at, (_, position)) in chunks.iter().enumerate() {
            let request = ReadRequest {
                resume_after: Some(position.clone()),
                ..all("t")
            };
            assert_eq!(
                lab.source("").count(&request, 1000).unwrap(),
                Some(59 - at as u64)
            );
            let rest = lab.rows(request).unwrap();
            assert!(
                rest.iter().eq(rows[at + 1..].iter().copied()),
                "{name} after row {at}"
            );
        }
    }
}

#[test]
fn errors_after_a_resumption_name_the_right_line() {
    let lab = Lab::new(&[("t.csv", b"n,s\n1,\"a\nb\"\n2,c\nx,d\n")])
        .with(serde_json::json!({"columns": {"n": "int64"}}));
    let mut reader = lab.source("").read(all("t")).unwrap();
    let first = reader
        .next(BatchLimit {
            rows: 1,
            bytes: 1 << 20,
        })
        .unwrap()
        .unwrap();
    let mut resumed = lab
        .source("")
        .read(ReadRequest {
            resume_after: first.position,
            ..all("t")
        })
        .unwrap();
    let error = drain(&mut resumed, 10).unwrap_err();
    assert!(error.message().contains("line 5, byte 16: column `n`"), "{error}");
}

#[test]
fn a_position_in_a_file_that_was_changed_is_a_conflict() {
    let before = "n\n1\n2\n3\n";
    for name in ["t.csv", "t.csv.gz"] {
        for after in ["n\n1\n2\n3\n4\n", "n\n1\n2\n", "m\n1\n2\n3\n", "n\n1\n22222"] {
            let lab = Lab::new(&[(name, before.as_bytes())]);
            let mut reader = lab.source("").read(all("t")).unwrap();
            let chunks = drain(&mut reader, 1).unwrap();
            lab.put(name, after.as_bytes());
            let request = ReadRequest {
                resume_after: Some(chunks[1].1.clone()),
                ..all("t")
            };
            assert_eq!(
                lab.rows(request).unwrap_err().kind(),
                ErrorKind::Conflict,
                "{name} {after:?}"
            );
        }
    }
    let lab = Lab::new(&[("t.csv", before.as_bytes())]);
    let request = ReadRequest {
        resume_after: Some(b"?".to_vec()),
        ..all("t")
    };
    assert_eq!(lab.rows(request).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn a_position_must_still_be_the_end_of_a_line() {
    // Beyond the bytes by which a file is recognised.
    let before = format!("n\n{}", "1234567\n".repeat(1000));
    for name in ["t.csv", "t.csv.gz"] {
        let lab = Lab::new(&[(name, before.as_bytes())]);
        let mut reader = lab.source("").read(all("t")).unwrap();
        let position = drain(&mut reader, 900).unwrap().swap_remove(0).1;
        let request = ReadRequest {
            resume_after: Some(position),
            ..all("t")
        };
        assert_eq!(lab.rows(request.clone()).unwrap().len(), 100);
        let mut after = before.clone().into_bytes();
        after[2 + 900 * 8 - 1] = b'8';
        // Not compressed: the change must show neither in the length nor in the time.
        if name == "t.csv" {
            let modified = lab.modified(name);
            lab.put(name, &after);
            lab.set_modified(name, modified);
            assert_eq!(lab.rows(request).unwrap_err().kind(), ErrorKind::Conflict);
        }
    }
}

#[test]
fn a_file_that_was_written_since_is_not_gone_on_with_whatever_its_length() {
    let before = format!("n\n{}", "1234567\n".repeat(1000));
    let lab = Lab::new(&[("t.csv", before.as_bytes())]);
    let mut reader = lab.source("").read(all("t")).unwrap();
    let request = ReadRequest {
        resume_after: Some(drain(&mut reader, 900).unwrap().swap_remove(0).1),
        ..all("t")
    };
    let later = lab.modified("t.csv") + std::time::Duration::from_secs(1);
    let mut after = before.into_bytes();
    after[2 + 950 * 8] = b'8';
    lab.put("t.csv", &after);
    lab.set_modified("t.csv", later);
    assert_eq!(lab.rows(request).unwrap_err().kind(), ErrorKind::Conflict);
}

#[test]
fn a_window_ends_with_the_rows_that_are_read() {
    let lab = Lab::new(&[("t.csv", b"n\n1\n2\n")]).with(serde_json::json!({"columns": {"n": "int64"}}));
    let mut source = lab.source("");
    let (file, described) = source.find(&StreamName::bare("t")).unwrap();
    let (_, identity) = open_at(&file, &described, None).unwrap();
    lab.put("t.csv", b"n\n1\n2\n3\n");
    let (input, _) = Input::open_up_to(&file, identity.length()).unwrap();
    let mut records = from_start(input, &file, &described).unwrap();
    let survey = survey(&mut records, &file, &described, None, 10).unwrap();
    assert_eq!(survey.rows, 2);
}

#[test]
fn a_file_that_was_replaced_by_one_of_other_columns_is_not_taken_for_the_first() {
    let lab = Lab::new(&[("t.csv", b"a,b\n1,2\n")]);
    let mut source = lab.source("");
    source.discover().unwrap();
    lab.put("t.csv", b"b,a\n2,1\n");
    let error = source.read(all("t")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(lab.rows(all("t")).unwrap(), ["2|1"]);
}

#[test]
fn empty_lines_before_the_header_are_skipped() {
    for text in ["\n\r\na,b\n1,2\n", "\u{feff}\na,b\n\n1,2"] {
        let lab = Lab::new(&[("t.csv", text.as_bytes())]);
        assert_eq!(lab.rows(all("t")).unwrap(), ["1|2"], "{text:?}");
        assert_eq!(lab.source("").discover().unwrap()[0].schema.fields[1].name, "b");
    }
    let lab = Lab::new(&[("t.csv", b"\n1,2\n")]).with(serde_json::json!({"header": false}));
    assert_eq!(lab.rows(all("t")).unwrap(), ["1|2"]);
    let lab = Lab::new(&[("t.csv", b"\n1\n")]).with(serde_json::json!({"header": false}));
    assert_eq!(lab.rows(all("t")).unwrap(), ["NULL", "1"]);
}

#[test]
fn what_is_appended_during_a_read_is_not_read() {
    let lab = Lab::new(&[("t.csv", b"n\n1\n2\n")]);
    let mut reader = lab.source("").read(all("t")).unwrap();
    let mut file = std::fs::File::options()
        .append(true)
        .open(lab.folder.path().join("t.csv"))
        .unwrap();
    file.write_all(b"3\n").unwrap();
    assert_eq!(drain(&mut reader, 10).unwrap()[0].0, ["1", "2"]);
}

#[test]
fn damaged_gzip_data_is_an_error_and_not_an_end() {
    let lab = Lab::new(&[]);
    let whole = gzip(tricky().as_bytes());
    let cut = &whole[..whole.len() - 12];
    std::fs::write(lab.folder.path().join("t.csv.gz"), cut).unwrap();
    assert_eq!(lab.rows(all("t")).unwrap_err().kind(), ErrorKind::Data);
}

#[test]
fn counting_stops_at_the_limit_and_knows_windows() {
    let lab = Lab::new(&[("t.csv", b"n,s\n1,\"a\n\"\n2,b\n\n3,c\n")])
        .with(serde_json::json!({"columns": {"n": "int64"}}));
    let count = |request, limit| lab.source("").count(&request, limit).unwrap();
    assert_eq!(count(all("t"), 100), Some(3));
    assert_eq!(count(all("t"), 2), Some(2));
    let window = CursorWindow {
        field: "n".into(),
        since: Some("1".into()),
        since_inclusive: false,
    };
    assert_eq!(
        count(
            ReadRequest {
                cursor: Some(window),
                ..all("t")
            },
            100
        ),
        Some(2)
    );
}

#[test]
fn a_window_holds_the_rows_after_the_last_and_knows_its_end() {
    let lab = Lab::new(&[(
        "t.csv",
        b"at,s\n2024-01-03 00:00:00,c\n2024-01-01 00:00:00,a\n,n\n2024-01-02 00:00:00,b\n",
    )])
    .with(serde_json::json!({"columns": {"at": "timestamp"}}));
    let read = |since: Option<&str>, since_inclusive: bool| {
        let cursor = CursorWindow {
            field: "at".into(),
            since: since.map(str::to_owned),
            since_inclusive,
        };
        let request = ReadRequest {
            cursor: Some(cursor),
            columns: Some(vec!["s".into()]),
            ..all("t")
        };
        let mark = lab.source("").read(request.clone()).unwrap().high_water_mark();
        (lab.rows(request).unwrap().concat(), mark)
    };
    let last = Some("2024-01-03T00:00:00.000000".to_owned());
    assert_eq!(read(None, false), ("canb".into(), last.clone()));
    assert_eq!(
        read(Some("2024-01-02T00:00:00.000000"), false),
        ("c".into(), last.clone())
    );
    assert_eq!(
        read(Some("2024-01-02T00:00:00.000000"), true),
        ("cb".into(), last)
    );
    assert_eq!(
        read(Some("2024-01-04T00:00:00.000000"), true),
        (String::new(), None)
    );
}

#[test]
fn a_resumed_window_has_the_same_end() {
    let lab = Lab::new(&[("t.csv", b"n\n9\n1\n2\n")]).with(serde_json::json!({"columns": {"n": "int64"}}));
    let cursor = CursorWindow {
        field: "n".into(),
        since: Some("0".into()),
        since_inclusive: false,
    };
    let request = ReadRequest {
        cursor: Some(cursor),
        ..all("t")
    };
    let mut reader = lab.source("").read(request.clone()).unwrap();
    let first = reader
        .next(BatchLimit {
            rows: 1,
            bytes: 1 << 20,
        })
        .unwrap()
        .unwrap();
    let resumed = lab
        .source("")
        .read(ReadRequest {
            resume_after: first.position,
            ..request
        })
        .unwrap();
    assert_eq!(resumed.high_water_mark().as_deref(), Some("9"));
}

#[test]
fn a_cursor_needs_a_type_with_an_order() {
    let lab = Lab::new(&[("t.csv", b"n\n9\n10\n")]);
    let cursor = CursorWindow {
        field: "n".into(),
        since: None,
        since_inclusive: false,
    };
    let error = lab
        .rows(ReadRequest {
            cursor: Some(cursor),
            ..all("t")
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.message().contains("declare its type"), "{error}");
    assert_eq!(
        lab.source("").discover().unwrap()[0].schema.fields[0].data_type,
        DataType::Text
    );
}
