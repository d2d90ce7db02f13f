//! What is easily got wrong about the exception directory of Windows modules, each with its own test.

use crate::cfi;
use symseal_module::{Avma, FrameEdge, StopReason, Svma, UnwindMethod};
use symseal_unwind::compile::{Compiled, Input, compile};
use symseal_unwind::{Arch, Cache, Frame, Module, Modules, Registers, RuleSource, StackBytes, Table, Walk, unwind};

pub(crate) const BASE: u64 = 0x1_4000_0000;
pub(crate) const CODE: u32 = 0x1000;
const XDATA: u32 = 0x3000;
const PDATA: u32 = 0x5000;

/// An image in the making: code, unwind information, and entries that lead from one to the other.
#[derive(Default)]
pub(crate) struct Made {
    code: Vec<u8>,
    xdata: Vec<u8>,
    pdata: Vec<u8>,
}

impl Made {
    /// Appends code and gives where it lies.
    fn code(&mut self, bytes: &[u8]) -> (u32, u32) {
        let begin = CODE + self.code.len() as u32;
        self.code.extend(bytes);
        (begin, CODE + self.code.len() as u32)
    }

    fn xdata(&mut self, bytes: &[u8]) -> u32 {
        self.xdata.resize(self.xdata.len().next_multiple_of(4), 0);
        let at = XDATA + self.xdata.len() as u32;
        self.xdata.extend(bytes);
        at
    }

    fn entry(&mut self, (begin, end): (u32, u32), info: u32) -> u32 {
        let at = PDATA + self.pdata.len() as u32;
        for word in [begin, end, info] {
            self.pdata.extend(word.to_le_bytes());
        }
        at
    }

    /// A function with its own unwind information.
    pub(crate) fn function(&mut self, code: &[u8], info: &[u8]) -> (u32, u32) {
        let range = self.code(code);
        let info = self.xdata(info);
        self.entry(range, info);
        range
    }

    pub(crate) fn compile(&self) -> Compiled {
        let at = |rva: u32| BASE + u64::from(rva);
        let text = std::iter::once(at(CODE)..at(CODE) + self.code.len() as u64).collect::<Vec<_>>();
        let id = cfi::debug_id();
        compile(&Input {
            image_base: Svma(BASE),
            text: &text,
            pdata: Some((at(PDATA), &self.pdata)),
            loaded: &[(at(CODE), &self.code), (at(XDATA), &self.xdata), (at(PDATA), &self.pdata)],
            code: &[(at(CODE), &self.code)],
            ..cfi::empty_input(&id)
        })
        .expect("a table")
    }

    /// Walks in the image as it is loaded at its own base.
    fn walk(&self, registers: Registers, (start, stack): (u64, &[u8])) -> (Vec<Frame>, Walk) {
        let compiled = self.compile();
        let module = Module {
            start: Avma(BASE),
            end: Avma(BASE + 0x8000),
            bias: 0,
            image_base: Svma(BASE),
            table: Some(Table::open(&compiled.bytes).expect("our own table")),
            code: None,
        };
        let modules = Modules::new(Arch::X86_64, vec![module]);
        let (mut frames, memory) = ([Frame::EMPTY; 8], StackBytes { start: Avma(start), bytes: stack });
        let walk = unwind(&modules, &registers, &memory, &mut Cache::new(), &mut frames);
        (frames.into_iter().take(walk.frames).collect(), walk)
    }

    /// The rules by offset in the code, without the part that is the same in nearly all.
    fn check(&self, expected: &[(u64, &str)]) {
        let compiled = self.compile();
        let table = Table::open(&compiled.bytes).expect("our own table");
        table.verify().expect("our own table");
        let found: Vec<(u64, String)> = table
            .rows()
            .filter(|(_, rule, _)| rule.source() != Some(RuleSource::None))
            .map(|(rva, rule, _)| {
                (
                    rva.0 - u64::from(CODE),
                    rule.display(Arch::X86_64).to_string().replace(" RA = [CFA-8];", "").replace("; RA = [CFA-8]", ""),
                )
            })
            .collect();
        let found: Vec<(u64, &str)> = found.iter().map(|(at, rule)| (*at, rule.as_str())).collect();
        assert_eq!(found, expected, "{:?}", compiled.report);
    }
}

/// push rbp; sub rsp, 32; lea rbp, [rsp + 32]; nop; add rsp, 32; pop rbp; ret.
const FRAMED: [u8; 16] =
    [0x55, 0x48, 0x83, 0xec, 0x20, 0x48, 0x8d, 0x6c, 0x24, 0x20, 0x90, 0x48, 0x83, 0xc4, 0x20, 0x5d];

#[test]
fn t5_a_prolog_is_exact_at_each_offset_and_the_frame_register_counts_with_its_offset() {
    let mut made = Made::default();
    // The frame register is 32 above the stack pointer.
    made.function(&[&FRAMED[..], &[0xc3]].concat(), &[1, 10, 3, 0x25, 10, 0x03, 5, 0x32, 1, 0x50, 0, 0]);
    made.check(&[
        (0, "CFA = rsp+8"),
        (1, "CFA = rsp+16; rbp = [CFA-16]"),
        (5, "CFA = rsp+48; rbp = [CFA-16]"),
        (10, "CFA = rbp+16; rbp = [CFA-16]"),
        (15, "CFA = rsp+16; rbp = [CFA-16]"),
        (16, "CFA = rsp+8"),
    ]);
}

