//! `GET /v2/<name>/tags/list`: a repository's tags, in ASCII order.

use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{Code, OciError, Page};
use crate::app::App;
use crate::repositories::RepositoryName;

/// One page of tags.
pub(crate) fn get(app: &App, name: &RepositoryName, query: Option<&str>) -> Result<Response, OciError> {
    let page = Page::parse(query)?;
    let repository =
        app.repositories.get(name).filter(|repository| !repository.is_empty()).ok_or_else(|| {
            OciError::new(Code::NameUnknown, format!("{name}: nothing was pushed to this repository"))
        })?;
    let (tags, more) = repository.tags(page.last.as_deref(), page.limit);
    let headers = match tags.last() {
        Some(last) if more => page.link(&format!("/v2/{name}/tags/list"), last.as_str()),
        _ => HeaderMap::new(),
    };
    let tags: Vec<&str> = tags.iter().map(|tag| tag.as_str()).collect();
    Ok((headers, app.memory.json(&json!({ "name": name.as_str(), "tags": tags }))?).into_response())
}
