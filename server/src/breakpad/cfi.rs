//! `STACK CFI`: an unwind table's rules as postfix expressions. One `INIT` opens a range of code; records behind it say what changes.
//!
//! Breakpad takes a register without an expression as unchanged. So what a rule cannot tell is left out, and a range ends where a
//! register would have to become so. Rules that the expressions cannot say (programs, other than those of linkage tables) are gaps.

use std::io::{self, Write};

use symseal_module::Rva;
use symseal_unwind::{Arch, Kind, ReturnAddress, Rule, Saved, Slots, Table};

/// Bytes of an entry of a linkage table of x86_64.
const PLT_ENTRY: u64 = 16;
/// The longest linkage table that is written entry by entry, in bytes.
const PLT_LIMIT: u64 = 1 << 20;
/// Records behind one `INIT`.
const RECORDS: usize = 4096;

/// What is known of a caller's register.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Register {
    Same,
    Unknown,
    At(String),
}

/// What holds at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct State {
    cfa: String,
    return_address: String,
    /// Frame pointer, then those with slots; behind a signal all.
    registers: Vec<(u8, Register)>,
}

pub(super) fn write(table: &Table<'_>, out: &mut impl Write) -> io::Result<()> {
    let arch = table.arch();
    let mut range = Range::of(arch);
    let mut rows = table.rows().peekable();
    while let Some((start, rule, slots)) = rows.next() {
        let end = rows.peek().map_or(table.text_end(), |(next, ..)| *next);
        if rule.kind() == Some(Kind::Plt) && end.0.saturating_sub(start.0) <= PLT_LIMIT {
            linkage_table(table, &mut range, (start, end), rule, out)?;
        } else {
            range.add(start, end, state(arch, rule, slots), out)?;
        }
    }
    range.close(out)
}

/// CFA = rsp + 8, and 8 more from a place in each entry on.
fn linkage_table(
    table: &Table<'_>,
    range: &mut Range,
    (start, end): (Rva, Rva),
    rule: Rule,
    out: &mut impl Write,
) -> io::Result<()> {
    let pushed = u64::try_from(rule.offset()).unwrap_or(PLT_ENTRY).min(PLT_ENTRY);
    let mut at = start.0;
    while at < end.0 {
        let within = table.image_base().0.wrapping_add(at) % PLT_ENTRY;
        let (words, next) = if within < pushed { (1, pushed) } else { (2, PLT_ENTRY) };
        let behind = at.saturating_add(next - within).min(end.0);
        let arch = table.arch();
        let word = i64::from(arch.word_bytes());
        let state = State {
            cfa: format!("{} {} +", name(arch, arch.stack_pointer()), words * word),
            return_address: format!(".cfa -{word} + ^"),
            registers: kept(arch, |_| Register::Same),
        };
        range.add(Rva(at), Rva(behind), Some(state), out)?;
        at = behind;
    }
    Ok(())
}

fn kept(arch: Arch, of: impl Fn(u8) -> Register) -> Vec<(u8, Register)> {
    // Those that only Windows' functions keep are unknown in other tables, and no record speaks of them.
    let slots = arch.slot_registers().iter().chain(arch.convention_registers()).copied();
    let numbers = std::iter::once(arch.frame_pointer()).chain(slots);
    numbers.map(|register| (register, of(register))).collect()
}

/// A register as Breakpad writes it. (`src/common/dwarf_cfi_to_module.cc`, `RegisterNames`)
fn name(arch: Arch, register: u8) -> String {
    let name = arch.register_name(register);
    match arch {
        Arch::Arm if register == 12 => "r12".to_owned(),
        Arch::Aarch64 | Arch::Arm | Arch::Riscv64 => name.to_owned(),
        Arch::Mips32 | Arch::Mips32Little if register == arch.frame_pointer() => "$fp".to_owned(),
        _ => format!("${name}"),
    }
}

