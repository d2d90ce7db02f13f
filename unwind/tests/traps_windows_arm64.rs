//! What is easily got wrong about the exception directory of Windows modules of arm64, each with its own test.

use crate::cfi;
use symseal_module::{Avma, Rva, Svma, UnwindMethod};
use symseal_unwind::compile::{Compiled, Input, compile};
use symseal_unwind::{Arch, Cache, Frame, Module, Modules, Registers, Saved, StackBytes, Table, unwind};

const BASE: u64 = 0x1_4000_0000;
const CODE: u64 = BASE + 0x1000;
const XDATA: u64 = BASE + 0x3000;
const PDATA: u64 = BASE + 0x5000;
/// Instructions of code; what they are does not matter.
const LENGTH: u32 = 16;

/// A table of one entry at the beginning of the code.
pub(crate) fn made(data: u32, xdata: &[u8]) -> Compiled {
    let code = [0x1f, 0x20, 0x03, 0xd5].repeat(LENGTH as usize);
    let pdata = [0x1000, data].map(u32::to_le_bytes).concat();
    let text: Vec<_> = std::iter::once(CODE..CODE + code.len() as u64).collect();
    let id = cfi::debug_id();
    compile(&Input {
        arch: Arch::Aarch64,
        image_base: Svma(BASE),
        text: &text,
        pdata: Some((PDATA, &pdata)),
        loaded: &[(CODE, &code), (XDATA, xdata), (PDATA, &pdata)],
        code: &[(CODE, &code)],
        ..cfi::empty_input(&id)
    })
    .expect("a table")
}

/// A record of a function of all the code: the fields of its header, scopes and codes.
fn record(is_single: bool, epilogs: u32, scopes: &[(u32, u32)], codes: &[u8]) -> Compiled {
    let mut codes = codes.to_vec();
    codes.resize(codes.len().next_multiple_of(4), 0xe3);
    let mut bytes = Vec::new();
    let header = LENGTH | u32::from(is_single) << 21 | epilogs << 22 | (codes.len() as u32 / 4) << 27;
    bytes.extend(header.to_le_bytes());
    for (start, index) in scopes {
        bytes.extend((start | index << 22).to_le_bytes());
    }
    bytes.extend(codes);
    made(0x3000, &bytes)
}

/// The rules by number of the instruction.
#[track_caller]
fn check(compiled: &Compiled, expected: &[(u64, &str)]) {
    let table = Table::open(&compiled.bytes).expect("our own table");
    table.verify().expect("our own table");
    let rows: Vec<(u64, String)> =
        table.rows().map(|(rva, rule, _)| ((rva.0 - 0x1000) / 4, rule.display(Arch::Aarch64).to_string())).collect();
    let mut found: Vec<(u64, &str)> = rows.iter().map(|(at, rule)| (*at, rule.as_str())).collect();
    // Rules that differ in their slots alone.
    found.dedup_by_key(|(_, rule)| *rule);
    assert_eq!(found, expected, "{:?}", compiled.report);
}

#[track_caller]
fn check_refused(compiled: &Compiled, reason: &str) {
    let report = &compiled.report;
    assert_eq!((report.unwind_entries, report.unsupported_count), (1, 1), "{report:?}");
    assert_eq!(report.unsupported_reasons.get(reason), Some(&1), "{report:?}");
}

const LEAF: &str = "CFA = sp+0; RA = x30";

#[test]
fn t5_each_code_is_an_instruction_of_the_prolog_and_of_the_epilog_that_begins_at_its_index() {
    // stp x29, lr, [sp, #-32]!; stp x19, x20, [sp, #16]; mov x29, sp; sub sp, sp, #64. One epilog leaves the last out, one has it all.
    let codes = [0x04, 0xe1, 0xc8, 0x02, 0x83, 0xe4];
    let saved = "CFA = sp+32; RA = [CFA-24]; x29 = [CFA-32]";
    let framed = "CFA = x29+32; RA = [CFA-24]; x29 = [CFA-32]";
    let compiled = record(false, 2, &[(6, 1), (11, 0)], &codes);
    check(
        &compiled,
        &[(0, LEAF), (1, saved), (3, framed), (7, saved), (9, LEAF), (10, framed), (13, saved), (15, LEAF)],
    );
    let table = Table::open(&compiled.bytes).expect("our own table");
    let slot = |at: u64| table.slots(Rva(0x1000 + 4 * at)).and_then(|slots| slots.of(Arch::Aarch64, 20));
    let saved_at = [slot(1), slot(2), slot(5), slot(7), slot(8)];
    assert_eq!(saved_at, [Saved::Same, Saved::At(-1), Saved::At(-1), Saved::At(-1), Saved::Same].map(Some));
}

