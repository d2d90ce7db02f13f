//! Any bytes as a PDB, plain or portable: what identifies it, and its functions; records in order, rows and inlined calls
//! within them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symseal_artifact::{PdbFile, PortablePdb, pdb_functions};
use symseal_fuzz::check_stream;

fuzz_target!(|bytes: &[u8]| {
    let _ = PortablePdb::parse(bytes);
    let Ok(pdb) = PdbFile::parse(bytes) else { return };
    let _ = (pdb.debug_id(), pdb.guid(), pdb.age(), pdb.stream_age(), pdb.arch(), pdb.is_stripped());
    let Ok(stream) = pdb_functions(&pdb) else { return };
    check_stream(&stream);
});
