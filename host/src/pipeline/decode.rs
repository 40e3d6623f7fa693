//! Reads typed values out of a tree of YAML, collecting mistakes instead of stopping at them.

use super::yaml::{Key, Mistake, Node, Place, Value};
use super::{Limit, LimitSpec};
use crate::nearest;

/// The mistakes found so far.
#[derive(Default)]
pub(crate) struct Decoder {
    pub(crate) mistakes: Vec<Mistake>,
}

/// A map whose keys are known to be right.
pub(crate) struct Fields<'n> {
    pub(crate) place: Place,
    /// `` `source` ``, "the pipeline": for messages.
    what: String,
    entries: &'n [(Key, Node)],
}

impl<'n> Fields<'n> {
    /// The value of a key, which may be empty; none where it is missing.
    pub(crate) fn entry(&self, name: &str) -> Option<&'n Node> {
        let (_, node) = self.entries.iter().find(|(key, _)| key.name == name)?;
        Some(node)
    }

    /// The value of a key; none where it is missing or empty.
    pub(crate) fn get(&self, name: &str) -> Option<&'n Node> {
        let node = self.entry(name)?;
        (!matches!(node.value, Value::Null)).then_some(node)
    }
}

impl Decoder {
    pub(crate) fn mistake(&mut self, place: Place, message: impl Into<String>) {
        let message = message.into();
        self.mistakes.push(Mistake { place, message });
    }

    fn wrong_type(&mut self, node: &Node, what: &str, expected: &str) {
        self.mistake(
            node.place,
            format!("{what} must be {expected}, found {}", node.kind()),
        );
    }

    /// A map with these keys and no others, none of them twice.
    pub(crate) fn fields<'n>(&mut self, node: &'n Node, what: &str, known: &[&str]) -> Option<Fields<'n>> {
        let entries = self.map(node, what)?;
        for (key, _) in entries {
            if !known.contains(&key.name.as_str()) {
                let hint = nearest::hint(&key.name, known);
                self.mistake(key.place, format!("{what} has no key `{}`{hint}", key.name));
            }
        }
        Some(Fields {
            place: node.place,
            what: what.to_owned(),
            entries,
        })
    }

    /// A map with any keys, none of them twice.
    pub(crate) fn map<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [(Key, Node)]> {
        let Value::Map(entries) = &node.value else {
            self.wrong_type(node, what, "a map");
            return None;
        };
        self.unique_keys(entries);
        Some(entries)
    }

    fn unique_keys(&mut self, entries: &[(Key, Node)]) {
        for (index, (key, _)) in entries.iter().enumerate() {
            if let Some((first, _)) = entries[..index].iter().find(|(other, _)| other.name == key.name) {
                let line = first.place.line;
                self.mistake(
                    key.place,
                    format!("the key `{}` stands twice, first on line {line}", key.name),
                );
            }
        }
    }

    /// Looks for keys that stand twice in everything below a node.
    pub(crate) fn unique_keys_below(&mut self, node: &Node) {
        match &node.value {
            Value::Map(entries) => {
                self.unique_keys(entries);
                entries.iter().for_each(|(_, node)| self.unique_keys_below(node));
            }
            Value::List(items) => items.iter().for_each(|node| self.unique_keys_below(node)),
            _ => {}
        }
    }

    /// The value of a key that must be there.
    pub(crate) fn required<'n>(&mut self, fields: &Fields<'n>, name: &str) -> Option<&'n Node> {
        let node = fields.get(name);
        if node.is_none() {
            self.mistake(fields.place, format!("{} needs the key `{name}`", fields.what));
        }
        node
    }

    pub(crate) fn list<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n [Node]> {
        let Value::List(items) = &node.value else {
            self.wrong_type(node, what, "a list");
            return None;
        };
        Some(items)
    }

    /// A text that is not empty. A number is not taken for one: what it looked like in the file is lost.
    pub(crate) fn text<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n str> {
        match &node.value {
            Value::Text { text, .. } if !text.is_empty() => Some(text),
            Value::Text { .. } => {
                self.mistake(node.place, format!("{what} must not be empty"));
                None
            }
            Value::Number(_) | Value::Boolean(_) => {
                self.wrong_type(node, what, "a text (put it in quotes)");
                None
            }
            _ => {
                self.wrong_type(node, what, "a text");
                None
            }
        }
    }

    /// A list of texts; a text alone is a list of one.
    pub(crate) fn texts(&mut self, node: &Node, what: &str) -> Vec<String> {
        if let Value::Text { .. } = node.value {
            return self.text(node, what).map(str::to_owned).into_iter().collect();
        }
        let items = self.list(node, what).unwrap_or_default();
        items
            .iter()
            .filter_map(|item| self.text(item, &format!("an entry of {what}")))
            .map(str::to_owned)
            .collect()
    }

    /// One of a few words.
    pub(crate) fn word<T: Copy>(&mut self, node: &Node, what: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(node, what)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let names: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            let hint = nearest::hint(text, &names);
            let shown = match &node.value {
                // It may be a secret that was meant for another place.
                Value::Text {
                    from_variable: true, ..
                } => "the variable's value".to_owned(),
                _ => format!("`{text}`"),
            };
            self.mistake(node.place, format!("{shown} is no {what}{hint}"));
        }
        found.map(|(_, value)| *value)
    }

    /// A whole number of at least 1. Text will do where it reads as one, since variables are text.
    pub(crate) fn positive(&mut self, node: &Node, what: &str) -> Option<u64> {
        let number = match &node.value {
            Value::Number(number) => number.as_u64(),
            Value::Text { text, .. } => text.parse().ok(),
            _ => None,
        };
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            match node.value {
                Value::Number(_) => {
                    self.mistake(node.place, format!("{what} must be a whole number of at least 1"))
                }
                _ => self.wrong_type(node, what, "a whole number of at least 1"),
            }
        }
        number
    }

    /// What stands under `limits:`.
    pub(crate) fn limits(&mut self, node: &Node) -> LimitSpec {
        let keys = Limit::ALL.map(Limit::name);
        let Some(fields) = self.fields(node, "`limits`", &keys) else {
            return LimitSpec::default();
        };
        let mut limits = LimitSpec::default();
        for limit in Limit::ALL {
            let Some(node) = fields.get(limit.name()) else {
                continue;
            };
            let what = format!("`limits.{}`", limit.name());
            match self.positive(node, &what) {
                Some(101..) if limit == Limit::CpuPercent => {
                    self.mistake(node.place, format!("{what} must be at most 100"));
                }
                Some(value) => limits.set(limit, value),
                None => {}
            }
        }
        limits
    }

    /// `true` or `false`, also as text, since variables are text.
    pub(crate) fn boolean(&mut self, node: &Node, what: &str) -> Option<bool> {
        match &node.value {
            Value::Boolean(value) => Some(*value),
            Value::Text { text, .. } if text == "true" => Some(true),
            Value::Text { text, .. } if text == "false" => Some(false),
            _ => {
                self.wrong_type(node, what, "true or false");
                None
            }
        }
    }
}