/// .NET's own code for other systems, with a frame register further up than four bits tell.
#[test]
fn t5_a_frame_register_of_dotnet_counts_with_its_large_offset() {
    let mut made = Made::default();
    // push rbp; sub rsp, 512; lea rbp, [rsp + 512]; nop; add rsp, 512; pop rbp; ret
    let code = [
        &[0x55, 0x48, 0x81, 0xec, 0, 2, 0, 0, 0x48, 0x8d, 0xac, 0x24, 0, 2, 0, 0, 0x90][..],
        &[0x48, 0x81, 0xc4, 0, 2, 0, 0, 0x5d, 0xc3],
    ];
    let large = [16, 0x0b, 32, 0, 0, 0, 8, 0x01, 64, 0, 1, 0x50];
    made.function(&code.concat(), &[&[1, 16, 6, 0xf5][..], &large].concat());
    made.check(&[
        (0, "CFA = rsp+8"),
        (1, "CFA = rsp+16; rbp = [CFA-16]"),
        (8, "CFA = rsp+528; rbp = [CFA-16]"),
        (16, "CFA = rbp+16; rbp = [CFA-16]"),
        (24, "CFA = rsp+16; rbp = [CFA-16]"),
        (25, "CFA = rsp+8"),
    ]);
    // With another offset in the header it is nothing that anybody writes.
    let mut other = Made::default();
    other.function(&code.concat(), &[&[1, 16, 6, 0x25][..], &large].concat());
    assert!(other.compile().report.unsupported_reasons.contains_key("exception directory: an unknown unwind code"));
}

#[test]
fn t5_registers_saved_from_a_frame_register_are_counted_from_the_frames_base() {
    let mut made = Made::default();
    // sub rsp, 64; lea rbp, [rsp + 32]; mov [rbp + 8], rsi (40 from the base); nop
    let code = [0x48, 0x83, 0xec, 0x40, 0x48, 0x8d, 0x6c, 0x24, 0x20, 0x48, 0x89, 0x75, 0x08, 0x90];
    made.function(&code, &[1, 13, 4, 0x25, 13, 0x64, 5, 0, 9, 0x03, 4, 0x72]);
    let compiled = made.compile();
    let table = Table::open(&compiled.bytes).expect("our own table");
    let slots = table.slots(symseal_module::Rva(u64::from(CODE) + 13)).expect("slots");
    // CFA = rbp + 40, the base is 72 below the CFA.
    assert_eq!(slots.of(Arch::X86_64, 4), Some(symseal_unwind::Saved::At(-4)));
    assert_eq!(slots.of(Arch::X86_64, 5), Some(symseal_unwind::Saved::Same));
}

#[test]
fn t5_a_chain_is_followed_to_the_primary_entry() {
    let mut made = Made::default();
    let primary = made.code(&[0x53, 0x48, 0x83, 0xec, 0x20, 0x90]); // push rbx; sub rsp, 32
    let part = made.code(&[0x56, 0x90, 0x90]); // push rsi
    let far = made.code(&[0x90]);
    let info = made.xdata(&[1, 5, 2, 0, 5, 0x32, 1, 0x30]);
    made.entry(primary, info);
    let chain = |to: (u32, u32), info: u32| [to.0, to.1, info].map(u32::to_le_bytes).concat();
    let second = made.xdata(&[&[0x21, 1, 1, 0, 1, 0x60, 0, 0][..], &chain(primary, info)].concat());
    made.entry(part, second);
    let third = made.xdata(&[&[0x21, 0, 0, 0][..], &chain(part, second)].concat());
    made.entry(far, third);
    made.check(&[(0, "CFA = rsp+8"), (1, "CFA = rsp+16"), (5, "CFA = rsp+48"), (7, "CFA = rsp+56")]);
    // A chain that leads to itself ends.
    let mut made = Made::default();
    let code = made.code(&[0x90; 4]);
    let info = made.xdata(&[&[0x21, 0, 0, 0][..], &chain(code, XDATA)].concat());
    made.entry(code, info);
    let report = made.compile().report;
    assert_eq!(report.unsupported_reasons.get("exception directory: a chain without an end"), Some(&1));
}

#[test]
fn t5_an_indirect_entry_has_the_unwind_information_of_the_entry_it_leads_to() {
    let mut made = Made::default();
    let function = made.function(&[0x53, 0x90, 0x5b, 0xc3], &[1, 1, 1, 0, 1, 0x30, 0, 0]);
    let again = made.code(&[0x90, 0x5b, 0xc3]);
    made.entry(again, PDATA | 1);
    assert_eq!(function, (CODE, CODE + 4));
    made.check(&[(0, "CFA = rsp+8"), (1, "CFA = rsp+16"), (3, "CFA = rsp+8"), (4, "CFA = rsp+16"), (6, "CFA = rsp+8")]);
}

