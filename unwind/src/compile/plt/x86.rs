//! Linkage tables of AMD64 and IA-32, whose entries push their numbers. They have one shape; [`Form`] says what differs.
//!
//! With words of 8 or 4 bytes: CFA = sp + word · (1 + words that were pushed); RA = [CFA − word].

use alloc::vec::Vec;
use core::ops::Range;

use super::{Plt, push};
use crate::arch::Arch;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved};

const ENTRY_BYTES: u64 = 16;
const PUSH_IMMEDIATE: u8 = 0x68;
/// Bytes of `push imm32`.
const PUSH_BYTES: usize = 5;
/// Bytes of `push` from memory.
const PUSH_MEMORY_BYTES: u64 = 6;
/// Bytes of a jump through memory.
const JUMP_BYTES: usize = 6;

/// What differs between the two processors.
struct Form {
    sp: u8,
    /// `endbr64` or `endbr32`.
    landing: [u8; 4],
    /// How `push` begins, of a word that lies at a fixed address or at a distance from a register.
    pushes: &'static [[u8; 2]],
    /// The same for `jmp`.
    jumps: &'static [[u8; 2]],
    /// What section headers say of entries of the usual size.
    usual_size: &'static [u64],
}

const AMD64: Form = Form {
    sp: 7,
    landing: [0xf3, 0x0f, 0x1e, 0xfa],
    // From the instruction's own address.
    pushes: &[[0xff, 0x35]],
    jumps: &[[0xff, 0x25]],
    usual_size: &[0],
};

const IA32: Form = Form {
    sp: 4,
    landing: [0xf3, 0x0f, 0x1e, 0xfb],
    // From a fixed address, or from ebx in position-independent code.
    pushes: &[[0xff, 0x35], [0xff, 0xb3]],
    jumps: &[[0xff, 0x25], [0xff, 0xa3]],
    // GNU ld writes the size of a word.
    usual_size: &[0, 4],
};

/// What one entry does to the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// Only jumps.
    Jumps,
    /// Pushes its number; from this offset on the number is on the stack.
    PushesBefore(i64),
    /// The common entry at the start: comes with the number on the stack, pushes the link map.
    First,
    /// Pushes the link map with nothing else on the stack, for TLS descriptors.
    PushesLinkMap,
}

/// What mold's tables of AMD64 begin with, 32 bytes with the padding: `endbr64; push r11; push [link map]; jmp [resolver]`. Entries have their number in r11.
const MOLD_FIRST: ([u8; 8], [u8; 2]) = ([0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x53, 0xff, 0x35], [0xff, 0x25]);
/// `endbr64; mov r11d, number; jmp [target]`.
const MOLD_ENTRY: ([u8; 6], [u8; 2]) = ([0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb], [0xff, 0x25]);

/// The rules of one of those, whose entries push nothing.
fn mold(plt: &Plt<'_>) -> Option<Vec<(Range<u64>, Rule)>> {
    let has = |bytes: &[u8], at: usize, (front, jump): (&[u8], &[u8])| {
        bytes.starts_with(front) && bytes.get(at..).is_some_and(|rest| rest.starts_with(jump))
    };
    let (first, entries) = plt.bytes.split_at_checked(2 * ENTRY_BYTES as usize)?;
    let (header, entry) = ((&MOLD_FIRST.0[..], &MOLD_FIRST.1[..]), (&MOLD_ENTRY.0[..], &MOLD_ENTRY.1[..]));
    let is_whole = plt.range.end.checked_sub(plt.range.start) == Some(plt.bytes.len() as u64);
    let is_mold = is_whole && has(first, 12, header);
    if !is_mold || !entries.chunks(ENTRY_BYTES as usize).all(|bytes| has(bytes, 10, entry)) {
        return None;
    }
    let mut rules = Vec::new();
    let (mut from, mut words) = (plt.range.start, 1);
    // Behind both pushes; what follows the jump is padding.
    for to in [6, 12, first.len() as u64].map(|at| plt.range.start.saturating_add(at)) {
        push(&mut rules, from..to, on_stack(words)?);
        (from, words) = (to, words + 1);
    }
    push(&mut rules, from..plt.range.end, on_stack(1)?);
    Some(rules)
}

