//! What lies ahead of an instruction of code without rules: whether the frame pointer register is the caller's still, or again. (System V
//! ABI for AMD64, 3.2.2; for IA-32, 2.2.2)

use super::jumps::jump;
use super::length::{Mode, Parts, parts};
use crate::arch::Ahead;

/// The most instructions that are looked at: compilers do not put more between the push and what follows it.
const MOST: usize = 32;

/// Numbers of the stack pointer and of the frame pointer in instructions.
const SP: u8 = 4;
const FP: u8 = 5;

/// What the instructions at the front of `code` do before anything that cannot be told: calls, what touches one of the two registers
/// otherwise, jumps through registers. Branches that depend on something are taken for not taken: whatever is ahead there, this is too.
pub(in super::super) fn ahead(code: &[u8], mode: Mode) -> Ahead {
    let (mut at, mut is_pushed) = (0, false);
    for _ in 0..MOST {
        let rest = code.get(at..).unwrap_or_default();
        let Some(parts) = parts(rest, mode) else { return Ahead::Unknown };
        let opcode = rest.get(parts.opcode..).unwrap_or_default();
        let next = at + parts.length;
        let jump = |distance: i64| if is_pushed { Ahead::Unknown } else { Ahead::Jump(next as i64 + distance) };
        match opcode {
            [0x55, ..] if !is_pushed && !is_extended(rest, &parts) => is_pushed = true,
            [0x89, 0xe5, ..] | [0x8b, 0xec, ..] if !is_extended(rest, &parts) => {
                return if is_pushed { Ahead::Entry } else { Ahead::Pushed };
            }
            [0xc3 | 0xc2, ..] if !is_pushed => return Ahead::Return,
            [0xe9, a, b, c, d, ..] => return jump(i64::from(i32::from_le_bytes([*a, *b, *c, *d]))),
            [0xeb, distance, ..] => return jump(i64::from(*distance as i8)),
            _ if !is_aside(rest, &parts) => return Ahead::Unknown,
            _ => {}
        }
        at = next;
    }
    Ahead::Unknown
}

/// Whether no instruction of `code`, which are whole ones, touches the stack pointer: one after the other, wherever branches among them lead.
pub(in super::super) fn keeps_stack(code: &[u8], mode: Mode) -> bool {
    all(code, mode, is_aside)
}

/// The REX prefix, or 0.
fn rex(code: &[u8], parts: &Parts) -> u8 {
    let before = parts.opcode.checked_sub(1).and_then(|at| code.get(at)).copied().unwrap_or(0);
    if before & 0xf0 == 0x40 { before } else { 0 }
}

/// Whether the instruction names one of the registers from r8 on, or words that are no addresses.
pub(super) fn is_extended(code: &[u8], parts: &Parts) -> bool {
    rex(code, parts) & 7 != 0 || code.first() == Some(&0x66)
}

/// Whether the instruction has nothing to do with the two registers, and another one follows it.
pub(super) fn is_aside(code: &[u8], parts: &Parts) -> bool {
    let mut bytes = code.get(parts.opcode..).unwrap_or_default().iter().copied();
    let (opcode, second) = (bytes.next().unwrap_or(0), bytes.next().unwrap_or(0));
    let is_used = match opcode {
        // push, pop, leave, returns, interrupts, calls, hlt
        0x50..=0x5f | 0x68 | 0x6a | 0x8f | 0x9c | 0x9d | 0xc8..=0xcf | 0xe8 | 0xf1 | 0xf4 => true,
        // xchg and mov of the two registers
        0x94 | 0x95 | 0xbc | 0xbd => true,
        // Of IA-32 alone: push and pop of segments and of all registers, inc and dec of the two, far calls and jumps.
        0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x60 | 0x61 | 0x44 | 0x45 | 0x4c | 0x4d | 0x9a | 0xea => true,
        // ud2, ud1, push and pop of segments
        0x0f => matches!(second, 0x0b | 0xb9 | 0xa0 | 0xa1 | 0xa8 | 0xa9),
        _ => false,
    };
    !is_used && !names(code, parts, true)
}

