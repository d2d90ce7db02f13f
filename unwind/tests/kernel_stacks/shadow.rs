//! What the kernel's instructions do to its stack of calls, apart from any unwind information.

use symseal_unwind::Registers;

/// A frame above the running function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pc: u64,
    /// The stack pointer in that frame, once what it called has returned.
    pub(crate) sp: u64,
    pub(crate) fp: u64,
    /// It was interrupted there, and did not call.
    pub(crate) exact: bool,
    /// Its return address was written over with where to go on: the return is a jump, as in the thunk of an indirect call.
    pub(crate) is_gone: bool,
}

/// What an instruction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Call,
    Return,
    /// `mov %reg, (%rsp)`
    Overwrite,
    /// `iretq`, `sysretq`
    Leaves,
    Other,
}

impl Kind {
    pub(crate) fn of(code: &[u8]) -> Self {
        let prefixes =
            code.iter().take_while(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x66 | 0xf2 | 0xf3));
        let mut code = code.get(prefixes.count()..).unwrap_or_default();
        if let [0x40..=0x4f, rest @ ..] = code {
            code = rest;
        }
        match code {
            [0xe8, ..] => Self::Call,
            [0xff, modrm, ..] if modrm >> 3 & 7 == 2 => Self::Call,
            [0xc3 | 0xc2, ..] => Self::Return,
            [0x89, modrm, 0x24, ..] if modrm & 0b1100_0111 == 0b0000_0100 => Self::Overwrite,
            [0xcf, ..] | [0x0f, 0x07, ..] => Self::Leaves,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Shadow {
    /// The innermost last.
    pub(crate) entries: Vec<Entry>,
    /// Returns that went elsewhere than their calls.
    pub(crate) desynchronised: usize,
}

impl Shadow {
    pub(crate) fn interrupted(&mut self, at: &Registers) {
        self.entries.push(Entry { pc: at.pc, sp: at.sp, fp: at.fp, exact: true, is_gone: false });
    }

    /// The instruction `kind` led from `before` to `after`; `returns_to` is the word on top of the stack after a call.
    pub(crate) fn executed(&mut self, kind: Kind, before: &Registers, after: &Registers, returns_to: Option<u64>) {
        match kind {
            Kind::Call => {
                let entry = |pc| Entry { pc, sp: before.sp, fp: before.fp, exact: false, is_gone: false };
                self.entries.extend(returns_to.map(entry));
            }
            // Elsewhere the register is saved in a frame.
            Kind::Overwrite => {
                let called = self.entries.last_mut().filter(|top| !top.exact && top.sp == before.sp + 8);
                if let Some(top) = called {
                    top.is_gone = true;
                }
            }
            Kind::Return => {
                let top = self.entries.pop();
                self.desynchronised += usize::from(top.is_none_or(|top| !top.is_gone && top.pc != after.pc));
            }
            Kind::Leaves => {
                // Calls that never return to where they were made from are gone as well.
                let at = self.entries.iter().rposition(|entry| entry.exact);
                self.entries.truncate(at.unwrap_or(0));
            }
            Kind::Other => {}
        }
    }
}
