//! The absolute oracle for other processors: programs made by cross compilers, one instruction at a time under qemu-user, with
//! a shadow stack kept from the calls and returns that they make. At every instruction all return addresses, all CFAs and all
//! frame pointers must come out of the unwinder.
//!
//! `SYMSEAL_CROSS_STEPS` gives the number of instructions per program; without it the program leaves out what only repeats.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../elf/mod.rs"]
mod elf;
mod gdb;
mod shadow;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use elf::Binary;
use gdb::{Emulated, Stop};
use object::{Object, ObjectSymbol};
use shadow::{Expected, Shadow};
use symseal_module::{Avma, Svma};
use symseal_unwind::{Arch, Cache, CodeBytes, Frame, Memory, Module, Modules, Registers, Table, unwind};

/// More instructions than a small program runs; a bound for one that went astray.
const STEPS: usize = 60_000;
/// Where no unwinder can know the stack from what the C library says of itself, and why.
const EXPLAINED: &[(Arch, &str, &str)] = &[
    (Arch::Aarch64, "__longjmp", "its own CFI gives the registers in the jump buffer for the caller's"),
    (Arch::Mips32, "__longjmp", "it has loaded the stack pointer of its target and not yet jumped"),
    (Arch::Mips32Little, "__longjmp", "it has loaded the stack pointer of its target and not yet jumped"),
    (Arch::Aarch64, "_start+0x3", "__wrap_main, which is called, lies in the CFI of _start, which has no caller"),
    (Arch::Aarch64, "_init", "no CFI: the frame pointer gives the callers and does not tell the CFA"),
    (
        Arch::Aarch64,
        "_fini",
        "no CFI: link register and frame pointer lead to different callers, and it is called through a pointer",
    ),
    (Arch::Aarch64, "call_weak_fn", "no CFI, and called by _init: the CFA of _init is not told"),
    (Arch::Arm, "__longjmp", "it has loaded the registers of its target and not yet jumped"),
    (Arch::Riscv64, "__longjmp", "it has loaded the registers of its target and not yet jumped"),
    (Arch::I686, "__longjmp", "its own CFI gives the registers in the jump buffer for the caller's"),
    (Arch::I686, "memcpy+0x", "its assembler code pushes eax, which its own CFI does not say"),
    (Arch::I686, "_start+0x2", "code that _start calls lies in the CFI of _start, which has no caller"),
    (Arch::I686, "__x86.get_pc_thunk.bp", "it gives its result in the frame pointer register"),
    (Arch::I686, "__x86.get_pc_thunk.di", "called by main while its CFA is in ecx, which calls need not keep"),
    (Arch::I686, "frame_dummy", "no CFI, and called through a pointer"),
    (Arch::I686, "__do_global_dtors_aux", "no CFI, and called through a pointer"),
];
/// `bx lr` of ARM, the whole of a function of the program.
const ARM_RETURN: u32 = 0xe12f_ff1e;
/// The first byte of `call` on IA-32.
const CALL: u32 = 0xe8;
/// How far above a stack pointer its stack may reach.
const STACK_SPAN: u64 = 1 << 20;
/// Memory is read in pieces of this size.
const PIECE: u64 = 512;

/// A platform, and how its programs come to be.
struct Platform {
    arch: Arch,
    compiler: &'static str,
    emulator: &'static str,
    emulator_options: &'static [&'static str],
    /// Kinds of program: a name, and the options to the compiler.
    programs: &'static [(&'static str, &'static [&'static str])],
    /// The number of the system call is in this register.
    syscall: usize,
    /// Of a thousand instructions, how many at least have all return addresses; what is explained must stay rare.
    least: usize,
}

const AARCH64: Platform = Platform {
    arch: Arch::Aarch64,
    compiler: "aarch64-linux-gnu-gcc",
    emulator: "qemu-aarch64",
    // With pointer authentication.
    emulator_options: &["-cpu", "max"],
    programs: &[
        ("-O0", &["-O0"]),
        ("-O2", &["-O2"]),
        ("-O2 signed", &["-O2", "-mbranch-protection=standard", "-march=armv8.3-a"]),
    ],
    syscall: 8,
    least: 998,
};

const MIPS_PROGRAMS: &[(&str, &[&str])] = &[
    ("-O0", &["-O0"]),
    ("-O2", &["-O2"]),
    // Call frame information of the program itself, beside .pdr of the C library.
    ("-O2 with CFI", &["-O2", "-fasynchronous-unwind-tables"]),
];

