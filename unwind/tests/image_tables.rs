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
