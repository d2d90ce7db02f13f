//! Answers that were given before.

use std::sync::Arc;

use symseal_module::{DebugId, Rva};

use crate::Answer;
use crate::slots::{Slots, mixed};

/// Answers by module and address. The outcome of a resolution never depends on what is in it.
#[derive(Debug)]
pub(crate) struct Answers(Slots<Key, Arc<Answer>>);

/// What an answer depends on, apart from the sources.
#[derive(Debug, PartialEq, Eq)]
struct Key {
    id: Option<DebugId>,
    /// Where it matters: files are read by it, and servers are asked by its name.
    path: Option<String>,
    /// Whether it is a module of a process, whose file may be read.
    is_mapped: bool,
    lookup: Rva,
}

/// A module and an address in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Question<'q> {
    pub(crate) id: Option<&'q DebugId>,
    pub(crate) path: Option<&'q str>,
    pub(crate) is_mapped: bool,
    pub(crate) lookup: Rva,
}

impl Answers {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self(Slots::with_capacity(capacity))
    }

    pub(crate) fn find(&self, question: Question<'_>) -> Option<Arc<Answer>> {
        let Question { id, path, is_mapped, lookup } = question;
        self.0.find(question.hash(), |key| {
            key.lookup == lookup && key.is_mapped == is_mapped && key.id.as_ref() == id && key.path.as_deref() == path
        })
    }

    pub(crate) fn keep(&self, question: Question<'_>, answer: Arc<Answer>) {
        let Question { id, path, is_mapped, lookup } = question;
        let key = Key { id: id.cloned(), path: path.map(str::to_owned), is_mapped, lookup };
        self.0.put(question.hash(), key, answer);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

impl Question<'_> {
    /// Of the address, and as much of the module as tells most of them apart.
    fn hash(self) -> u64 {
        let id = match self.id {
            Some(DebugId::BuildId(id)) => beginning(id.as_bytes()),
            Some(DebugId::Pdb { guid, age }) => beginning(guid) ^ u64::from(*age),
            Some(DebugId::MachoUuid(uuid)) => beginning(uuid),
            None => 0,
        };
        let path = self.path.unwrap_or_default().as_bytes();
        // Paths differ towards their end.
        let path = beginning(path.get(path.len().saturating_sub(8)..).unwrap_or_default());
        mixed(id ^ path.rotate_left(32) ^ mixed(self.lookup.0))
    }
}

/// Up to eight bytes as a number.
fn beginning(bytes: &[u8]) -> u64 {
    bytes.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
}
