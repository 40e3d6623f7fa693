//! `setu plan`: what `setu run` would do, and what each connector may reach. Nothing is moved.

use std::io::Write;
use std::path::Path;

use super::args::PlanArguments;
use super::failure::Failure;
use super::logging::Console;
use super::output::Output;
use super::run::direct_max_rows;
use super::session::{Loaded, Session, title};
use super::store;
use super::text::{Align, Table, cell, count};
use crate::blob::Blob;
use crate::connector::{CursorWindow, ReadRequest, Role, Source, WriteMode};
use crate::pipeline::{LimitSpec, Selected, select};
use crate::plugin::EffectiveGrant;
use crate::runner::{read_state, unfinished, window_start};
use crate::staging::RunLayout;

/// Shows the plan, and writes the job where one is asked for.
pub(super) fn plan(arguments: &PlanArguments, console: &Console) -> Result<(), Failure> {
    let session = Session::start(console, arguments.job.policy.as_deref())?;
    let roles = [Role::Source, Role::Destination];
    let loaded = session.load(&arguments.job, &roles)?;
    // First: the one who plans may not reach the systems that the agent will.
    if let Some(path) = &arguments.job_out {
        write_job(&loaded, path)?;
        console.line(&format!(
            "wrote {}, which holds every secret of the pipeline: only its owner can read it",
            path.display()
        ));
    }
    let mut output = Output::new();
    write!(output, "{}", heading(&loaded)?)?;
    if let Some(policy) = &session.policy {
        let mode = if policy.is_audit() {
            " (audit: it denies nothing)"
        } else {
            ""
        };
        writeln!(output, "policy       {}{mode}", policy.name())?;
    }
    for role in roles {
        write!(output, "\n{}", reach(&loaded, role)?)?;
    }
    let plugin = loaded.plugin(Role::Source)?;
    let mut source = plugin.open_source(loaded.spec(Role::Source), &session.context(None))?;
    let discovered = source.discover()?;
    let selected = select(&loaded.job.streams, &discovered);
    let selected = selected.map_err(|error| Failure::from(crate::connector::Error::from(error)))?;
    let store = Store::open(&loaded)?;
    write!(output, "\n{}", streams(&selected, &store, &mut *source)?)?;
    let unfinished = store.unfinished()?;
    if let Some(run) = &unfinished {
        writeln!(
            output,
            "\nrun {run} is unfinished: `setu run` goes on with it unless streams or configuration changed"
        )?;
    }
    for (stream, run) in store.waiting(&selected)? {
        if unfinished.as_ref() != Some(&run) {
            let stream = cell(&stream, 80);
            writeln!(
                output,
                "\nrun {run} has begun to load stream {stream} and has not come to its end"
            )?;
        }
    }
    output.done()
}

fn write_job(loaded: &Loaded, path: &Path) -> Result<(), Failure> {
    let written = loaded.job.write_file(path);
    written.map_err(|error| Failure::failed(format!("cannot write the job {}: {error}", path.display())))
}

/// The pipeline and its two ends.
fn heading(loaded: &Loaded) -> Result<String, Failure> {
    let job = &loaded.job;
    Ok(format!(
        "pipeline     {} (workspace {})\nsource       {}\ndestination  {}\nblob store   {}\n",
        job.pipeline,
        job.workspace,
        title(loaded.plugin(Role::Source)?),
        title(loaded.plugin(Role::Destination)?),
        store::described(&job.staging),
    ))
}

/// What one end may reach, why, and within which limits.
fn reach(loaded: &Loaded, role: Role) -> Result<String, Failure> {
    let (spec, plugin) = (loaded.spec(role), loaded.plugin(role)?);
    let grants = plugin.grants(role, spec)?;
    let only = if grants.is_empty() { "nothing" } else { "only" };
    let limits = limits(&plugin.limits(spec));
    let rows = grant_rows(role, &grants);
    let mut text = format!("the {role} may reach {only}\n{rows}  limits: {limits}\n");
    let caps = plugin.caps();
    if !caps.is_empty() {
        text.push_str("  the policy caps\n");
    }
    for cap in caps {
        text.push_str(&format!("    {}\n", cell(&cap, 400)));
    }
    Ok(text)
}

/// One line for each grant.
pub(super) fn grant_rows(role: Role, grants: &[EffectiveGrant]) -> String {
    let mut table = Table::new(&[("", Align::Left); 4]);
    for grant in grants {
        let origin = format!("by {role}.{}", grant.origin);
        table.row(vec![
            String::new(),
            grant.kind.to_owned(),
            cell(&grant.target, 200),
            origin,
        ]);
    }
    let rows = table.to_string();
    rows.split_once('\n').map_or("", |(_, rows)| rows).to_owned()
}

/// The limits that the pipeline changes, or a policy caps.
fn limits(limits: &LimitSpec) -> String {
    let changed = limits
        .iter()
        .map(|(limit, value)| format!("{} {value}", limit.name()));
    let changed: Vec<String> = changed.collect();
    match changed.is_empty() {
        true => "the defaults".to_owned(),
        false => format!("{}, else the defaults", changed.join(", ")),
    }
}

