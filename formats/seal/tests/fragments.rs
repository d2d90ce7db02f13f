//! Tile fragments of trees in memory: which tiles they need, and that no hash in them is free.

use std::collections::BTreeMap;

use symseal_seal::fragment::{FragmentError, tiles_of_path};
use symseal_seal::tiles::{TileKind, TilePath, node_in_tile};
use symseal_seal::tlog::{Nodes, leaf_hash, node_hash, root};
use symseal_seal::{Hash, TileFragment};

/// The hashes of each level of tiles.
struct Tree(Vec<Vec<Hash>>);

impl Tree {
    fn new(size: u64) -> Self {
        let mut levels = vec![(0..size).map(|n| leaf_hash(&n.to_le_bytes())).collect::<Vec<_>>()];
        while levels.last().unwrap().len() >= 256 {
            let tiles = levels.last().unwrap().chunks_exact(256);
            levels.push(tiles.map(|tile| node_in_tile(tile, 8, 0).unwrap()).collect());
        }
        Self(levels)
    }

    fn size(&self) -> u64 {
        self.0[0].len() as u64
    }

    fn root(&mut self) -> Hash {
        let size = self.size();
        let Ok(root) = root(self, size);
        root
    }

    fn fragment(&self, index: u64) -> TileFragment {
        let tile = |path: TilePath| {
            let TileKind::Hashes(level) = path.kind else { panic!("{path}") };
            let start = path.index as usize * 256;
            (path, self.0[usize::from(level)][start..start + usize::from(path.width)].to_vec())
        };
        let tiles: BTreeMap<_, _> = tiles_of_path(index, self.size()).into_iter().map(tile).collect();
        TileFragment { checkpoint: String::new(), index, tiles }
    }
}

impl Nodes for Tree {
    type Error = std::convert::Infallible;

    fn node(&mut self, height: u32, index: u64) -> Result<Hash, Self::Error> {
        if height == 0 {
            return Ok(self.0[0][index as usize]);
        }
        let (left, right) = (self.node(height - 1, 2 * index)?, self.node(height - 1, 2 * index + 1)?);
        Ok(node_hash(&left, &right))
    }
}

#[track_caller]
fn check(size: u64, index: u64, tiles: &[&str]) {
    let found: Vec<String> = tiles_of_path(index, size).iter().map(ToString::to_string).collect();
    assert_eq!(found, tiles);
}

#[test]
fn a_path_needs_the_tiles_that_the_layout_says() {
    check(0, 0, &[]);
    check(1, 0, &[]);
    check(2, 0, &["tile/0/000.p/2"]);
    check(256, 7, &["tile/0/000"]);
    check(257, 256, &["tile/1/000.p/1"]);
    check(1000, 700, &["tile/0/002", "tile/0/003.p/232", "tile/1/000.p/3"]);
    check(70_000, 5, &["tile/0/000", "tile/0/273.p/112", "tile/1/000", "tile/1/001.p/17"]);
    check(70_000, 69_999, &["tile/0/273.p/112", "tile/1/001.p/17", "tile/2/000.p/1"]);
}

#[test]
fn every_entry_is_proved_and_every_hash_is_accounted_for() {
    for size in [1, 2, 3, 255, 256, 257, 511, 512, 1000] {
        let mut tree = Tree::new(size);
        let root = tree.root();
        for index in (0..size).filter(|index| index % 37 == 0 || *index + 3 > size || (250..260).contains(index)) {
            let fragment = tree.fragment(index);
            let leaf = tree.0[0][index as usize];
            assert_eq!(fragment.verify(&leaf, size, &root), Ok(()), "{index} of {size}");
            assert_eq!(TileFragment::parse(&fragment.to_json()), Ok(fragment.clone()));
            assert!(fragment.verify(&leaf_hash(b"forged"), size, &root).is_err(), "{index} of {size}");
            for path in fragment.tiles.keys() {
                for place in (0..fragment.tiles[path].len()).step_by(19).chain([fragment.tiles[path].len() - 1]) {
                    let mut changed = fragment.clone();
                    changed.tiles.get_mut(path).unwrap()[place][0] ^= 1;
                    assert!(changed.verify(&leaf, size, &root).is_err(), "{path} {place}, {index} of {size}");
                }
                let mut without = fragment.clone();
                without.tiles.remove(path);
                assert!(without.verify(&leaf, size, &root).is_err(), "{path}, {index} of {size}");
            }
            let mut more = fragment.clone();
            more.tiles.insert("tile/5/000".parse().unwrap(), vec![[0; 32]; 256]);
            assert!(matches!(more.verify(&leaf, size, &root), Err(FragmentError::Unused { .. })));
        }
        assert!(tree.fragment(0).verify(&[0; 32], 0, &root).is_err());
    }
}

#[test]
fn the_entry_s_own_hash_in_a_tile_must_be_its_own() {
    // Read by no audit path, and so the place where a forged leaf would stand.
    let mut tree = Tree::new(1000);
    let (root, leaf) = (tree.root(), tree.0[0][700]);
    let mut fragment = tree.fragment(700);
    let level0 = "tile/0/002".parse().unwrap();
    fragment.tiles.get_mut(&level0).unwrap()[700 - 512] = leaf_hash(b"forged");
    let forged = FragmentError::Forged { path: level0, index: 700 };
    assert_eq!(fragment.verify(&leaf, 1000, &root), Err(forged));
    let mut fragment = tree.fragment(700);
    let level1 = "tile/1/000.p/3".parse().unwrap();
    fragment.tiles.get_mut(&level1).unwrap()[2] = leaf_hash(b"forged");
    assert_eq!(fragment.verify(&leaf, 1000, &root), Err(FragmentError::Forged { path: level1, index: 700 }));
}
