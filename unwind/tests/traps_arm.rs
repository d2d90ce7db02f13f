//! The known traps of unwinding on 32-bit ARM, in both instruction sets.

use crate::cfi;
use crate::cfi::{BIAS_32, EhFrame, Process, cfa_offset, saved};
use symseal_module::{Avma, Rva, StopReason, UnwindMethod};
use symseal_unwind::compile::{Compiled, Input, compile};
use symseal_unwind::{Arch, Registers, StackBytes, Table};

const ARCH: Arch = Arch::Arm;
const SP: u64 = 0x7fff_0000;
const LR: usize = 14;
/// CFA = sp at the entry of a function.
const AT_ENTRY: &[u8] = &[0x0c, 13, 0];

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| (*value as u32).to_le_bytes()).collect()
}

fn registers(svma: u64, link: u64) -> Registers {
    let mut general = [None; Registers::GENERAL];
    (general[LR], general[7], general[11]) = (Some(BIAS_32 + link), Some(0x7777), Some(0x5555));
    Registers { pc: BIAS_32 + svma, sp: SP, fp: 0x5555, general }
}

fn end() -> Vec<u8> {
    vec![0x07, 14]
}

/// A leaf, a function with a frame of 16 bytes, and one without a caller.
fn three_functions() -> EhFrame {
    let mut section = EhFrame::on(ARCH, "zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &[]).fde(0x1020, 0x20, &[cfa_offset(16), saved(14, 1), saved(11, 2)]).fde(
        0x1040,
        0x20,
        &[end()],
    );
    section
}

#[test]
fn t1_the_bit_that_marks_thumb_is_no_part_of_an_address() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    // To the first byte behind the second function: with the bit, the byte before it would lie in the third.
    let stack = words(&[0, 0, 0x66, BIAS_32 + 0x1040 + 1, 0, 0, 0x77, BIAS_32 + 0x1044 + 1]);
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    for mark in [0, 1] {
        let mut registers = registers(0x1010, 0x1030 + mark);
        registers.pc |= mark;
        let (frames, walk) = process.walk(&registers, &memory);
        let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - BIAS_32).collect();
        assert_eq!((pcs, walk.stop), (vec![0x1010, 0x1030, 0x1040, 0x1044], StopReason::EndOfStack));
        assert_eq!((frames[2].fp, frames[3].fp), (0x66, 0x77));
    }
}

#[test]
fn t2_both_signal_frames_are_known_by_the_trampolines_of_both_sets() {
    let trampolines: [(&[u8], u64); 8] = [
        (&[0x4f, 0xf0, 0xad, 0x07, 0x00, 0xdf], 148), // mov.w r7, #173; svc 0
        (&[0x4f, 0xf0, 0x77, 0x07, 0x00, 0xdf], 20),
        (&[0xad, 0x27, 0x00, 0xdf], 148), // movs r7, #173; svc 0
        (&[0x77, 0x27, 0x00, 0xdf], 20),
        (&[0xad, 0x70, 0xa0, 0xe3, 0, 0, 0, 0xef], 148), // mov r7, #173; svc 0
        (&[0x77, 0x70, 0xa0, 0xe3, 0, 0, 0, 0xef], 20),
        (&[0xad, 0x70, 0xa0, 0xe3, 0xad, 0, 0x90, 0xef], 148), // with the number of the system call in both places
        (&[0x77, 0x70, 0xa0, 0xe3, 0x77, 0, 0x90, 0xef], 20),
    ];
    for (trampoline, context) in trampolines {
        // Once from the table, once by the instructions alone.
        let in_table = three_functions().compile_with(&[(0x2000, trampoline)]).bytes;
        let without = three_functions().compile().bytes;
        for table in [&in_table, &without] {
            let process = Process::with_code(table, Some((0x2000, trampoline)));
            let mut stack = vec![0; 0x300];
            // Interrupted at a first instruction, where the return address is in its register.
            for (register, value) in [(15, BIAS_32 + 0x1020), (13, SP + 0x280), (11, 0x66), (14, BIAS_32 + 0x1045)] {
                let at = (context + ARCH.context_offset(register).expect("saved")) as usize;
                stack[at..at + 4].copy_from_slice(&words(&[value]));
            }
            stack[0x28c..0x290].copy_from_slice(&words(&[BIAS_32 + 0x1045]));
            let memory = StackBytes { start: Avma(SP), bytes: &stack };
            let (frames, walk) = process.walk(&registers(0x1010, 0x2001), &memory);
            let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - BIAS_32).collect();
            let expected = (vec![0x1010, 0x2000, 0x1020, 0x1044], StopReason::EndOfStack);
            assert_eq!((pcs, walk.stop), expected, "{trampoline:x?}");
            assert_eq!((frames[1].cfa, frames[2].fp, frames[2].exact), (Avma(SP + 0x280), 0x66, true));
        }
    }
}

