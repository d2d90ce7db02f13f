//! Thumb instructions of ARMv7-A that make and take down frames, and where instructions lead. (ARM Architecture Reference Manual for
//! ARMv7-A, chapter A6)

use super::instruction::{Flow, Instruction};
use super::state::Effect;
use crate::arch::arm::thumb_distance;

const SP: u8 = 13;
const LR: u8 = 14;
const PC: u8 = 15;

/// The instruction that `code` begins with; `None` where it is cut.
pub(super) fn decode(code: &[u8]) -> Option<Instruction> {
    let half = u32::from(u16::from_le_bytes(*code.first_chunk::<2>()?));
    if half >> 11 < 0b11101 {
        let literal = (half >> 11 == 0b01001).then_some((half & 0xff) as i32 * 4 + 4);
        return Some(Instruction { literal, ..short(half) });
    }
    let word = u32::from_le_bytes(*code.first_chunk::<4>()?);
    Some(Instruction { literal: literal(half, word >> 16), ..wide(half, word >> 16) })
}

/// Where `ldr.w` and `vldr` load constants from.
fn literal(high: u32, low: u32) -> Option<i32> {
    let distance = match high & 0xff7f {
        0xf85f if low >> 12 != u32::from(PC) => low & 0xfff,
        0xed1f | 0xed5f if low >> 9 & 7 == 5 => (low & 0xff) * 4,
        _ => return None,
    } as i32;
    Some(if high >> 7 & 1 != 0 { distance } else { -distance } + 4)
}

fn one(bytes: usize, effect: Effect) -> Instruction {
    Instruction::doing(bytes, effect)
}

fn nothing(bytes: usize) -> Instruction {
    Instruction::of(bytes, Flow::Next)
}

fn branch(bytes: usize, distance: i64, is_conditional: bool) -> Instruction {
    // Distances count from the address of the instruction plus four.
    Instruction::of(bytes, Flow::Branch { distance: distance + 4, is_conditional })
}

/// A push of `list`.
pub(super) fn push(bytes: usize, list: u16) -> Instruction {
    let size = 4 * list.count_ones() as i32;
    let effects =
        [Some(Effect::Add { to: SP, from: SP, value: -size }), Some(Effect::StoreList { list, base: SP, offset: 0 })];
    Instruction { effects, ..nothing(bytes) }
}

/// A pop of `list`, which returns where the program counter is among it.
pub(super) fn pop(bytes: usize, list: u16) -> Instruction {
    let size = 4 * list.count_ones() as i32;
    let flow = if list >> PC & 1 != 0 { Flow::Return } else { Flow::Next };
    let loads = Effect::LoadList { list: list & !(1 << PC | 1 << SP), base: SP, offset: 0 };
    let effects = [Some(loads), Some(Effect::Add { to: SP, from: SP, value: size })];
    Instruction { effects, ..Instruction::of(bytes, flow) }
}

/// A jump to where `register` points.
fn to_register(bytes: usize, register: u8) -> Instruction {
    Instruction::of(bytes, if register == LR { Flow::Return } else { Flow::Indirect })
}

