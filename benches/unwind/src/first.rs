//! The first frame of a module: its table is opened, mapped and asked for one rule, with nothing of it in this process before.

use std::io::Write;
use std::time::Instant;

use symseal_module::{Avma, Svma};
use symseal_unwind::{Arch, Cache, Frame, Module, Modules, Registers, StackBytes, Table, unwind};

use crate::elf::Binary;

/// Addresses that are asked for, each of a new map.
const ADDRESSES: u64 = 201;

/// Prints the median and the worst over addresses all over the module's code, in wall time, with the file in the page cache. Opening, mapping and taking the map
/// away again count.
pub fn report(binaries: impl Iterator<Item = Binary>) {
    println!("\n| first frame of | table, bytes | median µs | worst µs | with a rule |");
    println!("| --- | --- | --- | --- | --- |");
    for binary in binaries {
        let table = binary.compile().bytes;
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        file.write_all(&table).expect("room for the table");
        let Some(text) = binary.parts().text.iter().max_by_key(|range| range.end - range.start).cloned() else {
            continue;
        };
        // A frame that begins here; the caller's words are noise, of which the first is read.
        let stack = [1_u8; 4096];
        let mut times = Vec::new();
        let mut ruled = 0;
        for at in 0..ADDRESSES {
            let pc = text.start + (text.end - text.start) / ADDRESSES * at;
            let registers = Registers { pc, sp: 0x7000_0000, fp: 0x7000_0800, general: [None; Registers::GENERAL] };
            let began = Instant::now();
            let frames = first_frame(file.path(), &registers, &stack);
            times.push(began.elapsed().as_nanos() as u64);
            ruled += usize::from(frames > 1);
        }
        times.sort_unstable();
        let us = |ns: u64| ns as f64 / 1000.0;
        println!(
            "| {} | {} | {:.1} | {:.1} | {ruled} of {ADDRESSES} |",
            binary.path.file_name().unwrap_or_default().display(),
            table.len(),
            us(times[times.len() / 2]),
            us(times[times.len() - 1]),
        );
    }
}

#[inline(never)]
fn first_frame(path: &std::path::Path, registers: &Registers, stack: &[u8]) -> usize {
    let file = std::fs::File::open(path).expect("the table");
    // SAFETY: the file is this process's own, and nobody writes to it while it is mapped.
    let map = unsafe { memmap2::Mmap::map(&file) }.expect("a map");
    let table = Table::open(&map).expect("our own table");
    let module =
        Module { start: Avma(0), end: Avma(u64::MAX), bias: 0, image_base: Svma(0), table: Some(table), code: None };
    let modules = Modules::new(Arch::X86_64, vec![module]);
    let memory = StackBytes { start: Avma(0x7000_0000), bytes: stack };
    let mut frames = [Frame::EMPTY; 2];
    unwind(&modules, registers, &memory, &mut Cache::with_capacity(0), &mut frames).frames
}
