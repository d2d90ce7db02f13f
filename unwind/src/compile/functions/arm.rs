//! ARM instructions that make and take down frames, and where instructions lead. (ARM Architecture Reference Manual for ARMv7-A,
//! chapter A5)

use super::instruction::{Flow, Instruction};
use super::state::Effect;
use super::thumb::{coprocessor, indexed, pair, pop, push};

const LR: u8 = 14;
const PC: u8 = 15;

/// The instruction that `code` begins with; `None` where it is cut.
pub(super) fn decode(code: &[u8]) -> Option<Instruction> {
    let word = u32::from_le_bytes(*code.first_chunk::<4>()?);
    if word >> 28 == 15 {
        // blx, to half words; the others do nothing to general registers.
        let distance = i64::from((word << 8) as i32 >> 6) + i64::from(word >> 24 & 1) * 2 + 8;
        let flow = if word >> 25 & 7 == 5 { Flow::Exchange(distance) } else { Flow::Next };
        return Some(Instruction::of(4, flow));
    }
    let is_conditional = word >> 28 != 14;
    let instruction = Instruction { literal: literal(word), ..plain(word) };
    let condition = is_conditional.then_some((word >> 28) as u8);
    Some(match instruction.flow {
        Flow::Branch { distance, .. } => {
            Instruction { condition, ..Instruction::of(4, Flow::Branch { distance, is_conditional }) }
        }
        _ => Instruction { is_conditional, condition, ..instruction },
    })
}

/// Where `ldr` and `vldr` load constants from.
fn literal(word: u32) -> Option<i32> {
    let distance = match word >> 16 & 0xf7f {
        0x51f if word >> 12 & 15 != u32::from(PC) => word & 0xfff,
        0xd1f | 0xd5f if word >> 9 & 7 == 5 => (word & 0xff) * 4,
        _ => return None,
    } as i32;
    Some(if word >> 23 & 1 != 0 { distance } else { -distance } + 8)
}

fn plain(word: u32) -> Instruction {
    let field = |at: u32| (word >> at & 15) as u8;
    let (rn, rd, rm) = (field(16), field(12), field(0));
    let nothing = Instruction::of(4, Flow::Next);
    match word >> 25 & 7 {
        0 | 1 if word & 0x0fff_ffd0 == 0x012f_ff10 => match word >> 5 & 1 {
            1 => Instruction::of(4, Flow::Call(None)),
            _ => Instruction::of(4, if rm == LR { Flow::Return } else { Flow::Indirect }),
        },
        // Pairs, half words and bytes; multiplications.
        0 if word & 0x90 == 0x90 => extra(word, rn, rd),
        0 | 1 => arithmetic(word, rn, rd, rm),
        // udf and media instructions.
        3 if word & 0x0ff0_00f0 == 0x07f0_00f0 => Instruction::of(4, Flow::Trap),
        3 if word & 0x10 != 0 => Instruction { effects: [Some(Effect::Write(rd)), Some(Effect::Write(rn))], ..nothing },
        2 | 3 => {
            let (loads, is_byte) = (word >> 20 & 1 != 0, word >> 22 & 1 != 0);
            let (indexes, writes_back) = (word >> 24 & 1 != 0, word >> 21 & 1 != 0 || word >> 24 & 1 == 0);
            if word >> 25 & 1 != 0 || is_byte || rn == PC {
                let flow = match (loads && rd == PC, rn == PC) {
                    (true, true) => Flow::Switch,
                    (true, false) => Flow::Indirect,
                    _ => Flow::Next,
                };
                let write = (loads && rd != PC).then_some(Effect::Write(rd));
                return Instruction {
                    effects: [write, writes_back.then_some(Effect::Write(rn))],
                    ..Instruction::of(4, flow)
                };
            }
            let bytes = (word & 0xfff) as i32;
            let bytes = if word >> 23 & 1 != 0 { bytes } else { -bytes };
            indexed(4, loads, rd, rn, if indexes { bytes } else { 0 }, writes_back.then_some(bytes))
        }
        4 => several(word, rn),
        5 => {
            let distance = i64::from((word << 8) as i32 >> 6) + 8;
            let links = word >> 24 & 1 != 0;
            let flow =
                if links { Flow::Call(Some(distance)) } else { Flow::Branch { distance, is_conditional: false } };
            Instruction::of(4, flow)
        }
        7 if word >> 24 & 15 == 15 => Instruction::doing(4, Effect::SystemCall),
        6 | 7 => coprocessor(word >> 16, word & 0xffff),
        _ => nothing,
    }
}

