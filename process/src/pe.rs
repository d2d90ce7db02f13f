//! As much of PE as tells where an image lies: headers and sections ("PE Format", Microsoft).
//!
//! Processes of Linux have such files mapped, too: .NET's runtime maps assemblies that were compiled ahead of time (ReadyToRun), each section at its place. What such a
//! file is called is not read here.

use symseal_module::Svma;

/// `MZ`, and where the offset of the PE header stands.
const DOS_HEADER_BYTES: usize = 64;
const PE_OFFSET: usize = 0x3c;
/// Signature and file header, up to the optional header.
const FILE_HEADER_BYTES: usize = 24;
/// As much of the optional header as is read: up to `SizeOfHeaders`, alike in both sizes but for the image base.
const OPTIONAL_HEADER_BYTES: usize = 64;
const PE32: u16 = 0x10b;
const PE32_PLUS: u16 = 0x20b;
const SECTION_BYTES: usize = 40;
/// The loader of Windows takes no more.
const MAX_SECTIONS: u16 = 96;
const PAGE: u64 = 4096;
/// `IMAGE_SCN_MEM_EXECUTE`
const EXECUTE: u32 = 0x2000_0000;

/// One section, or the headers before the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Part {
    /// Where its bytes are in the file, and how many.
    offset: u64,
    file_bytes: u64,
    rva: u64,
    is_code: bool,
}

/// Headers and sections of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeImage {
    base: Svma,
    image_bytes: u64,
    parts: Vec<Part>,
}

impl PeImage {
    /// Reads the headers; `None` where there are none, or none that say anything. `read(offset, out)` fills `out` from the file's byte `offset` on, or says false.
    pub fn read(mut read: impl FnMut(u64, &mut [u8]) -> bool) -> Option<Self> {
        let mut dos = [0; DOS_HEADER_BYTES];
        if !read(0, &mut dos) || !dos.starts_with(b"MZ") {
            return None;
        }
        let header_at = u64::from(u32_at(&dos, PE_OFFSET)?);
        let mut header = [0; FILE_HEADER_BYTES + OPTIONAL_HEADER_BYTES];
        if !read(header_at, &mut header) || !header.starts_with(b"PE\0\0") {
            return None;
        }
        let (sections, optional_bytes) = (u16_at(&header, 6)?, u16_at(&header, 20)?);
        let optional = header.get(FILE_HEADER_BYTES..)?;
        let base = match u16_at(optional, 0)? {
            PE32 => u64::from(u32_at(optional, 28)?),
            PE32_PLUS => u64::from(u32_at(optional, 24)?) | u64::from(u32_at(optional, 28)?) << 32,
            _ => return None,
        };
        let (image_bytes, header_bytes) = (u32_at(optional, 56)?, u32_at(optional, 60)?);
        if sections == 0 || sections > MAX_SECTIONS || usize::from(optional_bytes) < OPTIONAL_HEADER_BYTES {
            return None;
        }
        let mut table = vec![0; SECTION_BYTES * usize::from(sections)];
        if !read(header_at.checked_add(FILE_HEADER_BYTES as u64 + u64::from(optional_bytes))?, &mut table) {
            return None;
        }
        let headers = Part { offset: 0, file_bytes: header_bytes.into(), rva: 0, is_code: false };
        let sections = table.chunks_exact(SECTION_BYTES).map(part).collect::<Option<Vec<_>>>()?;
        let parts = std::iter::once(headers).chain(sections).collect();
        Some(Self { base: Svma(base), image_bytes: image_bytes.into(), parts })
    }

    /// The image base: the stated address of relative address 0.
    pub fn image_base(&self) -> Svma {
        self.base
    }

    /// The first stated address after the image, rounded up to a page.
    pub fn image_end(&self) -> Option<Svma> {
        Some(Svma(self.base.0.checked_add(self.image_bytes)?.checked_next_multiple_of(PAGE)?))
    }

    /// Actual minus stated address (wrapping) of an executable mapping that starts at `start` and maps the file from `offset` on. `None` where that is in no section, or
    /// where a section's file offset and address are not alike within a page: such a section can only be copied to its place.
    pub fn bias(&self, start: u64, offset: u64) -> Option<u64> {
        let holds =
            |part: &&Part| part.offset & !(PAGE - 1) <= offset && offset < part.offset.saturating_add(part.file_bytes);
        // Neighbouring sections may share the file page at their border; only one of them is code.
        let code = self.parts.iter().filter(holds).find(|part| part.is_code);
        let part = code.or_else(|| self.parts.iter().find(holds))?;
        let place = start.wrapping_sub(offset).wrapping_add(part.offset).wrapping_sub(part.rva);
        place.is_multiple_of(PAGE).then(|| place.wrapping_sub(self.base.0))
    }
}

