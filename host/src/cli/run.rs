//! `setu run`, `extract` and `load`: a whole run, or one half of it.

use std::path::Path;
use std::time::Duration;

use super::args::{CopyArguments, ExtractArguments, JobArguments, LoadArguments, RunArguments};
use super::failure::Failure;
use super::logging::Console;
use super::output::{Output, json};
use super::session::{Loaded, Session};
use super::text::{counted, duration, size};
use crate::blob;
use crate::connector::Role;
use crate::crash;
use crate::runner::{self, Environment, Half, Mode, Options, Report, Status};

/// The variable that says how many rows go direct at most.
const DIRECT_MAX_ROWS: &str = "SETU_DIRECT_MAX_ROWS";

pub(super) fn run(arguments: RunArguments, console: &Console) -> Result<(), Failure> {
    let RunArguments { job, run, mode, copy } = arguments;
    carry_out(&job, Half::Both, run, mode.into(), copy, console)
}

pub(super) fn extract(arguments: ExtractArguments, console: &Console) -> Result<(), Failure> {
    let ExtractArguments { job, run, copy } = arguments;
    carry_out(&job, Half::Extract, Some(run), Mode::Staged, copy, console)
}

pub(super) fn load(arguments: LoadArguments, console: &Console) -> Result<(), Failure> {
    let LoadArguments { job, run, wait, copy } = arguments;
    carry_out(&job, Half::Load { wait }, Some(run), Mode::Staged, copy, console)
}

fn carry_out(
    job: &JobArguments,
    half: Half,
    run: Option<String>,
    mode: Mode,
    copy: CopyArguments,
    console: &Console,
) -> Result<(), Failure> {
    let options = Options {
        half,
        run,
        mode,
        only: copy.streams,
        direct_max_rows: direct_max_rows(std::env::var(DIRECT_MAX_ROWS))?,
        parallel: copy
            .parallel
            .or_else(|| std::thread::available_parallelism().ok())
            .map_or(1, Into::into),
        take_over: copy.take_over,
    };
    if let Some(path) = &copy.report {
        check_report(path)?;
    }
    let session = Session::start(console, job.policy.as_deref())?;
    let roles: &[Role] = match half {
        Half::Both => &[Role::Source, Role::Destination],
        Half::Extract => &[Role::Source],
        Half::Load { .. } => &[Role::Destination],
    };
    let loaded = session.load(job, roles)?;
    let environment = environment(&session, &loaded, console)?;
    let report = runner::run(&loaded.job, &options, &environment)?;
    console.line(&summary(&report, half));
    let failure = Failure::of_report(&report);
    match (copy.report, failure) {
        (None, None) => Ok(()),
        (None, Some(failure)) => Err(failure),
        (Some(path), failure) => {
            // A report that cannot be written must not hide that a stream failed.
            let written = write_report(&report, &path).err();
            Failure::all(failure.into_iter().chain(written).collect())
        }
    }
}

/// What a run needs from this process.
pub(super) fn environment(
    session: &Session,
    loaded: &Loaded,
    console: &Console,
) -> Result<Environment, Failure> {
    Ok(Environment {
        source: loaded.plugin(Role::Source).ok().cloned(),
        destination: loaded.plugin(Role::Destination).ok().cloned(),
        blob: crash::blob(blob::from_spec(&loaded.job.staging)?),
        cancel: session.cancel.clone(),
        observer: console.observer(),
    })
}

/// The limit of direct copies, of what the variable holds.
pub(super) fn direct_max_rows(value: Result<String, std::env::VarError>) -> Result<u64, Failure> {
    match value {
        Err(std::env::VarError::NotPresent) => Ok(50_000),
        Ok(text) if text.is_empty() => Ok(50_000),
        value => {
            let rows = value.ok().and_then(|text| text.trim().parse().ok());
            rows.ok_or_else(|| {
                Failure::wrong(format!(
                    "{DIRECT_MAX_ROWS} must be a whole number of rows, such as 50000; unset it for the default of 50,000"
                ))
            })
        }
    }
}

/// Finds out before a long run that its report will have nowhere to go.
fn check_report(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let missing = folder.filter(|folder| !folder.is_dir());
    match missing {
        Some(folder) => Err(Failure::wrong(format!(
            "--report: there is no folder {}",
            folder.display()
        ))),
        None if path.is_dir() => Err(Failure::wrong(format!(
            "--report: {} is a folder",
            path.display()
        ))),
        None => Ok(()),
    }
}

