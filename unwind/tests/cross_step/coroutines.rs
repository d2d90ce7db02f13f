//! What waits for a coroutine of C++ on aarch64: the program of `single_step/coroutines.rs` under the emulator, from `main` on.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

use symseal_unwind::{Cache, Frame, Modules, Options, unwind_with};

use crate::elf;
use crate::gdb::Emulated;
use crate::platform::AARCH64;
use crate::program::Program;
use crate::run::registers_of;
use crate::stack::Stack;
use crate::stopped::{Stop, Stopped};
use crate::waiting::{self, Noted, Seen};

const COMPILER: &str = "aarch64-linux-gnu-g++";
const VARIANTS: [&[&str]; 4] =
    [&["-O0"], &["-O1"], &["-O2"], &["-O2", "-gdwarf-4", "-mbranch-protection=standard", "-march=armv8.3-a"]];

fn compile(options: &[&str], directory: &Path) -> Option<PathBuf> {
    let output = directory.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/single_step/coroutines.cpp");
    let arguments = ["-std=c++20", "-g", "-static", "-o"];
    match Command::new(COMPILER).args(options).args(arguments).args([&output, &source]).status() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            elf::skip(COMPILER, "not found");
            None
        }
        status => {
            assert!(status.is_ok_and(|status| status.success()), "{COMPILER} compiles {}", source.display());
            Some(output)
        }
    }
}

fn run(mut emulated: Emulated, path: &Path) -> Result<Seen, Error> {
    let arch = AARCH64.toolchain.arch;
    let symbols = waiting::symbols(&std::fs::read(path)?);
    let program = Program::read(path, None);
    let modules = Modules::new(arch, vec![program.module()]);
    emulated.run_to(&[symbols["main"]])?;
    let (mut cache, mut seen) = (Cache::new(), Seen::default());
    let mut frames = vec![Frame::EMPTY; 256];
    let options = Options { continuations: true, ..Options::default() };
    loop {
        let registers = registers_of(arch, &emulated.registers()?);
        let memory = Stack::everything(&mut emulated);
        let word = |address: u64| memory.word(arch, address);
        let walk = unwind_with(&modules, &registers, &memory, &mut cache, &mut frames, options);
        let noted = || Noted::of(|name| symbols[name], word);
        seen.look(&walk, &frames, noted, |frame| program.name(frame.lookup_pc().0), word);
        let stop = match program.ends_of_exclusive(registers.pc) {
            Some(ends) => emulated.run_to(&ends)?,
            None => emulated.step(None)?,
        };
        match stop {
            Stop::Exited(0) => return Ok(seen),
            Stop::Step => {}
            stop => return Err(Error::other(format!("{stop:?}"))),
        }
    }
}

#[test]
fn t12_what_waits_for_a_coroutine_of_cpp_on_aarch64_follows_the_stack() {
    let directory = tempfile::tempdir().expect("a directory");
    for options in VARIANTS {
        let Some(program) = compile(options, directory.path()) else { return };
        let emulator = AARCH64.toolchain.emulator;
        match Emulated::start(emulator, AARCH64.emulator_options, &program, directory.path()) {
            Ok(emulated) => run(emulated, &program).expect("an answer to each step").check(&format!("{options:?}"), 0),
            Err(error) => return elf::skip(emulator, &error.to_string()),
        }
    }
}
