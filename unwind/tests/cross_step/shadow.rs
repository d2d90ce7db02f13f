//! The stack as calls, returns and signals made it, kept apart from any unwind information.

use symseal_unwind::Arch;

/// What the unwinder must find for one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) pc: u64,
    pub(crate) exact: bool,
    /// The frame pointer register in this frame.
    pub(crate) fp: u64,
    /// The CFA of the frame below: the stack pointer in this one.
    pub(crate) cfa_below: u64,
}

/// The registers that matter here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) pc: u64,
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// The link register, or where calls push the return address, the word on top of the stack.
    pub(crate) link: u64,
    /// The number of a system call.
    pub(crate) syscall: u64,
    /// The code is Thumb.
    pub(crate) is_thumb: bool,
}

#[derive(Debug)]
enum Entry {
    /// A call that returns to `address`, with the caller's stack pointer and the frame pointer at the first instruction of the function.
    Call { address: u64, sp: u64, fp: u64 },
    /// The kernel saved the interrupted registers in the context at `context`; handlers may change them there.
    Interrupted { context: u64, sp: u64 },
}

/// What a branch does once its delay slot was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    Call {
        returns_to: u64,
    },
    Return,
    /// To where a register points.
    Jump,
    SignalReturn,
    Syscall,
    Other,
}

/// The bits of an address in a program under qemu-aarch64.
const ADDRESS_BITS: u64 = (1 << 48) - 1;

impl Entry {
    fn is_below(&self, stack_pointer: u64) -> bool {
        matches!(self, Self::Call { sp, .. } if *sp < stack_pointer)
    }
}

pub(crate) struct Shadow {
    arch: Arch,
    entries: Vec<Entry>,
    /// The branch whose delay slot is next.
    pending: Option<Effect>,
    /// Returns that went elsewhere than their calls.
    pub(crate) desynchronised: usize,
    /// Of these, the ones that left several functions at once, as longjmp does.
    pub(crate) jumps: usize,
}

impl Shadow {
    pub(crate) fn new(arch: Arch) -> Self {
        Self { arch, entries: Vec::new(), pending: None, desynchronised: 0, jumps: 0 }
    }

    /// Bytes that a call pushes.
    fn pushed(&self) -> u64 {
        if self.arch == Arch::I686 { 4 } else { 0 }
    }

    fn has_delay_slots(&self) -> bool {
        matches!(self.arch, Arch::Mips32 | Arch::Mips32Little)
    }

    /// The frames above the running function, innermost first. `word` reads from the context of a signal.
    pub(crate) fn expected(&self, mut word: impl FnMut(u64) -> u64, out: &mut Vec<Expected>) {
        out.clear();
        let arch = self.arch;
        for entry in self.entries.iter().rev() {
            let frame = match entry {
                Entry::Call { address, sp, fp } => Expected { pc: *address, exact: false, fp: *fp, cfa_below: *sp },
                Entry::Interrupted { context, .. } => {
                    let mut saved = |register| word(context + arch.context_offset(register).unwrap_or(0));
                    Expected {
                        pc: saved(arch.program_counter()),
                        exact: true,
                        fp: saved(arch.frame_pointer()),
                        cfa_below: saved(arch.stack_pointer()),
                    }
                }
            };
            out.push(frame);
        }
    }

