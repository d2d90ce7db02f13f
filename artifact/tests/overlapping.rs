//! Files whose headers name the same megabyte thousands of times: the work stays in proportion to the file.

use std::time::{Duration, Instant};

use symseal_artifact::{DebugFiles, ObjectFile, ReleaseFile, functions};

/// Bytes that every part names.
const PAYLOAD: usize = 1 << 20;
/// Headers that name them: 16 GiB in all.
const PARTS: usize = 1 << 14;
/// A file of two or three megabytes; what goes over all parts takes ten times as long at least.
const MOST: Duration = Duration::from_secs(5);

const NOTE: u32 = 7;
const PROGBITS: u32 = 1;
const SYMTAB: u32 = 2;
const STRTAB: u32 = 3;
const RELA: u32 = 4;
const DYNSYM: u32 = 11;
const ALLOCATED: u64 = 2;
const CODE: u64 = 2 | 4;

/// Everything that the builder asks of a file. Debug information that is a megabyte of nonsense may have no functions.
fn read_all(what: &str, file: &[u8]) {
    let started = Instant::now();
    let parsed = ReleaseFile::parse(file).expect("headers are fine");
    let scripts = parsed.has_inline_debugger_scripts();
    let ReleaseFile::Object(object) = parsed else { panic!("{what}: an object") };
    let facts = (
        object.debug_info_kind(),
        object.is_packed_by_dwz(),
        object.go_build_id().is_some(),
        object.split_units().len(),
        object.split_ids().len(),
        object.build_paths().len(),
        object.compile_directories().len(),
        object.debug_link().is_some(),
        object.debug_alt_link().is_some(),
        scripts,
    );
    let inputs = object.unwind_inputs();
    let read = functions(&object, &DebugFiles::default());
    let took = started.elapsed();
    assert!(took < MOST, "{what}: {took:?} {facts:?} {} {}", inputs.text.len(), read.is_ok());
}

/// An ELF file of [`PARTS`] sections over the payload, all of that name, type and flags.
fn elf(is_64: bool, file_type: u8, name: &[u8], kind: u32, flags: u64, payload: &[u8]) -> Vec<u8> {
    let word = |value: u64| if is_64 { value.to_le_bytes().to_vec() } else { (value as u32).to_le_bytes().to_vec() };
    let header = |name: u32, kind: u32, flags: u64, at: usize, size: usize, link: u32| {
        let mut bytes = [name.to_le_bytes(), kind.to_le_bytes()].concat();
        for value in [flags, 0x1000, at as u64, size as u64] {
            bytes.extend(word(value));
        }
        // Relocations concern section 1.
        bytes.extend([link.to_le_bytes(), 1_u32.to_le_bytes()].concat());
        bytes.extend([word(1), word(0)].concat());
        bytes
    };
    let start = if is_64 { 64 } else { 52 };
    let names = [&[0], name, &[0]].concat();
    let names_at = start + payload.len();
    let table = names_at + names.len();
    let mut file = vec![0x7f, b'E', b'L', b'F', if is_64 { 2 } else { 1 }, 1];
    file.resize(16, 0);
    file.extend([file_type, 0, if is_64 { 62 } else { 3 }, 0, 1, 0, 0, 0]);
    file.extend([word(0), word(0), word(table as u64)].concat());
    file.extend([0, 0, 0, 0, start as u8, 0, 0, 0, 0, 0, if is_64 { 64 } else { 40 }, 0]);
    let count = PARTS as u16 + 3;
    file.extend([count.to_le_bytes(), (count - 1).to_le_bytes()].concat());
    file.extend([payload, &names].concat());
    file.extend(header(0, 0, 0, 0, 0, 0));
    // Section 1: what relocations concern; the names of symbols are the payload too.
    file.extend(header(0, PROGBITS, 0, start, payload.len(), 0));
    for _ in 0..PARTS {
        file.extend(header(1, kind, flags, start, payload.len(), 1));
    }
    file.extend(header(0, STRTAB, 0, names_at, names.len(), 0));
    file
}

