//! `GET /api/v1/alerts`: where bundles contradict each other.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::app::App;

/// The newest first.
pub(crate) async fn get(State(app): State<Arc<App>>) -> Response {
    Json(json!({ "alerts": app.alerts.list() })).into_response()
}
