//! `DW_CFA_AARCH64_negate_ra_state_with_pc` (0x2c), which gimli does not know. It has no operands and turns the same bit as
//! `DW_CFA_AARCH64_negate_ra_state` (0x2d); what it says besides, that the address of the signing instruction is part of the
//! signature, matters to none who only takes the signature away. So it is read as the other. (AADWARF64, "Call frame instructions")
//!
//! Nor does gimli know the augmentation letters B, by which return addresses are signed with the second key, and G, by which frames are tagged.
//! They have no data and change no rule; they are taken out, and the entry is as long as before by an instruction without effect.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

const WITH_PC: u8 = 0x2c;
const WITHOUT: u8 = 0x2d;
const NOP: u8 = 0;

/// What of a common entry its frame entries are read with.
#[derive(Clone, Copy)]
struct Common {
    /// Bytes of an address; `None` for a form without a fixed size.
    pointer: Option<usize>,
    has_augmentation: bool,
}

/// What gimli is not to see.
#[derive(Default)]
struct Found {
    instructions: Vec<usize>,
    /// Where the letter is, and the end of its entry.
    letters: Vec<(usize, usize)>,
}

/// The section (little-endian, 64-bit addresses) without the instruction and the letters. Entries that cannot be read stay as they are.
pub(super) fn readable(section: &[u8], is_eh_frame: bool) -> Cow<'_, [u8]> {
    let mut found = Found::default();
    // The letters follow those that have data, or S.
    let has_letters = || section.array_windows().any(|pair| matches!(pair, [b'R' | b'S' | b'B', b'B' | b'G']));
    if section.contains(&WITH_PC) || has_letters() {
        let mut commons = BTreeMap::new();
        let mut at = 0;
        while let Some(next) = entry(section, at, is_eh_frame, &mut commons, &mut found) {
            at = next;
        }
    }
    if found.instructions.is_empty() && found.letters.is_empty() {
        return Cow::Borrowed(section);
    }
    let mut bytes = section.to_vec();
    for at in found.instructions {
        if let Some(byte) = bytes.get_mut(at) {
            *byte = WITHOUT;
        }
    }
    // Those of one entry from the last one on, so that none moves another.
    for (letter, end) in found.letters.into_iter().rev() {
        if let Some([_, rest @ ..]) = bytes.get(letter..end) {
            let rest = rest.to_vec();
            for (to, from) in bytes.iter_mut().skip(letter).zip(rest.into_iter().chain([NOP])) {
                *to = from;
            }
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
    found: &mut Found,
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
            let common = cursor.common(&mut found.letters)?;
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
        cursor.instructions(common, &mut found.instructions)
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
    fn common(&mut self, letters: &mut Vec<(usize, usize)>) -> Option<Common> {
        let version = self.byte()?;
        let start = self.at;
        let rest = self.bytes.get(self.at..)?;
        let augmentation = rest.get(..rest.iter().position(|byte| *byte == 0)?)?;
        self.skip(augmentation.len() + 1)?;
        let unknown = (start..).zip(augmentation).filter(|(_, letter)| matches!(letter, b'B' | b'G'));
        letters.extend(unknown.map(|(at, _)| (at, self.bytes.len())));
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
