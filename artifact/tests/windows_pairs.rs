//! Windows programs beside what other readers say of them: Microsoft's own (through Breakpad's `dump_syms`),
//! llvm-symbolizer and pdb-addr2line; real pairs of PE and PDB from package registries, and pairs made here.

use crate::support::accuracy::measure;
use crate::support::downloads::{CLR_LOADER, DEBUGPY, Download, NODE_PTY};
use crate::support::{addresses_in, fixtures, have, in_parallel, lookup, run, symbolizer as symbolizer_of};
use crate::windows::Module;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use symseal_artifact::{
    Arch, Checksum, DebugFiles, IdKind, ObjectFile, PdbFile, ReleaseFile, functions, pdb_functions,
};
use symseal_symx::{FunctionRecord, SymbolSource};

/// What a Breakpad file says: functions by start, and line records.
#[derive(Default)]
struct Breakpad {
    functions: Vec<(u64, u64, String)>,
    /// Start, size, line, file.
    lines: Vec<(u64, u64, u64, String)>,
}

fn breakpad(path: &Path) -> Breakpad {
    let text = std::fs::read(path).expect("a file");
    let mut parsed = Breakpad::default();
    let mut files: HashMap<String, String> = HashMap::new();
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    for line in String::from_utf8_lossy(&text).lines() {
        let words: Vec<&str> = line.trim_end().split(' ').collect();
        match words.as_slice() {
            ["FILE", number, path @ ..] => {
                files.insert((*number).to_owned(), path.join(" "));
            }
            ["FUNC", "m", start, size, _, name @ ..] | ["FUNC", start, size, _, name @ ..] => {
                parsed.functions.push((hex(start), hex(size), name.join(" ")));
            }
            [start, size, line, file] if files.contains_key(*file) => {
                parsed.lines.push((hex(start), hex(size), line.parse().expect("a line"), files[*file].clone()));
            }
            _ => {}
        }
    }
    parsed
}

/// Microsoft's reader (DIA), on which Breakpad's `dump_syms` rests, has functions and lines of the same PDB, also of one
/// whose code was moved after linking.
#[test]
fn pdbs_agree_with_what_microsofts_reader_said() {
    let Some(folder) = fixtures() else { return };
    for (pdb, sym) in [
        ("breakpad/src/tools/windows/dump_syms/testdata/dump_syms_regtest.pdb", "sym"),
        ("breakpad/src/tools/windows/dump_syms/testdata/dump_syms_regtest64.pdb", "sym"),
        ("breakpad/src/tools/windows/dump_syms/testdata/omap_stretched.pdb", "sym"),
        ("symbolic/symbolic-testutils/fixtures/windows/crash.pdb", "sym"),
        ("symbolic/symbolic-testutils/fixtures/windows/CrashWithException.pdb", "pdb.sym"),
    ] {
        let path = folder.join(pdb);
        let bytes = std::fs::read(&path).expect("a PDB");
        let stream = pdb_functions(&PdbFile::parse(&bytes).expect("a PDB")).expect("functions");
        lookup::check_shape(&stream);
        let expected = breakpad(&path.with_extension(sym));
        let (mut starts, mut sizes) = (0, 0);
        for (start, size, name) in &expected.functions {
            let found = stream.functions.iter().find(|function| function.start.0 == *start);
            starts += u64::from(found.is_some());
            let is_equal = found.is_some_and(|found| found.size == *size);
            sizes += u64::from(is_equal);
            if !is_equal {
                println!(
                    "{start:#x} {size:#x} {name}: {:?}",
                    found.map(|found| (found.start, found.size, found.source))
                );
            }
        }
        let (mut lines, mut equal) = (0, 0);
        for (start, size, line, file) in &expected.lines {
            if *size == 0 {
                continue;
            }
            lines += 1;
            let frames = lookup::frames(&stream, *start);
            // A line of an inlined function is given to the function that it is in.
            let is_equal = frames.iter().any(|frame| frame.line == *line && frame.file.eq_ignore_ascii_case(file));
            equal += u64::from(is_equal);
            if !is_equal && lines - equal < 6 {
                println!("{start:#x} {line} {file}: {frames:?}");
            }
        }
        let all = expected.functions.len() as u64;
        println!(
            "{pdb}: {starts} of {all} functions, {sizes} of equal size; {equal} of {lines} lines; {:?}",
            stream.statistics
        );
        assert!(starts * 1000 >= all * 995 && equal * 1000 >= lines * 995, "{pdb}");
    }
}