/// The rules of `plt` by rising address; `None` where its form is not known.
pub(super) fn rules(plt: &Plt<'_>, arch: Arch) -> Option<Vec<(Range<u64>, Rule)>> {
    if arch == Arch::X86_64
        && let Some(rules) = mold(plt)
    {
        return Some(rules);
    }
    let form = if arch == Arch::I686 { &IA32 } else { &AMD64 };
    let size = if form.usual_size.contains(&plt.entry_size) { ENTRY_BYTES } else { plt.entry_size };
    let entry_bytes = usize::try_from(size).ok()?;
    let expected = plt.range.end.checked_sub(plt.range.start)?;
    // The smallest are the jumps alone of Mach-O.
    if !(6..=32).contains(&size) || expected == 0 || plt.bytes.len() as u64 != expected {
        return None;
    }
    let mut rules: Vec<(Range<u64>, Rule)> = Vec::new();
    for (start, bytes) in (plt.range.start..).step_by(entry_bytes).zip(plt.bytes.chunks(entry_bytes)) {
        let end = start.checked_add(bytes.len() as u64)?;
        let after_push = start.saturating_add(PUSH_MEMORY_BYTES).min(end);
        match entry(bytes, start == plt.range.start, form)? {
            Entry::Jumps => push(&mut rules, start..end, on_stack(1)?),
            Entry::PushesBefore(at) if size == ENTRY_BYTES && start.is_multiple_of(ENTRY_BYTES) => {
                let rule = Rule::new(Kind::Plt, RuleSource::Plt, form.sp, at, ReturnAddress::AtCfa(-1), Saved::Same)?;
                push(&mut rules, start..end, rule);
            }
            Entry::PushesBefore(at) => {
                let pushed = start.checked_add_signed(at)?.min(end);
                push(&mut rules, start..pushed, on_stack(1)?);
                push(&mut rules, pushed..end, on_stack(2)?);
            }
            Entry::First => {
                push(&mut rules, start..after_push, on_stack(2)?);
                push(&mut rules, after_push..end, on_stack(3)?);
            }
            Entry::PushesLinkMap => {
                push(&mut rules, start..after_push, on_stack(1)?);
                push(&mut rules, after_push..end, on_stack(2)?);
            }
        }
    }
    Some(rules)
}

/// The rule with `words` words on the stack, the return address being the first of them.
pub(super) fn on_stack(words: i64) -> Option<Rule> {
    debug_assert!(words > 0);
    Rule::new(Kind::Sp, RuleSource::Plt, 0, words, ReturnAddress::AtCfa(-1), Saved::Same)
}

