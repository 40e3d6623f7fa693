//! Keeps the secrets that a connector was given out of its messages and log lines.
//!
//! This protects against accidents: a driver that quotes the connection string it could not parse. A connector that
//! wants to tell a secret can spell it in another way, and no search for texts would find it.

use serde_json::Value;

use super::marks::{self, Alternatives, Mark};
use crate::{address, printable};

/// Shorter secrets stand in every other word, and hiding them would hide nothing but the messages.
const MIN_BYTES: usize = 4;
const MASK: &str = "***";
/// The most bytes that stand for one byte of a secret: `%XX`.
const MAX_SPELLING: usize = 3;

/// The secrets of one configuration.
#[derive(Clone, Default)]
pub(super) struct Secrets(
    /// The longest first, so that none is hidden in part because it begins another one.
    Vec<String>,
);

impl Secrets {
    /// Those of a configuration: values that the schema calls secret, and passwords in URLs and connection strings.
    pub(super) fn of(schema: &Value, config: &Value) -> Secrets {
        let mut values = Vec::new();
        for marked in marks::find(schema, config, Alternatives::All) {
            match (marked.mark, marked.value) {
                (Mark::Secret, value) => collect(value, &mut values),
                (Mark::Network { .. }, Value::String(text)) => values.extend(address::passwords(text)),
                _ => {}
            }
        }
        // What was given as it stands in a URL is meant without its escapes.
        let meant: Vec<_> = values
            .iter()
            .map(|value| address::percent_decode(value))
            .collect();
        values.extend(meant);
        // Control characters are escaped in texts that are made for people, see `printable`.
        let shown: Vec<_> = values
            .iter()
            .map(|value| printable::line(value).into_owned())
            .collect();
        values.extend(shown);
        values.retain(|value| value.len() >= MIN_BYTES);
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Secrets(values)
    }

    /// The text with every secret in it replaced.
    pub(super) fn scrub(&self, text: &str) -> String {
        self.scrub_from(text, 0)
    }

    /// The end of the text, from so many bytes on, with every secret in it replaced, also one that begins before.
    pub(super) fn scrub_from(&self, text: &str, from: usize) -> String {
        let mut scrubbed = String::with_capacity(text.len() - from);
        let mut at = 0;
        while let Some(char) = text[at..].chars().next() {
            let rest = &text.as_bytes()[at..];
            match self.0.iter().find_map(|secret| spelt(secret, rest)) {
                Some(length) => {
                    at += length;
                    if at > from {
                        scrubbed.push_str(MASK);
                    }
                }
                None => {
                    if at >= from {
                        scrubbed.push(char);
                    }
                    at += char.len_utf8();
                }
            }
        }
        scrubbed
    }

    /// The most bytes that a spelling of one of them has.
    pub(super) fn longest(&self) -> usize {
        self.0.first().map_or(0, |secret| secret.len() * MAX_SPELLING)
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

/// The texts in a secret value. One that is a connection string has a password in it.
fn collect(value: &Value, values: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            values.push(text.clone());
            values.extend(address::passwords(text));
        }
        Value::Number(number) => values.push(number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, values)),
        Value::Object(members) => members.values().for_each(|member| collect(member, values)),
        Value::Null | Value::Bool(_) => {}
    }
}

/// How many bytes at the start of a text spell the secret, if they do: each byte of it as it is, or escaped as URLs,
/// forms and quotes have it. Libraries differ in what they escape, so each byte is looked at by itself.
fn spelt(secret: &str, text: &[u8]) -> Option<usize> {
    let first = *secret.as_bytes().first()?;
    if spellings(first, text) == [None, None] {
        return None;
    }
    // Where one byte can be read in two ways (`\\` is one backslash or two), both are followed.
    let mut ends = vec![0];
    let mut longer = Vec::new();
    for &byte in secret.as_bytes() {
        for &end in &ends {
            let lengths = spellings(byte, &text[end..]).into_iter().flatten();
            longer.extend(lengths.map(|length| end + length));
        }
        if longer.is_empty() {
            return None;
        }
        longer.sort_unstable();
        longer.dedup();
        (ends, longer) = (longer, ends);
        longer.clear();
    }
    ends.pop()
}

