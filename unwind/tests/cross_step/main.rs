//! The absolute oracle for other processors: programs made by cross compilers, one instruction at a time under qemu-user, with
//! a shadow stack kept from the calls and returns that they make. At every instruction all return addresses, all CFAs and all
//! frame pointers must come out of the unwinder.
//!
//! `SYMSEAL_CROSS_STEPS` gives the number of instructions per program; without it the program leaves out what only repeats.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod coroutines;
mod effect;
#[path = "../elf/mod.rs"]
mod elf;
#[path = "../framehop_peer/mod.rs"]
mod framehop_peer;
mod gdb;
#[cfg(target_arch = "x86_64")]
mod native;
mod platform;
mod program;
mod run;
mod score;
mod shadow;
mod stack;
mod stopped;
mod tasks;
#[path = "../toolchains/mod.rs"]
mod toolchains;
#[cfg(target_arch = "x86_64")]
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../single_step/tracee.rs"]
mod tracee;
#[path = "../waiting/mod.rs"]
mod waiting;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use gdb::Emulated;
use platform::{
    AARCH64, AARCH64_CLANG, AARCH64_OUTLINED, AARCH64_SIGNED, ARM, ARM_CLANG, I686, MIPS, MIPS_CLANG, MIPSEL, Platform,
    RISCV64, RISCV64_CLANG,
};
use program::Program;
use run::Run;
use score::Score;
use stopped::Stopped;

/// Of a thousand instructions of a stripped program, how many at least have all return addresses. Functions that nothing leads to are gaps, and what they call is
/// not right: that must not be told as a complete stack.
const LEAST_OF_STRIPPED: usize = 900;
/// More instructions than a small program runs; a bound for one that went astray.
const STEPS: usize = 250_000;

fn check(platform: &Platform) {
    for (name, options) in platform.programs {
        check_program(platform, (name, options), "single_step/program.c", 4);
    }
}

/// What the run of a program gave, if it is one that this machine can make and run.
fn check_program(platform: &Platform, program: (&str, &[&str]), source: &str, signals: usize) -> Option<Score> {
    check_with(platform, program, (source, signals), Symbols::Kept, emulated(platform))
}

/// What the table is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Symbols {
    Kept,
    Stripped,
}

type Start = Box<dyn FnOnce(&Path, &Path) -> Option<Box<dyn Stopped>>>;

/// Starts a program under the emulator of `platform`.
fn emulated(platform: &Platform) -> Start {
    let (emulator, options) = (platform.toolchain.emulator, platform.emulator_options);
    Box::new(move |executable, directory| match Emulated::start(emulator, options, executable, directory) {
        Ok(emulated) => Some(Box::new(emulated)),
        Err(error) => {
            elf::skip(emulator, &error.to_string());
            None
        }
    })
}

fn check_with(
    platform: &Platform,
    (name, options): (&str, &[&str]),
    (source, signals): (&str, usize),
    symbols: Symbols,
    start: impl FnOnce(&Path, &Path) -> Option<Box<dyn Stopped>>,
) -> Option<Score> {
    let asked = std::env::var("SYMSEAL_CROSS_STEPS").ok().and_then(|steps| steps.parse().ok());
    let (steps, certifies) = (asked.unwrap_or(STEPS), asked.is_some());
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = platform.compile(source, options, !certifies, directory.path()) else {
        elf::skip(&platform.compiler(), "not found");
        return None;
    };
    let began = Instant::now();
    let stopped = start(&program, directory.path())?;
    let stripped = (symbols == Symbols::Stripped).then(|| platform.strip(&program));
    let program = Program::read(&program, stripped.as_deref());
    let score = Run::new(platform, stopped, program).run(steps).expect("an answer to each step");
    println!("{} {name}: {score}; {:.1} s", platform.toolchain.arch, began.elapsed().as_secs_f64());
    println!("  frames by {:?}; ends {:?}", score.methods, score.stops);
    let wrong = print_what_is_wrong(platform, &score);
    assert_eq!(wrong.told_as_complete, 0, "{} {name}: stacks told as complete", platform.toolchain.arch);
    let is_excused = symbols == Symbols::Stripped;
    let unexplained = if is_excused { 0 } else { wrong.unexplained };
    assert_eq!(unexplained, 0, "{} {name}: stacks that should have come out", platform.toolchain.arch);
    assert!(score.finished || certifies, "the program came to its end");
    assert!(score.signals == signals || !score.finished, "{} signals", score.signals);
    let least = if symbols == Symbols::Stripped { LEAST_OF_STRIPPED } else { platform.least };
    assert!(score.return_addresses * 1000 >= score.instructions * least, "what is explained stays rare");
    Some(score)
}

