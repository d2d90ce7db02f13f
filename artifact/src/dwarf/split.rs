//! Which units are split, and where. (DWARF 5, 3.1.2 and 3.1.3; before, <https://gcc.gnu.org/wiki/DebugFission>)

use super::dwarf_files::DwarfFiles;
use super::survey::has_skeletons;
use super::unit::{AbbreviationTables, Unit};
use crate::budget::Budget;
use crate::headers::ObjectHeaders;
use crate::work::Work;
use crate::{SplitKind, SplitUnit};
use std::num::NonZeroUsize;

/// What kind of split DWARF a file holds.
pub(crate) fn split_kind(headers: &dyn ObjectHeaders<'_>) -> Option<SplitKind> {
    if headers.has_debug_section("cu_index") || headers.has_debug_section("tu_index") {
        Some(SplitKind::Dwp)
    } else if headers.has_debug_section("info.dwo") {
        Some(SplitKind::Dwo)
    } else {
        None
    }
}

/// The file's skeleton units, by their order.
pub(crate) fn split_units(headers: &dyn ObjectHeaders<'_>) -> Vec<SplitUnit> {
    let mut found = Vec::new();
    // Most files have none, and are not decompressed to see that.
    if !has_skeletons(headers) {
        return found;
    }
    each_unit(headers, &[], |unit, id| {
        if unit.is_skeleton() {
            let name = unit.root.dwo_name.unwrap_or_default().to_vec();
            found.push(SplitUnit { id, name, comp_dir: unit.root.comp_dir.to_vec() });
        }
    });
    found
}

/// The ids of the file's split units, by their order.
pub(crate) fn split_ids(headers: &dyn ObjectHeaders<'_>) -> Vec<u64> {
    let mut found = Vec::new();
    each_unit(headers, &[headers], |unit, id| {
        if unit.sections().is_split {
            found.push(id);
        }
    });
    found
}

/// Every unit with an id.
fn each_unit<'d>(
    headers: &dyn ObjectHeaders<'d>,
    split: &[&dyn ObjectHeaders<'d>],
    mut each: impl FnMut(&Unit<'_>, u64),
) {
    let mut work = Work::new();
    let dwarf = DwarfFiles::load(headers, None, split, NonZeroUsize::MIN, &mut work);
    work.budget = Budget::for_bytes(dwarf.total_bytes());
    let mut tables = AbbreviationTables::default();
    for header in dwarf.units(&mut work).iter().filter(|header| header.type_unit.is_none()) {
        if let Ok(unit) = Unit::open(&dwarf, header, &mut tables, &mut work.budget)
            && let Some(id) = unit.root.dwo_id
        {
            each(&unit, id);
        }
    }
}
