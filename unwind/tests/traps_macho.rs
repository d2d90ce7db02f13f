//! What is easily got wrong about compact unwind information, each with its own test.

use crate::cfi;
use symseal_module::Svma;
use symseal_unwind::compile::{Compiled, Input, Plt, compile};
use symseal_unwind::{Arch, RuleSource, Table};

const BASE: u64 = 0x1_0000_0000;
const CODE: u32 = 0x1000;

/// A section with one page of the regular kind, or of the compressed one.
fn section(entries: &[(u32, u32)], compressed: bool) -> Vec<u8> {
    let word = |out: &mut Vec<u8>, word: u32| out.extend(word.to_le_bytes());
    let common: Vec<u32> =
        if compressed { entries.iter().skip(1).map(|(_, encoding)| *encoding).collect() } else { vec![] };
    let mut out = Vec::new();
    let index = 28 + 4 * common.len() as u32;
    for value in [1, 28, common.len() as u32, index, 0, index, 2] {
        word(&mut out, value);
    }
    common.iter().for_each(|encoding| word(&mut out, *encoding));
    let (first, last) = (entries[0].0, entries[entries.len() - 1].0);
    for value in [first, index + 24, 0, last, 0, 0] {
        word(&mut out, value);
    }
    let described = &entries[..entries.len() - 1];
    word(&mut out, if compressed { 3 } else { 2 });
    if compressed {
        // The first encoding is the page's own.
        let own_at = 12 + 4 * described.len() as u32;
        word(&mut out, 12 | (described.len() as u32) << 16);
        word(&mut out, own_at | 1 << 16);
        for (at, (start, _)) in described.iter().enumerate() {
            let number = if at == 0 { common.len() } else { at - 1 };
            word(&mut out, (start - first) | (number as u32) << 24);
        }
        word(&mut out, described[0].1);
    } else {
        word(&mut out, 8 | (described.len() as u32) << 16);
        for (start, encoding) in described {
            word(&mut out, *start);
            word(&mut out, *encoding);
        }
    }
    out
}

fn compile_with(arch: Arch, code: &[u8], info: &[u8], functions: &[u64], plt: &[Plt<'_>]) -> Compiled {
    let start = BASE + u64::from(CODE);
    let id = cfi::debug_id();
    let text: Vec<_> = std::iter::once(start..start + code.len() as u64).collect();
    compile(&Input {
        arch,
        image_base: Svma(BASE),
        text: &text,
        unwind_info: Some((BASE + 0x4000, info)),
        functions,
        plt,
        code: &[(start, code)],
        ..cfi::empty_input(&id)
    })
    .expect("a table")
}

fn rows(arch: Arch, compiled: &Compiled) -> Vec<(u64, RuleSource, String)> {
    let table = Table::open(&compiled.bytes).expect("our own table");
    table.verify().expect("our own table");
    let rows = table.rows().map(|(rva, rule, _)| {
        let at = rva.0.wrapping_sub(u64::from(CODE));
        (at, rule.source().expect("a known source"), rule.display(arch).to_string().replace("; RA = [CFA-8]", ""))
    });
    rows.collect()
}

fn check(arch: Arch, code: &[u8], entries: &[(u32, u32)], expected: &[(u64, RuleSource, &str)]) {
    for compressed in [false, true] {
        let compiled = compile_with(arch, code, &section(entries, compressed), &[], &[]);
        let found = rows(arch, &compiled);
        let found: Vec<_> = found.iter().map(|(at, source, rule)| (*at, *source, rule.as_str())).collect();
        assert_eq!(found, expected, "{:?}", compiled.report);
        assert_eq!(compiled.report.unwind_entries, entries.len() - 1);
    }
}

use RuleSource::{CompactUnwind, Instructions};

#[test]
fn t5_an_encoding_holds_in_the_body_and_the_instructions_say_what_holds_elsewhere() {
    // push rbp; mov rbp, rsp; push rbx; push rax; nop; add rsp, 8; pop rbx; pop rbp; ret
    let code = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x50, 0x90, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0x5d, 0xc3];
    let end = CODE + code.len() as u32;
    check(
        Arch::X86_64,
        &code,
        &[(CODE, 0x0101_0001), (end, 0)],
        &[
            (0, Instructions, "CFA = rsp+8"),
            (1, Instructions, "CFA = rsp+16; rbp = [CFA-16]"),
            (4, Instructions, "CFA = rbp+16; rbp = [CFA-16]"),
            (5, CompactUnwind, "CFA = rbp+16; rbp = [CFA-16]"),
            (12, Instructions, "CFA = rbp+16; rbp = [CFA-16]"),
            (13, Instructions, "CFA = rsp+8"),
        ],
    );
}

