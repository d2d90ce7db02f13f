//! Stacks of core files, beside what other unwinders make of them: gdb, eu-stack, framehop. The truth is the source of the programs:
//! which of its functions are on the stack in a scene. Where they are all there, in order, with the end of the stack behind them, our
//! frames are what the others are held against, address by address: the addresses between them are ours, and no other's word.
//!
//! The peers may fail where we do not; how often is printed, and in `docs/unwinding.md`.
//!
//! `SYMSEAL_PEER='COMMAND {program} {core}'` runs another unwinder beside them, which writes a line `#0 0x401136` for each frame. `SYMSEAL_PEER_CORPUS=DIR` leaves the programs and
//! core files there, each with the frames that are right.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod core;
#[path = "../elf/mod.rs"]
mod elf;
#[path = "../framehop_peer/mod.rs"]
mod framehop_peer;
mod peer;
#[path = "../toolchains/mod.rs"]
mod toolchains;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use self::core::Core;
use elf::Binary;
use object::{Object, ObjectSymbol};
use symseal_module::{Avma, Svma};
use symseal_unwind::{Arch, Cache, CodeBytes, Frame, Module, Modules, Table, unwind};
use toolchains::Toolchain;

/// A scene of the program and the functions of the program that are on the stack in it, the innermost first.
const SCENES: &[(&str, &[&str])] = &[
    ("callback", &["descend", "descend", "descend", "descend", "compare", "callback", "main"]),
    ("handler", &["descend", "descend", "descend", "on_user", "handler", "main"]),
    ("nested", &["descend", "descend", "descend", "on_user", "on_other", "nested", "main"]),
    ("interrupted", &["descend", "descend", "descend", "on_user", "first_faults", "interrupted", "main"]),
    ("null", &["null", "main"]),
    ("leaf", &["leaf", "main"]),
    ("wide", &["wide", "main"]),
];
/// Every function that a scene may name.
const NAMES: &[&str] = &[
    "descend",
    "compare",
    "callback",
    "on_user",
    "on_other",
    "handler",
    "nested",
    "first_faults",
    "interrupted",
    "null",
    "leaf",
    "wide",
    "main",
];

const PAGE: u64 = 4096;

/// A platform and its peers.
struct Platform {
    name: &'static str,
    /// Without one, the program is of this machine, runs natively, and gdb writes the core files.
    toolchain: Option<Toolchain>,
    options: &'static [&'static str],
    emulator_options: &'static [&'static str],
    gdb: &'static str,
    has_eu_stack: bool,
    has_framehop: bool,
}

const X86_64: Platform = Platform {
    name: "x86_64",
    toolchain: None,
    options: &["-O2"],
    emulator_options: &[],
    gdb: "gdb",
    has_eu_stack: true,
    has_framehop: true,
};

const AARCH64: Platform = Platform {
    name: "aarch64",
    toolchain: Some(toolchains::AARCH64),
    options: &["-O2", "-static"],
    gdb: "gdb-multiarch",
    ..X86_64
};

const SIGNED: Platform = Platform {
    name: "aarch64, signed return addresses",
    options: &["-O2", "-static", "-mbranch-protection=standard", "-march=armv8.3-a"],
    emulator_options: &["-cpu", "max"],
    ..AARCH64
};

const MIPS: Platform = Platform {
    name: "MIPS big-endian",
    toolchain: Some(toolchains::MIPS),
    has_eu_stack: false,
    has_framehop: false,
    ..AARCH64
};

const I686: Platform =
    Platform { name: "i686", toolchain: Some(toolchains::I686), gdb: "gdb", has_framehop: false, ..AARCH64 };

const ARM: Platform = Platform {
    name: "arm",
    toolchain: Some(toolchains::ARM),
    options: &["-O2", "-static", "-mthumb"],
    has_framehop: false,
    ..AARCH64
};

const MIPSEL: Platform = Platform { name: "MIPS little-endian", toolchain: Some(toolchains::MIPSEL), ..MIPS };

