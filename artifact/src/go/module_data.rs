//! The runtime's description of the program (`runtime.firstmoduledata`): where code starts and where functions' data is.
//!
//! It has no symbol in a stripped file. It starts with the address of the function table, followed by slices over the
//! table's parts; those are known from the table's header, so that a wrong place is told from the right one.

use super::header::{Table, Version};
use super::image::Image;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ModuleData {
    /// Address of `runtime.text`.
    pub(crate) text: u64,
    svma: u64,
}

/// Numbers of words in the structure, from 1.18 on. (`runtime.moduledata`)
const NAMES: u64 = 1;
const UNITS: u64 = 4;
const FILES: u64 = 7;
const PC_TABLES: u64 = 10;
const FUNCTIONS: u64 = 13;
const INDEX_LENGTH: u64 = 17;
const FIRST_PC: u64 = 20;
const TEXT: u64 = 22;

/// The structure of a table from 1.18 on; older ones need none.
pub(crate) fn find(image: &Image<'_>, table: &Table<'_>) -> Option<ModuleData> {
    if !table.version.counts_from_text() {
        return None;
    }
    image.words_with(table.svma).find_map(|svma| {
        let word = |number: u64| word_at(image, svma, number);
        let offsets = &table.offsets;
        let is_part = |number: u64, offset: u64| word(number) == table.svma.checked_add(offset);
        let are_parts = is_part(NAMES, offsets.names)
            && is_part(UNITS, offsets.units)
            && is_part(FILES, offsets.files)
            && is_part(PC_TABLES, offsets.pc_tables)
            && is_part(FUNCTIONS, offsets.functions);
        let text = word(TEXT)?;
        // The index has one more entry than functions, its end.
        let is_of_table = are_parts
            && word(INDEX_LENGTH)?.checked_sub(1) == Some(table.len() as u64)
            && word(FIRST_PC)?.checked_sub(text) == table.first_entry();
        is_of_table.then_some(ModuleData { text, svma })
    })
}

impl ModuleData {
    /// Where `go:func.*` may be: the place of this version first, then those around it, as the structure grows with
    /// Go's releases while the table's magic number stays. The caller tries them.
    pub(crate) fn function_data(&self, image: &Image<'_>, version: Version) -> Vec<u64> {
        let own = if version == Version::Go118 { 38 } else { 40 };
        let around = (own - 4..own + 8).filter(|number| *number != own);
        std::iter::once(own).chain(around).filter_map(|number| word_at(image, self.svma, number)).collect()
    }
}

fn word_at(image: &Image<'_>, svma: u64, number: u64) -> Option<u64> {
    image.word(svma.checked_add(number * u64::from(image.word_size()))?)
}
