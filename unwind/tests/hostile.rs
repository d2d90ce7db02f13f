//! Damaged tables, damaged unwind sections, stacks made of anything: nothing panics and everything ends.

use crate::cfi;
use crate::elf;
use crate::elf::{Binary, Random};
use symseal_module::Avma;
use symseal_unwind::compile::{Bases, Input, Report, compile};
use symseal_unwind::{
    Arch, Cache, CodeBytes, Frame, GoRuntime, GoroutineFields, Module, Modules, Options, Registers, StackBytes, Table,
    VerifyError, unwind_with,
};

/// Whatever `input` is, there is a sound table, with which walks end.
fn compile_anything(input: &Input<'_>, random: &mut Random) -> Report {
    let compiled = compile(input).expect("a table, whatever the input holds");
    assert!(compiled.report.covered_bytes <= compiled.report.text_bytes);
    let table = Table::open(&compiled.bytes).expect("our own table");
    table.verify().expect("our own table");
    walk_anything(table, random);
    compiled.report
}

/// Walks a few stacks of random words that like to point into the module.
fn walk_anything(table: Table<'_>, random: &mut Random) {
    let arch = table.arch();
    let (text_start, text_end) = (table.text_start().0, table.text_end().0);
    // Addresses that the processor has.
    let (base, own_stack) = match arch.word_bytes() {
        4 => (0x5500_0000u64, 0x7fff_0000),
        _ => (0x5500_0000_0000, 0x7fff_0000_0000),
    };
    // Calls and noise: words behind them look like return addresses.
    let code: Vec<u8> = (0..1024)
        .flat_map(|_| match random.below(3) {
            0 => (random.next() as u32).to_le_bytes(),
            1 => [0x90, 0x90, 0xff, 0xd0],
            _ => [0xe8, random.below(4) as u8, 0, 0],
        })
        .collect();
    let module = Module {
        start: Avma(base),
        end: Avma(base.wrapping_add(text_end).max(base + 1)),
        bias: base.wrapping_sub(table.image_base().0),
        image_base: table.image_base(),
        table: Some(table),
        code: Some(CodeBytes { start: Avma(base.wrapping_add(text_start)), bytes: &code }),
    };
    // A runtime of Go whose structures lie on the same stack.
    let g = GoroutineFields { stack_lo: 0, stack_hi: 8, m: 16, sched_sp: 24, sched_pc: 32, sched_bp: 40 };
    let middle = Avma(module.start.0.wrapping_add(text_end / 2));
    let go = GoRuntime { switches: vec![module.start..middle], c_calls: vec![middle..module.end], g, curg: 48 };
    let modules = Modules::new(arch, vec![module]);
    let modules = if random.below(3) == 0 { modules.with_go_runtime(go) } else { modules };
    let stack_start = if random.below(4) == 0 { u64::MAX - 4096 + 1 } else { own_stack };
    let mut stack = Vec::with_capacity(4096);
    for _ in 0..512 {
        let word = match random.below(5) {
            0 => random.next(),
            // As asynchronous functions of Swift mark it.
            4 => stack_start.wrapping_add(random.below(4096) & !7) | 1 << 60,
            1 => stack_start.wrapping_add(random.below(4096)),
            _ => base.wrapping_add(text_start).wrapping_add(random.below((text_end - text_start).max(1))),
        };
        stack.extend(word.to_le_bytes());
    }
    let memory = StackBytes { start: Avma(stack_start), bytes: &stack };
    let mut cache = Cache::with_capacity([0, 1, 7, 64][random.below(4) as usize]);
    let mut frames = vec![Frame::EMPTY; 600];
    for _ in 0..4 {
        let mut registers = Registers {
            pc: base.wrapping_add(text_start).wrapping_add(random.below((text_end - text_start).max(1))),
            sp: stack_start.wrapping_add(random.below(4096)),
            fp: stack_start.wrapping_add(random.below(4096)),
            general: [None; Registers::GENERAL],
        };
        for general in &mut registers.general {
            *general = (random.below(2) == 0).then(|| stack_start.wrapping_add(random.below(4096) & !7));
        }
        let (scan, continuations) = (random.below(2) == 0, random.below(2) == 0);
        let options = Options { scan, continuations, ..Options::default() };
        let walk = unwind_with(&modules, &registers, &memory, &mut cache, &mut frames, options);
        assert!(walk.frames > 0);
        for frame in frames.iter().take(walk.frames) {
            let _ = (modules.source(frame), modules.rule(frame));
        }
    }
}

