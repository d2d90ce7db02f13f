//! Whether split units describe the code that their skeletons have.
//!
//! The id of a unit is made of its source and of some of what came of it: compilers give one id to what they make of one source for two processors of a kind, or of two
//! versions of it, and sizes of functions differ then. A skeleton says where the unit's code is, and was linked with it.

use super::dwarf_files::DwarfFiles;
use super::scopes::Scopes;
use super::unit::{AbbreviationTables, Unit};
use super::unit_header::UnitHeader;
use super::walk::{UnitEntries, Walk};
use crate::budget::Budget;
use crate::code_ranges::{disjoint, touches};
use crate::cursor::Result;
use crate::headers::ObjectHeaders;
use crate::work::Work;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;

/// In how many places a unit of one of the `split` files contradicts the skeleton of its id in `main`: by the id and the number of the file. Nothing of units that
/// have no skeleton there or cannot be read.
pub(crate) fn split_misfits<'d>(
    main: &dyn ObjectHeaders<'d>,
    split: &[&dyn ObjectHeaders<'d>],
) -> BTreeMap<(u64, usize), usize> {
    let mut work = Work::new();
    let dwarf = DwarfFiles::load(main, None, split, NonZeroUsize::MIN, &mut work);
    work.budget = Budget::for_bytes(dwarf.total_bytes());
    let mut tables = AbbreviationTables::default();
    let headers = dwarf.unpaired_units(&mut work);
    let first_split = dwarf.split().next().map_or(0, |(number, _)| number);
    let mut skeletons = HashMap::new();
    let mut found = BTreeMap::new();
    // The main file's units come first.
    for header in headers.iter().filter(|header| header.type_unit.is_none()) {
        let Ok(unit) = Unit::open(&dwarf, header, &mut tables, &mut work.budget) else { continue };
        let Some(id) = unit.root.dwo_id else { continue };
        if unit.is_skeleton() {
            skeletons.entry(id).or_insert(unit);
        } else if unit.sections().is_split
            && let Some(skeleton) = skeletons.get(&id)
            && let Ok(misfits) = misfits(&dwarf, header, skeleton, &mut tables, &mut work)
        {
            let file = header.file.saturating_sub(first_split) as usize;
            found.entry((id, file)).or_insert(misfits);
        }
    }
    found
}

/// Functions with code that the skeleton does not have or that lies in a part over another's, and ends of the skeleton's code at which no function ends.
pub(super) fn misfits<'s>(
    dwarf: &'s DwarfFiles<'s>,
    header: &UnitHeader,
    skeleton: &Unit<'s>,
    tables: &mut AbbreviationTables,
    work: &mut Work,
) -> Result<usize> {
    let (text, mut code) = (dwarf.text(), Vec::new());
    if !skeleton.push_code(text, &mut work.budget, &mut code)? {
        return Ok(0);
    }
    let unit = Unit::open_split(dwarf, header, skeleton.clone(), tables, &mut work.budget)?;
    let (mut entries, mut scopes) = (UnitEntries::default(), Scopes::default());
    scopes.start_unit(0);
    Walk::new(&unit, text, &mut entries, &mut scopes, work).run(&mut |_, _| None)?;
    let code = disjoint(code.into_iter().map(|(start, end)| start..end).collect());
    let outside = entries.ranges.iter().filter(|(start, end)| !touches(&code, &(*start..*end))).count();
    let ends: HashSet<u64> = entries.ranges.iter().map(|(_, end)| *end).collect();
    let unmet = code.iter().filter(|range| !ends.contains(&range.end)).count();
    Ok(outside + entries.over_another() + unmet)
}
