//! A real program that stands still in a task of tokio: captured with what leads to the tasks that wait, unwound and named from the bundle alone, replayed.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::path::Path;
use std::process::Command;

use crate::stage::{Stage, functions, skip};
use symseal_module::StopReason;
use symseal_replay::{Class, coverage, replay, resolve_trace};

/// As the unwinder's own tests build such programs.
const MANIFEST: &str = include_str!("../../unwind/tests/single_step/tokio_tasks.toml");

fn stage() -> Option<Stage> {
    let dir = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::write(dir.path().join("Cargo.toml"), MANIFEST).unwrap();
    std::fs::copy(root.join("../Cargo.lock"), dir.path().join("Cargo.lock")).unwrap();
    std::fs::copy(root.join("tests/tokio/tasks.rs"), dir.path().join("program.rs")).unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet", "--release"])
        .current_dir(dir.path())
        .env("RUSTFLAGS", "-Clink-arg=-Wl,--build-id")
        .env_remove("CARGO_TARGET_DIR")
        .output();
    let why = match built {
        Ok(built) if built.status.success() => {
            let executable = dir.path().join("target/release/program");
            return Stage::of(dir, executable);
        }
        Ok(built) => String::from_utf8_lossy(&built.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    skip("tokio (registry)", &why);
    None
}

#[test]
fn the_tasks_that_wait_for_a_task_of_rust_are_named_and_count_as_no_frames_of_the_stack() {
    let Some(stage) = stage() else { return };
    let resolver = stage.resolver();
    let (_, threads) = resolve_trace(&stage.trace, &resolver, &stage.tables());
    let [main] = &threads[..] else { panic!("one thread") };
    let shown: Vec<String> =
        main.frames.iter().map(|frame| format!("{:#x} {} {:?}", frame.ip.0, frame.unwind, frame.function())).collect();
    assert_eq!(main.stop, StopReason::EndOfStack, "{shown:#?}");
    let (stack, parents) = main.frames.split_at(main.physical());
    let futures: Vec<&str> = parents.iter().filter_map(|frame| frame.function()?.function.as_deref()).collect();
    let [middle, outer] = &futures[..] else { panic!("two tasks wait: {shown:#?}") };
    let polls =
        |name: &str, future: &str| name.starts_with(&format!("tokio::runtime::task::raw::poll<program::{future}::"));
    assert!(polls(middle, "middle") && polls(outer, "outer"), "{futures:?}");
    let names = functions(main);
    assert!(names.contains(&"program::stands") && names.contains(&"program::main"), "{names:?}");
    let awaited = &stack[main.awaited.unwrap()];
    let is_harness = |name: &str| name.contains("::task::harness::Harness<program::innermost::");
    assert!(awaited.frames.iter().filter_map(|source| source.function.as_deref()).any(is_harness), "{awaited:?}");
    assert_eq!(coverage(&threads, &resolver).all.frames, stack.len() as u64);

    let report = replay(&stage.trace, &resolver, &stage.tables(), &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    assert_eq!(report.replay_success_ratio, 1.0, "{:#?}", report.mismatches);
    assert_eq!(report.manifest.units, 8 * Class::ALL.len() as u64);
    assert!(report.controls_hold(), "{:#?}", report.controls);
}
