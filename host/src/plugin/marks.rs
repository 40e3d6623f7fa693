//! Where a configuration holds values that the connector's schema marks: grants and secrets.
//!
//! The walk follows the configuration, which is finite, and looks up beside each value what the schema says of it,
//! through local `$ref`s, `allOf` and the alternatives that the value satisfies. A property that is absent marks
//! nothing. Not here: what a mark means (`grants`, `describe`).

use std::collections::HashSet;

use serde_json::{Map, Value};

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

/// Which alternatives of a `oneOf` or `anyOf` the walk follows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Alternatives {
    /// Those that the value satisfies: a grant must come from the alternative that the author chose.
    Satisfied,
    /// All: a secret must be hidden even where the configuration is wrong.
    All,
}

/// Every marked value, in the order of the configuration; a list's items are marked one by one.
pub(super) fn find<'v>(schema: &Value, config: &'v Value, alternatives: Alternatives) -> Vec<Marked<'v>> {
    let mut walk = Walk {
        root: schema,
        alternatives,
        seen: HashSet::new(),
        found: Vec::new(),
    };
    walk.visit(schema, config, "");
    walk.found
}

/// Resolves a `$ref` within the schema's own document.
pub(super) fn resolve<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = reference.strip_prefix('#')?;
    root.pointer(&pointer.replace("%24", "$").replace("%25", "%"))
}

struct Walk<'s, 'v> {
    root: &'s Value,
    alternatives: Alternatives,
    /// Pairs of schema and value that were visited: references may go in circles.
    seen: HashSet<(*const Value, *const Value)>,
    found: Vec<Marked<'v>>,
}

impl<'s, 'v> Walk<'s, 'v> {
    fn visit(&mut self, schema: &'s Value, value: &'v Value, pointer: &str) {
        let Some(object) = schema.as_object() else { return };
        if !self.seen.insert((schema, value)) {
            return;
        }
        self.note(object, value, pointer);
        if let Some(target) = object
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| resolve(self.root, reference))
        {
            self.visit(target, value, pointer);
        }
        for key in ["then", "else", "if"] {
            if let Some(schema) = object.get(key) {
                self.visit(schema, value, pointer);
            }
        }
        for key in ["allOf", "anyOf", "oneOf"] {
            let Some(branches) = object.get(key).and_then(Value::as_array) else {
                continue;
            };
            let chosen = if key == "allOf" {
                branches.iter().collect()
            } else {
                self.choose(branches, value)
            };
            for schema in chosen {
                self.visit(schema, value, pointer);
            }
        }
        match value {
            Value::Object(members) => self.visit_members(object, members, pointer),
            Value::Array(items) => self.visit_items(object, items, pointer),
            _ => {}
        }
    }

    fn visit_members(
        &mut self,
        schema: &'s Map<String, Value>,
        members: &'v Map<String, Value>,
        pointer: &str,
    ) {
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, value) in members {
            let declared = properties.and_then(|properties| properties.get(name));
            let Some(schema) = declared.or_else(|| schema.get("additionalProperties")) else {
                continue;
            };
            let name = name.replace('~', "~0").replace('/', "~1");
            self.visit(schema, value, &format!("{pointer}/{name}"));
        }
    }

    fn visit_items(&mut self, schema: &'s Map<String, Value>, items: &'v [Value], pointer: &str) {
        let prefix = schema.get("prefixItems").and_then(Value::as_array);
        for (index, value) in items.iter().enumerate() {
            let declared = prefix.and_then(|prefix| prefix.get(index));
            let Some(schema) = declared.or_else(|| schema.get("items")) else {
                continue;
            };
            self.visit(schema, value, &format!("{pointer}/{index}"));
        }
    }

    fn note(&mut self, schema: &Map<String, Value>, value: &'v Value, pointer: &str) {
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
                        self.push(mark, item, format!("{pointer}/{index}"));
                    }
                }
                value => self.push(mark, value, pointer.to_owned()),
            }
        }
    }

    fn push(&mut self, mark: Mark, value: &'v Value, pointer: String) {
        let marked = Marked { pointer, mark, value };
        if !self.found.contains(&marked) {
            self.found.push(marked);
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
    fn references_that_go_in_circles_end() {
        let schema = json!({"$ref": "#/$defs/A", "$defs": {"A": {
            "allOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}, {"$ref": "#"}],
            "properties": {"a": {"$ref": "#"}, "p": {"x-setu-grant": "read"}}}}});
        let found = marks(schema, json!({"a": {"a": {"p": "x"}}}));
        assert_eq!(found, [("/a/a/p".to_owned(), Mark::Read)]);
    }
}
