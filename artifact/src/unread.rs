//! Programs, debug files and objects of formats that are not read, known by their first bytes so that nobody takes them for something else.

/// What a file is that no format of release files is, and that has native code or debug information all the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unread {
    /// What is loaded, or tells of what is loaded: its usual name, for people.
    Program(&'static str),
    /// What a linker reads, and nothing loads.
    LinkerInput(&'static str),
    /// What a runtime makes code of, on every platform.
    Portable(&'static str),
}

/// What the file is that begins with `head`, its first [`SNIFF_BYTES`](crate::SNIFF_BYTES) or all of it, if it is of a format that is known and not read.
///
/// DOS programs and the like (NE, LE, LX) are none of these: they begin as PE files do, and are told as damaged ones. Java's and Android's classes are no native code,
/// and a.out has no magic value that would be enough.
pub fn unread_program(head: &[u8]) -> Option<Unread> {
    use Unread::{LinkerInput, Portable, Program};
    /// Whether the rest of the header is right, where the magic value alone says too little.
    type IsRight = fn(&[u8]) -> bool;
    let any: IsRight = |_| true;
    let table: [(&[u8], IsRight, Unread); 21] = [
        (b"\x01\xdf", is_xcoff_program::<32>, Program(XCOFF)),
        (b"\x01\xdf", is_xcoff::<32>, LinkerInput(XCOFF_OBJECT)),
        (b"\x01\xf7", is_xcoff_program::<64>, Program(XCOFF)),
        (b"\x01\xf7", is_xcoff::<64>, LinkerInput(XCOFF_OBJECT)),
        (b"<bigaf>\n", any, Program(AIX_ARCHIVE)),
        (b"<aiaff>\n", any, Program(AIX_ARCHIVE)),
        (b"\0asm", any, Portable("WebAssembly")),
        (b"Joy!peff", any, Program("a program of Mac OS before X (PEF)")),
        (
            b"dyld_v",
            is_dyld_cache,
            Program("a dyld shared cache: its images are no files; the libraries that went into it are"),
        ),
        (OLD_PDB, any, Program("a PDB file of version 2.00, as tools made them before 1999")),
        (b"BC\xc0\xde", any, LinkerInput(BITCODE)),
        (b"\xde\xc0\x17\x0b", any, LinkerInput(BITCODE)),
        (b"\x4c\x01", is_coff, LinkerInput(COFF)), // i386
        (b"\x64\x86", is_coff, LinkerInput(COFF)), // x86-64
        (b"\x64\xaa", is_coff, LinkerInput(COFF)), // AArch64
        (b"\x41\xa6", is_coff, LinkerInput(COFF)), // AArch64 for programs of x86-64
        (b"\xc0\x01", is_coff, LinkerInput(COFF)), // ARM
        (b"\xc4\x01", is_coff, LinkerInput(COFF)), // ARM, Thumb-2
        (b"\x00\x02", is_coff, LinkerInput(COFF)), // IA-64
        (b"\0\0\xff\xff\x01\0", is_large_coff, LinkerInput(COFF)),
        (b"\0\0\xff\xff\x02\0", is_large_coff, LinkerInput(COFF)),
    ];
    let is_it = |(magic, is_right, _): &&(&[u8], IsRight, Unread)| head.starts_with(magic) && is_right(head);
    table.iter().find(is_it).map(|(.., what)| *what)
}

/// How program databases of before start.
pub(crate) const OLD_PDB: &[u8] = b"Microsoft C/C++ program database 2.00";

const XCOFF: &str = "a program or library of AIX (XCOFF)";
const XCOFF_OBJECT: &str = "an object file of AIX (XCOFF)";
const AIX_ARCHIVE: &str = "an archive of AIX, in which shared libraries lie";
const BITCODE: &str = "bitcode of LLVM";
const COFF: &str = "an object file of Windows (COFF)";

/// A section's name where a section table has to begin: they all begin with a period, and go on as text or zeros.
fn is_section_name(head: &[u8], at: usize) -> bool {
    let name: Option<&[u8; 8]> = head.get(at..).and_then(|rest| rest.first_chunk());
    let Some((b'.', rest)) = name.and_then(|name| name.split_first()) else { return false };
    let is_end = |byte: &u8| *byte == 0;
    let text = rest.split(is_end).next().unwrap_or_default();
    !text.is_empty() && text.iter().all(u8::is_ascii_graphic) && rest.iter().skip(text.len()).all(is_end)
}

/// `dyld_v0` or `dyld_v1`, and the processor behind it.
fn is_dyld_cache(head: &[u8]) -> bool {
    head.get(6).is_some_and(u8::is_ascii_digit)
}

fn big_u16(head: &[u8], at: usize) -> u16 {
    head.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u16::from_be_bytes)
}

fn little_u16(head: &[u8], at: usize) -> u16 {
    head.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u16::from_le_bytes)
}

