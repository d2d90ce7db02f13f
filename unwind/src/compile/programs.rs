//! The programs of a table, each once.

use alloc::vec::Vec;

use hashbrown::HashMap;

use crate::rule::Rule;

#[derive(Default)]
pub(super) struct Programs {
    bytes: Vec<u8>,
    known: HashMap<Vec<u8>, i64>,
}

impl Programs {
    /// Where `program` begins in the section; `None` if that cannot be expressed in a rule.
    pub(super) fn intern(&mut self, program: Vec<u8>) -> Option<i64> {
        if let Some(at) = self.known.get(&program) {
            return Some(*at);
        }
        let at = i64::try_from(self.bytes.len()).ok().filter(|at| Rule::offset_fits(*at))?;
        self.bytes.extend(&program);
        self.known.insert(program, at);
        Some(at)
    }

    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
