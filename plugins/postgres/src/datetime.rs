//! Dates and times: between Postgres's epoch (2000) and the contract's (1970), and their texts, both the staged form
//! and the form of a Postgres literal.

use std::fmt::Write;

/// From 1970-01-01 to 2000-01-01.
const EPOCH_DAYS: i32 = 10_957;
const DAY_MICROS: i64 = 86_400_000_000;
const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * DAY_MICROS;

/// Days since 2000 to days since 1970; both sides keep their extremes for the infinities. None: out of range.
pub(crate) fn date_from_postgres(days: i32) -> Option<i32> {
    match days {
        i32::MIN | i32::MAX => Some(days),
        days => days.checked_add(EPOCH_DAYS).filter(|&days| days != i32::MAX),
    }
}

/// Days since 1970 to days since 2000.
pub(crate) fn date_to_postgres(days: i32) -> Option<i32> {
    match days {
        i32::MIN | i32::MAX => Some(days),
        days => days.checked_sub(EPOCH_DAYS).filter(|&days| days != i32::MIN),
    }
}

/// Microseconds since 2000 to microseconds since 1970. None: Postgres's last three decades, which 64 bits from 1970 on
/// do not reach.
pub(crate) fn timestamp_from_postgres(micros: i64) -> Option<i64> {
    match micros {
        i64::MIN | i64::MAX => Some(micros),
        micros => micros
            .checked_add(EPOCH_MICROS)
            .filter(|&micros| micros != i64::MAX),
    }
}

/// Microseconds since 1970 to microseconds since 2000.
pub(crate) fn timestamp_to_postgres(micros: i64) -> Option<i64> {
    match micros {
        i64::MIN | i64::MAX => Some(micros),
        micros => micros
            .checked_sub(EPOCH_MICROS)
            .filter(|&micros| micros != i64::MIN),
    }
}

/// How a text of a date looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// `YYYY-MM-DDTHH:MM:SS.ffffff`, the year signed beyond 0000 to 9999; year 0 is 1 BC.
    Staged,
    /// `YYYY-MM-DD HH:MM:SS.ffffff`, with ` BC` at the end.
    Postgres,
}

/// Days since 1970 as text.
pub(crate) fn date_text(days: i32, style: Style) -> String {
    match days {
        i32::MAX => "infinity".to_owned(),
        i32::MIN => "-infinity".to_owned(),
        days => {
            let (text, era) = day_text(i64::from(days), style);
            text + era
        }
    }
}

/// Microseconds since 1970 as text; `zone` follows the time ("Z", "+00" or nothing).
pub(crate) fn timestamp_text(micros: i64, zone: &str, style: Style) -> String {
    match micros {
        i64::MAX => "infinity".to_owned(),
        i64::MIN => "-infinity".to_owned(),
        micros => {
            let (mut text, era) = day_text(micros.div_euclid(DAY_MICROS), style);
            text.push(if style == Style::Staged { 'T' } else { ' ' });
            text.push_str(&time_text(micros.rem_euclid(DAY_MICROS)));
            text + zone + era
        }
    }
}

/// Microseconds since midnight as `HH:MM:SS.ffffff`.
pub(crate) fn time_text(micros: i64) -> String {
    let seconds = micros / 1_000_000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{:06}", micros % 1_000_000)
}

/// A day, and what must stand at the end of the text for its era.
fn day_text(days: i64, style: Style) -> (String, &'static str) {
    let (year, month, day) = civil(days);
    let mut text = String::with_capacity(32);
    let era = match style {
        Style::Staged if (0..=9999).contains(&year) => {
            // Writing to a String cannot fail, here and below.
            let _ = write!(text, "{year:04}");
            ""
        }
        Style::Staged => {
            let _ = write!(text, "{}{:04}", if year < 0 { '-' } else { '+' }, year.abs());
            ""
        }
        Style::Postgres if year > 0 => {
            let _ = write!(text, "{year:04}");
            ""
        }
        Style::Postgres => {
            let _ = write!(text, "{:04}", 1 - year);
            " BC"
        }
    };
    let _ = write!(text, "-{month:02}-{day:02}");
    (text, era)
}

