//! The parts of an ELF file: what its unwind rules are compiled of, its code, and its symbols.
//!
//! Headers are read by the `object` crate; here is which of them count, and nothing that they say is believed: every range is
//! one within the file. A crate of its own, so that it can be fuzzed: libdwunw.a is built as a static library alone.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod symbols;

use alloc::vec::Vec;
use core::ops::Range;

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use symseal_module::{DebugId, Svma};
use symseal_unwind::compile::{self, Bases, Input, Plt};
use symseal_unwind::{Arch, MipsFlags};

pub use symbols::{Functions, SymbolBytes, SymbolHit};

/// Why a file is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElfError {
    /// Not an ELF file, or one whose headers contradict themselves.
    Malformed,
    /// Of another processor.
    UnsupportedArch,
    /// No memory.
    OutOfMemory,
}

use ElfError as E;

/// More sections than a linker writes into an executable: bounds what a hostile file makes us look at.
const MAX_SECTIONS: usize = 1 << 16;
/// Likewise for segments.
const MAX_SEGMENTS: usize = 1 << 12;
/// Addresses are looked up by pages of this size: the smallest of every system.
const PAGE: u64 = 4096;
/// Entries of every x86_64 linkage table but `.plt.got`'s short ones, where a linker does not say.
const PLT_ENTRY_BYTES: u64 = 16;

/// A section's stated address and its bytes.
pub type Part<'a> = Option<(u64, &'a [u8])>;

