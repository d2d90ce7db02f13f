//! A real program in an asynchronous function of Swift's convention: captured with what leads to those that wait for it, unwound and named from the
//! bundle alone, replayed. The truth is what the program says of itself.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::PathBuf;
use std::process::Command;

use crate::stage::{Stage, functions, skip};
use symseal_module::{FrameEdge, StopReason, UnwindMethod};
use symseal_replay::{Class, coverage, replay, resolve_trace};
use symseal_trace::Trace;

fn stage() -> Option<Stage> {
    let dir = tempfile::tempdir().unwrap();
    let executable = dir.path().join("workload");
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/asynchronous.c");
    let flags = ["-O1", "-g", "-fno-omit-frame-pointer", "-Wl,--build-id", "-o"];
    match Command::new("clang-19").args(flags).args([&executable, &source]).status() {
        Ok(status) => {
            assert!(status.success());
            Stage::of(dir, executable)
        }
        Err(error) => {
            skip("clang-19", &error.to_string());
            None
        }
    }
}

#[test]
fn who_waits_for_an_asynchronous_function_is_named_and_counts_as_no_frame_of_the_stack() {
    let Some(mut stage) = stage() else { return };
    let mut written = Vec::new();
    stage.trace.write(&mut written).unwrap();
    stage.trace = Trace::read(written.as_slice()).unwrap();
    // The outermost first.
    let mut waiting: Vec<u64> = stage.said.iter().map(|line| u64::from_str_radix(&line[2..], 16).unwrap()).collect();
    waiting.reverse();
    assert_eq!(waiting.len(), 5);

    let resolver = stage.resolver();
    let (event, threads) = resolve_trace(&stage.trace, &resolver, &stage.tables());
    let [main] = &threads[..] else { panic!("one thread") };
    let shown: Vec<String> =
        main.frames.iter().map(|frame| format!("{:#x} {} {:?}", frame.ip.0, frame.unwind, frame.function())).collect();
    assert_eq!(main.stop, StopReason::EndOfStack, "{shown:#?}");
    let (stack, parents) = main.frames.split_at(main.physical());
    assert_eq!(parents.iter().map(|frame| frame.ip.0).collect::<Vec<_>>(), waiting, "{shown:#?}");
    assert!(stack.iter().all(|frame| frame.unwind != UnwindMethod::AsyncParent), "{shown:#?}");
    let names = functions(main);
    let at = |name: &str| names.iter().position(|it| *it == name).unwrap_or_else(|| panic!("{name}: {shown:#?}"));
    assert!(at("waits") < at("innermost") && at("innermost") < at("runs") && at("runs") < at("main"), "{names:?}");
    assert_eq!(names[names.len() - 5..], ["goes_on", "goes_on", "goes_on", "goes_on", "finishes"]);

    // Each says what it waits for, and by which edge.
    let awaited = main.awaited.unwrap();
    assert_eq!(stack[awaited].function().and_then(|function| function.function.as_deref()), Some("innermost"));
    let waits_for: Vec<Option<usize>> = (0..main.frames.len()).map(|depth| main.awaited_by(depth)).collect();
    assert!(waits_for[..stack.len()].iter().all(Option::is_none), "{waits_for:?}");
    let first = stack.len();
    assert_eq!(waits_for[first..], [Some(awaited), Some(first), Some(first + 1), Some(first + 2), Some(first + 3)]);
    for frame in parents {
        assert_eq!(frame.line(false).edge, Some(FrameEdge::AsyncParent));
        assert!(!frame.frames.is_empty() && !frame.counts(), "{frame:?}");
    }
    assert!(stack.iter().all(|frame| frame.line(false).edge.is_none()));
    assert_eq!(event.frames.iter().filter(|row| row.unwind == UnwindMethod::AsyncParent && !row.inlined).count(), 5);

    // Of coverage they are no part, whatever they are called.
    let covered = coverage(&threads, &resolver);
    assert_eq!((covered.all.frames, covered.by_stack.stacks), (stack.len() as u64, 1));

    let report = replay(&stage.trace, &resolver, &stage.tables(), &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(report.replay_success_ratio, 1.0, "{:#?}", report.mismatches);
    assert_eq!(report.manifest.units, 8 * Class::ALL.len() as u64);
    assert!(report.controls_hold(), "{:#?}", report.controls);
}
