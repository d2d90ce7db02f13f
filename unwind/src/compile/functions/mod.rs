//! Rules of code from its instructions alone, function by function, where a processor's C libraries come with little call frame information:
//! how the frame is made and taken down is followed along branches, and so is what it is in between. (RISC-V and 32-bit ARM; MIPS, with its
//! delay slots, has [`mips`](super::mips))
//!
//! Functions begin where symbols say, and where other code calls to: code that was followed, and code that has call frame information.

mod arm;
mod follow;
mod riscv64;
mod state;
mod thumb;

use alloc::collections::{BTreeMap, BTreeSet};
use core::ops::Range;

use super::pieces::{Origin, Piece};
use super::{Compiler, Input};
use crate::arch::Arch;
use crate::source::SourceKind;
use follow::{Decode, Flow, MOST_TURNS_PER_BYTE};
pub(super) use follow::{Followed, Step};

/// No function is longer, in bytes: what keeps the memory for a hostile input small.
const LONGEST: u64 = 1 << 18;
/// Why nothing is known of a function.
const NOT_THERE: &str = "code that is not in the file";
const EXHAUSTED: &str = "too many paths for the size of the function";
/// Why functions may be missing.
const NOT_ALL_FOUND: &str = "functions overlap too much to look for all that they call";

/// The instruction set of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Set {
    Riscv,
    Arm,
    Thumb,
}

impl Set {
    /// Of a function by its symbol's value, and where the function is.
    pub(super) fn of_symbol(arch: Arch, value: u64) -> (u64, Self) {
        match arch {
            Arch::Arm if value & 1 == 1 => (value & !1, Self::Thumb),
            Arch::Arm => (value, Self::Arm),
            _ => (value, Self::Riscv),
        }
    }

    fn decode(self) -> Decode {
        match self {
            Self::Riscv => riscv64::decode,
            Self::Arm => arm::decode,
            Self::Thumb => thumb::decode,
        }
    }

    /// Instructions begin at multiples of this.
    fn alignment(self) -> u64 {
        if self == Self::Arm { 4 } else { 2 }
    }
}

type Starts = BTreeMap<u64, Set>;

/// Adds the rules of functions that nothing else has spoken for.
pub(super) fn rules(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    // While they are looked for, functions may overlap. As much as all code may take without that is enough for real ones.
    let size = input.code.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
    let mut budget = size.saturating_mul(MOST_TURNS_PER_BYTE);
    let is_free = |address: u64, compiler: &Compiler<'_>| compiler.claims.is_free(address);
    // What is called is a function too, and ends the one before it. So all of them are found before any gets rules.
    let mut starts: Starts = input.functions.iter().map(|value| Set::of_symbol(input.arch, *value)).collect();
    if input.arch == Arch::Riscv64 {
        starts.extend(called_from_known_code(input, &compiler.pieces).map(|address| (address, Set::Riscv)));
    }
    let mut new: Starts = starts.clone();
    while let Some((start, set)) = new.pop_first() {
        if !is_free(start, compiler) {
            continue;
        }
        if budget == 0 {
            compiler.report.count_unfollowed(None, NOT_ALL_FOUND);
            break;
        }
        let Some(followed) = function(input, start, set, &starts) else { continue };
        budget = budget.saturating_sub(followed.turns);
        let callees = if followed.is_exhausted { BTreeSet::new() } else { followed.callees };
        for address in callees {
            if is_free(address, compiler) && !starts.contains_key(&address) {
                starts.insert(address, set);
                new.insert(address, set);
            }
        }
    }
    for (start, set) in &starts {
        if !is_free(*start, compiler) {
            continue;
        }
        // Each ends where the next one begins, and may take what its own size allows: none takes from another.
        let followed = function(input, *start, *set, &starts);
        let reason = match followed {
            Some(followed) if followed.is_exhausted => Some(EXHAUSTED),
            Some(followed) => add(*start, &followed, compiler),
            None => Some(NOT_THERE),
        };
        if let Some(reason) = reason {
            // As far as it may go; without another function behind it, to the end of its section.
            let next = starts.range(start.saturating_add(1)..).next().map(|(next, _)| *next);
            let section = code_at(input, *start).map(|code| start.saturating_add(code.len() as u64));
            let end = next.into_iter().chain(section).min().unwrap_or(*start);
            compiler.report.count_unfollowed(Some(*start..end), reason);
        }
    }
}

/// Where code that has rules already calls to.
fn called_from_known_code<'i>(input: &'i Input<'_>, pieces: &'i [Piece]) -> impl Iterator<Item = u64> + 'i {
    pieces.iter().flat_map(|piece| {
        let mut at = piece.start();
        let code = code_at(input, at).unwrap_or_default();
        core::iter::from_fn(move || {
            while at < piece.end() {
                let offset = usize::try_from(at.checked_sub(piece.start())?).ok()?;
                let instruction = riscv64::decode(code.get(offset..)?)?;
                let address = at;
                at = at.checked_add(instruction.bytes as u64)?;
                if let Flow::Call(Some(distance)) = instruction.flow {
                    return Some(address.wrapping_add_signed(distance));
                }
            }
            None
        })
    })
}

/// The code from `address` on, to the end of its section.
fn code_at<'i>(input: &Input<'i>, address: u64) -> Option<&'i [u8]> {
    input.code.iter().find_map(|(section, bytes)| {
        let code = bytes.get(usize::try_from(address.checked_sub(*section)?).ok()?..)?;
        (!code.is_empty()).then_some(code)
    })
}

/// Follows the function at `start`, which ends before the next of `starts` at the latest.
fn function(input: &Input<'_>, start: u64, set: Set, starts: &Starts) -> Option<Followed> {
    let next = starts.range(start.checked_add(1)?..).next().map_or(u64::MAX, |(next, _)| *next);
    within(input, start..next, set)
}

/// Follows the function that `range` holds; `None` where there is no such code.
pub(super) fn within(input: &Input<'_>, range: Range<u64>, set: Set) -> Option<Followed> {
    if !range.start.is_multiple_of(set.alignment()) {
        return None;
    }
    let length = usize::try_from(range.end.checked_sub(range.start)?.min(LONGEST)).ok()?;
    let code = code_at(input, range.start)?;
    let code = code.get(..length).unwrap_or(code);
    Some(Followed::new(range.start, code, input.arch.machine(), set.decode()))
}

/// Adds what is known of one function. Gives why that is not all.
fn add(start: u64, followed: &Followed, compiler: &mut Compiler<'_>) -> Option<&'static str> {
    let origin = Origin::new(SourceKind::Instructions, start);
    let mut lost = false;
    for (address, bytes, step) in followed.steps() {
        let Step::Rule(rule, slots) = step else {
            lost = true;
            continue;
        };
        let rule = compiler.rules.number_of(rule, slots);
        for range in compiler.claims.claim(address..address.saturating_add(bytes)) {
            match compiler.pieces.last_mut() {
                Some(last) if last.end() == range.start && (last.rule, last.origin) == (rule, origin) => {
                    last.end_at(range.end);
                }
                _ => compiler.pieces.push(Piece::new(range, rule, origin)),
            }
        }
    }
    match followed.conflicts {
        _ if lost => Some("the frame is lost on some path"),
        0 => None,
        // As behind a call that never returns.
        _ => Some("paths disagree about the frame, and the first one counts"),
    }
}
