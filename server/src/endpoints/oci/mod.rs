//! The OCI distribution API (distribution-spec 1.1 and what its main branch adds).

pub(crate) mod blobs;
pub(crate) mod catalog;
pub(crate) mod entry;
mod error;
pub(crate) mod manifests;
pub(crate) mod ping;
pub(crate) mod referrers;
pub(crate) mod tags;
mod target;
pub(crate) mod uploads;

pub(crate) use entry::invalid_token;
pub(crate) use error::{Code, OciError};
pub(crate) use target::Target;

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::app::App;
use crate::blobs::{BlobDigest, is_lasting};

/// The header that names the digest of what is answered.
pub(crate) const DOCKER_CONTENT_DIGEST: HeaderName = HeaderName::from_static("docker-content-digest");

/// Headers from names and texts; a text that no header can hold is left out.
fn headers<const N: usize>(pairs: [(HeaderName, String); N]) -> HeaderMap {
    pairs.into_iter().filter_map(|(name, text)| Some((name, HeaderValue::try_from(text).ok()?))).collect()
}

/// `Location` and `Docker-Content-Digest` of something that was stored. The location is relative, so that a proxy in
/// front that speaks TLS under another name does not break it.
fn stored(location: String, digest: &BlobDigest) -> HeaderMap {
    headers([(header::LOCATION, location), (DOCKER_CONTENT_DIGEST, digest.to_string())])
}

/// Whether a blob that is offered is where it is kept for good, so that whoever is told of it need not send it. Where the object store does not
/// answer nothing is concluded: what is to rest on the blob will ask for it again.
async fn is_kept(app: &App, digest: &BlobDigest) -> Result<bool, OciError> {
    if app.blobs.objects().is_none() {
        return Ok(true);
    }
    let (blobs, wanted) = (app.blobs.clone(), digest.clone());
    match app.pool.run(move || blobs.stored_size(&wanted)).await? {
        Err(error) if is_lasting(&error) => Err(error.into()),
        Err(_) => Ok(true),
        Ok(size) => Ok(size.is_some()),
    }
}

/// One page of a list: `n` and `last` of the query.
struct Page {
    limit: usize,
    last: Option<String>,
}

/// Entries in a page when the client names no number, and at most.
const PAGE_LIMIT: usize = 10_000;

impl Page {
    fn parse(query: Option<&str>) -> Result<Self, OciError> {
        let limit = match crate::http::query_values(query, "n").pop() {
            None => PAGE_LIMIT,
            Some(text) => text
                .parse::<usize>()
                .map_err(|_| OciError::new(Code::PaginationNumberInvalid, format!("n={text}: expected a number")))?
                .min(PAGE_LIMIT),
        };
        Ok(Self { limit, last: crate::http::query_values(query, "last").pop() })
    }

    /// The `Link` to the next page.
    fn link(&self, path: &str, last: &str) -> HeaderMap {
        headers([(header::LINK, format!("<{path}?n={}&last={last}>; rel=\"next\"", self.limit))])
    }
}
