//! The known traps of call frame information: what a table cannot express, expressions, and damage.

use crate::cfi;
use crate::cfi::{AT_ENTRY, EhFrame, Process, Words, advance, at, cfa_offset, saved};
use crate::traps::{SP, end, registers};
use symseal_module::{Avma, Rva, StopReason, UnwindMethod};
use symseal_unwind::compile::{Input, compile};
use symseal_unwind::{Arch, Registers, Table};

#[test]
fn t6_a_rule_that_cannot_be_expressed_stops_the_walk_and_is_counted() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // CFA = *rsp / 2: DW_OP_div is none of ours. A frame pointer that would lead on must not be taken.
    section.fde(0x1000, 0x10, &[vec![0x0f, 5, 0x77, 0, 0x06, 0x32, 0x1b]]).fde(0x1020, 0x10, &[end()]);
    let compiled = section.compile();
    assert_eq!((compiled.report.unsupported_count, compiled.report.unsupported[0].range.clone()), (1, 0x1000..0x1010));
    assert_eq!(compiled.report.unsupported[0].reason, "expression with DW_OP_div");
    let registers = Registers { fp: SP + 0x20, ..registers(0x1004) };
    let memory = Words::default().with(&[(SP + 0x20, 0), (SP + 0x28, at(0x1024))]);
    assert_eq!(Process::new(&compiled.bytes).pcs(&registers, &memory), (vec![0x1004], StopReason::UnsupportedRule));
}

#[test]
fn t6_what_cannot_be_expressed_is_told_in_dwarfs_terms_and_counted_by_reason() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    for at in 0..30 {
        // DW_CFA_register: the stack pointer is in r8. DW_CFA_val_offset: it is CFA - 16.
        let rule = if at % 3 == 0 { vec![0x09, 7, 8] } else { vec![0x14, 7, 2] };
        section.fde(0x1000 + 0x10 * at, 0x10, &[rule]);
    }
    let report = section.compile().report;
    let reasons: Vec<(&str, usize)> =
        report.unsupported_reasons.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(reasons, [("stack pointer rule register(r8)", 10), ("stack pointer rule val_offset(-16)", 20)]);
    assert_eq!(report.unsupported_count, 30);
}

#[test]
fn t6_saved_registers_that_the_table_cannot_place_are_counted_by_reason() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // DW_CFA_register: rbx is in rcx. DW_CFA_expression: r12 is saved at *rsp. DW_CFA_offset_extended_sf: rbp is at CFA - 80,000.
    let far = [&[0x11, 6][..], &[0x90, 0xce, 0x00]].concat();
    section.fde(0x1000, 0x10, &[vec![0x09, 3, 2], vec![0x10, 12, 3, 0x77, 0, 0x06], far]);
    // DW_CFA_undefined is no loss of ours, and rax is nobody's.
    section.fde(0x1010, 0x10, &[vec![0x07, 13], vec![0x09, 0, 2], vec![0x09, 3, 2]]);
    let report = section.compile().report;
    let reasons: Vec<(&str, usize)> =
        report.unknown_register_reasons.iter().map(|(reason, count)| (reason.as_str(), *count)).collect();
    assert_eq!(
        reasons,
        [("r12 rule expression", 1), ("rbp rule offset, too far from the CFA", 1), ("rbx rule register(rcx)", 2)]
    );
    assert_eq!((report.unknown_registers, report.unsupported_count), (4, 0));
}

#[test]
fn t6_a_register_behind_an_expression_without_an_offset_before_is_a_gap() {
    // CFA = *(rsp + 24) + 8 from the beginning.
    let mut section = EhFrame::new("zR", &[0x0f, 5, 0x77, 24, 0x06, 0x23, 8, 0x90, 1]);
    section.fde(0x1000, 0x10, &[advance(4), vec![0x0d, 7]]);
    // An offset alone is none that ends the expression, and one that a register can be given to.
    section.fde(0x1010, 0x10, &[advance(4), cfa_offset(16), advance(4), vec![0x0d, 7]]);
    let compiled = section.compile();
    let report = &compiled.report;
    assert_eq!((report.unsupported_count, report.unsupported[0].range.clone()), (1, 0x1004..0x1010));
    assert!(report.unsupported[0].reason.starts_with("instructions: "), "{report:?}");
    // States without end are not kept.
    let mut section = EhFrame::new("zR", AT_ENTRY);
    let remember = vec![0x0a; 100_000];
    section.fde(0x1000, 0x10, &[vec![0x0f, 5, 0x77, 24, 0x06, 0x23, 8], vec![0x0d, 7], remember]);
    assert_eq!(section.compile().report.unsupported_count, 1);
}