/// Whether the operands name the frame pointer, or, if `or_sp`, one of the two registers. Words above the stack pointer may be read and written.
fn names(code: &[u8], parts: &Parts, or_sp: bool) -> bool {
    let Some(modrm) = parts.modrm else { return false };
    let opcode = code.get(parts.opcode).copied().unwrap_or(0);
    let rex = rex(code, parts);
    let Some(operands) = code.get(modrm..) else { return true };
    let (first, sib) = (operands.first().copied().unwrap_or(0), operands.get(1).copied().unwrap_or(0));
    let (mode, register, base) = (first >> 6, first >> 3 & 7, first & 7);
    let is_one = |number: u8, extended: u8| ((or_sp && number == SP) || number == FP) && rex & extended == 0;
    // Of these the field is a part of the opcode: of ff, calls, jumps and a push from 2 on.
    let is_named = match opcode {
        0x80..=0x83 | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xd8..=0xdf | 0xf6 | 0xf7 | 0xfe => false,
        0xff => or_sp && register >= 2,
        _ => is_one(register, 4),
    };
    let is_operand = match (mode, base) {
        (3, _) => is_one(base, 1),
        // Through the frame pointer, that is: it is the function's own.
        (0, 4) => sib >> 3 & 7 == FP && rex & 2 == 0,
        (_, 4) => (sib & 7 == FP && rex & 1 == 0) || (sib >> 3 & 7 == FP && rex & 2 == 0),
        (0, _) => false,
        _ => is_one(base, 1),
    };
    is_named || is_operand
}

/// Whether no instruction of `code`, which are whole ones, names the frame pointer: one after the other, wherever branches among them lead.
pub(in super::super) fn keeps_frame_pointer(code: &[u8], mode: Mode) -> bool {
    all(code, mode, |rest, parts| {
        let is_named = match rest.get(parts.opcode).copied().unwrap_or(0) {
            // push, pop, xchg and mov of it
            0x55 | 0x5d | 0x95 | 0xbd => rex(rest, parts) & 1 == 0,
            // enter, leave; of IA-32 alone inc and dec of it, and push and pop of all registers.
            0xc8 | 0xc9 | 0x45 | 0x4d | 0x60 | 0x61 => true,
            _ => false,
        };
        !is_named && !names(rest, parts, false)
    })
}

/// Whether the `xor` that stands between the two is one of the frame pointer, in the function that `after`, whole instructions, is of, and holds until their end. Where
/// an instruction begins is not told by the bytes before it: they must not be of a function that keeps its caller's frame pointer, nor right before such a
/// place what an immediate value follows.
pub(crate) fn is_clear_of_frame_pointer(before: &[u8], after: &[u8], mode: Mode) -> bool {
    let (before, rex) = match before {
        [before @ .., rex @ 0x40..=0x4f] if mode == Mode::Bits64 => (before, *rex),
        _ => (before, 0),
    };
    // From the last return, or padding, on.
    let own = before.rsplit(|byte| matches!(byte, 0x90 | 0xc3 | 0xcc)).next().unwrap_or_default();
    // Calls and jumps, pushes, arithmetic with eax, test, mov.
    let is_immediate = |byte: &u8| matches!(byte, 0xe8 | 0xe9 | 0x68 | 0xa9 | 0xb8..=0xbf) || byte & 0xc7 == 5;
    let goes_on = |code: &[u8], parts: &Parts| {
        let opcode = code.get(parts.opcode..).unwrap_or_default();
        !matches!(opcode, [0xc2 | 0xc3 | 0xca | 0xcb | 0xcc | 0xcf | 0xf4, ..] | [0x0f, 0x0b, ..])
            && jump(code, parts).is_none_or(|jump| jump.is_conditional)
    };
    let push = 0x55;
    rex & 5 == 0
        && !own.contains(&push)
        && !before.last().is_some_and(is_immediate)
        && keeps_frame_pointer(after, mode)
        && all(after, mode, goes_on)
}

