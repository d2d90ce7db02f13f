//! Pieces to the bytes of a file.

use alloc::string::ToString;
use alloc::vec::Vec;
use core::ops::Range;

use hashbrown::HashMap;

use super::pieces::Piece;
use super::{CompileError, Input, Report};
use crate::arch::Arch;
use crate::format::{
    BUCKET_SHIFT, DIRECTORY_ENTRY_BYTES, HEADER_BYTES, MAGIC, MAX_RULES, MAX_TEXT_SPAN, SECTION_ALIGNMENT, SectionKind,
    VERSION, at,
};
use crate::reasons;
use crate::rule::{Rule, Slots};
use crate::source::{self, Source};
use symseal_module::{Rva, crc32};

/// Rows in the making, by rising offset from the start of the code.
struct Rows {
    starts: Vec<u32>,
    numbers: Vec<u16>,
    rules: Vec<(Rule, Slots)>,
    known: HashMap<(Rule, Slots), u16>,
    /// By a few bits of a rule, the number of the last one with these: most rows have one of a few dozen rules, and hashing each takes as long
    /// as all else here.
    recent: [u16; RECENT],
    /// End of the last row that was pushed.
    end: u32,
}

/// Places for rules that were seen lately.
const RECENT: usize = 1 << RECENT_BITS;
const RECENT_BITS: u32 = 9;

/// The place of a rule among those: bits of a product into which all of its words go.
fn place_of((rule, slots): &(Rule, Slots)) -> usize {
    let mixed = slots.0.iter().fold(rule.0, |mixed, word| mixed.rotate_left(23) ^ word);
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - RECENT_BITS)) as usize
}

impl Rows {
    /// Appends a row at `range`, and a gap before it if there is one.
    fn push(&mut self, range: Range<u32>, rule: (Rule, Slots)) -> Result<(), CompileError> {
        if self.end < range.start {
            self.push_at(self.end, (Rule::GAP, Slots::SAME))?;
        }
        self.end = range.end;
        self.push_at(range.start, rule)
    }

    fn push_at(&mut self, start: u32, rule: (Rule, Slots)) -> Result<(), CompileError> {
        let place = place_of(&rule);
        let recent = self.recent.get(place).copied().unwrap_or_default();
        let number = if self.rules.get(usize::from(recent)) == Some(&rule) { recent } else { self.number_of(rule)? };
        if let Some(recent) = self.recent.get_mut(place) {
            *recent = number;
        }
        if self.numbers.last() != Some(&number) {
            self.starts.push(start);
            self.numbers.push(number);
        }
        Ok(())
    }

    /// The number of a rule, a new one where it has none.
    fn number_of(&mut self, rule: (Rule, Slots)) -> Result<u16, CompileError> {
        if let Some(number) = self.known.get(&rule) {
            return Ok(*number);
        }
        let number = u16::try_from(self.rules.len()).map_err(|_| CompileError::TooManyRules)?;
        self.rules.push(rule);
        self.known.insert(rule, number);
        Ok(number)
    }
}

