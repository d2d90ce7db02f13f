//! `/v2/<name>/blobs/<digest>`: bytes by their digest.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Code, DOCKER_CONTENT_DIGEST, OciError, is_kept};
use crate::app::App;
use crate::blobs::{BlobDigest, check_size};
use crate::http::{FileAnswer, Source, file_response};
use crate::repositories::{Removal, RepositoryName};
use crate::shared::Promise;
use crate::takedown::IsTakenDown;

/// GET or HEAD: the blob, or a part of it.
pub(crate) async fn get(
    app: &Arc<App>,
    method: &Method,
    request: &HeaderMap,
    name: &RepositoryName,
    digest: &BlobDigest,
) -> Result<Response, OciError> {
    let repository = app.repositories.get(name);
    let repository =
        repository.as_ref().filter(|repository| repository.has_blob(digest)).cloned().ok_or_else(|| {
            let gone = app.taken_down.get(digest).map(|gone| gone.told_in(repository.as_deref()));
            match gone.filter(IsTakenDown::is_told) {
                Some(gone) => OciError::new(Code::BlobUnknown, gone),
                None => unknown(name, digest),
            }
        })?;
    if !repository.is_named(digest) {
        // Other servers may be about to collect it.
        let _: Promise = app.promise(Some(name), [digest]).await?;
    }
    let mut headers = vec![
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static(super::super::IMMUTABLE)),
    ];
    headers.extend(HeaderValue::try_from(digest.to_string()).ok().map(|value| (DOCKER_CONTENT_DIGEST, value)));
    if *method == Method::HEAD && !is_kept(app, digest).await? {
        return Err(unknown(name, digest));
    }
    match app.blobs.bring(digest).await {
        // Told of below.
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let (blobs, wanted) = (app.blobs.clone(), digest.clone());
    let open = move || -> std::io::Result<_> {
        // Whoever is told that the blob is here may rely on it for the grace period.
        if !repository.tell_of_blob(&wanted)? {
            return Ok(None);
        }
        match Source::of(&blobs, &wanted) {
            // Lost, or moved aside because it was damaged: whoever has it may push it again.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                tracing::error!(digest = %wanted, %error, "a blob that is offered is gone");
                Ok(None)
            }
            opened => {
                let source = opened?;
                // Of what no manifest names the size is not known.
                repository.named_size(&wanted).map_or(Ok(()), |said| check_size(&wanted, source.size(), said))?;
                Ok(Some(source))
            }
        }
    };
    let source = app.pool.run(open).await??.ok_or_else(|| unknown(name, digest))?;
    let answer = FileAnswer { source, window: None, etag: format!("\"{digest}\""), headers };
    Ok(file_response(&app.pool, method, request, answer))
}

/// DELETE: takes the blob out of this repository, unless a manifest of it names the blob.
pub(crate) async fn delete(app: &Arc<App>, name: &RepositoryName, digest: &BlobDigest) -> Result<Response, OciError> {
    // Another server may have published what names it.
    app.catch_up_repositories().await?;
    let repository = app.repositories.get(name).ok_or_else(|| unknown(name, digest))?;
    // Its line of the audit log would be lost.
    app.store.ping().await?;
    let guard = repository.lock_changes().await;
    let (shared, wanted) = (repository.clone(), digest.clone());
    let removed = app.pool.run(move || shared.unlink_blob(&wanted)).await??;
    drop(guard);
    match removed {
        Removal::Removed => Ok(StatusCode::ACCEPTED.into_response()),
        Removal::Missing => Err(unknown(name, digest)),
        Removal::Named | Removal::Pinned => {
            let message = format!("a manifest in {name} names the blob {digest}: delete the manifest first");
            Err(OciError::new(Code::Denied, message))
        }
    }
}

fn unknown(name: &RepositoryName, digest: &BlobDigest) -> OciError {
    OciError::new(Code::BlobUnknown, format!("{name} has no blob {digest}"))
}
