//! Which of the source's streams are moved, and how: the entries of a pipeline applied to what was discovered.
//!
//! Pure functions; the runner and the command line ask them, so that `setu plan` shows what `setu run` does.

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};

use super::{ReadMode, StreamSpec};
use crate::connector::{Error, ErrorKind, WriteMode};
use crate::nearest::{self, nearest};
use crate::record::{StreamInfo, StreamName};

/// A stream that is moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selected {
    /// As the source described it.
    pub stream: StreamInfo,
    /// All rows, or those that are new.
    pub mode: ReadMode,
    /// The cursor field: there is one just when the mode is incremental.
    pub cursor: Option<String>,
    /// What happens to existing rows.
    pub write: WriteMode,
}

/// Every mistake that [`select`] found, as one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectError(pub Vec<String>);

impl fmt::Display for SelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for SelectError {}

impl From<SelectError> for Error {
    fn from(error: SelectError) -> Error {
        Error::new(ErrorKind::Config, error.to_string())
    }
}

/// Applies the entries of a pipeline to the streams of its source.
///
/// The first entry that matches a stream decides about it. A plain name must exist, and a pattern must match
/// something. The result is in the order of the entries, and for a pattern in that of the source.
pub fn select(entries: &[StreamSpec], discovered: &[StreamInfo]) -> Result<Vec<Selected>, SelectError> {
    let mut selected = Vec::new();
    let mut mistakes = Vec::new();
    let mut taken = vec![false; discovered.len()];
    for entry in entries {
        let place = entry
            .place
            .as_ref()
            .map(|place| format!("{place}: "))
            .unwrap_or_default();
        let indices = match matching(entry, discovered) {
            Ok(indices) => indices,
            Err(message) => {
                mistakes.push(in_one_line(&format!("{place}{message}")));
                continue;
            }
        };
        for index in indices {
            if std::mem::replace(&mut taken[index], true) {
                continue;
            }
            match decide(entry, &discovered[index]) {
                Ok(decided) => selected.push(decided),
                Err(message) => {
                    let name = &discovered[index].name;
                    mistakes.push(in_one_line(&format!("{place}stream `{name}`: {message}")));
                }
            }
        }
    }
    if mistakes.is_empty() {
        Ok(selected)
    } else {
        Err(SelectError(mistakes))
    }
}

/// A name may hold line breaks, and must not seem to begin another mistake.
fn in_one_line(text: &str) -> String {
    text.replace('\n', "\\n")
}

/// Compiles a name as a pattern; none where it is a plain name. In a pattern `*` matches any characters, `?` one,
/// `[ab]` one of them and `{a,b}` either; `\` takes the next character as it is.
pub(super) fn pattern(name: &str) -> Result<Option<GlobMatcher>, String> {
    if !name.contains(['*', '?', '[', '{']) {
        return Ok(None);
    }
    GlobBuilder::new(name)
        .backslash_escape(true)
        .build()
        .map(|glob| Some(glob.compile_matcher()))
        .map_err(|error| format!("`{name}` is not a pattern: {}", error.kind()))
}

/// The positions of the streams that an entry names.
fn matching(entry: &StreamSpec, discovered: &[StreamInfo]) -> Result<Vec<usize>, String> {
    let parsed: Option<StreamName> = entry.name.parse().ok();
    // A stream may be named like a pattern: the name itself goes first.
    if let Some(index) = discovered
        .iter()
        .position(|stream| Some(&stream.name) == parsed.as_ref())
    {
        return Ok(vec![index]);
    }
    let Some(pattern) = pattern(&entry.name)? else {
        return Err(missing(entry, parsed.as_ref(), discovered));
    };
    let matches = |stream: &StreamInfo| pattern.is_match(stream.name.to_string());
    let indices: Vec<usize> = (0..discovered.len())
        .filter(|i| matches(&discovered[*i]))
        .collect();
    if indices.is_empty() {
        return Err(format!(
            "no stream matches `{}`{}",
            entry.name,
            offered(discovered)
        ));
    }
    Ok(indices)
}

/// Says that a stream is missing, and what was probably meant.
fn missing(entry: &StreamSpec, parsed: Option<&StreamName>, discovered: &[StreamInfo]) -> String {
    let names: Vec<String> = discovered.iter().map(|stream| stream.name.to_string()).collect();
    // `orders` where there is `public.orders`, or the other way round.
    let same_table = discovered.iter().zip(&names).filter(|(stream, _)| {
        parsed.is_some_and(|parsed| {
            parsed.name == stream.name.name && (parsed.namespace.is_none() || stream.name.namespace.is_none())
        })
    });
    let mut likely: Vec<&str> = same_table.map(|(_, name)| name.as_str()).take(3).collect();
    if likely.is_empty() {
        likely.extend(nearest(&entry.name, names.iter().map(String::as_str)));
    }
    let hint = if likely.is_empty() {
        offered(discovered)
    } else {
        format!("; did you mean {}?", nearest::list(&likely))
    };
    format!("the source has no stream `{}`{hint}", entry.name)
}

