//! One rule: how the caller's registers follow from the callee's, in 64 bits, and the slots of the other saved
//! registers in 64 more. `docs/formats/uwt.md` gives the same layout.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 0..4 | [`Kind`] |
//! | 4 | [`ReturnAddress`]: 0 in memory, 1 in a register |
//! | 5 | what is in memory lies relative to where the base register points, the CFA minus the offset, instead of the CFA |
//! | 6 | saved registers lie relative to the frame pointer register instead of the CFA |
//! | 7 | the return address is signed: bits that are no part of the address are to be taken away |
//! | 8..12 | [`RuleSource`] |
//! | 12..17 | base register, DWARF number |
//! | 17..37 | offset for the CFA, signed words |
//! | 37..51 | where the return address is: signed words from the CFA, or a register |
//! | 51..64 | where the caller's frame pointer is: signed words from the CFA; −4096 same value, −4095 unknown |

use core::fmt;

use crate::arch::{Arch, Machine};

/// What a rule is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// No information covers the address. Not the same as a rule that says "the end".
    Gap = 0,
    /// The rule says that there is no caller.
    End = 1,
    /// CFA = sp + offset.
    Sp = 2,
    /// CFA = fp + offset.
    Fp = 3,
    /// CFA = register + offset.
    Register = 4,
    /// CFA = *(register + offset).
    Deref = 5,
    /// CFA = sp + word + (pc & 15 ≥ offset in bytes ? word : 0). Of processors whose calls push the return address.
    Plt = 6,
    /// All registers lie in the machine context at sp + offset (in bytes).
    Signal = 7,
    /// The processor itself, or the kernel for it, pushed program counter and stack pointer of interrupted code: the program counter is in
    /// memory at F + `ra` words, F being register + offset, and the stack pointer near it. Slots lie relative to F.
    MachineFrame = 8,
    /// CFA = sp + offset, in code that makes no frame and so calls nothing: true for an interrupted instruction alone. Of processors
    /// whose calls push the return address.
    Leaf = 9,
    /// CFA = value of the program at `offset` in the section of programs.
    Program = 10,
    /// There is information, but of a form that this format does not express.
    Unsupported = 12,
}

impl Kind {
    fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits & 15 {
            0 => Self::Gap,
            1 => Self::End,
            2 => Self::Sp,
            3 => Self::Fp,
            4 => Self::Register,
            5 => Self::Deref,
            6 => Self::Plt,
            7 => Self::Signal,
            8 => Self::MachineFrame,
            9 => Self::Leaf,
            10 => Self::Program,
            12 => Self::Unsupported,
            _ => return None,
        })
    }
}

/// What a rule was made of: four bits of the rule, for the frame's method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum RuleSource {
    /// Nothing: a gap.
    None = 0,
    /// `.eh_frame`.
    EhFrame = 1,
    /// `.debug_frame`.
    DebugFrame = 2,
    /// A procedure linkage table, from its section header and bytes.
    Plt = 3,
    /// The instructions of a signal trampoline.
    Trampoline = 4,
    /// The instructions of a function, held against its record in `.pdr` or what else is said of its body, if there is one.
    Instructions = 5,
    /// The exception directory of a Windows module: `.pdata` and what it leads to.
    Pdata = 6,
    /// `__unwind_info` of a Mach-O module.
    CompactUnwind = 7,
    /// `.ARM.exidx` and what it leads to.
    Exidx = 8,
    /// `.gopclntab` of a Go program.
    GoPclntab = 9,
    /// `.orc_unwind` of a kernel.
    Orc = 11,
    /// Call frame information of code that was made at run time, by who made it.
    Jit = 15,
}

impl RuleSource {
    fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits & 15 {
            0 => Self::None,
            1 => Self::EhFrame,
            2 => Self::DebugFrame,
            3 => Self::Plt,
            4 => Self::Trampoline,
            5 => Self::Instructions,
            6 => Self::Pdata,
            7 => Self::CompactUnwind,
            8 => Self::Exidx,
            9 => Self::GoPclntab,
            11 => Self::Orc,
            15 => Self::Jit,
            _ => return None,
        })
    }
}

/// Where a rule finds the return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnAddress {
    /// In memory, this many words from the CFA, or from [`Rule::origin`] where that is not the CFA.
    AtCfa(i16),
    /// In a register, by DWARF number. If a call may change the register, true only for an interrupted instruction.
    InRegister(u8),
}

