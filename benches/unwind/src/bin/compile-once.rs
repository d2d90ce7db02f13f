//! Compiles the unwind table of each FILE once: what callgrind counts the instructions of.
//!
//! `valgrind --tool=callgrind target/release/compile-once FILE` in `benches/`

#[path = "../../../../unwind/tests/elf/mod.rs"]
mod elf;

use elf::Binary;
use symseal_unwind::compile::compile;

fn main() {
    for file in std::env::args().skip(1) {
        let binary = Binary::read(&file).expect("a file that can be read");
        let began = std::time::Instant::now();
        // Sections and symbols, and what debug information says of tasks and coroutines.
        let parts = binary.parts();
        let read = began.elapsed();
        let compiled = compile(&parts.input()).expect("a table");
        let length = |section: &Option<Vec<u8>>| section.as_ref().map_or(0, Vec::len);
        println!(
            "{file}: {} rows, {} bytes, of which {} tell of tasks and {} of coroutines; {:.1} ms to read, {:.1} ms to compile",
            compiled.report.rows,
            compiled.bytes.len(),
            length(&parts.tasks),
            length(&parts.coroutines),
            read.as_secs_f64() * 1e3,
            (began.elapsed() - read).as_secs_f64() * 1e3
        );
    }
}
