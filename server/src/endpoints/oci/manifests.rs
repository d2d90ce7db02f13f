//! `/v2/<name>/manifests/<tag or digest>`: what names blobs, and the moment at which a bundle becomes visible.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use super::{Code, DOCKER_CONTENT_DIGEST, OciError, headers, is_kept, stored};
use crate::access::Caller;
use crate::app::App;
use crate::arrival::Changed;
use crate::blobs::{BlobDigest, check_size};
use crate::http::{FileAnswer, NotGathered, Share, content_coding, file_response, forbids_change, query_values};
use crate::publish::{PublishError, Withdrawn, publish, withdraw};
use crate::repositories::{MANIFEST_LIMIT, Manifest, PutManifest, Reference, Removal, RepositoryName, Tag};
use crate::shared::Promise;
use crate::takedown::IsTakenDown;

const OCI_SUBJECT: HeaderName = HeaderName::from_static("oci-subject");
const OCI_TAG: HeaderName = HeaderName::from_static("oci-tag");

/// Tags in one request; the specification asks for ten at least.
const TAGS_LIMIT: usize = 64;

/// GET or HEAD: the manifest's bytes as they were sent.
pub(crate) async fn get(
    app: &Arc<App>,
    method: &Method,
    request: &HeaderMap,
    name: &RepositoryName,
    reference: &Reference,
) -> Result<Response, OciError> {
    if matches!(reference, Reference::Tag(_)) {
        app.catch_up_tags().await;
    }
    let repository = app.repositories.get(name);
    let found = repository.as_ref().and_then(|repository| repository.manifest(reference));
    let (digest, manifest) = found.ok_or_else(|| {
        let cause = match reference {
            Reference::Digest(digest) => app.taken_down.get(digest),
            Reference::Tag(_) => None,
        };
        let cause = cause.or_else(|| app.taken_down.get(&repository.as_ref()?.hidden_behind(reference)?));
        let cause = cause.map(|gone| gone.told_in(repository.as_deref())).filter(IsTakenDown::is_told);
        cause.map_or_else(|| unknown(name, reference), |cause| OciError::new(Code::ManifestUnknown, cause))
    })?;
    if repository.as_ref().is_some_and(|repository| repository.is_idle_manifest(&digest)) {
        // As of a blob that nothing names.
        let _: Promise = app.promise(Some(name), [&digest]).await?;
    }
    let mut headers = Vec::new();
    headers.extend(HeaderValue::try_from(&manifest.media_type).ok().map(|value| (header::CONTENT_TYPE, value)));
    headers.extend(HeaderValue::try_from(digest.to_string()).ok().map(|value| (DOCKER_CONTENT_DIGEST, value)));
    let cache = match reference {
        Reference::Digest(_) => HeaderValue::from_static(crate::endpoints::IMMUTABLE),
        Reference::Tag(_) => HeaderValue::from_static("no-cache"),
    };
    headers.push((header::CACHE_CONTROL, cache));
    if *method == Method::HEAD && !is_kept(app, &digest).await? {
        return Err(unknown(name, reference));
    }
    match app.blobs.bring(&digest).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(unknown(name, reference)),
        brought => brought?,
    }
    let (blobs, wanted, size) = (app.blobs.clone(), digest.clone(), manifest.size);
    let open = move || -> std::io::Result<_> {
        // Whoever is told that it is here may rely on it for the grace period.
        let is_here = repository.map_or(Ok(false), |repository| repository.tell_of_manifest(&wanted))?;
        if !is_here {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        let blob = blobs.open_blob(&wanted)?;
        check_size(&wanted, blob.size, size)?;
        Ok(blob)
    };
    let blob = match app.pool.run(open).await? {
        // Deleted and collected between the look and the opening.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(unknown(name, reference)),
        opened => opened?,
    };
    let answer = FileAnswer { source: blob.into(), window: None, etag: format!("\"{digest}\""), headers };
    Ok(file_response(&app.pool, method, request, answer))
}

