//! Tasks of tokio on aarch64: the program of `single_step/tasks.rs`, static, under the emulator.

use std::io::Error;
use std::path::Path;
use std::process::Command;

use symseal_unwind::{Cache, Frame, Modules, Options, unwind_with};

use crate::elf;
use crate::gdb::Emulated;
use crate::platform::AARCH64;
use crate::program::Program;
use crate::run::registers_of;
use crate::stack::Stack;
use crate::stopped::{Stop, Stopped};
use crate::waiting::{symbols, tasks};

const TARGET: &str = "aarch64-unknown-linux-gnu";
/// One file, where it was linked for.
const STATIC: &str = "-Ctarget-feature=+crt-static -Crelocation-model=static";

fn check(mut emulated: Emulated, path: &Path) -> Result<(), Error> {
    let arch = AARCH64.toolchain.arch;
    let stops = [symbols(&std::fs::read(path)?)["stands_here"]];
    let program = Program::read(path, None);
    let modules = Modules::new(arch, vec![program.module()]);
    let options = Options { continuations: true, ..Options::default() };
    for waiting in tasks::WAITING {
        assert_eq!(emulated.run_to(&stops)?, Stop::Step, "a stop for {waiting:?}");
        let registers = registers_of(arch, &emulated.registers()?);
        assert_eq!(registers.pc, stops[0]);
        let mut frames = vec![Frame::EMPTY; 256];
        let memory = Stack::everything(&mut emulated);
        let walk = unwind_with(&modules, &registers, &memory, &mut Cache::new(), &mut frames, options);
        frames.truncate(walk.frames);
        let names: Vec<String> = frames.iter().map(|frame| program.name(frame.lookup_pc().0)).collect();
        tasks::check(&walk, &frames, &names, waiting);
        // On from the stop, which would be found again.
        emulated.step(None)?;
    }
    assert_eq!(emulated.run_to(&stops)?, Stop::Exited(0));
    Ok(())
}

/// Whether Rust's standard library for the target is installed, or could be just now.
fn has_standard_library() -> bool {
    let rustup = |arguments: &[&str]| Command::new("rustup").args(arguments).output();
    let listed = rustup(&["target", "list", "--installed"]);
    listed.is_ok_and(|listed| String::from_utf8_lossy(&listed.stdout).lines().any(|target| target == TARGET))
        || rustup(&["target", "add", TARGET]).is_ok_and(|added| added.status.success())
}

#[test]
fn t12_the_tasks_that_wait_for_a_task_of_rust_on_aarch64_follow_the_stack() {
    let toolchain = AARCH64.toolchain;
    if !has_standard_library() {
        return elf::skip("rust-std", &format!("no standard library for {TARGET} to be had"));
    }
    let directory = tempfile::tempdir().expect("a directory");
    for kind in tasks::KINDS {
        let flags = format!("-Clinker={} {STATIC}", toolchain.compiler());
        let Some(program) = tasks::program(directory.path(), kind, Some(TARGET), &flags) else { return };
        println!("{}, DWARF {}:", kind.1, kind.2);
        match Emulated::start(toolchain.emulator, AARCH64.emulator_options, &program, directory.path()) {
            Ok(emulated) => check(emulated, &program).expect(kind.1),
            Err(error) => return elf::skip(toolchain.emulator, &error.to_string()),
        }
    }
}
