//! One module: from its files to its tables, its index and its entry in the symbol index.

use symseal_artifact::{Arch, DebugFiles, DebugInfoKind, ObjectFile, UnwindInputs};
use symseal_bundle::page_hashes::FilePages;
use symseal_bundle::pages::{self, Measured};
use symseal_bundle::{
    DebugInfo, Digest, FileEntry, FileRole, InputEntry, LayoutDir, ModuleEntry, ModuleStatistics, compose,
    module_index, title,
};
use symseal_module::{DebugId, Svma};
use symseal_unwind::compile;

use crate::error::BuildError;
use crate::inputs::{self, Identified};
use crate::pairing::Module;
use crate::report::{ModuleReport, UnsupportedRange, UnwindReport};

/// More ranges that could not be compiled would help nobody.
const MAX_UNSUPPORTED_LISTED: usize = 20;

/// A finished module: its entry, the page hashes of its files, and what to report.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) id: DebugId,
    pub(crate) entry: ModuleEntry,
    pub(crate) pages: Vec<FilePages>,
    pub(crate) report: ModuleReport,
}

/// Makes the tables of a module and stores all its files as blobs.
pub(crate) fn build(
    id: &DebugId,
    module: &Module,
    store_executables: bool,
    layout: &LayoutDir,
) -> Result<Finished, BuildError> {
    let binary = module.binary.as_ref().map(Loaded::read).transpose()?;
    let debug = module.debug.as_ref().map(Loaded::read).transpose()?;
    let binary_object = binary.as_ref().map(Loaded::parse).transpose()?;
    let debug_object = debug.as_ref().map(Loaded::parse).transpose()?;
    // One of the two is there: pairing makes no empty modules.
    let (Some(main), Some(main_object)) =
        (binary.as_ref().or(debug.as_ref()), binary_object.as_ref().or(debug_object.as_ref()))
    else {
        return Err(BuildError::NoModules { paths: id.to_string(), files: 0 });
    };
    let separate = debug_object.as_ref().filter(|_| binary.is_some());
    // What the symbols are read from stands first; the code decides what is unwound.
    let symbols_from = debug.as_ref().unwrap_or(main);

    let (symbols, unwind) = rayon::join(
        || symbol_table(id, main, main_object, separate, symbols_from),
        || unwind_table(id, main, main_object, separate),
    );
    let (table, stream) = symbols?;
    let opened = symseal_symx::Table::open(&table).map_err(|error| module_index_error(main, error.to_string()))?;
    let index =
        module_index::write(&opened, &main.file.name).map_err(|error| module_index_error(main, error.to_string()))?;

    let counts = opened.counts();
    let statistics = ModuleStatistics {
        functions: counts.functions,
        rows: stream.rows,
        inline_sites: counts.inlines,
        text_bytes: stream.text_bytes,
        covered_bytes: stream.covered_bytes,
        unwind_rows: unwind.report.rows,
    };
    let mut files = Stored { layout, entries: Vec::new(), pages: Vec::new() };
    let debug_kind = debug_object.as_ref().unwrap_or(main_object).debug_info_kind();
    if let Some(file) = debug.as_ref().or(binary.as_ref().filter(|binary| binary.file.is_debuginfo)) {
        let path = title::build_id_debug_file(id).unwrap_or_else(|| format!("debug_file/{id}.debug"));
        files.put_input(FileRole::Debuginfo, path, file)?;
    }
    if let Some(file) = binary.as_ref().filter(|_| store_executables) {
        let path = title::build_id_executable(id).unwrap_or_else(|| format!("executable/{id}"));
        files.put_input(FileRole::Executable, path, file)?;
    }
    let others = |first: &Loaded<'_>| {
        let rest = [binary.as_ref(), debug.as_ref()].into_iter().flatten().map(Loaded::digest);
        std::iter::once(first.digest()).chain(rest.filter(|digest| *digest != first.digest())).collect::<Vec<_>>()
    };
    let table_digest = files.put(FileRole::SymbolTable, title::symbol_table(id), &table, others(symbols_from))?;
    if let Some(bytes) = &unwind.bytes {
        let derived = if unwind.used_debug { others(main) } else { vec![main.digest()] };
        files.put(FileRole::UnwindTable, title::unwind_table(id), bytes, derived)?;
    }
    files.put(FileRole::ModuleIndex, title::module_index(id), &index.json, vec![table_digest])?;

    let mut inputs: Vec<InputEntry> = [binary.as_ref(), debug.as_ref()]
        .into_iter()
        .flatten()
        .map(|loaded| InputEntry { name: loaded.file.name.clone(), sha256: loaded.digest() })
        .collect();
    inputs.sort();
    let mut entries = files.entries;
    entries.sort_by(|a, b| (a.role, &a.path).cmp(&(b.role, &b.path)));
    let entry = ModuleEntry {
        name: main.file.name.clone(),
        format: main_object.format().code().to_owned(),
        arch: main_object.arch().code().to_owned(),
        id_kind: main_object.id_kind().code().to_owned(),
        code_id: None,
        go_build_id: None,
        pdb: None,
        supplementary: None,
        image_base: main_object.image_base(),
        debug_info: debug_info(debug_kind),
        stripped: binary_object.as_ref().is_some_and(ObjectFile::is_stripped),
        files: entries,
        inputs,
        statistics,
    };
    let report = ModuleReport {
        debug_id: id.clone(),
        name: entry.name.clone(),
        binary: module.binary.as_ref().map(|file| file.path.clone()),
        debug_file: module.debug.as_ref().map(|file| file.path.clone()),
        debug_info: entry.debug_info,
        stripped: entry.stripped,
        statistics,
        symbol_table_bytes: table.len() as u64,
        module_index_bytes: index.json.len() as u64,
        lines_inlined: index.lines_inlined,
        skipped: stream.skipped.into_iter().map(|(reason, times)| (reason.to_owned(), times)).collect(),
        unwind: unwind.report,
    };
    Ok(Finished { id: id.clone(), entry, pages: files.pages, report })
}

