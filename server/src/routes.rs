//! The route table.
//!
//! | path | endpoint |
//! | --- | --- |
//! | `/`, `/search`, `/releases`, `/bundles/<digest>`, `/wanted`, `/login`, `/style.css` | [`pages`] |
//! | `/healthz`, `/readyz` | [`health`] |
//! | `/metrics` | [`metrics`] |
//! | `/v2/` | [`oci::ping`] |
//! | `/v2/_catalog` | [`oci::catalog`] |
//! | `/v2/<name>/blobs/<digest>` | [`oci::blobs`] |
//! | `/v2/<name>/blobs/uploads/[<id>]` | [`oci::uploads`] |
//! | `/v2/<name>/manifests/<tag or digest>` | [`oci::manifests`] |
//! | `/v2/<name>/tags/list` | [`oci::tags`] |
//! | `/v2/<name>/referrers/<digest>` | [`oci::referrers`] |
//! | `/buildid/<id>/…` | [`debuginfod`] |
//! | `/metadata` | [`debuginfod::metadata`] |
//! | `/symbols/<name>/<id>/<name>` and its kin | [`symbols`] |
//! | `/s/<prefix>/buildid/…`, `/s/<prefix>/metadata`, `/s/<prefix>/symbols/…` | the same, out of the repositories below a prefix |
//! | `/symbolicate/v5` | [`symbolicate`] |
//! | `/api/v1/traces/<id>` | [`api::traces`] |
//! | `/api/v1/bundles`, `/api/v1/bundles/<digest>` | [`api::bundles`] |
//! | `/api/v1/resolve` | [`api::resolve`] |
//! | `/api/v1/symbols`, `/api/v1/symbols/<digest>` | [`api::symbols`] |
//! | `/api/v1/openapi.json` | [`api::openapi`] |
//! | `/api/v1/search`, `/api/v1/wanted` | [`api::search`] |
//! | `/api/v1/alerts` | [`api::alerts`] |
//! | `/api/v1/token` | [`api::token`] |
//! | `/api/v1/audit` | [`api::audit`] |
//! | `/checkpoint`, `/tile/…`, and both below `/api/v2` | [`log::files`] |
//! | `/api/v2/log/entries` | [`log::entries`] |
//!
//! Under `/v2/` names hold slashes, and under `/buildid/` and `/symbols/` the path's bytes count as they came, so they read the
//! rest of the path themselves.

use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, delete, get, post};
use axum::{Extension, Router};

use crate::access::Caller;
use crate::app::App;
use crate::arrival;
use crate::debug_files::Scope;
use crate::endpoints::api::ApiError;
use crate::endpoints::oci::{Code, OciError, Target};
use crate::endpoints::{api, debuginfod, health, log, metrics, oci, pages, symbolicate, symbols};
use crate::http::Peer;
use crate::metrics::Face;
use crate::repositories::RepositoryName;
use crate::shared::look_elsewhere;
use crate::upstream::Hops;

