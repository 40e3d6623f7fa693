//! What every backend must do, written once against the trait. Each clause works under a prefix of its own, so that
//! the suite also runs against a store that others use.

use std::io::{self, Read};

use super::{Blob, BlobError, Body, Condition, Key};

/// Runs every clause; those on conditional puts where the backend has such.
///
/// # Panics
/// At the first clause that does not hold.
pub fn all(blob: &dyn Blob) {
    for (index, (name, clause)) in CLAUSES.into_iter().enumerate() {
        run(blob, index, name, clause);
    }
    if blob.conditional().unwrap() {
        for (index, (name, clause)) in CONDITIONAL.into_iter().enumerate() {
            run(blob, CLAUSES.len() + index, name, clause);
        }
    }
}

const CLAUSES: [(&str, Clause); 12] = [
    ("what is put is read back", read_back),
    ("a put replaces", overwrite),
    ("a missing key is NotFound, with key and store", missing),
    ("a delete may be repeated", delete_twice),
    ("several are deleted as one is", delete_several),
    ("odd but legal characters stay as they are", odd_characters),
    ("a prefix may cut a segment", prefixes),
    ("a listing is whole, ordered and exact", many),
    ("a large object is like a small one", large),
    ("a body must have the size that was announced", announced_size),
    ("a put whose body fails stores nothing", failing_body),
    ("concurrent puts of one key never tear", concurrent_puts),
];

const CONDITIONAL: [(&str, Clause); 3] = [
    ("a put happens only under its condition", conditions),
    ("of many creators one wins", one_creator),
    ("of many replacers one wins", one_replacer),
];

