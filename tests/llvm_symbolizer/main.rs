//! `symseal bundle build` and `symseal symbolize` beside llvm-symbolizer and both addr2lines, on the C library, Python, the library of C++, a program
//! each in C++, Rust and Go, and our own.
//!
//! Differences are counted by kind and printed. The kinds marked `(rule)` follow from the published rule of names
//! (docs/names.md) or from a property of the oracle; everything else must stay below one in a thousand.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

#[path = "../../artifact/tests/support/mod.rs"]
mod oracle;
#[path = "../program/mod.rs"]
mod program;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use oracle::addr2line::{addr2line, eu_addr2line};
use oracle::compare::Comparison;
use oracle::debian::{debug_files, unpacked};
use oracle::downloads::{LIBSTDCPP_DEBUG, PYTHON_DEBUG};
use oracle::lookup::Found;
use oracle::{Expected, LIBC, addresses_in, have, libc_debug, llvm_symbolizer};
use program::{command, symseal};
use serde_json::Value;
use symseal_artifact::ObjectFile;
use symseal_bundle::{Bundle, FileRole};
use symseal_module::DebugId;

/// Behind what the oracle does not know, more than [`COMPARED`] are compared.
const ADDRESSES: usize = 26_000;

const COMPARED: u64 = 20_000;

/// The aliases that the module's index lists, by symbol, and the symbols of folded code.
struct Listed {
    aliases: BTreeMap<String, Vec<String>>,
    folded: Vec<String>,
}

fn listed(layout: &Path, id: &DebugId) -> Listed {
    let bundle = Bundle::open_dir(layout).expect("a bundle");
    let module = bundle.module(id).expect("the module");
    let file = module.files.iter().find(|file| file.role == FileRole::ModuleIndex).expect("an index");
    let index: Value = serde_json::from_slice(&bundle.read(file).expect("the index")).expect("JSON");
    let mut listed = Listed { aliases: BTreeMap::new(), folded: Vec::new() };
    for function in index["functions"].as_array().expect("functions") {
        let symbol = function["symbol"].as_str().or(function["name"].as_str()).expect("a name").to_owned();
        if function["folded"] == true {
            listed.folded.push(symbol.clone());
        }
        let aliases = function["aliases"].as_array().into_iter().flatten().filter_map(Value::as_str);
        listed.aliases.entry(symbol).or_default().extend(aliases.map(str::to_owned));
    }
    listed
}

