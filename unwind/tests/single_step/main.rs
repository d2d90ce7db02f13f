//! The absolute oracle: a real program, one instruction at a time, with a shadow stack kept from the calls and returns that it
//! makes. At every instruction the whole list of return addresses must come out of the unwinder.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../elf/mod.rs"]
mod elf;
mod shadow;
mod tracee;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use elf::Binary;
use shadow::{Expected, Shadow};
use symseal_module::{Avma, Svma};
use symseal_unwind::{
    Arch, Cache, CodeBytes, Frame, Memory, Module, Modules, Registers, StackBytes, StackRegions, Table, unwind,
};
use tracee::{Stop, Tracee};

/// More instructions than the program runs; a bound for a program that went astray.
const MAX_INSTRUCTIONS: usize = 1_000_000;
/// Bytes of stack that are copied at each instruction.
const STACK_BYTES: usize = 32 * 1024;

/// One line of /proc/PID/maps.
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

fn mappings(pid: i32) -> Vec<Mapping> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps of our child");
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let (_, offset) = (fields.next()?, fields.next()?);
            Some(Mapping {
                start: u64::from_str_radix(start, 16).ok()?,
                end: u64::from_str_radix(end, 16).ok()?,
                offset: u64::from_str_radix(offset, 16).ok()?,
                path: fields.nth(2).unwrap_or_default().to_owned(),
            })
        })
        .collect()
}

/// A file's table and code, with what is needed to place them.
#[derive(Clone)]
struct Known {
    table: Table<'static>,
    image_base: Svma,
    /// Stated address and bytes from the first executable section to the last.
    code: (u64, &'static [u8]),
}

/// What is known by path. Leaked: it lives as long as the test.
#[derive(Default)]
struct Tables(HashMap<String, Known>);

impl Tables {
    fn of(&mut self, mapping: &Mapping, tracee: &Tracee) -> Option<Known> {
        if let Some(known) = self.0.get(&mapping.path) {
            return Some(known.clone());
        }
        let binary = if mapping.path == "[vdso]" {
            let mut bytes = vec![0; (mapping.end - mapping.start) as usize];
            let read = tracee.read(mapping.start, &mut bytes);
            bytes.truncate(read);
            Binary { path: PathBuf::from("[vdso]"), bytes }
        } else {
            Binary::read(&mapping.path).filter(|binary| binary.bytes.starts_with(b"\x7fELF"))?
        };
        let parts = binary.parts();
        let start = parts.code.iter().map(|(start, _)| *start).min()?;
        let mut code = Vec::new();
        for (address, bytes) in &parts.code {
            code.resize((address - start) as usize, 0xcc);
            code.extend_from_slice(bytes);
        }
        let table = Table::open(binary.compile().bytes.leak()).expect("our own table");
        let known = Known { table, image_base: parts.image_base, code: (start, code.leak()) };
        self.0.insert(mapping.path.clone(), known.clone());
        Some(known)
    }