/// An input in memory.
struct Loaded<'f> {
    file: &'f Identified,
    bytes: Vec<u8>,
}

impl<'f> Loaded<'f> {
    fn read(file: &'f Identified) -> Result<Self, BuildError> {
        let bytes = inputs::read(&file.path)?;
        // Everything that was decided about the file was decided about other bytes.
        if Digest::of(&bytes) != file.measured.digest {
            return Err(BuildError::Changed { path: file.path.clone() });
        }
        Ok(Self { file, bytes })
    }

    fn parse(&self) -> Result<ObjectFile<'_>, BuildError> {
        ObjectFile::parse(&self.bytes).map_err(|source| BuildError::Artifact { path: self.file.path.clone(), source })
    }

    fn digest(&self) -> Digest {
        self.file.measured.digest
    }
}

/// The blobs of a module as they are stored.
struct Stored<'l> {
    layout: &'l LayoutDir,
    entries: Vec<FileEntry>,
    pages: Vec<FilePages>,
}

impl Stored<'_> {
    fn put_input(&mut self, role: FileRole, path: String, loaded: &Loaded<'_>) -> Result<(), BuildError> {
        // An unstripped binary has two roles and one blob.
        if !self.entries.iter().any(|entry| entry.sha256 == loaded.digest()) {
            self.layout.write_blob(&loaded.bytes)?;
        }
        self.list(role, path, loaded.file.measured.clone(), Vec::new());
        Ok(())
    }

    fn put(
        &mut self,
        role: FileRole,
        path: String,
        bytes: &[u8],
        derived_from: Vec<Digest>,
    ) -> Result<Digest, BuildError> {
        let digest = self.layout.write_blob(bytes)?;
        self.list(role, path, pages::measure(bytes, pages::page_size_of(role)), derived_from);
        Ok(digest)
    }

    fn list(&mut self, role: FileRole, path: String, measured: Measured, derived_from: Vec<Digest>) {
        let page_size = pages::page_size_of(role);
        self.entries.push(FileEntry {
            role,
            path,
            size: measured.size,
            sha256: measured.digest,
            media_type: compose::media_type(role, compose::FileFormat::Elf).to_owned(),
            page_size,
            page_root: measured.root,
            derived_from,
        });
        self.pages.push(FilePages { sha256: measured.digest, page_size, size: measured.size, leaves: measured.leaves });
    }
}

/// The `.symx` table and what was read for it.
fn symbol_table(
    id: &DebugId,
    main: &Loaded<'_>,
    object: &ObjectFile<'_>,
    separate: Option<&ObjectFile<'_>>,
    source: &Loaded<'_>,
) -> Result<(Vec<u8>, symseal_artifact::StreamStatistics), BuildError> {
    let stream = symseal_artifact::functions(object, &DebugFiles::debug(separate))
        .map_err(|error| BuildError::Artifact { path: source.file.path.clone(), source: error })?;
    let table = symseal_symx::write(&symseal_symx::TableInput {
        debug_id: id,
        image_base: object.image_base(),
        source_sha256: *source.digest().as_bytes(),
        producer: crate::PRODUCER,
        strings: &stream.strings,
        functions: &stream.functions,
    })
    .map_err(|error| BuildError::SymbolTable { path: main.file.path.clone(), source: error })?;
    Ok((table, stream.statistics))
}

