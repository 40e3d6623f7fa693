//! Both directions together: what breaks a rule is refused by name, what an honest side sends comes through as it
//! was, and nothing whatever makes the host panic.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, FixedSizeBinaryArray,
    Float32Array, Float64Array, Int16Array, Int32Array, Int64Array, RecordBatch, StringArray,
    Time64MicrosecondArray, TimestampMicrosecondArray,
};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::bindings::setu::connector::types::{BatchResult, ColumnResult, SpansResult, ValuesResult};
use super::fuzzing::round_trip;
use super::{lift, pieces};
use crate::record::{DataType, Field, Schema};

const DECIMAL: DataType = DataType::Decimal {
    precision: 5,
    scale: 2,
};

const TYPES: [DataType; 16] = [
    DataType::Boolean,
    DataType::Int16,
    DataType::Int32,
    DataType::Int64,
    DataType::Float32,
    DataType::Float64,
    DECIMAL,
    DataType::Numeric,
    DataType::Text,
    DataType::Bytes,
    DataType::Uuid,
    DataType::Json,
    DataType::Date,
    DataType::Time,
    DataType::Timestamp,
    DataType::TimestampTz,
];

fn schema(types: &[(DataType, bool)]) -> Schema {
    let field = |(index, &(data_type, nullable)): (usize, &(DataType, bool))| Field {
        name: format!("c{index}"),
        data_type,
        nullable,
        native_type: None,
    };
    Schema {
        fields: types.iter().enumerate().map(field).collect(),
        primary_key: vec![],
    }
}

fn lift_one(
    data_type: DataType,
    nullable: bool,
    rows: u32,
    column: ColumnResult,
) -> Result<RecordBatch, String> {
    let schema = schema(&[(data_type, nullable)]);
    let batch = BatchResult {
        rows,
        columns: vec![column],
    };
    lift(batch, &schema, &schema.to_arrow(), 100)
}

fn spans(offsets: &[i32], data: &[u8]) -> ValuesResult {
    ValuesResult::Spans(SpansResult {
        offsets: offsets.to_vec(),
        data: data.to_vec(),
    })
}