#[test]
fn t5_a_single_epilog_is_at_the_end_and_its_index_stands_where_the_count_would() {
    // sub sp, sp, #16; str lr, [sp, #8], and for the epilog the same.
    // save_reg x30 has the number 11.
    let codes = [0xd0 | 2, 0xc0 | 1, 0x01, 0xe4];
    let inside = "CFA = sp+16; RA = [CFA-8]";
    check(
        &record(true, 0, &[], &codes),
        &[(0, LEAF), (1, "CFA = sp+16; RA = x30"), (2, inside), (14, "CFA = sp+16; RA = x30"), (15, LEAF)],
    );
    // From the second code on: the register is not loaded.
    check(
        &record(true, 2, &[], &codes),
        &[(0, LEAF), (1, "CFA = sp+16; RA = x30"), (2, inside), (14, "CFA = sp+16; RA = x30"), (15, LEAF)],
    );
}

#[test]
fn t5_counts_that_do_not_fit_the_header_stand_in_a_second_word() {
    let mut bytes = LENGTH.to_le_bytes().to_vec();
    bytes.extend((1u32 | 1 << 16).to_le_bytes());
    bytes.extend(14u32.to_le_bytes());
    bytes.extend([0x01, 0xe4, 0xe3, 0xe3]);
    check(&made(0x3000, &bytes), &[(0, LEAF), (1, "CFA = sp+16; RA = x30"), (15, LEAF)]);
}

#[test]
fn t5_what_follows_end_c_was_done_elsewhere() {
    // The part begins with the whole frame of its function; one that goes on allocates more.
    let framed = "CFA = sp+32; RA = [CFA-24]; x29 = [CFA-32]";
    check(&record(false, 0, &[], &[0xe5, 0x83, 0xe4]), &[(0, framed)]);
    let more = "CFA = sp+48; RA = [CFA-24]; x29 = [CFA-32]";
    check(&record(false, 0, &[], &[0x01, 0xe5, 0x83, 0xe4]), &[(0, framed), (1, more)]);
}

/// As MSVC makes it where a part of a function saves registers that the rest leaves alone: between the two it moves the stack pointer, and no code tells that.
#[test]
fn t5_what_a_part_saves_behind_a_frame_pointer_is_not_counted_from_it() {
    let slots_of = |codes: &[u8]| {
        let compiled = record(false, 0, &[], codes);
        assert_eq!(compiled.report.unsupported_count, 0, "{codes:x?}: {:?}", compiled.report);
        let table = Table::open(&compiled.bytes).expect("our own table");
        let slots = table.slots(Rva(0x1000 + 8)).expect("slots");
        let saved = [19, 20, 21].map(|register| slots.of(Arch::Aarch64, register).expect("a slot"));
        (saved, compiled)
    };
    // stp x29, lr, [sp, #-80]!; mov x29, sp; sub sp, sp, #16. In the part: stp x19, x20, [sp, #160].
    let (saved, compiled) = slots_of(&[0xc8, 0x14, 0xe5, 0x01, 0xe1, 0x89, 0xe4]);
    assert_eq!(saved, [Saved::Unknown, Saved::Unknown, Saved::Same]);
    check(&compiled, &[(0, "CFA = x29+80; RA = [CFA-72]; x29 = [CFA-80]")]);
    let lost = &compiled.report.unknown_register_reasons;
    assert_eq!(lost.values().sum::<usize>(), 1, "{lost:?}");
    // What the function itself saves behind its frame pointer is where the codes say, as nothing lies between.
    let (saved, compiled) = slots_of(&[0xc8, 0x02, 0x04, 0xe1, 0x89, 0xe4]);
    assert_eq!(saved, [Saved::Same; 3]);
    let table = Table::open(&compiled.bytes).expect("our own table");
    let slots = table.slots(Rva(0x1000 + 16)).expect("slots");
    assert_eq!(slots.of(Arch::Aarch64, 19), Some(Saved::At(-16)));
    // Without a frame pointer the stack pointer tells the CFA, and the place with it.
    let (saved, _) = slots_of(&[0xc8, 0x02, 0xe5, 0x01, 0x89, 0xe4]);
    assert_eq!(saved, [Saved::At(-10), Saved::At(-9), Saved::Same]);
    let link = [0xd6, 0x00, 0xe5, 0xe1, 0x89, 0xe4];
    check_refused(
        &record(false, 0, &[], &link),
        "exception directory: a return address stored below a stack pointer that nothing tells",
    );
    check_refused(
        &record(false, 0, &[], &[0xe1, 0xe5, 0xe1, 0x89, 0xe4]),
        "exception directory: a second frame pointer of one function",
    );
}

