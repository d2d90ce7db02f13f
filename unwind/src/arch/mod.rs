//! What differs between processors: one [`Machine`] each, in one file each. The layout of rules and the walk are the same for all.
//!
//! The engine is compiled once per [`Target`], so that for each of them all of this is constant; what runs seldom (the
//! compiler, printing, checking) goes through [`Arch::machine`].

use core::fmt;

pub(crate) mod aarch64;
pub(crate) mod arm;
mod i686;
mod mips32;
pub(crate) mod riscv64;
pub(crate) mod x86;
mod x86_64;

pub(crate) use aarch64::Aarch64;
pub(crate) use arm::Arm;
pub(crate) use i686::I686;
pub use mips32::MipsFlags;
pub(crate) use mips32::{Mips32Big, Mips32Little};
pub(crate) use riscv64::Riscv64;
pub(crate) use x86_64::X86_64;

/// The processor that a table is for: the instruction set, the byte order and the calling convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Arch {
    /// AMD64.
    X86_64 = 1,
    /// 64-bit ARM, little-endian.
    Aarch64 = 2,
    /// 32-bit MIPS, big-endian, calling convention o32.
    Mips32 = 3,
    /// 32-bit MIPS, little-endian, calling convention o32.
    Mips32Little = 4,
    /// IA-32, System V ABI.
    I686 = 5,
    /// 64-bit RISC-V, little-endian.
    Riscv64 = 6,
    /// 32-bit ARM, little-endian, in both instruction sets.
    Arm = 7,
}

impl Arch {
    /// Every architecture, by rising number.
    pub const ALL: &'static [Self] =
        &[Self::X86_64, Self::Aarch64, Self::Mips32, Self::Mips32Little, Self::I686, Self::Riscv64, Self::Arm];

    /// The stable text.
    pub fn code(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Mips32 => "mips",
            Self::Mips32Little => "mipsel",
            Self::I686 => "i686",
            Self::Riscv64 => "riscv64",
            Self::Arm => "arm",
        }
    }

    /// The architecture with this number in a table's header.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.iter().copied().find(|arch| *arch as u8 == number)
    }

    /// Bytes in a word: of an address, a general register and a stack slot.
    pub fn word_bytes(self) -> u8 {
        self.machine().word as u8
    }

    /// Whether words in memory begin with their highest byte.
    pub fn is_big_endian(self) -> bool {
        self.machine().big_endian
    }

    /// DWARF number of the stack pointer.
    pub fn stack_pointer(self) -> u8 {
        self.machine().sp
    }

    /// DWARF number of the register that the convention keeps for a frame pointer.
    pub fn frame_pointer(self) -> u8 {
        self.machine().fp
    }

    /// DWARF number of the return address column.
    pub fn return_address(self) -> u8 {
        self.machine().return_address
    }

    /// DWARF number that stands for the program counter in programs of a table and in [`context_offset`](Self::context_offset).
    pub fn program_counter(self) -> u8 {
        self.machine().pc
    }

    /// How many general registers there are; their DWARF numbers begin with 0.
    pub fn registers(self) -> usize {
        self.machine().registers
    }

    /// Callee-saved general registers besides the frame pointer, which have slots in a table, in the order of the slots.
    pub fn slot_registers(self) -> &'static [u8] {
        self.machine().slot_registers
    }

    /// General registers that functions of one calling convention keep and those of another do not (x86_64: rsi and rdi, which those
    /// of Windows keep). Tables of the former have slots for them.
    pub fn convention_registers(self) -> &'static [u8] {
        self.machine().convention_registers
    }

    /// The name of a register by its DWARF number.
    pub fn register_name(self, number: u8) -> &'static str {
        self.machine().name(number)
    }

    /// Where the value of a register lies in the machine context of a signal frame, in bytes from what a rule of kind
    /// [`Signal`](crate::Kind::Signal) points to.
    pub fn context_offset(self, register: u8) -> Option<u64> {
        (self.machine().context_slot)(register)
    }

    pub(crate) fn machine(self) -> &'static Machine {
        match self {
            Self::X86_64 => X86_64::MACHINE,
            Self::Aarch64 => Aarch64::MACHINE,
            Self::Mips32 => Mips32Big::MACHINE,
            Self::Mips32Little => Mips32Little::MACHINE,
            Self::I686 => I686::MACHINE,
            Self::Riscv64 => Riscv64::MACHINE,
            Self::Arm => Arm::MACHINE,
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.code())
    }
}

/// An architecture as a type, for code that is to be compiled for each one by itself.
pub(crate) trait Target {
    const MACHINE: &'static Machine;
}

/// Whether a jump counts that is so many bytes on.
pub(crate) type CountsJump<'c> = dyn FnMut(usize, Jump) -> bool + 'c;