const MIPS: Platform = Platform {
    arch: Arch::Mips32,
    compiler: "mips-linux-gnu-gcc",
    emulator: "qemu-mips",
    emulator_options: &[],
    programs: MIPS_PROGRAMS,
    syscall: 2,
    least: 998,
};

const MIPSEL: Platform = Platform {
    arch: Arch::Mips32Little,
    compiler: "mipsel-linux-gnu-gcc",
    emulator: "qemu-mipsel",
    emulator_options: &[],
    programs: MIPS_PROGRAMS,
    syscall: 2,
    least: 998,
};

const I686: Platform = Platform {
    arch: Arch::I686,
    compiler: "i686-linux-gnu-gcc",
    emulator: "qemu-i386",
    emulator_options: &[],
    programs: &[("-O0", &["-O0"]), ("-O2", &["-O2"])],
    syscall: 0,
    least: 980,
};

const RISCV64: Platform = Platform {
    arch: Arch::Riscv64,
    compiler: "riscv64-linux-gnu-gcc",
    emulator: "qemu-riscv64",
    emulator_options: &[],
    programs: &[("-O0", &["-O0"]), ("-O2", &["-O2"])],
    syscall: 17,
    least: 998,
};

const ARM: Platform = Platform {
    arch: Arch::Arm,
    compiler: "arm-linux-gnueabihf-gcc",
    emulator: "qemu-arm",
    emulator_options: &[],
    programs: &[
        ("-O0 -mthumb", &["-O0", "-mthumb", "-funwind-tables"]),
        ("-O2 -mthumb", &["-O2", "-mthumb"]),
        ("-O2 -marm", &["-O2", "-marm", "-fasynchronous-unwind-tables"]),
    ],
    syscall: 7,
    least: 998,
};

/// What the run of one program gave.
#[derive(Default)]
struct Score {
    instructions: usize,
    return_addresses: usize,
    with_cfas: usize,
    with_fps: usize,
    deepest: usize,
    signals: usize,
    /// What differs, the name of the innermost function, and where the first difference is.
    wrong: BTreeMap<(&'static str, String, String), usize>,
    methods: BTreeMap<String, usize>,
    stops: BTreeMap<String, usize>,
    finished: bool,
}

/// The memory of the stopped program, from the stack pointers on, as a snapshot has it.
struct Stack<'e> {
    emulated: RefCell<&'e mut Emulated>,
    starts: Vec<u64>,
    pieces: RefCell<HashMap<u64, Vec<u8>>>,
}

impl Stack<'_> {
    fn byte(&self, address: u64) -> Option<u8> {
        let piece = address / PIECE * PIECE;
        let mut pieces = self.pieces.borrow_mut();
        let bytes = pieces.entry(piece).or_insert_with(|| {
            self.emulated.borrow_mut().read(piece, PIECE as usize).expect("an answer of the emulator")
        });
        bytes.get((address - piece) as usize).copied()
    }

    fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        for (at, byte) in (0..).zip(&mut bytes) {
            *byte = self.byte(address.checked_add(at)?)?;
        }
        Some(bytes)
    }

    fn is_captured(&self, address: u64) -> bool {
        self.starts.iter().any(|start| (*start..start + STACK_SPAN).contains(&address))
    }

    /// A word of the program, wherever it is.
    fn word(&self, arch: Arch, address: u64) -> u64 {
        match (arch.word_bytes(), arch.is_big_endian()) {
            (8, _) => self.bytes(address).map_or(0, u64::from_le_bytes),
            (_, true) => self.bytes(address).map_or(0, |bytes| u32::from_be_bytes(bytes).into()),
            (_, false) => self.bytes(address).map_or(0, |bytes| u32::from_le_bytes(bytes).into()),
        }
    }
}

impl Memory for Stack<'_> {
    fn read_u64(&self, address: Avma) -> Option<u64> {
        self.is_captured(address.0).then(|| self.bytes(address.0).map(u64::from_le_bytes)).flatten()
    }

    fn read_u32(&self, address: Avma) -> Option<u32> {
        self.is_captured(address.0).then(|| self.bytes(address.0).map(u32::from_le_bytes)).flatten()
    }
}

