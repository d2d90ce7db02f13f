//! Which task waits for the one that runs, in a real program with tokio (`tokio_tasks.rs`), made with and without optimisation. The truth are the types of the
//! futures, which are in the names of the functions that poll them.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use symseal_module::{FrameEdge, StopReason};
use symseal_unwind::{Cache, Frame, Options, unwind_with};

use crate::process::Process;
use crate::tracee::{Stop, Tracee};
use crate::{elf, registers_of};

const MANIFEST: &str = include_str!("tokio_tasks.toml");

/// At each stop the functions whose tasks wait, the innermost first.
const WAITING: [&[&str]; 7] = [
    // Awaited before it ran: who spawned it has no more to do.
    &["middle", "outer"],
    &["middle", "outer"],
    // Five tasks of one type for the sixth.
    &["dyn"; 5],
    &[],
    &[],
    // In `block_on`, which is no task.
    &[],
    &[],
];

/// The program; `None` if tokio is not at hand.
fn program(directory: &Path, profile: &[&str], output: &str, dwarf: u8) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::write(directory.join("Cargo.toml"), MANIFEST).expect("a manifest");
    std::fs::copy(root.join("../Cargo.lock"), directory.join("Cargo.lock")).expect("the versions of this project");
    std::fs::copy(root.join("tests/single_step/tokio_tasks.rs"), directory.join("program.rs")).expect("the source");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet"])
        .args(profile)
        .current_dir(directory)
        // Names with types, and nothing of what this test is built with.
        .env("RUSTFLAGS", format!("-Csymbol-mangling-version=v0 -Cdwarf-version={dwarf}"))
        .env_remove("CARGO_TARGET_DIR")
        .output();
    let why = match built {
        Ok(built) if built.status.success() => return Some(directory.join("target").join(output).join("program")),
        Ok(built) => String::from_utf8_lossy(&built.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    elf::skip("tokio (registry)", &why);
    None
}

fn check(program: &Path) -> Result<(), std::io::Error> {
    let tracee = Tracee::start(program, "")?;
    tracee.run_to(tracee.entry()?)?;
    let options = Options { continuations: true, ..Options::default() };
    for waiting in WAITING {
        assert_eq!(tracee.run(0)?, Stop::Step, "a stop for {waiting:?}");
        let process = Process::of(&tracee);
        let mut frames = vec![Frame::EMPTY; 256];
        let registers = registers_of(&tracee.registers()?);
        let walk = unwind_with(&process.modules, &registers, &tracee, &mut Cache::new(), &mut frames, options);
        frames.truncate(walk.frames);
        let names: Vec<String> = frames.iter().map(|frame| process.name(frame)).collect();
        assert_eq!(walk.stop, StopReason::EndOfStack, "{names:#?}");
        let (stack, parents) = frames.split_at(walk.physical());
        println!("{} frames, {} wait: {:?}", stack.len(), parents.len(), names.get(stack.len()..));
        assert_eq!(parents.len(), waiting.len(), "{waiting:?}: {names:#?}");
        for (name, function) in names[stack.len()..].iter().zip(waiting) {
            assert!(name.contains("4task3raw4poll") && name.ends_with("+0x0"), "{name}");
            // The length of a name stands before it; a boxed future has a type of another kind.
            let of = match *function {
                "dyn" => String::from("3BoxD"),
                function => format!("{}{function}", function.len()),
            };
            assert!(name.contains(&of), "{of}: {name}");
        }
        let edges = frames.windows(2).skip(stack.len() - 1).map(|pair| pair[1].edge(&pair[0]));
        assert!(edges.into_iter().all(|edge| edge == FrameEdge::AsyncParent));
        if let Some(continuation) = walk.continuation {
            assert!(names[continuation.awaited].contains("4task7harness"), "{names:#?}");
        }
    }
    assert_eq!(tracee.run(0)?, Stop::Exited(0));
    Ok(())
}

#[test]
fn t12_the_tasks_that_wait_for_a_task_of_rust_follow_the_stack() {
    let directory = tempfile::tempdir().expect("a directory");
    for (profile, output, dwarf) in
        [(&["--release"][..], "release", 4), (&[], "debug", 4), (&["--release"], "release", 5)]
    {
        let Some(program) = program(directory.path(), profile, output, dwarf) else { return };
        println!("{output}, DWARF {dwarf}:");
        match check(&program) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return elf::skip("ptrace", &error.to_string());
            }
            result => result.expect(output),
        }
    }
}
