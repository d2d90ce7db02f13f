//! `GET /api/v1/audit`: what was changed, by whom.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};

use super::ApiError;
use crate::access::{Caller, Grant};
use crate::app::App;
use crate::http::query_values;
use crate::store::AuditRow;

/// Lines in an answer when the client names no number, and at most.
const LINES: u32 = 1000;

/// `?after=NUMBER&n=LINES`: the lines after a number, the oldest first.
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    if !caller.may_read_audit() {
        return Err(ApiError::forbidden(&Grant::ReadAudit));
    }
    let after: u64 = number(query.as_deref(), "after")?.unwrap_or(0);
    let lines =
        number(query.as_deref(), "n")?.map_or(LINES, |lines: u64| u32::try_from(lines).map_or(LINES, |n| n.min(LINES)));
    // What SQL can hold.
    let after = after.min(i64::MAX.cast_unsigned());
    let entries = app.store.audit(after, lines).await?;
    let entries: Vec<Value> = entries.iter().map(|(number, entry)| line(*number, entry)).collect();
    Ok(app.memory.json(&json!({ "entries": entries }))?)
}

fn number(query: Option<&str>, name: &str) -> Result<Option<u64>, ApiError> {
    let Some(text) = query_values(query, name).pop() else { return Ok(None) };
    let wrong =
        |_| ApiError::new(StatusCode::BAD_REQUEST, "query-invalid", format!("{name}={text}: expected a number"));
    text.parse().map(Some).map_err(wrong)
}

fn line(number: u64, entry: &AuditRow) -> Value {
    json!({
        "number": number,
        "at": entry.at.to_string(),
        "request_id": entry.request_id,
        "token": entry.token,
        "address": entry.address,
        "method": entry.method,
        "path": entry.path,
        "digest": entry.digest,
        "status": entry.status,
    })
}
