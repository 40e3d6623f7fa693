//! One error type for everything that a stream's copy can meet.

use std::fmt;

use crate::blob::BlobError;

/// A result with this module's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing went wrong. The first nine are the contract's own (`wit/setu.wit`, `error-kind`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The configuration is wrong.
    Config,
    /// The credentials were refused.
    Auth,
    /// The system cannot be reached, or the connection to it broke.
    Unreachable,
    /// No grant covers what the connector asked for.
    Denied,
    /// A stream, file or object does not exist.
    NotFound,
    /// A value cannot be read or written as its type.
    Data,
    /// Something else holds or has changed what was asked for.
    Conflict,
    /// The connector does not do this.
    Unsupported,
    /// A fault of the connector or of the host itself.
    Internal,
    /// The connector returned what the contract forbids.
    BrokenContract,
    /// The connector panicked.
    Panic,
    /// The connector trapped: out of bounds, unreachable code, stack overflow.
    Trap,
    /// The connector made no progress for longer than it may.
    Timeout,
    /// The connector used more of something than it may.
    Limit,
    /// The blob store failed.
    Blob,
    /// A staged object is missing, damaged or of another run.
    Staging,
    /// The user interrupted the run.
    Interrupted,
    /// The run cannot be loaded any more, however often it is tried: a new one can.
    RunOver,
}

/// Why a stream failed. Its `Display` is the whole story for a person: the connector and call where there is one,
/// what happened, and the way out.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    code: Option<String>,
    retryable: bool,
    /// "connector postgres 0.1.0, stream public.orders, call reader.next"
    place: Option<String>,
}

impl Error {
    /// An error that will not go away by itself.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Error {
            kind,
            message: message.into(),
            code: None,
            retryable: false,
            place: None,
        }
    }

    /// With the system's own code, such as an SQLSTATE.
    pub fn with_code(mut self, code: Option<String>) -> Self {
        self.code = code;
        self
    }

    /// Says whether the same call may succeed later.
    pub fn with_retryable(mut self, retryable: bool) -> Self {
        self.retryable = retryable;
        self
    }

    /// Says where it happened, unless that is known already.
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.place.get_or_insert_with(|| place.into());
        self
    }

    /// With message and code changed.
    pub fn map_text(mut self, change: impl Fn(&str) -> String) -> Self {
        self.message = change(&self.message);
        self.code = self.code.map(|code| change(&code));
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What happened, without the place and the code.
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
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        if let Some(code) = &self.code {
            write!(f, " [{code}]")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Whether a fault of a store may be gone a moment later. One that is full, or that forbids it, stays so.
fn may_pass(kind: std::io::ErrorKind) -> bool {
    use std::io::ErrorKind::{
        InvalidData, InvalidInput, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem,
        StorageFull, Unsupported,
    };
    !matches!(
        kind,
        InvalidData
            | InvalidInput
            | NotFound
            | PermissionDenied
            | QuotaExceeded
            | ReadOnlyFilesystem
            | StorageFull
            | Unsupported
    )
}

impl From<BlobError> for Error {
    /// A missing object stays [`ErrorKind::NotFound`], a wrong setting [`ErrorKind::Config`]; everything else is
    /// [`ErrorKind::Blob`] with its causes.
    fn from(error: BlobError) -> Self {
        let kind = match error {
            BlobError::NotFound { .. } => ErrorKind::NotFound,
            BlobError::Config(_) => ErrorKind::Config,
            _ => ErrorKind::Blob,
        };
        let retryable = matches!(&error, BlobError::Io { source, .. } if may_pass(source.kind()));
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            message.push_str(&format!(": {inner}"));
            cause = inner.source();
        }
        Error::new(kind, message).with_retryable(retryable)
    }
}