fn part(header: &[u8]) -> Option<Part> {
    Some(Part {
        offset: u32_at(header, 20)?.into(),
        file_bytes: u32_at(header, 16)?.into(),
        rva: u32_at(header, 12)?.into(),
        is_code: u32_at(header, 36)? & EXECUTE != 0,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(bytes: &[u8]) -> Option<PeImage> {
        PeImage::read(|offset, out| {
            let from = usize::try_from(offset).ok().and_then(|from| bytes.get(from..)?.get(..out.len()));
            from.map(|from| out.copy_from_slice(from)).is_some()
        })
    }

    /// Sections: relative address, file offset, bytes, flags.
    fn image(sections: &[[u32; 4]]) -> Vec<u8> {
        let mut bytes = vec![0; DOS_HEADER_BYTES];
        bytes[..2].copy_from_slice(b"MZ");
        bytes[PE_OFFSET..].copy_from_slice(&64u32.to_le_bytes());
        bytes.extend(b"PE\0\0");
        bytes.extend(0xfd1du16.to_le_bytes());
        bytes.extend((sections.len() as u16).to_le_bytes());
        bytes.extend([0; 12]);
        bytes.extend(240u16.to_le_bytes());
        bytes.extend([0; 2]);
        let mut optional = [0; 240];
        optional[..2].copy_from_slice(&PE32_PLUS.to_le_bytes());
        optional[24..32].copy_from_slice(&0x1_8000_0000u64.to_le_bytes());
        optional[56..60].copy_from_slice(&0x8_e000u32.to_le_bytes());
        optional[60..64].copy_from_slice(&0x200u32.to_le_bytes());
        bytes.extend(optional);
        for [rva, offset, size, flags] in sections {
            bytes.extend([0; 8]);
            for field in [size, rva, size, offset] {
                bytes.extend(field.to_le_bytes());
            }
            bytes.extend([0; 12]);
            bytes.extend(flags.to_le_bytes());
        }
        bytes
    }

    /// As .NET's ahead-of-time compiler lays them out.
    const SECTIONS: [[u32; 4]; 2] =
        [[0x1_0200, 0x200, 0x2_3000, 0xc000_0040], [0x4_3200, 0x2_3200, 0x4_0000, 0x6000_0020]];

    #[test]
    fn the_bias_is_that_of_the_section_that_the_mapping_comes_from() {
        let image = read(&image(&SECTIONS)).unwrap();
        let loaded = 0x7f00_0000_0000u64;
        let expected = Some(loaded.wrapping_sub(0x1_8000_0000));
        assert_eq!(image.bias(loaded + 0x4_3000, 0x2_3000), expected, "the code, not the data in the same page");
        assert_eq!(image.bias(loaded + 0x4_4000, 0x2_4000), expected);
        assert_eq!(image.bias(loaded, 0), expected, "the headers");
        assert_eq!(image.bias(loaded + 0x4_3000, 0x9_0000), None);
        assert_eq!((image.image_base(), image.image_end()), (Svma(0x1_8000_0000), Some(Svma(0x1_8008_e000))));
    }

    #[test]
    fn a_section_that_cannot_be_mapped_to_its_place_tells_no_bias() {
        let image = read(&image(&[[0x2000, 0x400, 0x1_0000, 0x6000_0020]])).unwrap();
        assert_eq!(image.bias(0x7f00_0000_0000, 0x1000), None);
    }

    #[test]
    fn what_is_no_image_is_none() {
        let whole = image(&SECTIONS);
        assert!(read(&whole[..whole.len() - 1]).is_none());
        for at in [0, 64, 88] {
            let mut other = whole.clone();
            other[at] ^= 0x40;
            assert!(read(&other).is_none(), "{at}");
        }
        assert!(read(&image(&[])).is_none());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(edits in prop::collection::vec((0..400usize, any::<u8>()), 0..8), start: u64, offset: u64) {
            let mut bytes = image(&SECTIONS);
            for (at, byte) in edits {
                if let Some(place) = bytes.get_mut(at) {
                    *place = byte;
                }
            }
            if let Some(image) = read(&bytes) {
                let _ = (image.bias(start, offset), image.image_end());
            }
        }
    }
}
