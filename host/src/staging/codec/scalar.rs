//! Single values as JSON, both ways, apart from dates and times. Writers append to a buffer; readers take the text
//! of one JSON value and answer none where it is not one of the type.

use std::cmp::Ordering;

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// Writes padding, reads with and without it.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const HEX: &[u8; 16] = b"0123456789abcdef";

pub(super) const NAN: &str = "NaN";
pub(super) const INFINITY: &str = "Infinity";
pub(super) const NEGATIVE_INFINITY: &str = "-Infinity";

pub(super) fn write_integer(value: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// What the two float types have in common.
pub(super) trait Float: zmij::Float + Copy + std::str::FromStr {
    const NAN: Self;
    const INFINITY: Self;
    const NEGATIVE_INFINITY: Self;
    /// The text of a value that is no JSON number.
    fn special(self) -> Option<&'static str>;
}

macro_rules! float {
    ($float:ty) => {
        impl Float for $float {
            const NAN: Self = <$float>::NAN;
            const INFINITY: Self = <$float>::INFINITY;
            const NEGATIVE_INFINITY: Self = <$float>::NEG_INFINITY;

            fn special(self) -> Option<&'static str> {
                if self.is_finite() {
                    None
                } else if self.is_nan() {
                    Some(NAN)
                } else if self > 0.0 {
                    Some(INFINITY)
                } else {
                    Some(NEGATIVE_INFINITY)
                }
            }
        }
    };
}
float!(f32);
float!(f64);

/// Writes the shortest number that reads back equal, or a quoted word.
pub(super) fn write_float<F: Float>(value: F, out: &mut Vec<u8>) {
    match value.special() {
        None => out.extend_from_slice(zmij::Buffer::new().format_finite(value).as_bytes()),
        Some(word) => {
            out.push(b'"');
            out.extend_from_slice(word.as_bytes());
            out.push(b'"');
        }
    }
}

/// Reads a word for what is no number.
pub(super) fn parse_special<F: Float>(text: &str) -> Option<F> {
    match text {
        NAN => Some(F::NAN),
        INFINITY => Some(F::INFINITY),
        NEGATIVE_INFINITY => Some(F::NEGATIVE_INFINITY),
        _ => None,
    }
}

/// Reads a JSON number, rounding correctly; none where it is too large for the type.
pub(super) fn parse_float<F: Float>(number: &str) -> Option<F> {
    number.parse().ok().filter(|value: &F| value.special().is_none())
}

/// Reads an integer, which has no fraction and no exponent.
pub(super) fn parse_integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.is_empty() || digits.len() > 18 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        // Rare: near the limits of 64 bits, or wrong. The standard parser also takes a `+`, JSON does not.
        return text.parse().ok().filter(|_| !text.starts_with('+'));
    }
    let value = digits.bytes().fold(0, |n, b| n * 10 + i64::from(b - b'0'));
    Some(if negative { -value } else { value })
}

/// Appends an unscaled decimal with exactly `scale` digits after the point, without quotes.
pub(super) fn write_decimal(value: i128, scale: u8, out: &mut Vec<u8>) {
    let scale = usize::from(scale);
    if value < 0 {
        out.push(b'-');
    }
    let magnitude = value.unsigned_abs();
    let (mut small, mut large) = (itoa::Buffer::new(), itoa::Buffer::new());
    let digits = match u64::try_from(magnitude) {
        Ok(value) => small.format(value),
        Err(_) => large.format(magnitude),
    }
    .as_bytes();
    if digits.len() > scale {
        let (whole, fraction) = digits.split_at(digits.len() - scale);
        out.extend_from_slice(whole);
        if scale > 0 {
            out.push(b'.');
            out.extend_from_slice(fraction);
        }
    } else {
        out.extend_from_slice(b"0.");
        out.resize(out.len() + scale - digits.len(), b'0');
        out.extend_from_slice(digits);
    }
}

/// Whether an unscaled decimal has at most `precision` digits.
pub(super) fn fits_precision(value: i128, precision: u8) -> bool {
    10_u128
        .checked_pow(u32::from(precision))
        .is_none_or(|limit| value.unsigned_abs() < limit)
}

