//! Where stacks end: each of the functions with which systems begin them, with its tables at hand and without, and what is no end.

use crate::cfi::{self, BIAS, EhFrame, Process, Words, advance, at, cfa_offset, saved};
use crate::elf::{self, Binary};
use crate::traps_windows::{BASE, CODE, Made};
use symseal_module::{Avma, Rva, StopReason, Svma, UnwindMethod};
use symseal_unwind::compile::{Input, compile};
use symseal_unwind::{Arch, Cache, Frame, Kind, Module, Modules, Registers, StackBytes, Table, unwind};

const SP: u64 = 0x7fff_0000;

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A module of Windows at `base`, with its table or without.
fn image(base: u64, table: Option<&[u8]>) -> Module<'_> {
    Module {
        start: Avma(base),
        end: Avma(base + 0x8000),
        bias: base.wrapping_sub(BASE),
        image_base: Svma(BASE),
        table: table.map(|table| Table::open(table).expect("our own table")),
        code: None,
    }
}

fn walk(arch: Arch, modules: Vec<Module<'_>>, registers: &Registers, words: &[u64]) -> (Vec<Frame>, StopReason) {
    let mut frames = [Frame::EMPTY; 8];
    let stack = bytes(words);
    let memory = StackBytes { start: Avma(SP), bytes: &stack };
    let walk = unwind(&Modules::new(arch, modules), registers, &memory, &mut Cache::new(), &mut frames);
    (frames.into_iter().take(walk.frames).collect(), walk.stop)
}

const APP: u64 = BASE;
const KERNEL32: u64 = BASE + 0x10_0000;
const NTDLL: u64 = BASE + 0x20_0000;

/// A thread of Windows begins in `RtlUserThreadStart` of ntdll, which calls `BaseThreadInitThunk` of kernel32, which calls the program. The system leaves nothing above it on a
/// new stack: a return address of zero.
#[test]
fn t7_a_thread_of_windows_x64_ends_above_rtl_user_thread_start_and_is_cut_off_without_the_systems_tables() {
    // sub rsp, 40 and sub rsp, 120, as both have it; then calls.
    let function = |lowers: u8| {
        let mut made = Made::default();
        made.function(
            &[&[0x48, 0x83, 0xec, lowers][..], &[0x90; 28]].concat(),
            &[1, 4, 1, 0, 4, (lowers / 8 - 1) << 4 | 2, 0, 0],
        );
        made.compile().bytes
    };
    let (small, large) = (function(40), function(120));
    let inside = |base: u64| base + u64::from(CODE) + 16;
    let mut words = vec![0; 32];
    (words[5], words[11]) = (inside(KERNEL32), inside(NTDLL));
    let registers = Registers { pc: inside(APP), sp: SP, fp: 0x77, ..Registers::default() };
    let with = vec![image(APP, Some(&small)), image(KERNEL32, Some(&small)), image(NTDLL, Some(&large))];
    let (frames, stop) = walk(Arch::X86_64, with, &registers, &words);
    let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0).collect();
    assert_eq!(pcs, [inside(APP), inside(KERNEL32), inside(NTDLL)]);
    assert!(stop == StopReason::RootFramePointer && stop.is_complete(), "{stop}");
    // What a bundle of the program alone has: the thunk is the last that is known, and the stack is not said to be whole.
    let without = vec![image(APP, Some(&small)), image(KERNEL32, None), image(NTDLL, None)];
    let (frames, stop) = walk(Arch::X86_64, without, &registers, &words);
    assert_eq!((frames.len(), frames[1].pc.0), (2, inside(KERNEL32)));
    assert!(stop == StopReason::NoTable && !stop.is_complete(), "{stop}");
    // Without the two as modules at all.
    let (frames, stop) = walk(Arch::X86_64, vec![image(APP, Some(&small))], &registers, &words);
    assert_eq!((frames.len(), stop), (2, StopReason::NoModule));
}

