//! What this format does not express, in the terms of call frame information. (DWARF 5, sections 6.4.1 and 2.5)

use alloc::borrow::Cow;
use alloc::format;

use gimli::{Expression, Register, RegisterRule};

use super::fdes::Reader;
use crate::arch::Machine;

/// A register by its name, or by its number.
pub(super) fn register(machine: &Machine, register: Register) -> Cow<'static, str> {
    let name = machine.names.get(usize::from(register.0));
    name.map_or_else(|| Cow::Owned(format!("{}", register.0)), |name| Cow::Borrowed(*name))
}

/// A register rule: `offset(16)`, `register(r8)`.
pub(super) fn register_rule(machine: &Machine, rule: &RegisterRule<usize>) -> Cow<'static, str> {
    Cow::Borrowed(match rule {
        RegisterRule::Undefined => "undefined",
        RegisterRule::SameValue => "same value",
        RegisterRule::Offset(offset) => return Cow::Owned(format!("offset({offset})")),
        RegisterRule::ValOffset(offset) => return Cow::Owned(format!("val_offset({offset})")),
        RegisterRule::Register(other) => return Cow::Owned(format!("register({})", register(machine, *other))),
        RegisterRule::Expression(_) => "expression",
        RegisterRule::ValExpression(_) => "val_expression",
        RegisterRule::Architectural => "architectural",
        _ => "of another kind",
    })
}

/// The operation at that offset of an expression: `DW_OP_piece`.
pub(super) fn operation(expression: &Expression<Reader<'_>>, offset: usize) -> Cow<'static, str> {
    let code = expression.0.slice().get(offset).copied().unwrap_or_default();
    match gimli::DwOp(code).static_string() {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("operation {code:#04x}")),
    }
}
