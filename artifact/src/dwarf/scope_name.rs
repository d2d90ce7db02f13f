//! What an entry says of the name of the scope that it opens. (DWARF 5, 2.13.2, 3.2.2, 5.7.1 and 5.7.2)

use super::abbrev::Abbreviation;
use super::unit::Unit;
use super::value::{self, Value};
use crate::budget::Budget;
use crate::cursor::Result;
use crate::escaped;
use std::borrow::Cow;

/// The name of a scope, or where it stands. Followed only for functions that are named.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ScopeName<T> {
    Text(T),
    /// It is that of the entry at this place: of the declaration, or of the namespace that is extended.
    Entry(u64),
    /// It is that of the type in the type unit of this signature.
    Type(u64),
    /// In a file that is not there, or damaged. Not the same as none: an anonymous scope's text says that it is one.
    Unknown,
}

impl<T> ScopeName<T> {
    /// With the text turned into another form of it.
    pub(crate) fn map<U>(self, form: impl FnOnce(T) -> U) -> ScopeName<U> {
        match self {
            Self::Text(text) => ScopeName::Text(form(text)),
            Self::Entry(entry) => ScopeName::Entry(entry),
            Self::Type(signature) => ScopeName::Type(signature),
            Self::Unknown => ScopeName::Unknown,
        }
    }
}

/// What a scope's entry says.
pub(crate) struct SaidOfScope<'s> {
    pub(crate) name: ScopeName<Cow<'s, str>>,
    /// Place of the declaration that has the outer scopes.
    pub(crate) declaration: Option<u64>,
}

/// Reads the entry at this place of the unit.
pub(crate) fn said_of_scope<'s>(unit: &Unit<'s>, entry: u64, budget: &mut Budget) -> Result<SaidOfScope<'s>> {
    let mut cursor = unit.cursor_at(entry)?;
    let abbreviation = unit.abbreviations.get(cursor.uleb()?)?;
    let attributes = unit.abbreviations.attributes(abbreviation);
    budget.charge(attributes.len() as u64 + 1)?;
    let at = |place: Option<u64>| place.map_or(ScopeName::Unknown, ScopeName::Entry);
    let (mut own, mut declared, mut of_other) = (None, None, None);
    for attribute in attributes {
        let value = value::read(&mut cursor, attribute, unit.header.encoding)?;
        match attribute.name {
            gimli::DW_AT_name => own = Some(unit.text(value)),
            gimli::DW_AT_specification => declared = Some(unit.reference(value)),
            gimli::DW_AT_extension | gimli::DW_AT_abstract_origin => of_other = Some(at(unit.reference(value))),
            gimli::DW_AT_signature => {
                of_other = Some(match value {
                    Value::TypeSignature(signature) => ScopeName::Type(signature),
                    value => at(unit.reference(value)),
                });
            }
            _ => {}
        }
    }
    let name = match (own, declared) {
        // Nobody knows then what is around it either.
        (_, Some(None)) | (Some(None), _) => ScopeName::Unknown,
        (Some(Some(name)), _) => {
            budget.charge(name.len() as u64)?;
            ScopeName::Text(escaped(name))
        }
        (None, Some(declaration)) => at(declaration),
        (None, None) => of_other.unwrap_or_else(|| ScopeName::Text(anonymous(abbreviation).into())),
    };
    Ok(SaidOfScope { name, declaration: declared.flatten() })
}

fn anonymous(abbreviation: &Abbreviation) -> &'static str {
    match abbreviation.tag {
        gimli::DW_TAG_namespace => "(anonymous namespace)",
        gimli::DW_TAG_class_type => "(anonymous class)",
        gimli::DW_TAG_union_type => "(anonymous union)",
        gimli::DW_TAG_enumeration_type => "(anonymous enum)",
        _ => "(anonymous struct)",
    }
}
