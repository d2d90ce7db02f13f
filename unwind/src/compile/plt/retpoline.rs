//! Linkage tables of AMD64 whose jumps are returns, which LLD makes for `-z retpolineplt`. (LLD, ELF/Arch/X86_64.cpp, `Retpoline` and
//! `RetpolineZNow`)
//!
//! Entries load where they lead into r11 and call a thunk, which writes r11 over the address that this call pushed and returns there.
//! What stands behind the calls runs in speculation alone.

use alloc::vec::Vec;
use core::ops::Range;

use super::x86::on_stack;
use super::{Plt, push};
use crate::arch::Arch;
use crate::compile::expression;
use crate::compile::programs::Programs;
use crate::cx::Operation as Op;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved};

/// A byte of an instruction, or `None` for one of a distance.
type Pattern = [Option<u8>];

macro_rules! pattern {
    (@ __) => { None };
    (@ $byte:tt) => { Some($byte) };
    ($($byte:tt)*) => { &[$(pattern!(@ $byte)),*] };
}

/// `push link map; mov resolver, %r11; call thunk; pause; lfence; jmp`, and the thunk: `mov %r11, (%rsp); ret`.
const LAZY_FIRST: &Pattern = pattern!(
    0xff 0x35 __ __ __ __  0x4c 0x8b 0x1d __ __ __ __  0xe8 0x0e 0 0 0  0xf3 0x90  0x0f 0xae 0xe8  0xeb 0xf9
    0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc  0x4c 0x89 0x1c 0x24  0xc3
    0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc
);
/// `mov target, %r11; call thunk; jmp; push number; jmp first`. The target is the push until it was looked up.
const LAZY_ENTRY: &Pattern = pattern!(
    0x4c 0x8b 0x1d __ __ __ __  0xe8 __ __ __ __  0xe9 __ __ __ __  0x68 __ __ __ __  0xe9 __ __ __ __  0xcc 0xcc 0xcc 0xcc 0xcc
);
/// `call thunk; pause; lfence; jmp`, and the thunk.
const BOUND_FIRST: &Pattern = pattern!(
    0xe8 0x0b 0 0 0  0xf3 0x90  0x0f 0xae 0xe8  0xeb 0xf9  0xcc 0xcc 0xcc 0xcc  0x4c 0x89 0x1c 0x24  0xc3
    0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc 0xcc
);
/// `mov target, %r11; jmp first`.
const BOUND_ENTRY: &Pattern = pattern!(0x4c 0x8b 0x1d __ __ __ __  0xe9 __ __ __ __  0xcc 0xcc 0xcc 0xcc);

/// Offsets in [`LAZY_FIRST`]: behind the push, behind the load of the resolver, of the thunk and of its return.
const LAZY_PUSHED: u64 = 6;
const LAZY_LOADED: usize = 13;
const LAZY_THUNK: u64 = 32;
const LAZY_RETURN: u64 = 36;
/// Offset in [`LAZY_ENTRY`] behind the push.
const LAZY_NUMBERED: u64 = 22;
/// Offsets in [`BOUND_FIRST`] of the thunk and of its return.
const BOUND_THUNK: u64 = 16;
const BOUND_RETURN: u64 = 20;

/// More entries than a table has, in bits: what is as large is no entry's number.
const NUMBER_BITS: u32 = 24;

