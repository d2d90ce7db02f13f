//! Counts since the start, for `/metrics`.

mod debuginfod;

pub(crate) use debuginfod::Kind;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;

use debuginfod::DebuginfodMetrics;

/// Which part of the API answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Face {
    /// `/v2/`
    Oci,
    /// `/buildid/`
    Debuginfod,
    /// `/symbols/`
    Symbols,
    /// `/symbolicate/`
    Symbolicate,
    /// `/api/`
    Api,
    /// The rest.
    Other,
}

const FACES: [(Face, &str); 6] = [
    (Face::Oci, "oci"),
    (Face::Debuginfod, "debuginfod"),
    (Face::Symbols, "symbols"),
    (Face::Symbolicate, "symbolicate"),
    (Face::Api, "api"),
    (Face::Other, "other"),
];

/// Classes of status: 2xx, 3xx, 4xx, 5xx.
const CLASSES: [u16; 4] = [2, 3, 4, 5];

/// Upper bounds of the buckets of times, in microseconds: from a lookup in memory to a large extraction.
const TIMES: [u64; 12] = [50, 100, 250, 500, 1_000, 5_000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000, 60_000_000];

/// Times until an answer's head was there.
#[derive(Debug, Default)]
struct Histogram {
    /// One more than there are bounds: what took longer.
    buckets: [AtomicU64; TIMES.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    fn record(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let at = TIMES.iter().position(|bound| micros <= *bound).unwrap_or(TIMES.len());
        if let Some(bucket) = self.buckets.get(at) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn write(&self, text: &mut String, face: &str) {
        let name = "symseal_http_response_seconds";
        let mut count = 0;
        for (bound, bucket) in TIMES.iter().map(Some).chain([None]).zip(&self.buckets) {
            count += bucket.load(Ordering::Relaxed);
            let bound = bound.map_or("+Inf".to_owned(), |micros| (*micros as f64 / 1e6).to_string());
            let _ = writeln!(text, "{name}_bucket{{face=\"{face}\",le=\"{bound}\"}} {count}");
        }
        let sum = self.micros.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_sum{{face=\"{face}\"}} {sum}\n{name}_count{{face=\"{face}\"}} {count}");
    }
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    answers: [[AtomicU64; CLASSES.len()]; FACES.len()],
    times: [Histogram; FACES.len()],
    debuginfod: DebuginfodMetrics,
    limited: AtomicU64,
    audit_lines_lost: AtomicU64,
    blobs_stored: AtomicU64,
    blob_bytes_stored: AtomicU64,
    bundles_published: AtomicU64,
    log_entries: AtomicU64,
    log_rounds: AtomicU64,
    collections: AtomicU64,
    blobs_collected: AtomicU64,
    blob_bytes_collected: AtomicU64,
    /// Blobs and bytes, when this server counted them last.
    held: Mutex<Option<(u64, u64)>>,
    retention_rounds: AtomicU64,
    bundles_retired: AtomicU64,
}

impl Metrics {
    /// A caller asked for more than it may.
    pub(crate) fn limited(&self) {
        self.limited.fetch_add(1, Ordering::Relaxed);
    }

    /// A change was made, and the database did not take its line of the audit log.
    pub(crate) fn audit_line_lost(&self) {
        self.audit_lines_lost.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer's head was there after a time.
    pub(crate) fn answered(&self, face: Face, status: StatusCode, time: Duration) {
        let row = FACES.iter().position(|(other, _)| *other == face);
        let column = CLASSES.iter().position(|class| *class == status.as_u16() / 100);
        if let (Some(row), Some(column)) = (row, column)
            && let Some(counter) = self.answers.get(row).and_then(|row| row.get(column))
        {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(times) = row.and_then(|row| self.times.get(row)) {
            times.record(time);
        }
    }

    /// A request came in that elfutils' server knows too.
    pub(crate) fn asked(&self, kind: Kind) {
        self.debuginfod.asked(kind);
    }

    /// Its answer, with the bytes that it announced.
    pub(crate) fn answered_as_debuginfod(&self, kind: Kind, status: StatusCode, time: Duration, bytes: u64) {
        self.debuginfod.answered(kind, status, time, bytes);
    }

    /// A blob came in.
    pub(crate) fn blob_stored(&self, bytes: u64) {
        self.blobs_stored.fetch_add(1, Ordering::Relaxed);
        self.blob_bytes_stored.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A bundle became visible.
    pub(crate) fn bundle_published(&self) {
        self.bundles_published.fetch_add(1, Ordering::Relaxed);
    }

    /// Entries were logged in one round.
    pub(crate) fn logged(&self, entries: u64) {
        self.log_entries.fetch_add(entries, Ordering::Relaxed);
        self.log_rounds.fetch_add(u64::from(entries > 0), Ordering::Relaxed);
    }

    /// A round of the collector ended.
    pub(crate) fn collected(&self, collected: &crate::Collected) {
        self.collections.fetch_add(1, Ordering::Relaxed);
        self.blobs_collected.fetch_add(collected.blobs, Ordering::Relaxed);
        self.blob_bytes_collected.fetch_add(collected.bytes, Ordering::Relaxed);
    }

    /// The store has so many blobs, and bytes in them.
    pub(crate) fn store_holds(&self, blobs: u64, bytes: u64) {
        *self.held.lock().unwrap_or_else(PoisonError::into_inner) = Some((blobs, bytes));
    }

    /// A round of retention ended, in which so many bundles went.
    pub(crate) fn retained(&self, gone: u64) {
        self.retention_rounds.fetch_add(1, Ordering::Relaxed);
        self.bundles_retired.fetch_add(gone, Ordering::Relaxed);
    }

    /// The Prometheus text form. `build_ids`: how many have a file now.
    pub(crate) fn text(&self, build_ids: usize) -> String {
        // Scripts that watch debuginfod servers look for this line.
        let mut text = String::from("ready 1\n");
        self.debuginfod.write(&mut text);
        text.push_str("# TYPE symseal_http_responses_total counter\n");
        for ((_, face), row) in FACES.iter().zip(&self.answers) {
            for (class, counter) in CLASSES.iter().zip(row) {
                let count = counter.load(Ordering::Relaxed);
                // Writing to a String cannot fail.
                let _ = writeln!(text, "symseal_http_responses_total{{face=\"{face}\",code=\"{class}xx\"}} {count}");
            }
        }
        text.push_str("# TYPE symseal_http_response_seconds histogram\n");
        for ((_, face), times) in FACES.iter().zip(&self.times) {
            times.write(&mut text, face);
        }
        for (name, kind, value) in [
            ("symseal_requests_limited_total", "counter", self.limited.load(Ordering::Relaxed)),
            ("symseal_audit_lines_lost_total", "counter", self.audit_lines_lost.load(Ordering::Relaxed)),
            ("symseal_blobs_stored_total", "counter", self.blobs_stored.load(Ordering::Relaxed)),
            ("symseal_blob_bytes_stored_total", "counter", self.blob_bytes_stored.load(Ordering::Relaxed)),
            ("symseal_bundles_published_total", "counter", self.bundles_published.load(Ordering::Relaxed)),
            ("symseal_log_entries_total", "counter", self.log_entries.load(Ordering::Relaxed)),
            ("symseal_log_rounds_total", "counter", self.log_rounds.load(Ordering::Relaxed)),
            ("symseal_collections_total", "counter", self.collections.load(Ordering::Relaxed)),
            ("symseal_blobs_collected_total", "counter", self.blobs_collected.load(Ordering::Relaxed)),
            ("symseal_blob_bytes_collected_total", "counter", self.blob_bytes_collected.load(Ordering::Relaxed)),
            ("symseal_retention_rounds_total", "counter", self.retention_rounds.load(Ordering::Relaxed)),
            ("symseal_bundles_retired_total", "counter", self.bundles_retired.load(Ordering::Relaxed)),
            ("symseal_build_ids", "gauge", build_ids as u64),
        ] {
            let _ = writeln!(text, "# TYPE {name} {kind}\n{name} {value}");
        }
        if let Some((blobs, bytes)) = *self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            for (name, value) in [("symseal_store_blobs", blobs), ("symseal_store_bytes", bytes)] {
                let _ = writeln!(text, "# TYPE {name} gauge\n{name} {value}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_face_and_class() {
        let metrics = Metrics::default();
        metrics.answered(Face::Debuginfod, StatusCode::NOT_FOUND, Duration::from_micros(40));
        metrics.answered(Face::Debuginfod, StatusCode::GONE, Duration::from_secs(100));
        metrics.answered(Face::Oci, StatusCode::OK, Duration::from_millis(1));
        metrics.blob_stored(7);
        let text = metrics.text(3);
        assert!(text.contains("symseal_http_responses_total{face=\"debuginfod\",code=\"4xx\"} 2\n"), "{text}");
        assert!(text.contains("symseal_http_responses_total{face=\"oci\",code=\"2xx\"} 1\n"));
        assert!(text.contains("symseal_blob_bytes_stored_total 7\n"));
        assert!(text.contains("symseal_build_ids 3\n"));
        assert!(
            text.contains("symseal_http_response_seconds_bucket{face=\"debuginfod\",le=\"0.00005\"} 1\n"),
            "{text}"
        );
        assert!(text.contains("symseal_http_response_seconds_bucket{face=\"debuginfod\",le=\"60\"} 1\n"));
        assert!(text.contains("symseal_http_response_seconds_bucket{face=\"debuginfod\",le=\"+Inf\"} 2\n"));
        assert!(text.contains("symseal_http_response_seconds_count{face=\"oci\"} 1\n"));
        assert!(text.starts_with("ready 1\n"));
    }
}
