//! From the stack of a thread to the goroutine that it works for, in a real program of Go: out of C code, and out of a function that
//! the runtime runs on that stack, and at each instruction of a function that is away on it for a while. The truth is `runtime.Callers` of the program itself.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../elf/mod.rs"]
mod elf;
#[path = "../framehop_peer/mod.rs"]
mod framehop_peer;
#[path = "../single_step/process.rs"]
#[allow(dead_code, reason = "the parts that this test has no use for")]
mod process;
#[path = "../single_step/shadow.rs"]
#[allow(dead_code, reason = "the parts that this test has no use for")]
mod shadow;
#[path = "../single_step/tracee.rs"]
#[allow(dead_code, reason = "the parts that this test has no use for")]
mod tracee;

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use elf::Binary;
use object::{Object, ObjectSymbol};
use process::Process;
use symseal_module::{FrameEdge, StopReason, Svma, UnwindMethod};
use symseal_unwind::compile::go_runtime;
use symseal_unwind::{Cache, Frame, Registers, unwind};
use tracee::{Instant, Stop, Tracee};

/// Releases of Go with different runtimes: the first one with a register for the goroutine, some between, and the one that is installed.
const RELEASES: [&str; 4] = ["go1.17.13", "go1.19.13", "go1.21.13", "local"];

/// Makes the program with a release; `None` if it is not to be had.
fn program(directory: &Path, release: &str) -> Option<PathBuf> {
    let output = directory.join(release);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go_stacks/scene.go");
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(&output)
        .arg(source)
        .envs([("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", release), ("CGO_ENABLED", "1")])
        .current_dir(directory)
        .output();
    match built {
        Ok(built) if built.status.success() => Some(output),
        Ok(built) if release != "local" => {
            elf::skip("go releases (module proxy)", &String::from_utf8_lossy(&built.stderr));
            None
        }
        Ok(built) => panic!("{}", String::from_utf8_lossy(&built.stderr)),
        Err(error) => {
            elf::skip("go", &error.to_string());
            None
        }
    }
}

/// What a debugger reads of the program.
struct Scene {
    symbols: HashMap<String, u64>,
}

impl Scene {
    fn read(program: &Path, start: impl Fn(Svma) -> u64) -> Self {
        let binary = Binary::read(program).expect("the program");
        let file = object::File::parse(binary.bytes.as_slice()).expect("an ELF file");
        let base = start(binary.parts().image_base);
        let symbols = file.symbols().filter(|symbol| symbol.is_definition());
        let symbols = symbols
            .filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol.address().wrapping_add(base))))
            .collect();
        let parts = binary.parts();
        assert!(parts.go_runtime.is_some(), "a runtime of Go");
        // Without debug information nobody knows where the fields are.
        assert_eq!(go_runtime(&parts.input(), |_| &[][..]), None);
        Self { symbols }
    }

    fn at(&self, name: &str) -> u64 {
        *self.symbols.get(name).unwrap_or_else(|| panic!("{name}"))
    }

    /// The first function within another one: each version of Go numbers and names them as it likes.
    fn within(&self, name: &str) -> u64 {
        let start = format!("{name}.func");
        let inner = self.symbols.iter().filter(|(symbol, _)| symbol.starts_with(&start));
        *inner.min().unwrap_or_else(|| panic!("{start}")).1
    }
}

fn registers(now: &Instant) -> Registers {
    let numbers = [
        now.rax, now.rdx, now.rcx, now.rbx, now.rsi, now.rdi, now.rbp, now.rsp, now.r8, now.r9, now.r10, now.r11,
        now.r12, now.r13, now.r14, now.r15,
    ];
    let general = std::array::from_fn(|at| numbers.get(at).copied());
    Registers { pc: now.rip, sp: now.rsp, fp: now.rbp, general }
}

/// Walks the stack where the program stands. The frames must end with those of [`note`](scene.go)'s list, behind one change of stacks.
/// The last one before it must be of `from`, and each of `through` behind it.
fn check(tracee: &Tracee, scene: &Scene, inner: &[u64], from: &str, through: &[&str]) {
    let process = Process::of(tracee);
    let name = |frame: &Frame| process.name(frame);
    let registers = registers(&tracee.registers().expect("registers"));
    let modules = process.modules.clone();
    let count = tracee.word(scene.at("caller_count")) as u32 as u64;
    let callers: Vec<u64> = (0..count).map(|at| tracee.word(scene.at("callers") + 8 * at)).collect();
    assert!(callers.len() >= 4, "second, main, runtime.main, goexit: {callers:x?}");

    let mut frames = vec![Frame::EMPTY; 64];
    let alone = modules.clone().without_go_runtimes();
    let alone = unwind(&alone, &registers, &tracee, &mut Cache::new(), &mut frames);
    assert_ne!(alone.stop, StopReason::EndOfStack, "what the stack of the thread says by itself");
    let walk = unwind(&modules, &registers, &tracee, &mut Cache::new(), &mut frames);
    frames.truncate(walk.frames);
    let shown: Vec<String> =
        frames.iter().map(|frame| format!("{:#x} {} {}", frame.pc.0, frame.method, name(frame))).collect();
    let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0).collect();
    println!("{from}: {shown:#?}");
    assert_eq!(walk.stop, StopReason::EndOfStack, "{shown:#?}");
    assert!(pcs.ends_with(&callers), "{callers:x?}: {shown:#?}");
    assert!(pcs.get(1..).is_some_and(|pcs| pcs.starts_with(inner)), "{inner:x?}: {shown:#?}");
    let edges: Vec<FrameEdge> = frames.windows(2).map(|pair| pair[1].edge(&pair[0])).collect();
    assert_eq!(edges.iter().filter(|edge| **edge == FrameEdge::GoroutineSwitch).count(), 1, "{shown:#?}");
    let left = frames.iter().position(|frame| frame.method == UnwindMethod::GoroutineSwitch).expect("one");
    assert!(shown[left - 1].contains(from), "left by {from}: {shown:#?}");
    for name in through {
        assert!(shown[left..].iter().any(|frame| frame.contains(name)), "through {name}: {shown:#?}");
    }
}

