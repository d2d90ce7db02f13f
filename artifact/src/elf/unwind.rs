//! Code ranges and the sections that say how to unwind them.

use super::headers::{Elf, Section};
use super::{dynamic, gabi, relocate, section, symbols};
use crate::code_ranges::disjoint;
use crate::proportion::in_proportion;
use crate::symbols::SymbolTable;
use crate::{Arch, ObjectKind, PltSection, SectionSlice, UnwindInputs};
use std::ops::Range;
use symseal_module::Svma;

/// Executable ranges by stated address, sorted, joined where they touch.
pub(crate) fn text_ranges(elf: &Elf<'_>) -> Vec<Range<u64>> {
    let mut ranges = text_sections(elf);
    ranges.dedup_by(|next, last| {
        let joins = next.start <= last.end;
        if joins {
            last.end = last.end.max(next.end);
        }
        joins
    });
    ranges
}

/// Executable sections by stated address, sorted, not overlapping; segments in a file without section headers.
pub(crate) fn text_sections(elf: &Elf<'_>) -> Vec<Range<u64>> {
    let mut ranges: Vec<Range<u64>> = elf
        .sections
        .iter()
        .filter(|section| section.is_executable())
        .map(Section::range)
        .filter(|range| !range.is_empty())
        .collect();
    if ranges.is_empty() {
        ranges = elf
            .segments
            .iter()
            .filter(|segment| segment.kind == gabi::PT_LOAD && segment.flags & gabi::PF_X != 0)
            .map(|segment| segment.vaddr..segment.vaddr.saturating_add(segment.memory_size))
            .filter(|range| !range.is_empty())
            .collect();
    }
    disjoint(ranges)
}

pub(crate) fn unwind_inputs<'d>(elf: &Elf<'d>) -> UnwindInputs<'d> {
    let base_of = |name: &[u8]| elf.section(name).filter(|section| section.is_allocated()).map(|section| section.addr);
    let (header_of_segment, frames_of_segment) = dynamic::frames(elf);
    UnwindInputs {
        arch: elf.arch(),
        image_base: Svma(elf.image_base()),
        text: text_ranges(elf),
        eh_frame: slice(elf, b".eh_frame").or(frames_of_segment),
        eh_frame_hdr: slice(elf, b".eh_frame_hdr").or(header_of_segment),
        debug_frame: slice(elf, b".debug_frame").or_else(|| slice(elf, b".zdebug_frame")),
        pdr: slice(elf, b".pdr"),
        pdata: None,
        foreign: Vec::new(),
        is_system_v: false,
        orc: orc(elf),
        unwind_info: None,
        exidx: slice(elf, b".ARM.exidx"),
        pclntab: slice(elf, b".gopclntab").or_else(|| slice(elf, b".data.rel.ro.gopclntab")),
        has_sframe: elf.section(b".sframe").is_some(),
        loaded: Vec::new(),
        functions: functions(elf),
        plt: plt_sections(elf),
        text_base: base_of(b".text"),
        got_base: base_of(b".got"),
        data_base: base_of(b".data"),
    }
}

/// ORC tables as the kernel has them. Before it is linked, and in modules, objtool's relocations are not applied.
fn orc<'d>(elf: &Elf<'d>) -> Option<(SectionSlice<'d>, SectionSlice<'d>)> {
    Some((slice(elf, b".orc_unwind_ip")?, slice(elf, b".orc_unwind")?))
}

/// A section that cannot be decompressed counts as missing: the unwinder reports what it has no rule for.
fn slice<'d>(elf: &Elf<'d>, name: &[u8]) -> Option<SectionSlice<'d>> {
    let (number, section) = elf.sections.iter().enumerate().find(|(_, section)| section.name == name)?;
    if !section.is_stored() {
        return None;
    }
    let mut bytes = section::contents(elf, section).ok()?;
    if relocate::concerns(elf, number) {
        relocate::apply(elf, number, bytes.to_mut());
    }
    Some(SectionSlice { svma: section.addr, bytes })
}

/// [`Symbol::type_rank`](crate::symbols::Symbol::type_rank) of a symbol that may be a label inside a function.
const UNTYPED: u8 = 2;

