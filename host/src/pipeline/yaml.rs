//! YAML as a tree in which every node knows its place, with variables replaced.
//!
//! Built from the parser's events rather than with a ready-made loader, because every mistake is to be reported: a
//! loader stops at the first duplicate key. Scalars follow YAML 1.2's core schema, with one difference: what JSON
//! cannot hold (infinity, integers beyond 64 bits) stays text. Not here: what the keys mean.

use std::collections::HashMap;
use std::fmt;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use super::variables::{self, Lookup};

/// Deeper files are refused: nobody writes them by hand, and the tree is walked recursively.
const MAX_DEPTH: usize = 64;
/// How many nodes aliases may add: enough for any file, too few for one that doubles itself with every line.
const MAX_ALIASED_NODES: usize = 10_000;
/// How many bytes of texts they may add.
const MAX_ALIASED_BYTES: usize = 1 << 20;

/// A place in a file; both are counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column, in characters.
    pub column: usize,
}

impl Place {
    /// The start of a file.
    pub const START: Place = Place { line: 1, column: 1 };
}

impl From<Marker> for Place {
    fn from(marker: Marker) -> Self {
        Place {
            line: marker.line().max(1),
            column: marker.col() + 1,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// One mistake in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where it is.
    pub place: Place,
    /// What is wrong, and the way out.
    pub message: String,
}

/// A node and where it starts.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) place: Place,
    pub(crate) value: Value,
}

#[derive(Clone)]
pub(crate) enum Value {
    Null,
    Boolean(bool),
    Number(serde_json::Number),
    Text {
        text: String,
        /// It may be a secret, and is not shown in messages.
        from_variable: bool,
    },
    List(Vec<Node>),
    /// In the file's order; a key may stand twice.
    Map(Vec<(Key, Node)>),
}

#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) place: Place,
    pub(crate) name: String,
}

impl Node {
    fn text(place: Place, text: impl Into<String>) -> Node {
        let value = Value::Text {
            text: text.into(),
            from_variable: false,
        };
        Node { place, value }
    }

    /// What the node is, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Boolean(_) => "true or false",
            Value::Number(_) => "a number",
            Value::Text { .. } => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a map",
        }
    }

    /// The node as JSON; of a key that stands twice, the last.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Boolean(value) => (*value).into(),
            Value::Number(number) => serde_json::Value::Number(number.clone()),
            Value::Text { text, .. } => text.as_str().into(),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|(key, node)| (key.name.clone(), node.to_json()))
                .collect(),
        }
    }

    /// What a JSON pointer names: where it begins, with its key where it has one, and its node. Where the pointer
    /// leads nowhere, the last on the way.
    pub(crate) fn locate(&self, pointer: &str) -> (Place, &Node) {
        let mut found = (self.place, self);
        let mut segments = pointer.split('/');
        // Before the first slash there is nothing.
        segments.next();
        for segment in segments {
            let name = segment.replace("~1", "/").replace("~0", "~");
            let next = match &found.1.value {
                Value::Map(entries) => {
                    let entry = entries.iter().rev().find(|(key, _)| key.name == name);
                    entry.map(|(key, node)| (key.place, node))
                }
                Value::List(items) => {
                    let item = name.parse::<usize>().ok().and_then(|index| items.get(index));
                    item.map(|node| (node.place, node))
                }
                _ => None,
            };
            match next {
                Some(next) => found = next,
                None => break,
            }
        }
        found
    }

    /// Adds what the node and all below it take.
    fn add_to(&self, size: &mut Size) {
        size.nodes += 1;
        match &self.value {
            Value::List(items) => items.iter().for_each(|node| node.add_to(size)),
            Value::Map(entries) => {
                for (key, node) in entries {
                    size.bytes += key.name.len();
                    node.add_to(size);
                }
            }
            Value::Text { text, .. } => size.bytes += text.len(),
            _ => {}
        }
    }
}

/// How much nodes take: how many they are, and the bytes of their texts.
#[derive(Default)]
struct Size {
    nodes: usize,
    bytes: usize,
}

