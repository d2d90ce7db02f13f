//! Functions that align their stack further than calls do, as GCC makes them for over-aligned locals beside others of unknown size: a register keeps the caller's stack
//! pointer, and the frame record below the aligned one has a *copy* of the return address. (GCC, `find_drap_reg` and `ix86_expand_prologue`)
//!
//! ```text
//! lea 8(%rsp), %r10; and $-64, %rsp; push -8(%r10); push %rbp; mov %rsp, %rbp; push %r10; …; leave; lea -8(%r10), %rsp; ret
//! ```

use super::ahead::{is_aside, is_extended};
use super::jumps::jump;
use super::length::{Mode, Parts, parts};

/// Bytes on both sides of a program counter in which all of such a prologue, or what gives the stack back, lies.
pub(crate) const AROUND: usize = 96;
/// The most instructions of either.
const MOST: usize = 32;

/// One register that may keep the caller's stack pointer.
struct Form {
    /// Its DWARF number.
    register: u8,
    /// From the stack pointer to the caller's before the first of these instructions: more than a word where the register's own value was pushed.
    to_caller: u8,
    /// `lea` of the caller's stack pointer.
    address: &'static [u8],
    /// `push` of the return address.
    copy: &'static [u8],
    /// `lea` that gives the stack back.
    back: &'static [u8],
    /// `pop` of the register behind it.
    pop: &'static [u8],
}

const FORMS_64: [Form; 2] = [
    Form {
        register: 10,
        to_caller: 8,
        address: &[0x4c, 0x8d, 0x54, 0x24, 8],
        copy: &[0x41, 0xff, 0x72, 0xf8],
        back: &[0x49, 0x8d, 0x62, 0xf8],
        pop: &[],
    },
    Form {
        register: 13,
        to_caller: 16,
        address: &[0x4c, 0x8d, 0x6c, 0x24, 16],
        copy: &[0x41, 0xff, 0x75, 0xf8],
        back: &[0x49, 0x8d, 0x65, 0xf0],
        pop: &[0x41, 0x5d],
    },
];

const FORMS_32: [Form; 2] = [
    Form {
        register: 1,
        to_caller: 4,
        address: &[0x8d, 0x4c, 0x24, 4],
        copy: &[0xff, 0x71, 0xfc],
        back: &[0x8d, 0x61, 0xfc],
        pop: &[],
    },
    Form {
        register: 7,
        to_caller: 8,
        address: &[0x8d, 0x7c, 0x24, 8],
        copy: &[0xff, 0x77, 0xfc],
        back: &[0x8d, 0x67, 0xf8],
        pop: &[0x5f],
    },
];

/// Where the caller's stack pointer is while the frame pointer is the caller's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallerStack {
    /// In the register with this DWARF number.
    Register(u8),
    /// So many bytes above the stack pointer.
    Above(u8),
}

fn forms(mode: Mode) -> &'static [Form; 2] {
    if mode == Mode::Bits64 { &FORMS_64 } else { &FORMS_32 }
}

/// The registers that may keep it, by their DWARF numbers.
pub(crate) fn registers(mode: Mode) -> [u8; 2] {
    let [one, other] = forms(mode);
    [one.register, other.register]
}

/// Bytes of such a prologue at the front of `code`, which its first `lea` begins and `mov %rsp, %rbp` ends.
#[inline(never)]
fn prologue(code: &[u8], form: &Form, mode: Mode) -> Option<usize> {
    code.strip_prefix(form.address)?;
    let (mut at, mut done) = (form.address.len(), 0);
    for _ in 0..MOST {
        let rest = code.get(at..)?;
        let parts = parts(rest, mode)?;
        let opcode = rest.get(parts.opcode..)?;
        let is_next = match done {
            0 => matches!(opcode, [0x81 | 0x83, 0xe4, ..]) && !is_extended(rest, &parts),
            1 => rest.starts_with(form.copy),
            2 => matches!(opcode, [0x55, ..]) && !is_extended(rest, &parts),
            _ => sets_frame_pointer(rest, &parts),
        };
        if !is_next && (!is_aside(rest, &parts) || jump(rest, &parts).is_some()) {
            return None;
        }
        done += u8::from(is_next);
        at += parts.length;
        if done > 3 {
            return Some(at);
        }
    }
    None
}

/// `mov %rsp, %rbp`.
fn sets_frame_pointer(code: &[u8], parts: &Parts) -> bool {
    matches!(code.get(parts.opcode..), Some([0x89, 0xe5, ..] | [0x8b, 0xec, ..])) && !is_extended(code, parts)
}

/// What is at the front of `code` behind instructions that leave the stack and frame pointers alone, if `is_it`.
fn behind_asides<T>(mut code: &[u8], mode: Mode, is_it: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
    for _ in 0..MOST {
        if let Some(found) = is_it(code) {
            return Some(found);
        }
        let parts = parts(code, mode).filter(|parts| is_aside(code, parts) && jump(code, parts).is_none())?;
        code = code.get(parts.length..)?;
    }
    None
}

