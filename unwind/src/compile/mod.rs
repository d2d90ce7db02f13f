//! The compiler: unwind sections of a binary to one `.uwt` table.

#[cfg(feature = "compile")]
mod compact;
mod coroutines;
mod debug_info;
mod eval;
mod exidx;
mod expression;
mod fdes;
mod follow;
mod functions;
mod go;
mod kept_offset;
mod layout;
mod mips;
#[cfg(feature = "compile")]
mod orc;
mod padding;
#[cfg(feature = "compile")]
mod pdata;
mod pdr;
mod pieces;
mod plt;
mod programs;
#[cfg(feature = "compile")]
mod retpoline;
mod rules;
mod signs;
mod startup;
mod synchronous;
mod tasks;
mod terms;
mod trampoline;
mod translate;
mod write;
mod x86;

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::ops::Range;

use gimli::BaseAddresses;
use symseal_module::{DebugId, Svma};

use crate::arch::Arch;
use crate::goroutine::GoRuntime;
use crate::rule::{Kind, Rule, RuleSource, Slots};
use crate::source::SourceKind;
use eval::{Evaluator, expected_rows};
use fdes::{CfiSection, FdePlace, FdeReader};
use pieces::{Claims, Origin, Piece};
use programs::Programs;
use rules::Rules;

pub use coroutines::{COROUTINE_NAMES, LOCATION_SECTIONS, coroutines, names_coroutines};
pub use debug_info::DEBUG_INFO_SECTIONS;
pub use go::go_runtime;
#[cfg(feature = "compile")]
pub use orc::Orc;
pub use tasks::{TASK_NAMES, names_tasks, tasks};

