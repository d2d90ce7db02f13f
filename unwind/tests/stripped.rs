//! Programs that have lost their symbols against the same programs with them: functions are found by the entry, by calls, by words that lead to code and by
//! their instructions, and none begins where the program with symbols has none.

use std::path::Path;
use std::process::Command;

use symseal_module::Rva;
use symseal_unwind::{Kind, Slots, Table};

use crate::elf::{self, Binary};
use crate::toolchains::{self, Toolchain};

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/single_step/program.c");

/// Compiles, and gives the program with symbols and the one without.
fn make(toolchain: &Toolchain, options: &[&str], source: &Path, directory: &Path) -> Option<(Binary, Binary)> {
    let (path, stripped) = (directory.join("program"), directory.join("stripped"));
    let mut compiler = Command::new(toolchain.compiler());
    compiler.args(options).arg("-w").arg("-o").arg(&path).arg(source);
    let Ok(status) = compiler.status() else {
        elf::skip(&toolchain.compiler(), "not found");
        return None;
    };
    assert!(status.success(), "{options:?}");
    let status = Command::new(toolchain.strip()).arg("-o").arg(&stripped).arg(&path).status();
    assert!(status.is_ok_and(|status| status.success()));
    Some((Binary::read(path)?, Binary::read(stripped)?))
}

/// What a rule says, whichever record said it.
fn said(table: &Table<'_>, rva: Rva) -> Option<(String, Slots)> {
    let rule = table.rule(rva)?;
    let is_rule = !matches!(rule.kind(), None | Some(Kind::Gap | Kind::Unsupported));
    is_rule.then(|| (rule.display(table.arch()).to_string(), table.slots(rva).unwrap_or(Slots::SAME)))
}

/// At most so many places may have another rule, and so many of a hundred bytes with a rule may have lost it.
fn check(toolchain: &Toolchain, options: &[&str], most_differ: usize, most_lost: f64) {
    let directory = tempfile::tempdir().expect("a directory");
    let made = make(toolchain, options, Path::new(PROGRAM), directory.path());
    let Some((whole, stripped)) = made else { return };
    let (by_symbols, without) = (whole.compile(), stripped.compile());
    let parts = whole.parts();
    let (table, other) = (Table::open(&by_symbols.bytes), Table::open(&without.bytes));
    let (table, other) = (table.expect("a table"), other.expect("a table"));
    table.verify().and_then(|()| other.verify()).expect("our own tables");
    let (mut told, mut lost, mut differ) = (0, 0, Vec::new());
    for svma in parts.text.iter().flat_map(|range| range.clone().step_by(2)) {
        let rva = Rva(svma - parts.image_base.0);
        match (said(&table, rva), said(&other, rva)) {
            (Some(one), Some(other)) if one != other => differ.push((svma, one.0, other.0)),
            (one, other) => {
                told += usize::from(one.is_some());
                lost += usize::from(one.is_some() && other.is_none());
            }
        }
    }
    let share = 100.0 * lost as f64 / told as f64;
    println!(
        "{options:?}: {} of {} bytes with symbols, {} without; {} half words differ; {:?}",
        by_symbols.report.covered_bytes,
        by_symbols.report.text_bytes,
        without.report.covered_bytes,
        differ.len(),
        without.report.unfollowed,
    );
    for (svma, one, other) in differ.iter().take(40) {
        println!("{svma:#x}: {one} | {other}");
    }
    assert!(differ.len() <= most_differ, "{} differ", differ.len());
    assert!(share < most_lost, "{share:.1} % lost");
}

#[test]
fn stripped_programs_of_thumb_have_the_rules_of_those_with_symbols() {
    // In front of a push that nothing leads to; and `b` behind `bx pc` of three veneers, which nobody reaches.
    check(&toolchains::ARM, &["-O2", "-static", "-mthumb"], 8, 4.0);
}

#[test]
fn stripped_programs_of_arm_have_the_rules_of_those_with_symbols() {
    check(&toolchains::ARM, &["-O2", "-static", "-marm"], 10, 4.0);
}

#[test]
fn stripped_programs_of_riscv64_have_the_rules_of_those_with_symbols() {
    check(&toolchains::RISCV64, &["-O2", "-static"], 0, 2.0);
}

#[test]
fn stripped_programs_of_mips_have_the_rules_of_those_with_symbols() {
    check(&toolchains::MIPSEL, &["-O2", "-static"], 0, 1.0);
}