    pub(crate) fn interrupted_stack_pointers(&self) -> impl Iterator<Item = u64> + '_ {
        self.entries.iter().rev().filter_map(|entry| match entry {
            Entry::Interrupted { sp, .. } => Some(*sp),
            Entry::Call { .. } => None,
        })
    }

    /// A handler runs. `frame` is the stack pointer at its first instruction, where `on_top` lies, and `context` the address of the context.
    pub(crate) fn enter_handler(
        &mut self,
        (frame, on_top): (u64, u64),
        context: u64,
        interrupted: &Registers,
        now: &Registers,
    ) {
        self.pending = None;
        self.entries.push(Entry::Interrupted { context, sp: interrupted.sp });
        let address = match self.arch {
            // The handler's first instruction may have signed it.
            Arch::Aarch64 => now.link & ADDRESS_BITS,
            Arch::I686 => on_top,
            // Bit 0 tells the instruction set.
            Arch::Arm => now.link & !1,
            _ => now.link,
        };
        self.entries.push(Entry::Call { address, sp: frame + self.pushed(), fp: now.fp });
    }

    /// Where the running function returns to.
    pub(crate) fn top(&self) -> Option<u64> {
        match self.entries.last()? {
            Entry::Call { address, .. } => Some(*address),
            Entry::Interrupted { .. } => None,
        }
    }

    /// The context of the innermost signal.
    pub(crate) fn context(&self) -> Option<u64> {
        self.entries.iter().rev().find_map(|entry| match entry {
            Entry::Interrupted { context, .. } => Some(*context),
            Entry::Call { .. } => None,
        })
    }

    /// The instruction `word` at `before.pc` was run. `resumes` is where the innermost signal interrupted the program. Gives the
    /// address of another instruction that was run too: the emulator does not stop right behind a system call.
    pub(crate) fn executed(
        &mut self,
        word: u32,
        before: &Registers,
        after: &Registers,
        resumes: Option<u64>,
    ) -> Option<u64> {
        let effect = match self.pending.take() {
            Some(effect) => effect,
            None => {
                let effect = match self.arch {
                    Arch::Aarch64 => effect_aarch64(word, before),
                    Arch::I686 => effect_i686(word, before, after),
                    Arch::Riscv64 => effect_riscv64(word, before),
                    Arch::Arm if before.is_thumb => effect_thumb(word, before, after),
                    Arch::Arm => effect_arm(word, before, after),
                    _ => effect_mips(word, before),
                };
                // Some emulators run branch and delay slot in one step.
                if self.has_delay_slots()
                    && matches!(effect, Effect::Call { .. } | Effect::Return | Effect::Jump)
                    && after.pc == before.pc + 4
                {
                    self.pending = Some(effect);
                    return None;
                }
                effect
            }
        };
        match effect {
            Effect::Other => {}
            Effect::Syscall => {
                let bytes = if self.arch == Arch::I686 || before.is_thumb { 2 } else { 4 };
                return Some(before.pc + bytes).filter(|next| *next != after.pc);
            }
            // `bal` to the next instruction is no call.
            Effect::Call { returns_to } if returns_to == after.pc => {}
            Effect::Call { returns_to } => {
                let sp = after.sp + self.pushed();
                self.entries.push(Entry::Call { address: returns_to, sp, fp: after.fp });
            }
            Effect::SignalReturn => {
                while matches!(self.entries.pop(), Some(Entry::Call { .. })) {}
                return resumes.filter(|next| *next != after.pc);
            }
            // Only longjmp leaves with a stack pointer above that of the function's entry.
            Effect::Jump if self.entries.last().is_some_and(|entry| entry.is_below(after.sp)) => self.returned(after),
            Effect::Jump => {}
            Effect::Return => self.returned(after),
        }
        None
    }

    fn returned(&mut self, after: &Registers) {
        // Functions of IA-32 may give back words that their caller pushed, and longjmp leads to below those that setjmp was given.
        let most = if self.arch == Arch::I686 { 16 } else { 0 };
        match self.entries.last() {
            Some(Entry::Call { address, sp, .. }) if *address == after.pc && (*sp..=*sp + most).contains(&after.sp) => {
                self.entries.pop();
            }
            _ => {
                self.desynchronised += 1;
                let known = self.entries.len();
                while let Some(Entry::Call { sp, .. }) = self.entries.last()
                    && *sp <= after.sp + most
                {
                    self.entries.pop();
                }
                self.jumps += usize::from(known - self.entries.len() > 1);
            }
        }
    }
}

fn effect_aarch64(word: u32, before: &Registers) -> Effect {
    let is_bl = word >> 26 == 0b10_0101;
    let is_blr = word & 0xffff_fc1f == 0xd63f_0000 || word & 0xfeff_f800 == 0xd63f_0800;
    // ret and its authenticating forms; br x30, as in longjmp.
    let is_return = word & 0xffff_fc1f == 0xd65f_0000 || word & 0xffff_fbff == 0xd65f_0bff || word == 0xd61f_03c0;
    match word {
        _ if is_bl || is_blr => Effect::Call { returns_to: before.pc + 4 },
        _ if is_return => Effect::Return,
        0xd400_0001 if before.syscall == 139 => Effect::SignalReturn,
        0xd400_0001 => Effect::Syscall,
        _ => Effect::Other,
    }
}

fn effect_mips(word: u32, before: &Registers) -> Effect {
    let is_jal = word >> 26 == 3;
    let is_jalr = word & 0xfc1f_f83f == 0x0000_f809;
    let is_bal = word & 0xffff_0000 == 0x0411_0000;
    match word {
        _ if is_jal || is_jalr || is_bal => Effect::Call { returns_to: before.pc + 8 },
        _ if word & 0xffff_f83f == 0x03e0_0008 => Effect::Return,
        _ if word & 0xfc1f_f83f == 0x0000_0008 => Effect::Jump,
        0x0000_000c if matches!(before.syscall, 4193 | 4119) => Effect::SignalReturn,
        0x0000_000c => Effect::Syscall,
        _ => Effect::Other,
    }
}

