//! What a whole build takes of memory: below three times the largest input, its DWARF decompressed, whatever the number of jobs.
#![cfg(target_os = "linux")]
use crate::program;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::{command, tool};

/// What a build may take beside three times its largest input: docs/performance.md.
const FIXED_BYTES: u64 = 32 << 20;

/// Copies of one file, each a module of its own.
const COPIES: u8 = 8;

/// The largest of Debian's debug files of the C library.
fn debug_file() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib/debug/.build-id").into_iter().flatten().flatten();
    let files = folders.filter_map(|folder| std::fs::read_dir(folder.path()).ok()).flatten().flatten();
    let largest = files.map(|entry| entry.path()).max_by_key(|path| path.metadata().map_or(0, |found| found.len()));
    if largest.is_none() {
        assert!(!program::required("libc6-dbg"), "libc6-dbg is required and was not found");
        println!("SKIP libc6-dbg: not installed");
    }
    largest
}

/// Bytes of `.debug_*` in memory, by elfutils: ` [ 5] .debug_info PROGBITS 0 OFFSET SIZE`, and for a compressed section in the next
/// line ` [ELF ZLIB (1) SIZE ALIGN]`.
fn raw_dwarf(readelf: &Path, file: &Path) -> u64 {
    let output = Command::new(readelf).args(["-S", "-z"]).arg(file).output().expect("eu-readelf starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("a number");
    let mut sizes: Vec<u64> = Vec::new();
    let mut is_debug = false;
    for line in text.lines() {
        if let Some(compressed) = line.trim_start().strip_prefix("[ELF ").filter(|_| is_debug) {
            let size = compressed.split(')').nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a size");
            *sizes.last_mut().expect("a section") = hex(size.trim_end_matches(']'));
        } else if let Some((_, section)) = line.split_once("] ") {
            is_debug = section.starts_with(".debug_");
            if is_debug {
                sizes.push(hex(section.split_whitespace().nth(4).expect("a size")));
            }
        }
    }
    sizes.iter().sum()
}

/// Runs a program, and prints the most memory that it took, in KiB. A process counts what its parent held when it began (getrusage(2) says nothing of it;
/// Linux keeps the mark over `exec`), and this test shares its own with all others: so the parent is a small one.
const MEASURE: &str = "
import os, sys
to_nobody = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=to_nobody)
_, status, usage = os.wait4(child, 0)
print(usage.ru_maxrss)
sys.exit(status != 0)
";

/// Runs a program that may have so many bytes of memory of its own, which maps of files are not.
const CONFINE: &str = "
import os, resource, sys
most = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_DATA, (most, most))
os.execv(sys.argv[2], sys.argv[2:])
";

/// The most memory that a build took, in bytes.
fn peak(python: &Path, inputs: &Path, output: &Path, jobs: &str) -> u64 {
    let symseal = command("symseal");
    let mut measured = Command::new(python);
    measured.args(["-c", MEASURE]).arg(symseal.get_program());
    for (name, value) in symseal.get_envs() {
        match value {
            Some(value) => measured.env(name, value),
            None => measured.env_remove(name),
        };
    }
    measured.args(["bundle", "build", "--name", "app", "--version", "1.0", "--jobs", jobs, "--output"]);
    let ran = measured.args([output, inputs]).stdin(Stdio::null()).output().expect("it starts");
    assert!(ran.status.success(), "the build ends well: {}", String::from_utf8_lossy(&ran.stderr));
    let kib: u64 = String::from_utf8_lossy(&ran.stdout).trim().parse().expect("a number");
    kib << 10
}

