//! Text that a guest wrote, made fit for a person's terminal and log.

use crate::printable;

/// At most about `max` bytes of the text, on one line: a guest must neither steer the terminal that its message is
/// shown on, nor begin a line there that seems to be another message.
pub(super) fn printable(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    // Line ends of Windows are line ends.
    for char in text.chars().filter(|char| *char != '\r') {
        if out.len() + char.len_utf8() > max {
            out.push('…');
            break;
        }
        printable::push(&mut out, char);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_sees_no_escape_sequence() {
        assert_eq!(
            printable("a\x1b[31m\tb\r\nc\0", 100),
            "a\\u{1b}[31m\\tb\\nc\\u{0}"
        );
        assert_eq!(
            printable("a\u{202e}b\u{2028}c\u{9b}d", 100),
            "a\\u{202e}b\\u{2028}c\\u{9b}d"
        );
        assert_eq!(printable("häuser", 3), "hä…");
    }
}
