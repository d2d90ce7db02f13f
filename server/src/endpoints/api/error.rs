//! The error answers of our own API: `{"error":{"code","message"}}`.

use std::io;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::access::{CallerError, Grant};
use crate::blobs::{NotGiven, is_shortage};
use crate::endpoints::{RETRY_AFTER, is_of_database, told_of_database, told_of_storage};
use crate::http::{NoRoom, NotGathered};
use crate::pool::JobLost;
use crate::quotas::{Full, OverQuota};
use crate::store::StoreError;
use crate::takedown::IsTakenDown;
use crate::upstream::UpstreamAway;

/// An error answer.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    code: &'static str,
    message: String,
    /// Whether it may go better soon.
    is_passing: bool,
}

impl ApiError {
    /// An error with a stable code and a message for people.
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl ToString) -> Self {
        Self { status, code, message: message.to_string(), is_passing: false }
    }

    /// Something that the server stands on does not answer now.
    pub(crate) fn away(code: &'static str, message: impl ToString) -> Self {
        Self { is_passing: true, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message) }
    }

    /// The caller lacks a grant.
    pub(crate) fn forbidden(grant: &Grant) -> Self {
        let message = format!("expected a token with the grant {grant} (Authorization: Bearer …)");
        Self::new(StatusCode::FORBIDDEN, "forbidden", message)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::error!(code = self.code, message = self.message);
        }
        let body = Json(json!({ "error": { "code": self.code, "message": self.message } }));
        let mut response = (self.status, body).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"symseal\""));
        }
        if self.is_passing {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
        }
        response
    }
}

impl From<io::Error> for ApiError {
    fn from(error: io::Error) -> Self {
        if NotGiven::is_why(&error) {
            return Self::new(StatusCode::GONE, "taken-down", error);
        }
        if UpstreamAway::is_why(&error) {
            return Self::away("upstream-away", error);
        }
        let told = told_of_storage(&error);
        match error.kind() {
            io::ErrorKind::HostUnreachable if is_of_database(&error) => Self::away("database-away", told),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "storage-full", told)
            }
            io::ErrorKind::HostUnreachable => Self::away("storage-away", told),
            _ if is_shortage(&error) => Self::away("server-busy", told),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "storage-failed", told),
        }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let told = told_of_database(&error);
        match error {
            StoreError::Full(_) => Self::new(StatusCode::INSUFFICIENT_STORAGE, "storage-full", told),
            StoreError::Away(_) => Self::away("database-away", told),
            StoreError::Failed(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "database-failed", told),
        }
    }
}

impl From<CallerError> for ApiError {
    fn from(error: CallerError) -> Self {
        match error {
            CallerError::Refused | CallerError::Expired => {
                Self::new(StatusCode::UNAUTHORIZED, "unauthenticated", error)
            }
            CallerError::Store(error) => error.into(),
            CallerError::Issuer(_) => Self::away("issuer-away", error),
        }
    }
}

impl From<Full> for ApiError {
    fn from(error: Full) -> Self {
        match error {
            Full::TooLarge(error) => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "upload-too-large", error),
            Full::Quota(error) => error.into(),
        }
    }
}

impl From<OverQuota> for ApiError {
    fn from(error: OverQuota) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "over-quota", error)
    }
}

impl From<IsTakenDown> for ApiError {
    fn from(error: IsTakenDown) -> Self {
        Self::new(StatusCode::FORBIDDEN, "taken-down", error)
    }
}

impl From<NoRoom> for ApiError {
    fn from(error: NoRoom) -> Self {
        Self::away("out-of-memory", error)
    }
}

impl From<NotGathered> for ApiError {
    fn from(error: NotGathered) -> Self {
        match error {
            NotGathered::TooLarge => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", error),
            NotGathered::Stalled => Self::new(StatusCode::REQUEST_TIMEOUT, "body-too-slow", error),
            NotGathered::Broken(_) => Self::new(StatusCode::BAD_REQUEST, "body-broken", error),
            NotGathered::NoRoom(full) => full.into(),
        }
    }
}

impl From<JobLost> for ApiError {
    fn from(error: JobLost) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "interrupted", error)
    }
}