fn several(word: u32, rn: u8) -> Instruction {
    let list = word as u16;
    let (loads, writes_back) = (word >> 20 & 1 != 0, word >> 21 & 1 != 0);
    let size = 4 * list.count_ones() as i32;
    match word >> 16 & 0xfff {
        0x92d => return push(4, list),
        0x8bd => return pop(4, list),
        _ => {}
    }
    // Where the lowest word lies: after or before the base, upwards or downwards.
    let (offset, value) = match word >> 23 & 3 {
        0 => (4 - size, -size),
        1 => (0, size),
        2 => (-size, -size),
        _ => (4, size),
    };
    let first = match loads {
        true => Effect::LoadList { list: list & !(1 << PC), base: rn, offset },
        false => Effect::StoreList { list, base: rn, offset },
    };
    let second = writes_back.then_some(Effect::Add { to: rn, from: rn, value });
    let flow = if loads && list >> PC & 1 != 0 { Flow::Return } else { Flow::Next };
    Instruction { effects: [Some(first), second], ..Instruction::of(4, flow) }
}

fn extra(word: u32, rn: u8, rd: u8) -> Instruction {
    let nothing = Instruction::of(4, Flow::Next);
    let both = |a: u8, b: u8| Instruction { effects: [Some(Effect::Write(a)), Some(Effect::Write(b))], ..nothing };
    let kind = word >> 5 & 3;
    if kind == 0 {
        // Multiplications; exclusive accesses.
        return both(rn, rd);
    }
    let loads = word >> 20 & 1 != 0;
    let (indexes, writes_back) = (word >> 24 & 1 != 0, word >> 21 & 1 != 0 || word >> 24 & 1 == 0);
    // ldrd and strd by a distance.
    if !loads && kind >= 2 && word >> 22 & 1 != 0 && rd & 1 == 0 && rd < LR {
        let bytes = ((word >> 4 & 0xf0) | word & 15) as i32;
        let bytes = if word >> 23 & 1 != 0 { bytes } else { -bytes };
        let offset = if indexes { bytes } else { 0 };
        return pair(kind == 2, (rd, rd + 1), rn, offset, writes_back.then_some(bytes));
    }
    let write = (loads || kind == 2).then_some(Effect::Write(rd));
    Instruction { effects: [write, writes_back.then_some(Effect::Write(rn))], ..nothing }
}