impl Platform {
    fn arch(&self) -> Arch {
        self.toolchain.map_or(Arch::X86_64, |toolchain| toolchain.arch)
    }

    fn compiler(&self) -> String {
        self.toolchain.map_or_else(|| String::from("gcc"), |toolchain| toolchain.compiler())
    }
}

/// A file that was mapped.
pub(crate) struct Mapped {
    start: u64,
    end: u64,
    bias: u64,
    binary: Binary,
}

fn mapped(core: &Core, program: &Path) -> Vec<Mapped> {
    let mut found: Vec<Mapped> = Vec::new();
    for (start, _, offset, path) in &core.files {
        let same = core.files.iter().filter(|(.., other)| other == path);
        let end = same.map(|(_, end, ..)| *end).max().expect("at least this");
        let binary = Binary::read(path).filter(|binary| *offset == 0 && binary.bytes.starts_with(b"\x7fELF"));
        if let Some(binary) = binary.filter(|_| found.iter().all(|other| other.binary.path != Path::new(path))) {
            let bias = start.wrapping_sub(binary.parts().image_base.0);
            found.push(Mapped { start: *start, end, bias, binary });
        }
    }
    if found.is_empty() {
        // A static program, in a core file that does not name it.
        let binary = Binary::read(program).expect("the program");
        let (base, end) = {
            let parts = binary.parts();
            (parts.image_base.0, parts.text.iter().map(|text| text.end).max().expect("code"))
        };
        found.push(Mapped { start: base, end, bias: 0, binary });
    }
    found
}

/// Our frames, and whether the stack was followed to its end.
fn ours(core: &Core, mapped: &[Mapped], arch: Arch) -> (Vec<Frame>, bool) {
    let mut modules = Vec::new();
    for file in mapped {
        let parts = file.binary.parts();
        let start = parts.code.iter().map(|(start, _)| *start).min().expect("code");
        let mut code = Vec::new();
        for (address, bytes) in &parts.code {
            code.resize((address - start) as usize, 0);
            code.extend_from_slice(bytes);
        }
        modules.push(Module {
            start: Avma(file.start),
            end: Avma(file.end),
            bias: file.bias,
            image_base: parts.image_base,
            table: Some(Table::open(file.binary.compile().bytes.leak()).expect("our own table")),
            code: Some(CodeBytes { start: Avma(file.bias.wrapping_add(start)), bytes: code.leak() }),
        });
    }
    // And the pages of the kernel's or the emulator's signal trampolines, to which handlers return.
    loop {
        let known = Modules::new(arch, modules.clone()).with_signature_mask(core.signature_mask());
        let mut frames = vec![Frame::EMPTY; 128];
        let walk = unwind(&known, &core.registers, core, &mut Cache::new(), &mut frames);
        frames.truncate(walk.frames);
        let pages = frames.iter().filter(|frame| frame.module.is_none()).map(|frame| frame.pc.0 & !(PAGE - 1));
        let page = pages.into_iter().find(|page| *page != 0 && modules.iter().all(|module| module.start.0 != *page));
        let Some((page, bytes)) = page.and_then(|page| Some((page, core.at(page)?.get(..PAGE as usize)?))) else {
            return (frames, walk.is_complete());
        };
        modules.push(Module {
            start: Avma(page),
            end: Avma(page + PAGE),
            bias: page,
            image_base: Svma(0),
            table: None,
            code: Some(CodeBytes { start: Avma(page), bytes: bytes.to_vec().leak() }),
        });
    }
}

