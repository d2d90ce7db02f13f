//! x64: `RUNTIME_FUNCTION` and `UNWIND_INFO` of versions 1 and 2. (Microsoft, "x64 exception handling"; version 2 by what the .NET runtime's
//! unwinder does with it) Images that .NET's ahead-of-time compilers make for Linux and macOS have the same tables. (.NET, "ReadyToRun File Format", `READYTORUN_SECTION_RUNTIME_FUNCTIONS`)
//!
//! A prolog is described instruction by instruction. Epilogs are not: they are known by their form, from the code.
//! The registers xmm6–xmm15, which functions keep too, have no slots: no frame is found through them.

use alloc::vec::Vec;
use core::ops::Range;

use super::super::Compiler;
use super::super::layout::{Layout, Place};
use super::super::pieces::Origin;
use super::super::programs::Programs;
use super::super::x86::{self, Epilog, Jump};
use super::bare;
use super::image::{Image, u16_at, u32_at};
use crate::arch::x86::{Mode, length};
use crate::arch::{Arch, Machine};
use crate::rule::{Kind, Rule, RuleSource, Slots};
use crate::source::SourceKind;

/// Begin, end, unwind information.
const ENTRY_BYTES: usize = 12;
/// What an entry leads to is another entry, whose unwind information holds for both.
const INDIRECT: u32 = 1;
/// `UNW_FLAG_CHAININFO`: behind the codes stands the entry of which this one continues the prolog.
const CHAINED: u8 = 4;
/// Longer chains lead in a circle.
const LONGEST_CHAIN: usize = 32;
/// Unwind codes for each byte of the directory that are applied at most. Many entries of a hostile image may lead to one long chain.
const CODES_PER_BYTE: usize = 64;
const WORD: i64 = 8;
/// DWARF number of the stack pointer.
const SP: u8 = 7;

#[derive(Debug, Clone, Copy)]
struct Entry {
    begin: u32,
    end: u32,
    info: u32,
    /// Its place in the directory, in bytes.
    offset: usize,
    /// Where the function begins that this entry is a part of.
    primary: u32,
}

/// One step of a prolog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// Register number.
    Push(u8),
    /// Bytes.
    Allocate(i64),
    /// The frame register becomes the stack pointer plus so many bytes.
    SetFrame(u8, i64),
    /// Register number and bytes from the frame's base, which is the lowest stack pointer without the variable part.
    Save(u8, i64),
    /// The processor was interrupted; with an error code.
    MachineFrame(bool),
}

/// `UNWIND_INFO` that has been read.
struct Info<'a> {
    flags: u8,
    prolog: u8,
    /// Offset of the end of the instruction, and what it does; as stored, the last instruction first.
    steps: Vec<(u8, Step)>,
    /// Ranges from the end of the function: how far away each epilog begins, and bytes.
    epilogs: Vec<(u32, u32)>,
    /// What follows the codes.
    rest: &'a [u8],
}

/// Adds the rules of all entries.
pub(super) fn rules(directory: &[u8], image: &Image<'_>, compiler: &mut Compiler<'_>) {
    let entries = entries(directory, image);
    compiler.report.unwind_entries += entries.len();
    let mut budget = directory.len().saturating_mul(CODES_PER_BYTE);
    let mut called = bare::Called::new(directory.len());
    for entry in &entries {
        let origin = Origin::new(SourceKind::Pdata, entry.offset as u64);
        let stated = |rva: u32| image.base.saturating_add(u64::from(rva));
        let range = stated(entry.begin)..stated(entry.end);
        if !compiler.claims.is_code(&range) {
            compiler.report.entries_outside_text += 1;
            continue;
        }
        let claimed = compiler.claims.claim(range.clone());
        if claimed != [range.clone()] {
            compiler.report.fdes_overlapping += 1;
        }
        match function(entry, &entries, &claimed, image, &mut budget, (&mut called, &mut compiler.programs)) {
            Ok(Known { rules, lost, reason }) => {
                compiler.add(&claimed, &rules, origin);
                for range in lost {
                    compiler.report.note_unsupported(range, reason);
                }
            }
            Err(reason) => compiler.unsupported(&claimed, origin, RuleSource::Pdata, reason),
        }
    }
}

