//! What hand-written code of IA-32 pushes without a word of it in its call frame information.
//!
//! An entry that says nothing claims, for its whole function, CFA = esp + 4. glibc's own `memcpy` has such an entry, and pushes eax on its
//! way. Behind a push that the entry does not speak of, its claim contradicts the instruction; it is true before, where calls lead to. So
//! the function is followed: with *n* words pushed, CFA = esp + 4·(n + 1). Only where all paths agree, everything is known that they do
//! to the stack pointer, and each leaves the function with what it was entered with. Else the entry counts as it is.
//!
//! Entries that do speak of pushes may lose count: glibc's `strcasecmp` for SSE4.2 goes on behind its first return as if all that it
//! pops there were popped for good, and its `strnlen` says of each return what holds before the pop. Functions of this kind, which do nothing
//! to the stack pointer but push and pop, are followed in the same way, and where the entry contradicts the instructions anywhere, they
//! count for the whole function.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use crate::arch::x86::{Mode, length};
use crate::arch::{Arch, Machine};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};

use super::super::pieces::Piece;
use super::super::rules::Rules;

/// No function is longer that is followed, in bytes.
const LONGEST: usize = 4096;
/// Nor has one more words pushed at once.
const DEEPEST: usize = 16;
/// The number of esp in instructions, which is its DWARF number too.
const ESP: u8 = 4;

/// Registers whose values were pushed, the first one first, by their numbers in instructions; `None` for other words.
type Pushed = Vec<Option<u8>>;

/// What an instruction does to the stack, and where it leads.
#[derive(Debug, PartialEq, Eq)]
enum Effect {
    None,
    Push(Option<u8>),
    Pop,
    /// To an address at this distance from the instruction behind it, and to that instruction too if the branch depends on something.
    Branch {
        distance: i64,
        is_conditional: bool,
    },
    /// To a function at this distance from the instruction behind it.
    Call(i64),
    /// Out of the function.
    Return,
    /// Nothing follows.
    Trap,
}

/// Splits the `pieces` (sorted) of entries that say nothing, where the code has pushes, and corrects those that say something else than the code.
pub(in super::super) fn tell_pushes(code: &[(u64, &[u8])], pieces: &mut Vec<Piece>, rules: &mut Rules) {
    let machine = Arch::I686.machine();
    let mut told = Vec::with_capacity(pieces.len());
    for entry in pieces.chunk_by(|piece, next| piece.origin == next.origin && piece.end() == next.start()) {
        match tell(entry, code, machine, rules) {
            Some(parts) => told.extend(parts),
            None => told.extend_from_slice(entry),
        }
    }
    *pieces = told;
}

/// The pieces of one entry by its instructions; `None` where they do not tell, or say the same.
fn tell(entry: &[Piece], code: &[(u64, &[u8])], machine: &'static Machine, rules: &mut Rules) -> Option<Vec<Piece>> {
    let (first, last) = (entry.first()?, entry.last()?);
    let whole = Piece::new(first.start()..last.end(), first.rule, first.origin);
    let counts = |piece: &Piece| counts_from_esp(rules.of(piece.rule).0);
    let may_be_wrong = says_nothing(rules.of(first.rule), machine) && entry.iter().all(counts);
    let bytes = bytes_of(code, &whole.range()).filter(|_| may_be_wrong)?;
    let parts = follow(bytes, |distance| is_thunk(code, whole.start().checked_add_signed(distance)))?;
    is_contradicted(entry, &parts, rules).then(|| split(&whole, entry.len() > 1, &parts, machine, rules))?
}

/// Whether a rule of call frame information counts the CFA from esp, with the return address below it.
fn counts_from_esp(rule: Rule) -> bool {
    matches!(rule.source(), Some(RuleSource::EhFrame | RuleSource::DebugFrame))
        && rule.kind() == Some(Kind::Sp)
        && rule.return_address() == Some(ReturnAddress::AtCfa(-1))
}