fn short(half: u32) -> Instruction {
    let field = |at: u32| (half >> at & 7) as u8;
    let immediate = (half & 0xff) as i32;
    let high = (half >> 8 & 7) as u8;
    match half >> 11 {
        // Shifts and sums of low registers: the destination is in the lowest bits.
        0b00000..=0b00011 => one(2, Effect::Write(field(0))),
        0b00100 => one(2, Effect::Set { to: high, value: immediate }),
        // A comparison.
        0b00101 => nothing(2),
        0b00110 => one(2, Effect::Add { to: high, from: high, value: immediate }),
        0b00111 => one(2, Effect::Add { to: high, from: high, value: -immediate }),
        0b01000 => register_forms(half),
        // Loads from near code, and by a register or a distance.
        0b01001 => one(2, Effect::Write(high)),
        0b01010 if half >> 9 & 3 == 3 => one(2, Effect::Write(field(0))),
        0b01011 | 0b01111 | 0b10001 => one(2, Effect::Write(field(0))),
        0b01100 | 0b01101 => {
            let (register, base, offset) = (field(0), field(3), (half >> 6 & 31) as i32 * 4);
            one(2, memory(half >> 11 & 1 != 0, register, base, offset))
        }
        0b10010 | 0b10011 => one(2, memory(half >> 11 & 1 != 0, high, SP, immediate * 4)),
        0b10100 => one(2, Effect::Write(high)),
        0b10101 => one(2, Effect::Add { to: high, from: SP, value: immediate * 4 }),
        0b10110 | 0b10111 => miscellaneous(half),
        // stm and ldm, which change their base.
        0b11000 => one(2, Effect::Write(high)),
        0b11001 => {
            let loads = Effect::LoadList { list: half as u16 & 0xff, base: high, offset: 0 };
            Instruction { effects: [Some(loads), Some(Effect::Write(high))], ..nothing(2) }
        }
        0b11010 | 0b11011 => match half >> 8 & 15 {
            14 => Instruction::of(2, Flow::Trap),
            15 => one(2, Effect::SystemCall),
            condition => {
                let condition = Some(condition as u8);
                Instruction { condition, ..branch(2, i64::from((half << 24) as i32 >> 23), true) }
            }
        },
        0b11100 => branch(2, i64::from((half << 21) as i32 >> 20), false),
        _ => nothing(2),
    }
}

fn memory(loads: bool, register: u8, base: u8, offset: i32) -> Effect {
    if loads { Effect::Load { register, base, offset } } else { Effect::Store { register, base, offset } }
}

/// Arithmetic, moves, comparisons and jumps with registers.
fn register_forms(half: u32) -> Instruction {
    let (low, source) = ((half & 7) as u8, (half >> 3 & 15) as u8);
    let to = low | (half >> 4 & 8) as u8;
    match half >> 8 & 7 {
        // tst, cmp, cmn
        2 if matches!(half >> 6 & 3, 0 | 2 | 3) => nothing(2),
        0..=3 => one(2, Effect::Write(low)),
        4 if to == PC => Instruction::of(2, Flow::Switch),
        4 => one(2, Effect::Sum { to, a: to, b: source, minus: false }),
        5 => nothing(2),
        6 if to == PC => to_register(2, source),
        6 => one(2, Effect::Add { to, from: source, value: 0 }),
        _ if half & 0x80 != 0 => Instruction::of(2, Flow::Call(None)),
        _ => to_register(2, source),
    }
}

/// The forms that begin with 1011.
fn miscellaneous(half: u32) -> Instruction {
    let list = (half & 0xff) as u16;
    match half >> 8 & 15 {
        0 => {
            let value = (half & 0x7f) as i32 * 4;
            one(2, Effect::Add { to: SP, from: SP, value: if half & 0x80 != 0 { -value } else { value } })
        }
        4 => push(2, list),
        5 => push(2, list | 1 << LR),
        12 => pop(2, list),
        13 => pop(2, list | 1 << PC),
        // cbz, cbnz
        1 | 3 | 9 | 11 => {
            let distance = (half >> 9 & 1) << 6 | (half >> 3 & 31) << 1;
            branch(2, distance.into(), true)
        }
        // Extensions and byte orders.
        2 | 10 => one(2, Effect::Write((half & 7) as u8)),
        14 => Instruction::of(2, Flow::Trap),
        // `it`: as many as stand before the lowest bit that is set.
        15 if half & 15 != 0 => {
            let made = 4 - (half & 15).trailing_zeros() as u8;
            Instruction { makes_conditional: made, condition: Some((half >> 4 & 15) as u8), ..nothing(2) }
        }
        _ => nothing(2),
    }
}

/// What an immediate of twelve bits stands for. (A6.3.2)
fn expanded(bits: u32) -> u32 {
    let byte = bits & 0xff;
    match bits >> 8 {
        0 => byte,
        1 => byte << 16 | byte,
        2 => byte << 24 | byte << 8,
        3 => byte << 24 | byte << 16 | byte << 8 | byte,
        _ => (byte & 0x7f | 0x80).rotate_right(bits >> 7),
    }
}

