//! What compilers make of one program each in C++, Rust and Go, beside llvm-symbolizer. The table that it prints is the one
//! in docs/accuracy.md.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

use crate::support::accuracy::{Measured, measure};
use crate::support::compare::Comparison;
use crate::support::{have, in_parallel, is_there, llvm_symbolizer_in, lookup, run};
use std::path::{Path, PathBuf};
use std::process::Command;
use symseal_artifact::{DebugFiles, ObjectFile, functions};

/// Templates, lambdas, inlined calls, virtual functions, exceptions, a static and a folded function.
const CPP: &str = include_str!("program.cpp");

const RUST: &str = include_str!("program.rs");

const GO: &str = include_str!("program.go");

/// One way of building one of the programs.
struct Case {
    name: String,
    tool: &'static str,
    arguments: Vec<String>,
    /// For Go.
    environment: Vec<(&'static str, &'static str)>,
    /// What the program goes through when it is built.
    after: &'static [&'static str],
}

const CPP_FLAGS: &[(&str, &[&str])] = &[
    ("-O0", &["-O0", "-g"]),
    ("-O2, DWARF 5", &["-O2", "-gdwarf-5"]),
    ("-O2, DWARF 4", &["-O2", "-gdwarf-4"]),
    ("-O2, DWARF 3", &["-O2", "-gdwarf-3"]),
    ("-O2, DWARF 2", &["-O2", "-gdwarf-2"]),
];

const GXX_FLAGS: &[(&str, &[&str])] = &[
    ("-O2, LTO", &["-O2", "-g", "-flto"]),
    ("-O2, DWARF 4, dwz", &["-O2", "-gdwarf-4"]),
    ("-O2, DWARF 5, dwz", &["-O2", "-gdwarf-5"]),
    ("-O2, LTO, dwz", &["-O2", "-g", "-flto"]),
    ("-O2, DWARF 4, type units", &["-O2", "-gdwarf-4", "-fdebug-types-section"]),
    ("-O2, DWARF 5, type units", &["-O2", "-gdwarf-5", "-fdebug-types-section"]),
    ("-O3, hot and cold parts", &["-O3", "-g", "-freorder-blocks-and-partition", "-ffunction-sections"]),
];

const CLANGXX_FLAGS: &[(&str, &[&str])] = &[
    ("-O2, LTO", &["-O2", "-g", "-flto", "-fuse-ld=lld"]),
    ("-O2, thin LTO", &["-O2", "-g", "-flto=thin", "-fuse-ld=lld"]),
    ("-O2, icf=all", &["-O2", "-g", "-ffunction-sections", "-fuse-ld=lld", "-Wl,--icf=all,--gc-sections"]),
    ("-O2, DWARF 4, type units", &["-O2", "-gdwarf-4", "-fdebug-types-section"]),
    ("-O2, DWARF 5, type units", &["-O2", "-gdwarf-5", "-fdebug-types-section"]),
    ("-O2, split DWARF 4", &["-O2", "-gdwarf-4", "-gsplit-dwarf"]),
    ("-O2, split DWARF 5", &["-O2", "-gdwarf-5", "-gsplit-dwarf"]),
];

/// Shares entries among the units of the one file.
const DWZ: &[&str] = &["dwz", "out"];

const RUST_FLAGS: &[(&str, &[&str])] = &[
    ("opt 0", &["-g"]),
    ("opt 3", &["-g", "-Copt-level=3"]),
    ("opt 3, DWARF 5", &["-g", "-Copt-level=3", "-Cdwarf-version=5"]),
    ("opt 3, lld, icf=all", &["-g", "-Copt-level=3", "-Clink-arg=-fuse-ld=lld", "-Clink-arg=-Wl,--icf=all"]),
    ("opt 3, dwz", &["-g", "-Copt-level=3"]),
    ("opt 3, v0 names", &["-g", "-Copt-level=3", "-Csymbol-mangling-version=v0"]),
    ("opt 3, line tables", &["-Cdebuginfo=line-tables-only", "-Copt-level=3"]),
    ("opt 3, thin LTO", &["-g", "-Copt-level=3", "-Clto=thin"]),
    ("opt 3, fat LTO", &["-g", "-Copt-level=3", "-Clto=fat", "-Cpanic=abort"]),
    ("opt 3, split packed", &["-g", "-Copt-level=3", "-Csplit-debuginfo=packed"]),
    ("opt 3, no debug information", &["-g", "-Copt-level=3", "-Cstrip=debuginfo"]),
];

/// Go writes DWARF 5 since 1.25, unless an experiment of its own says otherwise, which older ones do not know.
const GO_DWARF_4: &str = "optimised, DWARF 4";

