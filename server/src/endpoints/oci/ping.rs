//! `GET /v2/`: this is a registry.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde_json::json;

use crate::access::Caller;
use crate::app::App;

const API_VERSION: HeaderName = HeaderName::from_static("docker-distribution-api-version");

/// Says that the API is here, and to those who show nothing that something is to be shown: clients ask here first, and some
/// take what they are told for every request after.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Response {
    let answer = if caller.showed_nothing() {
        super::entry::challenge(&app, &headers, "", None).into_response()
    } else {
        Json(json!({})).into_response()
    };
    ([(API_VERSION, HeaderValue::from_static("registry/2.0"))], answer).into_response()
}
