//! Every fuzz target in one program, which is built and linked once; `SYMSEAL_FUZZ_TARGET` names the one that runs.
#![no_main]

// The server's index of ids, which a target includes as it stands, names it so.
#[path = "../../server/src/numbered.rs"]
mod numbered;
mod streams;
mod targets;

use std::sync::LazyLock;

use targets::{TARGETS, Target};

static CHOSEN: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("SYMSEAL_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target);
    found.unwrap_or_else(|| {
        let known: Vec<&str> = TARGETS.iter().map(|(known, _)| *known).collect();
        panic!("SYMSEAL_FUZZ_TARGET is {name:?}; expected one of {}", known.join(", "))
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| CHOSEN(bytes));
