//! A release file, whatever it is.

use crate::headers::Headers;
use crate::macho;
use crate::{ArtifactError, FileKind, ObjectFile, PdbFile, PortablePdb, sniff};

/// One release file, parsed as far as what identifies it.
#[derive(Debug)]
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
}