/// Reads a decimal as an unscaled integer. Fewer digits after the point than `scale` are as good as zeros, more are
/// refused.
pub(super) fn parse_decimal(text: &str, precision: u8, scale: u8) -> Option<i128> {
    let (negative, unsigned) = split_sign(text);
    let (whole, fraction) = split_point(unsigned)?;
    let missing = usize::from(scale).checked_sub(fraction.len())?;
    let whole = whole.trim_start_matches('0');
    // 10^38 is below 2^127, so that 38 digits cannot overflow.
    if whole.len() + usize::from(scale) > 38 {
        return None;
    }
    let mut value = 0_i128;
    for part in [whole, fraction] {
        // In steps of 64 bits, which are much faster than those of 128.
        for chunk in part.as_bytes().chunks(18) {
            let step = chunk.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0'));
            value = value * 10_i128.pow(chunk.len() as u32) + i128::from(step);
        }
    }
    value *= 10_i128.pow(missing as u32);
    fits_precision(value, precision).then_some(if negative { -value } else { value })
}

fn split_sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

/// The digits before and after the point of an unsigned decimal text; none where it is not one.
fn split_point(text: &str) -> Option<(&str, &str)> {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match text.split_once('.') {
        Some((whole, fraction)) => (digits(whole) && digits(fraction)).then_some((whole, fraction)),
        None => digits(text).then_some((text, "")),
    }
}

/// Whether a text is a decimal number without an exponent, or one of the three words.
pub(super) fn is_numeric(text: &str) -> bool {
    matches!(text, NAN | INFINITY | NEGATIVE_INFINITY) || split_point(split_sign(text).1).is_some()
}

/// A finite numeric, as far as its order is concerned.
pub(in crate::staging) struct Number<'a> {
    /// Not so for zero.
    pub(in crate::staging) negative: bool,
    /// Without leading zeros.
    whole: &'a str,
    /// Without trailing zeros.
    fraction: &'a str,
}

impl<'a> Number<'a> {
    /// None where the text is not a finite numeric.
    pub(in crate::staging) fn parse(text: &'a str) -> Option<Self> {
        let (negative, unsigned) = split_sign(text);
        let (whole, fraction) = split_point(unsigned)?;
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let is_zero = whole.is_empty() && fraction.is_empty();
        Some(Number {
            negative: negative && !is_zero,
            whole,
            fraction,
        })
    }

    /// Compares the numbers without their signs.
    pub(in crate::staging) fn compare_magnitude(&self, other: &Self) -> Ordering {
        // Digits compare as text where both start at the same place: at the point, or with equally many before it.
        let ours = (self.whole.len(), self.whole, self.fraction);
        ours.cmp(&(other.whole.len(), other.whole, other.fraction))
    }
}

/// Appends base64 with padding, without quotes.
pub(super) fn write_base64(bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    // The space is exactly what padded base64 takes.
    let written = BASE64.encode_slice(bytes, &mut out[start..]).unwrap_or(0);
    out.truncate(start + written);
}

/// Appends the bytes that a base64 text stands for to `out`, which is unchanged if it is none.
pub(super) fn parse_base64(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let start = out.len();
    let decoded = BASE64.decode_vec(text, out);
    if decoded.is_err() {
        out.truncate(start);
    }
    decoded.ok()
}

/// Appends a hyphenated UUID in lower case, without quotes.
pub(super) fn write_uuid(bytes: &[u8; 16], out: &mut Vec<u8>) {
    let mut text = [b'-'; 36];
    let mut at = 0;
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            at += 1;
        }
        text[at] = HEX[usize::from(byte >> 4)];
        text[at + 1] = HEX[usize::from(byte & 15)];
        at += 2;
    }
    out.extend_from_slice(&text);
}

/// Reads a hyphenated UUID in either case.
pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    let digit = |at: usize| (text[at] as char).to_digit(16);
    let mut bytes = [0; 16];
    let mut at = 0;
    for (index, byte) in bytes.iter_mut().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *byte = (digit(at)? * 16 + digit(at + 1)?) as u8;
        at += 2;
    }
    Some(bytes)
}