/// Reads the staged form of a date.
pub(crate) fn parse_date(text: &str) -> Option<i32> {
    match text {
        "infinity" => Some(i32::MAX),
        "-infinity" => Some(i32::MIN),
        text => i32::try_from(parse_day(text)?).ok(),
    }
}

/// Reads the staged form of a timestamp, with or without its final `Z`.
pub(crate) fn parse_timestamp(text: &str) -> Option<i64> {
    match text {
        "infinity" => return Some(i64::MAX),
        "-infinity" => return Some(i64::MIN),
        _ => {}
    }
    let (day, time) = text.strip_suffix('Z').unwrap_or(text).split_once('T')?;
    let mut parts = time.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let (seconds, fraction) = seconds.split_once('.').unwrap_or((seconds, ""));
    if parts.next().is_some() || fraction.len() > 6 {
        return None;
    }
    let number = |text: &str, below: i64| unsigned(text).filter(|&n| text.len() == 2 && n < below);
    let seconds = number(hours, 24)? * 3600 + number(minutes, 60)? * 60 + number(seconds, 60)?;
    let micros = if fraction.is_empty() {
        0
    } else {
        unsigned(&format!("{fraction:0<6}"))?
    };
    // Summed in 128 bits: the very first day of the range overflows on the way.
    let total =
        i128::from(parse_day(day)?) * i128::from(DAY_MICROS) + i128::from(seconds * 1_000_000 + micros);
    i64::try_from(total).ok()
}

/// Reads what Postgres prints for a timestamp in `DateStyle` ISO and the time zone UTC.
pub(crate) fn parse_postgres_timestamp(text: &str) -> Option<i64> {
    let (text, before_christ) = text
        .strip_suffix(" BC")
        .map_or((text, false), |text| (text, true));
    let text = text.strip_suffix("+00").unwrap_or(text).replace(' ', "T");
    if !before_christ {
        return parse_timestamp(&text);
    }
    let (year, rest) = text.split_once('-')?;
    let year = unsigned(year)? - 1;
    parse_timestamp(&format!("{}{year:04}-{rest}", if year > 0 { "-" } else { "" }))
}

/// Reads what Postgres prints for a date in `DateStyle` ISO.
pub(crate) fn parse_postgres_date(text: &str) -> Option<i32> {
    match text {
        "infinity" | "-infinity" => parse_date(text),
        text => {
            let (day, era) = text.strip_suffix(" BC").map_or((text, ""), |day| (day, " BC"));
            let midnight = parse_postgres_timestamp(&format!("{day} 00:00:00{era}"));
            // Dates reach further than timestamps, but no further back.
            let days = midnight
                .map(|micros| micros.div_euclid(DAY_MICROS))
                .or_else(|| parse_day(day))?;
            i32::try_from(days).ok()
        }
    }
}

fn parse_day(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let mut parts = digits.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !(4..=7).contains(&year.len()) || month.len() != 2 || day.len() != 2 {
        return None;
    }
    let (year, month, day) = (unsigned(year)?, unsigned(month)?, unsigned(day)?);
    let year = if negative { -year } else { year };
    let days = days_from_civil(year, month, day);
    // A month or a day out of range comes back as another date.
    (civil(days) == (year, month, day)).then_some(days)
}

fn unsigned(text: &str) -> Option<i64> {
    text.bytes()
        .all(|c| c.is_ascii_digit())
        .then(|| text.parse().ok())?
}

/// Days from 0000-03-01, where leap days end the year, to 1970-01-01.
const MARCH_EPOCH: i64 = 719_468;
const DAYS_IN_400_YEARS: i64 = 146_097;

