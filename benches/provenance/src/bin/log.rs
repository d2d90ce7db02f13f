//! The tile log: durable entries a second by the size of a batch, and a million entries against a thousand.
//!
//!     log DIR      on the disk that is meant; takes 3 minutes and 2 GB
use std::path::Path;
use std::time::{Duration, Instant};

use symseal_seal::tlog::{leaf_hash, verify_inclusion};
use symseal_sealer::{LogError, LogKey, TileLog};

fn open(folder: &Path) -> Result<TileLog, LogError> {
    let (log, seen) = (folder.join("log"), folder.join("last-checkpoint"));
    let key_file = folder.join("log.key.pem");
    if TileLog::exists(&log) {
        return TileLog::open(&log, LogKey::load_pem(&key_file).expect("the log's key"), &seen);
    }
    let key = LogKey::generate_file(&key_file).expect("a log key");
    TileLog::create(&log, "log.example".parse().expect("an origin"), key, &seen)
}

/// About as long as the `hashedrekord` entry of a seal.
fn entry(n: u64) -> Vec<u8> {
    format!("grown-{n}-{}", "x".repeat(450)).into_bytes()
}

fn grow(log: &mut TileLog, to: u64, batch: u64) {
    while log.size() < to {
        let size = log.size();
        let entries: Vec<Vec<u8>> = (size..to.min(size + batch)).map(|n| entry(n)).collect();
        let references: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        log.append_batch(&references).unwrap();
    }
}

/// Microseconds for proof, duplicate and verification in a log, each the mean over entries all over it.
fn times(log: &mut TileLog) -> (f64, f64, f64) {
    const COUNT: u64 = 2_000;
    let size = log.size();
    let chosen: Vec<Vec<u8>> = (0..COUNT).map(|n| entry(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % size)).collect();
    let micros = |from: Instant| from.elapsed().as_secs_f64() * 1e6 / COUNT as f64;
    let from = Instant::now();
    let found: Vec<_> = chosen.iter().map(|entry| log.find(entry).unwrap().expect("a logged entry")).collect();
    let proof = micros(from);
    let from = Instant::now();
    for entry in &chosen {
        assert!(log.append(entry).unwrap().duplicate);
    }
    let duplicate = micros(from);
    let from = Instant::now();
    for (entry, found) in chosen.iter().zip(&found) {
        verify_inclusion(&leaf_hash(entry), found.index, found.size, &found.proof, &found.root).unwrap();
    }
    (proof, duplicate, micros(from))
}

fn measure(folder: &Path) -> Result<(), LogError> {
    println!("durable entries a second, by the size of a batch:");
    for batch in [1, 16, 64, 256, 1024] {
        let place = folder.join(format!("batch-{batch}"));
        std::fs::create_dir_all(&place).expect("a folder");
        let mut log = open(&place)?;
        let from = Instant::now();
        let mut rounds = 0_u32;
        while from.elapsed() < Duration::from_secs(3) {
            let to = log.size() + batch;
            grow(&mut log, to, batch);
            rounds += 1;
        }
        let seconds = from.elapsed().as_secs_f64();
        println!(
            "{batch:>6}: {:>9.0} entries/s, {:.1} ms a round",
            log.size() as f64 / seconds,
            seconds * 1e3 / f64::from(rounds)
        );
    }
    for size in [1_000, 1_000_000] {
        let place = folder.join(format!("size-{size}"));
        std::fs::create_dir_all(&place).expect("a folder");
        let from = Instant::now();
        let mut log = open(&place)?;
        grow(&mut log, size, 16_384);
        let grown = from.elapsed();
        drop(log);
        let from = Instant::now();
        let mut log = open(&place)?;
        let opened = from.elapsed();
        let (proof, duplicate, verification) = times(&mut log);
        println!(
            "{size:>8} entries: grown in {grown:.1?}, opened in {opened:.1?}; proof {proof:.0} µs, duplicate {duplicate:.0} µs, verification {verification:.2} µs"
        );
    }
    Ok(())
}

fn main() -> Result<(), LogError> {
    let folder = std::env::args_os().nth(1).expect("usage: log DIR");
    measure(Path::new(&folder))
}