/// Everything that the engine and the compiler ask of an architecture.
pub(crate) struct Machine {
    #[cfg_attr(not(any(test, feature = "compile-elf")), allow(dead_code, reason = "the compiler asks"))]
    pub(crate) arch: Arch,
    /// Bytes in a word.
    pub(crate) word: i64,
    pub(crate) big_endian: bool,
    pub(crate) sp: u8,
    pub(crate) fp: u8,
    /// The return address column of call frame information.
    pub(crate) return_address: u8,
    /// The number that stands for the program counter.
    pub(crate) pc: u8,
    /// General registers: DWARF numbers below this.
    pub(crate) registers: usize,
    pub(crate) slot_registers: &'static [u8],
    /// Registers that have slots in tables of some calling conventions, behind [`slot_words`](Self::slot_words).
    pub(crate) convention_registers: &'static [u8],
    /// Words from the program counter to the stack pointer in what the processor pushes when it is interrupted; `None` where
    /// no format speaks of such frames.
    pub(crate) machine_frame_sp: Option<i16>,
    /// The register that a call leaves the return address in; without one it is pushed.
    pub(crate) link: Option<u8>,
    pub(crate) frame_records: FrameRecords,
    /// The instructions by which the first function of a stack sets the frame pointer to zero.
    pub(crate) clears_frame_pointer: &'static [&'static [u8]],
    /// The bits of a return address that tell which instructions are there, and belong to no address.
    pub(crate) mode_bits: u64,
    /// Return addresses may carry a signature in their upper bits.
    pub(crate) signs_return_addresses: bool,
    /// The highest bits of a pointer that the processor leaves to programs for tags: in an address they repeat the bit below them.
    pub(crate) tag_bits: u32,
    /// Words of slots per rule in a table; five slots to a word.
    pub(crate) slot_words: usize,
    /// Bytes that a linker aligns functions to, which bounds the padding between them.
    pub(crate) function_alignment: u64,
    /// Instructions begin at multiples of this.
    pub(crate) instruction_alignment: usize,
    pub(crate) names: &'static [&'static str],
    /// The most bytes that [`call_before`](Self::call_before) looks at.
    pub(crate) longest_call: usize,
    /// The call that returns to `address`, if one ends where `code` ends.
    pub(crate) call_before: fn(code: &[u8], address: u64) -> Option<Call>,
    /// Whether `code`, whole instructions, certainly leaves the stack pointer alone.
    pub(crate) keeps_stack: fn(code: &[u8]) -> bool,
    /// Whether `code`, whole instructions, certainly leaves the frame pointer alone.
    pub(crate) keeps_frame_pointer: fn(code: &[u8]) -> bool,
    /// How far the function reaches that `code` begins with; `None` where its instructions do not tell, or are not read.
    pub(crate) extent: fn(code: &[u8]) -> Option<Extent>,
    /// Whether one of the jumps in `code`, whole instructions, counts, of which it is told how many bytes on they are; also where that is not to be told.
    pub(crate) has_jump: fn(code: &[u8], counts: &mut CountsJump<'_>) -> bool,
    /// What the instructions at the front of `code`, from the one that is about to run, say of where the return address is.
    pub(crate) ahead: fn(code: &[u8]) -> Ahead,
    /// Bytes from the machine context to the value of a register.
    pub(crate) context_slot: fn(register: u8) -> Option<u64>,
    pub(crate) trampolines: &'static [Trampoline],
    #[cfg_attr(not(feature = "compile-elf"), allow(dead_code, reason = "the compiler asks"))]
    pub(crate) is_padding: fn(code: &[u8]) -> bool,
}

/// What the frame pointer register points to in code that keeps to the convention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameRecords {
    /// To nothing that leads on.
    None,
    /// To the caller's frame pointer, with the return address above it and the CFA above that.
    BelowCfa,
    /// To the caller's frame pointer, with the return address above it, anywhere in the frame.
    InFrame,
    /// Right above the return address, with the caller's frame pointer below that, anywhere in the frame.
    UnderPointer,
}

/// A call instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// To this address.
    To(u64),
    Indirect,
}

/// A jump instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Jump {
    /// To what lies as many bytes behind the first instruction that was looked at.
    To(i64),
    /// Through a register or memory.
    Anywhere,
}

/// A function without rules, as its instructions tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// From its first instruction to the end of its last one.
    pub(crate) bytes: u64,
    /// Whether a jump leads out of it, or may.
    pub(crate) leaves: bool,
}

/// What the next instructions of code without rules do, as far as they follow one another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ahead {
    /// Nothing that tells.
    Unknown,
    /// They push the caller's frame pointer, and let the register point there: the return address is on top of the stack now.
    Entry,
    /// They let the frame pointer point to the top of the stack, where the caller's was pushed: the return address is above.
    Pushed,
    /// They return, the stack pointer being what it is: the return address is on top of the stack.
    Return,
    /// They go on at this distance from the first one, the stack pointer being what it is.
    Jump(i64),
}

