//! `setu give-up`: nothing goes on with a run any more, and no run waits for it.

use std::io::Write;

use super::args::GiveUpArguments;
use super::failure::Failure;
use super::logging::Console;
use super::output::Output;
use super::run::environment;
use super::session::Session;
use super::text::{Align, Table, cell, count};
use crate::connector::Role;
use crate::runner;

/// Gives the run up and shows what stays of it.
pub(super) fn give_up(arguments: &GiveUpArguments, console: &Console) -> Result<(), Failure> {
    let session = Session::start(console, arguments.job.policy.as_deref())?;
    let loaded = session.load(&arguments.job, &[Role::Source, Role::Destination])?;
    let environment = environment(&session, &loaded, console)?;
    let left = runner::give_up(&loaded.job, &arguments.run, &environment)?;
    let mut output = Output::new();
    if arguments.json {
        output.json(&left)?;
    } else if !left.is_empty() {
        let mut table = Table::new(&[("STREAM", Align::Left), ("ROWS COMMITTED", Align::Right)]);
        for left in &left {
            let rows = left.rows.map_or_else(|| "unknown".to_owned(), count);
            table.row(vec![cell(&left.stream, 80), rows]);
        }
        write!(output, "{table}")?;
    }
    output.done()?;
    console.line(&format!("run {} is given up", arguments.run));
    Ok(())
}