fn small_binary() -> Option<Binary> {
    Binary::read(elf::LOADER).or_else(|| Binary::read("/bin/true"))
}

#[test]
fn t17_a_damaged_table_is_refused_or_read_without_harm() {
    let Some(binary) = small_binary() else { return elf::skip("libc", "no ELF file of this machine") };
    let good = binary.compile().bytes;
    let mut random = Random(3);
    let mut opened = 0;
    for turn in 0..3000 {
        let mut bytes = good.clone();
        if turn % 4 == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
            assert!(Table::open(&bytes).is_err(), "a cut table is noticed");
            continue;
        }
        // Behind the header's checksum, so that opening succeeds and the damage is met later.
        let first_section = 96 + 10 * 24;
        for _ in 0..=random.below(20) {
            let at = first_section + random.below((bytes.len() - first_section) as u64) as usize;
            bytes[at] = random.next() as u8;
        }
        let Ok(table) = Table::open(&bytes) else { continue };
        opened += 1;
        let _ = (table.verify(), table.rows().count(), table.sources().count());
        walk_anything(table, &mut random);
    }
    assert!(opened > 1000, "{opened}");
}

/// CRC-32 (IEEE 802.3) of `bytes`, one bit after the other.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 != 0 { 0xedb8_8320 } else { 0 })
    })
}

/// Who makes a table to deceive makes its checksums right.
#[test]
fn a_source_map_that_is_cut_is_noticed_though_its_checksums_are_right() {
    let Some(binary) = small_binary() else { return elf::skip("libc", "no ELF file of this machine") };
    let mut bytes = binary.compile().bytes;
    Table::open(&bytes).expect("our own table").verify().expect("our own table");
    let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let sections = u32::from_le_bytes(bytes[12..16].try_into().unwrap()) as usize;
    let directory = 96..96 + sections * 24;
    // docs/formats/uwt.md: kind, CRC, position, length; the source map is section 10.
    let entry = directory.clone().step_by(24).find(|at| bytes[*at..at + 4] == [10, 0, 0, 0]).expect("a source map");
    let map = word(&bytes, entry + 8)..word(&bytes, entry + 8) + word(&bytes, entry + 16);
    // The last number goes on behind the end.
    bytes[map.end - 1] |= 0x80;
    let crc = crc32(&bytes[map]);
    bytes[entry + 4..entry + 8].copy_from_slice(&crc.to_le_bytes());
    bytes[8..12].fill(0);
    let crc = crc32(&bytes[..directory.end]);
    bytes[8..12].copy_from_slice(&crc.to_le_bytes());
    let table = Table::open(&bytes).expect("its head is sound");
    assert_eq!(table.verify(), Err(VerifyError::SourceMap));
}

#[test]
fn t17_every_damaged_byte_of_a_table_is_noticed() {
    let Some(binary) = small_binary() else { return elf::skip("libc", "no ELF file of this machine") };
    let good = binary.compile().bytes;
    let table = Table::open(&good).expect("our own table");
    table.verify().expect("our own table");
    let mut random = Random(5);
    let mut unnoticed = 0;
    for _ in 0..2000 {
        let mut bytes = good.clone();
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << random.below(8);
        if Table::open(&bytes).is_ok_and(|table| table.verify().is_ok()) {
            // Padding between sections carries no meaning.
            assert_eq!(good[at], 0, "byte {at:#x}");
            unnoticed += 1;
        }
    }
    assert!(unnoticed < 200, "{unnoticed}");
}

#[test]
fn t17_damaged_unwind_sections_compile_to_sound_tables() {
    let Some(binary) = small_binary() else { return elf::skip("libc", "no ELF file of this machine") };
    let parts = binary.parts();
    let (address, good) = parts.eh_frame.expect(".eh_frame");
    let (header_address, good_header) = parts.eh_frame_hdr.expect(".eh_frame_hdr");
    let mut random = Random(11);
    let mut supported = 0;
    for turn in 0..300 {
        let mut bytes = good.to_vec();
        let mut header = good_header.to_vec();
        for _ in 0..=random.below(40) {
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] = random.next() as u8;
            let at = random.below(header.len() as u64) as usize;
            header[at] = random.next() as u8;
        }
        if turn % 5 == 0 {
            bytes.truncate(random.below(bytes.len() as u64) as usize);
        }
        let as_debug_frame = turn % 7 == 0;
        let input = Input {
            eh_frame: (!as_debug_frame).then_some((address, &bytes)),
            eh_frame_hdr: Some((header_address, &header)),
            debug_frame: as_debug_frame.then_some((0, &bytes)),
            ..parts.input()
        };
        let report = compile_anything(&input, &mut random);
        supported += report.rules;
    }
    assert!(supported > 1000, "{supported}");
}

