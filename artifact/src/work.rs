//! What every pass writes into.

use crate::budget::Budget;
use crate::cursor::Result;
use crate::{Checksum, escaped};
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use symseal_symx::{StrId, Strings};

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