/// What one look at the headers found.
pub struct Parts<'a> {
    /// Its processor.
    pub arch: Arch,
    /// Code of MIPS16 or microMIPS, which nobody follows.
    has_short_instructions: bool,
    /// The stated address of its first page.
    pub image_base: u64,
    /// The stated address after its last byte in memory.
    pub image_end: u64,
    /// Its build-id.
    pub debug_id: Option<DebugId>,
    /// Address and bytes of its executable segment.
    pub segment: Part<'a>,
    text: Vec<Range<u64>>,
    /// Executable sections.
    code: Vec<(u64, &'a [u8])>,
    text_section: Part<'a>,
    got: Option<u64>,
    eh_frame: Part<'a>,
    eh_frame_hdr: Part<'a>,
    debug_frame: Part<'a>,
    pdr: Option<&'a [u8]>,
    exidx: Part<'a>,
    pclntab: Part<'a>,
    plt: Vec<Plt<'a>>,
    /// Its symbols.
    pub symbols: SymbolBytes<'a>,
    /// Where a process begins; none in a library.
    entry: Option<u64>,
    /// Loaded segments.
    loads: Vec<(u64, &'a [u8])>,
}

impl<'a> Parts<'a> {
    /// Looks through the headers of `bytes`.
    pub fn read(bytes: &'a [u8]) -> Result<Self, E> {
        // e_ident[EI_CLASS], gABI chapter 4.
        match bytes.get(4) {
            Some(1) => Self::of::<FileHeader32<Endianness>>(bytes),
            Some(2) => Self::of::<FileHeader64<Endianness>>(bytes),
            _ => Err(E::Malformed),
        }
    }

    fn of<H: FileHeader<Endian = Endianness>>(bytes: &'a [u8]) -> Result<Self, E> {
        let header = H::parse(bytes).map_err(|_| E::Malformed)?;
        let endian = header.endian().map_err(|_| E::Malformed)?;
        let flags = MipsFlags(header.e_flags(endian).0);
        let arch = arch(header.e_machine(endian).0, header.is_class_64(), header.is_big_endian(), flags);
        let arch = arch.ok_or(E::UnsupportedArch)?;
        if header.e_type(endian) == elf::ET_REL {
            // Its rules get their addresses from a linker.
            return Err(E::Malformed);
        }
        let has_short_instructions = is_mips(arch) && flags.has_short_instructions();
        let mut parts = Parts {
            arch,
            has_short_instructions,
            image_base: u64::MAX,
            image_end: 0,
            debug_id: None,
            segment: None,
            text: Vec::new(),
            code: Vec::new(),
            text_section: None,
            got: None,
            eh_frame: None,
            eh_frame_hdr: None,
            debug_frame: None,
            pdr: None,
            exidx: None,
            pclntab: None,
            plt: Vec::new(),
            symbols: SymbolBytes::default(),
            entry: None,
            loads: Vec::new(),
        };
        let segments = header.program_headers(endian, bytes).map_err(|_| E::Malformed)?;
        for segment in segments.iter().take(MAX_SEGMENTS) {
            parts.segment(segment, endian, bytes);
        }
        if parts.image_base >= parts.image_end {
            return Err(E::Malformed);
        }
        // A file without section headers is a file without sections.
        let sections = header.section_headers(endian, bytes).unwrap_or_default();
        let names = header.shstrndx(endian, bytes).ok().and_then(|at| sections.get(usize::try_from(at).ok()?));
        let names = names.and_then(|section| section.data(endian, bytes).ok()).unwrap_or_default();
        for section in sections.iter().take(MAX_SECTIONS) {
            let name = usize::try_from(section.sh_name(endian)).ok().and_then(|at| names.get(at..));
            parts.section::<H>(name.unwrap_or_default(), section, sections, endian, bytes);
        }
        // Linkers give libraries without an entry the beginning of their code for one.
        let is_program = header.e_type(endian) == elf::ET_EXEC
            || segments.iter().any(|segment| segment.p_type(endian) == elf::PT_INTERP);
        parts.entry = Some(header.e_entry(endian).into()).filter(|entry| is_program && *entry != 0);
        parts.plt.sort_by_key(|plt| plt.range.start);
        parts.plt.dedup_by_key(|plt| plt.range.start);
        if parts.text.is_empty() {
            parts.without_sections();
        }
        parts.symbols.set_sections(&parts.text);
        Ok(parts)
    }

    fn segment<H: ProgramHeader<Endian = Endianness>>(&mut self, segment: &H, endian: Endianness, bytes: &'a [u8]) {
        let (address, size) = (segment.p_vaddr(endian).into(), segment.p_memsz(endian).into());
        let data = segment.data(endian, bytes).unwrap_or_default();
        match segment.p_type(endian) {
            elf::PT_LOAD => {
                self.image_base = self.image_base.min(address & !(PAGE - 1));
                self.image_end = self.image_end.max(address.saturating_add(size));
                self.loads.push((address, data));
                let is_code = segment.p_flags(endian).0 & elf::PF_X.0 != 0;
                if is_code && self.segment.is_none_or(|(_, other)| other.len() < data.len()) && !data.is_empty() {
                    self.segment = Some((address, data));
                }
            }
            elf::PT_ARM_EXIDX if self.arch == Arch::Arm => {
                self.exidx = Some((address, data)).filter(|(_, data)| !data.is_empty())
            }
            elf::PT_GNU_EH_FRAME => self.eh_frame_hdr = Some((address, data)).filter(|(_, data)| !data.is_empty()),
            elf::PT_NOTE if self.debug_id.is_none() => {
                let Ok(notes) = segment.notes(endian, bytes) else { return };
                self.debug_id = notes.and_then(|notes| build_id(notes, endian));
            }
            _ => {}
        }
    }

    fn section<H: FileHeader<Endian = Endianness>>(
        &mut self,
        name: &[u8],
        section: &H::SectionHeader,
        sections: &'a [H::SectionHeader],
        endian: Endianness,
        bytes: &'a [u8],
    ) {
        let kind = section.sh_type(endian);
        let flags = section.sh_flags(endian).0;
        // What is compressed is not read: that would bring a decompressor into every program.
        if kind == elf::SHT_NOBITS || flags & elf::SHF_COMPRESSED.0 != 0 {
            return;
        }
        let Some(data) = section.data(endian, bytes).ok().filter(|data| !data.is_empty()) else { return };
        let address: u64 = section.sh_addr(endian).into();
        let is_loaded = flags & elf::SHF_ALLOC.0 != 0;
        let is = |wanted: &[u8]| name.starts_with(wanted);
        if is_loaded && flags & elf::SHF_EXECINSTR.0 != 0 {
            let Some(end) = address.checked_add(data.len() as u64) else { return };
            self.text.push(address..end);
            self.code.push((address, data));
            if is(b".text\0") {
                self.text_section = Some((address, data));
            }
            if [&b".plt\0"[..], b".plt.sec\0", b".plt.got\0", b".plt.bnd\0", b".iplt\0", b".MIPS.stubs\0"]
                .into_iter()
                .any(is)
            {
                let entry_size = match section.sh_entsize(endian).into() {
                    size @ (8 | 16) => size,
                    _ if self.arch != Arch::X86_64 => 0,
                    _ => PLT_ENTRY_BYTES,
                };
                self.plt.push(Plt { range: address..end, entry_size, bytes: data });
            }
        } else if is_loaded && is(b".eh_frame\0") {
            self.eh_frame = Some((address, data));
        } else if is_loaded && is(b".eh_frame_hdr\0") {
            self.eh_frame_hdr = Some((address, data));
        } else if is_loaded && is(b".got\0") {
            self.got = Some(address);
        } else if is(b".debug_frame\0") {
            self.debug_frame = Some((address, data));
        } else if is_loaded && is(b".ARM.exidx\0") {
            self.exidx = Some((address, data));
        } else if is_loaded && (is(b".gopclntab\0") || is(b".data.rel.ro.gopclntab\0")) {
            self.pclntab = Some((address, data));
        } else if is(b".pdr\0") {
            self.pdr = Some(data);
        } else if kind == elf::SHT_SYMTAB || (kind == elf::SHT_DYNSYM && !self.symbols.is_full) {
            let strings = usize::try_from(section.sh_link(endian)).ok().and_then(|at| sections.get(at));
            let strings = strings.and_then(|strings| strings.data(endian, bytes).ok()).unwrap_or_default();
            self.symbols = SymbolBytes {
                symbols: data,
                strings,
                form: symbols::Form::of(self.arch),
                is_full: kind == elf::SHT_SYMTAB,
                text: Default::default(),
            };
        }
    }

    /// Executable segments for code, and the entries that the index of the frames points to: what is left of a file without
    /// section headers, and of an image in memory.
    fn without_sections(&mut self) {
        if let Some((address, data)) = self.segment {
            self.text.push(address..address.saturating_add(data.len() as u64));
        }
        // LSB 5.0, 10.6.2: version 1, and the usual encoding of the pointer: relative to itself, 4 bytes with sign.
        let Some((header, [1, 0x1b, _, _, a, b, c, d, ..])) = self.eh_frame_hdr else { return };
        let distance = i64::from(i32::from_le_bytes([*a, *b, *c, *d]));
        let Some(address) = header.checked_add(4).and_then(|at| at.checked_add_signed(distance)) else { return };
        self.eh_frame = self.loads.iter().find_map(|(start, data)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            Some((address, data.get(at..)?)).filter(|(_, data)| !data.is_empty())
        });
    }

    /// Compiles the unwind rules to a table; an empty one where there are none.
    pub fn compile(&self) -> Result<Vec<u8>, E> {
        let follows = is_followed(self.arch) && !self.has_short_instructions && !self.code.is_empty();
        let is_described = [self.eh_frame, self.debug_frame, self.exidx, self.pclntab].iter().any(Option::is_some);
        if !is_described && self.plt.is_empty() && !follows {
            return Ok(Vec::new());
        }
        self.reserve()?;
        // A table has an id always; nobody compares that of a file without one.
        let unnamed = || DebugId::from_build_id(&[1]).map_err(|_| E::Malformed);
        let debug_id = self.debug_id.clone().map_or_else(unnamed, Ok)?;
        let mut functions = if follows { self.symbols.starts()? } else { Vec::new() };
        if let Some(entry) = self.entry.filter(|_| follows) {
            functions.try_reserve(1).map_err(|_| E::OutOfMemory)?;
            functions.push(entry);
        }
        let input = Input {
            image_base: Svma(self.image_base),
            text: &self.text,
            eh_frame: self.eh_frame,
            eh_frame_hdr: self.eh_frame_hdr,
            debug_frame: self.debug_frame,
            pdr: self.pdr.filter(|_| follows),
            exidx: self.exidx,
            pclntab: self.pclntab,
            loaded: &self.loads,
            functions: &functions,
            plt: &self.plt,
            code: &self.code,
            producer: concat!("libdwunw ", env!("CARGO_PKG_VERSION")),
            bases: Bases { text: self.text_section.map(|text| text.0), got: self.got },
            ..Input::of(self.arch, &debug_id)
        };
        compile::compile(&input).map(|compiled| compiled.bytes).map_err(|_| E::Malformed)
    }

    /// Finds out whether there is memory for compiling. The compiler itself has no way back from an allocation that fails; what
    /// it needs is bounded by its input, so that one attempt at that much tells.
    fn reserve(&self) -> Result<(), E> {
        let size = |part: Part<'_>| part.map_or(0, |(_, data)| data.len());
        let followed =
            if is_followed(self.arch) { self.code.iter().map(|(_, bytes)| bytes.len()).sum() } else { 0usize };
        let frames = size(self.eh_frame).saturating_add(size(self.debug_frame)).saturating_add(size(self.exidx));
        let frames = frames.saturating_add(size(self.pclntab) / 8).saturating_add(followed / 8);
        let span = self.text.iter().map(|range| range.end).max().unwrap_or(0).saturating_sub(self.image_base);
        let buckets = usize::try_from(span.min(symseal_unwind::format::MAX_TEXT_SPAN) / 16).unwrap_or(usize::MAX);
        let most = frames.saturating_mul(BYTES_OF_A_FRAME_BYTE).saturating_add(buckets).saturating_add(1 << 20);
        let most = most.saturating_add(followed.min(LONGEST_FUNCTION).saturating_mul(BYTES_OF_A_CODE_BYTE));
        let mut attempt: Vec<u8> = Vec::new();
        attempt.try_reserve_exact(most).map_err(|_| E::OutOfMemory)?;
        // Else the compiler leaves out what nobody looks at.
        core::hint::black_box(attempt.as_ptr());
        Ok(())
    }
}

