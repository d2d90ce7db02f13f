//! arm64: packed unwind data and `.xdata` records. (Microsoft, "ARM64 exception handling")
//!
//! Each unwind code stands for one instruction, in prologs and in epilogs, so that the frame is known at every one.
//! The registers d8–d15, which functions keep too, have no slots: no frame is found through them.

mod codes;
mod packed;

use alloc::vec::Vec;
use core::ops::Range;

use super::super::Compiler;
use super::super::layout::{Layout, Place, UNTOLD};
use super::super::pieces::Origin;
use super::image::{Image, u32_at};
use crate::arch::{Arch, Machine};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};
use crate::source::SourceKind;
use codes::Step;

/// Begin, and packed data or where a record is.
const ENTRY_BYTES: usize = 8;
/// Unwind codes for each byte of the directory that are applied at most. Many entries of a hostile image may lead to one long record.
const CODES_PER_BYTE: usize = 64;
const INSTRUCTION: u64 = 4;
const FP: u8 = 29;
const LINK: u8 = 30;

/// What a prolog or an epilog does, the first instruction of a prolog first.
struct Steps {
    /// Those of the prolog that this part of the function continues, which all count; then its own.
    steps: Vec<Step>,
    /// How many instructions of them are its own.
    own: usize,
    /// Whether there are others: between those of one part and of the next lies code that nothing speaks of.
    is_part: bool,
    /// Whether the code for the end stands behind them, and not the end of the record.
    is_ended: bool,
}

/// One function, or a part of one.
struct Function<'a> {
    /// Bytes of code.
    length: u64,
    prolog: Steps,
    epilogs: Epilogs<'a>,
}

/// The epilogs of a function. Those of a record are read one by one, because a hostile one may say the same many times.
enum Epilogs<'a> {
    /// Where it begins, in bytes, and what it undoes.
    One(Option<(u64, Steps)>),
    /// Scopes of a record and its unwind codes.
    Scopes(&'a [u8], &'a [u8]),
}

/// Adds the rules of all entries.
pub(super) fn rules(directory: &[u8], image: &Image<'_>, compiler: &mut Compiler<'_>) {
    let mut budget = directory.len().saturating_mul(CODES_PER_BYTE);
    let mut entries: Vec<(u32, u32, usize)> = directory
        .chunks_exact(ENTRY_BYTES)
        .enumerate()
        .filter_map(|(at, bytes)| Some((u32_at(bytes, 0)?, u32_at(bytes, 4)?, at * ENTRY_BYTES)))
        .filter(|(begin, data, _)| (*begin, *data) != (0, 0))
        .collect();
    entries.sort_by_key(|(begin, _, offset)| (*begin, *offset));
    compiler.report.unwind_entries += entries.len();
    for (at, (begin, data, offset)) in entries.iter().enumerate() {
        let origin = Origin::new(SourceKind::Pdata, *offset as u64);
        let start = image.base.saturating_add(u64::from(*begin));
        let function = function(*data, image, &mut budget);
        // Where nothing can be read, not even the length, it ends where the next begins.
        let next = entries.get(at + 1).map_or(*begin, |(next, _, _)| *next);
        let length = match &function {
            Ok(function) => function.length,
            Err(_) => u64::from(next.saturating_sub(*begin)).max(INSTRUCTION),
        };
        let range = start..start.saturating_add(length);
        if !compiler.claims.is_code(&range) {
            compiler.report.entries_outside_text += 1;
            continue;
        }
        let claimed = compiler.claims.claim(range.clone());
        if claimed != [range] {
            compiler.report.fdes_overlapping += 1;
        }
        match function.and_then(|function| function.rules(start, &claimed, image, &mut budget)) {
            Ok(Rules { rows, refused, has_lost_registers }) => {
                compiler.add(&claimed, &rows, origin);
                if has_lost_registers {
                    const LOST: &str = "exception directory: stored below a stack pointer that nothing tells";
                    compiler.report.count_unknown_register(LOST);
                }
                for (epilog, reason) in refused.into_iter().filter(|_| !claimed.is_empty()) {
                    compiler.report.note_unsupported(epilog, reason);
                }
            }
            Err(reason) => compiler.unsupported(&claimed, origin, RuleSource::Pdata, reason),
        }
    }
}

