//! Functions written by hand without call frame information: those of `handwritten.S`, and those of libraries of this machine that `handwritten.c` calls. At every
//! instruction of theirs all return addresses, CFAs and frame pointers must come out, and the registers that the running function keeps.

use std::collections::BTreeMap;
use std::io::{Error, ErrorKind};
use std::path::Path;
use std::process::Command;

use symseal_module::Avma;
use symseal_unwind::{Arch, Cache, Frame, RuleSource, Saved, StackBytes, StackRegions, unwind};

use crate::process::Process;
use crate::shadow::Shadow;
use crate::tracee::{Instant, Stop, Tracee};
use crate::{MOST_FRAMES, Score, copy_stacks, elf, registers_of};

/// DWARF numbers of rbx and r12 to r15.
const KEPT: [u8; 5] = [3, 12, 13, 14, 15];
/// The most instructions of one program.
const STEPS: usize = 400_000;
/// Of the program in assembler, that are its functions.
const LEAST: usize = 850;
/// And of a library.
const LEAST_OF_LIBRARY: usize = 5000;
/// Bytes below the stack pointer that are the running function's.
const RED_ZONE: u64 = 128;
/// How often a function is looked at, and for how many instructions.
const VISITS: usize = 4;
const LONGEST_VISIT: usize = 60_000;
/// A program's status where the library that it calls is not there.
const MISSING: i32 = 77;

fn kept(raw: &Instant) -> [u64; 5] {
    [raw.rbx, raw.r12, raw.r13, raw.r14, raw.r15]
}

/// What was compared.
#[derive(Default)]
struct Seen {
    steps: usize,
    /// Of functions that were followed.
    instructions: usize,
    /// Of those without a rule in the libraries that are looked at.
    without_rule: usize,
    /// Frame pointers that are known to be unknown.
    unknown: usize,
    /// What, and where.
    wrong: BTreeMap<String, usize>,
    /// Instructions of functions that were followed, by file.
    files: BTreeMap<String, usize>,
}

/// What the rule of the running function says of registers that it keeps, against what they were when it was called.
fn wrong_register(process: &Process, tracee: &Tracee, frame: &Frame, now: [u64; 5], entered: [u64; 5]) -> Option<u8> {
    let slots = process.slots(frame)?;
    let is_wrong = |at: usize| match slots.of(Arch::X86_64, KEPT[at]) {
        Some(Saved::Same) => now[at] != entered[at],
        Some(Saved::At(words)) => tracee.word(frame.cfa.0.wrapping_add_signed(i64::from(words) * 8)) != entered[at],
        _ => false,
    };
    (0..KEPT.len()).find(|at| is_wrong(*at)).map(|at| KEPT[at])
}

/// Whether the last frame has no frame pointer because the rule of one before it says that it is not known: a register that is told to be unknown is none that is wrong.
fn is_told_unknown(process: &Process, frames: &[Frame]) -> bool {
    let Some((caller, frames)) = frames.split_last() else { return false };
    let has_lost =
        |frame: &Frame| process.modules.rule(frame).is_some_and(|(rule, _)| rule.frame_pointer() == Saved::Unknown);
    caller.fp == 0 && frames.iter().any(has_lost)
}

