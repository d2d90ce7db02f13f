//! `POST /symbolicate/v5`: names for addresses, as the Firefox Profiler and samply ask for them (Tecken's API).
//!
//! The answers come from the symbol tables of bundles. Pages of other origins ask, so every answer allows them, and the browser's
//! preflight is answered.

mod naming;
mod request;

use std::sync::Arc;

use axum::Extension;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use serde_json::json;

use crate::access::Caller;
use crate::app::App;
use crate::debug_files::Scope;

pub(crate) use request::Request;

/// The largest body that is read, in bytes.
const BODY_LIMIT: usize = 8 << 20;

/// How long a browser may keep the answer to a preflight, in seconds.
const PREFLIGHT_CACHE: &str = "86400";

/// Pages of the open web that ask a server in the same house announce it (Private Network Access).
const PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Why a request is not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// Not the request that the API knows.
    #[error("{0}")]
    Malformed(String),
    /// More work than one request may ask for.
    #[error("{0}")]
    TooMuch(String),
}

/// POST, or OPTIONS before it.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    method: Method,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let mut response = match method {
        Method::OPTIONS => preflight(&headers),
        Method::POST => post(app, Scope::default().readable_by(&caller), body).await,
        _ => {
            let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "expected POST with a JSON body");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, OPTIONS"));
            response
        }
    };
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    response
}

fn preflight(asked: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST, OPTIONS"));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_CACHE));
    let wanted = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let usual = HeaderValue::from_static("content-type");
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.unwrap_or(usual));
    if asked.contains_key(PRIVATE_NETWORK) {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    response
}

async fn post(app: Arc<App>, scope: Scope, body: Body) -> Response {
    let Ok(body) = to_bytes(body, BODY_LIMIT).await else {
        let why =
            format!("expected a body of at most {BODY_LIMIT} bytes that comes to its end: ask in several requests");
        return error(StatusCode::PAYLOAD_TOO_LARGE, &why);
    };
    let shared = Arc::clone(&app);
    let named = app
        .naming
        .run(move || Request::read(&body).and_then(|request| naming::name_all(&shared, &scope, &request)))
        .await;
    match named {
        Ok(Ok(text)) => json_response(StatusCode::OK, text),
        Ok(Err(refused @ Refused::Malformed(_))) => error(StatusCode::BAD_REQUEST, &refused.to_string()),
        Ok(Err(refused @ Refused::TooMuch(_))) => error(StatusCode::PAYLOAD_TOO_LARGE, &refused.to_string()),
        Err(lost) => error(StatusCode::INTERNAL_SERVER_ERROR, &lost.to_string()),
    }
}

fn error(status: StatusCode, why: &str) -> Response {
    json_response(status, json!({ "error": why }).to_string().into_bytes())
}

fn json_response(status: StatusCode, text: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