/// Whether the CFA is elsewhere than the entry says before some instruction. Both rise, and begin at the same place.
fn is_contradicted(entry: &[Piece], parts: &[(usize, Pushed)], rules: &Rules) -> bool {
    let Some(start) = entry.first().map(Piece::start) else { return false };
    let ends = parts.iter().skip(1).map(|(at, _)| start.saturating_add(*at as u64)).chain([u64::MAX]);
    let mut parts = parts.iter().zip(ends).peekable();
    entry.iter().any(|piece| {
        let said = rules.of(piece.rule).0.offset();
        loop {
            let Some(((_, pushed), end)) = parts.peek() else { return false };
            if i64::try_from(pushed.len()).ok().and_then(|pushed| pushed.checked_add(1)) != Some(said) {
                return true;
            }
            if *end > piece.end() {
                return false;
            }
            let is_shared = *end == piece.end();
            parts.next();
            if is_shared {
                return false;
            }
        }
    })
}

/// Whether the rule is that of a function's first instruction.
fn says_nothing((of_piece, slots): (Rule, Slots), machine: &'static Machine) -> bool {
    let rule = of_piece.source().and_then(|source| rule(source, 0, Saved::Same, machine));
    rule == Some(of_piece) && slots == Slots::SAME
}

fn rule(source: RuleSource, pushed: usize, fp: Saved, machine: &'static Machine) -> Option<Rule> {
    let words = i64::try_from(pushed).ok()?.checked_add(1)?;
    Rule::new(Kind::Sp, source, machine.sp, words, ReturnAddress::AtCfa(-1), fp)
}

fn bytes_of<'a>(code: &[(u64, &'a [u8])], range: &Range<u64>) -> Option<&'a [u8]> {
    let size = usize::try_from(range.end.checked_sub(range.start)?).ok().filter(|size| *size <= LONGEST)?;
    code.iter().find_map(|(start, bytes)| {
        let from = usize::try_from(range.start.checked_sub(*start)?).ok()?;
        bytes.get(from..from.checked_add(size)?)
    })
}

/// The piece in parts, each with what was pushed before it. Where the entry is wrong, or somewhere if `is_all_in_doubt`, the instructions are what the rule comes from.
fn split(
    piece: &Piece,
    is_all_in_doubt: bool,
    parts: &[(usize, Pushed)],
    machine: &'static Machine,
    rules: &mut Rules,
) -> Option<Vec<Piece>> {
    let source = rules.of(piece.rule).0.source()?;
    let ends = parts.iter().skip(1).map(|(start, _)| *start as u64 + piece.start()).chain([piece.end()]);
    let split = parts.iter().zip(ends).map(|((start, pushed), end)| {
        let (mut fp, mut slots) = (Saved::Same, Slots::SAME);
        for (register, below) in pushed.iter().zip(2i16..) {
            let Some(register) = register else { continue };
            // The first push has the caller's value, and later ones what the function put there.
            if *register == machine.fp && fp == Saved::Same {
                fp = Saved::At(-below);
            } else if slots.of_machine(machine, *register) == Some(Saved::Same)
                && let Some(slot) = machine.slot_of(*register)
            {
                slots = slots.with(slot, Saved::At(-below));
            }
        }
        let source = if pushed.is_empty() && !is_all_in_doubt { source } else { RuleSource::Instructions };
        let rule = rule(source, pushed.len(), fp, machine)?;
        Some(Piece::new(piece.start() + *start as u64..end, rules.number_of(rule, slots), piece.origin))
    });
    split.collect()
}

