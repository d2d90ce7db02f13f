//! ORC tables of Linux kernels on x86_64: `.orc_unwind_ip` and `.orc_unwind`, which objtool makes of the kernel's instructions, its assembler code included. (Linux,
//! `arch/x86/include/asm/orc_types.h`, and `arch/x86/kernel/unwind_orc.c` for what the fields mean)
//!
//! An address is a signed distance from where it stands in the first section; the entry of the same number in the second holds from there on. It says where the CFA and the
//! caller's rbp are. Three things are in no other section: that a function goes on with another stack (a word on top of which leads back), that the processor or an entry
//! pushed the registers of interrupted code, and that there is no caller.
//!
//! Of the registers that functions keep, `.debug_frame` tells more. So its rows stay where an entry says the same of CFA and rbp, and the entry counts elsewhere: call frame
//! information of the compiler does not know what inline assembler does to the stack.

use alloc::vec::Vec;
use core::ops::Range;

use super::pieces::{Origin, Piece};
use super::programs::Programs;
use super::{Compiler, Input, retpoline};
use crate::arch::Arch;
use crate::cx::{self, Operation};
use crate::rule::{Kind, ReturnAddress, Rule, RuleSource, Saved, Slots};
use crate::source::SourceKind;

/// The sections of ORC tables.
#[derive(Debug, Clone, Copy)]
pub struct Orc<'a> {
    /// Address and bytes of `.orc_unwind_ip`.
    pub places: (u64, &'a [u8]),
    /// `.orc_unwind`.
    pub entries: &'a [u8],
}

const ENTRY_BYTES: usize = 6;
const WORD: i64 = 8;
const RBX: u8 = 3;
const RBP: u8 = 6;
const RSP: u8 = 7;

/// Numbers of `sp_reg` and `bp_reg`: `ORC_REG_…`.
const UNDEFINED: u16 = 0;
const PREVIOUS_SP: u16 = 1;
const BP: u16 = 4;
const SP: u16 = 5;
const BP_INDIRECT: u16 = 8;
const SP_INDIRECT: u16 = 9;
/// DX, DI, R10, R13, with their DWARF numbers.
const OTHERS: [(u16, u8); 4] = [(2, 1), (3, 5), (6, 10), (7, 13)];

/// Byte offsets in `struct pt_regs`, which an entry leaves on the stack: where the processor's own frame begins in it (`ip`), and registers with their DWARF numbers.
const IP: i64 = 128;
const SAVED: [(u8, i64); 5] = [(15, 0), (14, 8), (13, 16), (12, 24), (RBX, 40)];
const SAVED_BP: i64 = 32;

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum About {
    /// Nothing is known.
    Nothing,
    /// There is no caller.
    End,
    /// A call: the return address is right below the CFA.
    Call,
    /// All registers were pushed.
    Registers,
    /// Those that the processor pushes.
    ProcessorFrame,
}

/// One entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    sp_offset: i64,
    bp_offset: i64,
    sp: u16,
    bp: u16,
    about: About,
}

impl Entry {
    /// Since Linux 6.4 (`is_new`) there are three bits for what an entry is about, and a number for nothing; before, two.
    fn read(bytes: &[u8], is_new: bool) -> Option<Self> {
        let half = |at: usize| Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let fields = half(4)?;
        let sp = fields & 15;
        let about = match (is_new, fields >> 8 & if is_new { 7 } else { 3 }) {
            (true, 0) => About::Nothing,
            (true, 1) => About::End,
            (true, 2) => About::Call,
            (true, 3) => About::Registers,
            (true, 4) => About::ProcessorFrame,
            // A bit says which of the two it is. In 6.3 another one stood before it.
            (false, 0) if sp == UNDEFINED && fields >> 10 != 0 => About::End,
            (false, 0) if sp == UNDEFINED => About::Nothing,
            (false, 0) => About::Call,
            (false, 1) => About::Registers,
            (false, 2) => About::ProcessorFrame,
            _ => return None,
        };
        let signed = |at| half(at).map(|half| i64::from(half as i16));
        Some(Self { sp_offset: signed(0)?, bp_offset: signed(2)?, sp, bp: fields >> 4 & 15, about })
    }

