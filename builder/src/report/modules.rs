//! What was found in one module.

use std::collections::BTreeMap;

use serde::Serialize;
use symseal_bundle::{DebugInfo, LinesOfOthers, ModuleStatistics, PdbEntry};
use symseal_module::{DebugId, Svma};

use super::PairedBy;

/// What was found in one module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ModuleReport {
    /// `linux`, `macos` or `windows`: which part of the index it is in.
    pub platform: &'static str,
    /// The module.
    pub debug_id: DebugId,
    /// What the id rests on, such as `gnu-build-id`; `text-hash` where no linker wrote one.
    pub id_kind: &'static str,
    /// The code id of a PE file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_id: Option<String>,
    /// Go's own build id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub go_build_id: Option<String>,
    /// The program database that a PE file names, or that there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pdb: Option<PdbEntry>,
    /// Its file name.
    pub name: String,
    /// `elf`, `pe` or `macho`.
    pub format: &'static str,
    /// Architecture code.
    pub arch: &'static str,
    /// Its binary: a path, or `archive!/member`.
    pub binary: Option<String>,
    /// Its separate debug file.
    pub debug_file: Option<String>,
    /// Every file beside the binary, and how it was paired.
    pub paired: Vec<PairedFile>,
    /// What its debug information refers to and the inputs do not hold.
    pub missing: Vec<String>,
    /// The best debug information there is.
    pub debug_info: DebugInfo,
    /// Whether the binary itself is stripped.
    pub stripped: bool,
    /// Whether the binary holds a compressed symbol table (`.gnu_debugdata`).
    pub mini_debug_info: bool,
    /// Functions by what named them, such as `dwarf` or `symtab`.
    pub functions: BTreeMap<&'static str, u64>,
    /// Counts.
    pub statistics: ModuleStatistics,
    /// Bytes of the `.symx` table.
    pub symbol_table_bytes: u64,
    /// Bytes of the module's index.
    pub module_index_bytes: u64,
    /// Whether the complete line table is in the module's index.
    pub lines_inlined: bool,
    /// Bytes of code for which a line is known.
    pub lined_bytes: u64,
    /// Whose code they are lines of.
    pub lines_of: LinesOf,
    /// What is odd about its files, and is no error.
    pub notes: Vec<String>,
    /// What was left out of the symbol table: reason → how often.
    pub skipped: BTreeMap<String, u64>,
    /// The unwind table.
    pub unwind: UnwindReport,
}

impl ModuleReport {
    /// How many units of debug information, sections or lists of them were left out as damaged
    /// ([`symseal_artifact::is_damaged_unit`]).
    pub fn damaged_units(&self) -> u64 {
        let damaged = self.skipped.iter().filter(|(reason, _)| symseal_artifact::is_damaged_unit(reason));
        damaged.fold(0, |sum, (_, times)| sum.saturating_add(*times))
    }
}

/// Whose code the lines of a module tell of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinesOf {
    /// There are none.
    None,
    /// Start-up code alone has any, which every program of a toolchain has; or less than a tenth of the rest of the code, the first 4 KiB of it apart (what a C library adds
    /// to start a program), and neither the function with which its own code begins nor the most of what a DLL exports.
    Parts,
    /// All sources are those of Rust's own library, which every program of Rust has with its debug information.
    RustLibrary,
    /// The module's own.
    Module,
}

impl LinesOf {
    /// As the bundle has it, where they are not the module's own.
    pub fn others(self) -> Option<LinesOfOthers> {
        match self {
            Self::Parts => Some(LinesOfOthers::Parts),
            Self::RustLibrary => Some(LinesOfOthers::RustLibrary),
            Self::None | Self::Module => None,
        }
    }
}

/// What a file beside the binary is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PairedRole {
    /// A `.debug` file, a dSYM's DWARF file, an unstripped binary.
    DebugFile,
    /// A program database.
    Pdb,
    /// What dwz moved out of several debug files.
    Supplementary,
    /// A `.dwo` or `.dwp` file.
    SplitDwarf,
    /// Another file of the dSYM bundle.
    DsymMember,
}

impl PairedRole {
    /// The stable text.
    pub const fn code(self) -> &'static str {
        match self {
            Self::DebugFile => "debug-file",
            Self::Pdb => "pdb",
            Self::Supplementary => "supplementary",
            Self::SplitDwarf => "split-dwarf",
            Self::DsymMember => "dsym-member",
        }
    }
}

/// A file beside the binary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PairedFile {
    /// The file: a path, or `archive!/member`.
    pub place: String,
    /// What it is for.
    pub role: PairedRole,
    /// How it was found to belong to the module; `None` where there is no binary to belong to.
    pub paired_by: Option<PairedBy>,
    /// Its own id, where it is another than the module's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub debug_id: Option<DebugId>,
}

/// What became of a module's call frame information.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UnwindReport {
    /// Bytes of the `.uwt` table; 0 where there is none.
    pub table_bytes: u64,
    /// Why there is none; nothing for what dwz made, which is no module with code.
    pub none_because: Option<String>,
    /// Frame description entries.
    pub fdes: u64,
    /// Rows.
    pub rows: u64,
    /// Distinct rules.
    pub rules: u64,
    /// Bytes of code, whether or not there is a table.
    pub text_bytes: u64,
    /// Bytes of code with a rule.
    pub covered_bytes: u64,
    /// Bytes of code without one, padding between functions apart: reason → how many.
    pub gap_bytes: BTreeMap<String, u64>,
    /// Rows that could not be compiled, functions that could not be followed, entries that could not be read, and linkage tables of an unknown form.
    pub unsupported: u64,
    /// How many of them for which reason.
    pub unsupported_reasons: BTreeMap<String, u64>,
    /// Of each reason the first ones.
    pub unsupported_ranges: Vec<UnsupportedRange>,
    /// Rows whose rule finds the caller without a register that functions keep: why its place is not in the table → how many.
    pub lost_registers: BTreeMap<String, u64>,
}

/// What became of the call frame information of all modules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct UnwindTotals {
    /// Modules with an unwind table.
    pub modules: u64,
    /// Modules without one: reason → how many.
    pub none_because: BTreeMap<String, u64>,
    /// What dwz made, which has no code and needs none.
    pub without_code: u64,
    /// Bytes of the tables.
    pub table_bytes: u64,
    /// Rows in them.
    pub rows: u64,
    /// Bytes of code in all modules, those without a table among them.
    pub text_bytes: u64,
    /// Bytes of code with a rule.
    pub covered_bytes: u64,
    /// Rows that could not be compiled.
    pub unsupported: u64,
    /// How many of them for which reason.
    pub unsupported_reasons: BTreeMap<String, u64>,
}

impl UnwindTotals {
    pub(crate) fn of(modules: &[ModuleReport]) -> Self {
        let mut totals = Self::default();
        for unwind in modules.iter().map(|module| &module.unwind) {
            totals.text_bytes += unwind.text_bytes;
            if let Some(reason) = &unwind.none_because {
                *totals.none_because.entry(reason.clone()).or_default() += 1;
                continue;
            }
            if unwind.table_bytes == 0 {
                totals.without_code += 1;
                continue;
            }
            totals.modules += 1;
            totals.table_bytes += unwind.table_bytes;
            totals.rows += unwind.rows;
            totals.covered_bytes += unwind.covered_bytes;
            totals.unsupported += unwind.unsupported;
            for (reason, count) in &unwind.unsupported_reasons {
                *totals.unsupported_reasons.entry(reason.clone()).or_default() += count;
            }
        }
        totals
    }
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
