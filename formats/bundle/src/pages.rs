//! Page trees: an RFC 6962 Merkle tree over the pages of a file, so that any page can be verified alone.
//!
//! A page is `page_size` bytes of the file, the last one what is left; it is not padded. A leaf is
//! SHA-256(0x00 ‖ page), an inner node SHA-256(0x01 ‖ left ‖ right). A tree of n > 1 leaves is split at the largest power
//! of two below n. The root of an empty file is SHA-256 of nothing.

use std::borrow::Cow;
use std::fmt;
use std::io::Read;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::digest::{self, Digest};
use crate::index::FileRole;

/// Bytes a page of tables and of JSON: what one lookup touches.
pub const TABLE_PAGE: u32 = 16 * 1024;

/// Bytes a page of debug files and executables.
pub const DEBUG_FILE_PAGE: u32 = 64 * 1024;

/// No proof has more hashes than a tree of 2^64 leaves has levels.
pub const MAX_PROOF_HASHES: usize = 64;

/// The page size for files of this role.
pub const fn page_size_of(role: FileRole) -> u32 {
    match role {
        FileRole::Debuginfo | FileRole::Executable | FileRole::SplitDwarf | FileRole::DsymMember => DEBUG_FILE_PAGE,
        FileRole::SymbolTable | FileRole::UnwindTable | FileRole::ModuleIndex | FileRole::PageHashes => TABLE_PAGE,
    }
}

/// A hash of a page tree: of a page, of an inner node or of the root. 64 lower-case hex digits in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        digest::bytes_of_hex(&text)
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("expected 64 lower-case hex digits of a page tree's hash"))
    }
}

/// Fills `into` with the bytes of a file from `offset` on, out of pages of `page_size` bytes that are asked for by their
/// index.
///
/// # Errors
/// The index of the first page that is not there, or ends too early.
pub fn assemble<'p>(
    page_size: u32,
    offset: u64,
    into: &mut [u8],
    mut page: impl FnMut(u64) -> Option<&'p [u8]>,
) -> Result<(), u64> {
    let size = u64::from(page_size).max(1);
    let (mut index, mut inside) = (offset / size, (offset % size) as usize);
    let mut rest = into;
    while !rest.is_empty() {
        let bytes = page(index).and_then(|page| page.get(inside..)).filter(|bytes| !bytes.is_empty()).ok_or(index)?;
        let len = bytes.len().min(rest.len());
        let (to, behind) = rest.split_at_mut_checked(len).ok_or(index)?;
        to.copy_from_slice(bytes.get(..len).ok_or(index)?);
        rest = behind;
        (index, inside) = (index.checked_add(1).ok_or(index)?, 0);
    }
    Ok(())
}

/// The hash of one page.
pub fn leaf_hash(page: &[u8]) -> Hash {
    Hash(Sha256::new().chain_update([0]).chain_update(page).finalize().into())
}

/// The hash of an inner node.
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Hash(Sha256::new().chain_update([1]).chain_update(left.0).chain_update(right.0).finalize().into())
}

/// The hashes of all pages of `bytes`, in order. `page_size` 0 gives none.
pub fn leaves(bytes: &[u8], page_size: u32) -> Vec<Hash> {
    if page_size == 0 {
        return Vec::new();
    }
    bytes.chunks(page_size as usize).map(leaf_hash).collect()
}

/// How many pages a file of `size` bytes has.
pub const fn page_count(size: u64, page_size: u32) -> u64 {
    if page_size == 0 { 0 } else { size.div_ceil(page_size as u64) }
}

/// The root over the hashes of all pages.
pub fn root(leaves: &[Hash]) -> Hash {
    // Complete subtrees from the left, each twice as large as a later one at least: the usual binary counter.
    let mut stack: Vec<(u32, Hash)> = Vec::with_capacity(64);
    for leaf in leaves {
        let mut node = (0, *leaf);
        while let Some((level, left)) = stack.pop_if(|(level, _)| *level == node.0) {
            node = (level + 1, node_hash(&left, &node.1));
        }
        stack.push(node);
    }
    let folded = stack.into_iter().map(|(_, hash)| hash).rev().reduce(|right, left| node_hash(&left, &right));
    folded.unwrap_or_else(|| Hash(Sha256::digest(b"").into()))
}

/// What is known of a file once it was read through once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// Bytes.
    pub size: u64,
    /// Digest of the whole.
    pub digest: Digest,
    /// Hashes of the pages.
    pub leaves: Vec<Hash>,
    /// Root of the page tree.
    pub root: Hash,
}

/// Digest and page tree of bytes in memory.
pub fn measure(bytes: &[u8], page_size: u32) -> Measured {
    let leaves = leaves(bytes, page_size);
    Measured { size: bytes.len() as u64, digest: Digest::of(bytes), root: root(&leaves), leaves }
}

/// Digest and page tree of everything that `reader` gives, in one pass.
pub fn measure_reader(mut reader: impl Read, page_size: u32) -> std::io::Result<Measured> {
    let mut whole = digest::Hasher::default();
    let mut leaves = Vec::new();
    let mut page = Vec::with_capacity(page_size as usize);
    loop {
        page.clear();
        reader.by_ref().take(u64::from(page_size)).read_to_end(&mut page)?;
        if page.is_empty() {
            break;
        }
        whole.update(&page);
        leaves.push(leaf_hash(&page));
    }
    let (digest, size) = whole.finish();
    Ok(Measured { size, digest, root: root(&leaves), leaves })
}

