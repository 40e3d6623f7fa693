//! Why a request failed: for callers that branch, and in words for people.
//!
//! Only what the server says and the causes' own texts are used, never a request or its headers: these hold
//! signatures and session tokens.

use std::error::Error;
use std::io;

use aws_sdk_s3::config::http::HttpResponse;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};

/// A request that failed for good.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// The HTTP status, where there was an answer.
    status: Option<u16>,
    /// S3's own code, such as `NoSuchKey`; a bare answer has none.
    code: Option<String>,
    /// What happened, in words.
    text: String,
}

impl Failure {
    /// A failure that is not the server's answer to a request.
    pub(super) fn new(text: impl Into<String>) -> Failure {
        Failure {
            status: None,
            code: None,
            text: text.into(),
        }
    }

    fn unanswered(causes: &str) -> Failure {
        if !causes.contains("credential") {
            return Failure::new(causes);
        }
        // The default chain tells what it tried, one line each.
        let tried = causes.replace("the credential provider was not enabled: ", "");
        let tried: Vec<&str> = tried.lines().map(str::trim).collect();
        let tried = tried.join("; ").replace("Attempted:; ", "Attempted: ");
        Failure::new(format!(
            "{tried}; set `accessKey` and `secretKey`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
        ))
    }

    fn answered(status: u16, code: Option<&str>, message: Option<&str>) -> Failure {
        let code = code.filter(|code| !code.is_empty());
        let mut text = match (message.filter(|message| !message.is_empty()), code) {
            (Some(message), Some(code)) => {
                format!("{} ({code}, HTTP {status})", message.trim_end_matches('.'))
            }
            (Some(message), None) => format!("{} (HTTP {status})", message.trim_end_matches('.')),
            (None, Some(code)) => format!("{code} (HTTP {status})"),
            (None, None) => format!("the server answers HTTP {status} and does not say why"),
        };
        if let Some(hint) = hint(status, code) {
            text += "; ";
            text += hint;
        }
        Failure {
            status: Some(status),
            code: code.map(str::to_owned),
            text,
        }
    }

    /// Whether there is no such object; a bucket that does not exist is something else.
    pub(super) fn is_absence(&self) -> bool {
        self.status == Some(404)
            && matches!(
                self.code.as_deref(),
                None | Some("NoSuchKey" | "NotFound" | "404")
            )
    }

    /// Whether the condition of a put did not hold, or another put of the same key was under way.
    pub(super) fn is_conflict(&self) -> bool {
        matches!(self.status, Some(409 | 412))
    }

    /// Whether the server answered at all.
    pub(super) fn is_answer(&self) -> bool {
        self.status.is_some()
    }

    /// Whether a conditional put is something that the store does not know, or that these credentials may not do.
    pub(super) fn refuses_conditions(&self) -> bool {
        match self.status {
            Some(400 | 405 | 501) => true,
            Some(403) => self.code.as_deref() == Some("AccessDenied"),
            _ => false,
        }
    }

    pub(super) fn into_io(self) -> io::Error {
        let kind = match self.status {
            Some(401 | 403) => io::ErrorKind::PermissionDenied,
            Some(404) => io::ErrorKind::NotFound,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, self.text)
    }
}

impl<E> From<SdkError<E, HttpResponse>> for Failure
where
    E: ProvideErrorMetadata + Error + 'static,
{
    fn from(error: SdkError<E, HttpResponse>) -> Failure {
        match (&error, error.raw_response()) {
            (SdkError::ServiceError(service), Some(response)) => {
                let error = service.err();
                Failure::answered(response.status().as_u16(), error.code(), error.message())
            }
            // An answer that is not S3's, such as a page of HTML.
            (_, Some(response)) if !response.status().is_success() => {
                Failure::answered(response.status().as_u16(), None, None)
            }
            _ => Failure::unanswered(&causes(&error)),
        }
    }
}

