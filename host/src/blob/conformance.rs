//! What every backend must do, written once against the trait. Each clause works under a prefix of its own, so that
//! the suite also runs against a store that others use.

use std::io::Read;

use super::{Blob, BlobError, Body, Key};

/// Runs every clause; panics at the first that does not hold.
pub(super) fn all(blob: &dyn Blob) {
    let clauses: [(&str, Clause); 9] = [
        ("what is put is read back", read_back),
        ("a put replaces", overwrite),
        ("a missing key is NotFound, with key and store", missing),
        ("a delete may be repeated", delete_twice),
        ("odd but legal characters stay as they are", odd_characters),
        ("a prefix may cut a segment", prefixes),
        ("a listing is whole, ordered and exact", many),
        ("a body must have the size that was announced", announced_size),
        ("concurrent puts of one key never tear", concurrent_puts),
    ];
    for (index, (name, clause)) in clauses.into_iter().enumerate() {
        eprintln!("{}: {name}", blob.describe());
        let prefix = format!("conformance-{:016x}/{index}/", fastrand::u64(..));
        let scope = Scope { blob, prefix };
        clause(&scope);
        for object in blob.list(&scope.prefix).unwrap() {
            blob.delete(&object.key).unwrap();
        }
        assert!(blob.list(&scope.prefix).unwrap().is_empty());
    }
}

/// An error with its cause.
pub(super) fn told(error: &BlobError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    format!("{error}{}", cause.unwrap_or_default())
}

type Clause = fn(&Scope<'_>);

struct Scope<'a> {
    blob: &'a dyn Blob,
    prefix: String,
}

impl Scope<'_> {
    fn key(&self, name: &str) -> Key {
        Key::new(format!("{}{name}", self.prefix)).unwrap()
    }

    fn put(&self, name: &str, bytes: &[u8]) {
        self.blob.put(&self.key(name), Body::Bytes(bytes)).unwrap();
    }

    fn get(&self, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut reader = self.blob.get(&self.key(name)).unwrap();
        reader.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn list(&self, rest: &str) -> Vec<(String, u64)> {
        let listed = self.blob.list(&format!("{}{rest}", self.prefix)).unwrap();
        let name = |key: &Key| key.as_str()[self.prefix.len()..].to_owned();
        listed.iter().map(|o| (name(&o.key), o.size)).collect()
    }
}

fn read_back(s: &Scope<'_>) {
    let large: Vec<u8> = (0..5_000_011_u32).map(|i| (i % 251) as u8).collect();
    s.put("empty", b"");
    s.put("a/b/c", b"bytes");
    s.put("large", &large);
    let mut reader = &large[..];
    s.blob
        .put(
            &s.key("streamed"),
            Body::Reader(&mut reader, Some(large.len() as u64)),
        )
        .unwrap();
    s.blob
        .put(&s.key("unsized"), Body::Reader(&mut &large[..77], None))
        .unwrap();
    assert_eq!(s.get("empty"), b"");
    assert_eq!(s.get("a/b/c"), b"bytes");
    assert!(s.get("large") == large);
    assert!(s.get("streamed") == large);
    assert_eq!(s.get("unsized"), large[..77]);
}

fn overwrite(s: &Scope<'_>) {
    s.put("k", b"a longer first");
    let mut old = s.blob.get(&s.key("k")).unwrap();
    s.put("k", b"second");
    assert_eq!(s.get("k"), b"second");
    assert_eq!(s.list(""), [("k".to_owned(), 6)]);
    let mut first = String::new();
    old.read_to_string(&mut first).unwrap();
    assert_eq!(
        first, "a longer first",
        "an open reader goes on with the object that it opened"
    );
}