fn write_report(report: &Report, path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        let mut output = Output::new();
        output.json(report)?;
        return output.done();
    }
    let failed = |error: std::io::Error| {
        Failure::failed(format!("cannot write the report {}: {error}", path.display()))
    };
    std::fs::write(path, json(report).map_err(failed)?).map_err(failed)
}

/// The last line for people.
fn summary(report: &Report, half: Half) -> String {
    let total = report.streams.len() as u64;
    let run = &report.run;
    let with = |status| {
        report
            .streams
            .iter()
            .filter(|stream| stream.status == status)
            .count() as u64
    };
    let (failed, interrupted) = (with(Status::Failed), with(Status::Interrupted));
    if interrupted > 0 {
        return format!(
            "run {run} is interrupted: the same command with `--run {run}` goes on where it stopped"
        );
    }
    if failed > 0 {
        let is_failed = |stream: &&runner::StreamReport| stream.status == Status::Failed;
        let way_out = match report
            .streams
            .iter()
            .filter(is_failed)
            .all(|stream| stream.run_over)
        {
            true => "it cannot be gone on with, so start a new run".to_owned(),
            false => format!("the same command with `--run {run}` goes on where it stopped"),
        };
        return format!(
            "run {run}: {failed} of {} failed: {way_out}",
            counted(total, "stream")
        );
    }
    let sum = |of: fn(&runner::StreamReport) -> u64| report.streams.iter().map(of).sum::<u64>();
    let done = match half {
        Half::Extract => "extracted",
        Half::Load { .. } => "loaded",
        Half::Both => "done",
    };
    format!(
        "run {run} is {done} ({}): {}, {}, {} in {}",
        report.mode,
        counted(total, "stream"),
        counted(sum(|stream| stream.rows), "row"),
        size(sum(|stream| stream.bytes)),
        duration(Duration::from_millis(report.elapsed_ms))
    )
}

#[cfg(test)]
mod tests {
    use std::env::VarError;

    use super::*;
    use crate::runner::StreamReport;

    #[test]
    fn the_limit_of_direct_copies_is_a_number_or_a_clear_mistake() {
        let limit = |value: &str| direct_max_rows(Ok(value.to_owned()));
        assert_eq!(direct_max_rows(Err(VarError::NotPresent)), Ok(50_000));
        assert_eq!(limit(""), Ok(50_000));
        assert_eq!(limit("0"), Ok(0));
        assert_eq!(limit("1000000"), Ok(1_000_000));
        for wrong in ["many", "-1", "1.5", "50,000"] {
            let failure = limit(wrong).expect_err(wrong);
            assert_eq!(failure.status(), 2);
            assert!(
                failure.messages()[0].starts_with("SETU_DIRECT_MAX_ROWS must be"),
                "{failure:?}"
            );
        }
        assert!(direct_max_rows(Err(VarError::NotUnicode("x".into()))).is_err());
    }

    #[test]
    fn the_last_line_says_how_it_went_and_how_to_go_on() {
        let report = |statuses: &[Status]| Report {
            run: "r".into(),
            mode: "staged".into(),
            streams: statuses
                .iter()
                .map(|status| StreamReport {
                    status: *status,
                    rows: 2,
                    bytes: 600,
                    ..StreamReport::default()
                })
                .collect(),
            elapsed_ms: 1200,
        };
        use Status::{Done, Failed, Interrupted};
        for (statuses, half, expected) in [
            (
                &[Done, Done][..],
                Half::Both,
                "run r is done (staged): 2 streams, 4 rows, 1.2 KiB in 1.2 s",
            ),
            (
                &[Done],
                Half::Extract,
                "run r is extracted (staged): 1 stream, 2 rows, 600 B in 1.2 s",
            ),
            (
                &[Done, Failed],
                Half::Both,
                "run r: 1 of 2 streams failed: the same command with `--run r` goes on where it stopped",
            ),
            (
                &[Failed, Interrupted],
                Half::Both,
                "run r is interrupted: the same command with `--run r` goes on where it stopped",
            ),
        ] {
            assert_eq!(summary(&report(statuses), half), expected);
        }
        let mut over = report(&[Done, Failed, Failed]);
        over.streams[1].run_over = true;
        assert!(summary(&over, Half::Both).ends_with("goes on where it stopped"));
        over.streams[2].run_over = true;
        assert_eq!(
            summary(&over, Half::Both),
            "run r: 2 of 3 streams failed: it cannot be gone on with, so start a new run"
        );
    }
}
