//! Pieces of symbol tables: a second, finer tree over the same bytes as the page tree, so that the few records behind one
//! frame can be proved by a file of a few KiB. Described in `docs/formats/frame_proof.md`.
//!
//! Nobody stores the pieces' hashes: whoever makes a proof has the table, and whoever checks one has the root.

use crate::pages::{self, Hash};

/// Bytes of a piece; the last one may be shorter.
pub const PIECE_BYTES: u32 = 256;

/// Root of the tree over the pieces of `bytes`.
pub fn root(bytes: &[u8]) -> Hash {
    pages::root(&pages::leaves(bytes, PIECE_BYTES))
}

/// The hashes that are needed beside those of the pieces `wanted` (their indexes, rising) to come to the root: subtrees without
/// a wanted leaf, from the left.
pub fn prove(leaves: &[Hash], wanted: &[u64]) -> Vec<Hash> {
    let mut nodes = Vec::new();
    collect(leaves, wanted, &mut nodes);
    nodes
}

fn collect(leaves: &[Hash], wanted: &[u64], nodes: &mut Vec<Hash>) {
    match (leaves, wanted) {
        ([], _) | ([_], [_, ..]) => {}
        (_, []) => nodes.push(pages::root(leaves)),
        _ => {
            let (left, right) = leaves.split_at(pages::split(leaves.len()));
            let at = wanted.partition_point(|index| *index < left.len() as u64);
            let (in_left, in_right) = wanted.split_at(at);
            collect(left, in_left, nodes);
            let in_right: Vec<u64> = in_right.iter().map(|index| index - left.len() as u64).collect();
            collect(right, &in_right, nodes);
        }
    }
}

/// The root of a tree of `count` leaves of which those in `known` (index and hash, rising) and the hashes of [`prove`] are
/// given. `None` unless both are exactly those that are needed. `count` must be known from elsewhere: the root alone does not
/// say how many leaves its subtrees have.
pub fn root_from(count: u64, known: &[(u64, Hash)], nodes: &[Hash]) -> Option<Hash> {
    let rising = known.is_sorted_by(|a, b| a.0 < b.0) && known.last().is_some_and(|last| last.0 < count);
    let mut nodes = nodes.iter();
    let root = rising.then(|| subtree(0, count, known, &mut nodes)).flatten()?;
    nodes.next().is_none().then_some(root)
}

/// The hash over the leaves from `first` on, `count` of them. The recursion is as deep as the tree: at most 64.
fn subtree(first: u64, count: u64, known: &[(u64, Hash)], nodes: &mut std::slice::Iter<'_, Hash>) -> Option<Hash> {
    match (count, known) {
        (_, []) => nodes.next().copied(),
        (1, [(_, hash)]) => Some(*hash),
        (0 | 1, _) => None,
        _ => {
            let left = 1u64 << (63 - (count - 1).leading_zeros());
            let middle = first.checked_add(left)?;
            let (in_left, in_right) = known.split_at(known.partition_point(|(index, _)| *index < middle));
            let left_hash = subtree(first, left, in_left, nodes)?;
            Some(pages::node_hash(&left_hash, &subtree(middle, count - left, in_right, nodes)?))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_choice_of_leaves_of_every_small_tree_is_proved() {
        for count in 1..11usize {
            let leaves: Vec<Hash> = (0..count as u8).map(|at| pages::leaf_hash(&[at])).collect();
            let root = pages::root(&leaves);
            for choice in 1u32..1 << count {
                let wanted: Vec<u64> = (0..count as u64).filter(|at| choice >> at & 1 == 1).collect();
                let known: Vec<(u64, Hash)> = wanted.iter().map(|at| (*at, leaves[*at as usize])).collect();
                let nodes = prove(&leaves, &wanted);
                assert_eq!(root_from(count as u64, &known, &nodes), Some(root), "{wanted:?} of {count}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_changed_proof_is_refused(
            bytes in prop::collection::vec(any::<u8>(), 300..20_000),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
            at in any::<prop::sample::Index>(),
        ) {
            let leaves = pages::leaves(&bytes, PIECE_BYTES);
            let count = leaves.len() as u64;
            let wanted: std::collections::BTreeSet<u64> = picks.iter().map(|pick| pick.index(leaves.len()) as u64).collect();
            let wanted: Vec<u64> = wanted.into_iter().collect();
            let known: Vec<(u64, Hash)> = wanted.iter().map(|at| (*at, leaves[*at as usize])).collect();
            let nodes = prove(&leaves, &wanted);
            let expected = Some(root(&bytes));
            prop_assert_eq!(root_from(count, &known, &nodes), expected);

            let mut other = known.clone();
            let changed = at.index(other.len());
            other[changed].1.0[0] ^= 1;
            prop_assert_ne!(root_from(count, &other, &nodes), expected);
            let mut longer = nodes.clone();
            longer.push(leaves[0]);
            prop_assert_eq!(root_from(count, &known, &longer), None);
            if !nodes.is_empty() {
                let mut other = nodes.clone();
                other[at.index(nodes.len())].0[31] ^= 1;
                prop_assert_ne!(root_from(count, &known, &other), expected);
                prop_assert_eq!(root_from(count, &known, &nodes[1..]), None);
            }
            let mut twice = known.clone();
            twice.push(known[0]);
            prop_assert_eq!(root_from(count, &twice, &nodes), None);
        }

        #[test]
        fn no_proof_makes_it_fail_otherwise(count in any::<u64>(), known in prop::collection::vec(any::<u64>(), 0..8), nodes in 0usize..70) {
            let known: Vec<(u64, Hash)> = known.into_iter().map(|at| (at, Hash([1; 32]))).collect();
            root_from(count, &known, &vec![Hash([7; 32]); nodes]);
        }
    }
}
