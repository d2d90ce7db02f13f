//! Abbreviation tables, turned into plans for reading or passing over entries. (DWARF 5, 7.5.3)

use super::value::{self, Encoding};
use crate::budget::Budget;
use crate::cursor::{Cursor, Damaged, Result};
use gimli::{DwAt, DwForm, DwTag};
use hashbrown::HashMap;

/// What an entry is to us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Passed over; its children are still looked at.
    Other,
    /// Gives names below it a prefix.
    Scope,
    Subprogram,
    InlinedCall,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Attribute {
    pub(crate) name: DwAt,
    pub(crate) form: DwForm,
    /// The value of `DW_FORM_implicit_const`.
    pub(crate) constant: u32,
}

/// How to pass over an attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Bytes(u16),
    Leb,
    /// And four bytes.
    LebAndFour,
    Text,
    /// A length of that many bytes, then as many bytes.
    Block(u8),
    LebBlock,
    /// The form stands before the value.
    Indirect,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Abbreviation {
    pub(crate) tag: DwTag,
    pub(crate) role: Role,
    pub(crate) has_children: bool,
    /// Entries are of functions and have ranges of addresses.
    pub(crate) has_ranges: bool,
    /// Entries are of functions and have a name of their own.
    pub(crate) has_name: bool,
    /// Entries define a function whose symbol, if it has one, is its name: as C has them, and static functions of C++.
    /// Inline functions of headers are none, as others define them again.
    pub(crate) defines_by_name: bool,
    /// The last four bytes of an entry's attributes say where, in the unit, the entry behind its children is.
    pub(crate) ends_with_sibling: bool,
    /// What is below entries of the tag are neither functions nor scopes.
    pub(crate) is_closed: bool,
    /// In the table's lists.
    attributes: Span,
    steps: Span,
}

/// A range of a list.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

impl Span {
    fn of<T>(self, list: &[T]) -> &[T] {
        list.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    /// What was appended to a list since it had `start` elements.
    fn since<T>(start: usize, list: &[T]) -> Result<Self> {
        let number = |at| u32::try_from(at).map_err(|_| Damaged);
        Ok(Self { start: number(start)?, end: number(list.len())? })
    }
}

#[inline]
fn skip_step(step: Step, cursor: &mut Cursor<'_>, encoding: Encoding) -> Result<()> {
    match step {
        Step::Bytes(count) => cursor.skip(count.into()),
        Step::Leb => cursor.skip_leb(),
        Step::LebAndFour => cursor.skip_leb().and_then(|()| cursor.skip(4)),
        Step::Text => cursor.text().map(|_| ()),
        Step::Block(size) => {
            let length = cursor.unsigned(size)?;
            cursor.skip(usize::try_from(length).map_err(|_| Damaged)?)
        }
        Step::LebBlock => {
            let length = cursor.uleb()?;
            cursor.skip(usize::try_from(length).map_err(|_| Damaged)?)
        }
        Step::Indirect => {
            let form = DwForm(u16::try_from(cursor.uleb()?).map_err(|_| Damaged)?);
            match step_of(form, encoding)? {
                // A chain of them would have no end.
                Step::Indirect => Err(Damaged),
                step => skip_step(step, cursor, encoding),
            }
        }
    }
}

fn step_of(form: DwForm, encoding: Encoding) -> Result<Step> {
    if let Some(size) = value::fixed_size(form, encoding) {
        return Ok(Step::Bytes(size.into()));
    }
    Ok(match form {
        gimli::DW_FORM_udata
        | gimli::DW_FORM_sdata
        | gimli::DW_FORM_ref_udata
        | gimli::DW_FORM_strx
        | gimli::DW_FORM_GNU_str_index
        | gimli::DW_FORM_addrx
        | gimli::DW_FORM_GNU_addr_index
        | gimli::DW_FORM_loclistx
        | gimli::DW_FORM_rnglistx => Step::Leb,
        value::FORM_ADDRX_OFFSET => Step::LebAndFour,
        gimli::DW_FORM_string => Step::Text,
        gimli::DW_FORM_block1 => Step::Block(1),
        gimli::DW_FORM_block2 => Step::Block(2),
        gimli::DW_FORM_block4 => Step::Block(4),
        gimli::DW_FORM_block | gimli::DW_FORM_exprloc => Step::LebBlock,
        gimli::DW_FORM_indirect => Step::Indirect,
        _ => return Err(Damaged),
    })
}

/// Steps by form, for the forms of DWARF 5: looking one up is what reading a table does most.
struct FormSteps {
    steps: [Step; Self::COUNT],
    encoding: Encoding,
}

impl FormSteps {
    /// `DW_FORM_addrx4` is the last one. (DWARF 5, 7.5.6)
    const COUNT: usize = 0x2d;

