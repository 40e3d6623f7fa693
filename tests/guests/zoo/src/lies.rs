//! What the zoo says of itself. Tests write another name over [`LIE`] in the compiled component, and get another liar.

use crate::bindings::exports::setu::connector::connector::Description;

/// Which lie is told.
static LIE: [u8; 32] = *b"the zoo tells the truth         ";

const SCHEMA: &str = r#"{
  "type": "object",
  "additionalProperties": false,
  "properties": {
    "folder": {"type": "string", "x-setu-grant": "read"},
    "out": {"type": "string", "x-setu-grant": "write"},
    "server": {"type": "string"},
    "listing": {"type": "string"},
    "mended": {"type": "boolean"}
  }
}"#;

/// References that lead nowhere but to each other.
const CIRCLE: &str =
    r##"{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}"##;

pub(crate) fn describe() -> Description {
    let truth = Description {
        name: "zoo".into(),
        version: "1.0.0".into(),
        summary: "Does what it must not.".into(),
        source_config_schema: Some(SCHEMA.into()),
        destination_config_schema: Some(SCHEMA.into()),
    };
    let with_schema = |schema: String| Description {
        source_config_schema: Some(schema),
        ..truth.clone()
    };
    let with_name = |name: String| Description {
        name,
        ..truth.clone()
    };
    let with_version = |version: &str| Description {
        version: version.into(),
        ..truth.clone()
    };
    // Not a constant to the compiler: it is another one in another liar.
    let lie = std::hint::black_box(&LIE);
    match std::str::from_utf8(lie).unwrap_or_default().trim_end() {
        "control characters" => with_name("zoo\x1b[2J".into()),
        "long name" => with_name("z".repeat(1 << 20)),
        "no json" => with_schema("not { json".into()),
        "no json schema" => with_schema(r#"{"type": "nonsense"}"#.into()),
        "long schema" => with_schema(format!(r#"{{"description": "{}"}}"#, "d".repeat(2 << 20))),
        "deep schema" => with_schema(r#"{"not": "#.repeat(100_000)),
        "foreign schema" => with_schema(r#"{"$ref": "http://169.254.169.254/schema"}"#.into()),
        "circle" => with_schema(CIRCLE.into()),
        "explosion" => with_schema(explosion()),
        "explosion in disguise" => with_schema(explosion().replace("#/$defs/", "#/$def%73/")),
        "endless chain" => with_schema(chain(|n| format!("#/$def%73/{n}"), "")),
        "endless chain of anchors" => with_schema(chain(|n| format!("#a{n}"), r#""$anchor": "a{n}", "#)),
        "many patterns" => with_schema(patterns()),
        "long summary" => Description {
            summary: "s".repeat(20 << 20),
            ..truth
        },
        "no version" => with_version("one"),
        "forged line" => with_version("one\nerror: all is well"),
        "no schema" => Description {
            source_config_schema: None,
            ..truth
        },
        "panic" => panic!("it has no name"),
        _ => truth,
    }
}

/// Each definition refers to the next one, so that checking anything takes stack for 10,000.
fn chain(reference: impl Fn(u32) -> String, name: &str) -> String {
    let definition = |n: u32| {
        let name = name.replace("{n}", &n.to_string());
        format!(r#""{n}": {{{name}"$ref": "{}"}}"#, reference(n + 1))
    };
    let definitions: Vec<_> = (0..10_000).map(definition).collect();
    let last = name.replace("{n}", "10000");
    format!(
        r#"{{"$ref": "{}", "$defs": {{{}, "10000": {{{last}"type": "object"}}}}}}"#,
        reference(0),
        definitions.join(", ")
    )
}

/// Expressions that are short to write, and take a megabyte each when they are compiled.
fn patterns() -> String {
    let pattern = |n| format!(r#"{{"pattern": "(\\w{{99}}){{9}}x|(\\W{{99}}){{9}}y|{n}"}}"#);
    let patterns: Vec<_> = (0..20_000).map(pattern).collect();
    format!(r#"{{"anyOf": [{}]}}"#, patterns.join(", "))
}

/// Each definition refers to the next one twice, so that checking anything takes 2^60 steps.
fn explosion() -> String {
    let twice = |n| {
        format!(
            r##""d{n}": {{"allOf": [{{"$ref": "#/$defs/d{0}"}}, {{"$ref": "#/$defs/d{0}"}}]}}"##,
            n + 1
        )
    };
    let definitions: Vec<_> = (0..60).map(twice).collect();
    format!(
        r##"{{"$ref": "#/$defs/d0", "$defs": {{{}, "d60": {{"type": "object"}}}}}}"##,
        definitions.join(", ")
    )
}
