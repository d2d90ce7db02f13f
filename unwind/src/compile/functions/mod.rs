//! Rules of code from its instructions alone, function by function, where a processor's C libraries come with little call frame information:
//! how the frame is made and taken down is followed along branches, and so is what it is in between. (RISC-V; MIPS, with its delay slots,
//! has [`mips`](super::mips))
//!
//! Functions begin where symbols say, and where other code calls to: code that was followed, and code that has call frame information.

mod follow;
mod riscv64;
mod state;

use alloc::collections::BTreeSet;
use alloc::string::String;

use super::pieces::Piece;
use super::{Compiler, Input};
use crate::source::SourceKind;
use follow::{Flow, Followed, Step};

/// No function is longer, in bytes: what keeps the memory for a hostile input small.
const LONGEST: u64 = 1 << 18;
/// How often, on average, a byte of code may be followed before the rest is left. Functions that overlap are followed once each.
const MOST_TURNS: u64 = 8;

/// Adds the rules of functions that nothing else has spoken for.
pub(super) fn rules(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    let mut budget = input.code.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>().saturating_mul(MOST_TURNS);
    let is_free = |address: &u64, compiler: &Compiler<'_>| compiler.claims.is_free(*address);
    let mut starts: BTreeSet<u64> =
        input.functions.iter().copied().filter(|address| is_free(address, compiler)).collect();
    // What is called is a function too, and ends the one before it. So all of them are found before any gets rules.
    starts.extend(called_from_known_code(input, &compiler.pieces).filter(|address| is_free(address, compiler)));
    let mut new: BTreeSet<u64> = starts.clone();
    while let Some(start) = new.pop_first() {
        let Some(followed) = function(input, start, &starts, &mut budget) else { continue };
        for address in followed.callees {
            if is_free(&address, compiler) && starts.insert(address) {
                new.insert(address);
            }
        }
    }
    for start in &starts {
        if !is_free(start, compiler) {
            continue;
        }
        match function(input, *start, &starts, &mut budget) {
            Some(followed) => add(*start, &followed, compiler),
            None => unfollowed("code that is not in the file", compiler),
        }
    }
}

/// Where code that has rules already calls to.
fn called_from_known_code<'i>(input: &'i Input<'_>, pieces: &'i [Piece]) -> impl Iterator<Item = u64> + 'i {
    pieces.iter().flat_map(|piece| {
        let mut at = piece.range.start;
        let code = code_at(input, at).unwrap_or_default();
        core::iter::from_fn(move || {
            while at < piece.range.end {
                let offset = usize::try_from(at.checked_sub(piece.range.start)?).ok()?;
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

fn unfollowed(reason: &str, compiler: &mut Compiler<'_>) {
    *compiler.report.unfollowed.entry(String::from(reason)).or_default() += 1;
}

/// Follows the function at `start`, which ends before the next of `starts` at the latest.
fn function(input: &Input<'_>, start: u64, starts: &BTreeSet<u64>, budget: &mut u64) -> Option<Followed> {
    let machine = input.arch.machine();
    if !start.is_multiple_of(machine.instruction_alignment as u64) {
        return None;
    }
    let next = starts.range(start.checked_add(1)?..).next().copied().unwrap_or(u64::MAX);
    let length = usize::try_from(next.checked_sub(start)?.min(LONGEST)).ok()?;
    let code = code_at(input, start)?;
    let code = code.get(..length).unwrap_or(code);
    let followed = Followed::new(start, code, machine, riscv64::decode);
    *budget = budget.checked_sub(followed.turns)?;
    Some(followed)
}

/// Adds what is known of one function.
fn add(start: u64, followed: &Followed, compiler: &mut Compiler<'_>) {
    let source = (SourceKind::Instructions, start);
    let mut lost = false;
    for (address, bytes, step) in followed.steps() {
        let Step::Rule(rule, slots) = step else {
            lost = true;
            continue;
        };
        for range in compiler.claims.claim(address..address.saturating_add(bytes)) {
            match compiler.pieces.last_mut() {
                Some(last)
                    if last.range.end == range.start
                        && (last.rule, last.slots, last.source) == (rule, slots, source) =>
                {
                    last.range.end = range.end;
                }
                _ => compiler.pieces.push(Piece { range, rule, slots, source }),
            }
        }
    }
    if lost {
        unfollowed("the frame is lost on some path", compiler);
    } else if followed.conflicts > 0 {
        // As behind a call that never returns.
        unfollowed("paths disagree about the frame, and the first one counts", compiler);
    }
}