/// What was pushed before which instructions of the function, wherever it changes; `None` where that is not known for each of them.
/// `gives_back`: whether the function at a distance from the first instruction leaves the stack as it was.
fn follow(code: &[u8], gives_back: impl Fn(i64) -> bool) -> Option<Vec<(usize, Pushed)>> {
    let mut parts: Vec<(usize, Pushed)> = Vec::new();
    // What was pushed at the targets of branches, and which instructions there are.
    let mut targets: BTreeMap<usize, Pushed> = BTreeMap::new();
    let mut starts = Vec::new();
    let mut flows_in = Some(Pushed::new());
    let mut at = 0;
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let pushed = match (flows_in.take(), targets.get(&at)) {
            (Some(pushed), Some(known)) if pushed != *known => return None,
            (Some(pushed), _) => pushed,
            (None, Some(known)) => known.clone(),
            // Padding, or code that nothing leads to yet.
            (None, None) => {
                let is_padding = Arch::I686.machine().is_padding;
                if is_padding(rest) {
                    return is_consistent(&targets, &starts, &parts).then_some(parts);
                }
                // In front of what a branch leads to.
                let size = length(rest, Mode::Bits32)?;
                at = at.checked_add(rest.get(..size).filter(|nop| is_padding(nop)).map(<[u8]>::len)?)?;
                continue;
            }
        };
        if parts.last().is_none_or(|(_, last)| *last != pushed) {
            parts.push((at, pushed.clone()));
        }
        starts.push(at);
        let size = length(rest, Mode::Bits32)?;
        let (next, mut after) = (at.checked_add(size)?, pushed);
        match effect(rest.get(..size)?)? {
            Effect::None => {}
            Effect::Call(distance) if !gives_back(i64::try_from(next).ok()?.checked_add(distance)?) => return None,
            Effect::Call(_) => {}
            Effect::Push(register) => after.push(register),
            Effect::Pop => drop(after.pop()?),
            Effect::Return if after.is_empty() => {
                at = next;
                continue;
            }
            Effect::Return => return None,
            Effect::Trap => {
                at = next;
                continue;
            }
            Effect::Branch { distance, is_conditional } => {
                let target = i64::try_from(next).ok()?.checked_add(distance)?;
                match usize::try_from(target).ok().filter(|target| *target < code.len()) {
                    Some(target) if targets.get(&target).is_none_or(|known| *known == after) => {
                        targets.insert(target, after.clone());
                    }
                    // Out of the function, as calls at its end do.
                    None if after.is_empty() => {}
                    _ => return None,
                }
                if !is_conditional {
                    at = next;
                    continue;
                }
            }
        }
        if after.len() > DEEPEST {
            return None;
        }
        flows_in = Some(after);
        at = next;
    }
    // The last instruction must not run on.
    (flows_in.is_none() && is_consistent(&targets, &starts, &parts)).then_some(parts)
}

/// Whether the function at `address` does nothing but give its caller's address in a register: `mov (%esp), %REG; ret`.
fn is_thunk(code: &[(u64, &[u8])], address: Option<u64>) -> bool {
    let at = |start: u64| usize::try_from(address?.checked_sub(start)?).ok();
    let bytes = code.iter().find_map(|(start, bytes)| bytes.get(at(*start)?..)?.first_chunk::<4>());
    matches!(bytes, Some([0x8b, register, 0x24, 0xc3]) if register & 0xc7 == 0x04 && register >> 3 & 7 != ESP)
}

/// Whether all branches lead to instructions, with what is pushed there; those that lead back were not yet looked at.
fn is_consistent(targets: &BTreeMap<usize, Pushed>, starts: &[usize], parts: &[(usize, Pushed)]) -> bool {
    targets.iter().all(|(target, pushed)| {
        let part = parts.partition_point(|(start, _)| start <= target).checked_sub(1).and_then(|at| parts.get(at));
        starts.binary_search(target).is_ok() && part.is_some_and(|(_, known)| known == pushed)
    })
}

