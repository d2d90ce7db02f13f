//! Tables of whole C libraries of other processors against the rows that readelf prints of the same call frame information: CFA, return
//! address and every saved register of each row, at its first and at its last byte.

use crate::elf;
use crate::toolchains;
use std::path::Path;
use std::process::Command;

use crate::elf::Binary;
use crate::toolchains::Toolchain;
use symseal_module::Rva;
use symseal_unwind::{Arch, Kind, ReturnAddress, RuleSource, Saved, Table};

/// One row: its addresses, and the words of its columns by their headings.
struct Row<'o> {
    start: u64,
    end: u64,
    columns: Vec<(&'o str, &'o str)>,
}

/// The rows that readelf prints of `.eh_frame`, a table for each entry: headings, then a line for each row. An entry without rows of its own
/// has no table.
fn rows(output: &str) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    let (mut headings, mut end) = (Vec::new(), 0);
    let mut first = 0;
    for line in output.lines() {
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let mut words = line.split_whitespace();
        if let Some((_, range)) = line.split_once(" pc=") {
            end = range.split_once("..").and_then(|(_, end)| number(end.trim())).expect("a range");
            (headings, first) = (Vec::new(), rows.len());
        } else if line.contains(" CIE ") || line.contains("ZERO terminator") {
            (headings, end, first) = (Vec::new(), 0, rows.len());
        } else if words.next() == Some("LOC") {
            headings = words.collect();
        } else if !headings.is_empty() && end > 0 && line.len() > 8 {
            // `r2 (edx)` is one word.
            let joined: Vec<&str> = line.split_whitespace().filter(|word| !word.starts_with('(')).collect();
            let Some(start) = joined.first().and_then(|start| number(start)) else { continue };
            if let Some(last) = rows.get_mut(first..).and_then(|rows| rows.last_mut()) {
                last.end = start;
            }
            let columns = headings.iter().copied().zip(joined.into_iter().skip(1)).collect();
            rows.push(Row { start, end, columns });
        }
    }
    rows
}

/// The register of a heading, as readelf names it.
fn register(arch: Arch, heading: &str) -> Option<u8> {
    (0..arch.registers())
        .filter_map(|number| u8::try_from(number).ok())
        .find(|number| arch.register_name(*number) == heading)
}

/// What differs between the table and `row` at `rva`; `None` where the table says something else on purpose: where its rule is of no source in `of`.
fn differences(table: &Table<'_>, row: &Row<'_>, rva: Rva, of: &[RuleSource]) -> Option<Vec<String>> {
    let arch = table.arch();
    let word = i64::from(arch.word_bytes());
    let rule = table.rule(rva)?;
    let slots = table.slots(rva)?;
    if !rule.source().is_some_and(|source| of.contains(&source)) || matches!(rule.kind(), Some(Kind::Unsupported)) {
        return None;
    }
    let offset = |text: &str| text.strip_prefix('c').and_then(|bytes| bytes.parse::<i64>().ok());
    let mut differing = Vec::new();
    let from_cfa = |words: i16| (i64::from(words) + rule.origin()) * word;
    for (heading, said) in &row.columns {
        let same = match *heading {
            // Nothing else is of any use then.
            "CFA" if rule.kind() == Some(Kind::End) => true,
            "CFA" => match said.find(['+', '-']) {
                Some(at) => {
                    let base = register(arch, &said[..at]).expect("a register");
                    let kind = match rule.kind() {
                        Some(Kind::Sp) => arch.stack_pointer(),
                        Some(Kind::Fp) => arch.frame_pointer(),
                        _ => rule.register(),
                    };
                    (kind, rule.offset() * word) == (base, said[at..].parse().expect("an offset"))
                }
                // An expression.
                None => matches!(rule.kind(), Some(Kind::Deref | Kind::Program | Kind::Signal | Kind::Plt)),
            },
            "ra" => match (rule.return_address(), offset(said)) {
                _ if rule.kind() == Some(Kind::End) => *said == "u",
                (Some(ReturnAddress::AtCfa(words)), Some(bytes)) => from_cfa(words) == bytes,
                (Some(ReturnAddress::InRegister(found)), None) => match said.strip_prefix('r') {
                    Some(number) => number.parse() == Ok(found),
                    // Not said, or said to be the same.
                    None => matches!(*said, "u" | "s") && found == arch.return_address(),
                },
                (Some(ReturnAddress::AtCfa(_)), None) => *said == "exp",
                _ => false,
            },
            _ => {
                let saved = match register(arch, heading) {
                    // rsi and rdi, which functions of Windows alone keep.
                    Some(4 | 5) if arch == Arch::X86_64 => continue,
                    Some(number) if number == arch.frame_pointer() => rule.frame_pointer(),
                    Some(number) => match slots.of(arch, number) {
                        Some(saved) => saved,
                        // No slots: registers that calls do not keep.
                        None => continue,
                    },
                    None => continue,
                };
                match (saved, offset(said)) {
                    (Saved::At(words), Some(bytes)) => !rule.slots_on_fp() && from_cfa(words) == bytes,
                    (Saved::At(_), None) => *said == "exp" && rule.slots_on_fp(),
                    (_, Some(_)) => rule.kind() == Some(Kind::End),
                    // Said to be lost, said to be the same, in another register, or not said.
                    (Saved::Same | Saved::Unknown, None) => true,
                }
            }
        };
        if !same {
            differing.push(format!("{rva}: {heading} {said}: {}", rule.display(arch)));
        }
    }
    Some(differing)
}

