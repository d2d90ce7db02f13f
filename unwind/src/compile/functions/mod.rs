//! Rules of code from its instructions alone, function by function, where a processor's C libraries come with little call frame information:
//! how the frame is made and taken down is followed along branches, and so is what it is in between. (RISC-V and 32-bit ARM; MIPS, with its
//! delay slots, has [`mips`](super::mips))
//!
//! Functions begin where symbols say, where other code calls to, and where instructions show it ([`starts`]).

mod arm;
mod follow;
mod instruction;
mod pages;
mod riscv64;
mod starts;
mod state;
mod thumb;

use core::ops::Range;

use super::pieces::{Origin, Piece};
use super::{Compiler, Input};
use crate::arch::Arch;
use crate::source::SourceKind;
pub(super) use follow::{Followed, Step};
use instruction::{Decode, Flow};
pub(super) use starts::Starts;

/// No function is longer, in bytes: what keeps the memory for a hostile input small.
const LONGEST: u64 = 1 << 18;
/// Why nothing is known of a function.
const NOT_THERE: &str = "code that is not in the file";
const EXHAUSTED: &str = "too many paths for the size of the function";
/// Why functions may be missing.
const NOT_ALL_FOUND: &str = "functions overlap too much to look for all that they call";

/// The instruction set of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
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

    /// Where a call that changes the instruction set leads to.
    fn exchanged(self, address: u64) -> (u64, Self) {
        match self {
            Self::Thumb => (address & !3, Self::Arm),
            Self::Arm => (address, Self::Thumb),
            Self::Riscv => (address, Self::Riscv),
        }
    }

    /// Whether `code` begins with an instruction by which functions that call others begin: a push of the return address; on RISC-V, room for it.
    fn makes_frame(self, code: &[u8]) -> bool {
        self.decode()(code).is_some_and(|instruction| match self {
            Self::Riscv => instruction.lowers(2),
            _ => instruction.pushes(13, 14),
        })
    }

    /// Instructions begin at multiples of this.
    fn alignment(self) -> u64 {
        if self == Self::Arm { 4 } else { 2 }
    }
}

/// Where the functions begin that nothing else has spoken for, and those that the index table of 32-bit ARM describes.
pub(super) fn starts(input: &Input<'_>, compiler: &mut Compiler<'_>) -> Starts {
    let known: &[Piece] = if input.arch == Arch::Riscv64 { &compiler.pieces } else { &[] };
    let starts = starts::find(input, &compiler.claims, called_from_known_code(input, known));
    if starts.is_cut {
        compiler.report.count_unfollowed(None, NOT_ALL_FOUND);
    }
    starts
}

/// Adds the rules of functions that nothing else has spoken for.
pub(super) fn rules(input: &Input<'_>, starts: &Starts, compiler: &mut Compiler<'_>) {
    for (start, set) in starts.iter() {
        if !compiler.claims.is_free(start) {
            continue;
        }
        // Each ends where the next one begins, and may take what its own size allows: none takes from another.
        let next = starts.behind(start);
        let reason = match within(input, start..next.unwrap_or(u64::MAX), set, starts) {
            Some(followed) if followed.is_exhausted => Some(EXHAUSTED),
            Some(followed) => add(start, &followed, compiler),
            None => Some(NOT_THERE),
        };
        if let Some(reason) = reason {
            // As far as it may go; without another function behind it, to the end of its section.
            let section = code_at(input, start).map(|code| start.saturating_add(code.len() as u64));
            let end = next.into_iter().chain(section).min().unwrap_or(start);
            compiler.report.count_unfollowed(Some(start..end), reason);
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

/// Follows the function that `range` holds; `None` where there is no such code.
pub(super) fn within(input: &Input<'_>, range: Range<u64>, set: Set, starts: &Starts) -> Option<Followed> {
    if !range.start.is_multiple_of(set.alignment()) {
        return None;
    }
    let length = usize::try_from(range.end.checked_sub(range.start)?.min(LONGEST)).ok()?;
    let code = code_at(input, range.start)?;
    let code = code.get(..length).unwrap_or(code);
    Some(Followed::new(range.start, code, input.arch.machine(), set.decode(), &starts.called))
}

/// Adds what is known of one function. Gives why that is not all.
fn add(start: u64, followed: &Followed, compiler: &mut Compiler<'_>) -> Option<&'static str> {
    let origin = Origin::new(SourceKind::Instructions, start);
    compiler.constants.extend(&followed.literals);
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
