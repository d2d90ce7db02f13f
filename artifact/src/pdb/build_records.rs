//! What a PDB tells of the machines that compiled and linked: `LF_BUILDINFO` in the id stream (IPI), `S_ENVBLOCK` of the linker's
//! module, and the names of object files. (`cvinfo.h` and `dbi.h` of microsoft-pdb; LLVM, "CodeView Type Records")

use super::header::{u16_at, u32_at};
use super::identity::PdbFile;
use super::pages::Pages;
use super::records::{IPI_STREAM, Records};
use crate::escaped;
use pdb2::{FallibleIterator, PDB, SymbolData};
use std::collections::BTreeSet;

/// The module that the linker adds, with what it was called by.
const LINKER_MODULE: &str = "* Linker *";

/// What stands in a PDB about the machines that built the program, each text once and escaped as paths in symbol tables are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BuildRecords {
    /// Directories in which compilers and linkers were run.
    pub directories: BTreeSet<String>,
    /// Object files, libraries, compilers and program databases, where a directory is named with them.
    pub paths: BTreeSet<String>,
    /// Command lines of compilers and linkers.
    pub command_lines: BTreeSet<String>,
}

/// Arguments of `LF_BUILDINFO`, in their order (`CV_BuildInfo_e`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Argument {
    Directory,
    Path,
    CommandLine,
}

const ARGUMENTS: [Argument; 5] =
    [Argument::Directory, Argument::Path, Argument::Path, Argument::Path, Argument::CommandLine];

impl BuildRecords {
    /// Reads them as far as they are whole.
    pub(crate) fn of(file: &PdbFile<'_>) -> Self {
        let mut found = Self::default();
        let Ok(mut pdb) = file.open() else { return found };
        found.read_ids(&mut pdb);
        found.read_modules(&mut pdb);
        found
    }

    fn read_ids<'d>(&mut self, pdb: &mut PDB<'d, Pages<'d>>) {
        let ids = Records::read(pdb, IPI_STREAM);
        // No text is put together twice for one role, and all of them take no more than a few times their stream: records may name one another as they like.
        let mut seen = BTreeSet::new();
        let mut left = ids.longest_texts();
        for record in ids.build_infos() {
            let count = u16_at(record, 2).map_or(0, usize::from);
            let numbers = record.get(4..).unwrap_or_default().chunks_exact(4).take(count);
            for (argument, number) in ARGUMENTS.iter().zip(numbers) {
                let Some(number) = u32_at(number, 0).filter(|number| seen.insert((*number, *argument))) else {
                    continue;
                };
                let text = ids.text(number, &mut left);
                self.add(*argument, &text);
            }
        }
    }

    fn read_modules<'d>(&mut self, pdb: &mut PDB<'d, Pages<'d>>) {
        let Ok(information) = pdb.debug_information() else { return };
        let Ok(mut modules) = information.modules() else { return };
        let mut linker_was_read = false;
        while let Ok(Some(module)) = modules.next() {
            self.add(Argument::Path, module.module_name().as_bytes());
            self.add(Argument::Path, module.object_file_name().as_bytes());
            // A linker adds one. More of them may name one stream again and again.
            if module.module_name() != LINKER_MODULE || std::mem::replace(&mut linker_was_read, true) {
                continue;
            }
            let Ok(Some(info)) = pdb.module_info(&module) else { continue };
            let Ok(mut symbols) = info.symbols() else { continue };
            while let Ok(Some(symbol)) = symbols.next() {
                if let Ok(SymbolData::EnvBlock(block)) = symbol.parse() {
                    // Names and their values by turns.
                    for pair in block.rgsz.chunks_exact(2) {
                        let [name, value] = pair else { continue };
                        let argument = match name.as_bytes() {
                            b"cwd" => Argument::Directory,
                            b"cmd" => Argument::CommandLine,
                            _ => Argument::Path,
                        };
                        self.add(argument, value.as_bytes());
                    }
                }
            }
        }
    }

    fn add(&mut self, argument: Argument, text: &[u8]) {
        let into = match argument {
            Argument::Directory => &mut self.directories,
            Argument::CommandLine => &mut self.command_lines,
            // A name without a directory says nothing about the machine.
            Argument::Path if text.iter().any(|byte| matches!(byte, b'/' | b'\\')) => &mut self.paths,
            Argument::Path => return,
        };
        if !text.is_empty() {
            into.insert(escaped(text).into_owned());
        }
    }
}
