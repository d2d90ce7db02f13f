//! Who a row's code belongs to, and who called it.

use crate::OpenError;
use crate::bits::TAIL;
use crate::layout::{Outline, SectionId, u32_at};
use crate::packed::{Packed, Shape};

/// The most bytes before the packed contexts: the widths of packed fields, zeroes, and how many contexts are inlined.
pub(crate) const MAX_PREFIX_BYTES: usize = SITED_PREFIX_BYTES + TIGHT_PREFIX_BYTES;
/// Those of a table whose contexts are whole.
const PREFIX_BYTES: usize = 8;
/// Those of a table whose contexts are in sites.
const SITED_PREFIX_BYTES: usize = 16;
/// What a tight table has behind either.
pub(crate) const TIGHT_PREFIX_BYTES: usize = 24;

/// What the prefix says of contexts and of what they are put together from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shapes {
    /// Bytes of the prefix.
    pub(crate) prefix: usize,
    inlined: u32,
    pub(crate) form: Form<Shape<3>, Shape<1>, Shape<3>, Shape<5>, Shape<2>>,
    /// Of a tight table.
    pub(crate) tight: Option<Tight>,
}

/// The records of a tight table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tight {
    /// Start, size, codes of name and symbol, file, line, source of the names, flags.
    pub(crate) functions: Shape<8>,
    /// Offset, context base, number of rows, and the bits of a row's three fields.
    pub(crate) blocks: Shape<6>,
    /// Codes of name and symbol, file, line base. Where contexts are in sites there are no places of this kind.
    pub(crate) places: Shape<4>,
}

/// What the sections of contexts hold, by the table's form: all that a context says in one record each; or codes of that.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form<Whole, Codes, Owners, Sites, Places> {
    Whole {
        /// Place, distance and value.
        contexts: Whole,
    },
    Sited {
        codes: Codes,
        /// Function, file and line base.
        owners: Owners,
        /// Code of the name, file, distance, line and line base.
        sites: Sites,
        /// Names and symbols that differ.
        places: Places,
    },
}

/// Packed contexts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contexts<'a> {
    form: Read<'a>,
    inlined: u32,
}

type Read<'a> = Form<Packed<'a, 3>, Packed<'a, 1>, Packed<'a, 3>, Packed<'a, 5>, Packed<'a, 2>>;

/// A context: what names and file its code has, and where it is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub(crate) named: Named,
    pub(crate) origin: Origin,
}

/// Which names and which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// Those of the place of this index.
    Place(u32),
    /// The names of a function, and a file in the paths.
    Function { function: u32, file: u32, line_base: u32 },
    /// The names of this code, and a file in the paths.
    Code { names: u32, file: u32, line_base: u32 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Code of the function of this index itself.
    Function(u32),
    /// Code inlined at a line of another context.
    Inlined {
        /// Index of the caller's context, lower than this one's.
        caller: u32,
        /// Line of the call; 0 = none.
        line: u32,
    },
}

/// Where a code leads, which numbers records of one kind first and then something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// A record: an owner, or a name with a symbol that differs.
    First(u32),
    /// A site, or the offset of a name that is the symbol as well.
    Second(u32),
}

impl Code {
    /// Of a code where the first kind has `firsts` records.
    #[inline(always)]
    pub(crate) fn new(code: u32, firsts: u32) -> Self {
        code.checked_sub(firsts).map_or(Self::First(code), Self::Second)
    }
}

impl Context {
    /// The context of this index where contexts are whole.
    #[inline(always)]
    pub(crate) fn whole(index: u32, [place, distance, value]: [u32; 3]) -> Option<Self> {
        let named = Named::Place(place);
        match distance {
            0 => Some(Self { named, origin: Origin::Function(value) }),
            distance => Self::inlined(index, named, distance, value),
        }
    }

    /// A context of an owner.
    #[inline(always)]
    pub(crate) fn owner([function, file, line_base]: [u32; 3]) -> Self {
        Self { named: Named::Function { function, file, line_base }, origin: Origin::Function(function) }
    }

    /// The context of this index, of a site.
    #[inline(always)]
    pub(crate) fn site(index: u32, [names, file, distance, line, line_base]: [u32; 5]) -> Option<Self> {
        let named = Named::Code { names, file, line_base };
        if distance == 0 { None } else { Self::inlined(index, named, distance, line) }
    }

    #[inline(always)]
    fn inlined(index: u32, named: Named, distance: u32, line: u32) -> Option<Self> {
        // Callers come before what they call, so that no chain returns to itself.
        Some(Self { named, origin: Origin::Inlined { caller: index.checked_sub(distance)?, line } })
    }
}

fn fault(problem: &'static str) -> OpenError {
    OpenError::Section { id: SectionId::Contexts.number(), problem }
}

