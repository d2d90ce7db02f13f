//! What the start of an ELF file tells before the rest of it is there: build-ids, and how much of it is loaded (gABI, "ELF Header", "Program Header",
//! "Note Section").

/// `p_type` of what is loaded.
const PT_LOAD: u64 = 1;
/// `p_flags` of code.
const PF_X: u64 = 1;
/// `p_type` of notes.
const PT_NOTE: u64 = 4;
/// The linker's build-id, of owner `GNU`.
const NT_GNU_BUILD_ID: u64 = 3;
/// Program headers that are looked at.
const HEADERS: u64 = 256;
/// Notes of one header that are looked at.
const NOTES: usize = 64;

/// The build-ids in notes that lie whole in these first bytes. None when it is no ELF file.
pub(crate) fn build_ids_at_start(start: &[u8]) -> Option<Vec<&[u8]>> {
    let elf = Elf::of(start)?;
    let mut found = Vec::new();
    for at in 0..elf.header_count.min(HEADERS) {
        let Some(header) = at.checked_mul(elf.header_size).and_then(|offset| elf.headers.checked_add(offset)) else {
            break;
        };
        if let Some((offset, size)) = elf.note_segment(header)
            && let Some(notes) = slice(start, offset, size)
        {
            elf.notes(notes, &mut found);
        }
    }
    Some(found)
}

/// What of an ELF file is loaded, as its program headers say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LoadedAtStart {
    /// Bytes from the file's start to the end of the last segment that is loaded; 0 where none is.
    pub(super) end: u64,
    /// Bytes that the file has of segments of code; none where it has no such segments.
    pub(super) code: Option<u64>,
    /// Where in the file its section headers are; 0 where it has none.
    pub(super) section_headers: u64,
}

/// What is loaded of the file with these first bytes. None when it is no ELF file, or its program headers are not among them.
pub(super) fn loaded_at_start(start: &[u8]) -> Option<LoadedAtStart> {
    let elf = Elf::of(start)?;
    let (at, size) = if elf.is_64 { (40, 8) } else { (32, 4) };
    let mut loaded = LoadedAtStart { end: 0, code: None, section_headers: elf.number(start, at, size)? };
    for number in 0..elf.header_count.min(HEADERS) {
        let header = elf.headers.checked_add(number.checked_mul(elf.header_size)?)?;
        let header = start.get(usize::try_from(header).ok()?..)?;
        let of = |(wide, narrow): ((usize, usize), (usize, usize))| {
            let (at, size) = if elf.is_64 { wide } else { narrow };
            elf.number(header, at, size)
        };
        if of(((0, 4), (0, 4)))? != PT_LOAD {
            continue;
        }
        let (offset, in_file) = (of(((8, 8), (4, 4)))?, of(((32, 8), (16, 4)))?);
        if in_file > 0 {
            loaded.end = loaded.end.max(offset.saturating_add(in_file));
        }
        if of(((4, 4), (24, 4)))? & PF_X != 0 {
            loaded.code = Some(loaded.code.unwrap_or_default().saturating_add(in_file));
        }
    }
    Some(loaded)
}

struct Elf<'f> {
    bytes: &'f [u8],
    is_64: bool,
    big_endian: bool,
    headers: u64,
    header_size: u64,
    header_count: u64,
}

impl<'f> Elf<'f> {
    fn of(bytes: &'f [u8]) -> Option<Self> {
        let [0x7f, b'E', b'L', b'F', class @ (1 | 2), order @ (1 | 2), ..] = bytes else { return None };
        let mut elf =
            Self { bytes, is_64: *class == 2, big_endian: *order == 2, headers: 0, header_size: 0, header_count: 0 };
        let (headers, size) = if elf.is_64 { ((32, 8), 54) } else { ((28, 4), 42) };
        elf.headers = elf.number(bytes, headers.0, headers.1)?;
        elf.header_size = elf.number(bytes, size, 2)?;
        elf.header_count = elf.number(bytes, size + 2, 2)?;
        Some(elf)
    }

    /// Where the notes of a program header are, if it has any.
    fn note_segment(&self, header: u64) -> Option<(u64, u64)> {
        let header = self.bytes.get(usize::try_from(header).ok()?..)?;
        let (offset, size) = if self.is_64 { ((8, 8), (32, 8)) } else { ((4, 4), (16, 4)) };
        let of = |(at, bytes): (usize, usize)| self.number(header, at, bytes);
        (of((0, 4))? == PT_NOTE).then_some((of(offset)?, of(size)?))
    }

    fn notes<'n>(&self, mut notes: &'n [u8], found: &mut Vec<&'n [u8]>) {
        for _ in 0..NOTES {
            let head = [0, 4, 8].map(|at| self.number(notes, at, 4));
            let [Some(name_size), Some(size), Some(kind)] = head else { return };
            let padded = |size: u64| size.div_ceil(4) * 4;
            let (Some(name), Some(description)) =
                (slice(notes, 12, name_size), slice(notes, 12 + padded(name_size), size))
            else {
                return;
            };
            if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
                found.push(description);
            }
            let next = usize::try_from(12 + padded(name_size) + padded(size)).ok();
            notes = next.and_then(|next| notes.get(next..)).unwrap_or_default();
        }
    }

    fn number(&self, bytes: &[u8], at: usize, size: usize) -> Option<u64> {
        let bytes = bytes.get(at..at.checked_add(size)?)?.iter();
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if self.big_endian { bytes.fold(0, join) } else { bytes.rev().fold(0, join) })
    }
}

fn slice(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    bytes.get(usize::try_from(offset).ok()?..usize::try_from(offset.checked_add(size)?).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_this_program_is_at_its_start() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let whole = symseal_artifact::ObjectFile::parse(&bytes).unwrap();
        let Some(id) = whole.debug_id().filter(|_| whole.id_kind() == symseal_artifact::IdKind::GnuBuildId) else {
            println!("SKIP build-id: this program has none");
            return;
        };
        let found = build_ids_at_start(bytes.get(..65_536).unwrap()).unwrap();
        assert_eq!(found, [id.build_id().unwrap()]);
    }

    #[test]
    fn what_is_loaded_of_this_program_is_in_it_and_has_its_code() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let LoadedAtStart { end, code, section_headers } = loaded_at_start(bytes.get(..65_536).unwrap()).unwrap();
        let length = bytes.len() as u64;
        assert!(0 < end && end <= length && code.is_some_and(|code| 0 < code && code < end), "{end} {code:?} {length}");
        assert!(end <= section_headers && section_headers < length);
    }

    #[test]
    fn damaged_starts_are_read_without_harm() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let start = &bytes[..4096];
        for at in 0..1500 {
            assert!(build_ids_at_start(&start[..at]).is_none_or(|found| found.len() <= 2));
            let _ = loaded_at_start(&start[..at]);
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = start.to_vec();
                damaged[at] = value;
                let _ = (build_ids_at_start(&damaged), loaded_at_start(&damaged));
            }
        }
        assert_eq!(build_ids_at_start(b"<html>not found</html>"), None);
    }
}
