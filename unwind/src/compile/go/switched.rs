//! Functions of Go's runtime that move to another stack for a while, as `runtime.nanotime1` and `time.now` do for the vDSO: neither section tells where their
//! own frame is then. They keep the stack pointer in a register, which their instructions show.
//!
//! Known of each instruction are the registers that have the stack pointer of before, and whether the stack pointer itself still counts as the table says.
//! Where several instructions lead to one, what all of them say. (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2; Arm ARM, C4.1)

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::arch::Arch;
use crate::arch::x86::{Mode, jump, parts};

/// No function that is looked at is longer, in bytes.
const LONGEST: usize = 1 << 12;
/// Registers that may have the stack pointer: those that the functions called keep, by number of the instruction set.
const KEPT_64: [u8; 6] = [5, 3, 12, 13, 14, 15];
const KEPT_32: [u8; 4] = [5, 3, 6, 7];
const KEPT_ARM64: [u8; 10] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28];
/// The stack pointer in instructions of x86, and of arm64.
const SP: u8 = 4;
const SP_ARM64: u8 = 31;

/// How the frame is found at an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// As the table says.
    Told,
    /// By a register (DWARF number) that has the stack pointer of where it had moved by so many bytes.
    Kept(u8, i64),
    /// Not at all.
    Lost,
}

/// What an instruction does.
struct Step {
    length: usize,
    /// Registers that it may write, one bit each.
    writes: u32,
    /// Copies the first register to the second.
    copies: Option<(u8, u8)>,
    /// Whether the stack pointer moves otherwise than the table counts.
    loses: bool,
    /// Bytes from its end to where it may jump; `None` within where that is not known.
    jump: Option<Option<i64>>,
    /// Whether the next instruction may be run.
    goes_on: bool,
}

/// What is known before an instruction: of each register that may be kept how far the stack pointer had moved when it was copied.
#[derive(Clone, Copy, PartialEq, Eq)]
struct State {
    kept: [Option<i64>; 10],
    is_told: bool,
}

/// The frames of the function whose code begins at `start`: what holds from which address on. `moved` gives what the table says of an address. `None` where the
/// instructions cannot be followed.
pub(super) fn frames(
    arch: Arch,
    (start, code): (u64, &[u8]),
    moved: &dyn Fn(u64) -> Option<i64>,
) -> Option<Vec<(u64, Found)>> {
    let registers: &[u8] = match arch {
        Arch::X86_64 => &KEPT_64,
        Arch::I686 => &KEPT_32,
        Arch::Aarch64 => &KEPT_ARM64,
        _ => return None,
    };
    let code = Some(code).filter(|code| code.len() <= LONGEST)?;
    let mut states: Vec<Option<State>> = vec![None; code.len()];
    *states.first_mut()? = Some(State { kept: [None; 10], is_told: true });
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        let mut state = (*states.get(at)?)?;
        let step = step(arch, code.get(at..)?)?;
        let slot = |register: u8| registers.iter().position(|kept| *kept == register);
        let before = state;
        for (kept, register) in state.kept.iter_mut().zip(registers) {
            kept.take_if(|_| step.writes & 1 << register != 0);
        }
        state.is_told &= !step.loses;
        let sp = if arch == Arch::Aarch64 { SP_ARM64 } else { SP };
        match step.copies {
            Some((from, to)) if from == sp => {
                if let Some(kept) = slot(to).and_then(|slot| state.kept.get_mut(slot)) {
                    *kept = if state.is_told { moved(start + at as u64) } else { None };
                }
            }
            Some((from, to)) if to == sp => {
                let had = slot(from).and_then(|slot| before.kept.get(slot).copied().flatten());
                state.is_told = had.is_some() && had == moved(start + (at + step.length) as u64);
            }
            _ => {}
        }
        let next = at + step.length;
        let jump = step.jump.map(|distance| distance.and_then(|distance| next.checked_add_signed(distance as isize)));
        for to in [step.goes_on.then_some(next), jump.flatten()].into_iter().flatten() {
            // Beyond the end lies another function, with a frame of its own.
            let Some(known) = states.get_mut(to) else { continue };
            let joined = known.map_or(state, |known| known.and(&state));
            if *known != Some(joined) {
                *known = Some(joined);
                open.push(to);
            }
        }
    }
    let mut found: Vec<(u64, Found)> = Vec::new();
    let mut end = 0;
    for (at, state) in states.iter().enumerate() {
        let Some(state) = state else {
            // Behind the instructions that were followed: what a jump through a register leads to, or nothing does.
            if at >= end && found.last().is_none_or(|(_, last)| *last != Found::Lost) {
                found.push((start + at as u64, Found::Lost));
            }
            continue;
        };
        end = at + step(arch, code.get(at..)?)?.length;
        let mut kept = state.kept.iter().zip(registers);
        let here = match kept.find_map(|(kept, register)| Some((*register, (*kept)?))) {
            _ if state.is_told => Found::Told,
            Some((register, moved)) => Found::Kept(dwarf(arch, register), moved),
            None => Found::Lost,
        };
        found.push((start + at as u64, here));
    }
    Some(found)
}