const GO_FLAGS: &[(&str, &[&str])] =
    &[("optimised", &[]), (GO_DWARF_4, &[]), ("not optimised", &["-gcflags=all=-N -l"]), ("PIE", &["-buildmode=pie"])];

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |title: &str, tool: &'static str, flags: &[&str], rest: &[&str], environment: &[_]| {
        let is_shared = title.ends_with(", dwz");
        cases.push(Case {
            after: if is_shared { DWZ } else { &[] },
            name: title.to_owned(),
            tool,
            arguments: flags.iter().chain(rest).map(|argument| (*argument).to_owned()).collect(),
            environment: environment.to_vec(),
        });
    };
    for (tool, own) in [("g++", GXX_FLAGS), ("clang++", CLANGXX_FLAGS)] {
        if !have(tool) {
            continue;
        }
        for (name, flags) in CPP_FLAGS.iter().chain(own) {
            if flags.contains(&"-fuse-ld=lld") && !have("ld.lld") || name.ends_with(", dwz") && !have("dwz") {
                continue;
            }
            add(&format!("C++, {tool} {name}"), tool, flags, &["-std=c++17", "main.cpp", "-o", "out"], &[]);
        }
    }
    if have("rustc") {
        for (name, flags) in RUST_FLAGS {
            if name.contains("lld") && !have("ld.lld") || name.ends_with(", dwz") && !have("dwz") {
                continue;
            }
            add(&format!("Rust, {name}"), "rustc", flags, &["--edition=2021", "main.rs", "-o", "out"], &[]);
        }
    }
    if have("go") {
        for (name, flags) in GO_FLAGS {
            let build: Vec<&str> = std::iter::once("build").chain(flags.iter().copied()).collect();
            let mut local = vec![("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")];
            if *name == GO_DWARF_4 {
                local.push(("GOEXPERIMENT", "nodwarf5"));
            }
            add(&format!("Go, {name}"), "go", &build, &["-o", "out", "."], &local);
        }
    }
    cases
}

fn build(case: &Case, folder: &Path) -> bool {
    std::fs::create_dir_all(folder).expect("a folder");
    for (name, content) in
        [("main.cpp", CPP), ("main.rs", RUST), ("main.go", GO), ("go.mod", "module example.com/matrix\ngo 1.21\n")]
    {
        // Go takes every source in a folder.
        let is_needed = match case.tool {
            "rustc" => name == "main.rs",
            "go" => name == "main.go" || name == "go.mod",
            _ => name == "main.cpp",
        };
        if is_needed {
            std::fs::write(folder.join(name), content).expect("a source");
        }
    }
    let built = Command::new(case.tool)
        .args(&case.arguments)
        .envs(case.environment.iter().copied())
        .current_dir(folder)
        .output()
        .expect("the compiler starts");
    if !built.status.success() {
        println!("SKIP {}: {}", case.name, String::from_utf8_lossy(&built.stderr).trim());
    }
    let done = |after: &[&str]| after.split_first().is_none_or(|(tool, rest)| run(tool, rest, folder).is_some());
    built.status.success() && done(case.after)
}

/// Files beside the program that hold its split units.
fn split_files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "dwo" || extension == "dwp"))
        .collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).expect("a file")).collect()
}

fn compare(folder: &Path) -> Measured {
    let program = folder.join("out");
    let bytes = std::fs::read(&program).expect("the program");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let split = split_files(folder);
    let split: Vec<ObjectFile<'_>> = split.iter().map(|bytes| ObjectFile::parse(bytes).expect("an object")).collect();
    let stream = functions(&object, &DebugFiles { split: &split, ..DebugFiles::default() }).expect("functions");
    lookup::check_shape(&stream);
    let base = object.image_base().0;
    measure(&object.unwind_inputs().text, |addresses| {
        let mut comparison = Comparison::default();
        for (address, expected) in addresses.iter().zip(&llvm_symbolizer_in(folder, &program, addresses)) {
            comparison.add(*address, expected, &lookup::frames(&stream, address - base));
        }
        comparison
    })
}

#[test]
fn every_way_of_building_agrees_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") {
        return;
    }
    if !is_there("llvm-symbolizer-19") {
        println!("llvm-symbolizer-19 is not there; an older one is asked");
    }
    let cases: Vec<(usize, Case)> = cases().into_iter().enumerate().collect();
    let folder = tempfile::tempdir().expect("a folder");
    let measured = in_parallel(&cases, |(number, case)| {
        let folder = folder.path().join(number.to_string());
        build(case, &folder).then(|| compare(&folder))
    });
    let (mut wrong, mut differing) = (Vec::new(), Vec::new());
    let mut all = Comparison::default();
    for ((_, case), measured) in cases.iter().zip(measured) {
        let Some(measured) = measured else { continue };
        measured.print("C++, Rust and Go, one program each", &case.name);
        // Which case a rare difference comes from.
        for (kind, (count, _)) in measured.comparison.kinds.iter().filter(|(kind, _)| !kind.starts_with('(')) {
            differing.push(format!("{}: {count} {kind}", case.name));
        }
        wrong.extend(measured.verdict(&case.name));
        if measured.comparison.compared < 2000 {
            wrong.push(format!("{}: fewer than 2,000 addresses", case.name));
        }
        all.add_all(measured.comparison);
    }
    println!("{}\n{all}", differing.join("\n"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
