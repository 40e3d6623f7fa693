//! Copies the streams of a run, some at a time. One that fails does not stop the others.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::prepare::{PlannedStream, Prepared};
use super::record::{CopyMode, RunRecord};
use super::stream::{Ended, Stream};
use super::{Event, Status, StreamReport};
use crate::connector::{Error, ErrorKind, Result};

/// Copies every stream and returns, in their order, how it went and in which mode.
pub(super) fn carry_out(prepared: &Prepared<'_>) -> Result<Vec<(StreamReport, Option<CopyMode>)>> {
    let waiting = Mutex::new(prepared.streams.iter().enumerate());
    let (sender, reports) = mpsc::channel();
    let workers = prepared
        .context
        .options
        .parallel
        .clamp(1, prepared.streams.len().max(1));
    thread::scope(|scope| {
        for _ in 0..workers {
            let sender = sender.clone();
            let waiting = &waiting;
            scope.spawn(move || {
                let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some((index, stream)) = next() {
                    // The receiver lives until all workers are gone.
                    let _ = sender.send((index, one(prepared, stream)));
                }
            });
        }
        drop(sender);
    });
    let mut reports: Vec<_> = reports.into_iter().collect();
    reports.sort_by_key(|(index, _)| *index);

    let record = prepared.context.record.read()?;
    let mode = |report: &StreamReport| {
        record
            .as_ref()
            .and_then(|record| record.stream(&report.stream)?.mode)
    };
    Ok(reports
        .into_iter()
        .map(|(_, report)| (report.clone(), mode(&report)))
        .collect())
}

/// How often a stream is tried again whose connection broke, in one invocation.
const RETRIES: u32 = 5;
/// How long the first of these waits; each further one waits twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Copies one stream and tells the record and the observer how it ended.
fn one(prepared: &Prepared<'_>, planned: &PlannedStream) -> StreamReport {
    let context = &prepared.context;
    let mut ended = attempt(prepared, planned, &prepared.record);
    // What never answered is more likely a wrong address than a system that is away for a moment.
    let broke = ended.under_way;
    for retry in 1..=RETRIES {
        let Some(error) = ended.error.as_ref().filter(|error| broke && error.is_retryable()) else {
            break;
        };
        let pause = FIRST_PAUSE * 2_u32.pow(retry - 1);
        let message = format!(
            "{}: {error}; again in {:.1} s (retry {retry} of {RETRIES})",
            planned.record.stream,
            pause.as_secs_f64()
        );
        context
            .environment
            .observer
            .event(Event::Note { message: &message });
        match again(prepared, pause) {
            Ok(record) => {
                let bytes = ended.report.bytes;
                ended = attempt(prepared, planned, &record);
                ended.report.bytes += bytes;
            }
            Err(error) => ended.error = Some(error),
        }
    }
    let Ended {
        mut report, error, ..
    } = ended;
    report.denials = planned.denials.count();
    report.status = match &error {
        None => Status::Done,
        Some(error) if error.kind() == ErrorKind::Interrupted => Status::Interrupted,
        Some(_) => Status::Failed,
    };
    if let Some(error) = error {
        report.error = Some(error.to_string());
        report.run_over = error.kind() == ErrorKind::RunOver;
        note_failure(prepared, &mut report, may_pass(&error));
    }
    context
        .environment
        .observer
        .event(Event::StreamFinished { report: &report });
    report
}

/// Waits, and returns the run's record with a further attempt in it: what the last one has sent may still be on its way.
fn again(prepared: &Prepared<'_>, pause: Duration) -> Result<RunRecord> {
    let cancel = &prepared.context.environment.cancel;
    let until = Instant::now() + pause;
    while Instant::now() < until {
        if cancel.is_cancelled() {
            return Err(super::copy::interrupted());
        }
        thread::sleep(Duration::from_millis(20));
    }
    prepared.leases.count_attempt()?;
    prepared.context.record.update(|record| {
        for (side, attempt) in prepared.leases.attempts() {
            record.attempts.set(side, attempt);
        }
    })
}

/// One attempt at a stream, from what the record says of it.
fn attempt(prepared: &Prepared<'_>, planned: &PlannedStream, record: &RunRecord) -> Ended {
    let context = &prepared.context;
    let failed = |error| Ended {
        report: empty(planned),
        error: Some(error),
        under_way: false,
    };
    if context.environment.cancel.is_cancelled() {
        return failed(super::copy::interrupted());
    }
    let stream = record.stream(&planned.record.stream).unwrap_or(&planned.record);
    // A defect of ours in one stream must not take the others down.
    let carried_out = catch_unwind(AssertUnwindSafe(|| {
        match Stream::new(
            context,
            record,
            stream,
            planned.info.clone(),
            planned.denials.clone(),
        ) {
            Ok(stream) => stream.carry_out(),
            Err(error) => failed(error),
        }
    }));
    carried_out.unwrap_or_else(|panic| failed(defect(&*panic)))
}

/// Puts a failure into the run's record; that this fails as well is worth a word, but not another error.
fn note_failure(prepared: &Prepared<'_>, report: &mut StreamReport, passing: bool) {
    if prepared.context.fence.check().is_err() {
        return; // another process goes on with the run, and the record is its own
    }
    let noted = prepared.context.record.update_stream(&report.stream, |record| {
        record.stopped(passing, report.error.as_deref());
    });
    if let (Err(error), Some(message)) = (noted, &mut report.error) {
        message.push_str(&format!("; and the run's record could not be updated: {error}"));
    }
}

/// Whether trying again, unchanged, may help: the user stopped it, a system was away, a password was changed.
fn may_pass(error: &Error) -> bool {
    use ErrorKind::{Auth, Blob, Interrupted, Timeout, Unreachable};
    error.is_retryable() || matches!(error.kind(), Auth | Blob | Interrupted | Timeout | Unreachable)
}

fn empty(planned: &PlannedStream) -> StreamReport {
    StreamReport {
        stream: planned.record.stream.clone(),
        ..StreamReport::default()
    }
}

fn defect(panic: &(dyn Any + Send)) -> Error {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    let message = message
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message");
    Error::new(
        ErrorKind::Internal,
        format!("a defect of Setu ended this stream, please report it: {message}"),
    )
}