/// The entries by rising address. Those that nothing is left of (in images that were linked incrementally) end with zeros.
fn entries(directory: &[u8], image: &Image<'_>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = directory
        .chunks_exact(ENTRY_BYTES)
        .enumerate()
        .filter_map(|(at, bytes)| entry(bytes, at * ENTRY_BYTES))
        .filter(|entry| (entry.begin, entry.end, entry.info) != (0, 0, 0))
        .collect();
    entries.sort_by_key(|entry| (entry.begin, core::cmp::Reverse(entry.end), entry.offset));
    for entry in &mut entries {
        entry.primary = primary(*entry, image);
    }
    entries
}

fn entry(bytes: &[u8], offset: usize) -> Option<Entry> {
    let (begin, end, info) = (u32_at(bytes, 0)?, u32_at(bytes, 4)?, u32_at(bytes, 8)?);
    Some(Entry { begin, end, info, offset, primary: begin })
}

/// The entry whose unwind information holds for `entry`.
fn target(entry: Entry, image: &Image<'_>) -> Option<Entry> {
    if entry.info & INDIRECT == 0 {
        return Some(entry);
    }
    self::entry(image.from(entry.info & !INDIRECT)?, entry.offset).filter(|target| target.info & INDIRECT == 0)
}

/// Where the function begins that `entry` is a part of.
fn primary(entry: Entry, image: &Image<'_>) -> u32 {
    let mut last = entry.begin;
    let mut next = target(entry, image);
    for _ in 0..LONGEST_CHAIN {
        let Some(part) = next else { break };
        last = part.begin;
        // Cheaper than to read all of it.
        let Some([first, _, count, ..]) = image.from(part.info) else { break };
        if first >> 3 & CHAINED == 0 {
            break;
        }
        let behind = 4 + usize::from(*count).next_multiple_of(2) * 2;
        let bytes = image.from(part.info).and_then(|bytes| bytes.get(behind..));
        next = bytes.and_then(|bytes| self::entry(bytes, entry.offset)).and_then(|entry| target(entry, image));
    }
    last
}

/// Reads what is at `info`; else why it cannot be used.
fn info<'a>(info: u32, image: &Image<'a>) -> Result<Info<'a>, &'static str> {
    const CUT: &str = "exception directory: unwind information that is not in the file";
    let bytes = image.from(info).ok_or(CUT)?;
    let [first, prolog, count, frame, rest @ ..] = bytes else { return Err(CUT) };
    let version = first & 7;
    match version {
        1 | 2 => {}
        3 => return Err("exception directory: unwind information of version 3"),
        _ => return Err("exception directory: unwind information of an unknown version"),
    }
    let length = usize::from(*count) * 2;
    let mut codes = rest.get(..length).ok_or(CUT)?;
    let rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    let mut found = Info { flags: first >> 3, prolog: *prolog, steps: Vec::new(), epilogs: Vec::new(), rest };
    let mut epilog_bytes = None;
    while let [offset, code, more @ ..] = codes {
        let (operation, operand) = (code & 15, code >> 4);
        let half = u16_at(more, 0).map(i64::from).ok_or(CUT);
        let word = u32_at(more, 0).map(i64::from).ok_or(CUT);
        let (step, words) = match operation {
            0 => (Some(Step::Push(operand)), 0),
            1 if operand == 0 => (Some(Step::Allocate(half? * WORD)), 1),
            1 if operand == 1 => (Some(Step::Allocate(word?)), 2),
            2 => (Some(Step::Allocate(i64::from(operand) * WORD + WORD)), 0),
            3 => (Some(Step::SetFrame(frame & 15, i64::from(frame >> 4) * 16)), 0),
            4 => (Some(Step::Save(operand, half? * WORD)), 1),
            5 => (Some(Step::Save(operand, word?)), 2),
            6 if version == 2 => {
                match epilog_bytes {
                    None => {
                        epilog_bytes = Some(u32::from(*offset));
                        // The epilog at the very end is told by a bit.
                        if operand & 1 != 0 {
                            found.epilogs.push((u32::from(*offset), u32::from(*offset)));
                        }
                    }
                    Some(bytes) => {
                        let back = u32::from(*offset) | u32::from(operand) << 8;
                        // The count of codes is made even by one that says nothing.
                        if back != 0 {
                            found.epilogs.push((back, bytes));
                        }
                    }
                }
                (None, 0)
            }
            // Vector registers: at 8 bytes in what the first compilers made, at 16 now.
            6 | 8 => (None, 1),
            7 | 9 => (None, 2),
            10 if operand <= 1 => (Some(Step::MachineFrame(operand == 1)), 0),
            // Of .NET's compilers for other systems than Windows, where an offset may be larger than the header's four bits tell, which are all set then.
            // (`UWOP_SET_FPREG_LARGE` in the runtime's `win64unwind.h`)
            11 if frame >> 4 == 15 => (Some(Step::SetFrame(frame & 15, word?.saturating_mul(16))), 2),
            _ => return Err("exception directory: an unknown unwind code"),
        };
        found.steps.extend(step.map(|step| (*offset, step)));
        codes = more.get(words * 2..).ok_or(CUT)?;
    }
    Ok(found)
}

