//! A unit of debug information with coroutines: its types, and the variables that lead to their frames.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use gimli::{AttributeValue, DwTag, UnitHeader};

use super::super::debug_info::{Entry, Information, Reader, UnitContext};
use super::location::{FrameBase, Lists, Place};
use super::{Found, Layout};
use crate::arch::Machine;
use crate::cx::Operation as Op;

/// What the names of the types of handles begin with.
pub(super) const HANDLE: &[u8] = b"coroutine_handle";
/// Of GCC, the parameter of the functions of a coroutine; of Clang, variables of them.
const VARIABLES: [(&[u8], Kind); 3] =
    [(b"frame_ptr", Kind::Pointer), (b"__promise", Kind::Promise), (b"__coro_frame", Kind::Frame)];
/// Members of a frame, by both.
const MEMBERS: [(&[u8], Member); 3] =
    [(b"_Coro_promise", Member::Promise), (b"__promise", Member::Promise), (b"_Coro_resume_index", Member::Index)];
/// Bytes of two functions, which a frame begins with, and what the promise is aligned to behind them at least.
const FUNCTIONS_BYTES: u64 = 16;
/// How deep members are in each other, and names of one type.
const MOST_DEPTH: usize = 8;
/// Instructions at the beginning of a function that put parameters where the function has them, in bytes: a location that holds for all of a function does not hold there yet.
const LONGEST_BEGINNING: u64 = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A pointer to the frame.
    Pointer,
    /// The promise itself.
    Promise,
    /// The frame itself.
    Frame,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Promise,
    Index,
    Other,
}

enum Type {
    Structure {
        is_handle: bool,
        alignment: u64,
    },
    Pointer(usize),
    /// The same by another name, or with a qualifier.
    Same(usize),
}

/// A variable that a function has by itself, not one that was inlined into it.
struct Variable<'a> {
    kind: Option<Kind>,
    of: Option<usize>,
    /// The entry that says what it is.
    origin: Option<usize>,
    location: Option<AttributeValue<Reader<'a>>>,
    function: Option<u64>,
    base: Option<FrameBase>,
}

/// What an entry is within.
#[derive(Clone, Copy)]
enum Around {
    Structure { at: usize, is_union: bool },
    Function { start: Option<u64>, base: Option<FrameBase> },
    Inlined,
}

/// Offsets count from the beginning of the unit.
pub(super) struct Unit<'a> {
    context: Option<UnitContext<'a>>,
    types: BTreeMap<usize, Type>,
    members: BTreeMap<usize, Vec<(Member, u32, usize)>>,
    /// What variables are, for those that refer to them.
    named: BTreeMap<usize, (Kind, usize)>,
    variables: Vec<Variable<'a>>,
}

const fn is_variable(tag: DwTag) -> bool {
    matches!(tag, gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter)
}

const fn is_structure(tag: DwTag) -> bool {
    matches!(tag, gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type)
}

impl<'a> Unit<'a> {
    /// `None` for a unit without coroutines.
    pub(super) fn read(information: &mut Information<'a>, header: &UnitHeader<Reader<'a>>) -> Option<Self> {
        let mut has_coroutines = false;
        information.entries(header, |entry, unit| {
            has_coroutines |= match entry.tag() {
                gimli::DW_TAG_member => unit.named(entry, &MEMBERS) == Some(Member::Promise),
                tag => is_variable(tag) && unit.named(entry, &VARIABLES) == Some(Kind::Promise),
            };
        });
        if !has_coroutines {
            return None;
        }
        let mut read = Self {
            context: None,
            types: BTreeMap::new(),
            members: BTreeMap::new(),
            named: BTreeMap::new(),
            variables: Vec::new(),
        };
        let begins = header.offset().0;
        let mut around: Vec<(isize, Around)> = Vec::new();
        information.entries(header, |entry, unit| {
            let depth = entry.depth();
            while around.last().is_some_and(|(at, _)| *at >= depth) {
                around.pop();
            }
            if read.context.is_none() {
                read.context = Some(unit.clone());
            }
            let within = around.last().map(|(_, around)| *around);
            if let Some(next) = read.note(entry, unit, within, begins) {
                around.push((depth, next));
            }
        });
        Some(read)
    }

