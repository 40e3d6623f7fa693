//! What a connector says of itself, checked; and configurations checked against it.
//!
//! A configuration's mistakes are reported all at once, each with its place, in words that never show a secret.

use std::sync::Arc;
use std::time::Duration;

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;

use super::bindings::exports::setu::connector::connector;
use super::bounded::within;
use super::inspect::Halves;
use super::marks::{self, Alternatives, Mark, Marked};
use super::measure;
use super::text::printable;
use super::{ConfigMistake, Description};
use crate::address;

const MAX_SCHEMA_BYTES: usize = 1 << 20;
const MAX_MISTAKES: usize = 100;
/// The most bytes that one compiled regular expression may have.
const MAX_PATTERN_SIZE: usize = 1 << 20;
/// How long compiling a schema may take, and checking a configuration.
pub(super) const CHECK_TIME: Duration = Duration::from_secs(10);

/// The schema of one role's configuration, ready to check with.
pub(super) struct ConfigSchema {
    pub(super) schema: Value,
    validator: Arc<Validator>,
}

/// A checked description and the schemas of the halves that the component has.
pub(super) struct Checked {
    pub(super) description: Description,
    pub(super) source: Option<ConfigSchema>,
    pub(super) destination: Option<ConfigSchema>,
}

/// Checks what `describe` returned; an error says which rule it breaks.
pub(super) fn check(found: connector::Description, halves: Halves) -> Result<Checked, String> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if found.name.is_empty() || found.name.len() > 64 || !found.name.chars().all(is_name) {
        return Err(format!(
            "the name `{}` is not made of 1 to 64 lower case letters, digits and hyphens",
            printable(&found.name, 64)
        ));
    }
    if !is_semantic_version(&found.version) {
        let version = printable(&found.version, 64);
        return Err(format!(
            "the version `{version}` is not a semantic version such as 1.2.3"
        ));
    }
    let source = config_schema("source", found.source_config_schema, halves.source)?;
    let destination = config_schema("destination", found.destination_config_schema, halves.destination)?;
    let schema = |role: &Option<ConfigSchema>| role.as_ref().map(|role| role.schema.clone());
    Ok(Checked {
        description: Description {
            name: found.name,
            version: found.version,
            summary: printable(&found.summary, 1024),
            source_config_schema: schema(&source),
            destination_config_schema: schema(&destination),
        },
        source,
        destination,
    })
}

