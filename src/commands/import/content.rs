//! The bytes of a file of a store, unpacked, and what they are.

use std::io::{Read, Seek as _, SeekFrom};

use cap_std::fs::File;
use symseal_artifact::{
    ArchiveError, ArchiveKind, BreakpadFile, FileKind, Limits, Member, ObjectFile, ReleaseFile, SNIFF_BYTES, Source,
    StackRecords, read_archive, sniff,
};
use symseal_module::DebugId;

/// The largest file that is taken, in bytes: what the server takes.
pub(super) const LARGEST: u64 = 8 << 30;

/// Bytes to which SSQP fills up a build-id with zeros.
const PADDED_BUILD_ID: usize = 20;

/// A packed file is taken for so many times as large where it does not say how large it is.
const PACKED: u64 = 6;

/// Why a file is not taken, for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0}")]
    Because(String),
    /// It may be read where there is more room.
    #[error("expected at most {0} bytes: publish a bundle (symseal publish)")]
    LargerThan(u64),
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("{0}")]
    Archive(#[from] ArchiveError),
}

/// A file of a store that is open.
pub(super) struct Opened {
    file: File,
    /// What it is packed with: by itself, or alone in a cabinet.
    packed: Option<ArchiveKind>,
    /// Bytes that it will have unpacked, as far as can be told.
    expected: u64,
}

impl Opened {
    /// Reads no more than what tells the size.
    pub(super) fn of(mut file: File, name: &str) -> Result<Self, Refused> {
        let mut head = Vec::new();
        Read::by_ref(&mut file).take(SNIFF_BYTES as u64).read_to_end(&mut head)?;
        let size = file.metadata()?.len();
        let (packed, expected) = match sniff(&head) {
            FileKind::Archive(ArchiveKind::Cab) => (Some(ArchiveKind::Cab), size_in_cabinet(&mut file, name)?),
            FileKind::Archive(kind) if kind.is_compression() => (Some(kind), size.saturating_mul(PACKED)),
            FileKind::Archive(kind) => {
                return Err(Refused::Because(format!("a {kind}, in which several files may be: unpack it")));
            }
            _ => (None, size),
        };
        Ok(Self { file, packed, expected })
    }

    /// Bytes that it is expected to have unpacked. Another's word: [`read`](Self::read) holds to what it is given.
    pub(super) fn expected(&self) -> u64 {
        self.expected
    }

    /// What it is packed with.
    pub(super) fn packed(&self) -> Option<ArchiveKind> {
        self.packed
    }

    /// Bytes that it has unpacked, where that is known and no guess: a file that is too large need not be read to find that out.
    fn known(&self) -> Option<u64> {
        matches!(self.packed, None | Some(ArchiveKind::Cab)).then_some(self.expected)
    }

    /// Whether it may have at most so many bytes, as far as its size is known.
    ///
    /// # Errors
    /// [`Refused::LargerThan`] `at_most` bytes.
    pub(super) fn may_fit(&self, at_most: u64) -> Result<(), Refused> {
        if self.known().is_some_and(|size| size > at_most) { Err(Refused::LargerThan(at_most)) } else { Ok(()) }
    }

    /// All its bytes, unpacked.
    ///
    /// # Errors
    /// [`Refused::LargerThan`] `at_most` bytes; whatever else keeps it from being read.
    pub(super) fn read(mut self, name: &str, at_most: u64) -> Result<Vec<u8>, Refused> {
        self.may_fit(at_most)?;
        self.file.seek(SeekFrom::Start(0))?;
        match self.packed {
            Some(kind) => unpacked(self.file, name, kind, at_most),
            None => whole(&mut self.file, at_most),
        }
    }
}

fn whole(content: &mut dyn Read, at_most: u64) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    content.take(at_most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > at_most { Err(Refused::LargerThan(at_most)) } else { Ok(bytes) }
}