    /// Notes an entry; gives what it is to those within it.
    fn note(
        &mut self,
        entry: &Entry<'a>,
        unit: &UnitContext<'a>,
        within: Option<Around>,
        begins: usize,
    ) -> Option<Around> {
        let at = entry.offset().0;
        let refers = |attribute| match entry.attr_value(attribute)? {
            AttributeValue::UnitRef(offset) => Some(offset.0),
            AttributeValue::DebugInfoRef(offset) => offset.0.checked_sub(begins),
            _ => None,
        };
        let number = |attribute| entry.attr_value(attribute).and_then(|value| value.udata_value());
        match entry.tag() {
            tag if is_structure(tag) => {
                let is_handle = unit.name_begins(entry, HANDLE);
                let alignment = number(gimli::DW_AT_alignment).unwrap_or(1);
                self.types.entry(at).or_insert(Type::Structure { is_handle, alignment });
                // What was declared elsewhere is this.
                if let Some(declared) = refers(gimli::DW_AT_specification) {
                    self.types.insert(declared, Type::Same(at));
                }
                return Some(Around::Structure { at, is_union: tag == gimli::DW_TAG_union_type });
            }
            gimli::DW_TAG_pointer_type => {
                if let Some(of) = refers(gimli::DW_AT_type) {
                    self.types.insert(at, Type::Pointer(of));
                }
            }
            gimli::DW_TAG_typedef | gimli::DW_TAG_const_type | gimli::DW_TAG_volatile_type => {
                if let Some(of) = refers(gimli::DW_AT_type) {
                    self.types.insert(at, Type::Same(of));
                }
            }
            gimli::DW_TAG_member | gimli::DW_TAG_inheritance => {
                if let (Some(Around::Structure { at, is_union }), Some(of)) = (within, refers(gimli::DW_AT_type)) {
                    // Without a place it is static, but in a union.
                    let place = number(gimli::DW_AT_data_member_location).or(is_union.then_some(0));
                    if let Some(place) = place.and_then(|place| u32::try_from(place).ok()) {
                        let kind = unit.named(entry, &MEMBERS).unwrap_or(Member::Other);
                        self.members.entry(at).or_default().push((kind, place, of));
                    }
                }
            }
            gimli::DW_TAG_subprogram => {
                let start = entry.attr_value(gimli::DW_AT_low_pc).and_then(|start| unit.address(start));
                let base = FrameBase::of(entry.attr_value(gimli::DW_AT_frame_base), unit);
                return Some(Around::Function { start, base });
            }
            gimli::DW_TAG_inlined_subroutine => return Some(Around::Inlined),
            tag if is_variable(tag) => {
                let Some(Around::Function { start, base }) = within else { return None };
                let (kind, of) = (unit.named(entry, &VARIABLES), refers(gimli::DW_AT_type));
                if let (Some(kind), Some(of)) = (kind, of) {
                    self.named.insert(at, (kind, of));
                }
                let origin = refers(gimli::DW_AT_abstract_origin);
                let location = entry.attr_value(gimli::DW_AT_location);
                if kind.is_some() || (origin.is_some() && (location.is_some() || start.is_some())) {
                    self.variables.push(Variable { kind, of, origin, location, function: start, base });
                }
            }
            _ => {}
        }
        None
    }

