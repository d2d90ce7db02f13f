//! The absolute oracle for other processors: programs made by cross compilers, one instruction at a time under qemu-user, with
//! a shadow stack kept from the calls and returns that they make. At every instruction all return addresses, all CFAs and all
//! frame pointers must come out of the unwinder.
//!
//! `SYMSEAL_CROSS_STEPS` gives the number of instructions per program; without it the program leaves out what only repeats.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod effect;
#[path = "../elf/mod.rs"]
mod elf;
mod gdb;
mod platform;
mod program;
mod run;
mod score;
mod shadow;
mod stack;
#[path = "../toolchains/mod.rs"]
mod toolchains;

use std::collections::BTreeMap;
use std::time::Instant;

use gdb::Emulated;
use platform::{AARCH64, ARM, I686, MIPS, MIPSEL, Platform, RISCV64};
use program::Program;
use run::Run;
use score::Score;

/// More instructions than a small program runs; a bound for one that went astray.
const STEPS: usize = 60_000;

fn check(platform: &Platform) {
    for (name, options) in platform.programs {
        check_program(platform, (name, options), "single_step/program.c", 4);
    }
}

fn check_program(platform: &Platform, (name, options): (&str, &[&str]), source: &str, signals: usize) {
    let asked = std::env::var("SYMSEAL_CROSS_STEPS").ok().and_then(|steps| steps.parse().ok());
    let (steps, certifies) = (asked.unwrap_or(STEPS), asked.is_some());
    let directory = tempfile::tempdir().expect("a directory");
    let Some(program) = platform.compile(source, options, !certifies, directory.path()) else {
        return elf::skip(&platform.toolchain.compiler(), "not found");
    };
    let began = Instant::now();
    let emulator = platform.toolchain.emulator;
    let emulated = Emulated::start(emulator, platform.emulator_options, &program, directory.path());
    let emulated = match emulated {
        Ok(emulated) => emulated,
        Err(error) => return elf::skip(emulator, &error.to_string()),
    };
    let score = Run::new(platform, emulated, Program::read(&program)).run(steps).expect("the emulator answers");
    println!("{} {name}: {score}; {:.1} s", platform.toolchain.arch, began.elapsed().as_secs_f64());
    println!("  frames by {:?}; ends {:?}", score.methods, score.stops);
    let unexplained = print_what_is_wrong(platform, &score);
    assert_eq!(unexplained, 0, "{} {name}: stacks that should have come out", platform.toolchain.arch);
    assert!(score.finished || certifies, "the program came to its end");
    assert!(score.signals == signals || !score.finished, "{} signals", score.signals);
    assert!(score.return_addresses * 1000 >= score.instructions * platform.least, "what is explained stays rare");
}

/// Gives the number of instructions that nothing explains.
fn print_what_is_wrong(platform: &Platform, score: &Score) -> usize {
    let mut unexplained = 0;
    let mut explained: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for ((what, innermost, place), count) in &score.wrong {
        match platform.explanation(innermost) {
            Some(explanation) => *explained.entry(explanation).or_default() += count,
            None => {
                unexplained += count;
                println!("  {count:6} {what} in {innermost}: {place}");
            }
        }
    }
    for ((name, why), count) in explained {
        println!("  {count:6} in {name}: {why}");
    }
    unexplained
}

#[test]
fn every_instruction_of_aarch64_programs_gives_the_whole_stack() {
    check(&AARCH64);
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

#[test]
fn every_instruction_of_mipsel_programs_gives_the_whole_stack() {
    check(&MIPSEL);
}

#[test]
fn every_instruction_of_i686_programs_gives_the_whole_stack() {
    check(&I686);
}

#[test]
fn every_instruction_of_riscv64_programs_gives_the_whole_stack() {
    check(&RISCV64);
}

#[test]
fn every_instruction_of_arm_programs_gives_the_whole_stack() {
    check(&ARM);
}
