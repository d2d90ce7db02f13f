//! What each type of relocation does to a debug section, by processor.
//!
//! Sources of the numbers and rules: the processor supplements to the System V ABI of x86-64, i386, Arm, AArch64, 32-bit and
//! 64-bit PowerPC, RISC-V, MIPS, S/390, SPARC, LoongArch and Hexagon.

use crate::elf::gabi;

/// What a relocation does with `S`, its symbol's address, `A`, its addend, and `P`, its own address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    Nothing,
    /// `S + A`, in so many bytes.
    Absolute(u8),
    /// `S + A − P`, in so many bytes.
    Relative(u8),
    /// What is there plus `S + A`, in so many bytes.
    Add(u8),
    /// What is there minus `S + A`, in so many bytes.
    Subtract(u8),
    /// `S + A` in the lower 6 bits of a byte.
    Set6,
    /// The lower 6 bits of a byte plus `S + A`.
    Add6,
    /// The lower 6 bits of a byte minus `S + A`.
    Subtract6,
    /// `S + A` as an unsigned LEB128 of the length that is there.
    SetLeb,
    /// An unsigned LEB128 plus `S + A`, in the length that is there.
    AddLeb,
    /// An unsigned LEB128 minus `S + A`, in the length that is there.
    SubtractLeb,
    /// The lower 31 bits are `S + A − P`.
    Relative31,
}

/// Whether the processor's relocations are known.
pub(super) fn knows(machine: u16) -> bool {
    rules_of(machine).is_some()
}

/// The rule of a relocation type; none where the type is not known.
pub(super) fn rule(machine: u16, kind: u32) -> Option<Rule> {
    if kind == 0 { Some(Rule::Nothing) } else { rules_of(machine)?(kind) }
}

fn rules_of(machine: u16) -> Option<fn(u32) -> Option<Rule>> {
    Some(match machine {
        gabi::EM_X86_64 => x86_64,
        gabi::EM_386 => i386,
        gabi::EM_ARM => arm,
        gabi::EM_AARCH64 => aarch64,
        gabi::EM_PPC => ppc,
        gabi::EM_PPC64 => ppc64,
        gabi::EM_RISCV => riscv,
        gabi::EM_MIPS => mips,
        gabi::EM_S390 => s390,
        gabi::EM_SPARC | gabi::EM_SPARC32PLUS | gabi::EM_SPARCV9 => sparc,
        gabi::EM_LOONGARCH => loongarch,
        gabi::EM_HEXAGON => hexagon,
        _ => return None,
    })
}

// The last types of each processor that do nothing are offsets in thread-local storage: they say where variables are, which nobody asks here.

fn x86_64(kind: u32) -> Option<Rule> {
    Some(match kind {
        1 => Rule::Absolute(8),
        10 | 11 => Rule::Absolute(4),
        12 => Rule::Absolute(2),
        14 => Rule::Absolute(1),
        24 => Rule::Relative(8),
        2 => Rule::Relative(4),
        17 | 21 => Rule::Nothing,
        _ => return None,
    })
}

fn i386(kind: u32) -> Option<Rule> {
    Some(match kind {
        1 => Rule::Absolute(4),
        20 => Rule::Absolute(2),
        22 => Rule::Absolute(1),
        2 => Rule::Relative(4),
        32 => Rule::Nothing,
        _ => return None,
    })
}

fn arm(kind: u32) -> Option<Rule> {
    Some(match kind {
        2 | 38 => Rule::Absolute(4),
        5 => Rule::Absolute(2),
        8 => Rule::Absolute(1),
        3 => Rule::Relative(4),
        42 => Rule::Relative31,
        106 => Rule::Nothing,
        _ => return None,
    })
}

fn aarch64(kind: u32) -> Option<Rule> {
    Some(match kind {
        256 => Rule::Nothing,
        257 => Rule::Absolute(8),
        258 => Rule::Absolute(4),
        259 => Rule::Absolute(2),
        260 => Rule::Relative(8),
        261 => Rule::Relative(4),
        262 => Rule::Relative(2),
        1029 => Rule::Nothing,
        _ => return None,
    })
}

