//! Mach-O files made byte by byte: what real ones rarely have, and what is refused.

use crate::support::lookup;
use crate::support::macho_file::{BASE, Maker, TEXT, UUID, fat};
use symseal_artifact::{Arch, DebugFiles, IdKind, ObjectFile, ReleaseFile, functions};
use symseal_module::DebugId;
use symseal_symx::SymbolSource;

/// Records as `start+size symbol`, addresses from the code's beginning.
fn records(object: &ObjectFile<'_>) -> Vec<String> {
    let stream = functions(object, &DebugFiles::default()).expect("functions");
    lookup::check_shape(&stream);
    let text = TEXT - BASE;
    let line = |function: &symseal_symx::FunctionRecord| {
        let name = stream.strings.get(function.symbol);
        assert_eq!(name.is_empty(), function.source == SymbolSource::FunctionStarts);
        format!("{}+{} {name}", function.start.0 - text, function.size)
    };
    stream.functions.iter().map(line).collect()
}

#[test]
fn both_word_sizes_and_byte_orders_are_read() {
    for (is_64, is_little, cpu, arch) in [
        (true, true, 0x0100_0007, Arch::X86_64),
        (false, true, 7, Arch::X86),
        (true, false, 0x0100_0012, Arch::Ppc64),
        (false, false, 18, Arch::Ppc),
    ] {
        let bytes = Maker { is_64, is_little, cpu, ..Maker::default() }.make();
        let object = ObjectFile::parse(&bytes).expect("a program");
        assert_eq!((object.is_64(), object.is_little_endian(), object.arch()), (is_64, is_little, arch));
        assert_eq!((object.debug_id(), object.id_kind()), (Some(&DebugId::MachoUuid(UUID)), IdKind::MachoUuid));
        let text = object.unwind_inputs().text;
        assert_eq!((object.image_base().0, text.len(), text[0].clone()), (BASE, 1, TEXT..TEXT + 64));
        // The third start, which no symbol names, ends the second function.
        assert_eq!(records(&object), ["0+16 main", "16+16 local", "32+32 "]);
    }
}

#[test]
fn a_file_at_an_odd_address_of_memory_reads_the_same() {
    let bytes = [vec![0], Maker::default().make()].concat();
    assert_eq!(records(&ObjectFile::parse(&bytes[1..]).expect("a program")).len(), 3);
}

#[test]
fn processors_are_told_apart() {
    for (cpu, subtype, arch) in [
        (0x0100_000c, 0, Arch::Aarch64),
        (0x0100_000c, 2, Arch::Arm64e),
        // With the version of its pointer signatures.
        (0x0100_000c, 0x8000_0002, Arch::Arm64e),
        (0x0200_000c, 1, Arch::Aarch64),
        (0x0100_0007, 8, Arch::X86_64),
        (12, 12, Arch::Arm),
        (0x0100_0063, 0, Arch::Other(0x63)),
    ] {
        let bytes = Maker { cpu, subtype, ..Maker::default() }.make();
        assert_eq!(ObjectFile::parse(&bytes).expect("a program").arch(), arch, "{cpu:#x} {subtype:#x}");
    }
}

#[test]
fn thumb_code_starts_at_even_addresses() {
    // The second symbol is Thumb code; its function start has bit 0 set.
    let symbols = vec![(TEXT, 0x0f, 0, "_arm"), (TEXT + 16, 0x0f, 8, "_thumb")];
    let starts = vec![0x80, 0x10, 17, 0];
    let bytes = Maker { is_64: false, cpu: 12, subtype: 9, symbols, starts, ..Maker::default() }.make();
    assert_eq!(records(&ObjectFile::parse(&bytes).expect("a program")), ["0+16 arm", "16+48 thumb"]);
}

