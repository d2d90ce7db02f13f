//! What is known of a frame before one instruction, and what an instruction makes of it.

use super::super::layout::{Layout, Place};
use crate::arch::{Arch, Machine};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};

/// Registers that a function keeps: those with slots, the frame pointer, the link register.
const MOST_KEPT: usize = 13;

/// Registers whose values are known at once: loading a large constant takes two instructions, and others come between.
const MOST_CONSTANTS: usize = 4;

/// What an instruction does to registers and their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Effect {
    /// `to` = `from` + constant.
    Add { to: u8, from: u8, value: i32 },
    /// `to` = constant.
    Set { to: u8, value: i32 },
    /// `to` = `a` + `b`, or `a` − `b`.
    Sum { to: u8, a: u8, b: u8, minus: bool },
    /// A word is stored.
    Store { register: u8, base: u8, offset: i32 },
    /// A word is loaded.
    Load { register: u8, base: u8, offset: i32 },
    /// The register gets a value that is not known here.
    Write(u8),
    /// Words are stored from an address on: the registers whose bits are set, the lowest first.
    StoreList { list: u16, base: u8, offset: i32 },
    /// Words are loaded in the same way, before `base` changes.
    LoadList { list: u16, base: u8, offset: i32 },
    /// The kernel is asked. (32-bit ARM alone)
    SystemCall,
}

/// What Linux is asked for on 32-bit ARM, by the number in r7. (`arch/arm/tools/syscall.tbl`)
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    Exit,
    Clone,
}

/// The register that has the number of a system call, by the embedded ABI of 32-bit ARM.
const CALL_NUMBER: u8 = 7;

/// What is known of a register that belongs to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    /// It still has the caller's value.
    live: bool,
    /// Where the caller's value was saved, in bytes from the CFA.
    slot: Option<i32>,
}

/// The frame before an instruction. Distances are in bytes up to the CFA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct State {
    sp: Option<i32>,
    /// The frame pointer's distance, if it holds an address in the frame.
    fp: Option<i32>,
    /// Another register that holds an address in the frame, and its distance: one that is kept, if any does. Thumb code has r7 for a frame
    /// pointer, and r11 for anything, addresses in the frame too.
    pointer: Option<(u8, i32)>,
    /// In the order of [`kept`].
    kept: [Kept; MOST_KEPT],
    /// Another register that has the return address.
    copy: Option<u8>,
    /// Registers whose values are known, the latest first.
    constants: [Option<(u8, i32)>; MOST_CONSTANTS],
    /// How many instructions from here on do something only if flags say so.
    conditional: u8,
    /// The stack pointer was given back if flags said so, which those behind ask too: on one of the two ways the rest is not so.
    is_split: bool,
    /// There is no caller: the code put 0 in the place of the return address, or a thread begins in it.
    is_root: bool,
    /// What the kernel was asked for last, if it is one of these.
    asked: Option<Asked>,
    /// The function put a value of its own into the link register since the last call.
    has_own_link: bool,
}

/// DWARF numbers of what a function keeps.
fn kept(machine: &'static Machine) -> impl Iterator<Item = u8> + Clone {
    machine.slot_registers.iter().copied().chain([machine.fp]).chain(machine.link).take(MOST_KEPT)
}

/// The registers of a list, and which word each of them has.
fn places(list: u16) -> impl Iterator<Item = (u8, i32)> {
    (0..16).filter(move |register| list >> register & 1 != 0).zip(0..)
}

impl State {
    /// At the first instruction of a function: CFA = sp, everything as the caller left it.
    pub(super) const ENTRY: Self = Self {
        sp: Some(0),
        fp: None,
        pointer: None,
        kept: [Kept { live: true, slot: None }; MOST_KEPT],
        copy: None,
        constants: [None; MOST_CONSTANTS],
        conditional: 0,
        is_split: false,
        is_root: false,
        asked: None,
        has_own_link: false,
    };

    /// CFA minus the stack pointer, where it is known.
    pub(super) fn depth(&self) -> Option<i32> {
        self.sp
    }

    /// Whether another register than the stack pointer points into the frame.
    pub(super) fn has_pointer(&self) -> bool {
        self.fp.is_some() || self.pointer.is_some()
    }

    /// Whether `register`, not the stack pointer, points into the frame.
    pub(super) fn points(&self, register: u8, machine: &Machine) -> bool {
        register != machine.sp && self.distance(register, 0, machine).is_some()
    }

    /// Whether all is as at the first instruction of a function.
    pub(super) fn is_as_entered(&self) -> bool {
        self.sp == Some(0) && !self.is_root && self.kept.iter().all(|kept| kept.live)
    }

    /// Whether the return address is in its register, or where it was saved.
    pub(super) fn has_link(&self, machine: &'static Machine) -> bool {
        let kept = machine.link.and_then(|link| self.kept(link, machine));
        kept.is_some_and(|kept| kept.live || kept.slot.is_some())
    }

