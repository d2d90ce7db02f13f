//! Go programs: what their table of functions tells of frames against `.debug_frame`, which Go's linker writes for the same program and which
//! stripping takes away.

use crate::elf;
use std::path::Path;
use std::process::Command;

use crate::elf::Binary;
use symseal_module::Rva;
use symseal_unwind::compile::{Input, compile};
use symseal_unwind::{Kind, RuleSource, Saved, Table};

const PROGRAM: &str = "package main\n\nimport (\n\t\"fmt\"\n\t\"sort\"\n)\n\nfunc main() {\n\tnumbers := []int{3, 1, 2}\n\tsort.Slice(numbers, func(a, b int) bool { return numbers[a] < numbers[b] })\n\tfmt.Println(numbers)\n}\n";

/// Functions that leave their stack, for a while or for good, without a word in `.debug_frame`.
const CHANGE_STACKS: [&str; 14] = [
    "gogo",
    "runtime.callCgoMmap",
    "runtime.callCgoMunmap",
    "runtime.callCgoSigaction",
    "runtime.clone",
    "runtime.mcall",
    "runtime.morestack",
    "runtime.morestack_noctxt",
    "runtime.nanotime1",
    "runtime.sigfwd",
    "runtime.switchToCrashStack0",
    "runtime.vgetrandom1",
    "runtime.walltime",
    "time.now",
];

/// Who puts a program together: Go's own linker, or where there is C code in it gcc's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Linker {
    Go,
    Gcc,
}

/// Makes the program for a processor; `None` if there is no compiler.
fn program(directory: &Path, architecture: &str, linker: Linker) -> Option<Binary> {
    if linker == Linker::Gcc && !elf::has_c_compiler_of_go() {
        return None;
    }
    let (source, output) = (directory.join("main.go"), directory.join(architecture));
    let (text, uses_c) = match linker {
        Linker::Go => (PROGRAM.to_owned(), "0"),
        Linker::Gcc => (PROGRAM.replace("import (", "import \"C\"\n\nimport ("), "1"),
    };
    std::fs::write(&source, text).expect("a file");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&output)
        .arg(&source)
        .env("GOARCH", architecture)
        .env("GOOS", "linux")
        .env("CGO_ENABLED", uses_c)
        .env("GOFLAGS", "-mod=mod")
        .current_dir(directory)
        .output();
    match built {
        Ok(built) if built.status.success() => Binary::read(output),
        Ok(built) => panic!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(error) => {
            elf::skip("go", &error.to_string());
            None
        }
    }
}

fn check(architecture: &str, linker: Linker) {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(binary) = program(directory.path(), architecture, linker) else { return };
    let parts = binary.parts();
    let debug_frame = object_debug_frame(&binary);
    let of = |input: Input<'_>| compile(&input).expect("a table");
    let by_debug_frame = of(Input { pclntab: None, debug_frame: Some((0, &debug_frame)), plt: &[], ..parts.input() });
    let stripped = of(Input { debug_frame: None, eh_frame: None, eh_frame_hdr: None, ..parts.input() });
    // What the other section has a rule for lacks none.
    let both = of(Input { debug_frame: Some((0, &debug_frame)), ..parts.input() });
    let untold: Vec<_> = both.report.unfollowed.keys().filter(|reason| reason.contains("distances")).collect();
    assert!(untold.is_empty(), "{:?}", both.report.unfollowed);
    let (expected, found) =
        (Table::open(&by_debug_frame.bytes).expect("a table"), Table::open(&stripped.bytes).expect("a table"));
    found.verify().expect("our own table");
    let functions = functions(&binary);
    // Or the padding behind it.
    let name = |at: u64| {
        let address = at + parts.image_base.0;
        let behind = functions.partition_point(|(start, _)| *start <= address);
        behind.checked_sub(1).and_then(|at| functions.get(at)).map_or("", |(_, name)| name.as_str())
    };
    let (mut compared, mut saved, mut missing, mut differing) = (0, 0, 0, Vec::new());
    for at in (found.text_start().0..found.text_end().0).step_by(if architecture == "amd64" { 1 } else { 4 }) {
        let (Some(said), Some(rule)) = (expected.rule(Rva(at)), found.rule(Rva(at))) else { continue };
        if said.source() != Some(RuleSource::DebugFrame) || rule.source() != Some(RuleSource::GoPclntab) {
            missing += usize::from(said.source() == Some(RuleSource::DebugFrame));
            continue;
        }
        // The functions with which stacks begin, and those that change stacks, for good or while another register keeps their own: the other section says
        // nothing of that.
        match rule.kind() {
            Some(Kind::End) => continue,
            Some(Kind::Unsupported | Kind::Fp | Kind::Register) if CHANGE_STACKS.contains(&name(at)) => continue,
            _ => {}
        }
        compared += 1;
        saved += usize::from(matches!(rule.frame_pointer(), Saved::At(_)));
        let same =
            (rule.kind(), rule.offset(), rule.return_address()) == (said.kind(), said.offset(), said.return_address());
        if !same && differing.len() < 10 {
            differing.push(format!(
                "{at:#x} {}: {} instead of {}",
                name(at),
                rule.display(found.arch()),
                said.display(found.arch())
            ));
        }
    }
    println!(
        "{architecture}: {compared} addresses compared, {saved} with a saved frame pointer, {missing} without a rule; {} of {} bytes of code covered; {:?}",
        stripped.report.covered_bytes, stripped.report.text_bytes, stripped.report.unfollowed
    );
    assert!(differing.is_empty(), "{differing:#?}");
    assert!(compared > 100_000 && missing * 50 < compared, "{compared} compared, {missing} missing");
    assert!(architecture != "amd64" || saved * 2 > compared, "{saved} of {compared}");
}

