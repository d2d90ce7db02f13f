//! Code that was made for a test: what is followed, and what is no function.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use symseal_module::DebugId;

use crate::Table;
use crate::arch::Arch;
use crate::compile::{Input, Report, compile};
use crate::rule::Kind;

const START: u64 = 0x1000;

/// The rules of the code, by where they begin, and the report; functions begin at these distances by symbols, and by pointers in data.
fn rules(code: &[u8], symbols: &[u64], data: &[u8]) -> (BTreeMap<u64, String>, Report) {
    let id = DebugId::from_build_id(&[1]).expect("an id");
    let functions: Vec<u64> = symbols.iter().map(|at| START + at).collect();
    let end = START + code.len() as u64;
    let text: Vec<_> = core::iter::once(START..end).collect();
    let input = Input {
        text: &text,
        code: &[(START, code)],
        loaded: &[(START, code), (0x8000, data)],
        functions: &functions,
        ..Input::of(Arch::X86_64, &id)
    };
    let compiled = compile(&input).expect("a table");
    let table = Table::open(&compiled.bytes).expect("our own table");
    let rules = table.rows().map(|(rva, rule, _)| {
        let is_gap = rule.kind() == Some(Kind::Gap);
        (rva.0 - START, if is_gap { String::from("-") } else { rule.display(Arch::X86_64).to_string() })
    });
    (rules.filter(|(at, _)| START + at < end).collect(), compiled.report)
}

fn check(code: &[u8], symbols: &[u64], expected: &[(u64, &str)]) {
    let (found, _) = rules(code, symbols, &[]);
    let found: Vec<(u64, &str)> = found.iter().map(|(at, rule)| (*at, rule.as_str())).collect();
    assert_eq!(found, expected, "{code:x?}");
}

const ENTERED: &str = "CFA = rsp+8; RA = [CFA-8]";

#[test]
fn a_frame_by_lea_and_another_by_leave_are_followed() {
    // push rbx; lea rsp, [rsp-32]; xor ebx, ebx; lea rsp, [rsp+32]; pop rbx; ret
    let code = [0x53, 0x48, 0x8d, 0x64, 0x24, 0xe0, 0x31, 0xdb, 0x48, 0x8d, 0x64, 0x24, 0x20, 0x5b, 0xc3];
    let pushed = "CFA = rsp+16; RA = [CFA-8]";
    // Only where rbx is another its slot counts.
    let deep = "CFA = rsp+48; RA = [CFA-8]";
    let expected = [(0, ENTERED), (1, pushed), (6, deep), (8, deep), (13, pushed), (14, ENTERED)];
    check(&code, &[0], &expected);
    // push rbp; mov rbp, rsp; and rsp, -64; leave; ret
    let code = [0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xc0, 0xc9, 0xc3];
    let saved = "CFA = rsp+16; RA = [CFA-8]; rbp = [CFA-16]";
    check(
        &code,
        &[0],
        &[(0, ENTERED), (1, pushed), (4, saved), (8, "CFA = rbp+16; RA = [CFA-8]; rbp = [CFA-16]"), (9, ENTERED)],
    );
}

#[test]
fn what_does_not_end_as_functions_do_has_no_rule() {
    for code in [
        // pop rax; jmp rax: the return address is taken
        &[0x58, 0xff, 0xe0][..],
        // push rbx; ret
        &[0x53, 0xc3],
        // xor ebx, ebx; ret: a register that calls keep is lost
        &[0x31, 0xdb, 0xc3],
        // mov [rsp], rax; ret: a thunk
        &[0x48, 0x89, 0x04, 0x24, 0xc3],
        // mov rsp, [rdi]; ret: another stack
        &[0x48, 0x8b, 0x27, 0xc3],
        // ret 8
        &[0xc2, 8, 0],
        // je +1; push rax; ret: paths meet with different stacks
        &[0x74, 1, 0x50, 0xc3],
        // An instruction that is none.
        &[0x06, 0xc3],
        // It goes on where there is no code.
        &[0x31, 0xc0],
        // jmp -1: into itself
        &[0xeb, 0xff, 0xc0, 0xc3],
    ] {
        let (found, report) = rules(code, &[0], &[]);
        assert_eq!(found.values().filter(|rule| *rule != "-").count(), 0, "{code:x?}: {found:?}");
        assert_eq!(report.unfollowed.values().sum::<usize>(), 1, "{code:x?}: {:?}", report.unfollowed);
    }
}

#[test]
fn what_could_not_be_followed_reaches_to_the_next_function() {
    // pop rax; jmp rax | mov rsp, [rdi]; ret | ret
    let code = [0x58, 0xff, 0xe0, 0x48, 0x8b, 0x27, 0xc3, 0xc3];
    let (_, report) = rules(&code, &[0, 3, 7], &[]);
    let ranges: Vec<_> = report.unfollowed_functions.iter().map(|one| one.range.clone()).collect();
    assert_eq!(ranges, [START..START + 3, START + 3..START + 7]);
}

