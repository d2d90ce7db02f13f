//! `_init` and `_fini` of x86_64, which crti.o begins and crtn.o ends and which call frame information leaves out: one word is pushed
//! aside, hooks are called, and the word is given back. (System V gABI, "Initialization and Termination Functions")
//!
//! CFA = rsp + 8 at the first and the last instruction, rsp + 16 between; RA = [CFA − 8].

use super::Rules;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};

/// `endbr64`
const LANDING: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
/// `sub $8, %rsp`
const BEGIN: &[u8] = &[0x48, 0x83, 0xec, 0x08];
/// `add $8, %rsp; ret`
const END: &[u8] = &[0x48, 0x83, 0xc4, 0x08, 0xc3];
/// DWARF number of the stack pointer.
const SP: u8 = 7;

/// The rules of a section that is such a function as a whole, by rising address; `None` for any other code.
pub(super) fn rules(start: u64, code: &[u8]) -> Option<Rules> {
    let body = code.strip_prefix(LANDING).unwrap_or(code).strip_prefix(BEGIN)?.strip_suffix(END)?;
    if !leaves_the_stack_alone(body) {
        return None;
    }
    let end = start.checked_add(code.len() as u64)?;
    let last = end.checked_sub(1)?;
    // Before the return, the word has been given back.
    let lowered = last.checked_sub((body.len() + END.len() - 1) as u64)?;
    let rule = |words| Rule::new(Kind::Sp, RuleSource::Instructions, SP, words, ReturnAddress::AtCfa(-1), Saved::Same);
    let rules = [(start..lowered, rule(1)?), (lowered..last, rule(2)?), (last..end, rule(1)?)];
    Some(rules.map(|(range, rule)| (range, rule, Slots::SAME)).into())
}

/// Whether `code` is made of the instructions alone that toolchains put between the two ends.
fn leaves_the_stack_alone(mut code: &[u8]) -> bool {
    loop {
        code = match code {
            [] => return true,
            // mov x(%rip), %rax; call x
            [0x48, 0x8b, 0x05, _, _, _, _, rest @ ..] | [0xe8, _, _, _, _, rest @ ..] => rest,
            // test %rax, %rax
            [0x48, 0x85, 0xc0, rest @ ..] => rest,
            // je; call *%rax
            [0x74, _, rest @ ..] | [0xff, 0xd0, rest @ ..] => rest,
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;
    use alloc::string::ToString;
    use alloc::vec::Vec;
    use core::ops::Range;

    fn check(code: &[u8], expected: &[(Range<u64>, &str)]) {
        let found = rules(0x1000, code).unwrap_or_default();
        let found: Vec<_> =
            found.iter().map(|(range, rule, _)| (range.clone(), rule.display(Arch::X86_64).to_string())).collect();
        let expected: Vec<_> = expected.iter().map(|(range, rule)| (range.clone(), (*rule).to_string())).collect();
        assert_eq!(found, expected, "{code:x?}");
    }

    #[test]
    fn start_up_functions_are_known_by_their_bytes() {
        let (outer, inner) = ("CFA = rsp+8; RA = [CFA-8]", "CFA = rsp+16; RA = [CFA-8]");
        let init = [
            0x48, 0x83, 0xec, 8, 0x48, 0x8b, 5, 1, 2, 3, 0, 0x48, 0x85, 0xc0, 0x74, 2, 0xff, 0xd0, 0x48, 0x83, 0xc4, 8,
            0xc3,
        ];
        check(&init, &[(0x1000..0x1004, outer), (0x1004..0x1016, inner), (0x1016..0x1017, outer)]);
        let fini = [0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x83, 0xec, 8, 0x48, 0x83, 0xc4, 8, 0xc3];
        check(&fini, &[(0x1000..0x1008, outer), (0x1008..0x100c, inner), (0x100c..0x100d, outer)]);
        check(&[0x48, 0x83, 0xec, 8, 0x50, 0x48, 0x83, 0xc4, 8, 0xc3], &[]); // push
        check(&[0x48, 0x83, 0xec, 8, 0x48, 0x83, 0xc4, 8], &[]);
        check(&[], &[]);
    }
}
