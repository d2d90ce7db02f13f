//! Over the entries of a unit, once: functions, inlined calls, scopes.

use super::abbrev::{Abbreviation, Role};
use super::ranges::{CodeRanges, RangeAttributes, push_ranges};
use super::scope_name::said_of_scope;
use super::scopes::{ROOT, ScopeId, Scopes};
use super::unit::Unit;
use super::value::{self, Value};
use crate::code_ranges::Text;
use crate::cursor::{Cursor, Damaged, Result};
use crate::described::Site;
use crate::work::Work;
use symseal_symx::{NO_INLINE, StrId};

/// Inlined calls nested deeper than this are taken for their caller's code. The symbol table holds 1024 frames.
const MOST_INLINED: u32 = 512;

/// Where an entry is damaged, nobody knows where the next one starts.
pub(crate) const REST_OF_UNIT: &str = "rest of a unit, behind a damaged entry";

/// Zeros behind the last entry of a unit: assemblers and linkers align with less, and an interrupted copy leaves whole blocks of them.
const MOST_PADDING: u64 = 64;

/// "Not in a function that has code."
const NO_FUNCTION: u32 = u32::MAX;

/// A function of the unit at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitFunction {
    pub(crate) entry: u64,
    /// Its ranges in [`UnitEntries::ranges`], the one with the entry point first.
    pub(crate) first_range: usize,
    pub(crate) behind_ranges: usize,
}

/// A range of an inlined call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InlineRange {
    pub(crate) function: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) site: u32,
}

/// What the entries of one unit say; buffers are kept from unit to unit.
#[derive(Debug, Default)]
pub(crate) struct UnitEntries {
    pub(crate) functions: Vec<UnitFunction>,
    pub(crate) ranges: Vec<(u64, u64)>,
    /// What is stated of those of functions that reach behind the code which they start in.
    pub(crate) cut: Vec<(u64, u64)>,
    pub(crate) sites: Vec<Site>,
    pub(crate) inline_ranges: Vec<InlineRange>,
    /// Entries of functions that are defined and have no code of their own.
    pub(crate) without_code: Vec<u64>,
    /// There are functions by the number of their address that is not in the code: the linker dropped them.
    pub(crate) has_dropped: bool,
    /// An assembler wrote them.
    pub(crate) are_assembled: bool,
}

impl UnitEntries {
    pub(crate) fn clear(&mut self) {
        self.functions.clear();
        self.ranges.clear();
        self.cut.clear();
        self.sites.clear();
        self.inline_ranges.clear();
        self.without_code.clear();
        self.has_dropped = false;
        self.are_assembled = false;
    }
}

#[derive(Clone, Copy)]
enum FrameScope {
    Known(ScopeId),
    /// The entry at this offset opens a scope whose name was not needed yet.
    Pending(u64),
    /// That of the frame below.
    Same,
}

/// What holds for the children of an entry.
#[derive(Clone, Copy)]
struct Frame {
    /// Depth of the children.
    depth: u32,
    scope: FrameScope,
    function: u32,
    site: u32,
    inlined: u32,
}

/// The path of a file of the unit's line table.
pub(crate) type Path<'p> = dyn FnMut(u64, &mut Work) -> Option<StrId> + 'p;

pub(crate) struct Walk<'s, 'w> {
    unit: &'w Unit<'s>,
    text: &'w Text,
    entries: &'w mut UnitEntries,
    scopes: &'w mut Scopes,
    work: &'w mut Work,
    stack: Vec<Frame>,
}

impl<'s, 'w> Walk<'s, 'w> {
    pub(crate) fn new(
        unit: &'w Unit<'s>,
        text: &'w Text,
        entries: &'w mut UnitEntries,
        scopes: &'w mut Scopes,
        work: &'w mut Work,
    ) -> Self {
        Self { unit, text, entries, scopes, work, stack: Vec::new() }
    }

