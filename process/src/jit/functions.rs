//! Functions by address, in which a later one takes the place of what it lies over.

use std::collections::BTreeMap;
use std::sync::Arc;

use symseal_module::Avma;

use super::MAX_FUNCTIONS;

/// One function that a runtime made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitFunction {
    /// Its first address.
    pub start: Avma,
    /// Its bytes.
    pub size: u64,
    /// Its name as the runtime wrote it (`symseal_module::escape`).
    pub name: String,
    /// Source lines by rising address, as the runtime wrote them; [`JitHit::line`] reads them.
    pub lines: Vec<JitLine>,
    /// Call frame information of the function alone, in the form of `.eh_frame` and laid out as if it lay at the first multiple of eight bytes
    /// behind the function, which is where `perf inject` puts it; where the runtime wrote it.
    pub eh_frame: Option<Arc<[u8]>>,
    /// When the runtime wrote it, in ns of the clock that it chose; a perf map has no times.
    pub written_at: Option<u64>,
}

/// From where on a line holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitLine {
    /// The first address of the line, as the runtime states it.
    pub address: Avma,
    /// The line, from 1; 0 where the code has none.
    pub line: u32,
    /// The source file.
    pub file: Arc<str>,
}

/// A function that holds an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitHit<'f> {
    /// The function.
    pub function: &'f JitFunction,
    /// Whether another function was written over a part of it later: then its memory was probably given back, and the
    /// name is a guess.
    pub overlapped: bool,
    /// How much too high the runtime states the addresses of its lines.
    pub(crate) line_shift: u64,
}

impl<'f> JitHit<'f> {
    /// The function's source lines by rising address, each with the bytes from the first address from which on it holds.
    pub fn lines(&self) -> impl Iterator<Item = (u64, &'f JitLine)> + use<'f> {
        let first = self.function.start.0.saturating_add(self.line_shift);
        self.function.lines.iter().map(move |line| (line.address.0.saturating_sub(first), line))
    }

    /// The source line of `address`; `None` where the runtime wrote none, and for code without a line.
    pub fn line(&self, address: Avma) -> Option<&'f JitLine> {
        let stated = address.checked_add(self.line_shift)?;
        let after = self.function.lines.partition_point(|line| line.address <= stated);
        self.function.lines.get(after.checked_sub(1)?).filter(|line| line.line != 0)
    }
}

/// Part of a function that nothing was written over.
#[derive(Debug, Clone, Copy)]
struct Piece {
    end: u64,
    function: usize,
    cut: bool,
}

/// Functions, of which the last one that was added holds what others lie over. A clone shares them.
#[derive(Debug, Default, Clone)]
pub struct JitFunctions {
    functions: Vec<Arc<JitFunction>>,
    /// By first address; no two overlap.
    pieces: BTreeMap<u64, Piece>,
    left_out: u64,
    /// How much too high the runtime states the addresses of lines.
    line_shift: u64,
}

impl JitFunctions {
    /// Adds a function over what is there. One without bytes, or beyond the address space, is not added and gives false.
    pub fn add(&mut self, function: JitFunction) -> bool {
        let start = function.start.0;
        let Some(end) = start.checked_add(function.size).filter(|end| *end > start) else { return false };
        // At least an eighth must go, or every further function would cost a look at all of them.
        if self.functions.len() >= MAX_FUNCTIONS && self.pieces.len() <= MAX_FUNCTIONS - MAX_FUNCTIONS / 8 {
            self.forget_overwritten();
        }
        // Where there is no room for it, what was there before is gone all the same.
        self.clear(start, end);
        if self.functions.len() >= MAX_FUNCTIONS {
            self.left_out = self.left_out.saturating_add(1);
            return true;
        }
        self.pieces.insert(start, Piece { end, function: self.functions.len(), cut: false });
        self.functions.push(Arc::new(function));
        true
    }