fn run(program: &Path, argument: &str) -> Result<Seen, Error> {
    let tracee = Tracee::start(program, argument)?;
    tracee.run_to(tracee.entry()?)?;
    let mut process = Process::of(&tracee);
    let (mut shadow, mut cache, mut score, mut seen) =
        (Shadow::default(), Cache::new(), Score::default(), Seen::default());
    let (mut expected, mut frames) = (Vec::new(), vec![Frame::EMPTY; MOST_FRAMES]);
    let mut entered: Vec<(u64, [u64; 5])> = Vec::new();
    let mut raw = tracee.registers()?;
    let most = std::env::var("SYMSEAL_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(STEPS);
    while seen.steps < most {
        seen.steps += 1;
        let mut code = [0; 16];
        tracee.read(raw.rip, &mut code);
        let registers = registers_of(&raw);
        let here = Frame { pc: Avma(raw.rip), exact: true, ..Frame::EMPTY };
        let source = process.modules.rule(&here).and_then(|(rule, _)| rule.source());
        seen.without_rule += usize::from(source == Some(RuleSource::None));
        if source == Some(RuleSource::Instructions) {
            seen.instructions += 1;
            let copies = copy_stacks(&tracee, &process, raw.rsp - RED_ZONE, &[]);
            let regions: Vec<StackBytes<'_>> =
                copies.iter().map(|(start, bytes)| StackBytes { start: Avma(*start), bytes }).collect();
            shadow.expected(|address| tracee.word(address), &mut expected);
            let walk = unwind(&process.modules, &registers, &StackRegions(&regions), &mut cache, &mut frames);
            let found = frames.get(..walk.frames).unwrap_or_default();
            let running = found.first().copied().unwrap_or_default();
            let name = process.name(&running);
            *seen.files.entry(name.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
            let differs = score.count(&expected, found);
            if let Some(("frame pointer", at)) = differs
                && is_told_unknown(&process, found.get(..=at + 1).unwrap_or_default())
            {
                seen.unknown += 1;
            } else if let Some((what, at)) = differs {
                let of = found.get(at).map(|frame| process.name(frame)).unwrap_or_default();
                *seen.wrong.entry(format!("{what} of frame {at} in {of}, {name}: {}", walk.stop)).or_default() += 1;
            } else if let Some((_, entered)) = entered.last()
                && let Some(register) = wrong_register(&process, &tracee, &running, kept(&raw), *entered)
            {
                *seen.wrong.entry(format!("register {register} in {name}")).or_default() += 1;
            }
        }
        match tracee.step(0)? {
            Stop::Exited(0) => break,
            Stop::Exited(MISSING) => return Err(Error::new(ErrorKind::NotFound, "no such library")),
            stop @ (Stop::Exited(_) | Stop::Signal(_)) => return Err(Error::other(format!("{stop:?}"))),
            Stop::Step => {
                let after = process.executed(&tracee, &mut shadow, &code, &raw)?;
                let is_call = after.rsp == raw.rsp - 8 && tracee.word(after.rsp).wrapping_sub(raw.rip) < 16;
                if is_call && after.rip.wrapping_sub(raw.rip) > 15 {
                    entered.push((after.rsp, kept(&raw)));
                }
                while entered.last().is_some_and(|(slot, _)| *slot < after.rsp) {
                    entered.pop();
                }
                raw = after;
            }
        }
    }
    Ok(seen)
}

fn compile(directory: &Path, sources: &[&str], options: &[&str]) -> Option<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/single_step");
    let output = directory.join("program");
    let mut command = Command::new("gcc");
    // Without symbols nothing but calls and pointers tell where functions begin.
    command.args(["-O2", "-g0", "-s", "-o"]).arg(&output).args(sources.iter().map(|source| folder.join(source)));
    match command.args(options).status() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            elf::skip("gcc", "not found");
            None
        }
        status => {
            assert!(status.is_ok_and(|status| status.success()), "gcc compiles {sources:?}");
            Some(output)
        }
    }
}

fn print(name: &str, seen: &Seen) {
    println!(
        "{name}: {} steps, {} of functions that were followed, {} without a rule, {} with an unknown frame pointer, {:?}",
        seen.steps, seen.instructions, seen.without_rule, seen.unknown, seen.files
    );
    for (what, count) in seen.wrong.iter().take(40) {
        println!("  {count:6} {what}");
    }
}

fn check(sources: &[&str], options: &[&str]) -> Option<Seen> {
    let directory = tempfile::tempdir().expect("a directory");
    let program = compile(directory.path(), sources, options)?;
    match run(&program, "1") {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            elf::skip("ptrace", &error.to_string());
            None
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            elf::skip("libgmp10", &error.to_string());
            None
        }
        seen => {
            let seen = seen.expect("it runs");
            print(&format!("{sources:?} {options:?}"), &seen);
            assert!(seen.wrong.is_empty(), "{} wrong", seen.wrong.values().sum::<usize>());
            Some(seen)
        }
    }
}

#[test]
fn functions_written_by_hand_are_right_at_every_instruction() {
    let Some(seen) = check(&["handwritten.c", "handwritten.S"], &["-Wl,-z,now"]) else { return };
    assert_eq!(seen.without_rule, 0, "instructions without a rule");
    assert!(seen.files.get("program").is_some_and(|count| *count >= LEAST), "{:?}", seen.files);
}

#[test]
fn a_library_that_is_written_by_hand_in_part_is_right_wherever_its_functions_were_followed() {
    let Some(seen) = check(&["handwritten.c"], &["-DLIBRARY"]) else { return };
    let count: usize = seen.files.iter().filter(|(file, _)| file.starts_with("libgmp")).map(|(_, count)| count).sum();
    assert!(count >= LEAST_OF_LIBRARY, "{:?}", seen.files);
}

