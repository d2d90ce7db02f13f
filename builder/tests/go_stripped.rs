//! Stripped Go programs of every system: the unwind table is made of Go's own table of functions, wherever it stands. The oracle is the call frame
//! information that Go's linker writes for the same program, which stripping takes away.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::inputs::{build, tool};
use symseal_artifact::ObjectFile;
use symseal_bundle::{Bundle, FileRole, LayoutDir};
use symseal_module::Rva;
use symseal_unwind::compile::{Input, compile};
use symseal_unwind::{Arch, Kind, RuleSource, Table};

const PROGRAM: &str = r#"package main

import "sort"

func main() {
	numbers := []int{3, 1, 2}
	sort.Slice(numbers, func(a, b int) bool { return numbers[a] < numbers[b] })
	println(numbers[0])
}
"#;

/// Systems and processors on which Go writes nothing but its own table and DWARF; and the one of which it also writes an exception directory, that knows of one
/// frame for all of a function.
const TARGETS: [(&str, &str); 8] = [
    ("darwin", "amd64"),
    ("darwin", "arm64"),
    ("windows", "amd64"),
    ("windows", "arm64"),
    ("linux", "386"),
    ("linux", "riscv64"),
    ("linux", "arm"),
    ("linux", "mips"),
];

fn program(go: &Path, dir: &Path, (system, processor): (&str, &str), linker: &str) -> PathBuf {
    let source = dir.join("main.go");
    std::fs::write(&source, PROGRAM).unwrap();
    let folder = tempfile::tempdir_in(dir).unwrap().keep();
    let output = folder.join("program");
    let built = Command::new(go)
        .args(["build", "-trimpath", &format!("-ldflags={linker}"), "-o"])
        .args([&output, &source])
        .envs([("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")])
        .envs([("GOOS", system), ("GOARCH", processor)])
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    output
}

/// The unwind table of the program in a bundle, as bytes.
fn table_of(program: PathBuf) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let layout = LayoutDir::create(dir.path().join("bundle")).unwrap();
    let built = build(&[program], &layout).unwrap();
    let bundle = Bundle::open(layout, Some(&built.digest)).unwrap();
    let (_, _, module) = bundle.index().modules().next().unwrap();
    bundle.read(module.file(FileRole::UnwindTable).unwrap()).unwrap()
}

/// The table of what the call frame information of a program says, and nothing else.
fn of_debug_frame(program: &Path, arch: Arch) -> Vec<u8> {
    let bytes = std::fs::read(program).unwrap();
    let object = ObjectFile::parse(&bytes).unwrap();
    let (inputs, id) = (object.unwind_inputs(), object.debug_id().unwrap());
    let frame = inputs.debug_frame.as_ref().unwrap();
    let input = Input {
        image_base: inputs.image_base,
        text: &inputs.text,
        debug_frame: Some((frame.svma, &frame.bytes)),
        ..Input::of(arch, id)
    };
    compile(&input).unwrap().bytes
}

#[test]
fn stripped_programs_of_every_system_have_the_rules_of_their_call_frame_information() {
    let Some(go) = tool("go") else { return };
    let dir = tempfile::tempdir().unwrap();
    for target in TARGETS {
        let (whole, stripped) = (program(&go, dir.path(), target, ""), program(&go, dir.path(), target, "-s -w"));
        let stripped = table_of(stripped);
        let found = Table::open(&stripped).unwrap();
        let whole = of_debug_frame(&whole, found.arch());
        let expected = Table::open(&whole).unwrap();
        assert_eq!(found.verify(), Ok(()));
        assert_eq!(expected.text_start(), found.text_start(), "the same code");
        let (mut compared, mut missing, mut changing, mut differing) = (0, 0, 0, Vec::new());
        let step = match target.1 {
            "amd64" | "386" => 1,
            "riscv64" => 2,
            _ => 4,
        };
        for at in (found.text_start().0..found.text_end().0).step_by(step) {
            let (Some(said), Some(rule)) = (expected.rule(Rva(at)), found.rule(Rva(at))) else { continue };
            if said.source() != Some(RuleSource::DebugFrame) {
                continue;
            }
            if rule.source() != Some(RuleSource::GoPclntab) {
                missing += 1;
                continue;
            }
            // With what stacks begin and where they are changed, the section says nothing of.
            if matches!(rule.kind(), Some(Kind::End | Kind::Unsupported | Kind::Fp | Kind::Register)) {
                changing += 1;
                continue;
            }
            compared += 1;
            let same = (rule.kind(), rule.offset(), rule.return_address())
                == (said.kind(), said.offset(), said.return_address());
            if !same && differing.len() < 10 {
                let [rule, said] = [rule, said].map(|rule| rule.display(found.arch()).to_string());
                differing.push(format!("{at:#x}: {rule} instead of {said}"));
            }
        }
        println!(
            "{target:?}: {compared} addresses compared, {missing} without a rule, {changing} of functions that change stacks"
        );
        assert!(differing.is_empty(), "{target:?}: {differing:#?}");
        let least = if step == 1 { 100_000 } else { 50_000 };
        assert!(compared > least && missing * 50 < compared, "{target:?}: {compared} compared, {missing} missing");
        // `unwind/tests/go_tables.rs` holds them one by one; of others these rules would be false.
        assert!(changing * 100 < compared, "{target:?}: {compared} compared, {changing} not");
    }
}

