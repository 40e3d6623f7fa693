//! Keeps the secrets that a connector was given out of its messages and log lines.
//!
//! This protects against accidents: a driver that quotes the connection string it could not parse. A connector that
//! wants to tell a secret can spell it in another way, and no search for texts would find it.

use std::fmt::Write;

use serde_json::Value;

use super::marks::{self, Alternatives, Mark};
use crate::address;

/// Shorter secrets stand in every other word, and hiding them would hide nothing but the messages.
const MIN_BYTES: usize = 4;
const MASK: &str = "***";

/// The secrets of one configuration, in every form that is looked for.
#[derive(Clone, Default)]
pub(super) struct Secrets(
    /// The longest first, so that none is hidden in part because it holds another one.
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
        let encoded: Vec<_> = values.iter().flat_map(|value| encodings(value)).collect();
        values.extend(encoded);
        values.retain(|value| value.len() >= MIN_BYTES);
        values.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        values.dedup();
        Secrets(values)
    }

    /// The text with every secret in it replaced.
    pub(super) fn scrub(&self, text: &str) -> String {
        let mut scrubbed = text.to_owned();
        for secret in &self.0 {
            if scrubbed.contains(secret.as_str()) {
                scrubbed = scrubbed.replace(secret.as_str(), MASK);
            }
        }
        scrubbed
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

/// How a text stands in a URL, with all that may be escaped escaped, and within quotes.
fn encodings(text: &str) -> [String; 3] {
    let percent = |upper: bool| {
        let mut out = String::new();
        for byte in text.bytes() {
            // Writing to a string cannot fail.
            let _ = match byte {
                byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                    out.push(char::from(byte));
                    Ok(())
                }
                byte if upper => write!(out, "%{byte:02X}"),
                byte => write!(out, "%{byte:02x}"),
            };
        }
        out
    };
    let quoted = format!("{text:?}");
    [
        percent(true),
        percent(false),
        quoted[1..quoted.len() - 1].to_owned(),
    ]
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
