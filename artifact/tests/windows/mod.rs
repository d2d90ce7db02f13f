//! PE files with their PDBs, beside what two other readers make of them.
#![allow(dead_code, reason = "each test file has this module and uses its own part")]

pub(crate) mod pdbutil;
mod second_reader;
pub(crate) mod stub;

use crate::support::compare::Comparison;
use crate::support::expected::{demangle, undecorate, without_parentheses};
use crate::support::lookup::Found;
use crate::support::{Expected, llvm_symbolizer_survived, lookup};
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use symseal_artifact::{Arch, DebugFiles, FunctionStream, ObjectFile, PdbFile, functions};
use symseal_symx::SymbolSource;

/// A PE file and what we make of it.
pub(crate) struct Module {
    path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    pdb: Option<Vec<u8>>,
    /// By their records in the PDB, as llvm-pdbutil lists them, where that was asked for.
    procedures: OnceLock<Vec<Range<u64>>>,
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
        Self { path: path.to_owned(), bytes, pdb: pdb_bytes, procedures: OnceLock::new(), stream, base }
    }

    /// Compares beside llvm-symbolizer, and where that has no answer, as it crashed, beside the second reader alone.
    pub(crate) fn compare_at(&self, addresses: &[u64]) -> Comparison {
        let answers = llvm_symbolizer_survived(&self.path, addresses);
        let mut comparison = self.compare(&answers, false);
        let answered: BTreeSet<u64> = answers.iter().map(|(address, _)| *address).collect();
        let rest: Vec<u64> = addresses.iter().copied().filter(|address| !answered.contains(address)).collect();
        for (address, is_equal) in self.second_opinions(&rest) {
            comparison.add_second(address, is_equal);
        }
        comparison
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
            } else if found.is_empty() && self.is_behind_procedure(*rva, expected) {
                comparison.rule("(rule) a table behind a procedure's end, as llvm-pdbutil has its record");
            } else if expected.last().is_some_and(|frame| frame.function.starts_with('.')) {
                comparison.rule("(rule) a label of assembly within a function, which gives no name");
            } else if expected.is_empty() && is_named_alike(judge, found) {
                comparison.judged += 1;
                comparison.rule("(second reader agrees) llvm-symbolizer does not know the address");
            } else if expected.is_empty() && self.is_in_procedure(*rva) {
                comparison.judged += 1;
                comparison.rule("(llvm-pdbutil agrees) llvm-symbolizer does not know a procedure without lines");
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
        let opinions = self.second_opinions(addresses);
        (opinions.len() as u64, opinions.iter().filter(|(_, is_equal)| *is_equal).count() as u64)
    }

    /// The addresses that the second reader has frames for, and whether its depth, files and lines are ours.
    fn second_opinions(&self, addresses: &[u64]) -> Vec<(u64, bool)> {
        let Some(pdb) = &self.pdb else { return Vec::new() };
        let rvas: Vec<u64> = addresses.iter().map(|address| address.wrapping_sub(self.base)).collect();
        let (mut opinions, mut unequal) = (Vec::new(), 0);
        for ((judge, rva), address) in second_reader::frames(pdb, &rvas).iter().zip(&rvas).zip(addresses) {
            let found = lookup::frames(&self.stream, *rva);
            // It lets lines and functions reach over gaps to the next one.
            let is_gap =
                found.is_empty() || found.iter().any(|frame| frame.line == 0 || frame.folded || is_handler(frame));
            if judge.is_empty() || is_gap {
                continue;
            }
            let is_same = |(judge, found): (&Expected, &Found)| judge.line == found.line && judge.file == found.file;
            let is_equal = judge.len() == found.len() && judge.iter().zip(&found).all(is_same);
            unequal += u32::from(!is_equal);
            if !is_equal && unequal < 5 {
                println!("{rva:#x}\n  second reader {judge:?}\n  ours {found:?}");
            }
            opinions.push((*address, is_equal));
        }
        opinions
    }

    fn procedures(&self) -> &[Range<u64>] {
        let pdb = self.path.with_extension("pdb");
        self.procedures
            .get_or_init(|| if self.pdb.is_some() { pdbutil::procedures(&pdb, &self.bytes) } else { Vec::new() })
    }

    /// Our function there is a procedure by its record, from its start to its end.
    fn is_in_procedure(&self, rva: u64) -> bool {
        let functions = &self.stream.functions;
        let next = functions.partition_point(|function| function.start.0 <= rva);
        let function = next.checked_sub(1).and_then(|at| functions.get(at));
        let own = function.map(|function| function.start.0..function.start.0 + function.size);
        own.is_some_and(|own| own.contains(&rva) && self.procedures().contains(&own))
    }

    /// Behind the end of the procedure before it and in no other, by the records that llvm-pdbutil lists; and LLVM knows
    /// no line there. Compilers put tables of jumps behind functions, over which LLVM lets the symbol reach.
    fn is_behind_procedure(&self, rva: u64, expected: &[Expected]) -> bool {
        let [only] = expected else { return false };
        if only.line != 0 {
            return false;
        }
        let procedures = self.procedures();
        let functions = &self.stream.functions;
        let next = functions.partition_point(|function| function.start.0 <= rva);
        let Some(before) = next.checked_sub(1).and_then(|at| functions.get(at)) else { return false };
        let end = before.start.0 + before.size;
        rva >= end
            && procedures.iter().any(|procedure| procedure.end == end)
            && !procedures.iter().any(|procedure| procedure.contains(&rva))
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

/// The second reader has the same functions; where it has no line, names are all there is.
fn is_named_alike(judge: &[Expected], found: &[Found]) -> bool {
    let is_same = |(judge, found): (&Expected, &Found)| {
        judge.line == found.line && (judge.function == found.name || judge.function == found.symbol)
    };
    !judge.is_empty() && judge.len() == found.len() && judge.iter().zip(found).all(is_same)
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
