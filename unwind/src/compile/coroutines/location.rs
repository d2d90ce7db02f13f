//! Where a variable is, as programs of a table.

use alloc::vec::Vec;
use core::ops::Range;

use gimli::{
    AttributeValue, DebugLoc, DebugLocLists, EndianSlice, Expression, LittleEndian, LocationLists, LocationListsOffset,
    Operation,
};

use super::super::debug_info::{Reader, UnitContext};
use super::super::expression::program;
use crate::arch::Machine;
use crate::cx::{MAX_STEPS, Operation as Op};

/// Lists of locations, with how many of their entries may still be looked at: many variables may have one list.
pub(super) struct Lists<'a> {
    lists: LocationLists<Reader<'a>>,
    pub(super) entries: usize,
}

/// What the locations of a function's variables count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameBase {
    Cfa,
    Register(u8),
}

impl FrameBase {
    /// `None` for one that is computed otherwise.
    pub(super) fn of(value: Option<AttributeValue<Reader<'_>>>, unit: &UnitContext<'_>) -> Option<Self> {
        let AttributeValue::Exprloc(expression) = value? else { return None };
        let mut operations = expression.operations(unit.encoding);
        match (operations.next().ok()??, operations.next().ok()?) {
            (Operation::CallFrameCFA, None) => Some(Self::Cfa),
            (Operation::Register { register }, None) => Some(Self::Register(u8::try_from(register.0).ok()?)),
            _ => None,
        }
    }
}

/// What a program pushes.
pub(super) struct Place {
    ops: Vec<Op>,
    /// The variable's value, and not where it is.
    pub(super) is_value: bool,
}

impl Place {
    /// The program, with what is to be done besides.
    pub(super) fn program(mut self, more: &[Op], machine: &Machine) -> Option<Vec<u8>> {
        self.ops.extend_from_slice(more);
        program(&self.ops, machine)
    }
}

impl<'a> Lists<'a> {
    pub(super) fn of(section: impl Fn(&str) -> &'a [u8]) -> Self {
        let of = |id: gimli::SectionId| EndianSlice::new(section(id.name()), LittleEndian);
        let (old, new) = (of(gimli::SectionId::DebugLoc), of(gimli::SectionId::DebugLocLists));
        let entries = old.slice().len().saturating_add(new.slice().len());
        Self { lists: LocationLists::new(DebugLoc::from(old), DebugLocLists::from(new)), entries }
    }

    /// Calls `note` with each range in which the variable with this location is somewhere; with no range if it is there in all of its function.
    pub(super) fn places(
        &mut self,
        location: AttributeValue<Reader<'a>>,
        base: Option<FrameBase>,
        unit: &UnitContext<'a>,
        machine: &Machine,
        mut note: impl FnMut(Option<Range<u64>>, Option<Place>),
    ) {
        let offset = match location {
            AttributeValue::Exprloc(expression) => return note(None, place(expression, base, unit, machine)),
            AttributeValue::LocationListsRef(offset) => offset,
            AttributeValue::SecOffset(offset) => LocationListsOffset(offset),
            AttributeValue::DebugLocListsIndex(index) => {
                match self.lists.get_offset(unit.encoding, unit.locations_base, index) {
                    Ok(offset) => offset,
                    Err(_) => return,
                }
            }
            _ => return,
        };
        let entries = self.lists.locations(offset, unit.encoding, unit.low_pc, unit.addresses(), unit.addresses_base);
        let Ok(mut entries) = entries else { return };
        while let Ok(Some(entry)) = entries.next() {
            let Some(left) = self.entries.checked_sub(1) else { return };
            self.entries = left;
            note(Some(entry.range.begin..entry.range.end), place(entry.data, base, unit, machine));
        }
    }
}

/// Where, or what, the variable with this location is; `None` if a program cannot tell. Of one in pieces the first counts, with which it begins.
fn place(
    expression: Expression<Reader<'_>>,
    base: Option<FrameBase>,
    unit: &UnitContext<'_>,
    machine: &Machine,
) -> Option<Place> {
    let mut ops = Vec::new();
    let mut is_value = false;
    let mut operations = expression.operations(unit.encoding);
    let plus = |ops: &mut Vec<Op>, offset| {
        if offset != 0 {
            ops.extend([Op::Constant(offset), Op::Add]);
        }
    };
    // Many variables may have one long expression, with operations that do nothing.
    for _ in 0..MAX_STEPS {
        let Some(operation) = operations.next().ok()? else { break };
        match operation {
            Operation::Register { register } if ops.is_empty() => {
                ops.push(Op::Register(u8::try_from(register.0).ok()?));
                is_value = true;
            }
            Operation::RegisterOffset { register, offset, base_type } if base_type.0 == 0 => {
                ops.push(Op::Register(u8::try_from(register.0).ok()?));
                plus(&mut ops, offset);
            }
            Operation::FrameOffset { offset } => {
                ops.push(Op::Register(match base? {
                    FrameBase::Cfa => machine.pc,
                    FrameBase::Register(register) => register,
                }));
                plus(&mut ops, offset);
            }
            Operation::UnsignedConstant { value } => ops.push(Op::Constant(value as i64)),
            Operation::SignedConstant { value } => ops.push(Op::Constant(value)),
            Operation::PlusConstant { value } => plus(&mut ops, value as i64),
            Operation::Plus => ops.push(Op::Add),
            Operation::Minus => ops.push(Op::Subtract),
            Operation::Deref { base_type, size, space: false }
                if base_type.0 == 0 && i64::from(size) == machine.word =>
            {
                ops.push(Op::Deref);
            }
            Operation::StackValue => is_value = true,
            Operation::Piece { bit_offset: None, .. } => break,
            _ => return None,
        }
        if ops.len() >= MAX_STEPS {
            return None;
        }
    }
    (!ops.is_empty()).then_some(Place { ops, is_value })
}
