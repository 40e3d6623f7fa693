use proptest::prelude::*;

use super::*;

fn reread(data_type: DataType, text: &str) -> Result<String, Mismatch> {
    canonical(data_type, text.as_bytes())
}

#[test]
fn the_staged_form_reads_back_to_itself() {
    let cases: &[(DataType, &[&str])] = &[
        (DataType::Boolean, &["true", "false"]),
        (DataType::Int16, &["0", "-32768", "32767"]),
        (DataType::Int32, &["-2147483648", "2147483647"]),
        (
            DataType::Int64,
            &["-9223372036854775808", "9223372036854775807", "10"],
        ),
        (
            DataType::Float32,
            &[
                "1.5",
                "-0.0",
                "0.1",
                "3.4028235e38",
                "NaN",
                "Infinity",
                "-Infinity",
            ],
        ),
        (
            DataType::Float64,
            &[
                "1.0",
                "-0.0",
                "0.1",
                "5e-324",
                "1.7976931348623157e308",
                "NaN",
                "-Infinity",
            ],
        ),
        (
            DataType::decimal(5, 2),
            &["0.00", "-0.01", "999.99", "-999.99", "12.50"],
        ),
        (DataType::decimal(3, 0), &["0", "-999"]),
        (DataType::decimal(2, 2), &["0.99", "-0.01"]),
        (
            DataType::decimal(38, 10),
            &["9999999999999999999999999999.9999999999", "-0.0000000001"],
        ),
        (
            DataType::Numeric,
            &[
                "0",
                "-12.50",
                "123456789012345678901234567890123456789012345.000",
                "NaN",
                "Infinity",
            ],
        ),
        (DataType::Text, &["", "a", "naïve"]),
        (DataType::Json, &["null", " {\"a\": [1, 2]} "]),
        (DataType::Bytes, &["", "AA==", "3q2+7w=="]),
        (DataType::Uuid, &["00112233-4455-6677-8899-aabbccddeeff"]),
        (
            DataType::Date,
            &[
                "1970-01-01",
                "0000-02-29",
                "9999-12-31",
                "+10000-01-01",
                "-0001-12-31",
                "-4712-01-01",
                "infinity",
                "-infinity",
            ],
        ),
        (
            DataType::Time,
            &["00:00:00.000000", "23:59:59.999999", "24:00:00.000000"],
        ),
        (
            DataType::Timestamp,
            &[
                "1969-12-31T23:59:59.999999",
                "2024-02-29T12:00:00.000001",
                "+294247-01-10T04:00:54.775806",
                "-290308-12-21T19:59:05.224193",
                "-infinity",
            ],
        ),
        (
            DataType::TimestampTz,
            &[
                "2024-02-29T12:00:00.000001Z",
                "infinity",
                "-0044-03-15T00:00:00.000000Z",
            ],
        ),
    ];
    for (data_type, texts) in cases {
        for text in *texts {
            assert_eq!(reread(*data_type, text).as_deref(), Ok(*text), "{data_type}");
        }
    }
}

#[test]
fn usual_variations_are_read() {
    let cases = [
        (DataType::Boolean, "T", "true"),
        (DataType::Int32, "+007", "7"),
        (DataType::Float64, "1e3", "1000.0"),
        (DataType::Float64, "inf", "Infinity"),
        (DataType::decimal(5, 2), "+1.5", "1.50"),
        (DataType::decimal(5, 2), ".5000", "0.50"),
        (DataType::Numeric, "+0012.", "12"),
        (DataType::Numeric, "-0.00", "0.00"),
        (
            DataType::Uuid,
            "00112233-4455-6677-8899-AABBCCDDEEFF",
            "00112233-4455-6677-8899-aabbccddeeff",
        ),
        (DataType::Time, "12:34:56", "12:34:56.000000"),
        (
            DataType::Timestamp,
            "2024-01-02 03:04:05.5",
            "2024-01-02T03:04:05.500000",
        ),
        (
            DataType::Timestamp,
            "2024-01-02T03:04:05.123456000",
            "2024-01-02T03:04:05.123456",
        ),
        (
            DataType::TimestampTz,
            "2024-01-02 03:04:05+02",
            "2024-01-02T01:04:05.000000Z",
        ),
        (
            DataType::TimestampTz,
            "2024-01-02T00:00:00-05:30",
            "2024-01-02T05:30:00.000000Z",
        ),
    ];
    for (data_type, text, expected) in cases {
        assert_eq!(
            reread(data_type, text).as_deref(),
            Ok(expected),
            "{data_type} {text}"
        );
    }
}

