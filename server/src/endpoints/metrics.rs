//! `GET /metrics`: counts in the Prometheus text form.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::access::Caller;
use crate::app::App;
use crate::trees::TreeCounts;

/// The counts.
pub(crate) async fn get(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4");
    let mut text = app.metrics.text(app.debug_files.len()) + &app.alerts.metrics() + &app.limits.metrics();
    // What it says is by repository.
    if app.access.may_watch(&caller) {
        text.push_str(&app.quotas.metrics(&app.repositories));
    }
    let mut write = |name: &str, kind: &str, value: u64| {
        text.push_str(&format!("# TYPE symseal_{name} {kind}\nsymseal_{name} {value}\n"));
    };
    let (files, bytes) = app.cache.filled();
    write("cache_files", "gauge", files);
    write("cache_bytes", "gauge", bytes);
    write("cache_capacity_bytes", "gauge", app.cache.capacity());
    if let Some(trees) = app.trees.get() {
        let TreeCounts { files, keys, bombs, passed_over, broken_off, too_deep } = trees.counts();
        write("tree_files", "gauge", files.into());
        write("tree_keys", "gauge", keys.into());
        write("tree_bombs_total", "counter", bombs);
        write("tree_members_passed_over_total", "counter", passed_over);
        write("tree_archives_broken_off_total", "counter", broken_off);
        write("tree_folders_too_deep", "gauge", too_deep);
    }
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}