    /// The rule; `Ok(None)` where nothing is known, and an error for what this format does not express.
    fn rule(&self, programs: &mut Programs) -> Result<Option<(Rule, Slots)>, ()> {
        let words = |bytes: i64| (bytes % WORD == 0).then_some(bytes / WORD).ok_or(());
        let slot = |bytes: i64| words(bytes).and_then(|words| i16::try_from(words).map_err(|_| ())).map(Saved::At);
        match self.about {
            About::Nothing => return Ok(None),
            About::End => return Ok(Some((Rule::bare(Kind::End, RuleSource::Orc), Slots::SAME))),
            About::Registers | About::ProcessorFrame => {
                let base = match self.sp {
                    SP => RSP,
                    BP => RBP,
                    _ => return Err(()),
                };
                let (mut offset, mut fp, mut slots) = (self.sp_offset, Saved::Same, Slots::SAME);
                if self.about == About::Registers {
                    offset += IP;
                    fp = slot(SAVED_BP - IP)?;
                    for (register, at) in SAVED {
                        slots = with_slot(slots, register, slot(at - IP)?);
                    }
                }
                let at_start = ReturnAddress::AtCfa(0);
                let rule = Rule::new(Kind::MachineFrame, RuleSource::Orc, base, words(offset)?, at_start, fp);
                return rule.map(|rule| Some((rule, slots))).ok_or(());
            }
            About::Call => {}
        }
        let (kind, register, offset) = match self.sp {
            SP => (Kind::Sp, RSP, words(self.sp_offset)?),
            BP => (Kind::Fp, RBP, words(self.sp_offset)?),
            BP_INDIRECT => (Kind::Deref, RBP, words(self.sp_offset)?),
            SP_INDIRECT => (Kind::Program, RSP, programs.intern(word_on_top(self.sp_offset)).ok_or(())?),
            other => {
                let register = OTHERS.iter().find(|(number, _)| *number == other).ok_or(())?.1;
                (Kind::Register, register, words(self.sp_offset)?)
            }
        };
        let fp = match self.bp {
            UNDEFINED => Saved::Same,
            PREVIOUS_SP | BP => slot(self.bp_offset)?,
            _ => return Err(()),
        };
        let rule = Rule::new(kind, RuleSource::Orc, register, offset, ReturnAddress::AtCfa(-1), fp).ok_or(())?;
        let rule = if self.bp == BP { rule.with_slots_on_fp() } else { rule };
        // Of these registers the entries say nothing.
        let slots = SAVED.iter().fold(Slots::SAME, |slots, (register, _)| with_slot(slots, *register, Saved::Unknown));
        Ok(Some((rule, slots)))
    }
}

fn with_slot(slots: Slots, register: u8, saved: Saved) -> Slots {
    Arch::X86_64.machine().slot_of(register).map_or(slots, |at| slots.with(at, saved))
}

/// CFA = *(rsp) + `offset`
fn word_on_top(offset: i64) -> Vec<u8> {
    let mut program = Vec::new();
    for operation in
        [Operation::Register(RSP), Operation::Deref, Operation::Constant(offset), Operation::Add, Operation::End]
    {
        cx::encode(operation, &mut program);
    }
    program
}

/// From an address to the next one: the rule, and where its entry is.
struct Row {
    range: Range<u64>,
    rule: Option<(Rule, Slots)>,
    origin: Origin,
}

/// Adds what ORC tables say where nothing else does, and in the place of rows of `.debug_frame` that say otherwise.
pub(super) fn rules(input: &Input<'_>, compiler: &mut Compiler<'_>) {
    let Some(orc) = input.orc.as_ref().filter(|_| input.arch == Arch::X86_64) else { return };
    let rows = rows(input, orc, compiler);
    compiler.report.unwind_entries += rows.len();
    overrule(&rows, compiler);
    thunks(input, &rows, compiler);
    for row in &rows {
        let Some((rule, slots)) = row.rule else { continue };
        for part in compiler.claims.claim(row.range.clone()) {
            let rule = compiler.rules.number_of(rule, slots);
            compiler.pieces.push(Piece::new(part, rule, row.origin));
        }
    }
}

/// Adds what is known of thunks of indirect calls, which begin where ORC says that nobody called.
fn thunks(input: &Input<'_>, rows: &[Row], compiler: &mut Compiler<'_>) {
    let is_end = |row: &&Row| matches!(row.rule, Some((rule, _)) if rule.kind() == Some(Kind::End));
    for start in rows.iter().filter(is_end).map(|row| row.range.start) {
        let code = input.code_of(&(start..start.saturating_add(retpoline::MOST_BYTES))).unwrap_or_default();
        for (range, rule) in retpoline::rules(start, code).into_iter().flatten() {
            let rule = compiler.rules.number_of(rule, Slots::SAME);
            let origin = Origin::new(SourceKind::Instructions, start);
            let claimed = compiler.claims.claim(range);
            compiler.pieces.extend(claimed.into_iter().map(|part| Piece::new(part, rule, origin)));
        }
    }
}