/// The lengths of the text's beginnings that stand for a byte.
fn spellings(byte: u8, text: &[u8]) -> [Option<usize>; 2] {
    let plain = match (text.first(), byte) {
        (Some(&first), _) if first == byte => Some(1),
        (Some(b'+'), b' ') => Some(1),
        _ => None,
    };
    let hex = |digit: u8| char::from(digit).to_digit(16);
    let escaped = match *text {
        [b'%', high, low, ..] => {
            let value = hex(high).zip(hex(low)).map(|(high, low)| high * 16 + low);
            (value == Some(byte.into())).then_some(3)
        }
        [b'\\', escaped, ..] => {
            let value = match escaped {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                b'"' | b'\'' | b'\\' | b'/' => escaped,
                _ => return [plain, None],
            };
            (value == byte).then_some(2)
        }
        _ => None,
    };
    [plain, escaped]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn scrub(config: Value, text: &str) -> String {
        let schema = json!({"properties": {
            "url": {"x-setu-grant": "network"},
            "secret": {"x-setu-secret": true},
            "note": {}}});
        Secrets::of(&schema, &config).scrub(text)
    }

    #[test]
    fn a_secret_is_hidden_in_every_form_that_it_was_given_in() {
        for (config, text, expected) in [
            (
                json!({"secret": "geheim"}),
                "it is geheim, geheim",
                "it is ***, ***",
            ),
            (
                json!({"secret": "ge heim/é"}),
                "ge%20heim%2F%C3%A9 ge%20heim%2f%c3%a9",
                "*** ***",
            ),
            (
                json!({"secret": "ge\"heim"}),
                r#"{"password": "ge\"heim"}"#,
                r#"{"password": "***"}"#,
            ),
            (
                json!({"secret": ["geheim", {"a": "heimlich"}]}),
                "geheim heimlich",
                "*** ***",
            ),
            (json!({"secret": 123_456}), "pin 123456", "pin ***"),
            (
                json!({"url": "postgres://u:p%40ssword@h/x"}),
                "p%40ssword and p@ssword at h",
                "*** and *** at h",
            ),
            (json!({"url": "host=h password='p@ss word'"}), "p@ss word", "***"),
            (
                json!({"secret": "postgres://u:geheim@h/x"}),
                "postgres://u:geheim@h/x, geheim",
                "***, ***",
            ),
            // As forms, paths and whoever escapes as little as possible have it.
            (
                json!({"secret": "ge heim/ü+1"}),
                "ge+heim/%C3%bc%2B1 ge%20heim/ü+1",
                "*** ***",
            ),
            (
                json!({"secret": "ge%20heim"}),
                "ge heim, ge+heim, ge%20heim",
                "***, ***, ***",
            ),
            (
                json!({"secret": "C:\\\\new"}),
                r"C:\\new C:\\\\new C:\new",
                r"*** *** C:\new",
            ),
            (json!({"secret": "ge\nheim\u{1b}"}), r"ge\nheim\u{1b}", "***"),
            (json!({"secret": "aaaa"}), "aaaaaaa ä% \\ %2", "***aaa ä% \\ %2"),
            // The longer one first.
            (json!({"secret": ["abcd", "abcdefgh"]}), "abcdefgh", "***"),
            // Too short, or no secret.
            (json!({"secret": "abc"}), "abc", "abc"),
            (json!({"secret": true}), "true", "true"),
            (
                json!({"note": "geheim", "url": "postgres://user@host/x"}),
                "geheim user host",
                "geheim user host",
            ),
        ] {
            assert_eq!(scrub(config.clone(), text), expected, "{config}");
        }
    }

    #[test]
    fn nothing_shows_the_secrets_themselves() {
        let secrets = Secrets::of(&json!({"x-setu-secret": true}), &json!("geheim"));
        assert_eq!(format!("{secrets:?}"), "1 secrets");
    }
}
