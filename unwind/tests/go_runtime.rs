//! What is read of a Go program for the way to its goroutines, in made files: the names of functions, and fields by the debug information.

use crate::cfi;
use std::collections::HashMap;

use crate::elf::Random;
use gimli::write::{AttributeValue, DwarfUnit, EndianVec, Sections};
use gimli::{Encoding, Format, LittleEndian};
use symseal_module::{Rva, Svma};
use symseal_unwind::compile::{Input, compile, go_runtime};
use symseal_unwind::{Arch, GoRuntime, GoroutineFields, Table};

const TEXT: u64 = 0x1000;
const NAMES: [&str; 5] =
    ["main.main", "runtime.systemstack", "runtime.asmcgocall", "runtime.mcallx", "runtime.morestack"];

/// A table of functions of Go 1.20 with [`NAMES`], 16 bytes each.
fn pclntab() -> Vec<u8> {
    const HEADER: usize = 8 + 8 * 8;
    const INDEX: usize = HEADER + 128;
    let names: Vec<u8> = NAMES.iter().flat_map(|name| name.bytes().chain([0])).collect();
    let mut bytes = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8].to_vec();
    let fields = [NAMES.len() as u64, 0, TEXT, HEADER as u64, 0, 0, HEADER as u64, INDEX as u64];
    bytes.extend(fields.into_iter().flat_map(u64::to_le_bytes));
    bytes.extend(&names);
    bytes.resize(INDEX, 0);
    let records = 4 * (2 * NAMES.len() as u32 + 1);
    let mut record = Vec::new();
    let mut name_at = 0;
    for (at, name) in (0..).zip(NAMES) {
        bytes.extend([16 * at, records + record.len() as u32].into_iter().flat_map(u32::to_le_bytes));
        // entry, nameOff, args, deferreturn, pcsp, pcfile, pcln, npcdata, cuOffset, startLine; funcID, flag, pad, nfuncdata
        record.extend([16 * at, name_at, 0, 0, 0, 0, 0, 0, 0, 0, 0].into_iter().flat_map(u32::to_le_bytes));
        name_at += name.len() as u32 + 1;
    }
    bytes.extend((16 * NAMES.len() as u32).to_le_bytes());
    bytes.extend(record);
    bytes
}

/// Debug information with these structures, by their names, and the fields of each.
fn debug_information(structures: &[(&str, &[(&str, u64)])]) -> HashMap<&'static str, Vec<u8>> {
    let mut dwarf = DwarfUnit::new(Encoding { format: Format::Dwarf32, version: 5, address_size: 8 });
    let unit = &mut dwarf.unit;
    let root = unit.root();
    for (name, fields) in structures {
        let structure = unit.add(root, gimli::DW_TAG_structure_type);
        unit.get_mut(structure).set(gimli::DW_AT_name, AttributeValue::String(name.as_bytes().to_vec()));
        for (name, at) in *fields {
            let member = unit.add(structure, gimli::DW_TAG_member);
            let member = unit.get_mut(member);
            member.set(gimli::DW_AT_name, AttributeValue::String(name.as_bytes().to_vec()));
            member.set(gimli::DW_AT_data_member_location, AttributeValue::Udata(*at));
        }
    }
    let mut sections = Sections::new(EndianVec::new(LittleEndian));
    dwarf.write(&mut sections).expect("debug information");
    let mut found = HashMap::new();
    sections
        .for_each(|id, data| {
            found.insert(id.name(), data.slice().to_vec());
            Ok::<_, gimli::write::Error>(())
        })
        .expect("no errors");
    found
}

const G: (&str, &[(&str, u64)]) = ("runtime.g", &[("stack", 0), ("m", 0x30), ("sched", 0x38)]);
const STACK: (&str, &[(&str, u64)]) = ("runtime.stack", &[("lo", 0), ("hi", 8)]);
const GOBUF: (&str, &[(&str, u64)]) = ("runtime.gobuf", &[("sp", 0), ("pc", 8), ("bp", 0x28)]);
const M: (&str, &[(&str, u64)]) = ("runtime.m", &[("g0", 0), ("curg", 0xb8)]);