/// Reads what `data` of an entry says or leads to.
fn function<'a>(data: u32, image: &Image<'a>, budget: &mut usize) -> Result<Function<'a>, &'static str> {
    match data & 3 {
        0 => record(image.from(data).ok_or(codes::CUT)?, budget),
        flag @ (1 | 2) => packed::function(data, flag == 2),
        _ => Err("exception directory: packed data of an unknown kind"),
    }
}

/// Reads an `.xdata` record.
fn record<'a>(bytes: &'a [u8], budget: &mut usize) -> Result<Function<'a>, &'static str> {
    let header = u32_at(bytes, 0).ok_or(codes::CUT)?;
    let length = INSTRUCTION * u64::from(header & 0x3_ffff);
    if header >> 18 & 3 != 0 {
        return Err("exception directory: unwind information of an unknown version");
    }
    let (mut epilogs, mut words, mut at) = (header >> 22 & 0x1f, header >> 27, 4);
    let is_single = header >> 21 & 1 != 0;
    if (epilogs, words) == (0, 0) {
        // Both are larger than fits here.
        let more = u32_at(bytes, 4).ok_or(codes::CUT)?;
        (epilogs, words, at) = (more & 0xffff, more >> 16 & 0xff, 8);
    }
    let scopes = if is_single { 0 } else { epilogs as usize };
    let codes_at = at + 4 * scopes;
    let codes = bytes.get(codes_at..codes_at + 4 * words as usize).ok_or(codes::CUT)?;
    let prolog = codes::steps(codes, 0, budget)?;
    let epilogs = if is_single {
        let steps = codes::steps(codes, epilogs as usize, budget)?;
        let bytes = INSTRUCTION * (steps.own as u64 + 1);
        let start = length.checked_sub(bytes).ok_or("exception directory: an epilog longer than its function")?;
        Epilogs::One(Some((start, steps)))
    } else {
        Epilogs::Scopes(bytes.get(at..codes_at).unwrap_or_default(), codes)
    };
    Ok(Function { length, prolog, epilogs })
}

/// Where the epilogs of a record's scopes begin, in bytes, and the indices of their codes; by rising address, each place once.
fn scopes(scopes: &[u8]) -> Vec<(u64, usize)> {
    let words = scopes.as_chunks::<4>().0.iter().map(|scope| u32::from_le_bytes(*scope));
    let mut scopes: Vec<(u64, usize)> =
        words.map(|word| (INSTRUCTION * u64::from(word & 0x3_ffff), (word >> 22) as usize)).collect();
    scopes.sort_by_key(|(start, _)| *start);
    scopes.dedup_by_key(|(start, _)| *start);
    scopes
}