/// Every route, over the server's state.
pub(crate) fn routes(app: Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/", get(pages::home))
        .route("/search", get(pages::search))
        .route("/releases", get(pages::releases))
        .route("/bundles/{digest}", get(pages::bundle))
        .route("/wanted", get(pages::wanted))
        .route("/login", get(pages::login))
        .route("/style.css", get(pages::style))
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::get))
        .route("/v2", get(oci::ping::get))
        .route("/v2/", get(oci::ping::get))
        .route("/v2/{*rest}", any(registry))
        .route("/buildid/{*rest}", any(build_id))
        .route("/metadata", any(metadata))
        .route("/symbols/{*rest}", any(symbol_server))
        .route("/s/{*rest}", any(scoped))
        .route("/symbolicate/v5", any(symbolicate::answer))
        .route("/api/v1/traces/{id}", get(api::traces::get).put(api::traces::put))
        .route("/api/v1/bundles", get(api::bundles::list))
        .route("/api/v1/bundles/{digest}", get(api::bundles::get))
        .route("/api/v1/resolve", post(api::resolve::post))
        .route("/api/v1/symbols", get(api::symbols::list).put(api::symbols::put))
        .route("/api/v1/symbols/{digest}", delete(api::symbols::delete))
        .route("/api/v1/openapi.json", get(api::openapi::get))
        .route("/api/v1/search", get(api::search::find))
        .route("/api/v1/wanted", get(api::search::wanted))
        .route("/api/v1/alerts", get(api::alerts::get))
        .route("/api/v1/token", get(api::token::get))
        .route("/api/v1/audit", get(api::audit::get))
        .route("/checkpoint", get(log::files::get))
        .route("/tile/{*rest}", get(log::files::get))
        .route("/api/v2/checkpoint", get(log::files::get))
        .route("/api/v2/tile/{*rest}", get(log::files::get))
        .route("/api/v2/log/entries", post(log::entries::post))
        .fallback(unrouted)
        // Every endpoint that takes a body bounds or streams it itself.
        .layer(DefaultBodyLimit::disable());
    if app.follower.is_some() {
        router = router.layer(from_fn_with_state(Arc::clone(&app), look_elsewhere));
    }
    let router = router.layer(from_fn_with_state(Arc::clone(&app), arrival::receive)).with_state(app);
    // Around all of it: the router says last which methods a path knows.
    Router::new().fallback_service(router).layer(from_fn(in_form))
}

async fn registry(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().strip_prefix("/v2/").unwrap_or_default();
    let (method, query, headers) = (&parts.method, parts.uri.query(), &parts.headers);
    let target = match Target::parse(path) {
        Some(Ok(target)) => target,
        Some(Err(error)) => return error.into_response(),
        None => {
            return OciError::new(Code::NameUnknown, format!("{}: the registry has no such path", parts.uri.path()))
                .into_response();
        }
    };
    if let Err(refused) = oci::entry::check(&app, &caller, &target, method, headers) {
        return refused.into_response();
    }
    let is_get = method == Method::GET || method == Method::HEAD;
    // RFC 9110, 15.5.6: of what is refused for what it is, too, as the deletion of what others name.
    let others: Vec<&str> = target.methods().iter().copied().filter(|known| *known != method.as_str()).collect();
    let answer = match (target, method.as_str()) {
        (Target::Catalog, _) if is_get => oci::catalog::get(&app, &caller, query),
        (Target::Tags(name), _) if is_get => oci::tags::get(&app, &name, query),
        (Target::Referrers(name, digest), _) if is_get => oci::referrers::get(&app, &name, &digest, query).await,
        (Target::Blob(name, digest), _) if is_get => oci::blobs::get(&app, method, headers, &name, &digest).await,
        (Target::Blob(name, digest), "DELETE") => oci::blobs::delete(&app, &name, &digest).await,
        (Target::Uploads(name), "POST") => oci::uploads::post(&app, &caller, &name, query, headers, body).await,
        (Target::Upload(name, id), _) if is_get => oci::uploads::get(&app, &name, id).await,
        (Target::Upload(name, id), "PATCH") => oci::uploads::patch(&app, &caller, &name, id, headers, body).await,
        (Target::Upload(name, id), "PUT") => oci::uploads::put(&app, &caller, (&name, id), query, headers, body).await,
        (Target::Upload(name, id), "DELETE") => oci::uploads::delete(&app, &name, id).await,
        (Target::Manifest(name, reference), _) if is_get => {
            oci::manifests::get(&app, method, headers, &name, &reference).await
        }
        (Target::Manifest(name, reference), "PUT") => {
            oci::manifests::put(app, caller, name, reference, query, headers, body).await
        }
        (Target::Manifest(name, reference), "DELETE") => oci::manifests::delete(app, name, reference, headers).await,
        _ => Err(OciError::new(Code::Unsupported, format!("{method} is not known for this path"))),
    };
    let mut answer = answer.unwrap_or_else(IntoResponse::into_response);
    if answer.status() == StatusCode::METHOD_NOT_ALLOWED
        && let Ok(allowed) = HeaderValue::try_from(others.join(", "))
    {
        answer.headers_mut().insert(header::ALLOW, allowed);
    }
    answer
}

