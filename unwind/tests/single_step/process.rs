//! What is mapped in a process, and what the files there say: tables, code, names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use framehop::x86_64::UnwinderX86_64;
use object::{Object, ObjectSection, ObjectSymbol};
use symseal_module::{Avma, Rva, Svma};
use symseal_unwind::compile::{Input, compile};
use symseal_unwind::{Arch, CodeBytes, Frame, Module, Modules, Slots, SourceKind, Table};

use crate::elf::Binary;
use crate::framehop_peer::{Framehop, Sections};
use crate::shadow::Shadow;
use crate::tracee::{Instant, Tracee};

/// System calls that change what is mapped: mmap, mprotect, munmap, brk, mremap.
const MAPPING_CALLS: [u64; 5] = [9, 10, 11, 12, 25];

/// One line of /proc/PID/maps.
struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
    is_code: bool,
}

fn mappings(pid: i32) -> Vec<Mapping> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("maps of our child");
    text.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let (start, end) = fields.next()?.split_once('-')?;
            let (permissions, offset) = (fields.next()?, fields.next()?);
            Some(Mapping {
                start: u64::from_str_radix(start, 16).ok()?,
                end: u64::from_str_radix(end, 16).ok()?,
                offset: u64::from_str_radix(offset, 16).ok()?,
                path: fields.nth(2).unwrap_or_default().to_owned(),
                is_code: permissions.contains('x'),
            })
        })
        .collect()
}

/// A file's table, code and names, with what is needed to place them. Leaked: they live as long as the test.
#[derive(Clone)]
struct Known {
    table: Table<'static>,
    image_base: Svma,
    /// Stated address and bytes from the first executable section to the last.
    code: (u64, &'static [u8]),
    /// Functions by stated address, of a file without `.symtab` the exported ones.
    symbols: &'static BTreeMap<u64, String>,
    /// Executable sections by stated address.
    sections: &'static BTreeMap<u64, String>,
    read_by_framehop: Sections,
}

impl Known {
    fn of(mapping: &Mapping, tracee: &Tracee, follows: bool) -> Option<Self> {
        let binary = if mapping.path == "[vdso]" {
            let mut bytes = vec![0; (mapping.end - mapping.start) as usize];
            let read = tracee.read(mapping.start, &mut bytes);
            bytes.truncate(read);
            Binary { path: PathBuf::from("[vdso]"), bytes }
        } else {
            Binary::read(&mapping.path).filter(|binary| binary.bytes.starts_with(b"\x7fELF"))?
        };
        let parts = binary.parts();
        let start = parts.code.iter().map(|(start, _)| *start).min()?;
        let mut code = Vec::new();
        for (address, bytes) in &parts.code {
            code.resize((address - start) as usize, 0xcc);
            code.extend_from_slice(bytes);
        }
        let file = object::File::parse(binary.bytes.as_slice()).expect("an ELF file");
        let symbols = file
            .dynamic_symbols()
            .chain(file.symbols())
            .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
            .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned())));
        let sections = file
            .sections()
            .filter(|section| parts.code.iter().any(|(address, _)| *address == section.address()))
            .filter_map(|section| Some((section.address(), section.name().ok()?.to_owned())));
        // Without the code nothing is followed.
        let code_given = if follows { parts.code.as_slice() } else { &[] };
        let table = compile(&Input { code: code_given, ..parts.input() }).expect("a table");
        Some(Self {
            table: Table::open(table.bytes.leak()).expect("our own table"),
            image_base: parts.image_base,
            code: (start, code.leak()),
            symbols: Box::leak(Box::new(symbols.collect())),
            sections: Box::leak(Box::new(sections.collect())),
            read_by_framehop: Sections::of(&parts),
        })
    }
}

/// The process as it is mapped now.
pub(crate) struct Process {
    /// Whether functions that nothing describes have rules, from their instructions.
    follows: bool,
    maps: Vec<Mapping>,
    /// By path.
    known: HashMap<String, Option<Known>>,
    pub(crate) modules: Modules<'static>,
    /// Another unwinder with the same modules.
    pub(crate) framehop: Framehop<UnwinderX86_64<Arc<[u8]>>>,
    /// Path and bias of each module.
    places: Vec<(String, u64)>,
}

impl Process {
    pub(crate) fn of(tracee: &Tracee) -> Self {
        Self::new(tracee, true)
    }

    /// With tables that have the rules of what is described alone.
    pub(crate) fn without_followed(tracee: &Tracee) -> Self {
        Self::new(tracee, false)
    }