    /// The function that holds `address`.
    pub fn find(&self, address: Avma) -> Option<JitHit<'_>> {
        let (_, piece) = self.pieces.range(..=address.0).next_back().filter(|(_, piece)| address.0 < piece.end)?;
        let function = self.functions.get(piece.function)?;
        Some(JitHit { function, overlapped: piece.cut, line_shift: self.line_shift })
    }

    /// The function that begins at `start` and was written last.
    pub(super) fn starting_at(&self, start: Avma) -> Option<&JitFunction> {
        let piece = self.pieces.get(&start.0)?;
        self.functions.get(piece.function).map(Arc::as_ref).filter(|function| function.start == start)
    }

    /// Gives that function its lines.
    pub(super) fn set_lines(&mut self, start: Avma, lines: Vec<JitLine>) {
        let number = self.pieces.get(&start.0).map(|piece| piece.function);
        if let Some(function) = number.and_then(|number| self.functions.get_mut(number)).filter(|it| it.start == start)
        {
            Arc::make_mut(function).lines = lines;
        }
    }

    /// Takes the function that begins at `start` out.
    pub(super) fn take(&mut self, start: Avma) -> Option<JitFunction> {
        let function = self.starting_at(start)?.clone();
        let end = start.0.checked_add(function.size)?;
        let number = self.pieces.get(&start.0)?.function;
        // What others wrote over it since is theirs.
        let own = self.pieces.range(start.0..end).filter(|(_, piece)| piece.function == number);
        let own: Vec<u64> = own.map(|(at, _)| *at).collect();
        for at in own {
            self.pieces.remove(&at);
        }
        Some(function)
    }

    /// Functions that some address leads to.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Sets how much too high, in bytes, the runtime states the addresses of lines.
    pub(super) fn set_line_shift(&mut self, bytes: u64) {
        self.line_shift = bytes;
    }

    /// Functions that were left out because there were too many.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Makes room for `start..end`.
    fn clear(&mut self, start: u64, end: u64) {
        self.split(start);
        self.split(end);
        while let Some(at) = self.pieces.range(start..end).next().map(|(at, _)| *at) {
            self.pieces.remove(&at);
        }
    }

    /// Cuts the piece that `at` lies in.
    fn split(&mut self, at: u64) {
        let Some((_, piece)) = self.pieces.range_mut(..at).next_back().filter(|(_, piece)| at < piece.end) else {
            return;
        };
        piece.cut = true;
        let upper = *piece;
        piece.end = at;
        self.pieces.insert(at, upper);
    }

    /// Drops functions that no address leads to any more.
    fn forget_overwritten(&mut self) {
        let mut numbers = vec![None; self.functions.len()];
        let mut kept = Vec::new();
        for piece in self.pieces.values_mut() {
            let Some(number) = numbers.get_mut(piece.function) else { continue };
            let new = *number.get_or_insert_with(|| {
                kept.extend(self.functions.get(piece.function).cloned());
                kept.len().saturating_sub(1)
            });
            piece.function = new;
        }
        self.functions = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn function(start: u64, size: u64, name: &str) -> JitFunction {
        JitFunction { start: Avma(start), size, name: name.into(), lines: Vec::new(), eh_frame: None, written_at: None }
    }

    fn all(entries: &[(u64, u64, &str)]) -> JitFunctions {
        let mut functions = JitFunctions::default();
        for (start, size, name) in entries {
            assert!(functions.add(function(*start, *size, name)));
        }
        functions
    }

    #[track_caller]
    fn check(functions: &JitFunctions, address: u64, expected: Option<(&str, bool)>) {
        let found = functions.find(Avma(address)).map(|hit| (hit.function.name.as_str(), hit.overlapped));
        assert_eq!(found, expected, "{address:#x}");
    }

    #[test]
    fn of_functions_over_each_other_the_last_holds_and_rests_are_guesses() {
        let functions = all(&[(0x100, 0x100, "old"), (0x180, 0x100, "new"), (0x1a0, 0x10, "inner")]);
        check(&functions, 0xff, None);
        check(&functions, 0x100, Some(("old", true)));
        check(&functions, 0x180, Some(("new", true)));
        check(&functions, 0x1a5, Some(("inner", false)));
        check(&functions, 0x1b0, Some(("new", true)));
        check(&functions, 0x27f, Some(("new", true)));
        check(&functions, 0x280, None);
    }

    /// A look at all of them for each further one would take hours.
    #[test]
    fn too_many_functions_cost_no_more_than_many() {
        let mut functions = JitFunctions::default();
        let more = 50_000;
        for at in 0..(MAX_FUNCTIONS + more) as u64 {
            assert!(functions.add(function(at * 16, 16, "f")));
        }
        assert_eq!((functions.len(), functions.left_out()), (MAX_FUNCTIONS, more as u64));
        // Where some were overwritten, there is room again.
        assert!(functions.add(function(0, (MAX_FUNCTIONS / 2 * 16) as u64, "large")));
        assert!(functions.add(function(u64::MAX / 2, 16, "new")));
        check(&functions, u64::MAX / 2, Some(("new", false)));
    }

    #[test]
    fn neighbours_do_not_cut_each_other() {
        let functions = all(&[(0x100, 0x100, "a"), (0x200, 0x100, "b"), (0x80, 0x80, "c")]);
        for (address, name) in [(0xff, "c"), (0x100, "a"), (0x1ff, "a"), (0x200, "b")] {
            check(&functions, address, Some((name, false)));
        }
    }

    #[test]
    fn what_has_no_bytes_or_no_end_is_refused() {
        let mut functions = JitFunctions::default();
        assert!(!functions.add(function(0x100, 0, "empty")));
        assert!(!functions.add(function(u64::MAX, 2, "beyond")));
        assert_eq!(functions.len(), 0);
    }

    #[test]
    fn what_is_taken_out_leaves_what_was_written_over_it() {
        let mut functions = all(&[(0x100, 0x100, "moved"), (0x140, 0x10, "other")]);
        assert_eq!(functions.take(Avma(0x100)).unwrap().name, "moved");
        check(&functions, 0x100, None);
        check(&functions, 0x1f0, None);
        check(&functions, 0x145, Some(("other", false)));
        assert_eq!(functions.take(Avma(0x141)), None);
    }

    proptest! {
        #[test]
        fn each_address_belongs_to_the_last_function_written_there(
            entries in prop::collection::vec((0..200u64, 1..60u64), 0..40), compact in any::<bool>()
        ) {
            let mut functions = JitFunctions::default();
            let mut expected = [None; 300];
            for (number, (start, size)) in entries.iter().enumerate() {
                functions.add(function(*start, *size, &number.to_string()));
                expected[*start as usize..(start + size) as usize].fill(Some(number));
                if compact {
                    functions.forget_overwritten();
                }
            }
            for (address, expected) in expected.iter().enumerate() {
                let found = functions.find(Avma(address as u64)).map(|hit| hit.function.name.parse::<usize>().unwrap());
                prop_assert_eq!(found, *expected);
            }
        }
    }
}
