//! `GET /v2/_catalog`: the repositories that have a manifest, as far as the caller may read them.

use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::{OciError, Page};
use crate::access::Caller;
use crate::app::App;

/// One page of repository names.
pub(crate) fn get(app: &App, caller: &Caller, query: Option<&str>) -> Result<Response, OciError> {
    let page = Page::parse(query)?;
    let mut names = app
        .repositories
        .list()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| caller.may_see(name))
        .filter(|name| page.last.as_deref().is_none_or(|last| name.as_str() > last));
    let found: Vec<_> = names.by_ref().take(page.limit).collect();
    let more = names.next().is_some();
    let headers = match found.last() {
        Some(last) if more => page.link("/v2/_catalog", last.as_str()),
        _ => HeaderMap::new(),
    };
    let names: Vec<&str> = found.iter().map(|name| name.as_str()).collect();
    Ok((headers, app.memory.json(&json!({ "repositories": names }))?).into_response())
}
