//! Programs of which half has no unwind information and no frame pointers: what the steps without rules find there, and that they never find
//! what is not so.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use symseal_module::{Avma, UnwindMethod};
use symseal_unwind::{Cache, Frame, Options, StackBytes, StackRegions, unwind_with};

use crate::process::Process;
use crate::shadow::{Expected, Shadow};
use crate::tracee::{Stop, Tracee};
use crate::{copy_stacks, elf, registers_of};

/// Compiler and optimisation of both halves, and whether the half without rules keeps frame pointers.
const VARIANTS: [(&str, &str, &str); 5] = [
    ("gcc", "-O0", "-fomit-frame-pointer"),
    ("gcc", "-O1", "-fomit-frame-pointer"),
    ("gcc", "-O2", "-fomit-frame-pointer"),
    ("clang", "-O2", "-fomit-frame-pointer"),
    ("gcc", "-O2", "-fno-omit-frame-pointer"),
];
/// Nothing beside the code that says how a frame is made.
const DARK: [&str; 3] = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions"];
/// The most instructions of each program.
const STEPS: usize = 60_000;
/// The most places that are printed of those that are wrong.
const MOST_PLACES: usize = 10;
/// The least of all programs together.
const LEAST_STEPS: usize = 100_000;

/// What walks with and without scanning gave.
#[derive(Default)]
struct Tally {
    steps: usize,
    /// Frames above the innermost one, as the program made them.
    frames: usize,
    /// Of these, in how many the walks were right up to there: without scanning and with it.
    found: [usize; 2],
    /// Walks that came to the end of the stack.
    complete: [usize; 2],
    /// Frames that are right and were found so.
    scanned: usize,
    /// First frames that are not so, by how they were found, and where their callee was.
    wrong: [BTreeMap<(UnwindMethod, String), usize>; 2],
    stops: BTreeMap<String, usize>,
}

impl Tally {
    fn add(&mut self, scans: usize, expected: &[Expected], found: &[Frame], name: impl Fn(&Frame) -> String) {
        let callers = found.get(1..).unwrap_or_default();
        let is_right =
            |(frame, expected): &(&Frame, &Expected)| (frame.pc.0, frame.exact) == (expected.pc, expected.exact);
        let right = callers.iter().zip(expected).take_while(is_right).count();
        let (Some(count), Some(complete)) = (self.found.get_mut(scans), self.complete.get_mut(scans)) else { return };
        *count += right;
        *complete += usize::from(right == expected.len() && right == callers.len());
        if scans == 1 {
            self.scanned += callers.iter().take(right).filter(|frame| frame.method == UnwindMethod::Scan).count();
        }
        if let (Some(wrong), Some(callee), Some(all)) =
            (callers.get(right), found.get(right), self.wrong.get_mut(scans))
        {
            *all.entry((wrong.method, name(callee))).or_default() += 1;
        }
    }

    fn print(&self, name: &str, seconds: f64) {
        let share = |count: usize, of: usize| 100.0 * count as f64 / of as f64;
        println!(
            "{name}: {} steps, {} frames, {seconds:.1} s: found without scanning {:.2} %, with it {:.2} %; whole stacks {:.2} % and {:.2} %; {} frames by scanning",
            self.steps,
            self.frames,
            share(self.found[0], self.frames),
            share(self.found[1], self.frames),
            share(self.complete[0], self.steps),
            share(self.complete[1], self.steps),
            self.scanned,
        );
        println!("  stops {:?}", self.stops);
        let [without, with] = &self.wrong;
        println!(
            "  wrong without scanning {}, with it {}",
            without.values().sum::<usize>(),
            with.values().sum::<usize>()
        );
        for (how, wrong) in [("without", without), ("with", with)] {
            let mut wrong: Vec<_> = wrong.iter().collect();
            wrong.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            for ((method, place), count) in wrong.into_iter().take(MOST_PLACES) {
                println!("  {count:6} {how} it by {method} from {place}");
            }
        }
    }
}