fn missing(s: &Scope<'_>) {
    s.put("there", b"1");
    for name in ["absent", "absent/deeper", "there/deeper", "ther"] {
        let key = s.key(name);
        match s.blob.get(&key).map(|_| ()) {
            Err(error @ BlobError::NotFound { .. }) => {
                let text = error.to_string();
                assert!(
                    text.contains(key.as_str()) && text.contains(&s.blob.describe()),
                    "{text}"
                );
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

fn delete_twice(s: &Scope<'_>) {
    s.put("a/k", b"1");
    s.put("a/kept", b"2");
    for _ in 0..2 {
        s.blob.delete(&s.key("a/k")).unwrap();
        assert!(matches!(
            s.blob.get(&s.key("a/k")),
            Err(BlobError::NotFound { .. })
        ));
    }
    s.blob.delete(&s.key("never/was")).unwrap();
    assert_eq!(s.list(""), [("a/kept".to_owned(), 1)]);
}

fn odd_characters(s: &Scope<'_>) {
    let names = [
        " ",
        "a b",
        "a+b",
        "a%2Fb",
        "a%b",
        "a?b#c",
        "a&b=c",
        "q\"uote'",
        "...",
        ".hidden",
        "-dash",
        "~",
        "ü日本🦀",
        "new\nline",
        "tab\t",
        "*",
        "a:b;c",
        "a@b",
        "[x]{y}<z>|^`",
    ];
    for name in names {
        s.put(name, name.as_bytes());
    }
    let mut expected: Vec<_> = names.iter().map(|n| ((*n).to_owned(), n.len() as u64)).collect();
    expected.sort();
    assert_eq!(s.list(""), expected);
    for name in names {
        assert_eq!(s.get(name), name.as_bytes(), "{name:?}");
    }
}

fn prefixes(s: &Scope<'_>) {
    for name in ["run/a", "run/b/c", "run-2/a", "runs", "x"] {
        s.put(name, b"");
    }
    let cases: [(&str, &[&str]); 9] = [
        ("", &["run-2/a", "run/a", "run/b/c", "runs", "x"]),
        ("run", &["run-2/a", "run/a", "run/b/c", "runs"]),
        ("run/", &["run/a", "run/b/c"]),
        ("run/b", &["run/b/c"]),
        ("run/b/c", &["run/b/c"]),
        ("run/b/c/", &[]),
        ("run//", &[]),
        ("run/../", &[]),
        ("y", &[]),
    ];
    for (prefix, expected) in cases {
        let names: Vec<String> = s.list(prefix).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, expected, "{prefix:?}");
    }
    for prefix in ["/", "../", "\\", "\0"] {
        assert!(s.blob.list(prefix).unwrap().is_empty(), "{prefix:?}");
    }
}

fn many(s: &Scope<'_>) {
    // More than one page of a paginated store.
    let names: Vec<String> = (0..1203).map(|i| format!("part-{i:06}")).collect();
    std::thread::scope(|scope| {
        for chunk in names.chunks(names.len() / 8 + 1) {
            scope.spawn(move || {
                for name in chunk {
                    s.put(name, name.as_bytes());
                }
            });
        }
    });
    let listed = s.list("part-");
    let expected: Vec<_> = names.into_iter().map(|name| (name, 11)).collect();
    assert_eq!(listed, expected);
    let info = &s.blob.list(&s.prefix).unwrap()[0];
    let age = info.modified.elapsed().unwrap_or_default();
    assert!(age.as_secs() < 3600, "modified {age:?} ago");
}

fn announced_size(s: &Scope<'_>) {
    s.put("k", b"old");
    for wrong in [2, 4] {
        let error = s
            .blob
            .put(&s.key("k"), Body::Reader(&mut &b"new"[..], Some(wrong)));
        let error = told(&error.unwrap_err());
        assert!(
            error.contains(&wrong.to_string()) && error.contains("cannot put"),
            "{error}"
        );
    }
    assert_eq!(s.get("k"), b"old");
}

fn concurrent_puts(s: &Scope<'_>) {
    const SIZE: usize = 200_000;
    s.put("k", &[0; SIZE]);
    std::thread::scope(|scope| {
        for writer in 1..=4_u8 {
            scope.spawn(move || {
                for _ in 0..10 {
                    s.put("k", &[writer; SIZE]);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..40 {
                let bytes = s.get("k");
                assert_eq!(bytes.len(), SIZE);
                assert!(bytes.iter().all(|b| *b == bytes[0]), "two puts were mixed");
            }
        });
    });
    assert_eq!(s.list(""), [("k".to_owned(), SIZE as u64)]);
}