/// On arm64 both keep frame records, and the first one's has zeros: their frame pointers lead to the end without tables.
#[test]
fn t7_a_thread_of_windows_arm64_ends_at_the_record_of_zeros_with_the_systems_tables_and_without() {
    // Packed data: 16 instructions, no other registers, a frame record in a frame of 16 bytes.
    let table = crate::traps_windows_arm64::made(1 | 16 << 2 | 3 << 21 | 1 << 23, &[]).bytes;
    let inside = |base: u64| base + u64::from(CODE) + 32;
    let words = [SP + 16, inside(KERNEL32), SP + 32, inside(NTDLL), 0, 0, 0, 0];
    let mut registers = Registers { pc: inside(APP), sp: SP, fp: SP, ..Registers::default() };
    registers.general[30] = Some(inside(APP));
    for system in [Some(table.as_slice()), None] {
        let modules = vec![image(APP, Some(&table)), image(KERNEL32, system), image(NTDLL, system)];
        let (frames, stop) = walk(Arch::Aarch64, modules, &registers, &words);
        let pcs: Vec<u64> = frames.iter().map(|frame| frame.pc.0).collect();
        assert_eq!(pcs, [inside(APP), inside(KERNEL32), inside(NTDLL)]);
        let method = if system.is_some() { UnwindMethod::Pdata } else { UnwindMethod::FramePointer };
        assert_eq!((frames[2].method, stop), (method, StopReason::RootFramePointer));
    }
}

/// A thread of Linux's kernel on arm64 begins in `ret_from_fork`, below a record of zeros that ends every stack of the kernel. Of the kernel there is no table.
#[test]
fn t7_a_thread_of_the_kernel_ends_at_the_last_record_above_ret_from_fork() {
    const KERNEL: u64 = 0xffff_8000_0800_0000;
    let module = Module {
        start: Avma(KERNEL),
        end: Avma(KERNEL + 0x10_0000),
        bias: 0,
        image_base: Svma(0),
        table: None,
        code: None,
    };
    let pcs = [KERNEL + 0x100, KERNEL + 0x2000, KERNEL + 0x3000];
    let registers = Registers { pc: pcs[0], sp: SP, fp: SP, ..Registers::default() };
    let whole = [SP + 16, pcs[1], SP + 32, pcs[2], 0, 0];
    let (frames, stop) = walk(Arch::Aarch64, vec![module.clone()], &registers, &whole);
    let found: Vec<u64> = frames.iter().map(|frame| frame.pc.0).collect();
    assert_eq!((found.as_slice(), stop), (&pcs[..], StopReason::RootFramePointer));
    // The record is not there: the stack was cut off, and is not said to be whole.
    let (frames, stop) = walk(Arch::Aarch64, vec![module], &registers, &whole[..4]);
    assert!(frames.len() == 3 && !stop.is_complete(), "{stop}");
}

