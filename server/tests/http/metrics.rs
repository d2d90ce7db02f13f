//! `/metrics` beside that of elfutils' server, after the same requests.

use std::collections::BTreeMap;

use crate::support::debuginfod::Debuginfod;
use crate::support::programs::{has, publish};
use crate::support::upstreams::compile;
use crate::support::{Running, http};
use reqwest::header::ACCEPT_ENCODING;
use symseal_server::Origins;

const ID: &str = "abcdef04abcdef04abcdef04abcdef04abcdef04";

/// What dashboards of debuginfod servers show.
const COUNTS: [&str; 4] = [
    "http_requests_total{",
    "http_responses_total{",
    "http_responses_duration_milliseconds_count{",
    "http_responses_transfer_bytes_",
];

/// Names with their labels, and values.
async fn metrics(base: &str) -> BTreeMap<String, f64> {
    let text = http().get(format!("{base}/metrics")).send().await.unwrap().text().await.unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn requests_are_counted_under_the_names_of_elfutils_server() {
    if !["cc", "debuginfod"].into_iter().all(has) {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("files");
    std::fs::create_dir_all(&folder).unwrap();
    let binary = compile(&folder, "app", ID, 50_000);
    let theirs = Debuginfod::start(&folder, &root.path().join("database")).await;
    let origins = Origins { source_roots: vec!["/".into()], ..Origins::default() };
    let ours = Running::start_with(&root.path().join("data"), &origins).await;
    publish(&ours, root.path(), "1", &[&binary]).await;

    let before = metrics(&theirs.url).await;
    let source = folder.join("app.c");
    let bases = [theirs.url.clone(), ours.url("")];
    for path in [
        format!("/buildid/{ID}/debuginfo"),
        format!("/buildid/{ID}/debuginfo"),
        format!("/buildid/{ID}/executable"),
        format!("/buildid/{ID}/section/.text"),
        format!("/buildid/{ID}/source{}", source.display()),
        format!("/buildid/{}/debuginfo", "00".repeat(20)),
    ] {
        for base in &bases {
            // As it is, for we compress what is asked for again. The body, before the next request: who counts at its end has counted it.
            let asked = http().get(format!("{base}{path}")).header(ACCEPT_ENCODING, "identity");
            asked.send().await.unwrap().bytes().await.unwrap();
        }
    }
    let (theirs, ours) = (metrics(&theirs.url).await, metrics(&ours.url("")).await);
    // Of an answer's text each server has its own, and of questions for its metrics.
    let is_own =
        |name: &str| name.contains("type=\"metrics\"") || (name.contains("bytes_sum{") && name.contains("\"404\""));
    let wanted: Vec<&String> =
        theirs.keys().filter(|name| COUNTS.iter().any(|count| name.starts_with(count)) && !is_own(name)).collect();
    assert!(wanted.len() >= 4 + 2 + 3 * 5 - 1, "{wanted:?}");
    for name in wanted {
        let asked_now = theirs[name] - before.get(name).copied().unwrap_or_default();
        assert_eq!(ours.get(name), Some(&asked_now), "{name}");
    }
    assert_eq!((theirs["ready"], ours["ready"]), (1.0, 1.0));
}
