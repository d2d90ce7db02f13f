//! Contexts and places: who a row belongs to, each different chain once.
//!
//! Chains of different functions are different contexts. Where they are many, what a context says is mostly what another says too: the same
//! function inlined by the same line of the same caller. In sites that is kept once.

use super::ContextForm;
use super::packed::{Counted, pack, packed_bytes, widths};
use super::pairs::Pairs;
use super::text::Text;
use crate::bits::BitWriter;
use crate::layout::MAX_FRAMES;
use crate::{FunctionRecord, InlineSite, NO_INLINE, WriteError};
use alloc::vec::Vec;
use hashbrown::HashMap;

/// Fewer contexts stay whole: there is little to gain.
const MIN_CONTEXTS: usize = 1 << 16;
/// Contexts that say the same in sites, of programs that have many: about as many as a map of sites needs room for.
const CONTEXTS_PER_SITE: usize = 4;
/// No pair has this number: there are fewer than contexts.
const NO_PAIR: u32 = u32::MAX;
/// Contexts of a function for which a map is worth keeping.
const SMALL_FUNCTION: usize = 256;

/// What all functions' chains came to.
#[derive(Default)]
pub(super) struct Chains {
    contexts: Vec<PendingContext>,
    places: Vec<[u32; 3]>,
    place_numbers: HashMap<(u32, u32, u32), u32>,
    // What follows is of the function being written.
    function: u32,
    /// Offsets of the function's name and symbol.
    names: (u32, u32),
    /// The last context of the function's own code.
    own: Option<Told>,
    identities: Vec<Option<Identity>>,
    /// By place and caller, and by the call's line and column; [`NO_CALLER`] for the function's own.
    context_numbers: HashMap<[u64; 2], u32>,
    last: Option<((u32, u32), u32)>,
}

#[derive(Clone, Copy)]
struct PendingContext {
    /// Index in `places`.
    place: u32,
    /// How far before this context its caller's lies; 0 = the function itself.
    distance: u32,
    /// The call's line; the function's index where this is the function itself.
    value: u32,
    column: u32,
}

/// No context has this number.
const NO_CALLER: u32 = u32::MAX;

/// Where code was inlined: the caller's context, line and column. `None`: nowhere, it is the function's own.
type Call = Option<(u32, u32, u32)>;

/// A context that was given to code in a file.
#[derive(Clone, Copy)]
struct Told {
    file: u32,
    context: u32,
}

/// An inlined call of the input, as far as the table knows it.
#[derive(Clone, Copy)]
struct Identity {
    name: u32,
    symbol: u32,
    call: Call,
    depth: u32,
    /// The last context of its code.
    told: Option<Told>,
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

/// Contexts as sections.
pub(super) struct ContextSections {
    pub(super) contexts: Counted,
    pub(super) places: Counted,
    /// `None` where contexts are whole.
    pub(super) sites: Option<Sites>,
}

/// What contexts in sites are put together from.
pub(super) struct Sites {
    pub(super) owners: Counted,
    pub(super) sites: Counted,
}

/// What the lines of rows count from in a tight table: for each place, the line before the least one that a row in its code has.
pub(super) struct LineBases<'c> {
    contexts: &'c [PendingContext],
    by_place: Vec<u32>,
}

impl LineBases<'_> {
    /// Of the code of a context.
    #[inline]
    pub(super) fn of(&self, context: u32) -> u32 {
        self.contexts.get(context as usize).map_or(0, |context| self.of_place(context.place))
    }

    fn of_place(&self, place: u32) -> u32 {
        self.by_place.get(place as usize).copied().unwrap_or(0)
    }
}

/// What a tight table says of its sections before the contexts, and where lines count from.
pub(super) struct Tightness<'c> {
    pub(super) line_bases: LineBases<'c>,
    pub(super) pairs: &'c Pairs,
    /// Widths of the fields of functions and of blocks.
    pub(super) functions: [u8; 8],
    pub(super) blocks: [u8; 6],
}

impl ContextSections {
    /// Bytes of everything that the form decides about.
    fn bytes(&self) -> usize {
        let sites = self.sites.as_ref().map_or(0, |sites| sites.owners.bytes.len() + sites.sites.bytes.len());
        self.contexts.bytes.len() + self.places.bytes.len() + sites
    }
}

impl Chains {
    /// With room for what these functions' chains come to at most in most programs.
    pub(super) fn for_functions(functions: &[FunctionRecord]) -> Self {
        let chains = functions.iter().map(|function| function.inlines.len() + 1).sum();
        Self { contexts: Vec::with_capacity(chains), ..Self::default() }
    }

