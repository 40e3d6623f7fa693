//! `${VAR}` and `${VAR:-default}` in the texts of a pipeline file.
//!
//! A value is text whatever it looks like: a password of digits stays one. `$${` writes a literal `${`; a `$` before
//! anything else stands for itself, so that passwords and connection strings need no care.

use std::ffi::OsString;

/// Where variables come from: the environment, or a test's table. None: it is not set. An error says why a pipeline
/// may not have it, and the way out.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Result<Option<OsString>, String>;

/// A text with its variables replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Substituted {
    pub(super) text: String,
    /// Part of the text came from a variable, and may be a secret.
    pub(super) from_variable: bool,
    /// One for each variable that could not be replaced; none of them shows a value.
    pub(super) mistakes: Vec<String>,
}

/// Replaces every variable in `text`.
pub(super) fn substitute(text: &str, lookup: Lookup<'_>) -> Substituted {
    let mut done = Substituted {
        text: String::with_capacity(text.len()),
        from_variable: false,
        mistakes: Vec::new(),
    };
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            done.text.push_str(before);
            done.text.push_str("${");
            rest = &from[2..];
            continue;
        }
        done.text.push_str(before);
        let Some((reference, after)) = from[2..].split_once('}') else {
            done.mistakes
                .push("`${` without `}`; write `$${` for a literal `${`".into());
            return done;
        };
        match resolve(reference, lookup) {
            Ok(value) => done.text.push_str(&value),
            Err(mistake) => done.mistakes.push(mistake),
        }
        done.from_variable = true;
        rest = after;
    }
    done.text.push_str(rest);
    done
}

/// The value of what stands between `${` and `}`.
fn resolve(reference: &str, lookup: Lookup<'_>) -> Result<String, String> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    if !is_name(name) {
        return Err(
            "`${…}` must hold a variable's name, or `NAME:-default`; write `$${` for a literal `${`".into(),
        );
    }
    match (lookup(name)?, default) {
        (Some(value), Some(default)) if value.is_empty() => Ok(default.to_owned()),
        (Some(value), _) => value
            .into_string()
            .map_err(|_| format!("the variable {name} is not valid UTF-8")),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!(
            "the variable {name} is not set; set it, or write `${{{name}:-default}}`"
        )),
    }
}

/// Whether a text is a name as shells have it.
pub(crate) fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    fn lookup(name: &str) -> Result<Option<OsString>, String> {
        Ok(match name {
            "HOST" => Some("db.internal".into()),
            "EMPTY" => Some("".into()),
            "NESTED" => Some("${HOST}".into()),
            "LATIN" => Some(OsString::from_vec(vec![0xe9])),
            "SECRET" => return Err("SECRET is not for pipelines".into()),
            _ => None,
        })
    }

    #[test]
    fn variables_are_replaced_once_and_dollars_left_alone() {
        for (text, expected, from_variable) in [
            ("plain", "plain", false),
            ("${HOST}", "db.internal", true),
            ("a ${HOST}:${PORT:-5432} b", "a db.internal:5432 b", true),
            ("${EMPTY}|${EMPTY:-x}|${NONE:-}", "|x|", true),
            ("${NONE:-a:-b}", "a:-b", true),
            // What a variable holds is not looked at again.
            ("${NESTED}", "${HOST}", true),
            ("pa$$word $HOME $5 $", "pa$$word $HOME $5 $", false),
            ("$${HOST} costs $$", "${HOST} costs $$", false),
            ("é${HOST}é", "édb.internalé", true),
        ] {
            let substituted = substitute(text, &lookup);
            assert_eq!(substituted.text, expected, "{text}");
            assert_eq!(substituted.from_variable, from_variable, "{text}");
            assert_eq!(substituted.mistakes, [] as [String; 0], "{text}");
        }
    }

    #[test]
    fn every_variable_that_cannot_be_replaced_is_named() {
        for (text, expected) in [
            (
                "${A}${HOST}${B}",
                &[
                    "the variable A is not set; set it, or write `${A:-default}`",
                    "the variable B is not set; set it, or write `${B:-default}`",
                ][..],
            ),
            ("${LATIN}", &["the variable LATIN is not valid UTF-8"]),
            ("${SECRET} ${SECRET:-x}", &["SECRET is not for pipelines"; 2]),
            ("${HOST", &["`${` without `}`; write `$${` for a literal `${`"]),
            (
                "${1A} ${} ${A-b}",
                &["`${…}` must hold a variable's name, or `NAME:-default`; write `$${` for a literal `${`";
                    3],
            ),
        ] {
            assert_eq!(substitute(text, &lookup).mistakes, expected, "{text}");
        }
    }
}
