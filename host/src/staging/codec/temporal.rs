//! Dates and times as text, both ways, over the whole range that Arrow's integers have: chrono's years end at
//! 262,143, a Date32's at 5,881,580.
//!
//! A year from 0000 to 9999 has four digits, any other a sign and at least four (ISO 8601, expanded; year 0 is
//! 1 BC). The calendar is the proleptic Gregorian one. The smallest and the largest integer mean -infinity and
//! infinity.

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;
const DAYS_PER_ERA: i64 = 146_097;
/// From 0000-03-01, where the algorithm counts from, to 1970-01-01.
const EPOCH: i64 = 719_468;

const INFINITY: &str = "infinity";
const NEGATIVE_INFINITY: &str = "-infinity";

/// Appends a date, given in days since 1970-01-01, without quotes.
pub(super) fn write_date(days: i32, out: &mut Vec<u8>) {
    match days {
        i32::MAX => out.extend_from_slice(INFINITY.as_bytes()),
        i32::MIN => out.extend_from_slice(NEGATIVE_INFINITY.as_bytes()),
        _ => write_civil(i64::from(days), out),
    }
}

/// Appends a timestamp, given in microseconds since 1970-01-01 00:00:00, without quotes. The zone follows a finite one.
pub(super) fn write_timestamp(micros: i64, zone: &str, out: &mut Vec<u8>) {
    match micros {
        i64::MAX => out.extend_from_slice(INFINITY.as_bytes()),
        i64::MIN => out.extend_from_slice(NEGATIVE_INFINITY.as_bytes()),
        _ => {
            write_civil(micros.div_euclid(MICROS_PER_DAY), out);
            out.push(b'T');
            write_time(micros.rem_euclid(MICROS_PER_DAY), out);
            out.extend_from_slice(zone.as_bytes());
        }
    }
}

/// Appends a time, given in microseconds since midnight (0 to 24:00:00), without quotes.
pub(super) fn write_time(micros: i64, out: &mut Vec<u8>) {
    let seconds = (micros / MICROS_PER_SECOND) as u32;
    let fraction = (micros % MICROS_PER_SECOND) as u32;
    let mut text = *b"00:00:00.000000";
    put_pair(&mut text, 0, seconds / 3600);
    put_pair(&mut text, 3, seconds / 60 % 60);
    put_pair(&mut text, 6, seconds % 60);
    put_pair(&mut text, 9, fraction / 10_000);
    put_pair(&mut text, 11, fraction / 100 % 100);
    put_pair(&mut text, 13, fraction % 100);
    out.extend_from_slice(&text);
}

fn write_civil(days: i64, out: &mut Vec<u8>) {
    let (year, month, day) = civil_from_days(days);
    let mut text = *b"0000-00-00";
    put_pair(&mut text, 5, month);
    put_pair(&mut text, 8, day);
    if (0..=9999).contains(&year) {
        put_pair(&mut text, 0, year as u32 / 100);
        put_pair(&mut text, 2, year as u32 % 100);
        out.extend_from_slice(&text);
    } else {
        let sign = if year < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("{sign}{:04}", year.unsigned_abs()).as_bytes());
        out.extend_from_slice(&text[4..]);
    }
}

/// Writes two digits. `value` is below 100 and `at + 1` within the text.
fn put_pair(text: &mut [u8], at: usize, value: u32) {
    text[at] = b'0' + (value / 10) as u8;
    text[at + 1] = b'0' + (value % 10) as u8;
}

/// Year, month (1 to 12) and day (1 to 31). Years are counted from March on, so that the leap day comes last.
fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + EPOCH;
    let era = shifted.div_euclid(DAYS_PER_ERA);
    let day_of_era = shifted.rem_euclid(DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = (day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100)) as u32;
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year_of_era + next_year, month, day)
}

/// The inverse of [`civil_from_days`]; `month` and `day` are in range and the year is at most seven digits long.
fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month = i64::from(if month > 2 { month - 3 } else { month + 9 });
    let day_of_year = (153 * month + 2) / 5 + i64::from(day) - 1;
    era * DAYS_PER_ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - EPOCH
}

fn days_in_month(year: i64, month: u32) -> u32 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

