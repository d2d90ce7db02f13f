//! The log on disk: crashes at every step, leases, backups, damage, and trees of several levels.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use symseal_seal::encoding::to_base64;
use symseal_seal::tiles::{TileKind, TilePath, push_entry};
use symseal_seal::tlog::{leaf_hash, node_hash, verify_inclusion};
use symseal_seal::{Hash, SignedCheckpoint};

use super::{Appended, CHECKPOINT_FILE, LogError, TileLog, sign};
use crate::durable::Disk;
use crate::keys::LogKey;

/// A log's directory, key and memory in a temporary directory.
struct Place {
    directory: tempfile::TempDir,
    key: LogKey,
}

fn fast() -> Disk {
    Disk { unsynced: true, ..Disk::default() }
}

fn failing_after(steps: u32) -> Disk {
    let disk = fast();
    *disk.steps_left.lock().unwrap() = Some(steps);
    disk
}

fn entry(n: u64) -> Vec<u8> {
    format!("entry {n}").into_bytes()
}

/// The root by the definition of RFC 6962, without sharing code with what is tested.
fn naive_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => symseal_seal::encoding::sha256(b""),
        [leaf] => *leaf,
        _ => {
            let mut split = 1;
            while split * 2 < leaves.len() {
                split *= 2;
            }
            node_hash(&naive_root(&leaves[..split]), &naive_root(&leaves[split..]))
        }
    }
}

impl Place {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), key: LogKey::generate().unwrap() }
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    fn seen(&self) -> PathBuf {
        self.directory.path().join("state/seen")
    }

    fn create(&self) -> TileLog {
        let origin = "log-0123456789abcdef.symseal.internal".parse().unwrap();
        TileLog::create_on(fast(), &self.log(), origin, self.key.clone(), &self.seen()).unwrap()
    }

    fn open(&self) -> Result<TileLog, LogError> {
        self.open_on(fast())
    }

    fn open_on(&self, disk: Disk) -> Result<TileLog, LogError> {
        TileLog::open_on(disk, &self.log(), self.key.clone(), &self.seen(), Duration::ZERO)
    }

    fn with_entries(count: u64) -> Self {
        let place = Self::new();
        write_log(&place, count);
        place
    }

    /// The same log in another directory: what a crash or a backup leaves.
    fn copy(&self) -> Self {
        let copy = Self { directory: tempfile::tempdir().unwrap(), key: self.key.clone() };
        copy_tree(self.directory.path(), copy.directory.path());
        copy
    }
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Everything that must hold of a log of `size` entries.
#[track_caller]
fn check_log(log: &TileLog, size: u64) {
    assert_eq!(log.size(), size);
    log.check_entries().unwrap();
    let leaves: Vec<Hash> = (0..size).map(|n| leaf_hash(&entry(n))).collect();
    assert_eq!(log.root(), naive_root(&leaves));
    let signed = SignedCheckpoint::parse(log.checkpoint()).unwrap();
    signed.verify(log.identity()).unwrap();
    assert_eq!((signed.checkpoint.size, signed.checkpoint.root), (size, log.root()));
    for n in (0..size).step_by(1 + size as usize / 40) {
        let found = log.find(&entry(n)).unwrap().unwrap();
        assert_eq!(found.index, n);
        verify_inclusion(&leaf_hash(&entry(n)), n, size, &found.proof, &log.root()).unwrap();
    }
}

#[test]
fn a_log_grows_through_several_tiles_and_is_the_same_when_opened_again() {
    let place = Place::new();
    let mut log = place.create();
    for n in 0..600 {
        let appended = log.append(&entry(n)).unwrap();
        assert_eq!((appended.index, appended.size, appended.duplicate), (n, n + 1, false));
        let leaf = leaf_hash(&entry(n));
        verify_inclusion(&leaf, n, n + 1, &appended.proof, &appended.root).unwrap();
        if [1, 2, 255, 256, 257, 511, 512, 513, 600].contains(&(n + 1)) {
            check_log(&log, n + 1);
            drop(log);
            log = place.open().unwrap();
            check_log(&log, n + 1);
        }
    }
    let path = |name: &str| place.log().join(name);
    for there in ["tile/0/000", "tile/0/001", "tile/0/002.p/88", "tile/1/000.p/2", "tile/entries/001"] {
        assert!(path(there).is_file(), "{there}");
    }
    // Partial tiles go when a checkpoint covers the full one.
    assert!(!path("tile/0/001.p").exists() && !path("tile/entries/001.p").exists());
}

#[test]
fn an_entry_is_logged_once() {
    let place = Place::with_entries(3);
    let mut log = place.open().unwrap();
    let again = log.append(&entry(1)).unwrap();
    assert_eq!((again.index, again.size, again.duplicate), (1, 3, true));
    check_log(&log, 3);
    assert_eq!(log.find(b"never").unwrap(), None);
}

