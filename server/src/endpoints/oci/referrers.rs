//! `GET /v2/<name>/referrers/<digest>`: what refers to a manifest, such as its seals.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::OciError;
use crate::app::App;
use crate::blobs::BlobDigest;
use crate::http::query_values;
use crate::repositories::{MANIFEST_LIMIT, Manifest, RepositoryName};

const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const FILTERS_APPLIED: HeaderName = HeaderName::from_static("oci-filters-applied");

/// Descriptors in one page; a page's bytes also stay below what clients take as a manifest.
const PAGE_LIMIT: usize = 500;

/// An image index of the referrers' descriptors: 200 also when there are none, or no such subject.
pub(crate) fn get(
    app: &App,
    name: &RepositoryName,
    subject: &BlobDigest,
    query: Option<&str>,
) -> Result<Response, OciError> {
    let filter = query_values(query, "artifactType").pop();
    let last = query_values(query, "last").pop();
    let referrers = app.repositories.get(name).map(|repository| repository.referrers(subject)).unwrap_or_default();
    let wanted = referrers
        .iter()
        .filter(|(_, manifest)| filter.is_none() || manifest.artifact_type == filter)
        .filter(|(digest, _)| last.as_ref().is_none_or(|last| digest.to_string() > *last));

    let (mut descriptors, mut bytes, mut next) = (Vec::new(), 0, None);
    for (digest, manifest) in wanted {
        let descriptor = descriptor(digest, manifest);
        bytes += descriptor.to_string().len();
        if descriptors.len() == PAGE_LIMIT || (bytes > MANIFEST_LIMIT / 2 && !descriptors.is_empty()) {
            next =
                descriptors.last().and_then(|descriptor: &Value| descriptor.get("digest")?.as_str().map(str::to_owned));
            break;
        }
        descriptors.push(descriptor);
    }

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

fn descriptor(digest: &BlobDigest, manifest: &Manifest) -> Value {
    let mut descriptor = json!({
        "mediaType": manifest.media_type,
        "digest": digest.to_string(),
        "size": manifest.size,
    });
    if let Some(artifact_type) = &manifest.artifact_type {
        descriptor["artifactType"] = json!(artifact_type);
    }
    if !manifest.annotations.is_empty() {
        descriptor["annotations"] = json!(manifest.annotations);
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