fn read(pclntab: &[u8], sections: &HashMap<&str, Vec<u8>>) -> Option<GoRuntime<Svma>> {
    let id = cfi::debug_id();
    let input = Input { pclntab: Some((0x9000, pclntab)), ..Input::of(Arch::X86_64, &id) };
    let section = |name: &str| sections.get(name).map_or(&[][..], Vec::as_slice);
    go_runtime(&input, section)
}

#[test]
fn functions_that_change_stacks_are_known_by_their_names_and_fields_by_their_structures() {
    // A structure that another one has within it does not count, nor does one of another package.
    let decoy: (&str, &[(&str, u64)]) = ("main.g", &[("stack", 77), ("m", 77), ("sched", 77)]);
    let found = read(&pclntab(), &debug_information(&[decoy, M, GOBUF, STACK, G])).expect("a runtime");
    let function = |at: u64| Svma(0x1000 + 16 * at)..Svma(0x1010 + 16 * at);
    assert_eq!((found.switches, found.c_calls), (vec![function(1), function(4)], vec![function(2)]));
    let g = GoroutineFields { stack_lo: 0, stack_hi: 8, m: 0x30, sched_sp: 0x38, sched_pc: 0x40, sched_bp: 0x60 };
    assert_eq!((found.g, found.curg), (g, 0xb8));
}

#[test]
fn a_table_keeps_the_runtime_and_says_so() {
    let found = read(&pclntab(), &debug_information(&[M, GOBUF, STACK, G])).expect("a runtime");
    let id = cfi::debug_id();
    let text = TEXT..TEXT + 16 * NAMES.len() as u64;
    let input = Input { image_base: Svma(0x800), text: std::slice::from_ref(&text), ..Input::of(Arch::X86_64, &id) };
    let without = compile(&input).expect("a table");
    assert_eq!(
        (Table::open(&without.bytes).expect("our own").go_runtime(), without.report.has_go_runtime),
        (None, false)
    );
    let with = compile(&Input { go_runtime: Some(&found), ..input.clone() }).expect("a table");
    let table = Table::open(&with.bytes).expect("our own");
    assert_eq!(table.verify(), Ok(()));
    assert!(with.report.has_go_runtime);
    let relative = found.with_addresses(|svma| Some(Rva(svma.0 - 0x800)));
    assert_eq!(table.go_runtime(), Some(relative));
    // Of other code, as debug information beside the wrong program would have it.
    let text = 0x1_0000..0x2_0000;
    let input = Input { image_base: Svma(0x1_0000), text: std::slice::from_ref(&text), ..input };
    let other = compile(&Input { go_runtime: Some(&found), ..input }).expect("a table");
    assert_eq!(Table::open(&other.bytes).expect("our own").go_runtime(), None);
}

#[test]
fn without_one_of_the_structures_there_is_no_runtime() {
    let all = [G, STACK, GOBUF, M];
    for left_out in 0..all.len() {
        let rest: Vec<_> = all.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, of)| *of).collect();
        assert_eq!(read(&pclntab(), &debug_information(&rest)), None);
    }
    // A field too few; places that are larger than any structure.
    let half: (&str, &[(&str, u64)]) = ("runtime.gobuf", &[("sp", 0), ("pc", 8)]);
    assert_eq!(read(&pclntab(), &debug_information(&[G, STACK, half, M])), None);
    let far: (&str, &[(&str, u64)]) = ("runtime.m", &[("curg", 1 << 40)]);
    assert_eq!(read(&pclntab(), &debug_information(&[G, STACK, GOBUF, far])), None);
    let far: (&str, &[(&str, u64)]) = ("runtime.g", &[("stack", 0), ("m", 8), ("sched", u32::MAX as u64)]);
    assert_eq!(read(&pclntab(), &debug_information(&[far, STACK, GOBUF, M])), None);
    assert_eq!(read(&[], &debug_information(&all)), None);
}

