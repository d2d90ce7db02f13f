//! How long an instruction is. (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 and appendix A; AMD64
//! Architecture Programmer's Manual, volume 3, for XOP)

/// How the processor reads instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// IA-32.
    Bits32,
    /// AMD64.
    Bits64,
}

/// No instruction is longer.
const LONGEST: usize = 15;

/// What follows an opcode.
#[derive(Clone, Copy)]
struct Operands {
    modrm: bool,
    immediate: usize,
}

const fn plain(immediate: usize) -> Option<Operands> {
    Some(Operands { modrm: false, immediate })
}

const fn modrm(immediate: usize) -> Option<Operands> {
    Some(Operands { modrm: true, immediate })
}

/// Bytes of the instruction at the front of `code`; `None` for what is none in this mode, or is cut. Addresses of 16 bits, which no
/// compiler makes, are not read.
pub(crate) fn length(code: &[u8], mode: Mode) -> Option<usize> {
    parts(code, mode).map(|parts| parts.length)
}

/// Where the parts of an instruction begin, in bytes from its first one.
pub(crate) struct Parts {
    pub(crate) opcode: usize,
    /// ModRM, of an instruction that has it.
    pub(crate) modrm: Option<usize>,
    pub(crate) length: usize,
}

/// The parts of the instruction at the front of `code`, as [`length`] tells them.
#[inline(never)]
pub(crate) fn parts(code: &[u8], mode: Mode) -> Option<Parts> {
    let code = code.get(..code.len().min(LONGEST)).unwrap_or_default();
    let is_prefix =
        |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3);
    let prefixes = code.iter().take_while(is_prefix).count();
    let has = |prefix: u8| code.iter().take(prefixes).any(|byte| *byte == prefix);
    let is_32 = mode == Mode::Bits32;
    if is_32 && has(0x67) {
        return None;
    }
    let rex = code.get(prefixes).copied().filter(|byte| byte & 0xf0 == 0x40 && !is_32);
    let at = prefixes + usize::from(rex.is_some());
    let is_wide = rex.is_some_and(|rex| rex & 8 != 0);
    let byte = |at: usize| code.get(at).copied();
    // Bytes of an operand of 16 or 32 bits.
    let z = if has(0x66) && !is_wide { 2 } else { 4 };
    // With an operand in memory these are instructions of IA-32, that are not vectors'.
    let is_vector = !is_32 || byte(at + 1).is_some_and(|next| next >> 6 == 3);
    let (opcode_end, operands) = match byte(at)? {
        0xc4 | 0xc5 | 0x62 if !is_vector => (at + 1, modrm(0)?),
        0xc5 => (at + 3, vector(1, byte(at + 2)?)?),
        0xc4 => (at + 4, vector(byte(at + 1)? & 0x1f, byte(at + 3)?)?),
        0x62 => (at + 5, vector(byte(at + 1)? & 7, byte(at + 4)?)?),
        // XOP, told from `pop` by what would be its operand.
        0x8f if byte(at + 1)? & 0x1f >= 8 => (at + 4, xop(byte(at + 1)? & 0x1f)?),
        0x0f => match byte(at + 1)? {
            0x38 => (at + 3, modrm(0)?),
            0x3a => (at + 3, modrm(1)?),
            opcode => (at + 2, two_bytes(opcode)?),
        },
        opcode if is_32 && let Some(operands) = one_byte_of_32(opcode, z) => (at + 1, operands),
        opcode => (at + 1, one_byte(opcode, byte(at + 1), z, is_wide, has(0x67))?),
    };
    let address = if operands.modrm { memory(code.get(opcode_end..)?)? } else { 0 };
    let length = opcode_end + address + operands.immediate;
    let modrm = operands.modrm.then_some(opcode_end);
    (length <= code.len()).then_some(Parts { opcode: at, modrm, length })
}

/// `next` is the byte behind the opcode.
fn one_byte(opcode: u8, next: Option<u8>, z: usize, is_wide: bool, short_address: bool) -> Option<Operands> {
    match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => modrm(0),
            4 => plain(1),
            5 => plain(z),
            _ => None,
        },
        0x50..=0x5f | 0x6c..=0x6f | 0x90..=0x99 | 0x9b..=0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => plain(0),
        0x63 | 0x84..=0x8f | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe | 0xff => modrm(0),
        0x68 | 0xa9 => plain(z),
        0x69 | 0x81 | 0xc7 => modrm(z),
        0x6a | 0x70..=0x7f | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe0..=0xe7 | 0xeb => plain(1),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => modrm(1),
        0xa0..=0xa3 => plain(if short_address { 4 } else { 8 }),
        0xb8..=0xbf => plain(if is_wide { 8 } else { z }),
        0xc2 | 0xca => plain(2),
        0xc8 => plain(3),
        0xc3 | 0xc9 | 0xcb | 0xcc | 0xcf | 0xd7 | 0xec..=0xef | 0xf1 | 0xf4 | 0xf5 | 0xf8..=0xfd => plain(0),
        0xe8 | 0xe9 => plain(4),
        // `test` has an operand that its neighbours lack.
        0xf6 => modrm(usize::from(next? & 0x38 < 0x10)),
        0xf7 => modrm(if next? & 0x38 < 0x10 { z } else { 0 }),
        _ => None,
    }
}

