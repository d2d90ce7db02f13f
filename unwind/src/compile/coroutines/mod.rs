//! What the engine has to know of the coroutines of a C++ program: their functions by the names that compilers give to the symbols, and by the debug information where
//! a promise has handles, and where a function that resumes keeps the frame of its coroutine. (GCC, `gcc/cp/coroutines.cc`; LLVM, `CoroSplit.cpp`,
//! Clang, `CGCoroutine.cpp`)

mod location;
mod unit;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use memchr::memmem;
use symseal_module::Svma;

use super::Input;
use super::debug_info::Information;
use crate::arch::Machine;
use crate::continuation::marks_frame_pointers;
use crate::coroutines::{DESTROYS, HEAD_WORDS, MOST_HANDLES, PART, RESUMES, ROLE_BITS};
use location::Lists;
use unit::Unit;

/// The section of those with the names that coroutines have if there are any.
pub const COROUTINE_NAMES: &str = ".debug_str";
/// The sections that are read besides [`DEBUG_INFO_SECTIONS`](super::DEBUG_INFO_SECTIONS): where variables are.
pub const LOCATION_SECTIONS: [&str; 2] = [".debug_loc", ".debug_loclists"];

/// What GCC calls the promise within the frame of a coroutine, and Clang the variable.
const PROMISES: [&[u8]; 2] = [b"_Coro_promise", b"__promise"];
/// What symbols of the functions of a coroutine end with: GCC has the first two, LLVM the last three.
const ROLES: [(&[u8], u32); 4] =
    [(b".actor", RESUMES), (b".destroy", DESTROYS), (b".resume", RESUMES), (b".cleanup", DESTROYS)];
/// Behind that, of what was split off a function.
const PARTS: [&[u8]; 2] = [b".cold", b".part."];
/// More functions than a program has for its coroutines.
const MOST_FUNCTIONS: usize = 1 << 20;

/// Whether these bytes of [`COROUTINE_NAMES`] have such a name: the debug information of other programs need not be read.
pub fn names_coroutines(strings: &[u8]) -> bool {
    let ends = |at: usize, name: &[u8]| strings.get(at + name.len()) == Some(&0);
    let has = |name: &&[u8]| memmem::find_iter(strings, name).any(|at| ends(at, name));
    PROMISES.iter().any(has) && memmem::find(strings, unit::HANDLE).is_some()
}

/// The section of a table for the program that `input` describes: its base and its code count. `symbols` are names of functions, with where they begin and how many
/// bytes they have; `section` gives the decompressed bytes of each of [`DEBUG_INFO_SECTIONS`](super::DEBUG_INFO_SECTIONS) and of [`LOCATION_SECTIONS`], empty
/// where there is none. `None` if no promise of a coroutine has a handle, the processor is not one of 64 bits that the engine follows coroutines on, or nothing tells.
pub fn coroutines<'a, 's>(
    input: &Input<'_>,
    symbols: impl IntoIterator<Item = (&'s [u8], Svma, u64)>,
    section: impl Fn(&str) -> &'a [u8],
) -> Option<Vec<u8>> {
    let machine = input.arch.machine();
    if !marks_frame_pointers(machine) || !names_coroutines(section(COROUTINE_NAMES)) {
        return None;
    }
    let mut found = Found::of(input, symbols);
    if found.functions.is_empty() {
        return None;
    }
    let mut lists = Lists::of(&section);
    let mut information = Information::of(&section);
    found.members = information.bytes;
    let mut units = information.units();
    while let Ok(Some(header)) = units.next() {
        if let Some(unit) = Unit::read(&mut information, &header) {
            unit.tell(&mut found, &mut lists, machine);
        }
    }
    found.write(input.image_base, machine)
}

/// A function of a coroutine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Function {
    start: u64,
    end: u64,
    coroutine: u32,
    role: u32,
}

/// Where a frame of a coroutine has what, from its beginning.
#[derive(Debug, Clone, Default)]
struct Layout {
    /// GCC's number of the suspension.
    index: u32,
    handles: Vec<u32>,
}

/// Code in which a program gives the address of the frame.
struct Located {
    range: Range<u64>,
    program: Vec<u8>,
}

/// What was found so far.
struct Found {
    /// By rising address.
    functions: Vec<Function>,
    layouts: BTreeMap<u32, Layout>,
    located: Vec<Located>,
    /// Members of promises that may still be looked at.
    members: usize,
}

/// Of which coroutine a symbol is, and its role.
fn role_of(name: &[u8]) -> Option<(&[u8], u32)> {
    let places = ROLES.into_iter().filter_map(|(suffix, role)| {
        let at = memmem::rfind(name, suffix)?;
        let (of, behind) = (name.get(..at)?, name.get(at + suffix.len()..)?);
        behind.first().is_none_or(|byte| *byte == b'.').then_some((of, behind, role))
    });
    let (of, behind, role) = places.max_by_key(|(of, ..)| of.len())?;
    let is_part = role == RESUMES && PARTS.iter().any(|part| memmem::find(behind, part).is_some());
    Some((of, if is_part { PART } else { role }))
}

