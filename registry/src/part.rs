//! Some bytes of a blob, for readers who need only those. What they are worth is for whoever asked to check: a part has no
//! digest of its own.

use std::ops::Range;

use reqwest::header::RANGE;
use reqwest::{Method, Response, StatusCode, Url};

use crate::RegistryError;
use crate::options::Progress;
use crate::session::{Expect, Failure, Session, shown};
use crate::transfer::parse_content_range;

const PART: Expect =
    Expect { text: "206 (a part of the blob)", statuses: &[StatusCode::OK, StatusCode::PARTIAL_CONTENT] };

/// The bytes `range` of the blob at `url`. A registry without ranges sends the blob from its start, which is read up to the
/// range's end.
pub(crate) async fn fetch(session: &Session, url: &Url, range: Range<u64>) -> Result<Vec<u8>, RegistryError> {
    let Some(last) = range.end.checked_sub(1).filter(|last| *last >= range.start) else { return Ok(Vec::new()) };
    let mut tried = 0;
    loop {
        tried += 1;
        let ask = |request: reqwest::RequestBuilder| request.header(RANGE, format!("bytes={}-{last}", range.start));
        let part = match session.send_once(Method::GET, url, PART, ask).await {
            Ok(response) => gather(session, response, &range, last).await,
            Err(failure) => Err(failure),
        };
        match part {
            Ok(part) => return Ok(part),
            Err(failure) => session.wait_or_give_up(failure, tried).await?,
        }
    }
}

async fn gather(session: &Session, mut response: Response, range: &Range<u64>, last: u64) -> Result<Vec<u8>, Failure> {
    let url = response.url().clone();
    let mut at = 0;
    if response.status() == StatusCode::PARTIAL_CONTENT {
        let header = response.headers().get(reqwest::header::CONTENT_RANGE);
        let text = header.and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !matches!(parse_content_range(text), Some((first, to, _)) if first == range.start && to == last) {
            let problem = format!("asked for bytes {}-{last}, the answer has {text:?}", range.start);
            return Err(Failure::lasting(RegistryError::Protocol { url: shown(&url), problem }));
        }
        at = range.start;
    }
    let mut part = Vec::with_capacity(usize::try_from(range.end - range.start).unwrap_or(0).min(1 << 20));
    while at < range.end {
        let Some(chunk) = response.chunk().await.map_err(|error| Failure::broken(&url, &error))? else {
            return Err(Failure::again(&url, "the registry sent less than the part that was asked for"));
        };
        session.options.tell(Progress::Moved { bytes: chunk.len() as u64 });
        let after = at.saturating_add(chunk.len() as u64);
        let from = usize::try_from(range.start.saturating_sub(at)).unwrap_or(usize::MAX).min(chunk.len());
        let to = usize::try_from(range.end - at).unwrap_or(usize::MAX).min(chunk.len());
        part.extend_from_slice(chunk.get(from..to).unwrap_or_default());
        at = after;
    }
    Ok(part)
}
