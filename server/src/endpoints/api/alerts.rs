//! `GET /api/v1/alerts`: where bundles contradict each other.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use serde_json::json;

use super::ApiError;
use crate::access::{Caller, Grant};
use crate::app::App;

/// The newest first. They name repositories, so where tokens are asked for the one who reads them is an auditor.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    if !app.access.may_watch(&caller) {
        return Err(ApiError::forbidden(&Grant::ReadAudit));
    }
    Ok(app.memory.json(&json!({ "alerts": app.alerts.list(app.store.as_ref()).await? }))?)
}