/// Where the functions of a program begin, by rising address, and their names without that of their convention.
fn functions(binary: &Binary) -> Vec<(u64, String)> {
    use object::{Object, ObjectSymbol};
    let file = object::File::parse(binary.bytes.as_slice()).expect("an ELF file");
    let symbols = file.symbols().filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.size() > 0);
    let named = symbols.filter_map(|symbol| {
        let name = symbol.name().ok()?;
        let name = name.strip_suffix(".abi0").unwrap_or(name);
        Some((symbol.address(), name.to_owned()))
    });
    let mut functions: Vec<_> = named.collect();
    functions.sort_by_key(|(start, _)| *start);
    functions
}

/// What `.debug_frame` says of functions that change stacks for good is true before they do, and their one call comes after that. Of the first of a goroutine
/// it does not say that there is no caller.
#[test]
fn what_debug_frame_cannot_know_of_gos_runtime_is_told_otherwise() {
    use object::{Object, ObjectSymbol};
    let directory = tempfile::tempdir().expect("a directory");
    let Some(binary) = program(directory.path(), "amd64", Linker::Gcc) else { return };
    let parts = binary.parts();
    let debug_frame = object_debug_frame(&binary);
    let bytes = compile(&Input { debug_frame: Some((0, &debug_frame)), ..parts.input() }).expect("a table").bytes;
    let table = Table::open(&bytes).expect("a table");
    let file = object::File::parse(binary.bytes.as_slice()).expect("an ELF file");
    let rules = |name: &str| {
        // The name may say which convention it keeps.
        let is_it = |found: &str| found.strip_suffix(".abi0").unwrap_or(found) == name;
        let symbol = file.symbols().find(|symbol| symbol.name().is_ok_and(is_it)).expect(name);
        let start = symbol.address() - parts.image_base.0;
        let rules = (start..start + symbol.size()).filter_map(|at| table.rule(Rva(at)));
        let mut kinds: Vec<Kind> = rules.filter_map(|rule| rule.kind()).filter(|kind| *kind != Kind::Gap).collect();
        kinds.dedup();
        kinds
    };
    assert_eq!(rules("runtime.mcall"), [Kind::Unsupported]);
    assert_eq!(rules("runtime.morestack"), [Kind::Unsupported]);
    assert!(rules("runtime.systemstack").contains(&Kind::Sp));
    // By which C comes back to Go. What Go itself says of it is true on both stacks.
    assert_eq!(rules("runtime.cgocallback"), [Kind::Sp]);
}