/// Lets the program run, up to functions that were followed: through these step by step, a few times each.
fn visit(program: &Path, argument: &str) -> Result<(Seen, usize), Error> {
    let tracee = Tracee::start(program, argument)?;
    tracee.run_to(tracee.entry()?)?;
    let process = Process::of(&tracee);
    let mut visits: BTreeMap<u64, (usize, u64)> = BTreeMap::new();
    let set = |address: u64, original: u64| tracee.write(address, original & !0xff | 0xcc);
    let byte = |address: u64| tracee.word(address);
    let put_back = |address: u64, original: u64| tracee.write(address, byte(address) & !0xff | original & 0xff);
    for start in process.followed() {
        let original = byte(start);
        visits.insert(start, (0, original));
        set(start, original)?;
    }
    let (mut seen, mut cache, mut frames) = (Seen::default(), Cache::new(), vec![Frame::EMPTY; MOST_FRAMES]);
    loop {
        match tracee.run(0)? {
            Stop::Exited(0) => break,
            Stop::Step => {}
            stop => return Err(Error::other(format!("{stop:?}"))),
        }
        let start = tracee.registers()?.rip - 1;
        let Some((count, original)) = visits.get_mut(&start) else { return Err(Error::other("no function")) };
        *count += 1;
        let (count, original) = (*count, *original);
        put_back(start, original)?;
        tracee.go_to(start)?;
        // Return address, its place, rbp and the others of each function that is running.
        let mut running: Vec<(u64, u64, u64, [u64; 5])> = Vec::new();
        let mut raw = tracee.registers()?;
        running.push((tracee.word(raw.rsp), raw.rsp, raw.rbp, kept(&raw)));
        for _ in 0..LONGEST_VISIT {
            let Some((pc, slot, fp, entered)) = running.last().copied() else { break };
            if let Some((_, original)) = visits.get(&raw.rip)
                && byte(raw.rip) & 0xff == 0xcc
            {
                put_back(raw.rip, *original)?;
            }
            let here = Frame { pc: Avma(raw.rip), exact: true, ..Frame::EMPTY };
            let source = process.modules.rule(&here).and_then(|(rule, _)| rule.source());
            seen.steps += 1;
            seen.without_rule += usize::from(source == Some(RuleSource::None));
            if source == Some(RuleSource::Instructions) {
                seen.instructions += 1;
                let copies = copy_stacks(&tracee, &process, raw.rsp - RED_ZONE, &[]);
                let regions: Vec<StackBytes<'_>> =
                    copies.iter().map(|(start, bytes)| StackBytes { start: Avma(*start), bytes }).collect();
                let walk =
                    unwind(&process.modules, &registers_of(&raw), &StackRegions(&regions), &mut cache, &mut frames);
                let found = frames.get(..walk.frames).unwrap_or_default();
                let name = found.first().map(|frame| process.name(frame)).unwrap_or_default();
                *seen.files.entry(name.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
                let is_right = matches!(found, [first, second, ..]
                    if (first.cfa.0, second.pc.0) == (slot + 8, pc) && (second.fp == fp || is_told_unknown(&process, &found[..2])));
                seen.unknown += usize::from(found.get(1).is_some_and(|caller| caller.fp != fp));
                if !is_right {
                    *seen.wrong.entry(format!("{name}: {}", walk.stop)).or_default() += 1;
                } else if let Some(register) = wrong_register(&process, &tracee, &found[0], kept(&raw), entered) {
                    *seen.wrong.entry(format!("register {register} in {name}")).or_default() += 1;
                }
            }
            if tracee.step(0)? != Stop::Step {
                return Err(Error::other("a step"));
            }
            let after = tracee.registers()?;
            let pushed = tracee.word(after.rsp);
            if after.rsp == raw.rsp - 8
                && (2..9).contains(&pushed.wrapping_sub(raw.rip))
                && after.rip.wrapping_sub(raw.rip) > 15
            {
                running.push((pushed, after.rsp, raw.rbp, kept(&raw)));
            }
            while running.last().is_some_and(|(_, slot, ..)| *slot < after.rsp) {
                running.pop();
            }
            raw = after;
        }
        let stepped_over: Vec<u64> =
            visits.iter().filter(|(at, (count, _))| *count < VISITS && **at != raw.rip).map(|(at, _)| *at).collect();
        let _ = count;
        for at in stepped_over {
            if byte(at) & 0xff != 0xcc {
                set(at, byte(at))?;
            }
        }
    }
    let visited = visits.values().filter(|(count, _)| *count > 0).count();
    Ok((seen, visited))
}

#[test]
#[ignore = "a program has to be given"]
fn a_given_program_is_right_in_the_functions_that_were_followed() {
    let program = std::env::var("SYMSEAL_PROGRAM").expect("SYMSEAL_PROGRAM");
    let argument = std::env::var("SYMSEAL_ARGUMENT").unwrap_or_default();
    let (seen, visited) = visit(Path::new(&program), &argument).expect("it runs");
    print(&format!("{program} {argument}, {visited} functions"), &seen);
    assert!(seen.wrong.is_empty());
}

/// Any program: `SYMSEAL_PROGRAM` and its argument.
#[test]
#[ignore = "a program has to be given"]
fn a_given_program_is_right_wherever_functions_were_followed() {
    let program = std::env::var("SYMSEAL_PROGRAM").expect("SYMSEAL_PROGRAM");
    let argument = std::env::var("SYMSEAL_ARGUMENT").unwrap_or_default();
    let seen = run(Path::new(&program), &argument).expect("it runs");
    print(&program, &seen);
    assert!(seen.wrong.is_empty());
}
