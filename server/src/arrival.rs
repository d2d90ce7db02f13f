//! What happens to every request before its endpoint sees it, and to every answer after.
//!
//! A request gets an id (the client's own, if it sent one), its caller is found out, and it waits or is sent away where the
//! caller asks for too much. An answer is counted and timed, and told to the logs.

mod caller;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument as _;

use crate::access::{Caller, PathToken, hide_secrets, hide_tokens};
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::clock::now;
use crate::endpoints::api::ApiError;
use crate::endpoints::oci::{Code, OciError};
use crate::endpoints::plain;
use crate::http::{BreakConnection, ONE_HOST, Peer, cors, drain, is_called_once};
use crate::limits::{Direction, Key, Turn};
use crate::metrics::{Face, Kind};
use crate::routes::unscoped;
use crate::store::AuditRow;
use crate::{retention, takedown};

use caller::{Head, find_caller};

/// Of requests and answers.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that is taken from a client, in bytes.
const REQUEST_ID_LIMIT: usize = 128;

/// How long a debugger is kept waiting that asks for more than it may, before its connection ends.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What pages of other origins may ask of debuginfod, and the headers that they may send: no token, which whoever makes pages has no business with.
const READING: &str = "GET, HEAD, OPTIONS";
const READERS_HEADERS: &str = "range, if-range, if-match, if-none-match, if-modified-since, if-unmodified-since, x-debuginfod-maxsize, x-request-id";

/// Which pages may load an answer as if it were a part of theirs (Fetch standard, "Cross-Origin-Resource-Policy").
const RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");

/// What an answer is about, for the audit log, where no header of it says that.
#[derive(Debug, Clone)]
pub(crate) struct Changed(pub(crate) BlobDigest);

/// Does all that, and calls the endpoint in between.
pub(crate) async fn receive(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let face = crate::routes::face_of(request.uri().path());
    let (kind, is_head) = (Kind::of(unscoped(request.uri().path())), request.method() == Method::HEAD);
    if let Some(kind) = kind {
        app.metrics.asked(kind);
    }
    let for_pages = app.cors && face == Face::Debuginfod;
    let id = request_id(request.headers());
    let (method, path) = (hide_secrets(request.method().as_str()), hide_tokens(request.uri().path()));
    let span = tracing::info_span!("request", %id, method = &*method, path = &*path);
    let mut response = async {
        let address = request.extensions().get::<Peer>().map(|peer| peer.0);
        let told = |response: Response, token: Option<&str>| {
            tracing::info!(
                status = response.status().as_u16(),
                ms = millis(started),
                token,
                address = address.map(tracing::field::display),
                "answered"
            );
            response
        };
        if !is_called_once(request.version(), request.headers()) {
            return told(send_away(&app, request, plain(StatusCode::BAD_REQUEST, ONE_HOST)), None);
        }
        go_by_target(&mut request);
        if let Some(refusal) = app.own_names.refusal(face, request.method(), request.headers()) {
            return told(send_away(&app, request, refusal), None);
        }
        let path_token = request.extensions_mut().remove::<PathToken>();
        let caller = match find_caller(&app, face, Head::of(&request), path_token.as_ref(), address).await {
            Ok(caller) => caller,
            Err(refusal) => return told(send_away(&app, request, refusal), None),
        };
        let is_limited = !app.limits.are_none() && !is_probe(request.uri().path());
        let key = is_limited.then(|| Key::of(caller.account().as_deref(), address));
        let direction = direction_of(face, request.method());
        if let Some(key) = &key
            && let Some(refusal) = wait_for_turn(&app, face, key, direction).await
        {
            return told(send_away(&app, request, refusal), caller.token_id());
        }
        if let Some(key) = &key {
            request = request.map(|body| app.limits.metered(Direction::Write, key, body));
        }
        let change = is_change(face, request.method(), request.uri().path());
        let change = change.then(|| (request.method().to_string(), hide_tokens(request.uri().path()).into_owned()));
        request.extensions_mut().insert(caller.clone());
        let mut response = match *request.method() == Method::OPTIONS && for_pages {
            true => cors::preflight(READING, HeaderValue::from_static(READERS_HEADERS)),
            false => next.run(request).await,
        };
        if let Some(entry) = change.and_then(|change| audit_entry(&id, &caller, address, change, &response)) {
            let writing = write_down(Arc::clone(&app), entry);
            match response.status() {
                // Nothing was changed, for want of the database for one: the line takes as long once more, and is not waited for.
                StatusCode::SERVICE_UNAVAILABLE => drop(tokio::spawn(writing.in_current_span())),
                _ => writing.await,
            }
        }
        let token = caller.token_id();
        if app.access.asks_for_tokens() {
            keep_private(response.headers_mut(), token.is_some());
        }
        let response = told(response, token);
        match &key {
            // Whoever watches the server does not use up what others read.
            Some(key) if face != Face::Other => response.map(|body| app.limits.metered(Direction::Read, key, body)),
            _ => response,
        }
    }
    .instrument(span)
    .await;
    app.metrics.answered(face, response.status(), started.elapsed());
    if let Some(kind) = kind {
        let bytes = if is_head { 0 } else { announced(&response) };
        app.metrics.answered_as_debuginfod(kind, response.status(), started.elapsed(), bytes);
    }
    if for_pages {
        cors::for_every_origin(response.headers_mut());
    }
    if let Ok(id) = HeaderValue::try_from(id) {
        response.headers_mut().insert(REQUEST_ID, id);
    }
    response
}

