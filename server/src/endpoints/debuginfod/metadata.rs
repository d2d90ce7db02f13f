//! `/metadata?key=file|glob|buildid&value=…`: which files there are, by the names that bundles record.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use axum::Json;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use symseal_module::DebugId;

use super::glob;
use crate::app::App;
use crate::debug_files::{FileKind, Key, Scope};
use crate::endpoints::{plain, refused_method};
use crate::http::{break_connection, query_values};
use crate::ingest::is_bundle;
use crate::trees::{NamedFile, Trees};

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

/// A file that answers: build-id, kind, name, and the archive that it is in.
type Found = (String, &'static str, String, Option<String>);

/// GET or HEAD.
pub(crate) async fn answer(app: &std::sync::Arc<App>, method: &Method, query: Option<&str>, scope: Scope) -> Response {
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
    // Other servers are not asked, and may have more.
    let is_all = app.upstreams.get().is_none() || !scope.reaches_upstreams();
    let shared = app.clone();
    match app.pool.run(move || search(&shared, &scope, &wanted)).await {
        Ok((found, complete)) => {
            let results: Vec<_> = found
                .into_iter()
                .map(|(id, kind, name, archive)| {
                    let mut told = json!({ "type": kind, "buildid": id, "file": name });
                    if let (Some(archive), Some(fields)) = (archive, told.as_object_mut()) {
                        fields.insert("archive".to_owned(), archive.into());
                    }
                    told
                })
                .collect();
            Json(json!({ "results": results, "complete": complete && is_all })).into_response()
        }
        Err(error) => break_connection(&error.to_string()),
    }
}

fn search(app: &App, scope: &Scope, wanted: &Wanted) -> (BTreeSet<Found>, bool) {
    let mut found = BTreeSet::new();
    let kinds = [(FileKind::Executable, "executable"), (FileKind::Debuginfo, "debuginfo")];
    if let Wanted::BuildId(id) = wanted {
        let id = id.as_ref().filter(|id| id.build_id().is_some());
        let files = kinds.into_iter().filter_map(|(kind, word)| {
            let key = Key::Id(id?.clone());
            let (name, archive) = match app.debug_files.find_in(scope, &key, kind) {
                Some(candidate) => (candidate.name, None),
                None => {
                    let place = trees(app, scope)?.find(&key, kind).into_iter().next()?;
                    (place.shown(), place.archive())
                }
            };
            Some((id?.to_string(), word, name, archive))
        });
        return (files.collect(), true);
    }
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
            if !app.debug_files.is_shown(&digest) {
                continue;
            }
            let Ok(release) = app.releases.get(&app.blobs, &digest) else {
                complete = false;
                continue;
            };
            for module in &release.modules {
                let matches = match wanted {
                    Wanted::File(name) => **name == *module.name,
                    Wanted::Glob(pattern) => glob::matches(pattern, &module.name),
                    Wanted::BuildId(_) => false,
                };
                if !matches {
                    continue;
                }
                for (kind, word) in kinds {
                    let has = if kind == FileKind::Executable { module.executable } else { module.debuginfo };
                    // What bundles record and the index does not offer is not to be seen.
                    if has && app.debug_files.find_in(scope, &Key::Id(module.id.clone()), kind).is_some() {
                        found.insert((module.id.to_string(), word, module.name.to_string(), None));
                    }
                }
            }
        }
    }
    if let Some(trees) = trees(app, scope) {
        let is_wanted = |path: &str| match wanted {
            Wanted::File(name) => name == path,
            Wanted::Glob(pattern) => glob::matches(pattern, path),
            Wanted::BuildId(_) => false,
        };
        match trees.named(&is_wanted, RESULT_LIMIT, deadline) {
            Some(files) => found.extend(files.into_iter().map(|NamedFile { id, kind, path, archive }| {
                let word = if kind == FileKind::Executable { "executable" } else { "debuginfo" };
                (id.to_string(), word, path, archive)
            })),
            None => complete = false,
        }
    }
    (found, complete)
}

/// Trees belong to no repository: they are for those who may read all of them.
fn trees<'a>(app: &'a App, scope: &Scope) -> Option<&'a Trees> {
    app.trees.get().filter(|_| scope.is_everything()).map(|trees| &**trees)
}
