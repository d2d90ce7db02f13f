//! The functions of JIT compilers that samples lead to.

use std::collections::BTreeMap;

use symseal_module::Avma;
use symseal_process::{JitHit, JitMaps, JitSource};
use symseal_trace::{TraceJit, TraceJitLine, TraceSample};

/// Functions of one trace; more than any stack holds that can be read at night.
const MAX_FUNCTIONS: usize = 1 << 16;

/// The functions that a register or a word of a copied stack lies in: whichever frames a walk finds later, their functions are among them. They are as
/// the runtime had told them when the process stood still.
pub(crate) fn led_to(samples: &[TraceSample], maps: &JitMaps) -> Vec<TraceJit> {
    let mut found: BTreeMap<Avma, TraceJit> = BTreeMap::new();
    let mut look = |address: Avma| {
        // A call may be the last instruction of its function.
        for at in [Some(address), address.checked_sub(1)].into_iter().flatten() {
            if let Some((source, hit)) = maps.find(at)
                && found.len() < MAX_FUNCTIONS
            {
                found.entry(hit.function.start).or_insert_with(|| function(source, hit));
            }
        }
    };
    for sample in samples {
        sample.registers.values().copied().for_each(&mut look);
        for segment in &sample.stacks {
            let (words, _) = segment.bytes.as_chunks::<8>();
            // Stack pointers are aligned to words, and the copies begin at one.
            words.iter().map(|word| Avma(u64::from_le_bytes(*word))).for_each(&mut look);
        }
    }
    found.into_values().collect()
}

fn function(source: JitSource, hit: JitHit<'_>) -> TraceJit {
    let line = |(offset, line): (u64, &symseal_process::JitLine)| TraceJitLine {
        offset,
        line: line.line,
        file: line.file.to_string(),
    };
    TraceJit {
        start: hit.function.start,
        size: hit.function.size,
        name: hit.function.name.clone(),
        told_by: match source {
            JitSource::PerfMap => "perf-map",
            JitSource::JitDump => "jitdump",
        }
        .to_owned(),
        overlapped: hit.overlapped,
        lines: hit.lines().map(line).collect(),
    }
}