/// What a record says of its code.
#[derive(Default)]
struct Rules {
    /// Each holds from its address on. They rise.
    rows: Rows,
    /// Epilogs that have no rules, and why. They are rows as well.
    refused: Vec<(Range<u64>, &'static str)>,
    /// Whether registers are stored where nothing tells.
    has_lost_registers: bool,
}

type Rows = Vec<(u64, (Rule, Slots))>;

impl Function<'_> {
    fn rules(
        &self,
        start: u64,
        claimed: &[Range<u64>],
        image: &Image<'_>,
        budget: &mut usize,
    ) -> Result<Rules, &'static str> {
        // Rows are no more than the file has code.
        let is_stored = |part: &Range<u64>| {
            let bytes = image.code_from(part.start).map_or(0, <[u8]>::len) as u64;
            bytes >= part.end - part.start
        };
        if !claimed.iter().all(is_stored) {
            return Err("exception directory: code that is not in the file");
        }
        let frames = frames(&self.prolog)?;
        let mut rules = Rules::default();
        let body = *frames.last().ok_or("exception directory: no rule")?;
        let outer = frames.len().saturating_sub(self.prolog.own + 1);
        for (address, rule) in (start..).step_by(4).zip(frames.iter().skip(outer)) {
            push(&mut rules.rows, address, *rule);
        }
        rules.has_lost_registers = self.prolog.is_part && loses_registers(&rules.rows);
        match &self.epilogs {
            Epilogs::One(epilog) => {
                if let Some((epilog, steps)) = epilog {
                    self.epilog(start, *epilog, Ok(steps), body, &mut rules)?;
                }
            }
            Epilogs::Scopes(words, codes) => {
                for (epilog, index) in scopes(words) {
                    let steps = codes::steps(codes, index, budget);
                    // What a hostile record makes of every one of its scopes ends here.
                    if let (Err(reason), 0) = (&steps, *budget) {
                        return Err(reason);
                    }
                    self.epilog(start, epilog, steps.as_ref().map_err(|reason| *reason), body, &mut rules)?;
                }
            }
        }
        Ok(rules)
    }

    /// Appends the rules of the epilog that begins `epilog` bytes after the function's `start`. One that cannot be told is without rules; the
    /// rest of the function has its own all the same.
    fn epilog(
        &self,
        start: u64,
        epilog: u64,
        steps: Result<&Steps, &'static str>,
        body: (Rule, Slots),
        rules: &mut Rules,
    ) -> Result<(), &'static str> {
        if epilog >= self.length {
            return Err("exception directory: an epilog outside its function");
        }
        // The instruction behind those of its codes returns, or jumps. Where the function is in parts, an epilog runs on from one into the next,
        // which has a record of its own.
        let length = |steps: &Steps| INSTRUCTION * (steps.own as u64 + 1);
        let own_end = steps.map_or(self.length, |steps| self.length.min(epilog.saturating_add(length(steps))));
        let (first, end) = (start.saturating_add(epilog), start.saturating_add(own_end));
        match steps.and_then(|steps| Ok((self::frames(steps)?, steps.own))) {
            // An epilog that does not undo what the prolog did, of which the record does not say that it ends either: MSVC writes such of code
            // that goes on without a return.
            Ok((frames, _)) if steps.is_ok_and(|steps| !steps.is_ended) && is_of_another_depth(&frames, body) => {}
            Ok((frames, own)) => {
                let outer = frames.len().saturating_sub(own + 1);
                // Before its first instruction the whole frame is there, before its last nothing of its own.
                for (address, rule) in (first..end).step_by(4).zip(frames.iter().skip(outer).rev()) {
                    push(&mut rules.rows, address, *rule);
                }
            }
            Err(reason) => {
                push(&mut rules.rows, first, (Rule::bare(Kind::Unsupported, RuleSource::Pdata), Slots::SAME));
                rules.refused.push((first..end, reason));
            }
        }
        if own_end < self.length {
            push(&mut rules.rows, end, body);
        }
        Ok(())
    }
}

/// Whether some rule does not tell where a register is.
fn loses_registers(rows: &Rows) -> bool {
    let machine = Arch::Aarch64.machine();
    let is_lost = |slots: &Slots, register: u8| slots.of_machine(machine, register) == Some(Saved::Unknown);
    rows.iter().any(|(_, (_, slots))| machine.slot_registers.iter().any(|register| is_lost(slots, *register)))
}

/// Whether the frame before the first instruction of an epilog has another size than the body's.
fn is_of_another_depth(epilog: &[(Rule, Slots)], (body, _): (Rule, Slots)) -> bool {
    epilog.last().is_some_and(|(whole, _)| whole.kind() == body.kind() && whole.offset() != body.offset())
}

/// Appends a rule; those before the last one's address are of epilogs that lie over each other, of which the first counts.
fn push(rules: &mut Rows, address: u64, rule: (Rule, Slots)) {
    match rules.last_mut() {
        Some((last, known)) if *last == address => *known = rule,
        Some((last, _)) if *last > address => {}
        _ => rules.push((address, rule)),
    }
}

/// The rules before the first instruction, between instructions, and after the last.
fn frames(steps: &Steps) -> Result<Vec<(Rule, Slots)>, &'static str> {
    let machine = Arch::Aarch64.machine();
    let mut frame = Frame::new(machine, steps.is_part);
    let mut rules = Vec::new();
    for step in &steps.steps {
        if !step.is_of_entry() {
            rules.push(frame.rule(machine)?);
        }
        frame.apply(*step)?;
    }
    rules.push(frame.rule(machine)?);
    Ok(rules)
}

