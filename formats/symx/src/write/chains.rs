//! Contexts, call sites and inlinees: who a row belongs to, each different chain once.

use super::text::Text;
use crate::layout::{MAX_FRAMES, NO_PARENT};
use crate::{InlineSite, NO_INLINE, WriteError};
use alloc::vec::Vec;
use hashbrown::HashMap;

/// What all functions' chains came to.
#[derive(Default)]
pub(super) struct Chains {
    pub(super) contexts: Vec<u8>,
    pub(super) sites: Vec<u8>,
    pub(super) inlinees: Vec<u8>,
    /// One per call site.
    pub(super) site_columns: Vec<u32>,
    inlinee_numbers: HashMap<(u32, u32), u32>,
    // What follows is of the function being written.
    function: u32,
    identities: Vec<Option<Identity>>,
    context_numbers: HashMap<(u32, u32, u32), u32>,
    site_numbers: HashMap<(u32, u32, u32), u32>,
    last: Option<((u32, u32), u32)>,
}

/// An inlined call: inlinee and call site.
#[derive(Clone, Copy)]
struct Identity {
    who: u32,
    site: u32,
    depth: u32,
}

/// What cannot be written, of a function that the caller knows.
pub(super) enum Fault {
    Rule(&'static str),
    Other(WriteError),
}

impl Fault {
    pub(super) fn at(self, function: usize) -> WriteError {
        match self {
            Self::Rule(rule) => WriteError::Record { function, rule },
            Self::Other(error) => error,
        }
    }
}

impl From<WriteError> for Fault {
    fn from(error: WriteError) -> Self {
        Self::Other(error)
    }
}

impl Chains {
    pub(super) fn begin_function(&mut self, number: u32, inlines: usize) {
        self.function = number;
        self.identities.clear();
        self.identities.resize(inlines, None);
        self.context_numbers.clear();
        self.site_numbers.clear();
        self.last = None;
    }

    /// The number of the context of a row in `file`, inlined as `inline` says. Inlined calls that no row is in leave
    /// no trace.
    pub(super) fn row_context(
        &mut self,
        inlines: &[InlineSite],
        inline: u32,
        file: u32,
        names: &mut Text<'_>,
        paths: &mut Text<'_>,
    ) -> Result<u32, Fault> {
        if let Some((key, context)) = self.last
            && key == (inline, file)
        {
            return Ok(context);
        }
        self.identify(inlines, inline, names, paths)?;
        let context = self.context(inline, file)?;
        self.last = Some(((inline, file), context));
        Ok(context)
    }

    /// Gives numbers to an inlined call and to those around it, outermost first.
    fn identify(
        &mut self,
        inlines: &[InlineSite],
        innermost: u32,
        names: &mut Text<'_>,
        paths: &mut Text<'_>,
    ) -> Result<(), Fault> {
        let mut unknown = Vec::new();
        let mut number = innermost;
        while number != NO_INLINE && self.identity(number).is_none() {
            let inline = inlines.get(number as usize).ok_or(Fault::Rule("rows in inlined calls that exist"))?;
            if inline.parent != NO_INLINE && inline.parent >= number {
                return Err(Fault::Rule("inlined calls whose parent comes before them"));
            }
            unknown.push((number, inline));
            number = inline.parent;
        }
        let mut depth = self.identity(number).map_or(0, |identity| identity.depth);
        while let Some((number, inline)) = unknown.pop() {
            depth += 1;
            if depth >= MAX_FRAMES {
                return Err(Fault::Rule("at most 1023 inlined calls within each other"));
            }
            let caller = self.context(inline.parent, paths.offset(inline.call_file)?)?;
            let site = self.site(caller, inline.call_line, inline.call_column)?;
            let who = self.inlinee(names.offset(inline.name)?, names.offset(inline.symbol)?)?;
            if let Some(slot) = self.identities.get_mut(number as usize) {
                *slot = Some(Identity { who, site, depth });
            }
        }
        Ok(())
    }

    fn identity(&self, inline: u32) -> Option<Identity> {
        self.identities.get(inline as usize).copied().flatten()
    }

    fn context(&mut self, inline: u32, file: u32) -> Result<u32, Fault> {
        let (who, parent) = match inline {
            NO_INLINE => (self.function, NO_PARENT),
            inline => match self.identity(inline) {
                Some(identity) => (identity.who, identity.site),
                None => return Err(Fault::Rule("rows in inlined calls that exist")),
            },
        };
        // A context is coded as its number plus one in 32 bits.
        let next = number(self.contexts.len() / 12 + 1, "contexts")? - 1;
        let context = *self.context_numbers.entry((who, parent, file)).or_insert(next);
        if context == next {
            for value in [who, file, parent] {
                self.contexts.extend(value.to_le_bytes());
            }
        }
        Ok(context)
    }

    fn site(&mut self, caller: u32, line: u32, column: u32) -> Result<u32, Fault> {
        let next = number(self.site_columns.len() + 1, "call sites")? - 1;
        let site = *self.site_numbers.entry((caller, line, column)).or_insert(next);
        if site == next {
            self.sites.extend(caller.to_le_bytes());
            self.sites.extend(line.to_le_bytes());
            self.site_columns.push(column);
        }
        Ok(site)
    }

    fn inlinee(&mut self, name: u32, symbol: u32) -> Result<u32, Fault> {
        let next = number(self.inlinees.len() / 8, "inlined functions")?;
        let inlinee = *self.inlinee_numbers.entry((name, symbol)).or_insert(next);
        if inlinee == next {
            self.inlinees.extend(name.to_le_bytes());
            self.inlinees.extend(symbol.to_le_bytes());
        }
        Ok(inlinee)
    }
}

fn number(count: usize, what: &'static str) -> Result<u32, WriteError> {
    u32::try_from(count).map_err(|_| WriteError::TooMany { what })
}
