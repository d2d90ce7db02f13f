//! Roots and inclusion proofs against the definitions of RFC 6962, written out once more.

use proptest::prelude::*;
use symseal_seal::Hash;
use symseal_seal::tlog::{
    InclusionError, Nodes, consistency_proof, empty_root, inclusion_hash_count, inclusion_proof, leaf_hash, node_hash,
    root, root_from_inclusion, verify_consistency, verify_inclusion,
};

/// Leaves in memory.
struct Leaves(Vec<Hash>);

/// RFC 6962, section 2.1: the Merkle tree hash.
fn tree_hash(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => empty_root(),
        [leaf] => *leaf,
        _ => {
            let k = leaves.len().next_power_of_two() / 2;
            node_hash(&tree_hash(&leaves[..k]), &tree_hash(&leaves[k..]))
        }
    }
}

/// RFC 6962, section 2.1.1: the Merkle audit path.
fn audit_path(index: usize, leaves: &[Hash]) -> Vec<Hash> {
    if leaves.len() <= 1 {
        return Vec::new();
    }
    let k = leaves.len().next_power_of_two() / 2;
    let (mut path, sibling) = if index < k {
        (audit_path(index, &leaves[..k]), tree_hash(&leaves[k..]))
    } else {
        (audit_path(index - k, &leaves[k..]), tree_hash(&leaves[..k]))
    };
    path.push(sibling);
    path
}

impl Nodes for Leaves {
    type Error = String;

    fn node(&mut self, height: u32, index: u64) -> Result<Hash, String> {
        let start = usize::try_from(index << height).unwrap();
        let leaves = self.0.get(start..start + (1 << height)).ok_or("an incomplete subtree was asked for")?;
        Ok(tree_hash(leaves))
    }
}

fn leaves(count: usize) -> Vec<Hash> {
    (0..count).map(|n| leaf_hash(&n.to_le_bytes())).collect()
}

