//! An archive that was appended to a program: self-extracting zips and installers, AppImages.
//!
//! A loader maps what the headers of an object file name, and does not ask what stands behind that. So the end of the object file is taken
//! from its headers, and what begins there is looked at; a zip is found from its own end.

use object::elf::{FileHeader32, FileHeader64, SHT_NOBITS};
use object::endian::LittleEndian as LE;
use object::pe::{IMAGE_DIRECTORY_ENTRY_SECURITY, ImageDosHeader, ImageNtHeaders32, ImageNtHeaders64};
use object::read::elf::{ProgramHeader as _, SectionHeader as _};
use object::read::pe::{ImageNtHeaders, ImageOptionalHeader as _};
use object::{Endianness, FileKind};

use super::kind::{ArchiveKind, DISK_TRAILER_BYTES, IMAGE_START_BYTES, archive_kind, unread_archive, unread_image};

/// What stands behind an object file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveBehind {
    /// A zip, which [`Source::Behind`](super::Source::Behind) reads.
    Zip,
    /// What is not read: its usual name, for people.
    Unread(&'static str),
}

/// What is looked at behind the object file, in bytes: archives begin there, behind zeros that fill a block at most, and some behind a few lines of
/// settings.
const LOOKED_AT: usize = 8 << 10;
/// The last record of a zip without its comment, and the longest comment. (APPNOTE 6.3.10, 4.3.16)
const ZIP_END_BYTES: usize = 22;
const ZIP_COMMENT_BYTES: usize = 0xffff;
/// Where the first bytes of an ELF header, which the format leaves empty, say that the file is an AppImage, and of which type. (AppImage
/// specification, "The AppImage file format")
const APPIMAGE_SIGN_AT: usize = 8;
const APPIMAGE_SIGN: &[u8] = b"AI\x01";

/// The archive behind the ELF or PE file that these bytes begin with, if it is of a known kind. `None` too where headers are damaged.
pub fn archive_behind(bytes: &[u8]) -> Option<ArchiveBehind> {
    let appimage_of_disc = bytes.get(APPIMAGE_SIGN_AT..).is_some_and(|rest| rest.starts_with(APPIMAGE_SIGN));
    let (end, stop) = match FileKind::parse(bytes).ok()? {
        // The image of a disc begins with the file itself.
        FileKind::Elf32 | FileKind::Elf64 if appimage_of_disc && has_disc_sign(bytes) => {
            return Some(ArchiveBehind::Unread("an image of a disc (AppImage)"));
        }
        FileKind::Elf32 => (elf_end::<FileHeader32<Endianness>>(bytes)?, bytes.len()),
        FileKind::Elf64 => (elf_end::<FileHeader64<Endianness>>(bytes)?, bytes.len()),
        FileKind::Pe32 => pe_end::<ImageNtHeaders32>(bytes)?,
        FileKind::Pe64 => pe_end::<ImageNtHeaders64>(bytes)?,
        _ => return None,
    };
    let behind = bytes.get(end..stop).filter(|behind| !behind.is_empty())?;
    if ends_as_zip(behind) {
        return Some(ArchiveBehind::Zip);
    }
    known(behind).map(ArchiveBehind::Unread)
}

/// What begins behind the object file.
fn known(behind: &[u8]) -> Option<&'static str> {
    let looked_at = behind.get(..LOOKED_AT).unwrap_or(behind);
    let start = looked_at.iter().position(|byte| *byte != 0)?;
    let head = behind.get(start..)?;
    unread_archive(head)
        .or_else(|| archive_kind(head).map(name))
        .or_else(|| {
            let sevenzip = looked_at.windows(SEVEN_ZIP.len()).any(|window| window == SEVEN_ZIP);
            sevenzip.then_some("a 7z archive")
        })
        // Its flags may be zeros.
        .or_else(|| {
            looked_at.windows(NULLSOFT.len()).any(|window| window == NULLSOFT).then_some("an installer of NSIS")
        })
}

const SEVEN_ZIP: &[u8] = b"7z\xbc\xaf\x27\x1c";

/// What stands in NSIS's first header behind its flags. (NSIS, Source/exehead/fileform.h)
const NULLSOFT: &[u8] = b"\xef\xbe\xad\xdeNullsoftInst";

fn name(kind: ArchiveKind) -> &'static str {
    match kind {
        ArchiveKind::Tar => "a tar archive",
        ArchiveKind::Zip => "a zip archive without an end",
        ArchiveKind::Ar => "an ar archive",
        ArchiveKind::Rpm => "an RPM package",
        ArchiveKind::Cab => "a cabinet",
        ArchiveKind::Gzip => "a file packed with gzip",
        ArchiveKind::Xz => "a file packed with xz",
        ArchiveKind::Zstd => "a file packed with zstd",
        ArchiveKind::Bzip2 => "a file packed with bzip2",
        ArchiveKind::Lzma => "a file packed with LZMA",
    }
}

fn has_disc_sign(bytes: &[u8]) -> bool {
    let start = bytes.get(..IMAGE_START_BYTES).unwrap_or_default();
    let end = bytes.len().checked_sub(DISK_TRAILER_BYTES).and_then(|at| bytes.get(at..)).unwrap_or_default();
    unread_image(start, end).is_some()
}