#[test]
fn each_broken_rule_is_refused_by_name() {
    use DataType::{Boolean, Bytes, Int32, Int64, Numeric, Text, Time, Uuid};
    let all = |values| ColumnResult {
        validity: None,
        values,
    };
    let some = |validity: u8, values| ColumnResult {
        validity: Some(vec![validity]),
        values,
    };
    let two = || ValuesResult::Int32(vec![1, 2]);
    let cases: Vec<(&str, DataType, u32, ColumnResult)> = vec![
        ("no rows", Int32, 0, all(ValuesResult::Int32(vec![]))),
        ("at most 100", Int32, 101, all(two())),
        (
            "1 values where the batch needs 2",
            Int32,
            2,
            all(ValuesResult::Int32(vec![1])),
        ),
        (
            "3 values where the batch needs 2",
            Int32,
            2,
            all(ValuesResult::Int32(vec![1; 3])),
        ),
        (
            "its type is int64, but its values are `int32`",
            Int64,
            2,
            all(two()),
        ),
        (
            "its type is text, but its values are `fixed16`",
            Text,
            1,
            all(ValuesResult::Fixed16(vec![0; 16])),
        ),
        ("row 1 is null", Int32, 2, some(0b01, two())),
        (
            "0 bytes of validity bits",
            Int32,
            2,
            ColumnResult {
                validity: Some(vec![]),
                values: two(),
            },
        ),
        (
            "0 bytes of value bits",
            Boolean,
            2,
            all(ValuesResult::Bits(vec![])),
        ),
        (
            "3 words where the batch needs 4",
            DECIMAL,
            2,
            all(ValuesResult::Int128(vec![0; 3])),
        ),
        (
            "row 1 holds a number of more than 5 digits",
            DECIMAL,
            2,
            all(ValuesResult::Int128(vec![0, 0, 100_000, 0])),
        ),
        (
            "row 0 holds a number of more than 5 digits",
            DECIMAL,
            1,
            all(ValuesResult::Int128(vec![0, 1 << 63])),
        ),
        (
            "17 bytes where the batch needs 32",
            Uuid,
            2,
            all(ValuesResult::Fixed16(vec![0; 17])),
        ),
        ("row 0 holds -1 µs", Time, 1, all(ValuesResult::Int64(vec![-1]))),
        (
            "row 0 holds 86400000001 µs",
            Time,
            1,
            all(ValuesResult::Int64(vec![86_400_000_001])),
        ),
        (
            "2 offsets where the batch needs 3",
            Text,
            2,
            all(spans(&[0, 1], b"ab")),
        ),
        (
            "0 offsets where the batch needs 3",
            Text,
            2,
            all(spans(&[], b"ab")),
        ),
        (
            "the offsets decrease after row 1",
            Text,
            2,
            all(spans(&[0, 2, 1], b"ab")),
        ),
        ("the first offset is -1", Bytes, 1, all(spans(&[-1, 1], b"ab"))),
        (
            "the last offset is 3, but there are 2 bytes",
            Bytes,
            1,
            all(spans(&[0, 3], b"ab")),
        ),
        (
            "row 1 is not UTF-8",
            Text,
            2,
            all(spans(&[0, 1, 3], b"a\xff\xff")),
        ),
        (
            "row 0 is not UTF-8",
            Text,
            2,
            all(spans(&[0, 1, 2], "ä".as_bytes())),
        ),
        (
            "row 1 is not a decimal number",
            Numeric,
            2,
            all(spans(&[0, 1, 3], b"11.")),
        ),
    ];
    for (expected, data_type, rows, column) in cases {
        let rule = lift_one(data_type, false, rows, column).unwrap_err();
        assert!(rule.contains(expected), "{rule} instead of {expected}");
    }
    let schema = schema(&[(Int32, true), (Int32, true)]);
    let batch = BatchResult {
        rows: 2,
        columns: vec![all(two())],
    };
    let rule = lift(batch, &schema, &schema.to_arrow(), 100).unwrap_err();
    assert_eq!(rule, "a batch of 1 columns where the schema has 2");
}

#[test]
fn what_lies_under_a_null_may_be_anything_well_formed() {
    let first_is_null = |values| ColumnResult {
        validity: Some(vec![0b10]),
        values,
    };
    for (data_type, values) in [
        (DECIMAL, ValuesResult::Int128(vec![u64::MAX, 1, 7, 0])),
        (DataType::Time, ValuesResult::Int64(vec![-5, 5])),
        (DataType::Numeric, spans(&[0, 1, 2], b"x1")),
    ] {
        let batch = lift_one(data_type, true, 2, first_is_null(values)).unwrap();
        assert_eq!(batch.column(0).null_count(), 1);
    }
}

#[test]
fn bytes_that_no_row_covers_may_be_anything() {
    let column = ColumnResult {
        validity: None,
        values: spans(&[1, 3, 4], b"\xffabc\xff"),
    };
    let batch = lift_one(DataType::Text, false, 2, column).unwrap();
    let expected: StringArray = vec!["ab", "c"].into();
    assert_eq!(batch.column(0).to_data(), expected.to_data());
}

#[test]
fn numeric_text_is_canonical() {
    let is_accepted = |text: &str| {
        let values = spans(&[0, text.len() as i32], text.as_bytes());
        let column = ColumnResult {
            validity: None,
            values,
        };
        lift_one(DataType::Numeric, false, 1, column).is_ok()
    };
    for text in [
        "0",
        "-0.50",
        "12",
        "123456789012345678901234567890.5",
        "NaN",
        "Infinity",
        "-Infinity",
    ] {
        assert!(is_accepted(text), "{text}");
    }
    for text in [
        "", "-", ".5", "1.", "01", "1e5", "+1", "nan", "1.2.3", " 1", "0x1", "١",
    ] {
        assert!(!is_accepted(text), "{text}");
    }
}