    pub(super) fn begin_function(
        &mut self,
        number: u32,
        function: &FunctionRecord,
        names: &mut Text<'_>,
    ) -> Result<(), WriteError> {
        self.function = number;
        self.names = (names.offset(function.name)?, names.offset(function.symbol)?);
        self.own = None;
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
                *slot = Some(Identity { name, symbol, call, depth, told: None });
            }
        }
        Ok(())
    }

    fn identity(&self, inline: u32) -> Option<Identity> {
        self.identities.get(inline as usize).copied().flatten()
    }

    fn context(&mut self, inline: u32, file: u32) -> Result<u32, Fault> {
        let ((name, symbol), call, told) = match inline {
            NO_INLINE => (self.names, None, self.own),
            inline => match self.identity(inline) {
                Some(identity) => ((identity.name, identity.symbol), identity.call, identity.told),
                None => return Err(Fault::Rule("rows in inlined calls that exist")),
            },
        };
        // Code of a call comes back after that of calls within it, nearly always in the same file: the maps are large.
        if let Some(told) = told.filter(|told| told.file == file) {
            return Ok(told.context);
        }
        let place = self.place(name, symbol, file)?;
        // A row codes a context as its number plus one in 32 bits.
        let next = number(self.contexts.len() + 1, "contexts")? - 1;
        let both = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let (caller, line, column) = call.unwrap_or((NO_CALLER, 0, 0));
        let key = [both(place, caller), both(line, column)];
        let context = *self.context_numbers.entry(key).or_insert(next);
        if context == next {
            let (distance, value, column) = match call {
                None => (0, self.function, 0),
                Some((caller, line, column)) => (next - caller, line, column),
            };
            self.contexts.push(PendingContext { place, distance, value, column });
        }
        let told = Some(Told { file, context });
        match self.identities.get_mut(inline as usize) {
            Some(Some(identity)) => identity.told = told,
            _ => self.own = told,
        }
        Ok(context)
    }

    fn place(&mut self, name: u32, symbol: u32, file: u32) -> Result<u32, Fault> {
        let next = number(self.places.len(), "names and files of functions")?;
        let place = *self.place_numbers.entry((name, symbol, file)).or_insert(next);
        if place == next {
            self.places.push([name, symbol, file]);
        }
        Ok(place)
    }

    /// Name and symbol of each place.
    pub(super) fn names(&self) -> impl Iterator<Item = [u32; 2]> {
        self.places.iter().map(|[name, symbol, _]| [*name, *symbol])
    }

    /// Where lines count from, of rows with these contexts and lines.
    pub(super) fn line_bases(&self, lines: impl Iterator<Item = (u32, u32)>) -> LineBases<'_> {
        let mut by_place = alloc::vec![u32::MAX; self.places.len()];
        for (context, line) in lines {
            let place = self.contexts.get(context as usize).map(|context| context.place as usize);
            if let Some(base) = place.and_then(|place| by_place.get_mut(place)) {
                *base = line.saturating_sub(1).min(*base);
            }
        }
        // No row in this code has a line.
        by_place.iter_mut().filter(|base| **base == u32::MAX).for_each(|base| *base = 0);
        LineBases { contexts: &self.contexts, by_place }
    }

    /// The contexts in the form that was asked for, or that many or few have; as a tight table has them where there is a `tightness`.
    pub(super) fn context_sections(&self, form: ContextForm, tightness: Option<&Tightness<'_>>) -> ContextSections {
        match form {
            ContextForm::InSites => self.in_sites(tightness).unwrap_or_else(|| self.whole(tightness).packed()),
            ContextForm::BySize if self.contexts.len() >= MIN_CONTEXTS => {
                let whole = self.whole(tightness);
                // What others do not say as well takes more in sites.
                let sited = self.in_sites(tightness).filter(|sited| sited.bytes() < whole.bytes());
                sited.unwrap_or_else(|| whole.packed())
            }
            ContextForm::BySize | ContextForm::Whole => self.whole(tightness).packed(),
        }
    }

    /// How many contexts are inlined. There are fewer than 2^32 contexts.
    fn inlined(&self) -> u32 {
        self.contexts.iter().filter(|context| context.distance != 0).count() as u32
    }

    /// The columns of the calls by which contexts are inlined.
    pub(super) fn columns(&self) -> Vec<u32> {
        self.contexts.iter().map(|context| context.column).collect()
    }

    fn whole<'c>(&'c self, tightness: Option<&Tightness<'_>>) -> Whole<'c> {
        let context_widths = widths(self.whole_contexts());
        let mut head = BitWriter::default();
        head.bytes.extend(context_widths);
        head.bytes.push(0);
        head.bytes.extend(self.inlined().to_le_bytes());
        let places = tightness.map(|tightness| {
            let places = self.places.iter().zip(&tightness.line_bases.by_place);
            let places: Vec<_> = places
                .map(|([name, symbol, file], base)| {
                    let [name, symbol] = tightness.pairs.codes(*name, *symbol);
                    [name, symbol, *file, *base]
                })
                .collect();
            let widths = widths(places.iter().copied());
            tightness.put(&mut head, widths, [0; 2]);
            (places, widths)
        });
        Whole { chains: self, head, context_widths, places }
    }

    fn whole_contexts(&self) -> impl ExactSizeIterator<Item = [u32; 3]> {
        self.contexts.iter().map(|context| [context.place, context.distance, context.value])
    }

    /// What each context says, once. `None` where names lie beyond what codes number.
    fn in_sites(&self, tightness: Option<&Tightness<'_>>) -> Option<ContextSections> {
        let inlined = self.inlined();
        let own = self.contexts.len() as u32 - inlined;
        let of = |context: &PendingContext| self.places.get(context.place as usize).copied().unwrap_or_default();
        // Most names of inlined code are the symbols as well: their offset says it all.
        let mut pairs = Vec::new();
        let mut pair_numbers: HashMap<[u32; 2], u32> = HashMap::new();
        // By the place: contexts are many times more.
        let mut pair_of_place = alloc::vec![NO_PAIR; self.places.len()];
        for context in self.contexts.iter().filter(|context| context.distance != 0) {
            let Some(known) = pair_of_place.get_mut(context.place as usize) else { continue };
            let [name, symbol, _] = of(context);
            if *known == NO_PAIR && name != symbol {
                *known = *pair_numbers.entry([name, symbol]).or_insert_with(|| {
                    pairs.push([name, symbol]);
                    pairs.len() as u32 - 1
                });
            }
        }
        let (mut owners, mut sites) = (Vec::with_capacity(own as usize), Vec::new());
        let mut site_numbers: HashMap<[u32; 5], u32> = HashMap::with_capacity(inlined as usize / CONTEXTS_PER_SITE);
        let mut codes = Vec::with_capacity(self.contexts.len());
        for context in &self.contexts {
            let [name, _, file] = of(context);
            let base = tightness.map_or(0, |tightness| tightness.line_bases.of_place(context.place));
            if context.distance == 0 {
                codes.push([owners.len() as u32]);
                owners.push([context.value, file, base]);
                continue;
            }
            let names = match pair_of_place.get(context.place as usize) {
                Some(pair) if *pair != NO_PAIR => *pair,
                _ => name.checked_add(pairs.len() as u32)?,
            };
            let site = [names, file, context.distance, context.value, base];
            let code = *site_numbers.entry(site).or_insert_with(|| {
                sites.push(site);
                own + sites.len() as u32 - 1
            });
            codes.push([code]);
        }
        let (code, owner) = (widths(codes.iter().copied()), widths(owners.iter().copied()));
        let (site, pair) = (widths(sites.iter().copied()), widths(pairs.iter().copied()));
        let mut contexts = BitWriter::default();
        let [function, owner_file, owner_base] = owner;
        let [names, site_file, distance, line, site_base] = site;
        contexts.bytes.extend(code);
        contexts.bytes.extend([function, owner_file, names, site_file, distance, line]);
        contexts.bytes.extend(pair);
        contexts.bytes.extend([0; 3]);
        contexts.bytes.extend(inlined.to_le_bytes());
        if let Some(tightness) = tightness {
            tightness.put(&mut contexts, [0; 4], [owner_base, site_base]);
        }
        Some(ContextSections {
            contexts: pack(contexts, codes.into_iter(), code),
            places: pack(BitWriter::default(), pairs.into_iter(), pair),
            sites: Some(Sites {
                owners: pack(BitWriter::default(), owners.into_iter(), owner),
                sites: pack(BitWriter::default(), sites.into_iter(), site),
            }),
        })
    }
}

