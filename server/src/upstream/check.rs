//! Whether an upstream sent what was asked for.

use std::fs::File;
use std::io;

use symseal_artifact::ReleaseFile;
use symseal_module::DebugId;

use crate::blobs::map_own;

use super::elf_start::build_ids_at_start;

/// What a file must be to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Expected {
    /// A file of the module with this id.
    Id(DebugId),
    /// A PE file with this code id.
    Image(String),
    /// Nothing in it says what it is: a source file.
    Anything,
}

impl Expected {
    /// What the file's first bytes say against it: what they cannot tell is told at its end.
    pub(super) fn refuses_start(&self, start: &[u8]) -> Option<String> {
        let magic = |magics: &[&[u8]]| {
            let starts = magics.iter().any(|magic| start.starts_with(magic));
            (!starts)
                .then(|| format!("expected a file that can hold {self}, found one that begins with {}", shown(start)))
        };
        match self {
            Self::Id(DebugId::BuildId(id)) => match build_ids_at_start(start) {
                None => magic(&[b"\x7fELF"]).or_else(|| magic(&[])),
                Some(found) if found.is_empty() || found.contains(&id.as_bytes()) => None,
                Some(_) => Some(format!("expected {self}, found a file of another build-id")),
            },
            // A PE file without a PDB has its debug information in itself.
            Self::Id(DebugId::Pdb { .. }) => magic(&[b"Microsoft C/C++ MSF 7.00", b"BSJB", b"MZ"]),
            Self::Id(DebugId::MachoUuid(_)) => magic(&[
                b"\xcf\xfa\xed\xfe",
                b"\xce\xfa\xed\xfe",
                b"\xca\xfe\xba\xbe",
                b"\xca\xfe\xba\xbf",
                b"\xfe\xed\xfa",
            ]),
            Self::Image(_) => magic(&[b"MZ"]),
            Self::Anything => None,
        }
    }

    /// What the whole file says against it. Blocks.
    pub(super) fn refuses(&self, file: &File) -> io::Result<Option<String>> {
        if *self == Self::Anything {
            return Ok(None);
        }
        if file.metadata()?.len() == 0 {
            return Ok(Some(format!("expected {self}, found an empty file")));
        }
        // The file is complete, and nothing writes to it before this map is gone.
        let bytes = map_own(file)?;
        let parsed = match ReleaseFile::parse(&bytes) {
            Ok(parsed) => parsed,
            Err(error) => return Ok(Some(format!("expected {self}, found {error}"))),
        };
        if parsed.has_inline_debugger_scripts() {
            return Ok(Some("it has a script that a debugger would run".to_owned()));
        }
        let found: Vec<String> = match (self, &parsed) {
            (Self::Image(_), ReleaseFile::Object(object)) => object.code_id().into_iter().collect(),
            _ => parsed.debug_ids().iter().map(DebugId::to_string).collect(),
        };
        let holds = match self {
            Self::Id(id) => found.contains(&id.to_string()),
            Self::Image(code_id) => found.iter().any(|found| found.eq_ignore_ascii_case(code_id)),
            Self::Anything => true,
        };
        Ok((!holds).then(|| format!("expected {self}, found {}", found.join(", "))))
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Id(id) => write!(f, "the module {id}"),
            Self::Image(code_id) => write!(f, "the image {code_id}"),
            Self::Anything => f.write_str("a file"),
        }
    }
}

fn shown(start: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(start.get(..16).unwrap_or(start)))
}
