//! A row of call frame information as a rule.

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gimli::{CfaRule, Encoding, Register, RegisterRule, UnwindExpression, UnwindSection, UnwindTableRow};

use super::eval::Storage;
use super::expression;
use super::fdes::Reader;
use super::programs::Programs;
use super::terms;
use crate::arch::Machine;
use crate::cx::Operation as Op;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};

/// A rule, its slots, and how many saved registers had to be marked as unknown.
pub(super) type Translated = (Rule, Slots, usize);

/// The pseudo-register of aarch64 whose lowest bit says that the return address is signed. (AADWARF64)
const RA_SIGN_STATE: Register = Register(34);

/// Where a row has the return address: in bytes from the CFA, or in a register.
#[derive(Clone, Copy)]
enum Place {
    AtCfa(i64),
    InRegister(u8),
}

/// Where a rule counts from what is in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    Cfa,
    /// Where the register points that the CFA is counted from.
    Base,
}

/// What a row is translated with.
pub(super) struct Translator<'s, S> {
    pub(super) machine: &'static Machine,
    pub(super) section: &'s S,
    pub(super) encoding: Encoding,
    pub(super) source: RuleSource,
    /// Registers that functions keep beyond those of the processor's usual convention.
    pub(super) convention_registers: &'static [u8],
    /// The column of the return address, which each entry names for itself: millicode of RISC-V returns by another register.
    pub(super) return_address: Register,
    /// The entry is marked as that of a signal frame.
    pub(super) is_signal: bool,
    /// The CFA of the row in the place of its own: see [`KeptOffset`](super::kept_offset::KeptOffset).
    pub(super) kept: Option<(Register, i64)>,
}

type Row = UnwindTableRow<usize, Storage>;

