//! Where what is followed may be another function, or another thread.

use super::super::instruction::{Flow, Instruction};
use super::super::state::{Asked, Effect, State};
use super::Follower;
use crate::arch::Arch;

impl Follower<'_> {
    /// Whether a new thread goes on at `at`, where C libraries do not say so (32-bit ARM): behind the system call that makes it, and before a
    /// call of what it is to run and, should that return, the one that ends it. A fork makes the same system call, and its
    /// child returns.
    pub(super) fn begins_a_thread(&self, mut at: usize, state: State) -> bool {
        /// Instructions of such code.
        const MOST: usize = 8;
        if state.asked() != Some(Asked::Clone) {
            return false;
        }
        let (mut state, mut has_called) = (state, false);
        for _ in 0..MOST {
            let Some(instruction) = self.instruction(at) else { return false };
            for effect in instruction.effects.iter().flatten() {
                state.apply(*effect, self.machine);
            }
            match instruction.flow {
                Flow::Call(_) | Flow::Exchange(_) => has_called = true,
                Flow::Next => {}
                _ => return false,
            }
            if instruction.effects.contains(&Some(Effect::SystemCall)) {
                return has_called && state.asked() == Some(Asked::Exit);
            }
            at += instruction.bytes;
        }
        false
    }

    /// Whether the instruction lowers the stack pointer by a constant: behind a call, that is the next function, and the call never returns.
    pub(super) fn begins_a_function(&self, at: usize, state: &State) -> bool {
        self.instruction(at).is_some_and(|instruction| self.makes_room(&instruction, state))
    }

    /// Whether the instruction lowers the stack pointer by a constant as the first one of another function does. Where another register points
    /// into the frame, it may be memory from alloca: then it only is one if it saves the return address as well.
    pub(super) fn makes_room(&self, instruction: &Instruction, state: &State) -> bool {
        let is_alloca = state.has_pointer() && !self.begins_another(instruction, state);
        instruction.lowers(self.machine.sp) && !is_alloca
    }

    /// Whether a function begins with the instruction that is not the one that is followed: behind a call that never returns, and constants
    /// perhaps. It saves the return address, when that of this function is saved and gone.
    pub(super) fn begins_another(&self, instruction: &Instruction, state: &State) -> bool {
        // No function saves its own frame pointer. (On ARM it may have an address in the frame for other uses, and pushes save the return address as well.)
        let fp = self.machine.fp;
        let saves_fp = match instruction.effects {
            [Some(Effect::Store { register, base, .. }), None] => register == fp && base == self.machine.sp,
            _ => false,
        };
        if saves_fp && state.points(fp, self.machine) && self.machine.arch != Arch::Arm {
            return true;
        }
        let Some(link) = self.machine.link.filter(|_| !state.has_live_link(self.machine)) else { return false };
        match self.machine.arch {
            Arch::Arm => instruction.pushes(self.machine.sp, link),
            // There it serves for other values too; not where room was made since the call.
            _ => {
                let has_room = state.depth().zip(self.called_at).is_some_and(|(depth, at)| depth > at);
                let stores = |effect| match effect {
                    // An address in memory from alloca is in another register.
                    Effect::Store { register, base, .. } => {
                        register == link && (base == self.machine.sp || !state.has_pointer())
                    }
                    _ => false,
                };
                has_room && instruction.effects.first().copied().flatten().is_some_and(stores)
            }
        }
    }
}