/// What one instruction does; `None` for all that changes the stack pointer in other ways, and for calls through pointers, whose functions may
/// give back words of their caller.
fn effect(instruction: &[u8]) -> Option<Effect> {
    let distance = |bytes: &[u8]| match bytes {
        [near] => Some(i64::from(*near as i8)),
        bytes => Some(i64::from(i32::from_le_bytes(*bytes.first_chunk::<4>()?))),
    };
    let branch = |bytes: &[u8], is_conditional| Some(Effect::Branch { distance: distance(bytes)?, is_conditional });
    // Segments, sizes of operands, locks, repetitions: all that an instruction of known length may have.
    let is_prefix = |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0xf0 | 0xf2 | 0xf3);
    let prefixes = instruction.iter().take_while(is_prefix);
    let is_short = prefixes.clone().any(|byte| *byte == 0x66);
    match instruction.get(prefixes.count()..)? {
        // What is pushed, and where branches lead, depends on it.
        [0x50..=0x5f | 0x68 | 0x6a | 0x70..=0x7f | 0xc2 | 0xc3 | 0xe0..=0xe3 | 0xe8 | 0xe9 | 0xeb, ..] if is_short => {
            None
        }
        [0x0f, 0x80..=0x8f, ..] if is_short => None,
        [register @ 0x50..=0x57] => Some(Effect::Push(Some(register & 7).filter(|register| *register != ESP))),
        [0x5c] => None,
        [0x58..=0x5f] => Some(Effect::Pop),
        [0x68 | 0x6a, ..] => Some(Effect::Push(None)),
        [0x70..=0x7f | 0xe0..=0xe3, near] => branch(&[*near], true),
        [0x0f, 0x80..=0x8f, far @ ..] => branch(far, true),
        [0xe8, far @ ..] => distance(far).map(Effect::Call),
        [0xeb, near] => branch(&[*near], false),
        [0xe9, far @ ..] => branch(far, false),
        [0xc3] | [0xc2, ..] => Some(Effect::Return),
        [0xf4] | [0x0f, 0x0b] => Some(Effect::Trap),
        // Pushes and pops of segments, flags and all registers; decrements and increments, loads and exchanges of esp; enter, leave; calls,
        // far returns; pushes of memory and jumps to where it says.
        [0x06 | 0x07 | 0x0e | 0x16 | 0x17 | 0x1e | 0x1f | 0x44 | 0x4c | 0x60 | 0x61 | 0x8f | 0x94, ..]
        | [0x9a | 0x9c | 0x9d | 0xbc | 0xc8..=0xcb | 0xce | 0xcf | 0xea | 0xff, ..]
        | [0x0f, 0xa0 | 0xa1 | 0xa8 | 0xa9] => None,
        // Vectors' prefixes, behind which a general register may be written too; bswap of esp.
        [0x62 | 0x63 | 0xc4 | 0xc5, ..] | [0x0f, 0xcc] => None,
        // Of vector registers alone, whose numbers are in the same places; of the others some give a general one its value.
        [0x0f, 0x10..=0x17 | 0x28..=0x2b | 0x2e | 0x2f | 0x51..=0x76 | 0x7c | 0x7d | 0x7f | 0xc2 | 0xc6, _, ..]
        | [0x0f, 0xd0..=0xd6 | 0xd8..=0xfe, _, ..]
        | [0x0f, 0x38, 0x00..=0x40, _, ..]
        | [0x0f, 0x3a, 0x08..=0x0f | 0x60..=0x63, _, ..] => Some(Effect::None),
        // From a vector register to a general one: movd, pmovmskb.
        [0x0f, 0x7e, modrm, ..] => names_no_esp(*modrm, false),
        [0x0f, 0xd7, modrm, ..] => (modrm >> 3 & 7 != ESP).then_some(Effect::None),
        // Where another byte says which register: an operand, or one of several instructions.
        [0x0f, 0x38 | 0x3a, _, modrm, ..] => names_no_esp(*modrm, true),
        [0x0f, _, modrm, ..] => names_no_esp(*modrm, true),
        [0x0f, ..] => Some(Effect::None),
        [0x69 | 0x6b | 0x00..=0x3f | 0x84..=0x8e, modrm, ..] => names_no_esp(*modrm, true),
        [0x80..=0x83 | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xf6 | 0xf7 | 0xfe, modrm, ..] => {
            names_no_esp(*modrm, false)
        }
        _ => Some(Effect::None),
    }
}

/// An instruction that cannot change esp, by its ModRM; `has_register` if that names a register besides the operand.
fn names_no_esp(modrm: u8, has_register: bool) -> Option<Effect> {
    let is_operand = modrm >> 6 == 3 && modrm & 7 == ESP;
    let is_register = has_register && modrm >> 3 & 7 == ESP;
    (!is_operand && !is_register).then_some(Effect::None)
}

#[cfg(test)]
mod tests {
    use super::super::super::pieces::Origin;
    use super::*;
    use crate::source::SourceKind;

    const START: u64 = 0x1000;

    /// An entry for so many bytes at `start` that says nothing.
    fn silent(start: u64, bytes: u64, rules: &mut Rules) -> Piece {
        let rule = rule(RuleSource::EhFrame, 0, Saved::Same, Arch::I686.machine()).expect("a rule");
        Piece::new(start..start + bytes, rules.number_of(rule, Slots::SAME), Origin::new(SourceKind::EhFrame, start))
    }

    /// Where the number of pushed words changes, and to what.
    fn depths(code: &[u8]) -> Option<Vec<(usize, usize)>> {
        Some(follow(code, |_| false)?.into_iter().map(|(at, pushed)| (at, pushed.len())).collect())
    }

