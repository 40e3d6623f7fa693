//! `setu show`: the streams of a run and how far they are.

use std::io::Write;

use serde_json::json;

use super::args::ShowArguments;
use super::failure::Failure;
use super::output::Output;
use super::runs::run_status;
use super::store::Store;
use super::text::{Align, Table, cell, count, size};
use crate::record::StreamName;
use crate::runner::{CopyMode, RunRecord, StreamRecord, StreamStatus};
use crate::staging::{Manifest, ManifestStatus, read_manifest};

/// Shows one run.
pub(super) fn show(arguments: &ShowArguments) -> Result<(), Failure> {
    let store = Store::open(&arguments.store)?;
    let (run, layout) = store.run(arguments.run.as_deref())?;
    let mut streams = Vec::new();
    for stream in &run.streams {
        let name: StreamName = stream.stream.parse().map_err(|error| {
            Failure::failed(format!("the record of run `{}` is damaged: {error}", run.run))
        })?;
        streams.push((stream, read_manifest(&*store.blob, &layout, &name)?));
    }
    let at_work = store.at_work(&run, &layout)?;
    let run_status = run_status(run.status, at_work.as_ref());
    let mut output = Output::new();
    match arguments.json {
        true => output.json(&as_json(&run, &run_status, &streams))?,
        false => {
            let (pipeline, workspace) = (&run.pipeline, &run.workspace);
            let created = &run.created_at;
            writeln!(
                output,
                "run {} of pipeline {pipeline} (workspace {workspace}): {run_status}, created {created}",
                run.run
            )?;
            write!(output, "\n{}", table(&streams))?;
            for (stream, _) in &streams {
                if let Some(error) = &stream.error {
                    writeln!(output, "\n{}: {}", cell(&stream.stream, 80), cell(error, 1000))?;
                }
            }
        }
    }
    output.done()
}

fn table(streams: &[(&StreamRecord, Option<Manifest>)]) -> Table {
    let mut table = Table::new(&[
        ("STREAM", Align::Left),
        ("STATUS", Align::Left),
        ("WAY", Align::Left),
        ("WRITE", Align::Left),
        ("PARTS", Align::Right),
        ("ROWS", Align::Right),
        ("SIZE", Align::Right),
        ("CURSOR", Align::Left),
    ]);
    for (stream, manifest) in streams {
        let staged = manifest.as_ref();
        let bytes = staged.map(staged_bytes);
        table.row(vec![
            cell(&stream.stream, 80),
            status(stream.status, staged.map(|manifest| manifest.status)).to_owned(),
            way(stream.mode).to_owned(),
            stream.write.to_string(),
            staged.map_or_else(|| "-".to_owned(), |manifest| count(manifest.parts.len() as u64)),
            count(rows(stream, staged)),
            bytes.map_or_else(|| "-".to_owned(), size),
            cell(&cursor(stream, staged).unwrap_or_else(|| "-".to_owned()), 40),
        ]);
    }
    table
}

fn as_json(
    run: &RunRecord,
    run_status: &str,
    streams: &[(&StreamRecord, Option<Manifest>)],
) -> serde_json::Value {
    let streams = streams.iter().map(|(stream, manifest)| {
        let staged = manifest.as_ref();
        json!({
            "stream": stream.stream,
            "status": status(stream.status, staged.map(|manifest| manifest.status)),
            "way": stream.mode,
            "write": stream.write,
            "parts": staged.map_or(0, |manifest| manifest.parts.len()),
            "rows": rows(stream, staged),
            "bytes": staged.map(staged_bytes),
            "cursor": cursor(stream, staged),
            "error": stream.error,
        })
    });
    json!({
        "run": run.run,
        "pipeline": run.pipeline,
        "workspace": run.workspace,
        "status": run_status,
        "createdAt": run.created_at,
        "streams": streams.collect::<Vec<_>>(),
    })
}

/// How far a stream is: what the run's record says, more exactly while rows are being staged.
fn status(recorded: StreamStatus, staged: Option<ManifestStatus>) -> &'static str {
    match (recorded, staged) {
        (StreamStatus::Done, _) => "done",
        (StreamStatus::Failed, _) => "failed",
        (StreamStatus::Extracted, _) | (StreamStatus::Pending, Some(ManifestStatus::Complete)) => "extracted",
        (StreamStatus::Pending, Some(ManifestStatus::Extracting)) => "extracting",
        (StreamStatus::Pending, None) => "pending",
    }
}

fn way(mode: Option<CopyMode>) -> &'static str {
    match mode {
        Some(CopyMode::Direct) => "direct",
        Some(CopyMode::Staged) => "staged",
        None => "-",
    }
}

fn rows(stream: &StreamRecord, staged: Option<&Manifest>) -> u64 {
    staged.map_or(stream.rows, |manifest| manifest.rows_total)
}

fn staged_bytes(manifest: &Manifest) -> u64 {
    manifest.parts.iter().map(|part| part.bytes).sum()
}

fn cursor(stream: &StreamRecord, staged: Option<&Manifest>) -> Option<String> {
    staged
        .and_then(Manifest::cursor)
        .or_else(|| stream.high_water_mark.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_as_exact_as_record_and_manifest_together() {
        use ManifestStatus::{Complete, Extracting};
        for (recorded, staged, expected) in [
            (StreamStatus::Pending, None, "pending"),
            (StreamStatus::Pending, Some(Extracting), "extracting"),
            (StreamStatus::Pending, Some(Complete), "extracted"),
            (StreamStatus::Extracted, Some(Complete), "extracted"),
            (StreamStatus::Failed, Some(Extracting), "failed"),
            (StreamStatus::Done, Some(Complete), "done"),
            (StreamStatus::Done, None, "done"),
        ] {
            assert_eq!(status(recorded, staged), expected);
        }
    }
}
