//! The one error type of connectors.

use std::fmt;
use std::io;

use crate::bindings::base::setu::connector::types::Error as WireError;
pub use crate::bindings::base::setu::connector::types::ErrorKind;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed: a kind that the host acts on and a message for a person.
///
/// The message says what failed, where, and the way out; it never holds a secret. An `Error` that travels through
/// [`std::io::Error`] (as those of [`net`](crate::net) do, through `Read` and `Write`) comes out whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    code: Option<String>,
    retryable: bool,
}

impl Error {
    /// An error of this kind, without a code, not retryable.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error {
            kind,
            message: message.into(),
            code: None,
            retryable: false,
        }
    }

    /// The configuration is wrong; trying again is useless until a person changes it.
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Config, message)
    }

    /// The credentials were refused.
    pub fn auth(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Auth, message)
    }

    /// The system cannot be reached, or the connection to it broke.
    pub fn unreachable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unreachable, message)
    }

    /// The sandbox refused it: no grant covers it.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Denied, message)
    }

    /// A stream, file or object does not exist.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    /// A value cannot be read or written as its type.
    pub fn data(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Data, message)
    }

    /// Something else holds or has changed what was asked for: a newer attempt of the same load, a position that the
    /// source can no longer resume at.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    /// The connector does not do this.
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported, message)
    }

    /// A fault of the connector itself.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }

    /// With the system's own code, such as an SQLSTATE.
    pub fn with_code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Says that the same call may succeed later, unchanged.
    pub fn retryable(mut self) -> Self {
        self.retryable = true;
        self
    }

    /// Puts `context: ` before the message: the file, the statement, the table.
    pub fn context(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The message, without the code.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The system's own code.
    pub fn code(&self) -> Option<&str> {
        self.code.as_deref()
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(code) = &self.code {
            write!(f, " [{code}]")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    /// By the kind of the I/O error. An [`Error`] inside comes out as it went in.
    fn from(error: io::Error) -> Self {
        if let Some(inner) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            return inner.clone();
        }
        use io::ErrorKind as Io;
        if is_refusal(&error) {
            return Error::denied("the sandbox does not allow it, because no grant covers it");
        }
        let (kind, retryable) = match error.kind() {
            Io::NotFound => (ErrorKind::NotFound, false),
            Io::PermissionDenied => (ErrorKind::Denied, false),
            Io::InvalidData | Io::InvalidInput => (ErrorKind::Data, false),
            Io::Unsupported => (ErrorKind::Unsupported, false),
            Io::ConnectionRefused
            | Io::ConnectionReset
            | Io::ConnectionAborted
            | Io::NotConnected
            | Io::BrokenPipe
            | Io::HostUnreachable
            | Io::NetworkUnreachable
            | Io::TimedOut
            | Io::UnexpectedEof => (ErrorKind::Unreachable, true),
            _ => (ErrorKind::Internal, false),
        };
        Error {
            retryable,
            ..Error::new(kind, in_words(&error))
        }
    }
}

/// Whether the sandbox, rather than the system below it, said no.
fn is_refusal(error: &io::Error) -> bool {
    // WASI's EPERM and ENOTCAPABLE. A file's own permissions are EACCES.
    cfg!(target_os = "wasi") && matches!(error.raw_os_error(), Some(63 | 76))
}

/// The system's words without its number, which in a component is one of WASI's own and tells nobody anything.
fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    let Some(number) = error.raw_os_error() else {
        return text;
    };
    let words = text.strip_suffix(&format!(" (os error {number})"));
    let mut chars = words.unwrap_or(&text).chars();
    let first = chars.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(chars).collect()
}

impl From<Error> for io::Error {
    /// Keeps the whole [`Error`] inside, for code between `Read` and `Write`.
    fn from(error: Error) -> Self {
        let kind = match error.kind {
            ErrorKind::Unreachable => io::ErrorKind::NotConnected,
            ErrorKind::Denied | ErrorKind::Auth => io::ErrorKind::PermissionDenied,
            ErrorKind::NotFound => io::ErrorKind::NotFound,
            ErrorKind::Data => io::ErrorKind::InvalidData,
            ErrorKind::Unsupported => io::ErrorKind::Unsupported,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl From<WireError> for Error {
    fn from(error: WireError) -> Self {
        Error {
            kind: error.kind,
            message: error.message,
            code: error.code,
            retryable: error.retryable,
        }
    }
}

impl From<Error> for WireError {
    fn from(error: Error) -> Self {
        WireError {
            kind: error.kind,
            message: error.message,
            code: error.code,
            retryable: error.retryable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_way_through_io() {
        let error = Error::denied("no grant covers db:5432")
            .with_code("08001")
            .retryable();
        assert_eq!(Error::from(io::Error::from(error.clone())), error);
    }

    #[test]
    fn a_message_has_the_words_of_the_system_and_not_its_number() {
        let error = Error::from(io::Error::from_raw_os_error(2)).context("a.csv");
        assert!(error.message().starts_with("a.csv: "), "{error}");
        assert!(!error.message().contains("os error"), "{error}");
        #[cfg(unix)]
        assert_eq!(error.message(), "a.csv: no such file or directory");
        assert_eq!(Error::from(io::Error::other("Own words")).message(), "Own words");
    }

    #[test]
    fn an_io_error_gets_the_kind_that_the_host_acts_on() {
        let cases = [
            (io::ErrorKind::NotFound, ErrorKind::NotFound),
            (io::ErrorKind::PermissionDenied, ErrorKind::Denied),
            (io::ErrorKind::UnexpectedEof, ErrorKind::Unreachable),
            (io::ErrorKind::InvalidData, ErrorKind::Data),
            (io::ErrorKind::Other, ErrorKind::Internal),
        ];
        for (from, to) in cases {
            assert_eq!(Error::from(io::Error::new(from, "x")).kind(), to, "{from:?}");
        }
    }
}
