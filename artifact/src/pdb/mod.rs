//! Program databases.

use crate::ArtifactError;

/// A program database.
#[derive(Debug)]
pub struct PdbFile<'d> {
    data: &'d [u8],
}

impl<'d> PdbFile<'d> {
    /// Reads the streams that identify it.
    pub fn parse(data: &'d [u8]) -> Result<Self, ArtifactError> {
        let file = Self { data };
        Err(ArtifactError::UnknownFormat {
            found: format!("a PDB file of {} bytes, which is not read yet", file.data.len()),
        })
    }
}
