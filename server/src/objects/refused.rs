//! What an object store refuses, which is not that it does not answer: to try again is no use before somebody has changed something.

use std::io;

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
        matches!(error, object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. })
    }
}