/// A frame in the making, from the first instruction on.
struct Prolog {
    layout: Layout,
    /// Bytes between the CFA and the stack pointer.
    depth: i64,
    /// Bytes between the CFA and the frame's base, once there is a frame register.
    based: Option<i64>,
    steps: usize,
}

impl Prolog {
    fn new(machine: &Machine) -> Self {
        Self { layout: Layout::entry(machine), depth: WORD, based: None, steps: 0 }
    }

    fn apply(&mut self, step: Step) -> Result<(), &'static str> {
        const TOO_LARGE: &str = "exception directory: a frame that is too large";
        let is_first = self.steps == 0;
        self.steps += 1;
        let moved = match step {
            Step::Push(register) => {
                self.depth += WORD;
                self.layout.save(x86::dwarf(register), -self.depth);
                true
            }
            Step::Allocate(bytes) => {
                self.depth = self.depth.checked_add(bytes).ok_or(TOO_LARGE)?;
                true
            }
            Step::SetFrame(register, bytes) => {
                self.layout.base = x86::dwarf(register);
                self.layout.cfa = self.depth - bytes;
                self.based = Some(self.depth);
                false
            }
            Step::Save(register, bytes) => {
                self.layout.save(x86::dwarf(register), bytes - self.based.unwrap_or(self.depth));
                false
            }
            Step::MachineFrame(with_error_code) => {
                if !is_first {
                    return Err("exception directory: a machine frame within a prolog");
                }
                self.layout.is_machine_frame = true;
                self.layout.return_address = Place::AtCfa(0);
                self.depth = if with_error_code { WORD } else { 0 };
                true
            }
        };
        if moved && self.based.is_none() {
            self.layout.cfa = self.depth;
        }
        if self.depth > i64::from(u32::MAX) { Err(TOO_LARGE) } else { Ok(()) }
    }

    fn rule(&self) -> Result<(Rule, Slots), &'static str> {
        let is_known = !self.layout.is_machine_frame || self.layout.base == SP || self.layout.base == 6;
        let rule = self.layout.rule(Arch::X86_64.machine(), RuleSource::Pdata).filter(|_| is_known);
        rule.ok_or("exception directory: a frame that the table cannot express")
    }
}

type Rules = Vec<(u64, (Rule, Slots))>;

/// What is known of an entry.
struct Known {
    /// From its first address on.
    rules: Rules,
    /// Where there is no rule.
    lost: Vec<Range<u64>>,
    /// Why.
    reason: &'static str,
}

