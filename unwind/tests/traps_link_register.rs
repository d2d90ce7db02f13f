//! The known traps of unwinding on processors whose calls leave the return address in a register: aarch64, and 32-bit MIPS of
//! both byte orders.

use crate::cfi;
use crate::cfi::{BIAS_32, EhFrame, Process, Words, advance, at, cfa_offset, saved};
use crate::elf;
use symseal_module::{Avma, Rva, StopReason, UnwindMethod};
use symseal_unwind::compile::{Input, compile};
use symseal_unwind::{Arch, Cache, Frame, Kind, Modules, Registers, ReturnAddress, StackBytes, Table, unwind};

pub(super) const SP: u64 = 0x7fff_0000;
const LINK: usize = 30;

/// CFA = sp at the entry of a function, by the number of the stack pointer.
const AT_ENTRY: &[u8] = &[0x0c, 31, 0];
const AT_ENTRY_MIPS: &[u8] = &[0x0c, 29, 0];

/// DW_CFA_undefined for the return address.
pub(super) fn end(column: u8) -> Vec<u8> {
    vec![0x07, column]
}

/// A return address that is still signed is no address, and the frame pointer does not lead on from there.
#[test]
fn t9_no_frame_pointer_leads_on_from_what_is_no_address() {
    let table = three_functions().compile().bytes;
    let mut code = vec![0; 0x100];
    // bl before 0x1044
    code[0x40..0x44].copy_from_slice(&0x9400_0001_u32.to_le_bytes());
    let process = Process::with_code(&table, Some((0x1000, &code)));
    let walk = |returns_to: u64| {
        let stack: Vec<u8> =
            [SP + 32, returns_to, 0, 0, 0x77, at(0x1044)].iter().flat_map(|word| word.to_le_bytes()).collect();
        let memory = StackBytes { start: Avma(SP), bytes: &stack };
        let (frames, walk) = process.walk(&Registers { fp: SP, ..registers(0x1008, 0) }, &memory);
        (frames.len(), walk.stop)
    };
    // Made at run time.
    assert_eq!(walk(0x7fee_1234_5678), (3, StopReason::EndOfStack));
    assert_eq!(walk(0x0055_7fee_1234_5678), (2, StopReason::NoModule));
}

/// DW_CFA_AARCH64_negate_ra_state.
fn sign() -> Vec<u8> {
    vec![0x2d]
}

pub(super) fn registers(svma: u64, link: u64) -> Registers {
    let mut registers = Registers { pc: at(svma), sp: SP, fp: 0, ..Registers::default() };
    registers.general[LINK] = Some(at(link));
    registers
}

/// A function at 0x1000 that makes a frame of 32 bytes with a frame record at its bottom after four bytes, a leaf at 0x1020,
/// the end of the stack at 0x1040.
pub(super) fn three_functions() -> EhFrame {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &[advance(4), cfa_offset(32), saved(29, 4), saved(30, 3)]).fde(0x1020, 0x20, &[]).fde(
        0x1040,
        0x20,
        &[end(30)],
    );
    section
}

/// The last instruction of a function may be a call, on MIPS with what stands in its delay slot: the return address is the next function's first one, and any byte of the call
/// leads to the function that made it. What was interrupted there is the next function.
#[test]
fn t1_a_return_address_is_looked_up_within_the_call_and_its_delay_slot() {
    for arch in [Arch::Aarch64, Arch::Mips32, Arch::Mips32Little] {
        let (sp, link, bias) = if arch == Arch::Aarch64 { (31, 30, cfi::BIAS) } else { (29, 31, BIAS_32) };
        let mut section = EhFrame::on(arch, "zR", &[0x0c, sp, 0]);
        section.fde(0x1000, 0x10, &[cfa_offset(32), saved(link, 1)]).fde(0x1010, 0x10, &[cfa_offset(16)]);
        section.fde(0x1040, 0x20, &[end(link)]);
        let table = section.compile().bytes;
        let process = Process::new(&table);
        let stack = match arch.word_bytes() {
            8 => [0, 0, 0, bias + 0x1044].iter().flat_map(|word: &u64| word.to_le_bytes()).collect(),
            _ => words(arch, &[0, 0, 0, 0, 0, 0, 0, bias + 0x1044]),
        };
        let memory = StackBytes { start: Avma(SP), bytes: &stack };
        let registers = |pc: u64, link_to: u64| {
            let mut registers = Registers { pc: bias + pc, sp: SP, fp: 0, ..Registers::default() };
            registers.general[usize::from(link)] = Some(bias + link_to);
            registers
        };
        // From a leaf without a rule of its own frame, by the link register: to the end of the first function.
        let mut leaf = EhFrame::on(arch, "zR", &[0x0c, sp, 0]);
        leaf.fde(0x1000, 0x10, &[cfa_offset(32), saved(link, 1)]).fde(
            0x1010,
            0x10,
            &[cfa_offset(16), vec![0x07, link]],
        );
        leaf.fde(0x1020, 0x20, &[]).fde(0x1040, 0x20, &[end(link)]);
        let leaf = leaf.compile().bytes;
        let expected = (vec![0x1020, 0x1010, 0x1044], StopReason::EndOfStack);
        assert_eq!(Process::new(&leaf).pcs(&registers(0x1020, 0x1010), &memory), expected, "{arch}");
        // Interrupted at the same address, the second function has the frame: its return address is in the link register still.
        let (frames, _) = process.walk(&registers(0x1010, 0x1044), &memory);
        assert_eq!((frames[0].cfa, frames[1].pc), (Avma(SP + 16), Avma(bias + 0x1044)), "{arch}");
    }
}