impl State {
    fn and(&self, other: &Self) -> Self {
        let mut kept = self.kept;
        for (kept, other) in kept.iter_mut().zip(other.kept) {
            kept.take_if(|kept| Some(*kept) != other);
        }
        Self { kept, is_told: self.is_told && other.is_told }
    }
}

/// The DWARF number of a register that is kept. (System V ABI, AMD64, figure 3.36)
fn dwarf(arch: Arch, register: u8) -> u8 {
    match (arch, register) {
        (Arch::X86_64, 5) => 6,
        _ => register,
    }
}

/// The instruction that `code` begins with; `None` for what is none.
fn step(arch: Arch, code: &[u8]) -> Option<Step> {
    match arch {
        Arch::Aarch64 => code.first_chunk().map(|word| of_arm64(u32::from_le_bytes(*word))),
        _ => of_x86(code, if arch == Arch::I686 { Mode::Bits32 } else { Mode::Bits64 }),
    }
}

/// What an instruction may write is told too generously rather than not enough.
fn of_x86(code: &[u8], mode: Mode) -> Option<Step> {
    let parts = parts(code, mode)?;
    let byte = |at: usize| code.get(at).copied().unwrap_or_default();
    let is_64 = mode == Mode::Bits64;
    let prefix = parts.opcode.checked_sub(1).map_or(0, byte);
    let rex = if is_64 && prefix & 0xf0 == 0x40 { prefix } else { 0 };
    let opcode = byte(parts.opcode);
    let second = if opcode == 0x0f { byte(parts.opcode + 1) } else { 0 };
    let modrm = parts.modrm.map(byte);
    let is_register = modrm.is_some_and(|modrm| modrm >> 6 == 3);
    let number = modrm.map_or(0, |modrm| modrm >> 3 & 7);
    let reg = number | (rex & 4) << 1;
    let low = |value: u8| value & 7 | (rex & 1) << 3;
    let rm = low(modrm.unwrap_or_default());
    let bit = |register: u8| 1u32 << register;
    let of_rm = if is_register { bit(rm) } else { 0 };
    let is_whole = if is_64 { rex & 8 != 0 } else { parts.opcode == 0 };
    let mut copies = None;
    let writes = match (opcode, second) {
        // Instructions of vectors, some of which write other registers.
        (0xc4 | 0xc5 | 0x62 | 0x8f, _) if opcode != 0x8f || byte(parts.opcode + 1) & 0x1f >= 8 => u32::MAX,
        (0x0f, 0x0b | 0x1e | 0x1f | 0x80..=0x8f) => 0,
        (0x0f, 0xc8..=0xcf) => bit(low(second)),
        // System calls, of the processor's kinds and numbers, leave what is kept alone but for one.
        (0x0f, 0xa2) => bit(0) | bit(1) | bit(2) | bit(3),
        (0x0f, _) if modrm.is_none() => bit(0) | bit(1) | bit(2) | bit(11),
        (0x89, _) if is_register && is_whole => {
            copies = Some((reg, rm));
            bit(rm)
        }
        (0x8b, _) if is_register && is_whole => {
            copies = Some((rm, reg));
            bit(reg)
        }
        (0x88 | 0x89 | 0xc6 | 0xc7 | 0xc0 | 0xc1 | 0xd0..=0xd3 | 0xfe | 0x8f | 0x8c, _) => of_rm,
        (0x38..=0x3b | 0x84 | 0x85, _) => 0,
        // Sums and the like, whose direction is a bit of the opcode.
        (0x00..=0x37, _) if modrm.is_some() && opcode & 7 < 2 => of_rm,
        (0x00..=0x37, _) if modrm.is_some() && opcode & 7 < 4 => bit(reg),
        // A call, of another function of Go's: those keep the frame pointer alone, on amd64 alone.
        (0xe8, _) => !(bit(SP) | if is_64 { bit(5) } else { 0 }),
        (0x80..=0x83, _) => match number {
            7 => 0,
            // The table counts what is added to the stack pointer and taken from it.
            0 | 5 if rm == SP && is_whole => 0,
            _ => of_rm,
        },
        (0xf6 | 0xf7, _) => match number {
            0 | 1 => 0,
            2 | 3 => of_rm,
            _ => bit(0) | bit(2),
        },
        (0xff, _) => {
            if number < 2 {
                of_rm
            } else {
                0
            }
        }
        (0x58..=0x5f | 0xb0..=0xbf, _) => bit(low(opcode)),
        (0x90..=0x97, _) => bit(low(opcode)) | bit(0),
        (0x40..=0x4f, _) if !is_64 => bit(low(opcode)),
        // Of strings, and loops.
        (0x6c..=0x6f | 0xa4..=0xa7 | 0xaa..=0xaf | 0xe0..=0xe3, _) => bit(1) | bit(6) | bit(7),
        // enter, leave, popa, interrupts that come back
        (0xc8 | 0xc9 | 0x61, _) => u32::MAX,
        _ if modrm.is_some() => bit(reg) | of_rm,
        _ => bit(0) | bit(2),
    };
    let jump = jump(code, &parts);
    let ends = matches!((opcode, second), (0xc2 | 0xc3 | 0xca | 0xcb | 0xcc | 0xcf | 0xf4, _) | (0x0f, 0x0b));
    Some(Step {
        length: parts.length,
        writes,
        copies,
        loses: writes & bit(SP) != 0,
        goes_on: !ends && jump.as_ref().is_none_or(|jump| jump.is_conditional),
        jump: jump.map(|jump| jump.distance),
    })
}

