//! A PE file of headers alone for a PDB that came without its program, so that other readers can be asked for addresses.

use pdb_addr2line::pdb::PDB;
use std::io::Cursor;
use symseal_artifact::PdbFile;

const HEADERS: usize = 0x1000;
const IMAGE_BASE: u32 = 0x40_0000;

/// An image for x86 with the sections that the PDB says its program had; none of them has bytes. Another section, behind
/// them, names the PDB.
pub(crate) fn stub(pdb: &[u8], name: &str) -> Vec<u8> {
    let id = PdbFile::parse(pdb).expect("a PDB");
    let [a, b, c, d, e, f, g, h, rest @ ..] = id.guid();
    let sections = PDB::open(Cursor::new(pdb)).and_then(|mut pdb| pdb.sections());
    let sections = sections.expect("sections").expect("sections");
    let end = sections.iter().map(|section| section.virtual_address + section.virtual_size).max().unwrap_or(0);
    let own = end.next_multiple_of(0x1000);
    let record =
        [&b"RSDS"[..], &[d, c, b, a, f, e, h, g], &rest, &id.age().to_le_bytes(), name.as_bytes(), &[0]].concat();
    let own_size = 28 + record.len() as u32;

    let mut file = b"MZ".to_vec();
    file.resize(0x3c, 0);
    file.extend(0x40_u32.to_le_bytes());
    file.extend(b"PE\0\0");
    file.extend(0x14c_u16.to_le_bytes());
    file.extend((sections.len() as u16 + 1).to_le_bytes());
    file.extend([0; 12]);
    file.extend((96_u16 + 16 * 8).to_le_bytes());
    file.extend(0x0102_u16.to_le_bytes());
    let mut optional = vec![0; 96 + 16 * 8];
    let mut put = |at: usize, bytes: &[u8]| optional[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &0x10b_u16.to_le_bytes());
    put(28, &IMAGE_BASE.to_le_bytes());
    put(32, &0x1000_u32.to_le_bytes());
    put(36, &0x200_u32.to_le_bytes());
    put(56, &(own + 0x1000).to_le_bytes());
    put(60, &(HEADERS as u32).to_le_bytes());
    put(92, &16_u32.to_le_bytes());
    // The debug directory is the seventh.
    put(96 + 6 * 8, &own.to_le_bytes());
    put(96 + 6 * 8 + 4, &28_u32.to_le_bytes());
    file.extend(optional);
    let mut header = |name: [u8; 8], size: u32, rva: u32, stored: (u32, u32), characteristics: u32| {
        file.extend(name);
        for number in [size, rva, stored.0, stored.1, 0, 0, 0, characteristics] {
            file.extend(number.to_le_bytes());
        }
    };
    for section in &sections {
        header(section.name, section.virtual_size, section.virtual_address, (0, 0), section.characteristics.0);
    }
    header(*b".own\0\0\0\0", own_size, own, (0x200, HEADERS as u32), 0x4000_0040);
    file.resize(HEADERS, 0);
    // Type 2, CodeView; sizes and places of the record.
    for number in [0, 0, 0, 2, record.len() as u32, own + 28, HEADERS as u32 + 28] {
        file.extend(number.to_le_bytes());
    }
    file.extend(record);
    file.resize(HEADERS + 0x200, 0);
    file
}
