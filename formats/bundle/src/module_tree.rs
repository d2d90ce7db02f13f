//! The tree over a symbol index's modules: what proves one module's entry without the whole index. The statement of a seal
//! names its root. Described in `docs/formats/frame_proof.md`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::pages::{self, Hash};

/// The hash of one module's entry: of `platform LF debug-id LF entry`, the entry as canonical JSON.
pub fn leaf(platform: &str, debug_id: &str, entry: &[u8]) -> Hash {
    let mut bytes = Vec::with_capacity(platform.len() + debug_id.len() + entry.len() + 2);
    for field in [platform.as_bytes(), debug_id.as_bytes()] {
        bytes.extend_from_slice(field);
        bytes.push(b'\n');
    }
    bytes.extend_from_slice(entry);
    pages::leaf_hash(&bytes)
}

/// The modules of a symbol index, in the tree's order: platforms, then ids, by their bytes.
#[derive(Debug)]
pub struct ModuleTree<'a> {
    modules: Vec<(&'static str, String, &'a RawValue)>,
    leaves: Vec<Hash>,
}

/// A module's entry, and where it stands in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvedModule<'a> {
    /// Canonical JSON of the entry.
    pub entry: &'a str,
    /// Its place among the modules.
    pub index: u64,
    /// How many modules there are.
    pub count: u64,
    /// Its audit path.
    pub path: Vec<Hash>,
}

/// The root over the modules of a `symbol_index.json`; `None` where the bytes are none.
pub fn root_of(symbol_index: &[u8]) -> Option<[u8; 32]> {
    ModuleTree::of(symbol_index).ok().map(|tree| tree.root().0)
}

impl<'a> ModuleTree<'a> {
    /// From the bytes of a `symbol_index.json` that was read before: it is canonical JSON, and so is each entry in it.
    ///
    /// # Errors
    /// Those of the JSON reader.
    pub fn of(symbol_index: &'a [u8]) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Maps<'a> {
            #[serde(borrow)]
            linux: BTreeMap<String, &'a RawValue>,
            #[serde(borrow)]
            macos: BTreeMap<String, &'a RawValue>,
            #[serde(borrow)]
            windows: BTreeMap<String, &'a RawValue>,
        }
        let maps: Maps<'a> = serde_json::from_slice(symbol_index)?;
        let platforms = [("linux", maps.linux), ("macos", maps.macos), ("windows", maps.windows)];
        let modules: Vec<_> = platforms
            .into_iter()
            .flat_map(|(platform, map)| map.into_iter().map(move |(id, entry)| (platform, id, entry)))
            .collect();
        let leaves = modules.iter().map(|(platform, id, entry)| leaf(platform, id, entry.get().as_bytes())).collect();
        Ok(Self { modules, leaves })
    }

    /// The debug ids, in the tree's order.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.modules.iter().map(|(_, id, _)| id.as_str())
    }

    /// The root, which a seal's statement names.
    pub fn root(&self) -> Hash {
        pages::root(&self.leaves)
    }

    /// The proof of one module's entry; `None` where there is no such module.
    pub fn prove(&self, platform: &str, debug_id: &str) -> Option<ProvedModule<'a>> {
        let index = self.modules.iter().position(|(of, id, _)| *of == platform && id == debug_id)?;
        let (_, _, entry) = self.modules.get(index)?;
        let (index, count) = (index as u64, self.leaves.len() as u64);
        Some(ProvedModule { entry: entry.get(), index, count, path: pages::proof(&self.leaves, index)? })
    }
}