/// Reads a file of one document. Without a tree, the mistakes say why.
pub(crate) fn parse(text: &str, lookup: Lookup<'_>) -> (Option<Node>, Vec<Mistake>) {
    build(text, Some(lookup))
}

/// The same for a file in which `${…}` means nothing.
pub(crate) fn parse_literally(text: &str) -> (Option<Node>, Vec<Mistake>) {
    build(text, None)
}

fn build(text: &str, lookup: Option<Lookup<'_>>) -> (Option<Node>, Vec<Mistake>) {
    let mut builder = Builder {
        lookup,
        open: Vec::new(),
        anchors: HashMap::new(),
        aliased: Size::default(),
        documents: Vec::new(),
        mistakes: Vec::new(),
    };
    // A byte order mark is an encoding's business, not a part of the first key.
    let mut parser = Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
    while let Some(event) = parser.next_event() {
        let step = match event {
            Ok((event, span)) => builder.event(event, span.start.into()),
            Err(error) => Err(Mistake {
                place: (*error.marker()).into(),
                message: format!("this is not YAML: {}", error.info()),
            }),
        };
        if let Err(mistake) = step {
            builder.mistakes.push(mistake);
            return (None, builder.mistakes);
        }
    }
    let mut documents = builder.documents.into_iter();
    let first = documents.next();
    if let Some(second) = documents.next() {
        builder.mistakes.push(Mistake {
            place: second.place,
            message: "a second YAML document; a file holds one".into(),
        });
    }
    (first, builder.mistakes)
}

struct Builder<'a> {
    /// None: there are no variables.
    lookup: Option<Lookup<'a>>,
    /// Lists and maps whose end is yet to come, with their anchors.
    open: Vec<(Node, usize, Option<Key>)>,
    anchors: HashMap<usize, Node>,
    /// What aliases have added.
    aliased: Size,
    documents: Vec<Node>,
    mistakes: Vec<Mistake>,
}

impl Builder<'_> {
    /// Takes one event; an error is a mistake that ends the reading.
    fn event(&mut self, event: Event<'_>, place: Place) -> Result<(), Mistake> {
        match event {
            Event::SequenceStart(anchor, _) => self.start(Value::List(Vec::new()), anchor, place),
            Event::MappingStart(anchor, _) => self.start(Value::Map(Vec::new()), anchor, place),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some((node, anchor, _)) = self.open.pop() {
                    self.add(node, anchor);
                }
                Ok(())
            }
            Event::Scalar(text, _, anchor, _) if self.expects_key() => {
                // Keys are names, whatever they look like, and hold no variables.
                self.add(Node::text(place, text), anchor);
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                // A tag of YAML's own, such as `!!int`; others mean nothing here and are passed over.
                let tag = tag.filter(|tag| tag.is_yaml_core_schema());
                let node = self.scalar(&text, style, tag.as_ref().map(|tag| tag.suffix.as_str()), place);
                self.add(node, anchor);
                Ok(())
            }
            Event::Alias(anchor) => {
                let node = self.alias(anchor, place)?;
                self.add(node, 0);
                Ok(())
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn start(&mut self, value: Value, anchor: usize, place: Place) -> Result<(), Mistake> {
        if self.open.len() >= MAX_DEPTH {
            let message = format!("lists and maps are nested more than {MAX_DEPTH} deep");
            return Err(Mistake { place, message });
        }
        self.open.push((Node { place, value }, anchor, None));
        Ok(())
    }

    fn alias(&mut self, anchor: usize, place: Place) -> Result<Node, Mistake> {
        let Some(node) = self.anchors.get(&anchor) else {
            let message = "this alias refers to a node that contains it".into();
            return Err(Mistake { place, message });
        };
        node.add_to(&mut self.aliased);
        if self.aliased.nodes > MAX_ALIASED_NODES {
            let message = format!("aliases add more than {MAX_ALIASED_NODES} values");
            return Err(Mistake { place, message });
        }
        if self.aliased.bytes > MAX_ALIASED_BYTES {
            let message = format!("aliases add more than {MAX_ALIASED_BYTES} bytes");
            return Err(Mistake { place, message });
        }
        let value = node.value.clone();
        Ok(Node { place, value })
    }

    /// Puts a finished node where it belongs.
    fn add(&mut self, node: Node, anchor: usize) {
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        let Some((parent, _, key)) = self.open.last_mut() else {
            self.documents.push(node);
            return;
        };
        match (&mut parent.value, key.take()) {
            (Value::Map(entries), Some(key)) => entries.push((key, node)),
            (Value::Map(_), None) => {
                let place = node.place;
                let name = match node.value {
                    Value::Text { text, .. } => text,
                    _ => {
                        let message = format!("a key must be a text, found {}", node.kind());
                        self.mistakes.push(Mistake { place, message });
                        String::new()
                    }
                };
                *key = Some(Key { place, name });
            }
            (Value::List(items), _) => items.push(node),
            _ => {}
        }
    }

    /// Whether the next node is a key.
    fn expects_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some((
                Node {
                    value: Value::Map(_),
                    ..
                },
                _,
                None
            ))
        )
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&str>, place: Place) -> Node {
        let (text, from_variable) = match self.lookup {
            Some(lookup) => {
                let substituted = variables::substitute(text, lookup);
                let mistakes = substituted.mistakes.into_iter();
                self.mistakes
                    .extend(mistakes.map(|message| Mistake { place, message }));
                (substituted.text, substituted.from_variable)
            }
            None => (text.to_owned(), false),
        };
        // A variable's value is text, unless a tag says otherwise.
        let value = match tag {
            None if style == ScalarStyle::Plain && !from_variable => plain(&text),
            None | Some("str") => None,
            Some(tag) => {
                let value = plain(&text).filter(|value| has_tag(value, tag));
                if value.is_none() {
                    let message = format!("this is no `!!{tag}`");
                    self.mistakes.push(Mistake { place, message });
                }
                value
            }
        };
        Node {
            place,
            value: value.unwrap_or(Value::Text { text, from_variable }),
        }
    }
}

