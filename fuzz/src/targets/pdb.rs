//! Any bytes as a PDB, plain or portable: what identifies it, and its functions; records in order, rows and inlined calls
//! within them.

use crate::streams::check_stream;
use symseal_artifact::{FrameRule, FrameTable, PdbFile, PortablePdb, pdb_functions, pdb_source_files};

pub(super) fn run(bytes: &[u8]) {
    let _ = PortablePdb::parse(bytes);
    let Ok(pdb) = PdbFile::parse(bytes) else { return };
    let _ = (pdb.debug_id(), pdb.guid(), pdb.age(), pdb.stream_age(), pdb.arch(), pdb.is_stripped());
    let _ = pdb.build_texts();
    let records = pdb.build_records();
    // Parts of one stream, and names of modules from another one; escaping makes four characters of a byte at most.
    let texts = records.directories.iter().chain(&records.paths).chain(&records.command_lines);
    assert!(texts.map(String::len).sum::<usize>() <= 4096.max(24 * bytes.len()));
    if let Ok(table) = pdb.frame_data() {
        check_frames(&table, bytes.len());
    }
    let mut paths = 0_usize;
    pdb_source_files(&pdb, &mut |path, _| paths += path.len());
    assert!(paths <= 64 * bytes.len().max(1 << 20));
    let Ok(stream) = pdb_functions(&pdb) else { return };
    check_stream(&stream);
}

/// In order, and in proportion to the file.
fn check_frames(table: &FrameTable, bytes: usize) {
    assert!(table.frames().is_sorted());
    assert!(table.frames().len() <= 4096.max(bytes / 8));
    let program = |rule| match rule {
        FrameRule::Program(program) => table.program(program),
        FrameRule::Sizes { .. } => "",
    };
    let mut written = 0;
    for text in table.frames().iter().map(|frame| program(frame.rule)) {
        assert!(!text.chars().any(char::is_control));
        written += text.len();
    }
    assert!(written <= 4096.max(8 * bytes));
}
