//! The platform's identity of a module.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// The longest build-id that is accepted, in bytes: libdebuginfod's own bound.
pub const MAX_BUILD_ID_BYTES: usize = 64;

/// What identifies a module on its platform, and ties a debug file to it.
///
/// Text forms, as they appear in JSON, file names and commands:
///
/// | kind | form |
/// | --- | --- |
/// | ELF build-id | lower-case hex at its own length, `93ac61ec…` |
/// | PDB GUID and age | `GUID-age`: 32 upper-case hex digits, `-`, the age in lower-case hex without padding |
/// | Mach-O UUID | `uuid:` and 32 upper-case hex digits |
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DebugId {
    /// GNU build-id, or another identity of an ELF file in the same form.
    BuildId(BuildId),
    /// GUID (in the byte order that is printed) and age of a PDB.
    Pdb {
        /// 16 bytes, most significant first, as printed.
        guid: [u8; 16],
        /// The DBI stream's age.
        age: u32,
    },
    /// `LC_UUID` of one architecture slice of a Mach-O file.
    MachoUuid([u8; 16]),
}

/// The bytes of a build-id, 1 to [`MAX_BUILD_ID_BYTES`] of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId {
    // The bytes come first so that the derived order is that of the text form; unused ones are zero.
    bytes: [u8; MAX_BUILD_ID_BYTES],
    len: u8,
}

impl BuildId {
    /// The id's bytes in file order.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Bytes to which SSQP fills up a build-id with zeros. (Key conventions of dotnet/symstore)
    pub const SSQP_BYTES: usize = 20;

    /// The hex digits by which servers of SSQP know it: of [`Self::SSQP_BYTES`], or of all where there are more.
    pub fn ssqp_digits(&self) -> String {
        let missing = Self::SSQP_BYTES.saturating_sub(self.as_bytes().len());
        let bytes = self.as_bytes().iter().copied().chain(core::iter::repeat_n(0, missing));
        bytes.map(|byte| format!("{byte:02x}")).collect()
    }
}

impl DebugId {
    /// An ELF build-id of 1 to 64 bytes. All-zero ids are refused: they identify nothing.
    pub fn from_build_id(bytes: &[u8]) -> Result<Self, ParseDebugIdError> {
        if bytes.is_empty() || bytes.len() > MAX_BUILD_ID_BYTES {
            return Err(ParseDebugIdError::Length { bytes: bytes.len() });
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return Err(ParseDebugIdError::AllZero);
        }
        let mut id = BuildId { bytes: [0; MAX_BUILD_ID_BYTES], len: bytes.len() as u8 };
        for (slot, byte) in id.bytes.iter_mut().zip(bytes) {
            *slot = *byte;
        }
        Ok(Self::BuildId(id))
    }

    /// The raw bytes: the build-id, the GUID or the UUID.
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::BuildId(id) => id.as_bytes(),
            Self::Pdb { guid, .. } => guid,
            Self::MachoUuid(uuid) => uuid,
        }
    }

    /// The build-id, where this is one.
    pub fn build_id(&self) -> Option<&[u8]> {
        match self {
            Self::BuildId(id) => Some(id.as_bytes()),
            _ => None,
        }
    }
}

impl fmt::Display for DebugId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuildId(id) => id.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Self::Pdb { guid, age } => {
                guid.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
                write!(f, "-{age:x}")
            }
            Self::MachoUuid(uuid) => {
                f.write_str("uuid:")?;
                uuid.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
            }
        }
    }
}

impl fmt::Debug for DebugId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DebugId({self})")
    }
}

impl FromStr for DebugId {
    type Err = ParseDebugIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(hex) = text.strip_prefix("uuid:") {
            return Ok(Self::MachoUuid(hex_array(hex)?));
        }
        if let Some((guid, age)) = text.split_once('-') {
            if age.is_empty() || age.starts_with('+') {
                return Err(ParseDebugIdError::NotHex);
            }
            let age = u32::from_str_radix(age, 16).map_err(|_| ParseDebugIdError::NotHex)?;
            return Ok(Self::Pdb { guid: hex_array(guid)?, age });
        }
        let mut bytes = [0; MAX_BUILD_ID_BYTES];
        let len = decode_hex(text, &mut bytes)?;
        Self::from_build_id(bytes.get(..len).unwrap_or_default())
    }
}

