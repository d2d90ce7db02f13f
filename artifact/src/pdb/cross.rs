//! Ids that stand in another module: what whole-program optimization leaves. (`cvinfo.h` and `dbi.cpp` of microsoft-pdb,
//! "cross scope" imports and exports)

use super::files::{Files, PATH};
use super::header::u32_at;
use super::lines::{kind, subsections};
use crate::budget::Budget;
use crate::cursor::Result;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Set in the number of an id of another module; else it is a number of the id stream.
const CROSS_MODULE: u32 = 0x8000_0000;

/// Finds the numbers of other modules' ids.
#[derive(Debug, Default)]
pub(crate) struct CrossModule {
    /// Module and local number → number in the id stream.
    exports: HashMap<(u32, u32), u32>,
    /// By module: which it imports from, by name in lower case, and the local numbers there.
    imports: HashMap<u32, Vec<Import>>,
    /// The number of a module by its name in lower case.
    modules: HashMap<Vec<u8>, u32>,
}

#[derive(Debug)]
struct Import {
    from: Vec<u8>,
    locals: Vec<u32>,
}

impl CrossModule {
    /// Notes the name of a module.
    pub(crate) fn name(&mut self, module: u32, name: &str) {
        self.modules.entry(name.to_ascii_lowercase().into_bytes()).or_insert(module);
    }

    /// Reads what a module's subsections import and export.
    pub(crate) fn fill(&mut self, module: u32, bytes: &[u8], files: &Files, budget: &mut Budget) -> Result<()> {
        for (kind, content) in subsections(bytes) {
            match kind {
                kind::CROSS_MODULE_EXPORTS => {
                    budget.charge(content.len() as u64)?;
                    for entry in content.chunks_exact(8) {
                        if let (Some(local), Some(global)) = (u32_at(entry, 0), u32_at(entry, 4)) {
                            self.exports.insert((module, local), global);
                        }
                    }
                }
                kind::CROSS_MODULE_IMPORTS => {
                    budget.charge(content.len() as u64)?;
                    if let Entry::Vacant(entry) = self.imports.entry(module) {
                        entry.insert(imports(content, files, budget)?);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The number in the id stream of an id that a module speaks of.
    pub(crate) fn resolve(&self, module: u32, number: u32) -> Option<u32> {
        if number & CROSS_MODULE == 0 {
            return Some(number);
        }
        // Bits 20 to 30 say which of the modules that this one imports from, the others which of the ids from there.
        let import = self.imports.get(&module)?.get(usize::try_from(number >> 20 & 0x7ff).ok()?)?;
        let local = import.locals.get(usize::try_from(number & 0xf_ffff).ok()?)?;
        let exporter = self.modules.get(&import.from)?;
        self.exports.get(&(*exporter, *local)).copied()
    }
}

/// Names are charged: an import of eight bytes may name a text of many thousand.
fn imports(content: &[u8], files: &Files, budget: &mut Budget) -> Result<Vec<Import>> {
    let mut found = Vec::new();
    let mut rest = content;
    while let (Some(name), Some(count)) = (u32_at(rest, 0), u32_at(rest, 4)) {
        let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(4)?.checked_add(8));
        let Some(locals) = length.and_then(|length| rest.get(8..length)) else { break };
        let from = files.text(name, PATH).unwrap_or_default();
        budget.charge(from.len() as u64)?;
        found.push(Import {
            from: from.to_ascii_lowercase(),
            locals: locals.chunks_exact(4).filter_map(|bytes| u32_at(bytes, 0)).collect(),
        });
        rest = rest.get(8 + locals.len()..).unwrap_or_default();
    }
    Ok(found)
}