#[test]
fn t5_code_without_an_entry_is_a_leaf() {
    let mut made = Made::default();
    made.code(&[0x90, 0xc3]);
    made.function(&[0x53, 0x90, 0x5b, 0xc3], &[1, 1, 1, 0, 1, 0x30, 0, 0]);
    made.check(&[(0, "a leaf: CFA = rsp+8"), (2, "CFA = rsp+8"), (3, "CFA = rsp+16"), (5, "CFA = rsp+8")]);
    // Without any directory, nothing says so.
    made.pdata.clear();
    made.check(&[]);
}

#[test]
fn t5_a_leaf_is_a_leaf_only_until_it_calls() {
    let mut made = Made::default();
    let leaf = made.code(&[0x90; 4]);
    let callee = made.function(&[0x53, 0x90, 0x5b, 0xc3], &[1, 1, 1, 0, 1, 0x30, 0, 0]);
    let start = 0x7fff_0000;
    // What a walk would take for the leaf's return address lies right above that of the function that it is said to have called.
    let words = [BASE + u64::from(leaf.0) + 2, BASE + u64::from(callee.0) + 1, BASE + u64::from(leaf.0) + 1];
    let stack: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let at = |pc: u32| Registers { pc: BASE + u64::from(pc), sp: start, ..Registers::default() };
    // Interrupted, it is one.
    let (frames, _) = made.walk(at(leaf.0 + 1), (start, &stack));
    assert_eq!((frames[1].pc, frames[1].method), (Avma(words[0]), UnwindMethod::Pdata));
    // That made two frames: it, and its return address, which lies in a leaf.
    let (frames, walk) = made.walk(at(callee.0), (start, &stack));
    assert_eq!((frames.len(), frames[1].pc, walk.stop), (2, Avma(words[0]), StopReason::LeafCalled));
}

#[test]
fn t5_a_jump_is_an_epilog_only_if_it_leaves_the_function() {
    let info = [1, 4, 1, 0, 4, 0x42]; // sub rsp, 40
    let mut made = Made::default();
    // jmp to the nop behind it; then the frame is taken down before the jump to the next function.
    let code =
        [0x48, 0x83, 0xec, 0x28, 0xeb, 0x00, 0x90, 0x48, 0x83, 0xc4, 0x28, 0xe9, 4, 0, 0, 0, 0x90, 0xcc, 0xcc, 0xcc];
    made.function(&code, &info);
    made.function(&[0xc3], &[1, 0, 0, 0]);
    made.check(&[
        (0, "CFA = rsp+8"),
        (4, "CFA = rsp+48"),
        (11, "CFA = rsp+8"),
        (16, "CFA = rsp+48"),
        (20, "CFA = rsp+8"),
    ]);
    // The same jump to a part of the function that lies elsewhere.
    let mut made = Made::default();
    let primary = made.code(&code);
    let info = made.xdata(&info);
    made.entry(primary, info);
    let part = made.code(&[0x90]);
    let words = [primary.0, primary.1, info].map(u32::to_le_bytes).concat();
    let chained = made.xdata(&[&[0x21, 0, 0, 0][..], &words].concat());
    made.entry(part, chained);
    made.check(&[(0, "CFA = rsp+8"), (4, "CFA = rsp+48")]);
}

/// As gcc has it: what seldom runs is a function of its own, entered by a plain jump, whose unwind information says that the whole frame is
/// there at its first instruction.
#[test]
fn t5_a_jump_to_a_cold_part_leaves_the_frame_standing() {
    let mut made = Made::default();
    // push rbx; sub rsp, 32; jne to the cold part; jmp to the cold part; nop; add rsp, 32; pop rbx; ret
    let hot = [
        0x53, 0x48, 0x83, 0xec, 0x20, 0x0f, 0x85, 12, 0, 0, 0, 0xe9, 7, 0, 0, 0, 0x90, 0x48, 0x83, 0xc4, 0x20, 0x5b,
        0xc3,
    ];
    made.function(&hot, &[1, 5, 2, 0, 5, 0x32, 1, 0x30]);
    // nop; jmp back into the middle of the hot part.
    let back = [0x90, 0xe9, 0xf3, 0xff, 0xff, 0xff];
    made.function(&back, &[1, 0, 2, 0, 0, 0x32, 0, 0x30]);
    made.check(&[
        (0, "CFA = rsp+8"),
        (1, "CFA = rsp+16"),
        (5, "CFA = rsp+48"),
        (21, "CFA = rsp+16"),
        (22, "CFA = rsp+8"),
        (23, "CFA = rsp+48"),
    ]);
}