/// Where a rule finds the caller's value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// It is unchanged.
    Same,
    /// The rule does not tell.
    Unknown,
    /// In memory, this many words from the CFA, or from [`Rule::origin`] where that is not the CFA, or from the frame pointer's value where
    /// [`Rule::slots_on_fp`].
    At(i16),
}

const CFA_AT: u32 = 17;
const RA_AT: u32 = 37;
const FP_AT: u32 = 51;
const CFA_BITS: u32 = RA_AT - CFA_AT;
const RA_BITS: u32 = FP_AT - RA_AT;
const FP_BITS: u32 = u64::BITS - FP_AT;
const IN_REGISTER: u64 = 1 << 4;
const FROM_BASE: u64 = 1 << 5;
const SLOTS_ON_FP: u64 = 1 << 6;
const FP_SAME: i64 = -(1 << (FP_BITS - 1));
const FP_UNKNOWN: i64 = FP_SAME + 1;

const SIGNED: u64 = 1 << 7;
const RA_MASK: u64 = ((1 << RA_BITS) - 1) << RA_AT;

/// The bits that must read [`PLAIN`] for the fast path: kind but for its lowest bit, form of the return address, where slots
/// lie.
const PLAIN_MASK: u64 = 0b1110 | IN_REGISTER | FROM_BASE | SLOTS_ON_FP;
const PLAIN: u64 = 0b0010;
/// The return address right below the CFA.
const RA_BELOW_CFA: u64 = (((-1i64) as u64) & ((1 << RA_BITS) - 1)) << RA_AT;

/// One rule of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule(pub u64);

impl Rule {
    /// No information.
    pub const GAP: Self = Self(Kind::Gap as u64);
    /// Kind 15, which no file may hold: the engine's own mark of an address without a table.
    pub(crate) const NO_TABLE: Self = Self(15);

    /// A rule of `kind` without any operands.
    pub fn bare(kind: Kind, source: RuleSource) -> Self {
        Self(kind as u64 | (source as u64) << 8)
    }

    /// A rule with operands. `None` where `offset` (words; bytes for PLT and signal; a byte index for programs), `ra` or
    /// `fp` do not fit their fields.
    pub fn new(
        kind: Kind,
        source: RuleSource,
        register: u8,
        offset: i64,
        ra: ReturnAddress,
        fp: Saved,
    ) -> Option<Self> {
        let (ra_kind, ra_value) = match ra {
            ReturnAddress::AtCfa(words) => (0, i64::from(words)),
            ReturnAddress::InRegister(register) => (1, i64::from(register)),
        };
        let fp = match fp {
            Saved::Same => FP_SAME,
            Saved::Unknown => FP_UNKNOWN,
            Saved::At(words) => Some(i64::from(words)).filter(|words| *words > FP_UNKNOWN)?,
        };
        let register = u64::from(register);
        let fields = field(offset, CFA_BITS, CFA_AT)? | field(ra_value, RA_BITS, RA_AT)? | field(fp, FP_BITS, FP_AT)?;
        (register < 32).then_some(Self(kind as u64 | ra_kind << 4 | (source as u64) << 8 | register << 12 | fields))
    }

    /// The same rule with the saved registers relative to the frame pointer register, as in functions that align their stack.
    pub fn with_slots_on_fp(self) -> Self {
        Self(self.0 | SLOTS_ON_FP)
    }

    /// The same rule with what is in memory relative to where the base register points, as in large frames with saved registers at
    /// their bottom: of a kind whose CFA is a register + offset.
    pub fn with_places_from_base(self) -> Self {
        Self(self.0 | FROM_BASE)
    }

    /// Whether what is in memory lies relative to where the base register points.
    pub fn has_places_from_base(self) -> bool {
        self.0 & FROM_BASE != 0
    }

    /// Words from the CFA to where the rule counts from what is in memory, unless that is the frame pointer
    /// ([`slots_on_fp`](Self::slots_on_fp)): 0, or back to where the base register points.
    #[inline(always)]
    pub fn origin(self) -> i64 {
        if self.has_places_from_base() { -self.offset() } else { 0 }
    }

    /// The same rule, of another kind.
    #[cfg(feature = "compile")]
    pub(crate) fn with_kind(self, kind: Kind) -> Self {
        Self(self.0 & !15 | kind as u64)
    }

    /// The same rule with a signed return address.
    pub fn with_signed_return_address(self) -> Self {
        Self(self.0 | SIGNED)
    }

