//! The forms in which a function of x86_64 takes its frame down: at most one instruction that moves the stack pointer to where registers
//! were pushed, pops, and a return or a jump to another function. (Microsoft, "x64 prolog and epilog"; compilers for other systems keep to
//! the same forms)

use alloc::vec::Vec;

use crate::arch::x86::{Mode, length};

/// The most instructions before the last: a pop for each general register, and a few that move nothing. What is longer is no epilog.
const MOST_STEPS: usize = 20;

/// DWARF numbers of the general registers, by the numbers that instructions and `.xdata` give them. (System V ABI for AMD64, figure 3.36)
const DWARF: [u8; 16] = [0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15];

/// The DWARF number of a register by its number in instructions.
pub(in super::super) fn dwarf(register: u8) -> u8 {
    DWARF.get(usize::from(register & 15)).copied().unwrap_or_default()
}

/// One epilog, from its first instruction on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Epilog {
    /// Bytes of the instruction that moves the stack pointer before the pops; 0 without one.
    pub(in super::super) adjustment: usize,
    /// What stands between that and the last instruction.
    pub(in super::super) steps: Vec<Step>,
    /// How it ends. A return needs nothing else to be an epilog; what a jump alone means depends on where it leads.
    pub(in super::super) jump: Option<Jump>,
    /// Bytes of the last instruction.
    pub(in super::super) last: usize,
}

/// An instruction within an epilog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Step {
    /// Whether it takes a word from the stack.
    pub(in super::super) pops: bool,
    /// DWARF number of the register that gets its value back.
    pub(in super::super) register: Option<u8>,
    /// Its length.
    pub(in super::super) bytes: usize,
}

/// The jump of a tail call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Jump {
    /// So many bytes from the end of the instruction.
    Relative(i64),
    /// `jmp [rip + x]`, or with the prefix REX.W, which says that the jump leaves the function.
    Leaves,
    /// Through a register or memory: a tail call, or a switch.
    Indirect,
    /// `iretq`: back to what was interrupted.
    Interrupt,
}

impl Epilog {
    /// Bytes of all of it.
    pub(in super::super) fn bytes(&self) -> usize {
        let steps: usize = self.steps.iter().map(|step| step.bytes).sum();
        self.adjustment + steps + self.last
    }

    /// Whether it moves the stack pointer before its last instruction.
    pub(in super::super) fn moves_stack(&self) -> bool {
        self.adjustment > 0 || self.steps.iter().any(|step| step.pops)
    }
}

/// The epilog that `code` begins with.
pub(in super::super) fn epilog(code: &[u8]) -> Option<Epilog> {
    let adjustment = adjustment(code);
    let mut at = adjustment;
    let mut steps = Vec::new();
    while let Some(step) = step(code.get(at..)?) {
        if steps.len() == MOST_STEPS {
            return None;
        }
        steps.push(step);
        at += step.bytes;
    }
    let (jump, last) = end(code.get(at..)?)?;
    Some(Epilog { adjustment, steps, jump, last })
}

/// Bytes of what `code` begins with, if it sets the stack pointer to a place in the frame. Where that is, the pops and the return tell.
fn adjustment(code: &[u8]) -> usize {
    match code {
        // add rsp, x; sub of what is negative, which fits a byte for 128.
        [0x48, 0x83, 0xc4, ..] | [0x48, 0x83, 0xec, 0x80, ..] => 4,
        [0x48, 0x81, 0xc4, ..] => 7,
        // mov rsp, register, in both encodings.
        [0x48 | 0x4c, 0x89, modrm, ..] if modrm & 0xc7 == 0xc4 => 3,
        [0x48 | 0x49, 0x8b, modrm, ..] if modrm & 0xf8 == 0xe0 => 3,
        // lea rsp, [register + x]
        [rex @ (0x48 | 0x49), 0x8d, modrm, rest @ ..] if modrm >> 3 & 7 == 4 => {
            let (mode, rm) = (modrm >> 6, modrm & 7);
            // r12 as a base needs a SIB byte that says nothing else.
            let sib = match (rm, rest.first()) {
                (4, Some(0x24)) if *rex == 0x49 => 1,
                (4, _) => return 0,
                _ => 0,
            };
            match mode {
                0 if rm != 5 => 3 + sib,
                1 => 4 + sib,
                2 => 7 + sib,
                _ => 0,
            }
        }
        _ => 0,
    }
}

/// A pop; or what the documented form does not have there, compilers and people put there, and the frame does not notice: the state of
/// vector registers reset, the direction flag cleared, nothing.
fn step(code: &[u8]) -> Option<Step> {
    let pop = |register: Option<u8>, bytes| Some(Step { pops: true, register: register.map(dwarf), bytes });
    let idle = |bytes| Some(Step { pops: false, register: None, bytes });
    match code {
        [opcode @ 0x58..=0x5f, ..] if *opcode != 0x5c => pop(Some(opcode - 0x58), 1),
        [0x41, opcode @ 0x58..=0x5f, ..] => pop(Some(opcode - 0x58 + 8), 2),
        // popfq
        [0x9d, ..] => pop(None, 1),
        // vzeroupper, vzeroall; emms; cld; nop of one and two bytes
        [0xc5, 0xf8 | 0xfc, 0x77, ..] => idle(3),
        [0x0f, 0x77, ..] | [0x66, 0x90, ..] => idle(2),
        [0xfc | 0x90, ..] => idle(1),
        // Longer nop.
        [0x0f, 0x1f, ..] | [0x66, 0x0f, 0x1f, ..] => idle(length(code, Mode::Bits64)?),
        _ => None,
    }
}