/// What a table is made of. Addresses are stated ones (svma).
#[derive(Debug, Clone)]
pub struct Input<'a> {
    /// The processor of the binary.
    pub arch: Arch,
    /// The module's identity.
    pub debug_id: &'a DebugId,
    /// The module's image base.
    pub image_base: Svma,
    /// Ranges that hold code. What call frame information says of other addresses is left out and counted.
    pub text: &'a [Range<u64>],
    /// Address and bytes of `.eh_frame`.
    pub eh_frame: Option<(u64, &'a [u8])>,
    /// Address and bytes of `.eh_frame_hdr`; used to find entries where `.eh_frame` itself is damaged.
    pub eh_frame_hdr: Option<(u64, &'a [u8])>,
    /// Address (0 for a section that is not loaded) and decompressed bytes of `.debug_frame`. It fills what `.eh_frame` leaves open.
    pub debug_frame: Option<(u64, &'a [u8])>,
    /// Decompressed bytes of `.pdr`, the procedure descriptors of 32-bit MIPS. Together with the code they fill what call frame
    /// information leaves open.
    pub pdr: Option<&'a [u8]>,
    /// Address and bytes of the exception directory of a Windows module (`.pdata`).
    #[cfg(feature = "compile")]
    pub pdata: Option<(u64, &'a [u8])>,
    /// Whether functions keep the registers of the System V ABI although there is an exception directory: in images that .NET's ahead-of-time compilers make for other systems
    /// than Windows.
    #[cfg(feature = "compile")]
    pub is_system_v: bool,
    /// The two sections of a kernel's ORC tables. They say more than `.debug_frame` does where stacks change and processes enter.
    #[cfg(feature = "compile")]
    pub orc: Option<Orc<'a>>,
    /// Address and bytes of `__unwind_info` of a Mach-O module.
    #[cfg(feature = "compile")]
    pub unwind_info: Option<(u64, &'a [u8])>,
    /// Address and bytes of `.ARM.exidx`, the index table of 32-bit ARM.
    pub exidx: Option<(u64, &'a [u8])>,
    /// Address and bytes of `.gopclntab`, the table of functions of a Go program.
    pub pclntab: Option<(u64, &'a [u8])>,
    /// What [`go_runtime`] found in a Go program: the table keeps it.
    pub go_runtime: Option<&'a GoRuntime<Svma>>,
    /// What [`tasks`] found in a Rust program: the table keeps it.
    pub tasks: Option<&'a [u8]>,
    /// What [`coroutines`] found in a C++ program: the table keeps it.
    pub coroutines: Option<&'a [u8]>,
    /// Whether there is a `.sframe` section. This version does not read it, and says so where nothing else speaks of the module.
    pub has_sframe: bool,
    /// Addresses and bytes of everything that a process has of the file, code included; the exception directory and the index table lead there. May be
    /// empty where there is none.
    pub loaded: &'a [(u64, &'a [u8])],
    /// Where functions begin, from the symbol tables, in any order. On 32-bit MIPS, 32-bit ARM and RISC-V, code that no
    /// section speaks for is followed from there; on ARM bit 0 says that Thumb instructions are there. May be empty.
    pub functions: &'a [u64],
    /// Procedure linkage tables, from the section headers.
    pub plt: &'a [Plt<'a>],
    /// Addresses and bytes of the code by section, in which signal trampolines without call frame information are looked for, and by
    /// which padding between functions and start-up code are known, and that `.pdr` speaks of. May be empty.
    pub code: &'a [(u64, &'a [u8])],
    /// The code was made at run time, and its call frame information is what a JIT compiler gave (GDB's JIT interface, jitdump).
    pub is_jit: bool,
    /// SHA-256 of the file that all this came from.
    pub source_sha256: [u8; 32],
    /// The producer's name and version.
    pub producer: &'a str,
    /// What pointer encodings relative to other sections are resolved with.
    pub bases: Bases,
}

impl<'a> Input<'a> {
    /// Of a module of which nothing else is known.
    pub fn of(arch: Arch, debug_id: &'a DebugId) -> Self {
        Self {
            arch,
            debug_id,
            image_base: Svma(0),
            text: &[],
            eh_frame: None,
            eh_frame_hdr: None,
            debug_frame: None,
            pdr: None,
            #[cfg(feature = "compile")]
            pdata: None,
            #[cfg(feature = "compile")]
            is_system_v: false,
            #[cfg(feature = "compile")]
            orc: None,
            #[cfg(feature = "compile")]
            unwind_info: None,
            exidx: None,
            pclntab: None,
            go_runtime: None,
            tasks: None,
            coroutines: None,
            has_sframe: false,
            loaded: &[],
            functions: &[],
            plt: &[],
            code: &[],
            is_jit: false,
            source_sha256: [0; 32],
            producer: "",
            bases: Bases::default(),
        }
    }
}

impl<'a> Input<'a> {
    /// Registers that the module's functions keep beyond those of the processor's usual convention.
    fn convention_registers(&self) -> &'static [u8] {
        #[cfg(feature = "compile")]
        if self.pdata.is_some() && !self.is_system_v {
            return self.arch.convention_registers();
        }
        &[]
    }

    /// Whether the module's functions are described by compact unwind information.
    fn has_compact_unwind(&self) -> bool {
        #[cfg(feature = "compile")]
        return self.unwind_info.is_some();
        #[cfg(not(feature = "compile"))]
        return false;
    }

    /// What the file has of a function: fewer bytes than the range where its section ends before.
    fn code_of(&self, range: &Range<u64>) -> Option<&'a [u8]> {
        self.code.iter().find_map(|(start, bytes)| {
            let from = usize::try_from(range.start.checked_sub(*start)?).ok()?;
            let length = usize::try_from(range.end.checked_sub(range.start)?).ok()?;
            bytes.get(from..).map(|bytes| bytes.get(..length).unwrap_or(bytes)).filter(|bytes| !bytes.is_empty())
        })
    }
}

/// Section addresses (svma) that pointer encodings may be relative to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bases {
    /// `.text`.
    pub text: Option<u64>,
    /// `.got`.
    pub got: Option<u64>,
}

/// A section of procedure linkage table entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plt<'a> {
    /// Its addresses.
    pub range: Range<u64>,
    /// Bytes of an entry (`sh_entsize`); 0 where the header does not say.
    pub entry_size: u64,
    /// Its bytes. Empty if not at hand; then only call frame information can give its rules.
    pub bytes: &'a [u8],
}

