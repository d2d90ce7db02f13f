//! `/api/v1/symbols`: files that are uploaded by themselves, without a bundle.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use serde_json::{Value, json};
use symseal_bundle::oci;

use super::ApiError;
use super::body::{Bound, spool};
use crate::access::{Action, Caller, Grant};
use crate::app::App;
use crate::arrival::Changed;
use crate::blobs::{BlobDigest, Spool};
use crate::debug_files::{Candidate, FileKind, Key};
use crate::http::{content_coding, form_values};
use crate::ingest::{RefusedLoose, check_loose, loose_manifest};
use crate::publish::{PublishError, Withdrawn, publish, withdraw};
use crate::quotas::Room;
use crate::repositories::{Manifest, PutManifest, Reference, Removal, RepositoryName};
use crate::shared::made_good;

/// The largest file that is taken, in bytes.
const FILE_BOUND: Bound =
    Bound { bytes: 8 << 30, code: "symbols-too-large", message: "publish a bundle (symseal publish)" };

/// The repository of loose files when none is named; every other one is below it.
const REPOSITORY: &str = "loose";

/// PUT `?name=FILE[&repository=loose/…]`: the file's bytes. What it is and which ids it has is read out of it.
pub(crate) async fn put(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let query = query.as_deref();
    if let Some(coding) = content_coding(&headers) {
        let message = format!("Content-Encoding {coding:?}: expected the file as it is, without one");
        return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "symbols-encoding", message));
    }
    if let Some(range) = headers.get(header::CONTENT_RANGE) {
        let message = format!("Content-Range {range:?}: expected the whole file, without one");
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "symbols-invalid", message));
    }
    let name = form_values(query, "name").pop().ok_or_else(|| {
        ApiError::new(StatusCode::BAD_REQUEST, "symbols-name", "expected the file's name: ?name=libapp.so.debug")
    })?;
    let repository = repository(query)?;
    check_writer(&caller, &repository, Action::Push)?;
    if app.debug_files.requires_seal(&repository) {
        let message = format!("{repository}: this server shows sealed bundles alone there: publish a sealed bundle");
        return Err(ApiError::new(StatusCode::FORBIDDEN, "seal-required", message));
    }
    crate::ingest::check_name(&name)?;
    let (spool, reservation) = {
        let mut room = Room::new(&app, Some(&repository));
        (spool(&app, &caller, body, &FILE_BOUND, &mut room).await?, room.into_reservation())
    };
    let task = tokio::spawn(async move {
        let _reservation = reservation;
        record(&app, &caller, &repository, name, spool).await
    });
    task.await.map_err(|_| ApiError::from(crate::pool::JobLost))?
}

/// GET: the loose files that the caller may read.
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    let mut files: Vec<Value> = app
        .debug_files
        .bundles()
        .into_iter()
        .filter(|(_, known)| known.entry.is_loose)
        .filter_map(|(digest, known)| {
            let readable = known.standing.repositories().filter(|name| caller.may_read(name));
            let repositories: Vec<&str> = readable.map(RepositoryName::as_str).collect();
            let file =
                json!({ "manifest": digest.to_string(), "name": known.entry.name, "repositories": repositories });
            (!repositories.is_empty()).then_some(file)
        })
        .collect();
    files.sort_by_key(|file| (file["name"].to_string(), file["manifest"].to_string()));
    Ok(app.memory.json(&json!({ "files": files }))?)
}

fn check_writer(caller: &Caller, repository: &RepositoryName, action: Action) -> Result<(), ApiError> {
    if caller.may_do(repository, action) {
        return Ok(());
    }
    Err(ApiError::forbidden(&Grant::Write(repository.clone().into())))
}

/// DELETE `/api/v1/symbols/<manifest>[?repository=loose/…]`.
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Path(digest): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let repository = repository(query.as_deref())?;
    check_writer(&caller, &repository, Action::Delete)?;
    let unknown = || {
        let message = format!("{digest}: {repository} has no such loose file: expected the digest of its manifest");
        ApiError::new(StatusCode::NOT_FOUND, "symbols-unknown", message)
    };
    let wanted: BlobDigest = digest.parse().map_err(|_| unknown())?;
    if !app.debug_files.bundle(&wanted).is_some_and(|known| known.entry.is_loose) {
        return Err(unknown());
    }
    let (shared, name) = (Arc::clone(&app), repository.clone());
    let task = tokio::spawn(async move { withdraw(&shared, &name, &Reference::Digest(wanted)).await });
    let Withdrawn { removal, digest: changed } = task.await.map_err(|_| ApiError::from(crate::pool::JobLost))??;
    match removal {
        Removal::Removed => {
            Ok((StatusCode::NO_CONTENT, changed.map(|digest| Extension(Changed(digest))), ()).into_response())
        }
        Removal::Missing => Err(unknown()),
        Removal::Pinned => Err(ApiError::new(
            StatusCode::CONFLICT,
            "symbols-pinned",
            format!("{digest} is pinned: the server's operator may unpin it (symseal store unpin)"),
        )),
        Removal::Named => Err(ApiError::new(
            StatusCode::CONFLICT,
            "symbols-named",
            format!("{digest}: an index of {repository} names it: delete that first"),
        )),
    }
}

