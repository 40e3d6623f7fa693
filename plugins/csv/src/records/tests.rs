use proptest::prelude::*;

use super::*;

/// Gives a few bytes at a time, to meet every boundary.
struct Trickle<'a>(&'a [u8], usize);

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.1.min(self.0.len()).min(into.len());
        into[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        Ok(n)
    }
}

fn dialect() -> Dialect {
    Dialect::new(",", "\"", true, &[String::new()]).unwrap()
}

/// Every record's values, a quoted one in brackets, with line and offset.
fn split(bytes: &[u8], step: usize) -> Result<Vec<(Vec<String>, u64, u64)>> {
    let mut records = Records::new(Trickle(bytes, step), "f.csv", &dialect(), 0, 1)?;
    let mut all = Vec::new();
    while let Some(record) = records.next()? {
        let value = |&field: &Field| {
            let mut value = Vec::new();
            record.append_value(field, b'"', &mut value);
            let text = String::from_utf8(value).unwrap();
            if field.quoted { format!("[{text}]") } else { text }
        };
        all.push((
            record.fields.iter().map(value).collect(),
            record.line,
            record.offset,
        ));
    }
    assert_eq!(records.offset(), bytes.len() as u64);
    Ok(all)
}

#[test]
fn records_and_fields_are_split_by_the_rules() {
    type Expected<'a> = (&'a [&'a str], u64, u64);
    let cases: &[(&str, &[Expected<'_>])] = &[
        ("", &[]),
        ("a", &[(&["a"], 1, 0)]),
        ("a,b\n", &[(&["a", "b"], 1, 0)]),
        ("a,b\r\nc,d\r\n", &[(&["a", "b"], 1, 0), (&["c", "d"], 2, 5)]),
        ("a,b\r", &[(&["a", "b"], 1, 0)]),
        (",\n,", &[(&["", ""], 1, 0), (&["", ""], 2, 2)]),
        ("\n\na", &[(&[""], 1, 0), (&[""], 2, 1), (&["a"], 3, 2)]),
        ("\"\"\n", &[(&["[]"], 1, 0)]),
        (
            "\"a,\n\"\"b\"\"\r\n\",c\nd\n",
            &[(&["[a,\n\"b\"\r\n]", "c"], 1, 0), (&["d"], 4, 15)],
        ),
        ("\"\"\"\"", &[(&["[\"]"], 1, 0)]),
        ("\"a\"\r\n\"b\"\r", &[(&["[a]"], 1, 0), (&["[b]"], 2, 5)]),
        ("5\" pipe,a\"b\"\n", &[(&["5\" pipe", "a\"b\""], 1, 0)]),
        ("\"a\rb\",c\r\n", &[(&["[a\rb]", "c"], 1, 0)]),
        ("\u{feff}a,b\nc,d", &[(&["a", "b"], 1, 3), (&["c", "d"], 2, 7)]),
        ("\u{feff}", &[]),
        ("naïve,日本語\n", &[(&["naïve", "日本語"], 1, 0)]),
        (
            "12345678,123456789,1234567\n",
            &[(&["12345678", "123456789", "1234567"], 1, 0)],
        ),
    ];
    for (text, expected) in cases {
        for step in [1, 2, 3, 7, 1000] {
            let found = split(text.as_bytes(), step).unwrap();
            let expected: Vec<(Vec<String>, u64, u64)> = expected
                .iter()
                .map(|(fields, line, offset)| {
                    (fields.iter().map(|f| (*f).to_owned()).collect(), *line, *offset)
                })
                .collect();
            assert_eq!(found, expected, "{text:?} {step} bytes at a time");
        }
    }
}

#[test]
fn an_error_names_file_line_and_byte() {
    let cases: &[(&[u8], &str)] = &[
        (
            b"a,b\nc,\"d\ne\n",
            "f.csv, line 2, byte 6: this quote is never closed",
        ),
        (
            b"a\n\"b\nb\"x,c\n",
            "f.csv, line 3, byte 7: a closing quote must be followed by",
        ),
        (b"a\nb,\xff\nc\n", "f.csv, line 2, byte 4: this is not UTF-8"),
        (
            b"a\n\"b\n\xe2\x82\"\nc\n",
            "f.csv, line 3, byte 5: this is not UTF-8",
        ),
        (b"a\nb\xe2\x82", "f.csv, line 2, byte 3: this is not UTF-8"),
        (b"\xff\xfea\0", "f.csv, line 1, byte 0: this file is UTF-16"),
        (b"\xfe\xff\0a", "f.csv, line 1, byte 0: this file is UTF-16"),
        (b"a\0,\0b\0", "f.csv, line 1, byte 0: this file is UTF-16"),
        (b"\0a\0,", "f.csv, line 1, byte 0: this file is UTF-16"),
        (
            b"\x1f\x8b\x08\0\0",
            "f.csv, line 1, byte 0: this is gzip data; decompress the file, or let its name end in `.gz`",
        ),
        (
            b"PK\x03\x04\x14\0",
            "f.csv, line 1, byte 0: this is a ZIP archive",
        ),
    ];
    for (bytes, expected) in cases {
        for step in [1, 3, 1000] {
            let error = split(bytes, step).unwrap_err();
            assert!(error.message().starts_with(expected), "{error}");
        }
    }
}

#[test]
fn a_carriage_return_alone_is_an_error_wherever_it_could_end_a_record() {
    let cases: &[(&str, &str)] = &[
        ("a,b\r1,2\r3,4\r", "f.csv, line 1, byte 3: "),
        ("a\r1\r2\r", "f.csv, line 1, byte 1: "),
        ("\"a\"\r\"b\"\r", "f.csv, line 1, byte 3: "),
        ("\"a\",b\r\n\"c\"\rd", "f.csv, line 2, byte 10: "),
        ("a\n1\r2\n", "f.csv, line 2, byte 3: "),
        // Line ends that were converted twice.
        ("a\r\r\n", "f.csv, line 1, byte 1: "),
        ("a,b\n1,2\r3,4\n", "f.csv, line 2, byte 7: "),
    ];
    for (text, place) in cases {
        for step in [1, 3, 1000] {
            let error = split(text.as_bytes(), step).unwrap_err();
            let expected = format!("{place}a carriage return without a line feed");
            assert!(error.message().starts_with(&expected), "{text:?}: {error}");
        }
    }
}

#[test]
fn a_record_wider_than_the_buffer_is_read_whole() {
    let wide = format!("a,\"{}\"\nb,c\n", "x\n".repeat(BUFFER_BYTES));
    let found = split(wide.as_bytes(), 64 << 10).unwrap();
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].0[1].len(), 2 * BUFFER_BYTES + 2);
    assert_eq!(found[1].1, BUFFER_BYTES as u64 + 2);
}

#[test]
fn a_record_beyond_the_limit_is_an_error() {
    let endless = io::repeat(b'x');
    let mut records = Records::new(endless, "f.csv", &dialect(), 0, 1).unwrap();
    let error = records.next().unwrap_err();
    assert!(
        error
            .message()
            .starts_with("f.csv, line 1, byte 0: this record is longer than 64 MiB"),
        "{error}"
    );
}

proptest! {
    #[test]
    fn a_byte_is_found_wherever_it_stands(bytes in proptest::collection::vec(0..6_u8, 0..40), at in 0..40_usize) {
        let expected = bytes.iter().skip(at).position(|&byte| byte < 2).map(|found| found + at);
        prop_assert_eq!(find_either(&bytes, at, 0, 1), expected);
    }

    #[test]
    fn high_bytes_do_not_hide_a_delimiter(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        let expected = bytes.iter().position(|&byte| byte == b',' || byte == b'\n');
        prop_assert_eq!(find_either(&bytes, 0, b',', b'\n'), expected);
    }

    #[test]
    fn no_input_panics(bytes in proptest::collection::vec(proptest::sample::select(b"ab,\"\r\n\xc3\xa9\xff".to_vec()), 0..60),
                       step in 1..9_usize) {
        let _ = split(&bytes, step);
    }
}
