//! The paths of the gateway, which are those of a server: `/buildid/…`, `/symbols/…`; and its status page.
//!
//! A client is told "there is nothing" (404, with the reason in `x-symseal-refused` and in the body) only where that is known: elfutils' clients
//! keep every error for ten minutes. Where it cannot be told they get a connection that ends before an answer, others 502.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{any, get};
use symseal_module::DebugId;

use super::catalogue::Offer;
use super::fetch::{Brought, Lost};
use super::home::Trouble;
use super::learn::{Covered, homes};
use super::refusals::{Code, Refusal};
use super::{Gate, status};
use crate::blobs::OpenBlob;
use crate::debug_files::{FileKind, Key};
use crate::endpoints::debuginfod::{FILE, FileTarget, SHA256, SIZE, Target as BuildIdTarget, too_large};
use crate::endpoints::symbols::Target as SymbolTarget;
use crate::endpoints::{plain, refused_method, unavailable};
use crate::file_cache::CachedFile;
use crate::http::{ByteRange, FileAnswer, ONE_HOST, file_response, is_called_once, is_this_machine};
use crate::seals::{SealedBy, Verdict};
use crate::sections::locate;
use crate::sources::canonical;
use crate::upstream::Flight;

/// Why there is nothing, as a stable code.
const REFUSED: HeaderName = HeaderName::from_static("x-symseal-refused");
/// The bundle that an answer rests on.
const BUNDLE: HeaderName = HeaderName::from_static("x-symseal-bundle");
/// The envelope of its seal.
const SEAL: HeaderName = HeaderName::from_static("x-symseal-seal");
/// What is right now may be revoked in a moment.
const CACHE: HeaderValue = HeaderValue::from_static("no-cache");
/// Sealed files for one id that are tried.
const OFFERS: usize = 4;
/// Bytes of a path that other symbol servers are asked for.
const PATH_LIMIT: usize = 1024;
/// Some symbol servers show by this file that they are there.
const PING: &str = "pingme.txt";

/// A request.
struct Asked<'r> {
    method: &'r Method,
    path: &'r str,
    headers: &'r HeaderMap,
}

/// Every path of the gateway.
pub(super) fn routes(gate: Arc<Gate>) -> Router {
    Router::new()
        .route("/", get(status::page))
        .route("/status.json", get(status::json))
        .route("/buildid/{*rest}", any(build_id))
        .route("/symbols/{*rest}", any(symbols))
        .fallback(async || plain(StatusCode::NOT_FOUND, "this is a gateway: /buildid/, /symbols/ and / are known here"))
        .layer(from_fn(for_this_machine))
        .with_state(gate)
}