#[test]
fn t6_expressions_within_bounds_become_programs() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // CFA = *(rsp + 24) + 8, as in the assembler code of OpenSSL.
    section.fde(0x1000, 0x10, &[vec![0x0f, 5, 0x77, 24, 0x06, 0x23, 8]]).fde(0x1020, 0x10, &[end()]);
    let compiled = section.compile();
    assert_eq!((compiled.report.unsupported_count, compiled.report.programs), (0, 1));
    let memory = Words::default().with(&[(SP + 24, SP + 0x100), (SP + 0x100, at(0x1024))]);
    let (frames, walk) = Process::new(&compiled.bytes).walk(&registers(0x1004), &memory);
    assert_eq!((walk.frames, walk.stop, frames[0].cfa), (2, StopReason::EndOfStack, Avma(SP + 0x108)));
}

/// As in OpenSSL's Montgomery multiplication, where the CFA is the word at rsp + 8 + r9*8, + 8; and with factors that are no power of two.
#[test]
fn t6_a_product_with_a_constant_becomes_shifts() {
    let check = |operations: &[u8], expected: i64| {
        let mut section = EhFrame::new("zR", AT_ENTRY);
        // DW_OP_breg7 8, the operations, DW_OP_mul, DW_OP_plus.
        let expression = [&[0x77, 8][..], operations, &[0x1e, 0x22]].concat();
        let cfa = [&[0x0f, expression.len() as u8][..], &expression].concat();
        section.fde(0x1000, 0x10, &[cfa]).fde(0x1020, 0x10, &[end()]);
        let compiled = section.compile();
        assert_eq!(compiled.report.unsupported_count, 0, "{operations:x?}: {:?}", compiled.report.unsupported_reasons);
        let mut registers = registers(0x1004);
        registers.general[9] = Some(12);
        let cfa = SP.wrapping_add_signed(8 + expected);
        let memory = Words::default().with(&[(cfa - 8, at(0x1024)), (SP + 0x18, 100)]);
        let (frames, walk) = Process::new(&compiled.bytes).walk(&registers, &memory);
        assert_eq!((frames[0].cfa, walk.stop), (Avma(cfa), StopReason::EndOfStack), "{operations:x?}");
    };
    check(&[0x79, 0, 0x38], 12 * 8);
    // The constant stands first; the value is a sum, or a word of memory.
    check(&[0x38, 0x79, 4], 8 * 16);
    check(&[0x79, 0, 0x79, 4, 0x22, 0x38], 28 * 8);
    check(&[0x77, 0x18, 0x06, 0x40], 100 * 16);
    // 24 by DW_OP_lit24, -8 by DW_OP_const1s, and nothing.
    check(&[0x79, 0, 0x48], 12 * 24);
    check(&[0x79, 0x70, 0x09, 0xf8], (12 - 16) * -8);
    check(&[0x79, 0, 0x30], 0);
}

#[test]
fn t6_a_product_of_two_values_that_change_cannot_be_expressed() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // CFA = r9 * rsp; a product of nothing; one with a factor of 63 bits that are set.
    section.fde(0x1000, 0x10, &[vec![0x0f, 5, 0x79, 0, 0x77, 0, 0x1e]]);
    section.fde(0x1010, 0x10, &[vec![0x0f, 2, 0x38, 0x1e]]);
    section.fde(
        0x1020,
        0x10,
        &[[&[0x0f, 12, 0x79, 0, 0x0e][..], &u64::MAX.to_le_bytes()[..7], &[0x7f, 0x1e]].concat()],
    );
    let reasons = section.compile().report.unsupported_reasons;
    let expected = [("expression that is too long", 1), ("expression with DW_OP_mul of two values", 2)];
    assert_eq!(reasons, expected.map(|(reason, count)| (reason.to_owned(), count)).into());
}

#[test]
fn t6_states_may_be_remembered_deeper_than_gimli_does_by_itself() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    let mut instructions = vec![];
    for depth in 0..12 {
        instructions.extend([vec![0x0a], advance(1), cfa_offset(16 + 8 * depth)]);
    }
    instructions.extend(std::iter::repeat_n(vec![0x0b], 12));
    section.fde(0x1000, 0x20, &instructions);
    let report = section.compile().report;
    assert_eq!((report.unsupported_count, report.rules), (0, 13));
}

