//! Call frame information that says how a frame is made and not how it is taken down: its last rule holds to the end of the function. LLVM writes such
//! where nobody asks for asynchronous tables (on Linux for aarch64, riscv64 and MIPS, in `.debug_frame` for ARM, and for macOS), and GCC for macOS. The instructions complete it: they say where in the
//! function the frame is not that of its body.
//!
//! The equations are those of the entry and, where the frame is being made or taken down, those that the instructions give
//! ([`functions`](super::functions), [`follow`](super::follow)): CFA = base + distance; RA = its register, or [CFA + where it was stored].

use alloc::vec::Vec;
use core::ops::Range;

use super::follow::{self, Function};
use super::functions::{self, Followed, Set, Starts, Step};
use super::layout::{Layout, Place};
use super::mips;
use super::pdr;
use super::pieces::{self, Origin, Piece};
use super::rules::Rules;
use super::{Compiler, Input};
use crate::arch::{Arch, Machine};
use crate::rule::{Rule, RuleSource, Slots};
use crate::source::SourceKind;

/// Rules of a function by rising address: each holds from there on, up to the next.
pub(super) type FunctionRules = Vec<(u64, (Rule, Slots))>;

/// Completes the entries that compilers of this module may have written so. Leaves the pieces sorted.
pub(super) fn complete(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    let Compiler { pieces, rules, .. } = compiler;
    let may_be_synchronous = match input.arch {
        Arch::Aarch64 | Arch::Riscv64 | Arch::Arm | Arch::Mips32 | Arch::Mips32Little => true,
        // Registers that only Windows' functions keep have no place in what is followed.
        Arch::X86_64 => {
            input.has_compact_unwind() || (input.convention_registers().is_empty() && are_mostly_silent(pieces, rules))
        }
        _ => false,
    };
    if !may_be_synchronous {
        return;
    }
    pieces::sort(pieces);
    let mut completed: Vec<(Range<u64>, FunctionRules, Origin)> = Vec::new();
    for entry in pieces.chunk_by_mut(|one, next| one.origin == next.origin && one.end() == next.start()) {
        let Some((range, rules, origin)) = of_entry(input, entry, rules) else { continue };
        completed.push((range, rules, origin));
        for piece in entry {
            piece.end_at(piece.start());
        }
    }
    if completed.is_empty() {
        return;
    }
    pieces.retain(|piece| !piece.range().is_empty());
    for (range, rules, origin) in completed {
        compiler.add(core::slice::from_ref(&range), &rules, origin);
    }
    pieces::sort(&mut compiler.pieces);
}

/// Entries that are looked at to tell whether a module's are of this kind.
const ASKED: usize = 1024;

/// Whether most entries that make a frame never take it down: the CFA of their first rule does not come back. (GCC does not say which registers have their
/// caller's values again.) Of other modules such functions end without a return.
fn are_mostly_silent(pieces: &[Piece], rules: &Rules) -> bool {
    let entries = pieces.chunk_by(|one, next| one.origin == next.origin && one.end() == next.start());
    let is_call_frame_information = |entry: &&[Piece]| {
        let kind = entry.first().and_then(|piece| piece.origin.kind());
        matches!(kind, Some(SourceKind::EhFrame | SourceKind::DebugFrame))
    };
    let cfa = |piece: &Piece| {
        let (rule, _) = rules.of(piece.rule);
        (rule.kind(), rule.offset())
    };
    let (mut silent, mut all) = (0_usize, 0_usize);
    for entry in entries.filter(is_call_frame_information).filter(|entry| entry.len() > 1).take(ASKED) {
        let Some((first, later)) = entry.split_first() else { continue };
        all += 1;
        silent += usize::from(later.iter().all(|piece| cfa(piece) != cfa(first)));
    }
    silent * 2 > all
}

