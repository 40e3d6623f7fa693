//! Names and texts as they stand in SQL. Nothing else in this crate puts quotes around anything.

use setu_sdk::StreamName;

/// An identifier in double quotes, whatever it holds.
pub(crate) fn ident(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text literal that means the same whatever `standard_conforming_strings` is.
pub(crate) fn literal(text: &str) -> String {
    let quoted = text.replace('\'', "''");
    if text.contains('\\') {
        format!(" E'{}'", quoted.replace('\\', "\\\\"))
    } else {
        format!("'{quoted}'")
    }
}

/// Identifiers separated by commas.
pub(crate) fn idents<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(ident).collect();
    quoted.join(", ")
}

/// A table within its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table {
    pub(crate) schema: String,
    pub(crate) name: String,
}

impl Table {
    pub(crate) fn new(schema: impl Into<String>, name: impl Into<String>) -> Self {
        Table {
            schema: schema.into(),
            name: name.into(),
        }
    }

    /// `"schema"."name"`.
    pub(crate) fn sql(&self) -> String {
        format!("{}.{}", ident(&self.schema), ident(&self.name))
    }
}

impl std::fmt::Display for Table {
    /// As people write it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        StreamName::new(&*self.schema, &*self.name).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_quoted_whatever_they_hold() {
        assert_eq!(ident("Order Lines"), "\"Order Lines\"");
        assert_eq!(ident("a\"; DROP TABLE b; --"), "\"a\"\"; DROP TABLE b; --\"");
        assert_eq!(idents(["a", "ü.x"]), "\"a\", \"ü.x\"");
        assert_eq!(literal("it's"), "'it''s'");
        assert_eq!(literal(r"a\'b"), r" E'a\\''b'");
        let table = Table::new("a.b", "c");
        assert_eq!(
            (table.sql(), table.to_string()),
            ("\"a.b\".\"c\"".into(), "\"a.b\".c".into())
        );
    }
}