fn entry(bytes: &[u8], is_first: bool, form: &Form) -> Option<Entry> {
    let begins_with = |bytes: &[u8], forms: &[[u8; 2]]| forms.iter().any(|form| bytes.starts_with(form));
    if begins_with(bytes, form.pushes) {
        return Some(if is_first { Entry::First } else { Entry::PushesLinkMap });
    }
    let marked = bytes.strip_prefix(&form.landing);
    if marked.is_some_and(|rest| begins_with(rest, form.pushes)) {
        return None;
    }
    let prefix = bytes.len() - marked.unwrap_or(bytes).len();
    let rest = marked.unwrap_or(bytes);
    if rest.first() == Some(&PUSH_IMMEDIATE) {
        return Some(Entry::PushesBefore((prefix + PUSH_BYTES) as i64));
    }
    // With or without the bnd prefix.
    let bnd = usize::from(rest.first() == Some(&0xf2));
    if begins_with(rest.get(bnd..)?, form.jumps) {
        let after_jump = bnd + JUMP_BYTES;
        return Some(match rest.get(after_jump) {
            Some(&PUSH_IMMEDIATE) => Entry::PushesBefore((prefix + after_jump + PUSH_BYTES) as i64),
            _ => Entry::Jumps,
        });
    }
    // Padding at the end of a section.
    let is_padding = |byte: &u8| matches!(byte, 0x90 | 0xcc | 0x66 | 0x0f | 0x1f | 0x00 | 0x44 | 0x84 | 0x2e);
    bytes.iter().all(is_padding).then_some(Entry::Jumps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use alloc::vec;

    fn check(entries: &[&[u8]], size: u64, expected: &[(u64, &str)]) {
        check_of(Arch::X86_64, entries, size, expected);
    }

    fn check_of(arch: Arch, entries: &[&[u8]], size: u64, expected: &[(u64, &str)]) {
        let mut bytes = vec![];
        for entry in entries {
            let at = bytes.len() + if size == 4 { 16 } else { size as usize };
            bytes.extend_from_slice(entry);
            bytes.resize(at, 0x90);
        }
        let plt = Plt { range: 0x1000..0x1000 + bytes.len() as u64, entry_size: size, bytes: &bytes };
        let found: Vec<(u64, String)> = rules(&plt, arch)
            .expect("a known form")
            .into_iter()
            .map(|(range, rule)| (range.start, rule.display(arch).to_string()))
            .collect();
        let found: Vec<(u64, &str)> =
            found.iter().map(|(start, rule)| (*start, rule.split(';').next().unwrap_or_default())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn the_usual_linkage_tables_have_rules() {
        let first: &[u8] = &[0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0];
        let lazy: &[u8] = &[0xff, 0x25, 0, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        let plt = "CFA = rsp+8 (+8 where pc & 15 >= 11)";
        check(&[first, lazy, lazy], 16, &[(0x1000, "CFA = rsp+16"), (0x1006, "CFA = rsp+24"), (0x1010, plt)]);
        let marked: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0x68, 0, 0, 0, 0, 0xf2, 0xe9, 0, 0, 0, 0];
        let plt = "CFA = rsp+8 (+8 where pc & 15 >= 9)";
        check(&[first, marked], 16, &[(0x1000, "CFA = rsp+16"), (0x1006, "CFA = rsp+24"), (0x1010, plt)]);
        let short: &[u8] = &[0xff, 0x25, 0, 0, 0, 0, 0x66, 0x90];
        check(&[short; 3], 8, &[(0x1000, "CFA = rsp+8")]);
        let marked: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0, 0, 0, 0];
        check(&[marked; 2], 16, &[(0x1000, "CFA = rsp+8")]);
        check(
            &[lazy, first],
            16,
            &[(0x1000, "CFA = rsp+8 (+8 where pc & 15 >= 11)"), (0x1010, "CFA = rsp+8"), (0x1016, "CFA = rsp+16")],
        );
    }

    #[test]
    fn entries_of_mold_have_their_numbers_in_a_register() {
        let first: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0x53, 0xff, 0x35, 0x44, 0x28, 0, 0, 0xff, 0x25, 0x46, 0x28];
        let behind: &[u8] = &[0, 0, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc];
        let entry: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa, 0x41, 0xbb, 1, 0, 0, 0, 0xff, 0x25, 0x28, 0x28, 0, 0];
        let rules =
            [(0x1000, "CFA = rsp+8"), (0x1006, "CFA = rsp+16"), (0x100c, "CFA = rsp+24"), (0x1020, "CFA = rsp+8")];
        check(&[first, behind, entry, entry], 16, &rules);
        // With something else behind it, nothing is known of it.
        let bytes = [first, behind, entry, &[0xe8; 16]].concat();
        let plt = Plt { range: 0x1000..0x1040, entry_size: 16, bytes: &bytes };
        assert_eq!(super::rules(&plt, Arch::X86_64), None);
    }

    #[test]
    fn linkage_tables_of_ia_32_push_words_of_four_bytes() {
        let plt = "CFA = esp+4 (+4 where pc & 15 >= 11)";
        let expected = [(0x1000, "CFA = esp+8"), (0x1006, "CFA = esp+12"), (0x1010, plt)];
        let first: &[u8] = &[0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0];
        let lazy: &[u8] = &[0xff, 0x25, 0, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        check_of(Arch::I686, &[first, lazy, lazy], 4, &expected);
        let first: &[u8] = &[0xff, 0xb3, 4, 0, 0, 0, 0xff, 0xa3, 8, 0, 0, 0];
        let lazy: &[u8] = &[0xff, 0xa3, 12, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        check_of(Arch::I686, &[first, lazy], 16, &expected);
        let marked: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfb, 0xff, 0xa3, 12, 0, 0, 0, 0x66, 0x0f, 0x1f, 0x44, 0, 0];
        check_of(Arch::I686, &[marked], 16, &[(0x1000, "CFA = esp+4")]);
        let short: &[u8] = &[0xff, 0xa3, 0xfc, 0xff, 0xff, 0xff, 0x66, 0x90];
        check_of(Arch::I686, &[short; 2], 8, &[(0x1000, "CFA = esp+4")]);
    }

    #[test]
    fn a_linkage_table_of_an_unknown_form_is_left_alone() {
        let plt = Plt { range: 0..16, entry_size: 16, bytes: &[0xe8; 16] };
        assert_eq!(rules(&plt, Arch::X86_64), None);
        assert_eq!(rules(&Plt { range: 0..32, ..plt.clone() }, Arch::X86_64), None);
        assert_eq!(rules(&Plt { range: 16..16, ..plt }, Arch::X86_64), None);
    }
}