/// What earlier runs left behind, if there were any.
struct Store {
    blob: Option<std::sync::Arc<dyn Blob>>,
    layout: RunLayout,
}

impl Store {
    fn open(loaded: &Loaded) -> Result<Store, Failure> {
        let job = &loaded.job;
        let layout = RunLayout::new(&job.workspace, &job.pipeline, "none");
        Ok(Store {
            blob: store::open_existing(&job.staging)?,
            layout: layout.map_err(|error| Failure::wrong(error.to_string()))?,
        })
    }

    /// Where an incremental stream would go on.
    fn since(&self, stream: &Selected) -> Result<Option<String>, Failure> {
        let (Some(blob), Some(cursor)) = (&self.blob, &stream.cursor) else {
            return Ok(None);
        };
        let name = &stream.stream.name;
        let state = read_state(&**blob, &self.layout, name)?;
        Ok(window_start(
            &self.layout,
            name,
            state.as_ref(),
            cursor,
            stream.write,
        )?)
    }

    /// Streams that a run has begun to load, and those runs.
    fn waiting(&self, selected: &[Selected]) -> Result<Vec<(String, String)>, Failure> {
        let Some(blob) = &self.blob else {
            return Ok(Vec::new());
        };
        let mut waiting = Vec::new();
        for stream in selected.iter().filter(|stream| stream.cursor.is_some()) {
            let name = &stream.stream.name;
            let state = read_state(&**blob, &self.layout, name)?;
            waiting.extend(state.and_then(|state| Some((name.to_string(), state.loading?))));
        }
        Ok(waiting)
    }

    /// The run that `setu run` would go on with.
    fn unfinished(&self) -> Result<Option<String>, Failure> {
        let Some(blob) = &self.blob else { return Ok(None) };
        Ok(unfinished(&**blob, &self.layout)?.map(|record| record.run))
    }
}

/// What happens to each stream.
fn streams(selected: &[Selected], store: &Store, source: &mut dyn Source) -> Result<Table, Failure> {
    let mut table = Table::new(&[
        ("STREAM", Align::Left),
        ("READ", Align::Left),
        ("WRITE", Align::Left),
        ("SINCE", Align::Left),
        ("ROWS", Align::Right),
        ("WAY", Align::Left),
    ]);
    for stream in selected {
        table.row(stream_row(stream, store, source)?);
    }
    Ok(table)
}

fn stream_row(stream: &Selected, store: &Store, source: &mut dyn Source) -> Result<Vec<String>, Failure> {
    let most = direct_max_rows(std::env::var("SETU_DIRECT_MAX_ROWS"))?;
    let since = store.since(stream)?;
    let mut request = ReadRequest::all(stream.stream.name.clone());
    request.cursor = stream.cursor.as_ref().map(|field| CursorWindow {
        field: field.clone(),
        since: since.clone(),
        since_inclusive: stream.write == WriteMode::Upsert,
    });
    let counted = source.count(&request, most.saturating_add(1))?;
    let read = match &stream.cursor {
        Some(cursor) => format!("{} by {}", stream.mode, cell(cursor, 40)),
        None => stream.mode.to_string(),
    };
    let estimate = stream.stream.estimated_rows.filter(|_| since.is_none());
    Ok(vec![
        cell(&stream.stream.name.to_string(), 80),
        read,
        stream.write.to_string(),
        cell(since.as_deref().unwrap_or("-"), 40),
        expected_rows(counted, estimate, most),
        way(counted, most).to_owned(),
    ])
}

/// How many rows there are, as exactly as is known: counted, or counted to be more than so many, or estimated.
fn expected_rows(counted: Option<u64>, estimate: Option<u64>, most: u64) -> String {
    match (counted, estimate) {
        (Some(rows), _) if rows <= most => count(rows),
        (_, Some(rows)) => format!("about {}", count(rows)),
        (Some(_), None) => format!("over {}", count(most)),
        (None, None) => "?".to_owned(),
    }
}

/// Which way rows go in mode `auto`.
fn way(counted: Option<u64>, most: u64) -> &'static str {
    match counted {
        Some(rows) if rows <= most => "direct",
        _ => "staged",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_told_as_exactly_as_they_are_known() {
        for (counted, estimate, rows, expected_way) in [
            (Some(7), Some(900), "7", "direct"),
            (Some(100), None, "100", "direct"),
            (Some(101), Some(90_000), "about 90,000", "staged"),
            (Some(101), None, "over 100", "staged"),
            (None, Some(5), "about 5", "staged"),
            (None, None, "?", "staged"),
        ] {
            assert_eq!(expected_rows(counted, estimate, 100), rows);
            assert_eq!(way(counted, 100), expected_way, "{rows}");
        }
    }

    #[test]
    fn only_changed_limits_are_named() {
        use crate::pipeline::Limit;
        assert_eq!(limits(&LimitSpec::default()), "the defaults");
        let changed = [(Limit::MemoryMib, 64)].into_iter().collect();
        assert_eq!(limits(&changed), "memoryMib 64, else the defaults");
    }
}