#[test]
fn t5_what_does_not_touch_the_frame_may_stand_before_the_return() {
    let mut made = Made::default();
    // push rbx; sub rsp, 32; nop; add rsp, 32; pop rbx; vzeroupper; ret
    let code = [0x53, 0x48, 0x83, 0xec, 0x20, 0x90, 0x48, 0x83, 0xc4, 0x20, 0x5b, 0xc5, 0xf8, 0x77, 0xc3];
    made.function(&code, &[1, 5, 2, 0, 5, 0x32, 1, 0x30]);
    // pushfq, which is told of as 8 bytes; push rbx; nop; pop rbx; popfq; ret
    made.function(&[0x9c, 0x53, 0x90, 0x5b, 0x9d, 0xc3], &[1, 2, 2, 0, 2, 0x30, 1, 0x02]);
    made.check(&[
        (0, "CFA = rsp+8"),
        (1, "CFA = rsp+16"),
        (5, "CFA = rsp+48"),
        (10, "CFA = rsp+16"),
        (11, "CFA = rsp+8"),
        (16, "CFA = rsp+16"),
        (17, "CFA = rsp+24"),
        (19, "CFA = rsp+16"),
        (20, "CFA = rsp+8"),
    ]);
}

#[test]
fn t5_steps_of_one_instruction_need_only_together_be_what_the_table_expresses() {
    let mut made = Made::default();
    // 12 bytes are no whole words, and 4 more of the same instruction make them 16.
    made.function(&[0x90; 12], &[1, 8, 6, 0, 8, 0x11, 4, 0, 0, 0, 8, 0x11, 12, 0, 0, 0]);
    made.check(&[(0, "CFA = rsp+8"), (8, "CFA = rsp+24")]);
}

#[test]
fn t5_version_2_lists_epilogs_which_may_be_jumps_through_registers() {
    // push rbx; nop; pop rbx; jmp rax; nop; pop rbx; ret. Epilogs of 2 and, in the end, of as many bytes as stated.
    let code = [0x53, 0x90, 0x5b, 0xff, 0xe0, 0x90, 0x5b, 0xc3];
    let mut made = Made::default();
    // Size 2, one at the end; another 6 before the end; the push.
    made.function(&code, &[2, 1, 3, 0, 2, 0x16, 6, 0x06, 1, 0x30, 0, 0]);
    let rows = [(0, "CFA = rsp+8"), (1, "CFA = rsp+16"), (3, "CFA = rsp+8"), (5, "CFA = rsp+16"), (7, "CFA = rsp+8")];
    made.check(&rows);
    // A bare jump is one where it is listed, and none where it is not.
    let code = [0x48, 0x83, 0xec, 0x28, 0xff, 0xe0, 0x90, 0x90];
    for (info, expected) in [
        (
            &[2, 4, 3, 0, 2, 0x06, 4, 0x06, 4, 0x42, 0, 0][..],
            &[(0, "CFA = rsp+8"), (4, "CFA = rsp+8"), (6, "CFA = rsp+48")][..],
        ),
        (&[1, 4, 1, 0, 4, 0x42, 0, 0], &[(0, "CFA = rsp+8"), (4, "CFA = rsp+48")]),
    ] {
        let mut made = Made::default();
        made.function(&code, info);
        let joined: Vec<(u64, &str)> = expected
            .iter()
            .enumerate()
            .filter(|(at, row)| *at == 0 || expected.get(at - 1).is_none_or(|before| before.1 != row.1))
            .map(|(_, row)| *row)
            .collect();
        made.check(&joined);
    }
    // What is listed and is not there is said, and has no rule; the rest of the function has.
    let mut made = Made::default();
    // push rbx; nop; mov rax, [rsp]; ret 8 would end with it; nop; pop rbx; ret
    let code = [0x53, 0x90, 0x48, 0x8b, 0x04, 0x24, 0x90, 0x5b, 0xc3];
    made.function(&code, &[2, 1, 3, 0, 2, 0x16, 7, 0x06, 1, 0x30, 0, 0]);
    let report = made.compile().report;
    assert_eq!(report.unsupported_reasons.get("exception directory: an epilog of an unknown form"), Some(&1));
    assert_eq!(report.unsupported.first().map(|lost| lost.range.clone()), Some(BASE + 0x1002..BASE + 0x1004));
    made.check(&[
        (0, "CFA = rsp+8"),
        (1, "CFA = rsp+16"),
        (2, "information of an unsupported form"),
        (4, "CFA = rsp+16"),
        (8, "CFA = rsp+8"),
    ]);
}

/// A module of mingw-w64 may have call frame information beside its exception directory.
#[test]
fn t5_call_frame_information_of_a_windows_module_tells_rsi_and_rdi() {
    let mut section = cfi::EhFrame::new("zR", cfi::AT_ENTRY);
    // push rsi; rsi is 4.
    section.fde(BASE + u64::from(CODE), 4, &[cfi::advance(1), cfi::cfa_offset(16), cfi::saved(4, 2)]);
    let (id, code, pdata) = (cfi::debug_id(), [0x56, 0x90, 0x5e, 0xc3], [0; 12]);
    let at = |rva: u32| BASE + u64::from(rva);
    let text = std::iter::once(at(CODE)..at(CODE) + 4).collect::<Vec<_>>();
    let compiled = compile(&Input {
        image_base: Svma(BASE),
        text: &text,
        eh_frame: Some((at(0x6000), section.bytes())),
        pdata: Some((at(PDATA), &pdata)),
        code: &[(at(CODE), &code)],
        ..cfi::empty_input(&id)
    })
    .expect("a table");
    let table = Table::open(&compiled.bytes).expect("our own table");
    let slots = table.slots(symseal_module::Rva(u64::from(CODE) + 1)).expect("slots");
    let saved = [4, 5].map(|register| slots.of(Arch::X86_64, register));
    assert_eq!(saved, [symseal_unwind::Saved::At(-2), symseal_unwind::Saved::Same].map(Some));
}