#[test]
fn a_build_takes_less_than_three_times_its_largest_input_whatever_the_jobs() {
    let (Some(readelf), Some(tar), Some(python)) = (tool("eu-readelf"), tool("tar"), tool("python3")) else { return };
    let Some(source) = debug_file() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let inputs = folder.path().join("inputs");
    // The same debug file under other build-ids: as many modules of one size as there may be jobs.
    let whole = std::fs::read(&source).expect("a debug file");
    let id = symseal_artifact::ObjectFile::parse(&whole).expect("a debug file").debug_id().expect("an id").clone();
    let id = id.build_id().expect("a build-id");
    let at = place_of(id, &whole);
    with_other_ids(&whole, at, |copy| inputs.join(format!("{copy}.debug")));
    let largest = whole.len() as u64 + raw_dwarf(&readelf, &source);
    assert!(largest > 8 << 20, "{} is too small to tell: {largest} bytes in memory", source.display());
    let packed = folder.path().join("release.tar.gz");
    let packing = Command::new(tar).arg("-czf").arg(&packed).arg("-C").arg(&inputs).arg(".").status();
    assert!(packing.expect("tar starts").success());
    let allowed = 3 * largest + FIXED_BYTES;
    for (what, jobs) in [(&inputs, "1"), (&inputs, "2"), (&inputs, "8"), (&packed, "8")] {
        let output = folder.path().join("bundle");
        let taken = peak(&python, what, &output, jobs);
        println!("{}: {jobs} jobs, {taken} bytes of {allowed}", what.display());
        assert!(taken < allowed, "{}, {jobs} jobs: {taken} bytes, of {allowed}", what.display());
        std::fs::remove_dir_all(output).expect("the bundle goes");
    }
}

/// C whose functions have long names, so that whatever tells them is some megabytes, and a compiler is soon through with it.
fn long_named(functions: usize) -> String {
    const NAME_BYTES: usize = 1000;
    let one = |number: usize| {
        let name = format!("f{number:0>NAME_BYTES$}");
        format!("int {name}(int x) {{ int y = x + {number};\n return y * 3; }}\n")
    };
    (0..functions).map(one).collect()
}

/// Copies of a file, as many as there may be jobs, each with an id of its own, which lies at `at`.
fn with_other_ids(whole: &[u8], at: usize, copy_to: impl Fn(u8) -> PathBuf) {
    for copy in 0..COPIES {
        let mut own = whole.to_vec();
        own[at] ^= copy;
        let to = copy_to(copy);
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        std::fs::write(to, own).expect("a copy");
    }
}

/// Where something begins in a file.
fn place_of(what: &[u8], file: &[u8]) -> usize {
    file.windows(what.len()).position(|window| window == what).expect("it is in the file")
}

/// A build of as many debug files of `largest` bytes takes less than three times that.
fn stays_within(python: &Path, what: &str, inputs: &Path, largest: u64) {
    assert!(largest > 8 << 20, "{what} is too small to tell: {largest} bytes");
    let allowed = 3 * largest + FIXED_BYTES;
    for jobs in ["1", "8"] {
        let output = inputs.with_extension("bundle");
        let taken = peak(python, inputs, &output, jobs);
        println!("{what} of {largest} bytes: {jobs} jobs, {taken} bytes of {allowed}");
        assert!(taken < allowed, "{what}, {jobs} jobs: {taken} bytes, of {allowed}");
        std::fs::remove_dir_all(output).expect("the bundle goes");
    }
}

#[test]
fn databases_of_windows_and_dsyms_are_held_to_the_same_bound() {
    let (Some(clang), Some(python)) = (tool("clang"), tool("python3")) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("big.c"), long_named(8_000)).expect("a source");
    let work = |program: &Path, arguments: &[&str]| {
        let ran = Command::new(program).args(arguments).current_dir(folder.path()).output().expect("it starts");
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    if let Some(link) = tool("lld-link") {
        work(&clang, &["--target=x86_64-pc-windows-msvc", "-g", "-gcodeview", "-c", "big.c", "-o", "big.obj"]);
        work(&link, &["/dll", "/noentry", "/nodefaultlib", "/debug", "/out:big.dll", "/pdb:big.pdb", "big.obj"]);
        // The stream of the database's own information: a version, a signature and an age of four bytes each, and the GUID.
        let pdb = std::fs::read(at("big.pdb")).expect("a database");
        let id = place_of(&20_000_404_u32.to_le_bytes(), &pdb) + 12;
        with_other_ids(&pdb, id, |copy| at("databases").join(copy.to_string()).join("big.pdb"));
        stays_within(&python, "PDB", &at("databases"), pdb.len() as u64);
    }
    if let (Some(link), Some(dsymutil)) = (program::macho_linker(), program::any_tool(&["dsymutil-19", "dsymutil"])) {
        work(&clang, &["--target=arm64-apple-macos12", "-g", "-c", "big.c", "-o", "big.o"]);
        let platform = ["-dylib", "-arch", "arm64", "-platform_version", "macos", "12", "12"];
        work(&link, &[&platform[..], &["big.o", "-o", "big.dylib"]].concat());
        work(&dsymutil, &["big.dylib", "-o", "big.dSYM"]);
        let dwarf = Path::new("Contents/Resources/DWARF/big.dylib");
        let whole = std::fs::read(at("big.dSYM").join(dwarf)).expect("a debug file");
        // LC_UUID, of 24 bytes.
        let id = place_of(&[0x1b_u32, 24].map(u32::to_le_bytes).concat(), &whole) + 8;
        with_other_ids(&whole, id, |copy| at("dsyms").join(format!("{copy}.dSYM")).join(dwarf));
        stays_within(&python, "dSYM", &at("dsyms"), whole.len() as u64);
    }
}

