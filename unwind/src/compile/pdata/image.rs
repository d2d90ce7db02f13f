//! What a process has of the file, by relative address.

/// The bytes that addresses in the exception directory lead to.
pub(super) struct Image<'a> {
    pub(super) base: u64,
    pub(super) loaded: &'a [(u64, &'a [u8])],
    pub(super) code: &'a [(u64, &'a [u8])],
}

impl<'a> Image<'a> {
    /// What the file holds from `rva` on, up to the end of its section.
    pub(super) fn from(&self, rva: u32) -> Option<&'a [u8]> {
        Self::find(self.loaded, self.base.checked_add(u64::from(rva))?)
    }

    /// The same of code, by stated address.
    pub(super) fn code_from(&self, svma: u64) -> Option<&'a [u8]> {
        Self::find(self.code, svma)
    }

    fn find(sections: &'a [(u64, &'a [u8])], svma: u64) -> Option<&'a [u8]> {
        sections.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(svma.checked_sub(*start)?).ok()?;
            bytes.get(from..).filter(|bytes| !bytes.is_empty())
        })
    }
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk::<4>().copied()?))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk::<2>().copied()?))
}
