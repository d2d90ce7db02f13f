//! Running the instructions of an entry: its rows, clipped to the code that it speaks for.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use gimli::{ArrayLike, BaseAddresses, RegisterRule, UnwindContext, UnwindContextStorage, UnwindTableRow};

use super::fdes::{CfiSection, Fde};
use super::kept_offset::KeptOffset;
use super::pieces::{Origin, Piece};
use super::programs::Programs;
use super::rules::Rules;
use super::translate::Translator;
use super::{Report, Unsupported};
use crate::arch::Arch;
use crate::rule::{Kind, Rule, RuleSource, Slots};
use crate::source::SourceKind;

/// Bytes of call frame information that a row takes at least, in sections of compilers: 6.0 in libLLVM 14. More rows are taken too.
const BYTES_OF_ROW: usize = 5;

/// How many rows a section has, about, so that a list of a million is not moved each time that it doubles.
pub(super) fn expected_rows(bytes: &[u8]) -> usize {
    bytes.len() / BYTES_OF_ROW
}

/// Registers that a row may have rules for: gimli's own bound.
const MAX_RULES: usize = 192;
/// States that an entry may remember at once. gimli's own bound of 4 is less than some compilers use.
pub(super) const MAX_REMEMBERED: usize = 32;

pub(super) struct Storage;

type RegisterRules = [(gimli::Register, RegisterRule<usize>); MAX_RULES];
type Stack = alloc::boxed::Box<[UnwindTableRow<usize, Storage>; MAX_REMEMBERED]>;

impl UnwindContextStorage<usize> for Storage
where
    RegisterRules: ArrayLike<Item = (gimli::Register, RegisterRule<usize>)>,
{
    type Rules = RegisterRules;
    type Stack = Stack;
}

/// Runs entries of one section one after the other.
pub(super) struct Evaluator<'s, S> {
    section: &'s S,
    bases: &'s BaseAddresses,
    arch: Arch,
    /// Registers that the module's functions keep beyond those of the processor's usual convention.
    convention_registers: &'static [u8],
    source: RuleSource,
    kind: SourceKind,
    context: UnwindContext<usize, Storage>,
    /// Bytes of instructions that may still be run. The common part of an entry is run again for each of them, which a
    /// hostile section would use.
    budget: usize,
}

impl<'s, 'a, S: CfiSection<'a>> Evaluator<'s, S> {
    pub(super) fn new(section: &'s S, bytes: &[u8], bases: &'s BaseAddresses, arch: Arch, source: RuleSource) -> Self {
        let budget = bytes.len().saturating_mul(64).saturating_add(1 << 20);
        let kind = if source == RuleSource::DebugFrame { SourceKind::DebugFrame } else { SourceKind::EhFrame };
        let context = UnwindContext::new_in();
        Self { section, bases, arch, convention_registers: &[], source, kind, context, budget }
    }

    /// For a module whose functions keep `registers` too.
    pub(super) fn with_convention(mut self, registers: &'static [u8]) -> Self {
        self.convention_registers = registers;
        self
    }

    /// Appends the pieces of `fde` that lie in `claimed`, which is sorted.
    pub(super) fn run(
        &mut self,
        fde: &Fde<'a>,
        claimed: &[Range<u64>],
        programs: &mut Programs,
        rules: &mut Rules,
        report: &mut Report,
        pieces: &mut Vec<Piece>,
    ) {
        let mut emit = Emit {
            claimed,
            pieces,
            rules,
            report,
            origin: Origin::new(self.kind, fde.offset() as u64),
            unsupported: Rule::bare(Kind::Unsupported, self.source),
        };
        // What could not be read is unsupported up to here.
        let mut done = fde.initial_address();
        let cost = fde.entry_len().saturating_add(fde.cie().entry_len());
        let Some(budget) = self.budget.checked_sub(cost) else {
            emit.unsupported(done..fde.end_address(), || String::from("more instructions than a sane section has"));
            return;
        };
        self.budget = budget;
        let mut translator = Translator {
            machine: self.arch.machine(),
            section: self.section,
            encoding: fde.cie().encoding(),
            source: self.source,
            convention_registers: self.convention_registers,
            return_address: fde.cie().return_address_register(),
            is_signal: fde.is_signal_trampoline(),
            kept: None,
        };
        let mut rows = match fde.rows(self.section, self.bases, &mut self.context) {
            Ok(rows) => rows,
            Err(error) => {
                emit.unsupported(done..fde.end_address(), || format!("common information entry: {error}"));
                return;
            }
        };
        let mut kept: Option<KeptOffset> = None;
        loop {
            match rows.next_row() {
                Ok(Some(row)) => {
                    let range = row.start_address().max(done)..row.end_address().min(fde.end_address());
                    if range.start >= range.end {
                        continue;
                    }
                    done = range.end;
                    translator.kept = kept.as_ref().and_then(|kept| kept.at(row.start_address()));
                    match translator.translate(row, programs) {
                        Ok((rule, slots, unknown)) => {
                            let is_emitted = emit.rule(range, rule, slots, unknown);
                            if is_emitted && unknown > 0 {
                                translator.unknown_registers(row, rule, slots, |reason| {
                                    emit.report.count_unknown_register(reason);
                                });
                            }
                        }
                        Err(reason) => emit.unsupported(range, || reason),
                    }
                }
                Ok(None) => break,
                // The row goes on behind the instruction, with the CFA that it had.
                Err(gimli::Error::CfiInstructionInInvalidContext) if kept.is_some() => {}
                Err(error) => {
                    if error == gimli::Error::CfiInstructionInInvalidContext {
                        kept = KeptOffset::of(self.section, self.bases, fde);
                        if kept.is_some() {
                            continue;
                        }
                    }
                    emit.unsupported(done..fde.end_address(), || format!("instructions: {error}"));
                    break;
                }
            }
        }
    }
}

struct Emit<'e> {
    claimed: &'e [Range<u64>],
    pieces: &'e mut Vec<Piece>,
    rules: &'e mut Rules,
    report: &'e mut Report,
    origin: Origin,
    unsupported: Rule,
}

impl Emit<'_> {
    /// Gives whether any of the range is claimed.
    fn rule(&mut self, range: Range<u64>, rule: Rule, slots: Slots, unknown: usize) -> bool {
        let rule = self.rules.number_of(rule, slots);
        let from = self.claimed.partition_point(|claimed| claimed.end <= range.start);
        let mut emitted = false;
        for claimed in self.claimed.iter().skip(from).take_while(|claimed| claimed.start < range.end) {
            let range = range.start.max(claimed.start)..range.end.min(claimed.end);
            self.pieces.push(Piece::new(range, rule, self.origin));
            emitted = true;
        }
        if emitted {
            self.report.unknown_registers += unknown;
        }
        emitted
    }

    fn unsupported(&mut self, range: Range<u64>, reason: impl FnOnce() -> String) {
        if range.start >= range.end {
            return;
        }
        if !self.rule(range.clone(), self.unsupported, Slots::SAME, 0) {
            return;
        }
        self.report.unsupported_count += 1;
        let reason = reason();
        self.report.count_reason(&reason);
        if self.report.unsupported.len() < super::MAX_UNSUPPORTED_LISTED {
            self.report.unsupported.push(Unsupported { range, reason });
        }
    }
}
