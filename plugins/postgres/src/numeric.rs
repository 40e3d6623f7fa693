//! Postgres's binary form of `numeric`, to and from text and 128-bit integers.
//!
//! The form (`numeric_send`): four 16-bit numbers (how many digits, the weight of the first, the sign, how many
//! decimals to show), then the digits, each from 0 to 9999. The digit at place i stands for d·10000^(weight − i).

use std::fmt::Write;

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xc000;
const INFINITY: u16 = 0xd000;
const NEGATIVE_INFINITY: u16 = 0xf000;

/// The most decimals that Postgres's numeric shows.
const MAX_SCALE: usize = 16_383;
/// The most digits before the point, in groups of four.
const MAX_WEIGHT: usize = 32_767;

/// The powers of ten up to 10^38, the largest that 128 bits hold.
const POWERS: [i128; 39] = {
    let mut powers = [1; 39];
    let mut at = 1;
    while at < 39 {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// Why a value cannot be converted: the end of a sentence that begins with the column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unfit(pub(crate) &'static str);

struct Binary<'a> {
    weight: i32,
    sign: u16,
    scale: usize,
    digits: &'a [[u8; 2]],
}

impl<'a> Binary<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Unfit> {
        let malformed = Unfit("is not a numeric as Postgres sends it");
        let (&[c0, c1, w0, w1, s0, s1, d0, d1], rest) = bytes.split_first_chunk::<8>().ok_or(malformed)?;
        let (digits, extra) = rest.as_chunks::<2>();
        if digits.len() != usize::from(u16::from_be_bytes([c0, c1])) || !extra.is_empty() {
            return Err(malformed);
        }
        Ok(Binary {
            weight: i32::from(i16::from_be_bytes([w0, w1])),
            sign: u16::from_be_bytes([s0, s1]),
            scale: usize::from(u16::from_be_bytes([d0, d1])),
            digits,
        })
    }

    fn digit(&self, at: i32) -> u16 {
        let digit = usize::try_from(at).ok().and_then(|at| self.digits.get(at));
        digit.map_or(0, |digit| u16::from_be_bytes(*digit).min(9999))
    }
}

/// Appends the canonical text: what Postgres itself prints.
pub(crate) fn to_text(bytes: &[u8], text: &mut Vec<u8>) -> Result<(), Unfit> {
    let binary = Binary::parse(bytes)?;
    match binary.sign {
        NAN => text.extend_from_slice(b"NaN"),
        INFINITY => text.extend_from_slice(b"Infinity"),
        NEGATIVE_INFINITY => text.extend_from_slice(b"-Infinity"),
        POSITIVE | NEGATIVE => finite_to_text(&binary, text),
        _ => return Err(Unfit("is not a numeric as Postgres sends it")),
    }
    Ok(())
}

fn finite_to_text(binary: &Binary<'_>, text: &mut Vec<u8>) {
    if binary.sign == NEGATIVE {
        text.push(b'-');
    }
    if binary.weight < 0 {
        text.push(b'0');
    }
    for at in 0..=binary.weight {
        let group = four_digits(binary.digit(at));
        let zeros = group
            .iter()
            .take(3)
            .take_while(|&&digit| at == 0 && digit == b'0')
            .count();
        text.extend_from_slice(&group[zeros..]);
    }
    if binary.scale > 0 {
        text.push(b'.');
        let decimals_end = text.len() + binary.scale;
        let mut at = binary.weight.max(-1) + 1;
        if binary.weight < -1 {
            at = 0;
            let zeros = (-1 - binary.weight) as usize * 4;
            text.resize((text.len() + zeros).min(decimals_end), b'0');
        }
        while text.len() < decimals_end {
            text.extend_from_slice(&four_digits(binary.digit(at)));
            at += 1;
        }
        text.truncate(decimals_end);
    }
}