/// Instructions that return from a signal handler: a handler returns to their first one.
pub(crate) struct Trampoline {
    pub(crate) code: &'static [u8],
    /// Where each instruction begins, and how many bytes the machine context is from the stack pointer before it.
    pub(crate) contexts: &'static [(usize, i64)],
}

impl Machine {
    /// The bits of an address.
    pub(crate) const fn address_mask(&self) -> u64 {
        if self.word == 8 { u64::MAX } else { u32::MAX as u64 }
    }

    /// The address that `pointer` leads to: itself, without a tag.
    #[inline(always)]
    pub(crate) const fn address(&self, pointer: u64) -> u64 {
        let pointer = pointer & self.address_mask();
        ((pointer << self.tag_bits) as i64 >> self.tag_bits) as u64
    }

    /// The address at `bytes` from where `base` leads, as the processor adds.
    #[inline(always)]
    pub(crate) const fn add(&self, base: u64, bytes: i64) -> u64 {
        self.address(base.wrapping_add_signed(bytes))
    }

    /// Whether a program may have code at `address`, which is none of a module: systems map nothing where the bits above those of their addresses do not repeat the
    /// highest one. (x86_64: 48 bits, as Linux gives more to those alone who ask; aarch64: 52; riscv64: 57)
    pub(crate) const fn may_have_code(&self, address: u64) -> bool {
        let below = match self.arch {
            Arch::X86_64 => 47,
            Arch::Aarch64 => 52,
            Arch::Riscv64 => 56,
            _ => return true,
        };
        matches!(address as i64 >> below, 0 | -1)
    }

    /// Whether a call may change `register`, so that its value at a call site is lost.
    pub(crate) fn is_volatile(&self, register: u8) -> bool {
        register != self.fp && register != self.sp && !self.slot_registers.contains(&register)
    }

    /// Which of a rule's slots is that of `register`.
    pub(crate) fn slot_of(&self, register: u8) -> Option<usize> {
        let at = |registers: &[u8]| registers.iter().position(|with_slot| *with_slot == register);
        at(self.slot_registers).or_else(|| Some(self.slot_words * 5 + at(self.convention_registers)?))
    }

    /// Where the machine context is from the stack pointer on, if a signal trampoline is at `address`. `code` gives the bytes
    /// from an address on. An instruction that is about to run may also be one of the trampoline's others.
    pub(crate) fn context_at<'c>(&self, address: u64, exact: bool, code: impl Fn(u64) -> &'c [u8]) -> Option<i64> {
        self.trampolines.iter().find_map(|trampoline| {
            let at = |(begins, _): &&(usize, i64)| {
                (*begins == 0 || exact) && code(address.wrapping_sub(*begins as u64)).starts_with(trampoline.code)
            };
            trampoline.contexts.iter().find(at).map(|(_, context)| *context)
        })
    }

    pub(crate) fn name(&self, number: u8) -> &'static str {
        self.names.get(usize::from(number)).copied().unwrap_or("register?")
    }
}

/// The instruction word that ends `back` bytes before the end of `code`.
fn word_before(code: &[u8], back: usize, big_endian: bool) -> Option<u32> {
    let word = code.get(..code.len().checked_sub(back)?)?.last_chunk::<4>()?;
    Some(if big_endian { u32::from_be_bytes(*word) } else { u32::from_le_bytes(*word) })
}

/// Whether `code` is whole little- or big-endian instruction words of which none is such a one.
fn is_without(code: &[u8], big_endian: bool, is_one: fn(u32) -> bool) -> bool {
    let (words, rest) = code.as_chunks::<4>();
    let word = |bytes: &[u8; 4]| if big_endian { u32::from_be_bytes(*bytes) } else { u32::from_le_bytes(*bytes) };
    rest.is_empty() && !words.iter().any(|bytes| is_one(word(bytes)))
}

/// Whether `code` is one instruction word over and over.
fn is_all(code: &[u8], word: [u8; 4]) -> bool {
    let (words, rest) = code.as_chunks::<4>();
    rest.is_empty() && words.iter().all(|found| *found == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_architecture_is_described_without_contradiction() {
        for arch in Arch::ALL {
            let machine = arch.machine();
            assert_eq!((machine.arch, Arch::from_number(*arch as u8)), (*arch, Some(*arch)));
            assert!(machine.slot_registers.len() <= 5 * machine.slot_words);
            assert!(machine.registers <= crate::Registers::GENERAL && usize::from(machine.pc) >= machine.registers);
            assert!(machine.slot_registers.iter().all(|register| *register != machine.fp && *register != machine.sp));
            for register in (0..machine.registers).chain([usize::from(machine.pc)]) {
                let register = u8::try_from(register).expect("few");
                assert_ne!(arch.register_name(register), "register?", "{arch} {register}");
            }
            for register in machine.slot_registers.iter().chain([&machine.sp, &machine.fp, &machine.pc]) {
                assert!(arch.context_offset(*register).is_some(), "{arch} {register}");
            }
        }
        assert_eq!(Arch::from_number(0), None);
    }
}
