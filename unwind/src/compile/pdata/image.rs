//! What a process has of the file, by relative address.

use alloc::vec::Vec;

/// The bytes that addresses in the exception directory lead to.
pub(super) struct Image<'a> {
    pub(super) base: u64,
    loaded: Parts<'a>,
    code: Parts<'a>,
}

impl<'a> Image<'a> {
    pub(super) fn new(base: u64, loaded: &[(u64, &'a [u8])], code: &[(u64, &'a [u8])]) -> Self {
        Self { base, loaded: Parts::new(loaded), code: Parts::new(code) }
    }

    /// What the file holds from `rva` on, up to the end of its section.
    pub(super) fn from(&self, rva: u32) -> Option<&'a [u8]> {
        self.loaded.from(self.base.checked_add(u64::from(rva))?)
    }

    /// The same of code, by stated address.
    pub(super) fn code_from(&self, svma: u64) -> Option<&'a [u8]> {
        self.code.from(svma)
    }
}

/// Sections by rising address: each entry of a directory asks for several places, and a file may have many sections.
struct Parts<'a>(Vec<(u64, &'a [u8])>);

impl<'a> Parts<'a> {
    fn new(sections: &[(u64, &'a [u8])]) -> Self {
        let mut parts = sections.to_vec();
        parts.sort_by_key(|(start, _)| *start);
        Self(parts)
    }

    fn from(&self, svma: u64) -> Option<&'a [u8]> {
        let at = self.0.partition_point(|(start, _)| *start <= svma).checked_sub(1)?;
        let (start, bytes) = self.0.get(at)?;
        let from = usize::try_from(svma.checked_sub(*start)?).ok()?;
        bytes.get(from..).filter(|bytes| !bytes.is_empty())
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk::<4>().copied()?))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk::<2>().copied()?))
}