/// As clang makes frames of 8 KiB and more, whose pages `___chkstk_darwin` touches, and `alloca`, of which the size is not known.
#[test]
fn t5_a_frame_whose_size_is_in_a_register_ends_where_the_frame_pointer_is_restored() {
    // push rbp; mov rbp, rsp; push rbx; push rax; mov eax, 0x2018; call ___chkstk_darwin; sub rsp, rax; pop rax; nop; add rsp, 0x2018; pop rbx; pop rbp; ret
    let probed = [
        &[0x55, 0x48, 0x89, 0xe5, 0x53, 0x50, 0xb8, 0x18, 0x20, 0, 0, 0xe8, 0, 1, 0, 0][..],
        &[0x48, 0x29, 0xc4, 0x58, 0x90, 0x48, 0x81, 0xc4, 0x18, 0x20, 0, 0, 0x5b, 0x5d, 0xc3],
    ];
    // push rbp; mov rbp, rsp; push rbx; sub rsp, rcx; nop; add rsp, rcx; pop rbx; pop rbp; ret
    let unknown = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x48, 0x29, 0xcc, 0x90, 0x48, 0x01, 0xcc, 0x5b, 0x5d, 0xc3].as_slice();
    for (code, popped) in [(&probed.concat(), 29), (&unknown.to_vec(), 13)] {
        let end = CODE + code.len() as u32;
        check(
            Arch::X86_64,
            code,
            &[(CODE, 0x0101_0001), (end, 0)],
            &[
                (0, Instructions, "CFA = rsp+8"),
                (1, Instructions, "CFA = rsp+16; rbp = [CFA-16]"),
                (4, Instructions, "CFA = rbp+16; rbp = [CFA-16]"),
                (5, CompactUnwind, "CFA = rbp+16; rbp = [CFA-16]"),
                (popped, Instructions, "CFA = rbp+16; rbp = [CFA-16]"),
                (popped + 1, Instructions, "CFA = rsp+8"),
            ],
        );
    }
    // Without a frame pointer: push rbx; mov eax, 0x2000; call ___chkstk_darwin; sub rsp, rax; nop; add rsp, 0x2000; pop rbx; ret
    let code = [
        &[0x53, 0xb8, 0, 0x20, 0, 0, 0xe8, 0, 1, 0, 0, 0x48, 0x29, 0xc4, 0x90][..],
        &[0x48, 0x81, 0xc4, 0, 0x20, 0, 0, 0x5b, 0xc3],
    ];
    let code = code.concat();
    let end = CODE + code.len() as u32;
    // The size stands behind the opcode of `mov`, two words more (the return address and rbx), one register: rbx.
    check(
        Arch::X86_64,
        &code,
        &[(CODE, 0x0302_0000 | 2 << 13 | 1 << 10), (end, 0)],
        &[
            (0, Instructions, "CFA = rsp+8"),
            (1, Instructions, "CFA = rsp+16"),
            (14, CompactUnwind, "CFA = rsp+8208"),
            (22, Instructions, "CFA = rsp+16"),
            (23, Instructions, "CFA = rsp+8"),
        ],
    );
}