    /// Whether the return address is in its register.
    pub(super) fn has_live_link(&self, machine: &'static Machine) -> bool {
        machine.link.and_then(|link| self.kept(link, machine)).is_some_and(|kept| kept.live)
    }

    /// Whether the link register has a value that the function put there, and that is not its return address.
    pub(super) fn has_own_link(&self, machine: &'static Machine) -> bool {
        self.has_own_link && !self.has_live_link(machine)
    }

    /// The same where nobody says what the link register was used for.
    pub(super) fn without_own_link(self) -> Self {
        Self { has_own_link: false, ..self }
    }

    /// Whether the return address is saved, and in its register too.
    pub(super) fn saves_link(&self, machine: &'static Machine) -> bool {
        let kept = machine.link.and_then(|link| self.kept(link, machine));
        kept.is_some_and(|kept| kept.live && kept.slot.is_some())
    }

    /// Whether all other registers that a function keeps have the caller's values.
    pub(super) fn has_all_kept(&self, machine: &'static Machine) -> bool {
        let others = kept(machine).filter(|register| Some(*register) != machine.link);
        others.filter_map(|register| self.kept(register, machine)).all(|kept| kept.live)
    }

    /// Whether the instruction here depends on flags because of one before it.
    pub(super) fn is_conditional(&self) -> bool {
        self.conditional > 0
    }

    /// Behind an instruction that makes so many others depend on flags.
    pub(super) fn pass_conditional(&mut self, made: u8) {
        self.conditional = if made > 0 { made } else { self.conditional.saturating_sub(1) };
    }

    /// The same where the stack pointer was moved or not, as flags say.
    pub(super) fn split(self, is_split: bool) -> Self {
        Self { is_split, ..self }
    }

    /// Whether that is so.
    pub(super) fn is_split(&self) -> bool {
        self.is_split
    }

    /// What the kernel was asked for by the last system call on every path to here, if it is one of these.
    pub(super) fn asked(&self) -> Option<Asked> {
        self.asked
    }

    /// The same where a thread begins: nobody called.
    pub(super) fn without_caller(self) -> Self {
        Self { is_root: true, ..self }
    }

    /// Whether the frame is the one that `body` describes.
    pub(super) fn is_as_in(&self, body: &Layout, machine: &'static Machine) -> bool {
        let slot_of = |register: u8| self.kept(register, machine).and_then(|kept| kept.slot).map(i64::from);
        let same_base = self.distance(body.base, 0, machine).map(i64::from) == Some(body.cfa);
        let return_address = match (body.return_address, machine.link) {
            (Place::AtCfa(at), Some(link)) => slot_of(link) == Some(at),
            _ => true,
        };
        let has_slots =
            |(register, at): &(u8, i64)| kept(machine).all(|kept| kept != *register) || slot_of(*register) == Some(*at);
        same_base && return_address && body.saved.iter().all(has_slots)
    }

    /// Whether the CFA is where `layout` counts it; `None` where nothing is known of its base.
    pub(super) fn has_cfa_of(&self, layout: &Layout, machine: &'static Machine) -> Option<bool> {
        self.distance(layout.base, 0, machine).map(|distance| i64::from(distance) == layout.cfa)
    }

    /// CFA minus the address `base` + `offset`, if `base` points into the frame.
    fn distance(&self, base: u8, offset: i32, machine: &Machine) -> Option<i32> {
        let distance = match self.pointer {
            _ if base == machine.sp => self.sp,
            _ if base == machine.fp => self.fp,
            Some((pointer, distance)) if pointer == base => Some(distance),
            _ => None,
        };
        distance?.checked_sub(offset)
    }

    fn value(&self, register: u8) -> Option<i32> {
        self.constants.iter().flatten().find(|(known, _)| *known == register).map(|(_, value)| *value)
    }

    fn kept_mut(&mut self, register: u8, machine: &'static Machine) -> Option<&mut Kept> {
        let at = kept(machine).position(|kept| kept == register)?;
        self.kept.get_mut(at)
    }

    fn kept(&self, register: u8, machine: &'static Machine) -> Option<Kept> {
        let at = kept(machine).position(|kept| kept == register)?;
        self.kept.get(at).copied()
    }

    /// Forgets the value of `register`.
    pub(super) fn write(&mut self, register: u8, machine: &'static Machine) {
        if register == machine.sp {
            self.sp = None;
        }
        if register == machine.fp {
            self.fp = None;
        }
        self.has_own_link |= Some(register) == machine.link;
        self.pointer = self.pointer.filter(|(pointer, _)| *pointer != register);
        self.copy = self.copy.filter(|copy| *copy != register);
        for constant in &mut self.constants {
            *constant = constant.filter(|(known, _)| *known != register);
        }
        if let Some(kept) = self.kept_mut(register, machine) {
            kept.live = false;
        }
    }