#[test]
fn t6_an_omitted_return_address_is_still_in_the_link_register() {
    let table = three_functions().compile();
    assert_eq!(table.report.unsupported, []);
    let process = Process::new(&table.bytes);
    // From the leaf and from the first instruction of the other: nothing is saved yet.
    for leaf in [0x1024, 0x1000] {
        let (frames, walk) = process.walk(&registers(leaf, 0x1044), &Words::default());
        assert_eq!((walk.frames, walk.stop, frames[0].cfa), (2, StopReason::EndOfStack, Avma(SP)));
    }
    // A return address in the leaf: the register was used for another call since.
    let memory = Words::default().with(&[(SP, 0), (SP + 8, at(0x1024))]);
    let expected = (vec![0x1010, 0x1024], StopReason::StackNotRising);
    assert_eq!(process.pcs(&registers(0x1010, 0x1010), &memory), expected);
}

#[test]
fn t3_the_frame_record_is_read_where_the_rule_says_and_not_after_its_pop() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    let memory = Words::default().with(&[(SP, 0x7777), (SP + 8, at(0x1044))]);
    let (frames, walk) = process.walk(&registers(0x1010, 0x1010), &memory);
    assert_eq!((walk.stop, frames[0].cfa, frames[1].fp), (StopReason::EndOfStack, Avma(SP + 32), 0x7777));
}

/// LLVM's tables for arm64 name the slot of the return address up to the return, and say already that it is not signed while it is authenticated.
#[test]
fn t3_a_return_address_whose_slot_was_popped_is_in_the_link_register_whether_signed_or_not() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", AT_ENTRY);
    let pop = [advance(4), cfa_offset(0)].concat();
    section.fde(0x1000, 0x20, &[advance(4), cfa_offset(32), saved(29, 4), saved(30, 3), sign(), pop, sign()]).fde(
        0x1040,
        0x20,
        &[end(30)],
    );
    let table = section.compile().bytes;
    let process = Process::new(&table);
    // What was popped is written over, or still there.
    for popped in [0x1234, at(0x1044)] {
        let memory = Words::default().with(&[(SP - 32, 0x7777), (SP - 24, popped)]);
        for signature in [0, 0x0035_0000_0000_0000] {
            let mut registers = Registers { fp: 0x7777, ..registers(0x1008, 0) };
            registers.general[LINK] = Some(at(0x1044) | signature);
            let (frames, walk) = process.walk(&registers, &memory);
            assert_eq!((walk.frames, walk.stop), (2, StopReason::EndOfStack));
            assert_eq!((frames[0].cfa, frames[1].pc, frames[1].fp), (Avma(SP), Avma(at(0x1044)), 0x7777));
        }
        // A frame that called something has not popped its own.
        let memory = memory.with(&[(SP, 0), (SP + 8, at(0x100c))]);
        assert_eq!(process.pcs(&registers(0x1004, 0), &memory).1, StopReason::StackNotRising);
    }
}

#[test]
fn t9_a_signed_return_address_loses_its_signature_and_no_other_does() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &[advance(4), sign(), advance(4), cfa_offset(16), saved(29, 2), saved(30, 1)]).fde(
        0x1040,
        0x20,
        &[end(30)],
    );
    let compiled = section.compile();
    assert_eq!(compiled.report.unsupported, []);
    let process = Process::new(&compiled.bytes);
    let signature = 0x0035_0000_0000_0000;
    // Signed in the link register, then in memory; a signature of nothing where the rule says that there is none.
    let signed = |svma| {
        let mut registers = registers(svma, 0x1044);
        registers.general[LINK] = Some(at(0x1044) | signature);
        registers
    };
    let memory = Words::default().with(&[(SP, 0), (SP + 8, at(0x1044) | signature)]);
    let expected = |svma| (vec![svma, 0x1044], StopReason::EndOfStack);
    assert_eq!(process.pcs(&signed(0x1004), &Words::default()), expected(0x1004));
    assert_eq!(process.pcs(&signed(0x1010), &memory), expected(0x1010));
    assert_eq!(process.pcs(&signed(0x1000), &Words::default()).1, StopReason::NoModule);
    // The same deeper in the stack, where the short way goes.
    let memory = memory.with(&[(SP + 8, at(0x1010) | signature), (SP + 16, 0), (SP + 24, at(0x1044) | signature)]);
    assert_eq!(process.pcs(&signed(0x1010), &memory), (vec![0x1010, 0x1010, 0x1044], StopReason::EndOfStack));
}