/// What means something else, or nothing, in 64-bit mode.
fn one_byte_of_32(opcode: u8, z: usize) -> Option<Operands> {
    match opcode {
        // push and pop of segments, adjustments of decimals; inc and dec; pusha, popa, into, salc
        0x00..=0x3f if opcode & 7 >= 6 => plain(0),
        0x40..=0x4f | 0x60 | 0x61 | 0xce | 0xd6 => plain(0),
        0x82 => modrm(1),
        // Far calls and jumps.
        0x9a | 0xea => plain(z + 2),
        0xa0..=0xa3 => plain(4),
        0xd4 | 0xd5 => plain(1),
        _ => None,
    }
}

/// Behind 0f.
fn two_bytes(opcode: u8) -> Option<Operands> {
    match opcode {
        0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39..=0x3f => None,
        0x05..=0x09 | 0x0b | 0x0e | 0x30..=0x37 | 0x77 | 0xa0..=0xa2 | 0xa8..=0xaa | 0xc8..=0xcf => plain(0),
        0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => modrm(1),
        0x80..=0x8f => plain(4),
        _ => modrm(0),
    }
}

/// Behind the prefixes of VEX and EVEX: the map of opcodes, and the opcode.
fn vector(map: u8, opcode: u8) -> Option<Operands> {
    match (map, opcode) {
        (1, 0x77) => plain(0),
        (1, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6) | (3, _) => modrm(1),
        (1 | 2 | 5 | 6, _) => modrm(0),
        _ => None,
    }
}

fn xop(map: u8) -> Option<Operands> {
    match map {
        8 => modrm(1),
        9 => modrm(0),
        10 => modrm(4),
        _ => None,
    }
}

/// Bytes of ModRM, SIB and displacement.
fn memory(code: &[u8]) -> Option<usize> {
    let modrm = *code.first()?;
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let sib = mode != 3 && rm == 4;
    let base = if sib { *code.get(1)? & 7 } else { rm };
    let displacement = match mode {
        0 if base == 5 => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    Some(1 + usize::from(sib) + displacement)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::string::String;
    use std::vec::Vec;

    #[test]
    fn instructions_are_as_long_as_the_manuals_say() {
        let check = |code: &[u8]| {
            assert_eq!(length(code, Mode::Bits64), Some(code.len()), "{code:x?}");
            let cut = code.get(..code.len() - 1).expect("not empty");
            assert_eq!(length(cut, Mode::Bits64), None, "{cut:x?}");
        };
        check(&[0x55]); // push rbp
        check(&[0x41, 0x5c]); // pop r12
        check(&[0x48, 0x89, 0xe5]); // mov rbp, rsp
        check(&[0x48, 0x81, 0xec, 0, 1, 0, 0]); // sub rsp, 256
        check(&[0x48, 0x8d, 0xa5, 0, 1, 0, 0]); // lea rsp, [rbp + 256]
        check(&[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8]); // movabs rax
        check(&[0x66, 0xc7, 0x44, 0x24, 8, 1, 0]); // mov word [rsp + 8], 1
        check(&[0xf6, 0x05, 1, 2, 3, 4, 9]); // test byte [rip + x], 9
        check(&[0xf7, 0xd8]); // neg eax
        check(&[0x0f, 0x84, 1, 2, 3, 4]); // je
        check(&[0x66, 0x0f, 0x3a, 0x0f, 0xc1, 8]); // palignr
        check(&[0xc5, 0xf8, 0x77]); // vzeroupper
        check(&[0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1]); // vextracti128
        check(&[0x62, 0xf1, 0x7c, 0x48, 0x28, 0x44, 0x24, 1]); // vmovaps zmm0, [rsp + 64]
        check(&[0x8f, 0xe8, 0x78, 0xc0, 0xc1, 4]); // vprotb
        check(&[0x8f, 0x45, 0xf8]); // pop [rbp - 8]
        assert_eq!((length(&[0x06], Mode::Bits64), length(&[], Mode::Bits64)), (None, None));
        assert_eq!((length(&[0x06], Mode::Bits32), length(&[0x67, 0x8b, 0x04], Mode::Bits32)), (Some(1), None));
        // inc eax, of which the other mode makes a prefix; les eax, [ecx]
        assert_eq!((length(&[0x40, 0x90], Mode::Bits32), length(&[0x40, 0x90], Mode::Bits64)), (Some(1), Some(2)));
        assert_eq!(length(&[0xc4, 0x01], Mode::Bits32), Some(2));
    }

    /// Every instruction of a large library, as binutils reads it.
    fn check_library(library: &str, mode: Mode) {
        let output = Command::new("objdump").args(["-d", "--wide", "--no-addresses", library]).output();
        let Some(output) = output.ok().filter(|output| output.status.success()) else {
            std::println!("SKIP objdump: not found, or no {library}");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let mut compared = 0;
        for line in text.lines() {
            let mut columns = line.split('\t').skip(1);
            let (Some(bytes), Some(name)) = (columns.next(), columns.next()) else { continue };
            let parsed: Option<Vec<u8>> =
                bytes.split_ascii_whitespace().map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
            // Prefixes that stand alone in the listing belong to the instruction behind them.
            let Some(code) =
                parsed.filter(|code| !name.starts_with("rex") && !name.starts_with("(bad)") && !code.is_empty())
            else {
                continue;
            };
            compared += 1;
            assert_eq!(length(&code, mode), Some(code.len()), "{line}");
        }
        assert!(compared > 200_000, "{compared} instructions");
    }

    #[test]
    fn instructions_are_as_long_as_a_disassembler_says() {
        check_library("/lib/x86_64-linux-gnu/libc.so.6", Mode::Bits64);
    }

    #[test]
    fn instructions_of_32_bit_code_are_as_long_as_a_disassembler_says() {
        check_library("/usr/i686-linux-gnu/lib/libc.so.6", Mode::Bits32);
    }
}