/// Lets only those in who call the gateway by a name of this machine: a page in a browser could else reach it under a name of its own
/// that leads here.
async fn for_this_machine(request: Request, next: Next) -> Response {
    if !is_called_once(request.version(), request.headers()) {
        return plain(StatusCode::BAD_REQUEST, ONE_HOST);
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if host.is_none_or(is_this_machine) {
        return next.run(request).await;
    }
    plain(StatusCode::MISDIRECTED_REQUEST, "this gateway is called localhost, or by its loopback address")
}

async fn build_id(State(gate): State<Arc<Gate>>, request: Request) -> Response {
    let asked = Asked { method: request.method(), path: request.uri().path(), headers: request.headers() };
    if let Some(refused) = refused_method(asked.method) {
        return refused;
    }
    let Some(BuildIdTarget { id, file }) =
        BuildIdTarget::parse(asked.path.strip_prefix("/buildid/").unwrap_or_default())
    else {
        return plain(StatusCode::NOT_FOUND, "not found");
    };
    match file {
        FileTarget::Whole(kind) => gate.whole(&asked, (&[id], kind), |_| true, None).await,
        FileTarget::Section(name) => gate.section(&asked, &id, &name).await,
        FileTarget::Source(path) => gate.source_file(&asked, &id, &path).await,
    }
}

async fn symbols(State(gate): State<Arc<Gate>>, request: Request) -> Response {
    let asked = Asked { method: request.method(), path: request.uri().path(), headers: request.headers() };
    if let Some(refused) = refused_method(asked.method) {
        return refused;
    }
    let path = asked.path.strip_prefix("/symbols/").unwrap_or_default();
    if path.eq_ignore_ascii_case(PING) {
        return Response::default();
    }
    let Some(target) = SymbolTarget::parse(path) else {
        return plain(
            StatusCode::NOT_FOUND,
            "this is no path of a symbol server: expected NAME/ID/NAME, or a UUID in folders",
        );
    };
    let keys: Vec<Key> = target.key.spellings().collect();
    gate.whole(&asked, (&keys, target.kind), |name| target.is_called(name), plain_path(path)).await
}

/// A path of a symbol server that may be put behind another server's URL: dots would make another path of it, a colon or a backslash perhaps another
/// server.
fn plain_path(path: &str) -> Option<&str> {
    let is_plain = |part: &str| {
        let is_name = !part.is_empty() && part.bytes().any(|byte| byte != b'.');
        is_name && !part.contains([':', '\\']) && !part.contains("%2") && !part.to_ascii_lowercase().contains("%5c")
    };
    (path.len() <= PATH_LIMIT && path.split('/').count() == 3 && path.split('/').all(is_plain)).then_some(path)
}

impl Gate {
    async fn whole(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        (keys, kind): (&[Key], FileKind),
        is_called: impl Fn(&str) -> bool + Send + Sync,
        symbol_path: Option<&str>,
    ) -> Response {
        let offers = match self.files(keys, kind, &is_called).await {
            Covered::Sealed(offers) => offers,
            Covered::Refused(refusals) => return self.refuse(asked, refusals),
            Covered::Unknown(why, refusals) => return self.cannot_tell(asked, (refusals, &why)),
        };
        let homes = homes(&offers);
        let (mut refused, mut down) = match self.first_of(asked, &offers, kind, symbol_path).await {
            Ok(response) => return response,
            Err(unanswered) => unanswered,
        };
        // Those that were known lost it, or have other bytes: one that was not asked yet may have it.
        if down.is_none() && refused.iter().all(|refusal| matches!(refusal.code, Code::NotThere | Code::WrongBytes)) {
            let (offers, unasked) = self.files_elsewhere(keys, kind, &is_called, &homes).await;
            down = unasked;
            match self.first_of(asked, &offers, kind, symbol_path).await {
                Ok(response) => {
                    self.note(asked, refused);
                    return response;
                }
                Err((more, why)) => {
                    refused.extend(more);
                    down = why.or(down);
                }
            }
        }
        self.no_answer(asked, refused, down)
    }

    /// The first of the files that comes; else what was refused, and why it cannot be told.
    async fn first_of(
        self: &Arc<Self>,
        asked: &Asked<'_>,
        offers: &[(Offer, SealedBy)],
        kind: FileKind,
        symbol_path: Option<&str>,
    ) -> Result<Response, (Vec<Refusal>, Option<String>)> {
        let (mut refused, mut down) = (Vec::new(), None);
        for (offer, by) in offers.iter().take(OFFERS) {
            if let Some(refused) = too_large(asked.headers, offer.file.size) {
                return Ok(refused);
            }
            if *asked.method == Method::HEAD {
                return Ok(head(offer, by));
            }
            let path = server_path(offer, kind).or_else(|| symbol_path.map(str::to_owned));
            match self.bring(offer, (asked.path, path.as_deref())).await {
                Ok(Brought::Whole(found)) => return Ok(self.cached_answer(asked, (offer, by), found)),
                Ok(Brought::Flying(flight)) => return Ok(self.flying_answer((offer, by), &flight)),
                Err(Lost::Refused(refusal)) => refused.push(refusal),
                Err(Lost::Down(why)) => down = Some(why),
            }
        }
        Err((refused, down))
    }

    /// A section, cut out of the whole file here: of a section alone nothing is signed.
    async fn section(self: &Arc<Self>, asked: &Asked<'_>, id: &Key, name: &str) -> Response {
        let (mut refused, mut down) = (Vec::new(), None);
        for kind in [FileKind::Debuginfo, FileKind::Executable] {
            let offers = match self.files(std::slice::from_ref(id), kind, |_| true).await {
                Covered::Sealed(offers) => offers,
                Covered::Refused(refusals) => {
                    refused.extend(refusals);
                    continue;
                }
                Covered::Unknown(why, refusals) => {
                    refused.extend(refusals);
                    down = Some(why);
                    continue;
                }
            };
            for (offer, by) in offers.iter().take(OFFERS) {
                let path = server_path(offer, kind);
                let found = match self.bring_whole(offer, (asked.path, path.as_deref())).await {
                    Ok(found) => found,
                    Err(Lost::Refused(refusal)) => {
                        refused.push(refusal);
                        continue;
                    }
                    Err(Lost::Down(why)) => {
                        down = Some(why);
                        continue;
                    }
                };
                let wanted = name.to_owned();
                let place = move || -> io::Result<(CachedFile, Option<ByteRange>)> {
                    let place = locate(&found.blob.file, &wanted)?;
                    Ok((found, place))
                };
                match self.pool.run(place).await {
                    Ok(Ok((found, Some(place)))) => {
                        if let Some(refused) = too_large(asked.headers, place.length) {
                            return refused;
                        }
                        self.note(asked, refused);
                        let etag = format!("\"{}-{}-{}\"", offer.file.sha256, place.start, place.length);
                        let mut headers = headers(offer, by);
                        // That of the whole file.
                        headers.retain(|(name, _)| *name != SHA256);
                        headers.push((SIZE, HeaderValue::from(place.length)));
                        return self.part(asked, found.blob, place, etag, headers);
                    }
                    Ok(Ok((_, None))) => {
                        let reason = format!("the sealed file has no section {name:?}");
                        refused.push(Refusal::of(offer, Code::NoSuchSection, reason));
                    }
                    Ok(Err(error)) => down = Some(error.to_string()),
                    Err(error) => down = Some(error.to_string()),
                }
            }
        }
        self.no_answer(asked, refused, down)
    }

    async fn source_file(self: &Arc<Self>, asked: &Asked<'_>, id: &Key, path: &str) -> Response {
        let bundles = match self.bundles(id).await {
            Covered::Sealed(bundles) => bundles,
            Covered::Refused(refusals) => return self.refuse(asked, refusals),
            Covered::Unknown(why, refusals) => return self.cannot_tell(asked, (refusals, &why)),
        };
        let (mut refused, mut down) = (Vec::new(), None);
        for (bundle, by) in bundles.iter().take(OFFERS) {
            let (wrong, end) = self.source(bundle, path).await;
            refused.extend(wrong.into_iter().map(|(home, mismatch)| Refusal::wrong_source(bundle, &home, mismatch)));
            match end {
                Ok(Some(bytes)) => {
                    // It may have taken long.
                    match self.verdict_now(bundle).await {
                        Ok(Verdict::Sealed(_)) => {}
                        Ok(verdict) => {
                            refused.extend(Refusal::of_verdict(bundle, &verdict));
                            continue;
                        }
                        Err(why) => {
                            down = Some(why);
                            continue;
                        }
                    }
                    self.note(asked, refused);
                    self.served.fetch_add(1, Ordering::Relaxed);
                    let mut response = Response::new(Body::empty());
                    let headers = response.headers_mut();
                    headers.extend(proof(&bundle.digest.to_string(), by));
                    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
                    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
                    headers.insert(SIZE, HeaderValue::from(bytes.len()));
                    headers.extend(HeaderValue::try_from(canonical(path)).ok().map(|path| (FILE, path)));
                    if *asked.method != Method::HEAD {
                        *response.body_mut() = Body::from(bytes);
                    }
                    return response;
                }
                Ok(None) => {
                    let reason = format!("the sealed bundle {} has no source of this path", bundle.digest);
                    refused.push(Refusal::new(Code::NoSuchSource, reason));
                }
                Err(Trouble::Down(why)) => down = Some(why),
                Err(Trouble::Absent(why)) => refused.push(Refusal::new(Code::NoSuchSource, why)),
                // Told with the home that it is of.
                Err(Trouble::Wrong(_)) => {}
            }
        }
        self.no_answer(asked, refused, down)
    }

    /// Nobody gave what a trusted seal says: whether that is known, or one of those that could not be asked may have it.
    fn no_answer(&self, asked: &Asked<'_>, refused: Vec<Refusal>, down: Option<String>) -> Response {
        match down {
            Some(why) => self.cannot_tell(asked, (refused, &why)),
            None => self.refuse(asked, refused),
        }
    }

    fn cannot_tell(&self, asked: &Asked<'_>, (refused, why): (Vec<Refusal>, &str)) -> Response {
        self.note(asked, refused);
        unavailable(asked.headers, why)
    }

    fn note(&self, asked: &Asked<'_>, refusals: Vec<Refusal>) {
        refusals.into_iter().for_each(|refusal| self.refusals.note(refusal.asked(asked.path)));
    }

    /// 404 with the reason, which is noted.
    fn refuse(&self, asked: &Asked<'_>, refusals: Vec<Refusal>) -> Response {
        // Wrong bytes are graver than what nobody has.
        let first = refusals.iter().find(|refusal| refusal.code.is_alarming()).or(refusals.first()).cloned();
        self.note(asked, refusals);
        let Some(first) = first else { return plain(StatusCode::NOT_FOUND, "not found") };
        let mut response = plain(StatusCode::NOT_FOUND, &format!("refused ({}): {}", first.code.text(), first.reason));
        response.headers_mut().insert(REFUSED, HeaderValue::from_static(first.code.text()));
        response.headers_mut().insert(header::CACHE_CONTROL, CACHE);
        response
    }

    fn cached_answer(&self, asked: &Asked<'_>, (offer, by): (&Offer, &SealedBy), found: CachedFile) -> Response {
        let mut headers = headers(offer, by);
        headers.push((SIZE, HeaderValue::from(offer.file.size)));
        headers.extend(passed_on(&found.note.headers));
        let window = found.window();
        self.part(asked, found.blob, window, format!("\"{}\"", offer.file.sha256), headers)
    }

    fn part(
        &self,
        asked: &Asked<'_>,
        blob: OpenBlob,
        window: ByteRange,
        etag: String,
        headers: Vec<(HeaderName, HeaderValue)>,
    ) -> Response {
        self.served.fetch_add(1, Ordering::Relaxed);
        file_response(
            &self.pool,
            asked.method,
            asked.headers,
            FileAnswer { source: blob.into(), window: Some(window), etag, headers },
        )
    }

    /// The whole as it comes in, also where a part was asked for, which a server may.
    fn flying_answer(&self, (offer, by): (&Offer, &SealedBy), flight: &Arc<Flight>) -> Response {
        self.served.fetch_add(1, Ordering::Relaxed);
        let mut response = head(offer, by);
        response.headers_mut().extend(passed_on(flight.headers()));
        *response.body_mut() = flight.body(&self.pool);
        response
    }
}

/// How a debuginfod server is asked for a file.
fn server_path(offer: &Offer, kind: FileKind) -> Option<String> {
    let name = match kind {
        FileKind::Debuginfo => "debuginfo",
        FileKind::Executable => "executable",
        FileKind::SymbolTable | FileKind::SymbolFile => return None,
    };
    matches!(offer.id, DebugId::BuildId(_)).then(|| format!("buildid/{}/{name}", offer.id))
}

fn head(offer: &Offer, by: &SealedBy) -> Response {
    let mut response = Response::new(Body::empty());
    response.headers_mut().extend(headers(offer, by));
    response.headers_mut().insert(SIZE, HeaderValue::from(offer.file.size));
    response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(offer.file.size));
    response
}

