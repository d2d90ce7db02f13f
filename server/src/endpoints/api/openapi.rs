//! `GET /api/v1/openapi.json`: the description of our own API, for programs.

use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

/// The description, OpenAPI 3.1.
const DESCRIPTION: &str = include_str!("../../../../docs/formats/openapi.json");

/// The description as it stands in `docs/formats`.
pub(crate) async fn get() -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], DESCRIPTION).into_response()
}
