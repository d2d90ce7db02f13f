//! Stacks that begin in the middle (`contexts.c`): a trampoline has no caller, and the frames of who made the context are not below it.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use symseal_module::{Avma, StopReason};
use symseal_unwind::{Cache, Frame, StackBytes, StackRegions, unwind};

use crate::process::Process;
use crate::tracee::{Stop, Tracee};
use crate::{copy_stacks, elf, registers_of};

/// What each stack begins with, and how its walk ends. What says nothing of itself is not the end that somebody stated.
const BEGINNINGS: [(&str, StopReason); 3] = [
    // Of the C library, which is stripped.
    ("libc", StopReason::EndOfStack),
    (" trampoline+", StopReason::EndOfStack),
    (" dark_trampoline+", StopReason::NoRule),
];

fn check(program: &Path) -> Result<(), std::io::Error> {
    let tracee = Tracee::start(program, "")?;
    tracee.run_to(tracee.entry()?)?;
    for (beginning, stop) in BEGINNINGS {
        assert_eq!(tracee.run(0)?, Stop::Step, "{beginning}");
        let process = Process::of(&tracee);
        let registers = registers_of(&tracee.registers()?);
        let copies = copy_stacks(&tracee, &process, registers.sp, &[]);
        let regions: Vec<StackBytes<'_>> =
            copies.iter().map(|(start, bytes)| StackBytes { start: Avma(*start), bytes }).collect();
        let mut frames = vec![Frame::EMPTY; 64];
        let walk = unwind(&process.modules, &registers, &StackRegions(&regions), &mut Cache::new(), &mut frames);
        let names: Vec<String> = frames[..walk.frames].iter().map(|frame| process.name(frame)).collect();
        let functions: Vec<&str> = names
            .iter()
            .map(|name| name.rsplit(' ').next().unwrap_or_default().split('+').next().unwrap_or_default())
            .collect();
        let [inner @ .., _] = functions.as_slice() else { panic!("no frames") };
        let expected = ["stands", "works", "works", "works", "works", "entry"];
        assert_eq!((inner, walk.stop), (&expected[..], stop), "{names:#?}");
        assert!(names.last().is_some_and(|name| name.contains(beginning)), "{names:#?}");
    }
    assert_eq!(tracee.run(0)?, Stop::Exited(0));
    Ok(())
}

#[test]
fn t12_a_stack_that_begins_with_a_trampoline_ends_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let program = directory.path().join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/single_step/contexts.c");
    for compiler in ["gcc", "clang"] {
        // Inlined and tail calls would leave frames out.
        let options = ["-O2", "-g0", "-fno-inline", "-fno-optimize-sibling-calls", "-o"];
        match Command::new(compiler).args(options).args([&program, &source]).status() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                elf::skip(compiler, "not found");
                continue;
            }
            status => assert!(status.is_ok_and(|status| status.success()), "{compiler} compiles {}", source.display()),
        }
        match check(&program) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return elf::skip("ptrace", &error.to_string());
            }
            result => result.expect(compiler),
        }
    }
}
