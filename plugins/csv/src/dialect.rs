//! How fields are told apart, and which of them are NULL.

use setu_sdk::{Error, Result};

/// Checked once, then used by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dialect {
    pub(crate) delimiter: u8,
    pub(crate) quote: u8,
    pub(crate) header: bool,
    nulls: Vec<Vec<u8>>,
    /// Whether the empty field is among `nulls`: the usual case, answered without a search.
    empty_is_null: bool,
}

impl Dialect {
    pub(crate) fn new(delimiter: &str, quote: &str, header: bool, nulls: &[String]) -> Result<Self> {
        let delimiter = match delimiter {
            "\\t" => b'\t',
            other => one_byte("delimiter", other)?,
        };
        let quote = one_byte("quote", quote)?;
        if delimiter == quote {
            return Err(Error::config("`delimiter` and `quote` are the same character"));
        }
        for null in nulls {
            let special = |byte: u8| byte == delimiter || byte == quote || matches!(byte, b'\r' | b'\n');
            if null.bytes().any(special) {
                return Err(Error::config(format!(
                    "`null` holds {null:?}, but a field without quotes has no delimiter, quote or line break"
                )));
            }
        }
        Ok(Dialect {
            delimiter,
            quote,
            header,
            nulls: nulls.iter().map(|null| null.as_bytes().to_vec()).collect(),
            empty_is_null: nulls.iter().any(String::is_empty),
        })
    }

    /// The fields that mean NULL.
    pub(crate) fn nulls(&self) -> &[Vec<u8>] {
        &self.nulls
    }

    /// Whether a field, if it is not quoted, means NULL.
    #[inline]
    pub(crate) fn is_null_text(&self, field: &[u8]) -> bool {
        if field.is_empty() {
            return self.empty_is_null;
        }
        self.nulls.iter().any(|null| null == field)
    }
}

fn one_byte(what: &str, text: &str) -> Result<u8> {
    match text.as_bytes() {
        [byte] if byte.is_ascii() && !matches!(byte, b'\r' | b'\n' | 0) => Ok(*byte),
        _ => Err(Error::config(format!(
            "`{what}` is {text:?}, but must be one ASCII character that is no line break"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dialect_that_cannot_be_told_apart_is_refused() {
        let new = |delimiter: &str, quote: &str, null: &str| {
            Dialect::new(delimiter, quote, true, &[null.to_owned()])
        };
        assert!(new(",", "\"", "NULL").is_ok());
        assert_eq!(new("\\t", "'", "").unwrap().delimiter, b'\t');
        for (delimiter, quote, null) in [
            ("", "\"", ""),
            ("ab", "\"", ""),
            ("é", "\"", ""),
            (",", ",", ""),
            ("\n", "\"", ""),
            (",", "\"", "a,b"),
        ] {
            assert!(
                new(delimiter, quote, null).is_err(),
                "{delimiter:?} {quote:?} {null:?}"
            );
        }
    }
}