/// Who starts a thread with no return address may have a first function that signs it like any other.
#[test]
fn t9_a_signed_zero_is_the_end_of_the_stack() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &[sign(), advance(4), cfa_offset(16), saved(29, 2), saved(30, 1)]);
    let table = section.compile().bytes;
    let process = Process::new(&table);
    let signature = 0x0035_0000_0000_0000;
    let memory =
        Words::default().with(&[(SP, 0), (SP + 8, at(0x1010) | signature), (SP + 16, 0), (SP + 24, signature)]);
    // By the short way from a return address, and by the long one from the exact frame.
    let expected = |pcs: &[u64]| (pcs.to_vec(), StopReason::RootFramePointer);
    assert_eq!(process.pcs(&registers(0x1010, 0), &memory), expected(&[0x1010, 0x1010]));
    let memory = Words::default().with(&[(SP, 0), (SP + 8, signature)]);
    assert_eq!(process.pcs(&registers(0x1010, 0), &memory), expected(&[0x1010]));
}

#[test]
fn t9_a_signature_over_the_signing_address_too_is_taken_away_like_any_other() {
    // DW_CFA_AARCH64_negate_ra_state_with_pc, and the same number as an operand.
    let instructions = [cfa_offset(0x2c), advance(4), vec![0x2c], saved(0x2c - 0x20, 0x2c)];
    let mut section = EhFrame::on(Arch::Aarch64, "zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &instructions);
    let compiled = section.compile();
    assert_eq!(compiled.report.unsupported, []);
    let table = Table::open(&compiled.bytes).expect("a table");
    let rule = |at| table.rule(symseal_module::Rva(at)).expect("code");
    assert!(!rule(0x1000).is_signed() && rule(0x1004).is_signed());
    assert_eq!(rule(0x1000).display(Arch::Aarch64).to_string(), "CFA = program at 0; RA = x30");
}

#[test]
fn t9_the_mask_of_the_capture_counts_and_a_kernel_address_keeps_its_upper_half() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &[sign()]);
    let table = section.compile().bytes;
    let mut registers = registers(0x1000, 0);
    let mut next = |link: u64, mask: Option<u64>| {
        let table = Table::open(&table).expect("a table");
        let module = symseal_unwind::Module {
            start: Avma(cfi::BIAS),
            end: Avma(at(0x3000)),
            bias: cfi::BIAS,
            image_base: symseal_module::Svma(0),
            table: Some(table),
            code: None,
        };
        let modules = Modules::new(Arch::Aarch64, vec![module]);
        let modules = match mask {
            Some(mask) => modules.with_signature_mask(mask),
            None => modules,
        };
        registers.general[LINK] = Some(link);
        let mut frames = [Frame::EMPTY; 4];
        let walk = unwind(&modules, &registers, &Words::default(), &mut Cache::new(), &mut frames);
        assert_eq!(walk.frames, 2);
        frames[1].pc.0
    };
    // Bit 47 is above every known address, and an address bit by the mask.
    let link = 0x0055_9000_0000_1234;
    assert_eq!(next(link, None), 0x1000_0000_1234);
    assert_eq!(next(link, Some(0x007f_0000_0000_0000)), 0x9000_0000_1234);
    assert_eq!(next(0x00a5_8000_1234_5678, Some(0x007f_0000_0000_0000)), 0xffff_8000_1234_5678);
}

/// A tag of memory tagging, and one of HWASan with the bit by which Swift marks frame pointers.
const TAGS: [u64; 2] = [0x0b << 56, 0x17 << 56];

#[test]
fn t9_a_tag_in_the_top_byte_is_no_part_of_where_stack_and_frame_pointer_lead() {
    let mut section = three_functions();
    // A frame counted from its frame pointer, which is that of its record.
    section.fde(0x1100, 0x20, &[vec![0x0c, 29, 32], saved(29, 4), saved(30, 3)]);
    let table = section.compile().bytes;
    let process = Process::new(&table);
    for tag in TAGS {
        // Through a rule from the stack pointer, two from tagged frame pointers, and the end.
        let memory = Words::default().with(&[
            (SP, tag | (SP + 64)),
            (SP + 8, at(0x1110)),
            (SP + 64, tag | (SP + 128)),
            (SP + 72, at(0x1110)),
            (SP + 128, 0x7777),
            (SP + 136, at(0x1044)),
        ]);
        let registers = Registers { sp: tag | SP, fp: tag | SP, ..registers(0x1010, 0x1010) };
        let (frames, walk) = process.walk(&registers, &memory);
        let found: Vec<_> = frames.iter().map(|frame| (frame.pc.0 - cfi::BIAS, frame.cfa.0, frame.fp)).collect();
        let expected = [
            (0x1010, SP + 32, tag | SP),
            (0x1110, SP + 96, tag | (SP + 64)),
            (0x1110, SP + 160, tag | (SP + 128)),
            (0x1044, 0, 0x7777),
        ];
        assert_eq!((found.as_slice(), walk.stop), (expected.as_slice(), StopReason::EndOfStack), "{tag:x}");
        // Without a rule, by the frame record; a record below the stack pointer is none, whatever its tag is.
        let mut dark = Registers { pc: at(0x1804), ..registers };
        dark.general[LINK] = Some(dark.pc);
        assert_eq!(process.pcs(&dark, &memory), (vec![0x1804, 0x1110, 0x1110, 0x1044], StopReason::EndOfStack));
        let below = Registers { sp: tag | (SP + 8), ..dark };
        assert_eq!(process.pcs(&below, &memory), (vec![0x1804], StopReason::NoRule));
    }
}