/// What a build may have of memory of its own, beside members that are far larger.
const CONFINED_BYTES: u64 = 192 << 20;

#[test]
fn members_of_archives_that_are_larger_than_memory_are_built_from_disk() {
    let (Some(cc), Some(python)) = (tool("cc"), tool("python3")) else { return };
    let (Some(zip), Some(gzip), Some(tar)) = (tool("zip"), tool("gzip"), tool("tar")) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    // 640 MiB of it are in the file, of which a zip makes a few megabytes: less than the ratio that ends a reading.
    std::fs::write(at("huge.c"), "char huge[640 << 20] = {1};\nint answer(int x) { return x + huge[x]; }\n")
        .expect("a source");
    let shell = |program: &Path, arguments: &[&str]| {
        let ran = Command::new(program).args(arguments).current_dir(folder.path()).output().expect("it starts");
        assert!(ran.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    shell(&cc, &["-g", "-shared", "-fPIC", "-nostdlib", "-Wl,--build-id", "-o", "huge.so", "huge.c"]);
    shell(&zip, &["-q", "-1", "huge.zip", "huge.so"]);
    shell(&gzip, &["-1", "-k", "huge.so"]);
    shell(&tar, &["-czf", "huge.tgz", "huge.so.gz"]);
    let size = at("huge.so").metadata().expect("a library").len();
    assert!(size > 3 * CONFINED_BYTES);
    for archive in ["huge.zip", "huge.so.gz", "huge.tgz"] {
        let symseal = command("symseal");
        let mut confined = Command::new(&python);
        confined.args(["-c", CONFINE, &CONFINED_BYTES.to_string()]).arg(symseal.get_program());
        confined.args(["bundle", "build", "--json", "--jobs", "2", "--name", "app", "--version", "1.0", "--output"]);
        let ran = confined.args([at("bundle"), at(archive)]).stdin(Stdio::null()).output().expect("it starts");
        assert!(ran.status.success(), "{archive}: {}", String::from_utf8_lossy(&ran.stderr));
        let report: serde_json::Value = serde_json::from_slice(&ran.stdout).expect("a report");
        assert_eq!(report["modules"][0]["functions"]["dwarf"], 1, "{archive}: {report}");
        assert_eq!(report["inputs"]["bytes"], size, "{archive}");
        std::fs::remove_dir_all(at("bundle")).expect("the bundle goes");
    }
    // What is no module leaves nothing behind, and takes no more.
    let dir = at("spool");
    std::fs::create_dir(&dir).expect("a folder");
    let mut other = std::fs::read(at("huge.so")).expect("a library");
    other[16] = 4;
    std::fs::write(at("core"), other).expect("a core file");
    shell(&zip, &["-q", "-1", "core.zip", "core"]);
    let symseal = command("symseal");
    let mut confined = Command::new(&python);
    confined.args(["-c", CONFINE, &CONFINED_BYTES.to_string()]).arg(symseal.get_program());
    confined.args(["bundle", "build", "--dry-run", "--name", "app", "--version", "1.0", "--output"]);
    let ran = confined.args([at("none"), at("core.zip")]).env("TMPDIR", &dir).output().expect("it starts");
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.code() == Some(2) && told.contains("found none"), "{told}");
    assert_eq!(std::fs::read_dir(&dir).expect("a folder").count(), 0);
}
