//! `/metadata?key=file|glob|buildid&value=…`: which files there are, by the names that bundles record.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use serde_json::json;
use symseal_module::DebugId;

use super::glob;
use crate::app::App;
use crate::debug_files::{Candidate, FileKind, Key, Scope};
use crate::endpoints::{plain, refused_method};
use crate::http::{break_connection, percent_encode, query_values};
use crate::ingest::is_bundle;
use crate::trees::{NamedFile, Trees};
use crate::upstream::{Hops, ToldFile};

/// How long bundles are searched, as in elfutils; what was found by then is the answer.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Results in one answer.
const RESULT_LIMIT: usize = 10_000;
/// The longest value, in bytes: the longest path of an operating system.
const VALUE_LIMIT: usize = 4096;

/// What is looked for.
enum Wanted {
    File(String),
    Glob(String),
    BuildId(Option<DebugId>),
}

impl Wanted {
    /// The question as other servers are asked it; of what is no build-id, none.
    fn query(&self) -> Option<String> {
        let (key, value) = match self {
            Self::File(name) => ("file", name.clone()),
            Self::Glob(pattern) => ("glob", pattern.clone()),
            Self::BuildId(id) => ("buildid", id.as_ref().filter(|id| id.build_id().is_some())?.to_string()),
        };
        Some(format!("key={key}&value={}", percent_encode(&value, b"")))
    }
}

/// GET or HEAD.
pub(crate) async fn answer(
    app: &std::sync::Arc<App>,
    method: &Method,
    query: Option<&str>,
    scope: Scope,
    hops: &Hops,
) -> Response {
    if let Some(refused) = refused_method(method) {
        return refused;
    }
    let value = query_values(query, "value").into_iter().next().filter(|value| value.len() <= VALUE_LIMIT);
    let key = query_values(query, "key").into_iter().next();
    let wanted = match (key.as_deref(), value) {
        (Some("file"), Some(value)) => Wanted::File(value),
        (Some("glob"), Some(value)) => Wanted::Glob(value),
        (Some("buildid"), Some(value)) => Wanted::BuildId(value.parse().ok()),
        // The status of elfutils' server, which its client takes for "nothing".
        _ => return plain(StatusCode::BAD_REQUEST, "expected key=file, key=glob or key=buildid, and a value"),
    };
    let query = wanted.query();
    let upstreams = app.upstreams.get().filter(|_| scope.reaches_upstreams());
    let asked = async {
        match (upstreams, query) {
            (Some(upstreams), Some(query)) => upstreams.metadata(&query, hops, TIME_LIMIT).await,
            _ => (Vec::new(), true),
        }
    };
    let searched = async {
        // What other servers acknowledged before this question is part of the answer.
        let caught_up = match tokio::time::timeout(TIME_LIMIT, app.catch_up()).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                tracing::warn!(%error, "what other servers have is not known: the answer says that it is not complete");
                false
            }
            Err(_) => false,
        };
        let shared = app.clone();
        let searched = app.pool.run(move || search(&shared, &scope, &wanted)).await;
        searched.map(|(found, complete)| (found, complete && caught_up))
    };
    let (searched, (told, is_all)) = tokio::join!(searched, asked);
    match searched {
        Ok((mut found, complete)) => {
            found.extend(told);
            let complete = complete && is_all && found.len() <= RESULT_LIMIT;
            let results: Vec<_> = found.into_iter().take(RESULT_LIMIT).collect();
            // Any status would be kept as "there is nothing".
            match app.memory.answer(json!({ "results": results, "complete": complete }).to_string().into_bytes()) {
                Ok(body) => {
                    let mut response = Response::new(body);
                    let json = HeaderValue::from_static("application/json");
                    response.headers_mut().insert(header::CONTENT_TYPE, json);
                    response
                }
                Err(full) => break_connection(&full.to_string()),
            }
        }
        Err(error) => break_connection(&error.to_string()),
    }
}

