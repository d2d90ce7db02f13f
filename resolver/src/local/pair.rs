//! A program and its debug file, read as one, as the builder reads them: which of the two a name comes from.

use symseal_bundle::Digest;
use symseal_module::{MissReason, ResolverStep, Rva};
use symseal_symx::SymbolSource;

use super::{LocalTable, note_own};
use crate::resolver::NamedBy;
use crate::trail::{hit, miss};
use crate::{DigestOf, Tried};

/// The program that a debug file was read with.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) digest: Digest,
    pub(super) path: String,
    pub(super) has_debug_info: bool,
    /// Where the debug file's names come from; all others are the program's.
    pub(super) told_by_debug_file: Vec<SymbolSource>,
}

impl LocalTable {
    /// Asks the two of them, and notes what each said. What neither names, the program alone does not name either.
    pub(super) fn ask_pair(&self, program: &Program, lookup: Rva, tried: &mut Vec<Tried>) -> Option<NamedBy> {
        let step = ResolverStep::DebugFile;
        let named = self.table.lookup(lookup);
        let source = named.as_ref().map(|named| named.source);
        if let (Some(named), true) = (&named, source.is_some_and(|source| program.told_by_debug_file.contains(&source)))
        {
            tried.push(Tried { detail: self.detail.clone(), digest: Some(self.digest), ..hit(step) });
            let digests = [(DigestOf::DebugFile, self.digest), (DigestOf::Binary, program.digest)];
            return Some(self.answer(step, &digests, named.clone()));
        }
        let has_dwarf = program.told_by_debug_file.contains(&SymbolSource::Dwarf);
        let reason = match source {
            Some(SymbolSource::Dwarf) if !has_dwarf => MissReason::NoDebugInfo,
            _ => MissReason::NoSymbolAtAddress,
        };
        tried.push(miss(step, reason, self.detail.clone(), Some(self.digest)));
        let step = note_own(source, (program.has_debug_info, &program.path, program.digest), tried)?;
        let digests = [(DigestOf::Binary, program.digest), (DigestOf::DebugFile, self.digest)];
        Some(self.answer(step, &digests, named?))
    }
}