/// What a rule says; none where there is none, or it cannot be written.
fn state(arch: Arch, rule: Rule, slots: Slots) -> Option<State> {
    let (word, name) = (i64::from(arch.word_bytes()), |register| name(arch, register));
    let (sp, fp) = (name(arch.stack_pointer()), name(arch.frame_pointer()));
    let bytes = |words: i64| words.checked_mul(word);
    let cfa = match rule.kind()? {
        // Breakpad has no rule for an interrupted instruction alone.
        Kind::Sp | Kind::Leaf => format!("{sp} {} +", bytes(rule.offset())?),
        Kind::Fp => format!("{fp} {} +", bytes(rule.offset())?),
        Kind::Register => format!("{} {} +", name(rule.register()), bytes(rule.offset())?),
        Kind::Deref => format!("{} {} + ^", name(rule.register()), bytes(rule.offset())?),
        Kind::End => {
            // A return address of zero ends the walk.
            return Some(State {
                cfa: format!("{sp} {word} +"),
                return_address: "0".into(),
                registers: kept(arch, |_| Register::Same),
            });
        }
        Kind::Signal => return signal(arch, rule.offset()),
        _ => return None,
    };
    let return_address = match rule.return_address()? {
        ReturnAddress::AtCfa(words) => format!(".cfa {} + ^", bytes(i64::from(words) + rule.origin())?),
        ReturnAddress::InRegister(register) => name(register),
    };
    let (base, origin) = if rule.slots_on_fp() { (fp.as_str(), 0) } else { (".cfa", rule.origin()) };
    let saved = |saved: Saved| match saved {
        Saved::Same => Register::Same,
        Saved::Unknown => Register::Unknown,
        Saved::At(words) => Register::At(format!("{base} {} + ^", (i64::from(words) + origin) * word)),
    };
    let of = |register: u8| match register == arch.frame_pointer() {
        true => saved(rule.frame_pointer()),
        false => slots.of(arch, register).map_or(Register::Unknown, saved),
    };
    Some(State { cfa, return_address, registers: kept(arch, of) })
}

/// The registers of what a signal interrupted.
fn signal(arch: Arch, offset: i64) -> Option<State> {
    let sp = arch.stack_pointer();
    let at = |register: u8| {
        let place = i64::try_from(arch.context_offset(register)?).ok()?.checked_add(offset)?;
        Some(format!("{} {place} + ^", name(arch, sp)))
    };
    let numbers = (0..=u8::MAX).take(arch.registers()).filter(|register| *register != sp);
    let registers = numbers.filter_map(|register| Some((register, Register::At(at(register)?))));
    Some(State { cfa: at(sp)?, return_address: at(arch.program_counter())?, registers: registers.collect() })
}

/// A range of code without gaps, until it is written.
struct Range {
    arch: Arch,
    /// Its first and last address.
    bounds: Option<(Rva, Rva)>,
    first: String,
    last: Option<State>,
    /// Addresses and what changes there.
    changes: Vec<(Rva, String)>,
}

impl Range {
    fn of(arch: Arch) -> Self {
        Self { arch, bounds: None, first: String::new(), last: None, changes: Vec::new() }
    }

    fn add(&mut self, start: Rva, end: Rva, state: Option<State>, out: &mut impl Write) -> io::Result<()> {
        let Some(state) = state.filter(|_| start < end) else { return self.close(out) };
        if let (Some((_, behind)), Some(last)) = (&mut self.bounds, &mut self.last)
            && *behind == start
            && self.changes.len() < RECORDS
            && let Some(change) = change(self.arch, last, &state)
        {
            *behind = end;
            if !change.is_empty() {
                self.changes.push((start, change));
                *last = state;
            }
            return Ok(());
        }
        self.close(out)?;
        let mut first = format!(".cfa: {} .ra: {}", state.cfa, state.return_address);
        for (number, register) in &state.registers {
            if let Register::At(at) = register {
                first.push_str(&format!(" {}: {at}", name(self.arch, *number)));
            }
        }
        (self.bounds, self.first, self.last) = (Some((start, end)), first, Some(state));
        Ok(())
    }

    fn close(&mut self, out: &mut impl Write) -> io::Result<()> {
        let Some((start, end)) = self.bounds.take() else { return Ok(()) };
        writeln!(out, "STACK CFI INIT {:x} {:x} {}", start.0, end.0.saturating_sub(start.0), self.first)?;
        for (at, change) in self.changes.drain(..) {
            writeln!(out, "STACK CFI {:x} {change}", at.0)?;
        }
        self.last = None;
        Ok(())
    }
}