/// Compares a pair at addresses spread over its code: 995 of 1000 must agree.
#[track_caller]
fn check_pair(table: &str, title: &str, path: &Path) {
    let module = Module::read(path);
    let text = ObjectFile::parse(&module.bytes).expect("a PE").unwind_inputs().text;
    let measured = measure(&text, |addresses| module.compare_at(addresses));
    let (compared, equal) = module.second_opinion(&addresses_in(&text, 2500, 7));
    measured.print(table, title);
    println!("{title}: {equal} of {compared} addresses as the second reader has them");
    println!("{title}: {:?}\n{}", module.stream.statistics, measured.comparison);
    assert!(equal * 1000 >= compared * 995, "{title}: {equal} of {compared}");
    assert_eq!(measured.verdict(title), None);
}

/// Compares the pairs of a package, whose paths in it are their titles.
fn check_package(package: &str, folder: &Path, pairs: &[PathBuf]) {
    in_parallel(pairs, |pair| {
        let title = pair.strip_prefix(folder).expect("below the folder").display().to_string();
        check_pair(&format!("Windows: PE with PDB of {package}"), &title, pair);
    });
}

const MADE: &str = "Windows: made by clang and lld-link, or MinGW";

/// Unpacks a package below a folder; says so where it is not to be had.
pub(crate) fn unpack(package: &Download, folder: &Path) -> bool {
    let (tool, options) = if package.name == "node-pty" { ("tar", "-xzf") } else { ("unzip", "-qo") };
    let Some(archive) = package.file().filter(|_| have(tool)) else { return false };
    run(tool, &[options, &archive.display().to_string()], folder).is_some()
}

/// Files below a folder that have a PDB beside them.
fn pairs_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind != "pdb") && path.with_extension("pdb").is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[test]
fn pairs_of_a_wheel_and_of_an_npm_package_agree() {
    if !have("llvm-symbolizer") || !have("llvm-undname") || !have("llvm-cxxfilt") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    if unpack(&DEBUGPY, folder.path()) {
        let pairs = pairs_below(folder.path());
        assert_eq!(pairs.len(), 6, "{pairs:?}");
        check_package("debugpy 1.8.22 (PyPI, win_amd64)", folder.path(), &pairs);
    }
    let folder = tempfile::tempdir().expect("a folder");
    if unpack(&NODE_PTY, folder.path()) {
        let pairs = pairs_below(folder.path());
        assert_eq!(pairs.len(), 10, "{pairs:?}");
        check_package("node-pty 1.1.0 (npm)", folder.path(), &pairs);
    }
}

const SOURCE: &str = r#"
#include "part.h"
struct point { int x, y; };
namespace shapes {
template <typename T> struct box { T side; T area(int times) const; };
template <typename T> T box<T>::area(int times) const {
    T all = 0;
    for (int i = 0; i < times; i++)
        all += part::twice(side) * i;
    return all;
}
}
__attribute__((noinline)) int first(int x) { return part::thrice(x) + 1; }
__attribute__((noinline)) int second(int x) { return part::thrice(x) + 1; }
static __attribute__((noinline)) long only_here(int x) {
    volatile long y = part::thrice(x);
    if (y > 3)
        y = part::twice(x) + part::thrice(x);
    return y;
}
template <int N> __attribute__((noinline)) int work(int x) {
    int all = x * N;
    for (int i = 0; i < N + 3; i++)
        all += part::thrice(all ^ (i + N)) - part::twice(i * N);
    return all;
}
template <int N> __attribute__((noinline)) int chain(int x) { return work<N>(x) + chain<N - 1>(x); }
template <> __attribute__((noinline)) int chain<0>(int x) { return work<0>(x); }
extern "C" long start(int x) {
    shapes::box<int> a{x};
    shapes::box<short> b{short(x)};
    return first(x) + second(x) + a.area(x) + b.area(x) + only_here(x) + chain<31>(x);
}
"#;

