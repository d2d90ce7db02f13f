//! What an instruction of x86_64 does to addresses on the stack, and which registers it writes. (Intel 64 and IA-32 Architectures Software
//! Developer's Manual, volume 2)
//!
//! What is not known writes more registers here than it does: an address that is thought lost costs a rule, one that is believed wrongly a frame.

use crate::arch::x86::{Mode, Parts, jump, parts};

/// Registers by their numbers in instructions, which are not DWARF's.
pub(in super::super) const RAX: u8 = 0;
pub(in super::super) const RSP: u8 = 4;
pub(in super::super) const RBP: u8 = 5;
const RCX: u8 = 1;
const RDX: u8 = 2;
const RBX: u8 = 3;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// A place in memory that is counted from a register alone, without an index or a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Address {
    pub(in super::super) base: u8,
    pub(in super::super) displacement: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Effect {
    /// Of a register, or of what is no register.
    Push(Option<u8>),
    Pop(Option<u8>),
    /// Into memory, which is counted from the stack pointer behind the pop.
    PopInto(Address),
    /// mov, lea and add of constants: `to` becomes `from` plus so many bytes.
    Set {
        to: u8,
        from: u8,
        bytes: i64,
    },
    /// Eight bytes are loaded.
    Load {
        to: u8,
        from: Address,
    },
    /// Eight bytes are stored.
    Store {
        from: u8,
        to: Address,
    },
    Exchange(u8, u8),
    /// An address so many bytes behind the instruction's end.
    Place {
        to: u8,
        distance: i64,
    },
    /// Four bytes are loaded from a table that begins about there, and get a sign.
    Entry {
        to: u8,
        table: Address,
    },
    Add {
        to: u8,
        from: u8,
    },
    Leave,
    /// The registers of a mask become what is not known, and so does memory: so many bytes at an address.
    Write {
        registers: u16,
        memory: Option<(Address, i64)>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Flow {
    Next,
    /// Bytes from the instruction's own address to what is called, if it has that.
    Call(Option<i64>),
    /// Bytes from the instruction's own address, or also to the next.
    Branch {
        distance: i64,
        is_conditional: bool,
    },
    /// Bytes that are taken from the stack besides the return address.
    Return(u16),
    /// To what is in a register, or in memory.
    Anywhere(Option<u8>),
    /// Nowhere, or to what is not known.
    Ends,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) struct Instruction {
    pub(in super::super) bytes: usize,
    pub(in super::super) effect: Effect,
    pub(in super::super) flow: Flow,
}

impl Instruction {
    /// The registers that are others behind it.
    pub(in super::super) fn written(&self) -> u16 {
        match self.effect {
            Effect::Push(_) | Effect::PopInto(_) => mask(RSP),
            Effect::Pop(register) => mask(RSP) | register.map_or(0, mask),
            Effect::Leave => mask(RSP) | mask(RBP),
            Effect::Set { to, .. }
            | Effect::Load { to, .. }
            | Effect::Place { to, .. }
            | Effect::Entry { to, .. }
            | Effect::Add { to, .. } => mask(to),
            Effect::Exchange(one, other) => mask(one) | mask(other),
            Effect::Store { .. } => 0,
            Effect::Write { registers, .. } => registers,
        }
    }

    /// Whether the stack pointer is one of them; what calls and returns do to it does not count.
    pub(in super::super) fn moves_stack(&self) -> bool {
        self.written() & mask(RSP) != 0
    }
}

pub(in super::super) const fn mask(register: u8) -> u16 {
    1 << (register & 15)
}

const NOTHING: Effect = Effect::Write { registers: 0, memory: None };
const ALL: u16 = u16::MAX;
/// Bytes that `xsave` writes, at most: the processor tells how many.
const PROCESSOR_STATE: i64 = 1 << 14;

/// The operands that ModRM names.
#[derive(Clone, Copy)]
struct Operands {
    register: u8,
    /// The three bits of it that are a part of some opcodes.
    field: u8,
    /// The other one, if it is a register.
    other: Option<u8>,
    /// The same, if it is memory at a known distance from a register.
    memory: Option<Address>,
    /// What it would be without an index of words of four bytes, if it has one.
    table: Option<Address>,
    /// Bytes from the instruction's end, if it is counted from there.
    near: Option<i64>,
}

impl Operands {
    /// Of single bytes: without REX those of the numbers 4 to 7 are the second ones of the first four registers.
    fn of_bytes(self, rex: u8) -> Self {
        let whole = |register: u8| if rex == 0 { register & 3 } else { register };
        Self { register: whole(self.register), other: self.other.map(whole), ..self }
    }
}

/// Whether both operands of an opcode of one byte are single bytes.
fn is_of_bytes(opcode: u8) -> bool {
    let has_sizes = matches!(opcode, 0x00..=0x3f | 0x80..=0x8b | 0xc0..=0xc1 | 0xc6..=0xc7 | 0xd0..=0xd3 | 0xf6..=0xf7 | 0xfe..=0xff);
    has_sizes && opcode & 1 == 0
}

/// The prefixes that count: REX, or what VEX, EVEX say in its place.
struct Prefixes {
    rex: u8,
    /// The map of opcodes, of vector instructions with such a prefix.
    map: Option<u8>,
    /// The third operand of those.
    third: u8,
    /// Bytes of a vector.
    vector: i64,
    /// What stands for 66, f3 and f2.
    mandatory: u8,
}

pub(in super::super) fn decode(code: &[u8]) -> Option<Instruction> {
    let parts = parts(code, Mode::Bits64)?;
    let code = code.get(..parts.length)?;
    let flow = flow(code, &parts);
    let effect = effect(code, &parts).unwrap_or(Effect::Write { registers: unknown(code, &parts), memory: None });
    Some(Instruction { bytes: parts.length, effect, flow })
}

/// What an instruction may write of which nothing else is known: the stack pointer only if it is a push, a pop, or `enter`.
fn unknown(code: &[u8], parts: &Parts) -> u16 {
    match code.get(parts.opcode..).unwrap_or_default() {
        [0x50..=0x5f | 0x68 | 0x6a | 0x8f | 0x9c | 0x9d | 0xc8 | 0xc9, ..] | [0x0f, 0xa0 | 0xa1 | 0xa8 | 0xa9, ..] => {
            ALL
        }
        [0xff, modrm, ..] if modrm >> 3 & 7 == 6 => ALL,
        _ => ALL & !mask(RSP),
    }
}

fn flow(code: &[u8], parts: &Parts) -> Flow {
    if let Some(jump) = jump(code, parts) {
        let Some(distance) = jump.distance else { return Flow::Anywhere(in_register(code, parts)) };
        return Flow::Branch { distance: distance + parts.length as i64, is_conditional: jump.is_conditional };
    }
    match code.get(parts.opcode..).unwrap_or_default() {
        [0xe8, a, b, c, d, ..] => {
            Flow::Call(Some(i64::from(i32::from_le_bytes([*a, *b, *c, *d])) + parts.length as i64))
        }
        [0xff, modrm, ..] if matches!(modrm >> 3 & 7, 2 | 3) => Flow::Call(None),
        [0xc3, ..] => Flow::Return(0),
        [0xc2, low, high, ..] => Flow::Return(u16::from_le_bytes([*low, *high])),
        [0xca | 0xcb | 0xcc | 0xcd | 0xcf | 0xf4, ..] | [0x0f, 0x0b, ..] => Flow::Ends,
        _ => Flow::Next,
    }
}

/// The register that an instruction with a single operand names.
fn in_register(code: &[u8], parts: &Parts) -> Option<u8> {
    operands(code, parts, prefixes(code, parts).rex)?.other
}

fn prefixes(code: &[u8], parts: &Parts) -> Prefixes {
    let byte = |at: usize| code.get(parts.opcode + at).copied().unwrap_or(0);
    // The bits are inverted.
    let extended = |byte: u8| (!byte >> 7 & 1) << 2 | (!byte >> 6 & 1) << 1 | (!byte >> 5 & 1);
    let third = |byte: u8| !byte >> 3 & 15;
    let vector = |byte: u8| if byte & 4 == 0 { 16 } else { 32 };
    match byte(0) {
        0xc5 => {
            let rex = (!byte(1) >> 7 & 1) << 2;
            Prefixes { rex, map: Some(1), third: third(byte(1)), vector: vector(byte(1)), mandatory: byte(1) & 3 }
        }
        0xc4 => Prefixes {
            rex: extended(byte(1)),
            map: Some(byte(1) & 0x1f),
            third: third(byte(2)),
            vector: vector(byte(2)),
            mandatory: byte(2) & 3,
        },
        0x62 => Prefixes {
            rex: extended(byte(1)),
            map: Some(byte(1) & 7),
            third: third(byte(2)),
            vector: vector_bytes(code, parts),
            mandatory: byte(2) & 3,
        },
        _ => {
            let before = parts.opcode.checked_sub(1).and_then(|at| code.get(at)).copied().unwrap_or(0);
            Prefixes {
                rex: if before & 0xf0 == 0x40 { before } else { 0 },
                map: None,
                third: 0,
                vector: 16,
                mandatory: 0,
            }
        }
    }
}

fn operands(code: &[u8], parts: &Parts, rex: u8) -> Option<Operands> {
    let [modrm, rest @ ..] = code.get(parts.modrm?..)? else { return None };
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let field = modrm >> 3 & 7;
    let register = field | (rex & 4) << 1;
    if mode == 3 {
        let other = Some(rm | (rex & 1) << 3);
        return Some(Operands { register, field, other, memory: None, table: None, near: None });
    }
    let has_segment = code.iter().take(parts.opcode).any(|byte| matches!(byte, 0x64 | 0x65 | 0x67));
    let (base, rest, is_indexed, scale) = match (rm, rest) {
        // Without an index, its number is that of the stack pointer.
        (4, [sib, rest @ ..]) => (sib & 7, rest, (sib >> 3 & 7) != 4 || rex & 2 != 0, sib >> 6),
        _ => (rm, rest, false, 0),
    };
    let displacement = match (mode, rest) {
        (0, _) => 0,
        (1, [near, ..]) => i64::from(*near as i8),
        _ => i64::from(i32::from_le_bytes(*rest.first_chunk()?)),
    };
    // EVEX counts short ones in vectors.
    let is_scaled = mode == 1 && code.get(parts.opcode) == Some(&0x62);
    let displacement = if is_scaled { displacement * vector_bytes(code, parts) } else { displacement };
    let has_base = !has_segment && (mode != 0 || base != 5);
    let address = Address { base: base | (rex & 1) << 3, displacement };
    let near = (mode == 0 && rm == 5 && !has_segment).then(|| rest.first_chunk()).flatten();
    Some(Operands {
        register,
        field,
        other: None,
        memory: Some(address).filter(|_| has_base && !is_indexed),
        table: Some(address).filter(|_| has_base && is_indexed && scale == 2),
        near: near.map(|near| i64::from(i32::from_le_bytes(*near))),
    })
}

/// Bytes of a vector, by EVEX.
fn vector_bytes(code: &[u8], parts: &Parts) -> i64 {
    16 << (code.get(parts.opcode + 3).copied().unwrap_or(0) >> 5 & 3).min(2)
}

/// `None` where it may be anything.
fn effect(code: &[u8], parts: &Parts) -> Option<Effect> {
    let prefixes = prefixes(code, parts);
    let operands = operands(code, parts, prefixes.rex);
    if let Some(map) = prefixes.map {
        return vector(code, parts, &prefixes, map, operands);
    }
    match code.get(parts.opcode..)? {
        [0x0f, opcode, ..] => two_bytes(*opcode, code, parts, prefixes.rex, operands),
        [opcode, rest @ ..] => one_byte(*opcode, rest, code, parts, prefixes.rex, operands),
        [] => None,
    }
}

/// An instruction that writes the registers of the mask.
fn registers(registers: u16) -> Option<Effect> {
    Some(Effect::Write { registers, memory: None })
}

/// An instruction that writes its operand that may be memory of so many bytes.
fn operand(operands: Operands, bytes: i64) -> Option<Effect> {
    let memory = operands.memory.map(|address| (address, bytes));
    Some(Effect::Write { registers: operands.other.map_or(0, mask), memory })
}

/// An instruction that writes its operand that may be memory, and the registers of the mask.
fn operand_and(operands: Operands, others: u16) -> Option<Effect> {
    let memory = operands.memory.map(|address| (address, 16));
    Some(Effect::Write { registers: operands.other.map_or(0, mask) | others, memory })
}

fn one_byte(
    opcode: u8,
    rest: &[u8],
    code: &[u8],
    parts: &Parts,
    rex: u8,
    operands: Option<Operands>,
) -> Option<Effect> {
    const STRINGS: u16 = mask(RAX) | mask(RCX) | mask(RSI) | mask(RDI);
    let is_wide = rex & 8 != 0;
    let is_narrow = code.iter().take(parts.opcode).any(|byte| *byte == 0x66);
    let low = opcode & 7 | (rex & 1) << 3;
    let Some(named) = operands else {
        return match opcode {
            // Of two bytes.
            0x50..=0x5f | 0x68 | 0x6a | 0x9c | 0x9d | 0xc9 if is_narrow => None,
            0x50..=0x57 => Some(Effect::Push(Some(low))),
            0x58..=0x5f => Some(Effect::Pop(Some(low))),
            0x68 | 0x6a | 0x9c => Some(Effect::Push(None)),
            0x9d => Some(Effect::Pop(None)),
            0xc9 => Some(Effect::Leave),
            0x00..=0x3f if opcode >> 3 != 7 => registers(mask(RAX)),
            0x90 if rex & 1 == 0 => Some(NOTHING),
            0x90..=0x97 if is_wide => Some(Effect::Exchange(RAX, low)),
            0x90..=0x97 => registers(mask(RAX) | mask(low)),
            0x98 => registers(mask(RAX)),
            0x99 => registers(mask(RDX)),
            0xa4..=0xa7 | 0xaa..=0xaf => registers(STRINGS),
            // Of bytes, without REX the second one of the first four.
            0xb0..=0xb7 => registers(mask(low) | mask(opcode & 3)),
            0xb8..=0xbf => registers(mask(low)),
            0xe0..=0xe3 => registers(mask(RCX)),
            0x38..=0x3f | 0x70..=0x7f | 0x9b | 0xa8 | 0xa9 | 0xc2 | 0xc3 | 0xcc | 0xe8 | 0xe9 | 0xeb => Some(NOTHING),
            0xf4 | 0xf5 | 0xf8..=0xfd => Some(NOTHING),
            _ => None,
        };
    };
    let named = if is_of_bytes(opcode) { named.of_bytes(rex) } else { named };
    let field = named.field;
    let size = match opcode & 1 {
        0 => 1,
        _ if is_wide => 8,
        _ if is_narrow => 2,
        _ => 4,
    };
    match opcode {
        0x89 if is_wide => Some(match (named.other, named.memory) {
            (Some(to), _) => Effect::Set { to, from: named.register, bytes: 0 },
            (_, Some(to)) => Effect::Store { from: named.register, to },
            _ => NOTHING,
        }),
        0x8b if is_wide => match (named.other, named.memory) {
            (Some(from), _) => Some(Effect::Set { to: named.register, from, bytes: 0 }),
            (_, Some(from)) => Some(Effect::Load { to: named.register, from }),
            _ => registers(mask(named.register)),
        },
        0x8d if is_wide && let Some(Address { base, displacement: bytes }) = named.memory => {
            Some(Effect::Set { to: named.register, from: base, bytes })
        }
        0x8d if is_wide && let Some(distance) = named.near => Some(Effect::Place { to: named.register, distance }),
        0x63 if is_wide && let Some(table) = named.table => Some(Effect::Entry { to: named.register, table }),
        0x01 if is_wide && let Some(to) = named.other => Some(Effect::Add { to, from: named.register }),
        0x03 if is_wide && let Some(from) = named.other => Some(Effect::Add { to: named.register, from }),
        0x83 | 0x81
            if is_wide
                && matches!(field, 0 | 5)
                && let Some(to) = named.other =>
        {
            let bytes = match (opcode, rest) {
                (0x83, [_, near]) => i64::from(*near as i8),
                (_, [_, far @ ..]) => i64::from(i32::from_le_bytes(*far.first_chunk()?)),
                _ => return None,
            };
            Some(Effect::Set { to, from: to, bytes: if field == 0 { bytes } else { -bytes } })
        }
        0x87 if is_wide && let Some(other) = named.other => Some(Effect::Exchange(named.register, other)),
        0x86 | 0x87 => operand_and(named, mask(named.register)),
        0x38..=0x3b | 0x84 | 0x85 => Some(NOTHING),
        0x80..=0x83 if field == 7 => Some(NOTHING),
        0x00..=0x3f if opcode & 2 == 0 => operand(named, size),
        0x00..=0x3f | 0x63 | 0x69 | 0x6b | 0x8a | 0x8b | 0x8d => registers(mask(named.register)),
        0x80..=0x83 | 0x88 | 0x89 | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 => operand(named, size),
        // XOP, of which vectors' instructions write no general register.
        0x8f if rest.first().is_some_and(|next| next & 0x1f >= 8) => match rest {
            [map, _, 0x80..=0xff, ..] if map & 0x1f <= 9 => Some(NOTHING),
            _ => None,
        },
        0x8f if is_narrow => None,
        0x8f => Some(named.memory.map_or(Effect::Pop(named.other), Effect::PopInto)),
        0xf6 | 0xf7 => match field {
            0 | 1 => Some(NOTHING),
            2 | 3 => operand(named, size),
            _ => registers(mask(RAX) | mask(RDX)),
        },
        0xfe | 0xff if field < 2 => operand(named, size),
        0xff if field == 6 && is_narrow => None,
        0xff if field == 6 => Some(Effect::Push(named.other)),
        0xff => Some(NOTHING),
        // Of the floating point unit: its status, or what is in memory.
        0xd8..=0xdf => match (named.other, opcode, field) {
            (Some(_), ..) => registers(mask(RAX)),
            // fnstenv, fnsave
            (_, 0xd9, 6) => operand(named, 28),
            (_, 0xdd, 6) => operand(named, 108),
            _ => operand(named, 10),
        },
        _ => None,
    }
}

/// Behind 0f.
fn two_bytes(opcode: u8, code: &[u8], parts: &Parts, rex: u8, operands: Option<Operands>) -> Option<Effect> {
    const BY_ITSELF: u16 = mask(RAX) | mask(RCX) | mask(RDX) | mask(RBX);
    let low = opcode & 7 | (rex & 1) << 3;
    let Some(named) = operands else {
        return match opcode {
            0x0b | 0x77 | 0x80..=0x8f => Some(NOTHING),
            0x31 => registers(mask(RAX) | mask(RDX)),
            0xa2 => registers(BY_ITSELF),
            0xc8..=0xcf => registers(mask(low)),
            _ => None,
        };
    };
    let by_register = registers(mask(named.register));
    let third = parts.modrm.and_then(|at| code.get(at.checked_sub(1)?)).copied().unwrap_or(0);
    let has_prefix = |prefix: u8| code.iter().take(parts.opcode).any(|byte| *byte == prefix);
    // setcc, cmpxchg, xadd
    let named = if matches!(opcode, 0x90..=0x9f | 0xb0 | 0xc0) { named.of_bytes(rex) } else { named };
    match opcode {
        // xgetbv
        0x01 if named.register == 2 && named.other == Some(0) => registers(mask(RAX) | mask(RDX)),
        0x01 => operand_and(named, BY_ITSELF),
        // rdssp
        0x1e if has_prefix(0xf3) && named.register & 7 == 1 => operand(named, 0),
        // movq of vectors
        0x7e if has_prefix(0xf3) => Some(NOTHING),
        // movbe, movdiri: stores where they are not crc32
        0x38 if matches!(third, 0xf1 | 0xf6 | 0xf9) && !has_prefix(0xf2) => operand_and(named, mask(named.register)),
        0x38 if third >= 0xf0 => by_register,
        0x3a if matches!(third, 0x14..=0x17) => operand(named, 8),
        // pcmpestrm, pcmpestri, pcmpistrm, pcmpistri
        0x3a if matches!(third, 0x60..=0x63) => registers(mask(RCX)),
        0x38 | 0x3a => Some(NOTHING),
        0x2c | 0x2d | 0x40..=0x50 | 0xaf | 0xb6..=0xb8 | 0xbc..=0xbf | 0xc5 | 0xd7 => by_register,
        0x11 | 0x13 | 0x17 | 0x29 | 0x2b | 0x7f | 0xd6 | 0xe7 if named.other.is_some() => Some(NOTHING),
        0x11 | 0x13 | 0x17 | 0x29 | 0x2b | 0x7f | 0xc3 | 0xd6 | 0xe7 => operand(named, 16),
        0xb0 | 0xb1 => operand_and(named, mask(RAX)),
        0xc0 | 0xc1 => operand_and(named, mask(named.register)),
        // xsavec, xsaves
        0xc7 if matches!(named.field, 4 | 5) && named.memory.is_some() => operand(named, PROCESSOR_STATE),
        0xc7 => operand_and(named, mask(RAX) | mask(RDX)),
        0x7e => operand(named, 8),
        0x90..=0x9f => operand(named, 1),
        // fxsave; xsave, xsaveopt
        0xae if named.field == 0 && named.memory.is_some() => operand(named, 512),
        0xae if matches!(named.field, 4 | 6) && named.memory.is_some() => operand(named, PROCESSOR_STATE),
        0xa4 | 0xa5 | 0xab..=0xad | 0xae | 0xb3 | 0xbb => operand(named, 8),
        0xba if named.register & 7 == 4 => Some(NOTHING),
        0xba => operand(named, 8),
        0x0d | 0x10..=0x1f | 0x28..=0x2f | 0x51..=0x7d | 0xa3 | 0xc2 | 0xc4 | 0xc6 | 0xd0..=0xff => Some(NOTHING),
        _ => None,
    }
}

/// Vector instructions, of which few write a general register.
fn vector(code: &[u8], parts: &Parts, prefixes: &Prefixes, map: u8, operands: Option<Operands>) -> Option<Effect> {
    let Some(named) = operands else { return Some(NOTHING) };
    let opcode = *code.get(parts.modrm?.checked_sub(1)?)?;
    match (map, opcode) {
        // Of other prefixes these move and convert vectors.
        (1 | 5, 0x2c | 0x2d | 0x78 | 0x79) if prefixes.mandatory < 2 => Some(NOTHING),
        (1, 0x7e) if prefixes.mandatory == 2 => Some(NOTHING),
        (1 | 5, 0x2c | 0x2d | 0x50 | 0x78 | 0x79 | 0x93 | 0xc5 | 0xd7) | (3, 0xf0) => registers(mask(named.register)),
        // andn, bzhi, pdep, pext, bextr, sarx and the like; blsr and the like; mulx
        (2, 0xf2 | 0xf5 | 0xf7) => registers(mask(named.register)),
        (2, 0xf3) => registers(mask(prefixes.third)),
        (2, 0xf6) => registers(mask(named.register) | mask(prefixes.third)),
        (3, 0x60..=0x63) => registers(mask(RCX)),
        (1 | 5, 0x7e) | (3, 0x14..=0x17) => operand(named, 8),
        (1 | 5, 0x11 | 0x13 | 0x17 | 0x29 | 0x2b | 0x7f | 0x91 | 0xd6 | 0xe7)
        | (2, 0x10..=0x15 | 0x20..=0x25 | 0x2e | 0x2f | 0x30..=0x35 | 0x63 | 0x8a | 0x8b | 0x8e)
        | (3, 0x19 | 0x1b | 0x1d | 0x39 | 0x3b)
            if named.other.is_none() =>
        {
            operand(named, prefixes.vector)
        }
        (1..=3 | 5 | 6, _) => Some(NOTHING),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(base: u8, displacement: i64) -> Address {
        Address { base, displacement }
    }

    #[test]
    fn what_addresses_are_made_of_is_known() {
        let check = |code: &[u8], effect: Effect| assert_eq!(decode(code).map(|found| found.effect), Some(effect));
        check(&[0x41, 0x57], Effect::Push(Some(15)));
        check(&[0x9d], Effect::Pop(None));
        check(&[0x48, 0x89, 0xe0], Effect::Set { to: 0, from: 4, bytes: 0 });
        check(&[0x48, 0x8d, 0xac, 0x24, 0, 3, 0, 0], Effect::Set { to: 5, from: 4, bytes: 0x300 });
        check(&[0x48, 0x83, 0xec, 0x80], Effect::Set { to: 4, from: 4, bytes: 128 });
        check(&[0x4c, 0x87, 0xfc], Effect::Exchange(15, 4));
        check(&[0x48, 0x89, 0x44, 0x24, 24], Effect::Store { from: 0, to: at(4, 24) });
        check(&[0x49, 0x8b, 0x73, 0xf8], Effect::Load { to: 6, from: at(11, -8) });
    }

    #[test]
    fn registers_and_memory_that_are_written_are_told() {
        let check = |code: &[u8], registers: &[u8], memory: Option<(Address, i64)>| {
            let registers = registers.iter().fold(0, |all, register| all | mask(*register));
            assert_eq!(decode(code).map(|found| found.effect), Some(Effect::Write { registers, memory }), "{code:x?}");
        };
        // and rsp, -64; sub rsp, rcx; lea r10, [rsp + 8 * r9 - 0x118]
        check(&[0x48, 0x83, 0xe4, 0xc0], &[4], None);
        check(&[0x48, 0x29, 0xcc], &[4], None);
        check(&[0x4e, 0x8d, 0x94, 0xcc, 0xe8, 0xfe, 0xff, 0xff], &[10], None);
        // mul rbx; bswap r13d; lock cmpxchg [rcx], edx; cmp rax, rbx
        check(&[0x48, 0xf7, 0xe3], &[0, 2], None);
        check(&[0x41, 0x0f, 0xcd], &[13], None);
        check(&[0xf0, 0x0f, 0xb1, 0x11], &[0], Some((at(1, 0), 16)));
        check(&[0x48, 0x39, 0xd8], &[], None);
        // mov [rsp + 60], edx; vmovdqa [rsp + 32], ymm6; movaps [rsp + 128], xmm6; movaps xmm6, [rsp + 128]
        check(&[0x89, 0x54, 0x24, 60], &[], Some((at(4, 60), 4)));
        check(&[0xc5, 0xfd, 0x7f, 0x74, 0x24, 32], &[], Some((at(4, 32), 32)));
        check(&[0x0f, 0x29, 0xb4, 0x24, 128, 0, 0, 0], &[], Some((at(4, 128), 16)));
        check(&[0x0f, 0x28, 0xb4, 0x24, 128, 0, 0, 0], &[], None);
        // mulx r9, r8, rax; rorx r13d, r8d, 25; vprotd xmm1, xmm0, 7
        check(&[0xc4, 0x62, 0xbb, 0xf6, 0xc8], &[9, 8], None);
        check(&[0xc4, 0x43, 0x7b, 0xf0, 0xe8, 25], &[13], None);
        check(&[0x8f, 0xe8, 0x78, 0xc2, 0xc8, 7], &[], None);
        // pcmpistri xmm1, xmm0, 0; vpcmpestrm xmm1, xmm0, 0
        check(&[0x66, 0x0f, 0x3a, 0x63, 0xc8, 0], &[1], None);
        check(&[0xc4, 0xe3, 0x79, 0x60, 0xc8, 0], &[1], None);
        // xor ah, ah; mov bh, al; xor spl, spl; sete dh
        check(&[0x30, 0xe4], &[0], None);
        check(&[0x88, 0xc7], &[3], None);
        check(&[0x40, 0x30, 0xe4], &[4], None);
        check(&[0x0f, 0x94, 0xc6], &[2], None);
        // movbe [rsp + 8], rax; crc32 eax, dword [rsp + 8]; fxsave [rsp + 8]; fnsave [rsp + 8]
        check(&[0x48, 0x0f, 0x38, 0xf1, 0x44, 0x24, 8], &[0], Some((at(4, 8), 16)));
        check(&[0xf2, 0x0f, 0x38, 0xf1, 0x44, 0x24, 8], &[0], None);
        check(&[0x0f, 0xae, 0x44, 0x24, 8], &[], Some((at(4, 8), 512)));
        check(&[0xdd, 0x74, 0x24, 8], &[], Some((at(4, 8), 108)));
    }

    #[test]
    fn what_is_not_known_may_write_all_but_the_stack_pointer() {
        // sysenter
        let unknown = decode(&[0x0f, 0x34]).expect("an instruction");
        assert!(!unknown.moves_stack() && unknown.written() == !mask(RSP));
        // enter
        assert!(decode(&[0xc8, 0, 0, 0]).expect("an instruction").moves_stack());
        // pushw (%rdi); popw (%rsi); leavew: of two bytes
        for code in [&[0x66, 0xff, 0x37][..], &[0x66, 0x8f, 0x06], &[0x66, 0xc9]] {
            let found = decode(code).expect("an instruction");
            assert!(found.moves_stack() && matches!(found.effect, Effect::Write { .. }), "{code:x?}");
        }
    }
}