/// What to do about it, where that is known.
fn hint(status: u16, code: Option<&str>) -> Option<&'static str> {
    match (status, code) {
        (_, Some("NoSuchBucket")) => Some("check `bucket` (SETU_BLOB_BUCKET); it must exist already"),
        (_, Some("InvalidAccessKeyId" | "SignatureDoesNotMatch")) => Some(
            "check `accessKey` and `secretKey` (SETU_BLOB_ACCESS_KEY, SETU_BLOB_SECRET_KEY), or what the default \
             chain finds where they are not set",
        ),
        (
            _,
            Some("PermanentRedirect" | "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException"),
        )
        | (301, _) => Some("check `region` (SETU_BLOB_REGION) and `endpoint` (SETU_BLOB_ENDPOINT)"),
        (403, Some("AccessDenied")) => Some(
            "the credentials need s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket; without the last, \
             S3 answers so for an object that does not exist",
        ),
        (_, Some("RequestTimeTooSkewed")) => Some("set this machine's clock"),
        _ => None,
    }
}

/// An error and its causes, each once, without what the SDK and its HTTP client call their own layers.
pub(super) fn causes(error: &dyn Error) -> String {
    const LAYERS: [&str; 6] = [
        "dispatch failure",
        "io error",
        "other",
        "client error (Connect)",
        "client error (SendRequest)",
        "streaming error",
    ];
    let mut told: Vec<String> = Vec::new();
    let mut cause = Some(error);
    while let Some(inner) = cause {
        let text = inner.to_string();
        let known = told.last().is_some_and(|outer| outer.ends_with(&text));
        if !known && (!LAYERS.contains(&text.as_str()) || inner.source().is_none()) {
            told.push(text);
        }
        cause = inner.source();
    }
    told.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_told_in_words_with_the_way_out() {
        for (status, code, message, expected) in [
            (
                404,
                Some("NoSuchBucket"),
                Some("The specified bucket does not exist."),
                "The specified bucket does not exist (NoSuchBucket, HTTP 404); check `bucket`",
            ),
            (
                500,
                None,
                None,
                "the server answers HTTP 500 and does not say why",
            ),
            (503, Some("SlowDown"), None, "SlowDown (HTTP 503)"),
            (403, Some(""), Some("no"), "no (HTTP 403)"),
            (301, None, None, "check `region`"),
        ] {
            let failure = Failure::answered(status, code, message);
            assert!(failure.text.contains(expected), "{failure:?}");
        }
    }

    #[test]
    fn missing_credentials_are_told_in_one_line() {
        let causes = "the credential provider was not enabled: no credentials found in chain. Attempted:\n  \
                      Environment: the credential provider was not enabled: not set\n  Profile: no such file";
        assert_eq!(
            Failure::unanswered(causes).text,
            "no credentials found in chain. Attempted: Environment: not set; Profile: no such file; set `accessKey` \
             and `secretKey`, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
        );
        assert_eq!(Failure::unanswered("refused").text, "refused");
    }

    #[test]
    fn a_missing_object_is_told_from_a_missing_bucket() {
        for (status, code, absent) in [
            (404, Some("NoSuchKey"), true),
            (404, None, true),
            (404, Some("NotFound"), true),
            (404, Some("NoSuchBucket"), false),
            (404, Some("NoSuchUpload"), false),
            (403, Some("AccessDenied"), false),
            (500, None, false),
        ] {
            let failure = Failure::answered(status, code, None);
            assert_eq!(failure.is_absence(), absent, "{failure:?}");
        }
        assert!(!Failure::new("no route to host").is_absence());
    }

    #[test]
    fn causes_are_joined_and_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("{0}")]
        struct Outer(&'static str, #[source] io::Error);
        for (outer, cause, expected) in [
            ("cannot connect", "refused", "cannot connect: refused"),
            ("cannot connect: refused", "refused", "cannot connect: refused"),
            ("dispatch failure", "refused", "refused"),
            ("dispatch failure", "other", "other"),
        ] {
            assert_eq!(causes(&Outer(outer, io::Error::other(cause))), expected);
        }
    }
}
