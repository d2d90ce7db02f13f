//! Addresses that are told by an expression: an entry of the table of addresses and what is added to it, as LLVM writes them where it keeps that table small
//! (`-minimize-addr-in-v5=Expressions`). (DWARF 5, 2.5 and 7.7.1)

use super::unit::Unit;
use super::value::Value;
use crate::cursor::Cursor;

/// The address, where the expression adds up addresses and constants and does nothing else.
pub(crate) fn address(unit: &Unit<'_>, expression: &[u8]) -> Option<u64> {
    let encoding = unit.header.encoding;
    let mut cursor = Cursor::new(expression, unit.sections().is_little_endian);
    let mut sum: Option<u64> = None;
    // What stands on the stack above the sum.
    let mut pending: Option<u64> = None;
    while cursor.remaining() > 0 {
        let operation = gimli::DwOp(cursor.u8().ok()?);
        let pushed = match operation {
            gimli::DW_OP_addr => cursor.unsigned(encoding.address_size).ok()?,
            gimli::DW_OP_addrx | gimli::DW_OP_GNU_addr_index => {
                unit.address(Value::AddressIndex(cursor.uleb().ok()?))?
            }
            gimli::DW_OP_const1u => cursor.unsigned(1).ok()?,
            gimli::DW_OP_const2u => cursor.unsigned(2).ok()?,
            gimli::DW_OP_const4u => cursor.unsigned(4).ok()?,
            gimli::DW_OP_const8u => cursor.unsigned(8).ok()?,
            gimli::DW_OP_constu => cursor.uleb().ok()?,
            gimli::DW_OP_plus_uconst => {
                sum = Some(sum.filter(|_| pending.is_none())?.checked_add(cursor.uleb().ok()?)?);
                continue;
            }
            gimli::DW_OP_plus => {
                sum = Some(sum?.checked_add(pending.take()?)?);
                continue;
            }
            _ => return None,
        };
        match sum {
            None => sum = Some(pushed),
            Some(_) if pending.is_none() => pending = Some(pushed),
            Some(_) => return None,
        }
    }
    sum.filter(|_| pending.is_none())
}