/// How many addresses have a rule of Go's table, and how many of those have no caller.
fn of_go(table: &[u8], step: usize) -> (usize, usize) {
    let table = Table::open(table).unwrap();
    let rules = (table.text_start().0..table.text_end().0).step_by(step).filter_map(|at| table.rule(Rva(at)));
    let of_go = rules.filter(|rule| rule.source() == Some(RuleSource::GoPclntab));
    of_go.fold((0, 0), |(all, ends), rule| (all + 1, ends + usize::from(rule.kind() == Some(Kind::End))))
}

/// Reproducible builds leave the id empty (`-buildid=`), others the record of the build, and in Windows programs no section is called after the table.
#[test]
fn the_table_of_a_windows_program_is_found_without_a_build_id_or_a_record_of_the_build() {
    const RECORD: &[u8] = b"\xff Go buildinf:";
    let Some(go) = tool("go") else { return };
    let dir = tempfile::tempdir().unwrap();
    for (target, step) in [(("windows", "amd64"), 1), (("windows", "arm64"), 4)] {
        let [with_id, without] = ["-s -w", "-s -w -buildid="].map(|linker| program(&go, dir.path(), target, linker));
        let expected = of_go(&table_of(with_id), step);
        assert!(expected.0 > 10_000 && expected.1 > 0, "{target:?}: {expected:?}");
        assert_eq!(of_go(&table_of(without.clone()), step), expected, "{target:?}");
        let mut bytes = std::fs::read(&without).unwrap();
        let mut records = 0;
        while let Some(at) = bytes.windows(RECORD.len()).position(|window| window == RECORD) {
            bytes[at..at + RECORD.len()].fill(0);
            records += 1;
        }
        assert!(records > 0, "{target:?}");
        std::fs::write(&without, &bytes).unwrap();
        assert_eq!(of_go(&table_of(without), step), expected, "{target:?}");
    }
}

/// A Windows program that holds the file of one in Go, at the addresses that this has in its own process: the table is not of the code around it.
#[test]
fn the_table_of_a_program_that_another_one_holds_says_nothing_of_that_one() {
    let (Some(go), Some(gcc)) = (tool("go"), tool("x86_64-w64-mingw32-gcc")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let held = program(&go, dir.path(), ("windows", "amd64"), "-s -w");
    std::fs::write(dir.path().join("held.S"), format!(".data\n.p2align 12\n.incbin \"{}\"\n", held.display())).unwrap();
    let functions: String = (0..20_000).map(|at| format!("int f{at}(int *x) {{ return g(x) + {at}; }}\n")).collect();
    let main =
        format!("int g(int *x);\n{functions}int main(void) {{ return f0(0); }}\nint g(int *x) {{ return x != 0; }}\n");
    std::fs::write(dir.path().join("around.c"), main).unwrap();
    let built = Command::new(gcc)
        .args(["-O1", "-s", "-o", "around.exe", "around.c", "held.S"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let (around, go) = (table_of(dir.path().join("around.exe")), table_of(held));
    let [around, go] = [&around, &go].map(|bytes| Table::open(bytes).unwrap());
    assert!(around.text_end().0 > go.text_start().0 + 0x40000, "the addresses are the same");
    let of_go = |at: &u64| around.rule(Rva(*at)).is_some_and(|rule| rule.source() == Some(RuleSource::GoPclntab));
    let found = (around.text_start().0..around.text_end().0).find(of_go);
    assert_eq!(found, None, "{found:x?}");
}
