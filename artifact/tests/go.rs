//! Go programs without DWARF beside the same programs with it, and beside Go's own runtime.

use crate::support;
use crate::support::accuracy::measure;
use crate::support::compare::Comparison;
use crate::support::{addresses_in, have, llvm_symbolizer, lookup, run, skip};
use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use symseal_artifact::{DebugFiles, FunctionStream, IdKind, ObjectFile, functions};
use symseal_symx::SymbolSource;

/// Inlined calls within inlined calls, closures, methods, a deferred call; and the runtime's names for addresses.
const MAIN: &str = r#"
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
)

type shape interface{ area() float64 }
type square struct{ side float64 }

func (s square) area() float64 { return times(s.side, s.side) }
func times(a, b float64) float64 { return a * b }
func clamp(x, low, high int) int {
	if x < low {
		return low
	}
	if x > high {
		return high
	}
	return x
}
func step(x int) int  { return clamp(x*3, -100, 100) + 1 }
func twice(x int) int { return step(step(x)) }

//go:noinline
func work(all []int, limit int) int {
	sort.Slice(all, func(i, j int) bool { return all[i]%limit < all[j]%limit })
	total := 0
	for _, x := range all {
		total += twice(x)
	}
	defer func() { recover() }()
	return total
}

func main() {
	all := make([]int, 100)
	for i := range all {
		all[i] = i * len(os.Args)
	}
	var s shape = square{float64(work(all, 7))}
	if len(os.Args) < 2 {
		fmt.Println(s.area(), generic())
		return
	}
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		pc, _ := strconv.ParseUint(strings.TrimSpace(in.Text()), 0, 64)
		frame, _ := runtime.CallersFrames([]uintptr{uintptr(pc) + 1}).Next()
		fmt.Fprintf(out, "%s\t%s\t%d\n", frame.Function, frame.File, frame.Line)
	}
}
"#;

const GENERIC: &str = r#"
//go:build go1.18
// +build go1.18

package main

type number interface{ ~int | ~float64 }

func sum[T number](all []T) (total T) {
	for _, x := range all {
		total += double(x)
	}
	return
}
func double[T number](x T) T { return x + x }

//go:noinline
func generic() string {
	if sum([]int{1, 2})+int(sum([]float64{1.5})) > 3 {
		return "much"
	}
	return "little"
}
"#;

const NOT_GENERIC: &str =
    "//go:build !go1.18\n// +build !go1.18\n\npackage main\n\nfunc generic() string { return \"\" }\n";

const CGO: &str = r#"
package main

/*
static int thrice(int x) { return 3 * x; }
__attribute__((noinline)) static int in_c(int x) { int y = 0; for (int i = 0; i < x; i++) y += thrice(i) % 7; return y; }
*/
import "C"

func init() { println(C.in_c(4)) }
"#;

/// A program as one Go release builds it.
#[derive(Clone, Copy)]
struct Build {
    /// `1.19.13`; empty for the one that is installed.
    release: &'static str,
    system: &'static str,
    processor: &'static str,
    flags: &'static [&'static str],
    with_c: bool,
}

/// Links Go's object with LLVM's linker, as the C compiler would with Apple's: with chained fixups.
const LINKER: &str = r#"#!/bin/sh
objects=
while [ $# -gt 0 ]; do
    case $1 in
    --print-prog-name)
        case $2 in strip) command -v llvm-strip-19 ;; *) command -v "$2-19" ;; esac
        exit
        ;;
    -o) output=$2; shift ;;
    *.o) objects="$objects $1" ;;
    esac
    shift
done
set -- -arch arm64 -platform_version macos 12.0 12.0 -undefined dynamic_lookup -e _main -headerpad 4000 -fixup_chains
exec ld64.lld-19 "$@" $objects -o "$output"
"#;

const HERE: Build = Build { release: "", system: "linux", processor: "amd64", flags: &[], with_c: false };

impl Build {
    fn name(&self) -> String {
        let release = if self.release.is_empty() { "installed" } else { self.release };
        let c = if self.with_c { "-cgo" } else { "" };
        format!("{release}-{}-{}{}{c}", self.system, self.processor, self.flags.concat().replace(['/', ' '], "_"))
    }

