//! What was put in is found, nothing else is, and damage is told or does no harm.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::*;

fn bundle(number: u8) -> BundleEntry {
    BundleEntry {
        digest: format!("sha256:{number:064x}"),
        name: format!("app{}", number / 2),
        version: number.to_string(),
        symbol_index: [number; 32],
        modules_root: (number.is_multiple_of(2)).then_some([number; 32]),
        is_loose: number.is_multiple_of(3),
    }
}

fn candidate(bundle: u32, kind: u8, content: u8) -> NewCandidate<'static> {
    let name = if content.is_multiple_of(2) { "libapp.so" } else { "app" };
    NewCandidate {
        bundle,
        kind,
        debug_info: content % 4,
        sha256: [content; 32],
        size: u64::from(content) * 1000,
        name,
        file: "app.debug",
    }
}

type Expected = BTreeMap<Vec<u8>, Vec<(u32, u8, u8)>>;

fn build(seed: u64, entries: &Expected) -> Vec<u8> {
    let mut builder = IdsBuilder::new(seed, 3);
    for number in 0..4 {
        assert_eq!(builder.bundle(&bundle(number)).unwrap(), u32::from(number));
    }
    for (key, candidates) in entries {
        for (bundle, kind, content) in candidates {
            builder.add(key, &candidate(*bundle, *kind, *content)).unwrap();
        }
    }
    builder.build().unwrap()
}

fn entries() -> impl Strategy<Value = Expected> {
    let candidates = prop::collection::vec((0..4_u32, 0..3_u8, any::<u8>()), 1..5);
    prop::collection::btree_map(prop::collection::vec(any::<u8>(), 0..40), candidates, 0..60)
}

proptest! {
    #[test]
    fn what_was_put_in_is_found_in_the_order_of_preference_and_nothing_else_is(
        seed in any::<u64>(), entries in entries(), other in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let ids = Ids::open(build(seed, &entries)).unwrap();
        prop_assert_eq!(ids.key_count() as usize, entries.len());
        for (key, expected) in &entries {
            let mut expected: Vec<_> = expected.iter().map(|(bundle, kind, content)| {
                let new = candidate(*bundle, *kind, *content);
                (new.kind, new.debug_info, std::cmp::Reverse(new.size), new.sha256, new.bundle, new.name)
            }).collect();
            expected.sort();
            expected.dedup();
            let found: Vec<_> = ids.find(key).map(|found| {
                (found.kind, found.debug_info, std::cmp::Reverse(found.size), *found.sha256, found.bundle, found.name)
            }).collect();
            prop_assert_eq!(found, expected);
        }
        prop_assert_eq!(ids.find(&other).count() > 0, entries.contains_key(&other));
        let mut keys: Vec<_> = ids.keys().map(|key| key.bytes.to_vec()).collect();
        keys.sort();
        prop_assert_eq!(keys, entries.into_keys().collect::<Vec<_>>());
        for number in 0..4_u8 {
            prop_assert_eq!(ids.bundle(number.into()), Some(bundle(number)));
        }
        prop_assert_eq!(ids.bundle(4), None);
    }

    #[test]
    fn damage_is_told_and_with_a_new_checksum_does_no_harm(
        entries in entries(), at in any::<prop::sample::Index>(), value in any::<u8>(), cut in any::<prop::sample::Index>(),
    ) {
        let whole = build(7, &entries);
        let at = at.index(whole.len());
        let mut damaged = whole.clone();
        damaged[at] ^= value;
        prop_assert_eq!(Ids::open(damaged.as_slice()).is_ok(), value == 0);
        prop_assert!(Ids::open(&whole[..cut.index(whole.len())]).is_err());
        let content = damaged.len() - 32;
        let checksum = Sha256::digest(&damaged[..content]);
        damaged[content..].copy_from_slice(&checksum);
        read_all(&damaged);
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut bytes = bytes;
        read_all(&bytes);
        bytes.splice(0..bytes.len().min(8), MAGIC);
        read_all(&bytes);
    }
}

