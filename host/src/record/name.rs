//! Names of streams.

use std::fmt;
use std::str::FromStr;

/// The name of a stream: in a database, schema and table.
///
/// Its text form is the **qualified name**, `namespace.name`, or `name` alone. A part that holds a dot or a double
/// quote is put in double quotes, and a double quote in it is doubled, so that no two names share a text form:
/// `public.orders`, `"2024.01".orders`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamName {
    /// A database schema, for example.
    pub namespace: Option<String>,
    /// A table, for example.
    pub name: String,
}

impl StreamName {
    /// A name within a namespace.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        StreamName {
            namespace: Some(namespace.into()),
            name: name.into(),
        }
    }

    /// A name without a namespace.
    pub fn bare(name: impl Into<String>) -> Self {
        StreamName {
            namespace: None,
            name: name.into(),
        }
    }
}

impl fmt::Display for StreamName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |f: &mut fmt::Formatter<'_>, part: &str| {
            if part.contains(['.', '"']) {
                write!(f, "\"{}\"", part.replace('"', "\"\""))
            } else {
                f.write_str(part)
            }
        };
        if let Some(namespace) = &self.namespace {
            part(f, namespace)?;
            f.write_str(".")?;
        }
        part(f, &self.name)
    }
}

/// A text that is no qualified name.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{0}` is not a stream name: write `name` or `namespace.name`, and put a part that holds a dot or a quote in double quotes"
)]
pub struct ParseNameError(pub String);

impl FromStr for StreamName {
    type Err = ParseNameError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseNameError(text.to_owned());
        let (first, rest) = parse_part(text).ok_or_else(error)?;
        if rest.is_empty() {
            return Ok(StreamName::bare(first));
        }
        let (second, rest) = rest.strip_prefix('.').and_then(parse_part).ok_or_else(error)?;
        if rest.is_empty() {
            Ok(StreamName::new(first, second))
        } else {
            Err(error())
        }
    }
}

/// Splits the first part off; none where it is empty or its quotes do not close.
fn parse_part(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('"') else {
        let end = text.find('.').unwrap_or(text.len());
        let (part, rest) = text.split_at(end);
        return (!part.is_empty() && !part.contains('"')).then(|| (part.to_owned(), rest));
    };
    let mut part = String::new();
    loop {
        let (before, after) = rest.split_once('"')?;
        part.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                part.push('"');
                rest = after;
            }
            None => return (!part.is_empty()).then_some((part, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn qualified_names_have_one_spelling() {
        let cases = [
            (StreamName::new("public", "orders"), "public.orders"),
            (StreamName::bare("orders"), "orders"),
            (StreamName::bare("orders.2024"), "\"orders.2024\""),
            (StreamName::new("a.b", "c"), "\"a.b\".c"),
            (StreamName::new("a", "say \"hi\""), "a.\"say \"\"hi\"\"\""),
        ];
        for (name, text) in cases {
            assert_eq!(name.to_string(), text);
            assert_eq!(text.parse(), Ok(name));
        }
        for wrong in ["", ".", "a.", ".a", "a.b.c", "\"a", "\"\"", "a\"b", "\"a\"b"] {
            assert_eq!(
                wrong.parse::<StreamName>(),
                Err(ParseNameError(wrong.into())),
                "{wrong}"
            );
        }
    }

    proptest! {
        #[test]
        fn every_name_reads_back(namespace in proptest::option::of(".+"), name in ".+") {
            let name = StreamName { namespace, name };
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }
    }
}
