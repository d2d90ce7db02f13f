//! Which phrases a table's names are put together from, and names as their numbers.
//!
//! A sample of the names is read again and again; each time the pairs of neighbours that occur most often become phrases
//! of their own. What few names use is dropped again, and the numbers are given by use.

mod learn;
mod longest;
mod phrase;

use crate::phrases::{MAX_NAME_BYTES, PHRASE_BYTES, put_code};
use crate::{FunctionRecord, StrId, Strings};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;
use learn::learn_pairs;
use longest::Longest;
use phrase::Phrase;

/// Names of fewer bytes stay whole: there is little to gain, and reading them whole is faster.
const MIN_NAME_BYTES: usize = 256 << 10;
/// Bytes of names that phrases are learned from: more make names little shorter.
const SAMPLE_BYTES: usize = 1 << 20;
/// Where there are fewer, one of so many names is enough, as long as those come to [`LEAST_SAMPLE_BYTES`]: what all of them would teach makes tables
/// little smaller or, with its own bytes, larger, and to learn it took most of the time that a small table takes.
const MAX_STEP_OF_SMALL: usize = 16;
/// Bytes of names that phrases are learned from, where there are as many.
const LEAST_SAMPLE_BYTES: usize = 64 << 10;
/// No phrase.
const NONE: u16 = u16::MAX;

/// The phrases of a table, and how to find them in a name.
pub(super) struct Coder {
    phrases: Vec<Phrase>,
    longest: Longest,
}

impl Coder {
    /// The phrases for the names of `functions`, whose bytes alone decide; `None` where they are few.
    pub(super) fn for_large(functions: &[FunctionRecord], strings: &Strings) -> Option<Self> {
        // All strings together are a bound, which spares small tables the rest.
        if strings.bytes() < MIN_NAME_BYTES {
            return None;
        }
        let names = names_of(functions, strings);
        let bytes: usize = names.iter().map(|name| name.len()).sum();
        // A name that is too long for readers of phrases can be read where names are whole.
        let fit = names.iter().all(|name| name.len() <= MAX_NAME_BYTES);
        (fit && bytes >= MIN_NAME_BYTES).then(|| Self::learn(&names, bytes))
    }

    /// The phrases for the names of `functions`, however few.
    pub(super) fn for_any(functions: &[FunctionRecord], strings: &Strings) -> Self {
        let names = names_of(functions, strings);
        let bytes = names.iter().map(|name| name.len()).sum();
        Self::learn(&names, bytes)
    }

    fn learn(names: &[&[u8]], bytes: usize) -> Self {
        let step = bytes.div_ceil(SAMPLE_BYTES).max((bytes / LEAST_SAMPLE_BYTES).clamp(1, MAX_STEP_OF_SMALL));
        // Names and linkage names take turns, so that each second, say, would be of one kind: multiples of the golden ratio are in step with nothing.
        let is_taken = |at: u32| u64::from(at.wrapping_mul(0x9e37_79b1)) * (step as u64) < 1 << 32;
        let numbered = (0u32..).zip(names);
        let sample: Vec<&[u8]> = numbered.filter(|(at, _)| is_taken(*at)).map(|(_, name)| *name).collect();
        let mut singles = [false; 256];
        for name in names {
            for byte in *name {
                if let Some(seen) = singles.get_mut(usize::from(*byte)) {
                    *seen = true;
                }
            }
        }
        let singles = (0..=u8::MAX).zip(singles).filter(|(_, seen)| *seen).map(|(byte, _)| Phrase::single(byte));
        let mut phrases = learn_pairs(&sample, singles.collect());
        phrases.sort_unstable_by_key(Phrase::key);
        // A phrase takes a record, and spares about a code of two bytes each time: where it is used less, it is not worth it.
        let worth = PHRASE_BYTES.div_ceil(2 * step) as u64;
        let mut uses = Longest::new(&phrases).uses(&sample, phrases.len()).into_iter();
        phrases.retain(|phrase| uses.next().is_some_and(|uses| uses >= worth) || phrase.len() == 1);
        let mut longest = Longest::new(&phrases);
        let uses = longest.uses(&sample, phrases.len());
        // Of phrases that are used alike, those come first whose texts do.
        let mut by_use: Vec<(Reverse<u64>, u16)> = uses.into_iter().map(Reverse).zip(0..).collect();
        by_use.sort_unstable();
        let mut numbers = vec![NONE; by_use.len()];
        for (new, (_, old)) in (0..).zip(&by_use) {
            if let Some(number) = numbers.get_mut(usize::from(*old)) {
                *number = new;
            }
        }
        longest.renumber(&numbers);
        let phrases = by_use.iter().filter_map(|(_, old)| phrases.get(usize::from(*old)).copied()).collect();
        Self { longest, phrases }
    }

    /// Appends the codes of `name`, a name of the functions that the phrases were made for.
    pub(super) fn code(&self, name: &[u8], out: &mut Vec<u8>) {
        self.longest.parse(name, |number| put_code(out, number));
    }

    /// The section of phrases, and how many there are.
    pub(super) fn section(&self) -> (Vec<u8>, u64) {
        let bytes = self.phrases.iter().flat_map(Phrase::record).collect();
        (bytes, self.phrases.len() as u64)
    }
}

/// The names that a table has, each once, in an order that does not depend on their numbers.
fn names_of<'s>(functions: &[FunctionRecord], strings: &'s Strings) -> Vec<&'s [u8]> {
    let mut seen = vec![false; strings.len()];
    let mut names = Vec::new();
    let mut see = |id: StrId| {
        if let Some(seen) = seen.get_mut(id.0 as usize)
            && !core::mem::replace(seen, true)
            && !id.is_empty()
        {
            names.push(strings.get(id).as_bytes());
        }
    };
    for function in functions {
        see(function.name);
        see(function.symbol);
        function.aliases.iter().copied().for_each(&mut see);
        for inline in &function.inlines {
            see(inline.name);
            see(inline.symbol);
        }
    }
    names
}
