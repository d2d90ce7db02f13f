//! What this format does not express, in the terms of call frame information. (DWARF 5, sections 6.4.1 and 2.5)

use alloc::borrow::Cow;
use alloc::format;

use gimli::{Expression, Register, RegisterRule, X86_64};

use super::fdes::Reader;
use crate::rule::{ReturnAddress, WORD};

/// A register by its name in the psABI, or by its number.
pub(super) fn register(register: Register) -> Cow<'static, str> {
    X86_64::register_name(register).map_or_else(|| Cow::Owned(format!("{}", register.0)), Cow::Borrowed)
}

/// A register rule: `offset(16)`, `register(r8)`.
pub(super) fn register_rule(rule: &RegisterRule<usize>) -> Cow<'static, str> {
    Cow::Borrowed(match rule {
        RegisterRule::Undefined => "undefined",
        RegisterRule::SameValue => "same value",
        RegisterRule::Offset(offset) => return Cow::Owned(format!("offset({offset})")),
        RegisterRule::ValOffset(offset) => return Cow::Owned(format!("val_offset({offset})")),
        RegisterRule::Register(other) => return Cow::Owned(format!("register({})", register(*other))),
        RegisterRule::Expression(_) => "expression",
        RegisterRule::ValExpression(_) => "val_expression",
        RegisterRule::Architectural => "architectural",
        _ => "of another kind",
    })
}

/// Where a return address is.
pub(super) fn return_address(at: ReturnAddress) -> Cow<'static, str> {
    match at {
        ReturnAddress::AtCfa(words) => Cow::Owned(format!("offset({})", i64::from(words).saturating_mul(WORD))),
        ReturnAddress::InRegister(number) => Cow::Owned(format!("register({})", register(Register(u16::from(number))))),
    }
}

/// The operation at that offset of an expression: `DW_OP_piece`.
pub(super) fn operation(expression: &Expression<Reader<'_>>, offset: usize) -> Cow<'static, str> {
    let code = expression.0.slice().get(offset).copied().unwrap_or_default();
    match gimli::DwOp(code).static_string() {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(format!("operation {code:#04x}")),
    }
}
