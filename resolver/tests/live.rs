//! Running processes: what a profiler is told of them, while they load, replace, move and end.
#![allow(clippy::unwrap_used, clippy::expect_used)] // tests
#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use symseal_module::{Avma, MissReason, Proof, Quality, ResolverStep, UnwindMethod};
use symseal_resolver::live::{LiveAddress, LiveLimits, LiveProcess, LiveSymbolizer};
use symseal_resolver::{Options, ResolvedFrame, Resolver};

/// A program that does what it is told, line by line, and says where its functions are.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static void *idle(void *id) { *(volatile long *)id = gettid(); for (;;) pause(); }
__attribute__((noinline)) int outer(int x) { volatile int y = x; return y + 1; }
int main(int argc, char **argv) {
    char line[4096], path[2048];
    void *library = 0;
    setvbuf(stdout, 0, _IOLBF, 0);
    printf("%p\n", (void *)outer);
    while (fgets(line, sizeof line, stdin)) {
        if (sscanf(line, "dlopen %2000s", path) == 1) {
            library = dlopen(path, RTLD_NOW);
            printf("%p\n", library ? dlsym(library, "loaded") : 0);
        } else if (sscanf(line, "instead %2000s", path) == 1) {
            dlclose(library);
            library = dlopen(path, RTLD_NOW);
            printf("%p\n", library ? dlsym(library, "loaded") : 0);
        } else if (!strcmp(line, "unload\n")) {
            dlclose(library);
            printf("%p\n", (void *)outer);
        } else if (sscanf(line, "exec %2000s", path) == 1) {
            execl(path, path, (char *)0);
        } else if (!strcmp(line, "thread\n")) {
            static volatile long id;
            pthread_t thread;
            pthread_create(&thread, 0, idle, (void *)&id);
            while (!id) usleep(1000);
            printf("%p\n", (void *)id);
        } else if (!strcmp(line, "map\n")) {
            printf("%p\n", mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        }
    }
    return outer(argc);
}
"#;

struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    outer: Avma,
}

impl Program {
    fn start(path: &Path) -> Self {
        let mut child = Command::new(path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut program = Self { child, input, output, outer: Avma(0) };
        program.outer = program.answer();
        program
    }

    fn tell(&mut self, line: &str) -> Avma {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        self.answer()
    }

    fn answer(&mut self) -> Avma {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }

    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.end();
    }
}

/// Compiles `source` to `dir/name`; `None`, said aloud, where there is no compiler.
fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let input = dir.join(format!("{name}.c"));
    std::fs::write(&input, source).unwrap();
    let output = dir.join(name);
    for compiler in ["gcc", "clang"] {
        let mut command = Command::new(compiler);
        command.args(["-g", "-O1", "-Wl,--build-id"]).args(flags).arg("-o").arg(&output).arg(&input).arg("-ldl");
        if let Ok(ran) = command.output() {
            assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            return Some(output);
        }
    }
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == "gcc" || name == "all"), "gcc is required");
    eprintln!("SKIP gcc: not found");
    None
}

fn symbolizer() -> LiveSymbolizer {
    let options = Options { local_files: true, ..Options::default() };
    LiveSymbolizer::new(Resolver::new(options), LiveLimits::default())
}

fn one(process: &LiveProcess, address: Avma) -> ResolvedFrame {
    process.resolve(&[LiveAddress::instruction(address)]).remove(0)
}

fn name(frame: &ResolvedFrame) -> Option<&str> {
    frame.function().and_then(|function| function.function.as_deref())
}

/// What addr2line says of the function `name` in a file: its line.
fn line_by_addr2line(file: &Path, name: &str) -> Option<u32> {
    let symbols = Command::new("nm").arg(file).output().ok()?;
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let address = symbols.lines().find(|line| line.ends_with(&format!(" {name}")))?.split(' ').next()?.to_owned();
    let answer = Command::new("addr2line").arg("-fe").arg(file).arg(address).output().ok()?;
    let answer = String::from_utf8(answer.stdout).unwrap();
    let (function, place) = answer.split_once('\n')?;
    assert_eq!(function, name);
    place.trim().rsplit(':').next()?.split(' ').next()?.parse().ok()
}

