//! Whether an upstream sent what was asked for: a file of the module, and of the kind that was asked for.
//!
//! A stripped program has the id of its debug file. Where it is sent as that file, it must not stand before the one that another upstream has.

use std::fs::File;
use std::io;

use symseal_artifact::{ObjectFile, ObjectKind, ReleaseFile};
use symseal_module::DebugId;

use crate::blobs::map_own;

use super::elf_start::{LoadedAtStart, build_ids_at_start, loaded_at_start};

/// What a file must be to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The debug information of the module with this id. A program that was not stripped is that too.
    Debuginfo(DebugId),
    /// The program of the module with this id, stripped or not.
    Executable(DebugId),
    /// A PE file with this code id.
    Image(String),
    /// Nothing in it says what it is: a source file.
    Anything,
}

/// Why a file is not what was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It is no file of the module, or not whole, or nobody should have it.
    OtherFile(String),
    /// It is a file of the module, of another kind: who sends it has none of the kind that was asked for.
    OtherKind(String),
}

impl Expected {
    /// What the file's first bytes say against it: what they cannot tell is told at its end.
    pub(super) fn refuses_start(&self, start: &[u8]) -> Option<Refusal> {
        let magic = |magics: &[&[u8]]| {
            let starts = magics.iter().any(|magic| start.starts_with(magic));
            (!starts)
                .then(|| format!("expected a file that can hold {self}, found one that begins with {}", shown(start)))
        };
        let refused = match self {
            Self::Debuginfo(DebugId::BuildId(id)) | Self::Executable(DebugId::BuildId(id)) => {
                match build_ids_at_start(start) {
                    None => magic(&[b"\x7fELF"]).or_else(|| magic(&[])),
                    Some(found) if found.is_empty() || found.contains(&id.as_bytes()) => None,
                    Some(_) => Some(format!("expected {self}, found a file of another build-id")),
                }
            }
            // A PE file without a PDB has its debug information in itself.
            Self::Debuginfo(DebugId::Pdb { .. }) | Self::Executable(DebugId::Pdb { .. }) => {
                magic(&[b"Microsoft C/C++ MSF 7.00", b"BSJB", b"MZ"])
            }
            Self::Debuginfo(DebugId::MachoUuid(_)) | Self::Executable(DebugId::MachoUuid(_)) => magic(&[
                b"\xcf\xfa\xed\xfe",
                b"\xce\xfa\xed\xfe",
                b"\xca\xfe\xba\xbe",
                b"\xca\xfe\xba\xbf",
                b"\xfe\xed\xfa",
            ]),
            Self::Image(_) => magic(&[b"MZ"]),
            Self::Anything => None,
        };
        if let Some(why) = refused {
            return Some(Refusal::OtherFile(why));
        }
        // Of a debug file that `objcopy --only-keep-debug` made no segment has its code.
        let has_no_code = || loaded_at_start(start).is_some_and(|loaded| loaded.code == Some(0));
        (self.is_program_of_build_id() && has_no_code()).then(|| self.other_kind())
    }

    /// Whether a file that begins so may turn out at its end to be of the other kind, so that nobody is shown any of it before: what a client got a part
    /// of cannot be taken back, and elfutils' keeps that as "there is no such file" for ten minutes. `length` is the file's in bytes, where it is known.
    pub(super) fn may_be_of_another_kind(&self, start: &[u8], length: Option<u64>) -> bool {
        if !matches!(self, Self::Debuginfo(DebugId::BuildId(_)) | Self::Executable(DebugId::BuildId(_))) {
            return false;
        }
        let Some(LoadedAtStart { end, code, section_headers }) = loaded_at_start(start) else { return false };
        // Section headers are written behind all that they describe: what follows them was appended, as to programs that unpack themselves, and is no
        // debug information. Go's linker, and whoever moves them, writes them in front.
        let described = if section_headers < end { length } else { length.map(|length| length.min(section_headers)) };
        let (length, described) = (length.unwrap_or(section_headers), described.unwrap_or(section_headers));
        match (self.is_program_of_build_id(), code) {
            // A module of Linux, which is not large, has no segments.
            (_, None) if end == 0 => true,
            // Its segments are those of the program whose debug file it is, as elfutils' `eu-strip -f` leaves them.
            (true, _) => length < end,
            (false, Some(0)) => false,
            // Debug information is behind what is loaded, and seldom much smaller.
            (false, _) => described.saturating_sub(end) < end / 4,
        }
    }

