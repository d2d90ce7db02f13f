//! A release file, whatever it is.

use crate::headers::Headers;
use crate::macho;
use crate::{ArtifactError, FileKind, ObjectFile, PdbFile, PortablePdb, sniff};
use symseal_module::DebugId;

/// One release file, parsed as far as what identifies it.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one value for a file, and most are objects")]
pub enum ReleaseFile<'d> {
    /// An ELF, PE or thin Mach-O file.
    Object(ObjectFile<'d>),
    /// The slices of a universal Mach-O file, in its order: each a module of its own.
    Fat(Vec<ObjectFile<'d>>),
    /// A program database.
    Pdb(PdbFile<'d>),
    /// A portable program database.
    PortablePdb(PortablePdb),
}

impl<'d> ReleaseFile<'d> {
    /// Reads what identifies the file. Fails for archives and for what is no release file.
    pub fn parse(data: &'d [u8]) -> Result<Self, ArtifactError> {
        Ok(match sniff(data) {
            FileKind::MachoFat => {
                let slices = macho::slices(data)?;
                Self::Fat(slices.into_iter().map(|slice| ObjectFile::of(Headers::Macho(slice))).collect())
            }
            FileKind::Pdb => Self::Pdb(PdbFile::parse(data)?),
            FileKind::PortablePdb => Self::PortablePdb(PortablePdb::parse(data)?),
            _ => Self::Object(ObjectFile::parse(data)?),
        })
    }

    /// The debug ids of the modules that the file is of: none for a debug file that does not say it, several for a
    /// universal file.
    pub fn debug_ids(&self) -> Vec<DebugId> {
        match self {
            Self::Object(object) => object.debug_id().cloned().into_iter().collect(),
            Self::Fat(slices) => slices.iter().filter_map(|slice| slice.debug_id().cloned()).collect(),
            Self::Pdb(pdb) => vec![pdb.debug_id()],
            Self::PortablePdb(pdb) => vec![pdb.debug_id()],
        }
    }

    /// Whether the file holds text that a debugger would run.
    pub fn has_inline_debugger_scripts(&self) -> bool {
        match self {
            Self::Object(object) => object.has_inline_debugger_scripts(),
            Self::Fat(slices) => slices.iter().any(ObjectFile::has_inline_debugger_scripts),
            Self::Pdb(_) | Self::PortablePdb(_) => false,
        }
    }
}