/// Gives false where the machine forbids ptrace.
fn check_program(program: &Path) -> bool {
    let tracee = match Tracee::start(program, "") {
        Ok(tracee) => tracee,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            elf::skip("ptrace", &error.to_string());
            return false;
        }
        Err(error) => panic!("{error}"),
    };
    let entry = tracee.entry().expect("an entry");
    let file_entry = {
        let bytes = std::fs::read(program).expect("the program");
        object::File::parse(bytes.as_slice()).expect("an ELF file").entry()
    };
    let scene = Scene::read(program, |_| entry.wrapping_sub(file_entry));

    // To the breakpoint in C, and there again from Go that C called. Other signals are the runtime's own.
    for through in [&["main.third"][..], &["main.comeBack", "runtime.cgocallback", "main.third"]] {
        let mut signal = 0;
        while let Stop::Signal(number) = tracee.run(signal).expect("the program runs") {
            signal = number;
        }
        let c_callers: Vec<u64> = (0..2).map(|at| tracee.word(scene.at("c_callers") + 8 * at)).collect();
        check(&tracee, &scene, &c_callers, "runtime.asmcgocall", through);
    }

    // To what `runtime.Stack` has run on the stack of the thread.
    tracee.run_to(scene.within("runtime.Stack")).expect("the program runs on");
    check(&tracee, &scene, &[], "runtime.systemstack", &["main.third"]);
    check_clock(&tracee, &scene);
    true
}

/// Steps through `time.now`, which asks the vDSO for the time on the stack of the thread: at each instruction of both, the frames of the goroutine must follow.
fn check_clock(tracee: &Tracee, scene: &Scene) {
    let now = scene.symbols.get("time.now").copied().unwrap_or_else(|| scene.at("time.now.abi0"));
    tracee.run_to(now).expect("the program runs on");
    let process = Process::of(tracee);
    let entry = tracee.registers().expect("registers");
    let count = tracee.word(scene.at("caller_count")) as u32 as u64;
    let callers: Vec<u64> = (0..count).map(|at| tracee.word(scene.at("callers") + 8 * at)).collect();
    let (mut steps, mut of_vdso) = (0, 0);
    let mut frames = vec![Frame::EMPTY; 64];
    let mut cache = Cache::new();
    loop {
        let instant = tracee.registers().expect("registers");
        // Back behind the call.
        if instant.rsp == entry.rsp + 8 && instant.rip == tracee.word(entry.rsp) {
            break;
        }
        let walk = unwind(&process.modules, &registers(&instant), &tracee, &mut cache, &mut frames);
        let found = &frames[..walk.frames];
        let shown: Vec<String> =
            found.iter().map(|frame| format!("{:#x} {} {}", frame.pc.0, frame.method, process.name(frame))).collect();
        let pcs: Vec<u64> = found.iter().map(|frame| frame.pc.0).collect();
        assert_eq!(walk.stop, StopReason::EndOfStack, "step {steps}: {shown:#?}");
        assert!(pcs.ends_with(&callers), "step {steps}: {callers:x?}: {shown:#?}");
        assert!(pcs.contains(&tracee.word(entry.rsp)), "step {steps}: {shown:#?}");
        of_vdso += usize::from(shown[0].contains("vdso"));
        steps += 1;
        assert!(steps < 10_000, "{shown:#?}");
        // Signals, by which Go asks goroutines to stop, wait.
        tracee.step(0).expect("a step");
    }
    println!("the clock: {steps} instructions, {of_vdso} of them in the vDSO");
    assert!(steps > 40 && of_vdso > 10, "{steps} {of_vdso}");
}

#[test]
fn the_stack_of_a_thread_leads_to_the_main_function_of_a_go_program() {
    if !elf::has_c_compiler_of_go() {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    for release in RELEASES {
        println!("{release}:");
        if program(directory.path(), release).is_some_and(|program| !check_program(&program)) {
            return;
        }
    }
}