fn check(toolchain: &Toolchain, least: usize) {
    let path = toolchain.library("libc.so.6");
    if !path.exists() {
        return elf::skip(toolchain.package, "not there");
    }
    let Some((compared, skipped)) = compare(&path, |row| vec![row.start, row.end - 1], &[RuleSource::EhFrame]) else {
        return;
    };
    assert!(compared > least && skipped * 50 < compared, "{}: {compared} compared, {skipped} not", path.display());
}

/// How many of the `places` of rows are as readelf says, and how many have another rule on purpose; `None` where readelf is not there.
fn compare(path: &Path, places: impl Fn(&Row<'_>) -> Vec<u64>, of: &[RuleSource]) -> Option<(usize, usize)> {
    let library = path.display();
    let binary = Binary::read(path).expect("an ELF file");
    let output = match Command::new("readelf").env("LC_ALL", "C").arg("-wF").arg(path).output() {
        Ok(output) => String::from_utf8(output.stdout).expect("text"),
        Err(error) => {
            elf::skip("readelf", &error.to_string());
            return None;
        }
    };
    let base = binary.parts().image_base.0;
    let compiled = binary.compile();
    let table = Table::open(&compiled.bytes).expect("our own table");
    table.verify().expect("our own table");
    let (mut compared, mut skipped, mut differing) = (0, 0, Vec::new());
    for row in rows(&output).iter().filter(|row| row.start < row.end) {
        for svma in places(row) {
            match differences(&table, row, Rva(svma - base), of) {
                Some(found) => {
                    compared += 1;
                    differing.extend(found);
                }
                None => skipped += 1,
            }
        }
    }
    println!(
        "{library}: {compared} places of rows compared, {skipped} with another rule; {} rows and {} rules in {} bytes; {} of {} bytes of code covered",
        compiled.report.rows,
        compiled.report.rules,
        compiled.bytes.len(),
        compiled.report.covered_bytes,
        compiled.report.text_bytes
    );
    assert!(
        differing.is_empty(),
        "{library}: {} differ: {:#?}",
        differing.len(),
        differing.iter().take(20).collect::<Vec<_>>()
    );
    Some((compared, skipped))
}

/// A switch without a frame, and the calls that need one behind it: what no jump is seen to lead to has the frame that its row says.
const LATE_FRAME: &str = "
    __attribute__((noreturn, noinline)) void dies(int n) { for (;;) __asm__ volatile(\"\" :: \"r\"(n)); }
    volatile int g[10];
    int late(int n, int a, int b) {
        switch (n) {
        case 0: return a + b;
        case 1: g[1] = a; return a * b;
        case 2: g[2] = b; return a - b;
        case 3: return a ^ b;
        case 4: g[4] = a + b; return 7;
        case 5: return a / 3;
        case 6: g[6] = b; return a | b;
        case 7: return a << 2;
        default: dies(n);
        }
    }
    int main(int count, char **names) { return late(count, 3, 4); }";

#[test]
fn what_a_switch_alone_leads_to_has_the_frame_of_its_row() {
    let compiler = toolchains::AARCH64.compiler();
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("late.c");
    std::fs::write(&source, LATE_FRAME).expect("written");
    for level in ["-O1", "-O2", "-Os"] {
        let program = directory.path().join(format!("late{level}"));
        let mut command = Command::new(&compiler);
        command.args([level, "-fno-inline", "-shared", "-fPIC", "-nostdlib"]);
        match command.arg(&source).arg("-o").arg(&program).status() {
            Ok(status) => assert!(status.success(), "{compiler} {level}"),
            Err(error) => return elf::skip(&compiler, &error.to_string()),
        }
        // gcc's rows are right at every instruction, and what the instructions tell besides is the same.
        let every = |row: &Row<'_>| (row.start..row.end).step_by(4).collect();
        let Some((compared, skipped)) = compare(&program, every, &[RuleSource::EhFrame, RuleSource::Instructions])
        else {
            return;
        };
        assert!(compared > 40 && skipped == 0, "{compiler} {level}: {compared} compared, {skipped} not");
    }
}

#[test]
fn the_table_of_the_i686_c_library_says_what_readelf_says() {
    check(&toolchains::I686, 100_000);
}

#[test]
fn the_table_of_the_aarch64_c_library_says_what_readelf_says() {
    check(&toolchains::AARCH64, 30_000);
}

#[test]
fn the_table_of_the_aarch64_cpp_library_says_what_readelf_says_at_every_instruction() {
    let path = toolchains::AARCH64.library("libstdc++.so.6");
    if !path.exists() {
        return elf::skip("aarch64-linux-gnu-g++", "its library is not there");
    }
    let every = |row: &Row<'_>| (row.start..row.end).step_by(4).collect();
    let Some((compared, skipped)) = compare(&path, every, &[RuleSource::EhFrame]) else { return };
    assert!(compared > 200_000 && skipped * 10 < compared, "{compared} compared, {skipped} not");
}

#[test]
fn the_table_of_the_riscv64_c_library_says_what_readelf_says() {
    check(&toolchains::RISCV64, 5_000);
}

/// A function as libgcrypt has some: its CFA is in memory while it works, and the stack pointer's again behind that. DWARF allows the instruction there only
/// where the CFA is a register and an offset (DWARF 5, 6.4.2.2).
#[cfg(target_arch = "x86_64")]
const BEHIND_AN_EXPRESSION: &str = r#"
    .globl main, at_return, worked
    .type main, @function
main:
    .cfi_startproc
    push %rbx
    .cfi_def_cfa_offset 16
    .cfi_offset 3, -16
    mov %rsp, %rax
    .cfi_def_cfa_register 0
    sub $64, %rsp
    and $-32, %rsp
    mov %rax, 32(%rsp)
    # CFA = *(rsp + 32) + 16
    .cfi_escape 0x0f, 5, 0x77, 32, 0x06, 0x23, 16
    .cfi_remember_state
    xor %ebx, %ebx
    mov 32(%rsp), %rsp
    .cfi_def_cfa_register 7
at_return:
    pop %rbx
    .cfi_def_cfa_offset 8
    .cfi_restore 3
    xor %eax, %eax
    ret
    .cfi_restore_state
worked:
    nop
    mov 32(%rsp), %rsp
    # An offset alone does not end the expression, and is kept.
    .cfi_def_cfa_offset 24
    .cfi_def_cfa_register 7
    nop
    ret
    .cfi_endproc
    .size main, . - main
    .section .note.GNU-stack, "", @progbits
"#;

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn a_register_behind_an_expression_keeps_the_offset_as_readelf_and_gdb_say() {
    let dir = tempfile::tempdir().expect("a folder");
    let (source, program) = (dir.path().join("main.s"), dir.path().join("main"));
    std::fs::write(&source, BEHIND_AN_EXPRESSION).expect("a source");
    match Command::new("cc").arg("-o").args([&program, &source]).output() {
        Ok(output) => assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr)),
        Err(error) => return elf::skip("cc", &error.to_string()),
    }
    let binary = Binary::read(&program).expect("the program");
    let report = binary.compile().report;
    assert_eq!(report.unsupported_reasons.len(), 0, "{:?}", report.unsupported_reasons);
    let ends = |row: &Row<'_>| vec![row.start, row.end - 1];
    let Some((compared, skipped)) = compare(&program, ends, &[RuleSource::EhFrame]) else { return };
    // A program of a few lines is mostly what starts it.
    assert!(compared > 15 && skipped * 3 < compared, "{compared} compared, {skipped} not");

    let gdb = ["-nx", "-batch", "-ex", "break *at_return", "-ex", "run", "-ex", "info frame", "-ex", "print/x $rsp"];
    let output = match Command::new("gdb").args(gdb).arg(&program).env_remove("DEBUGINFOD_URLS").output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => return elf::skip("gdb", &error.to_string()),
    };
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number");
    let told = |before: &str, after: &str| {
        let (_, rest) = output.split_once(before).unwrap_or_else(|| panic!("{output}"));
        number(rest.split(after).next().expect("a word").trim())
    };
    // "Stack level 0, frame at CFA:", and the register as the only value that was printed.
    assert_eq!(told("frame at ", ":") - told("$1 = ", "\n"), 16, "{output}");
}

/// The library itself, where it is.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[test]
fn the_table_of_libgcrypt_says_what_readelf_says() {
    let path = Path::new("/lib/x86_64-linux-gnu/libgcrypt.so.20");
    let Some(binary) = Binary::read(path) else { return elf::skip("libgcrypt20", "not there") };
    let reasons = binary.compile().report.unsupported_reasons;
    assert!(!reasons.keys().any(|reason| reason.starts_with("instructions:")), "{reasons:?}");
    let Some((compared, skipped)) = compare(path, |row| vec![row.start, row.end - 1], &[RuleSource::EhFrame]) else {
        return;
    };
    assert!(compared > 1000 && skipped * 50 < compared, "{compared} compared, {skipped} not");
}