impl<'a, S: UnwindSection<Reader<'a>>> Translator<'_, S> {
    /// The rule of `row`, or why there is none.
    pub(super) fn translate(&self, row: &Row, programs: &mut Programs) -> Result<Translated, String> {
        let machine = self.machine;
        let return_address = match row.register(self.return_address) {
            Some(RegisterRule::Undefined) => return Ok((Rule::bare(Kind::End, self.source), Slots::SAME, 0)),
            Some(RegisterRule::Offset(offset)) => Place::AtCfa(offset),
            Some(RegisterRule::Register(register)) => match u8::try_from(register.0) {
                Ok(number) if usize::from(number) < machine.registers => Place::InRegister(number),
                _ => return Err(format!("return address rule register({})", terms::register(machine, register))),
            },
            Some(RegisterRule::Expression(_)) => return self.signal(row),
            // Where calls leave it in a register, a function that does not say keeps it there. Else the column has no
            // default: a row that does not say is broken.
            None | Some(RegisterRule::SameValue) if machine.link.is_some() => match u8::try_from(self.return_address.0)
            {
                Ok(number) if usize::from(number) < machine.registers => Place::InRegister(number),
                _ => return Err(format!("return address column {}", terms::register(machine, self.return_address))),
            },
            None => return Err(String::from("no rule for the return address")),
            Some(other) => return Err(format!("return address rule {}", terms::register_rule(machine, &other))),
        };
        if self.is_signal {
            return Err(String::from("signal frame of an unknown form"));
        }
        match row.register(Register(u16::from(machine.sp))) {
            None | Some(RegisterRule::SameValue | RegisterRule::ValOffset(0)) => {}
            Some(other) => return Err(format!("stack pointer rule {}", terms::register_rule(machine, &other))),
        }
        // Most rows have no expression, and are not asked register by register.
        let has_expressions = row.registers().any(|(_, rule)| matches!(rule, RegisterRule::Expression(_)));
        let on_fp = has_expressions
            && [machine.fp].iter().chain(machine.slot_registers).any(|register| {
                let rule = row.register(Register(u16::from(*register)));
                matches!(rule, Some(RegisterRule::Expression(expression)) if self.fp_slot(&expression).is_some())
            });
        let cfa = self.cfa(row, programs)?;
        let near = self.places(row, cfa, return_address, on_fp, Origin::Cfa);
        let lost = |places: &Option<Translated>| places.as_ref().map_or(usize::MAX, |(.., unknown)| *unknown);
        // GCC for aarch64 saves registers at the bottom of a frame, which may be far from the CFA.
        let is_far = lost(&near) > 0 && !on_fp && matches!(cfa.0, Kind::Sp | Kind::Fp | Kind::Register);
        let far = is_far.then(|| self.places(row, cfa, return_address, on_fp, Origin::Base)).flatten();
        let found = if lost(&far) < lost(&near) { far } else { near };
        let (rule, slots, unknown) = found.ok_or_else(|| match return_address {
            Place::AtCfa(offset) => format!("return address at CFA{offset:+}"),
            Place::InRegister(number) => format!("return address in {}", machine.name(number)),
        })?;
        let signed = match machine.signs_return_addresses.then(|| row.register(RA_SIGN_STATE)).flatten() {
            None => false,
            Some(RegisterRule::Constant(state)) => state & 1 != 0,
            Some(other) => return Err(format!("sign state {}", terms::register_rule(machine, &other))),
        };
        Ok((if signed { rule.with_signed_return_address() } else { rule }, slots, unknown))
    }

    /// The rule whose CFA is told by `cfa`, with what is in memory counted from `origin`; `None` where that does not fit it.
    fn places(
        &self,
        row: &Row,
        (kind, register, offset): (Kind, u8, i64),
        return_address: Place,
        on_fp: bool,
        origin: Origin,
    ) -> Option<Translated> {
        let machine = self.machine;
        let below_cfa = if origin == Origin::Base { offset * machine.word } else { 0 };
        let return_address = match return_address {
            Place::AtCfa(offset) => ReturnAddress::AtCfa(self.words(offset.checked_add(below_cfa)?)?),
            Place::InRegister(number) => ReturnAddress::InRegister(number),
        };
        let (mut fp, mut slots, mut unknown) = (Saved::Same, Slots::SAME, 0);
        // What a row does not speak of keeps its value. One pass: a row has few rules, and a processor many registers.
        for (register, rule) in row.registers() {
            let Ok(register) = u8::try_from(register.0) else { continue };
            if register == machine.fp {
                fp = self.saved(register, rule, on_fp, below_cfa, &mut unknown);
            } else if let Some(at) = self.slot_of(register) {
                slots = slots.with(at, self.saved(register, rule, on_fp, below_cfa, &mut unknown));
            }
        }
        let rule = Rule::new(kind, self.source, register, offset, return_address, fp).or_else(|| {
            unknown += 1;
            Rule::new(kind, self.source, register, offset, return_address, Saved::Unknown)
        })?;
        let rule = if on_fp { rule.with_slots_on_fp() } else { rule };
        Some((if origin == Origin::Base { rule.with_places_from_base() } else { rule }, slots, unknown))
    }

    fn cfa(&self, row: &Row, programs: &mut Programs) -> Result<(Kind, u8, i64), String> {
        let machine = self.machine;
        let is_register = |register: u8| usize::from(register) < machine.registers;
        let kept = self.kept.map(|(register, offset)| CfaRule::RegisterAndOffset { register, offset });
        let ops = match kept.as_ref().unwrap_or(row.cfa()) {
            CfaRule::RegisterAndOffset { register, offset } => {
                let number = u8::try_from(register.0).ok().filter(|number| is_register(*number));
                let number =
                    number.ok_or_else(|| format!("CFA from register {}", terms::register(machine, *register)))?;
                let kind = match number {
                    _ if number == machine.sp => Kind::Sp,
                    _ if number == machine.fp => Kind::Fp,
                    _ => Kind::Register,
                };
                if let Some(words) = self.cfa_words(*offset) {
                    return Ok((kind, number, words));
                }
                Vec::from([Op::Register(number), Op::Constant(*offset), Op::Add])
            }
            CfaRule::Expression(expression) => self.operations(expression)?,
        };
        if let Some(pushed) = expression::as_plt(&ops, machine)
            && machine.link.is_none()
        {
            return Ok((Kind::Plt, machine.sp, pushed));
        }
        if let Some((register, offset)) = expression::as_deref(&ops)
            && is_register(register)
            && let Some(words) = self.cfa_words(offset)
        {
            return Ok((Kind::Deref, register, words));
        }
        let program =
            expression::program(&ops, machine).ok_or_else(|| String::from("CFA expression that gives no value"))?;
        let at = programs.intern(program).ok_or_else(|| String::from("CFA expression, one too many"))?;
        Ok((Kind::Program, 0, at))
    }

    /// The kernel's signal frame, as glibc describes it: every register at its place in the machine context.
    fn signal(&self, row: &Row) -> Result<Translated, String> {
        let unknown = || String::from("return address from an expression that is not that of a signal frame");
        let address = |register: u8| match row.register(Register(u16::from(register))) {
            Some(RegisterRule::Expression(expression)) => expression::as_address(&self.operations(&expression).ok()?),
            _ => None,
        };
        let CfaRule::Expression(cfa) = row.cfa() else { return Err(unknown()) };
        let machine = self.machine;
        let (Some((base, cfa)), Some((pc_base, pc))) =
            (expression::as_deref(&self.operations(cfa)?), address(machine.return_address))
        else {
            return Err(unknown());
        };
        let in_context =
            |register, at: i64| (machine.context_slot)(register).and_then(|slot| at.checked_sub_unsigned(slot));
        let context = in_context(machine.pc, pc).ok_or_else(unknown)?;
        let others_agree = [machine.fp].iter().chain(machine.slot_registers).all(|register| match address(*register) {
            Some((base, at)) if base == machine.sp => in_context(*register, at) == Some(context),
            _ => false,
        });
        let on_sp = base == machine.sp && pc_base == machine.sp;
        if !on_sp || !others_agree || in_context(machine.sp, cfa) != Some(context) {
            return Err(unknown());
        }
        let rule = Rule::new(Kind::Signal, self.source, machine.sp, context, ReturnAddress::AtCfa(0), Saved::Same)
            .ok_or_else(unknown)?;
        Ok((rule, Slots::SAME, 0))
    }

    /// Tells `tell` of each register that `rule` and `slots` mark as unknown although `row` says where it is: its name, and how the row says it.
    pub(super) fn unknown_registers(&self, row: &Row, rule: Rule, slots: Slots, mut tell: impl FnMut(&str)) {
        for (register, said) in row.registers().filter(|(_, said)| !matches!(said, RegisterRule::Undefined)) {
            let Ok(number) = u8::try_from(register.0) else { continue };
            let found = if number == self.machine.fp {
                Some(rule.frame_pointer())
            } else {
                self.slot_of(number).and_then(|_| slots.of_machine(self.machine, number))
            };
            if found == Some(Saved::Unknown) {
                let said = match said {
                    // Each distance would be a reason of its own.
                    RegisterRule::Offset(_) => Cow::Borrowed("offset, too far from the CFA"),
                    said => terms::register_rule(self.machine, said),
                };
                tell(&format!("{} rule {said}", terms::register(self.machine, *register)));
            }
        }
    }

    /// The slot of a register that functions keep. Those of Windows keep more, and their call frame information says where.
    fn slot_of(&self, register: u8) -> Option<usize> {
        let machine = self.machine;
        let usual = machine.slot_registers.iter().position(|known| *known == register);
        usual.or_else(|| self.convention_registers.contains(&register).then(|| machine.slot_of(register)).flatten())
    }

    /// Where `register` is, in words from `below_cfa` bytes below the CFA; with `on_fp`, the row's slots lie relative to the frame pointer.
    fn saved(
        &self,
        register: u8,
        rule: &RegisterRule<usize>,
        on_fp: bool,
        below_cfa: i64,
        unknown: &mut usize,
    ) -> Saved {
        let slot = match rule {
            RegisterRule::SameValue => return Saved::Same,
            // Said to be lost: nothing that this format fails to express.
            RegisterRule::Undefined => return Saved::Unknown,
            RegisterRule::Offset(offset) if !on_fp => offset.checked_add(below_cfa).and_then(|at| self.words(at)),
            RegisterRule::Expression(expression) if on_fp => self.fp_slot(expression),
            _ => None,
        };
        let saved = slot.map_or(Saved::Unknown, Saved::At);
        if saved == Saved::Unknown || (register != self.machine.fp && !Slots::holds(saved)) {
            *unknown += 1;
            return Saved::Unknown;
        }
        saved
    }

    /// fp + offset, in words.
    fn fp_slot(&self, expression: &UnwindExpression<usize>) -> Option<i16> {
        match expression::as_address(&self.operations(expression).ok()?)? {
            (base, offset) if base == self.machine.fp => self.words(offset),
            _ => None,
        }
    }

    fn operations(&self, expression: &UnwindExpression<usize>) -> Result<Vec<Op>, String> {
        let expression = expression.get(self.section).map_err(|error| format!("expression: {error}"))?;
        expression::operations(expression, self.encoding, self.machine)
    }

    fn words(&self, bytes: i64) -> Option<i16> {
        i16::try_from(self.whole_words(bytes)?).ok()
    }

    /// The words of a CFA offset that fits its field.
    fn cfa_words(&self, bytes: i64) -> Option<i64> {
        self.whole_words(bytes).filter(|words| Rule::offset_fits(*words))
    }

    /// A shift, and no division: every saved register of every row comes here.
    fn whole_words(&self, bytes: i64) -> Option<i64> {
        let shift = self.machine.word.trailing_zeros();
        let words = bytes >> shift;
        (words << shift == bytes).then_some(words)
    }
}
