//! Pieces to the bytes of a file.

use alloc::borrow::Cow;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use super::pieces::Piece;
use super::rules::{RuleNumber, Rules};
use super::{CompileError, Input, Report};
use crate::arch::Arch;
use crate::format::{
    BUCKET_SHIFT, DIRECTORY_ENTRY_BYTES, HEADER_BYTES, MAGIC, MAX_RULES, MAX_TEXT_SPAN, NARROW_BUCKETS,
    NARROW_ROW_RULES, SECTION_ALIGNMENT, SectionKind, VERSION, at,
};
use crate::numbers::narrowed;
use crate::reasons;
use crate::rule::{Rule, Slots};
use crate::source::{self, Source};
use symseal_module::{Rva, Svma, crc32};

/// The addresses of a table's code, as the file has them.
pub(super) struct Span {
    /// The module's image base.
    base: u64,
    /// From the image base: the last bucket's boundary at or before the first code, and the end of all.
    start: u64,
    end: u64,
    /// Bytes between the two.
    size: u32,
}

impl Span {
    /// Of code at `text`, which is sorted.
    pub(super) fn of(text: &[Range<u64>], image_base: Svma) -> Result<Self, CompileError> {
        let (Some(first), Some(last)) = (text.first(), text.last()) else { return Err(CompileError::NoText) };
        let base = image_base.0;
        let span = || {
            let start = first.start.checked_sub(base)? >> BUCKET_SHIFT << BUCKET_SHIFT;
            let end = last.end.checked_sub(base)?;
            let size = end.checked_sub(start).filter(|size| *size <= MAX_TEXT_SPAN)?;
            Some(Self { base, start, end, size: u32::try_from(size).ok()? })
        };
        span().ok_or(CompileError::TextSpan { start: first.start, end: last.end })
    }

    /// The distance of a stated address from the start.
    fn offset(&self, svma: u64) -> Option<u32> {
        u32::try_from(svma.checked_sub(self.base)?.checked_sub(self.start)?).ok()
    }

    /// As stated.
    fn stated(&self) -> Range<u64> {
        self.base.wrapping_add(self.start)..self.base.wrapping_add(self.end)
    }

    fn error(&self) -> CompileError {
        let Range { start, end } = self.stated();
        CompileError::TextSpan { start, end }
    }
}

/// Rows in the making, by rising offset from the start of the code, as the bytes of their sections.
struct Rows<'r> {
    known: &'r Rules,
    gap: RuleNumber,
    count: u32,
    addresses: Vec<u8>,
    numbers: Vec<u8>,
    /// The rule of the last row.
    last: Option<u16>,
    /// For each bucket the first row at or after its start.
    buckets: Vec<u8>,
    next_bucket: u32,
    /// Numbers in the file, by those among all that are known.
    numbered: Vec<Option<u16>>,
    /// The rules of the file, in the order in which rows have them first.
    rules: Vec<(Rule, Slots)>,
    /// End of the last row that was pushed.
    end: u32,
}

impl<'r> Rows<'r> {
    fn new(known: &'r Rules, gap: RuleNumber, size: u32, pieces: usize) -> Self {
        Self {
            known,
            gap,
            count: 0,
            addresses: Vec::with_capacity(pieces),
            numbers: Vec::with_capacity(2 * pieces),
            last: None,
            buckets: Vec::with_capacity((size.div_ceil(1 << BUCKET_SHIFT) as usize + 1) * 4),
            next_bucket: 0,
            numbered: vec![None; known.count()],
            rules: Vec::new(),
            end: 0,
        }
    }

    /// Appends a row at `range`, and a gap before it if there is one.
    fn push(&mut self, range: Range<u32>, rule: RuleNumber) -> Result<(), CompileError> {
        self.fill(range.start)?;
        self.end = range.end;
        self.push_at(range.start, rule)
    }

    /// A gap up to `end`, if something is missing there.
    fn fill(&mut self, end: u32) -> Result<(), CompileError> {
        if self.end < end { self.push_at(self.end, self.gap) } else { Ok(()) }
    }