#[test]
fn what_a_pointer_leads_to_is_held_to_how_it_ends() {
    // A function that pops what is not its own; behind padding one that makes a frame.
    let code = [&[0x5b, 0xc3][..], &[0x90; 14], &[0x53, 0x5b, 0xc3]].concat();
    let data = [START.to_le_bytes(), (START + 16).to_le_bytes()].concat();
    let (found, report) = rules(&code, &[], &data);
    let found: Vec<(u64, &str)> = found.iter().map(|(at, rule)| (*at, rule.as_str())).collect();
    assert_eq!(found, [(0, "-"), (16, ENTERED), (17, "CFA = rsp+16; RA = [CFA-8]"), (18, ENTERED)]);
    assert!(report.unfollowed.is_empty(), "{:?}", report.unfollowed);
}

#[test]
fn code_that_two_functions_reach_with_different_frames_has_no_rule() {
    // push rbx; jmp +1 | 90 | (at 4) push rbx; push rbx; (at 6) pop rbx; ret: the first comes to the pop with one word, the second with two
    let code = [0x53, 0xeb, 0x02, 0x90, 0x53, 0x5b, 0xc3];
    let (found, _) = rules(&code, &[0, 4], &[]);
    assert_eq!(found.get(&5).map(String::as_str), Some("CFA = rsp+16; RA = [CFA-8]"));
    // add rsp, 8; ret, to which one function falls with a word pushed and the other jumps with none
    let code = [0x50, 0x48, 0x83, 0xc4, 0x08, 0xc3];
    let (found, _) = rules(&code, &[0, 1], &[]);
    assert_eq!(found.get(&1).map(String::as_str), Some("CFA = rsp+16; RA = [CFA-8]"));
}

#[test]
fn functions_that_overlap_are_not_followed_for_ever() {
    // One instruction each, and each goes on through all that follow.
    let mut code = Vec::from([0x90; 1 << 14]);
    code.push(0xc3);
    let symbols: Vec<u64> = (0..1 << 14).collect();
    let (_, report) = rules(&code, &symbols, &[]);
    assert!(report.unfollowed.contains_key(super::EXHAUSTED), "{:?}", report.unfollowed);
}

#[test]
fn a_register_that_is_unchanged_is_not_read_from_a_slot() {
    // push rbp; call *rax; pop rcx; ret: rbp is an argument, which belongs to what is called
    check(&[0x55, 0xff, 0xd0, 0x59, 0xc3], &[0], &[(0, ENTERED), (1, "CFA = rsp+16; RA = [CFA-8]"), (4, ENTERED)]);
}

#[test]
fn pushes_and_pops_of_memory_count_what_they_move() {
    for code in [
        // pushw (%rdi); nop; popw (%rsi); ret
        &[0x66, 0xff, 0x37, 0x90, 0x66, 0x8f, 0x06, 0xc3][..],
        // push %rdi; pop (%rsp); ret: another return address
        &[0x57, 0x8f, 0x04, 0x24, 0xc3],
        // push %rbx; xor %ebx, %ebx; push %rdi; pop (%rsp); pop %rbx; ret: the saved register is written over
        &[0x53, 0x31, 0xdb, 0x57, 0x8f, 0x04, 0x24, 0x5b, 0xc3],
    ] {
        let (found, _) = rules(code, &[0], &[]);
        assert_eq!(found.values().filter(|rule| *rule != "-").count(), 0, "{code:x?}: {found:?}");
    }
}

#[test]
fn a_stack_pointer_in_a_register_that_is_written_is_lost() {
    for code in [
        // mov %rsp, %rcx; and $-32, %rsp; pcmpistri $0, %xmm0, %xmm1; mov %rcx, %rsp; ret
        &[0x48, 0x89, 0xe1, 0x48, 0x83, 0xe4, 0xe0, 0x66, 0x0f, 0x3a, 0x63, 0xc8, 0, 0x48, 0x89, 0xcc, 0xc3][..],
        // mov %rsp, %rax; and $-32, %rsp; mov %cl, %ah; mov %rax, %rsp; ret
        &[0x48, 0x89, 0xe0, 0x48, 0x83, 0xe4, 0xe0, 0x88, 0xcc, 0x48, 0x89, 0xc4, 0xc3],
    ] {
        let (found, _) = rules(code, &[0], &[]);
        assert_eq!(found.values().filter(|rule| *rule != "-").count(), 0, "{code:x?}: {found:?}");
    }
}

/// Of the rule that holds there.
fn at(found: &BTreeMap<u64, String>, address: u64) -> &str {
    found.range(..=address).next_back().map_or("-", |(_, rule)| rule)
}