/// What a source has, in a few words.
fn offered(discovered: &[StreamInfo]) -> String {
    const SHOWN: usize = 5;
    if discovered.is_empty() {
        return "; the source has no streams at all".to_owned();
    }
    let mut names: Vec<String> = discovered
        .iter()
        .take(SHOWN)
        .map(|stream| format!("`{}`", stream.name))
        .collect();
    if discovered.len() > SHOWN {
        names.push("…".to_owned());
    }
    let hint = "`setu discover` lists the source's streams";
    format!("; {hint}: {}", names.join(", "))
}

/// Fills in what an entry leaves open for one stream, and checks that the stream can do it.
fn decide(entry: &StreamSpec, stream: &StreamInfo) -> Result<Selected, String> {
    let has_key = !stream.schema.primary_key.is_empty();
    let (cursor, default) = match entry.mode {
        ReadMode::Full => (None, WriteMode::Overwrite),
        ReadMode::Incremental => {
            let default = if has_key {
                WriteMode::Upsert
            } else {
                WriteMode::Append
            };
            (Some(cursor(entry, stream)?), default)
        }
    };
    let write = entry.write.unwrap_or(default);
    if write == WriteMode::Upsert && !has_key {
        return Err(
            "`write: upsert` needs a primary key, and the stream has none; use `append` or `overwrite`"
                .into(),
        );
    }
    Ok(Selected {
        stream: stream.clone(),
        mode: entry.mode,
        cursor,
        write,
    })
}

