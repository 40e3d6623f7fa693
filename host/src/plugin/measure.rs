//! What a connector's schema may cost: how many schemas it stands for, how deep they lie, how long its patterns are.
//!
//! Compiling a schema and checking with it take time in proportion to the first, stack in proportion to the second and
//! memory in proportion to the third, each reference replaced with what it refers to. A schema that goes beyond a bound
//! is refused before `jsonschema` sees it. This holds only as long as both follow the same references, so a reference is
//! a JSON pointer that leads somewhere within the schema, and the keywords that give places other names are refused.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::marks;
use super::text::printable;

/// The most schemas that one schema may stand for, each as often as it is referred to.
const MAX_SCHEMAS: u64 = 100_000;
/// How deep references and parts of a schema may lead, in whatever order they are followed.
const MAX_DEPTH: usize = 500;
/// The most bytes of regular expressions, each as often as it is referred to: a few of them may stand for a megabyte.
const MAX_PATTERN_BYTES: u64 = 16 << 10;

/// What a `$schema` may say.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
/// Keywords that make a reference lead elsewhere than its JSON pointer.
const OTHER_NAMES: [&str; 5] = ["$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"];

/// Whether the schema can be afforded; an error says why not.
pub(super) fn check(schema: &Value) -> Result<(), String> {
    let mut walk = Walk {
        root: schema,
        visited: HashMap::new(),
        open: Vec::new(),
    };
    walk.visit(schema, 0).map(|_| ())
}

/// What a part of a schema stands for.
#[derive(Clone, Copy, Default)]
struct Cost {
    schemas: u64,
    pattern_bytes: u64,
    depth: usize,
}

impl Cost {
    fn add(&mut self, other: Cost) {
        self.schemas = self.schemas.saturating_add(other.schemas);
        self.pattern_bytes = self.pattern_bytes.saturating_add(other.pattern_bytes);
    }

    fn check(&self) -> Result<(), String> {
        if self.schemas > MAX_SCHEMAS {
            return Err(format!(
                "multiplies by its references to more than {MAX_SCHEMAS} schemas"
            ));
        }
        if self.pattern_bytes > MAX_PATTERN_BYTES {
            return Err(format!(
                "has more than {MAX_PATTERN_BYTES} bytes of regular expressions, each counted as often as it is \
                 referred to"
            ));
        }
        if self.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        Ok(())
    }
}

fn too_deep() -> String {
    format!("is more than {MAX_DEPTH} levels deep")
}

/// Tarjan's search for parts that lead to each other. Such a circle counts once, as it demands something else only of a
/// deeper value; but a way through it may pass all its parts, so it is as deep as it has parts.
struct Walk<'s> {
    root: &'s Value,
    visited: HashMap<*const Value, Visited>,
    /// Parts whose circle is not known yet, in the order in which they were met.
    open: Vec<*const Value>,
}

#[derive(Clone, Copy)]
enum Visited {
    /// Open: when it was met.
    Open(usize),
    Closed(Cost),
}

/// What is known of a part when all that it leads to has been visited.
struct Met {
    /// When the first part was met that it leads back to; it is in a circle with that one.
    first: usize,
    /// Without the parts of its circle.
    cost: Cost,
}

impl<'s> Walk<'s> {
    /// None in place of `first`: the part's circle is closed, and this is all that it costs.
    fn visit(&mut self, part: &'s Value, depth: usize) -> Result<(Option<usize>, Cost), String> {
        let key = std::ptr::from_ref(part);
        match self.visited.get(&key) {
            Some(Visited::Open(met)) => return Ok((Some(*met), Cost::default())),
            Some(Visited::Closed(cost)) => return Ok((None, *cost)),
            None if depth > MAX_DEPTH => return Err(too_deep()),
            None => {}
        }
        let (own, parts) = self.look(part)?;
        let number = self.visited.len();
        self.visited.insert(key, Visited::Open(number));
        let below = self.open.len();
        self.open.push(key);
        let mut met = Met {
            first: number,
            cost: own,
        };
        for part in parts {
            let (first, cost) = self.visit(part, depth + 1)?;
            met.first = met.first.min(first.unwrap_or(number));
            met.cost.add(cost);
            met.cost.depth = met.cost.depth.max(cost.depth);
        }
        if met.first < number {
            return Ok((Some(met.first), met.cost));
        }
        met.cost.depth += self.open.len() - below;
        met.cost.check()?;
        for member in self.open.drain(below..) {
            self.visited.insert(member, Visited::Closed(met.cost));
        }
        Ok((None, met.cost))
    }

    /// What a part costs by itself, and what it leads to.
    fn look(&self, part: &'s Value) -> Result<(Cost, Vec<&'s Value>), String> {
        let own = Cost::default();
        match part {
            Value::Object(members) => {
                check_names(members)?;
                let target = match members.get("$ref").and_then(Value::as_str) {
                    Some(reference) => Some(self.target(reference)?),
                    None => None,
                };
                let own = Cost {
                    schemas: 1,
                    pattern_bytes: pattern_bytes(members),
                    ..own
                };
                Ok((own, members.values().chain(target).collect()))
            }
            Value::Array(items) => Ok((own, items.iter().collect())),
            _ => Ok((own, Vec::new())),
        }
    }

    fn target(&self, reference: &str) -> Result<&'s Value, String> {
        marks::resolve(self.root, reference).ok_or_else(|| {
            format!(
                "refers to `{}`; a reference must be the JSON pointer of a place within the schema, such as \
                 `#/$defs/name`",
                printable(reference, 256)
            )
        })
    }
}

