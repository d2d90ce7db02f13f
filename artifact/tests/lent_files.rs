//! Every file of the lent inputs that has debug information, beside what other readers say of it at thousands of addresses:
//! all of its code where it has fewer. `tests/accuracy` makes the table in docs/accuracy.md of what this prints.

use crate::support::accuracy::{Measured, measure};
use crate::support::addr2line::{addr2line, without_symbols};
use crate::support::beside::companions;
use crate::support::compare::Comparison;
use crate::support::dwarfdump::subprograms;
use crate::support::dwz_frames::dwz_frames;
use crate::support::padding::{end_of, is_behind_subprogram, is_between_functions};
use crate::support::placed::{LINKED_AT, linked, placed};
use crate::support::slices::{dsym_of, slices_of};
use crate::support::{any_of, fixtures, have, in_parallel, lookup, run, symbolizer};
use crate::windows::Module;
use crate::windows::stub::stub;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use symseal_artifact::{Arch, DebugFiles, FileKind, ObjectFile, ObjectKind, functions, sniff};

/// What is asked of an input, once for each slice of a universal file.
struct Answer {
    /// Processor of a slice.
    slice: Option<&'static str>,
    oracle: &'static str,
    measured: Measured,
}

/// The lent inputs, and a folder for what has to be laid beside one another.
struct Inputs {
    folder: PathBuf,
    scratch: tempfile::TempDir,
    llvm: &'static str,
}

#[test]
fn every_file_with_debug_information_agrees_with_another_reader() {
    let Some(folder) = fixtures() else { return };
    let Some(llvm) = any_of(&["llvm-symbolizer-19", "llvm-symbolizer"]) else { return };
    if !["addr2line", "eu-addr2line", "gdb", "readelf", "llvm-objcopy", "llvm-pdbutil"].into_iter().all(have) {
        return;
    }
    let manifest = std::fs::read(folder.join("MANIFEST.json")).expect("the manifest");
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).expect("JSON");
    let names: Vec<&str> =
        manifest.as_array().expect("a list").iter().filter_map(|entry| entry["file"].as_str()).collect();
    let inputs = Inputs { folder, scratch: tempfile::tempdir().expect("a folder"), llvm };
    let answers = in_parallel(&names, |name| inputs.ask(name));
    let (mut files, mut compared, mut wrong) = (0, 0, Vec::new());
    for (name, answers) in names.iter().zip(answers) {
        files += u32::from(!answers.is_empty());
        for Answer { slice, oracle, measured } in answers {
            let input = slice.map_or_else(|| (*name).to_owned(), |slice| format!("{name} ({slice})"));
            measured.print(&format!("Lent inputs | {oracle}"), &input);
            println!("{}", measured.comparison);
            compared += measured.comparison.compared;
            wrong.extend(measured.verdict(&input));
        }
    }
    println!("{files} files, {compared} addresses");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(files > 90 && compared > 90_000, "{files} files, {compared} addresses");
}

impl Inputs {
    /// Nothing where the file has no debug information, or no code.
    fn ask(&self, name: &str) -> Vec<Answer> {
        let path = self.folder.join(name);
        let bytes = std::fs::read(&path).expect("the input");
        match sniff(&bytes) {
            FileKind::Elf => self.ask_elf(name, &path, &bytes).into_iter().collect(),
            FileKind::Macho | FileKind::MachoFat => self.ask_macho(&path, &bytes),
            FileKind::Pe => self.ask_pe(&path).into_iter().collect(),
            FileKind::Pdb => self.ask_pdb(name, &path, &bytes).into_iter().collect(),
            _ => Vec::new(),
        }
    }

