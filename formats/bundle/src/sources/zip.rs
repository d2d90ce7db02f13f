//! The three records of a zip file of stored members (PKWARE APPNOTE 6.3.10, sections 4.3.7, 4.3.12 and 4.3.16).
//!
//! We write them ourselves: they are part of a digest, which must not change with a library's version, and stored members
//! need no more than this. Everything about a member but its name, size and CRC-32 is constant.

/// Version 2.0 is needed to extract.
const VERSION_NEEDED: u16 = 20;
/// Made by version 2.0 on Unix, so that the mode counts.
const MADE_BY: u16 = 3 << 8 | VERSION_NEEDED;
/// Names are UTF-8 (bit 11).
const FLAGS: u16 = 1 << 11;
/// 1980-01-01, the first day that the format knows, at midnight.
const DATE: u16 = 1 << 5 | 1;
const TIME: u16 = 0;
/// A regular file that its owner may write and everybody may read.
const MODE: u32 = 0o100_644 << 16;

/// Bytes of a local header without its name.
const LOCAL_BYTES: u64 = 30;
/// Bytes of a central header without its name.
const CENTRAL_BYTES: u64 = 46;
/// Bytes of the end record.
pub(super) const END_BYTES: u64 = 22;
/// The most members: one more would mean zip64.
pub(super) const MAX_MEMBERS: usize = 0xfffe;

/// A member, as its headers tell of it. All bounds are the pack's, far below 4 GiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    /// Its path in the zip file.
    pub(super) name: String,
    /// CRC-32 of its bytes.
    pub(super) crc: u32,
    /// Its bytes.
    pub(super) size: u32,
    /// Where its local header begins.
    pub(super) header: u32,
}

impl Member {
    /// The local header, which stands before the member's bytes.
    pub(super) fn local_header(&self) -> Vec<u8> {
        let mut bytes = b"PK\x03\x04".to_vec();
        self.push_shared(&mut bytes);
        bytes.extend(self.name.as_bytes());
        bytes
    }

    /// The member's header in the central directory.
    pub(super) fn central_header(&self) -> Vec<u8> {
        let mut bytes = b"PK\x01\x02".to_vec();
        bytes.extend(MADE_BY.to_le_bytes());
        self.push_shared(&mut bytes);
        // No comment, disk 0, no internal attributes.
        bytes.extend([0; 6]);
        bytes.extend(MODE.to_le_bytes());
        bytes.extend(self.header.to_le_bytes());
        bytes.extend(self.name.as_bytes());
        bytes
    }

    /// What both headers have in common: from the version needed to the lengths of name and extra field.
    fn push_shared(&self, bytes: &mut Vec<u8>) {
        // Method 0: stored.
        for field in [VERSION_NEEDED, FLAGS, 0, TIME, DATE] {
            bytes.extend(field.to_le_bytes());
        }
        for field in [self.crc, self.size, self.size] {
            bytes.extend(field.to_le_bytes());
        }
        bytes.extend(name_length(&self.name).to_le_bytes());
        bytes.extend([0; 2]);
    }

    /// Bytes that a member takes in the file, both headers included.
    pub(super) fn footprint(name: &str, size: u64) -> u64 {
        let headers = LOCAL_BYTES + CENTRAL_BYTES;
        size.saturating_add(headers).saturating_add((name.len() as u64).saturating_mul(2))
    }
}

/// The end of the file: `members` headers of `directory_bytes` bytes, the first one at `directory`.
pub(super) fn end_record(members: u16, directory_bytes: u32, directory: u32) -> Vec<u8> {
    let mut bytes = b"PK\x05\x06".to_vec();
    // Disk 0 of disk 0.
    bytes.extend([0; 4]);
    bytes.extend(members.to_le_bytes());
    bytes.extend(members.to_le_bytes());
    bytes.extend(directory_bytes.to_le_bytes());
    bytes.extend(directory.to_le_bytes());
    // No comment.
    bytes.extend([0; 2]);
    bytes
}

/// Paths have at most 4096 bytes, three times that when escaped.
fn name_length(name: &str) -> u16 {
    u16::try_from(name.len()).unwrap_or(u16::MAX)
}
