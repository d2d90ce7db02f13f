//! Upload sessions whose requests come to different servers: each request's bytes are a part in the object store.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use uuid::Uuid;

use super::{finish, progress_at, receive};
use crate::access::Caller;
use crate::app::App;
use crate::blobs::{BlobDigest, Upload, UploadError};
use crate::endpoints::oci::{Code, OciError};
use crate::http::parse_content_range;
use crate::quotas::Room;
use crate::repositories::RepositoryName;
use crate::shared::{Part, Parts, end};

/// The parts so far, of a session that is one and has not ended.
async fn find(app: &App, parts: &Arc<Parts>, name: &RepositoryName, id: Uuid) -> Result<Vec<Part>, OciError> {
    if !parts.is_session(name, id) || app.store.upload_has_ended(id).await? {
        let message = format!("{name} has no upload {id}: start a new one");
        return Err(OciError::new(Code::BlobUploadUnknown, message));
    }
    let shared = Arc::clone(parts);
    Ok(app.pool.run(move || shared.of(id)).await??)
}

pub(super) async fn get(app: &App, parts: &Arc<Parts>, name: &RepositoryName, id: Uuid) -> Result<Response, OciError> {
    let found = find(app, parts, name, id).await?;
    Ok((StatusCode::NO_CONTENT, progress_at(name, id, end(&found))).into_response())
}

pub(super) async fn delete(
    app: &App,
    parts: &Arc<Parts>,
    name: &RepositoryName,
    id: Uuid,
) -> Result<Response, OciError> {
    find(app, parts, name, id).await?;
    end_session(app, parts, id).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Ends a session for good. What it has is removed after that: what a request writes beside this one is not taken for a new beginning.
async fn end_session(app: &App, parts: &Arc<Parts>, id: Uuid) -> Result<(), OciError> {
    app.store.end_upload(id).await?;
    let shared = Arc::clone(parts);
    Ok(app.pool.run(move || shared.remove(id)).await??)
}

/// A file of this request alone.
async fn own_file(app: &App, name: &RepositoryName) -> Result<Arc<Upload>, OciError> {
    let folder = app.repositories.get_or_create(name).uploads_folder();
    let uploads = app.uploads.clone();
    Ok(app.pool.run(move || uploads.create(&folder, crate::blobs::Algorithm::Sha256)).await??)
}

/// A chunk must begin where the parts end. The request's own file begins at nothing, so it is told nothing of that.
fn in_order(request: &HeaderMap, name: &RepositoryName, id: Uuid, expected: u64) -> Result<HeaderMap, OciError> {
    let mut rest = request.clone();
    let Some(value) = rest.remove(header::CONTENT_RANGE) else { return Ok(rest) };
    let invalid = || OciError::new(Code::BlobUploadInvalid, format!("Content-Range {value:?}: expected FIRST-LAST"));
    let range = parse_content_range(value.as_bytes()).ok_or_else(invalid)?;
    if range.start != expected {
        let error = UploadError::OutOfOrder { expected, found: range.start };
        return Err(OciError::from(error).with_headers(progress_at(name, id, expected)));
    }
    if range.length > 0 {
        let own = format!("0-{}", range.length - 1);
        rest.extend(axum::http::HeaderValue::try_from(own).ok().map(|value| (header::CONTENT_RANGE, value)));
    }
    Ok(rest)
}

pub(super) async fn patch(
    app: &App,
    parts: &Arc<Parts>,
    (name, caller): (&RepositoryName, &Caller),
    id: Uuid,
    request: &HeaderMap,
    body: Body,
) -> Result<Response, OciError> {
    let offset = end(&find(app, parts, name, id).await?);
    let request = in_order(request, name, id, offset)?;
    let own = own_file(app, name).await?;
    let mut room = Room::new(app, Some(name));
    let mut received = receive(app, (name, caller), (&own, offset, &mut None), &request, body, &mut room).await;
    if received.is_ok()
        && let Err(refused) = app.access.check_again(caller).await
    {
        received = Err(refused.into());
    }
    let received = match received {
        Err(refused) if refused.is_refusal() => {
            let uploads = app.uploads.clone();
            app.pool.run(move || uploads.cancel(&own)).await??;
            end_session(app, parts, id).await?;
            return Err(refused);
        }
        received => received,
    };
    // What has arrived counts, also where the body broke off.
    let (shared, file, uploads) = (Arc::clone(parts), Arc::clone(&own), app.uploads.clone());
    let tail = received.as_ref().ok().map(|(writer, tail)| (writer.clone(), tail.clone()));
    let keep = move || -> Result<(), OciError> {
        if let Some((writer, tail)) = tail {
            file.append(&writer, &tail)?;
        }
        let kept = if file.offset() > 0 { shared.put(id, offset, file.path()) } else { Ok(()) };
        uploads.cancel(&file)?;
        Ok(kept?)
    };
    app.pool.run(keep).await??;
    let end = offset + own.offset();
    match received {
        Ok(_) => Ok((StatusCode::ACCEPTED, progress_at(name, id, end)).into_response()),
        Err(error) => Err(error.with_headers(progress_at(name, id, end))),
    }
}

pub(super) async fn put(
    app: &Arc<App>,
    parts: &Arc<Parts>,
    (name, caller): (&RepositoryName, &Caller),
    id: Uuid,
    digest: &BlobDigest,
    request: &HeaderMap,
    body: Body,
) -> Result<Response, OciError> {
    let found = find(app, parts, name, id).await?;
    let request = in_order(request, name, id, end(&found))?;
    let own = own_file(app, name).await?;
    let (shared, file) = (Arc::clone(parts), Arc::clone(&own));
    let has_parts = !found.is_empty();
    let gather = move || -> Result<(), OciError> {
        let writer = file.begin(None)?;
        for part in &found {
            shared.read(part, |chunk| {
                file.append(&writer, &[Bytes::copy_from_slice(chunk)]).map(drop).map_err(|error| match error {
                    // A full disk stays one.
                    UploadError::Io(error) => error,
                    error => io::Error::other(error),
                })
            })?;
        }
        Ok(())
    };
    let gathered = app.pool.run(gather).await?;
    let finished = match gathered {
        // A chunk's range says where it begins in the whole, and there the file ends now.
        Ok(()) => {
            let request = if has_parts { without_range(&request) } else { request };
            let repository = app.repositories.get_or_create(name);
            finish(app, (name, caller, repository), (Arc::clone(&own), &mut None), digest, &request, body).await
        }
        Err(error) => Err(error),
    };
    match &finished {
        Ok(_) => {
            // Most uploads are one request, which leaves nothing in the object store.
            let ended = match has_parts {
                true => end_session(app, parts, id).await,
                false => app.store.end_upload(id).await.map_err(OciError::from),
            };
            // The blob is acknowledged: parts that stay cost room alone.
            if let Err(error) = ended {
                tracing::warn!(%id, ?error, "a finished upload is not ended: it can be begun again, and its parts stay for a day");
            }
        }
        Err(error) => {
            let is_given_up = error.ends_upload();
            let uploads = app.uploads.clone();
            app.pool.run(move || uploads.cancel(&own)).await??;
            if is_given_up {
                end_session(app, parts, id).await?;
            }
        }
    }
    finished
}

fn without_range(request: &HeaderMap) -> HeaderMap {
    let mut rest = request.clone();
    rest.remove(header::CONTENT_RANGE);
    rest
}
