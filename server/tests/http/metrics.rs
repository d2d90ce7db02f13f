//! `/metrics` beside that of elfutils' server, after the same requests.

use std::collections::BTreeMap;

use crate::support::debuginfod::Debuginfod;
use crate::support::programs::{has, publish};
use crate::support::upstreams::compile;
use crate::support::{Running, http};
use reqwest::header::ACCEPT_ENCODING;
use symseal_server::{Config, Origins, QuotaConfig, Server};

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

/// Whether the samples of a metric have these names: those of histograms and summaries have more than one.
fn is_of(sample: &str, name: &str, kind: &str) -> bool {
    let more: &[&str] = match kind {
        "histogram" => &["_bucket", "_sum", "_count"],
        "summary" => &["", "_sum", "_count"],
        _ => &[""],
    };
    more.iter().any(|more| sample == format!("{name}{more}"))
}

#[tokio::test]
async fn every_metric_is_one_group_of_lines_with_its_help_and_its_type_before() {
    let root = tempfile::tempdir().unwrap();
    let tree = root.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    let mut config = Config::new(root.path().join("data"), ([127, 0, 0, 1], 0).into());
    config.limits.upload = Some(1 << 30);
    config.limits.read_per_hour = Some(1 << 30);
    config.limits.write_per_hour = Some(1 << 30);
    config.quotas = ["*", "team"]
        .map(|prefix| QuotaConfig { prefix: prefix.parse().unwrap(), bytes: Some(1 << 30), bundles: Some(9) })
        .to_vec();
    let origins = Origins { trees: vec![tree], ..Origins::default() };
    let server = Running::run(Server::bind(config).await.unwrap().with_origins(&origins).unwrap());
    for path in
        ["/buildid/abcd/debuginfo", "/buildid/abcd/executable", "/metadata?key=glob&value=*", "/v2/", "/metrics"]
    {
        http().get(server.url(path)).send().await.unwrap();
    }
    let text = http().get(server.url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(text.ends_with('\n') && text.lines().any(|line| line == "ready 1"), "{text}");
    let mut seen = std::collections::BTreeSet::new();
    let (mut help, mut now) = (None, None);
    for line in text.lines() {
        if let Some((name, said)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            assert!(seen.insert(name) && !said.is_empty(), "{line}");
            help = Some(name);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            assert_eq!(help, Some(name), "{line}");
            assert!(["counter", "gauge", "histogram", "summary"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            now = Some((name, kind));
        } else {
            let (name, kind) = now.expect(line);
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let sample = sample.split('{').next().unwrap();
            assert!(is_of(sample, name, kind), "{line} among those of {name}");
            assert!(sample.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line}");
            value.parse::<f64>().unwrap();
        }
    }
    for name in ["http_responses_duration_milliseconds", "symseal_http_response_seconds", "symseal_quota_bytes_held"] {
        assert!(seen.contains(name), "{name}: {seen:?}");
    }
    server.stop().await;
}