fn is_semantic_version(text: &str) -> bool {
    let core_end = text.find(['-', '+']).unwrap_or(text.len());
    let (core, rest) = text.split_at(core_end);
    let is_number = |part: &str| {
        !part.is_empty()
            && part.len() < 10
            && part.bytes().all(|b| b.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'))
    };
    let is_rest = |c: char| c.is_ascii_alphanumeric() || "-+.".contains(c);
    text.len() <= 64
        && core.split('.').count() == 3
        && core.split('.').all(is_number)
        && rest.chars().all(is_rest)
}

fn config_schema(role: &str, text: Option<String>, exported: bool) -> Result<Option<ConfigSchema>, String> {
    let text = match (text, exported) {
        (None, false) => return Ok(None),
        (Some(text), true) => text,
        (None, true) => {
            return Err(format!(
                "it exports `{role}`, but describes no {role} configuration"
            ));
        }
        (Some(_), false) => {
            return Err(format!(
                "it describes a {role} configuration, but does not export `{role}`"
            ));
        }
    };
    ConfigSchema::new(&text)
        .map(Some)
        .map_err(|rule| format!("the schema of its {role} configuration {rule}"))
}

impl ConfigSchema {
    pub(super) fn new(text: &str) -> Result<ConfigSchema, String> {
        if text.len() > MAX_SCHEMA_BYTES {
            return Err(format!("has {} bytes; at most {MAX_SCHEMA_BYTES}", text.len()));
        }
        let schema: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        measure::check(&schema)?;
        let own = schema.clone();
        let compiled = within(CHECK_TIME, move || {
            let patterns = PatternOptions::fancy_regex().size_limit(MAX_PATTERN_SIZE);
            let options = jsonschema::draft202012::options().with_pattern_options(patterns);
            options.build(&own).map_err(|error| error.to_string())
        });
        let validator = compiled
            .ok_or_else(|| format!("takes more than {} seconds to compile", CHECK_TIME.as_secs()))?
            .map_err(|error| format!("is not a JSON Schema (2020-12): {}", printable(&error, 1024)))?;
        let validator = Arc::new(validator);
        Ok(ConfigSchema { schema, validator })
    }

    /// Every mistake, at most a hundred of them.
    pub(super) fn mistakes(&self, config: &Value) -> Vec<ConfigMistake> {
        let marked = marks::find(&self.schema, config, Alternatives::All);
        let secrets: Vec<_> = marked
            .iter()
            .filter(|marked| !matches!(marked.mark, Mark::Read | Mark::Write))
            .collect();
        let (validator, own) = (self.validator.clone(), config.clone());
        let errors = within(CHECK_TIME, move || -> Vec<_> {
            let errors = validator.iter_errors(&own).take(MAX_MISTAKES);
            errors.map(|error| error.to_owned()).collect()
        });
        let Some(errors) = errors else {
            return vec![ConfigMistake {
                pointer: String::new(),
                message: takes_too_long(),
            }];
        };
        let mut mistakes = Vec::new();
        for error in errors {
            self.explain(&error, &secrets, &mut mistakes);
            if mistakes.len() >= MAX_MISTAKES {
                break;
            }
        }
        mistakes
    }

    /// A copy with secrets replaced, also those within connection strings.
    pub(super) fn redact(&self, config: &Value) -> Value {
        let mut redacted = config.clone();
        for marked in marks::find(&self.schema, config, Alternatives::All) {
            let Some(value) = redacted.pointer_mut(&marked.pointer) else {
                continue;
            };
            match (marked.mark, &mut *value) {
                (Mark::Secret, _) => *value = Value::String("***".to_owned()),
                (Mark::Network { .. }, Value::String(text)) => *text = address::mask(text),
                _ => {}
            }
        }
        redacted
    }

    fn explain(
        &self,
        error: &ValidationError<'_>,
        secrets: &[&Marked<'_>],
        mistakes: &mut Vec<ConfigMistake>,
    ) {
        let pointer = error.instance_path().to_string();
        let mut push = |pointer: String, message: String| mistakes.push(ConfigMistake { pointer, message });
        match error.kind() {
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let known = self.known_properties(error);
                for name in unexpected {
                    let escaped = name.replace('~', "~0").replace('/', "~1");
                    push(format!("{pointer}/{escaped}"), unknown_property(name, &known));
                }
            }
            ValidationErrorKind::Required { property } => {
                let property = property.as_str().unwrap_or_default();
                // Where it would stand: a value that was written but could not be read is the same to the schema.
                let escaped = property.replace('~', "~0").replace('/', "~1");
                push(
                    format!("{pointer}/{escaped}"),
                    format!("the property `{property}` is missing"),
                );
            }
            ValidationErrorKind::Type { kind } => {
                push(
                    pointer,
                    format!("must be {}, not {}", type_names(kind), type_of(error.instance())),
                );
            }
            ValidationErrorKind::Enum { options } => {
                let options: Vec<_> = options
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(Value::to_string)
                    .collect();
                let options = printable(&options.join(", "), 1024);
                push(pointer, format!("must be one of {options}"));
            }
            ValidationErrorKind::Constant { expected_value } => {
                let expected = printable(&expected_value.to_string(), 1024);
                push(pointer, format!("must be {expected}"))
            }
            ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
                match meant_branch(context, &pointer) {
                    Some(errors) => {
                        for error in errors {
                            self.explain(error, secrets, mistakes);
                        }
                    }
                    None => push(pointer, "fits none of the forms that it may have".to_owned()),
                }
            }
            _ => push(pointer.clone(), plain_message(error, &pointer, secrets)),
        }
    }

    /// The properties that the schema beside an `additionalProperties: false` declares.
    fn known_properties(&self, error: &ValidationError<'_>) -> Vec<&str> {
        let path = error.schema_path().to_string();
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let declared = self
            .schema
            .pointer(parent)
            .and_then(|schema| schema.get("properties"));
        declared
            .and_then(Value::as_object)
            .map(|properties| properties.keys().map(String::as_str).collect())
            .unwrap_or_default()
    }
}

