//! Macho files.

use crate::headers::ObjectHeaders;
use crate::symbols::{Symbol, SymbolTable};
use crate::{Arch, ArtifactError, Format, IdKind, ObjectKind, UnwindInputs};
use std::borrow::Cow;
use std::ops::Range;
use symseal_module::{DebugId, Svma};

/// Headers of a Macho file.
#[derive(Debug)]
pub(crate) struct Macho<'d> {
    data: &'d [u8],
}

impl<'d> Macho<'d> {
    pub(crate) fn parse(data: &'d [u8]) -> Result<Self, ArtifactError> {
        Err(ArtifactError::UnknownFormat {
            found: format!("a Macho file of {} bytes, which is not read yet", data.len()),
        })
    }
}

impl<'d> ObjectHeaders<'d> for Macho<'d> {
    fn format(&self) -> Format {
        Format::Macho
    }
    fn arch(&self) -> Arch {
        Arch::Other(0)
    }
    fn kind(&self) -> ObjectKind {
        ObjectKind::Other
    }
    fn is_64(&self) -> bool {
        true
    }
    fn is_little_endian(&self) -> bool {
        true
    }
    fn image_base(&self) -> u64 {
        0
    }
    fn identity(&self) -> (Option<DebugId>, IdKind) {
        (None, IdKind::TextHash)
    }
    fn is_executable(&self) -> bool {
        false
    }
    fn is_debuginfo(&self) -> bool {
        false
    }
    fn has_symtab(&self) -> bool {
        false
    }
    fn debug_section(&self, _: &str) -> Option<Result<Cow<'d, [u8]>, ArtifactError>> {
        None
    }
    fn has_debug_section(&self, _: &str) -> bool {
        false
    }
    fn section(&self, _: &[u8]) -> Option<(Svma, &'d [u8])> {
        None
    }
    fn text_sections(&self) -> Vec<Range<u64>> {
        Vec::new()
    }
    fn symbols(&self, _: SymbolTable) -> Box<dyn Iterator<Item = Symbol<'_>> + '_> {
        Box::new(std::iter::empty())
    }
    fn symbol_bytes(&self) -> u64 {
        self.data.len() as u64
    }
    fn unwind_inputs(&self) -> UnwindInputs<'d> {
        UnwindInputs::none(self.arch(), Svma(self.image_base()))
    }
}

/// The slices of a universal file.
pub(crate) fn slices(data: &[u8]) -> Result<Vec<Macho<'_>>, ArtifactError> {
    Ok(vec![Macho::parse(data)?])
}