impl Shapes {
    /// From the first bytes of the section, [`MAX_PREFIX_BYTES`] where it has as many.
    pub(crate) fn new(outline: &Outline, first: &[u8]) -> Result<Self, OpenError> {
        let of = |id| {
            let section = outline.section(id);
            (id, section.size, section.count)
        };
        let own = if outline.sited { SITED_PREFIX_BYTES } else { PREFIX_BYTES };
        let prefix = own + if outline.tight { TIGHT_PREFIX_BYTES } else { 0 };
        let no_widths = || fault("has no widths");
        let ([owner_base, site_base], tight) = match outline.tight {
            false => ([0; 2], None),
            true => {
                let widths = first.get(own..).and_then(|widths| widths.first_chunk()).ok_or_else(no_widths)?;
                let (bases, tight) = Self::tight(outline.sited, widths, of)?;
                (bases, Some(tight))
            }
        };
        let (id, size, count) = of(SectionId::Contexts);
        let size = size.saturating_sub(prefix as u64);
        let (form, zeroes) = if outline.sited {
            let first: &[u8; SITED_PREFIX_BYTES] = first.first_chunk().ok_or_else(no_widths)?;
            let [code, function, owner_file, names, file, distance, line, name, symbol, zeroes @ ..] = *first;
            let codes = Shape::new([code], id, size, count)?;
            let (id, size, count) = of(SectionId::Owners);
            let owners = Shape::new([function, owner_file, owner_base], id, size, count)?;
            let (id, size, count) = of(SectionId::Sites);
            let sites = Shape::new([names, file, distance, line, site_base], id, size, count)?;
            let (id, size, count) = of(SectionId::Places);
            let places = Shape::new([name, symbol], id, size, count)?;
            (Form::Sited { codes, owners, sites, places }, u32_at(&zeroes, 0) & 0xff_ffff)
        } else {
            let first: &[u8; PREFIX_BYTES] = first.first_chunk().ok_or_else(no_widths)?;
            let [place, distance, value, zero, ..] = *first;
            (Form::Whole { contexts: Shape::new([place, distance, value], id, size, count)? }, zero.into())
        };
        if zeroes != 0 {
            return Err(fault("has impossible widths"));
        }
        Ok(Self { prefix, inlined: u32_at(first, own - 4), form, tight })
    }

    /// What the widths of a tight table say: those of the line bases of owners and of sites, and its records.
    fn tight(
        sited: bool,
        widths: &[u8; TIGHT_PREFIX_BYTES],
        of: impl Fn(SectionId) -> (SectionId, u64, u64),
    ) -> Result<([u8; 2], Tight), OpenError> {
        let (functions, rest) = widths.split_first_chunk::<8>().ok_or(fault("has no widths"))?;
        let (blocks, rest) = rest.split_first_chunk::<6>().ok_or(fault("has no widths"))?;
        let (places, rest) = rest.split_first_chunk::<4>().ok_or(fault("has no widths"))?;
        let (bases, zeroes) = rest.split_first_chunk::<2>().ok_or(fault("has no widths"))?;
        let unused: &[u8] = if sited { places } else { bases };
        if zeroes.iter().chain(unused).any(|byte| *byte != 0) {
            return Err(fault("has impossible widths"));
        }
        let (id, size, count) = of(SectionId::Functions);
        let functions = Shape::new(*functions, id, size, count)?;
        let (id, size, count) = of(SectionId::Blocks);
        let blocks = Shape::new(*blocks, id, size, count)?;
        // In sites, the section of places is of another shape.
        let (id, size, count) = if sited { (SectionId::Places, TAIL as u64, 0) } else { of(SectionId::Places) };
        Ok((*bases, Tight { functions, blocks, places: Shape::new(*places, id, size, count)? }))
    }
}

impl<'a> Contexts<'a> {
    /// Over the sections of the table, which `section` gives.
    pub(crate) fn new(shapes: &Shapes, section: impl Fn(SectionId) -> &'a [u8]) -> Self {
        let contexts = section(SectionId::Contexts);
        let records = contexts.get(shapes.prefix..).unwrap_or_default();
        let form = match shapes.form {
            Form::Whole { contexts } => Form::Whole { contexts: Packed::new(contexts, records) },
            Form::Sited { codes, owners, sites, places } => Form::Sited {
                codes: Packed::new(codes, records),
                owners: Packed::new(owners, section(SectionId::Owners)),
                sites: Packed::new(sites, section(SectionId::Sites)),
                places: Packed::new(places, section(SectionId::Places)),
            },
        };
        Self { form, inlined: shapes.inlined }
    }

    #[inline(always)]
    pub(crate) fn form(&self) -> &Read<'a> {
        &self.form
    }

    pub(crate) fn count(&self) -> u32 {
        match &self.form {
            Form::Whole { contexts } => contexts.count(),
            Form::Sited { codes, .. } => codes.count(),
        }
    }

    /// How many contexts are inlined, as the section says.
    pub(crate) fn inlined(&self) -> u32 {
        self.inlined
    }

    /// [`get`](Self::get), where little code counts for more than time.
    #[inline(never)]
    pub(crate) fn find(&self, index: u32) -> Option<Context> {
        self.get(index)
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<Context> {
        match &self.form {
            Form::Whole { contexts } => Context::whole(index, contexts.get(index)?),
            Form::Sited { codes, owners, sites, .. } => {
                let [code] = codes.get(index)?;
                match Code::new(code, owners.count()) {
                    Code::First(owner) => owners.get(owner).map(Context::owner),
                    Code::Second(site) => Context::site(index, sites.get(site)?),
                }
            }
        }
    }
}
