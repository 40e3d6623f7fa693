//! The codec as a whole: what is written reads back, and what is read is refused with its place.

use std::io::Read;
use std::sync::Arc;

use arrow_array::*;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::record::{DataType, Field, Schema};
use crate::staging::{PART_BYTES, PART_ROWS};

fn field(name: &str, data_type: DataType, nullable: bool) -> Field {
    Field {
        name: name.into(),
        data_type,
        nullable,
        native_type: None,
    }
}

fn schema(fields: Vec<Field>) -> Schema {
    Schema {
        fields,
        primary_key: Vec::new(),
    }
}

/// A value that is often null, often an extreme, and otherwise anything.
fn cell<T: Clone + std::fmt::Debug + 'static>(
    extremes: Vec<T>,
    any: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    prop_oneof![
        1 => Just(None),
        2 => proptest::sample::select(extremes).prop_map(Some),
        4 => any.prop_map(Some),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a\"\\\\\u{0}-\u{1f}\u{7f}\u{2028}é日🦀]{0,20}"]
}

const EXTREMES: [i64; 5] = [i64::MIN, i64::MIN + 1, 0, i64::MAX - 1, i64::MAX];

pub(in crate::staging) type Row = (
    (
        Option<bool>,
        Option<i16>,
        Option<i32>,
        Option<i64>,
        Option<u32>,
        Option<u64>,
    ),
    (
        Option<i128>,
        Option<String>,
        Option<String>,
        Option<Vec<u8>>,
        Option<[u8; 16]>,
    ),
    (Option<i32>, Option<i64>, Option<i64>, Option<i64>),
);

fn row() -> impl Strategy<Value = Row> {
    let decimal_limit = 10_i128.pow(30) - 1;
    let numbers = (
        cell(vec![true, false], any::<bool>()),
        cell(vec![i16::MIN, i16::MAX], any::<i16>()),
        cell(vec![i32::MIN, i32::MAX], any::<i32>()),
        cell(EXTREMES.to_vec(), any::<i64>()),
        // Floats by their bits, so that they compare by them.
        cell(
            [f32::NAN, -0.0, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY]
                .map(f32::to_bits)
                .to_vec(),
            any::<u32>(),
        ),
        cell(
            [f64::NAN, -0.0, 5e-324, f64::MAX, f64::INFINITY, f64::NEG_INFINITY]
                .map(f64::to_bits)
                .to_vec(),
            any::<u64>(),
        ),
    );
    let texts = (
        cell(
            vec![-decimal_limit, 0, decimal_limit],
            -decimal_limit..=decimal_limit,
        ),
        cell(
            ["NaN", "Infinity", "-Infinity", "-0.000"]
                .map(String::from)
                .to_vec(),
            "-?[0-9]{1,200}(\\.[0-9]{1,200})?",
        ),
        cell(
            vec![String::new(), "null".into(), "{\"a\": [1,  2]}".into()],
            text(),
        ),
        cell(vec![vec![], vec![0, 255]], vec(any::<u8>(), 0..40)),
        cell(vec![[0; 16], [255; 16]], any::<[u8; 16]>()),
    );
    let times = (
        cell(vec![i32::MIN, i32::MIN + 1, i32::MAX - 1, i32::MAX], any::<i32>()),
        cell(vec![0, 86_400_000_000], 0..=86_400_000_000_i64),
        cell(EXTREMES.to_vec(), any::<i64>()),
        cell(EXTREMES.to_vec(), any::<i64>()),
    );
    (numbers, texts, times)
}