const PUSHED: &str = "CFA = rsp+16; RA = [CFA-8]";

#[test]
fn a_call_that_does_not_return_is_no_way_into_the_next_function() {
    // test %edi, %edi; js 1f; mov %edi, %eax; ret; 1: push %rax; call *%rcx; padding | g: sub $24, %rsp; call *%rcx; ud2
    let code = [0x85, 0xff, 0x78, 3, 0x89, 0xf8, 0xc3, 0x50, 0xff, 0xd1, 0x66, 0x0f, 0x1f, 0x44, 0, 0];
    let code = [&code[..], &[0x48, 0x83, 0xec, 0x18, 0xff, 0xd1, 0x0f, 0x0b]].concat();
    for symbols in [&[0, 16][..], &[0]] {
        let (found, _) = rules(&code, symbols, &[]);
        assert_eq!([0, 8, 16, 20, 22].map(|address| at(&found, address)), [ENTERED, PUSHED, "-", "-", "-"]);
    }
    // The same without padding: test %edi, %edi; js 1f; ret; 1: push %rax; call *%rcx | g: sub $24, %rsp; call *%rcx; ud2
    let code = [0x85, 0xff, 0x78, 1, 0xc3, 0x50, 0xff, 0xd1, 0x48, 0x83, 0xec, 0x18, 0xff, 0xd1, 0x0f, 0x0b];
    let (found, _) = rules(&code, &[0, 8], &[]);
    assert_eq!([0, 6, 8, 12, 14].map(|address| at(&found, address)), [ENTERED, PUSHED, "-", "-", "-"]);
    // push %rbx; call *%rcx; padding; 1: dec %ebx; jnz 1b; pop %rbx; ret: a loop is aligned too
    let code = [0x53, 0xff, 0xd1, 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0, 0x66, 0x90];
    let code = [&code[..], &[0xff, 0xcb, 0x75, 0xfc, 0x5b, 0xc3]].concat();
    let (found, _) = rules(&code, &[0], &[]);
    assert_eq!([0, 1, 16, 20, 21].map(|address| at(&found, address)), [ENTERED, PUSHED, PUSHED, PUSHED, ENTERED]);
}

#[test]
fn what_others_say_of_a_function_that_was_not_followed_does_not_count() {
    // push %rax; jmp 1f | g: sub $24, %rsp; ud2; 1: pop %rax; ret: g has no end, and its last instructions are said to be the first one's
    let code = [0x50, 0xeb, 0x06, 0x48, 0x83, 0xec, 0x18, 0x0f, 0x0b, 0x58, 0xc3];
    let (found, _) = rules(&code, &[0], &[]);
    assert_eq!([0, 1, 9, 10].map(|address| at(&found, address)), [ENTERED, PUSHED, PUSHED, ENTERED]);
    let (found, _) = rules(&code, &[0, 3], &[]);
    assert_eq!([0, 1, 9, 10].map(|address| at(&found, address)), [ENTERED, PUSHED, "-", "-"]);
}

#[test]
fn a_helper_that_may_return_with_another_stack_leaves_nothing_known() {
    // push %rbp; mov %rsp, %rbp; call alloc; lea (%rsp), %rdi; leave; ret
    let caller = [0x55, 0x48, 0x89, 0xe5, 0xe8, 6, 0, 0, 0, 0x48, 0x8d, 0x3c, 0x24, 0xc9, 0xc3];
    let none_behind = |helper: &[u8]| {
        let code = [&caller, helper, &[0x90; 64], &[0xc3]].concat();
        // Both are called, so that the caller need not have an end.
        let (found, _) = rules(&code, &[0], &[]);
        assert_eq!([9, 13, 14].map(|address| at(&found, address)), ["-"; 3], "{helper:x?}: {found:?}");
    };
    // mov (%rsp), %rax; test %edi, %edi; jz 1f; lea -64(%rsp), %rsp; jmp *%rax; 1: ret
    none_behind(&[0x48, 0x8b, 4, 0x24, 0x85, 0xff, 0x74, 7, 0x48, 0x8d, 0x64, 0x24, 0xc0, 0xff, 0xe0, 0xc3]);
    // test %edi, %edi; jz 1f; lea -64(%rsp), %rsp; jmp *%rsi; 1: ret
    none_behind(&[0x85, 0xff, 0x74, 7, 0x48, 0x8d, 0x64, 0x24, 0xc0, 0xff, 0xe6, 0xc3]);
    // test %edi, %edi; jz 1f; ret; 1: xor %ebx, %ebx; jmp *%rsi: %rbx may be lost, which the caller has to keep
    none_behind(&[0x85, 0xff, 0x74, 1, 0xc3, 0x31, 0xdb, 0xff, 0xe6]);
}

