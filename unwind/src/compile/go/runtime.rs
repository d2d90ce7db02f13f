//! What the engine has to know of the runtime in a Go program: where the functions are that change stacks, by their names in the table of functions,
//! and where the fields of `g` and `m` are, by the debug information. (Go, `runtime/asm_amd64.s`, `runtime/runtime2.go`)

use alloc::vec::Vec;
use core::ops::Range;

use gimli::{AttributeValue, UnitHeader};
use symseal_module::Svma;

use super::super::Input;
use super::super::debug_info::{Information, Reader};
use super::place;
use super::table::LONGEST_NAME;
use crate::goroutine::{GoRuntime, GoroutineFields};

/// Runs a function of the runtime on the stack of the thread; `mcall` and `morestack` leave the goroutine altogether.
const SWITCHES: [&[u8]; 3] = [b"runtime.systemstack", b"runtime.mcall", b"runtime.morestack"];
/// Runs C code there, or where it is if that is no goroutine's stack.
const CALLS_C: &[u8] = b"runtime.asmcgocall";

/// Whether a function changes to the stack of the thread in a way that the engine follows by the goroutine, where it knows of that, and by `.debug_frame`, where the
/// function was there already.
pub(super) fn changes_to_thread(name: &[u8]) -> bool {
    SWITCHES.contains(&name) || name == CALLS_C
}

/// The runtime of the Go program that `input` describes: its table of functions and its code count. `section` gives the decompressed bytes of
/// each of [`DEBUG_INFO_SECTIONS`](super::super::DEBUG_INFO_SECTIONS), empty where there is none. `None` if the table or the debug information is missing, damaged or of a form
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
        members(&mut information, &unit, |structure, field, at| {
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

/// Calls `note` with each structure of a unit that is not within another one, each of its fields, and where that is.
fn members<'a>(
    information: &mut Information<'a>,
    unit: &UnitHeader<Reader<'a>>,
    mut note: impl FnMut(&'a [u8], &'a [u8], u32),
) {
    let mut structure = None;
    information.entries(unit, |entry, of| {
        let short = |entry| of.name(entry, LONGEST_NAME);
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
