//! What a build found, for people and for JSON (`docs/formats/command_output.md`). It names paths, and is no part of the
//! bundle.

mod inputs;
mod modules;
mod pairs;

use serde::Serialize;
use symseal_bundle::Digest;

use crate::sources::SourcesReport;

pub use inputs::{ArchiveReport, InputReport, PassedOver, Refused, SkippedPlaces};
pub use modules::{LinesOf, ModuleReport, PairedFile, PairedRole, UnsupportedRange, UnwindReport, UnwindTotals};
pub use pairs::{Conflict, Mismatch, NamedBy, PairedBy, Side, Superseded, Unpaired};

/// The schema of the JSON form: `docs/formats/schemas/build_report.schema.json`.
pub(crate) const SCHEMA: &str = "symseal.build_report.v1";

/// What a build found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BuildReport {
    /// `symseal.build_report.v1`.
    pub schema: &'static str,
    /// The release's name.
    pub name: String,
    /// The release's version.
    pub version: String,
    /// The bundle; `None` where none was written.
    pub bundle: Option<Digest>,
    /// What was looked at and what of it was left out.
    pub inputs: InputReport,
    /// The modules, by platform and debug id.
    pub modules: Vec<ModuleReport>,
    /// Binaries whose functions have neither lines nor a debug file that would tell them.
    pub binaries_without_debug_files: Vec<Unpaired>,
    /// Debug files whose binary is not among the inputs.
    pub debug_files_without_binaries: Vec<Unpaired>,
    /// Debug files that look like a binary's and are of another build. Errors.
    pub mismatches: Vec<Mismatch>,
    /// Files of one id of which no rule says which is the better one. Errors, for which no bundle is written.
    pub conflicts: Vec<Conflict>,
    /// Files that were left out because another file of the same id is better.
    pub superseded: Vec<Superseded>,
    /// The unwind tables of all modules.
    pub unwind: UnwindTotals,
    /// What became of the sources, where they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<SourcesReport>,
}

impl BuildReport {
    pub(crate) fn new(name: &str, version: &str, inputs: InputReport) -> Self {
        Self {
            schema: SCHEMA,
            name: name.to_owned(),
            version: version.to_owned(),
            bundle: None,
            inputs,
            modules: Vec::new(),
            binaries_without_debug_files: Vec::new(),
            debug_files_without_binaries: Vec::new(),
            mismatches: Vec::new(),
            conflicts: Vec::new(),
            superseded: Vec::new(),
            unwind: UnwindTotals::default(),
            sources: None,
        }
    }

    /// Whether every module is paired, no file and no debug information is damaged, every archive was looked into, and nothing
    /// contradicts, no source file's checksum either: what a strict build asks for.
    pub fn is_complete(&self) -> bool {
        let mismatches = (self.mismatches.len() + self.conflicts.len()) as u64 + self.mismatched_sources();
        let unread = self.inputs.damaged() + self.inputs.not_looked_into() + self.damaged_modules();
        self.unpaired() + mismatches + unread == 0
    }

    /// How many modules have a unit of debug information that is damaged, so that functions and lines are missing.
    pub fn damaged_modules(&self) -> u64 {
        self.modules.iter().filter(|module| module.damaged_units() > 0).count() as u64
    }

    /// How many source files were found with another checksum than the debug information says.
    pub fn mismatched_sources(&self) -> u64 {
        self.sources.as_ref().map_or(0, |sources| sources.mismatched.len() as u64)
    }

    /// How many files lack their counterpart.
    pub fn unpaired(&self) -> u64 {
        (self.binaries_without_debug_files.len() + self.debug_files_without_binaries.len()) as u64
    }
}
