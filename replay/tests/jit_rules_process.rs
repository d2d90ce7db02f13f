//! Real processes on end of code that they made, whose unwinding rules their runtime wrote into a jitdump. The code keeps no frame pointers.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::stage::{Stage, functions, skip};
use symseal_module::{ResolverStep, StopReason, UnwindMethod};
use symseal_replay::{BundleTables, replay, resolve_trace};

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

/// Whether the stack has these functions behind each other and is whole, each that the process made by its own rules, after the trace was written and read as well; and
/// ends at the first of them without the rules.
#[track_caller]
fn check(mut stage: Stage, expected: &[&str], made: usize) {
    let mut written = Vec::new();
    stage.trace.write(&mut written).unwrap();
    stage.trace = symseal_trace::Trace::read(written.as_slice()).unwrap();
    let threads = stage.threads();
    let thread = &threads[0];
    let names = functions(thread);
    assert!(names.windows(expected.len()).any(|names| names == expected), "{names:#?}");
    assert_eq!(thread.stop, StopReason::EndOfStack, "{names:#?}");
    // The frame behind each is what its rule led to.
    let frames = thread.frames.windows(2).filter(|pair| pair[0].resolver == ResolverStep::JitMap);
    let methods: Vec<_> = frames.map(|pair| (pair[0].module.is_none(), pair[1].unwind)).collect();
    assert_eq!(methods, vec![(true, UnwindMethod::JitRule); made], "{thread:#?}");

    let report = replay(&stage.trace, &stage.resolver(), &stage.tables(), &[1, 2, 3, 4]).unwrap();
    assert_eq!(report.replay_success_ratio, 1.0, "{:#?}", report.mismatches);
    assert!(report.controls_hold(), "{:#?}", report.controls);

    // Rules of a function that other code may lie over are not believed, and neither are those that are damaged or of another place.
    let full = stage.trace.clone();
    let spoil: [fn(&mut symseal_trace::TraceJit); 4] = [
        |told| told.eh_frame = None,
        |told| told.overlapped = true,
        |told| told.eh_frame.as_mut().unwrap().truncate(9),
        |told| told.size += 64,
    ];
    for spoil in spoil {
        let mut trace = full.clone();
        trace.jit.iter_mut().for_each(spoil);
        let tables = BundleTables::for_trace([&stage.bundle], &trace);
        let thread = &resolve_trace(&trace, &stage.resolver(), &tables).1[0];
        assert!(!thread.frames.iter().any(|frame| frame.unwind == UnwindMethod::JitRule), "{thread:#?}");
    }
}

#[test]
fn t13_rules_of_a_jitdump_lead_through_code_without_frame_pointers() {
    let dir = tempfile::tempdir().unwrap();
    let executable = dir.path().join("jit_rules");
    let flags = ["-g", "-O1", "-fomit-frame-pointer", "-Wl,--build-id", "-o"];
    match Command::new("gcc").args(flags).args([&executable, &source("jit_rules.c")]).status() {
        Ok(status) => assert!(status.success()),
        Err(error) => return skip("gcc", &error.to_string()),
    }
    let Some(stage) = Stage::of(dir, executable) else { return };
    let expected = ["at_the_bottom", "JS:innermost", "JS:between", "JS:outermost", "calls_made_code", "main"];
    check(stage, &expected, 3);
}

/// CPython puts a piece of code that it makes below each function of Python, by the name of which profilers know it. gdb guesses there, and shows frames that are none.
#[test]
fn t13_functions_of_python_are_on_the_stack_by_the_rules_that_cpython_wrote() {
    const PYTHON: &str = "python3.13";
    // Where versions lie beside each other, pyenv asks which one is meant.
    let python = || {
        let mut command = Command::new(PYTHON);
        command.env("PYENV_VERSION", "3.13");
        command
    };
    let told = python().args(["-X", "perf_jit", "-c", "import sys; print(sys.executable)"]).output();
    let executable = match told {
        Ok(told) if told.status.success() => PathBuf::from(String::from_utf8(told.stdout).unwrap().trim()),
        Ok(told) => return skip(PYTHON, &String::from_utf8_lossy(&told.stderr)),
        Err(error) => return skip(PYTHON, &error.to_string()),
    };
    let script = source("jit_rules.py");
    let mut command = Command::new(&executable);
    command.args(["-X", "perf_jit"]).arg(&script);
    let Some(stage) = Stage::running(tempfile::tempdir().unwrap(), executable, command, false) else { return };
    let _ = std::fs::remove_file(format!("/tmp/jit-{}.dump", stage.child.id()));
    if stage.said != ["active"] {
        return skip(PYTHON, "it was built without trampolines");
    }
    let name = |function: &str| format!("py::{function}:{}", script.display());
    let expected = ["innermost", "innermost", "innermost", "innermost", "between", "outermost", "<module>"].map(name);
    let threads = stage.threads();
    let names: Vec<&str> = functions(&threads[0]).into_iter().filter(|name| name.starts_with("py::")).collect();
    assert_eq!(names, expected, "{:#?}", threads[0]);
    let outermost = expected.last().map(String::as_str).unwrap();
    check(stage, &[outermost, "py_trampoline_evaluator"], expected.len());
}