/// The lines that `symseal symbolize` prints for addresses on its standard input.
fn lines(arguments: &[&OsStr], addresses: &[u64]) -> Vec<Value> {
    let mut child = command("symseal")
        .args(["symbolize", "--json"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("symseal starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let lines: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("symseal ends");
    writer.join().expect("the writer ends").expect("all addresses are taken");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Without a bundle the file has the same names, be it read for all of these addresses or for a few alone.
#[track_caller]
fn check_file(binary: &Path, named: &[Value], addresses: &[u64]) {
    let file = [OsStr::new("--file"), binary.as_os_str()];
    let frames = |answers: &[Value]| -> Vec<Value> { answers.iter().map(|answer| answer["frames"].clone()).collect() };
    assert!(frames(&lines(&file, addresses)) == frames(named), "{}: other names without a bundle", binary.display());
    let few = |skipped: usize| addresses.iter().zip(named).skip(skipped).step_by(addresses.len() / 20);
    let given: Vec<String> = few(7).map(|(address, _)| format!("{address:#x}")).collect();
    let ran =
        symseal(["symbolize", "--json"].map(OsStr::new).into_iter().chain(file).chain(given.iter().map(OsStr::new)));
    let told: Vec<Value> = ran.ok().stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(frames(&told), few(7).map(|(_, named)| named["frames"].clone()).collect::<Vec<_>>());
}

/// What `symseal symbolize` prints for the addresses of a module of a bundle.
fn symbolize(layout: &Path, id: &DebugId, addresses: &[u64]) -> (Vec<Value>, Vec<Vec<Found>>) {
    let listed = listed(layout, id);
    let id = id.to_string();
    let answers = lines(&["--bundle".as_ref(), layout.as_os_str(), "--debug-id".as_ref(), id.as_ref()], addresses);
    assert_eq!(answers.len(), addresses.len());
    let found = answers
        .iter()
        .zip(addresses)
        .map(|(answer, address)| {
            assert_eq!(answer["address"].as_str(), Some(format!("{address:#x}").as_str()));
            let frames = answer["frames"].as_array().expect("frames");
            let inlined: Vec<bool> = frames.iter().map(|frame| frame["inlined"] == true).collect();
            let expected: Vec<bool> = (1..=frames.len()).map(|depth| depth < frames.len()).collect();
            assert_eq!(inlined, expected, "all frames but the last are inlined");
            frames.iter().map(|frame| found(frame, &listed)).collect()
        })
        .collect();
    (answers, found)
}

fn found(frame: &Value, listed: &Listed) -> Found {
    let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
    let symbol = text("symbol");
    Found {
        name: text("function"),
        aliases: listed.aliases.get(&symbol).cloned().unwrap_or_default(),
        folded: listed.folded.contains(&symbol),
        file: text("file"),
        line: frame["line"].as_u64().unwrap_or(0),
        column: frame["column"].as_u64().unwrap_or(0),
        symbol,
    }
}

/// A reader besides llvm-symbolizer.
struct Reader {
    tool: &'static str,
    /// A file's addresses → frames.
    read: fn(&Path, &[u64]) -> Vec<Vec<Expected>>,
    /// It is asked for one address in so many, for it is slow with some files.
    one_in: usize,
}

const ADDR2LINE: Reader = Reader { tool: "addr2line", read: addr2line, one_in: 1 };
const EU_ADDR2LINE: Reader = Reader { tool: "eu-addr2line", read: eu_addr2line, one_in: 1 };

/// For each address eu-addr2line walks through a whole unit: it takes 19 ms for one of the C++ program, eight minutes for all. `tests/certify` asks for
/// all of them.
fn eu_addr2line_seldom() -> Reader {
    let one_in = if std::env::var_os("SYMSEAL_EVERY_ADDRESS").is_some() { 1 } else { 20 };
    Reader { one_in, ..EU_ADDR2LINE }
}

/// Builds a bundle of the files and compares at addresses spread over the binary's code.
#[track_caller]
fn check(binary: &Path, debug: Option<&Path>, readers: &[Reader]) {
    let folder = tempfile::tempdir().expect("a folder");
    let layout = folder.path().join("bundle");
    let mut arguments = vec![OsStr::new("bundle"), OsStr::new("build"), binary.as_os_str()];
    arguments.extend(debug.map(Path::as_os_str));
    arguments.extend(["--name", "oracle", "--version", "1", "--output"].map(OsStr::new));
    arguments.push(layout.as_os_str());
    symseal(arguments).ok();

    let bytes = std::fs::read(binary).expect("the binary");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let id = object.debug_id().expect("an id");
    let addresses = addresses_in(&object.unwind_inputs().text, ADDRESSES, 2026);
    let expected = llvm_symbolizer(debug.unwrap_or(binary), &addresses);
    let (named, ours) = symbolize(&layout, id, &addresses);
    if debug.is_none() {
        check_file(binary, &named, &addresses);
    }
    let mut comparison = Comparison::default();
    for ((address, expected), found) in addresses.iter().zip(&expected).zip(&ours) {
        comparison.add(*address, expected, found);
    }
    println!("{}: {comparison}", binary.display());
    comparison.check(COMPARED);
    for Reader { tool, read, one_in } in readers {
        if have(tool) {
            let (addresses, others): (Vec<u64>, Vec<_>) =
                addresses.iter().copied().zip(expected.iter().zip(&ours)).step_by(*one_in).unzip();
            check_places(
                tool,
                COMPARED as usize / one_in,
                &read(debug.unwrap_or(binary), &addresses),
                &addresses,
                &others,
            );
        }
    }
}

/// Compares depth, file and line with a reader that has habits of its own: where it differs and llvm-symbolizer has our frames, that is its habit, and
/// what is left must stay below one in two hundred. Names are llvm-symbolizer's part.
#[track_caller]
fn check_places(
    tool: &str,
    least: usize,
    read: &[Vec<Expected>],
    addresses: &[u64],
    others: &[(&Vec<Expected>, &Vec<Found>)],
) {
    let same = |expected: &[Expected], found: &[Found]| {
        expected.len() == found.len()
            && expected.iter().zip(found).all(|(expected, found)| {
                expected.line == found.line && (found.line == 0 || same_file(&expected.file, &found.file))
            })
    };
    let (mut compared, mut habits, mut differ) = (0, 0, Vec::new());
    let mut one_sided = 0;
    for ((address, expected), (llvm, found)) in addresses.iter().zip(read).zip(others) {
        // What neither side names, and what one does alone: the bytes behind the end of a function, which addr2line gives to it, and which are no
        // frame.
        if found.is_empty() || expected.is_empty() {
            one_sided += usize::from(found.is_empty() != expected.is_empty());
            continue;
        }
        compared += 1;
        match (same(expected, found), same(llvm, found)) {
            (true, _) => {}
            (false, true) => habits += 1,
            (false, false) => differ.push((address, expected, found)),
        }
    }
    let equal = 100.0 * (compared - differ.len()) as f64 / compared as f64;
    println!(
        "{tool}: {equal:.3} % of {compared}; in {habits} it differs and llvm-symbolizer has our frames; {one_sided} more are named by one \
         of us alone"
    );
    assert!(compared >= least * 9 / 10 && equal >= 99.5, "{tool}: {:#?}", &differ[..differ.len().min(3)]);
    assert!(one_sided * 15 < compared, "{tool}: {one_sided} addresses are named by one side alone");
    assert!(habits * 20 < compared, "{tool}: {habits} of {compared} are more than habits");
}

/// Readers join directories and names in their own ways.
fn same_file(one: &str, other: &str) -> bool {
    let name = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    name(one) == name(other)
}

#[test]
fn the_c_library_agrees_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") {
        return;
    }
    let Some(debug) = libc_debug() else { return };
    check(Path::new(LIBC), Some(&debug), &[ADDR2LINE, EU_ADDR2LINE]);
}

#[test]
fn python_and_the_library_of_cpp_agree_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") || !have("dpkg-deb") || !have("apt-get") {
        return;
    }
    for package in [PYTHON_DEBUG, LIBSTDCPP_DEBUG] {
        let Some(folder) = unpacked(&package) else { continue };
        // The program itself, beside its extensions.
        let size = |path: &PathBuf| std::fs::metadata(path).map_or(0, |found| found.len());
        let largest = debug_files(&folder).into_iter().max_by_key(size).expect("a debug file");
        check(&largest, None, &[ADDR2LINE, EU_ADDR2LINE]);
    }
}

