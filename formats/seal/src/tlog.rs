//! RFC 6962 and 9162 trees: hashes, roots, inclusion and consistency proofs.

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

/// A consistency proof does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConsistencyError {
    /// The first tree is the larger one.
    #[error("expected a first tree of at most {second} entries, found {first}")]
    Sizes {
        /// Size of the first tree.
        first: u64,
        /// Size of the second.
        second: u64,
    },
    /// Too few or too many hashes.
    #[error("expected the hashes that a proof from {first} to {second} entries has, found {found}")]
    HashCount {
        /// Size of the first tree.
        first: u64,
        /// Size of the second.
        second: u64,
        /// How many hashes were given.
        found: usize,
    },
    /// The hashes lead to another root of one of the trees.
    #[error(
        "expected the root {} at {size} entries, found {}",
        crate::encoding::to_base64(expected),
        crate::encoding::to_base64(found)
    )]
    Root {
        /// The tree's size.
        size: u64,
        /// Its root.
        expected: Hash,
        /// The root reached.
        found: Hash,
    },
}

/// Whether the tree of `second` entries with `second_root` begins with the tree of `first` entries with
/// `first_root` (RFC 9162, section 2.1.4.2).
///
/// # Errors
/// [`ConsistencyError`] says what does not hold.
pub fn verify_consistency(first: (u64, &Hash), second: (u64, &Hash), proof: &[Hash]) -> Result<(), ConsistencyError> {
    let ((first, first_root), (second, second_root)) = (first, second);
    let wrong_count = || ConsistencyError::HashCount { first, second, found: proof.len() };
    let compare = |size, expected: &Hash, found: Hash| {
        if *expected == found { Ok(()) } else { Err(ConsistencyError::Root { size, expected: *expected, found }) }
    };
    if first > second {
        return Err(ConsistencyError::Sizes { first, second });
    }
    if first == second || first == 0 {
        if !proof.is_empty() {
            return Err(wrong_count());
        }
        // Every tree begins with the empty one.
        return compare(first, first_root, if first == 0 { empty_root() } else { *second_root });
    }
    // Where the first tree is complete, its root is the proof's first hash and left out.
    let (start, rest) = if first.is_power_of_two() {
        (*first_root, proof)
    } else {
        let (start, rest) = proof.split_first().ok_or_else(wrong_count)?;
        (*start, rest)
    };
    let (mut node, mut last) = (first - 1, second - 1);
    let shift = node.trailing_ones();
    node >>= shift;
    last >>= shift;
    let (mut first_found, mut second_found) = (start, start);
    for hash in rest {
        if last == 0 {
            return Err(wrong_count());
        }
        if node & 1 == 1 || node == last {
            first_found = node_hash(hash, &first_found);
            second_found = node_hash(hash, &second_found);
            if node & 1 == 0 {
                // 64 where the node is the leftmost one.
                let shift = node.trailing_zeros();
                node = node.checked_shr(shift).unwrap_or(0);
                last = last.checked_shr(shift).unwrap_or(0);
            }
        } else {
            second_found = node_hash(&second_found, hash);
        }
        node >>= 1;
        last >>= 1;
    }
    if last != 0 {
        return Err(wrong_count());
    }
    compare(first, first_root, first_found)?;
    compare(second, second_root, second_found)
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

/// The consistency proof from the first `first` leaves to the first `second` (RFC 9162, section 2.1.4.1);
/// empty where none is needed or none exists.
///
/// # Errors
/// As the source of hashes says.
pub fn consistency_proof<N: Nodes>(nodes: &mut N, first: u64, second: u64) -> Result<Vec<Hash>, N::Error> {
    let mut proof = Vec::new();
    if first == 0 || first >= second {
        return Ok(proof);
    }
    let (mut start, mut count, mut wanted) = (0_u64, second, first);
    // Walked from the root downwards, until the part that is wanted is a whole subtree.
    while wanted != count {
        let left = 1_u64 << split_height(count);
        if wanted <= left {
            proof.push(range_root(nodes, start + left, count - left)?);
            count = left;
        } else {
            proof.push(range_root(nodes, start, left)?);
            start += left;
            count -= left;
            wanted -= left;
        }
    }
    // The subtree's own hash, unless it is the whole first tree, whose root the verifier has.
    if start != 0 {
        proof.push(range_root(nodes, start, count)?);
    }
    proof.reverse();
    Ok(proof)
}
