//! The bytes of a file from a server over HTTP, unchecked.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use reqwest::StatusCode;
use reqwest::header::{CONTENT_ENCODING, CONTENT_RANGE};

use super::home::{Incoming, Trouble};
use super::http_upstream::HttpUpstream;
use super::imasignature;
use crate::causes::with_causes;
use crate::http::is_page;

impl HttpUpstream {
    /// The bytes of a file by its path below the base, from `offset` on, unchecked; with them the signature that the server sends beside the
    /// file, if it does.
    pub(super) async fn stream(
        self: &Arc<Self>,
        path: &str,
        (offset, size): (u64, u64),
    ) -> Result<(Incoming, Option<String>), Trouble> {
        let range = (offset > 0).then(|| format!("bytes={offset}-"));
        let response = self.ask((path, None), range.as_deref()).await?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut skip = match response.status() {
            StatusCode::OK => offset,
            StatusCode::PARTIAL_CONTENT
                if range.is_some() && header(CONTENT_RANGE).starts_with(&format!("bytes {offset}-")) =>
            {
                0
            }
            StatusCode::NOT_FOUND | StatusCode::GONE => return Err(Trouble::Absent("it has no such file".to_owned())),
            status => return Err(Trouble::Down(format!("it answered {status}"))),
        };
        // Nothing of it can be compared; what packs answers that nobody wanted packed may stand before the server.
        let coding = header(CONTENT_ENCODING);
        if !coding.is_empty() && coding != "identity" {
            return Err(Trouble::Down(format!("it sent the coding {coding:?}, which was not asked for")));
        }
        let is_elsewhere = response.url().as_str() != self.url(path, None).as_str();
        let is_page = is_page(response.headers());
        let expected = if skip > 0 { size } else { size.saturating_sub(offset) };
        let other = response.content_length().filter(|length| *length != expected);
        if is_elsewhere && (is_page || other.is_some()) {
            return Err(Trouble::Down(format!(
                "it leads to {}, which has no such file",
                response.url().origin().ascii_serialization()
            )));
        }
        // A server that calls every file a page may have the file: nobody else's page has its length.
        if is_page && response.content_length() != Some(expected) {
            return Err(Trouble::Down("it sent a web page in the place of a file".to_owned()));
        }
        if let Some(found) = other {
            // Less than was to come: no byte of that is wrong. A copy that is being brought up to date has such files.
            if found < expected {
                return Err(Trouble::Down(format!("it sent {found} bytes, where {expected} were to come")));
            }
            return Err(Trouble::Wrong(format!("{found} bytes, where {expected} were to come")));
        }
        let signature = imasignature::of(response.headers());
        let stall = self.patience().stall;
        let rest = response.bytes_stream();
        let rest = stream::unfold(rest.boxed(), move |mut rest| async move {
            let next = match tokio::time::timeout(stall, rest.next()).await {
                Ok(next) => next?.map_err(|error| Trouble::Down(with_causes(&error.without_url()))),
                Err(_) => Err(Trouble::Down("nothing more came in time".to_owned())),
            };
            Some((next, rest))
        });
        let rest = rest.map(move |piece| {
            piece.map(|mut piece: Bytes| {
                let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(piece.len());
                skip = skip.saturating_sub(skipped as u64);
                piece.split_off(skipped)
            })
        });
        Ok((rest.boxed(), signature))
    }
}