    /// `register` becomes the address at `distance` below the CFA.
    fn point(&mut self, register: u8, distance: Option<i32>, machine: &'static Machine) {
        self.write(register, machine);
        if register == machine.sp {
            self.sp = distance;
        } else if register == machine.fp {
            self.fp = distance;
        } else if let Some(distance) = distance
            && self.may_point(register, machine)
            && Some(register) != machine.link
        {
            self.pointer = Some((register, distance));
        }
    }

    /// Whether `register`, not the frame pointer, may be noted as the one that points into the frame: one that is kept, or on RISC-V, where
    /// slots of large frames are out of reach of the stack pointer (LLVM for size), one that no other has to make room for.
    fn may_point(&self, register: u8, machine: &'static Machine) -> bool {
        let is_kept = |register: u8| kept(machine).any(|kept| kept == register);
        self.pointer.is_none_or(|(pointer, _)| !is_kept(pointer))
            && (is_kept(register) || machine.arch == Arch::Riscv64)
    }

    /// Behind a call: the link register has the return address, and others that are not kept anything.
    pub(super) fn call(&mut self, machine: &'static Machine) {
        if let Some(link) = machine.link {
            self.write(link, machine);
        }
        self.has_own_link = false;
        self.pointer = self.pointer.filter(|(pointer, _)| kept(machine).any(|kept| kept == *pointer));
    }

    pub(super) fn apply(&mut self, effect: Effect, machine: &'static Machine) {
        match effect {
            Effect::Add { to, from, value } => match self.distance(from, value, machine) {
                Some(distance) => self.point(to, Some(distance), machine),
                None if value == 0 => self.copy_of(to, from, machine),
                None => {
                    let sum = self.value(from).and_then(|from| from.checked_add(value));
                    self.set(to, sum, machine);
                }
            },
            Effect::Set { to, value } => {
                // Where it was saved the register is free for anything.
                let is_saved = self.kept(to, machine).is_none_or(|kept| !kept.live || kept.slot.is_some());
                self.is_root |= value == 0 && Some(to) == machine.link && !is_saved && self.copy.is_none();
                self.set(to, Some(value), machine);
            }
            Effect::Sum { to, a, b, minus } => {
                let value = |register| {
                    let value = self.value(register)?;
                    if minus { value.checked_neg() } else { Some(value) }
                };
                let forward = value(b).and_then(|value| self.distance(a, value, machine));
                let swapped = || value(a).filter(|_| !minus).and_then(|value| self.distance(b, value, machine));
                let distance = forward.or_else(swapped);
                self.point(to, distance, machine);
            }
            Effect::Store { register, base, offset } => self.store(register, base, offset, machine),
            Effect::Load { register, base, offset } => self.load(register, base, offset, machine),
            Effect::Write(register) => self.write(register, machine),
            Effect::StoreList { list, base, offset } => {
                for (register, at) in places(list) {
                    self.store(register, base, offset.saturating_add(at * machine.word as i32), machine);
                }
            }
            Effect::LoadList { list, base, offset } => {
                for (register, at) in places(list).filter(|(register, _)| *register != base) {
                    let offset = offset.saturating_add(at * machine.word as i32);
                    self.load(register, base, offset, machine);
                }
                if list >> base & 1 != 0 {
                    self.write(base, machine);
                }
            }
            Effect::SystemCall => {
                self.asked = match self.value(CALL_NUMBER) {
                    Some(1) => Some(Asked::Exit),
                    Some(120) => Some(Asked::Clone),
                    _ => None,
                };
                // The answer.
                self.write(0, machine);
            }
        }
        // What lies below the stack pointer is given up.
        if let Some(sp) = self.sp {
            for kept in &mut self.kept {
                kept.slot = kept.slot.filter(|slot| i64::from(*slot) >= -i64::from(sp));
            }
        }
    }

    fn set(&mut self, register: u8, value: Option<i32>, machine: &'static Machine) {
        self.write(register, machine);
        if let Some(value) = value {
            // The oldest is forgotten.
            self.constants.rotate_right(1);
            if let Some(first) = self.constants.first_mut() {
                *first = Some((register, value));
            }
        }
    }

    /// `to` gets the value of `from`, which is no address in the frame.
    fn copy_of(&mut self, to: u8, from: u8, machine: &'static Machine) {
        let Some(link) = machine.link.filter(|_| to != from) else { return };
        let is_live = self.kept(link, machine).is_some_and(|kept| kept.live);
        let has_copy = self.copy == Some(from);
        let value = self.value(from);
        self.set(to, value, machine);
        if from == link && is_live {
            self.copy = Some(to);
        } else if to == link && has_copy {
            self.copy = Some(from);
            if let Some(kept) = self.kept_mut(link, machine) {
                kept.live = true;
            }
        }
    }

