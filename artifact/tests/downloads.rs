//! Inputs from registries: tried again, kept, checked, and a failure where they are required.

use crate::support::downloads::{ALL, Download, Expected, ZLIB};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// A package of a registry that is away for the first `failures` attempts, which are counted in `cache/../attempts`.
fn of_a_registry(script: &'static [&'static str]) -> Download {
    Download { name: "made", folder: "made-1", command: script, expected: Expected::Pinned(CONTENT) }
}

const COMES_BACK: &[&str] =
    &["sh", "-c", "echo >> ../../attempts; [ $(wc -l < ../../attempts) -gt 2 ] && printf content > made.txt"];
const STAYS_AWAY: &[&str] = &["sh", "-c", "echo >> ../../attempts; echo no route to it >&2; exit 1"];
const CONTENT: &str = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73";
const NO_PAUSES: [Duration; 2] = [Duration::ZERO; 2];

fn attempts(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("attempts")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_registry_that_is_away_for_a_moment_is_asked_again_and_what_it_gave_is_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let cache = folder.path().join("cache");
    let package = of_a_registry(COMES_BACK);
    for _ in 0..2 {
        let files = package.fetch(&cache, &NO_PAUSES).expect("its file");
        assert_eq!(files, [cache.join("made-1/made.txt")]);
        assert_eq!(attempts(folder.path()), 3);
    }
    // What was damaged in the cache is fetched again.
    std::fs::write(cache.join("made-1/made.txt"), "other").expect("a file");
    package.fetch(&cache, &NO_PAUSES).expect("its file");
    assert_eq!(attempts(folder.path()), 4);
    // Nothing half-fetched stays beside it.
    assert_eq!(std::fs::read_dir(&cache).expect("the cache").count(), 1);
}

#[test]
fn what_is_not_to_be_had_is_a_failure_where_it_is_required() {
    let folder = tempfile::tempdir().expect("a folder");
    let package = of_a_registry(STAYS_AWAY);
    let why = package.fetch(&folder.path().join("cache"), &NO_PAUSES).expect_err("nothing");
    assert!(why.contains("no route to it"), "{why}");
    assert_eq!(attempts(folder.path()), 3);
    assert!(package.skipped("gdb,made-not", &why).contains("made: sh -c"));
    for required in ["gdb,made", "all"] {
        let failed = std::panic::catch_unwind(|| package.skipped(required, &why)).expect_err("a failure");
        let message = failed.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(message.contains("made is required") && message.contains("no route to it"), "{message}");
    }
}

#[test]
fn another_file_than_the_pinned_one_is_not_taken() {
    let folder = tempfile::tempdir().expect("a folder");
    let package = of_a_registry(&["sh", "-c", "printf other > made.txt"]);
    let why = package.fetch(&folder.path().join("cache"), &[]).expect_err("refused");
    assert!(why.contains(CONTENT), "{why}");
}

#[test]
fn a_package_of_debian_is_what_the_lists_of_apt_say() {
    let Some(package) = ZLIB.file() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let (cache, name) = (folder.path().join("cache"), package.file_name().expect("a name"));
    let given = folder.path().join("given");
    std::fs::create_dir(&given).expect("a folder");
    let copied = Download { command: &["sh", "-c", "cp ../../given/* ."], ..ZLIB };
    let whole = std::fs::read(&package).expect("a package");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    std::fs::write(given.join(name), &damaged).expect("a file");
    let why = copied.fetch(&cache, &[]).expect_err("refused");
    assert!(why.contains("SHA-256") && why.contains("is expected"), "{why}");
    std::fs::write(given.join(name), &whole).expect("a file");
    let files = copied.fetch(&cache, &[]).expect("its file");
    // What was damaged in the cache is fetched again.
    std::fs::write(&files[0], &damaged).expect("a file");
    assert_eq!(copied.fetch(&cache, &[]).expect("its file"), files);
    assert!(std::fs::read(&files[0]).expect("a package") == whole);
    // A version that the lists do not have is nobody's word.
    std::fs::rename(given.join(name), given.join("zlib1g_0-made_amd64.deb")).expect("renamed");
    std::fs::remove_dir_all(&cache).expect("removed");
    let why = copied.fetch(&cache, &[]).expect_err("refused");
    assert!(why.contains("zlib1g:amd64=0-made"), "{why}");
}

/// In CI nothing of this is skipped without a word.
#[test]
fn ci_requires_every_download() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.ci/run")).expect(".ci/run");
    let list = text.split_once("{SYMSEAL_REQUIRE:-").and_then(|(_, rest)| rest.split_once('}')).expect("a list").0;
    let required: BTreeSet<&str> = list.split(',').collect();
    for package in ALL {
        assert!(required.contains(package.name), "{}", package.name);
        // The client that fetches it.
        assert!(package.command[0] == "sh" || required.contains(package.command[0]), "{}", package.command[0]);
    }
    assert!(required.contains("packages"));
}