/// `push {r4, lr}; sub sp, #8; bl .+252; add sp, #8; pop {r4, pc}` of Thumb.
const THUMB: [u8; 12] = [0x10, 0xb5, 0x82, 0xb0, 0x00, 0xf0, 0x7c, 0xf8, 0x02, 0xb0, 0x10, 0xbd];

/// An index table at 0x8000: pairs of a function and what stands for it.
fn index(entries: &[(u64, u32)]) -> Vec<u8> {
    let place = |at: usize| 0x8000 + 8 * at as u64;
    let relative = |from: u64, to: u64| (to.wrapping_sub(from) as u32) & 0x7fff_ffff;
    entries
        .iter()
        .enumerate()
        .flat_map(|(at, (start, word))| words(&[relative(place(at), *start).into(), (*word).into()]))
        .collect()
}

fn compiled(index: &[u8], extra: &[u8], code: &[u8], functions: &[u64]) -> Compiled {
    let id = cfi::debug_id();
    let input = Input {
        arch: ARCH,
        exidx: Some((0x8000, index)),
        loaded: &[(0x8800, extra)],
        functions,
        code: &[(0x1000, code)],
        ..cfi::empty_input(&id)
    };
    let compiled = compile(&input).expect("a table");
    Table::open(&compiled.bytes).expect("a table").verify().expect("our own table");
    compiled
}

fn rules(compiled: &Compiled, halves: std::ops::Range<u64>) -> Vec<(String, &'static str)> {
    let table = Table::open(&compiled.bytes).expect("a table");
    halves
        .map(|half| {
            let rva = Rva(0x1000 + 2 * half);
            let rule = table.rule(rva).expect("code");
            (
                rule.display(ARCH).to_string(),
                rule.source().map_or("", |source| if source as u8 == 8 { "exidx" } else { "code" }),
            )
        })
        .collect()
}

/// What holds at each half word of [`THUMB`], the table's own words apart.
const AT_EACH: [&str; 6] = [
    "CFA = sp+0; RA = lr",
    "CFA = sp+8; RA = [CFA-4]",
    "CFA = sp+16; RA = [CFA-4]",
    "CFA = sp+16; RA = [CFA-4]",
    "CFA = sp+16; RA = [CFA-4]",
    "CFA = sp+8; RA = [CFA-4]",
];

#[test]
fn t5_the_index_table_gives_the_body_and_the_instructions_give_what_is_around_it() {
    // sp += 8; pop {r4, lr}
    let index = index(&[(0x1000, 0x8001_a8b0), (0x100c, 1)]);
    for functions in [&[0x1001][..], &[]] {
        let compiled = compiled(&index, &[], &THUMB, functions);
        let found = rules(&compiled, 0..6);
        assert!(found.iter().map(|(rule, _)| rule.as_str()).eq(AT_EACH), "{found:?}");
        assert_eq!([found[0].1, found[2].1, found[5].1], ["code", "exidx", "code"]);
        // What it calls is not in the file, and what the second entry refuses neither.
        assert_eq!((compiled.report.unwind_entries, compiled.report.unfollowed.len()), (1, 2));
        let stack = words(&[0, 0, 0x44, BIAS_32 + 0x100a]);
        let memory = StackBytes { start: Avma(SP), bytes: &stack };
        let (frames, _) = Process::new(&compiled.bytes).walk(&registers(0x1006, 0), &memory);
        assert_eq!((frames[1].pc.0, frames[1].method), (BIAS_32 + 0x100a, UnwindMethod::Exidx));
    }
}

