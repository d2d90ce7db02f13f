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
use crate::code_ranges::joined;
use crate::cursor::Result;
use crate::headers::ObjectHeaders;
use crate::work::Work;
use hashbrown::{HashMap, HashSet};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::Range;

/// Why the functions of a unit were left out.
pub(super) const OF_ANOTHER_BUILD: &str = "split DWARF of another build of the unit's source";

/// Where a split unit contradicts the code of its skeleton. The fewer, the better.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SplitMisfits {
    /// Functions that reach out of the skeleton's code, lie over a part of one another, or are none by the symbols. No compiler writes such a unit: it is of
    /// another build.
    pub functions: usize,
    /// Ends of the skeleton's code at which no function ends. Compilers have code that they describe by lines alone, or not at all.
    pub unmet: usize,
    /// The first one of the functions, as it is stated.
    pub first: Option<(u64, u64)>,
}

/// How the units of the `split` files contradict the skeletons of their ids in `main`: by the id and the number of the file. Nothing of units that
/// have no skeleton there or cannot be read. Of several skeletons with one id the one counts that is contradicted least.
pub(crate) fn split_misfits<'d>(
    main: &dyn ObjectHeaders<'d>,
    split: &[&dyn ObjectHeaders<'d>],
) -> BTreeMap<(u64, usize), SplitMisfits> {
    let mut work = Work::new();
    let dwarf = DwarfFiles::load(main, None, split, NonZeroUsize::MIN, &mut work);
    work.budget = Budget::for_bytes(dwarf.total_bytes());
    let mut tables = AbbreviationTables::default();
    let headers = dwarf.unpaired_units(&mut work);
    let first_split = dwarf.split().next().map_or(0, |(number, _)| number);
    let mut skeletons: HashMap<u64, Vec<Unit<'_>>> = HashMap::new();
    let mut found = BTreeMap::new();
    // The main file's units come first.
    for header in headers.iter().filter(|header| header.type_unit.is_none()) {
        let Ok(unit) = Unit::open(&dwarf, header, &mut tables, &mut work.budget) else { continue };
        let Some(id) = unit.root.dwo_id else { continue };
        if unit.is_skeleton() {
            skeletons.entry(id).or_default().push(unit);
        } else if unit.sections().is_split {
            let file = header.file.saturating_sub(first_split) as usize;
            let all = skeletons.get(&id).into_iter().flatten();
            let all = all.filter_map(|skeleton| misfits(&dwarf, header, skeleton, &mut tables, &mut work).ok());
            if let Some(least) = all.min() {
                found.entry((id, file)).or_insert(least);
            }
        }
    }
    found
}

/// Where a split unit contradicts its skeleton's code.
pub(super) fn misfits<'s>(
    dwarf: &'s DwarfFiles<'s>,
    header: &UnitHeader,
    skeleton: &Unit<'s>,
    tables: &mut AbbreviationTables,
    work: &mut Work,
) -> Result<SplitMisfits> {
    let unit = Unit::open_split(dwarf, header, skeleton.clone(), tables, &mut work.budget)?;
    let (mut entries, mut scopes) = (UnitEntries::default(), Scopes::default());
    scopes.start_unit(0);
    Walk::new(&unit, dwarf.text(), &mut entries, &mut scopes, work).run(&mut |_, _| None)?;
    misfits_of(dwarf, skeleton, &entries, &mut work.budget)
}

/// The same of entries that were read. Functions that the linker dropped are outside of the code, and none of them.
pub(super) fn misfits_of(
    dwarf: &DwarfFiles<'_>,
    skeleton: &Unit<'_>,
    entries: &UnitEntries,
    budget: &mut Budget,
) -> Result<SplitMisfits> {
    let mut misfits = SplitMisfits::default();
    // Where 0 is code, what was dropped lies there too.
    let zero_is_code = dwarf.text().clip(0, 1).is_some();
    let mut ranges: Vec<(u64, u64)> = entries.ranges.iter().chain(&entries.cut).copied().collect();
    ranges.retain(|(start, _)| *start != 0 || !zero_is_code);
    ranges.sort_unstable();
    // Functions that the linker folded have the same range.
    ranges.dedup();
    budget.charge(ranges.len() as u64)?;
    let code = skeleton.stated_code(budget)?;
    let code = code.map(|code| joined(code.into_iter().map(|(start, end)| start..end).collect()));
    let mut reached = 0;
    for (start, end) in &ranges {
        let is_outside = code.as_ref().is_some_and(|code| !holds(code, *start, *end));
        if *start < reached || is_outside || dwarf.sized().contradict(*start, *end) {
            misfits.functions += 1;
            misfits.first = misfits.first.or(Some((*start, *end)));
        }
        reached = reached.max(*end);
    }
    let ends: HashSet<u64> = ranges.iter().map(|(_, end)| *end).collect();
    let in_code = |range: &&Range<u64>| dwarf.text().clip(range.start, range.end).is_some();
    misfits.unmet = code.iter().flatten().filter(in_code).filter(|range| !ends.contains(&range.end)).count();
    Ok(misfits)
}

/// Whether one of the ranges, which are sorted and do not meet, has all of that one.
fn holds(ranges: &[Range<u64>], start: u64, end: u64) -> bool {
    let behind = ranges.partition_point(|range| range.end <= start);
    ranges.get(behind).is_some_and(|range| range.start <= start && end <= range.end)
}
