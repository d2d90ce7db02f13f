//! The known traps of 32-bit MIPS whose functions are followed by their instructions.

use crate::cfi::{self, BIAS_32, EhFrame, Process, advance, cfa_offset, saved};
use symseal_module::{Avma, Rva, StopReason};
use symseal_unwind::compile::{Compiled, Input, compile};
use symseal_unwind::{Arch, Registers, StackBytes, Table};

const MIPS: [Arch; 2] = [Arch::Mips32, Arch::Mips32Little];
const START: u64 = 0x1000;
const SP: u64 = 0x7fff_0000;

/// Words in the order of the target.
fn words(arch: Arch, words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| if arch.is_big_endian() { word.to_be_bytes() } else { word.to_le_bytes() }).collect()
}

fn followed(arch: Arch, code: &[u32], pdr: Option<&[u8]>) -> Compiled {
    let (bytes, id) = (words(arch, code), cfi::debug_id());
    let functions = [START];
    let functions = if pdr.is_some() { &[][..] } else { &functions };
    compile(&Input { arch, functions, pdr, code: &[(START, &bytes)], ..cfi::empty_input(&id) }).expect("a table")
}

/// The rules by number of the instruction.
#[track_caller]
fn check(arch: Arch, code: &[u32], expected: &[&str]) {
    let compiled = followed(arch, code, None);
    assert_eq!(compiled.report.unfollowed.len(), 0, "{:?}", compiled.report.unfollowed);
    let table = Table::open(&compiled.bytes).expect("a table");
    let rule = |at: usize| table.rule(Rva(START + 4 * at as u64)).expect("code").display(arch).to_string();
    let found: Vec<String> = (0..code.len()).map(rule).collect();
    assert_eq!(found, expected, "{arch}");
}

/// What stands in the delay slot of a branch that is likely happens only if it is taken: here the frame is given back on the way out, and stays behind the branch.
#[test]
fn t10_the_delay_slot_of_a_likely_branch_counts_only_where_it_leads() {
    let code = [
        0x27bd_ffe0, // addiu $sp, $sp, -32
        0xafbf_001c, // sw $ra, 28($sp)
        0x5080_0004, // beqzl $a0, to the last two
        0x27bd_0020, // addiu $sp, $sp, 32
        0x8fbf_001c, // lw $ra, 28($sp)
        0x03e0_0008, // jr $ra
        0x27bd_0020, // addiu $sp, $sp, 32
        0x03e0_0008, // jr $ra
        0x0000_0000,
    ];
    let (entry, made, saved) = ("CFA = sp+0; RA = ra", "CFA = sp+32; RA = ra", "CFA = sp+32; RA = [CFA-4]");
    for arch in MIPS {
        check(arch, &code, &[entry, made, saved, saved, saved, saved, saved, entry, entry]);
        // The same branch without `likely` gives the frame back on both ways: then the rest of the function has another one.
        let mut plain = code;
        plain[2] = 0x1080_0004;
        let table = followed(arch, &plain, None).bytes;
        let rule = |at: u64| {
            Table::open(&table).expect("a table").rule(Rva(START + 4 * at)).expect("code").display(arch).to_string()
        };
        assert_ne!(rule(4), saved, "{arch}");
    }
}

/// A function that keeps its frame in `$30` and moves the stack pointer about; `.pdr` says so too.
#[test]
fn t10_a_frame_that_is_counted_from_its_frame_register() {
    let code = [
        0x27bd_ffd8, // addiu $sp, $sp, -40
        0xafbf_0024, // sw $ra, 36($sp)
        0xafbe_0020, // sw $fp, 32($sp)
        0x03a0_f025, // move $fp, $sp
        0x03a4_e823, // subu $sp, $sp, $a0
        0x0320_f809, // jalr $t9
        0x0000_0000,
        0x03c0_e825, // move $sp, $fp
        0x8fbf_0024, // lw $ra, 36($sp)
        0x8fbe_0020, // lw $fp, 32($sp)
        0x03e0_0008, // jr $ra
        0x27bd_0028, // addiu $sp, $sp, 40
    ];
    for arch in MIPS {
        for pdr in [None, Some(words(arch, &[START as u32, 0xc000_0000, 0xffff_fffc, 0, 0, 40, 30, 31]))] {
            let compiled = followed(arch, &code, pdr.as_deref());
            assert_eq!(compiled.report.unfollowed.len(), 0, "{:?}", compiled.report.unfollowed);
            let process = Process::new(&compiled.bytes);
            // In the body, with the stack pointer anywhere below; the frame begins at SP.
            let mut stack = [0; 64];
            stack[8..12].copy_from_slice(&[0x7770, 0, 0, 0]);
            let frame = 16;
            (stack[frame + 8], stack[frame + 9]) = (0x7770, (BIAS_32 + START + 4 * 7) as u32);
            let stack = words(arch, &stack);
            let memory = StackBytes { start: Avma(SP), bytes: &stack };
            let fp = SP + 4 * frame as u64;
            let registers = Registers { pc: BIAS_32 + START + 4 * 6, sp: SP, fp, ..Registers::default() };
            let (frames, walk) = process.walk(&registers, &memory);
            assert!(walk.frames >= 2 && walk.stop != StopReason::EndOfStack, "{arch}: {walk:?}");
            assert_eq!((frames[0].cfa, frames[1].fp), (Avma(fp + 40), 0x7770), "{arch}");
            assert_eq!(frames[1].pc, Avma(BIAS_32 + START + 4 * 7), "{arch}");
        }
    }
}

