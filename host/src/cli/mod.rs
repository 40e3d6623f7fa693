//! The `setu` command: one file a verb, each thin. What they share is here: arguments (`args`), opening what a verb
//! works on (`session`), telling people (`progress`, `logging`, `output`) and failing (`failure`).
//!
//! Results go to standard output and nothing else does; everything for people goes to standard error. The exit
//! status is 0 when all is done, 1 when some stream failed, 2 when the command, the pipeline or a configuration is
//! wrong, and 130 when the user interrupted.

mod args;
mod cat;
mod check;
mod defects;
mod discover;
mod failure;
mod gc;
mod give_up;
mod logging;
mod output;
mod plan;
mod plugin;
mod preview;
mod progress;
mod rows;
mod run;
mod runs;
mod session;
mod show;
mod store;
mod text;

use std::process::ExitCode;

use clap::Parser;

use args::{Arguments, Verb};
use failure::Failure;

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    defects::report_in_one_line();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help and version are no errors: clap knows which goes where. A closed pipe is nobody's mistake.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(failure::WRONG));
        }
    };
    let console = logging::start(&arguments.logging);
    let ended = std::panic::catch_unwind(|| carry_out(arguments, &console));
    match ended {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(failure)) => {
            console.failure(&failure);
            ExitCode::from(failure.status())
        }
        // The panic hook has said it.
        Err(_) => ExitCode::from(failure::FAILED),
    }
}

fn carry_out(arguments: Arguments, console: &logging::Console) -> Result<(), Failure> {
    match arguments.verb {
        Verb::Run(arguments) => run::run(arguments, console),
        Verb::Extract(arguments) => run::extract(arguments, console),
        Verb::Load(arguments) => run::load(arguments, console),
        Verb::Plan(arguments) => plan::plan(&arguments, console),
        Verb::Check(arguments) => check::check(&arguments, console),
        Verb::Discover(arguments) => discover::discover(&arguments, console),
        Verb::Preview(arguments) => preview::preview(&arguments, console),
        Verb::Runs(arguments) => runs::runs(&arguments),
        Verb::Show(arguments) => show::show(&arguments),
        Verb::Cat(arguments) => cat::cat(&arguments),
        Verb::GiveUp(arguments) => give_up::give_up(&arguments, console),
        Verb::Gc(arguments) => gc::gc(&arguments, console),
        Verb::Plugin(arguments) => plugin::plugin(&arguments, console),
    }
}