/// The cursor of an incremental stream.
fn cursor(entry: &StreamSpec, stream: &StreamInfo) -> Result<String, String> {
    let cursors: Vec<&str> = stream.cursors.iter().map(String::as_str).collect();
    if cursors.is_empty() {
        return Err(
            "it has no field that can serve as a cursor, so it cannot be incremental; use `mode: full`"
                .into(),
        );
    }
    let Some(cursor) = &entry.cursor else {
        return Err(format!(
            "`mode: incremental` needs a `cursor`: one of {}",
            nearest::list(&cursors)
        ));
    };
    if cursors.contains(&cursor.as_str()) {
        return Ok(cursor.clone());
    }
    let known = format!("; fields that can: {}", nearest::list(&cursors));
    if stream.schema.index_of(cursor).is_some() {
        return Err(format!("its field `{cursor}` cannot serve as a cursor{known}"));
    }
    let fields = stream.schema.fields.iter().map(|field| field.name.as_str());
    let hint = match nearest(cursor, fields) {
        Some(near) => format!("; did you mean `{near}`?"),
        None => format!(" to serve as a cursor{known}"),
    };
    Err(format!("it has no field `{cursor}`{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{DataType, Field, Schema};

    fn stream(name: &str, key: &[&str]) -> StreamInfo {
        let field = |name: &str, data_type| Field {
            name: name.into(),
            data_type,
            nullable: true,
            native_type: None,
        };
        StreamInfo {
            name: name.parse().expect("a qualified name"),
            kind: "table".into(),
            schema: Schema {
                fields: vec![
                    field("id", DataType::Int64),
                    field("updated_at", DataType::TimestampTz),
                    field("note", DataType::Text),
                ],
                primary_key: key.iter().map(|k| (*k).to_owned()).collect(),
            },
            estimated_rows: None,
            cursors: vec!["id".into(), "updated_at".into()],
            resumable: true,
        }
    }

    fn full(name: &str) -> StreamSpec {
        StreamSpec {
            name: name.into(),
            ..StreamSpec::default()
        }
    }

    fn incremental(name: &str, cursor: &str) -> StreamSpec {
        StreamSpec {
            mode: ReadMode::Incremental,
            cursor: Some(cursor.into()),
            ..full(name)
        }
    }

    fn write(entry: StreamSpec, write: WriteMode) -> StreamSpec {
        StreamSpec {
            write: Some(write),
            ..entry
        }
    }

    /// Of each selected stream: name, mode, cursor and write mode.
    fn choose(entries: &[StreamSpec], discovered: &[StreamInfo]) -> Result<Vec<String>, Vec<String>> {
        let shown = |s: Selected| {
            let cursor = s.cursor.unwrap_or_default();
            format!("{} {} {} {cursor}", s.stream.name, s.mode, s.write)
                .trim_end()
                .to_owned()
        };
        match select(entries, discovered) {
            Ok(selected) => Ok(selected.into_iter().map(shown).collect()),
            Err(SelectError(mistakes)) => Err(mistakes),
        }
    }

    #[test]
    fn the_first_match_wins_and_the_order_is_the_pipelines() {
        let discovered = [
            stream("audit.log", &[]),
            stream("public.customers", &["id"]),
            stream("public.orders", &["id"]),
            stream("public.\"a.b\"", &[]),
        ];
        for (entries, expected) in [
            (
                vec![incremental("public.orders", "id"), full("public.*")],
                vec![
                    "public.orders incremental upsert id",
                    "public.customers full overwrite",
                    "public.\"a.b\" full overwrite",
                ],
            ),
            (
                // All that the second entry matches is taken: that is no mistake.
                vec![full("*"), full("public.orders")],
                vec![
                    "audit.log full overwrite",
                    "public.customers full overwrite",
                    "public.orders full overwrite",
                    "public.\"a.b\" full overwrite",
                ],
            ),
            (
                vec![full("{audit,public}.[lo]*")],
                vec!["audit.log full overwrite", "public.orders full overwrite"],
            ),
            (vec![full("*.lo?")], vec!["audit.log full overwrite"]),
            (
                vec![full("public.\"a.b\"")],
                vec!["public.\"a.b\" full overwrite"],
            ),
        ] {
            let expected = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(choose(&entries, &discovered), Ok(expected), "{entries:?}");
        }
    }

    #[test]
    fn a_name_that_looks_like_a_pattern_is_found_by_itself() {
        let discovered = [stream("a", &[]), stream("[a]", &[])];
        assert_eq!(
            choose(&[full("[a]")], &discovered),
            Ok(vec!["[a] full overwrite".into()])
        );
    }

    #[test]
    fn the_write_mode_follows_from_the_mode_and_the_key() {
        use WriteMode::{Append, Overwrite, Upsert};
        let (keyed, keyless) = (stream("t", &["id"]), stream("t", &[]));
        for (entry, stream, expected) in [
            (full("t"), &keyed, Ok("t full overwrite")),
            (full("t"), &keyless, Ok("t full overwrite")),
            (write(full("t"), Append), &keyless, Ok("t full append")),
            (write(full("t"), Upsert), &keyed, Ok("t full upsert")),
            (
                incremental("t", "updated_at"),
                &keyed,
                Ok("t incremental upsert updated_at"),
            ),
            (
                incremental("t", "updated_at"),
                &keyless,
                Ok("t incremental append updated_at"),
            ),
            (
                write(incremental("t", "id"), Append),
                &keyed,
                Ok("t incremental append id"),
            ),
            (write(full("t"), Overwrite), &keyed, Ok("t full overwrite")),
            (
                write(full("t"), Upsert),
                &keyless,
                Err(
                    "stream `t`: `write: upsert` needs a primary key, and the stream has none; use `append` or `overwrite`",
                ),
            ),
        ] {
            let expected = expected
                .map(|s| vec![s.to_owned()])
                .map_err(|s| vec![s.to_owned()]);
            assert_eq!(
                choose(std::slice::from_ref(&entry), std::slice::from_ref(stream)),
                expected
            );
        }
    }

    #[test]
    fn what_does_not_exist_is_named_with_what_does() {
        let discovered = [stream("public.orders", &[]), stream("public.users", &[])];
        let mut placed = full("public.order");
        placed.place = Some("p.yaml:7:5".into());
        for (entry, expected) in [
            (
                placed,
                "p.yaml:7:5: the source has no stream `public.order`; did you mean `public.orders`?",
            ),
            (
                full("users"),
                "the source has no stream `users`; did you mean `public.users`?",
            ),
            (
                full("invoices"),
                "the source has no stream `invoices`; `setu discover` lists the source's streams: `public.orders`, `public.users`",
            ),
            (
                full("private.*"),
                "no stream matches `private.*`; `setu discover` lists the source's streams: `public.orders`, `public.users`",
            ),
            (
                incremental("public.users", "update_at"),
                "stream `public.users`: it has no field `update_at`; did you mean `updated_at`?",
            ),
            (
                incremental("public.users", "version"),
                "stream `public.users`: it has no field `version` to serve as a cursor; fields that can: `id` and `updated_at`",
            ),
            (
                incremental("public.users", "note"),
                "stream `public.users`: its field `note` cannot serve as a cursor; fields that can: `id` and `updated_at`",
            ),
        ] {
            assert_eq!(
                choose(std::slice::from_ref(&entry), &discovered),
                Err(vec![expected.to_owned()])
            );
        }
        assert_eq!(
            choose(&[full("*")], &[]),
            Err(vec![
                "no stream matches `*`; the source has no streams at all".to_owned()
            ])
        );
    }

    #[test]
    fn a_stream_without_cursors_cannot_be_incremental() {
        let mut view = stream("v", &[]);
        view.cursors.clear();
        let mistakes = choose(&[incremental("v", "id")], &[view]).expect_err("a mistake");
        assert_eq!(
            mistakes,
            [
                "stream `v`: it has no field that can serve as a cursor, so it cannot be incremental; use `mode: full`"
            ]
        );
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let discovered = [stream("a", &[]), stream("b", &[])];
        let entries = [
            incremental("a", "x"),
            write(full("b"), WriteMode::Upsert),
            full("c"),
        ];
        assert_eq!(choose(&entries, &discovered).expect_err("mistakes").len(), 3);
    }
}
