//! What the engine has to know of the runtime in a Go program: where the functions are that change stacks, by their names in the table of functions,
//! and where the fields of `g` and `m` are, by the debug information. (Go, `runtime/asm_amd64.s`, `runtime/runtime2.go`)

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use gimli::{
    Abbreviations, AttributeValue, DebugAbbrev, DebugAbbrevOffset, DebugInfo, DebugInfoUnitHeadersIter,
    DebuggingInformationEntry, EndianSlice, LittleEndian, UnitHeader,
};
use symseal_module::Svma;

use super::super::Input;
use super::place;
use super::table::LONGEST_NAME;
use crate::goroutine::{GoRuntime, GoroutineFields};

type Reader<'a> = EndianSlice<'a, LittleEndian>;

/// Runs a function of the runtime on the stack of the thread; `mcall` and `morestack` leave the goroutine altogether.
const SWITCHES: [&[u8]; 3] = [b"runtime.systemstack", b"runtime.mcall", b"runtime.morestack"];
/// Runs C code there, or where it is if that is no goroutine's stack.
const CALLS_C: &[u8] = b"runtime.asmcgocall";

/// The sections of debug information that are read.
pub const GO_RUNTIME_SECTIONS: [&str; 4] = [".debug_info", ".debug_abbrev", ".debug_str", ".debug_line_str"];

/// Gives the name of an entry, if it has fewer bytes than that: each costs as much as is looked at.
pub(in super::super) type NameOf<'n, 'a> =
    dyn Fn(&DebuggingInformationEntry<Reader<'a>>, usize) -> Option<&'a [u8]> + 'n;

/// How many entries and attributes are looked at for each byte of debug information: most take more than one.
const MOST_ATTRIBUTES_PER_BYTE: usize = 4;

/// The runtime of the Go program that `input` describes: its table of functions and its code count. `section` gives the decompressed bytes of
/// each of [`GO_RUNTIME_SECTIONS`], empty where there is none. `None` if the table or the debug information is missing, damaged or of a form
/// that this version does not read.
pub fn go_runtime<'a>(input: &Input<'_>, section: impl Fn(&str) -> &'a [u8]) -> Option<GoRuntime<Svma>> {
    let table = place::open(input)?;
    let mut go = fields(section)?;
    for function in table.functions() {
        let name = table.name(&function).unwrap_or_default();
        let of = if SWITCHES.contains(&name) {
            &mut go.switches
        } else if name == CALLS_C {
            &mut go.c_calls
        } else {
            continue;
        };
        of.push(Range { start: Svma(function.start), end: Svma(function.end) });
    }
    (!go.switches.is_empty()).then_some(go)
}

/// A structure and its fields, in bytes from its beginning.
struct Fields<const N: usize> {
    name: &'static str,
    fields: [(&'static str, Option<u32>); N],
}

impl<const N: usize> Fields<N> {
    fn new(name: &'static str, fields: [&'static str; N]) -> Self {
        Self { name, fields: fields.map(|field| (field, None)) }
    }

    fn note(&mut self, structure: &[u8], field: &[u8], at: u32) {
        if structure == self.name.as_bytes() {
            for (name, place) in &mut self.fields {
                if field == name.as_bytes() {
                    place.get_or_insert(at);
                }
            }
        }
    }

    fn known(&self) -> Option<[u32; N]> {
        let mut known = [0; N];
        for (to, (_, at)) in known.iter_mut().zip(&self.fields) {
            *to = (*at)?;
        }
        Some(known)
    }
}

/// Where the fields are, and no functions yet.
fn fields<'a>(section: impl Fn(&str) -> &'a [u8]) -> Option<GoRuntime<Svma>> {
    let mut information = Information::of(section);
    let mut g = Fields::new("runtime.g", ["stack", "m", "sched"]);
    let mut stack = Fields::new("runtime.stack", ["lo", "hi"]);
    let mut sched = Fields::new("runtime.gobuf", ["sp", "pc", "bp"]);
    let mut m = Fields::new("runtime.m", ["curg"]);
    let mut units = information.units();
    while let Ok(Some(unit)) = units.next() {
        information.members(&unit, |structure, field, at| {
            g.note(structure, field, at);
            stack.note(structure, field, at);
            sched.note(structure, field, at);
            m.note(structure, field, at);
        });
        if let (Some([g_stack, g_m, g_sched]), Some([lo, hi]), Some([sp, pc, bp]), Some([curg])) =
            (g.known(), stack.known(), sched.known(), m.known())
        {
            let g = GoroutineFields {
                stack_lo: g_stack.checked_add(lo)?,
                stack_hi: g_stack.checked_add(hi)?,
                m: g_m,
                sched_sp: g_sched.checked_add(sp)?,
                sched_pc: g_sched.checked_add(pc)?,
                sched_bp: g_sched.checked_add(bp)?,
            };
            return Some(GoRuntime { switches: Vec::new(), c_calls: Vec::new(), g, curg });
        }
    }
    None
}

