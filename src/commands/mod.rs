//! One file per command: its arguments, the room it calls, what it prints.

#![allow(missing_docs, reason = "what a command is for stands in its help text, which clap takes from its arguments")]

pub mod bundle;
pub mod doctor;
pub mod explain;
pub mod gateway;
pub mod import;
pub mod index;
pub mod key;
pub mod log;
pub mod mirror;
pub mod publish;
pub mod serve;
pub mod setup;
pub mod store;
pub mod symbolize;
pub mod token;
pub mod trace;
pub mod trust;
pub mod upload;
pub mod verify_bundle;
pub mod verify_frame;

use symseal_module::{Avma, DebugId};

/// Parses a debug id for clap. UUIDs may have the dashes with which dwarfdump and llvm-objdump print them.
fn debug_id(text: &str) -> Result<DebugId, String> {
    let uuid = text.strip_prefix("uuid:").map(|uuid| format!("uuid:{}", uuid.replace('-', "")));
    uuid.as_deref().unwrap_or(text).parse().map_err(|error| format!("{text}: {error}"))
}

/// Parses a hexadecimal address for clap and standard input.
fn address(text: &str) -> Result<u64, String> {
    text.parse::<Avma>().map(|address| address.0).map_err(|error| format!("{text}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_may_have_dashes_as_other_tools_print_it() {
        let plain = debug_id("uuid:4c4c44ba55553144a1d5a9b5a3c1d2e3").unwrap();
        assert_eq!(debug_id("uuid:4C4C44BA-5555-3144-A1D5-A9B5A3C1D2E3").unwrap(), plain);
        assert!(debug_id("uuid:4C4C44BA-5555").is_err());
    }
}