/// A finished table.
#[derive(Debug, Clone)]
pub struct Compiled {
    /// The `.uwt` file.
    pub bytes: Vec<u8>,
    /// What went into it and what did not.
    pub report: Report,
}

/// What the compiler made of its input. What it could not express is counted here and marked in the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Frame description entries found.
    pub fdes: usize,
    /// Of these, from `.debug_frame`.
    pub debug_frame_fdes: usize,
    /// Entries for addresses that hold no code, such as those of discarded functions.
    pub fdes_outside_text: usize,
    /// Entries of which another one covers a part; the one that starts first, and of these the longest, counts.
    pub fdes_overlapping: usize,
    /// Zero terminators before the end of a section.
    pub terminators_in_the_middle: usize,
    /// Places where a section could not be read on.
    pub damaged_entries: usize,
    /// Rows in the table.
    pub rows: usize,
    /// Distinct rules in the table.
    pub rules: usize,
    /// Programs for expressions that no plain rule covers.
    pub programs: usize,
    /// Bytes of code.
    pub text_bytes: u64,
    /// Bytes of code with a rule that can be carried out or says that there is no caller.
    pub covered_bytes: u64,
    /// Rows of call frame information that this format does not express, or that could not be read: marked in the table as
    /// unsupported. At most [`MAX_UNSUPPORTED_LISTED`] are listed.
    pub unsupported: Vec<Unsupported>,
    /// All of them.
    pub unsupported_count: usize,
    /// How many of them for which reason. Beyond [`MAX_REASONS`] kinds, those that are left count as [`OTHER_REASONS`].
    pub unsupported_reasons: BTreeMap<String, usize>,
    /// Saved registers of rows whose place this format does not express: marked as unknown in the table.
    pub unknown_registers: usize,
    /// Signal trampolines that were known by their instructions.
    pub trampolines: usize,
    /// Records of `.pdr` for code that nothing else speaks for.
    pub pdr_records: usize,
    /// Entries of the exception directory or of compact unwind information.
    pub unwind_entries: usize,
    /// Of these, without any code.
    pub entries_outside_text: usize,
    /// Whether the table says what leads from the stack of a thread to its goroutine.
    pub has_go_runtime: bool,
    /// Whether the table says what leads from a task to the one that waits for it.
    pub has_tasks: bool,
    /// Whether the table says what leads from coroutines to those that wait.
    pub has_coroutines: bool,
    /// Functions whose instructions could not be followed to rules, in part or at all, by reason.
    pub unfollowed: BTreeMap<String, usize>,
    /// Where they are. At most [`MAX_UNSUPPORTED_LISTED`] are listed.
    pub unfollowed_functions: Vec<Unsupported>,
    /// Why saved registers are marked as unknown: how many rows for which reason. Beyond [`MAX_REASONS`] kinds, those that are left count as
    /// [`OTHER_REASONS`].
    pub unknown_register_reasons: BTreeMap<String, usize>,
}

/// More entries of [`Report::unsupported`] would help nobody.
pub const MAX_UNSUPPORTED_LISTED: usize = 1000;

/// More kinds of [`Report::unsupported_reasons`] would help nobody.
pub const MAX_REASONS: usize = 64;

/// Stands for the reasons beyond [`MAX_REASONS`].
pub const OTHER_REASONS: &str = "other reasons";

impl Report {
    fn count_reason(&mut self, reason: &str) {
        count(&mut self.unsupported_reasons, reason);
    }

    fn count_unknown_register(&mut self, reason: &str) {
        count(&mut self.unknown_register_reasons, reason);
    }

    /// Counts a function of which not everything is known. `range` is where it is, if that can be told.
    fn count_unfollowed(&mut self, range: Option<Range<u64>>, reason: &str) {
        count(&mut self.unfollowed, reason);
        if let Some(range) = range.filter(|_| self.unfollowed_functions.len() < MAX_UNSUPPORTED_LISTED) {
            self.unfollowed_functions.push(Unsupported { range, reason: String::from(reason) });
        }
    }
}

