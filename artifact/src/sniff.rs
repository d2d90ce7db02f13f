//! What a file is, from its first bytes.

use crate::archive::{ArchiveKind, archive_kind};
use crate::escaped;
use crate::unread::OLD_PDB;

/// As many first bytes decide: a tar archive's magic stands at 257.
pub const SNIFF_BYTES: usize = 512;

/// What a file is, as far as its first bytes say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FileKind {
    /// ELF.
    Elf,
    /// PE: `MZ`, whatever it leads to.
    Pe,
    /// Mach-O of one architecture.
    Macho,
    /// A universal Mach-O file.
    MachoFat,
    /// A program database.
    Pdb,
    /// A portable program database (.NET).
    PortablePdb,
    /// An archive, a package, or a file that is compressed by itself.
    Archive(ArchiveKind),
    /// Anything else.
    Other,
}

/// How `MSF 7.00` files, which program databases are, start.
const MSF: &[u8] = b"Microsoft C/C++ MSF 7.00\r\n\x1aDS";
/// What is enough of that to tell people what it is.
const MSF_START: &[u8] = b"Microsoft C/C++ MSF";

/// Java class files share the magic of universal binaries; their versions, which stand where those count slices, are
/// above this, and no linker makes so many slices.
pub(crate) const MOST_SLICES: u32 = 32;

/// What a file is that starts with `head`: its first [`SNIFF_BYTES`], or all of it where it is shorter.
pub fn sniff(head: &[u8]) -> FileKind {
    match head {
        [0x7f, b'E', b'L', b'F', ..] => FileKind::Elf,
        [b'M', b'Z', ..] if !begins_as_text(head) => FileKind::Pe,
        [0xfe, 0xed, 0xfa, 0xce | 0xcf, ..] | [0xce | 0xcf, 0xfa, 0xed, 0xfe, ..] => FileKind::Macho,
        [0xca, 0xfe, 0xba, 0xbe | 0xbf, a, b, c, d, ..] if u32::from_be_bytes([*a, *b, *c, *d]) <= MOST_SLICES => {
            FileKind::MachoFat
        }
        [b'B', b'S', b'J', b'B', ..] => FileKind::PortablePdb,
        head if head.starts_with(MSF) => FileKind::Pdb,
        head => archive_kind(head).map_or(FileKind::Other, FileKind::Archive),
    }
}

/// Whether the whole DOS header would be text: its last field, where the PE header is, would then lie behind 150 MB of something else.
fn begins_as_text(head: &[u8]) -> bool {
    let header = head.get(..64).unwrap_or(head);
    header.len() > 2 && header.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n' | 0x80..))
}

/// What a file starts with, for an error message.
pub(crate) fn describe_start(data: &[u8]) -> String {
    let start = data.get(..data.len().min(4)).unwrap_or_default();
    let known = match start {
        [] => return "an empty file".to_owned(),
        [b'M', b'Z', ..] => "a PE or DOS executable",
        [0xfe, 0xed, 0xfa, 0xce | 0xcf] | [0xce | 0xcf, 0xfa, 0xed, 0xfe] => "a Mach-O file",
        [0xca, 0xfe, 0xba, 0xbe | 0xbf] if sniff(data) == FileKind::MachoFat => {
            "a universal Mach-O file, not one slice of it"
        }
        [0xca, 0xfe, 0xba, 0xbe] => "a Java class file",
        b"dyld" => "a dyld shared cache: its images are no files; the libraries that went into it are",
        [b'!', b'<', b'a', b'r'] => "an ar archive",
        [b'P', b'K', 3, 4] | [b'P', b'K', 5, 6] => "a zip archive",
        [0x1f, 0x8b, ..] => "a gzip file",
        b"Micr" if data.starts_with(OLD_PDB) => "a PDB file of version 2.00, as tools made them before 1999",
        b"Micr" if data.starts_with(MSF_START) => "a PDB file",
        [b'#', b'!', ..] => "a script",
        _ => "",
    };
    let hex: Vec<String> = start.iter().map(|byte| format!("{byte:02x}")).collect();
    match known {
        "" => format!("{} ({:?})", hex.join(" "), escaped(start)),
        known => format!("{} ({known})", hex.join(" ")),
    }
}
