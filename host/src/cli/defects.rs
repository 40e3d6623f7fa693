//! What people see when this program itself is wrong: one line that asks for a report, and no backtrace.

use std::io::Write;
use std::panic::{self, PanicHookInfo};

/// Replaces the panic hook. A panic's message is left out: it may show a value that is nobody's business.
pub(super) fn report_in_one_line() {
    panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        let place = info
            .location()
            .map(|at| format!(" ({}:{})", at.file(), at.line()));
        let place = place.unwrap_or_default();
        let version = env!("CARGO_PKG_VERSION");
        // Nothing can be done where standard error is closed.
        let _ = writeln!(
            std::io::stderr().lock(),
            "error: this is a defect of Setu {version}{place}: please report it with the command that you gave"
        );
    }));
}
