//! Dates and times, in the proleptic Gregorian calendar.

use super::Mismatch;

const NOT_A_DATE: Mismatch = Mismatch("is not a date (YYYY-MM-DD, infinity, -infinity)");
const NOT_A_TIME: Mismatch = Mismatch("is not a time of day (HH:MM:SS, perhaps with up to six decimals)");
const NOT_A_TIMESTAMP: Mismatch =
    Mismatch("is not a timestamp without time zone (YYYY-MM-DDTHH:MM:SS, perhaps with up to six decimals)");
const NOT_A_TIMESTAMP_TZ: Mismatch = Mismatch(
    "is not a timestamp with time zone (YYYY-MM-DDTHH:MM:SS, perhaps up to six decimals, then Z or ±HH:MM)",
);
const OUT_OF_RANGE: Mismatch = Mismatch("is out of the type's range");

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// Days since 1970-01-01 to year, month, day: shift to years that begin in March, so that the leap day is the last.
fn civil_from_days(days: i64) -> (i64, u8, u8) {
    const DAYS_PER_ERA: i64 = 146_097;
    // 719,468 days lie between 0000-03-01 and 1970-01-01.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(DAYS_PER_ERA);
    let day_of_era = shifted.rem_euclid(DAYS_PER_ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    // Both lie in 1..=31.
    (year, month as u8, day as u8)
}

/// The inverse of [`civil_from_days`]; the date must exist.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Appends a number with at least `width` digits.
fn write_padded(out: &mut Vec<u8>, value: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let mut at = digits.len();
    let mut rest = value;
    while rest > 0 || digits.len() - at < width {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    out.extend_from_slice(&digits[at..]);
}

fn write_days(out: &mut Vec<u8>, days: i64) {
    let (year, month, day) = civil_from_days(days);
    match year {
        0..=9999 => {}
        10_000.. => out.push(b'+'),
        _ => out.push(b'-'),
    }
    write_padded(out, year.unsigned_abs(), 4);
    out.push(b'-');
    write_padded(out, month.into(), 2);
    out.push(b'-');
    write_padded(out, day.into(), 2);
}

/// Appends days since 1970-01-01 as a date.
pub fn write_date(out: &mut Vec<u8>, days: i32) {
    match days {
        i32::MIN => out.extend_from_slice(b"-infinity"),
        i32::MAX => out.extend_from_slice(b"infinity"),
        days => write_days(out, days.into()),
    }
}

/// Appends microseconds since midnight, 0 to 86,400,000,000, as a time of day.
pub fn write_time(out: &mut Vec<u8>, micros: i64) {
    let micros = micros.unsigned_abs();
    let seconds = micros / 1_000_000;
    write_padded(out, seconds / 3600, 2);
    out.push(b':');
    write_padded(out, seconds / 60 % 60, 2);
    out.push(b':');
    write_padded(out, seconds % 60, 2);
    out.push(b'.');
    write_padded(out, micros % 1_000_000, 6);
}

/// Appends microseconds since 1970-01-01 00:00:00 as a timestamp without time zone.
pub fn write_timestamp(out: &mut Vec<u8>, micros: i64) {
    match micros {
        i64::MIN => out.extend_from_slice(b"-infinity"),
        i64::MAX => out.extend_from_slice(b"infinity"),
        micros => {
            write_days(out, micros.div_euclid(MICROS_PER_DAY));
            out.push(b'T');
            write_time(out, micros.rem_euclid(MICROS_PER_DAY));
        }
    }
}

/// Appends microseconds since 1970-01-01 00:00:00 UTC as a timestamp in UTC.
pub fn write_timestamp_tz(out: &mut Vec<u8>, micros: i64) {
    write_timestamp(out, micros);
    if micros != i64::MIN && micros != i64::MAX {
        out.push(b'Z');
    }
}

/// Reads a date as days since 1970-01-01.
pub fn parse_date(text: &[u8]) -> Result<i32, Mismatch> {
    match infinity(text) {
        Some(true) => return Ok(i32::MAX),
        Some(false) => return Ok(i32::MIN),
        None => {}
    }
    let mut rest = text;
    let days = take_days(&mut rest)
        .filter(|_| rest.is_empty())
        .ok_or(NOT_A_DATE)?;
    let finite = |days: &i32| *days != i32::MIN && *days != i32::MAX;
    i32::try_from(days).ok().filter(finite).ok_or(OUT_OF_RANGE)
}

/// Reads a time of day as microseconds since midnight; 24:00:00 is the last.
pub fn parse_time(text: &[u8]) -> Result<i64, Mismatch> {
    let mut rest = text;
    take_time(&mut rest).filter(|_| rest.is_empty()).ok_or(NOT_A_TIME)
}

/// Reads a timestamp without time zone as microseconds since 1970-01-01 00:00:00.
pub fn parse_timestamp(text: &[u8]) -> Result<i64, Mismatch> {
    if let Some(positive) = infinity(text) {
        return Ok(if positive { i64::MAX } else { i64::MIN });
    }
    let mut rest = text;
    let (days, time) = take_days_and_time(&mut rest)
        .filter(|_| rest.is_empty())
        .ok_or(NOT_A_TIMESTAMP)?;
    micros(days, time)
}

/// Reads a timestamp with a UTC offset as microseconds since 1970-01-01 00:00:00 UTC.
pub fn parse_timestamp_tz(text: &[u8]) -> Result<i64, Mismatch> {
    if let Some(positive) = infinity(text) {
        return Ok(if positive { i64::MAX } else { i64::MIN });
    }
    let mut rest = text;
    let read = |rest: &mut &[u8]| Some((take_days_and_time(rest)?, take_offset(rest)?));
    let ((days, time), offset) = read(&mut rest)
        .filter(|_| rest.is_empty())
        .ok_or(NOT_A_TIMESTAMP_TZ)?;
    micros(days, time - offset)
}

fn micros(days: i64, time: i64) -> Result<i64, Mismatch> {
    // In 128 bits: the day's start may lie before the range of which the time is part.
    let micros = i128::from(days) * i128::from(MICROS_PER_DAY) + i128::from(time);
    let micros = i64::try_from(micros).ok();
    micros
        .filter(|&m| m != i64::MIN && m != i64::MAX)
        .ok_or(OUT_OF_RANGE)
}

fn infinity(text: &[u8]) -> Option<bool> {
    if text.eq_ignore_ascii_case(b"infinity") {
        Some(true)
    } else if text.eq_ignore_ascii_case(b"-infinity") {
        Some(false)
    } else {
        None
    }
}

fn take(rest: &mut &[u8], byte: u8) -> Option<()> {
    *rest = rest.strip_prefix(&[byte])?;
    Some(())
}

/// Takes exactly `width` digits.
fn take_digits(rest: &mut &[u8], width: usize) -> Option<i64> {
    let (digits, after) = rest.split_at_checked(width)?;
    let mut value = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        value = value * 10 + i64::from(digit - b'0');
    }
    *rest = after;
    Some(value)
}

fn take_days(rest: &mut &[u8]) -> Option<i64> {
    let sign = rest.first().copied().filter(|byte| matches!(byte, b'+' | b'-'));
    let mut width = 4;
    if sign.is_some() {
        *rest = &rest[1..];
        width = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        // Years of 32-bit days and 64-bit microseconds have at most seven digits.
        if !(4..=7).contains(&width) {
            return None;
        }
    }
    let year = take_digits(rest, width)?;
    let year = if sign == Some(b'-') { -year } else { year };
    take(rest, b'-')?;
    let month = take_digits(rest, 2).filter(|month| (1..=12).contains(month))?;
    take(rest, b'-')?;
    let day = take_digits(rest, 2).filter(|day| (1..=days_in_month(year, month)).contains(day))?;
    Some(days_from_civil(year, month, day))
}

fn take_time(rest: &mut &[u8]) -> Option<i64> {
    let hour = take_digits(rest, 2).filter(|hour| *hour <= 24)?;
    take(rest, b':')?;
    let minute = take_digits(rest, 2).filter(|minute| *minute <= 59)?;
    take(rest, b':')?;
    let second = take_digits(rest, 2).filter(|second| *second <= 59)?;
    let mut micros = ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND;
    if take(rest, b'.').is_some() {
        let width = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let kept = width.min(6);
        let value = take_digits(rest, kept).filter(|_| width > 0)?;
        micros += value * 10_i64.pow((6 - kept) as u32);
        // Digits beyond the microsecond would be lost, unless they are zeros.
        while take(rest, b'0').is_some() {}
        if rest.first().is_some_and(u8::is_ascii_digit) {
            return None;
        }
    }
    (micros <= MICROS_PER_DAY).then_some(micros)
}

fn take_days_and_time(rest: &mut &[u8]) -> Option<(i64, i64)> {
    let days = take_days(rest)?;
    take(rest, b'T').or_else(|| take(rest, b' '))?;
    Some((days, take_time(rest)?))
}

/// Takes `Z`, `±HH`, `±HHMM` or `±HH:MM` as microseconds east of UTC.
fn take_offset(rest: &mut &[u8]) -> Option<i64> {
    if take(rest, b'Z').is_some() || take(rest, b'z').is_some() {
        return Some(0);
    }
    let sign = match rest.first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    *rest = &rest[1..];
    let hours = take_digits(rest, 2).filter(|hours| *hours <= 23)?;
    let mut minutes = 0;
    if !rest.is_empty() {
        let _ = take(rest, b':');
        minutes = take_digits(rest, 2).filter(|minutes| *minutes <= 59)?;
    }
    Some(sign * (hours * 60 + minutes) * 60 * MICROS_PER_SECOND)
}
