//! Go's function table (`pclntab`), which the runtime needs for its own stack traces, so that stripping leaves it.
//!
//! [`find`] looks for the table, [`GoTable::read`] turns it into pieces of functions with line rows and inlined calls.
//! Source of the layouts: `runtime/symtab.go`, `runtime/runtime2.go`, `debug/gosym/pclntab.go` and `cmd/link/internal/ld/pcln.go`
//! of the Go releases 1.15 to 1.26. Nothing is shared between this folder and the DWARF reader but the result.

mod build_id;
mod build_info;
mod header;
mod image;
mod inline_tree;
mod module_data;
mod names;
mod pc_table;
mod rows;

use crate::code_ranges::Text;
use crate::described::Described;
use crate::headers::ObjectHeaders;
use crate::unwind_inputs::SectionSlice;
use crate::work::Work;
use header::Table;
use image::Image;
use symseal_module::Svma;

pub(crate) use build_id::before_code;
pub(crate) use build_info::build_info;
pub(crate) use names::is_go;

/// A Go program's function table and the image that it speaks of.
pub(crate) struct GoTable<'d> {
    image: Image<'d>,
    table: Table<'d>,
    /// Address of `runtime.text`, where the linker wrote it down as a symbol.
    text_symbol: Option<u64>,
    text_sections: Vec<std::ops::Range<u64>>,
}

/// The function table of a Go program. By its section; where there is none (PE files, files without section headers),
/// and `search` is set, anywhere in the loaded bytes where a whole header stands.
pub(crate) fn find<'d>(headers: &dyn ObjectHeaders<'d>, search: bool) -> Option<GoTable<'d>> {
    let section = headers.go_function_table();
    if section.is_none() && !search {
        return None;
    }
    let image = Image::new(headers);
    let table = match section {
        Some(section) => Table::parse(&image, section.svma),
        None => image.starts_of(&header::magics(image.is_little_endian)).find_map(|svma| Table::parse(&image, svma)),
    }?;
    let text_symbol = headers
        .symbols(crate::symbols::SymbolTable::Symtab)
        .find(|symbol| matches!(symbol.name, b"runtime.text" | b"_runtime.text"))
        .map(|symbol| symbol.svma);
    Some(GoTable { image, table, text_symbol, text_sections: headers.text_sections() })
}

/// The bytes of a Go program's function table, up to the end of what is loaded there. It is searched for where a build id of Go stands, and where no section need
/// be called after the table: programs are made without an id, and without what Go's linker writes down of a build.
pub(crate) fn function_table<'d>(headers: &dyn ObjectHeaders<'d>) -> Option<SectionSlice<'d>> {
    let search = headers.go_build_id().is_some() || headers.may_hide_go_table();
    let table = find(headers, search)?.table;
    Some(SectionSlice { svma: table.svma, bytes: table.all.into() })
}

impl<'d> GoTable<'d> {
    /// Bytes of the table, for the bound on work.
    pub(crate) fn bytes(&self) -> u64 {
        self.table.bytes()
    }

    /// Whether the functions have debug information of a better kind: most of some that are spread over the table do.
    pub(crate) fn is_described_by(&self, described: &Described<'_>) -> bool {
        const ASKED: usize = 64;
        if described.pieces.is_empty() {
            return false;
        }
        let Some(text_start) = self.text_start() else { return false };
        let step = (self.table.len() / ASKED).max(1);
        let entries = (0..self.table.len()).step_by(step).take(ASKED);
        let asked: Vec<u64> = entries
            .filter_map(|number| self.table.entry(&self.image, number, text_start).map(|entry| entry.start))
            .collect();
        let starts: std::collections::HashSet<u64> = described.pieces.iter().map(|piece| piece.start).collect();
        asked.iter().filter(|start| starts.contains(start)).count() > asked.len() / 2
    }

    /// The functions of the table.
    pub(crate) fn read(&self, text: &Text, image_base: Svma, work: &mut Work) -> Described<'_> {
        rows::read(self, text, image_base, work)
    }

    /// What entries count from: 0 where they are addresses already. None where it cannot be known.
    fn text_start(&self) -> Option<u64> {
        if !self.table.version.counts_from_text() {
            return Some(0);
        }
        if let Some(module) = module_data::find(&self.image, &self.table) {
            return Some(module.text);
        }
        if let Some(symbol) = self.text_symbol {
            return Some(symbol);
        }
        // Go's own linker starts `.text` with `runtime.text` and fills it; behind a C linker other code stands around.
        const ALIGNMENT: u64 = 64;
        let length = self.table.text_length()?;
        let fits = |range: &&std::ops::Range<u64>| {
            let behind = range.start.checked_add(length);
            behind.is_some_and(|behind| behind <= range.end && range.end - behind < ALIGNMENT)
        };
        self.text_sections.iter().find(fits).map(|range| range.start)
    }
}