/// As MSVC writes it of code that goes on in another part: the epilog ends with its record, and undoes less than there is.
#[test]
fn t5_an_epilog_without_an_end_that_contradicts_the_prolog_is_none() {
    // stp x19, x20, [sp, #-48]!; str lr, [sp, #16]. The codes of the epilog are the last ones: ldp x19, x20, [sp]; nop; nop.
    let framed = "CFA = sp+48; RA = [CFA-32]";
    let begun = [(0, LEAF), (1, "CFA = sp+48; RA = x30"), (2, framed)];
    let contradicting = [0xd2, 0xc2, 0x26, 0xe4, 0xc8, 0x00, 0xe3, 0xe3];
    check(&record(false, 1, &[(8, 4)], &contradicting), &begun);
    // One that undoes all of it is believed, with an end or without.
    let whole = [0xe3, 0xe3, 0xe3, 0xe3, 0xe3, 0xd2, 0xc2, 0x26];
    let epilog = [(8, framed), (9, "CFA = sp+48; RA = x30"), (10, LEAF)];
    let compiled = record(false, 1, &[(8, 5)], &whole);
    let table = Table::open(&compiled.bytes).expect("our own table");
    for (at, expected) in epilog {
        let rule = table.rule(Rva(0x1000 + 4 * at)).map(|rule| rule.display(Arch::Aarch64).to_string());
        assert_eq!(rule.as_deref(), Some(expected), "{at}");
    }
}

#[test]
fn t5_code_of_another_processor_has_no_rules_and_is_told() {
    let code = [0x1f, 0x20, 0x03, 0xd5].repeat(LENGTH as usize);
    // sub sp, sp, #16 for the first half; x64 code behind it.
    let pdata = [0x1000, 1 | (LENGTH / 2) << 2 | 1 << 23].map(u32::to_le_bytes).concat();
    let end = CODE + code.len() as u64;
    let [text, foreign] = [CODE..end, CODE + code.len() as u64 / 2..end];
    let id = cfi::debug_id();
    let compiled = compile(&Input {
        arch: Arch::Aarch64,
        image_base: Svma(BASE),
        text: std::slice::from_ref(&text),
        pdata: Some((PDATA, &pdata)),
        foreign: std::slice::from_ref(&foreign),
        loaded: &[(CODE, &code), (PDATA, &pdata)],
        code: &[(CODE, &code)],
        ..cfi::empty_input(&id)
    })
    .expect("a table");
    let report = &compiled.report;
    assert_eq!((report.covered_bytes, report.unsupported_count), (u64::from(LENGTH) * 2, 1), "{report:?}");
    let told = report.unsupported.first().expect("a range");
    assert_eq!((&told.range, told.reason.starts_with("code of the other processor")), (&foreign, true), "{told:?}");
}

#[test]
fn t5_save_next_is_about_the_pair_after_the_last() {
    // stp x19, x20, [sp, #-32]!; stp x21, x22, [sp, #16]; then the next of a pair of vector registers, which has no slot.
    let compiled = record(false, 0, &[], &[0xe6, 0x24, 0xe4]);
    let table = Table::open(&compiled.bytes).expect("our own table");
    let slots = table.slots(Rva(0x1000 + 8)).expect("slots");
    let saved = [19, 20, 21, 22, 23].map(|register| slots.of(Arch::Aarch64, register).expect("a slot"));
    assert_eq!(saved, [Saved::At(-4), Saved::At(-3), Saved::At(-2), Saved::At(-1), Saved::Same]);
    check(&record(false, 0, &[], &[0xe6, 0xda, 0x03, 0xe4]), &[(0, LEAF), (1, "CFA = sp+32; RA = x30")]);
    check_refused(&record(false, 0, &[], &[0xe6, 0xe4]), "exception directory: a pair of registers after none");
}

