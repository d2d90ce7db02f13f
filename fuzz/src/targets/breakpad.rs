//! Any bytes as a symbol file of Breakpad: what identifies it, its functions, and the symbol table that is made of them.

use crate::streams::check_stream;
use symseal_artifact::BreakpadFile;
use symseal_module::Svma;
use symseal_symx::{Table, TableInput};

pub(super) fn run(bytes: &[u8]) {
    let Ok(file) = BreakpadFile::parse(bytes) else { return };
    let (_, _, _) = (file.id(), file.stack_records(), file.code_id());
    let stream = file.functions();
    check_stream(&stream);
    let Ok(id) = file.debug_id() else { return };
    let input = TableInput {
        debug_id: &id,
        image_base: Svma(0),
        source_sha256: [0; 32],
        producer: "fuzz",
        strings: &stream.strings,
        functions: &stream.functions,
    };
    let table = symseal_symx::write(&input).expect("records in order");
    Table::open(&table).expect("a table").verify().expect("a sound table");
}
