//! A file of consistency proofs: that a log's larger trees begin with its smaller ones.
//!
//! It holds hashes alone. The two roots come from checkpoints that the log signed: one that was seen
//! before, and the seal's.

use serde::{Deserialize, Serialize};

use crate::encoding::{Hash, hash_from_base64, to_base64};

/// `schema` of the file.
pub const CONSISTENCY_SCHEMA: &str = "symseal.consistency.v1";
/// The largest file that is read, in bytes.
pub const CONSISTENCY_LIMIT: usize = 1024 * 1024;
/// The most proofs that are read of one file.
const MAX_PROOFS: usize = 256;
/// The most hashes of one proof: one for each level of a tree, and one to start with.
const MAX_HASHES: usize = 65;

/// One proof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsistencyProof {
    /// The log's origin.
    pub origin: String,
    /// Size of the smaller tree.
    pub from: u64,
    /// Size of the larger.
    pub to: u64,
    /// RFC 9162, section 2.1.4.1.
    pub hashes: Vec<Hash>,
}

/// The bytes are no file of consistency proofs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected the JSON of consistency proofs (schema {CONSISTENCY_SCHEMA}): {reason}")]
pub struct ConsistencyFileError {
    reason: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileJson {
    schema: String,
    proofs: Vec<ProofJson>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProofJson {
    origin: String,
    from: u64,
    to: u64,
    hashes: Vec<String>,
}

impl ConsistencyProof {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConsistencyFileError`].
    pub fn parse_file(json: &[u8]) -> Result<Vec<Self>, ConsistencyFileError> {
        let refused = |reason: String| ConsistencyFileError { reason };
        if json.len() > CONSISTENCY_LIMIT {
            return Err(refused(format!("at most {CONSISTENCY_LIMIT} bytes, found {}", json.len())));
        }
        let file: FileJson = serde_json::from_slice(json).map_err(|error| refused(error.to_string()))?;
        if file.schema != CONSISTENCY_SCHEMA {
            return Err(refused(format!("found schema {:?}", file.schema.chars().take(80).collect::<String>())));
        }
        if file.proofs.len() > MAX_PROOFS {
            return Err(refused(format!("at most {MAX_PROOFS} proofs, found {}", file.proofs.len())));
        }
        let read = |proof: ProofJson| {
            let hashes: Option<Vec<Hash>> = proof.hashes.iter().map(|hash| hash_from_base64(hash)).collect();
            let hashes = hashes.filter(|hashes| hashes.len() <= MAX_HASHES);
            let hashes = hashes.ok_or_else(|| refused(format!("at most {MAX_HASHES} hashes of 32 bytes in base64")))?;
            Ok(Self { origin: proof.origin, from: proof.from, to: proof.to, hashes })
        };
        file.proofs.into_iter().map(read).collect()
    }

    /// The bytes of a file.
    #[must_use]
    pub fn to_file(proofs: &[Self]) -> Vec<u8> {
        let proof = |proof: &Self| ProofJson {
            origin: proof.origin.clone(),
            from: proof.from,
            to: proof.to,
            hashes: proof.hashes.iter().map(|hash| to_base64(hash)).collect(),
        };
        crate::canonical_json(&FileJson {
            schema: CONSISTENCY_SCHEMA.into(),
            proofs: proofs.iter().map(proof).collect(),
        })
    }
}
