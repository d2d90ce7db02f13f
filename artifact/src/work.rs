//! What every pass writes into.

use crate::budget::Budget;
use crate::cursor::Result;
use crate::fields::LONGEST_NAME;
use crate::{Checksum, escaped};
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use symseal_symx::{StrId, Strings};

/// What stands behind a name that was cut (`docs/names.md`).
const CUT: &str = "…[cut at 131072 bytes]";

/// What was left out, and how often.
pub(crate) type Skipped = BTreeMap<&'static str, u64>;

/// The texts so far, the work that is left, and what was left out.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) strings: Strings,
    pub(crate) budget: Budget,
    pub(crate) skipped: Skipped,
    /// Source files by path.
    pub(crate) sources: HashMap<StrId, Option<Checksum>>,
    /// Names of split DWARF files that were not given.
    pub(crate) missing_split: BTreeSet<String>,
}

impl Work {
    pub(crate) fn new() -> Self {
        Self {
            strings: Strings::new(),
            budget: Budget::for_bytes(0),
            skipped: Skipped::new(),
            sources: HashMap::new(),
            missing_split: BTreeSet::new(),
        }
    }

    /// The number of a text that was read from a file. Its bytes are charged, as a small file can name the ends of one
    /// long text a million times; when the budget is gone, texts are empty.
    pub(crate) fn text(&mut self, bytes: &[u8]) -> StrId {
        match self.budget.charge(bytes.len() as u64) {
            Ok(()) => self.strings.intern(&escaped(bytes)),
            Err(_) => StrId::EMPTY,
        }
    }

    /// The number of a symbol's name. One of more than [`LONGEST_NAME`] bytes is cut, which its end says, and counted.
    pub(crate) fn symbol(&mut self, name: &[u8]) -> StrId {
        let Some((start, rest)) = name.split_at_checked(LONGEST_NAME).filter(|(_, rest)| !rest.is_empty()) else {
            return self.text(name);
        };
        self.skip("end of a symbol's name, behind its first 131072 bytes");
        // Not within a character, which would not be text then.
        let is_inner = |byte: &u8| byte & 0xc0 == 0x80;
        let split = start.iter().rev().take(3).take_while(|byte| is_inner(byte)).count();
        let end = if rest.first().is_some_and(is_inner) { LONGEST_NAME - split - 1 } else { LONGEST_NAME };
        self.text(&[start.get(..end).unwrap_or(start), CUT.as_bytes()].concat())
    }

    /// Notes a source file. Of several checksums the first stays.
    pub(crate) fn source(&mut self, path: StrId, checksum: Option<Checksum>) {
        let known = self.sources.entry(path).or_default();
        if known.is_none() {
            *known = checksum;
        }
    }

    /// Takes over a part's work; its texts by their numbers there. Fails when the work of all parts before and of this
    /// one is more than is allowed, as it would if they had been done one after the other.
    pub(crate) fn absorb(&mut self, part: Self, before: &Budget) -> Result<Vec<StrId>> {
        self.budget.charge(part.budget.taken_since(before))?;
        for (reason, count) in part.skipped {
            *self.skipped.entry(reason).or_default() += count;
        }
        self.missing_split.extend(part.missing_split);
        let count = u32::try_from(part.strings.len()).unwrap_or(u32::MAX);
        let texts: Vec<StrId> = (0..count).map(|text| self.strings.intern(part.strings.get(StrId(text)))).collect();
        for (path, checksum) in part.sources {
            self.source(texts.get(path.0 as usize).copied().unwrap_or_default(), checksum);
        }
        Ok(texts)
    }

    /// Counts something that is left out.
    pub(crate) fn skip(&mut self, reason: &'static str) {
        note(&mut self.skipped, reason);
    }
}

pub(crate) fn note(skipped: &mut Skipped, reason: &'static str) {
    *skipped.entry(reason).or_default() += 1;
}
