use proptest::prelude::*;
use setu_sdk::{
    BatchBuilder, BatchLimit, DataType, ErrorKind, Field, ReadRequest, Reader, Source, StreamInfo,
    StreamName, text,
};

use super::*;
use crate::CsvSource;

/// A folder that is written to and read from.
struct Lab {
    folder: tempfile::TempDir,
    schema: Schema,
    /// Beyond the path, for both sides.
    config: serde_json::Value,
}

impl Lab {
    fn new(schema: Schema) -> Self {
        Lab {
            folder: tempfile::tempdir().unwrap(),
            schema,
            config: serde_json::json!({}),
        }
    }

    fn numbers() -> Self {
        Self::new(Schema::new([
            Field::new("n", DataType::Int64),
            Field::new("s", DataType::Text),
        ]))
    }

    fn config(&self, more: serde_json::Value) -> serde_json::Value {
        let mut config = self.config.clone();
        config["path"] = self.folder.path().to_str().unwrap().into();
        config
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        config
    }

    fn begin(&self, load_id: &str, attempt: u64, mode: WriteMode) -> Result<CsvWriter> {
        let config = serde_json::from_value(self.config(serde_json::json!({}))).unwrap();
        let name = StreamName::bare("t");
        CsvDestination::open(config)?.begin(LoadRequest {
            load_id: load_id.into(),
            attempt,
            target: StreamInfo::new(name, "table", self.schema.clone()),
            mode,
        })
    }

    fn write(&self, writer: &mut CsvWriter, rows: std::ops::Range<i64>) {
        let mut builder = BatchBuilder::new(&self.schema);
        for n in rows {
            builder.column(0).push_i64(n);
            builder.column(1).push_str("x");
        }
        writer.write(builder.finish()).unwrap();
    }

    fn target(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("t.csv")).unwrap()
    }

    /// The hidden and the visible files.
    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    fn put(&self, text: &str) {
        std::fs::write(self.folder.path().join("t.csv"), text).unwrap();
    }
}

fn lines(rows: std::ops::Range<i64>) -> String {
    let rows: String = rows.map(|n| format!("{n},x\n")).collect();
    format!("n,s\n{rows}")
}

const FINISHED_FILES: [&str; 2] = [".t.csv.setu-load.json", "t.csv"];

#[test]
fn a_load_appears_whole_at_finish_and_leaves_no_unfinished_file() {
    for mode in [WriteMode::Append, WriteMode::Overwrite] {
        let lab = Lab::numbers();
        let mut writer = lab.begin("l", 1, mode).unwrap();
        lab.write(&mut writer, 0..3);
        writer.commit(1).unwrap();
        assert!(!lab.folder.path().join("t.csv").exists());
        assert_eq!(writer.finish().unwrap().rows_written, 3);
        assert_eq!(lab.target(), lines(0..3));
        assert_eq!(lab.files(), FINISHED_FILES);
    }
}

#[test]
fn an_overwrite_leaves_the_old_file_until_finish() {
    let lab = Lab::numbers();
    lab.put("old\n");
    let mut writer = lab.begin("l", 1, WriteMode::Overwrite).unwrap();
    lab.write(&mut writer, 0..3);
    writer.commit(1).unwrap();
    assert_eq!(lab.target(), "old\n");
    writer.finish().unwrap();
    assert_eq!(lab.target(), lines(0..3));
}

#[test]
fn an_append_keeps_what_is_there_even_without_a_last_line_break() {
    let cases = [
        ("n,s\n7,y\n", "n,s\n7,y\n0,x\n"),
        ("n,s\n7,y", "n,s\n7,y\n0,x\n"),
        ("n,s", "n,s\n0,x\n"),
        ("", "n,s\n0,x\n"),
        ("\u{feff}", "\u{feff}n,s\n0,x\n"),
    ];
    for (before, after) in cases {
        let lab = Lab::numbers();
        lab.put(before);
        let mut writer = lab.begin("l", 1, WriteMode::Append).unwrap();
        lab.write(&mut writer, 0..1);
        writer.commit(1).unwrap();
        assert_eq!(writer.finish().unwrap().rows_written, 1);
        assert_eq!(lab.target(), after, "{before:?}");
    }
}

#[test]
fn an_append_to_other_columns_is_refused_with_both_named() {
    let lab = Lab::numbers();
    lab.put("n,t\n1,2\n");
    let error = lab.begin("l", 1, WriteMode::Append).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(
        error.message().contains("the columns n, t, the stream has n, s"),
        "{error}"
    );
    assert_eq!(lab.target(), "n,t\n1,2\n");
}

