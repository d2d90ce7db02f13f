//! The unwind tables of a trace's modules: from bundles, and for the vDSO from the image in the trace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use symseal_bundle::{Bundle, Digest, FileRole};
use symseal_module::{Avma, DebugId, MappedModule, MissReason, Svma};
use symseal_resolver::{JitFunction, JitLine, JitNames, ModuleCode, Resolver, VdsoModule, miss_reason, vdso_module};
use symseal_trace::{Trace, TraceJit, TraceJitLine};
use symseal_unwind::compile::{Bases, Input, compile};
use symseal_unwind::{Cache, Table};

use crate::scene::{Scene, SceneModule};
use crate::walk::{EngineModules, is_told_by_code};

/// The most bytes of code that are kept: those of a large program with all of its libraries.
const MAX_CODE_BYTES: usize = 1 << 30;

/// Where rules of a jitdump count as lying: behind their function, at the next multiple of this (`docs/formats/trace.md`).
const JIT_RULES_ALIGNMENT: u64 = 8;

/// The tables that a trace is unwound with.
#[derive(Debug, Clone, Default)]
pub struct BundleTables {
    tables: BTreeMap<DebugId, UnwindTable>,
    images: Vec<VdsoModule>,
    jit: Option<Arc<JitNames>>,
    /// The rules of the functions of JIT compilers that the trace carries some of, by rising address.
    jit_rules: Arc<[JitRules]>,
    /// Code that was read for stacks that rules alone do not tell.
    code: BTreeMap<DebugId, ModuleCode>,
    missing_code: Vec<MissingTable>,
    missing: Vec<MissingTable>,
}

/// The bytes of one `.uwt` table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UnwindTable {
    pub(crate) bytes: Arc<[u8]>,
    pub(crate) digest: Digest,
}

/// The rules that a runtime wrote for a function that it made: the table is compiled here, and the function stays where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JitRules {
    /// Its first address, and the one behind it.
    pub(crate) range: (u64, u64),
    table: Vec<u8>,
}

impl JitRules {
    /// The table, opened; its addresses count from the function's first one.
    pub(crate) fn open(&self) -> Option<Table<'_>> {
        Table::open(&self.table).ok()
    }
}

/// A module of the trace that has no unwind table, or no code.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct MissingTable {
    /// The module's path.
    pub module: String,
    /// Its debug id.
    pub debug_id: Option<DebugId>,
    /// Why there is none.
    pub reason: MissReason,
    /// A word about it, for people.
    pub detail: String,
}