/// Bytes of memory that compiling takes at most for a byte of call frame information: twice what sections take that were made to
/// take much (`unwind/tests/memory.rs`). Usual ones take less than 24.
const BYTES_OF_A_FRAME_BYTE: usize = 170;

/// The longest function that the compiler follows, in bytes: of one at a time it keeps a state for each place where an instruction may begin.
const LONGEST_FUNCTION: usize = 1 << 18;

/// Bytes of memory for a byte of that: a state of some 115 bytes for every second one, twice, as calls keep theirs.
const BYTES_OF_A_CODE_BYTE: usize = 256;

/// Whether there is much code that only its instructions tell of.
fn is_followed(arch: Arch) -> bool {
    is_mips(arch) || matches!(arch, Arch::Riscv64 | Arch::Arm)
}

fn is_mips(arch: Arch) -> bool {
    matches!(arch, Arch::Mips32 | Arch::Mips32Little)
}

/// The processor of a file with these words in its header.
fn arch(machine: u16, is_64: bool, is_big_endian: bool, flags: MipsFlags) -> Option<Arch> {
    match (elf::Machine(machine), is_64, is_big_endian) {
        (elf::EM_MIPS, ..) if !flags.is_o32() => None,
        (elf::EM_X86_64, true, false) => Some(Arch::X86_64),
        (elf::EM_ARM, false, false) => Some(Arch::Arm),
        (elf::EM_386, false, false) => Some(Arch::I686),
        (elf::EM_AARCH64, true, false) => Some(Arch::Aarch64),
        (elf::EM_RISCV, true, false) => Some(Arch::Riscv64),
        (elf::EM_MIPS, false, true) => Some(Arch::Mips32),
        (elf::EM_MIPS, false, false) => Some(Arch::Mips32Little),
        _ => None,
    }
}

fn build_id<H: FileHeader<Endian = Endianness>>(mut notes: NoteIterator<'_, H>, endian: Endianness) -> Option<DebugId> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
            return DebugId::from_build_id(note.desc()).ok();
        }
    }
    None
}
