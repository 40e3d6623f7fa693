//! Dates and timestamps: between Postgres's epoch (2000) and the contract's (1970), and between the staged form of
//! their text and Postgres's own, which differ in how they write years before Christ.

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

/// A date or timestamp in its staged form as Postgres reads it: `-0044-03-15T12:00:00Z` is `0045-03-15 12:00:00+00 BC`.
pub(crate) fn literal(staged: &str) -> String {
    let (year, rest) = match split_year(staged) {
        Some(parts) => parts,
        // An infinity.
        None => return staged.to_owned(),
    };
    let rest = rest.replace('T', " ").replace('Z', "+00");
    if year > 0 {
        format!("{year:04}-{rest}")
    } else {
        format!("{:04}-{rest} BC", 1 - year)
    }
}

/// What Postgres prints for a date or timestamp, in a shape that the SDK reads: the opposite of [`literal`].
pub(crate) fn from_printed(printed: &str) -> String {
    match (printed.strip_suffix(" BC"), split_year(printed)) {
        (Some(date), Some((year, _))) if year > 0 => {
            let rest = date.split_once('-').map_or("", |(_, rest)| rest);
            format!("{}{:04}-{rest}", if year > 1 { "-" } else { "" }, year - 1)
        }
        (None, Some((year, rest))) if year > 9999 => format!("+{year}-{rest}"),
        _ => printed.to_owned(),
    }
}

/// A signed year and what follows its hyphen.
fn split_year(text: &str) -> Option<(i64, &str)> {
    let digits = text.trim_start_matches(['-', '+']);
    let (year, rest) = digits.split_once('-')?;
    let year: i64 = year.parse().ok()?;
    Some((if text.starts_with('-') { -year } else { year }, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use setu_sdk::text;

    use super::*;

    #[test]
    fn years_before_christ_and_after_9999_change_their_spelling() {
        let cases = [
            ("1970-01-01", "1970-01-01"),
            ("0000-01-01", "0001-01-01 BC"),
            ("-0044-03-15", "0045-03-15 BC"),
            ("+10000-01-01", "10000-01-01"),
            ("+5874897-12-31", "5874897-12-31"),
            ("-4712-01-01", "4713-01-01 BC"),
            ("infinity", "infinity"),
            ("-infinity", "-infinity"),
            ("0000-12-31T23:59:59.5Z", "0001-12-31 23:59:59.5+00 BC"),
        ];
        for (staged, postgres) in cases {
            assert_eq!(literal(staged), postgres);
            assert_eq!(
                from_printed(postgres).replace(' ', "T").replace("+00", "Z"),
                staged
            );
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

    proptest! {
        #[test]
        fn any_timestamp_survives_both_spellings(micros: i64) {
            let mut staged = Vec::new();
            text::write_timestamp(&mut staged, micros);
            let printed = literal(std::str::from_utf8(&staged).unwrap());
            prop_assert_eq!(text::parse_timestamp(from_printed(&printed).as_bytes()), Ok(micros), "{}", printed);
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
