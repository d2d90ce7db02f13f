//! What a file is asked for by.

use std::fmt;

use symseal_module::{BuildId, DebugId};

/// What a file is asked for by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// The platform's identity of a module.
    Id(DebugId),
    /// GUID and age in which Breakpad's tools, and the Firefox Profiler after them, write the id of every platform's modules.
    Breakpad {
        /// As printed, most significant byte first.
        guid: [u8; 16],
        /// 0 but for PDBs.
        age: u32,
    },
    /// Name and code id of a PE file, in lower case, with a slash between: the code ids of two programs may be equal.
    Image(Box<str>),
}

/// What the bytes of a key begin with (`docs/formats/ids_index.md`, "Keys").
const BUILD_ID: u8 = 1;
const PDB: u8 = 2;
const MACHO_UUID: u8 = 3;
const BREAKPAD: u8 = 4;
const IMAGE: u8 = 5;
/// Of a unit of split DWARF, in the index of trees alone: nobody asks for one by itself.
pub(crate) const SPLIT_UNIT: u8 = 6;

impl Key {
    /// Of a PE file. Symbol servers fold case.
    pub(crate) fn image(name: &str, code_id: &str) -> Self {
        Self::Image(format!("{}/{}", name.to_lowercase(), code_id.to_lowercase()).into())
    }

    /// The keys that may be meant: its own, then build-ids shorter than SSQP writes them, the longest first.
    pub(crate) fn spellings(&self) -> impl Iterator<Item = Self> {
        let padded = match self {
            Self::Id(DebugId::BuildId(id)) if id.as_bytes().len() == BuildId::SSQP_BYTES => id.as_bytes().to_vec(),
            _ => Vec::new(),
        };
        let mut rest = padded;
        let shorter = std::iter::from_fn(move || {
            rest.pop_if(|byte| *byte == 0)?;
            DebugId::from_build_id(&rest).ok().map(Self::Id)
        });
        std::iter::once(self.clone()).chain(shorter)
    }

    /// The key in the index of ids.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let of = |tag: u8, parts: [&[u8]; 2]| {
            let mut bytes = vec![tag];
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            bytes
        };
        match self {
            Self::Id(DebugId::BuildId(id)) => of(BUILD_ID, [id.as_bytes(), b""]),
            Self::Id(DebugId::Pdb { guid, age }) => of(PDB, [guid, &age.to_le_bytes()]),
            Self::Id(DebugId::MachoUuid(uuid)) => of(MACHO_UUID, [uuid, b""]),
            Self::Breakpad { guid, age } => of(BREAKPAD, [guid, &age.to_le_bytes()]),
            Self::Image(text) => of(IMAGE, [text.as_bytes(), b""]),
        }
    }

    /// The key of bytes in the index of ids; `None` for what this version does not write.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (tag, rest) = bytes.split_first()?;
        let guid_and_age = || {
            let (guid, age) = rest.split_first_chunk::<16>()?;
            Some((*guid, u32::from_le_bytes(*age.as_array()?)))
        };
        match *tag {
            BUILD_ID => DebugId::from_build_id(rest).ok().map(Self::Id),
            PDB => guid_and_age().map(|(guid, age)| Self::Id(DebugId::Pdb { guid, age })),
            MACHO_UUID => Some(Self::Id(DebugId::MachoUuid(*rest.as_array()?))),
            BREAKPAD => guid_and_age().map(|(guid, age)| Self::Breakpad { guid, age }),
            IMAGE => std::str::from_utf8(rest).ok().map(|text| Self::Image(text.into())),
            _ => None,
        }
    }

    /// Whether the bytes of a key are those of a platform's identity.
    pub(super) fn is_id(bytes: &[u8]) -> bool {
        matches!(bytes.first(), Some(&(BUILD_ID | PDB | MACHO_UUID)))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => write!(f, "{id}"),
            Self::Breakpad { guid, age } => {
                guid.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
                write!(f, "{age:x}")
            }
            Self::Image(text) => f.write_str(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_of_an_images_name_and_id_does_not_count() {
        assert_eq!(Key::image("App.EXE", "5F3A1B2C1f000"), Key::image("app.exe", "5f3a1b2c1F000"));
    }

    #[test]
    fn every_key_is_read_back_from_its_bytes() {
        let guid = [7; 16];
        for key in [
            Key::Id("ab".parse().unwrap()),
            Key::Id(DebugId::Pdb { guid, age: 3 }),
            Key::Id(DebugId::MachoUuid(guid)),
            Key::Breakpad { guid, age: 3 },
            Key::image("app.exe", "5F3A1B2C1f000"),
        ] {
            assert_eq!(Key::from_bytes(&key.to_bytes()), Some(key));
        }
        for wrong in [&[][..], &[9, 1], &[2, 1], &[3], &[5, 0xff], &[1]] {
            assert_eq!(Key::from_bytes(wrong), None);
        }
    }
}