fn unknown_property(name: &str, known: &[&str]) -> String {
    let name = printable(name, 256);
    format!("unknown property `{name}`{}", crate::nearest::hint(&name, known))
}

/// The alternative that the author seems to have meant: the one that fails inside rather than on the value's type.
fn meant_branch<'e>(
    context: &'e [Vec<ValidationError<'static>>],
    pointer: &str,
) -> Option<&'e [ValidationError<'static>]> {
    let fails_at_once = |errors: &[ValidationError<'_>]| {
        errors.iter().any(|error| {
            let rejects = matches!(
                error.kind(),
                ValidationErrorKind::Type { .. } | ValidationErrorKind::FalseSchema
            );
            let tag = matches!(error.kind(), ValidationErrorKind::Constant { .. });
            tag || (rejects && error.instance_path().to_string() == pointer)
        })
    };
    let mut meant = context.iter().filter(|errors| !fails_at_once(errors));
    match (meant.next(), meant.next()) {
        (Some(errors), None) => Some(errors),
        _ => None,
    }
}

/// The library's own words, which quote the value, unless the value is, holds or lies in a secret or is large.
fn plain_message(error: &ValidationError<'_>, pointer: &str, secrets: &[&Marked<'_>]) -> String {
    let near =
        |secret: &&&Marked<'_>| secret.pointer.starts_with(pointer) || pointer.starts_with(&secret.pointer);
    let structured = error.instance().is_object() || error.instance().is_array();
    let message = match structured || secrets.iter().any(|secret| near(&secret)) {
        true => error.masked_with("the value").to_string(),
        false => error.to_string(),
    };
    printable(&message, 1024)
}

fn type_names(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(name) => name.to_string(),
        TypeKind::Multiple(names) => {
            let names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
            names.join(" or ")
        }
    }
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

