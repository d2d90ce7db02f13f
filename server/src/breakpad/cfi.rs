//! `STACK CFI`: an unwind table's rules as postfix expressions. One `INIT` opens a range of code; records behind it say what changes.
//!
//! Breakpad takes a register without an expression as unchanged. So what a rule cannot tell is left out, and a range ends where a
//! register would have to become so. Rules that the expressions cannot say (programs, other than those of linkage tables) are gaps.

use std::io::{self, Write};

use symseal_module::Rva;
use symseal_unwind::{Arch, Kind, ReturnAddress, Rule, Saved, Slots, Table};

/// The only architecture whose rules are written so far.
const ARCH: Arch = Arch::X86_64;
/// DWARF numbers of its frame pointer and stack pointer.
const FP: u8 = 6;
const SP: u8 = 7;
/// Its general registers.
const REGISTERS: usize = 16;

/// Bytes in a word.
const WORD: i64 = 8;
/// Bytes of an entry of a linkage table.
const PLT_ENTRY: u64 = 16;
/// The longest linkage table that is written entry by entry, in bytes.
const PLT_LIMIT: u64 = 1 << 20;
/// Records behind one `INIT`.
const RECORDS: usize = 4096;
/// Where the registers are in a signal's context, in bytes behind the rule's offset, by DWARF number; the program counter is last.
/// (Linux, `struct ucontext` of x86_64.)
const CONTEXT: [i64; REGISTERS + 1] = [144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96, 168];

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
    if table.arch() != ARCH {
        return Ok(());
    }
    let mut range = Range::default();
    let mut rows = table.rows().peekable();
    while let Some((start, rule, slots)) = rows.next() {
        let end = rows.peek().map_or(table.text_end(), |(next, ..)| *next);
        if rule.kind() == Some(Kind::Plt) && end.0.saturating_sub(start.0) <= PLT_LIMIT {
            linkage_table(table, &mut range, (start, end), rule, out)?;
        } else {
            range.add(start, end, state(rule, slots), out)?;
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
        let state = State {
            cfa: format!("$rsp {} +", words * WORD),
            return_address: format!(".cfa -{WORD} + ^"),
            registers: kept(|_| Register::Same),
        };
        range.add(Rva(at), Rva(behind), Some(state), out)?;
        at = behind;
    }
    Ok(())
}

fn kept(of: impl Fn(u8) -> Register) -> Vec<(u8, Register)> {
    std::iter::once(FP).chain(ARCH.slot_registers().iter().copied()).map(|register| (register, of(register))).collect()
}

/// What a rule says; none where there is none, or it cannot be written.
fn state(rule: Rule, slots: Slots) -> Option<State> {
    let name = |register: u8| format!("${}", ARCH.register_name(register));
    let bytes = |words: i64| words.checked_mul(WORD);
    let cfa = match rule.kind()? {
        Kind::Sp => format!("$rsp {} +", bytes(rule.offset())?),
        Kind::Fp => format!("$rbp {} +", bytes(rule.offset())?),
        Kind::Register => format!("{} {} +", name(rule.register()), bytes(rule.offset())?),
        Kind::Deref => format!("{} {} + ^", name(rule.register()), bytes(rule.offset())?),
        Kind::End => {
            // A return address of zero ends the walk.
            return Some(State {
                cfa: "$rsp 8 +".into(),
                return_address: "0".into(),
                registers: kept(|_| Register::Same),
            });
        }
        Kind::Signal => return signal(rule.offset()),
        _ => return None,
    };
    let return_address = match rule.return_address()? {
        ReturnAddress::AtCfa(words) => format!(".cfa {} + ^", bytes(words.into())?),
        ReturnAddress::InRegister(register) => name(register),
    };
    let base = if rule.slots_on_fp() { "$rbp" } else { ".cfa" };
    let saved = |saved: Saved| match saved {
        Saved::Same => Register::Same,
        Saved::Unknown => Register::Unknown,
        Saved::At(words) => Register::At(format!("{base} {} + ^", i64::from(words) * WORD)),
    };
    let of = |register: u8| match register {
        FP => saved(rule.frame_pointer()),
        other => slots.of(ARCH, other).map_or(Register::Unknown, saved),
    };
    Some(State { cfa, return_address, registers: kept(of) })
}

