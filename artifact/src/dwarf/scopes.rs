//! The namespaces and types that entries stand in.

use super::unit::UnitHeader;
use std::collections::HashMap;
use symseal_symx::{StrId, Strings};

/// The number of a scope.
pub(crate) type ScopeId = u32;

/// Outside of every namespace and type.
pub(crate) const ROOT: ScopeId = 0;

/// Scopes deeper than this lose their outer names; a chain of references through scopes ends here too.
const MOST_NESTED: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Scope {
    parent: ScopeId,
    name: StrId,
    /// Offset of the declaration that has the outer scopes; 0 = none.
    declaration: u64,
}

/// Every scope once, and which entries stand in one.
#[derive(Debug)]
pub(crate) struct Scopes {
    scopes: Vec<Scope>,
    numbers: HashMap<Scope, ScopeId>,
    texts: Strings,
    /// For each unit in order, where its entries start in `entries`.
    units: Vec<usize>,
    /// Offset in the unit and scope of entries that stand in one, by rising offset.
    entries: Vec<(u32, ScopeId)>,
}

impl Scopes {
    pub(crate) fn new() -> Self {
        let root = Scope { parent: ROOT, name: StrId::EMPTY, declaration: 0 };
        Self {
            scopes: vec![root],
            numbers: HashMap::new(),
            texts: Strings::new(),
            units: Vec::new(),
            entries: Vec::new(),
        }
    }

    /// The scope `name` in `parent`. `declaration` is the offset of an entry elsewhere that has its outer scopes.
    pub(crate) fn add(&mut self, parent: ScopeId, name: &str, declaration: u64) -> ScopeId {
        let scope = Scope { parent, name: self.texts.intern(name), declaration };
        if let Some(known) = self.numbers.get(&scope) {
            return *known;
        }
        let Ok(number) = ScopeId::try_from(self.scopes.len()) else { return ROOT };
        self.scopes.push(scope);
        self.numbers.insert(scope, number);
        number
    }

    /// Entries that are placed from now on belong to the next unit.
    pub(crate) fn start_unit(&mut self) {
        self.units.push(self.entries.len());
    }

    /// Remembers that the entry at this offset in the unit stands in `scope`.
    pub(crate) fn place(&mut self, offset: u64, scope: ScopeId) {
        if scope != ROOT
            && let Ok(offset) = u32::try_from(offset)
        {
            self.entries.push((offset, scope));
        }
    }

    /// The scope in which the entry stands.
    fn scope_of(&self, headers: &[UnitHeader], entry: u64) -> ScopeId {
        let find = || {
            let unit = headers.partition_point(|header| header.offset <= entry).checked_sub(1)?;
            let offset = u32::try_from(entry.checked_sub(headers.get(unit)?.offset)?).ok()?;
            let start = *self.units.get(unit)?;
            let end = self.units.get(unit + 1).copied().unwrap_or(self.entries.len());
            let entries = self.entries.get(start..end)?;
            let at = entries.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
            entries.get(at).map(|(_, scope)| *scope)
        };
        find().unwrap_or(ROOT)
    }

    /// The names around an entry, outermost first, joined and ended by `separator`; empty at the top.
    pub(crate) fn prefix(&self, headers: &[UnitHeader], entry: u64, separator: &str) -> String {
        let mut names = Vec::new();
        let mut scope = self.scope_of(headers, entry);
        while scope != ROOT && names.len() < MOST_NESTED {
            let Some(found) = self.scopes.get(scope as usize) else { break };
            names.push(self.texts.get(found.name));
            scope = if found.declaration == 0 { found.parent } else { self.scope_of(headers, found.declaration) };
        }
        let mut prefix = String::new();
        for name in names.iter().rev() {
            prefix.push_str(name);
            prefix.push_str(separator);
        }
        prefix
    }
}