    /// Reads the unit to its end, or as far as it is not damaged.
    pub(crate) fn run(&mut self, path: &mut Path<'_>) -> Result<()> {
        let unit = self.unit;
        let encoding = unit.header.encoding;
        let mut cursor = unit.cursor_at(unit.header.entries)?;
        let (mut depth, mut padding) = (0_u32, 0_u64);
        let mut top =
            Frame { depth: 0, scope: FrameScope::Known(ROOT), function: NO_FUNCTION, site: NO_INLINE, inlined: 0 };
        self.stack.clear();
        // C has no functions in its types.
        let types_are_closed = matches!(
            unit.root.language,
            Some(gimli::DW_LANG_C | gimli::DW_LANG_C89 | gimli::DW_LANG_C99 | gimli::DW_LANG_C11 | gimli::DW_LANG_C17)
        );
        while cursor.remaining() > 0 {
            let offset = unit.header.end - cursor.remaining() as u64;
            let code = cursor.uleb()?;
            if code == 0 {
                // Padding behind the last entry is zeros too.
                padding += u64::from(depth == 0);
                depth = depth.saturating_sub(1);
                while top.depth > depth {
                    let Some(below) = self.stack.pop() else { break };
                    top = below;
                }
                continue;
            }
            let abbreviation = unit.abbreviations.get(code)?;
            if abbreviation.has_children
                && abbreviation.ends_with_sibling
                && (abbreviation.is_closed || (types_are_closed && abbreviation.role == Role::Scope))
            {
                unit.abbreviations.skip(abbreviation, &mut cursor, encoding)?;
                if self.pass_over_children(&mut cursor, offset) {
                    continue;
                }
                cursor = unit.cursor_at(offset)?;
                cursor.uleb()?;
            }
            let children = depth + 1;
            let opened = match abbreviation.role {
                Role::Other => {
                    unit.abbreviations.skip(abbreviation, &mut cursor, encoding)?;
                    None
                }
                Role::Scope => {
                    unit.abbreviations.skip(abbreviation, &mut cursor, encoding)?;
                    if !abbreviation.has_children {
                        // A declaration, to which the definition may refer for its scope.
                        self.place(&mut top, offset);
                        None
                    } else {
                        Some(Frame { scope: FrameScope::Pending(offset), ..top })
                    }
                }
                Role::Subprogram => {
                    if abbreviation.has_name {
                        self.place(&mut top, offset);
                    }
                    let function = self.subprogram(&mut cursor, abbreviation, offset)?;
                    Some(Frame { scope: FrameScope::Same, function, site: NO_INLINE, inlined: 0, ..top })
                }
                Role::InlinedCall => self.inlined_call(&mut cursor, abbreviation, offset, &top, path)?,
            };
            if abbreviation.has_children {
                depth = children;
                if let Some(frame) = opened {
                    self.work.budget.charge(1)?;
                    self.stack.push(top);
                    top = Frame { depth: children, ..frame };
                }
            }
        }
        if padding > MOST_PADDING && !unit.leaves_room() {
            self.work.skip("unit that ends before its stated length");
        }
        Ok(())
    }

    /// From behind the attributes of an entry, the last of which is a sibling, to that entry. A sibling that does not
    /// lie further on is not believed.
    fn pass_over_children(&self, cursor: &mut Cursor<'s>, entry: u64) -> bool {
        let header = &self.unit.header;
        let behind = header.end - cursor.remaining() as u64;
        let Ok(mut field) = self.unit.cursor_at(behind.saturating_sub(4).max(entry)) else { return false };
        let sibling = field.unsigned(4).map_or(0, |offset| header.offset.saturating_add(offset));
        let passed = sibling.checked_sub(behind).filter(|_| sibling < header.end);
        passed.and_then(|passed| usize::try_from(passed).ok()).is_some_and(|passed| cursor.skip(passed).is_ok())
    }

    fn subprogram(&mut self, cursor: &mut Cursor<'s>, abbreviation: &Abbreviation, offset: u64) -> Result<u32> {
        let encoding = self.unit.header.encoding;
        if !abbreviation.has_ranges {
            self.unit.abbreviations.skip(abbreviation, cursor, encoding)?;
            self.without_code(abbreviation, offset)?;
            return Ok(NO_FUNCTION);
        }
        let mut attributes = RangeAttributes::default();
        for attribute in self.unit.abbreviations.attributes(abbreviation) {
            let value = value::read(cursor, attribute, encoding)?;
            take_range(&mut attributes, attribute.name, value);
        }
        let first_range = self.entries.ranges.len();
        self.push_ranges(attributes, "function outside of the code (dropped by the linker)")?;
        let behind_ranges = self.entries.ranges.len();
        if first_range == behind_ranges {
            self.entries.has_dropped |= matches!(attributes.low_pc, Some(Value::AddressIndex(_)));
            self.without_code(abbreviation, offset)?;
            return Ok(NO_FUNCTION);
        }
        let number = u32::try_from(self.entries.functions.len()).map_err(|_| Damaged)?;
        self.entries.functions.push(UnitFunction { entry: offset, first_range, behind_ranges });
        Ok(number)
    }

    /// Notes a function without code. Where its symbol stands all the same, it shares the code of another one.
    fn without_code(&mut self, abbreviation: &Abbreviation, offset: u64) -> Result<()> {
        if abbreviation.defines_by_name {
            self.work.budget.charge(1)?;
            self.entries.without_code.push(offset);
        }
        Ok(())
    }