fn wide(high: u32, low: u32) -> Instruction {
    let (rn, rt, rd) = ((high & 15) as u8, (low >> 12) as u8, (low >> 8 & 15) as u8);
    match high >> 9 & 15 {
        // ldm, stm; pairs and exclusive ones; tables of branches.
        0b0100 => several(high, low),
        0b0101 => shifted(high, low),
        // Of coprocessors: vpush, vpop, and moves to general registers.
        0b0110 | 0b0111 | 0b1110 | 0b1111 if high >> 10 & 3 == 3 => coprocessor(high, low),
        _ if high >> 11 == 0b11110 => {
            if low & 0x8000 != 0 {
                return control(high, low);
            }
            let bits = (high >> 10 & 1) << 11 | (low >> 12 & 7) << 8 | low & 0xff;
            let value = if high >> 9 & 1 == 0 { expanded(bits) } else { bits } as i32;
            let sum = |value: i32| match rn {
                PC => Effect::Write(rd),
                _ => Effect::Add { to: rd, from: rn, value },
            };
            let sets_flags_alone = rd == PC;
            one(
                4,
                match (high >> 9 & 1, high >> 5 & 15) {
                    // Comparisons and tests.
                    (0, 0 | 4 | 8 | 13) if sets_flags_alone => return nothing(4),
                    (0, 2) if rn == PC => Effect::Set { to: rd, value },
                    (0, 3) if rn == PC => Effect::Set { to: rd, value: !value },
                    (0, 8) | (1, 0) => sum(value),
                    (0, 13) | (1, 5) => sum(value.wrapping_neg()),
                    // movw
                    (1, 2) => Effect::Set { to: rd, value: value | ((high & 15) << 12) as i32 },
                    _ => Effect::Write(rd),
                },
            )
        }
        // Loads and stores of single registers.
        0b1100 => single(high, low, rn, rt),
        // Arithmetic with registers; multiplications, whose long forms write two.
        0b1101 if high >> 7 & 3 == 3 => {
            Instruction { effects: [Some(Effect::Write(rd)), Some(Effect::Write(rt))], ..nothing(4) }
        }
        0b1101 => one(4, Effect::Write(rd)),
        _ => nothing(4),
    }
}

/// `ldm`, `stm`, `ldrd`, `strd`, exclusive accesses and `tbb`, `tbh`.
fn several(high: u32, low: u32) -> Instruction {
    let rn = (high & 15) as u8;
    let (rt, rt2) = ((low >> 12) as u8, (low >> 8 & 15) as u8);
    let (loads, writes_back) = (high >> 4 & 1 != 0, high >> 5 & 1 != 0);
    let list = low as u16;
    if high >> 6 & 1 == 0 {
        let size = 4 * list.count_ones() as i32;
        return match (high, high >> 7 & 3) {
            (0xe92d, _) => push(4, list),
            (0xe8bd, _) => pop(4, list),
            (_, form) => {
                let offset = if form == 2 { -size } else { 0 };
                let value = if form == 2 { -size } else { size };
                let first = match loads {
                    true => Effect::LoadList { list: list & !(1 << PC), base: rn, offset },
                    false => Effect::StoreList { list, base: rn, offset },
                };
                let second = writes_back.then_some(Effect::Add { to: rn, from: rn, value });
                let flow = if loads && list >> PC & 1 != 0 { Flow::Return } else { Flow::Next };
                Instruction { effects: [Some(first), second], ..Instruction::of(4, flow) }
            }
        };
    }
    let (indexes, adds) = (high >> 8 & 1 != 0, high >> 7 & 1 != 0);
    if !indexes && !writes_back {
        // tbb, tbh; exclusive loads and stores, whose results are in temporaries or in registers that are saved.
        return match (high & 0xfff0, low & 0xfff0) {
            (0xe8d0, 0xf000) => Instruction::of(4, Flow::Table(1)),
            (0xe8d0, 0xf010) => Instruction::of(4, Flow::Table(2)),
            (0xe8d0, _) => Instruction { effects: [Some(Effect::Write(rt)), Some(Effect::Write(rt2))], ..nothing(4) },
            (0xe850, _) => one(4, Effect::Write(rt)),
            (0xe840, _) => one(4, Effect::Write(rt2)),
            _ => one(4, Effect::Write((low & 15) as u8)),
        };
    }
    let bytes = (low & 0xff) as i32 * 4;
    let bytes = if adds { bytes } else { -bytes };
    let offset = if indexes { bytes } else { 0 };
    pair(loads, (rt, rt2), rn, offset, writes_back.then_some(bytes))
}