    /// What the whole file says against it. Blocks.
    pub(super) fn refuses(&self, file: &File) -> io::Result<Option<Refusal>> {
        let other_file = |why: String| Ok(Some(Refusal::OtherFile(why)));
        if *self == Self::Anything {
            return Ok(None);
        }
        if file.metadata()?.len() == 0 {
            return other_file(format!("expected {self}, found an empty file"));
        }
        // The file is complete, and nothing writes to it before this map is gone.
        let bytes = map_own(file)?;
        let parsed = match ReleaseFile::parse(&bytes) {
            Ok(parsed) => parsed,
            Err(error) => return other_file(format!("expected {self}, found {error}")),
        };
        if parsed.has_inline_debugger_scripts() {
            return other_file("it has a script that a debugger would run".to_owned());
        }
        let found: Vec<String> = match (self, &parsed) {
            (Self::Image(_), ReleaseFile::Object(object)) => object.code_id().into_iter().collect(),
            _ => parsed.debug_ids().iter().map(DebugId::to_string).collect(),
        };
        let holds = match self {
            Self::Debuginfo(id) | Self::Executable(id) => found.contains(&id.to_string()),
            Self::Image(code_id) => found.iter().any(|found| found.eq_ignore_ascii_case(code_id)),
            Self::Anything => true,
        };
        if !holds {
            return other_file(format!("expected {self}, found {}", found.join(", ")));
        }
        Ok((!self.is_kind_of(&parsed)).then(|| self.other_kind()))
    }

    /// Whether a file of the module is of the kind that was asked for. What is both is either.
    fn is_kind_of(&self, parsed: &ReleaseFile<'_>) -> bool {
        let slices = match parsed {
            ReleaseFile::Object(object) => std::slice::from_ref(object),
            ReleaseFile::Fat(slices) => slices.as_slice(),
            ReleaseFile::Pdb(_) | ReleaseFile::PortablePdb(_) => return matches!(self, Self::Debuginfo(_)),
        };
        match self {
            Self::Debuginfo(_) => slices.iter().any(is_for_debuggers),
            Self::Executable(_) | Self::Image(_) => slices.iter().any(is_program),
            Self::Anything => true,
        }
    }

    fn is_program_of_build_id(&self) -> bool {
        matches!(self, Self::Executable(DebugId::BuildId(_)))
    }

    fn other_kind(&self) -> Refusal {
        let found = match self {
            Self::Debuginfo(_) => "a file with neither debug information nor a symbol table",
            _ => "a file without its code",
        };
        Refusal::OtherKind(format!("expected {self}, found {found}"))
    }
}

/// elfutils' server takes for a debug file what has a section `.debug_*` or `.zdebug_*` with content, or a symbol table and nothing that is loaded. A
/// program that kept its symbol table is taken too: there are servers that give it, and names are better than none.
fn is_for_debuggers(object: &ObjectFile<'_>) -> bool {
    object.is_debuginfo()
        || object.has_symtab()
        || object.kind() == ObjectKind::DebugCompanion
        || object.debug_alt_link().is_some()
        || object.has_embedded_portable_pdb()
}

/// Anything of it that is loaded is there: code, or the data of a file that has no code. Modules of Linux are relocatable files.
fn is_program(object: &ObjectFile<'_>) -> bool {
    object.is_executable() || object.has_code() || object.is_data_alone()
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Debuginfo(id) => write!(f, "debug information of the module {id}"),
            Self::Executable(id) => write!(f, "the program of the module {id}"),
            Self::Image(code_id) => write!(f, "the image {code_id}"),
            Self::Anything => f.write_str("a file"),
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::OtherFile(why) | Self::OtherKind(why)) = self;
        f.write_str(why)
    }
}

fn shown(start: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(start.get(..16).unwrap_or(start)))
}