/// PUT: checks the manifest and everything that it names, then makes it visible, with its tags.
pub(crate) async fn put(
    app: Arc<App>,
    caller: Caller,
    name: RepositoryName,
    reference: Reference,
    query: Option<&str>,
    request: &HeaderMap,
    body: Body,
) -> Result<Response, OciError> {
    check_whole(request)?;
    let content_type = media_type(request)?;
    let mut tags = query_tags(query)?;
    check_expected(&app, &name, &reference, request).await?;
    let bytes = app.memory.gather(Share::Writes, body, MANIFEST_LIMIT).await.map_err(|why| match why {
        NotGathered::TooLarge => {
            let message = format!("the manifest is larger than {MANIFEST_LIMIT} bytes: split it into shards");
            OciError::new(Code::TooLarge, message)
        }
        why => why.into(),
    })?;
    // With its room, as long as anybody has the bytes.
    let bytes = Bytes::from_owner(bytes);
    let digest = match &reference {
        Reference::Digest(expected) => {
            let found = BlobDigest::compute(expected.algorithm(), &bytes);
            if found != *expected {
                let message = format!("the manifest has the digest {found}, expected {expected}");
                return Err(OciError::new(Code::DigestInvalid, message));
            }
            found
        }
        Reference::Tag(tag) => {
            tags.push(tag.clone());
            BlobDigest::of(&bytes)
        }
    };
    let manifest = Manifest::parse_sent(&bytes, content_type.as_deref())
        .map_err(|error| OciError::new(Code::ManifestInvalid, error))?;
    let mut answer = stored(format!("/v2/{name}/manifests/{digest}"), &digest);
    if let Some(subject) = &manifest.subject {
        answer.extend(headers([(OCI_SUBJECT, subject.to_string())]));
    }
    for tag in &tags {
        answer.append(OCI_TAG, HeaderValue::try_from(tag.as_str()).unwrap_or(HeaderValue::from_static("")));
    }
    run_to_end(app, caller, name, PutManifest { digest, manifest, tags }, bytes).await?;
    Ok((StatusCode::CREATED, answer).into_response())
}

/// A task of its own: a client that goes away does not stop between the record and what becomes visible.
async fn run_to_end(
    app: Arc<App>,
    caller: Caller,
    name: RepositoryName,
    put: PutManifest,
    bytes: Bytes,
) -> Result<(), OciError> {
    let task = tokio::spawn(async move { publish(&app, &caller, &name, put, bytes).await });
    match task.await {
        Ok(published) => Ok(published?),
        Err(_) => Err(crate::pool::JobLost.into()),
    }
}

