//! ELF files of this machine as inputs of the compiler.
#![allow(dead_code, reason = "each test uses its part")]

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use object::{Architecture, Endianness, Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionFlags, elf};
use symseal_module::{DebugId, Svma};
use symseal_unwind::compile::{self, Bases, Compiled, Input, Orc, Plt};
use symseal_unwind::{Arch, GoRuntime};

pub(crate) const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";
pub(crate) const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";

/// What a test reads of a file.
pub(crate) struct Binary {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
}

/// A section's address and bytes.
pub(crate) type Section<'a> = Option<(u64, &'a [u8])>;

/// The parts of a file that the compiler takes.
pub(crate) struct Parts<'a> {
    pub(crate) arch: Arch,
    pub(crate) debug_id: DebugId,
    pub(crate) image_base: Svma,
    pub(crate) text: Vec<Range<u64>>,
    pub(crate) code: Vec<(u64, &'a [u8])>,
    pub(crate) eh_frame: Section<'a>,
    pub(crate) eh_frame_hdr: Section<'a>,
    pub(crate) debug_frame: Section<'a>,
    pub(crate) pdr: Option<&'a [u8]>,
    pub(crate) exidx: Section<'a>,
    pub(crate) orc: Option<Orc<'a>>,
    pub(crate) pclntab: Section<'a>,
    pub(crate) go_runtime: Option<GoRuntime<Svma>>,
    pub(crate) tasks: Option<Vec<u8>>,
    pub(crate) coroutines: Option<Vec<u8>>,
    pub(crate) loaded: Vec<(u64, &'a [u8])>,
    pub(crate) functions: Vec<u64>,
    pub(crate) plt: Vec<Plt<'a>>,
    pub(crate) bases: Bases,
}

impl Binary {
    /// The file at `path`, or `None` if this machine has none there.
    pub(crate) fn read(path: impl AsRef<Path>) -> Option<Self> {
        let path = path.as_ref().to_owned();
        Some(Self { bytes: std::fs::read(&path).ok()?, path })
    }

    pub(crate) fn parts(&self) -> Parts<'_> {
        let file = object::File::parse(self.bytes.as_slice()).expect("an ELF file");
        let section = |name: &str| {
            let section = file.section_by_name(name)?;
            Some((section.address(), section.data().ok()?)).filter(|(_, data)| !data.is_empty())
        };
        let arch = match (file.architecture(), file.endianness()) {
            (Architecture::X86_64, _) => Arch::X86_64,
            (Architecture::Aarch64, Endianness::Little) => Arch::Aarch64,
            (Architecture::I386, _) => Arch::I686,
            (Architecture::Riscv64, _) => Arch::Riscv64,
            (Architecture::Arm, Endianness::Little) => Arch::Arm,
            (Architecture::Mips, Endianness::Big) => Arch::Mips32,
            (Architecture::Mips, Endianness::Little) => Arch::Mips32Little,
            other => panic!("{}: {other:?}", self.path.display()),
        };
        let mut parts = Parts {
            arch,
            debug_id: file
                .build_id()
                .ok()
                .flatten()
                .and_then(|id| DebugId::from_build_id(id).ok())
                .unwrap_or_else(|| DebugId::from_build_id(&[1]).expect("one byte")),
            image_base: Svma(image_base(&file)),
            text: Vec::new(),
            code: Vec::new(),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
            debug_frame: section(".debug_frame"),
            pdr: section(".pdr").map(|(_, bytes)| bytes),
            exidx: section(".ARM.exidx"),
            orc: section(".orc_unwind_ip")
                .zip(section(".orc_unwind"))
                .map(|(places, (_, entries))| Orc { places, entries }),
            pclntab: section(".gopclntab").or_else(|| section(".data.rel.ro.gopclntab")),
            go_runtime: None,
            tasks: None,
            coroutines: None,
            loaded: Vec::new(),
            functions: file
                .symbols()
                .chain(file.dynamic_symbols())
                .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
                .map(|symbol| symbol.address())
                .collect(),
            plt: Vec::new(),
            bases: Bases { text: section(".text").map(|text| text.0), got: section(".got").map(|got| got.0) },
        };
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags, .. } = section.flags() else { continue };
            let bytes = section.data().unwrap_or_default();
            if sh_flags.0 & elf::SHF_ALLOC.0 != 0 && !bytes.is_empty() {
                parts.loaded.push((section.address(), bytes));
            }
            if sh_flags.0 & elf::SHF_EXECINSTR.0 == 0 || sh_flags.0 & elf::SHF_ALLOC.0 == 0 || section.size() == 0 {
                continue;
            }
            let range = section.address()..section.address() + section.size();
            let bytes = section.data().expect("bytes of code");
            if section.name().is_ok_and(|name| name.contains("plt") || name == ".MIPS.stubs") {
                let entry_size = if section.name() == Ok(".plt.got") && bytes.len() % 16 != 0 { 8 } else { 0 };
                parts.plt.push(Plt { range: range.clone(), entry_size, bytes });
            }
            parts.code.push((section.address(), bytes));
            parts.text.push(range);
        }
        // Libraries have none, or the beginning of their code for one.
        let is_text = |range: &Range<u64>| range.start < file.entry() && file.entry() < range.end;
        if parts.text.iter().any(is_text) && arch != Arch::X86_64 {
            parts.functions.push(file.entry());
        }
        // There it has no caller.
        parts.functions.retain(|address| arch != Arch::X86_64 || *address != file.entry());
        if parts.pclntab.is_some() {
            let sections = debug_information(&file);
            let section = |name: &str| sections.get(name).map_or(&[][..], Vec::as_slice);
            parts.go_runtime = compile::go_runtime(&parts.input(), section);
        }
        parts.tasks = compile::tasks(&parts.input(), |name| section(name).map_or(&[][..], |(_, bytes)| bytes));
        let symbols =
            file.symbols().filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text);
        let symbols = symbols.filter_map(|it| Some((it.name_bytes().ok()?, Svma(it.address()), it.size())));
        let bytes = |name: &str| section(name).map_or(&[][..], |(_, bytes)| bytes);
        parts.coroutines = compile::coroutines(&parts.input(), symbols, bytes);
        parts
    }

    pub(crate) fn compile(&self) -> Compiled {
        let parts = self.parts();
        compile::compile(&parts.input()).unwrap_or_else(|error| panic!("{}: {error}", self.path.display()))
    }
}