/// The code of musl as Debian has it, which keeps neither call frame information nor frame pointers: `clone` and `_start` set rbp to zero and call.
#[test]
fn t7_threads_of_musl_end_in_clone_and_its_first_thread_in_start() {
    const LIBRARY: &str = "/usr/lib/x86_64-linux-musl/libc.so";
    const START: &str = "/usr/lib/x86_64-linux-musl/crt1.o";
    let (Some(library), Some(start)) = (Binary::read(LIBRARY), Binary::read(START)) else {
        return elf::skip("musl", "not found");
    };
    // xor %ebp, %ebp; pop %rdi; call *%r9, as clone has it, and what stands before; and _start up to its call.
    let position = |bytes: &[u8], wanted: &[u8]| bytes.windows(wanted.len()).position(|window| window == wanted);
    let clone = position(&library.bytes, &[0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1]).expect("clone");
    let clone = &library.bytes[clone - 40..clone + 6];
    let begin = position(&start.bytes, &[0x48, 0x31, 0xed]).expect("_start");
    let begin = &start.bytes[begin..][..position(&start.bytes[begin..], &[0xe8]).expect("a call") + 5];
    for code in [clone, begin] {
        let behind = code.len();
        let mut section = EhFrame::new("zR", cfi::AT_ENTRY);
        section.fde(0x1000, 0x10, &[]);
        let table = section.compile().bytes;
        let ends = |code: &[u8]| {
            let process = Process::with_code(&table, Some((0x1800, code)));
            // A function with a frame pointer and without rules, which this code called.
            let memory = Words::default().with(&[(SP, 0), (SP + 8, at(0x1800 + behind as u64)), (SP + 16, 0)]);
            let registers = Registers { pc: at(0x1f00), sp: SP, fp: SP, ..Registers::default() };
            process.pcs(&registers, &memory)
        };
        let pcs = vec![0x1f00, 0x1800 + behind as u64];
        assert_eq!(ends(code), (pcs.clone(), StopReason::RootFramePointer), "{code:x?}");
        // Without what sets the register to zero it may be anybody's.
        let mut other = code.to_vec();
        let clears = other.windows(2).position(|window| window == [0x31, 0xed]).expect("xor %ebp, %ebp");
        other[clears..clears + 2].copy_from_slice(&[0x31, 0xff]);
        assert_eq!(ends(&other), (pcs, StopReason::NoRule));
    }
}

/// glibc's loader runs what is called before `main` from `_dl_start_user`, which is where the kernel began the process. On aarch64 its call frame information says so; on the others there is
/// none of it, and on some the instructions are known.
#[test]
fn t7_what_the_loader_calls_before_main_ends_in_dl_start_user_where_that_is_known() {
    use object::{Object, ObjectSegment};
    type IsCall = fn(&[u8]) -> bool;
    // How a call begins: call rel32, bl (in its last byte), jal.
    let loaders: [(&str, u64, IsCall, bool); 6] = [
        (elf::LOADER, 5, |code| code[0] == 0xe8, true),
        ("/usr/aarch64-linux-gnu/lib/ld-linux-aarch64.so.1", 4, |code| code[3] >> 2 == 0x25, true),
        ("/usr/i686-linux-gnu/lib/ld-linux.so.2", 5, |code| code[0] == 0xe8, true),
        ("/usr/riscv64-linux-gnu/lib/ld-linux-riscv64-lp64d.so.1", 4, |code| code[0] == 0xef, true),
        ("/usr/mips-linux-gnu/lib/ld.so.1", 8, |code| code[..4] == [0x03, 0x20, 0xf8, 0x09], false),
        ("/usr/arm-linux-gnueabihf/lib/ld-linux-armhf.so.3", 4, |code| code[3] == 0xfa, false),
    ];
    for (path, length, is_call, is_known) in loaders {
        let Some(loader) = Binary::read(path) else {
            elf::skip("a loader", path);
            continue;
        };
        let file = object::File::parse(loader.bytes.as_slice()).expect("an ELF file");
        let entry = file.entry();
        let code = file.segments().find_map(|it| it.data_range(entry, 128).ok().flatten()).expect("code");
        let parts = loader.parts();
        let step = if matches!(parts.arch, Arch::X86_64 | Arch::I686) { 1 } else { 2 };
        let aligned = if step == 2 && parts.arch != Arch::Riscv64 { 4 } else { step };
        let call = (0..120).step_by(aligned).find(|at| is_call(&code[*at..])).expect("a call");
        let behind = entry + call as u64 + length;
        let compiled = loader.compile();
        let table = Table::open(&compiled.bytes).expect("our own table");
        // The instruction that is looked up, and the next one.
        for address in [behind - 1, behind] {
            let kind = table.rule(Rva(address - parts.image_base.0)).and_then(|rule| rule.kind());
            assert_eq!(kind == Some(Kind::End), is_known, "{path}: {address:#x}: {kind:?}");
        }
    }
}

