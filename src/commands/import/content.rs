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

/// Why a file is not taken, for people.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0}")]
    Because(String),
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("{0}")]
    Archive(#[from] ArchiveError),
}

/// All bytes of a file; where it is packed by itself or alone in a cabinet, unpacked. What it was packed with.
pub(super) fn read(mut file: File, name: &str) -> Result<(Vec<u8>, Option<ArchiveKind>), Refused> {
    let mut head = Vec::new();
    Read::by_ref(&mut file).take(SNIFF_BYTES as u64).read_to_end(&mut head)?;
    file.seek(SeekFrom::Start(0))?;
    match sniff(&head) {
        FileKind::Archive(kind) if kind.is_compression() || kind == ArchiveKind::Cab => {
            Ok((unpacked(file, name, kind)?, Some(kind)))
        }
        FileKind::Archive(kind) => Err(Refused::Because(format!("a {kind}, in which several files may be: unpack it"))),
        _ => Ok((whole(&mut file)?, None)),
    }
}

fn whole(content: &mut dyn Read) -> Result<Vec<u8>, Refused> {
    let mut bytes = Vec::new();
    content.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(Refused::Because(format!("expected at most {LARGEST} bytes: publish a bundle (symseal publish)")));
    }
    Ok(bytes)
}

fn unpacked(mut file: File, name: &str, kind: ArchiveKind) -> Result<Vec<u8>, Refused> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    let limits = Limits { members: 16, depth: 0, member_bytes: LARGEST, total_bytes: 2 * LARGEST, ..Limits::default() };
    let visit = &mut |_: &Member<'_>, content: &mut dyn Read| -> Result<(), Refused> {
        if !found.is_empty() {
            return Err(Refused::Because(format!("a {kind} with several files: expected one")));
        }
        found.push(whole(content)?);
        Ok(())
    };
    let report = read_archive::<Refused>(name, Source::Seekable(&mut file), &limits, visit)?;
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
