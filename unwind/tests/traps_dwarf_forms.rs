//! The known traps of call frame information: the forms in which its entries and its header come.

use crate::cfi::{self, AT_ENTRY, EhFrame, Process, TEXT, Words, advance, at, cfa_offset, saved};
use crate::traps::{SP, end, registers};
use symseal_module::{Rva, StopReason, Svma};
use symseal_unwind::compile::{Compiled, Input, Report, compile};
use symseal_unwind::{Arch, Registers, Table};

/// Where these tests say that the section lies.
const SECTION: u64 = 0x9000;

/// An entry with the length that belongs before it, padded to eight bytes.
fn entry(mut body: Vec<u8>) -> Vec<u8> {
    body.resize((body.len() + 4).next_multiple_of(8) - 4, 0);
    [(body.len() as u32).to_le_bytes().to_vec(), body].concat()
}

/// The same in the 64-bit form.
fn long_entry(mut body: Vec<u8>) -> Vec<u8> {
    body.resize(body.len().next_multiple_of(8), 0);
    [vec![0xff; 4], (body.len() as u64).to_le_bytes().to_vec(), body].concat()
}

/// A common entry with these letters and the data that belongs to them.
fn common(letters: &str, data: &[u8]) -> Vec<u8> {
    let head = [&[0, 0, 0, 0, 1], letters.as_bytes(), &[0, 1, 0x78, 16]].concat();
    let length = if letters.starts_with('z') { vec![data.len() as u8] } else { Vec::new() };
    entry([head, length, data.to_vec(), AT_ENTRY.to_vec()].concat())
}

/// An entry of `.eh_frame` at `offset` whose common entry is the first, for 16 bytes of code at `start`.
fn described(offset: usize, start: u64, data: &[u8], instructions: &[u8]) -> Vec<u8> {
    let mut body = ((offset + 4) as u32).to_le_bytes().to_vec();
    body.extend(start.to_le_bytes());
    body.extend(16_u64.to_le_bytes());
    body.push(data.len() as u8);
    body.extend(data);
    body.extend(instructions);
    entry(body)
}

fn compiled(eh_frame: &[u8]) -> Compiled {
    let id = cfi::debug_id();
    compile(&Input { eh_frame: Some((SECTION, eh_frame)), ..cfi::empty_input(&id) }).expect("a table")
}

/// The rule at an address, in words.
#[track_caller]
fn rule(compiled: &Compiled, rva: u64) -> String {
    let table = Table::open(&compiled.bytes).expect("a table");
    table.rule(Rva(rva)).expect("code").display(Arch::X86_64).to_string()
}

fn problems(report: &Report) -> (usize, usize) {
    (report.damaged_entries, report.unsupported_count)
}

#[test]
fn t6_a_personality_behind_a_pointer_and_a_language_table_are_stepped_over() {
    // DW_EH_PE_indirect | pcrel | sdata4 for the personality, pcrel | sdata4 for the language's table, absolute addresses.
    let mut section = common("zPLR", &[0x9b, 0x11, 0x22, 0x33, 0x44, 0x1b, 0x04]);
    let offset = section.len();
    section.extend(described(offset, 0x1000, &[1, 2, 3, 4], &cfa_offset(24)));
    let compiled = compiled(&section);
    assert_eq!((compiled.report.fdes, problems(&compiled.report)), (1, (0, 0)));
    assert!(rule(&compiled, 0x1008).starts_with("CFA = rsp+24"), "{}", rule(&compiled, 0x1008));
}

/// Letters that do not begin with `z` have data whose length nobody tells: `eh` of GCC 2, `armcc+` of an old compiler of ARM. What is behind them may be
/// anything, so that the entries are counted and the others are read.
#[test]
fn t6_letters_of_unknown_data_hide_their_own_entries_and_no_other() {
    for letters in ["eh", "armcc+"] {
        let mut section = common(letters, &[0; 8]);
        let offset = section.len();
        section.extend(described(offset, 0x1000, &[], &cfa_offset(24)));
        let second = section.len();
        section.extend(common("zR", &[0x04]));
        let offset = section.len();
        section.extend(described(offset - second, 0x1020, &[], &cfa_offset(40)));
        let compiled = compiled(&section);
        assert_eq!((compiled.report.fdes, problems(&compiled.report)), (1, (1, 0)), "{letters}");
        assert_eq!(rule(&compiled, 0x1008), "no information", "{letters}");
        assert!(rule(&compiled, 0x1028).starts_with("CFA = rsp+40"), "{letters}");
    }
}