/// Writes the table of `pieces`, which are sorted, do not overlap and lie in `text`.
pub(super) fn write(
    input: &Input<'_>,
    text: &[Range<u64>],
    pieces: &[Piece],
    programs: &[u8],
    report: &mut Report,
) -> Result<Vec<u8>, CompileError> {
    let (Some(first), Some(last)) = (text.first(), text.last()) else { return Err(CompileError::NoText) };
    let span_error = CompileError::TextSpan { start: first.start, end: last.end };
    let base = input.image_base.0;
    let start = first.start.checked_sub(base).ok_or(span_error.clone())? >> BUCKET_SHIFT << BUCKET_SHIFT;
    let end = last.end.checked_sub(base).ok_or(span_error.clone())?;
    let size = end.checked_sub(start).filter(|size| *size <= MAX_TEXT_SPAN);
    let size = size.and_then(|size| u32::try_from(size).ok()).ok_or(span_error.clone())?;
    // From here on addresses are offsets from the start of the code.
    let offset = |svma: u64| svma.checked_sub(base)?.checked_sub(start).and_then(|offset| u32::try_from(offset).ok());

    let (starts, numbers) = (Vec::with_capacity(pieces.len()), Vec::with_capacity(pieces.len()));
    let mut rows = Rows { starts, numbers, rules: Vec::new(), known: HashMap::new(), recent: [0; RECENT], end: 0 };
    let mut sources: Vec<Source> = Vec::new();
    for piece in pieces {
        let (Some(from), Some(to)) = (offset(piece.range.start), offset(piece.range.end)) else {
            return Err(span_error);
        };
        rows.push(from..to, (piece.rule, piece.slots))?;
        let (kind, record) = piece.source;
        if sources.last().is_none_or(|last| (last.kind, last.offset) != (kind, record)) {
            sources.push(Source { start: Rva(start + u64::from(from)), kind, offset: record });
        }
    }
    if rows.end < size {
        rows.push_at(rows.end, (Rule::GAP, Slots::SAME))?;
    }
    report.rows = rows.starts.len();
    report.rules = rows.rules.len();
    debug_assert!(rows.rules.len() <= MAX_RULES);

    let (source_index, source_map) = source::write(&sources);
    let mut sections = Vec::from([
        (SectionKind::DebugId, input.debug_id.to_string().into_bytes()),
        (SectionKind::Producer, input.producer.as_bytes().to_vec()),
        (SectionKind::Buckets, buckets(&rows.starts, size)),
        (SectionKind::RowAddress, rows.starts.iter().map(|start| *start as u8).collect()),
        (SectionKind::RowRule, rows.numbers.iter().flat_map(|number| number.to_le_bytes()).collect()),
        (SectionKind::Rules, rows.rules.iter().flat_map(|(rule, _)| rule.0.to_le_bytes()).collect()),
        (SectionKind::Slots, slots(&rows.rules, input.arch)),
        (SectionKind::Programs, programs.to_vec()),
        (SectionKind::SourceIndex, source_index),
        (SectionKind::SourceMap, source_map),
    ]);
    let machine = input.arch.machine();
    if input.pdata.is_some() && !machine.convention_registers.is_empty() {
        let words = rows.rules.iter().filter_map(|(_, slots)| slots.0.get(machine.slot_words));
        sections.push((SectionKind::ConventionSlots, words.flat_map(|word| word.to_le_bytes()).collect()));
    }
    // Of another base it would lie outside the code.
    let go = input.go_runtime.map(|go| go.with_addresses(|svma| svma.0.checked_sub(base).map(Rva)));
    if let Some(section) = go.and_then(|go| go.write(start, u64::from(size))) {
        sections.push((SectionKind::GoRuntime, section));
        report.has_go_runtime = true;
    }
    if let Some(section) = input.tasks {
        sections.push((SectionKind::Tasks, section.to_vec()));
        report.has_tasks = true;
    }
    if let Some(section) = input.coroutines {
        sections.push((SectionKind::Coroutines, section.to_vec()));
        report.has_coroutines = true;
    }
    let unsupported = report.unsupported.iter().chain(&report.unfollowed_functions);
    let reasons = unsupported.map(|it| (it.range.clone(), it.reason.as_str()));
    let reasons = reasons::write(reasons, base.wrapping_add(start)..base.wrapping_add(end));
    if !reasons.is_empty() {
        sections.push((SectionKind::Reasons, reasons));
    }
    let mut directory = Vec::new();
    let mut body: Vec<u8> = Vec::new();
    let body_at = (HEADER_BYTES + sections.len() * DIRECTORY_ENTRY_BYTES).next_multiple_of(SECTION_ALIGNMENT);
    for (kind, bytes) in &sections {
        body.resize(body.len().next_multiple_of(SECTION_ALIGNMENT), 0);
        directory.extend((*kind as u32).to_le_bytes());
        directory.extend(crc32(&[bytes]).to_le_bytes());
        directory.extend(((body_at + body.len()) as u64).to_le_bytes());
        directory.extend((bytes.len() as u64).to_le_bytes());
        body.extend(bytes);
    }

    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend(MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.push(input.arch as u8);
    header.push(0);
    header.extend([0; 4]);
    header.extend((sections.len() as u32).to_le_bytes());
    header.extend(((body_at + body.len()) as u64).to_le_bytes());
    header.extend(base.to_le_bytes());
    header.extend(start.to_le_bytes());
    header.extend(end.to_le_bytes());
    header.extend((rows.starts.len() as u64).to_le_bytes());
    header.extend((rows.rules.len() as u64).to_le_bytes());
    header.extend(input.source_sha256);
    debug_assert_eq!((header.len(), at::SOURCE_SHA256 + 32), (HEADER_BYTES, HEADER_BYTES));
    let crc = crc32(&[&header, &directory]);
    for (to, from) in header.iter_mut().skip(at::HEADER_CRC).zip(crc.to_le_bytes()) {
        *to = from;
    }
    let mut bytes = header;
    bytes.extend(directory);
    bytes.resize(body_at, 0);
    bytes.extend(body);
    Ok(bytes)
}

fn slots(rules: &[(Rule, Slots)], arch: Arch) -> Vec<u8> {
    let words = rules.iter().flat_map(|(_, slots)| slots.0.into_iter().take(arch.machine().slot_words));
    words.flat_map(u64::to_le_bytes).collect()
}

/// For each bucket the first row at or after its start, and the number of rows at the end.
fn buckets(starts: &[u32], size: u32) -> Vec<u8> {
    let count = size.div_ceil(1 << BUCKET_SHIFT);
    let mut row = 0usize;
    let mut out = Vec::with_capacity((count as usize + 1) * 4);
    for bucket in 0..=count {
        let start = u64::from(bucket) << BUCKET_SHIFT;
        while starts.get(row).is_some_and(|at| u64::from(*at) < start) {
            row += 1;
        }
        out.extend((row as u32).to_le_bytes());
    }
    out
}