const PART: &str = "#pragma once
namespace part {
static inline __attribute__((always_inline)) int twice(int x) {
    volatile int y = x;
    return y + y;
}
static inline __attribute__((always_inline)) int thrice(int x) {
    int all = twice(x);
    all += x;
    return all;
}
}
";

/// A DLL made by clang and lld-link; none without them.
fn made(folder: &Path, name: &str, target: &str, flags: &[&str], link: &[&str]) -> Option<PathBuf> {
    if !have("clang") || !have("lld-link") {
        return None;
    }
    std::fs::write(folder.join("main.cpp"), SOURCE).expect("a source");
    std::fs::write(folder.join("part.h"), PART).expect("a source");
    let (object, out) = (format!("{name}.obj"), format!("/out:{name}.dll"));
    let target = format!("--target={target}-pc-windows-msvc");
    let mut all = vec![target.as_str(), "-ffunction-sections", "-c", "main.cpp", "-o", &object];
    all.extend(flags);
    run("clang", &all, folder).expect("clang");
    let mut all = vec!["/dll", "/noentry", "/nodefaultlib", "/debug", "/export:start", "/safeseh:no", &object, &out];
    all.extend(link);
    run("lld-link", &all, folder).expect("lld-link");
    Some(folder.join(format!("{name}.dll")))
}

#[test]
fn pairs_made_here_agree_and_their_sources_have_checksums() {
    let folder = tempfile::tempdir().expect("a folder");
    for target in ["x86_64", "i686", "aarch64"] {
        for level in ["-O0", "-O2"] {
            let flags = [level, "-g", "-gcodeview", "-gcolumn-info"];
            let name = format!("{target}{level}");
            let Some(dll) = made(folder.path(), &name, target, &flags, &["/opt:icf"]) else { return };
            if have("llvm-symbolizer") {
                check_pair(MADE, &format!("{target} {level}, folded code"), &dll);
            }
            let stream = Module::read(&dll).stream;
            for source in &stream.sources {
                let path = stream.strings.get(source.path);
                let Some(Checksum::Md5(found)) = source.checksum else { panic!("{path}: {:?}", source.checksum) };
                let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
                let name = path.rsplit(['/', '\\']).next().expect("a name");
                let text = run("md5sum", &[name], folder.path()).expect("md5sum");
                assert_eq!(text.split_whitespace().next(), Some(found.as_str()), "{path}");
            }
            assert_eq!(stream.sources.len(), 2, "{:?}", stream.sources);
            assert!(stream.functions.iter().flat_map(|function| &function.rows).any(|row| row.column > 0));
        }
    }
}

fn named<'s>(module: &'s Module, name: &str) -> &'s FunctionRecord {
    let is_named = |function: &&FunctionRecord| module.stream.strings.get(function.name) == name;
    module.stream.functions.iter().find(is_named).unwrap_or_else(|| panic!("{name}"))
}

#[test]
fn folded_functions_are_flagged_and_named_by_both() {
    let folder = tempfile::tempdir().expect("a folder");
    let flags = ["-O2", "-g", "-gcodeview"];
    let Some(dll) = made(folder.path(), "folded", "x86_64", &flags, &["/opt:icf"]) else { return };
    let module = Module::read(&dll);
    let first = named(&module, "first");
    let names: Vec<&str> =
        std::iter::once(&first.symbol).chain(&first.aliases).map(|name| module.stream.strings.get(*name)).collect();
    assert!(first.flags.folded, "{names:?}");
    assert_eq!(names, ["?first@@YAHH@Z", "?second@@YAHH@Z"]);
    // The linker was told not to fold.
    let dll = made(folder.path(), "apart", "x86_64", &flags, &["/opt:noicf"]).expect("a DLL");
    let module = Module::read(&dll);
    assert!(!named(&module, "first").flags.folded && !named(&module, "second").flags.folded);
}

#[test]
fn a_pdb_of_public_symbols_alone_names_functions_of_unknown_size() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(dll) = made(folder.path(), "public", "x86_64", &["-O2"], &[]) else { return };
    let module = Module::read(&dll);
    let start = named(&module, "start");
    assert_eq!((start.source, start.rows.len()), (SymbolSource::Pdb, 0));
    assert!(start.flags.approximate);
    let first = named(&module, "?first@@YAHH@Z");
    assert!(first.flags.approximate && first.source == SymbolSource::Pdb);
    println!("{:?}", module.stream.statistics);
}

