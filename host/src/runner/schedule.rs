//! Copies the streams of a run, some at a time. One that fails does not stop the others.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::prepare::{PlannedStream, Prepared};
use super::record::CopyMode;
use super::stream::Stream;
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

/// Copies one stream and tells the record and the observer how it ended.
fn one(prepared: &Prepared<'_>, planned: &PlannedStream) -> StreamReport {
    let context = &prepared.context;
    let (mut report, error) = if context.environment.cancel.is_cancelled() {
        (empty(planned), Some(super::copy::interrupted()))
    } else {
        // A defect of ours in one stream must not take the others down.
        let carried_out = catch_unwind(AssertUnwindSafe(|| {
            match Stream::new(context, &prepared.record, &planned.record, planned.info.clone()) {
                Ok(stream) => stream.carry_out(),
                Err(error) => (empty(planned), Some(error)),
            }
        }));
        carried_out.unwrap_or_else(|panic| (empty(planned), Some(defect(&*panic))))
    };
    report.status = match &error {
        None => Status::Done,
        Some(error) if error.kind() == ErrorKind::Interrupted => Status::Interrupted,
        Some(_) => Status::Failed,
    };
    if let Some(error) = error {
        report.error = Some(error.to_string());
        note_failure(prepared, &mut report, may_pass(&error));
    }
    context
        .environment
        .observer
        .event(Event::StreamFinished { report: &report });
    report
}

/// Puts a failure into the run's record; that this fails as well is worth a word, but not another error.
fn note_failure(prepared: &Prepared<'_>, report: &mut StreamReport, passing: bool) {
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