/// Instructions that a random word seldom is: of the stack pointer, of saves, of branches and calls.
const MIPS_WORDS: [u32; 12] = [
    0x27bd_ffe0,
    0x27bd_0020,
    0xafbf_001c,
    0x8fbf_001c,
    0x03a0_f025,
    0x03c0_e825,
    0x03e0_0008,
    0x0320_f809,
    0x1000_0004,
    0x1440_fffc,
    0x0411_0001,
    0x0040_0008,
];

#[test]
#[allow(clippy::single_range_in_vec_init, reason = "one range of code is what is meant")]
fn t17_code_and_descriptors_of_anything_compile_to_sound_tables() {
    let id = cfi::debug_id();
    let mut random = Random(17);
    let mut rules = 0;
    for turn in 0..90 {
        let arch = [Arch::Mips32, Arch::Mips32Little][turn % 2];
        let order = |word: u32| if turn % 2 == 0 { word.to_be_bytes() } else { word.to_le_bytes() };
        let code: Vec<u8> = (0..2000)
            .flat_map(|_| match random.below(4) {
                0 => order(random.next() as u32),
                _ => order(MIPS_WORDS[random.below(12) as usize]),
            })
            .collect();
        let records: Vec<u8> = (0..8 * 40)
            .flat_map(|at| match at % 8 {
                0 => order(0x1000 + random.below(2200) as u32 * 4),
                6 => order(29 * (random.below(2) as u32)),
                _ => order(random.next() as u32),
            })
            .collect();
        let functions: Vec<u64> = (0..40).map(|_| 0x1000 + random.below(9000)).collect();
        let input = Input {
            text: &[0x1000..0x1000 + code.len() as u64],
            pdr: Some(&records),
            functions: &functions,
            code: &[(0x1000, &code)],
            ..Input::of(arch, &id)
        };
        let report = compile_anything(&input, &mut random);
        rules += report.rules;
    }
    assert!(rules > 500, "{rules}");
}

#[test]
#[allow(clippy::single_range_in_vec_init, reason = "one range of code is what is meant")]
fn t17_code_that_no_table_can_span_is_refused() {
    let Some(binary) = small_binary() else { return elf::skip("libc", "no ELF file of this machine") };
    let parts = binary.parts();
    let check = |text: &[std::ops::Range<u64>], expected: &str| {
        let error = compile(&Input { text, ..parts.input() }).expect_err("no table").to_string();
        assert!(error.contains(expected), "{error}");
    };
    check(&[], "found none");
    #[allow(clippy::reversed_empty_ranges, reason = "what a broken section header gives")]
    check(&[5..5, 9..3], "found none");
    check(&[0..1 << 40], "found 0x0 to 0x10000000000");
    check(&[0..u64::MAX], "0xffffffffffffffff");
}

#[test]
fn t17_the_same_input_gives_the_same_bytes() {
    let Some(binary) = small_binary() else { return elf::skip("libc", "no ELF file of this machine") };
    assert!(binary.compile().bytes == binary.compile().bytes);
}

#[test]
fn t17_a_header_that_points_before_its_section_is_ignored() {
    let id = cfi::debug_id();
    #[allow(clippy::single_range_in_vec_init, reason = "one range of code is what is meant")]
    let text = [0x1000..0x2000];
    // Version 1; 8-byte pointer to the section, 4-byte count, a table of 8-byte values: code at 0x1000, entry at 0x10.
    let mut header = vec![1, 0x04, 0x03, 0x04];
    header.extend(0x9000u64.to_le_bytes());
    header.extend(1u32.to_le_bytes());
    header.extend(0x1000u64.to_le_bytes());
    header.extend(0x10u64.to_le_bytes());
    let input = Input {
        text: &text,
        // An entry that is longer than the section, so that the header is asked.
        eh_frame: Some((0x9000, &[0xff; 3])),
        eh_frame_hdr: Some((0x8000, &header)),
        ..Input::of(symseal_unwind::Arch::X86_64, &id)
    };
    let report = compile(&input).expect("a table").report;
    assert_eq!((report.fdes, report.damaged_entries), (0, 1));
}