#[test]
fn damaged_debug_information_and_tables_are_read_without_harm() {
    let (pclntab, sections) = (pclntab(), debug_information(&[G, STACK, GOBUF, M]));
    let mut random = Random(31);
    let mut damage = |bytes: &mut Vec<u8>| {
        for _ in 0..1 + random.below(3) {
            let length = bytes.len() as u64;
            match (random.below(8), bytes.get_mut(random.below(length.max(1)) as usize)) {
                (0, _) => bytes.truncate(random.below(length + 1) as usize),
                (_, Some(byte)) => *byte = random.next() as u8,
                (_, None) => {}
            }
        }
    };
    let (mut read_still, mut refused) = (0, 0);
    for turn in 0..20_000 {
        let (mut table, mut damaged) = (pclntab.clone(), sections.clone());
        if turn % 4 == 0 {
            damage(&mut table);
        } else {
            for name in [".debug_info", ".debug_abbrev"] {
                damage(damaged.get_mut(name).expect("a section"));
            }
        }
        match read(&table, &damaged) {
            Some(_) => read_still += 1,
            None => refused += 1,
        }
    }
    assert!(read_still > 1000 && refused > 1000, "{read_still} read, {refused} refused");
}

/// A unit of DWARF 5 with these entries, and its table of abbreviations at an offset.
fn unit(abbreviations: usize, entries: &[u8]) -> Vec<u8> {
    let length = (2 + 1 + 1 + 4 + entries.len()) as u32;
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend([5, 0, gimli::DW_UT_compile.0, 8]);
    bytes.extend((abbreviations as u32).to_le_bytes());
    bytes.extend(entries);
    bytes
}

/// Reads debug information, which must not take the minutes that reading any part once for each other one takes.
fn check_time(name: &str, sections: &HashMap<&str, Vec<u8>>) {
    let began = std::time::Instant::now();
    assert_eq!(read(&pclntab(), sections), None);
    let taken = began.elapsed();
    println!("{name}: {taken:?}");
    assert!(taken.as_secs() < 5, "{name}: {taken:?}");
}

#[test]
fn hostile_debug_information_takes_time_that_grows_with_its_size() {
    const UNITS: usize = 50_000;
    // Abbreviations of seven bytes each: number, tag, no children, no attributes.
    let many: Vec<u8> = (1..=UNITS)
        .flat_map(|number| {
            let low = |shift: usize| (number >> shift & 0x7f) as u8;
            [low(0) | 0x80, low(7) | 0x80, low(14), gimli::DW_TAG_structure_type.0 as u8, 0, 0, 0]
        })
        .chain([0])
        .collect();
    let units = (0..UNITS).flat_map(|_| unit(0, &[1])).collect();
    check_time("one table for many units", &[(".debug_info", units), (".debug_abbrev", many.clone())].into());
    let units = (0..UNITS).flat_map(|at| unit(7 * at, &[1])).collect();
    check_time("tables within each other", &[(".debug_info", units), (".debug_abbrev", many)].into());

    // Unit, with structures, with fields; their names begin in a string without an end.
    let name = [gimli::DW_AT_name.0 as u8, gimli::DW_FORM_strp.0 as u8];
    let location = [gimli::DW_AT_data_member_location.0 as u8, gimli::DW_FORM_data1.0 as u8];
    let abbreviations = [
        &[1, gimli::DW_TAG_compile_unit.0 as u8, 1, 0, 0, 2, gimli::DW_TAG_structure_type.0 as u8, 1][..],
        &name,
        &[0, 0, 3, gimli::DW_TAG_member.0 as u8, 0],
        &name,
        &location,
        &[0, 0, 0],
    ];
    let entries: Vec<u8> = [1, 2, 0, 0, 0, 0].into_iter().chain([3, 0, 0, 0, 0, 8].repeat(4 * UNITS)).collect();
    let sections = [
        (".debug_info", unit(0, &entries)),
        (".debug_abbrev", abbreviations.concat()),
        (".debug_str", vec![b'a'; 1 << 22]),
    ];
    check_time("names without an end", &sections.into());

    // Attributes that take no bytes.
    let flag = [gimli::DW_AT_external.0 as u8, gimli::DW_FORM_flag_present.0 as u8];
    let abbreviations = [&[1, gimli::DW_TAG_member.0 as u8, 0][..], &flag.repeat(2 * UNITS), &[0, 0, 0]];
    let units = (0..UNITS).flat_map(|_| unit(0, &[1].repeat(4))).collect();
    check_time("attributes without bytes", &[(".debug_info", units), (".debug_abbrev", abbreviations.concat())].into());
}