/// DELETE: a tag, or a manifest with its tags.
pub(crate) async fn delete(
    app: Arc<App>,
    name: RepositoryName,
    reference: Reference,
    request: &HeaderMap,
) -> Result<Response, OciError> {
    check_expected(&app, &name, &reference, request).await?;
    let missing = unknown(&name, &reference);
    let named = "another manifest of the repository names this one: delete that first";
    let task = tokio::spawn(async move { withdraw(&app, &name, &reference).await });
    match task.await {
        Ok(Ok(Withdrawn { removal: Removal::Removed, digest })) => {
            Ok((StatusCode::ACCEPTED, digest.map(|digest| Extension(Changed(digest))), ()).into_response())
        }
        Ok(Ok(Withdrawn { removal: Removal::Missing, .. })) => Err(missing),
        Ok(Ok(Withdrawn { removal: Removal::Named, .. })) => Err(OciError::new(Code::Denied, named)),
        Ok(Ok(Withdrawn { removal: Removal::Pinned, .. })) => {
            let pinned = "it is pinned, or the last tag or a seal of what is: the server's operator may unpin that (symseal store unpin)";
            Err(OciError::new(Code::Denied, pinned))
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(crate::pool::JobLost.into()),
    }
}

/// Whether what a change is about is what the request's conditions say (RFC 9110, 13.1). Who changes it at the same instant is not kept from it.
///
/// Another server may have changed it a moment ago, so these are looked at first.
async fn check_expected(
    app: &Arc<App>,
    name: &RepositoryName,
    reference: &Reference,
    request: &HeaderMap,
) -> Result<(), OciError> {
    if ![header::IF_MATCH, header::IF_NONE_MATCH].iter().any(|name| request.contains_key(name)) {
        return Ok(());
    }
    app.catch_up_repositories().await?;
    let now = app.repositories.get(name).and_then(|repository| repository.manifest(reference));
    let etag = now.as_ref().map(|(digest, _)| format!("\"{digest}\""));
    if !forbids_change(request, etag.as_deref()) {
        return Ok(());
    }
    let is_there = now.map_or_else(|| "nothing".to_owned(), |(digest, _)| digest.to_string());
    let asked = match reference {
        Reference::Tag(tag) => tag.to_string(),
        Reference::Digest(digest) => digest.to_string(),
    };
    let message = format!("{asked} of {name} is {is_there}, which is not what If-Match or If-None-Match expect");
    Err(OciError::new(Code::PreconditionFailed, message))
}

/// Refuses a manifest that is packed for the way, or that is a part of one (RFC 9110, 14.5).
fn check_whole(request: &HeaderMap) -> Result<(), OciError> {
    if let Some(coding) = content_coding(request) {
        let message = format!("Content-Encoding {coding:?}: expected the manifest as it is, without one");
        return Err(OciError::new(Code::ManifestEncoded, message));
    }
    if let Some(range) = request.get(header::CONTENT_RANGE) {
        let message = format!("Content-Range {range:?}: expected the whole manifest, without one");
        return Err(OciError::new(Code::ManifestInvalid, message));
    }
    Ok(())
}

/// The `Content-Type` without parameters.
fn media_type(request: &HeaderMap) -> Result<Option<String>, OciError> {
    let Some(value) = request.get(header::CONTENT_TYPE) else { return Ok(None) };
    let text = value.to_str().map_err(|_| OciError::new(Code::ManifestInvalid, "the Content-Type is no text"))?;
    Ok(text.split(';').next().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty()))
}

fn query_tags(query: Option<&str>) -> Result<Vec<Tag>, OciError> {
    let texts = query_values(query, "tag");
    if texts.len() > TAGS_LIMIT {
        let message = format!("{} tags in one request, at most {TAGS_LIMIT} are taken", texts.len());
        return Err(OciError::new(Code::TagInvalid, message));
    }
    let parse =
        |text: &String| text.parse().map_err(|error| OciError::new(Code::TagInvalid, format!("tag {text:?}: {error}")));
    texts.iter().map(parse).collect()
}

fn unknown(name: &RepositoryName, reference: &Reference) -> OciError {
    let message = match reference {
        Reference::Tag(tag) => format!("{name} has no tag {tag}"),
        Reference::Digest(digest) => format!("{name} has no manifest {digest}"),
    };
    OciError::new(Code::ManifestUnknown, message)
}

impl From<PublishError> for OciError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::Type { .. } => Self::new(Code::ManifestInvalid, error),
            PublishError::Child { .. } => Self::new(Code::ManifestBlobUnknown, error),
            PublishError::Bundle(crate::ingest::RefusedBundle::Io(error)) | PublishError::Io(error) => error.into(),
            PublishError::Bundle(crate::ingest::RefusedBundle::File { .. }) => {
                Self::new(Code::ManifestBlobUnknown, error)
            }
            PublishError::Loose(crate::ingest::RefusedLoose::Io(error)) => error.into(),
            PublishError::Loose(_) => Self::new(Code::ManifestInvalid, error),
            PublishError::SecondOwner(_) | PublishError::HiddenOwner { .. } => Self::new(Code::Conflict, error),
            PublishError::Caller(error) => error.into(),
            PublishError::TakenDown(_) => Self::new(Code::DeniedToCaller, error),
            PublishError::Quota(error) => error.into(),
            PublishError::TooLarge(_) => Self::new(Code::InsufficientStorage, error),
            PublishError::Bundle(_) => Self::new(Code::ManifestInvalid, error),
            PublishError::Store(error) => error.into(),
            PublishError::Job(error) => error.into(),
        }
    }
}
