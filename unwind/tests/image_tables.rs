//! Tables of Windows and Mach-O images, held against what LLVM's tools read of the same files: no function is left out in silence.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod elf;
mod images;

use std::path::{Path, PathBuf};
use std::process::Command;

use images::Image;
use symseal_module::Rva;
use symseal_unwind::{Kind, RuleSource, Table};

/// Ranges of functions by `llvm-readobj`.
fn runtime_functions(path: &Path) -> Option<Vec<(u64, u64)>> {
    let output = Command::new("llvm-readobj-19").arg("--unwind").arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let number = |line: &str, key: &str| {
        let value = line.trim().strip_prefix(key)?.rsplit("0x").next()?.trim_end_matches(')');
        u64::from_str_radix(value, 16).ok()
    };
    let mut found = Vec::new();
    let mut start = None;
    for line in text.lines() {
        start = number(line, "StartAddress: ").or(start);
        if let (Some(start), Some(end)) = (start, number(line, "EndAddress: ")) {
            found.push((start, end));
        }
    }
    Some(found)
}

/// Libraries of gcc for Windows.
fn libraries() -> Vec<PathBuf> {
    let gcc = ["libgomp-1.dll", "libgcc_s_seh-1.dll", "libquadmath-0.dll"]
        .map(|name| Path::new("/usr/lib/gcc/x86_64-w64-mingw32/12-win32").join(name));
    let others = PathBuf::from("/usr/x86_64-w64-mingw32/lib/libwinpthread-1.dll");
    gcc.into_iter().chain([others]).filter(|path| path.exists()).collect()
}

fn check_windows(path: &Path) -> Option<()> {
    let expected = runtime_functions(path)?;
    let bytes = std::fs::read(path).expect("a library");
    let image = Image::read(&bytes);
    let compiled = image.compile();
    let report = &compiled.report;
    let table = Table::open(&compiled.bytes).expect("our own table");
    table.verify().expect("our own table");
    assert_eq!(report.unwind_entries, expected.len(), "{}", path.display());
    assert!(!expected.is_empty(), "{}", path.display());
    let mut without_rule = 0;
    for (start, end) in &expected {
        for address in [*start, end - 1] {
            let rule = table.rule(Rva(address - image.base)).expect("within the code");
            assert_eq!(rule.source(), Some(RuleSource::Pdata), "{} {address:#x}", path.display());
        }
        let kind = table.rule(Rva(start - image.base)).and_then(|rule| rule.kind());
        without_rule += usize::from(kind == Some(Kind::Unsupported));
    }
    assert_eq!(without_rule, report.unsupported_count, "{:?}", report.unsupported_reasons);
    println!(
        "{}: {} entries, {} rows, {} rules; without a rule: {:?}",
        path.display(),
        expected.len(),
        report.rows,
        report.rules,
        report.unsupported_reasons
    );
    Some(())
}

#[test]
fn every_entry_of_windows_libraries_has_a_rule_or_a_reason() {
    let libraries = libraries();
    if libraries.is_empty() {
        return elf::skip("x86_64-w64-mingw32-gcc", "no libraries of it");
    }
    for path in libraries {
        if check_windows(&path).is_none() {
            return elf::skip("llvm-readobj-19", "not found");
        }
    }
}

/// Functions and encodings by `llvm-objdump`.
fn compact_entries(path: &Path) -> Option<Vec<(u64, u32)>> {
    let output = Command::new("llvm-objdump-19").arg("--unwind-info").arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let second_level = text.split("Second level indices:").nth(1).unwrap_or_default();
    let number = |text: &str| u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok();
    let entries = second_level.lines().filter_map(|line| {
        let (start, encoding) = line.split_once("function offset=")?.1.split_once(',')?;
        let encoding = encoding.rsplit('=').next()?;
        Some((number(start)?, u32::try_from(number(encoding)?).ok()?))
    });
    Some(entries.collect())
}

#[test]
fn every_entry_of_compact_unwind_information_has_a_rule_or_a_reason() {
    for (platform, options) in [
        (&images::MACOS_ARM64, &["-O0"][..]),
        (&images::MACOS_ARM64, &["-O2"]),
        (&images::MACOS_X86_64, &["-O0"]),
        (&images::MACOS_X86_64, &["-O2", "-fomit-frame-pointer"]),
    ] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = match images::build(platform, options, directory.path()) {
            Ok(path) => path,
            Err(tool) => return elf::skip(tool, "not found"),
        };
        let Some(expected) = compact_entries(&path) else { return elf::skip("llvm-objdump-19", "not found") };
        let bytes = std::fs::read(&path).expect("what was linked");
        let compiled = Image::read(&bytes).compile();
        let table = Table::open(&compiled.bytes).expect("our own table");
        assert_eq!(compiled.report.unwind_entries, expected.len(), "{}", platform.name);
        let (mut without, mut described) = (0, 0);
        for (start, encoding) in &expected {
            let source = table.rule(Rva(*start)).and_then(|rule| rule.source());
            match encoding & 0x0fff_ffff {
                0 => without += 1,
                _ => {
                    described += 1;
                    let known = [RuleSource::CompactUnwind, RuleSource::Instructions, RuleSource::EhFrame];
                    assert!(
                        source.is_some_and(|source| known.contains(&source)),
                        "{} {start:#x} {source:?}",
                        platform.name
                    );
                }
            }
        }
        let none = compiled.report.unfollowed.get("compact unwind information: none").copied().unwrap_or_default();
        assert_eq!(none, without, "{}", platform.name);
        assert!(described > 5, "{} {described}", platform.name);
        println!("{} {options:?}: {described} described, {without} not", platform.name);
    }
}
