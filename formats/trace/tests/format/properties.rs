//! read(write(x)) is x, and no bytes make the reader panic.

use std::sync::LazyLock;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use symseal_module::escape::{escape, unescape};
use symseal_module::{Avma, DebugId, Svma};
use symseal_trace::{
    Event, IdentifiedBy, ReplayResult, StackSegment, Trace, TraceBegin, TraceCode, TraceEnd, TraceJit, TraceJitLine,
    TraceModule, TraceSample, Uuid,
};

use crate::example::{trace, written};

static EXAMPLE: LazyLock<Vec<u8>> = LazyLock::new(|| written(&trace()));

fn text() -> impl Strategy<Value = String> {
    vec(any::<u8>(), 0..20).prop_map(|bytes| escape(&bytes))
}

fn debug_id() -> impl Strategy<Value = Option<DebugId>> {
    vec(any::<u8>(), 0..65).prop_map(|bytes| DebugId::from_build_id(&bytes).ok())
}

fn module() -> impl Strategy<Value = TraceModule> {
    let names = prop_oneof![
        Just(IdentifiedBy::MemoryNote),
        Just(IdentifiedBy::FileNote),
        Just(IdentifiedBy::None),
        text().prop_map(IdentifiedBy::from),
    ];
    let bytes = proptest::option::of(vec(any::<u8>(), 0..40));
    (text(), debug_id(), any::<[u64; 4]>(), names, debug_id(), any::<bool>(), bytes).prop_map(
        |(path, debug_id, [start, end, bias, base], identified_by, file_debug_id, deleted, bytes)| TraceModule {
            path,
            debug_id,
            start: Avma(start),
            end: Avma(end),
            bias,
            image_base: Svma(base),
            identified_by,
            file_debug_id,
            deleted,
            bytes,
        },
    )
}

fn sample() -> impl Strategy<Value = TraceSample> {
    let segment = (any::<[u64; 3]>(), vec(any::<u8>(), 0..40)).prop_map(|([start, from, to], bytes)| StackSegment {
        start: Avma(start),
        mapping_start: Avma(from),
        mapping_end: Avma(to),
        bytes,
    });
    let registers = btree_map("[a-z0-9_]{1,8}", any::<u64>().prop_map(Avma), 0..6);
    (any::<u32>(), text(), registers, vec(segment, 0..3), 0..1u64 << 53).prop_map(
        |(thread, thread_name, registers, stacks, stopped_ns)| TraceSample {
            thread,
            thread_name,
            registers,
            stacks,
            stopped_ns,
        },
    )
}

fn code() -> impl Strategy<Value = TraceCode> {
    (any::<u64>(), any::<u64>()).prop_map(|(start, end)| TraceCode { start: Avma(start), end: Avma(end) })
}

fn jit() -> impl Strategy<Value = TraceJit> {
    let line =
        (any::<u32>(), text(), 0..1u64 << 53).prop_map(|(line, file, offset)| TraceJitLine { offset, line, file });
    let eh_frame = proptest::option::of(vec(any::<u8>(), 0..20));
    (any::<u64>(), 1..1u64 << 53, text(), text(), any::<bool>(), vec(line, 0..3), eh_frame).prop_map(
        |(start, size, name, told_by, overlapped, lines, eh_frame)| TraceJit {
            start: Avma(start),
            size,
            name,
            told_by,
            overlapped,
            lines,
            eh_frame,
        },
    )
}

fn any_trace() -> impl Strategy<Value = Trace> {
    let begin = (any::<u128>(), text(), any::<u32>(), proptest::option::of(text()), debug_id()).prop_map(
        |(id, platform, pid, executable, build_id)| TraceBegin {
            trace_id: Uuid::from_u128(id),
            platform,
            pid,
            executable,
            build_id,
            ..TraceBegin::default()
        },
    );
    let replay = (0..1u64 << 53, any::<u32>(), any::<u32>()).prop_map(|(seed, of, in_all)| {
        let replay_success_ratio = f64::from(of) / (f64::from(in_all) + 1.0);
        Event::ReplayResult(ReplayResult { seed, replay_success_ratio, ..ReplayResult::default() })
    });
    let parts = (vec(module(), 0..4), vec(code(), 0..3), vec(jit(), 0..3), vec(sample(), 0..4));
    (begin, parts, vec(replay, 0..3), 0..1u64 << 53).prop_map(|(begin, (modules, code, jit, samples), after, lost)| {
        let end = TraceEnd { lost, ..TraceEnd::default() };
        Trace { begin, modules, code, jit, samples, end, inside: Vec::new(), after }
    })
}

proptest! {
    #[test]
    fn what_was_written_is_what_is_read(mut trace in any_trace()) {
        let mut bytes = Vec::new();
        trace.end = trace.write(&mut bytes).unwrap();
        let read = Trace::read(bytes.as_slice()).unwrap();
        prop_assert_eq!(&read, &trace);
        prop_assert_eq!(written(&read), bytes);
    }

    #[test]
    fn changed_and_cut_streams_end_in_an_error_or_a_trace(
        edits in vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        cut in any::<prop::sample::Index>(),
        pack in 0..3,
    ) {
        let mut bytes = match pack {
            0 => EXAMPLE.clone(),
            1 => zstd::encode_all(EXAMPLE.as_slice(), 1).unwrap(),
            _ => {
                let mut encoder = flate2::bufread::GzEncoder::new(EXAMPLE.as_slice(), flate2::Compression::fast());
                let mut packed = Vec::new();
                std::io::Read::read_to_end(&mut encoder, &mut packed).unwrap();
                packed
            }
        };
        let length = bytes.len();
        for (at, byte) in edits {
            bytes[at.index(length)] = byte;
        }
        let _ = Trace::read(bytes.as_slice());
        bytes.truncate(cut.index(length));
        let _ = Trace::read(bytes.as_slice());
    }

    #[test]
    fn no_line_makes_the_parser_panic(line in vec(any::<u8>(), 0..200)) {
        let _ = Event::parse(&line);
    }

    #[test]
    fn escaped_bytes_lead_back(bytes in vec(any::<u8>(), 0..40)) {
        prop_assert_eq!(unescape(&escape(&bytes)), Some(bytes));
    }
}
