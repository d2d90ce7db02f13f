//! A real program with a function in the middle that has neither call frame information nor a frame pointer. Without a scan its stack ends there; with
//! one it goes on by the only word that calls account for, and not if there are two. The truth is what the program says itself.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;
use std::process::Command;

use crate::stage::{Stage, skip};
use symseal_module::{MissReason, Proof, StopReason, UnwindMethod};
use symseal_replay::{Class, ThreadStack, coverage, replay, resolve_trace, unwind_trace};
use symseal_resolver::{Options, Resolver};
use symseal_unwind::Frame;

/// The program, standing still below the function without rules.
fn stage(more: &[&str], executables: bool) -> Option<Stage> {
    let dir = tempfile::tempdir().unwrap();
    let (object, executable) = (dir.path().join("dark.o"), dir.path().join("workload"));
    let source = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
    let flags = ["-O2", "-fomit-frame-pointer", "-fcf-protection=none"];
    let gcc = |arguments: &mut Command| match arguments.args(flags).status() {
        Ok(status) => {
            assert!(status.success());
            true
        }
        Err(error) => {
            skip("gcc", &error.to_string());
            false
        }
    };
    // Debug information would have call frame information too.
    let dark = ["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-exceptions", "-c", "-o"];
    let made = gcc(Command::new("gcc").args(dark).arg(&object).arg(source("without_rules.c")).args(more))
        && gcc(Command::new("gcc")
            .args(["-g", "-Wl,--build-id", "-o"])
            .args([&executable, &source("with_rules.c"), &object])
            .args(more));
    if !made {
        return None;
    }
    Stage::with(dir, executable, executables)
}

/// What the program said: where `waits` returns to, which is code without rules, and the two callers of that.
fn told(stage: &Stage) -> Vec<u64> {
    stage.said.iter().map(|line| u64::from_str_radix(&line[2..], 16).unwrap()).collect()
}

fn pcs(stack: &ThreadStack) -> Vec<u64> {
    stack.frames.iter().map(|frame| frame.pc.0).collect()
}

fn has(stack: &ThreadStack, calls: &[u64]) -> bool {
    pcs(stack).windows(calls.len()).any(|window| window == calls)
}

fn scanned(stack: &ThreadStack) -> Vec<u64> {
    stack.frames.iter().filter(|frame| frame.method == UnwindMethod::Scan).map(|frame| frame.pc.0).collect()
}