pub(super) fn takes_too_long() -> String {
    format!(
        "the connector's schema cannot be used: checking with it takes more than {} seconds",
        CHECK_TIME.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema(schema: Value) -> ConfigSchema {
        ConfigSchema::new(&schema.to_string()).unwrap()
    }

    fn typical() -> ConfigSchema {
        schema(json!({
            "type": "object",
            "required": ["url"],
            "additionalProperties": false,
            "properties": {
                "url": {"type": "string", "x-setu-grant": "network"},
                "password": {"type": "string", "minLength": 8, "x-setu-secret": true},
                "size": {"type": "integer", "minimum": 1},
                "mode": {"enum": ["fast", "safe"]},
                "file": {"anyOf": [{"$ref": "#/$defs/File"}, {"type": "null"}]}
            },
            "$defs": {"File": {"type": "object", "required": ["path"], "additionalProperties": false,
                               "properties": {"path": {"type": "string"}, "delimiter": {"type": "string"}}}}
        }))
    }

    #[test]
    fn every_mistake_is_told_with_its_place() {
        let config = json!({"usl": "x", "size": 0, "mode": "quick", "password": "geheim",
                            "file": {"path": 1, "delimeter": ","}});
        let mut mistakes: Vec<_> = typical()
            .mistakes(&config)
            .into_iter()
            .map(|m| format!("{}: {}", m.pointer, m.message))
            .collect();
        mistakes.sort();
        assert_eq!(
            mistakes,
            [
                "/file/delimeter: unknown property `delimeter`; did you mean `delimiter`?",
                "/file/path: must be string, not number",
                "/mode: must be one of \"fast\", \"safe\"",
                "/password: the value is shorter than 8 characters",
                "/size: 0 is less than the minimum of 1",
                "/url: the property `url` is missing",
                "/usl: unknown property `usl`; did you mean `url`?",
            ]
        );
        assert_eq!(typical().mistakes(&json!({"url": "h:1", "file": null})), []);
    }

    /// As deep as a schema and a pipeline file may be, on top of each other.
    #[test]
    fn checking_with_the_deepest_schema_has_stack_enough() {
        let name = |level: usize| format!("#/$defs/d{}", level % 120);
        let definition = |level| match level {
            119 => json!({"items": {"$ref": name(0)}}),
            level => json!({"allOf": [{"$ref": name(level + 1)}]}),
        };
        let definitions = (0..120).map(|level| (format!("d{level}"), definition(level)));
        let deep = schema(json!({"$ref": name(0), "$defs": Value::Object(definitions.collect())}));
        let config = (0..64).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(deep.mistakes(&config), []);
    }

    #[test]
    fn no_message_shows_a_secret() {
        let schema = schema(json!({
            "minProperties": 5,
            "properties": {
                "s": {"x-setu-secret": true, "pattern": "^[0-9]+$"},
                "l": {"type": "array", "maxItems": 0, "items": {"x-setu-secret": true}}
            }
        }));
        let mistakes = schema.mistakes(&json!({"s": "geheim", "l": ["geheim"]}));
        assert_eq!(mistakes.len(), 3, "{mistakes:?}");
        assert!(!format!("{mistakes:?}").contains("geheim"), "{mistakes:?}");
    }

    #[test]
    fn redacting_hides_secrets_and_passwords_in_urls() {
        let redacted =
            typical().redact(&json!({"url": "postgres://u:geheim@h/x", "password": "geheim", "size": 3}));
        assert_eq!(
            redacted,
            json!({"url": "postgres://u:***@h/x", "password": "***", "size": 3})
        );
    }

    #[test]
    fn a_schema_that_the_host_cannot_use_is_refused() {
        for (text, expected) in [
            ("{", "not JSON"),
            (r#"{"type": "nonsense"}"#, "not a JSON Schema"),
            (
                r#"{"properties": {"a": {"$ref": "https://example.com/x.json"}}}"#,
                "https://example.com/x.json",
            ),
            (r#"{"$ref": "file:///etc/passwd"}"#, "file:///etc/passwd"),
        ] {
            let rule = ConfigSchema::new(text).err().unwrap();
            assert!(rule.contains(expected), "{rule}");
        }
    }

    #[test]
    fn a_description_must_follow_the_rules() {
        let described = |name: &str, version: &str, source: Option<&str>| {
            let found = connector::Description {
                name: name.into(),
                version: version.into(),
                summary: "S".into(),
                source_config_schema: source.map(str::to_owned),
                destination_config_schema: None,
            };
            let halves = Halves {
                source: true,
                destination: false,
            };
            check(found, halves).map(|checked| checked.description.name)
        };
        assert_eq!(
            described("my-csv2", "1.2.3-rc.1+b", Some("{}")),
            Ok("my-csv2".into())
        );
        for (name, version, source, expected) in [
            ("", "1.0.0", Some("{}"), "the name"),
            ("My", "1.0.0", Some("{}"), "the name"),
            ("a", "1.0", Some("{}"), "semantic version"),
            ("a", "01.0.0", Some("{}"), "semantic version"),
            ("a", "1.0.0", None, "describes no source configuration"),
            ("a", "1.0.0", Some("["), "not JSON"),
        ] {
            let rule = described(name, version, source).unwrap_err();
            assert!(rule.contains(expected), "{rule}");
        }
    }
}