impl BundleTables {
    /// Reads the tables of the trace's modules from `bundles`, the first that has one. The digest of each is
    /// checked against its bundle's index. A module whose image the trace carries (the vDSO) gets a table
    /// that is compiled from it here. What is missing is listed in [`Self::missing`]: it is no error, for the
    /// engine says where it stopped for want of a table.
    pub fn for_trace<'b>(bundles: impl IntoIterator<Item = &'b Bundle>, trace: &Trace) -> Self {
        let bundles: Vec<&Bundle> = bundles.into_iter().collect();
        let mut found = Self { jit: jit_names(trace), jit_rules: jit_rules(trace), ..Self::default() };
        for module in &trace.modules {
            let Some(id) = &module.debug_id else {
                found.miss(&module.path, None, MissReason::NoDebugId, String::new());
                continue;
            };
            if found.tables.contains_key(id) {
                continue;
            }
            match read_table(&bundles, id) {
                Ok(table) => {
                    found.tables.insert(id.clone(), table);
                }
                Err((reason, detail)) => match &module.bytes {
                    Some(image) => found.add_image(&module.path, id, image),
                    None => found.miss(&module.path, Some(id), reason, detail),
                },
            }
        }
        found
    }

    /// Adds the bytes of a `.uwt` table, such as one that a test compiled. It replaces the one of the same module.
    pub fn with_table(mut self, id: DebugId, bytes: Vec<u8>) -> Self {
        self.missing.retain(|missing| missing.debug_id.as_ref() != Some(&id));
        let digest = Digest::of(&bytes);
        self.tables.insert(id, UnwindTable { bytes: bytes.into(), digest });
        self
    }

    /// The same tables without that of one module, and without its code.
    pub(crate) fn without(&self, id: &DebugId) -> Self {
        let mut rest = self.clone();
        rest.tables.remove(id);
        rest.code.remove(id);
        rest
    }

    /// The modules of `trace` without a table that its stacks may lead into: those that instruction pointers and words of the copied stacks point into.
    pub fn wanted(&self, trace: &Trace) -> Vec<MappedModule> {
        let scene = Scene::of(trace);
        let ranges = scene.module_ranges();
        let mut pointed_into = BTreeSet::new();
        for snapshot in &scene.snapshots {
            // Of a process of 32 bits two addresses are in each.
            let words = snapshot.stack_words().flat_map(|word| [word, word & u64::from(u32::MAX), word >> 32]);
            pointed_into.extend(words.filter_map(|word| ranges.pointed_into(word)));
            pointed_into.extend(ranges.holding(snapshot.engine_registers().pc));
        }
        let modules = pointed_into.into_iter().filter_map(|at| scene.modules.get(at));
        let lacking = modules.filter(|module| match &module.debug_id {
            Some(id) => module.image.is_none() && !self.tables.contains_key(id),
            None => false,
        });
        lacking.map(SceneModule::mapped).collect()
    }

    /// Adds the code of modules for the stacks of `trace` that rules alone do not tell, so that frame pointers and leaves may be held to the
    /// calls that were made, and scanned where nothing leads on: of those modules that words of such a stack point into, from the executables
    /// that `resolver` finds. Where rules tell all stacks, nothing is read. What is missing is listed in [`Self::missing_code`].
    pub fn with_code(mut self, trace: &Trace, resolver: &Resolver) -> Self {
        let scene = Scene::of(trace);
        let mut wanted = BTreeSet::new();
        {
            let (modules, ranges) = (EngineModules::of(&scene, &self), scene.module_ranges());
            let mut cache = Cache::new();
            for snapshot in &scene.snapshots {
                let stack = modules.walk(snapshot, &mut cache);
                if is_told_by_code(&stack) {
                    // A return address behind a last call lies at the very end.
                    let words = snapshot.stack_words().filter_map(|word| ranges.pointed_into(word));
                    wanted.extend(words.chain(ranges.holding(snapshot.engine_registers().pc)));
                }
            }
        }
        let mut left = MAX_CODE_BYTES;
        for module in wanted.into_iter().filter_map(|at| scene.modules.get(at)) {
            let known = module.debug_id.as_ref().is_some_and(|id| self.code.contains_key(id));
            if known || module.image.is_some() {
                continue;
            }
            let read = resolver.module_code(&module.mapped()).and_then(|code| {
                left = left.checked_sub(code.bytes.len()).ok_or_else(|| {
                    (MissReason::FileUnreadable, format!("code of more than {MAX_CODE_BYTES} bytes is not kept"))
                })?;
                Ok(code)
            });
            match (read, &module.debug_id) {
                (Ok(code), Some(id)) => drop(self.code.insert(id.clone(), code)),
                (Ok(_), None) => {}
                (Err((reason, detail)), id) => {
                    let (module, debug_id) = (module.path.clone(), id.clone());
                    self.missing_code.push(MissingTable { module, debug_id, reason, detail });
                }
            }
        }
        self
    }

    /// Modules whose code was wanted, and why it is not there.
    pub fn missing_code(&self) -> &[MissingTable] {
        &self.missing_code
    }

    pub(crate) fn has_code(&self) -> bool {
        !self.code.is_empty()
    }

    pub(crate) fn code(&self, id: &DebugId) -> Option<&ModuleCode> {
        self.code.get(id)
    }

    /// The digests of the files that code was read of, by debug id.
    pub(crate) fn code_digests(&self) -> BTreeMap<String, Digest> {
        self.code.iter().map(|(id, code)| (id.to_string(), code.digest)).collect()
    }

    /// Modules of the trace without a table, and why.
    pub fn missing(&self) -> &[MissingTable] {
        &self.missing
    }

    /// How many modules have a table.
    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// Whether no module has one.
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The images that the trace carries, for the resolver.
    pub fn images(&self) -> &[VdsoModule] {
        &self.images
    }

    /// The resolver with an address cache of its own, and with the names of the images and of the JIT compilers' code that the trace carries.
    pub(crate) fn equip(&self, resolver: &Resolver, address_cache: usize) -> Resolver {
        let equipped = resolver.with_cold_cache(address_cache);
        let equipped = match &self.jit {
            Some(names) => equipped.with_jit(Arc::clone(names)),
            None => equipped,
        };
        self.images.iter().fold(equipped, |resolver, image| resolver.with_image(image))
    }

    /// The digests of the tables by debug id.
    pub(crate) fn digests(&self) -> BTreeMap<String, Digest> {
        self.tables.iter().map(|(id, table)| (id.to_string(), table.digest)).collect()
    }

    /// The rules of functions of JIT compilers, by rising address; none lies over another.
    pub(crate) fn jit_rules(&self) -> &[JitRules] {
        &self.jit_rules
    }

    pub(crate) fn bytes(&self, id: &DebugId) -> Option<&[u8]> {
        self.tables.get(id).map(|table| &*table.bytes)
    }

    /// The table of a module, opened.
    pub(crate) fn open(&self, id: &DebugId) -> Option<Table<'_>> {
        Table::open(self.bytes(id)?).ok()
    }

    fn miss(&mut self, path: &str, id: Option<&DebugId>, reason: MissReason, detail: String) {
        self.missing.push(MissingTable { module: path.to_string(), debug_id: id.cloned(), reason, detail });
    }

    fn add_image(&mut self, path: &str, id: &DebugId, image: &[u8]) {
        match compile_image(id, image) {
            Ok((module, bytes)) => {
                let digest = Digest::of(&bytes);
                self.tables.insert(id.clone(), UnwindTable { bytes: bytes.into(), digest });
                self.images.push(module);
            }
            Err((reason, detail)) => self.miss(path, Some(id), reason, detail),
        }
    }
}

