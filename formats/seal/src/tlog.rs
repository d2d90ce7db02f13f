//! RFC 6962 trees: hashes, roots and inclusion proofs.

use crate::encoding::{Hash, sha256};

/// The most hashes that an inclusion proof can have: a tree has at most 2^64 leaves.
pub const MAX_PROOF_HASHES: usize = 64;

/// The hash of a leaf: `SHA-256(0x00 ‖ entry)`.
#[must_use]
pub fn leaf_hash(entry: &[u8]) -> Hash {
    let mut bytes = Vec::with_capacity(entry.len() + 1);
    bytes.push(0x00);
    bytes.extend_from_slice(entry);
    sha256(&bytes)
}

/// The hash of an inner node: `SHA-256(0x01 ‖ left ‖ right)`.
#[must_use]
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut bytes = [0x01_u8; 65];
    let (front, back) = bytes.split_at_mut(33);
    front.iter_mut().skip(1).zip(left).for_each(|(to, from)| *to = *from);
    back.copy_from_slice(right);
    sha256(&bytes)
}

/// The root of a tree without leaves: SHA-256 of nothing.
#[must_use]
pub fn empty_root() -> Hash {
    sha256(b"")
}

/// An inclusion proof does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InclusionError {
    /// The leaf would lie outside the tree.
    #[error("expected a leaf index below the tree size {size}, found {index}")]
    Index {
        /// The index.
        index: u64,
        /// The tree's size.
        size: u64,
    },
    /// Too few or too many hashes.
    #[error("expected exactly {expected} hashes in the inclusion proof, found {found}")]
    HashCount {
        /// What index and size ask for.
        expected: usize,
        /// What was given.
        found: usize,
    },
    /// The hashes lead elsewhere.
    #[error("expected the root {}, found {}", crate::encoding::to_base64(expected), crate::encoding::to_base64(found))]
    Root {
        /// The root to reach.
        expected: Hash,
        /// The root reached.
        found: Hash,
    },
}

/// Heights below which the path turns by the index's bits, and the number of nodes left of the rest.
fn path_shape(index: u64, size: u64) -> (u32, u32) {
    let inner = u64::BITS - (index ^ (size.wrapping_sub(1))).leading_zeros();
    let border = index.checked_shr(inner).unwrap_or(0).count_ones();
    (inner, border)
}

/// How many hashes the inclusion proof of leaf `index` in a tree of `size` leaves has; `None` if the
/// leaf is not in the tree.
#[must_use]
pub fn inclusion_hash_count(index: u64, size: u64) -> Option<usize> {
    let (inner, border) = (index < size).then(|| path_shape(index, size))?;
    usize::try_from(inner + border).ok()
}

/// The root that an inclusion proof leads to.
///
/// # Errors
/// [`InclusionError::Index`] or [`InclusionError::HashCount`].
pub fn root_from_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash]) -> Result<Hash, InclusionError> {
    let expected = inclusion_hash_count(index, size).ok_or(InclusionError::Index { index, size })?;
    if proof.len() != expected {
        return Err(InclusionError::HashCount { expected, found: proof.len() });
    }
    let (inner, _) = path_shape(index, size);
    let mut hash = *leaf;
    for (height, sibling) in (0_u32..).zip(proof) {
        // Above the inner part the node is the last of its row: its sibling is always on the left.
        let is_right = height >= inner || index.checked_shr(height).unwrap_or(0) & 1 == 1;
        hash = if is_right { node_hash(sibling, &hash) } else { node_hash(&hash, sibling) };
    }
    Ok(hash)
}

/// Whether the proof leads from the leaf to the root, with exactly the expected number of hashes.
///
/// # Errors
/// [`InclusionError`] says what does not hold.
pub fn verify_inclusion(leaf: &Hash, index: u64, size: u64, proof: &[Hash], root: &Hash) -> Result<(), InclusionError> {
    let found = root_from_inclusion(leaf, index, size, proof)?;
    if found == *root { Ok(()) } else { Err(InclusionError::Root { expected: *root, found }) }
}

/// Where the hashes of complete subtrees come from: memory, or tiles on a disk.
pub trait Nodes {
    /// Why a hash cannot be given.
    type Error;

    /// The root of the complete subtree over leaves `index·2^height … (index+1)·2^height − 1`.
    ///
    /// # Errors
    /// As the source says.
    fn node(&mut self, height: u32, index: u64) -> Result<Hash, Self::Error>;
}

/// The largest power of two below `count`, as an exponent. `count` is at least 2.
fn split_height(count: u64) -> u32 {
    u64::BITS - 1 - (count.saturating_sub(1)).leading_zeros()
}

/// The root over leaves `start … start+count−1`; `start` is a multiple of the largest complete subtree.
fn range_root<N: Nodes>(nodes: &mut N, start: u64, count: u64) -> Result<Hash, N::Error> {
    if count == 0 {
        return Ok(empty_root());
    }
    if count.is_power_of_two() {
        let height = count.trailing_zeros();
        return nodes.node(height, start >> height);
    }
    let height = split_height(count);
    let left = 1_u64 << height;
    let right = range_root(nodes, start + left, count - left)?;
    Ok(node_hash(&nodes.node(height, start >> height)?, &right))
}

/// The root of the first `size` leaves.
///
/// # Errors
/// As the source of hashes says.
pub fn root<N: Nodes>(nodes: &mut N, size: u64) -> Result<Hash, N::Error> {
    range_root(nodes, 0, size)
}

/// The inclusion proof of leaf `index` in the tree of the first `size` leaves, lowest sibling first;
/// empty if the leaf is not in the tree.
///
/// # Errors
/// As the source of hashes says.
pub fn inclusion_proof<N: Nodes>(nodes: &mut N, index: u64, size: u64) -> Result<Vec<Hash>, N::Error> {
    let mut proof = Vec::new();
    if index >= size {
        return Ok(proof);
    }
    // RFC 6962, section 2.1.1, walked from the root downwards.
    let (mut start, mut count) = (0_u64, size);
    while count > 1 {
        let left = 1_u64 << split_height(count);
        if index - start < left {
            proof.push(range_root(nodes, start + left, count - left)?);
            count = left;
        } else {
            proof.push(range_root(nodes, start, left)?);
            start += left;
            count -= left;
        }
    }
    proof.reverse();
    Ok(proof)
}