/// The shapes of code that Microsoft's compiler makes and others do not, as it writes them.
mod as_microsofts_compiler {
    use super::*;

    #[test]
    fn allocates_large_frames_through_a_call() {
        let mut made = Made::default();
        // mov [rsp + 16], rbx; push rdi; mov eax, 0x2020; call __chkstk; sub rsp, rax; nop; mov rbx, [rsp + 0x2038]; add rsp, 0x2020; pop rdi; ret
        let code = [
            &[0x48, 0x89, 0x5c, 0x24, 0x10, 0x57, 0xb8, 0x20, 0x20, 0, 0, 0xe8, 0, 0, 0, 0, 0x48, 0x2b, 0xe0, 0x90][..],
            &[0x48, 0x8b, 0x9c, 0x24, 0x38, 0x20, 0, 0, 0x48, 0x81, 0xc4, 0x20, 0x20, 0, 0, 0x5f, 0xc3],
        ];
        // save rbx at 0x2038 / 8; allocate 0x2020 / 8; push rdi, all told of where the prolog ends but the push.
        made.function(&code.concat(), &[1, 19, 5, 0, 19, 0x34, 0x07, 0x04, 19, 0x01, 0x04, 0x04, 6, 0x70, 0, 0]);
        made.check(&[
            (0, "CFA = rsp+8"),
            (6, "CFA = rsp+16"),
            (19, "CFA = rsp+8240"),
            (35, "CFA = rsp+16"),
            (36, "CFA = rsp+8"),
        ]);
        let compiled = made.compile();
        let table = Table::open(&compiled.bytes).expect("our own table");
        let slots = table.slots(symseal_module::Rva(u64::from(CODE) + 19)).expect("slots");
        assert_eq!(slots.of(Arch::X86_64, 3), Some(symseal_unwind::Saved::At(1)), "in the home space");
    }

    #[test]
    fn takes_frames_down_through_a_copy_of_the_stack_pointer() {
        let mut made = Made::default();
        // mov rax, rsp; mov [rax + 8], rbx; push rdi; sub rsp, 64; nop; lea r11, [rsp + 64]; mov rbx, [r11 + 16]; mov rsp, r11; pop rdi; ret
        let code = [
            &[0x48, 0x8b, 0xc4, 0x48, 0x89, 0x58, 0x08, 0x57, 0x48, 0x83, 0xec, 0x40, 0x90][..],
            &[0x4c, 0x8d, 0x5c, 0x24, 0x40, 0x49, 0x8b, 0x5b, 0x10, 0x49, 0x8b, 0xe3, 0x5f, 0xc3],
        ];
        made.function(&code.concat(), &[1, 12, 4, 0, 12, 0x34, 10, 0, 12, 0x72, 8, 0x70]);
        made.check(&[
            (0, "CFA = rsp+8"),
            (8, "CFA = rsp+16"),
            (12, "CFA = rsp+80"),
            (25, "CFA = rsp+16"),
            (26, "CFA = rsp+8"),
        ]);
    }

    #[test]
    fn counts_from_a_frame_register_with_an_offset_where_the_stack_pointer_moves() {
        let mut made = Made::default();
        // push rbp; push rbx; sub rsp, 0x48; lea rbp, [rsp + 0x40]; sub rsp, rax (alloca); lea rsp, [rbp + 8]; pop rbx; pop rbp; ret
        let code = [
            &[0x55, 0x53, 0x48, 0x83, 0xec, 0x48, 0x48, 0x8d, 0x6c, 0x24, 0x40, 0x48, 0x2b, 0xe0, 0x90][..],
            &[0x48, 0x8d, 0x65, 0x08, 0x5b, 0x5d, 0xc3],
        ];
        made.function(&code.concat(), &[1, 11, 4, 0x45, 11, 0x03, 6, 0x82, 2, 0x30, 1, 0x50]);
        made.check(&[
            (0, "CFA = rsp+8"),
            (1, "CFA = rsp+16; rbp = [CFA-16]"),
            (2, "CFA = rsp+24; rbp = [CFA-16]"),
            (6, "CFA = rsp+96; rbp = [CFA-16]"),
            (11, "CFA = rbp+32; rbp = [CFA-16]"),
            (19, "CFA = rsp+24; rbp = [CFA-16]"),
            (20, "CFA = rsp+16; rbp = [CFA-16]"),
            (21, "CFA = rsp+8"),
        ]);
    }

