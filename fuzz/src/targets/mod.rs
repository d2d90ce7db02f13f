//! One module for each parser of bytes from outside; its seeds lie in `corpus/NAME`.

mod archive;
mod breakpad;
mod checkpoint;
mod consistency_file;
mod demangle;
mod dwunw_elf;
mod elf_functions;
mod elf_identity;
mod encrypted_key;
mod entry_request;
mod foreign_bundle;
mod frame_proof;
mod ids_index;
mod jitdump;
mod kallsyms;
mod kit;
mod kit_statement;
mod macho;
mod maps;
mod oci_manifest;
mod page_hashes;
mod pclntab;
mod pdb;
mod pe;
mod perf_map;
mod rekor_answer;
mod replay_trace;
mod seen_state;
#[cfg(feature = "server")]
mod server_requests;
mod sigstore_bundle;
mod sources;
mod stored_modules;
mod symbol_index;
mod symx;
mod tile_fragment;
mod tiles;
mod token_uri;
mod trace;
mod trust_directory;
mod uwt_compile;
mod uwt_images;
mod uwt_walk;
mod witness_answer;
mod witness_key;

/// A parser, held to what it promises on these bytes; a panic is a finding.
pub(crate) type Target = fn(&[u8]);

/// All targets by name.
pub(crate) const TARGETS: &[(&str, Target)] = &[
    ("archive", archive::run),
    ("breakpad", breakpad::run),
    ("checkpoint", checkpoint::run),
    ("consistency_file", consistency_file::run),
    ("dwunw_elf", dwunw_elf::run),
    ("demangle", demangle::run),
    ("elf_functions", elf_functions::run),
    ("elf_identity", elf_identity::run),
    ("encrypted_key", encrypted_key::run),
    ("entry_request", entry_request::run),
    ("foreign_bundle", foreign_bundle::run),
    ("frame_proof", frame_proof::run),
    ("ids_index", ids_index::run),
    ("jitdump", jitdump::run),
    ("kallsyms", kallsyms::run),
    ("kit", kit::run),
    ("kit_statement", kit_statement::run),
    ("macho", macho::run),
    ("maps", maps::run),
    ("oci_manifest", oci_manifest::run),
    ("page_hashes", page_hashes::run),
    ("pclntab", pclntab::run),
    ("pdb", pdb::run),
    ("pe", pe::run),
    ("perf_map", perf_map::run),
    ("rekor_answer", rekor_answer::run),
    ("replay_trace", replay_trace::run),
    ("seen_state", seen_state::run),
    #[cfg(feature = "server")]
    ("server_requests", server_requests::run),
    ("sigstore_bundle", sigstore_bundle::run),
    ("sources", sources::run),
    ("stored_modules", stored_modules::run),
    ("symbol_index", symbol_index::run),
    ("symx", symx::run),
    ("tile_fragment", tile_fragment::run),
    ("tiles", tiles::run),
    ("token_uri", token_uri::run),
    ("trace", trace::run),
    ("trust_directory", trust_directory::run),
    ("uwt_compile", uwt_compile::run),
    ("uwt_images", uwt_images::run),
    ("uwt_walk", uwt_walk::run),
    ("witness_answer", witness_answer::run),
    ("witness_key", witness_key::run),
];