fn limits() -> Limits {
    Limits { members: 16, depth: 0, member_bytes: LARGEST, total_bytes: 2 * LARGEST, ..Limits::default() }
}

/// What the first file in a cabinet says that it has, unpacked.
fn size_in_cabinet(file: &mut File, name: &str) -> Result<u64, Refused> {
    let mut size = None;
    let visit = &mut |member: &Member<'_>, _: &mut dyn Read| -> Result<(), Refused> {
        size = member.size_hint;
        Err(Refused::Because("its size is known".to_owned()))
    };
    match (read_archive::<Refused>(name, Source::Seekable(file), &limits(), visit), size) {
        (_, Some(size)) => Ok(size),
        (Err(error), None) => Err(error),
        // Whatever it has in it, reading it says why it is not taken.
        (Ok(_), None) => Ok(0),
    }
}

fn unpacked(mut file: File, name: &str, kind: ArchiveKind, at_most: u64) -> Result<Vec<u8>, Refused> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let visit = &mut |_: &Member<'_>, content: &mut dyn Read| -> Result<(), Refused> {
        if !found.is_empty() {
            return Err(Refused::Because(format!("a {kind} with several files: expected one")));
        }
        found.push(whole(content, at_most)?);
        Ok(())
    };
    let report = read_archive::<Refused>(name, Source::Seekable(&mut file), &limits(), visit)?;
    let why = || report.passed_over.first().map_or_else(|| "no file in it".to_owned(), |it| it.reason.to_string());
    found.pop().ok_or_else(|| Refused::Because(why()))
}

/// What a file is, by its bytes.
#[derive(Debug, Default)]
pub(super) struct Identity {
    /// Its ids, for people.
    pub(super) ids: Vec<String>,
    /// The ids that a store may have it under, in lower case.
    pub(super) spellings: Vec<String>,
    /// Name of the module's debug file, where the file says it.
    pub(super) name: Option<String>,
    /// The PDB that it names.
    pub(super) pdb: Option<String>,
    /// It is a symbol file of Breakpad, with these records for stack walkers.
    pub(super) stack: Option<StackRecords>,
}

impl Identity {
    pub(super) fn of(bytes: &[u8]) -> Result<Self, Refused> {
        let because = |error: symseal_artifact::ArtifactError| Refused::Because(error.to_string());
        if BreakpadFile::is_one(bytes) {
            let file = BreakpadFile::parse(bytes).map_err(because)?;
            let id = file.debug_id().map_err(because)?;
            let mut spellings = vec![file.id().to_lowercase()];
            spellings.extend(file.code_id().map(str::to_lowercase));
            return Ok(Self {
                ids: vec![id.to_string()],
                spellings,
                name: Some(file.name().to_owned()),
                pdb: None,
                stack: Some(file.stack_records()),
            });
        }
        let mut found = Self::default();
        match ReleaseFile::parse(bytes).map_err(because)? {
            ReleaseFile::Object(object) => found.object(&object),
            ReleaseFile::Fat(slices) => slices.iter().for_each(|slice| found.object(slice)),
            ReleaseFile::Pdb(pdb) => found.id(&pdb.debug_id()),
            ReleaseFile::PortablePdb(pdb) => found.id(&pdb.debug_id()),
        }
        Ok(found)
    }

    fn object(&mut self, object: &ObjectFile<'_>) {
        if let Some(id) = object.debug_id() {
            self.id(id);
        }
        if let Some(code_id) = object.code_id() {
            self.spellings.push(code_id.to_lowercase());
            self.ids.push(code_id);
        }
        self.pdb = object.pdb_reference().map(|pdb| base_name(pdb.path));
    }