/// Of processors whose calls leave the return address in a register, a leaf has the frame address of what it called, which is to say none of its own: allowed for one frame, as
/// it has been interrupted. The same for a second one would go on for ever.
#[test]
fn t15_a_leaf_has_the_frame_address_of_its_caller_once() {
    for arch in [Arch::Aarch64, Arch::Riscv64, Arch::Mips32, Arch::Arm] {
        let (sp, link, fp) = match arch {
            Arch::Aarch64 => (31, 30, 29),
            Arch::Riscv64 => (2, 1, 8),
            Arch::Mips32 => (29, 31, 30),
            _ => (13, 14, 11),
        };
        let mut section = EhFrame::on(arch, "zR", &[0x0c, sp, 0]);
        // A leaf, a function with a frame, and the first one of the stack.
        section.fde(0x1000, 0x20, &[]).fde(0x1020, 0x20, &[advance(4), cfa_offset(32), saved(link, 1), saved(fp, 2)]);
        section.fde(0x1040, 0x20, &[vec![0x07, link]]);
        let table = section.compile().bytes;
        let process = Process::new(&table);
        let bias = if arch.word_bytes() == 8 { BIAS } else { cfi::BIAS_32 };
        let registers = |link_to: u64| {
            let mut registers = Registers { pc: bias + 0x1010, sp: SP, fp: 0x5550, ..Registers::default() };
            registers.general[usize::from(link)] = Some(bias + link_to);
            registers
        };
        let room = 32 / usize::from(arch.word_bytes());
        let mut words = vec![0; room];
        (words[room - 2], words[room - 1]) = (0x7770, bias + 0x1044);
        let stack = match (arch.word_bytes(), arch.is_big_endian()) {
            (8, _) => bytes(&words),
            (_, true) => words.iter().flat_map(|word| (*word as u32).to_be_bytes()).collect(),
            (_, false) => words.iter().flat_map(|word| (*word as u32).to_le_bytes()).collect(),
        };
        let memory = StackBytes { start: Avma(SP), bytes: &stack };
        let (frames, walk) = process.walk(&registers(0x1030), &memory);
        let found: Vec<(u64, u64)> = frames.iter().map(|frame| (frame.pc.0 - bias, frame.cfa.0)).collect();
        assert_eq!((walk.frames, walk.stop), (3, StopReason::EndOfStack), "{arch}");
        assert_eq!(found[..2], [(0x1010, SP), (0x1030, SP + 32)], "{arch}");
        // A leaf that a leaf returns to.
        assert_eq!(
            process.pcs(&registers(0x1018), &memory),
            (vec![0x1010, 0x1018], StopReason::StackNotRising),
            "{arch}"
        );
    }
}

/// A return address into data of a module, or behind its code, has no rule; none is made up for it.
#[test]
fn t15_a_return_address_that_is_no_code_ends_the_walk() {
    let mut section = EhFrame::new("zR", cfi::AT_ENTRY);
    section.fde(0x1000, 0x10, &[]);
    let id = cfi::debug_id();
    let compiled = compile(&Input {
        text: std::slice::from_ref(&(0x1000..0x1800)),
        eh_frame: Some((0x9000, section.bytes())),
        ..cfi::empty_input(&id)
    });
    let table = compiled.expect("a table").bytes;
    let process = Process::new(&table);
    let registers = Registers { pc: at(0x1004), sp: SP, fp: 0, ..Registers::default() };
    // In a gap of the code, in the data behind it, on the stack itself, in no module, and no address.
    for (to, stop) in [
        (at(0x1700), StopReason::NoRule),
        (at(0x2000), StopReason::NoRule),
        (SP + 8, StopReason::NoModule),
        (0x7f00_9999_0000, StopReason::NoModule),
        (u64::MAX, StopReason::NoModule),
    ] {
        let (frames, walk) = process.walk(&registers, &Words::default().with(&[(SP, to), (SP + 8, at(0x1004))]));
        assert_eq!((frames.len(), walk.stop), (2, stop), "{to:#x}");
    }
}
