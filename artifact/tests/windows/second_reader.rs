//! pdb-addr2line's frames: a second reader of PDBs, where llvm-symbolizer is known to lose inlined calls.

use crate::support::{Expected, NOT_ASKED};
use pdb_addr2line::{ContextPdbData, pdb};
use std::io::Cursor;

/// Frames of addresses relative to the image base, innermost first. Its names have arguments, so they are cut off.
pub(crate) fn frames(pdb: &[u8], rvas: &[u64]) -> Vec<Vec<Expected>> {
    let pdb = pdb::PDB::open(Cursor::new(pdb)).expect("a PDB");
    let data = ContextPdbData::try_from_pdb(pdb).expect("streams");
    let context = data.make_context().expect("a context");
    let frames = |rva: u64| {
        let found = context.find_frames(u32::try_from(rva).expect("32 bits")).ok().flatten();
        let frames = found.map(|found| found.frames).unwrap_or_default();
        let frame = |frame: pdb_addr2line::Frame<'_>| Expected {
            function: without_arguments(&frame.function.unwrap_or_default()),
            file: frame.file.unwrap_or_default().into_owned(),
            // Lines that tell a debugger not to stop are none.
            line: frame.line.filter(|line| !matches!(line, 0xfe_efee | 0xf0_0f00)).unwrap_or(0).into(),
            column: NOT_ASKED,
        };
        frames.into_iter().map(frame).collect()
    };
    rvas.iter().map(|rva| frames(*rva)).collect()
}

/// `a::b<(c)>(int) const` is `a::b<(c)>`.
fn without_arguments(name: &str) -> String {
    let name = name.strip_suffix(" const").unwrap_or(name);
    let mut depth = 0;
    for (at, char) in name.char_indices().rev() {
        match char {
            ')' => depth += 1,
            '(' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return name.get(..at).filter(|_| char == '(' && at > 0).unwrap_or(name).to_owned();
        }
    }
    name.to_owned()
}