async fn build_id(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, request: Request) -> Response {
    let path = request.uri().path().strip_prefix("/buildid/").unwrap_or_default();
    let scope = Scope::default().readable_by(&caller);
    debuginfod::answer(&app, &scope, request.method(), path, request.headers(), &hops(&request)).await
}

/// What a path below `/s/` asks for: a prefix of repositories, and one of the two APIs.
async fn scoped(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, request: Request) -> Response {
    let path = request.uri().path().strip_prefix("/s/").unwrap_or_default();
    let (method, headers, hops) = (request.method(), request.headers(), hops(&request));
    match scope_of(path).map(|(scope, face, rest)| (scope.readable_by(&caller), face, rest)) {
        Some((scope, Face::Debuginfod, rest)) => debuginfod::answer(&app, &scope, method, rest, headers, &hops).await,
        Some((scope, _, rest)) => {
            symbols::answer(&app, &scope, method, (rest, request.uri().query()), headers, &hops).await
        }
        None => match metadata_scope(path) {
            Some(scope) => {
                let scope = scope.readable_by(&caller);
                debuginfod::metadata::answer(&app, method, request.uri().query(), scope, &hops).await
            }
            None => nothing_here().await,
        },
    }
}

/// The scope of a path behind `/s/` that asks which files there are.
fn metadata_scope(path: &str) -> Option<Scope> {
    let prefix = path.strip_suffix("/metadata").filter(|_| scope_of(path).is_none())?;
    Some(Scope::of(prefix.parse::<RepositoryName>().ok()?.into()))
}

/// The scope, the API and the rest of a path behind `/s/`. The first part that is named as an API ends the prefix: a source
/// path behind it may hold anything.
fn scope_of(path: &str) -> Option<(Scope, Face, &str)> {
    let faces = [("/buildid/", Face::Debuginfod), ("/symbols/", Face::Symbols)];
    let found = faces.iter().filter_map(|(part, face)| Some((path.find(part)?, *part, *face)));
    let (at, part, face) = found.min_by_key(|(at, ..)| *at)?;
    let (prefix, rest) = path.split_at_checked(at)?;
    Some((Scope::of(prefix.parse::<RepositoryName>().ok()?.into()), face, rest.strip_prefix(part)?))
}

async fn symbol_server(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Response {
    let path = request.uri().path().strip_prefix("/symbols/").unwrap_or_default();
    let scope = Scope::default().readable_by(&caller);
    let query = request.uri().query();
    symbols::answer(&app, &scope, request.method(), (path, query), request.headers(), &hops(&request)).await
}

async fn metadata(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>, request: Request) -> Response {
    let scope = Scope::default().readable_by(&caller);
    debuginfod::metadata::answer(&app, request.method(), request.uri().query(), scope, &hops(&request)).await
}

/// The servers that a request came through.
fn hops(request: &Request) -> Hops {
    Hops::of(request.headers(), request.extensions().get::<Peer>().map(|peer| peer.0))
}

async fn unrouted(request: Request) -> Response {
    let path = request.uri().path();
    if !path.starts_with("/api/") {
        return nothing_here().await;
    }
    ApiError::new(StatusCode::NOT_FOUND, "path-unknown", format!("{path}: the API has no such path")).into_response()
}

/// Gives an answer that the routes made by themselves, to a method that a path does not know, the form of its API; and every list of methods the one form.
async fn in_form(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let method = request.method().clone();
    let mut answer = next.run(request).await;
    if answer.status() != StatusCode::METHOD_NOT_ALLOWED {
        return answer;
    }
    let spaced = answer.headers().get(header::ALLOW).and_then(|known| known.to_str().ok()).map(|known| {
        known.split(',').map(str::trim).filter(|method| !method.is_empty()).collect::<Vec<_>>().join(", ")
    });
    if let Some(known) = spaced.and_then(|known| HeaderValue::try_from(known).ok()) {
        answer.headers_mut().insert(header::ALLOW, known);
    }
    if is_api {
        let message = format!("{method} is not known for this path");
        let told = ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method-unknown", message).into_response();
        let (head, body) = told.into_parts();
        answer.headers_mut().remove(header::CONTENT_LENGTH);
        answer.headers_mut().extend(head.headers);
        *answer.body_mut() = body;
    }
    answer
}

async fn nothing_here() -> Response {
    let content_type = HeaderValue::from_static("text/plain; charset=utf-8");
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, content_type)], "not found\n").into_response()
}