/// Debug information, with what may be read of it: the time grows with its size, whatever it holds.
pub(in super::super) struct Information<'a> {
    units: DebugInfo<Reader<'a>>,
    /// By where they begin in their section.
    abbreviations: BTreeMap<usize, Abbreviations>,
    strings: &'a [u8],
    line_strings: &'a [u8],
    /// Bytes of `.debug_info`.
    pub(in super::super) bytes: usize,
    /// Entries and their attributes that may still be looked at, in all units.
    budget: usize,
}

impl<'a> Information<'a> {
    pub(in super::super) fn of(section: impl Fn(&str) -> &'a [u8]) -> Self {
        let of = |id: gimli::SectionId| section(id.name());
        let (information, abbreviations) = (of(gimli::SectionId::DebugInfo), of(gimli::SectionId::DebugAbbrev));
        let units = DebugInfo::new(information, LittleEndian);
        Self {
            abbreviations: read_abbreviations(&units, abbreviations),
            units,
            strings: of(gimli::SectionId::DebugStr),
            line_strings: of(gimli::SectionId::DebugLineStr),
            bytes: information.len(),
            budget: information.len().saturating_mul(MOST_ATTRIBUTES_PER_BYTE),
        }
    }

    pub(in super::super) fn units(&self) -> DebugInfoUnitHeadersIter<Reader<'a>> {
        self.units.units()
    }

    /// Calls `note` with each structure of a unit that is not within another one, each of its fields, and where that is.
    fn members(&mut self, unit: &UnitHeader<Reader<'a>>, mut note: impl FnMut(&'a [u8], &'a [u8], u32)) {
        let mut structure = None;
        self.entries(unit, |entry, name| {
            let short = |entry| name(entry, LONGEST_NAME);
            match (entry.depth(), entry.tag()) {
                (1, gimli::DW_TAG_structure_type) => structure = short(entry),
                (1, _) => structure = None,
                (2, gimli::DW_TAG_member) => {
                    let at = match entry.attr_value(gimli::DW_AT_data_member_location) {
                        Some(AttributeValue::Udata(at)) => u32::try_from(at).ok(),
                        _ => None,
                    };
                    if let (Some(structure), Some(field), Some(at)) = (structure, short(entry), at) {
                        note(structure, field, at);
                    }
                }
                _ => {}
            }
        });
    }

    /// Calls `note` with each entry of a unit, and with what gives the name of one.
    pub(in super::super) fn entries(
        &mut self,
        unit: &UnitHeader<Reader<'a>>,
        mut note: impl FnMut(&DebuggingInformationEntry<Reader<'a>>, &NameOf<'_, 'a>),
    ) {
        let Self { abbreviations, strings, line_strings, budget, .. } = self;
        let name = |entry: &DebuggingInformationEntry<Reader<'a>>, longest| match entry.attr_value(gimli::DW_AT_name)? {
            AttributeValue::String(name) => Some(name.slice()),
            AttributeValue::DebugStrRef(at) => string(strings, at.0, longest),
            AttributeValue::DebugLineStrRef(at) => string(line_strings, at.0, longest),
            _ => None,
        };
        if *budget == 0 {
            return;
        }
        let Some(abbreviations) = abbreviations.get(&unit.debug_abbrev_offset().0) else { return };
        let mut entries = unit.entries(abbreviations);
        while let Ok(Some(entry)) = entries.next_dfs() {
            // Attributes may take no bytes at all.
            let Some(left) = budget.checked_sub(1 + entry.attrs().len()) else {
                *budget = 0;
                return;
            };
            *budget = left;
            note(entry, &name);
        }
    }
}

/// The tables of abbreviations that units name, each read once, and no further than to where the next one begins.
fn read_abbreviations(units: &DebugInfo<Reader<'_>>, section: &[u8]) -> BTreeMap<usize, Abbreviations> {
    let mut starts = Vec::new();
    let mut units = units.units();
    while let Ok(Some(unit)) = units.next() {
        starts.push(unit.debug_abbrev_offset().0);
    }
    starts.sort_unstable();
    starts.dedup();
    let ends = starts.iter().skip(1).copied().chain([section.len()]);
    let tables = starts.iter().zip(ends).filter_map(|(start, end)| {
        let table = DebugAbbrev::new(section.get(*start..end.min(section.len()))?, LittleEndian);
        Some((*start, table.abbreviations(DebugAbbrevOffset(0)).ok()?))
    });
    tables.collect()
}

/// A string of a section of strings, if it has fewer bytes than `longest`.
fn string(section: &[u8], at: usize, longest: usize) -> Option<&[u8]> {
    let rest = section.get(at..)?;
    let rest = rest.get(..longest).unwrap_or(rest);
    rest.get(..rest.iter().position(|byte| *byte == 0)?)
}