#[test]
fn one_underscore_is_the_format_s_and_labels_are_no_functions() {
    let symbols = vec![
        (TEXT, 0x0e, 0, "ltmp0"),
        (TEXT, 0x0f, 0, "__ZN1a1bEv"),
        (TEXT + 8, 0x0e, 0, "Llabel"),
        (TEXT + 16, 0x0e, 0, "plain"),
        (TEXT + 32, 0x0e, 0, "_"),
        // Entries for debuggers and undefined ones name nothing.
        (TEXT + 40, 0x24, 0, "_stab"),
        (TEXT + 48, 0x01, 0, "_undefined"),
    ];
    let bytes = Maker { symbols, starts: Vec::new(), ..Maker::default() }.make();
    assert_eq!(records(&ObjectFile::parse(&bytes).expect("a program")), ["0+16 _ZN1a1bEv", "16+16 plain", "32+32 _"]);
}

#[test]
fn without_a_uuid_the_code_is_the_id_whatever_the_symbols() {
    let id_of = |maker: &Maker| {
        let bytes = maker.make();
        let object = ObjectFile::parse(&bytes).expect("a program");
        (object.debug_id().cloned(), object.id_kind())
    };
    let none = Maker { uuid: None, ..Maker::default() };
    let (id, kind) = id_of(&none);
    assert!(matches!(id, Some(DebugId::MachoUuid(_))));
    assert_eq!(kind, IdKind::TextHash);
    let stripped = Maker { symbols: Vec::new(), ..none.clone() };
    assert_eq!(id_of(&stripped), (id.clone(), kind));
    // Zeros identify nothing.
    assert_eq!(id_of(&Maker { uuid: Some([0; 16]), ..none }), (id, kind));
}

#[test]
fn encrypted_code_is_recognised_and_identifies_nothing() {
    let bytes = Maker { encrypted: Some(1), uuid: None, ..Maker::default() }.make();
    let object = ObjectFile::parse(&bytes).expect("a program");
    assert!(object.has_encrypted_code() && object.is_executable());
    assert_eq!((object.debug_id(), object.section("__text")), (None, None));
    // Symbols are in plain.
    assert_eq!(records(&object).len(), 3);
    let bytes = Maker { encrypted: Some(0), ..Maker::default() }.make();
    let object = ObjectFile::parse(&bytes).expect("a program");
    assert!(!object.has_encrypted_code() && object.section("__text").is_some());
}

const X86_64: (u32, u32) = (0x0100_0007, 3);
const ARM64: (u32, u32) = (0x0100_000c, 0);

fn slice_of((cpu, subtype): (u32, u32)) -> Vec<u8> {
    Maker { cpu, subtype, ..Maker::default() }.make()
}

#[test]
fn universal_files_of_both_kinds_give_their_slices_in_order() {
    let (one, two) = (slice_of(X86_64), slice_of(ARM64));
    let size = one.len() as u64;
    for is_64 in [false, true] {
        let table = [(X86_64.0, X86_64.1, 0x1000, size), (ARM64.0, ARM64.1, 0x2000, size)];
        let bytes = fat(is_64, &table, &[(0x1000, &one), (0x2000, &two)]);
        let Ok(ReleaseFile::Fat(slices)) = ReleaseFile::parse(&bytes) else { panic!("a universal file") };
        assert_eq!(slices.iter().map(ObjectFile::arch).collect::<Vec<_>>(), [Arch::X86_64, Arch::Aarch64]);
        assert!(slices.iter().all(|slice| records(slice).len() == 3));
        let error = ObjectFile::parse(&bytes).expect_err("not one object").to_string();
        assert!(error.contains("universal"), "{error}");
    }
}

