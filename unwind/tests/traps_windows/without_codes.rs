//! `x86_64-xlate.pl` of OpenSSL: entries that have a handler and say nothing of the frame.

use super::*;

const HANDLER: [u8; 8] = [9, 0, 0, 0, 0, 0x10, 0, 0];
/// `AES_encrypt` of OpenSSL 3 up to its end, but for what it does to its data.
const HOME: [u8; 13] = [0x48, 0x89, 0x7c, 0x24, 8, 0x48, 0x89, 0x74, 0x24, 16, 0x48, 0x89, 0xe0];

#[test]
fn what_asks_where_it_runs_has_pushed_that() {
    // sub rsp, 40; call to the next instruction; pop rax; add rsp, 40; ret
    let code = [0x48, 0x83, 0xec, 40, 0xe8, 0, 0, 0, 0, 0x58, 0x48, 0x83, 0xc4, 40, 0xc3];
    let mut made = Made::default();
    made.function(&code, &HANDLER);
    let expected = [
        (0, String::from("CFA = rsp+8 ")),
        (4, String::from("CFA = rsp+48 ")),
        (9, String::from("CFA = rsp+56 ")),
        (10, String::from("CFA = rsp+48 ")),
        (14, String::from("CFA = rsp+8 ")),
    ];
    assert_eq!(with_slots(&made), expected, "{:?}", made.compile().report);
}

#[test]
fn wherever_the_stack_is_aligned() {
    let code = [
        // mov rdi, rcx; mov rsi, rdx; mov rdx, r8; endbr64; mov rax, rsp
        &[0x48, 0x89, 0xcf, 0x48, 0x89, 0xd6, 0x4c, 0x89, 0xc2, 0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xe0][..],
        // push rbx, rbp, r12 to r15
        &[0x53, 0x55, 0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57],
        // lea rcx, [rdx - 63]; and rsp, -64; sub rcx, rsp; neg rcx; and rcx, 0x3c0; sub rsp, rcx; sub rsp, 32
        &[0x48, 0x8d, 0x4a, 0xc1, 0x48, 0x83, 0xe4, 0xc0, 0x48, 0x29, 0xe1, 0x48, 0xf7, 0xd9],
        &[0x48, 0x81, 0xe1, 0xc0, 3, 0, 0, 0x48, 0x29, 0xcc, 0x48, 0x83, 0xec, 0x20],
        // mov [rsp + 16], rsi; mov [rsp + 24], rax; mov eax, [rdi]; lea rbp, [r15 + r13]
        &[0x48, 0x89, 0x74, 0x24, 16, 0x48, 0x89, 0x44, 0x24, 24, 0x8b, 0x07, 0x4b, 0x8d, 0x2c, 0x2f],
        // call elsewhere; mov r9, [rsp + 16]; mov rsi, [rsp + 24]
        &[0xe8, 0, 0, 1, 0, 0x4c, 0x8b, 0x4c, 0x24, 16, 0x48, 0x8b, 0x74, 0x24, 24],
        // mov r15, [rsi - 48] and so on; mov rbp, [rsi - 16]; mov rbx, [rsi - 8]; lea rsp, [rsi]
        &[0x4c, 0x8b, 0x7e, 0xd0, 0x4c, 0x8b, 0x76, 0xd8, 0x4c, 0x8b, 0x6e, 0xe0, 0x4c, 0x8b, 0x66, 0xe8],
        &[0x48, 0x8b, 0x6e, 0xf0, 0x48, 0x8b, 0x5e, 0xf8, 0x48, 0x8d, 0x26],
        // mov rdi, [rsp + 8]; mov rsi, [rsp + 16]; repz ret
        &[0x48, 0x8b, 0x7c, 0x24, 8, 0x48, 0x8b, 0x74, 0x24, 16, 0xf3, 0xc3],
    ];
    let mut made = Made::default();
    made.code(&HOME);
    made.function(&code.concat(), &HANDLER);
    let home = "4@1 5@0";
    let pushed = "3@-2 4@1 5@0 12@-4 13@-5 14@-6 15@-7";
    let saved = |cfa: &str| format!("CFA = {cfa}; rbp = [CFA-24] {pushed}");
    let expected = [
        (0, String::from("a leaf: CFA = rsp+8 ")),
        (13, format!("CFA = rsp+8 {home}")),
        (30, format!("CFA = rsp+16 3@-2 {home}")),
        (31, format!("CFA = rsp+24; rbp = [CFA-24] 3@-2 {home}")),
        (33, format!("CFA = rsp+32; rbp = [CFA-24] 3@-2 {home} 12@-4")),
        (35, format!("CFA = rsp+40; rbp = [CFA-24] 3@-2 {home} 12@-4 13@-5")),
        (37, format!("CFA = rsp+48; rbp = [CFA-24] 3@-2 {home} 12@-4 13@-5 14@-6")),
        (39, saved("rsp+56")),
        (47, saved("rax+8")),
        // The value that rax is loaded with is none of these.
        (79, saved("program at 0")),
        (98, saved("rsi+8")),
        (125, format!("CFA = rsp+8 {home}")),
    ];
    let found = with_slots(&made);
    assert_eq!(found, expected, "{:?}", made.compile().report);
}