#[test]
fn t9_a_signal_frame_leads_to_a_tagged_stack_and_addresses_of_the_upper_half_keep_it() {
    let silent = three_functions().compile().bytes;
    let process = Process::with_code(&silent, Some((0x2000, TRAMPOLINE)));
    for tag in TAGS {
        let own = SP - 0x10000;
        let memory =
            Words::default().with(&context(SP, &[(32, at(0x1010)), (31, tag | own), (29, tag | own), (30, 7)]));
        let memory = memory.with(&[(own, 0), (own + 8, at(0x1044))]);
        let (frames, walk) = process.walk(&registers(0x1024, 0x2004), &memory);
        let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - cfi::BIAS).collect();
        assert_eq!((pcs, walk.stop), (vec![0x1024, 0x2004, 0x1010, 0x1044], StopReason::EndOfStack));
        assert_eq!((frames[1].cfa, frames[2].cfa, frames[2].fp), (Avma(own), Avma(own + 32), tag | own));
        // Bit 55 is set: the tag stands in for ones.
        let upper = 0xff80_7fff_8000_1000;
        let memory = Words::default().with(&[(upper, 0), (upper + 8, at(0x1044))]);
        let registers = Registers { sp: tag | (upper << 8 >> 8), ..registers(0x1010, 0) };
        assert_eq!(process.pcs(&registers, &memory), (vec![0x1010, 0x1044], StopReason::EndOfStack));
    }
}

/// Without the mask of a capture the bits of a signature are those above every known address, and a tag is no part of one.
#[test]
fn t9_the_tag_of_the_stack_pointer_does_not_hide_where_signatures_are() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", AT_ENTRY);
    section.fde(0x1000, 0x20, &[sign(), cfa_offset(16), saved(29, 2), saved(30, 1)]).fde(0x1040, 0x20, &[end(30)]);
    let table = section.compile().bytes;
    let memory = Words::default().with(&[(SP, 0), (SP + 8, at(0x1044) | 0x0035_0000_0000_0000)]);
    let registers = Registers { sp: TAGS[0] | SP, ..registers(0x1010, 0) };
    let found = Process::new(&table).pcs(&registers, &memory);
    assert_eq!(found, (vec![0x1010, 0x1044], StopReason::EndOfStack));
}

/// `mov x8, #139; svc #0`, behind a `nop`.
const TRAMPOLINE: &[u8] = &[0x1f, 0x20, 0x03, 0xd5, 0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];

/// The context of a signal frame whose trampoline has the stack pointer `frame`.
fn context(frame: u64, values: &[(u8, u64)]) -> Vec<(u64, u64)> {
    let place = |register: u8| Arch::Aarch64.context_offset(register).expect("saved");
    values.iter().map(|(register, value)| (frame + 0x130 + place(*register), *value)).collect()
}

#[test]
fn t2_a_leaf_that_was_interrupted_returns_by_the_link_register_that_the_kernel_saved() {
    let compiled = three_functions().compile_with(&[(0x2000, TRAMPOLINE)]);
    assert_eq!(compiled.report.trampolines, 1);
    let silent = three_functions().compile().bytes;
    let own = SP - 0x10000;
    // A handler without a frame of its own, on an alternate stack above.
    let memory = Words::default().with(&context(SP, &[(32, at(0x1020)), (31, own), (29, 0x66), (30, at(0x1044))]));
    let registers = registers(0x1024, 0x2004);
    for process in [Process::new(&compiled.bytes), Process::with_code(&silent, Some((0x2000, TRAMPOLINE)))] {
        let (frames, walk) = process.walk(&registers, &memory);
        let pcs: Vec<(u64, bool)> = frames.iter().map(|frame| (frame.pc.0 - cfi::BIAS, frame.exact)).collect();
        assert_eq!(pcs, [(0x1024, true), (0x2004, false), (0x1020, true), (0x1044, false)]);
        assert_eq!((walk.stop, frames[1].cfa, frames[2].fp), (StopReason::EndOfStack, Avma(own), 0x66));
    }
    // Interrupted between the two instructions of the trampoline.
    let inside = Registers { pc: at(0x2008), ..registers };
    let process = Process::with_code(&silent, Some((0x2000, TRAMPOLINE)));
    assert_eq!(process.pcs(&inside, &memory), (vec![0x2008, 0x1020, 0x1044], StopReason::EndOfStack));
}

