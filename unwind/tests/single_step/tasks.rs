//! Which task waits for the one that runs, in a real program with tokio (`tokio_tasks.rs`), made with and without optimisation.

use std::io::ErrorKind;
use std::path::Path;

use symseal_unwind::{Cache, Frame, Options, unwind_with};

use crate::process::Process;
use crate::tracee::{Stop, Tracee};
use crate::waiting::tasks;
use crate::{elf, registers_of};

fn check(program: &Path) -> Result<(), std::io::Error> {
    let tracee = Tracee::start(program, "")?;
    tracee.run_to(tracee.entry()?)?;
    let options = Options { continuations: true, ..Options::default() };
    for waiting in tasks::WAITING {
        assert_eq!(tracee.run(0)?, Stop::Step, "a stop for {waiting:?}");
        let process = Process::of(&tracee);
        let mut frames = vec![Frame::EMPTY; 256];
        let registers = registers_of(&tracee.registers()?);
        let walk = unwind_with(&process.modules, &registers, &tracee, &mut Cache::new(), &mut frames, options);
        frames.truncate(walk.frames);
        let names: Vec<String> = frames.iter().map(|frame| process.name(frame)).collect();
        tasks::check(&walk, &frames, &names, waiting);
    }
    assert_eq!(tracee.run(0)?, Stop::Exited(0));
    Ok(())
}

#[test]
fn t12_the_tasks_that_wait_for_a_task_of_rust_follow_the_stack() {
    let directory = tempfile::tempdir().expect("a directory");
    // GNU ld leaves one string as the end of another, as rustc's own linker does not.
    let kinds = tasks::KINDS.map(|kind| (kind, "")).into_iter().chain([(tasks::KINDS[0], "-Clink-arg=-fuse-ld=bfd")]);
    for (kind, flags) in kinds {
        let Some(program) = tasks::program(directory.path(), kind, None, flags) else { return };
        println!("{}, DWARF {} {flags}:", kind.1, kind.2);
        match check(&program) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return elf::skip("ptrace", &error.to_string());
            }
            result => result.expect(kind.1),
        }
    }
}