fn run(program: &Path) -> Result<Tally, Error> {
    let tracee = Tracee::start(program, "1")?;
    tracee.run_to(tracee.entry()?)?;
    let mut process = Process::without_followed(&tracee);
    let mut shadow = Shadow::default();
    let mut cache = Cache::new();
    let mut tally = Tally::default();
    let (mut expected, mut frames) = (Vec::new(), vec![Frame::EMPTY; 256]);
    let mut raw = tracee.registers()?;
    while tally.steps < STEPS {
        let registers = registers_of(&raw);
        let mut code = [0; 16];
        tracee.read(raw.rip, &mut code);
        let copies = copy_stacks(&tracee, &process, raw.rsp, &shadow.interrupted_stack_pointers());
        let regions: Vec<StackBytes<'_>> =
            copies.iter().map(|(start, bytes)| StackBytes { start: Avma(*start), bytes }).collect();
        let stacks = StackRegions(&regions);
        shadow.expected(|address| tracee.word(address), &mut expected);
        tally.steps += 1;
        tally.frames += expected.len();
        for scan in [false, true] {
            let options = Options { scan, ..Options::default() };
            let walk = unwind_with(&process.modules, &registers, &stacks, &mut cache, &mut frames, options);
            let found = frames.get(..walk.frames).unwrap_or_default();
            tally.add(usize::from(scan), &expected, found, |frame| process.name(frame));
            if scan {
                *tally.stops.entry(walk.stop.to_string()).or_default() += 1;
            }
        }
        match tracee.step(0)? {
            Stop::Exited(status) => {
                assert_eq!(status, 0, "the program's status");
                break;
            }
            Stop::Signal(number) => panic!("signal {number}"),
            Stop::Step => raw = process.executed(&tracee, &mut shadow, &code, &raw)?,
        }
    }
    assert_eq!(shadow.desynchronised, shadow.landings, "returns elsewhere than their calls");
    Ok(tally)
}

/// Half with rules and half without.
fn compile((compiler, level, frames): (&str, &str, &str), directory: &Path) -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/single_step");
    let (dark, program) = (directory.join("dark.o"), directory.join("program"));
    let mut commands = [Command::new(compiler), Command::new(compiler)];
    commands[0]
        .args([level, frames, "-g0", "-w", "-c"])
        .args(DARK)
        .arg(sources.join("without_rules.c"))
        .arg("-o")
        .arg(&dark);
    commands[1].args([level, "-g0", "-w", "-o"]).arg(&program).arg(&dark);
    commands[1].args(["with_rules.c", "assembled.S"].map(|source| sources.join(source)));
    for mut command in commands {
        match command.status() {
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            status => assert!(status.is_ok_and(|status| status.success()), "{compiler} compiles"),
        }
    }
    Some(program)
}

#[test]
fn nothing_is_found_that_is_not_so_with_a_scan_or_without() {
    let directory = tempfile::tempdir().expect("a directory");
    let (mut steps, mut scanned, mut wrong) = (0, 0, 0);
    for variant in VARIANTS {
        let (compiler, level, frames) = variant;
        let Some(program) = compile(variant, directory.path()) else {
            elf::skip(compiler, "not found");
            continue;
        };
        let began = Instant::now();
        let tally = match run(&program) {
            Ok(tally) => tally,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return elf::skip("ptrace", &error.to_string());
            }
            Err(error) => panic!("{compiler} {level} {frames}: {error}"),
        };
        tally.print(&format!("{compiler} {level} {frames}"), began.elapsed().as_secs_f64());
        steps += tally.steps;
        scanned += tally.scanned;
        wrong += tally.wrong.iter().flat_map(|wrong| wrong.values()).sum::<usize>();
    }
    println!("{steps} steps, {scanned} frames by scanning, {wrong} wrong");
    assert!(steps >= LEAST_STEPS, "{steps} steps");
    assert!(scanned > 1000, "{scanned} frames by scanning");
    assert_eq!(wrong, 0, "frames that are not so");
}
