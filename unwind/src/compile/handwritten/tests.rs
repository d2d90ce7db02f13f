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
