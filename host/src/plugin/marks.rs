//! Where a configuration holds values that the connector's schema marks: grants and secrets.
//!
//! The walk follows the configuration, which is finite, and looks up beside each value what the schema says of it,
//! through local `$ref`s, `allOf` and the alternatives that the value satisfies. A property that is absent marks
//! nothing. Not here: what a mark means (`grants`, `describe`).

use std::collections::HashSet;
use std::rc::Rc;

use serde_json::{Map, Value};

use crate::address::percent_decode;

/// What a schema says of a property beyond JSON Schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Mark {
    Network { default_port: Option<u16> },
    Read,
    Write,
    Secret,
}

/// A marked value within a configuration.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Marked<'v> {
    /// JSON pointer.
    pub(super) pointer: String,
    pub(super) mark: Mark,
    pub(super) value: &'v Value,
}

/// Which parts of a schema the walk follows where not all of them hold for a value.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Alternatives {
    /// Those that the value satisfies: a grant must come from the alternative that the author chose.
    Satisfied,
    /// All, and every other schema that the value may have to do with: a secret must be hidden even where the
    /// configuration is wrong.
    All,
}

/// Every marked value, in the order of the configuration; a list's items are marked one by one.
pub(super) fn find<'v>(schema: &Value, config: &'v Value, alternatives: Alternatives) -> Vec<Marked<'v>> {
    let mut walk = Walk {
        root: schema,
        alternatives,
        seen: HashSet::new(),
        found: Vec::new(),
        known: HashSet::new(),
        open: Vec::new(),
    };
    walk.run(config);
    walk.found
}

/// Resolves a `$ref` within the schema's own document: a JSON pointer as the fragment of a URL (RFC 6901, section 6).
pub(super) fn resolve<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    root.pointer(&percent_decode(reference.strip_prefix('#')?))
}

struct Walk<'s, 'v> {
    root: &'s Value,
    alternatives: Alternatives,
    /// What is yet to be visited, the next one last. A list rather than recursion: a schema and a configuration may be
    /// deep, one for each level of the other.
    open: Vec<Visit<'s, 'v>>,
    /// Pairs of schema and value that were visited: references may go in circles.
    seen: HashSet<(*const Value, *const Value)>,
    found: Vec<Marked<'v>>,
    /// What `found` holds, by place and mark.
    known: HashSet<(Rc<str>, Mark)>,
}

/// A value, its pointer, and a schema that holds for it.
type Visit<'s, 'v> = (&'s Value, &'v Value, Rc<str>);

impl<'s, 'v> Walk<'s, 'v> {
    fn run(&mut self, config: &'v Value) {
        self.open.push((self.root, config, "".into()));
        while let Some((schema, value, pointer)) = self.open.pop() {
            let Some(object) = schema.as_object() else {
                continue;
            };
            if self.seen.insert((schema, value)) {
                self.note(object, value, &pointer);
                let first = self.open.len();
                let beside = self.beside(object, value).into_iter();
                self.open
                    .extend(beside.map(|schema| (schema, value, pointer.clone())));
                self.open_parts(object, value, &pointer);
                self.open[first..].reverse();
            }
        }
    }

    /// The schemas that hold for the same value.
    fn beside(&self, schema: &'s Map<String, Value>, value: &Value) -> Vec<&'s Value> {
        let reference = schema.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|reference| resolve(self.root, reference));
        let mut schemas: Vec<_> = target.into_iter().collect();
        schemas.extend(["then", "else", "if"].iter().filter_map(|key| schema.get(*key)));
        for key in ["allOf", "anyOf", "oneOf"] {
            let Some(branches) = schema.get(key).and_then(Value::as_array) else {
                continue;
            };
            match key {
                "allOf" => schemas.extend(branches),
                _ => schemas.extend(self.choose(branches, value)),
            }
        }
        if self.alternatives == Alternatives::All {
            let dependent = ["dependentSchemas", "dependencies"].iter();
            let dependent = dependent.filter_map(|key| schema.get(*key)?.as_object());
            schemas.extend(dependent.flat_map(Map::values));
            schemas.extend(schema.get("not"));
        }
        schemas
    }

