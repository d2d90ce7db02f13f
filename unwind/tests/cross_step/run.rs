//! One program, an instruction at a time: at each the unwinder's walk beside what the shadow stack has.

use std::io::Error;
use std::sync::Arc;

use framehop::aarch64::UnwinderAarch64;
use symseal_module::{Avma, Svma};
use symseal_unwind::{Arch, Cache, CodeBytes, Frame, Memory, Module, Modules, Registers, Table, unwind};

use crate::effect::IA_32_CALL;
use crate::elf::Binary;
use crate::framehop_peer::{self, Framehop};
use crate::platform::Platform;
use crate::program::Program;
use crate::score::Score;
use crate::shadow::{self, Expected, Shadow, without_tag};
use crate::stack::Stack;
use crate::stopped::{Stop, Stopped};

/// `bx lr` of ARM, the whole of a function of the program.
const ARM_RETURN: u32 = 0xe12f_ff1e;
/// The bits that addresses have under qemu: what signs return addresses is above.
const ADDRESSES: u64 = (1 << 48) - 1;
/// More frames than the programs have.
const MOST_FRAMES: usize = 128;
/// More instructions than the vDSO has for a call. It reads the kernel's clock anew whenever that has moved on meanwhile, as it does some
/// hundred times a second: walks between its instructions take longer than that on a busy machine, and it would never come to an end.
const MOST_IN_VDSO: usize = 1_000;

pub(crate) struct Run<'p> {
    platform: &'p Platform,
    emulated: Box<dyn Stopped>,
    program: Program,
    vdso: Option<Module<'static>>,
    /// Trampolines' pages by address, leaked.
    pages: Vec<(u64, &'static [u8])>,
    modules: Modules<'static>,
    cache: Cache,
    shadow: Shadow,
    expected: Vec<Expected>,
    frames: Vec<Frame>,
    score: Score,
    /// Another unwinder, for the one of these processors that it knows.
    framehop: Option<Framehop<UnwinderAarch64<Arc<[u8]>>>>,
    /// Instructions of the vDSO since the program was elsewhere.
    in_vdso: usize,
}

impl<'p> Run<'p> {
    pub(crate) fn new(platform: &'p Platform, mut emulated: Box<dyn Stopped>, program: Program) -> Self {
        let vdso = emulated.vdso().map(|(start, bytes)| vdso(start, bytes));
        let framehop = (platform.toolchain.arch == Arch::Aarch64).then(|| program.in_framehop());
        Self {
            platform,
            emulated,
            modules: Modules::new(platform.toolchain.arch, vdso.iter().cloned().chain([program.module()]).collect()),
            program,
            vdso,
            pages: Vec::new(),
            cache: Cache::new(),
            shadow: Shadow::new(platform.toolchain.arch),
            expected: Vec::new(),
            frames: vec![Frame::EMPTY; MOST_FRAMES],
            score: Score::default(),
            framehop,
            in_vdso: 0,
        }
    }

    /// Runs the program to its end, or for so many instructions.
    pub(crate) fn run(mut self, steps: usize) -> Result<Score, Error> {
        let (mut registers, mut now) = self.registers()?;
        while self.score.instructions < steps && self.in_vdso < steps {
            self.in_vdso = if self.is_in_vdso(now.pc) { self.in_vdso + 1 } else { 0 };
            let (word, resumes) = match self.word_in_vdso(now.pc) {
                Some(word) if self.in_vdso > MOST_IN_VDSO => (word, None),
                _ => self.compare(&registers, &now),
            };
            let stop = match self.program.ends_of_exclusive(now.pc) {
                Some(ends) => self.emulated.run_to(&ends)?,
                None => self.emulated.step(None)?,
            };
            let before = now;
            match stop {
                Stop::Exited(status) => {
                    assert_eq!(status, 0, "the program's status");
                    self.score.finished = true;
                    break;
                }
                Stop::Signal(number) => {
                    let (_, interrupted) = self.registers()?;
                    self.executed(word, &before, &interrupted, resumes);
                    let stop = self.emulated.step(Some(number))?;
                    assert_eq!(stop, Stop::Step, "the handler of signal {number} was entered");
                    (registers, now) = self.registers()?;
                    self.enter_handler(number, &interrupted, &now)?;
                }
                Stop::Step => {
                    (registers, now) = self.registers()?;
                    self.executed(word, &before, &now, resumes);
                }
            }
        }
        assert_eq!(self.shadow.desynchronised, self.shadow.jumps, "returns elsewhere than their calls");
        Ok(self.score)
    }