    fn new(tracee: &Tracee, follows: bool) -> Self {
        let mut process = Self {
            follows,
            maps: Vec::new(),
            known: HashMap::new(),
            modules: Modules::new(Arch::X86_64, Vec::new()),
            framehop: Framehop::default(),
            places: Vec::new(),
        };
        process.refresh(tracee);
        process
    }

    /// Takes note of the instruction with these bytes, which ran with the registers `before`, and gives those after it.
    pub(crate) fn executed(
        &mut self,
        tracee: &Tracee,
        shadow: &mut Shadow,
        code: &[u8],
        before: &Instant,
    ) -> Result<Instant, Error> {
        let after = tracee.registers()?;
        let same_stack = |one, other| self.region(one).is_some_and(|region| region.contains(&other));
        shadow.executed(code, before, &after, same_stack);
        if code.starts_with(&[0x0f, 0x05]) && MAPPING_CALLS.contains(&before.rax) {
            self.refresh(tracee);
        }
        Ok(after)
    }

    /// After a system call that maps or unmaps.
    fn refresh(&mut self, tracee: &Tracee) {
        self.maps = mappings(tracee.pid());
        self.places.clear();
        self.framehop = Framehop::default();
        let mut modules = Vec::new();
        for first in &self.maps {
            let is_module = first.offset == 0 && (first.path.starts_with('/') || first.path == "[vdso]");
            if !is_module || self.places.iter().any(|(path, _)| *path == first.path) {
                continue;
            }
            let known = self.known.entry(first.path.clone()).or_insert_with(|| Known::of(first, tracee, self.follows));
            let Some(known) = known else { continue };
            let end = self.maps.iter().filter(|map| map.path == first.path).map(|map| map.end).max();
            let end = end.expect("at least the first");
            self.framehop.add(&first.path, first.start..end, &known.read_by_framehop);
            let bias = first.start.wrapping_sub(known.image_base.0);
            self.places.push((first.path.clone(), bias));
            modules.push(Module {
                start: Avma(first.start),
                end: Avma(end),
                bias,
                image_base: known.image_base,
                table: Some(known.table.clone()),
                code: Some(CodeBytes { start: Avma(bias.wrapping_add(known.code.0)), bytes: known.code.1 }),
            });
        }
        self.modules = Modules::new(Arch::X86_64, modules);
    }

    /// The part of the address space that holds `address`.
    pub(crate) fn region(&self, address: u64) -> Option<Range<u64>> {
        self.maps.iter().map(|map| map.start..map.end).find(|map| map.contains(&address))
    }

    /// Where the data of the file at `path` is mapped.
    pub(crate) fn data(&self, path: &Path) -> impl Iterator<Item = Range<u64>> {
        let data = self.maps.iter().filter(move |map| Path::new(&map.path) == path && !map.is_code);
        data.map(|map| map.start..map.end)
    }

    /// Where functions begin whose rules are from their instructions.
    pub(crate) fn followed(&self) -> BTreeSet<u64> {
        let mut starts = BTreeSet::new();
        for (path, bias) in &self.places {
            let Some(known) = self.known.get(path).and_then(Option::as_ref) else { continue };
            let sources = known.table.rows().filter_map(|(rva, ..)| known.table.source(rva));
            let sources = sources.filter(|source| source.kind == SourceKind::Instructions);
            starts.extend(sources.map(|source| source.offset.wrapping_add(*bias)));
        }
        starts
    }

    /// Where the rule of `frame` has the registers other than the frame pointer.
    pub(crate) fn slots(&self, frame: &Frame) -> Option<Slots> {
        let (path, bias) = self.places.get(frame.module? as usize)?;
        let known = self.known.get(path)?.as_ref()?;
        known.table.slots(Rva(frame.lookup_pc().0.wrapping_sub(*bias).wrapping_sub(known.image_base.0)))
    }

    /// File, section, function and distance of a frame: `libc.so.6 .text qsort+0x1f`.
    pub(crate) fn name(&self, frame: &Frame) -> String {
        let Some((path, bias)) = frame.module.and_then(|module| self.places.get(module as usize)) else {
            return format!("{:#x}", frame.pc.0);
        };
        let file = Path::new(path).file_name().map_or_else(|| path.into(), |name| name.to_string_lossy());
        let address = frame.lookup_pc().0.wrapping_sub(*bias);
        let Some(known) = self.known.get(path).and_then(Option::as_ref) else { return file.into_owned() };
        let section = known.sections.range(..=address).next_back().map_or("", |(_, name)| name);
        match known.symbols.range(..=address).next_back() {
            Some((start, name)) => format!("{file} {section} {name}+{:#x}", address - start),
            None => format!("{file} {section} {address:#x}"),
        }
    }
}
