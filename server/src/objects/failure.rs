//! Why an object store gives nothing. Where it refuses, or has no such bucket, to try again is no use before somebody has changed something.

use std::error::Error;
use std::io;

use object_store::client::{HttpError, HttpErrorKind};

/// What object stores call that, where the status does not say it. (Amazon S3 API reference, "Error responses": some of these come with 400; versitygw has
/// 404 for a key that it does not know)
const CODES: [&str; 11] = [
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "ExpiredToken",
    "InvalidAccessKeyId",
    "InvalidSecurity",
    "InvalidToken",
    "NotSignedUp",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "XAdminUserNotFound",
];

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The object store does not take this server's credentials, or they do not let it do what was asked.
    CredentialsRefused,
    /// There is no such bucket.
    NoBucket,
    /// The object store answers, and takes the credentials, but does not give this one object, or not whole.
    OneObject,
    /// The object store does not answer, or with an error of its own.
    Silent,
}

/// Why nothing is had of an object store.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{problem}")]
pub(crate) struct Failure {
    pub(super) problem: String,
    pub(super) why: Why,
}

impl Failure {
    /// What kind an error is of, where an object store is its reason.
    pub(crate) fn why(error: &io::Error) -> Option<Why> {
        error.get_ref()?.downcast_ref().map(|failure: &Self| failure.why)
    }
}

impl From<Failure> for io::Error {
    /// As of what does not answer, so that nobody takes it for an absence.
    fn from(failure: Failure) -> Self {
        Self::new(io::ErrorKind::HostUnreachable, failure)
    }
}

/// Whether an answer of the object store says that it does not take the credentials.
pub(super) fn is_refusal(error: &object_store::Error) -> bool {
    use object_store::Error::{PermissionDenied, Unauthenticated};
    matches!(error, PermissionDenied { .. } | Unauthenticated { .. })
        || causes(error).any(|cause| is_code(&cause.to_string()))
}

/// Whether an answer of the object store says that there is no such bucket.
pub(super) fn is_bucket_gone(error: &object_store::Error) -> bool {
    causes(error).any(|cause| code(&cause.to_string()) == Some("NoSuchBucket"))
}

/// Whether it kept silent for too long.
pub(super) fn is_silence(error: &object_store::Error) -> bool {
    let is_late = |cause: &HttpError| matches!(cause.kind(), HttpErrorKind::Timeout | HttpErrorKind::Connect);
    causes(error).any(|cause| cause.downcast_ref::<HttpError>().is_some_and(is_late))
}

/// An error, and what is behind it.
fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let this = next?;
        next = this.source();
        Some(this)
    })
}

/// Whether a text holds the document of such an error.
fn is_code(text: &str) -> bool {
    code(text).is_some_and(|code| CODES.contains(&code))
}

fn code(text: &str) -> Option<&str> {
    let (code, _) = text.split_once("<Code>")?.1.split_once("</Code>")?;
    Some(code.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_the_store_does_not_know_is_a_refusal_whatever_the_status() {
        let said =
            |code: &str| format!("404 Not Found: <?xml?>\n<Error><Code>{code}</Code><Message>m</Message></Error>");
        let error = |code: &str| object_store::Error::NotFound { path: "a".into(), source: said(code).into() };
        assert!(is_refusal(&error("XAdminUserNotFound")));
        assert!(is_refusal(&error("InvalidAccessKeyId")));
        assert!(!is_refusal(&error("NoSuchKey")));
        assert!(!is_code("<Code>AccessDenied"));
    }
}
