//! Where addresses on the stack are, before one instruction of x86_64.

use alloc::vec::Vec;

use super::instruction::{Address, Effect, RAX, RBP, RSP, mask};

/// No function keeps more of them in memory.
const MOST_KEPT: usize = 64;
const WORD: i64 = 8;
/// rbx, rbp, rsi, rdi and r12 to r15: what calls keep. (Microsoft, "x64 calling convention")
pub(super) const KEPT: u16 = 0xf0e8;

/// What a value is counted from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    Cfa,
    /// What the stack pointer became at the instruction at that offset, which is not known: it was aligned, or its size is a number of the caller's.
    Made(usize),
    /// The stack pointer where paths meet at that offset, between which it differs.
    Met(usize),
    /// What that register held for the caller.
    Entry(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Value {
    pub(super) base: Base,
    pub(super) offset: i64,
}

impl Value {
    pub(super) const fn at_cfa(offset: i64) -> Self {
        Self { base: Base::Cfa, offset }
    }

    fn plus(self, bytes: i64) -> Option<Self> {
        let offset = self.offset.checked_add(bytes)?;
        // What was a caller's value is none behind arithmetic.
        (bytes == 0 || !matches!(self.base, Base::Entry(_))).then_some(Self { base: self.base, offset })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    registers: [Option<Value>; 16],
    /// Words of memory: where, and what.
    memory: Vec<(Value, Value)>,
}

impl State {
    pub(super) fn entry() -> Self {
        let registers = core::array::from_fn(|register| match register as u8 {
            RSP => Some(Value::at_cfa(-WORD)),
            register => {
                let value = Value { base: Base::Entry(register), offset: 0 };
                (KEPT & mask(register) != 0).then_some(value)
            }
        });
        Self { registers, memory: Vec::new() }
    }

    pub(super) fn register(&self, register: u8) -> Option<Value> {
        *self.registers.get(usize::from(register))?
    }

    /// The stack pointer, which has a value always.
    pub(super) fn sp(&self) -> Option<Value> {
        self.register(RSP)
    }

    /// Where memory holds `value` plus something, and what.
    pub(super) fn kept(&self, base: Base) -> impl Iterator<Item = (Value, Value)> {
        self.memory.iter().copied().filter(move |(_, value)| value.base == base)
    }

    /// Numbers of the registers that calls keep.
    pub(super) fn kept_registers() -> impl Iterator<Item = u8> {
        (0..16).filter(|register| KEPT & mask(*register) != 0)
    }

    fn set(&mut self, register: u8, value: Option<Value>) {
        if let Some(known) = self.registers.get_mut(usize::from(register)) {
            *known = value;
        }
    }

    /// The stack pointer becomes `value`, which is what nothing else is counted from.
    pub(super) fn begin(&mut self, value: Value) {
        if value.base != Base::Cfa {
            self.forget(value.base);
        }
        self.set(RSP, Some(value));
    }

    /// The stack pointer becomes `base`, and what is known is counted from that where it was counted from what it was.
    pub(super) fn rebase(&mut self, base: Base) {
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

    fn pop(&mut self, register: Option<u8>) {
        let value = self.sp().and_then(|sp| self.load(sp));
        self.set(RSP, self.sp().and_then(|sp| sp.plus(WORD)));
        if let Some(register) = register {
            self.set(register, value);
        }
    }

    pub(super) fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Push(register) => self.push(register.and_then(|register| self.register(register))),
            Effect::Pop(register) => self.pop(register),
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
    pub(super) fn lose(&mut self, registers: u16) {
        for register in (0..16).filter(|register| *register != RSP && registers & mask(*register) != 0) {
            let is_entry = self.register(register).is_some_and(|value| matches!(value.base, Base::Entry(_)));
            if !is_entry {
                self.set(register, None);
            }
        }
    }

    /// Takes from this state what `other` does not confirm.
    pub(super) fn meet(&mut self, other: &Self) {
        for (known, other) in self.registers.iter_mut().zip(&other.registers) {
            *known = known.filter(|_| known == other);
        }
        self.memory.retain(|kept| other.memory.contains(kept));
    }
}