    /// Whether `offset` fits its field.
    #[cfg(feature = "compile-elf")]
    pub(crate) fn offset_fits(offset: i64) -> bool {
        field(offset, CFA_BITS, CFA_AT).is_some()
    }

    /// What the rule is; `None` for a number that this version does not know.
    pub fn kind(self) -> Option<Kind> {
        Kind::from_bits(self.0)
    }

    /// What the rule was made of; `None` for a number that this version does not know.
    pub fn source(self) -> Option<RuleSource> {
        RuleSource::from_bits(self.0 >> 8)
    }

    /// Where the return address is; `None` for a register that there cannot be.
    pub fn return_address(self) -> Option<ReturnAddress> {
        let value = sign_extend(self.0 >> RA_AT, RA_BITS);
        match self.0 & IN_REGISTER {
            0 => Some(ReturnAddress::AtCfa(value as i16)),
            _ => u8::try_from(value).ok().map(ReturnAddress::InRegister),
        }
    }

    /// Whether the return address is signed, so that what is read is not yet an address.
    #[inline(always)]
    pub fn is_signed(self) -> bool {
        self.0 & SIGNED != 0
    }

    /// Words from the CFA to the return address, of a rule that has it in memory.
    #[inline(always)]
    pub(crate) fn return_address_words(self) -> i64 {
        sign_extend(self.0 >> RA_AT, RA_BITS)
    }

    /// Whether saved registers lie relative to the frame pointer register instead of the CFA.
    pub fn slots_on_fp(self) -> bool {
        self.0 & SLOTS_ON_FP != 0
    }

    /// The base register's DWARF number.
    pub fn register(self) -> u8 {
        (self.0 >> 12 & 31) as u8
    }

    /// The offset: words for the CFA kinds, bytes for PLT and signal, a byte index for programs.
    #[inline(always)]
    pub fn offset(self) -> i64 {
        sign_extend(self.0 >> CFA_AT, CFA_BITS)
    }

    /// Where the caller's frame pointer is.
    #[inline(always)]
    pub fn frame_pointer(self) -> Saved {
        match (self.0 as i64) >> FP_AT {
            FP_SAME => Saved::Same,
            FP_UNKNOWN => Saved::Unknown,
            words => Saved::At(words as i16),
        }
    }

    /// Whether this is CFA = sp or fp + offset, return address in memory, slots relative to the CFA. Where calls push the
    /// return address, it is right below the CFA; where they do not, it may be signed.
    #[inline(always)]
    pub(crate) fn is_plain(self, machine: &Machine) -> bool {
        if machine.link.is_some() {
            return self.0 & PLAIN_MASK == PLAIN;
        }
        self.0 & (PLAIN_MASK | SIGNED | RA_MASK) == PLAIN | RA_BELOW_CFA
    }

    /// Of a plain rule: whether the base is the frame pointer.
    #[inline(always)]
    pub(crate) fn is_fp_based(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the rule is one that an evaluator of this version can carry out on `machine`, its program aside.
    pub(crate) fn is_well_formed(self, machine: &Machine) -> bool {
        let (Some(kind), Some(_), Some(ra)) = (self.kind(), self.source(), self.return_address()) else { return false };
        let is_register = |register: u8| usize::from(register) < machine.registers;
        let register_fits = !matches!(ra, ReturnAddress::InRegister(register) if !is_register(register));
        let base_fits = match kind {
            Kind::Register | Kind::Deref => is_register(self.register()),
            Kind::MachineFrame => self.register() == machine.sp || self.register() == machine.fp,
            _ => true,
        };
        // Every piece of information comes from somewhere, and a gap from nowhere.
        let source_fits = (kind == Kind::Gap) == (self.source() == Some(RuleSource::None));
        let arch_fits = (!self.is_signed() || machine.signs_return_addresses)
            && (kind != Kind::Plt || machine.link.is_none())
            && (kind != Kind::Leaf || machine.arch == Arch::X86_64)
            && (kind != Kind::MachineFrame
                || (machine.machine_frame_sp.is_some() && matches!(ra, ReturnAddress::AtCfa(_))));
        let has_base = matches!(kind, Kind::Sp | Kind::Fp | Kind::Register) && !self.slots_on_fp();
        register_fits && base_fits && source_fits && arch_fits && (has_base || !self.has_places_from_base())
    }

    /// The equations, such as `CFA = rsp+16; RA = [CFA-8]; rbp = [CFA-16]`.
    pub fn display(self, arch: Arch) -> impl fmt::Display {
        Equations { rule: self, machine: arch.machine() }
    }
}

/// Where the saved registers other than the frame pointer are: fields of 12 bits, five to a word from its lowest bit on, in
/// the order of [`Arch::slot_registers`], each signed words from where the rule's frame pointer slot is counted too; −2048
/// same value, −2047 unknown. The upper four bits of a word are zero. Behind the words of these registers comes that of
/// [`Arch::convention_registers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slots(pub [u64; SLOT_WORDS]);

/// The most words of slots that an architecture has.
const SLOT_WORDS: usize = 3;
const SLOT_BITS: u32 = 12;
const SLOTS_IN_WORD: usize = 5;
const SLOT_SAME: i64 = -(1 << (SLOT_BITS - 1));
const SLOT_UNKNOWN: i64 = SLOT_SAME + 1;

impl Slots {
    /// Every register keeps its value.
    pub const SAME: Self = Self([0x0800_8008_0080_0800; SLOT_WORDS]);
    /// A word of registers that cannot be told.
    pub(crate) const UNKNOWN_WORD: u64 = 0x0801_8018_0180_1801;

