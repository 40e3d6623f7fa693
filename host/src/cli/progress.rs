//! Progress of a run: bars on a terminal, lines elsewhere, events for machines.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::logging::Console;
use super::text::{count, counted, duration, size};
use crate::printable;
use crate::runner::{Event, Observer, Phase, Status, StreamReport};

/// How often a stream's progress is told where there are no bars.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// How often a bar turns.
const TICK: Duration = Duration::from_millis(120);

/// One stream in one phase.
#[derive(Clone, Debug)]
struct Track {
    phase: Phase,
    estimated_rows: Option<u64>,
    /// Rows that were there before.
    rows_before: u64,
    rows: u64,
    bytes: u64,
    started: Instant,
}

impl Track {
    fn new(phase: Phase, estimated_rows: Option<u64>, rows_before: u64) -> Track {
        Track {
            phase,
            estimated_rows,
            rows_before,
            rows: 0,
            bytes: 0,
            started: Instant::now(),
        }
    }

    fn doing(&self) -> &'static str {
        match self.phase {
            Phase::Extract => "extracting",
            Phase::Load => "loading",
            Phase::Direct => "copying",
        }
    }

    /// `extracting, about 1,000 rows, 200 of them done before`
    fn start(&self) -> String {
        let mut text = self.doing().to_owned();
        if let Some(rows) = self.estimated_rows {
            text += &format!(", about {}", counted(rows, "row"));
        }
        if self.rows_before > 0 {
            text += &format!(", {} done before", count(self.rows_before));
        }
        text
    }

    /// `extracting: 200 of about 1,000 rows, 3.1 KiB, 100 rows/s, about 8.0 s left`
    fn now(&self, elapsed: Duration) -> String {
        let rows = self.rows_before + self.rows;
        let mut text = match self.estimated_rows.filter(|estimate| *estimate >= rows) {
            Some(estimate) => format!(
                "{}: {} of about {}",
                self.doing(),
                count(rows),
                counted(estimate, "row")
            ),
            None => format!("{}: {}", self.doing(), counted(rows, "row")),
        };
        text += &format!(", {}", size(self.bytes));
        // A rate over less than a second is noise.
        let seconds = elapsed.as_secs_f64();
        if seconds >= 1.0 && self.rows > 0 {
            let rate = self.rows as f64 / seconds;
            text += &format!(", {} rows/s", count(rate as u64));
            if let Some(left) = self
                .estimated_rows
                .and_then(|estimate| estimate.checked_sub(rows))
            {
                let left = Duration::from_secs_f64((left as f64 / rate).min(1e9));
                text += &format!(", about {} left", duration(left));
            }
        }
        text
    }
}

/// `done: 3 rows, 99 B, 1 part`, or that it is not.
fn end(report: &StreamReport) -> String {
    match report.status {
        Status::Failed => return "failed".to_owned(),
        Status::Interrupted => return format!("interrupted after {}", counted(report.rows, "row")),
        Status::Done => {}
    }
    let mut text = format!("done: {}, {}", counted(report.rows, "row"), size(report.bytes));
    if report.parts > 0 {
        text += &format!(", {}", counted(report.parts, "part"));
    }
    if report.parts_skipped > 0 {
        text += &format!(" ({} done before)", count(report.parts_skipped));
    }
    if report.denials > 0 {
        text += &format!(", {}", counted(report.denials, "denial"));
    }
    text
}

/// `run x: 3 streams`, and whether it goes on.
fn run_line(run: &str, resumed: bool, streams: usize) -> String {
    let streams = counted(streams as u64, "stream");
    match resumed {
        true => format!("run {run} goes on: {streams}"),
        false => format!("run {run}: {streams}"),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is behind the locks here is whole between statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plain lines: each stream's start and end, and its progress now and then.
pub(super) struct Lines {
    console: Console,
    /// Of each stream, where it is and when that was last told.
    tracks: Mutex<HashMap<String, (Track, Instant)>>,
}

impl Lines {
    pub(super) fn new(console: Console) -> Lines {
        Lines {
            console,
            tracks: Mutex::default(),
        }
    }

    /// The line to print for an event, if any.
    fn told(&self, event: &Event<'_>) -> Option<String> {
        let mut tracks = lock(&self.tracks);
        match *event {
            Event::RunStarted {
                run,
                resumed,
                streams,
            } => Some(run_line(run, resumed, streams.len())),
            Event::StreamStarted {
                stream,
                phase,
                estimated_rows,
                rows_done,
            } => {
                let track = Track::new(phase, estimated_rows, rows_done);
                let line = format!("{stream}: {}", track.start());
                tracks.insert(stream.to_owned(), (track, Instant::now()));
                Some(line)
            }
            Event::Progress { stream, rows, bytes } => {
                let (track, told) = tracks.get_mut(stream)?;
                track.rows += rows;
                track.bytes += bytes;
                (told.elapsed() >= LINE_EVERY).then(|| {
                    *told = Instant::now();
                    format!("{stream}: {}", track.now(track.started.elapsed()))
                })
            }
            Event::StreamFinished { report } => {
                tracks.remove(&report.stream);
                Some(format!("{}: {}", report.stream, end(report)))
            }
            Event::Note { message } => Some(message.to_owned()),
        }
    }
}

impl Observer for Lines {
    fn event(&self, event: Event<'_>) {
        if let Some(line) = self.told(&event) {
            self.console.line(&line);
        }
    }
}

/// A bar for each stream under way, and a line for each that has ended.
pub(super) struct Bars {
    console: Console,
    bars: MultiProgress,
    tracks: Mutex<HashMap<String, (Track, ProgressBar)>>,
}

impl Bars {
    pub(super) fn new(bars: MultiProgress, console: Console) -> Bars {
        Bars {
            console,
            bars,
            tracks: Mutex::default(),
        }
    }

    fn start(&self, stream: &str, track: Track) {
        // The templates are constants; where one were wrong, there would be a plainer bar.
        let template = match track.estimated_rows {
            Some(_) => "{spinner} {prefix:.bold} [{bar:20}] {wide_msg}",
            None => "{spinner} {prefix:.bold} {wide_msg}",
        };
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = self.bars.add(match track.estimated_rows {
            Some(rows) => ProgressBar::new(rows.max(1)),
            None => ProgressBar::new_spinner(),
        });
        bar.set_style(style.progress_chars("=> "));
        bar.set_prefix(printable::line(stream).into_owned());
        bar.set_position(track.rows_before);
        bar.set_message(track.start());
        bar.enable_steady_tick(TICK);
        let before = lock(&self.tracks).insert(stream.to_owned(), (track, bar));
        if let Some((_, bar)) = before {
            bar.finish_and_clear();
        }
    }
}

impl Observer for Bars {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::RunStarted {
                run,
                resumed,
                streams,
            } => {
                self.console.line(&run_line(run, resumed, streams.len()));
            }
            Event::StreamStarted {
                stream,
                phase,
                estimated_rows,
                rows_done,
            } => {
                self.start(stream, Track::new(phase, estimated_rows, rows_done));
            }
            Event::Progress { stream, rows, bytes } => {
                let mut tracks = lock(&self.tracks);
                if let Some((track, bar)) = tracks.get_mut(stream) {
                    track.rows += rows;
                    track.bytes += bytes;
                    bar.set_position(track.rows_before + track.rows);
                    bar.set_message(track.now(track.started.elapsed()));
                }
            }
            Event::StreamFinished { report } => {
                let track = lock(&self.tracks).remove(&report.stream);
                if let Some((_, bar)) = track {
                    bar.finish_and_clear();
                }
                self.console.line(&format!("{}: {}", report.stream, end(report)));
            }
            Event::Note { message } => self.console.line(message),
        }
    }
}

