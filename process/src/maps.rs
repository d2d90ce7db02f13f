//! The text of `/proc/PID/maps` (proc_pid_maps(5)).
//!
//! ```text
//! 7f2c5a000000-7f2c5a021000 r-xp 00026000 fd:01 1311    /usr/lib/x86_64-linux-gnu/libc.so.6
//! ```
//!
//! Paths are bytes: they hold blanks, are not always UTF-8, and end in ` (deleted)` once unlinked. The
//! kernel writes a line feed in a path as `\012` and nothing else specially, so a path that really holds
//! those four characters cannot be told from it; paths are given as the kernel wrote them. Nor can a file whose own
//! name ends in ` (deleted)` be told from one that was unlinked.

use symseal_module::Avma;

const DELETED: &[u8] = b" (deleted)";

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mapping {
    /// First address.
    pub start: Avma,
    /// First address after it.
    pub end: Avma,
    /// May be read.
    pub readable: bool,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// Shared with others, rather than private.
    pub shared: bool,
    /// Offset of the first byte in the file, in bytes.
    pub offset: u64,
    /// The file's device.
    pub device: Device,
    /// The file's inode; 0 where there is no file.
    pub inode: u64,
    /// The path without ` (deleted)`, a name in brackets, or nothing.
    pub path: Vec<u8>,
    /// Whether the file was unlinked.
    pub deleted: bool,
}

impl Mapping {
    /// Whether a file is mapped here.
    pub fn is_file(&self) -> bool {
        self.inode != 0 && self.path.starts_with(b"/")
    }

    /// Whether `address` lies here.
    pub fn contains(&self, address: Avma) -> bool {
        self.start <= address && address < self.end
    }

    /// The name of the mapping under `/proc/PID/map_files`: no leading zeros, unlike in maps.
    pub fn map_files_name(&self) -> String {
        format!("{:x}-{:x}", self.start.0, self.end.0)
    }
}

/// A device number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Device {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

/// A line that is none of maps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: expected `start-end perms offset major:minor inode [path]`, found {found:?}")]
pub struct MapsError {
    /// The line, from 1.
    pub line: usize,
    /// Its beginning.
    pub found: String,
}

/// Reads the whole text. Mappings come in its order, which is by rising address.
pub fn parse(text: &[u8]) -> Result<Vec<Mapping>, MapsError> {
    let lines = text.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    lines.map(|(index, line)| parse_line(line).ok_or_else(|| malformed(index, line))).collect()
}

/// The mapping that holds `address`.
pub fn find(mappings: &[Mapping], address: Avma) -> Option<&Mapping> {
    let after = mappings.partition_point(|mapping| mapping.start <= address);
    mappings.get(after.checked_sub(1)?).filter(|mapping| mapping.contains(address))
}

/// Whether the mapping with this index, which has no file, holds code of the file around it: programs move their code to large pages (libhugetlbfs, BOLT's
/// hugify, `node --use-largepages`). It lies between two mappings of one file and touches both, and the file goes on behind it.
pub fn is_moved_code(mappings: &[Mapping], index: usize) -> bool {
    let Some((before, [moved, after, ..])) = mappings.split_at_checked(index) else { return false };
    let Some(before) = before.last().filter(|before| before.is_file()) else { return false };
    let is_anonymous = moved.inode == 0 && (moved.path.is_empty() || moved.path.starts_with(b"[anon"));
    let is_same_file = (before.device, before.inode, &before.path) == (after.device, after.inode, &after.path);
    let touches = before.end == moved.start && moved.end == after.start;
    moved.executable && is_anonymous && is_same_file && touches && before.offset < after.offset
}

fn malformed(index: usize, line: &[u8]) -> MapsError {
    let shown: String = symseal_module::escape::escape(line).chars().take(80).collect();
    MapsError { line: index.saturating_add(1), found: shown }
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let (start, end) = split_at_byte(fields.next()?, b'-')?;
    let [read, write, execute, share] = *fields.next()? else { return None };
    let offset = fields.next()?;
    let (major, minor) = split_at_byte(fields.next()?, b':')?;
    let inode = number(fields.next()?, 10)?;
    // The path is padded to a column with blanks; a file's own path starts with a slash.
    let path = fields.next().unwrap_or_default().trim_ascii_start();
    let (path, deleted) = match path.strip_suffix(DELETED) {
        Some(path) if path.starts_with(b"/") => (path, true),
        _ => (path, false),
    };
    let mapping = Mapping {
        start: Avma(number(start, 16)?),
        end: Avma(number(end, 16)?),
        readable: flag(read, b'r')?,
        writable: flag(write, b'w')?,
        executable: flag(execute, b'x')?,
        shared: match share {
            b's' => true,
            b'p' => false,
            _ => return None,
        },
        offset: number(offset, 16)?,
        device: Device { major: number(major, 16)?.try_into().ok()?, minor: number(minor, 16)?.try_into().ok()? },
        inode,
        path: path.to_vec(),
        deleted,
    };
    (mapping.start < mapping.end).then_some(mapping)
}