    /// Builds the program with these linker flags. None where the release or the C compiler is not to be had.
    fn make(&self, folder: &Path, output: &str, linker: &str) -> Option<PathBuf> {
        let source = folder.join(self.name());
        std::fs::create_dir_all(&source).expect("a folder");
        let language = match self.release.rsplit_once('.') {
            Some((language, _)) => language.to_owned(),
            None => "1.21".to_owned(),
        };
        std::fs::write(source.join("go.mod"), format!("module example.com/t\ngo {language}\n")).expect("a module");
        std::fs::write(source.join("main.go"), MAIN).expect("a source");
        std::fs::write(source.join("generic.go"), GENERIC).expect("a source");
        std::fs::write(source.join("not_generic.go"), NOT_GENERIC).expect("a source");
        if self.with_c {
            std::fs::write(source.join("c.go"), CGO).expect("a source");
        }
        let toolchain = if self.release.is_empty() { "local".to_owned() } else { format!("go{}", self.release) };
        let output = source.join(output);
        let built = Command::new("go")
            .arg("build")
            .args(self.flags)
            .arg(format!("-ldflags={linker}"))
            .arg("-o")
            .arg(&output)
            .arg(".")
            .current_dir(&source)
            .env("GOENV", "off")
            .env("GOFLAGS", "")
            .env("GOTOOLCHAIN", toolchain)
            .env("GOOS", self.system)
            .env("GOARCH", self.processor)
            .env("CGO_ENABLED", if self.with_c { "1" } else { "0" })
            .output()
            .expect("go starts");
        if built.status.success() {
            return Some(output);
        }
        println!("go build of {}: {}", self.name(), String::from_utf8_lossy(&built.stderr).trim());
        None
    }
}

/// What a file holds, and its code.
fn stream_of(path: &Path) -> (FunctionStream, Vec<std::ops::Range<u64>>, u64) {
    let bytes = std::fs::read(path).expect("a file");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    (stream, object.unwind_inputs().text, object.image_base().0)
}

/// Compares the stripped program with llvm-symbolizer on the one that has DWARF. False where it could not be built.
fn agrees(build: &Build, folder: &Path) -> bool {
    // llvm-symbolizer 14 reads no compressed sections in PE and Mach-O files.
    let with_dwarf = if build.system == "linux" { "" } else { "-compressdwarf=false" };
    let full = build.make(folder, "full", with_dwarf);
    let (Some(full), Some(stripped)) = (full, build.make(folder, "stripped", "-s -w")) else {
        return false;
    };
    check_stripped(build, &full, &stripped);
    true
}

/// Compares the stripped program with llvm-symbolizer on the one that has DWARF.
#[track_caller]
fn check_stripped(build: &Build, full: &Path, stripped: &Path) {
    let (stream, text, base) = stream_of(stripped);
    let sources = &stream.statistics.functions;
    assert!(sources.contains_key(&SymbolSource::Pclntab), "{}: {:?}", build.name(), stream.statistics);
    assert!(!sources.contains_key(&SymbolSource::Dwarf));
    assert_eq!(stream.statistics.skipped, Default::default(), "{}", build.name());
    let measured = measure(&text, |addresses| {
        let mut comparison = Comparison::default();
        for (address, expected) in addresses.iter().zip(llvm_symbolizer(full, addresses)) {
            let found = lookup::frames(&stream, address - base);
            // Nothing is left that names C code. And symbols of PE and Mach-O files have no size: LLVM lets them reach over
            // the padding behind a function, which has no line.
            let is_padding = build.system != "linux" && matches!(expected.as_slice(), [only] if only.line == 0);
            if !(found.is_empty() && (build.with_c || is_padding)) {
                comparison.add(*address, &expected, &found);
            }
        }
        comparison
    });
    measured.print("Go without DWARF", &build.name());
    println!("{}: {}{:?}", build.name(), measured.comparison, stream.statistics);
    assert!(stream.statistics.inlines > 500, "{:?}", stream.statistics);
    assert_eq!(measured.verdict(&build.name()), None);
}

/// Every layout of the table, by the releases that wrote them.
const RELEASES: [&str; 5] = ["1.15.15", "1.17.13", "1.19.13", "1.21.13", ""];

#[test]
fn every_layout_agrees_with_dwarf() {
    if !have("go") || !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for release in RELEASES {
        if !agrees(&Build { release, ..HERE }, folder.path()) {
            skip(if release.is_empty() { "go" } else { "go releases (module proxy)" });
        }
    }
}

