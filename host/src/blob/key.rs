//! The rule for keys, the same for every backend.

use std::fmt;

use super::BlobError;

/// The longest key in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// A checked key: relative, no empty, `.` or `..` segment, no NUL, no backslash, at most [`MAX_KEY_BYTES`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(String);

impl Key {
    /// Checks a key.
    pub fn new(key: impl Into<String>) -> Result<Key, BlobError> {
        let key = key.into();
        match broken_rule(&key) {
            None => Ok(Key(key)),
            Some(reason) => Err(BlobError::InvalidKey { key, reason }),
        }
    }

    /// A key that is valid by construction.
    pub(crate) fn known_valid(key: String) -> Key {
        debug_assert_eq!(broken_rule(&key), None, "{key:?}");
        Key(key)
    }

    /// Whether there is any key that starts with this text.
    pub(super) fn may_start_with(prefix: &str) -> bool {
        prefix.is_empty()
            || [prefix, &format!("{prefix}x")]
                .iter()
                .any(|key| broken_rule(key).is_none())
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Keys compare as their text does.
impl std::borrow::Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The rule that a text breaks as a key, in words that follow "is not a valid key:".
fn broken_rule(key: &str) -> Option<&'static str> {
    if key.is_empty() {
        return Some("it is empty");
    }
    if key.len() > MAX_KEY_BYTES {
        return Some("it is longer than 1,024 bytes");
    }
    if key.contains('\0') {
        return Some("it holds a NUL");
    }
    if key.contains('\\') {
        return Some("it holds a backslash");
    }
    if key.starts_with('/') {
        return Some("it starts with `/`; keys are relative");
    }
    key.split('/').find_map(|segment| match segment {
        "" => Some("it has an empty segment"),
        "." | ".." => Some("it has a segment `.` or `..`"),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_is_accepted_or_refused_by_the_rule_that_it_breaks() {
        let longest = "k".repeat(MAX_KEY_BYTES);
        for valid in [
            "a",
            "a/b",
            ".a",
            "a.",
            "...",
            "a/..b",
            "a b",
            "ü/日本",
            "a\n",
            "*?:\"<>|",
            &longest,
        ] {
            assert_eq!(Key::new(valid).unwrap().as_str(), valid);
        }
        let too_long = "k".repeat(MAX_KEY_BYTES + 1);
        let too_long_in_bytes = "ü".repeat(MAX_KEY_BYTES / 2 + 1);
        for (invalid, word) in [
            ("", "empty"),
            ("/", "relative"),
            ("/a", "relative"),
            ("a/", "empty segment"),
            ("a//b", "empty segment"),
            (".", "`.`"),
            ("..", "`..`"),
            ("a/./b", "`.`"),
            ("a/../b", "`..`"),
            ("a/..", "`..`"),
            ("a\0", "NUL"),
            ("a\\b", "backslash"),
            ("..\\b", "backslash"),
            (&too_long, "1,024"),
            (&too_long_in_bytes, "1,024"),
        ] {
            match Key::new(invalid) {
                Err(BlobError::InvalidKey { key, reason }) => {
                    assert_eq!(key, invalid);
                    assert!(reason.contains(word), "{invalid:?}: {reason}");
                }
                other => panic!("{invalid:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_prefix_that_no_key_has_is_known() {
        let longest = "k".repeat(MAX_KEY_BYTES);
        for prefix in ["", "a", "a/", "..", "a/.", &longest] {
            assert!(Key::may_start_with(prefix), "{prefix:?}");
        }
        let too_long = "k".repeat(MAX_KEY_BYTES + 1);
        for prefix in ["/", "a//", "../", "./a", "\\", "\0", &too_long] {
            assert!(!Key::may_start_with(prefix), "{prefix:?}");
        }
    }

    proptest! {
        /// A valid key, resolved as a path, never climbs and never starts anew.
        #[test]
        fn a_valid_key_stays_beneath_its_root(text in "[a./\\\\\0 ü-]{0,12}") {
            if let Ok(key) = Key::new(text.clone()) {
                prop_assert_eq!(key.as_str(), &text);
                let path = std::path::Path::new(key.as_str());
                prop_assert!(path.components().all(|c| matches!(c, std::path::Component::Normal(_))));
                prop_assert_eq!(path.components().count(), text.split('/').count());
            }
        }
    }
}