/// Two registers side by side, and what the base changes by.
pub(super) fn pair(loads: bool, registers: (u8, u8), base: u8, offset: i32, change: Option<i32>) -> Instruction {
    let (first, second) = registers;
    let list = 1u16 << first | 1 << second;
    // A list goes upwards.
    if first > second || (change.is_some() && list >> base & 1 != 0) {
        return Instruction { effects: [Some(Effect::Write(first)), Some(Effect::Write(second))], ..nothing(4) };
    }
    let change = change.map(|value| Effect::Add { to: base, from: base, value });
    let effects = match (loads, change) {
        (true, change) => [Some(Effect::LoadList { list, base, offset }), change],
        (false, None) => [Some(Effect::StoreList { list, base, offset }), None],
        // What is stored lies where the base points to then.
        (false, Some(change)) if offset != 0 => [Some(change), Some(Effect::StoreList { list, base, offset: 0 })],
        (false, Some(change)) => [Some(Effect::StoreList { list, base, offset: 0 }), Some(change)],
    };
    Instruction { effects, ..nothing(4) }
}

/// One register, with every form of address.
pub(super) fn indexed(
    bytes: usize,
    loads: bool,
    register: u8,
    base: u8,
    offset: i32,
    change: Option<i32>,
) -> Instruction {
    let flow = if loads && register == PC { Flow::Indirect } else { Flow::Next };
    let is_pop = loads && register == PC && base == SP && change.is_some();
    let flow = if is_pop { Flow::Return } else { flow };
    let access = (register != PC).then(|| memory(loads, register, base, offset));
    let change = change.map(|value| Effect::Add { to: base, from: base, value });
    let effects = match (loads, offset != 0, change) {
        (false, true, Some(change)) => [Some(change), Some(memory(false, register, base, 0))],
        (_, _, change) => [access, change],
    };
    Instruction { effects, ..Instruction::of(bytes, flow) }
}

fn single(high: u32, low: u32, base: u8, register: u8) -> Instruction {
    let loads = high >> 4 & 1 != 0;
    let is_word = high >> 5 & 3 == 2 && high >> 8 & 1 == 0;
    if !is_word || base == PC {
        return match (loads, is_word && register == PC) {
            (_, true) => Instruction::of(4, Flow::Switch),
            (true, _) if register != PC => one(4, Effect::Write(register)),
            _ if low & 0x900 == 0x900 && high >> 7 & 1 == 0 => one(4, Effect::Write(base)),
            _ => nothing(4),
        };
    }
    if high >> 7 & 1 != 0 {
        return indexed(4, loads, register, base, (low & 0xfff) as i32, None);
    }
    if low & 0x800 == 0 {
        // By a register.
        return match (loads, register) {
            (true, PC) => Instruction::of(4, Flow::Indirect),
            (true, _) => one(4, Effect::Write(register)),
            (false, _) => nothing(4),
        };
    }
    let bytes = (low & 0xff) as i32;
    let bytes = if low & 0x200 != 0 { bytes } else { -bytes };
    let (indexes, writes_back) = (low & 0x400 != 0, low & 0x100 != 0);
    indexed(4, loads, register, base, if indexes { bytes } else { 0 }, writes_back.then_some(bytes))
}