/// By rising address, without empty ones.
fn rows(input: &Input<'_>, orc: &Orc<'_>, compiler: &mut Compiler<'_>) -> Vec<Row> {
    let (start, places) = orc.places;
    let distances = places.as_chunks::<4>().0.iter().map(|bytes| i64::from(i32::from_le_bytes(*bytes)));
    let entries = orc.entries.as_chunks::<ENTRY_BYTES>().0;
    let is_new = is_new(entries);
    let mut read: Vec<(u64, bool, usize)> = Vec::with_capacity(entries.len());
    let mut known: Vec<Option<Entry>> = Vec::with_capacity(entries.len());
    for (number, (distance, bytes)) in distances.zip(entries).enumerate() {
        let entry = Entry::read(bytes, is_new);
        let address = start.wrapping_add(4 * number as u64).wrapping_add_signed(distance);
        // Where a section of code ends, objtool puts an entry that says nothing; the next section's first one is at the same address.
        read.push((address, entry.is_none_or(|entry| entry.about != About::Nothing), number));
        known.push(entry);
    }
    read.sort_unstable();
    let end = input.text.iter().map(|range| range.end).max().unwrap_or_default();
    let ends = read.iter().skip(1).map(|(address, ..)| *address).chain([end]);
    let mut rows = Vec::new();
    for ((address, _, number), end) in read.iter().zip(ends).filter(|((address, ..), end)| address < end) {
        let entry = known.get(*number).copied().flatten();
        let rule = entry.ok_or(()).and_then(|entry| entry.rule(&mut compiler.programs));
        let range = *address..end;
        if rule.is_err() {
            compiler.report.note_unsupported(range.clone(), "ORC: an entry of an unknown form");
        }
        let unsupported = Some((Rule::bare(Kind::Unsupported, RuleSource::Orc), Slots::SAME));
        let origin = Origin::new(SourceKind::Orc, (*number * ENTRY_BYTES) as u64);
        rows.push(Row { range, rule: rule.unwrap_or(unsupported), origin });
    }
    changes_of_stack(input, &mut rows);
    rows
}

/// Entries of exceptions go over to the task's stack by `mov %rax, %rsp`. Up to there ORC has what the processor pushed on top of the stack, and does not know that what was
/// called before pushed all other registers too: what it says from the next instruction on is true of this one already, on either stack.
fn changes_of_stack(input: &Input<'_>, rows: &mut [Row]) {
    const CHANGE: [u8; 3] = [0x48, 0x89, 0xc4];
    let is_pushed = |row: &Row| row.rule.is_some_and(|(rule, _)| rule.kind() == Some(Kind::MachineFrame));
    for at in 1..rows.len() {
        let Some([before, row]) = rows.get_mut(at - 1..=at).and_then(|pair| pair.as_mut_array()) else { continue };
        let start = row.range.start.saturating_sub(CHANGE.len() as u64);
        let is_change = || input.code_of(&(start..row.range.start)) == Some(&CHANGE);
        let is_behind = before.range.end == row.range.start && before.range.start < start;
        if is_behind && is_pushed(before) && is_pushed(row) && is_change() {
            before.range.end = start;
            row.range.start = start;
        }
    }
}

/// Whether entries are those of Linux 6.4 and later: in these, none of kind 0 says where the CFA is, and before nearly all do.
fn is_new(entries: &[[u8; ENTRY_BYTES]]) -> bool {
    !entries.iter().any(|[.., low, high]| high & 7 == 0 && u16::from(low & 15) != UNDEFINED)
}

/// Puts rows in the place of those of `.debug_frame` that contradict them.
fn overrule(rows: &[Row], compiler: &mut Compiler<'_>) {
    let mut pieces: Vec<Piece> = Vec::with_capacity(compiler.pieces.len());
    for piece in core::mem::take(&mut compiler.pieces) {
        if piece.origin.kind() != Some(SourceKind::DebugFrame) {
            pieces.push(piece);
            continue;
        }
        let own = compiler.rules.of(piece.rule);
        let mut kept_from = piece.start();
        let first = rows.partition_point(|row| row.range.end <= piece.start());
        for row in rows.iter().skip(first).take_while(|row| row.range.start < piece.end()) {
            let Some((rule, slots)) = row.rule.filter(|(rule, _)| !says_the_same(*rule, own.0)) else { continue };
            let part = row.range.start.max(piece.start())..row.range.end.min(piece.end());
            if kept_from < part.start {
                pieces.push(Piece::new(kept_from..part.start, piece.rule, piece.origin));
            }
            kept_from = part.end;
            let rule = compiler.rules.number_of(rule, slots);
            pieces.push(Piece::new(part, rule, row.origin));
        }
        if kept_from < piece.end() {
            pieces.push(Piece::new(kept_from..piece.end(), piece.rule, piece.origin));
        }
    }
    compiler.pieces = pieces;
}

/// Whether an entry's rule and one of call frame information find the same caller.
fn says_the_same(orc: Rule, cfi: Rule) -> bool {
    let is_plain = matches!(orc.kind(), Some(Kind::Sp | Kind::Fp)) && !orc.slots_on_fp() && !cfi.slots_on_fp();
    let place = |rule: Rule| (rule.kind(), rule.offset(), rule.origin(), rule.return_address(), rule.frame_pointer());
    is_plain && place(orc) == place(cfi)
}