/// The rules of one entry; else why there are none.
fn function(
    entry: &Entry,
    entries: &[Entry],
    claimed: &[Range<u64>],
    image: &Image<'_>,
    budget: &mut usize,
    for_bare: (&mut bare::Called, &mut Programs),
) -> Result<Known, &'static str> {
    let described = target(*entry, image).ok_or("exception directory: an indirect entry that leads nowhere")?;
    let own = info(described.info, image)?;
    let mut prolog = Prolog::new(Arch::X86_64.machine());
    let outer_parts = outer_parts(&own, image, budget)?;
    if own.steps.is_empty()
        && outer_parts.is_empty()
        && let Some(code) = code_of(entry, image).filter(|code| bare::moves_stack(code))
    {
        let stated = |rva: u32| image.base.saturating_add(u64::from(rva));
        let is_whole = |part: &Range<u64>| *part == (stated(entry.begin)..stated(entry.end));
        // No code is followed for two entries.
        if !claimed.first().is_some_and(is_whole) {
            return Err("exception directory: no unwind code for a frame, and more than one entry for its code");
        }
        return bare(entry, code, image, for_bare);
    }
    for outer in outer_parts.iter().rev() {
        for (_, step) in outer.steps.iter().rev() {
            prolog.apply(*step)?;
        }
    }
    let stated = |rva: u32| image.base.saturating_add(u64::from(rva));
    // Offsets are counted from where the described entry begins.
    let begin = stated(described.begin);
    let start = stated(entry.begin);
    // What the outer parts did holds from the start on, and so does what comes before this part's first instruction.
    let mut rules: Rules = Vec::new();
    let mut at = start;
    for (offset, step) in own.steps.iter().rev() {
        let address = begin.saturating_add(u64::from(*offset)).max(start);
        if address < at {
            return Err("exception directory: unwind codes out of order");
        }
        // Several steps may be of one instruction, and only all of them together what the table expresses.
        if address > at {
            rules.push((at, prolog.rule()?));
        }
        at = address;
        prolog.apply(*step)?;
    }
    rules.push((at, prolog.rule()?));
    let body = rules.last().map(|(_, body)| *body).ok_or("exception directory: no rule")?;
    let prolog_end = begin.saturating_add(u64::from(own.prolog));
    let mut listed: Vec<Listed> = own
        .epilogs
        .iter()
        .map(|(back, bytes)| {
            let start = stated(described.end.saturating_sub(*back));
            Listed { range: start..start.saturating_add(u64::from(*bytes)), is_found: false }
        })
        .collect();
    listed.sort_by_key(|listed| listed.range.start);
    let is_of_function = |address: u64| {
        let rva = address.checked_sub(image.base).and_then(|rva| u32::try_from(rva).ok())?;
        let at = entries.partition_point(|entry| entry.begin <= rva);
        let part = entries.get(at.checked_sub(1)?)?;
        (rva < part.end && part.primary == entry.primary).then(|| stated(part.end))
    };
    let is_interrupt = prolog.layout.is_machine_frame;
    let mut sweep = Sweep { rules, body, is_interrupt, prolog_end, primary: stated(entry.primary), listed };
    for part in claimed {
        let length = usize::try_from(part.end - part.start).unwrap_or(usize::MAX);
        let code = image.code_from(part.start).filter(|code| code.len() >= length);
        let code = code.ok_or("exception directory: code that is not in the file")?;
        sweep.epilogs(part, code, is_of_function);
    }
    let Sweep { mut rules, listed, .. } = sweep;
    // What is listed and was not found ends the frame in a way that is not known: there, and nowhere else, there is no rule.
    let is_here = |range: &Range<u64>| claimed.iter().any(|part| part.start < range.end && range.start < part.end);
    let lost = listed.into_iter().filter(|listed| !listed.is_found).map(|listed| listed.range).filter(is_here);
    let lost: Vec<Range<u64>> = lost.collect();
    for epilog in &lost {
        overlay(&mut rules, epilog, (Rule::bare(Kind::Unsupported, RuleSource::Pdata), Slots::SAME));
    }
    Ok(Known { rules, lost, reason: "exception directory: an epilog of an unknown form" })
}

/// The code that `entry` speaks of.
fn code_of<'a>(entry: &Entry, image: &Image<'a>) -> Option<&'a [u8]> {
    let length = usize::try_from(entry.end.checked_sub(entry.begin)?).ok()?;
    image.code_from(image.base.checked_add(u64::from(entry.begin))?)?.get(..length)
}