#[test]
fn t6_damage_hides_only_what_is_damaged() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section
        .fde(0, 0x40, &[cfa_offset(64)]) // left behind by --gc-sections
        .fde(0x1000, 0x20, &[cfa_offset(16)])
        .terminator()
        .fde(0x1010, 0x30, &[cfa_offset(24)]) // overlaps the one before
        .fde(0x1100, 0x10, &[vec![0x0d, 3, 0x3f]]); // an unknown instruction after the first row's beginning
    let compiled = section.compile();
    let report = &compiled.report;
    assert_eq!(
        (report.fdes, report.fdes_outside_text, report.fdes_overlapping, report.terminators_in_the_middle),
        (4, 1, 1, 1)
    );
    assert_eq!(report.unsupported_count, 1);
    let table = Table::open(&compiled.bytes).expect("a table");
    let rule = |rva| table.rule(symseal_module::Rva(rva)).expect("code").display(Arch::X86_64).to_string();
    assert!(rule(0x101f).starts_with("CFA = rsp+16") && rule(0x1020).starts_with("CFA = rsp+24"));
    assert_eq!(rule(0x1040), "no information");
    assert_eq!(rule(0x1100), "information of an unsupported form");
}

#[test]
fn t6_debug_frame_fills_what_eh_frame_leaves_open() {
    let mut eh_frame = EhFrame::new("zR", AT_ENTRY);
    eh_frame.fde(0x1000, 0x10, &[]).fde(0x1020, 0x10, &[end()]);
    // Version 4, no augmentation, address size 8, no segments.
    let mut debug_frame = vec![20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, 8, 0, 1, 0x78, 16];
    debug_frame.extend(AT_ENTRY);
    debug_frame.extend([0, 0, 0, 0]);
    debug_frame.extend([24, 0, 0, 0, 0, 0, 0, 0]);
    debug_frame.extend(0x1008u64.to_le_bytes());
    debug_frame.extend(0x10u64.to_le_bytes());
    debug_frame.extend([0x0e, 16, 0, 0]);
    let id = cfi::debug_id();
    let input = Input {
        eh_frame: Some((0x9000, &eh_frame.bytes)),
        debug_frame: Some((0, &debug_frame)),
        ..cfi::empty_input(&id)
    };
    let compiled = compile(&input).expect("a table");
    assert_eq!(
        (compiled.report.debug_frame_fdes, compiled.report.fdes_overlapping, compiled.report.damaged_entries),
        (1, 1, 0)
    );
    let process = Process::new(&compiled.bytes);
    let memory = Words::default().with(&[(SP + 8, at(0x1024)), (SP, at(0x1024))]);
    let (frames, walk) = process.walk(&registers(0x1012), &memory);
    assert_eq!((walk.stop, frames[1].method), (StopReason::EndOfStack, UnwindMethod::CfiDebugFrame));
    let source = process.modules.source(&frames[0]).expect("a record");
    assert_eq!((source.kind.code(), source.offset), ("debug-frame", 24));
    let (frames, _) = process.walk(&registers(0x1009), &memory);
    assert_eq!(frames[1].method, UnwindMethod::CfiEhFrame);
}

/// Linkers leave the entries of discarded functions at address 0, as `--gc-sections` of GNU ld does; some of them with a length over all of the code.
#[test]
fn t6_entries_of_discarded_functions_say_nothing_of_those_that_stayed() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0, 0x40, &[cfa_offset(64)]).fde(0x1000, 0x20, &[cfa_offset(16)]).fde(0, 0x800, &[cfa_offset(96)]);
    let compiled = section.compile();
    assert_eq!((compiled.report.fdes, compiled.report.fdes_outside_text), (3, 2));
    assert_eq!((rule_at(&compiled.bytes, 0x1008), compiled.report.unsupported_count), ("CFA = rsp+16".into(), 0));
    assert_eq!(rule_at(&compiled.bytes, 0x1020), "no information");
}

#[test]
fn t6_of_overlapping_entries_the_first_counts_and_the_others_where_it_says_nothing() {
    // In either order of the section: one within another, one over its end, two of one beginning.
    let entries = [(0x1000, 0x20, 16), (0x1008, 0x8, 24), (0x1010, 0x30, 32), (0x1060, 0x10, 40), (0x1060, 0x20, 48)];
    let compiled = |entries: &[(u64, u64, u8)]| {
        let mut section = EhFrame::new("zR", AT_ENTRY);
        for (start, length, offset) in entries {
            section.fde(*start, *length, &[cfa_offset(*offset)]);
        }
        section.compile()
    };
    let forward = compiled(&entries);
    let backward = compiled(&entries.into_iter().rev().collect::<Vec<_>>());
    for compiled in [&forward, &backward] {
        assert_eq!((compiled.report.fdes, compiled.report.fdes_overlapping), (5, 3), "{:?}", compiled.report);
        let rules = [0x1000, 0x100c, 0x101f, 0x1020, 0x103f, 0x1060, 0x107f].map(|at| rule_at(&compiled.bytes, at));
        assert_eq!(rules, [16, 16, 16, 32, 32, 48, 48].map(|offset| format!("CFA = rsp+{offset}")));
        assert_eq!(rule_at(&compiled.bytes, 0x1040), "no information");
    }
}

