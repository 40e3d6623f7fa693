//! Where a read was when it returned a batch: the key of its last row, and the window that it reads.

use serde::{Deserialize, Serialize};
use setu_sdk::{Error, Result};

/// A position, as JSON: opaque to everyone else, readable to whoever debugs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Position {
    /// What [`storage`](crate::catalog::storage) said of the table.
    pub(crate) table: String,
    /// The names of the key's columns.
    pub(crate) key: Vec<String>,
    /// Their values in the last row returned, as texts of Postgres literals.
    pub(crate) after: Vec<String>,
    /// The window's upper bound, pinned by the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<Upper>,
}

/// The upper bound of a cursor window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upper {
    /// In the staged form; none: no row had a cursor value.
    pub(crate) until: Option<String>,
}

impl Position {
    /// The bytes that travel.
    pub(crate) fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self)
            .map_err(|error| Error::internal(format!("a position cannot be written: {error}")))
    }

    /// Reads a position of a read of this table by this key and with or without a window.
    ///
    /// # Errors
    /// `conflict` where it belongs to another table, table shape or request; the host then starts over.
    pub(crate) fn decode(bytes: &[u8], table: &str, key: &[String], windowed: bool) -> Result<Position> {
        let position: Position = serde_json::from_slice(bytes)
            .map_err(|error| Error::conflict(format!("the position to resume at cannot be read: {error}")))?;
        if position.table != table {
            return Err(Error::conflict(
                "the table was made anew, emptied or rewritten since its rows were read",
            ));
        }
        if position.key != key || position.after.len() != key.len() {
            return Err(Error::conflict(format!(
                "the position to resume at is by ({}), the table's key is ({})",
                position.key.join(", "),
                key.join(", ")
            )));
        }
        if position.window.is_some() != windowed {
            return Err(Error::conflict(
                "the position to resume at belongs to a read of another kind",
            ));
        }
        Ok(position)
    }
}

#[cfg(test)]
mod tests {
    use setu_sdk::ErrorKind;

    use super::*;

    #[test]
    fn a_position_reads_back_for_the_same_read_only() {
        let key = ["id".to_owned(), "näme".to_owned()];
        let position = Position {
            table: "1/2/3".to_owned(),
            key: key.to_vec(),
            after: vec!["-1".to_owned(), "it's \"x\"\n".to_owned()],
            window: Some(Upper { until: None }),
        };
        let bytes = position.encode().unwrap();
        assert_eq!(Position::decode(&bytes, "1/2/3", &key, true), Ok(position));
        let refusals = [
            Position::decode(&bytes, "1/2/4", &key, true),
            Position::decode(&bytes, "1/2/3", &key, false),
            Position::decode(&bytes, "1/2/3", &key[..1], true),
            Position::decode(b"{}", "1/2/3", &key, true),
            Position::decode(b"", "1/2/3", &key, true),
        ];
        for refusal in refusals {
            assert_eq!(refusal.unwrap_err().kind(), ErrorKind::Conflict);
        }
    }
}