fn ppc(kind: u32) -> Option<Rule> {
    Some(match kind {
        1 | 24 => Rule::Absolute(4),
        3 | 25 => Rule::Absolute(2),
        26 => Rule::Relative(4),
        78 => Rule::Nothing,
        _ => return None,
    })
}

fn ppc64(kind: u32) -> Option<Rule> {
    Some(match kind {
        1 | 24 => Rule::Absolute(4),
        38 | 43 => Rule::Absolute(8),
        26 => Rule::Relative(4),
        44 => Rule::Relative(8),
        78 => Rule::Nothing,
        _ => return None,
    })
}

fn riscv(kind: u32) -> Option<Rule> {
    Some(match kind {
        1 => Rule::Absolute(4),
        2 => Rule::Absolute(8),
        33..=36 => Rule::Add(1 << (kind - 33)),
        37..=40 => Rule::Subtract(1 << (kind - 37)),
        // Alignment and relaxation concern code.
        43 | 51 => Rule::Nothing,
        52 => Rule::Subtract6,
        53 => Rule::Set6,
        54..=56 => Rule::Absolute(1 << (kind - 54)),
        57 => Rule::Relative(4),
        60 => Rule::SetLeb,
        61 => Rule::SubtractLeb,
        8 | 9 => Rule::Nothing,
        _ => return None,
    })
}

/// All three ABIs (o32, n32, n64) have the numbers of one list.
fn mips(kind: u32) -> Option<Rule> {
    Some(match kind {
        1 => Rule::Absolute(2),
        2 => Rule::Absolute(4),
        18 => Rule::Absolute(8),
        248 => Rule::Relative(4),
        39 | 41 => Rule::Nothing,
        _ => return None,
    })
}

fn s390(kind: u32) -> Option<Rule> {
    Some(match kind {
        1 => Rule::Absolute(1),
        3 => Rule::Absolute(2),
        4 => Rule::Absolute(4),
        22 => Rule::Absolute(8),
        16 => Rule::Relative(2),
        5 => Rule::Relative(4),
        23 => Rule::Relative(8),
        52 | 53 => Rule::Nothing,
        _ => return None,
    })
}

/// Of 32 and 64 bits, and of fields that are not aligned.
fn sparc(kind: u32) -> Option<Rule> {
    Some(match kind {
        1 => Rule::Absolute(1),
        2 | 55 => Rule::Absolute(2),
        3 | 23 => Rule::Absolute(4),
        32 | 54 => Rule::Absolute(8),
        4 => Rule::Relative(1),
        5 => Rule::Relative(2),
        6 => Rule::Relative(4),
        46 => Rule::Relative(8),
        76 | 77 => Rule::Nothing,
        _ => return None,
    })
}

fn loongarch(kind: u32) -> Option<Rule> {
    Some(match kind {
        1 => Rule::Absolute(4),
        2 => Rule::Absolute(8),
        47 => Rule::Add(1),
        48 => Rule::Add(2),
        49 => Rule::Add(3),
        50 => Rule::Add(4),
        51 => Rule::Add(8),
        52 => Rule::Subtract(1),
        53 => Rule::Subtract(2),
        54 => Rule::Subtract(3),
        55 => Rule::Subtract(4),
        56 => Rule::Subtract(8),
        99 => Rule::Relative(4),
        109 => Rule::Relative(8),
        // Relaxation and alignment concern code.
        100 | 102 => Rule::Nothing,
        105 => Rule::Add6,
        106 => Rule::Subtract6,
        107 => Rule::AddLeb,
        108 => Rule::SubtractLeb,
        8 | 9 => Rule::Nothing,
        _ => return None,
    })
}

fn hexagon(kind: u32) -> Option<Rule> {
    Some(match kind {
        6 => Rule::Absolute(4),
        7 => Rule::Absolute(2),
        8 => Rule::Absolute(1),
        31 => Rule::Relative(4),
        47 | 48 => Rule::Nothing,
        _ => return None,
    })
}
