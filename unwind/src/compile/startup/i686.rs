//! Start-up functions of IA-32: ebx is pushed and gets the address of the global offset table, two words are pushed aside, hooks are called,
//! and all of it is given back.
//!
//! CFA = esp + 4 at the first and the last instruction, esp + 8 where ebx is pushed, esp + 16 between; RA = [CFA − 4]; ebx = [CFA − 8] while it is pushed.

use super::Rules;
use crate::arch::Arch;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};

/// `endbr32`
const LANDING: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfb];
/// `push %ebx; sub $8, %esp`
const BEGIN: &[u8] = &[0x53, 0x83, 0xec, 0x08];
/// `add $8, %esp; pop %ebx; ret`
const END: &[u8] = &[0x83, 0xc4, 0x08, 0x5b, 0xc3];
/// DWARF numbers.
const SP: u8 = 4;
const EBX: u8 = 3;

/// The rules of a section that is such a function as a whole, by rising address; `None` for any other code.
pub(super) fn rules(start: u64, code: &[u8]) -> Option<Rules> {
    let body = code.strip_prefix(LANDING).unwrap_or(code).strip_prefix(BEGIN)?.strip_suffix(END)?;
    if !leaves_the_stack_alone(body) {
        return None;
    }
    let end = start.checked_add(code.len() as u64)?;
    let entry = end.checked_sub((BEGIN.len() + body.len() + END.len()) as u64)?;
    let (pushed, lowered, raised, popped) = (entry + 1, entry + 4, end.checked_sub(2)?, end.checked_sub(1)?);
    let rule = |words| Rule::new(Kind::Sp, RuleSource::Instructions, SP, words, ReturnAddress::AtCfa(-1), Saved::Same);
    let saved = Slots::SAME.with(Arch::I686.machine().slot_of(EBX)?, Saved::At(-2));
    Some(
        [
            (start..pushed, rule(1)?, Slots::SAME),
            (pushed..lowered, rule(2)?, saved),
            (lowered..raised, rule(4)?, saved),
            (raised..popped, rule(2)?, saved),
            (popped..end, rule(1)?, Slots::SAME),
        ]
        .into(),
    )
}

/// Whether `code` is made of the instructions alone that toolchains put between the two ends.
fn leaves_the_stack_alone(mut code: &[u8]) -> bool {
    loop {
        code = match code {
            [] => return true,
            // call x; add $x, %ebx; mov x(%ebx), %eax
            [0xe8, _, _, _, _, rest @ ..]
            | [0x81, 0xc3, _, _, _, _, rest @ ..]
            | [0x8b, 0x83, _, _, _, _, rest @ ..] => rest,
            // test %eax, %eax; je; call *%eax
            [0x85, 0xc0, rest @ ..] | [0x74, _, rest @ ..] | [0xff, 0xd0, rest @ ..] => rest,
            // mov $x, %eax, which linkers make of the load; call *x(%ebx)
            [0xc7, 0xc0, _, _, _, _, rest @ ..] => rest,
            [0xff, 0x93, _, _, _, _, rest @ ..] => rest,
            _ => return false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec::Vec;

    fn check(code: &[u8], expected: &[(u64, u64, &str)]) {
        let found = rules(0x1000, code).unwrap_or_default();
        let found: Vec<(u64, u64, String)> = found
            .iter()
            .map(|(range, rule, slots)| {
                let ebx = if slots.of(Arch::I686, EBX) == Some(Saved::At(-2)) { "; ebx = [CFA-8]" } else { "" };
                (range.start, range.end, rule.display(Arch::I686).to_string() + ebx)
            })
            .collect();
        let found: Vec<_> = found.iter().map(|(start, end, rule)| (*start, *end, rule.as_str())).collect();
        assert_eq!(found, expected, "{code:x?}");
    }

    #[test]
    fn start_up_functions_are_known_by_their_bytes() {
        let fini = [0x53, 0x83, 0xec, 8, 0xe8, 1, 2, 3, 0, 0x81, 0xc3, 1, 2, 3, 0, 0x83, 0xc4, 8, 0x5b, 0xc3];
        let rules = [
            (0x1000, 0x1001, "CFA = esp+4; RA = [CFA-4]"),
            (0x1001, 0x1004, "CFA = esp+8; RA = [CFA-4]; ebx = [CFA-8]"),
            (0x1004, 0x1012, "CFA = esp+16; RA = [CFA-4]; ebx = [CFA-8]"),
            (0x1012, 0x1013, "CFA = esp+8; RA = [CFA-4]; ebx = [CFA-8]"),
            (0x1013, 0x1014, "CFA = esp+4; RA = [CFA-4]"),
        ];
        check(&fini, &rules);
        let marked = [LANDING, &fini].concat();
        let moved = rules.map(|(start, end, rule)| (if start == 0x1000 { start } else { start + 4 }, end + 4, rule));
        check(&marked, &moved);
        check(&[0x53, 0x83, 0xec, 8, 0x50, 0x83, 0xc4, 8, 0x5b, 0xc3], &[]); // push
        check(&[], &[]);
    }
}