fn four_digits(group: u16) -> [u8; 4] {
    let digit = |power: u16| b'0' + (group / power % 10) as u8;
    [digit(1000), digit(100), digit(10), digit(1)]
}

/// The value times 10^scale, which must be whole.
pub(crate) fn to_i128(bytes: &[u8], scale: u8) -> Result<i128, Unfit> {
    let binary = Binary::parse(bytes)?;
    match binary.sign {
        POSITIVE | NEGATIVE => {}
        NAN => {
            return Err(Unfit(
                "is NaN, which a decimal cannot be; add `numeric` to `as_text` in the source's config",
            ));
        }
        _ => {
            return Err(Unfit(
                "is infinite, which a decimal cannot be; add `numeric` to `as_text` in the source's config",
            ));
        }
    }
    let unfit =
        Unfit("has more digits than its type says; add `numeric` to `as_text` in the source's config");
    let mut value: i128 = 0;
    for (at, digit) in binary.digits.iter().enumerate() {
        let digit = i128::from(u16::from_be_bytes(*digit));
        let power = (binary.weight - at as i32) * 4 + i32::from(scale);
        let scaled = if power >= 0 {
            let power = POWERS.get(power as usize).ok_or(unfit);
            if digit == 0 {
                Some(0)
            } else {
                digit.checked_mul(*power?)
            }
        } else {
            let divisor = POWERS
                .get(power.unsigned_abs() as usize)
                .copied()
                .unwrap_or(i128::MAX);
            (digit % divisor == 0).then(|| digit / divisor)
        };
        value = scaled.and_then(|scaled| value.checked_add(scaled)).ok_or(unfit)?;
    }
    Ok(if binary.sign == NEGATIVE { -value } else { value })
}

/// Appends the binary form of a decimal of this scale, without a length before it.
pub(crate) fn from_i128(value: i128, scale: u8, out: &mut Vec<u8>) {
    let magnitude = value.unsigned_abs();
    let unit = POWERS[usize::from(scale.min(38))] as u128;
    let (mut whole, mut decimals) = (magnitude / unit, magnitude % unit);
    // Ten groups hold any whole part, ten more any decimals; the leading zeros go at the end.
    const WHOLE: usize = 10;
    let mut groups = [0_u16; 20];
    for group in groups[..WHOLE].iter_mut().rev() {
        *group = (whole % 10_000) as u16;
        whole /= 10_000;
    }
    let count = usize::from(scale).div_ceil(4);
    // The last group has as many decimals as are left over.
    let mut width = usize::from(scale) - count.saturating_sub(1) * 4;
    for group in groups[WHOLE..WHOLE + count].iter_mut().rev() {
        let unit = POWERS[width] as u128;
        *group = (decimals % unit * POWERS[4 - width] as u128) as u16;
        decimals /= unit;
        width = 4;
    }
    let sign = if value < 0 { NEGATIVE } else { POSITIVE };
    write_groups(
        &groups[..WHOLE + count],
        WHOLE as i32 - 1,
        sign,
        u16::from(scale),
        out,
    );
}

/// Writes digits without leading and trailing zeros, as Postgres keeps them.
fn write_groups(groups: &[u16], weight: i32, sign: u16, scale: u16, out: &mut Vec<u8>) {
    let leading = groups.iter().take_while(|&&group| group == 0).count();
    let trailing = groups[leading..]
        .iter()
        .rev()
        .take_while(|&&group| group == 0)
        .count();
    let digits = &groups[leading..groups.len() - trailing];
    let (weight, sign) = if digits.is_empty() {
        (0, POSITIVE)
    } else {
        (weight - leading as i32, sign)
    };
    out.extend_from_slice(&(digits.len() as u16).to_be_bytes());
    out.extend_from_slice(&(weight as i16).to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&scale.to_be_bytes());
    for digit in digits {
        out.extend_from_slice(&digit.to_be_bytes());
    }
}

