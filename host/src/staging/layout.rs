//! Where things are: every key, computed from (workspace, pipeline, run, qualified name) alone.

use sha2::{Digest, Sha256};

use crate::blob::Key;
use crate::record::StreamName;

/// The longest slug in bytes: the longest name of a Postgres table with its schema, and one to spare.
const MAX_SLUG_BYTES: usize = 128;

/// The length of the suffix that tells ambiguous names apart: `-` and 8 hexadecimal digits.
const SUFFIX_BYTES: usize = 9;

/// An id that is not `[A-Za-z0-9][A-Za-z0-9_.-]{0,127}`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "{what} `{id}` must start with a letter or digit and hold only letters, digits, `_`, `.` and `-`, 128 characters at most"
)]
pub struct IdError {
    /// "workspace", "pipeline" or "run".
    pub what: &'static str,
    /// The text given.
    pub id: String,
}

/// The keys of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunLayout {
    workspace: String,
    pipeline: String,
    run: String,
}

impl RunLayout {
    /// Checks the three ids.
    pub fn new(workspace: &str, pipeline: &str, run: &str) -> Result<Self, IdError> {
        check_id("workspace", workspace)?;
        check_id("pipeline", pipeline)?;
        check_id("run", run)?;
        Ok(RunLayout {
            workspace: workspace.to_owned(),
            pipeline: pipeline.to_owned(),
            run: run.to_owned(),
        })
    }

    /// The workspace's id.
    pub fn workspace(&self) -> &str {
        &self.workspace
    }

    /// The pipeline's id.
    pub fn pipeline(&self) -> &str {
        &self.pipeline
    }

    /// The run's id.
    pub fn run(&self) -> &str {
        &self.run
    }

    /// `ws/<workspace>/pl/<pipeline>`
    fn pipeline_prefix(&self) -> String {
        format!("ws/{}/pl/{}", self.workspace, self.pipeline)
    }

    /// The prefix of all runs of the pipeline: `ws/<workspace>/pl/<pipeline>/run/`.
    pub fn runs_prefix(&self) -> String {
        format!("{}/run/", self.pipeline_prefix())
    }

    /// The prefix of this run: `ws/<workspace>/pl/<pipeline>/run/<run>/`.
    pub fn run_prefix(&self) -> String {
        format!("{}/run/{}/", self.pipeline_prefix(), self.run)
    }

    /// The prefix of a stream's objects: `…/run/<run>/stream/<slug>/`.
    pub fn stream_prefix(&self, stream: &StreamName) -> String {
        format!("{}stream/{}/", self.run_prefix(), slug(&stream.to_string()))
    }

    /// `…/run/<run>/_run.json`
    pub fn run_record(&self) -> Key {
        Key::known_valid(format!("{}_run.json", self.run_prefix()))
    }

    /// `…/run/<run>/_extract.json` and `_load.json`: who is at work on a half of the run
    pub fn lease(&self, half: &str) -> Key {
        Key::known_valid(format!("{}_{half}.json", self.run_prefix()))
    }

    /// `…/stream/<slug>/_manifest.json`
    pub fn manifest(&self, stream: &StreamName) -> Key {
        Key::known_valid(format!("{}_manifest.json", self.stream_prefix(stream)))
    }

    /// `…/stream/<slug>/part-000000.jsonl.gz`; more digits from the millionth part on.
    pub fn part(&self, stream: &StreamName, index: usize) -> Key {
        Key::known_valid(format!("{}part-{index:06}.jsonl.gz", self.stream_prefix(stream)))
    }

    /// `…/stream/<slug>/_load.json`: how far a load into a destination without transactions got
    pub fn load_mark(&self, stream: &StreamName) -> Key {
        Key::known_valid(format!("{}_load.json", self.stream_prefix(stream)))
    }

    /// `…/state/<slug>.json`, of the pipeline, not of the run
    pub fn state(&self, stream: &StreamName) -> Key {
        let slug = slug(&stream.to_string());
        Key::known_valid(format!("{}/state/{slug}.json", self.pipeline_prefix()))
    }
}

/// Checks an id of a workspace, a pipeline or a run; `what` says which.
pub fn check_id(what: &'static str, id: &str) -> Result<(), IdError> {
    let valid = id.len() <= 128
        && id.starts_with(|c: char| c.is_ascii_alphanumeric())
        && id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'));
    if valid {
        return Ok(());
    }
    let id = id.to_owned();
    Err(IdError { what, id })
}