#[test]
fn other_processors_and_ways_of_linking_agree_with_dwarf() {
    if !have("go") || !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for build in [
        Build { processor: "arm64", ..HERE },
        // 32 bits, and most significant byte first.
        Build { processor: "386", ..HERE },
        Build { processor: "s390x", ..HERE },
        // Addresses in the table and in the module data are relocated.
        Build { flags: &["-buildmode=pie"], ..HERE },
        Build { release: "1.17.13", flags: &["-buildmode=pie"], ..HERE },
    ] {
        if !agrees(&build, folder.path()) {
            skip(if build.release.is_empty() { "go" } else { "go releases (module proxy)" });
        }
    }
    if have("gcc") {
        // The C linker places Go's code behind its own, and leaves its relocations unapplied.
        for flags in [&[][..], &["-buildmode=pie"]] {
            assert!(agrees(&Build { with_c: true, flags, ..HERE }, folder.path()));
        }
    }
}

#[test]
fn windows_and_mac_programs_agree_with_dwarf() {
    if !have("go") || !have("llvm-symbolizer") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for build in [
        Build { system: "windows", ..HERE },
        Build { system: "windows", release: "1.19.13", ..HERE },
        Build { system: "windows", processor: "386", ..HERE },
        Build { system: "darwin", processor: "arm64", ..HERE },
        Build { system: "darwin", release: "1.19.13", ..HERE },
    ] {
        if !agrees(&build, folder.path()) {
            skip(if build.release.is_empty() { "go" } else { "go releases (module proxy)" });
        }
    }
}

#[test]
fn compressed_dwarf_of_windows_and_mac_programs_is_read() {
    if !have("go") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for system in ["windows", "darwin"] {
        let build = Build { system, ..HERE };
        let [plain, compressed] = ["-compressdwarf=false", ""].map(|flags| {
            let (stream, _, _) = stream_of(&build.make(folder.path(), "full", flags).expect("go builds"));
            assert_eq!(stream.statistics.skipped, Default::default(), "{system}");
            stream
        });
        assert!(plain.statistics.functions[&SymbolSource::Dwarf] > 1000, "{:?}", plain.statistics);
        assert_eq!(plain.statistics, compressed.statistics);
        assert_eq!(plain.functions, compressed.functions);
    }
}

