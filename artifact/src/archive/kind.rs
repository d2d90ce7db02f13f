//! Which archive a file is, by its first bytes.

/// The kinds of archive and of compressed file that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArchiveKind {
    /// tar: old, ustar, GNU and pax.
    Tar,
    /// zip and what is zip: wheel, nupkg, apk, ipa, jar; and where a few bytes stand before it, jmod and pyz.
    Zip,
    /// ar: Debian packages (deb, ddeb). A static library is an ar file too, and is not looked into.
    Ar,
    /// An RPM package.
    Rpm,
    /// A gzip stream (RFC 1952) of a tar or of one file.
    Gzip,
    /// An xz stream of a tar or of one file.
    Xz,
    /// Zstandard frames (RFC 8878) of a tar or of one file.
    Zstd,
    /// A bzip2 stream of a tar or of one file.
    Bzip2,
    /// An LZMA stream in the format before xz, of a tar or of one file: packages of 2009 and older.
    Lzma,
    /// A Microsoft cabinet.
    Cab,
}

impl ArchiveKind {
    /// Whether this is one compressed stream rather than a container of members.
    pub fn is_compression(self) -> bool {
        matches!(self, Self::Gzip | Self::Xz | Self::Zstd | Self::Bzip2 | Self::Lzma)
    }

    /// The kind's usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tar => "tar",
            Self::Zip => "zip",
            Self::Ar => "ar",
            Self::Rpm => "rpm",
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Bzip2 => "bzip2",
            Self::Lzma => "lzma",
            Self::Cab => "cabinet",
        }
    }

    /// What a compressed file's name ends in.
    pub(super) fn suffix(self) -> Option<&'static str> {
        match self {
            Self::Gzip => Some(".gz"),
            Self::Xz => Some(".xz"),
            Self::Zstd => Some(".zst"),
            Self::Bzip2 => Some(".bz2"),
            Self::Lzma => Some(".lzma"),
            Self::Tar | Self::Zip | Self::Ar | Self::Rpm | Self::Cab => None,
        }
    }
}

impl std::fmt::Display for ArchiveKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A tar header's size in bytes, which is as much as has to be seen of any file.
const TAR_BLOCK: usize = 512;
/// Offset of a tar header's checksum, its size, and that of the magic value of POSIX 1003.1 (ustar).
const TAR_CHECKSUM: usize = 148;
const TAR_CHECKSUM_BYTES: usize = 8;
const TAR_MAGIC: usize = 257;

/// The kind of archive that begins with `head`, its first 512 bytes (or all of a smaller file). A tar is known by `ustar`
/// at byte 257 with a right checksum, or, for tars from before 1988, by the checksum alone. A compressed stream is only
/// called by its compression: what is inside is seen when it is read.
pub fn archive_kind(head: &[u8]) -> Option<ArchiveKind> {
    const MAGICS: [(&[u8], ArchiveKind); 11] = [
        (b"PK\x03\x04", ArchiveKind::Zip),
        (b"PK\x05\x06", ArchiveKind::Zip),         // a zip without members
        (b"JM\x01\0PK\x03\x04", ArchiveKind::Zip), // a module of a JDK (jmod)
        (b"!<arch>\n", ArchiveKind::Ar),
        (b"!<thin>\n", ArchiveKind::Ar),
        (b"\xed\xab\xee\xdb", ArchiveKind::Rpm),
        (b"\x1f\x8b\x08", ArchiveKind::Gzip),
        (b"\xfd7zXZ\x00", ArchiveKind::Xz),
        (ZSTD, ArchiveKind::Zstd),
        (b"BZh", ArchiveKind::Bzip2),
        (b"MSCF\0\0\0\0", ArchiveKind::Cab),
    ];
    let found = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, kind)| *kind);
    match found {
        None if is_skippable_frame(head) => {
            behind_skippable_frames(head).filter(|rest| rest.starts_with(ZSTD)).map(|_| ArchiveKind::Zstd)
        }
        // "BZh" is text as well: the level and the first block's or the end's magic value follow.
        Some(ArchiveKind::Bzip2) if !is_bzip2(head) => None,
        Some(kind) => Some(kind),
        None if is_lzma(head) => Some(ArchiveKind::Lzma),
        None if is_zip_behind_a_line(head) => Some(ArchiveKind::Zip),
        None => head.first_chunk::<TAR_BLOCK>().filter(|block| is_tar_header(block)).map(|_| ArchiveKind::Tar),
    }
}

