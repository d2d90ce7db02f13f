//! Real programs that stand still in functions written by hand, which have no call frame information and leave the frame pointer alone. It leads past
//! the function that called them; with the code at hand the call that was made says otherwise.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;
use std::process::Command;

use crate::stage::{Stage, functions, skip};
use symseal_module::{StopReason, UnwindMethod};
use symseal_replay::{replay, resolve_trace};

fn stage(more: &[&str]) -> Option<Stage> {
    let dir = tempfile::tempdir().unwrap();
    let executable = dir.path().join("assembled");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/assembled.c");
    let flags = ["-g", "-O1", "-fno-omit-frame-pointer", "-fcf-protection=none", "-Wl,--build-id", "-o"];
    match Command::new("gcc").args(flags).args([&executable, &source]).args(more).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => {
            skip("gcc", &error.to_string());
            return None;
        }
    }
    Stage::of(dir, executable)
}

/// Whether the stack has these functions, of which `missing` is not there without the code, behind each other, and each caller where the program said that its
/// callee returns to.
#[track_caller]
fn check(stage: &Stage, expected: &[&str], (missing, method): (&str, UnwindMethod)) {
    let told: Vec<u64> = stage.said.iter().map(|line| u64::from_str_radix(&line[2..], 16).unwrap()).collect();
    let resolver = stage.resolver();
    // Without the code the frame pointer is believed, and a caller is missing.
    let (_, threads) = resolve_trace(&stage.trace, &resolver, &stage.tables());
    assert!(!functions(&threads[0]).contains(&missing), "{:#?}", threads[0]);

    let tables = stage.tables().with_code(&stage.trace, &resolver);
    assert!(tables.missing_code().is_empty(), "{:?}", tables.missing_code());
    let (_, threads) = resolve_trace(&stage.trace, &resolver, &tables);
    let thread = &threads[0];
    let names = functions(thread);
    assert!(names.windows(expected.len()).any(|names| names == expected), "{names:?}");
    assert_eq!(thread.stop, StopReason::EndOfStack);
    let of = |name: &str| {
        thread.frames.iter().find(|frame| frame.frames.iter().any(|it| it.function.as_deref() == Some(name)))
    };
    assert_eq!(of(missing).unwrap().unwind, method);
    let pcs: Vec<u64> = ["outer", "main"].iter().map(|name| of(name).unwrap().ip.0).collect();
    assert_eq!(pcs, [told[1], told[0]], "{told:x?}");

    let report = replay(&stage.trace, &resolver, &tables, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(report.replay_success_ratio, 1.0, "{:#?}", report.mismatches);
    assert!(report.controls_hold(), "{:#?}", report.controls);
}

#[test]
fn a_leaf_behind_its_callers_frame_pointer_has_its_caller() {
    if let Some(stage) = stage(&[]) {
        check(&stage, &["spins", "calls", "outer", "main"], ("calls", UnwindMethod::Leaf));
    }
}

#[test]
fn above_a_null_call_the_caller_of_a_function_without_rules_is_found() {
    if let Some(stage) = stage(&["-DNULL_CALL"]) {
        check(&stage, &["calls_null", "calls", "outer", "main"], ("calls", UnwindMethod::Scan));
    }
}

#[test]
fn a_function_that_makes_a_record_is_no_caller_of_who_called_it_but_of_the_leaf_below() {
    if let Some(stage) = stage(&["-DBELOW=makes_record"]) {
        let expected = ["pushes", "makes_record", "calls", "outer", "main"];
        check(&stage, &expected, ("makes_record", UnwindMethod::Scan));
    }
    if let Some(stage) = stage(&["-DBELOW=makes_another"]) {
        let expected = ["spins", "makes_another", "calls", "outer", "main"];
        check(&stage, &expected, ("makes_another", UnwindMethod::Leaf));
    }
}
