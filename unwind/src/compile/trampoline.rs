//! Signal trampolines that call frame information does not describe, as in musl and in static programs; and what stacks begin with that programs make.
//!
//! * A trampoline whose context lies `distance` bytes above the stack pointer: each register, the stack pointer and the program counter =
//!   [sp + distance + where the kernel's `struct sigcontext` has it].
//! * Where a stack begins: RA is undefined.

use alloc::vec::Vec;
use core::ops::Range;

use memchr::memmem;

use super::pieces::{Origin, Piece};
use super::rules::Rules;
use crate::arch::{Arch, Machine, Trampoline};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};
use crate::source::SourceKind;

/// Gives the trampolines in `code` that lie in `text` their rule, over whatever other rule `pieces` (sorted) have there: the
/// instructions do nothing but return from a signal handler. The instruction before goes with them if it is padding,
/// because a handler returns to the first instruction and return addresses are looked up one byte lower. Gives
/// how many there were.
pub(super) fn mark(
    arch: Arch,
    code: &[(u64, &[u8])],
    text: &[Range<u64>],
    pieces: &mut Vec<Piece>,
    rules: &mut Rules,
) -> usize {
    let machine = arch.machine();
    let alignment = machine.instruction_alignment;
    let mut marked = 0;
    for (start, bytes) in code {
        for (at, trampoline) in find(bytes, machine) {
            let Some(address) = start.checked_add(at as u64) else { continue };
            let Some(end) = address.checked_add(trampoline.code.len() as u64) else { continue };
            let is_code = |address: u64| text.iter().any(|text| text.contains(&address));
            let described =
                piece_at(pieces, address).is_some_and(|piece| rules.of(piece.rule).0.kind() == Some(Kind::Signal));
            if described || !is_code(address) || !is_code(end - 1) {
                continue;
            }
            // What is no padding is the end of another function, where an interrupted one may stand: the engine looks at the address itself where nothing is
            // known of the byte before it.
            let padding = [alignment, 2 * alignment].into_iter().find(|length| {
                let bytes = at.checked_sub(*length).and_then(|from| bytes.get(from..at));
                bytes.is_some_and(machine.is_padding)
            });
            let nothing = (at == 0 && piece_at(pieces, address.wrapping_sub(1)).is_none()).then_some(alignment);
            let before = padding.or(nothing).and_then(|length| address.checked_sub(length as u64));
            let before = before.filter(|before| is_code(*before));
            let source = RuleSource::Trampoline;
            let begins = trampoline.contexts.iter().map(|(begins, _)| *begins as u64);
            let ends = begins.skip(1).chain([trampoline.code.len() as u64]);
            for ((begins, context), ends) in trampoline.contexts.iter().zip(ends) {
                let rule = Rule::new(Kind::Signal, source, machine.sp, *context, ReturnAddress::AtCfa(0), Saved::Same);
                let Some(rule) = rule else { continue };
                let start = before.filter(|_| *begins == 0).unwrap_or(address + *begins as u64);
                let range = start..address + ends;
                let rule = rules.number_of(rule, Slots::SAME);
                replace(pieces, Piece::new(range, rule, Origin::new(SourceKind::Trampoline, address)));
            }
            marked += 1;
        }
    }
    marked
}

/// What a stack begins with that a program made: glibc's `__start_context` on x86_64 (`mov rsp, rbx; mov rdi, [rsp]; test rdi, rdi; jz .+8; call`), to which
/// the function of a context returns. No call leads there and it has no caller, whatever its entry says, which is that of any function.
const BEGINNING: [u8; 13] = [0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff, 0x74, 0x08, 0xe8];
/// Bytes of all of it, up to `hlt`.
const BEGINNING_BYTES: usize = 26;
/// Its last instruction.
const HLT: u8 = 0xf4;

/// Gives what stacks begin with its rule: there is no caller. The padding before goes with it, because return addresses are looked up one byte lower.
pub(super) fn mark_beginnings(code: &[(u64, &[u8])], text: &[Range<u64>], pieces: &mut Vec<Piece>, rules: &mut Rules) {
    let machine = Arch::X86_64.machine();
    for (start, bytes) in code {
        for at in memmem::find_iter(bytes, &BEGINNING) {
            let last = at + BEGINNING_BYTES - 1;
            let (Some(address), Some(&HLT)) = (start.checked_add(at as u64), bytes.get(last)) else { continue };
            let end = address.saturating_add(BEGINNING_BYTES as u64);
            if !text.iter().any(|text| text.contains(&address) && end <= text.end) {
                continue;
            }
            let ends_piece = piece_at(pieces, address.wrapping_sub(1)).is_none();
            let before = (1..=machine.function_alignment as usize).find_map(|length| {
                let padding = bytes.get(at.checked_sub(length)?..at)?;
                (machine.is_padding)(padding).then_some(1)
            });
            let before = before.or(ends_piece.then_some(1)).unwrap_or(0);
            let rule = rules.number_of(Rule::bare(Kind::End, RuleSource::Trampoline), Slots::SAME);
            let origin = Origin::new(SourceKind::Trampoline, address);
            replace(pieces, Piece::new(address.saturating_sub(before)..end, rule, origin));
        }
    }
}

/// Where the instructions of a trampoline stand. None of them overlaps itself, so that one that is not aligned hides none that is.
fn find<'a>(bytes: &'a [u8], machine: &'static Machine) -> impl Iterator<Item = (usize, &'static Trampoline)> + 'a {
    machine.trampolines.iter().flat_map(move |trampoline| {
        memmem::find_iter(bytes, trampoline.code)
            .filter(move |at| at.is_multiple_of(machine.instruction_alignment))
            .map(move |at| (at, trampoline))
    })
}

pub(super) fn piece_at(pieces: &[Piece], address: u64) -> Option<&Piece> {
    let at = pieces.partition_point(|piece| piece.end() <= address);
    pieces.get(at).filter(|piece| piece.range().contains(&address))
}

/// Puts `new` in place of whatever lies in its range.
pub(super) fn replace(pieces: &mut Vec<Piece>, new: Piece) {
    let range = new.range();
    let from = pieces.partition_point(|piece| piece.end() <= range.start);
    let to = pieces.partition_point(|piece| piece.start() < range.end);
    let replaced = pieces.get(from..to.max(from)).unwrap_or_default();
    let below = replaced.first().filter(|piece| piece.start() < range.start);
    let above = replaced.last().filter(|piece| piece.end() > range.end);
    let below = below.map(|piece| Piece::new(piece.start()..range.start, piece.rule, piece.origin));
    let above = above.map(|piece| Piece::new(range.end..piece.end(), piece.rule, piece.origin));
    pieces.splice(from..to.max(from), below.into_iter().chain([new]).chain(above));
}
