//! Text that a guest wrote, made fit for a person's terminal and log.

/// At most `max` bytes of the text, without control characters other than line breaks and tabs: a guest must not
/// steer the terminal that its message is shown on.
pub(super) fn printable(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    for char in text.chars() {
        if out.len() + char.len_utf8() > max {
            out.push('…');
            break;
        }
        match char {
            '\n' | '\t' => out.push(char),
            '\r' => {}
            control if control.is_control() => out.push('\u{fffd}'),
            char => out.push(char),
        }
    }
    out
}

/// The known name nearest to one that is unknown, if it is near enough to have been meant.
pub(super) fn nearest<'a>(unknown: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (unknown.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (distance(unknown, name), name))
        .filter(|(distance, _)| *distance <= limit)
        .min()
        .map(|(_, name)| name)
}

/// How many characters must be put in, taken out or exchanged, ignoring case, to turn one name into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.to_lowercase().chars().take(256).collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.to_lowercase().chars().take(256).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let change = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_sees_no_escape_sequence() {
        assert_eq!(
            printable("a\x1b[31m\tb\r\nc\0", 100),
            "a\u{fffd}[31m\tb\nc\u{fffd}"
        );
        assert_eq!(printable("häuser", 3), "hä…");
    }

    #[test]
    fn a_misspelt_name_finds_the_one_that_was_meant() {
        let known = ["delimiter", "header", "path"];
        for (unknown, expected) in [
            ("delimeter", Some("delimiter")),
            ("Header", Some("header")),
            ("pth", Some("path")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(unknown, known), expected, "{unknown}");
        }
    }
}