/// The rules of an entry's function, if they are not only those that it gives.
fn of_entry(input: &Input<'_>, entry: &[Piece], known: &Rules) -> Option<(Range<u64>, FunctionRules, Origin)> {
    let (first, last) = (entry.first()?, entry.last()?);
    if !matches!(last.origin.kind()?, SourceKind::EhFrame | SourceKind::DebugFrame) {
        return None;
    }
    // Where the frame is taken down too, an earlier rule holds again, and that of the first instruction at the latest.
    if entry.iter().rev().skip(1).any(|piece| piece.rule == last.rule) {
        return None;
    }
    let machine = input.arch.machine();
    // Of a part of a function, the instructions do not say what it begins with.
    let (rule, slots) = known.of(first.rule);
    if Layout::of(rule, slots, machine)? != Layout::entry(machine) {
        return None;
    }
    if input.arch == Arch::Riscv64
        && let [silent] = entry
    {
        return Some((silent.range(), by_instructions(input, &silent.range())?, silent.origin));
    }
    let body = known.of(last.rule);
    let layout = Layout::of(body.0, body.1, machine).filter(|layout| *layout != Layout::entry(machine))?;
    let range = first.start()..last.end();
    let rules = match input.arch {
        Arch::Riscv64 | Arch::Arm => by_constants(input, &range, entry, known, &layout)?,
        Arch::Mips32 | Arch::Mips32Little => behind_frame_pointer(input, &range, entry, known, &layout)?,
        _ => {
            // Compilers that say all of it as it happens make a frame only where it is wanted, behind a switch perhaps.
            let layout_of = |piece: &Piece| {
                let (rule, slots) = known.of(piece.rule);
                Layout::of(rule, slots, machine)
            };
            if entry.iter().any(|piece| layout_of(piece).is_none()) {
                return None;
            }
            let earlier = |address: u64| {
                // The pieces of an entry follow each other.
                let behind = entry.partition_point(|piece| piece.start() <= address);
                let piece = entry.get(behind.checked_sub(1)?)?;
                layout_of(piece).filter(|_| address < last.start())
            };
            let function = Function {
                arch: input.arch,
                start: range.start,
                code: input.code_of(&range)?,
                body: &layout,
                earlier: &earlier,
                has_handlers: true,
                may_be_joined: false,
                module: input.code,
            };
            let steps = follow::follow(&function, layout.base == machine.fp).ok()?;
            let source = body.0.source().unwrap_or(RuleSource::EhFrame);
            rules_of(steps, range.start, body, source, machine)
        }
    };
    Some((range, rules, last.origin))
}

/// The rules of a function that was followed. What is as in the `body` is known from where that is said.
pub(super) fn rules_of(
    steps: Vec<(u64, Option<Layout>)>,
    start: u64,
    body: (Rule, Slots),
    source: RuleSource,
    machine: &'static Machine,
) -> FunctionRules {
    let mut rules: FunctionRules = Vec::from([(start, body)]);
    for (address, layout) in steps {
        let elsewhere = layout.filter(|layout| layout.rule(machine, source) != Some(body));
        let rule = elsewhere.and_then(|layout| layout.rule(machine, RuleSource::Instructions)).unwrap_or(body);
        begin(&mut rules, address, rule);
    }
    rules
}

/// From `address` on this rule holds.
fn begin(rules: &mut FunctionRules, address: u64, rule: (Rule, Slots)) {
    match rules.last_mut() {
        Some((_, last)) if *last == rule => {}
        Some((start, last)) if *start == address => *last = rule,
        _ => rules.push((address, rule)),
    }
}

/// The rules of a function whose entry says nothing, if its instructions say something, and say all. (RISC-V: glibc's `_dl_runtime_resolve`, which makes a
/// frame without a word of it)
fn by_instructions(input: &Input<'_>, range: &Range<u64>) -> Option<FunctionRules> {
    let machine = input.arch.machine();
    let followed = functions::within(input, range.clone(), Set::Riscv, &Starts::default())?;
    if followed.is_exhausted || followed.conflicts > 0 {
        return None;
    }
    let entry = Layout::entry(machine);
    let mut rules = FunctionRules::new();
    let mut next = range.start;
    for (address, bytes, step) in followed.steps() {
        let Step::Rule(rule, slots) = step else { return None };
        if address > next {
            begin(&mut rules, next, entry.rule(machine, RuleSource::Instructions)?);
        }
        begin(&mut rules, address, (rule, slots));
        next = address.saturating_add(bytes);
    }
    rules.retain(|(start, _)| range.contains(start));
    (rules.len() > 1).then_some(rules)
}

