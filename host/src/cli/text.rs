//! Numbers, sizes, times and tables for people.

use std::time::Duration;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::printable;

/// `1,234,567`
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 row`, `2 rows`: a count with its noun, which takes an `s`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", count(number))
}

/// `512 B`, `1.5 KiB`, `30.0 MiB`
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = UNITS[0];
    for larger in &UNITS[1..] {
        // 1023.95 would be shown as 1024.0.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    format!("{value:.1} {unit}")
}

/// `0.3 s`, `42 s`, `3 min 20 s`, `2 h 5 min`
pub(super) fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A text on one line without control characters, at most `width` columns wide; `…` stands for what was cut off.
pub(super) fn cell(text: &str, width: usize) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        printable::push(&mut shown, c);
        if shown.len() > 16 * width.max(1) {
            break;
        }
    }
    if shown.width() <= width {
        return shown;
    }
    let mut used = 1;
    let kept: String = shown
        .chars()
        .take_while(|c| {
            used += c.width().unwrap_or(0);
            used <= width
        })
        .collect();
    kept + "…"
}

/// How the cells of a column are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// Rows of cells in aligned columns, two spaces apart.
#[derive(Debug, Default)]
pub(super) struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(columns: &[(&str, Align)]) -> Table {
        Table {
            columns: columns
                .iter()
                .map(|(name, align)| ((*name).to_owned(), *align))
                .collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of as many cells as there are columns.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let header: Vec<String> = self.columns.iter().map(|(name, _)| name.clone()).collect();
        let lines = || std::iter::once(&header).chain(&self.rows);
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                lines()
                    .filter_map(|line| line.get(column))
                    .map(|cell| cell.width())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        for line in lines() {
            let mut text = String::new();
            for ((cell, width), (_, align)) in line.iter().zip(&widths).zip(&self.columns) {
                let padding = " ".repeat(width.saturating_sub(cell.width()));
                match align {
                    Align::Left => text.extend([cell, &*padding]),
                    Align::Right => text.extend([&*padding, cell]),
                }
                text.push_str("  ");
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_sizes_have_units() {
        for (number, expected) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(number), expected);
        }
        assert_eq!(
            (counted(1, "row"), counted(2000, "row")),
            ("1 row".into(), "2,000 rows".into())
        );
        for (bytes, expected) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1_048_575, "1.0 MiB"),
            (5 << 30, "5.0 GiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(size(bytes), expected, "{bytes}");
        }
        for (millis, expected) in [
            (40, "0.0 s"),
            (9_949, "9.9 s"),
            (42_000, "42 s"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), expected);
        }
    }

    #[test]
    fn a_cell_is_one_line_of_bounded_width_without_control_characters() {
        for (text, width, expected) in [
            ("plain", 5, "plain"),
            ("longer", 5, "long…"),
            ("a\nb\t", 9, "a\\nb\\t"),
            ("\u{1b}[31mred", 20, "\\u{1b}[31mred"),
            ("\u{202e}abc", 20, "\\u{202e}abc"),
            ("日本語", 6, "日本語"),
            ("日本語", 5, "日本…"),
            ("", 5, ""),
        ] {
            assert_eq!(cell(text, width), expected, "{text:?}");
        }
        assert!(cell(&"x".repeat(1 << 20), 40).len() < 60);
    }

    #[test]
    fn a_table_lines_its_columns_up() {
        let mut table = Table::new(&[
            ("NAME", Align::Left),
            ("ROWS", Align::Right),
            ("KEY", Align::Left),
        ]);
        table.row(vec!["a".into(), "1,000".into(), "id".into()]);
        table.row(vec!["日本".into(), "7".into(), String::new()]);
        assert_eq!(
            table.to_string(),
            "NAME   ROWS  KEY\na     1,000  id\n日本      7\n"
        );
    }
}
