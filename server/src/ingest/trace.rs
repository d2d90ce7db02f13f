//! The rows of a trace, from its events.

use std::collections::HashSet;
use std::io::Read;
use std::sync::Arc;

use symseal_trace::{Event, EventReader, Limits, ReadError, ReplayResult, ResolvedRow, TraceBegin, TraceCapture};
use uuid::Uuid;

use crate::app::App;
use crate::store::{FrameRow, ReplayRow, StoreError, TraceRow, TraceRows};

/// Bounds on a trace that is sent to a server; a stream may be compressed.
const LIMITS: Limits = Limits {
    line_bytes: 64 << 20,
    total_bytes: 1 << 30,
    modules: 1 << 16,
    code: 1 << 18,
    jit: 1 << 18,
    samples: 1 << 18,
    segments: 64,
    registers: 256,
    unknown_bytes: 16 << 20,
};

/// Frames that are recorded of one trace.
const FRAMES_LIMIT: usize = 1 << 20;

/// Replays that are recorded of one trace.
const REPLAYS_LIMIT: usize = 1 << 12;

/// Why events are no trace that can be recorded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RefusedTrace {
    /// They cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An event of another trace.
    #[error("an event {kind} belongs to the trace {found}, expected {expected}")]
    OtherTrace {
        /// The event's kind.
        kind: &'static str,
        /// Its trace.
        found: Uuid,
        /// The trace in the request.
        expected: Uuid,
    },
    /// Nothing says what the trace is.
    #[error("expected a trace.begin or a trace.capture among the events, found neither")]
    NoCapture,
    /// More than is recorded.
    #[error("the trace has more than {limit} {what}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// The bound.
        limit: usize,
    },
    /// Two frames with one ordinal.
    #[error("two frames of the trace have the frame_index {0}")]
    FrameTwice(u64),
}

/// Reads a trace's events. Of several `trace.resolved` the last counts. `blob_sha256` is their blob's digest.
pub(crate) fn read_trace(events: impl Read, id: Uuid, blob_sha256: String) -> Result<TraceRows, RefusedTrace> {
    let (mut begin, mut capture, mut replays) = (None, None, Vec::new());
    let (mut frames, mut bundle) = (Vec::new(), None);
    let mut replay_ids = HashSet::new();
    for event in EventReader::new(events, &id.to_string(), LIMITS)? {
        match event? {
            Event::Begin(event) => {
                same_trace("trace.begin", event.trace_id, id)?;
                begin = Some(event);
            }
            Event::Capture(event) => {
                same_trace("trace.capture", event.trace_id, id)?;
                capture = Some(event);
            }
            Event::Resolved(event) => {
                same_trace("trace.resolved", event.trace_id, id)?;
                bound(event.frames.len(), FRAMES_LIMIT, "frames")?;
                frames = frame_rows(&event.frames)?;
                bundle = event.bundle;
            }
            Event::ReplayResult(event) => {
                same_trace("replay.result", event.trace_id, id)?;
                bound(replays.len() + 1, REPLAYS_LIMIT, "replays")?;
                if replay_ids.insert(event.replay_id) {
                    replays.push(replay_row(event));
                }
            }
            _ => {}
        }
    }
    let trace = trace_row(id, begin, capture, bundle, blob_sha256).ok_or(RefusedTrace::NoCapture)?;
    Ok(TraceRows { trace, frames, replays })
}

fn same_trace(kind: &'static str, found: Uuid, expected: Uuid) -> Result<(), RefusedTrace> {
    if found == expected { Ok(()) } else { Err(RefusedTrace::OtherTrace { kind, found, expected }) }
}

fn bound(found: usize, limit: usize, what: &'static str) -> Result<(), RefusedTrace> {
    if found > limit { Err(RefusedTrace::TooMany { what, limit }) } else { Ok(()) }
}

fn trace_row(
    trace_id: Uuid,
    begin: Option<TraceBegin>,
    capture: Option<TraceCapture>,
    bundle: Option<String>,
    blob_sha256: String,
) -> Option<TraceRow> {
    if begin.is_none() && capture.is_none() {
        return None;
    }
    let (begin, known) = (begin.unwrap_or_default(), capture.unwrap_or_default());
    let first =
        |one: String, other: String| Some(if one.is_empty() { other } else { one }).filter(|text| !text.is_empty());
    Some(TraceRow {
        trace_id,
        platform: first(begin.platform, known.platform).unwrap_or_default(),
        captured_at: first(begin.captured_at, known.captured_at),
        build_id: known.build_id.or(begin.build_id).map(|id| id.to_string()),
        symbol_bundle_sha256: known.symbol_bundle_ref.or(bundle),
        dsse_ref: known.dsse_ref,
        blob_sha256,
        arch: first(begin.arch, known.arch),
        method: first(begin.method, known.method),
        pid: Some(if begin.pid == 0 { known.pid } else { begin.pid }),
    })
}

