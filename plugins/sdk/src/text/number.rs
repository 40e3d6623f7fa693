//! Integers, floats and decimals.

use super::Mismatch;

pub(super) const OUT_OF_RANGE: Mismatch = Mismatch("is out of the type's range");
const NOT_WHOLE: Mismatch = Mismatch("is not a whole number");
const NOT_A_NUMBER: Mismatch =
    Mismatch("is not a decimal number (digits, perhaps a sign and a point, no exponent)");

/// Appends an integer.
pub fn write_i64(out: &mut Vec<u8>, value: i64) {
    write_i128(out, value.into());
}

fn write_i128(out: &mut Vec<u8>, value: i128) {
    if value < 0 {
        out.push(b'-');
    }
    // 39 digits hold every u128.
    let mut digits = [0; 39];
    let mut at = digits.len();
    let mut push = |digit: u8| {
        at -= 1;
        digits[at] = b'0' + digit;
    };
    let mut rest = value.unsigned_abs();
    // Division of 128 bits is slow, of 64 bits fast.
    while rest > u128::from(u64::MAX) {
        push((rest % 10) as u8);
        rest /= 10;
    }
    let mut rest = rest as u64;
    loop {
        push((rest % 10) as u8);
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Appends the unscaled integer of a decimal with exactly `scale` decimals.
pub fn write_decimal(out: &mut Vec<u8>, unscaled: i128, scale: u8) {
    let start = out.len();
    write_i128(out, unscaled);
    let scale = usize::from(scale);
    if scale == 0 {
        return;
    }
    let digits_start = start + usize::from(unscaled < 0);
    let digits = out.len() - digits_start;
    if digits <= scale {
        let zeros = scale + 1 - digits;
        out.splice(digits_start..digits_start, std::iter::repeat_n(b'0', zeros));
    }
    out.insert(out.len() - scale, b'.');
}

macro_rules! write_float {
    ($name:ident, $t:ty) => {
        /// Appends the shortest number that reads back equal; `NaN`, `Infinity` and `-Infinity` by name.
        pub fn $name(out: &mut Vec<u8>, value: $t) {
            use std::io::Write;
            if value.is_nan() {
                out.extend_from_slice(b"NaN");
            } else if value.is_infinite() {
                out.extend_from_slice(if value < 0.0 {
                    b"-Infinity"
                } else {
                    b"Infinity"
                });
            } else {
                // Writing into memory does not fail.
                let _ = write!(out, "{value:?}");
            }
        }
    };
}

write_float!(write_f32, f32);
write_float!(write_f64, f64);

/// Reads an integer: digits, perhaps a sign.
pub fn parse_i64(text: &[u8]) -> Result<i64, Mismatch> {
    let (negative, digits) = split_sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NOT_WHOLE);
    }
    // Built up on the negative side, which reaches one further.
    let mut value = 0_i64;
    for digit in digits {
        let next = value
            .checked_mul(10)
            .and_then(|v| v.checked_sub(i64::from(digit - b'0')));
        value = next.ok_or(OUT_OF_RANGE)?;
    }
    if negative {
        Ok(value)
    } else {
        value.checked_neg().ok_or(OUT_OF_RANGE)
    }
}

/// Reads an `f32` or `f64` in any decimal notation; `NaN`, `inf` and `infinity` in any case. The nearest value is
/// taken, but a number of which nothing would be left, infinity or zero, is refused.
pub fn parse_float<T: std::str::FromStr + Copy + Into<f64>>(text: &[u8]) -> Result<T, Mismatch> {
    // `FromStr` takes every decimal notation, and NaN, inf and infinity in any case, with a sign.
    let parsed = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let value: T = parsed.ok_or(Mismatch("is not a number"))?;
    let number: f64 = value.into();
    let digits = || text.iter().take_while(|byte| !byte.eq_ignore_ascii_case(&b'e'));
    let overflow = number.is_infinite() && digits().any(u8::is_ascii_digit);
    let underflow = number == 0.0 && digits().any(|byte| matches!(byte, b'1'..=b'9'));
    if overflow || underflow {
        return Err(OUT_OF_RANGE);
    }
    Ok(value)
}

/// Reads a decimal as its unscaled integer. Zeros beyond the scale may be left out or added; other digits beyond it
/// are refused.
pub fn parse_decimal(text: &[u8], precision: u8, scale: u8) -> Result<i128, Mismatch> {
    let Parts::Finite {
        negative,
        whole,
        decimals,
    } = Parts::read(text)?
    else {
        return Err(NOT_A_NUMBER);
    };
    let scale = usize::from(scale);
    let kept = decimals.len().min(scale);
    if decimals[kept..].iter().any(|&digit| digit != b'0') {
        return Err(Mismatch("has more decimals than the type"));
    }
    if whole.len() + scale > usize::from(precision) && !whole.is_empty() {
        return Err(Mismatch("has more digits than the type"));
    }
    let digits = whole.iter().chain(&decimals[..kept]);
    // At most 38 digits, which an i128 holds.
    let value = digits.fold(0_i128, |value, digit| value * 10 + i128::from(digit - b'0'));
    let value = value * 10_i128.pow((scale - kept) as u32);
    Ok(if negative { -value } else { value })
}

/// A number of any length, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parts<'a> {
    Finite {
        negative: bool,
        /// Without leading zeros: empty for numbers below one.
        whole: &'a [u8],
        decimals: &'a [u8],
    },
    Named(&'static str),
}

impl<'a> Parts<'a> {
    pub(super) fn read(text: &'a [u8]) -> Result<Self, Mismatch> {
        let (negative, digits) = split_sign(text);
        let point = digits.iter().position(|&byte| byte == b'.');
        let (whole, decimals) = match point {
            Some(at) => (&digits[..at], &digits[at + 1..]),
            None => (digits, &digits[digits.len()..]),
        };
        let all_digits = whole.iter().chain(decimals).all(u8::is_ascii_digit);
        if !all_digits || whole.is_empty() && decimals.is_empty() {
            return Self::named(text).ok_or(NOT_A_NUMBER);
        }
        let zeros = whole.iter().take_while(|&&digit| digit == b'0').count();
        Ok(Parts::Finite {
            negative,
            whole: &whole[zeros..],
            decimals,
        })
    }

    fn named(text: &[u8]) -> Option<Self> {
        let names = ["NaN", "Infinity", "-Infinity"];
        let name = names
            .into_iter()
            .find(|name| text.eq_ignore_ascii_case(name.as_bytes()))?;
        Some(Parts::Named(name))
    }

    /// Without a plus sign and leading zeros; zero has no sign. The decimals stay as they are.
    pub(super) fn write_canonical(&self, out: &mut Vec<u8>) {
        let (negative, whole, decimals) = match *self {
            Parts::Named(name) => return out.extend_from_slice(name.as_bytes()),
            Parts::Finite {
                negative,
                whole,
                decimals,
            } => (negative, whole, decimals),
        };
        let zero = whole.is_empty() && decimals.iter().all(|&digit| digit == b'0');
        if negative && !zero {
            out.push(b'-');
        }
        out.extend_from_slice(if whole.is_empty() { b"0" } else { whole });
        if !decimals.is_empty() {
            out.push(b'.');
            out.extend_from_slice(decimals);
        }
    }
}

fn split_sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}
