//! Any bytes as a PDB, plain or portable: what identifies it, and its functions; records in order, rows and inlined calls
//! within them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symseal_artifact::{PdbFile, PortablePdb, pdb_functions};
use symseal_symx::NO_INLINE;

fuzz_target!(|bytes: &[u8]| {
    let _ = PortablePdb::parse(bytes);
    let Ok(pdb) = PdbFile::parse(bytes) else { return };
    let _ = (pdb.debug_id(), pdb.guid(), pdb.age(), pdb.stream_age(), pdb.arch(), pdb.is_stripped());
    let Ok(stream) = pdb_functions(&pdb) else { return };
    let mut reached = 0;
    for function in &stream.functions {
        assert!(function.start.0 >= reached && function.size > 0);
        reached = function.start.0.checked_add(function.size).expect("an end");
        assert!(function.rows.is_sorted_by(|a, b| a.start < b.start));
        assert!(function.rows.iter().all(|row| (function.start.0..reached).contains(&row.start.0)));
        let count = function.inlines.len();
        assert!(function.rows.iter().all(|row| row.inline == NO_INLINE || (row.inline as usize) < count));
        for (at, site) in function.inlines.iter().enumerate() {
            assert!(site.parent == NO_INLINE || (site.parent as usize) < at);
        }
    }
});
