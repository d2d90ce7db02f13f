//! Values of attributes. (DWARF 5, 7.5.5 and 7.5.6)

use super::abbrev::Attribute;
use crate::cursor::{Cursor, Damaged, Result};
use gimli::DwForm;

/// What the sizes of forms depend on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Encoding {
    pub(crate) version: u16,
    pub(crate) address_size: u8,
    /// 4 in the 32-bit format, 8 in the 64-bit format.
    pub(crate) offset_size: u8,
}

impl Encoding {
    pub(crate) fn gimli(self) -> gimli::Encoding {
        let format = if self.offset_size == 8 { gimli::Format::Dwarf64 } else { gimli::Format::Dwarf32 };
        gimli::Encoding { address_size: self.address_size, format, version: self.version }
    }
}

/// A value as stored; indexes and offsets are not followed yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value<'d> {
    Address(u64),
    AddressIndex(u64),
    /// Constants, flags and section offsets.
    Number(u64),
    RangeListIndex(u64),
    /// Offset in the unit.
    UnitReference(u64),
    /// Offset in `.debug_info`.
    InfoReference(u64),
    Text(&'d [u8]),
    /// Offset in `.debug_str`.
    StrOffset(u64),
    /// Offset in `.debug_line_str`.
    LineStrOffset(u64),
    /// Index in `.debug_str_offsets`.
    StrIndex(u64),
    /// Signature of a type unit.
    TypeSignature(u64),
    /// Offset in `.debug_info` of the supplementary file.
    SupplementaryReference(u64),
    /// Offset in `.debug_str` of the supplementary file.
    SupplementaryText(u64),
    /// Of no use here.
    Other,
}

/// Bytes of a value of that form, where they are always as many.
pub(crate) fn fixed_size(form: DwForm, encoding: Encoding) -> Option<u8> {
    Some(match form {
        gimli::DW_FORM_flag_present | gimli::DW_FORM_implicit_const => 0,
        gimli::DW_FORM_data1
        | gimli::DW_FORM_flag
        | gimli::DW_FORM_ref1
        | gimli::DW_FORM_strx1
        | gimli::DW_FORM_addrx1 => 1,
        gimli::DW_FORM_data2 | gimli::DW_FORM_ref2 | gimli::DW_FORM_strx2 | gimli::DW_FORM_addrx2 => 2,
        gimli::DW_FORM_strx3 | gimli::DW_FORM_addrx3 => 3,
        gimli::DW_FORM_data4
        | gimli::DW_FORM_ref4
        | gimli::DW_FORM_strx4
        | gimli::DW_FORM_addrx4
        | gimli::DW_FORM_ref_sup4 => 4,
        gimli::DW_FORM_data8 | gimli::DW_FORM_ref8 | gimli::DW_FORM_ref_sig8 | gimli::DW_FORM_ref_sup8 => 8,
        gimli::DW_FORM_data16 => 16,
        gimli::DW_FORM_addr => encoding.address_size,
        // DWARF 2 gave references the size of an address.
        gimli::DW_FORM_ref_addr if encoding.version <= 2 => encoding.address_size,
        gimli::DW_FORM_ref_addr
        | gimli::DW_FORM_sec_offset
        | gimli::DW_FORM_strp
        | gimli::DW_FORM_line_strp
        | gimli::DW_FORM_strp_sup
        | gimli::DW_FORM_GNU_ref_alt
        | gimli::DW_FORM_GNU_strp_alt => encoding.offset_size,
        _ => return None,
    })
}

/// The attribute's value at the cursor.
pub(crate) fn read<'d>(cursor: &mut Cursor<'d>, attribute: &Attribute, encoding: Encoding) -> Result<Value<'d>> {
    let mut form = attribute.form;
    if form == gimli::DW_FORM_indirect {
        form = DwForm(u16::try_from(cursor.uleb()?).map_err(|_| Damaged)?);
    }
    if form == gimli::DW_FORM_implicit_const {
        // Signed constants of the attributes that we read are lines, files and offsets: never negative.
        return Ok(Value::Number(attribute.constant.cast_unsigned()));
    }
    if let Some(size) = fixed_size(form, encoding) {
        return fixed(cursor, form, size);
    }
    Ok(match form {
        gimli::DW_FORM_udata => Value::Number(cursor.uleb()?),
        gimli::DW_FORM_sdata => Value::Number(cursor.sleb()?.cast_unsigned()),
        gimli::DW_FORM_ref_udata => Value::UnitReference(cursor.uleb()?),
        gimli::DW_FORM_strx | gimli::DW_FORM_GNU_str_index => Value::StrIndex(cursor.uleb()?),
        gimli::DW_FORM_addrx | gimli::DW_FORM_GNU_addr_index => Value::AddressIndex(cursor.uleb()?),
        gimli::DW_FORM_rnglistx => Value::RangeListIndex(cursor.uleb()?),
        gimli::DW_FORM_loclistx => {
            cursor.skip_leb()?;
            Value::Other
        }
        gimli::DW_FORM_string => Value::Text(cursor.text()?),
        gimli::DW_FORM_block1 => block(cursor, Some(1))?,
        gimli::DW_FORM_block2 => block(cursor, Some(2))?,
        gimli::DW_FORM_block4 => block(cursor, Some(4))?,
        gimli::DW_FORM_block | gimli::DW_FORM_exprloc => block(cursor, None)?,
        _ => return Err(Damaged),
    })
}

fn fixed<'d>(cursor: &mut Cursor<'d>, form: DwForm, size: u8) -> Result<Value<'d>> {
    if size == 0 {
        return Ok(Value::Number(1));
    }
    if size > 8 {
        cursor.skip(usize::from(size))?;
        return Ok(Value::Other);
    }
    let number = cursor.unsigned(size)?;
    Ok(match form {
        gimli::DW_FORM_addr => Value::Address(number),
        gimli::DW_FORM_addrx1 | gimli::DW_FORM_addrx2 | gimli::DW_FORM_addrx3 | gimli::DW_FORM_addrx4 => {
            Value::AddressIndex(number)
        }
        gimli::DW_FORM_ref1 | gimli::DW_FORM_ref2 | gimli::DW_FORM_ref4 | gimli::DW_FORM_ref8 => {
            Value::UnitReference(number)
        }
        gimli::DW_FORM_ref_addr => Value::InfoReference(number),
        gimli::DW_FORM_strp => Value::StrOffset(number),
        gimli::DW_FORM_line_strp => Value::LineStrOffset(number),
        gimli::DW_FORM_strx1 | gimli::DW_FORM_strx2 | gimli::DW_FORM_strx3 | gimli::DW_FORM_strx4 => {
            Value::StrIndex(number)
        }
        gimli::DW_FORM_ref_sup4 | gimli::DW_FORM_ref_sup8 | gimli::DW_FORM_GNU_ref_alt => {
            Value::SupplementaryReference(number)
        }
        gimli::DW_FORM_strp_sup | gimli::DW_FORM_GNU_strp_alt => Value::SupplementaryText(number),
        gimli::DW_FORM_ref_sig8 => Value::TypeSignature(number),
        _ => Value::Number(number),
    })
}

fn block<'d>(cursor: &mut Cursor<'d>, size: Option<u8>) -> Result<Value<'d>> {
    let length = match size {
        Some(size) => cursor.unsigned(size)?,
        None => cursor.uleb()?,
    };
    cursor.skip(usize::try_from(length).map_err(|_| Damaged)?)?;
    Ok(Value::Other)
}