fn run(blob: &dyn Blob, index: usize, name: &str, clause: Clause) {
    eprintln!("{}: {name}", blob.describe());
    let prefix = format!("conformance-{:016x}/{index}/", fastrand::u64(..));
    let scope = Scope { blob, prefix };
    clause(&scope);
    let left = blob.list(&scope.prefix).unwrap();
    let left: Vec<Key> = left.into_iter().map(|object| object.key).collect();
    blob.delete_all(&left).unwrap();
    assert!(blob.list(&scope.prefix).unwrap().is_empty());
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

fn delete_several(s: &Scope<'_>) {
    let names = ["a/1", "a/2", "b&<>\"'", "ü 🦀", "kept"];
    for name in names {
        s.put(name, b"x");
    }
    let mut keys: Vec<Key> = names[..4].iter().map(|name| s.key(name)).collect();
    keys.push(s.key("never/was"));
    s.blob.delete_all(&keys).unwrap();
    assert_eq!(s.list(""), [("kept".to_owned(), 1)]);
    s.blob.delete_all(&keys).unwrap();
    s.blob.delete_all(&[]).unwrap();
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
    // Several pages of a paginated store.
    let names: Vec<String> = (0..2500).map(|i| format!("part-{i:06}")).collect();
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

fn large(s: &Scope<'_>) {
    // As large as a staged part gets, and no multiple of any block size.
    let size = (64 << 20) + 11;
    let bytes: Vec<u8> = (0..size as u64).map(|i| (i * i % 251) as u8).collect();
    let half = &bytes[..size / 2];
    s.put("k", &bytes);
    assert!(s.get("k") == bytes);
    let body = Body::Reader(&mut &bytes[..], Some(bytes.len() as u64));
    s.blob.put(&s.key("announced"), body).unwrap();
    assert!(s.get("announced") == bytes);
    let body = Body::Reader(&mut &half[..], None);
    s.blob.put(&s.key("k"), body).unwrap();
    assert!(s.get("k") == half);
    // A reader may be dropped at any point.
    let mut reader = s.blob.get(&s.key("announced")).unwrap();
    reader.read_exact(&mut [0; 100]).unwrap();
    drop(reader);
    assert_eq!(
        s.list(""),
        [
            ("announced".to_owned(), size as u64),
            ("k".to_owned(), half.len() as u64)
        ]
    );
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
    let long = vec![7; 40 << 20];
    let body = Body::Reader(&mut &long[..], Some(long.len() as u64 + 1));
    let error = told(&s.blob.put(&s.key("k"), body).unwrap_err());
    assert!(error.contains("41943041"), "{error}");
    assert_eq!(s.get("k"), b"old");
}

fn failing_body(s: &Scope<'_>) {
    /// Yields so many bytes, then fails.
    struct Failing(u64);
    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = buffer.len().min(usize::try_from(self.0).unwrap());
            if size == 0 {
                return Err(io::Error::other("the line went dead"));
            }
            self.0 -= size as u64;
            buffer[..size].fill(7);
            Ok(size)
        }
    }
    s.put("old", b"old");
    for (name, size) in [("new", 0), ("new", 1000), ("old", 1000), ("new", 20 << 20)] {
        let body = &mut Failing(size);
        let error = s.blob.put(&s.key(name), Body::Reader(body, None)).unwrap_err();
        assert!(told(&error).contains("the line went dead"), "{error:?}");
    }
    assert_eq!(s.list(""), [("old".to_owned(), 3)]);
    assert_eq!(s.get("old"), b"old");
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

fn conflicts(result: Result<super::Version, BlobError>) -> bool {
    match result {
        Ok(_) => false,
        Err(BlobError::Conflict { .. }) => true,
        Err(error) => panic!("{}", told(&error)),
    }
}

fn conditions(s: &Scope<'_>) {
    let k = s.key("a/k");
    let put = |bytes: &[u8], condition| s.blob.put_if(&k, bytes, condition);
    let first = put(b"first", Condition::Absent).unwrap();
    assert!(conflicts(put(b"other", Condition::Absent)));
    let (bytes, version) = s.blob.get_versioned(&k).unwrap();
    assert_eq!((bytes.as_slice(), &version), (&b"first"[..], &first));

    let second = put(b"second", Condition::Unchanged(&first)).unwrap();
    assert_ne!(second, first);
    assert!(conflicts(put(b"other", Condition::Unchanged(&first))));
    assert_eq!(s.get("a/k"), b"second");
    s.put("a/k", b"third");
    assert!(conflicts(put(b"other", Condition::Unchanged(&second))));
    let (bytes, third) = s.blob.get_versioned(&k).unwrap();
    assert_eq!(bytes, b"third");
    put(b"", Condition::Unchanged(&third)).unwrap();
    assert_eq!(s.get("a/k"), b"");

    s.blob.delete(&k).unwrap();
    assert!(conflicts(put(b"other", Condition::Unchanged(&third))));
    assert!(matches!(
        s.blob.get_versioned(&k),
        Err(BlobError::NotFound { .. })
    ));
    put(b"anew", Condition::Absent).unwrap();
    assert_eq!(s.get("a/k"), b"anew");
    assert_eq!(s.list(""), [("a/k".to_owned(), 4)]);
}

fn one_creator(s: &Scope<'_>) {
    one_winner(s, Condition::Absent);
}

fn one_replacer(s: &Scope<'_>) {
    s.put("k", b"old");
    let (_, version) = s.blob.get_versioned(&s.key("k")).unwrap();
    one_winner(s, Condition::Unchanged(&version));
}

fn one_winner(s: &Scope<'_>, condition: Condition<'_>) {
    const CONTENDERS: usize = 16;
    let start = std::sync::Barrier::new(CONTENDERS);
    let winners: Vec<String> = std::thread::scope(|scope| {
        let contend = |contender: usize| {
            let start = &start;
            scope.spawn(move || {
                let bytes = format!("contender {contender}");
                start.wait();
                let put = s.blob.put_if(&s.key("k"), bytes.as_bytes(), condition);
                (!conflicts(put)).then_some(bytes)
            })
        };
        let contenders: Vec<_> = (0..CONTENDERS).map(contend).collect();
        let results = contenders.into_iter().map(|contender| contender.join().unwrap());
        results.flatten().collect()
    });
    assert_eq!(winners.len(), 1, "{winners:?}");
    assert_eq!(s.get("k"), winners[0].as_bytes());
}