#[test]
fn t5_a_signed_return_address_is_signed_from_the_instruction_on_that_signs_it() {
    let signed = "CFA = sp+0; RA = x30 without its signature";
    let inside = "CFA = sp+16; RA = [CFA-8] without its signature; x29 = [CFA-16]";
    check(&record(true, 0, &[], &[0x81, 0xfc, 0xe4]), &[(0, LEAF), (1, signed), (2, inside), (14, signed), (15, LEAF)]);
}

#[test]
fn t5_registers_of_every_form_are_where_the_codes_say() {
    let slot = |codes: &[u8], register: u8| {
        let compiled = record(false, 0, &[], codes);
        assert_eq!(compiled.report.unsupported_count, 0, "{codes:x?}: {:?}", compiled.report);
        let table = Table::open(&compiled.bytes).expect("our own table");
        let rva = Rva(0x1000 + 4 * u64::from(LENGTH - 1));
        (
            table.rule(rva).expect("code").offset() * 8,
            table.slots(rva).and_then(|slots| slots.of(Arch::Aarch64, register)),
        )
    };
    let at = |words: i16| Some(Saved::At(words));
    assert_eq!(slot(&[0xcc, 0x81, 0xe4], 21), (16, at(-2))); // save_regp_x x21, x22, 16
    assert_eq!(slot(&[0xd4, 0x61, 0xe4], 22), (16, at(-2))); // save_reg_x x22, 16
    assert_eq!(slot(&[0xd0, 0xc1, 0x02, 0xe4], 22), (32, at(-3))); // save_reg x22 at 8, alloc_s 32
    assert_eq!(slot(&[0xd6, 0x42, 0x02, 0xe4], 21), (32, at(-2))); // save_lrpair x21 at 16
    assert_eq!(slot(&[0xe7, 0x74, 0x01, 0xe4], 21), (32, at(-3))); // save_any_reg: x20, x21 at [sp, #-32]!
    assert_eq!(slot(&[0xc1, 0x00, 0xe4], 19), (4096, Some(Saved::Same))); // alloc_m
    assert_eq!(slot(&[0xe0, 0x00, 0x10, 0x00, 0xe4], 19), (65536, Some(Saved::Same))); // alloc_l
    assert_eq!(slot(&[0xe2, 0x02, 0x83, 0xe4], 19), (16, Some(Saved::Same))); // add_fp 16 above a frame of 32
}

#[test]
fn t5_fragments_of_packed_data_have_the_frame_everywhere() {
    // x19 and lr saved, 32 bytes; as a function, and without prolog.
    let data = |flag: u32| flag | LENGTH << 2 | 1 << 16 | 1 << 21 | 2 << 23;
    let inside = "CFA = sp+32; RA = [CFA-8]";
    // sub sp, sp, #16; stp x19, lr, [sp]; sub sp, sp, #16
    check(
        &made(data(1), &[]),
        &[
            (0, LEAF),
            (1, "CFA = sp+16; RA = x30"),
            (2, "CFA = sp+16; RA = [CFA-8]"),
            (3, inside),
            (13, "CFA = sp+16; RA = [CFA-8]"),
            (14, "CFA = sp+16; RA = x30"),
            (15, LEAF),
        ],
    );
    check(&made(data(2), &[]), &[(0, inside)]);
}

#[test]
fn t5_other_versions_and_codes_are_a_gap_with_a_reason() {
    let unknown = "exception directory: unwind information of an unknown version";
    check_refused(&made(0x3000, &(LENGTH | 1 << 18 | 1 << 27).to_le_bytes()), unknown);
    check_refused(&made(3 | LENGTH << 2, &[]), "exception directory: packed data of an unknown kind");
    check_refused(
        &made(1 | LENGTH << 2 | 11 << 16, &[]),
        "exception directory: packed data with more registers than there are",
    );
    for code in [0xe8, 0xeb, 0xf0, 0xfd] {
        check_refused(&record(false, 0, &[], &[code, 0xe4]), "exception directory: an unknown unwind code");
    }
    check_refused(&made(0x7000, &[]), "exception directory: unwind information that is not in the file");
    check_refused(&record(false, 1, &[(16, 0)], &[0x01, 0xe4]), "exception directory: an epilog outside its function");
}