/// What makes one state of another. None where no record can: a register becomes unknown, or is no longer spoken of.
fn change(arch: Arch, from: &State, to: &State) -> Option<String> {
    let mut parts = Vec::new();
    if from.cfa != to.cfa {
        parts.push(format!(".cfa: {}", to.cfa));
    }
    if from.return_address != to.return_address {
        parts.push(format!(".ra: {}", to.return_address));
    }
    if from.registers.len() != to.registers.len() {
        return None;
    }
    for ((number, from), (_, to)) in from.registers.iter().zip(&to.registers) {
        if from == to {
            continue;
        }
        let name = name(arch, *number);
        match to {
            Register::At(at) => parts.push(format!("{name}: {at}")),
            Register::Same => parts.push(format!("{name}: {name}")),
            Register::Unknown => return None,
        }
    }
    Some(parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARCH: Arch = Arch::X86_64;
    const FP: u8 = 6;
    const WORD: i64 = 8;

    fn registers(of: &[(u8, Register)]) -> Vec<(u8, Register)> {
        kept(ARCH, |register| {
            of.iter().find(|(number, _)| *number == register).map_or(Register::Same, |(_, saved)| saved.clone())
        })
    }

    fn plain(words: i64, saved: &[(u8, Register)]) -> Option<State> {
        let cfa = format!("$rsp {} +", words * WORD);
        Some(State { cfa, return_address: ".cfa -8 + ^".into(), registers: registers(saved) })
    }

    #[test]
    fn a_prologue_is_one_range_with_what_changes() {
        let at = |words: i64| Register::At(format!(".cfa {} + ^", words * WORD));
        let mut range = Range::of(ARCH);
        let mut out = Vec::new();
        for (start, end, state) in [
            (0x10, 0x11, plain(1, &[])),
            (0x11, 0x14, plain(2, &[(3, at(-2))])),
            (0x14, 0x20, plain(2, &[(3, at(-2))])),
            (0x20, 0x21, plain(1, &[])),
            (0x21, 0x30, None),
            (0x30, 0x31, plain(1, &[(FP, Register::Unknown)])),
            (0x31, 0x32, plain(1, &[])),
            (0x32, 0x33, plain(1, &[(FP, Register::Unknown)])),
        ] {
            range.add(Rva(start), Rva(end), state, &mut out).unwrap();
        }
        range.close(&mut out).unwrap();
        let expected = "\
STACK CFI INIT 10 11 .cfa: $rsp 8 + .ra: .cfa -8 + ^
STACK CFI 11 .cfa: $rsp 16 + $rbx: .cfa -16 + ^
STACK CFI 20 .cfa: $rsp 8 + $rbx: $rbx
STACK CFI INIT 30 2 .cfa: $rsp 8 + .ra: .cfa -8 + ^
STACK CFI 31 $rbp: $rbp
STACK CFI INIT 32 1 .cfa: $rsp 8 + .ra: .cfa -8 + ^
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn rules_become_expressions() {
        let rule = |kind, register, offset, ra, fp| {
            Rule::new(kind, symseal_unwind::RuleSource::EhFrame, register, offset, ra, fp).unwrap()
        };
        let ra = ReturnAddress::AtCfa(-1);
        let fp = state(ARCH, rule(Kind::Fp, 0, 2, ra, Saved::At(-2)), Slots::SAME).unwrap();
        assert_eq!(fp.cfa, "$rbp 16 +");
        assert_eq!(fp.return_address, ".cfa -8 + ^");
        assert_eq!(fp.registers[0], (FP, Register::At(".cfa -16 + ^".into())));
        let deref = state(ARCH, rule(Kind::Deref, 10, -1, ra, Saved::Same).with_slots_on_fp(), Slots::SAME).unwrap();
        assert_eq!(deref.cfa, "$r10 -8 + ^");
        let signal = state(ARCH, rule(Kind::Signal, 0, 0, ra, Saved::Same), Slots::SAME).unwrap();
        assert_eq!((signal.cfa.as_str(), signal.return_address.as_str()), ("$rsp 160 + ^", "$rsp 168 + ^"));
        assert_eq!(state(ARCH, Rule::GAP, Slots::SAME), None);
        assert_eq!(state(ARCH, rule(Kind::Program, 0, 0, ra, Saved::Same), Slots::SAME), None);
    }

    #[test]
    fn registers_have_breakpads_names_and_words_their_size() {
        let rule =
            Rule::new(Kind::Sp, symseal_unwind::RuleSource::EhFrame, 0, 4, ReturnAddress::AtCfa(-1), Saved::At(-2));
        let first = |arch: Arch| {
            let (mut range, mut out) = (Range::of(arch), Vec::new());
            range.add(Rva(0x10), Rva(0x20), state(arch, rule.unwrap(), Slots::SAME), &mut out).unwrap();
            range.close(&mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(first(Arch::X86_64), "STACK CFI INIT 10 10 .cfa: $rsp 32 + .ra: .cfa -8 + ^ $rbp: .cfa -16 + ^\n");
        assert_eq!(first(Arch::Aarch64), "STACK CFI INIT 10 10 .cfa: sp 32 + .ra: .cfa -8 + ^ x29: .cfa -16 + ^\n");
        assert_eq!(first(Arch::Mips32), "STACK CFI INIT 10 10 .cfa: $sp 16 + .ra: .cfa -4 + ^ $fp: .cfa -8 + ^\n");
        let leaf =
            Rule::new(Kind::Sp, symseal_unwind::RuleSource::EhFrame, 0, 0, ReturnAddress::InRegister(30), Saved::Same);
        assert_eq!(state(Arch::Aarch64, leaf.unwrap(), Slots::SAME).unwrap().return_address, "x30");
        let signal = signal(Arch::Aarch64, 304).unwrap();
        assert_eq!((signal.cfa.as_str(), signal.return_address.as_str()), ("sp 560 + ^", "sp 568 + ^"));
        assert_eq!(signal.registers.len(), 31);
    }
}
