//! A blob's bytes as they come, for readers who check them piece by piece.

use bytes::Bytes;
use reqwest::header::{CONTENT_ENCODING, CONTENT_RANGE, RANGE};
use reqwest::{Method, Response, StatusCode, Url};

use crate::RegistryError;
use crate::session::{Expect, Failure, Session};
use crate::transfer::parse_content_range;

const WHOLE_OR_REST: Expect = Expect {
    text: "200 or 206 (the blob, or the rest of it)",
    statuses: &[StatusCode::OK, StatusCode::PARTIAL_CONTENT],
};

/// Bytes of a blob on their way. Nothing of them is checked.
#[derive(Debug)]
pub struct BlobStream {
    response: Response,
    /// What was asked for: the place that a redirection led to may hold what is secret.
    url: Url,
    /// Bytes that come before those that were asked for: a registry without ranges sends the blob from its start.
    skip: u64,
}

/// Opens the stream of the blob at `url` from `offset` on.
pub(crate) async fn open(session: &Session, url: &Url, offset: u64) -> Result<BlobStream, RegistryError> {
    let ask = |request: reqwest::RequestBuilder| match offset {
        0 => request,
        offset => request.header(RANGE, format!("bytes={offset}-")),
    };
    let response = session.send(Method::GET, url, WHOLE_OR_REST, ask).await?;
    let wrong = |problem: String| RegistryError::Protocol { url: url.to_string(), problem };
    if let Some(coding) = response.headers().get(CONTENT_ENCODING).filter(|coding| *coding != "identity") {
        return Err(wrong(format!("the answer has the coding {coding:?}, which was not asked for")));
    }
    if response.status() == StatusCode::OK {
        return Ok(BlobStream { response, url: url.clone(), skip: offset });
    }
    let text = response.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match parse_content_range(text) {
        Some((first, ..)) if first == offset => Ok(BlobStream { response, url: url.clone(), skip: 0 }),
        _ => Err(wrong(format!("asked for bytes from {offset} on, the answer has {text:?}"))),
    }
}

impl BlobStream {
    /// The next bytes; `None` at the end of what the registry sends, which need not be the end of the blob.
    ///
    /// # Errors
    /// [`RegistryError::Unreachable`] where the connection breaks or stalls.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        loop {
            let next = self.response.chunk().await;
            let Some(mut chunk) = next.map_err(|error| Failure::broken(&self.url, &error).into_error(1))? else {
                return Ok(None);
            };
            let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(chunk.len());
            self.skip = self.skip.saturating_sub(skipped as u64);
            let rest = chunk.split_off(skipped);
            if !rest.is_empty() {
                return Ok(Some(rest));
            }
        }
    }
}