/// The scene's functions among `frames`.
fn names(frames: &[Frame], mapped: &[Mapped], program: &Path) -> Vec<String> {
    let program = mapped.iter().find(|file| file.binary.path.file_name() == program.file_name()).expect("the program");
    let file = object::File::parse(program.binary.bytes.as_slice()).expect("an ELF file");
    let symbols: BTreeMap<u64, &str> = file
        .symbols()
        .filter(|symbol| symbol.kind() == object::SymbolKind::Text && symbol.is_definition())
        .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?)))
        .collect();
    let inside = frames.iter().filter(|frame| (program.start..program.end).contains(&frame.lookup_pc().0));
    let address = |frame: &Frame| frame.lookup_pc().0.wrapping_sub(program.bias);
    let named = inside.filter_map(|frame| symbols.range(..=address(frame)).next_back().map(|(_, name)| *name));
    // What gcc puts aside is named after the function: descend.cold.
    let named = named.map(|name| name.split('.').next().unwrap_or_default());
    named.filter(|name| NAMES.contains(name)).map(String::from).collect()
}

fn compile(platform: &Platform, directory: &Path) -> Option<PathBuf> {
    let program = directory.join("scenes");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/scenes.c");
    let status = Command::new(platform.compiler())
        .args(["-g0", "-w", "-o"])
        .arg(&program)
        .args(platform.options)
        .arg(source)
        .status();
    status.ok().map(|status| {
        assert!(status.success(), "{} compiles", platform.compiler());
        program
    })
}

/// The core file of `scene`.
fn core_file(platform: &Platform, program: &Path, scene: &str, directory: &Path) -> Option<PathBuf> {
    let directory = directory.join(scene);
    std::fs::create_dir(&directory).expect("a directory");
    match platform.toolchain {
        Some(toolchain) => {
            // QEMU writes the file itself, where it stands.
            let limit = "ulimit -c unlimited && exec \"$@\"";
            Command::new("sh")
                .args(["-c", limit, "sh", toolchain.emulator])
                .args(platform.emulator_options)
                .arg(program)
                .arg(scene)
                .current_dir(&directory)
                .stderr(Stdio::null())
                .status()
                .ok()?;
        }
        None => {
            let run = format!("run {scene} >/dev/null");
            let mut gdb = peer::gdb(platform.gdb);
            gdb.args(["-ex", "handle SIGUSR1 SIGUSR2 nostop noprint pass", "-ex", &run]);
            if scene == "interrupted" {
                gdb.args(["-ex", "continue"]);
            }
            gdb.args(["-ex", "generate-core-file written.core"]).arg(program).current_dir(&directory);
            peer::output(gdb)?;
        }
    }
    let files = std::fs::read_dir(&directory).expect("the directory").filter_map(Result::ok).map(|file| file.path());
    files.into_iter().find(|path| path.extension().is_some_and(|extension| extension == "core"))
}

/// How many of a platform's stacks and frames a peer had.
#[derive(Default)]
struct Tally {
    stacks: usize,
    frames: usize,
    missed: Vec<&'static str>,
}

/// The peer that is named from outside.
const OTHER: &str = "SYMSEAL_PEER";
/// eu-stack as one that is named from outside.
const EU_STACK: &str = "eu-stack -n 64 --core {core} -e {program}";
/// Where programs and core files stay.
const CORPUS: &str = "SYMSEAL_PEER_CORPUS";

/// A directory for a platform's files: a new one, that stays if it is asked for.
fn directory(platform: &Platform) -> tempfile::TempDir {
    let Some(corpus) = std::env::var_os(CORPUS) else { return tempfile::tempdir().expect("a directory") };
    let name = platform.name.replace([' ', ','], "-");
    std::fs::create_dir_all(&corpus).expect("the corpus's directory");
    let mut made = tempfile::Builder::new().prefix(&format!("{name}-")).tempdir_in(corpus).expect("a directory");
    made.disable_cleanup(true);
    made
}

