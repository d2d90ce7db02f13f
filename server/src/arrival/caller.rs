//! Who sends a request, and the answer to one whose token or session does not hold.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::wait_for_turn;
use crate::access::{Caller, CallerError, PathToken};
use crate::app::App;
use crate::endpoints::api::ApiError;
use crate::endpoints::oci::{Code, OciError, invalid_token};
use crate::endpoints::{plain, told_of_database};
use crate::http::BreakConnection;
use crate::limits::Key;
use crate::metrics::Face;

/// What a request begins with.
#[derive(Clone, Copy)]
pub(super) struct Head<'r> {
    method: &'r Method,
    path: &'r str,
    headers: &'r HeaderMap,
}

impl<'r> Head<'r> {
    pub(super) fn of(request: &'r Request) -> Self {
        Self { method: request.method(), path: request.uri().path(), headers: request.headers() }
    }

    /// Whether it shows a session, or a token as sessions are shown.
    fn shows_bearer(self) -> bool {
        let shown = self.headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().first_chunk());
        shown.is_some_and(|scheme: &[u8; 7]| scheme.eq_ignore_ascii_case(b"Bearer "))
    }
}

/// Who sends a request, or what is answered in the place of its endpoint. What is shown and does not hold takes a turn of the address that it
/// comes from, and takes it before the database is asked where nothing is known of it: else guessing were free. The holder of a token that was
/// seen before does not wait for others at its address.
pub(super) async fn find_caller(
    app: &App,
    face: Face,
    head: Head<'_>,
    path_token: Option<&PathToken>,
    address: Option<IpAddr>,
) -> Result<Caller, Response> {
    let turn = async || match app.limits.are_none() {
        true => None,
        false => wait_for_turn(app, face, &Key::of(None, address), None).await,
    };
    let is_unproved = app.access.is_unproved(head.headers, path_token);
    if is_unproved && let Some(refusal) = turn().await {
        return Err(refusal);
    }
    match app.access.caller(head.headers, path_token).await {
        Ok(caller) => Ok(caller),
        Err(CallerError::Refused) if !is_unproved => {
            Err(turn().await.unwrap_or_else(|| refuse(app, face, head, &CallerError::Refused)))
        }
        Err(error) => Err(refuse(app, face, head, &error)),
    }
}

/// What was shown does not hold: in the form of the API that was asked.
fn refuse(app: &App, face: Face, head: Head<'_>, error: &CallerError) -> Response {
    let status = match error {
        CallerError::Refused | CallerError::Expired => StatusCode::UNAUTHORIZED,
        CallerError::Store(_) | CallerError::Issuer(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    // The elfutils clients would keep any answer for ten minutes as "there is no such file".
    if matches!(face, Face::Debuginfod | Face::Symbols) && status == StatusCode::SERVICE_UNAVAILABLE {
        let mut response = plain(status, &error.to_string());
        response.extensions_mut().insert(BreakConnection);
        return response;
    }
    let told = match error {
        CallerError::Store(error) => told_of_database(error).to_owned(),
        error => error.to_string(),
    };
    if face == Face::Oci && status == StatusCode::UNAUTHORIZED && head.shows_bearer() {
        return invalid_token(app, head.method, head.path, head.headers, told).into_response();
    }
    let mut response = match face {
        Face::Oci if status == StatusCode::UNAUTHORIZED => OciError::new(Code::Unauthorized, told).into_response(),
        Face::Oci => OciError::away(told).into_response(),
        Face::Api if status == StatusCode::UNAUTHORIZED => {
            ApiError::new(status, "unauthenticated", told).into_response()
        }
        Face::Api => ApiError::away("database-away", told).into_response(),
        _ => plain(status, &told),
    };
    if status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"symseal\""));
    }
    response
}
