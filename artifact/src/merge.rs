//! Pieces of described functions and symbols to records that do not overlap.

use crate::beside::is_second;
use crate::code_ranges::Text;
use crate::described::{Described, FunctionNames, InlinedNames, Loser, Naming, OrphanRow, Piece, Site};
use crate::folded::{base, has_two_functions, is_mangled, spells};
use crate::go;
use crate::paint::{Interval, Segment, paint};
use crate::symbols::{MOST_ALIASES, SymbolGroup, default_of_weak};
use crate::work::Work;
use hashbrown::{HashMap, HashSet};
use std::cmp::Reverse;
use std::ops::Range;
use symseal_module::{Rva, Svma};
use symseal_symx::{FunctionFlags, FunctionRecord, InlineSite, NO_INLINE, Row, StrId, SymbolSource};

/// A range that other functions share is compared with at most so many of them.
const MOST_SHARERS: usize = 64;

/// What gives a stretch of code its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// A symbol with a size; a later start wins.
    Symbol(u64),
    /// Debug information; an earlier unit wins, as debuggers have it.
    Described(Reverse<u32>),
}

pub(crate) struct Merge<'m, 's> {
    image_base: Svma,
    text: &'m Text,
    source: SymbolSource,
    pieces: Vec<Piece>,
    losers: Vec<Loser>,
    /// Of functions with several names, by the one that holds the code: the others.
    also_named: HashMap<u64, Vec<u64>>,
    orphans: Vec<OrphanRow>,
    groups: Vec<SymbolGroup>,
    without_code: Vec<u64>,
    /// The names of functions without code, once they were needed.
    without_code_names: Option<HashSet<String>>,
    /// Where a part of the functions is at hand: whether the others were needed.
    needs_others: Option<bool>,
    names: Box<dyn Naming + 's>,
    work: &'m mut Work,
}

/// The symbols of a function.
#[derive(Default)]
struct Symbols {
    symbol: StrId,
    aliases: Vec<StrId>,
    /// Whether some are of other functions.
    folded: bool,
}

/// A record, and the entry that named it.
struct Named {
    record: FunctionRecord,
    entry: Option<u64>,
}

impl<'m, 's> Merge<'m, 's> {
    pub(crate) fn new(
        image_base: Svma,
        text: &'m Text,
        described: Described<'s>,
        groups: Vec<SymbolGroup>,
        work: &'m mut Work,
    ) -> Self {
        let Described { source, pieces, losers, orphans, without_code, names } = described;
        let mut also_named: HashMap<u64, Vec<u64>> = HashMap::new();
        for loser in &losers {
            if let Some(function) = loser.alias_of {
                also_named.entry(function).or_default().push(loser.function);
            }
        }
        Self {
            image_base,
            text,
            source,
            pieces,
            losers,
            also_named,
            orphans,
            groups,
            without_code,
            without_code_names: None,
            needs_others: None,
            names,
            work,
        }
    }

    /// Records by address.
    pub(crate) fn run(mut self) -> Vec<FunctionRecord> {
        self.records()
    }

    /// The same where the others of the module's functions were not read; `None` where a record depends on them.
    pub(crate) fn run_on_part(mut self) -> Option<Vec<FunctionRecord>> {
        self.needs_others = Some(false);
        let records = self.records();
        (self.needs_others == Some(false)).then_some(records)
    }

    fn records(&mut self) -> Vec<FunctionRecord> {
        let segments = self.segments();
        self.order_orphans();
        let mut records = Vec::with_capacity(segments.len());
        for (at, segment) in segments.iter().enumerate() {
            // Size-less symbols fill the gap before the segment.
            let gap_start = at.checked_sub(1).and_then(|before| segments.get(before)).map_or(0, |before| before.end);
            self.size_less(gap_start, segment.start, &mut records);
            match segment.index.checked_sub(self.pieces.len()) {
                None => self.described_record(segment, &mut records),
                Some(group) => self.symbol_record(group, segment.start, segment.end, false, &mut records),
            }
        }
        self.size_less(segments.last().map_or(0, |last| last.end), u64::MAX, &mut records);
        self.fold(&mut records);
        let mut records: Vec<FunctionRecord> = records.into_iter().map(|named| named.record).collect();
        let nameless = self.nameless(&records);
        if !nameless.is_empty() {
            records.extend(nameless);
            records.sort_by_key(|record| record.start);
        }
        records
    }

