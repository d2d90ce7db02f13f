//! What waits for a coroutine of C++ that the stack runs, in a real program (`coroutines.cpp`): at every instruction of what its coroutines call, the frames behind the
//! stack are those that the program itself noted, and at no other instruction is a frame claimed that does not wait.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::Object;
use symseal_unwind::{Cache, Frame, Options, unwind, unwind_with};

use crate::process::Process;
use crate::shadow::Shadow;
use crate::tracee::{Stop, Tracee};
use crate::waiting::{self, Noted, Seen};
use crate::{elf, registers_of};

const SOURCE: &str = "coroutines.cpp";
/// Compilers, and what they are told besides.
const VARIANTS: [(&str, &[&str]); 8] = [
    ("g++", &["-O0"]),
    ("g++", &["-O1"]),
    ("g++", &["-O2"]),
    ("g++", &["-O2", "-gdwarf-4", "-fno-omit-frame-pointer"]),
    ("clang++-19", &["-O0"]),
    ("clang++-19", &["-O1"]),
    ("clang++-19", &["-O2"]),
    ("clang++-19", &["-O2", "-gdwarf-4"]),
];

fn run(program: &Path) -> Result<Seen, Error> {
    let bytes = std::fs::read(program)?;
    let entry = object::File::parse(bytes.as_slice()).expect("an ELF file").entry();
    let symbols = waiting::symbols(&bytes);
    let tracee = Tracee::start(program, "1")?;
    let bias = tracee.entry()?.wrapping_sub(entry);
    let symbol = |name: &str| symbols[name].wrapping_add(bias);
    tracee.run_to(symbol("main"))?;
    let mut process = Process::of(&tracee);
    let mut raw = tracee.registers()?;
    let (mut shadow, mut cache, mut seen) = (Shadow::default(), Cache::new(), Seen::default());
    let mut frames = vec![Frame::EMPTY; 256];
    let options = Options { continuations: true, ..Options::default() };
    loop {
        let walk = unwind_with(&process.modules, &registers_of(&raw), &tracee, &mut cache, &mut frames, options);
        let word = |address: u64| tracee.word(address);
        seen.look(&walk, &frames, || Noted::of(symbol, word), |frame| process.name(frame), word);
        let stack = &frames[..walk.physical()];
        // Nobody who does not ask gets them, and the stack is the same.
        let mut alone = vec![Frame::EMPTY; 256];
        let plain = unwind(&process.modules, &registers_of(&raw), &tracee, &mut cache, &mut alone);
        assert_eq!((&alone[..plain.frames], plain.stop), (stack, walk.stop));
        let mut code = [0; 16];
        tracee.read(raw.rip, &mut code);
        match tracee.step(0)? {
            Stop::Exited(0) => return Ok(seen),
            Stop::Step => raw = process.executed(&tracee, &mut shadow, &code, &raw)?,
            stop => return Err(Error::other(format!("{stop:?}"))),
        }
    }
}

fn compile(compiler: &str, options: &[&str], directory: &Path) -> Option<PathBuf> {
    let output = directory.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/single_step").join(SOURCE);
    let arguments = ["-std=c++20", "-g", "-o"];
    match Command::new(compiler).args(options).args(arguments).args([&output, &source]).status() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            elf::skip(if compiler == "g++" { compiler } else { "clang-19" }, &format!("{compiler} was not found"));
            None
        }
        status => {
            assert!(status.is_ok_and(|status| status.success()), "{compiler} compiles {}", source.display());
            Some(output)
        }
    }
}

#[test]
fn t12_what_waits_for_a_coroutine_of_cpp_follows_the_stack() {
    let directory = tempfile::tempdir().expect("a directory");
    for (compiler, options) in VARIANTS {
        let Some(program) = compile(compiler, options, directory.path()) else { continue };
        let seen = match run(&program) {
            Ok(seen) => seen,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return elf::skip("ptrace", &error.to_string());
            }
            Err(error) => panic!("{compiler} {options:?}: {error}"),
        };
        // Clang says of few places where a function has its frame, and then there may be two that it might be.
        let may_miss = if compiler == "g++" { 0 } else { 2 };
        seen.check(&format!("{compiler} {options:?}"), may_miss);
    }
}