#[test]
fn a_file_without_debug_information_has_its_exports_and_function_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    for target in ["x86_64", "aarch64"] {
        let flags = ["-O0", "-funwind-tables"];
        let Some(dll) = made(folder.path(), &format!("bare{target}"), target, &flags, &[]) else { return };
        std::fs::remove_file(dll.with_extension("pdb")).expect("a PDB");
        let module = Module::read(&dll);
        let start = named(&module, "start");
        assert_eq!(start.source, SymbolSource::Exports, "{target}");
        let nameless =
            module.stream.functions.iter().filter(|function| function.source == SymbolSource::FunctionStarts);
        let nameless: Vec<u64> = nameless.map(|function| function.start.0).collect();
        // first, second, only_here, both areas; nothing was inlined but what must be.
        assert!(nameless.len() >= 4, "{target}: {:?}", module.stream.statistics);
        if have("llvm-readobj") {
            let text =
                run("llvm-readobj", &["--unwind", &dll.display().to_string()], folder.path()).expect("llvm-readobj");
            for start in &nameless {
                let address = format!("{:x}", module.base + start).to_uppercase();
                assert!(text.to_uppercase().contains(&address), "{target}: {address} in\n{text}");
            }
        }
    }
}

#[test]
fn mingw_programs_agree_by_their_dwarf() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(
        folder.path().join("main.cpp"),
        SOURCE.replace("extern \"C\" long start", "int main(int, char **); long start"),
    )
    .expect("a source");
    std::fs::write(folder.path().join("part.h"), PART).expect("a source");
    let main = "\nint main(int count, char **) { return int(start(count)); }\n";
    let source = std::fs::read_to_string(folder.path().join("main.cpp")).expect("a source");
    std::fs::write(folder.path().join("main.cpp"), source + main).expect("a source");
    if !have("x86_64-w64-mingw32-g++") || !have("llvm-symbolizer") {
        return;
    }
    for (name, flags) in [("five", ["-O2", "-gdwarf-5"]), ("four", ["-O1", "-gdwarf-4"])] {
        let out = format!("{name}.exe");
        run("x86_64-w64-mingw32-g++", &[flags[0], flags[1], "main.cpp", "-o", &out], folder.path()).expect("g++");
        check_pair(MADE, &format!("MinGW g++ {} {}", flags[0], flags[1]), &folder.path().join(out));
    }
}

#[test]
fn what_is_called_when_nobody_defines_a_weak_function_has_its_public_name() {
    let (compiler, nm, symbolizer) = ("x86_64-w64-mingw32-gcc", "x86_64-w64-mingw32-nm", "llvm-symbolizer-19");
    if [compiler, nm, symbolizer].iter().any(|tool| !have(tool)) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let of_function = |name: &str| format!("    .globl {name}\n    .def {name}; .scl 2; .type 32; .endef\n{name}:\n");
    let parts =
        ["main", ".weak.__called.default.main", "__called", "nobody", ".weak.alone.default.main"].map(of_function);
    let [main, default, called, nobody, alone] = &parts;
    let source = format!(
        "{main}    call __called\n    ret\n{default}{called}    nop\n    ret\n{nobody}    nop\n    ret\n{alone}    ret\n"
    );
    std::fs::write(folder.join("weak.s"), source).expect("a source");
    run(compiler, &["weak.s", "-o", "weak.exe"], folder).expect("gcc");
    let binary = folder.join("weak.exe");
    let listed = run(nm, &["weak.exe"], folder).expect("nm");
    let address = |name: &str| {
        let line = listed.lines().find(|line| line.ends_with(&format!(" T {name}"))).map(str::to_owned);
        u64::from_str_radix(line.expect("a symbol").split_once(' ').expect("an address").0, 16).expect("an address")
    };
    let addresses = ["__called", ".weak.alone.default.main"].map(address);
    assert_eq!(address(".weak.__called.default.main"), addresses[0]);
    let bytes = std::fs::read(&binary).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    for (address, expected) in addresses.iter().zip(symbolizer_of(symbolizer, &[], &binary, &addresses)) {
        let found = lookup::frames(&stream, address - object.image_base().0);
        assert_eq!(found[0].symbol, expected[0].function, "{address:#x} {found:?}");
    }
}

