//! `GET /api/v1/search?q=TEXT` and `GET /api/v1/wanted`: what is here, and what is asked for and is not.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::ApiError;
use crate::access::{Caller, Grant};
use crate::app::App;
use crate::debug_files::{FileKind, Pattern};
use crate::http::form_values;
use crate::search::{FoundRelease, search};

/// Modules whose id begins with the text or whose name holds it, and releases whose name and version hold it.
pub(crate) async fn find(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let pattern = form_values(query.as_deref(), "q").pop().and_then(|text| Pattern::new(&text)).ok_or_else(|| {
        let message = "expected ?q= with an id, a name, or a part of one";
        ApiError::new(StatusCode::BAD_REQUEST, "search-empty", message)
    })?;
    let shared = Arc::clone(&app);
    let found = app.looking.run(move || search(&shared, &caller, &pattern)).await?;
    let modules = found.modules.iter().map(|module| {
        json!({
            "id": module.id,
            "name": module.name,
            "debug_info": module.debug_info,
            "files": module.kinds.iter().map(|kind| file_kind(*kind)).collect::<Vec<_>>(),
            "bundle": module.bundle.to_string(),
        })
    });
    let releases = found.releases.iter().map(release);
    let body = json!({
        "modules": modules.collect::<Vec<_>>(),
        "releases": releases.collect::<Vec<_>>(),
        "more": found.is_cut,
    });
    Ok(app.memory.json(&body)?)
}

/// The ids that are missing. They tell what people debug, so where tokens are asked for not everybody reads them.
pub(crate) async fn wanted(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    if !app.access.may_watch(&caller) {
        return Err(ApiError::forbidden(&Grant::ReadAudit));
    }
    let wanted = app.wanted.list(|key| app.is_missing(key)).into_iter().map(|wanted| {
        json!({
            "id": wanted.key.to_string(),
            "name": wanted.name,
            "asked": wanted.asked,
            "last": wanted.last.to_string(),
        })
    });
    Ok(app.memory.json(&json!({ "wanted": wanted.collect::<Vec<_>>() }))?)
}

fn release(release: &FoundRelease) -> Value {
    json!({
        "bundle": release.digest.to_string(),
        "name": release.name,
        "version": release.version,
        "loose": release.is_loose,
        "verification": release.verdict.to_json(),
        "shown": release.is_shown,
        "repositories": release.repositories.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
    })
}

/// What a client asks for it by.
pub(crate) fn file_kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Debuginfo => "debuginfo",
        FileKind::Executable => "executable",
        FileKind::SymbolTable => "symbol-table",
        FileKind::SymbolFile => "symbol-file",
    }
}