    /// Keys of symsrv, SSQP and Sentry's unified layout.
    fn id(&mut self, id: &DebugId) {
        let hex: String = id.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        match id {
            DebugId::Pdb { age, .. } => self.spellings.push(format!("{hex}{age:x}")),
            DebugId::BuildId(_) => {
                let padded = format!("{hex:0<width$}", width = 2 * PADDED_BUILD_ID);
                self.spellings.extend([format!("elf-buildid-{padded}"), format!("elf-buildid-sym-{padded}")]);
                self.spellings.push(hex);
            }
            DebugId::MachoUuid(_) => {
                self.spellings.extend([format!("mach-uuid-{hex}"), format!("mach-uuid-sym-{hex}"), format!("{hex}0")]);
                self.spellings.push(hex);
            }
        }
        self.ids.push(id.to_string());
    }
}

/// The last part of a path that another machine wrote.
fn base_name(path: &[u8]) -> String {
    let name = path.rsplit(|byte| matches!(byte, b'/' | b'\\')).next().unwrap_or(path);
    symseal_artifact::escaped(name).into_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// 32 KiB of zeros, by deflate.
    const ZEROS: &str = "edc101010000008090feafee080a0000000000000000000000000000000000000000000000000000000000000018";

    /// A cabinet of one file of 96 KiB, packed with MSZIP.
    fn cabinet() -> Vec<u8> {
        let digit = |text: &str| u8::from_str_radix(text, 16).unwrap();
        let deflated: Vec<u8> = (0..ZEROS.len()).step_by(2).map(|at| digit(&ZEROS[at..at + 2])).collect();
        let packed = [b"CK", &deflated[..]].concat();
        let block = [&[0; 4][..], &(packed.len() as u16).to_le_bytes(), &0x8000_u16.to_le_bytes(), &packed].concat();
        let file = [&0x18000_u32.to_le_bytes()[..], &[0; 12], b"app.pdb\0"].concat();
        // Behind the header and one folder's entry.
        let (files_at, blocks_at) = (36 + 8_u32, 36 + 8 + file.len() as u32);
        let size = blocks_at + 3 * block.len() as u32;
        let words = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        let folder = [&blocks_at.to_le_bytes()[..], &3_u16.to_le_bytes(), &1_u16.to_le_bytes()].concat();
        let counts = [3, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        [b"MSCF".to_vec(), words(&[0, size, 0, files_at, 0]), counts.to_vec(), folder, file, block.repeat(3)].concat()
    }

    #[test]
    fn a_file_that_is_known_to_be_too_large_is_not_read() {
        // One byte more than the largest that is taken, of which nothing is on the disk: read, it would be for seconds, and in memory.
        let file = tempfile::tempfile().unwrap();
        file.set_len(LARGEST + 1).unwrap();
        let mut handle = file.try_clone().unwrap();
        let opened = Opened::of(File::from_std(file), "app.pdb").unwrap();
        assert!(matches!(opened.may_fit(LARGEST), Err(Refused::LargerThan(LARGEST))));
        let refused = opened.read("app.pdb", LARGEST).unwrap_err();
        assert!(matches!(refused, Refused::LargerThan(LARGEST)), "{refused}");
        // The place in the file is shared: nothing was read but what tells the kind.
        assert!(handle.stream_position().unwrap() <= SNIFF_BYTES as u64);
    }

    #[test]
    fn a_cabinet_counts_for_what_is_in_it_and_a_file_for_no_more_than_it_is_given() {
        let opened = |bytes: &[u8]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(bytes).unwrap();
            file.seek(SeekFrom::Start(0)).unwrap();
            Opened::of(File::from_std(file), "app.pd_").unwrap()
        };
        let (cabinet, content) = (cabinet(), vec![0; 3 << 15]);
        let size = content.len() as u64;
        assert_eq!(opened(&cabinet).expected(), size);
        assert_eq!(opened(b"MZ and more").expected(), 11);
        for bytes in [&cabinet, &content] {
            assert_eq!(opened(bytes).read("app.pd_", size).unwrap(), content);
            let refused = opened(bytes).read("app.pd_", size - 1).unwrap_err();
            assert!(matches!(refused, Refused::LargerThan(limit) if limit == size - 1), "{refused}");
        }
    }
}