#[test]
fn a_function_is_named_as_addr2line_names_it_also_when_its_file_is_replaced_or_gone() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let expected = line_by_addr2line(&path, "outer");
    let program = Program::start(&path);
    let check = |what: &str| {
        // A symbolizer that has read nothing before.
        let process = symbolizer().process(program.pid()).unwrap();
        let frame = one(&process, program.outer);
        assert_eq!((name(&frame), frame.quality), (Some("outer"), Quality::Full), "{what}: {frame:?}");
        assert_eq!(frame.frames[0].line, expected, "{what}");
        assert_eq!((frame.resolver, frame.proof), (ResolverStep::BinaryDebugInfo, Proof::None));
        assert_eq!(frame.module.unwrap().path, path.to_str().unwrap());
    };
    check("as it was started");
    let other =
        compile(dir.path(), "other", "int other(void) { return 1; }\nint main(void) { return other(); }\n", &[]);
    let through_map = std::fs::read_dir(format!("/proc/{}/map_files", program.pid())).unwrap().next().unwrap().unwrap();
    let is_privileged = std::fs::metadata(through_map.path()).is_ok();
    std::fs::rename(other.unwrap(), &path).unwrap();
    if !is_privileged {
        println!("SKIP map_files: not permitted");
        let process = symbolizer().process(program.pid()).unwrap();
        let frame = one(&process, program.outer);
        assert_eq!((frame.quality, name(&frame)), (Quality::ModuleOffset, None), "never the other file's name");
        return;
    }
    check("replaced");
    std::fs::remove_file(&path).unwrap();
    check("deleted");
}

#[test]
fn who_asks_once_is_told_what_everybody_is_told() {
    let own = symbolizer().process(std::process::id()).unwrap();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let path = std::env::current_exe().unwrap();
    let code = maps.lines().find(|line| line.contains(" r-xp ") && line.ends_with(path.to_str().unwrap())).unwrap();
    let (start, end) = code.split(' ').next().unwrap().split_once('-').unwrap();
    let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
    let place = |at: u64| LiveAddress::instruction(Avma(start + (end - start) / 40 * at));
    let asked: Vec<LiveAddress> = (0..20).map(place).chain([LiveAddress::instruction(Avma(8))]).collect();
    let told =
        |frames: Vec<ResolvedFrame>| -> Vec<String> { frames.iter().map(|frame| format!("{frame:?}")).collect() };
    let expected = told(own.resolve(&asked));
    let once = symbolizer().process(std::process::id()).unwrap();
    assert_eq!(told(once.resolve_once(&asked)), expected);
    // What was not expected has its name as well.
    let others: Vec<LiveAddress> = (20..40).map(place).collect();
    assert_eq!(told(once.resolve(&others)), told(own.resolve(&others)));
    assert!(expected.iter().filter(|frame| frame.contains("BinaryDebugInfo")).count() > 5, "{expected:#?}");
}

#[test]
fn a_program_without_a_build_id_is_named_from_its_mapped_file() {
    let folder = tempfile::tempdir().unwrap();
    let Some(path) = compile(folder.path(), "plain", SOURCE, &["-Wl,--build-id=none"]) else { return };
    let program = Program::start(&path);
    let process = symbolizer().process(program.pid()).unwrap();
    let frame = one(&process, program.outer);
    assert_eq!((name(&frame), frame.quality), (Some("outer"), Quality::Full), "{frame:#?}");
    let bytes = std::fs::read(&path).unwrap();
    let object = symseal_artifact::ObjectFile::parse(&bytes).unwrap();
    let id = frame.module.as_ref().unwrap().debug_id.clone();
    assert!(id.is_some() && id.as_ref() == object.debug_id(), "{id:?}");
    assert_eq!(frame.proof, Proof::None);
}

