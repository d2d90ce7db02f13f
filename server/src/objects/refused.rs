//! What an object store refuses, which is not that it does not answer: to try again is no use before somebody has changed something.

use std::error::Error;
use std::io;

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

/// An object store does not take this server's credentials, or they do not let it do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CredentialsRefused(pub(super) String);

impl CredentialsRefused {
    /// Whether an error is that.
    pub(crate) fn is_why(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|error| error.is::<Self>())
    }

    /// Whether an answer of the object store says so.
    pub(super) fn is_said(error: &object_store::Error) -> bool {
        use object_store::Error::{PermissionDenied, Unauthenticated};
        let mut cause: Option<&dyn Error> = Some(error);
        let said = std::iter::from_fn(|| {
            let this = cause?;
            cause = this.source();
            Some(this.to_string())
        });
        matches!(error, PermissionDenied { .. } | Unauthenticated { .. }) || said.into_iter().any(|text| is_code(&text))
    }
}

/// Whether a text holds the document of such an error.
fn is_code(text: &str) -> bool {
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    code.is_some_and(|(code, _)| CODES.contains(&code.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_the_store_does_not_know_is_a_refusal_whatever_the_status() {
        let said =
            |code: &str| format!("404 Not Found: <?xml?>\n<Error><Code>{code}</Code><Message>m</Message></Error>");
        let error = |code: &str| object_store::Error::NotFound { path: "a".into(), source: said(code).into() };
        assert!(CredentialsRefused::is_said(&error("XAdminUserNotFound")));
        assert!(CredentialsRefused::is_said(&error("InvalidAccessKeyId")));
        assert!(!CredentialsRefused::is_said(&error("NoSuchKey")));
        assert!(!is_code("<Code>AccessDenied"));
    }
}
