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

/// `DW_FORM_LLVM_addrx_offset`: an index as a LEB128, and four bytes of an offset. (LLVM, `-minimize-addr-in-v5=Form`)
pub(crate) const FORM_ADDRX_OFFSET: DwForm = DwForm(0x2001);

/// A value as stored; indexes and offsets are not followed yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Value<'d> {
    Address(u64),
    AddressIndex(u64),
    /// An index in the table of addresses, and how far behind that address.
    AddressBehind(u64, u64),
    /// What an expression gives.
    Expression(&'d [u8]),
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
#[inline]
pub(crate) fn read<'d>(cursor: &mut Cursor<'d>, attribute: &Attribute, encoding: Encoding) -> Result<Value<'d>> {
    let form = match attribute.form {
        gimli::DW_FORM_indirect => DwForm(u16::try_from(cursor.uleb()?).map_err(|_| Damaged)?),
        form => form,
    };
    // One decision for form and size: this is done for each attribute of each function.
    Ok(match form {
        // Signed constants of the attributes that we read are lines, files and offsets: never negative.
        gimli::DW_FORM_implicit_const => Value::Number(attribute.constant.into()),
        gimli::DW_FORM_flag_present => Value::Number(1),
        gimli::DW_FORM_data1 | gimli::DW_FORM_flag => Value::Number(cursor.unsigned(1)?),
        gimli::DW_FORM_data2 => Value::Number(cursor.unsigned(2)?),
        gimli::DW_FORM_data4 => Value::Number(cursor.unsigned(4)?),
        gimli::DW_FORM_data8 => Value::Number(cursor.unsigned(8)?),
        gimli::DW_FORM_data16 => {
            cursor.skip(16)?;
            Value::Other
        }
        gimli::DW_FORM_udata => Value::Number(cursor.uleb()?),
        gimli::DW_FORM_sdata => Value::Number(cursor.sleb()?.cast_unsigned()),
        gimli::DW_FORM_sec_offset => Value::Number(cursor.unsigned(encoding.offset_size)?),
        gimli::DW_FORM_addr => Value::Address(cursor.unsigned(encoding.address_size)?),
        gimli::DW_FORM_addrx1 => Value::AddressIndex(cursor.unsigned(1)?),
        gimli::DW_FORM_addrx2 => Value::AddressIndex(cursor.unsigned(2)?),
        gimli::DW_FORM_addrx3 => Value::AddressIndex(cursor.unsigned(3)?),
        gimli::DW_FORM_addrx4 => Value::AddressIndex(cursor.unsigned(4)?),
        gimli::DW_FORM_addrx | gimli::DW_FORM_GNU_addr_index => Value::AddressIndex(cursor.uleb()?),
        gimli::DW_FORM_ref1 => Value::UnitReference(cursor.unsigned(1)?),
        gimli::DW_FORM_ref2 => Value::UnitReference(cursor.unsigned(2)?),
        gimli::DW_FORM_ref4 => Value::UnitReference(cursor.unsigned(4)?),
        gimli::DW_FORM_ref8 => Value::UnitReference(cursor.unsigned(8)?),
        gimli::DW_FORM_ref_udata => Value::UnitReference(cursor.uleb()?),
        // DWARF 2 gave references the size of an address.
        gimli::DW_FORM_ref_addr if encoding.version <= 2 => {
            Value::InfoReference(cursor.unsigned(encoding.address_size)?)
        }
        gimli::DW_FORM_ref_addr => Value::InfoReference(cursor.unsigned(encoding.offset_size)?),
        gimli::DW_FORM_ref_sig8 => Value::TypeSignature(cursor.unsigned(8)?),
        gimli::DW_FORM_ref_sup4 => Value::SupplementaryReference(cursor.unsigned(4)?),
        gimli::DW_FORM_ref_sup8 => Value::SupplementaryReference(cursor.unsigned(8)?),
        gimli::DW_FORM_GNU_ref_alt => Value::SupplementaryReference(cursor.unsigned(encoding.offset_size)?),
        gimli::DW_FORM_strp => Value::StrOffset(cursor.unsigned(encoding.offset_size)?),
        gimli::DW_FORM_line_strp => Value::LineStrOffset(cursor.unsigned(encoding.offset_size)?),
        gimli::DW_FORM_strp_sup | gimli::DW_FORM_GNU_strp_alt => {
            Value::SupplementaryText(cursor.unsigned(encoding.offset_size)?)
        }
        gimli::DW_FORM_strx1 => Value::StrIndex(cursor.unsigned(1)?),
        gimli::DW_FORM_strx2 => Value::StrIndex(cursor.unsigned(2)?),
        gimli::DW_FORM_strx3 => Value::StrIndex(cursor.unsigned(3)?),
        gimli::DW_FORM_strx4 => Value::StrIndex(cursor.unsigned(4)?),
        gimli::DW_FORM_strx | gimli::DW_FORM_GNU_str_index => Value::StrIndex(cursor.uleb()?),
        gimli::DW_FORM_string => Value::Text(cursor.text()?),
        gimli::DW_FORM_rnglistx => Value::RangeListIndex(cursor.uleb()?),
        gimli::DW_FORM_loclistx => {
            cursor.skip_leb()?;
            Value::Other
        }
        gimli::DW_FORM_block1 => block(cursor, Some(1))?,
        gimli::DW_FORM_block2 => block(cursor, Some(2))?,
        gimli::DW_FORM_block4 => block(cursor, Some(4))?,
        gimli::DW_FORM_block => block(cursor, None)?,
        gimli::DW_FORM_exprloc => {
            let length = usize::try_from(cursor.uleb()?).map_err(|_| Damaged)?;
            Value::Expression(cursor.bytes(length)?)
        }
        FORM_ADDRX_OFFSET => {
            let index = cursor.uleb()?;
            Value::AddressBehind(index, cursor.unsigned(4)?)
        }
        _ => return Err(Damaged),
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