#[test]
fn the_id_of_a_thread_stands_for_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "app", SOURCE, &["-g"]) else { return };
    let mut program = Program::start(&path);
    let thread = u32::try_from(program.tell("thread").0).unwrap();
    assert_ne!(thread, program.pid());
    let process = symbolizer().process(thread).unwrap();
    assert_eq!(process.pid(), program.pid());
    assert_eq!(name(&one(&process, program.outer)), Some("outer"));
}

#[test]
fn what_is_loaded_after_the_first_look_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let library =
        compile(dir.path(), "library.so", "int loaded(int x) { return x + 2; }\n", &["-shared", "-fPIC"]).unwrap();
    let mut program = Program::start(&path);
    let symbolizer = symbolizer();
    let process = symbolizer.process(program.pid()).unwrap();
    assert_eq!(name(&one(&process, program.outer)), Some("outer"));
    let loaded = program.tell(&format!("dlopen {}", library.display()));
    assert_ne!(loaded, Avma(0));
    let frame = one(&process, loaded);
    assert_eq!((name(&frame), frame.quality), (Some("loaded"), Quality::Full));
    assert_eq!(frame.frames[0].line, line_by_addr2line(&library, "loaded"));
    // Nothing was read twice.
    one(&process, loaded);
    let statistics = symbolizer.statistics();
    assert_eq!((statistics.modules.entries, statistics.modules.misses), (2, 2));
    assert_eq!((statistics.addresses.entries, statistics.addresses.hits), (2, 1));
    assert!(statistics.modules.bytes > 0 && statistics.processes.hits > 0 && statistics.processes.bytes > 0);
}

#[test]
fn what_takes_the_place_of_what_was_unmapped_has_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let library = |name: &str, line: &str| {
        let source = format!("{line}int loaded(int x) {{ return x + 2; }}\n");
        compile(dir.path(), name, &source, &["-shared", "-fPIC"]).unwrap()
    };
    let (first, second) = (library("first.so", "\n"), library("second.so", "\n\n\n"));
    let mut program = Program::start(&path);
    let process = symbolizer().process(program.pid()).unwrap();
    let before = program.tell(&format!("dlopen {}", first.display()));
    assert_eq!(one(&process, before).frames[0].line, Some(2));
    let after = program.tell(&format!("instead {}", second.display()));
    if before != after {
        eprintln!("SKIP: the second library is not mapped where the first one was");
        return;
    }
    // As soon as what was read is not of a moment ago.
    std::thread::sleep(std::time::Duration::from_millis(150));
    let frame = one(&process, after);
    assert_eq!((frame.frames[0].line, name(&frame)), (Some(4), Some("loaded")));
    assert!(frame.module.as_ref().unwrap().path.ends_with("second.so"), "{frame:#?}");
}

#[test]
fn a_library_that_is_built_again_and_loaded_at_the_same_addresses_has_its_new_names() {
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
        let library = |name: &str, line: &str| {
            let source = format!("{line}int loaded(int x) {{ return x + 2; }}\n");
            compile(dir.path(), name, &source, &["-shared", "-fPIC", build_id]).unwrap()
        };
        let (first, second) = (library("first.so", "\n"), library("second.so", "\n\n\n"));
        let place = dir.path().join("library.so");
        let inode = || std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&place).unwrap());
        std::fs::copy(&first, &place).unwrap();
        let before_inode = inode();
        let mut program = Program::start(&path);
        let process = symbolizer().process(program.pid()).unwrap();
        let before = program.tell(&format!("dlopen {}", place.display()));
        assert_eq!(one(&process, before).frames[0].line, Some(2));
        program.tell("unload");
        // Into the same file, as `cp` does it.
        std::fs::copy(&second, &place).unwrap();
        let after = program.tell(&format!("dlopen {}", place.display()));
        assert_eq!((after, inode()), (before, before_inode), "nothing but the bytes tells the two apart");
        std::thread::sleep(Duration::from_millis(150));
        let frame = one(&process, after);
        assert_eq!((frame.frames[0].line, name(&frame)), (Some(4), Some("loaded")), "{build_id}");
        let id = frame.module.as_ref().unwrap().debug_id.as_ref().map(ToString::to_string);
        assert_eq!(id, build_id_by_readelf(&second).or(id.clone().filter(|_| build_id.ends_with("none"))));
    }
}

