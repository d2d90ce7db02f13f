//! Contexts and places: who a row belongs to, each different chain once.

use super::text::Text;
use crate::bits::{BitWriter, TAIL, width_of};
use crate::layout::MAX_FRAMES;
use crate::{FunctionRecord, InlineSite, NO_INLINE, WriteError};
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Contexts of a function for which a map is worth keeping.
const SMALL_FUNCTION: usize = 256;

/// What all functions' chains came to.
#[derive(Default)]
pub(super) struct Chains {
    contexts: Vec<PendingContext>,
    pub(super) places: Vec<u8>,
    place_numbers: HashMap<(u32, u32, u32), u32>,
    // What follows is of the function being written.
    function: u32,
    /// Offsets of the function's name and symbol.
    names: (u32, u32),
    identities: Vec<Option<Identity>>,
    context_numbers: HashMap<(u32, Call), u32>,
    last: Option<((u32, u32), u32)>,
}

#[derive(Clone, Copy)]
struct PendingContext {
    place: u32,
    /// How far before this context its caller's lies; 0 = the function itself.
    distance: u32,
    /// The call's line; the function's index where this is the function itself.
    value: u32,
    column: u32,
}

/// Where code was inlined: the caller's context, line and column. `None`: nowhere, it is the function's own.
type Call = Option<(u32, u32, u32)>;

/// An inlined call of the input, as far as the table knows it.
#[derive(Clone, Copy)]
struct Identity {
    name: u32,
    symbol: u32,
    call: Call,
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

/// Contexts as a section, and their columns.
pub(super) struct ContextSections {
    pub(super) contexts: Vec<u8>,
    pub(super) count: u64,
    pub(super) columns: Vec<u32>,
}

impl Chains {
    pub(super) fn begin_function(
        &mut self,
        number: u32,
        function: &FunctionRecord,
        names: &mut Text<'_>,
    ) -> Result<(), WriteError> {
        self.function = number;
        self.names = (names.offset(function.name)?, names.offset(function.symbol)?);
        self.identities.clear();
        self.identities.resize(function.inlines.len(), None);
        if self.context_numbers.capacity() > SMALL_FUNCTION {
            // To clear a map costs its capacity: after one large function that would be paid for every small one.
            self.context_numbers = HashMap::new();
        }
        self.context_numbers.clear();
        self.last = None;
        Ok(())
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
            let call = Some((caller, inline.call_line, inline.call_column));
            let (name, symbol) = (names.offset(inline.name)?, names.offset(inline.symbol)?);
            if let Some(slot) = self.identities.get_mut(number as usize) {
                *slot = Some(Identity { name, symbol, call, depth });
            }
        }
        Ok(())
    }

    fn identity(&self, inline: u32) -> Option<Identity> {
        self.identities.get(inline as usize).copied().flatten()
    }

    fn context(&mut self, inline: u32, file: u32) -> Result<u32, Fault> {
        let ((name, symbol), call) = match inline {
            NO_INLINE => (self.names, None),
            inline => match self.identity(inline) {
                Some(identity) => ((identity.name, identity.symbol), identity.call),
                None => return Err(Fault::Rule("rows in inlined calls that exist")),
            },
        };
        let place = self.place(name, symbol, file)?;
        // A row codes a context as its number plus one in 32 bits.
        let next = number(self.contexts.len() + 1, "contexts")? - 1;
        let context = *self.context_numbers.entry((place, call)).or_insert(next);
        if context == next {
            let (distance, value, column) = match call {
                None => (0, self.function, 0),
                Some((caller, line, column)) => (next - caller, line, column),
            };
            self.contexts.push(PendingContext { place, distance, value, column });
        }
        Ok(context)
    }

    fn place(&mut self, name: u32, symbol: u32, file: u32) -> Result<u32, Fault> {
        let next = number(self.places.len() / 12, "names and files of functions")?;
        let place = *self.place_numbers.entry((name, symbol, file)).or_insert(next);
        if place == next {
            for value in [name, symbol, file] {
                self.places.extend(value.to_le_bytes());
            }
        }
        Ok(place)
    }

    /// The contexts, each field as wide as its largest value needs.
    pub(super) fn context_sections(&self) -> ContextSections {
        let width = |field: fn(&PendingContext) -> u32| width_of(self.contexts.iter().map(field).max().unwrap_or(0));
        let widths =
            [width(|context| context.place), width(|context| context.distance), width(|context| context.value)];
        let mut packed = BitWriter::default();
        packed.bytes.extend(widths);
        packed.bytes.push(0);
        let inlined = self.contexts.iter().filter(|context| context.distance != 0).count();
        // There are fewer than 2^32 contexts.
        packed.bytes.extend((inlined as u32).to_le_bytes());
        for context in &self.contexts {
            let fields = [context.place, context.distance, context.value];
            fields.into_iter().zip(widths).for_each(|(field, width)| packed.put(field, width));
        }
        packed.align();
        packed.bytes.extend([0; TAIL]);
        ContextSections {
            contexts: packed.bytes,
            count: self.contexts.len() as u64,
            columns: self.contexts.iter().map(|context| context.column).collect(),
        }
    }
}

fn number(count: usize, what: &'static str) -> Result<u32, WriteError> {
    u32::try_from(count).map_err(|_| WriteError::TooMany { what })
}
