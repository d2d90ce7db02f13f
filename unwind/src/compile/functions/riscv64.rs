//! Instructions of 64-bit RISC-V that make and take down frames, and where instructions lead. (Unprivileged specification, chapters
//! "RV32I Base Integer Instruction Set", "RV64I" and "C" Standard Extension)

use super::instruction::{Flow, Instruction};
use super::state::Effect;
use crate::arch::riscv64::{jump_distance, length};

const RA: u8 = 1;
const SP: u8 = 2;
const FP: u8 = 8;
const A0: u8 = 10;

/// The instruction that `code` begins with; `None` where it is cut.
pub(super) fn decode(code: &[u8]) -> Option<Instruction> {
    let half = u16::from_le_bytes(*code.first_chunk::<2>()?);
    let bytes = length(half);
    let (effect, flow) =
        if bytes == 2 { compressed(half) } else { wide(u32::from_le_bytes(*code.first_chunk::<4>()?)) };
    // The zero register keeps its value.
    let is_lost = matches!(
        effect,
        Some(Effect::Add { to: 0, .. } | Effect::Set { to: 0, .. } | Effect::Sum { to: 0, .. } | Effect::Write(0))
    );
    Some(Instruction { effects: [effect.filter(|_| !is_lost), None], ..Instruction::of(bytes, flow) })
}

/// `to` = `from` + `value`, where the zero register is 0.
fn add(to: u8, from: u8, value: i32) -> Option<Effect> {
    Some(if from == 0 { Effect::Set { to, value } } else { Effect::Add { to, from, value } })
}

fn sum(to: u8, a: u8, b: u8, minus: bool) -> Option<Effect> {
    match (a, b) {
        (_, 0) => add(to, a, 0),
        (0, _) if !minus => add(to, b, 0),
        _ => Some(Effect::Sum { to, a, b, minus }),
    }
}

fn wide(word: u32) -> (Option<Effect>, Flow) {
    let field = |at: u32| (word >> at & 31) as u8;
    let (rd, rs1, rs2) = (field(7), field(15), field(20));
    let immediate = word as i32 >> 20;
    let (kind, upper) = (word >> 12 & 7, word >> 25);
    let next = |effect| (effect, Flow::Next);
    match word & 0x7f {
        // addi
        0x13 if kind == 0 => next(add(rd, rs1, immediate)),
        // addiw, the second half of loading a constant; a sum of 32 bits is no address.
        0x1b if kind == 0 && rs1 != SP && rs1 != FP => next(add(rd, rs1, immediate)),
        // lui
        0x37 => next(Some(Effect::Set { to: rd, value: (word & 0xffff_f000) as i32 })),
        // add, sub
        0x33 if kind == 0 && matches!(upper, 0 | 0x20) => next(sum(rd, rs1, rs2, upper != 0)),
        // ld, sd
        0x03 if kind == 3 => next(Some(Effect::Load { register: rd, base: rs1, offset: immediate })),
        0x23 if kind == 3 => {
            let offset = immediate & !31 | i32::from(rd);
            next(Some(Effect::Store { register: rs2, base: rs1, offset }))
        }
        // Other arithmetic, auipc, other loads, atomic operations.
        0x13 | 0x1b | 0x33 | 0x3b | 0x17 | 0x03 | 0x2f => next(Some(Effect::Write(rd))),
        // Comparisons, conversions and moves from floating point.
        0x53 if matches!(upper >> 2, 0x14 | 0x18 | 0x1c) => next(Some(Effect::Write(rd))),
        // Of vectors: their configuration, and what gives a number.
        0x57 if kind == 7 || (kind == 2 && upper >> 1 == 0x10) => next(Some(Effect::Write(rd))),
        0x6f if rd == 0 => (None, Flow::Branch { distance: jump_distance(word), is_conditional: false }),
        0x6f if rd == RA => (None, Flow::Call(Some(jump_distance(word)))),
        0x67 if rd == 0 && rs1 == RA => (None, Flow::Return),
        0x67 if rd == 0 => (None, Flow::Indirect),
        0x67 if rd == RA => (None, Flow::Call(None)),
        // By another link register: millicode, which makes frames for others.
        0x6f | 0x67 => (None, Flow::Trap),
        0x63 => {
            let high = i64::from(word as i32 >> 31) << 12;
            let low = (word >> 7 & 1) << 11 | (word >> 25 & 0x3f) << 5 | (word >> 8 & 15) << 1;
            (None, Flow::Branch { distance: high | i64::from(low), is_conditional: true })
        }
        // ebreak; ecall gives its result in a0.
        0x73 if word == 0x0010_0073 => (None, Flow::Trap),
        0x73 if word == 0x73 => next(Some(Effect::Write(A0))),
        0x73 if kind != 0 => next(Some(Effect::Write(rd))),
        _ => next(None),
    }
}