    /// Who holds which range, size-less symbols left out.
    fn segments(&mut self) -> Vec<Segment> {
        let pieces = self.pieces.iter().map(|piece| Interval {
            start: piece.start,
            end: piece.end,
            priority: Rank::Described(Reverse(piece.unit)),
        });
        let groups = self.groups.iter().map(|group| {
            let end =
                self.text.clip(group.svma, group.svma.saturating_add(group.size)).map_or(group.svma, |range| range.1);
            Interval { start: group.svma, end, priority: Rank::Symbol(group.svma) }
        });
        let intervals: Vec<Interval<Rank>> = pieces.chain(groups).collect();
        let segments = paint(&intervals);
        let mut painted = vec![0_u64; self.pieces.len()];
        for segment in &segments {
            if let Some(bytes) = painted.get_mut(segment.index) {
                *bytes += segment.end - segment.start;
            }
        }
        for (piece, painted) in self.pieces.iter().zip(painted) {
            if painted < piece.end - piece.start {
                self.losers.push(Loser {
                    start: piece.start,
                    end: piece.end,
                    function: piece.function,
                    alias_of: None,
                });
            }
        }
        segments
    }

    fn described_record(&mut self, segment: &Segment, records: &mut Vec<Named>) {
        let Some(start) = Svma(segment.start).to_rva(self.image_base) else { return };
        let Some(piece) = self.pieces.get_mut(segment.index) else { return };
        let is_whole = (piece.start, piece.end) == (segment.start, segment.end);
        let part = !(piece.is_entry && piece.start == segment.start);
        let function = piece.function;
        let (rows, sites) = if is_whole {
            (std::mem::take(&mut piece.rows), std::mem::take(&mut piece.sites))
        } else {
            let size = segment.end - segment.start;
            if self.work.budget.charge(piece.rows.len() as u64 + piece.sites.len() as u64).is_err() {
                return;
            }
            (cut(&piece.rows, start, size), piece.sites.clone())
        };
        let mut names = self.names.function(function, self.work);
        let others = self.other_names(function);
        let symbols = self.symbols_of(segment.start, &names, &others);
        let Symbols { symbol, aliases, folded } = self.without_default(symbols, names.symbol);
        // Of names of one function that one which the symbols choose.
        if let Some(other) = others.into_iter().find(|other| other.symbol == symbol && symbol != names.symbol) {
            names = other;
        }
        let inlines = sites.iter().map(|site| self.inline_site(site)).collect();
        let record = FunctionRecord {
            start,
            size: segment.end - segment.start,
            name: if names.name.is_empty() { symbol } else { names.name },
            symbol,
            aliases,
            source: match (go::is_go(function), is_second(function)) {
                (true, _) => SymbolSource::Pclntab,
                (_, true) if self.source == SymbolSource::Dwarf => SymbolSource::Pdb,
                (_, true) => SymbolSource::Dwarf,
                _ => self.source,
            },
            flags: FunctionFlags { approximate: false, folded, part },
            file: names.file,
            line: names.line,
            rows,
            inlines,
        };
        records.push(Named { record, entry: Some(function) });
    }

    fn inline_site(&mut self, site: &Site) -> InlineSite {
        let InlinedNames { name, symbol } = self.names.inlined(site.origin, self.work);
        InlineSite {
            parent: site.parent,
            name,
            symbol,
            call_file: site.call_file,
            call_line: site.call_line,
            call_column: site.call_column,
        }
    }