#[test]
fn wherever_its_size_is_fixed() {
    // push r12; push r13; nop; mov r13, [rsp]; mov r12, [rsp + 8]; lea rsp, [rsp + 16]; mov rdi, [rsp + 8]; mov rsi, [rsp + 16]; repz ret
    let code = [
        &[0x41, 0x54, 0x41, 0x55, 0x90, 0x4c, 0x8b, 0x2c, 0x24, 0x4c, 0x8b, 0x64, 0x24, 8][..],
        &[0x48, 0x8d, 0x64, 0x24, 16, 0x48, 0x8b, 0x7c, 0x24, 8, 0x48, 0x8b, 0x74, 0x24, 16, 0xf3, 0xc3],
    ];
    let mut made = Made::default();
    made.code(&HOME);
    made.function(&code.concat(), &HANDLER);
    let expected = [
        (0, "a leaf: CFA = rsp+8 "),
        (13, "CFA = rsp+8 4@1 5@0"),
        (15, "CFA = rsp+16 4@1 5@0 12@-2"),
        (17, "CFA = rsp+24 4@1 5@0 12@-2 13@-3"),
        (32, "CFA = rsp+8 4@1 5@0"),
    ];
    let found = with_slots(&made);
    assert_eq!(found.iter().map(|(at, rule)| (*at, rule.as_str())).collect::<Vec<_>>(), expected);
}

#[test]
fn and_where_they_do_not_there_is_a_gap_with_a_reason() {
    // push rbx; sub rsp, rcx; call; lea rsp, [rsi]; nop; ret
    let code = [0x53, 0x48, 0x29, 0xc8, 0x48, 0x29, 0xcc, 0xe8, 0, 0, 0, 0, 0x48, 0x8d, 0x26, 0x90, 0xc3];
    let mut made = Made::default();
    made.function(&code, &HANDLER);
    made.check(&[
        (0, "CFA = rsp+8"),
        (1, "CFA = rsp+16"),
        (7, "information of an unsupported form"),
        // A return is where the CFA is.
        (15, "CFA = rsp+8"),
    ]);
    let report = made.compile().report;
    let reason = "exception directory: no unwind code for a frame that the instructions do not tell";
    assert_eq!(report.unsupported_reasons.get(reason), Some(&1));
}

#[test]
fn and_nothing_where_two_entries_speak_of_the_same_code() {
    let mut made = Made::default();
    // push rbx; nop; pop rbx; ret; and an entry that begins within and reaches further: push rbx; pop rbx; ret
    let (begin, end) = made.function(&[0x53, 0x90, 0x5b, 0xc3], &HANDLER);
    made.code(&[0x53, 0x5b, 0xc3]);
    let info = made.xdata(&HANDLER);
    made.entry((begin + 1, end + 3), info);
    let gap = "information of an unsupported form";
    made.check(&[(0, "CFA = rsp+8"), (1, "CFA = rsp+16"), (3, "CFA = rsp+8"), (4, gap)]);
    let reason = "exception directory: no unwind code for a frame, and more than one entry for its code";
    assert_eq!(made.compile().report.unsupported_reasons.get(reason), Some(&1));
}

#[test]
fn but_a_leaf_is_one() {
    let mut made = Made::default();
    // jmp [rax + 8 * rcx]; what only a switch leads to; ret
    made.function(&[0xff, 0x24, 0xc8, 0x90, 0x31, 0xc0, 0xc3], &HANDLER);
    made.check(&[(0, "CFA = rsp+8")]);
}