impl Tightness<'_> {
    /// Appends the widths that a tight table says before its contexts.
    fn put(&self, contexts: &mut BitWriter, places: [u8; 4], bases: [u8; 2]) {
        let widths = self.functions.into_iter().chain(self.blocks).chain(places).chain(bases);
        contexts.bytes.extend(widths.chain([0; 4]));
    }
}

/// Contexts that are whole, before they are packed: how many bytes they come to is asked for more often than they are written.
struct Whole<'c> {
    chains: &'c Chains,
    /// What is said before the contexts.
    head: BitWriter,
    context_widths: [u8; 3],
    /// In a tight table, with their widths.
    places: Option<(Vec<[u32; 4]>, [u8; 4])>,
}

impl Whole<'_> {
    /// What [`ContextSections::bytes`] says of them once they are packed.
    fn bytes(&self) -> usize {
        let places = match &self.places {
            None => self.chains.places.len() * 12,
            Some((places, widths)) => packed_bytes(places.len(), *widths),
        };
        self.head.bytes.len() + packed_bytes(self.chains.contexts.len(), self.context_widths) + places
    }

    fn packed(self) -> ContextSections {
        let Self { chains, head, context_widths, places } = self;
        let places = match places {
            None => Counted {
                bytes: chains.places.iter().flatten().flat_map(|field| field.to_le_bytes()).collect(),
                count: chains.places.len() as u64,
            },
            Some((places, widths)) => pack(BitWriter::default(), places.into_iter(), widths),
        };
        ContextSections { contexts: pack(head, chains.whole_contexts(), context_widths), places, sites: None }
    }
}

fn number(count: usize, what: &'static str) -> Result<u32, WriteError> {
    u32::try_from(count).map_err(|_| WriteError::TooMany { what })
}