fn of_arm64(word: u32) -> Step {
    let field = |at: u32| (word >> at & 31) as u8;
    let signed = |at: u32, bits: u32| i64::from((word << (32 - at - bits)) as i32 >> (32 - bits)) * 4 - 4;
    let flow = |jump, goes_on| Step { length: 4, writes: 0, copies: None, loses: false, jump, goes_on };
    // b, b.cond, cbz and cbnz, tbz and tbnz, br and ret, bl and blr, brk and udf
    match word {
        _ if word & 0xfc00_0000 == 0x1400_0000 => return flow(Some(Some(signed(0, 26))), false),
        _ if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 => {
            return flow(Some(Some(signed(5, 19))), true);
        }
        _ if word & 0x7e00_0000 == 0x3600_0000 => return flow(Some(Some(signed(5, 14))), true),
        _ if word & 0xff9f_fc1f == 0xd61f_0000 && word >> 21 & 3 != 1 => return flow(None, false),
        // A call, of another function of Go's: those keep none.
        _ if word & 0xfc00_0000 == 0x9400_0000 => return Step { writes: u32::MAX, ..flow(None, true) },
        _ if word & 0xffff_fc1f == 0xd63f_0000 => return flow(None, true),
        _ if word & 0xffe0_001f == 0xd420_0000 || word >> 16 == 0 => return flow(None, false),
        // System calls and barriers.
        _ if word & 0xff00_0000 == 0xd400_0000 || word & 0xfffff000 == 0xd503_3000 => return flow(None, true),
        _ => {}
    }
    // add x, sp, #0 and add sp, x, #0: mov
    let copies = (word & 0xffff_fc00 == 0x9100_0000).then_some((field(5), field(0)));
    let is_sp_moved = copies.is_none() && word & 0xbf00_03ff == 0x9100_03ff;
    let is_store_or_load = word & 0x0a00_0000 == 0x0800_0000;
    // Stores write no register but the one that they count from; loads of two, and exclusive ones, more than the first.
    let mut writes = 1u32 << field(0);
    let mut loses = !is_store_or_load && field(0) == SP_ARM64 && !is_sp_moved && counts_sp(word);
    if is_store_or_load {
        writes |= 1 << field(10) | 1 << field(16) | 1 << field(5);
        let is_pair = word & 0x3e00_0000 == 0x2800_0000 && word >> 23 & 3 != 0;
        let is_plain = word & 0x3b00_0000 == 0x3900_0000 || (is_pair && word >> 23 & 3 == 2);
        let is_indexed = word & 0x3b20_0000 == 0x3800_0000;
        let is_load = if is_pair { word >> 22 & 1 != 0 } else { word >> 22 & 3 != 0 };
        if is_plain || is_indexed || is_pair {
            writes = if is_load { 1 << field(0) } else { 0 };
            writes |= if is_load && is_pair { 1 << field(10) } else { 0 };
            // With the base changed; that of the stack pointer is what the table counts.
            writes |= if is_plain { 0 } else { 1 << field(5) };
        }
    }
    if let Some((_, to)) = copies {
        loses = to == SP_ARM64;
    }
    Step { length: 4, writes, copies, loses, jump: None, goes_on: true }
}