/// Whether the ar file that begins with `head` is a package rather than a static library: its first member is `debian-binary`. (deb(5))
pub(super) fn is_package(head: &[u8]) -> bool {
    head.strip_prefix(b"!<arch>\n").is_some_and(|members| members.starts_with(b"debian-binary"))
}

/// What an archive, package or compressed file is that [`archive_kind`] does not know and that may hold release files: its usual name,
/// for people. By its first 512 bytes; images of disks without anything of their own there are for [`unread_image`].
pub fn unread_archive(head: &[u8]) -> Option<&'static str> {
    const MAGICS: [(&[u8], &str); 24] = [
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"Rar!\x1a\x07", "a RAR archive"),
        (b"xar!", "a xar archive, such as an installer package of macOS (.pkg)"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a compound file, such as an installer package of Windows (.msi)"),
        (b"hsqs", "a SquashFS image, such as a snap"),
        (b"flatpak\0", "a Flatpak bundle"),
        (LZ4, PACKED_WITH_LZ4),
        (b"\x02\x21\x4c\x18", "a file packed with LZ4 in its old format"),
        (b"LZIP\x01", "a file packed with lzip"),
        (b"\x89LZO\0\r\n\x1a\n", "a file packed with lzop"),
        (b"MSCF", "a cabinet of another form than is known"),
        (b"070701", CPIO),
        (b"070702", CPIO),
        (b"070707", CPIO),
        (b"\xc7\x71", CPIO),
        (b"sqsh", "a SquashFS image of the other byte order"),
        (b"\x1f\x9d", "a file packed with compress (.Z)"),
        (b"MSWIM\0\0\0", "an image of Windows' imaging format (.wim)"),
        (b"QFI\xfb", "a disk image of QEMU (.qcow2)"),
        (b"vhdxfile", "a virtual disk (.vhdx)"),
        (b"KDMV", "a virtual disk (.vmdk)"),
        (b"\x45\x3d\xcd\x28", "an image of a file system (cramfs)"),
        (b"\x27\x05\x19\x56", "an image of U-Boot's"),
        (b"\x3a\xff\x26\xed", "a sparse image of Android's"),
    ];
    let known = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| *name);
    // Cabinets that are read have four zero bytes there.
    let known = known.filter(|_| archive_kind(head).is_none());
    let known = known.or_else(|| match behind_skippable_frames(head) {
        _ if !is_skippable_frame(head) => None,
        Some(rest) => rest.starts_with(LZ4).then_some(PACKED_WITH_LZ4),
        None => Some("a file packed with Zstandard or LZ4 that begins with a long frame of something else"),
    });
    known.or_else(|| is_asar(head).then_some("an archive of Electron's (.asar)"))
}

/// Four lengths, each but the first of what holds the next, and the text of the index. (Electron, "ASAR Archives"; Chromium's pickles)
fn is_asar(head: &[u8]) -> bool {
    let length = |at: usize| head.get(at..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_le_bytes);
    let lengths = length(0).zip(length(4)).zip(length(8)).zip(length(12));
    lengths.is_some_and(|(((first, index), padded), text)| first == 4 && index > padded && padded > text)
        && head.get(16..).is_some_and(|rest| rest.starts_with(b"{\"files\":"))
}

const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
const LZ4: &[u8] = b"\x04\x22\x4d\x18";
const PACKED_WITH_LZ4: &str = "a file packed with LZ4";
const CPIO: &str = "a cpio archive, such as an initial file system of Linux";

/// Whether a frame begins there that decoders skip, of Zstandard or of LZ4, which have them alike: all that `pzstd` writes begins so.
/// (RFC 8878, 3.1.2; LZ4 Frame Format, "Skippable Frames")
fn is_skippable_frame(head: &[u8]) -> bool {
    matches!(head, [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..])
}

/// What follows the skippable frames at the beginning; none where their end is beyond what is seen.
fn behind_skippable_frames(head: &[u8]) -> Option<&[u8]> {
    let mut rest = head;
    while is_skippable_frame(rest) {
        let length = rest.get(4..8)?.first_chunk().copied().map(u32::from_le_bytes)?;
        rest = rest.get(8..)?.get(usize::try_from(length).ok()?..)?;
    }
    (rest.len() >= ZSTD.len()).then_some(rest)
}