/// The rules of an entry without unwind codes whose instructions, `code`, move the stack pointer.
fn bare<'a>(
    entry: &Entry,
    code: &'a [u8],
    image: &'a Image<'a>,
    (called, programs): (&mut bare::Called, &mut Programs),
) -> Result<Known, &'static str> {
    const BEFORE: u32 = bare::BEFORE.len() as u32;
    let begun = entry.begin.checked_sub(BEFORE).map(|begin| Entry { begin, ..*entry });
    let begun = begun.and_then(|begun| code_of(&begun, image)).filter(|code| code.starts_with(&bare::BEFORE));
    let before = if begun.is_some() { bare::BEFORE.len() } else { 0 };
    let start = image.base.saturating_add(u64::from(entry.begin));
    let (rules, lost) =
        bare::follow(begun.unwrap_or(code), before, start, &|address| image.code_from(address), called, programs)?;
    Ok(Known {
        rules,
        lost,
        reason: "exception directory: no unwind code for a frame that the instructions do not tell",
    })
}

/// Puts `rule` over what holds in `range`.
fn overlay(rules: &mut Rules, range: &Range<u64>, rule: (Rule, Slots)) {
    let before = rules.partition_point(|(start, _)| *start < range.start);
    let behind = rules.partition_point(|(start, _)| *start <= range.end);
    let Some((_, resumed)) = behind.checked_sub(1).and_then(|at| rules.get(at)).copied() else { return };
    rules.splice(before..behind, [(range.start, rule), (range.end, resumed)]);
}

/// An epilog that unwind information lists.
struct Listed {
    range: Range<u64>,
    is_found: bool,
}

/// The parts that the prolog of `own` continues, the nearest first.
fn outer_parts<'a>(own: &Info<'a>, image: &Image<'a>, budget: &mut usize) -> Result<Vec<Info<'a>>, &'static str> {
    let mut parts: Vec<Info<'_>> = Vec::new();
    loop {
        let last = parts.last().unwrap_or(own);
        let codes = last.steps.len() + 1;
        *budget = budget.checked_sub(codes).ok_or("exception directory: more unwind codes than a sane one has")?;
        if last.flags & CHAINED == 0 {
            return Ok(parts);
        }
        if parts.len() == LONGEST_CHAIN {
            return Err("exception directory: a chain without an end");
        }
        let next = entry(last.rest, 0).and_then(|next| target(next, image));
        let next = next.ok_or("exception directory: a chain that leads nowhere")?;
        parts.push(info(next.info, image)?);
    }
}

/// Finding the epilogs of a function in its code.
struct Sweep {
    rules: Rules,
    body: (Rule, Slots),
    /// The function runs where the processor was interrupted, and ends by returning there.
    is_interrupt: bool,
    prolog_end: u64,
    /// Where the function begins.
    primary: u64,
    /// Epilogs that the unwind information lists, by rising address.
    listed: Vec<Listed>,
}