    fn of(encoding: Encoding) -> Self {
        let number = |form: usize| DwForm(u16::try_from(form).unwrap_or(0));
        Self { steps: std::array::from_fn(|form| Self::step_of(number(form), encoding)), encoding }
    }

    /// An unknown form makes entries of its abbreviation unreadable, not the table.
    fn step_of(form: DwForm, encoding: Encoding) -> Step {
        step_of(form, encoding).unwrap_or(Step::Indirect)
    }

    #[inline]
    fn get(&self, form: DwForm) -> Step {
        match self.steps.get(usize::from(form.0)) {
            Some(step) => *step,
            None => Self::step_of(form, self.encoding),
        }
    }
}

/// One table. Thousands of them are kept, one of each unit of C, so that they have no room to grow in.
#[derive(Debug)]
pub(crate) struct Abbreviations {
    list: Box<[Abbreviation]>,
    attributes: Box<[Attribute]>,
    steps: Box<[Step]>,
    /// Where each code stands, once codes were seen that do not simply count from 1.
    by_code: HashMap<u64, u32>,
}

/// Reads tables. Its lists are kept from one to the next.
#[derive(Debug, Default)]
pub(crate) struct AbbreviationParser {
    list: Vec<Abbreviation>,
    attributes: Vec<Attribute>,
    steps: Vec<Step>,
}

impl AbbreviationParser {
    /// Reads the table at the start of `bytes`.
    pub(crate) fn parse(
        &mut self,
        bytes: &[u8],
        encoding: Encoding,
        is_little_endian: bool,
        budget: &mut Budget,
    ) -> Result<Abbreviations> {
        let mut cursor = Cursor::new(bytes, is_little_endian);
        self.list.clear();
        self.attributes.clear();
        self.steps.clear();
        let mut by_code = HashMap::new();
        let forms = FormSteps::of(encoding);
        loop {
            let before = cursor.remaining();
            let code = cursor.uleb()?;
            if code == 0 {
                return Ok(Abbreviations {
                    list: self.list.as_slice().into(),
                    attributes: self.attributes.as_slice().into(),
                    steps: self.steps.as_slice().into(),
                    by_code,
                });
            }
            let abbreviation = self.abbreviation(&mut cursor, &forms)?;
            budget.charge(before.saturating_sub(cursor.remaining()) as u64)?;
            if code != self.list.len() as u64 + 1 || !by_code.is_empty() {
                let at = u32::try_from(self.list.len()).map_err(|_| Damaged)?;
                if by_code.is_empty() {
                    by_code = (0..at).map(|at| (u64::from(at) + 1, at)).collect();
                }
                by_code.entry(code).or_insert(at);
            }
            self.list.push(abbreviation);
        }
    }