fn end(code: &[u8]) -> Option<(Option<Jump>, usize)> {
    Some(match code {
        [0xc3, ..] => (None, 1),
        [0xf2 | 0xf3, 0xc3, ..] => (None, 2),
        [0xc2, _, _, ..] => (None, 3),
        [0x48, 0xcf, ..] => (Some(Jump::Interrupt), 2),
        [0xeb, distance, ..] => (Some(Jump::Relative(i64::from(*distance as i8))), 2),
        [0xe9, a, b, c, d, ..] => (Some(Jump::Relative(i64::from(i32::from_le_bytes([*a, *b, *c, *d])))), 5),
        [0xff, 0x25, _, _, _, _, ..] => (Some(Jump::Leaves), 6),
        _ => {
            let rex = code.first().copied().filter(|byte| byte & 0xf0 == 0x40);
            let rest = if rex.is_some() { code.get(1..)? } else { code };
            let ([0xff, modrm, ..], Some(bytes)) = (rest, length(code, Mode::Bits64)) else {
                return None;
            };
            if modrm >> 3 & 7 != 4 {
                return None;
            }
            let leaves = rex.is_some_and(|rex| rex & 8 != 0);
            (Some(if leaves { Jump::Leaves } else { Jump::Indirect }), bytes)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: &[u8], adjustment: usize, pops: &[u8], jump: Option<Jump>) {
        let found = epilog(code).unwrap_or_else(|| panic!("{code:x?}"));
        assert_eq!(found.adjustment, adjustment, "{code:x?}");
        assert_eq!(found.steps.iter().filter_map(|step| step.register).collect::<Vec<u8>>(), pops, "{code:x?}");
        assert_eq!((found.jump, found.bytes()), (jump, code.len()), "{code:x?}");
    }

    #[test]
    fn the_documented_forms_are_known() {
        check(&[0xc3], 0, &[], None);
        check(&[0x48, 0x83, 0xc4, 0x28, 0xc3], 4, &[], None);
        check(&[0x48, 0x81, 0xc4, 0, 1, 0, 0, 0x5b, 0x41, 0x5e, 0xc3], 7, &[3, 14], None);
        check(&[0x48, 0x8d, 0x65, 0x10, 0x5d, 0xc3], 4, &[6], None);
        check(&[0x49, 0x8d, 0x63, 0x08, 0xc3], 4, &[], None);
        check(&[0x49, 0x8b, 0xe3, 0x5d, 0xc3], 3, &[6], None);
        check(&[0x48, 0x89, 0xec, 0x5d, 0xc3], 3, &[6], None);
        check(&[0x49, 0x8d, 0x64, 0x24, 8, 0xc3], 5, &[], None);
        check(&[0x5f, 0xe9, 0x10, 0, 0, 0], 0, &[5], Some(Jump::Relative(16)));
        check(&[0x48, 0xff, 0xe0], 0, &[], Some(Jump::Leaves));
        check(&[0xff, 0x25, 0, 0, 0, 0], 0, &[], Some(Jump::Leaves));
        check(&[0xff, 0xe0], 0, &[], Some(Jump::Indirect));
        check(&[0x5d, 0x48, 0xcf], 0, &[6], Some(Jump::Interrupt));
    }

    #[test]
    fn what_the_frame_does_not_notice_may_stand_before_the_return() {
        check(&[0x48, 0x83, 0xc4, 0x28, 0xc5, 0xf8, 0x77, 0xc3], 4, &[], None);
        check(&[0x5b, 0xfc, 0x5e, 0x0f, 0x77, 0xc3], 0, &[3, 4], None);
        check(&[0x5b, 0x66, 0x0f, 0x1f, 0x44, 0, 0, 0xc3], 0, &[3], None);
        check(&[0x9d, 0xc3], 0, &[], None);
        let flags = epilog(&[0x9d, 0x5b, 0xc3]).expect("an epilog");
        assert!(flags.moves_stack() && flags.steps.iter().all(|step| step.pops));
        let idle = epilog(&[0xc5, 0xf8, 0x77, 0xe9, 0, 0, 0, 0]).expect("an epilog");
        assert!(!idle.moves_stack());
    }

    #[test]
    fn other_instructions_are_no_epilog() {
        for code in
            [&[0x5c, 0xc3][..], &[0x90], &[0x5b], &[0x48, 0x83, 0xc4, 0x28], &[0xe8, 0, 0, 0, 0], &[0xff, 0xd0], &[]]
        {
            assert_eq!(epilog(code), None, "{code:x?}");
        }
    }
}
