//! Any bytes as the table of a sources artifact and a pack of it: what is accepted has one form, and files of it their digests.
//!
//! The input is the length of the table (4 bytes, little-endian), the table, the pack.

use symseal_bundle::Digest;
use symseal_bundle::sources::{SourceTable, SourcesWriter};

pub(super) fn run(bytes: &[u8]) {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return };
    let (json, pack) = rest.split_at(rest.len().min(u32::from_le_bytes(*length) as usize));
    let Ok(mut table) = SourceTable::parse(json) else { return };
    assert_eq!(table.to_canonical_json().unwrap(), json);
    // The digests of a fuzzed pack are never right by chance.
    if let Some(entry) = table.packs.first_mut() {
        (entry.sha256, entry.size) = (Digest::of(pack), pack.len() as u64);
    }
    let files = table.files.iter().filter(|file| file.pack == 0);
    let read: Vec<_> = files.map(|file| (file.path.as_str(), file.slice(pack), file.checked_by)).collect();
    if table.check_pack(0, pack).is_err() {
        return;
    }
    // One pack that holds is the pack that we write.
    if table.packs.len() == 1 && !read.is_empty() {
        let mut writer = SourcesWriter::new();
        for (path, bytes, checked_by) in read {
            assert!(writer.add(path, bytes.unwrap(), checked_by).unwrap().is_empty());
        }
        let (written, again) = writer.finish().unwrap();
        assert_eq!(written.unwrap().bytes, pack);
        assert_eq!(again, table);
    }
}
