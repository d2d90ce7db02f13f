//! The stack as calls, returns and signals made it, kept apart from any unwind information.

use std::collections::HashSet;

use crate::tracee::Instant;

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

#[derive(Debug)]
enum Entry {
    /// A call pushed `address` at `slot`, while the frame pointer register held `fp`. `id` is that of no other call.
    Call { address: u64, slot: u64, fp: u64, id: u64 },
    /// The kernel saved the interrupted registers in the context at `context`; handlers may change them there.
    Interrupted { context: u64, stack_pointer: u64 },
}

impl Entry {
    fn is_at(&self, address: u64) -> bool {
        matches!(self, Self::Call { slot, .. } if *slot == address)
    }
}

#[derive(Default)]
pub(crate) struct Shadow {
    entries: Vec<Entry>,
    calls: u64,
    /// The running function has let go of its own frame and of others, and has not jumped yet.
    pub(crate) is_leaving: bool,
    /// Calls of functions that left for another place than the one they were called from: into a landing pad, by longjmp.
    pub(crate) left: HashSet<u64>,
    /// Returns that went elsewhere than their calls.
    pub(crate) desynchronised: usize,
    /// Of these, the ones to a place that the running function wrote over its return address, as a landing pad is entered.
    pub(crate) landings: usize,
    /// The running function has written over its return address where it is to go on: its return is a jump.
    is_thunk: bool,
}

/// Where the kernel puts registers in `struct ucontext`: rbp, rsp and rip of `uc_mcontext.gregs`.
const CONTEXT_FP: u64 = 120;
const CONTEXT_SP: u64 = 160;
const CONTEXT_PC: u64 = 168;
const SYSCALL_RT_SIGRETURN: u64 = 15;

enum Effect {
    Call,
    Return,
    Jump,
    Syscall,
    /// Of a thunk that returns to where it is to lead: `mov %r11, (%rsp)`.
    Overwrite,
    Other,
}

fn effect(code: &[u8]) -> Effect {
    let is_prefix = |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(is_prefix).count();
    match code.get(prefixes..).unwrap_or_default() {
        [0xe8, ..] => Effect::Call,
        [0xff, modrm, ..] if modrm >> 3 & 7 == 2 => Effect::Call,
        [0xff, modrm, ..] if modrm >> 3 & 7 == 4 => Effect::Jump,
        [0xc3 | 0xc2, ..] => Effect::Return,
        [0x0f, 0x05, ..] => Effect::Syscall,
        _ if code.starts_with(&[0x4c, 0x89, 0x1c, 0x24]) => Effect::Overwrite,
        _ => Effect::Other,
    }
}

impl Shadow {
    /// The frames above the running function, innermost first. `word` reads the stack.
    pub(crate) fn expected(&self, word: impl Fn(u64) -> u64, out: &mut Vec<Expected>) {
        out.clear();
        out.extend(self.entries.iter().rev().map(|entry| match entry {
            Entry::Call { address, slot, fp, .. } => {
                Expected { pc: *address, exact: false, fp: *fp, cfa_below: slot + 8 }
            }
            Entry::Interrupted { context, .. } => Expected {
                pc: word(context + CONTEXT_PC),
                exact: true,
                fp: word(context + CONTEXT_FP),
                cfa_below: word(context + CONTEXT_SP),
            },
        }));
    }

    /// The calls of the innermost `count` functions.
    pub(crate) fn innermost(&self, count: usize) -> Vec<u64> {
        let id = |entry: &Entry| match entry {
            Entry::Call { id, .. } => Some(*id),
            Entry::Interrupted { .. } => None,
        };
        self.entries.iter().rev().take(count).filter_map(id).collect()
    }

    fn push_call(&mut self, address: u64, slot: u64, fp: u64) {
        self.calls += 1;
        self.entries.push(Entry::Call { address, slot, fp, id: self.calls });
    }

    pub(crate) fn interrupted_stack_pointers(&self) -> Vec<u64> {
        let interrupted = |entry: &Entry| match entry {
            Entry::Interrupted { stack_pointer, .. } => Some(*stack_pointer),
            Entry::Call { .. } => None,
        };
        self.entries.iter().rev().filter_map(interrupted).collect()
    }

    /// A handler is about to run, with its return address on top of its stack and the context above.
    pub(crate) fn enter_handler(&mut self, handler: &Instant, return_address: u64, interrupted: &Instant) {
        let slot = handler.rsp;
        self.entries.push(Entry::Interrupted { context: slot + 8, stack_pointer: interrupted.rsp });
        self.push_call(return_address, slot, handler.rbp);
    }

    /// One instruction was run.
    pub(crate) fn executed(
        &mut self,
        code: &[u8],
        before: &Instant,
        after: &Instant,
        same_stack: impl Fn(u64, u64) -> bool,
    ) {
        let effect = effect(code);
        let leaves = matches!(effect, Effect::Return | Effect::Jump);
        match effect {
            // The pushed address is that of the next instruction, which is what the return will be compared with.
            Effect::Call if after.rsp == before.rsp - 8 => {
                self.push_call(before.rip + call_length(code), after.rsp, before.rbp);
            }
            // Elsewhere the register is saved in a frame.
            Effect::Overwrite if self.entries.last().is_some_and(|entry| entry.is_at(before.rsp)) => {
                self.entries.pop();
                self.is_thunk = true;
            }
            Effect::Return if self.is_thunk => self.is_thunk = false,
            Effect::Return => match self.entries.last() {
                Some(Entry::Call { address, slot, id, .. }) if *slot == before.rsp => {
                    if *address != after.rip {
                        self.desynchronised += 1;
                        self.landings += 1;
                        self.left.insert(*id);
                    }
                }
                _ => self.desynchronised += 1,
            },
            Effect::Syscall if before.rax == SYSCALL_RT_SIGRETURN => {
                while matches!(self.entries.pop(), Some(Entry::Call { .. })) {}
                return;
            }
            _ => {}
        }
        // Returns, and jumps over many frames as in longjmp: what lies below the stack pointer is gone.
        let known = self.entries.len();
        let running = self.innermost(1);
        while let Some(Entry::Call { slot, .. }) = self.entries.last()
            && *slot < after.rsp
            && same_stack(*slot, after.rsp)
        {
            self.entries.pop();
        }
        let lets_go = !leaves && self.entries.len() < known;
        if lets_go {
            self.left.extend(running);
        }
        self.is_leaving = lets_go || self.is_leaving && !leaves;
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
