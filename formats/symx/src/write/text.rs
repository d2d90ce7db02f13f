//! A string section: every string once, in the order of first use.

use super::phrases::Coder;
use crate::varint::put;
use crate::{StrId, Strings, WriteError};
use alloc::vec;
use alloc::vec::Vec;

/// Strings given offsets as they are used.
pub(super) struct Text<'a> {
    strings: &'a Strings,
    /// Offset of each string by its number; 0 = not yet used, for offset 0 is the empty string's.
    offsets: Vec<u32>,
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
    /// Puts strings in phrases; `None` where they are whole.
    pub(super) coder: Option<Coder>,
    /// The codes of a string.
    coded: Vec<u8>,
}

impl<'a> Text<'a> {
    pub(super) fn new(strings: &'a Strings, coder: Option<Coder>) -> Self {
        Self { strings, offsets: vec![0; strings.len()], bytes: vec![0], count: 1, coder, coded: Vec::new() }
    }

    /// Where the string lies in the section; it is put there on first use.
    #[inline]
    pub(super) fn offset(&mut self, id: StrId) -> Result<u32, WriteError> {
        match self.offsets.get(id.0 as usize) {
            None => Ok(0),
            // Most texts were used before, so that they need not be looked at.
            Some(0) => self.put(id),
            Some(offset) => Ok(*offset),
        }
    }

    #[inline(never)]
    fn put(&mut self, id: StrId) -> Result<u32, WriteError> {
        let text = self.strings.get(id);
        if text.is_empty() {
            return Ok(0);
        }
        let offset = u32::try_from(self.bytes.len()).map_err(|_| WriteError::TooMany { what: "bytes of strings" })?;
        let stored = match &self.coder {
            None => text.as_bytes(),
            Some(coder) => {
                self.coded.clear();
                coder.code(text.as_bytes(), &mut self.coded);
                &self.coded
            }
        };
        put(&mut self.bytes, stored.len() as u64);
        self.bytes.extend(stored);
        self.count += 1;
        if let Some(slot) = self.offsets.get_mut(id.0 as usize) {
            *slot = offset;
        }
        Ok(offset)
    }
}