/// The build-id that readelf sees in a file.
fn build_id_by_readelf(file: &Path) -> Option<String> {
    let notes = String::from_utf8(Command::new("readelf").arg("-n").arg(file).output().ok()?.stdout).unwrap();
    notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ").map(str::to_owned))
}

#[test]
fn after_exec_the_names_are_those_of_the_new_program() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let renamed = SOURCE.replace("outer", "second");
    let next = compile(dir.path(), "next", &renamed, &[]).unwrap();
    let mut program = Program::start(&path);
    let process = symbolizer().process(program.pid()).unwrap();
    assert_eq!(name(&one(&process, program.outer)), Some("outer"));
    let second = program.tell(&format!("exec {}", next.display()));
    assert_eq!(name(&one(&process, second)), Some("second"));
    assert_ne!(name(&one(&process, program.outer)), Some("outer"), "the old program is gone");
    // The same program again: its file is the same one, and its addresses are others.
    let again = program.tell(&format!("exec {}", next.display()));
    assert_eq!(name(&one(&process, again)), Some("second"));
}

#[test]
fn a_process_that_ends_leaves_what_was_known_of_it_and_never_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let mut program = Program::start(&path);
    let symbolizer = symbolizer();
    let (seen, unseen) =
        (symbolizer.process(program.pid()).unwrap(), self::symbolizer().process(program.pid()).unwrap());
    assert_eq!(name(&one(&seen, program.outer)), Some("outer"));
    program.end();
    assert_eq!(name(&one(&seen, program.outer)), Some("outer"), "sampled before");
    let frame = one(&seen, Avma(program.outer.0 + 1));
    assert!(frame.module.is_some(), "what was mapped is still known");
    let frame = one(&unseen, program.outer);
    assert_eq!((frame.resolver, frame.reason), (ResolverStep::Raw, Some(MissReason::NoModule)));
    assert!(frame.tried.iter().any(|tried| tried.detail.contains(&program.pid().to_string())), "{:?}", frame.tried);
    assert!(symbolizer.process(program.pid()).is_err());
}

#[test]
fn what_is_not_known_yet_is_pending_and_comes_later() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let program = Program::start(&path);
    let process = symbolizer().process(program.pid()).unwrap();
    let addresses = [LiveAddress::instruction(program.outer)];
    let first = process.try_resolve(&addresses);
    assert_eq!((first.pending.as_slice(), first.is_complete()), ([0].as_slice(), false));
    assert_eq!((first.frames.len(), name(&first.frames[0])), (1, None));
    assert_eq!(name(&first.wait()[0]), Some("outer"));
    let second = process.try_resolve(&addresses);
    assert!(second.is_complete());
    assert_eq!(name(&second.frames[0]), Some("outer"));

    let mut polled = process
        .try_resolve(&[LiveAddress::instruction(Avma(program.outer.0 + 1)), LiveAddress::instruction(Avma(0x10))]);
    let begin = Instant::now();
    while !polled.poll() && begin.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((name(&polled.frames[0]), polled.frames[1].resolver), (Some("outer"), ResolverStep::Raw));
}

#[test]
fn many_who_ask_at_once_have_each_module_read_once() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let (one_program, other) = (Program::start(&path), Program::start(&path));
    let symbolizer = symbolizer();
    std::thread::scope(|scope| {
        for program in [&one_program, &other, &one_program, &other] {
            let process = symbolizer.process(program.pid()).unwrap();
            scope.spawn(move || assert_eq!(name(&one(&process, program.outer)), Some("outer")));
        }
    });
    // Serial numbers are given with each reading: two processes of one file share it, and so do their frames.
    let statistics = symbolizer.statistics();
    assert_eq!((statistics.modules.entries, statistics.addresses.entries, statistics.processes.entries), (1, 1, 2));
}

