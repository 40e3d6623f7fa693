//! Characters that text from elsewhere must not bring to a person's terminal.

use std::borrow::Cow;

/// Whether a character would steer a terminal, begin a line there, or change how the text around it is read: control
/// characters of both ranges, separators of lines and paragraphs, marks of direction, and what takes no room.
fn is_steering(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        )
}

/// Appends a character, or its escape.
pub(crate) fn push(shown: &mut String, c: char) {
    match c {
        '\n' => shown.push_str("\\n"),
        '\t' => shown.push_str("\\t"),
        c if is_steering(c) => shown.extend(c.escape_unicode()),
        c => shown.push(c),
    }
}

/// The text on one line.
pub(crate) fn line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_steering) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    text.chars().for_each(|c| push(&mut shown, c));
    shown.into()
}

/// JSON that means the same and holds no such character. What JSON itself escapes it may lay itself out with.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    let must_go = |c: char| c > '\x7e' && is_steering(c);
    if text.is_ascii() && !text.contains('\x7f') || !text.chars().any(must_go) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match must_go(c) {
            // All of them have four digits at most, so they need no surrogates.
            true => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => shown.push(c),
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_is_one_line_and_steers_nothing() {
        for (text, shown) in [
            ("plain häuser 🏠", "plain häuser 🏠"),
            ("a\nb\tc\r", "a\\nb\\tc\\u{d}"),
            ("\x1b[31m\x7f\u{9b}", "\\u{1b}[31m\\u{7f}\\u{9b}"),
            (
                "a\u{2028}b\u{202e}c\u{2066}\u{feff}",
                "a\\u{2028}b\\u{202e}c\\u{2066}\\u{feff}",
            ),
        ] {
            assert_eq!(line(text), shown);
        }
    }

    proptest! {
        #[test]
        fn json_means_the_same_and_steers_nothing(text in "[\\PC\\pC]*") {
            let value = serde_json::json!({ "a": text, &*text: [1] });
            let written = serde_json::to_string_pretty(&value).unwrap();
            let shown = json(&written);
            prop_assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
            prop_assert!(!shown.chars().any(|c| c != '\n' && is_steering(c)), "{}", shown);
        }
    }
}