    #[test]
    fn makes_part_of_a_frame_only_where_it_is_needed() {
        let mut made = Made::default();
        // sub rsp, 40; test; je to the end; [mov [rsp + 56], rsi; nop; mov rsi, [rsp + 56]]; add rsp, 40; ret, in three entries.
        let primary = made.code(&[0x48, 0x83, 0xec, 0x28, 0x85, 0xc9, 0x74, 0x0b]);
        let part = made.code(&[0x48, 0x89, 0x74, 0x24, 0x38, 0x90, 0x48, 0x8b, 0x74, 0x24, 0x38]);
        let rest = made.code(&[0x48, 0x83, 0xc4, 0x28, 0xc3]);
        let info = made.xdata(&[1, 4, 1, 0, 4, 0x42, 0, 0]);
        made.entry(primary, info);
        let words = [primary.0, primary.1, info].map(u32::to_le_bytes).concat();
        // The part saves rsi at 56 from the frame's base, at its fifth byte.
        let saves = made.xdata(&[&[0x21, 5, 2, 0, 5, 0x64, 7, 0][..], &words].concat());
        made.entry(part, saves);
        let chained = made.xdata(&[&[0x21, 0, 0, 0][..], &words].concat());
        made.entry(rest, chained);
        let compiled = made.compile();
        let table = Table::open(&compiled.bytes).expect("our own table");
        let rsi = |at: u32| {
            let rva = symseal_module::Rva(u64::from(CODE + at));
            let cfa = table.rule(rva).expect("code").offset() * 8;
            (cfa, table.slots(rva).and_then(|slots| slots.of(Arch::X86_64, 4)).expect("a slot"))
        };
        use symseal_unwind::Saved::{At, Same};
        // In the jump to the end, before and behind the save, in the end before and behind the addition.
        assert_eq!([4, 12, 13, 19, 23].map(rsi), [(48, Same), (48, Same), (48, At(1)), (48, Same), (8, Same)]);
    }
}

#[test]
fn t5_other_versions_are_a_gap_with_a_reason() {
    for (version, reason) in [
        (3, "exception directory: unwind information of version 3"),
        (0, "exception directory: unwind information of an unknown version"),
        (7, "exception directory: unwind information of an unknown version"),
    ] {
        let mut made = Made::default();
        made.function(&[0x53, 0x90, 0x5b, 0xc3], &[version, 1, 1, 0, 1, 0x30, 0, 0]);
        made.function(&[0xc3], &[1, 0, 0, 0]);
        let report = made.compile().report;
        assert_eq!((report.unwind_entries, report.unsupported_count), (2, 1));
        assert_eq!(report.unsupported_reasons.get(reason), Some(&1), "{:?}", report.unsupported_reasons);
        assert_eq!(report.unsupported.first().map(|range| range.range.clone()), Some(BASE + 0x1000..BASE + 0x1004));
        made.check(&[(0, "information of an unsupported form"), (4, "CFA = rsp+8")]);
    }
}

#[test]
fn t5_a_machine_frame_leads_to_the_interrupted_instruction_with_and_without_an_error_code() {
    for with_code in [false, true] {
        let mut made = Made::default();
        // push rbp; push rsi; nop. The push of the machine frame is the first step, at offset 0.
        let handler = made
            .function(&[0x55, 0x56, 0x90], &[1, 2, 3, 0, 2, 0x60, 1, 0x50, 0, u8::from(with_code) << 4 | 0x0a, 0, 0]);
        // A function whose first instruction faulted: looked up at its own address, it has pushed nothing yet. Its CFA is counted
        // from rsi, which the handler saved.
        made.function(&[0x90; 4], &[1, 0, 1, 0x06, 0, 0x03, 0, 0]);
        let faulting = BASE + u64::from(handler.1);
        let interrupted = 0x7fff_0100;
        // rsi, rbp, and what the processor pushed.
        let mut words = vec![0x7fff_0140, 0x5151];
        if with_code {
            words.push(0xe0);
        }
        words.extend([faulting, 0x33, 0x246, interrupted, 0x2b]);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| u64::to_le_bytes(*word)).collect();
        let start = 0x7fff_0000;
        bytes.resize(0x200, 0);
        // What rsi + 8 leads to: the return address is below the CFA, which is rsi + 8.
        bytes.splice(0x140..0x148, (BASE + 0x4444).to_le_bytes());
        let registers = Registers { pc: BASE + u64::from(CODE) + 2, sp: start, fp: 1, ..Registers::default() };
        let (frames, walk) = made.walk(registers, (start, &bytes));
        assert!(walk.frames >= 3, "{walk:?} {frames:x?}");
        assert_eq!((frames[1].pc, frames[1].exact, frames[1].fp), (Avma(faulting), true, 0x5151));
        assert_eq!((frames[0].cfa, frames[1].method), (Avma(interrupted), UnwindMethod::SignalContext));
        assert_eq!((frames[1].cfa, frames[2].pc), (Avma(0x7fff_0148), Avma(BASE + 0x4444)));
        assert_eq!((frames[2].exact, frames[2].method), (false, UnwindMethod::Pdata));
        assert_ne!(walk.stop, StopReason::UnsupportedRule);
    }
}

