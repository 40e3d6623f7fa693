//! Which of the source's own type names mean something here: `citext`, `int4[]`, an enum that exists in this database.
//!
//! A name comes from the other side and is not trusted: it must be spelled like a type's name and nothing else before
//! it stands in SQL.

use setu_sdk::{DataType, Field, Result};

use crate::client::Client;
use crate::encode;
use crate::sql::ident;
use crate::types::Base;

/// The SQL of the type that a field's column is created with.
pub(crate) fn column_type(client: &mut Client, field: &Field, schema: &str) -> Result<String> {
    if let Some(native) = &field.native_type {
        for candidate in candidates(native, schema) {
            if is_fit(client, &candidate, field.data_type) {
                return Ok(candidate);
            }
        }
        if field.data_type == DataType::Text {
            setu_sdk::log::warn!(
                "column `{}` is created as text: its type {} does not exist in the target database",
                field.name,
                native
            );
        }
    }
    let (base, _) = encode::natural(field.data_type);
    Ok(match field.data_type {
        DataType::Decimal(decimal) => format!("{}({},{})", base.sql(), decimal.precision, decimal.scale),
        _ => base.sql(),
    })
}

/// Whether the name means a type here whose values a column of this logical type can hold. Must not be called within a
/// transaction, which a name that is none would break.
fn is_fit(client: &mut Client, candidate: &str, data_type: DataType) -> bool {
    let sql = "WITH RECURSIVE types(oid) AS (SELECT to_regtype($1)::oid UNION ALL \
         SELECT t.typbasetype FROM types JOIN pg_type t ON t.oid = types.oid WHERE t.typtype = 'd') \
       SELECT t.oid FROM types JOIN pg_type t ON t.oid = types.oid WHERE t.typtype NOT IN ('d', 'p')";
    // A name that cannot be parsed is an error of the server, and no type.
    let Ok(rows) = client.query(sql, &[Some(candidate)]) else {
        return false;
    };
    let Some(oid) = rows.first().and_then(|row| row.number(0).ok()) else {
        return false;
    };
    // Text may hold any type's canonical form; other types must be what Postgres means by the name.
    data_type == DataType::Text
        || Base::from_oid(oid).is_some_and(|base| encode::direct(data_type, base, -1).is_some())
}

/// How the type may be called here: as at the source, in the target's schema, or wherever the search path finds it.
fn candidates(native: &str, schema: &str) -> Vec<String> {
    if !is_type_name(native) {
        return Vec::new();
    }
    let mut names = vec![native.to_owned()];
    if let Some(bare) = without_schema(native) {
        names.push(format!("{}.{bare}", ident(schema)));
        names.push(bare.to_owned());
    }
    names
}

/// Whether the text is built from words, quoted words, dots, commas, parentheses and brackets only.
fn is_type_name(text: &str) -> bool {
    let mut quoted = false;
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '\0' => return false,
            _ if quoted => {}
            '.' | ',' | '(' | ')' | '[' | ']' | ' ' | '_' | '$' => {}
            // A negative scale.
            '-' if text.contains("(") && !text.contains("--") => {}
            c if c.is_alphanumeric() => {}
            _ => return false,
        }
    }
    !quoted && !text.trim().is_empty()
}

/// What follows the first dot outside of quotes.
fn without_schema(name: &str) -> Option<&str> {
    let mut quoted = false;
    let dot = name.find(|c| {
        quoted ^= c == '"';
        c == '.' && !quoted
    })?;
    Some(&name[dot + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_more_than_a_types_name_is_no_candidate() {
        for name in [
            "int4[]",
            "character varying(10)",
            "numeric(5,-2)",
            "public.\"my; type\"",
            "\"a\"\"b\".c",
            "größe",
        ] {
            assert!(is_type_name(name), "{name}");
        }
        for name in [
            "",
            " ",
            "int4; DROP TABLE x",
            "int4 -- x",
            "int4 /* x",
            "int4'",
            "\"open",
            "a(1--2)",
            "int4)::text, ('x'",
        ] {
            assert!(!is_type_name(name), "{name}");
        }
    }

    #[test]
    fn a_type_is_looked_for_in_the_target_schema_as_well() {
        assert_eq!(candidates("int4[]", "s"), ["int4[]"]);
        assert_eq!(
            candidates("public.mood[]", "my s"),
            ["public.mood[]", "\"my s\".mood[]", "mood[]"]
        );
        assert_eq!(
            candidates("\"a.b\".\"c\"", "s"),
            ["\"a.b\".\"c\"", "\"s\".\"c\"", "\"c\""]
        );
    }
}
