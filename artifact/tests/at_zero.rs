//! Code at address 0, where linkers also put what they dropped.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{any_of, have};
use symseal_artifact::{DebugFiles, FunctionStream, ObjectFile, functions, functions_at};
use symseal_module::Svma;
use symseal_symx::{FunctionRecord, StrId};

const DROPPED: &str = "
int dead(int a) { int s = 0;
  for (int i = 0; i < a; i++) s += a * i ^ s;
  for (int i = 0; i < a; i++) s += a * i ^ s * 3;
  return s; }
int dead2(int a) { return dead(a) + dead(a + 1); }
static int real(int a) { return a; }
int (*volatile kept)(int) = real;
";

const LIVE: &str = "
__attribute__((noinline)) int real(int a) { if (a > 4) return real(a - 1) * 3;
  return a; }
int dead3(int a) { int s = 1;
  for (int i = 0; i < a; i++) s += a * i ^ s;
  return s * real(s); }
__attribute__((noinline)) int helper(int a) { volatile int x = a; x += real(a);
  return x; }
void _start(void) { for (;;) helper(1); }
";

/// Cortex-M has the first stack pointer and the addresses of handlers at 0.
const VECTORS: &str = "
extern void _start(void);
__attribute__((section(\".vec\"), used)) void (*const vec[])(void) = { (void *)0x20001000, _start };
";

const LAYOUT: &str = "SECTIONS { . = 0; .text : { KEEP(*(.vec)) *(.text*) *(.rodata*) } . = 0x20000000; .data : { *(.data*) *(.bss*) } }";

/// A program that is linked at 0 in a folder of its own.
struct Firmware {
    folder: tempfile::TempDir,
}

impl Firmware {
    fn new(sources: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in sources {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("program")
    }

    fn run(&self, tool: &str, arguments: &[&str]) {
        let ran = Command::new(tool).current_dir(self.folder.path()).args(arguments).output().unwrap();
        assert!(ran.status.success(), "{tool}: {}", String::from_utf8_lossy(&ran.stderr));
    }

    /// Holds the functions to the symbols: each by its name, of its own lines, and none of what was dropped.
    #[track_caller]
    fn check(&self, expected: &[&str]) {
        let bytes = std::fs::read(self.path()).unwrap();
        let object = ObjectFile::parse(&bytes).unwrap();
        let stream = functions(&object, &DebugFiles::default()).unwrap();
        for name in expected {
            let address = symbol(&self.path(), name);
            let record = at(&stream, address).unwrap_or_else(|| panic!("{name}"));
            let told = |id: StrId| stream.strings.get(id);
            assert_eq!((told(record.name), record.start.0), (*name, address));
            assert_eq!((record.flags.folded, record.aliases.len()), (false, 0), "{name}");
            let files: Vec<&str> = record.rows.iter().map(|row| told(row.file)).collect();
            assert!(!files.is_empty() && files.iter().all(|file| file.ends_with("live.c")), "{name}: {files:?}");
            let lines: Vec<u32> = record.rows.iter().map(|row| row.line).filter(|line| *line > 0).collect();
            assert!(lines.iter().all(|line| *line >= record.line && *line <= record.line + 1), "{name}: {lines:?}");
            let alone = functions_at(&object, &DebugFiles::default(), &[Svma(address)]).unwrap();
            if let Some(stream) = alone {
                let found = at(&stream, address).map(|record| stream.strings.get(record.name));
                assert_eq!(found, Some(*name), "by itself");
            }
        }
        let dropped = |record: &&FunctionRecord| stream.strings.get(record.name).starts_with("dead");
        assert_eq!(stream.functions.iter().filter(dropped).count(), 0);
        assert!(stream.statistics.skipped["function outside of the code (dropped by the linker)"] >= 3);
    }
}

fn at(stream: &FunctionStream, address: u64) -> Option<&FunctionRecord> {
    stream.functions.iter().find(|record| (record.start.0..record.start.0 + record.size).contains(&address))
}

/// Where nm has a function; of Thumb code without the bit that says so.
fn symbol(program: &Path, name: &str) -> u64 {
    let listed = Command::new("nm").arg(program).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = listed.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
    u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap() & !1
}

const ALONE: [&str; 8] = [
    "-O1",
    "-ffreestanding",
    "-nostdlib",
    "-static",
    "-ffunction-sections",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-Wl,-Ttext=0,--gc-sections,--entry=_start",
];

#[test]
fn what_the_linker_dropped_names_no_code_at_address_0() {
    if !have("gcc") || !have("nm") {
        return;
    }
    for linker in ["bfd", "gold", "lld"] {
        if !have(&format!("ld.{linker}")) {
            continue;
        }
        for version in ["-gdwarf-4", "-gdwarf-5"] {
            for sources in [["dropped.c", "live.c"], ["live.c", "dropped.c"]] {
                let program = Firmware::new(&[("dropped.c", DROPPED), ("live.c", LIVE)]);
                let linker = format!("-fuse-ld={linker}");
                let arguments = [&ALONE[..], &sources, &[version, &linker, "-o", "program"]].concat();
                program.run("gcc", &arguments);
                program.check(&["real", "helper", "_start"]);
            }
        }
    }
}

#[test]
fn what_is_at_address_0_may_have_a_symbol_that_does_not_spell_its_name() {
    if !have("gcc") || !have("g++") || !have("ld.bfd") {
        return;
    }
    let source = "
namespace { struct Live { int x; __attribute__((noinline)) ~Live() { asm volatile (\"\" : : \"r\"(this)); } }; }
extern \"C\" void _start() { Live live; }
extern \"C\" int dead(int a) { return a * 3 + (a >> 2); }";
    let program = Firmware::new(&[("live.cc", source), ("dropped.c", DROPPED)]);
    let sources = ["dropped.c", "live.cc", "-fno-exceptions", "-gdwarf-5", "-fuse-ld=bfd", "-o", "program"];
    program.run("g++", &[&ALONE[..], &sources].concat());
    let bytes = std::fs::read(program.path()).unwrap();
    let stream = functions(&ObjectFile::parse(&bytes).unwrap(), &DebugFiles::default()).unwrap();
    let first = at(&stream, 0).unwrap();
    assert!(stream.strings.get(first.name).contains("Live"), "{}", stream.strings.get(first.name));
    assert!(!first.rows.is_empty() && !first.flags.folded, "{first:?}");
}

#[test]
fn firmware_that_begins_with_its_vectors_has_no_function_there() {
    let (Some(clang), Some(lld)) = (any_of(&["clang", "clang-19", "clang-16"]), any_of(&["ld.lld", "ld.lld-19"]))
    else {
        return;
    };
    for version in ["-gdwarf-4", "-gdwarf-5"] {
        let program =
            Firmware::new(&[("dropped.c", DROPPED), ("live.c", LIVE), ("vectors.c", VECTORS), ("layout.ld", LAYOUT)]);
        let options = ["--target=thumbv7m-none-eabi", version, "-O1", "-ffreestanding", "-ffunction-sections", "-c"];
        program.run(clang, &[&options[..], &["dropped.c", "live.c", "vectors.c"]].concat());
        let objects = ["dropped.o", "live.o", "vectors.o", "-o", "program"];
        program.run(lld, &[&["--gc-sections", "--entry=_start", "-T", "layout.ld"][..], &objects].concat());
        let bytes = std::fs::read(program.path()).unwrap();
        let stream = functions(&ObjectFile::parse(&bytes).unwrap(), &DebugFiles::default()).unwrap();
        let first = at(&stream, 0).map(|record| (stream.strings.get(record.name), record.rows.len()));
        assert!(matches!(first, None | Some(("vec", 0))), "{first:?}");
        program.check(&["real", "helper", "_start"]);
    }
}