/// Arithmetic with a shifted register.
fn shifted(high: u32, low: u32) -> Instruction {
    let (rn, rd, rm) = ((high & 15) as u8, (low >> 8 & 15) as u8, (low & 15) as u8);
    let is_plain = low & 0x70f0 == 0;
    one(
        4,
        match high >> 5 & 15 {
            0 | 4 | 8 | 13 if rd == PC => return nothing(4),
            2 if rn == PC && is_plain => Effect::Add { to: rd, from: rm, value: 0 },
            8 if is_plain => Effect::Sum { to: rd, a: rn, b: rm, minus: false },
            13 if is_plain => Effect::Sum { to: rd, a: rn, b: rm, minus: true },
            _ => Effect::Write(rd),
        },
    )
}

/// `vpush`, `vpop` and moves from coprocessors, the same in both sets.
pub(super) fn coprocessor(high: u32, low: u32) -> Instruction {
    let bytes = (low & 0xff) as i32 * 4;
    let (is_vector, rt) = (low >> 9 & 7 == 5, (low >> 12) as u8);
    match high & 0x0fbf {
        // vpush and vpop; the bit that is left out chooses among the registers.
        0x0d2d if is_vector => one(4, Effect::Add { to: SP, from: SP, value: -bytes }),
        0x0cbd if is_vector => one(4, Effect::Add { to: SP, from: SP, value: bytes }),
        // Others that change their base.
        _ if high & 0x0e20 == 0x0c20 => one(4, Effect::Write((high & 15) as u8)),
        // mrc, vmov
        _ if high & 0x0f10 == 0x0e10 && low & 0x10 != 0 && rt != PC => one(4, Effect::Write(rt)),
        _ if high & 0x0ff0 == 0x0c50 => {
            let effects = [Some(Effect::Write(rt)), Some(Effect::Write((high & 15) as u8))];
            Instruction { effects, ..nothing(4) }
        }
        _ => nothing(4),
    }
}

