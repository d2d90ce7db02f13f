//! `POST /symbolicate/v5`: names for addresses, as the Firefox Profiler and samply ask for them (Tecken's API).
//!
//! The answers come from the symbol tables of bundles, and of files that came without a bundle or that other servers have. Pages of other origins ask, so every answer allows them, and the browser's
//! preflight is answered.

mod naming;
mod request;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use futures_util::StreamExt as _;
use serde_json::json;

use crate::access::Caller;
use crate::app::App;
use crate::debug_files::{FileKind, Key, Scope};
use crate::endpoints::RETRY_AFTER;
use crate::http::{Gathered, GrowingText, NoRoom, NotGathered, Peer, Share, content_coding, cors, drain};
use crate::made_tables::{MadeTable, made_table};
use crate::pool::JobLost;
use crate::upstream::{Hops, Sought};

pub(crate) use request::Request;

/// The largest body that is read, in bytes.
const BODY_LIMIT: usize = 8 << 20;

/// Pages of the open web that ask a server in the same house announce it (Private Network Access).
const PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName = HeaderName::from_static("access-control-allow-private-network");

/// Modules of one request whose tables are made.
const MADE_LIMIT: usize = 4096;

/// Tables of one request that are cared for at once: they mostly wait for other servers, and for their turn to be made.
const MADE_AT_ONCE: usize = 8;

/// A GUID and an age.
type BreakpadId = ([u8; 16], u32);

/// By id, and by name: a made up id may be that of several modules.
type MadeTables = HashMap<BreakpadId, Vec<(String, io::Result<MadeTable>)>>;

/// Names of one id that are looked for apart; the others have the table of the first.
const NAMES_OF_AN_ID: usize = 8;

/// Why a request is not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// Not the request that the API knows.
    #[error("{0}")]
    Malformed(String),
    /// More work than one request may ask for.
    #[error("{0}")]
    TooMuch(String),
    /// No memory for the answer.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The work on it did not come to its end.
    #[error(transparent)]
    Lost(#[from] JobLost),
}

/// POST, or OPTIONS before it.
pub(crate) async fn answer(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    peer: Option<Extension<Peer>>,
    method: Method,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let mut response = match method {
        Method::OPTIONS => preflight(&headers),
        Method::POST => match content_coding(&headers) {
            Some(coding) => {
                drain(body.into_data_stream());
                let why = format!("Content-Encoding {coding:?}: expected the body as it is, without one");
                error(StatusCode::UNSUPPORTED_MEDIA_TYPE, &why)
            }
            None => {
                let hops = Hops::of(&headers, peer.map(|Extension(Peer(address))| address));
                post(app, Scope::default().readable_by(&caller), body, &hops).await
            }
        },
        _ => {
            let mut response = error(StatusCode::METHOD_NOT_ALLOWED, "expected POST with a JSON body");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, OPTIONS"));
            response
        }
    };
    cors::for_every_origin(response.headers_mut());
    response
}

