//! Names of code that a process made: as its runtime tells them while it runs, or as a trace carries them.

use std::collections::BTreeSet;
use std::sync::Arc;

use symseal_module::{Avma, Quality, ResolverStep};
use symseal_process::{JitFunction, JitFunctions, JitHit};

use crate::trail::hit;
use crate::{Answer, ResolvedFrame, SourceFrame, Text, Tried};

/// Functions that a process made, at one instant.
#[derive(Debug, Default)]
pub struct JitNames {
    functions: JitFunctions,
    /// First addresses and sizes of those that were written over in part.
    overlapped: BTreeSet<(Avma, u64)>,
}

impl JitNames {
    /// Of functions, each with whether other code was written over a part of it later. What was not written over holds what several claim.
    pub fn new(functions: impl IntoIterator<Item = (JitFunction, bool)>) -> Self {
        let (guesses, sure): (Vec<_>, Vec<_>) = functions.into_iter().partition(|(_, overlapped)| *overlapped);
        let overlapped = guesses.iter().map(|(function, _)| (function.start, function.size)).collect();
        let mut all = JitFunctions::default();
        for (function, _) in guesses.into_iter().chain(sure) {
            // One without bytes names nothing.
            all.add(function);
        }
        Self { functions: all, overlapped }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The frame with the name of the function that holds the looked-up address, if one does.
    pub(crate) fn name(&self, frame: ResolvedFrame, lookup: Avma) -> ResolvedFrame {
        let Some(mut found) = self.functions.find(lookup) else { return frame };
        found.overlapped |= self.overlapped.contains(&(found.function.start, found.function.size));
        with_jit(frame, lookup, ("as the trace carries it", found))
    }
}

/// The frame with the name that a runtime wrote of its code; `detail` says where.
pub(crate) fn with_jit(frame: ResolvedFrame, lookup: Avma, (detail, hit): (&str, JitHit<'_>)) -> ResolvedFrame {
    let line = hit.line(lookup);
    let shown = shown(&hit.function.name);
    let name = SourceFrame {
        function: Some(shown.clone()),
        symbol: Some(shown),
        file: line.map(|line| self::shown(&line.file)),
        line: line.map(|line| line.line),
        ..SourceFrame::default()
    };
    with_name(frame, (ResolverStep::JitMap, detail.to_string()), (name, hit.function.start), hit.overlapped)
}

/// A name or path as the runtime wrote it, escaped, with control characters escaped as well, as names from files have them: a terminal obeys them.
fn shown(escaped: &str) -> Text {
    let mut shown = String::with_capacity(escaped.len());
    for char in escaped.chars() {
        match char.is_ascii_control() {
            true => shown.push_str(&format!("\\x{:02x}", u32::from(char))),
            false => shown.push(char),
        }
    }
    shown.into()
}

/// The frame with the name that a step had for it, of a function that begins at `start`.
pub(crate) fn with_name(
    frame: ResolvedFrame,
    (step, detail): (ResolverStep, String),
    (name, start): (SourceFrame, Avma),
    approximate: bool,
) -> ResolvedFrame {
    // The steps without a name come after this one, and were not needed.
    let mut tried: Vec<Tried> = frame.answer.tried.iter().filter(|tried| !is_place(tried)).cloned().collect();
    tried.push(Tried { detail, ..hit(step) });
    let quality = if name.line.is_some() { Quality::Full } else { Quality::Function };
    let answer = Answer { approximate, frames: vec![name], tried: tried.into(), ..Answer::nameless(step, quality) };
    let symbol_offset = frame.ip.0.checked_sub(start.0);
    ResolvedFrame { symbol_offset, answer: Arc::new(answer), ..frame }
}

/// Whether a step is one of the last two, which have a place and no name.
pub(crate) fn is_place(tried: &Tried) -> bool {
    matches!(tried.step, ResolverStep::ModuleOffset | ResolverStep::Raw)
}

#[cfg(test)]
mod tests {
    use symseal_module::UnwindMethod;
    use symseal_process::JitLine;

    use super::*;
    use crate::trail::raw_frame;

    fn function(start: u64, size: u64, name: &str) -> JitFunction {
        let line = JitLine { address: Avma(start + 4), line: 7, file: "/a.js".into() };
        JitFunction { start: Avma(start), size, name: name.into(), lines: vec![line], eh_frame: None, written_at: None }
    }

    #[test]
    fn what_was_not_written_over_has_the_address_and_the_rest_is_a_guess() {
        let names = JitNames::new([
            (function(0x1040, 0x40, "new"), false),
            (function(0x1000, 0x100, "old"), true),
            (function(0x3000, 0x10, "cut by what no sample led to"), true),
            // A smaller one where an older one began.
            (function(0x4000, 0x20, "again"), false),
            (function(0x4000, 0x80, "before"), true),
            (function(0x5000, 0x10, "a\x1b[31mb"), false),
        ]);
        let at = |ip: u64| names.name(raw_frame(Avma(ip), UnwindMethod::FramePointer), Avma(ip));
        let seen = |ip: u64| {
            let frame = at(ip);
            let name = frame.frames.first().and_then(|source| source.function.clone());
            (name.map_or_else(String::new, |name| name.to_string()), frame.approximate, frame.symbol_offset)
        };
        assert_eq!(seen(0x1050), ("new".into(), false, Some(0x10)));
        assert_eq!(seen(0x1002), ("old".into(), true, Some(2)));
        assert_eq!(seen(0x1090), ("old".into(), true, Some(0x90)));
        assert_eq!(seen(0x3001), ("cut by what no sample led to".into(), true, Some(1)));
        assert_eq!(seen(0x4010), ("again".into(), false, Some(0x10)));
        assert_eq!(seen(0x4020), ("before".into(), true, Some(0x20)));
        assert_eq!(seen(0x5000), (r"a\x1b[31mb".into(), false, Some(0)));
        assert_eq!(seen(0x2000), (String::new(), false, None));
        assert_eq!((at(0x1043).quality, at(0x1044).quality), (Quality::Function, Quality::Full));
        let steps: Vec<_> = at(0x1050).tried.iter().map(|tried| tried.step).collect();
        assert_eq!(steps, [ResolverStep::JitMap]);
    }
}
