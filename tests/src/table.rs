//! Small things that several tests need.

use std::time::{Duration, Instant};

/// Parses CSV text (RFC 4180), telling the empty field (`None`, a NULL) from the quoted empty field.
///
/// Written apart from the connector that it checks, and simple rather than fast.
pub fn csv_rows(text: &str) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut field = String::new();
    let (mut quoted, mut was_quoted) = (false, false);
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => {
                quoted = !quoted;
                was_quoted = true;
            }
            ',' | '\n' if !quoted => {
                let value = std::mem::take(&mut field);
                row.push((was_quoted || !value.is_empty()).then_some(value));
                was_quoted = false;
                if character == '\n' {
                    rows.push(std::mem::take(&mut row));
                }
            }
            '\r' if !quoted && characters.peek() == Some(&'\n') => {}
            other => field.push(other),
        }
    }
    if !row.is_empty() || !field.is_empty() || was_quoted {
        row.push((was_quoted || !field.is_empty()).then_some(field));
        rows.push(row);
    }
    rows
}

/// Waits for a condition that another process brings about.
///
/// # Panics
/// After a minute, with the name of what never happened.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