/// Whatever can be asked of an index that may be damaged.
fn read_all(bytes: &[u8]) {
    let Ok(ids) = Ids::open(bytes) else { return };
    for key in ids.keys() {
        let _ = (key.candidates().count(), ids.find(key.bytes).count());
    }
    for number in 0..ids.bundle_count() {
        let _ = ids.bundle(number);
    }
}

#[test]
fn an_index_that_was_made_from_the_page_alone_is_read() {
    // By a program of a few lines in another language; the checksum is left to the reader of the seed.
    let mut bytes = include_bytes!("../../../fuzz/corpus/ids_index/three-keys").to_vec();
    let checksum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&checksum);
    let ids = Ids::open(bytes).unwrap();
    let guid_and_age = [&[2][..], &[7; 16], &[1, 0, 0, 0]].concat();
    for key in [&b"\x01\xab\xcd\xef\x01"[..], &guid_and_age, b"\x05app.exe/5f3a1b2c1f000"] {
        let found: Vec<_> = ids.find(key).collect();
        assert_eq!(found.len(), 1, "{key:?}");
        assert_eq!((found[0].sha256, found[0].size, found[0].file), (&[0x22; 32], 1000, "app.debug"));
    }
    assert_eq!(ids.bundle(0).map(|bundle| (bundle.name, bundle.version)), Some(("app".into(), "1.0".into())));
}

#[test]
fn an_empty_index_has_nothing() {
    let ids = Ids::open(build(1, &Expected::new())).unwrap();
    assert_eq!(ids.content(), 3);
    assert_eq!((ids.key_count(), ids.find(b"").count(), ids.find(b"abc").count()), (0, 0, 0));
}

#[test]
fn the_filter_passes_few_keys_that_are_not_here() {
    let mut builder = IdsBuilder::new(42, 3);
    builder.bundle(&bundle(0)).unwrap();
    for number in 0..20_000_u32 {
        builder.add(&number.to_be_bytes(), &candidate(0, 0, 1)).unwrap();
    }
    let ids = Ids::open(builder.build().unwrap()).unwrap();
    let passed = |number: &u32| ids.passes(hash::hash(42, &number.to_be_bytes())).unwrap();
    assert_eq!((0..20_000).filter(passed).count(), 20_000);
    let passed = (20_000..120_000).filter(passed).count();
    assert!(passed < 2_000, "{passed} of 100,000");
}

#[test]
fn ids_that_were_chosen_to_meet_in_one_bucket_are_spread_by_another_seed() {
    // The upper bits of a hash are its bucket. Whoever knows the seed finds ids for one bucket in no time.
    const BUCKET_BITS: u32 = 10;
    let bucket = |seed: u64, key: &[u8]| hash::hash(seed, key) >> (64 - BUCKET_BITS);
    let build_id = |number: u64| [&[1][..], &number.to_le_bytes(), &[0; 12]].concat();
    let chosen: Vec<Vec<u8>> = (0..).map(build_id).filter(|key| bucket(0, key) == 0).take(64).collect();
    let largest = |seed: u64| {
        let mut sizes = BTreeMap::new();
        for key in &chosen {
            *sizes.entry(bucket(seed, key)).or_insert(0) += 1;
        }
        sizes.into_values().max().unwrap_or(0)
    };
    assert_eq!(largest(0), 64);
    for seed in (1..=32_u64).map(|number| number.wrapping_mul(0x1234_5678_90ab_cdef).wrapping_add(1)) {
        assert!(largest(seed) <= 5, "seed {seed:#x}: {} of 64 ids meet", largest(seed));
    }
    // They are found all the same, and one that would meet them is not.
    let entries: Expected = chosen.iter().map(|key| (key.clone(), vec![(0, 0, 1)])).collect();
    let ids = Ids::open(build(0, &entries)).unwrap();
    assert!(chosen.iter().all(|key| ids.find(key).count() == 1));
    let next = (0..).map(build_id).filter(|key| bucket(0, key) == 0).nth(64).unwrap();
    assert_eq!(ids.find(&next).count(), 0);
}