#[test]
fn t5_a_description_that_the_instructions_contradict_holds_for_all_of_the_function_and_is_counted() {
    // sp += 12; pop {r4, lr}
    let compiled = compiled(&index(&[(0x1000, 0x8002_a8b0), (0x100c, 1)]), &[], &THUMB, &[0x1001]);
    let found = rules(&compiled, 0..6);
    assert!(found.iter().all(|(rule, source)| rule == "CFA = sp+20; RA = [CFA-4]" && *source == "exidx"), "{found:?}");
    let contradicted = "exception index: the instructions do not make the frame that it says";
    assert_eq!(compiled.report.unfollowed.get(contradicted), Some(&1));
}

#[test]
fn t5_descriptions_elsewhere_of_every_common_form_are_read() {
    // At 0x8800: personality 0; 1 with one word more; a routine of a language with no word more.
    let extra = words(&[0x8001_a8b0, 0x8101_b200, 0x84_00b0b0, 0x0000_1000, 0x0001_a8b0]);
    let to = |place: u64, target: u64| (target.wrapping_sub(place) as u32) & 0x7fff_ffff;
    let bodies: Vec<String> = [0x8800, 0x8804, 0x880c]
        .into_iter()
        .map(|target| {
            let compiled = compiled(&index(&[(0x1000, to(0x8004, target))]), &extra, &[], &[]);
            rules(&compiled, 0..1).remove(0).0
        })
        .collect();
    let expected = ["CFA = sp+16; RA = [CFA-4]", "CFA = sp+520; RA = [CFA-4]", "CFA = sp+16; RA = [CFA-4]"];
    assert_eq!(bodies, expected);
}

#[test]
fn what_nobody_can_unwind_by_its_entry_is_followed_or_is_a_gap_with_its_reason() {
    let index = index(&[(0x1000, 1)]);
    let with_symbol = compiled(&index, &[], &THUMB, &[0x1001]);
    let found = rules(&with_symbol, 0..6);
    assert!(found.iter().map(|(rule, _)| rule.as_str()).eq(AT_EACH), "{found:?}");
    let reason = "exception index: said not to be unwound, and not followed";
    assert_eq!(with_symbol.report.unfollowed.get(reason), None);
    // Nobody says which instructions these are, but they themselves.
    let without = compiled(&index, &[], &THUMB, &[]);
    assert!(rules(&without, 0..6).iter().map(|(rule, _)| rule.as_str()).eq(AT_EACH));
    assert_eq!(without.report.unfollowed.get(reason), None);
    // adds r0, #1, which may be anything.
    let unknown = compiled(&index, &[], &[0x01, 0x30].repeat(6), &[]);
    assert!(rules(&unknown, 0..6).iter().all(|(rule, _)| rule == "no information"));
    assert_eq!(unknown.report.unfollowed.get(reason), Some(&1));
    // All of the range that is said to be code, which the file has twelve bytes of.
    assert_eq!(unknown.report.gap_bytes.values().sum::<u64>(), 0x2000);
}

#[test]
fn neighbours_whose_entries_a_linker_joined_have_rules_of_their_own() {
    // Three functions of one frame and one entry: the second is called by the first, nobody calls the third. Behind each, a constant.
    let function = |call: [u8; 4]| {
        [&[0x10, 0xb5, 0x82, 0xb0][..], &call, &[0x02, 0xb0, 0x10, 0xbd, 0xff, 0xff, 0xff, 0x0f]].concat()
    };
    // bl .+12, and twice to where nothing is.
    let code =
        [function([0, 0xf0, 0x04, 0xf8]), function([0, 0xf0, 0x7c, 0xf8]), function([0, 0xf0, 0x7c, 0xf8])].concat();
    let compiled = compiled(&index(&[(0x1000, 0x8001_a8b0), (0x1030, 1)]), &[], &code, &[]);
    let found = rules(&compiled, 0..24);
    for (number, found) in found.chunks(8).enumerate() {
        assert!(found[..6].iter().map(|(rule, _)| rule.as_str()).eq(AT_EACH), "{number}: {found:?}");
        // What nothing leads to is no part of a body.
        assert!(found[6..].iter().all(|(rule, _)| rule == "no information"), "{number}: {found:?}");
    }
}