/// The same where the stack pointer may move by what stands in a register. What the entry says before its last rule stays, but for [`between_rows`].
fn by_constants(
    input: &Input<'_>,
    range: &Range<u64>,
    entry: &[Piece],
    known: &Rules,
    body: &Layout,
) -> Option<FunctionRules> {
    let last = entry.last()?;
    let machine = input.arch.machine();
    // An entry does not say which instructions are there; those that make its frame are.
    let sets: &[Set] = if input.arch == Arch::Arm { &[Set::Thumb, Set::Arm] } else { &[Set::Riscv] };
    let followed = sets.iter().find_map(|set| {
        let followed = functions::within(input, range.clone(), *set, &Starts::default())?;
        (!followed.is_exhausted && followed.conflicts == 0 && followed.makes(body)).then_some(followed)
    })?;
    let mut rules = between_rows(entry, known, &followed, machine)
        .unwrap_or_else(|| entry.iter().map(|piece| (piece.start(), known.of(piece.rule))).collect());
    let of_body = known.of(last.rule);
    let mut next = last.start();
    for (address, bytes, step) in followed.steps().filter(|(address, ..)| *address >= last.start()) {
        // What no path leads to that is understood.
        if address > next {
            begin(&mut rules, next, of_body);
        }
        next = address.saturating_add(bytes);
        match step {
            Step::Rule(rule, slots) if !body.is_at(rule, slots, machine) => begin(&mut rules, address, (rule, slots)),
            _ => begin(&mut rules, address, of_body),
        }
    }
    begin(&mut rules, next, of_body);
    rules.retain(|(start, _)| range.contains(start));
    Some(rules)
}

/// The rules of the entry, and between two of its rows those of the instructions where the CFA is not the earlier row's any more: LLVM moves the stack pointer over a
/// large frame by two instructions, and writes one row behind the second. `None` where following the function does not agree with the rows where they begin.
fn between_rows(
    entry: &[Piece],
    known: &Rules,
    followed: &Followed,
    machine: &'static Machine,
) -> Option<FunctionRules> {
    let layout_of = |piece: &Piece| {
        let (rule, slots) = known.of(piece.rule);
        Layout::of(rule, slots, machine)
    };
    let is_denied = |address: u64, row: &Option<Layout>| {
        row.as_ref().and_then(|row| followed.has_cfa_of(address, row)) == Some(false)
    };
    if entry.iter().any(|piece| is_denied(piece.start(), &layout_of(piece))) {
        return None;
    }
    let mut rules = FunctionRules::new();
    let mut steps = followed.steps().peekable();
    let (last, earlier) = entry.split_last()?;
    for piece in earlier {
        let row = layout_of(piece);
        begin(&mut rules, piece.start(), known.of(piece.rule));
        while let Some((address, _, step)) = steps.next_if(|(address, ..)| *address < piece.end()) {
            match step {
                Step::Rule(rule, slots) if is_denied(address, &row) => begin(&mut rules, address, (rule, slots)),
                _ if address >= piece.start() => begin(&mut rules, address, known.of(piece.rule)),
                _ => {}
            }
        }
    }
    begin(&mut rules, last.start(), known.of(last.rule));
    Some(rules)
}

/// The same of MIPS, where only functions with a frame pointer are described so: once they have given it back, the stack pointer tells the CFA.
fn behind_frame_pointer(
    input: &Input<'_>,
    range: &Range<u64>,
    entry: &[Piece],
    known: &Rules,
    body: &Layout,
) -> Option<FunctionRules> {
    let (last, machine) = (entry.last()?, input.arch.machine());
    let (words, _) = input.code_of(range)?.as_chunks::<4>();
    if body.base != machine.fp || words.len() > pdr::LONGEST {
        return None;
    }
    let function = mips::Function::follow(range.start, words, machine);
    let (size, saved_at) = function.extent(true);
    let return_address = match body.return_address {
        Place::AtCfa(at) => Some(at),
        Place::InRegister(_) => None,
    };
    if function.conflicts > 0 || i64::from(size) != body.cfa || saved_at.map(i64::from) != return_address {
        return None;
    }
    let mut rules: FunctionRules = entry.iter().map(|piece| (piece.start(), known.of(piece.rule))).collect();
    let steps = function.steps().zip(function.frame_pointers());
    for (address, (step, points)) in (range.start..).step_by(4).zip(steps).filter(|(at, _)| *at >= last.start()) {
        let rule = match step {
            mips::Step::Rule(rule, slots) if points == Some(false) => (rule, slots),
            _ => known.of(last.rule),
        };
        begin(&mut rules, address, rule);
    }
    Some(rules)
}