/// Of a request whose target names a host, that counts, and not what `Host` says. (RFC 9112, 3.2.2)
fn go_by_target(request: &mut Request) {
    let named = request.uri().authority().and_then(|authority| HeaderValue::try_from(authority.as_str()).ok());
    if let Some(named) = named
        && request.version() <= Version::HTTP_11
    {
        request.headers_mut().insert(header::HOST, named);
    }
}

/// An answer to one whose endpoint is not asked.
fn send_away(app: &App, request: Request, mut refusal: Response) -> Response {
    drain(request.into_body().into_data_stream());
    if app.access.asks_for_tokens() {
        keep_private(refusal.headers_mut(), false);
    }
    refusal
}

/// Bytes of an answer's body, where its head says how many there will be.
fn announced(response: &Response) -> u64 {
    let said = response.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let said = said.and_then(|length| length.parse().ok());
    said.or_else(|| response.body().size_hint().exact()).unwrap_or_default()
}

/// What one caller is answered no proxy may give to another.
fn keep_private(headers: &mut HeaderMap, by_token: bool) {
    headers.append(header::VARY, HeaderValue::from_static("Authorization"));
    if !by_token {
        return;
    }
    // Another site's page cannot read it, and is not to see either whether there is something. What asks by `fetch` with CORS is not concerned.
    headers.insert(RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
    let said = headers.get(header::CACHE_CONTROL).and_then(|value| value.to_str().ok());
    let private = said.map(|said| said.replacen("public", "private", 1));
    if let Some(private) = private.and_then(|private| HeaderValue::try_from(private).ok()) {
        headers.insert(header::CACHE_CONTROL, private);
    }
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// The client's id for its request if it is short and printable, else a new one.
fn request_id(headers: &HeaderMap) -> String {
    /// The first is of this process alone, in all likelihood.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    static START: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    let sent = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let is_sound = |id: &&str| {
        let is_short = !id.is_empty() && id.len() <= REQUEST_ID_LIMIT;
        // Logs show it.
        let is_readable = is_short && id.bytes().all(|byte| byte.is_ascii_graphic());
        // By these the audit log tells what no request did.
        is_readable && hide_secrets(id) == *id && ![retention::AUDIT_ID, takedown::AUDIT_ID].contains(id)
    };
    if let Some(id) = sent.filter(is_sound) {
        return id.to_owned();
    }
    let start = START.get_or_init(|| getrandom::u64().unwrap_or_default());
    format!("{start:016x}-{:x}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whether somebody asks how the server is, who may share an address with many callers and would end a server that sends it away.
fn is_probe(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz" | "/metrics")
}

/// Where most bytes of a request go; `None` where hardly any do.
fn direction_of(face: Face, method: &Method) -> Option<Direction> {
    match *method {
        _ if face == Face::Other => None,
        Method::GET | Method::HEAD => Some(Direction::Read),
        // The addresses of a stack are few bytes, and their names many.
        Method::POST if face == Face::Symbolicate => Some(Direction::Read),
        Method::PUT | Method::POST | Method::PATCH => Some(Direction::Write),
        _ => None,
    }
}

/// Waits until the caller may ask again, or says when it may. Debuggers take a refusal for "there is no such file" and
/// remember it for ten minutes, so they wait; who would wait too long finds its connection closed, which they try again.
async fn wait_for_turn(app: &App, face: Face, caller: &Key, direction: Option<Direction>) -> Option<Response> {
    let is_debugger = matches!(face, Face::Debuginfod | Face::Symbols);
    let patience = if is_debugger { LONGEST_WAIT } else { Duration::ZERO };
    let waited = match app.limits.take_turn(caller, patience) {
        Turn::Now => Duration::ZERO,
        Turn::In(wait) if is_debugger => {
            tokio::time::sleep(wait).await;
            wait
        }
        Turn::In(wait) | Turn::TooLate(wait) => {
            app.metrics.limited();
            return Some(come_again(face, wait, &app.limits.too_many_requests()));
        }
    };
    let direction = direction?;
    let patience = patience.saturating_sub(waited);
    match app.limits.wait_for_bytes(direction, caller) {
        Duration::ZERO => None,
        wait if wait <= patience => {
            tokio::time::sleep(wait).await;
            None
        }
        wait => Some(come_again(face, wait, &app.limits.refuse_bytes(direction))),
    }
}

/// Sends a caller away who asked for too much, in the form of the API that was asked.
fn come_again(face: Face, wait: Duration, message: &str) -> Response {
    let mut response = match face {
        Face::Debuginfod | Face::Symbols => {
            let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
            response.extensions_mut().insert(BreakConnection);
            return response;
        }
        Face::Oci => OciError::new(Code::TooManyRequests, message).into_response(),
        _ => ApiError::new(StatusCode::TOO_MANY_REQUESTS, "too-many-requests", message).into_response(),
    };
    let seconds = wait.as_secs().saturating_add(1);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// Whether a request changes what others see. A blob becomes visible with a manifest that names it, so manifests count.
fn is_change(face: Face, method: &Method, path: &str) -> bool {
    let is_write = matches!(*method, Method::PUT | Method::POST | Method::DELETE);
    match face {
        Face::Oci => is_write && (*method == Method::DELETE || path.contains("/manifests/")),
        Face::Api => is_write && (*method != Method::POST || path == "/api/v2/log/entries"),
        _ => false,
    }
}

/// Adds a line to the audit log.
async fn write_down(app: Arc<App>, entry: AuditRow) {
    if let Err(error) = app.store.put_audit(&entry).await {
        app.metrics.audit_line_lost();
        tracing::error!(%error, ?entry, "a change is not in the audit log");
    }
}

/// The line of the audit log; none for strangers who are sent away: they could fill the disk.
fn audit_entry(
    id: &str,
    caller: &Caller,
    address: Option<IpAddr>,
    (method, path): (String, String),
    response: &Response,
) -> Option<AuditRow> {
    let status = response.status();
    // Nothing was written, and nobody is known to have tried. On a full disk each line would take room that is wanted for better.
    let is_refused =
        [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::INSUFFICIENT_STORAGE].contains(&status);
    if caller.token_id().is_none() && is_refused {
        return None;
    }
    let told = response.headers().get("docker-content-digest").and_then(|digest| digest.to_str().ok());
    let changed = response.extensions().get::<Changed>().map(|changed| changed.0.to_string());
    let digest = changed.or_else(|| told.map(str::to_owned));
    Some(AuditRow {
        at: now(),
        request_id: id.to_owned(),
        token: caller.token_id().map(str::to_owned),
        address: address.map(|address| address.to_string()),
        method,
        path,
        digest,
        status: status.as_u16(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_the_clients_id_or_one_of_its_own() {
        let mut headers = HeaderMap::new();
        let (first, second) = (request_id(&headers), request_id(&headers));
        assert_ne!(first, second);
        headers.insert(REQUEST_ID, HeaderValue::from_static("from-client"));
        assert_eq!(request_id(&headers), "from-client");
        for bad in [String::new(), "a b".into(), "x".repeat(129)] {
            headers.insert(REQUEST_ID, HeaderValue::try_from(&bad).unwrap());
            assert_ne!(request_id(&headers), bad);
        }
    }

    #[test]
    fn changes_are_told_from_questions_and_from_bytes_on_their_way() {
        for (face, method, path, expected) in [
            (Face::Oci, Method::PUT, "/v2/a/manifests/1", true),
            (Face::Oci, Method::DELETE, "/v2/a/blobs/sha256:00", true),
            (Face::Oci, Method::PUT, "/v2/a/blobs/uploads/1", false),
            (Face::Oci, Method::GET, "/v2/a/manifests/1", false),
            (Face::Api, Method::PUT, "/api/v1/traces/1", true),
            (Face::Api, Method::POST, "/api/v1/resolve", false),
            (Face::Api, Method::POST, "/api/v2/log/entries", true),
            (Face::Symbolicate, Method::POST, "/symbolicate/v5", false),
        ] {
            assert_eq!(is_change(face, &method, path), expected, "{method} {path}");
        }
    }
}