/// A DLL made by clang 19 and its linker, which know ARM64EC.
fn hybrid(folder: &Path) -> Option<PathBuf> {
    if !have("clang-19") || !have("lld-link-19") {
        return None;
    }
    std::fs::write(folder.join("part.h"), PART).expect("a source");
    std::fs::write(folder.join("main.cpp"), SOURCE).expect("a source");
    // The same functions under other names, for the part in x64 code.
    let mut other = SOURCE.to_owned();
    for (name, renamed) in [("start", "x64_start"), ("first", "x64_first"), ("second", "x64_second")] {
        other = other.replace(&format!(" {name}("), &format!(" {renamed}("));
    }
    std::fs::write(folder.join("other.cpp"), other.replace("shapes", "others")).expect("a source");
    // What the system's run time library would bring.
    let dispatchers = ["ret", "call", "call_no_redirect", "icall", "fptr"].map(|name| format!("dispatch_{name}"));
    let checks = ["icall", "call", "icall_cfg"].map(|name| format!("check_{name}"));
    let pointers: Vec<String> =
        dispatchers.iter().chain(&checks).map(|name| format!("void *__os_arm64x_{name};\n")).collect();
    std::fs::write(folder.join("system.c"), pointers.concat()).expect("a source");
    for (target, source) in [("arm64ec", "main.cpp"), ("x86_64", "other.cpp"), ("arm64ec", "system.c")] {
        let target = format!("--target={target}-pc-windows-msvc");
        run("clang-19", &[&target, "-O2", "-g", "-gcodeview", "-ffunction-sections", "-c", source], folder)
            .expect("clang");
    }
    let link =
        ["/machine:arm64ec", "/dll", "/noentry", "/nodefaultlib", "/debug", "/export:start", "/export:x64_start"];
    let link = [&link[..], &["main.o", "other.o", "system.o", "/out:hybrid.dll"]].concat();
    run("lld-link-19", &link, folder).expect("lld-link");
    Some(folder.join("hybrid.dll"))
}

/// The GUID that llvm-readobj 19 prints, without its dashes.
fn printed_guid(text: &str) -> String {
    let printed = text.lines().find_map(|line| line.trim().strip_prefix("PDBGUID: {")).expect("a GUID");
    printed.trim_end_matches('}').replace('-', "")
}

#[test]
fn arm64ec_images_agree_in_their_code_for_either_processor() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(dll) = hybrid(folder.path()) else { return };
    let module = Module::read(&dll);
    // ARM64EC code under its C name, and x64 code.
    for (name, symbol) in [("start", "#start"), ("x64_start", "x64_start"), ("first", "?first@@$$hYAHH@Z")] {
        assert_eq!(module.stream.strings.get(named(&module, name).symbol), symbol);
    }
    let object = ObjectFile::parse(&module.bytes).expect("a PE");
    assert_eq!(object.arch(), Arch::X86_64);
    if have("llvm-readobj-19") && have("llvm-symbolizer") {
        let headers =
            run("llvm-readobj-19", &["--file-headers", "--coff-debug-directory", "hybrid.dll"], folder.path());
        let headers = headers.expect("llvm-readobj");
        assert!(headers.contains("IMAGE_FILE_MACHINE_AMD64"), "{headers}");
        let id = object.debug_id().expect("an id").to_string().to_uppercase();
        assert_eq!(id.split_once('-').map(|(guid, _)| guid), Some(printed_guid(&headers).as_str()));
        check_pair(MADE, "ARM64EC: ARM64 and x64 code", &dll);
    }
}

