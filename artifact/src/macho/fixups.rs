//! Pointers that the loader sets while it walks chains through a file's pages: in the file such a word holds where it points
//! to in some bits, and the way to the next one in others. (`mach-o/fixup-chains.h`)

use super::headers::Macho;
use crate::headers::ObjectHeaders;
use crate::proportion::most_bytes;

/// `DYLD_CHAINED_PTR_*`: how a word's bits are used. The forms for words of 32 bits are not read.
mod form {
    pub(super) const ARM64E: u16 = 1;
    pub(super) const PTR_64: u16 = 2;
    pub(super) const PTR_64_OFFSET: u16 = 6;
    pub(super) const ARM64E_KERNEL: u16 = 7;
    pub(super) const ARM64E_USERLAND: u16 = 9;
    pub(super) const ARM64E_USERLAND24: u16 = 12;
}

/// `DYLD_CHAINED_PTR_START_NONE`: a page without such words.
const NO_START: u16 = 0xffff;

/// Addresses and values of the words that point into the file itself, sorted by address if the chains are sound. A damaged
/// chain ends early.
pub(super) fn relocated_words(macho: &Macho<'_>) -> Vec<(u64, u64)> {
    let mut parts = macho.loaded();
    parts.sort_by_key(|part| part.0);
    let bytes: u64 = parts.iter().map(|part| part.1.len() as u64).sum();
    let bytes = bytes.min(most_bytes(macho.file_bytes()));
    // A sound chain has each word once; the narrowest step is four bytes.
    let mut walk = Walk { macho, parts, left: bytes / 4, found: Vec::new() };
    // What was found before the damage stands.
    let _: Option<()> = walk.run();
    walk.found
}

struct Walk<'m, 'd> {
    macho: &'m Macho<'d>,
    /// Stated address and bytes, sorted.
    parts: Vec<(u64, &'d [u8])>,
    /// Words that may still be looked at.
    left: u64,
    found: Vec<(u64, u64)>,
}

impl Walk<'_, '_> {
    fn run(&mut self) -> Option<()> {
        let fields = self.macho.fields(self.macho.chained_fixups);
        // `dyld_chained_fixups_header`, then `dyld_chained_starts_in_image`.
        let image = fields.u32(4)? as usize;
        let count = (fields.u32(image)? as usize).min(self.macho.segments.len());
        for number in 0..count {
            let offset = fields.u32(image.checked_add(4 + 4 * number)?)? as usize;
            if offset == 0 {
                continue;
            }
            // `dyld_chained_starts_in_segment`.
            let segment = image.checked_add(offset)?;
            let at = |field: usize| segment.checked_add(field);
            let (page_size, form) = (fields.u16(at(4)?)?, fields.u16(at(6)?)?);
            let start = self.macho.image_base().checked_add(fields.u64(at(8)?)?)?;
            for page in 0..fields.u16(at(20)?)? {
                let first = fields.u16(at(22 + 2 * usize::from(page))?)?;
                if first != NO_START {
                    let page = start.checked_add(u64::from(page) * u64::from(page_size))?;
                    self.chain(form, page.checked_add(first.into())?)?;
                }
            }
        }
        Some(())
    }

    fn chain(&mut self, form: u16, first: u64) -> Option<()> {
        let mut svma = first;
        loop {
            self.left = self.left.checked_sub(1)?;
            let word = self.word(svma)?;
            if let Some(value) = self.target(form, word)? {
                self.found.push((svma, value));
            }
            let (bits, step) = match form {
                form::PTR_64 | form::PTR_64_OFFSET => (0xfff, 4),
                form::ARM64E_KERNEL => (0x7ff, 4),
                _ => (0x7ff, 8),
            };
            let distance = (word >> 51 & bits) * step;
            if distance == 0 {
                return Some(());
            }
            svma = svma.checked_add(distance)?;
        }
    }

    /// Where the word points to, unless that is in another file. None for a form that is not known.
    fn target(&self, form: u16, word: u64) -> Option<Option<u64>> {
        let from_base = |offset: u64| self.macho.image_base().checked_add(offset);
        let high = |bit: u32| (word >> bit & 0xff) << 56;
        let is_set = |bit: u32| word >> bit & 1 == 1;
        Some(match form {
            form::PTR_64 | form::PTR_64_OFFSET if is_set(63) => None,
            form::PTR_64 => Some(word & 0xf_ffff_ffff | high(36)),
            form::PTR_64_OFFSET => from_base(word & 0xf_ffff_ffff).map(|target| target | high(36)),
            form::ARM64E | form::ARM64E_KERNEL | form::ARM64E_USERLAND | form::ARM64E_USERLAND24 => {
                match (is_set(63), is_set(62)) {
                    (_, true) => None,
                    // Signed: what is signed with takes the place of the upper bits.
                    (true, _) => from_base(word & 0xffff_ffff),
                    _ if form == form::ARM64E => Some(word & 0x7ff_ffff_ffff | high(43)),
                    _ => from_base(word & 0x7ff_ffff_ffff).map(|target| target | high(43)),
                }
            }
            _ => return None,
        })
    }

    fn word(&self, svma: u64) -> Option<u64> {
        let behind = self.parts.partition_point(|part| part.0 <= svma);
        let (start, bytes) = self.parts.get(behind.checked_sub(1)?)?;
        self.macho.fields(bytes).u64(usize::try_from(svma - start).ok()?)
    }
}