/// Appends the binary form of a canonical decimal text. `max_scale`: a value with more decimals than these is refused,
/// since Postgres would round it.
pub(crate) fn from_text(
    text: &[u8],
    max_scale: Option<i32>,
    groups: &mut Vec<u16>,
    out: &mut Vec<u8>,
) -> Result<(), Unfit> {
    let special = match text {
        b"NaN" => Some(NAN),
        b"Infinity" => Some(INFINITY),
        b"-Infinity" => Some(NEGATIVE_INFINITY),
        _ => None,
    };
    if let Some(sign) = special {
        write_groups(&[], 0, POSITIVE, 0, out);
        let sign_at = out.len() - 4;
        out[sign_at..sign_at + 2].copy_from_slice(&sign.to_be_bytes());
        return Ok(());
    }
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (NEGATIVE, digits),
        digits => (POSITIVE, digits),
    };
    let point = digits.iter().position(|&c| c == b'.');
    let (whole, decimals) = match point {
        Some(at) => (&digits[..at], &digits[at + 1..]),
        None => (digits, &digits[..0]),
    };
    let all_digits = |part: &[u8]| part.iter().all(u8::is_ascii_digit);
    if whole.len() + decimals.len() == 0 || !all_digits(whole) || !all_digits(decimals) {
        return Err(Unfit("is not a decimal number"));
    }
    let whole_groups = whole.len().div_ceil(4);
    if decimals.len() > MAX_SCALE || whole_groups > MAX_WEIGHT {
        return Err(Unfit("has more digits than Postgres's numeric can hold"));
    }
    if let Some(max) = max_scale
        && !fits_scale(whole, decimals, max)
    {
        return Err(Unfit(
            "has more decimals than the target column, which would round it; widen the column",
        ));
    }
    groups.clear();
    let number = |part: &[u8]| part.iter().fold(0, |sum: u16, &c| sum * 10 + u16::from(c - b'0'));
    let first = whole.len() - whole_groups.saturating_sub(1) * 4;
    groups.extend((whole_groups > 0).then(|| number(&whole[..first])));
    groups.extend(whole[first.min(whole.len())..].chunks(4).map(number));
    groups.extend(
        decimals
            .chunks(4)
            .map(|part| number(part) * [1, 1000, 100, 10, 1][part.len()]),
    );
    write_groups(groups, whole_groups as i32 - 1, sign, decimals.len() as u16, out);
    Ok(())
}

/// Whether nothing but zeros stands beyond the scale, which may be negative.
fn fits_scale(whole: &[u8], decimals: &[u8], scale: i32) -> bool {
    let zeros = |part: &[u8]| part.iter().all(|&c| c == b'0');
    match usize::try_from(scale) {
        Ok(scale) => zeros(&decimals[scale.min(decimals.len())..]),
        Err(_) => {
            let kept = whole.len().saturating_sub(scale.unsigned_abs() as usize);
            zeros(decimals) && zeros(&whole[kept..])
        }
    }
}