fn repository(query: Option<&str>) -> Result<RepositoryName, ApiError> {
    let text = form_values(query, "repository").pop().unwrap_or_else(|| REPOSITORY.to_owned());
    let below = |name: &RepositoryName| REPOSITORY.parse().is_ok_and(|prefix| name.is_at_or_below(&prefix));
    text.parse().ok().filter(below).ok_or_else(|| {
        let message =
            format!("repository {text:?}: expected {REPOSITORY}, or a name below it such as {REPOSITORY}/team");
        ApiError::new(StatusCode::BAD_REQUEST, "symbols-repository", message)
    })
}

/// Makes a file a loose one: its blob, then the manifest that names it.
async fn record(
    app: &Arc<App>,
    caller: &Caller,
    repository: &RepositoryName,
    name: String,
    spool: Spool,
) -> Result<Response, ApiError> {
    let (shared, named, file) = (Arc::clone(app), repository.clone(), name.clone());
    let size = spool.size();
    let (own, empty) = (spool.digest(), BlobDigest::of(oci::EMPTY_JSON));
    let promise = app.promise(Some(repository), [&own, &empty]).await?;
    app.access.check_again(caller).await?;
    let store = move || -> Result<_, ApiError> {
        let (blob, pin) = spool.commit(&shared.blobs)?;
        let sha256 = blob.bytes().try_into().unwrap_or_default();
        let bytes = loose_manifest(&file, sha256, size)?;
        let digest = BlobDigest::of(&bytes);
        shared.taken_down.check(&blob, shared.repositories.get(&named).as_deref())?;
        // Before anything names the file: one that is refused goes with the collector.
        let new = check_loose(&digest, &bytes, &shared.blobs)?;
        let repository = shared.repositories.get_or_create(&named);
        let empty = BlobDigest::of(oci::EMPTY_JSON);
        let _empty_pin = shared.blobs.pin(&empty);
        shared.blobs.write(oci::EMPTY_JSON, &empty)?;
        repository.link_blob(&empty, oci::EMPTY_JSON.len() as u64)?;
        repository.link_blob(&blob, size)?;
        let is_known = repository.manifest(&Reference::Digest(digest.clone())).is_some();
        Ok((blob, pin, digest, bytes, new, is_known))
    };
    let (blob, _pin, digest, bytes, new, is_known) = app.pool.run(store).await??;
    let stored = [(own, size), (empty, oci::EMPTY_JSON.len() as u64)];
    made_good(app, Some(repository), promise, &stored).await?;
    let answer = json!({
        "manifest": digest.to_string(),
        "digest": blob.to_string(),
        "repository": repository.as_str(),
        "name": name,
        "size": size,
        "ids": ids(&new.files),
    });
    if !is_known {
        app.metrics.blob_stored(size);
        let manifest = Manifest::parse(&bytes, Some(oci::MANIFEST))
            .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "interrupted", error))?;
        let put = PutManifest { digest, manifest, tags: Vec::new() };
        publish(app, caller, repository, put, Bytes::from(bytes)).await?;
    }
    let status = if is_known { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Extension(Changed(blob)), Json(answer)).into_response())
}

/// The ids of a file with what it answers as.
fn ids(files: &[(Key, Candidate)]) -> Value {
    let mut by_id: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (key, candidate) in files {
        let kind = match candidate.kind {
            FileKind::Debuginfo => "debuginfo",
            FileKind::Executable => "executable",
            FileKind::SymbolFile => "symbol-file",
            _ => continue,
        };
        let id = match key {
            Key::Id(id) => id.to_string(),
            Key::Image(image) => image.to_string(),
            _ => continue,
        };
        by_id.entry(id).or_default().push(kind);
    }
    by_id.into_iter().map(|(id, files)| json!({ "id": id, "files": files })).collect()
}

impl From<RefusedLoose> for ApiError {
    fn from(error: RefusedLoose) -> Self {
        match error {
            RefusedLoose::Io(error) => error.into(),
            refused => Self::new(StatusCode::BAD_REQUEST, "symbols-invalid", refused),
        }
    }
}

impl From<PublishError> for ApiError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::SecondOwner(_) | PublishError::HiddenOwner { .. } => {
                Self::new(StatusCode::CONFLICT, "second-owner", error)
            }
            PublishError::Loose(refused) => refused.into(),
            PublishError::Caller(error) => error.into(),
            PublishError::TakenDown(gone) => (*gone).into(),
            PublishError::Quota(error) => error.into(),
            PublishError::TooLarge(_) => Self::new(StatusCode::INSUFFICIENT_STORAGE, "storage-full", error),
            PublishError::Store(error) => error.into(),
            PublishError::Io(error) => error.into(),
            PublishError::Job(error) => error.into(),
            other => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "storage-failed", other),
        }
    }
}