/// Reads a date; none where the text is not one or is out of range.
pub(super) fn parse_date(text: &str) -> Option<i32> {
    match text {
        INFINITY => return Some(i32::MAX),
        NEGATIVE_INFINITY => return Some(i32::MIN),
        _ => {}
    }
    let (days, rest) = parse_civil(text.as_bytes())?;
    let days = i32::try_from(days).ok()?;
    (rest.is_empty() && days != i32::MAX && days != i32::MIN).then_some(days)
}

/// Reads a time from 00:00:00 to 24:00:00, with at most six digits after the point.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    let (micros, rest) = parse_clock(text.as_bytes())?;
    rest.is_empty().then_some(micros)
}

/// Reads a timestamp, which ends in `Z` if it is `zoned` and finite.
pub(super) fn parse_timestamp(text: &str, zoned: bool) -> Option<i64> {
    match text {
        INFINITY => return Some(i64::MAX),
        NEGATIVE_INFINITY => return Some(i64::MIN),
        _ => {}
    }
    let (days, rest) = parse_civil(text.as_bytes())?;
    let (clock, rest) = parse_clock(rest.strip_prefix(b"T")?)?;
    // Wider than 64 bits, as the day of the smallest timestamp begins before it.
    let micros = i128::from(days) * i128::from(MICROS_PER_DAY) + i128::from(clock);
    let micros = i64::try_from(micros).ok()?;
    let zone: &[u8] = if zoned { b"Z" } else { b"" };
    (rest == zone && micros != i64::MAX && micros != i64::MIN).then_some(micros)
}

/// Days since the epoch and what follows the date.
fn parse_civil(text: &[u8]) -> Option<(i64, &[u8])> {
    let (negative, digits) = match text.first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let length = digits.iter().take(8).take_while(|b| b.is_ascii_digit()).count();
    if !(4..=7).contains(&length) {
        return None;
    }
    let (year, rest) = digits.split_at(length);
    let year = year.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0'));
    let year = if negative { -year } else { year };
    let (month, rest) = parse_pair(rest.strip_prefix(b"-")?)?;
    let (day, rest) = parse_pair(rest.strip_prefix(b"-")?)?;
    if !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
        return None;
    }
    Some((days_from_civil(year, month, day), rest))
}

/// Microseconds since midnight and what follows the time.
fn parse_clock(text: &[u8]) -> Option<(i64, &[u8])> {
    let (hour, rest) = parse_pair(text)?;
    let (minute, rest) = parse_pair(rest.strip_prefix(b":")?)?;
    let (second, mut rest) = parse_pair(rest.strip_prefix(b":")?)?;
    let mut fraction = 0;
    if let Some(digits) = rest.strip_prefix(b".") {
        let length = digits.iter().take(7).take_while(|b| b.is_ascii_digit()).count();
        if !(1..=6).contains(&length) {
            return None;
        }
        let (given, after) = digits.split_at(length);
        fraction = given.iter().fold(0, |n, b| n * 10 + i64::from(b - b'0'));
        fraction *= 10_i64.pow(6 - length as u32);
        rest = after;
    }
    let seconds = i64::from(hour * 3600 + minute * 60 + second);
    let micros = seconds * MICROS_PER_SECOND + fraction;
    (minute < 60 && second < 60 && micros <= MICROS_PER_DAY).then_some((micros, rest))
}