    /// What a function is called besides.
    fn other_names(&mut self, function: u64) -> Vec<FunctionNames> {
        let Some(others) = self.also_named.get(&function) else { return Vec::new() };
        others.iter().take(MOST_ALIASES).map(|other| self.names.function(*other, self.work)).collect()
    }

    /// The symbols at the start of a described function, which has these `others` as well.
    fn symbols_of(&mut self, start: u64, names: &FunctionNames, others: &[FunctionNames]) -> Symbols {
        let Some(group) = self.group_at(start).filter(|group| !group.names.is_empty()) else {
            return Symbols { symbol: names.symbol, ..Symbols::default() };
        };
        let linkage = names.has_linkage_name.then_some(names.symbol);
        let (symbol, aliases) = choose(group, linkage);
        if aliases.is_empty() {
            return Symbols { symbol, aliases, folded: false };
        }
        let all = group.names.clone();
        let mut claims = all.get(..group.claims).unwrap_or_default().to_vec();
        claims.retain(|name| others.iter().all(|other| other.symbol != *name));
        if !self.is_folded(&claims, names.symbol) {
            return Symbols { symbol, aliases, folded: false };
        }
        // Name, symbol and lines have to tell of one function.
        let text = |name: &StrId| self.work.strings.get(*name);
        let own = linkage.filter(|name| all.contains(name));
        let own = own.or_else(|| all.iter().copied().find(|name| spells(text(name), text(&names.symbol))));
        // The symbol of a function in C is its name.
        let is_c = !all.iter().any(|name| is_mangled(text(name)));
        let own = own.or_else(|| linkage.or((is_c && names.symbol != StrId::EMPTY).then_some(names.symbol)));
        let symbol = own.unwrap_or(symbol);
        Symbols { symbol, aliases: all.into_iter().filter(|name| *name != symbol).collect(), folded: true }
    }

    /// The same, where the symbols have but defaults of weak ones, one of them of a function that debug information calls `own`: it is called by that name.
    fn without_default(&mut self, symbols: Symbols, own: StrId) -> Symbols {
        let Symbols { symbol, mut aliases, folded } = symbols;
        let text = |name: StrId| self.work.strings.get(name);
        if default_of_weak(text(symbol).as_bytes()).is_none() {
            return Symbols { symbol, aliases, folded };
        }
        // On x86 symbols begin with one underscore more.
        let is_own = |name: &&[u8]| [Some(*name), name.strip_prefix(b"_")].contains(&Some(text(own).as_bytes()));
        let mut all = std::iter::once(symbol).chain(aliases.iter().copied());
        let name = all.find_map(|one| default_of_weak(text(one).as_bytes()).filter(is_own));
        let Some(name) = name.map(<[u8]>::to_vec) else { return Symbols { symbol, aliases, folded } };
        aliases.insert(0, symbol);
        aliases.truncate(MOST_ALIASES);
        Symbols { symbol: self.work.text(&name), aliases, folded }
    }

    /// Whether one of the symbols at an address is of another function than the one that debug information has there, which
    /// is called `own`.
    fn is_folded(&mut self, symbols: &[StrId], own: StrId) -> bool {
        let texts = |work: &Work| symbols.iter().map(|name| work.strings.get(*name).to_owned()).collect::<Vec<_>>();
        let texts = texts(self.work);
        if has_two_functions(texts.iter().map(String::as_str)) {
            return true;
        }
        let own = self.work.strings.get(own).to_owned();
        texts.iter().any(|symbol| !is_mangled(symbol) && !spells(symbol, &own) && self.is_without_code(base(symbol)))
    }