#[test]
fn sources_have_the_checksums_that_the_compiler_was_told_to_write() {
    let folder = tempfile::tempdir().expect("a folder");
    if !have("clang-19") || !have("lld-link-19") {
        return;
    }
    std::fs::write(folder.path().join("main.cpp"), SOURCE).expect("a source");
    std::fs::write(folder.path().join("part.h"), PART).expect("a source");
    for kind in ["md5", "sha1", "sha256"] {
        let hash = format!("-gsrc-hash={kind}");
        let compile =
            ["--target=x86_64-pc-windows-msvc", "-O1", "-g", "-gcodeview", "-Xclang", &hash, "-c", "main.cpp"];
        run("clang-19", &compile, folder.path()).expect("clang");
        let link = ["/dll", "/noentry", "/nodefaultlib", "/debug", "/export:start", "main.o", "/out:hashed.dll"];
        run("lld-link-19", &link, folder.path()).expect("lld-link");
        let stream = Module::read(&folder.path().join("hashed.dll")).stream;
        assert_eq!(stream.sources.len(), 2, "{:?}", stream.sources);
        for source in &stream.sources {
            let path = stream.strings.get(source.path);
            let found: &[u8] = match (&source.checksum, kind) {
                (Some(Checksum::Md5(sum)), "md5") => sum,
                (Some(Checksum::Sha1(sum)), "sha1") => sum,
                (Some(Checksum::Sha256(sum)), "sha256") => sum,
                (other, _) => panic!("{path}, {kind}: {other:?}"),
            };
            let found: String = found.iter().map(|byte| format!("{byte:02x}")).collect();
            let name = path.rsplit(['/', '\\']).next().expect("a name");
            let text = run(&format!("{kind}sum"), &[name], folder.path()).expect("a digest");
            assert_eq!(text.split_whitespace().next(), Some(found.as_str()), "{path}");
        }
    }
}

/// Real .NET assemblies with their PDBs. An assembly has the digest of its PDB, taken while the PDB's id was zeros; the
/// id is the beginning of it. (PE Format of .NET, "PDB Checksum Debug Directory Entry")
#[test]
fn assemblies_of_a_wheel_name_their_portable_pdbs() {
    let folder = tempfile::tempdir().expect("a folder");
    if !unpack(&CLR_LOADER, folder.path()) {
        return;
    }
    let pairs = pairs_below(folder.path());
    assert_eq!(pairs.len(), 2, "{pairs:?}");
    let mut ids = Vec::new();
    for path in pairs {
        let (assembly, mut pdb) =
            (std::fs::read(&path).expect("a PE"), std::fs::read(path.with_extension("pdb")).expect("a PDB"));
        let object = ObjectFile::parse(&assembly).expect("a PE");
        let reference = object.pdb_reference().expect("a PDB's name");
        assert!(reference.is_portable && object.id_kind() == IdKind::PortablePdb);
        let Ok(ReleaseFile::PortablePdb(portable)) = ReleaseFile::parse(&pdb) else { panic!("a portable PDB") };
        assert_eq!(object.debug_id(), Some(&portable.debug_id()));
        ids.push(portable.debug_id());
        let name = path.display().to_string();
        let guid = portable.guid().map(|byte| format!("{byte:02X}")).concat();
        if have("llvm-readobj-19") {
            let text = run("llvm-readobj-19", &["--coff-debug-directory", &name], folder.path()).expect("llvm-readobj");
            assert_eq!(printed_guid(&text), guid);
            assert!(text.contains(&format!("({:#X})", portable.stamp()).replace("0X", "0x")), "{text}");
        }
        // As stored: the first three fields least significant byte first, then the stamp.
        let [a, b, c, d, e, f, g, h, rest @ ..] = portable.guid();
        let id = [&[d, c, b, a, f, e, h, g][..], &rest, &portable.stamp().to_le_bytes()].concat();
        let at = pdb.windows(id.len()).position(|window| window == id).expect("the id in the file");
        pdb[at..at + id.len()].fill(0);
        std::fs::write(folder.path().join("zeros"), &pdb).expect("a file");
        let sum = run("sha256sum", &["zeros"], folder.path()).expect("sha256sum");
        let sum = sum.split_whitespace().next().expect("a digest");
        let bytes: Vec<u8> =
            (0..64).step_by(2).map(|at| u8::from_str_radix(&sum[at..at + 2], 16).expect("hex")).collect();
        let entry = [b"SHA256\0", bytes.as_slice()].concat();
        assert!(assembly.windows(entry.len()).any(|window| window == entry), "{name}: {sum}");
        // Some bits of the id say that it is a random one, and that the stamp is no time.
        assert_eq!(id[..6], bytes[..6]);
    }
    assert_ne!(ids[0], ids[1]);
}
