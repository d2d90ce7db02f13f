//! `GET /metrics`: counts in the Prometheus text form.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::app::App;

/// The counts.
pub(crate) async fn get(State(app): State<Arc<App>>) -> Response {
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4");
    let text = app.metrics.text(app.debug_files.len()) + &app.alerts.metrics();
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}
