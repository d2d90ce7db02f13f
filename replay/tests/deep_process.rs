//! A real program whose recursion is deeper than stacks usually are.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::process::Command;

use crate::stage::{Stage, skip};
use symseal_module::StopReason;
use symseal_replay::unwind_trace;

const DEPTH: usize = 100_000;
const SOURCE: &str = "
#include <stdio.h>
#include <unistd.h>
static volatile int sink;
__attribute__((noinline, noclone)) int recursion(int n) {
    if (n == 0) { puts(\"ready\"); fflush(stdout); pause(); return 1; }
    int below = recursion(n - 1);
    sink = n;
    return below + sink;
}
int main(void) { return recursion(DEPTH); }
";

#[test]
fn a_stack_has_as_many_frames_as_were_copied() {
    let dir = tempfile::tempdir().unwrap();
    let (source, executable) = (dir.path().join("deep.c"), dir.path().join("deep"));
    std::fs::write(&source, SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O1", "-g", "-fno-optimize-sibling-calls", "-Wl,--build-id", &format!("-DDEPTH={DEPTH}"), "-o"]);
    match gcc.args([&executable, &source]).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return skip("gcc", &error.to_string()),
    }
    let Some(stage) = Stage::with(dir, executable, false) else { return };
    let [stack] = &unwind_trace(&stage.trace, &stage.tables())[..] else { panic!("one thread") };
    assert_eq!(stack.stop, StopReason::EndOfStack);
    let mut returns = std::collections::BTreeMap::new();
    for frame in &stack.frames {
        *returns.entry(frame.pc).or_insert(0usize) += 1;
    }
    assert_eq!(returns.values().max(), Some(&DEPTH), "{} frames", stack.frames.len());
}