/// The text of a decimal, for messages.
pub(crate) fn decimal_text(value: i128, scale: u8) -> String {
    let scale = usize::from(scale);
    let digits = format!("{:0width$}", value.unsigned_abs(), width = scale + 1);
    let (whole, decimals) = digits.split_at(digits.len() - scale);
    let mut text = String::from(if value < 0 { "-" } else { "" });
    text.push_str(whole);
    if scale > 0 {
        // Writing to a String cannot fail.
        let _ = write!(text, ".{decimals}");
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encode(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        from_text(text.as_bytes(), None, &mut Vec::new(), &mut out).unwrap();
        out
    }

    fn decode(bytes: &[u8]) -> String {
        let mut text = Vec::new();
        to_text(bytes, &mut text).unwrap();
        String::from_utf8(text).unwrap()
    }

    /// Binary forms as `numeric_send` of a server gave them.
    #[test]
    fn the_binary_form_is_the_servers() {
        let cases: [(&str, &[u16]); 9] = [
            ("0", &[0, 0, 0, 0]),
            ("0.00", &[0, 0, 0, 2]),
            ("1", &[1, 0, 0, 0, 1]),
            ("-12.50", &[2, 0, 0x4000, 2, 12, 5000]),
            ("10000", &[1, 1, 0, 0, 1]),
            ("12345.678901", &[4, 1, 0, 6, 1, 2345, 6789, 100]),
            ("0.00001", &[1, 0xfffe, 0, 5, 1000]),
            ("0.0001", &[1, 0xffff, 0, 4, 1]),
            ("NaN", &[0, 0, 0xc000, 0]),
        ];
        for (text, words) in cases {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            assert_eq!(encode(text), bytes, "{text}");
            assert_eq!(decode(&bytes), text);
        }
        assert_eq!(decode(&encode("-Infinity")), "-Infinity");
    }

    #[test]
    fn what_a_decimal_cannot_hold_is_refused() {
        assert!(to_i128(&encode("NaN"), 2).unwrap_err().0.contains("as_text"));
        assert!(to_i128(&encode("Infinity"), 2).is_err());
        assert!(to_i128(&encode("0.001"), 2).is_err());
        assert!(to_i128(&encode(&"9".repeat(40)), 0).is_err());
        assert!(to_i128(&[0, 1, 0], 2).is_err());
        for wrong in ["", "-", ".", "1e5", "1.2.3", "+1", "٣", "nan"] {
            assert!(
                from_text(wrong.as_bytes(), None, &mut Vec::new(), &mut Vec::new()).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_value_that_would_be_rounded_is_refused() {
        let fits = |text: &str, scale| {
            from_text(text.as_bytes(), Some(scale), &mut Vec::new(), &mut Vec::new()).is_ok()
        };
        let cases = [
            ("1.25", 2, true),
            ("1.250", 2, true),
            ("1.251", 2, false),
            ("1200", -2, true),
            ("1250", -2, false),
            ("1200.5", -2, false),
            ("0", -5, true),
        ];
        for (text, scale, expected) in cases {
            assert_eq!(fits(text, scale), expected, "{text} with scale {scale}");
        }
    }

    #[test]
    fn a_decimal_reads_as_text() {
        assert_eq!(decimal_text(-5, 2), "-0.05");
        assert_eq!(decimal_text(1234, 0), "1234");
        assert_eq!(
            decimal_text(i128::MIN, 38),
            "-1.70141183460469231731687303715884105728"
        );
    }

    proptest! {
        #[test]
        fn any_decimal_text_survives_the_binary_form(text in "-?(0|[1-9][0-9]{0,60})(\\.[0-9]{1,60})?") {
            // Postgres knows no negative zero.
            let zero = text.bytes().all(|c| !matches!(c, b'1'..=b'9'));
            let expected = if zero { text.trim_start_matches('-') } else { &text };
            prop_assert_eq!(decode(&encode(&text)), expected);
        }

        #[test]
        fn any_decimal_survives_the_binary_form(value: i128, shift in 0_u32..128, scale in 0_u8..=38) {
            let value = (value >> shift).clamp(-POWERS[38] + 1, POWERS[38] - 1);
            let mut bytes = Vec::new();
            from_i128(value, scale, &mut bytes);
            prop_assert_eq!(to_i128(&bytes, scale), Ok(value));
            // The text is the independent reference: both ways to the binary form must agree.
            prop_assert_eq!(&bytes, &encode(&decimal_text(value, scale)));
            prop_assert_eq!(decode(&bytes), decimal_text(value, scale));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, scale in 0_u8..=38) {
            let _ = to_i128(&bytes, scale);
            let _ = to_text(&bytes, &mut Vec::new());
            let _ = from_text(&bytes, Some(i32::from(scale)), &mut Vec::new(), &mut Vec::new());
        }
    }
}
