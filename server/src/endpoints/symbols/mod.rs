//! Symbol server paths below `/symbols/`: those of Microsoft's symsrv (WinDbg, Visual Studio), of SSQP (dotnet-symbol) for ELF and
//! Mach-O, and the UUID folders that lldb and Symbolicator know.
//!
//! Upper and lower case mean the same. What a symsrv client tries beside a file (`file.ptr`, `index2.txt`, a compressed `app.pd_`) is
//! answered with 404 at once, and it goes on to the file itself.

mod target;

pub(crate) use target::Target;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use symseal_bundle::title;
use symseal_module::DebugId;

use crate::app::App;
use crate::debug_files::{Candidate, Key};
use crate::endpoints::whole_file;

/// How long a proxy may keep "not found", in seconds: a push may come any time.
const NOT_FOUND_CACHE: &str = "public, max-age=30";

/// Some symbol servers show by this file that they are there.
const PING: &str = "pingme.txt";

/// Bytes to which SSQP fills up a build-id with zeros.
const PADDED_BUILD_ID: usize = 20;

/// Answers a request below `/symbols/`; `path` is what follows, as it came.
pub(crate) async fn answer(app: &App, method: &Method, path: &str, request: &HeaderMap) -> Response {
    if *method != Method::GET && *method != Method::HEAD {
        let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are known here\n");
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    if path.eq_ignore_ascii_case(PING) {
        return text(StatusCode::OK, "");
    }
    let Some(target) = Target::parse(path) else {
        return not_found("this is no path of a symbol server: expected NAME/ID/NAME, or a UUID in folders\n");
    };
    match find(app, &target) {
        Some(candidate) => whole_file(app, method, request, &candidate.digest, []).await,
        None => not_found("no bundle of this server has a file with this name and id\n"),
    }
}

fn find(app: &App, target: &Target) -> Option<Candidate> {
    let find = |key: &Key| app.debug_files.find(key, target.kind);
    let found = find(&target.key).or_else(|| match &target.key {
        Key::Id(DebugId::BuildId(id)) if id.as_bytes().len() == PADDED_BUILD_ID => without_padding(id.as_bytes(), find),
        _ => None,
    });
    // A GUID and age are also those of a PE file with its own debug information, which is no PDB.
    found.filter(|candidate| target.name.as_ref().is_none_or(|name| same_name(name, &candidate.file)))
}

/// Ids shorter than SSQP's, the longest first.
fn without_padding(mut id: &[u8], find: impl Fn(&Key) -> Option<Candidate>) -> Option<Candidate> {
    while let [rest @ .., 0] = id {
        id = rest;
        if let Some(found) = DebugId::from_build_id(id).ok().and_then(|id| find(&Key::Id(id))) {
            return Some(found);
        }
    }
    None
}

fn same_name(asked: &str, file: &str) -> bool {
    title::component(asked).to_lowercase() == file.to_lowercase()
}

fn not_found(reason: &str) -> Response {
    let mut response = text(StatusCode::NOT_FOUND, reason);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static(NOT_FOUND_CACHE));
    response
}

fn text(status: StatusCode, text: &str) -> Response {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