/// The hashes that lead from page `index` to the root, deepest first: RFC 6962's audit path. `None` where there is no such page.
pub fn proof(leaves: &[Hash], index: u64) -> Option<Vec<Hash>> {
    let mut at = usize::try_from(index).ok()?;
    let mut rest = leaves;
    rest.get(at)?;
    let mut path = Vec::new();
    while rest.len() > 1 {
        let (left, right) = rest.split_at_checked(split(rest.len()))?;
        if at < left.len() {
            path.push(root(right));
            rest = left;
        } else {
            path.push(root(left));
            at -= left.len();
            rest = right;
        }
    }
    path.reverse();
    Some(path)
}

/// The largest power of two below `len`, which is at least 2.
pub(crate) fn split(len: usize) -> usize {
    1 << (usize::BITS - 1 - (len - 1).leading_zeros())
}

/// Whether `page` is page `index` of a file of `file_size` bytes with this page tree.
///
/// The file's size comes from the index that also gave `root`, so it is known how long each page must be.
pub fn verify(root: &Hash, file_size: u64, page_size: u32, index: u64, page: &[u8], proof: &[Hash]) -> bool {
    let count = page_count(file_size, page_size);
    let Some(start) = index.checked_mul(u64::from(page_size)) else { return false };
    if index >= count || page.len() as u64 != u64::from(page_size).min(file_size.saturating_sub(start)) {
        return false;
    }
    fold(leaf_hash(page), index, count, proof).as_ref() == Some(root)
}

/// The root that `leaf` at `index` of `count` leaves and its audit path give (RFC 9162, 2.1.3.2); `None` where the path's length is wrong.
pub(crate) fn fold(leaf: Hash, index: u64, count: u64, proof: &[Hash]) -> Option<Hash> {
    let (mut node, mut last) = (index, count.checked_sub(1)?);
    let mut hash = leaf;
    for sibling in proof {
        if last == 0 {
            return None;
        }
        if node & 1 == 1 || node == last {
            hash = node_hash(sibling, &hash);
            // The right edge: levels where this node has no right sibling are skipped.
            while node & 1 == 0 && node != 0 {
                node >>= 1;
                last >>= 1;
            }
        } else {
            hash = node_hash(&hash, sibling);
        }
        node >>= 1;
        last >>= 1;
    }
    (last == 0).then_some(hash)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 6962, 2.1, word by word.
    fn root_by_definition(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => Hash(Sha256::digest(b"").into()),
            [leaf] => *leaf,
            _ => {
                let mut k = 1;
                while k * 2 < leaves.len() {
                    k *= 2;
                }
                node_hash(&root_by_definition(&leaves[..k]), &root_by_definition(&leaves[k..]))
            }
        }
    }

    #[test]
    fn roots_are_those_of_the_rfc_for_every_small_tree() {
        for count in 0..70u8 {
            let leaves: Vec<Hash> = (0..count).map(|at| leaf_hash(&[at])).collect();
            assert_eq!(root(&leaves), root_by_definition(&leaves), "{count} leaves");
        }
    }

    #[test]
    fn every_page_of_every_small_tree_is_proved_and_no_other_is() {
        for count in 1..40u64 {
            let bytes: Vec<u8> = (0..count * 4 - 1).map(|at| at as u8).collect();
            let leaves = leaves(&bytes, 4);
            let root = root(&leaves);
            for (index, page) in bytes.chunks(4).enumerate() {
                let index = index as u64;
                let path = proof(&leaves, index).unwrap();
                assert!(verify(&root, bytes.len() as u64, 4, index, page, &path));
                assert!(!verify(&root, bytes.len() as u64, 4, index + 1, page, &path));
            }
            assert_eq!(proof(&leaves, count), None);
        }
    }

    #[test]
    fn the_length_of_the_last_page_is_part_of_the_proof() {
        let leaves = leaves(&[1, 2, 3, 4, 5], 4);
        let path = proof(&leaves, 1).unwrap();
        assert!(verify(&root(&leaves), 5, 4, 1, &[5], &path));
        assert!(!verify(&root(&leaves), 6, 4, 1, &[5], &path));
        assert!(!verify(&root(&leaves), 5, 4, 1, &[5, 0], &path));
    }

    proptest! {
        #[test]
        fn a_changed_page_path_or_index_is_refused(bytes in prop::collection::vec(any::<u8>(), 1..2000), at in any::<u64>(), flip in any::<u64>()) {
            let size = bytes.len() as u64;
            let all = leaves(&bytes, 16);
            let index = at % all.len() as u64;
            let page = &bytes.chunks(16).nth(index as usize).unwrap();
            let path = proof(&all, index).unwrap();
            prop_assert!(verify(&root(&all), size, 16, index, page, &path));

            let mut other = page.to_vec();
            let bit = flip as usize % (other.len() * 8);
            other[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(!verify(&root(&all), size, 16, index, &other, &path));

            let mut longer = path.clone();
            longer.push(all[0]);
            prop_assert!(!verify(&root(&all), size, 16, index, page, &longer));
            if let Some((_, shorter)) = path.split_last() {
                prop_assert!(!verify(&root(&all), size, 16, index, page, shorter));
                let mut wrong = path.clone();
                let hash = flip as usize % wrong.len();
                wrong[hash].0[0] ^= 1;
                prop_assert!(!verify(&root(&all), size, 16, index, page, &wrong));
            }
        }

        #[test]
        fn a_stream_is_measured_as_the_bytes_are(bytes in prop::collection::vec(any::<u8>(), 0..500), page in 1u32..70) {
            prop_assert_eq!(measure_reader(&bytes[..], page).unwrap(), measure(&bytes, page));
        }

        #[test]
        fn no_proof_makes_the_verifier_fail_otherwise(size in any::<u64>(), page_size in any::<u32>(), index in any::<u64>(), count in 0usize..70) {
            let proof = vec![Hash([7; 32]); count];
            prop_assert!(!verify(&Hash([1; 32]), size, page_size, index, b"page", &proof));
        }
    }
}