    /// Walks the stack where the program stands and counts what came out. Gives the instruction that is next, and where the innermost
    /// signal interrupted the program.
    fn compare(&mut self, registers: &Registers, now: &shadow::Registers) -> (u32, Option<u64>) {
        let arch = self.platform.toolchain.arch;
        let starts = std::iter::once(now.sp).chain(self.shadow.interrupted_stack_pointers()).collect();
        let stack = Stack::new(&mut *self.emulated, starts);
        self.shadow.expected(|address| stack.word(arch, address), &mut self.expected);
        let walk = unwind(&self.modules, registers, &stack, &mut self.cache, &mut self.frames);
        let found = self.frames.get(..walk.frames).unwrap_or_default();
        let context = self.shadow.context();
        let resumes =
            context.and_then(|context| Some(stack.word(arch, context + arch.context_offset(arch.program_counter())?)));
        let word = self.program.word(now.pc).unwrap_or_else(|| stack.instruction(arch, now.pc));
        if let Some(framehop) = &mut self.framehop {
            let general = |number: usize| registers.general.get(number).copied().flatten().unwrap_or(0);
            let known_to_it = framehop_peer::aarch64(ADDRESSES, general);
            let read = |address| stack.read_u64(Avma(address));
            let by_framehop = framehop.callers(now.pc, known_to_it, read, MOST_FRAMES);
            let is_right = self.expected.iter().map(|expected| expected.pc).eq(by_framehop);
            *self.score.by_framehop.get_or_insert(0) += usize::from(is_right);
        }
        self.score.in_vdso += usize::from(self.is_in_vdso(now.pc));
        self.score.before_frames += usize::from(self.program.sets_up_gp(now.pc));
        let (program, modules, expected) = (&self.program, &self.modules, &self.expected);
        let innermost = self.name_in_vdso(now.pc).unwrap_or_else(|| program.name(now.pc));
        let is_whole = self.score.count(expected, found, (innermost, walk.stop), || {
            let agreeing = found.iter().skip(1).zip(expected).take_while(|(frame, expected)| frame.pc.0 == expected.pc);
            let at = agreeing.count();
            let frame = found.get(at).copied().unwrap_or_default();
            let stop = if at + 1 >= found.len() { walk.stop.code() } else { "differs" };
            let rule =
                modules.rule(&frame).map_or(String::from("no table"), |(rule, _)| rule.display(arch).to_string());
            let exact = if frame.exact { "at" } else { "returning to" };
            format!("{exact} {} ({rule}): {stop}", program.name(frame.pc.0))
        });
        if is_whole {
            self.score.stopped(walk.stop);
        }
        (word, resumes)
    }

    fn is_in_vdso(&self, address: u64) -> bool {
        self.vdso.as_ref().is_some_and(|vdso| (vdso.start.0..vdso.end.0).contains(&address))
    }

    fn word_in_vdso(&self, address: u64) -> Option<u32> {
        let vdso = self.vdso.as_ref()?;
        let offset = usize::try_from(address.checked_sub(vdso.start.0)?).ok()?;
        vdso.code.as_ref()?.bytes.get(offset..)?.first_chunk::<4>().map(|word| u32::from_le_bytes(*word))
    }

    /// Symbols it has of what processes call alone.
    fn name_in_vdso(&self, address: u64) -> Option<String> {
        /// `ret`, which follows `mov (%esp), %REG` in a function that gives its caller's address.
        const RETURN: u8 = 0xc3;
        let vdso = self.vdso.as_ref().filter(|_| self.is_in_vdso(address))?;
        let offset = address - vdso.start.0;
        let is_thunk = |at: u64| matches!(self.word_in_vdso(at).map(u32::to_le_bytes), Some([0x8b, _, 0x24, RETURN]));
        Some(if is_thunk(address) || is_thunk(address - 3) {
            "[vdso] thunk".to_owned()
        } else {
            format!("[vdso]+{offset:#x}")
        })
    }

    fn registers(&mut self) -> Result<(Registers, shadow::Registers), Error> {
        let arch = self.platform.toolchain.arch;
        let bytes = self.emulated.registers()?;
        let (numbers, pc) = general(arch, &bytes);
        let of = |register: u8| numbers.get(usize::from(register)).copied().unwrap_or(0);
        let (sp, fp) = (of(arch.stack_pointer()), of(arch.frame_pointer()));
        let link = if arch == Arch::I686 {
            let bytes = self.emulated.read(sp, 4)?;
            bytes.first_chunk::<4>().map_or(0, |word| u32::from_le_bytes(*word).into())
        } else {
            of(arch.return_address())
        };
        let syscall = numbers.get(self.platform.syscall).copied().unwrap_or(0);
        // The status register comes last.
        let is_thumb = arch == Arch::Arm && numbers.last().is_some_and(|status| status >> 5 & 1 == 1);
        let known = shadow::Registers { pc, sp: without_tag(arch, sp), fp, link, syscall, is_thumb };
        Ok((registers_of(arch, &bytes), known))
    }

