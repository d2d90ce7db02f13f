//! The functions of JIT compilers that samples lead to.

use std::collections::BTreeMap;

use symseal_module::Avma;
use symseal_process::{JitHit, JitLine, JitSnapshot, JitSource, Mapping};
use symseal_trace::{TraceJit, TraceJitLine, TraceSample};

/// Functions of one trace: no reader takes more than four times as many, and stacks of ten thousand threads lead to fewer.
const MAX_FUNCTIONS: usize = 1 << 16;
/// Lines of one function; what is beyond them has none.
const MAX_LINES: usize = 4096;
/// Bytes of lines in one trace: what a process writes of its code may be meant to fill the tracer's memory.
const MAX_LINE_BYTES: usize = 32 << 20;
/// Bytes of unwinding rules in one trace, for the same reason.
const MAX_RULES_BYTES: usize = 16 << 20;
/// The longest function; what claims more is none.
const MAX_FUNCTION_BYTES: u64 = 1 << 30;

/// The functions that were told of before and after the stop, as one list: what was told alike both times was so in between, and of anything else the
/// name is a guess.
pub(crate) fn told_alike(before: Vec<TraceJit>, after: Vec<TraceJit>) -> Vec<TraceJit> {
    let by_place = |list: Vec<TraceJit>| -> BTreeMap<(Avma, u64), TraceJit> {
        list.into_iter().map(|function| ((function.start, function.size), function)).collect()
    };
    let (mut all, mut after) = (by_place(before), by_place(after));
    for (place, function) in &mut all {
        function.overlapped |= after.remove(place).as_ref() != Some(function);
    }
    all.extend(after.into_iter().map(|(place, function)| (place, TraceJit { overlapped: true, ..function })));
    all.into_values().collect()
}

/// The functions that a register or a word of a copied stack lies in, outside of files: whichever frames a walk finds later, their functions are among them.
/// `mappings` rise.
pub(crate) fn led_to(samples: &[TraceSample], told: &JitSnapshot, mappings: &[Mapping]) -> Vec<TraceJit> {
    let mut found: BTreeMap<(Avma, u64), TraceJit> = BTreeMap::new();
    let mut room = Room { lines: MAX_LINE_BYTES, rules: MAX_RULES_BYTES };
    let mut look = |address: Avma| {
        // A call may be the last instruction of its function.
        for at in [Some(address), address.checked_sub(1)].into_iter().flatten() {
            let Some((source, hit)) = told.find(at) else { continue };
            let key = (hit.function.start, hit.function.size);
            if found.len() < MAX_FUNCTIONS && !found.contains_key(&key) && is_made(hit, mappings) {
                found.insert(key, function(source, hit, &mut room));
            }
        }
    };
    for sample in samples {
        sample.registers.values().copied().for_each(&mut look);
        for segment in &sample.stacks {
            segment.words().map(Avma).for_each(&mut look);
        }
    }
    found.into_values().collect()
}

/// Whether a function lies where a process makes code: in memory that it may execute and that is no file.
fn is_made(hit: JitHit<'_>, mappings: &[Mapping]) -> bool {
    let start = hit.function.start;
    let before = mappings.partition_point(|mapping| mapping.start <= start);
    let home = before.checked_sub(1).and_then(|at| mappings.get(at)).filter(|mapping| start < mapping.end);
    hit.function.size <= MAX_FUNCTION_BYTES && home.is_some_and(|mapping| mapping.executable && !mapping.is_file())
}

/// Bytes that there is room for.
struct Room {
    lines: usize,
    rules: usize,
}

fn function(source: JitSource, hit: JitHit<'_>, room: &mut Room) -> TraceJit {
    let mut lines = Vec::new();
    for (offset, JitLine { line, file, .. }) in hit.lines().take(MAX_LINES) {
        let Some(left) = room.lines.checked_sub(size_of::<TraceJitLine>() + file.len()) else { break };
        room.lines = left;
        lines.push(TraceJitLine { offset, line: *line, file: file.to_string() });
    }
    let told_by = match source {
        JitSource::PerfMap => "perf-map",
        JitSource::JitDump => "jitdump",
    };
    let eh_frame = hit.function.eh_frame.as_ref().and_then(|rules| {
        room.rules = room.rules.checked_sub(rules.len())?;
        Some(rules.to_vec())
    });
    TraceJit {
        start: hit.function.start,
        size: hit.function.size,
        name: hit.function.name.clone(),
        told_by: told_by.to_owned(),
        overlapped: hit.overlapped,
        lines,
        eh_frame,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_around_the_stop_is_a_guess() {
        let function = |start: u64, name: &str| TraceJit {
            start: Avma(start),
            size: 16,
            name: name.into(),
            told_by: "perf-map".into(),
            ..TraceJit::default()
        };
        let before = vec![function(0x100, "stays"), function(0x200, "old")];
        let after = vec![function(0x100, "stays"), function(0x200, "new"), function(0x300, "later")];
        let told = told_alike(before, after);
        let seen: Vec<_> = told.iter().map(|function| (function.name.as_str(), function.overlapped)).collect();
        assert_eq!(seen, [("stays", false), ("old", true), ("later", true)]);
    }
}
