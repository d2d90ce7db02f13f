//! Compiles the unwind table of each FILE once: what callgrind counts the instructions of.
//!
//! `valgrind --tool=callgrind target/release/compile-once FILE` in `benches/`

#[path = "../../../../unwind/tests/elf/mod.rs"]
mod elf;

use elf::Binary;

fn main() {
    for file in std::env::args().skip(1) {
        let binary = Binary::read(&file).expect("a file that can be read");
        let began = std::time::Instant::now();
        let compiled = binary.compile();
        println!(
            "{file}: {} rows, {} bytes, {:.1} ms",
            compiled.report.rows,
            compiled.bytes.len(),
            began.elapsed().as_secs_f64() * 1e3
        );
    }
}