    fn push_at(&mut self, start: u32, rule: RuleNumber) -> Result<(), CompileError> {
        let number = match self.numbered.get(rule.place()) {
            Some(Some(number)) => *number,
            _ => self.number(rule)?,
        };
        if self.last != Some(number) {
            self.begin_buckets(u64::from(start));
            self.last = Some(number);
            self.addresses.push(start as u8);
            self.numbers.extend(number.to_le_bytes());
            self.count += 1;
        }
        Ok(())
    }

    /// Gives a rule its number in the file.
    fn number(&mut self, rule: RuleNumber) -> Result<u16, CompileError> {
        let number = u16::try_from(self.rules.len()).map_err(|_| CompileError::TooManyRules)?;
        self.rules.push(self.known.of(rule));
        if let Some(numbered) = self.numbered.get_mut(rule.place()) {
            *numbered = Some(number);
        }
        Ok(number)
    }

    /// Lets buckets that start at `start` or before begin with the next row.
    fn begin_buckets(&mut self, start: u64) {
        while u64::from(self.next_bucket) << BUCKET_SHIFT <= start {
            self.buckets.extend(self.count.to_le_bytes());
            self.next_bucket += 1;
        }
    }

    /// Ends the code at `size`. Of the last bucket's end it is the number of rows.
    fn finish(&mut self, size: u32) -> Result<(), CompileError> {
        self.fill(size)?;
        self.begin_buckets(u64::from(size.div_ceil(1 << BUCKET_SHIFT)) << BUCKET_SHIFT);
        Ok(())
    }
}