#[test]
fn t2_a_call_through_a_null_pointer_was_made_where_the_link_register_says() {
    let table = three_functions().compile().bytes;
    let process = Process::new(&table);
    let memory = Words::default().with(&[(SP, 0), (SP + 8, at(0x1044))]);
    let registers = Registers { pc: 0, ..registers(0, 0x1010) };
    let (frames, walk) = process.walk(&registers, &memory);
    assert_eq!((walk.frames, walk.stop), (3, StopReason::EndOfStack));
    assert_eq!((frames[1].pc, frames[1].method), (Avma(at(0x1010)), UnwindMethod::NullCall));
}

pub(super) fn code(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// LLVM's outliner (`-Oz`) makes functions of parts of prologues that are alike. The entry says what holds behind the call of one, and nothing of how the frame is
/// taken down.
#[test]
fn t3_a_part_of_a_prologue_that_is_called_makes_its_callers_frame() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", AT_ENTRY);
    section.fde(0x1000, 0x1c, &[advance(8), vec![0x0c, 29, 32], saved(19, 2), saved(30, 3), saved(29, 4)]);
    section.fde(0x1020, 0x10, &[]);
    // stp x29, x30, [sp, #-32]!; bl 0x1020; nop; blr x1; ldr x19, [sp, #16]; ldp x29, x30, [sp], #32; ret
    let caller = [0xa9be_7bfd, 0x9400_0007, 0xd503_201f, 0xd63f_0020, 0xf940_0bf3, 0xa8c2_7bfd, 0xd65f_03c0, 0];
    // str x19, [sp, #16]; mov x29, sp; ret. With branch protection pacibsp and retab are around it.
    let plain = [0xf900_0bf3, 0x9100_03fd, 0xd65f_03c0];
    let signed = [0xd503_237f, 0xf900_0bf3, 0x9100_03fd, 0xd65f_0fff];
    let shown = |words: &[u32]| {
        let table = section.compile_with(&[(0x1000, &code(words))]).bytes;
        let table = Table::open(&table).expect("a table");
        let rule = |rva| table.rule(Rva(rva)).expect("code");
        let cfa = |rva| (rule(rva).kind(), rule(rva).offset(), rule(rva).return_address());
        [0x1000, 0x1004, 0x1008, 0x1010, 0x1014, 0x1018].map(cfa)
    };
    let at = |words| Some(ReturnAddress::AtCfa(words));
    let entry = (Some(Kind::Sp), 0, Some(ReturnAddress::InRegister(30)));
    let (pushed, body) = ((Some(Kind::Sp), 4, at(-3)), (Some(Kind::Fp), 4, at(-3)));
    for outlined in [&plain[..], &signed] {
        assert_eq!(shown(&[&caller[..], outlined].concat()), [entry, pushed, body, body, body, entry]);
    }
    // A function that is called otherwise makes no frame of its caller's: the entry counts as it stands.
    let other = [0xf900_0013, 0x9100_03fd, 0xa8c1_7bfd, 0xd65f_03c0];
    assert_eq!(shown(&[&caller[..], &other].concat())[5], body);
}

/// glibc's entry for `_dl_runtime_resolve` does not count the two words that the linkage table pushes before it: the frames of whoever binds a function when it is
/// called first were read 16 bytes too low. In Debian's loader, its CFA is the stack pointer of the call in every row.
#[test]
fn t3_no_return_address_lies_right_above_the_cfa_on_aarch64() {
    let path = "/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1";
    let Some(loader) = elf::Binary::read(path) else { return elf::skip("a loader", path) };
    let compiled = loader.compile();
    let table = Table::open(&compiled.bytes).expect("our own table");
    let places = table.rows().filter_map(|(_, rule, _)| match rule.return_address() {
        Some(ReturnAddress::AtCfa(words)) => Some(words),
        _ => None,
    });
    let places: Vec<i16> = places.collect();
    assert!(places.len() > 100 && !places.contains(&1), "{places:?}");
}

#[test]
fn t6_a_rule_of_aarch64_keeps_every_saved_register() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", AT_ENTRY);
    let mut instructions = vec![cfa_offset(96)];
    instructions.extend((19..=28).map(|register| saved(register, register - 18)));
    section.fde(0x1000, 0x20, &instructions);
    let compiled = section.compile();
    assert_eq!(compiled.report.unknown_registers, 0);
    let table = Table::open(&compiled.bytes).expect("a table");
    let slots = table.slots(symseal_module::Rva(0x1000)).expect("a rule");
    for register in 19..=28 {
        let expected = symseal_unwind::Saved::At(-i16::from(register - 18));
        assert_eq!(slots.of(Arch::Aarch64, register), Some(expected), "x{register}");
    }
}

