//! The tests of this room in one program: each file of its own would be linked with everything once more. What must be alone in its process
//! (`Cargo.toml` names it) is not among them.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod archive;
mod archive_bad_input;
mod archive_images;
mod archive_packages;
mod bad_input;
mod breakpad_files;
mod cabinets;
mod companions;
mod debian_packages;
mod elf_identity;
mod fixtures;
mod folded;
mod frame_data;
mod go;
mod go_table;
mod high_addresses;
mod hostile_elf;
mod identity;
mod kernel;
mod lent_files;
mod llvm_symbolizer;
mod lzx;
mod macho_bad_input;
mod macho_functions;
mod macho_headers;
mod macho_identity;
mod macho_made;
mod macho_wheels;
mod matrix;
mod mini_debug_info;
mod msf;
mod names_elsewhere;
mod overlapping;
mod reach;
mod relocatable;
mod support;
mod threads;
mod variants;
mod windows;
mod windows_bad_input;
mod windows_frames;
mod windows_hybrid;
mod windows_identity;
mod windows_pairs;
