//! The compiler: unwind sections of a binary to one `.uwt` table.

#[cfg(feature = "compile")]
mod bare;
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
mod gaps;
mod go;
#[cfg(feature = "compile")]
mod handwritten;
mod input;
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
mod pushed_before;
mod report;
#[cfg(feature = "compile")]
mod retpoline;
mod return_column;
mod rules;
mod signs;
mod startup;
mod switches;
mod synchronous;
mod tasks;
mod terms;
mod trampoline;
mod translate;
mod write;
mod x86;

use alloc::borrow::Cow;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::ops::Range;

use gimli::BaseAddresses;

use crate::arch::Arch;
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
pub use input::{Bases, Input, Plt};
#[cfg(feature = "compile")]
pub use orc::Orc;
pub use report::{CompileError, Compiled, MAX_REASONS, MAX_UNSUPPORTED_LISTED, OTHER_REASONS, Report, Unsupported};
pub use tasks::{TASK_NAMES, names_tasks, tasks};

/// Makes the table of one module. The same input gives the same bytes.
///
/// Of several sources that speak for the same code, the first of these counts: linkage tables of a known form, Go's table of functions where there is `.pdata`, `.pdata`, `.eh_frame`,
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
        constants: BTreeSet::new(),
        report: Report::default(),
    };
    compiler.report.text_bytes = text.iter().map(|range| range.end - range.start).sum();
    compiler.linkage_tables(input.arch, input.plt);
    #[cfg(feature = "compile")]
    pdata::foreign(input, &mut compiler);
    let go_table = go::open(input);
    // Of a prologue that Go's functions leave when they need a larger stack an exception directory cannot tell.
    let go_comes_first = input.has_exception_directory();
    if go_comes_first {
        go::rules_before_others(input, go_table.as_ref(), &mut compiler);
        go::rules(input, go_table.as_ref(), &mut compiler);
    }
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
    if !go_comes_first {
        go::rules_before_others(input, go_table.as_ref(), &mut compiler);
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
    if !go_comes_first {
        go::rules(input, go_table.as_ref(), &mut compiler);
    }
    if matches!(input.arch, Arch::Riscv64 | Arch::Arm) {
        // Some begin at the file's entry, which would be followed.
        #[cfg(feature = "compile")]
        compiler.starts_of_the_loader(input.arch, input.code);
        let starts = functions::starts(input, &mut compiler);
        exidx::rules(input, &starts, &mut compiler);
        functions::rules(input, &starts, &mut compiler);
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
    handwritten::rules(input, &mut compiler);
    #[cfg(feature = "compile")]
    pdata::leaves(input, &mut compiler);
    #[cfg(feature = "compile")]
    compiler.count_linkage_tables(input.arch, input.plt);
    let Compiler { mut pieces, mut rules, programs, constants, mut report, .. } = compiler;
    pieces::sort(&mut pieces);
    match input.arch {
        Arch::Aarch64 => {
            pushed_before::correct(&mut pieces, &mut rules);
            return_column::correct(input.code, &mut pieces, &mut rules);
        }
        Arch::I686 => x86::tell_pushes(input.code, &mut pieces, &mut rules),
        Arch::X86_64 => {
            x86::tell_extended(input.code, &mut pieces, &mut rules);
            x86::tell_pops(input.code, &mut pieces, &mut rules);
            x86::tell_returns(input.code, &mut pieces, &mut rules);
            trampoline::mark_beginnings(input.code, &text, &mut pieces, &mut rules);
        }
        _ => {}
    }
    for range in switches::correct(input.arch, input.code, &mut pieces, &mut rules) {
        report.note_unsupported(range, switches::ANOTHER_STACK);
    }
    report.trampolines = trampoline::mark(input.arch, input.code, &text, &mut pieces, &mut rules);
    report.programs = programs.count();
    let is_known = |piece: &&Piece| !matches!(rules.of(piece.rule).0.kind(), Some(Kind::Gap | Kind::Unsupported));
    report.covered_bytes = pieces.iter().filter(is_known).map(|piece| piece.end() - piece.start()).sum();
    padding::absorb(input.arch, input.code, &mut pieces);
    let known = pieces.iter().map(|piece| (*piece, is_known(&piece)));
    gaps::count(input, &text, known, &constants, &mut report);
    let bytes = write::write(input, &span, &pieces, &mut rules, &programs.into_bytes(), &mut report)?;
    Ok(Compiled { bytes, report })
}

struct Compiler<'t> {
    claims: Claims<'t>,
    pieces: Vec<Piece>,
    rules: Rules,
    programs: Programs,
    /// Words among the code that it loads.
    constants: BTreeSet<u64>,
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
                self.report.note_unsupported(plt.range.clone(), "linkage table of an unknown form");
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
                // A table has no rule that says that there is none.
                if range.start < range.end && rule.kind() != Some(Kind::Gap) {
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
        self.report.note_unsupported(first.start..last.end, reason);
    }

    fn entries<'a, S: CfiSection<'a>>(
        &mut self,
        mut places: Vec<FdePlace>,
        mut reader: FdeReader<'_, 'a, S>,
        mut evaluator: Evaluator<'_, S>,
    ) {
        self.report.fdes += places.len();
        fdes::sort(&mut places);
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
    sorted.sort_by_cached_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::with_capacity(sorted.len());
    for range in sorted {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}