    fn ask_elf(&self, name: &str, path: &Path, bytes: &[u8]) -> Option<Answer> {
        let object = ObjectFile::parse(bytes).ok()?;
        let code = object.unwind_inputs().text;
        if !object.has_debug_info() || code.is_empty() {
            return None;
        }
        let (supplementary, split) = companions(name);
        let read = |name: &&str| std::fs::read(self.folder.join(name)).expect("a companion");
        let (sup_bytes, split_bytes) = (supplementary.as_ref().map(read), split.iter().map(read).collect::<Vec<_>>());
        let parse = |bytes| ObjectFile::parse(bytes).expect("a companion");
        let (sup, split): (Option<ObjectFile<'_>>, Vec<ObjectFile<'_>>) =
            (sup_bytes.as_deref().map(parse), split_bytes.iter().map(|bytes| parse(bytes)).collect());
        let with = DebugFiles { supplementary: sup.as_ref(), split: &split, ..DebugFiles::default() };
        let stream = functions(&object, &with).unwrap_or_else(|error| panic!("{name}: {error}"));
        lookup::check_shape(&stream);
        let base = object.image_base().0;
        let frames = |address: u64| lookup::frames(&stream, address.wrapping_sub(base));
        if object.debug_alt_link().is_some() {
            let program = self.beside_its_supplement(path, supplementary);
            // binutils reads x86-64 alone, and no lines without the supplementary file.
            let is_plain = object.arch() == Arch::X86_64 && supplementary.is_some();
            let measured = measure(&code, |addresses| {
                let answers = match is_plain {
                    true => addr2line(&program, addresses),
                    false => dwz_frames(&program, supplementary.is_some(), addresses),
                };
                let mut comparison = Comparison::default();
                for (address, expected) in addresses.iter().zip(answers) {
                    let found = frames(*address);
                    comparison.add(*address, &without_symbols(expected, &found), &found);
                }
                comparison
            });
            let oracle = if is_plain { "addr2line" } else { "llvm-dwarfdump, addr2line, gdb" };
            return Some(Answer { slice: None, oracle, measured });
        }
        // Version 19 does not read `.zdebug_*` sections.
        let llvm = if object.section(".zdebug_info").is_some() { "llvm-symbolizer" } else { self.llvm };
        let package = package_of(name).map(|package| format!("--dwp={}", self.folder.join(package).display()));
        let arguments: Vec<&str> = package.as_deref().into_iter().collect();
        // Sections that no linker has placed lie over each other for LLVM.
        let is_spread = object.kind() == ObjectKind::Relocatable && placed(path).len() > 1;
        let (program, offset) = match is_spread {
            true => (linked(path, self.scratch.path())?, LINKED_AT),
            false => (path.to_path_buf(), 0),
        };
        let measured = measure(&code, |addresses| {
            let asked: Vec<u64> = addresses.iter().map(|address| address + offset).collect();
            let mut comparison = Comparison::default();
            for (address, expected) in addresses.iter().zip(symbolizer(llvm, &arguments, &program, &asked)) {
                comparison.add(*address, &expected, &frames(*address));
            }
            comparison
        });
        Some(Answer { slice: None, oracle: llvm, measured })
    }

