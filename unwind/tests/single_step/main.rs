//! The absolute oracle: real programs, one instruction at a time, with a shadow stack kept from the calls and returns that they
//! make. At every instruction all return addresses, all CFAs and all frame pointers must come out of the unwinder.
//!
//! `SYMSEAL_STEPS` gives the number of instructions of each program, and the least of all together; without it each runs its short form to the end.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod asynchronous;
mod contexts;
mod coroutines;
#[path = "../elf/mod.rs"]
mod elf;
#[path = "../framehop_peer/mod.rs"]
mod framehop_peer;
mod handwritten;
mod process;
mod scan;
mod shadow;
mod tasks;
mod tracee;
#[path = "../waiting/mod.rs"]
mod waiting;

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use process::Process;
use shadow::{Expected, Shadow};
use symseal_module::Avma;
use symseal_unwind::{Arch, Cache, Frame, Kind, Memory, Registers, StackBytes, StackRegions, unwind};
use tracee::{Stop, Tracee};

/// Of each short program, which is more than one in C runs.
const STEPS: usize = 130_000;
/// And of the loader before it.
const LOADER_STEPS: usize = 100_000;
/// The least number of all programs together.
const LEAST_STEPS: usize = 100_000;
/// The least number of what must be right, in per cent.
const LEAST_RIGHT: f64 = 99.99;
/// The most instructions between the first register that a function writes over in its own frame and its leaving for another place.
const LONGEST_LEAVING: usize = 400;
/// More frames than the programs have.
const MOST_FRAMES: usize = 256;
/// Bytes of stack that are copied at each instruction.
const STACK_BYTES: usize = 64 * 1024;

/// What is stepped through.
struct Program {
    name: &'static str,
    compiler: &'static str,
    source: &'static str,
    options: &'static [&'static str],
    /// What makes the short form.
    short: &'static [&'static str],
    /// Rounds of the short form and of the whole: its argument.
    rounds: [u32; 2],
    /// From the first instruction of the loader on, not from that of the program.
    with_loader: bool,
    /// The snapshots have the program's data too, which only linkage tables of this kind may need.
    with_data: bool,
    /// At least so many functions leave for a landing pad, or by longjmp, in the short form.
    leaves: usize,
    signals: usize,
}

/// Asks for a linker that compilers do not come with.
const LLD: &str = "-fuse-ld=lld";

const PROGRAMS: &[Program] = &[
    Program {
        name: "C, gcc -O2, with the loader's start",
        compiler: "gcc",
        source: "program.c",
        options: &["-O2", "-g0", "-w"],
        short: &["-DSMALL"],
        rounds: [1, 1],
        with_loader: true,
        with_data: false,
        leaves: 1,
        signals: 4,
    },
    Program {
        name: "C, gcc -O0",
        compiler: "gcc",
        source: "program.c",
        options: &["-O0", "-g0", "-w"],
        short: &["-DSMALL"],
        rounds: [1, 1],
        with_loader: false,
        with_data: false,
        leaves: 1,
        signals: 4,
    },
    Program {
        name: "C, clang -O2",
        compiler: "clang",
        source: "program.c",
        options: &["-O2", "-g0", "-w"],
        short: &["-DSMALL"],
        rounds: [1, 1],
        with_loader: false,
        with_data: false,
        leaves: 1,
        signals: 4,
    },
    Program {
        name: "C, clang -O2, linkage table of returns",
        compiler: "clang",
        source: "program.c",
        options: &["-O2", "-g0", "-w", LLD, "-Wl,-z,retpolineplt,-z,lazy"],
        short: &["-DSMALL"],
        rounds: [1, 1],
        with_loader: false,
        with_data: true,
        leaves: 1,
        signals: 4,
    },
    Program {
        name: "C, clang -O2, linkage table of returns, bound at once",
        compiler: "clang",
        source: "program.c",
        options: &["-O2", "-g0", "-w", LLD, "-Wl,-z,retpolineplt,-z,now"],
        short: &["-DSMALL"],
        rounds: [1, 1],
        with_loader: false,
        with_data: false,
        leaves: 1,
        signals: 4,
    },
    Program {
        name: "C, gcc -O2 -z lazy, dlopen",
        compiler: "gcc",
        source: "libraries.c",
        options: &["-O2", "-g0", "-Wl,-z,lazy"],
        short: &[],
        rounds: [1, 20],
        with_loader: false,
        with_data: false,
        leaves: 0,
        signals: 0,
    },
    Program {
        name: "C, clang -O1, asynchronous functions of Swift's convention",
        compiler: asynchronous::COMPILER,
        source: asynchronous::SOURCE,
        options: &["-O1", "-fno-omit-frame-pointer", "-g0"],
        short: &[],
        rounds: [1, 20],
        with_loader: false,
        with_data: false,
        leaves: 0,
        signals: 0,
    },
    Program {
        name: "assembler with its CFA in a register that calls need not keep, gcc",
        compiler: "gcc",
        source: "kept.c",
        options: &["-O2", "-g0"],
        short: &[],
        rounds: [1, 1],
        with_loader: false,
        with_data: false,
        leaves: 0,
        signals: 0,
    },
    Program {
        name: "C++, g++ -O2, exceptions",
        compiler: "g++",
        source: "exceptions.cpp",
        options: &["-O2", "-g0"],
        short: &[],
        rounds: [1, 20],
        with_loader: false,
        with_data: false,
        leaves: 3,
        signals: 0,
    },
    Program {
        name: "Rust, rustc -O, panics",
        compiler: "rustc",
        source: "panics.rs",
        options: &["-O", "--edition=2021"],
        short: &[],
        rounds: [1, 20],
        with_loader: false,
        with_data: false,
        leaves: 3,
        signals: 0,
    },
];