#[test]
fn forms_that_cannot_be_expressed_are_unsupported_with_their_reasons() {
    for (word, reason) in [
        (0x8080_00b0, "exception index: it refuses to be unwound"),
        (0x809d_b0b0, "exception index: an operation without a meaning"),
        (0x8082_00b0, "exception index: the stack pointer itself is popped"),
        (0x8300_0000, "exception index: a personality routine of an unknown form"),
        (0x0000_0100, "exception index: a description that is not in the file"),
    ] {
        let compiled = compiled(&index(&[(0x1000, word)]), &[], &THUMB, &[]);
        assert_eq!(compiled.report.unsupported_reasons.keys().collect::<Vec<_>>(), [reason], "{word:x}");
        assert_eq!(rules(&compiled, 0..1)[0].0, "information of an unsupported form");
    }
}

#[test]
fn t4_both_sets_are_followed_and_what_depends_on_flags_may_not_happen() {
    // push {r4, lr}; sub sp, #8; cmp r0, #0; it ne; addne r0, #1; tbb [pc, r0]; two distances; nop; add sp, #8; pop {r4, pc}
    let thumb: [u8; 24] = [
        0x10, 0xb5, 0x82, 0xb0, 0x00, 0x28, 0x18, 0xbf, 0x01, 0x30, 0xdf, 0xe8, 0x00, 0xf0, 0x01, 0x02, 0x00, 0xbf,
        0x02, 0xb0, 0x10, 0xbd, 0x00, 0xbf,
    ];
    let compiled = compiled(&[], &[], &thumb, &[0x1001]);
    let found = rules(&compiled, 0..11);
    let body = "CFA = sp+16; RA = [CFA-4]";
    assert!(found[2..7].iter().chain(&found[8..10]).all(|(rule, _)| rule == body), "{found:?}");
    assert_eq!((found[7].0.as_str(), found[10].0.as_str()), ("no information", "CFA = sp+8; RA = [CFA-4]"));
    // push {r11, lr}; cmp r0, #0; popne {r11, pc}; sub sp, #8; pop {r11, pc}
    let arm = words(&[0xe92d_4800, 0xe350_0000, 0x18bd_8800, 0xe24d_d008, 0xe8bd_8800]);
    let compiled = self::compiled(&[], &[], &arm, &[0x1000]);
    let found: Vec<String> = rules(&compiled, 0..10).into_iter().step_by(2).map(|(rule, _)| rule).collect();
    let saved = "CFA = sp+8; RA = [CFA-4]; r11 = [CFA-8]";
    assert_eq!(found, ["CFA = sp+0; RA = lr", saved, saved, saved, "CFA = sp+16; RA = [CFA-4]; r11 = [CFA-8]"]);
}

/// clang gives a frame back and returns on one of two ways alone. Between the two instructions the other way has its frame still, and the flags are not at hand.
#[test]
fn t4_between_two_instructions_that_return_if_flags_say_so_nothing_is_told() {
    // push {r4, lr}; sub sp, #8; cmp r0, r1; itt ne; addne sp, #8; popne {r4, pc}; mov r0, r4; blx r3
    let thumb: Vec<u8> = [0xb510_u16, 0xb082, 0x4288, 0xbf1c, 0xb002, 0xbd10, 0x4620, 0x4798]
        .iter()
        .flat_map(|half| half.to_le_bytes())
        .collect();
    let arm: Vec<u8> = [0xe92d_4010_u32, 0xe24d_d008, 0xe151_0000, 0x128d_d008, 0x18bd_8010, 0xe1a0_0004, 0xe12f_ff33]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    for (code, function, size, at) in [(&thumb, 0x1001, 1, 5), (&arm, 0x1000, 2, 4)] {
        let compiled = self::compiled(&[], &[], code, &[function]);
        let found: Vec<String> =
            rules(&compiled, 0..code.len() as u64 / 2).into_iter().step_by(size).map(|(rule, _)| rule).collect();
        let body = "CFA = sp+16; RA = [CFA-4]";
        assert_eq!(found[at], "information of an unsupported form", "{found:?}");
        assert!(found[at - 1].starts_with(body) && found[at + 1].starts_with(body), "{found:?}");
    }
}