#[test]
fn what_is_no_value_or_would_lose_digits_is_refused() {
    let cases: &[(DataType, &[&str])] = &[
        (DataType::Boolean, &["", "yes", "2"]),
        (DataType::Int16, &["32768", "-32769", "", "-", "1.0", " 1", "0x1"]),
        (DataType::Int64, &["9223372036854775808", "-9223372036854775809"]),
        (
            DataType::Float64,
            &["", "1,5", " 1", "1e400", "-1e309", "1e-400", "0.0e5x"],
        ),
        (DataType::Float32, &["1e39", "-3.5e38", "1e-60"]),
        (
            DataType::decimal(5, 2),
            &["1000", "0.001", "", ".", "1e2", "NaN", "1.2.3"],
        ),
        (DataType::Numeric, &["", "-", "1e5", "1-"]),
        (DataType::Json, &["", "{", "a"]),
        (DataType::Bytes, &["A", "AA", "AB==", "****"]),
        (
            DataType::Uuid,
            &[
                "00112233445566778899aabbccddeeff",
                "00112233-4455-6677-8899-aabbccddeef",
            ],
        ),
        (
            DataType::Date,
            &[
                "2023-02-29",
                "2024-13-01",
                "2024-00-10",
                "24-01-01",
                "12024-01-01",
                "2024-01-01x",
            ],
        ),
        (DataType::Date, &["+5881580-07-12", "-5877641-06-22"]),
        (
            DataType::Time,
            &["24:00:01", "12:60:00", "12:00", "12:00:00.", "12:00:00.1234567"],
        ),
        (
            DataType::Timestamp,
            &[
                "2024-01-01",
                "2024-01-01T00:00:00Z",
                "+294247-01-10T04:00:54.775807",
                "-290308-12-21T19:59:05.224192",
            ],
        ),
        (
            DataType::TimestampTz,
            &[
                "2024-01-01T00:00:00",
                "2024-01-01T00:00:00+25",
                "2024-01-01T00:00:00+1",
            ],
        ),
    ];
    for (data_type, texts) in cases {
        for text in *texts {
            assert!(reread(*data_type, text).is_err(), "{data_type} {text}");
        }
    }
}

proptest! {
    #[test]
    fn every_date_reads_back(days in any::<i32>()) {
        let mut out = Vec::new();
        write_date(&mut out, days);
        prop_assert_eq!(parse_date(&out), Ok(days));
    }

    #[test]
    fn every_timestamp_reads_back(micros in any::<i64>()) {
        let mut out = Vec::new();
        write_timestamp_tz(&mut out, micros);
        prop_assert_eq!(parse_timestamp_tz(&out), Ok(micros));
        out.clear();
        write_timestamp(&mut out, micros);
        prop_assert_eq!(parse_timestamp(&out), Ok(micros));
    }

    #[test]
    fn every_float_reads_back_to_the_same_bits(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        let mut out = Vec::new();
        write_f64(&mut out, value);
        let read: f64 = number::parse_float(&out).unwrap();
        prop_assert!(read.to_bits() == bits || read.is_nan() && value.is_nan());
    }

    #[test]
    fn every_decimal_reads_back(value in -10_i128.pow(38) + 1..10_i128.pow(38), scale in 0..=38_u8) {
        let mut out = Vec::new();
        write_decimal(&mut out, value, scale);
        prop_assert_eq!(parse_decimal(&out, 38, scale), Ok(value));
    }

    #[test]
    fn no_text_panics(text in proptest::collection::vec(any::<u8>(), 0..40)) {
        for data_type in [DataType::Date, DataType::Time, DataType::Timestamp, DataType::TimestampTz,
            DataType::Numeric, DataType::decimal(10, 3), DataType::Uuid, DataType::Int64]
        {
            let mut column = ColumnBuilder::new(data_type);
            let pushed = parse(&text, &mut column).is_ok();
            prop_assert_eq!(column.len(), usize::from(pushed));
        }
    }
}
