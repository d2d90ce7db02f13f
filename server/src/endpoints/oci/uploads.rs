//! `/v2/<name>/blobs/uploads/…`: a blob arrives in one piece, in a stream or in chunks.

mod parts;

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use uuid::Uuid;

use super::{Code, OciError, headers, stored};
use crate::access::Caller;
use crate::app::App;
use crate::blobs::{Algorithm, BlobDigest, Upload, Writer};
use crate::http::{Incoming, NotGathered, drain, parse_content_range, query_values};
use crate::quotas::Room;
use crate::repositories::{Held, Repository, RepositoryName};
use crate::shared::made_good;
use crate::takedown::gone;

/// Bytes gathered before they are written and hashed: one hop to the pool for each.
const WRITE_BLOCK: usize = 256 << 10;

const UPLOAD_ID: HeaderName = HeaderName::from_static("docker-upload-uuid");

/// POST: starts a session, takes a whole blob (`?digest=`) or mounts one (`?mount=`).
pub(crate) async fn post(
    app: &Arc<App>,
    caller: &Caller,
    name: &RepositoryName,
    query: Option<&str>,
    request: &HeaderMap,
    body: Body,
) -> Result<Response, OciError> {
    let repository = app.repositories.get_or_create(name);
    if let Some(digest) = query_values(query, "mount").pop() {
        let digest: BlobDigest = digest.parse()?;
        let from = query_values(query, "from").pop();
        if let Some(gone) = gone(app, caller, &digest) {
            return Err(gone.into());
        }
        // What was taken down elsewhere is like a digest that no repository has which the caller may read.
        let is_taken_down = app.taken_down.has(&digest);
        if !is_taken_down && mount(app, (name, &repository), caller, &digest, from.as_deref()).await? {
            return Ok(created(name, &digest));
        }
    }
    let digest = query_values(query, "digest").pop().map(|digest| digest.parse::<BlobDigest>()).transpose()?;
    if let Some(gone) = digest.as_ref().and_then(|digest| app.taken_down.get(digest)) {
        drain(body.into_data_stream());
        return Err(gone.told_in(Some(&repository)).into());
    }
    let algorithm = match query_values(query, "digest-algorithm").pop() {
        None => digest.as_ref().map_or(Algorithm::Sha256, BlobDigest::algorithm),
        Some(name) => Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name).ok_or_else(|| {
            OciError::new(Code::DigestInvalid, format!("digest-algorithm={name}: expected sha256 or sha512"))
        })?,
    };
    if let (Some(parts), None) = (&app.parts, &digest) {
        return Ok((StatusCode::ACCEPTED, progress_at(name, parts.session(name), 0)).into_response());
    }
    let (uploads, folder) = (app.uploads.clone(), repository.uploads_folder());
    let upload = app.pool.run(move || uploads.create(&folder, algorithm)).await??;
    match digest {
        None => Ok((StatusCode::ACCEPTED, progress(name, &upload)).into_response()),
        Some(digest) => {
            let to = (name, caller, repository);
            let finished = finish(app, to, (Arc::clone(&upload), &mut None), &digest, request, body).await;
            if finished.is_err() {
                // The client was told no location to go on at.
                let uploads = app.uploads.clone();
                app.pool.run(move || uploads.cancel(&upload)).await??;
            }
            finished
        }
    }
}

/// PATCH: appends a chunk, or a stream when the request has no `Content-Range`.
pub(crate) async fn patch(
    app: &App,
    caller: &Caller,
    name: &RepositoryName,
    id: Uuid,
    request: &HeaderMap,
    body: Body,
) -> Result<Response, OciError> {
    if let Some(parts) = &app.parts {
        return parts::patch(app, parts, (name, caller), id, request, body).await;
    }
    let (_, upload) = find(app, name, id).await?;
    let mut turn = None;
    let appended = append(app, (name, caller), (&upload, &mut turn), request, body).await;
    unless_given_up(app, name, (&upload, turn), appended).await?;
    Ok((StatusCode::ACCEPTED, progress(name, &upload)).into_response())
}

