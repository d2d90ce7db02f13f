//! The stack as calls, returns and signals made it, kept apart from any unwind information.

use symseal_unwind::Arch;

use crate::effect::Effect;

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
    /// Without a tag.
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

/// The bits of an address in a program under qemu-aarch64.
const ADDRESS_BITS: u64 = (1 << 48) - 1;

/// The address that a pointer of a process leads to: on aarch64 its top byte may be a tag.
pub(crate) fn without_tag(arch: Arch, pointer: u64) -> u64 {
    if arch == Arch::Aarch64 { pointer & !(0xff << 56) } else { pointer }
}

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
                        cfa_below: without_tag(arch, saved(arch.stack_pointer())),
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
                let effect = Effect::of(self.arch, word, before, after);
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