/// Writes the table of `pieces`, which are sorted, do not overlap and lie in `span`.
pub(super) fn write(
    input: &Input<'_>,
    span: &Span,
    pieces: &[Piece],
    rules: &mut Rules,
    programs: &[u8],
    report: &mut Report,
) -> Result<Vec<u8>, CompileError> {
    // From here on addresses are offsets from the start of the code.
    let gap = rules.number_of(Rule::GAP, Slots::SAME);
    let mut rows = Rows::new(rules, gap, span.size, pieces.len());
    let mut sources: Vec<Source> = Vec::new();
    let mut last = None;
    for piece in pieces {
        let (Some(from), Some(to)) = (span.offset(piece.start()), span.offset(piece.end())) else {
            return Err(span.error());
        };
        rows.push(from..to, piece.rule)?;
        if last != Some(piece.origin)
            && let Some(kind) = piece.origin.kind()
        {
            last = Some(piece.origin);
            sources.push(Source { start: Rva(span.start + u64::from(from)), kind, offset: piece.origin.offset() });
        }
    }
    rows.finish(span.size)?;
    report.rows = rows.count as usize;
    report.rules = rows.rules.len();
    debug_assert!(rows.rules.len() <= MAX_RULES);

    let mut flags = 0;
    if rows.rules.len() <= 1 << 8 {
        flags |= NARROW_ROW_RULES;
        rows.numbers = narrowed(&rows.numbers, 2, 1);
    }
    if rows.count < 1 << 16 {
        flags |= NARROW_BUCKETS;
        rows.buckets = narrowed(&rows.buckets, 4, 2);
    }
    let (source_index, source_map) = source::write(&sources);
    let debug_id = input.debug_id.to_string();
    let rule_words: Vec<u8> = rows.rules.iter().flat_map(|(rule, _)| rule.0.to_le_bytes()).collect();
    let slot_words = slots(&rows.rules, input.arch);
    let mut sections: Vec<(SectionKind, Cow<'_, [u8]>)> = Vec::from([
        (SectionKind::DebugId, debug_id.as_bytes().into()),
        (SectionKind::Producer, input.producer.as_bytes().into()),
        (SectionKind::Buckets, rows.buckets.into()),
        (SectionKind::RowAddress, rows.addresses.into()),
        (SectionKind::RowRule, rows.numbers.into()),
        (SectionKind::Rules, rule_words.into()),
        (SectionKind::Slots, slot_words.into()),
        (SectionKind::Programs, programs.into()),
        (SectionKind::SourceIndex, source_index.into()),
        (SectionKind::SourceMap, source_map.into()),
    ]);
    let machine = input.arch.machine();
    if !input.convention_registers().is_empty() {
        let words = rows.rules.iter().filter_map(|(_, slots)| slots.0.get(machine.slot_words));
        sections.push((SectionKind::ConventionSlots, words.flat_map(|word| word.to_le_bytes()).collect()));
    }
    // Of another base it would lie outside the code.
    let go = input.go_runtime.map(|go| go.with_addresses(|svma| svma.0.checked_sub(span.base).map(Rva)));
    if let Some(section) = go.and_then(|go| go.write(span.start, u64::from(span.size))) {
        sections.push((SectionKind::GoRuntime, section.into()));
        report.has_go_runtime = true;
    }
    if let Some(section) = input.tasks {
        sections.push((SectionKind::Tasks, section.into()));
        report.has_tasks = true;
    }
    if let Some(section) = input.coroutines {
        sections.push((SectionKind::Coroutines, section.into()));
        report.has_coroutines = true;
    }
    let unsupported = report.unsupported.iter().chain(&report.unfollowed_functions);
    let reasons = unsupported.map(|it| (it.range.clone(), it.reason.as_str()));
    let reasons = reasons::write(reasons, span.stated());
    if !reasons.is_empty() {
        sections.push((SectionKind::Reasons, reasons.into()));
    }

    let body_at = (HEADER_BYTES + sections.len() * DIRECTORY_ENTRY_BYTES).next_multiple_of(SECTION_ALIGNMENT);
    let padded = |bytes: usize| bytes.next_multiple_of(SECTION_ALIGNMENT);
    let most = sections.iter().fold(body_at, |end, (_, section)| padded(end) + section.len());
    let mut bytes = Vec::with_capacity(most);
    bytes.resize(body_at, 0);
    let mut directory = Vec::new();
    for (kind, section) in sections {
        bytes.resize(padded(bytes.len()), 0);
        directory.extend((kind as u32).to_le_bytes());
        directory.extend(crc32(&[&section]).to_le_bytes());
        directory.extend((bytes.len() as u64).to_le_bytes());
        directory.extend((section.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&section);
    }
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend(MAGIC);
    header.extend(VERSION.to_le_bytes());
    header.push(input.arch as u8);
    header.push(flags);
    header.extend([0; 4]);
    header.extend(((directory.len() / DIRECTORY_ENTRY_BYTES) as u32).to_le_bytes());
    header.extend((bytes.len() as u64).to_le_bytes());
    header.extend(span.base.to_le_bytes());
    header.extend(span.start.to_le_bytes());
    header.extend(span.end.to_le_bytes());
    header.extend(u64::from(rows.count).to_le_bytes());
    header.extend((rows.rules.len() as u64).to_le_bytes());
    header.extend(input.source_sha256);
    debug_assert_eq!((header.len(), at::SOURCE_SHA256 + 32), (HEADER_BYTES, HEADER_BYTES));
    let crc = crc32(&[&header, &directory]);
    let crc_ends = at::HEADER_CRC + crc.to_le_bytes().len();
    let (before, behind) =
        (header.get(..at::HEADER_CRC).unwrap_or_default(), header.get(crc_ends..).unwrap_or_default());
    let front = before.iter().copied().chain(crc.to_le_bytes()).chain(behind.iter().copied()).chain(directory);
    for (to, from) in bytes.iter_mut().zip(front) {
        *to = from;
    }
    Ok(bytes)
}

fn slots(rules: &[(Rule, Slots)], arch: Arch) -> Vec<u8> {
    let words = rules.iter().flat_map(|(_, slots)| slots.0.into_iter().take(arch.machine().slot_words));
    words.flat_map(u64::to_le_bytes).collect()
}