/// Refuses keywords that would make `jsonschema` follow other references than those that are followed here. As the name
/// of a property each of them has a schema for a value, not a text.
fn check_names(members: &Map<String, Value>) -> Result<(), String> {
    for keyword in OTHER_NAMES {
        if members.get(keyword).is_some_and(Value::is_string) {
            return Err(format!(
                "uses `{keyword}`; places in it must be referred to by their JSON pointers, such as `#/$defs/name`"
            ));
        }
    }
    match members.get("$schema").and_then(Value::as_str) {
        Some(dialect) if dialect.trim_end_matches('#') != DIALECT => Err(format!(
            "is written in `{}`; it must be JSON Schema 2020-12 (`{DIALECT}`)",
            printable(dialect, 256)
        )),
        _ => Ok(()),
    }
}

fn pattern_bytes(members: &Map<String, Value>) -> u64 {
    let pattern = members.get("pattern").and_then(Value::as_str);
    let names = members.get("patternProperties").and_then(Value::as_object);
    let names = names.into_iter().flat_map(Map::keys).map(String::as_str);
    pattern
        .into_iter()
        .chain(names)
        .map(|text| text.len() as u64)
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// `$defs` of which each holds references to the next, and the last one to this.
    fn chain(length: usize, references: usize, last: &str, pointer: impl Fn(usize) -> String) -> Value {
        let target = |index| match index == length {
            true => last.to_owned(),
            false => pointer(index),
        };
        let definition = |index| json!({"allOf": vec![json!({"$ref": target(index + 1)}); references]});
        let definitions = (0..length).map(|index| (format!("d{index}"), definition(index)));
        json!({"$ref": pointer(0), "$defs": Value::Object(definitions.collect())})
    }

    fn plain(index: usize) -> String {
        format!("#/$defs/d{index}")
    }

    #[track_caller]
    fn assert_refused(schema: &Value, expected: &str) {
        let refusal = check(schema).err().unwrap_or_default();
        assert!(refusal.contains(expected), "{refusal:?}");
    }

    #[test]
    fn a_schema_that_takes_time_or_stack_without_end_is_refused() {
        let string = "#/$defs/d0/allOf/0/$ref";
        assert_refused(&chain(60, 2, string, plain), "multiplies by its references");
        assert_refused(&chain(10_000, 1, string, plain), "levels deep");
        // In a circle nothing is demanded, however many references there are.
        for references in [1, 2] {
            for length in [1, 2] {
                assert_eq!(check(&chain(length, references, "#/$defs/d0", plain)), Ok(()));
            }
        }
    }

    #[test]
    fn no_spelling_of_a_reference_leads_past_the_bounds() {
        let string = "#/$defs/d0/allOf/0/$ref";
        for spelling in ["#/%24defs/d", "#/$def%73/d", "#/$defs%2Fd"] {
            let pointer = |index| format!("{spelling}{index}");
            assert_refused(&chain(60, 2, string, pointer), "multiplies by its references");
            assert_refused(&chain(10_000, 1, string, pointer), "levels deep");
        }
        let wide = json!({"allOf": vec![json!({"$ref": "#/$defs/a/allOf/+0"}); 2]});
        assert_refused(&json!({"$defs": {"a": wide}}), "`#/$defs/a/allOf/+0`");
        for reference in [
            "#a",
            "#/nowhere",
            "x",
            "http://h/x",
            "#/%FF",
            "#/$defs/a/allOf/00",
        ] {
            let schema = json!({"$ref": reference, "$defs": {"a": {"allOf": [{}]}}});
            assert_refused(&schema, &format!("refers to `{reference}`"));
        }
        for keyword in OTHER_NAMES {
            assert_refused(
                &json!({"$defs": {"a": {keyword: "a"}}}),
                &format!("uses `{keyword}`"),
            );
            // As the name of a property it is like any other.
            assert_eq!(
                check(&json!({"properties": {keyword: {"type": "string"}, "$ref": true}})),
                Ok(())
            );
        }
        let dialect = |text: &str| json!({"items": {"$schema": text}});
        assert_refused(&dialect("http://json-schema.org/draft-07/schema#"), "draft-07");
        assert_eq!(check(&dialect(DIALECT)), Ok(()));
    }

    /// Bundles of 300 levels between parts that are met before all bundles: each bundle by itself is not deep.
    #[test]
    fn a_circle_does_not_hide_how_deep_it_is() {
        let reference = |name: String| json!({"$ref": format!("#/$defs/{name}")});
        let mut definitions = Map::new();
        for bundle in 0..20 {
            let next = format!("a{}", bundle + 1);
            let part = json!({"allOf": [reference(next.clone()), reference(format!("b{bundle}x0"))]});
            definitions.insert(format!("a{bundle}"), part);
            for level in 0..100 {
                let below = if level == 99 {
                    next.clone()
                } else {
                    format!("b{bundle}x{}", level + 1)
                };
                definitions.insert(format!("b{bundle}x{level}"), reference(below));
            }
        }
        let all = (0..20).map(|bundle| reference(format!("b{bundle}x0")));
        definitions.insert("a20".to_owned(), json!({"allOf": all.collect::<Vec<_>>()}));
        assert_refused(
            &json!({"$ref": "#/$defs/a0", "$defs": definitions}),
            "levels deep",
        );
    }

    #[test]
    fn regular_expressions_are_counted_as_often_as_they_are_referred_to() {
        let pattern = "a".repeat(1 << 10);
        let all = |times| {
            json!({"allOf": vec![json!({"$ref": "#/$defs/p"}); times],
                                 "$defs": {"p": {"pattern": pattern}}})
        };
        assert_eq!(check(&all(15)), Ok(()));
        assert_refused(&all(16), "bytes of regular expressions");
        let names: Map<String, Value> = (0..17).map(|n| (format!("{n}{pattern}"), json!({}))).collect();
        assert_refused(
            &json!({"patternProperties": names}),
            "bytes of regular expressions",
        );
    }
}
