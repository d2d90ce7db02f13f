//! Where the procedures of a PDB end, as llvm-pdbutil lists their records.

use crate::support::{any_of, run};
use object::read::pe::ImageNtHeaders;
use std::ops::Range;
use std::path::Path;

/// Relative addresses of the procedures, sorted.
pub(crate) fn procedures(pdb: &Path, pe: &[u8]) -> Vec<Range<u64>> {
    let Some(tool) = any_of(&["llvm-pdbutil-19", "llvm-pdbutil"]) else { return Vec::new() };
    let text = run(tool, &["dump", "--symbols", &pdb.display().to_string()], Path::new(".")).expect("llvm-pdbutil");
    let starts = section_starts(pe);
    // `parent = 0, end = 8608, addr = 0001:30784, code size = 3786`
    let procedure = |line: &str| {
        let (_, rest) = line.split_once("addr = ")?;
        let (address, size) = rest.split_once(", code size = ")?;
        let (section, offset) = address.split_once(':')?;
        let start = starts.get(section.parse::<usize>().ok()?.checked_sub(1)?)? + offset.parse::<u64>().ok()?;
        Some(start..start + size.trim().parse::<u64>().ok()?)
    };
    let mut found: Vec<Range<u64>> = text.lines().filter_map(procedure).collect();
    found.sort_by_key(|range| range.start);
    found
}

fn section_starts(pe: &[u8]) -> Vec<u64> {
    fn starts<Pe: ImageNtHeaders>(pe: &[u8]) -> Option<Vec<u64>> {
        let file = object::read::pe::PeFile::<Pe>::parse(pe).ok()?;
        let start = |section: &object::pe::ImageSectionHeader| section.virtual_address.get(object::LittleEndian).into();
        Some(file.section_table().iter().map(start).collect())
    }
    starts::<object::pe::ImageNtHeaders64>(pe).or_else(|| starts::<object::pe::ImageNtHeaders32>(pe)).expect("a PE")
}