/// Directories, records and encodings of Windows and Mach-O images that have a form, with noise in them.
#[test]
fn t17_unwind_information_of_images_never_leads_to_a_table_that_is_not_sound() {
    let mut random = Random(11);
    let id = cfi::debug_id();
    let mut rules = 0;
    for round in 0..3000 {
        let arch = if round & 1 == 0 { Arch::X86_64 } else { Arch::Aarch64 };
        let base = 0x1_4000_0000;
        let mut noise = |length: u64, few: u64| -> Vec<u8> {
            let likely = [0, 1, 2, 3, 4, 0x10, 0x21, 0x32, 0x30, 0x50, 0xc3, 0x5b, 0xe4, 0xe5, 0xe6, 0x81, 0xfc, 0x55];
            (0..length)
                .map(|_| match random.below(few) {
                    0 => random.next() as u8,
                    _ => likely[random.below(likely.len() as u64) as usize],
                })
                .collect()
        };
        let (code, info) = (noise(512, 4), noise(400, 6));
        let mut directory = noise(36, 3);
        for entry in 0..20u32 {
            let word = 0x4000 + 4 * (random.below(80) as u32);
            let packed = (random.next() as u32 & !3) | (1 + random.below(2) as u32);
            let begin = 0x1000 + 16 * entry;
            match (arch, random.below(3)) {
                (Arch::X86_64, _) => {
                    let end = begin + random.below(40) as u32;
                    directory.extend([begin, end, word].map(u32::to_le_bytes).concat());
                }
                (_, 0) => directory.extend([begin, packed].map(u32::to_le_bytes).concat()),
                _ => directory.extend([begin, word].map(u32::to_le_bytes).concat()),
            }
        }
        // One page of the regular kind, with likely modes.
        let mut unwind_info: Vec<u8> =
            [1, 28, 0, 28, 0, 28, 2, 0x1000, 52, 0, 0x1200, 0, 0, 2, 8 | 20 << 16].map(u32::to_le_bytes).concat();
        for entry in 0..20u32 {
            let encoding = (1 + random.below(4) as u32) << 24 | random.next() as u32 & 0x00ff_ffff;
            unwind_info.extend([0x1000 + 24 * entry, encoding].map(u32::to_le_bytes).concat());
        }
        if random.below(2) == 0 {
            let at = random.below(unwind_info.len() as u64) as usize;
            unwind_info[at] = random.next() as u8;
        }
        let at = |rva: u64| base + rva;
        let text: Vec<_> = std::iter::once(at(0x1000)..at(0x1200)).collect();
        let loaded = [(at(0x1000), &code[..]), (at(0x4000), &info), (at(0x8000), &directory)];
        let is_macho = round % 4 >= 2;
        let input = Input {
            arch,
            image_base: symseal_module::Svma(base),
            text: &text,
            pdata: (!is_macho).then_some((at(0x8000), &directory)),
            unwind_info: is_macho.then_some((at(0x8000), &unwind_info)),
            eh_frame: is_macho.then_some((at(0x4000), &info)),
            loaded: &loaded,
            code: &loaded[..1],
            ..cfi::empty_input(&id)
        };
        let report = compile_anything(&input, &mut random);
        rules += report.rules;
    }
    assert!(rules > 10_000, "{rules}");
}

/// Instructions that random bytes seldom are: of RISC-V, of Thumb and of ARM, little-endian.
const FRAMING: [&[&[u8]]; 3] = [
    &[
        &[0x01, 0x11],
        &[0x06, 0xec],
        &[0x22, 0xe8],
        &[0x00, 0x10],
        &[0x82, 0x97],
        &[0xe2, 0x60],
        &[0x05, 0x61],
        &[0x82, 0x80],
        &[0x82, 0x87],
    ],
    &[
        &[0x10, 0xb5],
        &[0x82, 0xb0],
        &[0x00, 0xaf],
        &[0xbd, 0x46],
        &[0x10, 0xbd],
        &[0x18, 0xbf],
        &[0xdf, 0xe8, 0x00, 0xf0],
        &[0x2d, 0xe9, 0xf0, 0x4f],
        &[0x98, 0x47],
    ],
    &[
        &[0x00, 0x48, 0x2d, 0xe9],
        &[0x04, 0xb0, 0x8d, 0xe2],
        &[0x04, 0xd0, 0x4b, 0xe2],
        &[0x00, 0x88, 0xbd, 0xe8],
        &[0x00, 0x88, 0xbd, 0x18],
        &[0x03, 0xf0, 0x8f, 0xe0],
    ],
];