fn payloads() -> [(&'static str, Vec<u8>); 4] {
    let go_tables = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8].repeat(PAYLOAD / 8);
    let function_symbols = [1, 0, 0, 0, 0x12, 0, 1, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
    [
        ("zeros", vec![0; PAYLOAD]),
        ("ones", vec![1; PAYLOAD]),
        ("Go's tables", go_tables),
        ("symbols", function_symbols.repeat(PAYLOAD / 24)),
    ]
}

#[test]
fn sections_of_an_elf_file_over_each_other_are_read_in_proportion() {
    let kinds: [(&str, u32, u64); 14] = [
        (".text", PROGBITS, CODE),
        (".note", NOTE, ALLOCATED),
        (".data", PROGBITS, ALLOCATED),
        (".plt", PROGBITS, CODE),
        (".rela.dyn", RELA, ALLOCATED),
        (".symtab", SYMTAB, 0),
        (".dynsym", DYNSYM, ALLOCATED),
        (".debug_gdb_scripts", PROGBITS, ALLOCATED),
        (".debug_info", PROGBITS, 0),
        (".debug_info.dwo", PROGBITS, 0),
        (".zdebug_info", PROGBITS, 0),
        (".debug_abbrev", PROGBITS, 0),
        (".eh_frame", PROGBITS, ALLOCATED),
        (".gnu_debuglink", PROGBITS, 0),
    ];
    for (is_64, file_type) in [(true, 3), (false, 3), (true, 1), (false, 1)] {
        for (payload_name, payload) in payloads() {
            for (name, kind, flags) in kinds {
                let file = elf(is_64, file_type, name.as_bytes(), kind, flags, &payload);
                read_all(&format!("{name} of {payload_name}, 64 bits: {is_64}, type {file_type}"), &file);
            }
        }
    }
}

#[test]
fn long_names_of_elf_sections_are_looked_at_in_proportion() {
    let name = vec![b'n'; PAYLOAD];
    read_all("long names", &elf(true, 3, &name, PROGBITS, CODE, b"code"));
}

#[test]
fn relocations_of_one_section_in_many_tables_are_applied_in_proportion() {
    // The first section of the kind is section 1; its name is that of debug information in this one.
    let relocation = [0_u64, 1 << 32 | 1, 0].map(u64::to_le_bytes).concat();
    let mut file = elf(true, 1, b".debug_info", RELA, 0, &relocation.repeat(PAYLOAD / 24));
    let table = u64::from_le_bytes(file[40..48].try_into().expect("eight bytes")) as usize;
    file[table + 64] = 1;
    read_all("relocations", &file);
}

#[test]
fn code_that_lies_over_itself_thousands_of_times_gives_no_id() {
    let over = elf(true, 3, b".text", PROGBITS, CODE, &vec![0xc3; PAYLOAD]);
    assert_eq!(ObjectFile::parse(&over).expect("headers are fine").debug_id(), None);
}

/// A DLL of [`PARTS`] sections beside each other in memory and over each other in the file.
fn pe(name: &[u8; 8], characteristics: u32, payload: &[u8], symbols: &[u8]) -> Vec<u8> {
    let headers = 0x40 + 24 + 240;
    let payload_at = headers + 40 * PARTS;
    let symbols_at = payload_at + payload.len();
    let mut file = b"MZ".to_vec();
    file.resize(0x3c, 0);
    file.extend(0x40_u32.to_le_bytes());
    file.extend(b"PE\0\0\x64\x86");
    file.extend((PARTS as u16).to_le_bytes());
    file.extend([0; 4]);
    file.extend((symbols_at as u32).to_le_bytes());
    file.extend((symbols.len() as u32 / 18).to_le_bytes());
    file.extend([240, 0, 0, 0x20, 0x0b, 2]);
    file.resize(0x40 + 24 + 108, 0);
    file.extend(16_u32.to_le_bytes());
    file.resize(headers, 0);
    for number in 0..PARTS as u32 {
        file.extend(name);
        for value in [payload.len() as u32, 0x1000 + number * 0x1000 * 16, payload.len() as u32, payload_at as u32] {
            file.extend(value.to_le_bytes());
        }
        file.extend([0; 12]);
        file.extend(characteristics.to_le_bytes());
    }
    file.extend(payload);
    file.extend(symbols);
    // The string table: one name without an end.
    file.extend((PAYLOAD as u32 + 4).to_le_bytes());
    file.extend(vec![b'n'; PAYLOAD]);
    file
}

#[test]
fn sections_of_a_pe_file_over_each_other_are_read_in_proportion() {
    const EXECUTED: u32 = 0x6000_0020;
    for (payload_name, mut payload) in payloads() {
        // Sections must not overlap in memory, where there is room for so many of this size.
        payload.truncate(0x1_0000);
        for (name, characteristics) in [(b".text\0\0\0", EXECUTED), (b".data\0\0\0", 0), (b"/4\0\0\0\0\0\0", 0)] {
            let file = pe(name, characteristics, &payload, &[]);
            read_all(&format!("{} of {payload_name}", String::from_utf8_lossy(name)), &file);
        }
    }
    // Every symbol has the longest name.
    let symbol = [0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0x20, 0, 2, 0];
    read_all("symbols of one name", &pe(b".text\0\0\0", EXECUTED, &[0xc3; 64], &symbol.repeat(PAYLOAD / 18)));
}

/// A library of one segment with [`PARTS`] sections over the payload.
fn macho(segment: &str, name: &str, flags: u32, payload: &[u8]) -> Vec<u8> {
    let named = |name: &str| {
        let mut bytes = name.as_bytes().to_vec();
        bytes.resize(16, 0);
        bytes
    };
    let command = 72 + 80 * PARTS;
    let at = 32 + command;
    let mut file = Vec::new();
    for value in [0xfeed_facf_u32, 0x0100_0007, 3, 6, 1, command as u32, 0, 0, 0x19, command as u32] {
        file.extend(value.to_le_bytes());
    }
    file.extend(named(segment));
    for value in [0x1000_u64, payload.len() as u64, at as u64, payload.len() as u64] {
        file.extend(value.to_le_bytes());
    }
    for value in [5_u32, 5, PARTS as u32, 0] {
        file.extend(value.to_le_bytes());
    }
    for _ in 0..PARTS {
        file.extend([named(name), named(segment)].concat());
        file.extend([0x1000_u64, payload.len() as u64].map(u64::to_le_bytes).concat());
        for value in [at as u32, 0, 0, 0, flags, 0, 0, 0] {
            file.extend(value.to_le_bytes());
        }
    }
    file.extend(payload);
    file
}

#[test]
fn sections_of_a_macho_file_over_each_other_are_read_in_proportion() {
    const INSTRUCTIONS: u32 = 0x8000_0400;
    for (payload_name, payload) in payloads() {
        for (segment, name, flags) in [
            ("__TEXT", "__text", INSTRUCTIONS),
            ("__DATA", "__data", 0),
            ("__TEXT", "__eh_frame", 0),
            ("__DWARF", "__debug_info", 0),
            ("__DWARF", "__debug_gdb_scri", 0),
        ] {
            let file = macho(segment, name, flags, &payload);
            read_all(&format!("{name} of {payload_name}"), &file);
        }
    }
    let over = macho("__TEXT", "__text", INSTRUCTIONS, &vec![0xc3; PAYLOAD]);
    assert_eq!(ObjectFile::parse(&over).expect("headers are fine").debug_id(), None);
}

/// An entry of kind 4: a name, a line feed, Python. (GDB manual, "The .debug_gdb_scripts section")
const SCRIPT: &[u8] = b"\x04inline\nimport os\n\0";
/// An entry that names a file.
const FILE_NAME: &[u8] = b"\x01printers.py\0";

fn carries_script(file: &[u8]) -> bool {
    ReleaseFile::parse(file).expect("headers are fine").has_inline_debugger_scripts()
}

#[test]
fn scripts_in_pe_and_macho_files_are_found_by_the_names_that_bfd_reads() {
    let name_of_pe = |name: &[u8; 8], content: &[u8]| {
        let mut file = pe(name, 0, content, &[]);
        let strings = file.len() - PAYLOAD;
        file.truncate(strings);
        file.extend(b".debug_gdb_scripts");
        let length = 4 + b".debug_gdb_scripts".len() as u32;
        file[strings - 4..strings].copy_from_slice(&length.to_le_bytes());
        carries_script(&file)
    };
    // As compilers write it; as `strtol` takes it; in base 64. The name's NUL is missing, which BFD adds.
    for name in [b"/4\0\0\0\0\0\0", b"/0000004", b"/ +4\0\0\0\0", b"//AAAAAE"] {
        assert!(name_of_pe(name, SCRIPT), "{name:?}");
        assert!(!name_of_pe(name, FILE_NAME), "{name:?}");
    }
    assert!(!name_of_pe(b"/5\0\0\0\0\0\0", SCRIPT), "a name of which the first byte is cut is another one");
    for (segment, name) in [("__DWARF", "__debug_gdb_scri"), ("__TEXT", "__debug_gdb_scri"), ("", "__zdebug_gdb_scr")] {
        assert!(carries_script(&macho(segment, name, 0, SCRIPT)), "{segment},{name}");
    }
    assert!(!carries_script(&macho("__DWARF", "__debug_gdb_scri", 0, FILE_NAME)));
    assert!(!carries_script(&macho("__DWARF", "__debug_str", 0, SCRIPT)));
    let mut fat = vec![0xca, 0xfe, 0xba, 0xbe, 0, 0, 0, 1, 1, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0x10, 0];
    let slice = macho("__DWARF", "__debug_gdb_scri", 0, SCRIPT);
    fat.extend((slice.len() as u32).to_be_bytes());
    fat.extend([0, 0, 0, 12]);
    fat.resize(0x1000, 0);
    fat.extend(slice);
    assert!(carries_script(&fat));
}