    /// The schemas that hold for what is in a value.
    fn open_parts(&mut self, schema: &'s Map<String, Value>, value: &'v Value, pointer: &str) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let escaped = name.replace('~', "~0").replace('/', "~1");
                    let pointer: Rc<str> = format!("{pointer}/{escaped}").into();
                    let schemas = self.of_member(schema, name).into_iter();
                    self.open
                        .extend(schemas.map(|schema| (schema, value, pointer.clone())));
                }
            }
            Value::Array(items) => {
                for (index, value) in items.iter().enumerate() {
                    let pointer: Rc<str> = format!("{pointer}/{index}").into();
                    let schemas = self.of_item(schema, index).into_iter();
                    self.open
                        .extend(schemas.map(|schema| (schema, value, pointer.clone())));
                }
            }
            _ => {}
        }
    }

    fn of_member(&self, schema: &'s Map<String, Value>, name: &str) -> Vec<&'s Value> {
        let declared = schema
            .get("properties")
            .and_then(|properties| properties.get(name));
        let others = schema.get("additionalProperties");
        if self.alternatives == Alternatives::Satisfied {
            return declared.or(others).into_iter().collect();
        }
        let patterns = schema.get("patternProperties").and_then(Value::as_object);
        let patterns = patterns.into_iter().flat_map(Map::values);
        let others = others.into_iter().chain(schema.get("unevaluatedProperties"));
        declared.into_iter().chain(patterns).chain(others).collect()
    }

    fn of_item(&self, schema: &'s Map<String, Value>, index: usize) -> Vec<&'s Value> {
        let declared = schema.get("prefixItems").and_then(|prefix| prefix.get(index));
        let mut schemas: Vec<_> = declared.or_else(|| schema.get("items")).into_iter().collect();
        if self.alternatives == Alternatives::All {
            schemas.extend(
                ["contains", "unevaluatedItems"]
                    .iter()
                    .filter_map(|key| schema.get(*key)),
            );
        }
        schemas
    }

    fn note(&mut self, schema: &Map<String, Value>, value: &'v Value, pointer: &Rc<str>) {
        let default_port = schema
            .get("x-setu-default-port")
            .and_then(Value::as_u64)
            .and_then(|port| u16::try_from(port).ok());
        let grant = match schema.get("x-setu-grant").and_then(Value::as_str) {
            Some("network") => Some(Mark::Network { default_port }),
            Some("read") => Some(Mark::Read),
            Some("write") => Some(Mark::Write),
            _ => None,
        };
        let secret = schema.get("x-setu-secret") == Some(&Value::Bool(true));
        for mark in grant.into_iter().chain(secret.then_some(Mark::Secret)) {
            match value {
                Value::Array(items) => {
                    for (index, item) in items.iter().enumerate() {
                        self.push(mark, item, format!("{pointer}/{index}").into());
                    }
                }
                value => self.push(mark, value, pointer.clone()),
            }
        }
    }

    fn push(&mut self, mark: Mark, value: &'v Value, pointer: Rc<str>) {
        if self.known.insert((pointer.clone(), mark)) {
            let pointer = pointer.to_string();
            self.found.push(Marked { pointer, mark, value });
        }
    }

    fn choose(&self, branches: &'s [Value], value: &Value) -> Vec<&'s Value> {
        if self.alternatives == Alternatives::All || branches.len() == 1 {
            return branches.iter().collect();
        }
        branches
            .iter()
            .filter(|branch| self.satisfies(branch, value))
            .collect()
    }

    fn satisfies(&self, branch: &Value, value: &Value) -> bool {
        // The branch's references point into the whole document, so the document's definitions go with it.
        let mut schema = Map::new();
        for key in ["$defs", "definitions"] {
            if let Some(definitions) = self.root.get(key) {
                schema.insert(key.to_owned(), definitions.clone());
            }
        }
        schema.insert("allOf".to_owned(), Value::Array(vec![branch.clone()]));
        jsonschema::draft202012::new(&Value::Object(schema)).is_ok_and(|schema| schema.is_valid(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn marks(schema: Value, config: Value) -> Vec<(String, Mark)> {
        let found = find(&schema, &config, Alternatives::Satisfied);
        found.into_iter().map(|m| (m.pointer, m.mark)).collect()
    }

    #[test]
    fn a_mark_is_found_wherever_the_schema_hides_it() {
        let cases = [
            (
                json!({"properties": {"path": {"x-setu-grant": "read"}}}),
                json!({"path": "a", "other": 1}),
                vec![("/path", Mark::Read)],
            ),
            (
                json!({"properties": {"path": {"x-setu-grant": "read"}}}),
                json!({"other": 1}),
                vec![],
            ),
            (
                json!({"properties": {"t": {"$ref": "#/$defs/T"}},
                       "$defs": {"T": {"properties": {"p": {"x-setu-grant": "write", "type": "string"}}}}}),
                json!({"t": {"p": "a"}}),
                vec![("/t/p", Mark::Write)],
            ),
            (
                json!({"properties": {"l": {"type": "array", "items": {"$ref": "#/$defs/U"}}},
                       "$defs": {"U": {"x-setu-grant": "network", "x-setu-default-port": 7}}}),
                json!({"l": ["a", "b"]}),
                vec![
                    (
                        "/l/0",
                        Mark::Network {
                            default_port: Some(7),
                        },
                    ),
                    (
                        "/l/1",
                        Mark::Network {
                            default_port: Some(7),
                        },
                    ),
                ],
            ),
            (
                json!({"properties": {"l": {"x-setu-grant": "read"}}}),
                json!({"l": ["a", "b"]}),
                vec![("/l/0", Mark::Read), ("/l/1", Mark::Read)],
            ),
            (
                json!({"oneOf": [
                    {"properties": {"kind": {"const": "f"}, "at": {"x-setu-grant": "read"}}},
                    {"properties": {"kind": {"const": "n"}, "at": {"x-setu-grant": "network"}}}]}),
                json!({"kind": "n", "at": "h:1"}),
                vec![("/at", Mark::Network { default_port: None })],
            ),
            (
                json!({"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}],
                       "$defs": {"P": {"type": "object", "properties": {"p": {"x-setu-grant": "read"}}}}}),
                json!({"p": "x"}),
                vec![("/p", Mark::Read)],
            ),
            (
                json!({"allOf": [{"properties": {"p": {"x-setu-secret": true, "x-setu-grant": "network"}}}]}),
                json!({"p": "x"}),
                vec![("/p", Mark::Network { default_port: None }), ("/p", Mark::Secret)],
            ),
            (
                json!({"additionalProperties": {"x-setu-secret": true}}),
                json!({"a/b": "x"}),
                vec![("/a~1b", Mark::Secret)],
            ),
        ];
        for (schema, config, expected) in cases {
            let expected: Vec<_> = expected.into_iter().map(|(p, m)| (p.to_owned(), m)).collect();
            assert_eq!(marks(schema.clone(), config), expected, "{schema}");
        }
    }

    #[test]
    fn a_secret_is_found_whichever_keyword_leads_to_it() {
        let secret = json!({"x-setu-secret": true});
        for (schema, config, pointer) in [
            (
                json!({"patternProperties": {"^p": secret}}),
                json!({"p": "x"}),
                "/p",
            ),
            (json!({"unevaluatedProperties": secret}), json!({"p": "x"}), "/p"),
            (
                json!({"properties": {"p": {}}, "additionalProperties": secret}),
                json!({"p": "x"}),
                "/p",
            ),
            (
                json!({"dependentSchemas": {"q": {"properties": {"p": secret}}}}),
                json!({"p": "x"}),
                "/p",
            ),
            (
                json!({"not": {"properties": {"p": secret}}}),
                json!({"p": "x"}),
                "/p",
            ),
            (json!({"contains": secret}), json!(["x"]), "/0"),
            (
                json!({"prefixItems": [{}], "unevaluatedItems": secret}),
                json!(["x"]),
                "/0",
            ),
        ] {
            let found = find(&schema, &config, Alternatives::All);
            let found: Vec<_> = found
                .iter()
                .map(|marked| (marked.pointer.as_str(), marked.mark))
                .collect();
            assert_eq!(found, [(pointer, Mark::Secret)], "{schema}");
        }
    }

    #[test]
    fn many_marks_on_one_value_are_found_at_once() {
        let mark = |port| json!({"x-setu-grant": "network", "x-setu-default-port": port});
        let schema = json!({"allOf": (0..20_000).map(mark).collect::<Vec<_>>()});
        let config = json!(["a", "b", "c", "d", "e"]);
        let start = std::time::Instant::now();
        assert_eq!(find(&schema, &config, Alternatives::All).len(), 100_000);
        assert!(
            start.elapsed() < std::time::Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }

    #[test]
    fn references_that_go_in_circles_end() {
        let schema = json!({"$ref": "#/$defs/A", "$defs": {"A": {
            "allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}, {"$ref": "#"}],
            "properties": {"a": {"$ref": "#"}, "p": {"x-setu-grant": "read"}}}}});
        let found = marks(schema, json!({"a": {"a": {"p": "x"}}}));
        assert_eq!(found, [("/a/a/p".to_owned(), Mark::Read)]);
    }
}
