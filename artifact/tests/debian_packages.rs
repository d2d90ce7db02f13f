//! Every debug file of three Debian packages against llvm-symbolizer: C with assembly, C++ templates, a large C program.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod support;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use support::compare::Comparison;
use support::{addresses_in, have, llvm_symbolizer, lookup, run, skip};
use symseal_artifact::{DebugFiles, ObjectFile, functions};

const PACKAGES: [&str; 3] = ["libc6-dbg", "libstdc++6-12-dbg", "python3.11-dbg"];

/// For each file. Some lie in padding, which neither names, so that at least 2,000 are compared.
const ADDRESSES: usize = 2_500;

/// The least part of the addresses at which depth, file and line must be equal.
const LEAST: f64 = 0.995;

#[test]
fn every_debug_file_of_debian_packages_agrees_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") || !have("dpkg-deb") || !have("apt-get") {
        return;
    }
    for package in PACKAGES {
        let Some(folder) = unpacked(package) else { continue };
        let mut files = debug_files(&folder);
        files.sort();
        assert!(!files.is_empty(), "{package} has debug files");
        let compared = compare_all(&files);
        let mut all = Comparison::default();
        for (path, comparison) in compared {
            let name = path.strip_prefix(&folder).unwrap_or(&path).display();
            // Of a few dozen bytes of code one odd address would decide.
            let is_small = comparison.compared < 400;
            assert!(is_small || comparison.ratio(comparison.depth_equal) >= LEAST, "{name}: {comparison}");
            assert!(is_small || comparison.ratio(comparison.lines_equal) >= LEAST, "{name}: {comparison}");
            all.add_all(comparison);
        }
        println!("{package}: {} files\n{all}", files.len());
        assert!(all.ratio(all.depth_equal) >= LEAST && all.ratio(all.lines_equal) >= LEAST, "{package}: {all}");
        assert!(all.ratio(all.names_equal) >= LEAST, "{package}: {all}");
    }
}

/// The package's files, downloaded and unpacked once.
fn unpacked(package: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("debian").join(package);
    if folder.join("usr").is_dir() {
        return Some(folder);
    }
    std::fs::create_dir_all(&folder).expect("a folder");
    if run("apt-get", &["download", "-qq", package], &folder).is_none() {
        skip(package);
        return None;
    }
    let archives = std::fs::read_dir(&folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let archive =
        archives.into_iter().find(|path| path.extension().is_some_and(|end| end == "deb")).expect("a package");
    run("dpkg-deb", &["-x", &archive.display().to_string(), "."], &folder).expect("dpkg-deb");
    std::fs::remove_file(archive).expect("the package goes");
    Some(folder)
}

fn debug_files(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() && has_debug_info(&entry.path()) {
                files.push(entry.path());
            }
        }
    }
    files
}

fn has_debug_info(path: &Path) -> bool {
    let bytes = std::fs::read(path).expect("a file");
    bytes.starts_with(b"\x7fELF") && ObjectFile::parse(&bytes).is_ok_and(|object| object.has_debug_info())
}

/// In the order of the files.
fn compare_all(files: &[PathBuf]) -> Vec<(PathBuf, Comparison)> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let comparison = compare(path);
                    done.lock().expect("no panic").push((path.clone(), comparison));
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no panic");
    done.sort_by(|a, b| a.0.cmp(&b.0));
    done
}

fn compare(path: &Path) -> Comparison {
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    let addresses = addresses_in(&object.unwind_inputs().text, ADDRESSES, 42);
    let expected = llvm_symbolizer(path, &addresses);
    let mut comparison = Comparison::default();
    for (address, expected) in addresses.iter().zip(&expected) {
        comparison.add(*address, expected, &lookup::frames(&stream, address.wrapping_sub(object.image_base().0)));
    }
    comparison
}
