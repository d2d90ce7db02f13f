//! Any bytes as a PDB, plain or portable: what identifies it, and its functions; records in order, rows and inlined calls
//! within them.

use crate::streams::check_stream;
use symseal_artifact::{PdbFile, PortablePdb, pdb_functions};

pub(super) fn run(bytes: &[u8]) {
    let _ = PortablePdb::parse(bytes);
    let Ok(pdb) = PdbFile::parse(bytes) else { return };
    let _ = (pdb.debug_id(), pdb.guid(), pdb.age(), pdb.stream_age(), pdb.arch(), pdb.is_stripped());
    if let Ok(frames) = pdb.frame_data() {
        assert!(frames.is_sorted());
    }
    let Ok(stream) = pdb_functions(&pdb) else { return };
    check_stream(&stream);
}
