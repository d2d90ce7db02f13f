//! `GET /api/v1/bundles/<digest>`: what the server knows of a bundle; `GET /api/v1/bundles?debug_id=ID`: which bundles have a module.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use symseal_module::DebugId;

use super::ApiError;
use crate::access::Caller;
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::debug_files::{Bundle, Key, Scope};
use crate::http::form_values;
use crate::publish::seal_of;
use crate::repositories::RepositoryName;
use crate::seals::{Verdict, has_seal};
use crate::store::{BundleRow, SealRow};
use crate::takedown::IsTakenDown;

/// Name, version, seal and the symbol index.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(digest): Path<String>,
) -> Result<Response, ApiError> {
    let unknown = || {
        ApiError::new(
            StatusCode::NOT_FOUND,
            "bundle-unknown",
            format!("{digest}: no such bundle was pushed to this server"),
        )
    };
    if let Some(gone) = gone(&app, &caller, &digest) {
        return Err(ApiError::new(StatusCode::GONE, "taken-down", gone));
    }
    let mut bundle = app.store.bundle(&digest).await?.ok_or_else(unknown)?;
    let content_type = HeaderValue::from_static("application/json");
    let known: Option<Known> = digest.parse().ok().and_then(|digest| {
        let known = app.debug_files.bundle(&digest)?;
        let is_shown = app.debug_files.is_shown_to(&digest, |name| caller.may_read(name));
        let verdict = known.standing.among(|name| caller.may_read(name));
        Some(Known { is_shown, verdict, bundle: known })
    });
    let repositories = known.iter().flat_map(|known| known.bundle.standing.repositories());
    let readable: Vec<&RepositoryName> = repositories.filter(|name| caller.may_read(name)).collect();
    if readable.is_empty() && !caller.may_read_all() {
        return Err(unknown());
    }
    // It is a part of the answer.
    let index = known.as_ref().map(|known| BlobDigest::from_sha256(known.bundle.entry.symbol_index));
    if let Some(gone) = index.and_then(|index| app.taken_down.get(&index)) {
        return Err(ApiError::new(StatusCode::GONE, "taken-down", gone));
    }
    if !caller.may_read_all() {
        // What is recorded may be the seal of another repository.
        bundle.seal = seal_among(&app, &digest, &readable).await?;
    }
    let text = body(bundle, known.as_ref(), &readable).into_bytes();
    Ok(([(header::CONTENT_TYPE, content_type)], app.memory.answer(text)?).into_response())
}

/// Why there is no bundle any more, for those who might read a repository that had it.
pub(crate) fn gone(app: &App, caller: &Caller, digest: &str) -> Option<IsTakenDown> {
    crate::takedown::gone(app, caller, &digest.parse().ok()?)
}

/// Bundles that are told of at once.
const TOLD: usize = 64;

/// The bundles that have a module: those that are sealed first, then those that have a seal, then the better ones; of these the caller's repositories, likewise.
/// `more` says that there are others, so that nobody takes a list that was cut for all. Who asks verifies them.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let value = |name| form_values(query.as_deref(), name).into_iter().next();
    let key = match (value("debug_id"), value("code_file"), value("code_id")) {
        (Some(id), None, None) => id.parse::<DebugId>().ok().map(Key::Id),
        (None, Some(name), Some(code_id)) if !name.contains('/') => Some(Key::image(&name, &code_id)),
        _ => None,
    };
    let malformed = "expected ?debug_id=ID, a build-id, GUID-age or uuid:UUID, or ?code_file=NAME&code_id=ID";
    let key = key.ok_or_else(|| ApiError::new(StatusCode::BAD_REQUEST, "query-invalid", malformed))?;
    let scope = Scope::default().readable_by(&caller);
    let found = app.debug_files.bundles_of(&scope, &key);
    let mut listed: Vec<Listed> = found.into_iter().filter_map(|digest| Listed::of(&app, &caller, digest)).collect();
    // The order is stable, so that of equals the better one stays before the other.
    listed.sort_by_key(Listed::place);
    let more = listed.len() > TOLD;
    let told: Vec<Value> = listed.iter().take(TOLD).map(Listed::to_json).collect();
    Ok(app.memory.json(&json!({ "bundles": told, "more": more }))?)
}