/// Where flags lead elsewhere rather than back, the way that goes on has its frame still, and the branch itself has no rule: nothing tells which way it goes. (glibc's
/// `memcpy` for NEON)
#[test]
fn t4_where_code_goes_on_elsewhere_if_flags_say_so_the_frame_behind_is_that_of_the_other_way() {
    // push {r8}; popcc {r8}; bcc to the last; nop; pop {r8}; bx lr
    let code: Vec<u8> = [0xe52d_8004_u32, 0x349d_8004, 0x3a00_0001, 0xe320_f000, 0xe49d_8004, 0xe12f_ff1e]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let compiled = self::compiled(&[], &[], &code, &[0x1000]);
    let found: Vec<String> = rules(&compiled, 0..12).into_iter().step_by(2).map(|(rule, _)| rule).collect();
    assert_eq!(found[2], "information of an unsupported form", "{found:?}");
    let others = [&found[1..2], &found[3..5]].concat();
    assert!(others.iter().all(|rule| rule.starts_with("CFA = sp+4; RA = lr")), "{found:?}");
    assert!(found[5].starts_with("CFA = sp+0; RA = lr"), "{found:?}");
}

/// A slot is never so far from the CFA, but the stack pointer is.
#[test]
fn t4_frames_larger_than_a_slot_is_far_from_the_cfa_are_followed() {
    // push {r4, r5, r7, lr}; sub.w sp, #199680; sub sp, #320; blx r0; add.w sp, #199680; add sp, #320; pop {r4, r5, r7, pc}
    let code: Vec<u8> = [0xb5b0_u16, 0xf5ad, 0x3d43, 0xb0d0, 0x4780, 0xf50d, 0x3d43, 0xb050, 0xbdb0]
        .iter()
        .flat_map(|half| half.to_le_bytes())
        .collect();
    let compiled = self::compiled(&[], &[], &code, &[0x1001]);
    let found = rules(&compiled, 0..9);
    for (half, distance) in [(1, 16), (3, 199_696), (4, 200_016), (5, 200_016), (7, 336), (8, 16)] {
        assert!(found[half].0.starts_with(&format!("CFA = sp+{distance}; RA = [CFA-4]")), "{half} {found:?}");
    }
}

#[test]
fn a_call_through_a_null_pointer_returns_by_the_link_register() {
    let table = three_functions().compile().bytes;
    let mut code = vec![0; 0x100];
    // blx r3 before 0x1030
    code[0x2e..0x30].copy_from_slice(&[0x98, 0x47]);
    let process = Process::with_code(&table, Some((0x1000, &code)));
    let stack = words(&[0, 0, 0x66, BIAS_32 + 0x1045]);
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    let registers = Registers { pc: 0, ..registers(0, 0x1031) };
    let (frames, walk) = process.walk(&registers, &memory);
    assert_eq!((walk.frames, walk.stop), (3, StopReason::EndOfStack));
    assert_eq!((frames[1].method, frames[1].pc), (UnwindMethod::NullCall, Avma(BIAS_32 + 0x1030)));
}

