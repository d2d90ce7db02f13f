//! Instructions of arm64 that make and take down frames. (Arm Architecture Reference Manual, C4.1)

use super::{Effect, Flow, Instruction};
use crate::arch::aarch64::{Branch, branch, call_before, is_end};
use crate::arch::{Call, Machine};

const SP: u32 = 31;
const FP: u32 = 29;

const PACIASP: u32 = 0xd503_233f;
const PACIBSP: u32 = 0xd503_237f;

/// Whether the instruction signs the return address.
#[cfg(feature = "compile")]
pub(super) fn signs(word: u32) -> bool {
    matches!(word, PACIASP | PACIBSP)
}

/// Whether `jump` (`br x`) goes to what one of the four instructions before it added up.
pub(super) fn is_switch(before: &[u8], jump: &[u8]) -> bool {
    let Some(register) = jump.first_chunk::<4>().map(|word| u32::from_le_bytes(*word) >> 5 & 31) else { return false };
    let words = before.as_rchunks::<4>().1.iter().rev().take(4).map(|word| u32::from_le_bytes(*word));
    // add x, y, z with z shifted or extended.
    words.into_iter().any(|word| word >> 24 == 0x8b && word & 31 == register)
}

/// The instruction that `code` begins with; `None` where it is cut.
pub(super) fn decode(code: &[u8], machine: &Machine) -> Option<Instruction> {
    let word = u32::from_le_bytes(*code.first_chunk::<4>()?);
    let next = Instruction::of(4, Flow::Next);
    Some(match word {
        PACIASP | PACIBSP => next.doing(Effect::Sign(true), None, None),
        // autiasp, autibsp
        0xd503_23bf | 0xd503_23ff => next.doing(Effect::Sign(false), None, None),
        _ => match flow(word) {
            Flow::Next => match moves(word).or_else(|| stores(word)) {
                Some(instruction) => instruction,
                None if !(machine.keeps_stack)(&word.to_le_bytes()) => next.doing(Effect::Lose, None, None),
                None => next,
            },
            flow => Instruction::of(4, flow),
        },
    })
}

/// `bits` bits of `word` from bit `at` on, as a signed number.
fn signed(word: u32, at: u32, bits: u32) -> i64 {
    i64::from((word << (32 - at - bits)) as i32 >> (32 - bits))
}

/// How far from itself the call leads that `code` begins with.
pub(super) fn called(code: &[u8]) -> Option<i64> {
    match call_before(code.get(..4)?, 4)? {
        Call::To(distance) => Some(distance.cast_signed()),
        Call::Indirect => None,
    }
}

fn flow(word: u32) -> Flow {
    if call_before(&word.to_le_bytes(), 4).is_some() {
        return Flow::Call;
    }
    match branch(word) {
        _ if is_end(word) => Flow::Ends,
        None => Flow::Next,
        Some(Branch { distance: None, .. }) => Flow::Indirect,
        Some(Branch { distance: Some(distance), is_conditional }) => Flow::Branch { distance, is_conditional },
    }
}

/// Additions that move the stack pointer or set the frame pointer.
fn moves(word: u32) -> Option<Instruction> {
    let (rd, rn) = (word & 31, word >> 5 & 31);
    let bytes = i64::from(word >> 10 & 0xfff) << if word >> 22 & 1 != 0 { 12 } else { 0 };
    let bytes = match word >> 23 {
        0b1_0010_0010 => bytes,
        0b1_1010_0010 => -bytes,
        _ => return None,
    };
    let effect = match (rd, rn) {
        (SP, SP) => Effect::Move(bytes),
        (FP, SP) => Effect::SetFrame(bytes),
        (SP, FP) => Effect::FromFrame(bytes),
        _ => return None,
    };
    Some(Instruction::of(4, Flow::Next).doing(effect, None, None))
}

