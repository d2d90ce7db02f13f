//! What waits for a coroutine of C++ that the stack runs, in a real program (`coroutines.cpp`): at every instruction of what its coroutines call, the frames behind the
//! stack are those that the program itself noted, and at no other instruction is a frame claimed that does not wait.

use std::collections::{BTreeMap, HashMap};
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

const SOURCE: &str = "coroutines.cpp";
/// What the coroutines call.
const WORK: &str = "work";

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

/// What was compared.
#[derive(Default)]
struct Seen {
    /// Instructions of what coroutines call.
    instructions: usize,
    /// Of these, with other frames than those that wait, and with none although some wait.
    wrong: usize,
    missing: usize,
    parents: usize,
    depths: BTreeMap<usize, usize>,
    /// Instructions below a coroutine that was inlined.
    inlined: usize,
    /// Instructions elsewhere with frames that wait, and of these with one that does not.
    elsewhere: usize,
    wrong_elsewhere: usize,
}

/// Who waits for whom, as the program has it.
struct Noted {
    waits: HashMap<u64, u64>,
    running: u64,
    is_busy: bool,
}

impl Noted {
    fn of(tracee: &Tracee, symbol: impl Fn(&str) -> u64) -> Self {
        let mut bytes = vec![0; 16 * tracee.word(symbol("wait_count")) as usize];
        tracee.read(symbol("waits"), &mut bytes);
        let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>();
        let waits = words.as_chunks::<2>().0.iter().map(|[awaited, awaiting]| (*awaited, *awaiting)).collect();
        let (running, busy) = (tracee.word(symbol("running")), tracee.word(symbol("busy")));
        Self { waits, running, is_busy: busy == 1 }
    }

    /// A coroutine and those that wait for it, the innermost first.
    fn chain_of(&self, frame: u64) -> Vec<u64> {
        let chain = std::iter::successors(Some(frame), |frame| self.waits.get(frame).copied());
        // While it is being written it may lead anywhere.
        chain.take(self.waits.len() + 1).collect()
    }
}

fn run(program: &Path) -> Result<Seen, Error> {
    let bytes = std::fs::read(program)?;
    let file = object::File::parse(bytes.as_slice()).expect("an ELF file");
    let symbols: HashMap<&str, u64> =
        file.symbols().filter_map(|symbol| Some((symbol.name().ok()?, symbol.address()))).collect();
    let tracee = Tracee::start(program, "1")?;
    let bias = tracee.entry()?.wrapping_sub(file.entry());
    tracee.run_to(symbols["main"].wrapping_add(bias))?;
    let symbol = |name: &str| symbols[name].wrapping_add(bias);
    let mut process = Process::of(&tracee);
    let mut raw = tracee.registers()?;
    let (mut shadow, mut cache, mut seen) = (Shadow::default(), Cache::new(), Seen::default());
    let mut frames = vec![Frame::EMPTY; 256];
    let options = Options { continuations: true, ..Options::default() };
    loop {
        let walk = unwind_with(&process.modules, &registers_of(&raw), &tracee, &mut cache, &mut frames, options);
        let (stack, parents) = frames[..walk.frames].split_at(walk.physical());
        let noted = Noted::of(&tracee, symbol);
        let innermost = process.name(&stack[0]);
        let found: Vec<u64> = parents.iter().map(|frame| frame.cfa.0).collect();
        if innermost.contains(&format!(" {WORK}+")) && noted.is_busy {
            assert_eq!(walk.stop, StopReason::EndOfStack, "{innermost}");
            // A coroutine that was inlined into the one that awaits it is a part of that one's function.
            let caller = process.name(&stack[1]);
            let (name, offset) = name_of(&caller);
            let function = stack[1].lookup_pc().0 - offset;
            let chain = noted.chain_of(noted.running);
            let own = chain.iter().position(|frame| tracee.word(*frame) == function);
            let own = own.unwrap_or_else(|| panic!("the frame of {name}"));
            seen.inlined += usize::from(own > 0);
            let expected = &chain[own + 1..];
            seen.instructions += 1;
            seen.parents += expected.len();
            *seen.depths.entry(expected.len()).or_default() += 1;
            if found.is_empty() && !expected.is_empty() {
                if seen.missing == 0 {
                    println!("missing: {:#?}", stack.iter().map(|frame| process.name(frame)).collect::<Vec<_>>());
                }
                seen.missing += 1;
            } else if found != expected {
                if seen.wrong == 0 {
                    println!("wrong: {found:x?}, not {expected:x?}");
                    println!("{:#?}", stack.iter().map(|frame| process.name(frame)).collect::<Vec<_>>());
                }
                seen.wrong += 1;
            }
            // Where each goes on is what its own frame begins with.
            for frame in parents {
                assert_eq!(frame.pc.0, tracee.word(frame.cfa.0), "{innermost}");
                assert!(frame.exact && frame.edge(&stack[0]) == FrameEdge::AsyncParent, "{innermost}");
            }
            assert!(walk.continuation.is_none_or(|it| it.awaited == 1) || found != expected, "{innermost}");
        } else if !found.is_empty() {
            seen.elsewhere += 1;
            let awaited = walk.continuation.map_or(0, |it| it.awaited);
            let caller = process.name(&stack[awaited]);
            let function = stack[awaited].lookup_pc().0 - name_of(&caller).1;
            // One of that function, or at its end, for which these wait, and nobody else.
            let is_noted = noted.waits.iter().any(|(awaited, _)| {
                [function, 0].contains(&tracee.word(*awaited)) && noted.chain_of(*awaited)[1..] == found
            });
            if !is_noted && seen.wrong_elsewhere == 0 {
                println!("wrong elsewhere: {found:x?}, {:x?}", noted.waits);
                println!("{:#?}", stack.iter().map(|frame| process.name(frame)).collect::<Vec<_>>());
            }
            seen.wrong_elsewhere += usize::from(!is_noted);
        }
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

/// The function in what `Process::name` gives, and how far from its beginning.
fn name_of(name: &str) -> (&str, u64) {
    let (function, offset) = name.rsplit(' ').next().and_then(|last| last.rsplit_once("+0x")).expect("a function");
    (function, u64::from_str_radix(offset, 16).expect("an offset"))
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
        let Seen { instructions, wrong, missing, parents, depths, inlined, elsewhere, wrong_elsewhere } = seen;
        println!(
            "{compiler} {options:?}: {instructions} instructions, {parents} frames wait, {missing} walks without, {wrong} wrong; \
             {inlined} inlined; {elsewhere} elsewhere, {wrong_elsewhere} wrong; by depth {depths:?}"
        );
        assert_eq!((wrong, wrong_elsewhere), (0, 0), "{compiler} {options:?}");
        assert!(instructions > 300 && (0..=4).all(|depth| depths.contains_key(&depth)), "{compiler}: {depths:?}");
        // Clang says of few places where a function has its frame, and then there may be two that it might be.
        let may_miss = if compiler == "g++" { 0 } else { instructions / 50 };
        assert!(missing <= may_miss, "{compiler} {options:?}: {missing} of {instructions}");
    }
}