#[test]
fn one_function_cannot_take_the_rules_of_others() {
    const LONG: usize = 1 << 17;
    // it eq; tbheq [pc, r0, lsl #1], over and over: what follows each is its table.
    let mut code = [0x08, 0xbf, 0xdf, 0xe8, 0x10, 0xf0].repeat(LONG / 6);
    code.resize(LONG, 0);
    // push {r4, lr}; pop {r4, pc}
    code.extend([0x10, 0xb5, 0x10, 0xbd]);
    let id = cfi::debug_id();
    let text = 0x1000..0x1000 + code.len() as u64;
    let last = 0x1000 + LONG as u64;
    let input = Input {
        arch: ARCH,
        text: std::slice::from_ref(&text),
        functions: &[0x1001, last | 1],
        code: &[(0x1000, &code)],
        ..cfi::empty_input(&id)
    };
    let compiled = compile(&input).expect("a table");
    let table = Table::open(&compiled.bytes).expect("a table");
    let rule = |at: u64| table.rule(Rva(at)).map(|rule| rule.display(ARCH).to_string());
    assert!(rule(last + 2).is_some_and(|rule| rule.starts_with("CFA = sp+8")), "{:?}", rule(last + 2));
    let unfollowed: Vec<_> = compiled.report.unfollowed.into_iter().collect();
    assert_eq!(unfollowed, [("too many paths for the size of the function".to_owned(), 1)]);
}

/// `clone` of two C libraries, which do not say that nobody called a thread: of glibc in Thumb as Debian has it, of musl in ARM instructions as its source has it. And a function that forks,
/// whose child returns.
#[test]
fn t7_a_thread_begins_behind_the_system_call_that_makes_it() {
    const GLIBC: [u16; 15] = [
        0xb490, // push {r4, r7}
        0xf04f, 0x0778, // mov.w r7, #120
        0xdf00, // svc 0
        0x2800, // cmp r0, #0
        0xd001, // beq to the thread
        0xbc90, 0x4770, // pop {r4, r7}; bx lr
        0x9801, // the thread: ldr r0, [sp, #4]
        0xf85d, 0xcb08, // ldr r12, [sp], #8
        0x47e0, // blx r12
        0xf04f, 0x0701, // mov.w r7, #1
        0xdf00, // svc 0
    ];
    const MUSL: [u32; 15] = [
        0xe92d_00f0, // push {r4, r5, r6, r7}
        0xe3a0_7078, // mov r7, #120
        0xe1a0_6003, // mov r6, r3
        0xe1a0_5000, // mov r5, r0
        0xef00_0000, // svc 0
        0xe110_0000, // tst r0, r0
        0x0a00_0001, // beq to the thread
        0xe8bd_00f0,
        0xe12f_ff1e, // pop {r4, r5, r6, r7}; bx lr
        0xe1a0_0006, // the thread: mov r0, r6
        0xeb00_0002, // bl to the last instruction
        0xe3a0_7001, // mov r7, #1
        0xef00_0000, // svc 0
        0xeaff_fffc, // b back to what sets r7
        0xe12f_ff15, // bx r5
    ];
    const FORK: [u16; 10] = [
        0xb590, // push {r4, r7, lr}
        0x2778, 0xdf00, // movs r7, #120; svc 0
        0xb100, // cbz r0, to the child
        0xbd90, // pop {r4, r7, pc}
        0xf000, 0xf803, // the child: bl
        0x2714, 0xdf00, // movs r7, #20; svc 0
        0xbd90, // pop {r4, r7, pc}
    ];
    let halves = |code: &[u16]| code.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
    let musl: Vec<u8> = MUSL.iter().flat_map(|word| word.to_le_bytes()).collect();
    // Code, its address with the bit of Thumb, the half word where a thread begins, and how many are its.
    let scenes = [(halves(&GLIBC), 0x1001, 8, 7), (musl, 0x1000, 18, 10), (halves(&FORK), 0x1001, 10, 0)];
    for (code, function, first, count) in scenes {
        let compiled = compiled(&[], &[], &code, &[function]);
        let found = rules(&compiled, 0..first + count);
        let ends: Vec<u64> =
            (0..first + count).filter(|half| found[*half as usize].0 == "no caller: the end of the stack").collect();
        assert_eq!(ends, (first..first + count).collect::<Vec<u64>>(), "{found:?}");
    }
}