fn split_at_byte(field: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = field.iter().position(|byte| *byte == at)?;
    Some((field.get(..position)?, field.get(position.checked_add(1)?..)?))
}

fn number(digits: &[u8], radix: u32) -> Option<u64> {
    // `from_str_radix` would take a sign.
    if !digits.iter().all(u8::is_ascii_alphanumeric) {
        return None;
    }
    u64::from_str_radix(str::from_utf8(digits).ok()?, radix).ok()
}

fn flag(found: u8, set: u8) -> Option<bool> {
    match found {
        b'-' => Some(false),
        _ if found == set => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] = b"\
00400000-0041f000 r-xp 00001000 fd:01 1311                               /usr/bin/python3.11
7f0000000000-7f0000001000 ---p 00000000 00:00 0 
7f0000001000-7f0000002000 rw-s 00000000 00:05 77                         /memfd:a b (deleted)
7f0000002000-7f0000003000 r--p 00000000 103:02 9                         /tmp/\xff two  blanks
7fff00000000-7fff00021000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn each_line_gives_one_mapping() {
        let mappings = parse(TEXT).unwrap();
        assert_eq!(mappings.len(), 6);
        let python = &mappings[0];
        assert_eq!((python.start, python.end, python.offset), (Avma(0x400000), Avma(0x41f000), 0x1000));
        assert!(python.readable && !python.writable && python.executable && !python.shared && python.is_file());
        assert_eq!((python.device, python.inode), (Device { major: 0xfd, minor: 1 }, 1311));
        assert_eq!(python.path, b"/usr/bin/python3.11");
        assert!(!mappings[1].is_file() && !mappings[1].readable);
        assert!(mappings[4].path == b"[stack]" && !mappings[4].is_file());
        assert_eq!(mappings[5].end, Avma(0xffffffffff601000));
    }

    #[test]
    fn deleted_files_lose_the_word_and_keep_their_name() {
        let memfd = &parse(TEXT).unwrap()[2];
        assert!(memfd.deleted && memfd.shared && memfd.is_file());
        assert_eq!(memfd.path, b"/memfd:a b");
    }

    #[test]
    fn paths_are_bytes_with_any_blanks() {
        assert_eq!(parse(TEXT).unwrap()[3].path, b"/tmp/\xff two  blanks");
        assert_eq!(parse(TEXT).unwrap()[3].device.major, 0x103);
    }

    #[test]
    fn map_files_names_have_no_leading_zeros() {
        assert_eq!(parse(TEXT).unwrap()[0].map_files_name(), "400000-41f000");
    }

    #[test]
    fn an_address_is_found_in_its_mapping_only() {
        let mappings = parse(TEXT).unwrap();
        assert_eq!(find(&mappings, Avma(0x400000)).map(|mapping| mapping.inode), Some(1311));
        assert_eq!(find(&mappings, Avma(0x41f000)), None);
        assert_eq!(find(&mappings, Avma(0)), None);
    }

    #[test]
    fn a_line_of_another_form_is_named_with_its_number() {
        for line in
            ["x", "1-2", "1-2 r-xp", "2-1 r-xp 0 0:0 0", "1-2 rwzp 0 0:0 0", "1-2 r-xp +1 0:0 0", "1-2 r-xp 0 0:0 x"]
        {
            let text = format!("1000-2000 r-xp 00000000 00:00 0\n{line}\n");
            assert_eq!(parse(text.as_bytes()).unwrap_err().line, 2, "{line}");
        }
    }

    #[test]
    fn our_own_maps_are_read_whole() {
        let Ok(text) = std::fs::read("/proc/self/maps") else { return };
        let mappings = parse(&text).unwrap();
        assert_eq!(mappings.len(), text.iter().filter(|byte| **byte == b'\n').count());
        assert!(mappings.is_sorted_by_key(|mapping| mapping.start));
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(edits in prop::collection::vec((0..TEXT.len(), any::<u8>()), 0..6), cut in 0..TEXT.len()) {
            let mut text = TEXT.to_vec();
            for (at, byte) in edits {
                text[at] = byte;
            }
            let _ = parse(&text);
            let _ = parse(&text[..cut]);
        }
    }

    #[test]
    fn code_that_was_moved_out_of_its_file_lies_within_it() {
        let mappings = parse(
            b"1000-2000 r--p 00000000 08:01 1 /a
2000-3000 r-xp 00000000 00:00 0
3000-4000 r--p 00002000 08:01 1 /a
4000-5000 r-xp 00000000 00:00 0
5000-6000 r--p 00000000 08:01 1 /a
6000-7000 rw-p 00000000 00:00 0
7000-8000 r--p 00002000 08:01 1 /a
9000-a000 r-xp 00000000 00:00 0
a000-b000 r--p 00003000 08:01 1 /a
b000-c000 r-xp 00000000 00:00 0
",
        )
        .unwrap();
        // Another copy that begins, memory that is no code, and what does not touch the file on both sides.
        let moved: Vec<usize> = (0..=mappings.len()).filter(|index| is_moved_code(&mappings, *index)).collect();
        assert_eq!(moved, [1]);
    }
}