#[derive(Default)]
struct Unwind {
    bytes: Option<Vec<u8>>,
    /// Whether the separate debug file's `.debug_frame` was given to the compiler.
    used_debug: bool,
    report: UnwindReport,
}

/// The `.uwt` table. What cannot be compiled is no error: such frames are unwound otherwise, and the report says so.
fn unwind_table(id: &DebugId, main: &Loaded<'_>, object: &ObjectFile<'_>, separate: Option<&ObjectFile<'_>>) -> Unwind {
    let none = |because: String| Unwind {
        report: UnwindReport { none_because: Some(because), ..UnwindReport::default() },
        ..Unwind::default()
    };
    if object.arch() != Arch::X86_64 || !object.is_64() {
        return none(format!("unwind tables of {} are not made by this version", object.arch()));
    }
    if !main.file.is_executable {
        return none("there is only a debug file, and the rules are in the binary".to_owned());
    }
    let inputs = object.unwind_inputs();
    let separate = separate.map(ObjectFile::unwind_inputs);
    let debug_frame = inputs.debug_frame.as_ref();
    let from_debug_file =
        separate.as_ref().and_then(|inputs| inputs.debug_frame.as_ref()).filter(|_| debug_frame.is_none());
    let used_debug = from_debug_file.is_some();
    let plt = plt(object, &inputs);
    let code: Vec<(u64, &[u8])> = object.section(".text").map(|(svma, bytes)| (svma.0, bytes)).into_iter().collect();
    let section = |slice: Option<&'_ symseal_artifact::SectionSlice<'_>>| slice.map(|slice| slice.svma);
    let input = compile::Input {
        arch: symseal_unwind::Arch::X86_64,
        debug_id: id,
        image_base: inputs.image_base,
        text: &inputs.text,
        eh_frame: section(inputs.eh_frame.as_ref()).zip(inputs.eh_frame.as_ref().map(|slice| &*slice.bytes)),
        eh_frame_hdr: section(inputs.eh_frame_hdr.as_ref())
            .zip(inputs.eh_frame_hdr.as_ref().map(|slice| &*slice.bytes)),
        debug_frame: debug_frame.or(from_debug_file).map(|slice| (slice.svma, &*slice.bytes)),
        plt: &plt,
        code: &code,
        source_sha256: *main.digest().as_bytes(),
        producer: crate::PRODUCER,
        bases: compile::Bases { text: inputs.text_base, got: inputs.got_base },
    };
    match compile::compile(&input) {
        Err(error) => none(error.to_string()),
        Ok(compiled) => {
            let made = compiled.report;
            let report = UnwindReport {
                table_bytes: compiled.bytes.len() as u64,
                none_because: None,
                fdes: made.fdes as u64,
                rows: made.rows as u64,
                rules: made.rules as u64,
                covered_bytes: made.covered_bytes,
                unsupported: made.unsupported_count as u64,
                unsupported_ranges: made
                    .unsupported
                    .into_iter()
                    .take(MAX_UNSUPPORTED_LISTED)
                    .map(|range| UnsupportedRange {
                        start: Svma(range.range.start),
                        end: Svma(range.range.end),
                        reason: range.reason,
                    })
                    .collect(),
            };
            Unwind { bytes: Some(compiled.bytes), used_debug, report }
        }
    }
}

fn plt<'d>(object: &ObjectFile<'d>, inputs: &UnwindInputs<'_>) -> Vec<compile::Plt<'d>> {
    inputs
        .plt
        .iter()
        .map(|plt| {
            // Several sections may have one name; bytes of another range would give wrong rules.
            let bytes = object.section(&plt.name).filter(|(svma, bytes)| {
                svma.0 == plt.range.start && Some(bytes.len() as u64) == plt.range.end.checked_sub(plt.range.start)
            });
            compile::Plt {
                range: plt.range.clone(),
                entry_size: plt.entry_size,
                bytes: bytes.map(|(_, bytes)| bytes).unwrap_or_default(),
            }
        })
        .collect()
}

fn debug_info(kind: DebugInfoKind) -> DebugInfo {
    match kind {
        DebugInfoKind::Full => DebugInfo::Full,
        DebugInfoKind::LineTables => DebugInfo::LineTables,
        DebugInfoKind::Symbols => DebugInfo::Symbols,
        DebugInfoKind::None => DebugInfo::None,
    }
}

fn module_index_error(main: &Loaded<'_>, problem: String) -> BuildError {
    BuildError::ModuleIndex { module: main.file.path.display().to_string(), problem }
}