/// Where the code says nothing of itself, by file section and name, and why.
const EXPLAINED: &[(&str, &str)] = &[
    (" .init ", "_init of crti.o has no call frame information and moves the stack pointer"),
    (" .fini ", "_fini of crti.o has none, and is called through a pointer"),
    (
        " __do_global_dtors_aux+",
        "crtbegin.o has no call frame information, and nothing decides between the top of the stack and the frame pointer",
    ),
];

fn registers_of(raw: &tracee::Instant) -> Registers {
    let general = [
        raw.rax, raw.rdx, raw.rcx, raw.rbx, raw.rsi, raw.rdi, raw.rbp, raw.rsp, raw.r8, raw.r9, raw.r10, raw.r11,
        raw.r12, raw.r13, raw.r14, raw.r15,
    ];
    Registers { pc: raw.rip, sp: raw.rsp, fp: raw.rbp, general: std::array::from_fn(|at| general.get(at).copied()) }
}

/// What a run gave.
#[derive(Default)]
struct Score {
    instructions: usize,
    return_addresses: usize,
    with_cfas: usize,
    /// And with every frame pointer: what counts as right.
    right: usize,
    deepest: usize,
    signals: usize,
    /// In functions that had given up the frame they were called from.
    leaving: usize,
    /// Such functions: they left for a landing pad, or by longjmp.
    left: usize,
    /// What differs in these, in which function, and in whose frame.
    leaving_at: BTreeMap<(&'static str, String, String), usize>,
    /// What differs, the name of the innermost function, where the first difference is, and whether that is code without information.
    wrong: BTreeMap<(&'static str, String, String, bool), usize>,
    /// Those at which another unwinder finds all return addresses, from the same registers and bytes.
    by_framehop: usize,
    methods: BTreeMap<String, usize>,
    /// Of those with the right return addresses. The loader's own entry has no rule that says that it is the end.
    stops: BTreeMap<String, usize>,
    finished: bool,
}

impl Score {
    /// Compares, and says what differs first and in which frame.
    fn count(&mut self, expected: &[Expected], found: &[Frame]) -> Option<(&'static str, usize)> {
        self.instructions += 1;
        self.deepest = self.deepest.max(expected.len());
        let callers = found.get(1..).unwrap_or_default();
        let pairs = || found.iter().zip(callers).zip(expected);
        let pc = |((_, caller), expected): ((&Frame, &Frame), &Expected)| {
            (caller.pc.0, caller.exact) == (expected.pc, expected.exact)
        };
        let cfa = |((callee, _), expected): ((&Frame, &Frame), &Expected)| callee.cfa.0 == expected.cfa_below;
        let fp = |((_, caller), expected): ((&Frame, &Frame), &Expected)| caller.fp == expected.fp;
        let same_pcs = pairs().take_while(|pair| pc(*pair)).count();
        if same_pcs < callers.len().max(expected.len()) {
            return Some(("return address", same_pcs));
        }
        self.return_addresses += 1;
        if let Some(at) = pairs().position(|pair| !cfa(pair)) {
            return Some(("CFA", at));
        }
        self.with_cfas += 1;
        if let Some(at) = pairs().position(|pair| !fp(pair)) {
            return Some(("frame pointer", at));
        }
        self.right += 1;
        None
    }

    fn print(&self, name: &str, seconds: f64) {
        println!(
            "{name}: {} instructions, {} signals, {} leaves, {} frames deep, {seconds:.1} s: return addresses {:.4} %, with CFAs {:.4} %, with frame pointers {:.4} %, leaving {:.4} %; return addresses by framehop {:.4} %{}",
            self.instructions,
            self.signals,
            self.left,
            self.deepest,
            self.share(self.return_addresses),
            self.share(self.with_cfas),
            self.share(self.right),
            self.share(self.leaving),
            self.share(self.by_framehop),
            if self.finished { "; to the program's end" } else { "" },
        );
        println!("  frames by {:?}; ends {:?}", self.methods, self.stops);
        for ((what, innermost, place), count) in &self.leaving_at {
            println!("  {count:6} leaving: {what} in {innermost}: {place}");
        }
    }

    fn share(&self, count: usize) -> f64 {
        100.0 * count as f64 / self.instructions as f64
    }
}

/// An instruction at which not all came out.
struct Difference {
    what: &'static str,
    innermost: String,
    place: String,
    /// Of the functions up to the one whose caller differs.
    calls: Vec<u64>,
    is_leaving: bool,
    /// The innermost function's caller differs, and there is no rule for it.
    is_uncovered: bool,
}

/// Where the snapshot of a capture would begin: right at the stack pointer, and what is above the interrupted one on the
/// thread's own stack when a handler runs elsewhere.
fn copy_stacks(tracee: &Tracee, process: &Process, sp: u64, interrupted_sp: &[u64]) -> Vec<(u64, Vec<u8>)> {
    let mut starts = vec![sp];
    for other in interrupted_sp {
        if starts.iter().all(|start| process.region(*start) != process.region(*other)) {
            starts.push(*other);
        }
    }
    starts.into_iter().filter_map(|start| Some(copy(tracee, start..process.region(start)?.end))).collect()
}

/// The first bytes of `range`, and where they are.
fn copy(tracee: &Tracee, range: Range<u64>) -> (u64, Vec<u8>) {
    let mut bytes = vec![0; STACK_BYTES.min((range.end - range.start) as usize)];
    let read = tracee.read(range.start, &mut bytes);
    bytes.truncate(read);
    (range.start, bytes)
}

/// Runs the program at `path` for `steps` instructions or to its end.
fn run(path: &Path, rounds: u32, program: &Program, steps: usize) -> Result<Score, Error> {
    let tracee = Tracee::start(path, &rounds.to_string())?;
    if !program.with_loader {
        tracee.run_to(tracee.entry()?)?;
    }
    let mut process = Process::of(&tracee);
    let mut shadow = Shadow::default();
    let mut cache = Cache::new();
    let mut score = Score::default();
    let mut expected = Vec::new();
    let mut frames = vec![Frame::EMPTY; MOST_FRAMES];
    let mut differences = Vec::new();
    let mut raw = tracee.registers()?;
    while score.instructions < steps {
        let registers = registers_of(&raw);
        let mut code = [0; 16];
        tracee.read(raw.rip, &mut code);

        let mut copies = copy_stacks(&tracee, &process, raw.rsp, &shadow.interrupted_stack_pointers());
        if program.with_data {
            copies.extend(process.data(path).map(|range| copy(&tracee, range)));
        }
        let regions: Vec<StackBytes<'_>> =
            copies.iter().map(|(start, bytes)| StackBytes { start: Avma(*start), bytes }).collect();
        let stacks = StackRegions(&regions);
        shadow.expected(|address| tracee.word(address), &mut expected);
        let walk = unwind(&process.modules, &registers, &stacks, &mut cache, &mut frames);
        let found = frames.get(..walk.frames).unwrap_or_default();
        let known_to_peer =
            framehop_peer::x86_64(registers.pc, |number| registers.general.get(number).copied().flatten().unwrap_or(0));
        let read = |address| stacks.read_u64(Avma(address));
        let by_framehop = process.framehop.callers(registers.pc, known_to_peer, read, MOST_FRAMES);
        score.by_framehop += usize::from(expected.iter().map(|expected| expected.pc).eq(by_framehop));
        match score.count(&expected, found) {
            None => {
                *score.stops.entry(walk.stop.to_string()).or_default() += 1;
                for frame in found {
                    *score.methods.entry(frame.method.to_string()).or_default() += 1;
                }
            }
            Some((what, at)) => {
                let frame = found.get(at).copied().unwrap_or_default();
                let rule = process.modules.rule(&frame);
                let rule = rule.map_or(String::from("no table"), |(rule, _)| rule.display(Arch::X86_64).to_string());
                let stop = if at + 1 >= found.len() { walk.stop.code() } else { "differs" };
                let innermost = found.first().map_or_else(String::new, |frame| process.name(frame));
                let place = format!("frame {at} in {} ({rule}): {stop}", process.name(&frame));
                let is_gap = process.modules.rule(&frame).is_some_and(|(rule, _)| rule.kind() == Some(Kind::Gap));
                differences.push(Difference {
                    what,
                    innermost,
                    place,
                    calls: shadow.innermost(at + 1),
                    is_leaving: shadow.is_leaving,
                    is_uncovered: at == 0 && is_gap,
                });
            }
        }

        match tracee.step(0)? {
            Stop::Exited(status) => {
                if status != 0 {
                    return Err(Error::other(format!("the program ended with status {status}")));
                }
                score.finished = true;
                break;
            }
            Stop::Signal(number) => {
                // Delivered by the next step, which ends at the first instruction of the handler.
                let interrupted = tracee.registers()?;
                let stop = tracee.step(number)?;
                assert_eq!(stop, Stop::Step, "the handler of signal {number} was entered");
                raw = tracee.registers()?;
                shadow.enter_handler(&raw, tracee.word(raw.rsp), &interrupted);
                score.signals += 1;
            }
            Stop::Step => raw = process.executed(&tracee, &mut shadow, &code, &raw)?,
        }
    }
    assert_eq!(shadow.desynchronised, shadow.landings, "returns elsewhere than their calls");
    score.left = shadow.left.len();
    for difference in differences {
        let is_leaving = difference.is_leaving || difference.calls.iter().any(|call| shadow.left.contains(call));
        let Difference { what, innermost, place, is_uncovered, .. } = difference;
        if is_leaving {
            score.leaving += 1;
            let function = |place: &str| place.split('+').next().unwrap_or_default().to_owned();
            *score.leaving_at.entry((what, function(&innermost), function(&place))).or_default() += 1;
        } else {
            *score.wrong.entry((what, innermost, place, is_uncovered)).or_default() += 1;
        }
    }
    Ok(score)
}

fn compile(program: &Program, is_short: bool, directory: &Path) -> Option<PathBuf> {
    if program.options.contains(&LLD) && Command::new("ld.lld").arg("--version").output().is_err() {
        elf::skip("ld.lld", "not found");
        return None;
    }
    let output = directory.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/single_step").join(program.source);
    let status = Command::new(program.compiler)
        .args(program.options)
        .args(if is_short { program.short } else { &[] })
        .arg("-o")
        .arg(&output)
        .arg(&source)
        .status();
    match status {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            elf::skip(program.compiler, "not found");
            None
        }
        status => {
            assert!(status.is_ok_and(|status| status.success()), "{} compiles {}", program.compiler, source.display());
            Some(output)
        }
    }
}

/// Why a difference is no defect.
fn explanation(innermost: &str, is_uncovered: bool) -> Option<&'static str> {
    EXPLAINED.iter().find(|(place, _)| is_uncovered && innermost.contains(place)).map(|(_, why)| *why)
}

