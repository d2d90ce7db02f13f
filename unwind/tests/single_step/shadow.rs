//! The stack as calls, returns and signals made it, kept apart from any unwind information.

/// What the unwinder must find for one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) pc: u64,
    pub(crate) exact: bool,
}

#[derive(Debug)]
enum Entry {
    /// A call pushed `address` at `slot`.
    Call { address: u64, slot: u64 },
    /// The kernel saved the interrupted registers in the context at `context`; handlers may change them there.
    Interrupted { context: u64, stack_pointer: u64 },
}

#[derive(Default)]
pub(crate) struct Shadow {
    entries: Vec<Entry>,
}

/// Where the kernel puts the interrupted program counter in `struct ucontext`.
const CONTEXT_PC: u64 = 168;
const SYSCALL_RT_SIGRETURN: u64 = 15;

enum Effect {
    Call,
    Return,
    Syscall,
    Other,
}

fn effect(code: &[u8]) -> Effect {
    let is_prefix = |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(is_prefix).count();
    match code.get(prefixes..).unwrap_or_default() {
        [0xe8, ..] => Effect::Call,
        [0xff, modrm, ..] if modrm >> 3 & 7 == 2 => Effect::Call,
        [0xc3 | 0xc2, ..] => Effect::Return,
        [0x0f, 0x05, ..] => Effect::Syscall,
        _ => Effect::Other,
    }
}

impl Shadow {
    /// The frames above the running function, innermost first.
    pub(crate) fn expected(&self, word: impl Fn(u64) -> u64, out: &mut Vec<Expected>) {
        out.clear();
        out.extend(self.entries.iter().rev().map(|entry| match entry {
            Entry::Call { address, .. } => Expected { pc: *address, exact: false },
            Entry::Interrupted { context, .. } => Expected { pc: word(context + CONTEXT_PC), exact: true },
        }));
    }

    pub(crate) fn interrupted_stack_pointers(&self) -> Vec<u64> {
        let interrupted = |entry: &Entry| match entry {
            Entry::Interrupted { stack_pointer, .. } => Some(*stack_pointer),
            Entry::Call { .. } => None,
        };
        self.entries.iter().rev().filter_map(interrupted).collect()
    }

    /// A handler is about to run, with its return address on top of its stack and the context above.
    pub(crate) fn enter_handler(&mut self, stack_pointer: u64, return_address: u64, interrupted_stack_pointer: u64) {
        self.entries.push(Entry::Interrupted { context: stack_pointer + 8, stack_pointer: interrupted_stack_pointer });
        self.entries.push(Entry::Call { address: return_address, slot: stack_pointer });
    }

    /// One instruction was run. False if a return went elsewhere than its call.
    pub(crate) fn executed(
        &mut self,
        code: &[u8],
        before: &libc::user_regs_struct,
        after: &libc::user_regs_struct,
        same_stack: impl Fn(u64, u64) -> bool,
    ) -> bool {
        let mut in_step = true;
        match effect(code) {
            // The pushed address is that of the next instruction, which is what the return will be compared with.
            Effect::Call if after.rsp == before.rsp - 8 => {
                let length = call_length(code);
                self.entries.push(Entry::Call { address: before.rip + length, slot: after.rsp });
            }
            Effect::Return => {
                let top = self.entries.last();
                in_step =
                    matches!(top, Some(Entry::Call { address, slot }) if *address == after.rip && *slot == before.rsp);
            }
            Effect::Syscall if before.rax == SYSCALL_RT_SIGRETURN => {
                while matches!(self.entries.pop(), Some(Entry::Call { .. })) {}
                return true;
            }
            _ => {}
        }
        // Returns, and jumps over many frames as in longjmp: what lies below the stack pointer is gone.
        while let Some(Entry::Call { slot, .. }) = self.entries.last()
            && *slot < after.rsp
            && same_stack(*slot, after.rsp)
        {
            self.entries.pop();
        }
        in_step
    }
}

/// Bytes of the call instruction at the front of `code`.
fn call_length(code: &[u8]) -> u64 {
    let is_prefix = |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(is_prefix).count();
    let rest = code.get(prefixes..).unwrap_or_default();
    let length = match rest {
        [0xe8, ..] => 5,
        [0xff, modrm, sib, ..] => {
            let (mode, rm) = (modrm >> 6, modrm & 7);
            let has_sib = mode != 3 && rm == 4;
            let base = if has_sib { sib & 7 } else { rm };
            let displacement = match mode {
                0 if base == 5 => 4,
                1 => 1,
                2 => 4,
                _ => 0,
            };
            2 + usize::from(has_sib) + displacement
        }
        _ => 0,
    };
    (prefixes + length) as u64
}