/// A stream's folder name, of at most 128 bytes.
///
/// Each run of characters outside `[a-zA-Z0-9_-]` becomes one `_`. Unless the name is unambiguous
/// (`docs/staged-format.md` says when), the result is cut to 119 characters and `-` and the first 8 hexadecimal digits
/// of the name's SHA-256 follow. No two unambiguous names share a slug, nor does one with any other name, even where a
/// file system ignores case. Two others share one only if their plain forms and 32 bits of SHA-256 agree; a manifest
/// names its stream, so that such a clash is an error and never a mix.
pub fn slug(qualified_name: &str) -> String {
    let mut slug = String::with_capacity(qualified_name.len() + SUFFIX_BYTES);
    let mut in_run = false;
    for c in qualified_name.chars() {
        let kept = c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if kept {
            slug.push(c);
        } else if !in_run {
            slug.push('_');
        }
        in_run = !kept;
    }
    if is_unambiguous(qualified_name) {
        return slug;
    }
    slug.truncate(MAX_SLUG_BYTES - SUFFIX_BYTES); // all of it is ASCII
    let digest = Sha256::digest(qualified_name.as_bytes());
    slug.push('-');
    for byte in digest.iter().take(4) {
        slug.push_str(&format!("{byte:02x}"));
    }
    slug
}

/// Whether the plain form of a name tells what the name is, so that it needs no hash.
///
/// It does for `name` and `namespace.name` of at most 128 bytes where the first part is one or more of `[a-z0-9-]`,
/// the second one or more of `[a-z0-9_-]`, and the whole does not end in `-` and 8 of `[0-9a-f]`. Then the first `_`
/// of the plain form is the dot, and without a `_` there is none; nothing differs by case only; and no plain form
/// looks like one with a hash.
fn is_unambiguous(name: &str) -> bool {
    let plain = |part: &str, more: &[u8]| {
        !part.is_empty()
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || more.contains(&b))
    };
    let parts_are_plain = match name.split_once('.') {
        Some((namespace, name)) => plain(namespace, b"") && plain(name, b"_"),
        None => plain(name, b""),
    };
    name.len() <= MAX_SLUG_BYTES && parts_are_plain && !looks_hashed(name)
}

