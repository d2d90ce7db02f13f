//! Symbols that name code: `LC_SYMTAB`, the exports trie, and where functions start.
//!
//! Mach-O's assemblers put an underscore before the name of every function of C and of languages that call like it. It
//! is cut off here, so that a symbol is the linkage name that DWARF has, that other platforms have, and that demanglers
//! know; `_` and the symbol is the name as the file has it. Names without an underscore stay as they are.

use super::exports;
use super::headers::Macho;
use super::loader::{CPU_TYPE_ARM, N_ALT_ENTRY, N_EXT, N_FUN, N_OSO, N_PEXT, N_SECT, N_SO, N_STAB, N_TYPE, N_WEAK_DEF};
use crate::cursor::Cursor;
use crate::fields::within_longest_name;
use crate::symbols::{Symbol, SymbolTable};
use std::borrow::Cow;

/// `nlist` or `nlist_64`.
#[derive(Clone, Copy)]
struct Entry<'d> {
    /// From the name's first byte to the end of all names: where it ends is looked for when it is needed, as a million
    /// entries may name one long text.
    names: &'d [u8],
    kind: u8,
    section: u8,
    description: u16,
    value: u64,
}

impl<'d> Macho<'d> {
    /// Bytes of everything that symbols are read from.
    pub(super) fn symbol_table_bytes(&self) -> u64 {
        [self.symbols, self.symbol_names, self.export_trie, self.function_starts]
            .iter()
            .map(|bytes| bytes.len() as u64)
            .fold(0, u64::saturating_add)
    }

