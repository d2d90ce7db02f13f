//! A module's functions as one stream.

use crate::dwarf::{Budget, DwarfSections, Names, Text, Work, read};
use crate::merge::Merge;
use crate::{ArtifactError, IdKind, ObjectFile, ObjectKind, elf, symbols};
use std::collections::BTreeMap;
use symseal_symx::{FunctionRecord, Strings, SymbolSource};

/// What a symbol table is written from.
#[derive(Debug)]
pub struct FunctionStream {
    /// Sorted by start, not overlapping.
    pub functions: Vec<FunctionRecord>,
    /// The texts that the records refer to.
    pub strings: Strings,
    /// How much of everything there was, and what was left out.
    pub statistics: StreamStatistics,
}

/// What went into a [`FunctionStream`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamStatistics {
    /// Records that DWARF named.
    pub dwarf_functions: u64,
    /// Records that `.symtab` alone named.
    pub symtab_functions: u64,
    /// Records that `.dynsym` alone named.
    pub dynsym_functions: u64,
    /// Line rows in all records.
    pub rows: u64,
    /// Inlined calls in all records.
    pub inlines: u64,
    /// Bytes of executable sections.
    pub text_bytes: u64,
    /// Bytes of them that lie in a record.
    pub covered_bytes: u64,
    /// Bytes of DWARF after decompression.
    pub dwarf_bytes: u64,
    /// What was left out: reason → how often.
    pub skipped: BTreeMap<&'static str, u64>,
}

/// The functions of `binary`, with the debug information of `debug` where that is a file apart.
///
/// `binary` gives addresses, code ranges and symbols; it may itself be a debug file. DWARF is read from `debug` if that
/// has any, else from `binary`; symbols from both.
///
/// # Which name an address gets
///
/// 1. DWARF comes first: `name` is the name of the subprogram with its namespaces and types. Where several claim an
///    address, an earlier unit wins, and within a unit the later entry, which is the inner one where they are nested.
///    The record is flagged `folded`, and the others' symbols are among its aliases where they start alike.
/// 2. Where no subprogram is, the symbol tables name: a symbol covers its size, a later start wins over an earlier one.
///    A symbol of size 0 reaches to whatever comes next and is flagged `approximate`; of the dynamic table alone, it
///    covers its own address only.
/// 3. `symbol` is the first of the symbols at the record's start, in this order: function before indirect function
///    before untyped; with a size before without; global before weak before local; DWARF's linkage name before others;
///    no leading underscore before one before two; shorter before longer; then by bytes. The others are `aliases`.
///    Versions (`@@GLIBC_2.2.5`) are cut off. Where there is no symbol, it is DWARF's linkage name, else its bare name.
/// 4. Suffixes such as `.cold`, `.part.0`, `.constprop.0`, `.lto_priv.0` stay on symbols.
///
/// An [`ArtifactError`] says that the two files do not belong together. Damage within is counted in the statistics.
pub fn functions(binary: &ObjectFile<'_>, debug: Option<&ObjectFile<'_>>) -> Result<FunctionStream, ArtifactError> {
    if let Some(debug) = debug {
        check_pair(binary, debug)?;
    }
    let mut work = Work::new();
    let mut statistics = StreamStatistics::default();
    if binary.kind() == ObjectKind::Relocatable {
        work.skip("relocatable object: addresses are given by the linker");
        statistics.skipped = work.skipped;
        return Ok(FunctionStream { functions: Vec::new(), strings: work.strings, statistics });
    }
    let text = Text::new(elf::text_sections(binary.elf()));
    statistics.text_bytes = text.bytes();
    let described = debug.filter(|debug| debug.has_debug_info()).unwrap_or(binary);
    let sections = DwarfSections::load(described.elf(), &mut work.skipped);
    statistics.dwarf_bytes = sections.total_bytes();
    let mut files = vec![binary.elf()];
    files.extend(debug.map(ObjectFile::elf));
    let symbol_bytes: u64 = files.iter().map(|file| elf::symbol_bytes(file)).sum();
    work.budget = Budget::for_bytes(statistics.dwarf_bytes.saturating_add(symbol_bytes));
    let dwarf = read(&sections, &text, binary.image_base(), &mut work);

    let groups = symbols::groups(&files, &text, &mut work);
    let merge = Merge {
        image_base: binary.image_base(),
        text: &text,
        pieces: dwarf.pieces,
        losers: dwarf.losers,
        orphans: dwarf.orphans,
        groups,
        names: Names::new(&sections, &dwarf.headers, &dwarf.scopes, dwarf.tables),
        work: &mut work,
    };
    let functions = merge.run();
    for function in &functions {
        let counter = match function.source {
            SymbolSource::Symtab => &mut statistics.symtab_functions,
            SymbolSource::Dynsym => &mut statistics.dynsym_functions,
            _ => &mut statistics.dwarf_functions,
        };
        *counter += 1;
        statistics.rows += function.rows.len() as u64;
        statistics.inlines += function.inlines.len() as u64;
        statistics.covered_bytes += function.size;
    }
    statistics.skipped = work.skipped;
    Ok(FunctionStream { functions, strings: work.strings, statistics })
}

fn check_pair(binary: &ObjectFile<'_>, debug: &ObjectFile<'_>) -> Result<(), ArtifactError> {
    if binary.arch() != debug.arch() {
        return Err(ArtifactError::Mismatch {
            expected: format!("architecture {}", binary.arch()),
            found: format!("architecture {}", debug.arch()),
        });
    }
    let noted = |file: &ObjectFile<'_>| file.debug_id().filter(|_| file.id_kind() != IdKind::TextHash).cloned();
    match (noted(binary), noted(debug)) {
        (Some(expected), Some(found)) if expected != found => Err(ArtifactError::Mismatch {
            expected: format!("debug id {expected}"),
            found: format!("debug id {found}"),
        }),
        _ => Ok(()),
    }
}
