//! `GET /metrics`: counts in the Prometheus text form.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};

use crate::access::Caller;
use crate::app::App;
use crate::metrics::single;
use crate::trees::TreeCounts;

/// The counts.
pub(crate) async fn get(State(app): State<Arc<App>>, Extension(caller): Extension<Caller>) -> Response {
    let content_type = HeaderValue::from_static("text/plain; version=0.0.4");
    let mut text = app.metrics.text(app.debug_files.len()) + &app.alerts.metrics() + &app.limits.metrics();
    // What it says is by repository.
    if app.access.may_watch(&caller) {
        text.push_str(&app.quotas.metrics(&app.repositories));
    }
    let mut write = |name: &str, kind: &str, help: &str, value: u64| {
        single(&mut text, &format!("symseal_{name}"), kind, help, value);
    };
    let (files, bytes) = app.cache.filled();
    write("cache_files", "gauge", "Files in the cache of what was made or fetched.", files);
    write("cache_bytes", "gauge", "Their bytes.", bytes);
    write("cache_capacity_bytes", "gauge", "Bytes that they may have.", app.cache.capacity());
    if let Some(follower) = &app.follower {
        let (unread, believed) = follower.unread();
        write("changes_unread", "gauge", "What other servers changed and could not be read yet.", unread);
        write(
            "changes_given_up_total",
            "counter",
            "What was read so often in vain that it is taken for gone or damaged.",
            believed,
        );
    }
    if let Some((open, most, sent_away)) = app.crowd.get().map(|crowd| crowd.counts()) {
        write("connections", "gauge", "Connections that are open.", open as u64);
        write(
            "connections_capacity",
            "gauge",
            "Connections that the limit of open files leaves room for.",
            most as u64,
        );
        write("connections_sent_away_total", "counter", "Connections without a request, closed for others.", sent_away);
    }
    if let Some(trees) = app.trees.get() {
        let TreeCounts { files, keys, bombs, passed_over, broken_off, too_deep } = trees.counts();
        write("tree_files", "gauge", "Files with a debug id in the directories that are served.", files.into());
        write("tree_keys", "gauge", "What they can be asked for by.", keys.into());
        write("tree_bombs_total", "counter", "Archives that come to too much.", bombs);
        write("tree_members_passed_over_total", "counter", "Members of archives that are not read.", passed_over);
        write("tree_archives_broken_off_total", "counter", "Archives that are damaged.", broken_off);
        write("tree_folders_too_deep", "gauge", "Folders that lie too deep to be read.", too_deep);
    }
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}
