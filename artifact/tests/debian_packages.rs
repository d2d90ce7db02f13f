//! Every debug file of three Debian packages against llvm-symbolizer: C with assembly, C++ templates, a large C program.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod support;

use std::path::{Path, PathBuf};
use support::accuracy::{Measured, measure, print_row};
use support::compare::Comparison;
use support::{have, in_parallel, llvm_symbolizer_in, lookup, run, skip};
use symseal_artifact::{DebugFiles, ObjectFile, functions};

const PACKAGES: [&str; 3] = ["libc6-dbg", "libstdc++6-12-dbg", "python3.11-dbg"];

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
        let (mut all, mut wrong, mut worst) = (Comparison::default(), Vec::new(), 1.0_f64);
        let mut whole = 0;
        for (path, measured) in files.iter().zip(in_parallel(&files, |path| compare(path))) {
            let name = path.strip_prefix(&folder).unwrap_or(path).display().to_string();
            measured.print(&format!("files of {package}"), &name);
            wrong.extend(measured.verdict(&name));
            worst = worst.min(measured.comparison.ratio(measured.comparison.lines_equal));
            whole += u32::from(measured.is_whole());
            all.add_all(measured.comparison);
        }
        let remark = format!(" in {} files, all of the code in {whole} of them", files.len());
        print_row("Debian's debug packages", package, &remark, &all);
        println!("{package}: {} files, of the worst {worst:.5} agree\n{all}", files.len());
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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

fn compare(path: &Path) -> Measured {
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    let base = object.image_base().0;
    measure(&object.unwind_inputs().text, |addresses| {
        let mut comparison = Comparison::default();
        for (address, expected) in addresses.iter().zip(&llvm_symbolizer_in(Path::new("."), path, addresses)) {
            comparison.add(*address, expected, &lookup::frames(&stream, address.wrapping_sub(base)));
        }
        comparison
    })
}