/// The rules of `plt` by rising address; `None` where it is no table of this kind.
pub(super) fn rules(plt: &Plt<'_>, programs: &mut Programs) -> Option<Vec<(Range<u64>, Rule)>> {
    if plt.range.end.checked_sub(plt.range.start)? != plt.bytes.len() as u64 {
        return None;
    }
    let start = plt.range.start;
    let is_lazy = is_made_of(plt.bytes, LAZY_FIRST, LAZY_ENTRY);
    if !is_lazy && !is_made_of(plt.bytes, BOUND_FIRST, BOUND_ENTRY) {
        return None;
    }
    let mut rules = Vec::new();
    let mut until = |end: u64, rule: Rule| {
        let from = rules.last().map_or(start, |(range, _): &(Range<u64>, Rule)| range.end);
        push(&mut rules, from..start.saturating_add(end), rule);
    };
    let (caller, numbered, mapped) = (on_stack(1)?, on_stack(2)?, on_stack(3)?);
    if !is_lazy {
        // In the thunk an address that the call pushed, and then the target, is on top.
        until(BOUND_THUNK, caller);
        until(BOUND_RETURN, caller);
        until(BOUND_FIRST.len() as u64, numbered);
        until(plt.bytes.len() as u64, caller);
        return Some(rules);
    }
    let distance =
        plt.bytes.get(..LAZY_LOADED)?.last_chunk::<4>().map(|bytes| i64::from(i32::from_le_bytes(*bytes)))?;
    let resolver = distance + LAZY_LOADED as i64 - LAZY_RETURN as i64;
    let at = programs.intern(expression::program(&at_return(resolver), Arch::X86_64.machine())?)?;
    until(LAZY_PUSHED, numbered);
    until(LAZY_THUNK, mapped);
    until(LAZY_RETURN, caller);
    until(
        LAZY_FIRST.len() as u64,
        Rule::new(Kind::Program, RuleSource::Plt, 0, at, ReturnAddress::AtCfa(-1), Saved::Same)?,
    );
    for entry in (LAZY_FIRST.len() as u64..).step_by(LAZY_ENTRY.len()).take(entries(plt.bytes, LAZY_FIRST, LAZY_ENTRY))
    {
        until(entry.saturating_add(LAZY_NUMBERED), caller);
        until(entry.saturating_add(LAZY_ENTRY.len() as u64), numbered);
    }
    Some(rules)
}

/// The CFA at the thunk's return: the target is on top, and below it the return address, but the link map and the number of the
/// entry before that if the target is the resolver. Whether it is tells the word that is loaded from `resolver` bytes behind the
/// program counter. It lies in the module's data, which a copy of a stack has not; so it is read only where the word in the place
/// of the number may be one, and else the return address in its stead, which is no function.
fn at_return(resolver: i64) -> [Op; 31] {
    use Op::{Add, And, Constant, Deref, GreaterOrEqual, Register, ShiftLeft, Subtract};
    const SP: Op = Register(7);
    const TARGET: Op = Register(11);
    const PC: Op = Register(16);
    const WORD: i64 = 8;
    [
        SP,
        Constant(0),
        SP,
        Constant(WORD),
        Add,
        PC,
        Constant(resolver - WORD),
        Add,
        SP,
        Subtract,
        SP,
        Constant(2 * WORD),
        Add,
        Deref,
        Constant(1 << NUMBER_BITS),
        GreaterOrEqual,
        Constant(1),
        Subtract,
        // All ones if it may be a number, else zero.
        And,
        Add,
        Deref,
        TARGET,
        Subtract,
        // Zero alone is not above zero.
        Constant(i64::MAX),
        And,
        GreaterOrEqual,
        Constant(1),
        Add,
        Constant(4),
        ShiftLeft,
        Add,
    ]
}

fn is_made_of(bytes: &[u8], first: &Pattern, entry: &Pattern) -> bool {
    let Some((front, rest)) = bytes.split_at_checked(first.len()) else { return false };
    rest.len().is_multiple_of(entry.len()) && is(front, first) && rest.chunks(entry.len()).all(|bytes| is(bytes, entry))
}

fn entries(bytes: &[u8], first: &Pattern, entry: &Pattern) -> usize {
    bytes.len().saturating_sub(first.len()) / entry.len()
}