/// The registers of what a signal interrupted.
fn signal(offset: i64) -> Option<State> {
    let at = |register: usize| Some(format!("$rsp {} + ^", CONTEXT.get(register)?.checked_add(offset)?));
    let numbers = (0..REGISTERS).filter(|register| *register != usize::from(SP));
    let registers = numbers.map(|register| Some((u8::try_from(register).ok()?, Register::At(at(register)?))));
    Some(State {
        cfa: at(usize::from(SP))?,
        return_address: at(REGISTERS)?,
        registers: registers.collect::<Option<_>>()?,
    })
}

/// A range of code without gaps, until it is written.
#[derive(Default)]
struct Range {
    /// Its first and last address.
    bounds: Option<(Rva, Rva)>,
    first: String,
    last: Option<State>,
    /// Addresses and what changes there.
    changes: Vec<(Rva, String)>,
}

impl Range {
    fn add(&mut self, start: Rva, end: Rva, state: Option<State>, out: &mut impl Write) -> io::Result<()> {
        let Some(state) = state.filter(|_| start < end) else { return self.close(out) };
        if let (Some((_, behind)), Some(last)) = (&mut self.bounds, &mut self.last)
            && *behind == start
            && self.changes.len() < RECORDS
            && let Some(change) = change(last, &state)
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
                first.push_str(&format!(" ${}: {at}", ARCH.register_name(*number)));
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
fn change(from: &State, to: &State) -> Option<String> {
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
        let name = ARCH.register_name(*number);
        match to {
            Register::At(at) => parts.push(format!("${name}: {at}")),
            Register::Same => parts.push(format!("${name}: ${name}")),
            Register::Unknown => return None,
        }
    }
    Some(parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registers(of: &[(u8, Register)]) -> Vec<(u8, Register)> {
        kept(|register| {
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
        let mut range = Range::default();
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
        let fp = state(rule(Kind::Fp, 0, 2, ra, Saved::At(-2)), Slots::SAME).unwrap();
        assert_eq!(fp.cfa, "$rbp 16 +");
        assert_eq!(fp.return_address, ".cfa -8 + ^");
        assert_eq!(fp.registers[0], (FP, Register::At(".cfa -16 + ^".into())));
        let deref = state(rule(Kind::Deref, 10, -1, ra, Saved::Same).with_slots_on_fp(), Slots::SAME).unwrap();
        assert_eq!(deref.cfa, "$r10 -8 + ^");
        let signal = state(rule(Kind::Signal, 0, 0, ra, Saved::Same), Slots::SAME).unwrap();
        assert_eq!((signal.cfa.as_str(), signal.return_address.as_str()), ("$rsp 160 + ^", "$rsp 168 + ^"));
        assert_eq!(state(Rule::GAP, Slots::SAME), None);
        assert_eq!(state(rule(Kind::Program, 0, 0, ra, Saved::Same), Slots::SAME), None);
    }

    /// r8–r15 0–7, rdi 8, rsi 9, rbp 10, rbx 11, rdx 12, rax 13, rcx 14, rsp 15, rip 16, each a word from byte 40 on.
    #[test]
    fn the_context_of_a_signal_is_that_of_the_kernel() {
        let order = [
            "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx",
            "rsp",
        ];
        for (at, name) in (0..).zip(order) {
            let number = (0..16).find(|number| ARCH.register_name(*number) == name).unwrap();
            assert_eq!(CONTEXT[usize::from(number)], 40 + WORD * at, "{name}");
        }
        assert_eq!(CONTEXT[16], 40 + WORD * 16);
    }
}