#[cfg(test)]
mod tests {
    use symseal_module::DebugId;

    use super::*;

    fn entry(sp: u16, sp_offset: i16, bp: u16, bp_offset: i16, kind: u16) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..2].copy_from_slice(&sp_offset.to_le_bytes());
        bytes[2..4].copy_from_slice(&bp_offset.to_le_bytes());
        bytes[4..].copy_from_slice(&(sp | bp << 4 | kind << 8).to_le_bytes());
        bytes
    }

    #[track_caller]
    fn check(bytes: [u8; ENTRY_BYTES], is_new: bool, expected: &str) {
        let rule = Entry::read(&bytes, is_new).ok_or(()).and_then(|entry| entry.rule(&mut Programs::default()));
        let text = match rule {
            Ok(Some((rule, _))) => alloc::format!("{}", rule.display(Arch::X86_64)),
            Ok(None) => "nothing".into(),
            Err(()) => "unknown".into(),
        };
        assert_eq!(text, expected);
    }

    #[test]
    fn at_the_change_of_the_stack_holds_what_holds_behind_it() {
        let debug_id = DebugId::from_build_id(&[7; 20]).expect("an identity");
        // call error_entry; mov %rax, %rsp
        let code = [0xe8, 0, 0, 0, 0, 0x48, 0x89, 0xc4, 0x90];
        let start = 0xffff_ffff_8100_0000;
        let input = Input { code: &[(start, &code)], ..Input::of(Arch::X86_64, &debug_id) };
        let row = |range: Range<u64>, bytes: [u8; ENTRY_BYTES]| {
            let rule = Entry::read(&bytes, true).and_then(|entry| entry.rule(&mut Programs::default()).ok()).flatten();
            Row { range, rule, origin: Origin::new(SourceKind::Orc, 0) }
        };
        let [call, registers, pushed] = [(2, 8), (3, 0), (4, 8)].map(|(kind, at)| entry(SP, at, UNDEFINED, 0, kind));
        for (before, after, changes) in
            [(pushed, registers, start + 5), (call, registers, start + 8), (pushed, call, start + 8)]
        {
            let mut rows = [row(start..start + 8, before), row(start + 8..start + 9, after)];
            changes_of_stack(&input, &mut rows);
            assert_eq!(rows.map(|row| row.range), [start..changes, changes..start + 9]);
        }
    }

    #[test]
    fn entries_of_both_forms_are_the_rules_that_the_kernel_follows() {
        // Kinds before Linux 6.4, and since.
        for (is_new, [call, registers, partly, end]) in [(false, [0, 1, 2, 4]), (true, [2, 3, 4, 1])] {
            check(entry(SP, 8, UNDEFINED, 0, call), is_new, "CFA = rsp+8; RA = [CFA-8]");
            check(entry(SP, 32, PREVIOUS_SP, -16, call), is_new, "CFA = rsp+32; RA = [CFA-8]; rbp = [CFA-16]");
            check(entry(BP, 16, PREVIOUS_SP, -16, call), is_new, "CFA = rbp+16; RA = [CFA-8]; rbp = [CFA-16]");
            check(entry(UNDEFINED, 0, UNDEFINED, 0, end), is_new, "no caller: the end of the stack");
            check(entry(UNDEFINED, 0, UNDEFINED, 0, 0), is_new, "nothing");
            check(entry(6, 0, UNDEFINED, 0, call), is_new, "CFA = r10+0; RA = [CFA-8]");
            check(entry(14, 0, UNDEFINED, 0, call), is_new, "unknown");
            check(entry(SP, 4, UNDEFINED, 0, call), is_new, "unknown");
            for kind in [registers, partly] {
                let rule = Entry::read(&entry(SP, 8, UNDEFINED, 0, kind), is_new).unwrap();
                let (rule, _) = rule.rule(&mut Programs::default()).unwrap().unwrap();
                let at = if kind == registers { 17 } else { 1 };
                assert_eq!((rule.kind(), rule.offset(), rule.register()), (Some(Kind::MachineFrame), at, RSP));
            }
        }
        check(entry(SP, 8, UNDEFINED, 0, 7), true, "unknown");
        assert!(!super::is_new(&[entry(SP, 8, UNDEFINED, 0, 0), entry(SP, 8, UNDEFINED, 0, 2)]));
        assert!(super::is_new(&[
            entry(UNDEFINED, 0, UNDEFINED, 0, 0),
            entry(SP, 8, UNDEFINED, 0, 2),
            entry(SP, 8, UNDEFINED, 0, 4)
        ]));
    }
}
