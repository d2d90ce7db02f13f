//! ELF files that no linker makes: more sections than 16 bits count, sections over each other, entries in circles.

use std::ops::Range;

use crate::support::{have, lookup, run};
use symseal_artifact::{DebugFiles, ObjectFile, functions};

const SHT_PROGBITS: u32 = 1;
const SHT_STRTAB: u32 = 3;
const ALLOCATED_CODE: u64 = 2 | 4;
/// In `e_shstrndx`: the index stands in section 0. (gABI, "Section Header")
const SHN_XINDEX: u16 = 0xffff;

struct Section<'a> {
    name: &'a str,
    addr: u64,
    content: &'a [u8],
}

/// A shared library for x86_64 of `empty` sections without a name and then these, all executable.
fn library(empty: usize, sections: &[Section<'_>]) -> Vec<u8> {
    let mut file = vec![0_u8; 64];
    file[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    file[16] = 3;
    file[18] = 62;
    file[58] = 64;
    let mut names = vec![0_u8];
    let mut headers = Vec::new();
    let mut header = |name: usize, kind: u32, flags: u64, addr: u64, at: usize, size: usize, link: u32| {
        headers.extend((name as u32).to_le_bytes());
        headers.extend(kind.to_le_bytes());
        for value in [flags, addr, at as u64, size as u64] {
            headers.extend(value.to_le_bytes());
        }
        headers.extend(u64::from(link).to_le_bytes());
        headers.extend([1_u64, 0].map(u64::to_le_bytes).concat());
    };
    let count = empty + sections.len() + 2;
    header(0, 0, 0, 0, 0, count, count as u32 - 1);
    (0..empty).for_each(|_| header(0, 0, 0, 0, 0, 0, 0));
    for section in sections {
        header(names.len(), SHT_PROGBITS, ALLOCATED_CODE, section.addr, file.len(), section.content.len(), 0);
        names.extend(section.name.bytes().chain([0]));
        file.extend(section.content);
    }
    let own_name = names.len();
    names.extend(b".shstrtab\0");
    header(own_name, SHT_STRTAB, 0, 0, file.len(), names.len(), 0);
    file.extend(&names);
    let table = file.len() as u64;
    file[40..48].copy_from_slice(&table.to_le_bytes());
    // Section 0 has the numbers, whether they fit 16 bits or not.
    file[62..64].copy_from_slice(&SHN_XINDEX.to_le_bytes());
    file.extend(headers);
    file
}

#[test]
fn more_sections_than_16_bits_count_are_read() {
    const EMPTY: usize = 70_000;
    let file = library(EMPTY, &[Section { name: ".text", addr: 0x1000, content: &[0xc3; 32] }]);
    let object = ObjectFile::parse(&file).expect("headers are fine");
    assert_eq!(object.section(".text").map(|(svma, bytes)| (svma.0, bytes.len())), Some((0x1000, 32)));
    assert!(object.is_executable() && object.debug_id().is_some());
    if have("readelf") {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("many"), &file).expect("a file");
        let text = run("readelf", &["-h", "many"], folder.path()).expect("readelf");
        assert!(text.contains(&format!("0 ({})", EMPTY + 3)), "{text}");
    }
    // A table that is not there is not made room for.
    let mut cut = file[..file.len() - 64].to_vec();
    let error = ObjectFile::parse(&cut).expect_err("cut short").to_string();
    assert!(error.contains("section header table"), "{error}");
    cut.truncate(64);
    cut[60..62].copy_from_slice(&0xffff_u16.to_le_bytes());
    cut[40..48].copy_from_slice(&64_u64.to_le_bytes());
    assert!(ObjectFile::parse(&cut).is_err());
}

#[test]
fn overlapping_sections_are_counted_once() {
    let section = |name, addr, content| Section { name, addr, content };
    let bytes = [0xc3; 0x40];
    let file = library(
        0,
        &[
            section(".text", 0x1000, &bytes[..]),
            section(".text.within", 0x1010, &bytes[..0x10]),
            section(".text.over", 0x1030, &bytes[..]),
            section(".text.same", 0x1000, &bytes[..]),
            section(".text.last", u64::MAX - 8, &bytes[..]),
        ],
    );
    let object = ObjectFile::parse(&file).expect("headers are fine");
    assert_eq!(object.unwind_inputs().text, vec![Range { start: 0x1000, end: 0x1070 }]);
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    assert_eq!(stream.statistics.text_bytes, 0x70);
}

/// A function whose name is said to stand in another entry, which refers to a third one, and that back to it.
const CIRCLE: &str = r#"
        .text
        .globl  f
        .type   f, @function
f:      ret
        .size   f, .-f
.Lend:
        .section .debug_abbrev, "", @progbits
        .uleb128 1, 0x11
        .byte   1
        .uleb128 0x11, 1, 0, 0
        .uleb128 2, 0x2e
        .byte   0
        .uleb128 0x11, 1, 0x12, 7, 0x31, 0x13, 0, 0
        .uleb128 3, 0x2e
        .byte   0
        .uleb128 0x31, 0x13, 0, 0
        .byte   0
        .section .debug_info, "", @progbits
.Lunit: .long   .Lbehind - .Lversion
.Lversion:
        .short  4
        .long   0
        .byte   8
        .uleb128 1
        .quad   f
        .uleb128 2
        .quad   f, .Lend - f
        .long   .Lone - .Lunit
.Lone:  .uleb128 3
        .long   .Ltwo - .Lunit
.Ltwo:  .uleb128 3
        .long   .Lone - .Lunit
        .byte   0
.Lbehind:
"#;

#[test]
fn origins_in_a_circle_end_and_the_symbol_names() {
    if !have("gcc") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("circle.s"), CIRCLE).expect("a source");
    run("gcc", &["-shared", "-nostdlib", "circle.s", "-o", "circle.so"], folder.path()).expect("gcc");
    let bytes = std::fs::read(folder.path().join("circle.so")).expect("a library");
    let object = ObjectFile::parse(&bytes).expect("an object");
    let stream = functions(&object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    let [function] = stream.functions.as_slice() else { panic!("{:?}", stream.functions) };
    assert_eq!(stream.strings.get(function.name), "f");
}