impl Sweep {
    /// Finds those that begin in `part`, with which `code` begins. Where an address lies in a part of the function, `is_of_function` tells the end of that.
    fn epilogs(&mut self, part: &Range<u64>, code: &[u8], is_of_function: impl Fn(u64) -> Option<u64>) {
        let mut at = 0;
        while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
            let address = part.start.saturating_add(at as u64);
            if address >= part.end {
                return;
            }
            if let Some(epilog) = x86::epilog(rest)
                && self.is_within(address, &epilog, part.end, &is_of_function)
                && self.is_epilog(address, &epilog, rest, &is_of_function)
            {
                self.add(address, &epilog);
                at += epilog.bytes();
                continue;
            }
            // What is no instruction is data, or the end of what this decoder knows.
            at += length(rest, Mode::Bits64).unwrap_or(1);
        }
    }

    /// Whether an epilog lies in the function. It may go on in another part of it, right behind `end`, that has fewer registers to restore.
    fn is_within(
        &self,
        address: u64,
        epilog: &Epilog,
        mut end: u64,
        is_of_function: impl Fn(u64) -> Option<u64>,
    ) -> bool {
        let last = address.saturating_add(epilog.bytes() as u64);
        while end < last {
            match is_of_function(end) {
                Some(next) => end = next,
                None => return false,
            }
        }
        true
    }

    fn is_epilog(
        &mut self,
        address: u64,
        epilog: &Epilog,
        code: &[u8],
        is_of_function: impl Fn(u64) -> Option<u64>,
    ) -> bool {
        let end = address.saturating_add(epilog.bytes() as u64);
        let listed = self.listed.partition_point(|listed| listed.range.start < end).checked_sub(1);
        let listed = listed.and_then(|at| self.listed.get_mut(at)).filter(|listed| address < listed.range.end);
        let is_epilog = match epilog.jump {
            jump if (jump == Some(Jump::Interrupt)) != self.is_interrupt => false,
            None | Some(Jump::Interrupt) => true,
            _ if listed.is_some() => true,
            // A function that has a frame takes it down before it leaves; without, the rule is the same. A jump alone leads to
            // a part of the function that lies elsewhere (gcc's cold parts, which are functions of their own here), or is a switch.
            _ if !epilog.moves_stack() => false,
            // A prolog moves the stack pointer too.
            _ if address < self.prolog_end && !takes_down(&self.rules, address, epilog, code) => false,
            Some(Jump::Leaves | Jump::Indirect) => true,
            Some(Jump::Relative(distance)) => {
                let target = end.wrapping_add_signed(distance);
                target == self.primary || is_of_function(target).is_none()
            }
        };
        if let Some(listed) = listed.filter(|_| is_epilog) {
            listed.is_found = true;
        }
        is_epilog
    }

    /// The rules within an epilog at `address`: up to its first pop that of the body, then what is left to pop.
    fn add(&mut self, address: u64, epilog: &Epilog) {
        let machine = Arch::X86_64.machine();
        let mut at = address + epilog.adjustment as u64;
        // Compilers that save registers late state a prolog that has such returns in it.
        let resumed = if at < self.prolog_end { None } else { Some(self.body) };
        for done in 0..=epilog.steps.len() {
            let left = epilog.steps.get(done..).unwrap_or_default();
            let mut layout = Layout::entry(machine);
            if self.is_interrupt {
                layout.is_machine_frame = true;
                layout.return_address = Place::AtCfa(0);
                layout.cfa = 0;
            }
            let popped = || left.iter().filter(|step| step.pops);
            layout.cfa += WORD * popped().count() as i64;
            for (at, step) in (0..).zip(popped()) {
                if let Some(register) = step.register {
                    layout.save(register, WORD * at - layout.cfa);
                }
            }
            let next = at.saturating_add(left.first().map_or(epilog.last, |step| step.bytes) as u64);
            if let Some(rule) = layout.rule(machine, RuleSource::Pdata) {
                match resumed {
                    None => overlay(&mut self.rules, &(at..next), rule),
                    Some(_) => self.push(at, rule),
                }
            }
            at = next;
        }
        if let Some(body) = resumed {
            self.push(at, body);
        }
    }

    fn push(&mut self, address: u64, rule: (Rule, Slots)) {
        match self.rules.last_mut() {
            Some((last, known)) if *last == address => *known = rule,
            Some((last, _)) if *last > address => {}
            _ => self.rules.push((address, rule)),
        }
    }
}

/// Whether an epilog in a prolog gives up just what the prolog has made before it.
fn takes_down(rules: &Rules, address: u64, epilog: &Epilog, code: &[u8]) -> bool {
    let behind = rules.partition_point(|(start, _)| *start <= address);
    let Some((_, (rule, _))) = behind.checked_sub(1).and_then(|at| rules.get(at)) else { return false };
    let added = match code {
        _ if epilog.adjustment == 0 => 0,
        [0x48, 0x83, 0xc4, bytes, ..] => i64::from(*bytes as i8),
        [0x48, 0x81, 0xc4, a, b, c, d, ..] => i64::from(i32::from_le_bytes([*a, *b, *c, *d])),
        _ => return false,
    };
    let popped = epilog.steps.iter().filter(|step| step.pops).count() as i64;
    rule.kind() == Some(Kind::Sp) && rule.offset() * WORD == added + (popped + 1) * WORD
}
