//! Line tables of Windows programs in ways in which compilers write them seldom, and names that linkers give.

use crate::support::lookup::{self, Found};
use crate::support::{have, llvm_symbolizer, run};
use crate::windows::Module;
use std::path::{Path, PathBuf};

const SOURCE: &str = "volatile int told;
static inline __attribute__((always_inline)) void tell(int what) {
    told = what;
    told = what + 1;
}
void start(int what) {
    tell(what);
}
";

/// What LLVM's assembler makes of this is the line table of a function, a subsection of the module's debug information.
const LINE_TABLE: &str = ".cv_linetable";

/// A DLL with a PDB of [`SOURCE`], after the first change, as clang assembles it, each line of which is changed by the second; none without the tools.
fn made(
    folder: &Path,
    target: &str,
    source: impl Fn(&str) -> String,
    assembly: impl Fn(&str) -> String,
) -> Option<PathBuf> {
    if !have("clang") || !have("lld-link") {
        return None;
    }
    std::fs::write(folder.join("main.c"), source(SOURCE)).expect("a source");
    let target = format!("--target={target}-pc-windows-msvc");
    run("clang", &[&target, "-O2", "-g", "-gcodeview", "-S", "main.c", "-o", "main.s"], folder).expect("clang");
    let text = std::fs::read_to_string(folder.join("main.s")).expect("assembly");
    let changed: Vec<String> = text.lines().map(assembly).collect();
    std::fs::write(folder.join("main.s"), changed.join("\n") + "\n").expect("assembly");
    run("clang", &[&target, "-c", "main.s", "-o", "main.obj"], folder).expect("clang");
    let link = ["/dll", "/noentry", "/nodefaultlib", "/debug", "/opt:noref", "main.obj", "/out:main.dll"];
    run("lld-link", &link, folder).expect("lld-link");
    Some(folder.join("main.dll"))
}

/// The frames at each of the first bytes of `start`.
fn frames(module: &Module, bytes: u64) -> (u64, Vec<Vec<Found>>) {
    let is_start = |name| module.stream.strings.get(name) == "start";
    let start = module.stream.functions.iter().find(|function| is_start(function.name)).expect("the function").start.0;
    (start, (start..start + bytes).map(|rva| lookup::frames(&module.stream, rva)).collect())
}

fn lines(frames: &[Found]) -> Vec<(&str, &str, u64)> {
    let file = |found: &Found| if found.file.is_empty() { "" } else { "main.c" };
    frames.iter().map(|found| (found.name.as_str(), file(found), found.line)).collect()
}

/// Zig writes its stack probes so: the line table of the function has its length and no row.
#[test]
fn inlined_calls_of_a_function_without_a_line_of_its_own_are_there() {
    let folder = tempfile::tempdir().expect("a folder");
    for target in ["x86_64", "aarch64"] {
        // Function, and where it ends.
        let bare =
            |line: &str| match line.trim().strip_prefix(LINE_TABLE).map(|rest| rest.split(", ").collect::<Vec<_>>()) {
                Some(words) => {
                    let (name, end) = (words[1], words[2]);
                    format!(".long 242, 12\n.secrel32 {name}\n.secidx {name}\n.short 0\n.long {end}-{name}")
                }
                None => line.to_owned(),
            };
        let Some(dll) = made(folder.path(), target, str::to_owned, bare) else { return };
        let module = Module::read(&dll);
        let (start, all) = frames(&module, 8);
        for (rva, found) in (start..).zip(&all) {
            assert!(matches!(lines(found)[..], [("tell", "main.c", 3 | 4), ("start", "", 0)]), "{target} {found:?}");
            if have("llvm-symbolizer") {
                let theirs = &llvm_symbolizer(&dll, &[module.base + rva])[0];
                // It takes the line of the annotation behind.
                let theirs: Vec<&str> = theirs.iter().map(|frame| frame.function.as_str()).collect();
                let ours: Vec<&str> = found.iter().map(|frame| frame.symbol.as_str()).collect();
                assert_eq!(ours, theirs, "{target} {rva:#x}");
            }
        }
    }
}

/// Clang calls what it defines weakly `.weak.NAME.default.OTHER`, and NAME what falls back to that.
#[test]
fn a_weak_function_is_called_by_its_name_where_debug_information_has_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let weak = |source: &str| source.replace("void start", "__attribute__((weak)) void start");
    for (target, expected) in [("x86_64", "start"), ("i686", "_start"), ("aarch64", "start")] {
        let Some(dll) = made(folder.path(), target, weak, str::to_owned) else { return };
        let module = Module::read(&dll);
        let (_, all) = frames(&module, 1);
        let [.., function] = all[0].as_slice() else { panic!("{target}: no function") };
        assert_eq!((function.name.as_str(), function.symbol.as_str()), ("start", expected));
        let told = expected.replace("start", "told");
        assert_eq!(function.aliases, [format!(".weak.{expected}.default.{told}")], "{target}");
    }
}