fn looks_hashed(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.len() >= SUFFIX_BYTES && {
        let (dash, digits) = bytes[bytes.len() - SUFFIX_BYTES..].split_at(1);
        dash == b"-" && digits.iter().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_key_follows_from_the_ids_and_the_name() {
        let layout = RunLayout::new("default", "orders-to-warehouse", "2024-05-01T10.00_x").unwrap();
        let stream = StreamName::new("public", "orders");
        let run = "ws/default/pl/orders-to-warehouse/run/2024-05-01T10.00_x";
        assert_eq!(layout.runs_prefix(), "ws/default/pl/orders-to-warehouse/run/");
        assert_eq!(layout.run_prefix(), format!("{run}/"));
        assert_eq!(layout.run_record().as_str(), format!("{run}/_run.json"));
        assert_eq!(
            layout.stream_prefix(&stream),
            format!("{run}/stream/public_orders/")
        );
        assert_eq!(
            layout.manifest(&stream).as_str(),
            format!("{run}/stream/public_orders/_manifest.json")
        );
        for (index, name) in [
            (0, "part-000000"),
            (123_456, "part-123456"),
            (1_000_000, "part-1000000"),
        ] {
            assert_eq!(
                layout.part(&stream, index).as_str(),
                format!("{run}/stream/public_orders/{name}.jsonl.gz")
            );
        }
        assert_eq!(
            layout.state(&stream).as_str(),
            "ws/default/pl/orders-to-warehouse/state/public_orders.json"
        );
    }

    #[test]
    fn an_id_that_breaks_the_rule_is_named() {
        let longest = "a".repeat(128);
        let too_long = "a".repeat(129);
        for valid in ["a", "0", "A_b.c-d", &longest] {
            assert!(RunLayout::new(valid, valid, valid).is_ok(), "{valid}");
        }
        for invalid in [
            "", ".", "..", "-a", "_a", ".a", "a/b", "a b", "ä", "a\n", &too_long,
        ] {
            for (index, what) in ["workspace", "pipeline", "run"].into_iter().enumerate() {
                let mut ids = ["a"; 3];
                ids[index] = invalid;
                let error = RunLayout::new(ids[0], ids[1], ids[2]).unwrap_err();
                assert_eq!(
                    error,
                    IdError {
                        what,
                        id: invalid.into()
                    }
                );
            }
        }
    }

    #[test]
    fn a_name_is_plain_where_that_is_unambiguous() {
        let long_table = format!("{}.{}", "s".repeat(63), "t".repeat(63));
        let long_slug = format!("{}_{}", "s".repeat(63), "t".repeat(63));
        for (name, slug_expected) in [
            ("public.orders", "public_orders"),
            ("public.user_accounts", "public_user_accounts"),
            ("public._x", "public__x"),
            ("my-app.a-b", "my-app_a-b"),
            ("orders", "orders"),
            ("orders-2024", "orders-2024"),
            ("public.x-deadbee", "public_x-deadbee"),
            (&long_table, &long_slug),
        ] {
            assert_eq!(slug(name), slug_expected);
        }
    }

    #[test]
    fn a_name_that_could_be_taken_for_another_carries_a_hash() {
        for (name, plain) in [
            ("user_accounts", "user_accounts"),
            ("public_user.accounts", "public_user_accounts"),
            ("public_user_accounts", "public_user_accounts"),
            ("a_b.c", "a_b_c"),
            ("Public.orders", "Public_orders"),
            ("public.Orders", "public_Orders"),
            ("public.größe", "public_gr_e"),
            ("日本.表", "_"),
            ("\"a.b\".c", "_a_b_c"),
            ("a b.c", "a_b_c"),
            ("public.x-deadbeef", "public_x-deadbeef"),
            ("-00000000", "-00000000"),
            ("", ""),
            (".", "_"),
            ("a.b.c", "a_b_c"),
        ] {
            let slug = slug(name);
            let (before, hash) = slug.rsplit_once('-').unwrap();
            assert_eq!((before, hash.len()), (plain, 8), "{name}: {slug}");
        }
        assert_eq!(slug("a_b.c"), "a_b_c-a3715283");
        let longer = format!("public.{}", "x".repeat(122));
        assert_eq!(slug(&longer).len(), MAX_SLUG_BYTES);
        assert_ne!(slug(&longer), slug(&format!("{longer}x")));
    }

    #[test]
    fn the_slugs_in_the_documentation_are_right() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/staged-format.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, table) = page.split_once("| qualified name | slug |").unwrap();
        let rows = table.lines().skip(2).map_while(|line| {
            let cells: Vec<&str> = line.split('`').collect();
            line.starts_with('|').then(|| (cells[1], cells[3]))
        });
        let rows: Vec<_> = rows.collect();
        assert_eq!(rows.len(), 8);
        for (name, expected) in rows {
            assert_eq!(slug(name), expected);
        }
    }

    /// Every name of up to five characters over an alphabet chosen to collide.
    #[test]
    fn no_two_short_names_share_a_slug_even_ignoring_case() {
        let mut names = vec![String::new()];
        let mut seen = HashMap::new();
        for _ in 0..5 {
            names = names
                .iter()
                .flat_map(|name| ["a", "A", "_", "-", ".", "\"", "ä", "0"].map(|c| format!("{name}{c}")))
                .collect();
            for name in &names {
                if let Some(other) = seen.insert(slug(name).to_ascii_lowercase(), name.clone()) {
                    panic!("{name:?} and {other:?} share {}", slug(name));
                }
            }
        }
    }

    proptest! {
        #[test]
        fn names_that_differ_have_slugs_that_differ_even_ignoring_case(
            a in "[ab_.A-]{0,6}(-[0-9a-f]{8})?",
            b in "[ab_.A-]{0,6}(-[0-9a-f]{8})?",
        ) {
            prop_assume!(a != b);
            prop_assert_ne!(slug(&a).to_ascii_lowercase(), slug(&b).to_ascii_lowercase());
        }

        /// The slug of one name, taken as a name itself, is not the slug of another.
        #[test]
        fn a_name_that_looks_like_a_slug_has_another_slug(name in "[a-c_.A\u{e4}-]{0,8}", namespace in "[a-c_-]{0,3}") {
            let own = slug(&name);
            for rival in [own.clone(), own.replacen('_', ".", 1), format!("{namespace}.{own}")] {
                prop_assert!(rival == name || !slug(&rival).eq_ignore_ascii_case(&own));
            }
        }

        #[test]
        fn any_name_gives_valid_keys(namespace in proptest::option::of(".{1,80}"), name in ".{1,200}") {
            let layout = RunLayout::new(&"w".repeat(128), &"p".repeat(128), &"r".repeat(128)).unwrap();
            let stream = StreamName { namespace, name };
            for key in [layout.manifest(&stream), layout.part(&stream, usize::MAX), layout.state(&stream)] {
                prop_assert!(Key::new(key.as_str()).is_ok(), "{}", key);
                prop_assert!(key.as_str().split('/').all(|segment| segment.len() <= 160));
            }
        }
    }
}