/// The names of code that the process made; none, where the trace carries none.
fn jit_names(trace: &Trace) -> Option<Arc<JitNames>> {
    let function = |told: &TraceJit| {
        let line = |line: &TraceJitLine| JitLine {
            address: Avma(told.start.0.saturating_add(line.offset)),
            line: line.line,
            file: line.file.as_str().into(),
        };
        let mut lines: Vec<JitLine> = told.lines.iter().map(line).collect();
        lines.sort_by_key(|line| line.address);
        let name = told.name.clone();
        (
            JitFunction { start: told.start, size: told.size, name, lines, eh_frame: None, written_at: None },
            told.overlapped,
        )
    };
    let names = JitNames::new(trace.jit.iter().map(function));
    (!names.is_empty()).then(|| Arc::new(names))
}

/// The rules that the trace carries for code that the process made. Where other code lies over a function its rules are a guess like its name, and are left
/// out; so are those that say nothing of their function.
fn jit_rules(trace: &Trace) -> Arc<[JitRules]> {
    let told = trace.jit.iter().filter(|told| !told.overlapped);
    let mut rules: Vec<JitRules> = told.filter_map(compile_jit_rules).collect();
    rules.sort_by_key(|rules| rules.range);
    // A trace may say anything: of functions that lie over each other, the one that begins first counts.
    let mut end = 0;
    rules.retain(|rules| {
        let is_clear = rules.range.0 >= end;
        end = if is_clear { rules.range.1 } else { end };
        is_clear
    });
    rules.into()
}

fn compile_jit_rules(told: &TraceJit) -> Option<JitRules> {
    let (start, end) = (told.start.0, told.start.0.checked_add(told.size)?);
    let eh_frame = told.eh_frame.as_deref()?;
    let digest = Digest::of(eh_frame);
    let id = DebugId::from_build_id(digest.as_bytes().get(..20)?).ok()?;
    let compiled = compile(&Input {
        image_base: Svma(start),
        text: std::slice::from_ref(&(start..end)),
        eh_frame: Some((end.checked_next_multiple_of(JIT_RULES_ALIGNMENT)?, eh_frame)),
        is_jit: true,
        source_sha256: *digest.as_bytes(),
        producer: concat!("symseal ", env!("CARGO_PKG_VERSION")),
        ..Input::of(symseal_unwind::Arch::X86_64, &id)
    })
    .ok()?;
    (compiled.report.covered_bytes > 0).then_some(JitRules { range: (start, end), table: compiled.bytes })
}

fn read_table(bundles: &[&Bundle], id: &DebugId) -> Result<UnwindTable, (MissReason, String)> {
    let (bundle, module) = bundles
        .iter()
        .find_map(|bundle| Some((bundle, bundle.module(id)?)))
        .ok_or((MissReason::NotInBundle, String::new()))?;
    let file = module.file(FileRole::UnwindTable).ok_or((MissReason::NoSymbolTable, String::new()))?;
    let bytes = bundle.read(file).map_err(|error| (miss_reason(&error), error.to_string()))?;
    let table = Table::open(&bytes).map_err(|error| (MissReason::Malformed, error.to_string()))?;
    let found = table.debug_id();
    if found != *id {
        return Err((MissReason::DebugIdMismatch, format!("{}: the table is of {found}", file.path)));
    }
    Ok(UnwindTable { digest: file.sha256, bytes: bytes.into() })
}

/// The names and the unwind table of an image in the trace.
fn compile_image(id: &DebugId, image: &[u8]) -> Result<(VdsoModule, Vec<u8>), (MissReason, String)> {
    let module = vdso_module(image).map_err(|error| (MissReason::Malformed, error.to_string()))?;
    if module.debug_id != *id {
        return Err((MissReason::DebugIdMismatch, format!("the image is of {}", module.debug_id)));
    }
    let section = |section: &'_ Option<(u64, Vec<u8>)>| section.as_ref().map(|(svma, bytes)| (*svma, bytes.clone()));
    let (eh_frame, eh_frame_hdr) = (section(&module.unwind.eh_frame), section(&module.unwind.eh_frame_hdr));
    let compiled = compile(&Input {
        image_base: module.image_base,
        text: &module.unwind.text,
        eh_frame: eh_frame.as_ref().map(|(svma, bytes)| (*svma, bytes.as_slice())),
        eh_frame_hdr: eh_frame_hdr.as_ref().map(|(svma, bytes)| (*svma, bytes.as_slice())),
        source_sha256: *Digest::of(image).as_bytes(),
        producer: concat!("symseal ", env!("CARGO_PKG_VERSION")),
        bases: Bases { text: module.unwind.text_base, got: module.unwind.got_base },
        ..Input::of(symseal_unwind::Arch::X86_64, id)
    })
    .map_err(|error| (MissReason::Malformed, error.to_string()))?;
    Ok((module, compiled.bytes))
}
