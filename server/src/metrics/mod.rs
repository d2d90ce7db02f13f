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
        let mut text = String::new();
        // Scripts that watch debuginfod servers look for this line.
        single(&mut text, "ready", "gauge", "Whether the server answers.", 1);
        self.debuginfod.write(&mut text);
        family(&mut text, "symseal_http_responses_total", "counter", "Answers, by API and class of status.");
        for ((_, face), row) in FACES.iter().zip(&self.answers) {
            for (class, counter) in CLASSES.iter().zip(row) {
                let count = counter.load(Ordering::Relaxed);
                // Writing to a String cannot fail.
                let _ = writeln!(text, "symseal_http_responses_total{{face=\"{face}\",code=\"{class}xx\"}} {count}");
            }
        }
        let help = "Seconds until the head of an answer was there, by API.";
        family(&mut text, "symseal_http_response_seconds", "histogram", help);
        for ((_, face), times) in FACES.iter().zip(&self.times) {
            times.write(&mut text, face);
        }
        for (name, counter, help) in [
            ("symseal_requests_limited_total", &self.limited, "Requests beyond the limits of their callers."),
            (
                "symseal_audit_lines_lost_total",
                &self.audit_lines_lost,
                "Changes of which the database took no line of the audit log.",
            ),
            ("symseal_blobs_stored_total", &self.blobs_stored, "Blobs that came in."),
            ("symseal_blob_bytes_stored_total", &self.blob_bytes_stored, "Their bytes."),
            ("symseal_bundles_published_total", &self.bundles_published, "Bundles that became visible."),
            ("symseal_log_entries_total", &self.log_entries, "Entries of the transparency log."),
            ("symseal_log_rounds_total", &self.log_rounds, "Rounds in which entries were logged."),
            ("symseal_collections_total", &self.collections, "Rounds of the collector."),
            ("symseal_blobs_collected_total", &self.blobs_collected, "Blobs that it removed."),
            ("symseal_blob_bytes_collected_total", &self.blob_bytes_collected, "Their bytes."),
            ("symseal_retention_rounds_total", &self.retention_rounds, "Rounds of retention."),
            ("symseal_bundles_retired_total", &self.bundles_retired, "Bundles that went in them."),
        ] {
            single(&mut text, name, "counter", help, counter.load(Ordering::Relaxed));
        }
        single(&mut text, "symseal_build_ids", "gauge", "Debug ids that have a file.", build_ids as u64);
        if let Some((blobs, bytes)) = *self.held.lock().unwrap_or_else(PoisonError::into_inner) {
            single(&mut text, "symseal_store_blobs", "gauge", "Blobs in the store when it was last counted.", blobs);
            single(&mut text, "symseal_store_bytes", "gauge", "Their bytes.", bytes);
        }
        text
    }
}

/// The head of a metric's lines, which all stand behind it (the text form of Prometheus, 0.0.4).
pub(crate) fn family(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// A metric of one line.
pub(crate) fn single(text: &mut String, name: &str, kind: &str, help: &str, value: u64) {
    family(text, name, kind, help);
    let _ = writeln!(text, "{name} {value}");
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
        assert!(text.contains("\nready 1\n"));
    }
}