/// Where functions begin, on processors much of whose code has no other description: by symbols, by the file's entry and by what the loader runs before and after
/// it, which stripped files keep. Bit 0 tells the instruction set as in a symbol's value.
fn functions(elf: &Elf<'_>) -> Vec<u64> {
    if !matches!(elf.arch(), Arch::Mips | Arch::MipsLittle | Arch::Riscv64 | Arch::Arm | Arch::X86_64) {
        return Vec::new();
    }
    let tables = [SymbolTable::Symtab, SymbolTable::Dynsym].into_iter();
    let mut functions: Vec<u64> = tables
        .flat_map(|table| symbols::symbols(elf, table))
        .filter(|symbol| symbol.type_rank < UNTYPED)
        .map(|symbol| symbol.svma | u64::from(symbol.is_compressed))
        .collect();
    functions.extend(run_by_the_loader(elf));
    functions.sort_unstable();
    functions.dedup();
    // What begins there has no caller, whatever its instructions say of a return address.
    if elf.arch() == Arch::X86_64 {
        functions.retain(|address| *address != elf.entry);
    }
    functions
}

/// The most functions that a loader is believed to run: the largest programs have some ten thousand.
const MOST_RUN: usize = 1 << 20;

/// The entry, initializers and finalizers.
fn run_by_the_loader(elf: &Elf<'_>) -> Vec<u64> {
    let code = || elf.sections.iter().filter(|section| section.is_executable()).map(Section::range);
    let begins = |entry: u64| code().any(|range| range.start == entry & !1);
    // Linkers give libraries without an entry the beginning of their code for one.
    let is_program = elf.kind == ObjectKind::Executable
        || elf.segments.iter().any(|segment| segment.kind == gabi::PT_INTERP)
        || dynamic::value(elf, gabi::DT_FLAGS_1).is_some_and(|flags| flags & gabi::DF_1_PIE != 0);
    let entry = Some(elf.entry).filter(|entry| is_program || !begins(*entry));
    let once = [gabi::DT_INIT, gabi::DT_FINI].map(|tag| dynamic::value(elf, tag));
    let arrays = elf.sections.iter().filter(|section| {
        matches!(section.kind, gabi::SHT_INIT_ARRAY | gabi::SHT_FINI_ARRAY | gabi::SHT_PREINIT_ARRAY)
    });
    let arrays = in_proportion(elf.file_bytes(), arrays, |section| section.bytes.len());
    let word = if elf.is_64 { 8 } else { 4 };
    // Where relocations have their values apart, there are none here.
    let listed = arrays.flat_map(|section| section.bytes.chunks_exact(word));
    let listed = listed.filter_map(|bytes| elf.fields(bytes).word(0, elf.is_64));
    let told = entry.into_iter().chain(once.into_iter().flatten()).chain(listed);
    let code = disjoint(code().collect());
    let is_code = |address: &u64| {
        let after = code.partition_point(|range| range.start <= address & !1);
        after.checked_sub(1).and_then(|at| code.get(at)).is_some_and(|range| range.contains(&(address & !1)))
    };
    told.filter(is_code).take(MOST_RUN).collect()
}

fn plt_sections(elf: &Elf<'_>) -> Vec<PltSection> {
    let mut found: Vec<PltSection> = elf
        .sections
        .iter()
        .filter(|section| section.is_executable() && section.size > 0)
        .filter(|section| {
            matches!(section.name, b".plt" | b".plt.sec" | b".plt.got" | b".plt.bnd" | b".iplt" | b".MIPS.stubs")
        })
        .map(|section| PltSection {
            range: section.range(),
            entry_size: entry_size(elf, section),
            name: crate::escaped(section.name).into_owned(),
        })
        .collect();
    found.sort_by_key(|plt| plt.range.start);
    // Of several at one address there is one.
    found.dedup_by_key(|plt| plt.range.start);
    found
}

/// lld leaves the size 0 or 4.
fn entry_size(elf: &Elf<'_>, section: &Section<'_>) -> u64 {
    if elf.arch() != Arch::X86_64 {
        return section.entry_size;
    }
    /// Entries of every x86_64 PLT but `.plt.got`'s short ones.
    const PLT_ENTRY_BYTES: u64 = 16;
    match section.entry_size {
        8 | 16 => section.entry_size,
        _ => PLT_ENTRY_BYTES,
    }
}