/// A table with a column of every type, `json` and `text` from the same values.
pub(in crate::staging) fn table(rows: &[Row]) -> (Schema, RecordBatch) {
    fn column<T, A: FromIterator<T> + Array + 'static>(rows: &[Row], value: impl Fn(&Row) -> T) -> ArrayRef {
        Arc::new(rows.iter().map(value).collect::<A>())
    }
    let uuids = rows.iter().map(|r| r.1.4.map(|uuid| uuid.to_vec()));
    let decimals: Decimal128Array = rows.iter().map(|r| r.1.0).collect();
    let zoned: TimestampMicrosecondArray = rows.iter().map(|r| r.2.3).collect();
    let decimal = DataType::Decimal {
        precision: 30,
        scale: 7,
    };
    let columns: Vec<(DataType, ArrayRef)> = vec![
        (DataType::Boolean, column::<_, BooleanArray>(rows, |r| r.0.0)),
        (DataType::Int16, column::<_, Int16Array>(rows, |r| r.0.1)),
        (DataType::Int32, column::<_, Int32Array>(rows, |r| r.0.2)),
        (DataType::Int64, column::<_, Int64Array>(rows, |r| r.0.3)),
        (
            DataType::Float32,
            column::<_, Float32Array>(rows, |r| r.0.4.map(f32::from_bits)),
        ),
        (
            DataType::Float64,
            column::<_, Float64Array>(rows, |r| r.0.5.map(f64::from_bits)),
        ),
        (
            decimal,
            Arc::new(decimals.with_precision_and_scale(30, 7).unwrap()),
        ),
        (
            DataType::Numeric,
            column::<_, StringArray>(rows, |r| r.1.1.clone()),
        ),
        (DataType::Text, column::<_, StringArray>(rows, |r| r.1.2.clone())),
        (DataType::Json, column::<_, StringArray>(rows, |r| r.1.2.clone())),
        (
            DataType::Bytes,
            Arc::new(rows.iter().map(|r| r.1.3.clone()).collect::<BinaryArray>()),
        ),
        (
            DataType::Uuid,
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(uuids, 16).unwrap()),
        ),
        (DataType::Date, column::<_, Date32Array>(rows, |r| r.2.0)),
        (
            DataType::Time,
            column::<_, Time64MicrosecondArray>(rows, |r| r.2.1),
        ),
        (
            DataType::Timestamp,
            column::<_, TimestampMicrosecondArray>(rows, |r| r.2.2),
        ),
        (DataType::TimestampTz, Arc::new(zoned.with_timezone("UTC"))),
    ];
    let schema = schema(
        columns
            .iter()
            .map(|(t, _)| field(&t.to_string(), *t, true))
            .collect(),
    );
    let arrays = columns.into_iter().map(|(_, array)| array).collect();
    let batch = RecordBatch::try_new(schema.to_arrow(), arrays).unwrap();
    (schema, batch)
}

/// A float column's bits, with every NaN made the same: a NaN's payload does not travel.
fn bits(batch: &RecordBatch) -> Vec<(Option<u32>, Option<u64>)> {
    let single = batch.column(4).as_any().downcast_ref::<Float32Array>().unwrap();
    let double = batch.column(5).as_any().downcast_ref::<Float64Array>().unwrap();
    let one = |v: f32| {
        if v.is_nan() {
            f32::NAN.to_bits()
        } else {
            v.to_bits()
        }
    };
    let two = |v: f64| {
        if v.is_nan() {
            f64::NAN.to_bits()
        } else {
            v.to_bits()
        }
    };
    single
        .iter()
        .zip(double.iter())
        .map(|(a, b)| (a.map(one), b.map(two)))
        .collect()
}

fn encoded(schema: &Schema, batch: &RecordBatch) -> Vec<u8> {
    let mut lines = Vec::new();
    encode(schema, batch, &mut lines).unwrap();
    lines
}

proptest! {
    #[test]
    fn every_value_of_every_type_reads_back(rows in vec(row(), 0..12)) {
        let (schema, batch) = table(&rows);
        let lines = encoded(&schema, &batch);
        let read = decode(&schema, &lines[..], rows.len() as u64).unwrap();
        prop_assert_eq!(read.schema(), batch.schema());
        for (index, (ours, theirs)) in read.columns().iter().zip(batch.columns()).enumerate() {
            if matches!(index, 4 | 5) {
                prop_assert_eq!(ours.nulls(), theirs.nulls());
            } else {
                prop_assert_eq!(ours, theirs, "{}", schema.fields[index].name);
            }
        }
        prop_assert_eq!(bits(&read), bits(&batch));
        // A slice of the batch writes the same lines.
        if !rows.is_empty() {
            let tail = encoded(&schema, &batch.slice(1, rows.len() - 1));
            prop_assert!(lines.ends_with(&tail));
            prop_assert_eq!(lines.iter().filter(|b| **b == b'\n').count(), rows.len());
        }
    }

    /// The lines are JSON to another reader, and its own spelling of them reads back equal here.
    #[test]
    fn another_programs_spelling_reads_back(rows in vec(row(), 1..6)) {
        let (schema, batch) = table(&rows);
        let lines = encoded(&schema, &batch);
        let mut respelled = String::new();
        for line in std::str::from_utf8(&lines).unwrap().lines() {
            let values: Vec<serde_json::Value> = serde_json::from_str(line).unwrap();
            let ascii = |value: &serde_json::Value| {
                let escape = |c: char| c.encode_utf16(&mut [0; 2]).iter().map(|u| format!("\\u{u:04X}")).collect();
                let text = value.to_string();
                text.chars().map(|c| if c.is_ascii() { c.to_string() } else { escape(c) }).collect::<String>()
            };
            respelled += &format!(" [ {}\t]\r\n", values.iter().map(ascii).collect::<Vec<_>>().join(" ,\n".trim()));
        }
        let read = decode(&schema, respelled.as_bytes(), 0).unwrap();
        prop_assert_eq!(encoded(&schema, &read), lines);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in vec(any::<u8>(), 0..200)) {
        let (schema, _) = table(&[]);
        let _ = decode(&schema, &bytes[..], u64::MAX);
        let _ = decode(&self::schema(Vec::new()), &bytes[..], 0);
    }

    /// Mutations of right lines get further into the decoder than noise does.
    #[test]
    fn no_damage_makes_the_decoder_panic(rows in vec(row(), 1..3), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<bool>()) {
        let (schema, batch) = table(&rows);
        let mut lines = encoded(&schema, &batch);
        let at = at.index(lines.len());
        lines[at] = byte;
        if cut {
            lines.truncate(at);
        }
        let _ = decode(&schema, &lines[..], 1);
    }
}