    #[test]
    fn pushes_and_pops_are_followed_along_branches() {
        // test %ecx, %ecx; je 1f; push %eax; rep movsb; pop %eax; 1: ret
        let code = [0x85, 0xc9, 0x74, 0x04, 0x50, 0xf3, 0xa4, 0x58, 0xc3];
        assert_eq!(depths(&code), Some([(0, 0), (5, 1), (8, 0)].into()));
        // push %ebx; 1: dec %ecx; jne 1b; pop %ebx; ret; nop
        let code = [0x53, 0x49, 0x75, 0xfd, 0x5b, 0xc3, 0x90];
        assert_eq!(depths(&code), Some([(0, 0), (1, 1), (5, 0)].into()));
        // ret; behind it what a branch led to: jne 1f; ret; 1: push $1; pop %eax; ret
        let code = [0x75, 0x01, 0xc3, 0x6a, 0x01, 0x58, 0xc3];
        assert_eq!(depths(&code), Some([(0, 0), (5, 1), (6, 0)].into()));
    }

    #[test]
    fn vector_registers_with_the_number_of_esp_change_no_stack() {
        // push %eax; psrldq $4, %xmm4; pxor %xmm4, %xmm4; movd %xmm4, %edi; pmovmskb %xmm4, %ecx; pop %eax; ret
        let vectors =
            [0x66, 0x0f, 0x73, 0xdc, 4, 0x66, 0x0f, 0xef, 0xe4, 0x66, 0x0f, 0x7e, 0xe7, 0x66, 0x0f, 0xd7, 0xcc];
        let code = [&[0x50], &vectors[..], &[0x58, 0xc3]].concat();
        assert_eq!(depths(&code), Some([(0, 0), (1, 1), (19, 0)].into()));
        assert_eq!(follow(&[0x50, 0x66, 0x0f, 0x7e, 0xcc, 0x58, 0xc3], |_| false), None); // movd %xmm1, %esp
        assert_eq!(follow(&[0x50, 0x0f, 0x50, 0xe1, 0x58, 0xc3], |_| false), None); // movmskps %xmm1, %esp
    }

    #[test]
    fn what_is_not_known_of_all_instructions_is_not_told() {
        let check = |code: &[u8]| assert_eq!(follow(code, |_| false), None, "{code:x?}");
        check(&[0x50, 0xc3]); // push %eax; ret, which leads there
        check(&[0x50, 0x74, 0x01, 0x58, 0xc3]); // the branch leaves out the pop
        check(&[0x50, 0x58]); // runs on
        check(&[0x50, 0x75, 0x7f, 0x58, 0xc3]); // leaves with a word more
        check(&[0x50, 0x75, 0xfd, 0x58, 0xc3]); // back to before the push
        check(&[0x50, 0x75, 0xff, 0x58, 0xc3]); // into an instruction
        check(&[0x50, 0xe8, 0, 0, 0, 0, 0x58, 0xc3]); // a call
        check(&[0x50, 0x83, 0xec, 4, 0x58, 0xc3]); // sub $4, %esp
        check(&[0x50, 0x89, 0xec, 0x58, 0xc3]); // mov %ebp, %esp
        check(&[0x50, 0x8b, 0x65, 0, 0x58, 0xc3]); // mov 0(%ebp), %esp
        check(&[0x50, 0x0f, 0x44, 0xe0, 0x58, 0xc3]); // cmove %eax, %esp
        check(&[0x50, 0x66, 0x58, 0x58, 0xc3]); // pop %ax
        check(&[0x50, 0x0f, 0xa0, 0x0f, 0xa1, 0x58, 0xc3]); // push %fs; pop %fs
        check(&[0x50, 0x0f, 0xa8, 0x0f, 0xa9, 0x58, 0xc3]); // push %gs; pop %gs
        check(&[0x50, 0x64, 0x8b, 0x25, 0, 0, 0, 0, 0x58, 0xc3]); // mov %fs:0, %esp
        check(&[0x50, 0x65, 0x8b, 0x25, 0, 0, 0, 0, 0x58, 0xc3]); // mov %gs:0, %esp
        check(&[0x50, 0x65, 0xff, 0x15, 0x10, 0, 0, 0, 0x58, 0xc3]); // call *%gs:0x10
        check(&[0x50, 0x65, 0xff, 0x25, 0x10, 0, 0, 0, 0x58, 0xc3]); // jmp *%gs:0x10
        check(&[0x50, 0xf0, 0x0f, 0xc1, 0x21, 0x58, 0xc3]); // lock xadd %esp, (%ecx)
        check(&[0x58, 0x50, 0xc3]); // takes the return address away
        check(&[0x50, 0x58, 0xc3, 0x53, 0x5b]); // code behind it that nothing leads to
        check(&[0x50; 64]);
    }