    /// Whether debug information defines a function of this name whose code, if it says any, is another one's.
    fn is_without_code(&mut self, name: &str) -> bool {
        if let Some(needed) = &mut self.needs_others {
            *needed = true;
            return false;
        }
        if self.without_code_names.is_none() {
            let losers = self.losers.iter().filter(|loser| loser.alias_of.is_none()).map(|loser| loser.function);
            let functions: Vec<u64> = std::mem::take(&mut self.without_code).into_iter().chain(losers).collect();
            let names = functions.into_iter().filter_map(|function| self.names.bare(function, self.work)).collect();
            self.without_code_names = Some(names);
        }
        self.without_code_names.as_ref().is_some_and(|names| names.contains(name))
    }

    fn group_at(&self, svma: u64) -> Option<&SymbolGroup> {
        let at = self.groups.binary_search_by_key(&svma, |group| group.svma).ok()?;
        self.groups.get(at)
    }

    fn symbol_record(&mut self, group: usize, start: u64, end: u64, approximate: bool, records: &mut Vec<Named>) {
        let Some(rva) = Svma(start).to_rva(self.image_base) else { return };
        let Some(group) = self.groups.get(group) else { return };
        let (symbol, aliases) = choose(group, None);
        let claims = group.names.get(..group.claims).unwrap_or_default();
        let folded = has_two_functions(claims.iter().map(|name| self.work.strings.get(*name)));
        let record = FunctionRecord {
            start: rva,
            size: end - start,
            name: symbol,
            symbol,
            aliases,
            source: group.source,
            flags: FunctionFlags { approximate, folded, part: start != group.svma },
            file: StrId::EMPTY,
            line: 0,
            rows: self.orphan_rows(start, end),
            inlines: Vec::new(),
        };
        records.push(Named { record, entry: None });
    }

    /// Size-less symbols and function starts that nothing covers: each reaches to whatever comes next, or covers its own
    /// address only, as its group says.
    fn size_less(&mut self, gap_start: u64, gap_end: u64, records: &mut Vec<Named>) {
        let first = self.groups.partition_point(|group| group.svma < gap_start);
        let mut at = first;
        while let Some(group) = self.groups.get(at)
            && group.svma < gap_end
        {
            let next = self.groups.get(at + 1).map_or(gap_end, |next| next.svma.min(gap_end));
            let end = if group.reaches { next } else { group.svma.saturating_add(1).min(next) };
            // A symbol with a size is in the gap only where it has no byte of code.
            if group.size == 0
                && let Some((start, end)) = self.text.clip(group.svma, end)
            {
                self.symbol_record(at, start, end, true, records);
            }
            at += 1;
        }
    }

    /// By address and not overlapping; an earlier unit's rows win.
    fn order_orphans(&mut self) {
        if self.orphans.is_sorted_by(|a, b| a.end <= b.start) {
            return;
        }
        let intervals: Vec<Interval<()>> =
            self.orphans.iter().map(|row| Interval { start: row.start, end: row.end, priority: () }).collect();
        let ordered = paint(&intervals).into_iter().filter_map(|segment| {
            let row = self.orphans.get(segment.index)?;
            let begins = row.begins && segment.start == row.start;
            Some(OrphanRow { start: segment.start, end: segment.end, begins, ..*row })
        });
        self.orphans = ordered.collect();
    }

    fn orphan_rows(&self, start: u64, end: u64) -> Vec<Row> {
        let first = self.orphans.partition_point(|row| row.end <= start);
        let mut rows: Vec<Row> = Vec::new();
        let mut position = start;
        let mut push = |svma: u64, file: StrId, line: u32, column: u32| {
            let Some(start) = Svma(svma).to_rva(self.image_base) else { return };
            rows.push(Row { start, file, line, column, inline: NO_INLINE });
        };
        for row in self.orphans.get(first..).unwrap_or_default() {
            if row.start >= end {
                break;
            }
            if position < row.start {
                push(position, StrId::EMPTY, 0, 0);
            }
            push(row.start.max(start), row.file, row.line, row.column);
            position = row.end;
        }
        if position > start && position < end {
            push(position, StrId::EMPTY, 0, 0);
        }
        rows
    }

