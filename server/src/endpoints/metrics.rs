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
    if let Some(trees) = app.trees.get() {
        let TreeCounts { files, keys, bombs, broken_off } = trees.counts();
        for (name, kind, value) in [
            ("files", "gauge", files.into()),
            ("keys", "gauge", keys.into()),
            ("bombs_total", "counter", bombs),
            ("archives_broken_off_total", "counter", broken_off),
        ] {
            text.push_str(&format!("# TYPE symseal_tree_{name} {kind}\nsymseal_tree_{name} {value}\n"));
        }
    }
    ([(header::CONTENT_TYPE, content_type)], text).into_response()
}
