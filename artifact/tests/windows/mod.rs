//! PE files with their PDBs, beside what two other readers make of them.
#![allow(dead_code, reason = "each test file has this module and uses its own part")]

mod second_reader;

use crate::support::compare::Comparison;
use crate::support::expected::{demangle, undecorate, without_parentheses};
use crate::support::lookup::Found;
use crate::support::{Expected, lookup};
use std::path::Path;
use symseal_artifact::{Arch, DebugFiles, FunctionStream, ObjectFile, PdbFile, functions};
use symseal_symx::SymbolSource;

/// A PE file and what we make of it.
pub(crate) struct Module {
    pub(crate) bytes: Vec<u8>,
    pdb: Option<Vec<u8>>,
    pub(crate) stream: FunctionStream,
    pub(crate) base: u64,
}

impl Module {
    /// A PE file with the PDB beside it, if there is one.
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("the PE");
        let object = ObjectFile::parse(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let pdb_bytes = std::fs::read(path.with_extension("pdb")).ok();
        let pdb = pdb_bytes.as_deref().map(|bytes| PdbFile::parse(bytes).expect("a PDB"));
        let with = DebugFiles { pdb: pdb.as_ref(), ..DebugFiles::default() };
        let stream = functions(&object, &with).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        lookup::check_shape(&stream);
        let base = object.image_base().0;
        Self { bytes, pdb: pdb_bytes, stream, base }
    }

    /// Compares at addresses for which llvm-symbolizer's frames are known, with linkage names as they are or for people.
    pub(crate) fn compare(&self, expected: &[(u64, Vec<Expected>)], is_for_people: bool) -> Comparison {
        let rvas: Vec<u64> = expected.iter().map(|(address, _)| address.wrapping_sub(self.base)).collect();
        let mut found: Vec<Vec<Found>> = rvas.iter().map(|rva| lookup::frames(&self.stream, *rva)).collect();
        if is_for_people {
            demangle(&mut found, without_parentheses);
            undecorate(&mut found);
        }
        let object = ObjectFile::parse(&self.bytes).expect("a PE");
        if object.arch() == Arch::X86 {
            // LLVM takes C's decoration from every name there, also an underscore that the source has.
            for frame in found.iter_mut().flatten() {
                let shorter: Vec<String> = [&frame.symbol, &frame.name]
                    .iter()
                    .filter_map(|name| name.strip_prefix('_').map(str::to_owned))
                    .collect();
                frame.aliases.extend(shorter);
            }
        }
        let has_pdb_lines = self.stream.functions.iter().any(|function| function.source == SymbolSource::Pdb);
        let judge = match &self.pdb {
            Some(pdb) if has_pdb_lines => second_reader::frames(pdb, &rvas),
            _ => vec![Vec::new(); rvas.len()],
        };
        let mut comparison = Comparison::default();
        for ((((address, expected), found), judge), rva) in expected.iter().zip(&found).zip(&judge).zip(&rvas) {
            if found.is_empty() && !expected.is_empty() && self.is_padding(*rva) {
                comparison.rule("(rule) padding behind a function's end, which is no frame");
            } else if expected.last().is_some_and(|frame| frame.function.starts_with('.')) {
                comparison.rule("(rule) a label of assembly within a function, which gives no name");
            } else if found.iter().any(is_handler) {
                comparison.rule("(rule) code that handles exceptions, which LLVM gives to the symbol before it");
            } else {
                comparison.add_judged(*address, expected, found, judge);
            }
        }
        comparison
    }

    /// How many of the addresses the second reader has frames for, and at how many its depth, files and lines are ours.
    pub(crate) fn second_opinion(&self, addresses: &[u64]) -> (u64, u64) {
        let Some(pdb) = &self.pdb else { return (0, 0) };
        let rvas: Vec<u64> = addresses.iter().map(|address| address.wrapping_sub(self.base)).collect();
        let (mut compared, mut equal) = (0, 0);
        for (judge, rva) in second_reader::frames(pdb, &rvas).iter().zip(&rvas) {
            let found = lookup::frames(&self.stream, *rva);
            // It lets lines and functions reach over gaps to the next one.
            let is_gap =
                found.is_empty() || found.iter().any(|frame| frame.line == 0 || frame.folded || is_handler(frame));
            if judge.is_empty() || is_gap {
                continue;
            }
            compared += 1;
            let is_same = |(judge, found): (&Expected, &Found)| judge.line == found.line && judge.file == found.file;
            let is_equal = judge.len() == found.len() && judge.iter().zip(&found).all(is_same);
            if !is_equal && compared - equal < 4 {
                println!("{rva:#x}\n  second reader {judge:?}\n  ours {found:?}");
            }
            equal += u64::from(is_equal);
        }
        (compared, equal)
    }

    /// Behind the end of a function, by its own debug information, and only instructions that do nothing up to the next.
    fn is_padding(&self, rva: u64) -> bool {
        let functions = &self.stream.functions;
        let next = functions.partition_point(|function| function.start.0 <= rva);
        let (Some(before), Some(next)) = (next.checked_sub(1).and_then(|at| functions.get(at)), functions.get(next))
        else {
            return false;
        };
        let object = ObjectFile::parse(&self.bytes).expect("a PE");
        let Some((start, text)) = object.section(".text") else { return false };
        let at = |rva: u64| usize::try_from((self.base + rva).wrapping_sub(start.0)).expect("an offset");
        let gap = text.get(at(before.start.0 + before.size)..at(next.start.0)).unwrap_or_default();
        is_idle(gap)
    }
}

/// Named by a label of Microsoft's compiler.
fn is_handler(found: &Found) -> bool {
    found.symbol.starts_with("__ehhandler$") || found.symbol.starts_with("__unwindfunclet$")
}

/// `int3`, `nop` in its forms of 1 to 15 bytes, `xchg ax, ax`, zeros. (Intel, "Recommended Multi-Byte Sequence of NOP")
fn is_idle(mut code: &[u8]) -> bool {
    while let Some(first) = code.first() {
        let prefixes = code.iter().take_while(|byte| matches!(byte, 0x66 | 0x2e)).count();
        let length = match code.get(prefixes..).unwrap_or_default() {
            [0x90 | 0xcc, ..] => 1,
            [0x0f, 0x1f, modrm, ..] => match (modrm >> 6, modrm & 7) {
                (0, 4) | (1, 0..=3 | 5..=7) => 4,
                (0, _) => 3,
                (1, 4) => 5,
                (2, 4) => 8,
                (2, _) => 7,
                _ => return false,
            },
            _ if *first == 0 => 1,
            _ => return false,
        };
        code = code.get(prefixes + length..).unwrap_or_default();
    }
    true
}