fn search(app: &App, scope: &Scope, wanted: &Wanted) -> (BTreeSet<ToldFile>, bool) {
    let mut found = BTreeSet::new();
    let kinds = [(FileKind::Executable, "executable"), (FileKind::Debuginfo, "debuginfo")];
    if let Wanted::BuildId(id) = wanted {
        let id = id.as_ref().filter(|id| id.build_id().is_some());
        let files = kinds.into_iter().filter_map(|(kind, word)| {
            let key = Key::Id(id?.clone());
            let (name, archive) = match app.debug_files.find_in(scope, &key, kind) {
                Some(candidate) => (file_name(app, id?, candidate), None),
                None => {
                    let place = trees(app, scope)?.find(&key, kind).into_iter().next()?;
                    (place.shown(), place.archive())
                }
            };
            Some(file(id?, word, name, archive))
        });
        return (files.collect(), true);
    }
    let is_wanted = |path: &str| match wanted {
        Wanted::File(name) => name == path,
        Wanted::Glob(pattern) => glob::matches(pattern, path),
        Wanted::BuildId(_) => false,
    };
    let deadline = Instant::now() + TIME_LIMIT;
    let mut complete = true;
    for (name, repository) in app.repositories.list() {
        if !scope.covers(&name) {
            continue;
        }
        for (digest, _) in repository.manifests().into_iter().filter(|(_, manifest)| is_bundle(manifest)) {
            if Instant::now() > deadline || found.len() >= RESULT_LIMIT {
                return (found, false);
            }
            // Another repository may show what this one hides.
            if !app.debug_files.is_shown_to(&digest, |holder| *holder == name) {
                continue;
            }
            let Ok(release) = app.releases.get(&app.blobs, &digest) else {
                complete = false;
                continue;
            };
            for module in &release.modules {
                for (kind, word) in kinds {
                    let own = match kind {
                        FileKind::Executable => module.executable.then_some(&module.name),
                        _ => module.debuginfo.as_ref(),
                    };
                    // A debug file is found by its program's name too, as bundles may have it alone. What bundles record and the index does not offer is not
                    // to be seen.
                    if let Some(own) = own
                        && (is_wanted(&module.name) || is_wanted(own))
                        && app.debug_files.find_in(scope, &Key::Id(module.id.clone()), kind).is_some()
                    {
                        found.insert(file(&module.id, word, own.to_string(), None));
                    }
                }
            }
        }
    }
    let word = |kind| if kind == FileKind::Executable { "executable" } else { "debuginfo" };
    match app.debug_files.loose_named(scope, &is_wanted, RESULT_LIMIT, deadline) {
        Some(files) => found.extend(files.into_iter().map(|(id, kind, name)| file(&id, word(kind), name, None))),
        None => complete = false,
    }
    if let Some(trees) = trees(app, scope) {
        match trees.named(&is_wanted, RESULT_LIMIT, deadline) {
            Some(files) => found.extend(
                files.into_iter().map(|NamedFile { id, kind, path, archive }| file(&id, word(kind), path, archive)),
            ),
            None => complete = false,
        }
    }
    (found, complete)
}

/// A debug file's own name, as elfutils' server tells it, where the bundle that offers it says so. A loose file is called by its own name anyway.
fn file_name(app: &App, id: &DebugId, candidate: Candidate) -> String {
    if candidate.kind != FileKind::Debuginfo {
        return candidate.name;
    }
    let release = app.releases.get(&app.blobs, &candidate.bundle).ok();
    let module = release.as_ref().and_then(|release| release.modules.iter().find(|module| module.id == *id));
    module.and_then(|module| module.debuginfo.as_deref()).map_or(candidate.name, str::to_owned)
}

fn file(id: &DebugId, kind: &str, name: String, archive: Option<String>) -> ToldFile {
    ToldFile { buildid: id.to_string(), kind: kind.to_owned(), file: name, archive }
}

/// Trees belong to no repository: they are for those who may read all of them.
fn trees<'a>(app: &'a App, scope: &Scope) -> Option<&'a Trees> {
    app.trees.get().filter(|_| scope.is_everything()).map(|trees| &**trees)
}