#[test]
fn t6_entries_of_the_64_bit_form_are_read_in_both_sections() {
    // Of `.eh_frame` the identifier and the way to the common entry have four bytes in either form.
    let mut eh_frame = long_entry([&[0, 0, 0, 0, 1][..], b"zR", &[0, 1, 0x78, 16, 1, 0x04], AT_ENTRY].concat());
    let mut body = ((eh_frame.len() + 12) as u32).to_le_bytes().to_vec();
    body.extend([0x1000_u64.to_le_bytes(), 16_u64.to_le_bytes()].concat());
    body.push(0);
    body.extend(cfa_offset(24));
    eh_frame.extend(long_entry(body));
    // Of `.debug_frame` they have eight; version 4 tells the sizes of addresses and segments.
    let mut debug_frame = long_entry([&[0xff; 8][..], &[4, 0, 8, 0, 1, 0x78, 16], AT_ENTRY].concat());
    let mut body = [0_u64.to_le_bytes(), 0x1010_u64.to_le_bytes(), 16_u64.to_le_bytes()].concat();
    body.extend(cfa_offset(40));
    debug_frame.extend(long_entry(body));
    let id = cfi::debug_id();
    let input =
        Input { eh_frame: Some((SECTION, &eh_frame)), debug_frame: Some((0, &debug_frame)), ..cfi::empty_input(&id) };
    let compiled = compile(&input).expect("a table");
    assert_eq!((compiled.report.fdes, problems(&compiled.report)), (2, (0, 0)));
    assert!(rule(&compiled, 0x1008).starts_with("CFA = rsp+24") && rule(&compiled, 0x1018).starts_with("CFA = rsp+40"));
}

/// A header: version 1, absolute pointer of 8 bytes, count of 4, table in `encoding`, of (code, entry).
fn header(encoding: u8, rows: &[(u64, u64)]) -> Vec<u8> {
    let mut header = vec![1, 0x04, 0x03, encoding];
    header.extend(SECTION.to_le_bytes());
    header.extend((rows.len() as u32).to_le_bytes());
    rows.iter().for_each(|(code, entry)| header.extend([code.to_le_bytes(), entry.to_le_bytes()].concat()));
    header
}

#[test]
fn t6_a_header_is_needed_for_damage_alone_whatever_it_says() {
    let mut sound = EhFrame::new("zR", AT_ENTRY);
    sound.fde(0x1000, 16, &[cfa_offset(16)]).fde(0x1010, 16, &[cfa_offset(24)]);
    let id = cfi::debug_id();
    let with = |bytes: &[u8], header: Option<&[u8]>| {
        let header = header.map(|header| (0x8000, header));
        let eh_frame_hdr = header.map(|(address, bytes): (u64, &[u8])| (address, bytes));
        compile(&Input { eh_frame: Some((SECTION, bytes)), eh_frame_hdr, ..cfi::empty_input(&id) }).expect("a table")
    };
    let expected = with(&sound.bytes, None);
    // Out of order, to the wrong entries, empty, cut, of an encoding that there is not.
    let wrong = [
        header(0x04, &[(0x1010, SECTION + 24), (0x1000, SECTION + 24)]),
        header(0x04, &[]),
        header(0x04, &[(0x1000, SECTION)])[..20].to_vec(),
        header(0x0f, &[(0x1000, SECTION + 24)]),
        vec![2, 0xff],
    ];
    for header in &wrong {
        let found = with(&sound.bytes, Some(header));
        assert_eq!((rule(&found, 0x1008), rule(&found, 0x1018)), (rule(&expected, 0x1008), rule(&expected, 0x1018)));
        assert_eq!(problems(&found.report), (0, 0));
    }
    // The length of the second entry is damaged: what is behind it is found by the header's table alone, here of signed eight bytes.
    let mut section = sound.bytes.clone();
    let behind = section.len();
    section.extend(described(behind, 0x1020, &[], &cfa_offset(40)));
    let second = 4 + u32::from_le_bytes(section[..4].try_into().unwrap()) as usize;
    let second = second + 4 + u32::from_le_bytes(section[second..second + 4].try_into().unwrap()) as usize;
    section[second..second + 4].copy_from_slice(&0x7fff_ffff_u32.to_le_bytes());
    let alone = with(&section, None);
    assert_eq!((alone.report.fdes, alone.report.damaged_entries), (1, 1));
    let led = with(&section, Some(&header(0x0c, &[(0x1000, SECTION + 24), (0x1020, SECTION + behind as u64)])));
    assert!(rule(&led, 0x1008).starts_with("CFA = rsp+16") && rule(&led, 0x1028).starts_with("CFA = rsp+40"));
    assert_eq!(rule(&led, 0x1018), "no information");
}