#[test]
fn a_stack_goes_on_over_code_without_rules_and_the_frame_says_that_it_is_a_guess() {
    let Some(stage) = stage(&[], true) else { return };
    let told = told(&stage);
    let plain = stage.tables();
    let [without] = &unwind_trace(&stage.trace, &plain)[..] else { panic!("one thread") };
    assert_eq!((without.stop, pcs(without).last()), (StopReason::NoRule, told.first()), "{without:#x?}");

    let resolver = stage.resolver();
    let tables = stage.tables().with_code(&stage.trace, &resolver);
    assert!(tables.missing_code().is_empty(), "{:?}", tables.missing_code());
    let [with] = &unwind_trace(&stage.trace, &tables)[..] else { panic!("one thread") };
    assert_eq!(with.stop, StopReason::EndOfStack, "{with:#x?}");
    assert!(has(with, &told), "{told:x?}: {with:#x?}");
    assert_eq!(scanned(with), [told[1]]);
    assert_eq!(with.frames[..without.frames.len() - 1], without.frames[..without.frames.len() - 1]);

    // A guess never counts as coverage, and what it leads to does.
    let (_, threads) = resolve_trace(&stage.trace, &resolver, &tables);
    let guessed = threads[0].frames.iter().find(|frame| frame.unwind == UnwindMethod::Scan).unwrap();
    let function = guessed.function().and_then(|function| function.function.as_deref());
    assert_eq!((function, guessed.counts()), (Some("calls"), false));
    let covered = coverage(&threads, &resolver);
    assert_eq!(covered.all.frames, with.frames.len() as u64);
    assert!(covered.all.named < covered.all.frames, "{covered:?}");

    let report = replay(&stage.trace, &resolver, &tables, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(report.replay_success_ratio, 1.0, "{:#?}", report.mismatches);
    assert_eq!(report.manifest.units, 8 * Class::ALL.len() as u64);
    assert!(report.controls_hold(), "{:#?}", report.controls);
    assert!(!report.manifest.code.is_empty());
}

#[test]
fn of_two_words_that_may_be_meant_none_is_taken() {
    let Some(stage) = stage(&["-DAMBIGUOUS"], true) else { return };
    let told = told(&stage);
    let tables = stage.tables().with_code(&stage.trace, &stage.resolver());
    assert!(tables.missing_code().is_empty(), "{:?}", tables.missing_code());
    let [stack] = &unwind_trace(&stage.trace, &tables)[..] else { panic!("one thread") };
    assert_eq!((stack.stop, pcs(stack).last()), (StopReason::NoRule, told.first()), "{stack:#x?}");
    assert!(scanned(stack).is_empty(), "{stack:#x?}");
}

#[test]
fn whatever_the_stack_holds_code_changes_no_frame_that_rules_find() {
    let Some(stage) = stage(&[], true) else { return };
    let plain = stage.tables();
    let with_code = stage.tables().with_code(&stage.trace, &stage.resolver());
    let told = told(&stage);
    // splitmix64
    let mut state = 17u64;
    let mut random = |below: u64| {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % below
    };
    let (mut longer, mut whole) = (0, 0);
    for _ in 0..2000 {
        let mut trace = stage.trace.clone();
        let segment = &mut trace.samples[0].stacks[0];
        let skip = (segment.start.0.wrapping_neg() % 8) as usize;
        let words = segment.bytes[skip..].as_chunks_mut::<8>().0;
        let most = words.len().min(120) as u64;
        for _ in 0..1 + random(3) {
            let at = random(most) as usize;
            let value = match random(4) {
                0 => told[random(told.len() as u64) as usize].wrapping_add(random(16)),
                1 => u64::from_le_bytes(words[random(most) as usize]),
                2 => segment.start.0 + 8 * random(200),
                _ => random(1 << 20),
            };
            words[at] = value.to_le_bytes();
        }
        if random(4) == 0 {
            segment.bytes.truncate(8 * random(most) as usize);
        }
        let ([without], [with]) = (&unwind_trace(&trace, &plain)[..], &unwind_trace(&trace, &with_code)[..]) else {
            panic!("one thread")
        };
        // What rules alone find stays; what code says otherwise is found behind a frame that no rule leads on from.
        let by_rule = |frame: &&Frame| {
            matches!(
                frame.method,
                UnwindMethod::Context | UnwindMethod::CfiEhFrame | UnwindMethod::Plt | UnwindMethod::Prologue
            )
        };
        let known = without.frames.iter().take_while(by_rule).count();
        assert!(with.frames.len() >= known, "{without:#x?}\n{with:#x?}");
        // Where the last frame reaches to, its own rule does not tell.
        assert_eq!(with.frames[..known - 1], without.frames[..known - 1]);
        assert_eq!(with.frames[known - 1].pc, without.frames[known - 1].pc);
        longer += usize::from(with.frames.len() > without.frames.len());
        whole += usize::from(without.is_complete());
        let next = with.frames.get(known).map(|frame| frame.method);
        let is_of_code =
            matches!(next, None | Some(UnwindMethod::Scan | UnwindMethod::Leaf | UnwindMethod::FramePointer));
        assert!(is_of_code || without.frames.len() > known, "{without:#x?}\n{with:#x?}");
    }
    assert!(longer > 200 && longer + whole < 2000, "{longer} longer by a scan, {whole} whole without");
}

#[test]
fn an_executable_that_the_bundle_lacks_is_read_where_the_process_had_it_only_if_that_is_allowed() {
    // Without symbols it is no debug file, and is not put into the bundle as one.
    let Some(mut stage) = stage(&["-s"], false) else { return };
    let told = told(&stage);
    let bundle_alone = stage.tables().with_code(&stage.trace, &stage.resolver());
    let missing = bundle_alone.missing_code();
    let is_program = |path: &str| Path::new(path) == stage.executable;
    assert!(missing.iter().any(|it| is_program(&it.module) && it.reason == MissReason::NotInBundle), "{missing:?}");
    let [stack] = &unwind_trace(&stage.trace, &bundle_alone)[..] else { panic!("one thread") };
    assert_eq!((stack.stop, scanned(stack)), (StopReason::NoRule, Vec::new()));

    let local = |stage: &Stage| {
        let options = Options { local_files: true, ..Options::default() };
        let resolver = Resolver::new(options).with_stored_bundle(stage.bundle.clone(), Proof::Sealed);
        stage.tables().with_code(&stage.trace, &resolver)
    };
    let [stack] = &unwind_trace(&stage.trace, &local(&stage))[..] else { panic!("one thread") };
    assert!(has(stack, &told), "{told:x?}: {stack:#x?}");
    assert_eq!((stack.stop, scanned(stack)), (StopReason::EndOfStack, vec![told[1]]));

    // Another program at its path is not that program.
    stage.child.kill().unwrap();
    stage.child.wait().unwrap();
    std::fs::copy("/bin/true", &stage.executable).unwrap();
    let other = local(&stage);
    let missing = other.missing_code();
    assert!(missing.iter().any(|it| is_program(&it.module) && it.reason == MissReason::DebugIdMismatch), "{missing:?}");
    let [stack] = &unwind_trace(&stage.trace, &other)[..] else { panic!("one thread") };
    assert_eq!((stack.stop, scanned(stack)), (StopReason::NoRule, Vec::new()));
}