/// A call by each instruction that calls, and one that does not, before the address in the link register.
#[test]
fn t16_each_instruction_that_calls_is_evidence_where_calls_do_not_push() {
    let check = |arch: Arch, instructions: &[u64], is_call: bool| {
        let bias = if arch.word_bytes() == 8 { cfi::BIAS } else { BIAS_32 };
        let (sp, link) = if arch == Arch::Aarch64 { (31, 30) } else { (29, 31) };
        let mut section = EhFrame::on(arch, "zR", &[0x0c, sp, 0]);
        section.fde(0x2000, 0x10, &[]);
        let table = section.compile().bytes;
        let code = match arch {
            Arch::Aarch64 => instructions.iter().flat_map(|word| (*word as u32).to_le_bytes()).collect(),
            _ => words(arch, instructions),
        };
        let behind = 0x1000 + code.len() as u64;
        let process = Process::with_code(&table, Some((0x1000, &code)));
        // Far from the caller, so that no call of its own is meant.
        let mut registers = Registers { pc: bias + 0x2f00, sp: SP, fp: 0, ..Registers::default() };
        registers.general[link] = Some(bias + behind);
        let stack = vec![0; 64];
        let (frames, _) = process.walk(&registers, &StackBytes { start: Avma(SP), bytes: &stack });
        let found = frames.get(1).map(|frame| (frame.pc, frame.method));
        let expected = is_call.then_some((Avma(bias + behind), UnwindMethod::Leaf));
        assert_eq!(found, expected, "{arch} {instructions:x?}");
    };
    // bl to 0x2f00, blr x3, blraa x3, x4; b, br x3, ret.
    for call in [0x9400_07c0, 0xd63f_0060, 0xd73f_0864] {
        check(Arch::Aarch64, &[call], true);
    }
    for other in [0x1400_07c0, 0xd61f_0060, 0xd65f_03c0] {
        check(Arch::Aarch64, &[other], false);
    }
    for arch in MIPS {
        // jal, jalr $t9, bal, bgezal $a0, each with its delay slot; j, jr $t9, b.
        let here = (BIAS_32 + 0x2f00) >> 2 & 0x03ff_ffff;
        for call in [0x0c00_0000 | here, 0x0320_f809, 0x0411_07bf, 0x0491_07bf] {
            check(arch, &[call, 0], true);
            // The address behind the call itself is that of its delay slot, to which nothing returns.
            check(arch, &[call], false);
        }
        for other in [0x0800_0000 | here, 0x0320_0008, 0x1000_07bf] {
            check(arch, &[other, 0], false);
        }
    }
}

/// Words of a stack in the order of `arch`.
fn words(arch: Arch, words: &[u64]) -> Vec<u8> {
    let order =
        |word: &u64| if arch.is_big_endian() { (*word as u32).to_be_bytes() } else { (*word as u32).to_le_bytes() };
    words.iter().flat_map(order).collect()
}

const MIPS: [Arch; 2] = [Arch::Mips32, Arch::Mips32Little];

fn mips_registers(svma: u64, link: u64) -> Registers {
    let mut registers = Registers { pc: BIAS_32 + svma, sp: SP, fp: 0, ..Registers::default() };
    registers.general[31] = Some(BIAS_32 + link);
    registers
}

#[test]
fn t10_registers_and_words_of_32_bits_are_read_in_the_order_of_the_target() {
    for arch in MIPS {
        let mut section = EhFrame::on(arch, "zR", AT_ENTRY_MIPS);
        section.fde(0x1000, 0x20, &[advance(4), cfa_offset(32), saved(31, 1), saved(30, 2)]).fde(
            0x1040,
            0x20,
            &[end(31)],
        );
        let compiled = section.compile();
        assert_eq!(compiled.report.unsupported, []);
        let process = Process::new(&compiled.bytes);
        let stack = words(arch, &[0, 0, 0, 0, 0, 0, 0x7777, BIAS_32 + 0x1044]);
        let memory = StackBytes { start: Avma(SP), bytes: &stack };
        // The upper halves of registers are copies of their highest bit, and mean nothing.
        let mut registers = mips_registers(0x1010, 0);
        registers.pc |= 0xffff_ffff_0000_0000;
        let (frames, walk) = process.walk(&registers, &memory);
        assert_eq!((walk.frames, walk.stop, frames[1].fp), (2, StopReason::EndOfStack, 0x7777), "{arch}");
        assert_eq!((frames[0].pc, frames[0].cfa), (Avma(BIAS_32 + 0x1010), Avma(SP + 32)));
        let expected = (vec![0x1000, 0x1044], StopReason::EndOfStack);
        assert_eq!(process.pcs(&mips_registers(0x1000, 0x1044), &memory), expected, "{arch}");
    }
}