#[test]
fn buffers_are_wrapped_and_not_copied() {
    let values: Vec<i64> = (0..1000).collect();
    let address = values.as_ptr();
    let schema = schema(&[(DataType::Int64, false)]);
    let column = ColumnResult {
        validity: None,
        values: ValuesResult::Int64(values),
    };
    let batch = BatchResult {
        rows: 1000,
        columns: vec![column],
    };
    let batch = lift(batch, &schema, &schema.to_arrow(), 1000).unwrap();
    let lifted = batch.column(0).to_data().buffers()[0].as_ptr();
    assert_eq!(lifted, address.cast());
}

/// A column of any type with honest values; the numbers choose them.
fn column(data_type: DataType, values: &[Option<i64>]) -> ArrayRef {
    let numbers = || values.iter().copied();
    let text = |value: i64| match value % 3 {
        0 => String::new(),
        1 => format!("ä{value}"),
        _ => value.to_string(),
    };
    match data_type {
        DataType::Boolean => Arc::new(numbers().map(|v| v.map(|v| v % 2 == 0)).collect::<BooleanArray>()),
        DataType::Int16 => Arc::new(numbers().map(|v| v.map(|v| v as i16)).collect::<Int16Array>()),
        DataType::Int32 => Arc::new(numbers().map(|v| v.map(|v| v as i32)).collect::<Int32Array>()),
        DataType::Date => Arc::new(numbers().map(|v| v.map(|v| v as i32)).collect::<Date32Array>()),
        DataType::Int64 => Arc::new(numbers().collect::<Int64Array>()),
        DataType::Float32 => Arc::new(numbers().map(|v| v.map(|v| v as f32)).collect::<Float32Array>()),
        DataType::Float64 => Arc::new(numbers().map(|v| v.map(|v| v as f64)).collect::<Float64Array>()),
        DataType::Decimal { precision, scale } => {
            let array: Decimal128Array = numbers().map(|v| v.map(|v| i128::from(v % 99_999))).collect();
            Arc::new(array.with_precision_and_scale(precision, scale as i8).unwrap())
        }
        DataType::Numeric => Arc::new(
            numbers()
                .map(|v| v.map(|v| format!("{v}.5")))
                .collect::<StringArray>(),
        ),
        DataType::Text | DataType::Json => Arc::new(numbers().map(|v| v.map(text)).collect::<StringArray>()),
        DataType::Bytes => {
            let bytes =
                numbers().map(|v| v.map(|v| v.to_le_bytes()[..(v.unsigned_abs() % 9) as usize].to_vec()));
            Arc::new(bytes.collect::<BinaryArray>())
        }
        DataType::Uuid => {
            let bytes = numbers().map(|v| v.map(|v| i128::from(v).to_be_bytes()));
            Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes, 16).unwrap())
        }
        DataType::Time => Arc::new(
            numbers()
                .map(|v| v.map(|v| v.rem_euclid(86_400_000_001)))
                .collect::<Time64MicrosecondArray>(),
        ),
        DataType::Timestamp => Arc::new(numbers().collect::<TimestampMicrosecondArray>()),
        DataType::TimestampTz => Arc::new(
            numbers()
                .collect::<TimestampMicrosecondArray>()
                .with_timezone("UTC"),
        ),
    }
}

fn any_values() -> impl Strategy<Value = ValuesResult> {
    let near = 0..20_usize;
    let words = vec(prop_oneof![Just(0_u64), Just(1), any::<u64>()], near.clone());
    let bytes = || vec(prop_oneof![b'0'..=b'9', any::<u8>()], 0..40);
    prop_oneof![
        bytes().prop_map(ValuesResult::Bits),
        vec(any::<i16>(), near.clone()).prop_map(ValuesResult::Int16),
        vec(any::<i32>(), near.clone()).prop_map(ValuesResult::Int32),
        vec(any::<i64>(), near.clone()).prop_map(ValuesResult::Int64),
        vec(any::<f32>(), near.clone()).prop_map(ValuesResult::Float32),
        vec(any::<f64>(), near.clone()).prop_map(ValuesResult::Float64),
        words.prop_map(ValuesResult::Int128),
        vec(any::<u8>(), 0..200).prop_map(ValuesResult::Fixed16),
        (
            vec(prop_oneof![0..40_i32, any::<i32>()], near),
            bytes(),
            any::<bool>()
        )
            .prop_map(|(mut offsets, data, sort)| {
                if sort {
                    offsets.sort_unstable();
                }
                ValuesResult::Spans(SpansResult { offsets, data })
            }),
    ]
}