/// A frame in the making.
struct Frame {
    layout: Layout,
    /// Bytes between the CFA and the stack pointer.
    depth: i64,
    /// The pair that was saved last, and where: `save_next` is about the next one.
    last_pair: Option<(Option<u8>, i64)>,
    /// The stack begins with all registers of what was interrupted.
    is_context: bool,
    /// Whether the steps are of several parts of a function.
    is_part: bool,
    /// The frame pointer tells the CFA, and code behind it may have moved the stack pointer without a word. (MSVC, where a part of a function
    /// saves registers that the rest leaves alone)
    is_depth_lost: bool,
    steps: usize,
}

impl Frame {
    fn new(machine: &Machine, is_part: bool) -> Self {
        Self {
            layout: Layout::entry(machine),
            depth: 0,
            last_pair: None,
            is_context: false,
            is_part,
            is_depth_lost: false,
            steps: 0,
        }
    }

    fn apply(&mut self, step: Step) -> Result<(), &'static str> {
        let is_first = self.steps == 0;
        self.steps += 1;
        match step {
            Step::None => {}
            Step::Allocate(bytes) => self.depth += bytes,
            Step::Save { first, second, at } => self.save(first, second, at - self.depth)?,
            Step::SaveBelow { first, second, bytes } => {
                self.depth += bytes;
                self.save(first, second, -self.depth)?;
            }
            Step::SaveNext => {
                const NO_PAIR: &str = "exception directory: a pair of registers after none";
                let (first, at) = self.last_pair.ok_or(NO_PAIR)?;
                let first = first.map(|first| first + 2);
                if first.is_some_and(|first| first >= FP) {
                    return Err(NO_PAIR);
                }
                self.save(first, first.map(|first| first + 1), at + 16)?;
                self.last_pair = Some((first, at + 16));
            }
            Step::SetFrame(_) if self.is_depth_lost => {
                return Err("exception directory: a second frame pointer of one function");
            }
            Step::SetFrame(bytes) => {
                self.layout.base = FP;
                self.layout.cfa = self.depth - bytes;
                self.is_depth_lost = self.is_part;
            }
            Step::Sign => self.layout.is_signed = true,
            Step::MachineFrame if is_first => {
                self.layout.is_machine_frame = true;
                // The stack pointer lies before the program counter.
                self.layout.return_address = Place::AtCfa(8);
            }
            Step::Context if is_first => self.is_context = true,
            Step::MachineFrame | Step::Context => return Err("exception directory: a machine frame within a prolog"),
            // The address that the frame leads to is no return address. What is undone last counts: before a machine frame or a context is
            // undone, that says nothing more; after it, or alone, the address is that in the link register, which has no rule here.
            Step::ClearCall if self.layout.is_machine_frame || self.is_context => {}
            Step::ClearCall => return Err("exception directory: an interrupted caller without a machine frame"),
        }
        if self.layout.base != FP {
            self.layout.cfa = self.depth;
        }
        if self.depth > i64::from(u32::MAX) {
            return Err("exception directory: a frame that is too large");
        }
        Ok(())
    }

    fn save(&mut self, first: Option<u8>, second: Option<u8>, at: i64) -> Result<(), &'static str> {
        for (register, at) in [(first, at), (second, at + 8)] {
            match register {
                Some(LINK) if self.is_depth_lost => {
                    return Err(
                        "exception directory: a return address stored below a stack pointer that nothing tells",
                    );
                }
                Some(LINK) => self.layout.return_address = Place::AtCfa(at),
                Some(register) => self.layout.save(register, if self.is_depth_lost { UNTOLD } else { at }),
                None => {}
            }
        }
        self.last_pair = Some((first, at));
        Ok(())
    }

    fn rule(&self, machine: &'static Machine) -> Result<(Rule, Slots), &'static str> {
        let rule = if self.is_context {
            let is_counted_from_sp = self.layout.base == machine.sp;
            let (kind, link) = (Kind::Signal, ReturnAddress::AtCfa(0));
            let rule = Rule::new(kind, RuleSource::Pdata, machine.sp, self.depth, link, Saved::Same);
            rule.filter(|_| is_counted_from_sp).map(|rule| (rule, Slots::SAME))
        } else {
            self.layout.rule(machine, RuleSource::Pdata)
        };
        rule.ok_or("exception directory: a frame that the table cannot express")
    }
}
