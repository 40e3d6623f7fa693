//! Turns what a server reports into errors for people: which kind an SQLSTATE is, and the way out where it is known.

use fallible_iterator::FallibleIterator;
use postgres_protocol::message::backend::ErrorFields;
use setu_sdk::{Error, ErrorKind};

/// An error of the server, with its SQLSTATE as code.
pub(crate) fn from_server(fields: ErrorFields<'_>) -> Error {
    let report = Report::read(fields);
    let (kind, retryable) = classify(&report.code);
    let mut message = report.message.clone();
    if let Some(detail) = &report.detail {
        message = format!("{message} ({})", detail.trim_end_matches('.'));
    }
    if let Some(context) = report.context.as_deref().and_then(copy_place) {
        message = format!("{message} ({context})");
    }
    if let Some(way_out) = way_out(&report.code).or(report.hint.as_deref()) {
        message = format!("{message}; {}", way_out.trim_end_matches('.'));
    }
    let error = Error::new(kind, message).with_code(report.code);
    if retryable { error.retryable() } else { error }
}

#[derive(Default)]
struct Report {
    code: String,
    message: String,
    detail: Option<String>,
    hint: Option<String>,
    context: Option<String>,
}

impl Report {
    fn read(mut fields: ErrorFields<'_>) -> Report {
        let mut report = Report::default();
        // A report that breaks off is still worth what was read of it.
        while let Ok(Some(field)) = fields.next() {
            let value = String::from_utf8_lossy(field.value_bytes()).into_owned();
            match field.type_() {
                b'C' => report.code = value,
                b'M' => report.message = value,
                b'D' => report.detail = Some(value),
                b'H' => report.hint = Some(value),
                b'W' => report.context = Some(value),
                _ => {}
            }
        }
        report
    }
}

/// The place that a COPY failed at ("COPY t, line 3, column a"), without the values that may follow.
fn copy_place(context: &str) -> Option<&str> {
    let line = context.lines().find(|line| line.starts_with("COPY "))?;
    Some(line.split(": \"").next().unwrap_or(line))
}

/// The kind of an SQLSTATE, and whether the same call may succeed later.
///
/// The classes are those of the appendix "PostgreSQL Error Codes".
fn classify(code: &str) -> (ErrorKind, bool) {
    match code {
        "3D000" => (ErrorKind::Config, false),
        "42501" => (ErrorKind::Auth, false),
        "42P01" | "3F000" => (ErrorKind::NotFound, false),
        "40001" | "40P01" | "55P03" => (ErrorKind::Conflict, true),
        "55006" | "55000" | "42P07" | "42710" => (ErrorKind::Conflict, false),
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => (ErrorKind::Unreachable, true),
        "53300" => (ErrorKind::Unreachable, true),
        "25006" => (ErrorKind::Config, false),
        "0A000" => (ErrorKind::Unsupported, false),
        _ if code.starts_with("08") => (ErrorKind::Unreachable, true),
        _ if code.starts_with("28") => (ErrorKind::Auth, false),
        _ if code.starts_with("22") || code.starts_with("23") => (ErrorKind::Data, false),
        _ => (ErrorKind::Internal, false),
    }
}

fn way_out(code: &str) -> Option<&'static str> {
    Some(match code {
        "28P01" => "check the user and the password in `url` or `password`",
        "28000" => {
            "check the user in `url`, and whether the server's pg_hba.conf lets it in from here with this `sslmode`"
        }
        "3D000" => "check the database's name in `url`",
        "42501" => "grant the user of `url` this right, or name another user",
        "23505" => {
            "with `write: upsert` rows whose key exists are replaced, with `write: overwrite` all rows are"
        }
        "53300" => "raise max_connections or run fewer streams at a time",
        "25006" => "`url` names a read-only server; name the primary",
        "22P05" | "22021" => {
            "the database's encoding cannot hold this text; a database with the encoding UTF8 can"
        }
        _ => return None,
    })
}

/// For a message that breaks the protocol: a fault of the server or of this crate.
pub(crate) fn protocol(what: impl std::fmt::Display) -> Error {
    Error::internal(format!(
        "the server's answer breaks the Postgres protocol: {what}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sqlstate_has_the_kind_that_the_host_acts_on() {
        let cases = [
            ("28P01", ErrorKind::Auth, false),
            ("28000", ErrorKind::Auth, false),
            ("3D000", ErrorKind::Config, false),
            ("42P01", ErrorKind::NotFound, false),
            ("42501", ErrorKind::Auth, false),
            ("22003", ErrorKind::Data, false),
            ("23505", ErrorKind::Data, false),
            ("40001", ErrorKind::Conflict, true),
            ("57P01", ErrorKind::Unreachable, true),
            ("08006", ErrorKind::Unreachable, true),
            ("XX000", ErrorKind::Internal, false),
        ];
        for (code, kind, retryable) in cases {
            assert_eq!(classify(code), (kind, retryable), "{code}");
        }
    }

    #[test]
    fn the_place_of_a_copy_is_told_without_the_row() {
        let context = "PL/pgSQL function f()\nCOPY t, line 3, column a: \"secret\"";
        assert_eq!(copy_place(context), Some("COPY t, line 3, column a"));
        assert_eq!(copy_place("SQL statement"), None);
    }
}