/// The header of LZMA's own format: properties, size of the dictionary, size of what was packed or ones. There is no magic value, so that
/// all of it must be as programs write it: the usual properties, a power of two, less than a terabyte. (XZ Utils, "The .lzma File Format",
/// 1.1)
fn is_lzma(head: &[u8]) -> bool {
    const USUAL: u8 = 0x5d;
    const MOST_BYTES: u64 = 1 << 40;
    let dictionary = head.get(1..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u32::from_le_bytes);
    let unpacked = head.get(5..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_le_bytes);
    // The range coder's first byte is zero.
    head.first() == Some(&USUAL)
        && head.get(13) == Some(&0)
        && dictionary.is_power_of_two()
        && dictionary >= 1 << 12
        && (unpacked == u64::MAX || unpacked < MOST_BYTES)
}

/// A zip is found from its end, so that something may stand before it. (Python, `zipapp`)
fn is_zip_behind_a_line(head: &[u8]) -> bool {
    let mut line = head.splitn(2, |byte| *byte == b'\n');
    line.next().is_some_and(|line| line.starts_with(b"#!"))
        && line.next().is_some_and(|rest| rest.starts_with(b"PK\x03\x04"))
}

/// Where the first volume descriptor of a file system of discs has its identifier. (ECMA-119, 8.1: sector 16, byte 1)
const DISC_SIGN_AT: usize = 0x8001;
const DISC_SIGN: &[u8] = b"CD001";
/// As many first bytes [`unread_image`] looks at.
pub const IMAGE_START_BYTES: usize = DISC_SIGN_AT + DISC_SIGN.len();
/// Where ext2 and its successors have their superblock, and EROFS as well; and in that of ext2 the magic number and the binary logarithm of the block's
/// size over 1,024. (Linux, Documentation/filesystems/ext4/super.rst, fs/erofs/erofs_fs.h)
const SUPERBLOCK_AT: usize = 1024;
const EXT_MAGIC_AT: usize = SUPERBLOCK_AT + 0x38;
const EXT_BLOCK_AT: usize = SUPERBLOCK_AT + 0x18;
const EXT_MAGIC: &[u8] = b"\x53\xef";
const LARGEST_EXT_BLOCK: u32 = 6;
const EROFS_MAGIC: &[u8] = b"\xe2\xe1\xf5\xe0";
/// Bytes of what stands at the end of a disk image of macOS.
pub const DISK_TRAILER_BYTES: usize = 512;
/// `koly`, version 4, its own size. (Apple's UDIF resource file; hdiutil(1))
const DISK_TRAILER: &[u8] = b"koly\0\0\0\x04\0\0\x02\0";

/// What an image of a disk or file system is, or a script with an archive behind it, of which the first [`SNIFF_BYTES`](crate::SNIFF_BYTES) say nothing: its
/// usual name, for people. `start`: the first [`IMAGE_START_BYTES`]; `end`: the last [`DISK_TRAILER_BYTES`]. Of a smaller file all of it, and nothing.
pub fn unread_image(start: &[u8], end: &[u8]) -> Option<&'static str> {
    let has = |at: usize, sign: &[u8]| start.get(at..).is_some_and(|rest| rest.starts_with(sign));
    let block = start.get(EXT_BLOCK_AT..).and_then(|rest| rest.first_chunk()).copied().map(u32::from_le_bytes);
    if has(DISC_SIGN_AT, DISC_SIGN) {
        return Some("an image of a disc (.iso)");
    }
    if has(EXT_MAGIC_AT, EXT_MAGIC) && block.is_some_and(|size| size <= LARGEST_EXT_BLOCK) {
        return Some("an image of a file system (ext2, ext3 or ext4)");
    }
    if has(SUPERBLOCK_AT, EROFS_MAGIC) {
        return Some("an image of a file system (EROFS)");
    }
    if end.len() == DISK_TRAILER_BYTES && end.starts_with(DISK_TRAILER) {
        return Some("a disk image of macOS (.dmg)");
    }
    is_script_before_an_archive(start)
        .then_some("a script with an archive behind it, as self-extracting ones are (.run, .sh)")
}