    fn inlined_call(
        &mut self,
        cursor: &mut Cursor<'s>,
        abbreviation: &Abbreviation,
        offset: u64,
        top: &Frame,
        path: &mut Path<'_>,
    ) -> Result<Option<Frame>> {
        let encoding = self.unit.header.encoding;
        // One without ranges of its own is still the caller of those in it: DWARF 2 cannot say it in parts.
        if top.function == NO_FUNCTION {
            self.unit.abbreviations.skip(abbreviation, cursor, encoding)?;
            return Ok(None);
        }
        if top.inlined >= MOST_INLINED {
            self.work.skip("inlined call nested too deep");
            self.unit.abbreviations.skip(abbreviation, cursor, encoding)?;
            return Ok(None);
        }
        let mut attributes = RangeAttributes::default();
        let mut site = Site { parent: top.site, origin: offset, call_file: StrId::EMPTY, call_line: 0, call_column: 0 };
        for attribute in self.unit.abbreviations.attributes(abbreviation) {
            let value = value::read(cursor, attribute, encoding)?;
            match (attribute.name, value) {
                (gimli::DW_AT_abstract_origin, value) => {
                    if let Some(origin) = self.unit.reference(value) {
                        site.origin = origin;
                    }
                }
                (gimli::DW_AT_call_file, Value::Number(file)) => {
                    site.call_file = path(file, self.work).unwrap_or_default()
                }
                (gimli::DW_AT_call_line, Value::Number(line)) => site.call_line = u32::try_from(line).unwrap_or(0),
                (gimli::DW_AT_call_column, Value::Number(column)) => {
                    site.call_column = u32::try_from(column).unwrap_or(0);
                }
                (name, value) => take_range(&mut attributes, name, value),
            }
        }
        let number = u32::try_from(self.entries.sites.len()).map_err(|_| Damaged)?;
        self.entries.sites.push(site);
        let first_range = self.entries.ranges.len();
        let cut = self.entries.cut.len();
        self.push_ranges(attributes, "inlined call outside of the code")?;
        self.entries.cut.truncate(cut);
        for (start, end) in self.entries.ranges.drain(first_range..) {
            self.entries.inline_ranges.push(InlineRange { function: top.function, start, end, site: number });
        }
        Ok(Some(Frame { scope: FrameScope::Same, site: number, inlined: top.inlined + 1, ..*top }))
    }

    /// A damaged list of ranges costs the entry its ranges, not the unit its other entries.
    fn push_ranges(&mut self, attributes: RangeAttributes<'_>, reason: &'static str) -> Result<()> {
        if attributes.is_empty() {
            return Ok(());
        }
        let entries = &mut *self.entries;
        let mut out = CodeRanges { ranges: std::mem::take(&mut entries.ranges), cut: std::mem::take(&mut entries.cut) };
        let pushed = push_ranges(self.unit, attributes, self.text, &mut self.work.budget, &mut out);
        (entries.ranges, entries.cut) = (out.ranges, out.cut);
        match pushed {
            Ok(false) => {}
            Ok(true) => self.work.skip(reason),
            Err(Damaged) if self.work.budget.is_exhausted() => return Err(Damaged),
            Err(Damaged) => self.work.skip("damaged range list"),
        }
        Ok(())
    }

    /// Remembers in which scope an entry stands that other entries may refer to.
    fn place(&mut self, top: &mut Frame, offset: u64) {
        let scope = self.scope(top);
        self.scopes.place(offset - self.unit.header.offset, scope);
    }

    /// The scope of the frame, named now if it was not needed before.
    fn scope(&mut self, top: &mut Frame) -> ScopeId {
        if let FrameScope::Known(scope) = top.scope {
            return scope;
        }
        let known = self.stack.iter().rposition(|frame| matches!(frame.scope, FrameScope::Known(_)));
        let mut scope = ROOT;
        for at in known.unwrap_or(0)..self.stack.len() {
            let Some(frame) = self.stack.get(at).copied() else { break };
            scope = self.named(scope, frame.scope);
            if let Some(frame) = self.stack.get_mut(at) {
                frame.scope = FrameScope::Known(scope);
            }
        }
        scope = self.named(scope, top.scope);
        top.scope = FrameScope::Known(scope);
        scope
    }

    fn named(&mut self, parent: ScopeId, scope: FrameScope) -> ScopeId {
        match scope {
            FrameScope::Known(scope) => scope,
            FrameScope::Same => parent,
            FrameScope::Pending(entry) => self.open_scope(parent, entry).unwrap_or(parent),
        }
    }

    fn open_scope(&mut self, parent: ScopeId, entry: u64) -> Result<ScopeId> {
        let said = said_of_scope(self.unit, entry, &mut self.work.budget)?;
        Ok(self.scopes.add(parent, said.name, said.declaration.unwrap_or(0)))
    }
}

fn take_range<'d>(attributes: &mut RangeAttributes<'d>, name: gimli::DwAt, value: Value<'d>) {
    match name {
        gimli::DW_AT_low_pc => attributes.low_pc = Some(value),
        gimli::DW_AT_high_pc => attributes.high_pc = Some(value),
        gimli::DW_AT_ranges => attributes.ranges = Some(value),
        _ => {}
    }
}