#[test]
fn every_instruction_of_real_programs_gives_the_whole_stack() {
    let asked = std::env::var("SYMSEAL_STEPS").ok();
    let asked: Option<usize> = asked.map(|steps| steps.parse().expect("a number in SYMSEAL_STEPS"));
    let directory = tempfile::tempdir().expect("a directory");
    let (mut instructions, mut right, mut leaving) = (0, 0, 0);
    for program in PROGRAMS {
        let Some(path) = compile(program, asked.is_none(), directory.path()) else {
            continue;
        };
        let began = Instant::now();
        let [short, whole] = program.rounds;
        let (rounds, steps) = match asked {
            Some(asked) => (whole, asked),
            None => (short, STEPS + if program.with_loader { LOADER_STEPS } else { 0 }),
        };
        let score = match run(&path, rounds, program, steps) {
            Ok(score) => score,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return elf::skip("ptrace", &error.to_string());
            }
            Err(error) => panic!("{}: {error}", program.name),
        };
        score.print(program.name, began.elapsed().as_secs_f64());
        let mut unexplained = 0;
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for ((what, innermost, place, is_uncovered), count) in &score.wrong {
            match explanation(innermost, *is_uncovered) {
                Some(why) => *kinds.entry(why).or_default() += count,
                None => {
                    unexplained += count;
                    println!("  {count:6} {what} in {innermost}: {place}");
                }
            }
        }
        for (why, count) in kinds {
            println!("  {count:6} {why}");
        }
        assert_eq!(unexplained, 0, "{}: stacks that should have come out", program.name);
        assert!(
            score.leaving <= score.left * LONGEST_LEAVING,
            "{}: {} instructions of leaving",
            program.name,
            score.leaving
        );
        // Who asks for fewer instructions than the short form has may not come to these.
        if asked.is_none_or(|asked| asked >= STEPS) {
            assert!(score.left >= program.leaves, "{}: {} functions left for elsewhere", program.name, score.left);
            assert!(score.signals >= program.signals, "{}: {} signals", program.name, score.signals);
        }
        instructions += score.instructions;
        right += score.right;
        leaving += score.leaving;
    }
    let share = 100.0 * right as f64 / (instructions - leaving) as f64;
    println!(
        "{right} of {instructions} instructions right, {leaving} in functions that left for elsewhere: {share:.4} % of the others"
    );
    assert!(instructions >= asked.unwrap_or(LEAST_STEPS), "{instructions} instructions");
    assert!(share >= LEAST_RIGHT, "{share:.4} % right");
}