/// The registers of a packet: general ones by DWARF number, and the program counter.
fn general(arch: Arch, bytes: &[u8]) -> (Vec<u64>, u64) {
    let numbers: Vec<u64> = match arch {
        Arch::Aarch64 | Arch::Riscv64 => {
            bytes.as_chunks::<8>().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
        }
        _ => {
            let words = bytes.as_chunks::<4>().0.iter();
            if arch.is_big_endian() {
                words.map(|bytes| u32::from_be_bytes(*bytes).into()).collect()
            } else {
                words.map(|bytes| u32::from_le_bytes(*bytes).into()).collect()
            }
        }
    };
    // Behind the general registers, but where others that the packet has not lie between.
    let at = if arch == Arch::Riscv64 { arch.registers() } else { usize::from(arch.program_counter()) };
    let pc = numbers.get(at).copied().unwrap_or(0);
    (numbers, pc)
}

struct Run<'p> {
    platform: &'p Platform,
    emulated: Emulated,
    known: Known,
    /// Trampolines' pages by address, leaked.
    pages: Vec<(u64, &'static [u8])>,
}

/// The program's table, code and symbols. Leaked: they live as long as the test.
struct Known {
    table: Table<'static>,
    image_base: Svma,
    end: u64,
    code: (u64, &'static [u8]),
    symbols: BTreeMap<u64, String>,
}

impl Known {
    fn of(program: &Path) -> Self {
        let binary: &'static Binary = Box::leak(Box::new(Binary::read(program).expect("the program")));
        let parts = binary.parts();
        let start = parts.code.iter().map(|(start, _)| *start).min().expect("code");
        let mut code = Vec::new();
        for (address, bytes) in &parts.code {
            code.resize((address - start) as usize, 0);
            code.extend_from_slice(bytes);
        }
        let compiled = binary.compile();
        let table = Table::open(compiled.bytes.leak()).expect("our own table");
        table.verify().expect("our own table");
        let file = object::File::parse(binary.bytes.as_slice()).expect("an ELF file");
        let symbols = file
            .symbols()
            .filter(|symbol| symbol.kind() == object::SymbolKind::Text)
            .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned())));
        Self {
            image_base: parts.image_base,
            end: parts.text.iter().map(|text| text.end).max().expect("code"),
            code: (start, code.leak()),
            symbols: symbols.collect(),
            table,
        }
    }

    fn name(&self, address: u64) -> String {
        match self.symbols.range(..=address).next_back() {
            Some((start, name)) if address < self.end => format!("{name}+{:#x}", address - start),
            _ => format!("{address:#x}"),
        }
    }

    fn word(&self, arch: Arch, address: u64) -> Option<u32> {
        let offset = usize::try_from(address.checked_sub(self.code.0)?).ok()?;
        let word = self.code.1.get(offset..)?.first_chunk::<4>()?;
        Some(if arch.is_big_endian() { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) })
    }
}

