//! Portable program databases (.NET).

use crate::ArtifactError;

/// A portable program database.
#[derive(Debug)]
pub struct PortablePdb {}

impl PortablePdb {
    /// Reads the stream that identifies it.
    pub fn parse(data: &[u8]) -> Result<Self, ArtifactError> {
        Err(ArtifactError::UnknownFormat {
            found: format!("a portable PDB of {} bytes, which is not read yet", data.len()),
        })
    }
}
