//! The tags of a repository (distribution-spec, "Listing Tags").

use reqwest::{Method, StatusCode};
use serde::Deserialize;

use crate::RegistryError;
use crate::referrers::next_page;
use crate::session::{Expect, Session};
use crate::transfer::gather;

/// Pages of the list that are followed, and tags that are taken: a registry must not keep us for ever.
const PAGES_LIMIT: usize = 1000;
const TAGS_LIMIT: usize = 100_000;
/// The largest page, in bytes: a thousand tags of 128 bytes are a part of it.
const PAGE_BYTES_LIMIT: u64 = 16 << 20;

const LISTED_OR_NOT: Expect =
    Expect { text: "200 or 404 (the tags, or none)", statuses: &[StatusCode::OK, StatusCode::NOT_FOUND] };

#[derive(Deserialize)]
struct Page {
    /// Some registries say `null` where there is none.
    tags: Option<Vec<String>>,
}

/// Every tag; none where there is no such repository. What is no tag is left out.
pub(crate) async fn list(session: &Session) -> Result<Vec<String>, RegistryError> {
    let mut url = session.url("tags/list")?;
    let mut tags: Vec<String> = Vec::new();
    for _ in 0..PAGES_LIMIT {
        let response = session.send(Method::GET, &url, LISTED_OR_NOT, |request| request).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Ok(tags);
        }
        let next = next_page(response.url(), response.headers());
        let bytes = gather(response, PAGE_BYTES_LIMIT).await.map_err(|failure| failure.into_error(1))?;
        let wrong = |problem: String| RegistryError::Protocol { url: url.to_string(), problem };
        let page: Page = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        tags.extend(page.tags.unwrap_or_default().into_iter().filter(|tag| symseal_bundle::is_tag(tag)));
        if tags.len() > TAGS_LIMIT {
            return Err(wrong(format!("more than {TAGS_LIMIT} tags in one repository")));
        }
        match next {
            Some(next) if next != url => url = next,
            _ => return Ok(tags),
        }
    }
    Err(RegistryError::Protocol { url: url.to_string(), problem: format!("more than {PAGES_LIMIT} pages of tags") })
}