/// Whether 31 as the register that is written means the stack pointer: of additions and subtractions that set no flags, of an immediate or an extended register, and
/// of bitwise operations with an immediate that set none.
fn counts_sp(word: u32) -> bool {
    word & 0x3f80_0000 == 0x1100_0000
        || word & 0x3fe0_0000 == 0x0b20_0000
        || (word & 0x1f80_0000 == 0x1200_0000 && word >> 29 & 3 != 3)
}

/// The code of a function; `None` where it is not at hand.
pub(super) fn code_of<'c>(code: &[(u64, &'c [u8])], range: &Range<u64>) -> Option<&'c [u8]> {
    code.iter().find_map(|(start, bytes)| {
        let from = usize::try_from(range.start.checked_sub(*start)?).ok()?;
        bytes.get(from..)?.get(..usize::try_from(range.end.checked_sub(range.start)?).ok()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// What holds at the addresses that begin instructions, where the stack pointer has moved by what is said from each distance on.
    fn found(arch: Arch, code: &[u8], said: &[(u64, i64)]) -> Vec<(u64, Found)> {
        let moved =
            |address: u64| said.iter().rev().find(|(from, _)| *from <= address - 0x1000).map(|(_, moved)| *moved);
        let frames = frames(arch, (0x1000, code), &moved).expect("they can be followed");
        frames
            .into_iter()
            .map(|(address, found)| (address - 0x1000, found))
            .filter(|(_, found)| *found != Found::Told)
            .collect()
    }

    /// `push %rbp; mov %rsp, %rbp; sub $16, %rsp; mov %rsp, %r12; jne; mov 0x38(%rdx), %rsp; and $-16, %rsp; call *%rax; mov %r12, %rsp; add; pop; ret`
    const AMD64: [u8; 32] = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x49, 0x89, 0xe4, 0x75, 4, 0x48, 0x8b, 0x62, 0x38, 0x48, 0x83,
        0xe4, 0xf0, 0xff, 0xd0, 0x4c, 0x89, 0xe4, 0x48, 0x83, 0xc4, 0x10, 0x5d, 0xc3,
    ];
    const SAID: [(u64, i64); 5] = [(0, 0), (1, 8), (8, 24), (30, 8), (31, 0)];

    #[test]
    fn a_register_that_keeps_the_stack_pointer_tells_the_frame_while_another_stack_is_used() {
        let at = |found| [(17, found), (21, found), (23, found)];
        assert_eq!(found(Arch::X86_64, &AMD64, &SAID), at(Found::Kept(6, 8)));
        // Without the frame pointer: xor %ebp, %ebp; nop.
        let mut code = AMD64;
        code[1..4].copy_from_slice(&[0x31, 0xed, 0x90]);
        assert_eq!(found(Arch::X86_64, &code, &SAID), at(Found::Kept(12, 24)));
        // And with the other one changed: mov %rax, %r12; nop. What is copied back from there is not what it was.
        code[17..21].copy_from_slice(&[0x49, 0x89, 0xc4, 0x90]);
        let lost = |at| (at, Found::Lost);
        let expected = [(17, Found::Kept(12, 24)), lost(20), lost(21), lost(23), lost(26), lost(30), lost(31)];
        assert_eq!(found(Arch::X86_64, &code, &SAID), expected);
    }

    #[test]
    fn code_of_arm64_is_read_too() {
        // str x30, [sp, #-48]!; mov x20, sp; mov sp, x1; blr x2; mov sp, x20; ldr x30, [sp], #48; ret
        let mut words = [0xf81d_0ffeu32, 0x9100_03f4, 0x9100_003f, 0xd63f_0040, 0x9100_029f, 0xf843_07fe, 0xd65f_03c0];
        let of = |words: [u32; 7]| {
            let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            found(Arch::Aarch64, &code, &[(0, 0), (4, 48), (24, 0)])
        };
        assert_eq!(of(words), [12, 16].map(|at| (at, Found::Kept(20, 48))));
        // mov x20, x1
        words[3] = 0xaa01_03f4;
        assert_eq!(of(words), [(12, Found::Kept(20, 48)), (16, Found::Lost), (20, Found::Lost), (24, Found::Lost)]);
    }

    #[test]
    fn what_no_path_leads_to_is_lost() {
        // push %rbx; jmp *%rax; pop %rbx; ret
        let frames = frames(Arch::X86_64, (0x1000, &[0x53, 0xff, 0xe0, 0x5b, 0xc3]), &|_| Some(0));
        let expected = [(0x1000, Found::Told), (0x1001, Found::Told), (0x1003, Found::Lost)];
        assert_eq!(frames.as_deref(), Some(&expected[..]));
    }

    #[test]
    fn a_function_of_gos_that_is_called_keeps_the_frame_pointer_alone() {
        // mov %rsp, %rbp; mov %rsp, %r12; mov %rax, %rsp; call; xor %ebp, %ebp; ret
        let code = [0x48, 0x89, 0xe5, 0x49, 0x89, 0xe4, 0x48, 0x89, 0xc4, 0xe8, 0, 0, 0, 0, 0x31, 0xed, 0xc3];
        let frames = found(Arch::X86_64, &code, &[(0, 0)]);
        assert_eq!(frames, [(9, Found::Kept(6, 0)), (14, Found::Kept(6, 0)), (16, Found::Lost)]);
        // mov x20, sp; mov sp, x1; bl; ret
        let words = [0x9100_03f4u32, 0x9100_003f, 0x9400_0004, 0xd65f_03c0];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(found(Arch::Aarch64, &code, &[(0, 0)]), [(8, Found::Kept(20, 0)), (12, Found::Lost)]);
    }

    #[test]
    fn a_difference_from_the_stack_pointer_is_no_change_of_it() {
        // sub %rsp, %rax; then sub %rax, %rsp and sub (%rax), %rsp
        assert_eq!(found(Arch::X86_64, &[0x48, 0x29, 0xe0, 0xc3], &[(0, 0)]), []);
        for code in [[0x48, 0x29, 0xc4, 0xc3], [0x48, 0x2b, 0x20, 0xc3]] {
            assert_eq!(found(Arch::X86_64, &code, &[(0, 0)]), [(3, Found::Lost)]);
        }
        // sub %rsp, %rbp: what was kept is gone.
        let code = [0x48, 0x89, 0xe5, 0x48, 0x29, 0xe5, 0x48, 0x89, 0xc4, 0xc3];
        assert_eq!(found(Arch::X86_64, &code, &[(0, 0)]), [(9, Found::Lost)]);
    }

    #[test]
    fn code_that_is_cut_or_of_other_processors_is_not_followed() {
        assert_eq!(frames(Arch::X86_64, (0x1000, &[0x48, 0x89]), &|_| Some(0)), None);
        assert_eq!(frames(Arch::Arm, (0x1000, &[0, 0, 0, 0]), &|_| Some(0)), None);
    }
}