/// Whether the bytes end with a zip's last record, whose directory lies among them.
fn ends_as_zip(bytes: &[u8]) -> bool {
    let from = bytes.len().saturating_sub(ZIP_END_BYTES + ZIP_COMMENT_BYTES);
    let tail = bytes.get(from..).unwrap_or_default();
    memchr::memmem::rfind_iter(tail, b"PK\x05\x06").any(|at| {
        let Some(record) = tail.get(at..).and_then(|record| record.first_chunk::<ZIP_END_BYTES>()) else {
            return false;
        };
        let [.., s0, s1, s2, s3, _, _, _, _, c0, c1] = *record;
        let (directory, comment) = (u32::from_le_bytes([s0, s1, s2, s3]), u16::from_le_bytes([c0, c1]));
        // In zip64 the size stands elsewhere.
        let is_within = directory == u32::MAX || directory as usize <= from.saturating_add(at);
        is_within && at + ZIP_END_BYTES + usize::from(comment) == tail.len()
    })
}

/// Where the last of an ELF file's headers, segments and sections ends; none where that is behind the end of the file.
fn elf_end<Elf: object::read::elf::FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Option<usize> {
    let header = Elf::parse(bytes).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, bytes).ok()?;
    let sections = header.section_headers(endian, bytes).ok()?;
    let table = |offset: u64, of: usize| offset.saturating_add(of as u64);
    let mut end = u64::from(header.e_ehsize(endian));
    end = end.max(table(header.e_phoff(endian).into(), std::mem::size_of_val(segments)));
    end = end.max(table(header.e_shoff(endian).into(), std::mem::size_of_val(sections)));
    for segment in segments {
        let (offset, size) = segment.file_range(endian);
        end = end.max(offset.saturating_add(size));
    }
    for section in sections.iter().filter(|section| section.sh_type(endian) != SHT_NOBITS) {
        end = end.max(section.sh_offset(endian).into().saturating_add(section.sh_size(endian).into()));
    }
    usize::try_from(end).ok().filter(|end| *end <= bytes.len())
}

/// Where the last of a PE file's sections, and its symbols, end; and where what was appended ends: before signatures, which stand behind it.
fn pe_end<Pe: ImageNtHeaders>(bytes: &[u8]) -> Option<(usize, usize)> {
    let dos = ImageDosHeader::parse(bytes).ok()?;
    let mut offset = dos.nt_headers_offset().into();
    let (headers, directories) = Pe::parse(bytes, &mut offset).ok()?;
    let sections = headers.sections(bytes, offset).ok()?;
    let mut end = u64::from(headers.optional_header().size_of_headers());
    for section in sections.iter() {
        let (offset, size) = (section.pointer_to_raw_data.get(LE), section.size_of_raw_data.get(LE));
        if offset != 0 {
            end = end.max(u64::from(offset).saturating_add(size.into()));
        }
    }
    if let Ok(symbols) = headers.symbols(bytes) {
        // The strings begin with their own size.
        const SYMBOL_BYTES: u64 = 18;
        let table = headers.file_header().pointer_to_symbol_table.get(LE);
        let strings = u64::from(table).saturating_add((symbols.len() as u64).saturating_mul(SYMBOL_BYTES));
        let at = usize::try_from(strings).ok();
        let size = at.and_then(|at| bytes.get(at..)?.first_chunk()).map_or(0, |size| u32::from_le_bytes(*size));
        if table != 0 {
            end = end.max(strings.saturating_add(size.into()));
        }
    }
    let end = usize::try_from(end).ok().filter(|end| *end <= bytes.len())?;
    let signed = directories.get(IMAGE_DIRECTORY_ENTRY_SECURITY).map(|entry| entry.virtual_address.get(LE) as usize);
    // Of signatures this is no address but a place in the file. (PE Format, "The Attribute Certificate Table")
    let stop = signed.filter(|at| (end..bytes.len()).contains(at)).unwrap_or(bytes.len());
    Some((end, stop))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zip_is_told_by_its_last_record_alone() {
        let mut end = b"PK\x05\x06".to_vec();
        end.resize(ZIP_END_BYTES, 0);
        assert!(ends_as_zip(&end));
        let with_comment = |length: u8, text: &[u8]| {
            let mut record = end.clone();
            record[20] = length;
            ends_as_zip(&[&b"before"[..], &record, text].concat())
        };
        assert!(with_comment(3, b"abc"));
        assert!(!with_comment(3, b"abcd") && !with_comment(3, b"ab"));
        let mut outside = end.clone();
        outside[12] = 7;
        assert!(!ends_as_zip(&[&b"before"[..], &outside].concat()));
        assert!(ends_as_zip(&[&b"before!"[..], &outside].concat()));
    }

    #[test]
    fn archives_behind_zeros_and_settings_are_known() {
        assert_eq!(known(b"\0\0\0hsqs"), Some("a SquashFS image, such as a snap"));
        assert_eq!(known(b";!@Install@!UTF-8!\r\n;!@InstallEnd@!7z\xbc\xaf\x27\x1c"), Some("a 7z archive"));
        assert_eq!(known(b"\0\0\0\0\xef\xbe\xad\xdeNullsoftInst"), Some("an installer of NSIS"));
        assert_eq!(known(b"text that follows"), None);
        assert_eq!(known(&[0; 9000]), None);
    }
}