impl Found {
    fn of<'s>(input: &Input<'_>, symbols: impl IntoIterator<Item = (&'s [u8], Svma, u64)>) -> Self {
        let mut named = Vec::new();
        for (name, Svma(start), size) in symbols {
            let Some((of, role)) = role_of(name) else { continue };
            let end = start.saturating_add(size);
            let is_code = |text: &Range<u64>| text.contains(&start) && start < end && end <= text.end;
            if named.len() < MOST_FUNCTIONS && input.text.iter().any(is_code) {
                named.push((start, end, of, role));
            }
        }
        named.sort_unstable();
        // What the linker folded stays one, and nothing overlaps.
        let mut last = 0;
        named.retain(|(start, end, ..)| {
            let is_behind = *start >= last;
            if is_behind {
                last = *end;
            }
            is_behind
        });
        let mut numbers = BTreeMap::new();
        let functions = named.into_iter().map(|(start, end, of, role)| {
            let next = numbers.len() as u32;
            Function { start, end, coroutine: *numbers.entry(of).or_insert(next), role }
        });
        Self { functions: functions.collect(), layouts: BTreeMap::new(), located: Vec::new(), members: 0 }
    }

    /// The function of a coroutine that holds `address`.
    fn function(&self, address: u64) -> Option<Function> {
        let next = self.functions.partition_point(|function| function.start <= address);
        let function = self.functions.get(next.checked_sub(1)?)?;
        (address < function.end).then_some(*function)
    }

    /// Notes that from `start` on to `end`, but not beyond the function there, a program gives the frame's address.
    fn locate(&mut self, range: Range<u64>, program: Vec<u8>) {
        if let Some(function) = self.function(range.start).filter(|function| function.role != DESTROYS) {
            let range = range.start..range.end.min(function.end);
            if range.start < range.end {
                self.located.push(Located { range, program });
            }
        }
    }

    fn write(mut self, base: Svma, machine: &Machine) -> Option<Vec<u8>> {
        let has_handles = self.layouts.values().any(|layout| !layout.handles.is_empty());
        let place = |range: Range<u64>| {
            let start = range.start.checked_sub(base.0)?;
            Some((u32::try_from(start).ok()?, u32::try_from(range.end - range.start).ok()?))
        };
        let mut functions = Vec::new();
        for Function { start, end, coroutine, role } in &self.functions {
            let (start, size) = place(*start..*end)?;
            functions.extend([start, size, coroutine << ROLE_BITS | role]);
        }
        let count = self.functions.iter().map(|function| function.coroutine + 1).max()?;
        let mut coroutines = Vec::new();
        for number in 0..count {
            let Layout { index, mut handles } = self.layouts.remove(&number).unwrap_or_default();
            handles.sort_unstable();
            handles.dedup();
            // Of so many none is known to be the one.
            if handles.len() > MOST_HANDLES {
                handles.clear();
            }
            handles.resize(MOST_HANDLES, 0);
            coroutines.push(index);
            coroutines.extend(handles);
        }
        let (mut programs, mut known) = (Vec::new(), BTreeMap::new());
        let (mut locations, mut last) = (Vec::new(), 0);
        self.located.sort_by_key(|located| (located.range.start, located.range.end));
        for Located { range, program } in self.located {
            // What several variables tell, one tells.
            let range = range.start.max(last)..range.end;
            if range.start >= range.end || !crate::cx::is_valid(&program, machine) {
                continue;
            }
            last = range.end;
            let (start, size) = place(range)?;
            let at = *known.entry(program).or_insert_with_key(|program| {
                let at = programs.len();
                programs.extend_from_slice(program);
                at
            });
            locations.extend([start, size, u32::try_from(at).ok()?]);
        }
        let head: [u32; HEAD_WORDS] = [count, (functions.len() / 3) as u32, (locations.len() / 3) as u32, 0];
        let words = head.iter().chain(&coroutines).chain(&functions).chain(&locations);
        let mut bytes: Vec<u8> = words.flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend(programs);
        has_handles.then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_tell_which_function_of_which_coroutine() {
        let check = |name: &str, expected: Option<(&str, u32)>| {
            let expected = expected.map(|(of, role)| (of.as_bytes(), role));
            assert_eq!(role_of(name.as_bytes()), expected, "{name}");
        };
        check("_Z4leafPZ4leafiE14_Z4leafi.Frame.actor", Some(("_Z4leafPZ4leafiE14_Z4leafi.Frame", RESUMES)));
        check("_Z4leafPZ4leafiE14_Z4leafi.Frame.actor.cold", Some(("_Z4leafPZ4leafiE14_Z4leafi.Frame", PART)));
        check("_Z4leafi.resume", Some(("_Z4leafi", RESUMES)));
        check("_Z4leafi.resume.llvm.123", Some(("_Z4leafi", RESUMES)));
        check("_Z4leafi.cleanup", Some(("_Z4leafi", DESTROYS)));
        check("_Z4leafi.destroy.part.0", Some(("_Z4leafi", DESTROYS)));
        check("_Z4leafi.actors", None);
        check("_Z4leafi", None);
    }
}