/// Builds a program in the folder by the command, whose last argument is the program.
fn built(folder: &Path, sources: &[(&str, &str)], command: &[&str]) -> PathBuf {
    let (tool, arguments) = command.split_first().expect("a tool");
    for (name, content) in sources {
        std::fs::write(folder.join(name), content).expect("a source");
    }
    let run = |experiment: &str| {
        Command::new(tool)
            .args(arguments)
            .envs([("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "0")])
            .env("GOEXPERIMENT", experiment)
            .current_dir(folder)
            .output()
            .expect("the compiler starts")
    };
    let mut output = run("nodwarf5");
    // Go before 1.25 writes DWARF 4 and nothing else, and does not know the word.
    if !output.status.success() {
        output = run("");
    }
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    folder.join("out")
}

#[test]
fn a_program_in_cpp_agrees_with_llvm_symbolizer_and_the_addr2lines() {
    if !have("llvm-symbolizer") || !have("g++") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let sources = [("words.cpp", include_str!("words.cpp"))];
    let program = built(folder.path(), &sources, &["g++", "-std=c++17", "-O2", "-g", "words.cpp", "-o", "out"]);
    check(&program, None, &[ADDR2LINE, eu_addr2line_seldom()]);
}

/// eu-addr2line (elfutils 0.188) lists no inlined calls where what was inlined is of another unit, as in programs of several crates: at 860 of 1,282
/// addresses it had the outermost function alone, with the innermost line.
#[test]
fn a_program_in_rust_agrees_with_llvm_symbolizer_and_addr2line() {
    if !have("llvm-symbolizer") || !have("rustc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let sources = [("main.rs", include_str!("../../artifact/tests/matrix/program.rs"))];
    let command =
        ["rustc", "-g", "-Copt-level=3", "-Clink-arg=-Wl,--build-id", "--edition=2024", "main.rs", "-o", "out"];
    check(&built(folder.path(), &sources, &command), None, &[ADDR2LINE]);
}

/// In DWARF 4: in what Go writes as DWARF 5, addr2line (binutils 2.40) finds no line, and llvm-symbolizer is asked of that in `matrix`. eu-addr2line
/// finds no line of Go in either.
#[test]
fn a_program_in_go_agrees_with_llvm_symbolizer_and_addr2line() {
    if !have("llvm-symbolizer") || !have("go") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let sources = [
        ("main.go", include_str!("../../artifact/tests/matrix/program.go")),
        ("go.mod", "module example.com/words\ngo 1.21\n"),
    ];
    check(&built(folder.path(), &sources, &["go", "build", "-o", "out", "."]), None, &[ADDR2LINE]);
}

#[test]
fn our_own_program_agrees_with_llvm_symbolizer() {
    if !have("llvm-symbolizer") {
        return;
    }
    // The addr2lines take minutes for a program of this size.
    check(program::symseal_path(), None, &[]);
}