/// The size of the auxiliary header stands at 16, of which the section table is behind. (AIX, XCOFF Object File Format, "Composite File Header")
fn is_xcoff<const BITS: u8>(head: &[u8]) -> bool {
    let header: u16 = if BITS == 64 { 24 } else { 20 };
    is_section_name(head, usize::from(header.saturating_add(big_u16(head, 16))))
}

/// Whether the flags at 18 say that it can be run (`F_EXEC`) or is a shared object (`F_SHROBJ`).
fn is_xcoff_program<const BITS: u8>(head: &[u8]) -> bool {
    is_xcoff::<BITS>(head) && big_u16(head, 18) & (0x0002 | 0x2000) != 0
}

/// An object has no optional header, and its section table is next. (Microsoft, PE Format, "COFF File Header")
fn is_coff(head: &[u8]) -> bool {
    little_u16(head, 2) > 0 && little_u16(head, 16) == 0 && is_section_name(head, 20)
}

/// One of more than 65,279 sections, or of what MSVC's compiler writes for its linker (`/GL`): the processor stands behind the version.
fn is_large_coff(head: &[u8]) -> bool {
    matches!(little_u16(head, 6), 0x014c | 0x8664 | 0xaa64 | 0xa641 | 0x01c0 | 0x01c4) && head.len() > 32
}

#[cfg(test)]
mod tests {
    use super::{Unread, unread_program};

    /// A header with this magic value, flags and auxiliary header, and a section behind it.
    fn xcoff(magic: [u8; 2], header: usize, auxiliary: u8, flags: [u8; 2], name: &[u8; 8]) -> Vec<u8> {
        let mut head = vec![0; header + usize::from(auxiliary)];
        head[..4].copy_from_slice(&[magic[0], magic[1], 0, 4]);
        head[16..20].copy_from_slice(&[0, auxiliary, flags[0], flags[1]]);
        head.extend(name);
        head.resize(512, 0);
        head
    }

    fn coff(machine: [u8; 2], optional: u8, name: &[u8; 8]) -> Vec<u8> {
        let mut head = vec![machine[0], machine[1], 3, 0];
        head.resize(20, 0);
        head[16] = optional;
        head.extend(name);
        head.resize(60, 0);
        head
    }

    #[test]
    fn programs_of_formats_that_are_not_read_are_called_by_their_names() {
        for (head, expected) in [
            (xcoff([1, 0xdf], 20, 72, [0, 2], b".text\0\0\0"), "AIX"),
            (xcoff([1, 0xf7], 24, 120, [0, 2], b".text\0\0\0"), "AIX"),
            (xcoff([1, 0xf7], 24, 120, [0x20, 0], b".text\0\0\0"), "AIX"),
            (b"<bigaf>\n128".to_vec(), "AIX"),
            (b"<aiaff>\n68".to_vec(), "AIX"),
            (b"Joy!peffpwpc".to_vec(), "PEF"),
            (b"dyld_v1  arm64e\0".to_vec(), "dyld"),
            (b"Microsoft C/C++ program database 2.00\r\n\x1aJG".to_vec(), "2.00"),
        ] {
            let Some(Unread::Program(name)) = unread_program(&head) else { panic!("{expected}") };
            assert!(name.contains(expected), "{name}");
        }
        assert_eq!(unread_program(b"\0asm\x01\0\0\0"), Some(Unread::Portable("WebAssembly")));
    }

    #[test]
    fn what_linkers_read_is_told_from_programs() {
        for head in [
            xcoff([1, 0xf7], 24, 0, [0, 0], b".text\0\0\0"),
            xcoff([1, 0xdf], 20, 28, [0, 0], b".text\0\0\0"),
            coff([0x64, 0x86], 0, b".drectve"),
            coff([0x4c, 1], 0, b".text\0\0\0"),
            coff([0x64, 0xaa], 0, b".debug$S"),
            [b"\0\0\xff\xff\x02\0\x64\x86".as_slice(), &[0; 60]].concat(),
            b"BC\xc0\xde\x35\x14".to_vec(),
            b"\xde\xc0\x17\x0b\0\0\0\0".to_vec(),
        ] {
            assert!(matches!(unread_program(&head), Some(Unread::LinkerInput(_))), "{head:?}");
        }
    }

    #[test]
    fn short_magic_values_count_with_the_rest_of_their_headers_alone() {
        for head in [
            xcoff([1, 0xf7], 24, 120, [0, 2], b"_text\0\0\0"),
            xcoff([1, 0xdf], 20, 72, [0, 2], b".te\0xt\0\0"),
            coff([0x64, 0x86], 16, b".text\0\0\0"),
            coff([0x64, 0x86], 0, b"text\0\0\0\0"),
            coff([0x64, 0x86], 0, b".text\0\0\0")[..27].to_vec(),
            b"\x01\xdf".to_vec(),
            b"\x64\x86".to_vec(),
            b"L\x01".to_vec(),
            vec![0; 512],
            vec![0xff; 512],
            b"BCD is text".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(unread_program(&head), None, "{head:?}");
        }
    }
}
