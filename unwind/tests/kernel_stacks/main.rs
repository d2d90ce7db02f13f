//! Stacks of a Linux kernel that runs, in an emulated machine: system calls, page faults and timer interrupts, one instruction at a time. A shadow stack is kept of the calls
//! and returns that the kernel makes and of what interrupted what; at each instruction the walk must give all of its frames, and behind the boundary those of the process.
//!
//! `SYMSEAL_KERNEL_STACKS` is a folder with `vmlinuz`, and `vmlinux` with debug information, of one build; `tests/certify kernel-stacks` makes it of Debian's packages.
//! `SYMSEAL_KERNEL_STEPS` gives the number of instructions of each scene at most.
#![cfg(target_os = "linux")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../elf/mod.rs"]
mod elf;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../cross_step/gdb.rs"]
mod gdb;
mod machine;
mod scene;
mod shadow;
#[allow(dead_code, reason = "each test uses its part")]
#[path = "../cross_step/stopped.rs"]
mod stopped;

use std::collections::BTreeMap;
use std::path::PathBuf;

use machine::Machine;
use scene::{SCENES, Scene, Score};

/// Without a word of it, enough for whole system calls.
const STEPS: usize = 20_000;

#[test]
fn t14_every_instruction_of_a_kernel_gives_the_stack_of_the_kernel_and_of_the_process() {
    let Some(folder) = std::env::var_os("SYMSEAL_KERNEL_STACKS").map(PathBuf::from) else {
        println!("SKIP kernel stacks: tests/certify kernel-stacks");
        return;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let Some(mut machine) = Machine::start(&folder, directory.path()) else { return };
    let steps = std::env::var("SYMSEAL_KERNEL_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(STEPS);
    let mut total = Score::default();
    for (name, entry, times) in SCENES {
        let mut score = Score::default();
        for _ in 0..times {
            Scene::begin(&mut machine, entry).expect(name).run(steps, &mut score).expect(name);
        }
        println!("{name}: {score}");
        total.add(score);
    }
    println!("all: {total}");
    let mut short: BTreeMap<&str, usize> = BTreeMap::new();
    for place in &total.short {
        *short.entry(place.split('+').next().unwrap_or_default()).or_default() += 1;
    }
    for (place, count) in &short {
        println!("  short: {count} in {place}");
    }
    let mut wrong: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (place, story) in &total.wrong {
        wrong.entry(place).or_insert((0, story)).0 += 1;
    }
    for (place, (count, story)) in wrong.iter().take(60) {
        println!("  wrong: {count} at {place}: {story}");
    }
    let begins = |place: &str, known: &[&str]| known.iter().any(|known| place.starts_with(known));
    let unknown: Vec<&&str> = short.keys().filter(|place| !begins(place, &WITHOUT_RULES)).collect();
    assert_eq!(total.desynchronised, 0, "the shadow stack is no truth");
    assert!(unknown.is_empty() && wrong.is_empty(), "short in {unknown:?}, wrong in {:?}", wrong.keys());
    assert!(total.instructions >= 10_000 && total.boundaries > 0 && total.switches > 0, "{total}");
}

/// Where a walk may end for want of a rule: the first and last instructions of entries, at which the registers of the process are not all on the kernel's stack. The kernel's tables
/// say nothing there.
const WITHOUT_RULES: [&str; 6] = [
    "entry_SYSCALL_64",
    "syscall_return_via_sysret",
    "entry_SYSRETQ_unsafe_stack",
    "asm_exc_",
    "asm_sysvec_",
    "swapgs_restore_regs_and_return_to_usermode",
];