/// Functions in parts, as Microsoft's compiler lays them out: one epilog ends with its part, by `end_c`, and the next part adds to the stack pointer and
/// returns; of another one, whose codes are all there, the part has the first loads alone.
#[test]
fn t5_an_epilog_runs_on_from_one_part_of_a_function_into_the_next() {
    // Above: sub sp, 16; str lr, [sp, 80]; stp x19, x20, [sp, -96]!. Here two pairs more, from 40 on.
    let loads = [0xc9, 0x47, 0xc8, 0xc5];
    let framed = "CFA = sp+112; RA = [CFA-16]";
    let slots = |compiled: &Compiled, register: u8| {
        let table = Table::open(&compiled.bytes).expect("our own table");
        let slot = |at: u64| table.slots(Rva(0x1000 + 4 * at)).and_then(|slots| slots.of(Arch::Aarch64, register));
        [0, 1, 2, 13, 14, 15].map(|at| slot(at).expect("a slot"))
    };
    let (at_56, at_40) = (Saved::At((56 - 112) / 8), Saved::At((40 - 112) / 8));
    let ended = record(false, 1, &[(14, 0)], &[&loads[..], &[0xe5, 0x01, 0xd2, 0xca, 0x2c, 0xe4]].concat());
    check(&ended, &[(0, framed)]);
    // The part's own prolog stores the lower pair first.
    assert_eq!(slots(&ended, 24), [Saved::Same, Saved::Same, at_56, at_56, at_56, Saved::Same]);
    assert_eq!(slots(&ended, 22), [Saved::Same, at_40, at_40, at_40, at_40, at_40]);
    let cut = record(false, 1, &[(14, 1)], &[&[0xe5][..], &loads, &[0x01, 0xd2, 0xca, 0x2c, 0xe4]].concat());
    check(&cut, &[(0, framed)]);
    assert_eq!(slots(&cut, 24), [at_56, at_56, at_56, at_56, at_56, Saved::Same]);
    for compiled in [ended, cut] {
        let report = &compiled.report;
        assert_eq!((report.unsupported_count, report.covered_bytes), (0, u64::from(LENGTH) * 4), "{report:?}");
    }
}

/// `__security_pop_cookie` of Microsoft's runtime adds 16 to its caller's stack pointer: in its epilog the address of the link register is no
/// return address. Before, it is a leaf.
#[test]
fn t5_an_epilog_that_cannot_be_told_leaves_the_rest_of_the_function_its_rules() {
    let lone = "exception directory: an interrupted caller without a machine frame";
    let compiled = record(false, 1, &[(6, 1)], &[0xe4, 0x01, 0xec, 0xe4]);
    check_refused(&compiled, lone);
    let unsupported = "information of an unsupported form";
    check(&compiled, &[(0, LEAF), (6, unsupported), (8, LEAF)]);
    let listed = compiled.report.unsupported.first().map(|listed| listed.range.clone());
    assert_eq!(listed, Some(CODE + 4 * 6..CODE + 4 * 8));
    // How long it is cannot be told: up to the next one.
    let compiled = record(false, 2, &[(6, 1), (12, 0)], &[0xe4, 0xfd, 0xe4]);
    check_refused(&compiled, "exception directory: an unknown unwind code");
    check(&compiled, &[(0, LEAF), (6, unsupported), (12, LEAF)]);
}

/// Codes of what the stack is like when code is entered stand for no instruction: it is so at the first one.
#[test]
fn t5_codes_of_special_stacks_are_no_instructions() {
    // sub sp, sp, #16 in a handler that the processor entered; the epilog adds it again.
    let handler = "interrupted: CFA = sp+0 holds pc and sp; RA = [CFA+8]";
    let framed = "interrupted: CFA = sp+16 holds pc and sp; RA = [CFA+8]";
    check(&record(true, 0, &[], &[0x01, 0xec, 0xe9, 0xe4]), &[(0, handler), (1, framed), (15, handler)]);
    let context = |at: u32| format!("all registers from the signal context at sp{at:+}");
    check(&record(false, 0, &[], &[0x01, 0xea, 0xe4]), &[(0, &context(0)), (1, &context(16))]);
}

