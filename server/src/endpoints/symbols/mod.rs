//! Symbol server paths below `/symbols/`: those of Microsoft's symsrv (WinDbg, Visual Studio), of SSQP (dotnet-symbol) for ELF and
//! Mach-O, and the UUID folders that lldb and Symbolicator know.
//!
//! Breakpad's symbol files are made from tables, under Tecken's paths.
//!
//! Upper and lower case mean the same. What a symsrv client tries beside a file (`file.ptr`, `index2.txt`, a compressed `app.pd_`) is
//! answered with 404 at once, and it goes on to the file itself.

mod breakpad;
mod target;
mod upstream;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use breakpad::Wanted as WantedSymbolFile;
pub(crate) use target::Target;

use std::sync::Arc;

use axum::http::{HeaderMap, Method};
use axum::response::Response;

use crate::app::App;
use crate::debug_files::{Candidate, Scope};
use crate::endpoints::{first_there, not_found, refused_method, tree_file, whole_file};
use crate::trees::Place;
use crate::upstream::Hops;

/// Some symbol servers show by this file that they are there.
const PING: &str = "pingme.txt";

/// Of a file that is not here.
const NOT_HERE: &str = "no bundle of this server has a file with this name and id";

/// Answers a request below `/symbols/` out of the repositories that `scope` covers, then, where that is all of them, of other servers;
/// `path` is what follows, as it came.
pub(crate) async fn answer(
    app: &Arc<App>,
    scope: &Scope,
    method: &Method,
    (path, query): (&str, Option<&str>),
    request: &HeaderMap,
    hops: &Hops,
) -> Response {
    if let Some(refused) = refused_method(method) {
        return refused;
    }
    if path.eq_ignore_ascii_case(PING) {
        return Response::default();
    }
    if let Some(answer) = breakpad::answer(app, scope, (method, request), (path, query), hops).await {
        return answer;
    }
    let Some(target) = Target::parse(path) else {
        return not_found("this is no path of a symbol server: expected NAME/ID/NAME, or a UUID in folders");
    };
    let answer = match find(app, scope, &target) {
        Some(best) => match first_there(app, best, |at_most| find_several(app, scope, &target, at_most)).await {
            Ok((candidate, source)) => whole_file(app, (method, request), (&candidate.digest, source), []).await,
            Err(broken) => broken,
        },
        None => elsewhere(app, scope, (method, request), (path, &target), hops).await,
    };
    app.asked_for(&target.key, target.name.as_deref(), answer.status());
    answer
}

/// Out of trees, then of other servers.
async fn elsewhere(
    app: &App,
    scope: &Scope,
    (method, request): (&Method, &HeaderMap),
    (path, target): (&str, &Target),
    hops: &Hops,
) -> Response {
    let is_wanted = |place: &Place| target.is_called(&place.file);
    for key in target.key.spellings() {
        if let Some(answer) = tree_file(app, scope, (method, request), &key, target.kind, is_wanted).await {
            return answer;
        }
    }
    if !scope.reaches_upstreams() {
        return not_found(NOT_HERE);
    }
    let answer = upstream::answer(app, method, path, request, target, hops).await;
    answer.unwrap_or_else(|| not_found(NOT_HERE))
}

fn find(app: &App, scope: &Scope, target: &Target) -> Option<Candidate> {
    let find = |key| app.debug_files.find_called(scope, &key, target.kind, |file| target.is_called(file));
    target.key.spellings().find_map(find)
}

fn find_several(app: &App, scope: &Scope, target: &Target, at_most: usize) -> Vec<Candidate> {
    let find =
        |key| app.debug_files.find_several_called(scope, &key, target.kind, at_most, |file| target.is_called(file));
    target.key.spellings().flat_map(find).collect()
}
