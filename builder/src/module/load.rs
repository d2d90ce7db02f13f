//! A module's files in memory, and as what they are read.

use symseal_artifact::{ArtifactError, ObjectFile, PdbFile, ReleaseFile};
use symseal_bundle::{Digest, LayoutDir};

use crate::error::BuildError;
use crate::inputs::{FileBytes, InputFile};
use crate::pairing::{Module, Part};

/// An input, and its bytes.
pub(super) struct Loaded<'f> {
    pub(super) file: &'f InputFile,
    pub(super) bytes: FileBytes,
}

/// All files of a module whose bytes are read. The other files of a dSYM bundle are not among them.
pub(super) struct Files<'f> {
    loaded: Vec<Loaded<'f>>,
}

impl<'f> Files<'f> {
    pub(super) fn load(module: &Module<'f>, layout: Option<&LayoutDir>) -> Result<Self, BuildError> {
        let files = module.files().into_iter().filter(|file| !module.is_dsym_member(file));
        let loaded =
            files.map(|file| Ok(Loaded { file, bytes: file.read(layout)? })).collect::<Result<_, BuildError>>()?;
        Ok(Self { loaded })
    }

    pub(super) fn find(&self, digest: &Digest) -> Option<&Loaded<'f>> {
        self.loaded.iter().find(|loaded| loaded.file.digest() == *digest)
    }

    pub(super) fn all(&self) -> &[Loaded<'f>] {
        &self.loaded
    }

    /// The object file of a part; none where the part is of another kind.
    pub(super) fn object(&self, part: Part<'_>) -> Result<Option<ObjectFile<'_>>, BuildError> {
        let Some(loaded) = self.find(&part.file.digest()) else { return Ok(None) };
        match ReleaseFile::parse(&loaded.bytes).map_err(|source| error(part.file, source))? {
            ReleaseFile::Object(object) => Ok(Some(object)),
            ReleaseFile::Fat(slices) => Ok(slices.into_iter().nth(part.slice)),
            ReleaseFile::Pdb(_) | ReleaseFile::PortablePdb(_) => Ok(None),
        }
    }

    /// The program database of a part; none where the part is of another kind. Portable ones have no functions of machine
    /// code, and are not read here.
    pub(super) fn pdb(&self, part: Part<'_>) -> Result<Option<PdbFile<'_>>, BuildError> {
        let Some(loaded) = self.find(&part.file.digest()).filter(|_| part.pdb().is_some_and(|pdb| !pdb.is_portable))
        else {
            return Ok(None);
        };
        PdbFile::parse(&loaded.bytes).map(Some).map_err(|source| error(part.file, source))
    }
}

fn error(file: &InputFile, source: ArtifactError) -> BuildError {
    BuildError::Artifact { place: file.place.clone(), source }
}
