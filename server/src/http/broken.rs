//! An answer that is none: the connection is closed before its first byte.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;

/// Marks an answer that must not go out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BreakConnection;

/// Resets the connection without an answer. For clients that keep every error status for minutes, and try a broken
/// connection again.
pub(crate) fn break_connection(reason: &str) -> Response {
    tracing::warn!(reason, "what is asked for cannot be told: the connection is reset");
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response.extensions_mut().insert(BreakConnection);
    response
}