fn preflight(asked: &HeaderMap) -> Response {
    let wanted = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let usual = HeaderValue::from_static("content-type");
    let mut response = cors::preflight("POST, OPTIONS", wanted.unwrap_or(usual));
    if asked.contains_key(PRIVATE_NETWORK) {
        response.headers_mut().insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    response
}

async fn post(app: Arc<App>, scope: Scope, body: Body, hops: &Hops) -> Response {
    let body = match app.memory.gather(Share::Questions, body, BODY_LIMIT).await {
        Ok(body) => Arc::new(body),
        Err(why) => return not_gathered(&why),
    };
    let read = match read(&app, &scope, &body, None).await {
        Ok(Read::Named(text)) => Ok(text),
        // Other servers are asked while nothing is held but the body.
        Ok(Read::Wanting(wanted)) => {
            let made = make_tables(&app, &scope, wanted, hops).await;
            match read(&app, &scope, &body, Some(made)).await {
                Ok(Read::Named(text)) => Ok(text),
                Ok(Read::Wanting(_)) => Err(JobLost.into()),
                Err(refused) => Err(refused),
            }
        }
        Err(refused) => Err(refused),
    };
    match read {
        Ok(text) => json_response(StatusCode::OK, text.into_body(&app.memory)),
        Err(refused) => refusal(&refused),
    }
}

/// What came of a request.
enum Read {
    /// The answer.
    Named(GrowingText),
    /// The modules whose tables have to be made first, and what they are called.
    Wanting(Vec<(BreakpadId, String)>),
}

/// Reads a request, and names its frames where all tables are there that can be. What is read is not kept: it may take many times what the body does, so
/// few such are there at once, each in room of its own.
async fn read(app: &Arc<App>, scope: &Scope, body: &Arc<Gathered>, made: Option<MadeTables>) -> Result<Read, Refused> {
    let Some(room) = app.memory.for_reading(request::memory_of(body)).await else {
        return Err(Refused::TooMuch("the request has too many parts: ask in several requests".to_owned()));
    };
    let (shared, scope, body) = (Arc::clone(app), scope.clone(), Arc::clone(body));
    let read = move || {
        let _room = room;
        let request = Request::read(&body)?;
        if made.is_none() {
            let wanted = wanted(&shared, &scope, &request);
            if !wanted.is_empty() {
                return Ok(Read::Wanting(wanted));
            }
        }
        naming::name_all(&shared, &scope, &request, &made.unwrap_or_default()).map(Read::Named)
    };
    app.naming.run(read).await.unwrap_or_else(|lost| Err(lost.into()))
}

/// The modules that no bundle has a table of.
fn wanted(app: &App, scope: &Scope, request: &Request<'_>) -> Vec<(BreakpadId, String)> {
    let has_none = |((guid, age), _): &(BreakpadId, &str)| {
        let key = Key::Breakpad { guid: *guid, age: *age };
        app.debug_files.find_in(scope, &key, FileKind::SymbolTable).is_none()
    };
    let mut names = 0;
    let mut last = None;
    let mut is_one_of_few = |(id, _): &(BreakpadId, &str)| {
        names = if last == Some(*id) { names + 1 } else { 1 };
        last = Some(*id);
        names <= NAMES_OF_AN_ID
    };
    let wanted = request.named_modules().into_iter().filter(|module| is_one_of_few(module) && has_none(module));
    wanted.take(MADE_LIMIT).map(|(id, name)| (id, name.to_owned())).collect()
}

/// Their tables, as far as there are files to make them of.
async fn make_tables(app: &App, scope: &Scope, wanted: Vec<(BreakpadId, String)>, hops: &Hops) -> MadeTables {
    let until = Sought::patience();
    let make = |(id, name): (BreakpadId, String)| async move {
        let sought = Sought { id: None, name: Some(&name), hops, until };
        let made = made_table(app, scope, id, &sought).await?;
        Some((id, name, made))
    };
    let made = futures_util::stream::iter(wanted).map(make).buffered(MADE_AT_ONCE).filter_map(std::future::ready);
    made.fold(MadeTables::new(), |mut tables, (id, name, made)| {
        tables.entry(id).or_default().push((name, made));
        std::future::ready(tables)
    })
    .await
}

fn refusal(refused: &Refused) -> Response {
    match refused {
        Refused::Malformed(_) => error(StatusCode::BAD_REQUEST, &refused.to_string()),
        Refused::TooMuch(_) => error(StatusCode::PAYLOAD_TOO_LARGE, &refused.to_string()),
        Refused::NoRoom(full) => no_room(*full),
        Refused::Lost(lost) => error(StatusCode::INTERNAL_SERVER_ERROR, &lost.to_string()),
    }
}

fn not_gathered(why: &NotGathered) -> Response {
    match why {
        NotGathered::TooLarge => {
            let why = format!("expected a body of at most {BODY_LIMIT} bytes: ask in several requests");
            error(StatusCode::PAYLOAD_TOO_LARGE, &why)
        }
        NotGathered::Stalled => error(StatusCode::REQUEST_TIMEOUT, &why.to_string()),
        NotGathered::Broken(_) => error(StatusCode::BAD_REQUEST, &why.to_string()),
        NotGathered::NoRoom(full) => no_room(*full),
    }
}

fn no_room(full: NoRoom) -> Response {
    let mut response = error(StatusCode::SERVICE_UNAVAILABLE, &full.to_string());
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER));
    response
}

fn error(status: StatusCode, why: &str) -> Response {
    json_response(status, Body::from(json!({ "error": why }).to_string()))
}

fn json_response(status: StatusCode, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