#[test]
fn code_that_the_process_made_has_the_name_that_it_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let mut program = Program::start(&path);
    let process = symbolizer().process(program.pid()).unwrap();
    let code = program.tell("map");
    let frame = one(&process, code);
    assert_eq!((frame.resolver, frame.reason), (ResolverStep::Raw, Some(MissReason::NoModule)));
    let map = format!("/tmp/perf-{}.map", program.pid());
    std::fs::write(&map, format!("{:x} 40 JS:*hot a.js:1\n", code.0)).unwrap();
    let frame = one(&process, Avma(code.0 + 0x10));
    assert_eq!(
        (name(&frame), frame.resolver, frame.proof),
        (Some("JS:*hot a.js:1"), ResolverStep::JitMap, Proof::None)
    );
    assert_eq!(frame.symbol_offset, Some(0x10));
    // The compiler used the memory again.
    let mut file = std::fs::OpenOptions::new().append(true).open(&map).unwrap();
    writeln!(file, "{:x} 80 JS:*next a.js:2", code.0).unwrap();
    assert_eq!(name(&one(&process, Avma(code.0 + 0x10))), Some("JS:*next a.js:2"));
    // A return address just behind a function belongs to it.
    let behind = LiveAddress::return_address(Avma(code.0 + 0x80), UnwindMethod::FramePointer);
    assert_eq!(name(&process.resolve(&[behind])[0]), Some("JS:*next a.js:2"));
    if std::os::unix::fs::chown(&map, Some(65534), None).is_ok() {
        let frame = one(&process, code);
        assert_eq!((name(&frame), frame.reason), (None, Some(MissReason::NotPermitted)), "{frame:?}");
    }
    std::fs::remove_file(&map).unwrap();
}

/// Node's builtins lie in its own file, and only its map names them.
#[test]
fn a_runtime_names_code_of_a_file_too_whatever_was_asked_before_and_nothing_that_is_not_mapped() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let program = Program::start(&path);
    let map = format!("/tmp/perf-{}.map", program.pid());
    std::fs::write(&map, format!("{:x} 10 Builtin:Outer\n10000 ffffffff everywhere\n", program.outer.0)).unwrap();
    // Without the file nothing else has a name for it.
    let process = LiveSymbolizer::new(Resolver::new(Options::default()), LiveLimits::default());
    let process = process.process(program.pid()).unwrap();
    let waiting = process.try_resolve(&[LiveAddress::instruction(program.outer)]).wait();
    let frame = one(&process, program.outer);
    assert_eq!((name(&frame), frame.resolver, frame.proof), (Some("Builtin:Outer"), ResolverStep::JitMap, Proof::None));
    assert_eq!(name(&waiting[0]), Some("Builtin:Outer"));
    // A file's own name counts first.
    assert_eq!(name(&one(&symbolizer().process(program.pid()).unwrap(), program.outer)), Some("outer"));
    let nowhere = one(&process, Avma(0x20000));
    assert_eq!((name(&nowhere), nowhere.resolver), (None, ResolverStep::Raw));
    std::fs::remove_file(&map).unwrap();
}

#[test]
fn why_a_file_of_a_runtime_names_nothing_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let mut program = Program::start(&path);
    let process = symbolizer().process(program.pid()).unwrap();
    let code = program.tell("map");
    let map = format!("/tmp/perf-{}.map", program.pid());
    let check = |expected: MissReason| {
        let frame = one(&process, code);
        assert_eq!((frame.resolver, frame.reason), (ResolverStep::Raw, Some(expected)), "{frame:#?}");
        let step = frame.tried.iter().find(|tried| tried.step == ResolverStep::JitMap).unwrap();
        assert_eq!(step.outcome, symseal_resolver::Outcome::Miss(expected));
        assert!(step.detail.starts_with(&map), "{}", step.detail);
        // A module has its own reason.
        let started = one(&process, Avma(program.outer.0 & !0xfff));
        assert_ne!(started.reason, Some(expected), "{started:#?}");
    };
    std::fs::create_dir(&map).unwrap();
    check(MissReason::FileUnreadable);
    std::fs::remove_dir(&map).unwrap();
    // Without an end of line, and too long for any.
    std::fs::File::create(&map).unwrap().set_len(100 << 20).unwrap();
    check(MissReason::Malformed);
    std::fs::write(&map, "no function\nnor this\n").unwrap();
    check(MissReason::Malformed);
    // Of other code it names something.
    std::fs::write(&map, "10000 10 elsewhere\nno function\n").unwrap();
    let frame = one(&process, code);
    let step = frame.tried.iter().find(|tried| tried.step == ResolverStep::JitMap).unwrap();
    assert_eq!(step.outcome, symseal_resolver::Outcome::Miss(MissReason::NoSymbolAtAddress), "{frame:#?}");
    assert_eq!(step.detail, format!("{map}: 1 of its entries were not understood"));
    std::fs::remove_file(&map).unwrap();
}

