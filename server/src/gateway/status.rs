//! How the gateway stands: `/` for people, `/status.json` for machines.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

use super::home::Home;
use super::registry::UpstreamStanding;
use super::{Gate, lock};
use crate::seals::Verdict;

/// Bundles that are shown.
const BUNDLES: usize = 200;
/// Nothing but what stands in the page itself.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;max-width:60rem;padding:1rem;color:#1a1a1a;background:#fff}\
h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.3rem 0}\
article{border:1px solid #ccc;border-radius:.4rem;padding:.6rem .8rem;margin:.5rem 0}article.bad{border-left:.4rem solid #b00020}\
article.good{border-left:.4rem solid #1b7f3b}code{font:.85em ui-monospace,monospace;overflow-wrap:anywhere}\
small{color:#555}dl{display:grid;grid-template-columns:max-content 1fr;gap:.1rem .8rem;margin:.3rem 0}dt{color:#555}dd{margin:0;overflow-wrap:anywhere}\
@media(prefers-color-scheme:dark){body{color:#eee;background:#161616}article{border-color:#444}small,dt{color:#aaa}}";

/// `/status.json`.
pub(super) async fn json(State(gate): State<Arc<Gate>>) -> Response {
    let standing = gate.standing().await;
    let mut response = axum::Json(standing).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// `/`.
pub(super) async fn page(State(gate): State<Arc<Gate>>) -> Response {
    let standing = gate.standing().await;
    let mut response = (StatusCode::OK, html(&standing)).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff"));
    response
}

impl Gate {
    async fn standing(self: &Arc<Self>) -> Value {
        let gate = Arc::clone(self);
        let judged = self.pool.run(move || {
            let all = gate.catalogue.bundles();
            let shown = all.iter().take(BUNDLES).map(|bundle| {
                let verdict = gate.judge.judge(bundle);
                let mut told = json!({
                    "name": bundle.index.name,
                    "version": bundle.index.version,
                    "digest": bundle.digest,
                    "modules": bundle.index.statistics.modules,
                    "homes": bundle.homes().iter().map(Home::name).collect::<Vec<_>>(),
                    "verification": verdict.to_json(),
                });
                if let (Verdict::Sealed(_), Some(told)) = (&verdict, told.as_object_mut()) {
                    told.insert("counts".to_owned(), json!(true));
                }
                told
            });
            (shown.collect::<Vec<Value>>(), all.len(), gate.judge.standing())
        });
        let Ok((bundles, known, trust)) = judged.await else { return json!({ "error": "interrupted" }) };
        let upstreams: Vec<UpstreamStanding> = self
            .registries
            .iter()
            .map(|registry| registry.standing())
            .chain(self.servers.iter().map(|server| server.standing()))
            .collect();
        let upstream = |upstream: &UpstreamStanding| {
            let UpstreamStanding { url, kind, problem, bundles } = upstream;
            json!({ "url": url, "kind": kind, "problem": problem, "bundles": bundles })
        };
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "seconds": self.began.elapsed().as_secs(),
            "served": self.served.load(Ordering::Relaxed),
            "on_the_way": lock(&self.flights).len(),
            "trust": { "policy_version": trust.policy.as_ref().ok(), "problem": trust.policy.as_ref().err(), "warnings": trust.warnings },
            "upstreams": upstreams.iter().map(upstream).collect::<Vec<_>>(),
            "bundles": bundles,
            "bundles_known": known,
            "refused": self.refusals.alarming(),
            "missed": self.refusals.misses(),
        })
    }
}

fn html(standing: &Value) -> String {
    let text = |value: &Value| {
        value.as_str().map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, str::to_owned)
    };
    let list = |name: &str| standing.get(name).and_then(Value::as_array).cloned().unwrap_or_default();
    let field = |value: &Value, name: &str| value.get(name).map(text).unwrap_or_default();
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width,initial-scale=1'>\
         <title>symseal gateway</title><style>{STYLE}</style><h1>symseal gateway</h1>"
    );
    let trust = standing.get("trust").cloned().unwrap_or_default();
    let problem = field(&trust, "problem");
    let whom = if problem.is_empty() {
        format!("policy version {}", escape(&field(&trust, "policy_version")))
    } else {
        format!("<b>nobody is trusted:</b> {}", escape(&problem))
    };
    let _ = write!(
        page,
        "<p>{} files given, {} on their way; {whom}. <small>Version {}, up for {} s; <a href='/status.json'>the same as JSON</a>.</small>",
        escape(&field(standing, "served")),
        escape(&field(standing, "on_the_way")),
        escape(&field(standing, "version")),
        escape(&field(standing, "seconds")),
    );
    for warning in trust.get("warnings").and_then(Value::as_array).into_iter().flatten() {
        let _ = write!(page, "<p><b>{}</b>", escape(&text(warning)));
    }
    refusals(&mut page, "Refused", "Offered, and not what a trusted seal says.", &list("refused"));
    page.push_str("<h2>Upstreams</h2>");
    for upstream in list("upstreams") {
        let problem = field(&upstream, "problem");
        let class = if problem.is_empty() { "good" } else { "bad" };
        let _ = write!(
            page,
            "<article class={class}><code>{}</code> <small>{}</small>",
            escape(&field(&upstream, "url")),
            escape(&field(&upstream, "kind"))
        );
        if !problem.is_empty() {
            let _ = write!(page, "<p>{}", escape(&problem));
        }
        page.push_str("</article>");
    }
    let _ = write!(page, "<h2>Bundles</h2><p>{} known.", escape(&field(standing, "bundles_known")));
    for bundle in list("bundles") {
        let verification = bundle.get("verification").cloned().unwrap_or_default();
        let status = field(&verification, "status");
        let class = if status == "sealed" { "good" } else { "bad" };
        let _ = write!(
            page,
            "<article class={class}>{} {} <small>{}</small><p><code>{}</code>",
            escape(&field(&bundle, "name")),
            escape(&field(&bundle, "version")),
            escape(&status),
            escape(&field(&bundle, "digest"))
        );
        if status == "refused" {
            let [check, expected, found] =
                ["check", "expected", "found"].map(|name| escape(&field(&verification, name)));
            let _ = write!(page, "<p>{check}: expected {expected}, found {found}");
        }
        page.push_str("</article>");
    }
    refusals(&mut page, "Missed", "Nobody offers a bundle that has these.", &list("missed"));
    page
}

fn refusals(page: &mut String, title: &str, what: &str, list: &[Value]) {
    let _ = write!(page, "<h2>{title}</h2><p><small>{what}</small>");
    if list.is_empty() {
        page.push_str("<p>Nothing.");
    }
    for refusal in list.iter().filter_map(|value| serde_json::from_value::<Shown>(value.clone()).ok()) {
        let class = if title == "Refused" { " class=bad" } else { "" };
        let Shown { at, asked, code, reason, upstream, bundle, expected, found, times } = refusal;
        let _ = write!(
            page,
            "<article{class}><code>{}</code> <small>{code}, {at}, {times}×</small><p>{}<dl>",
            escape(&asked),
            escape(&reason)
        );
        for (name, value) in [("upstream", upstream), ("bundle", bundle), ("expected", expected), ("found", found)] {
            if let Some(value) = value {
                let _ = write!(page, "<dt>{name}<dd><code>{}</code>", escape(&value));
            }
        }
        page.push_str("</dl></article>");
    }
}

/// A refusal as it is written.
#[derive(serde::Deserialize)]
struct Shown {
    at: String,
    asked: String,
    code: String,
    reason: String,
    upstream: Option<String>,
    bundle: Option<String>,
    expected: Option<String>,
    found: Option<String>,
    times: u64,
}

/// A text from outside as HTML shows it.
fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            character if character.is_control() => shown.push('\u{fffd}'),
            character => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::super::refusals::{Code, Refusal};
    use super::*;

    #[test]
    fn what_comes_from_outside_is_shown_and_does_nothing() {
        let refusal = Refusal::new(Code::WrongBytes, "<script>alert(1)</script>").asked("/buildid/\"><img src=x>");
        let page = html(
            &json!({ "refused": [refusal], "bundles": [{ "name": "<b>", "verification": { "status": "sealed" } }] }),
        );
        assert!(
            page.contains("&lt;script&gt;") && page.contains("wrong-bytes") && page.contains("&lt;b&gt;"),
            "{page}"
        );
        assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
    }
}