    /// The same with `saved` for the register at `at` in [`Arch::slot_registers`]. A slot too far away for its field becomes
    /// unknown.
    pub fn with(mut self, at: usize, saved: Saved) -> Self {
        let value = match saved {
            Saved::Same => SLOT_SAME,
            Saved::Unknown => SLOT_UNKNOWN,
            Saved::At(_) if !Self::holds(saved) => SLOT_UNKNOWN,
            Saved::At(words) => i64::from(words),
        };
        let shift = (at % SLOTS_IN_WORD) as u32 * SLOT_BITS;
        if let (Some(word), Some(bits)) = (self.0.get_mut(at / SLOTS_IN_WORD), field(value, SLOT_BITS, shift)) {
            *word = *word & !(((1 << SLOT_BITS) - 1) << shift) | bits;
        }
        self
    }

    /// Whether `saved` fits its field.
    pub(crate) fn holds(saved: Saved) -> bool {
        !matches!(saved, Saved::At(words) if !(SLOT_UNKNOWN + 1..-SLOT_SAME).contains(&i64::from(words)))
    }

    /// Where the caller's value of `register` (DWARF number) is; `None` for a register that has no slot.
    pub fn of(self, arch: Arch, register: u8) -> Option<Saved> {
        self.of_machine(arch.machine(), register)
    }

    pub(crate) fn of_machine(self, machine: &Machine, register: u8) -> Option<Saved> {
        let at = machine.slot_of(register)?;
        let word = self.0.get(at / SLOTS_IN_WORD)?;
        Some(match sign_extend(word >> ((at % SLOTS_IN_WORD) as u32 * SLOT_BITS), SLOT_BITS) {
            SLOT_SAME => Saved::Same,
            SLOT_UNKNOWN => Saved::Unknown,
            words => Saved::At(words as i16),
        })
    }

