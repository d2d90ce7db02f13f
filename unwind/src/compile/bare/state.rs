//! Where addresses on the stack are, before one instruction of x86_64.

use alloc::vec::Vec;

use super::Convention;
use super::instruction::{Address, Effect, RAX, RBP, RSP, mask};

/// No function keeps more of them in memory.
const MOST_KEPT: usize = 64;
const WORD: i64 = 8;

/// What a value is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Base {
    Cfa,
    /// What the stack pointer became at the instruction at that offset, which is not known: it was aligned, or its size is a number of the caller's.
    Made(u64),
    /// The stack pointer where paths meet at that offset, between which it differs.
    Met(u64),
    /// What that register held for the caller.
    Entry(u8),
    /// The image: an address of the file.
    Image,
    /// What stands in a table that begins about there: distances of code.
    Listed(u64),
    /// An entry of that table, and what it is counted from.
    Target(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Value {
    pub(in super::super) base: Base,
    pub(in super::super) offset: i64,
}

impl Value {
    pub(in super::super) const fn at_cfa(offset: i64) -> Self {
        Self { base: Base::Cfa, offset }
    }

    fn plus(self, bytes: i64) -> Option<Self> {
        let offset = self.offset.checked_add(bytes)?;
        // What was a caller's value is none behind arithmetic.
        (bytes == 0 || !matches!(self.base, Base::Entry(_) | Base::Listed(_) | Base::Target(_)))
            .then_some(Self { base: self.base, offset })
    }
}

/// What the caller has at the stack pointer: the program counter has no number among the registers.
pub(in super::super) const RETURN_ADDRESS: Value = Value { base: Base::Entry(16), offset: 0 };

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct State {
    convention: Convention,
    registers: [Option<Value>; 16],
    /// Words of memory: where, and what.
    memory: Vec<(Value, Value)>,
}

impl State {
    pub(in super::super) fn entry(convention: Convention) -> Self {
        let registers = core::array::from_fn(|register| match register as u8 {
            RSP => Some(Value::at_cfa(-WORD)),
            register => {
                let value = Value { base: Base::Entry(register), offset: 0 };
                (convention.kept() & mask(register) != 0).then_some(value)
            }
        });
        // What is written over there is no rule's return address.
        let memory = match convention {
            Convention::SystemV => Vec::from([(Value::at_cfa(-WORD), RETURN_ADDRESS)]),
            Convention::Windows => Vec::new(),
        };
        Self { convention, registers, memory }
    }

    /// Whether the return address is where the call put it, and the stack pointer not above that.
    pub(in super::super) fn has_return_address(&self) -> bool {
        let is_above = self.sp().is_some_and(|sp| sp.base == Base::Cfa && sp.offset > -WORD);
        !is_above && self.load(Value::at_cfa(-WORD)) == Some(RETURN_ADDRESS)
    }

    /// Bytes of memory that it takes.
    pub(in super::super) fn size(&self) -> usize {
        size_of::<Self>() + self.memory.capacity() * size_of::<(Value, Value)>()
    }

    /// Behind a call of a function that writes these registers, and below the stack pointer what it likes.
    pub(in super::super) fn give_up(&mut self, registers: u16) {
        for register in (0..16).filter(|register| *register != RSP && registers & mask(*register) != 0) {
            self.set(register, None);
        }
        if let Some(sp) = self.sp() {
            self.memory.retain(|(at, _)| at.base != sp.base || at.offset >= sp.offset);
        }
    }

    pub(in super::super) fn register(&self, register: u8) -> Option<Value> {
        *self.registers.get(usize::from(register))?
    }

    /// The stack pointer, which has a value always.
    pub(in super::super) fn sp(&self) -> Option<Value> {
        self.register(RSP)
    }

    /// Where memory holds `value` plus something, and what.
    pub(in super::super) fn kept(&self, base: Base) -> impl Iterator<Item = (Value, Value)> {
        self.memory.iter().copied().filter(move |(_, value)| value.base == base)
    }

    pub(in super::super) fn convention(&self) -> Convention {
        self.convention
    }

    fn set(&mut self, register: u8, value: Option<Value>) {
        if let Some(known) = self.registers.get_mut(usize::from(register)) {
            *known = value;
        }
    }

    /// The stack pointer becomes `value`, which is what nothing else is counted from.
    pub(in super::super) fn begin(&mut self, value: Value) {
        if value.base != Base::Cfa {
            self.forget(value.base);
        }
        self.set(RSP, Some(value));
    }

    /// The stack pointer becomes `base`, and what is known is counted from that where it was counted from what it was.
    pub(in super::super) fn rebase(&mut self, base: Base) {
        let sp = self.sp().filter(|sp| sp.base != Base::Cfa);
        if sp.is_none_or(|sp| sp.base != base) {
            self.forget(base);
        }
        if let Some(sp) = sp {
            let rebased = |value: &mut Value| {
                if value.base == sp.base {
                    *value = Value { base, offset: value.offset.saturating_sub(sp.offset) };
                }
            };
            self.registers.iter_mut().flatten().for_each(rebased);
            self.memory.iter_mut().for_each(|(at, value)| {
                rebased(at);
                rebased(value);
            });
        }
        self.set(RSP, Some(Value { base, offset: 0 }));
    }

    /// What an earlier run of the same instruction made is another value.
    fn forget(&mut self, base: Base) {
        for register in &mut self.registers {
            *register = register.filter(|value| value.base != base);
        }
        self.memory.retain(|(at, value)| at.base != base && value.base != base);
    }

    fn address(&self, address: Address) -> Option<Value> {
        self.register(address.base)?.plus(address.displacement)
    }

    /// So many bytes at an address hold something else.
    fn overwrite(&mut self, at: Value, bytes: i64) {
        self.memory.retain(|(known, _)| {
            known.base != at.base
                || known.offset.saturating_add(WORD) <= at.offset
                || at.offset.saturating_add(bytes) <= known.offset
        });
    }

    fn store(&mut self, at: Value, value: Option<Value>) {
        self.overwrite(at, WORD);
        self.memory.extend(value.filter(|_| self.memory.len() < MOST_KEPT).map(|value| (at, value)));
    }

    fn load(&self, at: Value) -> Option<Value> {
        self.memory.iter().find(|(known, _)| *known == at).map(|(_, value)| *value)
    }

    fn push(&mut self, value: Option<Value>) {
        let sp = self.sp().and_then(|sp| sp.plus(-WORD));
        self.set(RSP, sp);
        if let Some(sp) = sp {
            self.store(sp, value);
        }
    }

    /// Of an entry of a table of code and what that is counted from.
    fn sum(&self, one: u8, other: u8) -> Option<Value> {
        let (one, other) = (self.register(one)?, self.register(other)?);
        let of = |entry: Value, place: Value| match (entry, place.base) {
            (Value { base: Base::Listed(table), offset: 0 }, Base::Image) => {
                Some(Value { base: Base::Target(table), offset: place.offset })
            }
            _ => None,
        };
        of(one, other).or_else(|| of(other, one))
    }

    /// A register becomes an address of the file.
    pub(in super::super) fn place(&mut self, register: u8, address: u64) {
        self.set(register, Some(Value { base: Base::Image, offset: address as i64 }));
    }

    fn pop(&mut self, register: Option<u8>) {
        let value = self.sp().and_then(|sp| self.load(sp));
        self.set(RSP, self.sp().and_then(|sp| sp.plus(WORD)));
        if let Some(register) = register {
            self.set(register, value);
        }
    }

    pub(in super::super) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Push(register) => self.push(register.and_then(|register| self.register(register))),
            Effect::Pop(register) => self.pop(register),
            Effect::PopInto(to) => {
                let value = self.sp().and_then(|sp| self.load(sp));
                self.pop(None);
                if let Some(at) = self.address(to) {
                    self.store(at, value);
                }
            }
            Effect::Set { to, from, bytes } => self.set(to, self.register(from).and_then(|value| value.plus(bytes))),
            Effect::Load { to, from } => self.set(to, self.address(from).and_then(|at| self.load(at))),
            Effect::Store { from, to } => {
                let value = self.register(from);
                if let Some(at) = self.address(to) {
                    self.store(at, value);
                }
            }
            Effect::Exchange(one, other) => {
                let (first, second) = (self.register(one), self.register(other));
                self.set(one, second);
                self.set(other, first);
            }
            // Told by who knows where the instruction is.
            Effect::Place { to, .. } => self.set(to, None),
            Effect::Entry { to, table } => {
                let table = self.address(table).filter(|table| table.base == Base::Image);
                self.set(to, table.map(|table| Value { base: Base::Listed(table.offset as u64), offset: 0 }));
            }
            Effect::Add { to, from } => self.set(to, self.sum(to, from)),
            Effect::Leave => {
                self.set(RSP, self.register(RBP));
                self.pop(Some(RBP));
            }
            Effect::Write { registers, memory } => {
                let at = memory.and_then(|(address, bytes)| Some((self.address(address)?, bytes)));
                for register in (RAX..16).filter(|register| registers & mask(*register) != 0) {
                    self.set(register, None);
                }
                if let Some((at, bytes)) = at {
                    self.overwrite(at, bytes);
                }
            }
        }
    }

    /// Behind a call that writes `registers`. What the caller of all had in them it gets back, or the function has saved it.
    pub(in super::super) fn lose(&mut self, registers: u16) {
        for register in (0..16).filter(|register| *register != RSP && registers & mask(*register) != 0) {
            let is_entry = self.register(register).is_some_and(|value| matches!(value.base, Base::Entry(_)));
            if !is_entry {
                self.set(register, None);
            }
        }
    }

    /// Takes from this state what `other` does not confirm; whether there was something.
    pub(in super::super) fn meet(&mut self, other: &Self) -> bool {
        let mut is_less = false;
        for (known, other) in self.registers.iter_mut().zip(&other.registers) {
            is_less |= known.is_some() && known != other;
            *known = known.filter(|_| known == other);
        }
        let before = self.memory.len();
        self.memory.retain(|kept| other.memory.contains(kept));
        is_less || self.memory.len() < before
    }
}