/// clang's call frame information counts from `$30` to the end of the function, which gives that back before the stack pointer.
#[test]
fn t5_once_the_frame_register_is_given_back_the_stack_pointer_tells_the_cfa() {
    let code = [
        0x27bd_ffd8, // addiu $sp, $sp, -40
        0xafbf_0024, // sw $ra, 36($sp)
        0xafbe_0020, // sw $fp, 32($sp)
        0x03a0_f025, // move $fp, $sp
        0x03a4_e823, // subu $sp, $sp, $a0
        0x0320_f809, // jalr $t9
        0x0000_0000,
        0x03c0_e825, // move $sp, $fp
        0x8fbe_0020, // lw $fp, 32($sp)
        0x8fbf_0024, // lw $ra, 36($sp)
        0x03e0_0008, // jr $ra
        0x27bd_0028, // addiu $sp, $sp, 40
    ];
    let saved_both = [saved(31, 1), saved(30, 2)].concat();
    for arch in MIPS {
        let bytes = words(arch, &code);
        let rules = |size: u8| {
            let mut section = EhFrame::on(arch, "zR", &[0x0c, 29, 0]);
            let made = [advance(4), cfa_offset(size), advance(8), saved_both.clone(), advance(4), vec![0x0d, 30]];
            section.fde(START, bytes.len() as u64, &made);
            let compiled = section.compile_with(&[(START, &bytes)]).bytes;
            let table = Table::open(&compiled).expect("a table");
            [4, 8, 9, 11].map(|at| table.rule(Rva(START + 4 * at)).expect("code").display(arch).to_string())
        };
        let of = |base: &str, size: u8| format!("CFA = {base}+{size}; RA = [CFA-4]; s8 = [CFA-8]");
        assert_eq!(rules(40), [of("s8", 40), of("s8", 40), of("sp", 40), of("sp", 40)], "{arch}");
        // What the instructions do not make counts to the end.
        assert_eq!(rules(48), [(); 4].map(|()| of("s8", 48)), "{arch}");
    }
}

/// LLVM reaches the slots of a frame that is larger than the distance in an instruction through `$at`, which no call keeps.
#[test]
fn t10_slots_that_the_assemblers_register_reaches_are_known() {
    let code = [
        0x3c01_0001, // lui $at, 1
        0x2421_9c68, // addiu $at, $at, -25496
        0x03a1_e823, // subu $sp, $sp, $at
        0x3c01_0001, // lui $at, 1
        0x03a1_0821, // addu $at, $sp, $at
        0xac3f_9c64, // sw $ra, -25500($at)
        0x0320_f809, // jalr $t9
        0x0000_0000,
        0xac3f_9c64, // sw $ra, -25500($at), which is anything behind the call
        0x3c01_0001, // lui $at, 1
        0x03a1_0821, // addu $at, $sp, $at
        0x8c3f_9c64, // lw $ra, -25500($at)
        0x3401_9c68, // li $at, 40040
        0x03e0_0008, // jr $ra
        0x03a1_e821, // addu $sp, $sp, $at
    ];
    let (entry, made, saved) = ("CFA = sp+0; RA = ra", "CFA = sp+40040; RA = ra", "CFA = sp+40040; RA = [CFA-4]");
    let expected = [&[entry; 3][..], &[made; 3], &[saved; 9]].concat();
    for arch in MIPS {
        check(arch, &code, &expected);
    }
}

/// Records that no linker filled in, as of object files and of functions that were discarded, have no content or an address that is none; one without a register of the return
/// address is of a function that nobody returns from. None of them speaks for code, and the instructions tell.
#[test]
fn t10_descriptors_without_content_or_of_no_code_speak_for_nothing() {
    let code = [0x27bd_ffe0, 0xafbf_001c, 0x0320_f809, 0, 0x8fbf_001c, 0x03e0_0008, 0x27bd_0020];
    for arch in MIPS {
        let (bytes, id) = (words(arch, &code), cfi::debug_id());
        let records = [
            [0, 0, 0, 0, 0, 0, 0, 0],
            [0, 0x8000_0000, 0xffff_fffc, 0, 0, 24, 29, 31],
            [START as u32 + 2, 0x8000_0000, 0xffff_fffc, 0, 0, 24, 29, 31],
            [0x9000_0000, 0x8000_0000, 0xffff_fffc, 0, 0, 24, 29, 31],
            [START as u32, 0, 0, 0, 0, 0, 0, 0],
        ];
        let pdr = words(arch, &records.concat());
        let input =
            Input { arch, functions: &[START], pdr: Some(&pdr), code: &[(START, &bytes)], ..cfi::empty_input(&id) };
        let compiled = compile(&input).expect("a table");
        assert_eq!(compiled.report.unfollowed.len(), 0, "{:?}", compiled.report);
        let table = Table::open(&compiled.bytes).expect("a table");
        let rule = |at: u64| table.rule(Rva(START + 4 * at)).expect("code").display(arch).to_string();
        assert_eq!([rule(0), rule(3)], ["CFA = sp+0; RA = ra", "CFA = sp+32; RA = [CFA-4]"], "{arch}");
    }
}