/// The proleptic Gregorian date of a day since 1970.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + MARCH_EPOCH;
    let (era, day_of_era) = (
        shifted.div_euclid(DAYS_IN_400_YEARS),
        shifted.rem_euclid(DAYS_IN_400_YEARS),
    );
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The day since 1970 of a proleptic Gregorian date.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * DAYS_IN_400_YEARS + day_of_era - MARCH_EPOCH
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_read_as_people_know_them() {
        let cases = [
            (0, "1970-01-01", "1970-01-01"),
            (10_957, "2000-01-01", "2000-01-01"),
            (11_016, "2000-02-29", "2000-02-29"),
            (-719_528, "0000-01-01", "0001-01-01 BC"),
            (-735_525, "-0044-03-15", "0045-03-15 BC"),
            (2_932_897, "+10000-01-01", "10000-01-01"),
            (2_145_042_905, "+5874897-12-31", "5874897-12-31"),
            (-2_440_551, "-4713-12-31", "4714-12-31 BC"),
            (i32::MAX, "infinity", "infinity"),
            (i32::MIN, "-infinity", "-infinity"),
        ];
        for (days, staged, postgres) in cases {
            assert_eq!(date_text(days, Style::Staged), staged);
            assert_eq!(date_text(days, Style::Postgres), postgres);
            assert_eq!(parse_date(staged), Some(days), "{staged}");
        }
        for wrong in [
            "",
            "x",
            "2024-13-01",
            "2023-02-29",
            "2024-1-1",
            "24-01-01",
            "2024-01-01-01",
            "2024-01-0١",
        ] {
            assert_eq!(parse_date(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn timestamps_read_as_people_know_them() {
        assert_eq!(
            timestamp_text(-1, "Z", Style::Staged),
            "1969-12-31T23:59:59.999999Z"
        );
        assert_eq!(
            timestamp_text(0, "", Style::Postgres),
            "1970-01-01 00:00:00.000000"
        );
        assert_eq!(timestamp_text(i64::MIN, "Z", Style::Staged), "-infinity");
        assert_eq!(time_text(DAY_MICROS), "24:00:00.000000");
        assert_eq!(parse_timestamp("1970-01-01T00:00:01"), Some(1_000_000));
        assert_eq!(parse_timestamp("1970-01-01T00:00:00.5Z"), Some(500_000));
        for wrong in [
            "1970-01-01",
            "1970-01-01T24:00:00",
            "1970-01-01T00:00",
            "1970-01-01T00:00:00.0000001",
        ] {
            assert_eq!(parse_timestamp(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_shift_between_epochs_keeps_infinities_and_refuses_what_does_not_fit() {
        assert_eq!(date_from_postgres(0), Some(10_957));
        assert_eq!(date_from_postgres(i32::MAX), Some(i32::MAX));
        assert_eq!(date_from_postgres(i32::MAX - 1), None);
        assert_eq!(date_to_postgres(i32::MIN + 5), None);
        assert_eq!(timestamp_from_postgres(i64::MIN), Some(i64::MIN));
        // 294276-12-31 23:59:59.999999, Postgres's last timestamp.
        assert_eq!(timestamp_from_postgres(9_223_371_331_199_999_999), None);
        // 4713-01-01 BC, its first, is no trouble.
        assert!(timestamp_from_postgres(-211_813_488_000_000_000).is_some());
        assert_eq!(timestamp_to_postgres(i64::MIN + 1), None);
    }

    #[test]
    fn what_postgres_prints_is_read() {
        for days in [
            0,
            -719_528,
            -735_525,
            2_932_897,
            2_145_042_905,
            -2_440_551,
            i32::MAX,
            i32::MIN,
        ] {
            let text = date_text(days, Style::Postgres);
            assert_eq!(parse_postgres_date(&text), Some(days), "{text}");
        }
        assert_eq!(
            parse_postgres_timestamp("1970-01-01 00:00:01.5+00"),
            Some(1_500_000)
        );
        assert_eq!(
            parse_postgres_timestamp("0001-12-31 23:59:59+00 BC"),
            parse_timestamp("0000-12-31T23:59:59Z")
        );
        assert_eq!(parse_postgres_timestamp("infinity"), Some(i64::MAX));
        assert_eq!(parse_postgres_timestamp("now"), None);
    }

    proptest! {
        #[test]
        fn a_timestamp_reads_back_from_its_staged_text(micros: i64) {
            let text = timestamp_text(micros, "", Style::Staged);
            prop_assert_eq!(parse_timestamp(&text), Some(micros), "{}", text);
        }

        #[test]
        fn the_shift_between_epochs_is_undone(days: i32, micros: i64) {
            if let Some(shifted) = date_from_postgres(days) {
                prop_assert_eq!(date_to_postgres(shifted), Some(days));
            }
            if let Some(shifted) = timestamp_from_postgres(micros) {
                prop_assert_eq!(timestamp_to_postgres(shifted), Some(micros));
            }
        }
    }
}
