//! `setu check`: are both ends there, and do they let us in?

use std::io::Write;

use super::args::JobArguments;
use super::failure::Failure;
use super::logging::Console;
use super::output::Output;
use super::session::{Loaded, Session, title};
use crate::connector::{Error, Role};

/// Tries both ends, also where the first one fails, and says of each whether it answers.
pub(super) fn check(arguments: &JobArguments, console: &Console) -> Result<(), Failure> {
    let session = Session::start(console, arguments.policy.as_deref())?;
    let roles = [Role::Source, Role::Destination];
    let loaded = session.load(arguments, &roles)?;
    let mut output = Output::new();
    let mut failures = Vec::new();
    for role in roles {
        let title = title(loaded.plugin(role)?);
        let result = reach(&session, &loaded, role)?;
        let answer = if result.is_ok() { "ok" } else { "failed" };
        writeln!(output, "{:<13}{title:<17}{answer}", role.to_string())?;
        if let Err(error) = result {
            failures.push(Failure::from(error));
        }
    }
    output.done()?;
    Failure::all(failures)
}

/// Asks one end.
fn reach(session: &Session, loaded: &Loaded, role: Role) -> Result<Result<(), Error>, Failure> {
    let (plugin, spec, context) = (loaded.plugin(role)?, loaded.spec(role), session.context(None));
    let result = match role {
        Role::Source => plugin
            .open_source(spec, &context)
            .and_then(|mut source| source.check()),
        Role::Destination => plugin
            .open_destination(spec, &context)
            .and_then(|mut destination| destination.check()),
    };
    Ok(result)
}