#[test]
fn t2_both_signal_frames_of_mips_are_known_by_their_trampolines() {
    for arch in MIPS {
        let mut section = EhFrame::on(arch, "zR", AT_ENTRY_MIPS);
        section.fde(0x1000, 0x20, &[]).fde(0x1040, 0x20, &[end(31)]);
        let table = section.compile().bytes;
        for (number, context) in [(4193u64, 0xb0usize), (4119, 0x18)] {
            let trampoline = words(arch, &[0x2402_0000 | number, 0xc]);
            let process = Process::with_code(&table, Some((0x2000, &trampoline)));
            let mut stack = vec![0; 0x300];
            for (register, value) in [(37, BIAS_32 + 0x1004), (29, SP + 0x200), (30, 0x66), (31, BIAS_32 + 0x1044)] {
                let at = context + arch.context_offset(register).expect("saved") as usize;
                stack[at..at + 4].copy_from_slice(&words(arch, &[value]));
            }
            let memory = StackBytes { start: Avma(SP), bytes: &stack };
            let (frames, walk) = process.walk(&mips_registers(0x1010, 0x2000), &memory);
            let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0 - BIAS_32).collect();
            assert_eq!((pcs, walk.stop), (vec![0x1010, 0x2000, 0x1004, 0x1044], StopReason::EndOfStack), "{arch}");
            assert_eq!((frames[1].cfa, frames[2].fp), (Avma(SP + 0x200), 0x66));
        }
    }
}

/// A function of 32-bit MIPS: `addiu $sp, -32; sw $ra, 28($sp); sw $s0, 24($sp); jal 0; move $s0, $v0; lw $ra, 28($sp);
/// lw $s0, 24($sp); jr $ra; addiu $sp, 32`.
const FUNCTION: [u64; 9] = [
    0x27bd_ffe0,
    0xafbf_001c,
    0xafb0_0018,
    0x0c00_0000,
    0x0040_8025,
    0x8fbf_001c,
    0x8fb0_0018,
    0x03e0_0008,
    0x27bd_0020,
];

/// A record of `.pdr` for it: address, saved registers $s0 and $ra with the highest at CFA - 4, no floating point, 32 bytes.
fn record(arch: Arch, frame_bytes: u64) -> Vec<u8> {
    words(arch, &[0x1000, 0x8001_0000, 0xffff_fffc, 0, 0, frame_bytes, 29, 31])
}

#[test]
fn t10_a_procedure_descriptor_and_the_code_give_the_frame_at_every_instruction() {
    for arch in MIPS {
        let (function, record) = (words(arch, &FUNCTION), record(arch, 32));
        let id = cfi::debug_id();
        let input = Input { arch, pdr: Some(&record), code: &[(0x1000, &function)], ..cfi::empty_input(&id) };
        let compiled = compile(&input).expect("a table");
        assert_eq!((compiled.report.pdr_records, compiled.report.unfollowed.len()), (1, 0));
        let table = Table::open(&compiled.bytes).expect("a table");
        let rule = |at: u64| table.rule(symseal_module::Rva(0x1000 + 4 * at)).expect("code").display(arch).to_string();
        let (entry, body) = ("CFA = sp+0; RA = ra", "CFA = sp+32; RA = [CFA-4]");
        let expected = [entry, "CFA = sp+32; RA = ra", body, body, body, body, body, body, body];
        assert!((0..9).map(rule).eq(expected), "{:?}", (0..9).map(rule).collect::<Vec<_>>());
        let slots = table.slots(symseal_module::Rva(0x1010)).expect("a rule");
        assert_eq!(slots.of(arch, 16), Some(symseal_unwind::Saved::At(-2)));
        assert_eq!(table.source(symseal_module::Rva(0x1010)).map(|source| source.kind.code()), Some("pdr"));
    }
}

#[test]
fn t10_a_descriptor_that_the_code_contradicts_gives_no_rule() {
    let arch = Arch::Mips32;
    let (function, record) = (words(arch, &FUNCTION), record(arch, 40));
    let id = cfi::debug_id();
    let input = Input { arch, pdr: Some(&record), code: &[(0x1000, &function)], ..cfi::empty_input(&id) };
    let compiled = compile(&input).expect("a table");
    assert_eq!(compiled.report.unfollowed.values().sum::<usize>(), 1);
    let placed = compiled.report.unfollowed_functions.first().map(|function| function.range.clone());
    assert_eq!(placed, Some(0x1000..0x1000 + 4 * FUNCTION.len() as u64));
    let table = Table::open(&compiled.bytes).expect("a table");
    assert_eq!(table.rule(symseal_module::Rva(0x1010)), Some(symseal_unwind::Rule::GAP));
}

#[test]
fn t10_a_function_without_a_descriptor_is_followed_from_its_symbol() {
    let arch = Arch::Mips32Little;
    let function = words(arch, &FUNCTION);
    let id = cfi::debug_id();
    let input = Input { arch, functions: &[0x1000], code: &[(0x1000, &function)], ..cfi::empty_input(&id) };
    let compiled = compile(&input).expect("a table");
    let table = Table::open(&compiled.bytes).expect("a table");
    assert_eq!(table.source(symseal_module::Rva(0x1010)).map(|source| source.kind.code()), Some("instructions"));
}

