//! `setu gc`: removes old runs of a pipeline.

use std::io::Write;
use std::time::Duration;

use serde_json::json;

use super::args::{GcArguments, StoreArguments};
use super::failure::Failure;
use super::logging::Console;
use super::output::Output;
use super::store::Store;
use super::text::{Align, Table, count, counted, size};
use crate::runner::{Collected, Retention, collect};

/// Removes what the arguments do not keep, and shows it.
pub(super) fn gc(arguments: &GcArguments, console: &Console) -> Result<(), Failure> {
    let store = Store::find(&StoreArguments {
        pipeline: arguments.job.pipeline.clone(),
        job: arguments.job.job.clone(),
    })?;
    let retention = Retention {
        older_than: arguments.older_than.unwrap_or(Duration::ZERO),
        keep_last: arguments.keep_last.unwrap_or(0),
        unfinished: arguments.unfinished,
        dry_run: arguments.dry_run,
    };
    // A pipeline that has not run yet is no mistake of whoever cleans up every night.
    let collected = match store {
        Some(store) => collect(&store.blob, &store.any_run()?, &retention)?,
        None => Vec::new(),
    };
    let mut output = Output::new();
    if arguments.json {
        output.json(&collected.iter().map(as_json).collect::<Vec<_>>())?;
    } else if !collected.is_empty() {
        write!(output, "{}", table(&collected))?;
    }
    output.done()?;
    console.line(&summary(&collected, arguments.dry_run));
    Ok(())
}

fn as_json(collected: &Collected) -> serde_json::Value {
    json!({
        "run": collected.run,
        "what": what(collected),
        "objects": collected.objects,
        "bytes": collected.bytes,
    })
}

fn what(collected: &Collected) -> &'static str {
    match collected.whole {
        true => "run",
        false => "unnamed parts",
    }
}

fn table(collected: &[Collected]) -> Table {
    let mut table = Table::new(&[
        ("RUN", Align::Left),
        ("WHAT", Align::Left),
        ("OBJECTS", Align::Right),
        ("SIZE", Align::Right),
    ]);
    for one in collected {
        table.row(vec![
            one.run.clone(),
            what(one).to_owned(),
            count(one.objects),
            size(one.bytes),
        ]);
    }
    table
}

fn summary(collected: &[Collected], dry_run: bool) -> String {
    let objects = collected.iter().map(|one| one.objects).sum();
    let bytes = collected.iter().map(|one| one.bytes).sum();
    let verb = if dry_run { "would remove" } else { "removed" };
    format!(
        "{verb} {}, {}, of {}",
        counted(objects, "object"),
        size(bytes),
        counted(collected.len() as u64, "run")
    )
}