    fn load(&mut self, register: u8, base: u8, offset: i32, machine: &'static Machine) {
        let from = self.distance(base, offset, machine).and_then(i32::checked_neg);
        self.write(register, machine);
        if let Some(kept) = self.kept_mut(register, machine)
            && from.is_some()
            && kept.slot == from
        {
            kept.live = true;
        }
    }

    fn store(&mut self, register: u8, base: u8, offset: i32, machine: &'static Machine) {
        let Some(slot) = self.distance(base, offset, machine).and_then(i32::checked_neg) else { return };
        // Whatever was there before is gone.
        for kept in &mut self.kept {
            kept.slot = kept.slot.filter(|known| *known != slot);
        }
        let is_copy = self.copy == Some(register) && self.kept(register, machine).is_none_or(|kept| !kept.live);
        let register = if is_copy { machine.link.unwrap_or(register) } else { register };
        if let Some(kept) = self.kept_mut(register, machine)
            && (kept.live || is_copy)
            && slot < 0
        {
            // Of several copies the first is the one that the function restores: a later one is an argument.
            kept.slot.get_or_insert(slot);
        }
    }

    /// Takes from this state what `other` does not confirm. `None` if they are not of one frame.
    pub(super) fn meet(&self, other: &Self) -> Option<Self> {
        let mut met = *self;
        met.sp = self.sp.filter(|sp| other.sp == Some(*sp));
        met.fp = self.fp.filter(|fp| other.fp == Some(*fp));
        met.pointer = self.pointer.filter(|pointer| other.pointer == Some(*pointer));
        let places = |state: &Self| (state.sp, state.fp, state.pointer);
        // Paths with different amounts of memory from alloca may come together, if something else points into the frame.
        if places(&met) == (None, None, None) && places(self) != places(other) {
            return None;
        }
        for (kept, other) in met.kept.iter_mut().zip(&other.kept) {
            kept.live &= other.live;
            kept.slot = kept.slot.filter(|slot| other.slot == Some(*slot));
        }
        met.is_root &= other.is_root;
        met.asked = met.asked.filter(|asked| other.asked == Some(*asked));
        met.has_own_link &= other.has_own_link;
        met.is_split |= other.is_split;
        met.conditional = met.conditional.max(other.conditional);
        met.copy = met.copy.filter(|copy| other.copy == Some(*copy));
        for constant in &mut met.constants {
            *constant = constant.filter(|(register, value)| other.value(*register) == Some(*value));
        }
        Some(met)
    }

    /// The rule; `None` where the CFA or the return address is not known.
    pub(super) fn rule(&self, machine: &'static Machine) -> Option<(Rule, Slots)> {
        if self.is_root {
            return Some((Rule::bare(Kind::End, RuleSource::Instructions), Slots::SAME));
        }
        if self.is_split {
            return Some((Rule::bare(Kind::Unsupported, RuleSource::Instructions), Slots::SAME));
        }
        let words = |bytes: i32| {
            let bytes = i64::from(bytes);
            i16::try_from(bytes / machine.word).ok().filter(|_| bytes % machine.word == 0)
        };
        let (kind, base, distance) = match (self.sp, self.fp, self.pointer) {
            (Some(distance), ..) => (Kind::Sp, machine.sp, distance),
            (None, Some(distance), _) => (Kind::Fp, machine.fp, distance),
            (None, None, Some((pointer, distance))) => (Kind::Register, pointer, distance),
            (None, None, None) => return None,
        };
        let saved = |kept: Kept| match kept.slot {
            Some(slot) => words(slot).map_or(Saved::Unknown, Saved::At),
            None if kept.live => Saved::Same,
            None => Saved::Unknown,
        };
        let link = machine.link?;
        let return_address = match (saved(self.kept(link, machine)?), self.copy) {
            (Saved::At(words), _) => ReturnAddress::AtCfa(words),
            (Saved::Same, _) => ReturnAddress::InRegister(link),
            (Saved::Unknown, Some(register)) => ReturnAddress::InRegister(register),
            (Saved::Unknown, None) => return None,
        };
        let mut slots = Slots::SAME;
        for (at, register) in machine.slot_registers.iter().enumerate() {
            slots = slots.with(at, saved(self.kept(*register, machine)?));
        }
        // A frame may be larger than a slot is far from the CFA.
        let distance = i64::from(distance);
        let offset = (distance >= 0 && distance % machine.word == 0).then_some(distance / machine.word)?;
        let fp = saved(self.kept(machine.fp, machine)?);
        let rule = |fp| Rule::new(kind, RuleSource::Instructions, base, offset, return_address, fp);
        Some((rule(fp).or_else(|| rule(Saved::Unknown))?, slots))
    }
}