async fn append(
    app: &App,
    (name, caller): (&RepositoryName, &Caller),
    (upload, turn): (&Arc<Upload>, &mut Option<Writer>),
    request: &HeaderMap,
    body: Body,
) -> Result<(), OciError> {
    let mut room = Room::of_upload(app, name, upload);
    let (writer, tail) = receive(app, (name, caller), (upload, 0, turn), request, body, &mut room).await?;
    app.access.check_again(caller).await?;
    let shared = Arc::clone(upload);
    app.pool.run(move || shared.append(&writer, &tail)).await??;
    Ok(())
}

/// What this request brought is given up where the disk is full: most clients begin anew, and half an upload would keep it full for a day. What was
/// acknowledged before stays. All of the upload goes where it is more than the quota or than one upload may have, and where the token holds no longer.
async fn unless_given_up<T>(
    app: &App,
    name: &RepositoryName,
    (upload, turn): (&Arc<Upload>, Option<Writer>),
    taken: Result<T, OciError>,
) -> Result<T, OciError> {
    let Err(refused) = taken else { return taken };
    let (uploads, shared) = (app.uploads.clone(), Arc::clone(upload));
    if refused.is_refusal() {
        app.pool.run(move || uploads.cancel(&shared)).await??;
        return Err(refused);
    }
    if !refused.is_full() {
        return Err(refused);
    }
    if let Some(turn) = turn {
        // Where another request has taken the session over it is that one's.
        drop(app.pool.run(move || shared.rewind(&turn)).await?);
        // Its place in the quota shrinks to what stays.
        drop(Room::of_upload(app, name, upload));
    }
    Err(refused.with_headers(progress(name, upload)))
}

/// PUT: ends the session, after a last chunk if the body has one.
pub(crate) async fn put(
    app: &Arc<App>,
    caller: &Caller,
    (name, id): (&RepositoryName, Uuid),
    query: Option<&str>,
    request: &HeaderMap,
    body: Body,
) -> Result<Response, OciError> {
    let digest = query_values(query, "digest").pop().ok_or_else(|| {
        OciError::new(Code::DigestInvalid, "the request that ends an upload must name the blob: ?digest=sha256:…")
    })?;
    let digest: BlobDigest = digest.parse()?;
    if let Some(gone) = app.taken_down.get(&digest) {
        drain(body.into_data_stream());
        return Err(gone.told_in(app.repositories.get(name).as_deref()).into());
    }
    if let Some(parts) = &app.parts {
        return parts::put(app, parts, (name, caller), id, &digest, request, body).await;
    }
    let (repository, upload) = find(app, name, id).await?;
    let (to, mut turn) = ((name, caller, repository), None);
    let finished = finish(app, to, (Arc::clone(&upload), &mut turn), &digest, request, body).await;
    unless_given_up(app, name, (&upload, turn), finished).await
}

/// GET: how far the session has come.
pub(crate) async fn get(app: &App, name: &RepositoryName, id: Uuid) -> Result<Response, OciError> {
    if let Some(parts) = &app.parts {
        return parts::get(app, parts, name, id).await;
    }
    let (_, upload) = find(app, name, id).await?;
    Ok((StatusCode::NO_CONTENT, progress(name, &upload)).into_response())
}

/// DELETE: cancels the session.
pub(crate) async fn delete(app: &App, name: &RepositoryName, id: Uuid) -> Result<Response, OciError> {
    if let Some(parts) = &app.parts {
        return parts::delete(app, parts, name, id).await;
    }
    let (_, upload) = find(app, name, id).await?;
    let uploads = app.uploads.clone();
    app.pool.run(move || uploads.cancel(&upload)).await??;
    Ok(StatusCode::NO_CONTENT.into_response())
}

async fn find(app: &App, name: &RepositoryName, id: Uuid) -> Result<(Arc<Repository>, Arc<Upload>), OciError> {
    let unknown = || OciError::new(Code::BlobUploadUnknown, format!("{name} has no upload {id}: start a new one"));
    let repository = app.repositories.get(name).ok_or_else(unknown)?;
    let (uploads, folder) = (app.uploads.clone(), repository.uploads_folder());
    let upload = app.pool.run(move || uploads.find(&folder, id)).await??;
    Ok((repository, upload.ok_or_else(unknown)?))
}