#[test]
fn an_append_does_not_undo_what_others_did_meanwhile() {
    // The second is as long as before.
    for theirs in ["n,s\n7,y\n8,z\n", "n,s\n7,z\n"] {
        let lab = Lab::numbers();
        lab.put("n,s\n7,y\n");
        let mut writer = lab.begin("l", 1, WriteMode::Append).unwrap();
        lab.write(&mut writer, 0..1);
        writer.commit(1).unwrap();
        lab.put(theirs);
        let file = File::options()
            .append(true)
            .open(lab.folder.path().join("t.csv"))
            .unwrap();
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
        file.set_modified(later).unwrap();
        assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(lab.target(), theirs);
    }
}

/// On a file system that does not tell `T.csv` from `t.csv`, the one's record is found under the other's name.
#[test]
fn a_stream_does_not_take_the_file_of_another() {
    let lab = Lab::numbers();
    let mut writer = lab.begin("l", 1, WriteMode::Overwrite).unwrap();
    lab.write(&mut writer, 0..1);
    writer.commit(1).unwrap();
    let record = lab.folder.path().join(".t.csv.setu-load.json");
    let theirs = std::fs::read_to_string(&record)
        .unwrap()
        .replace("\"stream\":\"t\"", "\"stream\":\"T\"");
    std::fs::write(&record, theirs).unwrap();
    for error in [
        lab.begin("m", 1, WriteMode::Append).unwrap_err(),
        writer.finish().unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(
            error.message().contains("stream `T` is written to that file"),
            "{error}"
        );
    }
    assert!(!lab.folder.path().join("t.csv").exists());
}

#[test]
fn a_path_that_is_a_file_is_called_that() {
    let lab = Lab::numbers();
    lab.put("n,s\n");
    let path = lab.folder.path().join("t.csv");
    let config = serde_json::json!({"path": path.to_str().unwrap()});
    let mut destination = CsvDestination::open(serde_json::from_value(config).unwrap()).unwrap();
    let load = LoadRequest {
        load_id: "l".into(),
        attempt: 1,
        target: StreamInfo::new(StreamName::bare("t"), "table", lab.schema.clone()),
        mode: WriteMode::Overwrite,
    };
    for error in [
        destination.check().unwrap_err(),
        destination.begin(load).unwrap_err(),
    ] {
        let expected = format!("{} is a file; `path` must be a folder", path.display());
        assert_eq!(error, Error::config(expected));
    }
}

/// Where a process can die, and what is committed then.
#[test]
fn a_load_that_died_goes_on_where_it_had_committed() {
    for mode in [WriteMode::Append, WriteMode::Overwrite] {
        for next_attempt in [1, 2, 7] {
            // Dies after this many commits, with rows written since.
            for commits in 0..4_i64 {
                let lab = Lab::numbers();
                lab.put(&lines(100..102));
                let mut writer = lab.begin("l", 1, mode).unwrap();
                for mark in 0..commits {
                    lab.write(&mut writer, mark * 10..mark * 10 + 10);
                    writer.commit(mark as u64 + 1).unwrap();
                }
                lab.write(&mut writer, 900..905);
                writer.flush().unwrap();
                drop(writer);

                let mut writer = lab.begin("l", next_attempt, mode).unwrap();
                assert_eq!(writer.committed(), commits as u64);
                for mark in commits..4 {
                    lab.write(&mut writer, mark * 10..mark * 10 + 10);
                    writer.commit(mark as u64 + 1).unwrap();
                }
                assert_eq!(writer.finish().unwrap().rows_written, 40);
                let new = lines(0..40);
                let expected = match mode {
                    WriteMode::Append => lines(100..102) + new.strip_prefix("n,s\n").unwrap(),
                    _ => new,
                };
                assert_eq!(
                    lab.target(),
                    expected,
                    "{mode:?}, attempt {next_attempt}, {commits} commits"
                );
                assert_eq!(lab.files(), FINISHED_FILES);
            }
        }
    }
}

#[test]
fn finish_may_be_called_again_at_any_time() {
    for mode in [WriteMode::Append, WriteMode::Overwrite] {
        let lab = Lab::numbers();
        let mut writer = lab.begin("l", 1, mode).unwrap();
        lab.write(&mut writer, 0..3);
        writer.commit(1).unwrap();
        writer.finish().unwrap();
        assert_eq!(writer.finish().unwrap().rows_written, 3);
        let mut later = lab.begin("l", 2, mode).unwrap();
        assert_eq!(later.committed(), 1);
        assert_eq!(later.finish().unwrap().rows_written, 3);
        assert_eq!(lab.target(), lines(0..3));
    }
}

