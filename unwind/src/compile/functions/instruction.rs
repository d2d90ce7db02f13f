//! What an instruction does to the frame, and where it leads.

use super::state::Effect;

/// Where an instruction leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Flow {
    Next,
    /// Behind a call, if it returns; with the distance to what is called from the instruction's own address, where that is told.
    Call(Option<i64>),
    /// The same to code of the other instruction set. (ARM, `blx`)
    Exchange(i64),
    /// To a distance from the instruction's own address, or also to the next.
    Branch {
        distance: i64,
        is_conditional: bool,
    },
    /// To where a register points: a switch, or a tail call.
    Indirect,
    /// To a distance from the instruction that is not known: a switch.
    Switch,
    /// To one of the distances that follow the instruction, in half words from there, each of so many bytes. (Thumb, `tbb` and `tbh`)
    Table(usize),
    Return,
    /// Nowhere.
    Trap,
}

/// One instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Instruction {
    pub(super) bytes: usize,
    /// In order.
    pub(super) effects: [Option<Effect>; 2],
    pub(super) flow: Flow,
    /// Whether it does anything depends on flags.
    pub(super) is_conditional: bool,
    /// By which flags, as processors of ARM number conditions, where the instruction says it: that of `it` is of those behind it.
    pub(super) condition: Option<u8>,
    /// How many instructions behind it depend on flags. (Thumb, `it`)
    pub(super) makes_conditional: u8,
    /// The constant among the code that it loads, by its distance from the instruction's own address, which counts from a whole word. (32-bit ARM)
    pub(super) literal: Option<i32>,
}

impl Instruction {
    pub(super) const fn of(bytes: usize, flow: Flow) -> Self {
        Self {
            bytes,
            effects: [None; 2],
            flow,
            is_conditional: false,
            condition: None,
            makes_conditional: 0,
            literal: None,
        }
    }

    pub(super) const fn doing(bytes: usize, effect: Effect) -> Self {
        Self { effects: [Some(effect), None], ..Self::of(bytes, Flow::Next) }
    }

    /// Whether it lowers the stack pointer by a constant.
    pub(super) fn lowers(&self, sp: u8) -> bool {
        matches!(self.effects, [Some(Effect::Add { to, from, value: ..0 }), _] if to == sp && from == sp)
    }

    /// Whether it pushes `register`.
    pub(super) fn pushes(&self, sp: u8, register: u8) -> bool {
        let stores = match self.effects {
            [_, Some(Effect::StoreList { list, .. })] => list >> register & 1 != 0,
            [_, Some(Effect::Store { register: stored, .. })] => stored == register,
            _ => false,
        };
        stores && self.lowers(sp)
    }
}

/// The instruction that `code` begins with; `None` where it is cut.
pub(in super::super) type Decode = fn(code: &[u8]) -> Option<Instruction>;