/// The lowest address; of a kernel in the upper half, whose variables of each processor are linked at 0, the lowest one there.
fn image_base(file: &object::File<'_>) -> u64 {
    let addresses: Vec<u64> = file.segments().map(|segment| segment.address()).collect();
    let half = addresses.iter().max().map_or(0, |highest| highest & 1 << 63);
    addresses.into_iter().filter(|address| *address >= half).min().unwrap_or(0) & !0xfff
}

/// Decompressed sections of debug information by name. Go before 1.19 compresses them in the older form, under names with a z.
fn debug_information(file: &object::File<'_>) -> HashMap<String, Vec<u8>> {
    let sections = file.sections().filter_map(|section| {
        let name = section.name().ok()?.replace(".zdebug", ".debug");
        let bytes = || section.uncompressed_data().ok();
        name.starts_with(".debug").then(bytes)?.map(|bytes| (name, bytes.into_owned()))
    });
    sections.collect()
}

impl<'a> Parts<'a> {
    pub(crate) fn input(&'a self) -> Input<'a> {
        Input {
            image_base: self.image_base,
            text: &self.text,
            eh_frame: self.eh_frame,
            eh_frame_hdr: self.eh_frame_hdr,
            debug_frame: self.debug_frame,
            pdr: self.pdr,
            exidx: self.exidx,
            orc: self.orc,
            pclntab: self.pclntab,
            go_runtime: self.go_runtime.as_ref(),
            tasks: self.tasks.as_deref(),
            coroutines: self.coroutines.as_deref(),
            loaded: &self.loaded,
            functions: &self.functions,
            plt: &self.plt,
            code: &self.code,
            source_sha256: [7; 32],
            producer: "symseal test",
            bases: self.bases,
            ..Input::of(self.arch, &self.debug_id)
        }
    }
}

/// Whether there is the compiler that Go has C code compiled by; if not, a loud word of it.
pub(crate) fn has_c_compiler_of_go() -> bool {
    let asked = std::process::Command::new("go").args(["env", "CC"]).output();
    let command = asked.map(|asked| String::from_utf8_lossy(&asked.stdout).into_owned()).unwrap_or_default();
    let compiler = command.split_ascii_whitespace().next().unwrap_or("gcc");
    let found = std::process::Command::new(compiler).arg("--version").output();
    if let Err(error) = &found {
        skip(compiler, &format!("Go compiles no C code without it: {error}"));
    }
    found.is_ok()
}

/// Says that a test was left out, or fails it where `SYMSEAL_REQUIRE` names the tool.
pub(crate) fn skip(tool: &str, reason: &str) {
    let required = std::env::var("SYMSEAL_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|name| name == tool || name == "all"), "{tool} is required: {reason}");
    println!("SKIP {tool}: {reason}");
}

/// Numbers that look random and are the same in each run.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