/// Where the caller's stack pointer is at the instruction `at` in `code`, if such a function is making its frame there, or has given it back but for the stack pointer.
#[inline(never)]
pub(crate) fn caller_stack(code: &[u8], at: usize, mode: Mode) -> Option<CallerStack> {
    let (before, ahead) = code.split_at_checked(at)?;
    let by = |form: &Form| {
        let is_within = |start: usize| {
            let made = code.get(start..).and_then(|code| prologue(code, form, mode));
            made.is_some_and(|length| start + form.address.len() <= at && at < start + length)
        };
        if (at.saturating_sub(AROUND)..at).rev().any(is_within) {
            return Some(CallerStack::Register(form.register));
        }
        if !form.pop.is_empty() && before.ends_with(form.back) && ahead.starts_with(form.pop) {
            return Some(CallerStack::Above(form.to_caller));
        }
        behind_asides(ahead, mode, |code| match () {
            () if code.starts_with(form.back) => Some(CallerStack::Register(form.register)),
            () => prologue(code, form, mode).map(|_| CallerStack::Above(form.to_caller)),
        })
    };
    forms(mode).iter().find_map(by)
}

/// Whether the function that `code` begins with copies its return address into its record.
#[inline(never)]
pub(crate) fn begins_by_copying(code: &[u8], mode: Mode) -> bool {
    let is_one = |at: usize| {
        let code = code.get(at..).unwrap_or_default();
        forms(mode).iter().any(|form| prologue(code, form, mode).is_some())
    };
    (0..code.len().min(AROUND)).any(is_one)
}

/// Whether the last instructions in `code` that make a record copy the return address into it.
#[inline(never)]
pub(crate) fn has_copied(code: &[u8], mode: Mode) -> bool {
    let moves = if mode == Mode::Bits64 {
        [&[0x48, 0x89, 0xe5][..], &[0x48, 0x8b, 0xec]]
    } else {
        [&[0x89, 0xe5][..], &[0x8b, 0xec]]
    };
    let end_of = |start: usize| {
        let rest = code.get(start..)?;
        let length = forms(mode).iter().find_map(|form| prologue(rest, form, mode))?;
        rest.get(length..)
    };
    // Behind the last one no other record is made.
    let behind = (0..code.len()).rev().find_map(end_of);
    let is_made = |behind: &[u8]| moves.iter().any(|moves| behind.windows(moves.len()).any(|code| code == *moves));
    behind.is_some_and(|behind| !is_made(behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const MADE: [u8; 24] = [
        0x4c, 0x8d, 0x54, 0x24, 8, 0x48, 0x83, 0xe4, 0xc0, // lea 8(%rsp), %r10; and $-64, %rsp
        0x89, 0xfa, 0x41, 0xff, 0x72, 0xf8, 0x48, 0x98, // mov %edi, %edx; push -8(%r10); cltq
        0x55, 0x89, 0xd6, 0x48, 0x89, 0xe5, 0x90, // push %rbp; mov %edx, %esi; mov %rsp, %rbp
    ];

    #[test]
    fn a_record_with_a_copy_is_told_from_one_of_its_own() {
        let check = |code: &[u8], expected| assert_eq!(has_copied(code, Mode::Bits64), expected, "{code:x?}");
        check(&MADE, true);
        check(&MADE[..20], false);
        check(&[&MADE[..], &[0xc3, 0x55, 0x48, 0x89, 0xe5]].concat(), false);
        // Without the copy; with a jump between.
        check(&[&MADE[..11], &MADE[15..]].concat(), false);
        check(&[&MADE[..9], &[0xeb, 0], &MADE[9..]].concat(), false);
        check(&[], false);
        assert!(begins_by_copying(&[&[0xf3, 0x0f, 0x1e, 0xfa][..], &MADE].concat(), Mode::Bits64));
        assert!(!begins_by_copying(&[0x55, 0x48, 0x89, 0xe5], Mode::Bits64));
        // push %edi; lea 8(%esp), %edi; and $-64, %esp; push -4(%edi); push %ebp; mov %esp, %ebp
        let other = [0x57, 0x8d, 0x7c, 0x24, 8, 0x83, 0xe4, 0xc0, 0xff, 0x77, 0xfc, 0x55, 0x89, 0xe5];
        assert!(has_copied(&other, Mode::Bits32) && !has_copied(&other, Mode::Bits64));
    }

    #[test]
    fn where_the_callers_stack_pointer_is_follows_from_the_instructions_around() {
        let check = |code: &[u8], at, expected| assert_eq!(caller_stack(code, at, Mode::Bits64), expected, "{at}");
        check(&MADE, 0, Some(CallerStack::Above(8)));
        for at in [5, 9, 11, 15, 17, 18, 20] {
            check(&MADE, at, Some(CallerStack::Register(10)));
        }
        check(&MADE, 23, None);
        // leave; lea -8(%r10), %rsp; ret
        let end = [0xc9, 0x49, 0x8d, 0x62, 0xf8, 0xc3];
        check(&end, 0, None);
        check(&end, 1, Some(CallerStack::Register(10)));
        check(&end, 5, None);
        // pop %rbp; lea -16(%r13), %rsp; pop %r13; ret
        let end = [0x5d, 0x49, 0x8d, 0x65, 0xf0, 0x41, 0x5d, 0xc3];
        check(&end, 1, Some(CallerStack::Register(13)));
        check(&end, 5, Some(CallerStack::Above(16)));
        check(&end, 9, None);
    }
}