/// Instructions that nothing explains, and those of them at which the unwinder says that the stack is whole.
struct Wrong {
    unexplained: usize,
    told_as_complete: usize,
}

fn print_what_is_wrong(platform: &Platform, score: &Score) -> Wrong {
    let mut wrong = Wrong { unexplained: 0, told_as_complete: 0 };
    let mut explained: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for ((what, innermost, place), count) in &score.wrong {
        match platform.explanation(innermost) {
            Some(explanation) => *explained.entry(explanation).or_default() += count,
            None => {
                wrong.unexplained += count;
                wrong.told_as_complete += if *what == score::TOLD_AS_COMPLETE { *count } else { 0 };
                println!("  {count:6} {what} in {innermost}: {place}");
            }
        }
    }
    for ((name, why), count) in explained {
        println!("  {count:6} in {name}: {why}");
    }
    wrong
}

#[test]
fn every_instruction_of_aarch64_programs_gives_the_whole_stack() {
    check(&AARCH64);
}

/// One that is optimised, and sorts, prints, reads, copies, allocates, jumps, computes and calls back by the C library.
fn check_parts(platform: &Platform, options: &[&str]) {
    check_program(platform, ("C library", options), "cross_step/libc_parts.c", 0);
}

/// The same by the table of the stripped program. What is missing there is no fault of the walk, but a stack that is told as complete must be.
fn check_stripped_parts(platform: &Platform, options: &[&str]) {
    let program = ("C library, stripped", options);
    check_with(platform, program, ("cross_step/libc_parts.c", 0), Symbols::Stripped, emulated(platform));
}

#[test]
fn every_instruction_of_the_c_library_of_aarch64_gives_the_whole_stack() {
    check_parts(&AARCH64, &["-O2"]);
}

#[test]
fn every_instruction_of_the_c_library_of_mips_gives_the_whole_stack() {
    check_parts(&MIPS, &["-O2"]);
}

#[test]
#[ignore = "tests/certify runs it: it repeats the other byte order, or another processor"]
fn every_instruction_of_the_c_library_of_mipsel_gives_the_whole_stack() {
    check_parts(&MIPSEL, &["-O2"]);
}

#[test]
fn every_instruction_of_the_c_library_of_i686_gives_the_whole_stack() {
    check_parts(&I686, &["-O2"]);
}

#[test]
fn every_instruction_of_the_c_library_of_riscv64_gives_the_whole_stack() {
    check_parts(&RISCV64, &["-O2"]);
}

#[test]
fn every_instruction_of_the_c_library_of_arm_gives_the_whole_stack() {
    check_parts(&ARM, &["-O2", "-mthumb"]);
}

#[test]
fn every_instruction_in_large_frames_of_aarch64_gives_the_whole_stack() {
    for (name, options) in [("large frames -O0", &["-O0"]), ("large frames -O2", &["-O2"])] {
        check_program(&AARCH64, (name, options), "cross_step/large_frames.c", 0);
    }
}

