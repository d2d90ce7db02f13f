//! Address ranges of entries. (DWARF 5, 2.17)

use super::unit::Unit;
use super::value::Value;
use crate::budget::Budget;
use crate::code_ranges::Text;
use crate::cursor::{Damaged, Result};
use gimli::{DebugAddr, DebugAddrBase, DebugRanges, DebugRngLists, RangeLists, RangeListsOffset};

/// What an entry says about its ranges.
#[derive(Clone, Copy, Default)]
pub(crate) struct RangeAttributes<'d> {
    pub(crate) low_pc: Option<Value<'d>>,
    pub(crate) high_pc: Option<Value<'d>>,
    pub(crate) ranges: Option<Value<'d>>,
}

impl RangeAttributes<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_none() && (self.low_pc.is_none() || self.high_pc.is_none())
    }
}

/// Ranges of functions or calls that lie in code.
#[derive(Debug, Default)]
pub(crate) struct CodeRanges {
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Of those that reach behind the code which they start in, what is stated.
    pub(crate) cut: Vec<(u64, u64)>,
}

/// Appends the ranges that lie in code; returns whether a range was dropped.
pub(crate) fn push_ranges(
    unit: &Unit<'_>,
    attributes: RangeAttributes<'_>,
    text: &Text,
    budget: &mut Budget,
    out: &mut CodeRanges,
) -> Result<bool> {
    let mut dropped = false;
    each_range(unit, attributes, budget, &mut |start, end| match text.clip(start, end) {
        Some(range) => {
            out.ranges.push(range);
            if range.1 != end {
                out.cut.push((start, end));
            }
        }
        None => dropped |= start != end,
    })?;
    Ok(dropped)
}

/// Calls `each` with the start and end of every range as they are stated, wherever they lie.
pub(crate) fn each_range(
    unit: &Unit<'_>,
    attributes: RangeAttributes<'_>,
    budget: &mut Budget,
    each: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let bits = unit.address_sections().address_bits();
    let mut push = |start: u64, end: u64| each(start & bits, end & bits);
    if let Some(value) = attributes.ranges {
        let mut list = range_list(unit, value)?;
        while let Some(range) = list.next().map_err(|_| Damaged)? {
            budget.charge(4)?;
            push(range.begin, range.end);
        }
    } else if let (Some(low), Some(high)) = (attributes.low_pc, attributes.high_pc) {
        let Some(start) = unit.address(low) else {
            // Behind the end of the table of addresses, or of a kind that no compiler writes.
            let is_address = matches!(low, Value::AddressIndex(_) | Value::AddressBehind(..) | Value::Expression(_));
            return if is_address { Err(Damaged) } else { Ok(()) };
        };
        let end = match high {
            Value::Number(size) => start.checked_add(size),
            address => unit.address(address),
        };
        // An end past the address space is a tombstone's.
        push(start, end.unwrap_or(start));
    }
    Ok(())
}

type List<'s> = gimli::RngListIter<super::sections::Slice<'s>>;

fn range_list<'s>(unit: &Unit<'s>, value: Value<'_>) -> Result<List<'s>> {
    let (own, addresses) = (unit.sections(), unit.address_sections());
    let lists = RangeLists::new(
        DebugRanges::from(addresses.slice(&addresses.ranges)),
        DebugRngLists::from(own.slice(&own.rnglists)),
    );
    let encoding = unit.header.encoding.gimli();
    let part = unit.header.bases.rnglists;
    let offset = match value {
        Value::Number(offset) if encoding.version >= 5 => offset.checked_add(part).ok_or(Damaged)?,
        Value::Number(offset) => offset.checked_add(unit.gnu_ranges_base()).ok_or(Damaged)?,
        Value::RangeListIndex(index) => {
            let default = if encoding.format == gimli::Format::Dwarf64 { 20 } else { 12 };
            let base = unit.root.rnglists_base.unwrap_or(default).checked_add(part).ok_or(Damaged)?;
            let base = gimli::DebugRngListsBase(usize::try_from(base).map_err(|_| Damaged)?);
            let index = usize::try_from(index).map_err(|_| Damaged)?;
            lists.get_offset(encoding, base, gimli::DebugRngListsIndex(index)).map_err(|_| Damaged)?.0 as u64
        }
        _ => return Err(Damaged),
    };
    let offset = RangeListsOffset(usize::try_from(offset).map_err(|_| Damaged)?);
    let base = DebugAddrBase(usize::try_from(unit.addr_base()).map_err(|_| Damaged)?);
    let addresses = DebugAddr::from(addresses.slice(&addresses.addr));
    lists.ranges(offset, encoding, unit.root.low_pc, &addresses, base).map_err(|_| Damaged)
}
