//! The server's readers of headers, paths, queries and manifests: `cargo fuzz run --features server server_requests`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| symseal_server::fuzzing::read_requests(bytes));