/// Bits `from` on of `half`, `count` of them, at `to`.
fn bits(half: u16, from: u32, count: u32, to: u32) -> i32 {
    i32::from(half >> from & ((1 << count) - 1)) << to
}

/// `value` of `width` bits with its sign.
fn signed(value: i32, width: u32) -> i32 {
    value << (32 - width) >> (32 - width)
}

fn compressed(half: u16) -> (Option<Effect>, Flow) {
    let next = |effect| (effect, Flow::Next);
    let field = |at: u32| (half >> at & 31) as u8;
    // The registers of short fields are x8–x15.
    let short = |at: u32| (half >> at & 7) as u8 + 8;
    let (rd, rs2) = (field(7), field(2));
    let immediate = signed(bits(half, 12, 1, 5) | bits(half, 2, 5, 0), 6);
    match (half & 3, half >> 13) {
        // Defined to be illegal.
        _ if half == 0 => (None, Flow::Trap),
        // c.addi4spn
        (0, 0) => {
            let offset = bits(half, 11, 2, 4) | bits(half, 7, 4, 6) | bits(half, 6, 1, 2) | bits(half, 5, 1, 3);
            next(add(short(2), SP, offset))
        }
        (0, kind @ (3 | 7)) => {
            let offset = bits(half, 10, 3, 3) | bits(half, 5, 2, 6);
            let (register, base) = (short(2), short(7));
            // c.ld, c.sd
            next(Some(match kind {
                3 => Effect::Load { register, base, offset },
                _ => Effect::Store { register, base, offset },
            }))
        }
        // c.lw
        (0, 2) => next(Some(Effect::Write(short(2)))),
        // c.lbu, c.lhu, c.lh
        (0, 4) if half >> 11 & 1 == 0 => next(Some(Effect::Write(short(2)))),
        // c.addi
        (1, 0) => next(add(rd, rd, immediate)),
        // c.addiw
        (1, 1) if rd != SP && rd != FP => next(add(rd, rd, immediate)),
        (1, 1) => next(Some(Effect::Write(rd))),
        // c.li
        (1, 2) => next(Some(Effect::Set { to: rd, value: immediate })),
        // c.addi16sp
        (1, 3) if rd == SP => {
            let offset = bits(half, 12, 1, 9)
                | bits(half, 6, 1, 4)
                | bits(half, 5, 1, 6)
                | bits(half, 3, 2, 7)
                | bits(half, 2, 1, 5);
            next(add(SP, SP, signed(offset, 10)))
        }
        // c.lui
        (1, 3) => next(Some(Effect::Set { to: rd, value: immediate << 12 })),
        // Shifts and logic.
        (1, 4) => next(Some(Effect::Write(short(7)))),
        // c.j
        (1, 5) => {
            let distance = bits(half, 12, 1, 11)
                | bits(half, 11, 1, 4)
                | bits(half, 9, 2, 8)
                | bits(half, 8, 1, 10)
                | bits(half, 7, 1, 6)
                | bits(half, 6, 1, 7)
                | bits(half, 3, 3, 1)
                | bits(half, 2, 1, 5);
            (None, Flow::Branch { distance: signed(distance, 12).into(), is_conditional: false })
        }
        // c.beqz, c.bnez
        (1, _) => {
            let distance = bits(half, 12, 1, 8)
                | bits(half, 10, 2, 3)
                | bits(half, 5, 2, 6)
                | bits(half, 3, 2, 1)
                | bits(half, 2, 1, 5);
            (None, Flow::Branch { distance: signed(distance, 9).into(), is_conditional: true })
        }
        // c.slli, c.lwsp
        (2, 0 | 2) => next(Some(Effect::Write(rd))),
        // c.ldsp
        (2, 3) => {
            let offset = bits(half, 12, 1, 5) | bits(half, 5, 2, 3) | bits(half, 2, 3, 6);
            next(Some(Effect::Load { register: rd, base: SP, offset }))
        }
        // c.sdsp
        (2, 7) => {
            let offset = bits(half, 10, 3, 3) | bits(half, 7, 3, 6);
            next(Some(Effect::Store { register: rs2, base: SP, offset }))
        }
        (2, 4) => match (half >> 12 & 1, rd, rs2) {
            (0, RA, 0) => (None, Flow::Return),
            (0, _, 0) => (None, Flow::Indirect),
            (0, ..) => next(add(rd, rs2, 0)),
            // c.ebreak, c.jalr
            (_, 0, 0) => (None, Flow::Trap),
            (_, _, 0) => (None, Flow::Call(None)),
            _ => next(sum(rd, rd, rs2, false)),
        },
        _ => next(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_known_by_their_words() {
        let check = |word: u32, effect: Option<Effect>, flow: Flow| {
            let bytes = length(word as u16);
            let expected = Instruction { effects: [effect, None], ..Instruction::of(bytes, flow) };
            assert_eq!(decode(&word.to_le_bytes()), Some(expected), "{word:x}");
        };
        let branch = |distance, is_conditional| Flow::Branch { distance, is_conditional };
        let add = |to, from, value| Some(Effect::Add { to, from, value });
        check(0x7139, add(SP, SP, -64), Flow::Next); // addi sp, sp, -64
        check(0x6121, add(SP, SP, 64), Flow::Next); // addi sp, sp, 64
        check(0x1141, add(SP, SP, -16), Flow::Next); // addi sp, sp, -16
        check(0x0800, add(FP, SP, 16), Flow::Next); // addi s0, sp, 16
        check(0x8101_0113, add(SP, SP, -2032), Flow::Next); // addi sp, sp, -2032
        check(0xfd84_0113, add(SP, FP, -40), Flow::Next); // addi sp, s0, -40
        check(0xe406, Some(Effect::Store { register: RA, base: SP, offset: 8 }), Flow::Next); // sd ra, 8(sp)
        check(0xfc06, Some(Effect::Store { register: RA, base: SP, offset: 56 }), Flow::Next); // sd ra, 56(sp)
        check(0x60a2, Some(Effect::Load { register: RA, base: SP, offset: 8 }), Flow::Next); // ld ra, 8(sp)
        check(0x70e2, Some(Effect::Load { register: RA, base: SP, offset: 56 }), Flow::Next); // ld ra, 56(sp)
        check(0x0011_3423, Some(Effect::Store { register: RA, base: SP, offset: 8 }), Flow::Next); // sd ra, 8(sp)
        check(0xfe84_3783, Some(Effect::Load { register: 15, base: FP, offset: -24 }), Flow::Next); // ld a5, -24(s0)
        check(0x77fd, Some(Effect::Set { to: 15, value: -4096 }), Flow::Next); // lui a5, 0xfffff
        check(0x52fd, Some(Effect::Set { to: 5, value: -1 }), Flow::Next); // li t0, -1
        check(0x911e, Some(Effect::Sum { to: SP, a: SP, b: 7, minus: false }), Flow::Next); // add sp, sp, t2
        check(0x40f1_0133, Some(Effect::Sum { to: SP, a: SP, b: 15, minus: true }), Flow::Next); // sub sp, sp, a5
        check(0x0c05_f557, Some(Effect::Write(10)), Flow::Next); // vsetvli a0, a1, e8, m1, ta, ma
        check(0x4220_2557, Some(Effect::Write(10)), Flow::Next); // vmv.x.s a0, v2
        check(0x0220_80d7, None, Flow::Next); // vadd.vv v1, v2, v1
        check(0x8522, add(10, 8, 0), Flow::Next); // mv a0, s0
        check(0x0000_0073, Some(Effect::Write(10)), Flow::Next); // ecall
        check(0x8082, None, Flow::Return); // ret
        check(0x8782, None, Flow::Indirect); // jr a5
        check(0x9782, None, Flow::Call(None)); // jalr a5
        check(0x0080_00ef, None, Flow::Call(Some(8))); // jal ra, .+8
        check(0xff9f_f06f, None, branch(-8, false)); // j .-8
        check(0xa021, None, branch(8, false)); // j .+8
        check(0xbfdd, None, branch(-10, false)); // j .-10
        check(0xc781, None, branch(8, true)); // beqz a5, .+8
        check(0xfef7_18e3, None, branch(-16, true)); // bne a4, a5, .-16
        check(0x9002, None, Flow::Trap); // ebreak
        check(0x0000_0013, None, Flow::Next); // nop
        assert_eq!(decode(&[0x13, 0, 0]), None);
    }
}