fn any_column() -> impl Strategy<Value = ColumnResult> {
    let validity = proptest::option::of(vec(any::<u8>(), 0..4));
    (validity, any_values()).prop_map(|(validity, values)| ColumnResult { validity, values })
}

fn any_type() -> impl Strategy<Value = DataType> {
    prop_oneof![
        proptest::sample::select(&TYPES[..]),
        (1..=38_u8).prop_flat_map(|precision| {
            (0..=precision).prop_map(move |scale| DataType::Decimal { precision, scale })
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_batch_makes_the_host_panic(
        types in vec((any_type(), any::<bool>()), 0..3),
        columns in vec(any_column(), 0..3),
        rows in prop_oneof![0..20_u32, any::<u32>()],
        max_rows in prop_oneof![0..20_u32, any::<u32>()],
    ) {
        let schema = schema(&types);
        let arrow = schema.to_arrow();
        if let Ok(batch) = lift(BatchResult { rows, columns }, &schema, &arrow, max_rows) {
            // What was accepted is sound: Arrow's own full check agrees, and it can be handed on.
            for column in batch.columns() {
                prop_assert!(column.to_data().validate_full().is_ok());
            }
            prop_assert_eq!(round_trip(&batch, &schema), batch);
        }
    }

    #[test]
    fn honest_rows_come_through_as_they_were(
        data_type in any_type().prop_filter("generated to five digits", |t| !matches!(t, DataType::Decimal { precision, .. } if *precision < 5)),
        values in vec(proptest::option::of(any::<i64>()), 1..50),
        cut in any::<(usize, usize)>(),
    ) {
        let schema = schema(&[(data_type, true)]);
        let batch = RecordBatch::try_new(schema.to_arrow(), vec![column(data_type, &values)]).unwrap();
        prop_assert_eq!(&round_trip(&batch, &schema), &batch);
        // A slice keeps the whole array's buffers, so bits and offsets start in the middle.
        let start = cut.0 % values.len();
        let slice = batch.slice(start, 1 + cut.1 % (values.len() - start));
        prop_assert_eq!(round_trip(&slice, &schema), slice);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn pieces_are_the_whole_in_order(lengths in vec(prop_oneof![0..100_usize, 0..2_000_000_usize], 1..40)) {
        let texts: StringArray = lengths.iter().map(|length| Some("x".repeat(*length))).collect();
        let schema = schema(&[(DataType::Text, true)]);
        let batch = RecordBatch::try_new(schema.to_arrow(), vec![Arc::new(texts)]).unwrap();
        let mut start = 0;
        for piece in pieces(&batch) {
            let rows = piece.num_rows();
            let bytes: usize = lengths[start..start + rows].iter().sum();
            prop_assert!(rows == 1 || bytes <= 1 << 20, "{rows} rows of {bytes} bytes");
            prop_assert_eq!(&piece, &batch.slice(start, rows));
            start += rows;
        }
        prop_assert_eq!(start, lengths.len());
    }
}

#[test]
fn a_piece_has_at_most_8192_rows() {
    let schema = schema(&[(DataType::Boolean, false)]);
    let flags: BooleanArray = vec![true; 20_000].into();
    let batch = RecordBatch::try_new(schema.to_arrow(), vec![Arc::new(flags)]).unwrap();
    let rows: Vec<_> = pieces(&batch).map(|piece| piece.num_rows()).collect();
    assert_eq!(rows, [8_192, 8_192, 3_616]);
}
