//! `GET /v2/<name>/referrers/<digest>`: what refers to a manifest, such as its seals.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::OciError;
use crate::app::App;
use crate::blobs::{BlobDigest, BlobDirectory, unless_lost};
use crate::http::query_values;
use crate::repositories::{MANIFEST_LIMIT, Manifest, RepositoryName, annotations_of};

const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const FILTERS_APPLIED: HeaderName = HeaderName::from_static("oci-filters-applied");

/// Descriptors in one page; a page's bytes also stay below what clients take as a manifest.
const PAGE_LIMIT: usize = 500;

/// A page of descriptors, and where the next one begins.
type Page = (Vec<Value>, Option<String>);

/// An image index of the referrers' descriptors: 200 also when there are none, or no such subject.
pub(crate) async fn get(
    app: &Arc<App>,
    name: &RepositoryName,
    subject: &BlobDigest,
    query: Option<&str>,
) -> Result<Response, OciError> {
    let filter = query_values(query, "artifactType").pop();
    let last = query_values(query, "last").pop();
    let referrers = app.repositories.get(name).map(|repository| repository.referrers(subject)).unwrap_or_default();
    let wanted: Vec<_> = referrers
        .into_iter()
        .filter(|(_, manifest)| filter.is_none() || manifest.artifact_type == filter)
        .filter(|(digest, _)| last.as_ref().is_none_or(|last| digest.to_string() > *last))
        .collect();
    let (descriptors, next) = match wanted.iter().all(|(_, manifest)| manifest.annotations.is_some()) {
        true => page(&app.blobs, wanted)?,
        // Few at once: annotations of 4 MiB are many times that while they are read.
        false => {
            let blobs = Arc::clone(&app.blobs);
            app.looking.run(move || page(&blobs, wanted)).await??
        }
    };

    let mut headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(INDEX_TYPE))]);
    if filter.is_some() {
        headers.insert(FILTERS_APPLIED, HeaderValue::from_static("artifactType"));
    }
    if let Some(next) = next {
        let filter = filter.map(|filter| format!("&artifactType={}", escape(&filter))).unwrap_or_default();
        let link = format!("</v2/{name}/referrers/{subject}?last={next}{filter}>; rel=\"next\"");
        headers.extend(HeaderValue::try_from(link).ok().map(|link| (header::LINK, link)));
    }
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": descriptors });
    Ok((headers, app.memory.answer(index.to_string().into_bytes())?).into_response())
}

/// Blocks where annotations are not kept.
fn page(blobs: &BlobDirectory, wanted: Vec<(BlobDigest, Arc<Manifest>)>) -> io::Result<Page> {
    let (mut descriptors, mut bytes, mut last) = (Vec::new(), 0_usize, None);
    for (digest, manifest) in wanted {
        if descriptors.len() == PAGE_LIMIT {
            return Ok((descriptors, last));
        }
        let read;
        let annotations = match &manifest.annotations {
            Some(kept) => kept,
            None => {
                // One that was deleted and collected since is no referrer any more.
                let Some(stored) = unless_lost(blobs.read(&digest, MANIFEST_LIMIT as u64))? else { continue };
                read = annotations_of(&stored).map_err(io::Error::other)?;
                &read
            }
        };
        let descriptor = descriptor(&digest, &manifest, annotations);
        bytes = bytes.saturating_add(descriptor.to_string().len());
        if bytes > MANIFEST_LIMIT / 2 && !descriptors.is_empty() {
            return Ok((descriptors, last));
        }
        descriptors.push(descriptor);
        last = Some(digest.to_string());
    }
    Ok((descriptors, None))
}

fn descriptor(digest: &BlobDigest, manifest: &Manifest, annotations: &BTreeMap<String, String>) -> Value {
    let mut descriptor = json!({
        "mediaType": manifest.media_type,
        "digest": digest.to_string(),
        "size": manifest.size,
    });
    if let Some(artifact_type) = &manifest.artifact_type {
        descriptor["artifactType"] = json!(artifact_type);
    }
    if !annotations.is_empty() {
        descriptor["annotations"] = json!(annotations);
    }
    descriptor
}

/// A query value that any client reads back the same.
fn escape(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}