/// Code of the upper half that an interrupt of a process led to, as a kernel's entry code is described: by what the processor pushed.
#[test]
fn t14_from_the_kernel_to_the_very_instruction_of_the_process_an_edge_of_its_own_leads() {
    const KERNEL: u64 = 0xffff_f800_1000_0000;
    let mut made = Made::default();
    // push rbp; nop, behind the push of a machine frame.
    made.function(&[0x55, 0x90], &[1, 1, 2, 0, 1, 0x50, 0, 0x0a]);
    let bytes = made.compile().bytes;
    let module = |start: u64| Module {
        start: Avma(start),
        end: Avma(start + 0x10_0000),
        bias: start.wrapping_sub(BASE),
        image_base: Svma(BASE),
        table: Some(Table::open(&bytes).expect("our own table")),
        code: None,
    };
    let modules = Modules::new(Arch::X86_64, vec![module(KERNEL)]);
    let stack = 0xffff_f800_2000_0000;
    for (interrupted, edge) in
        [(0x7fff_1234, FrameEdge::KernelEntry), (KERNEL + u64::from(CODE) + 1, FrameEdge::Interrupt)]
    {
        let words = [0x5151, interrupted, 0x33, 0x246, 0x7fff_0100, 0x2b];
        let memory: Vec<u8> = words.iter().flat_map(|word| u64::to_le_bytes(*word)).collect();
        let registers = Registers { pc: KERNEL + u64::from(CODE) + 1, sp: stack, fp: 1, ..Registers::default() };
        let mut frames = [Frame::EMPTY; 8];
        let memory = StackBytes { start: Avma(stack), bytes: &memory };
        let walk = unwind(&modules, &registers, &memory, &mut Cache::new(), &mut frames);
        assert!(walk.frames >= 2, "{walk:?}");
        assert_eq!((frames[1].pc, frames[1].exact, frames[1].fp), (Avma(interrupted), true, 0x5151));
        assert_eq!((frames[1].edge(&frames[0]), frames[0].cfa), (edge, Avma(0x7fff_0100)));
    }
}

/// As Microsoft's compiler saves registers: above the CFA, where the caller left room for parameters.
#[test]
fn t5_a_register_in_the_callers_home_space_is_read_there() {
    let mut made = Made::default();
    // mov [rsp + 8], rbp; push rdi; sub rsp, 32; nop
    let code = [0x48, 0x89, 0x6c, 0x24, 0x08, 0x57, 0x48, 0x83, 0xec, 0x20, 0x90];
    // The save is told of at the prolog's end, from where its offset counts.
    made.function(&code, &[1, 10, 4, 0, 10, 0x54, 6, 0, 10, 0x32, 6, 0x70]);
    made.check(&[(0, "CFA = rsp+8"), (6, "CFA = rsp+16"), (10, "CFA = rsp+48; rbp = [CFA+0]")]);
    let start = 0x7fff_0000;
    let mut bytes = vec![0; 0x100];
    bytes.splice(40..48, (BASE + 0x4444).to_le_bytes());
    bytes.splice(48..56, 0x5151_u64.to_le_bytes());
    let registers = Registers { pc: BASE + u64::from(CODE) + 10, sp: start, fp: 0x7777, ..Registers::default() };
    let (frames, _) = made.walk(registers, (start, &bytes));
    assert_eq!((frames[1].pc, frames[1].fp), (Avma(BASE + 0x4444), 0x5151));
}

#[test]
fn t5_unwind_information_outside_the_file_and_entries_outside_the_code_are_said() {
    let mut made = Made::default();
    let code = made.code(&[0x90; 8]);
    made.entry(code, 0x7000_0000);
    made.entry((0x9000, 0x9010), XDATA);
    let report = made.compile().report;
    assert_eq!((report.unwind_entries, report.entries_outside_text, report.unsupported_count), (2, 1, 1));
    assert!(report.unsupported_reasons.contains_key("exception directory: unwind information that is not in the file"));
}

/// The rules of a function of Windows and the slots of its registers, wherever they change.
fn with_slots(made: &Made) -> Vec<(u64, String)> {
    let compiled = made.compile();
    let table = Table::open(&compiled.bytes).expect("our own table");
    table.verify().expect("our own table");
    let rows = table.rows().filter(|(_, rule, _)| rule.source() != Some(RuleSource::None));
    rows.map(|(rva, rule, slots)| {
        let rule = rule.display(Arch::X86_64).to_string().replace(" RA = [CFA-8];", "").replace("; RA = [CFA-8]", "");
        // rbx, rsi, rdi and r12 to r15.
        let saved: Vec<String> = [3u8, 4, 5, 12, 13, 14, 15]
            .iter()
            .filter_map(|register| match slots.of(Arch::X86_64, *register)? {
                symseal_unwind::Saved::Same => None,
                symseal_unwind::Saved::At(words) => Some(format!("{register}@{words}")),
                symseal_unwind::Saved::Unknown => Some(format!("{register}?")),
            })
            .collect();
        (rva.0 - u64::from(CODE), format!("{rule} {}", saved.join(" ")))
    })
    .collect()
}

#[path = "traps_windows/without_codes.rs"]
mod t5_of_an_entry_with_a_handler_and_no_codes_the_instructions_tell_the_frame;