    fn executed(&mut self, word: u32, before: &shadow::Registers, after: &shadow::Registers, resumes: Option<u64>) {
        // The interrupted instruction itself has not run.
        let at_syscall = after.pc == before.pc;
        let next = self.shadow.executed(word, before, after, resumes).filter(|_| !at_syscall);
        if let Some(pc) = next
            && let Some(word) = self.program.word(pc)
        {
            // What it returned to may have changed the instruction set again.
            let is_thumb = after.is_thumb && word != ARM_RETURN;
            self.shadow.executed(word, &shadow::Registers { pc, is_thumb, ..*after }, after, None);
        }
    }

    fn enter_handler(
        &mut self,
        number: u8,
        interrupted: &shadow::Registers,
        now: &shadow::Registers,
    ) -> Result<(), Error> {
        let (frame, context) = self
            .signal_frame(now, interrupted)
            .unwrap_or_else(|| panic!("the frame of signal {number}: {now:x?}, interrupted {interrupted:x?}"));
        self.score.signals += 1;
        self.shadow.enter_handler(frame, context, interrupted, now);
        // A handler may begin with a call, to learn its own address.
        if self.platform.toolchain.arch == Arch::I686 && self.program.calls(now.link, now.pc) {
            self.shadow.executed(IA_32_CALL, now, now, None);
        }
        let page = self.shadow.top().unwrap_or(0) & !0xfff;
        if page >= self.program.end && !self.is_in_vdso(page) && self.pages.iter().all(|(known, _)| *known != page) {
            let bytes = self.emulated.read(page, 0x1000)?;
            self.pages.push((page, bytes.leak()));
            let pages = self.pages.iter().map(|(start, bytes)| trampolines(*start, bytes));
            let modules = pages.chain(self.vdso.clone()).chain([self.program.module()]);
            self.modules = Modules::new(self.platform.toolchain.arch, modules.collect());
        }
        Ok(())
    }

    /// The stack pointer at the first instruction of a handler with the word there, and the address of the context, by what must be in
    /// the context. The first instruction may have moved the stack pointer already.
    fn signal_frame(&mut self, now: &shadow::Registers, interrupted: &shadow::Registers) -> Option<((u64, u64), u64)> {
        let arch = self.platform.toolchain.arch;
        let stack = Stack::new(&mut *self.emulated, Vec::new());
        let saved = |context: u64, register| stack.word(arch, context + arch.context_offset(register).expect("saved"));
        (0..0x1000).step_by(4).map(|more| now.sp + more).find_map(|frame| {
            let context = self.platform.contexts.iter().map(|offset| frame + offset).find(|context| {
                saved(*context, arch.program_counter()) == interrupted.pc
                    && without_tag(arch, saved(*context, arch.stack_pointer())) == interrupted.sp
            })?;
            Some(((frame, stack.word(arch, frame)), context))
        })
    }
}

/// The kernel's own code for processes, an ELF file in memory. Leaked, as the program is.
fn vdso(start: u64, bytes: Vec<u8>) -> Module<'static> {
    let binary: &'static Binary = Box::leak(Box::new(Binary { path: "[vdso]".into(), bytes }));
    let table = Table::open(binary.compile().bytes.leak()).expect("our own table");
    let image_base = binary.parts().image_base;
    Module {
        start: Avma(start),
        end: Avma(start + binary.bytes.len() as u64),
        bias: start - image_base.0,
        image_base,
        table: Some(table),
        code: Some(CodeBytes { start: Avma(start), bytes: &binary.bytes }),
    }
}

/// A page of code that the kernel or its emulator made.
fn trampolines(start: u64, bytes: &'static [u8]) -> Module<'static> {
    Module {
        start: Avma(start),
        end: Avma(start + bytes.len() as u64),
        bias: start,
        image_base: Svma(0),
        table: None,
        code: Some(CodeBytes { start: Avma(start), bytes }),
    }
}

/// The registers of a packet, as the unwinder takes them.
pub(crate) fn registers_of(arch: Arch, bytes: &[u8]) -> Registers {
    let (numbers, pc) = general(arch, bytes);
    let of = |register: u8| numbers.get(usize::from(register)).copied().unwrap_or(0);
    let in_use = arch.registers();
    let general = std::array::from_fn(|at| numbers.get(at).copied().filter(|_| at < in_use));
    Registers { pc, sp: of(arch.stack_pointer()), fp: of(arch.frame_pointer()), general }
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
