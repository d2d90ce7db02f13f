//! What a library exports: a trie of names. (`mach-o/loader.h`, "dyld_info_command"; dyld's `Trie.hpp`)
//!
//! A node is the size of what it exports, that, the number of its children, and for each of them the text that its edge
//! adds to the name and its offset from the start of the trie.

use super::loader::{EXPORT_SYMBOL_FLAGS_KIND_MASK, EXPORT_SYMBOL_FLAGS_KIND_REGULAR, EXPORT_SYMBOL_FLAGS_REEXPORT};
use crate::budget::Budget;
use crate::cursor::{Cursor, Damaged, Result};
use std::collections::HashSet;

/// A name and where it lies, counted from the image base.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Export {
    pub(crate) name: Vec<u8>,
    pub(crate) rva: u64,
}

/// A node whose children are being read.
struct Open<'d> {
    rest: Cursor<'d>,
    children: u8,
    /// Bytes of the name up to it.
    name: usize,
}

/// Exports of the library itself, in the trie's order; what is passed on from other libraries and what is no address is
/// left out. A damaged trie gives those before the damage.
///
/// Each node is read once, and the bytes of names are bounded by the trie's size, so that nodes which share their bytes,
/// or lead back, end early.
pub(crate) fn read(trie: &[u8]) -> Vec<Export> {
    let mut walk = Walk {
        trie,
        budget: Budget::for_bytes(trie.len() as u64),
        seen: HashSet::new(),
        name: Vec::new(),
        exports: Vec::new(),
    };
    // What was found stays.
    let _ = walk.run();
    walk.exports
}

struct Walk<'d> {
    trie: &'d [u8],
    budget: Budget,
    seen: HashSet<u64>,
    name: Vec<u8>,
    exports: Vec<Export>,
}

impl<'d> Walk<'d> {
    fn run(&mut self) -> Result<()> {
        if self.trie.is_empty() {
            return Ok(());
        }
        let mut stack = vec![self.open(0)?];
        while let Some(node) = stack.last_mut() {
            self.name.truncate(node.name);
            let Some(left) = node.children.checked_sub(1) else {
                stack.pop();
                continue;
            };
            node.children = left;
            let edge = node.rest.text()?;
            let offset = node.rest.uleb()?;
            self.budget.charge(edge.len() as u64 + 1)?;
            self.name.extend_from_slice(edge);
            let child = self.open(offset)?;
            stack.push(child);
        }
        Ok(())
    }

    /// Reads what a node exports, up to its children.
    fn open(&mut self, offset: u64) -> Result<Open<'d>> {
        if !self.seen.insert(offset) {
            return Err(Damaged);
        }
        let bytes = usize::try_from(offset).ok().and_then(|offset| self.trie.get(offset..)).ok_or(Damaged)?;
        // Numbers of one byte or of variable length: the byte order is none.
        let mut rest = Cursor::new(bytes, true);
        let size = usize::try_from(rest.uleb()?).map_err(|_| Damaged)?;
        let content = rest.bytes(size)?;
        if size > 0 {
            let mut content = Cursor::new(content, true);
            let flags = content.uleb()?;
            let is_address = flags & EXPORT_SYMBOL_FLAGS_KIND_MASK == EXPORT_SYMBOL_FLAGS_KIND_REGULAR
                && flags & EXPORT_SYMBOL_FLAGS_REEXPORT == 0;
            if is_address {
                self.budget.charge(self.name.len() as u64 + 1)?;
                self.exports.push(Export { name: self.name.clone(), rva: content.uleb()? });
            }
        }
        let children = rest.u8()?;
        Ok(Open { rest, children, name: self.name.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(trie: &[u8], expected: &[(&str, u64)]) {
        let found = read(trie);
        let found: Vec<(&str, u64)> =
            found.iter().map(|export| (std::str::from_utf8(&export.name).unwrap_or("?"), export.rva)).collect();
        assert_eq!(found, expected);
    }

    /// `_a` at 0x10, `_ab` at 0x80, and a name from another library.
    #[rustfmt::skip]
    const TRIE: &[u8] = &[
        0, 2, b'_', b'a', 0, 9, b'r', 0, 21,
        2, 0, 0x10, 1, b'b', 0, 16,
        3, 0, 0x80, 0x01, 0,
        3, 8, 1, 0, 0,
    ];

    #[test]
    fn names_are_put_together_on_the_way_down() {
        check(TRIE, &[("_a", 0x10), ("_ab", 0x80)]);
        check(&[], &[]);
        // Cut short, what was found stays.
        check(&TRIE[..19], &[("_a", 0x10)]);
    }

    #[test]
    fn circles_and_shared_nodes_end() {
        // The only child is the root.
        check(&[0, 1, b'x', 0, 0], &[]);
        // Two edges to one node: the second is damage.
        check(&[0, 2, b'x', 0, 8, b'y', 0, 8, 2, 0, 5, 0], &[("x", 5)]);
    }

    #[test]
    fn many_nodes_on_the_same_long_text_stay_within_bounds() {
        // Each node is three bytes into the one before: edge texts overlap, and names would grow with the square.
        let mut trie = Vec::new();
        for at in 0..20_000_u32 {
            let next = (at + 1) * 8;
            trie.extend([
                0,
                1,
                b'a',
                0,
                (next & 0x7f) as u8 | 0x80,
                (next >> 7 & 0x7f) as u8 | 0x80,
                (next >> 14) as u8,
                0,
            ]);
        }
        assert!(read(&trie).is_empty());
    }
}
