//! Index tables of whole programs of 32-bit ARM against what llvm-readelf prints of them: every function that it describes has a rule, and the
//! rule of its body gives back what the operations give back.

use crate::elf;
use std::process::Command;

use crate::elf::Binary;
use crate::toolchains::ARM;
use symseal_module::Rva;
use symseal_unwind::{Kind, ReturnAddress, RuleSource, Table};

/// One entry as it is printed: the function, and the operations in words; none for one that nobody can unwind through.
type Entry = (u64, Option<Vec<String>>);

fn entries(output: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for line in output.lines().map(str::trim) {
        if let Some(address) = line.strip_prefix("FunctionAddress: 0x") {
            entries.push((u64::from_str_radix(address, 16).expect("an address"), None));
        } else if line.starts_with("Opcodes [") {
            entries.last_mut().expect("a function").1 = Some(Vec::new());
        } else if let (Some((_, words)), Some((_, Some(known)))) = (line.split_once(" ; "), entries.last_mut()) {
            known.push(words.to_owned());
        }
    }
    entries
}

/// Base register, CFA and return address in bytes, from the words; `None` for what is not expressed here.
fn frame(words: &[String]) -> Option<(u8, i64, Option<i64>)> {
    let register = |name: &str| match name {
        "fp" => Some(11),
        "ip" => Some(12),
        "sp" => Some(13),
        "lr" => Some(14),
        "pc" => Some(15),
        _ => name.strip_prefix('r')?.parse::<u8>().ok(),
    };
    let (mut base, mut at, mut link) = (13, 0i64, None);
    for operation in words {
        if operation == "finish" {
            break;
        } else if let Some(list) = operation.strip_prefix("pop {").and_then(|list| list.strip_suffix('}')) {
            for name in list.split(", ") {
                if let Some(number) = name.strip_prefix('d').and_then(|number| number.parse::<u8>().ok()) {
                    assert!(number < 32);
                    at += 8;
                    continue;
                }
                match register(name)? {
                    13 => return None,
                    14 => link = Some(at),
                    _ => {}
                }
                at += 4;
            }
        } else if let Some(bytes) = operation.strip_prefix("vsp = vsp + ") {
            at += bytes.parse::<i64>().ok()?;
        } else if let Some(bytes) = operation.strip_prefix("vsp = vsp - ") {
            at -= bytes.parse::<i64>().ok()?;
        } else if let Some(name) = operation.strip_prefix("vsp = ") {
            (base, at) = (register(name)?, 0);
        } else {
            return None;
        }
    }
    Some((base, at, link.map(|link| link - at)))
}

fn check(binary: &Binary, least: usize) {
    let readelf = ["llvm-readelf-19", "llvm-readelf"]
        .into_iter()
        .find_map(|tool| Command::new(tool).env("LC_ALL", "C").arg("-u").arg(&binary.path).output().ok());
    let Some(output) = readelf else { return elf::skip("llvm-readelf", "not found") };
    let compiled = binary.compile();
    let table = Table::open(&compiled.bytes).expect("our own table");
    table.verify().expect("our own table");
    let base = binary.parts().image_base.0;
    let entries = entries(&String::from_utf8_lossy(&output.stdout));
    let ends = entries.iter().skip(1).map(|(start, _)| *start).chain([base + table.text_end().0]);
    let (mut compared, mut left, mut differing) = (0, 0, Vec::new());
    for ((start, words), end) in entries.iter().zip(ends) {
        let Some(words) = words else { continue };
        let bodies: Vec<_> = (*start..end)
            .step_by(2)
            .filter_map(|svma| table.rule(Rva(svma - base)))
            .filter(|rule| rule.source() == Some(RuleSource::Exidx))
            .collect();
        let Some((register, cfa, link)) = frame(words) else {
            left += 1;
            continue;
        };
        compared += 1;
        let same = |rule: &symseal_unwind::Rule| {
            let found = match rule.kind() {
                Some(Kind::Sp) => 13,
                Some(Kind::Fp) => 11,
                Some(Kind::Register) => rule.register(),
                _ => return false,
            };
            let found_link = match rule.return_address() {
                Some(ReturnAddress::AtCfa(words)) => Some(i64::from(words) * 4),
                _ => None,
            };
            (found, rule.offset() * 4, found_link) == (register, cfa, link)
        };
        if bodies.is_empty() || !bodies.iter().all(same) {
            differing.push(format!(
                "{start:#x}: {words:?}: {:?}",
                bodies.iter().map(|rule| rule.display(table.arch()).to_string()).collect::<Vec<_>>()
            ));
        }
    }
    println!(
        "{}: {compared} functions compared, {left} not; {} rows, {} of {} bytes of code covered; {:?} {:?}",
        binary.path.display(),
        compiled.report.rows,
        compiled.report.covered_bytes,
        compiled.report.text_bytes,
        compiled.report.unfollowed,
        compiled.report.unsupported_reasons,
    );
    assert!(differing.is_empty(), "{} differ: {:#?}", differing.len(), differing.iter().take(10).collect::<Vec<_>>());
    // Both trampolines pop the stack pointer too.
    assert!(compared >= least && left <= 2, "{compared} compared, {left} not");
}

#[test]
fn every_function_of_the_arm_c_library_that_the_index_describes_has_the_rule_of_its_operations() {
    let Some(binary) = Binary::read(ARM.library("libc.so.6")) else { return elf::skip(ARM.package, "not there") };
    check(&binary, 100);
}

#[test]
fn every_function_of_the_arm_loader_and_unwinder_has_the_rule_of_its_operations() {
    for name in ["ld-linux-armhf.so.3", "libgcc_s.so.1"] {
        let Some(binary) = Binary::read(ARM.library(name)) else { return elf::skip(ARM.package, "not there") };
        check(&binary, 1);
    }
}
