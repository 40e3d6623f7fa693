//! How a command fails: what is said, and with which status it ends.

use std::io;

use crate::blob::BlobError;
use crate::connector::{Error, ErrorKind};
use crate::pipeline::Mistakes;
use crate::runner::{Report, Status};

/// Some stream failed, or something outside this program did.
pub(super) const FAILED: u8 = 1;
/// The command, the pipeline or a configuration is wrong.
pub(super) const WRONG: u8 = 2;
/// The user interrupted; the number that a shell gives a process that Ctrl-C ended.
pub(super) const INTERRUPTED: u8 = 130;

/// Why a command ends without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    status: u8,
    messages: Vec<String>,
}

impl Failure {
    /// The command, the pipeline or a configuration is wrong.
    pub(super) fn wrong(message: impl Into<String>) -> Failure {
        Failure {
            status: WRONG,
            messages: vec![message.into()],
        }
    }

    /// Something failed that may work another time.
    pub(super) fn failed(message: impl Into<String>) -> Failure {
        Failure {
            status: FAILED,
            messages: vec![message.into()],
        }
    }

    /// Standard output is closed, as by `| head`: nothing is left to do, and nothing went wrong.
    fn closed() -> Failure {
        Failure {
            status: 0,
            messages: Vec::new(),
        }
    }

    /// How a run's report ends the command; none where every stream is done.
    pub(super) fn of_report(report: &Report) -> Option<Failure> {
        let status = report_status(report.streams.iter().map(|stream| stream.status));
        let failed = report
            .streams
            .iter()
            .filter(|stream| stream.status == Status::Failed);
        let messages = failed.map(|stream| {
            let error = stream.error.as_deref().unwrap_or("no reason was given");
            // Errors of connectors name the stream already.
            match error.contains(&format!("stream {}", stream.stream)) {
                true => error.to_owned(),
                false => format!("stream {}: {error}", stream.stream),
            }
        });
        let messages = messages.collect();
        (status != 0).then_some(Failure { status, messages })
    }

    /// The exit status.
    pub(super) fn status(&self) -> u8 {
        self.status
    }

    /// One for each thing that is wrong; none where it has been said.
    pub(super) fn messages(&self) -> &[String] {
        &self.messages
    }

    /// Joins failures that were collected: all messages, and the gravest status.
    pub(super) fn all(failures: Vec<Failure>) -> Result<(), Failure> {
        let status = failures.iter().map(Failure::status).max().unwrap_or(0);
        let messages = failures
            .into_iter()
            .flat_map(|failure| failure.messages)
            .collect();
        match status {
            0 => Ok(()),
            _ => Err(Failure { status, messages }),
        }
    }
}

/// The exit status of a run whose streams ended so.
fn report_status(streams: impl IntoIterator<Item = Status>) -> u8 {
    streams.into_iter().fold(0, |status, stream| {
        status.max(match stream {
            Status::Done => 0,
            Status::Failed => FAILED,
            Status::Interrupted => INTERRUPTED,
        })
    })
}

/// The exit status of an error that concerns a command as a whole.
fn error_status(kind: ErrorKind) -> u8 {
    match kind {
        ErrorKind::Config | ErrorKind::Denied | ErrorKind::Unsupported => WRONG,
        ErrorKind::Interrupted => INTERRUPTED,
        _ => FAILED,
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            status: error_status(error.kind()),
            messages: error.to_string().lines().map(str::to_owned).collect(),
        }
    }
}

impl From<BlobError> for Failure {
    fn from(error: BlobError) -> Failure {
        match error {
            BlobError::Config(_) => Failure::wrong(error.to_string()),
            error => Error::from(error).into(),
        }
    }
}

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Failure {
        Failure {
            status: WRONG,
            messages: mistakes.lines().collect(),
        }
    }
}

/// Only from writing to standard output: other files are named where they fail.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::closed(),
            _ => Failure::failed(format!("cannot write to standard output: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::StreamReport;

    fn stream(name: &str, status: Status, error: Option<&str>) -> StreamReport {
        StreamReport {
            stream: name.into(),
            status,
            error: error.map(str::to_owned),
            ..StreamReport::default()
        }
    }

    fn report(streams: &[StreamReport]) -> Report {
        Report {
            run: "r".into(),
            mode: "staged".into(),
            streams: streams.to_vec(),
            elapsed_ms: 5,
        }
    }

    #[test]
    fn the_status_is_that_of_the_gravest_stream() {
        use Status::{Done, Failed, Interrupted};
        for (streams, expected) in [
            (&[][..], 0),
            (&[Done, Done], 0),
            (&[Done, Failed, Done], 1),
            (&[Interrupted, Done], 130),
            (&[Failed, Interrupted, Failed], 130),
        ] {
            assert_eq!(report_status(streams.iter().copied()), expected, "{streams:?}");
        }
    }

    #[test]
    fn an_error_before_any_stream_tells_a_wrong_command_from_a_failed_one() {
        for (kind, expected) in [
            (ErrorKind::Config, 2),
            (ErrorKind::Denied, 2),
            (ErrorKind::Unsupported, 2),
            (ErrorKind::Auth, 1),
            (ErrorKind::Unreachable, 1),
            (ErrorKind::NotFound, 1),
            (ErrorKind::Trap, 1),
            (ErrorKind::Blob, 1),
            (ErrorKind::Interrupted, 130),
        ] {
            assert_eq!(
                Failure::from(Error::new(kind, "x")).status(),
                expected,
                "{kind:?}"
            );
        }
    }

    #[test]
    fn each_failed_stream_is_named_once() {
        let failure = Failure::of_report(&report(&[
            stream("a", Status::Done, None),
            stream("b", Status::Failed, Some("a bad thing")),
            stream("c", Status::Failed, Some("connector x, stream c: it broke")),
            stream("d", Status::Interrupted, Some("interrupted")),
        ]));
        let failure = failure.expect("a failure");
        assert_eq!(
            failure.messages(),
            ["stream b: a bad thing", "connector x, stream c: it broke"]
        );
        assert_eq!(
            Failure::of_report(&report(&[stream("a", Status::Done, None)])),
            None
        );
    }

    #[test]
    fn a_closed_pipe_is_no_failure() {
        let failure = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!((failure.status(), failure.messages()), (0, &[][..]));
    }

    /// Other programs read it.
    #[test]
    fn the_report_has_its_documented_form() {
        let mut done = stream("public.orders", Status::Done, None);
        (done.rows, done.bytes, done.parts, done.parts_skipped) = (7, 99, 3, 1);
        done.denials = 2;
        done.cursor = Some("2024-01-01T00:00:00.000000Z".into());
        let report = report(&[done, stream("b", Status::Failed, Some("it broke"))]);
        assert_eq!(
            serde_json::to_string_pretty(&report).expect("JSON"),
            r#"{
  "run": "r",
  "mode": "staged",
  "streams": [
    {
      "stream": "public.orders",
      "status": "done",
      "rows": 7,
      "bytes": 99,
      "parts": 3,
      "partsSkipped": 1,
      "cursor": "2024-01-01T00:00:00.000000Z",
      "denials": 2,
      "error": null
    },
    {
      "stream": "b",
      "status": "failed",
      "rows": 0,
      "bytes": 0,
      "parts": 0,
      "partsSkipped": 0,
      "cursor": null,
      "denials": 0,
      "error": "it broke"
    }
  ],
  "elapsedMs": 5
}"#
        );
    }
}