#[test]
#[allow(clippy::single_range_in_vec_init, reason = "one range of code is what is meant")]
fn t17_code_and_index_tables_of_anything_compile_to_sound_tables() {
    let id = cfi::debug_id();
    let mut random = Random(23);
    let mut rules = 0;
    for turn in 0..90 {
        let kind = turn % FRAMING.len();
        let arch = if kind == 0 { Arch::Riscv64 } else { Arch::Arm };
        let code: Vec<u8> = (0..2000)
            .flat_map(|_| match random.below(4) {
                0 => random.next().to_le_bytes()[..4].to_vec(),
                _ => FRAMING[kind][random.below(FRAMING[kind].len() as u64) as usize].to_vec(),
            })
            .collect();
        // Functions near the code, descriptions in their own words or near the table.
        let entry = |at: u64, random: &mut Random| {
            let place = 0x8000 + 8 * at;
            let to = |target: u64, from: u64| (target.wrapping_sub(from) as u32) & 0x7fff_ffff;
            let function = to(0x1000 + random.below(9000), place);
            let description = match random.below(4) {
                0 => 1,
                1 => 0x8000_0000 | random.next() as u32 & 0x00ff_ffff,
                2 => to(0x8000 + random.below(0x400), place + 4),
                _ => random.next() as u32,
            };
            [function, description].into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>()
        };
        let index: Vec<u8> = (0..100).flat_map(|at| entry(at, &mut random)).collect();
        let functions: Vec<u64> = (0..60).map(|_| 0x1000 + random.below(9000)).collect();
        let input = Input {
            text: &[0x1000..0x1000 + code.len() as u64],
            exidx: Some((0x8000, &index)),
            loaded: &[(0x8000, &index)],
            functions: &functions,
            code: &[(0x1000, &code)],
            ..Input::of(arch, &id)
        };
        let report = compile_anything(&input, &mut random);
        rules += report.rules;
    }
    assert!(rules > 500, "{rules}");
}

#[test]
#[allow(clippy::single_range_in_vec_init, reason = "one range of code is what is meant")]
fn t17_tables_of_functions_of_anything_compile_to_sound_tables() {
    let id = cfi::debug_id();
    let mut random = Random(29);
    let mut described = 0;
    for turn in 0..300u64 {
        let (magic, fields) = [(0xffff_fffau32, 7), (0xffff_fff0, 8), (0xffff_fff1, 8)][(turn % 3) as usize];
        let arch = if turn % 2 == 0 { Arch::X86_64 } else { Arch::Aarch64 };
        let mut bytes = magic.to_le_bytes().to_vec();
        bytes.extend([0, 0, if turn % 2 == 0 { 1 } else { 4 }, 8]);
        for field in 0..fields {
            let value = match field {
                0 => random.below(400),
                // 0 where the code has to show it.
                2 if fields == 8 => 0x1000 * (turn & 1),
                _ => 0x48 + random.below(0x400),
            };
            bytes.extend(value.to_le_bytes());
        }
        // Numbers that are small, so that some of them lead somewhere.
        bytes.extend((0..0x400).flat_map(|_| (random.below(0x300) as u32).to_le_bytes()));
        let code: Vec<u8> =
            (0..0x4000).map(|_| if random.below(2) == 0 { 0x55 } else { random.next() as u8 }).collect();
        let input = Input {
            text: &[0x1000..0x5000],
            pclntab: Some((0x8000, &bytes)),
            code: if turn % 4 == 0 { &[] } else { &[(0x1000, &code)] },
            bases: Bases { text: Some(0x1000), got: None },
            ..Input::of(arch, &id)
        };
        let report = compile_anything(&input, &mut random);
        described += report.unwind_entries;
    }
    assert!(described > 100, "{described}");
}

/// A header of 40 bytes names as much code as there is. What looks for functions goes over each byte of the file once; in proportion to the sections this took
/// minutes.
#[test]
fn sections_that_are_all_the_same_bytes_of_a_file_are_looked_through_once() {
    let mut random = Random(11);
    // Pushes of the link register, and words that lead to them.
    let code: Vec<u8> =
        (0..4096).flat_map(|at: u32| [0xe92d_4010, 0x10_0000 + at * 8]).flat_map(u32::to_le_bytes).collect();
    let sections: Vec<(u64, &[u8])> = (0..1500).map(|at| (0x10_0000 * (at + 1), &*code)).collect();
    let text: Vec<_> = sections.iter().map(|(start, code)| *start..start + code.len() as u64).collect();
    let debug_id = "abcdef".parse().expect("an id");
    let input = Input { text: &text, code: &sections, loaded: &sections, ..Input::of(Arch::Arm, &debug_id) };
    compile_anything(&input, &mut random);
}