#[test]
fn a_batch_is_appended_whole_with_a_proof_for_each_and_one_checkpoint() {
    for (before, count) in [(0, 1), (0, 600), (3, 253), (3, 254), (250, 700), (65_500, 100)] {
        let place = Place::with_entries(before);
        let mut log = place.open().unwrap();
        let entries: Vec<Vec<u8>> = (before..before + count).map(entry).collect();
        let batch: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        let answers = log.append_batch(&batch).unwrap();
        for (n, answer) in (before..).zip(answers) {
            let appended = answer.unwrap();
            assert_eq!((appended.index, appended.size, appended.duplicate), (n, before + count, false));
            verify_inclusion(&leaf_hash(&entry(n)), n, before + count, &appended.proof, &log.root()).unwrap();
        }
        check_log(&log, before + count);
        log.check_entries().unwrap();
        drop(log);
        check_log(&place.open().unwrap(), before + count);
    }
}

#[test]
fn a_batch_logs_a_duplicate_once_and_refuses_only_what_does_not_fit() {
    let place = Place::with_entries(300);
    let mut log = place.open().unwrap();
    let (old, new, large) = (entry(5), entry(300), vec![0; 65_536]);
    let mut answers = log.append_batch(&[&old, &new, &large, &new]).unwrap().into_iter();
    let mut next = || answers.next().unwrap();
    let place_of = |appended: Appended| (appended.index, appended.duplicate, appended.size);
    assert_eq!(place_of(next().unwrap()), (5, true, 301));
    assert_eq!(place_of(next().unwrap()), (300, false, 301));
    assert!(matches!(next(), Err(LogError::EntryTooLarge { found: 65_536 })));
    assert_eq!(place_of(next().unwrap()), (300, true, 301));
    check_log(&log, 301);
    let checkpoint = log.checkpoint().to_owned();
    assert!(log.append_batch(&[]).unwrap().is_empty());
    assert!(log.append_batch(&[&old]).unwrap().pop().unwrap().unwrap().duplicate);
    assert_eq!(log.checkpoint(), checkpoint);
}

#[test]
fn a_crash_at_any_step_of_a_batch_leaves_all_of_it_or_nothing() {
    for (size, count) in [(0, 3), (250, 10), (255, 300)] {
        let template = Place::with_entries(size);
        let entries: Vec<Vec<u8>> = (size..size + count).map(entry).collect();
        let batch: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
        let (mut old, mut new) = (0, 0);
        for steps in 0..200 {
            let place = template.copy();
            let mut log = place.open_on(failing_after(steps)).unwrap();
            let result = log.append_batch(&batch);
            drop(log);
            let mut log = place.open().unwrap();
            check_log(&log, log.size());
            match log.size() - size {
                0 => old += 1,
                all if all == count => new += 1,
                part => panic!("{part} of {count} entries appeared"),
            }
            if result.is_ok() {
                assert_eq!(log.size(), size + count);
                break;
            }
            log.append_batch(&batch).unwrap();
            check_log(&log, size + count);
        }
        assert!(old > 10 && new > 1, "size {size}: {old} old, {new} new");
    }
}

#[test]
fn an_entry_that_does_not_fit_is_refused_and_changes_nothing() {
    let place = Place::with_entries(1);
    let mut log = place.open().unwrap();
    assert!(matches!(log.append(&[0; 65_536]), Err(LogError::EntryTooLarge { found: 65_536 })));
    log.append(&[0; 65_535]).unwrap();
    assert_eq!(log.size(), 2);
}

#[test]
fn a_crash_at_any_step_of_an_append_leaves_the_old_log_or_the_new_one() {
    for size in [0, 1, 2, 254, 255, 256, 511] {
        let template = Place::with_entries(size);
        let mut completed = false;
        let (mut old, mut new) = (0, 0);
        for steps in 0..200 {
            let place = template.copy();
            let mut log = place.open_on(failing_after(steps)).unwrap();
            let result = log.append(&entry(size));
            drop(log);
            let mut log = place.open().unwrap();
            check_log(&log, log.size());
            if result.is_ok() {
                assert_eq!(log.size(), size + 1);
                completed = true;
                break;
            }
            match log.size() - size {
                0 => old += 1,
                1 => new += 1,
                more => panic!("{more} entries appeared"),
            }
            // Life goes on: another entry first, then the one that failed.
            let failed_entry_is_there = log.size() == size + 1;
            if failed_entry_is_there {
                assert!(log.append(&entry(size)).unwrap().duplicate);
            } else {
                log.append(&entry(size)).unwrap();
            }
            log.append(&entry(size + 1)).unwrap();
            check_log(&log, size + 2);
        }
        assert!(completed && old > 10 && new > 0, "size {size}: {old} old, {new} new");
    }
}

