//! Instructions of x86_64 that make and take down frames. (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2)

use super::super::x86;
use super::{Effect, Flow, Instruction};
use crate::arch::x86::{Mode, length};

/// DWARF number of the frame pointer.
const FP: u8 = 6;

/// Whether `jump` goes to an element of a table, or to what the instruction before it added up.
pub(super) fn is_switch(before: &[u8], jump: &[u8]) -> bool {
    let target = match jump {
        // jmp [table + 8 * register]
        [0xff, 0x24, index, ..] => return index >> 6 == 3,
        [0xff, modrm, ..] | [0x3e, 0xff, modrm, ..] if modrm >> 3 == 0x1c => modrm & 7,
        [0x41, 0xff, modrm, ..] | [0x3e, 0x41, 0xff, modrm, ..] if modrm >> 3 == 0x1c => modrm & 7 | 8,
        _ => return false,
    };
    // add to a register, of another.
    match before.last_chunk::<3>() {
        Some([rex @ 0x48..=0x4f, 0x01, modrm]) if modrm >> 6 == 3 => (modrm & 7 | (rex & 1) << 3) == target,
        Some([rex @ 0x48..=0x4f, 0x03, modrm]) if modrm >> 6 == 3 => (modrm >> 3 & 7 | (rex >> 2 & 1) << 3) == target,
        _ => false,
    }
}

/// What a frame is made by whose pages have to be touched one after the other: `mov eax, size; call ___chkstk_darwin`, which keeps all registers, and
/// `sub rsp, rax`. No number of registers that a call may have in eax is as large.
fn probed(before: &[u8]) -> Option<i64> {
    const PAGE: u32 = 4096;
    let [.., 0xb8, a, b, c, d, 0xe8, _, _, _, _] = before else { return None };
    let size = u32::from_le_bytes([*a, *b, *c, *d]);
    (size >= PAGE).then_some(i64::from(size))
}

/// The instruction that `code` begins with, behind `before`; `None` for what is none.
pub(super) fn decode(before: &[u8], code: &[u8]) -> Option<Instruction> {
    let bytes = length(code, Mode::Bits64)?;
    let code = code.get(..bytes)?;
    let near = |byte: &u8| i64::from(*byte as i8);
    let far = |bytes: &[u8]| bytes.first_chunk::<4>().map(|bytes| i64::from(i32::from_le_bytes(*bytes)));
    let next = Instruction::of(bytes, Flow::Next);
    let push = |register: Option<u8>| {
        let store = register.map(|register| Effect::Store(x86::dwarf(register), false, 0));
        Instruction::of(bytes, Flow::Next).doing(Effect::Move(-8), store, None)
    };
    let pop = |register: u8| Instruction::of(bytes, Flow::Next).doing(Effect::Pop(x86::dwarf(register)), None, None);
    let jump = |distance: i64, is_conditional| {
        Instruction::of(bytes, Flow::Branch { distance: distance + bytes as i64, is_conditional })
    };
    Some(match code {
        [opcode @ 0x50..=0x57] => push(Some(opcode - 0x50)),
        [0x41, opcode @ 0x50..=0x57] => push(Some(opcode - 0x50 + 8)),
        [0x68, ..] | [0x6a, _] => push(None),
        [0xff, modrm, ..] | [0x40..=0x4f, 0xff, modrm, ..] if modrm >> 3 & 7 == 6 => push(None),
        [opcode @ 0x58..=0x5f] => pop(opcode - 0x58),
        [0x41, opcode @ 0x58..=0x5f] => pop(opcode - 0x58 + 8),
        [0x8f, ..] | [0x40..=0x4f, 0x8f, ..] => next.doing(Effect::Move(8), None, None),
        [0x48, 0x83, 0xec, size] => next.doing(Effect::Move(-near(size)), None, None),
        [0x48, 0x83, 0xc4, size] => next.doing(Effect::Move(near(size)), None, None),
        [0x48, 0x81, 0xec, size @ ..] => next.doing(Effect::Move(-far(size)?), None, None),
        [0x48, 0x81, 0xc4, size @ ..] => next.doing(Effect::Move(far(size)?), None, None),
        // mov rbp, rsp; mov rsp, rbp; leave
        [0x48, 0x89, 0xe5] | [0x48, 0x8b, 0xec] => next.doing(Effect::SetFrame(0), None, None),
        [0x48, 0x89, 0xec] | [0x48, 0x8b, 0xe5] => next.doing(Effect::FromFrame(0), None, None),
        [0xc9] => next.doing(Effect::FromFrame(0), Some(Effect::Load(FP)), Some(Effect::Move(8))),
        // lea rsp, [rbp + x]; lea rsp, [rsp + x]
        [0x48, 0x8d, 0x65, offset] => next.doing(Effect::FromFrame(near(offset)), None, None),
        [0x48, 0x8d, 0xa5, offset @ ..] => next.doing(Effect::FromFrame(far(offset)?), None, None),
        [0x48, 0x8d, 0x64, 0x24, offset] => next.doing(Effect::Move(near(offset)), None, None),
        [0x48, 0x8d, 0xa4, 0x24, offset @ ..] => next.doing(Effect::Move(far(offset)?), None, None),
        [0x48, 0x29, 0xc4] | [0x48, 0x2b, 0xe0] if let Some(size) = probed(before) => {
            next.doing(Effect::Move(-size), None, None)
        }
        // Other arithmetic that ends in rsp: and, sub and add of a register, mov, lea, pop.
        [0x48, 0x83 | 0x81, modrm, ..] if modrm & 0xc7 == 0xc4 && modrm >> 3 & 7 != 7 => {
            next.doing(Effect::Lose, None, None)
        }
        [0x48 | 0x4c, 0x01 | 0x21 | 0x29 | 0x89, modrm] if modrm & 0xc7 == 0xc4 => next.doing(Effect::Lose, None, None),
        [0x48 | 0x49, 0x03 | 0x2b | 0x8b | 0x8d, modrm, ..] if modrm >> 3 & 7 == 4 => {
            next.doing(Effect::Lose, None, None)
        }
        [0xe8, ..] => Instruction::of(bytes, Flow::Call),
        [0xff, modrm, ..] | [0x40..=0x4f, 0xff, modrm, ..] if modrm >> 3 & 7 == 2 => Instruction::of(bytes, Flow::Call),
        [0xff, modrm, ..] | [0x40..=0x4f, 0xff, modrm, ..] if modrm >> 3 & 7 == 4 => {
            Instruction::of(bytes, Flow::Indirect)
        }
        [0xeb, distance] => jump(near(distance), false),
        [0xe9, distance @ ..] => jump(far(distance)?, false),
        [0x70..=0x7f | 0xe0..=0xe3, distance] => jump(near(distance), true),
        [0x0f, 0x80..=0x8f, distance @ ..] => jump(far(distance)?, true),
        [0xc3] | [0xc2, ..] | [0xf2 | 0xf3, 0xc3] | [0x0f, 0x0b] | [0xcc] | [0xf4] => {
            Instruction::of(bytes, Flow::Ends)
        }
        _ => next,
    })
}