fn headers(offer: &Offer, by: &SealedBy) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"))];
    headers.extend(proof(&offer.bundle.digest.to_string(), by));
    headers.extend(HeaderValue::try_from(&offer.module).ok().map(|name| (FILE, name)));
    headers.extend(HeaderValue::try_from(offer.file.sha256.hex()).ok().map(|value| (SHA256, value)));
    headers
}

/// What came with a file and goes with it.
fn passed_on(headers: &[(String, String)]) -> impl Iterator<Item = (HeaderName, HeaderValue)> {
    headers.iter().filter_map(|(name, value)| Some((name.parse().ok()?, value.parse().ok()?)))
}

/// What an answer rests on.
fn proof(bundle: &str, by: &SealedBy) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = vec![(header::CACHE_CONTROL, CACHE)];
    headers.extend(HeaderValue::try_from(bundle).ok().map(|bundle| (BUNDLE, bundle)));
    let seal = by.dsse_ref.as_ref().and_then(|seal| HeaderValue::try_from(seal).ok());
    headers.extend(seal.map(|seal| (SEAL, seal)));
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_dots_or_escaped_slashes_goes_to_no_other_server() {
        assert!(plain_path("app.pdb/ABCD1/app.pdb").is_some());
        for path in [
            "../x/y",
            "a/../b",
            "a/./b",
            "a/b",
            "a%2fb/c/d",
            "a%2e%2e/c/d",
            "a//b",
            "/a/b",
            "http:10.0.0.1/mach-uuid-0/http:10.0.0.1",
            "a\\b/c/d",
            "a%5Cb/c/d",
        ] {
            assert!(plain_path(path).is_none(), "{path}");
        }
    }
}
