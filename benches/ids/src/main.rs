//! The server's index of ids with 100,000 ids: bytes for each, time to open it, time to find one and to find none.
//!
//! `cargo run --release -p symseal-bench-ids [IDS]`

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use ids::{BundleEntry, Ids, IdsBuilder, NewCandidate};

// The module itself and not its crate: the server brings a database and a web server, which nothing here uses.
#[allow(dead_code, unused_imports, reason = "the server uses all of it")]
#[path = "../../../server/src/ids/mod.rs"]
mod ids;
// What its files call it.
#[path = "../../../server/src/numbered.rs"]
mod numbered;

/// Modules of a bundle.
const MODULES: u64 = 100;
/// Lookups of one pass.
const LOOKUPS: u64 = 1_000_000;
/// The fastest of so many passes counts.
const PASSES: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: u64 = std::env::args().nth(1).map_or(Ok(100_000), |text| text.parse())?;
    let started = Instant::now();
    let bytes = build(count)?;
    let built = started.elapsed();
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("ids.index");
    std::fs::write(&path, &bytes)?;

    let opened = fastest(|| {
        let started = Instant::now();
        let index = open(&path).expect("the index that was just written");
        assert_eq!(index.find(&key(1, 0)).count(), 2);
        started.elapsed()
    });
    let index = open(&path)?;
    let mut map: HashMap<Vec<u8>, [u8; 32]> = HashMap::new();
    for key in index.keys() {
        map.extend(key.candidates().next().map(|found| (key.bytes.to_vec(), *found.sha256)));
    }
    let hits = Keys::new(count, 1);
    let misses = Keys::new(count, 7);
    let find = |keys: &Keys, expected: bool| {
        per_lookup(keys, |key| {
            let found = index.find(key).find(|candidate| candidate.kind == 0);
            assert_eq!(black_box(found).is_some(), expected);
        })
    };
    let find_in_map =
        |keys: &Keys, expected: bool| per_lookup(keys, |key| assert_eq!(black_box(map.get(key)).is_some(), expected));
    println!(
        "ids                 {count} in {} bundles, {} keys, {} files offered",
        index.bundle_count(),
        index.key_count(),
        index.candidate_count()
    );
    println!("index               {} bytes, {:.1} an id", bytes.len(), bytes.len() as f64 / count as f64);
    println!("build               {built:.1?}");
    println!("open (map, SHA-256) {opened:.1?}");
    println!(
        "found               {:.0} ns (HashMap of keys to digests: {:.0} ns)",
        find(&hits, true),
        find_in_map(&hits, true)
    );
    println!("not found           {:.0} ns (HashMap: {:.0} ns)", find(&misses, false), find_in_map(&misses, false));
    Ok(())
}

/// Build-ids of 20 bytes, a debug file and a program for each, and a symbol table under Breakpad's id.
fn build(count: u64) -> Result<Vec<u8>, ids::TooLarge> {
    let mut builder = IdsBuilder::new(0x1234_5678_9abc_def0, 1);
    let mut bundle = 0;
    for number in 0..count {
        if number % MODULES == 0 {
            let digest = format!("sha256:{}", hex(&noise(number, 9)));
            bundle = builder.bundle(&BundleEntry {
                digest,
                name: format!("team/product-{}", number / MODULES % 50),
                version: format!("1.{}", number / MODULES),
                symbol_index: noise(number, 10),
                modules_root: Some(noise(number, 11)),
                is_loose: false,
            })?;
        }
        let name = format!("libmodule-{}.so.1", number % 5000);
        let id = key(1, number);
        for (kind, key, salt) in [(0, &id, 2), (1, &id, 3), (2, &key(4, number), 4)] {
            let (sha256, size) = (noise(number, salt), number * 97);
            let new = NewCandidate { bundle, kind, debug_info: 0, sha256, size, name: &name, file: "" };
            builder.add(key, &new)?;
        }
    }
    builder.build()
}

/// A key of a kind (`docs/formats/ids_index.md`, "Keys").
fn key(tag: u8, number: u64) -> Vec<u8> {
    let mut key = vec![tag];
    key.extend_from_slice(noise(number, u64::from(tag)).get(..20).unwrap_or_default());
    key
}

fn open(path: &std::path::Path) -> Result<Ids<memmap2::Mmap>, Box<dyn std::error::Error>> {
    // SAFETY: the file is this program's own, in a new directory.
    let map = unsafe { memmap2::Mmap::map(&std::fs::File::open(path)?)? };
    Ok(Ids::open(map)?)
}

/// Keys in an order in which none helps the next.
struct Keys(Vec<Vec<u8>>);

impl Keys {
    fn new(count: u64, tag: u8) -> Self {
        let spread =
            |number: u64| u64::from_le_bytes(noise(number, 99).first_chunk().copied().unwrap_or_default()) % count;
        // Unknown keys are build-ids too.
        let key = |number: u64| {
            let mut key = key(tag, spread(number));
            key.splice(..1, [1]);
            key
        };
        Self((0..LOOKUPS).map(key).collect())
    }
}

fn per_lookup(keys: &Keys, find: impl Fn(&[u8])) -> f64 {
    let fastest = fastest(|| {
        let started = Instant::now();
        keys.0.iter().for_each(|key| find(key));
        started.elapsed()
    });
    fastest.as_nanos() as f64 / LOOKUPS as f64
}

fn fastest(pass: impl Fn() -> Duration) -> Duration {
    (0..PASSES).map(|_| pass()).min().unwrap_or_default()
}

/// 32 bytes that do not repeat.
fn noise(number: u64, salt: u64) -> [u8; 32] {
    let mut state = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_exact_mut(8) {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(mixed ^ mixed >> 31).to_le_bytes());
    }
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
