//! Tables of Windows and Mach-O images, held against what LLVM's tools read of the same files: no function is left out in silence.

use crate::elf;
use crate::images;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::images::Image;
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

/// The prolog that `llvm-readobj` prints for packed data, by the address of the function, in order.
fn packed_prologs(path: &Path) -> Option<Vec<(u64, Vec<String>)>> {
    let output = Command::new("llvm-readobj-19").arg("--unwind").arg(path).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found = Vec::new();
    for function in text.split("RuntimeFunction {").skip(1) {
        let address = function.lines().find_map(|line| line.trim().strip_prefix("Function: 0x"))?;
        let address = u64::from_str_radix(address.split(' ').next()?, 16).ok()?;
        let prolog = function.split("Prologue [").nth(1).unwrap_or_default();
        let mut lines: Vec<String> = prolog.lines().map(|line| line.trim().to_owned()).collect();
        lines.retain(|line| !line.is_empty());
        let end = lines.iter().position(|line| line == "end");
        lines.truncate(end.unwrap_or(0));
        lines.reverse();
        found.push((address, lines));
    }
    Some(found)
}

/// What a rule must say before an instruction of a printed prolog, and after the last.
fn rules_of(prolog: &[String]) -> Vec<String> {
    let (mut depth, mut frame, mut link, mut is_signed) = (0i64, None, None, false);
    let mut rules = Vec::new();
    for line in prolog.iter().map(Some).chain([None]) {
        let place = link.map_or(String::from("x30"), |at: i64| format!("[CFA{at:+}]"));
        let cfa = match frame {
            Some(frame) => format!("x29{frame:+}"),
            None => format!("sp{depth:+}"),
        };
        let signature = if is_signed { " without its signature" } else { "" };
        rules.push(format!("CFA = {cfa}; RA = {place}{signature}"));
        let Some(line) = line else { break };
        let number = || line.rsplit('#').next().and_then(|text| text.trim_end_matches(['!', ']']).parse::<i64>().ok());
        if line == "pacibsp" {
            is_signed = true;
        } else if line == "mov x29, sp" {
            frame = Some(depth);
        } else if line.starts_with("sub sp") {
            depth += number().expect("a size");
        } else {
            let offset = number().unwrap_or_else(|| panic!("{line}"));
            depth -= offset.min(0);
            if line.starts_with("str lr") {
                link = Some(offset.max(0) - depth);
            } else if line.contains(", lr") {
                link = Some(offset.max(0) + 8 - depth);
            }
        }
    }
    rules
}

#[test]
fn packed_data_of_arm64_means_the_prologs_that_llvm_prints() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = match images::build(&images::WINDOWS_ARM64, &["-O0"], directory.path()) {
        Ok(path) => path,
        Err(tool) => return elf::skip(tool, "not found"),
    };
    let original = std::fs::read(&path).expect("what was linked");
    let image = Image::read(&original);
    let (_, pdata) = image.pdata.expect("a directory");
    let at = original.windows(pdata.len()).position(|window| window == pdata).expect("in the file");
    let text = image.text.first().cloned().expect("code");
    let places = 24;
    let step = (text.end - text.start) / places / 4 * 4;
    let mut random = elf::Random(2026);
    let (mut compared, mut functions) = (0, 0);
    for _ in 0..12 {
        let mut words = Vec::new();
        for place in 0..pdata.len() as u64 / 8 {
            // What is left over are fragments of one instruction.
            let (mut start, mut word) = (text.end - image.base - 4, 2 | 1 << 2 | 1 << 23);
            if place < places {
                start = text.start + step * place - image.base;
                let (vector, general, homes, kind) =
                    (random.below(8), random.below(11), random.below(2), random.below(4));
                let vectors = if vector == 0 { 0 } else { vector + 1 };
                let saved = 8 * (general + u64::from(kind == 1) + vectors + 8 * homes);
                // A frame record needs room of its own.
                let size = 1 + random.below(8);
                let frame = saved.div_ceil(16) + 1 + random.below(1 << size);
                word = 1
                    | (step / 4) << 2
                    | vector << 13
                    | general << 16
                    | homes << 20
                    | kind << 21
                    | frame.min(511) << 23;
            }
            words.extend([start as u32, word as u32].map(u32::to_le_bytes).concat());
        }
        let mut bytes = original.clone();
        bytes.splice(at..at + words.len(), words);
        std::fs::write(&path, &bytes).expect("a file");
        let Some(prologs) = packed_prologs(&path) else { return elf::skip("llvm-readobj-19", "not found") };
        let compiled = Image::read(&bytes).compile();
        let table = Table::open(&compiled.bytes).expect("our own table");
        for (start, prolog) in prologs.iter().take(places as usize) {
            // More registers than there are.
            if prolog.iter().any(|line| line == "INVALID!") {
                continue;
            }
            functions += 1;
            for (rva, expected) in (start - image.base..).step_by(4).zip(rules_of(prolog)) {
                let found = table.rule(Rva(rva)).expect("code").display(image.arch).to_string();
                let found = found.split("; x29").next().unwrap_or_default().to_owned();
                assert_eq!(found, expected, "at {rva:#x} of {prolog:#?}, {:?}", compiled.report.unsupported_reasons);
                compared += 1;
            }
        }
    }
    assert!(functions > 200, "{functions} functions");
    println!("{functions} packed functions, {compared} places compared");
}

#[test]
fn every_entry_of_windows_arm64_images_has_a_rule_or_a_reason() {
    for options in [&["-O0"][..], &["-O2"]] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = match images::build(&images::WINDOWS_ARM64, options, directory.path()) {
            Ok(path) => path,
            Err(tool) => return elf::skip(tool, "not found"),
        };
        let Some(prologs) = packed_prologs(&path) else { return elf::skip("llvm-readobj-19", "not found") };
        let bytes = std::fs::read(&path).expect("what was linked");
        let image = Image::read(&bytes);
        let compiled = image.compile();
        let table = Table::open(&compiled.bytes).expect("our own table");
        assert_eq!((compiled.report.unwind_entries, compiled.report.unsupported_count), (prologs.len(), 0));
        assert!(prologs.len() > 30, "{} functions", prologs.len());
        for (start, _) in prologs {
            let rule = table.rule(Rva(start - image.base)).expect("code");
            assert_eq!(rule.source(), Some(RuleSource::Pdata), "{start:#x}");
        }
    }
}
