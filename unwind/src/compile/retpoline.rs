//! Thunks by which a kernel calls through a register without the processor guessing where: they call past a place that catches the guess, write the register over the
//! address that this pushed, and return to it. What is known of them is their form (Linux, `arch/x86/lib/retpoline.S`), for neither call frame information nor ORC has the
//! stack in them right: at their return, which is the call, ORC takes what they wrote for a return address.
//!
//! CFA = rsp + 8 at the call within and where the register is written over what that pushed; CFA = rsp + 16 at the return; RA = [CFA − 8].

use core::ops::Range;

use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved};

/// `call` with the four bytes of its distance.
const CALL_BYTES: usize = 5;
/// What catches the guess is short: `pause; lfence; jmp` or `int3`.
const MOST_CAUGHT: usize = 16;
/// `mov %reg, (%rsp)`
const WRITE_BYTES: usize = 4;
/// `ret`, or `jmp __x86_return_thunk`, in the place of which a kernel puts the other at its start.
const RETURN_BYTES: usize = 5;

/// Of the longest thunk.
pub(super) const MOST_BYTES: u64 = (CALL_BYTES + MOST_CAUGHT + WRITE_BYTES + RETURN_BYTES) as u64;

/// The rules of the thunk at `address` whose code is `code`; nothing where it is none.
pub(super) fn rules(address: u64, code: &[u8]) -> Option<[(Range<u64>, Rule); 3]> {
    let (call, rest) = code.split_at_checked(CALL_BYTES)?;
    let (0xe8, distance) = call.split_first()? else { return None };
    let distance = usize::try_from(i32::from_le_bytes(*distance.first_chunk()?)).ok()?;
    let (caught, write) = rest.split_at_checked(distance)?;
    let catches = matches!(caught, [0xcc, ..] | [0xf3, 0x90, ..] | [0x0f, 0xae, 0xe8, ..]) && distance <= MOST_CAUGHT;
    // REX.W with or without REX.R; any register to where rsp points.
    let writes = matches!(write, [0x48 | 0x4c, 0x89, mode, 0x24, ..] if mode & 0b1100_0111 == 0b0000_0100);
    let returns = matches!(write.get(WRITE_BYTES..)?, [0xc3 | 0xe9, ..]);
    if !(catches && writes && returns) {
        return None;
    }
    let rule = |words| Rule::new(Kind::Sp, RuleSource::Instructions, 0, words, ReturnAddress::AtCfa(-1), Saved::Same);
    let writing = address.checked_add((CALL_BYTES + distance) as u64)?;
    let written = writing.checked_add(WRITE_BYTES as u64)?;
    let end = written.checked_add(RETURN_BYTES as u64)?;
    // Up to the write the call within the thunk is a call like another.
    Some([(address..address + CALL_BYTES as u64, rule(1)?), (writing..written, rule(1)?), (written..end, rule(2)?)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    /// `pause; lfence; jmp` back, the form since 2018.
    const PAUSE: [u8; 7] = [0xf3, 0x90, 0x0f, 0xae, 0xe8, 0xeb, 0xf9];

    fn thunk(caught: &[u8], write: [u8; 4], returns: u8) -> alloc::vec::Vec<u8> {
        [&[0xe8, caught.len() as u8, 0, 0, 0], caught, &write, &[returns, 0, 0, 0, 0]].concat()
    }

    #[test]
    fn thunks_of_every_form_lead_to_who_called_them() {
        for (caught, write, returns) in [
            (&PAUSE[..], [0x48, 0x89, 0x04, 0x24], 0xe9),
            (&[0xcc], [0x4c, 0x89, 0x3c, 0x24], 0xc3),
            (&[0x0f, 0xae, 0xe8, 0xeb, 0xfb], [0x48, 0x89, 0x0c, 0x24], 0xc3),
        ] {
            let code = thunk(caught, write, returns);
            let rules_of = rules(0x1000, &code).expect("a thunk");
            let writing = 0x1005 + caught.len() as u64;
            let ranges = rules_of.clone().map(|(range, _)| range);
            assert_eq!(ranges, [0x1000..0x1005, writing..writing + 4, writing + 4..0x1000 + code.len() as u64]);
            let equations = rules_of.map(|(_, rule)| alloc::format!("{}", rule.display(Arch::X86_64)));
            let called = "CFA = rsp+8; RA = [CFA-8]";
            assert_eq!(equations, [called, called, "CFA = rsp+16; RA = [CFA-8]"]);
            assert!((0..code.len() - 4).all(|length| rules(0x1000, &code[..length]).is_none()), "cut off");
        }
    }

    #[test]
    fn what_is_no_thunk_has_no_rules() {
        let write = [0x48, 0x89, 0x04, 0x24];
        for code in [
            thunk(&[0x90], write, 0xc3),
            // To a local variable, to a register, and on.
            thunk(&PAUSE, [0x48, 0x89, 0x44, 0x24], 0xc3),
            thunk(&PAUSE, [0x48, 0x89, 0xc4, 0x24], 0xc3),
            thunk(&PAUSE, write, 0x90),
            thunk(&[0xcc; 64], write, 0xc3),
            // Backwards.
            [&[0xe8, 0xff, 0xff, 0xff, 0xff, 0xcc], &write[..], &[0xc3]].concat(),
        ] {
            assert_eq!(rules(0x1000, &code), None, "{code:x?}");
        }
    }
}
