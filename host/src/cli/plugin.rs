//! `setu plugin`: which connectors there are, and what they say of themselves.

use std::io::Write;

use super::args::{PluginArguments, PluginVerb};
use super::failure::Failure;
use super::logging::Console;
use super::output::Output;
use super::session::Session;
use super::text::{Align, Table, cell};
use crate::connector::registry::Registry;
use crate::plugin::Description;

pub(super) fn plugin(arguments: &PluginArguments, console: &Console) -> Result<(), Failure> {
    match &arguments.verb {
        PluginVerb::List => list(),
        PluginVerb::Inspect { connector } => inspect(connector, console),
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

/// Compiles a connector, which checks it, and prints its description and the schemas of its configuration.
fn inspect(connector: &str, console: &Console) -> Result<(), Failure> {
    let session = Session::start(console)?;
    let plugin = session.named_plugin(connector).map_err(Failure::wrong)?;
    let mut output = Output::new();
    let description = plugin.description();
    writeln!(output, "{}", heading(description))?;
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
