//! One pack in the making. A pack's bytes follow from the names and bytes of its members alone, so one that comes from
//! elsewhere is checked by making it again.

use std::collections::HashSet;

use super::zip::{END_BYTES, MAX_MEMBERS, Member, end_record};
use super::{MAX_PACK_BYTES, SourceTable, SourcesError, path, value};
use crate::digest::Digest;
use crate::title;

/// The members of a pack, as far as they are known.
#[derive(Debug, Default)]
pub(super) struct PackBuilder {
    members: Vec<Member>,
    names: HashSet<String>,
    /// Bytes of the finished file, without its end record.
    footprint: u64,
}

impl PackBuilder {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Bytes of the file, were it finished now.
    pub(super) fn bytes(&self) -> u64 {
        self.footprint.saturating_add(END_BYTES)
    }

    /// The name of a member in this pack: that of its path, with the digest where another member has that name.
    pub(super) fn name_of(&self, path: &str, sha256: &Digest) -> String {
        let name = path::member_name(path);
        // Names that an unzip would take for one, on a file system that ignores case, are one name.
        if self.names.contains(&title::fold(&name)) { format!("{name}%~{}", sha256.hex()) } else { name }
    }

    /// Whether a member of this name and size still fits.
    pub(super) fn has_room(&self, name: &str, size: u64) -> bool {
        self.members.len() < MAX_MEMBERS && self.bytes().saturating_add(Member::footprint(name, size)) <= MAX_PACK_BYTES
    }

    /// Adds a member whose local header begins at `header`, and gives that header. There must be room for it.
    pub(super) fn add(&mut self, name: String, bytes: &[u8], header: u64) -> Vec<u8> {
        self.footprint = self.footprint.saturating_add(Member::footprint(&name, bytes.len() as u64));
        self.names.insert(title::fold(&name));
        let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
        let member =
            Member { crc: crc32fast::hash(bytes), size: narrow(bytes.len() as u64), header: narrow(header), name };
        let local = member.local_header();
        self.members.push(member);
        local
    }

    /// What follows the last member, whose bytes end at `end`.
    pub(super) fn tail(&self, end: u64) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.members.iter().flat_map(Member::central_header).collect();
        let narrow = |wide: u64| u32::try_from(wide).unwrap_or(u32::MAX);
        let members = u16::try_from(self.members.len()).unwrap_or(u16::MAX);
        let record = end_record(members, narrow(bytes.len() as u64), narrow(end));
        bytes.extend(record);
        bytes
    }
}

impl SourceTable {
    /// Checks a whole pack: its digest, the digest of every file in it, and that an unzip finds in it what this table lists
    /// and nothing else.
    pub fn check_pack(&self, number: usize, bytes: &[u8]) -> Result<(), SourcesError> {
        let entry = self.packs.get(number).ok_or_else(|| value(format!("packs/{number}"), "there is no such pack"))?;
        let found = Digest::of(bytes);
        if found != entry.sha256 || bytes.len() as u64 != entry.size {
            return Err(SourcesError::Bytes {
                place: entry.path.clone(),
                expected: format!("{} of {} bytes", entry.sha256, entry.size),
                found: format!("{found} of {} bytes", bytes.len()),
            });
        }
        let differs = |at: u64, expected: &str| SourcesError::Bytes {
            place: entry.path.clone(),
            expected: format!("{expected} at {at}"),
            found: "other bytes".to_owned(),
        };
        let mut files: Vec<_> = self.files.iter().filter(|file| usize::try_from(file.pack) == Ok(number)).collect();
        // Stable: of several paths with the same bytes, the first one names the member.
        files.sort_by_key(|file| file.offset);
        let mut pack = PackBuilder::default();
        let mut end = 0;
        let mut last: Option<(u64, u64, Digest)> = None;
        for file in files {
            let this = (file.offset, file.size, file.sha256);
            if last == Some(this) {
                continue;
            }
            let data = file.slice(bytes)?;
            let name = pack.name_of(&file.path, &file.sha256);
            if !pack.has_room(&name, file.size) {
                return Err(differs(end, "a member that fits"));
            }
            let header = pack.add(name, data, end);
            if end.checked_add(header.len() as u64) != Some(file.offset) || !lies_at(bytes, end, &header) {
                return Err(differs(end, "the header of the next file"));
            }
            end = file.offset.saturating_add(file.size);
            last = Some(this);
        }
        let tail = pack.tail(end);
        if !lies_at(bytes, end, &tail) || end.checked_add(tail.len() as u64) != Some(entry.size) {
            return Err(differs(end, "the directory of these files and the end of the pack"));
        }
        Ok(())
    }
}

fn lies_at(bytes: &[u8], at: u64, expected: &[u8]) -> bool {
    usize::try_from(at).ok().and_then(|at| bytes.get(at..)).is_some_and(|rest| rest.starts_with(expected))
}