impl Run<'_> {
    fn modules(&self) -> Modules<'static> {
        let program = Module {
            start: Avma(self.known.image_base.0),
            end: Avma(self.known.end),
            bias: 0,
            image_base: self.known.image_base,
            table: Some(self.known.table.clone()),
            code: Some(CodeBytes { start: Avma(self.known.code.0), bytes: self.known.code.1 }),
        };
        let pages = self.pages.iter().map(|(start, bytes)| Module {
            start: Avma(*start),
            end: Avma(start + bytes.len() as u64),
            bias: *start,
            image_base: Svma(0),
            table: None,
            code: Some(CodeBytes { start: Avma(*start), bytes }),
        });
        Modules::new(self.platform.arch, [program].into_iter().chain(pages).collect())
    }

    fn registers(&mut self) -> Result<(Registers, shadow::Registers), Error> {
        let arch = self.platform.arch;
        let (numbers, pc) = general(arch, &self.emulated.registers()?);
        let of = |register: u8| numbers.get(usize::from(register)).copied().unwrap_or(0);
        let (sp, fp) = (of(arch.stack_pointer()), of(arch.frame_pointer()));
        let link = if arch == Arch::I686 {
            let bytes = self.emulated.read(sp, 4)?;
            bytes.first_chunk::<4>().map_or(0, |word| u32::from_le_bytes(*word).into())
        } else {
            of(arch.return_address())
        };
        let syscall = numbers.get(self.platform.syscall).copied().unwrap_or(0);
        let in_use = arch.registers();
        let general = std::array::from_fn(|at| numbers.get(at).copied().filter(|_| at < in_use));
        // The status register comes last.
        let is_thumb = arch == Arch::Arm && numbers.last().is_some_and(|status| status >> 5 & 1 == 1);
        Ok((Registers { pc, sp, fp, general }, shadow::Registers { pc, sp, fp, link, syscall, is_thumb }))
    }

    /// Whether the instruction before the address on top of the stack is a call that leads to where the program is: a handler may begin
    /// with one, to learn its own address.
    fn was_called(&self, now: &shadow::Registers) -> bool {
        let call = self.known.word(self.platform.arch, now.link.wrapping_sub(5));
        let distance = self.known.word(self.platform.arch, now.link.wrapping_sub(4));
        let target = distance.map(|distance| now.link.wrapping_add(distance.into()) & 0xffff_ffff);
        call.is_some_and(|call| call & 0xff == CALL) && target == Some(now.pc)
    }

    /// The stack pointer at the first instruction of a handler with the word there, and the address of the context, by what must be in
    /// the context. The first instruction may have moved the stack pointer already.
    fn signal_frame(&mut self, now: &shadow::Registers, interrupted: &shadow::Registers) -> Option<((u64, u64), u64)> {
        let arch = self.platform.arch;
        let to_context: &[u64] = match arch {
            Arch::Aarch64 | Arch::Riscv64 => &[0x130],
            Arch::I686 => &[0xa4, 8],
            Arch::Arm => &[0x94, 0x14],
            _ => &[0xb0, 0x18],
        };
        let stack =
            Stack { emulated: RefCell::new(&mut self.emulated), starts: Vec::new(), pieces: RefCell::default() };
        let saved = |context: u64, register| stack.word(arch, context + arch.context_offset(register).expect("saved"));
        (0..0x1000).step_by(4).map(|more| now.sp + more).find_map(|frame| {
            let context = to_context.iter().map(|offset| frame + offset).find(|context| {
                saved(*context, arch.program_counter()) == interrupted.pc
                    && saved(*context, arch.stack_pointer()) == interrupted.sp
            })?;
            Some(((frame, stack.word(arch, frame)), context))
        })
    }

    fn run(&mut self, steps: usize) -> Result<Score, Error> {
        let arch = self.platform.arch;
        let mut modules = self.modules();
        let mut shadow = Shadow::new(arch);
        let mut cache = Cache::new();
        let mut score = Score::default();
        let mut expected = Vec::new();
        let mut frames = vec![Frame::EMPTY; 128];
        let (mut registers, mut now) = self.registers()?;
        while score.instructions < steps {
            let starts = std::iter::once(now.sp).chain(shadow.interrupted_stack_pointers()).collect();
            let stack = Stack { emulated: RefCell::new(&mut self.emulated), starts, pieces: RefCell::default() };
            shadow.expected(|address| stack.word(arch, address), &mut expected);
            let walk = unwind(&modules, &registers, &stack, &mut cache, &mut frames);
            let found = frames.get(..walk.frames).unwrap_or_default();
            let resumes = shadow
                .context()
                .and_then(|context| Some(stack.word(arch, context + arch.context_offset(arch.program_counter())?)));
            let word = self.known.word(arch, now.pc).unwrap_or_else(|| instruction(&stack, arch, now.pc));
            score.count(&expected, found, self.known.name(now.pc), || {
                let agreeing =
                    found.iter().skip(1).zip(&expected).take_while(|(frame, expected)| frame.pc.0 == expected.pc);
                let at = agreeing.count();
                let frame = found.get(at).copied().unwrap_or_default();
                let stop = if at + 1 >= found.len() { walk.stop.code() } else { "differs" };
                let rule =
                    modules.rule(&frame).map_or(String::from("no table"), |(rule, _)| rule.display(arch).to_string());
                let exact = if frame.exact { "at" } else { "returning to" };
                format!("{exact} {} ({rule}): {stop}", self.known.name(frame.pc.0))
            });
            if score.return_addresses == score.instructions {
                *score.stops.entry(walk.stop.to_string()).or_default() += 1;
            }

            let stop = match self.ends_of_exclusive(word, now.pc) {
                Some(ends) => self.emulated.run_to(&ends)?,
                None => self.emulated.step(None)?,
            };
            match stop {
                Stop::Exited(status) => {
                    assert_eq!(status, 0, "the program's status");
                    score.finished = true;
                    break;
                }
                Stop::Signal(number) => {
                    let (_, interrupted) = self.registers()?;
                    self.executed(&mut shadow, word, &now, &interrupted, resumes);
                    let stop = self.emulated.step(Some(number))?;
                    assert_eq!(stop, Stop::Step, "the handler of signal {number} was entered");
                    (registers, now) = self.registers()?;
                    let found = self.signal_frame(&now, &interrupted);
                    let (frame, context) = found.unwrap_or_else(|| {
                        panic!("the frame of signal {number}: {now:x?}, interrupted {interrupted:x?}")
                    });
                    score.signals += 1;
                    shadow.enter_handler(frame, context, &interrupted, &now);
                    if arch == Arch::I686 && self.was_called(&now) {
                        shadow.executed(CALL, &now, &now, None);
                    }
                    let page = shadow.top().unwrap_or(0) & !0xfff;
                    if page >= self.known.end && self.pages.iter().all(|(known, _)| *known != page) {
                        let bytes = self.emulated.read(page, 0x1000)?;
                        self.pages.push((page, bytes.leak()));
                        modules = self.modules();
                    }
                }
                Stop::Step => {
                    let before = now;
                    (registers, now) = self.registers()?;
                    self.executed(&mut shadow, word, &before, &now, resumes);
                }
            }
        }
        assert_eq!(shadow.desynchronised, shadow.jumps, "returns elsewhere than their calls");
        Ok(score)
    }
}