/// Whether `is_so` of each instruction of `code`, which are whole ones.
fn all(code: &[u8], mode: Mode, is_so: impl Fn(&[u8], &Parts) -> bool) -> bool {
    let mut rest = code;
    while !rest.is_empty() {
        let Some(parts) = parts(rest, mode).filter(|parts| is_so(rest, parts)) else { return false };
        let Some(next) = rest.get(parts.length..) else { return false };
        rest = next;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &[u8], expected: Ahead) {
        assert_eq!(ahead(code, Mode::Bits64), expected, "{code:x?}");
    }

    #[test]
    fn the_way_to_a_frame_is_known() {
        check(&[0x55, 0x48, 0x89, 0xe5], Ahead::Entry);
        check(&[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x8b, 0xec], Ahead::Entry); // endbr64
        check(&[0x48, 0x89, 0xe5], Ahead::Pushed);
        // cmp $5, %edi; ja; push %rbp; movslq (%rdx,%rax,4), %rax; mov %rsp, %rbp
        check(&[0x83, 0xff, 5, 0x77, 9, 0x55, 0x48, 0x63, 0x04, 0x82, 0x48, 0x89, 0xe5], Ahead::Entry);
        // mov $10, %edx; xor %esi, %esi; mov %rsp, %rbp
        check(&[0xba, 10, 0, 0, 0, 0x31, 0xf6, 0x48, 0x89, 0xe5], Ahead::Pushed);
        assert_eq!(ahead(&[0x55, 0x89, 0xe5], Mode::Bits32), Ahead::Entry);
        assert_eq!(ahead(&[0x8b, 0xec], Mode::Bits32), Ahead::Pushed);
    }

    #[test]
    fn the_way_out_is_known() {
        check(&[0xc3], Ahead::Return);
        check(&[0xf3, 0xc3], Ahead::Return);
        check(&[0x31, 0xc0, 0xc2, 8, 0], Ahead::Return); // xor %eax, %eax; ret $8
        check(&[0x31, 0xc0, 0xe9, 0, 1, 0, 0], Ahead::Jump(0x107));
        check(&[0xeb, 0xfe], Ahead::Jump(0));
    }

    #[test]
    fn what_leaves_the_frame_pointer_alone_is_known() {
        let keeps = |code: &[u8]| keeps_frame_pointer(code, Mode::Bits64);
        // push %rbx; push %r12; push %r13; sub $8, %rsp; call; mov 8(%rsp), %rax; pop %r13
        assert!(keeps(&[0x53, 0x41, 0x54, 0x41, 0x55, 0x48, 0x83, 0xec, 8, 0xe8, 0, 0, 0, 0]));
        assert!(keeps(&[0x48, 0x8b, 0x44, 0x24, 8, 0x41, 0x5d, 0xff, 0xd0]) && keeps(&[]));
        assert!(!keeps(&[0x53, 0x55])); // push %rbp
        assert!(!keeps(&[0x89, 0xfd])); // mov %edi, %ebp
        assert!(!keeps(&[0x48, 0x8b, 0x45, 0xf8])); // mov -8(%rbp), %rax
        assert!(!keeps(&[0xbd, 1, 0, 0, 0]) && !keeps(&[0xc9]) && !keeps(&[0x48, 0x8b]));
    }

    #[test]
    fn what_clears_the_frame_pointer_is_known() {
        let clears = |before: &[u8], after: &[u8]| is_clear_of_frame_pointer(before, after, Mode::Bits64);
        // mov %rsp, %rdi; jne; call *%rax
        let after = [0x48, 0x89, 0xe7, 0x75, 3, 0xff, 0xd0];
        assert!(clears(&[], &after) && clears(&[0xf3, 0x0f, 0x1e, 0xfa], &after) && clears(&[0x48], &after));
        // `_start` and `clone` of musl.
        let start =
            [0x48, 0x89, 0xe7, 0x48, 0x8d, 0x35, 0x97, 0xef, 0xbf, 0xff, 0x48, 0x83, 0xe4, 0xf0, 0xe8, 14, 0, 0, 0];
        assert!(clears(&[0x55, 0xc3, 0x48], &start));
        assert!(clears(&[0x0f, 0x05, 0x85, 0xc0, 0x75, 0x0f], &[0x5f, 0x41, 0xff, 0xd1]));
        // Behind a function with another frame pointer: push %rbp; pop %rbp; ret.
        assert!(clears(&[0x55, 0x5d, 0xc3], &after) && !clears(&[0x55, 0x53], &after));
        // xor %r13d, %r13d; xor %r13, %rbp; xor %ebp, %r13d
        assert!([0x45, 0x4c, 0x4d, 0x41].iter().all(|rex| !clears(&[*rex], &after)));
        // mov $, %eax; call; add $, %eax; cmp $, %eax
        assert!([0xb8, 0xe8, 0x05, 0x3d].iter().all(|opcode| !clears(&[*opcode], &after)));
        // ret; jmp; mov %rdi, %rbp; a part of an instruction
        for other in [&[0xc3, 0x90][..], &[0xeb, 0, 0x90], &[0x48, 0x89, 0xfd], &[0x48, 0x89]] {
            assert!(!clears(&[], other), "{other:x?}");
        }
        // Of IA-32 it is inc.
        assert!(is_clear_of_frame_pointer(&[0x45], &after[1..], Mode::Bits32));
    }

    #[test]
    fn a_leaf_without_a_frame_is_known() {
        let keeps = |code: &[u8]| keeps_stack(code, Mode::Bits64);
        // endbr64; mov (%rdi), %eax; test %eax, %eax; je; add $1, %eax; ret; mov $7, -8(%rsp)
        assert!(keeps(&[0xf3, 0x0f, 0x1e, 0xfa, 0x8b, 0x07, 0x85, 0xc0, 0x74, 3, 0x83, 0xc0, 1, 0xc3]));
        assert!(keeps(&[0xc7, 0x44, 0x24, 0xf8, 7, 0, 0, 0]) && keeps(&[]));
        assert!(!keeps(&[0x90, 0x53])); // push %rbx
        assert!(!keeps(&[0x48, 0x83, 0xec, 8])); // sub $8, %rsp
        assert!(!keeps(&[0x90, 0xe8, 0, 0, 0, 0])); // call
        assert!(!keeps(&[0x90, 0x48, 0x8b])); // cut
    }

    #[test]
    fn what_may_be_in_a_frame_tells_nothing() {
        check(&[0x5d, 0xc3], Ahead::Unknown); // pop %rbp; ret
        check(&[0xc9, 0xc3], Ahead::Unknown); // leave; ret
        check(&[0x8b, 0x45, 0xf8, 0xc3], Ahead::Unknown); // mov -8(%rbp), %eax; ret
        check(&[0x48, 0x83, 0xc4, 8, 0xc3], Ahead::Unknown); // add $8, %rsp; ret
        check(&[0x48, 0x8d, 0x65, 0xd8, 0xc3], Ahead::Unknown); // lea -40(%rbp), %rsp; ret
        check(&[0xe8, 0, 0, 0, 0, 0xc3], Ahead::Unknown); // call; ret
        check(&[0xff, 0xe0], Ahead::Unknown); // jmp *%rax
        check(&[0x53, 0xc3], Ahead::Unknown); // push %rbx; ret
        check(&[0x48, 0x89, 0xec, 0xc3], Ahead::Unknown); // mov %rbp, %rsp; ret
        check(&[0x49, 0x89, 0xe5, 0x0f, 0x0b], Ahead::Unknown); // mov %rsp, %r13; ud2
        check(&[0x55, 0xeb, 0], Ahead::Unknown); // push %rbp; jmp
        check(&[0x0f, 0x0b], Ahead::Unknown); // ud2
        check(&[0x90; 64], Ahead::Unknown);
        check(&[], Ahead::Unknown);
    }
}
