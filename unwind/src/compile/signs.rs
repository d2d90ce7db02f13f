//! `DW_CFA_AARCH64_negate_ra_state_with_pc` (0x2c), which gimli does not know. It has no operands and turns the same bit as
//! `DW_CFA_AARCH64_negate_ra_state` (0x2d); what it says besides, that the address of the signing instruction is part of the
//! signature, matters to none who only takes the signature away. So it is read as the other. (AADWARF64, "Call frame instructions")

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const WITH_PC: u8 = 0x2c;
const WITHOUT: u8 = 0x2d;

/// What of a common entry its frame entries are read with.
#[derive(Clone, Copy)]
struct Common {
    /// Bytes of an address; `None` for a form without a fixed size.
    pointer: Option<usize>,
    has_augmentation: bool,
}

/// The section (little-endian, 64-bit addresses) without the instruction. Entries that cannot be read stay as they are.
pub(super) fn without_pc(section: &[u8], is_eh_frame: bool) -> Cow<'_, [u8]> {
    let mut found = Vec::new();
    if section.contains(&WITH_PC) {
        let mut commons = BTreeMap::new();
        let mut at = 0;
        while let Some(next) = entry(section, at, is_eh_frame, &mut commons, &mut found) {
            at = next;
        }
    }
    if found.is_empty() {
        return Cow::Borrowed(section);
    }
    let mut bytes = section.to_vec();
    for at in found {
        if let Some(byte) = bytes.get_mut(at) {
            *byte = WITHOUT;
        }
    }
    Cow::Owned(bytes)
}

/// Looks through the entry at `at`, and gives where the next one begins.
fn entry(
    section: &[u8],
    at: usize,
    is_eh_frame: bool,
    commons: &mut BTreeMap<usize, Common>,
    found: &mut Vec<usize>,
) -> Option<usize> {
    let mut head = Cursor { bytes: section, at };
    let length = u32::from_le_bytes(*head.chunk()?);
    let is_64_bit = length == u32::MAX;
    let length = if is_64_bit { usize::try_from(u64::from_le_bytes(*head.chunk()?)).ok()? } else { length as usize };
    let body = head.at;
    let end = body.checked_add(length).filter(|end| *end <= section.len())?;
    let mut cursor = Cursor { bytes: section.get(..end)?, at: body };
    let scanned = (|| {
        let id = if is_64_bit && !is_eh_frame {
            u64::from_le_bytes(*cursor.chunk()?)
        } else {
            let id = u32::from_le_bytes(*cursor.chunk()?);
            if !is_eh_frame && id == u32::MAX { u64::MAX } else { id.into() }
        };
        let common = if id == if is_eh_frame { 0 } else { u64::MAX } {
            let common = cursor.common()?;
            commons.insert(at, common);
            common
        } else {
            let id = usize::try_from(id).ok()?;
            let common = *commons.get(&if is_eh_frame { body.checked_sub(id)? } else { id })?;
            cursor.skip(2 * common.pointer?)?;
            if common.has_augmentation {
                let length = cursor.uleb()?;
                cursor.skip(length)?;
            }
            common
        };
        cursor.instructions(common, found)
    })();
    // Whatever this entry is, the next one has a chance.
    let _: Option<()> = scanned;
    Some(end)
}

struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    fn chunk<const N: usize>(&mut self) -> Option<&'b [u8; N]> {
        let chunk = self.bytes.get(self.at..)?.first_chunk::<N>()?;
        self.at += N;
        Some(chunk)
    }

    fn byte(&mut self) -> Option<u8> {
        self.chunk::<1>().map(|[byte]| *byte)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.at = self.at.checked_add(bytes).filter(|at| *at <= self.bytes.len())?;
        Some(())
    }

    /// A number in LEB128, which may be signed where its value does not matter.
    fn uleb(&mut self) -> Option<usize> {
        let mut value = 0usize;
        for shift in (0..).step_by(7) {
            let byte = self.byte()?;
            value |= usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A common entry from its version on.
    fn common(&mut self) -> Option<Common> {
        let version = self.byte()?;
        let rest = self.bytes.get(self.at..)?;
        let augmentation = rest.get(..rest.iter().position(|byte| *byte == 0)?)?;
        self.skip(augmentation.len() + 1)?;
        if version >= 4 {
            self.skip(2)?;
        }
        self.uleb()?;
        self.uleb()?;
        if version == 1 {
            self.skip(1)?
        } else {
            self.uleb().map(drop)?
        }
        let mut common = Common { pointer: Some(8), has_augmentation: augmentation.first() == Some(&b'z') };
        if common.has_augmentation {
            let length = self.uleb()?;
            let end = self.at.checked_add(length)?;
            for letter in augmentation.iter().skip(1) {
                match letter {
                    b'R' => common.pointer = pointer_bytes(self.byte()?),
                    b'P' => {
                        let bytes = pointer_bytes(self.byte()?)?;
                        self.skip(bytes)?;
                    }
                    b'L' => self.skip(1)?,
                    _ => {}
                }
            }
            self.at = end;
        }
        Some(common)
    }

    /// Notes where the instruction is, up to one that is not known or to the end.
    fn instructions(&mut self, common: Common, found: &mut Vec<usize>) -> Option<()> {
        while self.at < self.bytes.len() {
            let at = self.at;
            let numbers = match self.byte()? {
                WITH_PC => {
                    found.push(at);
                    0
                }
                0x40..=0x7f | 0xc0.. | 0x00 | 0x0a | 0x0b | WITHOUT => 0,
                0x80..=0xbf | 0x06..=0x08 | 0x0d | 0x0e | 0x13 | 0x2e => 1,
                0x05 | 0x09 | 0x0c | 0x11 | 0x12 | 0x14 | 0x15 | 0x2f => 2,
                0x01 => {
                    self.skip(common.pointer?)?;
                    0
                }
                advance @ 0x02..=0x04 => {
                    self.skip(1 << (advance - 2))?;
                    0
                }
                block @ (0x0f | 0x10 | 0x16) => {
                    if block != 0x0f {
                        self.uleb()?;
                    }
                    let length = self.uleb()?;
                    self.skip(length)?;
                    0
                }
                _ => return None,
            };
            for _ in 0..numbers {
                self.uleb()?;
            }
        }
        Some(())
    }
}

/// Bytes of a pointer of this encoding. (LSB, "DWARF Exception Header Encoding")
fn pointer_bytes(encoding: u8) -> Option<usize> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x02 | 0x0a => Some(2),
        0x03 | 0x0b => Some(4),
        _ => None,
    }
}