/// Mounts a blob from a repository that has it and that the caller may read, be it named or not.
async fn mount(
    app: &Arc<App>,
    (name, repository): (&RepositoryName, &Arc<Repository>),
    caller: &Caller,
    digest: &BlobDigest,
    from: Option<&str>,
) -> Result<bool, OciError> {
    let pin = app.blobs.pin(digest);
    let promise = app.promise(Some(name), [digest]).await?;
    let has_it = match from {
        Some(from) => from.parse().is_ok_and(|from: RepositoryName| {
            caller.may_read(&from) && app.repositories.get(&from).is_some_and(|source| source.gives_blob(digest))
        }),
        None => app.repositories.any_has_blob(digest, |name| caller.may_read(name)),
    };
    if !has_it {
        return Ok(false);
    }
    let (blobs, wanted) = (app.blobs.clone(), digest.clone());
    // It may have gone before it was pinned, or be in the cache alone.
    let Some(size) = app.pool.run(move || blobs.stored_size(&wanted)).await?? else { return Ok(false) };
    let (shared, to, here, wanted) = (Arc::clone(app), Arc::clone(repository), name.clone(), digest.clone());
    let link = move || -> Result<(), OciError> {
        let _pin = pin;
        offer(&shared, (&here, &to), &wanted, size)
    };
    app.pool.run(link).await??;
    made_good(app, Some(name), promise, &[(digest.clone(), size)]).await?;
    Ok(true)
}

/// Offers a blob in a repository, which it need not have any more that had it a moment ago: what it has takes no room. Blocks.
fn offer(
    app: &App,
    (name, repository): (&RepositoryName, &Repository),
    digest: &BlobDigest,
    size: u64,
) -> Result<(), OciError> {
    if repository.tell_of_blob(digest)? {
        return Ok(());
    }
    let more = Held { bytes: size, bundles: 0 };
    let reserved = app.quotas.reserve(&app.repositories, name, more);
    let _reservation = reserved.inspect_err(|_| app.quotas.count_refusal())?;
    Ok(repository.link_blob(digest, size)?)
}

/// Takes a body into a session. The blocks but the last are on disk; the last comes back, so that a small blob costs
/// one hop. It ends when the caller's token holds no longer. `turn` is the right to write that it took, also where it ends so. `elsewhere`: bytes of the blob that came before and are not in this file.
async fn receive(
    app: &App,
    (name, caller): (&RepositoryName, &Caller),
    (upload, elsewhere, turn): (&Arc<Upload>, u64, &mut Option<Writer>),
    request: &HeaderMap,
    body: Body,
    room: &mut Room<'_>,
) -> Result<(Writer, Vec<Bytes>), OciError> {
    let range = match request.get(header::CONTENT_RANGE) {
        None => None,
        Some(value) => Some(parse_content_range(value.as_bytes()).ok_or_else(|| {
            OciError::new(Code::BlobUploadInvalid, format!("Content-Range {value:?}: expected FIRST-LAST"))
        })?),
    };
    let writer = upload
        .begin(range.map(|range| range.start))
        .map_err(|error| OciError::from(error).with_headers(progress(name, upload)))?;
    *turn = Some(writer.clone());
    let before = elsewhere.saturating_add(upload.offset());
    // What is announced is refused before it comes.
    if let Err(refused) = room.take(before.saturating_add(body.size_hint().lower())) {
        drain(body.into_data_stream());
        let refused = OciError::from(refused);
        // One that is given up has no place to go on at.
        return Err(if refused.is_refusal() { refused } else { refused.with_headers(progress(name, upload)) });
    }
    let mut body = Incoming::of(body);
    let (mut gathered, mut gathered_bytes, mut received) = (Vec::new(), 0, 0_u64);
    while let Some(chunk) = body.next().await {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                // What has arrived counts: the client asks for the status and goes on from there.
                app.access.check_again(caller).await?;
                let shared = Arc::clone(upload);
                app.pool.run(move || shared.append(&writer, &gathered)).await??;
                let refused = match error {
                    NotGathered::Stalled => OciError::from(error),
                    error => OciError::new(Code::BlobUploadInvalid, error),
                };
                return Err(refused.with_headers(progress(name, upload)));
            }
        };
        received += chunk.len() as u64;
        gathered_bytes += chunk.len();
        gathered.push(chunk);
        if let Err(refused) = room.take(before.saturating_add(received)) {
            body.drain();
            return Err(refused.into());
        }
        if gathered_bytes >= WRITE_BLOCK {
            if let Err(refused) = app.access.check_again(caller).await {
                body.drain();
                return Err(refused.into());
            }
            let (shared, turn, block) = (Arc::clone(upload), writer.clone(), std::mem::take(&mut gathered));
            app.pool.run(move || shared.append(&turn, &block)).await??;
            gathered_bytes = 0;
        }
    }
    match range {
        Some(range) if range.length != received => {
            let shared = Arc::clone(upload);
            app.pool.run(move || shared.rewind(&writer)).await??;
            let message = format!("the chunk has {received} bytes, its Content-Range says {}", range.length);
            Err(OciError::new(Code::SizeInvalid, message).with_headers(progress(name, upload)))
        }
        _ => Ok((writer, gathered)),
    }
}

