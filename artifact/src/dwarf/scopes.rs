//! The namespaces and types that entries stand in.

use super::scope_name::ScopeName;
use hashbrown::HashMap;
use symseal_symx::{StrId, Strings};

/// The number of a scope.
pub(crate) type ScopeId = u32;

/// Outside of every namespace and type.
pub(crate) const ROOT: ScopeId = 0;

/// Scopes deeper than this lose their outer names; a chain of references through scopes ends here too.
pub(crate) const MOST_NESTED: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Scope {
    parent: ScopeId,
    name: ScopeName<StrId>,
    /// Place of the declaration that has the outer scopes; 0 = none.
    declaration: u64,
}

/// Every scope once, and which entries stand in one.
#[derive(Debug)]
pub(crate) struct Scopes {
    scopes: Vec<Scope>,
    numbers: HashMap<Scope, ScopeId>,
    texts: Strings,
    /// For each unit that was read: offset in the unit and scope of entries that stand in one, by rising offset.
    units: HashMap<u32, Vec<(u32, ScopeId)>>,
    /// The unit at hand.
    unit: u32,
    entries: Vec<(u32, ScopeId)>,
}

impl Default for Scopes {
    fn default() -> Self {
        let root = Scope { parent: ROOT, name: ScopeName::Text(StrId::EMPTY), declaration: 0 };
        Self {
            scopes: vec![root],
            numbers: HashMap::new(),
            texts: Strings::new(),
            units: HashMap::new(),
            unit: 0,
            entries: Vec::new(),
        }
    }
}

impl Scopes {
    /// The scope `name` in `parent`. `declaration` is the place of an entry elsewhere that has its outer scopes.
    pub(crate) fn add(&mut self, parent: ScopeId, name: ScopeName<impl AsRef<str>>, declaration: u64) -> ScopeId {
        let name = name.map(|text| self.texts.intern(text.as_ref()));
        let scope = Scope { parent, name, declaration };
        if let Some(known) = self.numbers.get(&scope) {
            return *known;
        }
        let Ok(number) = ScopeId::try_from(self.scopes.len()) else { return ROOT };
        self.scopes.push(scope);
        self.numbers.insert(scope, number);
        number
    }

    /// The number of a text that names scopes.
    pub(crate) fn intern(&mut self, text: &str) -> StrId {
        self.texts.intern(text)
    }

    /// The text of that number.
    pub(crate) fn text(&self, text: StrId) -> &str {
        self.texts.get(text)
    }

    /// Entries that are placed from now on belong to that unit.
    pub(crate) fn start_unit(&mut self, number: u32) {
        self.unit = number;
        self.entries.clear();
    }

    /// Remembers that the entry at this offset in the unit stands in `scope`.
    pub(crate) fn place(&mut self, offset: u64, scope: ScopeId) {
        if scope != ROOT
            && let Ok(offset) = u32::try_from(offset)
        {
            self.entries.push((offset, scope));
        }
    }

    /// No more entries of the unit come.
    pub(crate) fn end_unit(&mut self) {
        self.units.insert(self.unit, self.entries.clone());
    }

    /// Takes over what another pass read, with its own numbers.
    pub(crate) fn absorb(&mut self, others: Self) {
        let mut numbers = Vec::with_capacity(others.scopes.len());
        // Scope 0 is the root, and parents come before their children.
        numbers.push(ROOT);
        for scope in others.scopes.iter().skip(1) {
            let parent = numbers.get(scope.parent as usize).copied().unwrap_or(ROOT);
            let name = scope.name.map(|text| others.texts.get(text));
            numbers.push(self.add(parent, name, scope.declaration));
        }
        for (unit, mut entries) in others.units {
            for (_, scope) in &mut entries {
                *scope = numbers.get(*scope as usize).copied().unwrap_or(ROOT);
            }
            self.units.insert(unit, entries);
        }
    }

    /// Whether the unit was read.
    pub(crate) fn has_unit(&self, unit: u32) -> bool {
        self.units.contains_key(&unit)
    }

    /// The scope in which the entry at this offset in the unit stands.
    pub(crate) fn scope_of(&self, unit: u32, offset: u64) -> ScopeId {
        let find = || {
            let offset = u32::try_from(offset).ok()?;
            let entries = self.units.get(&unit)?;
            let at = entries.binary_search_by_key(&offset, |(offset, _)| *offset).ok()?;
            entries.get(at).map(|(_, scope)| *scope)
        };
        find().unwrap_or(ROOT)
    }

    /// A scope's name, and where its outer scope is found.
    pub(crate) fn get(&self, scope: ScopeId) -> Option<(ScopeName<StrId>, Outer)> {
        let found = self.scopes.get(scope as usize)?;
        let outer = match found.declaration {
            0 => Outer::Scope(found.parent),
            entry => Outer::Entry(entry),
        };
        Some((found.name, outer))
    }
}

/// Where a scope's outer scope is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outer {
    Scope(ScopeId),
    /// It is that of the entry at this place.
    Entry(u64),
}