#[test]
fn t5_the_size_of_a_large_frame_stands_in_the_instruction() {
    // push rbx; sub rsp, 0x12340; nop; ret without taking it down, which the body stays for.
    let code = [0x53, 0x48, 0x81, 0xec, 0x40, 0x23, 0x01, 0x00, 0x90, 0x90];
    let end = CODE + code.len() as u32;
    // The size is at 4, two words more (the return address and rbx), one register: rbx.
    check(
        Arch::X86_64,
        &code,
        &[(CODE, 0x0304_0000 | 2 << 13 | 1 << 10), (end, 0)],
        &[(0, Instructions, "CFA = rsp+8"), (1, Instructions, "CFA = rsp+16"), (8, CompactUnwind, "CFA = rsp+74576")],
    );
}

#[test]
fn t5_a_frame_that_the_instructions_do_not_make_is_believed_in_the_body_and_counted() {
    let code = [0x90; 8];
    let compiled =
        compile_with(Arch::X86_64, &code, &section(&[(CODE, 0x0201_0000 | 5 << 16), (CODE + 8, 0)], false), &[], &[]);
    let reason = "compact unwind information: the instructions do not make the frame that it says";
    assert_eq!(compiled.report.unfollowed.get(reason), Some(&1), "{:?}", compiled.report.unfollowed);
    let found = rows(Arch::X86_64, &compiled);
    assert_eq!(found, [(0, CompactUnwind, String::from("CFA = rsp+40"))]);
}

#[test]
fn t5_a_frame_record_and_pairs_below_it_are_those_of_arm64() {
    let words: [u32; 10] = [
        0xa9be_4ff4, // stp x20, x19, [sp, #-32]!
        0xa901_7bfd, // stp x29, x30, [sp, #16]
        0x9100_43fd, // add x29, sp, #16
        0xd100_43ff, // sub sp, sp, #16
        0x9400_0000, // bl .
        0x9100_43ff, // add sp, sp, #16
        0xa941_7bfd, // ldp x29, x30, [sp, #16]
        0xa8c2_4ff4, // ldp x20, x19, [sp], #32
        0xd65f_03c0, // ret
        0xd503_201f, // nop
    ];
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = CODE + code.len() as u32;
    let (sp, fp) = ("x29 = [CFA-16]", "CFA = x29+16; x29 = [CFA-16]");
    check(
        Arch::Aarch64,
        &code,
        &[(CODE, 0x0400_0001), (end, 0)],
        &[
            (0, Instructions, "CFA = sp+0; RA = x30"),
            (4, Instructions, "CFA = sp+32; RA = x30"),
            (8, Instructions, &format!("CFA = sp+32; {sp}")),
            (12, CompactUnwind, fp),
            (28, Instructions, &format!("CFA = sp+32; {sp}")),
            (32, Instructions, "CFA = sp+0; RA = x30"),
        ],
    );
    // The first register of a pair lies above the second.
    let compiled = compile_with(Arch::Aarch64, &code, &section(&[(CODE, 0x0400_0001), (end, 0)], false), &[], &[]);
    let table = Table::open(&compiled.bytes).expect("our own table");
    let slots = table.slots(symseal_module::Rva(u64::from(CODE) + 16)).expect("slots");
    let saved = [19, 20].map(|register| slots.of(Arch::Aarch64, register));
    assert_eq!(saved, [-3, -4].map(|words| Some(symseal_unwind::Saved::At(words))));
}

