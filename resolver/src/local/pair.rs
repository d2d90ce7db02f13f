//! A program and its debug file, read as one, as the builder reads them: which of the two a name comes from.

use symseal_artifact::ObjectFile;
use symseal_bundle::Digest;
use symseal_module::{MappedModule, MissReason, ResolverStep, Rva};
use symseal_symx::SymbolSource;

use super::companions::FilesOf;
use super::{LocalTable, OwnTold, note_own};
use crate::resolver::NamedBy;
use crate::table::Named;
use crate::{DigestOf, Outcome, Tried};

/// The program that a debug file was read with.
#[derive(Debug)]
pub(crate) struct Program {
    pub(super) digest: Digest,
    pub(super) path: String,
    pub(super) has_debug_info: bool,
    /// Where the debug file's names come from; all others are the program's.
    pub(super) told_by_debug_file: Vec<SymbolSource>,
}

impl Program {
    /// The program `own`, of this digest, that the other `files` were read with.
    pub(crate) fn new((module, digest, own): (&MappedModule, Digest, &ObjectFile<'_>), files: FilesOf<'_, '_>) -> Self {
        let told = [
            (SymbolSource::Pdb, files.pdb.is_some()),
            (SymbolSource::Dwarf, files.debug.is_some_and(ObjectFile::has_debug_info)),
            (SymbolSource::Symtab, files.debug.is_some_and(ObjectFile::has_symtab)),
        ];
        Self {
            digest,
            path: module.path.clone(),
            has_debug_info: own.has_debug_info(),
            told_by_debug_file: told.into_iter().filter_map(|(source, tells)| tells.then_some(source)).collect(),
        }
    }
}

impl LocalTable {
    /// Asks the two of them, and notes what each said. What neither names, the program alone does not name either.
    pub(super) fn ask_pair(&self, program: &Program, lookup: Rva, tried: &mut Vec<Tried>) -> Option<NamedBy> {
        let named = match self.ask_debug_file_of(program, ResolverStep::DebugFile, lookup, tried) {
            Ok(answer) => return Some(answer),
            Err(named) => named,
        };
        let source = named.as_ref().map(|named| named.source);
        let Program { digest, path, has_debug_info, .. } = program;
        let own = OwnTold { has_debug_info: *has_debug_info, detail: path, lacks: "", digest: *digest };
        let step = note_own(source, &own, tried)?;
        let digests = [(DigestOf::Binary, program.digest), (DigestOf::DebugFile, self.digest)];
        Some(self.answer(step, &digests, named?))
    }

    /// Asks for a name that the debug file tells, and notes how that went; else what the program tells.
    pub(crate) fn ask_debug_file_of(
        &self,
        program: &Program,
        step: ResolverStep,
        lookup: Rva,
        tried: &mut Vec<Tried>,
    ) -> Result<NamedBy, Option<Named>> {
        let named = self.table.lookup(lookup);
        let source = named.as_ref().map(|named| named.source);
        if let (Some(named), true) = (&named, source.is_some_and(|source| program.told_by_debug_file.contains(&source)))
        {
            tried.push(self.noted(Outcome::Hit, step));
            let digests = [(DigestOf::DebugFile, self.digest), (DigestOf::Binary, program.digest)];
            return Ok(self.answer(step, &digests, named.clone()));
        }
        let has_dwarf = program.told_by_debug_file.contains(&SymbolSource::Dwarf);
        let reason = match source {
            Some(SymbolSource::Dwarf) if !has_dwarf => MissReason::NoDebugInfo,
            _ => MissReason::NoSymbolAtAddress,
        };
        tried.push(self.noted(Outcome::Miss(reason), step));
        Err(named)
    }
}