#[test]
fn t9_every_instruction_on_a_tagged_stack_of_aarch64_gives_the_whole_stack() {
    let signed = ["-O2", "-mbranch-protection=standard", "-march=armv8.3-a"];
    let programs: [(&str, &[&str]); 3] = [("-O0", &["-O0"]), ("-O2", &["-O2"]), ("-O2 signed", &signed)];
    for (name, options) in programs {
        check_program(&AARCH64, (&format!("tagged {name}"), options), "cross_step/tagged.c", 2);
    }
}

#[test]
fn every_instruction_of_mips_programs_gives_the_whole_stack() {
    check(&MIPS);
}

/// Such a function has three instructions before the one that makes its frame, and a record of `.pdr` that counts from its first.
#[test]
fn t10_every_instruction_that_sets_up_gp_gives_the_whole_stack() {
    for platform in [&MIPS, &MIPSEL] {
        let program = ("-O1 -fPIC", &["-O1", "-fPIC"][..]);
        if let Some(score) = check_program(platform, program, "single_step/program.c", 4) {
            println!("  {} instructions set up $gp", score.before_frames);
            assert!(score.before_frames >= 300, "{}", score.before_frames);
        }
    }
}

#[test]
fn every_instruction_of_mipsel_programs_gives_the_whole_stack() {
    check(&MIPSEL);
}

#[test]
fn every_instruction_of_i686_programs_gives_the_whole_stack() {
    check(&I686);
}

/// On a kernel of its own there are, besides, system calls through `__kernel_vsyscall`, and signal handlers that return to the vDSO.
#[cfg(target_arch = "x86_64")]
#[test]
fn t11_every_instruction_in_the_vdso_of_i686_gives_the_whole_stack() {
    let start = |program: &Path, _: &Path| match native::Native::start(program) {
        Ok(native) => Some(Box::new(native) as Box<dyn Stopped>),
        Err(error) => {
            elf::skip(
                "ia32",
                &format!("this kernel does not run programs of IA-32, or lets nobody trace them: {error}"),
            );
            None
        }
    };
    let program = ("-O2, on this kernel", &["-O2"][..]);
    if let Some(score) = check_with(&I686, program, ("single_step/program.c", 4), Symbols::Kept, start) {
        println!("  {} instructions of the vDSO", score.in_vdso);
        assert!(score.in_vdso >= 100, "{}", score.in_vdso);
    }
}

#[test]
fn every_instruction_of_riscv64_programs_gives_the_whole_stack() {
    check(&RISCV64);
}

/// Its call frame information says how frames are made, and no word of how they are taken down.
#[test]
fn t5_every_instruction_of_programs_of_clang_gives_the_whole_stack() {
    for platform in [&AARCH64_CLANG, &RISCV64_CLANG, &MIPS_CLANG] {
        check(platform);
    }
}

#[test]
fn t9_every_instruction_of_a_signed_program_of_clang_gives_the_whole_stack() {
    check(&AARCH64_SIGNED);
}

#[test]
fn t3_every_instruction_of_a_program_with_outlined_prologues_gives_the_whole_stack() {
    check(&AARCH64_OUTLINED);
}

#[test]
fn t5_every_instruction_of_arm_programs_of_clang_gives_the_whole_stack() {
    check(&ARM_CLANG);
}

#[test]
fn every_instruction_of_arm_programs_gives_the_whole_stack() {
    check(&ARM);
}

#[test]
#[ignore = "tests/certify runs it: it repeats the other byte order, or another processor"]
fn no_stack_of_the_stripped_c_library_of_mips_is_told_as_complete_and_is_not() {
    check_stripped_parts(&MIPS, &["-O2"]);
}

#[test]
#[ignore = "tests/certify runs it: it repeats the other byte order, or another processor"]
fn no_stack_of_the_stripped_c_library_of_riscv64_is_told_as_complete_and_is_not() {
    check_stripped_parts(&RISCV64, &["-O2"]);
}

#[test]
fn no_stack_of_the_stripped_c_library_of_arm_is_told_as_complete_and_is_not() {
    check_stripped_parts(&ARM, &["-O2", "-mthumb"]);
}