    /// Whether the bits without a meaning are zero.
    pub(crate) fn is_well_formed(self) -> bool {
        self.0.iter().all(|word| word >> 60 == 0)
    }
}

/// `value` as a signed field of `bits` bits at bit `at`, if it fits.
fn field(value: i64, bits: u32, at: u32) -> Option<u64> {
    let limit = 1i64 << (bits - 1);
    (-limit..limit).contains(&value).then_some(((value as u64) & ((1 << bits) - 1)) << at)
}

#[inline(always)]
fn sign_extend(value: u64, bits: u32) -> i64 {
    let unused = u64::BITS - bits;
    (value << unused) as i64 >> unused
}

struct Equations {
    rule: Rule,
    machine: &'static Machine,
}

impl fmt::Display for Equations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, machine } = self;
        let register = machine.name(rule.register());
        let (sp, fp) = (machine.name(machine.sp), machine.name(machine.fp));
        let bytes = rule.offset() * machine.word;
        match rule.kind() {
            Some(Kind::Gap) => return f.write_str("no information"),
            Some(Kind::End) => return f.write_str("no caller: the end of the stack"),
            Some(Kind::Unsupported) => return f.write_str("information of an unsupported form"),
            None => return write!(f, "unknown rule {:#018x}", rule.0),
            Some(Kind::Signal) => return write!(f, "all registers from the signal context at {sp}{:+}", rule.offset()),
            Some(Kind::MachineFrame) => write!(f, "interrupted: CFA = {register}{bytes:+} holds pc and {sp}")?,
            Some(Kind::Sp) => write!(f, "CFA = {sp}{bytes:+}")?,
            Some(Kind::Leaf) => write!(f, "a leaf: CFA = {sp}{bytes:+}")?,
            Some(Kind::Fp) => write!(f, "CFA = {fp}{bytes:+}")?,
            Some(Kind::Register) => write!(f, "CFA = {register}{bytes:+}")?,
            Some(Kind::Deref) => write!(f, "CFA = [{register}{bytes:+}]")?,
            Some(Kind::Plt) => {
                let word = machine.word;
                write!(f, "CFA = {sp}+{word} (+{word} where pc & 15 >= {})", rule.offset())?;
            }
            Some(Kind::Program) => write!(f, "CFA = program at {}", rule.offset())?,
        }
        match rule.return_address() {
            Some(ReturnAddress::AtCfa(words)) => {
                write!(f, "; RA = [CFA{:+}]", (i64::from(words) + rule.origin()) * machine.word)?;
            }
            Some(ReturnAddress::InRegister(register)) => write!(f, "; RA = {}", machine.name(register))?,
            None => f.write_str("; RA unknown")?,
        }
        if rule.is_signed() {
            f.write_str(" without its signature")?;
        }
        match rule.frame_pointer() {
            Saved::Same => Ok(()),
            Saved::Unknown => write!(f, "; {fp} unknown"),
            Saved::At(words) => {
                let (base, origin) = if rule.slots_on_fp() { (fp, 0) } else { ("CFA", rule.origin()) };
                write!(f, "; {fp} = [{base}{:+}]", (i64::from(words) + origin) * machine.word)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn check(kind: Kind, register: u8, offset: i64, ra: ReturnAddress, fp: Saved) {
        let rule = Rule::new(kind, RuleSource::EhFrame, register, offset, ra, fp).expect("fits");
        assert_eq!(
            (rule.kind(), rule.source(), rule.register(), rule.offset(), rule.return_address(), rule.frame_pointer()),
            (Some(kind), Some(RuleSource::EhFrame), register, offset, Some(ra), fp)
        );
        assert!(rule.is_well_formed(Arch::X86_64.machine()));
    }

    #[test]
    fn a_rule_gives_back_what_it_was_made_of() {
        for offset in [0, 1, -1, 524_287, -524_288] {
            for ra in [ReturnAddress::AtCfa(-1), ReturnAddress::AtCfa(8191), ReturnAddress::InRegister(5)] {
                for fp in [Saved::Same, Saved::Unknown, Saved::At(-2), Saved::At(0), Saved::At(4095), Saved::At(-4094)]
                {
                    check(Kind::Sp, 0, offset, ra, fp);
                    check(Kind::Register, 15, offset, ra, fp);
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_a_field_is_refused() {
        let ra = ReturnAddress::AtCfa(-1);
        let new = |offset, ra, fp| Rule::new(Kind::Sp, RuleSource::EhFrame, 0, offset, ra, fp);
        assert_eq!(new(524_288, ra, Saved::Same), None);
        assert_eq!(new(0, ReturnAddress::AtCfa(8192), Saved::Same), None);
        assert_eq!(new(0, ra, Saved::At(4096)), None);
        assert_eq!(new(0, ra, Saved::At(-4095)), None);
    }

    #[test]
    fn only_the_usual_rules_are_plain() {
        let rule = |kind, ra| Rule::new(kind, RuleSource::EhFrame, 0, 2, ra, Saved::At(-2)).expect("fits");
        let ra = ReturnAddress::AtCfa(-1);
        let check = |rule: Rule, x86_64, aarch64| {
            let found = (rule.is_plain(Arch::X86_64.machine()), rule.is_plain(Arch::Aarch64.machine()));
            assert_eq!(found, (x86_64, aarch64), "{rule:x?}");
        };
        assert!(!rule(Kind::Sp, ra).is_fp_based() && rule(Kind::Fp, ra).is_fp_based());
        check(rule(Kind::Sp, ra), true, true);
        check(rule(Kind::Fp, ra), true, true);
        check(rule(Kind::Fp, ReturnAddress::AtCfa(-2)), false, true);
        check(rule(Kind::Sp, ra).with_signed_return_address(), false, true);
        check(rule(Kind::Sp, ReturnAddress::InRegister(5)), false, false);
        check(rule(Kind::Sp, ra).with_slots_on_fp(), false, false);
        check(rule(Kind::Sp, ra).with_places_from_base(), false, false);
        for other in [rule(Kind::Deref, ra), rule(Kind::Leaf, ra), Rule::GAP, Rule::NO_TABLE] {
            check(other, false, false);
        }
    }

    #[test]
    fn a_rule_is_well_formed_only_for_a_processor_that_has_what_it_speaks_of() {
        let check = |rule: Rule, arch: Arch, expected| {
            assert_eq!(rule.is_well_formed(arch.machine()), expected, "{arch}: {}", rule.display(arch));
        };
        let ra = ReturnAddress::AtCfa(-1);
        let rule = |kind, ra| Rule::new(kind, RuleSource::EhFrame, 20, 2, ra, Saved::Same).expect("fits");
        check(rule(Kind::Sp, ReturnAddress::InRegister(30)), Arch::X86_64, false);
        check(rule(Kind::Sp, ReturnAddress::InRegister(30)), Arch::Aarch64, true);
        check(rule(Kind::Register, ra), Arch::X86_64, false);
        check(rule(Kind::Register, ra), Arch::Mips32, true);
        check(rule(Kind::Plt, ra), Arch::X86_64, true);
        check(rule(Kind::Plt, ra), Arch::I686, true);
        check(rule(Kind::Plt, ra), Arch::Mips32, false);
        check(rule(Kind::Leaf, ra), Arch::X86_64, true);
        check(rule(Kind::Leaf, ra), Arch::Aarch64, false);
        check(rule(Kind::Sp, ra).with_signed_return_address(), Arch::Aarch64, true);
        check(rule(Kind::Sp, ra).with_signed_return_address(), Arch::X86_64, false);
        check(rule(Kind::Register, ra).with_places_from_base(), Arch::Aarch64, true);
        check(rule(Kind::Register, ra).with_places_from_base().with_slots_on_fp(), Arch::Aarch64, false);
        for kind in [Kind::Deref, Kind::Program, Kind::End] {
            check(rule(kind, ra).with_places_from_base(), Arch::Aarch64, false);
        }
    }

    #[test]
    fn slots_tell_same_unknown_and_places_apart() {
        let saved = [Saved::Same, Saved::Unknown, Saved::At(-3), Saved::At(2047), Saved::At(-3000)];
        let slots = (0..).zip(saved).fold(Slots::SAME, |slots, (at, saved)| slots.with(at, saved));
        let found = Arch::X86_64.slot_registers().iter().map(|register| slots.of(Arch::X86_64, *register));
        let expected = [Saved::Same, Saved::Unknown, Saved::At(-3), Saved::At(2047), Saved::Unknown];
        assert!(found.eq(expected.map(Some)) && slots.is_well_formed());
        assert_eq!(slots.of(Arch::X86_64, 0), None);
        assert_eq!((0..10).fold(slots, |slots, at| slots.with(at, Saved::Same)), Slots::SAME);
        for arch in Arch::ALL {
            for (at, register) in arch.slot_registers().iter().enumerate() {
                let slots = Slots::SAME.with(at, Saved::At(-7));
                for other in arch.slot_registers() {
                    let expected = if other == register { Saved::At(-7) } else { Saved::Same };
                    assert_eq!(slots.of(*arch, *other), Some(expected), "{arch}");
                }
            }
        }
    }

    #[test]
    fn a_rule_prints_its_equations() {
        let rule = Rule::new(Kind::Sp, RuleSource::EhFrame, 0, 2, ReturnAddress::AtCfa(-1), Saved::At(-2));
        let rule = rule.expect("fits");
        let check = |rule: Rule, arch, expected: &str| assert_eq!(rule.display(arch).to_string(), expected);
        check(rule, Arch::X86_64, "CFA = rsp+16; RA = [CFA-8]; rbp = [CFA-16]");
        check(rule, Arch::Mips32, "CFA = sp+8; RA = [CFA-4]; s8 = [CFA-8]");
        let signed = rule.with_signed_return_address();
        check(signed, Arch::Aarch64, "CFA = sp+16; RA = [CFA-8] without its signature; x29 = [CFA-16]");
        let rule = Rule::new(Kind::Sp, RuleSource::EhFrame, 31, 8755, ReturnAddress::AtCfa(1), Saved::At(0));
        let rule = rule.expect("fits").with_places_from_base();
        check(rule, Arch::Aarch64, "CFA = sp+70040; RA = [CFA-70032]; x29 = [CFA-70040]");
    }
}