/// As arm64e has it. What no path leads to is entered by the runtime, with the frame that the word describes and a return address that the
/// function signed.
#[test]
fn t5_a_function_that_signs_has_a_signed_return_address_where_no_path_leads_too() {
    let words: [u32; 9] = [
        0xd503_237f, // pacibsp
        0xa9bf_7bfd, // stp x29, x30, [sp, #-16]!
        0x9100_03fd, // mov x29, sp
        0x9400_0000, // bl .
        0xa8c1_7bfd, // ldp x29, x30, [sp], #16
        0xd65f_0fff, // retab
        0x9400_0000, // bl ., the landing pad
        0x9400_0000, // bl .
        0xd420_0020, // brk #1
    ];
    let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = CODE + code.len() as u32;
    let signed = "RA = x30 without its signature";
    check(
        Arch::Aarch64,
        &code,
        &[(CODE, 0x0400_0000), (end, 0)],
        &[
            (0, Instructions, "CFA = sp+0; RA = x30"),
            (4, Instructions, &format!("CFA = sp+0; {signed}")),
            (8, Instructions, "CFA = sp+16 without its signature; x29 = [CFA-16]"),
            (12, CompactUnwind, "CFA = x29+16 without its signature; x29 = [CFA-16]"),
            (20, Instructions, &format!("CFA = sp+0; {signed}")),
            (24, CompactUnwind, "CFA = x29+16 without its signature; x29 = [CFA-16]"),
        ],
    );
}

/// The row at a landing pad of a function without a frame pointer: nothing falls into it, and its frame is that of the call which threw.
#[test]
fn t5_a_landing_pad_has_the_frame_of_the_call_that_threw() {
    // push rbx; sub rsp, 16; call; add rsp, 16; pop rbx; ret; then the pad: mov rdi, rax; call; ud2
    let code = [
        &[0x53, 0x48, 0x83, 0xec, 0x10, 0xe8, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x10, 0x5b, 0xc3][..],
        &[0x48, 0x89, 0xc7, 0xe8, 0, 0, 0, 0, 0x0f, 0x0b],
    ]
    .concat();
    let end = CODE + code.len() as u32;
    // Frame of four words, rbx alone.
    check(
        Arch::X86_64,
        &code,
        &[(CODE, 0x0204_0400), (end, 0)],
        &[
            (0, Instructions, "CFA = rsp+8"),
            (1, Instructions, "CFA = rsp+16"),
            (5, CompactUnwind, "CFA = rsp+32"),
            (14, Instructions, "CFA = rsp+16"),
            (15, Instructions, "CFA = rsp+8"),
            (16, CompactUnwind, "CFA = rsp+32"),
        ],
    );
}

/// Several pages, each with encodings of its own behind those that are common, and a regular page between compressed ones.
#[test]
fn t5_each_page_numbers_its_own_encodings_behind_the_common_ones() {
    let frames = |words: u32| 0x0200_0000 | words << 16;
    let common = [frames(2), frames(3)];
    // Functions of 16 bytes: by page, whether it is compressed, the encodings and the page's own.
    let pages: [(bool, &[u32]); 3] = [
        (true, &[frames(2), frames(5), frames(3), frames(6)]),
        (false, &[frames(7), frames(3)]),
        (true, &[frames(8), frames(2)]),
    ];
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut bodies = Vec::new();
    let (mut index, mut start, mut at) = (Vec::new(), CODE, 28 + 8 + 12 * 4);
    let mut expected = Vec::new();
    for (compressed, encodings) in pages {
        index.extend([start, at, 0]);
        let own: Vec<u32> = encodings.iter().copied().filter(|encoding| !common.contains(encoding)).collect();
        let count = encodings.len() as u32;
        let mut body = Vec::new();
        if compressed {
            body.extend(words(&[3, 12 | count << 16, (12 + 4 * count) | (own.len() as u32) << 16]));
            for (function, encoding) in (0..).zip(encodings) {
                let number = common.iter().chain(&own).position(|known| known == encoding).expect("a number") as u32;
                body.extend(words(&[(16 * function) | (number << 24)]));
            }
            body.extend(words(&own));
        } else {
            body.extend(words(&[2, 8 | count << 16]));
            for (function, encoding) in (0..).zip(encodings) {
                body.extend(words(&[start + 16 * function, *encoding]));
            }
        }
        for encoding in encodings {
            expected.push((u64::from(start - CODE), format!("CFA = rsp+{}", 8 * (encoding >> 16 & 0xff))));
            start += 16;
        }
        at += body.len() as u32;
        bodies.extend(body);
    }
    index.extend([start, 0, 0]);
    let mut section = words(&[1, 28, 2, 36, 0, 36, 4]);
    section.extend(words(&common));
    section.extend(words(&index));
    section.extend(bodies);
    let code = vec![0x90; (start - CODE) as usize];
    let compiled = compile_with(Arch::X86_64, &code, &section, &[], &[]);
    assert_eq!((compiled.report.damaged_entries, compiled.report.unwind_entries), (0, 8), "{:?}", compiled.report);
    let found: Vec<(u64, String)> = rows(Arch::X86_64, &compiled).into_iter().map(|(at, _, rule)| (at, rule)).collect();
    assert_eq!(found, expected);
    // A number behind all of them says nothing, of its page.
    let first = section.len() - section.get(28 + 8 + 48..).expect("pages").len() + 12;
    section[first + 3] = 9;
    let compiled = compile_with(Arch::X86_64, &code, &section, &[], &[]);
    assert_eq!(compiled.report.damaged_entries, 1);
}