#[test]
fn t6_a_register_that_is_restored_without_an_initial_rule_is_unchanged() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // rbp is saved at CFA - 16, then DW_CFA_restore takes it back to what the common entry says of it: nothing.
    section.fde(0x1000, 0x20, &[cfa_offset(16), saved(6, 2), advance(8), vec![0xc6], cfa_offset(8)]);
    section.fde(0x1020, 0x10, &[end()]);
    let compiled = section.compile();
    assert_eq!(compiled.report.unsupported_count, 0);
    let process = Process::new(&compiled.bytes);
    let memory = Words::default().with(&[(SP, 0x1111), (SP + 8, at(0x1024))]);
    let (frames, _) = process.walk(&Registers { fp: 0x2222, ..registers(0x1004) }, &memory);
    assert_eq!(frames[1].fp, 0x1111);
    let memory = Words::default().with(&[(SP, at(0x1024))]);
    let (frames, walk) = process.walk(&Registers { fp: 0x2222, ..registers(0x1010) }, &memory);
    assert_eq!((frames[1].fp, walk.stop), (0x2222, StopReason::EndOfStack));
}

#[test]
fn t6_a_value_that_an_expression_gives_is_no_place_and_the_cfa_is_no_operand() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    // DW_CFA_val_expression: rbx is rsp + 8 itself, and not what lies there.
    section.fde(0x1000, 0x10, &[vec![0x16, 3, 2, 0x77, 8]]);
    // The CFA is DW_OP_call_frame_cfa + 8: the CFA by itself.
    section.fde(0x1010, 0x10, &[vec![0x0f, 3, 0x9c, 0x23, 8]]);
    let report = section.compile().report;
    let told: Vec<&str> = report.unknown_register_reasons.keys().map(String::as_str).collect();
    assert_eq!(told, ["rbx rule val_expression"]);
    let told: Vec<&str> = report.unsupported_reasons.keys().map(String::as_str).collect();
    assert!(told.len() == 1 && told[0].contains("DW_OP_call_frame_cfa"), "{told:?}");
}

#[test]
fn t6_a_return_address_without_a_rule_is_nowhere_on_this_processor() {
    // CFA = rsp + 8, and no word of the return address; on processors with a link register it would be there.
    let mut section = EhFrame::new("zR", &[0x0c, 7, 8]);
    section.fde(0x1000, 0x10, &[]);
    let process = section.compile();
    let memory = Words::default().with(&[(SP, at(0x1004))]);
    let (pcs, stop) = Process::new(&process.bytes).pcs(&registers(0x1004), &memory);
    assert_eq!(pcs, [0x1004]);
    assert!(matches!(stop, StopReason::EndOfStack | StopReason::UnsupportedRule), "{stop}");
}

/// The bytes of a snapshot are whoever's they are: no address, length or register leads the walk out of them, or round without an end.
#[test]
fn t17_a_snapshot_of_anything_is_read_within_its_bounds() {
    let mut section = EhFrame::new("zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &[]).fde(0x1020, 0x20, &[cfa_offset(0x7f), saved(6, 2)]);
    // CFA = *rsp: whatever stands there.
    section.fde(0x1040, 0x20, &[vec![0x0f, 3, 0x77, 0, 0x06]]);
    let compiled = section.compile();
    let process = Process::new(&compiled.bytes);
    let words = [
        0,
        1,
        7,
        SP,
        SP + 8,
        SP - 8,
        u64::MAX,
        u64::MAX - 7,
        1 << 63,
        at(0x1004),
        at(0x1024),
        at(0x1044),
        at(TEXT.end),
    ];
    for first in words {
        for second in words {
            for pc in [0x1004, 0x1024, 0x1044] {
                for sp in [SP, u64::MAX - 7, u64::MAX - 0x7f, 0, 3] {
                    let memory: Vec<(u64, u64)> =
                        (0..32).map(|at| (sp.wrapping_add(8 * at), if at % 2 == 0 { first } else { second })).collect();
                    let registers = Registers { sp, fp: second, ..registers(pc) };
                    let (frames, walk) = process.walk(&registers, &Words::default().with(&memory));
                    assert!(!frames.is_empty() && walk.frames <= 64);
                }
            }
        }
    }
    assert_eq!(Table::open(&compiled.bytes).expect("a table").image_base(), Svma(0));
}