    /// Code of a line table that no record holds: of assembly that has no symbol, mostly. A row that begins in a record aligns what comes behind it, and is
    /// not among these.
    fn nameless(&mut self, records: &[FunctionRecord]) -> Vec<FunctionRecord> {
        let base = self.image_base;
        let range = |record: &FunctionRecord| {
            let start = base.0.saturating_add(record.start.0);
            start..start.saturating_add(record.size)
        };
        let mut held = records.iter().map(range).peekable();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for row in self.orphans.iter().filter(|row| row.begins && row.line != 0 && !row.file.is_empty()) {
            while held.next_if(|held| held.end <= row.start).is_some() {}
            let end = held.peek().map_or(row.end, |held| row.end.min(held.start));
            let Some((start, end)) = self.text.clip(row.start, end) else { continue };
            match runs.last_mut().filter(|run| run.end == start) {
                Some(run) => run.end = end,
                None => runs.push(start..end),
            }
        }
        if self.work.budget.charge(runs.len() as u64).is_err() {
            return Vec::new();
        }
        let nameless = |run: Range<u64>| {
            let start = Svma(run.start).to_rva(base)?;
            Some(FunctionRecord {
                start,
                size: run.end - run.start,
                name: StrId::EMPTY,
                symbol: StrId::EMPTY,
                aliases: Vec::new(),
                source: SymbolSource::FunctionStarts,
                flags: FunctionFlags { approximate: true, ..FunctionFlags::default() },
                file: StrId::EMPTY,
                line: 0,
                rows: self.orphan_rows(run.start, run.end),
                inlines: Vec::new(),
            })
        };
        runs.into_iter().filter_map(nameless).collect()
    }

    /// Flags records whose code other functions claim too, and names those as aliases where they start alike.
    fn fold(&mut self, records: &mut [Named]) {
        let losers = std::mem::take(&mut self.losers);
        for loser in losers {
            let Some(start) = Svma(loser.start).to_rva(self.image_base) else { continue };
            let end = start.0.saturating_add(loser.end - loser.start);
            let names = self.names.function(loser.function, self.work);
            let first =
                records.partition_point(|named| named.record.start.0.saturating_add(named.record.size) <= start.0);
            let shared = records.get_mut(first..).unwrap_or_default().iter_mut().take(MOST_SHARERS);
            for Named { record, entry } in shared.take_while(|named| named.record.start.0 < end) {
                // One function described twice is no other function.
                let is_same = entry.is_none() || *entry == Some(loser.function) || record.name == names.name;
                if is_same {
                    continue;
                }
                record.flags.folded |= loser.alias_of.is_none();
                let alias = names.symbol;
                if record.start == start
                    && alias != record.symbol
                    && record.aliases.len() < MOST_ALIASES
                    && !record.aliases.contains(&alias)
                {
                    record.aliases.push(alias);
                }
            }
        }
    }
}

/// The symbol of an address and the others: of those that differ in spelling alone the one that DWARF names, else the
/// best.
fn choose(group: &SymbolGroup, linkage: Option<StrId>) -> (StrId, Vec<StrId>) {
    let peers = group.names.get(..group.peers).unwrap_or_default();
    let chosen = linkage.filter(|name| peers.contains(name)).or(group.names.first().copied()).unwrap_or_default();
    (chosen, group.names.iter().copied().filter(|name| *name != chosen).collect())
}

/// The rows of a part of a piece.
fn cut(rows: &[Row], start: Rva, size: u64) -> Vec<Row> {
    let first = rows.partition_point(|row| row.start <= start).saturating_sub(1);
    let end = start.0.saturating_add(size);
    let rows = rows.get(first..).unwrap_or_default().iter().take_while(|row| row.start.0 < end);
    rows.map(|row| Row { start: row.start.max(start), ..*row }).collect()
}