fn check(platform: &Platform) {
    let directory = directory(platform);
    let Some(program) = compile(platform, directory.path()) else {
        return elf::skip(&platform.compiler(), "not found");
    };
    for tool in [platform.toolchain.map_or("gdb", |toolchain| toolchain.emulator), platform.gdb] {
        if Command::new(tool).arg("--version").stdout(Stdio::null()).status().is_err() {
            return elf::skip(tool, "not found");
        }
    }
    let mut tallies: BTreeMap<&str, Tally> = BTreeMap::new();
    let mut total = 0;
    for (scene, expected) in SCENES {
        let core_path = core_file(platform, &program, scene, directory.path());
        let Some(core_path) = core_path else {
            // Where ptrace or core files are forbidden, there is none of the first scene either.
            assert_eq!(total, 0, "{} {scene}: no core file", platform.name);
            return elf::skip("core-files", "none was written");
        };
        let core = Core::read(&core_path, platform.arch());
        let mapped = mapped(&core, &program);
        let (frames, complete) = ours(&core, &mapped, platform.arch());
        let found = names(&frames, &mapped, &program);
        assert_eq!(found, *expected, "{} {scene}: {frames:x?}", platform.name);
        assert!(complete, "{} {scene}: {frames:x?}", platform.name);
        total += frames.len();
        let right: Vec<String> =
            frames.iter().enumerate().map(|(at, frame)| format!("#{at} {:#x}\n", frame.pc.0)).collect();
        std::fs::write(core_path.with_extension("frames"), right.concat()).expect("the right frames");

        let mut compare = |name: &'static str, theirs: Option<Vec<Option<u64>>>| {
            let theirs = theirs.unwrap_or_default();
            // None stands for a signal frame without an address.
            let agree =
                frames.iter().zip(&theirs).take_while(|(frame, pc)| pc.is_none_or(|pc| pc == frame.pc.0)).count();
            let tally = tallies.entry(name).or_default();
            tally.frames += agree;
            if agree == frames.len() {
                tally.stacks += 1;
            } else {
                tally.missed.push(scene);
            }
        };
        compare(platform.gdb, peer::by_gdb(platform.gdb, &program, &core_path));
        if platform.has_eu_stack {
            let theirs = peer::by_eu_stack(&program, &core_path);
            if theirs.is_some() {
                let named = peer::by_command(EU_STACK, &program, &core_path);
                assert_eq!(named, theirs, "what is named from outside is asked as others are");
            }
            compare("eu-stack", theirs);
        }
        if let Ok(command) = std::env::var(OTHER) {
            compare(OTHER, peer::by_command(&command, &program, &core_path));
        }
        if platform.has_framehop {
            compare("framehop", Some(peer::by_framehop(platform.arch(), &core, &mapped)));
        }
    }
    println!("{}: symseal {} of {} stacks, {total} frames", platform.name, SCENES.len(), SCENES.len());
    for (peer, tally) in &tallies {
        println!(
            "{}: {peer} {} of {} stacks, {} of {total} frames; not whole: {}",
            platform.name,
            tally.stacks,
            SCENES.len(),
            tally.frames,
            tally.missed.join(", ")
        );
    }
    // Of those that this test knows, whoever agrees nowhere was not understood. Another one may not know the processor.
    let strange = tallies.iter().find(|(peer, tally)| tally.frames == 0 && **peer != OTHER).map(|(peer, _)| peer);
    assert!(strange.is_none(), "{}: a peer without a frame: {strange:?}", platform.name);
}

#[test]
fn stacks_with_signal_frames_of_x86_64_are_whole() {
    check(&X86_64);
}

#[test]
fn stacks_of_aarch64_are_whole() {
    check(&AARCH64);
}

#[test]
fn stacks_with_signed_return_addresses_are_whole() {
    check(&SIGNED);
}

#[test]
fn stacks_of_i686_are_whole() {
    check(&I686);
}

#[test]
fn stacks_through_a_c_library_without_call_frame_information_are_whole_on_arm() {
    check(&ARM);
}

#[test]
fn stacks_through_a_c_library_without_call_frame_information_are_whole_on_big_endian_mips() {
    check(&MIPS);
}

#[test]
fn stacks_through_a_c_library_without_call_frame_information_are_whole_on_little_endian_mips() {
    check(&MIPSEL);
}
