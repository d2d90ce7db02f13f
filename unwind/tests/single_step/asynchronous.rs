//! What waits for an asynchronous function of the stack, in a real program of Swift's calling convention: at every instruction of what such
//! functions call, the frames behind the stack are those that the program itself noted (`asynchronous.c`).

use std::collections::HashMap;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Command;

use object::{Object, ObjectSymbol};
use symseal_module::{FrameEdge, StopReason};
use symseal_unwind::{Cache, Frame, Options, unwind, unwind_with};

use crate::process::Process;
use crate::shadow::Shadow;
use crate::tracee::{Stop, Tracee};
use crate::{elf, registers_of};

pub(crate) const COMPILER: &str = "clang-19";
pub(crate) const SOURCE: &str = "asynchronous.c";

/// Compilations that keep frame pointers, without which there are no marks.
const VARIANTS: [&[&str]; 3] = [&["-O0"], &["-O1", "-fno-omit-frame-pointer"], &["-O2", "-fno-omit-frame-pointer"]];
/// The functions of the convention.
const ASYNCHRONOUS: [&str; 4] = ["finish", "descend", "descend_resume", "other_resume"];
/// What they call in every variant.
const WORK: &str = "work";

/// What was compared.
#[derive(Default)]
struct Seen {
    instructions: usize,
    parents: usize,
    /// How often how many parents there were.
    depths: std::collections::BTreeMap<usize, usize>,
}

fn run(program: &Path) -> Result<Seen, Error> {
    let bytes = std::fs::read(program)?;
    let file = object::File::parse(bytes.as_slice()).expect("an ELF file");
    let symbols: HashMap<&str, u64> =
        file.symbols().filter_map(|symbol| Some((symbol.name().ok()?, symbol.address()))).collect();
    let tracee = Tracee::start(program, "1")?;
    let bias = tracee.entry()?.wrapping_sub(file.entry());
    tracee.run_to(symbols["main"].wrapping_add(bias))?;
    let current = symbols["current"].wrapping_add(bias);
    let mut process = Process::of(&tracee);
    let mut raw = tracee.registers()?;
    let (mut shadow, mut cache, mut seen) = (Shadow::default(), Cache::new(), Seen::default());
    let mut frames = vec![Frame::EMPTY; 128];
    let options = Options { continuations: true, ..Options::default() };
    loop {
        let walk = unwind_with(&process.modules, &registers_of(&raw), &tracee, &mut cache, &mut frames, options);
        let found = &frames[..walk.frames];
        let functions: Vec<String> = found.iter().map(|frame| function_of(&process.name(frame))).collect();
        let is_asynchronous = |name: &String| ASYNCHRONOUS.contains(&name.as_str());
        let awaited = functions[..walk.physical()].iter().position(is_asynchronous);
        let waits = awaited.filter(|at| *at > 0 && functions[at - 1] == WORK);
        if let Some(waits) = waits {
            assert_eq!(walk.stop, StopReason::EndOfStack, "{functions:?}");
            let task = tracee.word(current);
            let mut expected: Vec<u64> = (1..=tracee.word(task)).map(|at| tracee.word(task + 8 * at)).collect();
            expected.reverse();
            let parents: Vec<u64> = found[walk.physical()..].iter().map(|frame| frame.pc.0).collect();
            assert_eq!(parents, expected, "{functions:?}");
            assert_eq!(
                walk.continuation.map(|it| it.awaited),
                (!expected.is_empty()).then_some(waits),
                "{functions:?}"
            );
            let logical = found.windows(2).skip(walk.physical() - 1);
            assert!(logical.clone().all(|pair| pair[1].edge(&pair[0]) == FrameEdge::AsyncParent && pair[1].exact));
            assert_eq!(logical.count(), expected.len());
            seen.instructions += 1;
            seen.parents += expected.len();
            *seen.depths.entry(expected.len()).or_default() += 1;
        }
        // Nobody who does not ask gets them, and the stack is the same.
        let mut alone = vec![Frame::EMPTY; 128];
        let plain = unwind(&process.modules, &registers_of(&raw), &tracee, &mut cache, &mut alone);
        assert_eq!((&alone[..plain.frames], plain.stop), (&found[..walk.physical()], walk.stop));
        let mut code = [0; 16];
        tracee.read(raw.rip, &mut code);
        match tracee.step(0)? {
            Stop::Exited(0) => return Ok(seen),
            Stop::Step => raw = process.executed(&tracee, &mut shadow, &code, &raw)?,
            stop => return Err(Error::other(format!("{stop:?}"))),
        }
    }
}

/// The function in what `Process::name` gives.
fn function_of(name: &str) -> String {
    let function = name.rsplit(' ').next().unwrap_or_default();
    function.split('+').next().unwrap_or_default().to_owned()
}

fn compile(options: &[&str], directory: &Path) -> Option<PathBuf> {
    let output = directory.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/single_step").join(SOURCE);
    match Command::new(COMPILER).args(options).arg("-o").args([&output, &source]).status() {
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

#[test]
fn t12_what_waits_for_an_asynchronous_function_of_swift_follows_the_stack() {
    let directory = tempfile::tempdir().expect("a directory");
    for options in VARIANTS {
        let Some(program) = compile(options, directory.path()) else { return };
        let seen = match run(&program) {
            Ok(seen) => seen,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return elf::skip("ptrace", &error.to_string());
            }
            Err(error) => panic!("{options:?}: {error}"),
        };
        println!(
            "{options:?}: {} instructions, {} parents, by depth {:?}",
            seen.instructions, seen.parents, seen.depths
        );
        // Down to the deepest task and back, and the task within it.
        assert!(
            seen.instructions > 5_000 && (0..=10).all(|depth| seen.depths.contains_key(&depth)),
            "{:?}",
            seen.depths
        );
    }
}