/// Why a text or a byte string is no debug id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParseDebugIdError {
    /// Not the number of bytes that the kind of id has.
    Length {
        /// Bytes found.
        bytes: usize,
    },
    /// A character that is no hex digit, or an odd number of digits.
    NotHex,
    /// Every byte is zero.
    AllZero,
}

impl fmt::Display for ParseDebugIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { bytes } => write!(
                f,
                "{bytes} bytes are no debug id: expected 1 to {MAX_BUILD_ID_BYTES} bytes of build-id, or 16 of a GUID or UUID"
            ),
            Self::NotHex => f.write_str(
                "expected a debug id: an even number of hex digits (build-id), GUID-age (PDB) or uuid:HEX (Mach-O)",
            ),
            Self::AllZero => f.write_str("a debug id of zero bytes alone identifies nothing"),
        }
    }
}

impl core::error::Error for ParseDebugIdError {}

fn hex_array(text: &str) -> Result<[u8; 16], ParseDebugIdError> {
    let mut bytes = [0; MAX_BUILD_ID_BYTES];
    let len = decode_hex(text, &mut bytes)?;
    bytes.get(..len).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()).ok_or(ParseDebugIdError::Length { bytes: len })
}

/// Decodes hex of either case into `out`; the number of bytes written.
fn decode_hex(text: &str, out: &mut [u8; MAX_BUILD_ID_BYTES]) -> Result<usize, ParseDebugIdError> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return Err(ParseDebugIdError::NotHex);
    }
    if digits.len() / 2 > out.len() {
        return Err(ParseDebugIdError::Length { bytes: digits.len() / 2 });
    }
    for (slot, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        let mut value = 0;
        for digit in pair {
            let digit = char::from(*digit).to_digit(16).ok_or(ParseDebugIdError::NotHex)?;
            value = value << 4 | digit;
        }
        *slot = value as u8;
    }
    Ok(digits.len() / 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::string::ToString;

    #[track_caller]
    fn check_text(text: &str) {
        assert_eq!(text.parse::<DebugId>().map(|id| id.to_string()).as_deref(), Ok(text));
    }

    #[test]
    fn every_kind_reads_what_it_prints() {
        check_text("93ac61ec5a8eb1396f9fbd350e3169a558528a40");
        check_text("ab");
        check_text("D6FEA1B2C3D4E5F60718293A4B5C6D7E-1a");
        check_text("uuid:D6FEA1B2C3D4E5F60718293A4B5C6D7E");
    }

    #[test]
    fn build_ids_fold_case() {
        assert_eq!("ABCDEF01".parse::<DebugId>().map(|id| id.to_string()).as_deref(), Ok("abcdef01"));
    }

    #[test]
    fn what_identifies_nothing_is_refused() {
        assert_eq!("".parse::<DebugId>(), Err(ParseDebugIdError::Length { bytes: 0 }));
        assert_eq!("abc".parse::<DebugId>(), Err(ParseDebugIdError::NotHex));
        assert_eq!("zz".parse::<DebugId>(), Err(ParseDebugIdError::NotHex));
        assert_eq!("0000".parse::<DebugId>(), Err(ParseDebugIdError::AllZero));
        assert_eq!("aabb-1".parse::<DebugId>(), Err(ParseDebugIdError::Length { bytes: 2 }));
        assert_eq!("ab".repeat(65).parse::<DebugId>(), Err(ParseDebugIdError::Length { bytes: 65 }));
    }

    #[test]
    fn the_order_is_that_of_the_text() {
        let ids: alloc::vec::Vec<DebugId> = ["aa", "aa01", "ab"].iter().map(|id| id.parse().unwrap()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn ssqp_fills_short_build_ids_up_and_leaves_long_ones() {
        let digits = |id: &str| match id.parse() {
            Ok(DebugId::BuildId(id)) => id.ssqp_digits(),
            other => panic!("{other:?}"),
        };
        assert_eq!(digits("abcdef01"), "abcdef01".to_owned() + &"0".repeat(32));
        assert_eq!(digits(&"ab".repeat(20)), "ab".repeat(20));
        assert_eq!(digits(&"ab".repeat(32)), "ab".repeat(32));
    }
}
