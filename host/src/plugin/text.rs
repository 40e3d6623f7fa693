//! Text that a guest wrote, made fit for a person's terminal and log.

/// At most about `max` bytes of the text, on one line and without control characters: a guest must neither steer the
/// terminal that its message is shown on, nor begin a line there that seems to be another message.
pub(super) fn printable(text: &str, max: usize) -> String {
    let mut out = String::with_capacity(text.len().min(max));
    for char in text.chars() {
        if out.len() + char.len_utf8() > max {
            out.push('…');
            break;
        }
        match char {
            '\t' => out.push(char),
            '\n' => out.push_str("\\n"),
            '\r' => {}
            control if control.is_control() => out.push('\u{fffd}'),
            char => out.push(char),
        }
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
            "a\u{fffd}[31m\tb\\nc\u{fffd}"
        );
        assert_eq!(printable("häuser", 3), "hä…");
    }
}
