//! Error answers in the form of a Rekor v2: `{"code","message","details"}` with the codes of gRPC.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::endpoints::told_of_database;
use crate::log::AppendError;
use crate::pool::JobLost;
use crate::store::StoreError;

/// Where the index of an entry stands that is in the log already.
const LOG_INDEX: HeaderName = HeaderName::from_static("x-log-index");

/// An error answer.
#[derive(Debug)]
pub(crate) struct LogApiError {
    status: StatusCode,
    message: String,
    header: Option<(HeaderName, HeaderValue)>,
}

impl LogApiError {
    /// An answer with a message for people.
    pub(crate) fn new(status: StatusCode, message: impl ToString) -> Self {
        Self { status, message: message.to_string(), header: None }
    }

    /// 401, with what is asked for.
    pub(crate) fn unauthenticated(message: impl ToString) -> Self {
        let header = (header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"symseal log\""));
        Self { header: Some(header), ..Self::new(StatusCode::UNAUTHORIZED, message) }
    }

    /// 409 for what stands in the log already.
    pub(crate) fn duplicate(index: u64) -> Self {
        let message = format!("an equivalent entry already exists in the transparency log with index {index}");
        Self { header: Some((LOG_INDEX, index.into())), ..Self::new(StatusCode::CONFLICT, message) }
    }

    /// 503, with the time after which to ask again.
    pub(crate) fn busy(message: impl ToString) -> Self {
        let header = (header::RETRY_AFTER, HeaderValue::from_static("1"));
        Self { header: Some(header), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, message) }
    }

    /// The code of gRPC that goes with the status.
    fn code(&self) -> u8 {
        match self.status {
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => 3,
            StatusCode::NOT_FOUND => 5,
            StatusCode::CONFLICT => 6,
            StatusCode::FORBIDDEN => 7,
            StatusCode::SERVICE_UNAVAILABLE => 14,
            StatusCode::UNAUTHORIZED => 16,
            _ => 13,
        }
    }
}

impl IntoResponse for LogApiError {
    fn into_response(self) -> Response {
        if self.status.is_server_error() {
            tracing::error!(message = self.message);
        }
        let body = json!({ "code": self.code(), "message": self.message, "details": [] });
        let mut response = (self.status, Json(body)).into_response();
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

impl From<AppendError> for LogApiError {
    fn from(error: AppendError) -> Self {
        match error {
            AppendError::Busy(_) => Self::busy(error),
            AppendError::Failed(_) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error),
        }
    }
}

impl From<StoreError> for LogApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Away(_) => Self::busy(told_of_database(&error)),
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, told_of_database(&error)),
        }
    }
}

impl From<JobLost> for LogApiError {
    fn from(error: JobLost) -> Self {
        Self::busy(error)
    }
}
