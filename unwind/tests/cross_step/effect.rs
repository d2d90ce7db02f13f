//! What instructions do to the stack of calls, by the encodings of each processor.

use symseal_unwind::Arch;

use crate::shadow::Registers;

/// The first byte of `call` on IA-32.
pub(crate) const IA_32_CALL: u32 = 0xe8;

/// What a branch does once its delay slot was run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
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

impl Effect {
    /// Of the instruction `word`, which led from `before` to `after`.
    pub(crate) fn of(arch: Arch, word: u32, before: &Registers, after: &Registers) -> Self {
        match arch {
            Arch::Aarch64 => aarch64(word, before),
            Arch::I686 => i686(word, before, after),
            Arch::Riscv64 => riscv64(word, before),
            Arch::Arm if before.is_thumb => thumb(word, before, after),
            Arch::Arm => arm(word, before, after),
            _ => mips(word, before),
        }
    }
}

fn aarch64(word: u32, before: &Registers) -> Effect {
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

fn mips(word: u32, before: &Registers) -> Effect {
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

fn i686(word: u32, before: &Registers, after: &Registers) -> Effect {
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

fn riscv64(word: u32, before: &Registers) -> Effect {
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

fn thumb(word: u32, before: &Registers, after: &Registers) -> Effect {
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

fn arm(word: u32, before: &Registers, after: &Registers) -> Effect {
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
