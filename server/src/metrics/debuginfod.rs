//! The counts of debuginfod requests under the names that elfutils' server gives them (debuginfod(8), "/metrics"), so that dashboards and alerts
//! made for it go on working.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;

use super::family;

/// What a request is for: elfutils' word for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind(&'static str);

/// Those of files stand behind a build-id.
const KINDS: [&str; 6] = ["debuginfo", "executable", "section", "source", "metadata", METRICS];
const FILES: usize = 4;
const METRICS: &str = "metrics";

impl Kind {
    /// Of a path without prefix and token; `None` where elfutils' server has no such path. What it has and does not understand has no name.
    pub(crate) fn of(path: &str) -> Option<Self> {
        match path {
            "/metadata" => Some(Self("metadata")),
            "/metrics" => Some(Self(METRICS)),
            _ => {
                let word = path.strip_prefix("/buildid/")?.split('/').nth(1);
                let kind = KINDS.into_iter().take(FILES).find(|kind| Some(*kind) == word);
                Some(Self(kind.unwrap_or_default()))
            }
        }
    }
}

/// Answers of one status and kind.
#[derive(Debug, Default)]
struct Answers {
    count: u64,
    time: Duration,
    bytes: u64,
}

/// The counters.
#[derive(Debug, Default)]
pub(super) struct DebuginfodMetrics {
    requests: [AtomicU64; KINDS.len()],
    /// Statuses are few, and so are kinds.
    answers: Mutex<BTreeMap<(u16, Kind), Answers>>,
}

impl DebuginfodMetrics {
    /// A request came in.
    pub(super) fn asked(&self, kind: Kind) {
        let place = KINDS.iter().position(|name| *name == kind.0);
        if let Some(counter) = place.and_then(|place| self.requests.get(place)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The head of its answer was there after a time, and announced so many bytes.
    pub(super) fn answered(&self, kind: Kind, status: StatusCode, time: Duration, bytes: u64) {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let of_these = answers.entry((status.as_u16(), kind)).or_default();
        of_these.count = of_these.count.saturating_add(1);
        of_these.time = of_these.time.saturating_add(time);
        of_these.bytes = of_these.bytes.saturating_add(bytes);
    }

    /// In the Prometheus text form.
    pub(super) fn write(&self, text: &mut String) {
        family(text, "http_requests_total", "counter", "Requests that debuginfod knows, by what they are for.");
        for (kind, count) in KINDS.iter().zip(&self.requests) {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "http_requests_total{{type=\"{kind}\"}} {}", count.load(Ordering::Relaxed));
        }
        let answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let is_file = |status: u16| (200..300).contains(&status);
        family(text, "http_responses_total", "counter", "Answers to them, by whether they are files.");
        for (result, files) in [("file", true), ("error", false)] {
            let counts =
                answers.iter().filter(|((status, Kind(kind)), _)| is_file(*status) == files && *kind != METRICS);
            let count: u64 = counts.map(|(_, answers)| answers.count).sum();
            let _ = writeln!(text, "http_responses_total{{result=\"{result}\"}} {count}");
        }
        let millis = |answers: &Answers| answers.time.as_secs_f64() * 1000.0;
        let help = "Milliseconds until their heads were there.";
        summary(text, "http_responses_duration_milliseconds", help, &answers, &millis);
        let bytes = |answers: &Answers| answers.bytes as f64;
        summary(text, "http_responses_transfer_bytes", "Bytes that they announced.", &answers, &bytes);
    }
}

fn summary(
    text: &mut String,
    name: &str,
    help: &str,
    answers: &BTreeMap<(u16, Kind), Answers>,
    sum: &dyn Fn(&Answers) -> f64,
) {
    family(text, name, "summary", help);
    for ((status, Kind(kind)), of_these) in answers {
        let labels = format!("{{code=\"{status}\",type=\"{kind}\"}}");
        let (count, sum) = (of_these.count, sum(of_these));
        let _ = writeln!(text, "{name}_count{labels} {count}\n{name}_sum{labels} {sum}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_of_the_kind_that_its_path_says() {
        for (path, expected) in [
            ("/buildid/ab/debuginfo", Some("debuginfo")),
            ("/buildid/ab/source//usr/executable", Some("source")),
            ("/buildid/ab/section/.text", Some("section")),
            ("/buildid/ab", Some("")),
            ("/buildid/ab/metrics/", Some("")),
            ("/metadata", Some("metadata")),
            ("/metrics", Some("metrics")),
            ("/", None),
            ("/v2/a/manifests/debuginfo", None),
        ] {
            assert_eq!(Kind::of(path), expected.map(Kind), "{path}");
        }
    }
}
