//! One rule: how the caller's registers follow from the callee's, in 64 bits, and the slots of the other saved
//! registers in 64 more. `docs/formats/uwt.md` gives the same layout.
//!
//! | bits | meaning |
//! | --- | --- |
//! | 0..4 | [`Kind`] |
//! | 4..6 | [`ReturnAddress`] |
//! | 6 | saved registers lie relative to the frame pointer register instead of the CFA |
//! | 7 | the return address is signed (no architecture yet) |
//! | 8..12 | [`RuleSource`] |
//! | 12..17 | base register, DWARF number |
//! | 17..37 | offset for the CFA, signed words |
//! | 37..51 | where the return address is: signed words from the CFA, or a register |
//! | 51..64 | where the caller's frame pointer is: signed words from the CFA; −4096 same value, −4095 unknown |

use core::fmt;

use crate::arch;

/// Bytes in a word of a target.
pub(crate) const WORD: i64 = 8;

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
    /// CFA = sp + 8 + (pc & 15 ≥ offset in bytes ? 8 : 0).
    Plt = 6,
    /// All registers lie in the machine context at sp + offset (in bytes).
    Signal = 7,
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
}

impl RuleSource {
    fn from_bits(bits: u64) -> Option<Self> {
        Some(match bits & 15 {
            0 => Self::None,
            1 => Self::EhFrame,
            2 => Self::DebugFrame,
            3 => Self::Plt,
            4 => Self::Trampoline,
            _ => return None,
        })
    }
}

/// Where a rule finds the return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReturnAddress {
    /// In memory, this many words from the CFA.
    AtCfa(i16),
    /// In a register, by DWARF number; true only before that register is overwritten.
    InRegister(u8),
}

/// Where a rule finds the caller's value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saved {
    /// It is unchanged.
    Same,
    /// The rule does not tell.
    Unknown,
    /// In memory, this many words from the CFA, or from the frame pointer's value where [`Rule::slots_on_fp`].
    At(i16),
}

const CFA_AT: u32 = 17;
const RA_AT: u32 = 37;
const FP_AT: u32 = 51;
const CFA_BITS: u32 = RA_AT - CFA_AT;
const RA_BITS: u32 = FP_AT - RA_AT;
const FP_BITS: u32 = u64::BITS - FP_AT;
const SLOTS_ON_FP: u64 = 1 << 6;
const FP_SAME: i64 = -(1 << (FP_BITS - 1));
const FP_UNKNOWN: i64 = FP_SAME + 1;

/// The bits that must read [`PLAIN`] for the fast path: kind but for its lowest bit, return address, its place, flags.
const PLAIN_MASK: u64 = 0b1110 | 0b11 << 4 | SLOTS_ON_FP | 1 << 7 | ((1 << RA_BITS) - 1) << RA_AT;
const PLAIN: u64 = 0b0010 | (((-1i64) as u64) & ((1 << RA_BITS) - 1)) << RA_AT;

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

    /// Whether `offset` fits its field.
    #[cfg(feature = "compile")]
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

    /// Where the return address is; `None` for a form that this version does not know.
    pub fn return_address(self) -> Option<ReturnAddress> {
        let value = sign_extend(self.0 >> RA_AT, RA_BITS);
        match self.0 >> 4 & 0b1011 {
            0 => Some(ReturnAddress::AtCfa(value as i16)),
            1 => u8::try_from(value).ok().map(ReturnAddress::InRegister),
            _ => None,
        }
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

    /// Whether this is CFA = sp or fp + offset, return address right below the CFA, slots relative to the CFA.
    #[inline(always)]
    pub(crate) fn is_plain(self) -> bool {
        self.0 & PLAIN_MASK == PLAIN
    }

    /// Of a plain rule: whether the base is the frame pointer.
    #[inline(always)]
    pub(crate) fn is_fp_based(self) -> bool {
        self.0 & 1 != 0
    }

    /// Whether the rule is one that an evaluator of this version can carry out, its program aside.
    pub(crate) fn is_well_formed(self) -> bool {
        let (Some(kind), Some(_), Some(ra)) = (self.kind(), self.source(), self.return_address()) else { return false };
        let register_fits =
            !matches!(ra, ReturnAddress::InRegister(register) if usize::from(register) >= arch::REGISTERS);
        let base_fits = !matches!(kind, Kind::Register | Kind::Deref) || usize::from(self.register()) < arch::REGISTERS;
        // Every piece of information comes from somewhere, and a gap from nowhere.
        let source_fits = (kind == Kind::Gap) == (self.source() == Some(RuleSource::None));
        register_fits && base_fits && source_fits
    }
}

/// Where the saved registers other than the frame pointer are: five fields of 12 bits, in the order of
/// [`arch::SLOT_REGISTERS`], each signed words from where the rule's frame pointer slot is counted too; −2048 same value,
/// −2047 unknown. The upper four bits are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slots(pub u64);

const SLOT_BITS: u32 = 12;
const SLOT_SAME: i64 = -(1 << (SLOT_BITS - 1));
const SLOT_UNKNOWN: i64 = SLOT_SAME + 1;

impl Slots {
    /// Every register keeps its value.
    pub const SAME: Self = Self(0x0800_8008_0080_0800);