    fn abbreviation(&mut self, cursor: &mut Cursor<'_>, forms: &FormSteps) -> Result<Abbreviation> {
        let tag = DwTag(u16::try_from(cursor.uleb()?).map_err(|_| Damaged)?);
        let has_children = cursor.u8()? != 0;
        let role = role(tag);
        let is_needed = role != Role::Other || is_unit(tag);
        let (first_attribute, first_step) = (self.attributes.len(), self.steps.len());
        let mut function = FunctionAttributes::default();
        let mut ends_with_sibling = false;
        // Bytes of values that stand together, passed over at once.
        let mut bytes = 0_u16;
        loop {
            let (name, form) = cursor.two_ulebs()?;
            if name == 0 && form == 0 {
                break;
            }
            let form = DwForm(u16::try_from(form).map_err(|_| Damaged)?);
            let constant = if form == gimli::DW_FORM_implicit_const { cursor.sleb()? } else { 0 };
            // Names beyond 16 bits are nothing that we know, nor are lines and files beyond 32.
            let (name, constant) = match (u16::try_from(name), u32::try_from(constant)) {
                (Ok(name), Ok(constant)) => (DwAt(name), constant),
                _ => (DwAt(0), 0),
            };
            ends_with_sibling = name == gimli::DW_AT_sibling && form == gimli::DW_FORM_ref4;
            // Most entries are none of these.
            if is_needed {
                self.attributes.push(Attribute { name, form, constant });
                if role == Role::Subprogram {
                    function.note(name, constant);
                }
            }
            match forms.get(form) {
                Step::Bytes(more) => match bytes.checked_add(more) {
                    Some(sum) => bytes = sum,
                    None => self.steps.push(Step::Bytes(std::mem::replace(&mut bytes, more))),
                },
                step => {
                    if bytes > 0 {
                        self.steps.push(Step::Bytes(std::mem::take(&mut bytes)));
                    }
                    self.steps.push(step);
                }
            }
        }
        if bytes > 0 {
            self.steps.push(Step::Bytes(bytes));
        }
        Ok(Abbreviation {
            tag,
            role,
            has_children,
            has_ranges: function.has_ranges,
            has_name: function.has_name,
            defines_by_name: function.defines_by_name(),
            ends_with_sibling,
            is_closed: is_closed(tag),
            attributes: Span::since(first_attribute, &self.attributes)?,
            steps: Span::since(first_step, &self.steps)?,
        })
    }
}

impl Abbreviations {
    /// The attributes of an entry; none for one that is only passed over.
    pub(crate) fn attributes(&self, abbreviation: &Abbreviation) -> &[Attribute] {
        abbreviation.attributes.of(&self.attributes)
    }

    /// Passes over the attributes of an entry.
    #[inline]
    pub(crate) fn skip(&self, abbreviation: &Abbreviation, cursor: &mut Cursor<'_>, encoding: Encoding) -> Result<()> {
        for step in abbreviation.steps.of(&self.steps) {
            skip_step(*step, cursor, encoding)?;
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn get(&self, code: u64) -> Result<&Abbreviation> {
        let at = if self.by_code.is_empty() {
            usize::try_from(code).ok().and_then(|code| code.checked_sub(1))
        } else {
            self.by_code.get(&code).map(|at| *at as usize)
        };
        at.and_then(|at| self.list.get(at)).ok_or(Damaged)
    }
}

/// What the attributes of functions' entries are.
#[derive(Default)]
struct FunctionAttributes {
    has_ranges: bool,
    has_name: bool,
    /// Declared alone, with a symbol that is not the name, or asked for as inline.
    is_known_otherwise: bool,
    is_external: bool,
    is_inlined: bool,
}

impl FunctionAttributes {
    fn note(&mut self, name: DwAt, constant: u32) {
        match name {
            gimli::DW_AT_low_pc | gimli::DW_AT_ranges => self.has_ranges = true,
            gimli::DW_AT_name => self.has_name = true,
            gimli::DW_AT_declaration | gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                self.is_known_otherwise = true;
            }
            gimli::DW_AT_external => self.is_external = true,
            // Compilers that write the value here say of 1 that the source does not ask for it. (DWARF 5, 3.3.8.1)
            gimli::DW_AT_inline if constant == u32::from(gimli::DW_INL_inlined.0) => self.is_inlined = true,
            gimli::DW_AT_inline => self.is_known_otherwise = true,
            _ => {}
        }
    }

    fn defines_by_name(&self) -> bool {
        self.has_name && !self.is_known_otherwise && !(self.is_external && self.is_inlined)
    }
}

fn role(tag: DwTag) -> Role {
    match tag {
        gimli::DW_TAG_subprogram => Role::Subprogram,
        gimli::DW_TAG_inlined_subroutine => Role::InlinedCall,
        gimli::DW_TAG_namespace
        | gimli::DW_TAG_module
        | gimli::DW_TAG_structure_type
        | gimli::DW_TAG_class_type
        | gimli::DW_TAG_union_type
        | gimli::DW_TAG_interface_type
        | gimli::DW_TAG_enumeration_type => Role::Scope,
        _ => Role::Other,
    }
}

fn is_closed(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_array_type
            | gimli::DW_TAG_subroutine_type
            | gimli::DW_TAG_call_site
            | gimli::DW_TAG_GNU_call_site
            | gimli::DW_TAG_GNU_formal_parameter_pack
    )
}

fn is_unit(tag: DwTag) -> bool {
    matches!(
        tag,
        gimli::DW_TAG_compile_unit | gimli::DW_TAG_partial_unit | gimli::DW_TAG_skeleton_unit | gimli::DW_TAG_type_unit
    )
}