fn is(bytes: &[u8], pattern: &Pattern) -> bool {
    bytes.iter().zip(pattern).all(|(byte, expected)| expected.is_none_or(|expected| expected == *byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    /// The bytes of a pattern, its distances being 1.
    fn bytes_of(pattern: &Pattern) -> impl Iterator<Item = u8> {
        let distance = pattern.iter().scan(0, |at, byte| {
            *at = if byte.is_none() { *at % 4 + 1 } else { 0 };
            Some(u8::from(*at == 1))
        });
        pattern.iter().zip(distance).map(|(byte, distance)| byte.unwrap_or(distance))
    }

    fn table(patterns: &[&Pattern]) -> Vec<u8> {
        patterns.iter().flat_map(|pattern| bytes_of(pattern)).collect()
    }

    fn rules_of(bytes: &[u8]) -> Option<Vec<(Range<u64>, Rule)>> {
        let plt = Plt { range: 0x1000..0x1000 + bytes.len() as u64, entry_size: 16, bytes };
        rules(&plt, &mut Programs::default())
    }

    fn check(patterns: &[&Pattern], expected: &[(Range<u64>, &str)]) {
        let found = rules_of(&table(patterns)).expect("a known form");
        let found: Vec<_> =
            found.iter().map(|(range, rule)| (range.clone(), rule.display(Arch::X86_64).to_string())).collect();
        let found: Vec<_> =
            found.iter().map(|(range, rule)| (range.clone(), rule.split(';').next().unwrap_or_default())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn tables_of_returns_have_rules() {
        check(
            &[LAZY_FIRST, LAZY_ENTRY, LAZY_ENTRY],
            &[
                (0x1000..0x1006, "CFA = rsp+16"),
                (0x1006..0x1020, "CFA = rsp+24"),
                (0x1020..0x1024, "CFA = rsp+8"),
                (0x1024..0x1030, "CFA = program at 0"),
                (0x1030..0x1046, "CFA = rsp+8"),
                (0x1046..0x1050, "CFA = rsp+16"),
                (0x1050..0x1066, "CFA = rsp+8"),
                (0x1066..0x1070, "CFA = rsp+16"),
            ],
        );
        check(
            &[BOUND_FIRST, BOUND_ENTRY],
            &[(0x1000..0x1014, "CFA = rsp+8"), (0x1014..0x1020, "CFA = rsp+16"), (0x1020..0x1030, "CFA = rsp+8")],
        );
    }

    #[test]
    fn a_table_that_differs_in_one_instruction_is_left_alone() {
        let bytes = table(&[LAZY_FIRST, LAZY_ENTRY]);
        for at in [0, 13, 32, 36, 48, 60, 65] {
            let mut other = bytes.clone();
            other[at] ^= 1;
            assert_eq!(rules_of(&other), None, "{at}");
        }
        assert_eq!(rules_of(&bytes[..bytes.len() - 1]), None);
        assert_eq!(rules_of(&table(&[BOUND_FIRST, LAZY_ENTRY])), None);
    }

    #[test]
    fn the_return_of_the_thunk_tells_the_resolver_from_a_function() {
        const SP: u64 = 0x7ffd_0000;
        const PC: u64 = 0x1024;
        const RESOLVER: u64 = 0x7f00_1230;
        let program = expression::program(&at_return(0x100), Arch::X86_64.machine()).expect("a program");
        let cfa = |target: u64, behind_return_address: u64, has_data| {
            let register = |number| {
                [(7, SP), (11, target), (16, PC)].iter().find(|(known, _)| *known == number).map(|(_, value)| *value)
            };
            let memory = |address: u64| match address {
                _ if address == SP => Some(target),
                _ if address == SP + 8 => Some(0x5555_1000),
                _ if address == SP + 16 => Some(behind_return_address),
                _ if address == PC + 0x100 && has_data => Some(RESOLVER),
                _ => None,
            };
            crate::cx::evaluate(&program, register, memory).ok()
        };
        // A function, its caller having any word on top of its stack.
        for word in [7, 1 << NUMBER_BITS, u64::MAX, 0x7ffd_0100] {
            assert_eq!(cfa(0x7f00_9990, word, true), Some(SP + 16));
        }
        // The resolver, with the link map and a number.
        assert_eq!(cfa(RESOLVER, 7, true), Some(SP + 32));
        // A copy of the stack tells it only where the word is no number.
        assert_eq!(cfa(0x7f00_9990, 0x7ffd_0100, false), Some(SP + 16));
        assert_eq!((cfa(0x7f00_9990, 7, false), cfa(RESOLVER, 7, false)), (None, None));
    }
}
