//! What a build found, for people and for JSON. It names paths, and is no part of the bundle.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use symseal_bundle::{DebugInfo, ModuleStatistics};
use symseal_module::{DebugId, Svma};

/// What a build found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BuildReport {
    /// What was looked at and what of it was left out.
    pub inputs: InputReport,
    /// The modules, by debug id.
    pub modules: Vec<ModuleReport>,
}

/// What was looked at and what of it was left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct InputReport {
    /// Files that went into the bundle.
    pub taken: u64,
    /// Files that are byte for byte one that was taken, under another path.
    pub doubles: u64,
    /// Files in directories that are no ELF files.
    pub not_elf: u64,
    /// Object files, core files and other ELF files in directories that no process loads.
    pub other_elf: u64,
    /// ELF files in directories without an id, or with neither code nor debug information.
    pub unidentified: u64,
    /// Links and special files in directories.
    pub links: u64,
}

/// What was found in one module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModuleReport {
    /// The module.
    pub debug_id: DebugId,
    /// Its file name.
    pub name: String,
    /// Its binary.
    pub binary: Option<PathBuf>,
    /// Its separate debug file.
    pub debug_file: Option<PathBuf>,
    /// The best debug information there is.
    pub debug_info: DebugInfo,
    /// Whether the binary itself is stripped.
    pub stripped: bool,
    /// Counts.
    pub statistics: ModuleStatistics,
    /// Bytes of the `.symx` table.
    pub symbol_table_bytes: u64,
    /// Bytes of the module's index.
    pub module_index_bytes: u64,
    /// Whether the complete line table is in the module's index.
    pub lines_inlined: bool,
    /// What was left out of the symbol table: reason → how often.
    pub skipped: BTreeMap<String, u64>,
    /// The unwind table.
    pub unwind: UnwindReport,
}

/// What became of a module's call frame information.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UnwindReport {
    /// Bytes of the `.uwt` table; 0 where there is none.
    pub table_bytes: u64,
    /// Why there is none.
    pub none_because: Option<String>,
    /// Frame description entries.
    pub fdes: u64,
    /// Rows.
    pub rows: u64,
    /// Distinct rules.
    pub rules: u64,
    /// Bytes of code with a rule.
    pub covered_bytes: u64,
    /// Rows that could not be compiled.
    pub unsupported: u64,
    /// The first of them.
    pub unsupported_ranges: Vec<UnsupportedRange>,
}

/// A range of code whose rule could not be compiled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnsupportedRange {
    /// First address.
    pub start: Svma,
    /// First address after it.
    pub end: Svma,
    /// Why.
    pub reason: String,
}