/// Functions that run on the stack of the thread for a while and come back, to ask the kernel for the time: the register that they keep their own stack pointer in
/// tells their frame, where the processor's instructions are read; elsewhere nothing does. Stripped or not.
#[test]
fn functions_that_are_away_on_another_stack_are_known_by_the_register_that_keeps_their_own() {
    use object::{Object, ObjectSymbol};
    let cases = [
        ("amd64", "runtime.nanotime1", Some(Kind::Fp)),
        ("arm64", "runtime.nanotime1", Some(Kind::Register)),
        ("386", "runtime.nanotime1", Some(Kind::Fp)),
        ("riscv64", "runtime.nanotime1", None),
    ];
    for (architecture, name, away) in cases {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(binary) = program(directory.path(), architecture, Linker::Go) else { continue };
        let (parts, debug_frame) = (binary.parts(), object_debug_frame(&binary));
        let file = object::File::parse(binary.bytes.as_slice()).expect("an ELF file");
        let is_it = |found: &str| found.strip_suffix(".abi0").unwrap_or(found) == name;
        let symbol = file.symbols().find(|symbol| symbol.name().is_ok_and(is_it)).expect(name);
        let start = symbol.address() - parts.image_base.0;
        for debug_frame in [None, Some((0, debug_frame.as_slice()))] {
            let bytes = compile(&Input { debug_frame, ..parts.input() }).expect("a table").bytes;
            let table = Table::open(&bytes).expect("a table");
            let rules = (start..start + symbol.size()).filter_map(|at| table.rule(Rva(at)));
            let mut kinds: Vec<Kind> = rules.filter_map(|rule| rule.kind()).collect();
            kinds.dedup();
            let own = |kind: &Kind| matches!(kind, Kind::Sp | Kind::Gap);
            match away {
                Some(away) => {
                    assert!(kinds.contains(&away), "{architecture}: {kinds:?}");
                    assert!(kinds.iter().all(|kind| *kind == away || own(kind)), "{architecture}: {kinds:?}");
                    assert_eq!((kinds[0], kinds.len() > 2), (Kind::Sp, true), "{architecture}: {kinds:?}");
                }
                None => assert_eq!(kinds, [Kind::Unsupported], "{architecture}"),
            }
        }
    }
}

/// What Go's own table marks as the first of a stack has no caller, stripped or not, but for what the kernel enters by, and for threads that C code starts.
#[test]
fn the_first_functions_of_stacks_have_no_caller_whatever_debug_frame_says() {
    use object::{Object, ObjectSymbol};
    let of_go = ["runtime.goexit", "runtime.rt0_go", "runtime.mstart", "runtime.sigtramp", "runtime.clone"];
    let cases = [
        ("amd64", Linker::Go, [true, true, true, false, false]),
        ("amd64", Linker::Gcc, [true, true, false, false, false]),
        ("arm64", Linker::Go, [true, true, true, true, false]),
    ];
    for (architecture, linker, ends) in cases {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(binary) = program(directory.path(), architecture, linker) else { continue };
        let parts = binary.parts();
        let debug_frame = object_debug_frame(&binary);
        let file = object::File::parse(binary.bytes.as_slice()).expect("an ELF file");
        for stripped in [false, true] {
            let debug_frame = (!stripped).then_some((0, debug_frame.as_slice()));
            let bytes = compile(&Input { debug_frame, ..parts.input() }).expect("a table").bytes;
            let table = Table::open(&bytes).expect("a table");
            let found = of_go.map(|name| {
                let is_it = |found: &str| found.strip_suffix(".abi0").unwrap_or(found) == name;
                let symbol = file.symbols().find(|symbol| symbol.name().is_ok_and(is_it)).expect(name);
                let start = symbol.address() - parts.image_base.0;
                let kinds = (start..start + symbol.size()).filter_map(|at| table.rule(Rva(at))?.kind());
                let kinds: Vec<Kind> = kinds.filter(|kind| *kind != Kind::Gap).collect();
                !kinds.is_empty() && kinds.iter().all(|kind| *kind == Kind::End)
            });
            assert_eq!(found, ends, "{architecture}, C code: {}, stripped: {stripped}", linker == Linker::Gcc);
        }
    }
}

/// The section, decompressed.
fn object_debug_frame(binary: &Binary) -> Vec<u8> {
    use object::{Object, ObjectSection};
    let file = object::File::parse(binary.bytes.as_slice()).expect("an ELF file");
    let section = file.section_by_name(".debug_frame").expect("debug information");
    section.uncompressed_data().expect("decompressed").into_owned()
}

#[test]
fn the_table_of_functions_says_what_debug_frame_says_on_amd64() {
    check("amd64", Linker::Go);
}

#[test]
fn the_table_of_functions_says_so_of_a_program_with_c_code_too() {
    check("amd64", Linker::Gcc);
}

#[test]
fn the_table_of_functions_says_what_debug_frame_says_on_arm64() {
    check("arm64", Linker::Go);
}