/// A bundle of a list, as far as the caller may know it.
struct Listed {
    digest: BlobDigest,
    bundle: Bundle,
    /// Those where it is sealed first, then those that have a seal.
    repositories: Vec<RepositoryName>,
    has_seal: bool,
    verdict: Verdict,
}

impl Listed {
    /// `None` where it is in no repository that the caller may read.
    fn of(app: &App, caller: &Caller, digest: BlobDigest) -> Option<Self> {
        let bundle = app.debug_files.bundle(&digest)?;
        let has_seal =
            |name: &RepositoryName| app.repositories.get(name).is_some_and(|repository| has_seal(&repository, &digest));
        let known = bundle.standing.verdicts().filter(|(name, _)| caller.may_read(name));
        let mut readable: Vec<_> =
            known.map(|(name, verdict)| (verdict.place(), !has_seal(name), name.clone())).collect();
        readable.sort();
        let has_seal = readable.iter().any(|(_, has_none, _)| !has_none);
        let repositories: Vec<RepositoryName> = readable.into_iter().map(|(.., name)| name).collect();
        let verdict = bundle.standing.among(|name| caller.may_read(name));
        (!repositories.is_empty()).then_some(Self { digest, bundle, repositories, has_seal, verdict })
    }

    fn place(&self) -> (u8, bool) {
        (self.verdict.place(), !self.has_seal)
    }

    fn to_json(&self) -> Value {
        json!({
            "sha256": self.digest.to_string(),
            "name": self.bundle.entry.name,
            "version": self.bundle.entry.version,
            "repositories": self.repositories.iter().map(RepositoryName::as_str).collect::<Vec<_>>(),
            "verification": self.verdict.to_json(),
        })
    }
}

/// What the database records of a bundle's seals where these repositories are all that there is.
async fn seal_among(app: &Arc<App>, digest: &str, readable: &[&RepositoryName]) -> Result<Option<SealRow>, ApiError> {
    let Ok(wanted) = digest.parse::<BlobDigest>() else { return Ok(None) };
    let (shared, among) = (Arc::clone(app), readable.iter().map(|name| (*name).clone()).collect());
    Ok(app.pool.run(move || seal_of(&shared, &among, None, &wanted)).await??)
}

/// What is known beside the database, as far as the caller may know it.
struct Known {
    bundle: Bundle,
    verdict: Verdict,
    is_shown: bool,
}

fn body(bundle: BundleRow, known: Option<&Known>, repositories: &[&RepositoryName]) -> String {
    let seal = bundle.seal.map(|seal| {
        json!({
            "signer": seal.signer,
            "rekor_tile_ref": seal.rekor_tile_ref,
            "dsse_ref": seal.dsse_ref,
            "digest": seal.seal_digest,
        })
    });
    let head = json!({
        "sha256": bundle.sha256,
        "os": bundle.os,
        "name": bundle.name,
        "version": bundle.version,
        "seal": seal,
        "verification": known.map(|known| known.verdict.to_json()),
        "shown": known.is_some_and(|known| known.is_shown),
        "repositories": repositories.iter().map(|name| name.as_str()).collect::<Vec<_>>(),
    });
    // The index is JSON already, and may be large: it is put in as it is.
    let mut text = head.to_string();
    text.pop();
    text.push_str(",\"index\":");
    text.push_str(&bundle.index_json);
    text.push('}');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_json_with_the_index_inside() {
        let bundle = BundleRow {
            sha256: "sha256:1".into(),
            os: "linux".into(),
            name: "app".into(),
            version: "1".into(),
            bundle_blob: Vec::new(),
            index_json: r#"{"linux":{}}"#.into(),
            seal: None,
        };
        let value: serde_json::Value = serde_json::from_str(&body(bundle, None, &[])).unwrap();
        assert_eq!(value["name"], "app");
        assert!(value["seal"].is_null());
        assert!(value["index"]["linux"].is_object());
    }
}