fn frame_rows(frames: &[ResolvedRow]) -> Result<Vec<FrameRow>, RefusedTrace> {
    let mut seen = HashSet::with_capacity(frames.len());
    frames
        .iter()
        .map(|frame| {
            if !seen.insert(frame.frame_index) {
                return Err(RefusedTrace::FrameTwice(frame.frame_index));
            }
            Ok(FrameRow {
                frame_index: frame.frame_index,
                ip: frame.ip.0,
                module_path: frame.module.clone(),
                module_build_id: frame.debug_id.as_ref().map(ToString::to_string),
                resolved_symbol: frame.function.clone(),
                linkage_name: frame.symbol.clone(),
                symbol_offset: frame.symbol_offset,
                resolver: frame.resolver.to_string(),
                thread: frame.thread,
                sample: frame.sample,
                depth: frame.depth,
                inline_depth: frame.inline_depth,
                inlined: frame.inlined,
                file: frame.file.clone(),
                line: frame.line,
                column: frame.column,
                unwind: frame.unwind.to_string(),
                quality: frame.quality.to_string(),
                proof: frame.proof.to_string(),
                reason: frame.reason.as_ref().map(ToString::to_string),
            })
        })
        .collect()
}

fn replay_row(event: ReplayResult) -> ReplayRow {
    ReplayRow {
        replay_id: event.replay_id,
        seed: event.seed,
        started_at: event.started_at,
        finished_at: event.finished_at,
        replay_success_ratio: event.replay_success_ratio,
        verify_time_ms: event.verify_time_ms,
        verifier_version: event.verifier_version,
        notes: event.notes,
        symbol_coverage_pct: event.symbol_coverage_pct,
        proved_coverage_pct: event.proved_coverage_pct,
    }
}

/// At the start: makes the record of traces what the folder says.
pub(crate) async fn restore_traces(app: &Arc<App>) -> Result<(), StoreError> {
    let (visible, recorded) = (app.traces.list(), app.store.traces().await?);
    // Another server may be about to store one.
    let is_alone = app.follower.is_none();
    let is_visible: HashSet<Uuid> = visible.iter().map(|(id, _)| *id).collect();
    for (id, _) in recorded.iter().filter(|(id, _)| is_alone && !is_visible.contains(id)) {
        app.store.remove_trace(*id).await?;
    }
    let is_recorded: HashSet<(Uuid, String)> = recorded.into_iter().collect();
    for (id, digest) in visible {
        if is_recorded.contains(&(id, digest.to_string())) {
            continue;
        }
        let (blobs, wanted) = (app.blobs.clone(), digest.clone());
        let rows = app.pool.run(move || {
            let file = blobs.open_blob(&wanted).map_err(|error| error.to_string())?.file;
            read_trace(file, id, wanted.to_string()).map_err(|error| error.to_string())
        });
        match rows.await {
            Ok(Ok(rows)) => app.store.put_trace(&rows).await?,
            Ok(Err(error)) => tracing::error!(trace_id = %id, error, "a stored trace cannot be recorded"),
            Err(error) => tracing::error!(trace_id = %id, %error, "a stored trace cannot be recorded"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use symseal_trace::TraceResolved;

    const ID: Uuid = Uuid::from_u128(0x1234);

    fn capture(trace_id: Uuid) -> Event {
        Event::Capture(TraceCapture { trace_id, platform: "linux".into(), pid: 7, ..TraceCapture::default() })
    }

    fn replay(replay_id: u128) -> Event {
        Event::ReplayResult(ReplayResult {
            replay_id: Uuid::from_u128(replay_id),
            trace_id: ID,
            seed: 42,
            replay_success_ratio: 1.0,
            ..ReplayResult::default()
        })
    }

    fn read(events: &[Event]) -> Result<TraceRows, RefusedTrace> {
        let lines: Vec<u8> = events.iter().flat_map(|event| event.to_line().unwrap()).collect();
        read_trace(lines.as_slice(), ID, "sha256:0".into())
    }

    #[test]
    fn a_summary_with_replays_becomes_rows_and_a_repeated_replay_counts_once() {
        let resolved =
            Event::Resolved(TraceResolved { trace_id: ID, bundle: Some("sha256:1".into()), ..Default::default() });
        let rows = read(&[capture(ID), resolved, replay(1), replay(1), replay(2)]).unwrap();
        assert_eq!(rows.trace.platform, "linux");
        assert_eq!(rows.trace.symbol_bundle_sha256.as_deref(), Some("sha256:1"));
        assert_eq!(rows.trace.pid, Some(7));
        assert_eq!(rows.replays.len(), 2);
    }

    #[test]
    fn events_of_another_trace_or_none_at_all_are_refused() {
        assert!(matches!(read(&[capture(Uuid::from_u128(1))]), Err(RefusedTrace::OtherTrace { .. })));
        assert!(matches!(read(&[replay(1)]), Err(RefusedTrace::NoCapture)));
        assert!(matches!(read_trace(&b"no json\n"[..], ID, String::new()), Err(RefusedTrace::Read(_))));
    }
}
