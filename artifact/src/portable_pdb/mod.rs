//! Portable program databases (.NET): metadata with a stream that identifies it.
//!
//! The root and its streams are those of ECMA-335, II.24.2; the stream `#Pdb` is in "Portable PDB v1.0" of .NET. Line
//! tables are not read: .NET code gets its addresses at run time.

use crate::ArtifactError;
use crate::error::malformed;
use crate::fields::range_of;
use crate::pe::printed;
use symseal_module::DebugId;

/// What symbol servers write where other PDBs have their age.
const NO_AGE: u32 = u32::MAX;

/// A name of a stream is at most as long, its NUL included. (ECMA-335, II.24.2.2)
const LONGEST_NAME: usize = 32;

/// A portable program database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortablePdb {
    guid: [u8; 16],
    stamp: u32,
}

impl PortablePdb {
    /// Reads the stream that identifies it. Every stream must lie within `data`.
    pub fn parse(data: &[u8]) -> Result<Self, ArtifactError> {
        let version_length = field(data, "the metadata root", 12)?;
        // Signature, versions, a reserved field and the length come before the text, flags and the count after it.
        let streams_at = u64::from(version_length).saturating_add(16);
        let counts = range_of(data, "the metadata root", streams_at, 4)?;
        let count = counts.last_chunk::<2>().map_or(0, |count| u16::from_le_bytes(*count));
        let mut at = streams_at.saturating_add(4);
        let mut found = None;
        for _ in 0..count {
            let header = range_of(data, "a stream header", at, 8)?;
            let (offset, size) = (u32_at(header, 0), u32_at(header, 4));
            at = at.saturating_add(8);
            let rest = usize::try_from(at).ok().and_then(|at| data.get(at..)).unwrap_or_default();
            let name = rest.get(..memchr::memchr(0, rest).unwrap_or(rest.len())).unwrap_or_default();
            if name.len() >= LONGEST_NAME {
                return Err(malformed(
                    "a stream header",
                    "a name of at most 32 bytes",
                    format!("{} bytes", name.len()),
                ));
            }
            // The name ends with a NUL and is padded to 4 bytes.
            at = at.saturating_add((name.len() as u64 + 1).next_multiple_of(4));
            let what = format!("stream {}", crate::escaped(name));
            let stream = range_of(data, &what, u64::from(offset), u64::from(size))?;
            if name == b"#Pdb" && found.is_none() {
                found = Some(stream);
            }
        }
        let stream = found.ok_or_else(|| malformed("portable PDB", "a stream #Pdb", format!("{count} others")))?;
        let (Some(guid), Some(stamp)) = (stream.first_chunk::<16>(), stream.get(16..20)) else {
            return Err(malformed("stream #Pdb", "an id of 20 bytes", format!("{} bytes", stream.len())));
        };
        Ok(Self { guid: printed(*guid), stamp: u32_at(stamp, 0) })
    }

    /// The GUID, and 0xffffffff as its age: what a PE file that names it has too.
    pub fn debug_id(&self) -> DebugId {
        DebugId::Pdb { guid: self.guid, age: NO_AGE }
    }

    /// As printed, most significant byte first.
    pub fn guid(&self) -> [u8; 16] {
        self.guid
    }

    /// The last four bytes of the id, which the PE file has as the time stamp of its debug directory entry.
    pub fn stamp(&self) -> u32 {
        self.stamp
    }
}

fn field(data: &[u8], expected: &str, at: u64) -> Result<u32, ArtifactError> {
    range_of(data, expected, at, 4).map(|bytes| u32_at(bytes, 0))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk::<4>).map_or(0, |bytes| u32::from_le_bytes(*bytes))
}