    #[test]
    fn the_code_counts_where_an_entry_loses_count_behind_a_return() {
        // push %ebx; call thunk; test %ecx, %ecx; je 1f; pop %ebx; ret; nopw; 1: neg %eax; pop %ebx; ret; thunk: mov (%esp), %ebx; ret
        let function =
            [0x53, 0xe8, 14, 0, 0, 0, 0x85, 0xc9, 0x74, 0x04, 0x5b, 0xc3, 0x66, 0x90, 0xf7, 0xd8, 0x5b, 0xc3];
        let code = [&function[..], &[0x66, 0x90, 0x8b, 0x1c, 0x24, 0xc3]].concat();
        let check = |says: &[(u64, i64)], code: &[u8]| {
            let mut rules = Rules::default();
            let ends = says.iter().skip(1).map(|(at, _)| *at).chain([function.len() as u64]);
            let piece = |((at, words), end): (&(u64, i64), u64)| {
                let at_cfa = ReturnAddress::AtCfa(-1);
                let rule = Rule::new(Kind::Sp, RuleSource::EhFrame, ESP, *words, at_cfa, Saved::Same).expect("a rule");
                let origin = Origin::new(SourceKind::EhFrame, 0);
                Piece::new(START + at..START + end, rules.number_of(rule, Slots::SAME), origin)
            };
            let mut pieces: Vec<Piece> = says.iter().zip(ends).map(piece).collect();
            tell_pushes(&[(START, code)], &mut pieces, &mut rules);
            pieces.iter().map(|piece| (piece.start() - START, rules.of(piece.rule).0.offset())).collect::<Vec<_>>()
        };
        // As glibc's `strcasecmp` has it, and its `strnlen`.
        let followed = [(0, 1), (1, 2), (11, 1), (14, 2), (17, 1)];
        assert_eq!(check(&[(0, 1), (1, 2), (11, 1), (12, 1), (17, 0)], &code), followed);
        assert_eq!(check(&[(0, 1), (1, 2)], &code), followed);
        // What is called may do anything.
        let other = [&function[..], &[0x66, 0x90, 0x8b, 0x1c, 0x24, 0xc2]].concat();
        assert_eq!(check(&[(0, 1), (1, 2)], &other), [(0, 1), (1, 2)]);
    }

    #[test]
    fn many_functions_are_told_in_time_that_grows_with_their_number() {
        const FUNCTIONS: usize = 100_000;
        let code = [0x50, 0x58, 0xc3].repeat(FUNCTIONS);
        let mut rules = Rules::default();
        let mut pieces: Vec<Piece> = (0..FUNCTIONS as u64).map(|at| silent(START + 3 * at, 3, &mut rules)).collect();
        let began = std::time::Instant::now();
        tell_pushes(&[(START, &code)], &mut pieces, &mut rules);
        let taken = began.elapsed();
        let starts: Vec<u64> = pieces.iter().map(Piece::start).collect();
        assert_eq!(starts, (START..START + code.len() as u64).collect::<Vec<_>>());
        assert!(pieces.iter().all(|piece| piece.end() == piece.start() + 1));
        // A small part of a second; twenty of them, if each function moved the pieces behind it.
        assert!(taken.as_secs() < 5, "{taken:?}");
    }

    #[test]
    fn a_register_that_is_pushed_twice_was_saved_by_the_first_push() {
        // push %r; mov $1, %r; push %r; pop %eax; pop %r; ret
        let check = |r: u8, told: fn((Rule, Slots)) -> Option<Saved>| {
            let code = [0x50 + r, 0xb8 + r, 1, 0, 0, 0, 0x50 + r, 0x58, 0x58 + r, 0xc3];
            let mut rules = Rules::default();
            let mut pieces = Vec::from([silent(START, code.len() as u64, &mut rules)]);
            tell_pushes(&[(START, &code)], &mut pieces, &mut rules);
            let found: Vec<_> =
                pieces.iter().map(|piece| (piece.start() - START, told(rules.of(piece.rule)))).collect();
            let saved = Some(Saved::At(-2));
            assert_eq!(found, [(0, Some(Saved::Same)), (1, saved), (7, saved), (8, saved), (9, Some(Saved::Same))]);
        };
        check(3, |(_, slots)| slots.of(Arch::I686, 3));
        check(5, |(rule, _)| Some(rule.frame_pointer()));
    }
}