/// How many bytes from the start need no escape in a JSON string: all but `"`, `\` and those below space.
///
/// Eight bytes are tested at once. Subtracting `0x01…` from a word sets the high bit of a byte that was zero (and
/// perhaps of one above it, which does not matter for the lowest); the same with `0x20…` finds what is below space.
pub(super) fn plain_length(bytes: &[u8]) -> usize {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = ONES << 7;
    let mut length = 0;
    let mut rest = bytes;
    while let Some((chunk, after)) = rest.split_first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let below = |limit: u64, word: u64| word.wrapping_sub(ONES * limit) & !word;
        let quote = below(1, word ^ (ONES * u64::from(b'"')));
        let backslash = below(1, word ^ (ONES * u64::from(b'\\')));
        let special = (below(0x20, word) | quote | backslash) & HIGH;
        if special != 0 {
            return length + special.trailing_zeros() as usize / 8;
        }
        length += 8;
        rest = after;
    }
    let plain = |b: &u8| *b >= 0x20 && *b != b'"' && *b != b'\\';
    length + rest.iter().take_while(|b| plain(b)).count()
}

/// Appends a JSON string, with quotes.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_length(rest));
        out.extend_from_slice(plain);
        let Some((byte, after)) = special.split_first() else {
            break;
        };
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            8 => out.extend_from_slice(b"\\b"),
            12 => out.extend_from_slice(b"\\f"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&[HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]);
            }
        }
        rest = after;
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = b"before".to_vec();
        write(&mut out);
        String::from_utf8(out).unwrap().split_off(6)
    }

    #[test]
    fn floats_are_the_shortest_text_that_reads_back_to_the_same_bits() {
        for (value, text) in [
            (0.1, "0.1"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (f64::MAX, "1.7976931348623157e308"),
            (f64::from_bits(1), "5e-324"),
            (f64::NAN, "\"NaN\""),
            (f64::INFINITY, "\"Infinity\""),
            (f64::NEG_INFINITY, "\"-Infinity\""),
        ] {
            let actual = written(|out| write_float(value, out)).replace("e+", "e");
            assert_eq!(actual, text);
        }
        assert_eq!(written(|out| write_float(0.1_f32, out)), "0.1");
        assert_eq!(parse_float::<f32>("1e39"), None, "too large for the type");
        assert_eq!(parse_float::<f64>("1e-400"), Some(0.0));
    }

    #[test]
    fn decimals_have_exactly_their_scale() {
        for (value, scale, text) in [
            (0, 0, "0"),
            (0, 3, "0.000"),
            (-5, 2, "-0.05"),
            (1250, 2, "12.50"),
            (-1250, 0, "-1250"),
            (
                10_i128.pow(38) - 1,
                38,
                "0.99999999999999999999999999999999999999",
            ),
            (1 - 10_i128.pow(38), 0, "-99999999999999999999999999999999999999"),
        ] {
            assert_eq!(written(|out| write_decimal(value, scale, out)), text);
            assert_eq!(parse_decimal(text, 38, scale), Some(value));
        }
        assert_eq!(parse_decimal("1.5", 4, 2), Some(150), "fewer decimals are zeros");
        assert_eq!(parse_decimal("-0", 4, 2), Some(0));
        assert_eq!(parse_decimal("000012.50", 4, 2), Some(1250));
        for (wrong, precision, scale) in [
            ("1.500", 4, 2),
            ("100.00", 4, 2),
            ("", 4, 2),
            ("-", 4, 2),
            (".5", 4, 2),
            ("5.", 4, 2),
            ("+1", 4, 2),
            ("1e2", 4, 2),
            ("NaN", 4, 2),
            ("1 ", 4, 2),
            ("1.-5", 4, 2),
            ("999999999999999999999999999999999999999", 38, 0),
        ] {
            assert_eq!(parse_decimal(wrong, precision, scale), None, "{wrong}");
        }
    }

    #[test]
    fn integers_are_read_to_their_limits_and_no_further() {
        for value in [
            0,
            -1,
            999_999_999_999_999_999,
            1_000_000_000_000_000_000,
            i64::MAX,
            i64::MIN,
        ] {
            assert_eq!(parse_integer(&value.to_string()), Some(value));
        }
        for wrong in [
            "",
            "-",
            "+1",
            "1.0",
            "1e3",
            "9223372036854775808",
            "-9223372036854775809",
            "--1",
            " 1",
        ] {
            assert_eq!(parse_integer(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn numerics_are_plain_decimal_text() {
        for right in [
            "0",
            "-0.10",
            "123456789012345678901234567890.5",
            "NaN",
            "Infinity",
            "-Infinity",
        ] {
            assert!(is_numeric(right), "{right}");
        }
        for wrong in ["", "-", "1e5", ".5", "5.", "+1", "-NaN", "nan", "1,5", "1 ", "٣"] {
            assert!(!is_numeric(wrong), "{wrong}");
        }
    }

    #[test]
    fn uuids_are_read_in_either_case_and_with_hyphens_only() {
        let text = "123e4567-e89b-12d3-a456-426614174000";
        let uuid = parse_uuid(text).unwrap();
        assert_eq!(uuid[..4], [0x12, 0x3e, 0x45, 0x67]);
        assert_eq!(written(|out| write_uuid(&uuid, out)), text);
        assert_eq!(parse_uuid(&text.to_uppercase()), Some(uuid));
        for wrong in [
            "",
            "123e4567e89b12d3a456426614174000",
            "123e4567-e89b-12d3-a456-42661417400g",
            &"-".repeat(36),
        ] {
            assert_eq!(parse_uuid(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_base64_leaves_nothing_behind() {
        let mut out = vec![7];
        for wrong in ["A", "AA=A", "A A=", "_-==", "AAAAA"] {
            assert_eq!(parse_base64(wrong, &mut out), None, "{wrong}");
            assert_eq!(out, [7]);
        }
        assert_eq!(parse_base64("/+8", &mut out), Some(()));
        assert_eq!(out, [7, 255, 239]);
    }

    proptest! {
        #[test]
        fn strings_are_valid_json(text in any::<String>()) {
            let json = written(|out| write_string(&text, out));
            prop_assert_eq!(&serde_json::from_str::<String>(&json).unwrap(), &text);
            prop_assert_eq!(serde_json::to_string(&text).unwrap(), json);
        }

        #[test]
        fn the_plain_length_ends_at_the_first_special_byte(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let plain = |b: &u8| *b >= 0x20 && *b != b'"' && *b != b'\\';
            prop_assert_eq!(plain_length(&bytes), bytes.iter().take_while(|b| plain(b)).count());
        }

        #[test]
        fn floats_read_back_to_the_same_bits(bits in any::<u64>()) {
            let (double, single) = (f64::from_bits(bits), f32::from_bits(bits as u32));
            if double.is_finite() {
                let text = written(|out| write_float(double, out));
                prop_assert_eq!(parse_float::<f64>(&text).unwrap().to_bits(), bits);
            }
            if single.is_finite() {
                let text = written(|out| write_float(single, out));
                prop_assert_eq!(parse_float::<f32>(&text).unwrap().to_bits(), bits as u32);
            }
        }

        #[test]
        fn decimals_integers_and_bytes_read_back(
            value in -(10_i128.pow(38) - 1)..10_i128.pow(38),
            scale in 0_u8..=38,
            integer in any::<i64>(),
            bytes in proptest::collection::vec(any::<u8>(), 0..50),
        ) {
            let text = written(|out| write_decimal(value, scale, out));
            prop_assert_eq!(parse_decimal(&text, 38, scale), Some(value));
            prop_assert!(is_numeric(&text));
            prop_assert_eq!(parse_integer(&integer.to_string()), Some(integer));
            let mut read = Vec::new();
            parse_base64(&written(|out| write_base64(&bytes, out)), &mut read).unwrap();
            prop_assert_eq!(read, bytes);
        }
    }
}