#[test]
fn t10_the_bit_that_marks_short_instructions_is_no_part_of_a_return_address() {
    let arch = Arch::Mips32;
    let mut section = EhFrame::on(arch, "zR", AT_ENTRY_MIPS);
    section.fde(0x1000, 0x10, &[cfa_offset(32), saved(31, 1)]).fde(0x1010, 0x10, &[end(31)]);
    let table = section.compile().bytes;
    let process = Process::new(&table);
    // To the first byte behind the first function: with the bit, the byte before it would lie in the second.
    let marked = |svma: u64| BIAS_32 + svma + 1;
    let stack = words(arch, &[0, 0, 0, 0, 0, 0, 0, marked(0x1010), 0, 0, 0, 0, 0, 0, 0, marked(0x1014)]);
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    let registers = mips_registers(0x1004, 0);
    let expected = (vec![0x1004, 0x1010, 0x1014], StopReason::EndOfStack);
    assert_eq!(process.pcs(&registers, &memory), expected);
    let marked_pc = Registers { pc: registers.pc | 1, ..registers };
    assert_eq!(process.pcs(&marked_pc, &memory), expected);
}

/// lui $t9; jr $v0 with the frame of 32 bytes in place, as a jump table does; two cases: one returns by the common end.
const SWITCH: [u32; 14] = [
    0x27bd_ffe0, // addiu $sp, $sp, -32
    0xafbf_001c, // sw $ra, 28($sp)
    0x0040_0008, // jr $v0
    0x0000_0000,
    0x2402_0001, // a case: li $v0, 1
    0x8fbf_001c, // lw $ra, 28($sp)
    0x03e0_0008, // jr $ra
    0x27bd_0020, // addiu $sp, $sp, 32
    0x2402_0002, // another function without a name, which has no frame
    0x03e0_0008, // jr $ra
    0x0000_0000,
    0x27bd_ffe0, // and one with a frame of the same size
    0x03e0_0008,
    0x27bd_0020,
];

#[test]
fn t10_what_stands_behind_a_jump_table_is_not_taken_for_its_cases() {
    for arch in MIPS {
        let function = words(arch, &SWITCH.map(u64::from));
        let id = cfi::debug_id();
        let input = Input { arch, functions: &[0x1000], code: &[(0x1000, &function)], ..cfi::empty_input(&id) };
        let table = compile(&input).expect("a table").bytes;
        let table = Table::open(&table).expect("a table");
        let rule = |at: u64| table.rule(symseal_module::Rva(0x1000 + 4 * at)).expect("code").display(arch).to_string();
        let (body, gap) = ("CFA = sp+32; RA = [CFA-4]", "no information");
        assert!((4..6).all(|at| rule(at) == body), "{:?}", (0..14).map(rule).collect::<Vec<_>>());
        assert!((8..14).all(|at| rule(at) == gap), "{:?}", (0..14).map(rule).collect::<Vec<_>>());
    }
}

#[test]
fn a_table_for_another_processor_counts_as_none() {
    let table = three_functions().compile().bytes;
    let table = Table::open(&table).expect("a table");
    let module = symseal_unwind::Module {
        start: Avma(cfi::BIAS),
        end: Avma(at(0x3000)),
        bias: cfi::BIAS,
        image_base: symseal_module::Svma(0),
        table: Some(table),
        code: None,
    };
    let modules = Modules::new(Arch::X86_64, vec![module]);
    let mut frames = [Frame::EMPTY; 4];
    let walk = unwind(&modules, &registers(0x1010, 0), &Words::default(), &mut Cache::new(), &mut frames);
    assert_eq!((walk.frames, walk.stop), (1, StopReason::NoTable));
}

/// glibc's `rawmemchr` of aarch64 has its return address in x15 while it calls `strlen`, which leaves that alone, and neither of them has a frame.
#[test]
fn t6_a_return_address_in_a_register_that_calls_need_not_keep_is_believed_behind_a_call() {
    let mut section = EhFrame::on(Arch::Aarch64, "zR", AT_ENTRY);
    // DW_CFA_register
    section.fde(0x1000, 0x20, &[]).fde(0x1020, 0x20, &[vec![0x09, 30, 15]]).fde(0x1040, 0x20, &[end(30)]);
    let table = section.compile().bytes;
    let mut code = vec![0; 0x100];
    for call in [0x2c, 0x40] {
        code[call..call + 4].copy_from_slice(&0x9400_0001_u32.to_le_bytes());
    }
    let process = Process::with_code(&table, Some((0x1000, &code)));
    let stack = [0; 64];
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    let pcs = |kept: u64| {
        let mut registers = registers(0x1004, 0x1030);
        registers.general[15] = Some(at(kept));
        process.pcs(&registers, &memory)
    };
    assert_eq!(pcs(0x1044), (vec![0x1004, 0x1030, 0x1044], StopReason::EndOfStack));
    // No call stands there.
    assert_eq!(pcs(0x1048), (vec![0x1004, 0x1030], StopReason::StackNotRising));
    // It leads to itself.
    assert_eq!(pcs(0x1030), (vec![0x1004, 0x1030], StopReason::StackNotRising));
}
