//! Any bytes as release files with debug information: records in order, rows and inlined calls within them.
//!
//! An input that starts with `FILES` is cut into several: a count byte, then for each file its length in four bytes,
//! least significant first, and its bytes. The first is the binary, the second its supplementary file, where it names
//! one, and all others are split DWARF.

use crate::streams::check_stream;
use symseal_artifact::{DebugFiles, ObjectFile, functions, source_files};

const MOST_FILES: u8 = 8;

fn files(bytes: &[u8]) -> Vec<&[u8]> {
    let Some((count, mut rest)) = bytes.strip_prefix(b"FILES").and_then(|rest| rest.split_first()) else {
        return vec![bytes];
    };
    let mut files = Vec::new();
    for _ in 0..(*count).min(MOST_FILES) {
        let Some((length, behind)) = rest.split_first_chunk::<4>() else { break };
        let length = (u32::from_le_bytes(*length) as usize).min(behind.len());
        let (file, behind) = behind.split_at(length);
        files.push(file);
        rest = behind;
    }
    files
}

pub(super) fn run(bytes: &[u8]) {
    let files = files(bytes);
    let Some((Ok(object), others)) = files.split_first().map(|(first, others)| (ObjectFile::parse(first), others))
    else {
        return;
    };
    let others: Vec<ObjectFile<'_>> = others.iter().filter_map(|bytes| ObjectFile::parse(bytes).ok()).collect();
    let _ = (object.split_kind(), object.split_units(), object.split_ids());
    let _ = object.build_texts();
    // How the files are held to the binary before they name anything.
    let split: Vec<&ObjectFile<'_>> = others.iter().collect();
    let _ = object.split_misfits(&split);
    for other in &others {
        let _ = other.split_contents();
    }
    let supplementary = others.first().filter(|_| object.debug_alt_link().is_some());
    let with = DebugFiles { supplementary, split: &others, ..DebugFiles::default() };
    // All paths together stay in proportion to the debug information.
    let mut paths = 0_usize;
    let taken = source_files(&object, &with, &mut |path, _| {
        paths += path.len();
        assert!(!path.is_empty());
    });
    let bytes = with.split.iter().chain([&object]).map(ObjectFile::debug_bytes).sum::<u64>();
    assert!(taken.is_err() || paths as u64 <= 64 * bytes.max(1 << 20));
    let Ok(stream) = functions(&object, &with) else { return };
    check_stream(&stream);
}