    /// A copy of a file with its supplementary one where its link says, and the link relative to it.
    fn beside_its_supplement(&self, path: &Path, supplementary: Option<&str>) -> PathBuf {
        let name = path.file_name().expect("a name").to_string_lossy();
        let folder = self.scratch.path().join(format!("{name}-and-supplement"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let copy = folder.join("program");
        std::fs::copy(path, &copy).expect("a copy");
        let Some(supplementary) = supplementary else { return copy };
        std::fs::copy(self.folder.join(supplementary), folder.join("supplement")).expect("a copy");
        let bytes = std::fs::read(path).expect("the input");
        let object = ObjectFile::parse(&bytes).expect("an object");
        let link = object.debug_alt_link().expect("a link");
        std::fs::write(folder.join("link"), [b"supplement\0", link.build_id].concat()).expect("a section");
        run("llvm-objcopy", &["--update-section", ".gnu_debugaltlink=link", "program"], &folder).expect("llvm-objcopy");
        copy
    }

    fn ask_macho(&self, path: &Path, bytes: &[u8]) -> Vec<Answer> {
        let dsym_bytes = dsym_of(path).map(|path| std::fs::read(path).expect("the dSYM"));
        let (slices, debug) = (slices_of(bytes), dsym_bytes.as_deref().map(slices_of).unwrap_or_default());
        let is_fat = slices.len() > 1;
        let ask = |slice: &ObjectFile<'_>| {
            let debug = debug.iter().find(|debug| debug.debug_id() == slice.debug_id());
            let code = slice.unwind_inputs().text;
            if code.is_empty() || !slice.has_debug_info() && debug.is_none() {
                return None;
            }
            let stream = functions(slice, &DebugFiles::debug(debug)).expect("functions");
            lookup::check_shape(&stream);
            let name = if slice.arch() == Arch::Aarch64 { "arm64" } else { slice.arch().code() };
            let default = format!("--default-arch={name}");
            let with_dwarf = dsym_of(path).unwrap_or_else(|| path.to_owned());
            let described = OnceCell::new();
            let measured = measure(&code, |addresses| {
                let mut comparison = Comparison::default();
                let (base, end) = (slice.image_base().0, end_of(&code));
                for (address, expected) in addresses.iter().zip(symbolizer(self.llvm, &[&default], path, addresses)) {
                    let found = lookup::frames(&stream, address - base);
                    let rva = address - base;
                    if found.is_empty() && is_between_functions(&stream, rva, end - base, &expected) {
                        comparison.rule("(rule) padding behind a function's end, which is no frame");
                    } else if found.is_empty()
                        && !expected.is_empty()
                        && expected.iter().all(|frame| frame.line == 0)
                        && is_behind_subprogram(
                            &stream,
                            base,
                            rva,
                            described.get_or_init(|| subprograms(&with_dwarf, name)),
                        )
                    {
                        comparison.rule("(rule) a table behind a function's end, as llvm-dwarfdump has it");
                    } else {
                        comparison.add(*address, &expected, &found);
                    }
                }
                comparison
            });
            Some(Answer { slice: is_fat.then_some(name), oracle: self.llvm, measured })
        };
        slices.iter().filter_map(ask).collect()
    }

    fn ask_pe(&self, path: &Path) -> Option<Answer> {
        let bytes = std::fs::read(path).expect("the input");
        let object = ObjectFile::parse(&bytes).ok()?;
        if !object.has_debug_info() && !path.with_extension("pdb").is_file() {
            return None;
        }
        Some(self.ask_pair(path))
    }

    /// A PE file with the PDB beside it.
    fn ask_pair(&self, path: &Path) -> Answer {
        let module = Module::read(path);
        let code = ObjectFile::parse(&module.bytes).expect("a PE").unwind_inputs().text;
        let measured = measure(&code, |addresses| module.compare_at(addresses));
        Answer { slice: None, oracle: self.llvm, measured }
    }

    /// A PDB without its program beside it: with the program of another PDB of the same build, or with one of headers alone.
    fn ask_pdb(&self, name: &str, path: &Path, bytes: &[u8]) -> Option<Answer> {
        let has_program = ["exe", "dll"].iter().any(|kind| path.with_extension(kind).is_file());
        // LLVM does not read where code was moved to; windows_pairs.rs holds this one to Microsoft's reader.
        if has_program || name.ends_with("omap_stretched.pdb") {
            return None;
        }
        let file = path.file_name().expect("a name").to_string_lossy();
        let folder = self.scratch.path().join(format!("{file}-and-program"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let program = match file.strip_suffix("_with_srcsrv.pdb") {
            Some(other) => {
                let (program, pdb) = (folder.join(format!("{other}.exe")), folder.join(format!("{other}.pdb")));
                std::fs::copy(path.with_file_name(format!("{other}.exe")), &program).expect("a copy");
                std::fs::copy(path, pdb).expect("a copy");
                program
            }
            None => {
                let program = folder.join(path.with_extension("exe").file_name().expect("a name"));
                std::fs::write(&program, stub(bytes, &file)).expect("a program");
                std::fs::copy(path, program.with_extension("pdb")).expect("a copy");
                program
            }
        };
        Some(self.ask_pair(&program))
    }
}

/// The package of split units that an input does not name, but that holds its units.
fn package_of(name: &str) -> Option<&'static str> {
    const SAMPLY: &str = "samply/fixtures/other/simple-example/out/";
    Some(match name {
        "elf-var/split/fix4.o" | "elf-var/split/linux_entry4.o" => "elf-var/split/split4.dwp",
        "elf-var/split/fix5.o" | "elf-var/split/linux_entry5.o" => "elf-var/split/split5.dwp",
        _ if name.strip_prefix(SAMPLY)?.starts_with("with-dwo/") || name.ends_with("dwp-debuglink/main.dbg") => {
            "samply/fixtures/other/simple-example/out/with-dwp/main.dwp"
        }
        _ => return None,
    })
}