#[test]
fn t5_functions_of_one_description_that_the_linker_joined_are_told_apart_by_their_starts() {
    // Twice: test edi, edi; je (to ret); push rbx; nop; pop rbx; ret.
    let one = [0x85, 0xff, 0x74, 0x03, 0x53, 0x90, 0x5b, 0xc3];
    let code = [one, one].concat();
    let starts = [0, 8].map(|at| BASE + u64::from(CODE) + at);
    let info = section(&[(CODE, 0x0202_0400), (CODE + 16, 0)], false);
    let compiled = compile_with(Arch::X86_64, &code, &info, &starts, &[]);
    let found: Vec<_> = rows(Arch::X86_64, &compiled).into_iter().map(|(at, _, rule)| (at, rule)).collect();
    let (outside, inside) = (String::from("CFA = rsp+8"), String::from("CFA = rsp+16"));
    assert_eq!(found, [(0, outside.clone()), (5, inside.clone()), (7, outside.clone()), (13, inside), (15, outside)]);
}

#[test]
fn t5_a_function_that_lacks_its_dwarf_entry_is_a_gap_with_a_reason() {
    for (arch, encoding) in [(Arch::X86_64, 0x0400_0020), (Arch::Aarch64, 0x0300_0020)] {
        let compiled = compile_with(
            arch,
            &[0x1f, 0x20, 0x03, 0xd5],
            &section(&[(CODE, encoding), (CODE + 4, 0)], false),
            &[],
            &[],
        );
        let reason = "compact unwind information: a function without the DWARF entry that it is said to have";
        assert_eq!(compiled.report.unsupported_reasons.get(reason), Some(&1), "{:?}", compiled.report);
    }
}

#[test]
fn t5_stubs_have_the_frame_of_their_callers() {
    // jmp [rip + x], twice; adrp x16; ldr x16, [x16]; br x16
    let stubs: [(Arch, Vec<u8>, u64); 2] = [
        (Arch::X86_64, [0xff, 0x25, 0, 0, 0, 0].repeat(2), 6),
        (
            Arch::Aarch64,
            [0x9000_0010u32, 0xf940_0210, 0xd61f_0200].iter().flat_map(|word| word.to_le_bytes()).collect(),
            12,
        ),
    ];
    for (arch, code, entry_size) in stubs {
        let start = BASE + u64::from(CODE);
        let plt = Plt { range: start..start + code.len() as u64, entry_size, bytes: &code };
        let compiled = compile_with(arch, &code, &[], &[], &[plt]);
        let found = rows(arch, &compiled);
        let expected = if arch == Arch::X86_64 { "CFA = rsp+8" } else { "CFA = sp+0; RA = x30" };
        assert_eq!(found, [(0, RuleSource::Plt, String::from(expected))]);
    }
}