/// Whether a line of a script is followed by what no script has, and an archive or a packed one begins with.
fn is_script_before_an_archive(start: &[u8]) -> bool {
    start.starts_with(b"#!")
        && memchr::memchr_iter(b'\n', start).any(|end| {
            let behind = start.get(end + 1..).unwrap_or_default();
            matches!(behind.first(), Some(0x1f | 0xfd | b'B' | 0x28 | 0x04))
                && (archive_kind(behind).is_some() || behind.starts_with(LZ4))
        })
}

fn is_bzip2(head: &[u8]) -> bool {
    const BLOCK: &[u8] = &[0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
    const END: &[u8] = &[0x17, 0x72, 0x45, 0x38, 0x50, 0x90];
    let level = head.get(3).copied().unwrap_or(0);
    let magic = head.get(4..10).unwrap_or_default();
    (b'1'..=b'9').contains(&level) && (magic == BLOCK || magic == END)
}

/// Whether a block is a tar header: its checksum is that of its bytes. Without the magic value a name is asked for too.
pub(super) fn is_tar_header(block: &[u8; TAR_BLOCK]) -> bool {
    let stated = block.get(TAR_CHECKSUM..TAR_CHECKSUM + TAR_CHECKSUM_BYTES).unwrap_or_default();
    let Some(stated) = octal(stated) else { return false };
    let is_ustar = block.get(TAR_MAGIC..).is_some_and(|rest| rest.starts_with(b"ustar"));
    let has_name = block.first().is_some_and(|byte| *byte != 0);
    checksums(block).contains(&stated) && (is_ustar || has_name)
}

/// The sum of a header's bytes with the checksum's own taken as spaces: of unsigned bytes as POSIX says, and of signed ones
/// as some old programs had it.
fn checksums(block: &[u8; TAR_BLOCK]) -> [i64; 2] {
    let mut sums = [0_i64; 2];
    for (at, byte) in block.iter().enumerate() {
        let byte = if (TAR_CHECKSUM..TAR_CHECKSUM + TAR_CHECKSUM_BYTES).contains(&at) { b' ' } else { *byte };
        let [unsigned, signed] = &mut sums;
        *unsigned += i64::from(byte);
        *signed += i64::from(byte.cast_signed());
    }
    sums
}

/// A number in octal digits with spaces before it and a space or zero byte behind it.
fn octal(field: &[u8]) -> Option<i64> {
    let text = field.trim_ascii_start();
    let digits = text.iter().take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    let (number, rest) = text.split_at_checked(digits)?;
    if number.is_empty() || !rest.iter().all(|byte| matches!(byte, 0 | b' ')) {
        return None;
    }
    i64::from_str_radix(std::str::from_utf8(number).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_known_by_its_first_bytes() {
        for (head, expected) in [
            (&b"PK\x03\x04 and more"[..], Some(ArchiveKind::Zip)),
            (b"JM\x01\0PK\x03\x04 and more", Some(ArchiveKind::Zip)),
            (b"JM\x01\0 and more", None),
            (b"#!/usr/bin/env python3\nPK\x03\x04", Some(ArchiveKind::Zip)),
            (b"!<arch>\ndebian-binary", Some(ArchiveKind::Ar)),
            (b"\xed\xab\xee\xdb\x03", Some(ArchiveKind::Rpm)),
            (b"\x1f\x8b\x08\0", Some(ArchiveKind::Gzip)),
            (b"\xfd7zXZ\0\0\x04", Some(ArchiveKind::Xz)),
            (b"\x28\xb5\x2f\xfd", Some(ArchiveKind::Zstd)),
            (b"\x50\x2a\x4d\x18\x04\0\0\0size\x28\xb5\x2f\xfd", Some(ArchiveKind::Zstd)),
            (b"\x5f\x2a\x4d\x18\0\0\0\0\x50\x2a\x4d\x18\x01\0\0\0x\x28\xb5\x2f\xfd", Some(ArchiveKind::Zstd)),
            (b"\x50\x2a\x4d\x18\0\0\0\0\x04\x22\x4d\x18", None),
            (b"\x50\x2a\x4d\x18\xff\xff\xff\xff\x28\xb5\x2f\xfd", None),
            (b"\x50\x2a\x4d\x18\0\0", None),
            (b"BZh91AY&SY", Some(ArchiveKind::Bzip2)),
            (b"MSCF\0\0\0\0\x59", Some(ArchiveKind::Cab)),
            (b"]\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0\x30", Some(ArchiveKind::Lzma)),
            (b"]\0\0\x81\0\xff\xff\xff\xff\xff\xff\xff\xff\0\x30", None),
            (b"BZh is text", None),
            (b"\x7fELF", None),
            (b"", None),
            (&[0; 512], None),
        ] {
            assert_eq!(archive_kind(head), expected, "{head:?}");
        }
    }

    #[test]
    fn packages_that_are_not_read_are_called_by_their_names() {
        for (head, expected) in [
            (&b"7z\xbc\xaf\x27\x1c\0\x04"[..], Some("7z")),
            (b"xar!\0\x1c", Some(".pkg")),
            (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0", Some(".msi")),
            (b"hsqs\x07", Some("snap")),
            (b"\x50\x2a\x4d\x18\x01\0\0\0x\x04\x22\x4d\x18", Some("LZ4")),
            (b"\x50\x2a\x4d\x18\xff\xff\xff\xff\x28\xb5\x2f\xfd", Some("Zstandard or LZ4")),
            (b"\x50\x2a\x4d\x18\x01\0\0\0x\x28\xb5\x2f\xfd", None),
            (b"\x50\x2a\x4d\x18\x01\0\0\0x text", None),
            (b"]\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\x01", None),
            (b"]\0\0\x81\0\xff\xff\xff\xff\xff\xff\xff\xff\0\x30", None),
            (b"#!/usr/bin/env python3\nPK\x03\x04", None),
            (b"\x04\0\0\0\x20\0\0\0\x1c\0\0\0\x16\0\0\0{\"files\":{\"a\":{}}}", Some(".asar")),
            (b"\x04\0\0\0\x20\0\0\0\x1c\0\0\0\x16\0\0\0{\"other\":{}}", None),
            (b"#!/bin/sh\nexec unzip", None),
            (b"MSCF\0\0\0\0\x59", None),
            (b"PK\x03\x04 and more", None),
            (b"7z", None),
        ] {
            let name = unread_archive(head);
            assert!(
                name.is_some() == expected.is_some() && name.unwrap_or("").contains(expected.unwrap_or("")),
                "{head:?}"
            );
            assert!(name.is_none() || archive_kind(head).is_none());
        }
    }

    #[test]
    fn images_of_disks_are_called_by_their_names() {
        let mut end = [0; DISK_TRAILER_BYTES];
        assert_eq!(unread_image(b"", &end), None);
        end[..12].copy_from_slice(b"koly\0\0\0\x04\0\0\x02\0");
        assert!(unread_image(b"", &end).is_some_and(|name| name.contains(".dmg")));
        assert_eq!(unread_image(b"", &end[1..]), None);
        let image = |at: usize, sign: &[u8]| [&vec![0; at], sign].concat();
        for (at, sign, name) in [(0x8001, DISC_SIGN, ".iso"), (0x438, EXT_MAGIC, "ext4"), (1024, EROFS_MAGIC, "EROFS")]
        {
            assert!(unread_image(&image(at, sign), &[]).is_some_and(|found| found.contains(name)), "{name}");
            assert_eq!(unread_image(&image(at + 1, sign), &[]), None);
        }
        let script = |behind: &[u8]| [b"#!/bin/sh\nskip 3\nexit 0\n", behind].concat();
        for packed in [&b"\x1f\x8b\x08\0"[..], b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh91AY&SY", LZ4] {
            assert!(unread_image(&script(packed), &[]).is_some_and(|found| found.contains("self-extracting")));
            assert_eq!(unread_image(packed, &[]), None);
        }
        assert_eq!(unread_image(&script(b"BZh is text\n(and so is this)\n"), &[]), None);
    }

    #[test]
    fn a_tar_is_known_with_and_without_its_magic_value() {
        let mut header = tar::Header::new_ustar();
        header.set_path("a").expect("a path");
        header.set_size(3);
        header.set_cksum();
        assert_eq!(archive_kind(header.as_bytes()), Some(ArchiveKind::Tar));
        let mut old = tar::Header::new_old();
        old.set_path("a").expect("a path");
        old.set_size(3);
        old.set_cksum();
        assert_eq!(archive_kind(old.as_bytes()), Some(ArchiveKind::Tar));
        let mut wrong = *old.as_bytes();
        wrong[0] = b'b';
        assert_eq!(archive_kind(&wrong), None);
    }
}
