//! Inlined calls: where each chain of calls holds.

use hashbrown::HashMap;
use symseal_module::Rva;
use symseal_symx::{InlineSite, NO_INLINE, Row, StrId};

use crate::budget::Budget;

/// Calls inside one another: what is deeper is told as its caller's.
const MAX_DEPTH: usize = 64;

/// A call that was inlined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Call {
    pub(super) name: StrId,
    pub(super) file: StrId,
    pub(super) line: u32,
}

/// A line record.
#[derive(Debug, Clone, Copy)]
pub(super) struct Line {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) line: u32,
    pub(super) file: StrId,
}

/// What a function's records say of its code.
#[derive(Debug, Default)]
pub(super) struct Code {
    pub(super) lines: Vec<Line>,
    /// By depth: first address, address behind the last, call.
    calls: Vec<Vec<(u64, u64, Call)>>,
}

impl Code {
    /// Adds the range of a call; false where it is too deep.
    pub(super) fn add_call(&mut self, depth: u64, range: (u64, u64), call: Call) -> bool {
        let Some(depth) = usize::try_from(depth).ok().filter(|depth| *depth < MAX_DEPTH) else { return false };
        if self.calls.len() <= depth {
            self.calls.resize_with(depth.saturating_add(1), Vec::new);
        }
        if let Some(calls) = self.calls.get_mut(depth) {
            calls.push((range.0, range.1, call));
        }
        true
    }

    /// Rows and calls of a function of this range, as a symbol table takes them.
    pub(super) fn rows(mut self, (start, end): (u64, u64), budget: &mut Budget) -> (Vec<Row>, Vec<InlineSite>) {
        self.lines.sort_by_key(|line| line.start);
        self.calls.iter_mut().for_each(|calls| calls.sort_by_key(|(start, ..)| *start));
        let mut places: Vec<u64> = self.lines.iter().flat_map(|line| [line.start, line.end]).collect();
        places.extend(self.calls.iter().flatten().flat_map(|(start, end, _)| [*start, *end]));
        places.retain(|place| (start..end).contains(place));
        places.push(start);
        places.sort_unstable();
        places.dedup();
        let (mut rows, mut sites) = (Vec::with_capacity(places.len()), Sites::default());
        for place in places {
            let inline = self.chain(place, &mut sites, budget);
            let (line, file) =
                last_holding(&self.lines, place).map_or((0, StrId::EMPTY), |line| (line.line, line.file));
            rows.push(Row { start: Rva(place), file, line, column: 0, inline });
        }
        (rows, sites.sites)
    }

    /// The innermost call at an address.
    fn chain(&self, place: u64, sites: &mut Sites, budget: &mut Budget) -> u32 {
        let mut parent = NO_INLINE;
        for calls in &self.calls {
            let before = calls.partition_point(|(start, ..)| *start <= place);
            let found = before.checked_sub(1).and_then(|at| calls.get(at)).filter(|(_, end, _)| place < *end);
            let Some((.., call)) = found else { break };
            if budget.charge(1).is_err() {
                break;
            }
            parent = sites.site(parent, *call);
        }
        parent
    }
}

/// The last line that begins at or before an address, where it reaches that far.
fn last_holding(lines: &[Line], place: u64) -> Option<&Line> {
    let before = lines.partition_point(|line| line.start <= place);
    before.checked_sub(1).and_then(|at| lines.get(at)).filter(|line| place < line.end)
}

#[derive(Default)]
struct Sites {
    sites: Vec<InlineSite>,
    numbers: HashMap<(u32, Call), u32>,
}

impl Sites {
    fn site(&mut self, parent: u32, call: Call) -> u32 {
        let Self { sites, numbers } = self;
        *numbers.entry((parent, call)).or_insert_with(|| {
            let number = u32::try_from(sites.len()).unwrap_or(NO_INLINE);
            let Call { name, file, line } = call;
            sites.push(InlineSite { parent, name, symbol: name, call_file: file, call_line: line, call_column: 0 });
            number
        })
    }
}