/// What is undone last counts: a caller that goes on where the link register says, and did not call, has no rule.
#[test]
fn t5_a_caller_is_interrupted_only_where_its_frame_says_so_last() {
    let lone = "exception directory: an interrupted caller without a machine frame";
    for codes in [&[0xec, 0xe4][..], &[0xe9, 0xec, 0xe4], &[0xea, 0xec, 0xe4], &[0x01, 0xec, 0x01, 0xe4]] {
        check_refused(&record(false, 0, &[], codes), lone);
    }
    assert_eq!(record(false, 0, &[], &[0xec, 0xea, 0xe4]).report.unsupported_count, 0);
    let within = "exception directory: a machine frame within a prolog";
    check_refused(&record(false, 0, &[], &[0xe9, 0x01, 0xe4]), within);
}

/// Scopes that name the same place, in numbers that only a hostile record has.
#[test]
fn t5_many_epilogs_of_one_place_are_one() {
    let mut bytes = LENGTH.to_le_bytes().to_vec();
    let scopes = 60_000u32;
    // 255 words of codes, each of which every scope would undo.
    bytes.extend((scopes | 255 << 16).to_le_bytes());
    bytes.extend((0..scopes).flat_map(|_| 4u32.to_le_bytes()));
    bytes.extend([0xe3; 255 * 4]);
    let compiled = made(0x3000, &bytes);
    assert_eq!((compiled.report.unwind_entries, compiled.report.unsupported_count), (1, 1), "{:?}", compiled.report);
}

/// Walks from a handler whose frame is `codes`, with `words` on the stack.
fn interrupted(codes: &[u8], words: &[u64]) -> Vec<Frame> {
    let compiled = record(false, 0, &[], codes);
    assert_eq!(compiled.report.unsupported_count, 0, "{:?}", compiled.report);
    let table = Table::open(&compiled.bytes).expect("our own table");
    let module = Module {
        start: Avma(BASE),
        end: Avma(BASE + 0x8000),
        bias: 0,
        image_base: Svma(BASE),
        table: Some(table),
        code: None,
    };
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let registers = Registers { pc: CODE + 4 * 8, sp: 0x7fff_0000, fp: 5, ..Registers::default() };
    let mut frames = [Frame::EMPTY; 4];
    let memory = StackBytes { start: Avma(0x7fff_0000), bytes: &bytes };
    let walk = unwind(&Modules::new(Arch::Aarch64, vec![module]), &registers, &memory, &mut Cache::new(), &mut frames);
    frames.into_iter().take(walk.frames).collect()
}

#[test]
fn t5_a_machine_frame_leads_to_the_interrupted_instruction() {
    // 16 bytes below what was pushed: stack pointer, then program counter.
    let frames = interrupted(&[0x01, 0xec, 0xe9, 0xe4], &[0, 0, 0x7fff_0400, CODE + 0x20]);
    let caller = frames.get(1).expect("a caller");
    assert_eq!((caller.pc, caller.exact, caller.method), (Avma(CODE + 0x20), true, UnwindMethod::SignalContext));
    assert_eq!((frames[0].cfa, caller.fp), (Avma(0x7fff_0400), 5));
}

#[test]
fn t5_a_context_has_every_register_of_the_interrupted_instruction() {
    // ContextFlags and Cpsr, x0–x28, Fp, Lr, Sp, Pc.
    let mut words = vec![0, 0, 0x40_0000];
    words.extend(100..129);
    words.extend([0x7fff_0500, 0x1234, 0x7fff_0480, CODE + 0x24]);
    let frames = interrupted(&[0x01, 0xec, 0xea, 0xe4], &words);
    let caller = frames.get(1).expect("a caller");
    assert_eq!((caller.pc, caller.exact, caller.method), (Avma(CODE + 0x24), true, UnwindMethod::SignalContext));
    assert_eq!((frames[0].cfa, caller.fp), (Avma(0x7fff_0480), 0x7fff_0500));
}

#[test]
fn t5_code_without_an_entry_is_a_leaf() {
    let compiled = made(1 | 4 << 2 | 1 << 23, &[]);
    check(&compiled, &[(0, LEAF), (1, "CFA = sp+16; RA = x30"), (3, LEAF)]);
}