#[test]
fn what_an_unfinished_append_left_is_overwritten_by_another_entry() {
    for steps in [4, 8, 12, 16] {
        let place = Place::with_entries(2);
        let mut log = place.open_on(failing_after(steps)).unwrap();
        assert!(log.append(b"lost").is_err());
        drop(log);
        let mut log = place.open().unwrap();
        if log.size() == 2 {
            log.append(&entry(2)).unwrap();
            check_log(&log, 3);
            drop(log);
            check_log(&place.open().unwrap(), 3);
        }
    }
}

#[test]
fn after_a_failure_before_the_checkpoint_the_same_value_can_go_on() {
    let place = Place::with_entries(2);
    let mut log = place.open_on(failing_after(3)).unwrap();
    assert!(matches!(log.append(&entry(2)), Err(LogError::Io { .. })));
    *log.disk.steps_left.lock().unwrap() = None;
    log.append(&entry(2)).unwrap();
    check_log(&log, 3);
}

#[test]
fn after_a_failure_at_the_checkpoint_the_log_must_be_opened_again() {
    let place = Place::with_entries(2);
    let mut refused = 0;
    for steps in 0..60 {
        let copy = place.copy();
        let mut log = copy.open_on(failing_after(steps)).unwrap();
        if log.append(&entry(2)).is_ok() {
            break;
        }
        *log.disk.steps_left.lock().unwrap() = None;
        match log.append(&entry(2)) {
            Err(LogError::MustReopen { .. }) => refused += 1,
            other => assert_eq!(other.unwrap().index, 2),
        }
    }
    assert!(refused > 3, "{refused}");
}

#[test]
fn a_crash_while_a_log_is_made_leaves_none_or_an_empty_one() {
    let origin: symseal_seal::Origin = "log-1.symseal.internal".parse().unwrap();
    let mut completed = false;
    for steps in 0..60 {
        let place = Place::new();
        let made =
            TileLog::create_on(failing_after(steps), &place.log(), origin.clone(), place.key.clone(), &place.seen());
        completed = made.is_ok();
        drop(made);
        let mut log = if TileLog::exists(&place.log()) { place.open().unwrap() } else { place.create() };
        log.append(&entry(0)).unwrap();
        check_log(&log, 1);
        if completed {
            break;
        }
    }
    assert!(completed);
}

#[test]
fn one_writer_at_a_time_holds_the_lease() {
    let place = Place::with_entries(1);
    let log = place.open().unwrap();
    let error = place.open().unwrap_err();
    assert!(matches!(error, LogError::Leased { .. }), "{error}");
    let (directory, key, seen) = (place.log(), place.key.clone(), place.seen());
    let waiting =
        std::thread::spawn(move || TileLog::open_within(&directory, key, &seen, Duration::from_secs(30)).map(|_| ()));
    std::thread::sleep(Duration::from_millis(60));
    drop(log);
    waiting.join().unwrap().unwrap();
}

#[test]
fn a_log_put_back_from_a_backup_is_refused() {
    let place = Place::with_entries(3);
    let backup = place.copy();
    place.open().unwrap().append(&entry(3)).unwrap();
    // The old directory under the newer memory.
    fs::copy(place.seen(), backup.seen()).unwrap();
    let error = backup.open().unwrap_err();
    assert!(matches!(error, LogError::WentBack { seen: 4, found: 3, .. }), "{error}");
    assert!(error.to_string().contains("new origin"), "{error}");
}

#[test]
fn a_second_history_is_refused() {
    let place = Place::with_entries(3);
    let fork = place.copy();
    place.open().unwrap().append(&entry(3)).unwrap();
    let mut other = fork.open().unwrap();
    for n in 10..13 {
        other.append(&entry(n)).unwrap();
    }
    drop(other);
    fs::copy(place.seen(), fork.seen()).unwrap();
    assert!(matches!(fork.open(), Err(LogError::Forked { size: 4, .. })));
}

#[test]
fn a_log_whose_memory_is_gone_is_refused_and_says_what_to_do() {
    let place = Place::with_entries(3);
    fs::remove_file(place.seen()).unwrap();
    let error = place.open().unwrap_err().to_string();
    assert!(error.contains("copy its `checkpoint` there"), "{error}");
    fs::copy(place.log().join(CHECKPOINT_FILE), place.seen()).unwrap();
    check_log(&place.open().unwrap(), 3);
}

