//! A row of call frame information as a rule, for AMD64.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use gimli::{CfaRule, Encoding, Register, RegisterRule, UnwindExpression, UnwindSection, UnwindTableRow};

use super::eval::Storage;
use super::expression;
use super::fdes::Reader;
use super::programs::Programs;
use super::terms;
use crate::arch::{self, FP, RETURN_ADDRESS, SLOT_REGISTERS, SP, context_slot};
use crate::cx::Op;
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots, WORD};

/// A rule, its slots, and how many saved registers had to be marked as unknown.
pub(super) type Translated = (Rule, Slots, usize);

/// What a row is translated with.
pub(super) struct Translator<'s, S> {
    pub(super) section: &'s S,
    pub(super) encoding: Encoding,
    pub(super) source: RuleSource,
    /// The entry is marked as that of a signal frame.
    pub(super) is_signal: bool,
}

type Row = UnwindTableRow<usize, Storage>;

impl<'a, S: UnwindSection<Reader<'a>>> Translator<'_, S> {
    /// The rule of `row`, or why there is none.
    pub(super) fn translate(&self, row: &Row, programs: &mut Programs) -> Result<Translated, String> {
        let return_address = match row.register(Register(u16::from(RETURN_ADDRESS))) {
            Some(RegisterRule::Undefined) => return Ok((Rule::bare(Kind::End, self.source), Slots::SAME, 0)),
            Some(RegisterRule::Offset(offset)) => {
                let words = words(offset).ok_or_else(|| format!("return address at CFA{offset:+}"))?;
                ReturnAddress::AtCfa(words)
            }
            Some(RegisterRule::Register(register)) => match u8::try_from(register.0) {
                Ok(number) if usize::from(number) < arch::REGISTERS => ReturnAddress::InRegister(number),
                _ => return Err(format!("return address rule register({})", terms::register(register))),
            },
            Some(RegisterRule::Expression(_)) => return self.signal(row),
            // The psABI gives the column no default: a row that does not say is broken.
            None => return Err(String::from("no rule for the return address")),
            Some(other) => return Err(format!("return address rule {}", terms::register_rule(&other))),
        };
        if self.is_signal {
            return Err(String::from("signal frame of an unknown form"));
        }
        match row.register(Register(u16::from(SP))) {
            None | Some(RegisterRule::SameValue | RegisterRule::ValOffset(0)) => {}
            Some(other) => return Err(format!("stack pointer rule {}", terms::register_rule(&other))),
        }
        let on_fp = [FP].iter().chain(&SLOT_REGISTERS).any(|register| {
            let rule = row.register(Register(u16::from(*register)));
            matches!(rule, Some(RegisterRule::Expression(expression)) if self.fp_slot(&expression).is_some())
        });
        let mut unknown = 0;
        let fp = self.saved(row, FP, on_fp, &mut unknown);
        let mut slots = [Saved::Same; SLOT_REGISTERS.len()];
        for (slot, register) in slots.iter_mut().zip(SLOT_REGISTERS) {
            *slot = self.saved(row, register, on_fp, &mut unknown);
        }
        let (kind, register, offset) = self.cfa(row, programs)?;
        let rule = Rule::new(kind, self.source, register, offset, return_address, fp).or_else(|| {
            unknown += 1;
            Rule::new(kind, self.source, register, offset, return_address, Saved::Unknown)
        });
        let rule = rule.ok_or_else(|| format!("return address rule {}", terms::return_address(return_address)))?;
        let rule = if on_fp { rule.with_slots_on_fp() } else { rule };
        Ok((rule, Slots::new(slots), unknown))
    }

    fn cfa(&self, row: &Row, programs: &mut Programs) -> Result<(Kind, u8, i64), String> {
        let ops = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                let number = u8::try_from(register.0).ok().filter(|number| usize::from(*number) < arch::REGISTERS);
                let number = number.ok_or_else(|| format!("CFA from register {}", terms::register(*register)))?;
                let kind = match number {
                    SP => Kind::Sp,
                    FP => Kind::Fp,
                    _ => Kind::Register,
                };
                if let Some(words) = cfa_words(*offset) {
                    return Ok((kind, number, words));
                }
                Vec::from([Op::Register(number), Op::Constant(*offset), Op::Add])
            }
            CfaRule::Expression(expression) => self.operations(expression)?,
        };
        if let Some(pushed) = expression::as_plt(&ops) {
            return Ok((Kind::Plt, SP, pushed));
        }
        if let Some((register, offset)) = expression::as_deref(&ops)
            && usize::from(register) < arch::REGISTERS
            && let Some(words) = cfa_words(offset)
        {
            return Ok((Kind::Deref, register, words));
        }
        let program = expression::program(&ops).ok_or_else(|| String::from("CFA expression that gives no value"))?;
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
        let (Some((SP, cfa)), Some((SP, pc))) = (expression::as_deref(&self.operations(cfa)?), address(RETURN_ADDRESS))
        else {
            return Err(unknown());
        };
        let in_context = |register, at: i64| context_slot(register).and_then(|slot| at.checked_sub_unsigned(slot));
        let context = in_context(RETURN_ADDRESS, pc).ok_or_else(unknown)?;
        let others_agree = [FP].iter().chain(&SLOT_REGISTERS).all(|register| match address(*register) {
            Some((SP, at)) => in_context(*register, at) == Some(context),
            _ => false,
        });
        if !others_agree || in_context(SP, cfa) != Some(context) {
            return Err(unknown());
        }
        let rule = Rule::new(Kind::Signal, self.source, SP, context, ReturnAddress::AtCfa(0), Saved::Same)
            .ok_or_else(unknown)?;
        Ok((rule, Slots::SAME, 0))
    }

    /// Where `register` is; with `on_fp`, the row's slots lie relative to the frame pointer.
    fn saved(&self, row: &Row, register: u8, on_fp: bool, unknown: &mut usize) -> Saved {
        let slot = match row.register(Register(u16::from(register))) {
            None | Some(RegisterRule::SameValue) => return Saved::Same,
            // Said to be lost: nothing that this format fails to express.
            Some(RegisterRule::Undefined) => return Saved::Unknown,
            Some(RegisterRule::Offset(offset)) if !on_fp => words(offset),
            Some(RegisterRule::Expression(expression)) if on_fp => self.fp_slot(&expression),
            Some(_) => None,
        };
        let saved = slot.map_or(Saved::Unknown, Saved::At);
        if saved == Saved::Unknown || (register != FP && !Slots::holds(saved)) {
            *unknown += 1;
            return Saved::Unknown;
        }
        saved
    }

    /// fp + offset, in words.
    fn fp_slot(&self, expression: &UnwindExpression<usize>) -> Option<i16> {
        match expression::as_address(&self.operations(expression).ok()?)? {
            (FP, offset) => words(offset),
            _ => None,
        }
    }

    fn operations(&self, expression: &UnwindExpression<usize>) -> Result<Vec<Op>, String> {
        let expression = expression.get(self.section).map_err(|error| format!("expression: {error}"))?;
        expression::operations(expression, self.encoding)
    }
}

fn words(bytes: i64) -> Option<i16> {
    (bytes % WORD == 0).then(|| i16::try_from(bytes / WORD).ok()).flatten()
}

/// The words of a CFA offset that fits its field.
fn cfa_words(bytes: i64) -> Option<i64> {
    let words = bytes / WORD;
    (bytes % WORD == 0 && Rule::offset_fits(words)).then_some(words)
}
