//! An image that a process has mapped, of either format.

use symseal_module::{DebugId, Svma};

use crate::{ElfImage, PeImage, Segment};

/// What an image's headers tell of where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Image {
    Elf(ElfImage),
    Pe(PeImage),
}

impl Image {
    /// Reads the headers; `None` where they are of neither format. `read(offset, out)` fills `out` from the file's byte `offset` on, or says false.
    pub(crate) fn read(mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<Self> {
        let elf = ElfImage::read(&mut read).ok().map(Self::Elf);
        elf.or_else(|| PeImage::read(read).map(Self::Pe))
    }

    /// [`ElfImage::image_base`]
    pub(crate) fn image_base(&self) -> Svma {
        match self {
            Self::Elf(image) => image.image_base(),
            Self::Pe(image) => image.image_base(),
        }
    }

    /// [`ElfImage::image_end`]
    pub(crate) fn image_end(&self) -> Option<Svma> {
        match self {
            Self::Elf(image) => image.image_end(),
            Self::Pe(image) => image.image_end(),
        }
    }

    /// [`ElfImage::bias`]
    pub(crate) fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        match self {
            Self::Elf(image) => image.bias(start, offset),
            Self::Pe(image) => image.bias(start, offset),
        }
    }

    /// [`ElfImage::build_id`]; what a PE file is called its own bytes tell whoever reads the whole file.
    pub(crate) fn build_id(&self, read: impl FnMut(&Segment, &mut [u8]) -> bool) -> Option<DebugId> {
        match self {
            Self::Elf(image) => image.build_id(read),
            Self::Pe(_) => None,
        }
    }
}
