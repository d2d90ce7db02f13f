//! The directories in which compilers were run.

use std::collections::BTreeSet;

use super::dwarf_files::DwarfFiles;
use super::unit::{AbbreviationTables, Unit};
use crate::budget::Budget;
use crate::headers::ObjectHeaders;
use crate::text::escaped;
use crate::work::Work;

/// `DW_AT_comp_dir` of every unit, each once. Texts of a supplementary file are not seen.
pub(crate) fn compile_directories(headers: &dyn ObjectHeaders<'_>) -> BTreeSet<String> {
    let mut work = Work::new();
    let dwarf = DwarfFiles::load(headers, None, &[headers], std::num::NonZeroUsize::MIN, &mut work);
    work.budget = Budget::for_bytes(dwarf.total_bytes());
    let mut tables = AbbreviationTables::default();
    let mut found: BTreeSet<String> = BTreeSet::new();
    for header in dwarf.units(&mut work).iter().filter(|header| header.type_unit.is_none()) {
        if let Ok(unit) = Unit::open(&dwarf, header, &mut tables, &mut work.budget) {
            let text = escaped(unit.root.comp_dir);
            if !text.is_empty() && !found.contains(text.as_ref()) {
                found.insert(text.into_owned());
            }
        }
    }
    found
}
