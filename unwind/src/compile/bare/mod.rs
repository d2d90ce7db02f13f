//! Functions of x86_64 of which nothing but their instructions tells where their frames are: what these do to addresses on the stack, and the rules that follow from that.
//!
//! A value is known as a distance from the CFA, or from what the stack pointer became where it was aligned; so is what the function stores on its stack. The
//! CFA is counted from the stack pointer, from another register that holds such a distance, or from a word on the stack that does:
//! CFA = rsp + d, CFA = register + d, CFA = \[rsp + x\] + d. Elsewhere there is no rule. What is stored through other addresses lies elsewhere.

pub(super) mod instruction;
pub(super) mod state;

use alloc::vec::Vec;

use self::instruction::{RBP, RSP, mask};
use self::state::{Base, State};
use super::expression;
use super::layout::Layout;
use super::programs::Programs;
use super::x86;
use crate::arch::{Arch, Machine};
use crate::cx::Operation;
use crate::rule::{Kind, Rule, RuleSource, Slots};

/// DWARF's numbers; those in instructions are [`instruction`]'s.
const DWARF_RSP: u8 = 7;
const DWARF_RBP: u8 = 6;

/// What functions may count on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Convention {
    /// Microsoft, "x64 calling convention".
    Windows,
    /// System V ABI, AMD64 supplement, "Registers and the stack frame".
    SystemV,
}

impl Convention {
    /// The mask of registers that calls keep, by their numbers in instructions: rbx, rbp and r12 to r15, on Windows rsi and rdi too.
    pub(super) const fn kept(self) -> u16 {
        match self {
            Self::Windows => 0xf0e8,
            Self::SystemV => 0xf028,
        }
    }

    /// Their numbers.
    pub(super) fn kept_registers(self) -> impl Iterator<Item = u8> {
        (0..16).filter(move |register| self.kept() & mask(*register) != 0)
    }
}

/// How the CFA is found.
enum Cfa {
    /// DWARF number, and bytes up to the CFA.
    Register(u8, i64),
    /// Bytes from the stack pointer to a word, and from what that is to the CFA.
    Word(i64, i64),
    /// Bytes from the stack pointer that are no whole words: code that calls nothing need not align it.
    Bytes(i64),
}

fn cfa(state: &State, machine: &Machine) -> Option<Cfa> {
    let sp = state.sp()?;
    let in_register = |number: u8| {
        let value = state.register(number).filter(|value| value.base == Base::Cfa)?;
        // Rules count in words: before a stack pointer is aligned it may be between two.
        (value.offset % machine.word == 0).then_some(())?;
        Some(Cfa::Register(x86::dwarf(number), -value.offset))
    };
    // The stack pointer first, then what calls keep: the others are not known of a function that has called.
    let kept = || state.convention().kept_registers();
    let mut sure = [RSP, RBP].into_iter().chain(kept());
    if let Some(found) = sure.find_map(in_register) {
        return Some(found);
    }
    let word = || {
        let mut words = state.kept(Base::Cfa).filter(|(at, _)| at.base == sp.base && at.offset >= sp.offset);
        words.next().map(|(at, value)| Cfa::Word(at.offset - sp.offset, -value.offset))
    };
    let other = || (0..16).rev().find_map(in_register);
    match state.convention() {
        Convention::Windows => other().or_else(word),
        Convention::SystemV => {
            let bytes = (sp.base == Base::Cfa).then_some(Cfa::Bytes(-sp.offset));
            word().or_else(other).or(bytes)
        }
    }
}

/// The rule before an instruction; `None` where nothing tells the CFA. `entry` is what the rule of a function that has not begun is said to be from.
pub(super) fn rule(state: &State, entry: RuleSource, programs: &mut Programs) -> Option<(Rule, Slots)> {
    let machine = Arch::X86_64.machine();
    let cfa = cfa(state, machine)?;
    let mut layout = Layout::entry(machine);
    if let Cfa::Register(base, bytes) = cfa {
        (layout.base, layout.cfa) = (base, bytes);
    }
    let unknown = save(state, &mut layout);
    let is_entry = layout == Layout::entry(machine) && unknown.is_empty();
    let source = if is_entry { entry } else { RuleSource::Instructions };
    let (mut rule, mut slots) = layout.rule(machine, source)?;
    let mut fp = rule.frame_pointer();
    for register in unknown {
        match machine.slot_of(register) {
            Some(slot) => slots = slots.with(slot, crate::rule::Saved::Unknown),
            None if register == DWARF_RBP => fp = crate::rule::Saved::Unknown,
            None => {}
        }
    }
    let (kind, register, offset) = match cfa {
        Cfa::Register(..) => (rule.kind()?, layout.base, rule.offset()),
        Cfa::Word(at, bytes) => (Kind::Program, 0, programs.intern(word(at, bytes, machine)?)?),
        Cfa::Bytes(bytes) => {
            let address = [Operation::Register(DWARF_RSP), Operation::Constant(bytes), Operation::Add];
            (Kind::Program, 0, programs.intern(expression::program(&address, machine)?)?)
        }
    };
    rule = Rule::new(kind, source, register, offset, rule.return_address()?, fp)?;
    Some((rule, slots))
}

/// Tells `layout` where registers are saved, and gives those of which that is not known.
fn save(state: &State, layout: &mut Layout) -> Vec<u8> {
    let mut unknown = Vec::new();
    let sp = state.sp().filter(|sp| sp.base == Base::Cfa);
    for number in state.convention().kept_registers() {
        let slot = state.kept(Base::Entry(number)).find(|(at, _)| at.base == Base::Cfa).map(|(at, _)| at.offset);
        let is_held = state.register(number).is_some_and(|value| value.base == Base::Entry(number));
        let is_below = |slot: i64| sp.is_some_and(|sp| slot < sp.offset);
        match slot {
            // A slot may be an argument of what is called, which may write over it: the register counts.
            _ if is_held && state.convention() == Convention::SystemV => {}
            // A register is restored before its slot is given up. One that lies in the red zone is read by nobody: what is below the stack pointer counts as left over.
            Some(slot) if is_below(slot) && state.convention() == Convention::Windows => {}
            Some(slot) if is_below(slot) => unknown.push(x86::dwarf(number)),
            Some(slot) => layout.save(x86::dwarf(number), slot),
            None if is_held => {}
            None => unknown.push(x86::dwarf(number)),
        }
    }
    unknown
}

/// CFA = \[rsp + `at`\] + `bytes`.
fn word(at: i64, bytes: i64, machine: &'static Machine) -> Option<Vec<u8>> {
    use Operation::{Add, Constant, Deref, Register};
    let address = [Register(DWARF_RSP), Constant(at), Add, Deref, Constant(bytes), Add];
    expression::program(&address, machine)
}
