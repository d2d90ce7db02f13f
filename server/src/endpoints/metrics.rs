//! `GET /metrics`: counts in the Prometheus text form.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::app::App;

/// The counts.
pub(crate) async fn get(State(app): State<Arc<App>>) -> Response {
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4");
    ([(header::CONTENT_TYPE, content_type)], app.metrics.text(app.debug_files.len())).into_response()
}
