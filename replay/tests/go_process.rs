//! A real program of Go that waits in C: captured, unwound from the bundle alone to the goroutine that called, named, replayed. The truth is
//! what `runtime.Callers` told the program itself.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::PathBuf;
use std::process::Command;

use crate::stage::{Stage, functions, skip};
use symseal_module::{StopReason, UnwindMethod};
use symseal_replay::{Class, replay};
use symseal_trace::Trace;

fn stage() -> Option<Stage> {
    let dir = tempfile::tempdir().unwrap();
    let executable = dir.path().join("workload");
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/goroutines.go");
    let built = Command::new("go")
        .args(["build", "-ldflags=-B gobuildid", "-o"])
        .args([&executable, &source])
        .envs([("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local"), ("CGO_ENABLED", "1")])
        .current_dir(dir.path())
        .output();
    match built {
        Ok(built) if built.status.success() => Stage::of(dir, executable),
        Ok(built) => {
            let why = String::from_utf8_lossy(&built.stderr).into_owned();
            // Go compiles no C code without a C compiler.
            assert!(why.contains("C compiler"), "{why}");
            skip("gcc", &why);
            None
        }
        Err(error) => {
            skip("go", &error.to_string());
            None
        }
    }
}

#[test]
fn a_goroutine_is_followed_from_c_to_its_end_and_stays_the_same_elsewhere() {
    let Some(mut stage) = stage() else { return };
    // What is written is what is read back.
    let mut written = Vec::new();
    stage.trace.write(&mut written).unwrap();
    stage.trace = Trace::read(written.as_slice()).unwrap();
    let callers: Vec<u64> = stage.said.iter().map(|line| u64::from_str_radix(&line[2..], 16).unwrap()).collect();
    assert!(callers.len() >= 6, "works four times, main, runtime.main, goexit: {callers:x?}");

    let threads = stage.threads();
    let is_main = |thread: &&symseal_replay::ResolvedThread| functions(thread).contains(&"innermost");
    let main = threads.iter().find(is_main).unwrap_or_else(|| panic!("{threads:#?}"));
    let shown: Vec<String> =
        main.frames.iter().map(|frame| format!("{:#x} {} {:?}", frame.ip.0, frame.unwind, frame.function())).collect();
    // `goexit` has no caller: its own word for that, or a return address of zero where debug information describes it as any other function.
    assert!(matches!(main.stop, StopReason::EndOfStack | StopReason::RootFramePointer), "{} {shown:#?}", main.stop);
    let ips: Vec<u64> = main.frames.iter().map(|frame| frame.ip.0).collect();
    // Its first one is where `leaves` asked, and not where it called C.
    assert!(ips.ends_with(&callers[1..]), "{callers:x?}: {shown:#?}");
    let switched: Vec<usize> =
        (0..main.frames.len()).filter(|at| main.frames[*at].unwind == UnwindMethod::GoroutineSwitch).collect();
    assert_eq!(switched.len(), 1, "{shown:#?}");
    let names = functions(main);
    let at = |name: &str| names.iter().position(|it| *it == name).unwrap_or_else(|| panic!("{name}: {shown:#?}"));
    assert!(at("innermost") < at("in_c") && at("in_c") < at("main.leaves"), "{names:?}");
    assert_eq!(names.iter().filter(|name| **name == "main.works").count(), 4, "{names:?}");
    assert!(at("main.leaves") < at("main.main") && at("main.main") < at("runtime.main"), "{names:?}");

    let report = replay(&stage.trace, &stage.resolver(), &stage.tables(), &[1, 2, 3, 4, 5]).unwrap();
    assert_eq!(report.replay_success_ratio, 1.0, "{:#?}", report.mismatches);
    assert_eq!(report.manifest.units, report.manifest.stacks * 5 * Class::ALL.len() as u64);
    assert!(report.controls_hold(), "{:#?}", report.controls);
}
