//! What a process would have in memory.

use super::gabi;
use super::headers::{Elf, Section};
use crate::ObjectKind;
use crate::proportion::in_proportion;

/// Relocations that are the image's base plus their addend, by processor. (The psABI supplements' `R_*_RELATIVE`)
const RELATIVE: [(u16, u32); 5] =
    [(62, 8), (gabi::EM_AARCH64, 1027), (gabi::EM_RISCV, 3), (gabi::EM_PPC64, 22), (22, 12)];

/// Allocated sections with bytes; segments in a file without section headers.
pub(crate) fn loaded<'d>(elf: &Elf<'d>) -> Vec<(u64, &'d [u8])> {
    let sections = elf.sections.iter().filter(|section| section.is_allocated() && section.is_stored());
    let sections: Vec<(u64, &[u8])> = sections.map(|section| (section.addr, section.bytes)).collect();
    if !sections.is_empty() || !elf.sections.is_empty() {
        return sections;
    }
    let segments = elf.segments.iter().filter(|segment| segment.kind == gabi::PT_LOAD);
    segments.filter_map(|segment| Some((segment.vaddr, elf.segment_bytes(segment)?))).collect()
}

/// Of the sections that are loaded none is for code, and one that is no note has bytes: in debug files none has.
pub(super) fn is_data_alone(elf: &Elf<'_>) -> bool {
    !elf.sections.iter().any(|section| section.is_executable() && section.size > 0)
        && elf.sections.iter().any(is_content)
}

/// Loaded bytes that the module's own build made: neither a note nor what a debugger reads.
pub(super) fn is_content(section: &Section<'_>) -> bool {
    let is_for_debuggers = section.name.starts_with(b".debug_");
    section.is_allocated() && section.is_stored() && section.kind != gabi::SHT_NOTE && !is_for_debuggers
}

/// By the section in which the module's build puts its `struct module`, and without which Linux loads none. (Linux,
/// kernel/module/main.c, "module has no .gnu.linkonce.this_module section"; scripts/mod/modpost.c) A debug file has the section's
/// header. `.modinfo` is no such sign: objects that are linked into the kernel itself have one too.
pub(super) fn is_kernel_module(elf: &Elf<'_>) -> bool {
    elf.kind == ObjectKind::Relocatable && elf.section(b".gnu.linkonce.this_module").is_some()
}

/// Relative relocations with their addends, at the stated base. Those without (`SHT_REL`, `SHT_RELR`) leave the value in
/// place.
pub(crate) fn relocated_words(elf: &Elf<'_>) -> Vec<(u64, u64)> {
    let Some((_, relative)) = RELATIVE.into_iter().find(|(machine, _)| *machine == elf.machine && elf.is_64) else {
        return Vec::new();
    };
    let tables = elf.sections.iter().filter(|section| section.kind == gabi::SHT_RELA && section.is_allocated());
    let tables = in_proportion(elf.file_bytes(), tables, |table| table.bytes.len());
    let entries = tables.flat_map(|table| table.bytes.chunks_exact(24));
    let words = entries.filter_map(|entry| {
        let fields = elf.fields(entry);
        // The type is the lower half of `r_info`.
        (fields.u64(8)? as u32 == relative).then_some((fields.u64(0)?, fields.u64(16)?))
    });
    words.collect()
}
