//! A real program that stands still in a coroutine of C++: captured with the frames of those that wait, unwound and named from the bundle alone, replayed.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use crate::stage::{Stage, functions, skip};
use symseal_module::StopReason;
use symseal_replay::{coverage, replay, resolve_trace};

fn check(compiler: &str, level: &str) {
    let dir = tempfile::tempdir().unwrap();
    let executable = dir.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/coroutines.cpp");
    let flags = ["-std=c++20", "-g", level, "-Wl,--build-id", "-o"];
    match Command::new(compiler).args(flags).args([&executable, &source]).status() {
        Ok(status) => assert!(status.success(), "{compiler}"),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return skip(if compiler == "g++" { compiler } else { "clang-19" }, "not found");
        }
        Err(error) => panic!("{compiler}: {error}"),
    }
    let Some(stage) = Stage::of(dir, executable) else { return };
    let resolver = stage.resolver();
    let (_, threads) = resolve_trace(&stage.trace, &resolver, &stage.tables());
    let [main] = &threads[..] else { panic!("one thread") };
    assert_eq!(main.stop, StopReason::EndOfStack, "{main:#?}");
    let (stack, waiting) = main.frames.split_at(main.physical());
    let told: Vec<String> =
        waiting.iter().filter_map(|frame| Some(frame.function()?.function.as_deref()?.to_owned())).collect();
    let [middle, outermost] = &told[..] else { panic!("{compiler} {level}: two coroutines wait: {told:?}") };
    assert!(middle.contains("middle") && outermost.contains("outermost"), "{told:?}");
    assert!(functions(main).contains(&"stands_still"), "{main:#?}");
    let awaited = &stack[main.awaited.unwrap()];
    let is_innermost = |name: &str| name.contains("innermost");
    assert!(awaited.frames.iter().filter_map(|it| it.function.as_deref()).any(is_innermost), "{awaited:?}");
    assert_eq!(coverage(&threads, &resolver).all.frames, stack.len() as u64, "they count in no coverage");
    let report = replay(&stage.trace, &resolver, &stage.tables(), &[1, 2]).unwrap();
    assert_eq!(report.replay_success_ratio, 1.0, "{compiler} {level}: {:#?}", report.mismatches);
    assert!(report.controls_hold(), "{:#?}", report.controls);
}

#[test]
fn coroutines_that_wait_for_one_of_a_captured_stack_are_named() {
    check("g++", "-O0");
    check("clang++-19", "-O2");
}