fn count(reasons: &mut BTreeMap<String, usize>, reason: &str) {
    let is_kept = reasons.len() < MAX_REASONS || reasons.contains_key(reason);
    let reason = if is_kept { reason } else { OTHER_REASONS };
    match reasons.get_mut(reason) {
        Some(count) => *count += 1,
        None => drop(reasons.insert(String::from(reason), 1)),
    }
}

/// A range of code whose rule could not be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsupported {
    /// The addresses (svma).
    pub range: Range<u64>,
    /// Why.
    pub reason: String,
}

/// Why no table could be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompileError {
    /// There is no code to describe.
    NoText,
    /// The code spans more than [`MAX_TEXT_SPAN`](crate::format::MAX_TEXT_SPAN) bytes, or lies below the image base.
    TextSpan {
        /// Lowest address.
        start: u64,
        /// End of the highest range.
        end: u64,
    },
    /// More rules than can be numbered.
    TooManyRules,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unwind table: ")?;
        match self {
            Self::NoText => f.write_str("expected at least one range of code, found none"),
            Self::TextSpan { start, end } => {
                write!(f, "expected code within 2 GiB above the image base, found {start:#x} to {end:#x}")
            }
            Self::TooManyRules => f.write_str("expected at most 65536 distinct rules, found more"),
        }
    }
}

impl core::error::Error for CompileError {}

/// Makes the table of one module. The same input gives the same bytes.
///
/// Of several sources that speak for the same code, the first of these counts: linkage tables of a known form, `.pdata`, `.eh_frame`,
/// `.debug_frame` as far as ORC tables say the same, these, `.pdr` and the instructions of functions, compact unwind information, start-up code of a known form, and for what is left of
/// a Windows module that it holds leaves. Within one section the entry that starts first counts, and of these the longest.
pub fn compile<'i>(input: &Input<'i>) -> Result<Compiled, CompileError> {
    let text = normalized(input.text);
    let span = write::Span::of(&text, input.image_base)?;
    let mut compiler = Compiler {
        claims: Claims::new(&text),
        pieces: Vec::new(),
        rules: Rules::default(),
        programs: Programs::default(),
        report: Report::default(),
    };
    compiler.report.text_bytes = text.iter().map(|range| range.end - range.start).sum();
    compiler.linkage_tables(input.arch, input.plt);
    #[cfg(feature = "compile")]
    pdata::rules(input, &mut compiler);
    let mut bases = BaseAddresses::default();
    if let Some(text) = input.bases.text {
        bases = bases.set_text(text);
    }
    if let Some(got) = input.bases.got {
        bases = bases.set_got(got);
    }
    if let Some((address, _)) = input.eh_frame_hdr {
        bases = bases.set_eh_frame_hdr(address);
    }
    // One architecture has an instruction and letters that gimli does not read.
    let readable = |section: Option<(u64, &'i [u8])>, is_eh_frame| {
        let (address, bytes) = section?;
        let signs = input.arch.machine().signs_return_addresses;
        Some((address, if signs { signs::readable(bytes, is_eh_frame) } else { Cow::Borrowed(bytes) }))
    };
    let convention = input.convention_registers();
    if let Some((address, bytes)) = &readable(input.eh_frame, true) {
        let (address, bytes) = (*address, &**bytes);
        let bases = bases.clone().set_eh_frame(address);
        let section = fdes::eh_frame(bytes, input.arch);
        let header = input.eh_frame_hdr.map(|(_, header)| header);
        let (fdes, reader) =
            fdes::eh_frame_fdes(&section, (address, bytes), header, &bases, input.arch, &mut compiler.report);
        let source = if input.is_jit { RuleSource::Jit } else { RuleSource::EhFrame };
        let evaluator = Evaluator::new(&section, bytes, &bases, input.arch, source);
        let evaluator = evaluator.with_convention(convention);
        // Where there is not so much memory, the list grows as far as it goes.
        let _ = compiler.pieces.try_reserve(expected_rows(bytes));
        compiler.entries(fdes, reader, evaluator);
    }
    let go_table = go::open(input);
    if let Some(table) = &go_table {
        go::rules_before_debug_frame(input, table, &mut compiler);
    }
    if let Some((address, bytes)) = &readable(input.debug_frame, false) {
        let (address, bytes) = (*address, &**bytes);
        let bases = bases.set_eh_frame(address);
        let section = fdes::debug_frame(bytes, input.arch);
        let (fdes, reader) = fdes::debug_frame_fdes(&section, bytes, &bases, input.arch, &mut compiler.report);
        compiler.report.debug_frame_fdes = fdes.len();
        let evaluator = Evaluator::new(&section, bytes, &bases, input.arch, RuleSource::DebugFrame);
        let evaluator = evaluator.with_convention(convention);
        let _ = compiler.pieces.try_reserve(expected_rows(bytes));
        compiler.entries(fdes, reader, evaluator);
    }
    #[cfg(feature = "compile")]
    orc::rules(input, &mut compiler);
    synchronous::complete(input, &mut compiler);
    if matches!(input.arch, Arch::Mips32 | Arch::Mips32Little) {
        pdr::rules(input, &mut compiler);
    }
    go::rules(input, go_table.as_ref(), &mut compiler);
    exidx::rules(input, &mut compiler);
    if matches!(input.arch, Arch::Riscv64 | Arch::Arm) {
        functions::rules(input, &mut compiler);
    }
    exidx::count_gaps(input, &mut compiler);
    if input.has_sframe && compiler.report.fdes + compiler.report.unwind_entries == 0 {
        compiler.report.count_unfollowed(None, "`.sframe`: present, not read by this version");
    }
    #[cfg(feature = "compile")]
    compact::rules(input, &mut compiler);
    compiler.start_up(input.arch, input.code);
    #[cfg(feature = "compile")]
    compiler.starts_of_the_loader(input.arch, input.code);
    #[cfg(feature = "compile")]
    pdata::leaves(input, &mut compiler);
    #[cfg(feature = "compile")]
    compiler.count_linkage_tables(input.arch, input.plt);
    let Compiler { mut pieces, mut rules, programs, mut report, .. } = compiler;
    pieces.sort_by_key(Piece::start);
    match input.arch {
        Arch::I686 => x86::tell_pushes(input.code, &mut pieces, &mut rules),
        Arch::X86_64 => {
            x86::tell_extended(input.code, &mut pieces, &mut rules);
            trampoline::mark_beginnings(input.code, &text, &mut pieces, &mut rules);
        }
        _ => {}
    }
    report.trampolines = trampoline::mark(input.arch, input.code, &text, &mut pieces, &mut rules);
    report.programs = programs.count();
    let is_known = |piece: &&Piece| !matches!(rules.of(piece.rule).0.kind(), Some(Kind::Gap | Kind::Unsupported));
    report.covered_bytes = pieces.iter().filter(is_known).map(|piece| piece.end() - piece.start()).sum();
    padding::absorb(input.arch, input.code, &mut pieces);
    let bytes = write::write(input, &span, &pieces, &mut rules, &programs.into_bytes(), &mut report)?;
    Ok(Compiled { bytes, report })
}