/// Puts the record back to what it was just before or after the rename.
#[test]
fn a_finish_that_died_is_completed_by_the_next() {
    for mode in [WriteMode::Append, WriteMode::Overwrite] {
        for renamed in [false, true] {
            let lab = Lab::numbers();
            lab.put(&lines(100..101));
            let mut writer = lab.begin("l", 1, mode).unwrap();
            lab.write(&mut writer, 0..3);
            writer.commit(1).unwrap();
            let publishing = Progress {
                stage: Stage::Publishing,
                ..writer.progress.clone()
            };
            writer.paths.store(&publishing).unwrap();
            if renamed {
                std::fs::rename(writer.paths.unfinished("l", 1), writer.paths.target()).unwrap();
            }
            drop(writer);

            let mut later = lab.begin("l", 2, mode).unwrap();
            assert_eq!(later.committed(), 1);
            assert_eq!(later.finish().unwrap().rows_written, 3);
            let expected = match mode {
                WriteMode::Append => "n,s\n100,x\n0,x\n1,x\n2,x\n".to_owned(),
                _ => lines(0..3),
            };
            assert_eq!(lab.target(), expected, "{mode:?}, renamed: {renamed}");
            assert_eq!(lab.files(), FINISHED_FILES);
        }
    }
}

#[test]
fn an_attempt_that_was_overtaken_stops_and_changes_nothing() {
    let lab = Lab::numbers();
    let mut old = lab.begin("l", 1, WriteMode::Overwrite).unwrap();
    lab.write(&mut old, 0..3);
    old.commit(1).unwrap();
    let mut new = lab.begin("l", 2, WriteMode::Overwrite).unwrap();
    lab.write(&mut new, 3..4);
    // The old one goes on for a while.
    lab.write(&mut old, 500..600);
    old.flush().unwrap();
    assert_eq!(old.commit(2).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(old.finish().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(
        lab.begin("l", 1, WriteMode::Overwrite).unwrap_err().kind(),
        ErrorKind::Conflict
    );
    new.commit(2).unwrap();
    new.finish().unwrap();
    assert_eq!(lab.target(), lines(0..4));
    assert_eq!(
        lab.begin("l", 1, WriteMode::Overwrite).unwrap_err().kind(),
        ErrorKind::Conflict
    );
}

#[test]
fn another_load_starts_over_and_removes_what_was_unfinished() {
    let lab = Lab::numbers();
    let mut old = lab.begin("a", 1, WriteMode::Overwrite).unwrap();
    lab.write(&mut old, 0..3);
    old.commit(1).unwrap();
    let mut new = lab.begin("b", 1, WriteMode::Overwrite).unwrap();
    assert_eq!(new.committed(), 0);
    assert_eq!(old.commit(2).unwrap_err().kind(), ErrorKind::Conflict);
    lab.write(&mut new, 5..6);
    new.commit(1).unwrap();
    new.finish().unwrap();
    assert_eq!(lab.target(), lines(5..6));
    assert_eq!(lab.files(), FINISHED_FILES);
}

#[test]
fn an_upsert_is_refused() {
    assert_eq!(
        Lab::numbers()
            .begin("l", 1, WriteMode::Upsert)
            .unwrap_err()
            .kind(),
        ErrorKind::Unsupported
    );
}

/// Writes rows of staged text, reads them back and returns them as staged text again.
fn round_trip(lab: &Lab, rows: &[Vec<Option<String>>]) -> Vec<Vec<Option<String>>> {
    let mut builder = BatchBuilder::new(&lab.schema);
    for row in rows {
        for (column, value) in builder.columns().iter_mut().zip(row) {
            match value {
                Some(value) => text::parse(value.as_bytes(), column).unwrap(),
                None => column.push_null(),
            }
        }
    }
    let mut writer = lab.begin("l", 1, WriteMode::Overwrite).unwrap();
    if !rows.is_empty() {
        writer.write(builder.finish()).unwrap();
    }
    writer.commit(1).unwrap();
    writer.finish().unwrap();

    let types: serde_json::Map<String, serde_json::Value> = lab
        .schema
        .fields
        .iter()
        .map(|f| (f.name.clone(), f.data_type.to_string().into()))
        .collect();
    let config = lab.config(serde_json::json!({ "columns": types }));
    let mut source = CsvSource::open(serde_json::from_value(config).unwrap()).unwrap();
    let request = ReadRequest {
        name: StreamName::bare("t"),
        columns: None,
        cursor: None,
        range: None,
        resume_after: None,
    };
    let mut reader = source.read(request).unwrap();
    assert_eq!(reader.schema().fields, lab.schema.fields);
    let mut found = Vec::new();
    while let Some(chunk) = reader
        .next(BatchLimit {
            rows: 7,
            bytes: 1 << 20,
        })
        .unwrap()
    {
        let columns = chunk.batch.views();
        for row in 0..chunk.batch.rows as usize {
            let value = |(column, field): (&setu_sdk::ColumnView<'_>, &Field)| {
                (!column.is_null(row)).then(|| {
                    let mut out = Vec::new();
                    text::write(&mut out, field.data_type, *column, row);
                    String::from_utf8(out).unwrap()
                })
            };
            found.push(columns.iter().zip(&lab.schema.fields).map(value).collect());
        }
    }
    found
}

#[test]
fn every_type_reads_back_equal() {
    let values: &[(DataType, &[&str])] = &[
        (DataType::Boolean, &["true", "false"]),
        (DataType::Int16, &["-32768", "32767"]),
        (DataType::Int32, &["-2147483648", "0"]),
        (DataType::Int64, &["9223372036854775807", "-1"]),
        (DataType::Float32, &["0.1", "-0.0"]),
        (DataType::Float64, &["NaN", "-Infinity"]),
        (DataType::decimal(10, 3), &["-0.001", "1234567.890"]),
        (DataType::Numeric, &["123456789012345678901234567890.5000", "NaN"]),
        (DataType::Text, &["", "a,\"b\"\r\n"]),
        (DataType::Bytes, &["", "3q2+7w=="]),
        (
            DataType::Uuid,
            &[
                "00112233-4455-6677-8899-aabbccddeeff",
                "ffffffff-ffff-ffff-ffff-ffffffffffff",
            ],
        ),
        (DataType::Json, &["{\"a\": \"b,c\"}", "null"]),
        (DataType::Date, &["-infinity", "+10000-01-01"]),
        (DataType::Time, &["24:00:00.000000", "00:00:00.000001"]),
        (DataType::Timestamp, &["infinity", "-0044-03-15T12:00:00.000000"]),
        (
            DataType::TimestampTz,
            &["2024-02-29T23:59:59.999999Z", "-infinity"],
        ),
    ];
    let mut lab = Lab::new(Schema::new(
        values.iter().map(|(t, _)| Field::new(t.to_string(), *t)),
    ));
    let row = |at: usize| {
        values
            .iter()
            .map(|(_, v)| Some(v[at].to_owned()))
            .collect::<Vec<_>>()
    };
    let rows = vec![row(0), vec![None; values.len()], row(1)];
    for config in [
        serde_json::json!({}),
        serde_json::json!({"delimiter": "-", "quote": "0"}),
        // Null strings that are also values.
        serde_json::json!({"null": ["NaN", "true", "0", "infinity", "null"]}),
    ] {
        lab.config = config;
        assert_eq!(round_trip(&lab, &rows), rows, "{}", lab.config);
        lab.folder = tempfile::tempdir().unwrap();
    }
}

proptest! {
    // Each case syncs files to the disk several times.
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_reads_back_equal(
        width in 1..4_usize,
        cells in proptest::collection::vec(proptest::option::of("[ab,;\t\"'\r\n\\\\N\u{feff}é ]{0,6}"), 0..40),
        delimiter in proptest::sample::select(vec![",", ";", "\\t"]),
        quote in proptest::sample::select(vec!["\"", "'"]),
        null_text in proptest::sample::select(vec!["", "\\N", "a"]),
    ) {
        let mut lab = Lab::new(Schema::new((0..width).map(|n| Field::new(format!("c{n}"), DataType::Text))));
        lab.config = serde_json::json!({"delimiter": delimiter, "quote": quote, "null": [null_text]});
        let rows: Vec<_> = cells.chunks_exact(width).map(<[_]>::to_vec).collect();
        prop_assert_eq!(round_trip(&lab, &rows), rows);
    }

    #[test]
    fn text_without_a_header_reads_back_equal(
        cells in proptest::collection::vec(proptest::option::of("[ab,\"\r\n\u{feff}]{0,4}"), 1..20),
    ) {
        let mut lab = Lab::new(Schema::new([Field::new("column_1", DataType::Text)]));
        lab.config = serde_json::json!({"header": false});
        let rows: Vec<_> = cells.into_iter().map(|cell| vec![cell]).collect();
        prop_assert_eq!(round_trip(&lab, &rows), rows);
    }
}