    fn modules(&mut self, maps: &[Mapping], tracee: &Tracee) -> (Modules<'static>, Vec<String>) {
        let (mut modules, mut names) = (Vec::new(), Vec::new());
        for first in maps.iter().filter(|map| map.offset == 0 && (map.path.starts_with('/') || map.path == "[vdso]")) {
            if names.contains(&first.path) {
                continue;
            }
            let Some(known) = self.of(first, tracee) else { continue };
            let end = maps.iter().filter(|map| map.path == first.path).map(|map| map.end).max();
            names.push(first.path.clone());
            modules.push(Module {
                start: Avma(first.start),
                end: Avma(end.expect("at least the first")),
                bias: first.start.wrapping_sub(known.image_base.0),
                image_base: known.image_base,
                table: Some(known.table),
                code: Some(CodeBytes {
                    start: Avma(first.start.wrapping_sub(known.image_base.0).wrapping_add(known.code.0)),
                    bytes: known.code.1,
                }),
            });
        }
        (Modules::new(Arch::X86_64, modules), names)
    }
}

fn registers_of(raw: &libc::user_regs_struct) -> Registers {
    let general = [
        raw.rax, raw.rdx, raw.rcx, raw.rbx, raw.rsi, raw.rdi, raw.rbp, raw.rsp, raw.r8, raw.r9, raw.r10, raw.r11,
        raw.r12, raw.r13, raw.r14, raw.r15,
    ];
    Registers { pc: raw.rip, sp: raw.rsp, fp: raw.rbp, general: std::array::from_fn(|at| general.get(at).copied()) }
}

/// What the run gave.
#[derive(Default)]
struct Score {
    instructions: usize,
    correct: usize,
    deepest: usize,
    wrong: BTreeMap<String, usize>,
    methods: BTreeMap<String, usize>,
    /// Of the right ones. The loader's own entry has no rule that says that it is the end.
    stops: BTreeMap<String, usize>,
    desynchronised: usize,
}

/// Where the snapshot of a capture would begin: right at the stack pointer, and what is above the interrupted one on the
/// thread's own stack when a handler runs elsewhere.
fn copy_stacks(tracee: &Tracee, maps: &[Mapping], sp: u64, interrupted_sp: &[u64]) -> Vec<(u64, Vec<u8>)> {
    let region = |sp: u64| maps.iter().position(|map| (map.start..map.end).contains(&sp));
    let mut starts = vec![sp];
    for other in interrupted_sp {
        if starts.iter().all(|start| region(*start) != region(*other)) {
            starts.push(*other);
        }
    }
    starts
        .into_iter()
        .filter_map(|start| {
            let room = maps.get(region(start)?)?.end - start;
            let mut bytes = vec![0; STACK_BYTES.min(room as usize)];
            let read = tracee.read(start, &mut bytes);
            bytes.truncate(read);
            Some((start, bytes))
        })
        .collect()
}

fn is_right(expected: &[Expected], frames: &[Frame]) -> bool {
    let found = frames.iter().skip(1).map(|frame| Expected { pc: frame.pc.0, exact: frame.exact });
    found.eq(expected.iter().copied())
}

fn run(program: &Path) -> Result<Score, std::io::Error> {
    let tracee = Tracee::start(program)?;
    let mut tables = Tables::default();
    let mut maps = mappings(tracee.pid());
    let (mut modules, mut names) = tables.modules(&maps, &tracee);
    let mut shadow = Shadow::default();
    let mut cache = Cache::new();
    let mut score = Score::default();
    let mut expected = Vec::new();
    let mut frames = vec![Frame::EMPTY; 256];
    let mut raw = tracee.registers()?;
    while score.instructions < MAX_INSTRUCTIONS {
        let registers = registers_of(&raw);
        let mut code = [0; 16];
        tracee.read(raw.rip, &mut code);

        let word = |address| {
            let mut word = [0; 8];
            if tracee.read(address, &mut word) == 8 { u64::from_le_bytes(word) } else { 0 }
        };
        shadow.expected(word, &mut expected);
        let copies = copy_stacks(&tracee, &maps, raw.rsp, &shadow.interrupted_stack_pointers());
        let regions: Vec<StackBytes<'_>> =
            copies.iter().map(|(start, bytes)| StackBytes { start: Avma(*start), bytes }).collect();
        let walk = unwind(&modules, &registers, &StackRegions(&regions), &mut cache, &mut frames);
        let found = frames.get(..walk.frames).unwrap_or_default();
        score.instructions += 1;
        score.deepest = score.deepest.max(expected.len());
        if is_right(&expected, found) {
            score.correct += 1;
            *score.stops.entry(walk.stop.to_string()).or_default() += 1;
            for frame in found {
                *score.methods.entry(frame.method.to_string()).or_default() += 1;
            }
        } else {
            let agreeing =
                found.iter().skip(1).zip(&expected).take_while(|(frame, expected)| frame.pc.0 == expected.pc).count();
            let frame = found.get(agreeing).copied().unwrap_or_default();
            let module = frame.module.and_then(|index| names.get(index as usize)).map_or("nowhere", String::as_str);
            let rule = modules
                .rule(&frame)
                .map_or(String::from("no table"), |(rule, _)| rule.display(Arch::X86_64).to_string());
            let name = Path::new(module).file_name().map_or_else(|| module.into(), |name| name.to_string_lossy());
            let base = maps.iter().find(|map| map.path == module).map_or(0, |map| map.start);
            let at = frame.pc.0.wrapping_sub(base);
            let stop = if agreeing + 1 >= found.len() { walk.stop.code() } else { "wrong caller" };
            *score.wrong.entry(format!("{name}+{at:#x} ({rule}): {stop}")).or_default() += 1;
        }

        let stopped = tracee.step(0)?;
        match stopped {
            Stop::Exited(status) => {
                if status != 0 {
                    return Err(std::io::Error::other(format!("the program ended with status {status}")));
                }
                break;
            }
            Stop::Signal(number) => {
                // Delivered by the next step, which ends at the first instruction of the handler.
                let interrupted = tracee.registers()?;
                let stop = tracee.step(number)?;
                assert!(matches!(stop, Stop::Step), "the handler of signal {number} was entered");
                raw = tracee.registers()?;
                shadow.enter_handler(raw.rsp, word(raw.rsp), interrupted.rsp);
            }
            Stop::Step => {
                let after = tracee.registers()?;
                if !shadow.executed(&code, &raw, &after, |a, b| {
                    maps.iter().any(|map| (map.start..map.end).contains(&a) && (map.start..map.end).contains(&b))
                }) {
                    score.desynchronised += 1;
                }
                if code.starts_with(&[0x0f, 0x05]) && [9, 10, 11, 12, 25].contains(&raw.rax) {
                    maps = mappings(tracee.pid());
                    (modules, names) = tables.modules(&maps, &tracee);
                }
                raw = after;
            }
        }
    }
    Ok(score)
}

fn compile(compiler: &str, directory: &Path) -> Option<PathBuf> {
    let program = directory.join(compiler);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/single_step/program.c");
    let status = Command::new(compiler).args(["-O2", "-g0", "-w", "-o"]).arg(&program).arg(&source).status().ok()?;
    assert!(status.success(), "{compiler} compiles {}", source.display());
    Some(program)
}

fn check(compiler: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = compile(compiler, directory.path()) else {
        return elf::skip(compiler, "not found");
    };
    let began = Instant::now();
    let score = match run(&program) {
        Ok(score) => score,
        Err(error) => return elf::skip("ptrace", &error.to_string()),
    };
    let share = score.correct as f64 / score.instructions as f64;
    println!(
        "{compiler}: {} of {} instructions right ({:.3} per mille), {} frames deep, {} desynchronised, {:.1} s; ends {:?}; methods {:?}",
        score.correct,
        score.instructions,
        share * 1000.0,
        score.deepest,
        score.desynchronised,
        began.elapsed().as_secs_f64(),
        score.stops,
        score.methods,
    );
    for (kind, count) in &score.wrong {
        println!("  {count:6} {kind}");
    }
    assert!(score.instructions > 60_000, "{}", score.instructions);
    assert_eq!(score.desynchronised, 0);
    assert!(share >= 0.9999, "{:.3} per mille right", share * 1000.0);
}

#[test]
fn every_instruction_of_a_gcc_program_gives_the_whole_stack() {
    check("gcc");
}

#[test]
fn every_instruction_of_a_clang_program_gives_the_whole_stack() {
    check("clang");
}

#[test]
fn memory_is_known_only_where_it_was_copied() {
    let regions = [StackBytes { start: Avma(16), bytes: &[1; 12] }, StackBytes { start: Avma(64), bytes: &[2; 8] }];
    let stacks = StackRegions(&regions);
    assert_eq!(stacks.read_u64(Avma(20)), Some(0x0101_0101_0101_0101));
    assert_eq!((stacks.read_u64(Avma(21)), stacks.read_u64(Avma(15))), (None, None));
    assert_eq!(stacks.read_u64(Avma(64)), Some(0x0202_0202_0202_0202));
}
