//! Compact unwind information of Mach-O modules, `__unwind_info`: one word for each function, which says what holds in its body. What holds
//! while the frame is made and taken down, the instructions tell; the two are held against each other. Functions that a word cannot
//! describe have entries in `__eh_frame`, which are read before; compilers for macOS describe no epilogues there, so that the instructions
//! complete those entries too.

mod aarch64;
mod pages;
mod x86_64;

use alloc::vec::Vec;
use core::ops::Range;

use super::follow::{self, Function};
use super::layout::Layout;
use super::pieces::Origin;
use super::synchronous::{FunctionRules, rules_of};
use super::{Compiler, Input, Report};
use crate::arch::Arch;
use crate::rule::{Kind, Rule, RuleSource};
use crate::source::SourceKind;

/// No information: the linker joins all functions of this kind that follow each other.
const NONE: u32 = 0;
/// Bits that say something of languages and not of the frame.
const MODE_AND_OPERANDS: u32 = 0x0fff_ffff;
/// `UNWIND_HAS_LSDA`: exceptions have handlers in the function.
const HAS_LSDA: u32 = 0x4000_0000;

/// What an encoding says of the body of a function.
struct Described {
    layout: Layout,
    /// The frame pointer register points to a frame record.
    has_frame_pointer: bool,
}

/// Adds the rules of the functions that compact unwind information describes and nothing else has spoken for yet.
pub(super) fn rules(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    let Some((_, section)) = input.unwind_info else { return };
    // Linkers join functions of one description.
    let mut starts = input.functions.to_vec();
    starts.sort_unstable();
    starts.dedup();
    let (entries, damaged) = pages::entries(section);
    compiler.report.damaged_entries += damaged;
    let mut done = 0;
    let mut next = entries.iter().skip(1);
    for entry in &entries {
        let Some(end) = next.next() else { break };
        compiler.report.unwind_entries += 1;
        let stated = |rva: u32| input.image_base.0.saturating_add(u64::from(rva));
        let range = stated(entry.start)..stated(end.start);
        // Entries rise; so no code is looked at twice.
        if range.start < done || range.end < range.start {
            compiler.report.damaged_entries += 1;
            continue;
        }
        done = range.end;
        let first = starts.partition_point(|start| *start <= range.start);
        let inner = starts.get(first..starts.partition_point(|start| *start < range.end)).unwrap_or_default();
        if entry.encoding & MODE_AND_OPERANDS == NONE {
            // A debug file may have entries of call frame information for them.
            if core::iter::once(&range.start).chain(inner).any(|start| compiler.claims.is_free(*start)) {
                compiler.report.count_unfollowed(Some(range), "compact unwind information: none");
            }
            continue;
        }
        if !compiler.claims.is_code(&range) {
            compiler.report.entries_outside_text += 1;
            continue;
        }
        let ends = inner.iter().copied().chain([range.end]);
        for (start, end) in core::iter::once(range.start).chain(inner.iter().copied()).zip(ends) {
            part(input, entry.encoding, start..end, compiler);
        }
    }
}

/// Adds the rules of one of the functions that an entry speaks for.
fn part(input: &Input<'_>, encoding: u32, range: Range<u64>, compiler: &mut Compiler<'_>) {
    // A DWARF entry has spoken for it, but for what lies between it and the next.
    if !compiler.claims.is_free(range.start) {
        return;
    }
    let claimed = compiler.claims.claim(range.clone());
    let Some(first) = claimed.first() else { return };
    let origin = Origin::new(SourceKind::CompactUnwind, range.start);
    // No code is looked at for two of them.
    match function(input, encoding, first, &mut compiler.report) {
        Ok(rules) => compiler.add(&claimed, &rules, origin),
        Err(reason) => compiler.unsupported(&claimed, origin, RuleSource::CompactUnwind, reason),
    }
}

/// The rules of one function; else why there are none.
fn function(
    input: &Input<'_>,
    encoding: u32,
    range: &Range<u64>,
    report: &mut Report,
) -> Result<FunctionRules, &'static str> {
    let machine = input.arch.machine();
    let code = input.code_of(range).ok_or("compact unwind information: code that is not in the file")?;
    let described = match input.arch {
        Arch::X86_64 => x86_64::describe(encoding, code)?,
        Arch::Aarch64 => {
            let mut described = aarch64::describe(encoding)?;
            // A word has no bit for it. To take a signature from an address that has none changes nothing.
            described.layout.is_signed = follow::signs(code);
            described
        }
        _ => return Err("compact unwind information: of another processor"),
    };
    let body = described.layout.rule(machine, RuleSource::CompactUnwind);
    let body = body.ok_or("compact unwind information: a frame that the table cannot express")?;
    let has_handlers = encoding & HAS_LSDA != 0;
    let followed = Function {
        arch: input.arch,
        start: range.start,
        code,
        body: &described.layout,
        earlier: &|_| None,
        has_handlers,
        may_be_joined: true,
        module: input.code,
    };
    let steps = match follow::follow(&followed, described.has_frame_pointer) {
        Ok(steps) => steps,
        Err(reason) => {
            report.count_unfollowed(Some(range.clone()), reason);
            return Ok(Vec::from([(range.start, body)]));
        }
    };
    let rules = rules_of(steps, range.start, body, RuleSource::CompactUnwind, machine);
    // The word says where the record is. What leads elsewhere has gone on into another function, which was taken for a part of this one.
    let is_of_body = |rule: Rule| rule.kind() != Some(Kind::Fp) || rule.offset() == body.0.offset();
    if described.has_frame_pointer && !rules.iter().all(|(_, (rule, _))| is_of_body(*rule)) {
        report.count_unfollowed(
            Some(range.clone()),
            "compact unwind information: instructions of more than one function",
        );
        return Ok(Vec::from([(range.start, body)]));
    }
    Ok(rules)
}