/// Log events, for `--log-format json`.
pub(super) struct Events;

impl Observer for Events {
    fn event(&self, event: Event<'_>) {
        match event {
            Event::RunStarted {
                run,
                resumed,
                streams,
            } => {
                tracing::info!(
                    event = "run-started",
                    run,
                    resumed,
                    streams = streams.len(),
                    "run started"
                );
            }
            Event::StreamStarted {
                stream,
                phase,
                estimated_rows,
                rows_done,
            } => {
                let phase = phase_word(phase);
                tracing::info!(
                    event = "stream-started",
                    stream,
                    phase,
                    estimated_rows,
                    rows_done,
                    "stream started"
                );
            }
            // One for each batch: only for those who ask for it.
            Event::Progress { stream, rows, bytes } => {
                tracing::debug!(event = "progress", stream, rows, bytes, "rows copied");
            }
            Event::StreamFinished { report } => {
                let status = status_word(report.status);
                let StreamReport {
                    stream,
                    rows,
                    bytes,
                    parts,
                    parts_skipped,
                    error,
                    ..
                } = report;
                tracing::info!(
                    event = "stream-finished",
                    stream,
                    status,
                    rows,
                    bytes,
                    parts,
                    parts_skipped,
                    error,
                    "stream finished"
                );
            }
            Event::Note { message } => tracing::info!(event = "note", "{message}"),
        }
    }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Extract => "extract",
        Phase::Load => "load",
        Phase::Direct => "direct",
    }
}

fn status_word(status: Status) -> &'static str {
    match status {
        Status::Done => "done",
        Status::Failed => "failed",
        Status::Interrupted => "interrupted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_says_rows_bytes_rate_and_what_is_left() {
        let mut track = Track::new(Phase::Extract, Some(1000), 100);
        assert_eq!(track.start(), "extracting, about 1,000 rows, 100 done before");
        track.rows = 100;
        track.bytes = 3174;
        let second = Duration::from_secs(1);
        assert_eq!(
            track.now(second),
            "extracting: 200 of about 1,000 rows, 3.1 KiB, 100 rows/s, about 8.0 s left"
        );
        assert_eq!(
            track.now(second / 2),
            "extracting: 200 of about 1,000 rows, 3.1 KiB"
        );
        // There are more rows than anyone thought.
        track.rows = 2000;
        assert_eq!(track.now(second), "extracting: 2,100 rows, 3.1 KiB, 2,000 rows/s");
        let track = Track::new(Phase::Load, None, 0);
        assert_eq!(
            (track.start(), track.now(second)),
            ("loading".into(), "loading: 0 rows, 0 B".into())
        );
    }

    #[test]
    fn the_end_of_a_stream_is_told_with_what_it_took() {
        let report = |status, parts, parts_skipped| StreamReport {
            status,
            rows: 3,
            bytes: 99,
            parts,
            parts_skipped,
            ..StreamReport::default()
        };
        for (report, expected) in [
            (report(Status::Done, 0, 0), "done: 3 rows, 99 B"),
            (report(Status::Done, 1, 0), "done: 3 rows, 99 B, 1 part"),
            (
                report(Status::Done, 4, 3),
                "done: 3 rows, 99 B, 4 parts (3 done before)",
            ),
            (report(Status::Failed, 1, 0), "failed"),
            (report(Status::Interrupted, 1, 0), "interrupted after 3 rows"),
        ] {
            assert_eq!(end(&report), expected);
        }
        assert_eq!(run_line("r", false, 1), "run r: 1 stream");
        assert_eq!(run_line("r", true, 2), "run r goes on: 2 streams");
    }
}