struct Compiler<'t> {
    claims: Claims<'t>,
    pieces: Vec<Piece>,
    rules: Rules,
    programs: Programs,
    report: Report,
}

impl Compiler<'_> {
    fn linkage_tables(&mut self, arch: Arch, plts: &[Plt<'_>]) {
        for plt in plts {
            let Some(rules) = plt::rules(arch, plt, &mut self.programs) else { continue };
            for (range, rule) in rules {
                let rule = self.rules.number_of(rule, Slots::SAME);
                let origin = Origin::new(SourceKind::Plt, plt.range.start);
                let claimed = self.claims.claim(range);
                self.pieces.extend(claimed.into_iter().map(|range| Piece::new(range, rule, origin)));
            }
        }
    }

    /// Counts the linkage tables that no other section has spoken for either.
    #[cfg(feature = "compile")]
    fn count_linkage_tables(&mut self, arch: Arch, plts: &[Plt<'_>]) {
        for plt in plts.iter().filter(|plt| plt.range.start < plt.range.end) {
            if self.claims.is_free(plt.range.start) && plt::rules(arch, plt, &mut self.programs).is_none() {
                self.note_unsupported(plt.range.clone(), "linkage table of an unknown form");
            }
        }
    }

    /// Where the loader begins a process there is no caller, whatever calls what from there.
    #[cfg(feature = "compile")]
    fn starts_of_the_loader(&mut self, arch: Arch, code: &[(u64, &[u8])]) {
        for (start, bytes) in code {
            for range in startup::loader::starts(arch, *start, bytes) {
                if !self.claims.is_free(range.start) {
                    continue;
                }
                let rule = self.rules.number_of(Rule::bare(Kind::End, RuleSource::Instructions), Slots::SAME);
                let origin = Origin::new(SourceKind::Instructions, range.start);
                // All of it, or it is something else.
                if self.claims.claim(range.clone()) == [range.clone()] {
                    self.pieces.push(Piece::new(range, rule, origin));
                }
            }
        }
    }

    fn start_up(&mut self, arch: Arch, code: &[(u64, &[u8])]) {
        for (start, bytes) in code {
            for (range, rule, slots) in startup::rules(arch, *start, bytes).unwrap_or_default() {
                let rule = self.rules.number_of(rule, slots);
                let origin = Origin::new(SourceKind::Instructions, *start);
                let claimed = self.claims.claim(range);
                self.pieces.extend(claimed.into_iter().map(|range| Piece::new(range, rule, origin)));
            }
        }
    }

    /// Adds the rules of one entry: each holds from its address on, up to the next. `rules` rise and begin with the range.
    fn add(&mut self, claimed: &[Range<u64>], rules: &[(u64, (Rule, Slots))], origin: Origin) {
        for part in claimed {
            let from = rules.partition_point(|(start, _)| *start <= part.start).saturating_sub(1);
            let ends = rules.iter().skip(from + 1).map(|(start, _)| *start).chain([u64::MAX]);
            for ((start, (rule, slots)), end) in rules.iter().skip(from).zip(ends) {
                let range = part.start.max(*start)..part.end.min(end);
                if *start >= part.end {
                    break;
                }
                if range.start < range.end {
                    let rule = self.rules.number_of(*rule, *slots);
                    self.pieces.push(Piece::new(range, rule, origin));
                }
            }
        }
    }

    /// Marks what a record speaks of and this format, or this version, does not express.
    fn unsupported(&mut self, claimed: &[Range<u64>], origin: Origin, of: RuleSource, reason: &str) {
        let (Some(first), Some(last)) = (claimed.first(), claimed.last()) else { return };
        let rule = (Rule::bare(Kind::Unsupported, of), Slots::SAME);
        self.add(claimed, &[(first.start, rule)], origin);
        self.note_unsupported(first.start..last.end, reason);
    }

    /// Counts a range that has no rule although something speaks of it.
    fn note_unsupported(&mut self, range: Range<u64>, reason: &str) {
        self.report.unsupported_count += 1;
        self.report.count_reason(reason);
        if self.report.unsupported.len() < MAX_UNSUPPORTED_LISTED {
            self.report.unsupported.push(Unsupported { range, reason: String::from(reason) });
        }
    }

    fn entries<'a, S: CfiSection<'a>>(
        &mut self,
        mut places: Vec<FdePlace>,
        mut reader: FdeReader<'_, 'a, S>,
        mut evaluator: Evaluator<'_, S>,
    ) {
        self.report.fdes += places.len();
        places.sort_by_key(|place| (place.range.start, Reverse(place.range.end), place.offset));
        for FdePlace { range, offset } in places {
            if !self.claims.is_code(&range) {
                self.report.fdes_outside_text += 1;
                continue;
            }
            let claimed = self.claims.claim(range.clone());
            if claimed != [range] {
                self.report.fdes_overlapping += 1;
            }
            if !claimed.is_empty()
                && let Ok(fde) = reader.read(offset)
            {
                evaluator.run(&fde, &claimed, &mut self.programs, &mut self.rules, &mut self.report, &mut self.pieces);
            }
        }
    }
}

/// The ranges sorted and joined, without empty ones.
fn normalized(text: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut sorted: Vec<Range<u64>> = text.iter().filter(|range| range.start < range.end).cloned().collect();
    sorted.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}
