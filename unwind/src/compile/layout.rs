//! A frame in bytes, and the rule that says the same in the words of the table.

use alloc::vec::Vec;

use crate::arch::Machine;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};

/// Where a frame and its caller's registers are, before one instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    /// DWARF number of the register that the CFA is counted from.
    pub(super) base: u8,
    /// CFA − `base`, in bytes.
    pub(super) cfa: i64,
    pub(super) return_address: Place,
    /// DWARF number of a register and where its caller's value is, in bytes from the CFA. Registers that are not here keep their value.
    pub(super) saved: Vec<(u8, i64)>,
    /// The return address carries a signature.
    pub(super) is_signed: bool,
    /// What lies at the CFA is what the processor pushed when it was interrupted.
    pub(super) is_machine_frame: bool,
}

/// The place of a register that is stored where nothing tells: no rule has such an offset.
#[cfg(feature = "compile")]
pub(super) const UNTOLD: i64 = i64::MIN / 2;

/// Where a return address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In memory, in bytes from the CFA.
    AtCfa(i64),
    InRegister(u8),
}

impl Layout {
    /// The frame of a function that calls have just led to.
    pub(super) fn entry(machine: &Machine) -> Self {
        let (cfa, return_address) = match machine.link {
            Some(link) => (0, Place::InRegister(link)),
            None => (machine.word, Place::AtCfa(-machine.word)),
        };
        Self { base: machine.sp, cfa, return_address, saved: Vec::new(), is_signed: false, is_machine_frame: false }
    }

    /// The frame that a rule describes; `None` for one that does not count the CFA from a register, or does not tell all registers.
    pub(super) fn of(rule: Rule, slots: Slots, machine: &Machine) -> Option<Self> {
        let base = match rule.kind()? {
            Kind::Sp => machine.sp,
            Kind::Fp => machine.fp,
            _ => return None,
        };
        if rule.slots_on_fp() {
            return None;
        }
        let bytes = |words: i16| (i64::from(words) + rule.origin()) * machine.word;
        let mut layout = Self::entry(machine);
        (layout.base, layout.cfa, layout.is_signed) = (base, rule.offset() * machine.word, rule.is_signed());
        layout.return_address = match rule.return_address()? {
            ReturnAddress::AtCfa(words) => Place::AtCfa(bytes(words)),
            ReturnAddress::InRegister(register) => Place::InRegister(register),
        };
        let others = machine.slot_registers.iter().map(|register| (*register, slots.of_machine(machine, *register)));
        for (register, saved) in core::iter::once((machine.fp, Some(rule.frame_pointer()))).chain(others) {
            match saved? {
                Saved::Same => {}
                Saved::Unknown => return None,
                Saved::At(words) => layout.save(register, bytes(words)),
            }
        }
        Some(layout)
    }

    /// Whether a rule of another source says the same.
    pub(super) fn is_at(&self, rule: Rule, slots: Slots, machine: &Machine) -> bool {
        rule.source().and_then(|source| self.rule(machine, source)) == Some((rule, slots))
    }

    /// The last that was said of a register counts.
    pub(super) fn save(&mut self, register: u8, at: i64) {
        self.restore(register);
        self.saved.push((register, at));
    }

    /// `register` has its caller's value again.
    pub(super) fn restore(&mut self, register: u8) {
        self.saved.retain(|(saved, _)| *saved != register);
    }

    /// The rule; `None` where offsets are no whole words or too large. A single register whose place cannot be expressed is unknown.
    pub(super) fn rule(&self, machine: &Machine, source: RuleSource) -> Option<(Rule, Slots)> {
        let words = |bytes: i64| (bytes % machine.word == 0).then_some(bytes / machine.word);
        let short = |bytes: i64| words(bytes).and_then(|words| i16::try_from(words).ok());
        let kind = match self.base {
            _ if self.is_machine_frame => Kind::MachineFrame,
            base if base == machine.sp => Kind::Sp,
            base if base == machine.fp => Kind::Fp,
            _ => Kind::Register,
        };
        let return_address = match self.return_address {
            Place::AtCfa(bytes) => ReturnAddress::AtCfa(short(bytes)?),
            Place::InRegister(register) => ReturnAddress::InRegister(register),
        };
        let mut fp = Saved::Same;
        let mut slots = Slots::SAME;
        for (register, at) in &self.saved {
            let saved = short(*at).map_or(Saved::Unknown, Saved::At);
            if *register == machine.fp {
                fp = saved;
            } else if let Some(at) = machine.slot_of(*register) {
                slots = slots.with(at, saved);
            }
        }
        let rule = |fp| Rule::new(kind, source, self.base, words(self.cfa)?, return_address, fp);
        let rule = rule(fp).or_else(|| rule(Saved::Unknown))?;
        let rule = if self.is_signed { rule.with_signed_return_address() } else { rule };
        Some((rule, slots))
    }
}
