//! Any bytes as a symbol table: what opens answers within bounds, and what verifies answers consistently.
#![no_main]

use libfuzzer_sys::fuzz_target;
use symseal_module::Rva;
use symseal_symx::Table;

fuzz_target!(|bytes: &[u8]| {
    let Ok(table) = Table::open(bytes) else { return };
    let verified = table.verify().is_ok();
    let _ = (table.counts(), table.debug_id(), table.producer());
    for function in table.functions() {
        let _ = (function.name, function.aliases().count());
        let _ = table.lookup(function.start).map(|hit| hit.frames().count());
    }
    let mut last = 0;
    for hit in table.rows() {
        let range = hit.range();
        let frames = hit.frames().count();
        if verified {
            assert!(range.start.0 >= last && range.end > range.start && (1..=1024).contains(&frames));
            let found = table.lookup(Rva(range.end.0 - 1)).map(|hit| hit.range());
            assert_eq!(found, Some(range.clone()));
        }
        last = range.end.0;
    }
});