#[test]
fn a_table_of_slices_may_leave_out_what_the_slices_can_do() {
    /// `CPU_SUBTYPE_LIB64`, which linkers put in the header of programs alone.
    const CAPABILITY: u32 = 0x8000_0000;
    let one = slice_of((X86_64.0, X86_64.1 | CAPABILITY));
    let size = one.len() as u64;
    for subtype in [X86_64.1, X86_64.1 | CAPABILITY] {
        let bytes = fat(false, &[(X86_64.0, subtype, 0x1000, size)], &[(0x1000, &one)]);
        let Ok(ReleaseFile::Fat(slices)) = ReleaseFile::parse(&bytes) else { panic!("a universal file") };
        assert_eq!(slices.iter().map(ObjectFile::arch).collect::<Vec<_>>(), [Arch::X86_64]);
    }
    // Which processor it is of is no such thing.
    const ARM64E: (u32, u32) = (ARM64.0, 2);
    check_refused(
        &[(ARM64, 0x1000, size)],
        &[(0x1000, &slice_of(ARM64E))],
        &["the arm64 slice", "processor", "arm64e"],
    );
}

/// The reason for which a universal file is refused.
#[track_caller]
fn check_refused(slices: &[((u32, u32), u64, u64)], contents: &[(u64, &[u8])], expected: &[&str]) {
    let slices: Vec<_> = slices.iter().map(|((cpu, subtype), offset, size)| (*cpu, *subtype, *offset, *size)).collect();
    let error = ReleaseFile::parse(&fat(false, &slices, contents)).expect_err("a reason").to_string();
    assert!(expected.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn slices_that_overlap_leave_the_file_or_are_something_else_are_refused() {
    let one = slice_of(X86_64);
    let size = one.len() as u64;
    let at = (0x1000, one.as_slice());
    check_refused(
        &[(X86_64, 0x1000, size), (ARM64, 0x1800, size)],
        &[at, (0x1800, &one)],
        &["overlap", "arm64", "x86_64"],
    );
    check_refused(&[(X86_64, 0x1000, size), (ARM64, 0x1000, size)], &[at], &["overlap"]);
    check_refused(&[(X86_64, 0x1000, size + 1)], &[at], &["the x86_64 slice", "0x1000"]);
    check_refused(&[(X86_64, u64::from(u32::MAX), size)], &[at], &["the x86_64 slice"]);
    check_refused(&[(X86_64, 8, size)], &[at], &["the table of slices", "overlap"]);
    check_refused(&[], &[at], &["1 to 32 slices"]);
    check_refused(&[(ARM64, 0x1000, size)], &[at], &["the arm64 slice", "processor", "x86_64"]);
    check_refused(&[(X86_64, 0x1000, size - 8)], &[at], &["the x86_64 slice", "cut short"]);
    check_refused(&[(X86_64, 0x1000, 8)], &[(0x1000, b"!<arch>\n")], &["no Mach-O file", "ar archive"]);
    check_refused(&[(X86_64, 0x1000, 8)], &[(0x1000, &[0; 8])], &["the x86_64 slice", "00 00 00 00"]);
    check_refused(
        &[(X86_64, 0x1000, size), (ARM64, 0x3000, 8)],
        &[at, (0x3000, b"!<arch>\n")],
        &["the arm64 slice", "ar archive"],
    );
}

#[test]
fn a_shared_cache_and_a_class_file_are_called_by_their_names() {
    for (bytes, expected) in
        [(&b"dyld_v1   arm64e\0"[..], "dyld shared cache"), (b"\xca\xfe\xba\xbe\0\0\0\x34", "Java class file")]
    {
        let error = ReleaseFile::parse(bytes).expect_err("a reason").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn commands_and_sections_outside_the_file_are_refused() {
    let whole = Maker::default().make();
    // (offset of a field of the first load command, its value, a part of the reason)
    for (at, value, expected) in [
        (16, 1000, "load commands"),
        (20, u32::MAX, "the load commands"),
        (36, 4, "a size from 8"),
        (32 + 48, u32::MAX, "segment __TEXT"),
        (32 + 64, 1000, "segment __TEXT"),
        (32 + 72 + 48, u32::MAX, "section __TEXT,__text"),
    ] {
        let mut bytes = whole.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let error = ObjectFile::parse(&bytes).expect_err("a reason").to_string();
        assert!(error.contains(expected), "{at}: {error}");
    }
}
