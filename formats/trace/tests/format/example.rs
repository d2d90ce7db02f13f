//! One of each event, and what writes and reads them.

use std::collections::BTreeMap;

use symseal_module::{Avma, MissReason, Proof, Quality, ResolverStep, StopReason, Svma, UnwindMethod};
use symseal_trace::{
    CoverageNumbers, Event, IdentifiedBy, ReplayResult, ResolvedRow, ResolvedStack, StackSegment, Trace, TraceBegin,
    TraceCode, TraceEnd, TraceJit, TraceJitLine, TraceModule, TraceResolved, TraceSample, Uuid,
};

/// A trace with every event and every field in use, as it reads after writing.
pub(crate) fn trace() -> Trace {
    let id = Uuid::from_u128(0x4c74_d45d_5887_4868_a16d_1018_9fd2_1332);
    let build_id = "93ac61ec5a8eb1396f9fbd350e3169a558528a40".parse().ok();
    let libc = TraceModule {
        path: "/usr/lib/libc.so.6".into(),
        debug_id: build_id.clone(),
        start: Avma(0x7f00_0000_0000),
        end: Avma(0x7f00_001e_2000),
        bias: 0x7f00_0000_0000,
        image_base: Svma(0),
        identified_by: IdentifiedBy::MemoryNote,
        file_debug_id: "ab01".parse().ok(),
        deleted: true,
        bytes: None,
    };
    let vdso = TraceModule {
        path: "[vdso]".into(),
        start: Avma(0x7fff_0000_0000),
        end: Avma(0x7fff_0000_2000),
        bias: u64::MAX,
        image_base: Svma(u64::MAX),
        identified_by: IdentifiedBy::Other("by-magic".into()),
        bytes: Some(b"\x7fELF".to_vec()),
        ..TraceModule::default()
    };
    let jit = TraceJit {
        start: Avma(0x7f49_ec00_5b80),
        size: 254,
        name: "JS:*hot /tmp/a.js:1:13".into(),
        told_by: "jitdump".into(),
        overlapped: true,
        lines: vec![TraceJitLine { offset: 16, line: 7, file: "/tmp/a.js".into() }],
        eh_frame: Some(vec![0x14, 0, 0, 0]),
    };
    let sample = TraceSample {
        thread: 4279,
        thread_name: "a \\\\ and \\xff".into(),
        registers: BTreeMap::from([("rip".into(), Avma(0x7f00_0000_1234)), ("rsp".into(), Avma(u64::MAX))]),
        stacks: vec![StackSegment::new(Avma(0x1000), vec![1, 2, 3]), StackSegment::new(Avma(0x9000), Vec::new())],
        stopped_ns: 299_006,
    };
    let row = ResolvedRow {
        frame_index: 0,
        thread: 4279,
        sample: 0,
        depth: 0,
        inline_depth: 0,
        ip: Avma(0x7f00_0000_1234),
        module: Some("/usr/lib/libc.so.6".into()),
        debug_id: build_id.clone(),
        function: Some("poll".into()),
        symbol: None,
        symbol_offset: Some(u64::MAX),
        file: None,
        line: Some(29),
        column: None,
        inlined: false,
        unwind: UnwindMethod::Context,
        resolver: ResolverStep::LocalBundle,
        quality: Quality::Function,
        proof: Proof::Sealed,
        reason: Some(MissReason::NoDebugInfo),
        approximate: true,
        folded: false,
        exact: Some(true),
        cfa: Some(Avma(u64::MAX)),
        frame_pointer: None,
    };
    let resolved = TraceResolved {
        trace_id: id,
        bundle: Some(format!("sha256:{}", "ab".repeat(32))),
        local_files: true,
        online: false,
        frames: vec![row],
        stacks: vec![ResolvedStack { thread: 4279, sample: 0, stop: StopReason::TruncatedStack, complete: false }],
    };
    let mut trace = Trace {
        begin: TraceBegin {
            trace_id: id,
            platform: "linux".into(),
            arch: "x86_64".into(),
            pid: 4278,
            captured_at: "2026-11-20T12:21:10.489Z".into(),
            method: "ptrace".into(),
            stack_copy_bytes: 65536,
            executable: Some("/usr/bin/foo".into()),
            build_id,
            producer: "test 1".into(),
        },
        modules: vec![libc, vdso],
        code: vec![TraceCode { start: Avma(0x7f49_ec00_0000), end: Avma(0x7f49_ec08_0000) }],
        jit: vec![jit],
        samples: vec![sample],
        end: TraceEnd { lost: 1, ..TraceEnd::default() },
        inside: vec![other(r#"{"event":"trace.sometime","code":[1,{"a":null}]}"#)],
        after: Vec::new(),
    };
    trace.end = trace.write(std::io::sink()).unwrap();
    let mut capture = trace.capture_summary();
    capture.symbol_bundle_ref = resolved.bundle.clone();
    capture.dsse_ref = Some(format!("dsse:{}", "cd".repeat(32)));
    trace.after = vec![
        Event::Capture(capture),
        Event::Resolved(resolved),
        Event::ReplayResult(ReplayResult {
            replay_id: Uuid::from_u128(7),
            trace_id: id,
            seed: 42,
            replay_success_ratio: 0.98,
            symbol_coverage_pct: 93.0,
            verify_time_ms: 8423,
            started_at: Some("2026-11-20T12:21:11Z".into()),
            finished_at: Some("2026-11-20T12:21:12Z".into()),
            verifier_version: Some("0.1.0".into()),
            proved_coverage_pct: Some(90.1),
            coverage: Some(CoverageNumbers { frames: 100, named: 93, proved: 90 }),
            notes: serde_json::json!({"classes": []}),
        }),
        other(r#"{"event":"trace.later","n":1}"#),
    ];
    trace
}

pub(crate) fn other(json: &str) -> Event {
    Event::Other(serde_json::from_str(json).unwrap())
}

pub(crate) fn written(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    trace.write(&mut bytes).unwrap();
    bytes
}