#[test]
fn t6_a_terminator_in_the_middle_does_not_end_the_section() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0x1000, 0x10, &[cfa_offset(16)]).terminator().terminator().fde(0x1010, 0x10, &[cfa_offset(24)]);
    section.cie("zR", AT_ENTRY).fde(0x1020, 0x10, &[cfa_offset(32)]).terminator();
    let compiled = section.compile();
    assert_eq!((compiled.report.fdes, compiled.report.terminators_in_the_middle), (3, 2));
    assert_eq!(compiled.report.damaged_entries, 0);
    let rules = [0x1008, 0x1018, 0x1028].map(|at| rule_at(&compiled.bytes, at));
    assert_eq!(rules, [16, 24, 32].map(|offset| format!("CFA = rsp+{offset}")));
}

/// Where the two sections say different things, what holds at run time is `.eh_frame`'s; the record says which of them it was.
#[test]
fn t6_where_the_sections_disagree_eh_frame_holds_and_the_record_tells() {
    let mut eh_frame = EhFrame::new("zR", AT_ENTRY);
    eh_frame.fde(0x1000, 0x10, &[cfa_offset(16)]);
    let mut debug_frame = vec![20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 4, 0, 8, 0, 1, 0x78, 16];
    debug_frame.extend([AT_ENTRY, &[0; 4], &[24, 0, 0, 0, 0, 0, 0, 0]].concat());
    debug_frame.extend([0x1000_u64.to_le_bytes(), 0x20_u64.to_le_bytes()].concat());
    debug_frame.extend([0x0e, 48, 0, 0]);
    let id = cfi::debug_id();
    let input = Input {
        eh_frame: Some((0x9000, eh_frame.bytes())),
        debug_frame: Some((0, &debug_frame)),
        ..cfi::empty_input(&id)
    };
    let compiled = compile(&input).expect("a table");
    let table = Table::open(&compiled.bytes).expect("a table");
    let told = |rva| (rule_at(&compiled.bytes, rva), table.source(symseal_module::Rva(rva)).map(|it| it.kind.code()));
    assert_eq!(told(0x1008), ("CFA = rsp+16".to_owned(), Some("eh-frame")));
    assert_eq!(told(0x1018), ("CFA = rsp+48".to_owned(), Some("debug-frame")));
}

/// The rule at an address, up to its CFA.
fn rule_at(table: &[u8], rva: u64) -> String {
    let rule = Table::open(table).expect("a table").rule(symseal_module::Rva(rva)).expect("code");
    let told = rule.display(Arch::X86_64).to_string();
    told.split(';').next().unwrap_or_default().to_owned()
}

/// As GCC writes it for macOS, where a file need not have compact unwind information beside it.
#[test]
fn t5_where_no_entry_takes_its_frame_down_the_instructions_say_where_that_is_done() {
    // push rbp; mov rbp, rsp; push rbx; nop; pop rbx; pop rbp; ret
    let code = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x90, 0x5b, 0x5d, 0xc3];
    let made = [advance(1), cfa_offset(16), saved(6, 2), advance(3), vec![0x0d, 6], advance(1), saved(3, 3)];
    let rules = |others: &[Vec<u8>]| {
        let mut section = EhFrame::new("zR", AT_ENTRY);
        section.fde(0x1000, 9, &made);
        for at in 1..4 {
            section.fde(0x1000 + 0x20 * at, 9, others);
        }
        let compiled = section.compile_with(&[(0x1000, &code)]);
        let table = Table::open(&compiled.bytes).expect("our own table");
        table.verify().expect("our own table");
        let rule = |at: u64| table.rule(Rva(at)).map(|rule| rule.display(Arch::X86_64).to_string()).expect("a rule");
        [0x1000, 0x1001, 0x1004, 0x1006, 0x1007, 0x1008].map(rule)
    };
    let (entry, pushed, framed) = (
        "CFA = rsp+8; RA = [CFA-8]",
        "CFA = rsp+16; RA = [CFA-8]; rbp = [CFA-16]",
        "CFA = rbp+16; RA = [CFA-8]; rbp = [CFA-16]",
    );
    assert_eq!(rules(&made), [entry, pushed, framed, framed, framed, entry]);
    // Where other entries do, one that does not is of a function that ends otherwise.
    let whole = [&made[..], &[advance(3), vec![0x0c, 7, 8]]].concat();
    assert_eq!(rules(&whole), [entry, pushed, framed, framed, framed, framed]);
}