#[test]
fn rows_without_columns_keep_their_count() {
    let schema = schema(Vec::new());
    let options = RecordBatchOptions::new().with_row_count(Some(3));
    let batch = RecordBatch::try_new_with_options(schema.to_arrow(), Vec::new(), &options).unwrap();
    let lines = encoded(&schema, &batch);
    assert_eq!(lines, b"[]\n[]\n[]\n");
    assert_eq!(decode(&schema, &lines[..], 3).unwrap(), batch);
}

#[test]
fn the_last_line_may_lack_its_newline() {
    let schema = schema(vec![field("n", DataType::Int32, false)]);
    for (lines, rows) in [
        ("", 0),
        ("[1]", 1),
        ("[1]\n", 1),
        ("[1]\n[2]", 2),
        ("[1]\r\n[2]\r\n", 2),
    ] {
        assert_eq!(
            decode(&schema, lines.as_bytes(), 1).unwrap().num_rows(),
            rows,
            "{lines:?}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_said_with_line_and_column() {
    let schema = schema(vec![
        field("id", DataType::Int16, false),
        field("größe", DataType::Date, true),
    ]);
    for (line, expected) in [
        ("[1]", "line 2, the row has 1 values instead of 2"),
        ("[]", "line 2, column `id`: the row has 0 values instead of 2"),
        ("[1,null,3]", "line 2, the row has more than 2 values"),
        ("[1,null] x", "line 2, something follows the row's array"),
        ("[1,null", "line 2, the line ends within the row"),
        ("[1;null]", "line 2, this is not JSON after 1 values"),
        (
            "[1,]",
            "line 2, column `größe`: the row has 1 values instead of 2",
        ),
        ("{}", "line 2, a row must be a JSON array"),
        ("", "line 2, a row must be a JSON array"),
        (
            "[null,null]",
            "line 2, column `id`: null in a column that is not nullable",
        ),
        (
            "[40000,null]",
            "line 2, column `id`: a number, `40000`, is not a value of the type int16",
        ),
        (
            "[\"1\",null]",
            "line 2, column `id`: a string, `1`, is not a value of the type int16",
        ),
        (
            "[true,null]",
            "line 2, column `id`: a boolean is not a value of the type int16",
        ),
        (
            "[1,\"2024-13-01\"]",
            "line 2, column `größe`: a string, `2024-13-01`, is not a value of the type date",
        ),
        (
            "[1,[]]",
            "line 2, column `größe`: a value must not be an array or an object",
        ),
        (
            "[1,\"\\x\"]",
            "line 2, column `größe`: a string has an escape that JSON does not know",
        ),
    ] {
        let lines = format!("[1,null]\n{line}\n[1,null]\n");
        let error = decode(&schema, lines.as_bytes(), 3).unwrap_err();
        assert_eq!(error.to_string(), expected, "{line}");
    }
    let error = decode(&schema, &b"[1,\"\xff\"]"[..], 1).unwrap_err();
    assert_eq!(error.to_string(), "line 1, the line is not UTF-8");
    let long = format!("[\"{}\",null]", "x".repeat(100));
    let error = decode(&schema, long.as_bytes(), 1).unwrap_err().to_string();
    assert!(error.contains(&format!("`{}…`", "x".repeat(40))), "{error}");
}

#[test]
fn what_cannot_be_written_is_said_with_the_column() {
    fn refused(data_type: DataType, nullable: bool, array: impl Array + 'static) -> String {
        let schema = schema(vec![field("c", data_type, nullable)]);
        let arrow = arrow_schema::Schema::new(vec![arrow_schema::Field::new(
            "c",
            array.data_type().clone(),
            true,
        )]);
        let batch = RecordBatch::try_new(Arc::new(arrow), vec![Arc::new(array)]).unwrap();
        encode(&schema, &batch, &mut Vec::new()).unwrap_err().to_string()
    }
    let decimal = DataType::Decimal {
        precision: 3,
        scale: 1,
    };
    let decimals = Decimal128Array::from(vec![999, 1000])
        .with_precision_and_scale(3, 1)
        .unwrap();
    let cases = [
        (
            refused(DataType::Int16, true, Int32Array::from(vec![1])),
            "column `c`: the batch holds Int32, but the schema says int16",
        ),
        (
            refused(DataType::Int16, false, Int16Array::from(vec![None])),
            "column `c`: a column that is not nullable holds a null",
        ),
        (
            refused(DataType::Numeric, true, StringArray::from(vec!["1", "x"])),
            "line 2, column `c`: a value is not decimal text",
        ),
        (
            refused(DataType::Time, true, Time64MicrosecondArray::from(vec![-1])),
            "line 1, column `c`: a time is not between",
        ),
        (
            refused(
                DataType::Time,
                true,
                Time64MicrosecondArray::from(vec![86_400_000_001]),
            ),
            "line 1, column `c`: a time is not between",
        ),
        (
            refused(decimal, true, decimals),
            "line 2, column `c`: a decimal has more digits than its precision",
        ),
        (
            refused(
                DataType::Timestamp,
                true,
                TimestampMicrosecondArray::from(vec![1]).with_timezone("UTC"),
            ),
            "but the schema says timestamp",
        ),
    ];
    for (error, expected) in cases {
        assert!(error.contains(expected), "{error}");
    }
    let two = schema(vec![
        field("a", DataType::Int32, true),
        field("b", DataType::Int32, true),
    ]);
    let one = RecordBatch::try_from_iter([("a", Arc::new(Int32Array::from(vec![1])) as ArrayRef)]).unwrap();
    let error = encode(&two, &one, &mut Vec::new()).unwrap_err().to_string();
    assert_eq!(error, "the batch has 1 columns, its schema 2");
}

/// Lines from a pattern, without the memory that they would take.
fn repeated(line: &'static [u8], times: u64) -> impl Read {
    (0..times).fold(Box::new(std::io::empty()) as Box<dyn Read>, |before, _| {
        Box::new(before.chain(line))
    })
}

#[test]
fn a_part_that_would_take_too_much_memory_is_refused() {
    let none = schema(Vec::new());
    assert_eq!(decode(&none, repeated(b"[]\n", 100), 0).unwrap().num_rows(), 100);
    let many = b"[]\n".repeat(PART_ROWS as usize + 1);
    let error = decode(&none, &many[..], 0).unwrap_err().to_string();
    assert_eq!(error, "line 50001, a part must not have more than 50000 rows");

    let text = schema(vec![field("t", DataType::Text, true)]);
    let spaces = std::io::repeat(b' ').take(PART_BYTES);
    let alone = spaces.chain(&b"[null]\n"[..]);
    assert_eq!(
        decode(&text, alone, 1).unwrap().num_rows(),
        1,
        "one wide row alone"
    );
    for several in [
        Box::new(
            std::io::repeat(b' ')
                .take(PART_BYTES)
                .chain(&b"[null]\n[null]"[..]),
        ) as Box<dyn Read>,
        Box::new(
            (&b"[null]\n"[..])
                .chain(std::io::repeat(b' ').take(PART_BYTES))
                .chain(&b"[null]"[..]),
        ),
    ] {
        let error = decode(&text, several, 2).unwrap_err().to_string();
        assert!(
            error.contains("line 2") && error.contains("67108864 bytes"),
            "{error}"
        );
    }
    let error = decode(&text, std::io::repeat(b' '), 1).unwrap_err().to_string();
    assert_eq!(error, "line 1, a row is larger than 1073741824 bytes");
}

#[test]
fn an_error_of_the_reader_is_not_an_end() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("corrupt stream"))
        }
    }
    let schema = schema(vec![field("n", DataType::Int32, true)]);
    let error = decode(&schema, (&b"[1]\n[2"[..]).chain(Broken), 2).unwrap_err();
    assert_eq!(error.to_string(), "line 2, corrupt stream");
}