/// As in `_zmq.pyd` of pyzmq: a register is saved late, and what comes before that, with a return, is the prolog.
#[test]
fn t5_a_return_within_a_stated_prolog_is_an_epilog() {
    // push rdi; sub rsp, 32; test rcx, rcx; jne; xor eax, eax; add rsp, 32; pop rdi; ret; mov [rsp + 48], rbx; nop; mov rbx, [rsp + 48]; jmp
    let code = [
        &[0x40, 0x57, 0x48, 0x83, 0xec, 0x20, 0x48, 0x85, 0xc9, 0x75, 8, 0x33, 0xc0][..],
        &[0x48, 0x83, 0xc4, 0x20, 0x5f, 0xc3, 0x48, 0x89, 0x5c, 0x24, 0x30, 0x90, 0x48, 0x8b, 0x5c, 0x24, 0x30],
        &[0xeb, 0xec],
    ];
    let mut made = Made::default();
    made.function(&code.concat(), &[1, 24, 4, 0, 24, 0x34, 6, 0, 6, 0x32, 2, 0x70]);
    let rows = with_slots(&made);
    let rows: Vec<(u64, &str)> = rows.iter().map(|(at, row)| (*at, row.as_str())).collect();
    assert_eq!(
        rows,
        [
            (0, "CFA = rsp+8 "),
            (2, "CFA = rsp+16 5@-2"),
            (6, "CFA = rsp+48 5@-2"),
            (17, "CFA = rsp+16 5@-2"),
            (18, "CFA = rsp+8 "),
            (19, "CFA = rsp+48 5@-2"),
            (24, "CFA = rsp+48 3@0 5@-2"),
        ]
    );
    // What a prolog does to the stack pointer before a jump is no epilog: push rbx; add rsp, -128; jmp to what no entry speaks of.
    let mut made = Made::default();
    made.function(&[0x53, 0x48, 0x83, 0xc4, 0x80, 0xe9, 0, 1, 0, 0], &[1, 10, 2, 0, 5, 0xf2, 1, 0x30]);
    made.check(&[(0, "CFA = rsp+8"), (1, "CFA = rsp+16"), (5, "CFA = rsp+144")]);
    // A way out before it, that gives up what there is: push rbx; pop rbx; jmp there; sub rsp, 32; nop
    let mut made = Made::default();
    let code = [0x53, 0x5b, 0xe9, 0, 1, 0, 0, 0x48, 0x83, 0xec, 0x20, 0x90];
    made.function(&code, &[1, 11, 2, 0, 11, 0x32, 1, 0x30]);
    made.check(&[
        (0, "CFA = rsp+8"),
        (1, "CFA = rsp+16"),
        (2, "CFA = rsp+8"),
        (7, "CFA = rsp+16"),
        (11, "CFA = rsp+48"),
    ]);
}

/// As in `_multiarray_umath` of numpy: the registers are restored in one part, and the return is in the next one, of which the frame is nothing.
#[test]
fn t5_an_epilog_may_run_on_into_the_next_part_of_its_function() {
    let mut made = Made::default();
    // test r8, r8; push rsi; push rdi; sub rsp, 32
    let primary = made.code(&[0x4d, 0x85, 0xc0, 0x56, 0x57, 0x48, 0x83, 0xec, 0x20]);
    // mov [rsp + 88], rbx; nop; mov rbx, [rsp + 88]; add rsp, 32; pop rdi; pop rsi
    let part = [0x48, 0x89, 0x5c, 0x24, 0x58, 0x90, 0x48, 0x8b, 0x5c, 0x24, 0x58, 0x48, 0x83, 0xc4, 0x20, 0x5f, 0x5e];
    let part = made.code(&part);
    let rest = made.code(&[0xc3]);
    let info = made.xdata(&[1, 9, 3, 0, 9, 0x32, 5, 0x70, 4, 0x60, 0, 0]);
    made.entry(primary, info);
    let words = [primary.0, primary.1, info].map(u32::to_le_bytes).concat();
    let saves = made.xdata(&[&[0x21, 5, 2, 0, 5, 0x34, 11, 0][..], &words].concat());
    made.entry(part, saves);
    let chained = made.xdata(&[&[0x21, 0, 0, 0][..], &words].concat());
    made.entry(rest, chained);
    let rows = with_slots(&made);
    let rows: Vec<(u64, &str)> = rows.iter().map(|(at, row)| (*at, row.as_str())).collect();
    let expected = [
        (0, "CFA = rsp+8 "),
        (4, "CFA = rsp+16 4@-2"),
        (5, "CFA = rsp+24 4@-2 5@-3"),
        (9, "CFA = rsp+56 4@-2 5@-3"),
        (14, "CFA = rsp+56 3@4 4@-2 5@-3"),
        (24, "CFA = rsp+24 4@-2 5@-3"),
        (25, "CFA = rsp+16 4@-2"),
        (26, "CFA = rsp+8 "),
    ];
    assert_eq!(rows, expected);
    // Pops at the end of a function, and the return of the next one, are none.
    let mut made = Made::default();
    made.function(&[0x53, 0x90, 0x5b], &[1, 1, 1, 0, 1, 0x30, 0, 0]);
    made.function(&[0xc3], &[1, 0, 0, 0]);
    made.check(&[(0, "CFA = rsp+8"), (1, "CFA = rsp+16"), (3, "CFA = rsp+8")]);
}