/// What an unquoted scalar is by the core schema; none: text.
fn plain(text: &str) -> Option<Value> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Some(Value::Null),
        "true" | "True" | "TRUE" => return Some(Value::Boolean(true)),
        "false" | "False" | "FALSE" => return Some(Value::Boolean(false)),
        _ => {}
    }
    let radix = |prefix, radix| {
        let digits: &str = text.strip_prefix(prefix)?;
        let digits = Some(digits).filter(|digits| !digits.starts_with(['+', '-']))?;
        u64::from_str_radix(digits, radix).ok()
    };
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Some(Value::Number(number.into()));
    }
    if !text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
        || !text.bytes().any(|b| b.is_ascii_digit())
    {
        return None;
    }
    if !text.contains(['.', 'e', 'E']) {
        let unsigned = text.parse::<u64>().map(serde_json::Number::from);
        let number = unsigned.or_else(|_| text.parse::<i64>().map(serde_json::Number::from));
        return number.ok().map(Value::Number);
    }
    let float = text.parse::<f64>().ok().filter(|float| float.is_finite())?;
    serde_json::Number::from_f64(float).map(Value::Number)
}

/// Whether a value is what a tag of the core schema asks for.
fn has_tag(value: &Value, tag: &str) -> bool {
    match value {
        Value::Null => tag == "null",
        Value::Boolean(_) => tag == "bool",
        Value::Number(number) => tag == "float" || tag == "int" && !number.is_f64(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(text: &str) -> (Option<Node>, Vec<String>) {
        let lookup = |name: &str| Ok((name == "PORT").then(|| "5432".into()));
        let (node, mistakes) = parse(text, &lookup);
        let shown = |mistake: Mistake| format!("{}: {}", mistake.place, mistake.message);
        (node, mistakes.into_iter().map(shown).collect())
    }

    #[test]
    fn scalars_are_what_the_core_schema_says() {
        for (text, expected) in [
            ("null", json!(null)),
            ("~", json!(null)),
            ("True", json!(true)),
            ("yes", json!("yes")),
            ("12", json!(12)),
            ("-12", json!(-12)),
            ("+12", json!(12)),
            ("18446744073709551615", json!(u64::MAX)),
            ("18446744073709551616", json!("18446744073709551616")),
            ("0x1f", json!(31)),
            ("0o17", json!(15)),
            ("0x-1", json!("0x-1")),
            ("1.5", json!(1.5)),
            ("1e3", json!(1000.0)),
            ("1e999", json!("1e999")),
            (".inf", json!(".inf")),
            ("-", json!([null])),
            ("1-2", json!("1-2")),
            ("2024-01-01", json!("2024-01-01")),
            ("'12'", json!("12")),
            ("\"null\"", json!("null")),
            ("!!str 12", json!("12")),
            ("!own 12", json!(12)),
            // A variable's value is text; a tag makes it something else.
            ("${PORT}", json!("5432")),
            ("!!int ${PORT}", json!(5432)),
            ("!!float ${PORT}", json!(5432)),
        ] {
            let (node, mistakes) = read(text);
            assert_eq!(mistakes, [] as [String; 0], "{text}");
            assert_eq!(node.map(|node| node.to_json()), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_pointer_leads_to_a_place() {
        let text = "a:\n  b/c: [1, {d: 2}]\n  e~f:\n    g: 3\n";
        let (node, _) = read(text);
        let node = node.expect("a tree");
        for (pointer, expected) in [
            ("", "1:1"),
            ("/a", "1:1"),
            ("/a/b~1c", "2:3"),
            ("/a/b~1c/1", "2:12"),
            ("/a/b~1c/1/d", "2:13"),
            ("/a/e~0f/g", "4:5"),
            ("/a/none", "1:1"),
            ("/a/b~1c/7", "2:3"),
            ("/a/e~0f/g/h", "4:5"),
        ] {
            assert_eq!(node.locate(pointer).0.to_string(), expected, "{pointer}");
        }
    }

    #[test]
    fn mistakes_of_yaml_itself_have_a_place() {
        let deep = "[".repeat(70);
        let echoes = format!("a: &a {}\nb: *a\nc: *a\nd: *a\n", "x".repeat(400 << 10));
        let laughs = (0..20).fold("a0: &a0 [x, x]\n".to_owned(), |text, n| {
            text + &format!("a{0}: &a{0} [*a{n}, *a{n}]\n", n + 1)
        });
        for (text, expected) in [
            (
                "a: 1\n---\nb: 2\n",
                &["3:1: a second YAML document; a file holds one"][..],
            ),
            ("? [a]\n: 1\n", &["1:3: a key must be a text, found a list"]),
            ("a: !!int x\n", &["1:4: this is no `!!int`"]),
            (
                "a: &x [*x]\n",
                &["1:8: this alias refers to a node that contains it"],
            ),
            (&deep, &["1:65: lists and maps are nested more than 64 deep"]),
            (&laughs, &["12:12: aliases add more than 10000 values"]),
            (&echoes, &["4:4: aliases add more than 1048576 bytes"]),
            (
                "a: ${X}\nb: '${Y}'\n",
                &[
                    "1:4: the variable X is not set; set it, or write `${X:-default}`",
                    "2:4: the variable Y is not set; set it, or write `${Y:-default}`",
                ],
            ),
        ] {
            assert_eq!(read(text).1, expected, "{text}");
        }
    }

    #[test]
    fn broken_yaml_is_one_mistake_and_no_tree() {
        let (node, mistakes) = read("a: [1, 2\nb: 3\n");
        assert!(node.is_none());
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        assert!(mistakes[0].contains("this is not YAML"), "{mistakes:?}");
    }

    #[test]
    fn aliases_are_copies() {
        let (node, mistakes) = read("a: &x {b: 1}\nc: *x\n");
        assert_eq!(mistakes, [] as [String; 0]);
        assert_eq!(
            node.map(|node| node.to_json()),
            Some(json!({"a": {"b": 1}, "c": {"b": 1}}))
        );
    }
}
