//! Which archive a file is, by its first bytes.

/// The kinds of archive and of compressed file that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ArchiveKind {
    /// tar: old, ustar, GNU and pax.
    Tar,
    /// zip and what is zip: wheel, nupkg, apk, ipa, jar.
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
    /// A Microsoft cabinet.
    Cab,
}

impl ArchiveKind {
    /// Whether this is one compressed stream rather than a container of members.
    pub fn is_compression(self) -> bool {
        matches!(self, Self::Gzip | Self::Xz | Self::Zstd | Self::Bzip2)
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
    const MAGICS: [(&[u8], ArchiveKind); 10] = [
        (b"PK\x03\x04", ArchiveKind::Zip),
        (b"PK\x05\x06", ArchiveKind::Zip), // a zip without members
        (b"!<arch>\n", ArchiveKind::Ar),
        (b"!<thin>\n", ArchiveKind::Ar),
        (b"\xed\xab\xee\xdb", ArchiveKind::Rpm),
        (b"\x1f\x8b\x08", ArchiveKind::Gzip),
        (b"\xfd7zXZ\x00", ArchiveKind::Xz),
        (b"\x28\xb5\x2f\xfd", ArchiveKind::Zstd),
        (b"BZh", ArchiveKind::Bzip2),
        (b"MSCF\0\0\0\0", ArchiveKind::Cab),
    ];
    let found = MAGICS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, kind)| *kind);
    match found {
        // "BZh" is text as well: the level and the first block's or the end's magic value follow.
        Some(ArchiveKind::Bzip2) if !is_bzip2(head) => None,
        Some(kind) => Some(kind),
        None => head.first_chunk::<TAR_BLOCK>().filter(|block| is_tar_header(block)).map(|_| ArchiveKind::Tar),
    }
}

/// What an archive, package or disk image is that [`archive_kind`] does not know and that may hold release files: its usual name, for people. By its
/// first 512 bytes; images without anything of their own there (`.dmg`, `.iso`) are not known.
pub fn unread_archive(head: &[u8]) -> Option<&'static str> {
    const MAGICS: [(&[u8], &str); 6] = [
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"Rar!\x1a\x07", "a RAR archive"),
        (b"xar!", "a xar archive, such as an installer package of macOS (.pkg)"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "a compound file, such as an installer package of Windows (.msi)"),
        (b"hsqs", "a SquashFS image, such as a snap"),
        (b"flatpak\0", "a Flatpak bundle"),
    ];
    MAGICS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, name)| *name)
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
            (b"!<arch>\ndebian-binary", Some(ArchiveKind::Ar)),
            (b"\xed\xab\xee\xdb\x03", Some(ArchiveKind::Rpm)),
            (b"\x1f\x8b\x08\0", Some(ArchiveKind::Gzip)),
            (b"\xfd7zXZ\0\0\x04", Some(ArchiveKind::Xz)),
            (b"\x28\xb5\x2f\xfd", Some(ArchiveKind::Zstd)),
            (b"BZh91AY&SY", Some(ArchiveKind::Bzip2)),
            (b"MSCF\0\0\0\0\x59", Some(ArchiveKind::Cab)),
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