/// The runtime's innermost frames: function, file and line.
fn runtime_frames(program: &Path, addresses: &[u64]) -> Vec<(String, String, u64)> {
    let mut child = Command::new(program)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let lines: String = addresses.iter().map(|address| format!("{address:#x}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("the program ends");
    writer.join().expect("the writer ends").expect("all addresses are taken");
    let text = String::from_utf8(output.stdout).expect("text");
    let frames = text.lines().map(|line| {
        let mut parts = line.split('\t').map(str::to_owned);
        let mut next = || parts.next().expect("three parts");
        (next(), next(), next().parse().expect("a line"))
    });
    frames.collect()
}

/// The runtime replaces what stands between the first `[` and the last `]` when it prints a name.
fn printed(name: &str) -> String {
    match (name.split_once('['), name.rsplit_once(']')) {
        (Some((start, _)), Some((_, end))) => format!("{start}[...]{end}"),
        _ => name.to_owned(),
    }
}

#[test]
fn the_runtime_says_the_same() {
    if !have("go") || std::env::consts::ARCH != "x86_64" {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for release in RELEASES {
        let build = Build { release, ..HERE };
        let Some(stripped) = build.make(folder.path(), "stripped", "-s -w") else {
            skip("go releases (module proxy)");
            continue;
        };
        let (stream, text, base) = stream_of(&stripped);
        let mut addresses = addresses_in(&text, 20_000, 5);
        // The runtime is asked for return addresses, and looks for the function of what it is asked for: behind the last
        // byte of a function that is another one, and behind that of the code none.
        let starts = stream.functions.iter().map(|function| function.start.0 + base);
        let others: HashSet<u64> = starts.chain(text.iter().map(|range| range.end)).collect();
        addresses.retain(|address| !others.contains(&(address + 1)));
        let (mut compared, mut padding, mut unnamed) = (0, 0, 0);
        for (address, (function, file, line)) in addresses.iter().zip(runtime_frames(&stripped, &addresses)) {
            // The runtime gives the padding behind a function to that function.
            let frames = lookup::frames(&stream, address - base);
            let Some(innermost) = frames.first() else {
                padding += 1;
                continue;
            };
            // Before 1.20 or so the runtime takes the first name of all for none.
            let symbol = if function.is_empty() { String::new() } else { printed(&innermost.symbol) };
            unnamed += u32::from(function.is_empty());
            let ours = (symbol, innermost.file.clone(), innermost.line);
            // What the linker puts between functions has no file; the runtime's word for none is a question mark.
            let theirs = (printed(&function), if file == "?" { String::new() } else { file }, line);
            assert_eq!(ours, theirs, "{} {address:#x}", build.name());
            compared += 1;
        }
        println!("{}: {compared} addresses as the runtime has them, {padding} of padding", build.name());
        assert!(compared > 18_000 && unnamed < 100);
    }
}

#[test]
fn declarations_and_sources_come_from_the_table() {
    if !have("go") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let stripped = HERE.make(folder.path(), "stripped", "-s -w").expect("go builds");
    let (stream, _, _) = stream_of(&stripped);
    let text = |id| stream.strings.get(id);
    let work = stream.functions.iter().find(|function| text(function.name) == "main.work").expect("main.work");
    let line = 1 + MAIN.lines().position(|line| line.starts_with("func work(")).expect("a line") as u32;
    assert_eq!((text(work.symbol), work.line, work.source), ("main.work", line, SymbolSource::Pclntab));
    assert!(text(work.file).ends_with("/main.go"));
    let inlined: Vec<&str> = work.inlines.iter().map(|site| text(site.name)).collect();
    assert!(["main.twice", "main.step", "main.clamp"].iter().all(|name| inlined.contains(name)), "{inlined:?}");
    assert!(stream.sources.iter().any(|source| text(source.path) == text(work.file)));
}

#[test]
fn dwarf_comes_before_the_table_and_the_table_before_nothing() {
    if !have("go") || !have("objcopy") || !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let full = HERE.make(folder.path(), "full", "").expect("go builds");
    let (stream, _, _) = stream_of(&full);
    assert!(!stream.statistics.functions.contains_key(&SymbolSource::Pclntab), "{:?}", stream.statistics);
    // A C program with DWARF, linked with an archive of Go code without.
    let build = Build { with_c: true, flags: &["-buildmode=c-archive"], ..HERE };
    let archive = build.make(folder.path(), "libgo.a", "-s -w").expect("go and gcc build");
    let folder = archive.parent().expect("a folder");
    std::fs::create_dir(folder.join("c")).expect("a folder");
    std::fs::write(folder.join("c/main.c"), "static int twice(int x) { return 2 * x; }\nint main(int argc, char **argv) { (void)argv; return twice(argc); }\n").expect("a source");
    let whole =
        ["-g", "c/main.c", "-Wl,--whole-archive", "libgo.a", "-Wl,--no-whole-archive", "-lpthread", "-o", "mixed"];
    run("gcc", &whole, folder).expect("gcc");
    let (stream, _, _) = stream_of(&folder.join("mixed"));
    println!("{:?}", stream.statistics);
    let source_of = |name: &str| {
        let mut functions = stream.functions.iter().filter(|function| stream.strings.get(function.name) == name);
        functions.next().map(|function| function.source)
    };
    assert_eq!(source_of("main.work"), Some(SymbolSource::Pclntab));
    assert_eq!(source_of("twice"), Some(SymbolSource::Dwarf));
}

#[test]
fn a_file_without_section_headers_is_searched_for_the_table() {
    if !have("go") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let stripped = HERE.make(folder.path(), "stripped", "-s -w").expect("go builds");
    let (expected, _, _) = stream_of(&stripped);
    let mut bytes = std::fs::read(&stripped).expect("a file");
    // e_shoff, e_shnum, e_shstrndx.
    bytes[0x28..0x30].fill(0);
    bytes[0x3c..0x40].fill(0);
    let object = ObjectFile::parse(&bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    assert_eq!(stream.statistics.functions, expected.statistics.functions);
    assert_eq!(stream.statistics.inlines, expected.statistics.inlines);
    // Release 1.26 writes a GNU build-id beside its own; both notes are in segments.
    assert!(object.go_build_id().is_some() && object.id_kind() != IdKind::TextHash);
}

#[test]
fn build_ids_are_those_of_go_tool_buildid() {
    if !have("go") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for system in ["linux", "windows", "darwin"] {
        let build = Build { system, ..HERE };
        let path = build.make(folder.path(), "stripped", "-s -w").expect("go builds");
        let expected = run("go", &["tool", "buildid", &path.display().to_string()], folder.path()).expect("go tool");
        let bytes = std::fs::read(&path).expect("a file");
        let object = ObjectFile::parse(&bytes).expect("an object");
        assert_eq!(object.go_build_id().map(String::from_utf8_lossy).as_deref(), Some(expected.trim()), "{system}");
    }
}

/// What a C linker makes of a Go program for macOS: words of its data hold where they point to in some of their bits, and
/// the way to the next such word in others.
#[test]
fn programs_with_chained_fixups_agree_with_dwarf() {
    let tools = ["go", "sh", "llvm-symbolizer", "ld64.lld-19", "dsymutil-19", "llvm-strip-19", "llvm-objdump-19"];
    if !tools.into_iter().all(have) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let build = Build { system: "darwin", processor: "arm64", ..HERE };
    // Leaves the sources there, and all packages compiled.
    build.make(folder.path(), "plain", "").expect("go builds");
    let source = folder.path().join(build.name());
    let go = |arguments: &[&str], with_c: &str| {
        let output = Command::new("go")
            .args(arguments)
            .current_dir(&source)
            .envs([("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local"), ("GOOS", build.system)])
            .envs([("GOARCH", build.processor), ("CGO_ENABLED", with_c)])
            .output()
            .expect("go starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let form = "{{if .Export}}packagefile {{.ImportPath}}={{.Export}}{{end}}";
    let packages = go(&["list", "-deps", "-export", "-f", form, "."], "0");
    let main = packages.lines().find_map(|line| line.strip_prefix("packagefile example.com/t=")).expect("the program");
    std::fs::write(source.join("packages"), &packages).expect("a list");
    std::fs::write(source.join("linker"), LINKER).expect("a script");
    // Other threads may be starting programs while the script is written, which then is busy for them: `sh` reads it.
    let linker = format!("-extld=sh {}", source.join("linker").display());
    let link = |output: &str, flags: &[&str]| {
        let all = ["tool", "link", "-o", output, "-importcfg", "packages", "-buildmode=pie", "-linkmode=external"];
        // Without this the linker refuses to call another one.
        go(&[&all[..], &[&linker], flags, &[main]].concat(), "1");
        source.join(output)
    };
    let full = link("full", &["-compressdwarf=false"]);
    let stripped = link("stripped", &["-s", "-w"]);
    run("llvm-strip-19", &["stripped"], &source).expect("llvm-strip");
    let headers = run("llvm-objdump-19", &["--macho", "--private-headers", "stripped"], &source).expect("objdump");
    let command = headers.split_once("LC_DYLD_CHAINED_FIXUPS").map(|(_, rest)| rest).expect("chained fixups");
    check_stripped(&Build { flags: &["-linkmode=external"], ..build }, &full, &stripped);
    damaged_chains_do_no_harm(command, &stripped);
}

/// Changes bytes of the chains' beginnings, and of the words that they run through.
fn damaged_chains_do_no_harm(command: &str, path: &Path) {
    let sound = std::fs::read(path).expect("a file");
    let number = |key: &str| -> usize {
        let words = command.split_whitespace().skip_while(|word| *word != key).nth(1);
        words.and_then(|word| word.parse().ok()).expect("a number")
    };
    let (start, size) = (number("dataoff"), number("datasize"));
    let object = ObjectFile::parse(&sound).expect("an object");
    let (_, data) = object.section("__data").expect("data");
    let data = sound.windows(64).position(|window| data.starts_with(window)).expect("the data in the file");
    let mut chance = support::Chance::new(5);
    for round in 0..60 {
        let mut changed = sound.clone();
        for _ in 0..=round % 4 {
            // The first words say where chains start and what form they have.
            let (from, length) = if round % 3 == 0 { (data, 4096) } else { (start, size.min(200)) };
            let at = from + usize::try_from(chance.below(length as u64)).expect("a place");
            changed[at] = if round % 2 == 0 { 0xff } else { chance.next() as u8 };
        }
        if let Ok(object) = ObjectFile::parse(&changed) {
            let stream = functions(&object, &DebugFiles::default()).expect("functions");
            lookup::check_shape(&stream);
        }
    }
}
