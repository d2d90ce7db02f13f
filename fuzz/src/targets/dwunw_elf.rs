//! ELF files that C programs give to libdwunw.a: whatever they hold, the table that comes of them is sound, and every address has an answer.

use symseal_dwunw_elf::{Functions, Parts};
use symseal_unwind::Table;

pub(super) fn run(bytes: &[u8]) {
    let Ok(parts) = Parts::read(bytes) else { return };
    assert!(parts.image_base < parts.image_end);
    if let Ok(compiled) = parts.compile()
        && !compiled.is_empty()
    {
        let table = Table::open(&compiled).expect("our own table opens");
        table.verify().expect("our own table is sound");
    }
    if let Ok(functions) = Functions::new(parts.symbols) {
        for address in [0, 1, parts.image_base, parts.image_end, 0x1010, u64::MAX] {
            if let Some(hit) = functions.find(address) {
                assert!(hit.start <= address && !hit.name.contains(&0));
            }
        }
    }
}