async fn finish(
    app: &Arc<App>,
    (name, caller, repository): (&RepositoryName, &Caller, Arc<Repository>),
    (upload, turn): (Arc<Upload>, &mut Option<Writer>),
    digest: &BlobDigest,
    request: &HeaderMap,
    body: Body,
) -> Result<Response, OciError> {
    // What is here already takes no room.
    let free = if repository.has_blob(digest) { stored_size(app, digest).await? } else { 0 };
    let mut room = Room::of_upload(app, name, &upload).with_free(free);
    let (writer, tail) = match receive(app, (name, caller), (&upload, 0, turn), request, body, &mut room).await {
        Err(refused) if free > 0 && !refused.is_refusal() => {
            // Nothing counts what came of it, so it does not stay. Where another request has taken the session over it is that one's.
            if let Some(turn) = turn.clone() {
                let shared = Arc::clone(&upload);
                drop(app.pool.run(move || shared.rewind(&turn)).await?);
            }
            return Err(refused.with_headers(progress(name, &upload)));
        }
        received => received?,
    };
    let reservation = room.into_reservation();
    let promise = app.promise(Some(name), [digest]).await?;
    app.access.check_again(caller).await?;
    let (uploads, blobs, expected) = (app.uploads.clone(), app.blobs.clone(), digest.clone());
    let (shared, here, taken_down) = (Arc::clone(app), name.clone(), Arc::clone(&app.taken_down));
    // One job, so that a client that goes away leaves either a session or a visible blob.
    let commit = move || -> Result<u64, OciError> {
        let _pin = blobs.pin(&expected);
        upload.append(&writer, &tail)?;
        let commit = uploads.commit(&upload, &writer, &expected, &blobs)?;
        if free > 0 {
            drop(reservation);
            offer(&shared, (&here, &repository), &expected, commit.size)?;
        } else {
            let _reservation = reservation;
            repository.link_blob(&expected, commit.size)?;
        }
        // While the bytes came.
        if let Some(gone) = taken_down.get(&expected) {
            taken_down.hide_in_one(&repository, &expected, &blobs);
            return Err(gone.told_in(None).into());
        }
        Ok(commit.size)
    };
    let bytes = app.pool.run(commit).await??;
    made_good(app, Some(name), promise, &[(digest.clone(), bytes)]).await?;
    app.metrics.blob_stored(bytes);
    Ok(created(name, digest))
}

/// Bytes of a blob; none where they are gone.
async fn stored_size(app: &App, digest: &BlobDigest) -> Result<u64, OciError> {
    let (blobs, wanted) = (Arc::clone(&app.blobs), digest.clone());
    Ok(app.pool.run(move || blobs.stored_size(&wanted)).await??.unwrap_or_default())
}

fn created(name: &RepositoryName, digest: &BlobDigest) -> Response {
    (StatusCode::CREATED, stored(format!("/v2/{name}/blobs/{digest}"), digest)).into_response()
}

/// Where to go on. An empty session is `0-0`, as other registries say it.
fn progress(name: &RepositoryName, upload: &Upload) -> HeaderMap {
    progress_at(name, upload.id(), upload.offset())
}

fn progress_at(name: &RepositoryName, id: Uuid, offset: u64) -> HeaderMap {
    headers([
        (header::LOCATION, format!("/v2/{name}/blobs/uploads/{id}")),
        (header::RANGE, format!("0-{}", offset.saturating_sub(1))),
        (UPLOAD_ID, id.to_string()),
    ])
}