    /// Symbols of code sections. Mach-O has no sizes: those in the debug map (`N_FUN`) reach to the next symbol, padding
    /// included, which is what a symbol without a size does anyway.
    pub(super) fn symtab(&self) -> impl Iterator<Item = Symbol<'d>> + use<'_, 'd> {
        self.code_symbols().map(|(entry, svma)| Symbol {
            name: unprefixed(entry.name()),
            svma,
            size: 0,
            type_rank: 0,
            binding_rank: match (is_global(&entry), entry.description & N_WEAK_DEF != 0) {
                (true, false) => 0,
                (true, true) => 1,
                (false, _) => 2,
            },
            is_compressed: false,
            is_descriptor: false,
            table: SymbolTable::Symtab,
        })
    }

    /// The exports trie's symbols, wherever they lie.
    pub(super) fn exported(&self) -> impl Iterator<Item = Symbol<'_>> {
        let exports = self.exports.get_or_init(|| exports::read(self.export_trie));
        let base = self.image_base();
        exports.iter().filter_map(move |export| {
            Some(Symbol {
                name: unprefixed(&export.name),
                svma: self.code_address(base.checked_add(export.rva)?),
                size: 0,
                type_rank: 0,
                binding_rank: 0,
                is_compressed: false,
                is_descriptor: false,
                table: SymbolTable::Exports,
            })
        })
    }

    /// Names more than what is exported: functions of a debug map, a symbol of code that is not global, or any where
    /// there is no exports trie. (`strip` leaves an entry of another kind, `radr://5614542`.)
    pub(super) fn has_own_symbols(&self) -> bool {
        self.entries().any(|entry| entry.kind == N_FUN)
            || self.code_symbols().any(|(entry, _)| self.export_trie.is_empty() || !is_global(&entry))
    }

    /// Object files in the debug map. (`mach-o/stab.h`)
    pub(super) fn object_files(&self) -> u64 {
        self.entries().filter(|entry| entry.kind == N_OSO).count() as u64
    }

    /// Paths in the debug map: object files (`N_OSO`), and sources (`N_SO`), which stand as a directory with a slash at its end and a
    /// name after it, or as one path. (`mach-o/stab.h`)
    pub(super) fn stab_paths(&self) -> Vec<Cow<'d, [u8]>> {
        let mut paths: Vec<Cow<'d, [u8]>> = Vec::new();
        let mut directory: &[u8] = b"";
        // Names do not overlap in what linkers write, so this is enough for them; where they do, a few are enough for anybody.
        let mut left = self.symbol_names.len().saturating_mul(2);
        for entry in self.entries().filter(|entry| matches!(entry.kind, N_OSO | N_SO)) {
            let name = entry.name();
            if name.is_empty() {
                directory = b"";
                continue;
            }
            left = match left.checked_sub(name.len().saturating_add(directory.len())) {
                Some(left) => left,
                None => break,
            };
            if entry.kind == N_SO && name.ends_with(b"/") {
                directory = name;
            } else if entry.kind == N_SO && !directory.is_empty() && !name.starts_with(b"/") {
                paths.push(Cow::Owned([std::mem::take(&mut directory), name].concat()));
            } else {
                paths.push(Cow::Borrowed(name));
            }
        }
        paths
    }

    /// `LC_FUNCTION_STARTS`: distances in bytes, the first one from the image base, up to a zero.
    pub(super) fn starts(&self) -> Vec<u64> {
        let mut rest = Cursor::new(self.function_starts, true);
        let mut starts = Vec::new();
        let mut at = self.image_base();
        while let Ok(distance) = rest.uleb() {
            match at.checked_add(distance).filter(|_| distance > 0) {
                Some(next) => at = next,
                None => break,
            }
            starts.push(self.code_address(at));
        }
        // Of Thumb code bit 0 was set.
        starts.dedup();
        starts
    }

    /// Where functions start, by that list or, where the linker wrote none or an empty one (Zig's), by the symbols of which it would have made it: without either,
    /// functions that unwind information joins are not told apart.
    pub(super) fn function_addresses(&self) -> Vec<u64> {
        let starts = self.starts();
        if !starts.is_empty() {
            return starts;
        }
        // Another entry of a function is none of its own. (`mach-o/nlist.h`)
        let own = self.code_symbols().filter(|(entry, address)| {
            // That of the header counts to the first section, and lies before it.
            let section = usize::from(entry.section).checked_sub(1).and_then(|at| self.sections.get(at));
            let is_in = section.is_some_and(|it| address.checked_sub(it.addr).is_some_and(|offset| offset < it.size));
            is_in && entry.description & N_ALT_ENTRY == 0
        });
        let mut addresses: Vec<u64> = own.map(|(_, address)| address).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }

    fn entries(&self) -> impl Iterator<Item = Entry<'d>> + use<'_, 'd> {
        let size = if self.is_64 { 16 } else { 12 };
        let names = self.symbol_names;
        self.symbols.chunks_exact(size).filter_map(move |bytes| {
            let fields = self.fields(bytes);
            Some(Entry {
                names: names.get(fields.u32(0)? as usize..).unwrap_or_default(),
                kind: *bytes.get(4)?,
                section: *bytes.get(5)?,
                description: fields.u16(6)?,
                value: fields.word(8, self.is_64)?,
            })
        })
    }

    /// Entries that name something in a code section, with its address.
    fn code_symbols(&self) -> impl Iterator<Item = (Entry<'d>, u64)> + use<'_, 'd> {
        self.entries().filter_map(move |entry| {
            let is_defined = entry.kind & N_STAB == 0 && entry.kind & N_TYPE == N_SECT;
            // Sections are counted from one.
            let section = self.sections.get(usize::from(entry.section).checked_sub(1)?)?;
            let is_named = entry.names.first().is_some_and(|first| *first != 0) && !is_temporary(&entry);
            (is_defined && section.is_code() && is_named).then(|| (entry, self.code_address(entry.value)))
        })
    }

    /// Bit 0 of an address of 32-bit ARM says Thumb.
    fn code_address(&self, address: u64) -> u64 {
        if self.cpu == CPU_TYPE_ARM { address & !1 } else { address }
    }
}

impl<'d> Entry<'d> {
    fn name(&self) -> &'d [u8] {
        let names = within_longest_name(self.names);
        names.get(..memchr::memchr(0, names).unwrap_or(names.len())).unwrap_or_default()
    }
}

fn is_global(entry: &Entry<'_>) -> bool {
    entry.kind & N_EXT != 0 && entry.kind & N_PEXT == 0
}

/// Labels of the assembler and of LLVM (`ltmp0`), which name places and no functions.
fn is_temporary(entry: &Entry<'_>) -> bool {
    let is_place = || {
        let rest = entry.names.strip_prefix(b"ltmp").unwrap_or_default();
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && rest.get(digits) == Some(&0)
    };
    !is_global(entry) && (entry.names.starts_with(b"L") || is_place())
}

fn unprefixed(name: &[u8]) -> &[u8] {
    match name {
        [b'_', rest @ ..] if !rest.is_empty() => rest,
        name => name,
    }
}