fn effect_i686(word: u32, before: &Registers, after: &Registers) -> Effect {
    let bytes = word.to_le_bytes();
    // Segments, notrack, operand sizes, bnd and rep.
    let prefixes =
        bytes.iter().take_while(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x66 | 0xf2 | 0xf3));
    let (opcode, modrm) = match bytes.get(prefixes.count()..) {
        Some([opcode, modrm, ..]) => (*opcode, Some(*modrm)),
        Some([opcode]) => (*opcode, None),
        _ => return Effect::Other,
    };
    match (opcode, modrm.map(|modrm| modrm >> 3 & 7)) {
        // Calls pushed what is on top of the stack now.
        (0xe8, _) | (0xff, Some(2)) => Effect::Call { returns_to: after.link },
        (0xff, Some(4)) => Effect::Jump,
        (0xc3 | 0xc2, _) => Effect::Return,
        (0xcd, _) if modrm == Some(0x80) && matches!(before.syscall, 173 | 119) => Effect::SignalReturn,
        (0xcd, _) if modrm == Some(0x80) => Effect::Syscall,
        _ => Effect::Other,
    }
}

fn effect_riscv64(word: u32, before: &Registers) -> Effect {
    let is_short = word & 3 != 3;
    let returns_to = before.pc + if is_short { 2 } else { 4 };
    let half = word & 0xffff;
    // c.jr and c.jalr; jalr, by the register that they lead to.
    let to = if is_short { half >> 7 & 31 } else { word >> 15 & 31 };
    let rd = word >> 7 & 31;
    match word {
        _ if is_short && half & 0xf07f == 0x9002 && to != 0 => Effect::Call { returns_to },
        _ if is_short && half & 0xf07f == 0x8002 && to != 0 => {
            if to == 1 {
                Effect::Return
            } else {
                Effect::Jump
            }
        }
        _ if is_short => Effect::Other,
        _ if matches!(word & 0x7f, 0x6f | 0x67) && rd == 1 => Effect::Call { returns_to },
        _ if word & 0x7f == 0x67 && rd == 0 && to == 1 => Effect::Return,
        _ if word & 0x7f == 0x67 => Effect::Jump,
        0x73 if before.syscall == 139 => Effect::SignalReturn,
        0x73 => Effect::Syscall,
        _ => Effect::Other,
    }
}

fn effect_thumb(word: u32, before: &Registers, after: &Registers) -> Effect {
    let (half, second) = (word & 0xffff, word >> 16);
    let bytes = if half >> 11 < 0b11101 { 2 } else { 4 };
    let is_taken = after.pc != before.pc + bytes;
    match (half, second) {
        _ if half >> 11 == 0b11110 && second >> 14 == 3 => Effect::Call { returns_to: before.pc + 4 },
        _ if half & 0xff87 == 0x4780 => Effect::Call { returns_to: before.pc + 2 },
        _ if half == 0xdf00 && matches!(before.syscall, 119 | 173) => Effect::SignalReturn,
        _ if half == 0xdf00 => Effect::Syscall,
        _ if !is_taken => Effect::Other,
        // bx lr; pop with pc; ldr pc, [sp], #4
        _ if half == 0x4770 || half >> 8 == 0xbd || (half == 0xe8bd && second >> 15 == 1) => Effect::Return,
        (0xf85d, 0xfb04) => Effect::Return,
        // bx, mov and ldr to pc
        _ if half & 0xff87 == 0x4700 || half & 0xff87 == 0x4687 => Effect::Jump,
        _ if half & 0xff70 == 0xf850 && second >> 12 == 15 => Effect::Jump,
        _ => Effect::Other,
    }
}

fn effect_arm(word: u32, before: &Registers, after: &Registers) -> Effect {
    let is_taken = after.pc != before.pc + 4;
    match word & 0x0fff_ffff {
        _ if word >> 24 & 15 == 15 && matches!(before.syscall, 119 | 173) => Effect::SignalReturn,
        _ if word >> 24 & 15 == 15 && word >> 28 < 15 => Effect::Syscall,
        _ if !is_taken => Effect::Other,
        plain if word >> 25 == 0x7d || plain >> 24 == 0x0b || plain & 0x0fff_fff0 == 0x012f_ff30 => {
            Effect::Call { returns_to: before.pc + 4 }
        }
        // bx lr; pop with pc; ldr pc, [sp], #4; mov pc, lr
        0x012f_ff1e | 0x049d_f004 | 0x01a0_f00e => Effect::Return,
        plain if plain & 0x0fff_8000 == 0x08bd_8000 => Effect::Return,
        plain if plain & 0x0fff_fff0 == 0x012f_ff10 || plain & 0x0fff_fff0 == 0x01a0_f000 => Effect::Jump,
        _ => Effect::Other,
    }
}