fn parse_pair(text: &[u8]) -> Option<(u32, &[u8])> {
    let ([tens, units], rest) = text.split_first_chunk::<2>()?;
    let (tens, units) = (tens.wrapping_sub(b'0'), units.wrapping_sub(b'0'));
    (tens < 10 && units < 10).then(|| (u32::from(tens * 10 + units), rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn date(days: i32) -> String {
        let mut out = Vec::new();
        write_date(days, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn timestamp(micros: i64) -> String {
        let mut out = Vec::new();
        write_timestamp(micros, "", &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn dates_have_their_known_text() {
        for (days, text) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (-719_528, "0000-01-01"),
            (-719_529, "-0001-12-31"),
            (2_932_896, "9999-12-31"),
            (2_932_897, "+10000-01-01"),
            (-2_440_588, "-4713-11-24"),
            (i32::MAX, "infinity"),
            (i32::MIN, "-infinity"),
            (i32::MAX - 1, "+5881580-07-10"),
            (i32::MIN + 1, "-5877641-06-24"),
        ] {
            assert_eq!(date(days), text);
            assert_eq!(parse_date(text), Some(days), "{text}");
        }
    }

    #[test]
    fn timestamps_have_their_known_text() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000"),
            (-1, "1969-12-31T23:59:59.999999"),
            (1_714_557_600_123_456, "2024-05-01T10:00:00.123456"),
            (i64::MAX, "infinity"),
            (i64::MIN, "-infinity"),
            (i64::MAX - 1, "+294247-01-10T04:00:54.775806"),
            (i64::MIN + 1, "-290308-12-21T19:59:05.224193"),
        ] {
            assert_eq!(timestamp(micros), text);
            assert_eq!(parse_timestamp(text, false), Some(micros), "{text}");
        }
    }

    #[test]
    fn shorter_fractions_are_read_and_times_end_at_24_00() {
        for (text, micros) in [
            ("00:00:00", 0),
            ("00:00:00.5", 500_000),
            ("12:34:56.000001", 45_296_000_001),
            ("23:59:59.999999", MICROS_PER_DAY - 1),
            ("24:00:00.000000", MICROS_PER_DAY),
        ] {
            assert_eq!(parse_time(text), Some(micros), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_or_time_is_refused() {
        for wrong in [
            "",
            "-",
            "infinit",
            "Infinity",
            "2024",
            "2024-1-1",
            "2024-13-01",
            "2024-00-01",
            "2023-02-29",
            "1900-02-29",
            "2024-01-00",
            "2024-04-31",
            "2024-0e-01",
            "2024-/1-01",
            "2024-01-01 ",
            "24-01-01",
            "12345678-01-01",
            "+5881580-07-11",
            "-5877641-06-23",
            "2024-01-01T00:00:00",
            "٢٠٢٤-01-01",
        ] {
            assert_eq!(parse_date(wrong), None, "{wrong}");
        }
        for wrong in [
            "",
            "24:00:00.000001",
            "25:00:00",
            "23:60:00",
            "23:59:60",
            "1:00:00",
            "00:00",
            "00:00:00.",
            "00:00:00.0000001",
            "00:00:00Z",
            "99:59:59",
        ] {
            assert_eq!(parse_time(wrong), None, "{wrong}");
        }
        for wrong in [
            "2024-01-01",
            "2024-01-01 00:00:00",
            "2024-01-01T00:00:00Z",
            "2024-01-01T00:00:00+00",
            "+294247-01-10T04:00:54.775807",
            "-290308-12-21T19:59:05.224192",
            "+999999-01-01T00:00:00",
        ] {
            assert_eq!(parse_timestamp(wrong, false), None, "{wrong}");
        }
        assert_eq!(parse_timestamp("2024-01-01T00:00:00", true), None);
        assert_eq!(
            parse_timestamp("1970-01-02T00:00:00Z", true),
            Some(MICROS_PER_DAY)
        );
    }

    #[test]
    fn consecutive_days_are_consecutive_dates() {
        let (mut year, mut month, mut day) = (-401, 1, 1);
        for days in days_from_civil(-401, 1, 1)..days_from_civil(2402, 1, 1) {
            assert_eq!(civil_from_days(days), (year, month, day));
            assert_eq!(days_from_civil(year, month, day), days);
            day += 1;
            if day > days_in_month(year, month) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
    }

    proptest! {
        #[test]
        fn every_value_reads_back(days in any::<i32>(), micros in any::<i64>(), clock in 0..=MICROS_PER_DAY) {
            prop_assert_eq!(parse_date(&date(days)), Some(days));
            prop_assert_eq!(parse_timestamp(&timestamp(micros), false), Some(micros));
            let mut time = Vec::new();
            write_time(clock, &mut time);
            prop_assert_eq!(parse_time(std::str::from_utf8(&time).unwrap()), Some(clock));
        }

        #[test]
        fn no_text_makes_the_parsers_panic(text in "[-+0-9:.TZ\u{e4}]{0,30}") {
            let _ = (parse_date(&text), parse_time(&text), parse_timestamp(&text, true));
        }
    }
}