#[test]
fn the_known_roots_of_certificate_transparency_are_found() {
    // The reference inputs of the RFC's own implementation.
    let inputs: [&[u8]; 8] = [b"", b"\x00", b"\x10", b" !", b"01", b"@ABC", b"PQRSTUVW", b"`abcdefghijklmno"];
    let roots = [
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    let mut nodes = Leaves(inputs.iter().map(|input| leaf_hash(input)).collect());
    for (size, expected) in (1..).zip(roots) {
        assert_eq!(symseal_seal::encoding::to_hex(&root(&mut nodes, size).unwrap()), expected);
    }
    assert_eq!(root(&mut nodes, 0).unwrap(), empty_root());
}

#[test]
fn every_proof_of_small_trees_is_the_audit_path_and_verifies() {
    for size in 1..=70 {
        let all = leaves(size);
        let expected_root = tree_hash(&all);
        let mut nodes = Leaves(all.clone());
        assert_eq!(root(&mut nodes, size as u64).unwrap(), expected_root);
        for index in 0..size {
            let proof = inclusion_proof(&mut nodes, index as u64, size as u64).unwrap();
            assert_eq!(proof, audit_path(index, &all), "{index} of {size}");
            assert_eq!(inclusion_hash_count(index as u64, size as u64), Some(proof.len()));
            verify_inclusion(&all[index], index as u64, size as u64, &proof, &expected_root).unwrap();
            // The same proof for another place in the tree, or another tree, leads elsewhere.
            for other in (0..size).filter(|other| *other != index) {
                let found = root_from_inclusion(&all[index], other as u64, size as u64, &proof);
                assert_ne!(found.ok(), Some(expected_root), "{index} as {other} of {size}");
            }
        }
    }
}

#[test]
fn a_leaf_outside_the_tree_has_no_proof() {
    assert_eq!(inclusion_hash_count(0, 0), None);
    assert_eq!(inclusion_hash_count(5, 5), None);
    assert_eq!(inclusion_hash_count(u64::MAX, u64::MAX), None);
    assert_eq!(inclusion_hash_count(u64::MAX - 1, u64::MAX), Some(63));
    assert_eq!(inclusion_hash_count(0, u64::MAX), Some(64));
    assert_eq!(inclusion_hash_count(0, 1), Some(0));
    let found = verify_inclusion(&[0; 32], 3, 3, &[], &[0; 32]);
    assert_eq!(found, Err(InclusionError::Index { index: 3, size: 3 }));
    assert_eq!(inclusion_proof(&mut Leaves(leaves(3)), 3, 3).unwrap(), Vec::<Hash>::new());
}

proptest! {
    #[test]
    fn a_changed_proof_never_verifies(
        size in 1_usize..400, place in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>(), bit in 0_u8..8,
    ) {
        let all = leaves(size);
        let index = place.index(size);
        let mut nodes = Leaves(all.clone());
        let root = root(&mut nodes, size as u64).unwrap();
        let proof = inclusion_proof(&mut nodes, index as u64, size as u64).unwrap();
        let verify = |leaf: &Hash, proof: &[Hash], root: &Hash| verify_inclusion(leaf, index as u64, size as u64, proof, root);
        prop_assert_eq!(verify(&all[index], &proof, &root), Ok(()));
        let mut bytes: Vec<u8> = all[index].iter().chain(proof.as_flattened()).chain(&root).copied().collect();
        let position = flip.index(bytes.len());
        bytes[position] ^= 1 << bit;
        let (changed, _) = bytes.as_chunks::<32>();
        let [leaf, middle @ .., root_] = changed else { unreachable!() };
        let is_root_error = matches!(verify(leaf, middle, root_), Err(InclusionError::Root { .. }));
        prop_assert!(is_root_error);
        let mut longer = proof.clone();
        longer.push([0; 32]);
        let expected = InclusionError::HashCount { expected: proof.len(), found: proof.len() + 1 };
        prop_assert_eq!(verify(&all[index], &longer, &root), Err(expected));
        if let Some((_, shorter)) = proof.split_last() {
            let expected = InclusionError::HashCount { expected: proof.len(), found: proof.len() - 1 };
            prop_assert_eq!(verify(&all[index], shorter, &root), Err(expected));
        }
    }

    #[test]
    fn the_number_of_hashes_is_that_of_the_path(size in 1_u64..u64::MAX, place in any::<u64>()) {
        let index = place % size;
        // The path's length by the definition: one hash for each split on the way down.
        let (mut at, mut count, mut hashes) = (index, size, 0);
        while count > 1 {
            let k = 1_u64 << (63 - (count - 1).leading_zeros());
            if at < k { count = k } else { at -= k; count -= k }
            hashes += 1;
        }
        prop_assert_eq!(inclusion_hash_count(index, size), Some(hashes));
    }
}

/// RFC 9162, section 2.1.4.1: the consistency proof, as it is defined there.
fn subproof(first: usize, leaves: &[Hash], whole: bool) -> Vec<Hash> {
    if first == leaves.len() {
        return if whole { Vec::new() } else { vec![tree_hash(leaves)] };
    }
    let k = leaves.len().next_power_of_two() / 2;
    let (mut proof, other) = if first <= k {
        (subproof(first, &leaves[..k], whole), tree_hash(&leaves[k..]))
    } else {
        (subproof(first - k, &leaves[k..], false), tree_hash(&leaves[..k]))
    };
    proof.push(other);
    proof
}

#[test]
fn every_consistency_proof_of_small_trees_is_the_defined_one_and_holds_for_nothing_else() {
    let all = leaves(33);
    let mut nodes = Leaves(all.clone());
    let forged = leaf_hash(b"forged");
    for second in 1..=all.len() {
        let second_root = tree_hash(&all[..second]);
        for first in 0..=second {
            let first_root = tree_hash(&all[..first]);
            let proof = consistency_proof(&mut nodes, first as u64, second as u64).unwrap();
            if first > 0 {
                assert_eq!(proof, subproof(first, &all[..second], true), "{first} {second}");
            }
            let verify = |first_root: &Hash, second_root: &Hash, proof: &[Hash]| {
                verify_consistency((first as u64, first_root), (second as u64, second_root), proof)
            };
            assert_eq!(verify(&first_root, &second_root, &proof), Ok(()), "{first} {second}");
            assert!(verify(&forged, &second_root, &proof).is_err(), "{first} {second}");
            if first > 0 {
                assert!(verify(&first_root, &forged, &proof).is_err(), "{first} {second}");
            }
            for place in 0..proof.len() {
                let mut changed = proof.clone();
                changed[place] = forged;
                assert!(verify(&first_root, &second_root, &changed).is_err(), "{first} {second} {place}");
                changed.remove(place);
                assert!(verify(&first_root, &second_root, &changed).is_err(), "{first} {second} {place}");
            }
            let mut longer = proof.clone();
            longer.push(forged);
            assert!(verify(&first_root, &second_root, &longer).is_err(), "{first} {second}");
        }
    }
    assert!(verify_consistency((2, &all[0]), (1, &all[0]), &[]).is_err());
}

proptest! {
    #[test]
    fn consistency_proofs_hold_between_any_two_sizes(second in 1_usize..600, part in 0.0..1.0_f64) {
        let first = ((second as f64 * part) as usize).clamp(1, second);
        let all = leaves(second);
        let (first_root, second_root) = (tree_hash(&all[..first]), tree_hash(&all));
        let proof = consistency_proof(&mut Leaves(all.clone()), first as u64, second as u64).unwrap();
        prop_assert_eq!(&proof, &subproof(first, &all, true));
        let from = (first as u64, &first_root);
        prop_assert_eq!(verify_consistency(from, (second as u64, &second_root), &proof), Ok(()));
    }

    #[test]
    fn hashes_of_any_number_never_panic(first: u64, second: u64, count in 0_usize..70) {
        let hashes = leaves(count);
        let root = leaf_hash(b"root");
        let _ = verify_consistency((first, &root), (second, &root), &hashes);
        let _ = verify_consistency((1 << (first % 64), &root), (u64::MAX, &root), &hashes);
    }
}