/// A program that needs no library, and waits.
#[cfg(target_arch = "x86_64")]
const ALONE: &str = "
__attribute__((noinline)) void waits(void) {
    for (;;) { int result; __asm__ volatile(\"int $0x80\" : \"=a\"(result) : \"a\"(29)); }
}
void _start(void) { waits(); }
";

#[cfg(target_arch = "x86_64")]
#[test]
fn a_process_of_32_bits_is_named_as_addr2line_names_it() {
    let dir = tempfile::tempdir().unwrap();
    // Says so where there is no compiler.
    if compile(dir.path(), "there", "int main(void) { return 0; }", &[]).is_none() {
        return;
    }
    std::fs::write(dir.path().join("alone.c"), ALONE).unwrap();
    for build_id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        let path = dir.path().join("alone");
        let mut compiler = Command::new("gcc");
        compiler.args(["-g", "-O1", "-m32", "-nostdlib", "-static", build_id, "-o"]).arg(&path);
        let Ok(compiled) = compiler.arg(dir.path().join("alone.c")).status() else {
            println!("SKIP 32 bits: no gcc");
            return;
        };
        assert!(compiled.success());
        let Ok(child) = Command::new(&path).spawn() else {
            println!("SKIP 32 bits: the kernel runs no such programs");
            return;
        };
        let output = BufReader::new(Command::new("true").stdout(Stdio::piped()).spawn().unwrap().stdout.unwrap());
        let program = Program { child, input: None, output, outer: Avma(0) };
        std::thread::sleep(Duration::from_millis(50));
        let symbols = String::from_utf8(Command::new("nm").arg(&path).output().unwrap().stdout).unwrap();
        let line = symbols.lines().find(|line| line.ends_with(" waits")).unwrap();
        let address = Avma(u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap());
        let frame = one(&symbolizer().process(program.pid()).unwrap(), address);
        assert_eq!((name(&frame), frame.quality), (Some("waits"), Quality::Full), "{frame:#?}");
        assert_eq!(frame.frames[0].line, line_by_addr2line(&path, "waits"));
        let id = frame.module.as_ref().unwrap().debug_id.as_ref().map(ToString::to_string);
        assert!(id.is_some() && build_id_by_readelf(&path).is_none_or(|expected| id == Some(expected)));
    }
}

#[test]
fn bounds_of_caches_hold_and_change_no_answer() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "program", SOURCE, &[]) else { return };
    let program = Program::start(&path);
    let limits = LiveLimits { processes: 1, module_bytes: 1, addresses: 1, threads: 1 };
    let resolver = Resolver::new(Options { local_files: true, ..Options::default() });
    let symbolizer = LiveSymbolizer::new(resolver, limits);
    let process = symbolizer.process(program.pid()).unwrap();
    let ours = symbolizer.process(std::process::id()).unwrap();
    let own = Avma(bounds_of_caches_hold_and_change_no_answer as fn() as usize as u64);
    for _ in 0..2 {
        assert_eq!(name(&one(&process, program.outer)), Some("outer"));
        let frame = one(&ours, own);
        assert!(name(&frame).unwrap().contains("bounds_of_caches_hold"), "{frame:?}");
        let statistics = symbolizer.statistics();
        assert_eq!((statistics.processes.entries, statistics.modules.entries, statistics.addresses.entries), (1, 1, 1));
    }
}