/// The API that a path belongs to.
pub(crate) fn face_of(path: &str) -> Face {
    let scoped = path.strip_prefix("/s/").and_then(|path| {
        let face = scope_of(path).map(|(_, face, _)| face);
        face.or_else(|| metadata_scope(path).map(|_| Face::Debuginfod))
    });
    match () {
        () if scoped.is_some() => scoped.unwrap_or(Face::Other),
        () if path.starts_with("/buildid/") || path == "/metadata" => Face::Debuginfod,
        () if path == "/v2" || path.starts_with("/v2/") => Face::Oci,
        () if path.starts_with("/symbols/") => Face::Symbols,
        () if path.starts_with("/symbolicate/") => Face::Symbolicate,
        () if path.starts_with("/api/") => Face::Api,
        () => Face::Other,
    }
}

/// A path without a prefix of repositories before it.
pub(crate) fn unscoped(path: &str) -> &str {
    if path.strip_prefix("/s/").and_then(metadata_scope).is_some() {
        return "/metadata";
    }
    let place = path.strip_prefix("/s/").and_then(|rest| rest.find("/buildid/"));
    place.and_then(|place| path.get(place.saturating_add("/s/".len())..)).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_the_first_name_of_an_api() {
        let below = |prefix: &str| Scope::of(prefix.parse().unwrap());
        for (path, expected) in [
            ("a/buildid/ab/debuginfo", Some((below("a"), Face::Debuginfod, "ab/debuginfo"))),
            ("a/b/symbols/x/y/x", Some((below("a/b"), Face::Symbols, "x/y/x"))),
            ("a/buildid/ab/source//x/symbols/y", Some((below("a"), Face::Debuginfod, "ab/source//x/symbols/y"))),
            ("buildid/ab/debuginfo", None),
            ("/buildid/ab/debuginfo", None),
            ("A/buildid/ab/debuginfo", None),
            ("../buildid/ab/debuginfo", None),
            ("a%2fb/buildid/ab/debuginfo", None),
            ("a", None),
        ] {
            assert_eq!(scope_of(path), expected, "{path}");
        }
    }

    #[test]
    fn what_there_is_below_a_prefix_can_be_asked_and_a_file_of_that_name_is_a_file() {
        for (path, prefix) in [
            ("a/metadata", Some("a")),
            ("a/b/metadata", Some("a/b")),
            ("metadata", None),
            ("/metadata", None),
            ("a//metadata", None),
            ("a/metadata/b", None),
            ("a/buildid/ab/source/metadata", None),
            ("a/symbols/x/y/metadata", None),
        ] {
            assert_eq!(metadata_scope(path), prefix.map(|prefix| Scope::of(prefix.parse().unwrap())), "{path}");
            let whole = format!("/s/{path}");
            assert_eq!(unscoped(&whole) == "/metadata", prefix.is_some(), "{path}");
            assert_eq!(face_of(&whole) == Face::Debuginfod, prefix.is_some() || path.contains("buildid"), "{path}");
        }
    }
}