impl Run<'_> {
    fn executed(
        &self,
        shadow: &mut Shadow,
        word: u32,
        before: &shadow::Registers,
        after: &shadow::Registers,
        resumes: Option<u64>,
    ) {
        let arch = self.platform.arch;
        // The interrupted instruction itself has not run.
        let at_syscall = after.pc == before.pc;
        let next = shadow.executed(word, before, after, resumes).filter(|_| !at_syscall);
        if let Some(pc) = next
            && let Some(word) = self.known.word(arch, pc)
        {
            // What it returned to may have changed the instruction set again.
            let is_thumb = after.is_thumb && word != ARM_RETURN;
            shadow.executed(word, &shadow::Registers { pc, is_thumb, ..*after }, after, None);
        }
    }
}

impl Run<'_> {
    /// Where an exclusive load and the store that belongs to it are left, if there is such a load at `pc`. A stop between
    /// the two makes the store fail, forever. (Arm ARM, B2.9)
    fn ends_of_exclusive(&self, word: u32, pc: u64) -> Option<Vec<u64>> {
        const LONGEST: u64 = 16;
        if self.platform.arch != Arch::Aarch64 || word & 0x3fc0_0000 != 0x0840_0000 {
            return None;
        }
        let mut ends = Vec::new();
        for at in (pc..).step_by(4).take(LONGEST as usize) {
            let word = self.known.word(Arch::Aarch64, at)?;
            // b.cond, cbz and cbnz with their distance
            if word >> 24 == 0x54 || word & 0x7e00_0000 == 0x3400_0000 {
                let words = ((word << 8) as i32) >> 13;
                ends.push(at.wrapping_add_signed(i64::from(words) * 4));
            }
            if word & 0x3fc0_0000 == 0x0800_0000 {
                ends.push(at + 4);
                return Some(ends);
            }
        }
        None
    }
}