/// Branches, calls and barriers.
fn control(high: u32, low: u32) -> Instruction {
    match (low >> 14 & 1, low >> 12 & 1) {
        // bl; blx leads to the other set.
        (1, 1) => Instruction::of(4, Flow::Call(Some(thumb_distance(high, low) + 4))),
        (1, _) => Instruction::of(4, Flow::Exchange(thumb_distance(high, low) + 4)),
        (_, 1) => branch(4, thumb_distance(high, low), false),
        _ if high >> 7 & 7 != 7 => {
            let bits = (high >> 10 & 1) << 20
                | (low >> 11 & 1) << 19
                | (low >> 13 & 1) << 18
                | (high & 0x3f) << 12
                | (low & 0x7ff) << 1;
            let condition = Some((high >> 6 & 15) as u8);
            Instruction { condition, ..branch(4, i64::from((bits << 11) as i32 >> 11), true) }
        }
        // udf
        _ if high >> 4 & 0x7f == 0x7f && low >> 12 == 10 => Instruction::of(4, Flow::Trap),
        // mrs
        _ if high & 0xffe0 == 0xf3e0 => one(4, Effect::Write((low >> 8 & 15) as u8)),
        _ => nothing(4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], effects: &[Effect], flow: Flow) {
        let found = decode(bytes).expect("whole");
        let known: alloc::vec::Vec<Effect> = found.effects.iter().flatten().copied().collect();
        assert_eq!((known.as_slice(), found.flow, found.bytes), (effects, flow, bytes.len()), "{bytes:x?}");
    }

    #[test]
    fn instructions_are_known_by_their_bytes() {
        let sp = |value| Effect::Add { to: SP, from: SP, value };
        let store = |list| Effect::StoreList { list, base: SP, offset: 0 };
        let load = |list| Effect::LoadList { list, base: SP, offset: 0 };
        check(&[0x80, 0xb5], &[sp(-8), store(1 << 7 | 1 << LR)], Flow::Next); // push {r7, lr}
        check(&[0x2d, 0xe9, 0xf0, 0x4f], &[sp(-36), store(0x4ff0)], Flow::Next); // push {r4-r11, lr}
        check(&[0xbd, 0xe8, 0xf0, 0x8f], &[load(0x0ff0), sp(36)], Flow::Return); // pop {r4-r11, pc}
        check(&[0x80, 0xbd], &[load(1 << 7), sp(8)], Flow::Return); // pop {r7, pc}
        check(&[0x82, 0xb0], &[sp(-8)], Flow::Next); // sub sp, #8
        check(&[0x02, 0xb0], &[sp(8)], Flow::Next); // add sp, #8
        check(&[0x00, 0xaf], &[Effect::Add { to: 7, from: SP, value: 0 }], Flow::Next); // add r7, sp, #0
        check(&[0xbd, 0x46], &[Effect::Add { to: SP, from: 7, value: 0 }], Flow::Next); // mov sp, r7
        check(&[0x08, 0x37], &[Effect::Add { to: 7, from: 7, value: 8 }], Flow::Next); // adds r7, #8
        check(&[0xad, 0xf5, 0x80, 0x5d], &[sp(-4096)], Flow::Next); // sub.w sp, sp, #4096
        check(&[0x0d, 0xf6, 0x04, 0x0d], &[sp(2052)], Flow::Next); // addw sp, sp, #2052
        check(&[0xad, 0xeb, 0x03, 0x0d], &[Effect::Sum { to: SP, a: SP, b: 3, minus: true }], Flow::Next); // sub.w sp, sp, r3
        check(&[0x4d, 0xf8, 0x04, 0xed], &[sp(-4), Effect::Store { register: LR, base: SP, offset: 0 }], Flow::Next); // str lr, [sp, #-4]!
        check(&[0x5d, 0xf8, 0x04, 0xfb], &[sp(4)], Flow::Return); // ldr pc, [sp], #4
        check(&[0x6d, 0xe9, 0x02, 0x45], &[sp(-8), store(0x30)], Flow::Next); // strd r4, r5, [sp, #-8]!
        check(&[0xcd, 0xe9, 0x02, 0x45], &[Effect::StoreList { list: 0x30, base: SP, offset: 8 }], Flow::Next); // strd r4, r5, [sp, #8]
        check(&[0x2d, 0xed, 0x04, 0x8b], &[sp(-16)], Flow::Next); // vpush {d8-d9}
        check(&[0xbd, 0xec, 0x04, 0x8b], &[sp(16)], Flow::Next); // vpop {d8-d9}
        check(&[0x70, 0x47], &[], Flow::Return); // bx lr
        check(&[0x98, 0x47], &[], Flow::Call(None)); // blx r3
        check(&[0x00, 0xf0, 0x02, 0xf8], &[], Flow::Call(Some(8))); // bl .+8
        check(&[0x00, 0xf0, 0x02, 0xe8], &[], Flow::Exchange(8)); // blx .+8
        check(&[0x02, 0xe0], &[], Flow::Branch { distance: 8, is_conditional: false }); // b .+8
        check(&[0x02, 0xd0], &[], Flow::Branch { distance: 8, is_conditional: true }); // beq .+8
        check(&[0x13, 0xb1], &[], Flow::Branch { distance: 8, is_conditional: true }); // cbz r3, .+8
        check(&[0x00, 0xf0, 0x02, 0x80], &[], Flow::Branch { distance: 8, is_conditional: true }); // beq.w .+8
        check(&[0x00, 0xf0, 0x02, 0xb8], &[], Flow::Branch { distance: 8, is_conditional: false }); // b.w .+8
        check(&[0xdf, 0xe8, 0x03, 0xf0], &[], Flow::Table(1)); // tbb [pc, r3]
        check(&[0xff, 0xde], &[], Flow::Trap); // udf
        check(&[0x00, 0xdf], &[Effect::SystemCall], Flow::Next); // svc 0
        assert_eq!(decode(&[0x18, 0xbf]).expect("whole").makes_conditional, 1); // it ne
        assert_eq!(decode(&[0x0c, 0xbf]).expect("whole").makes_conditional, 2); // ite eq
        assert_eq!(decode(&[0x2d, 0xe9]), None);
    }
}