    /// Says what is known of coroutines: how their frames are laid out, and where functions have them.
    pub(super) fn tell(&self, found: &mut Found, lists: &mut Lists<'a>, machine: &Machine) {
        let Some(context) = &self.context else { return };
        for variable in &self.variables {
            let named = variable.kind.zip(variable.of).or_else(|| self.named.get(&variable.origin?).copied());
            let Some((kind, of)) = named else { continue };
            let Some((layout, promise)) = self.layout(kind, of, found) else { continue };
            // What leads from the variable to the frame.
            let more = |place: &Place| match (kind, place.is_value) {
                (Kind::Pointer, true) | (Kind::Frame, false) => Some(Vec::new()),
                (Kind::Pointer, false) => Some(Vec::from([Op::Deref])),
                (Kind::Promise, false) => Some(Vec::from([Op::Constant(i64::from(promise)), Op::Subtract])),
                (Kind::Promise | Kind::Frame, true) => None,
            };
            let mut function = variable.function.and_then(|start| found.function(start));
            if let Some(location) = variable.location {
                lists.places(location, variable.base, context, machine, |range, place| {
                    let range = match (range, function) {
                        (Some(range), _) => range,
                        (None, Some(all)) => all.start.saturating_add(LONGEST_BEGINNING)..all.end,
                        (None, None) => return,
                    };
                    function = function.or_else(|| found.function(range.start));
                    let program = place.and_then(|place| {
                        let more = more(&place)?;
                        place.program(&more, machine)
                    });
                    if let Some(program) = program {
                        found.locate(range, program);
                    }
                });
            }
            if let Some(function) = function {
                found.layouts.entry(function.coroutine).or_insert(layout);
            }
        }
    }

    /// How the frame is laid out that a variable of this kind and type leads to, and where its promise is.
    fn layout(&self, kind: Kind, of: usize, found: &mut Found) -> Option<(Layout, u32)> {
        let of = self.resolve(of)?;
        let (index, place, promise) = match (kind, self.types.get(&of)?) {
            (Kind::Promise, Type::Structure { alignment, .. }) => {
                (0, u32::try_from(FUNCTIONS_BYTES.max(*alignment)).ok()?, of)
            }
            (Kind::Frame, Type::Structure { .. }) => self.frame(of, &mut found.members)?,
            (Kind::Pointer, Type::Pointer(frame)) => self.frame(self.resolve(*frame)?, &mut found.members)?,
            _ => return None,
        };
        let mut layout = Layout { index, handles: Vec::new() };
        self.handles(promise, place, MOST_DEPTH, &mut found.members, &mut layout.handles);
        Some((layout, place))
    }

    /// Where the frame of this type has the index of its suspension, and its promise, with the type of that.
    fn frame(&self, of: usize, budget: &mut usize) -> Option<(u32, u32, usize)> {
        let members = self.members.get(&of)?;
        *budget = budget.checked_sub(members.len())?;
        let of_kind = |kind| members.iter().find(|(of, ..)| *of == kind);
        let (_, place, promise) = of_kind(Member::Promise)?;
        Some((of_kind(Member::Index).map_or(0, |(_, place, _)| *place), *place, *promise))
    }

    fn resolve(&self, mut of: usize) -> Option<usize> {
        for _ in 0..MOST_DEPTH {
            match self.types.get(&of)? {
                Type::Same(next) => of = *next,
                _ => return Some(of),
            }
        }
        None
    }

    /// Notes where a value of this type at `place` has handles.
    fn handles(&self, of: usize, place: u32, depth: usize, budget: &mut usize, out: &mut Vec<u32>) {
        let Some(of) = self.resolve(of) else { return };
        if matches!(self.types.get(&of), Some(Type::Structure { is_handle: true, .. })) {
            out.push(place);
            return;
        }
        let Some(depth) = depth.checked_sub(1) else { return };
        for (_, at, of) in self.members.get(&of).into_iter().flatten() {
            let Some(left) = budget.checked_sub(1) else { return };
            *budget = left;
            if let Some(place) = place.checked_add(*at) {
                self.handles(*of, place, depth, budget, out);
            }
        }
    }
}