fn instruction(stack: &Stack<'_>, arch: Arch, pc: u64) -> u32 {
    let bytes = stack.bytes(pc).unwrap_or_default();
    if arch.is_big_endian() { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

impl Score {
    fn count(&mut self, expected: &[Expected], found: &[Frame], innermost: String, describe: impl FnOnce() -> String) {
        self.instructions += 1;
        self.deepest = self.deepest.max(expected.len());
        for frame in found {
            *self.methods.entry(frame.method.to_string()).or_default() += 1;
        }
        let callers = found.get(1..).unwrap_or_default();
        let pcs = callers.iter().map(|frame| (frame.pc.0, frame.exact));
        let same_pcs = pcs.eq(expected.iter().map(|expected| (expected.pc, expected.exact)));
        let cfas = found.iter().map(|frame| frame.cfa.0).take(expected.len());
        let same_cfas = same_pcs && cfas.eq(expected.iter().map(|expected| expected.cfa_below));
        let same_fps = same_pcs && callers.iter().map(|frame| frame.fp).eq(expected.iter().map(|expected| expected.fp));
        self.return_addresses += usize::from(same_pcs);
        self.with_cfas += usize::from(same_cfas);
        self.with_fps += usize::from(same_fps);
        let what = match (same_pcs, same_cfas, same_fps) {
            (true, true, true) => return,
            (false, ..) => "return address",
            (_, false, _) => "CFA",
            _ => "frame pointer",
        };
        *self.wrong.entry((what, innermost, describe())).or_default() += 1;
    }
}

fn compile(platform: &Platform, options: &[&str], is_small: bool, directory: &Path) -> Option<PathBuf> {
    let program = directory.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/single_step/program.c");
    let status = Command::new(platform.compiler)
        .args(is_small.then_some("-DSMALL"))
        .args(["-static", "-g0", "-w", "-o"])
        .arg(&program)
        .args(options)
        .arg(&source)
        .status()
        .ok()?;
    assert!(status.success(), "{} compiles {}", platform.compiler, source.display());
    Some(program)
}

fn check(platform: &Platform) {
    let asked = std::env::var("SYMSEAL_CROSS_STEPS").ok().and_then(|steps| steps.parse().ok());
    let (steps, certifies) = (asked.unwrap_or(STEPS), asked.is_some());
    let directory = tempfile::tempdir().expect("a directory");
    for (name, options) in platform.programs {
        let Some(program) = compile(platform, options, !certifies, directory.path()) else {
            return elf::skip(platform.compiler, "not found");
        };
        println!("{} {name}:", platform.arch);
        let began = Instant::now();
        let emulated = Emulated::start(platform.emulator, platform.emulator_options, &program, directory.path());
        let emulated = match emulated {
            Ok(emulated) => emulated,
            Err(error) => return elf::skip(platform.emulator, &error.to_string()),
        };
        let mut run = Run { platform, emulated, known: Known::of(&program), pages: Vec::new() };
        let score = run.run(steps).expect("the emulator answers");
        let share = |count: usize| 100.0 * count as f64 / score.instructions as f64;
        println!(
            "  {} instructions, {} signals, {} frames deep, {:.1} s: return addresses {:.3} %, with CFAs {:.3} %, with frame pointers {:.3} %{}",
            score.instructions,
            score.signals,
            score.deepest,
            began.elapsed().as_secs_f64(),
            share(score.return_addresses),
            share(score.with_cfas),
            share(score.with_fps),
            if score.finished { "; to the program's end" } else { "" },
        );
        println!("  frames by {:?}; ends {:?}", score.methods, score.stops);
        let mut unexplained = 0;
        let mut kinds: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for ((what, innermost, place), count) in &score.wrong {
            let is_of = |(arch, name, _): &&(Arch, &str, &str)| *arch == platform.arch && innermost.starts_with(name);
            match EXPLAINED.iter().find(is_of) {
                Some((_, name, why)) => *kinds.entry((name, why)).or_default() += count,
                None => {
                    unexplained += count;
                    println!("  {count:6} {what} in {innermost}: {place}");
                }
            }
        }
        for ((name, why), count) in kinds {
            println!("  {count:6} in {name}: {why}");
        }
        assert_eq!(unexplained, 0, "{} {name}: stacks that should have come out", platform.arch);
        assert_eq!(score.signals, 4, "signals");
        assert!(score.finished || certifies, "the program came to its end");
        assert!(score.return_addresses * 1000 >= score.instructions * platform.least, "what is explained stays rare");
    }
}

#[test]
fn every_instruction_of_aarch64_programs_gives_the_whole_stack() {
    check(&AARCH64);
}

#[test]
fn every_instruction_of_big_endian_mips_programs_gives_the_whole_stack() {
    check(&MIPS);
}

#[test]
fn every_instruction_of_little_endian_mips_programs_gives_the_whole_stack() {
    check(&MIPSEL);
}

#[test]
fn every_instruction_of_i686_programs_gives_the_whole_stack() {
    check(&I686);
}

#[test]
fn every_instruction_of_riscv64_programs_gives_the_whole_stack() {
    check(&RISCV64);
}

#[test]
fn every_instruction_of_arm_programs_gives_the_whole_stack() {
    check(&ARM);
}