#[test]
fn a_log_is_never_overwritten() {
    let place = Place::with_entries(1);
    let create = |log: PathBuf, seen: PathBuf| {
        TileLog::create_on(fast(), &log, "log-2.symseal.internal".parse().unwrap(), place.key.clone(), &seen)
    };
    let elsewhere = place.directory.path().join("elsewhere");
    assert!(matches!(create(place.log(), elsewhere.clone()), Err(LogError::Exists { .. })));
    assert!(matches!(create(elsewhere.clone(), place.seen()), Err(LogError::Exists { .. })));
    assert!(matches!(Place::new().open(), Err(LogError::NoLog { .. })));
}

#[test]
fn another_key_cannot_open_the_log() {
    let place = Place::with_entries(1);
    let other = LogKey::generate().unwrap();
    let error = TileLog::open_on(fast(), &place.log(), other, &place.seen(), Duration::ZERO).unwrap_err();
    assert!(matches!(error, LogError::Checkpoint { .. }), "{error}");
}

#[test]
fn damage_is_found_at_open_and_names_the_file() {
    let place = Place::with_entries(300);
    let flip = |name: &str| {
        let copy = place.copy();
        let path = copy.log().join(name);
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&path, bytes).unwrap();
        copy.open().unwrap_err().to_string()
    };
    assert!(flip("tile/0/000").contains("tile/1/000"));
    for name in ["tile/1/000.p/1", "tile/entries/001.p/44", "checkpoint"] {
        let error = flip(name);
        assert!(error.contains(name), "{name}: {error}");
    }
    // A leaf in the last tile no longer leads to the signed root.
    assert!(flip("tile/0/001.p/44").contains("expected the root"));
    let copy = place.copy();
    fs::remove_file(copy.log().join("tile/0/000")).unwrap();
    assert!(copy.open().unwrap_err().to_string().contains("tile/0/000"));
    // Full entry bundles are not read at open, but by `check_entries`.
    let copy = place.copy();
    fs::write(copy.log().join("tile/entries/000"), b"x").unwrap();
    let error = copy.open().unwrap().check_entries().unwrap_err().to_string();
    assert!(error.contains("tile/entries/000"), "{error}");
}

#[test]
fn a_tile_damaged_under_an_open_log_gives_no_wrong_proof() {
    let place = Place::with_entries(300);
    let log = place.open().unwrap();
    let path = place.log().join("tile/0/000");
    let mut bytes = fs::read(&path).unwrap();
    bytes[40] ^= 1;
    fs::write(&path, bytes).unwrap();
    assert!(matches!(log.find(&entry(0)), Err(LogError::Damaged { .. })));
}

/// A log of `count` entries written by a few lines of its own, with none of the log's code.
fn write_log(place: &Place, count: u64) {
    let put = |name: String, bytes: &[u8]| {
        let path = place.log().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let entries: Vec<Vec<u8>> = (0..count).map(entry).collect();
    for (n, chunk) in entries.chunks(256).enumerate() {
        let mut bundle = Vec::new();
        for entry in chunk {
            push_entry(&mut bundle, entry).unwrap();
        }
        put(TilePath::at_size(TileKind::Entries, n as u64, count).unwrap().to_string(), &bundle);
    }
    let leaves: Vec<Hash> = entries.iter().map(|entry| leaf_hash(entry)).collect();
    let mut hashes = leaves.clone();
    for level in 0_u8.. {
        for (n, chunk) in hashes.chunks(256).enumerate() {
            let path = TilePath::at_size(TileKind::Hashes(level), n as u64, count).unwrap();
            put(path.to_string(), &chunk.concat());
        }
        hashes = hashes.chunks_exact(256).map(naive_root).collect();
        if hashes.is_empty() {
            break;
        }
    }
    let identity = place.key.identity(&"log-big.symseal.internal".parse().unwrap()).unwrap();
    let checkpoint = sign(&place.key, &identity, count, naive_root(&leaves));
    put(CHECKPOINT_FILE.into(), checkpoint.as_bytes());
    fs::create_dir_all(place.seen().parent().unwrap()).unwrap();
    fs::write(place.seen(), checkpoint).unwrap();
}

#[test]
fn a_log_grows_over_the_edge_of_three_levels() {
    let place = Place::new();
    write_log(&place, 65_530);
    let mut log = place.open().unwrap();
    check_log(&log, 65_530);
    for n in 65_530..65_540 {
        let appended = log.append(&entry(n)).unwrap();
        assert_eq!(appended.index, n);
        drop(log);
        log = place.open().unwrap();
    }
    check_log(&log, 65_540);
    for there in ["tile/0/255", "tile/0/256.p/4", "tile/1/000", "tile/2/000.p/1"] {
        assert!(place.log().join(there).is_file(), "{there}");
    }
    assert_eq!(to_base64(&log.root()).len(), 44);
}