/// Loads and stores of one or two registers of 64 bits from the stack pointer or the frame pointer on, and those of vector registers that move the
/// stack pointer.
fn stores(word: u32) -> Option<Instruction> {
    let next = Instruction::of(4, Flow::Next);
    let (first, base, second) = (word & 31, word >> 5 & 31, word >> 10 & 31);
    let on_fp = match base {
        SP => false,
        FP => true,
        _ => return None,
    };
    let one = |register: u32, is_load: bool, at: i64| {
        let register = register as u8;
        if is_load { Effect::Load(register) } else { Effect::Store(register, on_fp, at) }
    };
    let is_load = word >> 22 & 1 != 0;
    // Pairs: size and kind of register, form of the address.
    if word & 0x3a00_0000 == 0x2800_0000 {
        let scale = match (word >> 26 & 1, word >> 30) {
            (0, 2) => 8,
            (1, size @ 0..=2) => 4 << size,
            _ => return None,
        };
        let bytes = signed(word, 15, 7) * scale;
        let is_general = word >> 26 & 1 == 0;
        let effects = |at: i64| (one(first, is_load, at), one(second, is_load, at + 8));
        return Some(match (word >> 23 & 3, is_general) {
            (2, true) => {
                let (a, b) = effects(bytes);
                next.doing(a, Some(b), None)
            }
            // Before, and after.
            (3, true) => {
                let (a, b) = effects(0);
                next.doing(Effect::Move(bytes), Some(a), Some(b))
            }
            (1, true) => {
                let (a, b) = effects(0);
                next.doing(a, Some(b), Some(Effect::Move(bytes)))
            }
            (3 | 1, false) => next.doing(Effect::Move(bytes), None, None),
            _ => next,
        })
        .filter(|_| !on_fp || word >> 23 & 3 == 2);
    }
    // Single registers, at an offset without a sign.
    if word & 0xff80_0000 == 0xf900_0000 {
        return Some(next.doing(one(first, is_load, i64::from(word >> 10 & 0xfff) * 8), None, None));
    }
    let bytes = signed(word, 12, 9);
    let is_general = word >> 26 & 1 == 0;
    match (word & 0x3b20_0c00, on_fp) {
        (0x3800_0000, _) if is_general && word >> 30 == 3 && word >> 23 & 1 == 0 => {
            Some(next.doing(one(first, is_load, bytes), None, None))
        }
        (0x3800_0c00, false) => {
            let store = (is_general && word >> 30 == 3 && word >> 23 & 1 == 0).then(|| one(first, is_load, 0));
            Some(next.doing(Effect::Move(bytes), store, None))
        }
        (0x3800_0400, false) => {
            let load = (is_general && word >> 30 == 3 && word >> 23 & 1 == 0).then(|| one(first, is_load, 0));
            Some(match load {
                Some(load) => next.doing(load, Some(Effect::Move(bytes)), None),
                None => next.doing(Effect::Move(bytes), None, None),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;

    #[test]
    fn instructions_are_known_by_their_words() {
        let check = |word: u32, effects: &[Effect], flow: Flow| {
            let found = decode(&word.to_le_bytes(), Arch::Aarch64.machine()).expect("four bytes");
            let known: alloc::vec::Vec<Effect> = found.effects.iter().flatten().copied().collect();
            assert_eq!((known.as_slice(), found.flow), (effects, flow), "{word:#x}");
        };
        use Effect::{FromFrame, Load, Lose, Move, SetFrame, Sign, Store};
        check(0xa9be_7bfd, &[Move(-32), Store(29, false, 0), Store(30, false, 8)], Flow::Next); // stp x29, x30, [sp, #-32]!
        check(0xa901_4ff4, &[Store(20, false, 16), Store(19, false, 24)], Flow::Next); // stp x20, x19, [sp, #16]
        check(0xa8c2_7bfd, &[Load(29), Load(30), Move(32)], Flow::Next); // ldp x29, x30, [sp], #32
        check(0x6dbf_23e9, &[Move(-16)], Flow::Next); // stp d9, d8, [sp, #-16]!
        check(0xf81f_0ffe, &[Move(-16), Store(30, false, 0)], Flow::Next); // str x30, [sp, #-16]!
        check(0xf841_07fe, &[Load(30), Move(16)], Flow::Next); // ldr x30, [sp], #16
        check(0xf900_0bf3, &[Store(19, false, 16)], Flow::Next); // str x19, [sp, #16]
        check(0xd100_83ff, &[Move(-32)], Flow::Next); // sub sp, sp, #32
        check(0xd140_07ff, &[Move(-4096)], Flow::Next); // sub sp, sp, #1, lsl #12
        check(0x9100_43fd, &[SetFrame(16)], Flow::Next); // add x29, sp, #16
        check(0xd100_43bf, &[FromFrame(-16)], Flow::Next); // sub sp, x29, #16
        check(0xcb20_63ff, &[Lose], Flow::Next); // sub sp, sp, x0
        check(0xd503_237f, &[Sign(true)], Flow::Next); // pacibsp
        check(0x9400_0002, &[], Flow::Call); // bl .+8
        check(0xd65f_03c0, &[], Flow::Ends); // ret
        check(0xd420_0020, &[], Flow::Ends); // brk #1
        check(0xd61f_0100, &[], Flow::Indirect); // br x8
        check(0x17ff_ffff, &[], Flow::Branch { distance: -4, is_conditional: false }); // b .-4
        check(0x5400_0041, &[], Flow::Branch { distance: 8, is_conditional: true }); // b.ne .+8
        check(0x3600_0040, &[], Flow::Branch { distance: 8, is_conditional: true }); // tbz w0, #0, .+8
        check(0xf940_0000, &[], Flow::Next); // ldr x0, [x0]
    }
}
