//! A tile log under load, which `tests/certification/log_kills.py` kills: appends batches for ever, with a line
//! `ack INDEX ENTRY` once an entry is durable.
//!
//!     tile_log DIR NAME BATCH
//!
//! DIR gets `log/`, `log.key.pem` and `last-checkpoint`. Entries are numbered on from the log's size, so that no two
//! runs write the same.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use symseal_sealer::{LogError, LogKey, TileLog};

fn open(folder: &Path) -> Result<TileLog, LogError> {
    let key_file = folder.join("log.key.pem");
    let key = LogKey::load_pem(&key_file).or_else(|_| LogKey::generate_file(&key_file)).expect("a log key");
    let (log, seen) = (folder.join("log"), folder.join("last-checkpoint"));
    if TileLog::exists(&log) {
        TileLog::open_within(&log, key, &seen, Duration::from_millis(200))
    } else {
        TileLog::create(&log, "log.example".parse().expect("an origin"), key, &seen)
    }
}

/// About as long as the `hashedrekord` entry of a seal.
fn entry(name: &str, n: u64) -> Vec<u8> {
    format!("{name}-{n}-{}", "x".repeat(450)).into_bytes()
}

fn append(folder: &Path, name: &str, batch: u64) -> Result<(), LogError> {
    let mut log = open(folder)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "open {}", log.size()).unwrap();
    loop {
        let size = log.size();
        let entries: Vec<Vec<u8>> = (size..size + batch).map(|n| entry(name, n)).collect();
        let references: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        for (answer, entry) in log.append_batch(&references)?.into_iter().zip(&entries) {
            writeln!(out, "ack {} {}", answer?.index, String::from_utf8_lossy(entry)).unwrap();
        }
        out.flush().unwrap();
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, name, batch] = arguments.as_slice() else { panic!("usage: tile_log DIR NAME BATCH") };
    if let Err(error) = append(Path::new(folder), name, batch.parse().expect("a number")) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}
