//! Which task waits for the one that runs, in a real program with tokio (`single_step/tokio_tasks.rs`), whoever runs it. The truth are the types of the futures, which are in
//! the names of the functions that poll them.

use std::path::{Path, PathBuf};
use std::process::Command;

use symseal_module::{FrameEdge, StopReason};
use symseal_unwind::{Frame, Walk};

use crate::elf;

const MANIFEST: &str = include_str!("../single_step/tokio_tasks.toml");

/// At each stop the functions whose tasks wait, the innermost first.
pub(crate) const WAITING: [&[&str]; 7] = [
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

/// The options to cargo, the folder of its output, and the version of DWARF, of each kind of program.
pub(crate) const KINDS: [(&[&str], &str, u8); 3] =
    [(&["--release"], "release", 4), (&[], "debug", 4), (&["--release"], "release", 5)];

/// The program in `directory`, made with more `flags`, for `target` if it is another processor's; `None` if tokio is not at hand.
pub(crate) fn program(
    directory: &Path,
    (profile, output, dwarf): (&[&str], &str, u8),
    target: Option<&str>,
    flags: &str,
) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::write(directory.join("Cargo.toml"), MANIFEST).expect("a manifest");
    std::fs::copy(root.join("../Cargo.lock"), directory.join("Cargo.lock")).expect("the versions of this project");
    std::fs::copy(root.join("tests/single_step/tokio_tasks.rs"), directory.join("program.rs")).expect("the source");
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--offline", "--quiet"]).args(profile).current_dir(directory).env_remove("CARGO_TARGET_DIR");
    // Names with types, and nothing of what this test is built with.
    let flags = format!("-Csymbol-mangling-version=v0 -Cdwarf-version={dwarf} {flags}");
    let mut built_in = directory.join("target");
    if let Some(target) = target {
        command.args(["--target", target]);
        built_in.push(target);
    }
    let why = match command.env("RUSTFLAGS", flags).output() {
        Ok(built) if built.status.success() => return Some(built_in.join(output).join("program")),
        Ok(built) => String::from_utf8_lossy(&built.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    elf::skip("tokio (registry)", &why);
    None
}

/// Holds a walk, whose frames have the functions `names`, to the tasks that wait.
pub(crate) fn check(walk: &Walk, frames: &[Frame], names: &[String], waiting: &[&str]) {
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
