//! `setu plugin`: which connectors there are, and what they say of themselves.

use std::io::Write;
use std::path::Path;

use super::args::{PluginArguments, PluginVerb};
use super::failure::Failure;
use super::logging::Console;
use super::output::Output;
use super::plan::grant_rows;
use super::session::{Found, Session, pinned, read_pipeline};
use super::text::{Align, Table, cell, count};
use crate::connector::Role;
use crate::connector::registry::Registry;
use crate::pipeline::LOCK_FILE;
use crate::plugin::{Code, Description};

pub(super) fn plugin(arguments: &PluginArguments, console: &Console) -> Result<(), Failure> {
    match &arguments.verb {
        PluginVerb::List => list(),
        PluginVerb::Inspect {
            connector,
            pipeline,
            policy,
        } => {
            let session = Session::start(console, policy.as_deref())?;
            inspect(&session, connector, pipeline.as_deref())
        }
        PluginVerb::Lock { pipeline, policy } => lock(&Session::start(console, policy.as_deref())?, pipeline),
    }
}

/// Lists the connectors that a pipeline can name.
fn list() -> Result<(), Failure> {
    let mut table = Table::new(&[("NAME", Align::Left), ("FROM", Align::Left)]);
    for entry in Registry::from_env().list() {
        let from = entry
            .file
            .map_or_else(|| "bundled".to_owned(), |file| file.display().to_string());
        table.row(vec![cell(&entry.name, 64), from]);
    }
    let mut output = Output::new();
    write!(output, "{table}")?;
    output.done()
}

/// Compiles a connector, which checks it, and prints what it is, its description and the schemas of its
/// configuration; with a pipeline, also what it may reach there.
fn inspect(session: &Session, connector: &str, pipeline: Option<&Path>) -> Result<(), Failure> {
    let found = session.named_plugin(connector).map_err(Failure::wrong)?;
    let granted = pipeline.map(|path| granted(session, &found, path)).transpose()?;
    let mut output = Output::new();
    let description = found.plugin.description();
    writeln!(output, "{}", heading(description))?;
    write!(output, "\n{}", code(&found))?;
    write!(output, "{}", granted.unwrap_or_default())?;
    let schemas = [
        ("source", &description.source_config_schema),
        ("destination", &description.destination_config_schema),
    ];
    for (role, schema) in schemas {
        if let Some(schema) = schema {
            writeln!(output, "\nconfiguration as a {role} (JSON Schema):")?;
            output.json(schema)?;
        }
    }
    output.done()
}

/// Pins the connectors of a pipeline as they are now.
fn lock(session: &Session, pipeline: &Path) -> Result<(), Failure> {
    let changed = session.pin_anew(pipeline)?;
    let mut output = Output::new();
    if changed.is_empty() {
        writeln!(output, "{LOCK_FILE} is up to date")?;
    }
    for pin in changed {
        writeln!(output, "{LOCK_FILE}: pinned {}", pinned(&pin))?;
    }
    output.done()
}

/// The connector's code, from the outside.
fn code(found: &Found) -> String {
    let Code {
        digest,
        size,
        contract,
        imports,
        exports,
        ..
    } = found.plugin.code();
    let from = found
        .file
        .as_ref()
        .map_or_else(|| "bundled".to_owned(), |file| file.display().to_string());
    let size = count(*size as u64);
    let mut text = format!(
        "from      {from}\nsize      {size} bytes\ndigest    {digest}\ncontract  setu:connector@{contract}\n"
    );
    for (title, names) in [("imports", imports), ("exports", exports)] {
        for (index, name) in names.iter().enumerate() {
            let title = if index == 0 { title } else { "" };
            text.push_str(&format!("{title:<10}{}\n", cell(name, 200)));
        }
    }
    text
}

/// What a connector may reach in a pipeline, on each side that it is on.
fn granted(session: &Session, found: &Found, path: &Path) -> Result<String, Failure> {
    let job = read_pipeline(path, &|name| session.variable(name))?.finish()?;
    let mut text = String::new();
    for (role, spec) in [(Role::Source, &job.source), (Role::Destination, &job.destination)] {
        let there = session.named_plugin(&spec.connector).map_err(Failure::wrong)?;
        if there.plugin.code().digest != found.plugin.code().digest {
            continue;
        }
        let grants = found.plugin.grants(role, spec)?;
        let only = if grants.is_empty() { "nothing" } else { "only" };
        let (path, rows) = (path.display(), grant_rows(role, &grants));
        text.push_str(&format!("\nas the {role} of {path} it may reach {only}\n{rows}"));
    }
    if text.is_empty() {
        let path = path.display();
        return Err(Failure::wrong(format!(
            "neither the source nor the destination of {path} is this connector"
        )));
    }
    Ok(text)
}

/// `csv 0.1.0: source and destination`, and the summary.
fn heading(description: &Description) -> String {
    let roles = match (
        &description.source_config_schema,
        &description.destination_config_schema,
    ) {
        (Some(_), Some(_)) => "source and destination",
        (Some(_), None) => "source",
        (None, _) => "destination",
    };
    let Description {
        name,
        version,
        summary,
        ..
    } = description;
    format!("{name} {version}: {roles}\n{}", cell(summary, 1000))
}