    /// The slots of [`arch::SLOT_REGISTERS`] in order. A slot too far away for its field becomes unknown.
    pub fn new(saved: [Saved; arch::SLOT_REGISTERS.len()]) -> Self {
        let mut bits = 0;
        for (at, saved) in (0..).zip(saved) {
            let value = match saved {
                Saved::Same => SLOT_SAME,
                Saved::Unknown => SLOT_UNKNOWN,
                Saved::At(words) if (SLOT_UNKNOWN + 1..-SLOT_SAME).contains(&i64::from(words)) => i64::from(words),
                Saved::At(_) => SLOT_UNKNOWN,
            };
            bits |= field(value, SLOT_BITS, at * SLOT_BITS).unwrap_or_default();
        }
        Self(bits)
    }

    /// Whether `saved` fits its field.
    #[cfg(feature = "compile")]
    pub(crate) fn holds(saved: Saved) -> bool {
        !matches!(saved, Saved::At(words) if !(SLOT_UNKNOWN + 1..-SLOT_SAME).contains(&i64::from(words)))
    }

    /// Where the caller's value of `register` (DWARF number) is; `None` for a register that has no slot.
    pub fn of(self, register: u8) -> Option<Saved> {
        let at = arch::SLOT_REGISTERS.iter().position(|with_slot| *with_slot == register)?;
        Some(match sign_extend(self.0 >> (at as u32 * SLOT_BITS), SLOT_BITS) {
            SLOT_SAME => Saved::Same,
            SLOT_UNKNOWN => Saved::Unknown,
            words => Saved::At(words as i16),
        })
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

impl fmt::Display for Rule {
    /// The equations, such as `CFA = rsp + 16; RA = [CFA - 8]; rbp = [CFA - 16]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let register = arch::register_name(self.register());
        let (sp, fp) = (arch::register_name(arch::SP), arch::register_name(arch::FP));
        let bytes = self.offset() * WORD;
        match self.kind() {
            Some(Kind::Gap) => return f.write_str("no information"),
            Some(Kind::End) => return f.write_str("no caller: the end of the stack"),
            Some(Kind::Unsupported) => return f.write_str("information of an unsupported form"),
            None => return write!(f, "unknown rule {:#018x}", self.0),
            Some(Kind::Signal) => return write!(f, "all registers from the signal context at {sp}{:+}", self.offset()),
            Some(Kind::Sp) => write!(f, "CFA = {sp}{bytes:+}")?,
            Some(Kind::Fp) => write!(f, "CFA = {fp}{bytes:+}")?,
            Some(Kind::Register) => write!(f, "CFA = {register}{bytes:+}")?,
            Some(Kind::Deref) => write!(f, "CFA = [{register}{bytes:+}]")?,
            Some(Kind::Plt) => write!(f, "CFA = {sp}+8 (+8 where pc & 15 >= {})", self.offset())?,
            Some(Kind::Program) => write!(f, "CFA = program at {}", self.offset())?,
        }
        match self.return_address() {
            Some(ReturnAddress::AtCfa(words)) => write!(f, "; RA = [CFA{:+}]", i64::from(words) * WORD)?,
            Some(ReturnAddress::InRegister(register)) => write!(f, "; RA = {}", arch::register_name(register))?,
            None => f.write_str("; RA unknown")?,
        }
        match self.frame_pointer() {
            Saved::Same => Ok(()),
            Saved::Unknown => write!(f, "; {fp} unknown"),
            Saved::At(words) => {
                let base = if self.slots_on_fp() { fp } else { "CFA" };
                write!(f, "; {fp} = [{base}{:+}]", i64::from(words) * WORD)
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
        assert!(rule.is_well_formed());
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
        assert!(rule(Kind::Sp, ra).is_plain() && !rule(Kind::Sp, ra).is_fp_based());
        assert!(rule(Kind::Fp, ra).is_plain() && rule(Kind::Fp, ra).is_fp_based());
        assert!(!rule(Kind::Fp, ReturnAddress::AtCfa(-2)).is_plain());
        assert!(!rule(Kind::Sp, ReturnAddress::InRegister(5)).is_plain());
        assert!(!rule(Kind::Sp, ra).with_slots_on_fp().is_plain());
        assert!(!rule(Kind::Deref, ra).is_plain() && !Rule::GAP.is_plain() && !Rule::NO_TABLE.is_plain());
    }

    #[test]
    fn slots_tell_same_unknown_and_places_apart() {
        let slots = Slots::new([Saved::Same, Saved::Unknown, Saved::At(-3), Saved::At(2047), Saved::At(-3000)]);
        let [first, second, third, fourth, fifth] = arch::SLOT_REGISTERS.map(|register| slots.of(register));
        assert_eq!((first, second, third), (Some(Saved::Same), Some(Saved::Unknown), Some(Saved::At(-3))));
        assert_eq!((fourth, fifth), (Some(Saved::At(2047)), Some(Saved::Unknown)));
        assert_eq!(slots.of(0), None);
        assert_eq!(Slots::new([Saved::Same; 5]), Slots::SAME);
    }

    #[test]
    fn a_rule_prints_its_equations() {
        let rule = Rule::new(Kind::Sp, RuleSource::EhFrame, 0, 2, ReturnAddress::AtCfa(-1), Saved::At(-2));
        assert_eq!(rule.expect("fits").to_string(), "CFA = rsp+16; RA = [CFA-8]; rbp = [CFA-16]");
    }
}
