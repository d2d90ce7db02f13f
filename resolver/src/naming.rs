//! What the frames of a table become in an answer: how much they tell, their place in the function, and their readable names.

use std::sync::Arc;

use symseal_module::{MissReason, Proof, Quality, ResolverStep, Rva};
use symseal_symx::SparseHit;

use crate::{Answer, Demangling, SourceFrame, Symbolized, demangle};

impl Symbolized {
    /// What a bundle's table says of one address where the table is not at hand: read in parts, or proved.
    pub fn from_sparse(rva: Rva, hit: Option<SparseHit>, proof: Proof, demangle: bool) -> Self {
        let found = hit.as_ref().map(|hit| (hit.function.start, hit.function.flags));
        let mut frames: Vec<SourceFrame> = hit.into_iter().flat_map(|hit| hit.frames).map(SourceFrame::from).collect();
        if !tells(&frames) {
            frames.clear();
        }
        if demangle {
            frames.iter_mut().for_each(demangle_frame);
        }
        let answer = match found {
            Some((start, flags)) if !frames.is_empty() => Answer {
                proof,
                approximate: flags.approximate,
                folded: flags.folded,
                start: has_name(&frames).then_some(start),
                reason: why_nameless(&frames),
                ..Answer::nameless(ResolverStep::LocalBundle, quality_of(&frames))
            },
            _ => Answer {
                reason: Some(MissReason::NoSymbolAtAddress),
                ..Answer::nameless(ResolverStep::ModuleOffset, Quality::ModuleOffset)
            },
        };
        let answer = Arc::new(Answer { frames, ..answer });
        Self { rva, symbol_offset: offset_in(&answer, rva), answer }
    }
}

/// Whether frames tell anything. A function without any name names nothing; lines of assembly without a symbol tell their place all the same.
pub(crate) fn tells(frames: &[SourceFrame]) -> bool {
    has_name(frames) || frames.iter().any(|frame| frame.file.is_some() && frame.line.is_some())
}

/// Whether frames have the name of a function.
pub(crate) fn has_name(frames: &[SourceFrame]) -> bool {
    frames.iter().any(|frame| frame.function.is_some())
}

/// Why there is no name where there is a place alone.
pub(crate) fn why_nameless(frames: &[SourceFrame]) -> Option<MissReason> {
    (!has_name(frames)).then_some(MissReason::NoSymbolAtAddress)
}

/// How much frames tell: all of it where the innermost has a function, a file and a line. What dwz moved out, or a compiler left out, may keep
/// the function of a line away.
pub(crate) fn quality_of(frames: &[SourceFrame]) -> Quality {
    let full = |frame: &SourceFrame| frame.function.is_some() && frame.file.is_some() && frame.line.is_some();
    match frames.first().is_some_and(full) {
        true => Quality::Full,
        false if has_name(frames) => Quality::Function,
        false => Quality::ModuleOffset,
    }
}

/// Bytes from the beginning of the function that an answer names.
pub(crate) fn offset_in(answer: &Answer, rva: Rva) -> Option<u64> {
    rva.0.checked_sub(answer.start?.0)
}

/// Puts the demangled symbol in the place of the function's name; the raw symbol stays.
pub(crate) fn demangle_frame(frame: &mut SourceFrame) {
    let raw = frame.symbol.as_deref().or(frame.function.as_deref());
    let Some((name, outcome)) = raw.and_then(demangle) else {
        return;
    };
    match outcome {
        Demangling::Done => frame.function = Some(name.into()),
        Demangling::Truncated => {
            frame.function = Some(name.into());
            frame.demangling = Some(outcome);
        }
        // The source language's name, where there is one, is better than a raw symbol.
        Demangling::Failed => frame.demangling = Some(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use symseal_symx::{FunctionFlags, SparseFrame, SparseFunction, SymbolSource};

    /// What a table that is read in parts says of code without a name, in this file.
    fn answer_of(file: &str, line: Option<u32>) -> Symbolized {
        let (name, symbol, source) = (String::new(), String::new(), SymbolSource::FunctionStarts);
        let flags = FunctionFlags { approximate: true, ..FunctionFlags::default() };
        let function = SparseFunction { start: Rva(0x10), size: 8, name, symbol, source, flags };
        let (function_name, symbol, file) = (String::new(), String::new(), file.to_owned());
        let frame = SparseFrame { function: function_name, symbol, file, line, column: None, inlined: false };
        let hit = SparseHit { function, frames: vec![frame], range: Rva(0x10)..Rva(0x18) };
        Symbolized::from_sparse(Rva(0x14), Some(hit), Proof::DigestKnown, true)
    }

    #[test]
    fn code_without_a_name_tells_its_place_in_a_table_that_is_read_in_parts_too() {
        let found = answer_of("a.s", Some(7));
        let [frame] = found.frames.as_slice() else { panic!("{found:?}") };
        assert_eq!((frame.function.as_deref(), frame.file.as_deref(), frame.line), (None, Some("a.s"), Some(7)));
        assert_eq!((found.quality, found.reason), (Quality::ModuleOffset, Some(MissReason::NoSymbolAtAddress)));
        assert_eq!((found.resolver, found.symbol_offset), (ResolverStep::LocalBundle, None));
        assert!(answer_of("", None).frames.is_empty());
    }
}
