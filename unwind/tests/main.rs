//! The tests of this room in one program: each file of its own would be linked with everything once more. What must be alone in its process
//! (`Cargo.toml` names it) is not among them.
#![allow(clippy::expect_used, reason = "a test that cannot go on says so")]

mod cfi;
mod differential;
mod elf;
mod emulated;
mod every_code;
mod exidx_tables;
mod go_runtime;
mod go_tables;
mod hostile;
mod image_tables;
mod images;
mod mips_frames;
mod python_reader;
mod readelf_rows;
mod records;
mod stripped;
mod toolchains;
mod traps;
mod traps_arm;
mod traps_async;
mod traps_cfi;
mod traps_coroutines;
mod traps_dwarf_forms;
mod traps_ends;
mod traps_fallback;
mod traps_i686;
mod traps_leaves;
mod traps_link_register;
mod traps_listed;
mod traps_macho;
mod traps_mips;
mod traps_realigned;
mod traps_riscv64;
mod traps_windows;
mod traps_windows_arm64;
mod widths;
