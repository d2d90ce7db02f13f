//! Any bytes as Go's function table: records in order, rows and inlined calls within them.
//!
//! The first byte says size and byte order: bit 0 for 64 bits, bit 1 for the least significant byte first.
#![allow(dead_code, reason = "the tables that the tests are made of")]

#[path = "../../../artifact/tests/support/go_table.rs"]
mod go_table;

use crate::streams::check_stream;
use symseal_artifact::{DebugFiles, ObjectFile, functions};

pub(super) fn run(bytes: &[u8]) {
    let Some((layout, table)) = bytes.split_first() else { return };
    let file = go_table::elf_around(table, layout & 1 != 0, layout & 2 != 0);
    let object = ObjectFile::parse(&file).expect("headers are fine");
    let stream = functions(&object, &DebugFiles::default()).expect("nothing to pair");
    check_stream(&stream);
}