#[test]
fn a_wrong_address_cfa_or_frame_pointer_is_counted_as_wrong() {
    let frame = |pc, cfa, fp| Frame { pc: Avma(pc), cfa: Avma(cfa), fp, ..Frame::EMPTY };
    let right = [Frame { exact: true, ..frame(1, 16, 7) }, frame(2, 32, 8), frame(3, 0, 9)];
    let called = |pc, fp, cfa_below| Expected { pc, exact: false, fp, cfa_below };
    let expected = [called(2, 8, 16), called(3, 9, 32)];
    let check = |frames: &[Frame], wrong: Option<(&str, usize)>| {
        let mut score = Score::default();
        assert_eq!((score.count(&expected, frames), score.right), (wrong, usize::from(wrong.is_none())));
    };
    check(&right, None);
    let [first, second, third] = right;
    check(&[first, second], Some(("return address", 1)));
    check(&[first, second, third, third], Some(("return address", 2)));
    check(&[first, frame(4, 32, 8), third], Some(("return address", 0)));
    check(&[first, Frame { exact: true, ..second }, third], Some(("return address", 0)));
    check(&[frame(1, 24, 7), second, third], Some(("CFA", 0)));
    check(&[first, frame(2, 40, 8), third], Some(("CFA", 1)));
    check(&[first, second, frame(3, 0, 10)], Some(("frame pointer", 1)));
}

#[test]
fn memory_is_known_only_where_it_was_copied() {
    let regions = [StackBytes { start: Avma(16), bytes: &[1; 12] }, StackBytes { start: Avma(64), bytes: &[2; 8] }];
    let stacks = StackRegions(&regions);
    assert_eq!(stacks.read_u64(Avma(20)), Some(0x0101_0101_0101_0101));
    assert_eq!((stacks.read_u64(Avma(21)), stacks.read_u64(Avma(15))), (None, None));
    assert_eq!(stacks.read_u64(Avma(64)), Some(0x0202_0202_0202_0202));
}