fn arithmetic(word: u32, rn: u8, rd: u8, rm: u8) -> Instruction {
    let nothing = Instruction::of(4, Flow::Next);
    let is_immediate = word >> 25 & 1 != 0;
    let is_plain = word & 0xff0 == 0;
    let value = (word & 0xff).rotate_right((word >> 8 & 15) * 2) as i32;
    let operation = word >> 21 & 15;
    let sets_flags = word >> 20 & 1 != 0;
    let wide = (word >> 4 & 0xf000 | word & 0xfff) as i32;
    let effect = match (operation, is_immediate) {
        // movw, movt
        (8, true) if !sets_flags => Effect::Set { to: rd, value: wide },
        (10, true) if !sets_flags => Effect::Write(rd),
        // Comparisons; without flags, moves of status and hints.
        (8..=11, _) if sets_flags || rd == PC => return nothing,
        (8..=11, _) => Effect::Write(rd),
        (13, false) if is_plain && rd == PC => {
            return Instruction::of(4, if rm == LR { Flow::Return } else { Flow::Indirect });
        }
        _ if rd == PC => return Instruction::of(4, if rn == PC { Flow::Switch } else { Flow::Indirect }),
        (4, true) if rn != PC => Effect::Add { to: rd, from: rn, value },
        (2, true) if rn != PC => Effect::Add { to: rd, from: rn, value: value.wrapping_neg() },
        (4, false) if is_plain => Effect::Sum { to: rd, a: rn, b: rm, minus: false },
        (2, false) if is_plain => Effect::Sum { to: rd, a: rn, b: rm, minus: true },
        (13, true) => Effect::Set { to: rd, value },
        (15, true) => Effect::Set { to: rd, value: !value },
        (13, false) if is_plain => Effect::Add { to: rd, from: rm, value: 0 },
        _ => Effect::Write(rd),
    };
    Instruction::doing(4, effect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_known_by_their_words() {
        const SP: u8 = 13;
        let check = |word: u32, effects: &[Effect], flow: Flow| {
            let found = decode(&word.to_le_bytes()).expect("whole");
            let known: alloc::vec::Vec<Effect> = found.effects.iter().flatten().copied().collect();
            assert_eq!((known.as_slice(), found.flow), (effects, flow), "{word:x}");
        };
        let sp = |value| Effect::Add { to: SP, from: SP, value };
        let store = |list| Effect::StoreList { list, base: SP, offset: 0 };
        let load = |list| Effect::LoadList { list, base: SP, offset: 0 };
        check(0xe92d_4800, &[sp(-8), store(0x4800)], Flow::Next); // push {r11, lr}
        check(0xe8bd_8800, &[load(0x0800), sp(8)], Flow::Return); // pop {r11, pc}
        check(0xe52d_e004, &[sp(-4), Effect::Store { register: LR, base: SP, offset: 0 }], Flow::Next); // push {lr}
        check(0xe49d_f004, &[sp(4)], Flow::Return); // pop {pc}
        check(0xe24d_d010, &[sp(-16)], Flow::Next); // sub sp, sp, #16
        check(0xe24d_da01, &[sp(-4096)], Flow::Next); // sub sp, sp, #4096
        check(0xe28d_b004, &[Effect::Add { to: 11, from: SP, value: 4 }], Flow::Next); // add r11, sp, #4
        check(0xe24b_d004, &[Effect::Add { to: SP, from: 11, value: -4 }], Flow::Next); // sub sp, r11, #4
        check(0xe1a0_d00b, &[Effect::Add { to: SP, from: 11, value: 0 }], Flow::Next); // mov sp, r11
        check(0xe16d_40f8, &[sp(-8), store(0x30)], Flow::Next); // strd r4, [sp, #-8]!
        check(0xe12f_ff1e, &[], Flow::Return); // bx lr
        check(0xe12f_ff33, &[], Flow::Call(None)); // blx r3
        check(0xeb00_0000, &[], Flow::Call(Some(8))); // bl .+8
        check(0xfb00_0000, &[], Flow::Exchange(10)); // blx .+10
        check(0x0a00_0000, &[], Flow::Branch { distance: 8, is_conditional: true }); // beq .+8
        check(0xea00_0000, &[], Flow::Branch { distance: 8, is_conditional: false }); // b .+8
        check(0xed2d_8b04, &[sp(-16)], Flow::Next); // vpush {d8-d9}
        check(0xe3a0_3001, &[Effect::Set { to: 3, value: 1 }], Flow::Next); // mov r3, #1
        check(0xe7f0_00f0, &[], Flow::Trap); // udf
        check(0xef00_0000, &[Effect::SystemCall], Flow::Next); // svc 0
        assert!(decode(&0x012f_ff1e_u32.to_le_bytes()).expect("whole").is_conditional); // bxeq lr
    }
}