#[test]
fn what_is_read_of_a_neighbouring_table_is_no_frame() {
    // f: lea base(%rip), %rax; movslq (%rax, %rdi, 4), %rcx; add %rax, %rcx; jmp *%rcx; a0: xor %eax, %eax; ret; a1: push %rbx; lea base(%rip), %rax;
    // movslq 8(%rax, %rsi, 4), %rcx; add %rax, %rcx; jmp *%rcx; b0: pop %rbx; ret; b1: nop; call *%rcx; ud2 | base: a0, a1; b0, b1
    let code = [
        0x48, 0x8d, 5, 0xf9, 0x6f, 0, 0, 0x48, 0x63, 0x0c, 0xb8, 0x48, 1, 0xc1, 0xff, 0xe1, 0x31, 0xc0, 0xc3, 0x53,
        0x48, 0x8d, 5, 0xe5, 0x6f, 0, 0, 0x48, 0x63, 0x4c, 0xb0, 8, 0x48, 1, 0xc1, 0xff, 0xe1, 0x5b, 0xc3, 0x90, 0xff,
        0xd1, 0x0f, 0x0b,
    ];
    let data = [0x10, 0x90, 0xff, 0xff, 0x13, 0x90, 0xff, 0xff, 0x25, 0x90, 0xff, 0xff, 0x27, 0x90, 0xff, 0xff];
    let (found, _) = rules(&code, &[0], &data);
    assert_eq!(at(&found, 0xe), ENTERED);
    assert_eq!([0x27, 0x28, 0x2a].map(|address| at(&found, address)), ["-"; 3], "{found:?}");
    // f: push %rbp; mov %rsp, %rbp; lea base(%rip), %rax; movslq (%rax, %rdi, 4), %rcx; add %rax, %rcx; jmp *%rcx; x: sub $32, %rsp;
    // movslq 4(%rax, %rsi, 4), %rcx; add %rax, %rcx; jmp *%rcx; y: lea (%rsp), %rdi; leave; ret | base: x; y
    let code = [
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x8d, 5, 0xf5, 0x6f, 0, 0, 0x48, 0x63, 0x0c, 0xb8, 0x48, 1, 0xc1, 0xff, 0xe1,
        0x48, 0x83, 0xec, 0x20, 0x48, 0x63, 0x4c, 0xb0, 4, 0x48, 1, 0xc1, 0xff, 0xe1, 0x48, 0x8d, 0x3c, 0x24, 0xc9,
        0xc3,
    ];
    let data = [0x14, 0x90, 0xff, 0xff, 0x22, 0x90, 0xff, 0xff];
    let (found, _) = rules(&code, &[0], &data);
    assert_eq!([0, 1].map(|address| at(&found, address)), [ENTERED, PUSHED], "{found:?}");
    let y = code.len() as u64 - 6;
    assert_eq!([y, y + 4, y + 5].map(|address| at(&found, address)), ["-"; 3], "{found:?}");
}

#[test]
fn a_block_that_is_split_often_is_not_moved_each_time() {
    // nops; then je to each of many of them from the last to the first; ret
    const NOPS: usize = 10_000;
    const JUMPS: usize = 6_000;
    let mut code = Vec::from([0x90; NOPS]);
    for target in (0..JUMPS).rev() {
        code.extend([0x0f, 0x84]);
        let next = code.len() + 4;
        code.extend((target as i32 - next as i32).to_le_bytes());
    }
    code.push(0xc3);
    let (found, report) = rules(&code, &[0], &[]);
    assert_eq!(found.iter().map(|(at, rule)| (*at, rule.as_str())).collect::<Vec<_>>(), [(0, ENTERED)]);
    assert!(report.unfollowed.is_empty(), "{:?}", report.unfollowed);
}

#[test]
fn a_helper_that_goes_on_by_a_jump_as_calls_do_keeps_what_calls_keep() {
    // push rbp; mov rbp, rsp; call +2; pop rbp; ret | test rax, rax; je +2; jmp *rax; ret
    let code = [0x55, 0x48, 0x89, 0xe5, 0xe8, 2, 0, 0, 0, 0x5d, 0xc3, 0x48, 0x85, 0xc0, 0x74, 2, 0xff, 0xe0, 0xc3];
    let (found, _) = rules(&code, &[0], &[]);
    assert!(found.values().all(|rule| rule != "-"), "{found:?}");
    // The same with rbx written before the jump.
    let code = [0x55, 0x48, 0x89, 0xe5, 0xe8, 2, 0, 0, 0, 0x5d, 0xc3, 0x31, 0xdb, 0x74, 2, 0xff, 0xe0, 0xc3];
    let (found, _) = rules(&code, &[0], &[]);
    assert_eq!(found.get(&0).map(String::as_str), Some("-"), "{found:?}");
}
